/* The table of options, its reader and its help: see options.h. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum kind {
    FLAG,       /* bool */
    STRING,     /* const char * */
    CHOICE,     /* const char *: one of `choices`, parted by bars */
    INTEGER,    /* int64_t in [min, max] */
    UNSIGNED,   /* uint64_t, all of it */
    NUMBER,     /* struct app_number */
    SIZE,       /* uint64_t with K, M or G behind it */
    REAL,       /* double in [min, max], or in (min, max] if `open` */
    REFERENCE,  /* sets device */
    STOPS,      /* appends to stops */
    STOP_TOKEN, /* appends to stop_tokens */
    TOKENS,     /* ids parted by commas */
    LIST,       /* struct app_list: numbers in [min, max] parted by commas */
    BIAS        /* ID=VALUE, appends to biases */
};

#define ALL (~0u)
#define LOADING                                                                                               \
    (APP_RUN | APP_CHAT | APP_TOKENIZE | APP_LOGITS | APP_PERPLEXITY | APP_BENCH | APP_TEMPLATE | APP_BATCH | \
     APP_EMBED | APP_CACHE)
#define COMPUTING (APP_RUN | APP_CHAT | APP_LOGITS | APP_PERPLEXITY | APP_BATCH | APP_EMBED | APP_CACHE)
#define CACHING (APP_RUN | APP_CHAT | APP_BATCH | APP_EMBED | APP_CACHE)
#define SETTING (COMPUTING | APP_BENCH)
#define SAMPLING (APP_RUN | APP_CHAT)
#define AT(field) offsetof(struct app_options, field)

/* The heading of those that follow: an entry without a name. */
#define GROUP(title)                                          \
    {                                                         \
        NULL, 0, NULL, FLAG, 0, 0, 0, false, NULL, ALL, title \
    }

