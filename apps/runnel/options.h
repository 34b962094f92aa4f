/* The options of the program: one table, read by the parser, by --help and by the suggestions.
 *
 * A command is a bit; an option carries the bits of the commands that take it, so that a new
 * command adds its bit to the options it shares. Numbers are read strictly: the whole word, within
 * the range, never NaN. Everything is checked here before a model is touched. */
#ifndef RUNNEL_APP_OPTIONS_H
#define RUNNEL_APP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runnel_fields.h"

enum {
    APP_RUN = 1,
    APP_CHAT = 2,
    APP_INFO = 4,
    APP_TOKENIZE = 8,
    APP_LOGITS = 16,
    APP_PERPLEXITY = 32,
    APP_TEMPLATE = 128,
    APP_BENCH = 64,
    APP_BATCH = 256,
    APP_EAGLE = 512,
    APP_EMBED = 1024,
    APP_CACHE = 2048,
    APP_DOCTOR = 4096,
    APP_REPACK = 8192,
    APP_SERVE = 16384,
    APP_SCORE = 32768
};

#define APP_MAX_BIASES 1024
#define APP_MAX_STOP_TOKENS 64
#define APP_MAX_CHOICES 1024
#define APP_MAX_OPERANDS 32
#define APP_MAX_LIST 16
#define APP_MAX_OPTIONS 256

/* Whole numbers that were given parted by commas. */
struct app_list {
    int64_t values[APP_MAX_LIST];
    size_t n;
};

/* A number that may not have been given. */
struct app_number {
    uint64_t value;
    bool given;
};

/* The numbers of runnel_samplers as options have them. */
#define APP_SAMPLER_float double
#define APP_SAMPLER_uint32_t int64_t
#define APP_SAMPLER(type, member, sampler, value, least, most, option, json, help) APP_SAMPLER_##type member;

struct app_options {
    const char *operands[APP_MAX_OPERANDS]; /* MODEL, then FILE where the command has one; bench: MODELs; batch:
                                               MODEL, IN, OUT; embed, score: MODEL, texts; cache: what to do, DIR */
    int n_operands;
    bool help;
    bool given[APP_MAX_OPTIONS]; /* by place in the table: it was on the command line */
    /* text in and out; NULL: not given */
    const char *prompt, *file, *out, *system;
    const char *session_file;
    bool no_history;
    const char *tools_file, *template_file, *template_name, *variables, *context_file;
    int64_t now_s;   /* 0: the clock */
    int32_t *tokens; /* --tokens; owned */
    size_t n_tokens;
    bool json, quiet, ids, special, bos, show, raw;
    /* the answer */
    int64_t max_tokens;   /* -1: until the context is full */
    int64_t context_keep; /* -1: the answer ends then */
    double temperature, top_p, min_p;
    int64_t top_k;
    double repetition_penalty, frequency_penalty, presence_penalty;
    int64_t penalty_tokens; /* 0: all */
    struct {
        RUNNEL_SAMPLERS_NUMBERS(APP_SAMPLER)
    } samplers;
    const char *sampler_order; /* NULL: the library's */
    const char *breakers[RUNNEL_MAX_BREAKERS];
    size_t n_breakers;
    bool no_breakers;
    runnel_samplers own_samplers, *request_samplers; /* app_request fills them, and the request points to them */
    /* what the answer may be; NULL: not given */
    const char *gbnf, *gbnf_file, *json_schema, *json_schema_file, *regex, *ebnf_file, *tool_choice;
    char *choices[APP_MAX_CHOICES]; /* owned */
    size_t n_choices;
    bool json_object, json_value, single_call;
    const char *architecture;
    bool plan, architectures, devices;
    bool grammar_white, grammar_any_order, grammar_closed, grammar_one_of, grammar_unenforced, grammar_reasoning;
    char *grammar_text; /* [grammar_bytes] of the file; owned */
    size_t grammar_bytes;
    runnel_grammar own_grammar, *request_grammar;
    uint64_t seed;
    runnel_logit_bias biases[APP_MAX_BIASES];
    size_t n_biases;
    const char *stops[RUNNEL_MAX_STOPS];
    size_t n_stops;
    int32_t stop_tokens[APP_MAX_STOP_TOKENS];
    size_t n_stop_tokens;
    bool ignore_eos, forbid_eos, keep_stop;
    int64_t logprobs;           /* -1: none */
    double deadline_s;          /* 0: none */
    const char *label;          /* NULL: none */
    const char *suffix;         /* run: what is behind the gap; NULL: there is none */
    int64_t n_answers, best_of; /* run; best_of 0: n_answers */
    const char *draft;          /* "none", or "ngram" and a file, with a comma between, or one of them */
    int64_t draft_max;          /* 0: the library's */
    bool draft_share, draft_chain;
    int64_t draft_threads;
    bool speculate; /* bench: as --draft ngram */
    /* what is measured */
    struct app_list prompts, answers, streams, depths;
    int64_t repeats;
    const char *text;
    bool csv, no_limits;
    /* embeddings and scores */
    const char *query; /* NULL: texts are classified */
    const char *score_form;
    const char *pooling; /* NULL: as the file says */
    int64_t dimensions;  /* 0: all */
    /* a batch job */
    const char *journal; /* NULL: the output's name and .journal */
    bool resume, overwrite, unordered;
    int64_t batch_streams;
    uint64_t max_line_bytes;
    int64_t limit;            /* lines that are read; 0: all */
    bool check;               /* lines are judged, and nothing is computed */
    const char *errors_file;  /* NULL: errors go to the output */
    const char *summary_file; /* NULL: none */
    const char *fail_on;      /* "any", "all", "none"; NULL: none, with --check any */
    /* a server */
    const char *host, *unix_path, *api_key_file, *allow_host, *cors, *tls_cert, *tls_key;
    int64_t port, max_streams, max_connections, gather_ms;
    uint64_t max_body_bytes, max_queued_bytes, files_bytes;
    const char *files_dir; /* NULL: no files, and no batches */
    double drain_s;
    bool log_json, log_prompts;
    double ping_s;
    const char *metrics_compat; /* NULL: only names of our own */
    bool no_page;
    const char *models_dir, *models_file, *alias;
    uint64_t models_memory; /* 0: three quarters of the machine's */
    double keep_alive_s;    /* below 0: for good */
    /* a cache folder */
    const char *fingerprint;
    struct app_number salt;
    int64_t cache_wait_ms; /* below 0: for all that is on its way */
    uint64_t keep_bytes;
    bool purge_all;
    /* a head to be trained; 0: the library's own default */
    int64_t train_steps, text_tokens, unroll;
    double rate;
    struct app_list layers;
    /* adapters */
    const char *loras[RUNNEL_MAX_ADAPTERS]; /* [n_loras], as --lora has them: app_lora_read */
    size_t n_loras;
    const char *adapter;                        /* as --adapter has it; NULL: not given */
    char request_adapter[RUNNEL_ADAPTER_BYTES]; /* that requests use, by its name; "": none */
    /* the engine and the model */
    int64_t context, batch, threads; /* 0: chosen */
    int64_t nice;                    /* -1: what suits the command */
    uint64_t kv_bytes;
    int64_t chunk_mean, device_layers;
    uint64_t device_experts;
    double max_slowdown; /* 0: chosen */
    const char *kv_type, *weights, *device, *cuda_library;
    bool no_prefix_cache, bound_windows;
    uint64_t cache_warm, cache_cold;
    const char *weights_dir, *cache_dir, *cache_shared, *cache_shared_ca, *cache_shared_cert, *cache_shared_key;
    const char *metrics_file, *trace_file, *experts_file;
    const char *log_level; /* NULL: warnings, unless --quiet */
};

