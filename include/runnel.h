/* runnel: token streams from language models on your own event loop.
 *
 * In short:
 *
 *     runnel_engine *engine;  runnel_engine_new(NULL, &engine, NULL);
 *     runnel_model *model;    runnel_model_load(engine, "model.gguf", NULL, &model, NULL);
 *                             runnel_model_wait(model, -1, NULL);
 *     runnel_request r;       runnel_request_default(&r);
 *     r.prompt = "Once upon a time"; r.prompt_bytes = 16; r.on_event = print;
 *     runnel_stream s;        runnel_generate(model, &r, &s, NULL);
 *
 * Then deliver events in one of these ways: call runnel_engine_dispatch() whenever runnel_engine_fd() is readable,
 * attach a libuv loop (runnel_uv.h), take events in arrays with runnel_engine_take(), read one stream with
 * runnel_stream_next(), or let a thread of the engine call back (runnel_engine_options.delivery).
 *
 * Rules that hold everywhere
 *  - Threads: every function may be called from any thread and inside any callback, unless its comment says otherwise.
 *    Callbacks of one engine never run on two threads at once, but for runnel_samplers.choose of streams that
 *    runnel_stream_next reads: it runs on the thread that does.
 *  - A callback returns. It must neither throw an exception nor longjmp through the library: nothing would be delivered
 *    any more, and the engine could not be freed.
 *  - A function that returns an error has done nothing and calls nothing back. A submit that returns RUNNEL_OK ends in
 *    exactly one terminal event: done, cancelled or failed.
 *  - A function blocks only if its comment says so.
 *  - A pointer that a function needs must not be NULL: the function returns INVALID, or does nothing where it returns
 *    no status. A `runnel_error *` may always be NULL, and so may what is freed.
 *  - Pointers handed to a callback are valid until it returns. Pointers handed to a function are copied before it
 *    returns, unless its comment says otherwise.
 *  - The comment of a function names every status that it returns, but for STATE in a forked child.
 *  - An engine belongs to the process that made it: fork() before runnel_engine_new(), or exec in the child. In a child
 *    that was forked later what submits, loads or waits returns STATE, runnel_engine_dispatch() and
 *    runnel_engine_take() take nothing, and the engine and trainings are not freed.
 *  - The library never exits, prints, forks, reads the environment or installs a signal handler (with a rediss:// cache
 *    OpenSSL reads variables of its own, see docs/TIERS.md). Where the processor has AMX it asks the kernel for those
 *    registers: signal stacks then need sysconf(_SC_MINSIGSTKSZ) bytes.
 *  - The engine's threads have the default floating-point environment (FE_DFL_ENV), whatever the host has, and so has a
 *    function while it computes what a request would. Else a function runs in that of its caller, who has to expect the
 *    traps that it has enabled.
 *
 * Versions: a program keeps working with every later library of the same SONAME
 *  - A struct grows at its end alone. Its struct_size is the size that the caller was compiled with, and the library
 *    reads and writes no more. A struct_size that the library does not know is INVALID.
 *  - A parameter struct is filled by its _default() macro, which passes the caller's size to the _init() function.
 *    Bindings call _init() with the size they were made for. A result struct has its struct_size set by the caller.
 *  - Structs inside others (sampling, usage, timings), in arrays (messages, biases, logprobs), handles, runnel_error,
 *    runnel_allocator and runnel_histogram keep their size for ever. Members named `reserved` are zero.
 *  - Structs that a callback gets belong to the library and may be longer than this header says; assigning one copies
 *    the part that this header knows.
 *
 * Included here: runnel_status.h, statuses and errors; runnel_hooks.h, the host's memory, log and trace;
 * runnel_sampling.h, how tokens are drawn; runnel_grammar.h, what an answer may be; runnel_chat.h, conversations and
 * their templates; runnel_observe.h, metrics and lists of streams. Separate headers: runnel_files.h (files without
 * streams), runnel_infill.h (prompts with a gap), runnel_scores.h (rerankers and classifiers), runnel_fields.h (the
 * request's fields), runnel_uv.h. */
#ifndef RUNNEL_H
#define RUNNEL_H

#include <stddef.h>
#include <stdint.h>

#include "runnel_chat.h"
#include "runnel_grammar.h"
#include "runnel_hooks.h"
#include "runnel_sampling.h"
#include "runnel_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RUNNEL_VERSION_MAJOR 0
#define RUNNEL_VERSION_MINOR 1
#define RUNNEL_VERSION_PATCH 0

/* "0.1.0" of the library in use, which may be newer than this header. */
RUNNEL_API const char *runnel_version(void);

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

/* How events reach the host. Streams without a callback are read with runnel_stream_next, but for TAKE. */
typedef enum runnel_delivery {
    RUNNEL_DELIVER_HOST = 0,   /* callbacks run inside runnel_engine_dispatch or on an attached libuv loop */
    RUNNEL_DELIVER_THREAD = 1, /* callbacks run on a thread of the engine */
    RUNNEL_DELIVER_TAKE = 2    /* no callbacks: the events of all streams are taken with runnel_engine_take */
} runnel_delivery;

/* How models of an architecture are computed that the library does not know: like those of one that it knows, but for
 * some features. docs/ARCHITECTURES.md lists architectures and features by name. Strings are NUL-terminated. */
typedef struct runnel_architecture_row {
    size_t struct_size;
    const char *name;          /* as in the file's key general.architecture; other keys begin with it */
    const char *like;          /* a known architecture; NULL: "llama" */
    const char *with;          /* features that it has besides, separated by spaces; NULL: none. Features latent,
                                  indexer, shared-kv and streams are those of `like`, with or without these texts */
    const char *without;       /* features of `like` that it has not; NULL: none */
    const char *activation;    /* "silu", "gelu", "relu", ...: see the same page; NULL: as `like` */
    const char *ffn_norm;      /* tensor of the norm before the feed-forward, without ".weight"; "%d" in it is the
                                  number of the block. NULL: as `like` */
    const char *const *unused; /* [n_unused] tensors that are no part of the forward pass, "%d" likewise */
    size_t n_unused;
    uint32_t
        window_period; /* key attention.sliding_window counts, but for the last of each so many blocks. 0: as `like`;
                               1: for no block, unless key attention.sliding_window_pattern says so */
    uint32_t reserved;
} runnel_architecture_row;

