/* JSON text to values, in one pass into the arena (RFC 8259). See rn_json_parse in value.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/plain_locale.h"
#include "base/utf8.h"
#include "text/value.h"

struct parser {
    struct rn_arena *arena;
    const char *text, *at, *end;
    uint32_t depth;
    bool exact;
    bool placed; /* what was raised begins with its place */
};

/* ---- What is wrong ---- */

/* At p->at: lines and characters count from 1. */
static _Noreturn void fail(struct parser *p, const char *what)
{
    unsigned long line = 1, column = 1;

    for (const char *c = p->text; c < p->at; c++) {
        column = *c == '\n' ? 1 : column + (((unsigned char)*c & 0xc0) != 0x80);
        line += *c == '\n';
    }
    p->placed = true;
    rn_raise(p->arena, RUNNEL_INVALID, "JSON line %lu, column %lu: %s", line, column, what);
}

static void skip_white(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

static bool is_next(const struct parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool take(struct parser *p, char c)
{
    bool found = is_next(p, c);

    p->at += found;
    return found;
}

/* ---- Strings ---- */

#define EACH (~UINT64_C(0) / 255) /* 1 in every byte */

/* The high bit of the first byte of a word that is 0; above it others may have theirs, below it none has. */
static uint64_t zeros(uint64_t word)
{
    return (word - EACH) & ~word & EACH * 0x80;
}

/* Behind the ASCII characters that stand for themselves. */
static const char *skip_plain(const char *at, const char *end)
{
    uint64_t word, others;

    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, sizeof word);
        others = zeros(word ^ EACH * '"') | zeros(word ^ EACH * '\\') | ((word - EACH * 0x20) & ~word & EACH * 0x80) |
                 (word & EACH * 0x80);
        if (others != 0)
            return at + __builtin_ctzll(others) / 8;
    }
    while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* To the closing quote; whether there are escapes before it. */
static bool find_quote(struct parser *p)
{
    bool escaped = false;
    uint32_t n;

    for (;;) {
        p->at = skip_plain(p->at, p->end);
        if (p->at == p->end)
            fail(p, "the text ends within a string");
        if (*p->at == '"')
            return escaped;
        if ((unsigned char)*p->at < 0x20)
            fail(p, "a control character within a string; it is to be escaped");
        n = *p->at == '\\' ? 0 : rn_utf8_check_one(p->at, (size_t)(p->end - p->at));
        if (n == 0 && *p->at != '\\')
            fail(p, "not UTF-8");
        if (n == 0 && p->end - p->at < 2)
            fail(p, "the text ends within a string");
        escaped |= n == 0;
        p->at += n == 0 ? 2 : n;
    }
}

/* The four hexadecimal digits at p->at, and behind them. */
static uint32_t read_unit(struct parser *p)
{
    uint32_t unit = 0;

    for (int i = 0; i < 4; i++, p->at++) {
        int digit = p->at < p->end ? rn_hex_value(*p->at) : -1;

        if (digit < 0)
            fail(p, "\\u wants four hexadecimal digits");
        unit = unit << 4 | (uint32_t)digit;
    }
    return unit;
}

/* Behind \u. */
static uint32_t read_code_point(struct parser *p)
{
    uint32_t c = read_unit(p), low;

    if (c < 0xd800 || c > 0xdfff)
        return c;
    if (c > 0xdbff || p->end - p->at < 2 || p->at[0] != '\\' || p->at[1] != 'u')
        fail(p, "half of a surrogate pair");
    p->at += 2;
    low = read_unit(p);
    if (low < 0xdc00 || low > 0xdfff)
        fail(p, "half of a surrogate pair");
    return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* At a backslash: writes what is meant, and gives its bytes. */
static size_t read_escape(struct parser *p, char *out)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found = p->at[1] != '\0' ? strchr(names, p->at[1]) : NULL;

    if (found == NULL && p->at[1] != 'u')
        fail(p, "an escape that JSON does not have");
    p->at += 2;
    if (found == NULL)
        return rn_utf8_encode(read_code_point(p), out);
    *out = meant[found - names];
    return 1;
}

/* From `from` to the quote at p->at. */
static const struct rn_str *unescape(struct parser *p, const char *from)
{
    const char *quote = p->at, *next;
    char *bytes = rn_arena_take(p->arena, (size_t)(quote - from), 1);
    size_t n = 0;

    for (p->at = from; p->at < quote;) {
        next = memchr(p->at, '\\', (size_t)(quote - p->at));
        next = next != NULL ? next : quote;
        memcpy(bytes + n, p->at, (size_t)(next - p->at));
        n += (size_t)(next - p->at);
        p->at = next;
        n += next < quote ? read_escape(p, bytes + n) : 0;
    }
    rn_step(p->arena, n);
    return rn_str_borrow(p->arena, bytes, n, RN_ORIGIN_DATA);
}

/* At its first quote. */
static struct rn_value read_string(struct parser *p)
{
    const char *from = ++p->at;
    bool escaped = find_quote(p);
    const struct rn_str *string =
        escaped ? unescape(p, from) : rn_str_new(p->arena, from, (size_t)(p->at - from), RN_ORIGIN_DATA);

    p->at++;
    return rn_string_value(string);
}

/* ---- Numbers ---- */

static size_t skip_digits(struct parser *p)
{
    const char *from = p->at;

    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return (size_t)(p->at - from);
}

/* Behind a number as JSON writes them; whether it is an integer by its form. */
static bool skip_number(struct parser *p)
{
    bool integer = true;

    take(p, '-');
    if (!take(p, '0') && skip_digits(p) == 0)
        fail(p, "a value is expected");
    if (take(p, '.')) {
        integer = false;
        if (skip_digits(p) == 0)
            fail(p, "a digit is expected");
    }
    if (!take(p, 'e') && !take(p, 'E'))
        return integer;
    if (!take(p, '+'))
        take(p, '-');
    if (skip_digits(p) == 0)
        fail(p, "a digit is expected");
    return false;
}

/* The integer of text[n]; false: it is beyond 64 bits. */
static bool read_integer(const char *text, size_t n, int64_t *value)
{
    bool negative = text[0] == '-', fits = true;

    *value = 0;
    for (size_t i = negative; i < n && fits; i++)
        fits = !__builtin_mul_overflow(*value, 10, value) &&
               !__builtin_add_overflow(*value, negative ? '0' - text[i] : text[i] - '0', value);
    return fits;
}

/* The nearest double of text[n]. */
static double read_real(struct parser *p, const char *text, size_t n)
{
    char *copy = rn_arena_take(p->arena, n + 1, 1);
    double real;

    memcpy(copy, text, n);
    copy[n] = '\0';
    real = strtod(copy, NULL);
    if (isinf(real))
        fail(p, "a number beyond doubles");
    return real;
}

/* text[n] as -?[0-9]+(.[0-9]+)?([eE][+-]?[0-9]+)?; its digits and where the point is among them, behind n_int of them:
 * that may be before the first or behind the last. */
struct digits {
    bool negative;
    char *digits;
    long n, n_int;
};

static struct digits read_digits(struct rn_arena *arena, const char *text, size_t n)
{
    struct digits d = {.negative = text[0] == '-', .digits = rn_arena_take(arena, n, 1)};
    size_t i = d.negative;
    long point = -1, exponent = 0;

    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.')
            point = d.n;
        else
            d.digits[d.n++] = text[i];
    }
    d.n_int = point < 0 ? d.n : point;
    for (size_t k = i + 1; k < n && labs(exponent) <= RN_JSON_DIGITS; k++)
        if (text[k] >= '0' && text[k] <= '9')
            exponent = 10 * exponent + (text[k] - '0');
    if (i + 1 < n && text[i + 1] == '-')
        exponent = -exponent;
    for (; d.n > 0 && d.digits[0] == '0'; d.n--, d.n_int--)
        d.digits++;
    while (d.n > 0 && d.digits[d.n - 1] == '0')
        d.n--;
    if (d.n == 0)
        return (struct digits){.n = 0};
    if (d.n > RN_JSON_DIGITS || labs(exponent) > RN_JSON_DIGITS || labs(d.n_int + exponent) > RN_JSON_DIGITS)
        rn_raise(arena, RUNNEL_INVALID, "a number of more than %d digits", RN_JSON_DIGITS);
    d.n_int += exponent;
    return d;
}

