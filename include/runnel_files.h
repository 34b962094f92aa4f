/* runnel: work on files, beside the engine. A look into a model file; what a prefix cache has left in a folder;
 * training of a head that drafts; sessions that are kept. The rules of runnel.h hold here too. */
#ifndef RUNNEL_FILES_H
#define RUNNEL_FILES_H

#include "runnel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Looking into a file ----------------------------------------------------------------- */

typedef struct runnel_file runnel_file; /* a GGUF file opened for inspection only */

/* Opens and checks a GGUF file (with all its parts) without loading it. Blocks on the disk. */
RUNNEL_API runnel_status runnel_file_open(const char *path, runnel_file **file, runnel_error *error);
RUNNEL_API void runnel_file_close(runnel_file *file);

typedef struct runnel_file_info {
    size_t struct_size;
    uint32_t version, parts;
    uint32_t alignment;
    uint64_t n_metadata, n_tensors;
    uint64_t file_bytes;
    uint64_t parameters;
    uint64_t weight_bytes;
} runnel_file_info;
RUNNEL_API void runnel_file_get_info(const runnel_file *file, runnel_file_info *info);

typedef struct runnel_metadata {
    const char *key; /* valid while the file is open */
    size_t key_bytes;
    const char *type; /* "u32", "string", "array of f32", ... */
    uint64_t count;   /* elements of an array, else 1 */
} runnel_metadata;
RUNNEL_API runnel_status runnel_file_metadata(const runnel_file *file, uint64_t index, runnel_metadata *metadata);

/* Writes element `element` of entry `index` as text: numbers in decimal, strings as they are.
 * Sizes as in runnel_tokenize; not NUL-terminated. */
RUNNEL_API runnel_status runnel_file_metadata_text(const runnel_file *file, uint64_t index, uint64_t element,
                                                   char *text, size_t capacity, size_t *text_bytes);

typedef struct runnel_tensor {
    const char *name; /* valid while the file is open */
    size_t name_bytes;
    const char *type; /* "Q4_K" */
    uint32_t n_dims;
    uint64_t dims[4]; /* fastest first; 1 beyond n_dims */
    uint64_t bytes;
    uint32_t part;   /* of a split file */
    uint64_t offset; /* in that part's file */
} runnel_tensor;
RUNNEL_API runnel_status runnel_file_tensor(const runnel_file *file, uint64_t index, runnel_tensor *tensor);

/* Bytes of KV that one position needs; RUNNEL_UNSUPPORTED with a sentence where the architecture
 * is not known. */
RUNNEL_API runnel_status runnel_file_kv_bytes_per_token(const runnel_file *file, runnel_kv_type kv_type,
                                                        uint64_t *bytes, runnel_error *error);

/* ---- Cache folders ----------------------------------------------------------------------- */

/* What a model's cold tier has left in a folder, looked at and taken away without the model: docs/TIERS.md. These
 * calls block on the disk and call back on the caller's thread; ls, inspect and verify change nothing and may run
 * while an engine uses the folder. Errors: IO, the folder cannot be read; NOT_FOUND, no such fingerprint in it. A
 * `fingerprint` may be shortened to the digits that tell it from the others; NULL: all. What else lies in the folder is
 * counted as foreign and left alone. */
typedef struct runnel_cache_entry {
    size_t struct_size;
    const char *fingerprint; /* 32 hexadecimal digits: of model, KV format and adapter */
    const char *model;       /* its name, for people; "" if no file says it */
    uint32_t block_tokens;
    uint64_t block_bytes; /* of KV, unpacked */
    uint64_t segments, records, salts;
    uint64_t prefixes;                 /* of different first blocks */
    uint64_t longest_tokens;           /* of a prefix */
    uint64_t file_bytes, record_bytes; /* of the files; of the records that can be used */
    uint64_t damaged;                  /* segments and records that a glance finds not whole; see runnel_cache_verify */
} runnel_cache_entry;

typedef struct runnel_cache_record {
    size_t struct_size;
    uint64_t id, parent;   /* parent: the record of the block before it, told before; 0: none */
    uint64_t salt;         /* cache_salt */
    uint32_t depth;        /* blocks before it */
    const int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t bytes; /* packed */
} runnel_cache_record;

