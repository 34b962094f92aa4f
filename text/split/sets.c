/* The sets of characters that pre-tokenizers look for. See splitter.h. */
#include "text/split/passes.h"

struct range {
    uint32_t first, last;
};

/* ranges [n], ascending. */
static bool in_ranges(const struct range *ranges, uint32_t n, uint32_t c)
{
    uint32_t low = 0, high = n;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (c > ranges[middle].last)
            low = middle + 1;
        else if (c < ranges[middle].first)
            high = middle;
        else
            return true;
    }
    return false;
}

#define IN(ranges, c) in_ranges(ranges, sizeof(ranges) / sizeof(ranges)[0], c)

uint8_t rn_set_number(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_NUMBER) != 0;
}

uint8_t rn_set_letter(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_LETTER) != 0;
}

uint8_t rn_set_punct(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_PUNCT) != 0;
}

uint8_t rn_set_not_space(uint32_t c) /* \S */
{
    return (rn_char_class(c) & RN_CHAR_SPACE) == 0;
}

uint8_t rn_set_line_end(uint32_t c) /* [\r\n] */
{
    return c == '\r' || c == '\n';
}

uint8_t rn_set_default_punct(uint32_t c) /* [\p{P}\$\+<=>\^~\|] */
{
    return rn_set_punct(c) || c == '$' || c == '+' || (c >= '<' && c <= '>') || c == '^' || c == '~' || c == '|';
}

uint8_t rn_set_falcon_punct(uint32_t c) /* [\p{P}\$\+<=>\^~\|`] */
{
    return rn_set_default_punct(c) || c == '`';
}

uint8_t rn_set_chameleon(uint32_t c) /* [\p{P}!-/:-@\[-`{-~] */
{
    return rn_set_punct(c) || (c < 0x80 && (rn_char_class(c) & RN_CHAR_SYMBOL));
}

uint8_t rn_set_deepseek_punct(uint32_t c) /* [!-/:-~！-／：-～‘-‟　-。] */
{
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x7e) || (c >= 0xff01 && c <= 0xff0f) ||
           (c >= 0xff1a && c <= 0xff5e) || (c >= 0x2018 && c <= 0x201f) || (c >= 0x3000 && c <= 0x3002);
}

uint8_t rn_set_deepseek_cjk(uint32_t c) /* [一-龥ࠀ-一가-퟿] */
{
    return (c >= 0x800 && c <= 0x9fa5) || (c >= 0xac00 && c <= 0xd7ff);
}

uint8_t rn_set_cjk_kana(uint32_t c) /* [一-龥぀-ゟ゠-ヿ] */
{
    return (c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff);
}

/* [가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+ */
uint8_t rn_set_youtu(uint32_t c)
{
    if (c < 0x2014)
        return 0;
    if ((c >= 0xac00 && c <= 0xd7a3) || (c >= 0x3131 && c <= 0x318e))
        return 1;
    if (c == 0xff01 || c == 0x2026 || c == 0x201c || c == 0x201d || c == 0x2018 || c == 0x2019 || c == 0x2014 ||
        c == 0xff1a || c == 0xff1b || c == 0xff0c || (c >= 0x3001 && c <= 0x303f) || (c >= 0xfe30 && c <= 0xfe4f))
        return 2;
    if (c >= 0x3105 && c <= 0x312f)
        return 3;
    return rn_set_cjk_kana(c) ? 4 : 0;
}

uint8_t rn_set_bloom(uint32_t c) /* [^(\s|.,!?…。，、।۔،)] */
{
    return !(rn_char_class(c) & RN_CHAR_SPACE) && c != '(' && c != '|' && c != '.' && c != ',' && c != '!' &&
           c != '?' && c != ')' && c != 0x2026 && c != 0x3002 && c != 0xff0c && c != 0x3001 && c != 0x964 &&
           c != 0x6d4 && c != 0x60c;
}

static const struct range afmoe[] = {
    /* scripts without spaces between words, as llama.cpp lists them */
    {0xe40, 0xeff},   {0x1000, 0x109f}, {0x1100, 0x11ff}, {0x1780, 0x17ff}, {0x2f00, 0x2fdf},
    {0x3040, 0x30ff}, {0x3400, 0x4dbf}, {0x4e00, 0xfaff}, {0xff65, 0xff9f},
};

uint8_t rn_set_afmoe(uint32_t c)
{
    return c >= 0xe40 && IN(afmoe, c);
}

static const struct range deepseek_letters[] = {
    /* the letters with case that DeepSeek LLM's tokenizer.json lists */
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},
    {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},
    {0x376, 0x377},     {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},
    {0x38c, 0x38c},     {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},   {0x1c90, 0x1cba},
    {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},
    {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},
    {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},   {0x1fd6, 0x1fdb},
    {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210a, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},
    {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},   {0xa680, 0xa69b},   {0xa722, 0xa76f},
    {0xa771, 0xa787},   {0xa78b, 0xa78e},   {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},
    {0xff21, 0xff3a},   {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};

uint8_t rn_set_deepseek_letter(uint32_t c)
{
    if (c < 0x80)
        return ((c | 0x20) - 'a') < 26;
    return IN(deepseek_letters, c);
}

static const struct range han[] = {
    /* Scripts.txt of Unicode 16 */
    {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},   {0x3007, 0x3007},
    {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfa6d},
    {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3}, {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739},
    {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
    {0x30000, 0x3134a}, {0x31350, 0x323af},
};

bool rn_char_is_han(uint32_t c)
{
    return c >= 0x2e80 && IN(han, c);
}

/* Letters, marks, decimal digits, number letters and connecting punctuation; and, as seen by asking it, the
 * circled and squared letters and the fractions and powers of Latin-1. */
bool rn_char_is_word(uint32_t c)
{
    static const uint16_t in = RN_CHAR_LETTER | RN_CHAR_MARK | RN_CHAR_ND | RN_CHAR_NL | RN_CHAR_PC;

    if (rn_char_class(c) & in)
        return true;
    return c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0xbc && c <= 0xbe) || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}
