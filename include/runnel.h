/* runnel: token streams from language models on your own event loop.
 *
 * In short:
 *
 *     runnel_engine *engine;  runnel_engine_new(NULL, &engine, NULL);
 *     runnel_model *model;    runnel_model_load(engine, "model.gguf", NULL, &model, NULL);
 *     runnel_request r;       runnel_request_default(&r);
 *     r.prompt = "Once upon a time"; r.prompt_bytes = 16; r.on_event = print;
 *     runnel_stream s;        runnel_generate(model, &r, &s, NULL);
 *
 * and then let your loop call runnel_engine_dispatch() whenever runnel_engine_fd() is readable, or
 * attach a libuv loop (runnel_uv.h), or call runnel_stream_next(), or let a thread of the engine
 * deliver (runnel_engine_options.delivery).
 *
 * Rules that hold everywhere
 *  - Threads: every function may be called from any thread, and inside any callback, unless its
 *    comment says otherwise. Callbacks of one engine never run on two threads at once.
 *  - A function that returns an error has done nothing and calls nothing back. A submit that
 *    returns RUNNEL_OK ends in exactly one terminal event: done, cancelled or failed.
 *  - Nothing here blocks, but for the functions that say so.
 *  - Pointers handed to a callback are valid until it returns. Pointers handed to a function are
 *    copied before it returns, unless its comment says otherwise.
 *  - Parameter structs start with struct_size and are filled by their _default() function.
 *  - The library never exits, prints, forks, reads the environment or installs a signal handler. Where the processor
 *    has AMX it asks the kernel for those registers: signal stacks then need sysconf(_SC_MINSIGSTKSZ) bytes.
 *
 * What is done with files and without streams is in runnel_files.h: a look into a model file, cache folders, heads. */
#ifndef RUNNEL_H
#define RUNNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RUNNEL_API __attribute__((visibility("default")))
#else
#define RUNNEL_API
#endif

#define RUNNEL_VERSION_MAJOR 0
#define RUNNEL_VERSION_MINOR 1
#define RUNNEL_VERSION_PATCH 0

/* "0.1.0" of the library in use, which may be newer than this header. */
RUNNEL_API const char *runnel_version(void);

/* ---- Status and errors ------------------------------------------------------------------- */

/* name, value, sentence */
#define RUNNEL_STATUS_MAP(X)                                                      \
    X(OK, 0, "success")                                                           \
    X(INVALID, -1, "an argument is invalid")                                      \
    X(NO_MEMORY, -2, "the allocator refused memory")                              \
    X(BUSY, -3, "a limit is reached; try again later")                            \
    X(NOT_FOUND, -4, "there is no such thing")                                    \
    X(IO, -5, "a file could not be read or written")                              \
    X(FORMAT, -6, "a file is malformed")                                          \
    X(UNSUPPORTED, -7, "the file asks for something this build does not support") \
    X(CONTEXT, -8, "the prompt does not fit the context")                         \
    X(CANCELLED, -9, "cancelled by the host")                                     \
    X(TIMEOUT, -10, "the time given has passed")                                  \
    X(CLOSED, -11, "the engine or model is being closed")                         \
    X(NUMERIC, -12, "the model produced logits that are not numbers")             \
    X(DEVICE, -13, "the compute device failed")                                   \
    X(STATE, -14, "not allowed in this state")

#define RUNNEL_STATUS_ENUM(name, value, sentence) RUNNEL_##name = value,
typedef enum runnel_status { RUNNEL_STATUS_MAP(RUNNEL_STATUS_ENUM) RUNNEL_STATUS_MAX_ = 0x7fffffff } runnel_status;
#undef RUNNEL_STATUS_ENUM

RUNNEL_API const char *runnel_status_name(runnel_status status); /* "NO_MEMORY" */
RUNNEL_API const char *runnel_status_text(runnel_status status); /* "the allocator refused memory" */

#define RUNNEL_ERROR_BYTES 256

/* Where a function takes a `runnel_error *` it may be NULL; on failure it gets the code and one
 * sentence that names the file, tensor, key or parameter at fault. */
typedef struct runnel_error {
    runnel_status status;
    char message[RUNNEL_ERROR_BYTES];
    uint32_t retry_ms; /* BUSY: when it may be worth while to try again, estimated; else 0 */
} runnel_error;

/* ---- Handles ----------------------------------------------------------------------------- */

typedef struct runnel_engine runnel_engine; /* threads, memory, device */
typedef struct runnel_model runnel_model;   /* one loaded file; several per engine */

/* Ids carry a generation: one that has ended is recognised, never mistaken for a newer one. */
typedef struct runnel_stream {
    uint64_t id; /* 0 is never a stream */
} runnel_stream;
typedef struct runnel_session {
    uint64_t id; /* 0 is never a session */
} runnel_session;

/* ---- Engine ------------------------------------------------------------------------------ */

/* alloc: `bytes` aligned to `alignment` (a power of two), or NULL. free: gets the same size back.
 * Both may be called from any thread. */
typedef struct runnel_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *ptr, size_t bytes);
    void *user;
} runnel_allocator;

typedef enum runnel_log_level {
    RUNNEL_LOG_NONE = 0,
    RUNNEL_LOG_ERROR = 1,
    RUNNEL_LOG_WARNING = 2,
    RUNNEL_LOG_INFO = 3,
    RUNNEL_LOG_DEBUG = 4
} runnel_log_level;

/* One line without a newline; called on any thread. */
typedef void (*runnel_log_fn)(void *user, runnel_log_level level, const char *line);

typedef enum runnel_trace_kind {
    RUNNEL_TRACE_ACTOR = 0,  /* an actor handled a batch of messages */
    RUNNEL_TRACE_STEP = 1,   /* a forward pass, from submit to end */
    RUNNEL_TRACE_REQUEST = 2 /* a phase of a request */
} runnel_trace_kind;

