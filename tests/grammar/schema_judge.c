/* See schema_judge.h. */
#include "tests/grammar/schema_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampling/grammar/expr_match.h"

runnel_status judge_init(struct judge *judge, struct rn_heap *heap, const char *schema, size_t n,
                         const struct rn_schema_options *options, runnel_error *error)
{
    uint32_t root;
    runnel_status status;
    rn_expr e;

    *judge = (struct judge){.heap = heap};
    judge->grammar = rn_grammar_new(heap, NULL, NULL);
    if (judge->grammar == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory");
    root = rn_grammar_rule(judge->grammar, "root", 4);
    e = rn_grammar_schema(judge->grammar, schema, n, options);
    if (e != RN_GRAMMAR_NONE)
        rn_grammar_define(judge->grammar, root, e);
    status = rn_grammar_finish(judge->grammar, root, error);
    if (status != RUNNEL_OK)
        return status;
    status = rn_automaton_new(heap, judge->grammar, &judge->automaton, error);
    if (status == RUNNEL_FORMAT) /* no text matches */
        return RUNNEL_OK;
    if (status != RUNNEL_OK)
        return status;
    judge->has_stacks = rn_stacks_init(&judge->stacks, heap, judge->automaton, (size_t)64 << 20, 4000);
    return judge->has_stacks ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory");
}

void judge_fini(struct judge *judge)
{
    if (judge->has_stacks)
        rn_stacks_fini(&judge->stacks);
    rn_automaton_free(judge->automaton);
    rn_grammar_free(judge->grammar);
}

bool judge_accepts(struct judge *judge, const char *text, size_t n)
{
    uint32_t set;

    if (judge->automaton == NULL)
        return false;
    judge->stacks.steps = 100000000;
    set = rn_stacks_start(&judge->stacks);
    for (size_t i = 0; i < n && set != RN_STACKS_DEAD; i++)
        set = rn_stacks_read(&judge->stacks, set, (uint8_t)text[i]);
    return set != RN_STACKS_DEAD && judge->stacks.sets[set].bottom;
}

struct question {
    struct rn_arena *arena;
    struct judge *judge;
    const char *text;
    size_t n;
    bool is;
};

static void ask(void *user)
{
    struct question *q = user;
    struct rn_grammar *g = q->judge->grammar;

    q->is = rn_expr_matches(q->arena, g, g->rules[g->root].body, q->text, q->n);
}

bool judge_accepts_slowly(struct judge *judge, const char *text, size_t n)
{
    struct rn_arena arena;
    struct question question = {&arena, judge, text, n, false};

    rn_arena_init(&arena, judge->heap, (size_t)512 << 20);
    arena.depth_limit = 20000;
    if (!rn_arena_try(&arena, NULL, ask, &question))
        fprintf(stderr, "the slow judge: %s\n", arena.message);
    rn_arena_fini(&arena);
    return question.is;
}

/* ---- Spelling ---- */

struct text {
    char *bytes;
    size_t n, room;
};

static void put(struct text *t, const char *bytes, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * t->room + n + 64;
        t->bytes = realloc(t->bytes, t->room);
    }
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = '\0';
}

static void put_string(struct text *t, const char *bytes, size_t n)
{
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\";

    put(t, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const char *at = bytes[i] != '\0' ? strchr(from, bytes[i]) : NULL;
        char escape[8];

        if (at != NULL)
            put(t, escape, (size_t)snprintf(escape, sizeof escape, "\\%c", to[at - from]));
        else if ((unsigned char)bytes[i] < 0x20)
            put(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)bytes[i]));
        else
            put(t, bytes + i, 1);
    }
    put(t, "\"", 1);
}

/* A number as JSON writes it, without an exponent; a whole one without a fraction. Digits are kept, however many. */
static void put_number(struct text *t, const char *number)
{
    char digits[800];
    size_t n = 0, whole = 0, from = 0;
    bool negative = *number == '-', fraction = false;
    long point;

    for (number += negative; *number != '\0' && *number != 'e' && *number != 'E' && n < sizeof digits; number++) {
        if (*number == '.') {
            fraction = true;
        } else {
            digits[n++] = *number;
            whole += !fraction;
        }
    }
    point = (long)whole + (*number != '\0' ? strtol(number + 1, NULL, 10) : 0); /* digits in front of it */
    while (n > 0 && digits[n - 1] == '0')
        n--;
    while (from < n && digits[from] == '0')
        from++;
    if (n == 0)
        point = 1;
    put(t, "-", negative);
    if (point <= (long)from)
        put(t, "0", 1);
    for (long at = point < (long)from ? point : (long)from; at < (long)n || at < point; at++) {
        if (at == point)
            put(t, ".", 1);
        put(t, at >= 0 && at < (long)n ? digits + at : "0", 1);
    }
}

