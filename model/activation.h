/* What is done to values one by one: see cpu/reference/ops.c for the formulas. */
#ifndef RN_MODEL_ACTIVATION_H
#define RN_MODEL_ACTIVATION_H

enum rn_activation {
    RN_ACT_SILU,
    RN_ACT_GELU_TANH,
    RN_ACT_GELU_ERF,
    RN_ACT_RELU,
    RN_ACT_RELU2,
    RN_ACT_SIGMOID,
    RN_ACT_TANH,
    RN_ACT_EXP,
    RN_ACT_SOFTPLUS,
    RN_ACT_NONE, /* the value itself: a GATE is a product */
    RN_ACTIVATIONS
};

#endif
