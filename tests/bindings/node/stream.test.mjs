// Engines, models, streams, their ends and their errors.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AbortError, Engine, RunnelError, constants, modelPath, program, required, runnel, withModel } from './common.mjs';

const PROMPT = 'Once upon a time';

async function read(stream) {
  let text = '';
  for await (const piece of stream) text += piece.text;
  return text;
}

test('pieces are held back, but neither the first of a stream nor its end', { timeout: 1_000_000 }, async () => {
  for (const holdUs of [-1, 1.5, '5', NaN, 2 ** 32]) assert.throws(() => new Engine({ holdUs }), { code: 'INVALID' });
  await withModel(async (model, engine) => {
    const options = { prompt: PROMPT, maxTokens: 100, ignoreEos: 2 };
    for (const wantLogprobs of [false, true]) {
      const group = engine.group();
      const first = model.stream({ ...options, wantLogprobs, group });
      let second;
      const turns = new Map();
      for await (const pieces of group) {
        const told = new Set(Array.from(pieces, ([one]) => one));
        for (const stream of told) turns.set(stream, (turns.get(stream) ?? 0) + 1);
        second ??= model.stream({ ...options, group });
        group.end();
      }
      // The first piece, the rest with the end, and what goes along with the other's first piece or end.
      assert.ok(turns.get(first) <= 3 && turns.get(second) <= 3, `turns: ${[...turns.values()]}`);
      assert.equal((await first.result).tokens.length, 100);
    }
    const cancelled = model.stream({ prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 });
    for await (const piece of cancelled) if (piece.token >= 0) break;
    assert.equal((await cancelled.result).finish, 'cancelled');
  }, { transport: 'thread', holdUs: 2 ** 32 - 1, gatherUs: 0 }, { contextTokens: 256 });
});

test('the text is the program\'s for the same seed', async () => {
  const sampled = { prompt: PROMPT, maxTokens: 60, temperature: 1.2, topK: 50, seed: 7 };
  const greedy = { prompt: PROMPT, maxTokens: 60 };
  const expected = [
    program('run', modelPath, PROMPT, '-n', '60', '--temperature', '1.2', '--top-k', '50', '--seed', '7'),
    program('run', modelPath, PROMPT, '-n', '60'),
  ].map((text) => text.replace(/\n$/, ''));
  assert.notEqual(expected[0], expected[1]);
  await withModel(async (model) => {
    const texts = await Promise.all([read(model.stream(sampled)), read(model.stream(greedy))]);
    assert.deepEqual(texts, expected);
    assert.equal((await model.generate({ ...sampled, seed: 7n })).text, expected[0]);
  });
});

test('pieces and result tell the same', async () => {
  await withModel(async (model) => {
    const stream = model.stream({ prompt: PROMPT, maxTokens: 30, wantLogprobs: true, nTop: 3, wantProgress: true });
    const pieces = [];
    for await (const piece of stream) pieces.push(piece);
    const result = await stream.result;
    const texts = pieces.filter((piece) => piece.type === 'text');
    assert.equal(texts.map((piece) => piece.text).join(''), result.text);
    assert.deepEqual(texts.filter((piece) => piece.token >= 0).map((piece) => piece.token), result.tokens);
    assert.equal(result.tokens.length, 30);
    const unseen = await model.generate({ prompt: PROMPT, maxTokens: 30 });
    assert.deepEqual([unseen.text, unseen.tokens, unseen.reasoning], [result.text, result.tokens, '']);
    assert.equal(result.finish, 'length');
    assert.deepEqual([result.stop, result.stopToken], [-1, -1]);
    const stop = result.text.slice(40, 44);
    const ended = await model.generate({ prompt: PROMPT, maxTokens: 30, stops: ['no such text', stop] });
    assert.deepEqual([ended.finish, ended.stop, ended.stopToken], ['stop', 1, -1]);
    const cut = await model.generate({ prompt: PROMPT, maxTokens: 30, stopTokens: [result.tokens[20]] });
    assert.deepEqual([cut.finish, cut.stop, cut.stopToken], ['stop', -1, result.tokens[20]]);
    assert.equal(result.usage.completionTokens, 30);
    assert.ok(result.timings.endUs >= result.timings.firstTokenUs);
    assert.equal(result.logprobs.length, 30);
    for (const piece of texts) {
      assert.equal(piece.top.length, 3);
      assert.equal(piece.top[0].token, piece.token); // greedy
      assert.ok(piece.logprob <= 0 && piece.logprob === piece.top[0].logprob);
    }
    assert.ok(pieces.some((piece) => piece.type === 'progress' && piece.value.done <= piece.value.total));
  });
});

