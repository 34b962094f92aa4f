/* Attention on a matrix unit that multiplies bfloat16 and sums floats (AMX): attend.inc, with sums of its own.
 *
 * A bfloat16 is the upper half of a float. So a float is three of them, each cut off from what the one before left:
 *
 *     x = x0 + x1 + x2, exactly; f16 needs two, bf16 and fp8 one
 *     a b = a0 b0 + a1 b0 + a0 b1 + a2 b0 + a1 b1 + a0 b2, but for 2^-21 of |a b|
 *
 * and the unit computes these six products (five of f16, three of the small formats) in a fifth of the time in which
 * vectors compute the one. Sums are of floats, of two products at a time:
 *
 *     C [16 lanes, 16 columns] += A [16 lanes, 32 deep] B [32 deep, 16 columns]
 *     scores    A queries            deep: dimensions     columns: positions
 *     values    A weights            deep: positions      columns: dimensions
 *
 * An A lies row by row, [lane][deep]. A B lies as 16 rows of 64 bytes, row r with two rows of the matrix, column by
 * column: keys and values both become that by taking two rows of the cache together (split_rows), r and r + 16 of
 * 32. So the 32 of an A are in the order 0, 16, 1, 17 .., which is what two vectors become without a shuffle.
 *
 * Law 5: an element of C depends on its row of A and its column of B. Each row of the step takes every product of
 * every tile that it looks at, with weights of 0 outside its span; a tile of values that holds NaN or infinity, where
 * rows have different spans, is taken row by row, so that a row never meets what it must not see. Bits are not those of
 * the vectors' sums.
 *
 * The unit flushes what is below 2^-126 to 0, parts too: of numbers below 2^-110 the third part, and later the second,
 * is lost. Threads: any; the tiles' state is set up and given up within a call.
 *
 * Tiles in use: 0..3 are C, 4 and 5 A of the first and the second sixteen lanes, 6 and 7 B. */
#include "cpu/levels/amx/amx.h"
#include "cpu/levels/avx512/attend_avx512.h"

#include "cpu/levels/math.inc"

#include "cpu/levels/attend.inc"

enum { M_SIDE = 16, M_DEEP = 32, M_PARTS = 3, M_B = M_SIDE * M_DEEP /* elements of a B */ };

struct parts {
    uint16_t *q;        /* [M_PARTS][lanes][k_deep] */
    uint16_t *p;        /* [M_PARTS][lanes][A_TILE] */
    uint16_t *keys;     /* [parts][k_deep / M_DEEP][2] B */
    uint16_t *values;   /* [parts][v_pad / M_SIDE] B */
    uint16_t *rows;     /* [2]: rows of A of the first and the second sixteen lanes; 0: not set up yet */
    uint32_t k_deep, n; /* n: parts of a key or a value */
};

static uint32_t deep_of(uint32_t k_dim)
{
    return (k_dim + M_DEEP - 1) / M_DEEP * M_DEEP;
}

static size_t own_floats(const struct rn_attend *t)
{
    return rn_attend_own(t->rows, t->queries, t->k_dim, t->v_dim);
}

static struct parts parts_of(const struct state *s)
{
    enum kind kind = kind_of(s->t->kv_type);
    struct parts parts = {.k_deep = deep_of(s->t->k_dim),
                          .n = kind == KIND_F16                       ? 2
                               : kind == KIND_BF16 || kind == KIND_F8 ? 1
                                                                      : M_PARTS};
    uint16_t *at = (uint16_t *)s->own;

    parts.keys = at;
    at += (size_t)M_PARTS * parts.k_deep * A_TILE;
    parts.values = at;
    at += (size_t)M_PARTS * A_TILE * s->v_pad;
    parts.q = at;
    at += (size_t)M_PARTS * s->lanes * parts.k_deep;
    parts.p = at;
    at += (size_t)M_PARTS * s->lanes * A_TILE;
    parts.rows = at;
    return parts;
}

/* ---- The unit ---- */

/* Sets up C and A for so many lanes of the first and the second sixteen. */
static void shape_tiles(const struct parts *parts, uint32_t first, uint32_t second)
{
    uint32_t other = second > 0 ? second : first, i;
    struct amx_shape shape = {.palette = 1};

    if (parts->rows[0] == first && parts->rows[1] == second)
        return;
    parts->rows[0] = (uint16_t)first;
    parts->rows[1] = (uint16_t)second;
    for (i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = (uint8_t)(i >= 6 ? M_SIDE : i < 2 || i == 4 ? first : other);
    }
    AMX_SHAPE(shape);
}

