/* See small_plan.h. */
#include "tests/gpu/rigs/small_plan.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { TABLE, NORM, PRODUCT, BIAS, OUTPUT };
#define EPS 1e-5

static void fill(uint64_t *rng, float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (float)((double)(rn_splitmix64(rng) >> 11) / (1ull << 52) - 1);
}

static void set_weight(struct small_plan *small, int index, const char *name, const float *data, uint32_t cols,
                       uint32_t rows)
{
    small->tensors[index] = (struct rn_tensor){.name = {name, strlen(name)},
                                               .n_dims = 2,
                                               .dims = {cols, rows, 1, 1},
                                               .elements = (uint64_t)cols * rows,
                                               .bytes = (uint64_t)cols * rows * sizeof(float),
                                               .data = data};
    small->weights[index] = (struct rn_weight){.tensor = &small->tensors[index],
                                               .type = rn_type(0),
                                               .cols = cols,
                                               .rows = rows,
                                               .experts = 1,
                                               .row_bytes = cols * sizeof(float)};
    small->plan.weight_bytes += small->tensors[index].bytes;
}

static void set_ops(struct small_plan *small)
{
    const struct rn_op none = {.out = -1, .out2 = -1, .a = -1, .b = -1, .weight = -1, .bias = -1, .layer = -1};

    for (int i = 0; i < SMALL_OPS; i++)
        small->ops[i] = none;
    small->ops[0].kind = RN_OP_EMBED;
    small->ops[0].out = 0;
    small->ops[0].weight = TABLE;
    small->ops[0].scale = 2;
    small->ops[1].kind = RN_OP_RMS_NORM;
    small->ops[1].a = 0;
    small->ops[1].out = 1;
    small->ops[1].weight = NORM;
    small->ops[1].eps = EPS;
    small->ops[2].kind = RN_OP_MATMUL;
    small->ops[2].a = 1;
    small->ops[2].out = 2;
    small->ops[2].weight = PRODUCT;
    small->ops[2].bias = BIAS;
    small->ops[3].kind = RN_OP_ADD;
    small->ops[3].a = 0;
    small->ops[3].b = 2;
    small->ops[3].out = 1;
    small->ops[4].kind = RN_OP_MATMUL;
    small->ops[4].a = 1;
    small->ops[4].out = 3;
    small->ops[4].weight = OUTPUT;
}

void small_plan_init(struct small_plan *small, uint64_t seed)
{
    uint64_t rng = seed;

    memset(small, 0, sizeof *small);
    fill(&rng, small->table, sizeof small->table / sizeof(float));
    fill(&rng, small->norm, sizeof small->norm / sizeof(float));
    fill(&rng, small->product, sizeof small->product / sizeof(float));
    fill(&rng, small->bias, sizeof small->bias / sizeof(float));
    fill(&rng, small->output, sizeof small->output / sizeof(float));
    set_weight(small, TABLE, "table", small->table, SMALL_WIDTH, SMALL_VOCAB);
    set_weight(small, NORM, "norm", small->norm, SMALL_WIDTH, 1);
    set_weight(small, PRODUCT, "product", small->product, SMALL_WIDTH, SMALL_WIDTH);
    set_weight(small, BIAS, "bias", small->bias, SMALL_WIDTH, 1);
    set_weight(small, OUTPUT, "output", small->output, SMALL_WIDTH, SMALL_VOCAB);
    set_ops(small);
    for (int i = 0; i < SMALL_SLOTS; i++)
        small->slots[i].width = i == SMALL_SLOTS - 1 ? SMALL_VOCAB : SMALL_WIDTH;
    small->layer = (struct rn_kv_layer){.k_width = SMALL_KV, .v_width = SMALL_KV, .kv_heads = 2};
    strcpy(small->plan.architecture, "small");
    small->plan.n_vocab = SMALL_VOCAB;
    small->plan.embedding = SMALL_WIDTH;
    small->plan.context_tokens = 256;
    small->plan.n_ops = SMALL_OPS;
    small->plan.n_slots = SMALL_SLOTS;
    small->plan.n_weights = SMALL_WEIGHTS;
    small->plan.n_kv_layers = 1;
    small->plan.ops = small->ops;
    small->plan.slots = small->slots;
    small->plan.weights = small->weights;
    small->plan.kv_layers = &small->layer;
    small->plan.logits_slot = SMALL_SLOTS - 1;
}

/* out = matrix · a */
static void multiply(const float *matrix, uint32_t rows, const double *a, double *out)
{
    for (uint32_t r = 0; r < rows; r++) {
        out[r] = 0;
        for (uint32_t c = 0; c < SMALL_WIDTH; c++)
            out[r] += (double)matrix[r * SMALL_WIDTH + c] * a[c];
    }
}

void small_plan_logits(const struct small_plan *small, int32_t token, double logits[SMALL_VOCAB])
{
    double x[SMALL_WIDTH], normed[SMALL_WIDTH], y[SMALL_WIDTH], square = 0;

    for (uint32_t i = 0; i < SMALL_WIDTH; i++) {
        x[i] = 2.0 * small->table[(uint32_t)token * SMALL_WIDTH + i];
        square += x[i] * x[i];
    }
    for (uint32_t i = 0; i < SMALL_WIDTH; i++)
        normed[i] = x[i] / sqrt(square / SMALL_WIDTH + EPS) * small->norm[i];
    multiply(small->product, SMALL_WIDTH, normed, y);
    for (uint32_t i = 0; i < SMALL_WIDTH; i++)
        x[i] += y[i] + small->bias[i];
    multiply(small->output, SMALL_VOCAB, x, logits);
}
