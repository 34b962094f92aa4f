/* Drawing in the step, and steps submitted ahead of what they depend on (model/draw.h), on the fast backend, the
 * reference, a split model, the oracle model and the benchmark's device: a ring of steps gives the tokens and logits,
 * to the bit, of one step at a time. And steps that are stopped (model/stop.h): those that go on behind them give the
 * same, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "bench/streams_device.h"
#include "model/stop.h"
#include "tests/cpu/split_runner.h"
#include "tests/sim/oracle_backend.h"

enum { SEQS = 3, PROMPT = 4, STEPS = 12, BLOCK = 16, CONTEXT = 64, MOST_RING = 4, THREADS = 3, MAX_OUTS = 2 * SEQS };

static struct rn_heap heap;

/* What is tested: a backend, and how its steps come to their end. */
struct subject {
    union {
        struct runner runner;
        struct split_runner split; /* a runner first */
    };
    bool is_split;
    struct rn_backend *backend;
    struct oracle *oracle; /* NULL: the runner's */
    uint32_t n_vocab;
};

/* One call's memory: nobody else's at the same time. */
struct scratch {
    _Atomic uint32_t busy;
};

struct flight {
    struct rn_step step; /* first */
    struct subject *subject;
    struct rn_step_row rows[2 * SEQS];
    int32_t drawn[2 * SEQS];
    struct rn_draw draws[MAX_OUTS];
    struct rn_drawer drawer;
    uint32_t seq_of[MAX_OUTS];
    uint32_t fails_seq; /* its draws fail; SEQS: nobody's */
    uint32_t first_position;
    struct rn_stop stop;
    bool stops_in_draw; /* by the first draw */
    _Atomic uint32_t done, calls, wrong;
};

static struct scratch areas[THREADS];
static void *const scratch[THREADS] = {&areas[0], &areas[1], &areas[2]};

/* ---- Subjects ---- */

static void open_subject(struct subject *s, const struct rn_plan *plan, const char *level, bool draws)
{
    const struct rn_backend_limits limits = {.max_rows = 2 * SEQS * PROMPT,
                                             .max_seqs = SEQS,
                                             .max_outs = MAX_OUTS,
                                             .n_blocks = SEQS * CONTEXT / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .draws = draws};
    const struct oracle_alphabet alphabet = {.n = 4, .bytes = "abcd"};

    *s = (struct subject){.n_vocab = plan->n_vocab};
    if (strcmp(level, "oracle") == 0) {
        s->n_vocab = ORACLE_VOCAB;
        s->oracle = oracle_new(&limits, &alphabet, 7);
        assert_non_null(s->oracle);
        s->backend = &s->oracle->backend;
        return;
    }
    s->is_split = strcmp(level, "split") == 0;
    if (s->is_split)
        open_split(&s->split, &heap, plan, 1, THREADS, &limits);
    else
        open_runner(&s->runner, &heap, plan, strcmp(level, "reference") == 0 ? NULL : rn_level_named(level), THREADS,
                    &limits);
    s->backend = s->runner.backend;
}

static void close_subject(struct subject *s)
{
    if (s->is_split) {
        close_split(&s->split);
        return;
    }
    if (s->oracle == NULL) {
        close_runner(&s->runner);
        return;
    }
    assert_null(s->oracle->breach);
    oracle_free(s->oracle);
}

static void on_done(struct rn_step *step)
{
    struct flight *f = (struct flight *)step;

    atomic_store(&f->done, 1);
    if (f->subject->oracle == NULL)
        sem_post(&f->subject->runner.done);
}

/* The oldest step in flight ends. */
static void await(struct flight *f, enum oracle_fault fault)
{
    if (f->subject->oracle != NULL)
        oracle_complete(f->subject->oracle, fault);
    else
        sem_wait(&f->subject->runner.done);
    assert_int_equal(atomic_load(&f->done), 1); /* steps end in their order */
    assert_int_equal(atomic_load(&f->wrong), 0);
}

