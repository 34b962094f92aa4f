'use strict';
// A stream of one request: an AsyncIterable of pieces, and a promise of the whole.

const { AsyncResource } = require('node:async_hooks');

const { AbortError, RunnelError, checkSignal, invalid } = require('./errors.js');
const options = require('./options.js');
const { Uncloneable } = require('./uncloneable.js');
const { constants } = require('./runnel.node');

const DONE = Object.freeze({ value: undefined, done: true });
const TYPES = [];
TYPES[constants.EVENT_TOKEN] = 'text';
TYPES[constants.EVENT_PROGRESS] = 'progress';
TYPES[constants.EVENT_LOGITS] = 'logits';
TYPES[constants.EVENT_REASONING] = 'reasoning';
TYPES[constants.EVENT_TOOL_CALL] = 'toolCall';
TYPES[constants.EVENT_TOOL_ID] = 'toolId';
TYPES[constants.EVENT_TOOL_ARGUMENTS] = 'toolArguments';
TYPES[constants.EVENT_TOOL_END] = 'toolEnd';
TYPES[constants.EVENT_EMBEDDING] = 'embedding';
const FINISHES = [];
FINISHES[constants.FINISH_NONE] = 'none';
FINISHES[constants.FINISH_STOP] = 'stop';
FINISHES[constants.FINISH_LENGTH] = 'length';

/** A part of an answer. */
class Piece {
  constructor(type, text, token, tokens, toolCall, shifts) {
    this.type = type;
    this.text = text;
    this.token = token;
    this.tokens = tokens;
    this.toolCall = toolCall;
    this.shifts = shifts;
    this.logprob = undefined;
    this.top = undefined;
    this.value = undefined;
  }

  toString() {
    return this.text;
  }

  /** Of a token: what its event says of likely ones. */
  _logprobs(wanted, logprob, top) {
    this.logprob = wanted && this.token >= 0 ? logprob : undefined;
    this.top = top;
  }
}

/** What has been received of an answer. */
class Answer {
  text = '';
  reasoning = '';
  tokens = [];
  toolCalls = [];
  finish = 'none';
  stop = -1;
  stopToken = -1;
  usage = undefined;
  timings = undefined;
  logprobs = undefined;
  embedding = undefined;

  /** Text, reasoning and tokens are collected by the addon, and come with the end. */
  add(type, text, toolCall, extra) {
    switch (type) {
      case constants.EVENT_TOOL_CALL:
        this.toolCalls[toolCall] = { name: text, id: undefined, arguments: '' };
        break;
      case constants.EVENT_TOOL_ID:
        this.toolCalls[toolCall].id = text;
        break;
      case constants.EVENT_TOOL_ARGUMENTS:
        this.toolCalls[toolCall].arguments += text;
        break;
      case constants.EVENT_EMBEDDING:
        this.embedding = extra;
        break;
    }
  }

  addText({ text, reasoning, tokens }) {
    this.text = text;
    this.reasoning = reasoning;
    this.tokens = Array.from(tokens);
  }
}

// The functions of the promise that is being made: one executor for all, which holds nothing.
let resolveNew, rejectNew;
function executor(resolve, reject) {
  resolveNew = resolve;
  rejectNew = reject;
}

function checkPlace(place) {
  if (!Number.isInteger(place)) throw invalid('a choice is the place of a candidate');
  return place;
}

class Stream extends Uncloneable {
  // What each piece needs lies together, and leads nowhere else while one reader waits.
  #resolve; // of the reader that waits, with #reject
  #reject;
  #plain; // a token becomes a piece and nothing else
  #queue; // from #head on: pieces that nobody has asked for; undefined: none
  #head = 0;
  #others; // readers that wait behind the first; undefined: none
  #paused = false;
  #highWater;
  #engine;
  #model; // until the end: a model that is collected cancels its streams
  #id;
  #answer = new Answer();
  #wantLogprobs;
  #collect; // nobody iterates: pieces are not kept
  #cancelled = false;
  #ended = false;
  #failure; // {error} of the end, where it is one
  #result; // the promise, once someone has asked for it
  #settle;
  #signal;
  #onAbort;
  #aborted = false;
  #returned = false;
  #choose;
  #thrown; // {error} of the caller's own function
  #group; // whose loop gets the pieces

