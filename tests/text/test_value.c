/* JSON values: types, order, duplicates, big numbers, limits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/aborts.h"
#include "text/value.h"

struct parsed {
    struct rn_heap heap;
    struct rn_arena arena;
    struct rn_value value;
    runnel_error error;
    runnel_status status;
};

static void parse(struct parsed *p, const char *json, size_t n)
{
    memset(p, 0, sizeof *p);
    rn_heap_init(&p->heap, NULL);
    rn_arena_init(&p->arena, &p->heap, SIZE_MAX);
    p->status = rn_json_parse(&p->arena, json, n, &p->value, &p->error);
}

static void done(struct parsed *p)
{
    rn_arena_fini(&p->arena);
    assert_int_equal(rn_heap_blocks(&p->heap), 0);
}

static void test_types(void **state)
{
    static const char json[] = "{\"b\": true, \"a\": [1, -2.5, null, \"\\u00e9\\u0000x\"], \"e\": {}, \"\": 1e2}";
    struct parsed p;
    struct rn_value a;

    (void)state;
    parse(&p, json, sizeof json - 1);
    assert_int_equal(p.status, RUNNEL_OK);
    assert_int_equal(p.value.kind, RN_VALUE_DICT);
    assert_true(rn_value_is(p.value.dict->entries[0].key, "b")); /* order of the text */
    assert_true(rn_value_is(p.value.dict->entries[1].key, "a"));
    assert_true(rn_dict_at(p.value, "b").boolean);
    assert_int_equal(rn_dict_at(p.value, "absent").kind, RN_VALUE_UNDEFINED);
    assert_int_equal(rn_dict_at(p.value, "").kind, RN_VALUE_FLOAT);
    a = rn_dict_at(p.value, "a");
    assert_int_equal(a.list->n, 4);
    assert_int_equal(a.list->items[0].integer, 1);
    assert_true(a.list->items[1].real == -2.5);
    assert_int_equal(a.list->items[2].kind, RN_VALUE_NONE);
    assert_int_equal(a.list->items[3].string->n, 4);
    assert_int_equal(a.list->items[3].string->chars, 3);
    assert_int_equal(a.list->items[3].string->origin, RN_ORIGIN_DATA);
    assert_memory_equal(a.list->items[3].string->bytes, "\xc3\xa9\0x", 4);
    assert_int_equal(rn_dict_at(a, "x").kind, RN_VALUE_UNDEFINED); /* not a dict */
    done(&p);
}

static void test_duplicates_and_numbers(void **state)
{
    static const char json[] = "{\"x\": 1, \"y\": 9223372036854775807, \"x\": \"123456789012345678901 \\\" 1\","
                               "\"z\": -123456789012345678901, \"w\": 12345678901234567890e2}";
    struct parsed p;

    (void)state;
    parse(&p, json, sizeof json - 1);
    assert_int_equal(p.status, RUNNEL_OK);
    assert_int_equal(p.value.dict->n, 4);
    assert_true(rn_value_is(p.value.dict->entries[0].key, "x")); /* first place, last value */
    assert_true(rn_value_is(rn_dict_at(p.value, "x"), "123456789012345678901 \" 1"));
    assert_true(rn_dict_at(p.value, "z").real == -123456789012345678901.0);
    assert_true(rn_dict_at(p.value, "w").real == 12345678901234567890e2);
    done(&p);
}

/* Each number keeps its digits, where they stand. The texts are Python's: format(Decimal(number), "f"), with zeros
 * cut. */
