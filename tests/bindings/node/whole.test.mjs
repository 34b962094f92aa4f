// What there is besides streams: text and tokens, templates, grammars, files, caches, metrics, logs, choices, training.
// The program is the judge wherever it does the same.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { Engine, RunnelError, constants, modelPath, program, runnel, sharedFile, withModel } from './common.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'runnel-node-'));
after(() => fs.rmSync(folder, { recursive: true }));
const PROMPT = 'Once upon a time';
const CHAT = [{ role: 'user', content: 'Who are you?' }];
const CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}";

test('tokens are the program\'s, and come back', async () => {
  const text = 'Füße are feet, 日本 😀.';
  const ids = program('tokenize', modelPath, '-p', text, '--ids', '--bos').trim().split(/[ ,]+/).map(Number);
  await withModel(async (model) => {
    const tokens = await model.tokenize(text);
    assert.ok(tokens instanceof Int32Array);
    assert.deepEqual([...tokens], ids);
    assert.deepEqual(model.tokenizeSync(text), tokens);
    assert.equal(await model.detokenize(tokens), text);
    assert.equal(model.detokenizeSync([...tokens]), text);
    assert.deepEqual(await model.detokenize(tokens, { bytes: true }), Buffer.from(text));
    const long = 'word '.repeat(20000);
    assert.equal(await model.detokenize(await model.tokenize(long)), long);
    await assert.rejects(model.tokenize(Buffer.from([0xff, 0xfe])), { code: 'INVALID' });
    await assert.rejects(model.detokenize('x'), { code: 'INVALID' });
    assert.throws(() => model.tokenizeSync(5), { code: 'INVALID' });
    const prompt = model.stream({ tokens, maxTokens: 5 });
    assert.equal((await prompt.result).text, (await model.generate({ prompt: text, maxTokens: 5 })).text);
  });
});

test('the text of a token has its space', async () => {
  const spaced = sharedFile('models/stories260K.gguf');
  if (spaced === undefined) return;
  await withModel(async (_, engine) => {
    const model = await engine.loadModel(spaced, { vocabOnly: true });
    const tokens = await model.tokenize('a b', { bos: false });
    assert.deepEqual(await Promise.all([...tokens].map((token) => model.tokenText(token))), [' a', ' b']);
    assert.deepEqual([...tokens].map((token) => model.tokenTextSync(token)), [' a', ' b']);
    assert.equal(await model.detokenize(tokens), 'a b');
    assert.equal(await model.tokenText(1), '');
    assert.equal(await model.tokenText(1, { special: true }), await model.detokenize([1], { special: true }));
    const half = await model.tokenText(0xe9 + 3, { bytes: true }); // of a character
    assert.deepEqual([half, model.tokenTextSync(0xe9 + 3, { bytes: true })], [Buffer.of(0xe9), Buffer.of(0xe9)]);
  });
});

test('a number that is out of range is told its range', async () => {
  await withModel(async (model) => {
    for (const [name, value, range] of [
      ['seed', -1, '0 to 18446744073709551615 (a BigInt beyond 2^53)'],
      ['seed', 1n << 64n, '0 to 18446744073709551615 (a BigInt beyond 2^53)'],
      ['maxTokens', 1n << 63n, '-9223372036854775808 to 9223372036854775807 (a BigInt beyond 2^53)'],
      ['topK', 2 ** 32, '0 to 4294967295'],
    ])
      assert.throws(() => model.stream({ prompt: PROMPT, [name]: value }),
        { code: 'INVALID', message: `${name} must be an integer from ${range}` });
    const most = { prompt: PROMPT, seed: (1n << 64n) - 1n, maxTokens: 1 };
    assert.equal((await model.generate(most)).usage.completionTokens, 1);
  });
});

/** Not done on the loop's thread: then it would be there before the loop turns. */
async function elsewhere(promise) {
  let there = false;
  promise.then(() => (there = true));
  for (let i = 0; i < 100; i++) await undefined;
  assert.ok(!there);
  return promise;
}

