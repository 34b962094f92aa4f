/* Errors keep the first cause, and a hostile name cannot write control bytes into the sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "tests/base/comma_locale.h"

static void test_sets_code_and_sentence(void **state)
{
    runnel_error error = {0};

    (void)state;
    assert_int_equal(rn_error_set(&error, RUNNEL_FORMAT, "tensor \"%s\" has %d dims", "wq", 9), RUNNEL_FORMAT);
    assert_int_equal(error.status, RUNNEL_FORMAT);
    assert_string_equal(error.message, "tensor \"wq\" has 9 dims");
}

static void test_null_error(void **state)
{
    (void)state;
    assert_int_equal(rn_error_set(NULL, RUNNEL_IO, "nobody hears %d", 1), RUNNEL_IO);
    rn_error_clear(NULL);
}

static void test_first_error_stays(void **state)
{
    runnel_error error = {0};

    (void)state;
    rn_error_set(&error, RUNNEL_IO, "the cause");
    assert_int_equal(rn_error_set(&error, RUNNEL_FORMAT, "a consequence"), RUNNEL_IO);
    assert_int_equal(error.status, RUNNEL_IO);
    assert_string_equal(error.message, "the cause");
    rn_error_clear(&error);
    assert_int_equal(error.status, RUNNEL_OK);
    assert_string_equal(error.message, "");
    assert_int_equal(rn_error_set(&error, RUNNEL_FORMAT, "a new cause"), RUNNEL_FORMAT);
    assert_string_equal(error.message, "a new cause");
}

static void test_control_bytes_are_escaped(void **state)
{
    runnel_error error = {0};

    (void)state;
    rn_error_set(&error, RUNNEL_FORMAT, "key %s", "a\nb\x1b[31m\x7f\t\xc3\xa9");
    assert_string_equal(error.message, "key a\\x0ab\\x1b[31m\\x7f\\x09\xc3\xa9"); /* UTF-8 passes */
}

/* What is no UTF-8 (RFC 3629), and what a precision leaves of a character. */
static void test_other_bytes_are_escaped(void **state)
{
    runnel_error error = {0};

    (void)state;
    rn_error_set(&error, RUNNEL_FORMAT, "key '%.3s', '%.4s'", "\xc3\xa9\xc3\xa9", "\xc3\xa9\xc3\xa9");
    assert_string_equal(error.message, "key '\xc3\xa9\\xc3', '\xc3\xa9\xc3\xa9'");
    rn_error_clear(&error);
    rn_error_set(&error, RUNNEL_FORMAT, "%s",
                 "\xff\x80 \xe2\x82 \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xf4\x8f\xbf\xbf");
    assert_string_equal(error.message, "\\xff\\x80 \\xe2\\x82 \\xc0\\xaf \\xed\\xa0\\x80 "
                                       "\\xf4\\x90\\x80\\x80 \xf4\x8f\xbf\xbf");
}

/* Wherever a sentence of characters of `width` bytes is cut: it ends behind a whole one. */
static void test_cut_between_characters(void **state)
{
    static const char *const characters[] = {"e", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};
    char name[RUNNEL_ERROR_BYTES + 8];

    (void)state;
    for (size_t width = 1; width <= 4; width++) {
        for (size_t first = 0; first < 8; first++) {
            runnel_error error = {0};
            size_t n = first;

            memset(name, 'x', first);
            for (; n + width < sizeof name; n += width)
                memcpy(name + n, characters[width - 1], width);
            name[n] = '\0';
            rn_error_set(&error, RUNNEL_FORMAT, "%s", name);
            n = strlen(error.message);
            assert_in_range(n, sizeof error.message - 16, sizeof error.message - 1);
            assert_int_equal((n - first) % width, 0);
            assert_memory_equal(error.message, name, n);
        }
    }
}

