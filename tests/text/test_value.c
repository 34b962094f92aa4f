/* JSON values: types, order, duplicates, big numbers, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_duplicates_and_numbers),
                                       cmocka_unit_test(test_many_members), cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
