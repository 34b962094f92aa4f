/* From logits to a token: a pure function of the logits, the parameters, the tokens so far and the noise of (seed,
 * position).
 *
 *   logits → NaN/Inf check → logprobs (if asked) → bias, mask → penalties, dry → temperature 0: argmax
 *                                                  → / temperature → top-k → top-p → min-p → + noise: argmax
 *
 * That is the chain that is drawn without a list of candidates. One with other samplers, or in another order, goes on
 * with a list where it leaves this one (chain.h).
 *
 * Ties are broken towards the lower token id everywhere, so that no result depends on how a
 * selection algorithm walks the vocabulary. What a draw computes is defined to the bit (exact.h, noise.h): the same
 * token comes from every compiler, processor and device. Sums run in double in a fixed order: those over the whole
 * vocabulary as sampler.c says, those over what a filter keeps and the running sums by descending logit,
 * then ascending id. A bias and the penalties of a token are computed in double, each rounded once to
 * float; a finite logit stays finite (it is clamped to the largest float). Penalties in this order:
 * repetition, then frequency × count and presence. */
#ifndef RN_SAMPLING_SAMPLER_H
#define RN_SAMPLING_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "sampling/chain.h"

/* Checks every field against the ranges in runnel.h (NaN fails; bias tokens in [0, n_vocab), biases not
 * NaN and not +inf). INVALID names the field. */
runnel_status rn_sampling_check(const runnel_sampling *params, uint32_t n_vocab, runnel_error *error);

/* The state of one sequence: its parameters and the token counts that penalties need. Single owner. */
struct rn_sampler;
struct rn_choice;
struct rn_pick;
struct rn_vocab;

/* Copies params (which passed rn_sampling_check). max_tokens: longest sequence that will be accepted
 * (bounds the count table; only taken from the heap when a penalty or dry is on). NULL on refusal. */
struct rn_sampler *rn_sampler_new(struct rn_heap *heap, const runnel_sampling *params, uint32_t n_vocab,
                                  uint32_t max_tokens);
void rn_sampler_free(struct rn_sampler *sampler);

/* Before the first token: where dry finds the texts of tokens. Borrowed until the sampler is freed. */
void rn_sampler_use_vocab(struct rn_sampler *sampler, const struct rn_vocab *vocab);

/* Before the first token, once: tokens[n_tokens] (copied, in [0, n_vocab)) are not drawn before the answer has `until`
 * tokens, and the first n_never of them never. False on refusal. */
bool rn_sampler_keep_from_ending(struct rn_sampler *sampler, const int32_t *tokens, uint32_t n_never, uint32_t n_tokens,
                                 uint64_t until);

/* Tells the state of the next token of the sequence, prompt and answer alike; token in [0, n_vocab)
 * (RN_CHECK). Constant time; allocates nothing. */
void rn_sampler_accept(struct rn_sampler *sampler, int32_t token);

/* The tokens that follow are the answer's. */
void rn_sampler_begin_answer(struct rn_sampler *sampler);

/* The same with a token that was drawn from this state: with what mirostat and adaptive_p remember of the draw. */
void rn_sampler_take(struct rn_sampler *sampler, const struct rn_pick *pick);

/* Forgets what tokens there were, and is told of these: the first n_head are the prompt's, of the others the last are
 * the answer's. The length of the answer so far and what mirostat and adaptive_p remember stay. n_head at most
 * n_tokens. */
void rn_sampler_restart(struct rn_sampler *sampler, const int32_t *tokens, uint32_t n_head, uint32_t n_tokens);

/* Its parameters, with biases; borrowed. */
const runnel_sampling *rn_sampler_params(const struct rn_sampler *sampler);

/* True when more is on than temperature, top-k, top-p, min-p in this order: what is drawn depends on the tokens before,
 * by more than the logits do, or needs a chain. */
bool rn_sampler_reads_past(const struct rn_sampler *sampler);

/* False: a sampler remembers what was drawn, so a draw needs the one before it and there are no paths; or the host
 * draws. */
