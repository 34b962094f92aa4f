/* Attention of every SIMD level against a plain softmax in double precision over the same stored keys and
 * values: scattered blocks, grouped queries, windows, soft caps, long contexts, odd head sizes; and its
 * bits do not depend on the block numbers or the size of the blocks, on the rows and queries beside, on what they see
 * and this one does not, on how the segments are spread, or on the level, but for that of a matrix unit. */
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
#include "tests/cpu/amx_emulator.h"
#include "tests/slow.h"

enum { MAX_CONTEXT = 10048, MAX_DIM = 128, MAX_LANES = 64 };

static const char *const level_names[] = {"c", "avx2", "avx512", "avx512-amx", "neon"};

static struct rn_heap heap;
static uint64_t seed;
static bool fronts; /* values are the front of the keys */

static float uniform(void)
{
    return (float)((double)(rn_splitmix64(&seed) >> 11) * 0x1p-52 - 1);
}

struct shape {
    uint32_t last, window, queries, k_dim, v_dim, block;
    float softcap;
    runnel_kv_type kv_type;
    uint32_t scatter; /* odd */
    uint32_t rows;    /* row i is at position last + 1 - rows + i */
    float slope;      /* of query number 0; of each other one half of that before it */
    float sink;       /* of query number 0; each other's is 1 less. 0: none has one */
};

struct cache {
    uint8_t *keys, *values;
    uint32_t *blocks;
    double *k, *v; /* as stored, [context, dim]; NULL: not for a judge */
};

/* The matrix of kv.h times the root of its size, written out as its definition; those of fewer rows are its
 * beginning. */
static double signs[MAX_DIM][MAX_DIM];

static void fill_signs(void)
{
    uint32_t i, j;

    for (i = 0; i < MAX_DIM; i++)
        for (j = 0; j < MAX_DIM; j++)
            signs[i][j] = __builtin_popcount(i & j) % 2 == 0 ? 1 : -1;
}

/* out[0..n) = what a row stored as `bytes` stands for: decoded, and multiplied by that matrix where rows are
 * rotated. */
static void stored(const uint8_t *bytes, uint32_t n, runnel_kv_type type, double *out)
{
    uint32_t span = rn_kv_rotated(type) ? rn_kv_rotation(n) : 1, start, i, j;
    double root = sqrt(span), sum;
    float row[MAX_DIM];

    rn_kv_decode(type, bytes, n, row);
    for (start = 0; start < n; start += span)
        for (i = 0; i < span; i++) {
            sum = 0;
            for (j = 0; j < span; j++)
                sum += signs[i][j] * (double)row[start + j];
            out[start + i] = sum / root;
        }
}

/* The row whose units lie `stride` apart. */
static void gather(uint8_t *row, const uint8_t *at, size_t bytes, uint32_t unit, size_t stride)
{
    size_t i;

    for (i = 0; i < bytes; i += unit)
        memcpy(row + i, at + i * stride, unit);
}

/* The same numbers for every layout: position p's keys come from a generator of their own. */
static struct cache make_cache(const struct rn_level *level, const struct shape *s, bool judged)
{
    size_t key_bytes = rn_kv_row_bytes(s->kv_type, s->k_dim), value_bytes = rn_kv_row_bytes(s->kv_type, s->v_dim);
    uint32_t n_blocks = MAX_CONTEXT / s->block, unit = rn_kv_unit_bytes(s->kv_type), p, d;
    struct cache c;
    float k[MAX_DIM], v[MAX_DIM];
    uint8_t *at, row[MAX_DIM * 4];

