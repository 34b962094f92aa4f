/* What a head's file says, for whatever builds plans: see head.h. */
#ifndef RN_MODEL_BUILD_HEAD_FACTS_H
#define RN_MODEL_BUILD_HEAD_FACTS_H

#include <stdbool.h>
#include <stdint.h>

enum { RN_HEAD_TAPS = 8 };

/* What a head's file says of its target. */
struct rn_head_facts {
    bool is_eagle3;              /* RN_EAGLE3_ARCH; else RN_HEAD_ARCH (head.h) */
    unsigned char target[16];    /* print of its file; of EAGLE-3 zeros: the file does not say */
    uint32_t taps[RN_HEAD_TAPS]; /* blocks behind which states are read, ascending */
    uint32_t n_taps;             /* 1 and more */
    uint32_t width;              /* of EAGLE-3: of g; else 0, and it is the target's */
    uint32_t target_width;       /* of EAGLE-3 */
    bool norm_before_fc;         /* of EAGLE-3: an RMS norm of all states, with eps, stands before the fusion */
    bool norm_before_residual;   /* of EAGLE-3: the residual stream begins with the normed g */
    double eps;
};

#endif
