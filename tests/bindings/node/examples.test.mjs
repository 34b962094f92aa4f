// The examples, as their readers run them.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { modelPath, program, withModel } from './common.mjs';

const examples = process.env.RUNNEL_EXAMPLES;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'runnel-examples-'));
after(() => fs.rmSync(folder, { recursive: true }));
const TEMPLATE =
  '{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n' +
  '{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{"name": "{{ c.function.name }}", ' +
  '"arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}' +
  '<|im_start|>assistant\n';

test('sse_server: events, errors, clients that go, and its end', async () => {
  const server = spawn(process.execPath, [path.join(examples, 'sse_server.mjs'), modelPath, '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  after(() => server.kill('SIGKILL'));
  const [line] = await once(server.stdout.setEncoding('utf8'), 'data');
  const url = `http://localhost:${line.match(/(\d+)/)[1]}/stream`;
  const post = (body, signal) => fetch(url, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body), signal });
  const response = await post({ prompt: 'Once upon a time', maxTokens: 30 });
  assert.equal(response.headers.get('content-type'), 'text/event-stream');
  const events = (await response.text()).trim().split('\n\n');
  const data = events.map((event) => JSON.parse(event.match(/^data: (.*)$/m)[1]));
  assert.match(events.at(-1), /^event: done/);
  assert.equal(data.at(-1).usage.completionTokens, 30);
  const text = data.slice(0, -1).map((event) => event.text).join('');
  assert.equal(text, program('run', modelPath, 'Once upon a time', '-n', '30').replace(/\n$/, ''));
  assert.equal((await post('{')).status, 400);
  assert.equal((await post({})).status, 400);
  assert.equal((await post({ prompt: 'x '.repeat(5000) })).status, 400); // longer than the context
  assert.equal((await fetch(url)).status, 404);
  for (let i = 0; i < 5; i++) {
    const controller = new AbortController();
    const long = await post({ prompt: 'Once', maxTokens: 2000 }, controller.signal);
    await long.body.getReader().read();
    controller.abort();
  }
  server.kill('SIGTERM'); // drains: the abandoned streams must have been cancelled, or this takes its time
  assert.deepEqual(await once(server, 'exit'), [0, null]);
});

test('csv_batch: answers beside the prompts, in order', async () => {
  const input = path.join(folder, 'in.csv');
  const output = path.join(folder, 'out.csv');
  fs.writeFileSync(input, 'Once upon a time,1\n"A ""fox"", and",2\nThe sea,3\n');
  const run = spawnSync(process.execPath, [path.join(examples, 'csv_batch.mjs'), modelPath, input, output, '12'], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  assert.match(run.stderr, /\[#{30}\] 3\/3\n$/);
  const unquote = (field) => (field.startsWith('"') ? field.slice(1, -1).replaceAll('""', '"') : field);
  const rows = [...fs.readFileSync(output, 'utf8').matchAll(/("(?:[^"]|"")*"|[^,\n]*),(\d),("(?:[^"]|"")*"|[^,\n]*)\n/g)];
  assert.deepEqual(rows.map((row) => row[2]), ['1', '2', '3']);
  await withModel(async (model) => {
    for (const [, prompt, , answer] of rows)
      assert.equal(unquote(answer), (await model.generate({ prompt: unquote(prompt), maxTokens: 12 })).text);
  }, { transport: 'thread' });
});

test('ai_provider: text, JSON and calls by the interface of the AI SDK', async () => {
  const { languageModel } = await import(path.join(examples, 'ai_provider.mjs'));
  const prompt = [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }];
  const call = { type: 'tool-call', toolCallId: 'call_0', toolName: 'look', input: '{"where": "up"}' };
  const output = { type: 'tool-result', toolCallId: 'call_0', toolName: 'look', output: { type: 'text', value: 'Nothing.' } };
  const told = [...prompt, { role: 'assistant', content: [call] }, { role: 'tool', content: [output] }];
  const schema = { type: 'object', properties: { where: { enum: ['up', 'down'] } }, required: ['where'], additionalProperties: false };
  const tools = [{ type: 'function', name: 'look', description: '', inputSchema: schema }];
  await withModel(async (model) => {
    const provider = languageModel(model, 'tiny');
    const parts = [];
    for await (const part of (await provider.doStream({ prompt, maxOutputTokens: 8 })).stream) parts.push(part);
    const whole = await provider.doGenerate({ prompt, maxOutputTokens: 8 });
    const [lines, answers] = ['lines.jsonl', 'answers.jsonl'].map((name) => path.join(folder, name));
    const body = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8, temperature: 0 };
    fs.writeFileSync(lines, JSON.stringify({ custom_id: '1', method: 'POST', url: '/v1/chat/completions', body }));
    program('batch', modelPath, lines, answers, '--quiet', '--fail-on', 'any');
    const expected = JSON.parse(fs.readFileSync(answers, 'utf8')).response.body.choices[0].message.content;
    assert.deepEqual(whole.content, [{ type: 'text', text: expected }]);
    assert.deepEqual([whole.finishReason, whole.usage.outputTokens, whole.warnings], ['length', 8, []]);
    assert.deepEqual([...new Set(parts.map((part) => part.type))], ['stream-start', 'text-start', 'text-delta', 'text-end', 'finish']);
    assert.equal(parts.filter((part) => part.delta).map((part) => part.delta).join(''), expected);
    assert.deepEqual(parts.at(-1).usage, { ...whole.usage, cachedInputTokens: 0 });
    assert.equal(whole.usage.cachedInputTokens, whole.usage.inputTokens - 1);

    const json = await provider.doGenerate({ prompt, maxOutputTokens: 100, responseFormat: { type: 'json', schema } });
    assert.ok(['up', 'down'].includes(JSON.parse(json.content[0].text).where));
    const providerOptions = { runnel: { templateText: TEMPLATE, singleCall: true } };
    const asked = { prompt: told, tools, toolChoice: { type: 'required' }, maxOutputTokens: 200, providerOptions };
    const called = await provider.doGenerate(asked);
    const { toolName, input } = called.content.find((part) => part.type === 'tool-call');
    assert.deepEqual([toolName, called.finishReason], ['look', 'tool-calls']);
    assert.ok(['up', 'down'].includes(JSON.parse(input).where));
    await assert.rejects(provider.doGenerate({ prompt, abortSignal: AbortSignal.abort() }), { name: 'AbortError' });

    const endless = { prompt, providerOptions: { runnel: { ignoreEos: true, contextKeep: 8 } } };
    for (const read of [0, 1, 3]) { // parts until it is left: the loop over the stream has begun with the second
      const reader = (await provider.doStream(endless)).stream.getReader();
      for (let i = 0; i < read; i++) await reader.read();
      await reader.cancel();
    }
    await model.engine.drain(); // what runs on has no end
    assert.deepEqual(model.engine.streams(), []);
  }, { transport: 'thread' });
});
