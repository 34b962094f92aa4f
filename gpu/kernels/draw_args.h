/* The arguments of the kernels that draw: `draw` from the wanted rows' logits, `feed` what was drawn to the next step's
 * rows. C and C++; nothing of CUDA. */
#ifndef RN_GPU_KERNELS_DRAW_ARGS_H
#define RN_GPU_KERNELS_DRAW_ARGS_H

#include "gpu/kernels/kernels.h"

/* Of a wanted row, what is drawn from its logits (model/draw.h), and how (the parameters of runnel_sampling). */
struct rn_draw_ask {
    uint64_t seed, position;
    rn_address mask, late; /* rn_draw_mask, in the host's memory, as is f32 [n_vocab]; 0: any token may be drawn */
    float temperature, top_p, min_p;
    uint32_t top_k;
    uint32_t wanted; /* 0: nothing is drawn */
    uint32_t want_logprob, n_top;
    uint32_t changes_at, n_biases, n_counts, n_barred; /* rn_draw_args.changes of the row, in this order */
    float repetition, frequency, presence;
    uint32_t own; /* the row of the step whose token counts once more; RN_DRAW_NONE: none does */
    uint32_t unused;
};

/* Of one logit: the bits of a bias, how often a token counts, or nothing: it is barred. */
struct rn_draw_change {
    int32_t token;
    uint32_t word;
};

#define RN_DRAW_NONE UINT32_MAX

enum {
    RN_DRAW_TOP = 100,            /* RUNNEL_MAX_TOP_LOGPROBS */
    RN_DRAW_MASK_ENDS = 4,        /* of rn_draw_mask, in bytes: may_end, ... */
    RN_DRAW_MASK_WORDS = 16,      /* ... and words */
    RN_DRAW_BIASES = 1024,        /* of a row, at most: each looks for others of its token */
    RN_DRAW_MASKED_MOST = 1 << 20 /* tokens of a vocabulary for which a block has room for masks */
};

/* And what was. The token is one of the vocabulary, whatever the rest says. */
struct rn_draw_result {
    uint32_t good; /* 0: there is no token in these logits, or none was wanted */
    int32_t token;
    float logprob;
    uint32_t n_top;
    uint32_t is_late; /* the mask was not there: nothing is drawn, and the logits are where the ask says */
    int32_t top_tokens[RN_DRAW_TOP];
    float top_logprobs[RN_DRAW_TOP];
};

/* To the bit what sampling/ draws from the same logits with these parameters. The logits are changed meanwhile. */
struct rn_draw_args {
    rn_address logits, asks, results; /* f32 [n_rows, n_vocab]; [n_rows], both */
    rn_address changes, saved;        /* rn_draw_change [n_changes]; f32 [n_changes + n_rows]: what they were */
    rn_address tokens;                /* uint32_t [n_tokens]: of the step's rows */
    uint32_t n_rows, n_vocab, n_changes, n_tokens;
};

/* tokens[r] = the token of results[drawn[r]] where that is not below 0. */
struct rn_feed_args {
    rn_address results, drawn, tokens; /* [n_results]; int32_t and uint32_t [n_rows] */
    uint32_t n_rows, n_results;
};

#endif
