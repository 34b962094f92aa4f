/* What is done to values one by one (kernels.h): a thread has every 256th of its block's 1024. */
#include "gpu/kernels/values.cuh"

namespace
{

DEVICE float cut_to(float x, float low, float high)
{
    return x > high ? high : x < low ? low : x;
}

DEVICE float xielu(const rn_each_args &args, float x)
{
    return args.scale * x + (x > 0 ? args.alpha_p * x * x : args.alpha_n * (expm1f(x < args.eps ? x : args.eps) - x));
}

DEVICE float value_of(const rn_each_args &args, uint64_t i)
{
    float a = global<float>(args.a, args.n / args.part).get(i / args.part), b = 0, g;

    if (args.b != 0)
        b = global<float>(args.b, args.n).get(i);
    switch (args.kind) {
    case RN_EACH_ADD:
        return a + b;
    case RN_EACH_ADAPT:
        return b == 0 ? a : a + b;
    case RN_EACH_SCALE:
        return a * args.scale;
    case RN_EACH_SOFTCAP:
        return args.scale * tanhf(a / args.scale);
    case RN_EACH_CLAMP:
        return cut_to(a, -args.scale, args.scale);
    case RN_EACH_ACTIVATE:
        if (args.bias != 0)
            a += global<float>(args.bias, args.width).get(i % args.width);
        return activate(args.act, a);
    case RN_EACH_GATE:
        return activate(args.act, a) * b;
    case RN_EACH_CUT_GATE:
        g = a > args.cut ? args.cut : a;
        return g / (1.0f + expf(-args.scale * g)) * (cut_to(b, -args.cut, args.cut) + args.plus);
    case RN_EACH_WHOLE:
        return float_of((uint32_t)(int32_t)a);
    default:
        return xielu(args, a);
    }
}

} // namespace

RN_KERNEL(each, rn_each_args, 256, 4)
{
    global<float> out(args.out, args.n);

    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint64_t i = (uint64_t)block_x() * 1024 + j * 256 + thread_of_block();
        if (i < args.n)
            out.put(i, value_of(args, i));
    }
}