    c.keys = rn_alloc(&heap, MAX_CONTEXT, key_bytes);
    c.values = fronts ? NULL : rn_alloc(&heap, MAX_CONTEXT, value_bytes);
    c.k = judged ? rn_alloc(&heap, (size_t)MAX_CONTEXT * s->k_dim, sizeof(double)) : NULL;
    c.v = judged ? rn_alloc(&heap, (size_t)MAX_CONTEXT * s->v_dim, sizeof(double)) : NULL;
    c.blocks = rn_alloc(&heap, n_blocks, sizeof *c.blocks);
    memset(c.keys, 0xff, MAX_CONTEXT * key_bytes); /* NaN: what was never written is not read */
    if (!fronts)
        memset(c.values, 0xff, MAX_CONTEXT * value_bytes);
    for (p = 0; p < n_blocks; p++)
        c.blocks[p] = (uint32_t)((uint64_t)p * s->scatter % n_blocks);
    for (p = 0; p <= s->last; p++) {
        seed = p;
        for (d = 0; d < s->k_dim; d++)
            k[d] = uniform();
        for (d = 0; d < s->v_dim; d++)
            v[d] = uniform();
        at = c.keys + (size_t)c.blocks[p / s->block] * s->block * key_bytes + (size_t)(p % s->block) * unit;
        level->rows->key_store(at, k, s->k_dim, s->block, s->kv_type);
        gather(row, at, key_bytes, unit, s->block);
        if (judged)
            stored(row, s->k_dim, s->kv_type, c.k + (size_t)p * s->k_dim);
        if (judged && fronts)
            memcpy(c.v + (size_t)p * s->v_dim, c.k + (size_t)p * s->k_dim, s->v_dim * sizeof *c.v);
        if (fronts)
            continue;
        at = c.values + ((size_t)c.blocks[p / s->block] * s->block + p % s->block) * value_bytes;
        level->rows->kv_store(at, v, s->v_dim, s->kv_type);
        if (judged)
            stored(at, s->v_dim, s->kv_type, c.v + (size_t)p * s->v_dim);
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

static uint32_t first_of(const struct shape *s, uint32_t last)
{
    return s->window == 0 || last < s->window ? 0 : last + 1 - s->window;
}

static void plain(const struct shape *s, const struct cache *c, uint32_t last, uint32_t query, const float *q,
                  float scale, double *out)
{
    double *p = rn_alloc(&heap, MAX_CONTEXT, sizeof *p), most = -INFINITY, sum = 0;
    double wide[MAX_DIM], score;
    uint32_t t, d;

    for (d = 0; d < s->k_dim; d++)
        wide[d] = q[d];
    for (t = first_of(s, last); t <= last; t++) {
        score = 0;
        for (d = 0; d < s->k_dim; d++)
            score += wide[d] * c->k[t * s->k_dim + d];
        p[t] = score * scale;
        p[t] -= ldexp(s->slope, -(int)query) * (last - t);
        if (s->softcap > 0)
            p[t] = s->softcap * tanh(p[t] / s->softcap);
        most = fmax(most, p[t]);
    }
    if (s->sink != 0) {
        most = fmax(most, s->sink - query);
        sum = exp(s->sink - query - most);
    }
    for (d = 0; d < s->v_dim; d++)
        out[d] = 0;
    for (t = first_of(s, last); t <= last; t++) {
        double weight = exp(p[t] - most);

        sum += weight;
        for (d = 0; d < s->v_dim; d++)
            out[d] += weight * c->v[t * s->v_dim + d];
    }
    for (d = 0; d < s->v_dim; d++)
        out[d] /= sum;
    rn_free(&heap, p);
}

/* Rows and queries of one call: the rows from number `row` of the shape on, the queries from number `query` on. */
struct part {
    uint32_t row, rows, query, queries;
};

static struct rn_attend attend_of(const struct shape *s, const struct cache *c, const struct part *part, const float *q,
                                  float scale, float *out)
{
    uint32_t last = s->last + 1 - s->rows + part->row;

    return (struct rn_attend){.q = q + (part->row * s->queries + part->query) * s->k_dim,
                              .out = out + (part->row * s->queries + part->query) * s->v_dim,
                              .q_stride = s->queries * s->k_dim,
                              .out_stride = s->queries * s->v_dim,
                              .rows = part->rows,
                              .queries = part->queries,
                              .k_dim = s->k_dim,
                              .v_dim = s->v_dim,
                              .last = last,
                              .own = last,
                              .window = s->window,
                              .segment = rn_attend_segment(last + 1 - first_of(s, last)),
                              .to = UINT32_MAX,
                              .scale = scale,
                              .softcap = s->softcap,
                              .blocks = c->blocks,
                              .block_shift = (uint32_t)__builtin_ctz(s->block),
                              .kv_type = s->kv_type,
                              .keys = c->keys,
                              .values = c->values,
                              .key_stride = s->block * rn_kv_row_bytes(s->kv_type, s->k_dim),
                              .value_stride = s->block * rn_kv_row_bytes(s->kv_type, s->v_dim)};
}

/* The slopes of the queries from number `query` on; NULL where there are none. */
static const float *slopes_of(const struct shape *s, uint32_t query, float slopes[MAX_LANES])
{
    uint32_t i;

    for (i = 0; i + query < s->queries; i++)
        slopes[i] = ldexpf(s->slope, -(int)(i + query));
    return s->slope == 0 ? NULL : slopes;
}

/* Likewise the sinks. */
static const float *sinks_of(const struct shape *s, uint32_t query, float sinks[MAX_LANES])
{
    uint32_t i;

    for (i = 0; i + query < s->queries; i++)
        sinks[i] = s->sink - (float)(i + query);
    return s->sink == 0 ? NULL : sinks;
}

static void attend(const struct rn_level *level, const struct shape *s, const struct cache *c, const struct part *part,
                   const float *q, float scale, float *out)
{
    struct rn_attend t = attend_of(s, c, part, q, scale, out);
    size_t n = rn_attend_floats(part->rows, part->queries, s->k_dim, s->v_dim);
    float slopes[MAX_LANES], sinks[MAX_LANES];

    t.slopes = slopes_of(s, part->query, slopes);
    t.sinks = sinks_of(s, part->query, sinks);
    t.scratch = rn_alloc_aligned(&heap, n * sizeof(float), 64);
    memset(t.scratch, 0xff, n * sizeof(float));
    level->attention->attend(&t);
    rn_free(&heap, t.scratch);
}

/* One row whose segments are walked one by one, the last first. */
static void attend_split(const struct rn_level *level, const struct shape *s, const struct cache *c, uint32_t row,
                         const float *q, float scale, float *out)
{
    const struct part part = {row, 1, 0, s->queries};
    struct rn_attend t = attend_of(s, c, &part, q, scale, out);
    uint32_t first = first_of(s, t.last) / t.segment, n = t.last / t.segment - first + 1, i;
    size_t floats = rn_attend_part(s->queries, s->v_dim);
    float *parts = rn_alloc_aligned(&heap, n * floats * sizeof(float), 64), slopes[MAX_LANES], sinks[MAX_LANES];

    t.slopes = slopes_of(s, 0, slopes);
    t.sinks = sinks_of(s, 0, sinks);
    assert_true(n <= RN_ATTEND_SEGMENTS);
    t.scratch = rn_alloc_aligned(&heap, rn_attend_floats(1, s->queries, s->k_dim, s->v_dim) * sizeof(float), 64);
    for (i = n; i-- > 0;) {
        t.from = (first + i) * t.segment;
        t.to = t.from + 1;
        t.part = parts + i * floats;
        level->attention->attend(&t);
    }
    level->attention->merge(&t, parts, n);
    rn_free(&heap, t.scratch);
    rn_free(&heap, parts);
}

static uint32_t segment_of(const struct shape *s, uint32_t row)
{
    uint32_t last = s->last + 1 - s->rows + row;

    return rn_attend_segment(last + 1 - first_of(s, last));
}

/* All rows, as many at once as have the same segments. */
static void attend_all(const struct rn_level *level, const struct shape *s, const struct cache *c, const float *q,
                       float scale, float *out)
{
    struct part part = {.queries = s->queries};

    for (; part.row < s->rows; part.row += part.rows) {
        for (part.rows = 1;
             part.row + part.rows < s->rows && segment_of(s, part.row + part.rows) == segment_of(s, part.row);)
            part.rows++;
        attend(level, s, c, &part, q, scale, out);
    }
}

static void check_plain(const struct rn_level *level, const struct shape *s, const struct cache *c, const float *q,
                        float scale, const float *out, double most)
{
    double want[MAX_DIM], error = 0, norm = 0;
    uint32_t i, d;

    for (i = 0; i < s->rows * s->queries; i++) {
        plain(s, c, s->last + 1 - s->rows + i / s->queries, i % s->queries, q + i * s->k_dim, scale, want);
        for (d = 0; d < s->v_dim; d++) {
            error += (out[i * s->v_dim + d] - want[d]) * (out[i * s->v_dim + d] - want[d]);
            norm += want[d] * want[d];
        }
    }
    if (!(error <= most * norm))
        fail_msg("%s: position %u, window %u, dims %u %u: NMSE %g", level->name, s->last, s->window, s->k_dim, s->v_dim,
                 error / norm);
}

static void check_shape(const struct rn_level *level, const struct shape *given)
{
    float *q = rn_alloc(&heap, MAX_LANES * MAX_DIM, 4), *out = rn_alloc(&heap, MAX_LANES * MAX_DIM, 4);
    float *other = rn_alloc(&heap, MAX_LANES * MAX_DIM, 4), scale = 0.5f;
    bool own_bits = given->queries >= RN_ATTEND_AMX_QUERIES && strcmp(level->name, "avx512-amx") == 0;
    struct shape s = *given, layout;
    uint32_t d, row, width;
    struct cache c, c2;
    struct part part;

    width = s.queries * s.v_dim;
    assert_true(s.rows * s.queries <= MAX_LANES);
    layout = s;
    c = make_cache(level, &s, true);
    seed = 1u << 30;
    for (d = 0; d < s.rows * s.queries * s.k_dim; d++)
        q[d] = 3 * uniform();
    attend_all(level, &s, &c, q, scale, out);
    check_plain(level, &s, &c, q, scale, out, 1e-11);
    layout.block = s.block == 32 ? 8 : 32;
    layout.scatter = 1;
    c2 = make_cache(level, &layout, false);
    attend_all(level, &layout, &c2, q, scale, other);
    assert_memory_equal(out, other, s.rows * width * sizeof(float));
    memset(other, 0xff, s.rows * width * sizeof(float));
    for (row = 0; row < s.rows; row++) { /* a row, and of the last one a query, alone */
        part = (struct part){row, 1, 0, s.queries};
        attend(level, row % 2 == 0 ? &s : &layout, row % 2 == 0 ? &c : &c2, &part, q, scale, other);
    }
    part = (struct part){s.rows - 1, 1, s.queries - 1, 1};
    if (!own_bits) /* they hang on how many queries there are */
        attend(level, &s, &c, &part, q, scale, other);
    assert_memory_equal(out, other, s.rows * width * sizeof(float));
    memset(other, 0xff, s.rows * width * sizeof(float));
    for (row = 0; row < s.rows; row++)
        attend_split(level, &s, &c, row, q, scale, other);
    assert_memory_equal(out, other, s.rows * width * sizeof(float));
    if (level != rn_level_c() && !own_bits) {
        attend_all(rn_level_c(), &s, &c, q, scale, other);
        assert_memory_equal(out, other, s.rows * width * sizeof(float));
    }
    free_cache(&c);
    free_cache(&c2);
    rn_free(&heap, q);
    rn_free(&heap, out);
    rn_free(&heap, other);
}

static void check_shapes(const struct shape *shapes, size_t n)
{
    const struct rn_level *level;
    size_t l, i;

    for (l = FIRST_LEVEL; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (i = UNLESS_SANITIZED(0, l % 4); level != NULL && i < n; i += UNLESS_SANITIZED(1, 4))
            check_shape(level, &shapes[i]);
    }
}

static void test_shapes(void **state)
{
    static const struct shape shapes[] = {
        {0, 0, 1, 64, 64, 16, 0, RUNNEL_KV_F32, 3, 1, 0, 0},
        {1, 0, 4, 64, 64, 16, 0, RUNNEL_KV_F16, 3, 1, 0, 0},
        {31, 0, 1, 128, 128, 16, 0, RUNNEL_KV_F16, 5, 1, 0, 0},
        {32, 0, 8, 64, 64, 32, 0, RUNNEL_KV_BF16, 7, 1, 0, 0},
        {63, 0, 2, 80, 80, 16, 0, RUNNEL_KV_F16, 11, 1, 0, 0},
        {100, 0, 3, 12, 20, 16, 0, RUNNEL_KV_F32, 3, 1, 0, 0},
        {100, 0, 3, 13, 7, 16, 0, RUNNEL_KV_F16, 3, 1, 0, 0},
        {500, 100, 4, 64, 64, 16, 0, RUNNEL_KV_F16, 3, 1, 0, 0},
        {500, 1, 4, 64, 64, 16, 0, RUNNEL_KV_F32, 3, 1, 0, 0},
        {500, 501, 2, 64, 32, 16, 0, RUNNEL_KV_F16, 3, 1, 0, 0},
        {511, 33, 2, 64, 64, 64, 30, RUNNEL_KV_BF16, 3, 1, 0, 0},
        {700, 0, 8, 96, 96, 16, 5, RUNNEL_KV_F16, 9, 1, 0, 0},
        {2999, 0, 4, 64, 64, 16, 0, RUNNEL_KV_F16, 77, 1, 0, 0},
        {2999, 1024, 1, 128, 128, 32, 50, RUNNEL_KV_F32, 5, 1, 0, 0},
        /* Several rows: over the edge of a tile, of a segment, of the length of segments, of a window. */
        {40, 0, 1, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 32, 0, 0},
        {31, 0, 8, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 4, 0, 0},
        {520, 0, 8, 64, 64, 32, 0, RUNNEL_KV_BF16, 3, 8, 0, 0},
        {530, 20, 2, 64, 64, 32, 0, RUNNEL_KV_F32, 3, 32, 0, 0},
        {530, 1, 3, 80, 48, 64, 0, RUNNEL_KV_F16, 3, 21, 0, 0},
        {700, 600, 1, 13, 7, 16, 20, RUNNEL_KV_F32, 3, 33, 0, 0},
        {8200, 0, 4, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 16, 0, 0},
        {1100, 70, 5, 32, 96, 32, 0, RUNNEL_KV_BF16, 3, 12, 0, 0},
        {9999, 5000, 2, 32, 32, 32, 0, RUNNEL_KV_F16, 3, 3, 0, 0},
        /* Scores fall with distance: in one tile, over segments, in a window, of many rows and queries. */
        {20, 0, 3, 64, 64, 16, 0, RUNNEL_KV_F32, 3, 1, 0.5f, 0},
        {1100, 0, 4, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 12, 0.125f, 0},
        {700, 65, 8, 96, 80, 32, 5, RUNNEL_KV_F16, 9, 3, 0.25f, 0},
        {2999, 0, 8, 64, 64, 32, 0, RUNNEL_KV_F16, 77, 2, 0.0625f, 0},
        /* Sinks: weak and strong ones, over segments, in a window, of many rows and queries. */
        {20, 0, 3, 64, 64, 16, 0, RUNNEL_KV_F32, 3, 1, 0, 1},
        {1100, 0, 8, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 8, 0, 9},
        {700, 65, 8, 96, 80, 32, 5, RUNNEL_KV_F16, 9, 3, 0, 30},
        {2999, 0, 4, 64, 64, 32, 0, RUNNEL_KV_Q8, 77, 2, 0, 8},
        /* A byte a number. */
        {0, 0, 1, 64, 64, 16, 0, RUNNEL_KV_FP8, 3, 1, 0, 0},
        {300, 0, 3, 13, 7, 16, 0, RUNNEL_KV_FP8, 3, 5, 0, 0},
        {700, 65, 8, 96, 80, 32, 5, RUNNEL_KV_FP8, 9, 3, 0, 0},
        /* Groups: whole ones, and short ones at the end of a row; few lanes and many; small blocks and large ones. */
        {0, 0, 1, 64, 64, 32, 0, RUNNEL_KV_Q8, 3, 1, 0, 0},
        {31, 0, 1, 128, 128, 16, 0, RUNNEL_KV_Q8, 5, 1, 0, 0},
        {500, 100, 4, 64, 64, 64, 0, RUNNEL_KV_Q8, 3, 4, 0, 0},
        {300, 0, 3, 13, 7, 16, 0, RUNNEL_KV_Q8, 3, 5, 0, 0},
        {700, 65, 8, 96, 80, 32, 5, RUNNEL_KV_Q8, 9, 3, 0, 0},
        {1, 0, 4, 64, 64, 32, 0, RUNNEL_KV_Q4, 3, 1, 0, 0},
        {530, 20, 2, 128, 64, 16, 0, RUNNEL_KV_Q4, 3, 32, 0, 0},
        {2999, 0, 4, 64, 64, 32, 0, RUNNEL_KV_Q4, 77, 2, 0, 0},
        {300, 0, 3, 13, 7, 16, 0, RUNNEL_KV_Q4, 3, 5, 0, 0},
        {700, 65, 8, 80, 112, 32, 5, RUNNEL_KV_Q4, 9, 3, 0, 0},
        {100, 0, 3, 12, 20, 64, 0, RUNNEL_KV_Q4, 3, 1, 0, 0},
        {63, 0, 2, 64, 64, 32, 0, RUNNEL_KV_Q3, 3, 1, 0, 0},
        {530, 20, 2, 128, 96, 16, 0, RUNNEL_KV_Q3, 3, 32, 0, 0},
        {2999, 1024, 4, 64, 64, 64, 50, RUNNEL_KV_Q3, 77, 2, 0, 0},
        {300, 0, 3, 13, 7, 16, 0, RUNNEL_KV_Q3, 3, 5, 0, 0},
        {700, 65, 8, 112, 80, 32, 5, RUNNEL_KV_Q3, 9, 3, 0, 0},
        /* Six queries and more, for a matrix unit: lanes around 16, 32 and 48; all formats; the edges again. */
        {500, 0, 7, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 5, 0, 0},
        {1041, 0, 16, 64, 80, 32, 0, RUNNEL_KV_F32, 5, 3, 0, 0},
        {800, 90, 6, 128, 128, 16, 0, RUNNEL_KV_BF16, 7, 8, 0, 0},
        {333, 0, 12, 96, 48, 32, 0, RUNNEL_KV_FP8, 3, 4, 0, 0},
        {600, 200, 8, 13, 7, 32, 30, RUNNEL_KV_F16, 3, 6, 0, 0},
        {700, 0, 9, 40, 20, 64, 0, RUNNEL_KV_Q8, 9, 7, 0, 0},
        {2999, 0, 8, 64, 64, 32, 0, RUNNEL_KV_Q4, 77, 4, 0, 0},
        {600, 40, 32, 64, 64, 32, 0, RUNNEL_KV_Q3, 3, 2, 0, 0},
        {8199, 0, 8, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 8, 0, 0},
    };

    (void)state;
    check_shapes(shapes, sizeof shapes / sizeof *shapes);
}

/* Few queries and many, all formats, small blocks, windows, edges. */
static void test_fronts(void **state)
{
    static const struct shape shapes[] = {
        {0, 0, 1, 48, 32, 16, 0, RUNNEL_KV_F32, 3, 1, 0, 0},
        {700, 0, 2, 72, 64, 32, 0, RUNNEL_KV_F32, 3, 16, 0, 0},
        {530, 20, 2, 80, 64, 64, 0, RUNNEL_KV_F16, 3, 32, 0, 0},
        {300, 0, 3, 13, 7, 16, 0, RUNNEL_KV_BF16, 3, 5, 0, 0},
        {1100, 70, 5, 96, 32, 32, 0, RUNNEL_KV_FP8, 3, 12, 0, 0},
        {500, 100, 4, 72, 64, 64, 0, RUNNEL_KV_Q8, 3, 4, 0, 0},
        {530, 20, 2, 72, 64, 16, 0, RUNNEL_KV_Q4, 3, 32, 0, 0},
        {2999, 1024, 4, 96, 64, 64, 50, RUNNEL_KV_Q3, 3, 2, 0, 0},
        {1041, 0, 16, 128, 112, 32, 0, RUNNEL_KV_F16, 5, 3, 0, 0},
        {700, 0, 9, 40, 20, 64, 0, RUNNEL_KV_Q8, 9, 7, 0, 0},
        {600, 40, 32, 72, 64, 32, 0, RUNNEL_KV_Q3, 3, 2, 0, 0},
        {333, 0, 12, 96, 48, 16, 0, RUNNEL_KV_FP8, 3, 4, 0, 0},
        {800, 90, 6, 128, 120, 32, 0, RUNNEL_KV_F32, 7, 8, 0, 0},
        {2500, 0, 64, 128, 128, 32, 0, RUNNEL_KV_F16, 7, 1, 0, 5},
    };

    (void)state;
    fronts = true;
    check_shapes(shapes, sizeof shapes / sizeof *shapes);
    fronts = false;
}

/* Every level stores the same bytes, those of the definition; keys unit by unit, and nothing beside. */
static void test_stores(void **state)
{
    static const uint32_t dims[] = {1, 8, 13, 64, 80, 96, 128};
    float a[MAX_DIM];
    uint8_t want[MAX_DIM * 4], got[MAX_DIM * 4], planes[MAX_DIM * 4 * 8], untouched[sizeof planes];
    const struct rn_level *level;
    uint32_t unit, i, t;
    size_t bytes, l, n, j;

    (void)state;
    memset(untouched, 0xa5, sizeof untouched);
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (n = 0; level != NULL && n < 100 * sizeof dims / sizeof *dims; n++) {
            seed = n;
            for (i = 0; i < dims[n % 7]; i++)
                a[i] = uniform() * (n % 3 == 0 ? 1e-4f : n % 3 == 1 ? 300 : 1);
            if (n % 50 == 7)
                a[i / 2] = n % 100 == 7 ? NAN : INFINITY;
            for (t = 0; t <= RUNNEL_KV_Q3; t++) {
                if (n % 50 == 7 && t <= RUNNEL_KV_BF16) /* NaN has many names there */
                    continue;
                unit = rn_kv_unit_bytes((runnel_kv_type)t);
                bytes = rn_kv_row_bytes((runnel_kv_type)t, dims[n % 7]);
                rn_kv_encode((runnel_kv_type)t, a, dims[n % 7], want);
                level->rows->kv_store(got, a, dims[n % 7], (runnel_kv_type)t);
                assert_memory_equal(got, want, bytes);
                memset(planes, 0xa5, sizeof planes);
                level->rows->key_store(planes + 3 * unit, a, dims[n % 7], 8, (runnel_kv_type)t);
                gather(got, planes + 3 * unit, bytes, unit, 8);
                assert_memory_equal(got, want, bytes);
                for (j = 3 * unit; j < sizeof planes; j += 8 * unit)
                    memset(planes + j, 0xa5, unit);
                assert_memory_equal(planes, untouched, sizeof planes);
            }
        }
    }
}

/* Scores so far apart that most weights lie below the normal floats; an error of a large score is one of its weight. */
static void test_small_weights(void **state)
{
    static const struct shape shapes[] = {
        {30, 0, 1, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 3, 0, 0},   {30, 0, 8, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 3, 0, 0},
        {63, 0, 8, 64, 64, 16, 0, RUNNEL_KV_F32, 3, 4, 0, 0},   {300, 0, 9, 96, 48, 32, 0, RUNNEL_KV_BF16, 3, 5, 0, 0},
        {300, 40, 6, 64, 64, 32, 0, RUNNEL_KV_FP8, 3, 5, 0, 0}, {700, 0, 8, 128, 128, 32, 0, RUNNEL_KV_Q8, 9, 4, 0, 0},
    };
    float *q = rn_alloc(&heap, MAX_LANES * MAX_DIM, 4), *out = rn_alloc(&heap, MAX_LANES * MAX_DIM, 4);
    const struct rn_level *level;
    struct cache c;
    size_t l, i, d;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < sizeof shapes / sizeof *shapes; i++) {
            c = make_cache(level, &shapes[i], true);
            for (seed = 7, d = 0; d < (size_t)shapes[i].rows * shapes[i].queries * shapes[i].k_dim; d++)
                q[d] = 40 * uniform();
            attend_all(level, &shapes[i], &c, q, 0.5f, out);
            check_plain(level, &shapes[i], &c, q, 0.5f, out, 1e-8);
            free_cache(&c);
        }
    }
    rn_free(&heap, q);
    rn_free(&heap, out);
}

