/* Rows of a step are drawn in any order and by any thread's scratch: the same tokens as one after the other with the
 * state told of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "actors/batch.h"
#include "actors/draw_rows.h"
#include "actors/grammar/guide.h"
#include "actors/request.h"
#include "base/rng.h"
#include "model/draw_mask.h"

#define VOCAB 9
#define CHAIN 5
#define LEAVES 3
#define ROWS (1 + CHAIN + LEAVES)

/* The row that row i stands behind: a chain, and leaves beside its first drafts. */
static uint32_t parent_of(uint32_t i)
{
    return i <= CHAIN ? i - 1 : i - CHAIN - 1;
}

static void compose(struct rn_batch *batch, const struct rn_sampler *sampler, uint64_t *rng)
{
    batch->step.n_outs = ROWS;
    for (uint32_t i = 0; i < ROWS; i++) {
        struct rn_batch_out *out = &batch->outs[i];

        *out = (struct rn_batch_out){.sampler = sampler, .sample = true, .want_logprobs = true, .position = 30};
        if (i == 0)
            continue;
        out->follows = true;
        out->behind = i - parent_of(i);
        out->position = batch->outs[parent_of(i)].position + 1;
        out->draft = (int32_t)(rn_splitmix64(rng) % VOCAB);
    }
}

/* What row i draws when a state of its own has been told of all that is in front of it. */
static struct rn_pick told(struct rn_heap *heap, const runnel_sampling *params, const struct rn_batch *batch,
                           uint32_t i, const float *logits, const int32_t *past, uint32_t n_past)
{
    struct rn_sampler *sampler = rn_sampler_new(heap, params, VOCAB, 64);
    struct rn_sampler_scratch *scratch = rn_sampler_scratch_new(heap, VOCAB);
    struct rn_pick pick;
    int32_t path[ROWS];
    uint32_t n = 0;

    for (uint32_t t = 0; t < n_past; t++)
        rn_sampler_accept(sampler, past[t]);
    for (uint32_t r = i; r > 0; r = parent_of(r))
        path[n++] = batch->outs[r].draft;
    while (n-- > 0)
        rn_sampler_accept(sampler, path[n]);
    assert_int_equal(rn_sampler_pick(sampler, scratch, logits, batch->outs[i].position + 1, true, 0, &pick), RUNNEL_OK);
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
    return pick;
}

/* The same draws in the step, row by row in that order and on two threads' scratches, and when it is done: what is not
 * refuted is what was drawn before, and logits that are wanted are kept. */
static void check_ways(struct rn_heap *heap, struct rn_batch *batch, float logits[ROWS][VOCAB], float kept[ROWS][VOCAB],
                       const uint32_t order[ROWS])
{
    static const struct rn_device_caps drawing = {.can = RN_CAN_DRAW, .draw_threads = 2}, other = {.draw_threads = 2};
    int32_t tokens[ROWS];

    for (uint32_t i = 0; i < ROWS; i++)
        tokens[i] = batch->outs[i].pick.token;
    batch->step.logits = logits[0];
    for (uint32_t way = 0; way < 2; way++) {
        const struct rn_backend backend = {.caps = way == 0 ? &drawing : &other};
        uint32_t n_true = 0;

        memset(kept, 0, ROWS * sizeof kept[0]);
        for (uint32_t i = 0; i < ROWS; i++)
            batch->outs[i].pick.token = -1;
        assert_int_equal(rn_draws_init(batch, heap, &backend, ROWS), RUNNEL_OK);
        rn_draws_ask(batch);
        assert_int_equal(batch->step.draws != NULL, way == 0);
        for (uint32_t i = 0; way == 0 && i < ROWS; i++)
            rn_draw_one(&batch->step, order[i], logits[order[i]], VOCAB, i % 2);
        if (way == 0)
            rn_draws_take(batch, NULL);
        else {
            struct rn_sampler_scratch *scratch = rn_sampler_scratch_new(heap, VOCAB);

            rn_draws_take(batch, scratch);
            rn_sampler_scratch_free(scratch);
        }
        for (uint32_t i = 0; i < ROWS; i++) {
            if (batch->outs[i].refuted)
                continue;
            n_true++;
            assert_int_equal(batch->outs[i].status, RUNNEL_OK);
            assert_int_equal(batch->outs[i].pick.token, tokens[i]);
            if (i % 2)
                assert_memory_equal(kept[i], logits[i], sizeof logits[i]);
        }
        assert_true(n_true > 0);
        rn_draws_fini(batch, heap);
        batch->draws = NULL;
        batch->scratch = NULL;
        batch->n_scratch = 0;
        batch->drawer = (struct rn_drawer){0};
        batch->step.draws = NULL;
    }
}

