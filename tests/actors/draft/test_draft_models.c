/* Real draft models on real threads: judged by the same request without drafts, and by another program's text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"
#include "tests/actors/draft/metered.h"
#include "tests/base/whole_file.h"
#include "tests/support/shared.h"

static runnel_model *load_pair(runnel_engine *threads, const char *path, const char *draft, uint32_t draft_threads)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.draft_path = draft;
    options.draft_threads = draft_threads;
    options.context_tokens = 512;
    options.kv_bytes = shared_kv_bytes();
    return load_model(threads, path, &options);
}

/* Greedy and sampled, in turn and beside, one after the other and all at once: each as without drafts. */
static void real_models_say_the_same(void **state)
{
    static const char *const prompts[] = {"Once upon a time there was a little dog who", "Tom and his mom went to the",
                                          "The cat sat on the mat. It was"};
    char draft[300];
    uint64_t drafted = 0, accepted = 0;

    (void)state;
    if (!shared_find("models/runnel-tiny-draft-F16.gguf", draft, sizeof draft))
        skip();
    for (uint32_t way = 0; way < 2; way++) {
        runnel_engine *threads = start_engine(NULL);
        runnel_model *pair = load_pair(threads, test_device() != NULL ? quick_model() : BUNDLED_MODEL, draft, way);
        struct capture plain[12] = {0}, fast[12] = {0};
        runnel_stream stream;

        for (uint32_t i = 0; i < 12; i += test_device() != NULL ? 3 : 1) {
            runnel_request request =
                make_request(prompts[i % 3], test_device() != NULL ? 8 : UNLESS_SLOW(150, 30), &plain[i]);

            request.sampling.temperature = i < 6 ? 0 : 0.8f;
            request.sampling.seed = i;
            request.sampling.repetition_penalty = i % 4 == 3 ? 1.2f : 1;
            request.ignore_eos = 1;
            run_request(threads, pair, &request);
            request.user = &fast[i];
            request.draft = i % 5 == 4 ? RUNNEL_DRAFT_NGRAM | RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_MODEL;
            if (i < 4)
                run_request(threads, pair, &request);
            else
                assert_int_equal(runnel_generate(pair, &request, &stream, NULL), RUNNEL_OK);
        }
        for (uint32_t i = 0; i < 12; i += test_device() != NULL ? 3 : 1) {
            run_until_end(threads, &fast[i]);
            assert_int_equal(plain[i].n_tokens, fast[i].n_tokens);
            assert_memory_equal(plain[i].tokens, fast[i].tokens, plain[i].n_tokens * sizeof *plain[i].tokens);
            assert_int_equal(plain[i].text_bytes, fast[i].text_bytes);
            assert_memory_equal(plain[i].text, fast[i].text, plain[i].text_bytes);
            drafted += fast[i].last.usage.drafted_tokens;
            accepted += fast[i].last.usage.accepted_tokens;
            capture_clear(&plain[i]);
            capture_clear(&fast[i]);
        }
        runnel_engine_free(threads);
    }
    printf("%llu drafts, %llu right\n", (unsigned long long)drafted, (unsigned long long)accepted);
    assert_true(accepted <= drafted);
}

/* The line's first n words, at most the whole of it. Returns where the line after it begins. */
static const char *beginning(const char *line, uint32_t n, char *words, size_t capacity)
{
    size_t length = strcspn(line, "\n"), at = 0;

    for (uint32_t i = 0; i < n && at < length; i++)
        at += strcspn(line + at, " \n") + (i + 1 < n);
    at = at < length ? at : length;
    assert_true(at < capacity);
    memcpy(words, line, at);
    words[at] = '\0';
    return line + length + 1;
}

/* Answers at temperature 0.8 to beginnings of text that neither model has seen: a guess that is held against the
 * model's token is it in 0.95 of all cases and more. The judge is bench_agreement, which lets each of the two draw
 * alone behind the same 26,640 tokens: 0.975. Of 1,500 guesses 0.95 is six deviations below that, whatever the SIMD
 * level draws. */