RUNNEL_API void runnel_architecture_row_init(runnel_architecture_row *row, size_t struct_size);
RUNNEL_API void runnel_architecture_row_default(runnel_architecture_row *row);
#define runnel_architecture_row_default(row) runnel_architecture_row_init((row), sizeof *(row))

typedef struct runnel_engine_options {
    size_t struct_size;
    uint32_t scheduler_threads; /* threads that run actors, at most 256; 0: 2 */
    uint32_t compute_threads;   /* threads of the CPU compute team, at most 256; 0: one per physical core allowed */
    uint32_t max_streams;       /* streams alive at once over all models, at most 2^20; more get BUSY; 0: 1024 */
    uint32_t max_sessions;      /* sessions not yet freed, at once, at most 2^20; more get BUSY; 0: 1024 */
    runnel_delivery delivery;
    runnel_log_level log_level; /* lines above it are dropped; the default is WARNING */
    runnel_allocator allocator; /* all zero: the default allocator */
    runnel_log_fn on_log;       /* NULL: silent */
    void *log_user;
    runnel_trace_fn on_trace; /* NULL: nothing is traced */
    void *trace_user;
    uint64_t max_queued_tokens; /* limit on tokens of waiting prompts, over all models. A submit above it is refused
                                   with BUSY, unless no prompt waits. Text counts by its bytes until it is tokenized.
                                   0: no limit */
    uint64_t max_queued_bytes;  /* limit on memory of requests (prompt, stops, biases, tokens; with a grammar a row of
                                   logits) that have not ended; likewise. Above it grammars make no drafts.
                                   0: no limit */
    const runnel_architecture_row *const *architectures; /* [n_architectures] that models of this engine may have beside
                                   the known ones, at most 1024. INVALID names the row and what is wrong with it: a name
                                   that is known already, a feature that is not */
    size_t n_architectures;
    const char *device_library; /* the file with the kernels of the device "cuda"; NULL: librunnel-cuda.so, beside the
                                   library runnel or a program that contains it, in ../lib of there, or where the system
                                   looks: the first of this version of runnel. Opened when the device is asked for */
    uint32_t compute_nice; /* lowers the priority of threads that compute, so that the host's own threads are scheduled
                              before them where both want a core: added to their nice values, 0 to 19. 0: they have the
                              priority of the thread that calls runnel_engine_new. Where the system refuses it, the log
                              says so (WARNING) and they keep that priority */
    uint32_t gather_us; /* events gather so long before runnel_engine_fd() is readable for them, counted from the last
                           dispatch or take, so that many cost the host's loop one wake. The first after quiet is told
                           at once, and so is what a dispatch or take left behind. Also for runnel_engine_wait() and
                           libuv; runnel_stream_next() has each event at once. 0: nothing gathers. At most 1000000 */
} runnel_engine_options;

RUNNEL_API void runnel_engine_options_init(runnel_engine_options *options, size_t struct_size);
RUNNEL_API void runnel_engine_options_default(runnel_engine_options *options);
#define runnel_engine_options_default(options) runnel_engine_options_init((options), sizeof *(options))

/* Starts the threads. options NULL: defaults. Returns OK, INVALID or NO_MEMORY (also where the system refuses a thread
 * or a file descriptor). */
RUNNEL_API runnel_status runnel_engine_new(const runnel_engine_options *options, runnel_engine **engine,
                                           runnel_error *error);

/* Frees the engine with its models, sessions and streams; their handles are invalid afterwards. Cancels every stream,
 * load and training, delivers their terminal events on this thread (TAKE: drops them) and joins the threads. Blocks for
 * at most one step of a model or of a training, and for calls that other threads are inside, in callbacks. Calls that
 * block on other threads return: runnel_stream_next with the end of its stream, the others CLOSED. Inside a callback of
 * this engine the call is deferred until the callback's dispatch returns, which it does behind this callback. With a
 * libuv loop attached, call it on that loop's thread or after runnel_uv_detach; on another thread it leaves what
 * follows the terminal events to the loop's next turn: see runnel_uv.h. NULL is allowed. */
RUNNEL_API void runnel_engine_free(runnel_engine *engine);

/* Refuses new requests with CLOSED, for good, and waits until every stream has ended and its end was delivered;
 * sessions can still be exported (runnel_files.h). Blocks for at most timeout_ms (0: does not block; negative: for
 * ever) and runs callbacks on this thread meanwhile. Does not block inside a callback, nor with RUNNEL_DELIVER_TAKE,
 * where the host goes on taking events. Returns OK; INVALID; TIMEOUT: some streams have not ended; CLOSED: the engine
 * is being freed. */
RUNNEL_API runnel_status runnel_engine_drain(runnel_engine *engine, int64_t timeout_ms);

/* A file descriptor that polls readable while events wait. It belongs to the engine. -1: engine is NULL. */
RUNNEL_API int runnel_engine_fd(runnel_engine *engine);

/* Runs the callbacks of at most max_events waiting events (0: all that wait now, and none that come meanwhile) on this
 * thread and returns how many ran. While more wait, the descriptor stays readable. One thread at a time: a second
 * caller gets 0 at once, as does one inside a callback; the descriptor is readable again when the first one leaves.
 * Returns 0 without RUNNEL_DELIVER_HOST. */
RUNNEL_API size_t runnel_engine_dispatch(runnel_engine *engine, size_t max_events);

/* Blocks until events wait, for at most timeout_ms (negative: for ever); signals do not end it. Returns OK; INVALID;
 * TIMEOUT; CLOSED: the engine is being freed. */
RUNNEL_API runnel_status runnel_engine_wait(runnel_engine *engine, int64_t timeout_ms);

/* ---- Model ------------------------------------------------------------------------------- */

/* How keys and values are stored. Attention computes on the stored form. */
typedef enum runnel_kv_type {
    RUNNEL_KV_F16 = 0,
    RUNNEL_KV_F32 = 1,
    RUNNEL_KV_BF16 = 2,
    RUNNEL_KV_FP8 = 3, /* E4M3, one byte a number, at most 448 */
    RUNNEL_KV_Q8 = 4,  /* groups of 32 numbers with an f16 scale and 8 bits each: 8.5 bits a number */
    RUNNEL_KV_Q4 = 5,  /* 4.5 bits; keys, queries and values are rotated by a Hadamard matrix */
    RUNNEL_KV_Q3 = 6   /* 3.5 bits; likewise */
} runnel_kv_type;

