/* runnel serve: a host of the library like any other, on one libuv loop.
 *
 *     http.h ──exchange──▶ routes.c ──▶ ask.c: a body in OpenAI's form becomes a task ──▶ runnel_generate
 *        ▲                    └──▶ pages.c, tokens.c: what needs no stream                       │ events
 *        └──── http_answer, http_stream_write ◀──── task.c (whole answers), chunks.c (streams) ◀──┘
 *
 * Everything runs on the loop's thread, but for what works.h says. A task lives until its exchange is answered or gone
 * and each of its streams has had its terminal event, so whoever leaves early leaves nothing behind. */
#ifndef RUNNEL_SERVE_SERVE_H
#define RUNNEL_SERVE_SERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "apps/runnel/common.h"
#include "apps/serve/http/http.h"
#include "apps/serve/keys/keys.h"
#include "log_lines.h"
#include "served_models.h"
#include "visit.h"
#include "works.h"
#include "apps/openai/openai_answer.h"
#include "apps/openai/openai_fields.h"
#include "apps/openai/openai_request.h"

struct serve;
struct serve_task;
struct serve_stream;

/* A field of a dialect's bodies, by its path, and what it becomes in OpenAI's form; "[]": any index. */
struct serve_field_name {
    const char *theirs, *ours;
};

/* In tokens: of a prompt that is too long, 0 where its bytes already say so, what would fit, and the context. */
struct serve_length {
    unsigned long long prompt, fit, context;
};

/* How a kind of clients writes requests and reads answers. A request of each becomes one in OpenAI's form. */
struct serve_dialect {
    const char *stream_type; /* of answers in pieces */

    /* The body in OpenAI's form, a new reference; NULL: *error says why. NULL: it is in that form. */
    json_t *(*translate)(const json_t *body, struct openai_error *error);

    /* What of a body only the answers need, into the task, once it was read; NULL: nothing. On any thread. */
    void (*wish)(struct serve_task *task, const json_t *body);

    /* What a body asks for; NULL: what its route says. */
    enum openai_endpoint (*endpoint)(const json_t *body);

    /* Fields that `translate` does not know go on as they are: they are OpenAI's. */
    bool passes;

    /* Those that have other names in OpenAI's form, {0} behind them, what is inside a field before the field; NULL:
     * none. Errors name the field that a client wrote. */
    const struct serve_field_name *names;

    bool llama_entries; /* of its requests */
    bool free_ranges;   /* numbers that OpenAI bounds may be all that the engine takes, and biases be of texts */
    bool tells_prompt;  /* its pieces have the prompt's length from the first one on */

    /* A whole answer: all its streams have ended with DONE. */
    void (*answer)(struct serve_task *task, FILE *to);

    /* An answer in pieces: an event of one of its streams, the last one DONE; then the end of all. And a failure in the
     * middle of it. Each writes and sends; the last two do not end the exchange. */
    void (*chunk)(struct serve_task *task, struct serve_stream *stream, const runnel_event *event);
    void (*end)(struct serve_task *task);
    void (*fail)(struct serve_task *task, const struct openai_error *error);

    /* What is sent while nothing comes; NULL: nothing can be. */
    const char *ping;

    /* The body of a refusal; id: of the request, NULL where none is known. */
    void (*put_error)(FILE *to, const struct openai_error *error, const char *id);

    /* A prompt is too long, and the error says so in the library's words: puts those by which clients of this kind know
     * it, and cut their prompts, in front of them or in their place. NULL: OpenAI's. */
    void (*too_long)(struct openai_error *error, const struct serve_length *length);
};

extern const struct serve_dialect serve_openai;    /* chunks.c */
extern const struct serve_dialect serve_responses; /* responses.c */
extern const struct serve_dialect serve_anthropic; /* anthropic.c */
extern const struct serve_dialect serve_ollama_chat, serve_ollama_generate, serve_ollama_embed,
    serve_ollama_embeddings;                                                        /* ollama.c */
extern const struct serve_dialect serve_llama, serve_infill, serve_llama_embedding; /* llama.c */

/* A chunk that tells a text, without it: what stands before it and behind it is the same in the next one. */
struct serve_form {
    char *bytes; /* [head + tail], owned */
    size_t head, tail;
    int kind; /* the dialect's number of what it tells; 0: there is none */
};

/* Of a call's name or id, with the NUL; the library gives 256 bytes at most. */
enum { SERVE_CALL_BYTES = 257 };

