/* Bodies of llama.cpp's /completion, /infill and /embedding in OpenAI's form: see llama.h. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"
#include "apps/serve/routes.h"

enum { MOST_REAL = 1000000 }; /* dry_multiplier, top_n_sigma */
enum { MOST_FIELDS = 256 };   /* response_fields, each looked up in each answer */

/* ---- Requests ---------------------------------------------------------------------------- */

#define EACH                                                                                                     \
    {"n_predict", OPENAI_WHOLE, false, INT32_MIN, INT32_MAX}, {"max_tokens", OPENAI_WHOLE, false, 0, INT32_MAX}, \
        {"temperature", OPENAI_REAL, false, 0, 0}, {"repeat_penalty", OPENAI_REAL, false, 0, 0},                 \
        {"frequency_penalty", OPENAI_REAL, false, -FLT_MAX, FLT_MAX},                                            \
        {"presence_penalty", OPENAI_REAL, false, -FLT_MAX, FLT_MAX}, {"top_p", OPENAI_REAL, false, 0, 0},        \
        {"min_p", OPENAI_REAL, false, 0, 0}, {"typical_p", OPENAI_REAL, false, 0, 0},                            \
        {"xtc_probability", OPENAI_REAL, false, 0, 0}, {"xtc_threshold", OPENAI_REAL, false, 0, 0},              \
        {"top_n_sigma", OPENAI_REAL, false, 0, 0}, {"adaptive_target", OPENAI_REAL, false, 0, 0},                \
        {"dry_base", OPENAI_REAL, false, 0, 0}, {"top_k", OPENAI_WHOLE, false, INT64_MIN, UINT32_MAX},           \
        {"logprobs", OPENAI_WHOLE, false, 0, RUNNEL_MAX_TOP_LOGPROBS},                                           \
        {"repeat_last_n", OPENAI_WHOLE, false, -1, UINT32_MAX}, {"logit_bias", OPENAI_ANY, false, 0, 0},         \
        {"n_probs", OPENAI_WHOLE, false, 0, RUNNEL_MAX_TOP_LOGPROBS}, {"n_cmpl", OPENAI_WHOLE, false, 1, 128},   \
        {"return_tokens", OPENAI_BOOLEAN, false, 0, 0}, {"timings_per_token", OPENAI_BOOLEAN, false, 0, 0},      \
        {"return_progress", OPENAI_BOOLEAN, false, 0, 0}, {"response_fields", OPENAI_ARRAY, false, 0, 0},        \
    {                                                                                                            \
        "lora", OPENAI_LORAS, false, 0, 0                                                                        \
    }

const struct openai_field llama_fields[] = {{"prompt", OPENAI_PROMPTS, true, 0, 0}, EACH, {0}};

const struct openai_field llama_infill_fields[] = {{"input_prefix", OPENAI_STRING, true, 0, 0},
                                                   {"input_suffix", OPENAI_STRING, true, 0, 0},
                                                   {"prompt", OPENAI_STRING, false, 0, 0},
                                                   {"input_extra", OPENAI_ARRAY, false, 0, 0},
                                                   EACH,
                                                   {0}};

const struct openai_field llama_embedding_fields[] = {{"content", OPENAI_PROMPTS, false, 0, 0},
                                                      {"input", OPENAI_PROMPTS, false, 0, 0},
                                                      {"embd_normalize", OPENAI_WHOLE, false, -1, 2},
                                                      {"model", OPENAI_STRING, false, 0, 0},
                                                      SERVE_ADAPTER_FIELDS,
                                                      {"keep_alive", OPENAI_ANY, false, 0, 0},
                                                      {0}};

const struct serve_field_name llama_names[] = {{"n_predict", "max_tokens"},
                                               {"repeat_penalty", "repetition_penalty"},
                                               {"repeat_last_n", "penalty_tokens"},
                                               {"n_probs", "logprobs"},
                                               {"n_cmpl", "n"},
                                               {0}};

const struct serve_field_name llama_embedding_names[] = {{"content", "input"}, {0}};

static bool is_given(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);

    return value != NULL && !json_is_null(value);
}

/* Fields whose names OpenAI's form or its further samplers do not know; the others pass as they are. Where a body has
 * both names, the one of OpenAI's form counts. */
