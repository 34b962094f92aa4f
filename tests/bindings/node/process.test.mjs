// Processes and workers that end: by themselves, in the middle of streams, and after children were started.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { Engine, folder, modelPath, withModel } from './common.mjs';

const SETUP = `
  const { Engine } = require(${JSON.stringify(folder)});
  const path = ${JSON.stringify(modelPath)};
  const endless = { prompt: 'Once', maxTokens: -1, ignoreEos: 2, contextKeep: 0 };
  const open = async (transport) => {
    const engine = new Engine({ transport, computeThreads: 1 });
    return [engine, await engine.loadModel(path)];
  };
  const paused = async (engine, n) => {
    while (engine.streams().filter((stream) => stream.paused).length < n) await new Promise((resolve) => setTimeout(resolve, 2));
  };
`;

/** Runs the text in a node of its own; an exit that never comes is the test's failure. */
function run(text) {
  const environment = { ...process.env };
  delete environment.LD_PRELOAD;
  delete environment.GLIBC_TUNABLES;
  if (process.env.RUNNEL_SANITIZE) environment.LD_PRELOAD = process.env.LD_PRELOAD;
  const child = spawnSync(process.execPath, ['-e', SETUP + text], { encoding: 'utf8', timeout: 1_000_000, env: environment });
  return { out: child.stdout, code: child.status, signal: child.signal, err: child.stderr };
}

// Node exports its own libuv and llhttp, and every other addon of the process may have another zstd or OpenSSL.
test('the addon exports its entry point alone', () => {
  const environment = { ...process.env };
  delete environment.LD_PRELOAD;
  const listing = execFileSync('nm', ['-D', '--defined-only', `${folder}/runnel.node`], { encoding: 'utf8', env: environment });
  const names = listing.trim().split('\n').map((line) => line.split(/\s+/).at(-1));
  const own = names.filter((name) => !/^_*(asan|ubsan|lsan|sanitizer|odr_asan)/.test(name));
  assert.deepEqual(own.sort(), ['napi_register_module_v1', 'node_api_module_get_api_version_v1']);
});