static const struct option {
    const char *name; /* NULL: a heading */
    char letter;
    const char *value;
    enum kind kind;
    size_t at;
    double min, max;
    bool open;
    const char *choices;
    unsigned commands;
    const char *help;
} table[] = {
    GROUP("the text and the answer"),
    {"--prompt", 'p', "TEXT", STRING, AT(prompt), 0, 0, false, NULL, APP_RUN | APP_TOKENIZE | APP_LOGITS, "the text"},
    {"--file", 'f', "FILE", STRING, AT(file), 0, 0, false, NULL, APP_RUN | APP_TOKENIZE | APP_TEMPLATE,
     "a file with the text, taken byte for byte; - is standard input"},
    {"--file", 'f', "FILE", STRING, AT(file), 0, 0, false, NULL, APP_EMBED,
     "a file with a text on each line; empty lines are left out; - is standard input"},
    {"--pooling", 0, "HOW", CHOICE, AT(pooling), 0, 0, false, "mean|first|last", APP_EMBED,
     "of all positions the mean, or the first or last one; default: the model's, or mean"},
    {"--dimensions", 0, "N", INTEGER, AT(dimensions), 1, UINT32_MAX, false, NULL, APP_EMBED,
     "only the first N numbers, scaled to length 1 again; default: all"},
    {"--raw", 0, NULL, FLAG, AT(raw), 0, 0, false, NULL, APP_EMBED, "vectors as they are, not scaled to length 1"},
    {"--tokens", 0, "1,2,3", TOKENS, 0, 0, INT32_MAX, false, NULL, APP_LOGITS | APP_RUN,
     "token ids instead of a text, as they are"},
    {"--output", 'o', "FILE", STRING, AT(out), 0, 0, false, NULL, APP_LOGITS,
     "where the logits go; - is standard output"},
    {"--output", 'o', "FILE", STRING, AT(out), 0, 0, false, NULL, APP_EAGLE, "where the head goes"},
    {"--steps", 0, "N", INTEGER, AT(train_steps), 1, 1 << 24, false, NULL, APP_EAGLE,
     "steps of learning, each from four texts; default 600"},
    {"--lr", 0, "X", REAL, AT(rate), 0, 1, true, NULL, APP_EAGLE, "rate of learning at its peak; default 0.001"},
    {"--layers", 0, "1,2,3", LIST, AT(layers), 0, 65535, false, NULL, APP_EAGLE,
     "the model's blocks to read, from 0, ascending; default: three of them"},
    {"--unroll", 0, "N", INTEGER, AT(unroll), 1, 8, false, NULL, APP_EAGLE, "drafts in a row to train for; default 4"},
    {"--text-tokens", 0, "N", INTEGER, AT(text_tokens), 16, 4096, false, NULL, APP_EAGLE,
     "tokens of one text; default 128"},
    {"--system", 0, "TEXT", STRING, AT(system), 0, 0, false, NULL, APP_CHAT,
     "what the model is told before the first turn"},
    {"--session", 0, "FILE", STRING, AT(session_file), 0, 0, false, NULL, APP_CHAT,
     "go on with the conversation in this file, if it is there, and keep it there"},
    {"--tools", 0, "FILE", STRING, AT(tools_file), 0, 0, false, NULL, APP_CHAT,
     "a JSON array of the tools that the model may call, in OpenAI's form"},
    {"--template", 0, "FILE", STRING, AT(template_file), 0, 0, false, NULL, APP_CHAT | APP_BATCH,
     "a Jinja chat template instead of the model's"},
    {"--template-name", 0, "NAME", STRING, AT(template_name), 0, 0, false, NULL, APP_CHAT | APP_TEMPLATE | APP_BATCH,
     "which of the model's templates; default: the unnamed one, or tool_use"},
    {"--variables", 0, "JSON", STRING, AT(variables), 0, 0, false, NULL, APP_CHAT,
     "an object of further variables of the template: {\"enable_thinking\": false}"},
    {"--raw", 0, NULL, FLAG, AT(raw), 0, 0, false, NULL, APP_CHAT,
     "show answers as they are: reasoning and tool calls are not taken out"},
    {"--context", 0, "FILE", STRING, AT(context_file), 0, 0, false, NULL, APP_TEMPLATE,
     "a JSON object of variables (messages, tools, ...); - is standard input"},
    {"--now", 0, "SECONDS", INTEGER, AT(now_s), 0, 253402300799.0, false, NULL, APP_TEMPLATE,
     "the time that a template is told, seconds since 1970; default: the clock"},
    {"--show", 0, NULL, FLAG, AT(show), 0, 0, false, NULL, APP_TOKENIZE, "the text with its tokens marked off"},
    {"--ids", 0, NULL, FLAG, AT(ids), 0, 0, false, NULL, APP_TOKENIZE, "only the ids, on one line"},
    {"--special", 0, NULL, FLAG, AT(special), 0, 0, false, NULL,
     APP_RUN | APP_TOKENIZE | APP_LOGITS | APP_PERPLEXITY | APP_EMBED,
     "control tokens written in the text become control tokens"},
    {"--bos", 0, NULL, FLAG, AT(bos), 0, 0, false, NULL, APP_TOKENIZE, "add BOS and EOS as the model asks for"},

    GROUP("sampling"),
    {"--max-tokens", 'n', "N", INTEGER, AT(max_tokens), -1, INT32_MAX, false, NULL, SAMPLING,
     "length of an answer; -1: until the context is full (default)"},
    {"--temperature", 0, "X", REAL, AT(temperature), 0, 1000, false, NULL, SAMPLING,
     "0: always the likeliest token (default); 1: as the model was trained"},
    {"--top-k", 0, "N", INTEGER, AT(top_k), 0, UINT32_MAX, false, NULL, SAMPLING,
     "draw from the N likeliest; 0: off (default)"},
    {"--top-p", 0, "X", REAL, AT(top_p), 0, 1, true, NULL, SAMPLING,
     "draw from the likeliest that together reach X; 1: off (default)"},
    {"--min-p", 0, "X", REAL, AT(min_p), 0, 1, false, NULL, SAMPLING,
     "drop what is less likely than X times the likeliest; 0: off (default)"},
    {"--repetition-penalty", 0, "X", REAL, AT(repetition_penalty), 0, 1000, true, NULL, SAMPLING,
     "make seen tokens less likely by a factor; 1: off (default)"},
    {"--frequency-penalty", 0, "X", REAL, AT(frequency_penalty), -1000, 1000, false, NULL, SAMPLING,
     "lower a logit by X per occurrence; 0: off (default)"},
    {"--presence-penalty", 0, "X", REAL, AT(presence_penalty), -1000, 1000, false, NULL, SAMPLING,
     "lower the logit of a token that has occurred by X; 0: off (default)"},
    {"--penalty-tokens", 0, "N", INTEGER, AT(penalty_tokens), 0, UINT32_MAX, false, NULL, SAMPLING,
     "penalties count the last N tokens of prompt and answer; 0: all (default)"},
    {"--logit-bias", 0, "ID=X", BIAS, 0, 0, 0, false, NULL, SAMPLING,
     "add X to a token's logit, -inf forbids it; repeatable"},
    {"--seed", 0, "N", UNSIGNED, AT(seed), 0, 0, false, NULL, SAMPLING | APP_EAGLE,
     "the same seed and options give the same text; default 0"},
    {"--stop", 0, "TEXT", STOPS, 0, 0, 0, false, NULL, SAMPLING, "the answer ends before this text; repeatable"},
    {"--stop-token", 0, "ID", STOP_TOKEN, 0, 0, INT32_MAX, false, NULL, SAMPLING,
     "the answer ends with this token; repeatable"},
    {"--ignore-eos", 0, NULL, FLAG, AT(ignore_eos), 0, 0, false, NULL, SAMPLING,
     "the model's own end-of-text tokens do not end the answer"},
    {"--deadline", 0, "SECONDS", REAL, AT(deadline_s), 0, 4000000, false, NULL, SAMPLING,
     "an answer that is not complete by then fails; 0: none (default)"},
    {"--label", 0, "TEXT", STRING, AT(label), 0, 0, false, NULL, SAMPLING, "a name for the request in --trace"},
    GROUP("guesses ahead: the same text, sooner"),
    {"--draft", 0, "KIND", STRING, AT(draft), 0, 0, false, NULL, SAMPLING | APP_BATCH | APP_BENCH,
     "guesses, same text: none, ngram, FILE, ngram,FILE, eagle:HEAD, mtp, exit:N"},
    {"--draft-chain", 0, NULL, FLAG, AT(draft_chain), 0, 0, false, NULL, SAMPLING | APP_BATCH | APP_BENCH,
     "no tree of guesses: without the guessing model's second choices"},
    {"--draft-max", 0, "N", INTEGER, AT(draft_max), 1, RUNNEL_MAX_DRAFTS, false, NULL, SAMPLING | APP_BATCH | APP_BENCH,
     "guesses in a pass at most, 1 to 16; default 8"},
    {"--draft-share", 0, NULL, FLAG, AT(draft_share), 0, 0, false, NULL, APP_BATCH,
     "ngram looks into the other answers, too: for many of one form"},
    {"--draft-threads", 0, "N", INTEGER, AT(draft_threads), 0, 256, false, NULL, SAMPLING | APP_BATCH | APP_BENCH,
     "threads of its own for the guessing model; default 0: it takes turns"},
    {"--logprobs", 0, "N", INTEGER, AT(logprobs), 0, RUNNEL_MAX_TOP_LOGPROBS, false, NULL, APP_RUN,
     "with --json: the log-probability of each token and of the N likeliest"},

    GROUP("what is timed"),
    {"--prompt", 'p', "LIST", LIST, AT(prompts), 0, 1 << 20, false, NULL, APP_BENCH,
     "lengths of the prompts that are timed, such as 128,512; 0: none; default 512"},
    {"--generate", 'n', "LIST", LIST, AT(answers), 0, 1 << 20, false, NULL, APP_BENCH,
     "lengths of the answers that are timed; 0: none; default 64"},
    {"--streams", 0, "LIST", LIST, AT(streams), 1, 1000, false, NULL, APP_BENCH,
     "how many streams run at once; default 1"},
    {"--depth", 0, "LIST", LIST, AT(depths), 0, 1 << 24, false, NULL, APP_BENCH,
     "answers are timed behind so many positions of context; default 0"},
    {"--repeats", 'r', "N", INTEGER, AT(repeats), 1, 1000, false, NULL, APP_BENCH,
     "how often each is timed, after a first time that does not count; default 5"},
    {"--text", 0, "FILE", STRING, AT(text), 0, 0, false, NULL, APP_BENCH,
     "prompts are parts of this text; default: random tokens"},
    {"--speculate", 0, NULL, FLAG, AT(speculate), 0, 0, false, NULL, APP_BENCH,
     "answers are generated with guesses from n-grams of prompt and answer"},
    {"--no-limits", 0, NULL, FLAG, AT(no_limits), 0, 0, false, NULL, APP_BENCH,
     "do not measure what the machine can do at most"},

    GROUP("the job"),
    {"--resume", 0, NULL, FLAG, AT(resume), 0, 0, false, NULL, APP_BATCH,
     "go on with the job that OUT and its journal belong to; begin it if there is none"},
    {"--resume", 0, NULL, FLAG, AT(resume), 0, 0, false, NULL, APP_EAGLE,
     "go on with the training that was stopped, if there is one"},
    {"--overwrite", 0, NULL, FLAG, AT(overwrite), 0, 0, false, NULL, APP_BATCH,
     "begin anew, whatever OUT and its journal hold"},
    {"--journal", 0, "FILE", STRING, AT(journal), 0, 0, false, NULL, APP_BATCH,
     "where the job keeps how far it is; default: OUT.journal"},
    {"--unordered", 0, NULL, FLAG, AT(unordered), 0, 0, false, NULL, APP_BATCH,
     "write answers as they come, not in the order of the input"},
    {"--streams", 0, "N", INTEGER, AT(batch_streams), 1, 1024, false, NULL, APP_BATCH,
     "how many answers are computed at once; default 32"},
    {"--max-line-bytes", 0, "BYTES", SIZE, AT(max_line_bytes), 0, 0, false, NULL, APP_BATCH,
     "a longer line gets an error; with K, M or G; default 16M"},

    GROUP("what is kept"),
    {"--fingerprint", 0, "HEX", STRING, AT(fingerprint), 0, 0, false, NULL, APP_CACHE,
     "only this one; its first digits are enough; ls then lists its records"},
    {"--all", 0, NULL, FLAG, AT(purge_all), 0, 0, false, NULL, APP_CACHE, "purge: all that is kept"},
    {"--keep", 0, "BYTES", SIZE, AT(keep_bytes), 0, 0, false, NULL, APP_CACHE,
     "purge: the oldest, until a fingerprint has at most BYTES; with K, M or G"},
    {"--salt", 0, "N", NUMBER, AT(salt), 0, 0, false, NULL, APP_CACHE,
     "purge: overwrite what this cache salt has left; warm: the prompts' salt"},

    GROUP("memory, caches and the machine"),
    {"--ctx", 'c', "N", INTEGER, AT(context), 1, UINT32_MAX, false, NULL, COMPUTING | APP_INFO | APP_DOCTOR,
     "positions of the context; default: the model's own, at most 8192"},
    {"--kv-type", 0, "TYPE", CHOICE, AT(kv_type), 0, 0, false, "f16|f32|bf16|fp8|q8|q4|q3",
     SETTING | APP_INFO | APP_DOCTOR, "format of the key-value cache: f16 (default), f32, bf16, fp8, q8, q4 or q3"},
    {"--kv-size", 0, "BYTES", SIZE, AT(kv_bytes), 0, 0, false, NULL, COMPUTING,
     "memory for the key-value cache, with K, M or G; default: 8 contexts"},
    {"--cache-hot", 0, "BYTES", SIZE, AT(kv_bytes), 0, 0, false, NULL, CACHING, "the same as --kv-size"},
    {"--cache-warm", 0, "BYTES", SIZE, AT(cache_warm), 0, 0, false, NULL, CACHING,
     "memory for packed blocks of earlier prompts, with K, M or G; default: none"},
    {"--cache-dir", 0, "DIR", STRING, AT(cache_dir), 0, 0, false, NULL, CACHING,
     "keep such blocks here, for later runs, too; default: nowhere"},
    {"--cache-cold", 0, "BYTES", SIZE, AT(cache_cold), 0, 0, false, NULL, CACHING,
     "of --cache-dir, for this model, with K, M or G; default 8G"},
    {"--cache-shared", 0, "URL", STRING, AT(cache_shared), 0, 0, false, NULL, CACHING,
     "share such blocks by Redis: redis[s]://HOST:PORT, unix:/PATH, @FILE"},
    {"--cache-shared-ca", 0, "FILE", STRING, AT(cache_shared_ca), 0, 0, false, NULL, CACHING,
     "who vouches for a rediss:// server; default: the system's authorities"},
    {"--cache-shared-cert", 0, "FILE", STRING, AT(cache_shared_cert), 0, 0, false, NULL, CACHING,
     "certificate that is shown to it; default: none"},
    {"--cache-shared-key", 0, "FILE", STRING, AT(cache_shared_key), 0, 0, false, NULL, CACHING,
     "and its key; default: in the certificate's file"},
    {"--chunk-mean", 0, "N", INTEGER, AT(chunk_mean), 1, 1 << 28, false, NULL, SETTING,
     "lossy: the last N positions are kept, and one mean of each 64 older ones"},
    {"--no-prefix-cache", 0, NULL, FLAG, AT(no_prefix_cache), 0, 0, false, NULL, APP_RUN | APP_CHAT | APP_BATCH,
     "compute each prompt whole, also where an earlier one begins alike"},
    {"--batch", 0, "N", INTEGER, AT(batch), 8, 8192, false, NULL, SETTING,
     "positions in one forward pass, 8 to 8192; default 256"},
    {"--threads", 't', "N", INTEGER, AT(threads), 1, 256, false, NULL, SETTING | APP_EAGLE | APP_DOCTOR,
     "threads that compute; default: one per physical core"},
    {"--device", 0, "NAME", CHOICE, AT(device), 0, 0, false, "cpu|reference", SETTING,
     "cpu (default), or reference: plain C in double precision"},
    {"--reference", 0, NULL, REFERENCE, 0, 0, 0, false, NULL, SETTING, "the same as --device reference"},

    GROUP("output"),
    {"--metrics", 0, "FILE", STRING, AT(metrics_file), 0, 0, false, NULL, SETTING,
     "at the end, counts and latencies as text for Prometheus; -: standard error"},
    {"--trace", 0, "FILE", STRING, AT(trace_file), 0, 0, false, NULL, SETTING,
     "what actors, steps and requests did when, for ui.perfetto.dev"},
    {"--json", 0, NULL, FLAG, AT(json), 0, 0, false, NULL,
     APP_RUN | APP_CHAT | APP_INFO | APP_PERPLEXITY | APP_BENCH | APP_EMBED | APP_CACHE, "JSON on standard output"},
    {"--csv", 0, NULL, FLAG, AT(csv), 0, 0, false, NULL, APP_BENCH, "comma-separated values on standard output"},
    {"--quiet", 'q', NULL, FLAG, AT(quiet), 0, 0, false, NULL, LOADING, "no progress and no figures on standard error"},
    {"--help", 'h', NULL, FLAG, AT(help), 0, 0, false, NULL, ALL, "this text"},
};