/* One of a task's answers. */
struct serve_stream {
    struct serve_task *task;
    struct serve_form form; /* of the chunk of a text that was sent last */
    runnel_stream id;
    bool live;        /* its terminal event has not come */
    bool spoke;       /* a text of it was sent: what follows may gather */
    bool greeted;     /* its first chunk, with the role, was sent */
    bool told_prompt; /* its first chunk, with the ids of its prompt, was sent */
    bool named;       /* the call under way was announced */
    uint64_t charged; /* tokens of it that its key has paid */
    uint32_t n_calls;
    char call_name[SERVE_CALL_BYTES]; /* of the call under way */
    char call_id[SERVE_CALL_BYTES];   /* the same; "": the format has none */
    uint32_t sequence, item;          /* events so far, and the item under way ... */
    bool thinks, speaks;              /* Anthropic: ... which is reasoning, or the message */
    bool opened;                      /* responses: ... which was announced ... */
    size_t told_entries;              /* ... with so many bytes of log-probabilities */
    uint64_t first_ns;                /* llama.cpp's: when its first token came; 0: none has */
};

/* A request under way. */
struct serve_task {
    struct serve *serve;
    const struct serve_dialect *dialect;
    struct serve_model *model;
    const runnel_adapter *adapter;  /* of the model; NULL: none */
    struct http_exchange *exchange; /* NULL: answered, or its client is gone */
    struct openai_request request;
    struct openai_head head;
    struct openai_choice *choices; /* [n_choices], of which n_open are open; owned */
    struct serve_stream *streams;  /* [n_choices], of which n_submitted were submitted; owned */
    size_t n_choices, n_open, n_submitted, n_ended;
    uint64_t seed;              /* of those that name none */
    struct serve_visit *visit;  /* a reference; its key pays */
    int64_t keep_ms;            /* how long the model stays loaded behind it, -1: for good; KEEP_UNSAID */
    int64_t n_counted;          /* of its answers so many run at once, which count against the key's */
    uint64_t number;            /* of the server's tasks */
    uint64_t began_ns, told_ms; /* began: by uv_hrtime, when its model was there */
    struct {                    /* of a dialect's bodies alone */
        bool truncate;          /* Ollama's: inputs that are too long for the context are cut */
        bool ids, timings, progress, prompt;
        json_t *fields; /* response_fields; NULL: all. A reference */
    } wish;
    uint32_t names_used; /* of its dialect's, those that its body has */
    bool begun, paused;
    bool is_long; /* its body is */
    bool apart;   /* another thread works on it: it stays */
    bool busy;    /* an event of it is being handled: it stays */
    char *prefix; /* [prefix_bytes] with which each of its chunks begins; owned */
    size_t prefix_bytes;
    struct serve_task *next, **link;
};

struct serve_counts {
    uint64_t answers[6]; /* by the first digit of the status */
    uint64_t cancelled;  /* requests whose client left before the end */
};

struct serve {
    const struct app_options *options;
    struct app app; /* its engine */
    uv_loop_t loop;
    struct http_server *http;
    uv_signal_t interrupt, terminate, hangup;
    uv_timer_t pings, deadline, settle;  /* of tasks that have nothing to say; of the drain; of served_models.h */
    uv_timer_t waves;                    /* of tasks that have answers to submit yet */
    struct serve_models models, retired; /* served; and those that go with their last request */
    struct serve_models candidates;      /* that are to take the places of served ones */
    bool reloads, reload_again;          /* the list is being read again; and has to be once more */
    char **rows;                         /* [n_rows]: of --architecture, those that the engine has; owned */
    size_t n_rows;
    struct app_text cache_text; /* what cache_url may point into */
    const char *cache_url;
    uint64_t machine_bytes; /* of memory, once models are loaded */
    uint64_t n_asked;       /* models that waited for room */
    uint64_t waiting_bytes; /* of long bodies whose requests wait for their models */
    bool reloaded, ending;
    struct serve_keys keys;
    bool keys_reload, keys_reload_again; /* they are being read again; and have to be once more */
    struct serve_key anyone;             /* where there are no keys: may do all, and has no limits */
    struct serve_files *files;           /* files.h; owned */
    struct serve_task *tasks;
    struct serve_works works;
    struct serve_log log;
    struct openai_buffer out, line; /* what is being written: an answer, and a line of the log */
    struct app_text template_text;
    uint64_t seed, number; /* of ids, and of requests that name no seed */
    struct serve_counts counts;
    bool draining;
    bool is_short; /* of file descriptors: it was told */
    bool again;    /* keys and models were read, and are read once more */
    int code;
};

/* ---- routes.c ---- */

/* http.h's handlers. */
void serve_on_head(void *user, struct http_exchange *exchange);
void serve_on_request(void *user, struct http_exchange *exchange);
void serve_on_gone(void *user, struct http_exchange *exchange);
void serve_on_slow(void *user, struct http_exchange *exchange);
void serve_on_taken(void *user, struct http_exchange *exchange);
const char *serve_refusal(void *user, struct http_exchange *exchange, const char *path, int status, const char *reason,
                          const char **type, size_t *n);

