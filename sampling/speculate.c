/* The length of drafts: see speculate.h. */
#include "sampling/speculate.h"

#define COST_SMOOTHING 0.25f      /* weight of the newest step */
#define DRAFT_SMOOTHING 0.0625f   /* of the newest draft: the last sixteen or so count */
#define FIRST_ACCEPTANCE 0.75f    /* taken for granted: the first drafts tell */
#define FIRST_PAUSE 16u
#define MOST_PAUSE 1024u
#define TRIAL 4u                  /* drafts of a trial */
#define GAIN 1.02f                /* less than this is noise */

static uint32_t size_of(uint32_t n_rows)
{
    uint32_t size = RN_COST_EXACT, most = 2 * RN_COST_EXACT;

    if (n_rows <= RN_COST_EXACT)
        return n_rows > 0 ? n_rows - 1 : 0;
    for (; n_rows > most && size < RN_COST_SIZES - 1; size++)
        most *= 2;
    return size;
}

/* The rows that a size stands for. */
static float rows_of(uint32_t size)
{
    return size < RN_COST_EXACT ? (float)(size + 1) : (float)(RN_COST_EXACT << (size - RN_COST_EXACT)) * 1.5f;
}

void rn_step_cost_note(struct rn_step_cost *cost, uint32_t n_rows, uint64_t us)
{
    float *at = &cost->us[size_of(n_rows)], now = us > 0 ? (float)us : 1;

    *at = *at == 0 ? now : *at + COST_SMOOTHING * (now - *at);
}

float rn_step_cost_of(const struct rn_step_cost *cost, uint32_t n_rows)
{
    uint32_t size = size_of(n_rows), low = size + 1, high = size;
    float share;

    while (low > 0 && cost->us[low - 1] == 0)
        low--;
    while (high < RN_COST_SIZES && cost->us[high] == 0)
        high++;
    if (low == 0)
        return high < RN_COST_SIZES ? cost->us[high] : 0;
    low--;
    if (high == RN_COST_SIZES || high == low)
        return cost->us[low];
    share = (rows_of(size) - rows_of(low)) / (rows_of(high) - rows_of(low));
    return cost->us[low] + share * (cost->us[high] - cost->us[low]);
}

void rn_speculation_init(struct rn_speculation *speculation)
{
    *speculation = (struct rn_speculation){.acceptance = FIRST_ACCEPTANCE, .pause = FIRST_PAUSE};
}

/* The k of the greatest gain; 0: none. */
static uint32_t best_length(float acceptance, const struct rn_step_cost *cost, uint32_t n_rows, uint32_t n_streams,
                            uint32_t most)
{
    float best = GAIN * (float)n_streams / rn_step_cost_of(cost, n_rows);
    float power = 1, tokens = (float)n_streams;
    uint32_t length = 0;

    for (uint32_t k = 1; k <= most; k++) {
        float rate;

        power *= acceptance;
        tokens += power;
        rate = tokens / rn_step_cost_of(cost, n_rows + k);
        if (rate > best) {
            best = rate;
            length = k;
        }
    }
    return length;
}

void rn_speculation_rest(struct rn_speculation *speculation, uint32_t least)
{
    speculation->trial = 0;
    if (speculation->pause < least)
        speculation->pause = least < MOST_PAUSE ? least : MOST_PAUSE;
    speculation->rest = speculation->pause;
    speculation->pause = 2 * speculation->pause < MOST_PAUSE ? 2 * speculation->pause : MOST_PAUSE;
}

uint32_t rn_speculation_length(struct rn_speculation *speculation, const struct rn_step_cost *cost, uint32_t n_rows,
                               uint32_t n_streams, uint32_t most)
{
    uint32_t length;

    if (most == 0)
        return 0;
    if (speculation->rest > 0) {
        speculation->trial = --speculation->rest == 0;
        return 0;
    }
    if (speculation->trial || rn_step_cost_of(cost, n_rows) == 0)
        return most < TRIAL ? most : TRIAL;
    length = best_length(speculation->acceptance, cost, n_rows, n_streams, most);
    if (length == 0)
        rn_speculation_rest(speculation, 0);
    else
        speculation->pause = FIRST_PAUSE;
    return length;
}

void rn_speculation_note(struct rn_speculation *speculation, uint32_t n_drafted, uint32_t n_accepted)
{
    if (n_drafted == 0)
        return;
    speculation->trial = 0;
    for (uint32_t i = 0; i < n_accepted; i++)
        speculation->acceptance += DRAFT_SMOOTHING * (1 - speculation->acceptance);
    if (n_accepted < n_drafted) /* those behind it were not looked at */
        speculation->acceptance -= DRAFT_SMOOTHING * speculation->acceptance;
}
