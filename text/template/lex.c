/* Template source to tokens, as Jinja2's lexer does it with trim_blocks and lstrip_blocks.
 *
 * Outside of tags everything is data. White space beside a tag goes away by these rules, in this order:
 *   -   on that side: all of it, with newlines;
 *   +   on that side: none;
 *   a statement or comment that is the first thing on its line: the blanks before it (lstrip_blocks);
 *   a statement or comment that is followed by a newline: that newline (trim_blocks). */
#include <string.h>

#include "text/template/ast.h"
#include "text/template/number.h"
#include "text/unicode.h"
#include "text/template/value_text.h"

struct lexer {
    struct rn_tpl_parser *p;
    const char *s;
    size_t n, at;
    bool line_starting;       /* did the last thing read end a line, or is it the start? */
    char open[RN_JSON_DEPTH]; /* closing brackets that are due */
    uint32_t n_open;
};

static struct rn_tpl_lexeme *push(struct lexer *l, enum rn_tpl_lex_kind kind, size_t at)
{
    struct rn_tpl_parser *p = l->p;
    struct rn_tpl_lexeme *token;

    if (p->n_tokens == p->cap_tokens) {
        size_t cap = p->cap_tokens == 0 ? 256 : 2 * p->cap_tokens;

        p->tokens = rn_arena_grow(&p->scratch, p->tokens, p->n_tokens, cap, sizeof *p->tokens);
        p->cap_tokens = cap;
    }
    token = &p->tokens[p->n_tokens++];
    *token = (struct rn_tpl_lexeme){.kind = kind, .at = (uint32_t)at};
    return token;
}