/* Calls the handler of the exchange's route. */
void serve_dispatch(struct http_exchange *exchange);

/* Of a path, and of the exchange's; OpenAI's where there is none. */
const struct serve_dialect *serve_dialect_at(const char *path);
const struct serve_dialect *serve_dialect_of(const struct http_exchange *exchange);

/* ---- hosts.c ---- */

/* Whether the Host of an exchange is a name of this server, as far as that is judged: where a page of another name
 * could ask it, or --allow-host was given. */
bool serve_knows_host(const struct serve *serve, const struct http_exchange *exchange);

/* False after a message: a word of --allow-host is no name of a host. */
bool serve_check_hosts(const char *list);

/* ---- reply.c: answers that are there at once; the exchange is gone afterwards ---- */

/* The stream for the next answer, empty. One answer at a time is written. */
FILE *serve_write(struct serve *serve);

/* What was written, as the body. */
void serve_reply(struct serve *serve, struct http_exchange *exchange, int status, const char *type);

/* The same of bytes from malloc, which are the server's from now on. */
void serve_reply_taken(struct serve *serve, struct http_exchange *exchange, int status, char *bytes, size_t n);

/* OpenAI's put_error. */
void serve_put_error(FILE *to, const struct openai_error *error, const char *id);

/* The error in the form of the dialect that the path belongs to. Retry-After where retry_ms is not 0. */
void serve_refuse(struct serve *serve, struct http_exchange *exchange, const struct openai_error *error,
                  uint32_t retry_ms);

/* The same of a status and a sentence; type and code are literals (code NULL: null). */
void serve_refuse_as(struct serve *serve, struct http_exchange *exchange, int status, const char *type,
                     const char *code, const char *sentence, uint32_t retry_ms);

/* What the library says of a request, as an error of this form. */
void serve_error_of(const runnel_error *error, struct openai_error *out);

/* The body as an object of JSON whose fields are of the types that its route tells, a new reference; NULL: it was
 * refused. */
json_t *serve_read_json(struct serve *serve, struct http_exchange *exchange);

/* The same of bytes and a table (NULL: all types will do), on any thread. NULL: *error says why. */
json_t *serve_parse(const char *body, size_t n, const struct openai_field *fields, struct openai_error *error);

/* "chatcmpl-0123..." */
void serve_new_id(struct serve *serve, const char *prefix, char id[48]);

/* models.c. The model of that name (NULL: the first), ready. NULL: the exchange was refused, or its route's handler is
 * called again when the model is loaded; either way it is not the caller's any more. */
struct serve_model *serve_find_model(struct serve *serve, struct http_exchange *exchange, const char *name);

/* ---- field_names.c ---- */

/* Which of the dialect's names the body has, as bits; and the error, which is about the body in OpenAI's form, with
 * these names. */
uint32_t serve_names_used(const struct serve_dialect *dialect, const json_t *body);
void serve_name_field(const struct serve_dialect *dialect, uint32_t used, struct openai_error *error);

/* ---- log.c ---- */

/* What happens, unless --quiet; and what goes wrong. One line. */
void serve_tell(struct serve *serve, const char *format, ...) __attribute__((format(printf, 2, 3)));
void serve_complain(struct serve *serve, const char *format, ...) __attribute__((format(printf, 2, 3)));
void serve_log_visit(const struct serve_visit *visit);

/* ---- serve.c ---- */

/* A file of keys or models, without a byte order mark; on any thread. False: *sentence says why. What is read again is
 * a regular file, never a pipe to which nobody writes. */
bool serve_read_file(const struct serve *serve, const char *path, struct app_text *text, char sentence[512]);

/* ---- rights.c ---- */

/* --api-key-file and $RUNNEL_API_KEY, in place of those that were there. False: *sentence says why, and those stay. */
bool serve_read_keys(struct serve *serve, char sentence[512]);

/* The same on a thread of libuv's; a line says what has become of it. */
void serve_reload_keys(struct serve *serve);

/* Whose key the exchange names; where there are no keys, anyone's. NULL: nobody's. */
struct serve_key *serve_key_of(struct serve *serve, struct http_exchange *exchange);

/* Whether the visit's key may make one more request, which is counted; else it was refused. Tells the limits. */
bool serve_let_in(struct serve_visit *visit);

/* One more request of this key: takes it, or *error says which limit it would break, and *retry_ms when to ask
 * again. */
enum serve_excess serve_ask_key(struct serve *serve, struct serve_key *key, uint64_t *retry_ms,
                                struct openai_error *error);

