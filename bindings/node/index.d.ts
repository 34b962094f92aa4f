// Types of the package. Options are those of the library's structs in camelCase; include/ explains each. An option that
// is null is not given.

declare global {
  interface SymbolConstructor {
    /** As TypeScript's own library has it from 5.2 on. */
    readonly asyncDispose: unique symbol;
  }
}

export interface RunnelErrorCodes {
  code:
    | 'INVALID' | 'NO_MEMORY' | 'BUSY' | 'NOT_FOUND' | 'IO' | 'FORMAT' | 'UNSUPPORTED' | 'CONTEXT' | 'CANCELLED'
    | 'TIMEOUT' | 'CLOSED' | 'NUMERIC' | 'DEVICE' | 'STATE';
}

export class RunnelError extends Error {
  readonly code: RunnelErrorCodes['code'];
  readonly status: number;
  /** BUSY: when to come again, in milliseconds. */
  readonly retryMs?: number;
  /** What a stream had given before it failed. */
  readonly partial?: Answer;
}

export class AbortError extends Error {
  readonly name: 'AbortError';
  readonly code: 'ABORT_ERR';
  readonly cause: unknown;
  readonly partial?: Answer;
}

export type Count = number | bigint;
export type LogLevel = 'none' | 'error' | 'warning' | 'info' | 'debug';
export type KvType = 'f16' | 'f32' | 'bf16' | 'fp8' | 'q8' | 'q4' | 'q3';

export interface ArchitectureRow {
  name: string;
  like?: string | null;
  with?: string | null;
  without?: string | null;
  activation?: string | null;
  ffnNorm?: string | null;
  unused?: string[] | null;
  windowPeriod?: number | null;
}

export interface Span {
  kind: 'actor' | 'step' | 'request';
  track: number;
  name: string;
  model: string;
  messages: string;
  label: string;
  beginNs: Count;
  endNs: Count;
  stream: bigint;
  rows: number;
  sequences: number;
  promptTokens: number;
  tokens: number;
}

export interface EngineOptions {
  /** How events come: by a thread that wakes the loop (default), or by a handle of libuv on it. */
  transport?: 'thread' | 'uv' | null;
  /** How long pieces may be held back behind the last wake, in microseconds, with one stream: 10000. With n streams it
   * is 1 + n / 16 times that, five times at most. Not with transport 'uv'. */
  holdUs?: number | null;
  /** How long events gather before they wake the loop again, in microseconds; 1000 by default. */
  gatherUs?: number | null;
  schedulerThreads?: number | null;
  computeThreads?: number | null;
  maxStreams?: number | null;
  maxSessions?: number | null;
  delivery?: never;
  logLevel?: LogLevel | number | null;
  maxQueuedTokens?: Count | null;
  maxQueuedBytes?: Count | null;
  architectures?: ArchitectureRow[] | null;
  deviceLibrary?: string | null;
  computeNice?: number | null;
  onLog?: ((level: LogLevel, line: string) => void) | null;
  onTrace?: ((span: Span) => void) | null;
}

/** A file, or a file and what its effect is multiplied by; 1 by default. */
export type AdapterSource = string | URL | Uint8Array | { path: string | URL | Uint8Array; scale?: number | null };

export interface Adapter {
  name: string;
  path: string;
  scale: number;
}

export interface ModelOptions {
  contextTokens?: number | null;
  batchTokens?: number | null;
  kvBytes?: Count | null;
  kvType?: KvType | number | null;
  chunkMean?: number | null;
  device?: 'cpu' | 'cuda' | 'auto' | 'reference' | (string & {}) | null;
  vocabOnly?: boolean | null;
  noPrefixCache?: boolean | null;
  maxSlowdown?: number | null;
  draftPath?: string | null;
  draftKvBytes?: Count | null;
  draftThreads?: number | null;
  draftMeasureMs?: number | null;
  cacheWarmBytes?: Count | null;
  cacheDir?: string | null;
  cacheColdBytes?: Count | null;
  cacheCodec?: 'none' | 'bits' | 'lz4' | 'zstd' | (string & {}) | null;
  cacheShared?: string | null;
  cacheSharedCa?: string | null;
  cacheSharedCert?: string | null;
  cacheSharedKey?: string | null;
  weightOrder?: 'measured' | 'file' | 'tiles' | number | null;
  boundWindows?: boolean | number | null;
  weightsDir?: string | null;
  deviceLayers?: number | null;
  deviceExpertBytes?: Count | null;
  /** LoRA adapters by the names that requests give: docs/ADAPTERS.md. */
  adapters?: Record<string, AdapterSource> | Map<string, AdapterSource> | null;
}

