// LoRA adapters: loaded with a model, named by requests, at once with those that name none.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { constants, folder as packageFolder, modelPath, program, withModel } from './common.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'runnel-adapters-'));
after(() => fs.rmSync(folder, { recursive: true }));
const { LD_PRELOAD, ...environment } = process.env; // of a sanitizer, which is for the addon
const PROMPT = 'Once upon a time';
const CHAT = { messages: [{ role: 'user', content: 'Hello' }], templateText: '{{ messages[0].content }}<assistant>' };

function make(name, seed, model = modelPath) {
  const file = path.join(folder, name);
  const options = ['tests/oracle/make_adapter.py', model, file, '--seed', String(seed)];
  execFileSync(process.env.RUNNEL_PYTHON, options, { env: environment });
  return file;
}

const sql = make('sql.gguf', 1);
const law = make('law.gguf', 2);
const adapters = { sql, law: { path: law } };
const NAMES = [null, 'sql', 'law'];

function assertDiffer(values) {
  assert.equal(new Set(values.map((value) => JSON.stringify(value))).size, values.length);
}

test('answers of all at once: each as alone, and those without an adapter as of a model that has none', async () => {
  await withModel(async (model, engine) => {
    const plain = await engine.loadModel(modelPath);
    const say = async (adapter) => (await model.generate({ prompt: PROMPT, maxTokens: 30, adapter })).tokens;
    const together = await Promise.all([...NAMES, 'sql', undefined].map(say));
    assertDiffer(together.slice(0, 3));
    assert.deepEqual(together[0], (await plain.generate({ prompt: PROMPT, maxTokens: 30 })).tokens);
    assert.deepEqual([together[3], together[4]], [together[1], together[0]]);
    for (const [i, name] of NAMES.entries()) assert.deepEqual(await say(name), together[i]);
    const printed = program('run', modelPath, PROMPT, '-n', '30', '--lora', `sql=${sql}`, '--adapter', 'sql');
    const { text } = await model.generate({ prompt: PROMPT, maxTokens: 30, adapter: 'sql' });
    assert.equal(printed.replace(/\n$/, ''), text);
  }, {}, { adapters });
});

test('streams, groups, chats, sessions and embeddings', async () => {
  await withModel(async (model, engine) => {
    const plain = await engine.loadModel(modelPath);
    const whole = await Promise.all(NAMES.map((adapter) => model.generate({ prompt: PROMPT, maxTokens: 20, adapter })));
    const texts = whole.map(({ text }) => text);
    const streams = NAMES.map((adapter) => model.stream({ prompt: PROMPT, maxTokens: 20, adapter }));
    for (const [i, stream] of streams.entries()) {
      let text = '';
      for await (const piece of stream) text += piece.text;
      assert.equal(text, texts[i]);
    }
    const group = engine.group();
    const members = NAMES.map((adapter) => model.stream({ prompt: PROMPT, maxTokens: 20, adapter, group }));
    const said = members.map(() => '');
    group.end();
    for await (const pieces of group)
      for (let i = 0; i < pieces.length; i++) said[members.indexOf(pieces.stream(i))] += pieces.text(i);
    assert.deepEqual(said, texts);
    const chats = await Promise.all(NAMES.map((adapter) => model.generate({ ...CHAT, maxTokens: 20, adapter })));
    assertDiffer(chats.map(({ text }) => text));
    assert.equal(chats[0].text, (await plain.generate({ ...CHAT, maxTokens: 20 })).text);
    const session = model.session(); // its second turn has another adapter, and reads the first again
    const first = await session.generate({ prompt: PROMPT, maxTokens: 20, adapter: 'sql' });
    const second = await session.generate({ prompt: ' and', maxTokens: 20, adapter: 'law' });
    assert.equal(first.text, texts[1]);
    const again = { prompt: `${PROMPT}${first.text} and`, maxTokens: 20, adapter: 'law' };
    assert.equal(second.text, (await model.generate(again)).text);
    const embed = async (adapter) => [...(await model.embed({ text: PROMPT, adapter })).embedding];
    const vectors = await Promise.all(NAMES.map(embed));
    assertDiffer(vectors);
    assert.deepEqual(vectors[0], [...(await plain.embed(PROMPT)).embedding]);
  }, {}, { adapters });
});

test('scores', async () => {
  const ranker = path.join(folder, 'ranker.gguf');
  execFileSync(process.env.RUNNEL_MAKE_RANKER, [modelPath, ranker, 'template'], { env: environment });
  await withModel(async (_, engine) => {
    const model = await engine.loadModel(ranker, { adapters: { sql: make('ranker-sql.gguf', 1, ranker) } });
    const plain = await engine.loadModel(ranker);
    const asked = { query: 'Who lived in the woods?', text: 'A little fox.' };
    const score = async (one, adapter) => [...(await one.score({ ...asked, adapter })).scores];
    assert.deepEqual(await score(model, null), await score(plain));
    assert.notDeepEqual(await score(model, 'sql'), await score(plain));
  });
});

