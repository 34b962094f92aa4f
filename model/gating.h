/* How a ROUTE weighs an expert whose logit is x, in plans and keys. */
#ifndef RN_MODEL_GATING_H
#define RN_MODEL_GATING_H

enum rn_gating {
    RN_GATING_SOFTMAX,      /* softmax over all experts */
    RN_GATING_SIGMOID,      /* 1 / (1 + e^-x) */
    RN_GATING_CHOSEN,       /* softmax over those that are chosen; they are compared by x itself */
    RN_GATING_ROOT_SOFTPLUS /* sqrt(ln(1 + e^x)) */
};

enum { RN_MAX_ROUTE_GROUPS = 256 }; /* groups of experts, some of which count */

#endif