/* The task's answers begin. False: its key may not have so many, and *error says so. */
bool serve_open_answers(struct serve_task *task, struct openai_error *error);

/* The key pays for an event of one of a task's streams. False: its budget is used up, and *error says so. */
bool serve_pay(struct serve_stream *stream, const runnel_event *event, struct openai_error *error);

/* ---- ask.c, task.c, chunks.c ---- */

/* A body that asks for streams: submits what it asks for, or refuses. */
void serve_ask(struct serve *serve, struct http_exchange *exchange, enum openai_endpoint endpoint);

/* Submits further answers of those tasks that do not run all at once, as soon as the loop comes round: a stream's slot
 * is free when the callback of its end has returned. */
void serve_submit_soon(struct serve *serve);
void serve_on_waves(uv_timer_t *timer);

/* An event of one of a task's streams. */
void serve_task_event(void *user, const runnel_event *event);

/* What the library says of the task's request, as an error of the body that asked for it. */
void serve_task_fault(const struct serve_task *task, const runnel_error *error, struct openai_error *fault);

/* Puts words in front of what an error says. */
void serve_put_before(struct openai_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Cancels what runs for it. */
void serve_task_cancel(struct serve_task *task);

/* Frees it if nobody knows it any more. */
void serve_task_release(struct serve_task *task);

/* Which of its answers. */
size_t serve_index(const struct serve_stream *stream);
struct openai_choice *serve_choice(const struct serve_stream *stream);

/* The event's text behind that in to[0..room), as much as fits. */
void serve_append(char *to, size_t room, const runnel_event *event);

/* Of an answer in pieces: the headers, unless they were sent. Sends what serve->out holds. */
void serve_task_begin(struct serve_task *task);
void serve_task_send(struct serve_task *task);

/* A chunk of that kind which tells the event's text. False: the stream's form is not of this kind (or the text is
 * long), and the chunk is to be written whole; what was sent then is kept as the form of those behind it. Its text is
 * the JSON string from byte `begin` to `end` of serve->out. */
bool serve_form_send(struct serve_stream *stream, int kind, const runnel_event *event);
void serve_form_keep(struct serve_stream *stream, int kind, size_t begin, size_t end);

/* Tells its client that it is still alive. */
void serve_task_ping(struct serve_task *task);

/* ---- ollama_models.c ---- */

#define KEEP_UNSAID INT64_MIN

/* A body's keep_alive in milliseconds; -1: for good. */
bool serve_read_keep_alive(const json_t *body, int64_t *ms, struct openai_error *error);

/* So long the model stays loaded behind its last request. */
void serve_keep(struct serve_model *model, int64_t keep_ms);

/* Whether the body, of Ollama's, asks for nothing but that a model is loaded or unloaded: then it was answered, or
 * waits. */
bool serve_ollama_load(struct serve *serve, struct http_exchange *exchange, const json_t *body);

/* ---- llama_pages.c ---- */

/* How the answers to a request are drawn, as an object with llama.cpp's names; no text of the request. */
void serve_put_settings(FILE *to, const struct openai_request *request);

/* ---- metrics_compat.c ---- */

/* --metrics-compat: what text[0..n), the engine's metrics, says, under the names of another server. */
void serve_put_compat(struct serve *serve, FILE *to, const char *text, size_t n);

/* ---- files.c, batches.c ---- */

/* --files-dir. False after a message. close: when the loop has ended; NULL files are allowed. */
bool serve_open_files(struct serve *serve);
void serve_close_files(struct serve *serve);

/* Goes on with what waits. stop: what runs goes on at the next start; end: when the engine is gone, after it. */
void serve_begin_batches(struct serve *serve);
void serve_stop_batches(struct serve *serve);
void serve_end_batches(struct serve *serve);

/* ---- pages.c, tokens.c: what needs no stream ---- */

typedef void serve_page_fn(struct serve *serve, struct http_exchange *exchange, const char *rest);
serve_page_fn serve_health, serve_ready, serve_metrics, serve_models_list, serve_model_one;
serve_page_fn serve_count_tokens, serve_input_tokens, serve_ollama_version, serve_ollama_tags, serve_ollama_ps,
    serve_ollama_show;
serve_page_fn serve_load, serve_unload, serve_lora_adapters, serve_lora_scales;
serve_page_fn serve_tokenize, serve_detokenize, serve_apply_template, serve_props, serve_slots, serve_openapi,
    serve_page;
serve_page_fn serve_files_upload, serve_files_list, serve_files_one, serve_files_delete;
serve_page_fn serve_batches_create, serve_batches_list, serve_batches_one, serve_batches_cancel;

#endif
