/* The table of pre-tokenizers and how passes are nested: see splitter.h. */
#include "text/split/splitter.h"

#include <string.h>

#include "text/split/passes.h"

#define SET(set, most, flags)         \
    {                                 \
        rn_next_set, set, most, flags \
    }
#define WORDS(digits, flags)               \
    {                                      \
        rn_next_words, NULL, digits, flags \
    }
#define CASED(digits, flags)               \
    {                                      \
        rn_next_cased, NULL, digits, flags \
    }
#define BY_HAND(next)    \
    {                    \
        next, NULL, 0, 0 \
    }
#define GPT2 BY_HAND(rn_next_gpt2)
#define DIGIT SET(rn_set_number, 1, 0)
#define DIGITS_3 SET(rn_set_number, 3, 0)
#define NUMBER SET(rn_set_number, RN_MANY, 0)
#define LINE_END SET(rn_set_line_end, 1, 0)
#define LINE BY_HAND(rn_next_line)
#define DEEPSEEK_CJK SET(rn_set_deepseek_cjk, RN_MANY, 0)
#define CJK_KANA SET(rn_set_cjk_kana, RN_MANY, 0)
#define BLOOM SET(rn_set_bloom, RN_MANY, RN_PASS_BLANK)
#define DEEPSEEK                     \
    {                                \
        rn_next_deepseek, NULL, 0, 0 \
    }

static const struct rn_pre table[] = {
    {"default", {SET(rn_set_default_punct, RN_MANY, 0), GPT2, NUMBER, BY_HAND(rn_next_three)}, 4, 0},
    {"gpt-2 phi-2 mpt olmo jais exaone4 gigachat a.x-4.0 mellum trillion granite-docling jina-es jina-de jina-v2-es "
     "jina-v2-de modern-bert",
     {GPT2},
     1,
     0},
    {"jina-v1-en jina-v2-code roberta-bpe", {GPT2}, 1, RN_PRE_ADD_SEP},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {WORDS(3, 0)},
     1,
     RN_PRE_WHOLE_WORDS | RN_PRE_ADD_BOS},
    {"dbrx smaug-bpe chatglm-bpe", {WORDS(3, 0)}, 1, 0},
    {"glm4 glm5", {WORDS(3, 0)}, 1, RN_PRE_WHOLE_WORDS},
    {"jais-2", {WORDS(3, RN_PASS_CASCADE)}, 1, 0},
    {"minicpm5", {DIGITS_3, WORDS(RN_MANY, 0)}, 2, RN_PRE_WHOLE_WORDS},
    {"qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe",
     {WORDS(1, 0)},
     1,
     0},
    {"qwen35", {WORDS(1, RN_PASS_MARKS)}, 1, 0},
    {"k2-horizon", {WORDS(3, RN_PASS_JOINERS)}, 1, 0},
    {"seed-coder", {WORDS(1, RN_PASS_NO_TAIL)}, 1, 0},
    {"ufakzeka", {WORDS(1, RN_PASS_NO_SHORT)}, 1, 0},
    {"laguna", {LINE, WORDS(1, 0)}, 2, 0},
    {"exaone-moe", {BY_HAND(rn_next_spaced)}, 1, 0},
    {"starcoder refact smollm command-r codeshell exaone minerva-7b mellum2", {DIGIT, GPT2}, 2, 0},
    {"falcon", {SET(rn_set_falcon_punct, RN_MANY, 0), GPT2, BY_HAND(rn_next_three)}, 3, 0},
    {"deepseek-llm",
     {LINE_END, SET(rn_set_deepseek_letter, RN_MANY, RN_PASS_SPACE), SET(rn_set_deepseek_punct, RN_MANY, RN_PASS_SPACE),
      BY_HAND(rn_next_trailing), DEEPSEEK_CJK, NUMBER},
     6,
     0},
    {"deepseek-coder",
     {LINE_END, SET(rn_set_letter, RN_MANY, RN_PASS_SPACE), SET(rn_set_punct, RN_MANY, RN_PASS_SPACE), DEEPSEEK_CJK,
      DIGIT},
     5,
     0},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {DIGITS_3, CJK_KANA, DEEPSEEK}, 3, 0},
    {"spark2_5", {DIGIT, CJK_KANA, {rn_next_deepseek, NULL, 0, RN_PASS_NO_TAIL}}, 3, 0},
    {"afmoe", {BY_HAND(rn_next_number), SET(rn_set_afmoe, RN_MANY, 0), DEEPSEEK}, 3, 0},
    {"youtu", {SET(rn_set_youtu, RN_MANY, 0), CASED(1, RN_PASS_SLASHES)}, 2, RN_PRE_WHOLE_WORDS},
    {"tekken", {CASED(1, RN_PASS_SLASHES | RN_PASS_NO_SHORT)}, 1, RN_PRE_WHOLE_WORDS | RN_PRE_ADD_BOS},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {CASED(3, RN_PASS_SLASHES)}, 1, 0},
    {"granite-embed-multi-97m", {CASED(3, RN_PASS_SLASHES)}, 1, RN_PRE_WHOLE_WORDS},
    {"tiny_aya cohere2moe", {BY_HAND(rn_next_plain_number), CASED(3, RN_PASS_SLASHES)}, 2, 0},
    {"kimi-k2", {CASED(3, RN_PASS_HAN_APART)}, 1, 0},
    {"superbpe", {NUMBER, BY_HAND(rn_next_thousands)}, 2, 0},
    {"poro-chat bloom gpt3-finnish", {BLOOM}, 1, 0},
    {"viking", {BLOOM, DIGIT}, 2, 0},
    {"chameleon",
     {BY_HAND(rn_next_sentinel), BY_HAND(rn_next_image), BY_HAND(rn_next_indent), DIGIT, SET(rn_set_chameleon, 1, 0),
      GPT2},
     6,
     RN_PRE_ADD_BOS},
    {"gemma4 granite-embed-multi-311m",
     {LINE},
     1,
     RN_PRE_TEXT | RN_PRE_BLOCKS | RN_PRE_NEWLINES | RN_PRE_ADD_BOS | RN_PRE_MUST_ADD_BOS},
    {"sarvam-moe", {LINE}, 1, RN_PRE_TEXT | RN_PRE_BLOCKS},
    {"whitespace", {SET(rn_set_not_space, RN_MANY, 0)}, 1, RN_PRE_TEXT},
};