/* Every value as it is when no option is given. */
void app_options_default(struct app_options *options);
void app_options_fini(struct app_options *options);

/* Reads argv[0..argc), the words behind the command `name` (bit `command`), which takes from
 * `least` to `most` operands. The strings are borrowed from argv. False after a line on stderr that says
 * what is wrong and what was perhaps meant. */
bool app_options_parse(struct app_options *options, const char *name, unsigned command, int least, int most, int argc,
                       char **argv);

/* The options of a command, a line or two each. */
void app_options_help(FILE *to, unsigned command);

/* True when a command of that set takes an option of that name. */
bool app_options_has(const char *name, unsigned commands);

/* True when the option of that name was on the command line. */
bool app_option_given(const struct app_options *options, const char *name);

/* What a --lora says: [NAME=]PATH[:SCALE]. The path is in the text. */
struct app_lora {
    char name[RUNNEL_ADAPTER_BYTES];
    const char *path;
    size_t path_bytes;
    float scale;
};

/* adapters.c. False: it is not in that form, its name is empty, too long or no text, or its scale is 0. */
bool app_lora_read(const char *text, struct app_lora *lora);

/* Whether one of --lora is called so. */
bool app_has_adapter(const struct app_options *options, const char *name);

/* Those of --lora for runnel_model_options, [n_loras], in one piece with their texts, to be freed. NULL: there are
 * none; or, where n_loras is not 0, no memory. */
runnel_adapter *app_adapters(const struct app_options *options);

/* Chooses options->request_adapter: --adapter, or the only --lora. False after a message: two of --lora have one name,
 * or --adapter names none of them. */
bool app_adapter_choose(struct app_options *options);

/* The adapter of requests; NULL: none. */
static inline const char *app_adapter(const struct app_options *options)
{
    return options->request_adapter[0] != '\0' ? options->request_adapter : NULL;
}

/* RUNNEL_KV_* of a --kv-type. */
runnel_kv_type app_kv_type(const char *name);

/* RUNNEL_WEIGHTS_* of a --weights. */
runnel_weight_order app_weight_order(const char *name);

/* The one of words[0..n) nearest to `word` by insertions, deletions, replacements and swaps (dashes in
 * front apart; a beginning counts as near), or NULL if none is near enough to have been meant. */
const char *app_nearest(const char *word, const char *const *words, size_t n);

/* A message where other programs of this kind know the word as an option: what it is here. False: it is not known. */
bool app_option_hint(const char *word);

#endif