/* In which order the CPU has the weights in memory. What it computes is the same to the bit. */
typedef enum runnel_weight_order {
    RUNNEL_WEIGHTS_MEASURED = 0, /* for each format the order that turns out faster while the model is loaded; as in the
                                    file where that is small beside the caches, or large beside the memory */
    RUNNEL_WEIGHTS_FILE = 1,     /* as in the file, which is mapped: processes share the memory */
    RUNNEL_WEIGHTS_TILES = 2     /* in the order in which they are read, where the CPU has kernels for it: in memory of
                                    the engine's own instead of the file's */
} runnel_weight_order;

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

/* A LoRA adapter: what a finetune adds to some products of a model. A GGUF file as llama.cpp's convert_lora_to_gguf.py
 * makes it; docs/ADAPTERS.md has what is supported. */
typedef struct runnel_adapter {
    const char *name; /* for requests: UTF-8 without control bytes, another for each adapter of a model, not empty,
                         shorter than RUNNEL_ADAPTER_BYTES */
    const char *path;
    float scale; /* what it adds is multiplied by this. Finite; 0: 1 */
    uint32_t reserved;
} runnel_adapter;

#define RUNNEL_MAX_ADAPTERS 64  /* of a model */
#define RUNNEL_ADAPTER_BYTES 64 /* of a name, with its NUL */

typedef struct runnel_model_options {
    size_t struct_size;
    uint32_t context_tokens; /* longest sequence; 0: the model's own, at most 8192 */
    uint32_t batch_tokens;   /* positions in one forward pass, prompts and decoding together, 8 to 8192; 0: 256 */
    uint64_t kv_bytes;       /* memory for KV blocks, shared by all streams; 0: room for 8 full contexts, at least
                                one, at most a quarter of the machine's memory (of what the process's control group
                                allows, where that is less; so below). Recurrent states, of models that have
                                them, take up to half of it (all, where no block attends): one for each stream that
                                runs and as many for prefixes; with room for fewer, streams wait */
    runnel_kv_type kv_type;
    uint32_t chunk_mean;    /* lossy compression of long contexts, with any kv_type. 0: off. Else keys and values are
                                kept for the first 64 positions and the last chunk_mean (rounded up to 64, and up to
                                127 more); each 64 others are kept as one mean. A sequence of n positions takes the
                                memory of about chunk_mean + batch_tokens + n / 64; one that fits gets the exact
                                answer. Requests share nothing, and a turn of a session computes its history again.
                                At most 2^28. docs/QUALITY.md has the cost */
    const char *device;     /* NULL or "cpu": the CPU, with the best of the instruction sets for which there are
                               kernels; "cpu:LEVEL": with another one that it has ("avx512-amx", "avx512", "avx2-vnni",
                               "avx2", "neon", "c"; runnel_engine_device tells which), for comparisons: the answer is
                               the same to the bit, but for that of avx512-amx; "cuda" or "cuda:N": an NVIDIA GPU, the
                               first or the N-th from 0 (docs/CUDA.md); "auto": "cuda" if the model can be loaded on
                               it, else "cpu", and the log says which; "reference": plain C in double precision */
    runnel_load_fn on_load; /* NULL: no events; see runnel_model_wait */
    void *load_user;
    uint8_t vocab_only;      /* 1: loads only what runnel_tokenize needs; generate is refused with STATE */
    uint8_t no_prefix_cache; /* 0: requests that begin alike share the KV blocks of their common prefix; the answer is
                                the same, on the CPU bit for bit. 1: each request computes its whole prompt */
    uint8_t reserved[2];
    float max_slowdown;      /* a step with prompts and answers takes at most so many times as long as without prompts.
                                 Above 1. 0: the factor is 2, and where more requests wait for their first token than
                                 stream answers, a step may take up to 100 ms. INFINITY: no bound. Answers of negative
                                 priority do not count */
    const char *draft_path;  /* a drafter, which guesses tokens for RUNNEL_DRAFT_MODEL. NULL: none; a GGUF file of a
                                 smaller model with the same tokens, or of a head: one that was trained for this file
                                 (runnel_eagle_train), or an EAGLE-3 head for its model (architecture eagle3); "mtp":
                                 the file's own prediction layers; "exit:N": the model's first N blocks. Not with
                                 chunk_mean. UNSUPPORTED for a model that generates no tokens: it gives no logits, or
                                 attends in both directions */
    uint64_t draft_kv_bytes; /* memory for the drafter's KV blocks. 0: room for as many positions as the model has, at
                                 most an eighth of the machine's memory. Streams that find no room do not draft */
    uint32_t draft_threads;  /* 0: the drafter takes turns with the model on the compute threads. Else it has so many
                                 threads of its own and guesses while the model computes */
    uint32_t draft_measure_ms; /* how long the load may measure what steps of a few rows take, from which the number of
                                  guesses follows; for one step longer at most. 0: 1000 with draft_path, else not at
                                  all; 1: for next to no time, and the first answers find out */
    uint64_t cache_warm_bytes; /* memory for packed KV blocks that were evicted from kv_bytes; 0: none. This and the
                                  next two tiers (docs/TIERS.md) extend the prefix cache: without it, with chunk_mean
                                  or bound_windows, or with a model of recurrent states, they stay empty, and the log
                                  says why. The answer is the same to the bit, wherever a block comes from; what cannot
                                  be fetched is computed */
    const char *cache_dir;     /* a folder for packed blocks that outlive the process; it is created if its parent
                                  exists. NULL: none. Several engines may share it; for each model one of them writes */
    uint64_t cache_cold_bytes; /* limit on this model's part of cache_dir, at least 4 MiB; 0: 8 GiB */
    const char *cache_codec;   /* how blocks are packed: "none", "bits" (fast), "lz4", "zstd" (smallest). NULL: bits;
                                  none for quantised kv_types, which do not shrink */
    const char *cache_shared;  /* a Redis server through which engines on several machines share blocks:
                                  "redis://[[user]:password@]host[:port][/database]", "rediss://" likewise for TLS, or
                                  "unix:/path", each with an optional "?ttl=SECONDS"; see docs/TIERS.md. A server that
                                  is away is never an error. NULL: none. An address that cannot be read fails the load
                                  with INVALID; a build without hiredis, or for rediss:// without OpenSSL, fails it
                                  with UNSUPPORTED */
    const char *cache_shared_ca;   /* rediss://: a PEM file with the trusted certificate authorities; NULL: the
                                      system's. The server's certificate is always verified against the address. The
                                      three files are read at the load, where a bad one fails it with INVALID, and
                                      again for each new connection */
    const char *cache_shared_cert; /* a PEM file with the client's certificate chain; NULL: none */
    const char *cache_shared_key;  /* a PEM file with its key, without a passphrase; NULL: it is in cache_shared_cert */
    runnel_weight_order weight_order;
    uint32_t bound_windows; /* 1: layers whose attention looks back only so many positions (gemma3, gpt-oss, llama4 and
                               others have many) keep no more than these, in blocks of their own: a stream takes them
                               all when it begins, however short it is (max_tokens bounds it), and nothing for them
                               later. The answers are the same to the bit. Requests, and turns of a session, share a
                               prefix as far as an earlier prompt has left the blocks of its last window: at its end,
                               and where another one went on differently. Not with draft_path, nor with chunk_mean. No
                               effect on models without such layers. 0: they keep all positions */
    const char
        *weights_dir; /* a folder for files with weights in the order of RUNNEL_WEIGHTS_TILES; it is created if its
                                parent exists. The first load that lays weights out so writes one (it needs the room
                                of the model's file), later ones map it: it costs them no time, and processes share the
                                memory. A file that is damaged, of another version or older than the model's is not used
                                and written anew; a folder that cannot be written to is told in the log. NULL: none */
    uint32_t device_layers; /* with a device that has memory of its own: so many layers, the last ones, are computed on
                               it, and those before them on the CPU, with their weights and KV in the host's memory.
                               Where a model cannot be cut there, fewer. 0: all, or where weights and the KV of a
                               context do not fit as many as do; runnel_model_info tells. weights_dir has no effect on
                               a model that is split */
    uint32_t reserved_rest;
    uint64_t device_expert_bytes;   /* with such a device: the experts among which a router chooses lie in the host's
                                     memory, pinned, and those that are used most in so much of the device's, too, as
                                     many of each layer as fit; the device reads the others over the bus. The answers
                                     are the same to the bit. In a split model this concerns only the experts of the
                                     layers on the device. 1: none has a place there. 0: they lie with their layers.
                                     INVALID for a model without experts */
    const runnel_adapter *adapters; /* [n_adapters], at most RUNNEL_MAX_ADAPTERS: adapters that requests may name.
                                         Requests of different ones, and of none, run in the same steps, and the answer
                                         of each is the same to the bit as alone. They share no cached blocks.
                                         Drafters guess without adapters */
    size_t n_adapters;
} runnel_model_options;

