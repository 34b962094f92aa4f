/* A draft stream's branch: what a concurrent drafter guesses besides the line that it thinks likeliest, while the
 * target verifies that one.
 *
 *            known │ g  g  g │ g  g  g      the line: what flies, the token that the step adds, those of the next step
 *                  │ └ s     │ b  b         the branch: the runner-up of one of those, and guesses behind it
 *
 * It leaves the line where "all before right, this one wrong, its runner-up right" is likeliest (sampling/odds.h),
 * among the guesses in flight and the one behind them. A draft stream has one row in a pass: of its line, until that
 * has all that decode wants, or until a guess of the branch is by far likelier to be of use (BY_FAR). The line's next
 * guess is if all that flies and the token behind is right, and all that it has behind that; likewise the branch's.
 * And a pass has rows of branches only if it ends before the target's step is expected to: behind that it would stand
 * in the lines' way. Whatever draft streams want lines, theirs come first.
 *
 * News decide: tokens that came say the line was right, or the branch, which is the line then, with its KV; or neither,
 * and it is dropped. Decode has the guesses of both and compares them itself, so that it need not wait for that, and
 * nothing here can change a text (law 5).
 *
 * KV of a branch that begins with the token of index i:
 *
 *     line    | block | block | . . . i . |       |      whole blocks before i are the line's ...
 *     branch  |  the line's   | copy  i . | . . . |      ... the others its own, the first begun as a copy
 *
 * Blocks of its own are taken only while there are free ones, and given back as soon as a line finds none. A table is
 * lent to the backend while a pass is in flight, and a branch that has become the line may still be copying from what
 * was: what is dropped while the draft stream is in a pass gives back its blocks when that is back.
 * Nothing is leased but when a pass is composed, and one is in flight at a time.
 *
 * For drafters of TOKENS. A head's guesses ahead stand on what its rows gave themselves (draft/features.c), of which
 * there is one. Inside the draft actor. */
#ifndef RN_ACTORS_DRAFT_BRANCH_H
#define RN_ACTORS_DRAFT_BRANCH_H

#include "actors/draft/state.h"

/* Memory for a branch, if the drafter has them; false on refusal. free: it is in no pass. */
bool rn_branch_new(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);
void rn_branch_free(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* Is the branch another line with this token at index x, which is not the line's? */
bool rn_branch_is(const struct rn_draft_stream *draft_stream, uint32_t x, int32_t token);

/* The tokens that came are the branch's: it is the line from now on, with what a pass in flight computes for it. What
 * was the line is no more. */
void rn_branch_adopt(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* There is no branch any more; its blocks are free, at once or, called again, behind the pass. */
void rn_branch_drop(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* While a pass is composed: is the draft stream's next guess rather the branch's, and is there a block for it? Its row
 * joins the pass: behind a yes, with nothing in between. */
bool rn_branch_goes_first(struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream);
void rn_branch_compose(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* The pass is back, and the draft stream stays: what its row says. False: these logits have no guess, and the draft
 * stream can guess no more. */
bool rn_branch_settle(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, const float *logits);

/* What the verifier is told of it: the guesses behind the known tokens if the branch is right; n is 0 without one. */
void rn_branch_tell(const struct rn_draft_stream *draft_stream, struct rn_guess_line *line);

/* Blocks of its own. Its counts in order, its table enough and the line's where it is shared. For tests. */
uint32_t rn_branch_own(const struct rn_draft_stream *draft_stream);
bool rn_branch_check(const struct rn_draft_stream *draft_stream, uint32_t block_tokens);

#endif
