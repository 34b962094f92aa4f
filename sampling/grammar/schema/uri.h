/* References of schemas to each other: RFC 3986, section 5, as far as identifiers of documents need it. Pure. */
#ifndef RN_SAMPLING_GRAMMAR_SCHEMA_URI_H
#define RN_SAMPLING_GRAMMAR_SCHEMA_URI_H

#include "text/value.h"

/* The reference seen from a base, without its fragment; *fragment gets that, percent-decoded, empty where there is
 * none. In the arena. */
const struct rn_str *rn_uri_resolve(struct rn_arena *arena, const struct rn_str *base, const struct rn_str *reference,
                                    const struct rn_str **fragment);

#endif
