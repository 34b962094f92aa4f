/* Attention of every SIMD level against a plain softmax in double precision over the same stored keys and
 * values: scattered blocks, grouped queries, windows, soft caps, long contexts, odd head sizes; and its
 * bits do not depend on the block numbers or the size of the blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/kernels.h"

enum { MAX_CONTEXT = 3008, MAX_DIM = 128, MAX_QUERIES = 8 };

static const char *const level_names[] = {"c", "avx2", "avx512"};

static struct rn_heap heap;
static uint64_t seed;

static float uniform(void)
{
    return (float)((double)(rn_splitmix64(&seed) >> 11) * 0x1p-52 - 1);
}

struct shape {
    uint32_t last, window, queries, k_dim, v_dim, block;
    float softcap;
    runnel_kv_type kv_type;
    uint32_t scatter; /* odd */
};

struct cache {
    uint8_t *keys, *values;
    uint32_t *blocks;
    double *k, *v; /* as stored, [context, dim] */
};

static double stored(const uint8_t *at, runnel_kv_type type)
{
    uint16_t half;
    float f;

    if (type == RUNNEL_KV_F32) {
        memcpy(&f, at, 4);
        return f;
    }
    memcpy(&half, at, 2);
    return type == RUNNEL_KV_F16 ? rn_f16_to_f32(half) : rn_bf16_to_f32(half);
}

/* The same numbers for every layout: position p's keys come from a generator of their own. */
static struct cache make_cache(const struct rn_level *level, const struct shape *s)
{
    uint32_t n_blocks = MAX_CONTEXT / s->block, element = rn_kv_element_bytes(s->kv_type), p, d;
    struct cache c;
    float k[MAX_DIM], v[MAX_DIM];
    uint8_t *at;

    c.keys = rn_alloc(&heap, (size_t)MAX_CONTEXT * s->k_dim, element);
    c.values = rn_alloc(&heap, (size_t)MAX_CONTEXT * s->v_dim, element);
    c.k = rn_alloc(&heap, (size_t)MAX_CONTEXT * s->k_dim, sizeof(double));
    c.v = rn_alloc(&heap, (size_t)MAX_CONTEXT * s->v_dim, sizeof(double));
    c.blocks = rn_alloc(&heap, n_blocks, sizeof *c.blocks);
    memset(c.keys, 0xff, (size_t)MAX_CONTEXT * s->k_dim * element); /* NaN: what was never written is not read */
    memset(c.values, 0xff, (size_t)MAX_CONTEXT * s->v_dim * element);
    for (p = 0; p < n_blocks; p++)
        c.blocks[p] = (uint32_t)((uint64_t)p * s->scatter % n_blocks);
    for (p = 0; p <= s->last; p++) {
        seed = p;
        for (d = 0; d < s->k_dim; d++)
            k[d] = uniform();
        for (d = 0; d < s->v_dim; d++)
            v[d] = uniform();
        at = c.keys + ((size_t)c.blocks[p / s->block] * s->block + p % s->block) * s->k_dim * element;
        level->rows->kv_store(at, k, s->k_dim, s->kv_type);
        for (d = 0; d < s->k_dim; d++)
            c.k[p * s->k_dim + d] = stored(at + (size_t)d * element, s->kv_type);
        at = c.values + ((size_t)c.blocks[p / s->block] * s->block + p % s->block) * s->v_dim * element;
        level->rows->kv_store(at, v, s->v_dim, s->kv_type);
        for (d = 0; d < s->v_dim; d++)
            c.v[p * s->v_dim + d] = stored(at + (size_t)d * element, s->kv_type);
    }
    return c;
}

static void free_cache(struct cache *c)
{
    rn_free(&heap, c->keys);
    rn_free(&heap, c->values);
    rn_free(&heap, c->k);
    rn_free(&heap, c->v);
    rn_free(&heap, c->blocks);
}

static uint32_t first_of(const struct shape *s)
{
    return s->window == 0 || s->last < s->window ? 0 : s->last + 1 - s->window;
}

static void plain(const struct shape *s, const struct cache *c, const float *q, float scale, double *out)
{
    double *p = rn_alloc(&heap, MAX_CONTEXT, sizeof *p), most = -INFINITY, sum = 0;
    uint32_t t, d;

    for (t = first_of(s); t <= s->last; t++) {
        p[t] = 0;
        for (d = 0; d < s->k_dim; d++)
            p[t] += q[d] * c->k[t * s->k_dim + d];
        p[t] *= scale;
        if (s->softcap > 0)
            p[t] = s->softcap * tanh(p[t] / s->softcap);
        most = fmax(most, p[t]);
    }
    for (d = 0; d < s->v_dim; d++)
        out[d] = 0;
    for (t = first_of(s); t <= s->last; t++) {
        sum += exp(p[t] - most);
        for (d = 0; d < s->v_dim; d++)
            out[d] += exp(p[t] - most) * c->v[t * s->v_dim + d];
    }
    for (d = 0; d < s->v_dim; d++)
        out[d] /= sum;
    rn_free(&heap, p);
}

