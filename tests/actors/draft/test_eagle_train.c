/* Training of heads through the public interface: the same bytes whether it was stopped or not, what is refused, and
 * on text it was not trained on a head's drafts are right more often than those of an n-gram lookup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/actors/fixture.h"
#include "runnel_files.h"
#include "tests/base/refusing.h"
#include "tests/base/whole_file.h"
#include "tests/oracle/run_plan.h"
#include "text/vocab.h"
#include "train/head_file.h"

enum { WINDOW = 128, TRAINED_BYTES = 60000 };

static runnel_engine *engine;
static char corpus[100000], head_path[64], other_path[80], state_path[80];
static size_t corpus_bytes;
static char model[512];

static runnel_eagle_options quick(uint32_t steps)
{
    runnel_eagle_options options;

    runnel_eagle_options_default(&options);
    options.steps = steps;
    options.text_tokens = 40;
    options.texts = 2;
    options.unroll = 2;
    return options;
}

/* Under ThreadSanitizer and AddressSanitizer, where what a test computes takes many times as long. */
#if defined(__SANITIZE_ADDRESS__)
#define SLOW_ARITHMETIC true
#else
#define SLOW_ARITHMETIC UNLESS_SLOW(false, true)
#endif

/* Trains to the end, or until `stop` steps have been seen; returns how it ended. */
static runnel_training_state train(const runnel_eagle_options *options, size_t bytes, const char *to, uint32_t stop,
                                   runnel_error *error)
{
    runnel_training_progress now = {.struct_size = sizeof now};
    runnel_training *training = NULL;

    assert_int_equal(runnel_eagle_train(engine, model, corpus, bytes, to, options, &training, error), RUNNEL_OK);
    while (now.state == RUNNEL_TRAINING_RUNNING) {
        runnel_training_wait(training, 1000, &now, error);
        if (stop > 0 && now.step >= stop)
            runnel_training_cancel(training);
    }
    runnel_training_free(training);
    return now.state;
}

static void test_resume(void **state)
{
    static char one[8 << 20], two[8 << 20];
    runnel_eagle_options options = quick(8);
    runnel_error error;
    size_t n;

    (void)state;
    assert_int_equal(train(&options, TRAINED_BYTES, head_path, 0, &error), RUNNEL_TRAINING_DONE);
    options.state = state_path;
    options.resume = 1; /* there is none yet: it begins */
    assert_int_equal(train(&options, TRAINED_BYTES, other_path, 2, &error), RUNNEL_TRAINING_CANCELLED);
    assert_int_not_equal(access(other_path, F_OK), 0);
    assert_int_equal(train(&options, TRAINED_BYTES - 1, other_path, 0, &error), RUNNEL_TRAINING_FAILED);
    assert_int_equal(error.status, RUNNEL_STATE);
    assert_non_null(strstr(error.message, "another corpus"));
    assert_int_equal(train(&options, TRAINED_BYTES, other_path, 0, &error), RUNNEL_TRAINING_DONE);
    n = read_whole(head_path, one, sizeof one);
    assert_true(n > 100000 && n < sizeof one);
    assert_int_equal(read_whole(other_path, two, sizeof two), n);
    assert_memory_equal(one, two, n);
}