  /** For Model: submit(slot) gives the stream's id, which Engine gives to _begin. */
  constructor(engine, model, own, submit) {
    super();
    const { signal, onAbort = 'throw', highWater = 64, collect = false, wantLogprobs, choose, group } = own;
    if (onAbort !== 'throw' && onAbort !== 'return') throw invalid("onAbort must be 'throw' or 'return'");
    if (!Number.isInteger(highWater) || highWater < 1) throw invalid('highWater must be a positive integer');
    checkSignal(signal);
    if (choose !== undefined && typeof choose !== 'function') throw invalid('choose must be a function');
    this.#engine = engine;
    this.#model = model;
    this.#highWater = highWater;
    this.#group = group;
    this.#collect = collect || group !== undefined;
    this.#wantLogprobs = wantLogprobs;
    this.#plain = !this.#collect && !wantLogprobs;
    this.#onAbort = onAbort;
    this.#choose = choose && AsyncResource.bind(choose, 'runnel');
    if (signal?.aborted) {
      this.#signal = signal;
      this.#aborted = true;
      this.#end(constants.EVENT_CANCELLED, undefined);
      return;
    }
    engine._submit(this, submit);
    if (signal !== undefined) {
      this.#signal = signal;
      try {
        signal.addEventListener('abort', this.#abort, { once: true });
        if (signal.aborted) this.#abort(); // since it was asked: what reads options may do anything
      } catch (error) {
        this.return();
        throw error;
      }
    }
  }

  #abort = () => {
    this.#aborted = true;
    this.cancel();
  };

  /** The library's number of the stream, as in engine.streams(). */
  get id() {
    return this.#id;
  }