test('templates', async () => {
  assert.equal(await runnel.renderTemplate('{{ a }} and {{ b|upper }}', { a: 1, b: 'x' }), '1 and X');
  await assert.rejects(runnel.renderTemplate('{% if %}'), RunnelError);
  const info = await runnel.inspectTemplate(CHATML);
  assert.ok(info.knows.includes('system') && !info.knows.includes('tools'));
  await withModel(async (model) => {
    const chat = { messages: CHAT, templateText: CHATML, noGenerationPrompt: true };
    assert.equal(await model.applyTemplate(chat), '<user>Who are you?\n');
    assert.equal(model.applyTemplateSync(chat), '<user>Who are you?\n');
    const tokens = await model.tokenizeChat(chat);
    assert.deepEqual(model.tokenizeChatSync(chat), tokens);
    const [asChat, asTokens] = await Promise.all([
      model.generate({ ...chat, maxTokens: 20 }),
      model.generate({ tokens, maxTokens: 20 }),
    ]);
    assert.equal(asChat.text, asTokens.text);
    await assert.rejects(model.applyTemplate({ messages: 'no json', templateText: CHATML }), { code: 'INVALID' });
    assert.ok(Array.isArray(model.templates()));
    assert.deepEqual(Object.keys(model.recommendedSampling()).filter((name) => !/^(temp|top|min|rep|pen|xtc|mir)/.test(name)), []);
    await assert.rejects(model.tokenizeInfill({ prefix: 'a', suffix: 'b' }), { code: 'UNSUPPORTED' });
    assert.throws(() => model.tokenizeInfillSync({ prefix: 'a', files: [{ nam: 'x' }] }), { code: 'INVALID' });
  });
});

test('grammars and tools', async () => {
  const schema = { type: 'object', properties: { n: { type: 'integer', minimum: 1, maximum: 9 } }, required: ['n'] };
  await withModel(async (model) => {
    const ask = (grammar) => model.generate({ prompt: PROMPT, maxTokens: 80, temperature: 1, seed: 5, grammar });
    const value = JSON.parse((await ask({ schema, closed: true })).text);
    assert.ok(value.n >= 1 && value.n <= 9 && Object.keys(value).length === 1);
    assert.match((await ask({ regex: '[ab]{3}' })).text, /^[ab]{3}$/);
    assert.match((await ask({ gbnf: 'root ::= "x" [0-9]' })).text, /^x[0-9]$/);
    assert.equal((await ask({ choices: ['only'] })).text, 'only');
    await model.checkGrammar({ grammar: { schema } });
    await assert.rejects(model.checkGrammar({ grammar: { regex: '(' } }), { code: 'FORMAT' });
    assert.throws(() => model.checkGrammarSync({ grammar: { schema: '{' } }), RunnelError);
    await model.checkSampling({ order: 'top_k,min_p' });
    await assert.rejects(model.checkSampling({ order: 'top_k,best' }), { code: 'INVALID' });
    assert.throws(() => model.checkSamplingSync({ topP: 2 }), RunnelError);
  });
});

test('half a character is U+FFFD in every text', async () => {
  const cut = 'I like 😀'.slice(0, 8);
  const whole = 'I like \ufffd';
  assert.equal(Buffer.from(cut).toString(), whole);
  const backslashes = 'a\\ud83d \\\\ud83d "\\'; // no escapes of JSON
  await withModel(async (model) => {
    assert.equal(await runnel.renderTemplate('{{ a }}{{ b }}{{ c }}', { a: cut, b: backslashes, c: '😀' }), `${whole}${backslashes}😀`);
    const messages = [{ role: 'user', content: cut }];
    assert.equal(await model.applyTemplate({ messages, templateText: CHATML }), `<user>${whole}\n`);
    const tools = [{ type: 'function', function: { name: 'a', description: cut } }];
    const templateText = '{{ tools[0].function.description }}{{ v }}';
    assert.equal(await model.applyTemplate({ messages, tools, variables: { v: cut }, templateText }), whole + whole);
    for (const grammar of [{ choices: [cut] }, { schema: { const: cut } }]) {
      const { text } = await model.generate({ prompt: cut, maxTokens: 40, grammar });
      assert.equal(grammar.schema ? JSON.parse(text) : text, whole);
    }
  }, { transport: 'thread' });
});

