/* The methods of str. Origins are kept byte by byte. */
#include <string.h>

#include "text/template/run.h"
#include "text/unicode.h"

typedef const struct rn_tpl_call *args_t;

static struct rn_value result(const struct rn_str *s)
{
    return rn_string_value(s);
}

/* Not given, or none. */
static bool is_left_out(struct rn_value value)
{
    return rn_tpl_is_missing(value) || value.kind == RN_VALUE_NONE;
}

static const struct rn_str *text_of(struct rn_run *run, struct rn_value value)
{
    return rn_tpl_want_string(run, value, "the argument");
}

static const struct rn_str *separator_of(struct rn_run *run, struct rn_value value)
{
    const struct rn_str *separator = rn_tpl_want_string(run, value, "separator");

    if (separator->n == 0)
        rn_tpl_fail(run, "empty separator");
    return separator;
}

static int64_t int_or(struct rn_run *run, struct rn_value value, int64_t otherwise)
{
    return rn_tpl_is_missing(value) ? otherwise : rn_tpl_want_int(run, value, "the argument");
}

/* ---- Case ---- */

#define CASE_METHOD(name, to)                                                          \
    static struct rn_value name(struct rn_run *run, struct rn_value self, args_t call) \
    {                                                                                  \
        (void)call;                                                                    \
        return result(rn_str_case(&run->arena, self.string, to));                      \
    }

CASE_METHOD(str_lower, RN_CASE_LOWER)
CASE_METHOD(str_upper, RN_CASE_UPPER)
CASE_METHOD(str_title, RN_CASE_TITLE)
CASE_METHOD(str_capitalize, RN_CASE_CAPITAL)
CASE_METHOD(str_swapcase, RN_CASE_SWAP)
CASE_METHOD(str_casefold, RN_CASE_FOLD)

/* ---- Stripping and splitting ---- */

static struct rn_value strip(struct rn_run *run, struct rn_value self, args_t call, bool left, bool right)
{
    const struct rn_str *set = NULL;

    if (!is_left_out(call->args[0]))
        set = rn_tpl_want_string(run, call->args[0], "strip arg");
    return result(rn_str_strip(&run->arena, self.string, set, left, right));
}

static struct rn_value str_strip(struct rn_run *run, struct rn_value self, args_t call)
{
    return strip(run, self, call, true, true);
}

static struct rn_value str_lstrip(struct rn_run *run, struct rn_value self, args_t call)
{
    return strip(run, self, call, true, false);
}

static struct rn_value str_rstrip(struct rn_run *run, struct rn_value self, args_t call)
{
    return strip(run, self, call, false, true);
}

static void push_slice(struct rn_run *run, struct rn_list *list, const struct rn_str *s, size_t from, size_t to)
{
    rn_list_push(&run->arena, list, result(rn_str_slice(&run->arena, s, from, to)));
}

static bool space_at(const struct rn_str *s, size_t at, uint32_t *n)
{
    return rn_char_is_space(rn_utf8_decode(s->bytes + at, n));
}

static void split_space(struct rn_run *run, struct rn_list *list, const struct rn_str *s, int64_t most)
{
    size_t at = 0, from;
    uint32_t n;

    rn_step(&run->arena, s->n);
    for (;;) {
        while (at < s->n && space_at(s, at, &n))
            at += n;
        if (at == s->n)
            return;
        from = at;
        if (most-- == 0) { /* blanks at the end stay */
            push_slice(run, list, s, from, s->n);
            return;
        }
        while (at < s->n && !space_at(s, at, &n))
            at += n;
        push_slice(run, list, s, from, at);
    }
}

static void split_by(struct rn_run *run, struct rn_list *list, const struct rn_str *s, const struct rn_str *by,
                     int64_t most)
{
    size_t at = 0, found;

    while (most-- != 0 && (found = rn_str_find(&run->arena, s, at, s->n, by)) != RN_NOWHERE) {
        push_slice(run, list, s, at, found);
        at = found + by->n;
    }
    push_slice(run, list, s, at, s->n);
}

static size_t char_before(const struct rn_str *s, size_t at)
{
    do
        at--;
    while (((unsigned char)s->bytes[at] & 0xc0) == 0x80);
    return at;
}