/* Large scores neither overflow nor lose the winner; NaN in a key is seen in the result. */
static void check_extremes(const struct rn_level *level, uint32_t queries)
{
    const struct shape s = {40, 0, queries, 8, 8, 8, 0, RUNNEL_KV_F32, 3, 1, 0, 0};
    const struct part part = {0, 1, 0, queries};
    float q[8 * 8], out[8 * 8], nan = NAN;
    struct cache c = make_cache(level, &s, true);
    uint32_t i;

    for (i = 0; i < 8 * queries; i++)
        q[i] = (float)(1e6 * c.k[17 * 8 + i % 8]);
    attend(level, &s, &c, &part, q, 1, out);
    for (i = 0; i < 8 * queries; i++)
        assert_true(isfinite(out[i]) && fabsf(out[i]) <= 1);
    memcpy(c.keys + ((size_t)c.blocks[2] * 8 * 8 + 1) * 4, &nan, 4);
    attend(level, &s, &c, &part, q, 1, out);
    for (i = 0; i < 8 * queries; i++)
        assert_true(isnan(out[i]));
    free_cache(&c);
}

static void test_extremes(void **state)
{
    const struct rn_level *level;
    size_t l;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        if (level != NULL) {
            check_extremes(level, 1);
            check_extremes(level, 8);
        }
    }
}

