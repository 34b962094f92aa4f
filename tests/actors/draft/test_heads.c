/* Heads, prediction layers and early exits as drafters change no text: real models on real threads, greedy and sampled,
 * many at once, with cancels, each judged by the same request of a model without a drafter. And a head that was trained
 * here guesses better than an n-gram lookup, behind text that it was not trained on.
 *
 * Time is the test's (metered.h), so that the policy always drafts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/engine.h"
#include "tests/actors/embed/embed_judge.h"
#include "tests/actors/fixture.h"
#include "metered.h"
#include "taught.h"
#include "tests/model/model_edit.h"

enum { STREAMS = 8, TOKENS = UNLESS_SLOW(120, 24) };

static char nextn_path[64];

/* ---- Requests ---- */

struct answers {
    struct capture captures[STREAMS];
    runnel_stream streams[STREAMS];
    uint64_t drafted, accepted, tokens;
};

static void cancel_some(struct capture *capture, const runnel_event *event)
{
    runnel_engine *engine = capture->hook_user;

    if (event->type == RUNNEL_EVENT_TOKEN && capture->n_tokens == 7)
        runnel_stream_cancel(engine, event->stream);
}

static bool chains; /* the requests want no runners-up */

/* All streams at once, or one after the other; even ones greedy. */
static void answer(runnel_engine *engine, runnel_model *model, uint32_t draft, uint32_t draft_max, bool together,
                   bool sampled, bool cancels, struct answers *a)
{
    char prompt[161];

    memset(a, 0, sizeof *a);
    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_request request;

        taught_prompt(i, 60 + i * 13 % 100, prompt);
        request = make_request(prompt, TOKENS, &a->captures[i]);
        request.sampling.temperature = sampled && i % 2 == 1 ? 0.7f : 0;
        request.sampling.seed = i;
        request.draft = draft;
        request.draft_max = draft_max;
        request.draft_chain = chains;
        if (cancels && i % 4 == 2) {
            a->captures[i].hook = cancel_some;
            a->captures[i].hook_user = engine;
        }
        assert_int_equal(runnel_generate(model, &request, &a->streams[i], NULL), RUNNEL_OK);
        if (!together)
            run_until_end(engine, &a->captures[i]);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        run_until_end(engine, &a->captures[i]);
        a->drafted += a->captures[i].last.usage.drafted_tokens;
        a->accepted += a->captures[i].last.usage.accepted_tokens;
        a->tokens += a->captures[i].n_tokens;
    }
}

static void clear(struct answers *a)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        capture_clear(&a->captures[i]);
}

/* What was said is the beginning of what is said without drafts, and all of it but where it was cancelled. */
static void assert_same(const struct answers *plain, const struct answers *fast)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        const struct capture *a = &plain->captures[i], *b = &fast->captures[i];

        assert_true(b->last.type == RUNNEL_EVENT_CANCELLED || b->text_bytes == a->text_bytes);
        assert_true(b->text_bytes <= a->text_bytes && b->n_tokens > 0);
        assert_memory_equal(a->text, b->text, b->text_bytes);
    }
}

/* right: some guesses are. */
static void check_same(const char *path, const char *draft, bool right)
{
    struct answers plain, fast;
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, path, NULL);

    answer(engine, model, 0, 0, true, true, false, &plain);
    runnel_model_free(model);
    await_models(engine, 0);
    model = metered_model(engine, path, draft);
    for (uint32_t way = 0; way < 3; way++) {
        answer(engine, model, way == 1 ? RUNNEL_DRAFT_MODEL | RUNNEL_DRAFT_NGRAM : RUNNEL_DRAFT_MODEL, way == 0 ? 3 : 8,
               way > 0, true, way == 2, &fast);
        assert_same(&plain, &fast);
        print_message("%s, way %u: %llu drafts, %llu right\n", draft, way, (unsigned long long)fast.drafted,
                      (unsigned long long)fast.accepted);
        assert_true(fast.drafted >= 8 && (!right || fast.accepted > 20));
        clear(&fast);
    }
    clear(&plain);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

static void head_says_the_same(void **state)
{
    (void)state;
    check_same(taught.target, taught.head_path, UNLESS_SLOW(true, false));
}

static void exit_says_the_same(void **state)
{
    (void)state;
    check_same(taught.target, "exit:4", true);
    check_same(taught.target, "exit:1", false);
}

static void nextn_says_the_same(void **state)
{
    (void)state;
    check_same(nextn_path, "mtp", false);
}

/* ---- Acceptance ---- */

static double acceptance(const char *draft, uint32_t flags, double *per_pass)
{
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, taught.target, draft);
    struct answers a;
    double share;
    uint64_t passes;

    answer(engine, model, flags, 4, false, false, false, &a);
    passes = a.tokens - a.accepted;
    share = (double)a.accepted / (double)(a.drafted > 0 ? a.drafted : 1);
    *per_pass = (double)a.tokens / (double)passes;
    print_message("%s%s: %llu drafts, %.3f right, %.2f tokens a pass\n", draft != NULL ? "head" : "n-gram",
                  chains ? " without runners-up" : "", (unsigned long long)a.drafted, share, *per_pass);
    clear(&a);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
    return share;
}

