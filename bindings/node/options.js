'use strict';
// What a caller may write in a shorter form than the library's structs have it. The addon reads the rest by the tables
// of members, and refuses what it does not know.

const { fileURLToPath } = require('node:url');

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

function json(value) {
  if (value === undefined || value === null || typeof value === 'string') return value;
  const text = JSON.stringify(value);
  if (text === undefined) throw invalid(`a ${typeof value} is no JSON`);
  return text;
}

/** Of a file: a string, a file URL or its bytes. */
function path(value) {
  if (typeof value === 'string') return value;
  if (value instanceof URL) return fileURLToPath(value);
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  throw invalid('path must be a string, a file URL or a Buffer');
}

const GRAMMARS = { gbnf: 'GBNF', regex: 'REGEX', ebnf: 'EBNF', choices: 'CHOICES', schema: 'JSON_SCHEMA' };

/** {schema: {...}}, {regex: '...'}, {choices: [...]}, {json: true}, {jsonObject: true}, each with the flags beside it. */
function grammar(value) {
  if (value === undefined || value === null) return value;
  if (typeof value !== 'object') throw invalid('a grammar must be an object');
  const { json: anyJson, jsonObject, ...rest } = value;
  if (anyJson) rest.kind = constants.GRAMMAR_JSON;
  if (jsonObject) rest.kind = constants.GRAMMAR_JSON_OBJECT;
  for (const [name, kind] of Object.entries(GRAMMARS)) {
    if (rest[name] === undefined) continue;
    if (rest.kind !== undefined) throw invalid('a grammar is of one kind');
    rest.kind = constants['GRAMMAR_' + kind];
    if (name === 'choices') continue;
    rest.text = json(rest[name]);
    delete rest[name];
  }
  if (typeof rest.kind === 'string') rest.kind = named('GRAMMAR_', rest.kind, 'kind');
  return rest;
}

/** A Map, an object or pairs. */
function biases(value) {
  if (value instanceof Map) return [...value];
  if (Array.isArray(value) || value === undefined || value === null) return value;
  if (typeof value !== 'object') throw invalid('biases must be a Map, an object or an array of [token, bias]');
  return Object.entries(value).map(([token, bias]) => [Number(token), bias]);
}

function sessionId(value) {
  if (value === undefined || value === null || typeof value === 'bigint') return value;
  if (typeof value.id !== 'bigint') throw invalid('session must be a Session');
  return value.id;
}

function object(options) {
  if (options === null || typeof options !== 'object') throw invalid('options must be an object');
  return options;
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
function request(options) {
  const out = chat(options);
  if ('grammar' in out) out.grammar = grammar(out.grammar);
  if ('biases' in out) out.biases = biases(out.biases);
  if ('session' in out) out.session = sessionId(out.session);
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
  if ('kvType' in out) out.kvType = named('KV_', out.kvType, 'kvType');
  if ('weightOrder' in out) out.weightOrder = named('WEIGHTS_', out.weightOrder, 'weightOrder');
  return out;
}

function engine(options) {
  const out = { ...options };
  if ('logLevel' in out) out.logLevel = named('LOG_', out.logLevel, 'logLevel');
  return out;
}

module.exports = { named, flags, json, path, chat, object, request, embedding, scoring, model, engine, sessionId };