test('a function of the host draws', async () => {
  await withModel(async (model) => {
    const greedy = await model.generate({ prompt: PROMPT, maxTokens: 12, temperature: 1, topK: 20, seed: 1 });
    const best = ({ logits }) => logits.indexOf(Math.max(...logits));
    const likeliest = await model.generate({ prompt: PROMPT, maxTokens: 12 });
    const options = { prompt: PROMPT, maxTokens: 12, temperature: 1, topK: 20, seed: 1 };
    assert.equal((await model.generate({ ...options, choose: best })).text, likeliest.text);
    assert.equal((await model.generate({ ...options, choose: async (c) => best(c) })).text, likeliest.text);
    assert.equal((await model.generate({ ...options, choose: () => undefined })).text, greedy.text);
    assert.equal((await model.generate({ ...options, choose: (c) => c.draw() })).text, greedy.text);
    const seen = [];
    await model.generate({ ...options, choose: (c) => { seen.push(c.sequence.length); c.logits.fill(-Infinity); c.logits[0] = 0; } });
    assert.deepEqual(seen.map((n) => n - seen[0]), [...seen.keys()]);
    const thrown = new Error('mine');
    await assert.rejects(model.generate({ ...options, choose: () => { throw thrown; } }), thrown);
    await assert.rejects(model.generate({ ...options, choose: async () => { throw thrown; } }), thrown);
    await assert.rejects(model.generate({ ...options, choose: async () => -5 }), { code: 'INVALID' });
    await assert.rejects(model.generate({ ...options, choose: () => 1e6 }), { code: 'INVALID' });
    assert.throws(() => model.stream({ ...options, choose: 3 }), { code: 'INVALID' });
  });
});