test('text outside of ASCII keeps its place in a batch', async () => {
  await withModel(async (model) => {
    const answers = ['Füße – 日本', '😀😀 ok', 'plain', 'ñ'];
    const texts = await Promise.all(
      answers.flatMap((choice) => [1, 2, 3].map(() => read(model.stream({ prompt: 'Say', grammar: { choices: [choice] } })))),
    );
    assert.deepEqual(texts, answers.flatMap((choice) => [choice, choice, choice]));
  });
});

test('a loop that is left cancels the stream', async () => {
  await withModel(async (model, engine) => {
    const stream = model.stream({ prompt: PROMPT, maxTokens: 4000, ignoreEos: 2, contextKeep: 0 });
    for await (const piece of stream) if (piece.text.length > 0) break;
    const result = await stream.result;
    assert.equal(result.finish, 'cancelled');
    assert.ok(result.usage.completionTokens < 4000);
    assert.deepEqual(await stream.next(), { value: undefined, done: true });
    await engine.drain();
    assert.throws(() => model.stream({ prompt: PROMPT }), { code: 'CLOSED' });
  });
});

test('cancel() ends the stream with what it has', async () => {
  await withModel(async (model) => {
    const stream = model.stream({ prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 });
    let n = 0;
    for await (const piece of stream) if (++n === 3) stream.cancel();
    const result = await stream.result;
    assert.equal(result.finish, 'cancelled');
    assert.ok(n >= 3 && result.tokens.length >= 3);
    stream.cancel();
  });
});

test('an AbortSignal rejects with AbortError, or returns the part', async () => {
  const endless = { prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 };
  await withModel(async (model) => {
    const reason = new Error('the reader has gone');
    const is = (error) => error instanceof AbortError && error.name === 'AbortError' && error.cause === reason;
    let controller = new AbortController();
    let stream = model.stream({ ...endless, signal: controller.signal });
    await assert.rejects(async () => {
      for await (const piece of stream) if (piece.token >= 0) controller.abort(reason);
    }, (error) => is(error) && error.partial.tokens.length > 0);
    await assert.rejects(stream.result, is);

    controller = new AbortController();
    stream = model.stream({ ...endless, signal: controller.signal, onAbort: 'return' });
    for await (const piece of stream) if (piece.token >= 0) controller.abort(reason);
    assert.equal((await stream.result).finish, 'cancelled');

    await assert.rejects(model.generate({ ...endless, signal: AbortSignal.abort(reason) }), is);
    await assert.rejects(read(model.stream({ ...endless, signal: AbortSignal.abort(reason) })), is);
    await assert.rejects(model.generate({ ...endless, signal: AbortSignal.timeout(20) }), { name: 'AbortError' });
    for (let i = 0; i < 100; i++) { // also where the answer is whole by then
      controller = new AbortController();
      const { signal } = controller;
      const short = { prompt: PROMPT, maxTokens: 1, signal };
      const answer = i % 2 ? model.generate(short) : model.embed({ text: PROMPT, signal });
      controller.abort(reason);
      await assert.rejects(answer, is);
    }
  });
});