static void rows_in_any_order(void **state)
{
    uint64_t rng = 3;

    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        runnel_sampling params = {.temperature = round % 4 ? 1 : 0,
                                  .top_p = 1,
                                  .repetition_penalty = 1.2f,
                                  .frequency_penalty = 0.5f,
                                  .penalty_tokens = round % 3 * 4,
                                  .seed = round};
        float logits[ROWS][VOCAB], kept[ROWS][VOCAB];
        struct rn_batch_out outs[ROWS];
        struct rn_batch batch = {.outs = outs, .n_vocab = VOCAB};
        struct rn_sampler_scratch *scratch[2];
        struct rn_sampler *sampler;
        int32_t past[20];
        uint32_t order[ROWS];
        struct rn_heap heap;

        rn_heap_init(&heap, NULL);
        sampler = rn_sampler_new(&heap, &params, VOCAB, 64);
        for (uint32_t i = 0; i < 2; i++)
            scratch[i] = rn_sampler_scratch_new(&heap, VOCAB);
        for (uint32_t i = 0; i < 20; i++)
            rn_sampler_accept(sampler, past[i] = (int32_t)(rn_splitmix64(&rng) % VOCAB));
        compose(&batch, sampler, &rng);
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t other = (uint32_t)(rn_splitmix64(&rng) % (i + 1));

            for (uint32_t v = 0; v < VOCAB; v++)
                logits[i][v] = (float)(rn_splitmix64(&rng) % 1000) / 250;
            outs[i].keep_logits = i % 2 ? kept[i] : NULL;
            order[i] = order[other];
            order[other] = i;
        }
        for (uint32_t i = 0; i < ROWS; i++)
            rn_draw_row(&batch, order[i], logits[order[i]], scratch[i % 2]);
        for (uint32_t i = 0; i < ROWS; i++) {
            struct rn_pick right = told(&heap, &params, &batch, i, logits[i], past, 20);

            assert_int_equal(outs[i].status, RUNNEL_OK);
            assert_int_equal(outs[i].pick.token, right.token);
            assert_memory_equal(&outs[i].pick.logprob, &right.logprob, sizeof right.logprob);
        }
        check_ways(&heap, &batch, logits, kept, order);
        for (uint32_t i = 0; i < 2; i++)
            rn_sampler_scratch_free(scratch[i]);
        rn_sampler_free(sampler);
        assert_int_equal(rn_heap_blocks(&heap), 0);
    }
}

/* ---- A device that draws by itself ---- */