static bool begins(const struct lexer *l, size_t at, const char *text)
{
    size_t n = strlen(text);

    return l->n - at >= n && memcmp(l->s + at, text, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    uint32_t n;

    while (at < l->n && rn_char_is_space(rn_utf8_decode(l->s + at, &n)))
        at += n;
    return at;
}

static size_t back_over_space(const struct lexer *l, size_t from, size_t to)
{
    size_t at;
    uint32_t n;

    while (to > from) {
        for (at = to - 1; ((unsigned char)l->s[at] & 0xc0) == 0x80;)
            at--;
        if (!rn_char_is_space(rn_utf8_decode(l->s + at, &n)))
            break;
        to = at;
    }
    return to;
}

/* The text [from, to) before a tag with that sign. */
static void push_data(struct lexer *l, size_t from, size_t to, char sign, bool variable)
{
    size_t end = to, line;

    if (sign == '-') {
        end = back_over_space(l, from, to);
    } else if (sign != '+' && !variable) {
        for (line = to; line > from && l->s[line - 1] != '\n';)
            line--;
        if ((line > from || l->line_starting) && skip_space(l, line) >= to)
            end = line;
    }
    if (end > from)
        push(l, RN_TPL_LEX_DATA, from)->text = rn_str_borrow(l->p->arena, l->s + from, end - from, RN_ORIGIN_TRUSTED);
}

/* The end of a tag at `at` ("%}" and its like); 0: there is none. */
static size_t tag_end(struct lexer *l, size_t at, const char *end, bool trim)
{
    if (begins(l, at, "-") && begins(l, at + 1, end))
        return skip_space(l, at + 3);
    if (trim && begins(l, at, "+") && begins(l, at + 1, end))
        return at + 3;
    if (!begins(l, at, end))
        return 0;
    at += 2;
    return trim && begins(l, at, "\n") ? at + 1 : at;
}

static void moved(struct lexer *l, size_t to)
{
    l->line_starting = to > 0 && l->s[to - 1] == '\n';
    l->at = to;
}

/* Is there "{%- raw -%}" or the like at `at`? Returns its end, or 0. */
static size_t raw_tag(struct lexer *l, size_t at, const char *word, bool end_of_raw, char *sign)
{
    size_t i = at + 2;

    if (!begins(l, at, "{%"))
        return 0;
    *sign = i < l->n ? l->s[i] : '\0';
    if (*sign == '-' || *sign == '+')
        i++;
    i = skip_space(l, i);
    if (!begins(l, i, word))
        return 0;
    i = skip_space(l, i + strlen(word));
    if (end_of_raw)
        return tag_end(l, i, "%}", true);
    return begins(l, i, "-%}") ? skip_space(l, i + 3) : begins(l, i, "%}") ? i + 2 : 0;
}

static void lex_raw(struct lexer *l, size_t begin)
{
    size_t from = l->at, at, end;
    char sign;

    if (from == l->n)
        return;
    for (at = from; at < l->n; at++) {
        if (l->s[at] != '{' || (end = raw_tag(l, at, "endraw", true, &sign)) == 0)
            continue;
        push_data(l, from, at, sign, false);
        moved(l, end);
        return;
    }
    rn_template_fail(l->p, (uint32_t)begin, "missing end of raw directive");
}

static void lex_comment(struct lexer *l, size_t begin)
{
    size_t at, end;

    if (l->at == l->n)
        return;
    for (at = l->at; at < l->n; at++) {
        end = l->s[at] == '#' || l->s[at] == '-' || l->s[at] == '+' ? tag_end(l, at, "#}", true) : 0;
        if (end == 0)
            continue;
        moved(l, end);
        return;
    }
    rn_template_fail(l->p, (uint32_t)begin, "missing end of comment tag");
}

/* ---- Inside of tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(uint32_t c)
{
    if (c < 0x80)
        return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    return (rn_char_class(c) & (RN_CHAR_LETTER | RN_CHAR_MARK | RN_CHAR_NUMBER)) != 0;
}

/* The end of digits with single underscores between them, or `at`. */
static size_t skip_digits(const struct lexer *l, size_t at)
{
    while (at < l->n && (is_digit(l->s[at]) ||
                         (l->s[at] == '_' && at + 1 < l->n && is_digit(l->s[at + 1]) && is_digit(l->s[at - 1]))))
        at++;
    return at;
}

/* The end of a float at `at`, or `at`. */
static size_t skip_float(const struct lexer *l, size_t at)
{
    size_t whole = skip_digits(l, at), part = whole, end;

    if (whole == at || (at > 0 && l->s[at - 1] == '.'))
        return at;
    if (begins(l, whole, ".") && whole + 1 < l->n && is_digit(l->s[whole + 1]))
        part = skip_digits(l, whole + 1);
    if (part < l->n && (l->s[part] | 0x20) == 'e') {
        end = part + 1;
        if (end < l->n && (l->s[end] == '+' || l->s[end] == '-'))
            end++;
        if (end < l->n && is_digit(l->s[end]))
            return skip_digits(l, end);
    }
    return part > whole ? part : at;
}

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
}

/* The end of an integer at `at`; its base. A zero before other digits stands alone. */
static size_t skip_integer(const struct lexer *l, size_t at, int *base)
{
    char letter = at + 1 < l->n ? (char)(l->s[at + 1] | 0x20) : '\0';
    size_t end = at + 2;

    *base = l->s[at] != '0' ? 10 : letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
    if (*base != 10) {
        while (end < l->n && (digit_value(l->s[end]) < *base ||
                              (l->s[end] == '_' && end + 1 < l->n && digit_value(l->s[end + 1]) < *base)))
            end++;
        if (end > at + 2)
            return end;
        *base = 10;
    }
    if (l->s[at] != '0')
        return skip_digits(l, at);
    for (end = at + 1; end < l->n && (l->s[end] == '0' || (l->s[end] == '_' && begins(l, end + 1, "0")));)
        end++;
    return end;
}

