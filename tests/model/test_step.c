/* The checker of steps: a good step, and every way to break it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/backend.h"

static void on_done(struct rn_step *step)
{
    (void)step;
}

#define CAUGHT(place, statement)                           \
    do {                                                   \
        __typeof__(place) saved = (place);                 \
        statement;                                         \
        if (rn_step_check(&step, &plan, &limits))          \
            fail_msg("not caught: %s", #statement);        \
        (place) = saved;                                   \
        assert_true(rn_step_check(&step, &plan, &limits)); \
    } while (0)

static void breaches_are_caught(void **state)
{
    struct rn_plan plan = {.n_vocab = 10, .features_width = 2};
    const struct rn_backend_limits limits = {
        .max_rows = 6, .max_seqs = 3, .max_outs = 3, .n_blocks = 9, .block_tokens = 4, .context_tokens = 12};
    uint32_t first[] = {8, 0, 3}, second[] = {1};
    uint32_t feature_rows[] = {0, 1, 4};
    float logits[30], features[6];
    struct rn_step_seq seqs[] = {
        {first, 3, NULL, 0, NULL, 0, 0}, {second, 1, NULL, 0, NULL, 0, 0}, {second, 1, NULL, 0, NULL, 0, 0}};
    struct rn_step_row rows[] = {{9, 9, 0, -1}, {0, 10, 0, 0}, {1, 11, 0, 1},
                                 {2, 0, 1, -1}, {2, 1, 1, 2},  {0, 0, 2, -1}};
    struct rn_step_copy copies[] = {{5, 3}, {6, 1}, {0, 2}};
    struct rn_step step = {.n_rows = 5,
                           .n_seqs = 2,
                           .n_outs = 3,
                           .rows = rows,
                           .seqs = seqs,
                           .logits = logits,
                           .copies = copies,
                           .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(step.n_rows, step.n_rows = 0);
    CAUGHT(step.n_rows, step.n_rows = 7);
    CAUGHT(step.n_rows, step.n_rows = 4); /* one wanted row is missing */
    CAUGHT(step.n_seqs, step.n_seqs = 0);
    CAUGHT(step.n_seqs, step.n_seqs = 1);
    CAUGHT(step.n_seqs, step.n_seqs = 4);
    CAUGHT(step.n_outs, step.n_outs = 2);
    CAUGHT(step.n_outs, step.n_outs = 4);
    CAUGHT(step.logits, step.logits = NULL);
    CAUGHT(step.on_done, step.on_done = NULL);
    CAUGHT(seqs[0].n_blocks, seqs[0].n_blocks = 2); /* position 9 is in the third */
    CAUGHT(seqs[1].blocks, seqs[1].blocks = NULL);
    CAUGHT(first[1], first[1] = 9);
    CAUGHT(rows[0].token, rows[0].token = 10);
    CAUGHT(rows[0].token, rows[0].token = -1);
    CAUGHT(rows[0].position, rows[0].position = 8); /* a gap to row 1 */
    CAUGHT(rows[2].position, rows[2].position = 12);
    CAUGHT(rows[3].seq, rows[3].seq = 2);
    CAUGHT(rows[1].out, rows[1].out = -2);
    CAUGHT(rows[1].out, rows[1].out = 1);
    CAUGHT(rows[4].out, rows[4].out = 3);
    step.n_copies = 2;
    CAUGHT(step.copies, step.copies = NULL);
    CAUGHT(step.n_copies, step.n_copies = 3); /* more than sequences */
    CAUGHT(copies[0].from, copies[0].from = 9);
    CAUGHT(copies[0].to, copies[0].to = 9);
    CAUGHT(copies[0].to, copies[0].to = 5);     /* upon itself */
    CAUGHT(copies[0].to, copies[0].to = 1);     /* as the other */
    CAUGHT(copies[0].from, copies[0].from = 1); /* the other's target */
    CAUGHT(copies[0].to, copies[0].to = 7);     /* nobody writes there */
    step.n_copies = 1;
    CAUGHT(copies[0].from, copies[0].from = 1); /* row 3 writes what counts: the place before row 0's */
    copies[0] = (struct rn_step_copy){3, 1};    /* rows 0 to 2 write behind what counts: nothing */
    assert_true(rn_step_check(&step, &plan, &limits));
    step.n_copies = 0;
    step.n_features = 3;
    step.features = features;
    step.feature_rows = feature_rows;
    CAUGHT(step.features, step.features = NULL);
    CAUGHT(step.feature_rows, step.feature_rows = NULL);
    CAUGHT(plan.features_width, plan.features_width = 0);
    CAUGHT(step.early_features, step.early_features = true); /* of a plan without any */
    CAUGHT(feature_rows[1], feature_rows[1] = 0);
    CAUGHT(feature_rows[2], feature_rows[2] = 5);
    step.n_features = 0;
    CAUGHT(rows[2], (rows[2] = (struct rn_step_row){2, 3, 1, 1})); /* sequence 1 comes back... */
    step.n_rows = 6;
    step.n_seqs = 3;
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(rows[5], (rows[5] = (struct rn_step_row){0, 0, 0, -1})); /* ... and so does sequence 0, behind another */
}