export interface LoadOptions extends ModelOptions {
  onProgress?: ((fraction: number) => void) | null;
  signal?: AbortSignal | null;
}

export interface GrammarFlags {
  freeWhite?: boolean | null;
  anyOrder?: boolean | null;
  closed?: boolean | null;
  oneOfAsAnyOf?: boolean | null;
  allowUnenforced?: boolean | null;
  freeReasoning?: boolean | null;
}

export type Grammar = GrammarFlags &
  (
    | { schema: object | boolean | string }
    | { regex: string | Uint8Array }
    | { gbnf: string | Uint8Array }
    | { ebnf: string | Uint8Array }
    | { choices: string[] }
    | { json: true }
    | { jsonObject: true }
    | { kind: number | string; text?: string | null; choices?: string[] | null }
  );

export interface Message {
  role: string;
  content: string | null | object[];
  [more: string]: unknown;
}

export interface ChatOptions {
  messages?: Message[] | null;
  messagesJson?: string | null;
  tools?: object[] | string | null;
  variables?: object | string | null;
  templateText?: string | null;
  templateName?: string | null;
  nowS?: Count | null;
  noGenerationPrompt?: boolean | null;
  singleCall?: boolean | null;
  continueFinal?: boolean | null;
  toolChoice?: 'auto' | 'none' | 'required' | (string & {}) | null;
}

export interface SamplingOptions {
  temperature?: number | null;
  topK?: number | null;
  topP?: number | null;
  minP?: number | null;
  repetitionPenalty?: number | null;
  frequencyPenalty?: number | null;
  presencePenalty?: number | null;
  penaltyTokens?: number | null;
  seed?: Count | null;
  biases?: Map<number, number> | Record<number, number> | [number, number][] | null;
  order?: string | null;
  dryBreakers?: string[] | null;
  minTokens?: number | null;
  penaltyScope?: 'all' | 'answer' | number | null;
  dryMultiplier?: number | null;
  dryBase?: number | null;
  dryAllowedLength?: number | null;
  dryTokens?: number | null;
  topNSigma?: number | null;
  typicalP?: number | null;
  xtcProbability?: number | null;
  xtcThreshold?: number | null;
  temperatureRange?: number | null;
  temperatureExponent?: number | null;
  mirostat?: 0 | 1 | 2 | null;
  mirostatTau?: number | null;
  mirostatEta?: number | null;
  adaptiveTarget?: number | null;
  adaptiveDecay?: number | null;
  logprobsAfter?: 0 | 1 | null;
}

export interface Candidates {
  readonly tokens: Int32Array;
  /** They may be changed; -Infinity drops a candidate. */
  readonly logits: Float32Array;
  readonly position: Count;
  readonly sequence: Int32Array;
  /** The place that the samplers behind draw from the logits as they are now. */
  draw(): number;
}

export interface RequestOptions extends ChatOptions, SamplingOptions {
  prompt?: string | Uint8Array | null;
  tokens?: Int32Array | number[] | null;
  session?: Session | bigint | null;
  maxTokens?: Count | null;
  stops?: string | string[] | null;
  stopTokens?: Int32Array | number[] | null;
  label?: string | null;
  cacheSalt?: Count | null;
  tenant?: Count | null;
  priority?: number | null;
  deadlineMs?: number | null;
  nTop?: number | null;
  /** A stream whose reader is behind joins the tokens that wait, which then have no ids: `token` is -1, and `tokens` of
   * the result lacks them. */
  coalesceBytes?: number | null;
  draft?: 'none' | 'ngram' | 'model' | ('ngram' | 'model')[] | number | null;
  draftMax?: number | null;
  cacheWait?: 'bestEffort' | 'wait' | 'deadline' | number | null;
  cacheWaitMs?: number | null;
  parseSpecial?: boolean | null;
  ignoreEos?: boolean | 0 | 1 | 2 | null;
  wantLogprobs?: boolean | null;
  wantProgress?: boolean | null;
  /** Not with generate(), whose result has no logits. */
  wantLogits?: boolean | null;
  rawAnswer?: boolean | null;
  pinPrefix?: boolean | 0 | 1 | 2 | null;
  draftShare?: boolean | null;
  draftChain?: boolean | null;
  keepStop?: boolean | null;
  contextKeep?: Count | null;
  grammar?: Grammar | null;
  /** One of the model's adapters by its name; null: none. */
  adapter?: string | null;
}

export interface Ending {
  signal?: AbortSignal | null;
  /** What the signal does: rejects with AbortError (default), or ends as cancel() does. */
  onAbort?: 'throw' | 'return' | null;
}

