/* Models with a recurrent state whose streams draft: from their own text, by a draft model, and by a prediction layer
 * of the file. Streams draft without rest, right and wrong, in steps with others and with prompts, and some are
 * cancelled. Judge: the same request without drafts, to the bit. Where drafts were wrong the rows of those before them
 * come again; the steps are watched for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/batch.h"
#include "actors/decode/states.h"
#include "actors/engine.h"
#include "tests/actors/answer.h"
#include "base/rng.h"
#include "tests/actors/fixture.h"
#include "metered.h"
#include "tests/model/model_edit.h"
#include "tests/oracle/run_plan.h"
#include "tests/slow.h"

enum { STREAMS = 6, TOKENS = 70, PROMPT = 90, VOCAB = 128 };

static const char *const models[] = {"mamba-dense",      "mamba2-dense", "jamba-dense",    "falcon-h1-dense",
                                     "nemotron_h-dense", "rwkv6-dense",  "rwkv7-dense",    "lfm2moe-moe",
                                     "qwen3next-moe",    "qwen35-dense", "kimi-linear-moe"};

static const char *file_of(const char *name)
{
    char file[96];

    snprintf(file, sizeof file, "oracles/arch/%s.gguf", name);
    return shared_path(file);
}

/* ---- What the steps tell ---- */

static runnel_model *restless;
static uint64_t n_again, n_kept, n_rows_again_most;

/* On decode's thread. */
static void watch(const struct rn_step *step)
{
    const struct rn_batch *batch = (const struct rn_batch *)step;

    for (uint32_t i = 0; i < restless->decode.n_running; i++) {
        struct rn_verifier_stream *stream = &restless->verifier.streams[restless->decode.running[i]->slot];

        stream->own.rest = stream->model.rest = 0;
        stream->own.budget = stream->model.budget = 4;
    }
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const struct rn_batch_part *part = &batch->parts[i];

        n_kept += part->keeps_state;
        n_again += part->n_repeated;
        n_rows_again_most = part->n_repeated > n_rows_again_most ? part->n_repeated : n_rows_again_most;
    }
}

/* ---- A file with a prediction layer ---- */

/* The block at `from` once more, as block `to`. */
static void copy_block(struct model_edit *edit, uint32_t from, uint32_t to)
{
    char stem[16];
    uint32_t n = edit->n_tensors;

    snprintf(stem, sizeof stem, "blk.%u.", from);
    for (uint32_t i = 0; i < n; i++) {
        struct edit_tensor *copy = &edit->tensors[edit->n_tensors];

        if (strncmp(edit->tensors[i].name, stem, strlen(stem)) != 0)
            continue;
        *copy = edit->tensors[i];
        snprintf(copy->name, sizeof copy->name, "blk.%u.%.40s", to, edit->tensors[i].name + strlen(stem));
        edit->n_tensors++;
    }
}