/* Something that has a beginning and an end; told after its end. */
typedef struct runnel_trace_event {
    runnel_trace_kind kind;
    uint32_t track;       /* ACTOR: the actor's number, STEP: its model's decode actor's. What has one kind and track
                             never overlaps */
    const char *name;     /* ACTOR: "decode", "tier", ...; STEP: "step"; REQUEST: "queued", "prefill", "decode" */
    const char *model;    /* its file's name without ".gguf"; "" for the router */
    const char *messages; /* ACTOR: what it handled: "CREDIT 2, SAMPLED"; else "" */
    uint64_t begin_ns, end_ns;               /* of a monotonic clock */
    uint64_t stream;                         /* REQUEST: runnel_stream.id */
    uint32_t rows, sequences, prompt_tokens; /* STEP: rows in all, of how many sequences, and those of prompts */
    uint32_t tokens;                         /* STEP: tokens that were drawn; REQUEST: of prompt and answer so far */
} runnel_trace_event;

/* Called a moment after the end, not always in its order. Pointers are valid until it returns, but for `name` and
 * `model`: those until the engine is freed. On a thread of the engine or inside runnel_engine_free, never on two at
 * once. It must not call the library. */
typedef void (*runnel_trace_fn)(void *user, const runnel_trace_event *event);

typedef enum runnel_delivery {
    RUNNEL_DELIVER_HOST = 0,  /* callbacks run inside runnel_engine_dispatch (fd or libuv) */
    RUNNEL_DELIVER_THREAD = 1 /* callbacks run on a thread of the engine */
} runnel_delivery;

typedef struct runnel_engine_options {
    size_t struct_size;
    uint32_t scheduler_threads; /* threads that run actors; 0: chosen (1) */
    uint32_t compute_threads;   /* threads of the CPU compute team; 0: one per physical core allowed */
    uint32_t max_streams;       /* streams alive at once over all models; more are refused with BUSY; 0: 1024 */
    uint32_t max_sessions;      /* sessions alive at once; 0: 1024 */
    runnel_delivery delivery;
    runnel_allocator allocator; /* all zero: the default allocator */
    runnel_log_fn on_log;       /* NULL: silent */
    void *log_user;
    runnel_log_level log_level;
    uint64_t max_queued_tokens; /* tokens of prompts that wait for their turn, over all models; a submit that goes
                                   beyond is refused with BUSY, but for one that finds none waiting. A prompt's text
                                   counts by its bytes until it is tokens. 0: no limit */
    uint64_t max_queued_bytes;  /* likewise, memory of requests (prompt, stops, tokens) that have not ended; 0: no
                                   limit */
    runnel_trace_fn on_trace;   /* NULL: nothing is traced, and it costs nothing */
    void *trace_user;
} runnel_engine_options;

RUNNEL_API void runnel_engine_options_default(runnel_engine_options *options);

/* Starts the threads. options NULL: defaults. */
RUNNEL_API runnel_status runnel_engine_new(const runnel_engine_options *options, runnel_engine **engine,
                                           runnel_error *error);

/* Cancels every stream, load and training, delivers their terminal events on this thread, joins the
 * threads and frees everything: its models, too, whose handles are invalid from then on, as the ids of
 * sessions and streams are. Nothing has to be freed before it. Blocks for at most the step that is running,
 * of a training one of learning. Inside a callback of this engine it is carried out when the callback's dispatch
 * returns; `engine` is invalid after either. NULL is allowed. */
RUNNEL_API void runnel_engine_free(runnel_engine *engine);

/* Takes no more requests, for good: submits are refused with CLOSED. Blocks until every stream has ended and its end
 * was delivered, at most timeout_ms (0: does not block; negative: for ever), and runs callbacks on this thread
 * meanwhile. TIMEOUT: some have not ended; they go on, runnel_engine_free would cancel them. Inside a callback it does
 * not block. CLOSED: a callback has freed the engine. */
RUNNEL_API runnel_status runnel_engine_drain(runnel_engine *engine, int64_t timeout_ms);

/* A file descriptor that polls readable while events wait to be dispatched. Owned by the engine. */
RUNNEL_API int runnel_engine_fd(runnel_engine *engine);

/* Runs the callbacks of at most max_events waiting events (0: all that wait now) on this thread and
 * returns how many ran. One thread at a time: a second caller gets 0 at once, as does one inside a
 * callback. Not for RUNNEL_DELIVER_THREAD (returns 0). */
RUNNEL_API size_t runnel_engine_dispatch(runnel_engine *engine, size_t max_events);

/* Blocks until events wait to be dispatched or timeout_ms has passed (negative: for ever).
 * RUNNEL_OK or RUNNEL_TIMEOUT. For hosts without a loop: wait, dispatch, repeat. */
RUNNEL_API runnel_status runnel_engine_wait(runnel_engine *engine, int64_t timeout_ms);

/* What counts up does so as long as the engine lives, models that have been freed included: it is the sum of what
 * runnel_metrics has of each. */
typedef struct runnel_engine_stats {
    size_t struct_size; /* set by the caller to sizeof(runnel_engine_stats) */
    uint64_t streams;   /* not yet ended, or ended with events not yet delivered */
    uint64_t sessions;
    uint64_t models;
    uint64_t messages;    /* in mailboxes or being handled */
    uint64_t blocks_used; /* KV blocks that requests or sessions hold, all models; what only the cache holds is
                             free to be had */
    uint64_t blocks_total;
    uint64_t heap_bytes;           /* from the allocator, now */
    uint64_t steps;                /* forward passes done */
    uint64_t prompt_tokens;        /* positions prefilled */
    uint64_t tokens;               /* tokens generated */
    uint64_t prefix_hit_tokens;    /* tokens of admitted prompts whose KV was there: in the prefix cache or the
                                      session ... */
    uint64_t prefix_missed_tokens; /* ... and the others */
    double prefix_ceiling;   /* share of the prompts' whole blocks that an endless cache would have had (estimated),
                                in [0, 1] */
    uint64_t evicted_blocks; /* taken from the prefix cache for other use */
    uint64_t preemptions;    /* running requests that had to give their blocks to others for a while */
    uint64_t queued_tokens;  /* of prompts that wait for their turn */
    uint64_t queued_bytes;   /* of requests that have not ended */
} runnel_engine_stats;