const struct rn_pre *rn_pre_at(uint32_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}

static bool names_contain(const char *names, const char *name, size_t n)
{
    while (*names != '\0') {
        size_t length = strcspn(names, " ");

        if (length == n && memcmp(names, name, n) == 0)
            return true;
        names += length;
        names += *names == ' ';
    }
    return false;
}

const struct rn_pre *rn_pre_find(const char *name, size_t n)
{
    const struct rn_pre *pre;
    uint32_t i;

    for (i = 0; (pre = rn_pre_at(i)) != NULL; i++) {
        if (names_contain(pre->names, name, n))
            return pre;
    }
    return NULL;
}

void rn_split_init(struct rn_split *split, const struct rn_pre *pre, const char *text, size_t n)
{
    memset(split, 0, sizeof *split);
    split->pre = pre;
    split->text = text;
    split->end[0] = n;
}

bool rn_split_next(struct rn_split *split, size_t *begin, size_t *end)
{
    uint32_t last = split->pre->n_passes - 1;
    uint32_t k = last;

    while (split->at[k] == split->end[k]) {
        if (k == 0)
            return false;
        k--;
    }
    for (;;) {
        const struct rn_pass *pass = &split->pre->passes[k];

        *begin = split->at[k];
        *end = pass->next(pass, split->text, split->from[k], *begin, split->end[k]);
        split->at[k] = *end;
        if (k == last)
            return true;
        k++;
        split->from[k] = *begin;
        split->at[k] = *begin;
        split->end[k] = *end;
    }
}
