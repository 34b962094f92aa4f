/* runnel: work on files, beside the engine: inspecting a model file, cache folders, training a head that drafts,
 * sessions in files. The rules of runnel.h hold here too. */
#ifndef RUNNEL_FILES_H
#define RUNNEL_FILES_H

#include "runnel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Looking into a file ----------------------------------------------------------------- */

typedef struct runnel_file runnel_file; /* a GGUF file opened for inspection only */

/* Opens and checks a GGUF file (with all its parts) without loading it. Blocks on the disk. Returns OK, INVALID, IO,
 * FORMAT, UNSUPPORTED or NO_MEMORY. Closing NULL is allowed. */
RUNNEL_API runnel_status runnel_file_open(const char *path, runnel_file **file, runnel_error *error);
RUNNEL_API void runnel_file_close(runnel_file *file);

typedef struct runnel_file_info {
    size_t struct_size; /* set by the caller to sizeof(runnel_file_info) */
    uint32_t version, parts;
    uint32_t alignment;
    uint32_t reserved;
    uint64_t n_metadata, n_tensors;
    uint64_t file_bytes;
    uint64_t parameters;
    uint64_t weight_bytes;
} runnel_file_info;

/* Returns OK or INVALID. */
RUNNEL_API runnel_status runnel_file_get_info(const runnel_file *file, runnel_file_info *info);

typedef struct runnel_metadata {
    size_t struct_size; /* set by the caller to sizeof(runnel_metadata) */
    const char *key;    /* valid while the file is open */
    size_t key_bytes;
    const char *type; /* "u32", "string", "array of f32", ... */
    uint64_t count;   /* elements of an array, else 1 */
} runnel_metadata;

/* Entry `index` of the metadata. Returns OK, INVALID or NOT_FOUND. */
RUNNEL_API runnel_status runnel_file_metadata(const runnel_file *file, uint64_t index, runnel_metadata *metadata);

/* Writes element `element` of entry `index` as text: numbers in decimal, strings as they are.
 * Sizes as in runnel_tokenize; not NUL-terminated. Returns OK, INVALID or NOT_FOUND. */
RUNNEL_API runnel_status runnel_file_metadata_text(const runnel_file *file, uint64_t index, uint64_t element,
                                                   char *text, size_t capacity, size_t *text_bytes);

typedef struct runnel_tensor {
    size_t struct_size; /* set by the caller to sizeof(runnel_tensor) */
    const char *name;   /* valid while the file is open */
    size_t name_bytes;
    const char *type; /* "Q4_K" */
    uint32_t n_dims;
    uint32_t part;    /* of a split file */
    uint64_t dims[4]; /* fastest first; 1 beyond n_dims */
    uint64_t bytes;
    uint64_t offset; /* in that part's file */
} runnel_tensor;

/* Tensor `index`. Returns OK, INVALID or NOT_FOUND. */
RUNNEL_API runnel_status runnel_file_tensor(const runnel_file *file, uint64_t index, runnel_tensor *tensor);

/* Rows for the functions below, as runnel_engine_options.architectures, instead of those given before. INVALID names
 * the row; the file keeps what it had. Returns OK, INVALID or NO_MEMORY. */
RUNNEL_API runnel_status runnel_file_set_architectures(runnel_file *file, const runnel_architecture_row *const *rows,
                                                       size_t n, runnel_error *error);

/* Bytes of KV that one position needs. Returns OK; INVALID; UNSUPPORTED: the architecture is not known; FORMAT; or
 * NO_MEMORY. */
RUNNEL_API runnel_status runnel_file_kv_bytes_per_token(const runnel_file *file, runnel_kv_type kv_type,
                                                        uint64_t *bytes, runnel_error *error);

/* Chat template `index` of the file, as runnel_model_template tells it; parses and probes it on this thread. Returns
 * OK, INVALID, NOT_FOUND, FORMAT or NO_MEMORY. */
RUNNEL_API runnel_status runnel_file_template(const runnel_file *file, uint32_t index, runnel_template_info *info,
                                              runnel_error *error);

/* The sampling parameters that the file recommends, as runnel_model_sampling. Returns OK or INVALID. */
RUNNEL_API runnel_status runnel_file_sampling(const runnel_file *file, runnel_sampling *sampling,
                                              uint32_t *recommended);