static void end_sums(void)
{
    AMX_END();
}

/* ---- Parts ---- */

A_INLINE __m512i top(VF x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int32_t)0xffff0000));
}

/* Sixteen pairs, a[i] and b[i], to n parts, `part` elements apart. The last part is what is left, a bfloat16. */
A_INLINE void split(uint16_t *out, size_t part, VF a, VF b, uint32_t n)
{
    __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
    uint32_t i;

    for (i = 1; i < n; i++, out += part) {
        x = top(a);
        y = top(b);
        _mm512_storeu_si512(out, _mm512_or_si512(_mm512_srli_epi32(x, 16), y));
        a = _mm512_sub_ps(a, _mm512_castsi512_ps(x));
        b = _mm512_sub_ps(b, _mm512_castsi512_ps(y));
        x = _mm512_castps_si512(a);
        y = top(b); /* all of it, but where b is below the normal floats */
    }
    _mm512_storeu_si512(out, _mm512_or_si512(_mm512_srli_epi32(x, 16), y));
}

/* 32 rows of `columns` elements, a multiple of 16, to Bs; those from `rows` on are 0. Constants: kind, n. */
A_INLINE void split_deep(uint16_t *out, size_t part, const struct source *in, struct quarters *quarters, uint32_t from,
                         uint32_t rows, uint32_t columns, enum kind kind, uint32_t n)
{
    size_t wide = (size_t)columns * kind_bytes(kind);
    const uint8_t *first = in->at + from * in->stride, *second = first + M_SIDE * in->stride;
    uint32_t r, c;
    VF a, b;

    for (r = from; r < from + M_SIDE; r++, first += in->stride, second += in->stride, out += M_DEEP) {
        if (in->later != NULL) {
            ask(quarters, r, in->stride, wide);
            ask(quarters, r + M_SIDE, in->stride, wide);
        }
#pragma GCC unroll 4
        for (c = 0; c < columns; c += M_SIDE) {
            a = r < rows ? elements(first + (size_t)c * kind_bytes(kind), kind) : v_set1(0);
            b = r + M_SIDE < rows ? elements(second + (size_t)c * kind_bytes(kind), kind) : v_set1(0);
            split(out + (size_t)c / M_SIDE * M_B, part, a, b, n);
        }
    }
}

A_INLINE void split_rows_of(uint16_t *out, const struct source *in, uint32_t rows, uint32_t columns, enum kind kind,
                            uint32_t n)
{
    struct quarters quarters = quarters_of(in, rows, 0);
    size_t part = (size_t)deep_of(rows) * columns;
    uint32_t r;

    for (r = 0; r < rows; r += M_DEEP, out += (size_t)M_DEEP * columns)
        if (r + M_DEEP <= rows && columns == A_TILE) /* the usual case of keys, unrolled and without conditions */
            split_deep(out, part, in, &quarters, r, r + M_DEEP, A_TILE, kind, n);
        else if (r + M_DEEP <= rows)
            split_deep(out, part, in, &quarters, r, r + M_DEEP, columns, kind, n);
        else
            split_deep(out, part, in, &quarters, r, rows, columns, kind, n);
}

/* n: of what the format needs, which is more than what the floats of a tile would. */
static void split_rows(uint16_t *out, const struct source *in, uint32_t rows, uint32_t columns, uint32_t n)
{
    if (in->kind == KIND_F16)
        split_rows_of(out, in, rows, columns, KIND_F16, 2);
    else if (in->kind == KIND_BF16)
        split_rows_of(out, in, rows, columns, KIND_BF16, 1);
    else if (in->kind == KIND_F8)
        split_rows_of(out, in, rows, columns, KIND_F8, 1);
    else if (n == 1)
        split_rows_of(out, in, rows, columns, KIND_F32, 1);
    else if (n == 2)
        split_rows_of(out, in, rows, columns, KIND_F32, 2);
    else
        split_rows_of(out, in, rows, columns, KIND_F32, M_PARTS);
}

