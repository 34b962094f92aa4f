/* The pace of steps: how many rows of prompts a step may take while answers are being generated, so that whoever reads
 * an answer hardly notices the prompts that come in.
 *
 *   a step without prompts takes `plain`; one with p rows of prompts is taken to take plain + p · row
 *   allowed: p such that it takes at most slowdown · plain     ⇒     p = (slowdown - 1) · plain / row
 *
 * Where more requests wait for their first token than are read, they are more in the balance, too: w who wait and r who
 * read may make a step (slowdown - 1) · w / r times longer instead, up to 100 ms. That is without the host's own bound.
 *
 * Both are measured and smoothed. plain changes with what runs, so now and then a step goes without prompts, and when
 * many have begun or ceased to read; so does the first, when nothing is known. The line is only locally true (the first
 * rows of a step cost next to nothing where memory sets the pace), but its slope is measured where it is used. Where it
 * was measured with few rows, what a row of the last step of prompts alone took bounds the step, too. That step says
 * nothing of more rows than it had: if they would fit by it, a step may have four times the rows of the last ones.
 *
 * A step in which nobody reads along is bounded by its time: by 100 ms where several requests have rows in it, for a
 * request that is cancelled waits for the others' rows, and who comes in waits, too; by three seconds where it is one's
 * own, or the background's, which is stopped when it is not wanted (model/stop.h). Who comes in waits for that as well,
 * but an 8B model on two cores computes 50 rows in a second, and a prompt takes a sixth longer in steps of 50 rows than
 * in steps of 150.
 *
 *   rows = bound / row       row: a row's share of such a step's time
 *
 * Requests of a burst come one by one, within milliseconds. The first would be alone, be computed whole, and be read
 * while all others are computed in what the pace leaves of each step, for which the weights are read again and again.
 * So a prompt that is alone, and takes longer than a shared step, waits a moment for others (a fiftieth of its time).
 *
 * Short steps read the weights for few rows, and cost more for each: on two Zen 4 cores a prompt for a model of 1.1 G
 * weights in steps of 24 rows takes 1.3 times as long as in steps of 256 (bench_cpu_step --chunks). */
#ifndef RN_ACTORS_DECODE_PROMPT_BUDGET_H
#define RN_ACTORS_DECODE_PROMPT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define RN_PROMPT_BUDGET_SLOWDOWN 2.0f /* by default */
#define RN_PROMPT_BUDGET_LEAST 4       /* rows that a prompt may always take */
#define RN_PROMPT_BUDGET_STEPS 16      /* with prompts in a row at most, before one without */
#define RN_PROMPT_BUDGET_GROWTH 4      /* rows of a step by those of the last ones, where nothing says more */
#define RN_PROMPT_BUDGET_SHARED_US 100000.0f
#define RN_PROMPT_BUDGET_ALONE_US 3000000.0f
#define RN_PROMPT_BUDGET_PATIENCE 50       /* its time by this: how long a prompt that is alone waits for others ... */
#define RN_PROMPT_BUDGET_PATIENCE_US 5000u /* ... at most */
#define RN_PROMPT_BUDGET_CHUNK \
    16 /* rows that such a step may always have, and from which on it shows what a row takes */
#define RN_PROMPT_BUDGET_FIRST 32 /* while that is not known */

struct rn_prompt_budget {
    float slowdown;         /* > 1; infinity: no bound */
    bool adapts;            /* the bound is not the host's own: a crowd that waits may pass it */
    float plain_us;         /* 0: not known */
    uint32_t plain_readers; /* of so many */
    float row_us;           /* 0: not known */
    uint32_t n_mixed;       /* steps with prompts since the last without */
    float chunk_us;         /* of a row in a step of prompts alone; 0: not known */
    uint32_t chunk_rows;    /* of the last such step ... */
    uint32_t mixed_rows;    /* ... and of prompts in the last one with answers */
};

/* slowdown 0: RN_PROMPT_BUDGET_SLOWDOWN, more where a crowd waits. */
void rn_prompt_budget_init(struct rn_prompt_budget *pace, float slowdown);

/* Rows of prompts that the next step may take, of at most max_rows: the step also has rows of so many answers that
 * somebody reads, and so many prompts wait for their first token. */
uint32_t rn_prompt_budget_rows(const struct rn_prompt_budget *pace, uint32_t readers, uint32_t waiting,
                               uint32_t max_rows);

/* Rows that a step in which nobody reads along may take, of at most max_rows: one that several requests share, not all
 * of the background, or another. */
uint32_t rn_prompt_budget_chunk(const struct rn_prompt_budget *pace, bool shared, uint32_t max_rows);

/* How long a prompt that is alone, with so many rows to compute, waits for others before its first step. 0 where a
 * shared step could take it whole: sharing would change nothing. */
uint64_t rn_prompt_budget_patience_us(const struct rn_prompt_budget *pace, uint32_t rows);

/* A step of so many rows took us microseconds. readers: as above. */
void rn_prompt_budget_note(struct rn_prompt_budget *pace, uint32_t readers, uint32_t answer_rows, uint32_t prompt_rows,
                           uint64_t us);

/* Times are numbers, and what a row takes is known only beside what a step without it takes. */
bool rn_prompt_budget_check(const struct rn_prompt_budget *pace);

#endif
