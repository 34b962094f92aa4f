/* The further samplers in bodies, by the names of llama.cpp's server and vLLM: see openai_request.h. */
#include <stdlib.h>
#include <string.h>

#include "apps/runnel/common.h"
#include "openai_request.h"
#include "runnel_fields.h"

enum kind { REAL, WHOLE };
#define KIND_float REAL
#define KIND_uint32_t WHOLE

struct number {
    const char *name, *member;
    enum kind kind;
    size_t at; /* in runnel_samplers */
    double least, most;
};

#define NUMBER(type, member, sampler, value, least, most, option, json, help) \
    {json, #member, KIND_##type, offsetof(runnel_samplers, member), least, most},

static const struct number numbers[] = {RUNNEL_SAMPLERS_NUMBERS(NUMBER)};

const char *openai_sampler_field(const char *member, size_t n)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strlen(numbers[i].member) == n && memcmp(numbers[i].member, member, n) == 0)
            return numbers[i].name;
    return NULL;
}

static int refuse_range(const struct number *number, double value, struct openai_error *error)
{
    openai_refuse(error, "invalid_value", number->name, "%s is %g; allowed is %g to %g", number->name, value,
                  number->least, number->most);
    return -1;
}

/* dry_penalty_last_n -1 is all, which is 0 here; true and false are 1 and 0. */
static int read_number(const struct number *number, runnel_samplers *samplers, const json_t *value,
                       struct openai_error *error)
{
    char *to = (char *)samplers + number->at;
    double given = json_is_true(value) ? 1 : json_number_value(value);

    bool flag = number->kind == WHOLE && number->most == 1 && json_is_boolean(value);

    if (!flag && (number->kind == WHOLE ? !json_is_integer(value) : !json_is_number(value))) {
        openai_expect(error, number->name, value, number->kind == WHOLE ? JSON_INTEGER : JSON_REAL);
        return -1;
    }
    if (given == -1 && strcmp(number->name, "dry_penalty_last_n") == 0)
        given = 0;
    if (!(given >= number->least && given <= number->most))
        return refuse_range(number, given, error);
    if (number->kind == REAL)
        *(float *)(void *)to = (float)given;
    else
        *(uint32_t *)(void *)to = (uint32_t)given;
    return 1;
}

void openai_samplers_write(FILE *to, const struct openai_request *request)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *at = (const char *)&request->samplers + numbers[i].at;

        fprintf(to, ",\"%s\":", numbers[i].name);
        if (numbers[i].kind == REAL)
            app_json_number(to, (double)*(const float *)(const void *)at);
        else if (numbers[i].most == 1)
            fputs(*(const uint32_t *)(const void *)at != 0 ? "true" : "false", to);
        else
            fprintf(to, "%u", *(const uint32_t *)(const void *)at);
    }
}

static int no_memory(struct openai_error *error)
{
    openai_error_of(RUNNEL_NO_MEMORY, "not enough memory for the request", error);
    return -1;
}

/* The names of an array of strings, with commas; NULL: not enough memory. */
static char *joined(const json_t *names)
{
    size_t bytes = 1;
    char *order = NULL, *end = NULL;

    for (size_t i = 0; i < json_array_size(names); i++)
        bytes += json_string_length(json_array_get(names, i)) + 1;
    end = order = calloc(bytes, 1);
    for (size_t i = 0; order != NULL && i < json_array_size(names); i++)
        end = stpcpy(stpcpy(end, i > 0 ? "," : ""), json_string_value(json_array_get(names, i)));
    return order;
}

/* An array of names, or one string with commas or semicolons. */
static int read_order(struct openai_request *request, const char *name, const json_t *value, struct openai_error *error)
{
    char *order = NULL;

    if (json_is_string(value)) {
        if (!openai_expect_word(error, name, value))
            return -1;
        order = strdup(json_string_value(value));
    } else {
        if (!openai_expect(error, name, value, JSON_ARRAY))
            return -1;
        for (size_t i = 0; i < json_array_size(value); i++)
            if (!openai_expect_word(error, name, json_array_get(value, i)))
                return -1;
        order = joined(value);
    }
    if (order == NULL)
        return no_memory(error);
    free(request->sampler_order);
    request->samplers.order = request->sampler_order = order;
    return 1;
}

static int read_breakers(struct openai_request *request, const char *name, const json_t *value,
                         struct openai_error *error)
{
    if (!openai_expect(error, name, value, JSON_ARRAY))
        return -1;
    if (json_array_size(value) > RUNNEL_MAX_BREAKERS) {
        openai_refuse(error, "invalid_value", name, "%s: at most %d", name, RUNNEL_MAX_BREAKERS);
        return -1;
    }
    request->samplers.dry_breakers = (const char *const *)request->breakers;
    request->samplers.n_dry_breakers = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *text = json_array_get(value, i);

        if (!openai_expect_word(error, name, text))
            return -1;
        if (json_string_length(text) == 0 || json_string_length(text) > RUNNEL_MAX_BREAKER_BYTES) {
            openai_refuse(error, "invalid_value", name, "%s[%zu]: not 1..%d bytes", name, i, RUNNEL_MAX_BREAKER_BYTES);
            return -1;
        }
        request->breakers[i] = strdup(json_string_value(text));
        if (request->breakers[i] == NULL)
            return no_memory(error);
        request->samplers.n_dry_breakers++;
    }
    return 1;
}

static int read_eos(struct openai_request *request, const char *name, const json_t *value, struct openai_error *error)
{
    bool forbid = json_is_string(value) && strcmp(openai_word(value), "forbid") == 0;

    if (!forbid && !openai_expect(error, name, value, JSON_TRUE))
        return -1;
    request->ignore_eos = forbid ? 2 : json_is_true(value);
    return 1;
}

int openai_read_sampler(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error)
{
    bool order = strcmp(name, "samplers") == 0 || strcmp(name, "sampler_order") == 0;
    bool breakers = strcmp(name, "dry_sequence_breakers") == 0, eos = strcmp(name, "ignore_eos") == 0;

    if (order || breakers || eos)
        return json_is_null(value) ? 1
               : order             ? read_order(request, name, value, error)
               : breakers          ? read_breakers(request, name, value, error)
                                   : read_eos(request, name, value, error);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(numbers[i].name, name) == 0)
            return json_is_null(value) ? 1 : read_number(&numbers[i], &request->samplers, value, error);
    return 0;
}

void openai_fields_of_samplers(openai_field_fn *fn, void *user)
{
    static const struct openai_field others[] = {{"samplers", OPENAI_TEXT_OR_ROW, false, 0, 0},
                                                 {"sampler_order", OPENAI_TEXT_OR_ROW, false, 0, 0},
                                                 {"dry_sequence_breakers", OPENAI_ARRAY, false, 0, 0},
                                                 {"ignore_eos", OPENAI_ANY, false, 0, 0}};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        fn(user, &others[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct number *number = &numbers[i];
        bool flag = number->kind == WHOLE && number->most == 1, all = strcmp(number->name, "dry_penalty_last_n") == 0;

        fn(user, &(struct openai_field){number->name,
                                        flag                    ? OPENAI_ANY /* true, false, 1 or 0 */
                                        : number->kind == WHOLE ? OPENAI_WHOLE
                                                                : OPENAI_REAL,
                                        false, all ? -1 : number->least, number->most});
    }
}

void openai_fini_samplers(struct openai_request *request)
{
    for (size_t i = 0; i < RUNNEL_MAX_BREAKERS; i++)
        free(request->breakers[i]);
    free(request->sampler_order);
}