RUNNEL_API void runnel_model_options_init(runnel_model_options *options, size_t struct_size);
RUNNEL_API void runnel_model_options_default(runnel_model_options *options);
#define runnel_model_options_default(options) runnel_model_options_init((options), sizeof *(options))

/* Begins to load a GGUF file (of a split file: its first part) and returns at once. on_load gets progress and one
 * terminal event. The handle must be freed whatever the outcome. options NULL: defaults. Returns OK; INVALID; IO: a
 * file cannot be opened; UNSUPPORTED: no such kind of device; BUSY: the engine has 64 models; NO_MEMORY; CLOSED. A
 * relative path, here and in the options, counts from the working directory at the time of the call, as those of
 * session files and trainings do. The load itself fails with IO, FORMAT, UNSUPPORTED, INVALID, NO_MEMORY or DEVICE. */
RUNNEL_API runnel_status runnel_model_load(runnel_engine *engine, const char *path, const runnel_model_options *options,
                                           runnel_model **model, runnel_error *error);

/* Blocks until the load has ended, at most timeout_ms (negative: for ever); needs no dispatch. Returns OK: ready;
 * INVALID; CANCELLED; TIMEOUT: it is still loading; CLOSED: the model or engine is being freed; or the status of the
 * failed load. */
RUNNEL_API runnel_status runnel_model_wait(runnel_model *model, int64_t timeout_ms, runnel_error *error);

/* Cancels the load (its terminal event says so) or, once ready, every stream and session of the model; frees the model
 * when the last of them has ended. Returns at once; the handle is invalid from now on. NULL is allowed. */
RUNNEL_API void runnel_model_free(runnel_model *model);

/* Cancels a load that is under way; its terminal event is RUNNEL_LOAD_CANCELLED. One that waits for another load to end
 * has ended when the call returns. No effect later. */
RUNNEL_API void runnel_model_cancel_load(runnel_model *model);

typedef struct runnel_model_info {
    size_t struct_size; /* set by the caller to sizeof(runnel_model_info) */
    uint32_t vocab_tokens;
    uint32_t context_tokens; /* longest sequence as loaded */
    uint32_t trained_tokens; /* longest sequence the model was trained for */
    uint32_t embedding;
    uint32_t layers;
    int32_t bos, eos; /* token ids, -1 where there is none */
    uint8_t add_bos;  /* the model wants BOS in front of a text */
    uint8_t reserved[3];
    uint64_t parameters;
    uint64_t weight_bytes; /* with those of adapters */
    uint64_t kv_bytes;     /* reserved for KV blocks */
    uint64_t kv_bytes_per_token;
    uint32_t block_tokens;     /* positions per KV block */
    uint32_t chunk_mean;       /* positions that are kept exactly; 0: all */
    uint64_t kv_bytes_longest; /* of kv_bytes, the part that a sequence of context_tokens needs at once */
    uint64_t draft_parameters; /* of the drafter; 0: there is none */
    uint64_t draft_kv_bytes;   /* reserved for the drafter's KV blocks, of all its prediction layers */
    uint64_t tiled_bytes;      /* of weight_bytes, those in the order of RUNNEL_WEIGHTS_TILES */
    uint64_t mapped_bytes;     /* of tiled_bytes, those that are mapped from a file of weights_dir */
    uint32_t device_layers;    /* of layers, those that are computed on a device with memory of its own; 0: none */
    uint32_t device_experts; /* of all layers' experts, those that have a place on the device apart from their layers */
    uint64_t device_expert_bytes; /* of the device's memory, for those; 0: see runnel_model_options */
    uint64_t state_bytes;         /* reserved for recurrent states, beside kv_bytes; 0: the model has none */
    uint64_t draft_weight_bytes;  /* of the drafter's weights, those that are not among weight_bytes */
} runnel_model_info;

/* Returns OK; INVALID; STATE: the model is not loaded; CLOSED. */
RUNNEL_API runnel_status runnel_model_get_info(runnel_model *model, runnel_model_info *info);

