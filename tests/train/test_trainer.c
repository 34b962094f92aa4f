/* The trainer: AdamW against its formulas in double, a task whose best loss is known, a training that is stopped and
 * resumed, killed while it saves, and files that are not its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "cpu/cpu.h"
#include "train/trainer.h"
#include "tests/base/whole_file.h"
#include "tests/support/child.h"

enum { VOCAB = 9, WIDTH = 16, TOKENS = 12, TEXTS = 2 };

static struct rn_heap heap;
static char path[64];
static float table[VOCAB * WIDTH], output[VOCAB * WIDTH];
static const struct rn_eagle_shape shape = {WIDTH, VOCAB, 1, 2, 1, 8, 24, 1e-5f, 100.0f};
static const struct rn_trainer_options usual = {60, 5, 2, 0.8f, 0.01f, 0.01f, 1.0f, 7};
static const struct rn_trainer_origin origin = {{1}, {2}, {3}};

static void fill_tables(void)
{
    uint64_t coins = 3;

    for (int i = 0; i < VOCAB * WIDTH; i++) {
        table[i] = (float)((double)(rn_splitmix64(&coins) >> 11) * 0x1p-52 - 1.0);
        output[i] = (float)((double)(rn_splitmix64(&coins) >> 11) * 0x1p-52 - 1.0);
    }
}

/* A language with a known entropy: behind token a comes 2a + 1 with probability 0.7, else 2a + 2 (mod VOCAB). The
 * target knows it; its feature is the embedding of the token itself. */
struct material {
    float embeddings[TOKENS * WIDTH], wanted[TOKENS * VOCAB];
    struct rn_eagle_text text;
};

static void make_text(struct material *m, uint64_t place)
{
    uint32_t token = (uint32_t)(place % VOCAB);

    memset(m->wanted, 0, sizeof m->wanted);
    for (uint32_t t = 0; t < TOKENS; t++) {
        memcpy(m->embeddings + t * WIDTH, table + token * WIDTH, WIDTH * sizeof(float));
        m->wanted[t * VOCAB + (2 * token + 1) % VOCAB] = 0.7f;
        m->wanted[t * VOCAB + (2 * token + 2) % VOCAB] = 0.3f;
        token = (2 * token + (rn_coin(place, t) < 0.7 ? 1 : 2)) % VOCAB;
    }
    m->text = (struct rn_eagle_text){TOKENS, m->embeddings, m->embeddings, m->wanted};
}

static void learn(struct rn_trainer *trainer, uint32_t steps)
{
    struct rn_eagle *eagle = NULL;
    struct rn_eagle_score score;
    struct material material;

    assert_int_equal(rn_eagle_new(&heap, &shape, TOKENS, trainer->options.unroll, rn_cpu_gemm(), output, &eagle),
                     RUNNEL_OK);
    for (uint32_t i = 0; i < steps; i++) {
        rn_trainer_begin(trainer, &score);
        for (uint32_t k = 0; k < TEXTS; k++) {
            make_text(&material, rn_trainer_place(trainer->options.seed, trainer->step, k, 1u << 20));
            rn_trainer_add(trainer, eagle, &material.text, TEXTS, &score);
        }
        assert_true(rn_trainer_end(trainer, &score) && rn_trainer_check(trainer));
    }
    rn_eagle_free(eagle);
}

static void begin(struct rn_trainer *trainer, const struct rn_trainer_options *options)
{
    assert_int_equal(rn_trainer_init(trainer, &heap, &shape, options, &origin), RUNNEL_OK);
}

/* The entropy of 0.7 and 0.3 is the best loss; drawn hits are the likeliest token in all rows at best. */
static void test_learns(void **state)
{
    struct rn_trainer_options options = usual;
    double best = -0.7 * log(0.7) - 0.3 * log(0.3);
    struct rn_trainer trainer;

    (void)state;
    options.steps = 400;
    begin(&trainer, &options);
    learn(&trainer, 1);
    assert_true(trainer.loss[0] > best + 0.5);
    learn(&trainer, 399);
    for (int j = 0; j < 2; j++) {
        assert_true(trainer.loss[j] > best - 1e-4 && trainer.loss[j] < best + 0.05);
        assert_true(trainer.accepted[j] == 1.0);
    }
    rn_trainer_fini(&trainer);
}

