/* Case and kinds of characters, as Python's str sees them. Simple mappings are utf8proc's; the long ones
 * ("ß" to "SS") are in case_table.c; final sigma is the one rule that looks at the neighbours
 * (Unicode, chapter 3.13). See value_text.h. */
#include <utf8proc.h>

#include "text/template/case_table.h"
#include "text/unicode.h"
#include "text/template/value_text.h"

bool rn_char_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return rn_char_class(c) == RN_CHAR_SPACE;
}

/* Cased characters that are no letters of a case: Unicode's Other_Lowercase and Other_Uppercase, ascending. */
static const uint32_t other_lower[][2] = {
    {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},     {0x345, 0x345},
    {0x37a, 0x37a},   {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
    {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
static const uint32_t other_upper[][2] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

static bool in_ranges(const uint32_t (*ranges)[2], size_t n, uint32_t c)
{
    size_t i;

    if (c < 0xaa)
        return false;
    for (i = 0; i < n && ranges[i][0] <= c; i++)
        if (c <= ranges[i][1])
            return true;
    return false;
}

bool rn_char_is_upper(uint32_t c)
{
    return rn_char_class(c) == RN_CHAR_LU || in_ranges(other_upper, sizeof other_upper / sizeof other_upper[0], c);
}

bool rn_char_is_lower(uint32_t c)
{
    return rn_char_class(c) == RN_CHAR_LL || in_ranges(other_lower, sizeof other_lower / sizeof other_lower[0], c);
}

bool rn_char_is_title(uint32_t c)
{
    return rn_char_class(c) == RN_CHAR_LT;
}

bool rn_char_is_printable(uint32_t c)
{
    return c == ' ' || (rn_char_class(c) & (RN_CHAR_OTHER | RN_CHAR_SPACE)) == 0;
}

bool rn_char_in_name(uint32_t c, bool first)
{
    uint16_t start = RN_CHAR_LETTER | RN_CHAR_NL;

    return c == '_' || (rn_char_class(c) & (first ? start : start | RN_CHAR_MARK | RN_CHAR_ND | RN_CHAR_PC)) != 0;
}

static bool is_cased(uint32_t c)
{
    return rn_char_is_upper(c) || rn_char_is_lower(c) || rn_char_is_title(c);
}

/* Skipped when the rule of the final sigma looks for a letter. */
static bool is_case_ignorable(uint32_t c)
{
    return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xa8 || c == 0xad || c == 0xaf ||
           c == 0xb4 || c == 0xb7 || c == 0xb8 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 ||
           (rn_char_class(c) & (RN_CHAR_MARK | RN_CHAR_LM)) != 0;
}

static const struct rn_case_long *find_long(uint32_t c)
{
    uint32_t low = 0, high = rn_case_long_count;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (rn_case_longs[middle].c < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < rn_case_long_count && rn_case_longs[low].c == c ? &rn_case_longs[low] : NULL;
}

static void put_long(struct rn_sb *sb, const uint32_t *mapped, enum rn_origin origin)
{
    size_t i;

    for (i = 0; i < 3 && mapped[i] != 0; i++)
        rn_sb_char(sb, mapped[i], origin);
}

static bool sigma_is_final(const struct rn_str *s, size_t at)
{
    size_t i = at;
    uint32_t n, c = 0;

    while (i > 0) {
        for (i--; ((unsigned char)s->bytes[i] & 0xc0) == 0x80;)
            i--;
        c = rn_utf8_decode(s->bytes + i, &n);
        if (!is_case_ignorable(c))
            break;
        c = 0;
    }
    if (c == 0 || !is_cased(c))
        return false;
    for (i = at + 2; i < s->n; i += n) {
        c = rn_utf8_decode(s->bytes + i, &n);
        if (!is_case_ignorable(c))
            return !is_cased(c);
    }
    return true;
}

/* A long run of ignorable characters around many sigmas costs their product: counted. */
static void put_lower(struct rn_sb *sb, const struct rn_str *s, size_t at, uint32_t c, enum rn_origin origin)
{
    if (c == 0x130) {
        rn_sb_char(sb, 'i', origin);
        rn_sb_char(sb, 0x307, origin);
    } else if (c == 0x3a3) {
        rn_step(sb->arena, s->n / 8);
        rn_sb_char(sb, sigma_is_final(s, at) ? 0x3c2 : 0x3c3, origin);
    } else {
        rn_sb_char(sb, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c), origin);
    }
}

static void put_upper(struct rn_sb *sb, uint32_t c, enum rn_origin origin)
{
    const struct rn_case_long *many = c < 0x80 ? NULL : find_long(c);

    if (many != NULL)
        put_long(sb, many->upper, origin);
    else
        rn_sb_char(sb, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c), origin);
}

static void put_title(struct rn_sb *sb, uint32_t c, enum rn_origin origin)
{
    const struct rn_case_long *many = c < 0x80 ? NULL : find_long(c);

    if (many != NULL)
        put_long(sb, many->title, origin);
    else
        rn_sb_char(sb, (uint32_t)utf8proc_totitle((utf8proc_int32_t)c), origin);
}

static void put_folded(struct rn_sb *sb, uint32_t c, enum rn_origin origin)
{
    utf8proc_int32_t folded[8];
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, folded, 8, UTF8PROC_CASEFOLD, NULL), i;

    if (n <= 0 || n > 8)
        rn_sb_char(sb, c, origin);
    else
        for (i = 0; i < n; i++)
            rn_sb_char(sb, (uint32_t)folded[i], origin);
}

static void put_case(struct rn_sb *sb, const struct rn_str *s, size_t at, uint32_t c, enum rn_case to, bool in_word)
{
    enum rn_origin origin = rn_str_origin_at(s, at);

    switch (to) {
    case RN_CASE_LOWER:
        put_lower(sb, s, at, c, origin);
        break;
    case RN_CASE_UPPER:
        put_upper(sb, c, origin);
        break;
    case RN_CASE_TITLE:
        if (in_word)
            put_lower(sb, s, at, c, origin);
        else
            put_title(sb, c, origin);
        break;
    case RN_CASE_CAPITAL:
        if (at > 0)
            put_lower(sb, s, at, c, origin);
        else
            put_title(sb, c, origin);
        break;
    case RN_CASE_SWAP:
        if (rn_char_is_upper(c))
            put_lower(sb, s, at, c, origin);
        else if (rn_char_is_lower(c))
            put_upper(sb, c, origin);
        else
            rn_sb_char(sb, c, origin);
        break;
    case RN_CASE_FOLD:
        put_folded(sb, c, origin);
        break;
    }
}

void rn_sb_case(struct rn_sb *sb, const struct rn_str *s, size_t from, size_t to, enum rn_case to_case)
{
    bool in_word = false;
    uint32_t n, c;
    size_t at;

    for (at = from; at < to; at += n) {
        c = rn_utf8_decode(s->bytes + at, &n);
        put_case(sb, s, at, c, to_case, in_word);
        in_word = is_cased(c);
    }
}

const struct rn_str *rn_str_case(struct rn_arena *arena, const struct rn_str *s, enum rn_case to)
{
    struct rn_sb sb;

    rn_sb_init(&sb, arena);
    rn_sb_case(&sb, s, 0, s->n, to);
    return rn_sb_done(&sb);
}
