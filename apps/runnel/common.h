/* What the commands share: messages, signals, standard output, texts, JSON, and the program's event
 * loop around one engine, one model and one stream at a time.
 *
 * Everything runs on the main thread. Standard output carries the result and nothing else; progress,
 * figures and errors go to standard error. A signal handler sets a flag; the loop looks at it at
 * least every APP_TICK_MS. Memory is the C library's: the program sees include/ only. */
#ifndef RUNNEL_APP_COMMON_H
#define RUNNEL_APP_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "options.h"
#include "runnel_files.h"

enum { APP_OK = 0, APP_FAILURE = 1, APP_USAGE = 2, APP_BAD_LINES = 3, APP_CANCELLED = 130 };
enum { APP_TICK_MS = 100 };

/* ---- Messages and signals ---------------------------------------------------------------- */

/* "runnel: ..." and a newline on standard error; bytes that are not UTF-8 as \xNN, control characters but newline and
 * tab as ^X. */
void app_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From now on each message is an object of JSON, as the other lines of a log are. */
void app_errors_as_objects(void);

/* Prints a failure of the library and returns the exit code that fits it: an argument it refused is
 * APP_USAGE, a cancellation APP_CANCELLED (and prints nothing), all else APP_FAILURE. */
int app_fail(const runnel_error *error);

/* engine.c. The same of a request: a grammar of the command line that cannot be read is APP_USAGE, too. */
int app_fail_request(const struct app_options *options, const runnel_error *error);

/* From now on the first SIGINT or SIGTERM only sets the flag; a second one ends the program. */
void app_signals_arm(void);

/* Back to the default action: while input is awaited, one signal ends the program. */
void app_signals_disarm(void);
bool app_interrupted(void);

/* From here on a hang-up of the terminal (SIGHUP) and SIGTERM are an interruption that ends what is being read, too. */
void app_hangup_arm(void);
void app_hangup_disarm(void); /* and from here on a hang-up is nothing: what is to be saved is saved */
bool app_hung_up(void);

/* Ends the program by the signal that has hung it up, if one has. */
void app_hangup_raise(void);

/* ---- Standard error as a terminal -------------------------------------------------------- */

/* Whether lines on standard error can be drawn over: it is a terminal, and no dumb one (TERM). */
bool app_redraws(void);

/* Columns of the terminal on standard error, as it is now; else $COLUMNS, or 80. */
size_t app_columns(void);

/* Whether what is written to fd may be coloured: a terminal that can, and NO_COLOR is not set. */
bool app_colours(int fd);

/* A bar that overwrites itself, where lines can be drawn over and the user wants it, in one line of the terminal
 * whatever its width. fraction: below 0 where it is not known how far. tail: more to tell ("" for nothing), of which
 * the last parts, behind commas, go where there is no room. Clearing it twice does no harm. */
void app_progress(const struct app_options *options, const char *what, double fraction, const char *tail);
void app_progress_clear(void);

/* ---- Standard output --------------------------------------------------------------------- */

/* Flushes; false once anything could not be written. */
bool app_flush(void);

/* The exit code after the last flush: APP_OK, APP_CANCELLED if the reader has gone away (nothing is
 * printed), APP_FAILURE after a message if the disk refused: one message, however often it is asked. */
int app_output_code(void);

/* What a command ends with whose stream ended with `code` and whose output with `output`: a disk that
 * refused is the reason for the cancellation that followed. */
int app_worse(int code, int output);

/* text[0..n) as a JSON string with its quotes; control characters (C0, DEL, C1) are escapes, bytes that are not UTF-8
 * become U+FFFD. _bytes: to has room for APP_JSON_BYTES(n); how many it took. */
#define APP_JSON_BYTES(n) (6 * (n) + 2)
void app_json_string(FILE *to, const char *text, size_t n);
size_t app_json_bytes(char *to, const char *text, size_t n);

/* text[0..n), which is JSON, in one line: blanks for line ends between its values, and escapes for what some clients
 * take for the end of a line though JSON allows it within strings, which app_json_string escapes too: U+0085, U+2028,
 * U+2029. */