RUNNEL_API void runnel_engine_get_stats(runnel_engine *engine, runnel_engine_stats *stats);

/* ---- Metrics ----------------------------------------------------------------------------- */

#define RUNNEL_HISTOGRAM_EDGES 24

typedef struct runnel_histogram {
    uint32_t n_edges;
    double edges[RUNNEL_HISTOGRAM_EDGES];        /* [n_edges], ascending: seconds where the field ends in _s */
    uint64_t counts[RUNNEL_HISTOGRAM_EDGES + 1]; /* [n_edges + 1]: of values above edges[i - 1] and not above
                                                    edges[i] */
    uint64_t count;                              /* of all values: the sum of counts */
    double sum;
} runnel_histogram;

#define RUNNEL_MAX_DRAFTS 16

/* Of all models the engine has had. docs/METRICS.md tells each more closely. */
typedef struct runnel_metrics {
    size_t struct_size; /* set by the caller to sizeof(runnel_metrics) */
    /* Since the engine began. */
    uint64_t requests;          /* accepted */
    uint64_t stopped, length;   /* done, by reason of their end ... */
    uint64_t cancelled, failed; /* ... and the others that have ended */
    uint64_t refused;           /* not accepted: BUSY */
    uint64_t tokens;            /* generated */
    uint64_t prompt_tokens;     /* positions of prompts computed */
    uint64_t steps;
    uint64_t prefix_queries, prefix_hits; /* tokens of admitted prompts; those of them that were cached */
    uint64_t evicted_blocks;
    uint64_t preemptions;              /* requests that went back to waiting, for others of more right to the KV
                                          blocks */
    uint64_t trace_dropped;            /* trace events that found no room */
    uint64_t drafted, accepted;        /* tokens that were guessed and verified, and those that were right */
    uint64_t branched, branched_right; /* of them: runners-up of a guess, verified beside it */
    uint64_t drafts;                   /* how often a sequence took guesses into a pass: each time it got one token and
                                          those of its guesses that were right */
    uint64_t drafted_at[RUNNEL_MAX_DRAFTS];  /* drafted by place: the first guess of a pass, the second ... */
    uint64_t accepted_at[RUNNEL_MAX_DRAFTS]; /* ... and so many of each place were right, with all before them */
    uint64_t draft_passes, draft_us; /* of the model's drafter: passes, and their time, which is a share of what has
                                        passed meanwhile: time in drafting ... */
    uint64_t draft_beside_us;        /* ... of it, time in which the model computed too: the overlap achieved */
    uint64_t draft_branches, draft_branches_right; /* second lines that a drafter with threads of its own began in case
                                                      that its likeliest is refuted, and those that came true */
    uint64_t warm_hits, cold_hits, shared_hits;    /* of prefix_hits: tokens from the lower tiers of the cache */
    uint64_t warm_bytes_in, warm_bytes_out;        /* packed bytes moved into each tier, and out of it */
    uint64_t cold_bytes_in, cold_bytes_out;
    uint64_t shared_bytes_in, shared_bytes_out;
    uint64_t cache_dropped; /* blocks that left the cache although no lower tier had them yet */
    uint64_t cache_unpaid;  /* of those, blocks whose copy would have cost others too much */
    uint64_t cache_copy_us; /* processor time of copies into lower tiers */
    uint64_t cache_skipped; /* blocks that were not fetched, since computing them was faster */
    uint64_t cache_errors;  /* blocks that could not be moved */
    uint64_t cache_adopted; /* blocks that others have put into a lower tier meanwhile, and that can be
                               fetched from there */
    /* Now. */
    uint64_t warm_bytes, cold_bytes; /* that the tiers take */
    uint64_t shared_bytes;           /* of the blocks that are known to be in the shared tier */
    uint64_t cold_writes;            /* models that write to their cache folder; others read what there is */
    uint64_t running, waiting;       /* requests that are admitted, and that are not yet */
    uint64_t queued_tokens;          /* of prompts that wait */
    uint64_t sessions;
    uint64_t blocks_used, blocks_total; /* KV blocks */
    /* Of tokens and requests. Requests count when they are done, not if cancelled or failed; but queue_s at
     * admission. */
    runnel_histogram first_token_s; /* submit to first token */
    runnel_histogram inter_token_s; /* token to next token */
    runnel_histogram per_token_s;   /* mean of a request's inter_token_s */
    runnel_histogram queue_s;       /* submit to admission */
    runnel_histogram prefill_s;     /* admission to first token */
    runnel_histogram decode_s;      /* first to last token */
    runnel_histogram inference_s;   /* admission to last token */
    runnel_histogram request_s;     /* submit to end */
    runnel_histogram request_prompt_tokens;
    runnel_histogram request_computed_tokens; /* of the prompt, those that were not cached */
    runnel_histogram request_tokens;          /* generated */
    /* Of steps. */
    runnel_histogram step_s;    /* submit to end */
    runnel_histogram step_rows; /* positions computed */
    runnel_histogram step_sequences;
} runnel_metrics;

/* Reads every value by itself, while others change. INVALID: a pointer is NULL or struct_size is not of this
 * library. */
RUNNEL_API runnel_status runnel_engine_metrics(runnel_engine *engine, runnel_metrics *metrics);

/* The same for each model by name, in the text format of Prometheus (version 0.0.4), and what runnel_engine_stats
 * tells besides. Writes at most `capacity` bytes, the whole size to *bytes; not NUL-terminated. Numbers may grow by
 * digits between a call that measures and one that writes: leave some room, or call again. INVALID: a pointer is
 * NULL. */
RUNNEL_API runnel_status runnel_engine_prometheus(runnel_engine *engine, char *text, size_t capacity, size_t *bytes);