test('metrics, streams and the machine', async () => {
  await withModel(async (model, engine) => {
    await model.generate({ prompt: PROMPT, maxTokens: 7, ignoreEos: 2, label: 'seven' });
    const metrics = engine.metrics();
    assert.equal(metrics.tokens, 7);
    assert.equal(metrics.requests, 1);
    assert.equal(metrics.requestTokens.count, 1);
    assert.equal(metrics.requestTokens.sum, 7);
    assert.equal(metrics.requestTokens.counts.length, metrics.requestTokens.edges.length + 1);
    assert.equal(engine.stats().tokens, 7);
    assert.match(engine.prometheus(), /^# HELP /m);
    assert.deepEqual(engine.experts(), []);
    const stream = model.stream({ prompt: PROMPT, maxTokens: 2000, ignoreEos: 2, contextKeep: 0, label: 'long', highWater: 2 });
    await stream.next();
    const [live] = engine.streams();
    assert.equal(live.label, 'long');
    assert.equal(live.stream, stream.id);
    assert.match(live.phase, /^(PREFILL|DECODE)$/);
    stream.cancel();
    await stream.result;
    const machine = await engine.measure();
    assert.ok(machine.readBytesPerS > 1e6 && machine.computeThreads === 1);
  });
});

test('lines of the log and spans of the trace', async () => {
  const lines = [];
  const spans = [];
  const engine = new Engine({ logLevel: 'debug', onLog: (...line) => lines.push(line), onTrace: (span) => spans.push(span) });
  const model = await engine.loadModel(modelPath);
  await model.generate({ prompt: PROMPT, maxTokens: 3, label: 'traced' });
  await engine.close();
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(lines.some(([level, line]) => level === 'debug' && line.includes('traced')), JSON.stringify(lines));
  assert.ok(spans.some((span) => span.kind === 'request' && span.label === 'traced' && span.endNs >= span.beginNs));
  assert.ok(spans.some((span) => span.kind === 'step' && span.rows > 0));
  assert.throws(() => new Engine({ onTrace: 5 }), { code: 'INVALID' });
});

test('a file is looked into', async () => {
  const file = await runnel.ModelFile.open(modelPath);
  const { info } = file;
  assert.equal(info.fileBytes, fs.statSync(modelPath).size);
  const all = Array.from({ length: info.nMetadata }, (_, i) => file.metadata(i));
  assert.equal(all.find((entry) => entry.key === 'general.architecture').value, 'llama');
  assert.ok(Array.isArray(all.find((entry) => entry.key === 'tokenizer.ggml.tokens').value));
  const tensors = Array.from({ length: info.nTensors }, (_, i) => file.tensor(i));
  assert.equal(tensors.reduce((sum, tensor) => sum + tensor.bytes, 0), info.weightBytes);
  assert.throws(() => file.tensor(info.nTensors), { code: 'NOT_FOUND' });
  assert.ok(file.kvBytesPerToken('q8') < file.kvBytesPerToken('f16'));
  assert.match(file.plan(), /\n/);
  const templates = file.templates();
  assert.throws(() => file.setArchitectures([]), { code: 'STATE', message: /templates\(\) is reading/ });
  assert.deepEqual(await elsewhere(templates), file.templatesSync());
  assert.equal(typeof file.recommendedSampling(), 'object');
  file.setArchitectures([{ name: 'mine', like: 'llama' }]);
  assert.throws(() => file.setArchitectures([{ name: 'llama' }]), { code: 'INVALID' });
  assert.throws(() => file.setArchitectures([{ nam: 'x' }]), { code: 'INVALID' });
  const [first] = await Promise.allSettled([file.templates(), file.close()]); // a job that runs keeps the file
  assert.ok(first.status === 'fulfilled' || first.reason.code === 'CLOSED');
  assert.throws(() => file.info, { code: 'CLOSED' });
  await assert.rejects(file.templates(), { code: 'CLOSED' });
  await assert.rejects(runnel.ModelFile.open('README.md'), { code: 'FORMAT' });
  assert.ok(runnel.architectures().some(({ name, features }) => name === 'llama' && features.length > 0));
  assert.throws(() => new Engine({ architectures: [{ name: 'llama' }] }), { code: 'INVALID' });
  await new Engine({ architectures: [{ name: 'mine', like: 'qwen2' }] }).close();
});

test('sessions in files, with their note', async () => {
  await withModel(async (model) => {
    const at = path.join(folder, 'session');
    const session = model.session();
    await session.generate({ prompt: PROMPT, maxTokens: 10 });
    const { usage } = await session.export(at, { note: 'of mine' });
    assert.ok(usage.promptTokens > 10);
    assert.equal((await runnel.readSessionNote(at)).toString(), 'of mine');
    const again = await model.importSession(at);
    const options = { prompt: ' and', maxTokens: 10 };
    assert.equal((await again.generate(options)).text, (await session.generate(options)).text);
    await assert.rejects(model.importSession('README.md'), { code: 'FORMAT' });
    await assert.rejects(session.export(path.join(folder, 'no', 'where')), { code: 'IO' });
    await assert.rejects(runnel.readSessionNote(path.join(folder, 'none')), { code: 'IO' });
    const bytes = Buffer.concat([Buffer.from(path.join(folder, 'no text ')), Buffer.from([0xff, 0xfe])]);
    await again.export(bytes, { note: 'of bytes' });
    assert.ok(fs.existsSync(bytes));
    assert.equal((await runnel.readSessionNote(new Uint8Array(bytes))).toString(), 'of bytes');
    await again.close();
    await again.close();
    const { sessions } = model.engine.stats();
    for (let i = 0; i < 100; i++) { // whether the end has come by then, or not
      const controller = new AbortController();
      const { signal } = controller;
      const ends = i % 4 ? model.importSession(at, { signal }) : session.export(`${at}2`, { signal });
      controller.abort();
      await assert.rejects(ends, { name: 'AbortError' });
    }
    while (model.engine.stats().sessions !== sessions) await new Promise(setImmediate);
    assert.throws(() => again.fork(), { code: 'CLOSED', message: /session/ });
    await assert.rejects(again.export(at), { code: 'CLOSED', message: /session/ });
    await assert.rejects(again.generate(options), { code: 'CLOSED', message: /session/ });
  });
});

test('a cache folder is listed, inspected, verified and purged', async () => {
  const cacheDir = path.join(folder, 'cache');
  await withModel(async (model) => {
    await model.generate({ prompt: 'long prompt '.repeat(40), maxTokens: 1, pinPrefix: 1 });
  }, { transport: 'thread' }, { cacheDir });
  const listed = await runnel.cache.ls(cacheDir);
  assert.equal(listed.entries.length, 1);
  assert.ok(listed.records > 0 && listed.damaged === 0);
  const [{ fingerprint }] = listed.entries;
  const records = await runnel.cache.inspect(cacheDir, fingerprint);
  assert.equal(records.length, listed.records);
  assert.ok(records.every((record) => record.tokens instanceof Int32Array && record.tokens.length > 0));
  assert.deepEqual((await runnel.cache.verify(cacheDir)).damages, []);
  const [segment] = fs.readdirSync(cacheDir, { recursive: true }).map((name) => path.join(cacheDir, name))
    .filter((name) => fs.statSync(name).isFile()).sort((a, b) => fs.statSync(b).size - fs.statSync(a).size);
  const bytes = fs.readFileSync(segment);
  bytes[Math.floor(bytes.length / 2)] ^= 0xff;
  fs.writeFileSync(segment, bytes);
  const { damages } = await runnel.cache.verify(cacheDir, fingerprint);
  assert.ok(damages.length > 0 && damages[0].what.length > 0);
  assert.ok((await runnel.cache.purge(cacheDir, {})).records >= 0);
  assert.equal((await runnel.cache.ls(cacheDir)).records, 0);
  await assert.rejects(runnel.cache.inspect(cacheDir, 'f'.repeat(32)), { code: 'NOT_FOUND' });
  await assert.rejects(runnel.cache.ls(path.join(folder, 'none')), { code: 'IO' });
  await assert.rejects(runnel.cache.purge(cacheDir, { what: 1 }), { code: 'INVALID' });
});

test('a head is trained, and drafts; one is aborted', async () => {
  const engine = new Engine({ computeThreads: 1 });
  const corpus = 'Once upon a time there was a lamb. '.repeat(200);
  const head = path.join(folder, 'head.gguf');
  const steps = [];
  for await (const progress of engine.trainEagle(modelPath, corpus, head, { steps: 2, textTokens: 16, texts: 1, unroll: 1 }))
    steps.push(progress);
  assert.equal(steps.at(-1).state, 'done');
  assert.ok(fs.existsSync(head));
  const model = await engine.loadModel(modelPath, { draftPath: head, draftMeasureMs: 1 });
  const { usage } = await model.generate({ prompt: PROMPT, maxTokens: 20, draft: 'model', ignoreEos: 2 });
  assert.ok(usage.draftedTokens > 0 || usage.restedPasses > 0);
  const controller = new AbortController();
  await assert.rejects(async () => {
    const options = { steps: 100000, textTokens: 16, texts: 1, signal: controller.signal };
    for await (const progress of engine.trainEagle(modelPath, corpus, `${head}2`, options)) controller.abort();
  }, { name: 'AbortError' });
  const long = { steps: 100000, textTokens: 64, texts: 64 };
  for await (const { state } of engine.trainEagle(modelPath, corpus, `${head}3`, long)) {
    assert.equal(state, 'running');
    break; // it is waited for off the loop
  }
  assert.ok(!fs.existsSync(`${head}3`));
  for (let i = 0; i < 17; i++) // one that is left is freed: the engine has 16 at most
    for await (const progress of engine.trainEagle(modelPath, corpus, `${head}3`, long)) break;
  await assert.rejects(engine.trainEagle('/nowhere', corpus, head).next(), { code: 'IO' });
  await engine.close();
});

const ranker = process.env.RUNNEL_MAKE_RANKER;
test('scores are the program\'s', async () => {
  const at = path.join(folder, 'ranker.gguf');
  execFileSync(ranker, [modelPath, at, 'template']);
  const query = 'Who lived in the woods?';
  const text = 'Once upon a time there was a little fox who lived in the woods.';
  const expected = program('score', at, '--query', query, text, '-q').trim().split(/\s+/).map(Number);
  const engine = new Engine();
  const model = await engine.loadModel(at);
  const { scores } = await model.score({ query, text });
  assert.equal(scores.length, expected.length);
  expected.forEach((value, i) => assert.ok(Math.abs(value - scores[i]) < 1e-6));
  assert.equal(model.scores.nScores, expected.length);
  assert.ok(Array.isArray(model.scores.labels));
  await assert.rejects(model.score({ query, text, form: 'odd' }), { code: 'INVALID' });
  const plain = await engine.loadModel(modelPath);
  await assert.rejects(plain.score({ text }), { code: 'UNSUPPORTED' });
  assert.throws(() => plain.scores, { code: 'UNSUPPORTED' });
  await engine.close();
});

test('names and constants', () => {
  assert.equal(runnel.nameOf('status', constants.BUSY), 'BUSY');
  assert.match(runnel.nameOf('statusText', constants.BUSY), /limit/);
  assert.equal(runnel.nameOf('event', constants.EVENT_TOOL_CALL), 'TOOL_CALL');
  assert.equal(runnel.nameOf('phase', constants.PHASE_DECODE), 'DECODE');
  assert.equal(runnel.nameOf('rest', constants.REST_SLOW), 'SLOW');
  assert.throws(() => runnel.nameOf('cheese', 1), { code: 'NOT_FOUND' });
  assert.equal(runnel.version, program('--version').match(/\d+\.\d+\.\d+/)[0]);
});