test('a stream that is not read is paused, and goes on where it was', async () => {
  const options = { prompt: PROMPT, maxTokens: 200, ignoreEos: 2 };
  await withModel(async (model) => {
    const whole = (await model.generate(options)).text;
    const slow = model.stream({ ...options, highWater: 4 });
    let text = (await slow.next()).value.text;
    const other = await model.generate(options); // far longer than what the paused one may run ahead: a window of 30
    assert.equal(other.text, whole);
    for await (const piece of slow) text += piece.text;
    assert.equal(text, whole);

    const unread = model.stream({ ...options, highWater: 2 });
    await model.generate(options);
    unread.cancel();
    const result = await unread.result;
    assert.equal(result.finish, 'cancelled'); // it had not come to its end
    assert.ok(result.usage.completionTokens < 200);
  });
});

test('tokens that were joined have no ids', async () => {
  await withModel(async (model, engine) => {
    const options = { prompt: PROMPT, maxTokens: 80, ignoreEos: 2 };
    const whole = await model.generate(options);
    const stream = model.stream({ ...options, coalesceBytes: 200 });
    while (engine.streams()[0].tokens < 30); // the loop is behind: this transport takes events on it alone
    const pieces = [];
    for await (const piece of stream) pieces.push(piece);
    const result = await stream.result;
    assert.equal(result.text, whole.text);
    assert.equal(result.usage.completionTokens, 80);
    assert.ok(pieces.some((piece) => piece.tokens > 1 && piece.token === -1));
    assert.equal(pieces.reduce((sum, piece) => sum + piece.tokens, 0), 80);
    assert.deepEqual(result.tokens, pieces.filter((piece) => piece.token >= 0).map((piece) => piece.token));
    assert.ok(result.tokens.length < 80);
  }, { transport: 'uv' });
});

test('pieces that are asked for at once come in their order', async () => {
  const options = { prompt: PROMPT, maxTokens: 5, ignoreEos: 2 };
  await withModel(async (model) => {
    const expected = [];
    for await (const piece of model.stream(options)) expected.push(piece.text);
    const stream = model.stream(options);
    const results = await Promise.all(Array.from({ length: expected.length + 3 }, () => stream.next()));
    assert.deepEqual(results.filter(({ done }) => !done).map(({ value }) => value.text), expected);
    assert.ok(results.slice(expected.length).every(({ done }) => done));
  });
});

test('await using ends what runs', async () => {
  await withModel(async (model) => {
    const stream = model.stream({ prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 });
    await stream.next();
    await stream[Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]();
    assert.equal((await stream.result).finish, 'cancelled');
  });
});

test('a ReadableStream of strings, of bytes, and one that is cancelled', async () => {
  const options = { prompt: PROMPT, maxTokens: 30 };
  await withModel(async (model) => {
    const { text } = await model.generate(options);
    let strings = '';
    for await (const chunk of model.stream(options).readable()) strings += chunk;
    assert.equal(strings, text);
    assert.equal(await new Response(model.stream(options).readable({ bytes: true })).text(), text);

    const stream = model.stream({ ...options, maxTokens: -1, ignoreEos: 2, contextKeep: 0 });
    const reader = stream.readable().getReader();
    await reader.read();
    await reader.cancel();
    assert.equal((await stream.result).finish, 'cancelled');
  });
});

test('sessions go on, and forks part', async () => {
  await withModel(async (model) => {
    const session = model.session();
    const first = await session.generate({ prompt: PROMPT, maxTokens: 10 });
    const fork = session.fork();
    const second = await session.generate({ prompt: ' and then', maxTokens: 10 });
    const same = await fork.generate({ prompt: ' and then', maxTokens: 10 });
    assert.equal(second.text, same.text);
    assert.ok(second.usage.promptTokens > first.usage.promptTokens + 9);
    await session.close();
    await fork.close();
    assert.throws(() => session.stream({ prompt: 'x' }), { code: 'CLOSED' });
  });
});

test('embeddings are the program\'s', async () => {
  const line = program('embed', modelPath, 'A cat sat.', '--json');
  const expected = JSON.parse(line.trim().split('\n')[0]);
  const values = Array.isArray(expected) ? expected : (expected.embedding ?? expected.data[0].embedding);
  await withModel(async (model) => {
    const { embedding } = await model.embed('A cat sat.');
    assert.ok(embedding instanceof Float32Array);
    assert.equal(embedding.length, values.length);
    values.forEach((value, i) => assert.ok(Math.abs(value - embedding[i]) < 1e-5));
    await assert.rejects(model.embed({ text: 'x', pooling: 'widest' }), { code: 'INVALID' });
  });
});