static void rsplit_space(struct rn_run *run, struct rn_list *list, const struct rn_str *s, int64_t most)
{
    size_t at = s->n, to;
    uint32_t n;

    rn_step(&run->arena, s->n);
    for (;;) {
        while (at > 0 && space_at(s, char_before(s, at), &n))
            at = char_before(s, at);
        if (at == 0)
            return;
        to = at;
        if (most-- == 0) {
            push_slice(run, list, s, 0, to);
            return;
        }
        while (at > 0 && !space_at(s, char_before(s, at), &n))
            at = char_before(s, at);
        push_slice(run, list, s, at, to);
    }
}

static void rsplit_by(struct rn_run *run, struct rn_list *list, const struct rn_str *s, const struct rn_str *by,
                      int64_t most)
{
    size_t to = s->n, found;

    while (most-- != 0 && (found = rn_str_rfind(&run->arena, s, 0, to, by)) != RN_NOWHERE) {
        push_slice(run, list, s, found + by->n, to);
        to = found;
    }
    push_slice(run, list, s, 0, to);
}

static void reverse(struct rn_list *list)
{
    size_t i;

    for (i = 0; i < list->n / 2; i++) {
        struct rn_value swap = list->items[i];

        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
}

static struct rn_value split(struct rn_run *run, struct rn_value self, args_t call, bool from_right)
{
    struct rn_list *list = rn_list_new(&run->arena, 4);
    int64_t most = int_or(run, call->args[1], -1);
    const struct rn_str *by;

    if (most < 0)
        most = -1;
    if (is_left_out(call->args[0])) {
        (from_right ? rsplit_space : split_space)(run, list, self.string, most);
    } else {
        by = separator_of(run, call->args[0]);
        (from_right ? rsplit_by : split_by)(run, list, self.string, by, most);
    }
    if (from_right)
        reverse(list);
    return rn_list_value(list);
}

static struct rn_value str_split(struct rn_run *run, struct rn_value self, args_t call)
{
    return split(run, self, call, false);
}

static struct rn_value str_rsplit(struct rn_run *run, struct rn_value self, args_t call)
{
    return split(run, self, call, true);
}

static struct rn_value str_splitlines(struct rn_run *run, struct rn_value self, args_t call)
{
    struct rn_list *list = rn_list_new(&run->arena, 4);
    bool keep = int_or(run, call->args[0], 0) != 0;
    const struct rn_str *s = self.string;
    size_t at = 0, end, next;

    rn_step(&run->arena, s->n);
    for (; at < s->n; at = next) {
        end = rn_str_line_end(s, at, &next);
        push_slice(run, list, s, at, keep ? next : end);
    }
    return rn_list_value(list);
}

static struct rn_value partition(struct rn_run *run, struct rn_value self, args_t call, bool from_right)
{
    const struct rn_str *s = self.string, *by = separator_of(run, call->args[0]);
    struct rn_list *list = rn_list_new(&run->arena, 3);
    size_t found;

    found = (from_right ? rn_str_rfind : rn_str_find)(&run->arena, s, 0, s->n, by);
    if (found == RN_NOWHERE) {
        push_slice(run, list, s, 0, from_right ? 0 : s->n);
        push_slice(run, list, s, 0, 0);
        push_slice(run, list, s, 0, from_right ? s->n : 0);
    } else {
        push_slice(run, list, s, 0, found);
        push_slice(run, list, s, found, found + by->n);
        push_slice(run, list, s, found + by->n, s->n);
    }
    return rn_tuple_value(list);
}

static struct rn_value str_partition(struct rn_run *run, struct rn_value self, args_t call)
{
    return partition(run, self, call, false);
}

static struct rn_value str_rpartition(struct rn_run *run, struct rn_value self, args_t call)
{
    return partition(run, self, call, true);
}

static struct rn_value str_join(struct rn_run *run, struct rn_value self, args_t call)
{
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, call->args[0]);
    struct rn_value item;
    struct rn_sb sb;
    size_t i;

    rn_sb_init(&sb, &run->arena);
    for (i = 0; rn_tpl_iter_next(run, iter, &item); i++) {
        if (i > 0)
            rn_sb_str(&sb, self.string);
        if (self.string->markup)
            rn_sb_str(&sb, rn_tpl_escape(run, item));
        else
            rn_sb_str(&sb, rn_tpl_want_string(run, item, "an item of join"));
    }
    return result(rn_sb_done(&sb));
}

