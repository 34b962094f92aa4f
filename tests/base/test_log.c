/* Log lines: each is one, and whole characters, whatever name is in it; levels; no sink. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/log.h"

static char last[600];
static int n_lines;

static void on_line(void *user, runnel_log_level level, const char *line)
{
    assert_ptr_equal(user, &n_lines);
    assert_in_range(level, RUNNEL_LOG_ERROR, RUNNEL_LOG_INFO);
    assert_in_range(strlen(line), 0, sizeof last - 1);
    strcpy(last, line);
    n_lines++;
}

static const struct rn_log lines = {on_line, &n_lines, RUNNEL_LOG_INFO};

/* A file whose name has a newline in it begins no line of its own. */
static void test_one_line(void **state)
{
    (void)state;
    n_lines = 0;
    rn_log(&lines, RUNNEL_LOG_INFO, "%s: loaded", "a\nERROR: b\x1b[2J\x7f\xc3\xa9.gguf");
    assert_int_equal(n_lines, 1);
    assert_string_equal(last, "a\\x0aERROR: b\\x1b[2J\\x7f\xc3\xa9.gguf: loaded");
}

static void test_cut_between_characters(void **state)
{
    char name[700];

    (void)state;
    for (size_t first = 0; first < 4; first++) {
        memset(name, 'x', first);
        for (size_t i = first; i < sizeof name; i++)
            name[i] = "\xe2\x82\xac"[(i - first) % 3];
        name[sizeof name - 1] = '\0';
        rn_log(&lines, RUNNEL_LOG_ERROR, "%s", name);
        assert_in_range(strlen(last), 490, 511);
        assert_int_equal((strlen(last) - first) % 3, 0);
        assert_memory_equal(last, name, strlen(last));
    }
}

static void test_silent(void **state)
{
    const struct rn_log none = {NULL, NULL, RUNNEL_LOG_DEBUG};

    (void)state;
    n_lines = 0;
    rn_log(&lines, RUNNEL_LOG_DEBUG, "below the level");
    rn_log(&none, RUNNEL_LOG_ERROR, "no sink");
    rn_log(NULL, RUNNEL_LOG_ERROR, "no log");
    assert_int_equal(n_lines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_line), cmocka_unit_test(test_cut_between_characters),
                                       cmocka_unit_test(test_silent)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
