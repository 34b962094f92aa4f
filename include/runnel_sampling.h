/* runnel: how tokens are drawn: the sampling parameters of a request. Included by runnel.h, whose rules hold here too.
 * docs/SAMPLING.md teaches them. */
#ifndef RUNNEL_SAMPLING_H
#define RUNNEL_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

#include "runnel_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct runnel_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY forbids the token */
} runnel_logit_bias;

/* A draw that the host makes: what the samplers in front of `host` have left. Its arrays are valid until the choice is
 * made, or the stream's terminal event has been delivered. */
typedef struct runnel_candidates {
    size_t struct_size;      /* the library's, which may be more than this header says */
    uint64_t stream;         /* runnel_stream.id */
    uint64_t position;       /* of the token to draw, in prompt and answer */
    const int32_t *sequence; /* [n_sequence] prompt and answer so far, as the model has them */
    size_t n_sequence;
    const int32_t *tokens; /* [n] the candidates, in ascending order */
    float *logits;         /* [n] theirs; the host may change them, and drops a candidate with -INFINITY */
    size_t n;              /* at least 1 */
    const void *draw;      /* the library's */
} runnel_candidates;

#define RUNNEL_CHOOSE_DRAW (-1)  /* the library goes on with the logits as they are now: samplers behind `host`, coin */
#define RUNNEL_CHOOSE_LATER (-2) /* runnel_stream_choose will say; until then the stream waits, and no other does */

/* The host's sampler: returns the place of the token among the candidates, or one of the above. Called where the
 * stream's events are received, between them and on the same thread (inside runnel_stream_next or runnel_engine_take
 * where these are used; to free the engine inside runnel_stream_next makes that call return CLOSED, and the engine is
 * freed then). A candidate that does not exist, or logits among which nothing can be drawn, fail the stream with
 * INVALID. */
typedef int64_t (*runnel_choose_fn)(void *user, runnel_candidates *candidates);

/* The place of what the samplers behind `host` and the request's coin draw from the logits as they are now; -1: nothing
 * can be drawn, since they are -INFINITY, or one is NaN or +INFINITY. Any thread, while the arrays are valid. */
RUNNEL_API int64_t runnel_candidates_draw(const runnel_candidates *candidates);

/* The other samplers of a request, and the order of all. docs/SAMPLING.md says what each computes; the members and
 * their ranges are a table in runnel_fields.h (RUNNEL_SAMPLERS_NUMBERS). What a sampler remembers begins with the
 * answer and depends on the request and its tokens alone, so the text is the same however it was computed. */
typedef struct runnel_samplers {
    size_t struct_size;
    const char *order; /* names of RUNNEL_SAMPLER_NAMES with commas or semicolons between them; NULL: the order of that
                          table. One that is not named is off; host, mirostat and adaptive_p are on where they are set:
                          they come last if they are not named. Biases are always first */
    const char *const *dry_breakers; /* [n_dry_breakers]: UTF-8 texts behind which a repetition begins anew; by default
                                        a newline, ":", "\"" and "*" */
    size_t n_dry_breakers;           /* at most RUNNEL_MAX_BREAKERS */
    uint32_t min_tokens;             /* until the answer has so many, no token that ends it is drawn */
    uint32_t penalty_scope;          /* a runnel_penalty_scope */
    float dry_multiplier;            /* 0: off. Lowers the logit of what would make a repetition longer by
                                        dry_multiplier × dry_base^(its length - dry_allowed_length) */
    float dry_base;
    uint32_t dry_allowed_length; /* shorter repetitions are left alone */
    uint32_t dry_tokens;         /* the last so many tokens are looked at; 0: all */
    float top_n_sigma;           /* drops logits so many standard deviations below the best; 0: off */
    float typical_p;             /* keeps those of most typical information that together reach it; 1: off */
    float xtc_probability;       /* how often xtc acts; 0: off */
    float xtc_threshold;         /* of tokens with at least this probability, all but the least likely are dropped */
    float temperature_range;     /* by the entropy, the temperature is up to so much lower or higher; 0: off */
    float temperature_exponent;  /* of the entropy's share */
    uint32_t mirostat;           /* 1, 2: version; 0: off */
    float mirostat_tau;          /* the surprise in bits that it steers to */
    float mirostat_eta;          /* how fast */
    float adaptive_target;       /* prefers tokens of this probability; below 0: off */
    float adaptive_decay;        /* how long it remembers what was drawn */
    uint32_t logprobs_after;     /* 1: logprobs are of what the chain has left, in front of `host`; 0: of the model's
                                    distribution */
    runnel_choose_fn choose;     /* the sampler `host`: the host draws; NULL: off. Not with mirostat or adaptive_p;
                                    penalties and dry stand in front of it, and so may temperature if it is not 0. Such
                                    a request drafts nothing */
    void *choose_user;
    uint64_t reserved[2];
} runnel_samplers;

/* Which tokens the repetition, frequency and presence penalties count. */
typedef enum runnel_penalty_scope {
    RUNNEL_PENALTY_ALL = 0,   /* prompt and answer */
    RUNNEL_PENALTY_ANSWER = 1 /* the answer alone */
} runnel_penalty_scope;

#define RUNNEL_MAX_BREAKERS 32
#define RUNNEL_MAX_BREAKER_BYTES 64

/* All off. */
RUNNEL_API void runnel_samplers_init(runnel_samplers *samplers, size_t struct_size);
RUNNEL_API void runnel_samplers_default(runnel_samplers *samplers);
#define runnel_samplers_default(samplers) runnel_samplers_init((samplers), sizeof *(samplers))

typedef struct runnel_sampling {
    float temperature;        /* 0: greedy */
    uint32_t top_k;           /* 0: off */
    float top_p;              /* (0, 1]; 1: off */
    float min_p;              /* [0, 1]; 0: off */
    float repetition_penalty; /* > 0; 1: off. Divides positive logits, multiplies negative ones (CTRL, Keskar 2019) */
    float frequency_penalty;  /* subtracted per occurrence; 0: off */
    float presence_penalty;   /* subtracted once; 0: off */
    uint32_t penalty_tokens;  /* the last so many tokens of prompt and answer count; 0: all */
    uint64_t seed;            /* names the noise of (seed, position, token): the same request gives the same text */
    const runnel_logit_bias *biases; /* [n_biases], no more than the vocabulary has tokens */
    size_t n_biases;
    const runnel_samplers *samplers; /* further samplers, and the order; NULL: none, as in RUNNEL_SAMPLER_NAMES */
    uint64_t reserved[8];
} runnel_sampling;

#ifdef __cplusplus
}
#endif

#endif
