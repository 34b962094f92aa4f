/* Products of up to 32 inputs without a panel on a matrix unit that multiplies bytes (AMX): the sums of
 * blocks_products.inc, to the bit. For formats with one scale to 32 columns; packed_amx.c has those with more inputs.
 *
 * The unit sums products of integers exactly; floats are the vectors' work, a subtraction and a fma for each scale as
 * everywhere (kernels.h). It takes strips as they are unpacked, and the lines of inputs, gathered:
 *
 *     C [16 inputs, 16 rows] = A [16 inputs, 32 columns] B [32 columns, 16 rows]
 *
 * A job is two halves of 16 inputs by 32 rows, by two blocks: eight products. With more than 16 inputs the halves are
 * those of 32 inputs, which meet the same rows; else those of 64 rows, which meet the same inputs. While the products
 * of one job are made, the vectors take up those of the job before. In each of eight steps the product that was begun
 * four steps ago is stored, sums of four inputs and 32 rows in one block are taken up, the next product is begun, and
 * those of four more inputs are taken up.
 *
 *     step          0     1     2     3       4     5     6     7
 *     begun         first half                second half               of this job
 *     stored        second half               first half                of the job before; of this one
 *     taken up      inputs 0..7   8..15       0..7        8..15         of the job before: first half, second half
 *
 * So a product has four steps to end and two or more to come to rest in memory, and 8 KB are enough for all of them.
 * WINDOW columns of a few rows become strips in a buffer in the first-level cache just before they are multiplied;
 * through a panel, which is in the second level, each strip would take as long to write as its products with eight
 * inputs. Measured: docs/SPEED-LOG.md.
 *
 * Threads: any; the tiles' state is set up and given up within a call. */
#include <string.h>

#include "base/check.h"
#include "cpu/levels/amx/amx.h"
#include "cpu/levels/avx512/columns_avx512.h"

enum {
    SIDE = 16,
    ACROSS = 2 * SIDE, /* inputs, and rows of a job */
    BLOCKS = 2,        /* of a job: a chunk of columns */
    PRODUCT = SIDE * SIDE,
    EIGHT = 8, /* inputs whose sums are in registers together */
    FOUR = 4,  /* of them those that are taken up at once */
    STEPS = 8,
    LINES = ACROSS * sizeof(struct rn_line),
    WINDOW = 8,      /* blocks that are strips at once, at most */
    MOST_LANES = 4,  /* sixteens of rows, likewise */
    MOST_STRIP = 640 /* bytes */
};

/* What a half of a job is made of. */
struct half {
    const char *lines;        /* [SIDE], of the first block */
    const uint8_t *strips[2]; /* of the first block: the first sixteen rows', and the others' */
    const uint8_t *scales[2]; /* of the first block: its scales, then its minima */
};

struct job {
    struct half halves[2];
    size_t line_step;  /* from the first block's lines to the second one's */
    size_t scale_step; /* ... scales ... */
    float *sums;       /* [2][SIDE inputs][2][SIDE] */
    uint32_t blocks;   /* 1 at the end of an odd number: the second block is the first once more, not taken up */
};

struct call {
    const struct rn_matmul *m;
    uint32_t blocks;
    int32_t *products;    /* [half of the inputs][BLOCKS][half of the rows][PRODUCT] */
    float *sums;          /* [lanes / lanes of a job] of a job's, and one more */
    uint32_t n_lines;     /* so many of them are gathered */
    const uint8_t *next;  /* what is asked for: the line, ... */
    uint32_t per_step;    /* ... so many in each step, ... */
    uint32_t lines_left;  /* ... so many yet, ... */
    uint32_t group_left;  /* ... so many of them one behind the other, ... */
    uint32_t group_lines; /* ... as many behind a gap ... */
    size_t group_step;    /* ... of so many bytes */
};

INLINE uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Asks for some of the weights that are unpacked next. */
INLINE void ask(struct call *c)
{
    uint32_t n = c->lines_left < c->per_step ? c->lines_left : c->per_step;

    for (c->lines_left -= n; n > 0; n--) {
        _mm_prefetch((const char *)c->next, _MM_HINT_T1);
        c->next += 64;
        if (--c->group_left == 0) {
            c->next += c->group_step;
            c->group_left = c->group_lines;
        }
    }
}

/* ---- Sums ---- */

