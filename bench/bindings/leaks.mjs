// What streams leave behind in Node: memory after every tenth of many streams.
//
//     node --expose-gc bench/bindings/leaks.mjs PACKAGE MODEL [STREAMS]      PACKAGE: build/PRESET/node_modules/runnel
//
// The streams are read by `for await`, left, cancelled, aborted, awaited by their result, never read, and read in a group,
// in turn; of both transports. Each has a token or two, so that the model costs little.
import { createRequire } from 'node:module';
import path from 'node:path';

const [folder, modelPath, streams = '100000'] = process.argv.slice(2);
const { Engine } = createRequire(import.meta.url)(path.resolve(folder));
const WAYS = 7;

async function one(model, i, group) {
  const controller = new AbortController();
  const way = i % WAYS;
  const options = { prompt: 'a', maxTokens: 1 + (i % 2), signal: way === 3 ? controller.signal : undefined };
  const stream = model.stream(way === 6 ? { ...options, group } : options);
  if (way === 2) stream.cancel();
  if (way === 3) controller.abort();
  if (way === 0 || way === 1) {
    for await (const piece of stream) if (way === 1) break;
  }
  if (way !== 5) await stream.result.catch(() => {});
}

async function many(model, n) {
  const group = model.engine.group();
  const rows = (async () => {
    let n = 0;
    for await (const pieces of group) n += pieces.length;
    return n;
  })();
  let left = n;
  const worker = async () => {
    while (left-- > 0) await one(model, left, group);
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  group.end();
  await rows;
}

for (const transport of ['thread', 'uv']) {
  const engine = new Engine({ transport, computeThreads: 1 });
  const model = await engine.loadModel(modelPath, { contextTokens: 256 });
  const part = Math.ceil(Number(streams) / 10);
  for (let i = 0; i <= 10; i++) {
    if (i > 0) await many(model, part);
    while (engine.streams().length > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    for (let k = 0; k < 3; k++) globalThis.gc();
    const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage();
    const show = (bytes) => `${(bytes / 2 ** 20).toFixed(2)} MB`;
    console.log(`${transport} ${String(i * part).padStart(7)} streams: resident ${show(rss)}, JavaScript ${show(heapUsed)}, `
      + `outside ${show(external + arrayBuffers)}`);
  }
  await engine.close();
}
