/* What each draft stream wants of the next pass: see draft/wishes.h. */
#include "actors/draft/wishes.h"

#include "actors/context.h"
#include "actors/draft/features.h"
#include "base/check.h"

#define FORGET_STEPS 1024u /* of the target, after which a drafter that was too slow may try again */

bool rn_draft_in_pass(const struct rn_draft_stream *draft_stream)
{
    RN_ASSERT(!draft_stream->in_pass || !draft_stream->branch.in_pass);
    return draft_stream->in_pass || draft_stream->branch.in_pass;
}

/* So slow that drafts hardly ever pay, and reading prompts for them never: beside the target, one that has a guess no
 * sooner than the target the token; in turn with it, where 9 of 10 right would gain a fifth, one that takes more than
 * 0.6 of its time. */
static bool is_too_slow(const struct rn_draft_actor *draft)
{
    uint32_t share = draft->drafter->concurrent ? 10 : 6;

    return draft->target_us > 0 && (uint64_t)10 * draft->guess_us >= (uint64_t)share * draft->target_us;
}

bool rn_draft_can_work(const struct rn_draft_actor *draft)
{
    return draft->target_us > 0 && !is_too_slow(draft);
}

void rn_draft_look_at_time(struct rn_draft_actor *draft)
{
    if (!is_too_slow(draft) || ++draft->n_idle < FORGET_STEPS)
        return;
    draft->n_idle = 0;
    draft->guess_us = draft->drafter->pass_us; /* what slowed it may be over */
    for (uint32_t i = 0; i < draft->n_draft_streams; i++)
        draft->draft_streams[i].changed = draft->draft_streams[i].generation != 0;
}

/* Guesses that the draft stream should have. */
static uint32_t goal(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    uint32_t n = draft_stream->want, room = draft_stream->capacity - draft_stream->n_known;

    RN_ASSERT(draft_stream->n_known <= draft_stream->capacity);
    if (n == 0 || !rn_draft_can_work(draft) || (!draft->drafter->concurrent && !draft_stream->waits))
        return 0;
    if (draft_stream->flying)
        n += draft_stream->n_flying + 1;
    n = n < RN_GUESS_MOST ? n : RN_GUESS_MOST;
    return n < room ? n : room;
}

static bool is_behind(const struct rn_draft_stream *draft_stream)
{
    for (uint32_t l = 0; l < RN_DRAFT_LAYERS; l++)
        if (rn_draft_stream_pending(draft_stream, l) > RN_DRAFT_MAX_LAG &&
            (l == 0 || draft_stream->layers[l].features != NULL))
            return true;
    return false;
}

void rn_draft_look_at(struct rn_draft_stream *draft_stream)
{
    enum rn_drafts_state state = is_behind(draft_stream) ? RN_DRAFTS_BEHIND : RN_DRAFTS_READY;

    if (draft_stream->state == state || draft_stream->state == RN_DRAFTS_OFF)
        return;
    draft_stream->state = state;
    draft_stream->changed = true;
}

bool rn_draft_is_open(const struct rn_draft_stream *draft_stream)
{
    return draft_stream->generation != 0 && !draft_stream->ended && draft_stream->state != RN_DRAFTS_OFF;
}

bool rn_draft_has_enough(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    uint32_t l = rn_draft_stream_next_layer(draft, draft_stream);

    if (!rn_draft_is_open(draft_stream) || is_behind(draft_stream) ||
        draft_stream->n_tokens - draft_stream->n_known >= goal(draft, draft_stream))
        return true;
    /* without features nothing can be computed before the next news: whoever waits would wait for ever */
    return !draft_stream->in_pass && rn_draft_stream_next_rows(draft, draft_stream, l) == 0;
}

bool rn_draft_guess(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t i, const float *logits,
                    int32_t *token, struct rn_runner_up *second)
{
    struct rn_pick pick;

    if (rn_sampler_pick_plain(&draft_stream->sampling, draft->context->n_vocab, draft->scratch, logits,
                              draft_stream->base + i, &pick, second) != RUNNEL_OK)
        return false;
    RN_ASSERT(pick.token >= 0 && (uint32_t)pick.token < draft->context->n_vocab);
    *token = pick.token;
    return true;
}
