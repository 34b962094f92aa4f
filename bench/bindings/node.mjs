// What a token costs on Node's loop, and what a running engine does to the loop's timers and to its pool of threads.
//
//     node bench/bindings/node.mjs PACKAGE MODEL [SECONDS]      PACKAGE: build/PRESET/node_modules/runnel
//
// Processor time is that of the loop's thread alone (/proc/self/task/PID/schedstat), so the model's own work is not in it,
// nor what else the machine does. A cost is the median of three stretches of time while all streams run: their beginning
// and end are in none. The best one is shown, too: what else runs on the machine takes the caches. "+" is what the
// binding's own thread takes besides, which receives the events. An empty timer shows what a turn of the loop costs in
// which nothing is done, in the same circumstances: tokens that share a wake share that.
//
// Ways to read: `for await` over each stream, one loop over a group of all, and `generate`, where nobody reads pieces.
// "Constants" are promises of a constant that loops await: what any iterator of single tokens costs at least.
//
// Beside ours, in the same run: two hops to the pool for a token, as a binding has them that decodes and samples as jobs of
// the pool; each hop is a job that does next to nothing.
import fs from 'node:fs';
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';

const [folder, modelPath, seconds = '4'] = process.argv.slice(2);
const load = createRequire(import.meta.url);
const { Engine } = load(path.resolve(folder));
// Blocks for 256 streams of the tiny model: with the default of eight contexts the others wait.
const room = { contextTokens: 256, kvBytes: 256 << 20 };
const endless = { prompt: 'Once upon a time', maxTokens: -1, ignoreEos: 2, contextKeep: 0, temperature: 1 };

const own = fs.openSync(`/proc/self/task/${process.pid}/schedstat`);
const digits = Buffer.alloc(64);

/** Nanoseconds that a thread has run: this one, or that of an open file. To ask costs little, as it is measured, too. */
function ran(file = own) {
  fs.readSync(file, digits, 0, 64, 0);
  let n = 0;
  for (let i = 0; digits[i] >= 48; i++) n = 10 * n + digits[i] - 48;
  return n;
}

/** The file of the thread that receives the events of the engine; undefined with transport uv. */
function watcher() {
  const named = (thread) => fs.readFileSync(`/proc/self/task/${thread}/comm`, 'utf8').trim() === 'runnel-events';
  const thread = fs.readdirSync('/proc/self/task').find(named);
  return thread && fs.openSync(`/proc/self/task/${thread}/schedstat`);
}