/* As value.h says that a DECIMAL is written, which for an integer is its usual form; *n its bytes. */
static char *write_decimal(struct rn_arena *arena, const struct digits *d, size_t *n)
{
    char *text = rn_arena_take(arena, (size_t)(d->n + labs(d->n_int)) + 4, 1);
    long end = d->n > d->n_int ? d->n : d->n_int;
    size_t at = 0;

    if (d->negative)
        text[at++] = '-';
    if (d->n_int <= 0)
        text[at++] = '0';
    for (long i = d->n_int < 0 ? d->n_int : 0; i < end; i++) {
        if (i == d->n_int)
            text[at++] = '.';
        text[at++] = i >= 0 && i < d->n ? d->digits[i] : '0';
    }
    *n = at;
    return text;
}

static struct rn_value read_decimal(struct parser *p, const char *text, size_t n)
{
    struct digits d = read_digits(p->arena, text, n);
    struct rn_value value;
    int64_t integer;
    char *plain = write_decimal(p->arena, &d, &n);

    if ((d.n <= d.n_int || d.n == 0) && read_integer(plain, n, &integer))
        return rn_int(integer);
    value = rn_string_value(rn_str_borrow(p->arena, plain, n, RN_ORIGIN_DATA));
    value.kind = RN_VALUE_DECIMAL;
    return value;
}

