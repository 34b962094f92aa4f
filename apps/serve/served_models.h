/* The models of a server: those of the command line, which are loaded at the start and stay, and those of a folder or a
 * configuration file, which are loaded when they are asked for.
 *
 *     UNLOADED ──asked for──▶ MEASURING ──▶ WAITING ──room──▶ LOADING ──▶ READY
 *         ▲                    (its head)                                  │
 *         └────────────── idle for keep_alive, or others need the room ◀───┘
 *
 * A request for a model that is not ready waits in its list, and its route's handler is called again when it is: nobody
 * else waits for that. Room is made in the order of asking, by unloading what has no requests, the one that was used
 * longest ago first. Where that is not enough, the models that stand in the way take no new requests any more
 * (leaving): these wait behind, so each model has its turn.
 *
 * All changes are made by one function, settle, from a timer: so none happens in the middle of a handler.
 *
 * On SIGHUP the list is read again, on a thread of libuv's. A model whose file or options have changed is a candidate
 * beside the one that it is to replace: it takes its place when it is loaded, or when its head was read where the one
 * before is not loaded. One that cannot be loaded is dropped. */
#ifndef RUNNEL_SERVE_SERVED_MODELS_H
#define RUNNEL_SERVE_SERVED_MODELS_H

#include <jansson.h>
#include <uv.h>

#include "apps/runnel/common.h"

enum { SERVE_NAME_BYTES = 128, SERVE_MODELS_MOST = 4096 };
enum { SERVE_DIGEST_BYTES = 65 }; /* SHA-256 in hexadecimal digits, and a zero byte */

struct serve;
struct serve_visit;

enum serve_load { SERVE_UNLOADED, SERVE_MEASURING, SERVE_WAITING, SERVE_LOADING, SERVE_READY, SERVE_FAILED };

/* Of its file's head; "" and NULL: not known, or not loaded yet. */
struct serve_facts {
    char family[64], quantization[32], size[32];
    char digest[SERVE_DIGEST_BYTES];
    char *template_text;           /* owned */
    uint32_t knows;                /* RUNNEL_TEMPLATE_ flags */
    uint64_t device_bytes;         /* weights and KV on a device with memory of its own */
    struct app_fingerprint *files; /* [1 + adapters.n], for batches: of what was loaded; owned. NULL: they were changed
                                      meanwhile, or there are no batches here */
};

/* Of a model: each is served under its own name, which no other model or adapter has. */
struct serve_adapters {
    runnel_adapter *at; /* [n]; owned, in one piece with their texts */
    size_t n;
    char (*digests)[SERVE_DIGEST_BYTES]; /* [n]; owned */
};

struct serve_model {
    struct serve *serve;
    char name[SERVE_NAME_BYTES]; /* of the file, without its directories and ".gguf", or as it was named */
    char *path;                  /* owned */
    json_t *entry;               /* of the configuration file; NULL: it is of none. A reference */
    json_t *texts;               /* what its options point into; a reference, or NULL */
    struct app_options options;  /* the program's, and its own instead; without what has memory of its own */
    struct serve_adapters adapters;
    bool pinned;                  /* loaded from the start on, and never unloaded */
    bool retired;                 /* not in the list any more: goes with its last request */
    struct serve_model *replaces; /* of a candidate, which is in no list: the model in whose place it comes */
    bool leaving;                 /* others need its memory: new requests wait */
    bool wanted;                  /* by a batch */
    bool loads;                   /* a load is under way: its last event is to come */
    enum serve_load load;
    runnel_model *handle;            /* NULL: it is not loaded */
    runnel_model_info info;          /* once it is ready */
    struct serve_facts facts;        /* likewise */
    struct serve_facts read;         /* on a thread of libuv's, before they become these */
    char error[RUNNEL_ERROR_BYTES];  /* of its last load, if it failed */
    char digest[SERVE_DIGEST_BYTES]; /* until that of its facts is known */
    int64_t created;                 /* of its file */
    uint64_t stamp;                  /* of its files (app_model_stamp): when it was listed, or measured since */
    uint64_t read_stamp;             /* on a thread of libuv's, before it becomes this */
    uint64_t file_bytes, bytes;      /* bytes: of memory that it takes, or will take */
    uint64_t asked;                  /* the order of those that wait for room */
    uint64_t n_users;                /* tasks that use it */
    struct serve_visit *waiting;     /* that are to be handled when it is ready, the first first */
    uint64_t used_ms;                /* by the loop's clock: when its last request ended */
    int64_t keep_ms, own_keep_ms;    /* how long it stays without one, -1: for good; and where requests do not say */
    uv_work_t work;
};

