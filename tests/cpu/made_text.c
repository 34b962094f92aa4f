/* See made_text.h. */
#include "tests/cpu/made_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT = 9, LONG = 20, WIDTH = 64, CONTEXT = 64, BLOCK = 16, N_BLOCKS = CONTEXT / BLOCK };

uint32_t made_rows(const char *name)
{
    return strstr(name, "-chosen") != NULL ? LONG : SHORT;
}

struct rn_backend_limits made_limits(const struct rn_plan *plan, uint32_t n_rows)
{
    return (struct rn_backend_limits){.max_rows = n_rows,
                                      .max_seqs = 1,
                                      .max_outs = n_rows,
                                      .n_blocks = N_BLOCKS,
                                      .block_tokens = BLOCK,
                                      .context_tokens = plan->context_tokens < CONTEXT ? plan->context_tokens : CONTEXT,
                                      .kv_type = RUNNEL_KV_F32,
                                      .n_states = plan->state_bytes > 0 ? 2 : 0};
}

struct made_result made_result_new(struct rn_heap *heap, const struct rn_plan *plan, uint32_t n_rows)
{
    struct made_result r = {rn_calloc(heap, (size_t)n_rows * plan->n_vocab, sizeof(float)),
                            rn_calloc(heap, (size_t)n_rows * plan->features_width + 1, sizeof(float))};

    assert_true(r.logits != NULL && r.features != NULL);
    return r;
}

void made_result_free(struct rn_heap *heap, struct made_result *result)
{
    rn_free(heap, result->logits);
    rn_free(heap, result->features);
}

bool made_result_same(const struct made_result *a, const struct made_result *b, const struct rn_plan *plan,
                      uint32_t n_rows)
{
    size_t n_logits = (size_t)n_rows * plan->n_vocab, n_features = (size_t)n_rows * plan->features_width;

    return memcmp(a->logits, b->logits, n_logits * sizeof(float)) == 0 &&
           memcmp(a->features, b->features, n_features * sizeof(float)) == 0;
}

void made_text_run(struct runner *r, uint32_t n_rows, uint32_t chunk, struct made_result *result)
{
    static const uint32_t blocks[N_BLOCKS] = {2, 0, 3, 1};
    static float inputs[LONG * WIDTH];
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = N_BLOCKS};
    struct rn_step_state_copy fresh = {RN_NO_STATE, 1};
    const uint32_t state = fresh.to;
    struct rn_step_row rows[LONG];
    bool encodes = r->plan->logits_slot < 0; /* features alone */

    assert_true(n_rows <= LONG && r->plan->inputs_width <= WIDTH);
    for (uint32_t i = 0; i < LONG * WIDTH; i++)
        inputs[i] = (float)(int32_t)(i * 2654435761u) * 0x1p-31f; /* Knuth's multiplier: in [-1, 1) */
    for (uint32_t at = 0; at < n_rows; at += chunk) {
        struct rn_step step = {.rows = rows,
                               .seqs = &seq,
                               .n_seqs = 1,
                               .n_rows = n_rows - at < chunk ? n_rows - at : chunk,
                               .logits = encodes ? NULL : result->logits + (size_t)at * r->plan->n_vocab};

        step.n_outs = encodes ? 0 : step.n_rows;
        if (r->limits.n_states > 0) {
            step.states = &state;
            step.state_copies = &fresh;
            step.n_state_copies = at == 0;
        }
        if (r->plan->inputs_width > 0)
            step.inputs = inputs + (size_t)at * WIDTH;
        if (r->plan->features_width > 0)
            step.features = result->features + (size_t)at * r->plan->features_width;
        for (uint32_t i = 0; i < step.n_rows; i++)
            rows[i] = (struct rn_step_row){(int32_t)((at + i) * 37 + 11) % (int32_t)r->plan->n_vocab, at + i, 0,
                                           encodes ? -1 : (int32_t)i};
        run_step(r, &step);
    }
}
