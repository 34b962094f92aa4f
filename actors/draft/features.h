/* Rows and layers of draft streams.
 *
 * Of a FEATURES drafter: the row of token i wants the target's features of position i - 1; in a deeper layer what the
 * layer before gave in its row of token i - 1. With features of positions before e there are so true rows of layer l
 * for tokens up to e + l, guessed ones among them:
 *
 *     token     e-1    e     e+1   e+2   e+3          e: the last that is known; the others are guesses, that of
 *     layer 0    *  ─▶ *                              e + 1 from layer 0's row e, that of e + 2 from layer 1's row e + 1 ...
 *     layer 1          * ──▶ *
 *     layer 2                * ──▶ *     (own)        behind the last layer's: its own row before is its input
 *
 * A pass is one layer's. Rows of a deeper layer stay when guesses come true. The target tells only of what it computes
 * while the stream drafts: not of a cached prefix, nor of a long prompt's beginning. So such a draft stream's rows
 * begin behind the first position that it was told of (shift); angles of positions are relative, and the draft stream
 * just knows less of the past. If it falls so far behind that features were overwritten it begins anew. Rows of
 * guesses that came true are computed again, from the target's features. Inside the draft actor. */
#ifndef RN_ACTORS_DRAFT_FEATURES_H
#define RN_ACTORS_DRAFT_FEATURES_H

#include "actors/draft/state.h"

/* Of FEATURES drafters. new: memory; false on refusal. learn: the target's features of n positions.
 * All indices are of the draft stream. */
bool rn_draft_stream_features_new(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);
void rn_draft_stream_features_free(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);
void rn_draft_stream_learn_features(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream,
                                    uint32_t at, uint32_t n, const float *features);

/* Of any drafter: nothing is computed or told; nothing from token x on. */
void rn_draft_stream_reset(struct rn_draft_stream *draft_stream);
void rn_draft_stream_forget(struct rn_draft_stream *draft_stream, uint32_t x);

/* Of any drafter: the layer that guesses the next token; tokens whose rows of a layer are not
 * computed; how many of those, from the first and up to `most`, a pass can compute now. */
uint32_t rn_draft_stream_next_layer(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream);
uint32_t rn_draft_stream_pending(const struct rn_draft_stream *draft_stream, uint32_t layer);
uint32_t rn_draft_stream_rows(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                              uint32_t layer, uint32_t most);

/* Likewise, of those up to the last token; where all are computed and its guess was not taken, that one's once more. 0:
 * the target's features are not there. Of a draft stream in no pass. */
uint32_t rn_draft_stream_next_rows(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                   uint32_t layer);

/* What a layer's row of token i reads beside it. keep: what the pass's rows [from, end) gave;
 * features of all of them, or, of the last layer, of the last one alone. */
const float *rn_draft_stream_input(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                   uint32_t layer, uint32_t i);
void rn_draft_stream_keep(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t layer,
                          uint32_t from, uint32_t end, const float *features);

#endif