#define N_OPTIONS (sizeof table / sizeof table[0])

void app_options_default(struct app_options *options)
{
    *options = (struct app_options){.max_tokens = -1,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .logprobs = -1,
                                    .prompts = {{512}, 1},
                                    .answers = {{64}, 1},
                                    .streams = {{1}, 1},
                                    .depths = {{0}, 1},
                                    .repeats = 5,
                                    .kv_type = "f16",
                                    .device = "cpu",
                                    .draft = "none",
                                    .batch_streams = 32,
                                    .max_line_bytes = 16 << 20};
}

void app_options_fini(struct app_options *options)
{
    free(options->tokens);
    options->tokens = NULL;
}

runnel_kv_type app_kv_type(const char *name)
{
    static const char *const names[] = {
        [RUNNEL_KV_F16] = "f16", [RUNNEL_KV_F32] = "f32", [RUNNEL_KV_BF16] = "bf16", [RUNNEL_KV_FP8] = "fp8",
        [RUNNEL_KV_Q8] = "q8",   [RUNNEL_KV_Q4] = "q4",   [RUNNEL_KV_Q3] = "q3"};
    size_t i = 0;

    while (i + 1 < sizeof names / sizeof names[0] && strcmp(name, names[i]) != 0) /* the table has checked it */
        i++;
    return (runnel_kv_type)i;
}

