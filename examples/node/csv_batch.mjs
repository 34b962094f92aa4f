// A batch over a CSV: the prompts of its first column are answered, a few at once, and written beside it in order. A bar
// shows how far it is.
//
//     node csv_batch.mjs MODEL IN.csv OUT.csv [MAX_TOKENS]
import fs from 'node:fs';
import { Engine } from 'runnel';

const [path, input, output, maxTokens = '40'] = process.argv.slice(2);
const AT_ONCE = 16;

/** Rows of fields: quoted ones may have commas, line breaks and doubled quotes. */
function parse(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted !== undefined ? quoted.replaceAll('""', '"') : plain);
    if (end === '') break;
    if (end !== ',') rows.push([]);
  }
  return rows.filter((row) => row.length > 1 || row[0] !== '');
}

function quote(field) {
  return /[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field;
}

function bar(done, all) {
  const filled = Math.round((30 * done) / all);
  process.stderr.write(`\r[${'#'.repeat(filled)}${' '.repeat(30 - filled)}] ${done}/${all}${done === all ? '\n' : ''}`);
}

const engine = await Engine.open();
const model = await engine.loadModel(path);
const rows = parse(fs.readFileSync(input, 'utf8'));
const answers = new Array(rows.length);
let next = 0;
let done = 0;

async function work() {
  while (next < rows.length) {
    const i = next++;
    try {
      answers[i] = (await model.generate({ prompt: rows[i][0], maxTokens: Number(maxTokens), priority: -1 })).text;
    } catch (error) {
      answers[i] = `error ${error.code}: ${error.message}`;
    }
    bar(++done, rows.length);
  }
}

await Promise.all(Array.from({ length: Math.min(AT_ONCE, rows.length) }, work));
fs.writeFileSync(output, rows.map((row, i) => [...row, answers[i]].map(quote).join(',') + '\n').join(''));
await engine.close();
