/* Bugs on purpose, each one once per run: what the simulation must catch.
 *
 * The test program compiles nine files of the library a second time with one name in each replaced (see
 * CMakeLists.txt), so that the calls come through here; the library itself knows nothing of it.
 *
 *   lost wake     runtime.c         a send that found the mailbox empty says it did not: nobody wakes the actor
 *   double free   prefix_tree.c     a block that was given back, and is another's by now, is given back again
 *   stale token   sampler_actor.c   a request gets the token that was drawn before, for another row
 *   foreign block tier/mover.c      a block from a lower tier is filled with what came up before it
 *   wrong branch  draft_actor.c     a drafter's branch becomes its line though another token came: each time
 *   wrong shift   tier/admission_serve.c  one token more than should goes when a context is full: each time
 *   wrong mask    grammar/matchers.c  where a grammar leaves no choice all text tokens are allowed: each time
 *   wrong draw    decode/compose.c    a row that waits for a draw takes that of another row, or of a step before
 *   wrong state   decode_actor.c    a state behind wrong drafts goes on as if they had been right: each time */
#ifndef RN_TESTS_SIM_PLANTS_H
#define RN_TESTS_SIM_PLANTS_H

#include "actors/decode/compose.h"
#include "actors/decode/states.h"
#include "actors/draft/branch.h"
#include "actors/decode/step_ring.h"
#include "actors/tier/admission_begin.h"
#include "cache/block_codec.h"
#include "cache/block_pool.h"
#include "mailbox/mailbox.h"
#include "sampling/grammar/matcher.h"
#include "sampling/sampler.h"

enum plant {
    PLANT_NONE,
    PLANT_LOST_WAKE,
    PLANT_DOUBLE_FREE,
    PLANT_STALE_TOKEN,
    PLANT_FOREIGN_BLOCK,
    PLANT_WRONG_BRANCH,
    PLANT_STOPPED_COUNTED,
    PLANT_STOPPED_WANTED,
    PLANT_WRONG_DRAW,
    PLANT_WRONG_SHIFT,
    PLANT_WRONG_MASK,
    PLANT_WRONG_STATE
};

/* From now on `plant` strikes at the first chance after `calls` calls. */
void plant_arm(enum plant plant, unsigned calls);
bool plant_fired(void);

enum rn_send planted_send_try(struct rn_mailbox *mailbox, struct rn_message *message);
void planted_unref(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n);
runnel_status planted_pick(const struct rn_sampler *sampler, struct rn_path path, const struct rn_mask *mask,
                           struct rn_sampler_scratch *scratch, const float *logits, uint64_t position,
                           bool want_logprobs, uint32_t n_top, struct rn_pick *pick);
uint32_t planted_drawn(const struct rn_step_ring *ring, const struct rn_request *request);
bool planted_branch_is(const struct rn_draft_stream *draft_stream, uint32_t x, int32_t token);
runnel_status planted_unpack(struct rn_block_codec *codec, const void *packed, size_t n, void *block);
void planted_uncount(struct rn_request *request, struct rn_batch_part *part);
void planted_settle_state(struct rn_batch_part *part);
bool planted_is_wanted(const struct rn_decode *decode);
void planted_shift(const struct rn_admission *admission, struct rn_request *request);
runnel_status planted_mask(struct rn_matcher *matcher, uint64_t *mask, runnel_error *error);

#endif
