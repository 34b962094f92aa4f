/* The pace of steps: see prompt_budget.h. */
#include "actors/decode/prompt_budget.h"

#include <float.h>

#include "base/check.h"

#define SMOOTHING 0.25f /* weight of the newest measurement */

void rn_prompt_budget_init(struct rn_prompt_budget *pace, float slowdown)
{
    RN_ASSERT(slowdown == 0 || slowdown > 1);
    *pace = (struct rn_prompt_budget){.slowdown = slowdown == 0 ? RN_PROMPT_BUDGET_SLOWDOWN : slowdown,
                                      .adapts = slowdown == 0};
}

/* What prompts may add to a step beside answers. */
static float allowed_us(const struct rn_prompt_budget *pace, uint32_t readers, uint32_t waiting)
{
    float usual = (pace->slowdown - 1) * pace->plain_us, crowd = usual * (float)waiting / (float)readers,
          most = RN_PROMPT_BUDGET_SHARED_US - pace->plain_us;

    if (!pace->adapts || waiting <= readers || usual >= most)
        return usual;
    return crowd < most ? crowd : most;
}

/* Of other readers: what a step takes without prompts is not known of so many. */
static bool is_old(const struct rn_prompt_budget *pace, uint32_t readers)
{
    uint32_t most = readers > pace->plain_readers ? readers : pace->plain_readers,
             least = readers + pace->plain_readers - most;

    return most - least > least / 2;
}

/* That a step may have by what steps of prompts alone took. A row of few rows costs more than one of many: where more
 * rows than theirs would fit, the last steps say how far to go. */
static float most_rows(const struct rn_prompt_budget *pace, uint32_t readers, float allowed)
{
    uint32_t known = pace->chunk_rows > pace->mixed_rows ? pace->chunk_rows : pace->mixed_rows;
    float most = pace->chunk_us > 0 ? (pace->plain_us + allowed) / pace->chunk_us - (float)readers : FLT_MAX;

    if (most < (float)pace->chunk_rows)
        return most;
    return most > RN_PROMPT_BUDGET_GROWTH * (float)known ? most : RN_PROMPT_BUDGET_GROWTH * (float)known;
}

uint32_t rn_prompt_budget_rows(const struct rn_prompt_budget *pace, uint32_t readers, uint32_t waiting,
                               uint32_t max_rows)
{
    float rows, allowed, most;

    if (readers == 0 || !(pace->slowdown < (float)UINT32_MAX))
        return max_rows;
    if (pace->plain_us == 0 || pace->n_mixed >= RN_PROMPT_BUDGET_STEPS || (pace->n_mixed > 0 && is_old(pace, readers)))
        return 0;
    if (pace->row_us == 0)
        return max_rows < RN_PROMPT_BUDGET_LEAST ? max_rows : RN_PROMPT_BUDGET_LEAST;
    allowed = allowed_us(pace, readers, waiting);
    rows = allowed / pace->row_us;
    most = most_rows(pace, readers, allowed);
    rows = rows < most ? rows : most;
    if (rows >= (float)max_rows)
        return max_rows;
    return rows > RN_PROMPT_BUDGET_LEAST       ? (uint32_t)rows
           : max_rows < RN_PROMPT_BUDGET_LEAST ? max_rows
                                               : RN_PROMPT_BUDGET_LEAST;
}

uint32_t rn_prompt_budget_chunk(const struct rn_prompt_budget *pace, bool shared, uint32_t max_rows)
{
    float bound_us = shared ? RN_PROMPT_BUDGET_SHARED_US : RN_PROMPT_BUDGET_ALONE_US;
    float rows = pace->chunk_us > 0 ? bound_us / pace->chunk_us : RN_PROMPT_BUDGET_FIRST;

    if (!(pace->slowdown < (float)UINT32_MAX) || rows >= (float)max_rows || max_rows <= RN_PROMPT_BUDGET_CHUNK)
        return max_rows;
    return rows > RN_PROMPT_BUDGET_CHUNK ? (uint32_t)rows : RN_PROMPT_BUDGET_CHUNK;
}

uint64_t rn_prompt_budget_patience_us(const struct rn_prompt_budget *pace, uint32_t rows)
{
    float us = pace->chunk_us * (float)rows / RN_PROMPT_BUDGET_PATIENCE;

    if (!(pace->slowdown < (float)UINT32_MAX) || pace->chunk_us * (float)rows <= RN_PROMPT_BUDGET_SHARED_US)
        return 0;
    return us < (float)RN_PROMPT_BUDGET_PATIENCE_US ? (uint64_t)us : RN_PROMPT_BUDGET_PATIENCE_US;
}

static float smooth(float old, float now)
{
    return old == 0 ? now : old + SMOOTHING * (now - old);
}

void rn_prompt_budget_note(struct rn_prompt_budget *pace, uint32_t readers, uint32_t answer_rows, uint32_t prompt_rows,
                           uint64_t us)
{
    float time = us > 0 ? (float)us : 1;

    if (answer_rows == 0) {
        if (prompt_rows >= RN_PROMPT_BUDGET_CHUNK) {
            pace->chunk_us = smooth(pace->chunk_us, time / (float)prompt_rows);
            pace->chunk_rows = prompt_rows;
        }
        return;
    }
    if (prompt_rows == 0) {
        pace->plain_us = is_old(pace, readers) ? time : smooth(pace->plain_us, time);
        pace->plain_readers = readers;
        pace->n_mixed = 0;
        return;
    }
    pace->n_mixed++;
    pace->mixed_rows = prompt_rows;
    if (pace->plain_us > 0 && !is_old(pace, readers)) {
        float row = (time - pace->plain_us) / (float)prompt_rows;
        float least = pace->plain_us / 65536; /* no dearer than nothing at all: allow many */

        pace->row_us = smooth(pace->row_us, row > least ? row : least);
    }
    RN_ASSERT(rn_prompt_budget_check(pace));
}

bool rn_prompt_budget_check(const struct rn_prompt_budget *pace)
{
    return pace->slowdown > 1 && pace->plain_us >= 0 && pace->row_us >= 0 && pace->chunk_us >= 0 &&
           (pace->row_us == 0 || pace->plain_us > 0) && pace->plain_us < FLT_MAX && pace->row_us < FLT_MAX &&
           pace->chunk_us < FLT_MAX;
}