static void test_refused(void **state)
{
    runnel_training *training = NULL;
    runnel_eagle_options options = quick(4);
    runnel_error error;
    char far[1000];

    (void)state;
    options.text_tokens = 15;
    assert_int_equal(runnel_eagle_train(engine, model, corpus, 100, head_path, &options, &training, &error),
                     RUNNEL_INVALID);
    options = quick(4), options.resume = 1;
    assert_int_equal(runnel_eagle_train(engine, model, corpus, 100, head_path, &options, &training, &error),
                     RUNNEL_INVALID);
    options = quick(4), options.n_layers = 9;
    assert_int_equal(runnel_eagle_train(engine, model, corpus, 100, head_path, &options, &training, &error),
                     RUNNEL_INVALID);
    options = quick(4);
    assert_int_equal(runnel_eagle_train(engine, "/no/model", corpus, 100, head_path, &options, &training, &error),
                     RUNNEL_IO);
    for (size_t i = 0; i + 7 < sizeof far; i++)
        far[i] = "/far"[i % 4];
    strcpy(far + sizeof far - 7, "/model");
    assert_int_equal(runnel_eagle_train(engine, far, corpus, 100, head_path, &options, &training, &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, "/model: cannot be opened: No such file or directory"));
    assert_int_equal(train(&options, 8, head_path, 0, &error), RUNNEL_TRAINING_FAILED);
    assert_non_null(strstr(error.message, "the corpus has"));
    options.n_layers = 2, options.layers[0] = 3, options.layers[1] = 99;
    assert_int_equal(train(&options, TRAINED_BYTES, head_path, 0, &error), RUNNEL_TRAINING_FAILED);
    assert_int_equal(error.status, RUNNEL_INVALID);
    for (int i = 0; i < 2; i++) { /* what cannot be written at the end is refused at the beginning */
        options = quick(4), options.state = i ? "/tmp" : NULL;
        assert_int_equal(
            runnel_eagle_train(engine, model, corpus, 100, i ? head_path : "/tmp", &options, &training, &error),
            RUNNEL_IO);
        assert_string_equal(error.message, "/tmp: not a regular file");
    }
}

static void refuse(const char *of, const char *head, const char *state, runnel_status status, const char *why)
{
    runnel_training *training = NULL;
    runnel_eagle_options options = quick(4);
    runnel_error error;

    options.state = state;
    assert_int_equal(runnel_eagle_train(engine, of, corpus, 100, head, &options, &training, &error), status);
    assert_non_null(strstr(error.message, why));
}

/* Nothing that is read is written over, nor one file over the other, whatever the names; and a folder that takes no
 * file is told at once. */
static void test_own_files(void **state)
{
    char folder[] = "/tmp/runnel-own-files-XXXXXX", part[3][64], link_to[64], hard[64], dangling[64], none[64], odd[64];
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++)
        snprintf(part[i], sizeof part[i], "%s/m-%05d-of-00003.gguf", folder, i + 1);
    snprintf(link_to, sizeof link_to, "%s/link", folder);
    snprintf(hard, sizeof hard, "%s/hard", folder);
    snprintf(dangling, sizeof dangling, "%s/dangling", folder);
    snprintf(none, sizeof none, "%s/none", folder);
    snprintf(odd, sizeof odd, "%s/m-00001-of--0001.gguf", folder);
    for (int i = 0; i < 2; i++) {
        file = fopen(part[i], "w");
        assert_non_null(file);
        fclose(file);
    }
    assert_int_equal(symlink(part[1], link_to), 0);
    assert_int_equal(symlink("none", dangling), 0);
    assert_int_equal(link(part[0], hard), 0);
    assert_int_equal(link(part[0], odd), 0);
    refuse(part[0], part[0], NULL, RUNNEL_INVALID, "head");
    refuse(part[0], hard, NULL, RUNNEL_INVALID, "head");
    refuse(part[0], part[1], NULL, RUNNEL_INVALID, "head");
    refuse(part[0], link_to, NULL, RUNNEL_INVALID, "head");
    refuse(part[0], part[2], NULL, RUNNEL_INVALID, "head"); /* the part is missing */
    refuse(part[0], none, part[1], RUNNEL_INVALID, "state");
    refuse(part[0], none, none, RUNNEL_INVALID, "state");
    refuse(part[0], none, dangling, RUNNEL_INVALID, "state");
    refuse(part[0], "", NULL, RUNNEL_IO, "head");
    refuse(part[0], none, "", RUNNEL_IO, "state");
    refuse(part[0], "/nowhere/head", NULL, RUNNEL_IO, "/nowhere/head: cannot be written");
    refuse(odd, "/nowhere/head", NULL, RUNNEL_IO, "/nowhere/head: cannot be written"); /* a sign is no digit */
    refuse(part[0], "/proc/head", NULL, RUNNEL_IO, "/proc/head: cannot be written");
    refuse(part[0], none, "/nowhere/state", RUNNEL_IO, "/nowhere/state: cannot be written");
    unlink(part[0]), unlink(part[1]), unlink(link_to), unlink(hard), unlink(dangling), unlink(odd);
    assert_int_equal(rmdir(folder), 0); /* and nothing else is there */
}