/* ---- models_list.c: which there are ---- */

struct serve_models {
    struct serve_model **at; /* [n]; owned */
    size_t n;
};

/* Those of the command line, of --models-file and of --models-dir, in this order; two of one name are an error, but for
 * a file of the folder, which gives way. False: *sentence says why. */
bool serve_list_models(struct serve *serve, struct serve_models *list, char sentence[512]);
void serve_models_fini(struct serve_models *list);
void serve_model_free(struct serve_model *model);

/* Whether both are the same file with the same name and options, so that one can go on as the other. */
bool serve_model_same(const struct serve_model *a, const struct serve_model *b);

/* It goes on with what else `fresh` has: aliases, and when it is loaded and unloaded. */
void serve_model_adopt(struct serve_model *model, struct serve_model *fresh);

/* By its name, an alias or the name of one of its adapters; NULL: there is none. */
struct serve_model *serve_model_named(const struct serve_models *list, const char *name);

/* The same by what a request asks for: "NAME:latest" is NAME, unless a model is named so. */
struct serve_model *serve_model_asked(const struct serve_models *list, const char *name);

/* The model's adapter that a request asks for, for which serve_model_asked has given the model; NULL: the model itself,
 * as where name is NULL. */
const runnel_adapter *serve_adapter_asked(const struct serve_model *model, const char *name);

/* The model's adapter of exactly this name; NULL: there is none. */
const runnel_adapter *serve_adapter_named(const struct serve_model *model, const char *name);

/* Its i-th further name; NULL: it has no more. */
const char *serve_model_alias(const struct serve_model *model, size_t i);

/* A file without its directories: what clients are told of it. */
const char *serve_file_name(const char *path);

/* ---- model_facts.c ---- */

/* On any thread: reads the file of a model that is loaded. */
void serve_facts_read(const struct serve_model *model, struct serve_facts *facts);
void serve_facts_fini(struct serve_facts *facts);

/* Of a file that was not read, as many digits, made of its path, length and date. */
void serve_place_digest(const char *path, char digest[SERVE_DIGEST_BYTES]);

/* ---- model_rows.c ---- */

/* Opens the server's engine with the rows of architectures that the program's options and its models name. An exit
 * code. has: none of these models needs another one; else *sentence says so. */
int serve_open_engine(struct serve *serve, runnel_engine_options *options);
bool serve_has_rows(const struct serve *serve, const struct serve_models *list, char sentence[512]);
void serve_rows_fini(struct serve *serve);

/* ---- models.c: which are loaded ---- */

/* Before the engine: which there are. An exit code. */
int serve_read_models(struct serve *serve);

/* Begins with them: those of the command line are loaded. An exit code. */
int serve_load_models(struct serve *serve);

/* Its head is read, then it is loaded when there is room. */
void serve_model_begin(struct serve_model *model);

/* Looks for what can be done now, soon. */
void serve_settle(struct serve *serve);

/* A task uses it; and does not any more. */
void serve_model_use(struct serve_model *model);
void serve_model_leave(struct serve_model *model);

/* A batch waits for it: it is loaded as if a request did. It is asked for again and again until it is ready. */
void serve_model_want(struct serve_model *model);

/* Who waits has left. */
void serve_visit_forget(struct serve_visit *visit);

/* Requests that wait for a model. */
uint64_t serve_count_waiting(const struct serve *serve);

/* All that are there from the start on are ready. */
bool serve_is_ready(const struct serve *serve);

/* ---- models_again.c ---- */

/* Begins to read the list again: what is the same goes on, the rest goes with its last request. Where it cannot be read
 * nothing is changed. The log tells. */
void serve_reload_models(struct serve *serve);

/* A candidate takes the place of the one before; or cannot be loaded. */
void serve_candidate_take(struct serve_model *model);
void serve_candidate_failed(struct serve_model *model);

/* At the end: gives the models back to the engine; and, behind the engine's end, all else. */
void serve_models_unload(struct serve *serve);
void serve_models_end(struct serve *serve);

#endif
