/* The table of options and their defaults: see options.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "option_table.h"

#define ALL (~0u)
#define LOADING                                                                                               \
    (APP_RUN | APP_CHAT | APP_TOKENIZE | APP_LOGITS | APP_PERPLEXITY | APP_BENCH | APP_TEMPLATE | APP_BATCH | \
     APP_EMBED | APP_CACHE | APP_REPACK)
#define COMPUTING (APP_RUN | APP_CHAT | APP_LOGITS | APP_PERPLEXITY | APP_BATCH | APP_EMBED | APP_CACHE)
#define CACHING (APP_RUN | APP_CHAT | APP_BATCH | APP_EMBED | APP_CACHE)
#define SETTING (COMPUTING | APP_BENCH)
#define SAMPLING (APP_RUN | APP_CHAT)
#define AT(field) offsetof(struct app_options, field)

/* The heading of those that follow: an entry without a name. */
#define GROUP(title)                                                 \
    {                                                                \
        NULL, 0, NULL, OPTION_FLAG, 0, 0, 0, false, NULL, ALL, title \
    }

#define KIND_float OPTION_REAL
#define KIND_uint32_t OPTION_INTEGER
#define VALUE_float "X"
#define VALUE_uint32_t "N"
#define SAMPLER(type, member, sampler, value, least, most, option, json, help) \
    {option, 0, VALUE_##type, KIND_##type, AT(samplers.member), least, most, false, NULL, SAMPLING, help},

const struct app_option app_option_table[] = {
    GROUP("the text and the answer"),
    {"--prompt", 'p', "TEXT", OPTION_STRING, AT(prompt), 0, 0, false, NULL, APP_RUN | APP_TOKENIZE | APP_LOGITS,
     "the text"},
    {"--file", 'f', "FILE", OPTION_STRING, AT(file), 0, 0, false, NULL, APP_RUN | APP_TOKENIZE | APP_TEMPLATE,
     "a file with the text, taken byte for byte; - is standard input"},
    {"--file", 'f', "FILE", OPTION_STRING, AT(file), 0, 0, false, NULL, APP_EMBED,
     "a file with a text on each line; empty lines are left out; - is standard input"},
    {"--pooling", 0, "HOW", OPTION_CHOICE, AT(pooling), 0, 0, false, "mean|first|last", APP_EMBED,
     "of all positions the mean, or the first or last one; default: the model's, or mean"},
    {"--dimensions", 0, "N", OPTION_INTEGER, AT(dimensions), 1, UINT32_MAX, false, NULL, APP_EMBED,
     "only the first N numbers, scaled to length 1 again; default: all"},
    {"--raw", 0, NULL, OPTION_FLAG, AT(raw), 0, 0, false, NULL, APP_EMBED,
     "vectors as they are, not scaled to length 1"},
    {"--tokens", 0, "1,2,3", OPTION_TOKENS, 0, 0, INT32_MAX, false, NULL, APP_LOGITS | APP_RUN,
     "token ids instead of a text, as they are"},
    {"--output", 'o', "FILE", OPTION_STRING, AT(out), 0, 0, false, NULL, APP_LOGITS,
     "where the logits go; - is standard output"},
    {"--output", 'o', "FILE", OPTION_STRING, AT(out), 0, 0, false, NULL, APP_EAGLE, "where the head goes"},
    {"--steps", 0, "N", OPTION_INTEGER, AT(train_steps), 1, 1 << 24, false, NULL, APP_EAGLE,
     "steps of learning, each from four texts; default 600"},
    {"--lr", 0, "X", OPTION_REAL, AT(rate), 0, 1, true, NULL, APP_EAGLE, "rate of learning at its peak; default 0.001"},
    {"--layers", 0, "1,2,3", OPTION_LIST, AT(layers), 0, 65535, false, NULL, APP_EAGLE,
     "the model's blocks to read, from 0, ascending; default: three of them"},
    {"--unroll", 0, "N", OPTION_INTEGER, AT(unroll), 1, 8, false, NULL, APP_EAGLE,
     "drafts in a row to train for; default 4"},
    {"--text-tokens", 0, "N", OPTION_INTEGER, AT(text_tokens), 16, 4096, false, NULL, APP_EAGLE,
     "tokens of one text; default 128"},
    {"--system", 0, "TEXT", OPTION_STRING, AT(system), 0, 0, false, NULL, APP_CHAT,
     "what the model is told before the first turn"},
    {"--session", 0, "FILE", OPTION_STRING, AT(session_file), 0, 0, false, NULL, APP_CHAT,
     "go on with the conversation in this file, if it is there, and keep it there"},
    {"--no-history", 0, NULL, OPTION_FLAG, AT(no_history), 0, 0, false, NULL, APP_CHAT,
     "keep no file of the lines that are typed; read none"},
    {"--tools", 0, "FILE", OPTION_STRING, AT(tools_file), 0, 0, false, NULL, APP_CHAT,
     "a JSON array of the tools that the model may call, in OpenAI's form"},
    {"--template", 0, "FILE", OPTION_STRING, AT(template_file), 0, 0, false, NULL, APP_CHAT | APP_BATCH,
     "a Jinja chat template instead of the model's"},
    {"--template-name", 0, "NAME", OPTION_STRING, AT(template_name), 0, 0, false, NULL,
     APP_CHAT | APP_TEMPLATE | APP_BATCH, "which of the model's templates; default: the unnamed one, or tool_use"},
    {"--variables", 0, "JSON", OPTION_STRING, AT(variables), 0, 0, false, NULL, APP_CHAT,
     "an object of further variables of the template: {\"enable_thinking\": false}"},
    {"--raw", 0, NULL, OPTION_FLAG, AT(raw), 0, 0, false, NULL, APP_CHAT,
     "show answers as they are: reasoning and tool calls are not taken out"},
    {"--context", 0, "FILE", OPTION_STRING, AT(context_file), 0, 0, false, NULL, APP_TEMPLATE,
     "a JSON object of variables (messages, tools, ...); - is standard input"},
    {"--now", 0, "SECONDS", OPTION_INTEGER, AT(now_s), 0, 253402300799.0, false, NULL, APP_TEMPLATE,
     "the time that a template is told, seconds since 1970; default: the clock"},
    {"--show", 0, NULL, OPTION_FLAG, AT(show), 0, 0, false, NULL, APP_TOKENIZE, "the text with its tokens marked off"},
    {"--show", 0, NULL, OPTION_FLAG, AT(show), 0, 0, false, NULL, APP_TEMPLATE,
     "what the templates know (system role, tools, reasoning), instead of a text"},
    {"--ids", 0, NULL, OPTION_FLAG, AT(ids), 0, 0, false, NULL, APP_TOKENIZE, "only the ids, on one line"},
    {"--special", 0, NULL, OPTION_FLAG, AT(special), 0, 0, false, NULL,
     APP_RUN | APP_TOKENIZE | APP_LOGITS | APP_PERPLEXITY | APP_EMBED,
     "control tokens written in the text become control tokens"},
    {"--bos", 0, NULL, OPTION_FLAG, AT(bos), 0, 0, false, NULL, APP_TOKENIZE, "add BOS and EOS as the model asks for"},

    GROUP("sampling"),
    {"--max-tokens", 'n', "N", OPTION_INTEGER, AT(max_tokens), -1, INT32_MAX, false, NULL, SAMPLING,
     "length of an answer; -1: until the context is full (default)"},
    {"--temperature", 0, "X", OPTION_REAL, AT(temperature), 0, 1000, false, NULL, SAMPLING,
     "0: always the likeliest token (default); 1: as the model was trained"},
    {"--top-k", 0, "N", OPTION_INTEGER, AT(top_k), 0, UINT32_MAX, false, NULL, SAMPLING,
     "draw from the N likeliest; 0: off (default)"},
    {"--top-p", 0, "X", OPTION_REAL, AT(top_p), 0, 1, true, NULL, SAMPLING,
     "draw from the likeliest that together reach X; 1: off (default)"},
    {"--min-p", 0, "X", OPTION_REAL, AT(min_p), 0, 1, false, NULL, SAMPLING,
     "drop what is less likely than X times the likeliest; 0: off (default)"},
    {"--repetition-penalty", 0, "X", OPTION_REAL, AT(repetition_penalty), 0, 1000, true, NULL, SAMPLING,
     "make seen tokens less likely by a factor; 1: off (default)"},
    {"--frequency-penalty", 0, "X", OPTION_REAL, AT(frequency_penalty), -1000, 1000, false, NULL, SAMPLING,
     "lower a logit by X per occurrence; 0: off (default)"},
    {"--presence-penalty", 0, "X", OPTION_REAL, AT(presence_penalty), -1000, 1000, false, NULL, SAMPLING,
     "lower the logit of a token that has occurred by X; 0: off (default)"},
    {"--penalty-tokens", 0, "N", OPTION_INTEGER, AT(penalty_tokens), 0, UINT32_MAX, false, NULL, SAMPLING,
     "penalties count the last N tokens of prompt and answer; 0: all (default)"},
    {"--logit-bias", 0, "ID=X", OPTION_BIAS, 0, 0, 0, false, NULL, SAMPLING,
     "add X to a token's logit, -inf forbids it; repeatable"},
    RUNNEL_SAMPLERS_NUMBERS(SAMPLER){"--dry-sequence-breaker", 0, "TEXT", OPTION_BREAKER, 0, 0, 0, false, NULL,
                                     SAMPLING,
                                     "repetitions end there; repeatable; none: nowhere; default: newline : \" *"},
    {"--sampler-order", 0, "A,B,...", OPTION_STRING, AT(sampler_order), 0, 0, false, NULL, SAMPLING,
     "the samplers that act, in this order; default: all, see docs/SAMPLING.md"},
    {"--seed", 0, "N", OPTION_UNSIGNED, AT(seed), 0, 0, false, NULL, SAMPLING | APP_EAGLE,
     "the same seed and options give the same text; default 0"},
    {"--stop", 0, "TEXT", OPTION_STOPS, 0, 0, 0, false, NULL, SAMPLING, "the answer ends before this text; repeatable"},
    {"--stop-token", 0, "ID", OPTION_STOP_TOKEN, 0, 0, INT32_MAX, false, NULL, SAMPLING,
     "the answer ends with this token; repeatable"},
    {"--ignore-eos", 0, NULL, OPTION_FLAG, AT(ignore_eos), 0, 0, false, NULL, SAMPLING,
     "the model's own end-of-text tokens do not end the answer"},
    {"--forbid-eos", 0, NULL, OPTION_FLAG, AT(forbid_eos), 0, 0, false, NULL, SAMPLING,
     "the model's own end-of-text tokens are not drawn"},
    {"--context-keep", 0, "N", OPTION_INTEGER, AT(context_keep), 0, INT32_MAX, false, NULL, SAMPLING,
     "a full context keeps N prompt tokens and its newest half; else it ends"},
    {"--deadline", 0, "SECONDS", OPTION_REAL, AT(deadline_s), 0, 4000000, false, NULL, SAMPLING,
     "an answer that is not complete by then fails; 0: none (default)"},
    {"--logprobs", 0, "N", OPTION_INTEGER, AT(logprobs), 0, RUNNEL_MAX_TOP_LOGPROBS, false, NULL, APP_RUN,
     "with --json: the log-probability of each token and of the N likeliest"},
    {"--label", 0, "TEXT", OPTION_STRING, AT(label), 0, 0, false, NULL, SAMPLING, "a name for the request in --trace"},
    GROUP("guesses ahead: the same text, sooner"),
    {"--draft", 0, "KIND", OPTION_STRING, AT(draft), 0, 0, false, NULL, SAMPLING | APP_BATCH | APP_BENCH,
     "guesses, same text: none, ngram, FILE, ngram,FILE, eagle:HEAD, mtp, exit:N"},
    {"--draft-chain", 0, NULL, OPTION_FLAG, AT(draft_chain), 0, 0, false, NULL, SAMPLING | APP_BATCH | APP_BENCH,
     "no tree of guesses: without the guessing model's second choices"},
    {"--draft-max", 0, "N", OPTION_INTEGER, AT(draft_max), 1, RUNNEL_MAX_DRAFTS, false, NULL,
     SAMPLING | APP_BATCH | APP_BENCH, "guesses in a pass at most, 1 to 16; default 8"},
    {"--draft-share", 0, NULL, OPTION_FLAG, AT(draft_share), 0, 0, false, NULL, APP_BATCH,
     "ngram looks into the other answers, too: for many of one form"},
    {"--draft-threads", 0, "N", OPTION_INTEGER, AT(draft_threads), 0, 256, false, NULL,
     SAMPLING | APP_BATCH | APP_BENCH, "threads of its own for the guessing model; default 0: it takes turns"},

    GROUP("what is timed"),
    {"--prompt", 'p', "LIST", OPTION_LIST, AT(prompts), 0, 1 << 20, false, NULL, APP_BENCH,
     "lengths of the prompts that are timed, such as 128,512; 0: none; default 512"},
    {"--generate", 'n', "LIST", OPTION_LIST, AT(answers), 0, 1 << 20, false, NULL, APP_BENCH,
     "lengths of the answers that are timed; 0: none; default 64"},
    {"--streams", 0, "LIST", OPTION_LIST, AT(streams), 1, 1000, false, NULL, APP_BENCH,
     "how many streams run at once; default 1"},
    {"--depth", 0, "LIST", OPTION_LIST, AT(depths), 0, 1 << 24, false, NULL, APP_BENCH,
     "answers are timed behind so many positions of context; default 0"},
    {"--repeats", 'r', "N", OPTION_INTEGER, AT(repeats), 1, 1000, false, NULL, APP_BENCH,
     "how often each is timed, after a first time that does not count; default 5"},
    {"--text", 0, "FILE", OPTION_STRING, AT(text), 0, 0, false, NULL, APP_BENCH,
     "prompts are parts of this text; default: random tokens"},
    {"--speculate", 0, NULL, OPTION_FLAG, AT(speculate), 0, 0, false, NULL, APP_BENCH,
     "answers are generated with guesses from n-grams of prompt and answer"},
    {"--no-limits", 0, NULL, OPTION_FLAG, AT(no_limits), 0, 0, false, NULL, APP_BENCH,
     "do not measure what the machine can do at most"},

    GROUP("the job"),
    {"--resume", 0, NULL, OPTION_FLAG, AT(resume), 0, 0, false, NULL, APP_BATCH,
     "go on with the job that OUT and its journal belong to; begin it if there is none"},
    {"--resume", 0, NULL, OPTION_FLAG, AT(resume), 0, 0, false, NULL, APP_EAGLE,
     "go on with the training that was stopped, if there is one"},
    {"--overwrite", 0, NULL, OPTION_FLAG, AT(overwrite), 0, 0, false, NULL, APP_BATCH,
     "begin anew, whatever OUT and its journal hold"},
    {"--journal", 0, "FILE", OPTION_STRING, AT(journal), 0, 0, false, NULL, APP_BATCH,
     "where the job keeps how far it is; default: OUT.journal"},
    {"--unordered", 0, NULL, OPTION_FLAG, AT(unordered), 0, 0, false, NULL, APP_BATCH,
     "write answers as they come, not in the order of the input"},
    {"--streams", 0, "N", OPTION_INTEGER, AT(batch_streams), 1, 1024, false, NULL, APP_BATCH,
     "how many answers are computed at once; default 32"},
    {"--check", 0, NULL, OPTION_FLAG, AT(check), 0, 0, false, NULL, APP_BATCH,
     "only judge the lines: names the bad ones, computes nothing, needs no OUT"},
    {"--limit", 0, "N", OPTION_INTEGER, AT(limit), 1, INT64_MAX >> 11, false, NULL, APP_BATCH,
     "stop behind line N of the input; --resume with more, or without, goes on"},
    {"--errors", 0, "FILE", OPTION_STRING, AT(errors_file), 0, 0, false, NULL, APP_BATCH,
     "lines whose answer is an error go to this file, not to OUT"},
    {"--summary", 0, "FILE", OPTION_STRING, AT(summary_file), 0, 0, false, NULL, APP_BATCH,
     "counts, tokens and times as a JSON object; - is standard output"},
    {"--fail-on", 0, "WHEN", OPTION_CHOICE, AT(fail_on), 0, 0, false, "any|all|none", APP_BATCH,
     "exit code 3 if any, or all, lines were errors; default none, of --check any"},
    {"--max-line-bytes", 0, "BYTES", OPTION_SIZE, AT(max_line_bytes), 0, 0, false, NULL, APP_BATCH,
     "a longer line gets an error; with K, M or G; default 16M"},

    GROUP("what is kept"),
    {"--fingerprint", 0, "HEX", OPTION_STRING, AT(fingerprint), 0, 0, false, NULL, APP_CACHE,
     "only this one; its first digits are enough; ls then lists its records"},
    {"--all", 0, NULL, OPTION_FLAG, AT(purge_all), 0, 0, false, NULL, APP_CACHE, "purge: all that is kept"},
    {"--keep", 0, "BYTES", OPTION_SIZE, AT(keep_bytes), 0, 0, false, NULL, APP_CACHE,
     "purge: the oldest, until a fingerprint has at most BYTES; with K, M or G"},
    {"--salt", 0, "N", OPTION_NUMBER, AT(salt), 0, 0, false, NULL, APP_CACHE,
     "purge: overwrite what this cache salt has left; warm: the prompts' salt"},

    GROUP("memory, caches and the machine"),
    {"--ctx", 'c', "N", OPTION_INTEGER, AT(context), 1, UINT32_MAX, false, NULL, COMPUTING | APP_INFO | APP_DOCTOR,
     "positions of the context; default: the model's own, at most 8192"},
    {"--kv-type", 0, "TYPE", OPTION_CHOICE, AT(kv_type), 0, 0, false, "f16|f32|bf16|fp8|q8|q4|q3",
     SETTING | APP_INFO | APP_DOCTOR, "format of the key-value cache: f16 (default), f32, bf16, fp8, q8, q4 or q3"},
    {"--kv-size", 0, "BYTES", OPTION_SIZE, AT(kv_bytes), 0, 0, false, NULL, COMPUTING,
     "memory for the key-value cache, with K, M or G; default: 8 contexts"},
    {"--cache-hot", 0, "BYTES", OPTION_SIZE, AT(kv_bytes), 0, 0, false, NULL, CACHING, "the same as --kv-size"},
    {"--cache-warm", 0, "BYTES", OPTION_SIZE, AT(cache_warm), 0, 0, false, NULL, CACHING,
     "memory for packed blocks of earlier prompts, with K, M or G; default: none"},
    {"--cache-dir", 0, "DIR", OPTION_STRING, AT(cache_dir), 0, 0, false, NULL, CACHING,
     "keep such blocks here, for later runs, too; default: nowhere"},
    {"--cache-cold", 0, "BYTES", OPTION_SIZE, AT(cache_cold), 0, 0, false, NULL, CACHING,
     "of --cache-dir, for this model, with K, M or G; default 8G"},
    {"--cache-shared", 0, "URL", OPTION_STRING, AT(cache_shared), 0, 0, false, NULL, CACHING,
     "share such blocks by Redis: redis[s]://HOST:PORT, unix:/PATH, @FILE"},
    {"--cache-shared-ca", 0, "FILE", OPTION_STRING, AT(cache_shared_ca), 0, 0, false, NULL, CACHING,
     "who vouches for a rediss:// server; default: the system's authorities"},
    {"--cache-shared-cert", 0, "FILE", OPTION_STRING, AT(cache_shared_cert), 0, 0, false, NULL, CACHING,
     "certificate that is shown to it; default: none"},
    {"--cache-shared-key", 0, "FILE", OPTION_STRING, AT(cache_shared_key), 0, 0, false, NULL, CACHING,
     "and its key; default: in the certificate's file"},
    {"--chunk-mean", 0, "N", OPTION_INTEGER, AT(chunk_mean), 1, 1 << 28, false, NULL, SETTING,
     "lossy: the last N positions are kept, and one mean of each 64 older ones"},
    {"--no-prefix-cache", 0, NULL, OPTION_FLAG, AT(no_prefix_cache), 0, 0, false, NULL, APP_RUN | APP_CHAT | APP_BATCH,
     "compute each prompt whole, also where an earlier one begins alike"},
    {"--batch", 0, "N", OPTION_INTEGER, AT(batch), 8, 8192, false, NULL, SETTING,
     "positions in one forward pass, 8 to 8192; default 256"},
    {"--threads", 't', "N", OPTION_INTEGER, AT(threads), 1, 256, false, NULL,
     SETTING | APP_EAGLE | APP_DOCTOR | APP_REPACK, "threads that compute; default: one per physical core"},
    {"--weights", 0, "ORDER", OPTION_CHOICE, AT(weights), 0, 0, false, "auto|file|tiles", SETTING | APP_DOCTOR,
     "how weights lie in memory: as in the file, in tiles, or the faster one"},
    {"--weights-dir", 0, "DIR", OPTION_STRING, AT(weights_dir), 0, 0, false, NULL, SETTING | APP_DOCTOR | APP_REPACK,
     "keep weights in tiles in files there, which later runs map and share"},
    {"--device", 0, "NAME", OPTION_CHOICE, AT(device), 0, 0, false, "cpu|reference", SETTING,
     "cpu (default), or reference: plain C in double precision"},
    {"--reference", 0, NULL, OPTION_REFERENCE, 0, 0, 0, false, NULL, SETTING, "the same as --device reference"},

    GROUP("output"),
    {"--metrics", 0, "FILE", OPTION_STRING, AT(metrics_file), 0, 0, false, NULL, SETTING,
     "at the end, counts and latencies as text for Prometheus; -: standard error"},
    {"--trace", 0, "FILE", OPTION_STRING, AT(trace_file), 0, 0, false, NULL, SETTING,
     "what actors, steps and requests did when, for ui.perfetto.dev"},
    {"--json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, false, NULL,
     APP_RUN | APP_CHAT | APP_INFO | APP_PERPLEXITY | APP_BENCH | APP_EMBED | APP_CACHE | APP_TEMPLATE,
     "JSON on standard output"},
    {"--csv", 0, NULL, OPTION_FLAG, AT(csv), 0, 0, false, NULL, APP_BENCH, "comma-separated values on standard output"},
    {"--log-level", 0, "LEVEL", OPTION_CHOICE, AT(log_level), 0, 0, false, "none|error|warning|info|debug", ALL,
     "what the engine tells: none, error, warning (default), info or debug"},
    {"--quiet", 'q', NULL, OPTION_FLAG, AT(quiet), 0, 0, false, NULL, LOADING,
     "no progress and no figures on standard error"},
    {"--help", 'h', NULL, OPTION_FLAG, AT(help), 0, 0, false, NULL, ALL, "this text"},
};

const size_t app_n_options = sizeof app_option_table / sizeof app_option_table[0];
static_assert(sizeof app_option_table / sizeof app_option_table[0] <= APP_MAX_OPTIONS, "room for a pointer to each");

#define DEFAULT(type, member, sampler, value, least, most, option, json, help) .member = value,

void app_options_default(struct app_options *options)
{
    *options = (struct app_options){.max_tokens = -1,
                                    .context_keep = -1,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .samplers = {RUNNEL_SAMPLERS_NUMBERS(DEFAULT)},
                                    .logprobs = -1,
                                    .prompts = {{512}, 1},
                                    .answers = {{64}, 1},
                                    .streams = {{1}, 1},
                                    .depths = {{0}, 1},
                                    .repeats = 5,
                                    .kv_type = "f16",
                                    .weights = "auto",
                                    .device = "cpu",
                                    .draft = "none",
                                    .batch_streams = 32,
                                    .max_line_bytes = 16 << 20};
    options->request_samplers = &options->own_samplers;
}

void app_options_fini(struct app_options *options)
{
    free(options->tokens);
    options->tokens = NULL;
}

runnel_weight_order app_weight_order(const char *name)
{
    return strcmp(name, "file") == 0    ? RUNNEL_WEIGHTS_FILE
           : strcmp(name, "tiles") == 0 ? RUNNEL_WEIGHTS_TILES
                                        : RUNNEL_WEIGHTS_MEASURED;
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