/* ---- Numbers ----------------------------------------------------------------------------- */

/* Decimal digits with an optional minus, ending at `end`; strtoll alone would take blanks and a plus. */
static bool read_integer(const char *text, const char *end, int64_t min, int64_t max, int64_t *out)
{
    char *stop = NULL;
    long long value = 0;

    if (!isdigit((unsigned char)text[0]) && !(text[0] == '-' && isdigit((unsigned char)text[1])))
        return false;
    errno = 0;
    value = strtoll(text, &stop, 10);
    if (errno != 0 || stop != end || value < min || value > max)
        return false;
    *out = value;
    return true;
}

static bool read_unsigned(const char *text, const char *end, uint64_t *out)
{
    char *stop = NULL;
    unsigned long long value = 0;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    value = strtoull(text, &stop, 10);
    if (errno != 0 || stop != end)
        return false;
    *out = value;
    return true;
}

static bool read_size(const char *text, uint64_t *out)
{
    static const char suffixes[] = "KMG";
    size_t n = strlen(text);
    const char *suffix = n > 0 ? strchr(suffixes, toupper((unsigned char)text[n - 1])) : NULL;
    unsigned shift = suffix != NULL ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
    uint64_t value = 0;

    if (!read_unsigned(text, text + n - (suffix != NULL), &value) || value == 0 || value > UINT64_MAX >> shift)
        return false;
    *out = value << shift;
    return true;
}