typedef struct runnel_cache_damage {
    size_t struct_size;
    const char *fingerprint;
    const char *file;       /* in its folder */
    uint64_t offset, bytes; /* where */
    const char *what;       /* a sentence */
} runnel_cache_damage;

typedef struct runnel_cache_totals {
    size_t struct_size;
    uint64_t fingerprints, segments, records, bytes; /* that were looked at; purge: that are gone */
    uint64_t damaged, foreign;
} runnel_cache_totals;

typedef struct runnel_cache_purge_options {
    size_t struct_size;
    const char *fingerprint;
    uint8_t by_salt; /* 1: the records of `salt`: overwritten, and their room given back */
    uint64_t salt;
    uint64_t keep_bytes; /* else: the oldest segments of each fingerprint, until so many bytes are left */
} runnel_cache_purge_options;

/* on_entry and totals may be NULL, as in the calls below. Reads the indexes alone. */
RUNNEL_API runnel_status runnel_cache_ls(const char *path,
                                         void (*on_entry)(void *user, const runnel_cache_entry *entry), void *user,
                                         runnel_cache_totals *totals, runnel_error *error);

/* Tells of each record of one fingerprint, parents first. */
RUNNEL_API runnel_status runnel_cache_inspect(const char *path, const char *fingerprint,
                                              void (*on_record)(void *user, const runnel_cache_record *record),
                                              void *user, runnel_error *error);

/* Reads everything and compares it with its checksums. OK, also where damage was found: look at totals. */
RUNNEL_API runnel_status runnel_cache_verify(const char *path, const char *fingerprint,
                                             void (*on_damage)(void *user, const runnel_cache_damage *damage),
                                             void *user, runnel_cache_totals *totals, runnel_error *error);

RUNNEL_API void runnel_cache_purge_options_default(runnel_cache_purge_options *options);

/* BUSY: an engine writes one of them; then nothing has been done. IO: the disk failed or is full; nothing is lost but what
 * was to go, and another call goes on. */
RUNNEL_API runnel_status runnel_cache_purge(const char *path, const runnel_cache_purge_options *options,
                                            runnel_cache_totals *totals, runnel_error *error);

/* ---- EAGLE heads -------------------------------------------------------------------------- */

/* Training of a head that drafts for a model: a small network that reads the residual streams behind a few of the
 * model's blocks and foretells the tokens that the model is about to draw. See docs/EAGLE.md. */
typedef struct runnel_training runnel_training;

typedef struct runnel_eagle_options {
    size_t struct_size;
    uint32_t steps;       /* of learning; 0: 600 */
    uint32_t text_tokens; /* tokens of one text, at least 16; 0: 128 */
    uint32_t texts;       /* texts that one step learns from; 0: 4 */
    uint32_t unroll;      /* drafts in a row that it is trained for, at most 8; 0: 4 */
    uint32_t layers[8];   /* blocks to read, from 0, ascending */
    uint32_t n_layers;    /* 0: three of them, near the beginning, the middle and the end */
    float rate;           /* of learning, at its peak; 0: 0.001 */
    uint64_t seed;        /* of starting weights and of which texts come when */
    uint8_t resume;       /* 1: go on from `state`, if it is there */
    const char *state;    /* a file that keeps the training as it goes; NULL: none */
} runnel_eagle_options;

typedef enum runnel_training_state {
    RUNNEL_TRAINING_RUNNING = 0,
    RUNNEL_TRAINING_DONE = 1,      /* the head's file is there */
    RUNNEL_TRAINING_CANCELLED = 2, /* the state's file is there, if one is kept */
    RUNNEL_TRAINING_FAILED = 3
} runnel_training_state;

typedef struct runnel_training_progress {
    size_t struct_size;
    runnel_training_state state;
    uint32_t step, steps;
    float loss;     /* of the last step: cross-entropy of the first draft, in nats */
    float accepted; /* of the last step: how often the first draft is the model's likeliest token, 0 to 1 */
} runnel_training_progress;

