// Groups: the pieces of many streams in one loop.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AbortError, Engine, coin, collected, modelPath, until, withModel } from './common.mjs';

const PROMPT = 'Once upon a time';
const ENDLESS = { prompt: PROMPT, maxTokens: -1, ignoreEos: 2, contextKeep: 0 };

/** The texts of the group's streams by what `key` knows them as, until its loop ends. */
async function readAll(group, key) {
  const texts = new Map();
  for await (const pieces of group)
    for (let i = 0; i < pieces.length; i++) {
      const name = key.get(pieces.stream(i));
      if (pieces.type(i) === 'text') texts.set(name, (texts.get(name) ?? '') + pieces.text(i));
      else if (pieces.type(i) === 'end') assert.ok(!texts.has(`end of ${name}`) && texts.set(`end of ${name}`, ''));
    }
  return texts;
}

test('the texts are those of generate, and each stream has one end', async () => {
  await withModel(async (model, engine) => {
    const requests = [
      ...Array.from({ length: 12 }, (_, seed) => ({ prompt: PROMPT, maxTokens: 5 + 3 * seed, temperature: 1, seed })),
      ...['Füße – 日本', '😀😀 ok', 'ñ'].map((choice) => ({ prompt: 'Say', grammar: { choices: [choice] } })),
    ];
    const expected = await Promise.all(requests.map((request) => model.generate(request)));
    const group = engine.group();
    const key = new Map(requests.map((request, i) => [model.stream({ ...request, group }), i]));
    const alone = model.generate(requests[3]); // one that is in no group, beside them
    group.end();
    const texts = await readAll(group, key);
    assert.equal(texts.size, 2 * requests.length);
    for (const [stream, i] of key) {
      assert.equal(texts.get(i), expected[i].text);
      const { text, tokens, finish } = await stream.result;
      assert.deepEqual([text, tokens, finish], [expected[i].text, expected[i].tokens, expected[i].finish]);
    }
    assert.equal((await alone).text, expected[3].text);
    assert.deepEqual(await group.next(), { value: undefined, done: true });
    assert.throws(() => model.stream({ prompt: PROMPT, group }), { code: 'STATE' });
    await engine.drain();
  });
});

test('the more streams there are, the longer are pieces held back', async () => {
  const holdUs = 4000;
  const N = 70; // from 64 on it is five times as long
  await withModel(async (model, engine) => {
    const group = engine.group();
    const began = performance.now();
    for (let seed = 0; seed < N; seed++)
      model.stream({ prompt: PROMPT, maxTokens: 80, ignoreEos: 2, temperature: 1, seed, group });
    group.end();
    const seen = new Set();
    let wakes = 0;
    for await (const pieces of group) {
      const before = seen.size;
      for (let i = 0; i < pieces.length; i++) seen.add(pieces.stream(i));
      if (Array.from(pieces).some(([, piece]) => piece.type === 'end')) break;
      if (before === N && pieces.length < 256) wakes++; // nobody began or ended, and the pack was not full
    }
    const ms = performance.now() - began;
    // However late the loop is, these packs were handed over within `ms`, each so long after the one before it.
    assert.ok(wakes * 5 * holdUs <= ms * 1000, `${wakes} wakes in ${ms} ms`);
  }, { transport: 'thread', holdUs, gatherUs: 0 });
});

test('two groups and streams of their own share wakes, in any order', async () => {
  const engine = new Engine({ gatherUs: 100000, computeThreads: 1 }); // so that one wake has events of all
  const model = await engine.loadModel(modelPath);
  const requests = Array.from({ length: 12 }, (_, seed) => ({ prompt: PROMPT, maxTokens: 24, ignoreEos: 2, temperature: 1, seed }));
  const expected = await Promise.all(requests.map((request) => model.generate(request)));
  const groups = [engine.group(), engine.group()];
  const keys = [new Map(), new Map()];
  const alone = [];
  requests.forEach((request, i) => {
    if (i % 3 === 2) alone.push([model.stream(request), i]);
    else keys[i % 3].set(model.stream({ ...request, group: groups[i % 3] }), i);
  });
  for (const group of groups) group.end();
  const readOne = async ([stream, i]) => {
    let text = '';
    for await (const piece of stream) text += piece.text;
    assert.equal(text, expected[i].text);
  };
  const [first, second] = await Promise.all([...groups.map((group, k) => readAll(group, keys[k])), ...alone.map(readOne)]);
  assert.deepEqual([first.size, second.size], [8, 8]);
  for (const [k, texts] of [first, second].entries())
    for (const i of keys[k].values()) assert.equal(texts.get(i), expected[i].text);
  await engine.close();
});

