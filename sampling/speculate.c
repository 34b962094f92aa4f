/* The length of drafts: see speculate.h. */
#include "sampling/speculate.h"

#include <stddef.h>

#include "base/min.h"

#define DRAFT_SMOOTHING 0.0833f /* of the newest draft: the last dozen or so count */
#define FIRST_ACCEPTANCE 0.6f   /* taken for granted, with the weight of three drafts */
#define FIRST_SEEN 3u
#define FIRST_BUDGET 0.6f  /* tokens ... */
#define FIRST_SHARE 0.016f /* ... and of an answer that is to be short so many for each of its tokens */
#define GRANT 0.010f       /* or so many for each token that is to come ... */
#define GRANT_MOST 1.5f    /* ... up to this: an answer may end long before its limit */
#define INCOME 0.003f      /* for each step */
#define MOST_BUDGET 4.0f   /* no past luck pays for more */
#define CREDIT 0.004f      /* for each token that is to come ... */
#define CREDIT_MOST 0.6f   /* ... up to this */
#define ENOUGH 0.4f        /* for a trial of a few drafts */
#define RESERVE_MAX 2.0f   /* no past luck pays for many */
#define FIRST_PAUSE 16u
#define MOST_PAUSE 256u
#define TRIAL 3u            /* drafts of a trial */
#define GAIN 1.03f          /* less than this is noise */
#define MARGIN 1.5f         /* standard errors that are paid for: then about one price in fifteen is too low */
#define SECOND_SEEN 1.0f    /* runners-up that were right and expected, taken for granted */
#define SECOND_MEMORY 16.0f /* expected ones that are remembered */
/* Drafts are looked at before a runner-up is a row: by then it is known for nothing what those are worth, and the budget
 * was for the drafts. */
#define SECOND_FROM 8u

/* ---- Lengths ---- */

void rn_speculation_init(struct rn_speculation *speculation)
{
    *speculation = (struct rn_speculation){.acceptance = FIRST_ACCEPTANCE,
                                           .first = FIRST_ACCEPTANCE,
                                           .later = FIRST_ACCEPTANCE,
                                           .budget = FIRST_BUDGET,
                                           .seen = FIRST_SEEN,
                                           .seen_first = FIRST_SEEN,
                                           .seen_later = FIRST_SEEN,
                                           .pause = FIRST_PAUSE,
                                           .seconds = SECOND_SEEN,
                                           .shares = SECOND_SEEN};
}

void rn_speculation_grant(struct rn_speculation *speculation, uint64_t n_tokens)
{
    float budget = GRANT * (float)n_tokens, credit = CREDIT * (float)n_tokens, least = FIRST_SHARE * (float)n_tokens;

    least = least < FIRST_BUDGET ? least : FIRST_BUDGET;
    budget = budget < GRANT_MOST ? budget : GRANT_MOST;
    speculation->budget = budget > least ? budget : least;
    speculation->credit = credit < CREDIT_MOST ? credit : CREDIT_MOST;
}

void rn_speculation_use_reserve(struct rn_speculation *speculation, float *reserve)
{
    float loan = ENOUGH - speculation->budget;

    *reserve += speculation->surplus;
    *reserve = *reserve < RESERVE_MAX ? *reserve : RESERVE_MAX;
    speculation->surplus = 0;
    loan = loan < speculation->credit ? loan : speculation->credit;
    loan = loan < *reserve ? loan : *reserve;
    if (speculation->trial == 0 || loan <= 0)
        return;
    speculation->budget += loan;
    speculation->credit -= loan;
    *reserve -= loan;
}

/* A step as it stands: what it takes, and how many tokens it is worth. */
struct step {
    const struct rn_step_cost *cost;
    uint32_t n_rows, n_streams;
    float us, tokens;
};

static struct step step_of(const struct rn_step_cost *cost, uint32_t n_rows, uint32_t n_streams, float tokens)
{
    return (struct step){cost, n_rows, n_streams, rn_step_cost_of(cost, n_rows), tokens};
}

/* What `length` drafts cost, in tokens. What the rise is in doubt by all streams share: they meet the same error, and
 * for all of them together it is to be made good once. */
static float price_of(const struct step *step, uint32_t length)
{
    float doubt, rise;

    if (length == 0 || step->us == 0)
        return 0;
    rise = rn_step_cost_rise(step->cost, step->n_rows, length, &doubt);
    return (rise + MARGIN * doubt / (float)step->n_streams) * step->tokens / step->us;
}