/* A value that is no number is in the result of each row that sees it, and in no other: later rows of a prompt, and
 * those whose window has passed it. */
static void test_poison(void **state)
{
    static const struct shape shapes[] = {
        {95, 0, 8, 64, 64, 32, 0, RUNNEL_KV_F16, 3, 8, 0, 0}, /* rows 88 to 95 */
        {95, 6, 8, 64, 32, 16, 0, RUNNEL_KV_F32, 3, 8, 0, 0},
        {95, 0, 2, 32, 48, 32, 0, RUNNEL_KV_F16, 3, 8, 0, 0},
    };
    float q[8 * 8 * 64], clean[8 * 8 * 64], out[8 * 8 * 64];
    const uint8_t nan[4] = {0xff, 0xff, 0xff, 0xff};
    const struct rn_level *level;
    const struct shape *s;
    size_t l, i, width, unit;
    struct cache c;
    uint32_t row;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < sizeof shapes / sizeof *shapes; i++) {
            s = &shapes[i];
            width = s->queries * s->v_dim;
            unit = rn_kv_unit_bytes(s->kv_type);
            c = make_cache(level, s, false);
            for (seed = 5, row = 0; row < 8 * s->queries * s->k_dim; row++)
                q[row] = uniform();
            attend_all(level, s, &c, q, 0.5f, clean);
            memcpy(c.values + (((size_t)c.blocks[90 / s->block] * s->block + 90 % s->block) * s->v_dim + 3) * unit, nan,
                   unit);
            attend_all(level, s, &c, q, 0.5f, out);
            for (row = 0; row < 8; row++) {
                if (88 + row < 90 || (s->window > 0 && 88 + row >= 90 + s->window))
                    assert_memory_equal(out + row * width, clean + row * width, width * sizeof(float));
                else
                    assert_true(isnan(out[row * width + 3]));
            }
            free_cache(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),   cmocka_unit_test(test_fronts),
                                       cmocka_unit_test(test_stores),   cmocka_unit_test(test_small_weights),
                                       cmocka_unit_test(test_extremes), cmocka_unit_test(test_poison)};
    int failed;

    fill_signs();
    emulate_amx();
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