typedef struct runnel_machine {
    size_t struct_size;       /* set by the caller to sizeof(runnel_machine) */
    uint32_t compute_threads; /* of the engine's compute team */
    char level[16];           /* the instruction set it computes with: "avx512-amx", "avx512", "avx2", "neon", "c" */
    char cpu[64];             /* the processor's own name, or its architecture */
    uint64_t memory_bytes;    /* of the machine */
    double read_bytes_per_s;  /* reading memory in order, all threads: the best of several passes ... */
    double read_median_bytes_per_s; /* ... and the median one */
    double integer_ops_per_s;       /* 8-bit products summed in 32 bits; a multiply-add is two operations */
    double float_ops_per_s;         /* 32-bit fused multiply-adds, two operations each */
} runnel_machine;

/* What the engine's threads can do at most: the limits to hold a measured speed against. Reads memory of
 * a size well beyond the caches (up to 1 GiB, taken from the allocator and given back), then computes in
 * registers. Blocks for about a second; running streams go on between the passes, but only with none does the
 * result mean much. INVALID: engine or machine is NULL, or struct_size is not of this library. STATE: a measurement
 * of this engine is under way. CLOSED: the engine is being freed. NO_MEMORY: not even 32 MiB could be had. */
RUNNEL_API runnel_status runnel_engine_measure(runnel_engine *engine, runnel_machine *machine, runnel_error *error);

/* ---- Model ------------------------------------------------------------------------------- */

/* How keys and values are kept. Attention computes on them as they are stored; there is no second copy. */
typedef enum runnel_kv_type {
    RUNNEL_KV_F16 = 0,
    RUNNEL_KV_F32 = 1,
    RUNNEL_KV_BF16 = 2,
    RUNNEL_KV_FP8 = 3, /* E4M3, one byte a number, at most 448 */
    RUNNEL_KV_Q8 = 4,  /* groups of 32 numbers with an f16 scale and 8 bits each: 8.5 bits a number */
    RUNNEL_KV_Q4 = 5,  /* 4.5 bits; keys, queries and values are rotated by a Hadamard matrix */
    RUNNEL_KV_Q3 = 6   /* 3.5 bits; likewise */
} runnel_kv_type;

typedef enum runnel_load_state {
    RUNNEL_LOAD_PROGRESS = 0,  /* fraction in [0, 1] */
    RUNNEL_LOAD_READY = 1,     /* terminal */
    RUNNEL_LOAD_CANCELLED = 2, /* terminal */
    RUNNEL_LOAD_FAILED = 3     /* terminal; error says why */
} runnel_load_state;

typedef struct runnel_load_event {
    runnel_model *model;
    runnel_load_state state;
    float fraction;
    const runnel_error *error; /* NULL but for RUNNEL_LOAD_FAILED */
} runnel_load_event;

typedef void (*runnel_load_fn)(void *user, const runnel_load_event *event);

typedef struct runnel_model_options {
    size_t struct_size;
    uint32_t context_tokens; /* longest sequence; 0: the model's own, at most 8192 */
    uint64_t kv_bytes;       /* memory for KV blocks, shared by all streams; 0: room for 8 full contexts, at least
                                one, at most a quarter of the machine's memory */
    runnel_kv_type kv_type;
    uint32_t batch_tokens;  /* positions in one forward pass: prompt chunks and decoding together; 0: 256 */
    const char *device;     /* NULL or "cpu": the fast CPU path; "reference": plain C in double precision */
    uint8_t vocab_only;     /* 1: only what runnel_tokenize needs; generate is refused with STATE */
    runnel_load_fn on_load; /* NULL: no events; see runnel_model_wait */
    void *load_user;
    uint8_t no_prefix_cache; /* 0: requests that begin alike share what they begin with, by whole KV blocks, now or
                                later: it is computed once and stays in kv_bytes until the room is needed. The
                                answer is the same, bit for bit on the CPU. 1: each request computes its whole
                                prompt */
    float max_slowdown;      /* while answers are generated, prompts that come in are cut so small that a step takes
                                at most so many times as long as without them; above 1, 0: 2, INFINITY: prompts take
                                what batch_tokens leaves, which serves them soonest. Answers of negative priority do
                                not count */
    uint32_t chunk_mean;     /* 0: every position's keys and values are kept. Else a lossy compression, of any
                                kv_type: the last so many positions (rounded up to 64; a few more, up to 127) and
                                the first 64 are kept, each 64 others as one mean key and value, so that a sequence
                                of n positions takes the memory of about chunk_mean + batch_tokens + n / 64. A
                                sequence that fits gets the answer it would get without. Nothing is shared between
                                requests, and a session's turn computes its history again. docs/QUALITY.md says what
                                it costs; at most 2^28 */
    const char *draft_path;  /* NULL: none. A GGUF file of a smaller model with the same tokens; it is loaded too and
                                guesses the next tokens of requests that ask for it (RUNNEL_DRAFT_MODEL). Or a head
                                that was trained for this very file (runnel_eagle_train); "mtp": the file's own
                                prediction layers; "exit:N": the model's first N blocks. Not with chunk_mean */
    uint64_t draft_kv_bytes; /* memory for its KV blocks; 0: room for as many positions as the model has, at most an
                                eighth of the machine's memory. Streams for which there is none do not draft; what
                                they do not need holds what was read for sessions' next turns and the like */
    uint32_t draft_threads;  /* 0: it takes turns with the model on the compute threads. Else it has so many threads of
                                its own and guesses ahead while the model computes: for a machine with cores to
                                spare */
    uint64_t cache_warm_bytes; /* memory for packed KV blocks of prefixes that kv_bytes have no room for; 0: none. All
                                  three tiers (docs/TIERS.md) hold the prefix cache's blocks: without it, or with
                                  chunk_mean, they stay empty. The answer is the same to the bit wherever a prefix comes
                                  from; whatever fails, it is computed */
    const char *cache_dir; /* a folder for such blocks that outlive the process; it is made, but not what it lies in.
                              NULL: none. Several engines may share it: of those with one model one writes */
    uint64_t cache_cold_bytes; /* of cache_dir, for this model: at least 4 MiB; 0: 8 GiB */
    const char *cache_codec;   /* how blocks are packed in both: "none", "bits" (fast), "lz4", "zstd" (smallest); NULL:
                                  bits, but none for the quantised kv_types, which do not shrink */
    const char *cache_shared;  /* a Redis server for such blocks, so that engines on several machines share them:
                                  "redis://[[user]:password@]host[:port][/database]", "rediss://" and the same for
                                  TLS, or "unix:/path", all with "?ttl=SECONDS" if wanted; docs/TIERS.md has the whole.
                                  What others have put there is seen when the model is loaded. That it is away, or not
                                  who it should be, is no error, ever. NULL: none. An address that cannot be read fails
                                  the load with INVALID, a build without hiredis, or for rediss:// without OpenSSL, with
                                  UNSUPPORTED */
    const char *cache_shared_ca;   /* of rediss://: a PEM file with the certificate authorities that may vouch for the
                                      server; NULL: those of the system. Its certificate is always verified, and must be
                                      for the host of the address. These three are read at the load, where one that
                                      does not fit fails it with INVALID, and again for each new connection */
    const char *cache_shared_cert; /* a PEM file with the certificate, and what leads to its authority, by which we are
                                      known to the server; NULL: none */
    const char *cache_shared_key;  /* and with its key, without a passphrase; NULL: it is in cache_shared_cert */
} runnel_model_options;

