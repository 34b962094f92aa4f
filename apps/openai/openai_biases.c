/* logit_bias of bodies: of token ids and, in llama.cpp's form, of texts. See openai_request.h. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai_reader.h"

/* The id that a key of logit_bias spells, or -1. */
static int32_t id_of_key(const char *key)
{
    char *end = NULL;
    long value = 0;

    if (key[0] < '0' || key[0] > '9')
        return -1;
    errno = 0;
    value = strtol(key, &end, 10);
    return errno == 0 && *end == '\0' && value <= INT32_MAX ? (int32_t)value : -1;
}

/* false: the token never comes. */
static bool read_bias(struct openai_reader *reader, const char *param, const json_t *value, float *bias)
{
    double number = json_number_value(value);

    *bias = json_is_false(value)              ? -INFINITY
            : fabs(number) <= (double)FLT_MAX ? (float)number
                                              : (float)copysign((double)FLT_MAX, number);
    if (json_is_false(value))
        return true;
    if (!json_is_number(value))
        return openai_expect(reader->error, param, value, JSON_REAL);
    return reader->r->rules == OPENAI_FREE || (number >= -100 && number <= 100) ||
           openai_refuse(reader->error, "invalid_value", param, "%s is %g; allowed is -100 to 100", param, number);
}

static bool add_text(struct openai_reader *reader, const char *text, size_t n, float bias)
{
    struct openai_text_bias *place = &reader->r->text_biases[reader->r->n_text_biases];

    *place = (struct openai_text_bias){.text = malloc(n + 1), .n = n, .bias = bias};
    if (place->text == NULL)
        return openai_no_memory(reader->error);
    memcpy(place->text, text, n + 1);
    reader->r->n_text_biases++;
    return true;
}

static void add_token(struct openai_reader *reader, int32_t token, float bias)
{
    runnel_logit_bias *biases = (runnel_logit_bias *)(uintptr_t)reader->r->sampling.biases;

    biases[reader->r->sampling.n_biases++] = (runnel_logit_bias){token, bias};
}

/* {"5": bias, ..}; in llama.cpp's form a name that is no id is a text. */
static bool read_object(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *item = NULL;
    const char *key = NULL;
    char param[64];

    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        int32_t token = id_of_key(key);
        float bias = 0;

        snprintf(param, sizeof param, "%.16s.%.40s", name, key);
        if (token < 0 && reader->r->rules != OPENAI_FREE)
            return openai_refuse(reader->error, "invalid_value", param, "%s: the name is not a token id", param);
        if (!read_bias(reader, param, item, &bias) || (token < 0 && !add_text(reader, key, strlen(key), bias)))
            return false;
        if (token >= 0)
            add_token(reader, token, bias);
    }
    return true;
}

/* [[5, bias], ["text", bias], ..] */
static bool read_list(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *entry = NULL;
    size_t i = 0;
    char param[64];

    json_array_foreach(value, i, entry)
    {
        const json_t *of = json_array_get(entry, 0);
        int64_t token = 0;
        float bias = 0;

        snprintf(param, sizeof param, "%.16s[%zu]", name, i);
        if (json_array_size(entry) != 2)
            return openai_refuse(reader->error, "invalid_value", param, "%s is not [token id or text, bias]", param);
        if (!read_bias(reader, param, json_array_get(entry, 1), &bias))
            return false;
        if (json_is_string(of)) {
            if (!add_text(reader, json_string_value(of), json_string_length(of), bias))
                return false;
            continue;
        }
        if (!openai_read_integer(reader->error, param, of, 0, INT32_MAX, &token))
            return false;
        add_token(reader, (int32_t)token, bias);
    }
    return true;
}

bool openai_take_biases(struct openai_reader *reader, const char *name, const json_t *value)
{
    bool list = reader->r->rules == OPENAI_FREE && json_is_array(value);
    size_t n = list ? json_array_size(value) : json_object_size(value);

    if (!list && !openai_expect(reader->error, name, value, JSON_OBJECT))
        return false;
    reader->r->sampling.biases = calloc(n + 1, sizeof *reader->r->sampling.biases);
    reader->r->text_biases = calloc(n + 1, sizeof *reader->r->text_biases);
    if (reader->r->sampling.biases == NULL || reader->r->text_biases == NULL)
        return openai_no_memory(reader->error);
    return list ? read_list(reader, name, value) : read_object(reader, name, value);
}

/* Each token of the text gets the bias. */
static runnel_status place_text(struct openai_request *request, const struct openai_text_bias *of, runnel_model *model)
{
    runnel_sampling *sampling = &request->sampling;
    runnel_logit_bias *biases = NULL;
    int32_t *tokens = NULL;
    size_t n = 0;
    runnel_status status = runnel_tokenize(model, of->text, of->n, 0, NULL, 0, &n);

    if (status != RUNNEL_OK || n == 0)
        return status;
    tokens = malloc(n * sizeof *tokens);
    biases = realloc((void *)(uintptr_t)sampling->biases, (sampling->n_biases + n) * sizeof *biases);
    if (biases != NULL)
        sampling->biases = biases;
    status =
        tokens == NULL || biases == NULL ? RUNNEL_NO_MEMORY : runnel_tokenize(model, of->text, of->n, 0, tokens, n, &n);
    for (size_t i = 0; i < n && status == RUNNEL_OK; i++)
        biases[sampling->n_biases++] = (runnel_logit_bias){tokens[i], of->bias};
    free(tokens);
    return status;
}

runnel_status openai_place_biases(struct openai_request *request, runnel_model *model)
{
    for (; request->n_text_biases > 0; request->n_text_biases--) {
        struct openai_text_bias *last = &request->text_biases[request->n_text_biases - 1];
        runnel_status status = place_text(request, last, model);

        if (status != RUNNEL_OK)
            return status;
        free(last->text);
    }
    return RUNNEL_OK;
}

void openai_fini_biases(struct openai_request *request)
{
    for (size_t i = 0; i < request->n_text_biases; i++)
        free(request->text_biases[i].text);
    free(request->text_biases);
    free((void *)(uintptr_t)request->sampling.biases);
}
