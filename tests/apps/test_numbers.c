/* Numbers of bodies: what is parsed and dumped again has the digits that came; and where a number is asked for, it is
 * the one that strtod and strtoll read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "apps/openai/openai_request.h"

static json_t *parse(const char *text)
{
    json_error_t where;
    json_t *value = openai_parse(text, strlen(text), &where);

    if (value == NULL)
        fail_msg("%.200s: %s", text, where.text);
    return value;
}

static void check_same(const char *text)
{
    json_t *value = parse(text);
    char *dumped = openai_dump(value);

    assert_string_equal(dumped, text);
    free(dumped);
    json_decref(value);
}

static void kept_as_they_are_written(void **state)
{
    static const char *const same[] = {
        "0.1",
        "-0.3",
        "5",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "-18446744073709551617",
        "100000000000000000000000000000000000000000000000001",
        "0.12345678901234567890",
        "0.000000000000000000000000000001234567890123456789",
        "1234567890.1234567",
        "1e400",
        "-1E+400",
        "1.5e-400",
        "{\"a\":[0.1,18446744073709551615,{\"b\":1e999}],\"c\":0.30000000000000004}",
        "[\"18446744073709551615\",\"\\\"18446744073709551615\",\"\\\\\",18446744073709551616,\"1e999\"]",
        "{\"18446744073709551615\":18446744073709551615}",
        "\"{\\\"\\\\u0001number\\\":\\\"5\\\"}\"",
        "[\"\\u0001number\",18446744073709551615]",
        "{\"number\\u0001\":\"5\",\"\\\"\\u0001number\":\"\\u0001\"}",
        "{\"a\":\"\\u0001number\",\"b\":{\"\\\\u0001number\":\"5\"}}"};

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        check_same(same[i]);
}

/* Up to 15 digits a double has them all, however it is dumped; more are kept. */
static void random_numbers(void **state)
{
    char text[64], *dumped;

    (void)state;
    srand(5);
    for (int i = 0; i < 20000; i++) {
        int n = rand() % 25 + 1, k = 0;
        size_t significant;
        json_t *value;

        k += snprintf(text, sizeof text, "%s%d.", rand() % 2 ? "-" : "", rand() % 10);
        for (int j = 0; j < n; j++)
            text[k++] = (char)('0' + rand() % 10);
        text[k] = '\0';
        significant = strlen(text + strspn(text, "-0."));
        significant -= strcspn(text, "123456789") < strcspn(text, "."); /* the point */
        if (rand() % 2)
            snprintf(text + k, sizeof text - (size_t)k, "e%d", rand() % 640 - 320);
        value = parse(text);
        dumped = openai_dump(value);
        if (strcmp(dumped, text) != 0) { /* then it is short, and the same double */
            assert_true(significant <= 15);
            assert_true(strtod(dumped, NULL) == strtod(text, NULL));
            assert_true(strlen(dumped) < 24);
        }
        free(dumped);
        json_decref(value);
    }
}

static void numbers_where_they_are_asked_for(void **state)
{
    static const struct {
        const char *text;
        bool whole;
    } all[] = {{"5.0", true},
               {"5.00000000000000000000", true},
               {"-9223372036854775808", true},
               {"9223372036854775807", true},
               {"1e18", true},
               {"9223372036854775808", false},
               {"-9223372036854775809", false},
               {"-9223372036854775809.0", false},
               {"9007199254740993.0", false},
               {"18446744073709551615", false},
               {"0.70000000000000000001", false},
               {"0.30000000000000004", false},
               {"1e400", false},
               {"-1e400", false},
               {"1e-400", true}};
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        double want = fmax(-1.7976931348623157e308, fmin(1.7976931348623157e308, strtod(all[i].text, NULL)));
        json_t *body, *values[4];

        snprintf(text, sizeof text,
                 "{\"x\":%s,\"y\":[[%s]],\"logit_bias\":{\"5\":%s},\"options\":{\"z\":%s},\"m\":{\"x\":%s}}",
                 all[i].text, all[i].text, all[i].text, all[i].text, all[i].text);
        body = parse(text);
        openai_make_whole(body);
        values[0] = json_object_get(body, "x");
        values[1] = json_array_get(json_array_get(json_object_get(body, "y"), 0), 0);
        values[2] = json_object_get(json_object_get(body, "logit_bias"), "5");
        values[3] = json_object_get(json_object_get(body, "options"), "z");
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(json_typeof(values[k]), all[i].whole ? JSON_INTEGER : JSON_REAL);
            assert_true(json_number_value(values[k]) == want);
        }
        assert_true(!json_is_integer(json_object_get(json_object_get(body, "m"), "x")) ||
                    strchr(all[i].text, '.') == NULL);
        json_decref(body);
    }
}