/* A finite decimal number: no blanks, no hexadecimal, no words. */
static bool read_real(const char *text, double *out)
{
    char *stop = NULL;

    if (text[0] == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    *out = strtod(text, &stop);
    return *stop == '\0' && isfinite(*out) && fabs(*out) <= 3.4e38; /* it becomes a float */
}

/* ---- Values that are not one number ------------------------------------------------------ */

static bool read_choice(const char *text, const char *choices, const char **out)
{
    size_t n = strlen(text);
    const char *at = choices;

    while (at != NULL) {
        if (n > 0 && strncmp(at, text, n) == 0 && (at[n] == '|' || at[n] == '\0')) {
            *out = text;
            return true;
        }
        at = strchr(at, '|');
        at = at != NULL ? at + 1 : NULL;
    }
    return false;
}

static bool read_tokens(const char *text, struct app_options *options)
{
    size_t capacity = 1, n = 0;
    const char *end = NULL;
    int64_t id = 0;

    for (const char *c = text; *c != '\0'; c++)
        capacity += *c == ',';
    free(options->tokens);
    options->n_tokens = 0;
    options->tokens = calloc(capacity, sizeof *options->tokens);
    if (options->tokens == NULL)
        return false;
    for (;; text = end + 1) {
        end = text + strcspn(text, ",");
        if (!read_integer(text, end, 0, INT32_MAX, &id))
            return false;
        options->tokens[n++] = (int32_t)id;
        if (*end == '\0')
            break;
    }
    options->n_tokens = n;
    return true;
}

static bool read_list(const struct option *o, const char *text, struct app_list *list)
{
    const char *end = NULL;

    for (list->n = 0;; text = end + 1) {
        end = text + strcspn(text, ",");
        if (list->n == APP_MAX_LIST ||
            !read_integer(text, end, (int64_t)o->min, (int64_t)o->max, &list->values[list->n]))
            return false;
        list->n++;
        if (*end == '\0')
            return true;
    }
}

static bool read_bias(const char *text, struct app_options *options)
{
    const char *equal = strchr(text, '=');
    double bias = -INFINITY;
    int64_t id = 0;

    if (equal == NULL || options->n_biases == APP_MAX_BIASES || !read_integer(text, equal, 0, INT32_MAX, &id))
        return false;
    if (strcmp(equal + 1, "-inf") != 0 && !read_real(equal + 1, &bias))
        return false;
    options->biases[options->n_biases++] = (runnel_logit_bias){(int32_t)id, (float)bias};
    return true;
}

static bool read_stop(const char *text, struct app_options *options)
{
    size_t n = strlen(text);

    if (n == 0 || n > RUNNEL_MAX_STOP_BYTES || options->n_stops == RUNNEL_MAX_STOPS)
        return false;
    options->stops[options->n_stops++] = text;
    return true;
}

static bool read_stop_token(const char *text, struct app_options *options)
{
    int64_t id = 0;

    if (options->n_stop_tokens == APP_MAX_STOP_TOKENS || !read_integer(text, text + strlen(text), 0, INT32_MAX, &id))
        return false;
    options->stop_tokens[options->n_stop_tokens++] = (int32_t)id;
    return true;
}

/* ---- One option -------------------------------------------------------------------------- */

static bool store(const struct option *o, const char *text, struct app_options *options)
{
    char *field = (char *)options + o->at;
    double real = 0;

    switch (o->kind) {
    case FLAG:
        *(bool *)field = true;
        return true;
    case REFERENCE:
        options->device = "reference";
        return true;
    case STRING:
        *(const char **)field = text;
        return true;
    case CHOICE:
        return read_choice(text, o->choices, (const char **)field);
    case INTEGER:
        return read_integer(text, text + strlen(text), (int64_t)o->min, (int64_t)o->max, (int64_t *)field);
    case UNSIGNED:
        return read_unsigned(text, text + strlen(text), (uint64_t *)field);
    case NUMBER:
        ((struct app_number *)field)->given = true;
        return read_unsigned(text, text + strlen(text), &((struct app_number *)field)->value);
    case SIZE:
        return read_size(text, (uint64_t *)field);
    case REAL:
        if (!read_real(text, &real) || real > o->max || (o->open ? (float)real <= o->min : real < o->min))
            return false;
        *(double *)field = real;
        return true;
    case STOPS:
        return read_stop(text, options);
    case STOP_TOKEN:
        return read_stop_token(text, options);
    case TOKENS:
        return read_tokens(text, options);
    case LIST:
        return read_list(o, text, (struct app_list *)field);
    case BIAS:
        return read_bias(text, options);
    }
    return false;
}

/* What would have been allowed. */
static void complain_value(const struct option *o, const char *text)
{
    char range[128];

    switch (o->kind) {
    case CHOICE:
        snprintf(range, sizeof range, "one of %s", o->choices);
        break;
    case INTEGER:
    case STOP_TOKEN:
        snprintf(range, sizeof range, "a whole number from %.0f to %.0f", o->min, o->max);
        break;
    case UNSIGNED:
    case NUMBER:
        snprintf(range, sizeof range, "a whole number from 0 to %llu", (unsigned long long)UINT64_MAX);
        break;
    case SIZE:
        snprintf(range, sizeof range, "a number of bytes, such as 1000000, 512K, 64M or 2G");
        break;
    case REAL:
        snprintf(range, sizeof range, "a number %s %g, at most %g", o->open ? "above" : "from", o->min, o->max);
        break;
    case STOPS:
        snprintf(range, sizeof range, "1 to %d bytes, at most %d times", RUNNEL_MAX_STOP_BYTES, RUNNEL_MAX_STOPS);
        break;
    case TOKENS:
        snprintf(range, sizeof range, "token ids parted by commas");
        break;
    case LIST:
        snprintf(range, sizeof range, "1 to %d whole numbers from %.0f to %.0f, parted by commas", APP_MAX_LIST, o->min,
                 o->max);
        break;
    case BIAS:
        snprintf(range, sizeof range, "ID=NUMBER or ID=-inf, at most %d times", APP_MAX_BIASES);
        break;
    default:
        snprintf(range, sizeof range, "%s", o->value);
        break;
    }
    app_error("%s '%.80s' is not allowed: it takes %s", o->name, text, range);
}

static const struct option *find(const char *word, size_t n, unsigned command)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &table[i];

        if (o->name == NULL || (o->commands & command) == 0)
            continue;
        if (n == 2 && word[0] == '-' && o->letter != 0 && word[1] == o->letter)
            return o;
        if (strlen(o->name) == n && strncmp(o->name, word, n) == 0)
            return o;
    }
    return NULL;
}