/* The same of further samplers, as runnel_model_samplers. */
RUNNEL_API runnel_status runnel_file_samplers(const runnel_file *file, runnel_samplers *samplers,
                                              uint32_t *recommended);

/* The forward pass that the file's metadata and tensors make, as text: a line of sizes (behind it one of what is
 * assumed, where the architecture is not known) and one for each operation, with
 * its values, weights and numbers. Sizes as in runnel_tokenize; not NUL-terminated. Returns OK; INVALID: a NULL;
 * UNSUPPORTED: the architecture, or what the file asks of it; FORMAT: a tensor or key is missing or has another shape;
 * NO_MEMORY. */
RUNNEL_API runnel_status runnel_file_plan(const runnel_file *file, char *text, size_t capacity, size_t *text_bytes,
                                          runnel_error *error);

enum { RUNNEL_FEATURES_BYTES = 1024 };

/* Architecture `index` of those that load (general.architecture), in the order of docs/ARCHITECTURES.md: its name, a
 * static string; NULL: there are not so many. features: NULL, or gets in words what its blocks have. */
RUNNEL_API const char *runnel_architecture(uint32_t index, char features[RUNNEL_FEATURES_BYTES]);

/* ---- Cache folders ----------------------------------------------------------------------- */

/* What a model's cold tier has left in a folder: inspected and purged without the model; see docs/TIERS.md. These calls
 * block on the disk and call back on the caller's thread; ls, inspect and verify change nothing and may run while an
 * engine uses the folder. A `fingerprint` may be shortened to digits that tell it from the others, and is NOT_FOUND
 * where none or several begin so; NULL: all. Other files in the folder are counted as foreign and left alone. */
typedef struct runnel_cache_entry {
    size_t struct_size;
    const char *fingerprint; /* 32 hexadecimal digits: of model and KV format */
    const char *model;       /* its name, for people; "" if no file says it */
    uint32_t block_tokens;
    uint32_t reserved;
    uint64_t block_bytes; /* of KV, unpacked */
    uint64_t segments, records, salts;
    uint64_t prefixes;                 /* of different first blocks */
    uint64_t longest_tokens;           /* of a prefix */
    uint64_t file_bytes, record_bytes; /* of the files; of the records that can be used */
    uint64_t damaged;                  /* segments and records whose index is not whole; see runnel_cache_verify */
} runnel_cache_entry;

typedef struct runnel_cache_record {
    size_t struct_size;
    uint64_t id, parent;   /* parent: the record of the block before it, reported earlier; 0: none */
    uint64_t salt;         /* cache_salt */
    const int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t depth; /* blocks before it */
    uint32_t bytes; /* packed */
    uint32_t reserved;
} runnel_cache_record;

typedef struct runnel_cache_damage {
    size_t struct_size;
    const char *fingerprint;
    const char *file;       /* in its folder */
    uint64_t offset, bytes; /* where */
    const char *what;       /* a sentence */
} runnel_cache_damage;

typedef struct runnel_cache_totals {
    size_t struct_size;                              /* set by the caller to sizeof(runnel_cache_totals) */
    uint64_t fingerprints, segments, records, bytes; /* that were read; purge: that were removed */
    uint64_t damaged, foreign;
} runnel_cache_totals;

typedef struct runnel_cache_purge_options {
    size_t struct_size;
    const char *fingerprint;
    uint64_t salt;
    uint64_t keep_bytes; /* removes the oldest segments of each fingerprint until so many bytes are left */
    uint8_t by_salt;     /* 1: instead, overwrites the records of `salt` and gives their room back */
    uint8_t reserved[7];
} runnel_cache_purge_options;

/* Reads the indexes alone. on_entry and totals may be NULL, as in the calls below. Returns OK; INVALID; IO: the folder
 * cannot be read; NO_MEMORY. */
RUNNEL_API runnel_status runnel_cache_ls(const char *path,
                                         void (*on_entry)(void *user, const runnel_cache_entry *entry), void *user,
                                         runnel_cache_totals *totals, runnel_error *error);

/* Reports each record of one fingerprint, parents first. Returns OK; INVALID; IO; NOT_FOUND: no such fingerprint;
 * NO_MEMORY. */
RUNNEL_API runnel_status runnel_cache_inspect(const char *path, const char *fingerprint,
                                              void (*on_record)(void *user, const runnel_cache_record *record),
                                              void *user, runnel_error *error);

