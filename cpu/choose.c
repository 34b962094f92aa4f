/* The op CHOOSE on the fast path, and what attention reads where it looks at chosen positions only.
 *
 * Scores of all positions up to the row's own go to a worker's memory; then the threshold is found digit by digit (the
 * first looks at all of them, the others at the few that share it), and one pass gathers the positions at or above it.
 * Of steps with few rows pieces are (row, span of positions), so that all workers score; whoever finishes a row's last
 * span chooses. A score is a sum in a fixed order, and the choice hangs on scores alone: neither shows how work was cut
 * (law 5).
 *
 * Attention brings the chosen keys of a row together in memory of the worker's own, arranged as the cache's blocks are,
 * and walks these as if they were all there is:
 *
 *     cache     | . . k . | . . . . | k k . . | . . . k |            n chosen of a long context
 *     gathered  | k k k k |                                          positions 0 to n - 1 for attention
 *
 * What is copied of a key is little beside what all heads of queries then do with it. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cpu/chosen.h"
#include "cpu/execute.h"
#include "model/kv.h"
#include "model/stop.h"

enum {
    SPAN = 1024, /* positions of a piece: some ten microseconds of scores */
    COARSE = 12, /* bits of a rank's first digit: sign, exponent and a little, so that few are left ... */
    FINE = 10    /* ... for two more */
};

static const int32_t *chosen_of(const struct rn_fast_context *c, int16_t slot, uint32_t row)
{
    return (const int32_t *)rn_fast_row(c, slot, row);
}

/* ---- Scores ---- */

/* Row `row` looks at the positions [from, to). */
static void score_span(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, uint32_t from,
                       uint32_t to, float *scores)
{
    static const float signs[2] = {1, -1};
    const struct rn_fast_layer *layer = &c->fast->layers[op->layer];
    struct rn_attend t = {.q = rn_fast_row(c, op->a, row),
                          .rows = 1,
                          .queries = op->heads,
                          .k_dim = op->k_dim,
                          .v_dim = op->k_dim,
                          .last = c->step->rows[row].position,
                          .own = c->step->rows[row].position,
                          .segment = to - from,
                          .from = from,
                          .to = to,
                          .blocks = c->step->seqs[c->step->rows[row].seq].blocks,
                          .block_shift = c->fast->block_shift,
                          .kv_type = c->fast->limits.kv_type,
                          .keys = layer->keys,
                          .key_stride = layer->key_block,
                          .scratch = c->scratch->attend};

    if (!rn_fast_in_line(c->fast, row))
        rn_fast_tree_see(c->fast, c->worker, (uint32_t)op->layer, 0, row, &t);
    c->fast->level->attention->score(&t, op->b < 0 ? signs : rn_fast_row(c, op->b, row), scores);
}

/* ---- Choice ---- */

/* Ascends with the score; what is no number comes first, and both zeros are equal. */
static uint32_t rank_of(float score)
{
    uint32_t bits;

    if (isnan(score))
        return 0;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits ^ ((uint32_t) - (int32_t)(bits >> 31) | 0x80000000u); /* no branch: signs are by chance */
}

/* What a threshold is looked for in: all scores, or a list of ranks. */
struct ranks {
    const float *scores;
    const uint32_t *list; /* NULL: of all scores */
    uint32_t n;
};

/* The digit of `bits` bits, from bit `shift` on, of the *n-th largest of those whose bits above are those of `rank`; *n
 * becomes which of those with this digit, too, it is, and *many how many there are. */
static uint32_t digit_of(const struct ranks *of, uint32_t rank, int shift, int bits, uint32_t *n, uint32_t *many)
{
    uint32_t counts[1u << COARSE], digit = (1u << bits) - 1, i;
    uint32_t above = shift + bits < 32 ? rank >> (shift + bits) : 0;

    memset(counts, 0, sizeof counts[0] << bits);
    for (i = 0; of->list != NULL && i < of->n; i++)
        counts[of->list[i] >> shift & digit] += of->list[i] >> (shift + bits) == above;
    for (i = 0; of->list == NULL && shift + bits == 32 && i < of->n; i++)
        counts[rank_of(of->scores[i]) >> shift]++;
    for (i = 0; of->list == NULL && shift + bits < 32 && i < of->n; i++) {
        uint32_t r = rank_of(of->scores[i]);

        counts[r >> shift & digit] += r >> (shift + bits) == above;
    }
    while (counts[digit] < *n)
        *n -= counts[digit--];
    *many = counts[digit];
    return digit << shift;
}

/* The rank of the n-th largest of the scores, how many of that rank are among the n, and how many there are. The first
 * digit leaves few, mostly: `list` has room for n of their ranks. */