RUNNEL_API void runnel_model_options_default(runnel_model_options *options);

/* Begins to load a GGUF file (of a split file: its first part) and returns at once. on_load gets
 * progress and one terminal event. The handle must be freed whatever the outcome. A path that
 * cannot be opened and options out of range are errors from this call. */
RUNNEL_API runnel_status runnel_model_load(runnel_engine *engine, const char *path, const runnel_model_options *options,
                                           runnel_model **model, runnel_error *error);

/* Blocks until the load has ended, at most timeout_ms (negative: for ever). RUNNEL_OK when ready,
 * the load's error, RUNNEL_CANCELLED, or RUNNEL_TIMEOUT. Independent of the load event. */
RUNNEL_API runnel_status runnel_model_wait(runnel_model *model, int64_t timeout_ms, runnel_error *error);

/* Cancels the load (its terminal event says so) or, once ready, every stream and session of the
 * model; frees the model when the last of them has ended. Returns at once; the handle is invalid
 * from now on. NULL is allowed. */
RUNNEL_API void runnel_model_free(runnel_model *model);

/* Cancels a load that is under way; its terminal event is RUNNEL_LOAD_CANCELLED. No effect later. */
RUNNEL_API void runnel_model_cancel_load(runnel_model *model);

typedef struct runnel_model_info {
    size_t struct_size;
    uint32_t vocab_tokens;
    uint32_t context_tokens; /* longest sequence as loaded */
    uint32_t trained_tokens; /* longest sequence the model was trained for */
    uint32_t embedding;
    uint32_t layers;
    int32_t bos, eos; /* token ids, -1 where there is none */
    uint8_t add_bos;  /* the model wants BOS in front of a text */
    uint64_t parameters;
    uint64_t weight_bytes;
    uint64_t kv_bytes; /* reserved for KV blocks */
    uint64_t kv_bytes_per_token;
    uint32_t block_tokens;     /* positions per KV block */
    uint32_t chunk_mean;       /* positions that are kept exactly; 0: all */
    uint64_t kv_bytes_longest; /* of kv_bytes, what a sequence of context_tokens needs at once */
    uint64_t draft_parameters; /* of the drafter; 0: there is none */
    uint64_t draft_kv_bytes;   /* reserved for its KV blocks */
} runnel_model_info;

/* RUNNEL_STATE before the load has ended well. */
RUNNEL_API runnel_status runnel_model_get_info(runnel_model *model, runnel_model_info *info);

/* ---- Text and tokens --------------------------------------------------------------------- */

enum {
    RUNNEL_TOKENIZE_BOS = 1,    /* BOS/EOS as the model's metadata asks for */
    RUNNEL_TOKENIZE_SPECIAL = 2 /* control tokens written in the text become control tokens */
};

/* Text [text_bytes] (UTF-8) to token ids. Writes at most `capacity` ids to `tokens` and the whole
 * count to *count, so that capacity 0 measures. Runs on this thread, in linear time.
 * INVALID: not UTF-8. STATE: the model is not loaded. */
RUNNEL_API runnel_status runnel_tokenize(runnel_model *model, const char *text, size_t text_bytes, uint32_t flags,
                                         int32_t *tokens, size_t capacity, size_t *count);

/* Token ids to the bytes they stand for (not NUL-terminated; whole UTF-8 only if the tokens are).
 * special: write control tokens as their names instead of nothing. Sizes as in runnel_tokenize. */
RUNNEL_API runnel_status runnel_detokenize(runnel_model *model, const int32_t *tokens, size_t count, int special,
                                           char *text, size_t capacity, size_t *text_bytes);

/* ---- Chat -------------------------------------------------------------------------------- */

/* A message of a conversation. All strings are UTF-8 and NUL-terminated. */
typedef struct runnel_message {
    const char *role;    /* "system", "user", "assistant", "tool": as the template knows them */
    const char *content; /* NULL: null */
    const char *more;    /* a JSON object whose members join the message ("tool_calls", "reasoning_content", "name",
                            "content" as a list of parts, ...), or NULL */
} runnel_message;

