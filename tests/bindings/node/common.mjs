// What the tests share: the package as the build made it, the model, the program that judges.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

export const folder = process.env.RUNNEL_PACKAGE;
export const runnel = await import(path.join(folder, 'index.mjs'));
export const required = createRequire(import.meta.url)(folder);
export const { Engine, RunnelError, AbortError, constants } = runnel;
export const modelPath = path.resolve('examples/models/runnel-tiny-Q8_0.gguf');
export const sanitized = (process.env.RUNNEL_SANITIZE ?? '') !== '';

/** What the program prints. */
export function program(...args) {
  const { LD_PRELOAD, ...env } = process.env; // of a sanitizer, which is for the addon
  return execFileSync(process.env.RUNNEL_PROGRAM, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], env });
}

/** A file of the folder that all checkouts share (tests/support/shared.h). Without that folder undefined, and the tests
 * end as skipped. */
export function sharedFile(name) {
  const at = process.env.RUNNEL_SHARED ?? '../shared';
  if (fs.existsSync(path.join(at, 'oracles'))) return path.join(at, name);
  console.log(`skipped: there is no ${name} in ${at}`);
  process.exitCode = 77; // a test that fails makes it 1
  return undefined;
}

/** Runs body(model, engine) on a new engine of each transport, and closes it. */
export async function withModel(body, options = {}, modelOptions = {}) {
  for (const transport of options.transport ? [options.transport] : ['thread', 'uv']) {
    const engine = new Engine({ computeThreads: 1, ...options, transport });
    try {
      await body(await engine.loadModel(modelPath, modelOptions), engine);
    } finally {
      await engine.close();
    }
  }
}

/** Numbers between 0 and 1, the same each time: xorshift. */
export function coin(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 32;
  };
}

/** Waits until none of what the WeakRefs held is there; the test's own time limit judges. */
export async function collected(references) {
  do {
    await new Promise((resolve) => setTimeout(resolve, 2)); // what was asked for is held until its job ends
    globalThis.gc();
  } while (references.some((reference) => reference.deref() !== undefined));
}

/** Waits until the condition holds; the test's own time limit judges. */
export async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}