test('pieces are those of a loop over the stream', async () => {
  await withModel(async (model, engine) => {
    const options = { prompt: PROMPT, maxTokens: 12, wantLogprobs: true, nTop: 2, wantProgress: true };
    const plain = { prompt: PROMPT, maxTokens: 12, wantLogprobs: true };
    for (const request of [options, plain]) {
      await model.generate(request); // what is cached is the same for both
      const expected = [];
      const one = model.stream(request);
      for await (const piece of one) expected.push(piece);
      const group = engine.group();
      const stream = model.stream({ ...request, group });
      group.end();
      const seen = [];
      for await (const pieces of group)
        for (const [of, piece] of pieces) {
          assert.equal(of, stream);
          seen.push(piece);
        }
      assert.equal(seen.at(-1).type, 'end');
      assert.deepEqual(seen.slice(0, -1), expected);
      assert.deepEqual((await stream.result).logprobs, (await one.result).logprobs);
    }
  });
});

test('one stream ends early, the others go on', async () => {
  await withModel(async (model, engine) => {
    const group = engine.group();
    const controller = new AbortController();
    const cancelled = model.stream({ ...ENDLESS, group });
    const aborted = model.stream({ ...ENDLESS, group, signal: controller.signal });
    const failed = model.stream({ prompt: 'x', group, grammar: { regex: '(' } });
    const whole = model.stream({ prompt: PROMPT, maxTokens: 40, ignoreEos: 2, group });
    const ends = [];
    group.end();
    for await (const pieces of group)
      for (let i = 0; i < pieces.length; i++) {
        if (pieces.type(i) === 'end') ends.push(pieces.stream(i));
        else if (pieces.stream(i) === cancelled) cancelled.cancel();
        else if (pieces.stream(i) === aborted) controller.abort();
      }
    assert.deepEqual(new Set(ends), new Set([cancelled, aborted, failed, whole]));
    assert.equal(ends.length, 4);
    assert.equal((await cancelled.result).finish, 'cancelled');
    await assert.rejects(aborted.result, AbortError);
    await assert.rejects(failed.result, { code: 'FORMAT' });
    assert.equal((await whole.result).tokens.length, 40);
    const other = engine.group();
    assert.throws(() => model.stream({ ...ENDLESS, group: other, signal: controller.signal }), AbortError);
    other.end();
    assert.equal((await other.next()).done, true);
  });
});

test('a loop that is left cancels all of its streams', async () => {
  await withModel(async (model, engine) => {
    const group = engine.group();
    const streams = [1, 2, 3].map((seed) => model.stream({ ...ENDLESS, temperature: 1, seed, group }));
    for await (const pieces of group) if (pieces.length > 0) break;
    for (const stream of streams) assert.equal((await stream.result).finish, 'cancelled');
    assert.deepEqual(await group.next(), { value: undefined, done: true });
    await engine.drain();
  });
});

test('a group that is not read is paused, and goes on where it was', async () => {
  const request = { prompt: PROMPT, maxTokens: 150, ignoreEos: 2, temperature: 1 };
  await withModel(async (model, engine) => {
    const expected = await Promise.all([1, 2, 3].map((seed) => model.generate({ ...request, seed })));
    const group = engine.group({ highWater: 8 });
    const key = new Map([1, 2].map((seed) => [model.stream({ ...request, seed, group }), seed]));
    await until(() => engine.streams().filter((stream) => stream.paused).length === 2);
    key.set(model.stream({ ...request, seed: 3, group }), 3); // paused from the beginning
    assert.equal((await model.generate({ ...request, seed: 1 })).text, expected[0].text);
    assert.ok(engine.streams().every((stream) => stream.tokens < 100)); // a window, and what was on its way
    group.end();
    const texts = await readAll(group, key);
    for (const seed of [1, 2, 3]) assert.equal(texts.get(seed), expected[seed - 1].text);
  });
});

test('what was not read keeps its stream while others come and go', async () => {
  await withModel(async (model, engine) => {
    const group = engine.group();
    const first = model.stream({ prompt: PROMPT, maxTokens: 3, group });
    const { text } = await first.result;
    for (let i = 0; i < 3; i++) await model.generate({ prompt: PROMPT, maxTokens: 2 }); // they would have its slot
    const second = model.stream({ prompt: PROMPT, maxTokens: 4, group });
    await second.result;
    group.end();
    const texts = await readAll(group, new Map([[first, 1], [second, 2]]));
    assert.equal(texts.get(1), text);
    assert.ok(texts.get(2).startsWith(text));
  });
});