RUNNEL_API void runnel_eagle_options_default(runnel_eagle_options *options);

/* Begins to train a head for the GGUF file `model` on corpus[0..corpus_bytes), text of the kind that will be generated
 * (copied), and returns at once; the head's file appears at `head` when it is done. A thread of its own
 * runs at the lowest priority but for the model's passes, which go to the engine's compute threads in small pieces
 * between those of streams. The same file, corpus, options and machine give the same head. INVALID names the option;
 * IO: a path that cannot be opened; BUSY: 16 have not been freed; CLOSED. */
RUNNEL_API runnel_status runnel_eagle_train(runnel_engine *engine, const char *model, const char *corpus,
                                            size_t corpus_bytes, const char *head, const runnel_eagle_options *options,
                                            runnel_training **training, runnel_error *error);

/* Sleeps until there is something new or timeout_ms have passed (negative: for ever), and says how far it is. Any one
 * thread at a time. OK; once it has failed, its error; INVALID: struct_size is not of this library. */
RUNNEL_API runnel_status runnel_training_wait(runnel_training *training, int64_t timeout_ms,
                                              runnel_training_progress *progress, runnel_error *error);

/* It ends soon, with its state kept. Any thread. */
RUNNEL_API void runnel_training_cancel(runnel_training *training);

/* Cancels what still runs and waits for it. If the engine is freed first it does so itself: a training that still ran
 * is cancelled, its state kept; this handle is valid nevertheless until it is freed here, and so must the engine's
 * allocator be. NULL is allowed. */
RUNNEL_API void runnel_training_free(runnel_training *training);

/* ---- Sessions in files ------------------------------------------------------------------- */

/* Where a session goes to or comes from: docs/SESSIONS.md. */
typedef struct runnel_session_file {
    size_t struct_size;
    const char *path;
    const void *note; /* export: [note_bytes] of the host's own, kept with the session; see
                         runnel_session_read_note */
    size_t note_bytes;
    uint64_t cache_salt;      /* import: that of the turns to come. It is not in the file */
    runnel_event_fn on_event; /* NULL: the stream is read with runnel_stream_next */
    void *user;
} runnel_session_file;

RUNNEL_API void runnel_session_file_default(runnel_session_file *file);

/* Writes to a file what the session is once the turns submitted before this call have ended; it goes on meanwhile. The
 * stream has one event: DONE (usage: prompt_tokens are the tokens in the file, cached_tokens those with their KV),
 * CANCELLED, or FAILED. The file is written under another name in the same folder, synced, and renamed: at any moment
 * there is the old one or the new one, whole. Only its owner can read it. The engine has one thread for the disk: a
 * load in front is waited for, and then a cancel takes effect after it. Errors of the call as of runnel_generate. */
RUNNEL_API runnel_status runnel_session_export(runnel_model *model, runnel_session session,
                                               const runnel_session_file *file, runnel_stream *stream,
                                               runnel_error *error);

/* A new session out of a file. The stream has one event: DONE (usage: prompt_tokens are the session's tokens,
 * cached_tokens those that need not be computed again), CANCELLED or FAILED, and then the session is gone. Turns may
 * be submitted at once; they wait. FORMAT: no session, or one that is damaged, anywhere; UNSUPPORTED: of another
 * model or vocabulary, or a later version; CONTEXT: more tokens than fit; IO. KV of another kind (device, instruction
 * set, kv_type, positions per block) or that finds no room is left out: the next turn computes it, and the text is the
 * same. Whoever can write the file decides what the model has read: the checks are against accidents. Nothing of it is
 * shared with others. */
RUNNEL_API runnel_status runnel_session_import(runnel_model *model, const runnel_session_file *file,
                                               runnel_session *session, runnel_stream *stream, runnel_error *error);

/* The note of a file: the whole size to *note_bytes, and with capacity enough the bytes, checked. Blocks on the disk.
 * Errors as of an import. */
RUNNEL_API runnel_status runnel_session_read_note(const char *path, void *note, size_t capacity, size_t *note_bytes,
                                                  runnel_error *error);

#ifdef __cplusplus
}
#endif

#endif