static runnel_training *begin(runnel_engine *of, const char *to, const runnel_eagle_options *options)
{
    runnel_training *training = NULL;
    runnel_error error;

    if (runnel_eagle_train(of, model, corpus, TRAINED_BYTES, to, options, &training, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return training;
}

static runnel_training_progress progress_of(runnel_training *training, int64_t timeout_ms)
{
    runnel_training_progress now = {.struct_size = sizeof now};

    runnel_training_wait(training, timeout_ms, &now, NULL);
    return now;
}

/* One training has learnt, one has just begun, one has ended: the engine's end ends them, and each can tell how. */
static void test_engine_first(void **state)
{
    runnel_eagle_options options = quick(1000), short_one = quick(1);
    runnel_engine *own = start_engine(NULL);
    runnel_training *learnt, *begun, *done;

    (void)state;
    unlink(other_path);
    unlink(state_path);
    done = begin(own, head_path, &short_one);
    while (progress_of(done, 1000).state == RUNNEL_TRAINING_RUNNING)
        ;
    options.state = state_path;
    learnt = begin(own, other_path, &options);
    while (progress_of(learnt, 1000).step < 1)
        ;
    options.state = NULL;
    begun = begin(own, other_path, &options);
    runnel_engine_free(own);
    assert_int_equal(progress_of(done, -1).state, RUNNEL_TRAINING_DONE);
    assert_int_equal(progress_of(learnt, -1).state, RUNNEL_TRAINING_CANCELLED);
    assert_true(progress_of(learnt, 0).step >= 1);
    assert_int_equal(progress_of(begun, -1).state, RUNNEL_TRAINING_CANCELLED);
    runnel_training_cancel(begun);
    runnel_training_free(begun);
    runnel_training_free(learnt);
    runnel_training_free(done);
    assert_int_not_equal(access(other_path, F_OK), 0);
    assert_int_equal(access(state_path, F_OK), 0); /* what was learnt is kept */
    unlink(state_path);
}

/* A corpus of several parts whose last byte is no character: the training fails if it comes to the end of it, and is
 * cancelled if it looks for that before. */
static void test_cancelled_in_the_corpus(void **state)
{
    static const struct {
        size_t bytes;
        runnel_training_state end;
    } cases[] = {{600000, RUNNEL_TRAINING_FAILED}, {24 << 20, RUNNEL_TRAINING_CANCELLED}};
    char *large = malloc(cases[1].bytes + 1);
    runnel_eagle_options options = quick(1);

    (void)state;
    assert_non_null(large);
    for (int k = 0; k < 2; k++) {
        runnel_training *training = NULL;
        size_t n = cases[k].bytes;
        runnel_error error;

        for (size_t i = 0; i < n; i += corpus_bytes)
            memcpy(large + i, corpus, n - i < corpus_bytes ? n - i : corpus_bytes);
        large[n] = (char)0xff;
        assert_int_equal(runnel_eagle_train(engine, model, large, n + 1, other_path, &options, &training, &error),
                         RUNNEL_OK);
        if (cases[k].end == RUNNEL_TRAINING_CANCELLED)
            runnel_training_cancel(training);
        while (progress_of(training, 1000).state == RUNNEL_TRAINING_RUNNING)
            ;
        assert_int_equal(progress_of(training, 0).state, cases[k].end);
        runnel_training_free(training);
    }
    free(large);
}

static void *free_training(void *training)
{
    runnel_training_free(training);
    return NULL;
}

/* A handle and its engine are freed by two threads at once: one of them ends the training, and both come back. */
static void test_freed_by_two(void **state)
{
    runnel_eagle_options options = quick(1000);

    (void)state;
    for (int round = 0; round < 30; round++) {
        runnel_engine *own = start_engine(NULL);
        runnel_training *training[2] = {begin(own, other_path, &options), begin(own, other_path, &options)};
        pthread_t threads[2];

        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, free_training, training[i]), 0);
        runnel_engine_free(own);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    }
}

