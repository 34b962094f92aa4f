/* Use of experts through the library: what a request adds, what is there when the model is gone, what Prometheus gets.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"
#include "runnel_observe.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

/* Two blocks, the last with 16 experts, of which 4 are used; in it only rows with logits have experts. */
enum { BLOCKS = 2, EXPERTS = 16, USED = 4, ANSWER = 7 };

static char path[64];

static char *find(char *bytes, size_t n, const char *text)
{
    size_t at = 0;

    while (at + strlen(text) <= n && memcmp(bytes + at, text, strlen(text)) != 0)
        at++;
    assert_true(at + strlen(text) <= n);
    return bytes + at;
}

/* No text comes of its tokens: the tokenizer's name becomes "none". */
static void write_model(void)
{
    static const char key[] = "tokenizer.ggml.model";
    struct writer made = {0};
    char *tokenizer;
    FILE *file;
    int fd;

    made_model_write(MADE_TEXT("bailingmoe2-made"), &made);
    tokenizer = find(find((char *)made.bytes, made.n, key), 64, "test"); /* the key, its type, a length, "test" */
    memcpy(tokenizer, "none", 4);
    strcpy(path, "/tmp/runnel-experts-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "wb");
    assert_int_equal(fwrite(made.bytes, 1, made.n, file), made.n);
    assert_int_equal(fclose(file), 0);
    w_free(&made);
}

static uint64_t sum_of(const uint64_t *counts, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* How many tokens were drawn. */
static uint64_t answer(runnel_engine *engine, runnel_model *model)
{
    static const int32_t tokens[] = {5, 9, 33, 12};
    struct capture capture = {0};
    runnel_request request = make_request("", ANSWER, &capture);
    uint64_t n_drawn;

    request.prompt = NULL;
    request.tokens = tokens;
    request.n_tokens = 4;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    n_drawn = capture.last.usage.completion_tokens;
    assert_true(n_drawn > 0);
    capture_clear(&capture);
    return n_drawn;
}

static void assert_text_has(runnel_engine *engine, const char *name, uint64_t value)
{
    char text[1 << 16], line[256];
    size_t n;

    assert_int_equal(runnel_engine_prometheus(engine, text, sizeof text - 1, &n), RUNNEL_OK);
    assert_true(n < sizeof text);
    text[n] = '\0';
    snprintf(line, sizeof line, "\nrunnel_%s{model_name=\"%s\"} %llu\n", name, strrchr(path, '/') + 1,
             (unsigned long long)value);
    if (strstr(text, line) == NULL)
        fail_msg("no line '%s' in\n%s", line + 1, text);
}

static void a_request_is_counted(void **state)
{
    runnel_expert_use use = {.struct_size = sizeof use};
    uint64_t counts[BLOCKS * EXPERTS], again[BLOCKS * EXPERTS], unused = 0, drawn;
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;

    (void)state;
    assert_int_equal(runnel_engine_expert_use(engine, 0, &use, NULL, 0), RUNNEL_NOT_FOUND);
    write_model();
    model = load_model(engine, path, NULL);
    drawn = answer(engine, model);
    assert_int_equal(runnel_engine_expert_use(engine, 0, &use, counts, BLOCKS * EXPERTS), RUNNEL_OK);
    assert_string_equal(use.model, strrchr(path, '/') + 1);
    assert_int_equal(use.n_blocks, BLOCKS);
    assert_int_equal(use.n_experts, EXPERTS);
    assert_int_equal(sum_of(counts, EXPERTS), 0);                      /* the block without experts */
    assert_int_equal(sum_of(counts + EXPERTS, EXPERTS), USED * drawn); /* one row for each token that is drawn */
    for (size_t i = EXPERTS; i < BLOCKS * EXPERTS; i++)
        unused += counts[i] == 0;
    assert_text_has(engine, "expert_selections_total", USED * drawn);
    assert_text_has(engine, "experts_unused", unused);
    runnel_model_free(model);
    await_models(engine, 0);
    model = load_model(engine, path, NULL); /* goes on counting; the same request adds the same */
    answer(engine, model);
    assert_int_equal(runnel_engine_expert_use(engine, 0, &use, again, BLOCKS * EXPERTS), RUNNEL_OK);
    for (size_t i = 0; i < BLOCKS * EXPERTS; i++)
        assert_int_equal(again[i], 2 * counts[i]);
    assert_int_equal(runnel_engine_expert_use(engine, 1, &use, NULL, 0), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_engine_expert_use(engine, 0, NULL, NULL, 0), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_expert_use(engine, 0, &use, NULL, 1), RUNNEL_INVALID);
    runnel_model_free(model);
    runnel_engine_free(engine);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_request_is_counted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