static void attend(const struct rn_level *level, const struct shape *s, const struct cache *c, const float *q,
                   float scale, float *out)
{
    uint32_t element = rn_kv_element_bytes(s->kv_type);
    struct rn_attend t = {.q = q,
                          .out = out,
                          .queries = s->queries,
                          .k_dim = s->k_dim,
                          .v_dim = s->v_dim,
                          .first = first_of(s),
                          .last = s->last,
                          .scale = scale,
                          .softcap = s->softcap,
                          .blocks = c->blocks,
                          .block_shift = (uint32_t)__builtin_ctz(s->block),
                          .kv_type = s->kv_type,
                          .keys = c->keys,
                          .values = c->values,
                          .key_stride = (size_t)s->block * s->k_dim * element,
                          .value_stride = (size_t)s->block * s->v_dim * element};

    t.scratch = rn_alloc_aligned(&heap, rn_attend_floats(s->queries, s->k_dim, s->v_dim) * sizeof(float), 64);
    level->rows->attend(&t);
    rn_free(&heap, t.scratch);
}

static void check_shape(const struct rn_level *level, const struct shape *s)
{
    float q[MAX_QUERIES * MAX_DIM], out[MAX_QUERIES * MAX_DIM], other[MAX_QUERIES * MAX_DIM], scale = 0.5f;
    struct shape layout = *s, single = *s;
    double want[MAX_DIM], error = 0, norm = 0;
    struct cache c = make_cache(level, s), c2;
    uint32_t g, d;

    seed = 1u << 30;
    for (d = 0; d < s->queries * s->k_dim; d++)
        q[d] = 3 * uniform();
    attend(level, s, &c, q, scale, out);
    for (g = 0; g < s->queries; g++) {
        plain(s, &c, q + g * s->k_dim, scale, want);
        for (d = 0; d < s->v_dim; d++) {
            error += (out[g * s->v_dim + d] - want[d]) * (out[g * s->v_dim + d] - want[d]);
            norm += want[d] * want[d];
        }
    }
    if (!(error <= 1e-11 * norm))
        fail_msg("%s: position %u, window %u, dims %u %u: NMSE %g", level->name, s->last, s->window, s->k_dim, s->v_dim,
                 error / norm);
    layout.block = s->block == 32 ? 8 : 32;
    layout.scatter = 1;
    c2 = make_cache(level, &layout);
    attend(level, &layout, &c2, q, scale, other);
    assert_memory_equal(out, other, s->queries * s->v_dim * sizeof(float));
    single.queries = 1; /* a query alone, as among those that share its keys */
    attend(level, &single, &c, q + (s->queries - 1) * s->k_dim, scale, other);
    assert_memory_equal(out + (s->queries - 1) * s->v_dim, other, s->v_dim * sizeof(float));
    free_cache(&c);
    free_cache(&c2);
}

static void test_shapes(void **state)
{
    static const struct shape shapes[] = {
        {0, 0, 1, 64, 64, 16, 0, RUNNEL_KV_F32, 3},      {1, 0, 4, 64, 64, 16, 0, RUNNEL_KV_F16, 3},
        {31, 0, 1, 128, 128, 16, 0, RUNNEL_KV_F16, 5},   {32, 0, 8, 64, 64, 32, 0, RUNNEL_KV_BF16, 7},
        {63, 0, 2, 80, 80, 16, 0, RUNNEL_KV_F16, 11},    {100, 0, 3, 12, 20, 16, 0, RUNNEL_KV_F32, 3},
        {100, 0, 3, 13, 7, 16, 0, RUNNEL_KV_F16, 3},     {500, 100, 4, 64, 64, 16, 0, RUNNEL_KV_F16, 3},
        {500, 1, 4, 64, 64, 16, 0, RUNNEL_KV_F32, 3},    {500, 501, 2, 64, 32, 16, 0, RUNNEL_KV_F16, 3},
        {511, 33, 2, 64, 64, 64, 30, RUNNEL_KV_BF16, 3}, {700, 0, 8, 96, 96, 16, 5, RUNNEL_KV_F16, 9},
        {2999, 0, 4, 64, 64, 16, 0, RUNNEL_KV_F16, 77},  {2999, 1024, 1, 128, 128, 32, 50, RUNNEL_KV_F32, 5},
    };
    const struct rn_level *level;
    size_t l, i;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < sizeof shapes / sizeof *shapes; i++)
            check_shape(level, &shapes[i]);
    }
}

/* Large scores neither overflow nor lose the winner; NaN in a key is seen in the result. */
static void test_extremes(void **state)
{
    const struct shape s = {40, 0, 1, 8, 8, 8, 0, RUNNEL_KV_F32, 3};
    float q[8], out[8], nan = NAN;
    const struct rn_level *level;
    struct cache c;
    size_t l, i;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        c = make_cache(level, &s);
        for (i = 0; i < 8; i++)
            q[i] = (float)(1e6 * c.k[17 * 8 + i]);
        attend(level, &s, &c, q, 1, out);
        for (i = 0; i < 8; i++)
            assert_true(isfinite(out[i]) && fabsf(out[i]) <= 1);
        memcpy(c.keys + ((size_t)c.blocks[2] * 8 + 1) * 8 * 4, &nan, 4);
        attend(level, &s, &c, q, 1, out);
        for (i = 0; i < 8; i++)
            assert_true(isnan(out[i]));
        free_cache(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_extremes)};
    int failed;

    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