/* ---- Searching ---- */

/* The bytes that the arguments start and end of find and its like allow; false: start lies behind the end. */
static bool window(struct rn_run *run, const struct rn_str *s, const struct rn_value *bounds, size_t *from, size_t *to)
{
    int64_t n = (int64_t)s->chars, at[2] = {0, n};
    int i;

    for (i = 0; i < 2; i++) {
        if (is_left_out(bounds[i]))
            continue;
        at[i] = rn_tpl_want_int(run, bounds[i], "slice index");
        if (at[i] < 0)
            at[i] = at[i] + n < 0 ? 0 : at[i] + n;
    }
    if (at[1] > n)
        at[1] = n;
    if (at[0] > at[1])
        return false;
    *from = rn_str_offset(&run->arena, s, (size_t)at[0]);
    *to = rn_str_offset(&run->arena, s, (size_t)at[1]);
    return true;
}

static int64_t find(struct rn_run *run, struct rn_value self, args_t call, bool from_right)
{
    const struct rn_str *s = self.string, *needle = text_of(run, call->args[0]);
    size_t from, to, found = RN_NOWHERE;

    if (window(run, s, call->args + 1, &from, &to))
        found = (from_right ? rn_str_rfind : rn_str_find)(&run->arena, s, from, to, needle);
    return found == RN_NOWHERE ? -1 : (int64_t)rn_str_chars(&run->arena, s, 0, found);
}

static struct rn_value str_find(struct rn_run *run, struct rn_value self, args_t call)
{
    return rn_int(find(run, self, call, false));
}

static struct rn_value str_rfind(struct rn_run *run, struct rn_value self, args_t call)
{
    return rn_int(find(run, self, call, true));
}

static struct rn_value found(struct rn_run *run, int64_t at)
{
    if (at < 0)
        rn_tpl_fail(run, "substring not found");
    return rn_int(at);
}

static struct rn_value str_index(struct rn_run *run, struct rn_value self, args_t call)
{
    return found(run, find(run, self, call, false));
}

static struct rn_value str_rindex(struct rn_run *run, struct rn_value self, args_t call)
{
    return found(run, find(run, self, call, true));
}

static struct rn_value str_count(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *s = self.string, *needle = text_of(run, call->args[0]);
    size_t from, to, count = 0, at;

    if (!window(run, s, call->args + 1, &from, &to))
        return rn_int(0);
    if (needle->n == 0)
        return rn_int((int64_t)rn_str_chars(&run->arena, s, from, to) + 1);
    while ((at = rn_str_find(&run->arena, s, from, to, needle)) != RN_NOWHERE) {
        count++;
        from = at + needle->n;
    }
    return rn_int((int64_t)count);
}

static bool has_affix(struct rn_run *run, const struct rn_str *s, size_t from, size_t to, struct rn_value affix,
                      bool at_end)
{
    const struct rn_str *a = text_of(run, affix);

    if (a->n > to - from)
        return false;
    rn_step(&run->arena, a->n);
    return a->n == 0 || memcmp(s->bytes + (at_end ? to - a->n : from), a->bytes, a->n) == 0;
}

static struct rn_value affix(struct rn_run *run, struct rn_value self, args_t call, bool at_end)
{
    struct rn_value what = call->args[0];
    size_t from = 0, to = 0, i;
    bool inside = window(run, self.string, call->args + 1, &from, &to);

    if (what.kind != RN_VALUE_TUPLE) {
        text_of(run, what);
        return rn_bool(inside && has_affix(run, self.string, from, to, what, at_end));
    }
    for (i = 0; i < what.list->n; i++) {
        text_of(run, what.list->items[i]);
        if (inside && has_affix(run, self.string, from, to, what.list->items[i], at_end))
            return rn_bool(true);
    }
    return rn_bool(false);
}

static struct rn_value str_startswith(struct rn_run *run, struct rn_value self, args_t call)
{
    return affix(run, self, call, false);
}