static void no_logits_need_no_room(void **state)
{
    const struct rn_plan plan = {.n_vocab = 10};
    const struct rn_backend_limits limits = {
        .max_rows = 1, .max_seqs = 1, .max_outs = 1, .n_blocks = 1, .block_tokens = 4, .context_tokens = 4};
    const uint32_t block = 0;
    struct rn_step_seq seq = {.blocks = &block, .n_blocks = 1};
    struct rn_step_row row = {.out = -1};
    const struct rn_step step = {.n_rows = 1, .n_seqs = 1, .rows = &row, .seqs = &seq, .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
}

/* Two sequences whose tokens the step before draws. */
static void draws_are_looked_at(void **state)
{
    const struct rn_plan plan = {.n_vocab = 10};
    struct rn_backend_limits limits = {.max_rows = 2,
                                       .max_seqs = 2,
                                       .max_outs = 2,
                                       .n_blocks = 2,
                                       .block_tokens = 4,
                                       .context_tokens = 4,
                                       .draws = true};
    const uint32_t blocks[] = {0, 1};
    struct rn_step_seq seqs[] = {{&blocks[0], 1, NULL, 0, NULL, 0, 0}, {&blocks[1], 1, NULL, 0, NULL, 0, 0}};
    struct rn_step_row rows[] = {{-1, 0, 0, 0}, {3, 0, 1, 1}};
    struct rn_draw draws[2] = {{.want_top = RUNNEL_MAX_TOP_LOGPROBS}};
    struct rn_draw_count counts[] = {{3, 1}, {9, 2}};
    runnel_sampling sampling = {.n_biases = 1};
    int32_t drawn[] = {1, -1}, barred[] = {9};
    struct rn_step step = {.n_rows = 2,
                           .n_seqs = 2,
                           .n_outs = 2,
                           .rows = rows,
                           .seqs = seqs,
                           .draws = draws,
                           .drawn = drawn,
                           .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(drawn[0], drawn[0] = -1); /* its own token is none */
    CAUGHT(drawn[0], drawn[0] = 2);
    CAUGHT(drawn[1], drawn[1] = -2);
    CAUGHT(step.drawn, step.drawn = NULL);
    CAUGHT(step.draws, step.draws = NULL);
    CAUGHT(limits.draws, limits.draws = false);
    CAUGHT(draws[0].want_top, draws[0].want_top++);
    limits.max_changes = 4;
    draws[1].wanted = true;
    draws[1].sampling = &sampling;
    draws[1].changes = (struct rn_draw_changes){.counts = counts, .n_counts = 2, .barred = barred, .n_barred = 1};
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(limits.max_changes, limits.max_changes--);
    CAUGHT(sampling.n_biases, sampling.n_biases++);
    CAUGHT(counts[1].token, counts[1].token = (int32_t)plan.n_vocab);
    CAUGHT(barred[0], barred[0] = -1);
    CAUGHT(draws[1].wanted, draws[1].wanted = false);
    CAUGHT(draws[1].sampling, draws[1].sampling = NULL);
}

/* Two sequences with states, one of which begins, and a copy kept of the other's. */
static void states_are_looked_at(void **state)
{
    const struct rn_plan plan = {.n_vocab = 10, .state_bytes = 8};
    struct rn_backend_limits limits = {.max_rows = 2,
                                       .max_seqs = 2,
                                       .max_outs = 2,
                                       .n_blocks = 2,
                                       .block_tokens = 4,
                                       .context_tokens = 4,
                                       .tree_depth = 2,
                                       .n_states = 4};
    const uint32_t blocks[] = {0, 1};
    uint32_t slots[] = {3, 0};
    const int32_t parents[] = {-1, -1};
    struct rn_step_state_copy copies[] = {{RN_NO_STATE, 3}, {0, 1}};
    struct rn_step_seq seqs[] = {{&blocks[0], 1, NULL, 0, NULL, 0, 0}, {&blocks[1], 1, NULL, 0, NULL, 0, 0}};
    struct rn_step_row rows[] = {{1, 0, 0, -1}, {3, 2, 1, -1}};
    struct rn_step step = {.n_rows = 2,
                           .n_seqs = 2,
                           .rows = rows,
                           .seqs = seqs,
                           .states = slots,
                           .state_copies = copies,
                           .n_state_copies = 2,
                           .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(limits.n_states, limits.n_states = 0);
    CAUGHT(step.states, step.states = NULL);
    CAUGHT(step.state_copies, step.state_copies = NULL);
    CAUGHT(step.parents, step.parents = parents);
    CAUGHT(slots[0], slots[0] = 4);
    CAUGHT(slots[0], slots[0] = 0);
    CAUGHT(copies[0].from, copies[0].from = 4);
    CAUGHT(copies[1].to, copies[1].to = 4);
    CAUGHT(copies[1].to, copies[1].to = 3);
    CAUGHT(copies[1].from, copies[1].from = 3);
}

/* A row at position 100 sees positions 61 to 100 of layers with windows: blocks 1, 2 and 3. */
static void windows_have_their_blocks(void **state)
{
    const struct rn_plan plan = {.n_vocab = 10};
    struct rn_backend_limits limits = {.max_rows = 1,
                                       .max_seqs = 1,
                                       .max_outs = 1,
                                       .n_blocks = 4,
                                       .block_tokens = 32,
                                       .context_tokens = 128,
                                       .window = 40,
                                       .n_windows = 3};
    uint32_t blocks[] = {3, 1, 0, 2}, windows[] = {RN_NO_BLOCK, 2, 0, 1};
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = 4, .windows = windows, .n_windows = 4};
    struct rn_step_row row = {1, 100, 0, -1};
    struct rn_step step = {.n_rows = 1, .n_seqs = 1, .rows = &row, .seqs = &seq, .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(limits.window, limits.window = 0);
    CAUGHT(limits.n_windows, limits.n_windows = 2);
    CAUGHT(seq.windows, seq.windows = NULL);
    CAUGHT(seq.n_windows, seq.n_windows = 3);
    CAUGHT(windows[1], windows[1] = RN_NO_BLOCK);
    CAUGHT(windows[3], windows[3] = 3);
    CAUGHT(blocks[0], blocks[0] = RN_NO_BLOCK);
    CAUGHT(row.position, row.position = 70);
}

/* A tree of four rows behind position 6, in blocks of four, and moves of another sequence. */
static void trees_are_looked_at(void **state)
{
    const struct rn_plan plan = {.n_vocab = 10};
    struct rn_backend_limits limits = {.max_rows = 6,
                                       .max_seqs = 2,
                                       .max_outs = 6,
                                       .n_blocks = 9,
                                       .block_tokens = 4,
                                       .context_tokens = 12,
                                       .tree_depth = 2};
    uint32_t first[] = {8, 0, 3}, second[] = {1, 2};
    float logits[60];
    struct rn_step_seq seqs[] = {{first, 3, NULL, 0, NULL, 0, 0}, {second, 2, NULL, 0, NULL, 0, 0}};
    struct rn_step_row rows[] = {{9, 6, 0, 0}, {0, 7, 0, 1}, {1, 8, 0, 2}, {2, 7, 0, 3}, {2, 5, 1, 4}, {3, 6, 1, 5}};
    int32_t parents[] = {-1, 0, 1, 0, -1, 4};
    struct rn_step_move moves[] = {{1, 6, 3}, {1, 7, 4}};
    struct rn_step_copy copy = {5, 0};
    struct rn_step step = {.n_rows = 6,
                           .n_seqs = 2,
                           .n_outs = 6,
                           .rows = rows,
                           .seqs = seqs,
                           .logits = logits,
                           .parents = parents,
                           .moves = moves,
                           .n_moves = 2,
                           .copies = &copy,
                           .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
    assert_int_equal(rn_step_place(&step, 3), 9);
    assert_int_equal(rn_step_place(&step, 5), 6);
    CAUGHT(step.parents, step.parents = NULL);
    CAUGHT(parents[0], parents[0] = 0);
    CAUGHT(parents[3], parents[3] = 3);
    CAUGHT(parents[3], parents[3] = -1);
    CAUGHT(parents[2], parents[2] = 0); /* its position is not the one behind */
    CAUGHT(parents[5], parents[5] = 3); /* another sequence's */
    CAUGHT(rows[3].position, rows[3].position = 8);
    parents[2] = 0, rows[2].position = 7, parents[3] = 2, rows[3].position = 8; /* off the line, two behind the first */
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(limits.tree_depth, limits.tree_depth = 1); /* the last row's parent is its neighbour, but off the line */
    parents[2] = 1, rows[2].position = 8, parents[3] = 0, rows[3].position = 7;
    CAUGHT(limits.tree_depth, limits.tree_depth = 0);
    CAUGHT(limits.mean_window, limits.mean_window = 64);
    CAUGHT(limits.context_tokens, limits.context_tokens = 9); /* place 9 */
    CAUGHT(seqs[0].n_blocks, seqs[0].n_blocks = 2);           /* places 8 and 9 */
    CAUGHT(step.moves, step.moves = NULL);
    CAUGHT(moves[0].seq, moves[0].seq = 2);
    CAUGHT(moves[0].to, moves[0].to = 6);
    CAUGHT(moves[1].from, moves[1].from = 8);
    CAUGHT(moves[1].from, moves[1].from = 3); /* where the first one goes to */
    step.n_copies = 1;
    copy = (struct rn_step_copy){1, 0}; /* its first two positions count; a move writes behind them */
    assert_true(rn_step_check(&step, &plan, &limits));
    CAUGHT(moves[0].to, moves[0].to = 1);
}

/* A row at 257 with a window of 128 sees chunks 0 (exact), 1 as its mean, and positions from 128 on. */
static void means_have_their_blocks(void **state)
{
    const struct rn_plan plan = {.n_vocab = 10};
    struct rn_backend_limits limits = {.max_rows = 2,
                                       .max_seqs = 1,
                                       .max_outs = 1,
                                       .n_blocks = 9,
                                       .block_tokens = 32,
                                       .context_tokens = 512,
                                       .mean_window = 128};
    uint32_t blocks[] = {8, 7, RN_NO_BLOCK, RN_NO_BLOCK, 0, 1, 2, 3, 4}, mean = 5;
    struct rn_step_seq seqs[] = {{blocks, 9, &mean, 1, NULL, 0, 0}};
    struct rn_step_row rows[] = {{0, 257, 0, -1}};
    struct rn_step step = {.n_rows = 1, .n_seqs = 1, .rows = rows, .seqs = seqs, .on_done = on_done};

    (void)state;
    assert_true(rn_step_check(&step, &plan, &limits));
    for (uint32_t i = 0; i < 9; i++)
        if (blocks[i] != RN_NO_BLOCK)
            CAUGHT(blocks[i], blocks[i] = RN_NO_BLOCK);
    CAUGHT(blocks[2], blocks[2] = 9);
    CAUGHT(mean, mean = 9);
    CAUGHT(seqs[0].means, seqs[0].means = NULL);
    CAUGHT(seqs[0].n_means, seqs[0].n_means = 0);
    CAUGHT(rows[0].position, rows[0].position = 255); /* sees chunk 1 exactly, and ends chunk 3 */
    CAUGHT(limits.mean_window, limits.mean_window = 0);
    CAUGHT(limits.mean_window, limits.mean_window = 192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_looked_at),     cmocka_unit_test(states_are_looked_at),
        cmocka_unit_test(breaches_are_caught),     cmocka_unit_test(no_logits_need_no_room),
        cmocka_unit_test(means_have_their_blocks), cmocka_unit_test(windows_have_their_blocks),
        cmocka_unit_test(trees_are_looked_at)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
