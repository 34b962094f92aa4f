'use strict';
// What a caller may write in a shorter form than the library's structs have it. The addon reads the rest by the tables
// of members, and refuses what it does not know.

const { fileURLToPath } = require('node:url');
const { types } = require('node:util');

const { invalid } = require('./errors.js');
const { constants } = require('./runnel.node');

/** 'q8' of the constants KV_..., or the number itself. */
function named(prefix, value, option) {
  if (typeof value !== 'string') return value;
  const number = constants[prefix + value.replace(/([a-z])([A-Z])/g, '$1_$2').toUpperCase()];
  if (number === undefined) throw invalid(`there is no ${option} '${value}'`);
  return number;
}

/** Flags: a name, several, or the number itself. */
function flags(prefix, value, option) {
  if (!Array.isArray(value)) return named(prefix, value, option);
  return value.reduce((all, one) => all | named(prefix, one, option), 0);
}

/** A string or bytes. */
function isText(value) {
  return typeof value === 'string' || types.isUint8Array(value);
}

/** JSON of a value; a string or bytes are JSON already. Half a surrogate pair becomes U+FFFD, as in every other text:
 * JSON.stringify writes an escape for it, and for no whole pair. */
function json(value) {
  if (value === undefined || value === null || isText(value)) return value;
  for (const [name, is] of [['Map', types.isMap], ['Set', types.isSet], ['RegExp', types.isRegExp]])
    if (is(value)) throw invalid(`a ${name} is no JSON`);
  const text = JSON.stringify(value);
  if (text === undefined) throw invalid(`a ${typeof value} is no JSON`);
  return text.replace(/\\(\\|ud[89a-f][0-9a-f]{2})/g, (escape) => (escape === '\\\\' ? escape : '\ufffd'));
}

function isPath(value) {
  return typeof value === 'string' || value instanceof URL || value instanceof Uint8Array;
}

/** Of a file: a string, a file URL or its bytes. */
function path(value, option = 'path') {
  if (!isPath(value)) throw invalid(`${option} must be a string, a file URL or a Buffer`);
  if (value instanceof URL) return fileURLToPath(value);
  return typeof value === 'string' ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
}

const GRAMMARS = {
  schema: 'JSON_SCHEMA',
  regex: 'REGEX',
  gbnf: 'GBNF',
  ebnf: 'EBNF',
  choices: 'CHOICES',
  json: 'JSON',
  jsonObject: 'JSON_OBJECT',
};

/** The text of the kind `name`, or nothing where it has none. */
function grammarText(name, value) {
  if (name === 'schema') return { text: json(value) };
  if (name === 'choices') return { choices: value };
  if (name === 'json' || name === 'jsonObject') {
    if (value !== true) throw invalid(`grammar.${name} must be true`);
    return undefined;
  }
  if (types.isRegExp(value)) throw invalid(`grammar.${name} must be a string for the whole answer, no RegExp`);
  if (!isText(value)) throw invalid(`grammar.${name} must be a string or a Buffer`);
  return { text: value };
}

/** {schema: {...}}, {regex: '...'}, {choices: [...]}, {json: true}, {jsonObject: true} or {kind, text}, each with the
 * flags beside it. */
function grammar(value) {
  if (value === undefined || value === null) return value;
  if (typeof value !== 'object' || Array.isArray(value)) throw invalid('grammar must be an object');
  const { kind, ...rest } = object(value);
  const given = (name) => (rest[name] ?? undefined) !== undefined && (rest[name] !== false || name === 'schema');
  const names = Object.keys(GRAMMARS).filter(given);
  const hasKind = (kind ?? undefined) !== undefined;
  if (names.length > 1 || (hasKind && names.some((name) => name !== 'choices')))
    throw invalid('a grammar is of one kind');
  if (names.length === 0 && !hasKind) throw invalid(`a grammar has one of ${Object.keys(GRAMMARS).join(', ')}`);
  const texts = names.map((name) => grammarText(name, rest[name]));
  for (const name of Object.keys(GRAMMARS)) delete rest[name];
  const number = hasKind ? named('GRAMMAR_', kind, 'kind') : constants['GRAMMAR_' + GRAMMARS[names[0]]];
  return Object.assign(rest, ...texts, { kind: number });
}

/** A Map, an object or pairs. */
function biases(value) {
  if (types.isMap(value)) return [...value];
  if (Array.isArray(value) || value === undefined || value === null) return value;
  if (typeof value !== 'object') throw invalid('biases must be a Map, an object or an array of [token, bias]');
  return Object.entries(value).map(([token, bias]) => {
    if (!/^\d+$/.test(token)) throw invalid(`biases: '${token}' is no token`);
    return [Number(token), bias];
  });
}

