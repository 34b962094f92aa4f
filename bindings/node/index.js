'use strict';
// runnel: token streams from language models on Node's own event loop. README.md of this folder is the manual.

const { AsyncResource } = require('node:async_hooks');

const native = require('./runnel.node');
const { AbortError, RunnelError, checkSignal, invalid, makeError } = require('./errors.js');
const options = require('./options.js');
const { ModelFile, cache, every, inspectTemplate, readSessionNote, renderTemplate, template } = require('./files.js');
const { Group, Pieces } = require('./group.js');
const { Piece, Stream } = require('./stream.js');
const { Uncloneable } = require('./uncloneable.js');

const { constants } = native;
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose');
const EVENT_LOAD = 100;
const { EVENT_TOKEN } = constants;
const WORDS = 10; // of an event: bindings/node/native/events.h

// How long events gather before they wake the loop again: bench/bindings/node.mjs has what that saves.
const GATHER_US = 1000;
const HOLD_US = 10000;
const LEVELS = ['none', 'error', 'warning', 'info', 'debug'];

native.setup(makeError);

const TRAINING = ['running', 'done', 'cancelled', 'failed'];
const TRAINING_MS = 50; // between two looks at a training

/** It has not ended: to free it would block for a step. */
function runs(training) {
  try {
    return TRAINING[native.trainingProgress(training).state] === 'running';
  } catch {
    return false; // it has failed
  }
}

function closed(what = 'engine') {
  return new RunnelError('CLOSED', constants.CLOSED, `the ${what} is closed`, 0);
}

/** A load on its way. */
class Load {
  constructor(engine, handle, { onProgress, signal }, resolve, reject) {
    Object.assign(this, { engine, handle, signal, resolve, reject });
    this.onProgress = onProgress && AsyncResource.bind(onProgress, 'runnel');
    this.abort = () => native.modelCancelLoad(handle);
    try {
      signal?.addEventListener('abort', this.abort, { once: true });
      if (signal?.aborted) this.abort();
    } catch (error) {
      this.thrown = { error };
      this.abort();
    }
  }

  get _busy() {
    return true;
  }

  /** True: it was the last event. */
  event(state, fraction, error) {
    if (state === constants.LOAD_PROGRESS) {
      this.progress(fraction);
      return false;
    }
    let aborted;
    try {
      this.signal?.removeEventListener('abort', this.abort);
      if (state === constants.LOAD_READY) this.progress(1);
      if (this.signal?.aborted) aborted = new AbortError(this.signal.reason);
    } catch (error) {
      this.thrown ??= { error };
    }
    if (state === constants.LOAD_READY && this.thrown === undefined && aborted === undefined) {
      this.resolve(new Model(this.engine, this.handle));
      return true;
    }
    native.modelClose(this.handle);
    if (this.thrown !== undefined) this.reject(this.thrown.error);
    else if (state === constants.LOAD_FAILED) this.reject(error);
    else if (aborted !== undefined) this.reject(aborted);
    else this.reject(new RunnelError('CANCELLED', constants.CANCELLED, 'the load was cancelled', 0));
    return true;
  }

  /** What the caller's function throws ends the load. */
  progress(fraction) {
    if (this.onProgress === undefined || this.thrown !== undefined) return;
    try {
      this.onProgress(fraction);
    } catch (error) {
      this.thrown = { error };
      native.modelCancelLoad(this.handle);
    }
  }

  _close() {
    let error = closed();
    try {
      this.signal?.removeEventListener('abort', this.abort);
    } catch (thrown) {
      error = thrown;
    }
    this.reject(error);
  }
}

// Engines on which something runs. One that nobody holds else is collected, and the addon frees it.
const working = new Set();

class Engine extends Uncloneable {
  #handle;
  #words;
  #floats;
  #extras = [];
  #running = []; // by slot: streams and loads
  #free = [];
  #grouped = []; // by slot: the group that gets the stream's tokens; null: the stream's own code has to see them, too
  #waiting = new Set(); // groups whose reader waits
  #woken = [];
  #live = 0; // streams and loads that have not ended
  #busy = 0;
  #closing;
  #idle = [];
  #onLog;
  #onTrace;

