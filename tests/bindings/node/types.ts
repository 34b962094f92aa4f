// Compiled by tsc: what must be allowed, and (marked) what must not.
import {
  AbortError, Answer, ArchitectureRow, EagleOptions, EmbedOptions, Engine, EngineOptions, Group, Infill, LoadOptions,
  Model, ModelFile, Piece, RunnelError, ScoreOptions, Session, SessionFileOptions, Stream, StreamOptions,
  Template, TokenizeOptions, cache, version,
} from 'runnel';

// Each option may be null; `delivery` is none.
type Lacking<T> = { [K in keyof T]-?: undefined extends T[K] ? (null extends T[K] ? never : K) : never }[keyof T];
type LackingNull =
  | Exclude<Lacking<EngineOptions>, 'delivery'> | Lacking<ArchitectureRow> | Lacking<EagleOptions>
  | Lacking<EmbedOptions> | Lacking<Infill> | Lacking<LoadOptions> | Lacking<ScoreOptions> | Lacking<SessionFileOptions>
  | Lacking<StreamOptions> | Lacking<TokenizeOptions>;
export const lackingNull = (name: LackingNull): never => name;

async function use(): Promise<void> {
  const engine: Engine = await Engine.open({ computeThreads: 2, logLevel: 'info', onLog: (level, line) => level + line });
  const model: Model = await engine.loadModel('x.gguf', { kvType: 'q8', onProgress: (f) => f.toFixed() });
  const stream: Stream = model.stream({ prompt: 'a', maxTokens: 5, seed: 7n, biases: new Map([[1, -Infinity]]) });
  let text = '';
  for await (const piece of stream) {
    const one: Piece = piece;
    text += one.text;
    if (one.type === 'toolCall') stream.cancel();
  }
  const group: Group = engine.group({ highWater: 100 });
  const member: Stream = model.stream({ prompt: 'a', group });
  group.end();
  for await (const pieces of group)
    for (let i = 0; i < pieces.length; i++)
      if (pieces.stream(i) === member && pieces.type(i) !== 'end') text += pieces.text(i) + pieces.token(i).toFixed();
  const answer: Answer = await stream.result;
  const finish: 'stop' | 'length' | 'none' | 'cancelled' | 'failed' = answer.finish;
  const session: Session = model.session();
  await session.generate({ messages: [{ role: 'user', content: text + finish }], toolChoice: 'required' });
  await model.generate({ prompt: 'x', grammar: { schema: { type: 'object' }, closed: true } });
  await model.generate({ prompt: 'x', choose: ({ logits }) => logits.indexOf(0), draft: ['ngram', 'model'] });
  const bytes: ReadableStream<Uint8Array> = stream.readable({ bytes: true });
  const strings: ReadableStream<string> = stream.readable();
  const disposed: { [Symbol.asyncDispose](): PromiseLike<void> }[] = [engine, model, session, stream, group];
  const tokens: Int32Array = await model.tokenize('x');
  const embedding: Float32Array = (await model.embed('x')).embedding;
  const adapters = new Map([['sql', 'sql.gguf']]);
  const adapted = await engine.loadModel('x.gguf', {
    adapters: { sql: 'sql.gguf', law: { path: new URL('file:///law'), scale: 0.5 } },
  });
  await Promise.all([adapted.generate({ prompt: 'a', adapter: 'sql' }), adapted.embed({ text: 'a', adapter: null })]);
  console.log((await engine.loadModel('x.gguf', { adapters })).adapters[0].scale.toFixed());
  await model.generate({
    prompt: 'x', maxTokens: null, choose: null, signal: null, grammar: { regex: 'a', closed: null }
  });
  await engine.loadModel('x.gguf', { kvType: null, adapters: { sql: { path: 'sql.gguf', scale: null } } });
  const file = await ModelFile.open('x.gguf');
  const known: Template[] = (await file.templates()).concat(file.templatesSync(), model.templates());
  console.log(known, await model.detokenize([1], { special: null, bytes: null }), engine.group({ highWater: null }));
  const spelled: string = (await model.tokenText(1, { special: true })) + model.tokenTextSync(1);
  const pieces: Uint8Array[] = [await model.tokenText(1, { bytes: true }), model.tokenTextSync(1, { bytes: true })];
  console.log(spelled, pieces);
  const { damages } = await cache.verify('folder', null);
  try {
    await engine.close();
  } catch (error) {
    if (error instanceof RunnelError && error.code === 'BUSY') setTimeout(use, error.retryMs);
    if (error instanceof AbortError) console.log(error.partial?.text, error.cause);
  }
  console.log(bytes, strings, disposed.length, tokens.length, embedding.length, damages[0].what, version);

  // @ts-expect-error: there is no such option
  model.stream({ promt: 'a' });
  // @ts-expect-error: a group is the engine's
  model.stream({ prompt: 'a', group: 'all' });
  // @ts-expect-error: not a kind of keys and values
  engine.loadModel('x', { kvType: 'q77' });
  // @ts-expect-error: adapters have names
  engine.loadModel('x', { adapters: ['sql.gguf'] });
  // @ts-expect-error: an adapter is named
  model.generate({ prompt: 'a', adapter: 1 });
  // @ts-expect-error: the status has another name
  if (new RunnelError().code === 'BUSSY') return;
  // @ts-expect-error: a piece is not changed
  for await (const piece of stream) piece.text = '';
  // @ts-expect-error: a text is no number
  const n: number = (await stream.result).text;
  console.log(n);
}

void use();
