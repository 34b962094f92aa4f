/* A row of the table in words: see table.h. */
#include <stdio.h>
#include <string.h>

#include "model/arch/table.h"

static const char *const said[RN_ARCH_BITS] = {
#define RN_ARCH_FLAG(NAME, words) [RN_ARCH_BIT_##NAME] = words,
#include "model/arch/flags.def"
};

static void say(char text[RN_ARCH_FEATURES_BYTES], const char *words)
{
    size_t n = strlen(text);

    snprintf(text + n, RN_ARCH_FEATURES_BYTES - n, "%s%s", n == 0 ? "" : ", ", words);
}

static void say_ffn(const struct rn_arch *arch, char text[RN_ARCH_FEATURES_BYTES])
{
    static const char *const acts[] = {[RN_ACT_SILU] = "SiLU",           [RN_ACT_GELU_TANH] = "GELU",
                                       [RN_ACT_GELU_ERF] = "GELU (erf)", [RN_ACT_RELU] = "ReLU",
                                       [RN_ACT_RELU2] = "ReLU squared",  [RN_ACT_SIGMOID] = "sigmoid",
                                       [RN_ACT_TANH] = "tanh",           [RN_ACT_EXP] = "exp",
                                       [RN_ACT_SOFTPLUS] = "softplus",   [RN_ACT_NONE] = "linear"};
    bool xielu = (arch->flags & RN_ARCH_XIELU) != 0, cut = (arch->flags & RN_ARCH_CUT_GATE) != 0;
    char words[64];

    snprintf(words, sizeof words, "%s%s",
             cut     ? "cut SwiGLU"
             : xielu ? "xIELU"
                     : acts[arch->act],
             cut || (arch->flags & RN_ARCH_PLAIN_FFN) != 0 ? ""
             : (arch->flags & RN_ARCH_FUSED_FFN) != 0      ? " gate, fused"
                                                           : " gate");
    say(text, words);
}

void rn_arch_features(const struct rn_arch *arch, char text[RN_ARCH_FEATURES_BYTES])
{
    bool after = (arch->flags & RN_ARCH_NORM_AFTER) != 0 && (arch->flags & RN_ARCH_NO_NORM_BEFORE) == 0;
    char words[64];

    text[0] = '\0';
    for (unsigned bit = 0; bit < RN_ARCH_BITS; bit++)
        if ((arch->flags >> bit & 1) != 0 && said[bit] != NULL)
            say(text, said[bit]);
    if (after)
        say(text, "norms before and behind");
    snprintf(words, sizeof words, "windows but for each block number %u", arch->window_period);
    if (arch->window_period > 0)
        say(text, words);
    say_ffn(arch, text);
    if (arch->experts != 0)
        say(text, (arch->experts & RN_EXPERTS_SIGMOID) != 0 ? "experts by sigmoids" : "experts");
    if ((arch->experts & RN_EXPERTS_AVERAGED) != 0)
        say(text, "half of experts and shared ones");
    if ((arch->experts & RN_EXPERTS_BESIDE) != 0)
        say(text, "a dense feed-forward beside experts");
}
