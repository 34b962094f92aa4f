/* The host's log sink: what it hears of loads, and that its level holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/support/shared.h"

/* Lines come on the loader's thread, each load's before the load is over for runnel_model_wait. */
struct lines {
    char text[16][512];
    runnel_log_level levels[16];
    size_t n;
};

static void on_line(void *user, runnel_log_level level, const char *line)
{
    struct lines *lines = user;

    assert_true(lines->n < 16 && strchr(line, '\n') == NULL);
    snprintf(lines->text[lines->n], sizeof lines->text[0], "%s", line);
    lines->levels[lines->n++] = level;
}

static size_t count(const struct lines *lines, runnel_log_level level, const char *word)
{
    size_t n = 0;

    for (size_t i = 0; i < lines->n; i++)
        n += lines->levels[i] == level && strstr(lines->text[i], word) != NULL;
    return n;
}

static runnel_engine *start_heard(runnel_log_level level, struct lines *lines)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.on_log = on_line;
    options.log_user = lines;
    options.log_level = level;
    return start_engine(&options);
}

/* One load that works and one that does not. */
static void load_both(runnel_log_level level, struct lines *lines)
{
    runnel_engine *engine = start_heard(level, lines);
    runnel_model *bad;

    load_model(engine, BUNDLED_MODEL, NULL);
    assert_int_equal(runnel_model_load(engine, "README.md", NULL, &bad, NULL), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(bad, -1, NULL), RUNNEL_FORMAT);
    runnel_engine_free(engine);
}

static void levels(void **state)
{
    struct lines lines = {.n = 0};

    (void)state;
    load_both(RUNNEL_LOG_INFO, &lines);
    assert_int_equal(count(&lines, RUNNEL_LOG_INFO, "compute team"), 1);
    assert_int_equal(count(&lines, RUNNEL_LOG_INFO, BUNDLED_MODEL), 1);
    assert_int_equal(count(&lines, RUNNEL_LOG_ERROR, "README.md"), 1);
    lines.n = 0;
    load_both(RUNNEL_LOG_ERROR, &lines);
    assert_int_equal(lines.n, 1);
    assert_int_equal(lines.levels[0], RUNNEL_LOG_ERROR);
    lines.n = 0;
    load_both(RUNNEL_LOG_NONE, &lines);
    assert_int_equal(lines.n, 0);
}

/* Tiers that cannot be are asked for: the log says why. */
static void tiers_that_do_nothing(void **state)
{
    struct lines lines = {.n = 0};
    runnel_model_options of;
    runnel_engine *engine;

    (void)state;
    engine = start_heard(RUNNEL_LOG_WARNING, &lines);
    runnel_model_options_default(&of);
    of.cache_warm_bytes = 1 << 20;
    runnel_model_free(load_model(engine, BUNDLED_MODEL, &of));
    assert_int_equal(lines.n, 0);
    of.no_prefix_cache = 1;
    runnel_model_free(load_model(engine, BUNDLED_MODEL, &of));
    assert_int_equal(count(&lines, RUNNEL_LOG_WARNING, "no_prefix_cache"), 1);
    of.no_prefix_cache = 0;
    of.chunk_mean = 64;
    runnel_model_free(load_model(engine, BUNDLED_MODEL, &of));
    assert_int_equal(count(&lines, RUNNEL_LOG_WARNING, "chunk_mean"), 1);
    of.chunk_mean = 0;
    runnel_engine_free(engine);
}

static void tiers_of_recurrent_states(void **state)
{
    char path[512];
    struct lines lines = {.n = 0};
    runnel_model_options of;
    runnel_engine *engine;

    (void)state;
    if (!shared_find("oracles/arch/jamba-dense.gguf", path, sizeof path))
        skip();
    engine = start_heard(RUNNEL_LOG_WARNING, &lines);
    runnel_model_options_default(&of);
    of.cache_warm_bytes = 1 << 20;
    runnel_model_free(load_model(engine, path, &of));
    assert_int_equal(count(&lines, RUNNEL_LOG_WARNING, "do nothing: the model has recurrent states"), 1);
    of.cache_warm_bytes = 0;
    runnel_model_free(load_model(engine, path, &of));
    assert_int_equal(count(&lines, RUNNEL_LOG_WARNING, "do nothing"), 1);
    runnel_engine_free(engine);
}

static void a_level_that_is_none_is_refused(void **state)
{
    static const int bad[] = {RUNNEL_LOG_DEBUG + 1, 99, -1};
    runnel_engine_options options;
    runnel_engine *engine = NULL;
    runnel_error error;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        runnel_engine_options_default(&options);
        options.log_level = (runnel_log_level)bad[i];
        assert_int_equal(runnel_engine_new(&options, &engine, &error), RUNNEL_INVALID);
        assert_non_null(strstr(error.message, "log_level"));
        assert_null(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels), cmocka_unit_test(tiers_that_do_nothing),
                                       cmocka_unit_test(tiers_of_recurrent_states),
                                       cmocka_unit_test(a_level_that_is_none_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
