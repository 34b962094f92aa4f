/* How many drafts a sequence takes into a step, and which: pure functions of what was measured.
 *
 *   a, b       rolling share of first drafts that were accepted; of later ones, those before them being right: an
 *              n-gram that goes on as it did goes on for long
 *   E(k)       tokens of a pass with k drafts: 1 + a (1 + b + b² + ... + b^(k-1))
 *   c(r)       time of a step of r rows, measured
 *
 * In a step of r rows that is worth t tokens, k more rows pay if they raise tokens per time:
 *
 *   (t - 1 + E(k)) / c(r + k)  >  t / c(r)        the k for which the left side is greatest is taken
 *
 * t counts a token for each sequence that draws, and its share for each draft that others bring. So drafting ends by
 * itself where rows are dear (many sequences, a slow machine) or drafts are bad.
 *
 * Besides a draft its runner-up may be a row, a leaf of a tree: what the proposer would have guessed second.
 *
 *     last ── d1 ── d2 ── d3       the runner-up of draft i gives one token more if the drafts before it are right,
 *        └ e1    └ e2              d(i) is wrong and e(i) is right
 *
 * The proposer tells with each what share of the cases it expects that in. Whatever it tells is measured, whether
 * the runner-up was a row or not: f is how often it was the token, over the sum of what was told. A row more goes to
 * whichever is worth more, the next draft (a b^k) or a runner-up of one that is taken (a b^(i-2) f share(i)).
 *
 * What is measured may be wrong, and drafts are dear before it is. So a sequence keeps a budget, in tokens of its own:
 * drafts cost their price, t (c(r + k) - c(r)) / c(r), and each that was right gives one token back. The budget begins
 * with a token or so (with less where the answer is at most some 40 tokens long), grows by little with each step, and
 * drafts beyond it are not made; nor steps that are much larger than all that were measured. What all its drafts have
 * cost in vain is therefore bounded by what it began with and that growth, whoever proposes.
 *
 * Measured times are noisy, and who chooses by them prefers those whose error makes drafts look cheap. So a price has a
 * margin: the stream's share of what the rise c(r + k) - c(r) is in doubt by (step_cost.h), little once it has been
 * measured often. And a time of steps without drafts that few of them have told may be that of one that was held up:
 * now and then all streams whose gain that would explain leave a step without drafts, so that it is measured again.
 *
 * A sequence for which no k pays, or whose budget is spent, rests for some steps, each time twice as many, and then
 * tries a few drafts again: acceptance changes along a text. One of whose drafts none has been right yet, behind a
 * first one that was wrong, tries one at a time: so the budget lasts for two to three times as many tries, and where
 * the first guesses of a request are wrong by chance, a later one finds that out.
 *
 * A short answer whose first drafts are wrong has no budget for a second try, however good the proposer is elsewhere.
 * So what is earned beyond what a budget holds goes into a reserve of the proposer's, and who is to try again and has
 * nothing borrows from it, little and once: 0.004 of its tokens. Nothing is lent that was not earned before, so that
 * all sequences together never lose by it; and one that loses its loan too has lost 0.017 of its tokens at most.
 *
 * Nothing here changes what is drawn, only how many at once. */
#ifndef RN_SAMPLING_SPECULATE_H
#define RN_SAMPLING_SPECULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "runnel.h"
#include "sampling/step_cost.h"

#define RN_DRAFT_MOST 16u /* drafts of a sequence in a step */
#define RN_DRAFT_DEFAULT 8u
#define RN_FORCED_DEFAULT \
    7u /* of text of which a grammar leaves no choice, where a request does not draft: names of
                                properties in JSON are some 3 to 6 tokens */

struct rn_speculation {
    float acceptance;                      /* of all drafts that were looked at */
    float first, later;                    /* of the first of a pass; of the others */
    float budget;                          /* tokens */
    uint32_t seen, seen_first, seen_later; /* how many these shares stand for, up to a few */
    uint32_t rest;                         /* steps without drafts still to come */
    uint32_t pause;                        /* how long the next rest is */
    runnel_rest reason;                    /* of the rest, or of the last one */
    uint32_t trial;                        /* 1: the next drafts are taken whatever is expected of them */
    bool right;                            /* a draft was, once */
    uint32_t n_drafted, n_rows; /* of the last step: drafts that are not paid yet, its rows without them ... */
    uint32_t n_streams;         /* ... its streams ... */
    float tokens;               /* ... and what it was worth */
    float seconds, shares;      /* runners-up that were the token, and how many were expected: the last ones */
    float surplus;              /* what was earned and did not fit into the budget */
    float credit;               /* what it may still borrow */
};

/* A chain of drafts, and runners-up of some of them. */
struct rn_shape {
    uint32_t n_chain;
    uint32_t branches;   /* bit i: that of the chain's draft i, counted from 0 */
    uint32_t n_branches; /* bits */
};

void rn_speculation_init(struct rn_speculation *speculation);

/* The answer may have so many tokens: the longer, the more may be spent on finding out what drafts are worth. Before
 * the first step. */
void rn_speculation_grant(struct rn_speculation *speculation, uint64_t n_tokens);

/* Drafts for the next step, at most `most`; n_rows, n_streams: what the step has without them, this sequence
 * included. Once for each step. */
uint32_t rn_speculation_length(struct rn_speculation *speculation, const struct rn_step_cost *cost, uint32_t n_rows,
                               uint32_t n_streams, uint32_t most);

/* Likewise with runners-up: a chain of at most `most`, of rows at most `most_rows` in all. shares[most]: what is
 * expected of the runner-up of each draft, 0: there is none; NULL: of none. */
struct rn_shape rn_speculation_shape(struct rn_speculation *speculation, const struct rn_step_cost *cost,
                                     uint32_t n_rows, uint32_t n_streams, uint32_t most, uint32_t most_rows,
                                     const float *shares);

/* Behind the choice of a step: what it has earned goes into the reserve of all sequences with this proposer, up to a
 * few tokens; if it is to try again and its budget is spent, it gets some out of it. */
void rn_speculation_use_reserve(struct rn_speculation *speculation, float *reserve);

/* Drafts do not pay now, for this reason: none for a while, each time twice as long. */
void rn_speculation_rest(struct rn_speculation *speculation, runnel_rest reason);

/* Of n_drafted drafts of a step the first n_accepted were right. */
void rn_speculation_note(struct rn_speculation *speculation, uint32_t n_drafted, uint32_t n_accepted);

/* Behind it: so many rows of the step were runners-up, and one of them was right, or none. */
void rn_speculation_note_branches(struct rn_speculation *speculation, uint32_t n_branches, bool right);

/* Of each draft that was looked at and has a runner-up, which need not have been a row: was that the token? */
void rn_speculation_note_runner_up(struct rn_speculation *speculation, float share, bool right);

#endif
