/* Pooling: see embed.h. */
#include "actors/embed.h"

#include <math.h>

#include "base/check.h"

struct rn_embed *rn_embed_new(struct rn_heap *heap, runnel_pooling pooling, enum rn_embed_end end, uint32_t at,
                              uint32_t width, uint32_t n_out)
{
    struct rn_embed *embed = rn_calloc(heap, 1, sizeof *embed + (size_t)width * sizeof(double));

    if (embed == NULL)
        return NULL;
    RN_ASSERT(pooling != RUNNEL_POOLING_DEFAULT && n_out > 0 && n_out <= width);
    embed->heap = heap;
    embed->pooling = pooling;
    embed->end = end;
    embed->at = at;
    embed->width = width;
    embed->n_out = n_out;
    return embed;
}

void rn_embed_free(struct rn_embed *embed)
{
    if (embed != NULL)
        rn_free(embed->heap, embed);
}

bool rn_embed_ask(struct rn_embed *embed, uint32_t position, uint32_t n_prompt)
{
    if (position < embed->next || position >= n_prompt)
        return false;
    embed->next = position + 1;
    return embed->pooling == RUNNEL_POOLING_MEAN || (embed->pooling == RUNNEL_POOLING_FIRST && position == 0) ||
           (embed->pooling == RUNNEL_POOLING_LAST && position + 1 == n_prompt);
}

void rn_embed_add(struct rn_embed *embed, const float *rows, uint32_t n, uint32_t stride)
{
    RN_ASSERT(embed->at + embed->width <= stride);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < embed->width; i++)
            embed->sum[i] += rows[(size_t)r * stride + embed->at + i];
    embed->n += n;
    RN_ASSERT(embed->n <= embed->next);
}

static double unit_scale(const struct rn_embed *embed)
{
    double squares = 0;

    for (uint32_t i = 0; i < embed->n_out; i++)
        squares += embed->sum[i] * embed->sum[i];
    return squares > 0 ? 1.0 / sqrt(squares) : 0;
}

/* A single value is one of two, the other of which is 0. */
static void put_chances(struct rn_embed *embed, double scale)
{
    double most = embed->n_out == 1 ? 0 : embed->sum[0], all;

    for (uint32_t i = 0; i < embed->n_out; i++)
        most = embed->sum[i] > most ? embed->sum[i] : most;
    all = embed->n_out == 1 ? exp(-most * scale) : 0;
    for (uint32_t i = 0; i < embed->n_out; i++)
        all += exp((embed->sum[i] - most) * scale);
    for (uint32_t i = 0; i < embed->n_out; i++)
        embed->out[i] = (float)(exp((embed->sum[i] - most) * scale) / all);
}

runnel_status rn_embed_finish(struct rn_embed *embed)
{
    double scale = 1.0 / embed->n;

    RN_ASSERT(embed->n > 0 && (embed->n == 1 || embed->pooling == RUNNEL_POOLING_MEAN));
    for (uint32_t i = 0; i < embed->width; i++)
        if (!isfinite(embed->sum[i]))
            return RUNNEL_NUMERIC;
    if (embed->end == RN_EMBED_CHANCES) {
        put_chances(embed, scale);
        return RUNNEL_OK;
    }
    if (embed->end == RN_EMBED_UNIT)
        scale = unit_scale(embed);
    for (uint32_t i = 0; i < embed->n_out; i++)
        embed->out[i] = (float)(embed->sum[i] * scale);
    return RUNNEL_OK;
}
