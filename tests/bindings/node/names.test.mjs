// Every option that the addon takes is in the types and the other way round.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { test } from 'node:test';
import { folder, runnel } from './common.mjs';

const native = createRequire(import.meta.url)(path.join(folder, 'runnel.node'));
const types = fs.readFileSync(path.join(folder, 'index.d.ts'), 'utf8');

/** The members of an interface of index.d.ts. */
function members(name) {
  const body = types.match(new RegExp(`export interface ${name}(?: extends [^{]*)? \\{\\n(.*?)\\n\\}`, 's'));
  assert.ok(body, `no interface ${name}`);
  return [...body[1].matchAll(/^  (?:readonly )?(\w+)\??:/gm)].map((match) => match[1]);
}

const own = {
  EngineOptions: ['transport', 'holdUs', 'onLog', 'onTrace'],
  ChatOptions: ['messages'],
  EagleOptions: ['signal'],
  Infill: [],
};
const pairs = [
  ['EngineOptions', 'runnel_engine_options'],
  ['ModelOptions', 'runnel_model_options'],
  ['Adapter', 'runnel_adapter'],
  ['RequestOptions', 'runnel_request'],
  ['ChatOptions', 'runnel_chat'],
  ['SamplingOptions', 'runnel_sampling', 'runnel_samplers'],
  ['EmbedOptions', 'runnel_embed_request'],
  ['ScoreOptions', 'runnel_score_request'],
  ['EagleOptions', 'runnel_eagle_options'],
  ['Infill', 'runnel_infill'],
  ['ArchitectureRow', 'runnel_architecture_row'],
  ['ModelInfo', 'runnel_model_info'],
  ['Usage', 'runnel_usage'],
  ['Timings', 'runnel_timings'],
  ['Machine', 'runnel_machine'],
  ['DeviceInfo', 'runnel_device_info'],
  ['StreamInfo', 'runnel_stream_info'],
  ['CacheTotals', 'runnel_cache_totals'],
];
for (const [name, ...structs] of pairs)
  test(`${name} has what ${structs.join(' and ')} has`, () => {
    const expected = structs.flatMap((struct) => native.fieldNames(struct)).concat(own[name] ?? []);
    assert.deepEqual(members(name).sort(), expected.sort());
  });

test('a struct without a table is refused', () => {
  assert.throws(() => native.fieldNames('runnel_nothing'), { code: 'NOT_FOUND' });
});

// ---- docs/BINDINGS.md: its names in Node are those of the package.

/** [C, Node] of the rows of a section that have a name in Node, which stands in backticks. */
function rows(section) {
  const page = fs.readFileSync('docs/BINDINGS.md', 'utf8');
  const text = page.split(`## ${section}\n`)[1].split('\n## ')[0];
  return [...text.matchAll(/^\| `([\w.]+)` \| `([^`|]+)` \|/gm)].map(([, c, node]) => [c, node]);
}

// What this package reads itself, before the addon's tables.
const read = {
  runnel_engine_options: { delivery: 'transport', on_log: 'onLog', on_trace: 'onTrace' },
  runnel_model_options: { on_load: 'onProgress' },
  runnel_samplers: { choose: 'choose' },
  runnel_chat: { messages: 'messages' },
};

test('the page names options that there are, and all of them', () => {
  const named = new Map();
  for (const [c, name] of rows('Options').filter(([, name]) => /^\w+$/.test(name))) {
    const [struct, member] = c.split('.');
    if (!named.has(struct)) named.set(struct, []);
    if (read[struct]?.[member] === undefined) named.get(struct).push(name);
    else assert.equal(name, read[struct][member]);
  }
  for (const [struct, names] of named) {
    const given = native.fieldNames(struct).filter((name) => !['delivery', 'path'].includes(name));
    assert.deepEqual(names.sort(), given.sort(), struct);
  }
  assert.ok(named.size > 12);
});

test('the page names constants that there are, and all of them', () => {
  const names = rows('Constants').map(([, name]) => name.replace('constants.', ''));
  assert.deepEqual(names.sort(), Object.keys(runnel.constants).sort());
  assert.equal([runnel.constants.VERSION_MAJOR, runnel.constants.VERSION_MINOR, runnel.constants.VERSION_PATCH].join('.'),
    runnel.version);
});

test('the page names functions that there are', () => {
  /** Of the package, of one of its classes, or of an instance. */
  const has = (name) => {
    const [first, second] = name.split('.');
    if (second === undefined) return first in runnel;
    const one = runnel[first];
    return one !== undefined && (second in one || (one.prototype !== undefined && second in one.prototype));
  };
  const kinds = new Set();
  for (const [c, cell] of rows('Functions'))
    for (const name of cell.split(', ')) {
      const [, kind] = name.match(/^nameOf\('(\w+)'\)$/) ?? [];
      const [, call, option] = name.match(/^(?:new )?(\w+)\(\{(\w+).*\}\)$/) ?? [];
      if (kind !== undefined) assert.equal(typeof runnel.nameOf(kind, 0), 'string', c), kinds.add(kind);
      else if (call !== undefined) assert.match(types, new RegExp(`^  ${option}\\?:`, 'm'), c);
      else if (name === 'candidates.draw') assert.match(types, /^  draw\(\): number;/m);
      else if (name === 'error.code') assert.ok('code' in new runnel.RunnelError('BUSY', -3, '', 0));
      else assert.ok(has(name.replace('new ', '')), `${c}: ${name}`);
    }
  assert.equal(kinds.size, 6);
});
