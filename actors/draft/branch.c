/* Branches of a drafter's draft streams: see draft/branch.h. */
#include "actors/draft/branch.h"

#include <string.h>

#include "actors/context.h"
#include "actors/draft/cache.h"
#include "actors/draft/wishes.h"
#include "base/check.h"
#include "base/min.h"

#define LEAST_CHANCE 0.02f /* of a guess; below it a pass is not worth what it warms */
/* A line that comes true is worth more than a branch: what follows it may stay ahead of the target. In logical time,
 * 50 to 90 % right, passes of 0.1 and 0.2 of a step, chains and trees, 1 loses up to 0.027 in some cases and this at
 * most 0.003; at 50 % right this gains 0.03 to 0.13. */
#define BY_FAR 2.5f

/* ---- Memory ---- */

bool rn_branch_new(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    const struct rn_drafter *drafter = draft->drafter;

    draft_stream->branch.blocks = NULL;
    if (!drafter->concurrent || drafter->kind != RN_DRAFTER_TOKENS)
        return true;
    draft_stream->branch.blocks =
        rn_alloc(draft->context->heap, draft_stream->max_blocks, sizeof draft_stream->branch.blocks[0]);
    return draft_stream->branch.blocks != NULL;
}

void rn_branch_free(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    RN_CHECK(!rn_draft_in_pass(draft_stream));
    rn_branch_drop(draft, draft_stream);
    RN_ASSERT(draft_stream->branch.n_blocks == 0);
    rn_free(draft->context->heap, draft_stream->branch.blocks);
    draft_stream->branch.blocks = NULL;
}

uint32_t rn_branch_own(const struct rn_draft_stream *draft_stream)
{
    RN_ASSERT(draft_stream->branch.n_shared <= draft_stream->branch.n_blocks);
    return draft_stream->branch.n_blocks - draft_stream->branch.n_shared;
}

void rn_branch_drop(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct rn_branch *branch = &draft_stream->branch;

    branch->at = 0;
    if (rn_draft_in_pass(draft_stream) || branch->n_blocks == 0)
        return;
    rn_block_pool_unref(&draft->pool, branch->blocks + branch->n_shared, rn_branch_own(draft_stream));
    branch->n_shared = branch->n_blocks = 0;
}

/* ---- What the news say ---- */

bool rn_branch_is(const struct rn_draft_stream *draft_stream, uint32_t x, int32_t token)
{
    return draft_stream->branch.at == x && x > 0 && draft_stream->branch.tokens[0] == token;
}

/* What was the line is a branch that has been dropped: its blocks go the way of one's. */
void rn_branch_adopt(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct rn_branch *branch = &draft_stream->branch;
    uint32_t *blocks = draft_stream->blocks, n_blocks = draft_stream->n_blocks;
    bool in_pass = draft_stream->in_pass;

    RN_CHECK(branch->at > 0 && branch->n_tokens <= draft_stream->capacity && branch->blocks != NULL);
    RN_ASSERT(!draft_stream->in_pass || !branch->in_pass);
    for (uint32_t i = branch->at; i < branch->n_tokens; i++) {
        draft_stream->tokens[i] = branch->tokens[i - branch->at];
        draft_stream->seconds[i % RN_GUESS_MOST] = branch->seconds[i - branch->at];
    }
    draft_stream->n_tokens = branch->n_tokens;
    draft_stream->layers[0].n_done = branch->n_done;
    draft_stream->from = branch->from;
    draft_stream->n_valid = UINT32_MAX;
    draft_stream->blocks = branch->blocks;
    draft_stream->n_blocks = branch->n_blocks;
    draft_stream->in_pass = branch->in_pass;
    draft_stream->changed = true;
    branch->blocks = blocks;
    branch->n_blocks = n_blocks;
    branch->in_pass = in_pass;
    rn_branch_drop(draft, draft_stream);
    rn_metrics_count(draft->context->metrics, RN_COUNT_DRAFT_BRANCHES_RIGHT, 1);
}

/* ---- Where it begins, and when ---- */

/* 0: the guess of index i has no runner-up that could begin a branch. */
static float share_of(const struct rn_draft_stream *draft_stream, uint32_t i)
{
    const struct rn_runner_up *second = &draft_stream->seconds[i % RN_GUESS_MOST];

    return second->token >= 0 && second->token != draft_stream->tokens[i] && second->share > 0 ? second->share : 0;
}

