'use strict';
// What needs no engine: model files that are looked into, cache folders, templates, notes of sessions.

const { invalid } = require('./errors.js');
const options = require('./options.js');
const native = require('./runnel.node');
const { Uncloneable } = require('./uncloneable.js');

const { constants } = native;

/** What `one` gives for 0, 1, ... until it says NOT_FOUND. */
function every(one) {
  const all = [];
  for (;;) {
    try {
      all.push(one(all.length));
    } catch (error) {
      if (error.code === 'NOT_FOUND') return all;
      throw error;
    }
  }
}

/** The same where `one` gives promises. */
async function everyLater(one) {
  const all = [];
  for (;;) {
    try {
      all.push(await one(all.length));
    } catch (error) {
      if (error.code === 'NOT_FOUND') return all;
      throw error;
    }
  }
}

/** What a template knows, as names. */
function template(info) {
  const knows = Object.keys(constants)
    .filter((name) => name.startsWith('TEMPLATE_') && (info.knows & constants[name]) !== 0)
    .map((name) => name.slice('TEMPLATE_'.length).toLowerCase());
  return { ...info, knows };
}

/** A model file that is looked into, without loading it. */
class ModelFile extends Uncloneable {
  #handle;

  /** Made by ModelFile.open. */
  constructor(handle) {
    super();
    this.#handle = handle;
  }

  static async open(path) {
    return new ModelFile(await native.fileOpen(undefined, options.path(path), false));
  }

  get info() {
    return native.fileInfo(this.#handle, true);
  }

  /** Entry `index` of the metadata, with `value`: its text, or the texts of an array's first elements. */
  metadata(index, given) {
    const { elements } = options.own(given, { elements: 16 });
    if (!(elements >= 0)) throw invalid('elements must be a number, 0 or more');
    const entry = native.fileMetadata(this.#handle, index, true);
    const text = (i) => native.fileMetadataText(this.#handle, index, i, true);
    const isArray = entry.type.startsWith('array');
    const n = Math.min(entry.count, elements);
    return { ...entry, value: isArray ? Array.from({ length: n }, (_, i) => text(i)) : text(0) };
  }

  tensor(index) {
    return native.fileTensor(this.#handle, index, true);
  }

  /** Rows as those of the engine's option `architectures`. */
  setArchitectures(rows) {
    native.fileSetArchitectures(this.#handle, rows, true);
  }

  kvBytesPerToken(kvType = 'f16') {
    return native.fileKvBytesPerToken(this.#handle, options.named('KV_', kvType, 'kvType'), true);
  }

  /** The chat templates of the file, parsed and tried on a thread of Node's pool; templatesSync does it at once. */
  async templates() {
    return everyLater(async (i) => template(await native.fileTemplate(this.#handle, i, false)));
  }

  templatesSync() {
    return every((i) => template(native.fileTemplate(this.#handle, i, true)));
  }

  recommendedSampling() {
    return native.fileSampling(this.#handle, true);
  }

  /** The forward pass, as text. */
  plan() {
    return native.filePlan(this.#handle, true);
  }

  close() {
    native.fileClose(this.#handle);
  }
}

/** Cache folders: docs/TIERS.md. */
const cache = {
  ls: async (path) => native.cacheLs(undefined, options.path(path), undefined, false),
  inspect: async (path, fingerprint) => native.cacheInspect(undefined, options.path(path), { fingerprint }, false),
  verify: async (path, fingerprint) => native.cacheVerify(undefined, options.path(path), { fingerprint }, false),
  purge: async (path, given) => native.cachePurge(undefined, options.path(path), given, false),
};

/** A Jinja template by itself, with the members of `context`. */
async function renderTemplate(text, context = {}, given) {
  const { nowS } = options.own(given, { nowS: 0 });
  if (!(Math.abs(nowS) <= Number.MAX_SAFE_INTEGER)) throw invalid('nowS must be seconds since 1970');
  return native.renderTemplate(undefined, text, options.json(context), Math.floor(nowS), false);
}

/** What a chat template knows. */
async function inspectTemplate(text) {
  return template(await native.inspectTemplate(undefined, text, false));
}

/** The note of a session's file: a Buffer. */
async function readSessionNote(path) {
  return native.sessionReadNote(undefined, options.path(path), false);
}

module.exports = { ModelFile, cache, every, inspectTemplate, readSessionNote, renderTemplate, template };