static void test_exact_numbers(void **state)
{
    static const struct {
        const char *number, *text; /* NULL: the integer */
        int64_t integer;
    } numbers[] = {
        {"0", NULL, 0},
        {"-0.0", NULL, 0},
        {"0e99999999999999999999", NULL, 0},
        {"2.0", NULL, 2},
        {"1e3", NULL, 1000},
        {"-12.50E+1", NULL, -125},
        {"9007199254740993.0", NULL, 9007199254740993},
        {"9223372036854775807", NULL, INT64_MAX},
        {"-9223372036854775808", NULL, INT64_MIN},
        {"9223372036854775808", "9223372036854775808", 0},
        {"-9223372036854775809", "-9223372036854775809", 0},
        {"18446744073709551615", "18446744073709551615", 0},
        {"12345678901234567890123", "12345678901234567890123", 0},
        {"1.8446744073709551615e19", "18446744073709551615", 0},
        {"1.5e21", "1500000000000000000000", 0},
        {"-12.5", "-12.5", 0},
        {"0.1000", "0.1", 0},
        {"100.25e-2", "1.0025", 0},
        {"100.25e-4", "0.010025", 0},
        {"0.30000000000000000001", "0.30000000000000000001", 0},
        {"1e-7", "0.0000001", 0},
    };
    char json[4096];
    size_t n = 0;
    struct parsed p;
    const struct rn_list *list;

    (void)state;
    n += (size_t)sprintf(json + n, "{\"a 1 \\\" 2\":{\"b\":[true,\"3\",{\"4\":null}]},\"c\":[");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        n += (size_t)sprintf(json + n, "%s\"-5\\\\\" , %s", i > 0 ? "," : "", numbers[i].number);
    n += (size_t)sprintf(json + n, "]}");
    rn_heap_init(&p.heap, NULL);
    rn_arena_init(&p.arena, &p.heap, 1 << 20);
    assert_int_equal(rn_json_parse_exact(&p.arena, json, n, &p.value, &p.error), RUNNEL_OK);
    list = rn_dict_at(p.value, "c").list;
    assert_int_equal(list->n, 2 * (sizeof numbers / sizeof numbers[0]));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct rn_value value = list->items[2 * i + 1];

        assert_int_equal(value.kind, numbers[i].text != NULL ? RN_VALUE_DECIMAL : RN_VALUE_INT);
        if (numbers[i].text == NULL)
            assert_int_equal(value.integer, numbers[i].integer);
        else if (value.string->n != strlen(numbers[i].text) ||
                 memcmp(value.string->bytes, numbers[i].text, value.string->n) != 0)
            fail_msg("%s: %.*s", numbers[i].number, (int)value.string->n, value.string->bytes);
    }
    done(&p);
}

static void test_exact_refused(void **state)
{
    char long_number[RN_JSON_DIGITS + 8];
    const char *const bad[] = {"{\"a\":1,\"b\":2,\"a\":3}", "1e-801", "0.01e-800", "1e999", long_number, "[1,]"};

    (void)state;
    memset(long_number, '7', sizeof long_number);
    memcpy(long_number, "0.", 2);
    long_number[sizeof long_number - 1] = '\0';
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct parsed p;

        memset(&p, 0, sizeof p);
        rn_heap_init(&p.heap, NULL);
        rn_arena_init(&p.arena, &p.heap, 1 << 20);
        assert_int_equal(rn_json_parse_exact(&p.arena, bad[i], strlen(bad[i]), &p.value, &p.error), RUNNEL_INVALID);
        assert_true(strlen(p.error.message) > 0);
        done(&p);
    }
}

