/* Which requests may learn from which: one store of answers (sampling/ngram_store.h) for each tenant and cache_salt.
 *
 *   request with draft_share ─begin─▶ the store of (tenant, salt): its n-gram proposer looks into it
 *                             ─end──▶ its answer is added
 *
 * Only requests that ask for it read, and only theirs are written; a store is never seen from another tenant or salt,
 * and has memory of its own, so that no speed tells one what another has asked. At most RN_DRAFT_SHARES stores, made
 * when they are wanted: of more tenants the one that was longest without a request begins anew; while all are in use, a
 * request has none. The verifier's; memory is taken when a request comes, not while it runs. */
#ifndef RN_ACTORS_DRAFT_SHARE_H
#define RN_ACTORS_DRAFT_SHARE_H

#include "actors/request.h"
#include "sampling/ngram_store.h"

#define RN_DRAFT_SHARES 16u

struct rn_draft_share {
    struct rn_heap *heap;
    struct rn_draft_place {
        struct rn_ngram_store *store; /* NULL: not yet made */
        uint64_t tenant, salt;
        uint64_t used; /* when a request last came; 0: never */
        uint32_t n_users;
    } places[RN_DRAFT_SHARES];
    uint64_t clock;
};

void rn_draft_share_init(struct rn_draft_share *share, struct rn_heap *heap);
void rn_draft_share_fini(struct rn_draft_share *share);

/* A request comes: the place of its store, counted from 1, into which its proposer looks now; 0: it shares nothing, or
 * there is none. */
uint32_t rn_draft_share_begin(struct rn_draft_share *share, const struct rn_request *request,
                              struct rn_proposer *proposer);

/* It has ended, and its answer is added; request NULL: it goes for a while. place 0: nothing. */
void rn_draft_share_end(struct rn_draft_share *share, uint32_t place, struct rn_proposer *proposer,
                        const struct rn_request *request);

/* No tenant and salt have two stores, and whoever reads one has one. */
bool rn_draft_share_check(const struct rn_draft_share *share);

#endif