  /** Ends the stream early: what it has is its result, with finish 'cancelled'. */
  cancel() {
    if (this.#ended || this.#id === undefined) return;
    this.#engine._cancel(this.#id);
    this._endComes();
  }

  /** Everything at once, when the stream has ended. Pieces are not held back meanwhile. */
  get result() {
    this.#highWater = Infinity;
    if (this.#group === undefined) this.#resume();
    if (this.#result === undefined) {
      this.#result = new Promise((resolve, reject) => {
        this.#settle = () => (this.#failure === undefined ? resolve(this.#answer) : reject(this.#failure.error));
      });
      if (this.#ended) this.#settle();
    }
    return this.#result;
  }

  // ---- Iteration

  [Symbol.asyncIterator]() {
    return this;
  }

  next() {
    if (this.#group !== undefined) return Promise.reject(invalid('the pieces of the stream are read from its group'));
    if (this.#queue !== undefined) return Promise.resolve({ value: this.#shift(), done: false });
    if (this.#returned) return Promise.resolve(DONE);
    if (this.#ended) {
      this.#returned = true;
      return this.#failure === undefined ? Promise.resolve(DONE) : Promise.reject(this.#failure.error);
    }
    const promise = new Promise(executor);
    if (this.#resolve !== undefined) {
      (this.#others ??= []).push({ resolve: resolveNew, reject: rejectNew });
    } else {
      this.#resolve = resolveNew;
      this.#reject = rejectNew;
    }
    return promise;
  }

  #shift() {
    const piece = this.#queue[this.#head];
    this.#queue[this.#head++] = undefined;
    if (this.#head === this.#queue.length) {
      this.#drop();
      if (this.#paused) this.#resume();
    }
    return piece;
  }

  #drop() {
    this.#queue = undefined;
    this.#head = 0;
  }

  /** A loop that ends early comes here. */
  return(value) {
    this.#returned = true;
    this.#drop();
    this.#collect = true;
    this.#plain = false;
    this.cancel();
    return Promise.resolve({ value, done: true });
  }

  /** Cancels, and waits for the end. */
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    const ended = this.result.catch(() => {});
    await this.return();
    await ended;
  }

  /** A web stream of the text: strings, or bytes of UTF-8. Cancelling it cancels the stream. */
  readable(given) {
    const { bytes } = options.own(given, { bytes: false });
    const encoder = bytes ? new TextEncoder() : undefined;
    return new ReadableStream(
      {
        pull: async (controller) => {
          for (;;) {
            const { value, done } = await this.next();
            if (done) return controller.close();
            if (value.type !== 'text' || value.text === '') continue;
            return controller.enqueue(bytes ? encoder.encode(value.text) : value.text);
          }
        },
        cancel: () => this.return(),
      },
      { highWaterMark: 0 },
    );
  }

  // ---- For Engine, on its turn of the loop

  _begin(id) {
    this.#id = id;
  }

  get _group() {
    return this.#group;
  }

  get _wantLogprobs() {
    return this.#wantLogprobs;
  }

  get _model() {
    return this.#model;
  }

  /** It was cancelled, or its model closed: the loop is held until its end, whoever reads it. */
  _endComes() {
    this.#cancelled = true;
    this.#resume();
  }

  _pause() {
    if (!this.#paused && !this.#cancelled && !this.#ended) this.#pause();
  }

  _resume() {
    this.#resume();
  }

  /** Holds the loop: something will come. */
  get _busy() {
    return !this.#paused;
  }

  _event(type, text, token, tokens, toolCall, logprob, shifts, extra) {
    if (type >= constants.EVENT_DONE) return this.#end(type, extra);
    this.#answer.add(type, text, toolCall, extra);
    if (this.#wantLogprobs && type === constants.EVENT_TOKEN && token >= 0)
      (this.#answer.logprobs ??= []).push({ token, logprob, top: extra });
    if (this.#collect) return;
    const piece = new Piece(TYPES[type], text, token, tokens, toolCall, shifts);
    if (type === constants.EVENT_TOKEN && this.#wantLogprobs) piece._logprobs(true, logprob, extra);
    else if (extra !== undefined) piece.value = extra;
    this.#deliver(piece);
  }

  /** The event of a token that has no extra. */
  _token(text, token, tokens, toolCall, logprob, shifts) {
    if (this.#plain) this.#deliver(new Piece('text', text, token, tokens, toolCall, shifts));
    else this._event(constants.EVENT_TOKEN, text, token, tokens, toolCall, logprob, shifts, undefined);
  }

  #deliver(piece) {
    const resolve = this.#resolve;
    if (resolve === undefined) {
      (this.#queue ??= []).push(piece);
      if (this.#queue.length - this.#head >= this.#highWater) this._pause();
      return;
    }
    this.#resolve = this.#reject = undefined;
    if (this.#others !== undefined) this.#nextReader();
    resolve({ value: piece, done: false });
  }

  #nextReader() {
    const next = this.#others.shift();
    if (this.#others.length === 0) this.#others = undefined;
    this.#resolve = next.resolve;
    this.#reject = next.reject;
  }

  /** The function `choose` draws: it gives a place, undefined (go on with these logits), or a promise of a place. */
  _choose(tokens, logits, position, sequence) {
    const draw = () => this.#engine._draw(logits);
    try {
      const place = this.#choose({ tokens, logits, position, sequence, draw });
      if (typeof place?.then !== 'function') return checkPlace(place ?? constants.CHOOSE_DRAW);
      const choose = (later) => this.#ended || this.#engine._chosen(this.#id, checkPlace(later));
      Promise.resolve(place).then(choose).catch((error) => this.#fail(error));
      return constants.CHOOSE_LATER;
    } catch (error) {
      this.#fail(error);
      return constants.CHOOSE_LATER;
    }
  }

  /** The caller's own function has thrown: the stream ends with that. */
  #fail(error) {
    this.#thrown ??= { error };
    this.cancel();
  }

  /** The engine is closed under it: received() is what has come of its text. */
  _close(received) {
    const error = new RunnelError('CLOSED', constants.CLOSED, 'the engine is closed', 0);
    if (!this.#ended) this.#end(constants.EVENT_FAILED, { error, ...received() });
  }

  #pause() {
    this.#paused = true;
    this.#engine._pause(this.#id);
  }

  #resume() {
    if (!this.#paused) return;
    this.#paused = false;
    if (!this.#ended) this.#engine._resume(this.#id);
  }

  #end(type, extra) {
    const answer = this.#answer;
    this.#ended = true;
    this.#model = undefined;
    let reason;
    try {
      this.#signal?.removeEventListener('abort', this.#abort);
      if (this.#aborted) reason = this.#signal.reason;
    } catch (error) {
      this.#thrown ??= { error };
    }
    answer.finish = type === constants.EVENT_DONE ? FINISHES[extra.finish] : 'cancelled';
    answer.stop = extra?.stop ?? -1;
    answer.stopToken = extra?.stopToken ?? -1;
    answer.usage = extra?.usage;
    answer.timings = extra?.timings;
    if (extra !== undefined) answer.addText(extra);
    if (this.#thrown !== undefined) {
      answer.finish = 'failed';
      this.#failure = this.#thrown;
    } else if (type === constants.EVENT_FAILED) {
      answer.finish = 'failed';
      this.#failure = { error: Object.assign(extra.error, { partial: answer }) };
    } else if (this.#aborted && this.#onAbort === 'throw') { // also where the end had come, but was not told
      this.#failure = { error: new AbortError(reason, answer) };
    }
    this.#settle?.();
    if (this.#resolve === undefined) return;
    this.#returned = true;
    if (this.#failure === undefined) this.#resolve(DONE);
    else this.#reject(this.#failure.error);
    for (const waiter of this.#others ?? []) waiter.resolve(DONE);
    this.#resolve = this.#reject = this.#others = undefined;
  }
}

module.exports = { Stream, Piece, TYPES };
