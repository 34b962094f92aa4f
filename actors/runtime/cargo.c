/* See cargo.h. */
#include "actors/runtime/cargo.h"

#include "actors/batch.h"
#include "actors/drafter.h"
#include "actors/lists.h"
#include "actors/move.h"
#include "actors/proposal.h"
#include "actors/request.h"

#ifdef RN_WITH_ASAN
/* By payload: bytes of the object that its one pointer leads to. */
enum {
    CARGO_request = sizeof(struct rn_request),
    CARGO_tokens = sizeof(struct rn_token_list),
    CARGO_computed = sizeof(struct rn_computed_list),
    CARGO_news = sizeof(struct rn_news_list),
    CARGO_drafts = sizeof(struct rn_drafts_list),
    CARGO_proposals = sizeof(struct rn_proposal_list),
    CARGO_move = sizeof(struct rn_move),
    CARGO_job = 0, /* the tier has it in a list all the while */
    CARGO_batch = sizeof(struct rn_batch),
    CARGO_stream = 0,
    CARGO_ended = 0,
    CARGO_session = 0,
    CARGO_fork = 0,
    CARGO_grant = 0,
    CARGO_shortage = 0,
    CARGO_lanes = 0,
    CARGO_model = 0,
    CARGO_none = 0
};
static const uint32_t cargo_bytes[RN_MSG_KINDS] = {
#define X(kind, payload, from, to, bound, meaning) [RN_MSG_##kind] = CARGO_##payload,
    RN_MESSAGES(X)
#undef X
};

void rn_cargo_seal(const struct rn_msg *msg)
{
    RN_POISON(msg->request.request, cargo_bytes[msg->head.kind]);
}

void rn_cargo_unseal(const struct rn_msg *msg)
{
    RN_UNPOISON(msg->request.request, cargo_bytes[msg->head.kind]);
}
#endif