/* The same text with a string of the same length in the number's place is wrong at the same place. */
static void errors_have_their_place(void **state)
{
    static const char *const tails[] = {"x", "]", "\n  , {\"a\": 5 5}", ", \"\\x\"", "\n\n,}", ", {\"a\":1,\"a\":2}]"};
    char text[256], other[256];
    json_error_t where, want;

    (void)state;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(text, sizeof text, "[18446744073709551615, \n\n 18446744073709551616,18446744073709551615 %s",
                 tails[i]);
        snprintf(other, sizeof other, "[\"844674407370955161\", \n\n \"844674407370955161\",\"844674407370955161\" %s",
                 tails[i]);
        if (strcmp(tails[i], "]") == 0) {
            check_same("[18446744073709551615,18446744073709551616]");
            continue;
        }
        assert_null(openai_parse(text, strlen(text), &where));
        assert_null(openai_parse(other, strlen(other), &want));
        assert_int_equal(where.line, want.line);
        assert_int_equal(where.column, want.column);
        assert_int_equal(where.position, want.position);
    }
}

static void what_is_no_number_is_refused(void **state)
{
    static const char *const bad[] = {"[1844674407370955161518446744073709551615x]",
                                      "[01844674407370955161518446744073709551615]",
                                      "[-]",
                                      "[1.]",
                                      "[18446744073709551615.]",
                                      "[.18446744073709551615]",
                                      "[18446744073709551615e]",
                                      "[18446744073709551615e+]",
                                      "[+18446744073709551615]",
                                      "{18446744073709551615:1}",
                                      "[\"18446744073709551615]",
                                      "[\"\\",
                                      "-"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_null(openai_parse(bad[i], strlen(bad[i]), NULL));
}

/* Each digit is read a few times at most. Were the rest of such a row read again from each digit on, it would take
 * minutes of processor time. Allowed is a hundred times what the test needs. */
static void rows_of_digits_that_are_no_number(void **state)
{
    enum { N = 1 << 20 };
    static const struct {
        const char *first, *last;
        char digit;
    } rows[] = {{"", "", '0'},    {"-", "", '0'},   {"", ".", '1'},   {"[", ".]", '1'},
                {"1.", "e", '2'}, {"1e", "x", '3'}, {"5-", "-", '0'}, {"", "e+", '1'}};
    char *text = malloc(N);
    clock_t before = clock();

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(text, rows[i].digit, N);
        memcpy(text, rows[i].first, strlen(rows[i].first));
        memcpy(text + N - strlen(rows[i].last), rows[i].last, strlen(rows[i].last));
        assert_null(openai_parse(text, N, NULL));
        assert_true(clock() - before < (clock_t)10 * CLOCKS_PER_SEC);
    }
    free(text);
}

/* What stands for a number within the program is an object, but none that a text has brought. */
static void no_object_stands_for_a_number(void **state)
{
    static const char *const same[] = {"{\"\\u0001\":\"5\"}", "{\"\\u0001number\":\"5\"}", "{\"\":\"5\"}",
                                       "[{\"\\u0001\":\"5\"},18446744073709551615,{\"\":\"18446744073709551615\"}]",
                                       "{\"\\u000100000000000000000000000000000000\":\"18446744073709551615\"}"};

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        json_t *value = parse(same[i]);

        assert_false(openai_is_kept(value));
        assert_false(openai_is_kept(json_array_get(value, 0)) || openai_is_kept(json_array_get(value, 2)));
        assert_true(!json_is_array(value) || openai_is_kept(json_array_get(value, 1)));
        json_decref(value);
        check_same(same[i]);
    }
}

/* Before anything was parsed. */
static void dumped_first(void **state)
{
    json_t *value = json_pack("{s:s}", "", "5");
    char *dumped = openai_dump(value);

    (void)state;
    assert_false(openai_is_kept(value));
    assert_string_equal(dumped, "{\"\":\"5\"}");
    free(dumped);
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dumped_first),
        cmocka_unit_test(kept_as_they_are_written),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(numbers_where_they_are_asked_for),
        cmocka_unit_test(errors_have_their_place),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(rows_of_digits_that_are_no_number),
        cmocka_unit_test(no_object_stands_for_a_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