/* What candidates there are. */
struct choice {
    const struct rn_speculation *speculation;
    const float *shares;   /* NULL: no runners-up */
    uint32_t most;         /* of the chain */
    struct rn_shape shape; /* what is taken of them */
    float reach;           /* that the whole chain is right */
};

static struct choice choice_of(const struct rn_speculation *speculation, const float *shares, uint32_t most)
{
    return (struct choice){.speculation = speculation, .shares = shares, .most = most, .reach = 1};
}

/* The runner-up of the chain that is worth most, in *which; 0: none. No more than what the draft beside it leaves. */
static float best_branch(const struct choice *choice, uint32_t *which)
{
    const struct rn_speculation *s = choice->speculation;
    float best = 0, reach = 1, share = s->first;

    for (uint32_t i = 0; choice->shares != NULL && i < choice->shape.n_chain; i++) {
        float right = s->seconds / s->shares * choice->shares[i], worth;

        worth = reach * (right < 1 - share ? right : 1 - share);
        if ((choice->shape.branches >> i & 1) == 0 && choice->shares[i] > 0 && worth > best) {
            best = worth;
            *which = i;
        }
        reach *= share;
        share = s->later;
    }
    return best;
}

/* One row more, the one worth most; what it is worth, 0: there is none. */
static float grow(struct choice *choice)
{
    const struct rn_speculation *s = choice->speculation;
    float next = choice->reach * (choice->shape.n_chain == 0 ? s->first : s->later), branch;
    uint32_t which = 0;

    branch = best_branch(choice, &which);
    if (choice->shape.n_chain < choice->most && next >= branch) {
        choice->shape.n_chain++;
        choice->reach = next;
        return next;
    }
    choice->shape.branches |= branch > 0 ? 1u << which : 0;
    choice->shape.n_branches += branch > 0;
    return branch;
}

/* How many rows give the greatest gain, which *gain is; 0: none does. */
static uint32_t best_rows(struct choice choice, const struct step *step, uint32_t most_rows, float *gain)
{
    float tokens = step->tokens;
    uint32_t rows = 0;

    *gain = GAIN;
    for (uint32_t n = 1; n <= most_rows; n++) {
        float us = rn_step_cost_of(step->cost, step->n_rows + n), now;

        tokens += grow(&choice);
        if (choice.shape.n_chain + choice.shape.n_branches < n)
            break;
        now = tokens / step->tokens * (us > step->us ? step->us / us : 1);
        if (now > *gain) {
            *gain = now;
            rows = n;
        }
    }
    return rows;
}

/* Is it time to measure once more what a step without drafts takes, since a measurement that was held up would explain
 * all that is gained? Asked of the stream alone, so that all streams answer alike in the same step. */
static bool must_measure(const struct choice *choice, const struct rn_step_cost *cost, uint32_t n_streams,
                         uint32_t most_rows)
{
    const struct step alone = step_of(cost, n_streams, n_streams, (float)n_streams);
    uint32_t n = rn_step_cost_doubtful(cost, n_streams);
    float gain;

    if (n == 0)
        return false;
    best_rows(*choice, &alone, most_rows, &gain);
    return gain < 1 + 1.0f / (float)n;
}

/* Why no row pays: would it if each draft were right? */
static runnel_rest reason_of(struct choice choice, const struct step *step, uint32_t most_rows)
{
    struct rn_speculation sure = *choice.speculation;
    float gain;

    sure.first = sure.later = 1;
    choice.speculation = &sure;
    return best_rows(choice, step, most_rows, &gain) > 0 ? RUNNEL_REST_WRONG : RUNNEL_REST_DEAR;
}

static struct rn_shape shape_of(struct choice choice, uint32_t rows)
{
    for (uint32_t n = 0; n < rows; n++)
        grow(&choice);
    return choice.shape;
}

/* As many as are wanted, or as half of the budget pays for, so that a wrong guess does not end it; one for
 * all of it. */
static uint32_t affordable(const struct rn_speculation *speculation, const struct step *step, uint32_t wanted)
{
    while (wanted > 0 && price_of(step, wanted) > speculation->budget * (wanted > 1 ? 0.5f : 1))
        wanted--;
    return wanted;
}

static uint32_t venture(const struct rn_step_cost *cost, uint32_t n_rows, uint32_t most)
{
    uint32_t top = rn_step_cost_reach(cost);

    if (top <= n_rows)
        return 0;
    return most < top - n_rows ? most : top - n_rows;
}