static void place_queries(const struct state *s)
{
    const struct rn_attend *t = s->t;
    struct parts parts = parts_of(s);
    float row[M_DEEP];
    uint32_t lane, d, i, n;
    const float *q;

    for (lane = 0; lane < s->lanes; lane++) {
        q = query_of(s, lane);
        for (d = 0; d < parts.k_deep; d += M_DEEP) {
            n = t->k_dim - d < M_DEEP ? t->k_dim - d : M_DEEP;
            for (i = 0; i < M_DEEP; i++)
                row[i] = i < n ? q[d + i] * t->scale : 0;
            split(parts.q + (size_t)lane * parts.k_deep + d, (size_t)s->lanes * parts.k_deep, v_load(row),
                  v_load(row + VLANES), M_PARTS);
        }
    }
    parts.rows[0] = parts.rows[1] = 0;
}

/* ---- Tiles ---- */

/* Keys to B; what lies beside [first, last] is left, and masked. */
static void split_keys(const struct state *s, const struct parts *parts, uint32_t start, uint32_t first, uint32_t last)
{
    const struct rn_attend *t = s->t;
    uint32_t block = 1u << t->block_shift;
    enum kind kind = kind_of(t->kv_type);
    struct source source = {(const uint8_t *)s->keys, A_TILE * sizeof(float), NULL, KIND_F32, NULL};
    intptr_t ahead = 0;

    if (block >= A_TILE && !grouped(kind) && t->values != NULL) {
        source = (struct source){key_at(t, own(t, start)), (size_t)block * kind_bytes(kind), s->later.keys, kind, NULL};
    } else {
        if (block >= A_TILE)
            ahead = distance(key_at(t, own(t, start)), s->later.keys[0]);
        tile_keys(s, start, first, last, ahead);
    }
    split_rows(parts->keys, &source, t->k_dim, A_TILE, parts->n);
}

/* Values of all 32 positions to B. */
static void split_values(const struct state *s, const struct parts *parts, uint32_t start)
{
    const struct rn_attend *t = s->t;
    enum kind kind = kind_of(t->kv_type);
    struct source source = {(const uint8_t *)s->values, s->v_pad * sizeof(float), NULL, KIND_F32, NULL};
    bool whole = 1u << t->block_shift >= A_TILE && t->values != NULL;
    intptr_t ahead = 0;

    if (whole && !grouped(kind) && t->v_dim == s->v_pad) {
        source.at = value_at(t, own(t, start));
        source.stride = (size_t)t->v_dim * kind_bytes(kind);
        source.later = s->later.values;
        source.kind = kind;
    } else {
        if (whole)
            ahead = distance(value_at(t, own(t, start)), s->later.values[0]);
        tile_values(s, start, start, start + A_TILE - 1, ahead);
    }
    split_rows(parts->values, &source, A_TILE, s->v_pad, parts->n);
}

/* Values of positions [lo, hi] of the tile of floats; those beside them are 0. */
static void split_span(const struct state *s, const struct parts *parts, struct span span)
{
    const struct source source = {(const uint8_t *)s->values, s->v_pad * sizeof(float), NULL, KIND_F32, NULL};

    memset(s->values, 0, (size_t)span.lo * s->v_pad * sizeof(float));
    memset(s->values + (size_t)(span.hi + 1) * s->v_pad, 0, (size_t)(A_TILE - 1 - span.hi) * s->v_pad * sizeof(float));
    split_rows(parts->values, &source, A_TILE, s->v_pad, parts->n);
}

/* ---- Weights ---- */

/* e^x to 4 ulp for x <= A_SLACK, 0 below -104; NaN stays. x = n ln 2 + r ln 2, |r| <= 1/2; 2^r by the polynomial of
 * degree 5 whose largest relative error, 7.5e-8, is the least (Remez's exchange). */
A_INLINE VF exp_below(VF x)
{
    VF n, r, p = v_set1(0.001327647199f);

    x = v_mul(x, v_set1(1.44269504088896341f));
    x = v_max(v_set1(-160), x);
    n = v_round(x);
    r = v_sub(x, n);
    p = v_fma(p, r, v_set1(0.009675541334f));
    p = v_fma(p, r, v_set1(0.05550713273f));
    p = v_fma(p, r, v_set1(0.2402211972f));
    p = v_fma(p, r, v_set1(0.6931469671f));
    p = v_fma(p, r, v_set1(1.000000072f));
    return _mm512_scalef_ps(p, n);
}