/* Two updates from gradients of one's own, in double: the first at its corrected size, the second with history. */
static void test_adamw(void **state)
{
    struct rn_trainer_options options = usual;
    struct rn_eagle_score score;
    struct rn_trainer trainer;
    double m = 0, v = 0, w, rate[2];
    const struct rn_eagle_span *span;

    (void)state;
    options.steps = 2, options.warm_steps = 0, options.clip = 0.5f;
    begin(&trainer, &options);
    span = &trainer.spans[RN_EAGLE_DOWN];
    w = trainer.weights[span->offset];
    rate[0] = 0.01, rate[1] = 0.01 * (0.1 + 0.45);
    for (int i = 0; i < 2; i++) {
        double norm = hypot(3.0, 4.0 + i), gradient = 3.0 * 0.5 / norm;

        rn_trainer_begin(&trainer, &score);
        trainer.gradients[span->offset] = 3.0f;
        trainer.gradients[span->offset + 1] = -4.0f - (float)i;
        assert_true(rn_trainer_end(&trainer, &score) && rn_trainer_check(&trainer));
        m = 0.9 * m + 0.1 * gradient;
        v = 0.95 * v + 0.05 * gradient * gradient;
        w -= rate[i] * (m / (1 - pow(0.9, i + 1)) / (sqrt(v / (1 - pow(0.95, i + 1))) + 1e-8) + 0.01 * w);
        assert_true(fabs(trainer.weights[span->offset] - w) < 1e-6);
    }
    assert_true(trainer.weights[trainer.spans[RN_EAGLE_OUT_NORM].offset] == 1.0f); /* a norm does not decay */
    rn_trainer_begin(&trainer, &score);
    trainer.gradients[5] = NAN;
    assert_false(rn_trainer_end(&trainer, &score));
    assert_true(rn_trainer_check(&trainer));
    assert_int_equal(trainer.step, 2);
    rn_trainer_fini(&trainer);
}

static void test_rate(void **state)
{
    struct rn_trainer_options options = usual;

    (void)state;
    options.steps = 105, options.warm_steps = 5, options.rate = 1.0f;
    assert_true(fabs(rn_trainer_rate(&options, 0) - 0.2) < 1e-6);
    assert_true(fabs(rn_trainer_rate(&options, 4) - 1.0) < 1e-6);
    assert_true(fabs(rn_trainer_rate(&options, 5) - 1.0) < 1e-6);
    assert_true(fabs(rn_trainer_rate(&options, 55) - 0.55) < 1e-6);
    assert_true(fabs(rn_trainer_rate(&options, 105) - 0.1) < 1e-6);
}

static void test_resume(void **state)
{
    struct rn_trainer whole, first, second;
    runnel_error error = {0};

    (void)state;
    begin(&whole, &usual);
    learn(&whole, 60);
    begin(&first, &usual);
    learn(&first, 23);
    assert_int_equal(rn_trainer_save(&first, path, &error), RUNNEL_OK);
    rn_trainer_fini(&first);
    begin(&second, &usual);
    assert_int_equal(rn_trainer_load(&second, path, &error), RUNNEL_OK);
    assert_int_equal(second.step, 23);
    learn(&second, 37);
    assert_memory_equal(whole.weights, second.weights, 3 * whole.n * sizeof(float));
    assert_memory_equal(whole.loss, second.loss, sizeof whole.loss);
    rn_trainer_fini(&whole);
    rn_trainer_fini(&second);
}

/* A process that saves after every step is killed somewhere in it: what lies there is whole, and goes on to the same
 * weights. */
static void test_kill(void **state)
{
    struct rn_trainer whole, trainer;
    runnel_error error = {0};

    (void)state;
    begin(&whole, &usual);
    learn(&whole, 60);
    for (int round = 0; round < 4; round++) {
        pid_t child;
        int done[2];
        char byte;

        assert_int_equal(pipe(done), 0);
        unlink(path);
        child = child_fork();
        if (child == 0) {
            begin(&trainer, &usual);
            for (;;) {
                learn(&trainer, trainer.step < 59 ? 1 : 0);
                if (rn_trainer_save(&trainer, path, NULL) != RUNNEL_OK || write(done[1], "x", 1) != 1)
                    _exit(1);
            }
        }
        close(done[1]); /* a child that ends by itself is the end of the pipe */
        for (int i = 0; i <= 3 * round; i++)
            assert_int_equal(read(done[0], &byte, 1), 1);
        usleep(300u * (unsigned)round);
        child_kill(child);
        close(done[0]);
        begin(&trainer, &usual);
        assert_int_equal(rn_trainer_load(&trainer, path, &error), RUNNEL_OK);
        assert_true(trainer.step > (uint32_t)(3 * round));
        learn(&trainer, 60 - trainer.step);
        assert_memory_equal(whole.weights, trainer.weights, 3 * whole.n * sizeof(float));
        rn_trainer_fini(&trainer);
    }
    rn_trainer_fini(&whole);
}