export interface GenerateOptions extends RequestOptions, Ending {
  /** The host's sampler: the place of a candidate; undefined goes on with the logits as they are. */
  choose?: ((candidates: Candidates) => number | undefined | void | Promise<number>) | null;
}

export interface StreamOptions extends GenerateOptions {
  /** Pieces that wait unread until the stream is paused; 64. With a group: the group's. */
  highWater?: number | null;
  /** The pieces come in the group's loop instead. */
  group?: Group | null;
}

export interface Logprob {
  token: number;
  logprob: number;
}

export class Piece {
  readonly type:
    | 'text' | 'reasoning' | 'toolCall' | 'toolId' | 'toolArguments' | 'toolEnd' | 'progress' | 'logits' | 'embedding'
    | 'end';
  readonly text: string;
  /** -1: only text, or several tokens that were joined. */
  readonly token: number;
  /** How many tokens it is the first piece of. */
  readonly tokens: number;
  readonly toolCall: number;
  readonly shifts: number;
  readonly logprob?: number;
  readonly top?: Logprob[];
  /** progress: {done, total}; logits: {position, logits}. */
  readonly value?: { done: Count; total: Count } | { position: Count; logits: Float32Array } | Float32Array;
  toString(): string;
}

export interface Usage {
  promptTokens: Count;
  cachedTokens: Count;
  completionTokens: Count;
  draftedTokens: Count;
  acceptedTokens: Count;
  warmTokens: Count;
  coldTokens: Count;
  sharedTokens: Count;
  restedPasses: Count;
  rest: number;
  shifts: Count;
  shiftedTokens: Count;
}

export interface Timings {
  admittedUs: Count;
  firstTokenUs: Count;
  endUs: Count;
}

export interface ToolCall {
  name: string;
  id?: string;
  arguments: string;
}

export interface Answer {
  text: string;
  reasoning: string;
  /** Without those that were joined: coalesceBytes. */
  tokens: number[];
  toolCalls: ToolCall[];
  finish: 'stop' | 'length' | 'none' | 'cancelled' | 'failed';
  /** Which of `stops` ended it, by its index; -1: none. */
  stop: number;
  /** The token of `stopTokens` that ended it; -1: none. */
  stopToken: number;
  usage?: Usage;
  timings?: Timings;
  logprobs?: (Logprob & { top?: Logprob[] })[];
  embedding?: Float32Array;
}

export class Stream implements AsyncIterableIterator<Piece> {
  readonly id: bigint | undefined;
  readonly result: Promise<Answer>;
  cancel(): void;
  next(): Promise<IteratorResult<Piece>>;
  return(value?: unknown): Promise<IteratorResult<Piece>>;
  [Symbol.asyncIterator](): this;
  [Symbol.asyncDispose](): Promise<void>;
  readable(options?: { bytes?: false | null }): ReadableStream<string>;
  readable(options: { bytes: true }): ReadableStream<Uint8Array>;
}

/** What has come of a group's streams; valid until the next of them are asked for. */
export class Pieces implements Iterable<[Stream, Piece]> {
  readonly length: number;
  stream(i: number): Stream;
  /** 'end': the stream has ended, and its result is there. */
  type(i: number): Piece['type'];
  text(i: number): string;
  token(i: number): number;
  tokens(i: number): number;
  piece(i: number): Piece;
  [Symbol.iterator](): Iterator<[Stream, Piece]>;
}