bool rn_sampler_can_draft(const struct rn_sampler *sampler);

/* True: the host draws. Then a pick puts the candidates into the choice that was lent before, and its token is -1. */
bool rn_sampler_asks_host(const struct rn_sampler *sampler);
void rn_sampler_lend_choice(struct rn_sampler *sampler, struct rn_choice *choice);

/* Its parameters without biases, penalties and the further samplers: how one draws who only guesses what it will. */
runnel_sampling rn_sampler_plain(const struct rn_sampler *sampler);

/* Working memory for one pick, shared by all sequences of one owner. NULL on refusal. */
struct rn_sampler_scratch;
struct rn_sampler_scratch *rn_sampler_scratch_new(struct rn_heap *heap, uint32_t n_vocab);
void rn_sampler_scratch_free(struct rn_sampler_scratch *scratch);

/* Draws by these loops (levels/loops.h) instead of the machine's best. For tests and benchmarks. */
struct rn_loops;
void rn_sampler_scratch_use(struct rn_sampler_scratch *scratch, const struct rn_loops *loops);

struct rn_pick {
    int32_t token;
    float logprob; /* of `token`, if want_logprobs */
    uint32_t n_top;
    runnel_logprob top[RUNNEL_MAX_TOP_LOGPROBS]; /* best first */
    struct rn_chain_state state;                 /* with this token; of a stateful sampler */
};

/* Draws the token for `position` (its index in the sequence) from logits[n_vocab], which stay as
 * they are. NUMERIC: a logit is NaN or +inf, or all are -inf (also after the biases): no token.
 * Allocates nothing. */
runnel_status rn_sampler_pick(const struct rn_sampler *sampler, struct rn_sampler_scratch *scratch, const float *logits,
                              uint64_t position, bool want_logprobs, uint32_t n_top, struct rn_pick *pick);

/* The longest path of drafts in front of a pick. */
#define RN_PATH_MOST RUNNEL_MAX_DRAFTS

/* The same behind a path: drafts of which the state has not been told, at most RN_PATH_MOST, each in [0, n_vocab)
 * (RN_CHECK); none where rn_sampler_can_draft is false. To the bit what is drawn once the state has been told of them.
 * Writes only scratch and pick: picks of one sequence may be made in any order and by several threads, each with a
 * scratch of its own. */
struct rn_path {
    const int32_t *tokens;
    uint32_t n;
};
runnel_status rn_sampler_pick_behind(const struct rn_sampler *sampler, struct rn_path path,
                                     struct rn_sampler_scratch *scratch, const float *logits, uint64_t position,
                                     bool want_logprobs, uint32_t n_top, struct rn_pick *pick);

/* Which tokens may be picked: bit t of words[(n_vocab + 63) / 64]. */
struct rn_mask {
    const uint64_t *words;
    bool may_end; /* those that are kept from ending the answer may come: the mask allows no other */
};

/* The same with a mask, NULL: none. What it does not allow counts as if its bias were -infinity. */
runnel_status rn_sampler_pick_masked(const struct rn_sampler *sampler, struct rn_path path, const struct rn_mask *mask,
                                     struct rn_sampler_scratch *scratch, const float *logits, uint64_t position,
                                     bool want_logprobs, uint32_t n_top, struct rn_pick *pick);

/* What somebody with slightly other logits might pick instead: who guesses another's pick has a second guess. */
struct rn_runner_up {
    int32_t token; /* not the picked one; -1: there is none */
    float share;   /* how likely that is, roughly: it orders guesses, and what it is worth is measured */
};

/* The same with parameters of rn_sampler_plain and no state. second: NULL, or where the runner-up goes. At temperature
 * 0 that is the token of the next best logit, and its share its probability. Else it is the token of the next best
 * score among those that the filters keep, and its share falls with the gap between the two scores. */
runnel_status rn_sampler_pick_plain(const runnel_sampling *params, uint32_t n_vocab, struct rn_sampler_scratch *scratch,
                                    const float *logits, uint64_t position, struct rn_pick *pick,
                                    struct rn_runner_up *second);

#endif