/* Adapter `index` of the model, in the order of its options. Name and path are valid as long as the model. Returns OK;
 * INVALID; NOT_FOUND: it has no more than `index`; STATE: the model is not loaded; CLOSED. */
RUNNEL_API runnel_status runnel_model_adapter(runnel_model *model, uint32_t index, runnel_adapter *adapter);

/* ---- Text and tokens --------------------------------------------------------------------- */

enum {
    RUNNEL_TOKENIZE_BOS = 1,    /* BOS/EOS as the model's metadata asks for */
    RUNNEL_TOKENIZE_SPECIAL = 2 /* control tokens written in the text become control tokens */
};

/* Text [text_bytes] (UTF-8) to token ids. Writes at most `capacity` ids to `tokens` and the whole count to *count, so
 * that capacity 0 measures. Runs on this thread, in linear time. Of no bytes the text may be NULL, and with capacity 0
 * `tokens`. Returns OK; INVALID: any other NULL, not UTF-8, or 2 GiB and more; UNSUPPORTED: the model has no text
 * vocabulary; STATE: the model is not loaded; CLOSED; NO_MEMORY. */
RUNNEL_API runnel_status runnel_tokenize(runnel_model *model, const char *text, size_t text_bytes, uint32_t flags,
                                         int32_t *tokens, size_t capacity, size_t *count);

/* Token ids to the text that begins with them (not NUL-terminated; whole UTF-8 only if the tokens are). Vocabularies
 * whose words have their space in front (SentencePiece, Unigram, WordPiece) put one before the first word of a text,
 * too: it is left out here. special: writes control tokens as their names instead of nothing. Sizes, and what may be
 * NULL, as in runnel_tokenize. Returns OK; INVALID: any other NULL, or an id that is not in the vocabulary; STATE: the
 * model is not loaded; CLOSED. */
RUNNEL_API runnel_status runnel_detokenize(runnel_model *model, const int32_t *tokens, size_t count, int special,
                                           char *text, size_t capacity, size_t *text_bytes);

/* The bytes that one token stands for within a text, its space in front included. Joined they are what
 * runnel_detokenize gives of the same tokens, but for the space that it leaves out. All else as there. */
RUNNEL_API runnel_status runnel_token_text(runnel_model *model, int32_t token, int special, char *text, size_t capacity,
                                           size_t *text_bytes);

/* ---- Events ------------------------------------------------------------------------------ */

typedef struct runnel_logprob {
    int32_t token;
    float logprob; /* natural logarithm, of the distribution before any sampling parameter, or with
                      runnel_samplers.logprobs_after of what the chain has left */
} runnel_logprob;

/* name, value. DONE, CANCELLED and FAILED are the terminal events; later additions come behind them. */
#define RUNNEL_EVENT_MAP(X)                                                                \
    X(TOKEN, 0)          /* a token, and the text that is certain by now */                \
    X(PROGRESS, 1)       /* prompt positions done; only if asked for */                    \
    X(LOGITS, 2)         /* logits of one position of the prompt; only if asked for */     \
    X(REASONING, 3)      /* chat: a fragment of the model's reasoning */                   \
    X(TOOL_CALL, 4)      /* chat: a call begins; `text` is the tool's name */              \
    X(TOOL_ID, 5)        /* chat: `text` is the call's id, where the format has ids */     \
    X(TOOL_ARGUMENTS, 6) /* chat: a fragment of the arguments */                           \
    X(TOOL_END, 7)       /* chat: the call is complete; its fragments join to an object */ \
    X(EMBEDDING, 8)      /* runnel_embed: the vector */                                    \
    X(DONE, 9)                                                                             \
    X(CANCELLED, 10)                                                                       \
    X(FAILED, 11)

#define RUNNEL_EVENT_ENUM(name, value) RUNNEL_EVENT_##name = value,
typedef enum runnel_event_type { RUNNEL_EVENT_MAP(RUNNEL_EVENT_ENUM) } runnel_event_type;
#undef RUNNEL_EVENT_ENUM

RUNNEL_API const char *runnel_event_name(runnel_event_type type); /* "TOOL_CALL"; "UNKNOWN" */

typedef enum runnel_finish {
    RUNNEL_FINISH_NONE = 0,  /* not a terminal event, cancelled, failed, or of a session's file */
    RUNNEL_FINISH_STOP = 1,  /* end of text, a stop token or a stop string */
    RUNNEL_FINISH_LENGTH = 2 /* max_tokens or the context is reached */
} runnel_finish;

typedef struct runnel_usage {
    uint64_t prompt_tokens;     /* of this request; in a session: of this turn and the history it continues */
    uint64_t cached_tokens;     /* of prompt_tokens, those taken from the prefix cache or the session */
    uint64_t completion_tokens; /* includes the token that ended the text */
    uint64_t drafted_tokens, accepted_tokens;         /* guesses that were verified, and those that were right; with a
                                                         grammar also, without `draft`, text that it leaves no choice
                                                         of */
    uint64_t warm_tokens, cold_tokens, shared_tokens; /* of cached_tokens, those fetched for this request from packed
                                                          memory, cache_dir and cache_shared */
    uint64_t rested_passes; /* of the answer: without guesses because the drafter rested ... */
    runnel_rest rest;       /* ... and why, in most of them */
    uint32_t reserved_rest;
    uint64_t shifts, shifted_tokens; /* how often the context was full (context_keep), and how many tokens went */
    uint64_t reserved[4];
} runnel_usage;

typedef struct runnel_timings { /* microseconds from submit */
    uint64_t admitted_us;       /* blocks leased, prefill begins */
    uint64_t first_token_us;    /* first token sampled; 0: none */
    uint64_t end_us;
    uint64_t reserved[5];
} runnel_timings;