for (const transport of ['thread', 'uv']) {
  const cases = {
    'ends when nothing runs, though the engine is open': ["const [, model] = await open(T); console.log((await model.generate({ prompt: 'a', maxTokens: 2 })).tokens.length)", '2\n', 0],
    'ends when nothing runs, with nothing loaded': ['new Engine({ transport: T }); console.log(1)', '1\n', 0],
    'does not end while a stream is read': ["const [, model] = await open(T); let n = 0; for await (const p of model.stream({ prompt: 'a', maxTokens: 50, ignoreEos: 2 })) n += p.token >= 0; console.log(n)", '50\n', 0],
    'ends while a stream is not read': ['const [, model] = await open(T); const s = model.stream(endless); await s.next(); console.log(1)', '1\n', 0],
    'ends by process.exit in the middle of streams': ['const [, model] = await open(T); const s = [1, 2, 3].map(() => model.stream(endless)); for await (const p of s[0]) { console.log(1); process.exit(5); }', '1\n', 5],
    'ends by process.exit in the middle of a load': ['const engine = new Engine({ transport: T }); engine.loadModel(path); setImmediate(() => process.exit(6));', '', 6],
    'ends by an error in the middle of streams': ["const [, model] = await open(T); model.stream(endless).result; for await (const p of model.stream(endless)) throw new Error('mine');", '', 1],
    'waits for the end of a paused stream that is cancelled': ['const [engine, model] = await open(T); const s = model.stream(endless); await paused(engine, 1); s.cancel(); await engine.drain(); console.log((await s.result).finish)', 'cancelled\n', 0],
    'waits for the end of a paused stream whose signal aborts': ["const [engine, model] = await open(T); const c = new AbortController(); const s = model.stream({ ...endless, signal: c.signal }); await paused(engine, 1); c.abort(); await engine.drain(); console.log(await s.result.catch((e) => e.code))", 'ABORT_ERR\n', 0],
    'waits for the end of a paused stream whose model is closed': ['const [engine, model] = await open(T); const s = model.stream(endless); await paused(engine, 1); await model.close(); await engine.drain(); console.log((await s.result).finish)', 'cancelled\n', 0],
    'waits for the ends of a group that is left while it is paused': ['const [engine, model] = await open(T); const group = engine.group({ highWater: 8 }); const streams = [1, 2].map(() => model.stream({ ...endless, group })); for await (const pieces of group) { await paused(engine, 2); break; } for (const s of streams) console.log((await s.result).finish)', 'cancelled\ncancelled\n', 0],
    'waits for the end of a stream of a paused group': ['const [engine, model] = await open(T); const group = engine.group({ highWater: 8 }); const streams = [1, 2].map(() => model.stream({ ...endless, group })); await paused(engine, 2); streams[0].cancel(); console.log((await streams[0].result).finish); await model.close(); console.log((await streams[1].result).finish)', 'cancelled\ncancelled\n', 0],
    'is told what onLog and onTrace throw': ["let n = 0; process.on('uncaughtException', (e) => { if (e.message === 'mine') n++; }); const engine = new Engine({ transport: T, computeThreads: 1, logLevel: 'debug', onLog() { throw new Error('mine'); }, onTrace() { throw new Error('mine'); } }); const model = await engine.loadModel(path); await model.generate({ prompt: 'a', maxTokens: 2 }); await engine.close(); setImmediate(() => console.log(n > 2))", 'true\n', 0],
    'ends by what onLog throws': ["const engine = new Engine({ transport: T, computeThreads: 1, logLevel: 'debug', onLog() { throw new Error('mine'); } }); await engine.loadModel(path); for (;;) await new Promise((resolve) => setTimeout(resolve, 2));", '', 1],
    'ends when it is closed in the middle of streams': ["const [engine, model] = await open(T); const s = model.stream(endless); await s.next(); await engine.close(); console.log(await s.result.catch((e) => e.code))", 'CLOSED\n', 0],
  };
  // The library's own handle holds a loop as long as a stream is alive.
  if (transport === 'uv') delete cases['ends while a stream is not read'];
  for (const [name, [text, out, code]] of Object.entries(cases))
    test(`${transport}: a process ${name}`, () => {
      const result = run(`const T = '${transport}'; (async () => { ${text} })();`);
      assert.deepEqual([result.out, result.code, result.signal], [out, code, null], result.err);
    });
}

// As jest.resetModules() does it, and jest for each of its files.
test('errors are those of the package as it was evaluated last', () => {
  const result = run(`
    const [fs, vm] = [require('node:fs'), require('node:vm')];
    const folder = ${JSON.stringify(folder)};
    const one = require(folder);
    const wrong = (from) => { try { new from.Engine({ none: 1 }); } catch (error) { return error; } };
    const late = async (from) => {
      const engine = new from.Engine({ computeThreads: 1 });
      const error = await engine.loadModel('/nowhere').catch((thrown) => thrown);
      await engine.close();
      return error;
    };
    (async () => {
      for (const key of Object.keys(require.cache)) if (!key.endsWith('.node')) delete require.cache[key];
      const two = require(folder);
      for (const error of [wrong(two), await late(two)])
        console.log(two !== one, error.code, error instanceof two.RunnelError, error instanceof one.RunnelError);
      const context = vm.createContext({ setImmediate, setTimeout, clearTimeout, URL });
      const files = new Map();
      const load = (name) => {
        if (name.endsWith('.node')) return require(folder + name.slice(1));
        if (!name.startsWith('./')) return require(name);
        if (!files.has(name)) {
          const module = { exports: {} };
          files.set(name, module);
          const text = fs.readFileSync(folder + name.slice(1), 'utf8');
          vm.runInContext('(function (require, module) {' + text + '})', context)(load, module);
        }
        return files.get(name).exports;
      };
      const three = load('./index.js');
      for (const error of [wrong(three), await late(three)])
        console.log(three.RunnelError !== one.RunnelError, error.code, error instanceof three.RunnelError);
    })();
  `);
  assert.equal(result.out, 'true INVALID true true\ntrue IO true true\ntrue INVALID true\ntrue IO true\n', result.err);
});