test('statuses are errors with their name', async () => {
  await withModel(async (model, engine) => {
    const cases = [
      [{ prompt: '' }, 'INVALID', /empty/],
      [{ promt: 'x' }, 'INVALID', /promt/],
      [{ prompt: 'x', temperature: 'hot' }, 'INVALID', /temperature/],
      [{ prompt: 'x', temperature: -1 }, 'INVALID', /temperature/],
      [{ prompt: 'x', maxTokens: 1.5 }, 'INVALID', /maxTokens/],
      [{ prompt: 'x', topK: -1 }, 'INVALID', /topK/],
      [{ prompt: 'x', seed: 2n ** 64n }, 'INVALID', /seed/],
      [{ prompt: 'x', seed: 2 ** 60 }, 'INVALID', /seed/],
      [{ prompt: 5 }, 'INVALID', /prompt/],
      [{ prompt: 'x', tokens: [1] }, 'INVALID', /.../],
      [{ tokens: [1e9] }, 'INVALID', /token/],
      [{ tokens: ['a'] }, 'INVALID', /tokens/],
      [{ tokens: new Float32Array(2) }, 'INVALID', /tokens/],
      [{ prompt: 'x', stops: ['a\0b'] }, 'INVALID', /stops/],
      [{ prompt: 'x', stops: { length: 2 } }, 'INVALID', /stops/],
      [{ prompt: 'x', biases: [[1]] }, 'INVALID', /biases/],
      [{ prompt: 'x', grammar: { regex: 'a', gbnf: 'b' } }, 'INVALID', /one kind/],
      [{ prompt: 'x', grammar: 'a' }, 'INVALID', /.../],
      [{ prompt: 'x', session: 5n }, 'NOT_FOUND', /.../],
      [{ prompt: 'x', session: {} }, 'INVALID', /session/],
      [{ prompt: 'x', draft: 'wizard' }, 'INVALID', /wizard/],
      [{ prompt: 'x', onEvent: () => {} }, 'INVALID', /onEvent/],
      [{ prompt: 'x', user: 1 }, 'INVALID', /user/],
      [{ prompt: 'x', nStops: 1 }, 'INVALID', /nStops/],
      [{ prompt: 'x', structSize: 1 }, 'INVALID', /structSize/],
      [{ prompt: 'x '.repeat(20000) }, 'CONTEXT', /.../],
      [{ prompt: 'x', highWater: 0 }, 'INVALID', /highWater/],
      [{ prompt: 'x', signal: 5 }, 'INVALID', /signal/],
      [{ prompt: 'x', onAbort: 'shrug' }, 'INVALID', /onAbort/],
      [undefined, 'INVALID', /options/],
    ];
    for (const [options, code, message] of cases)
      assert.throws(() => model.stream(options), (error) => {
        assert.ok(error instanceof RunnelError, `${error}`);
        assert.equal(error.code, code, error.message);
        assert.equal(error.status, constants[code]);
        assert.match(error.message, message);
        return true;
      });
    const hostile = { get prompt() { throw new TypeError('no'); } };
    assert.throws(() => model.stream(hostile), TypeError);
    await assert.rejects(model.generate({ prompt: 'x', grammar: { regex: '(' } }), { code: 'FORMAT' });
    await assert.rejects(engine.loadModel('/nowhere/at/all.gguf'), { code: 'IO' });
    await assert.rejects(engine.loadModel('README.md'), { code: 'FORMAT' });
    await assert.rejects(engine.loadModel(modelPath, { device: 'abacus' }), { code: 'UNSUPPORTED' });
    await assert.rejects(engine.loadModel(modelPath, { kvType: 'q77' }), { code: 'INVALID' });
    await assert.rejects(engine.loadModel(modelPath, { kvBytes: 'all' }), { code: 'INVALID' });
    assert.throws(() => new Engine({ threads: 3 }), { code: 'INVALID' });
    assert.throws(() => new Engine({ gatherUs: -1 }), { code: 'INVALID' });
    assert.throws(() => new Engine({ gatherUs: 1000001 }), { code: 'INVALID', message: /gather_us/ });
    assert.throws(() => new Engine({ transport: 'pigeon' }), { code: 'INVALID' });
  });
});