static bool rename_field(const json_t *body, const char *from, json_t *out, const char *to)
{
    json_t *value = json_object_get(body, from), *other = json_object_get(body, to);

    if (value == NULL || json_is_null(value))
        return true;
    if (other != NULL && !json_is_null(other))
        return json_object_del(out, from) == 0;
    return json_object_set(out, to, value) == 0 && json_object_del(out, from) == 0;
}

/* What that server takes where a body says nothing. */
static bool add_usual(const json_t *body, json_t *out)
{
    static const struct {
        const char *name;
        double value;
    } usual[] = {{"temperature", 0.8}, {"top_p", 0.95}, {"min_p", 0.05}};
    bool good = is_given(body, "top_k") || json_object_set_new(out, "top_k", json_integer(40)) == 0;

    for (size_t i = 0; good && i < sizeof usual / sizeof usual[0]; i++)
        good = is_given(body, usual[i].name) || json_object_set_new(out, usual[i].name, json_real(usual[i].value)) == 0;
    return good;
}

/* A number in its range becomes the one that does nothing; what is wrong with another is told later. */
static bool switch_off(json_t *out, const char *name, double least, double most, double neutral)
{
    const json_t *value = json_object_get(out, name);
    double number = json_number_value(value);

    return !json_is_number(value) || !(number >= least && number <= most) ||
           json_object_set_new(out, name, json_real(neutral)) == 0;
}

/* repeat_last_n is 64 unless told. -1 is everything, which is 0 here; 0 is nothing at all. */
static bool read_window(const json_t *body, json_t *out)
{
    const json_t *window = json_object_get(body, "repeat_last_n");
    json_int_t n = json_is_integer(window) ? json_integer_value(window) : 64;

    if (window != NULL && json_object_del(out, "repeat_last_n") != 0)
        return false;
    if (is_given(body, "penalty_tokens"))
        return true;
    if (n == 0)
        return switch_off(out, "frequency_penalty", -2, 2, 0) && switch_off(out, "presence_penalty", -2, 2, 0) &&
               switch_off(out, "repetition_penalty", 1e-37, FLT_MAX, 1);
    return json_object_set_new(out, "penalty_tokens", json_integer(n == -1 ? 0 : n)) == 0;
}

/* Numbers beyond the range in which they mean something become the nearest that does. */
static bool clamp_numbers(const json_t *body, json_t *out)
{
    static const struct {
        const char *name;
        double least, most;
    } ranges[] = {{"temperature", 0, FLT_MAX},   {"top_p", 0, 1},           {"min_p", 0, 1},
                  {"typical_p", 0, 1},           {"xtc_probability", 0, 1}, {"xtc_threshold", 0, 1},
                  {"top_n_sigma", 0, MOST_REAL}, {"adaptive_target", -1, 1}};
    const json_t *top_k = json_object_get(body, "top_k");
    bool good = true;

    for (size_t i = 0; good && i < sizeof ranges / sizeof ranges[0]; i++) {
        const json_t *value = json_object_get(body, ranges[i].name);
        double number = json_number_value(value);

        if (json_is_number(value) && !(number >= ranges[i].least && number <= ranges[i].most))
            good = json_object_set_new(out, ranges[i].name,
                                       json_real(number < ranges[i].least ? ranges[i].least : ranges[i].most)) == 0;
    }
    if (json_is_number(json_object_get(body, "dry_base")) && json_number_value(json_object_get(body, "dry_base")) < 1)
        json_object_del(out, "dry_base"); /* the usual one */
    if (json_is_integer(top_k) && json_integer_value(top_k) < 0)
        good = json_object_set_new(out, "top_k", json_integer(0)) == 0 && good;
    return good;
}

/* Values that mean to that server what is said in another way here. */
static bool read_extremes(const json_t *body, json_t *out)
{
    const json_t *grammar = json_object_get(body, "grammar"), *window = json_object_get(body, "dry_penalty_last_n");
    bool good = clamp_numbers(body, out);

    if (json_is_string(grammar) && json_string_length(grammar) == 0) /* none */
        good = json_object_del(out, "grammar") == 0 && good;
    if (json_is_integer(window) && json_integer_value(window) == 0) /* off */
        good = switch_off(out, "dry_multiplier", 0, MOST_REAL, 0) && good;
    return good;
}