typedef struct runnel_event {
    runnel_event_type type;
    int32_t token; /* TOKEN: its id, one event for each token; -1: only text, of several tokens or held back before.
                      DONE: the token that ended the answer and has no event of its own, an end of text or a stop
                      token; -1: none */
    runnel_stream stream;
    void *user;       /* runnel_request.user */
    const char *text; /* TOKEN, REASONING, TOOL_*: whole UTF-8, not NUL-terminated; may be empty while bytes are held
                         back. The texts of the TOKEN events join to the answer: stop strings are cut off */
    size_t text_bytes;
    float logprob;             /* TOKEN, DONE: of `token`, if logprobs were asked for and it is not -1 */
    uint32_t n_tokens;         /* TOKEN, REASONING, TOOL_*: how many tokens this is the first event of: 1 for a token's
                                  own; more where tokens were joined (coalesce_bytes); 0 for held-back text and for
                                  further parts */
    const runnel_logprob *top; /* TOKEN, DONE: [n_top], best first */
    uint32_t n_top;
    uint32_t tool_call;     /* TOOL_*: number of the call in this answer, from 0 */
    const float *logits;    /* LOGITS: [n_logits], of the token that follows `position` */
    const float *embedding; /* EMBEDDING: [n_embedding] */
    uint32_t n_logits, n_embedding;
    uint64_t position;                  /* LOGITS: position in the prompt */
    uint64_t prompt_done, prompt_total; /* PROGRESS */
    runnel_finish finish;               /* DONE */
    runnel_status status;               /* FAILED; RUNNEL_OK else */
    const char *error;                  /* FAILED: one sentence; "" else */
    runnel_usage usage;                 /* terminal events; of TOKEN, REASONING and TOOL_* events shifts and
                                           shifted_tokens alone: those before the token; of PROGRESS events
                                           cached_tokens alone */
    runnel_timings timings;             /* terminal events */
    int32_t stop;       /* DONE: which of runnel_request.stops ended the answer, by its index; -1: none of them */
    int32_t stop_token; /* DONE: the token of runnel_request.stop_tokens that ended it; -1: none of them. Both -1, with
                           RUNNEL_FINISH_STOP: the model's own end of text, or that of the grammar */
    runnel_about about; /* FAILED: as of runnel_error */
    uint32_t reserved;
} runnel_event;

typedef void (*runnel_event_fn)(void *user, const runnel_event *event);

/* Up to n waiting events in one call instead of callbacks, for bindings and loops of one's own: writes pointers to
 * events[] and returns how many; at most one event of each stream, and RUNNEL_MAX_TAKE in all. Legal in place of
 * runnel_engine_dispatch, and the one way with RUNNEL_DELIVER_TAKE; callbacks of streams do not run, on_load does.
 * Events and what they point to stay valid until the next take, dispatch, drain or free of this engine; a stream whose
 * terminal event was taken is gone from then on. While more events wait, the descriptor stays readable. One thread at a
 * time: a second caller gets 0 at once, as does one inside a callback or with RUNNEL_DELIVER_THREAD. */
#define RUNNEL_MAX_TAKE 64
RUNNEL_API size_t runnel_engine_take(runnel_engine *engine, const runnel_event **events, size_t n);

/* ---- Requests ---------------------------------------------------------------------------- */

/* Members of runnel_sampling for which a model's file recommends a value: its keys general.sampling.temp, .top_k,
 * .top_p, .min_p, .penalty_repeat and .penalty_last_n; and of runnel_samplers: .xtc_probability, .xtc_threshold,
 * .mirostat, .mirostat_tau and .mirostat_eta. Flags. */
typedef enum runnel_recommended {
    RUNNEL_RECOMMENDED_TEMPERATURE = 1,
    RUNNEL_RECOMMENDED_TOP_K = 2,
    RUNNEL_RECOMMENDED_TOP_P = 4,
    RUNNEL_RECOMMENDED_MIN_P = 8,
    RUNNEL_RECOMMENDED_REPETITION_PENALTY = 16,
    RUNNEL_RECOMMENDED_PENALTY_TOKENS = 32,
    RUNNEL_RECOMMENDED_XTC_PROBABILITY = 64,
    RUNNEL_RECOMMENDED_XTC_THRESHOLD = 128,
    RUNNEL_RECOMMENDED_MIROSTAT = 256,
    RUNNEL_RECOMMENDED_MIROSTAT_TAU = 512,
    RUNNEL_RECOMMENDED_MIROSTAT_ETA = 1024
} runnel_recommended;

/* Sets these members of *sampling, leaves the others as they are, and sets *recommended to the flags. A value that is
 * out of range is no recommendation. Nothing uses them unasked: a request without them is greedy. Returns OK; INVALID:
 * a NULL; STATE: the model is not loaded; CLOSED. Any thread. */
RUNNEL_API runnel_status runnel_model_sampling(runnel_model *model, runnel_sampling *sampling, uint32_t *recommended);

/* The same of *samplers, which runnel_samplers_default has filled. INVALID, too: its struct_size is not known. */
RUNNEL_API runnel_status runnel_model_samplers(runnel_model *model, runnel_samplers *samplers, uint32_t *recommended);

#define RUNNEL_MAX_STOPS 256
#define RUNNEL_MAX_STOP_BYTES 1024
#define RUNNEL_MAX_TOP_LOGPROBS 100
#define RUNNEL_MAX_COALESCE_BYTES (1u << 20)
#define RUNNEL_MAX_DRAFTS 16
#define RUNNEL_LABEL_BYTES 64 /* with its NUL */

/* Speculation: who guesses the next tokens of an answer, so that the model verifies several in one pass. Each pass
 * gives one token and one more for each right guess. The text stays the same. Flags; of several drafters the first
 * that has a guess is used, the lowest number first. */
typedef enum runnel_draft {
    RUNNEL_DRAFT_NONE = 0,
    RUNNEL_DRAFT_NGRAM = 1, /* what followed the same tokens earlier in prompt or answer */
    RUNNEL_DRAFT_MODEL = 2  /* the drafter that was loaded with the model (draft_path) */
} runnel_draft;

/* What a request does when its turn has come while blocks of its prompt are still in lower tiers of the cache. They are
 * fetched from submit on, unless computing them is faster. */
typedef enum runnel_cache_wait {
    RUNNEL_CACHE_BEST_EFFORT = 0, /* it uses what has arrived and computes the rest */
    RUNNEL_CACHE_WAIT = 1,        /* it waits for all that is on its way */
    RUNNEL_CACHE_DEADLINE = 2     /* it waits until cache_wait_ms after submit */
} runnel_cache_wait;