/* A conversation, and how it becomes a prompt: by a chat template, the model's own or a given one. */
typedef struct runnel_chat {
    size_t struct_size;
    const runnel_message *messages; /* [n_messages] */
    size_t n_messages;
    const char *messages_json;    /* instead of messages: a JSON array of messages in OpenAI's form */
    const char *tools;            /* a JSON array of tools in OpenAI's form, or NULL */
    const char *variables;        /* a JSON object: further variables of the template ("enable_thinking"), or NULL */
    const char *template_text;    /* a Jinja template instead of the model's, or NULL */
    const char *template_name;    /* of several templates in the file; NULL: "tool_use" for a chat with tools where
                                     there is one, else the unnamed one */
    uint8_t no_generation_prompt; /* 1: the text does not end with the beginning of an answer */
    int64_t now_s;                /* what strftime_now tells: seconds since the epoch; 0: the machine's clock */
} runnel_chat;

RUNNEL_API void runnel_chat_default(runnel_chat *chat);

/* The conversation as text. Text of messages, tools and variables never becomes a control token when a request carries
 * the chat; a text from here, given back as a prompt with parse_special, has no such protection. Writes at most
 * `capacity` bytes, the whole size to *text_bytes; not NUL-terminated. Runs on this thread, bounded in time and memory.
 * NOT_FOUND: the model has no (such) template. FORMAT: its template is malformed. INVALID: JSON that is none, or the
 * template raised an error. */
RUNNEL_API runnel_status runnel_apply_template(runnel_model *model, const runnel_chat *chat, char *text,
                                               size_t capacity, size_t *text_bytes, runnel_error *error);

/* A template [template_bytes] by itself: the members of the JSON object context [context_bytes] are its variables.
 * now_s and the rest as above. */
RUNNEL_API runnel_status runnel_render_template(const char *template_text, size_t template_bytes, const char *context,
                                                size_t context_bytes, int64_t now_s, char *text, size_t capacity,
                                                size_t *text_bytes, runnel_error *error);

/* ---- Requests ---------------------------------------------------------------------------- */

typedef struct runnel_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY forbids the token */
} runnel_logit_bias;

typedef struct runnel_sampling {
    float temperature;        /* 0: greedy */
    uint32_t top_k;           /* 0: off */
    float top_p;              /* (0, 1]; 1: off */
    float min_p;              /* [0, 1]; 0: off */
    float repetition_penalty; /* > 0; 1: off. Divides positive logits, multiplies negative ones (CTRL, Keskar 2019) */
    float frequency_penalty;  /* subtracted per occurrence; 0: off */
    float presence_penalty;   /* subtracted once; 0: off */
    uint32_t penalty_tokens;  /* the last so many tokens of prompt and answer count; 0: all */
    uint64_t seed;            /* one coin per (seed, position): the same request gives the same text */
    const runnel_logit_bias *biases;
    size_t n_biases;
} runnel_sampling;

typedef struct runnel_logprob {
    int32_t token;
    float logprob; /* natural logarithm, of the distribution before any sampling parameter */
} runnel_logprob;

typedef enum runnel_event_type {
    RUNNEL_EVENT_TOKEN = 0,    /* a token, and the text that is certain by now */
    RUNNEL_EVENT_PROGRESS = 1, /* prompt positions done; only if asked for */
    RUNNEL_EVENT_LOGITS = 2,   /* logits of one position of the prompt; only if asked for */
    /* Of requests with a chat: parts of the answer that are not its text. */
    RUNNEL_EVENT_REASONING = 3,      /* a fragment of what the model thinks aloud */
    RUNNEL_EVENT_TOOL_CALL = 4,      /* a call begins: `text` is the tool's name */
    RUNNEL_EVENT_TOOL_ID = 5,        /* `text` is the id that the model gives the call, where its format has ids */
    RUNNEL_EVENT_TOOL_ARGUMENTS = 6, /* a fragment of the arguments */
    RUNNEL_EVENT_TOOL_END = 7,       /* the call is complete: its fragments join to a JSON object */
    RUNNEL_EVENT_EMBEDDING = 8,      /* of runnel_embed: the vector */
    /* Terminal: from here on. */
    RUNNEL_EVENT_DONE = 9,
    RUNNEL_EVENT_CANCELLED = 10,
    RUNNEL_EVENT_FAILED = 11
} runnel_event_type;

typedef enum runnel_finish {
    RUNNEL_FINISH_NONE = 0,  /* not a terminal event, cancelled, failed, or of a session's file */
    RUNNEL_FINISH_STOP = 1,  /* end of text, a stop token or a stop string */
    RUNNEL_FINISH_LENGTH = 2 /* max_tokens or the context is reached */
} runnel_finish;

typedef struct runnel_usage {
    uint64_t prompt_tokens;     /* of this request; in a session: of this turn, and what it continues */
    uint64_t cached_tokens;     /* of prompt_tokens: not computed, taken from the prefix cache or the session */
    uint64_t completion_tokens; /* includes the token that ended the text */
    uint64_t drafted_tokens, accepted_tokens; /* guesses that passes verified, and those that were right */
    uint64_t warm_tokens, cold_tokens;        /* of cached_tokens, those that came from memory that packs them, and from
                                                 cache_dir, for this request */
    uint64_t shared_tokens;                   /* likewise, from cache_shared */
} runnel_usage;

typedef struct runnel_timings { /* microseconds from submit */
    uint64_t admitted_us;       /* blocks leased, prefill begins */
    uint64_t first_token_us;    /* first token sampled; 0: none */
    uint64_t end_us;
} runnel_timings;