  /**
   * Options: those of runnel_engine_options, with gatherUs (how long events gather before they are looked at again) a
   * millisecond; holdUs, how long pieces may be held back behind the last wake with one stream (10000; 0: not at all);
   * transport: 'thread' (default) or 'uv'; onLog(level, line), onTrace(span).
   */
  constructor(given = {}) {
    super();
    const { transport = 'thread', holdUs = HOLD_US, onLog, onTrace, ...rest } = options.given(given);
    rest.gatherUs ??= GATHER_US;
    for (const call of [onLog, onTrace])
      if (call !== undefined && typeof call !== 'function') throw invalid('onLog and onTrace must be functions');
    if (rest.delivery !== undefined) throw invalid('delivery is no option here: transport says how events come');
    if (transport !== 'thread' && transport !== 'uv') throw invalid("transport must be 'thread' or 'uv'");
    if (!Number.isInteger(holdUs) || holdUs < 0 || holdUs >= 2 ** 32)
      throw invalid('holdUs must be an integer from 0 to 4294967295');
    this.#onLog = onLog;
    this.#onTrace = onTrace;
    const engine = new WeakRef(this); // the addon keeps the functions, and the caller's own may refer to the engine
    const functions = {
      onEvents: (pack, n, texts) => engine.deref()?.#onEvents(pack, n, texts),
      onFirst: () => setImmediate(() => engine.deref()?.#flush()),
      onChoose: (slot, ...candidates) => engine.deref()?.#running[slot]._choose(...candidates),
      extras: this.#extras,
      onLog: onLog && ((level, line) => engine.deref()?.#onLog.call(undefined, LEVELS[level], line)),
      onTrace: onTrace && ((span) => engine.deref()?.#onTrace.call(undefined, span)),
    };
    this.#handle = native.engineNew(options.engine(rest), transport === 'uv', functions, holdUs);
    this.#words = functions.words.map((buffer) => new Int32Array(buffer));
    this.#floats = functions.words.map((buffer) => new Float32Array(buffer));
  }

  /** An engine, as the constructor makes it. */
  static async open(given) {
    return new Engine(given);
  }

  /** Options: those of runnel_model_options; onProgress(fraction), signal. */
  loadModel(path, given = {}) {
    return new Promise((resolve, reject) => {
      const { onProgress, signal, ...rest } = options.given(given);
      checkSignal(signal);
      if (signal?.aborted) throw new AbortError(signal.reason);
      if (onProgress !== undefined && typeof onProgress !== 'function') throw invalid('onProgress must be a function');
      const slot = this.#slot();
      let handle;
      try {
        handle = native.modelLoad(this.#open, options.path(path), options.model(rest), slot);
      } catch (error) {
        this.#free.push(slot);
        throw error;
      }
      this.#enter(slot, new Load(this, handle, { onProgress, signal }, resolve, reject));
    });
  }

  /** Counts: runnel_engine_stats. */
  stats() {
    return native.engineStats(this.#open, true);
  }

  /** Counters and histograms: runnel_metrics. */
  metrics() {
    return native.engineMetrics(this.#open, true);
  }

  /** The metrics of every model in the text format of Prometheus. */
  prometheus() {
    return native.enginePrometheus(this.#open, true);
  }

  /** The streams alive now. */
  streams() {
    return native.engineStreams(this.#open, true);
  }

  /** How often each expert was chosen: [{model, blocks: [[count, ...], ...]}, ...]. */
  experts() {
    return every((i) => native.engineExperts(this.#open, i, true));
  }

  /** What the machine can do at most: runnel_machine. Takes about a second. */
  async measure() {
    return native.engineMeasure(this.#open, false);
  }

  /** What is known of a device, "cuda:1" say: runnel_device_info. `why` is empty where models can be loaded on it. */
  async device(name = 'auto') {
    return native.engineDevice(this.#open, name, false);
  }

  /**
   * Trains a head that drafts for the model file, and writes it to `head`: an AsyncIterable of its progress, which ends
   * with the training. A loop that is left early cancels it, and goes on when its step has ended. Options: those of
   * runnel_eagle_options; signal.
   */
  async *trainEagle(model, corpus, head, given = {}) {
    const { signal, ...rest } = options.given(given);
    checkSignal(signal);
    if (signal?.aborted) throw new AbortError(signal.reason);
    const training = native.trainingNew(this.#open, options.path(model), corpus, options.path(head), rest);
    const abort = () => native.trainingCancel(training);
    try {
      signal?.addEventListener('abort', abort, { once: true });
      if (signal?.aborted) abort();
      for (let step = -1; ; ) {
        const progress = native.trainingProgress(training);
        const state = TRAINING[progress.state];
        if (state === 'cancelled') throw signal?.aborted ? new AbortError(signal.reason) : closed();
        if (progress.step !== step || state === 'done') yield { ...progress, state };
        if (state === 'done') return;
        step = progress.step;
        await new Promise((resolve) => setTimeout(resolve, TRAINING_MS));
      }
    } finally {
      abort();
      while (runs(training)) await new Promise((resolve) => setTimeout(resolve, TRAINING_MS));
      native.trainingFree(training);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** A group of streams, whose pieces come in one loop. Options: highWater, pieces that wait until all are paused. */
  group(given) {
    this.#open;
    return new Group(this, given);
  }

  /** Refuses new requests, and waits until those that run have ended. One that nobody reads is paused: it does not. */
  async drain() {
    native.engineDrain(this.#open);
    if (this.#live === 0) return;
    this.#hold(1);
    await new Promise((resolve) => this.#idle.push(resolve));
    this.#hold(-1);
  }

  /** Ends all that runs and frees everything. What still waits for an answer gets an error CLOSED. */
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    await new Promise((resolve) => setImmediate(resolve)); // not inside a callback of the engine
    const closed = native.engineClose(this.#handle);
    for (const [slot, entry] of this.#running.entries()) {
      entry?._close(() => native.streamReceived(this.#handle, slot));
      entry?._group?._close(slot);
    }
    for (const group of this.#waiting) group.end();
    for (const resolve of this.#idle.splice(0)) resolve();
    await closed;
    this.#running.length = 0; // the handles of models had to live until now
    working.delete(this);
  }

  [asyncDispose]() {
    return this.close();
  }

  // ---- For Model and Stream

  get #open() {
    if (this.#closing !== undefined) throw closed();
    return this.#handle;
  }

  get _isClosed() {
    return this.#closing !== undefined;
  }

  #slot() {
    return this.#free.pop() ?? this.#running.push(undefined) - 1;
  }

  #enter(slot, entry) {
    this.#running[slot] = entry;
    if (this.#live++ === 0) working.add(this);
    this.#hold(1);
  }

  #leave(slot) {
    if (this.#running[slot]._busy) this.#hold(-1);
    const grouped = this.#running[slot]._group !== undefined; // the group frees the slot when the end was read
    this.#running[slot] = this.#grouped[slot] = undefined;
    if (!grouped) this._freeSlot(slot);
    if (--this.#live > 0) return;
    working.delete(this);
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  _freeSlot(slot) {
    this.#free.push(slot);
  }

  /** The loop waits while something will come. */
  #hold(change) {
    const before = this.#busy;
    this.#busy += change;
    if ((before === 0) !== (this.#busy === 0)) native.engineKeep(this.#handle, this.#busy > 0);
  }

  _submit(stream, submit) {
    const slot = this.#slot();
    try {
      this.#open;
      stream._begin(submit(slot));
      this.#enter(slot, stream);
      if (stream._group !== undefined) this.#enterGroup(slot, stream);
    } catch (error) {
      this.#free.push(slot);
      throw error;
    }
  }

  #enterGroup(slot, stream) {
    this.#grouped[slot] = stream._wantLogprobs ? null : stream._group;
    stream._group._enter(slot, stream);
  }

  /** The group's reader waits, until the engine is closed at the latest. */
  _groupWaits(group, waits) {
    if (waits) this.#waiting.add(group);
    else this.#waiting.delete(group);
  }

  _modelClosed(model) {
    for (const entry of this.#running) if (entry?._model === model) entry._endComes();
  }

  _cancel(id) {
    native.streamCancel(this.#handle, id);
  }

  _draw(logits) {
    return native.candidatesDraw(this.#handle, logits);
  }

  _chosen(id, place) {
    native.streamChoose(this.#handle, id, place);
  }

  _pause(id) {
    native.streamPause(this.#handle, id);
    this.#hold(-1);
  }

  _resume(id) {
    native.streamResume(this.#handle, id);
    this.#hold(1);
  }

  #flush() {
    native.engineFlush(this.#handle);
  }

  /** A pack of n events and their texts: bindings/node/native/events.h. */
  #onEvents(pack, n, texts) {
    const words = this.#words[pack];
    const floats = this.#floats[pack];
    const running = this.#running;
    const grouped = this.#grouped;
    const end = n * WORDS;
    for (let o = 0, next = WORDS; o < end; o = next, next += WORDS) {
      const slot = words[o];
      const its = grouped[slot];
      if (!isPlain(words, o) || its === null) {
        this.#onEvent(words, floats, o, texts);
      } else if (its !== undefined) { // most often all that follow are the group's, too: they are copied at once
        while (next < end && isPlain(words, next) && grouped[words[next]] === its) next += WORDS;
        this.#wakes(its, texts)._add(words, o, next);
      } else {
        running[slot]._token(textOf(words, o, texts), words[o + 2], words[o + 3], words[o + 7], floats[o + 8], words[o + 9]);
      }
    }
    if (this.#extras.length > 0) this.#extras.length = 0;
    for (const one of this.#woken) one._wake();
    this.#woken.length = 0;
  }

  #onEvent(words, floats, o, texts) {
    const slot = words[o];
    const type = words[o + 1];
    const entry = this.#running[slot];
    const extra = words[o + 6] >= 0 ? this.#extras[words[o + 6]] : undefined;
    if (type === EVENT_LOAD) {
      if (entry.event(words[o + 2], floats[o + 8], extra)) this.#leave(slot);
      return;
    }
    if (type >= constants.EVENT_DONE) this.#leave(slot);
    entry._event(type, textOf(words, o, texts), words[o + 2], words[o + 3], words[o + 7], floats[o + 8], words[o + 9], extra);
    if (entry._group !== undefined) this.#wakes(entry._group, texts)._event(words, o, extra);
  }

  /** The group gets events of this wake. */
  #wakes(group, texts) {
    if (!this.#woken.includes(group)) {
      this.#woken.push(group);
      group._begin(texts);
    }
    return group;
  }
}

/** A token's event without an extra. */
function isPlain(words, o) {
  return words[o + 1] === EVENT_TOKEN && words[o + 6] < 0;
}

function textOf(words, o, texts) {
  return words[o + 5] > 0 ? texts.slice(words[o + 4], words[o + 4] + words[o + 5]) : '';
}

function tokenizeFlags(given) {
  const { bos, special } = options.own(given, { bos: true, special: false });
  return (bos ? constants.TOKENIZE_BOS : 0) | (special ? constants.TOKENIZE_SPECIAL : 0);
}

function chatOptions(chat) {
  return options.chat(Array.isArray(chat) ? { messages: chat } : chat);
}

class Model extends Uncloneable {
  #engine;
  #handle;

  /** Made by Engine.loadModel. */
  constructor(engine, handle) {
    super();
    this.#engine = engine;
    this.#handle = handle;
  }

  get engine() {
    return this.#engine;
  }

  /** Sizes and ids of the model: runnel_model_info. */
  get info() {
    return native.modelInfo(this.#handle);
  }

  /** The LoRA adapters that requests may name: [{name, path, scale}, ...]. */
  get adapters() {
    return every((i) => native.modelAdapter(this.#handle, i));
  }

  /** Submits a request. The pieces of its answer are read from the stream, with `for await`. */
  stream(given) {
    const { signal, onAbort, highWater, choose, group, ...rest } = options.given(given);
    if (group !== undefined) {
      if (!(group instanceof Group)) throw invalid("group must be one of the engine's");
      group._check(this.#engine);
      if (signal?.aborted) throw new AbortError(signal.reason);
    }
    return this.#stream(rest, { signal, onAbort, highWater, choose, group, wantLogprobs: rest.wantLogprobs });
  }

  /** The whole answer. */
  async generate(given) {
    const { signal, onAbort, choose, ...rest } = options.given(given);
    if (rest.wantLogits) throw invalid('wantLogits goes with stream(): a whole answer has no logits');
    return this.#stream(rest, { signal, onAbort, choose, collect: true, wantLogprobs: rest.wantLogprobs }).result;
  }

  #stream(rest, own) {
    const request = options.request(rest, this);
    const chooses = own.choose !== undefined;
    const quiet = own.collect === true && !own.wantLogprobs;
    return new Stream(this.#engine, this, own, (slot) => native.generate(this.#handle, request, slot, chooses, quiet));
  }

  /** The embedding of a text: {embedding, usage, timings}. */
  async embed(given) {
    const { signal, onAbort, ...rest } = options.given(options.isText(given) ? { text: given } : given);
    const request = options.embedding(rest);
    const submit = (slot) => native.embed(this.#handle, request, slot);
    return new Stream(this.#engine, this, { signal, onAbort, collect: true }, submit).result;
  }

  /** Scores of a text, or of a text with a query: {scores, usage, timings}. Options: those of runnel_score_request. */
  async score(given) {
    const { signal, onAbort, ...rest } = options.given(given);
    const request = options.scoring(rest);
    const submit = (slot) => native.score(this.#handle, request, slot);
    const stream = new Stream(this.#engine, this, { signal, onAbort, collect: true }, submit);
    const { embedding, usage, timings } = await stream.result;
    return { scores: embedding, usage, timings };
  }

  /** What score() gives: {nScores, ofTokens, hasTemplate, labels}. */
  get scores() {
    return native.modelScores(this.#handle);
  }

  /** A conversation whose turns are not computed again. */
  session() {
    return new Session(this, this.#handle, native.sessionNew(this.#handle));
  }

  /** A session from a file that Session.export has written. Options: cacheSalt, label, signal. */
  async importSession(path, given) {
    const { signal, ...rest } = options.own(given, { cacheSalt: undefined, label: undefined, signal: undefined });
    let session;
    const submit = (slot) => {
      const [id, sessionId] = native.sessionImport(this.#handle, { ...rest, path: options.path(path) }, slot);
      session = sessionId;
      return id;
    };
    try {
      await new Stream(this.#engine, this, { signal, collect: true }, submit).result;
      if (signal?.aborted) throw new AbortError(signal.reason);
    } catch (error) {
      if (session !== undefined) native.sessionFree(this.#handle, session);
      throw error;
    }
    return new Session(this, this.#handle, session);
  }

  // ---- Text. Each of these is done on a thread of Node's pool; NAMESync does it at once.

  /** Token ids. Options: bos (BOS and EOS as the model asks for), special (control tokens in the text are such). */
  async tokenize(text, given) {
    return native.tokenize(this.#handle, text, tokenizeFlags(given), false);
  }

  tokenizeSync(text, given) {
    return native.tokenize(this.#handle, text, tokenizeFlags(given), true);
  }

  /** The text of tokens. Options: special (control tokens by name), bytes (a Buffer, which may not be whole UTF-8). */
  async detokenize(tokens, given) {
    const { special, bytes } = options.own(given, { special: false, bytes: false });
    const buffer = await native.detokenize(this.#handle, tokens, special ? 1 : 0, false);
    return bytes ? buffer : buffer.toString();
  }

  detokenizeSync(tokens, given) {
    const { special, bytes } = options.own(given, { special: false, bytes: false });
    const buffer = native.detokenize(this.#handle, tokens, special ? 1 : 0, true);
    return bytes ? buffer : buffer.toString();
  }

  /** The text of a token within a text: with its space in front, which detokenize leaves out where a text begins.
   * Options: those of detokenize. */
  async tokenText(token, given) {
    const { special, bytes } = options.own(given, { special: false, bytes: false });
    const buffer = await native.tokenText(this.#handle, token, special ? 1 : 0, false);
    return bytes ? buffer : buffer.toString();
  }

  tokenTextSync(token, given) {
    const { special, bytes } = options.own(given, { special: false, bytes: false });
    const buffer = native.tokenText(this.#handle, token, special ? 1 : 0, true);
    return bytes ? buffer : buffer.toString();
  }

  /** The prompt that a conversation becomes: {messages, tools, variables, ...}, or the messages alone. */
  async applyTemplate(chat) {
    return native.applyTemplate(this.#handle, chatOptions(chat), false);
  }

  applyTemplateSync(chat) {
    return native.applyTemplate(this.#handle, chatOptions(chat), true);
  }

  /** The same as token ids. */
  async tokenizeChat(chat) {
    return native.tokenizeChat(this.#handle, chatOptions(chat), false);
  }

  tokenizeChatSync(chat) {
    return native.tokenizeChat(this.#handle, chatOptions(chat), true);
  }

  /** The prompt of a text with a gap: {prefix, suffix, repository, name, files, suffixFirst}; for `tokens`. */
  async tokenizeInfill(infill) {
    return native.tokenizeInfill(this.#handle, options.object(infill), false);
  }

  tokenizeInfillSync(infill) {
    return native.tokenizeInfill(this.#handle, options.object(infill), true);
  }

  /** Can what a request asks its answer to be (grammar, tools) be had? Throws what is wrong with it. */
  async checkGrammar(given) {
    return native.grammarCheck(this.#handle, options.request(given, this), false);
  }

  checkGrammarSync(given) {
    return native.grammarCheck(this.#handle, options.request(given, this), true);
  }

  /** Can tokens be drawn as a request's options say? Throws what is wrong with them. */
  async checkSampling(given) {
    return native.samplingCheck(this.#handle, options.request(given, this), false);
  }

  checkSamplingSync(given) {
    return native.samplingCheck(this.#handle, options.request(given, this), true);
  }

  /** The chat templates of the file, and what each knows. */
  templates() {
    return every((i) => template(native.modelTemplate(this.#handle, i, true)));
  }

  /** Options of a request that the file recommends. */
  recommendedSampling() {
    return native.modelSampling(this.#handle, true);
  }

  /** Cancels what runs on it and frees it when the last stream has ended. */
  async close() {
    native.modelClose(this.#handle);
    this.#engine._modelClosed(this);
  }

  [asyncDispose]() {
    return this.close();
  }
}

const abandoned = new FinalizationRegistry(({ handle, id }) => native.sessionFree(handle, id));

class Session extends Uncloneable {
  #model;
  #handle;
  #id;
  #isClosed = false;

  /** Made by Model.session, fork or importSession. */
  constructor(model, handle, id) {
    super();
    if (!(model instanceof Model) || typeof id !== 'bigint') throw invalid('a session is made by its model');
    this.#model = model;
    this.#handle = handle;
    this.#id = id;
    abandoned.register(this, { handle, id }, this);
  }

  /** Throws where the session is closed. */
  get id() {
    if (this.#isClosed) throw closed('session');
    return this.#id;
  }

  get model() {
    return this.#model;
  }

  /** The next turn: options of Model.stream. */
  stream(given) {
    return this.#model.stream({ ...options.object(given), session: this });
  }

  async generate(given) {
    return this.#model.generate({ ...options.object(given), session: this });
  }

  /** A copy, as of the turns submitted before. */
  fork() {
    return new Session(this.#model, this.#handle, native.sessionFork(this.#handle, this.id));
  }

  /** Writes the session to a file. Options: note (a string or Buffer that is kept with it), label, signal. */
  async export(path, given) {
    const { signal, ...rest } = options.own(given, { note: undefined, label: undefined, signal: undefined });
    const { id } = this;
    const submit = (slot) => native.sessionExport(this.#handle, { ...rest, path: options.path(path) }, slot, id);
    return new Stream(this.#model.engine, this.#model, { signal, collect: true }, submit).result;
  }

  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    abandoned.unregister(this);
    native.sessionFree(this.#handle, this.#id);
  }

  [asyncDispose]() {
    return this.close();
  }
}

/** The architectures that load. */
function architectures() {
  const all = [];
  for (let row; (row = native.architecture(all.length)) !== undefined; ) all.push(row);
  return all;
}

module.exports = {
  Engine,
  Model,
  Session,
  Stream,
  Piece,
  Group,
  Pieces,
  ModelFile,
  RunnelError,
  AbortError,
  cache,
  renderTemplate,
  inspectTemplate,
  readSessionNote,
  architectures,
  nameOf: native.nameOf,
  constants,
  version: native.version,
};