/* Takes up a block's products of FOUR inputs of a half, from `first` on, which are floats from here on. */
INLINE void take_up(__m512 acc[FOUR][2], const struct job *j, const int32_t *products, uint32_t half, uint32_t first,
                    uint32_t block, enum floats floats)
{
    const struct half *h = &j->halves[half];
    const struct rn_line *y = (const struct rn_line *)(h->lines + block * j->line_step) + first;
    const float *w = (const float *)(h->scales[0] + block * j->scale_step);
    const float *x = (const float *)(h->scales[1] + block * j->scale_step);
    const int32_t *sum = products + (half * BLOCKS + block) * 2 * PRODUCT + first * SIDE;
    const __m512 scale[2] = {_mm512_load_ps(w), _mm512_load_ps(x)};
    __m512 least[2], product, d, magic_d;
    __m512i start;
    uint32_t i, v;

#pragma GCC unroll 8
    for (i = 0; i < FOUR; i++) {
        magic_d = _mm512_set1_ps(y[i].magic_d);
        start = floats == SCALE_AND_MINIMUM ? _mm512_castps_si512(magic_d) : _mm512_set1_epi32(y[i].start);
        d = _mm512_set1_ps(y[i].d);
        for (v = 0; v < 2; v++) {
            product = _mm512_castsi512_ps(_mm512_add_epi32(start, _mm512_load_si512(sum + v * PRODUCT + i * SIDE)));
            product = floats == SCALE_OF_FINE ? _mm512_fmsub_ps(product, d, magic_d) : _mm512_sub_ps(product, magic_d);
            acc[i][v] = _mm512_fmadd_ps(product, scale[v], acc[i][v]);
        }
    }
    if (floats != SCALE_AND_MINIMUM)
        return;
    least[0] = _mm512_load_ps(w + SIDE);
    least[1] = _mm512_load_ps(x + SIDE);
#pragma GCC unroll 8
    for (i = 0; i < FOUR; i++)
        for (v = 0; v < 2; v++)
            acc[i][v] = _mm512_fmadd_ps(_mm512_set1_ps(y[i].d_sum), least[v], acc[i][v]);
}

/* ---- Jobs ---- */

/* Where the product of a half, block, and half of its rows is. */
#define PLACE(half, block, v) (call->products + (((half)*BLOCKS + (block)) * 2 + (v)) * PRODUCT)

INLINE void load_acc(__m512 acc[EIGHT][2], const float *sums)
{
    for (uint32_t i = 0; i < EIGHT * 2; i++)
        acc[i / 2][i % 2] = _mm512_load_ps(sums + i * SIDE);
}

INLINE void store_acc(float *sums, __m512 acc[EIGHT][2])
{
    for (uint32_t i = 0; i < EIGHT * 2; i++)
        _mm512_store_ps(sums + i * SIDE, acc[i / 2][i % 2]);
}

/* Multiplies the inputs in tile `a` by sixteen rows v of half q / 2, in `block`, into tile c, and takes up `of` if
 * wanted. */
#define STEP(q, c, a, b, v, block, of, wanted)                                                  \
    AMX_LOAD(b, next->halves[(q) / 2].strips[v] + (block)*to_second, 64);                       \
    AMX_STORE(c, PLACE(1 - (q) / 2, block, v), 64);                                             \
    if (wanted)                                                                                 \
        take_up(acc, done, call->products, (q) / 2, (q) % 2 * EIGHT, of, floats);               \
    AMX_ZERO(c);                                                                                \
    AMX_DOT_SIGNED_UNSIGNED(c, a, b);                                                           \
    if (wanted)                                                                                 \
        take_up(acc + FOUR, done, call->products, (q) / 2, (q) % 2 * EIGHT + FOUR, of, floats); \
    ask(call)

/* Two steps: of half q / 2, and with the eight inputs whose sums are the q-th. */
#define PART(q, c, d, a, block)                                          \
    load_acc(acc, done->sums + (q)*EIGHT * 2 * SIDE);                    \
    AMX_LOAD(a, next->halves[(q) / 2].lines + (block)*second_lines, 64); \
    STEP(q, c, a, 6, 0, block, 0, true);                                 \
    STEP(q, d, a, 7, 1, block, 1, both);                                 \
    store_acc(done->sums + (q)*EIGHT * 2 * SIDE, acc)

