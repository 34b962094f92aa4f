// Every option that the addon takes is in the types and the other way round.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { test } from 'node:test';
import { folder } from './common.mjs';

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