/* ---- Draws ---- */

/* The best of the logits, or sometimes the second: that is for the coin to say. */
static void draw(void *user, uint32_t out, const float *logits, void *area)
{
    struct flight *f = user;
    struct rn_draw *d = &f->draws[out];
    uint64_t state = d->seed * 1000003 + d->position;
    uint32_t n = f->subject->n_vocab, best = 0, second = 1, i;

    if (atomic_exchange(&((struct scratch *)area)->busy, 1) != 0)
        atomic_fetch_add(&f->wrong, 1);
    atomic_fetch_add(&f->calls, 1);
    if (f->stops_in_draw)
        rn_stop_set(&f->stop);
    for (i = 1; i < n; i++)
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (second == best || logits[i] > logits[second]) {
            second = i;
        }
    d->token = (int32_t)(rn_splitmix64(&state) % 4 == 0 && second != best ? second : best);
    d->logprob = logits[d->token];
    d->n_top = d->want_top;
    for (i = 0; i < d->n_top; i++)
        d->top[i] = (runnel_logprob){(int32_t)best, logits[best]};
    d->status = f->seq_of[out] == f->fails_seq ? RUNNEL_NUMERIC : RUNNEL_OK;
    atomic_store(&((struct scratch *)area)->busy, 0);
}

/* ---- Steps ---- */

static uint32_t tables[SEQS][CONTEXT / BLOCK];
static struct rn_step_seq seqs[SEQS];

static void lay_tables(void)
{
    for (uint32_t s = 0; s < SEQS; s++) {
        for (uint32_t i = 0; i < CONTEXT / BLOCK; i++)
            tables[s][i] = i * SEQS + s;
        seqs[s] = (struct rn_step_seq){.blocks = tables[s], .n_blocks = CONTEXT / BLOCK};
    }
}

static void begin(struct flight *f, struct subject *s, float *kept)
{
    *f = (struct flight){.subject = s, .fails_seq = SEQS};
    f->step = (struct rn_step){.rows = f->rows,
                               .seqs = seqs,
                               .n_seqs = SEQS,
                               .draws = f->draws,
                               .drawer = &f->drawer,
                               .drawn = f->drawn,
                               .on_done = on_done,
                               .stop = &f->stop,
                               .status = RUNNEL_STATUS_MAX_};
    f->drawer = (struct rn_drawer){draw, f, scratch, THREADS};
    for (uint32_t i = 0; i < MAX_OUTS; i++)
        f->draws[i] = (struct rn_draw){.wanted = true,
                                       .want_top = 2,
                                       .seed = 5,
                                       .token = -1,
                                       .keep_logits = kept == NULL ? NULL : kept + (size_t)i * s->n_vocab};
}

/* A row for the sequence; drawn -1: the token is its own. */
static void add_row(struct flight *f, uint32_t seq, uint32_t position, int32_t token, int32_t drawn, bool wanted)
{
    uint32_t r = f->step.n_rows++;

    f->rows[r] = (struct rn_step_row){token, position, seq, wanted ? (int32_t)f->step.n_outs : -1};
    f->drawn[r] = drawn;
    if (!wanted)
        return;
    f->draws[f->step.n_outs].position = position + 1;
    f->seq_of[f->step.n_outs++] = seq;
}

static void submit(struct flight *f)
{
    if (f->subject->oracle == NULL)
        assert_true(rn_step_check(&f->step, f->subject->runner.plan, &f->subject->runner.limits));
    f->subject->backend->ops->submit_async(f->subject->backend, &f->step);
}

/* In another order each time: what a row waits for stands elsewhere in the step before. */
static uint32_t nth(uint32_t step, uint32_t i)
{
    return step % 2 == 0 ? i : SEQS - 1 - i;
}

