// Types of the package. Options are those of the library's structs in camelCase; include/ explains each.

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
  like?: string;
  with?: string;
  without?: string;
  activation?: string;
  ffnNorm?: string;
  unused?: string[];
  windowPeriod?: number;
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
  transport?: 'thread' | 'uv';
  /** How long pieces may be held back behind the last wake, in microseconds, with one stream: 10000. With n streams it is
   * 1 + n / 16 times that, five times at most. Not with transport 'uv'. */
  holdUs?: number;
  /** How long events gather before they wake the loop again, in microseconds; 1000 by default. */
  gatherUs?: number;
  schedulerThreads?: number;
  computeThreads?: number;
  maxStreams?: number;
  maxSessions?: number;
  delivery?: never;
  logLevel?: LogLevel | number;
  maxQueuedTokens?: Count;
  maxQueuedBytes?: Count;
  architectures?: ArchitectureRow[];
  deviceLibrary?: string;
  computeNice?: number;
  onLog?: (level: LogLevel, line: string) => void;
  onTrace?: (span: Span) => void;
}

/** A file, or a file and what its effect is multiplied by; 1 by default. */
export type AdapterSource = string | URL | Uint8Array | { path: string | URL | Uint8Array; scale?: number };

export interface Adapter {
  name: string;
  path: string;
  scale: number;
}

export interface ModelOptions {
  contextTokens?: number;
  batchTokens?: number;
  kvBytes?: Count;
  kvType?: KvType | number;
  chunkMean?: number;
  device?: 'cpu' | 'cuda' | 'auto' | 'reference' | (string & {});
  vocabOnly?: boolean;
  noPrefixCache?: boolean;
  maxSlowdown?: number;
  draftPath?: string;
  draftKvBytes?: Count;
  draftThreads?: number;
  draftMeasureMs?: number;
  cacheWarmBytes?: Count;
  cacheDir?: string;
  cacheColdBytes?: Count;
  cacheCodec?: 'none' | 'bits' | 'lz4' | 'zstd' | (string & {});
  cacheShared?: string;
  cacheSharedCa?: string;
  cacheSharedCert?: string;
  cacheSharedKey?: string;
  weightOrder?: 'measured' | 'file' | 'tiles' | number;
  boundWindows?: boolean | number;
  weightsDir?: string;
  deviceLayers?: number;
  deviceExpertBytes?: Count;
  /** LoRA adapters by the names that requests give: docs/ADAPTERS.md. */
  adapters?: Record<string, AdapterSource> | Map<string, AdapterSource>;
}

export interface LoadOptions extends ModelOptions {
  onProgress?: (fraction: number) => void;
  signal?: AbortSignal;
}

export interface GrammarFlags {
  freeWhite?: boolean;
  anyOrder?: boolean;
  closed?: boolean;
  oneOfAsAnyOf?: boolean;
  allowUnenforced?: boolean;
  freeReasoning?: boolean;
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
    | { kind: number | string; text?: string; choices?: string[] }
  );

export interface Message {
  role: string;
  content: string | null | object[];
  [more: string]: unknown;
}

export interface ChatOptions {
  messages?: Message[];
  messagesJson?: string;
  tools?: object[] | string;
  variables?: object | string;
  templateText?: string;
  templateName?: string;
  nowS?: Count;
  noGenerationPrompt?: boolean;
  singleCall?: boolean;
  continueFinal?: boolean;
  toolChoice?: 'auto' | 'none' | 'required' | (string & {});
}

export interface SamplingOptions {
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  penaltyTokens?: number;
  seed?: Count;
  biases?: Map<number, number> | Record<number, number> | [number, number][];
  order?: string;
  dryBreakers?: string[];
  minTokens?: number;
  penaltyScope?: 'all' | 'answer' | number;
  dryMultiplier?: number;
  dryBase?: number;
  dryAllowedLength?: number;
  dryTokens?: number;
  topNSigma?: number;
  typicalP?: number;
  xtcProbability?: number;
  xtcThreshold?: number;
  temperatureRange?: number;
  temperatureExponent?: number;
  mirostat?: 0 | 1 | 2;
  mirostatTau?: number;
  mirostatEta?: number;
  adaptiveTarget?: number;
  adaptiveDecay?: number;
  logprobsAfter?: 0 | 1;
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
  prompt?: string | Uint8Array;
  tokens?: Int32Array | number[];
  session?: Session | bigint;
  maxTokens?: Count;
  stops?: string | string[];
  stopTokens?: Int32Array | number[];
  label?: string;
  cacheSalt?: Count;
  tenant?: Count;
  priority?: number;
  deadlineMs?: number;
  nTop?: number;
  /** A stream whose reader is behind joins the tokens that wait, which then have no ids: `token` is -1, and `tokens` of
   * the result lacks them. */
  coalesceBytes?: number;
  draft?: 'none' | 'ngram' | 'model' | ('ngram' | 'model')[] | number;
  draftMax?: number;
  cacheWait?: 'bestEffort' | 'wait' | 'deadline' | number;
  cacheWaitMs?: number;
  parseSpecial?: boolean;
  ignoreEos?: boolean | 0 | 1 | 2;
  wantLogprobs?: boolean;
  wantProgress?: boolean;
  /** Not with generate(), whose result has no logits. */
  wantLogits?: boolean;
  rawAnswer?: boolean;
  pinPrefix?: boolean | 0 | 1 | 2;
  draftShare?: boolean;
  draftChain?: boolean;
  keepStop?: boolean;
  contextKeep?: Count;
  grammar?: Grammar;
  /** One of the model's adapters by its name; null: none. */
  adapter?: string | null;
}