/* Multiplies `next` and takes up `done`, the one before. */
INLINE void run_job(struct call *call, const struct job *next, const struct job *done, enum floats floats)
{
    const size_t to_second = next->blocks > 1 ? strip_bytes(floats) : 0;
    const size_t second_lines = next->blocks > 1 ? next->line_step : 0;
    const bool both = done->blocks > 1;
    __m512 acc[EIGHT][2];

    PART(0, 0, 1, 4, 0);
    PART(1, 2, 3, 5, 1);
    PART(2, 0, 1, 4, 0);
    PART(3, 2, 3, 5, 1);
}

/* The two halves of a job of 32 inputs and 32 rows, or of 16 inputs and 64 rows: strips of sixteen rows each begin
 * of_lanes apart; where there are no more rows, they are the first ones once more. */
INLINE struct job job_of(const struct call *c, const char *lines, const uint8_t *strips, size_t of_lanes, bool more,
                         float *sums, uint32_t blocks, enum floats floats)
{
    const bool wide = c->n_lines > SIDE;
    const uint8_t *second = wide || !more ? strips : strips + 2 * of_lanes;
    struct job job = {.halves = {{lines, {strips, strips + of_lanes}, {0}},
                                 {wide ? lines + LINES / 2 : lines, {second, second + of_lanes}, {0}}},
                      .line_step = c->n_lines * sizeof(struct rn_line),
                      .scale_step = strip_bytes(floats),
                      .sums = sums,
                      .blocks = blocks};
    uint32_t h, v;

    for (h = 0; h < 2; h++)
        for (v = 0; v < 2; v++)
            job.halves[h].scales[v] = job.halves[h].strips[v] + 8 * 64;
    return job;
}

/* ---- Calls ---- */

void rn_gather_amx(const struct rn_matmul *m)
{
    const uint32_t n_lines = m->n > SIDE ? ACROSS : SIDE;
    struct rn_line *to = m->panel;
    uint32_t b, i;

    for (b = 0; b < m->cols / 32; b++)
        for (i = 0; i < n_lines; i++)
            *to++ = ((const struct rn_line *)m->inputs[i < m->n ? i : m->n - 1])[b];
}

/* Weights that become strips a window at a time. */
struct windows {
    rn_unpack *unpack;
    uint8_t *strips; /* [lanes][WINDOW] strips */
    uint8_t *kept;   /* [lanes][BLOCKS][2][64]: scales and minima of the job that is taken up last */
    uint32_t blocks; /* of one */
    uint32_t row;    /* the first one of the pass */
    uint32_t lanes;  /* sixteens of rows of a pass */
    size_t tile_bytes;
};

/* The strips of a job are overwritten before it is taken up: its scales are kept. */
INLINE void keep_scales(struct job *done, uint8_t *kept)
{
    uint32_t h, v, b, i;

    for (h = 0; h < 2; h++)
        for (v = 0; v < 2; v++, kept += BLOCKS * 2 * 64) {
            for (b = 0; b < done->blocks; b++)
                for (i = 0; i < 2; i++)
                    _mm512_store_si512(kept + (b * 2 + i) * 64,
                                       _mm512_load_si512(done->halves[h].scales[v] + b * done->scale_step + i * 64));
            done->halves[h].scales[v] = kept;
        }
    done->scale_step = 2 * 64;
}

/* Rows [w->row, w->row + 16 lanes), blocks [first, first + n) become strips. Of what is unpacked behind them the lines
 * are asked for from now on: further columns of these rows, or the first ones of the rows below. */
INLINE void unpack(struct call *c, const struct windows *w, uint32_t first, uint32_t n, enum floats floats)
{
    const size_t of_block = RN_TILE_ROWS * c->m->row_bytes / c->blocks;
    const uint32_t end = first + n, left = c->blocks - end,
                   then = left == 0 ? smaller(w->blocks, c->blocks) : smaller(w->blocks, left);
    const uint8_t *tile = c->m->weights + (size_t)w->row * c->m->row_bytes;
    const uint32_t steps = (n + BLOCKS - 1) / BLOCKS * STEPS * (c->n_lines > SIDE ? w->lanes / 2 : 1);
    uint32_t l;

    for (l = 0; l < w->lanes; l++)
        w->unpack(c->m, w->row + l * SIDE, first, n, w->strips + l * w->blocks * strip_bytes(floats));
    c->next = left > 0 ? tile + end * of_block : tile + w->lanes * w->tile_bytes;
    c->group_lines = c->group_left = (uint32_t)(then * of_block / 64);
    c->group_step = w->tile_bytes - 64 * (size_t)c->group_lines;
    c->lines_left = w->lanes * c->group_lines;
    c->per_step = c->lines_left / steps + 1;
}