/* So many at once, each until it is freed, whether it runs or has failed; and the allocator has all back. */
static void test_many(void **state)
{
    enum { MOST = 16 };
    struct refusing counting = {0};
    runnel_engine_options engine_options;
    runnel_eagle_options options = quick(1);
    runnel_training *trainings[MOST], *one_more = NULL;
    runnel_engine *own;
    runnel_error error;

    (void)state;
    runnel_engine_options_default(&engine_options);
    engine_options.allocator = refusing_hook(&counting);
    own = start_engine(&engine_options);
    for (uint32_t i = 0; i < MOST; i++) /* 8 bytes are too few to learn from: each fails soon */
        assert_int_equal(runnel_eagle_train(own, model, corpus, 8, other_path, &options, &trainings[i], &error),
                         RUNNEL_OK);
    assert_int_equal(runnel_eagle_train(own, model, corpus, 8, other_path, &options, &one_more, &error), RUNNEL_BUSY);
    assert_null(one_more);
    runnel_training_free(trainings[7]);
    assert_int_equal(runnel_eagle_train(own, model, corpus, 8, other_path, &options, &trainings[7], &error), RUNNEL_OK);
    for (uint32_t i = 0; i < MOST / 2; i++)
        runnel_training_free(trainings[i]);
    runnel_engine_free(own);
    for (uint32_t i = MOST / 2; i < MOST; i++)
        runnel_training_free(trainings[i]);
    assert_true(atomic_load(&counting.live) == 0);
}