typedef struct runnel_event {
    runnel_event_type type;
    runnel_stream stream;
    const char *text; /* TOKEN, REASONING, TOOL_*: whole UTF-8, not NUL-terminated; may be empty while
                         bytes are held back. The concatenated texts of the TOKEN events are the answer:
                         stop strings are cut off */
    size_t text_bytes;
    int32_t token;             /* TOKEN: its id, one event for each token; -1: only text, of several tokens or of
                                  what was held back */
    float logprob;             /* TOKEN: of the chosen token, if logprobs were asked for */
    const runnel_logprob *top; /* TOKEN: [n_top], best first */
    uint32_t n_top;
    const float *logits; /* LOGITS: [n_logits], of the token that follows `position` */
    uint32_t n_logits;
    uint64_t position;    /* LOGITS: position in the prompt */
    uint32_t tool_call;   /* TOOL_*: number of the call in this answer, from 0 */
    uint64_t prompt_done; /* PROGRESS */
    uint64_t prompt_total;
    runnel_finish finish; /* DONE */
    runnel_status status; /* FAILED; RUNNEL_OK else */
    const char *error;    /* FAILED: one sentence; "" else */
    runnel_usage usage;   /* terminal events */
    runnel_timings timings;
    uint32_t n_tokens;      /* TOKEN, REASONING, TOOL_*: how many tokens it is the first event of: 1 for a
                               token's own; more where they were joined (runnel_request.coalesce_bytes); 0 for
                               what was held back and for further parts */
    const float *embedding; /* EMBEDDING: [n_embedding] */
    uint32_t n_embedding;
} runnel_event;

typedef void (*runnel_event_fn)(void *user, const runnel_event *event);

#define RUNNEL_MAX_STOPS 16
#define RUNNEL_MAX_STOP_BYTES 256
#define RUNNEL_MAX_TOP_LOGPROBS 20
#define RUNNEL_MAX_COALESCE_BYTES (1u << 20)

/* Who guesses the next tokens of an answer, so that the model verifies several in one pass. Each pass then gives one
 * token at least and one more for each guess that was right. It never changes the text, only its speed. */
typedef enum runnel_draft { /* flags: of several, the first that has a guess, the lowest number first */
                            RUNNEL_DRAFT_NONE = 0,
                            RUNNEL_DRAFT_NGRAM =
                                1, /* what followed the last time the same tokens stood in prompt or answer */
                            RUNNEL_DRAFT_MODEL = 2 /* the drafter that was loaded with the model (draft_path) */
} runnel_draft;

/* What a request does whose turn has come while blocks of its prompt are in lower tiers of the cache. They are fetched
 * from when it comes in, if it has to wait for its turn; those that would take longer than computing are never. */
typedef enum runnel_cache_wait {
    RUNNEL_CACHE_BEST_EFFORT = 0, /* what has arrived is used, the rest is computed */
    RUNNEL_CACHE_WAIT = 1,        /* it waits for all that is on its way */
    RUNNEL_CACHE_DEADLINE = 2     /* it waits for cache_wait_ms since submit */
} runnel_cache_wait;

typedef struct runnel_request {
    size_t struct_size;
    const char *prompt; /* UTF-8; BOS is added where the model asks for it */
    size_t prompt_bytes;
    const int32_t *tokens; /* instead of prompt: ids, taken as they are */
    size_t n_tokens;
    uint8_t parse_special; /* 1: control tokens written in the prompt become control tokens */
    uint8_t ignore_eos;    /* 1: the model's end-of-text tokens do not end the answer */
    uint8_t want_logprobs; /* 1: logprob of each chosen token, and of n_top others */
    uint8_t want_progress; /* 1: PROGRESS events while the prompt is computed */
    uint8_t want_logits;   /* 1: a LOGITS event for each position of the prompt: it is computed, cached or not; a
                              session's past is not */
    uint32_t n_top;        /* at most RUNNEL_MAX_TOP_LOGPROBS */
    int64_t max_tokens;    /* -1: until the context is full; 0: only the prompt is computed */
    runnel_sampling sampling;
    const char *const *stops; /* [n_stops] non-empty UTF-8 strings, NUL-terminated; the answer ends before them */
    size_t n_stops;
    const int32_t *stop_tokens; /* [n_stop_tokens]; the answer ends with them, their text is not delivered */
    size_t n_stop_tokens;
    runnel_session session;   /* id 0: none. Else the prompt continues the session's tokens, and prompt and answer
                                 become part of it */
    runnel_event_fn on_event; /* NULL: the stream is read with runnel_stream_next */
    void *user;
    const runnel_chat *chat;      /* instead of prompt and tokens. It is rendered in the engine: an error of the
                                     template or a prompt that does not fit is a FAILED event. With a session, what
                                     the conversation shares with it from the beginning is not computed again, and
                                     what differs takes its place */
    uint8_t raw_answer;           /* 1: the answer to a chat is delivered as TOKEN events alone, its text as it is.
                                     Else reasoning and, where the chat has tools, tool calls are events of their own */
    uint64_t cache_salt;          /* the prefix cache shares nothing between requests of different salts, so that none
                                     can learn by its speed what another has asked. A turn with another salt than the
                                     one before computes its session again */
    int32_t priority;             /* requests of a higher one go first, and take the KV blocks and the step from lower
                                     ones; 0 is the usual one. It never changes the text */
    uint32_t deadline_ms;         /* since submit: a request that has not ended by then is FAILED with TIMEOUT within
                                     one step; one that still waits for its turn never costs a step. 0: none */
    uint64_t tenant;              /* whose request it is: tenants of one priority get equal shares of the prompts'
                                     part of each step */
    uint32_t coalesce_bytes;      /* 0: each token has an event of its own. Else a stream whose reader is behind, or
                                     that is paused, goes on and joins the tokens that its reader has not come to in
                                     one event of at most so many bytes of text (of a chat's answer: one for each part
                                     that they hold); then it waits. A reader that keeps up sees each token. The
                                     memory is taken when the request's turn comes. At most RUNNEL_MAX_COALESCE_BYTES;
                                     not with want_logprobs */
    uint32_t draft;               /* RUNNEL_DRAFT_ flags */
    uint32_t draft_max;           /* guesses in a pass at most, up to RUNNEL_MAX_DRAFTS; 0: 8. How many are made
                                     follows from how many were right and what they cost; none where they do not pay */
    uint8_t pin_prefix;           /* 1: the prompt's whole KV blocks are kept in kv_bytes until a request that begins
                                     with them says 2, or the model is freed, and go into cache_dir at once. At most 64
                                     prompts; the oldest is let go of for one more, and where a request could not run
                                     otherwise. 2: lets go of what this prompt begins with */
    uint32_t cache_wait_ms;       /* with RUNNEL_CACHE_DEADLINE: since submit */
    runnel_cache_wait cache_wait; /* the default is RUNNEL_CACHE_WAIT */
    uint8_t draft_share;          /* 1, with RUNNEL_DRAFT_NGRAM: it also looks into answers of this tenant with this
                                     cache_salt that asked for the same, the last ten thousand tokens or so, and its own
                                     becomes one of them. For many answers of one form; 0: it reads and tells nothing */
    uint8_t draft_chain;          /* 1: with RUNNEL_DRAFT_MODEL a pass verifies the likeliest guesses alone; 0: also
                                     runners-up of the drafter's, as a tree, where they are worth more than another
                                     guess at the end. Of both draft_max counts */
} runnel_request;