/* The index at which a branch is likeliest to come true, and how likely. The row before must be computed, and behind
 * it there must be something left to guess. */
static uint32_t best_place(const struct rn_draft_stream *draft_stream, float *chance)
{
    uint32_t n = rn_min_u32(draft_stream->n_tokens - draft_stream->n_known, draft_stream->n_flying + 1), which;
    float shares[RN_DRAFT_MOST + 1];

    RN_ASSERT(draft_stream->n_known > 0 && draft_stream->n_known <= draft_stream->n_tokens);
    n = rn_min_u32(n, RN_DRAFT_MOST + 1);
    for (uint32_t i = 0; i < n; i++)
        shares[i] = share_of(draft_stream, draft_stream->n_known + i);
    which = rn_odds_best_branch(&draft_stream->odds, shares, n, draft_stream->leaves, chance);
    if (draft_stream->layers[0].n_done < draft_stream->n_known + which ||
        draft_stream->n_known + which + 1 >= draft_stream->capacity)
        *chance = 0;
    return draft_stream->n_known + which;
}

/* Of the branch's next guess: that it is of use. */
static float chance_of(const struct rn_draft_stream *draft_stream)
{
    const struct rn_branch *branch = &draft_stream->branch;
    float chance = branch->chance;

    if (branch->at == 0) {
        best_place(draft_stream, &chance);
        return chance;
    }
    for (uint32_t i = branch->at + 1 + branch->leaf; i < branch->n_tokens; i++)
        chance *= draft_stream->odds.later;
    return chance;
}

/* Likewise of the line's; 0: none is wanted. */
static float chance_of_line(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    uint32_t n = draft_stream->n_tokens - draft_stream->n_known;

    return rn_draft_has_enough(draft, draft_stream)
               ? 0
               : rn_odds_reach(&draft_stream->odds, n > draft_stream->n_flying ? n : draft_stream->n_flying + 1);
}

/* Behind a leaf the step adds a token. */
static bool has_all(const struct rn_draft_stream *draft_stream)
{
    const struct rn_branch *branch = &draft_stream->branch;
    uint32_t end = branch->at + 1 + branch->leaf + draft_stream->want;

    end = rn_min_u32(end, draft_stream->n_known + RN_GUESS_MOST);
    return branch->at != 0 && branch->n_tokens >= rn_min_u32(end, draft_stream->capacity);
}

/* For a row more. */
static bool has_block(struct rn_draft_actor *draft, const struct rn_branch *branch)
{
    uint32_t held = branch->n_blocks * draft->drafter->limits.block_tokens;

    return (branch->at != 0 && branch->n_tokens <= held) || rn_draft_cache_make_room(draft);
}

bool rn_branch_goes_first(struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    float chance;

    if (!draft->has_time || draft_stream->branch.blocks == NULL || draft_stream->branch.in_pass ||
        draft_stream->in_pass || draft_stream->ended || draft_stream->state != RN_DRAFTS_READY ||
        !draft_stream->flying || draft_stream->want == 0 || has_all(draft_stream))
        return false;
    chance = chance_of(draft_stream);
    return chance >= LEAST_CHANCE && chance > BY_FAR * chance_of_line(draft, draft_stream) &&
           has_block(draft, &draft_stream->branch);
}

/* ---- Its rows ---- */

static void begin(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct rn_branch *branch = &draft_stream->branch;

    branch->at = best_place(draft_stream, &branch->chance);
    RN_ASSERT(branch->at >= draft_stream->n_known && branch->at < draft_stream->n_tokens && branch->n_blocks == 0);
    branch->leaf = (draft_stream->leaves >> (branch->at - draft_stream->n_known) & 1) != 0;
    branch->n_done = branch->at;
    branch->n_tokens = branch->at + 1;
    branch->tokens[0] = draft_stream->seconds[branch->at % RN_GUESS_MOST].token;
    branch->seconds[0] = (struct rn_runner_up){.token = -1};
    branch->n_shared = branch->n_blocks = branch->at / draft->drafter->limits.block_tokens;
    if (branch->n_shared > 0)
        memcpy(branch->blocks, draft_stream->blocks, branch->n_shared * sizeof branch->blocks[0]);
    rn_metrics_count(draft->context->metrics, RN_COUNT_DRAFT_BRANCHES, 1);
}