export interface Ending {
  signal?: AbortSignal;
  /** What the signal does: rejects with AbortError (default), or ends as cancel() does. */
  onAbort?: 'throw' | 'return';
}

export interface GenerateOptions extends RequestOptions, Ending {
  /** The host's sampler: the place of a candidate; undefined goes on with the logits as they are. */
  choose?: (candidates: Candidates) => number | undefined | void | Promise<number>;
}

export interface StreamOptions extends GenerateOptions {
  /** Pieces that wait unread until the stream is paused; 64. With a group: the group's. */
  highWater?: number;
  /** The pieces come in the group's loop instead. */
  group?: Group;
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
  readable(options?: { bytes?: false }): ReadableStream<string>;
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
  text?: string | Uint8Array;
  tokens?: Int32Array | number[];
  label?: string;
  cacheSalt?: Count;
  tenant?: Count;
  priority?: number;
  deadlineMs?: number;
  pooling?: 'default' | 'mean' | 'first' | 'last' | number;
  dimensions?: number;
  parseSpecial?: boolean;
  wantProgress?: boolean;
  raw?: boolean;
  adapter?: string | null;
}

export interface ScoreOptions extends Ending {
  query?: string | Uint8Array;
  text?: string | Uint8Array;
  tokens?: Int32Array | number[];
  label?: string;
  cacheSalt?: Count;
  tenant?: Count;
  priority?: number;
  deadlineMs?: number;
  form?: 'ofModel' | 'logits' | 'probabilities' | number;
  parseSpecial?: boolean;
  wantProgress?: boolean;
  adapter?: string | null;
}

export interface Infill {
  prefix?: string;
  suffix?: string;
  repository?: string;
  name?: string;
  files?: { name?: string; text: string }[];
  suffixFirst?: boolean;
}

export interface Template {
  name: string;
  format: string;
  bytes: Count;
  knows: ('system' | 'tools' | 'reasoning' | 'thinking' | 'parts')[];
}

export interface SessionFileOptions {
  note?: string | Uint8Array;
  label?: string;
  signal?: AbortSignal;
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
}

export interface TokenizeOptions {
  bos?: boolean;
  special?: boolean;
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
  importSession(path: string | URL | Uint8Array, options?: { cacheSalt?: Count; label?: string; signal?: AbortSignal }): Promise<Session>;
  tokenize(text: string | Uint8Array, options?: TokenizeOptions): Promise<Int32Array>;
  tokenizeSync(text: string | Uint8Array, options?: TokenizeOptions): Int32Array;
  detokenize(tokens: Int32Array | number[], options?: { special?: boolean; bytes?: false }): Promise<string>;
  detokenize(tokens: Int32Array | number[], options: { special?: boolean; bytes: true }): Promise<Uint8Array>;
  detokenizeSync(tokens: Int32Array | number[], options?: { special?: boolean; bytes?: false }): string;
  detokenizeSync(tokens: Int32Array | number[], options: { special?: boolean; bytes: true }): Uint8Array;
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
  steps?: number;
  textTokens?: number;
  texts?: number;
  unroll?: number;
  layers?: number[];
  rate?: number;
  seed?: Count;
  state?: string;
  resume?: boolean;
  signal?: AbortSignal;
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
  group(options?: { highWater?: number }): Group;
  /** Refuses new requests, and waits until those that run have ended. One that nobody reads is paused: it does not. */
  drain(): Promise<void>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class ModelFile {
  static open(path: string | URL | Uint8Array): Promise<ModelFile>;
  readonly info: Record<string, Count>;
  metadata(index: number, options?: { elements?: number }): { key: string; type: string; count: Count; value: string | string[] };
  tensor(index: number): { name: string; type: string; nDims: number; part: number; dims: Count[]; bytes: Count; offset: Count };
  setArchitectures(rows: ArchitectureRow[]): void;
  kvBytesPerToken(kvType?: KvType | number): Count;
  templates(): Template[];
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
  inspect(path: string | URL | Uint8Array, fingerprint?: string): Promise<
    { id: Count; parent: Count; salt: Count; tokens: Int32Array; depth: number; bytes: number }[]
  >;
  verify(path: string | URL | Uint8Array, fingerprint?: string): Promise<
    CacheTotals & { damages: { fingerprint: string; file: string; offset: Count; bytes: Count; what: string }[] }
  >;
  purge(path: string | URL | Uint8Array, options?: { fingerprint?: string; salt?: Count; keepBytes?: Count; bySalt?: boolean }): Promise<CacheTotals>;
};

export function renderTemplate(text: string, context?: object | string, options?: { nowS?: number }): Promise<string>;
export function inspectTemplate(text: string): Promise<Template>;
export function readSessionNote(path: string | URL | Uint8Array): Promise<Uint8Array>;
export function architectures(): { name: string; features: string }[];
export function nameOf(kind: 'status' | 'statusText' | 'event' | 'phase' | 'rest' | 'restText', number: number): string;
export const constants: Readonly<Record<string, number>>;
export const version: string;