static uint32_t likeliest(const float *x, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* What stood behind the last place where the tokens before tokens[at] stood, three of them, else two, else one. */
static int32_t lookup(const int32_t *tokens, uint32_t at)
{
    for (uint32_t n = 3; n > 0; n--)
        for (uint32_t i = at; i-- > n;)
            if (at >= n && memcmp(tokens + i - n, tokens + at - n, n * sizeof *tokens) == 0)
                return tokens[i];
    return -1;
}

/* A window of held-out text, at `at`: of each row's likeliest token, how often the head had it, from the window
 * alone, and the lookup, from all of the text before, that of the training included. */
static void compare(struct run *run, struct rn_eagle *eagle, const struct rn_head *head, const float *embedding,
                    const int32_t *all, uint32_t at, double *head_hits, double *lookup_hits)
{
    uint32_t width = run->plan->embedding, vocab = run->plan->n_vocab;
    const int32_t *tokens = all + at;
    static float embeddings[WINDOW * 4096];
    struct rn_eagle_text text = {WINDOW, embeddings, run->features, run->logits};
    struct rn_eagle_score score = {0};

    run_step(run, &(struct run_piece){0, 0, WINDOW, tokens, false, NULL, 0}, 1);
    for (uint32_t i = 0; i < WINDOW; i++) {
        memcpy(embeddings + i * width, embedding + (size_t)tokens[i] * width, width * sizeof *embeddings);
        if (i + 1 < WINDOW) /* the token behind tokens[i + 1], as the head is asked for */
            *lookup_hits += lookup(all, at + i + 2) == (int32_t)likeliest(run->logits + (size_t)(i + 1) * vocab, vocab);
    }
    rn_eagle_pass(eagle, head->weights, &text, 1.0f, 1.0f, NULL,
                  &score); /* logits serve as `wanted`: only hits count */
    *head_hits += score.hits[0];
}

static void test_better_than_lookup(void **state)
{
    runnel_eagle_options options;
    struct run_options run_options = {.backend = "fast", .kv_type = RUNNEL_KV_F32};
    double head_hits = 0, lookup_hits = 0, rows = 0;
    struct rn_eagle *eagle = NULL;
    struct rn_vocab *vocab = NULL;
    struct rn_head head;
    struct run run;
    int32_t *tokens = NULL;
    float *embedding;
    runnel_error error;
    size_t n, trained;

    (void)state;
    if (SLOW_ARITHMETIC)
        skip(); /* much of it, of code that the tests before this one and tests/train run too */
    runnel_eagle_options_default(&options);
    options.steps = 60, options.text_tokens = 64, options.unroll = 1, options.rate = 2e-3f;
    assert_int_equal(train(&options, TRAINED_BYTES, head_path, 0, &error), RUNNEL_TRAINING_DONE);
    rn_heap_init(&run.heap, NULL);
    assert_int_equal(rn_head_open(&head, &run.heap, head_path, &error), RUNNEL_OK);
    run_options.n_taps = head.shape.taps;
    run_options.taps = (uint32_t[]){head.tapped[0], head.tapped[1], head.tapped[2]};
    rn_head_fini(&head);
    run_open(&run, model, &run_options);
    assert_int_equal(rn_head_open(&head, &run.heap, head_path, &error), RUNNEL_OK);
    assert_int_equal(rn_vocab_new(&run.heap, run.gguf, run.plan->n_vocab, &vocab, &error), RUNNEL_OK);
    assert_int_equal(rn_tokenize(vocab, &run.heap, corpus, TRAINED_BYTES, 0, &tokens, &trained, NULL), RUNNEL_OK);
    rn_free(&run.heap, tokens);
    assert_int_equal(rn_tokenize(vocab, &run.heap, corpus, corpus_bytes, 0, &tokens, &n, NULL), RUNNEL_OK);
    embedding = rn_alloc(&run.heap, (size_t)head.shape.vocab * head.shape.width, sizeof *embedding);
    assert_non_null(embedding);
    run.plan->weights[0].type->decode(run.plan->weights[0].tensor->data, embedding,
                                      (size_t)head.shape.vocab * head.shape.width);
    assert_null(rn_gguf_find_tensor(run.gguf, "output.weight")); /* the embedding is the output matrix too */
    assert_int_equal(rn_eagle_new(&run.heap, &head.shape, WINDOW, 1, rn_cpu_gemm(), embedding, &eagle), RUNNEL_OK);
    for (size_t at = trained + 1; at + WINDOW <= n; at += WINDOW, rows += WINDOW - 1)
        compare(&run, eagle, &head, embedding, tokens, (uint32_t)at, &head_hits, &lookup_hits);
    print_message("held out: %.0f rows, right: head %.3f, n-gram lookup %.3f\n", rows, head_hits / rows,
                  lookup_hits / rows);
    assert_true(rows > 1000 && head_hits > lookup_hits + 0.05 * rows);
    rn_eagle_free(eagle);
    rn_vocab_free(vocab);
    rn_free(&run.heap, tokens);
    rn_free(&run.heap, embedding);
    rn_head_fini(&head);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cancelled_in_the_corpus),
                                       cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_own_files),
                                       cmocka_unit_test(test_engine_first),
                                       cmocka_unit_test(test_freed_by_two),
                                       cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_better_than_lookup)};
    int failed;

    shared_or_skip();
    snprintf(model, sizeof model, "%s", shared_path("models/runnel-tiny-F16.gguf"));
    corpus_bytes = read_whole(shared_path("oracles/runnel-tiny.heldout.txt"), corpus, sizeof corpus);
    snprintf(head_path, sizeof head_path, "/tmp/runnel-eagle-%d", (int)getpid());
    snprintf(other_path, sizeof other_path, "%s.other", head_path);
    snprintf(state_path, sizeof state_path, "%s.state", head_path);
    if (runnel_engine_new(NULL, &engine, NULL) != RUNNEL_OK)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    runnel_engine_free(engine);
    unlink(head_path);
    unlink(other_path);
    unlink(state_path);
    return failed;
}