/* All prompts. Position p of sequence s is token p + 3 s + 1. */
static void prompt(struct flight *f, struct subject *s, float *kept)
{
    begin(f, s, kept);
    f->step.drawn = NULL;
    for (uint32_t i = 0; i < SEQS; i++) /* at most 2 * SEQS rows: the last two of each, behind a step of the others */
        for (uint32_t p = PROMPT - 2; p < PROMPT; p++)
            add_row(f, i, p, (int32_t)(p + 3 * i + 1), -1, p == PROMPT - 1);
}

static void run_past(struct subject *s)
{
    struct flight f;

    begin(&f, s, NULL);
    for (uint32_t i = 0; i < SEQS; i++)
        for (uint32_t p = 0; p < PROMPT - 2; p++)
            add_row(&f, i, p, (int32_t)(p + 3 * i + 1), -1, false);
    submit(&f);
    await(&f, ORACLE_FAULT_NONE);
}

/* What a run gives: of each step, by sequence. */
struct text {
    int32_t tokens[STEPS][SEQS];
    runnel_status status[STEPS][SEQS];
    float *logits; /* [STEPS][SEQS][n_vocab] */
};

static void note(struct text *text, uint32_t step, const struct flight *f, const float *logits, uint32_t n_vocab)
{
    for (uint32_t out = 0; out < f->step.n_outs; out++) {
        uint32_t seq = f->seq_of[out];

        text->tokens[step][seq] = f->draws[out].token;
        text->status[step][seq] = f->draws[out].status;
        memcpy(text->logits + ((size_t)step * SEQS + seq) * n_vocab, logits + (size_t)out * n_vocab, n_vocab * 4);
        if (f->draws[out].status == RUNNEL_OK)
            assert_true(f->draws[out].n_top == 2 &&
                        f->draws[out].logprob == logits[out * n_vocab + f->draws[out].token]);
    }
}

/* One step at a time, each row with its own token, logits in the step's own place. */
static void run_alone(struct subject *s, struct text *text)
{
    float *logits = rn_alloc(&heap, (size_t)MAX_OUTS * s->n_vocab, 4);
    struct flight f;

    run_past(s);
    for (uint32_t k = 0; k < STEPS; k++) {
        if (k == 0)
            prompt(&f, s, NULL);
        else
            begin(&f, s, NULL);
        for (uint32_t i = 0; k > 0 && i < SEQS; i++) {
            uint32_t seq = s->oracle != NULL ? i : nth(k, i); /* the oracle wants sequences in order */

            add_row(&f, seq, PROMPT - 1 + k, text->tokens[k - 1][seq], -1, true);
        }
        f.step.logits = logits;
        submit(&f);
        await(&f, ORACLE_FAULT_NONE);
        assert_int_equal(f.step.status, RUNNEL_OK);
        assert_int_equal(atomic_load(&f.calls), SEQS);
        note(text, k, &f, logits, s->n_vocab);
    }
    rn_free(&heap, logits);
}

/* Step k: rows wait for what the step before draws. */
static void compose(struct flight *f, struct subject *s, uint32_t k, float *kept)
{
    if (k == 0) {
        prompt(f, s, kept);
        return;
    }
    begin(f, s, kept);
    for (uint32_t i = 0; i < SEQS; i++) {
        uint32_t seq = s->oracle != NULL ? i : nth(k, i), before = s->oracle != NULL || k == 1 ? seq : nth(k - 1, seq);

        add_row(f, seq, PROMPT - 1 + k, -1, (int32_t)before, true);
    }
}