/* Reads everything and compares it with its checksums. Returns OK, also where damage was found (see totals); INVALID;
 * IO; NOT_FOUND: no such fingerprint; NO_MEMORY. */
RUNNEL_API runnel_status runnel_cache_verify(const char *path, const char *fingerprint,
                                             void (*on_damage)(void *user, const runnel_cache_damage *damage),
                                             void *user, runnel_cache_totals *totals, runnel_error *error);

RUNNEL_API void runnel_cache_purge_options_init(runnel_cache_purge_options *options, size_t struct_size);
RUNNEL_API void runnel_cache_purge_options_default(runnel_cache_purge_options *options);
#define runnel_cache_purge_options_default(options) runnel_cache_purge_options_init((options), sizeof *(options))

/* Removes records. Returns OK; INVALID; NOT_FOUND: no such fingerprint; BUSY: an engine writes one of them, and nothing
 * was done; IO: the disk failed or is full; nothing else is lost, and another call goes on; NO_MEMORY. */
RUNNEL_API runnel_status runnel_cache_purge(const char *path, const runnel_cache_purge_options *options,
                                            runnel_cache_totals *totals, runnel_error *error);

/* ---- EAGLE heads -------------------------------------------------------------------------- */

/* Training of a head that drafts for a model: a small network that reads the residual streams behind a few of the
 * model's blocks and predicts the tokens that the model is about to draw. See docs/EAGLE.md. */
typedef struct runnel_training runnel_training;

typedef struct runnel_eagle_options {
    size_t struct_size;
    uint32_t steps;       /* of learning; 0: 600 */
    uint32_t text_tokens; /* tokens of one text, at least 16; 0: 128 */
    uint32_t texts;       /* texts that one step learns from; 0: 4 */
    uint32_t unroll;      /* drafts in a row that it is trained for, at most 8; 0: 4 */
    uint32_t layers[8];   /* blocks to read, from 0, ascending */
    uint32_t n_layers;    /* 0: the third, the middle one and the last; of five blocks the first, the middle one and
                             the last; of fewer the last alone */
    float rate;           /* of learning, at its peak; 0: 0.001 */
    uint64_t seed;        /* of starting weights and of which texts come when */
    const char *state;    /* a file to which the training is saved as it goes; NULL: none */
    uint8_t resume;       /* 1: go on from `state`, if the file exists */
    uint8_t reserved[7];
} runnel_eagle_options;

typedef enum runnel_training_state {
    RUNNEL_TRAINING_RUNNING = 0,
    RUNNEL_TRAINING_DONE = 1,      /* the head's file is written */
    RUNNEL_TRAINING_CANCELLED = 2, /* the state's file is written, if one is kept */
    RUNNEL_TRAINING_FAILED = 3
} runnel_training_state;

typedef struct runnel_training_progress {
    size_t struct_size; /* set by the caller to sizeof(runnel_training_progress) */
    runnel_training_state state;
    uint32_t step, steps;
    float loss;     /* of the last step: cross-entropy of the first draft, in nats */
    float accepted; /* of the last step: how often the first draft is the model's likeliest token, 0 to 1 */
    uint32_t reserved;
} runnel_training_progress;

RUNNEL_API void runnel_eagle_options_init(runnel_eagle_options *options, size_t struct_size);
RUNNEL_API void runnel_eagle_options_default(runnel_eagle_options *options);
#define runnel_eagle_options_default(options) runnel_eagle_options_init((options), sizeof *(options))

/* Begins to train a head for the GGUF file `model` on corpus[0..corpus_bytes), text of the kind that will be generated,
 * and returns at once; the head's file appears at `head` when the training is done. It has a thread of its own at the
 * lowest priority; the model's passes go to the engine's compute threads in small pieces between those of streams. The
 * same file, corpus, options and machine give the same head. options NULL: defaults. Returns OK; INVALID names the
 * option, also where `head` or `state` is a file of the model, or both are one file; IO: a path that cannot be opened,
 * or where a file cannot be written: no regular file, or a folder that takes none; BUSY: 16 trainings have not been
 * freed; CLOSED; NO_MEMORY. */
RUNNEL_API runnel_status runnel_eagle_train(runnel_engine *engine, const char *model, const char *corpus,
                                            size_t corpus_bytes, const char *head, const runnel_eagle_options *options,
                                            runnel_training **training, runnel_error *error);

