/* Products of panels with several inputs on a matrix unit that multiplies bytes (AMX): the sums of blocks_products.inc,
 * to the bit. For formats with one scale to 32 columns.
 *
 * The unit sums products of integers exactly; floats are the vectors' work, a subtraction and a fma for each scale as
 * everywhere (kernels.h). Inputs are the lanes:
 *
 *     C [16 rows, 16 inputs] = A [16 rows, 32 columns] B [32 columns, 16 inputs]
 *
 * So d, magic_d and start of sixteen inputs are three vectors for all rows, and a row's scale is a broadcast. A is a
 * strip of the panel that was turned (rn_turn_amx); B is a block of sixteen inputs that was laid (lay).
 *
 * A unit of work is sixteen rows by sixteen inputs by CHUNK blocks, for which the sums are in registers. In each of its
 * steps one product is begun, the one of three steps ago is stored, and the one of five steps ago is taken up:
 *
 *     step          0  1  2  3  4     5  6  7
 *     begun         0  1  2  3  4     5  6  7      blocks of this unit
 *     stored        5  6  7| 0  1     2  3  4      of the unit before | of this one
 *     taken up      3  4  5  6  7  |  0  1  2      likewise; in between the sums change
 *
 * So a product has three steps to end and one or more to come to rest in memory. Speed hangs on the first-level cache.
 * Columns are the outer loop, a chunk at a time: the inputs of a chunk stay there for all rows of the panel, and
 * while a unit runs, a part of the next chunk's inputs is laid and the next strips are asked for. Measured:
 * docs/SPEED-LOG.md.
 *
 * Threads: any; the tiles' state is set up and given up within a call. */
#include <stddef.h>

#include "base/check.h"
#include "cpu/levels/amx/amx.h"
#include "cpu/levels/avx512/columns_avx512.h"

enum {
    SIDE = 16,
    CHUNK = 8, /* blocks of a unit */
    PRODUCT = SIDE * SIDE,
    RING = 4, /* products on their way through memory */
    STORE_BEHIND = 3,
    TAKE_BEHIND = 5,
    MOST_LANES = RN_AMX_ROWS / SIDE,
    MOST_GROUPS = RN_AMX_INPUTS / SIDE,
    QUADS = 8 * 64,         /* bytes of a strip in front of its scales, and of a laid block in front of its floats */
    LAID = RN_LAID_BYTES,   /* of a laid block: d, magic_d, start and d_sum of its inputs stand behind the quads */
    LINES_AHEAD_OF_STEP = 5 /* of strips; eight steps of two units ask for all of the next ones */
};

static_assert(LAID == QUADS + 4 * 64 && offsetof(struct rn_line, d) == 32 && offsetof(struct rn_line, magic_d) == 36 &&
                  offsetof(struct rn_line, start) == 40 && offsetof(struct rn_line, d_sum) == 44,
              "the first twelve words of a line are what is laid");
static_assert(MOST_LANES == 8 && MOST_GROUPS == 2 && CHUNK == 8, "as the steps below are written");

struct unit {
    const char *strips; /* of the first block */
    const char *laid;   /* likewise */
    float *sums;        /* [PRODUCT] */
    uint32_t n;         /* blocks: at most CHUNK */
};

struct call {
    const struct rn_matmul *m;
    uint32_t blocks, lanes, groups; /* lanes: sixteens of rows; groups: of inputs */
    int32_t *ring;                  /* [RING][PRODUCT] */
    float *sums;                    /* [lanes][groups][PRODUCT], and one that nobody wants */
    char *laid[2];                  /* where inputs come as they lie: even and odd chunks, [groups][CHUNK] */
    const struct rn_line *inputs[MOST_GROUPS * SIDE]; /* those that are not there: the last one */
    const char *soon;                                 /* strips that are asked for */
    const uint8_t *next;                              /* and weights that are packed next, ... */
    uint32_t lines_left, per_unit; /* ... of which so many lines are left, and so many are a unit's */
};

INLINE uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- Turning ---- */

/* A strip has the four columns of each quad of sixteen rows side by side; from here on it has 32 bytes of each row, in
 * this order of rows: 0, 4, 8, 12, 1, 5 ... */
INLINE uint32_t row_of(uint32_t place)
{
    return place % 4 * 4 + place / 4;
}

INLINE void turn_strip(const uint8_t *strip, uint8_t *to)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i q[8], pair[8], four[8];
    uint32_t i;

#pragma GCC unroll 8
    for (i = 0; i < 8; i++)
        q[i] = _mm512_load_si512(strip + i * 64);
#pragma GCC unroll 8
    for (i = 0; i < 8; i += 2) {
        pair[i] = _mm512_unpacklo_epi32(q[i], q[i + 1]);
        pair[i + 1] = _mm512_unpackhi_epi32(q[i], q[i + 1]);
    }
    /* four[4 half + c], its j-th quarter: row 4 j + c, quads 4 half and on */
