/* Models whose attention looks at positions that an indexer has chosen, in the engine: prefixes that prompts share,
 * many streams at once, blocks that were evicted and come back from lower tiers, sessions, their files, and drafts of
 * all kinds, in chains and trees. Contexts are many times as long as what is chosen. Judge: the same request alone,
 * without a prefix cache, to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "base/rng.h"
#include "fixture.h"
#include "tests/actors/draft/metered.h"
#include "runnel_files.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

enum { PROMPTS = 4, PROMPT = 300, STEM = 250, TOKENS = 40, CONTEXT = 512, VOCAB = 64 };

static const char *const names[] = {"deepseek32-made-chosen", "glm-dsa-made-chosen"};

static struct fixture {
    char path[2][64], draft[64], folder[64];
    int32_t prompts[PROMPTS][PROMPT]; /* their first STEM tokens are the same; each ends in a loop */
    struct answer alone[PROMPTS];
} f;

/* A file that is gone with the test. */
static FILE *new_file(char path[64])
{
    FILE *file;
    int fd;

    strcpy(path, "/tmp/rn_chosen_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "wb");
    assert_non_null(file);
    return file;
}

/* The model of a text, without its vocabulary, which engines do not know. */
static void write_model(const char *text, char path[64])
{
    char line[256], bare[64];
    FILE *in = fopen(text, "r"), *out = new_file(bare);
    struct writer w = {0};

    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL)
        if (strncmp(line, "vocabulary ", 11) != 0)
            assert_true(fputs(line, out) >= 0);
    assert_true(fclose(in) == 0 && fclose(out) == 0);
    made_model_write(bare, &w);
    assert_int_equal(unlink(bare), 0);
    out = new_file(path);
    assert_true(fwrite(w.bytes, 1, w.n, out) == w.n && fclose(out) == 0);
    w_free(&w);
}

static int setup(void **state)
{
    uint64_t seed = 5;

    (void)state;
    write_model(MADE_TEXT("deepseek32-made-chosen"), f.path[0]);
    write_model(MADE_TEXT("glm-dsa-made-chosen"), f.path[1]);
    write_model(MADE_TEXT("glm-dsa-made"), f.draft);
    for (uint32_t i = 0; i < PROMPTS; i++)
        for (uint32_t t = 0; t < PROMPT; t++)
            f.prompts[i][t] = i > 0 && t < STEM ? f.prompts[0][t]
                              : t > PROMPT - 20 ? f.prompts[i][t - 5]
                                                : (int32_t)(rn_splitmix64(&seed) % VOCAB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(f.path[0]) | unlink(f.path[1]) | unlink(f.draft);
}

/* ---- Models and requests ---- */

static runnel_model_options options_of(bool cache)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = CONTEXT;
    options.batch_tokens = 50; /* steps that end inside blocks */
    options.no_prefix_cache = !cache;
    return options;
}

static runnel_request request_of(struct answer *answer, const int32_t *tokens, uint32_t n)
{
    runnel_request request = answer_request(answer, "", TOKENS);

    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = tokens;
    request.n_tokens = n;
    request.sampling.temperature = 0.2f;
    return request;
}

static void clear(struct answer *answer)
{
    capture_clear(&answer->capture);
}

static void answer_alone(const char *path)
{
    runnel_model_options options = options_of(false);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, path, &options);

    for (uint32_t i = 0; i < PROMPTS; i++) {
        runnel_request request = request_of(&f.alone[i], f.prompts[i], PROMPT);

        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    }
    runnel_engine_free(engine);
}

/* All prompts one after the other, or at once; what usage says in all. */
static runnel_usage ask_all(runnel_engine *engine, runnel_model *model, uint32_t draft, bool at_once)
{
    struct answer answers[PROMPTS];
    runnel_usage sum = {0};

    for (uint32_t i = 0; i < PROMPTS; i++) {
        runnel_request request = request_of(&answers[i], f.prompts[i], PROMPT);

        request.draft = draft;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        if (!at_once)
            run_until_end(engine, &answers[i].capture);
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        const runnel_usage *usage = &answers[i].capture.last.usage;

        run_until_end(engine, &answers[i].capture);
        assert_int_equal(answers[i].capture.last.type, RUNNEL_EVENT_DONE);
        assert_same_answer(&answers[i], &f.alone[i]);
        sum.cached_tokens += usage->cached_tokens;
        sum.warm_tokens += usage->warm_tokens;
        sum.cold_tokens += usage->cold_tokens;
        sum.drafted_tokens += usage->drafted_tokens;
        sum.accepted_tokens += usage->accepted_tokens;
        clear(&answers[i]);
    }
    return sum;
}

/* ---- Tests, of one model each ---- */

static void shares(const char *path)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, path, &options);

    assert_true(ask_all(engine, model, 0, false).cached_tokens > (PROMPTS - 1) * (STEM - 40));
    assert_true(ask_all(engine, model, 0, true).cached_tokens > PROMPTS * (PROMPT - 40));
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