/* A file of two blocks with a third one that predicts: its block of attention again, behind what the model gives. */
static void write_nextn(const char *name, const char *architecture, uint32_t width, char path[64])
{
    static struct model_edit edit;
    float *project = calloc((size_t)2 * width * width, sizeof *project), *ones = calloc(width, sizeof *ones);
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct writer w = {0};
    char key[96];
    FILE *file;
    int fd;

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, file_of(name), &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    copy_block(&edit, 1, 2);
    for (uint32_t i = 0; i < width; i++) {
        ones[i] = 1;
        project[(size_t)i * 2 * width + i] = 0.3f;
        project[(size_t)i * 2 * width + width + i] = 1;
    }
    edit_add_tensor(&edit, "blk.2.nextn.eh_proj.weight", 2 * width, width, project);
    edit_add_tensor(&edit, "blk.2.nextn.enorm.weight", width, 1, ones);
    edit_add_tensor(&edit, "blk.2.nextn.hnorm.weight", width, 1, ones);
    edit_add_tensor(&edit, "blk.2.nextn.shared_head_norm.weight", width, 1, ones);
    snprintf(key, sizeof key, "%s.block_count", architecture);
    edit_u32(&edit, key, 3);
    snprintf(key, sizeof key, "%s.nextn_predict_layers", architecture);
    edit_u32(&edit, key, 1);
    edit_write(&edit, &w);
    strcpy(path, "/tmp/rn_nextn_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "wb");
    assert_true(file != NULL && fwrite(w.bytes, 1, w.n, file) == w.n && fclose(file) == 0);
    w_free(&w);
    rn_gguf_free(gguf);
    free(project);
    free(ones);
}

/* ---- Texts ---- */

static struct answer plain[STREAMS], drafting[STREAMS];

/* Streams of several kinds at once: greedy ones, whose text soon repeats itself, and sampled ones. */
static void run_streams(const char *path, const char *draft_path, uint32_t draft, struct answer *answers)
{
    static int32_t prompts[STREAMS][PROMPT];
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, path, draft != 0 ? draft_path : NULL);
    runnel_stream streams[STREAMS];
    uint64_t seed = 3;

    restless = model;
    metered_watch = watch;
    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_request request = answer_request(&answers[i], "", TOKENS);

        for (uint32_t t = 0; t < PROMPT; t++)
            prompts[i][t] = t > 20 ? prompts[i][t - 9] : (int32_t)(rn_splitmix64(&seed) % VOCAB);
        request.prompt = NULL;
        request.prompt_bytes = 0;
        request.tokens = prompts[i];
        request.n_tokens = i == 0 ? 1 : PROMPT - 7 * i;
        request.sampling.temperature = i % 2 == 1 ? 0.3f : 0;
        request.sampling.seed = i;
        request.draft = draft;
        request.draft_max = i % 3 == 2 ? 3 : 8;
        assert_int_equal(runnel_generate(model, &request, &streams[i], NULL), RUNNEL_OK);
    }
    if (draft != 0)
        runnel_stream_cancel(engine, streams[STREAMS - 1]);
    for (uint32_t i = 0; i < STREAMS; i++)
        run_until_end(engine, &answers[i].capture);
    metered_watch = NULL;
    assert_quiet(engine, 0);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* Drafted and right ones are added up. */
static void compare(const char *name, uint64_t *drafted, uint64_t *right)
{
    for (uint32_t i = 0; i + 1 < STREAMS; i++) {
        const struct runnel_usage *usage = &drafting[i].capture.last.usage;

        if (drafting[i].capture.last.type != RUNNEL_EVENT_DONE)
            fail_msg("%s: stream %u ended with %s", name, i, drafting[i].capture.error);
        assert_same_answer(&drafting[i], &plain[i]);
        *drafted += usage->drafted_tokens;
        *right += usage->accepted_tokens;
        capture_clear(&drafting[i].capture);
    }
    capture_clear(&drafting[STREAMS - 1].capture);
}

static void check(const char *name, const char *path, const char *draft_path)
{
    static const uint32_t kinds[] = {RUNNEL_DRAFT_NGRAM, RUNNEL_DRAFT_MODEL, RUNNEL_DRAFT_NGRAM | RUNNEL_DRAFT_MODEL};
    uint64_t drafted = 0, right = 0;

    n_again = n_kept = n_rows_again_most = 0;
    run_streams(path, NULL, 0, plain);
    assert_true(n_kept == 0 && n_again == 0);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        run_streams(path, draft_path, kinds[k], drafting);
        compare(name, &drafted, &right);
    }
    for (uint32_t i = 0; i < STREAMS; i++)
        capture_clear(&plain[i].capture);
    print_message("%s: %llu of %llu drafts were right; %llu states kept, %llu rows again, %llu at most\n", name,
                  (unsigned long long)right, (unsigned long long)drafted, (unsigned long long)n_kept,
                  (unsigned long long)n_again, (unsigned long long)n_rows_again_most);
    assert_true(right > 0 && drafted > right && n_kept > 0 && n_again > 0);
    assert_true(n_rows_again_most <= RN_MOST_BEHIND + 8);
}

static void drafts_change_nothing(void **state)
{
    char draft[512];

    (void)state;
    snprintf(draft, sizeof draft, "%s", file_of("llama-dense"));
    for (size_t i = 0; i < UNLESS_SLOW(sizeof models / sizeof models[0], 2); i++) {
        char path[512];

        snprintf(path, sizeof path, "%s", file_of(models[i]));
        check(models[i], path, draft);
    }
}

static void prediction_layers_draft(void **state)
{
    char path[64];

    (void)state;
    write_nextn("qwen3next-moe", "qwen3next", 256, path);
    check("qwen3next with a prediction layer", path, "mtp");
    assert_int_equal(unlink(path), 0);
    write_nextn("qwen35-dense", "qwen35", 256, path);
    check("qwen35 with a prediction layer", path, "mtp");
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_change_nothing),
                                       cmocka_unit_test(prediction_layers_draft)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