/** Many streams in one loop, for which a piece is neither an object nor a promise. */
export class Group implements AsyncIterableIterator<Pieces> {
  /** No more streams: the loop ends with the last one. */
  end(): void;
  next(): Promise<IteratorResult<Pieces>>;
  return(value?: unknown): Promise<IteratorResult<Pieces>>;
  [Symbol.asyncIterator](): this;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface EmbedOptions extends Ending {
  text?: string | Uint8Array | null;
  tokens?: Int32Array | number[] | null;
  label?: string | null;
  cacheSalt?: Count | null;
  tenant?: Count | null;
  priority?: number | null;
  deadlineMs?: number | null;
  pooling?: 'default' | 'mean' | 'first' | 'last' | number | null;
  dimensions?: number | null;
  parseSpecial?: boolean | null;
  wantProgress?: boolean | null;
  raw?: boolean | null;
  adapter?: string | null;
}

export interface ScoreOptions extends Ending {
  query?: string | Uint8Array | null;
  text?: string | Uint8Array | null;
  tokens?: Int32Array | number[] | null;
  label?: string | null;
  cacheSalt?: Count | null;
  tenant?: Count | null;
  priority?: number | null;
  deadlineMs?: number | null;
  form?: 'ofModel' | 'logits' | 'probabilities' | number | null;
  parseSpecial?: boolean | null;
  wantProgress?: boolean | null;
  adapter?: string | null;
}

export interface Infill {
  prefix?: string | null;
  suffix?: string | null;
  repository?: string | null;
  name?: string | null;
  files?: { name?: string | null; text: string }[] | null;
  suffixFirst?: boolean | null;
}

export interface Template {
  name: string;
  format: string;
  bytes: Count;
  knows: ('system' | 'tools' | 'reasoning' | 'thinking' | 'parts')[];
}

export interface SessionFileOptions {
  note?: string | Uint8Array | null;
  label?: string | null;
  signal?: AbortSignal | null;
}

export interface ModelInfo {
  vocabTokens: number;
  contextTokens: number;
  trainedTokens: number;
  embedding: number;
  layers: number;
  bos: number;
  eos: number;
  addBos: number;
  parameters: Count;
  weightBytes: Count;
  kvBytes: Count;
  kvBytesPerToken: Count;
  blockTokens: number;
  chunkMean: number;
  kvBytesLongest: Count;
  draftParameters: Count;
  draftKvBytes: Count;
  tiledBytes: Count;
  mappedBytes: Count;
  deviceLayers: number;
  deviceExperts: number;
  deviceExpertBytes: Count;
  stateBytes: Count;
  draftWeightBytes: Count;
}

export interface TokenizeOptions {
  bos?: boolean | null;
  special?: boolean | null;
}

export class Model {
  readonly engine: Engine;
  readonly info: ModelInfo;
  readonly adapters: Adapter[];
  readonly scores: { nScores: number; nLabels: number; ofTokens: number; hasTemplate: number; labels: string[] };
  stream(options: StreamOptions): Stream;
  generate(options: GenerateOptions): Promise<Answer>;
  embed(options: string | Uint8Array | EmbedOptions): Promise<Answer & { embedding: Float32Array }>;
  score(options: ScoreOptions): Promise<{ scores: Float32Array; usage: Usage; timings: Timings }>;
  session(): Session;
  importSession(
    path: string | URL | Uint8Array,
    options?: { cacheSalt?: Count | null; label?: string | null; signal?: AbortSignal | null },
  ): Promise<Session>;
  tokenize(text: string | Uint8Array, options?: TokenizeOptions): Promise<Int32Array>;
  tokenizeSync(text: string | Uint8Array, options?: TokenizeOptions): Int32Array;
  detokenize(
    tokens: Int32Array | number[],
    options?: { special?: boolean | null; bytes?: false | null },
  ): Promise<string>;
  detokenize(tokens: Int32Array | number[], options: { special?: boolean | null; bytes: true }): Promise<Uint8Array>;
  detokenizeSync(tokens: Int32Array | number[], options?: { special?: boolean | null; bytes?: false | null }): string;
  detokenizeSync(tokens: Int32Array | number[], options: { special?: boolean | null; bytes: true }): Uint8Array;
  /** With the space in front that detokenize leaves out where a text begins. */
  tokenText(token: number, options?: { special?: boolean | null; bytes?: false | null }): Promise<string>;
  tokenText(token: number, options: { special?: boolean | null; bytes: true }): Promise<Uint8Array>;
  tokenTextSync(token: number, options?: { special?: boolean | null; bytes?: false | null }): string;
  tokenTextSync(token: number, options: { special?: boolean | null; bytes: true }): Uint8Array;
  applyTemplate(chat: Message[] | ChatOptions): Promise<string>;
  applyTemplateSync(chat: Message[] | ChatOptions): string;
  tokenizeChat(chat: Message[] | ChatOptions): Promise<Int32Array>;
  tokenizeChatSync(chat: Message[] | ChatOptions): Int32Array;
  tokenizeInfill(infill: Infill): Promise<Int32Array>;
  tokenizeInfillSync(infill: Infill): Int32Array;
  checkGrammar(options: RequestOptions): Promise<void>;
  checkGrammarSync(options: RequestOptions): void;
  checkSampling(options: RequestOptions): Promise<void>;
  checkSamplingSync(options: RequestOptions): void;
  templates(): Template[];
  recommendedSampling(): SamplingOptions;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Session {
  readonly id: bigint;
  readonly model: Model;
  stream(options: StreamOptions): Stream;
  generate(options: GenerateOptions): Promise<Answer>;
  fork(): Session;
  export(path: string | URL | Uint8Array, options?: SessionFileOptions): Promise<Answer>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Histogram {
  edges: number[];
  counts: Count[];
  count: Count;
  sum: number;
}

export interface Metrics {
  [name: string]: Count | Count[] | Histogram;
}

export interface StreamInfo {
  stream: bigint;
  model: string;
  phase: 'QUEUED' | 'PREFILL' | 'DECODE' | 'FILE' | 'ENDED';
  paused: number;
  tokens: Count;
  label: string;
}

export interface Machine {
  computeThreads: number;
  memoryNodes: number;
  level: string;
  cpu: string;
  memoryBytes: Count;
  readBytesPerS: number;
  readMedianBytesPerS: number;
  integerOpsPerS: number;
  floatOpsPerS: number;
}

export interface DeviceInfo {
  nDevices: number;
  index: number;
  memoryBytes: Count;
  freeBytes: Count;
  name: string;
  capability: string;
  kernels: string;
  driver: string;
  why: string;
}

export interface EagleOptions {
  steps?: number | null;
  textTokens?: number | null;
  texts?: number | null;
  unroll?: number | null;
  layers?: number[] | null;
  rate?: number | null;
  seed?: Count | null;
  state?: string | null;
  resume?: boolean | null;
  signal?: AbortSignal | null;
}

export interface TrainingProgress {
  state: 'running' | 'done';
  step: number;
  steps: number;
  loss: number;
  accepted: number;
}

export class Engine {
  constructor(options?: EngineOptions);
  static open(options?: EngineOptions): Promise<Engine>;
  loadModel(path: string | URL | Uint8Array, options?: LoadOptions): Promise<Model>;
  stats(): Record<string, Count>;
  metrics(): Metrics;
  prometheus(): string;
  streams(): StreamInfo[];
  experts(): { model: string; blocks: Count[][]; hits: Count; misses: Count; fetchedBytes: Count }[];
  measure(): Promise<Machine>;
  device(name?: string): Promise<DeviceInfo>;
  trainEagle(
    model: string | URL | Uint8Array, corpus: string | Uint8Array, head: string | URL | Uint8Array, options?: EagleOptions,
  ): AsyncGenerator<TrainingProgress, void, void>;
  /** highWater: pieces that wait unread until the streams are paused; 4096. */
  group(options?: { highWater?: number | null }): Group;
  /** Refuses new requests, and waits until those that run have ended. One that nobody reads is paused: it does not. */
  drain(): Promise<void>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class ModelFile {
  static open(path: string | URL | Uint8Array): Promise<ModelFile>;
  readonly info: Record<string, Count>;
  metadata(
    index: number,
    options?: { elements?: number | null },
  ): { key: string; type: string; count: Count; value: string | string[] };
  tensor(index: number): { name: string; type: string; nDims: number; part: number; dims: Count[]; bytes: Count; offset: Count };
  setArchitectures(rows: ArchitectureRow[]): void;
  kvBytesPerToken(kvType?: KvType | number): Count;
  templates(): Promise<Template[]>;
  templatesSync(): Template[];
  recommendedSampling(): SamplingOptions;
  plan(): string;
  close(): void;
}

export interface CacheTotals {
  fingerprints: Count;
  segments: Count;
  records: Count;
  bytes: Count;
  damaged: Count;
  foreign: Count;
}

export const cache: {
  ls(path: string | URL | Uint8Array): Promise<CacheTotals & { entries: (Record<string, Count | string>)[] }>;
  inspect(path: string | URL | Uint8Array, fingerprint?: string | null): Promise<
    { id: Count; parent: Count; salt: Count; tokens: Int32Array; depth: number; bytes: number }[]
  >;
  verify(path: string | URL | Uint8Array, fingerprint?: string | null): Promise<
    CacheTotals & { damages: { fingerprint: string; file: string; offset: Count; bytes: Count; what: string }[] }
  >;
  purge(
    path: string | URL | Uint8Array,
    options?: {
      fingerprint?: string | null;
      salt?: Count | null;
      keepBytes?: Count | null;
      bySalt?: boolean | null;
    } | null,
  ): Promise<CacheTotals>;
};

export function renderTemplate(
  text: string,
  context?: object | string,
  options?: { nowS?: number | null },
): Promise<string>;
export function inspectTemplate(text: string): Promise<Template>;
export function readSessionNote(path: string | URL | Uint8Array): Promise<Uint8Array>;
export function architectures(): { name: string; features: string }[];
export function nameOf(kind: 'status' | 'statusText' | 'event' | 'phase' | 'rest' | 'restText', number: number): string;
export const constants: Readonly<Record<string, number>>;
export const version: string;
