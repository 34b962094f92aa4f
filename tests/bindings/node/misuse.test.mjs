// What a program does wrong: each is an error, and takes nothing from what else runs.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { constants, folder, modelPath, runnel, until, withModel } from './common.mjs';

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
    for (const call of ['embed', 'score', 'checkGrammar']) {
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
    for (const number of [NaN, 0.5]) assert.throws(() => file.kvBytesPerToken(number), { code: 'INVALID' });
    assert.equal(file.metadata(0).key, 'general.architecture');
    file.close();
    await assert.rejects(engine.device('auto\0x'), { code: 'INVALID' });
    for (const nowS of [NaN, Infinity, 'x', {}, 1e300])
      await assert.rejects(runnel.renderTemplate('x', {}, { nowS }), { code: 'INVALID' }, String(nowS));
    assert.equal(await runnel.renderTemplate('{{ 1 }}', {}, { nowS: 1.5 }), '1');
    for (const messages of [() => [], Symbol('x')]) assert.throws(() => model.applyTemplateSync({ messages }), { code: 'INVALID' });
    for (const call of ['onLog', 'onTrace'])
      for (const value of [5, 'x', {}, null, 0]) assert.throws(() => new runnel.Engine({ [call]: value }), { code: 'INVALID' });
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