/* A pool that holds one prompt, packed memory, and a folder that outlives the engine. */
static void comes_back(const char *path)
{
    for (int life = 0; life < 2; life++) {
        runnel_model_options options = options_of(true);
        runnel_engine *engine = start_engine(NULL);
        runnel_model_info info = {.struct_size = sizeof info};
        runnel_model *model = load_model(engine, path, &options);
        runnel_usage usage;

        assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
        runnel_model_free(model);
        options.kv_bytes = (PROMPT + TOKENS + 64) * info.kv_bytes_per_token;
        options.cache_warm_bytes = life == 0 ? 16 << 20 : 0;
        options.cache_dir = f.folder;
        model = load_model(engine, path, &options);
        usage = ask_all(engine, model, 0, false);
        for (uint32_t t = 0; t < 3; t++) {
            struct answer other;
            runnel_request request = request_of(&other, f.prompts[0] + 1 + t, PROMPT - 10);

            assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
            clear(&other);
        }
        usage.warm_tokens += ask_all(engine, model, 0, false).warm_tokens;
        if (life == 0)
            assert_true(usage.warm_tokens + usage.cached_tokens > 0 && usage.warm_tokens > 0);
        else
            assert_true(usage.cold_tokens > 0);
        runnel_engine_free(engine);
    }
}

/* The first turn by itself, its session forked and in a file: the second turn of all of them. */
static void in_sessions(const char *path)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, path, &options);
    char file_path[] = "/tmp/rn_turns_XXXXXX";
    struct answer answer;
    struct capture capture = {0};
    runnel_request request = request_of(&answer, f.prompts[1], STEM - 13);
    runnel_session sessions[3];
    runnel_session_file file;
    runnel_stream stream;
    int fd = mkstemp(file_path);

    assert_true(fd >= 0 && close(fd) == 0);
    request.max_tokens = 0;
    assert_int_equal(runnel_session_new(model, &sessions[0]), RUNNEL_OK);
    request.session = sessions[0];
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    clear(&answer);
    assert_int_equal(runnel_session_fork(model, sessions[0], &sessions[1]), RUNNEL_OK);
    runnel_session_file_default(&file);
    file.path = file_path;
    file.on_event = capture_event;
    file.user = &capture;
    assert_int_equal(runnel_session_export(model, sessions[0], &file, &stream, NULL), RUNNEL_OK);
    run_until_end(engine, &capture);
    assert_true(capture.last.usage.cached_tokens > 0); /* blocks, too */
    capture_clear(&capture);
    assert_int_equal(runnel_session_import(model, &file, &sessions[2], &stream, NULL), RUNNEL_OK);
    run_until_end(engine, &capture);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    for (uint32_t i = 0; i < 3; i++) {
        request = request_of(&answer, f.prompts[1] + STEM - 13, PROMPT - STEM + 13);
        request.session = sessions[i];
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_same_answer(&answer, &f.alone[1]);
        assert_true(answer.capture.last.usage.cached_tokens > STEM - 50);
        clear(&answer);
        assert_int_equal(runnel_session_free(model, sessions[i]), RUNNEL_OK);
    }
    runnel_engine_free(engine);
    assert_int_equal(unlink(file_path), 0);
}

/* In chains and trees: from the text, by another model that guesses badly, and by the model itself, which guesses well.
 * Time is the test's (metered.h), so that the policy always drafts. */
static void drafts(const char *path)
{
    const char *const drafters[] = {NULL, f.draft, path, "exit:2"};
    uint64_t drafted = 0, right = 0;

    for (size_t i = 0; i < sizeof drafters / sizeof drafters[0]; i++) {
        runnel_engine *engine = metered_engine();
        runnel_model *model = metered_model(engine, path, drafters[i]);

        for (int at_once = 0; at_once < 2; at_once++) {
            runnel_usage usage =
                ask_all(engine, model, drafters[i] != NULL ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NGRAM, at_once);

            drafted += usage.drafted_tokens;
            right += usage.accepted_tokens;
        }
        assert_quiet(engine, 0);
        runnel_model_free(model);
        await_models(engine, 0);
        runnel_engine_free(engine);
    }
    assert_true(right > 20 && drafted > right);
}

static void same_bits(void **state)
{
    (void)state;
    /* ThreadSanitizer sees the same threads with each model. */
    for (size_t i = 0; i < UNLESS_SLOW(sizeof names / sizeof names[0], 1); i++) {
        char command[96];

        strcpy(f.folder, "/tmp/rn_blocks_XXXXXX");
        assert_non_null(mkdtemp(f.folder));
        answer_alone(f.path[i]);
        shares(f.path[i]);
        comes_back(f.path[i]);
        in_sessions(f.path[i]);
        drafts(f.path[i]);
        for (uint32_t t = 0; t < PROMPTS; t++)
            clear(&f.alone[t]);
        snprintf(command, sizeof command, "rm -r %s", f.folder);
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