#pragma GCC unroll 8
    for (i = 0; i < 8; i += 4) {
        four[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
        four[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
        four[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
        four[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
    }
#pragma GCC unroll 8
    for (i = 0; i < 4; i++) {
        _mm512_store_si512(to + i * 128, _mm512_permutex2var_epi64(four[i], low, four[4 + i]));
        _mm512_store_si512(to + i * 128 + 64, _mm512_permutex2var_epi64(four[i], high, four[4 + i]));
    }
}

void rn_turn_amx(const uint8_t *strips, uint32_t n, size_t bytes, uint8_t *to)
{
    for (uint32_t i = 0; i < n; i++, strips += bytes, to += bytes) {
        turn_strip(strips, to);
        for (size_t at = QUADS; at < bytes; at += 64) /* scales and minima */
            _mm512_store_si512(to + at, _mm512_load_si512(strips + at));
    }
}

/* v[i], lane j becomes v[j], lane i. */
INLINE void transpose(__m512 v[SIDE])
{
    __m512 t[SIDE], x[4];
    uint32_t i, h;

#pragma GCC unroll 16
    for (i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 16
    for (i = 0; i < SIDE; i += 4)
        for (h = 0; h < 2; h++) {
            v[i + 2 * h] =
                _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i + h]), _mm512_castps_pd(t[i + 2 + h])));
            v[i + 2 * h + 1] =
                _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i + h]), _mm512_castps_pd(t[i + 2 + h])));
        }
        /* v[4 q + c], its j-th quarter: column 4 j + c of the four from 4 q on */