/* Scores of one lane to weights: their sum, and their parts. */
A_INLINE void weigh(const struct state *s, const struct parts *parts, uint32_t lane)
{
    const float *p = s->p + (size_t)lane * A_TILE;
    float *l = s->l + (size_t)lane * 8;
    VF most = v_set1(s->m[lane]), a = exp_below(v_sub(v_load(p), most)), b = exp_below(v_sub(v_load(p + VLANES), most));
    VF sum = v_add(a, b);

    _mm256_storeu_ps(l,
                     _mm256_add_ps(_mm256_loadu_ps(l),
                                   _mm256_add_ps(_mm512_castps512_ps256(sum),
                                                 _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sum), 1)))));
    split(parts->p + (size_t)lane * A_TILE, (size_t)s->lanes * A_TILE, a, b, M_PARTS);
}

/* ---- Sums ---- */

/* A product of `deeps` times 32 deep: where its A and its B lie, a_stride in bytes, the others in elements. */
struct product {
    const uint16_t *a, *b;
    size_t a_part, a_stride, b_part, b_deep;
    uint32_t deeps;
};

/* C += the products of their parts, the smallest first, of up to 32 lanes (two) by 16 or 32 (wide) columns. The
 * constants n, two and wide are known where this is inlined. */
A_INLINE void dots(const struct product *m, uint32_t n, bool two, bool wide)
{
    const uint16_t *a, *b;
    uint32_t deep, i, j;

    for (deep = 0; deep < m->deeps; deep++)
        for (j = n; j-- > 0;) {
            b = m->b + j * m->b_part + deep * m->b_deep;
            AMX_LOAD(6, b, 64);
            if (wide)
                AMX_LOAD(7, b + M_B, 64);
            for (i = M_PARTS - j; i-- > 0;) {
                a = m->a + i * m->a_part + (size_t)deep * M_DEEP;
                AMX_LOAD(4, a, m->a_stride);
                AMX_DOT_BF16(0, 4, 6);
                if (wide)
                    AMX_DOT_BF16(1, 4, 7);
                if (two) {
                    AMX_LOAD(5, (const uint8_t *)a + M_SIDE * m->a_stride, m->a_stride);
                    AMX_DOT_BF16(2, 5, 6);
                    if (wide)
                        AMX_DOT_BF16(3, 5, 7);
                }
            }
        }
}

A_INLINE void dots_of(const struct product *m, uint32_t n, bool two, bool wide)
{
    if (n == 1)
        dots(m, 1, two, wide);
    else if (n == 2)
        dots(m, 2, two, wide);
    else
        dots(m, 3, two, wide);
}