test('drain() waits for streams, not for who reads their ends', async () => {
  await withModel(async (model, engine) => {
    const group = engine.group();
    const stream = model.stream({ prompt: PROMPT, maxTokens: 3, group });
    group.end();
    await stream.result;
    await engine.drain();
    let last;
    for await (const pieces of group) last = pieces.type(pieces.length - 1);
    assert.equal(last, 'end');
  });
});

test('a stream that is cancelled while its group is full ends, and is not paused again', async () => {
  await withModel(async (model, engine) => {
    const group = engine.group({ highWater: 8 });
    const streams = [1, 2].map((seed) => model.stream({ ...ENDLESS, seed, temperature: 1, group }));
    await until(() => engine.streams().filter((stream) => stream.paused).length === 2);
    streams[0].cancel();
    assert.equal((await streams[0].result).finish, 'cancelled'); // though nobody reads the group
    await model.close();
    assert.equal((await streams[1].result).finish, 'cancelled');
    await engine.drain();
    await group.return();
  });
});

test('a group that nobody reads any more is collected', async () => {
  await withModel(async (model, engine) => {
    const groups = Array.from({ length: 10 }, () => new WeakRef(engine.group()));
    await collected(groups);
    const waiting = engine.group();
    const next = waiting.next();
    waiting.end();
    assert.equal((await next).done, true);
  }, { transport: 'thread' });
});

test('streams join and leave at random', async () => {
  await withModel(async (model, engine) => {
    const random = coin(7);
    const group = engine.group({ highWater: 40 });
    let [left, live] = [160, 0];
    const open = () => {
      left--;
      live++;
      model.stream({ prompt: `Story ${left % 20}:`, maxTokens: Math.floor(random() * 10), temperature: 1, seed: left, group });
    };
    for (let i = 0; i < 32; i++) open();
    const ends = { stop: 0, length: 0, cancelled: 0 };
    for await (const pieces of group) {
      const ended = [];
      for (let i = 0; i < pieces.length; i++) {
        if (pieces.type(i) === 'end') ended.push(pieces.stream(i));
        else if (random() < 0.1) pieces.stream(i).cancel();
      }
      for (const stream of ended) {
        ends[(await stream.result).finish]++;
        live--;
        if (left > 0) open();
      }
      if (random() < 0.2) await new Promise((resolve) => setTimeout(resolve, 3)); // unread meanwhile
      if (live === 0) group.end();
    }
    assert.equal(ends.stop + ends.length + ends.cancelled, 160);
    assert.ok(ends.cancelled > 10 && ends.length > 10, JSON.stringify(ends));
    await engine.drain();
  });
});

test('an engine that is closed ends the loop', async () => {
  for (const transport of ['thread', 'uv']) {
    const engine = new Engine({ transport, computeThreads: 1 });
    const model = await engine.loadModel(modelPath);
    const group = engine.group();
    const unread = engine.group(); // its loop has not begun
    const streams = [group, group, unread].map((of) => model.stream({ ...ENDLESS, group: of }));
    let ends = 0;
    for await (const pieces of group) {
      for (let i = 0; i < pieces.length; i++) ends += pieces.type(i) === 'end';
      engine.close();
    }
    assert.equal(ends, 2);
    for (const stream of streams) await assert.rejects(stream.result, { code: 'CLOSED' });
    let last;
    for await (const pieces of unread) last = pieces.type(pieces.length - 1);
    assert.equal(last, 'end');
    assert.throws(() => engine.group(), { code: 'CLOSED' });
  }
});

test('what groups refuse', async () => {
  await withModel(async (model, engine) => {
    await withModel(async (_, stranger) => {
      assert.throws(() => model.stream({ prompt: 'x', group: stranger.group() }), { code: 'INVALID', message: /engine/ });
    }, { transport: 'thread' });
    assert.throws(() => model.stream({ prompt: 'x', group: {} }), { code: 'INVALID', message: /group/ });
    assert.throws(() => engine.group({ highWater: 0 }), { code: 'INVALID', message: /highWater/ });
    const group = engine.group();
    const stream = model.stream({ prompt: PROMPT, maxTokens: 2, group });
    await assert.rejects(stream.next(), { code: 'INVALID', message: /group/ });
    assert.throws(() => model.stream({ prompt: '', group }), { code: 'INVALID', message: /empty/ }); // and holds no slot
    const reading = group.next();
    await assert.rejects(group.next(), { code: 'INVALID', message: /one reader/ });
    const { value: pieces } = await reading;
    for (const i of [-1, pieces.length, 0.5, NaN]) assert.throws(() => pieces.text(i), { code: 'INVALID' });
    await stream.result;
    await group.return();
    await engine.drain();
  }, { transport: 'thread' });
});
