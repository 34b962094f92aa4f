// What is left of an engine that was used in every way and closed: nothing, as LeakSanitizer sees it. In a process of its
// own, since what node itself leaves behind is looked for at its end, too. Only where the addon is built with it.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Engine, modelPath, sanitized } from './common.mjs';

const ENDLESS = { prompt: 'Once', maxTokens: -1, ignoreEos: 2, contextKeep: 0 };

async function streams(model, engine) {
  for await (const piece of model.stream({ prompt: 'a', maxTokens: 8, wantLogprobs: true, nTop: 2, wantProgress: true }))
    assert.ok(piece.type !== 'end');
  for await (const piece of model.stream({ prompt: 'a', maxTokens: 2, wantLogits: true })) if (piece.value) break;
  for await (const piece of model.stream(ENDLESS)) if (piece.tokens > 0) break;
  const cancelled = model.stream(ENDLESS);
  cancelled.cancel();
  await cancelled.result;
  await model.generate({ ...ENDLESS, signal: AbortSignal.timeout(10) }).catch(() => {});
  await model.generate({ prompt: 'a', grammar: { regex: '(' } }).catch(() => {});
  await model.generate({ prompt: 'a', maxTokens: 3, temperature: 1, choose: (c) => c.draw() });
  const group = engine.group();
  for (let i = 0; i < 4; i++) model.stream({ prompt: 'a', maxTokens: 4, group, wantLogprobs: i > 2 });
  group.end();
  for await (const pieces of group) assert.ok(pieces.length > 0);
  model.stream({ prompt: 'a', maxTokens: 200, highWater: 2 }); // never read
  model.stream({ ...ENDLESS, group: engine.group() });
}

async function rest(model, engine) {
  await model.embed('A cat sat.');
  const session = model.session();
  await session.generate({ prompt: 'a', maxTokens: 2 });
  await session.fork().close();
  await model.tokenize('one two');
  model.checkGrammarSync({ prompt: 'a', grammar: { gbnf: 'root ::= "a"' } });
  model.checkSamplingSync({ topK: 40 });
  engine.metrics();
  await engine.loadModel('README.md').catch(() => {});
  const lost = engine.loadModel(modelPath, { onProgress: () => { throw new Error('mine'); } });
  await lost.catch(() => {});
}

async function child() {
  for (const transport of ['thread', 'uv']) {
    const engine = new Engine({ transport, computeThreads: 1, logLevel: 'debug', onLog: () => {}, onTrace: () => {} });
    const model = await engine.loadModel(modelPath);
    await streams(model, engine);
    await rest(model, engine);
    await engine.close(); // two streams run
  }
  const open = new Engine({ computeThreads: 1 }); // the process' end closes it
  for await (const piece of (await open.loadModel(modelPath)).stream(ENDLESS)) if (piece.tokens > 0) break;
}

if (process.argv[2] === 'child') {
  await child();
} else if (sanitized) {
  test('nothing is left behind', () => {
    const environment = {
      ...process.env,
      ASAN_OPTIONS: 'detect_leaks=1:exitcode=23',
      // node's own record of a handle that lives until the end
      LSAN_OPTIONS: `suppressions=${fileURLToPath(new URL('leaks.supp', import.meta.url))}:print_suppressions=0`,
    };
    const self = fileURLToPath(import.meta.url);
    const result = spawnSync(process.execPath, ['--expose-gc', self, 'child'], { encoding: 'utf8', timeout: 1_000_000, env: environment });
    if (/LeakSanitizer has encountered a fatal error/.test(result.stderr)) {
      console.log('skipped: LeakSanitizer may not look at processes here');
      process.exit(77);
    }
    assert.deepEqual([result.status, result.stdout], [0, ''], result.stderr.slice(0, 8000));
  });
}