test('BUSY says when to come again', async () => {
  await withModel(async (model) => {
    const streams = [1, 2].map(() => model.stream({ prompt: PROMPT, maxTokens: 500, ignoreEos: 2 }));
    assert.throws(() => model.stream({ prompt: PROMPT }), (error) => error.code === 'BUSY' && error.retryMs > 0);
    for (const stream of streams) stream.cancel();
    await Promise.all(streams.map((stream) => stream.result));
    assert.equal((await model.generate({ prompt: PROMPT, maxTokens: 1 })).tokens.length, 1);
  }, { maxStreams: 2 });
});

test('loads tell their progress, are aborted, and end with what their reader throws', async () => {
  for (const transport of ['thread', 'uv']) {
    const engine = new Engine({ transport });
    const fractions = [];
    const model = await engine.loadModel(modelPath, { onProgress: (fraction) => fractions.push(fraction), vocabOnly: true });
    assert.ok(fractions.every((fraction, i) => fraction >= 0 && fraction <= 1 && (i === 0 || fraction >= fractions[i - 1])));
    assert.equal(model.info.vocabTokens, 2048);
    assert.throws(() => model.stream({ prompt: 'x' }), { code: 'STATE' });
    await model.close();
    assert.throws(() => model.info, { code: 'CLOSED' });
    const controller = new AbortController();
    const aborted = engine.loadModel(modelPath, { signal: controller.signal });
    controller.abort();
    await assert.rejects(aborted, { name: 'AbortError' });
    await assert.rejects(engine.loadModel(modelPath, { signal: AbortSignal.abort() }), { name: 'AbortError' });
    const thrown = new Error('stop');
    const thrower = () => { throw thrown; };
    await assert.rejects(engine.loadModel(modelPath, { onProgress: thrower }), thrown);
    await engine.close();
  }
});

test('an engine that is closed in the middle ends all', async () => {
  for (const transport of ['thread', 'uv']) {
    const engine = await Engine.open({ transport });
    const model = await engine.loadModel(modelPath);
    const running = model.stream({ prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 });
    const waiting = model.generate({ prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 });
    const load = engine.loadModel(modelPath);
    const ends = Promise.allSettled([waiting, load]);
    let begun = '';
    for (let i = 0; i < 3; i++) begun += (await running.next()).value.text;
    const closed = engine.close();
    assert.equal(closed, engine.close());
    const [a, b] = await ends;
    assert.equal(a.reason.code, 'CLOSED');
    const { partial } = await running.result.catch((error) => error); // what has come, read or not
    assert.ok(begun.length > 0 && partial.text.startsWith(begun) && partial.tokens.length >= 3);
    assert.ok(b.status === 'fulfilled' || b.reason.code === 'CLOSED');
    await assert.rejects(read(running), { code: 'CLOSED' });
    await closed;
    assert.throws(() => model.stream({ prompt: PROMPT }), { code: 'CLOSED' });
    await assert.rejects(engine.loadModel(modelPath), { code: 'CLOSED' });
  }
});

test('two engines beside each other', async () => {
  await withModel(async (one) => {
    await withModel(async (two) => {
      const options = { prompt: PROMPT, maxTokens: 40, temperature: 1, seed: 3 };
      const [a, b] = await Promise.all([read(one.stream(options)), read(two.stream(options))]);
      assert.equal(a, b);
    });
  });
});

test('require() and import give the same module', () => {
  assert.equal(required.Engine, Engine);
  assert.deepEqual(Object.keys(required).sort(), Object.keys(runnel).filter((name) => name !== 'default').sort());
});