/* One of prompt, tokens and chat is given, and not empty. */
typedef struct runnel_request {
    size_t struct_size;
    const char *prompt; /* UTF-8; BOS is added where the model asks for it */
    size_t prompt_bytes;
    const int32_t *tokens; /* ids, taken as they are */
    size_t n_tokens;
    const runnel_chat *chat; /* rendered in the engine: an error of the template, or a prompt that does not fit, is a
                                 FAILED event. With a session, what the conversation shares with it from the beginning
                                 is not computed again, and the rest of the session is replaced */
    runnel_session session;  /* id 0: none. Else the prompt continues the session's tokens, and prompt and answer
                                 become part of it */
    int64_t max_tokens;      /* -1: until the context is full; 0: only the prompt is computed */
    runnel_sampling sampling;
    const char *const *stops; /* [n_stops] non-empty UTF-8 strings, NUL-terminated; the answer ends before them, or with
                                 keep_stop behind them */
    size_t n_stops;
    const int32_t *stop_tokens; /* [n_stop_tokens]; the answer ends with them, their text is not delivered without
                                   keep_stop */
    size_t n_stop_tokens;
    runnel_event_fn on_event; /* NULL: the stream is read with runnel_stream_next, or taken (RUNNEL_DELIVER_TAKE) */
    void *user;
    const char *label;       /* a name for logs, traces and lists of streams: UTF-8 without control bytes, less than
                                 RUNNEL_LABEL_BYTES long; NULL: none */
    uint64_t cache_salt;     /* requests of different salts share nothing in the prefix cache, so that none can learn
                                 by its speed what another has asked. A turn with another salt than the one before
                                 computes its session again */
    uint64_t tenant;         /* whose request it is: tenants of one priority get equal shares of the prompts' part of
                                 each step */
    int32_t priority;        /* requests of a higher one go first, and take KV blocks and steps from lower ones; 0 is
                                 the usual one. The text stays the same */
    uint32_t deadline_ms;    /* since submit: a request that has not ended by then is FAILED with TIMEOUT within one
                                 step, as of runnel_stream_cancel. 0: none */
    uint32_t n_top;          /* with want_logprobs: at most RUNNEL_MAX_TOP_LOGPROBS */
    uint32_t coalesce_bytes; /* 0: each token has an event of its own. Else a stream whose reader is behind, or that is
                                 paused, joins the tokens that wait in one event of at most so many bytes of text (of a
                                 chat's answer: one for each part); when it is full the stream waits. A reader that
                                 keeps up sees each token. At most RUNNEL_MAX_COALESCE_BYTES; not with want_logprobs */
    uint32_t draft;          /* RUNNEL_DRAFT_ flags */
    uint32_t draft_max;      /* guesses in a pass at most, up to RUNNEL_MAX_DRAFTS; 0: 8. Their number adapts to how
                                 many are right and what they cost */
    runnel_cache_wait cache_wait; /* the default is RUNNEL_CACHE_WAIT */
    uint32_t cache_wait_ms;       /* with RUNNEL_CACHE_DEADLINE: since submit */
    uint8_t parse_special;        /* 1: control tokens written in the prompt become control tokens */
    uint8_t ignore_eos;           /* 1: the model's end-of-text tokens do not end the answer; 2: they are not drawn */
    uint8_t want_logprobs;        /* 1: logprob of each chosen token, and of n_top others */
    uint8_t want_progress;        /* 1: PROGRESS events while the prompt is computed */
    uint8_t want_logits;          /* 1: a LOGITS event for each position of the prompt, which is computed even where it
                                     is cached; a session's history has none. With max_tokens 0 it is what a model that
                                     attends in both directions takes, of texts of at most a step's rows */
    uint8_t raw_answer;  /* 1: the answer to a chat is delivered as TOKEN events alone, its text as it is. 0: reasoning
                            and, where the chat has tools, tool calls are events of their own */
    uint8_t pin_prefix;  /* 1: keeps the prompt's whole KV blocks in kv_bytes and writes them to cache_dir at once. At
                            most 64 prompts are kept; the oldest is released for one more, and where a request could
                            not run otherwise. 2: releases what this prompt begins with */
    uint8_t draft_share; /* 1, with RUNNEL_DRAFT_NGRAM: guesses also come from answers of this tenant and cache_salt
                            that asked for the same, about the last ten thousand tokens. For many answers of one form */
    uint8_t draft_chain; /* 1, with RUNNEL_DRAFT_MODEL: only the likeliest guesses are verified; 0: also runners-up, as
                            a tree, where they pay. draft_max counts both */
    uint8_t keep_stop;   /* 1: the stop string that ends the answer, or the text of the stop token, is part of it */
    uint8_t reserved[6];
    int64_t
        context_keep; /* -1: an answer that fills the context ends (RUNNEL_FINISH_LENGTH). 0 or more: it goes on, and
                             its text changes: whenever the context is full, the model keeps the first context_keep
                             tokens of the prompt and the last half of what fits behind them, reads these as a prompt,
                             and sees nothing of the rest any more. Penalties count what it keeps; coins are counted on.
                             Such an answer may never end by itself (max_tokens, deadline_ms). At most half the context;
                             not with a session, whose text it would cut. runnel_usage.shifts says how often it was, of
                             each token's event, too */
    const runnel_grammar *grammar; /* what the answer may be; NULL: any text. Compiled in the engine, once for many
                                      requests: what is wrong with it is a FAILED event */
    const char *adapter; /* the name of one of the model's adapters; NULL: none. A turn with another adapter than the
                            one before computes its session again */
} runnel_request;

/* Greedy, up to the context, no stops, seed 0. */
RUNNEL_API void runnel_request_init(runnel_request *request, size_t struct_size);
RUNNEL_API void runnel_request_default(runnel_request *request);
#define runnel_request_default(request) runnel_request_init((request), sizeof *(request))

/* Checks whether the request's grammar, and the tools and tool_choice of its chat, can be enforced. Reads nothing else
 * of it and compiles it on this thread, which takes some 0.3 s at most; the model may be without weights. OK, also
 * where it asks for nothing; what runnel_generate or the FAILED event would say of it; STATE: the model is not loaded;
 * CLOSED; NO_MEMORY. */
RUNNEL_API runnel_status runnel_grammar_check(runnel_model *model, const runnel_request *request, runnel_error *error);

/* Can tokens be drawn as request->sampling says? Reads nothing else of the request; the model may be without weights.
 * OK; what runnel_generate would say of it (INVALID); STATE: the model is not loaded; CLOSED. Any thread. */
RUNNEL_API runnel_status runnel_sampling_check(runnel_model *model, const runnel_request *request, runnel_error *error);

