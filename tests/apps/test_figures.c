/* What the program says of outcomes that no machine has to bring about: the figures behind an answer, as text on
 * standard error and as JSON; texts of 2 GiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/runnel/common.h"

static char text[4096];

/* What `print` writes to the descriptor fd, in `text`. */
static void capture(FILE *stream, int fd, void (*print)(const struct app_outcome *), const struct app_outcome *outcome)
{
    FILE *file = tmpfile();
    int kept = dup(fd);
    size_t n;

    assert_non_null(file);
    fflush(stream);
    dup2(fileno(file), fd);
    print(outcome);
    fflush(stream);
    dup2(kept, fd);
    close(kept);
    rewind(file);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
}

static void figures(const struct app_outcome *outcome)
{
    static struct app_options options;

    app_figures(&options, outcome);
}

static void json(const struct app_outcome *outcome)
{
    runnel_event event = {.type = RUNNEL_EVENT_DONE, .usage = outcome->usage, .timings = outcome->timings};

    app_json_event(&event, false);
}

static struct app_outcome outcome_of(uint64_t drafted, uint64_t rested, runnel_rest rest)
{
    return (struct app_outcome){.usage = {.prompt_tokens = 4,
                                          .completion_tokens = 50,
                                          .drafted_tokens = drafted,
                                          .accepted_tokens = drafted / 2,
                                          .rested_passes = rested,
                                          .rest = rest},
                                .timings = {.admitted_us = 1, .first_token_us = 1000, .end_us = 2000}};
}

static void rests(void **state)
{
    struct app_outcome outcome = outcome_of(6, 40, RUNNEL_REST_WRONG);

    (void)state;
    capture(stderr, STDERR_FILENO, figures, &outcome);
    assert_non_null(strstr(text, "\ndrafts: 6, of which 3 were right\n"
                                 "the drafter rested for 40 passes: too few guesses were right\n"));
    capture(stdout, STDOUT_FILENO, json, &outcome);
    assert_non_null(strstr(text, "\"accepted_tokens\":3,\"rested_passes\":40,\"rest\":\"WRONG\"}"));
    outcome = outcome_of(0, 1, RUNNEL_REST_MEMORY);
    capture(stderr, STDERR_FILENO, figures, &outcome);
    assert_non_null(strstr(text, "ms\nno drafts: it rested for 1 pass: there was no room for the stream with the "
                                 "drafter\n"));
    outcome = outcome_of(6, 0, RUNNEL_REST_NONE);
    capture(stderr, STDERR_FILENO, figures, &outcome);
    assert_null(strstr(text, "rested"));
    capture(stdout, STDOUT_FILENO, json, &outcome);
    assert_null(strstr(text, "rest"));
}

static struct app app;
static size_t text_bytes; /* told of a text of one byte that is not UTF-8 */

static void tokenize(const struct app_outcome *outcome)
{
    struct app_ids ids = {0};

    (void)outcome;
    assert_int_equal(app_tokenize(&app, "\xff", text_bytes, 0, &ids), APP_USAGE);
}

/* The library looks at the length first. */
static void long_texts(void **state)
{
    static struct app_options options;

    (void)state;
    app_options_default(&options);
    options.operands[0] = "examples/models/runnel-tiny-Q8_0.gguf";
    assert_int_equal(app_open(&app, &options, true), APP_OK);
    text_bytes = 1;
    capture(stderr, STDERR_FILENO, tokenize, NULL);
    assert_string_equal(text, "runnel: the text is not UTF-8\n");
    text_bytes = (size_t)INT32_MAX + 1;
    capture(stderr, STDERR_FILENO, tokenize, NULL);
    assert_string_equal(text, "runnel: the text has 2 GiB or more\n");
    app_close(&app);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rests), cmocka_unit_test(long_texts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
