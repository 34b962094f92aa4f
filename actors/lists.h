/* What decode tells others of its steps in lists, and how much of each is under way: bounds that several actors know.
 * Lists are decode's, made when the model is; one that was sent comes back. */
#ifndef RN_ACTORS_LISTS_H
#define RN_ACTORS_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runnel.h"

/* ---- Steps ---- */

/* In flight at once, at most: whatever a device takes, who comes new waits for all of them. */
#define RN_STEPS 3

/* ---- Prompts that decode has ---- */

/* Prompts computed side by side: enough that short ones pass a long one, few enough that each advances. */
#define RN_PREFILL_LANES 8
#define RN_BACKGROUND_LANES 6

/* Besides the lanes, so many prompts of at most so many rows: what is left behind a whole block, of as many streams as
 * are commonly waiting for one prefix. Not of the background, which waits for a lane. */
#define RN_PREFILL_SHORT_ROWS 32
#define RN_PREFILL_SHORTS 64
#define RN_PROMPTS (RN_PREFILL_LANES + RN_PREFILL_SHORTS)

/* ---- decode ▶ detokenizer ▶ decode ---- */

/* Token lists with steps in flight, or under way between decode and detokenizer; when all are, decoding waits. */
#define RN_TOKEN_LISTS (RN_STEPS + 3)

/* One event of a step, of one stream. */
struct rn_token_item {
    uint32_t slot, generation;
    runnel_event_type type; /* TOKEN, PROGRESS, LOGITS, EMBEDDING */
    int32_t token;
    float logprob;
    uint32_t n_top;
    bool asks;           /* no event: the host is asked for its choice */
    bool joined;         /* on the way back: it became part of another event, and its credit is free */
    const float *logits; /* LOGITS: a row of the outlet's buffer, held by the stream's credit */
    uint64_t position;
    uint64_t prompt_done, prompt_total, prompt_cached;
    runnel_logprob top[RUNNEL_MAX_TOP_LOGPROBS];
};

/* The events of one step. Moves decode → detokenizer → decode. */
struct rn_token_list {
    struct rn_token_list *next; /* decode's free list */
    uint32_t n, capacity;
    struct rn_token_item *items;
};

/* ---- decode ▶ tier ▶ decode ---- */

/* Lists of computed blocks with steps in flight, or under way between decode and tier; when all are, decoding waits. */
#define RN_COMPUTED_LISTS (RN_STEPS + 1)

/* So many positions of a stream's prompt are computed: it has another full block, or is through. */
struct rn_computed {
    uint32_t slot, generation;
    uint32_t n_positions;
};

/* Those of one step: at most one entry for each prompt that decode has. */
#define RN_COMPUTED_ITEMS RN_PROMPTS
struct rn_computed_list {
    struct rn_computed_list *next; /* decode's free ones */
    uint32_t n;
    struct rn_computed items[RN_COMPUTED_ITEMS];
};

#endif