bool app_options_has(const char *name, unsigned commands)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].name != NULL && (table[i].commands & commands) != 0 && strcmp(table[i].name, name) == 0)
            return true;
    return false;
}

/* What other programs of this kind call it, and what it is here. False: not known. */
static bool hint(const char *word)
{
    static const char *const known[][2] = {
        {"-hf", "nothing is downloaded: give the path of a GGUF file"},
        {"-hfr", "nothing is downloaded: give the path of a GGUF file"},
        {"--hf-repo", "nothing is downloaded: give the path of a GGUF file"},
        {"-ngl", "models run on the processor: leave it out"},
        {"--n-gpu-layers", "models run on the processor: leave it out"},
        {"--n-predict", "it is -n, --max-tokens"},
        {"--predict", "it is -n, --max-tokens"},
        {"--ctx-size", "it is -c, --ctx"},
        {"--repeat-penalty", "it is --repetition-penalty"},
        {"-s", "it is --seed"},
        {"-b", "it is --batch"},
        {"-ctk", "it is --kv-type"},
        {"--cache-type-k", "it is --kv-type"},
        {"-cnv", "it is the command chat"},
        {"-i", "it is the command chat"},
        {"--interactive", "it is the command chat"},
        {"-sys", "it is --system, of the command chat"},
        {"-md", "it is --draft FILE"},
        {"--model-draft", "it is --draft FILE"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(word, known[i][0]) != 0)
            continue;
        app_error("'%s' is not an option here; %s", word, known[i][1]);
        return true;
    }
    return false;
}

