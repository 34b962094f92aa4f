/* A session's place: [session_places] of them are the engine's. What host threads and the detokenizer look at is
 * atomic; the rest belongs to the tier actor of the session's model.
 *
 * A session counts in the engine's limit until runnel_session_free, or until the tier ends it by itself: whichever sets
 * `freeing`. Its place is free once the tier has let go of it: so there are more places than sessions at once. */
#ifndef RN_ACTORS_TIER_SESSION_SLOT_H
#define RN_ACTORS_TIER_SESSION_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/salt.h"
#include "mailbox/flag.h"
#include "runnel.h"

/* Places beyond max_sessions, of sessions that are being freed. */
#define RN_SESSIONS_LEAVING 256

/* Why a turn of it is NOT_FOUND. */
#define RN_SESSION_GONE "the session has been freed, or its import has failed"

struct runnel_model;
struct rn_request;

/* A wish for what a session is once the turns that came before the wish have ended: of a fork or an export. */
struct rn_snapshot {
    struct rn_snapshot *next;  /* the tier's list, oldest first */
    uint32_t slot, generation; /* of the session */
    uint64_t order;            /* of arrival, among requests */
    struct rn_session *copy;   /* a fork; NULL: `request` exports */
    struct rn_request *request;
};

struct rn_session {
    struct rn_word generation; /* odd: open; see runnel_session_new */
    struct rn_word n_known;    /* tokens so far, for the checks of submit; set before a turn's end is told */
    struct rn_word freeing;    /* = generation once it does not count any more: see above */
    /* Relaxed: published and taken with the generation; one that reads it while the place changes hands gets either. */
    _Atomic(struct runnel_model *) model;
    /* The rest belongs to the tier actor of `model`. */
    struct rn_session *next, *before; /* the tier's list */
    struct rn_session *next_leaving;  /* likewise */
    int32_t *tokens;                  /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t n_computed; /* positions whose KV is in blocks */
    uint32_t *blocks;    /* [n_blocks] */
    uint32_t n_blocks;
    struct rn_prefix_salt salt; /* under which the blocks were computed */
    bool busy; /* a turn runs, or it is still to become what it was made for: a copy, or a file's session */
    bool free_wanted;
    bool foreign;               /* its KV came out of a file */
    runnel_status lost;         /* it could not become a copy, or come out of a file: why. RUNNEL_OK else */
    struct rn_snapshot becomes; /* a fork's, while it waits */
    uint64_t last_use;
};

#endif