/** {name: path} or {name: {path, scale}}, also as a Map: {name, path, scale} of each. */
function adapters(value) {
  if (value === undefined || value === null) return value;
  if (typeof value !== 'object' || Array.isArray(value))
    throw invalid('adapters must be an object or a Map of names and paths');
  return (types.isMap(value) ? [...value] : Object.entries(value)).map(([name, one]) => {
    if (typeof name !== 'string') throw invalid('adapters: a name must be a string');
    if (isPath(one)) return { name, path: path(one) };
    if (one === null || typeof one !== 'object' || Array.isArray(one))
      throw invalid(`adapters.${name} must be a path or { path, scale }`);
    const { path: file, scale } = own(one, { path: undefined, scale: 1 });
    if (typeof scale !== 'number') throw invalid(`adapters.${name}.scale must be a number`);
    return { name, path: path(file, `adapters.${name}.path`), scale };
  });
}

/** The number of a Session of the model. */
function sessionId(value, model) {
  if (value === undefined || value === null || typeof value === 'bigint') return value;
  if (typeof value.id !== 'bigint') throw invalid('session must be a Session');
  if (value.model !== model) throw invalid('the session belongs to another model');
  return value.id;
}

// Options that are functions: the methods of a class by these names are options, others are its own.
const CALLBACKS = new Set(['choose', 'onLog', 'onProgress', 'onTrace']);

/** The options as an object whose own members they are: what a class or a prototype adds is there, too. */
function object(options) {
  if (options === null || typeof options !== 'object' || Array.isArray(options))
    throw invalid('options must be an object');
  const above = Object.getPrototypeOf(options);
  if (above === null || Object.getPrototypeOf(above) === null) return options;
  const all = {};
  for (let level = options, next; (next = Object.getPrototypeOf(level)) !== null; level = next)
    for (const [name, { enumerable, get, value }] of Object.entries(Object.getOwnPropertyDescriptors(level))) {
      if (Object.hasOwn(all, name)) continue;
      if (level !== options && typeof value === 'function') {
        if (CALLBACKS.has(name)) all[name] = value.bind(options);
      } else if (enumerable || get !== undefined) {
        all[name] = options[name];
      }
    }
  return all;
}

/** The options' own members without those that are null, which is not given. */
function given(options) {
  const all = {};
  for (const [name, value] of Object.entries(object(options))) if (value !== null) all[name] = value;
  return all;
}

/** The options of a function that has no others than `defaults`. */
function own(given = {}, defaults) {
  const out = { ...defaults };
  for (const [name, value] of Object.entries(object(given))) {
    if (value === undefined || value === null) continue;
    if (!Object.hasOwn(defaults, name)) throw invalid(`there is no option ${name}`);
    out[name] = value;
  }
  return out;
}

/** A conversation: messages, tools, variables and the other members of runnel_chat. */
function chat(options) {
  const out = { ...object(options) };
  if ('messages' in out) {
    out.messagesJson = json(out.messages);
    delete out.messages;
  }
  if ('tools' in out) out.tools = json(out.tools);
  if ('variables' in out) out.variables = json(out.variables);
  return out;
}

/** The options of stream() for the addon. */
function request(options, model) {
  const out = chat(options);
  if ('grammar' in out) out.grammar = grammar(out.grammar);
  if ('biases' in out) out.biases = biases(out.biases);
  if ('session' in out) out.session = sessionId(out.session, model);
  if ('draft' in out) out.draft = flags('DRAFT_', out.draft, 'draft');
  if ('cacheWait' in out) out.cacheWait = named('CACHE_', out.cacheWait, 'cacheWait');
  if ('penaltyScope' in out) out.penaltyScope = named('PENALTY_', out.penaltyScope, 'penaltyScope');
  if (typeof out.stops === 'string') out.stops = [out.stops];
  return out;
}

function embedding(options) {
  const out = { ...options };
  if ('pooling' in out) out.pooling = named('POOLING_', out.pooling, 'pooling');
  return out;
}

function scoring(options) {
  const out = { ...options };
  if ('form' in out) out.form = named('SCORES_', out.form, 'form');
  return out;
}

function model(options) {
  const out = { ...options };
  if ('adapters' in out) out.adapters = adapters(out.adapters);
  if ('kvType' in out) out.kvType = named('KV_', out.kvType, 'kvType');
  if ('weightOrder' in out) out.weightOrder = named('WEIGHTS_', out.weightOrder, 'weightOrder');
  return out;
}

function engine(options) {
  const out = { ...options };
  if ('logLevel' in out) out.logLevel = named('LOG_', out.logLevel, 'logLevel');
  return out;
}

module.exports = {
  named,
  flags,
  isText,
  json,
  path,
  chat,
  given,
  object,
  own,
  request,
  embedding,
  scoring,
  model,
  engine,
};