static void complain_unknown(const char *command_name, unsigned command, const char *word, size_t n)
{
    const char *names[N_OPTIONS];
    const char *near = NULL;
    char copy[64];
    size_t count = 0;

    snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy - 1), word);
    if (hint(copy))
        return;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].name != NULL && (table[i].commands & command) != 0)
            names[count++] = table[i].name;
    near = app_nearest(copy, names, count);
    if (near != NULL)
        app_error("'%s' is not an option of %s; did you mean %s?", copy, command_name, near);
    else
        app_error("'%s' is not an option of %s; see runnel %s --help", copy, command_name, command_name);
}

/* Handles the option at argv[*i] and moves *i to its last word. */
static bool parse_option(struct app_options *options, const char *name, unsigned command, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    const char *equal = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t n = equal != NULL ? (size_t)(equal - word) : strlen(word);
    const struct option *o = find(word, n, command);
    const char *text = equal != NULL ? equal + 1 : NULL;

    if (o == NULL && word[1] != '-' && n > 2) { /* -n5 */
        o = find(word, 2, command);
        o = o != NULL && o->value != NULL && (isdigit((unsigned char)word[2]) || word[2] == '-') ? o : NULL;
        text = word + 2;
    }
    if (o == NULL) {
        complain_unknown(name, command, word, n);
        return false;
    }
    if (o->value == NULL && text != NULL) {
        app_error("%s takes no value", o->name);
        return false;
    }
    if (o->value != NULL && text == NULL) {
        if (*i + 1 >= argc) {
            app_error("%s needs a value: %s", o->name, o->value);
            return false;
        }
        text = argv[++*i];
    }
    if (store(o, text, options))
        return true;
    complain_value(o, text);
    return false;
}

/* What would be without effect, or not what was meant. */
static bool check_together(const struct app_options *options)
{
    const char *draft = options->draft, *comma = draft != NULL ? strchr(draft, ',') : NULL;

    if (options->cache_cold != 0 && options->cache_dir == NULL) {
        app_error("--cache-cold needs --cache-dir: it is the most that this folder may hold");
        return false;
    }
    if (draft != NULL && strncmp(draft, "ngram,", 6) == 0 &&
        (comma[1] == '\0' || strcmp(comma + 1, "none") == 0 || strcmp(comma + 1, "ngram") == 0)) {
        app_error("--draft '%.80s' is not allowed: behind 'ngram,' stands a FILE, eagle:HEAD, mtp or exit:N", draft);
        return false;
    }
    if (draft != NULL && (*draft == '\0' || strcmp(draft + (comma != NULL ? comma + 1 - draft : 0), "eagle:") == 0)) {
        app_error("--draft '%.80s' is not allowed: it takes none, ngram, FILE, ngram,FILE, eagle:HEAD, mtp or exit:N",
                  draft);
        return false;
    }
    return true;
}