static void lex_number(struct lexer *l)
{
    char digits[400]; /* more are cut: a float has at most 309 before the point, and none behind matter */
    size_t from = l->at, end = skip_float(l, from), i, n = 0;
    bool real = end > from;
    struct rn_tpl_lexeme *token;
    int base = 10;

    if (!real)
        end = skip_integer(l, from, &base);
    for (i = from; i < end; i++) {
        if (l->s[i] == '_')
            continue;
        if (n == sizeof digits)
            rn_template_fail(l->p, (uint32_t)from, "a number of more than %zu digits", sizeof digits);
        digits[n++] = l->s[i];
    }
    token = push(l, real ? RN_TPL_LEX_FLOAT : RN_TPL_LEX_INTEGER, from);
    if (real ? !rn_tpl_number_parse_float(digits, n, &token->real)
             : !rn_tpl_number_parse_int(digits + (base != 10 ? 2 : 0), n - (base != 10 ? 2 : 0), base, &token->integer))
        rn_template_fail(l->p, (uint32_t)from, "an integer beyond 64 bits");
    moved(l, end);
}

static void lex_name(struct lexer *l)
{
    size_t from = l->at, at = from;
    uint32_t n, c;

    for (; at < l->n && is_word(c = rn_utf8_decode(l->s + at, &n)); at += n)
        if (!rn_char_in_name(c, at == from))
            rn_template_fail(l->p, (uint32_t)at, "invalid character in identifier");
    push(l, RN_TPL_LEX_NAME, from)->text = rn_template_intern(l->p, l->s + from, at - from);
    moved(l, at);
}