/* Greedy, up to the context, no stops, seed 0. */
RUNNEL_API void runnel_request_default(runnel_request *request);

/* Submits. Every parameter is checked here: INVALID names the bad one in *error, CONTEXT: the
 * prompt (with its session) is longer than the context less one, or than all KV blocks; BUSY: a limit of the engine on
 * streams, queued tokens or queued bytes is reached, and error->retry_ms says when to try again; STATE: model not
 * ready; NOT_FOUND: no such session. A prompt of more bytes than the context has tokens is tokenized on this thread,
 * any other in the engine. */
RUNNEL_API runnel_status runnel_generate(runnel_model *model, const runnel_request *request, runnel_stream *stream,
                                         runnel_error *error);

/* What of a text's positions becomes its embedding. The numbers are those of the GGUF key
 * <architecture>.pooling_type. */
typedef enum runnel_pooling {
    RUNNEL_POOLING_DEFAULT = 0, /* as the file says, or MEAN where it says nothing */
    RUNNEL_POOLING_MEAN = 1,    /* the mean over all positions */
    RUNNEL_POOLING_FIRST = 2,   /* the first position (BOS, where it is added) */
    RUNNEL_POOLING_LAST = 3     /* the last position */
} runnel_pooling;

typedef struct runnel_embed_request {
    size_t struct_size;
    const char *text; /* UTF-8, not empty; BOS (and EOS) are added where the model asks for them */
    size_t text_bytes;
    const int32_t *tokens; /* instead of text: ids, taken as they are */
    size_t n_tokens;
    uint8_t parse_special; /* as in runnel_request, like all that is not explained here */
    uint8_t want_progress;
    uint8_t raw; /* 1: the vector as it is. Else it has length 1 (L2), but for a zero vector */
    runnel_pooling pooling;
    uint32_t dimensions; /* only the first so many values, which then have length 1; 0: all */
    runnel_event_fn on_event;
    void *user;
    uint64_t cache_salt;
    int32_t priority;
    uint32_t deadline_ms;
    uint64_t tenant;
} runnel_embed_request;

RUNNEL_API void runnel_embed_request_default(runnel_embed_request *request);

/* The embedding of a text: the output of the model's final norm, pooled. The stream has one EMBEDDING event and ends
 * as any other (DONE with RUNNEL_FINISH_LENGTH, no tokens). It goes the way of a request with max_tokens 0: beside
 * others, bounded by the same limits, the same to the bit whatever runs beside it. Without pooling LAST all
 * positions are computed, cached or not. Errors as of runnel_generate; UNSUPPORTED: the file wants a pooling that is
 * not known here, and none is given; a FAILED event with NUMERIC: the vector is not of numbers. */
RUNNEL_API runnel_status runnel_embed(runnel_model *model, const runnel_embed_request *request, runnel_stream *stream,
                                      runnel_error *error);

/* Ends the stream early: its terminal event is CANCELLED unless another one was already on its
 * way. Takes effect within one step in every state. Idempotent; NOT_FOUND if it has ended. */
RUNNEL_API runnel_status runnel_stream_cancel(runnel_engine *engine, runnel_stream stream);

/* No more events of this stream until it is resumed; the stream itself stops after a bounded
 * number of undelivered tokens (see coalesce_bytes) and costs the others nothing. A cancelled stream delivers its
 * terminal event even while paused. */
RUNNEL_API runnel_status runnel_stream_pause(runnel_engine *engine, runnel_stream stream);
RUNNEL_API runnel_status runnel_stream_resume(runnel_engine *engine, runnel_stream stream);

/* The next event of a stream without a callback; blocks at most timeout_ms (negative: for ever).
 * The pointers in *event are valid until the next call for this stream (the sentence of a FAILED event:
 * until this thread's next call); after a terminal event the stream is gone. TIMEOUT, NOT_FOUND; STATE: the stream has
 * a callback, or another thread is inside this call. */
RUNNEL_API runnel_status runnel_stream_next(runnel_engine *engine, runnel_stream stream, int64_t timeout_ms,
                                            runnel_event *event);

/* ---- Sessions ---------------------------------------------------------------------------- */

/* A conversation: its KV blocks stay between requests. One request at a time; a second one waits. Into a file and
 * back: runnel_files.h. */
RUNNEL_API runnel_status runnel_session_new(runnel_model *model, runnel_session *session);

/* The session's blocks are freed once its running requests have ended. */
RUNNEL_API runnel_status runnel_session_free(runnel_model *model, runnel_session session);

/* A copy that goes its own way from here: what the session is once the turns submitted before this call have ended,
 * running or waiting; turns submitted to either afterwards do not concern the other. Costs no KV: the two share it
 * until one writes where the other has something too. Turns on the copy may be submitted at once. BUSY: too many
 * sessions. NOT_FOUND; STATE and CLOSED as runnel_session_new. */
RUNNEL_API runnel_status runnel_session_fork(runnel_model *model, runnel_session session, runnel_session *copy);

#ifdef __cplusplus
}
#endif

#endif
