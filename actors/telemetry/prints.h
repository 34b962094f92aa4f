/* A model's fingerprints: what a session's file or a lower tier of the cache must have been written with. */
#ifndef RN_ACTORS_TELEMETRY_PRINTS_H
#define RN_ACTORS_TELEMETRY_PRINTS_H

#include <stdbool.h>

#include "cache/store/fingerprint.h"

struct rn_context;

/* Computed once per model, by the worker. */
struct rn_session_fingerprints {
    bool known;
    struct rn_fingerprint model, vocab, kv;
};

/* The model's fingerprints; reads of its file what loading has read. The worker's thread, or before the model's actors
 * have begun. */
const struct rn_session_fingerprints *rn_session_fingerprints_of(const struct rn_context *context);

#endif