test('workers have engines of their own, and are terminated in the middle of streams', async () => {
  const text = SETUP + `
    const { parentPort, workerData } = require('node:worker_threads');
    (async () => {
      const [, model] = await open(workerData);
      const { text } = await model.generate({ prompt: 'Once upon a time', maxTokens: 20 });
      parentPort.postMessage(text);
      for await (const piece of model.stream(endless)) parentPort.postMessage('.');
    })();
  `;
  await withModel(async (model, engine) => {
    const { text: expected } = await model.generate({ prompt: 'Once upon a time', maxTokens: 20 });
    const workers = ['thread', 'uv', 'thread'].map((workerData) => new Worker(text, { eval: true, workerData }));
    await Promise.all(workers.map((worker) => new Promise((resolve, reject) => {
      let n = 0;
      worker.on('error', reject);
      worker.on('message', (message) => {
        if (n++ === 0) assert.equal(message, expected);
        if (n === 4) resolve();
      });
    })));
    assert.deepEqual(await Promise.all(workers.map((worker) => worker.terminate())), [1, 1, 1]);
    assert.equal((await model.generate({ prompt: 'Once upon a time', maxTokens: 20 })).text, expected);
  }, { transport: 'thread' });
});

// A worker that is being terminated goes on up to its next turn of JavaScript: until then no promise can be made.
test('workers are terminated while they make promises', async () => {
  const text = SETUP + `
    const { parentPort } = require('node:worker_threads');
    (async () => {
      const engine = new Engine({ computeThreads: 1 });
      const model = await engine.loadModel(path, { vocabOnly: true });
      const text = 'word '.repeat(100000); // copied before a promise is made
      parentPort.postMessage(1);
      for (let i = 0; i < 200; i++) model.tokenize(text).catch(() => {});
      engine.close();
    })();
  `;
  for (let n = 0; n < 10; n++) {
    const worker = new Worker(text, { eval: true });
    await new Promise((resolve, reject) => worker.on('error', reject).once('message', resolve));
    await worker.terminate();
  }
});

test('a worker ends by itself when nothing runs', async () => {
  const text = SETUP + `(async () => {
    const [, model] = await open('thread');
    await model.generate({ prompt: 'a', maxTokens: 2 });
  })();`;
  const worker = new Worker(text, { eval: true });
  assert.equal(await new Promise((resolve, reject) => worker.on('exit', resolve).on('error', reject)), 0);
});

test('children are started while streams run', async () => {
  await withModel(async (model) => {
    const stream = model.stream({ prompt: 'Once', maxTokens: 300, ignoreEos: 2 });
    await stream.next();
    const children = Array.from({ length: 4 }, () => new Promise((resolve) => spawn('true').on('exit', resolve)));
    assert.equal(execFileSync('echo', ['x'], { encoding: 'utf8' }), 'x\n');
    const descriptors = execFileSync('ls', ['/proc/self/fd'], { encoding: 'utf8' }).trim().split('\n').length;
    assert.ok(descriptors <= 5, `a child has ${descriptors} descriptors`);
    assert.deepEqual(await Promise.all(children), [0, 0, 0, 0]);
    assert.equal((await stream.result).tokens.length, 300);
  });
});

test('nothing of the engine is on the pool of threads', async () => {
  // The pool has four threads; sixteen streams at once would fill it.
  const { stat } = await import('node:fs/promises');
  const engine = new Engine();
  const model = await engine.loadModel(modelPath);
  const streams = Array.from({ length: 16 }, () => model.stream({ prompt: 'Once', maxTokens: -1, ignoreEos: 2, contextKeep: 0, highWater: 100000 }));
  await Promise.all(streams.map((stream) => stream.next()));
  for (let i = 0; i < 20; i++) await stat('.');
  for (const stream of streams) stream.cancel();
  await Promise.all(streams.map((stream) => stream.result));
  await engine.close();
});