/* The model by its name elsewhere; here it stands first. */
static bool is_model(const char *word)
{
    return strcmp(word, "-m") == 0 || strcmp(word, "--model") == 0;
}

static bool put_model(struct app_options *options, const char *path, int most)
{
    if (path == NULL || options->n_operands == most) {
        app_error(path == NULL ? "-m needs a value: %s" : "'%.80s' is one word too many: the model was named before",
                  path == NULL ? "MODEL" : path);
        return false;
    }
    memmove(&options->operands[1], &options->operands[0], (size_t)options->n_operands * sizeof options->operands[0]);
    options->operands[0] = path;
    options->n_operands++;
    return true;
}

bool app_options_parse(struct app_options *options, const char *name, unsigned command, int least, int most, int argc,
                       char **argv)
{
    bool words_only = false;

    for (int i = 0; i < argc && !options->help; i++) {
        if (!words_only && strcmp(argv[i], "--") == 0) {
            words_only = true;
        } else if (!words_only && is_model(argv[i])) {
            if (!put_model(options, ++i < argc ? argv[i] : NULL, most))
                return false;
        } else if (!words_only && argv[i][0] == '-' && argv[i][1] != '\0') {
            if (!parse_option(options, name, command, argc, argv, &i))
                return false;
        } else if (options->n_operands == most) {
            app_error("'%.80s' is one word too many; see runnel %s --help%s", argv[i], name,
                      command == APP_RUN ? " (a text of several words stands in quotes)" : "");
            return false;
        } else {
            options->operands[options->n_operands++] = argv[i];
        }
    }
    if (options->help)
        return true;
    if (command == APP_RUN && options->n_operands == 2) {
        if (options->prompt != NULL || options->file != NULL) {
            app_error("'%.80s' is one word too many: --%s has the text", options->operands[1],
                      options->prompt != NULL ? "prompt" : "file");
            return false;
        }
        options->prompt = options->operands[1];
    }
    if (options->n_operands >= least)
        return check_together(options);
    app_error("%s is missing; see runnel %s --help",
              command == APP_CACHE       ? options->n_operands == 0 ? "what to do (ls, verify, purge or warm)" : "DIR"
              : options->n_operands == 0 ? "MODEL"
              : command != APP_BATCH     ? "FILE"
              : options->n_operands == 1 ? "IN.jsonl"
                                         : "OUT.jsonl",
              name);
    return false;
}

/* ---- Help and suggestions ---------------------------------------------------------------- */

void app_options_help(FILE *to, unsigned command)
{
    const char *heading = NULL;
    char left[64], letter[8];

    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &table[i];

        if (o->name == NULL)
            heading = o->help;
        if (o->name == NULL || (o->commands & command) == 0)
            continue;
        if (heading != NULL)
            fprintf(to, "\n%s:\n", heading);
        heading = NULL;
        snprintf(letter, sizeof letter, o->letter != 0 ? "-%c, " : "    ", o->letter);
        snprintf(left, sizeof left, "%s%s%s%s", letter, o->name, o->value != NULL ? " " : "",
                 o->value != NULL ? o->value : "");
        fprintf(to, "  %-31s %s\n", left, o->help);
    }
}

/* Optimal string alignment distance, in rows; words longer than `LONGEST` are never near. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t rows[3][LONGEST + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *last = rows[(i - 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            best = best < last[j] + 1 ? best : last[j] + 1;
            best = best < now[j - 1] + 1 ? best : now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                size_t swapped = rows[(i - 2) % 3][j - 2] + 1;

                best = best < swapped ? best : swapped;
            }
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *app_nearest(const char *word, const char *const *words, size_t n)
{
    const char *bare = word + strspn(word, "-");
    size_t best = strlen(bare) / 3 + 2; /* a third of the word mistyped, and one more: short words too */
    const char *near = NULL;

    for (size_t i = 0; i < n; i++) {
        const char *other = words[i] + strspn(words[i], "-");
        size_t n_bare = strlen(bare);
        size_t d = n_bare > 1 && strncmp(bare, other, n_bare) == 0 ? 1 : distance(bare, other);

        if (d < best) {
            best = d;
            near = words[i];
        }
    }
    return near;
}