static uint32_t rank_at(const float *scores, uint32_t count, uint32_t n, uint32_t *list, uint32_t *ties, uint32_t *many)
{
    struct ranks of = {.scores = scores, .n = count};
    uint32_t room = n, rank = digit_of(&of, 0, 32 - COARSE, COARSE, &n, many), i;

    if (*many <= room) {
        of = (struct ranks){.scores = scores, .list = list};
        for (i = 0; i < count; i++) {
            uint32_t r = rank_of(scores[i]);

            if ((r ^ rank) >> (32 - COARSE) == 0)
                list[of.n++] = r;
        }
    }
    rank |= digit_of(&of, rank, FINE, FINE, &n, many);
    rank |= digit_of(&of, rank, 0, FINE, &n, many);
    *ties = n;
    return rank;
}

/* The n positions of the largest of `count` scores, ascending; count > n. Where the threshold parts equal scores, they
 * are looked at one after the other. */
static void choose(const float *scores, uint32_t count, uint32_t n, int32_t *out)
{
    uint32_t ties, many, least = rank_at(scores, count, n, (uint32_t *)out, &ties, &many);
    uint32_t i, k = 0;

    if (many > ties) {
        rn_chosen_largest(&(struct rn_scores){.f32 = scores}, count, n, out);
        return;
    }
    for (i = 0; k < n; i++) {
        RN_ASSERT(i < count);
        out[k] = (int32_t)i;
        k += rank_of(scores[i]) >= least;
    }
}

/* The score of block `b` of the positions [0, n): see ops.def. */
static float score_of_block(const struct rn_op *op, const float *scores, uint32_t n, uint32_t b)
{
    uint32_t p = b * op->per, end = p + op->per < n ? p + op->per : n;
    float score = op->best > 0 ? scores[p] : scores[end - 1];

    for (; op->best > 0 && p < end; p++)
        score = scores[p] > score || isnan(score) ? scores[p] : score;
    return score;
}

/* Blocks of the positions [0, n), of which there are more than `used`. Of the scores those of blocks are left. */
static void choose_blocks(const struct rn_op *op, float *scores, uint32_t n, int32_t *out)
{
    uint32_t most = op->used / op->per, blocks = op->best > 0 ? (n + op->per - 1) / op->per : n / op->per, b;

    RN_ASSERT(blocks > most); /* there are more positions than may be chosen */
    for (b = 0; b < blocks; b++)
        scores[b] = op->best > 0 && b + op->best >= blocks ? INFINITY : score_of_block(op, scores, n, b);
    choose(scores, blocks, most, out + op->used - most);
    rn_chosen_positions(out, op->used, most, op->per, blocks * op->per, n);
}

/* Likewise, or single ones. */
static void choose_among(const struct rn_op *op, float *scores, uint32_t n, int32_t *out)
{
    if (op->per > 1)
        choose_blocks(op, scores, n, out);
    else
        choose(scores, n, op->used, out);
}

/* All positions up to the row's own. */
static void choose_all(uint32_t position, uint32_t n, int32_t *out)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        out[i] = i <= position ? (int32_t)i : -1;
}

/* A span of a row of a step with few rows; the last one of a row to be finished chooses. */
static void choose_span(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, uint32_t span)
{
    uint32_t position = c->step->rows[row].position, from = span * SPAN, n = position / SPAN + 1;
    float *scores = c->fast->scores + (size_t)row * c->fast->limits.context_tokens;
    int32_t *out = (int32_t *)rn_fast_row(c, op->out, row);

    if (span >= n)
        return;
    if (position < op->used) {
        if (span == 0)
            choose_all(position, op->used, out);
        return;
    }
    score_span(c, op, row, from, position + 1 < from + SPAN ? position + 1 : from + SPAN, scores);
    /* acq_rel: pairs with the other workers' additions; who counts to n has seen all scores. */
    if (atomic_fetch_add_explicit(&c->fast->scored[row], 1, memory_order_acq_rel) + 1 < n)
        return;
    atomic_store_explicit(&c->fast->scored[row], 0, memory_order_relaxed); /* a barrier is before its next use */
    choose_among(op, scores, position + 1, out);
}

static void choose_row(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    uint32_t position = c->step->rows[row].position;
    float *scores = c->fast->scores + (size_t)c->worker * c->fast->limits.context_tokens;
    int32_t *out = (int32_t *)rn_fast_row(c, op->out, row);

    if (position < op->used) {
        choose_all(position, op->used, out);
        return;
    }
    score_span(c, op, row, 0, position + 1, scores);
    choose_among(op, scores, position + 1, out);
}