void app_json_line(FILE *to, const char *text, size_t n);

/* text[0..n), which others have made. Where `to` is a terminal, control characters but newline and tab are shown ("^[",
 * "<U+009B>") and not obeyed; a file or a pipe gets all bytes as they are. */
void app_put_text(FILE *to, const char *text, size_t n);

/* Leaves out the characters of UTF-8 of which a precision as in "%.60s" has left only the beginning. */
void app_whole(char *text);

/* "2026-11-24T02:03:04.567Z": now */
void app_put_time(FILE *to);

/* A finite number of nine digits, or a whole one of as many as it has where it is larger: never 5.13708851e+09. */
void app_number(FILE *to, double value);

/* Likewise for JSON; null for one that is not finite. */
void app_json_number(FILE *to, double value);

/* text[0..n) on one line: newline, tab, return and backslash as in C, other control characters and
 * bytes that are not UTF-8 as \xNN. At most `limit` bytes are shown, then an ellipsis; 0: all. */
void app_escaped(FILE *to, const char *text, size_t n, size_t limit);

/* ---- Texts ------------------------------------------------------------------------------- */

struct app_text {
    char *bytes; /* owned; NUL-terminated behind size */
    size_t size;
};

/* "s" behind a noun, but for one. */
const char *app_plural(uint64_t n);

/* "-": standard input or standard output. */
bool app_is_standard(const char *path);

/* paths.c. Whether no file that the command (an APP_ bit) writes is another one that it reads or writes, by any name:
 * as operands and options have them, and all parts of a model; and at most one that it reads is standard input. False
 * after a message. Asked before any is opened. */
bool app_files_apart(const struct app_options *options, unsigned command);

/* Whether a further output `path`, called `name`, is none of these, but for --session; and whether the files of a
 * further model, which has these options, are none of the outputs. False after a message. */
bool app_file_apart(const struct app_options *options, unsigned command, const char *name, const char *path);
bool app_model_apart(const struct app_options *options, unsigned command, const char *path);

/* paths.c. The file's own name for part 1; of a model in parts ("..-00001-of-00003.gguf") the name of that part. To be
 * freed; NULL: there is no such part, or no memory. */
char *app_model_part(const char *path, unsigned part);

/* A number that is another one when one of the files that a model is loaded from, `path` with its parts and --lora's,
 * was written or replaced meanwhile, by what the system says of them. On any thread. */
uint64_t app_model_stamp(const char *path, const struct app_options *options);

/* What is in them: in a model's, by the first and last bytes of each part, or in an adapter's, by all. */
struct app_fingerprint {
    uint64_t size, hash;
};

/* Reads them, in prints[0..1 + options->n_loras), the model's first. stamp: as it was before the model was loaded, so
 * that what is read is what was loaded. On any thread; blocks on the disk. False: *sentence says why. */
bool app_fingerprints(const char *path, const struct app_options *options, uint64_t stamp,
                      struct app_fingerprint *prints, char sentence[512]);

/* Memory that those of --lora take when they are loaded, by the heads of their files: for each matrix so much as its
 * largest rank needs, for each adapter and once more. Blocks on the disk; on any thread. A file that cannot be read
 * counts nothing: the load says why. */
uint64_t app_adapters_bytes(const struct app_options *options);

/* The path behind the symbolic links, also where nothing is there yet; to be freed. NULL: no memory. */
char *app_target(const char *path);

/* Whether the folder of the path lets this process make a file, which takes the place of one that is there; else errno
 * says why. */
bool app_can_make(const char *path);

/* The whole of a file, or of standard input for "-". False after a message; app_take_file: `why` has it. */
bool app_read_file(const char *path, struct app_text *text);
bool app_take_file(const char *path, struct app_text *text, char why[512]);

/* --prompt or --file; both at once are APP_USAGE. Neither: an empty text. An exit code. */
int app_read_prompt(const struct app_options *options, struct app_text *text);