static void test_many_members(void **state)
{
    char *json = malloc(1 << 20), key[16];
    size_t n = 0;
    struct parsed p;
    int i;

    (void)state;
    n += (size_t)sprintf(json + n, "{");
    for (i = 0; i < 20000; i++)
        n += (size_t)sprintf(json + n, "%s\"k%d\": %d", i > 0 ? "," : "", i % 10000, i);
    n += (size_t)sprintf(json + n, "}");
    parse(&p, json, n);
    assert_int_equal(p.status, RUNNEL_OK);
    assert_int_equal(p.value.dict->n, 10000);
    for (i = 0; i < 10000; i++) {
        sprintf(key, "k%d", i);
        assert_int_equal(rn_dict_at(p.value, key).integer, 10000 + i);
        assert_true(rn_value_is(p.value.dict->entries[i].key, key));
    }
    done(&p);
    free(json);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\" 1}", "nul", "\"\xff\"", "1 2", "\"\\ud800\"", "1e999"};
    char deep[2 * RN_JSON_DEPTH + 3];
    struct parsed p;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        parse(&p, bad[i], strlen(bad[i]));
        assert_int_equal(p.status, RUNNEL_INVALID);
        assert_true(strlen(p.error.message) > 0);
        done(&p);
    }
    for (i = RN_JSON_DEPTH; i <= RN_JSON_DEPTH + 1; i++) {
        memset(deep, '[', i);
        deep[i] = '0';
        memset(deep + i + 1, ']', i);
        parse(&p, deep, 2 * i + 1);
        assert_int_equal(p.status, i == RN_JSON_DEPTH ? RUNNEL_OK : RUNNEL_INVALID);
        done(&p);
    }
    memset(&p, 0, sizeof p);
    rn_heap_init(&p.heap, NULL);
    rn_arena_init(&p.arena, &p.heap, 100);
    assert_int_equal(rn_json_parse(&p.arena, "[1,2,3,4,5,6,7,8,9]", 19, &p.value, &p.error), RUNNEL_INVALID);
    done(&p);
}

enum { DEEP = 2000, SMALL_STACK = 96 << 10 };

/* text[n]: `unit` DEEP times, and "0" within. */
static char *repeat(const char *unit, size_t *n)
{
    size_t bytes = strlen(unit);
    char *text = malloc(DEEP * bytes + 1);

    assert_non_null(text);
    for (size_t i = 0; i < DEEP; i++)
        memcpy(text + i * bytes, unit, bytes);
    text[DEEP * bytes] = '0';
    *n = DEEP * bytes + 1;
    return text;
}

static void *refuse_deep(void *unused)
{
    static const char *const units[] = {"[", "{\"a\":", "[{\"\\\"]\":"};
    struct parsed p;

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t n;
        char *text = repeat(units[i], &n);

        parse(&p, text, n);
        assert_int_equal(p.status, RUNNEL_INVALID);
        assert_string_equal(p.error.message, "JSON: nested deeper than 200");
        assert_int_equal(rn_json_parse_exact(&p.arena, text, n, &p.value, NULL), RUNNEL_INVALID);
        done(&p);
        free(text);
    }
    return unused;
}