static struct rn_value str_endswith(struct rn_run *run, struct rn_value self, args_t call)
{
    return affix(run, self, call, true);
}

static struct rn_value str_removeprefix(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *s = self.string;

    if (!has_affix(run, s, 0, s->n, call->args[0], false))
        return self;
    return result(rn_str_slice(&run->arena, s, call->args[0].string->n, s->n));
}

static struct rn_value str_removesuffix(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *s = self.string;

    if (!has_affix(run, s, 0, s->n, call->args[0], true))
        return self;
    return result(rn_str_slice(&run->arena, s, 0, s->n - call->args[0].string->n));
}

static struct rn_value str_replace(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *old = text_of(run, call->args[0]);
    const struct rn_str *with = text_of(run, call->args[1]);
    int64_t most = int_or(run, call->args[2], -1);

    if (self.string->markup)
        with = rn_tpl_escape(run, rn_string_value(with));
    return result(rn_str_replace(&run->arena, self.string, old, with, most < 0 ? SIZE_MAX : (size_t)most));
}

/* ---- Padding ---- */

static const struct rn_str *fill_char(struct rn_run *run, struct rn_value self, struct rn_value given)
{
    const struct rn_str *fill =
        rn_tpl_is_missing(given) ? rn_str_of(&run->arena, " ") : rn_tpl_want_string(run, given, "the fill character");

    if (self.string->markup)
        fill = rn_tpl_escape(run, rn_string_value(fill));
    if (fill->chars != 1)
        rn_tpl_fail(run, "the fill character must be exactly one character long");
    return fill;
}

static struct rn_value pad(struct rn_run *run, struct rn_value self, size_t left, size_t right,
                           const struct rn_str *fill)
{
    struct rn_sb sb;

    rn_sb_init(&sb, &run->arena);
    rn_sb_repeat(&sb, fill, left);
    rn_sb_str(&sb, self.string);
    rn_sb_repeat(&sb, fill, right);
    return result(rn_sb_done(&sb));
}

/* How many characters are missing to the width that is the first argument. */
static size_t missing(struct rn_run *run, struct rn_value self, args_t call)
{
    int64_t width = rn_tpl_want_int(run, call->args[0], "the width");

    return width > (int64_t)self.string->chars ? (size_t)width - self.string->chars : 0;
}

static struct rn_value str_ljust(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *fill = fill_char(run, self, call->args[1]);

    return pad(run, self, 0, missing(run, self, call), fill);
}

static struct rn_value str_rjust(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *fill = fill_char(run, self, call->args[1]);

    return pad(run, self, missing(run, self, call), 0, fill);
}

static struct rn_value str_center(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *fill = fill_char(run, self, call->args[1]);
    size_t more = missing(run, self, call), width = self.string->chars + more, left;

    left = more / 2 + (more & width & 1);
    return pad(run, self, left, more - left, fill);
}

static struct rn_value str_zfill(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_str *s = self.string;
    struct rn_str zero = {.bytes = "0", .n = 1, .chars = 1};
    size_t sign = s->n > 0 && (s->bytes[0] == '+' || s->bytes[0] == '-');
    struct rn_sb sb;

    rn_sb_init(&sb, &run->arena);
    rn_sb_slice(&sb, s, 0, sign);
    rn_sb_repeat(&sb, &zero, missing(run, self, call));
    rn_sb_slice(&sb, s, sign, s->n);
    return result(rn_sb_done(&sb));
}

static struct rn_value str_expandtabs(struct rn_run *run, struct rn_value self, args_t call)
{
    int64_t size = int_or(run, call->args[0], 8), column = 0;
    const struct rn_str *s = self.string;
    struct rn_str blank = {.bytes = " ", .n = 1, .chars = 1};
    struct rn_sb sb;
    size_t at;
    uint32_t n;

    rn_sb_init(&sb, &run->arena);
    for (at = 0; at < s->n; at += n) {
        n = rn_utf8_length((unsigned char)s->bytes[at]);
        if (s->bytes[at] == '\t') {
            int64_t blanks = size > 0 ? size - column % size : 0;

            rn_sb_repeat(&sb, &blank, (size_t)blanks);
            column += blanks;
            continue;
        }
        rn_sb_slice(&sb, s, at, at + n);
        column = s->bytes[at] == '\n' || s->bytes[at] == '\r' ? 0 : column + 1;
    }
    return result(rn_sb_done(&sb));
}