static void sampled_guesses_are_right(void **state)
{
    static const uint32_t lengths[] = {6, 18, 40};
    char draft[300], path[300], prompt[512], *text;
    const uint32_t n_answers = UNLESS_SLOW(36, 6);
    const char *line;
    size_t n_text;
    uint64_t drafted = 0, right;
    runnel_engine *engine;
    runnel_model *pair;
    runnel_metrics m = {.struct_size = sizeof m};

    (void)state;
    if (!shared_find("models/runnel-tiny-draft-F16.gguf", draft, sizeof draft) ||
        !shared_find("oracles/runnel-tiny.heldout.txt", path, sizeof path))
        skip();
    line = text = read_whole_new(path, &n_text);
    engine = metered_engine();
    pair = metered_model(engine, BUNDLED_MODEL, draft);
    for (uint32_t i = 0; i < n_answers; i++) {
        struct capture capture = {0};
        runnel_request request;

        assert_true(line < text + n_text);
        line = beginning(line, lengths[i % 3], prompt, sizeof prompt);
        request = make_request(prompt, 60, &capture);
        request.sampling.temperature = 0.8f;
        request.sampling.seed = i;
        request.ignore_eos = 1;
        request.draft = RUNNEL_DRAFT_MODEL;
        request.draft_chain = i % 2;
        run_request(engine, pair, &request);
        drafted += capture.last.usage.drafted_tokens;
        capture_clear(&capture);
    }
    free(text);
    runnel_model_free(pair);
    await_models(engine, 0);
    assert_int_equal(runnel_engine_metrics(engine, &m), RUNNEL_OK);
    right = m.accepted - m.branched_right;
    printf("%llu guesses, %llu compared, %llu right, %llu of %llu runners-up\n", (unsigned long long)m.drafted,
           (unsigned long long)m.compared, (unsigned long long)right, (unsigned long long)m.branched_right,
           (unsigned long long)m.branched);
    assert_int_equal(m.drafted, drafted);
    assert_true(m.compared >= UNLESS_SLOW(1500u, 200u) && m.compared <= m.drafted);
    assert_true(100 * right >= UNLESS_SLOW(95, 90) * m.compared);
    runnel_engine_free(engine);
}

/* A model that drafts for itself is right where it agrees with itself; the text is another program's. */
static void text_of_another_program(void **state)
{
    char path[300], oracle_path[300], wanted[4096];
    struct capture capture = {0};
    runnel_engine *threads;
    runnel_request request;
    size_t n;

    (void)state;
    if (!shared_find("models/stories260K.gguf", path, sizeof path) ||
        !shared_find("oracles/stories260K.greedy.txt", oracle_path, sizeof oracle_path))
        skip();
    n = read_whole(oracle_path, wanted, sizeof wanted);
    threads = start_engine(NULL);
    request = make_request("Once upon a time", 150, &capture);
    request.draft = RUNNEL_DRAFT_MODEL;
    run_request(threads, load_pair(threads, path, path, 1), &request);
    assert_true(capture.text_bytes > 200 && capture.text_bytes + 16 <= n);
    assert_memory_equal(capture.text, wanted + strlen("Once upon a time"), capture.text_bytes);
    capture_clear(&capture);
    runnel_engine_free(threads);
}

static void another_vocabulary_is_refused(void **state)
{
    char draft[300], missing[] = "/nowhere/draft.gguf";
    runnel_engine *threads;
    runnel_model *pair = NULL;
    runnel_model_options options;
    runnel_error error;

    (void)state;
    if (!shared_find("models/stories260K.gguf", draft, sizeof draft))
        skip();
    threads = start_engine(NULL);
    runnel_model_options_default(&options);
    options.draft_path = missing;
    assert_int_equal(runnel_model_load(threads, BUNDLED_MODEL, &options, &pair, &error), RUNNEL_IO);
    options.draft_path = draft;
    assert_int_equal(runnel_model_load(threads, BUNDLED_MODEL, &options, &pair, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(pair, -1, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "tokens"));
    runnel_model_free(pair);
    runnel_engine_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_models_say_the_same),
        cmocka_unit_test(sampled_guesses_are_right),
        cmocka_unit_test(text_of_another_program),
        cmocka_unit_test(another_vocabulary_is_refused),
    };

    return run_cases(tests, NULL, NULL);
}