/* The list without the elements that are this word. */
static bool drop_word(const json_t *body, json_t *out, const char *name, const char *word)
{
    const json_t *given = json_object_get(body, name), *item = NULL;
    json_t *rest = json_is_array(given) ? json_array() : NULL;
    size_t i = 0, n = strlen(word);
    bool good = rest != NULL;

    if (!json_is_array(given))
        return true;
    json_array_foreach(given, i, item)
    {
        bool drop =
            json_is_string(item) && json_string_length(item) == n && memcmp(json_string_value(item), word, n) == 0;

        good = good && (drop || json_array_append(rest, (json_t *)(uintptr_t)item) == 0);
    }
    good = good && json_object_set(out, name, rest) == 0;
    json_decref(rest);
    return good;
}

/* The sampler "infill" is not here: the others act without it. Empty stops are none. */
static bool drop_unused(const json_t *body, json_t *out)
{
    const json_t *stop = json_object_get(body, "stop");

    if (json_is_string(stop) && json_string_length(stop) == 0)
        json_object_del(out, "stop");
    return drop_word(body, out, "samplers", "infill") && drop_word(body, out, "stop", "");
}

/* "samplers" in one string are letters. A string that has others too is left as it is: names with commas. */
static bool read_letters(const json_t *body, json_t *out)
{
    static const struct {
        char letter;
        const char *name;
    } letters[] = {{'d', "dry"},         {'k', "top_k"},     {'y', "typical_p"},   {'p', "top_p"},
                   {'s', "top_n_sigma"}, {'m', "min_p"},     {'t', "temperature"}, {'x', "xtc"},
                   {'i', NULL},          {'e', "penalties"}, {'a', "adaptive_p"}};
    const json_t *given = json_object_get(body, "samplers");
    const char *text = json_string_value(given);
    json_t *names = NULL;
    bool good = true;

    if (text == NULL || strspn(text, "dkypsmtxiea") != json_string_length(given))
        return true;
    names = json_array();
    for (; good && *text != '\0'; text++)
        for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
            if (letters[i].letter == *text && letters[i].name != NULL)
                good = json_array_append_new(names, json_string(letters[i].name)) == 0 && good;
    good = good && json_object_set(out, "samplers", names) == 0;
    json_decref(names);
    return good;
}

/* n_predict, or max_tokens. Without a limit, or with -1, an answer goes on to the end of the context. */
static bool add_limit(const json_t *body, json_t *out, struct openai_error *error)
{
    const json_t *n = json_object_get(body, "n_predict"), *most = json_object_get(body, "max_tokens");
    bool given = n != NULL && !json_is_null(n);

    json_object_del(out, "n_predict");
    if (given && !openai_expect(error, "n_predict", n, JSON_INTEGER))
        return false;
    if (!given && most != NULL && !json_is_null(most))
        return true;
    return json_object_set_new(out, "max_tokens",
                               json_integer(given && json_integer_value(n) >= 0 ? json_integer_value(n) : INT32_MAX)) ==
           0;
}

/* What an answer is to show. */
static bool check_picked(const json_t *fields, struct openai_error *error)
{
    if (json_array_size(fields) > MOST_FIELDS)
        return openai_refuse(error, "invalid_value", "response_fields", "response_fields: at most %d", MOST_FIELDS);
    for (size_t i = 0; i < json_array_size(fields); i++) {
        char name[40];

        snprintf(name, sizeof name, "response_fields[%zu]", i);
        if (!openai_expect(error, name, json_array_get(fields, i), JSON_STRING))
            return false;
    }
    return true;
}

json_t *llama_translate(const json_t *body, struct openai_error *error)
{
    json_t *out = json_copy((json_t *)(uintptr_t)body);
    const json_t *seed = json_object_get(body, "seed"), *probs = json_object_get(body, "n_probs");
    bool good = out != NULL && add_limit(body, out, error);

    good = good && check_picked(json_object_get(body, "response_fields"), error);
    if (good && json_is_integer(seed) && json_integer_value(seed) == -1)
        json_object_del(out, "seed");
    good = good && rename_field(body, "repeat_penalty", out, "repetition_penalty") &&
           rename_field(body, "n_cmpl", out, "n") && rename_field(body, "n_probs", out, "logprobs") &&
           read_window(body, out) && read_extremes(body, out) && drop_unused(body, out) && read_letters(body, out) &&
           add_usual(body, out);
    if (good && json_is_integer(probs) && json_integer_value(probs) == 0 && !is_given(body, "logprobs"))
        json_object_del(out, "logprobs");
    if (good)
        return out;
    json_decref(out);
    return NULL;
}