/* ---- Kinds of characters ---- */

static bool is_alpha(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_LETTER) != 0;
}

static bool is_number(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_NUMBER) != 0;
}

static bool is_decimal(uint32_t c)
{
    return rn_char_class(c) == RN_CHAR_ND;
}

/* Decimal digits, superscripts, subscripts and circled digits: the common ones of Unicode's Numeric_Type=Digit. */
static bool is_digit(uint32_t c)
{
    return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

static bool is_alnum(uint32_t c)
{
    return is_alpha(c) || is_number(c);
}

static bool continues_name(uint32_t c)
{
    return rn_char_in_name(c, false);
}

static bool all(const struct rn_str *s, bool (*is)(uint32_t c))
{
    uint32_t n;
    size_t at;

    for (at = 0; at < s->n; at += n)
        if (!is(rn_utf8_decode(s->bytes + at, &n)))
            return false;
    return s->n > 0;
}

#define KIND_METHOD(name, expression)                                                  \
    static struct rn_value name(struct rn_run *run, struct rn_value self, args_t call) \
    {                                                                                  \
        const struct rn_str *s = self.string;                                          \
                                                                                       \
        (void)call;                                                                    \
        rn_step(&run->arena, s->n);                                                    \
        return rn_bool(expression);                                                    \
    }

/* Cased letters are there, and all are of this case. */
static bool all_cased(const struct rn_str *s, bool (*is)(uint32_t c), bool (*is_not)(uint32_t c))
{
    bool any = false;
    uint32_t n, c;
    size_t at;

    for (at = 0; at < s->n; at += n) {
        c = rn_utf8_decode(s->bytes + at, &n);
        if (is_not(c) || rn_char_is_title(c))
            return false;
        any = any || is(c);
    }
    return any;
}

static bool is_title(const struct rn_str *s)
{
    bool in_word = false, any = false;
    uint32_t n, c;
    size_t at;

    for (at = 0; at < s->n; at += n) {
        bool upper, lower;

        c = rn_utf8_decode(s->bytes + at, &n);
        upper = rn_char_is_upper(c) || rn_char_is_title(c);
        lower = rn_char_is_lower(c);
        if ((upper && in_word) || (lower && !in_word))
            return false;
        in_word = upper || lower;
        any = any || in_word;
    }
    return any;
}

static bool is_printable(const struct rn_str *s)
{
    return s->n == 0 || all(s, rn_char_is_printable);
}

static bool is_identifier(const struct rn_str *s)
{
    uint32_t n;

    return s->n > 0 && rn_char_in_name(rn_utf8_decode(s->bytes, &n), true) && all(s, continues_name);
}

KIND_METHOD(str_isalpha, all(s, is_alpha))
KIND_METHOD(str_isalnum, all(s, is_alnum))
KIND_METHOD(str_isdecimal, all(s, is_decimal))
KIND_METHOD(str_isdigit, all(s, is_digit))
KIND_METHOD(str_isnumeric, all(s, is_number))
KIND_METHOD(str_isspace, all(s, rn_char_is_space))
KIND_METHOD(str_isascii, s->chars == s->n)
KIND_METHOD(str_islower, all_cased(s, rn_char_is_lower, rn_char_is_upper))
KIND_METHOD(str_isupper, all_cased(s, rn_char_is_upper, rn_char_is_lower))
KIND_METHOD(str_istitle, is_title(s))
KIND_METHOD(str_isprintable, is_printable(s))
KIND_METHOD(str_isidentifier, is_identifier(s))

/* ---- Formatting ---- */

static struct rn_value str_format(struct rn_run *run, struct rn_value self, args_t call)
{
    return result(rn_tpl_format_braces(run, self.string, call));
}

static struct rn_value str_format_map(struct rn_run *run, struct rn_value self, args_t call)
{
    const struct rn_dict *dict = call->args[0].dict;
    struct rn_tpl_call named = {0};
    size_t i;

    if (call->args[0].kind != RN_VALUE_DICT)
        rn_tpl_fail(run, "format_map() takes a mapping");
    named.named = rn_arena_take(&run->arena, dict->n, sizeof *named.named);
    for (i = 0; i < dict->n; i++)
        if (rn_tpl_is_string(dict->entries[i].key))
            named.named[named.n_named++] = (struct rn_tpl_named){dict->entries[i].key.string, dict->entries[i].value};
    return result(rn_tpl_format_braces(run, self.string, &named));
}

const struct rn_tpl_builtin *rn_tpl_str_method(const struct rn_str *name)
{
    static const struct rn_tpl_builtin table[] = {
        {"strip", "/chars?", str_strip, RN_TPL_MARKUP_KEEP},
        {"split", "sep? maxsplit?", str_split, RN_TPL_MARKUP_KEEP},
        {"startswith", "/prefix start? end?", str_startswith, 0},
        {"endswith", "/suffix start? end?", str_endswith, 0},
        {"replace", "/old new count?", str_replace, RN_TPL_MARKUP_KEEP},
        {"lstrip", "/chars?", str_lstrip, RN_TPL_MARKUP_KEEP},
        {"rstrip", "/chars?", str_rstrip, RN_TPL_MARKUP_KEEP},
        {"upper", "", str_upper, RN_TPL_MARKUP_KEEP},
        {"lower", "", str_lower, RN_TPL_MARKUP_KEEP},
        {"title", "", str_title, RN_TPL_MARKUP_KEEP},
        {"capitalize", "", str_capitalize, RN_TPL_MARKUP_KEEP},
        {"swapcase", "", str_swapcase, RN_TPL_MARKUP_KEEP},
        {"casefold", "", str_casefold, RN_TPL_MARKUP_KEEP},
        {"join", "/iterable", str_join, RN_TPL_MARKUP_KEEP},
        {"format", "*", str_format, RN_TPL_MARKUP_KEEP},
        {"format_map", "/mapping", str_format_map, RN_TPL_MARKUP_KEEP},
        {"find", "/sub start? end?", str_find, 0},
        {"rfind", "/sub start? end?", str_rfind, 0},
        {"index", "/sub start? end?", str_index, 0},
        {"rindex", "/sub start? end?", str_rindex, 0},
        {"count", "/sub start? end?", str_count, 0},
        {"rsplit", "sep? maxsplit?", str_rsplit, RN_TPL_MARKUP_KEEP},
        {"splitlines", "keepends?", str_splitlines, RN_TPL_MARKUP_KEEP},
        {"partition", "/sep", str_partition, RN_TPL_MARKUP_KEEP},
        {"rpartition", "/sep", str_rpartition, RN_TPL_MARKUP_KEEP},
        {"removeprefix", "/prefix", str_removeprefix, RN_TPL_MARKUP_KEEP},
        {"removesuffix", "/suffix", str_removesuffix, RN_TPL_MARKUP_KEEP},
        {"ljust", "/width fillchar?", str_ljust, RN_TPL_MARKUP_KEEP},
        {"rjust", "/width fillchar?", str_rjust, RN_TPL_MARKUP_KEEP},
        {"center", "/width fillchar?", str_center, RN_TPL_MARKUP_KEEP},
        {"zfill", "/width", str_zfill, RN_TPL_MARKUP_KEEP},
        {"expandtabs", "tabsize?", str_expandtabs, RN_TPL_MARKUP_KEEP},
        {"isalpha", "", str_isalpha, 0},
        {"isalnum", "", str_isalnum, 0},
        {"isdecimal", "", str_isdecimal, 0},
        {"isdigit", "", str_isdigit, 0},
        {"isnumeric", "", str_isnumeric, 0},
        {"isspace", "", str_isspace, 0},
        {"isascii", "", str_isascii, 0},
        {"islower", "", str_islower, 0},
        {"isupper", "", str_isupper, 0},
        {"istitle", "", str_istitle, 0},
        {"isprintable", "", str_isprintable, 0},
        {"isidentifier", "", str_isidentifier, 0},
    };

    return rn_tpl_builtin_find(table, sizeof table / sizeof table[0], name);
}