/* What the answer may be, by the options: reads the file that one of them names. Two at once are APP_USAGE. An exit
 * code. */
int app_grammar_open(struct app_options *options);

/* Whether at most one option says so. False after a message. */
bool app_grammar_is_one(const struct app_options *options);

/* The same as a request takes it: filled into options->request_grammar. NULL: any text. */
const runnel_grammar *app_grammar(const struct app_options *options);

/* An element of a file's metadata as text and its length, or NULL; owned by the caller. */
char *app_element_text(const runnel_file *file, uint64_t index, uint64_t element, size_t *n);

/* The text of a file's one-valued metadata `prefix` + `rest` and its length, or NULL; owned by the caller. */
char *app_file_text(const runnel_file *file, const char *prefix, const char *rest, size_t *n);

/* template_info.c. What a template knows, in words; one template as a line of text or as a JSON object (error: of its
 * inspection); all of a file: how many they are; the members of *sampling and its samplers that have a
 * RUNNEL_RECOMMENDED_ bit, as text or as members of a JSON object. */
void app_template_knows(FILE *to, uint32_t knows);
void app_template_print(const runnel_template_info *info, const runnel_error *error, bool json);
uint32_t app_templates_print(const runnel_file *file, bool json);
void app_sampling_print(FILE *to, const runnel_sampling *sampling, uint32_t members, bool json);

struct app_ids {
    int32_t *ids; /* owned */
    size_t count;
};

/* ---- Engine and model -------------------------------------------------------------------- */

struct app {
    const struct app_options *options;
    runnel_engine *engine;
    runnel_model *model;
    runnel_model_info info;
};

/* What the options say of a model. The rest (adapters, shared cache, events of the load) is the caller's. */
void app_model_options(const struct app_options *options, runnel_model_options *model_options);

/* The address of a shared cache, which may have a password in it: from the command line, where others see it, or the
 * one line of a file ("@FILE"). *file is what *url points into then, and the caller's. False after a message. */
bool app_shared_url(const char *given, struct app_text *file, const char **url);

/* Starts an engine with what the options say of it; *engine_options has the caller's wishes. An exit code; app_close
 * after any outcome. */
int app_engine_open(struct app *app, const struct app_options *options, runnel_engine_options *engine_options);

/* Starts an engine and loads options->operands[0]. An exit code; app_close after any outcome. */
int app_open(struct app *app, const struct app_options *options, bool vocab_only);
void app_close(struct app *app);

/* In which order the weights lie, in some words. */
void app_weights_text(const runnel_model_info *info, char *text, size_t n);

/* Which layers are whose, likewise. */
void app_layers_text(const runnel_model_info *info, char *text, size_t n);

/* Where experts lie that are apart from their layers (--device-experts), likewise. */
void app_experts_text(const runnel_model_info *info, char *text, size_t n);

enum { APP_ARCHITECTURE_BYTES = 256 };

/* What --architecture says, as the engine and a file take it. Stays where it is. */
struct app_architecture {
    runnel_architecture_row row;
    const runnel_architecture_row *rows[1]; /* [n] */
    size_t n;
    char name[APP_ARCHITECTURE_BYTES], like[APP_ARCHITECTURE_BYTES], with[APP_ARCHITECTURE_BYTES],
        without[APP_ARCHITECTURE_BYTES], activation[APP_ARCHITECTURE_BYTES];
};

/* text NULL: no row. False after a message. */
bool app_architecture_read(const char *text, struct app_architecture *made);

/* What --log-level says of the library's lines, which go to standard error. `options` is borrowed by the engine. */
void app_log_options(const struct app_options *options, runnel_engine_options *engine_options);

/* streams.c: from here on SIGUSR1 asks for the streams that live now ... */
void app_streams_arm(void);

/* ... and they are listed on standard error, if that was asked since. For the loops that run streams. */
void app_streams_show(const struct app *app);

/* telemetry.c: --metrics and --trace of one engine at a time. Opens the files and has the engine trace; writes the
 * metrics before the engine is freed and the end of the trace behind it. What could not be written is said, and is the
 * code. */