function quantiles(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? NaN;
  return `p50 ${at(0.5).toFixed(3)}  p99 ${at(0.99).toFixed(3)}  worst ${at(1).toFixed(3)} ms (${sorted.length})`;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let tokens = 0;

/** n streams that are read until `until` is over. */
async function readAll(model, n, until) {
  const one = async (seed) => {
    const stream = model.stream({ ...endless, seed });
    for await (const piece of stream) {
      tokens += piece.tokens;
      if (until.over) break;
    }
    await stream.result;
  };
  await Promise.all(Array.from({ length: n }, (_, i) => one(i)));
}

async function readGroup(model, n, until) {
  const group = model.engine.group();
  const streams = Array.from({ length: n }, (_, seed) => model.stream({ ...endless, seed, group }));
  let characters = 0;
  for await (const pieces of group) {
    for (let i = 0; i < pieces.length; i++) {
      tokens += pieces.tokens(i);
      characters += pieces.text(i).length;
    }
    if (until.over) break;
  }
  await Promise.all(streams.map((stream) => stream.result));
  return characters;
}

/** Nobody reads pieces: the engine knows how many tokens there are. */
async function generateAll(model, n, until) {
  const controllers = Array.from({ length: n }, () => new AbortController());
  const results = controllers.map(({ signal }, seed) => model.generate({ ...endless, seed, signal, onAbort: 'return' }));
  until.count = () => Number(model.engine.stats().tokens);
  while (!until.over) await sleep(1000);
  for (const controller of controllers) controller.abort();
  await Promise.all(results);
}

async function whileReading(model, n, body) {
  const until = { over: false };
  const reading = readAll(model, n, until);
  await sleep(300);
  const result = await body();
  until.over = true;
  await reading;
  return result;
}

async function cost(model, n, read) {
  const until = { over: false, count: () => tokens };
  const reading = read(model, n, until);
  const beside = watcher();
  const ranBeside = () => (beside ? ran(beside) : 0);
  const costs = [];
  await sleep(1000); // also warms JavaScript up
  const [began, first, besideBefore] = [performance.now(), until.count(), ranBeside()];
  for (let i = 0; i < 3; i++) {
    const [before, seen] = [ran(), until.count()];
    await sleep((1000 * Number(seconds)) / 3);
    const came = until.count() - seen;
    if (came > 0) costs.push((ran() - before) / came / 1000);
  }
  const came = until.count() - first;
  const rate = came / (performance.now() - began);
  const more = beside ? ` + ${((ranBeside() - besideBefore) / came / 1000).toFixed(2)}` : '';
  until.over = true;
  await reading;
  costs.sort((a, b) => a - b);
  if (beside) fs.closeSync(beside);
  return `${costs[costs.length >> 1].toFixed(3)}${more} us a token (best ${costs[0].toFixed(3)}; ${rate.toFixed(1)}k/s)`;
}

const scratch = new Float64Array(1 << 20);

/** What the model does to the caches between two wakes. */
function useCaches() {
  for (let i = 0; i < scratch.length; i += 8) scratch[i]++;
}

/** 64 promises with a constant, each awaited by a loop: what any iterator of single tokens costs at least. */
function constants() {
  const waiting = [];
  const source = (i) => ({ [Symbol.asyncIterator]: () => ({ next: () => new Promise((resolve) => { waiting[i] = resolve; }) }) });
  for (let i = 0; i < 64; i++) (async () => { for await (const one of source(i)) tokens += one; })();
  return () => { for (const resolve of [...waiting]) resolve({ value: 1, done: false }); };
}

function fakeStreams(options) {
  const { Stream } = load(path.resolve(folder, 'stream.js'));
  return Array.from({ length: 64 }, () => new Stream({ _submit() {} }, undefined, options));
}

function overStreams() {
  const streams = fakeStreams({});
  for (const stream of streams) (async () => { for await (const piece of stream) tokens += piece.tokens; })();
  return (texts) => streams.forEach((stream, i) => stream._token(texts.slice(4 * i, 4 * i + 4), i, 1, 0, 0, 0));
}

function overGroup() {
  const { Group } = load(path.resolve(folder, 'group.js'));
  const group = new Group({ _groupWaits() {} });
  const words = new Int32Array(64 * 10);
  let characters = 0;
  fakeStreams({ group }).forEach((stream, i) => {
    group._enter(i, stream);
    words.set([i, 0, i, 1, 4 * i, 4, -1, 0, 0, 0], 10 * i);
  });
  (async () => {
    for await (const pieces of group)
      for (let i = 0; i < pieces.length; i++) {
        tokens += pieces.tokens(i);
        characters += pieces.text(i).length;
      }
  })();
  return (texts) => {
    group._begin(texts);
    group._add(words, 0, words.length);
    group._wake();
  };
}

/** JavaScript's part alone: no engine, 64 tokens at a time, with caches that are warm or were used meanwhile. */
async function inJavaScript(begin, between) {
  const wake = begin();
  const texts = Buffer.from(' the'.repeat(64)).toString('latin1');
  const costs = [];
  for (let i = 0; i < 4000; i++) {
    between();
    const before = performance.now();
    wake(texts);
    for (let k = 0; k < 8; k++) await null; // the readers have their turn
    costs.push((1000 * (performance.now() - before)) / 64);
    if (i % 64 === 0) await sleep(0);
  }
  return costs.slice(1000).sort((x, y) => x - y)[1500].toFixed(3);
}

/** How late a timer of 1 ms is. */
async function lateness(ms) {
  const late = [];
  for (const end = performance.now() + ms; performance.now() < end; ) {
    const due = performance.now() + 1;
    await sleep(1);
    late.push(performance.now() - due);
  }
  return late;
}

async function statLatency(ms) {
  const took = [];
  for (const end = performance.now() + ms; performance.now() < end; ) {
    const began = performance.now();
    await stat('.');
    took.push(performance.now() - began);
  }
  return took;
}

/** A turn of the loop that does nothing, while the model works: what a wake costs at least. */
async function emptyTurn(model) {
  const until = { over: false };
  const running = generateAll(model, 64, until);
  const costs = [];
  let ticks = 0;
  const timer = setInterval(() => ticks++, 10);
  await sleep(1000); // also warms it up
  for (let i = 0; i < 3; i++) {
    const [before, seen] = [ran(), ticks];
    await sleep((1000 * Number(seconds)) / 3);
    costs.push((ran() - before) / (ticks - seen) / 1000);
  }
  clearInterval(timer);
  until.over = true;
  await running;
  return `${costs.sort((a, b) => a - b)[1].toFixed(1)} us (best ${costs[0].toFixed(1)})`;
}

async function hops(model, n) {
  const before = ran();
  const began = performance.now();
  for (let i = 0; i < n; i++) {
    await model.tokenize('a');
    await model.tokenize('a');
  }
  const wall = (performance.now() - began) / n;
  return `${((ran() - before) / n / 1000).toFixed(1)} us of the loop's thread, ${(1000 * wall).toFixed(1)} us until it is there`;
}

console.log('JavaScript alone, 64 streams, caches warm and used meanwhile');
for (const [way, begin] of Object.entries({ constants, 'for await': overStreams, group: overGroup }))
  console.log(`  ${way.padEnd(18)} ${await inJavaScript(begin, () => {})} and ${await inJavaScript(begin, useCaches)} us a token`);

// One wake for each token, for those of a millisecond, for those that are held as by default, and for large batches, which
// is what is left of the cost when the wake is shared by many.
const ways = { 'for await': readAll, group: readGroup, generate: generateAll };
for (const [gatherUs, holdUs] of [[0, 0], [1000, 0], [1000, 10000], [1000, 50000]]) {
  const engine = new Engine({ gatherUs, holdUs, computeThreads: 1, maxStreams: 2000 });
  const model = await engine.loadModel(modelPath, room);
  const [gather, hold] = [gatherUs, holdUs].map((us) => String(us).padStart(5));
  console.log(`64 streams, events gather ${gather} us, pieces are held ${hold} us`);
  for (const [way, read] of Object.entries(ways)) {
    console.log(`  ${way.padEnd(18)} ${await cost(model, 64, read)}`);
  }
  await engine.close();
}

for (const transport of ['thread', 'uv']) {
  const engine = new Engine({ transport, computeThreads: 1, maxStreams: 2000 });
  const model = await engine.loadModel(modelPath, room);
  const ms = 500 * Number(seconds);
  console.log(`transport ${transport}`);
  for (const n of [1, 64, 256])
    for (const way of ['for await', 'group'])
      console.log(`  ${String(n).padStart(3)} streams, ${way.padEnd(9)}: ${await cost(model, n, ways[way])}`);
  console.log(`  timer of 1 ms late, idle:        ${quantiles(await lateness(ms))}`);
  console.log(`  timer of 1 ms late, 256 streams: ${quantiles(await whileReading(model, 256, () => lateness(ms)))}`);
  console.log(`  fs.stat, idle:                   ${quantiles(await statLatency(ms))}`);
  console.log(`  fs.stat, 256 streams:            ${quantiles(await whileReading(model, 256, () => statLatency(ms)))}`);
  if (transport === 'thread') {
    console.log(`  an empty timer, 64 streams:      ${await emptyTurn(model)}`);
    console.log(`  two hops to the pool a token:    ${await hops(model, 4000)}`);
  }
  await engine.close();
}
