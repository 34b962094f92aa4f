// What a program does wrong: each is an error, and takes nothing from what else runs.
import assert from 'node:assert/strict';
import { readdirSync, unlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { collected, constants, folder, modelPath, runnel, until, withModel } from './common.mjs';

const PROMPT = 'Once upon a time';
const ENDLESS = { prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 };

/** As many tokens as asked for, each once. */
async function reads(model, n = 20) {
  let tokens = 0;
  for await (const piece of model.stream({ prompt: PROMPT, maxTokens: n, ignoreEos: 2 })) tokens += piece.token >= 0;
  assert.equal(tokens, n);
}

test('a signal that is none, or whose functions throw, costs the other streams nothing', async () => {
  await withModel(async (model) => {
    for (const signal of [{}, 5, 'x', { addEventListener() {} }, { aborted: false, addEventListener: 1, removeEventListener() {} }]) {
      assert.throws(() => model.stream({ ...ENDLESS, signal }), { code: 'INVALID' });
      await assert.rejects(model.engine.loadModel(modelPath, { signal }), { code: 'INVALID' });
    }
    const throwing = { addEventListener() {}, removeEventListener() { throw new Error('mine'); } };
    const beside = [reads(model), reads(model)];
    await assert.rejects(model.generate({ prompt: PROMPT, maxTokens: 3, signal: throwing }), { message: 'mine' });
    const stream = model.stream({ prompt: PROMPT, maxTokens: 3, ignoreEos: 2, signal: throwing });
    await assert.rejects(async () => { for await (const piece of stream) assert.ok(piece); }, { message: 'mine' });
    await Promise.all(beside);
    const refusing = { addEventListener() { throw new Error('mine'); }, removeEventListener() {} };
    assert.throws(() => model.stream({ ...ENDLESS, signal: refusing }), { message: 'mine' });
    await until(() => model.engine.streams().length === 0);
    await assert.rejects(model.engine.loadModel(modelPath, { signal: refusing }), { message: 'mine' });
    await assert.rejects(model.engine.loadModel(modelPath, { signal: throwing }), { message: 'mine' });
    await model.engine.drain();
  });
});

test('options whose reading closes the model', async () => {
  await withModel(async (model, engine) => {
    /** Token ids, and the reading of one of them closes the model. */
    const closing = (other) => Object.defineProperty([1, 2, 3], 1, { get() { other.close(); return 2; } });
    assert.throws(() => model.stream({ tokens: closing(model), maxTokens: 3 }), { code: 'CLOSED' });
    assert.throws(() => model.stream({ prompt: PROMPT }), { code: 'CLOSED' });
    assert.equal(engine.streams().length, 0);
    for (const call of ['embed', 'score', 'checkGrammar', 'checkSampling']) {
      const other = await engine.loadModel(modelPath);
      await assert.rejects(other[call]({ tokens: closing(other) }), { code: 'CLOSED' }, call);
    }
    const other = await engine.loadModel(modelPath);
    const thrown = [1];
    Object.defineProperty(thrown, 0, { get() { throw new Error('mine'); } });
    assert.throws(() => other.stream({ tokens: thrown }), { message: 'mine' });
    assert.throws(() => other.stream({ get prompt() { throw new Error('mine'); } }), { message: 'mine' });
    await assert.rejects(other.detokenize(closing(other)), { code: 'CLOSED' });
    assert.throws(() => other.detokenizeSync([1]), { code: 'CLOSED' });
    await engine.drain();
  });
});

test('options that are huge, or of the wrong kind', async () => {
  await withModel(async (model) => {
    const wrong = [
      { tokens: new Array(4294967295) }, { tokens: 'abc' }, { tokens: [1.5] }, { tokens: new Float32Array(3) }, { tokens: [2 ** 40] },
      { stops: new Array(4294967295) }, { stops: [5] }, { stops: ['a\0b'] }, { biases: new Array(4294967295) }, { biases: [1] },
      { biases: { a: 1 } }, { biases: 'x' }, { maxTokens: 1e300 }, { maxTokens: '5' }, { maxTokens: NaN }, { seed: -1 }, { seed: 1n << 64n },
      { temperature: 'hot' }, { temperature: NaN }, { prompt: 5 }, { prompt: {} }, { prompt: Symbol('x') }, { session: 5 }, { session: {} },
      { draft: 'none such' }, { choose: 5 }, { group: {} }, { highWater: 0 }, { highWater: NaN }, { onAbort: 'never' }, { none: 1 },
      { grammar: 5 }, { grammar: { schema: {}, regex: 'a' } },
    ];
    for (const options of wrong) {
      const is = (error) => error instanceof Error && (['INVALID', 'FORMAT'].includes(error.code) || error instanceof TypeError);
      assert.throws(() => model.stream({ prompt: PROMPT, ...options }), is, Object.keys(options)[0]);
    }
    for (const options of [undefined, null, 5, 'x']) assert.throws(() => model.stream(options), { code: 'INVALID' });
    assert.equal(model.engine.streams().length, 0);
    await reads(model, 3);
  }, { transport: 'thread' });
});

test('a signal that aborts while options are read, and one that throws when it is asked', async () => {
  await withModel(async (model, engine) => {
    const aborting = (controller) => Object.defineProperty([1, 2], 1, { get() { controller.abort(); return 2; } });
    for (const call of [(options) => model.stream(options).result, (options) => model.generate(options)]) {
      const controller = new AbortController();
      const options = { ...ENDLESS, prompt: undefined, tokens: aborting(controller), signal: controller.signal };
      await assert.rejects(call(options), { code: 'ABORT_ERR' });
    }
    /** Aborted by abort(); then `name` throws. */
    const throwing = (name) => {
      const signal = {
        aborted: false,
        addEventListener(_, call) {
          this.abort = () => {
            Object.defineProperty(this, name, { get() { throw new Error(name); } });
            call();
          };
        },
        removeEventListener() {},
      };
      return signal;
    };
    const beside = reads(model, 40);
    for (const name of ['reason', 'aborted']) {
      const signal = throwing(name);
      const stream = model.stream({ ...ENDLESS, signal });
      signal.abort();
      await assert.rejects(stream.result, name === 'reason' ? { message: name } : { code: 'ABORT_ERR' });
      const loading = throwing(name);
      const loads = engine.loadModel(modelPath, { signal: loading });
      Object.defineProperty(loading, 'aborted', { configurable: true, value: true });
      loading.abort();
      await assert.rejects(loads, { message: name });
    }
    await beside;
    await engine.drain();
  });
});

test('a signal that refuses its listener ends a training', { timeout: 1_000_000 }, async () => {
  const engine = new runnel.Engine({ computeThreads: 1 });
  const corpus = 'Once upon a time there was a fox. '.repeat(400);
  const head = path.join(tmpdir(), `refused-${process.pid}`);
  const threads = () => readdirSync('/proc/self/task').length;
  const before = threads();
  const refusing = { addEventListener() { throw new Error('mine'); }, removeEventListener() {} };
  const training = engine.trainEagle(modelPath, corpus, head, { steps: 1e6, signal: refusing }).next();
  assert.ok(threads() > before);
  await assert.rejects(training, { message: 'mine' });
  await until(() => threads() <= before);
  await engine.close();
});

test('numbers, names and paths that are none say so', async () => {
  await withModel(async (model, engine) => {
    const file = await runnel.ModelFile.open(pathToFileURL(modelPath));
    for (const number of [NaN, Infinity, -Infinity, 1.5, 2 ** 53 + 2, '0', undefined, null, 1n])
      for (const call of ['metadata', 'tensor']) assert.throws(() => file[call](number), { code: 'INVALID' }, `${call} ${number}`);
    for (const number of [NaN, 0.5, 2 ** 32, -(2 ** 32), 2 ** 53])
      assert.throws(() => file.kvBytesPerToken(number), { code: 'INVALID' });
    assert.equal(file.metadata(0).key, 'general.architecture');
    file.close();
    await assert.rejects(engine.device('auto\0x'), { code: 'INVALID' });
    for (const nowS of [NaN, Infinity, 'x', {}, 1e300])
      await assert.rejects(runnel.renderTemplate('x', {}, { nowS }), { code: 'INVALID' }, String(nowS));
    assert.equal(await runnel.renderTemplate('{{ 1 }}', {}, { nowS: 1.5 }), '1');
    for (const messages of [() => [], Symbol('x')]) assert.throws(() => model.applyTemplateSync({ messages }), { code: 'INVALID' });
    for (const call of ['onLog', 'onTrace'])
      for (const value of [5, 'x', {}, 0])
        assert.throws(() => new runnel.Engine({ [call]: value }), { code: 'INVALID' });
    const session = model.session();
    await session.generate({ prompt: PROMPT, maxTokens: 1 });
    const { cache, ModelFile, readSessionNote } = runnel;
    const calls = [(one) => engine.loadModel(one), (one) => session.export(one), (one) => model.importSession(one), ModelFile.open,
      cache.ls, cache.inspect, cache.verify, cache.purge, readSessionNote];
    for (const one of [undefined, null, 5, {}, Symbol('x'), ['a']])
      for (const call of calls) await assert.rejects(async () => call(one), { code: 'INVALID', message: /path/ });
  }, { transport: 'thread' });
});

test('a promise of a place counts once', async () => {
  await withModel(async (model) => {
    const drawing = { prompt: PROMPT, maxTokens: 3, ignoreEos: 2, temperature: 1 };
    const thrown = [];
    const twice = (resolve) => {
      try {
        resolve(1);
        resolve(2);
      } catch (error) {
        thrown.push(error);
      }
    };
    for (const then of [twice, (resolve) => setTimeout(twice, 0, resolve)])
      assert.deepEqual((await model.generate({ ...drawing, choose: () => ({ then }) })).tokens, [1, 1, 1]);
    assert.deepEqual(thrown, []);
  });
});

test('places that are none end their stream alone', async () => {
  await withModel(async (model) => {
    const beside = reads(model);
    const drawing = { prompt: PROMPT, maxTokens: 3, ignoreEos: 2, temperature: 1 };
    assert.deepEqual((await model.generate({ ...drawing, choose: () => 5 })).tokens, [5, 5, 5]);
    for (const place of ['first', 1.5, NaN, -7, Infinity, 2 ** 40, {}, 5n, Promise.resolve('x'), Promise.resolve(NaN), Promise.resolve(1.5)])
      await assert.rejects(model.generate({ ...drawing, choose: () => place }), { code: 'INVALID' }, String(place));
    await beside;
  });
});

test('objects that the library makes are made by it alone', async () => {
  const { Model, Session, Stream, Group, ModelFile } = runnel;
  for (const make of [() => new Model().info, () => new Model({}, {}).info, () => new Stream(), () => new ModelFile().info, () => new ModelFile({}).plan()])
    assert.throws(make, Error);
  assert.throws(() => new Session(), Error); // else its end would throw where nobody can catch it
  assert.throws(() => new Session({}, {}, 5n), Error);
  assert.throws(() => new Group({}, { highWater: 'x' }), Error);
});

test('a stream is read twice, returned and cancelled in every order', async () => {
  await withModel(async (model) => {
    const stream = model.stream({ prompt: PROMPT, maxTokens: 30, ignoreEos: 2 });
    const read = async () => { let n = 0; for await (const piece of stream) n += piece.token >= 0; return n; };
    const counts = await Promise.all([read(), read(), read()]);
    assert.equal(counts.reduce((a, b) => a + b), 30);
    for (const calls of [['return', 'next', 'cancel'], ['cancel', 'return', 'next'], ['next', 'return', 'return', 'next']]) {
      const one = model.stream(ENDLESS);
      const results = calls.map((call) => one[call]());
      assert.deepEqual((await results.at(-1)) ?? (await one.next()), { value: undefined, done: true });
      assert.equal((await one.result).finish, 'cancelled');
    }
  });
});

test('garbage is collected in the middle of streams', async () => {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc');
  await withModel(async (model, engine) => {
    const group = engine.group();
    for (let seed = 0; seed < 4; seed++) model.stream({ prompt: PROMPT, maxTokens: 40, ignoreEos: 2, temperature: 1, seed, group });
    group.end();
    let tokens = 0;
    const one = reads(model, 40);
    for await (const pieces of group) {
      gc();
      for (let i = 0; i < pieces.length; i++) tokens += pieces.type(i) === 'text' ? pieces.token(i) >= 0 : 0;
    }
    await one;
    assert.equal(tokens, 160);
    for (let i = 0; i < 20; i++) model.session();
    gc();
    assert.ok(constants);
  });
});

test('what runs holds its model, though the program lets go of it', async () => {
  const file = path.join(tmpdir(), `held-${process.pid}`);
  for (const transport of ['thread', 'uv']) {
    const engine = new runnel.Engine({ computeThreads: 1, transport });
    const held = await engine.loadModel(modelPath);
    const options = { prompt: PROMPT, maxTokens: 300, ignoreEos: 2 };
    const { text } = await held.generate(options);
    const collecting = setInterval(globalThis.gc, 1).unref();
    const turns = async () => { // until the model would have been finalized
      for (let i = 0; i < 5; i++) await new Promise((resolve) => setTimeout(resolve, 2));
    };
    const load = () => engine.loadModel(modelPath);
    const join = async (stream, reader) => {
      await turns();
      for await (const pieces of reader ?? stream) assert.ok(pieces.length !== 0);
      return stream.result;
    };
    const ways = {
      stream: (model) => join(model.stream(options)),
      readable: (model) => {
        const stream = model.stream(options);
        return join(stream, stream.readable());
      },
      group: (model) => {
        const group = engine.group();
        const stream = model.stream({ ...options, group });
        group.end();
        return join(stream, group);
      },
      generate: (model) => model.generate(options),
      session: (model) => model.session().generate(options),
    };
    for (const [name, way] of Object.entries(ways)) {
      const result = await load().then((model) => ({ ends: way(model) }));
      assert.equal((await result.ends).text, text, name);
    }
    assert.equal((await load().then((model) => model.embed('word '.repeat(200)))).finish, 'length');
    const exported = await load().then(async (model) => {
      const session = model.session();
      await session.generate(options);
      return session.export(file);
    });
    assert.equal(exported.finish, 'none');
    const imported = await load().then((model) => model.importSession(file));
    assert.equal((await imported.generate({ prompt: ' and', maxTokens: 3, ignoreEos: 2 })).tokens.length, 3);
    clearInterval(collecting);
    await engine.close();
  }
  unlinkSync(file);
});

test('an engine that nobody holds is collected once nothing runs, and its threads end', { timeout: 1_000_000 }, async () => {
  const threads = () => readdirSync('/proc/self/task').length;
  await readFile(modelPath); // the pool's threads are there
  for (const transport of ['thread', 'uv']) {
    const before = threads();
    const engines = [];
    const use = async () => {
      const service = { lines: 0, spans: 0 }; // functions that refer to the engine, as methods of its owner do
      const onLog = () => (service.engine, service.lines++);
      const onTrace = () => (service.engine, service.spans++);
      const engine = new runnel.Engine({ computeThreads: 1, transport, logLevel: 'debug', onLog, onTrace });
      service.engine = engine;
      engines.push(new WeakRef(engine));
      const model = await engine.loadModel(modelPath);
      await model.generate({ prompt: PROMPT, maxTokens: 2 });
      await until(() => service.lines > 0 && service.spans > 0);
      return model.tokenize('word '.repeat(20000)); // the engine has to live until this is done
    };
    const collecting = setInterval(globalThis.gc, 1).unref();
    for (let i = 0; i < 3; i++) assert.ok((await use()).length > 20000);
    clearInterval(collecting);
    await collected(engines);
    await until(() => {
      globalThis.gc(); // the engine's handle goes after its models'
      return threads() <= before;
    });
  }
});

test('a session of another model is refused', async () => {
  await withModel(async (model, engine) => {
    const other = await engine.loadModel(modelPath);
    const stranger = new runnel.Engine({ computeThreads: 1 });
    const sessions = [other.session(), (await stranger.loadModel(modelPath)).session()];
    const refused = { code: 'INVALID', message: 'the session belongs to another model' };
    for (const session of [...sessions, { id: 5n }]) {
      const options = { prompt: PROMPT, maxTokens: 1, session };
      assert.throws(() => model.stream(options), refused);
      await assert.rejects(model.generate(options), refused);
      assert.throws(() => model.checkGrammarSync(options), refused);
    }
    const own = model.session();
    for (const session of [own, own.id])
      assert.equal((await model.generate({ prompt: PROMPT, maxTokens: 1, ignoreEos: 2, session })).tokens.length, 1);
    await stranger.close();
  }, { transport: 'thread' });
});

test('grammars that are not what they seem', async () => {
  await withModel(async (model) => {
    const wrong = [
      [{}, /has one of schema/], [{ schema: undefined }, /has one of/], [{ choices: undefined }, /has one of/],
      [{ schema: null }, /has one of/], [{ json: false }, /has one of/], [{ closed: true }, /has one of/],
      [{ regex: /^\d{3}$/ }, /regex .* no RegExp/], [{ regex: 12 }, /regex must be a string/],
      [{ gbnf: { root: 'x' } }, /gbnf must be a string/], [{ ebnf: 5 }, /ebnf must be a string/],
      [{ json: 'yes' }, /json must be true/], [{ jsonObject: 1 }, /jsonObject must be true/],
      [{ json: true, jsonObject: true }, /one kind/], [{ json: true, regex: 'a' }, /one kind/],
      [{ kind: 'regex', regex: 'a' }, /one kind/], [{ schema: {}, choices: ['a'] }, /one kind/],
      [{ schema: new Map([['type', 'string']]) }, /Map is no JSON/], [{ schema: () => 1 }, /function is no JSON/],
      [['a'], /an object/], [{ regex: 'a', none: 1 }, /none/],
    ];
    for (const [grammar, message] of wrong)
      assert.throws(() => model.stream({ prompt: PROMPT, grammar }), { code: 'INVALID', message }, JSON.stringify(grammar));
    const ask = async (grammar) => (await model.generate({ prompt: PROMPT, maxTokens: 40, grammar })).text;
    assert.match(await ask({ regex: Buffer.from('[0-9]{3}') }), /^[0-9]{3}$/);
    assert.match(await ask({ kind: 'regex', text: '[0-9]{2}', json: false }), /^[0-9]{2}$/);
    assert.equal(await ask({ kind: 'choices', choices: ['one'] }), 'one');
    assert.equal(await ask({ schema: Buffer.from('{"const": 5}'), regex: undefined }), '5');
    assert.equal(await ask({ schema: '{"const": 6}', jsonObject: null }), '6');
  }, { transport: 'thread' });
});

test('options that a function does not have, and options of a class', async () => {
  await withModel(async (model, engine) => {
    const session = model.session();
    const typed = { code: 'INVALID', message: 'there is no option odd' };
    const odd = { odd: 1 };
    const calls = [
      () => model.tokenize('a', odd), () => model.tokenizeSync('a', odd), () => model.detokenize([1], odd),
      () => model.detokenizeSync([1], odd), () => model.tokenText(1, odd), () => model.tokenTextSync(1, odd),
      () => engine.group(odd), () => model.stream(ENDLESS).readable(odd),
      () => runnel.renderTemplate('x', {}, odd), () => session.export('/nowhere', odd), () => model.importSession('/nowhere', odd),
    ];
    for (const call of calls) await assert.rejects(async () => call(), typed, String(call));
    await assert.rejects(session.export('/nowhere', { cacheSalt: 1 }), { code: 'INVALID', message: /cacheSalt/ });
    await assert.rejects(model.importSession('/nowhere', { note: 'x' }), { code: 'INVALID', message: /note/ });
    await assert.rejects(model.tokenize('a', null), { code: 'INVALID' });
    assert.throws(() => new runnel.Engine({ delivery: 1 }), { code: 'INVALID', message: /delivery/ });
    await assert.rejects(model.generate({ prompt: 'x', wantLogits: true }), { code: 'INVALID', message: /wantLogits/ });
    for (const options of [[], ['a']]) assert.throws(() => model.stream(options), { code: 'INVALID', message: /an object/ });
    assert.throws(() => model.stream({ prompt: 'x', ['maxTokens\0x']: 1 }), { code: 'INVALID' });
    for (const key of ['', 'a', '1.5', ' 1'])
      assert.throws(() => model.stream({ prompt: 'x', biases: { [key]: 100 } }), { code: 'INVALID', message: /biases/ }, key);

    class Options {
      prompt = PROMPT;
      get maxTokens() { return 3; }
      get ignoreEos() { return 2; }
    }
    class Derived extends Options {
      seed = 7;
      method() {}
    }
    const inherited = Object.create({ prompt: PROMPT, maxTokens: 3, ignoreEos: 2 });
    for (const options of [new Options(), new Derived(), inherited,
      Object.assign(Object.create(null), { prompt: PROMPT, maxTokens: 3, ignoreEos: 2 })])
      assert.equal((await model.generate(options)).tokens.length, 3);
    function Old() {
      Object.assign(this, { prompt: PROMPT, maxTokens: 3, ignoreEos: 2 });
    }
    Old.prototype.helper = function () {};
    assert.equal((await model.generate(new Old())).tokens.length, 3);
    const refused = { code: 'INVALID', message: 'there is no option helper' };
    assert.throws(() => model.stream({ prompt: PROMPT, helper() {} }), refused);
    const { runInNewContext } = await import('node:vm');
    const biases = runInNewContext('new Map([[5, 100]])');
    assert.deepEqual((await model.generate({ prompt: PROMPT, maxTokens: 3, biases })).tokens, [5, 5, 5]);
  }, { transport: 'thread' });
});

test('functions that are methods of a class of options are called, with its object', async () => {
  class ForEngine {
    computeThreads = 1;
    logLevel = 'debug';
    onLog(level, line) { lines.push([level, line]); }
    onTrace(span) { spans.push(span); }
  }
  const [lines, spans, fractions] = [[], [], []];
  const engine = new runnel.Engine(new ForEngine());
  const model = await engine.loadModel(modelPath, new (class {
    onProgress(fraction) { fractions.push(fraction); }
  })());
  class Request {
    prompt = PROMPT;
    maxTokens = 3;
    ignoreEos = 2;
    temperature = 1;
    #asked = 0;
    choose({ draw }) {
      this.#asked++;
      return draw();
    }
    count() { return this.#asked; }
  }
  for (const ask of [(options) => model.generate(options), (options) => model.session().generate(options),
    (options) => model.stream(options).result]) {
    const options = new Request();
    assert.equal((await ask(options)).tokens.length, 3);
    assert.equal(options.count(), 3);
  }
  await until(() => lines.length > 0 && spans.length > 0);
  assert.equal(fractions.at(-1), 1);
  await engine.close();
});

test('null is an option that is not given', async () => {
  const engine = new runnel.Engine({ computeThreads: 1, onLog: null, onTrace: null, holdUs: null, transport: null });
  const model = await engine.loadModel(modelPath, { onProgress: null, signal: null });
  const nothing = { signal: null, choose: null, onAbort: null, group: null, highWater: null, seed: null };
  const expected = (await model.generate({ prompt: PROMPT, maxTokens: 5, temperature: 0 })).text;
  const { highWater, group, ...ofWhole } = nothing;
  for (const given of [model.stream({ prompt: PROMPT, maxTokens: 5, temperature: 0, ...nothing }).result,
    model.generate({ prompt: PROMPT, maxTokens: 5, temperature: 0, ...ofWhole })])
    assert.equal((await given).text, expected);
  assert.ok((await model.embed({ text: 'a', signal: null, onAbort: null })).embedding.length > 0);
  const native = createRequire(import.meta.url)(path.join(folder, 'runnel.node'));
  const nulls = (...structs) => Object.fromEntries(structs.flatMap(native.fieldNames).map((name) => [name, null]));
  const all = nulls('runnel_request', 'runnel_sampling', 'runnel_samplers', 'runnel_chat');
  assert.equal((await model.generate({ ...all, prompt: PROMPT, maxTokens: 5, temperature: 0 })).text, expected);
  assert.ok((await model.embed({ ...nulls('runnel_embed_request'), text: 'a' })).embedding.length > 0);
  const other = new runnel.Engine({ ...nulls('runnel_engine_options'), computeThreads: 1 });
  await other.loadModel(modelPath, nulls('runnel_model_options'));
  await other.close();
  await engine.close();
});

test('errors speak of what the program wrote', async () => {
  await withModel(async (model, engine) => {
    const texts = [
      [() => model.scores, 'UNSUPPORTED', /no head that ranks/],
      [() => model.tokenizeSync(Buffer.from([0xff])), 'INVALID', /the text is not UTF-8/],
      [() => model.tokenize(Buffer.from([0xff])), 'INVALID', /the text is not UTF-8/],
      [() => model.detokenize([1e6]), 'INVALID', /vocabulary/],
      ...[-1, model.info.vocabTokens].flatMap((token) => [
        [() => model.tokenText(token), 'INVALID', /vocabulary/],
        [() => model.tokenTextSync(token), 'INVALID', /vocabulary/],
      ]),
      [() => model.tokenText(2 ** 31), 'INVALID', /^token must be an integer from/],
      [() => model.tokenText([1]), 'INVALID', /^token must be an integer from/],
      [() => engine.device(5), 'INVALID', /the name of a device/],
      [() => model.generate({ prompt: 'x', messages: [{ role: 'user', content: 'x' }] }), 'INVALID', /^prompt does not go with messages/],
      [() => model.generate({ tokens: [1], messages: [] }), 'INVALID', /^tokens does not go with messages/],
    ];
    for (const [call, code, message] of texts) await assert.rejects(async () => call(), { code, message }, String(call));
    const sessions = [model.session(), model.session()];
    assert.throws(() => model.session(), { code: 'BUSY', message: /maxSessions/ });
    assert.throws(() => sessions[0].fork(), { code: 'BUSY', message: /maxSessions/ });
    const words = await engine.loadModel(modelPath, { vocabOnly: true });
    assert.throws(() => words.session(), { code: 'STATE', message: /not loaded for generation/ });
  }, { transport: 'thread', maxSessions: 2 });
});

test('what is thrown may be undefined', async () => {
  await withModel(async (model, engine) => {
    const drawing = { prompt: PROMPT, maxTokens: 3, ignoreEos: 2, temperature: 1 };
    const fails = async (promise) => assert.deepEqual(await promise.then(() => 'resolved', (reason) => [reason]), [undefined]);
    await fails(model.generate({ ...drawing, choose() { throw undefined; } }));
    await fails(model.generate({ ...drawing, choose: () => Promise.reject(undefined) }));
    const stream = model.stream({ ...drawing, choose() { throw undefined; } });
    await fails((async () => { for await (const piece of stream) assert.ok(piece); })());
    await fails(stream.result);
    await fails(engine.loadModel(modelPath, { onProgress() { throw undefined; } }));
  });
});

test('a load that its engine\'s end cuts lets go of its signal', async () => {
  const { getEventListeners } = await import('node:events');
  const engine = new runnel.Engine({ computeThreads: 1 });
  const { signal } = new AbortController();
  const load = engine.loadModel(modelPath, { signal }).catch((error) => error);
  assert.equal(getEventListeners(signal, 'abort').length, 1);
  await engine.close();
  await load;
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('functions of the caller run where they were given', async () => {
  const { AsyncLocalStorage } = await import('node:async_hooks');
  const storage = new AsyncLocalStorage();
  await withModel(async (model, engine) => {
    const seen = new Set();
    const see = () => { seen.add(storage.getStore()); };
    await storage.run('load', () => engine.loadModel(modelPath, { onProgress: see }));
    await storage.run('draw', () => model.generate({ prompt: PROMPT, maxTokens: 2, temperature: 1, choose: see }));
    assert.deepEqual([...seen], ['load', 'draw']);
  });
});

test('what belongs to a thread cannot be cloned or posted, and what is plain data can', async () => {
  const { port1, port2 } = new MessageChannel();
  await withModel(async (model, engine) => {
    class Derived extends runnel.Engine {}
    const derived = new Derived({ computeThreads: 1 });
    const file = await runnel.ModelFile.open(modelPath);
    const group = engine.group();
    const stream = model.stream({ prompt: PROMPT, maxTokens: 3, ignoreEos: 2 });
    const session = model.session();
    model.stream({ prompt: PROMPT, maxTokens: 1, group });
    group.end();
    for await (const pieces of group) assert.throws(() => structuredClone(pieces), { name: 'DataCloneError' });
    for (const one of [engine, derived, model, session, stream, group, file]) {
      const name = one.constructor.name;
      assert.throws(() => structuredClone(one), { name: 'DataCloneError' }, name);
      assert.throws(() => structuredClone({ inside: [one] }), { name: 'DataCloneError' }, name);
      assert.throws(() => port1.postMessage(one), { name: 'DataCloneError' }, name);
      assert.ok(one instanceof one.constructor && Object.keys(one).every((key) => key.startsWith('_')), name);
    }
    const pieces = [];
    for await (const piece of stream) pieces.push(piece);
    assert.equal(pieces.length, 3);
    assert.deepEqual(structuredClone(pieces), pieces.map((piece) => ({ ...piece })));
    const result = await stream.result;
    assert.deepEqual(structuredClone(result), { ...result });
    await derived.close();
    file.close();
  });
  port1.close();
  port2.close();
});

test('the package lists the files that it needs', async () => {
  const { files } = JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8'));
  for (const file of files.filter((name) => /\.m?js$/.test(name))) {
    const text = await readFile(path.join(folder, file), 'utf8');
    for (const [, needed] of text.matchAll(/(?:require\(|from )'\.\/([^']+)'/g))
      assert.ok(files.includes(needed), `${file} needs ${needed}`);
  }
});

test('an error that shows a part of a text cuts no character in two', () => {
  const { fieldNames } = createRequire(import.meta.url)(path.join(folder, 'runnel.node'));
  for (const [one, fit] of [['é', 29], ['語', 19], ['😀', 14]])
    assert.throws(() => fieldNames('x' + one.repeat(60)), { message: `there is no table of x${one.repeat(fit)}` });
  assert.throws(() => fieldNames('é'), { message: 'there is no table of é' });
});