/* What such a device does, from what goes down alone. */
static void device_draws(struct rn_heap *heap, struct rn_draw *draw, const float logits[VOCAB])
{
    struct rn_sampler *sampler = rn_sampler_new(heap, draw->sampling, VOCAB, 0);
    struct rn_sampler_scratch *scratch = rn_sampler_scratch_new(heap, VOCAB);
    const struct rn_mask mask = {draw->mask == NULL ? NULL : draw->mask->words, true};
    struct rn_pick pick;

    assert_int_equal(draw->seed, draw->sampling->seed);
    assert_true(draw->mask == NULL || rn_draw_mask_is_there(draw->mask));
    draw->status = rn_sampler_pick_masked(sampler, (struct rn_path){NULL, 0}, draw->mask == NULL ? NULL : &mask,
                                          scratch, logits, draw->position, draw->want_logprob, draw->want_top, &pick);
    draw->token = pick.token;
    draw->logprob = pick.logprob;
    draw->n_top = pick.n_top;
    memcpy(draw->top, pick.top, pick.n_top * sizeof pick.top[0]);
    rn_sampler_scratch_free(scratch);
    rn_sampler_free(sampler);
}

/* Rows of two requests, of which the second has penalties: its logits come up, and the sampler draws. */
static void device_draws_by_itself(void **state)
{
    static const struct rn_device_caps caps = {.can = RN_CAN_DRAW | RN_CAN_DRAW_ITSELF};
    const struct rn_backend backend = {.caps = &caps};
    const runnel_logit_bias biases[] = {{.token = 3, .bias = 0.5f}, {.token = 5, .bias = -1.0f}};
    struct rn_sampler_scratch *scratch;
    float logits[ROWS][VOCAB], late[ROWS][VOCAB];
    uint64_t rng = 11;
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, VOCAB);
    for (uint32_t round = 0; round < 100; round++) {
        runnel_sampling params = {.temperature = round % 4 ? 0.8f : 0,
                                  .top_p = round % 3 ? 1 : 0.8f,
                                  .top_k = round % 5,
                                  .repetition_penalty = 1,
                                  .biases = biases,
                                  .n_biases = round % 2 ? 2 : 0,
                                  .seed = round};
        struct rn_sampler *plain = rn_sampler_new(&heap, &params, VOCAB, 64), *penalised;
        struct rn_batch_out outs[ROWS] = {{0}};
        struct rn_batch batch = {.outs = outs, .n_vocab = VOCAB, .step.n_outs = ROWS};
        runnel_status status = rn_draws_init(&batch, &heap, &backend, ROWS);

        params.presence_penalty = 2;
        penalised = rn_sampler_new(&heap, &params, VOCAB, 64);
        rn_sampler_accept(penalised, (int32_t)(round % VOCAB));
        assert_int_equal(status, RUNNEL_OK);
        assert_true(!rn_sampler_reads_past(plain) && rn_sampler_reads_past(penalised));
        for (uint32_t i = 0; i < ROWS; i++) {
            outs[i] = (struct rn_batch_out){.sampler = i % 2 ? penalised : plain,
                                            .sample = true,
                                            .position = 7 + i,
                                            .want_logprobs = i % 3 == 0,
                                            .n_top = 4,
                                            .late_logits = i % 2 ? late[i] : NULL};
            for (uint32_t v = 0; v < VOCAB; v++)
                logits[i][v] = (float)(rn_splitmix64(&rng) % 1000) / 250;
        }
        rn_draws_ask(&batch);
        assert_null(batch.step.drawer);
        for (uint32_t i = 0; i < ROWS; i++) {
            struct rn_draw *draw = &batch.step.draws[i];

            assert_int_equal(draw->wanted, i % 2 == 0);
            if (draw->wanted)
                device_draws(&heap, draw, logits[i]);
            else
                memcpy(draw->keep_logits, logits[i], sizeof logits[i]);
        }
        rn_draws_take(&batch, scratch);
        for (uint32_t i = 0; i < ROWS; i++) {
            struct rn_pick right;

            assert_int_equal(rn_sampler_pick(outs[i].sampler, scratch, logits[i], outs[i].position + 1,
                                             outs[i].want_logprobs, outs[i].n_top, &right),
                             RUNNEL_OK);
            assert_int_equal(outs[i].status, RUNNEL_OK);
            assert_int_equal(outs[i].pick.token, right.token);
            assert_memory_equal(&outs[i].pick.logprob, &right.logprob, sizeof right.logprob);
            assert_int_equal(outs[i].pick.n_top, right.n_top);
            assert_memory_equal(outs[i].pick.top, right.top, right.n_top * sizeof right.top[0]);
        }
        rn_draws_fini(&batch, &heap);
        rn_sampler_free(plain);
        rn_sampler_free(penalised);
    }
    rn_sampler_scratch_free(scratch);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Rows of a grammar: the device has the mask in time and draws; or gives the logits, and the sampler draws. What the
 * device has drawn is taken as it is, which a token shows that the chain would not draw. */