test('the list', async () => {
  await withModel(async (model, engine) => {
    assert.deepEqual(model.adapters, []);
    for (const none of [{}, null, undefined, new Map()])
      assert.deepEqual((await engine.loadModel(modelPath, { adapters: none })).adapters, []);
    const map = new Map([
      ['law', { path: pathToFileURL(law), scale: 0.5 }],
      ['sql', Buffer.from(sql)],
      ['Ä', { path: sql, scale: -2 }],
    ]);
    const listed = [
      { name: 'law', path: law, scale: 0.5 },
      { name: 'sql', path: sql, scale: 1 },
      { name: 'Ä', path: sql, scale: -2 },
    ];
    for (const given of [map, Object.fromEntries(map)]) {
      const other = await engine.loadModel(modelPath, { adapters: given });
      assert.deepEqual(other.adapters, listed);
      const { embedding } = await other.embed({ text: PROMPT, adapter: 'Ä' });
      assert.notDeepEqual(embedding, (await other.embed({ text: PROMPT, adapter: 'sql' })).embedding);
      await other.close();
      assert.throws(() => other.adapters, { code: 'CLOSED' });
    }
    assert.deepEqual([constants.MAX_ADAPTERS, constants.ADAPTER_BYTES], [64, 64]);
  });
});

test('names that the model does not have', async () => {
  await withModel(async (model, engine) => {
    for (const one of [model, await engine.loadModel(modelPath)]) {
      for (const adapter of ['sqll', '']) {
        const refusal = { code: 'NOT_FOUND', message: /adapter/ };
        assert.throws(() => one.stream({ prompt: PROMPT, adapter }), refusal);
        await assert.rejects(one.generate({ prompt: PROMPT, adapter }), refusal);
        await assert.rejects(one.embed({ text: PROMPT, adapter }), refusal);
      }
      for (const adapter of [5, ['sql'], {}, true, 's\0l']) {
        const refusal = { code: 'INVALID', message: /^adapter must be / };
        assert.throws(() => one.stream({ prompt: PROMPT, adapter }), refusal);
        await assert.rejects(one.embed({ text: PROMPT, adapter }), refusal);
        await assert.rejects(one.score({ text: PROMPT, adapter }), refusal);
      }
    }
    const option = { code: 'INVALID', message: 'there is no option adapters' };
    assert.throws(() => model.stream({ prompt: PROMPT, adapters }), option);
    assert.equal(engine.streams().length, 0);
  }, {}, { adapters });
});

test('adapters that are none', async () => {
  await withModel(async (model, engine) => {
    const load = (given) => engine.loadModel(modelPath, { adapters: given });
    const many = Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`a${i}`, sql]));
    const wrong = ['sql.gguf', ['sql.gguf'], 5, true, new Map([[5, sql]]), many];
    for (const name of ['', 'a'.repeat(64)]) wrong.push({ [name]: sql });
    for (const one of [5, null, undefined, [], {}, { path: 5 }, { path: [sql] }]) wrong.push({ sql: one });
    for (const scale of ['1', NaN, 1e300, 0, -0, 1e-60]) wrong.push({ sql: { path: sql, scale } });
    for (const one of wrong)
      await assert.rejects(load(one), { code: 'INVALID', message: /adapter/ }, JSON.stringify(one));
    await assert.rejects(load({ sql: { path: sql, scael: 2 } }), { code: 'INVALID', message: /scael/ });
    await assert.rejects(load({ sql: 'a\0b' }), { code: 'INVALID', message: /path must be without NUL/ });
    const missing = path.join(folder, 'nothing.gguf');
    await assert.rejects(load({ sql, law: missing }), { code: 'IO', message: /nothing\.gguf/ });
    await assert.rejects(load({ sql: modelPath }), { name: 'RunnelError' }); // a model is no adapter
    assert.equal((await model.generate({ prompt: PROMPT, maxTokens: 3 })).usage.completionTokens, 3);
  });
});

test('the example of the page', () => {
  const page = fs.readFileSync('bindings/node/README.md', 'utf8');
  const [, code] = page.split('## Adapters\n')[1].match(/```js\n(.*?)```/s);
  const example = path.join(folder, 'example.mjs');
  fs.writeFileSync(example, code);
  fs.mkdirSync(path.join(folder, 'node_modules'));
  fs.symlinkSync(packageFolder, path.join(folder, 'node_modules/runnel'));
  fs.symlinkSync(modelPath, path.join(folder, 'model.gguf'));
  const printed = execFileSync(process.execPath, [example], { cwd: folder, encoding: 'utf8' });
  const [, ...texts] = printed.match(/^\[ \[ 'sql', 1 \], \[ 'law', 0\.5 \] \]\nnull (.*)\nsql (.*)\nlaw (.*)\n$/s);
  assertDiffer(texts);
});