#pragma GCC unroll 16
    for (i = 0; i < 4; i++) {
        x[0] = _mm512_shuffle_f32x4(v[i], v[4 + i], 0x44);
        x[1] = _mm512_shuffle_f32x4(v[i], v[4 + i], 0xee);
        x[2] = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0x44);
        x[3] = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0xee);
        t[i] = _mm512_shuffle_f32x4(x[0], x[2], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(x[0], x[2], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(x[1], x[3], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(x[1], x[3], 0xdd);
    }
#pragma GCC unroll 16
    for (i = 0; i < SIDE; i++)
        v[i] = t[i];
}

/* ---- Laying ---- */

/* Block b of sixteen inputs. */
INLINE void lay(const struct rn_line *const *inputs, uint32_t b, char *to)
{
    __m512 v[SIDE];
    uint32_t i;

#pragma GCC unroll 16
    for (i = 0; i < SIDE; i++)
        v[i] = _mm512_load_ps(&inputs[i][b]);
    transpose(v);
#pragma GCC unroll 16
    for (i = 0; i < LAID / 64; i++)
        _mm512_store_ps(to + i * 64, v[i]);
}

void rn_lay_amx(const struct rn_line *const inputs[SIDE], uint32_t first, uint32_t n, void *to)
{
    for (uint32_t i = 0; i < n; i++)
        lay(inputs, first + i, (char *)to + i * (size_t)LAID);
}

INLINE void ask_for_inputs(const struct rn_line *const *inputs, uint32_t b)
{
#pragma GCC unroll 16
    for (uint32_t i = 0; i < SIDE; i++)
        _mm_prefetch((const char *)&inputs[i][b], _MM_HINT_T0);
}

/* The share of the unit-th of n units in the chunk from block `first` on; what the next one lays is asked for. */
static void lay_share(const struct call *c, uint32_t first, uint32_t unit, uint32_t n)
{
    uint32_t blocks = first < c->blocks ? smaller(CHUNK, c->blocks - first) : 0, all = blocks * c->groups, i;
    char *to = c->laid[first / CHUNK % 2];

    for (i = all * unit / n; i < all * (unit + 1) / n; i++) {
        if (i + 1 < all)
            ask_for_inputs(c->inputs + (i + 1) / blocks * SIDE, first + (i + 1) % blocks);
        lay(c->inputs + i / blocks * SIDE, first + i % blocks, to + (i / blocks * CHUNK + i % blocks) * (size_t)LAID);
    }
}

/* Likewise of a chunk that was laid before the call: it is asked for. */
INLINE void ask_for_share(const struct call *c, uint32_t first, uint32_t lane, uint32_t group)
{
    const char *at = (const char *)c->m->laid + (group * (size_t)c->blocks + first) * LAID;
    uint32_t lines = CHUNK * LAID / 64, i;

    for (i = lines * lane / c->lanes; i < lines * (lane + 1) / c->lanes; i++)
        _mm_prefetch(at + i * 64, _MM_HINT_T0);
}

/* ---- Units ---- */

INLINE void take_up(__m512 acc[SIDE], struct unit u, uint32_t b, const int32_t *product, enum floats floats)
{
    const float *w = (const float *)(u.strips + b * strip_bytes(floats) + QUADS);
    const char *y = u.laid + b * (size_t)LAID + QUADS;
    const __m512 d = _mm512_load_ps(y), magic_d = _mm512_load_ps(y + 64), d_sum = _mm512_load_ps(y + 192);
    const __m512i start = floats == SCALE_AND_MINIMUM ? _mm512_castps_si512(magic_d) : _mm512_load_si512(y + 128);
    __m512 x;
    uint32_t r;

#pragma GCC unroll 16
    for (r = 0; r < SIDE; r++) {
        x = _mm512_castsi512_ps(_mm512_add_epi32(start, _mm512_load_si512(product + r * SIDE)));
        x = floats == SCALE_OF_FINE ? _mm512_fmsub_ps(x, d, magic_d) : _mm512_sub_ps(x, magic_d);
        acc[r] = _mm512_fmadd_ps(x, _mm512_set1_ps(w[row_of(r)]), acc[r]);
    }
#pragma GCC unroll 16
    for (r = 0; r < SIDE && floats == SCALE_AND_MINIMUM; r++)
        acc[r] = _mm512_fmadd_ps(d_sum, _mm512_set1_ps(w[SIDE + row_of(r)]), acc[r]);
}

INLINE void change_sums(__m512 acc[SIDE], float *from, const float *to)
{
    uint32_t r;

#pragma GCC unroll 16
    for (r = 0; r < SIDE; r++)
        _mm512_store_ps(from + r * SIDE, acc[r]);
#pragma GCC unroll 16
    for (r = 0; r < SIDE; r++)
        acc[r] = _mm512_load_ps(to + r * SIDE);
}

/* Begins block k's product in tile c, of what is loaded into tiles a and b. */
#define BEGIN(k, c, a, b)                                      \
    if ((k) < now.n) {                                         \
        AMX_LOAD(a, now.strips + (k)*strip_bytes(floats), 32); \
        AMX_LOAD(b, now.laid + (k) * (size_t)LAID, 64);        \
        AMX_ZERO(c);                                           \
        AMX_DOT_UNSIGNED_SIGNED(c, a, b);                      \
    }

/* A unit's block is stored from tile c; another one's is taken up. */
#define END(u, k, c) \
    if ((k) < (u).n) \
    AMX_STORE(c, ring + (k) % RING * PRODUCT, 64)
#define TAKE(u, k)   \
    if ((k) < (u).n) \
    take_up(acc, u, k, ring + (k) % RING * PRODUCT, floats)

INLINE void ask_for_strips(const char *soon)
{
#pragma GCC unroll 8
    for (uint32_t i = 0; i < LINES_AHEAD_OF_STEP; i++)
        _mm_prefetch(soon + i * 64, _MM_HINT_T0);
}

/* Step k: tile k % 4 has its product; tiles 4 and 5 have rows, 6 and 7 inputs, by turns. */
#define STEP(k, c, a, b, ended, store, storing, taken, take) \
    BEGIN(k, c, a, b)                                        \
    END(ended, store, storing);                              \
    ask_for_strips(soon + (k)*LINES_AHEAD_OF_STEP * 64);     \
    TAKE(taken, take)

static_assert(STORE_BEHIND == 3 && TAKE_BEHIND == 5 && RING == 4, "as the steps of a unit are written");

/* The steps of `now`, and what is left of the unit before it. */
INLINE void run_unit(int32_t *ring, const char *soon, struct unit before, struct unit now, __m512 acc[SIDE],
                     enum floats floats)
{
    STEP(0, 0, 4, 6, before, 5, 1, before, 3);
    STEP(1, 1, 5, 7, before, 6, 2, before, 4);
    STEP(2, 2, 4, 6, before, 7, 3, before, 5);
    STEP(3, 3, 5, 7, now, 0, 0, before, 6);
    STEP(4, 0, 4, 6, now, 1, 1, before, 7);
    change_sums(acc, before.sums, now.sums);
    STEP(5, 1, 5, 7, now, 2, 2, now, 0);
    STEP(6, 2, 4, 6, now, 3, 3, now, 1);
    STEP(7, 3, 5, 7, now, 4, 0, now, 2);
}

/* ---- Calls ---- */

/* What a unit asks for: strips of the lane that is next, and some of the weights that are packed next. */
INLINE void set_asks(struct call *c, uint32_t first, uint32_t lane, uint32_t group, enum floats floats)
{
    bool last = lane + 1 == c->lanes;
    uint32_t then = last && first + CHUNK < c->blocks ? first + CHUNK : first, i;
    uint32_t n = smaller(c->per_unit, c->lines_left);

    c->soon = (const char *)c->m->panel + ((last ? 0 : lane + 1) * (size_t)c->blocks + then) * strip_bytes(floats) +
              group * (LINES_AHEAD_OF_STEP * CHUNK * 64);
    for (i = 0; i < n; i++, c->next += 64)
        _mm_prefetch((const char *)c->next, _MM_HINT_T1);
    c->lines_left -= n;
}

INLINE void run_units(struct call *c, enum floats floats)
{
    const uint32_t units = c->lanes * c->groups;
    float *unwanted = c->sums + (size_t)units * PRODUCT;
    struct unit before = {.sums = unwanted}, now = before;
    uint32_t first, lane, group, unit;
    __m512 acc[SIDE];

#pragma GCC unroll 16
    for (unit = 0; unit < SIDE; unit++)
        acc[unit] = _mm512_setzero_ps();
    if (c->m->laid == NULL)
        lay_share(c, 0, 0, 1);
    for (first = 0; first < c->blocks; first += CHUNK)
        for (lane = 0; lane < c->lanes; lane++)
            for (group = 0; group < c->groups; group++) {
                unit = lane * c->groups + group;
                now.strips = (const char *)c->m->panel + (lane * (size_t)c->blocks + first) * strip_bytes(floats);
                now.laid = c->m->laid != NULL ? (const char *)c->m->laid + (group * (size_t)c->blocks + first) * LAID
                                              : c->laid[first / CHUNK % 2] + group * CHUNK * (size_t)LAID;
                now.sums = c->sums + unit * (size_t)PRODUCT;
                now.n = smaller(CHUNK, c->blocks - first);
                set_asks(c, first, lane, group, floats);
                if (c->m->laid != NULL && first + CHUNK < c->blocks)
                    ask_for_share(c, first + CHUNK, lane, group);
                run_unit(c->ring, c->soon, before, now, acc, floats);
                if (c->m->laid == NULL) /* behind the last look at the chunk that was there */
                    lay_share(c, first + CHUNK, unit, units);
                before = now;
            }
    now = (struct unit){.strips = now.strips, .laid = now.laid, .sums = unwanted};
    run_unit(c->ring, c->soon, before, now, acc, floats);
}

static void store_outputs(const struct call *c)
{
    const struct rn_matmul *m = c->m;
    uint32_t lane, group, i;
    const float *sums;
    __m512 v[SIDE];

    for (lane = 0; lane < c->lanes; lane++)
        for (group = 0; group < c->groups; group++) {
            sums = c->sums + (lane * c->groups + group) * (size_t)PRODUCT;
#pragma GCC unroll 16
            for (i = 0; i < SIDE; i++)
                v[row_of(i)] = _mm512_load_ps(sums + i * SIDE);
            transpose(v);
            for (i = 0; i < SIDE && group * SIDE + i < m->n; i++)
                store_lanes(m->out[group * SIDE + i] + lane * SIDE, v[i], m->rows - lane * SIDE, 1);
        }
}

INLINE void packed(const struct rn_matmul *m, enum floats floats)
{
    _Alignas(64) float sums[(MOST_LANES * MOST_GROUPS + 1) * PRODUCT];
    _Alignas(64) char laid[2][MOST_GROUPS * CHUNK * LAID];
    _Alignas(64) int32_t ring[RING * PRODUCT];
    struct call c = {.m = m,
                     .blocks = m->cols / 32,
                     .lanes = (uint32_t)rn_round_up(m->rows, SIDE) / SIDE,
                     .groups = (uint32_t)rn_round_up(m->n, SIDE) / SIDE,
                     .ring = ring,
                     .sums = sums,
                     .laid = {laid[0], laid[1]},
                     .next = m->next,
                     .lines_left = m->next_lines};
    uint32_t units = c.lanes * c.groups, i;

    RN_ASSERT(m->rows <= RN_AMX_ROWS && m->n <= RN_AMX_INPUTS && m->n > 0);
    for (i = 0; i < c.groups * SIDE; i++)
        c.inputs[i] = m->inputs[i < m->n ? i : m->n - 1];
    c.per_unit = c.lines_left / (units * ((c.blocks + CHUNK - 1) / CHUNK)) + 1;
    memset(sums, 0, (size_t)(units + 1) * PRODUCT * sizeof *sums);
    amx_shape_products();
    run_units(&c, floats);
    AMX_END();
    store_outputs(&c);
}

void rn_packed_10_amx(const struct rn_matmul *m)
{
    packed(m, SCALE);
}

void rn_packed_11_amx(const struct rn_matmul *m)
{
    packed(m, SCALE_AND_MINIMUM);
}

void rn_packed_fine_amx(const struct rn_matmul *m)
{
    packed(m, SCALE_OF_FINE);
}
