/* The prompt of a model that fills a gap: what stands before it and behind it, between tokens that say which is which.
 *
 *     [BOS] [REPO] repository \n {[FILE] name \n text} [FILE] name \n [PREFIX] prefix [SUFFIX] suffix [MIDDLE]
 *
 * or, with the suffix first, [SUFFIX] suffix [PREFIX] prefix [MIDDLE]. What a model has no token for is left out;
 * without one for files a line stands between them. That is the order that llama.cpp's server uses, and Qwen2.5-Coder's
 * report (arXiv 2409.12186); llama.cpp puts BOS behind the other files. No text of the host's becomes a control
 * token. */
#ifndef RN_TEXT_INFILL_H
#define RN_TEXT_INFILL_H

#include "runnel_infill.h"
#include "text/vocab.h"

/* Tokens are taken from `heap`, free with rn_free. UNSUPPORTED: the vocabulary has no tokens for it. INVALID: not
 * UTF-8, or a text is missing. NO_MEMORY. */
runnel_status rn_infill_tokenize(const struct rn_vocab *vocab, struct rn_heap *heap, const runnel_infill *infill,
                                 int32_t **tokens, size_t *count, runnel_error *error);

#endif