/* Blocks until there is progress or timeout_ms have passed (negative: for ever), and reports it. One thread at a time.
 * Returns OK; INVALID; once the training has failed, its status: IO, FORMAT, UNSUPPORTED, INVALID, NO_MEMORY, NUMERIC,
 * DEVICE, STATE (what `state` has was trained with other options or another model or corpus) or BUSY (another training
 * writes the file). */
RUNNEL_API runnel_status runnel_training_wait(runnel_training *training, int64_t timeout_ms,
                                              runnel_training_progress *progress, runnel_error *error);

/* The training ends within a step, with its state saved; while the corpus is tokenized, within 256 KB of it. */
RUNNEL_API void runnel_training_cancel(runnel_training *training);

/* Cancels a running training, waits for it and frees it. An engine that is freed first does the same, but the handle
 * stays valid, and needs the engine's allocator, until it is freed here. Another thread may free the engine at the same
 * time: then that call may be the one that waits. NULL is allowed. */
RUNNEL_API void runnel_training_free(runnel_training *training);

/* ---- Sessions in files ------------------------------------------------------------------- */

/* Where a session goes to or comes from: docs/SESSIONS.md. */
typedef struct runnel_session_file {
    size_t struct_size;
    const char *path;
    const void *note; /* export: [note_bytes] of the host's own data, kept with the session; see
                         runnel_session_read_note */
    size_t note_bytes;
    uint64_t cache_salt;      /* import: the salt of the turns to come. It is not in the file */
    runnel_event_fn on_event; /* as in runnel_request, like the next two */
    void *user;
    const char *label;
} runnel_session_file;

RUNNEL_API void runnel_session_file_init(runnel_session_file *file, size_t struct_size);
RUNNEL_API void runnel_session_file_default(runnel_session_file *file);
#define runnel_session_file_default(file) runnel_session_file_init((file), sizeof *(file))

/* Writes to a file what the session is once the turns submitted before this call have ended; the session goes on
 * meanwhile. The stream has one event: DONE (usage: prompt_tokens are the tokens in the file, cached_tokens those with
 * their KV), CANCELLED, or FAILED (IO or NO_MEMORY). The file is written under another name in the same folder, synced
 * and renamed: at any moment either the old or the new one is there, whole. Only its owner can read it. If the
 * path is a symbolic link, its target is replaced. If it exists and is no regular file, the export fails with IO. The
 * engine has one thread for the disk: a load in front is waited for, and then a cancel takes effect after it. Returns
 * OK; INVALID; NOT_FOUND: no such session; BUSY: too many streams; STATE: the model is not loaded for generation;
 * CLOSED; NO_MEMORY. */
RUNNEL_API runnel_status runnel_session_export(runnel_model *model, runnel_session session,
                                               const runnel_session_file *file, runnel_stream *stream,
                                               runnel_error *error);

/* A new session from a file. The stream has one event: DONE (usage: prompt_tokens are the session's tokens,
 * cached_tokens those that need not be computed again); CANCELLED or FAILED, after which the session is gone. Turns may
 * be submitted at once; they wait. A FAILED event has FORMAT: not a session, or damaged anywhere; UNSUPPORTED: of
 * another model, vocabulary or a later version; CONTEXT: more tokens than fit; IO; or NO_MEMORY. KV of another kind
 * (device, instruction set, kv_type, positions per block, an adapter that the model has not), or that finds no room, is
 * left out: the next turn computes
 * it, and the text is the same. The checks are against accidents: whoever can write the file decides what the model has
 * read. Its KV is not shared with others. Returns as an export, without NOT_FOUND; BUSY: too many streams or
 * sessions. */
RUNNEL_API runnel_status runnel_session_import(runnel_model *model, const runnel_session_file *file,
                                               runnel_session *session, runnel_stream *stream, runnel_error *error);

/* The note of a file: its size to *note_bytes and, where capacity suffices, the bytes, verified. Blocks on the disk.
 * Returns OK, INVALID, IO, FORMAT, UNSUPPORTED or NO_MEMORY. */
RUNNEL_API runnel_status runnel_session_read_note(const char *path, void *note, size_t capacity, size_t *note_bytes,
                                                  runnel_error *error);

#ifdef __cplusplus
}
#endif

#endif
