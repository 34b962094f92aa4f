/* What is done to values one by one: model/activation.h, cpu/reference/ops.c. */
#ifndef RN_GPU_VALUES_CUH
#define RN_GPU_VALUES_CUH

#include "gpu/kernels/wrap.cuh"
#include "model/activation.h"

DEVICE float activate(uint32_t act, float x)
{
    switch (act) {
    case RN_ACT_SILU:
        return x / (1.0f + expf(-x));
    case RN_ACT_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
    case RN_ACT_GELU_ERF:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case RN_ACT_RELU:
        return x > 0 || x != x ? x : 0;
    case RN_ACT_RELU2:
        return x > 0 || x != x ? x * x : 0;
    case RN_ACT_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case RN_ACT_TANH:
        return tanhf(x);
    case RN_ACT_EXP:
        return expf(x);
    case RN_ACT_SOFTPLUS:
        return x > 40 ? x : log1pf(expf(x));
    default:
        return x;
    }
}

#endif