static void device_draws_with_masks(void **state)
{
    static const struct rn_device_caps caps = {.can = RN_CAN_DRAW | RN_CAN_DRAW_ITSELF};
    const struct rn_backend backend = {.caps = &caps};
    const runnel_sampling params = {.temperature = 0.8f, .top_p = 0.9f, .repetition_penalty = 1, .seed = 3};
    _Alignas(16) unsigned char place[sizeof(struct rn_draw_mask) + sizeof(uint64_t)];
    struct rn_draw_mask *mask = (struct rn_draw_mask *)(void *)place;
    uint64_t words = 0, rng = 5;
    float logits[VOCAB], late[VOCAB];
    struct rn_guide_row row = {.may_end = true};
    struct rn_guide guide = {
        .words = 1, .n_vocab = VOCAB, .keeps_logits = true, .n_rows = 1, .rows = &row, .masks = &words, .logits = late};
    struct rn_request request = {.guide = &guide};
    struct rn_batch_out out = {
        .request = &request, .sample = true, .want_logprobs = true, .n_top = 2, .guided = true, .mask = mask};
    struct rn_batch batch = {.outs = &out, .n_vocab = VOCAB, .step.n_outs = 1};
    struct rn_sampler_scratch *scratch;
    struct rn_sampler *sampler;
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, VOCAB);
    out.sampler = sampler = rn_sampler_new(&heap, &params, VOCAB, 64);
    assert_int_equal(rn_draws_init(&batch, &heap, &backend, 1), RUNNEL_OK);
    for (uint32_t round = 0; round < 60; round++) {
        const struct rn_mask allowed = {&words, true};
        struct rn_draw *draw = batch.draws;
        struct rn_pick right;

        for (uint32_t v = 0; v < VOCAB; v++)
            logits[v] = (float)(rn_splitmix64(&rng) % 1000) / 250;
        words = rn_splitmix64(&rng) | 1;
        rn_draw_mask_clear(mask);
        rn_word_set(&row.state, RN_GUIDE_MASKED);
        rn_draws_ask(&batch);
        assert_true(draw->wanted && draw->mask == mask && draw->late_logits == late);
        if (round % 3 == 0) {
            memcpy(draw->late_logits, logits, sizeof logits);
            draw->is_late = true;
        } else {
            rn_draw_mask_put(mask, &words, 1, true);
            device_draws(&heap, draw, logits);
        }
        assert_int_equal(rn_sampler_pick_masked(sampler, (struct rn_path){NULL, 0}, &allowed, scratch, logits,
                                                out.position + 1, true, 2, &right),
                         RUNNEL_OK);
        if (round % 3 == 1)
            draw->token = right.token = right.token + 1;
        rn_draws_take(&batch, scratch);
        assert_int_equal(out.status, RUNNEL_OK);
        assert_int_equal(out.pick.token, right.token);
        assert_memory_equal(&out.pick.logprob, &right.logprob, sizeof right.logprob);
        assert_int_equal(out.pick.n_top, right.n_top);
    }
    rn_draws_fini(&batch, &heap);
    rn_sampler_free(sampler);
    rn_sampler_scratch_free(scratch);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_in_any_order), cmocka_unit_test(device_draws_by_itself),
                                       cmocka_unit_test(device_draws_with_masks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