/* out = (or, if `add`, +=) the product, rows `stride` bytes apart. */
A_INLINE void product(const struct product *m, float *out, size_t stride, uint32_t n, bool two, bool wide, bool add)
{
    float *below = out + M_SIDE * stride / sizeof(float);

    if (add) {
        AMX_LOAD(0, out, stride);
        if (wide)
            AMX_LOAD(1, out + M_SIDE, stride);
        if (two)
            AMX_LOAD(2, below, stride);
        if (two && wide)
            AMX_LOAD(3, below + M_SIDE, stride);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    dots_of(m, n, two, wide);
    AMX_STORE(0, out, stride);
    if (wide)
        AMX_STORE(1, out + M_SIDE, stride);
    if (two)
        AMX_STORE(2, below, stride);
    if (two && wide)
        AMX_STORE(3, below + M_SIDE, stride);
}

/* p of lanes [lane, lane + n), up to 32. */
static void scores(const struct state *s, const struct parts *parts, uint32_t lane, uint32_t n)
{
    const struct product m = {.a = parts->q + (size_t)lane * parts->k_deep,
                              .b = parts->keys,
                              .a_part = (size_t)s->lanes * parts->k_deep,
                              .a_stride = parts->k_deep * sizeof(uint16_t),
                              .b_part = (size_t)parts->k_deep * A_TILE,
                              .b_deep = 2 * M_B,
                              .deeps = parts->k_deep / M_DEEP};
    float *p = s->p + (size_t)lane * A_TILE;

    shape_tiles(parts, n < M_SIDE ? n : M_SIDE, n < M_SIDE ? 0 : n - M_SIDE);
    if (n > M_SIDE)
        product(&m, p, A_TILE * sizeof(float), parts->n, true, true, false);
    else
        product(&m, p, A_TILE * sizeof(float), parts->n, false, true, false);
}

/* acc of lanes [lane, lane + n), up to 32, += weights × values. */
static void values(const struct state *s, const struct parts *parts, uint32_t lane, uint32_t n)
{
    struct product m = {.a = parts->p + (size_t)lane * A_TILE,
                        .b = parts->values,
                        .a_part = (size_t)s->lanes * A_TILE,
                        .a_stride = A_TILE * sizeof(uint16_t),
                        .b_part = (size_t)A_TILE * s->v_pad,
                        .deeps = 1};
    float *acc = s->acc + (size_t)lane * s->v_pad;
    size_t stride = s->v_pad * sizeof(float);
    uint32_t c;

    shape_tiles(parts, n < M_SIDE ? n : M_SIDE, n < M_SIDE ? 0 : n - M_SIDE);
    for (c = 0; c + 2 * M_SIDE <= s->v_pad; c += 2 * M_SIDE, m.b += 2 * M_B)
        if (n > M_SIDE)
            product(&m, acc + c, stride, parts->n, true, true, true);
        else
            product(&m, acc + c, stride, parts->n, false, true, true);
    if (c < s->v_pad && n > M_SIDE)
        product(&m, acc + c, stride, parts->n, true, false, true);
    else if (c < s->v_pad)
        product(&m, acc + c, stride, parts->n, false, false, true);
}

/* Of the lanes [lane, end) those that are taken at once. */
static uint32_t at_once(uint32_t lane, uint32_t end)
{
    return end - lane < 2 * M_SIDE ? end - lane : 2 * M_SIDE;
}

static void values_lanes(const struct state *s, const struct parts *parts, uint32_t from, uint32_t to)
{
    uint32_t lane;

    for (lane = from; lane < to; lane += 2 * M_SIDE)
        values(s, parts, lane, at_once(lane, to));
}

/* ---- A tile ---- */

/* Are all of them numbers? */
static bool all_finite(const float *a, size_t n)
{
    VF zero = v_set1(0), sum = zero;
    size_t i;

    for (i = 0; i < n; i += VLANES)
        sum = v_fma(v_load(a + i), zero, sum);
    return _mm512_cmp_ps_mask(sum, zero, _CMP_EQ_OQ) == 0xffff;
}

/* acc of rows [from, to) of a tile of which they, or some of them, see a part. */
static void add_values(const struct state *s, const struct parts *parts, uint32_t start, uint32_t from, uint32_t to,
                       struct span all)
{
    uint32_t queries = s->t->queries, row;

    tile_values(s, start, start + all.lo, start + all.hi, 0);
    if (all_finite(s->values + (size_t)all.lo * s->v_pad, (size_t)(all.hi + 1 - all.lo) * s->v_pad)) {
        split_span(s, parts, all);
        values_lanes(s, parts, from * queries, to * queries);
        return;
    }
    for (row = from; row < to; row++) {
        tile_values(s, start, start + all.lo, start + all.hi, 0);
        split_span(s, parts, span_of(s->t, row, start));
        values_lanes(s, parts, row * queries, (row + 1) * queries);
    }
}

static void walk_tile(const struct state *s, uint32_t start, uint32_t from, uint32_t to)
{
    struct span first = span_of(s->t, from, start), last = span_of(s->t, to - 1, start), seen;
    uint32_t queries = s->t->queries, begin = from * queries, end = to * queries, lane;
    bool whole = last.lo == 0 && first.hi == A_TILE - 1; /* for all of them */
    struct parts parts = parts_of(s);

    split_keys(s, &parts, start, start + first.lo, start + last.hi);
    for (lane = begin; lane < end; lane += 2 * M_SIDE)
        scores(s, &parts, lane, at_once(lane, end));
    if (whole) /* while the unit is busy */
        split_values(s, &parts, start);
    for (lane = begin; lane < end; lane++) {
        seen = span_of(s->t, lane / queries, start);
        if (whole && s->t->softcap <= 0 && s->t->slopes == NULL)
            bring_up(s, lane);
        else
            mask(s, lane, start, seen.lo, seen.hi);
        weigh(s, &parts, lane);
    }
    if (whole)
        values_lanes(s, &parts, begin, end);
    else
        add_values(s, &parts, start, from, to, (struct span){first.lo, last.hi});
}

/* Taking parts costs as much for one lane as for 32. Fewer than six queries of one row, a step of decode, are faster
 * with vectors; and what all rows of a model get must be one and the same. Measured: docs/SPEED-LOG.md. */
static void attend(const struct rn_attend *t)
{
    if (t->queries < RN_ATTEND_AMX_QUERIES)
        rn_attention_avx512.attend(t);
    else
        row_attend(t);
}

const struct rn_attention rn_attention_amx = {.attend = attend, .score = row_score, .merge = row_attend_merge};