/* Loads what is in `path` with these; the trainer must be as it was unless it says OK. */
static runnel_status load(const struct rn_eagle_shape *as, const struct rn_trainer_options *options,
                          const struct rn_trainer_origin *from, runnel_error *error)
{
    struct rn_trainer trainer;
    runnel_status status;
    float first;

    *error = (runnel_error){0};
    assert_int_equal(rn_trainer_init(&trainer, &heap, as, options, from), RUNNEL_OK);
    first = trainer.weights[trainer.n - WIDTH - 1];
    status = rn_trainer_load(&trainer, path, error);
    if (status != RUNNEL_OK)
        assert_true(trainer.step == 0 && trainer.weights[trainer.n - WIDTH - 1] == first);
    rn_trainer_fini(&trainer);
    return status;
}

static void spoil(long at, bool cut)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 0x10, file);
    fclose(file);
    if (cut)
        assert_int_equal(truncate(path, at), 0);
}

static void test_other_files(void **state)
{
    struct rn_eagle_shape wider = shape;
    struct rn_trainer_options options = usual;
    struct rn_trainer_origin other = origin;
    struct rn_trainer trainer;
    runnel_error error = {0};
    struct stat is;
    char target[80], beside[80], bytes[8];

    (void)state;
    begin(&trainer, &usual);
    learn(&trainer, 1);
    assert_int_equal(rn_trainer_save(&trainer, path, &error), RUNNEL_OK);
    assert_int_equal(load(&shape, &usual, &origin, &error), RUNNEL_OK);
    wider.feed_forward++;
    assert_int_equal(load(&wider, &usual, &origin, &error), RUNNEL_STATE);
    options.steps++;
    assert_int_equal(load(&shape, &options, &origin, &error), RUNNEL_STATE);
    other.target[3] = 1;
    assert_int_equal(load(&shape, &usual, &other, &error), RUNNEL_STATE);
    assert_non_null(strstr(error.message, "another target"));
    other = origin, other.corpus[15] = 1;
    assert_int_equal(load(&shape, &usual, &other, &error), RUNNEL_STATE);
    assert_non_null(strstr(error.message, "another corpus"));
    spoil(2000, false);
    assert_int_equal(load(&shape, &usual, &origin, &error), RUNNEL_FORMAT);
    assert_int_equal(rn_trainer_save(&trainer, path, &error), RUNNEL_OK);
    spoil(2000, true);
    assert_int_equal(load(&shape, &usual, &origin, &error), RUNNEL_FORMAT);
    spoil(3, true);
    assert_int_equal(load(&shape, &usual, &origin, &error), RUNNEL_FORMAT);
    unlink(path);
    assert_int_equal(load(&shape, &usual, &origin, &error), RUNNEL_IO);
    rn_error_clear(&error);
    assert_int_equal(rn_trainer_save(&trainer, "/proc/no/such", &error), RUNNEL_IO);
    rn_error_clear(&error);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(rn_trainer_save(&trainer, path, &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
    assert_true(lstat(path, &is) == 0 && S_ISFIFO(is.st_mode));
    assert_int_equal(unlink(path), 0);
    snprintf(target, sizeof target, "%s-target", path);
    assert_int_equal(symlink(target, path), 0);
    rn_error_clear(&error);
    assert_int_equal(rn_trainer_save(&trainer, path, &error), RUNNEL_OK);
    assert_int_equal(load(&shape, &usual, &origin, &error), RUNNEL_OK);
    assert_true(lstat(path, &is) == 0 && S_ISLNK(is.st_mode) && lstat(target, &is) == 0 && S_ISREG(is.st_mode));
    unlink(target);
    assert_int_equal(unlink(path), 0);
    snprintf(beside, sizeof beside, "%s.new", path);
    write_whole(target, "old", 3);
    assert_int_equal(symlink(target, beside), 0); /* what lies in its way is not followed */
    assert_int_equal(rn_trainer_save(&trainer, path, &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(read_whole(target, bytes, sizeof bytes), 3);
    assert_true(unlink(beside) == 0 && unlink(target) == 0 && access(path, F_OK) != 0);
    rn_trainer_fini(&trainer);
    assert_true(rn_heap_blocks(&heap) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns), cmocka_unit_test(test_adamw),
                                       cmocka_unit_test(test_rate),   cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_kill),   cmocka_unit_test(test_other_files)};
    int failed;

    rn_heap_init(&heap, NULL);
    fill_tables();
    snprintf(path, sizeof path, "/tmp/runnel-trainer-%d", (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