int app_telemetry_open(const struct app_options *options, runnel_engine_options *engine_options);
void app_telemetry_metrics(runnel_engine *engine);
void app_telemetry_close(const struct app_options *options);
int app_telemetry_code(void);

/* What runnel_tokenize has against a text of n bytes. */
const char *app_tokenize_fault(runnel_status status, size_t n);

/* Appends the tokens of text[0..n) to ids. An exit code. */
int app_tokenize(struct app *app, const char *text, size_t n, uint32_t flags, struct app_ids *ids);

/* Appends one id; false when memory is short. */
bool app_ids_push(struct app_ids *ids, int32_t id);
void app_ids_fini(struct app_ids *ids);

/* The file of the model or head that guesses, of --draft; NULL: there is none. */
const char *app_draft_path(const struct app_options *options);

/* Who guesses tokens, as --draft and --speculate say. */
void app_draft(const struct app_options *options, runnel_request *request);

/* A request with everything the options say, without prompt. Points into `options`. */
void app_request(const struct app_options *options, runnel_request *request);

/* ---- One stream -------------------------------------------------------------------------- */

/* Gets every event of the stream; false cancels it. */
typedef bool (*app_event_fn)(void *user, const runnel_event *event);

struct app_outcome {
    runnel_event_type type; /* the terminal event, without its pointers; 0: refused, nothing ran */
    runnel_finish finish;
    runnel_usage usage;
    runnel_timings timings;
};

/* Submits and runs the loop until the stream has ended. Cancels on a signal, when standard output
 * breaks and when on_event says so; behind a signal nothing is submitted. APP_OK, APP_CANCELLED, or a failure's code
 * after a message. */
int app_stream(struct app *app, const runnel_request *request, app_event_fn on_event, void *user,
               struct app_outcome *outcome);

/* Several answers to the request, --n and --best-of of them; answers.c. outcome: of all together; type 0: one was
 * refused. An exit code, after a message. */
int app_answers(struct app *app, const runnel_request *request, struct app_outcome *outcome);

/* A session to a file, with the conversation as its note, or a new one from a file; chat/session.c. Blocks; a signal
 * cancels. An exit code, after a message. note is the caller's to free; after a failure there is neither session nor
 * note. */
int app_session_save(struct app *app, runnel_session session, const char *path, const char *note, size_t n);
int app_session_load(struct app *app, const char *path, runnel_session *session, struct app_text *note);

/* The event as one line of JSON on standard output; logprobs: with those of the token. Logits are left out. */
void app_json_event(const runnel_event *event, bool logprobs);

/* The same with the number of its answer; -1: there is one. */
void app_json_event_of(const runnel_event *event, bool logprobs, int64_t answer);

/* The two lines of figures after an answer, unless --quiet. */
void app_figures(const struct app_options *options, const struct app_outcome *outcome);

/* The commands: an exit code each. */
/* What a model of a file needs with these options. */
struct app_memory {
    uint64_t weight_bytes, context, trained; /* trained 0: the file does not say */
    uint64_t kv_bytes_per_token;
    runnel_error error; /* why kv_bytes_per_token is not known */
};
void app_file_memory(const struct runnel_file *file, const struct app_options *options, struct app_memory *memory);

int app_run(const struct app_options *options);
int app_chat(const struct app_options *options);
int app_doctor(const struct app_options *options);
int app_repack(const struct app_options *options);
int app_info(const struct app_options *options);
int app_tokens(const struct app_options *options);
int app_logits(const struct app_options *options);
int app_embed(const struct app_options *options);
int app_score(const struct app_options *options);
int app_perplexity(const struct app_options *options);
int app_template(const struct app_options *options);
int app_bench(const struct app_options *options);
int app_batch(const struct app_options *options);
int app_serve(const struct app_options *options); /* apps/serve */
int app_cache(const struct app_options *options);
int app_cache_warm(const struct app_options *options); /* of it; cache_warm.c */
int app_eagle_train(const struct app_options *options);

#endif