/* A pass has one row of a branch, so that a block more is enough. */
static void lease(struct rn_draft_actor *draft, struct rn_branch *branch)
{
    if (branch->n_blocks * draft->drafter->limits.block_tokens >= branch->n_tokens)
        return;
    RN_CHECK(rn_block_pool_take(&draft->pool, 1, &branch->blocks[branch->n_blocks]));
    branch->n_blocks++;
}

void rn_branch_compose(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    uint32_t per_block = draft->drafter->limits.block_tokens;
    struct rn_branch *branch = &draft_stream->branch;
    struct rn_step *pass = &draft->pass;

    if (branch->at == 0)
        begin(draft, draft_stream);
    RN_CHECK(branch->n_tokens <= draft_stream->capacity); /* there is a place for its last block */
    lease(draft, branch);
    RN_ASSERT(!rn_draft_in_pass(draft_stream) && branch->n_done + 1 == branch->n_tokens);
    RN_CHECK(pass->n_rows < draft->drafter->limits.max_rows && pass->n_seqs < draft->drafter->limits.max_seqs);
    if (branch->n_done == branch->at && branch->at % per_block != 0)
        pass->copies[pass->n_copies++] =
            (struct rn_step_copy){draft_stream->blocks[branch->n_shared], branch->blocks[branch->n_shared]};
    pass->seqs[pass->n_seqs] = (struct rn_step_seq){.blocks = branch->blocks, .n_blocks = branch->n_blocks};
    pass->rows[pass->n_rows++] = (struct rn_step_row){.token = branch->tokens[branch->n_done - branch->at],
                                                      .position = branch->n_done,
                                                      .seq = pass->n_seqs,
                                                      .out = (int32_t)pass->n_outs++};
    draft->draft_stream_of[pass->n_seqs++] = draft_stream;
    branch->from = branch->n_done++;
    branch->in_pass = true;
}

bool rn_branch_settle(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, const float *logits)
{
    struct rn_branch *branch = &draft_stream->branch;
    uint32_t i = branch->n_tokens - branch->at;

    if (branch->at == 0)
        return true;
    RN_ASSERT(i < RN_GUESS_MOST && branch->n_tokens < draft_stream->capacity && branch->n_done == branch->n_tokens);
    if (!rn_draft_guess(draft, draft_stream, branch->n_tokens, logits, &branch->tokens[i], &branch->seconds[i]))
        return false;
    branch->n_tokens++;
    draft_stream->changed = true;
    return true;
}

/* ---- What the verifier is told ---- */

void rn_branch_tell(const struct rn_draft_stream *draft_stream, struct rn_guess_line *line)
{
    const struct rn_branch *branch = &draft_stream->branch;

    line->n = branch->at != 0 ? branch->n_tokens - draft_stream->n_known : 0;
    RN_CHECK(line->n <= RN_GUESS_MOST);
    for (uint32_t i = 0; i < line->n; i++) {
        uint32_t x = draft_stream->n_known + i;

        line->guesses[i] = x < branch->at ? draft_stream->tokens[x] : branch->tokens[x - branch->at];
        line->seconds[i] = x < branch->at ? draft_stream->seconds[x % RN_GUESS_MOST] : branch->seconds[x - branch->at];
    }
}

bool rn_branch_check(const struct rn_draft_stream *draft_stream, uint32_t block_tokens)
{
    const struct rn_branch *branch = &draft_stream->branch;

    if (branch->at == 0)
        return branch->n_shared <= branch->n_blocks && (rn_draft_in_pass(draft_stream) || branch->n_blocks == 0);
    return branch->at >= draft_stream->n_known && branch->at < draft_stream->n_tokens && branch->n_done >= branch->at &&
           branch->n_done <= branch->n_tokens && branch->n_tokens <= draft_stream->capacity &&
           branch->n_tokens - draft_stream->n_known <= RN_GUESS_MOST && branch->n_shared == branch->at / block_tokens &&
           branch->n_shared <= branch->n_blocks && branch->n_done <= branch->n_blocks * block_tokens &&
           memcmp(branch->blocks, draft_stream->blocks, branch->n_shared * sizeof branch->blocks[0]) == 0;
}
