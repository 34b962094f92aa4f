/* The scores of a reranker or classifier: what a file says of them. */
#ifndef RN_MODEL_BUILD_SCORES_H
#define RN_MODEL_BUILD_SCORES_H

#include "model/gguf/gguf.h"

enum {
    RN_POOLING_MEAN = 1, /* of the keys pooling_type */
    RN_POOLING_FIRST = 2,
    RN_POOLING_LAST = 3,
    RN_MAX_SCORES = 4096 /* of a text; files with heads have 1 to some hundred */
};

/* Key <architecture>.classifier.output_labels; *entry is NULL where it is absent. FORMAT: it is no list of texts. */
runnel_status rn_scores_labels(const struct rn_gguf *gguf, const char *architecture, const struct rn_gguf_entry **entry,
                               runnel_error *error);

#endif