static void head_is_right_more_often(void **state)
{
    double head, lookup, head_pass, chain_pass, lookup_pass;

    (void)state;
    if (UNLESS_SLOW(false, true))
        skip(); /* its head is hardly trained */
    head = acceptance(taught.head_path, RUNNEL_DRAFT_MODEL, &head_pass);
    chains = true;
    acceptance(taught.head_path, RUNNEL_DRAFT_MODEL, &chain_pass);
    chains = false;
    lookup = acceptance(NULL, RUNNEL_DRAFT_NGRAM, &lookup_pass);
    assert_true(head > lookup && head_pass > lookup_pass + 0.3);
    assert_true(head_pass > 0.95 * chain_pass); /* a row costs nothing here */
}

/* ---- Refused ---- */

static void what_does_not_fit_is_refused(void **state)
{
    runnel_engine *engine = metered_engine();

    (void)state;
    metered_refuse(engine, BUNDLED_MODEL, taught.head_path, RUNNEL_INVALID, "its fingerprint differs");
    metered_refuse(engine, taught.target, "mtp", RUNNEL_UNSUPPORTED, "0 prediction layers");
    metered_refuse(engine, taught.target, "exit:6", RUNNEL_INVALID, "behind 1 to 5");
    metered_refuse(engine, taught.target, "exit:0", RUNNEL_INVALID, "behind 1 to 5");
    metered_refuse(engine, taught.target, "exit:2x", RUNNEL_INVALID, "behind 1 to 5");
    metered_refuse(engine, taught.target, "/none/such.gguf", RUNNEL_IO, "cannot be opened");
    runnel_engine_free(engine);
}

/* ---- Embeddings ---- */

/* Another program's, of the model without a head, while streams draft beside them. */
static void check_embeddings(const char *path, const char *draft)
{
    runnel_model_options options;
    struct capture captures[4] = {{0}};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;
    runnel_stream stream;
    char prompt[161];

    runnel_model_options_default(&options);
    options.draft_path = draft;
    options.kv_type = RUNNEL_KV_F32;
    options.context_tokens = 256;
    model = load_model(engine, path, &options);
    for (uint32_t i = 0; i < 4; i++) {
        runnel_request request;

        taught_prompt(i, 60 + i * 13 % 100, prompt);
        request = make_request(prompt, 40, &captures[i]);
        request.draft = RUNNEL_DRAFT_MODEL;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    }
    for (int i = 0; i < 2; i++)
        embed_judge(engine, model, "runnel-tiny-F16", i == 0 ? "beside" : "alone", 1e-6);
    for (uint32_t i = 0; i < 4; i++) {
        run_until_end(engine, &captures[i]);
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
        capture_clear(&captures[i]);
    }
    runnel_engine_free(engine);
}

static void embeddings_are_the_models(void **state)
{
    (void)state;
    check_embeddings(taught.target, taught.head_path);
    check_embeddings(nextn_path, "mtp");
}

/* ---- The fixture ---- */

/* The target with a prediction layer: its last block once more, and a join that passes the state and a little of the
 * token. */
static void write_nextn(void)
{
    static struct model_edit edit;
    static float *join;
    struct rn_heap heap;
    struct rn_gguf *gguf = NULL;
    struct writer bytes = {0};
    uint32_t n, width;

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, taught.target, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit_u32(&edit, "llama.block_count", 7);
    edit_u32(&edit, "llama.nextn_predict_layers", 1);
    n = edit.n_tensors;
    width = (uint32_t)edit_tensor(&edit, "output_norm.weight")->dims[0];
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(edit.tensors[i].name, "blk.5.", 6) == 0) {
            edit.tensors[edit.n_tensors] = edit.tensors[i];
            edit.tensors[edit.n_tensors++].name[4] = '6';
        }
    join = calloc((size_t)width * 2 * width, sizeof *join);
    for (uint32_t i = 0; i < width; i++) {
        join[(size_t)i * 2 * width + i] = 0.05f;
        join[(size_t)i * 2 * width + width + i] = 1;
    }
    edit_add_tensor(&edit, "blk.6.nextn.eh_proj.weight", 2 * width, width, join);
    for (int i = 0; i < 2; i++) {
        edit.tensors[edit.n_tensors] = *edit_tensor(&edit, "output_norm.weight");
        snprintf(edit.tensors[edit.n_tensors++].name, 64, "blk.6.nextn.%cnorm.weight", i == 0 ? 'e' : 'h');
    }
    edit_write(&edit, &bytes);
    w_save(&bytes, "/tmp", nextn_path + strlen("/tmp/"));
    w_free(&bytes);
    free(join);
    rn_gguf_free(gguf);
}

static int setup(void **state)
{
    int failed = taught_begin(UNLESS_SLOW(30, 3), 0);

    (void)state;
    snprintf(nextn_path, sizeof nextn_path, "/tmp/runnel-nextn-%d.gguf", (int)getpid());
    if (failed == 0)
        write_nextn();
    return failed;
}

static int teardown(void **state)
{
    (void)state;
    taught_end();
    unlink(nextn_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_says_the_same),           cmocka_unit_test(exit_says_the_same),
        cmocka_unit_test(nextn_says_the_same),          cmocka_unit_test(head_is_right_more_often),
        cmocka_unit_test(what_does_not_fit_is_refused), cmocka_unit_test(embeddings_are_the_models),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
