'use strict';
// A status of the library is an error with its name as `code`.

/** One class for each global object, however often this file is evaluated: test runners empty require's cache. */
function once(made) {
  const key = Symbol.for(`runnel.${made.name}`);
  if (globalThis[key] === undefined) Object.defineProperty(globalThis, key, { value: made });
  return globalThis[key];
}

const RunnelError = once(class RunnelError extends Error {
  constructor(code, status, message, retryMs) {
    super(message);
    this.code = code;
    this.status = status;
    if (retryMs > 0) this.retryMs = retryMs;
  }

  get name() {
    return 'RunnelError';
  }
});

/** What an AbortSignal ends with. `partial` is the result so far, where there is one. */
const AbortError = once(class AbortError extends Error {
  constructor(reason, partial) {
    super('The operation was aborted', { cause: reason });
    this.code = 'ABORT_ERR';
    if (partial !== undefined) this.partial = partial;
  }

  get name() {
    return 'AbortError';
  }
});

const makeError = (code, status, message, retryMs) => new RunnelError(code, status, message, retryMs);

/** An AbortSignal, or undefined. */
function checkSignal(signal) {
  if (signal === undefined) return;
  if (typeof signal?.addEventListener !== 'function' || typeof signal.removeEventListener !== 'function')
    throw invalid('signal must be an AbortSignal');
}

function invalid(message) {
  return new RunnelError('INVALID', -1, message, 0);
}

module.exports = { RunnelError, AbortError, makeError, invalid, checkSignal };