/* What is nested too deeply takes no stack that a host's thread may not have: another parser's limit is its own. */
static void test_deep_on_a_small_stack(void **state)
{
    pthread_attr_t attributes;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, refuse_deep, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

/* Brackets in strings are no depth, whatever is escaped there. */
static void test_brackets_in_strings(void **state)
{
    struct parsed p;
    size_t n;
    char *text = repeat("[\\\"{\\\\", &n);

    (void)state;
    text[0] = text[n - 1] = '"';
    parse(&p, text, n);
    assert_int_equal(p.status, RUNNEL_OK);
    assert_int_equal(p.value.kind, RN_VALUE_STRING);
    assert_int_equal(p.value.string->n, (size_t)DEEP * 4 - 1); /* each [, ", {, \ */
    done(&p);
    free(text);
}

/* ---- Boundaries ---- */

struct attempt {
    struct rn_arena *arena, *other; /* other: NULL for none */
    struct rn_arena *raises;        /* NULL: nothing is raised */
    struct attempt *inner;          /* NULL: none; else tried first */
    bool inner_fine;
    int ends;
};

static void body(void *user)
{
    struct attempt *a = user;
    char frame[2048]; /* what a jump into a frame that is gone would find */

    memset(frame, a->ends, sizeof frame);
    rn_enter(a->arena);
    if (a->inner != NULL)
        a->inner_fine = rn_arena_try(a->inner->arena, a->inner->other, body, a->inner);
    assert_ptr_not_equal(a->arena->trap, NULL);
    if (a->raises != NULL)
        rn_raise(a->raises, RUNNEL_INVALID, "raised by %zu", strlen(frame) + sizeof frame);
    rn_leave(a->arena);
    a->ends++;
}

/* A boundary is none any more when it has been left, whichever way: raising goes to the one around, of each arena. */
static void test_boundaries(void **state)
{
    static const struct {
        int inner_raises, outer_raises; /* 0: nothing, 1: in the first arena, 2: in the other */
        bool shared;                    /* the inner boundary has the other arena, too */
    } cases[] = {{0, 0, false}, {0, 1, false}, {1, 0, false}, {1, 1, false}, {0, 0, true}, {2, 0, true},
                 {2, 1, true},  {2, 2, true},  {0, 2, true},  {1, 2, true},  {1, 1, true}};
    struct rn_heap heap;
    struct rn_arena arenas[2];
    size_t i, k;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rn_arena *raises[] = {NULL, &arenas[0], &arenas[1]};
        struct attempt inner = {
            .arena = &arenas[0], .other = cases[i].shared ? &arenas[1] : NULL, .raises = raises[cases[i].inner_raises]};
        struct attempt outer = {
            .arena = &arenas[0], .other = &arenas[1], .raises = raises[cases[i].outer_raises], .inner = &inner};

        for (k = 0; k < 2; k++)
            rn_arena_init(&arenas[k], &heap, 1000);
        assert_int_equal(rn_arena_try(&arenas[0], &arenas[1], body, &outer), cases[i].outer_raises == 0);
        assert_int_equal(outer.inner_fine, cases[i].inner_raises == 0);
        assert_int_equal(inner.ends, cases[i].inner_raises == 0);
        assert_int_equal(outer.ends, cases[i].outer_raises == 0);
        for (k = 0; k < 2; k++) {
            assert_null(arenas[k].trap);
            assert_int_equal(arenas[k].depth, 0);
            rn_arena_fini(&arenas[k]);
        }
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* What leaves an arena behind it without a boundary, and takes more than it may have then. */
static void leave_json(struct rn_arena *arena)
{
    struct rn_value value;

    assert_int_equal(rn_json_parse(arena, "[[1]]", 5, &value, NULL), RUNNEL_OK);
}

static void leave_refused_json(struct rn_arena *arena)
{
    struct rn_value value;

    arena->limit = 8;
    assert_int_equal(rn_json_parse(arena, "[[1]]", 5, &value, NULL), RUNNEL_INVALID);
}

static void leave_body(struct rn_arena *arena)
{
    struct attempt a = {.arena = arena, .raises = arena};

    assert_false(rn_arena_try(arena, NULL, body, &a));
}

static void raise_outside(const void *user)
{
    void (*const *left)(struct rn_arena * arena) = user;
    struct rn_heap heap;
    struct rn_arena arena;

    rn_heap_init(&heap, NULL);
    rn_arena_init(&arena, &heap, 1 << 20);
    (*left)(&arena);
    rn_arena_take(&arena, 2, 1 << 20);
}

/* Raising without a boundary ends the process by RN_CHECK; it never goes to a boundary that was left. */
static void test_outside(void **state)
{
    static void (*const left[])(struct rn_arena * arena) = {leave_json, leave_refused_json, leave_body};

    (void)state;
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++)
        assert_true(aborts(raise_outside, &left[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_duplicates_and_numbers),
                                       cmocka_unit_test(test_exact_numbers),
                                       cmocka_unit_test(test_exact_refused),
                                       cmocka_unit_test(test_many_members),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_deep_on_a_small_stack),
                                       cmocka_unit_test(test_brackets_in_strings),
                                       cmocka_unit_test(test_boundaries),
                                       cmocka_unit_test(test_outside)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
