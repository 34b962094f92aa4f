/* Planted bugs: see plants.h. */
#include "tests/sim/plants.h"

#include <stddef.h>
#include <string.h>

static enum plant armed;
static unsigned calls_left;
static bool fired;
static struct rn_block_pool *watched_pool;
static uint32_t watched_block;
static int32_t last_token;
static uint32_t last_drawn;
static unsigned char last_block[4096];
static size_t last_bytes; /* of it; 0: none yet */

void plant_arm(enum plant plant, unsigned calls)
{
    armed = plant;
    calls_left = calls;
    fired = false;
    watched_pool = NULL;
    last_token = -1;
    last_drawn = 0;
    last_bytes = 0;
}

bool plant_fired(void)
{
    return fired;
}

/* True once the calls have passed, until it has struck. */
static bool due(enum plant plant)
{
    if (armed != plant || fired)
        return false;
    if (calls_left > 0)
        calls_left--;
    return calls_left == 0;
}

enum rn_send planted_send_try(struct rn_mailbox *mailbox, struct rn_message *message)
{
    enum rn_send sent = rn_mailbox_send_try(mailbox, message);

    if (!due(PLANT_LOST_WAKE) || sent != RN_SEND_FIRST)
        return sent;
    fired = true;
    return RN_SEND_QUEUED;
}

void planted_unref(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n)
{
    rn_block_pool_unref(pool, blocks, n);
    if (!due(PLANT_DOUBLE_FREE))
        return;
    if (watched_pool == pool && pool->references[watched_block] == 1) {
        fired = true;
        rn_block_pool_unref(pool, &watched_block, 1);
    } else if (n > 0) {
        watched_pool = pool;
        watched_block = blocks[n - 1];
    }
}

runnel_status planted_pick(const struct rn_sampler *sampler, struct rn_path path, const struct rn_mask *mask,
                           struct rn_sampler_scratch *scratch, const float *logits, uint64_t position,
                           bool want_logprobs, uint32_t n_top, struct rn_pick *pick)
{
    runnel_status status =
        rn_sampler_pick_masked(sampler, path, mask, scratch, logits, position, want_logprobs, n_top, pick);
    int32_t token = pick->token;

    if (status != RUNNEL_OK)
        return status;
    if (due(PLANT_STALE_TOKEN) && last_token >= 0 && last_token != token) {
        fired = true;
        pick->token = last_token;
    }
    last_token = token;
    return status;
}

/* What was drawn for the sequence that asked before, in this step or an earlier one. */
uint32_t planted_drawn(const struct rn_step_ring *ring, const struct rn_request *request)
{
    uint32_t drawn = rn_step_ring_drawn(ring, request), before = last_drawn;

    last_drawn = drawn;
    if (before == drawn || armed != PLANT_WRONG_DRAW || fired) /* such rows are few in a run: none is let pass */
        return drawn;
    fired = true;
    return before;
}

/* Branches are few in a run: none is let pass. */
bool planted_branch_is(const struct rn_draft_stream *draft_stream, uint32_t x, int32_t token)
{
    if (armed != PLANT_WRONG_BRANCH || rn_branch_is(draft_stream, x, token) || x == 0 || draft_stream->branch.at != x)
        return rn_branch_is(draft_stream, x, token);
    fired = true;
    return true;
}

runnel_status planted_unpack(struct rn_block_codec *codec, const void *packed, size_t n, void *block)
{
    runnel_status status = rn_block_codec_unpack(codec, packed, n, block);
    unsigned char own[sizeof last_block];
    size_t bytes = codec->options.block_bytes < sizeof own ? codec->options.block_bytes : sizeof own;

    if (status != RUNNEL_OK)
        return status;
    memcpy(own, block, bytes);
    if (due(PLANT_FOREIGN_BLOCK) && last_bytes == bytes && memcmp(last_block, own, bytes) != 0) {
        fired = true;
        memcpy(block, last_block, bytes);
    }
    memcpy(last_block, own, bytes);
    last_bytes = bytes;
    return status;
}

/* Both strike each time. A request that has no outcome when its step comes back failed: there was a fault. */
void planted_uncount(struct rn_request *request, struct rn_batch_part *part)
{
    if (armed != PLANT_STOPPED_COUNTED || request->outcome == RN_OUTCOME_NONE || part->n_drafts > 0)
        rn_batch_uncount(request, part);
    else
        fired = true;
}

void planted_settle_state(struct rn_batch_part *part)
{
    if (armed == PLANT_WRONG_STATE && part->keeps_state && part->n_accepted < part->n_drafts &&
        part->request->outcome == RN_OUTCOME_NONE) {
        fired = true;
        part->n_accepted = part->n_drafts;
    }
    rn_decode_settle_state(part);
}

void planted_shift(const struct rn_admission *admission, struct rn_request *request)
{
    uint32_t head = rn_request_head(request);

    rn_admission_shift(admission, request);
    if (armed != PLANT_WRONG_SHIFT || request->n_tokens < head + 2)
        return;
    fired = true;
    request->n_tokens--;
    request->n_dropped++;
    memmove(request->tokens + head, request->tokens + head + 1, (request->n_tokens - head) * sizeof request->tokens[0]);
}

bool planted_is_wanted(const struct rn_decode *decode)
{
    bool wanted = rn_batch_is_wanted(decode);

    if (armed != PLANT_STOPPED_WANTED || !wanted)
        return wanted;
    fired = true;
    return false;
}

runnel_status planted_mask(struct rn_matcher *matcher, uint64_t *mask, runnel_error *error)
{
    runnel_status status = rn_matcher_mask(matcher, mask, error);
    const struct rn_token_trie *trie = matcher->masks->trie;
    uint32_t n = 0;

    if (armed != PLANT_WRONG_MASK || status != RUNNEL_OK)
        return status;
    for (uint32_t i = 0; i < trie->words; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    if (n != 1)
        return status;
    fired = true;
    memcpy(mask, trie->text, trie->words * sizeof *mask);
    return status;
}
