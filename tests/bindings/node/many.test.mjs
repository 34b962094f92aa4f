// Many streams, opened and cancelled at random; and that nothing of them is left.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coin, modelPath, sanitized, withModel, Engine } from './common.mjs';

async function one(model, random) {
  const way = Math.floor(random() * 6);
  const controller = new AbortController();
  const options = {
    prompt: `Story number ${Math.floor(random() * 50)}:`,
    maxTokens: 1 + Math.floor(random() * 12),
    temperature: 1,
    seed: Math.floor(random() * 1e6),
    signal: controller.signal,
    highWater: 1 + Math.floor(random() * 4),
  };
  const stream = model.stream(options);
  const stopAt = Math.floor(random() * 4);
  let n = 0;
  if (way === 0) stream.cancel();
  if (way === 1) setTimeout(() => controller.abort(), random() * 20);
  if (way === 2) await new Promise((resolve) => setTimeout(resolve, random() * 20)); // unread meanwhile
  try {
    for await (const piece of stream) {
      n++;
      if (way === 3 && n > stopAt) break;
      if (way === 4 && n > stopAt) controller.abort();
      if (way === 5 && n > stopAt) stream.cancel();
    }
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
  }
  const result = await stream.result.catch((error) => error.partial);
  assert.ok(['stop', 'length', 'cancelled'].includes(result.finish), result.finish);
  assert.ok(result.usage.completionTokens <= options.maxTokens);
  return result.finish;
}

test('1,000 streams opened and cancelled at random, of each transport', async () => {
  for (const transport of ['thread', 'uv']) {
    await withModel(async (model, engine) => {
      const random = coin(20 + transport.length);
      const ends = { stop: 0, length: 0, cancelled: 0 };
      let left = 1000;
      const worker = async () => {
        while (left-- > 0) ends[await one(model, random)]++;
      };
      await Promise.all(Array.from({ length: 64 }, worker));
      assert.ok(ends.cancelled > 100 && ends.length > 100, JSON.stringify(ends));
      await engine.drain();
    }, { transport });
  }
});

function memory() {
  for (let i = 0; i < 3; i++) globalThis.gc();
  return process.memoryUsage();
}

// Streams of no tokens cost the model least: what is left behind by one would be left by each.
if (!sanitized) test('memory is flat over thousands of streams', async () => {
  const runs = Number(process.env.RUNNEL_STREAMS ?? 6000);
  await withModel(async (model) => {
    const some = async (n) => {
      let left = n;
      const worker = async () => {
        while (left-- > 0) {
          const stream = model.stream({ prompt: 'a', maxTokens: left % 2 });
          if (left % 3 === 0) stream.cancel();
          else for await (const piece of stream) if (piece.text === '\0') break;
          await stream.result;
        }
      };
      await Promise.all(Array.from({ length: 16 }, worker));
    };
    await some(runs / 2);
    const before = memory();
    await some(runs);
    const after = memory();
    const grown = after.rss - before.rss;
    const inHeap = after.heapUsed - before.heapUsed; // one object of each stream would be more
    assert.ok(grown < runs * 300 + 4e6, `${runs} streams have left ${grown} bytes`);
    assert.ok(inHeap < runs * 8 + 2e5, `${runs} streams have left ${inHeap} bytes of JavaScript`);
  }, { transport: 'thread' });
});

test('engines come and go', async () => {
  for (let i = 0; i < 10; i++) {
    const engine = new Engine({ transport: i % 2 === 0 ? 'thread' : 'uv' });
    const model = await engine.loadModel(modelPath, { vocabOnly: true });
    assert.ok(model.info.vocabTokens > 0);
    await engine.close();
  }
  assert.equal(process.getActiveResourcesInfo().filter((name) => name === 'Immediate').length, 0);
});