/* Pieces have the ids of their tokens in any case. */
void llama_wish(struct serve_task *task, const json_t *body)
{
    const json_t *fields = json_object_get(body, "response_fields"), *field = NULL;
    size_t i = 0;

    task->wish.ids = json_is_true(json_object_get(body, "return_tokens"));
    task->wish.timings = json_is_true(json_object_get(body, "timings_per_token"));
    task->wish.progress = json_is_true(json_object_get(body, "return_progress"));
    task->wish.fields = json_array_size(fields) > 0 ? json_deep_copy(fields) : NULL;
    json_array_foreach(fields, i, field)
    {
        task->wish.prompt = task->wish.prompt || (json_is_string(field) && strcmp(openai_word(field), "prompt") == 0);
    }
    task->request.keeps_ids = task->wish.ids || task->request.stream;
}

/* ---- Gaps -------------------------------------------------------------------------------- */

/* A text of the body, joined behind `out`'s; a field that is missing is an error where it is needed. */
static bool join_text(const json_t *body, const char *name, bool needed, struct openai_buffer *out,
                      struct openai_error *error)
{
    const json_t *text = json_object_get(body, name);

    if (!needed && (text == NULL || json_is_null(text)))
        return true;
    if (!openai_expect(error, name, text, JSON_STRING))
        return false;
    return json_string_length(text) == 0 ||
           fwrite(json_string_value(text), 1, json_string_length(text), out->to) == json_string_length(text);
}

/* What stands before the gap: input_prefix, and prompt, the part of it that the user has just written. */
static json_t *before_gap(const json_t *body, struct openai_error *error)
{
    struct openai_buffer text = {0};
    json_t *joined = NULL;

    text.to = open_memstream(&text.bytes, &text.n);
    if (text.to == NULL)
        return NULL;
    if (join_text(body, "input_prefix", true, &text, error) && join_text(body, "prompt", false, &text, error) &&
        fflush(text.to) == 0)
        joined = json_stringn(text.n > 0 ? text.bytes : "", text.n);
    fclose(text.to);
    free(text.bytes);
    return joined;
}

/* /infill: the texts around a gap, and other files. Also without these the model is told where files begin. */
json_t *llama_translate_infill(const json_t *body, struct openai_error *error)
{
    json_t *suffix = json_object_get(body, "input_suffix"), *extra = json_object_get(body, "input_extra");
    json_t *prompt = before_gap(body, error);
    json_t *out = prompt != NULL && openai_expect(error, "input_suffix", suffix, JSON_STRING)
                      ? llama_translate(body, error)
                      : NULL;
    bool good = out != NULL && json_object_set(out, "prompt", prompt) == 0 &&
                json_object_set(out, "suffix", suffix) == 0 &&
                ((extra != NULL && !json_is_null(extra)) || json_object_set_new(out, "input_extra", json_array()) == 0);

    json_decref(prompt);
    if (good)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- Vectors ----------------------------------------------------------------------------- */

json_t *llama_translate_embedding(const json_t *body, struct openai_error *error)
{
    const char *name = is_given(body, "input") ? "input" : "content";
    json_int_t norm =
        is_given(body, "embd_normalize") ? json_integer_value(json_object_get(body, "embd_normalize")) : 2;
    json_t *out = NULL;

    if (!is_given(body, name)) {
        openai_refuse(error, "missing_required_parameter", "content", "content is missing");
        return NULL;
    }
    if (is_given(body, "content") && is_given(body, "input")) {
        openai_refuse(error, "invalid_value", "content", "content and input are two names of one field");
        return NULL;
    }
    if (!json_is_string(json_object_get(body, name)) && !json_is_array(json_object_get(body, name))) {
        openai_refuse(error, "invalid_type", name, "%s must be a string or an array of strings or token ids", name);
        return NULL;
    }
    if (norm != -1 && norm != 2) {
        openai_refuse(error, "unsupported_value", "embd_normalize",
                      "embd_normalize must be 2 (length 1) or -1 (as it is)");
        return NULL;
    }
    out = json_pack("{s:O,s:b}", "input", json_object_get(body, name), "normalize", norm == 2);
    if (out != NULL && (!is_given(body, "model") || json_object_set(out, "model", json_object_get(body, "model")) == 0))
        return out;
    json_decref(out);
    return NULL;
}