/* Hexadecimal digits s[at..at+n) as a number; fails when there are not as many. */
static uint32_t hex(struct lexer *l, size_t at, size_t end, size_t n)
{
    uint32_t value = 0;
    size_t i;

    for (i = at; i < at + n; i++) {
        if (i >= end || digit_value(l->s[i]) >= 16)
            rn_template_fail(l->p, (uint32_t)at, "truncated escape");
        value = value << 4 | (uint32_t)digit_value(l->s[i]);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        rn_template_fail(l->p, (uint32_t)at, "an escape that is no character");
    return value;
}

static size_t octal(struct lexer *l, struct rn_sb *sb, size_t at, size_t end)
{
    uint32_t value = 0;
    size_t i;

    for (i = at; i < end && i < at + 3 && l->s[i] >= '0' && l->s[i] <= '7'; i++)
        value = value << 3 | (uint32_t)(l->s[i] - '0');
    rn_sb_char(sb, value, RN_ORIGIN_TRUSTED);
    return i;
}

/* A backslash before a character beyond ASCII: Jinja2 has made the character an escape of its own by then, so that
 * the backslash is escaped and the digits are text. */
static size_t escaped_far(struct lexer *l, struct rn_sb *sb, size_t at)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t n, c = rn_utf8_decode(l->s + at, &n);
    int shift = c < 0x100 ? 4 : c < 0x10000 ? 12 : 28;

    rn_sb_text(sb, c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U");
    for (; shift >= 0; shift -= 4)
        rn_sb_bytes(sb, &digits[c >> shift & 15], 1, RN_ORIGIN_TRUSTED);
    return at + n;
}

/* What stands behind a backslash, at `at`; returns where it ends. */
static size_t unescape(struct lexer *l, struct rn_sb *sb, size_t at, size_t end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = l->s[at];
    const char *simple = memchr(from, c, sizeof from - 1);

    if (simple != NULL) {
        rn_sb_bytes(sb, &to[simple - from], 1, RN_ORIGIN_TRUSTED);
        return at + 1;
    }
    if (c == '\n')
        return at + 1;
    if (c >= '0' && c <= '7')
        return octal(l, sb, at, end);
    if (c == 'x' || c == 'u' || c == 'U') {
        size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;

        rn_sb_char(sb, hex(l, at + 1, end, n), RN_ORIGIN_TRUSTED);
        return at + 1 + n;
    }
    if (c == 'N')
        rn_template_fail(l->p, (uint32_t)at, "\\N escapes are not supported");
    if ((unsigned char)c >= 0x80)
        return escaped_far(l, sb, at);
    rn_sb_text(sb, "\\");
    return at;
}

static void lex_string(struct lexer *l)
{
    size_t from = l->at + 1, at = from, piece;
    char quote = l->s[l->at];
    struct rn_sb sb;

    while (at < l->n && l->s[at] != quote)
        at += l->s[at] == '\\' && at + 1 < l->n ? 2 : 1;
    if (at >= l->n)
        rn_template_fail(l->p, (uint32_t)l->at, "unexpected char '%c': a string that does not end", quote);
    if (memchr(l->s + from, '\\', at - from) == NULL) {
        push(l, RN_TPL_LEX_STRING, l->at)->text = rn_str_borrow(l->p->arena, l->s + from, at - from, RN_ORIGIN_TRUSTED);
        moved(l, at + 1);
        return;
    }
    rn_sb_init(&sb, l->p->arena);
    for (piece = from; piece < at;) {
        const char *slash = memchr(l->s + piece, '\\', at - piece);
        size_t stop = slash == NULL ? at : (size_t)(slash - l->s);

        rn_sb_bytes(&sb, l->s + piece, stop - piece, RN_ORIGIN_TRUSTED);
        piece = slash == NULL ? at : unescape(l, &sb, stop + 1, at);
    }
    push(l, RN_TPL_LEX_STRING, l->at)->text = rn_sb_done(&sb);
    moved(l, at + 1);
}

static void balance(struct lexer *l, enum rn_tpl_lex_kind kind)
{
    char c = l->s[l->at];

    if (kind == RN_TPL_LEX_LPAREN || kind == RN_TPL_LEX_LBRACKET || kind == RN_TPL_LEX_LBRACE) {
        if (l->n_open == sizeof l->open)
            rn_template_fail(l->p, (uint32_t)l->at, "nested deeper than %zu", sizeof l->open);
        l->open[l->n_open++] = kind == RN_TPL_LEX_LPAREN ? ')' : kind == RN_TPL_LEX_LBRACKET ? ']' : '}';
    } else if (kind == RN_TPL_LEX_RPAREN || kind == RN_TPL_LEX_RBRACKET || kind == RN_TPL_LEX_RBRACE) {
        if (l->n_open == 0)
            rn_template_fail(l->p, (uint32_t)l->at, "unexpected '%c'", c);
        if (l->open[--l->n_open] != c)
            rn_template_fail(l->p, (uint32_t)l->at, "unexpected '%c', expected '%c'", c, l->open[l->n_open]);
    }
}

static void lex_operator(struct lexer *l)
{
    static const char *const operators[] = {
        [RN_TPL_LEX_ADD] = "+",       [RN_TPL_LEX_SUB] = "-",      [RN_TPL_LEX_MUL] = "*",    [RN_TPL_LEX_DIV] = "/",
        [RN_TPL_LEX_FLOORDIV] = "//", [RN_TPL_LEX_MOD] = "%",      [RN_TPL_LEX_POW] = "**",   [RN_TPL_LEX_TILDE] = "~",
        [RN_TPL_LEX_LBRACKET] = "[",  [RN_TPL_LEX_RBRACKET] = "]", [RN_TPL_LEX_LPAREN] = "(", [RN_TPL_LEX_RPAREN] = ")",
        [RN_TPL_LEX_LBRACE] = "{",    [RN_TPL_LEX_RBRACE] = "}",   [RN_TPL_LEX_EQ] = "==",    [RN_TPL_LEX_NE] = "!=",
        [RN_TPL_LEX_GT] = ">",        [RN_TPL_LEX_GE] = ">=",      [RN_TPL_LEX_LT] = "<",     [RN_TPL_LEX_LE] = "<=",
        [RN_TPL_LEX_ASSIGN] = "=",    [RN_TPL_LEX_DOT] = ".",      [RN_TPL_LEX_COLON] = ":",  [RN_TPL_LEX_PIPE] = "|",
        [RN_TPL_LEX_COMMA] = ",",     [RN_TPL_LEX_SEMICOLON] = ";"};
    enum rn_tpl_lex_kind best = RN_TPL_LEX_EOF, kind;

    for (kind = RN_TPL_LEX_ADD; kind <= RN_TPL_LEX_SEMICOLON; kind++)
        if (begins(l, l->at, operators[kind]) &&
            (best == RN_TPL_LEX_EOF || strlen(operators[kind]) > strlen(operators[best])))
            best = kind;
    if (best == RN_TPL_LEX_EOF)
        rn_template_fail(l->p, (uint32_t)l->at, "unexpected char '%.*s'",
                         (int)rn_utf8_length((unsigned char)l->s[l->at]), l->s + l->at);
    balance(l, best);
    push(l, best, l->at);
    moved(l, l->at + strlen(operators[best]));
}

/* From behind "{{" or "{%" to behind the end of the tag. */
static void lex_tag(struct lexer *l, bool variable)
{
    size_t end;
    uint32_t n, c;

    l->n_open = 0;
    while (l->at < l->n) {
        end = l->n_open > 0 ? 0 : tag_end(l, l->at, variable ? "}}" : "%}", !variable);
        if (end > 0) {
            push(l, variable ? RN_TPL_LEX_VARIABLE_END : RN_TPL_LEX_BLOCK_END, l->at);
            moved(l, end);
            return;
        }
        c = rn_utf8_decode(l->s + l->at, &n);
        if (rn_char_is_space(c))
            l->at = skip_space(l, l->at);
        else if (c >= '0' && c <= '9')
            lex_number(l);
        else if (is_word(c))
            lex_name(l);
        else if (c == '\'' || c == '"')
            lex_string(l);
        else
            lex_operator(l);
    }
}

/* Behind the two bytes of a tag's begin: the sign, if any. */
static char take_sign(struct lexer *l, size_t at)
{
    char sign = at + 2 < l->n ? l->s[at + 2] : '\0';

    l->at = at + 2;
    if (sign != '-' && sign != '+')
        return '\0';
    l->at++;
    return sign;
}

static void lex_one(struct lexer *l)
{
    size_t from = l->at, at = from, end;
    char sign;

    while (at < l->n && !(l->s[at] == '{' && at + 1 < l->n && strchr("%{#", l->s[at + 1]) != NULL && l->s[at + 1]))
        at++;
    if (at == l->n) {
        push_data(l, from, at, '+', true);
        l->at = at;
        return;
    }
    end = raw_tag(l, at, "raw", false, &sign);
    if (end > 0) {
        push_data(l, from, at, sign, false);
        moved(l, end);
        lex_raw(l, at);
        return;
    }
    sign = take_sign(l, at);
    end = l->at;
    push_data(l, from, at, sign, l->s[at + 1] == '{');
    moved(l, end);
    if (l->s[at + 1] == '#') {
        lex_comment(l, at);
        return;
    }
    push(l, l->s[at + 1] == '{' ? RN_TPL_LEX_VARIABLE_BEGIN : RN_TPL_LEX_BLOCK_BEGIN, at);
    lex_tag(l, l->s[at + 1] == '{');
}

void rn_template_lex(struct rn_tpl_parser *p)
{
    struct lexer l = {.p = p, .s = p->source, .n = p->n, .line_starting = true};

    while (l.at < l.n)
        lex_one(&l);
    push(&l, RN_TPL_LEX_EOF, l.n);
}

const struct rn_str *rn_template_intern(struct rn_tpl_parser *p, const char *bytes, size_t n)
{
    struct rn_str key = {.bytes = bytes, .n = n};
    struct rn_dict_entry *entry = rn_dict_find(&p->scratch, p->names, rn_string_value(&key));
    struct rn_value name;

    if (entry != NULL)
        return entry->key.string;
    name = rn_string_value(rn_str_borrow(p->arena, bytes, n, RN_ORIGIN_TRUSTED));
    rn_dict_set(&p->scratch, p->names, name, name);
    return name.string;
}
