'use strict';
// A group of streams: the pieces of all of them in one loop, as rows of numbers and one text.
//
//     engine's events ──▶ back: rows of streams of the group ──next()──▶ front: the Pieces that the reader has
//
// A piece costs no object and no promise: the reader gets one promise for all that has come since it last looked.

const { RunnelError, invalid } = require('./errors.js');
const options = require('./options.js');
const { Piece, TYPES } = require('./stream.js');
const { Uncloneable } = require('./uncloneable.js');
const { constants } = require('./runnel.node');

const WORDS = 10; // of a row: bindings/node/native/events.h
const { EVENT_DONE, EVENT_FAILED, EVENT_TOKEN } = constants;
const DONE = Object.freeze({ value: undefined, done: true });

/** Pieces of a group's streams, in the order in which they came. They are valid until the next ones are asked for. */
class Pieces extends Uncloneable {
  #words = new Int32Array(64 * WORDS);
  #floats = new Float32Array(this.#words.buffer);
  #length = 0;
  #text = '';
  #base = 0; // where the texts of this wake begin
  #extras = [];
  #streams; // of the group, by slot
  _ended = []; // slots that are the group's until these are read

  constructor(streams) {
    super();
    this.#streams = streams;
  }

  get length() {
    return this.#length;
  }

  #row(i) {
    if (!(Number.isInteger(i) && i >= 0 && i < this.#length)) throw invalid(`there is no piece ${i} of ${this.#length}`);
    return i * WORDS;
  }

  /** Whose piece it is. */
  stream(i) {
    return this.#streams[this.#words[this.#row(i)]];
  }

  /** As of a Piece, or 'end': then the stream's result is there. */
  type(i) {
    const type = this.#words[this.#row(i) + 1];
    return type >= EVENT_DONE ? 'end' : TYPES[type];
  }

  text(i) {
    const row = this.#row(i);
    const length = this.#words[row + 5];
    return length > 0 ? this.#text.slice(this.#words[row + 4], this.#words[row + 4] + length) : '';
  }

  token(i) {
    return this.#words[this.#row(i) + 2];
  }

  tokens(i) {
    return this.#words[this.#row(i) + 3];
  }

  /** All of it. */
  piece(i) {
    const row = this.#row(i);
    const words = this.#words;
    const piece = new Piece(this.type(i), this.text(i), words[row + 2], words[row + 3], words[row + 7], words[row + 9]);
    const extra = words[row + 6] >= 0 ? this.#extras[words[row + 6]] : undefined;
    if (words[row + 1] === EVENT_TOKEN) {
      piece._logprobs(this.stream(i)._wantLogprobs, this.#floats[row + 8], extra);
    } else {
      piece.value = extra;
    }
    return piece;
  }

  *[Symbol.iterator]() {
    for (let i = 0; i < this.#length; i++) yield [this.stream(i), this.piece(i)];
  }

  // ---- For Group

  _begin(texts) {
    this.#base = this.#text.length;
    this.#text = this.#base > 0 ? this.#text + texts : texts;
  }

  /** Rows from word `from` to `to`. */
  _add(words, from, to) {
    const at = this.#length * WORDS;
    const end = at + to - from;
    while (end > this.#words.length) this.#grow();
    const own = this.#words;
    own.set(words.subarray(from, to), at);
    if (this.#base > 0) for (let o = at; o < end; o += WORDS) own[o + 4] += this.#base;
    this.#length = end / WORDS;
  }

  /** What belongs to the last row. */
  _addExtra(extra) {
    this.#words[this.#length * WORDS - WORDS + 6] = this.#extras.push(extra) - 1;
  }

  _clear() {
    this.#length = 0;
    this.#text = '';
    this.#extras.length = 0;
    this._ended.length = 0;
  }

  #grow() {
    const words = new Int32Array(2 * this.#words.length);
    words.set(this.#words);
    this.#words = words;
    this.#floats = new Float32Array(words.buffer);
  }
}

class Group extends Uncloneable {
  #engine;
  #highWater;
  #streams = []; // by slot: until their end has been read
  #front = new Pieces(this.#streams);
  #back = new Pieces(this.#streams);
  #live = 0;
  #resolve; // of the reader that waits
  #ending = false;
  #returned = false;
  #paused = false;

  /** Made by Engine.group. */
  constructor(engine, given) {
    super();
    const { highWater } = options.own(given, { highWater: 4096 });
    if (!Number.isInteger(highWater) || highWater < 1) throw invalid('highWater must be a positive integer');
    this.#engine = engine;
    this.#highWater = highWater;
  }

  /** No more streams: the loop ends with the last one. */
  end() {
    this.#ending = true;
    this._wake();
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  next() {
    if (this.#resolve !== undefined) return Promise.reject(invalid('a group has one reader'));
    this.#release(this.#front);
    if (this.#back.length > 0) return Promise.resolve({ value: this.#turn(), done: false });
    if (this.#over) return Promise.resolve(DONE);
    this.#engine._groupWaits(this, true);
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** A loop that is left cancels every stream of the group. */
  return(value) {
    this.#returned = true;
    this.#release(this.#front);
    this.#release(this.#back);
    for (const stream of this.#streams) stream?.cancel();
    this.#answer(DONE);
    return Promise.resolve({ value, done: true });
  }

  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    await this.return();
  }

  get #over() {
    return this.#returned || ((this.#ending || this.#engine._isClosed) && this.#live === 0);
  }

  #answer(result) {
    const resolve = this.#resolve;
    if (resolve === undefined) return;
    this.#resolve = undefined;
    this.#engine._groupWaits(this, false);
    resolve(result);
  }

  /** The reader is through with them: others may have these slots. */
  #release(pieces) {
    for (const slot of pieces._ended) {
      this.#streams[slot] = undefined;
      this.#engine._freeSlot(slot);
    }
    pieces._clear();
  }

  #turn() {
    const pieces = this.#back;
    this.#back = this.#front;
    this.#front = pieces;
    if (this.#paused) {
      this.#paused = false;
      for (const stream of this.#streams) stream?._resume();
    }
    return pieces;
  }

  // ---- For Engine and Model

  _check(engine) {
    if (this.#engine !== engine) throw invalid('the group belongs to another engine');
    if (this.#ending || this.#returned)
      throw new RunnelError('STATE', constants.STATE, 'the group has ended: it takes no more streams', 0);
  }

  _enter(slot, stream) {
    this.#live++;
    this.#streams[slot] = stream;
    if (this.#paused) stream._pause();
  }

  /** The first event of a wake; texts are those of all its events. */
  _begin(texts) {
    this.#back._begin(texts);
  }

  /** Events of tokens that have no extra. */
  _add(words, from, to) {
    if (!this.#returned) this.#back._add(words, from, to);
  }

  _event(words, o, extra) {
    const ended = words[o + 1] >= EVENT_DONE;
    if (ended) this.#live--;
    this.#back._add(words, o, o + WORDS);
    if (ended) this.#back._ended.push(words[o]);
    else if (extra !== undefined) this.#back._addExtra(extra);
    if (this.#returned) this.#release(this.#back);
  }

  /** The rows of a wake are all there. */
  _wake() {
    if (this.#back.length >= this.#highWater && this.#resolve === undefined && !this.#paused && !this.#returned) {
      this.#paused = true;
      for (const stream of this.#streams) stream?._pause();
    }
    if (this.#resolve === undefined) return;
    if (this.#back.length > 0) this.#answer({ value: this.#turn(), done: false });
    else if (this.#over) this.#answer(DONE);
  }

  /** The engine is closed, and the stream with it. */
  _close(slot) {
    const words = new Int32Array(WORDS);
    words[0] = slot;
    words[1] = EVENT_FAILED;
    words[2] = words[6] = -1;
    this._event(words, 0, undefined);
  }
}

module.exports = { Group, Pieces };
