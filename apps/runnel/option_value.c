/* Values of options: see option_table.h. Numbers are read strictly. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "option_table.h"

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

bool app_read_real(const char *text, double *out)
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

static bool is_made_of(const char *text, size_t most, const char *letters)
{
    size_t n = strlen(text);

    return n > 0 && n <= most && strspn(text, letters) == n;
}

/* One of the choices, cpu:LEVEL or cuda:N. Which levels and numbers there are is the library's to say. */
static bool read_device(const char *text, const char *choices, const char **out)
{
    if (strchr(text, ':') == NULL)
        return read_choice(text, choices, out);
    *out = text;
    if (strncmp(text, "cuda:", 5) == 0)
        return is_made_of(text + 5, 2, "0123456789");
    return strncmp(text, "cpu:", 4) == 0 && is_made_of(text + 4, 16, "abcdefghijklmnopqrstuvwxyz0123456789-");
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

static bool read_list(const struct app_option *o, const char *text, struct app_list *list)
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
    if (strcmp(equal + 1, "-inf") != 0 && !app_read_real(equal + 1, &bias))
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

static bool read_breaker(const char *text, struct app_options *options)
{
    size_t n = strlen(text);

    if (strcmp(text, "none") == 0) {
        options->n_breakers = 0;
        options->no_breakers = true;
        return true;
    }
    if (n == 0 || n > RUNNEL_MAX_BREAKER_BYTES || options->n_breakers == RUNNEL_MAX_BREAKERS)
        return false;
    options->breakers[options->n_breakers++] = text;
    return true;
}

/* Texts parted by commas; a comma behind a backslash is part of one. */
static bool read_answers(const char *text, struct app_options *options)
{
    size_t n = 0;
    char *choice = malloc(strlen(text) + 1);

    for (; choice != NULL && *text != '\0' && *text != ','; text++) {
        text += *text == '\\' && text[1] == ',';
        choice[n++] = *text;
    }
    if (choice == NULL || n == 0 || options->n_choices == APP_MAX_CHOICES) {
        free(choice);
        return false;
    }
    choice[n] = '\0';
    options->choices[options->n_choices++] = choice;
    return *text == '\0' || read_answers(text + 1, options);
}

static bool read_lora(const char *text, struct app_options *options)
{
    struct app_lora lora;

    if (options->n_loras == RUNNEL_MAX_ADAPTERS || !app_lora_read(text, &lora))
        return false;
    options->loras[options->n_loras++] = text;
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

bool app_option_store(const struct app_option *o, const char *text, struct app_options *options)
{
    char *field = (char *)options + o->at;
    double real = 0;

    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_REFERENCE:
        options->device = "reference";
        return true;
    case OPTION_STRING:
        *(const char **)field = text;
        return true;
    case OPTION_CHOICE:
        return read_choice(text, o->choices, (const char **)field);
    case OPTION_DEVICE:
        return read_device(text, o->choices, (const char **)field);
    case OPTION_INTEGER:
        return read_integer(text, text + strlen(text), (int64_t)o->min, (int64_t)o->max, (int64_t *)field);
    case OPTION_UNSIGNED:
        return read_unsigned(text, text + strlen(text), (uint64_t *)field);
    case OPTION_NUMBER:
        ((struct app_number *)field)->given = true;
        return read_unsigned(text, text + strlen(text), &((struct app_number *)field)->value);
    case OPTION_SIZE:
        return read_size(text, (uint64_t *)field);
    case OPTION_REAL:
        if (!app_read_real(text, &real) || real > o->max || (o->open ? (float)real <= o->min : real < o->min))
            return false;
        *(double *)field = real;
        return true;
    case OPTION_STOPS:
        return read_stop(text, options);
    case OPTION_BREAKER:
        return read_breaker(text, options);
    case OPTION_STOP_TOKEN:
        return read_stop_token(text, options);
    case OPTION_TOKENS:
        return read_tokens(text, options);
    case OPTION_LIST:
        return read_list(o, text, (struct app_list *)field);
    case OPTION_BIAS:
        return read_bias(text, options);
    case OPTION_ANSWERS:
        return read_answers(text, options);
    case OPTION_LORA:
        return read_lora(text, options);
    }
    return false;
}

void app_option_complain(const struct app_option *o, const char *name, const char *text)
{
    char range[128];

    switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_REFERENCE: /* of a variable: on the command line they take nothing */
        snprintf(range, sizeof range, "1, true, yes or on, or else 0, false, no or off");
        break;
    case OPTION_CHOICE:
    case OPTION_DEVICE:
        snprintf(range, sizeof range, "one of %s", o->choices);
        break;
    case OPTION_INTEGER:
    case OPTION_STOP_TOKEN:
        snprintf(range, sizeof range, "a whole number from %.0f to %.0f", o->min, o->max);
        break;
    case OPTION_UNSIGNED:
    case OPTION_NUMBER:
        snprintf(range, sizeof range, "a whole number from 0 to %llu", (unsigned long long)UINT64_MAX);
        break;
    case OPTION_SIZE:
        snprintf(range, sizeof range, "a number of bytes, such as 1000000, 512K, 64M or 2G");
        break;
    case OPTION_REAL:
        snprintf(range, sizeof range, "a number %s %g, at most %g", o->open ? "above" : "from", o->min, o->max);
        break;
    case OPTION_STOPS:
        snprintf(range, sizeof range, "1 to %d bytes, at most %d times", RUNNEL_MAX_STOP_BYTES, RUNNEL_MAX_STOPS);
        break;
    case OPTION_BREAKER:
        snprintf(range, sizeof range, "none, or 1 to %d bytes, at most %d times", RUNNEL_MAX_BREAKER_BYTES,
                 RUNNEL_MAX_BREAKERS);
        break;
    case OPTION_TOKENS:
        snprintf(range, sizeof range, "token ids parted by commas");
        break;
    case OPTION_LIST:
        snprintf(range, sizeof range, "1 to %d whole numbers from %.0f to %.0f, parted by commas", APP_MAX_LIST, o->min,
                 o->max);
        break;
    case OPTION_BIAS:
        snprintf(range, sizeof range, "ID=NUMBER or ID=-inf, at most %d times", APP_MAX_BIASES);
        break;
    case OPTION_ANSWERS:
        snprintf(range, sizeof range, "texts parted by commas, none of them empty, at most %d", APP_MAX_CHOICES);
        break;
    case OPTION_LORA:
        snprintf(range, sizeof range, "[NAME=]PATH[:SCALE], a name of 1 to %d bytes, a scale but 0, at most %d times",
                 RUNNEL_ADAPTER_BYTES - 1, RUNNEL_MAX_ADAPTERS);
        break;
    default:
        snprintf(range, sizeof range, "%s", o->value);
        break;
    }
    app_error("%s '%.80s' is not allowed: it takes %s", name, text, range);
}