/* The spans of a choice that has begun are computed even where the step was stopped: `scored` counts them. */
void rn_fast_choose(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    uint32_t n_rows = c->step->n_rows, spans = 1, i;

    if (n_rows > c->n_workers) {
        for (i = rn_fast_take(c, index); i < n_rows && !rn_stop_is_set(c->step->stop); i = rn_fast_take(c, index))
            choose_row(c, op, n_rows - 1 - i); /* the longest first */
        return;
    }
    for (i = 0; i < n_rows; i++)
        spans = c->step->rows[i].position / SPAN + 1 > spans ? c->step->rows[i].position / SPAN + 1 : spans;
    for (i = rn_fast_take(c, index); i < n_rows * spans; i = rn_fast_take(c, index))
        choose_span(c, op, i / spans, i % spans);
}

/* ---- What attention reads ---- */

void rn_fast_reach(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    uint32_t n = c->step->rows[row].position + 1, n_a = op->a < 0 ? 0 : rn_fast_width(c, op->a), k = 0, p, i;
    const int32_t *a = op->a < 0 ? NULL : chosen_of(c, op->a, row);
    int32_t *out = (int32_t *)rn_fast_row(c, op->out, row);

    for (p = n > op->window ? n - op->window : 0; p < n; p++)
        out[k++] = (int32_t)p;
    for (p = op->per - 1; a == NULL && p < n && k < op->used; p += op->per)
        out[k++] = (int32_t)(p | RN_SECOND);
    for (i = 0; i < n_a && a[i] >= 0 && k < op->used; i++)
        if (((uint32_t)a[i] + 1) % op->per == 0)
            out[k++] = a[i] | RN_SECOND;
    RN_CHECK(k <= op->used);
    while (k < op->used)
        out[k++] = -1;
}

/* Elements of `unit` bytes of n positions, `row` bytes from one to the next of a position, from where each lies to
 * where each goes. */
static void copy_keys(uint8_t *to, const size_t *goes, const uint8_t *const *from, const size_t *lies, uint32_t n,
                      size_t row, size_t bytes, uint32_t unit)
{
    uint32_t j;
    size_t at;

    for (at = 0; at < bytes; at += row) {
        if (unit == 2)
            for (j = 0; j < n; j++)
                memcpy(to + at + goes[j], from[j] + at + lies[j], 2);
        else if (unit == 4)
            for (j = 0; j < n; j++)
                memcpy(to + at + goes[j], from[j] + at + lies[j], 4);
        else
            for (j = 0; j < n; j++)
                to[at + goes[j]] = from[j][at + lies[j]];
    }
}

void rn_fast_gather(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, struct rn_attend *t)
{
    const struct rn_fast_layer *layer = &c->fast->layers[op->layer];
    const struct rn_fast_layer *second = op->second > 0 ? &c->fast->layers[op->second - 1] : layer;
    const uint32_t *blocks = rn_fast_table(second, &c->step->seqs[c->step->rows[row].seq]);
    const int32_t *chosen = chosen_of(c, op->b, row);
    uint32_t unit = rn_kv_unit_bytes(t->kv_type), mask = c->fast->limits.block_tokens - 1, n = t->last + 1, i, j, many;
    uint32_t from = t->from - t->from % t->segment, to = n;
    size_t lies[RN_ATTEND_TILE], goes[RN_ATTEND_TILE];
    const uint8_t *from_of[RN_ATTEND_TILE];

    if (t->to < n) /* the end of the segment that holds the one before it */
        to = (t->to - 1) / t->segment * t->segment + t->segment;
    to = to < n ? to : n;
    for (i = from; i < to; i += many) {
        many = to - i < RN_ATTEND_TILE ? to - i : RN_ATTEND_TILE;
        for (j = 0; j < many; j++) {
            uint32_t position = (uint32_t)chosen[i + j];
            bool far = (position & RN_SECOND) != 0;

            position &= ~(uint32_t)RN_SECOND;
            RN_ASSERT(position <= c->step->rows[row].position);
            lies[j] = (far ? blocks : t->blocks)[position >> t->block_shift] * layer->key_block +
                      (size_t)(position & mask) * unit;
            from_of[j] = far ? second->keys : t->keys;
            goes[j] = ((i + j) >> t->block_shift) * layer->key_head + (size_t)((i + j) & mask) * unit;
        }
        copy_keys(c->scratch->gathered, goes, from_of, lies, many, (size_t)c->fast->limits.block_tokens * unit,
                  layer->key_head, unit);
    }
    t->keys = c->scratch->gathered;
    t->key_stride = layer->key_head;
    t->blocks = c->fast->in_order;
}
