/* Fingerprints: whether a session's file belongs to this model, vocabulary and cache, and which blocks of KV may be
 * shared. XXH3-128 each.
 *
 *   model   all metadata (keys, types, values) and all tensors (name, type, shape, size) of the file, and of each
 *           tensor's bytes all, if they are few, else windows spread evenly over them. So: another model, another
 *           quantisation, another finetune differ. A file in which single weights between the windows were
 *           changed does not.
 *   adapter all metadata, all tensors and all of their bytes of an adapter's file, and the scale. A finetune of a
 *           finetune may change a few weights.
 *   kv      how the backend arranges a block and who computed it, the sizes, and the angles of the positions (which can
 *           depend on the context a model was loaded with).
 *   vocab   the bytes of every token. */
#ifndef RN_CACHE_STORE_FINGERPRINT_H
#define RN_CACHE_STORE_FINGERPRINT_H

#include "model/backend.h"

struct rn_fingerprint {
    unsigned char bytes[16]; /* XXH3-128 in its canonical form: the high half first, big end first */
};

/* gguf NULL (a model without a file): that of nothing. Reads pages of the file that loading has read. */
struct rn_fingerprint rn_fingerprint_model(const struct rn_gguf *gguf);

/* Reads the whole file. */
struct rn_fingerprint rn_fingerprint_adapter(const struct rn_gguf *gguf, float scale);

/* plan NULL: a backend that needs none. A backend that cannot hand out blocks has the print of zeros. */
struct rn_fingerprint rn_fingerprint_kv(const struct rn_plan *plan, const struct rn_backend *backend,
                                        const struct rn_backend_limits *limits);

/* Of n texts, each with its length. */
struct rn_fingerprint rn_fingerprint_list(uint32_t n, struct rn_view (*item)(const void *user, uint32_t index),
                                          const void *user);

bool rn_fingerprint_equal(const struct rn_fingerprint *a, const struct rn_fingerprint *b);

#endif