/* As many steps in flight as the device takes; draws of fails_seq fail in step fails_step. */
static void run_ring(struct subject *s, struct text *text, uint32_t fails_step, uint32_t fails_seq)
{
    uint32_t ring = s->backend->caps->ring < MOST_RING ? s->backend->caps->ring : MOST_RING, begun = 0;
    float *kept = rn_alloc(&heap, (size_t)MOST_RING * MAX_OUTS * s->n_vocab, 4);
    struct flight flights[MOST_RING];

    assert_true(ring >= 2 && rn_device_can(s->backend->caps, RN_CAN_DRAW));
    run_past(s);
    for (uint32_t k = 0; k < STEPS; k++) {
        for (; begun < STEPS && begun < k + ring; begun++) {
            struct flight *f = &flights[begun % ring];

            compose(f, s, begun, kept + (size_t)(begun % ring) * MAX_OUTS * s->n_vocab);
            f->fails_seq = begun == fails_step ? fails_seq : SEQS;
            submit(f);
        }
        await(&flights[k % ring], ORACLE_FAULT_NONE);
        assert_int_equal(flights[k % ring].step.status, RUNNEL_OK);
        note(text, k, &flights[k % ring], kept + (size_t)(k % ring) * MAX_OUTS * s->n_vocab, s->n_vocab);
        memset(&flights[k % ring], 0xee, sizeof flights[0]); /* it is the submitter's again */
    }
    rn_free(&heap, kept);
}

/* ---- Tests ---- */

static struct text new_text(uint32_t n_vocab)
{
    struct text text = {.logits = rn_calloc(&heap, (size_t)STEPS * SEQS * n_vocab, 4)};

    assert_non_null(text.logits);
    return text;
}

static const char *const names[] = {"c", "avx2", "avx512", "avx512-amx", "neon", "reference", "split", "oracle"};

static bool is_here(const char *name)
{
    return strcmp(name, "reference") == 0 || strcmp(name, "split") == 0 || strcmp(name, "oracle") == 0 ||
           rn_level_named(name) != NULL;
}

static void each(void (*test)(const struct rn_plan *plan, const char *name))
{
    struct model model = open_model(&heap, "oracles/arch/llama-dense.gguf", CONTEXT);

    lay_tables();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_here(names[i]))
            test(model.plan, names[i]);
    close_model(&model);
}

static void check_ring(const struct rn_plan *plan, const char *name)
{
    struct subject s;
    struct text alone, ahead;

    open_subject(&s, plan, name, false);
    alone = new_text(s.n_vocab);
    run_alone(&s, &alone);
    close_subject(&s);
    open_subject(&s, plan, name, true);
    ahead = new_text(s.n_vocab);
    run_ring(&s, &ahead, STEPS, SEQS);
    assert_memory_equal(alone.tokens, ahead.tokens, sizeof alone.tokens);
    assert_memory_equal(alone.status, ahead.status, sizeof alone.status);
    assert_memory_equal(alone.logits, ahead.logits, (size_t)STEPS * SEQS * s.n_vocab * 4);
    assert_true(alone.tokens[STEPS - 1][0] >= 0 && alone.logits[0] == alone.logits[0]);
    close_subject(&s);
    rn_free(&heap, alone.logits);
    rn_free(&heap, ahead.logits);
}

static void test_ring(void **state)
{
    (void)state;
    each(check_ring);
}

/* A draw that fails takes with it what depends on it, and nobody else. */
static void check_failure(const struct rn_plan *plan, const char *name)
{
    enum { AT = 3, SEQ = 1 };
    struct subject s;
    struct text good, bad;

    open_subject(&s, plan, name, true);
    good = new_text(s.n_vocab);
    bad = new_text(s.n_vocab);
    run_ring(&s, &good, STEPS, SEQS);
    run_ring(&s, &bad, AT, SEQ);
    for (uint32_t k = 0; k < STEPS; k++)
        for (uint32_t q = 0; q < SEQS; q++) {
            assert_int_equal(bad.status[k][q], q == SEQ && k >= AT ? RUNNEL_NUMERIC : RUNNEL_OK);
            if (bad.status[k][q] == RUNNEL_OK)
                assert_int_equal(bad.tokens[k][q], good.tokens[k][q]);
        }
    close_subject(&s);
    rn_free(&heap, good.logits);
    rn_free(&heap, bad.logits);
}

