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