/* However long the path in front: the reason is said whole, behind the path's end; a path that has room stays whole. */
static void test_reasons_behind_long_paths(void **state)
{
    static const char *const characters[] = {"e", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x99\x82", "\n", "\x80"};
    static const char said[] = ": cannot be opened: No such file or directory (2 times)";
    char path[4200];

    (void)state;
    for (size_t c = 0; c < sizeof characters / sizeof *characters; c++) {
        size_t width = strlen(characters[c]), shown = c < 4 ? width : 4; /* "\x0a" */

        for (size_t n = 0; n < sizeof path - 12; n = n < 1000 ? n + width : n + 1000 * width) {
            runnel_error error = {0};
            char *end;

            for (size_t i = 0; i < n; i += width)
                memcpy(path + i, characters[c], width);
            strcpy(path + n, "/model.gguf");
            assert_int_equal(rn_error_set(&error, RUNNEL_IO, "%s: cannot be opened: %s (%d times)", path,
                                          "No such file or directory", 2),
                             RUNNEL_IO);
            end = strstr(error.message, "/model.gguf");
            assert_non_null(end);
            assert_string_equal(end + strlen("/model.gguf"), said);
            if (strncmp(error.message, "...", 3) == 0)
                assert_in_range(strlen(error.message), sizeof error.message - 32, sizeof error.message - 1);
            else
                assert_int_equal(end - error.message, n / width * shown);
        }
    }
}

/* A long reason does not drive out the path, nor a short path's first characters; other sentences keep their
 * beginning. */
static void test_long_reasons(void **state)
{
    char reason[600], path[600];
    runnel_error error = {0};

    (void)state;
    memset(reason, 'r', sizeof reason);
    memset(path, 'p', sizeof path);
    reason[sizeof reason - 1] = path[sizeof path - 1] = '\0';
    rn_error_set(&error, RUNNEL_IO, "%s: %s", "/a/b.gguf", reason);
    assert_int_equal(strncmp(error.message, "/a/b.gguf: rrr", 14), 0);
    assert_in_range(strlen(error.message), sizeof error.message - 8, sizeof error.message - 1);
    rn_error_clear(&error);
    rn_error_set(&error, RUNNEL_IO, "%s: %s", path, reason);
    assert_int_equal(strncmp(error.message, "...pppppppp", 11), 0);
    assert_int_equal(strspn(strstr(error.message, ": r") + 2, "r"), strlen(strstr(error.message, ": r")) - 2);
    assert_in_range(strlen(error.message), sizeof error.message - 16, sizeof error.message - 1);
    rn_error_clear(&error);
    rn_error_set(&error, RUNNEL_IO, "of %s: %s", "/a/b.gguf", reason);
    assert_int_equal(strncmp(error.message, "of /a/b.gguf: rrr", 17), 0);
    rn_error_clear(&error);
    rn_error_set(&error, RUNNEL_IO, "%s: ends", path);
    assert_int_equal(strncmp(error.message, "...ppp", 6), 0);
    assert_string_equal(error.message + strlen(error.message) - 6, ": ends");
}

/* Every byte value at every distance from the end: terminated, inside the array, no control byte. */
static void test_never_overflows(void **state)
{
    char name[RUNNEL_ERROR_BYTES + 8];

    (void)state;
    for (size_t length = RUNNEL_ERROR_BYTES / 4 - 4; length < sizeof name; length++) {
        for (int byte = 1; byte < 256; byte += length % 7 + 1) {
            runnel_error error = {0};
            size_t n;

            memset(name, byte, length);
            name[length] = '\0';
            rn_error_set(&error, RUNNEL_FORMAT, length % 2 == 0 ? "%s" : "%s: %s", name, name);
            n = strnlen(error.message, sizeof error.message);
            assert_in_range(n, 1, sizeof error.message - 1);
            for (size_t i = 0; i < n; i++)
                assert_false((unsigned char)error.message[i] < 0x20 || error.message[i] == 0x7f);
        }
    }
}

static void keep_line(void *user, runnel_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 100, "%s", line);
}

/* Sentences and lines of the log have a decimal point, whatever the host's locale has, and the host keeps it. */
static void test_decimal_point(void **state)
{
    char line[100], own[8];
    const struct rn_log log = {keep_line, line, RUNNEL_LOG_INFO};
    runnel_error error = {0};

    (void)state;
    assert_true(comma_begin());
    rn_error_set(&error, RUNNEL_INVALID, "%s: %g and %.2f", "a/b", -1.5, 1e-2);
    rn_log(&log, RUNNEL_LOG_INFO, "%.1f MiB", 0.5);
    snprintf(own, sizeof own, "%.1f", 0.5);
    comma_end();
    assert_string_equal(error.message, "a/b: -1.5 and 0.01");
    assert_string_equal(line, "0.5 MiB");
    assert_string_equal(own, "0,5");
}

static void test_names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(runnel_status_name(RUNNEL_OK), "OK");
    assert_string_equal(runnel_status_name(RUNNEL_NO_MEMORY), "NO_MEMORY");
    assert_string_equal(runnel_status_text(RUNNEL_NO_MEMORY), "the allocator refused memory");
    assert_string_equal(runnel_status_name((runnel_status)12345), "UNKNOWN");
    assert_string_equal(runnel_status_text((runnel_status)-12345), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_code_and_sentence),
        cmocka_unit_test(test_null_error),
        cmocka_unit_test(test_first_error_stays),
        cmocka_unit_test(test_control_bytes_are_escaped),
        cmocka_unit_test(test_other_bytes_are_escaped),
        cmocka_unit_test(test_cut_between_characters),
        cmocka_unit_test(test_reasons_behind_long_paths),
        cmocka_unit_test(test_long_reasons),
        cmocka_unit_test(test_never_overflows),
        cmocka_unit_test(test_names_and_texts),
        cmocka_unit_test(test_decimal_point),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