/* All columns of as many rows as w->lanes says. */
INLINE void pass(struct call *c, const struct windows *w, enum floats floats)
{
    const uint32_t lanes_of_job = c->n_lines > SIDE ? 2 : 4;
    const size_t of_lanes = w->blocks * strip_bytes(floats);
    struct job jobs[2], *next, *done = &jobs[0];
    uint32_t first, n, b, l, t = 1;
    const char *lines;

    *done = job_of(c, c->m->panel, w->kept, 0, false, c->sums + MOST_LANES / 2 * ACROSS * ACROSS, 1, floats);
    for (first = 0; first < c->blocks; first += n) {
        n = smaller(w->blocks, c->blocks - first);
        keep_scales(done, w->kept);
        unpack(c, w, first, n, floats);
        for (b = 0; b < n; b += BLOCKS) {
            lines = (const char *)c->m->panel + (size_t)(first + b) * c->n_lines * sizeof(struct rn_line);
            for (l = 0; l < w->lanes; l += lanes_of_job, t++) {
                next = &jobs[t % 2];
                *next = job_of(c, lines, w->strips + l * of_lanes + b * strip_bytes(floats), of_lanes, l + 2 < w->lanes,
                               c->sums + l / lanes_of_job * ACROSS * ACROSS, n - b < BLOCKS ? 1 : BLOCKS, floats);
                run_job(c, next, done, floats);
                done = next;
            }
        }
    }
    run_job(c, done, done, floats);
}

static void store_pass(const struct call *c, const struct windows *w)
{
    const bool wide = c->n_lines > SIDE;
    const struct rn_matmul *m = c->m;
    uint32_t at, v, row, i, input;

    /* at: sixteen inputs by 32 rows */
    for (at = 0; at < (wide ? w->lanes : w->lanes / 2); at++)
        for (i = 0; i < SIDE; i++)
            for (v = 0; v < 2; v++) {
                row = w->row + (wide ? at / 2 : at) * ACROSS + v * SIDE;
                input = wide ? at % 2 * SIDE + i : i;
                if (row < m->rows && input < m->n)
                    store_lanes(m->out[input] + row, _mm512_load_ps(c->sums + ((at * SIDE + i) * 2 + v) * SIDE),
                                m->rows - row, 1);
            }
}

INLINE void direct(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack_, enum floats floats)
{
    _Alignas(64) float sums[(MOST_LANES / 2 + 1) * ACROSS * ACROSS];
    _Alignas(64) int32_t products[2 * BLOCKS * 2 * PRODUCT];
    _Alignas(64) uint8_t buffer[MOST_LANES * WINDOW * MOST_STRIP + 64], kept[MOST_LANES * BLOCKS * 2 * 64 + MOST_STRIP];
    struct call c = {
        .m = m, .blocks = m->cols / 32, .products = products, .sums = sums, .n_lines = m->n > SIDE ? ACROSS : SIDE};
    struct windows w = {.unpack = unpack_,
                        .strips = buffer,
                        .kept = kept,
                        .blocks = strips > WINDOW / 2 ? WINDOW : WINDOW / 2,
                        .tile_bytes = RN_TILE_ROWS * m->row_bytes};

    RN_ASSERT(m->n <= RN_AMX_INPUTS && m->n > 0 && m->step == 1 && WINDOW % strips == 0);
    memset(kept, 0, sizeof kept);
    memset(products, 0, sizeof products);
    amx_shape_products();
    for (w.row = 0; w.row < m->rows; w.row += w.lanes * SIDE) {
        w.lanes = m->rows - w.row > ACROSS ? 4 : 2;
        memset(sums, 0, sizeof sums);
        pass(&c, &w, floats);
        store_pass(&c, &w);
    }
    AMX_END();
}

void rn_direct_10_amx(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack_)
{
    direct(m, strips, unpack_, SCALE);
}

void rn_direct_11_amx(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack_)
{
    direct(m, strips, unpack_, SCALE_AND_MINIMUM);
}

void rn_direct_fine_amx(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack_)
{
    direct(m, strips, unpack_, SCALE_OF_FINE);
}