/* Submits. A prompt of more bytes than the context has tokens is tokenized on this thread, up to 64 KB; any other in
 * the engine. Returns OK; INVALID: *error names the parameter; CONTEXT: the prompt (with its session) is longer than
 * the context less one, or than all KV blocks (of what is tokenized in the engine, and of a chat, a FAILED event says
 * it); BUSY: a limit on streams, queued tokens or queued bytes is reached, and error->retry_ms estimates for how long;
 * STATE: the model is not loaded for generation; NOT_FOUND: no such session, adapter or template; FORMAT: the chat's
 * template is malformed; UNSUPPORTED: the model does not write texts, or has no text vocabulary for the prompt; CLOSED;
 * NO_MEMORY. A FAILED event has INVALID, CONTEXT, TIMEOUT, NUMERIC, DEVICE, FORMAT, UNSUPPORTED or NO_MEMORY; with a
 * session also NOT_FOUND: it was freed before the turn began, or its import failed; with a grammar also BUSY: its
 * reading takes more steps or memory than it may. NUMERIC: the logits are not numbers, or biases forbid every token. */
RUNNEL_API runnel_status runnel_generate(runnel_model *model, const runnel_request *request, runnel_stream *stream,
                                         runnel_error *error);

/* How the positions of a text become one embedding. The numbers are those of the GGUF key
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
    runnel_event_fn on_event; /* as in runnel_request, like all that is not explained here */
    void *user;
    const char *label;
    uint64_t cache_salt;
    uint64_t tenant;
    int32_t priority;
    uint32_t deadline_ms;
    runnel_pooling pooling;
    uint32_t dimensions; /* only the first so many values, which then have length 1; 0: all */
    uint8_t parse_special;
    uint8_t want_progress;
    uint8_t raw; /* 1: the vector as it is. 0: scaled to length 1 (L2), but for a zero vector */
    uint8_t reserved[5];
    const char *adapter;
} runnel_embed_request;

RUNNEL_API void runnel_embed_request_init(runnel_embed_request *request, size_t struct_size);
RUNNEL_API void runnel_embed_request_default(runnel_embed_request *request);
#define runnel_embed_request_default(request) runnel_embed_request_init((request), sizeof *(request))

/* The embedding of a text: the output of the model's final norm, or of the products dense_2 and dense_3 behind it where
 * the file has them, pooled. The stream has one EMBEDDING event and ends
 * as any other (DONE with RUNNEL_FINISH_LENGTH, no tokens). It is scheduled like a request with max_tokens 0, and is
 * the same to the bit whatever runs beside it. Without pooling LAST all positions are computed, cached or not. Statuses
 * as of runnel_generate, and UNSUPPORTED: the model gives no embeddings, or its file wants an unknown pooling and the
 * request names none. A FAILED event with NUMERIC: the vector is not finite. A model that attends in both directions
 * takes a text of at most a step's rows (runnel_model_options.batch_tokens); else CONTEXT. */
RUNNEL_API runnel_status runnel_embed(runnel_model *model, const runnel_embed_request *request, runnel_stream *stream,
                                      runnel_error *error);

/* Ends the stream early: its terminal event is CANCELLED, unless another one was on its way. Its text is a beginning of
 * the answer's; what might have become a stop string is not told. Events of a paused stream are dropped, and then its
 * end is CANCELLED even if the answer was complete. Takes effect within one step in every state. A request that waits
 * while another's template is rendered or grammar compiled ends after that. Idempotent. Returns OK; INVALID; NOT_FOUND:
 * the stream has ended. */
RUNNEL_API runnel_status runnel_stream_cancel(runnel_engine *engine, runnel_stream stream);

/* Makes a choice for which runnel_samplers.choose has returned RUNNEL_CHOOSE_LATER: the place of a token among the
 * candidates; see runnel_candidates_draw. It may be made before that function has returned, too: then what it returns
 * does not count. Returns OK; INVALID; NOT_FOUND: the stream has ended; STATE: no choice is awaited. */
RUNNEL_API runnel_status runnel_stream_choose(runnel_engine *engine, runnel_stream stream, size_t place);

/* Pauses delivery until the stream is resumed. The stream itself stops after a bounded number of undelivered tokens
 * (see coalesce_bytes) and costs the others nothing. A cancelled stream delivers its terminal event even while paused.
 * Both return OK; INVALID; NOT_FOUND: the stream has ended. */
RUNNEL_API runnel_status runnel_stream_pause(runnel_engine *engine, runnel_stream stream);
RUNNEL_API runnel_status runnel_stream_resume(runnel_engine *engine, runnel_stream stream);

/* The next event of a stream without a callback, copied to *event as far as struct_size, sizeof(runnel_event) of the
 * caller, reaches. Blocks at most timeout_ms (negative: for ever). Its pointers are valid until the next call for this
 * stream (of a terminal event `top` and `error`: until this thread's next call). After a terminal event the stream is
 * gone. Returns OK; INVALID; TIMEOUT; NOT_FOUND: the stream has ended; STATE: the stream has a callback or is taken, or
 * another thread is inside this call; CLOSED: the engine is being freed. */
RUNNEL_API runnel_status runnel_stream_read(runnel_engine *engine, runnel_stream stream, int64_t timeout_ms,
                                            runnel_event *event, size_t struct_size);
RUNNEL_API runnel_status runnel_stream_next(runnel_engine *engine, runnel_stream stream, int64_t timeout_ms,
                                            runnel_event *event);
#define runnel_stream_next(engine, stream, timeout_ms, event) \
    runnel_stream_read((engine), (stream), (timeout_ms), (event), sizeof *(event))

/* ---- Sessions ---------------------------------------------------------------------------- */

/* A conversation: its KV blocks stay between requests. Its requests run one after another, in the order of submit.
 * Sessions in files: runnel_files.h. Returns OK; INVALID; BUSY: max_sessions have not been freed, or of those
 * that were 256 are not gone yet, since their requests still run; STATE: the model is not loaded for generation;
 * CLOSED. */
RUNNEL_API runnel_status runnel_session_new(runnel_model *model, runnel_session *session);

/* The session does not count any more; its blocks are freed once its running requests have ended. Returns OK; INVALID;
 * NOT_FOUND. */
RUNNEL_API runnel_status runnel_session_free(runnel_model *model, runnel_session session);

/* A copy of what the session is once the turns submitted before this call have ended. Turns on the copy may be
 * submitted at once. The two share KV blocks until one writes into them. Returns OK; NOT_FOUND; else as
 * runnel_session_new. */
RUNNEL_API runnel_status runnel_session_fork(runnel_model *model, runnel_session session, runnel_session *copy);

#ifdef __cplusplus
}
#endif

#include "runnel_observe.h"

#endif