static void test_failure(void **state)
{
    (void)state;
    each(check_failure);
}

/* Rows behind a row that waits: a draft on a token that is still to be drawn. And what waits for nothing, or for a row
 * from which nothing was to be drawn. */
static void check_behind(const struct rn_plan *plan, const char *name)
{
    float *kept = rn_alloc(&heap, (size_t)MAX_OUTS * (plan->n_vocab > ORACLE_VOCAB ? plan->n_vocab : ORACLE_VOCAB), 4);
    struct flight f[3];
    struct subject s;
    int32_t token;

    open_subject(&s, plan, name, true);
    run_past(&s);
    prompt(&f[0], &s, NULL);
    f[0].draws[1].wanted = false;
    f[0].draws[1].keep_logits = kept;
    f[0].fails_seq = 2;
    memset(kept, 0xff, s.n_vocab * 4);
    submit(&f[0]);
    begin(&f[1], &s, NULL);
    for (uint32_t i = 0; i < SEQS; i++) {
        add_row(&f[1], i, PROMPT, -1, (int32_t)i, i == 0);
        add_row(&f[1], i, PROMPT + 1, 2, -1, true);
    }
    submit(&f[1]);
    await(&f[0], ORACLE_FAULT_NONE);
    await(&f[1], ORACLE_FAULT_NONE);
    token = f[0].draws[0].token;
    assert_true(kept[0] == kept[0]); /* logits alone were wanted, and came */
    assert_int_equal(f[0].draws[1].token, -1);
    assert_int_equal(atomic_load(&f[0].calls), 2);
    assert_int_equal(f[1].rows[0].token, token);
    assert_int_equal(f[1].draws[0].status, RUNNEL_OK);
    assert_int_equal(f[1].draws[1].status, RUNNEL_OK);
    assert_int_equal(f[1].draws[2].status, RUNNEL_STATE);
    assert_int_equal(f[1].draws[3].status, RUNNEL_NUMERIC);
    assert_int_equal(atomic_load(&f[1].calls), 2);
    begin(&f[2], &s, NULL); /* the step before has but four wanted rows */
    add_row(&f[2], 0, PROMPT + 2, 3, -1, true);
    add_row(&f[2], 0, PROMPT + 3, -1, 4, false);
    add_row(&f[2], 0, PROMPT + 4, 3, -1, true);
    submit(&f[2]);
    await(&f[2], ORACLE_FAULT_NONE);
    assert_int_equal(f[2].draws[0].status, RUNNEL_OK); /* it stands before what fails */
    assert_int_equal(f[2].draws[1].status, RUNNEL_STATE);
    close_subject(&s);
    rn_free(&heap, kept);
}

static void test_behind(void **state)
{
    (void)state;
    each(check_behind);
}

/* A step that fails as a whole fails those that wait for it; the device goes on. */
static void test_broken(void **state)
{
    const struct rn_plan plan = {.n_vocab = ORACLE_VOCAB};
    struct flight f[3];
    struct subject s;

    (void)state;
    lay_tables();
    open_subject(&s, &plan, "oracle", true);
    run_past(&s);
    for (uint32_t k = 0; k < 3; k++) {
        compose(&f[k], &s, k, NULL);
        submit(&f[k]);
    }
    await(&f[0], ORACLE_FAULT_NONE);
    await(&f[1], ORACLE_FAULT_DEVICE);
    await(&f[2], ORACLE_FAULT_NONE);
    assert_int_equal(f[1].step.status, RUNNEL_DEVICE);
    assert_int_equal(f[2].step.status, RUNNEL_OK);
    for (uint32_t i = 0; i < SEQS; i++) {
        assert_int_equal(f[0].draws[i].status, RUNNEL_OK);
        assert_int_equal(f[1].draws[i].status, RUNNEL_DEVICE);
        assert_int_equal(f[2].draws[i].status, RUNNEL_DEVICE);
    }
    close_subject(&s);
}

