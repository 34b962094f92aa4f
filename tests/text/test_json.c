/* JSON texts, right and wrong: jansson, which reads them by another program's code, is the judge. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "json_judge.h"
#include "text/value.h"

enum { TEXTS = 60000, MOST = 4096 };

static struct rn_heap heap;
static uint64_t seed = 7;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(rn_splitmix64(&seed) % n);
}

/* ---- Texts ---- */

struct made {
    char text[MOST];
    size_t n;
};

static void put(struct made *made, const char *bytes, size_t n)
{
    if (n > MOST - made->n)
        n = MOST - made->n;
    memcpy(made->text + made->n, bytes, n);
    made->n += n;
}

static void put_one(struct made *made, const char *const *texts, uint32_t n)
{
    const char *text = texts[below(n)];

    put(made, text, strlen(text));
}
#define PUT_ONE(made, ...) \
    put_one(made, (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static void put_white(struct made *made)
{
    PUT_ONE(made, "", "", "", " ", "\n", "\t\r\n", "        ");
}

static void put_string(struct made *made, uint32_t longest)
{
    put(made, "\"", 1);
    for (uint32_t i = below(longest + 1); i > 0; i--)
        PUT_ONE(made, "a", "b", "k", "some text that is longer than a word of eight bytes", "\xc3\xa9", "\xe2\x82\xac",
                "\xf0\x9f\x98\x80", "\\n", "\\\"", "\\\\", "\\/", "\\b\\f\\r\\t", "\\u0041", "\\u00e9", "\\u20AC",
                "\\ud83d\\ude00", "\\uD800\\uDC00", "\\udbff\\udfff", "\\uFFFF", "[", "}", "\x7f", "'");
    put(made, "\"", 1);
}

static void put_number(struct made *made)
{
    PUT_ONE(made, "0", "-0", "1", "-1", "12345678901", "9223372036854775807", "-9223372036854775808", "0.5", "-0.0",
            "1e3", "1E+3", "12.25e-2", "3.141592653589793", "2.2250738585072014e-308", "4.9e-324", "1e-400",
            "1.7976931348623157e308", "0.1", "123456.789e2", "5e0", "9007199254740993.0", "0e5",
            "100000000000000000000.5");
}

static void put_value(struct made *made, uint32_t depth)
{
    uint32_t kind = below(depth > 0 ? 8 : 5), n = below(depth > 0 ? 5 : 1);

    put_white(made);
    if (kind < 2)
        put_string(made, 6);
    else if (kind == 2)
        put_number(made);
    else if (kind < 5)
        PUT_ONE(made, "true", "false", "null");
    else
        put(made, kind < 7 ? "{" : "[", 1);
    for (uint32_t i = 0; kind >= 5 && i < n; i++) {
        put(made, ",", i > 0);
        if (kind < 7) {
            put_white(made);
            put_string(made, 1);
            put_white(made);
            put(made, ":", 1);
        }
        put_value(made, depth - 1);
    }
    put_white(made);
    if (kind >= 5)
        put(made, kind < 7 ? "}" : "]", 1);
    put_white(made);
}

/* A byte more, a byte less, another byte, or the beginning. */
static void spoil(struct made *made)
{
    static const char bytes[] = "\"\\{}[],:-+.eE0123456789tfnu \n\x01\x1f\x7f\x80\xbf\xc0\xc3\xed\xa0\xf4\x90\xff";
    size_t at = below((uint32_t)made->n);
    char byte = bytes[below(sizeof bytes - 1)];

    switch (below(4)) {
    case 0:
        made->text[at] = byte;
        break;
    case 1:
        memmove(made->text + at, made->text + at + 1, --made->n - at);
        break;
    case 2:
        if (made->n == MOST)
            break;
        memmove(made->text + at + 1, made->text + at, made->n++ - at);
        made->text[at] = byte;
        break;
    default:
        made->n = at;
    }
}

static void test_as_jansson(void **state)
{
    uint32_t n_right = 0, n_wrong = 0;
    bool right;

    (void)state;
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct made made = {.n = 0};

        put_value(&made, 4);
        for (uint32_t k = below(3); k > 0 && made.n > 0; k--)
            spoil(&made);
        assert_true(json_agrees(&heap, made.text, made.n, false, &right));
        n_right += right;
        n_wrong += !right;
        assert_true(json_agrees(&heap, made.text, made.n, true, &right));
    }
    assert_true(n_right > TEXTS / 4 && n_wrong > TEXTS / 4);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Sentences ---- */

static void test_places(void **state)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "JSON line 1, column 1: a value is expected"},
        {"{\"a\": 1,\n \"\xc3\xa9\": nul}", "JSON line 2, column 7: a value is expected"},
        {"[1 2]", "JSON line 1, column 4: ',' or ']' is expected"},
        {"{\"a\": 1]", "JSON line 1, column 8: ',' or '}' is expected"},
        {"{\"a\" 1}", "JSON line 1, column 6: ':' is expected"},
        {"{a: 1}", "JSON line 1, column 2: a name in quotes is expected"},
        {"{\"a\": 1,}", "JSON line 1, column 9: a name in quotes is expected"},
        {"[1,]", "JSON line 1, column 4: a value is expected"},
        {"\"a\nb\"", "JSON line 1, column 3: a control character within a string; it is to be escaped"},
        {"\"abcdefghijkl\x01\"", "JSON line 1, column 14: a control character within a string; it is to be escaped"},
        {"\"a", "JSON line 1, column 3: the text ends within a string"},
        {"\"a\\", "JSON line 1, column 3: the text ends within a string"},
        {"\"\xff\"", "JSON line 1, column 2: not UTF-8"},
        {"\"a\\x\"", "JSON line 1, column 3: an escape that JSON does not have"},
        {"\"\\u12\"", "JSON line 1, column 6: \\u wants four hexadecimal digits"},
        {"\"\\udc00\"", "JSON line 1, column 8: half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "JSON line 1, column 14: half of a surrogate pair"},
        {"1.", "JSON line 1, column 3: a digit is expected"},
        {"1e+", "JSON line 1, column 4: a digit is expected"},
        {"01", "JSON line 1, column 2: the end of the text is expected"},
        {"-1e999", "JSON line 1, column 7: a number beyond doubles"},
        {"{\"\\u0000\": 1}", "JSON line 1, column 10: a name with a NUL character"},
    };
    struct rn_arena arena;
    struct rn_value value;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        runnel_error error = {0};

        rn_arena_init(&arena, &heap, SIZE_MAX);
        assert_int_equal(rn_json_parse(&arena, cases[i].text, strlen(cases[i].text), &value, &error), RUNNEL_INVALID);
        assert_string_equal(error.message, cases[i].sentence);
        rn_arena_fini(&arena);
    }
}

/* The host's decimal point is not JSON's. */
static void test_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR"};
    locale_t other = (locale_t)0, before;
    struct rn_arena arena;
    struct rn_value value;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && other == (locale_t)0; i++)
        other = newlocale(LC_ALL_MASK, names[i], (locale_t)0);
    before = other != (locale_t)0 ? uselocale(other) : (locale_t)0;
    rn_arena_init(&arena, &heap, SIZE_MAX);
    assert_int_equal(rn_json_parse(&arena, "1.5", 3, &value, NULL), RUNNEL_OK);
    assert_true(value.real == 1.5);
    rn_arena_fini(&arena);
    if (other == (locale_t)0)
        return;
    assert_ptr_equal(uselocale(before), other); /* the thread has it as before */
    freelocale(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_jansson),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_locale),
    };

    rn_heap_init(&heap, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