/* What the drafts of the last step cost, now that it is known how long such a step takes. */
static void pay(struct rn_speculation *speculation, const struct rn_step_cost *cost)
{
    const struct step step = step_of(cost, speculation->n_rows, speculation->n_streams, speculation->tokens);

    speculation->budget -= price_of(&step, speculation->n_drafted);
    speculation->budget += INCOME;
    if (speculation->budget > MOST_BUDGET) {
        speculation->surplus += speculation->budget - MOST_BUDGET;
        speculation->budget = MOST_BUDGET;
    }
    speculation->n_drafted = 0;
}

void rn_speculation_rest(struct rn_speculation *speculation, runnel_rest reason)
{
    speculation->reason = reason;
    speculation->trial = 0;
    speculation->rest = speculation->pause;
    speculation->pause = 2 * speculation->pause < MOST_PAUSE ? 2 * speculation->pause : MOST_PAUSE;
}

struct rn_shape rn_speculation_shape(struct rn_speculation *speculation, const struct rn_step_cost *cost,
                                     uint32_t n_rows, uint32_t n_streams, uint32_t most, uint32_t most_rows,
                                     const float *shares)
{
    float tokens = (float)n_streams + (float)(n_rows - n_streams) * speculation->acceptance, gain;
    const struct step step = step_of(cost, n_rows, n_streams, tokens);
    struct rn_shape none = {0};
    struct choice choice;
    uint32_t rows;

    pay(speculation, cost);
    speculation->n_rows = n_rows;
    speculation->n_streams = n_streams;
    speculation->tokens = tokens;
    if (most == 0)
        return none;
    if (speculation->rest > 0) {
        speculation->trial = --speculation->rest == 0;
        return none;
    }
    most_rows = venture(cost, n_rows, most_rows); /* the first step of all has no drafts, and tells what one costs */
    choice = choice_of(speculation, speculation->trial || speculation->seen < SECOND_FROM ? NULL : shares, most);
    if (!speculation->trial && must_measure(&choice, cost, n_streams, most_rows))
        return none;
    rows = speculation->trial ? rn_min_u32(rn_min_u32(most, most_rows), TRIAL)
                              : best_rows(choice, &step, most_rows, &gain);
    if (!speculation->right && speculation->seen_first > FIRST_SEEN)
        rows = rn_min_u32(rows, 1);
    rows = affordable(speculation, &step, rows);
    if (rows == 0 && most_rows > 0)
        rn_speculation_rest(speculation, reason_of(choice, &step, most_rows));
    return shape_of(choice, rows);
}

uint32_t rn_speculation_length(struct rn_speculation *speculation, const struct rn_step_cost *cost, uint32_t n_rows,
                               uint32_t n_streams, uint32_t most)
{
    return rn_speculation_shape(speculation, cost, n_rows, n_streams, most, most, NULL).n_chain;
}

static void learn(float *share, uint32_t *seen, bool right)
{
    float weight = 1.0f / (float)(*seen + 1);

    weight = weight > DRAFT_SMOOTHING ? weight : DRAFT_SMOOTHING;
    *share += weight * ((right ? 1.0f : 0.0f) - *share);
    *seen += *seen < 64;
}

void rn_speculation_note(struct rn_speculation *speculation, uint32_t n_drafted, uint32_t n_accepted)
{
    uint32_t looked_at = n_accepted < n_drafted ? n_accepted + 1 : n_drafted; /* those behind it were not */

    if (n_drafted == 0)
        return;
    for (uint32_t i = 0; i < looked_at; i++) {
        learn(&speculation->acceptance, &speculation->seen, i < n_accepted);
        if (i == 0)
            learn(&speculation->first, &speculation->seen_first, i < n_accepted);
        else
            learn(&speculation->later, &speculation->seen_later, i < n_accepted);
    }
    speculation->budget += (float)n_accepted;
    speculation->right |= n_accepted > 0;
    speculation->n_drafted = n_drafted;
    speculation->trial = 0;
    if (n_accepted == n_drafted)
        speculation->pause = FIRST_PAUSE;
}

void rn_speculation_note_branches(struct rn_speculation *speculation, uint32_t n_branches, bool right)
{
    speculation->n_drafted += n_branches;
    speculation->budget += right ? 1 : 0;
}

/* Both sums shrink together once there are enough: a share of recent ones. */
void rn_speculation_note_runner_up(struct rn_speculation *speculation, float share, bool right)
{
    float keep = speculation->shares > SECOND_MEMORY ? 1 - share / SECOND_MEMORY : 1;

    speculation->seconds = keep * speculation->seconds + (right ? 1.0f : 0.0f);
    speculation->shares = keep * speculation->shares + share;
}