/* Step 1 behind the prompts, on its own, as run_alone had it. */
static void step_again(struct subject *s, const struct text *good, float *kept)
{
    struct flight f;

    begin(&f, s, kept);
    for (uint32_t i = 0; i < SEQS; i++)
        add_row(&f, i, PROMPT, good->tokens[0][i], -1, true);
    submit(&f);
    await(&f, ORACLE_FAULT_NONE);
    assert_int_equal(f.step.status, RUNNEL_OK);
    for (uint32_t i = 0; i < SEQS; i++) {
        assert_int_equal(f.draws[i].token, good->tokens[1][i]);
        assert_memory_equal(kept + (size_t)i * s->n_vocab, good->logits + (size_t)(SEQS + i) * s->n_vocab,
                            s->n_vocab * 4);
    }
}

static void check_nothing_drawn(const struct flight *f, uint32_t calls)
{
    assert_int_equal(f->step.n_outs, SEQS);
    for (uint32_t i = 0; i < SEQS; i++)
        assert_int_equal(f->draws[i].status, RUNNEL_CANCELLED);
    assert_int_equal(atomic_load(&f->calls), calls);
}

/* A step is stopped before it begins, another is in flight behind it; a third is stopped when all is computed. What was
 * there before them is as it was. */
static void check_stopped(const struct rn_plan *plan, const char *name)
{
    struct flight f[4];
    struct subject s;
    struct text good;
    float *kept;

    open_subject(&s, plan, name, true);
    kept = rn_alloc(&heap, (size_t)MAX_OUTS * s.n_vocab, 4);
    good = new_text(s.n_vocab);
    run_alone(&s, &good);
    run_past(&s);
    prompt(&f[0], &s, NULL);
    submit(&f[0]);
    await(&f[0], ORACLE_FAULT_NONE);
    for (uint32_t k = 1; k < 3; k++)
        compose(&f[k], &s, k, NULL);
    rn_stop_set(&f[1].stop);
    submit(&f[1]);
    submit(&f[2]);
    await(&f[1], ORACLE_FAULT_NONE);
    await(&f[2], ORACLE_FAULT_NONE);
    assert_int_equal(f[1].step.status, RUNNEL_CANCELLED);
    assert_int_equal(f[2].step.status, RUNNEL_OK); /* nobody has stopped it, but its rows have no tokens */
    check_nothing_drawn(&f[1], 0);
    check_nothing_drawn(&f[2], 0);
    step_again(&s, &good, kept);
    begin(&f[3], &s, NULL);
    f[3].stops_in_draw = true;
    for (uint32_t i = 0; i < SEQS; i++)
        add_row(&f[3], i, PROMPT, good.tokens[1][i], -1, true);
    submit(&f[3]);
    await(&f[3], ORACLE_FAULT_NONE);
    if (s.oracle == NULL) { /* the oracle looks before it begins */
        assert_int_equal(f[3].step.status, RUNNEL_CANCELLED);
        assert_true(atomic_load(&f[3].calls) >= 1);
        assert_int_equal(f[3].draws[SEQS - 1].status, RUNNEL_CANCELLED);
    }
    step_again(&s, &good, kept);
    close_subject(&s);
    rn_free(&heap, kept);
    rn_free(&heap, good.logits);
}

static void test_stopped(void **state)
{
    (void)state;
    each(check_stopped);
}

