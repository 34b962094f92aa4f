'use strict';
// The base of what holds something of the addon: structuredClone and postMessage throw DataCloneError, where a plain
// object with private members would arrive in the other thread as {}.
//
// HTML lets nothing be cloned that has an internal slot unknown to it, and each of these has one, being made by WeakRef's
// constructor. It is no WeakRef otherwise, and shows none of it: the prototype is a plain one. Node has
// markAsUncloneable for this from 22.10 on only.

class Uncloneable extends WeakRef {
  constructor() {
    super(Uncloneable);
  }
}

Object.setPrototypeOf(Uncloneable.prototype, Object.prototype);

module.exports = { Uncloneable };
