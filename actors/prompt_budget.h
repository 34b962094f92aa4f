/* The pace of steps: how many rows of prompts a step may take while answers are being generated, so that whoever reads
 * an answer hardly notices the prompts that come in.
 *
 *   a step without prompts takes `plain`; one with p rows of prompts is taken to take plain + p · row
 *   allowed: p such that it takes at most slowdown · plain     ⇒     p = (slowdown - 1) · plain / row
 *
 * Both are measured and smoothed. plain changes with what runs, so now and then a step goes without prompts; so does
 * the first, when nothing is known. The line is only locally true (the first rows of a step cost next to nothing where
 * memory sets the pace), but its slope is measured where it is used. Steps in which nobody reads along are not
 * bounded. */
#ifndef RN_ACTORS_PROMPT_BUDGET_H
#define RN_ACTORS_PROMPT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define RN_PROMPT_BUDGET_SLOWDOWN 2.0f /* by default */
#define RN_PROMPT_BUDGET_LEAST 4       /* rows that a prompt may always take */
#define RN_PROMPT_BUDGET_STEPS 16      /* with prompts in a row at most, before one without */

struct rn_prompt_budget {
    float slowdown;   /* > 1; infinity: no bound */
    float plain_us;   /* 0: not known */
    float row_us;     /* 0: not known */
    uint32_t n_mixed; /* steps with prompts since the last without */
};

void rn_prompt_budget_init(struct rn_prompt_budget *pace, float slowdown);

/* Rows of prompts that the next step may take, of at most max_rows. read_along: it also has rows of answers that
 * somebody waits for. */
uint32_t rn_prompt_budget_rows(const struct rn_prompt_budget *pace, bool read_along, uint32_t max_rows);

/* A step of so many rows took us microseconds. */
void rn_prompt_budget_note(struct rn_prompt_budget *pace, uint32_t answer_rows, uint32_t prompt_rows, uint64_t us);

#endif