/* Stopped at any moment: it has come to its end, with what it always gives, or does not count. */
static void check_stopped_within(const struct rn_plan *plan, const char *name)
{
    struct subject s;
    struct text good;
    float *kept;

    if (strcmp(name, "oracle") == 0)
        return;
    open_subject(&s, plan, name, true);
    kept = rn_alloc(&heap, (size_t)MAX_OUTS * s.n_vocab, 4);
    good = new_text(s.n_vocab);
    run_alone(&s, &good);
    for (uint32_t trial = 0; trial < 60; trial++) {
        volatile uint32_t spin = trial * trial * 20;
        struct flight f;

        run_past(&s);
        prompt(&f, &s, kept);
        submit(&f);
        while (spin > 0)
            spin--;
        rn_stop_set(&f.stop);
        await(&f, ORACLE_FAULT_NONE);
        assert_true(f.step.status == RUNNEL_OK || f.step.status == RUNNEL_CANCELLED);
        if (f.step.status == RUNNEL_OK) {
            assert_memory_equal(kept, good.logits, (size_t)SEQS * s.n_vocab * 4);
        } else {
            check_nothing_drawn(&f, atomic_load(&f.calls));
            prompt(&f, &s, NULL);
            submit(&f);
            await(&f, ORACLE_FAULT_NONE);
        }
        step_again(&s, &good, kept);
    }
    close_subject(&s);
    rn_free(&heap, kept);
    rn_free(&heap, good.logits);
}

static void test_stopped_within(void **state)
{
    (void)state;
    each(check_stopped_within);
}

/* A device that draws by itself: no drawer, no logits, and a ring that is full all the while. */
static void test_itself(void **state)
{
    const struct rn_backend_limits limits = {.max_rows = SEQS,
                                             .max_seqs = SEQS,
                                             .max_outs = SEQS,
                                             .n_blocks = SEQS * CONTEXT / BLOCK,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .draws = true};
    struct device *device = device_new(&limits);
    struct subject s = {.backend = &device->backend, .n_vocab = DEVICE_VOCAB};
    struct flight flights[DEVICE_RING];
    uint32_t begun = 0;

    (void)state;
    assert_non_null(device);
    assert_true(rn_device_can(s.backend->caps, RN_CAN_DRAW | RN_CAN_DRAW_ITSELF));
    assert_int_equal(s.backend->caps->ring, DEVICE_RING);
    lay_tables();
    sem_init(&s.runner.done, 0, 0);
    s.runner.plan = &(const struct rn_plan){.n_vocab = DEVICE_VOCAB};
    s.runner.limits = limits;
    device->step_ns = 100000;
    for (uint32_t k = 0; k < STEPS; k++) {
        for (; begun < STEPS && begun < k + DEVICE_RING; begun++) {
            struct flight *f = &flights[begun % DEVICE_RING];

            begin(f, &s, NULL);
            f->step.drawer = NULL;
            for (uint32_t i = 0; i < SEQS; i++)
                add_row(f, i, begun, 1, begun == 0 ? -1 : (int32_t)i, true);
            submit(f);
        }
        await(&flights[k % DEVICE_RING], ORACLE_FAULT_NONE);
        for (uint32_t i = 0; i < SEQS; i++) {
            assert_int_equal(flights[k % DEVICE_RING].draws[i].status, RUNNEL_OK);
            assert_int_equal(flights[k % DEVICE_RING].draws[i].token, 'a' + k);
        }
    }
    assert_int_equal(device->n_steps, STEPS);
    device->step_ns = 3600 * 1000000000ull; /* who does not look whether it was stopped is late */
    begin(&flights[0], &s, NULL);
    for (uint32_t i = 0; i < SEQS; i++)
        add_row(&flights[0], i, STEPS, 1, -1, true);
    submit(&flights[0]);
    rn_stop_set(&flights[0].stop);
    await(&flights[0], ORACLE_FAULT_NONE);
    assert_int_equal(flights[0].step.status, RUNNEL_CANCELLED);
    check_nothing_drawn(&flights[0], 0);
    device_free(device);
    sem_destroy(&s.runner.done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),   cmocka_unit_test(test_failure), cmocka_unit_test(test_behind),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_stopped), cmocka_unit_test(test_stopped_within),
        cmocka_unit_test(test_itself),
    };
    int failed;

    if (!has_models())
        return 77;
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