static void put_real(struct text *t, double real)
{
    char text[800];

    snprintf(text, sizeof text, "%.17g", real);
    for (int digits = 1; digits < 17; digits++) { /* the shortest that is the same */
        char shorter[40];

        snprintf(shorter, sizeof shorter, "%.*g", digits, real);
        if (strtod(shorter, NULL) == real) {
            strcpy(text, shorter);
            break;
        }
    }
    put_number(t, text);
}

/* Where a name stands in the schema; names that do not stand there are last. */
static size_t place_of(const char *name, const char *schema)
{
    struct text quoted = {0};
    const char *at;

    put_string(&quoted, name, strlen(name));
    at = strstr(schema, quoted.bytes);
    free(quoted.bytes);
    return at != NULL ? (size_t)(at - schema) : SIZE_MAX;
}

static const char *ordered_schema;

static int by_place(const void *a, const void *b)
{
    size_t of_a = place_of(*(const char *const *)a, ordered_schema),
           of_b = place_of(*(const char *const *)b, ordered_schema);

    return of_a < of_b ? -1 : of_a > of_b;
}

static bool is_of_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* A number that a double would round is a string behind this byte. */
#define NUMBER_MARK '\1'

static const char as_written[] = ""; /* instead of a schema's text */

static void put_value(struct text *t, const json_t *value, const char *schema);

static void put_marked(struct text *t, const char *number, bool is_schema)
{
    if (is_schema)
        put(t, number, strlen(number));
    else
        put_number(t, number);
}

static void put_object(struct text *t, const json_t *value, const char *schema)
{
    json_t *object = (json_t *)(uintptr_t)value, *item;
    const char **names = calloc(json_object_size(object) + 1, sizeof *names), *key;
    size_t n = 0, i;

    json_object_foreach(object, key, item) names[n++] = key;
    ordered_schema = schema;
    if (schema != NULL && schema != as_written)
        qsort(names, n, sizeof *names, by_place);
    put(t, "{", 1);
    for (i = 0; i < n; i++) {
        put(t, ",", i > 0);
        put_string(t, names[i], strlen(names[i]));
        put(t, ":", 1);
        put_value(t, json_object_get(object, names[i]), schema);
    }
    put(t, "}", 1);
    free(names);
}

static void put_value(struct text *t, const json_t *value, const char *schema)
{
    char text[32];
    size_t i;

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(t, value, schema);
        break;
    case JSON_ARRAY:
        put(t, "[", 1);
        for (i = 0; i < json_array_size(value); i++) {
            put(t, ",", i > 0);
            put_value(t, json_array_get(value, i), schema);
        }
        put(t, "]", 1);
        break;
    case JSON_STRING:
        if (json_string_value(value)[0] == NUMBER_MARK && is_of_number(json_string_value(value)[1]))
            put_marked(t, json_string_value(value) + 1, schema == as_written);
        else
            put_string(t, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        put(t, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value)));
        break;
    case JSON_REAL:
        put_real(t, json_real_value(value));
        break;
    case JSON_TRUE:
        put(t, "true", 4);
        break;
    case JSON_FALSE:
        put(t, "false", 5);
        break;
    case JSON_NULL:
        put(t, "null", 4);
        break;
    }
}

char *judge_spell(const json_t *value, const char *schema)
{
    struct text t = {0};

    put_value(&t, value, schema);
    return t.bytes;
}

char *judge_write(const json_t *value)
{
    return judge_spell(value, as_written);
}

/* ---- Files ---- */

/* The text with its numbers marked, but for small whole ones. */
static void mark_numbers(struct text *t, const char *text)
{
    while (*text != '\0') {
        const char *from = text;
        size_t n = 0;

        if (*text == '"') { /* a string */
            for (text++; *text != '"'; text++)
                text += *text == '\\';
            put(t, from, (size_t)(++text - from));
            continue;
        }
        if ((*text >= '0' && *text <= '9') || *text == '-')
            while (is_of_number(text[n]))
                n++;
        if (n > 15 || (n > 0 && strcspn(text, ".eE") < n)) {
            put(t, "\"\\u0001", 7);
            put(t, text, n);
            put(t, "\"", 1);
        } else {
            put(t, text, n > 0 ? n : 1);
        }
        text += n > 0 ? n : 1;
    }
}

json_t *judge_load(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct text raw = {0}, marked = {0};
    char bytes[4096];
    json_error_t error;
    json_t *value;
    size_t n;

    while (file != NULL && (n = fread(bytes, 1, sizeof bytes, file)) > 0)
        put(&raw, bytes, n);
    if (file == NULL || fclose(file) != 0 || raw.n == 0)
        return NULL;
    mark_numbers(&marked, raw.bytes);
    value = json_loads(marked.bytes, JSON_ALLOW_NUL, &error);
    if (value == NULL)
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
    free(raw.bytes);
    free(marked.bytes);
    return value;
}