static struct rn_value read_number(struct parser *p)
{
    const char *from = p->at;
    bool is_integer = skip_number(p);
    size_t n = (size_t)(p->at - from);
    int64_t integer;
    double real;

    if (is_integer && read_integer(from, n, &integer))
        return rn_int(integer);
    real = read_real(p, from, n);
    return p->exact ? read_decimal(p, from, n) : rn_float(real);
}

/* ---- Values ---- */

static struct rn_value read_value(struct parser *p);

static struct rn_value read_list(struct parser *p)
{
    struct rn_list *list = rn_list_new(p->arena, 0);

    p->at++;
    skip_white(p);
    if (take(p, ']'))
        return rn_list_value(list);
    do {
        rn_list_push(p->arena, list, read_value(p));
    } while (take(p, ','));
    if (!take(p, ']'))
        fail(p, "',' or ']' is expected");
    return rn_list_value(list);
}

static void read_member(struct parser *p, struct rn_dict *dict)
{
    struct rn_value name;
    size_t before = dict->n;

    skip_white(p);
    if (!is_next(p, '"'))
        fail(p, "a name in quotes is expected");
    name = read_string(p);
    if (memchr(name.string->bytes, '\0', name.string->n) != NULL)
        fail(p, "a name with a NUL character");
    skip_white(p);
    if (!take(p, ':'))
        fail(p, "':' is expected");
    rn_dict_set(p->arena, dict, name, read_value(p));
    if (p->exact && dict->n == before)
        fail(p, "a name that the object has already");
}

static struct rn_value read_dict(struct parser *p)
{
    struct rn_dict *dict = rn_dict_new(p->arena);

    p->at++;
    skip_white(p);
    if (take(p, '}'))
        return rn_dict_value(dict);
    do {
        read_member(p, dict);
    } while (take(p, ','));
    if (!take(p, '}'))
        fail(p, "',' or '}' is expected");
    return rn_dict_value(dict);
}

static struct rn_value read_nested(struct parser *p)
{
    struct rn_value value;

    if (++p->depth > RN_JSON_DEPTH)
        rn_raise(p->arena, RUNNEL_INVALID, "nested deeper than %d", RN_JSON_DEPTH);
    value = *p->at == '[' ? read_list(p) : read_dict(p);
    p->depth--;
    return value;
}

static struct rn_value read_word(struct parser *p)
{
    static const struct {
        const char *word;
        enum rn_value_kind kind;
        bool is_true;
    } words[] = {{"true", RN_VALUE_BOOL, true}, {"false", RN_VALUE_BOOL, false}, {"null", RN_VALUE_NONE, false}};

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);

        if ((size_t)(p->end - p->at) < n || memcmp(p->at, words[i].word, n) != 0)
            continue;
        p->at += n;
        return words[i].kind == RN_VALUE_NONE ? rn_none() : rn_bool(words[i].is_true);
    }
    fail(p, "a value is expected");
}

/* With the white space around it. */
static struct rn_value read_value(struct parser *p)
{
    struct rn_value value;
    char c;

    skip_white(p);
    c = p->at < p->end ? *p->at : '\0';
    value = c == '"'                             ? read_string(p)
            : c == '{' || c == '['               ? read_nested(p)
            : c == '-' || (c >= '0' && c <= '9') ? read_number(p)
                                                 : read_word(p);
    skip_white(p);
    return value;
}

struct work {
    struct parser *parser;
    struct rn_value *out;
};

static void read_all(void *user)
{
    struct work *work = user;
    struct rn_value value = read_value(work->parser);

    if (work->parser->at < work->parser->end)
        fail(work->parser, "the end of the text is expected");
    *work->out = value;
}

static runnel_status parse(struct rn_arena *arena, const char *text, size_t n, bool exact, struct rn_value *out,
                           runnel_error *error)
{
    struct parser p = {.arena = arena, .text = text, .at = text, .end = text + n, .exact = exact};
    locale_t host;
    bool fine;

    if (n > RN_JSON_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "JSON of %zu bytes; at most %zu", n, RN_JSON_BYTES);
    host = rn_plain_locale(); /* strtod */
    fine = rn_arena_try(arena, NULL, read_all, &(struct work){&p, out});
    uselocale(host);
    if (fine)
        return RUNNEL_OK;
    return rn_error_set(error, arena->status, "%s%s", p.placed ? "" : "JSON: ", arena->message);
}

runnel_status rn_json_parse(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                            runnel_error *error)
{
    return parse(arena, text, n, false, out, error);
}

runnel_status rn_json_parse_exact(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                                  runnel_error *error)
{
    return parse(arena, text, n, true, out, error);
}
