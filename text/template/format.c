/* "format" % args and "format".format(args). Text of the format keeps its origin, and so does every string that is
 * put in. */
#include <math.h>
#include <string.h>

#include "text/template/format.h"

/* ---- % ---- */

struct percent {
    struct rn_run *run;
    const struct rn_str *format;
    size_t at;
    struct rn_value args;
    size_t next; /* of a tuple; or 1 when the one argument is used */
    struct rn_sb sb;
};

static bool is_mapping(struct rn_value value)
{
    return value.kind == RN_VALUE_DICT || value.kind == RN_VALUE_LIST || value.kind == RN_VALUE_UNDEFINED ||
           rn_tpl_is_object(value, RN_TPL_OBJECT_RANGE);
}

static struct rn_value next_arg(struct percent *p)
{
    if (p->args.kind == RN_VALUE_TUPLE) {
        if (p->next >= p->args.list->n)
            rn_tpl_fail(p->run, "not enough arguments for format string");
        return p->args.list->items[p->next++];
    }
    if (p->next++ > 0)
        rn_tpl_fail(p->run, "not enough arguments for format string");
    return p->args;
}

static char peek(struct percent *p)
{
    if (p->at >= p->format->n)
        rn_tpl_fail(p->run, "incomplete format");
    return p->format->bytes[p->at];
}

/* "(name)": the argument of that name, for this field. */
static struct rn_value named_arg(struct percent *p)
{
    size_t from = ++p->at, depth = 1;

    for (; depth > 0; p->at++)
        depth += (size_t)(peek(p) == '(') - (size_t)(peek(p) == ')');
    if (p->args.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(p->run, p->args);
    if (p->args.kind != RN_VALUE_DICT)
        rn_tpl_fail(p->run, "format requires a mapping");
    {
        const struct rn_str *name = rn_str_slice(&p->run->arena, p->format, from, p->at - 1);
        const struct rn_dict_entry *entry = rn_dict_find(&p->run->arena, p->args.dict, rn_string_value(name));

        if (entry == NULL)
            rn_tpl_fail(p->run, "the key of a format is not in the mapping");
        return entry->value;
    }
}

static int64_t star_or_number(struct percent *p, bool named)
{
    int64_t value = 0;

    if (peek(p) == '*') {
        p->at++;
        if (named)
            rn_tpl_fail(p->run, "* wants int");
        return rn_tpl_want_int(p->run, next_arg(p), "*");
    }
    while (peek(p) >= '0' && peek(p) <= '9') {
        value = value * 10 + (peek(p) - '0');
        p->at++;
        if (value > INT32_MAX)
            rn_tpl_fail(p->run, "width too big");
    }
    return value;
}

static void parse_flags(struct percent *p, struct rn_tpl_format *f)
{
    for (;; p->at++) {
        switch (peek(p)) {
        case '-':
            f->align = '<';
            break;
        case '+':
            f->sign = '+';
            break;
        case ' ':
            if (f->sign == '\0')
                f->sign = ' ';
            break;
        case '#':
            f->alternate = true;
            break;
        case '0':
            f->zero = true;
            break;
        default:
            return;
        }
    }
}

static int64_t to_int(struct percent *p, struct rn_value value, bool truncate)
{
    if (value.kind == RN_VALUE_FLOAT && truncate) {
        if (!(fabs(value.real) < 0x1p63))
            rn_tpl_fail(p->run, "an integer beyond 64 bits");
        return (int64_t)value.real;
    }
    return rn_tpl_want_int(p->run, value, "the argument of a number format");
}

static double to_float(struct percent *p, struct rn_value value)
{
    if (value.kind == RN_VALUE_FLOAT)
        return value.real;
    return (double)rn_tpl_want_int(p->run, value, "the argument of a float format");
}

static const struct rn_str *escape_ascii(struct rn_run *run, const struct rn_str *s)
{
    enum rn_origin origin = rn_str_any_data(s) ? RN_ORIGIN_DATA : RN_ORIGIN_TRUSTED;
    static const char hex[] = "0123456789abcdef";
    struct rn_sb sb;
    uint32_t n, c;
    size_t at;
    int shift;

    rn_sb_init(&sb, &run->arena);
    for (at = 0; at < s->n; at += n) {
        c = rn_utf8_decode(s->bytes + at, &n);
        if (c < 0x80) {
            rn_sb_bytes(&sb, s->bytes + at, 1, origin);
            continue;
        }
        rn_sb_bytes(&sb, c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U", 2, origin);
        for (shift = c < 0x100 ? 4 : c < 0x10000 ? 12 : 28; shift >= 0; shift -= 4)
            rn_sb_bytes(&sb, &hex[c >> shift & 15], 1, origin);
    }
    return rn_sb_done(&sb);
}

/* str, repr or ascii of a value by its letter. */
static const struct rn_str *text_of(struct rn_run *run, struct rn_value value, char letter, bool markup)
{
    const struct rn_str *s = letter == 's' ? rn_tpl_str_value(run, value) : rn_tpl_repr_value(run, value);

    if (letter == 'a')
        s = escape_ascii(run, s);
    return markup ? rn_tpl_escape(run, letter == 's' ? value : rn_string_value(s)) : s;
}

static void put_text(struct percent *p, struct rn_value value, const struct rn_tpl_format *f)
{
    const struct rn_str *s = text_of(p->run, value, f->type, p->format->markup);

    if (f->precision >= 0 && f->precision < (int64_t)s->chars)
        s = rn_str_slice(&p->run->arena, s, 0, rn_str_offset(&p->run->arena, s, (size_t)f->precision));
    rn_tpl_put_padded(p->run, &p->sb, s, f, '>');
}

static void put_char(struct percent *p, struct rn_value value, const struct rn_tpl_format *f)
{
    struct rn_sb one;
    int64_t c;

    if (rn_tpl_is_string(value)) {
        if (value.string->chars != 1)
            rn_tpl_fail(p->run, "%%c requires int or char");
        rn_tpl_put_padded(p->run, &p->sb, value.string, f, '>');
        return;
    }
    c = rn_tpl_want_int(p->run, value, "%c");
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        rn_tpl_fail(p->run, "%%c arg not a character");
    rn_sb_init(&one, &p->run->arena);
    rn_sb_char(&one, (uint32_t)c, RN_ORIGIN_DATA); /* any character: not trusted */
    rn_tpl_put_padded(p->run, &p->sb, rn_sb_done(&one), f, '>');
}

static void put_field(struct percent *p, struct rn_value value, struct rn_tpl_format *f)
{
    if (strchr("sra", f->type) != NULL) {
        put_text(p, value, f);
        return;
    }
    if (f->type == 'c') {
        put_char(p, value, f);
        return;
    }
    if (f->zero && f->align == '\0') {
        f->align = '=';
        f->fill = '0';
    }
    if (strchr("diuoxX", f->type) != NULL) {
        bool decimal = strchr("diu", f->type) != NULL;

        f->type = decimal ? 'd' : f->type;
        rn_tpl_put_int(p->run, &p->sb, to_int(p, value, decimal), f);
    } else if (strchr("eEfFgG", f->type) != NULL) {
        if (f->precision < 0)
            f->precision = 6;
        rn_tpl_put_float(p->run, &p->sb, to_float(p, value), f);
    } else {
        rn_tpl_fail(p->run, "unsupported format character '%c'", f->type);
    }
}

static void percent_field(struct percent *p)
{
    struct rn_tpl_format f = {.fill = ' ', .precision = -1};
    struct rn_value value = rn_none();
    bool named = peek(p) == '(';

    if (peek(p) == '%') {
        rn_sb_slice(&p->sb, p->format, p->at, p->at + 1);
        p->at++;
        return;
    }
    if (named)
        value = named_arg(p);
    parse_flags(p, &f);
    f.width = star_or_number(p, named);
    if (f.width < 0) {
        f.align = '<';
        f.width = -f.width;
    }
    if (peek(p) == '.') {
        p->at++;
        f.precision = star_or_number(p, named);
        if (f.precision < 0)
            f.precision = 0;
    }
    while (peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L')
        p->at++;
    f.type = peek(p);
    p->at++;
    if (f.type == '\0')
        rn_tpl_fail(p->run, "unsupported format character");
    put_field(p, named ? value : next_arg(p), &f);
}

const struct rn_str *rn_tpl_format_percent(struct rn_run *run, const struct rn_str *format, struct rn_value args)
{
    struct percent p = {.run = run, .format = format, .args = args};
    size_t from = 0;

    rn_sb_init(&p.sb, &run->arena);
    while (from < format->n) {
        const char *sign = memchr(format->bytes + from, '%', format->n - from);

        p.at = sign == NULL ? format->n : (size_t)(sign - format->bytes);
        rn_sb_slice(&p.sb, format, from, p.at);
        if (sign == NULL)
            break;
        p.at++;
        percent_field(&p);
        from = p.at;
    }
    if (args.kind == RN_VALUE_TUPLE ? p.next < args.list->n : p.next == 0 && !is_mapping(args))
        rn_tpl_fail(run, "not all arguments converted during string formatting");
    return rn_str_marked(&run->arena, rn_sb_done(&p.sb), format->markup);
}

/* ---- {} ---- */

struct braces {
    struct rn_run *run;
    const struct rn_str *format;
    const struct rn_tpl_call *call;
    int64_t automatic; /* the next number of {}; -1: numbers are written */
    bool numbered;
};

static void put_braces(struct braces *b, struct rn_sb *sb, size_t from, size_t to, int levels);

/* The argument of a field name's first part. */
static struct rn_value first_value(struct braces *b, const struct rn_str *name)
{
    int64_t index = 0;
    size_t i;

    for (i = 0; i < name->n && name->bytes[i] >= '0' && name->bytes[i] <= '9' && index < INT32_MAX; i++)
        index = index * 10 + (name->bytes[i] - '0');
    if (name->n == 0) {
        if (b->automatic < 0)
            rn_tpl_fail(b->run, "cannot switch from manual field specification to automatic field numbering");
        index = b->automatic++;
        b->numbered = true;
    } else if (i == name->n) {
        if (b->numbered)
            rn_tpl_fail(b->run, "cannot switch from automatic field numbering to manual field specification");
        b->automatic = -1;
    } else {
        for (i = 0; i < b->call->n_named; i++)
            if (rn_str_equal(b->call->named[i].name, name))
                return b->call->named[i].value;
        rn_tpl_fail(b->run, "the name of a field is not among the arguments");
    }
    if ((uint64_t)index >= b->call->n)
        rn_tpl_fail(b->run, "Replacement index %lld out of range", (long long)index);
    return b->call->args[index];
}

static struct rn_value item_key(struct rn_run *run, const struct rn_str *key)
{
    int64_t number = 0;
    size_t i;

    for (i = 0; i < key->n && key->bytes[i] >= '0' && key->bytes[i] <= '9'; i++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, key->bytes[i] - '0', &number))
            rn_tpl_fail(run, "too many decimal digits in format string");
    return key->n > 0 && i == key->n ? rn_int(number) : rn_string_value(key);
}

/* The value of "name.attr[item]" in bytes [from, to). */
static struct rn_value field_value(struct braces *b, size_t from, size_t to)
{
    const struct rn_str *f = b->format;
    struct rn_arena *arena = &b->run->arena;
    struct rn_value value;
    size_t at = from, end;

    while (at < to && f->bytes[at] != '.' && f->bytes[at] != '[')
        at++;
    value = first_value(b, rn_str_slice(arena, f, from, at));
    while (at < to) {
        bool attribute = f->bytes[at] == '.';

        for (end = ++at; end < to && (attribute ? f->bytes[end] != '.' && f->bytes[end] != '[' : f->bytes[end] != ']');)
            end++;
        if (end == at || (!attribute && end == to))
            rn_tpl_fail(b->run, "empty attribute or missing ']' in format string");
        if (attribute)
            value = rn_tpl_get_attribute(b->run, value, rn_str_slice(arena, f, at, end), NULL);
        else
            value = rn_tpl_get_item(b->run, value, item_key(b->run, rn_str_slice(arena, f, at, end)));
        at = end + !attribute;
        if (at < to && f->bytes[at] != '.' && f->bytes[at] != '[')
            rn_tpl_fail(b->run, "only '.' or '[' may follow ']' in format field specifier");
    }
    return value;
}

/* One field, bytes [from, to) without its braces. */
static void put_brace_field(struct braces *b, struct rn_sb *sb, size_t from, size_t to, int levels)
{
    const struct rn_str *f = b->format, *text;
    size_t name_end = from, brackets = 0;
    struct rn_value value;
    struct rn_sb spec, out;
    char conversion = '\0';

    while (name_end < to && (brackets > 0 || (f->bytes[name_end] != '!' && f->bytes[name_end] != ':'))) {
        if (f->bytes[name_end] == '{')
            rn_tpl_fail(b->run, "unexpected '{' in field name");
        brackets = f->bytes[name_end] == '[' ? 1 : f->bytes[name_end] == ']' ? 0 : brackets;
        name_end++;
    }
    value = field_value(b, from, name_end);
    rn_sb_init(&spec, &b->run->arena);
    if (name_end < to && f->bytes[name_end] == '!') {
        conversion = name_end + 1 < to ? f->bytes[name_end + 1] : '\0';
        name_end += 2;
        if (conversion == '\0' || strchr("sra", conversion) == NULL || (name_end < to && f->bytes[name_end] != ':'))
            rn_tpl_fail(b->run, "bad conversion in format string");
        value = rn_string_value(text_of(b->run, value, conversion, false));
    }
    if (name_end < to)
        put_braces(b, &spec, name_end + 1, to, levels - 1);
    rn_sb_init(&out, &b->run->arena);
    text = rn_sb_done(&spec);
    if (f->markup && rn_tpl_is_string(value) && value.string->markup && text->n > 0)
        rn_tpl_fail(b->run, "unsupported format specification for Markup");
    rn_tpl_format_spec(b->run, &out, value, text);
    text = rn_sb_done(&out);
    if (f->markup && !(rn_tpl_is_string(value) && value.string->markup))
        text = rn_tpl_escape(b->run, rn_string_value(text));
    rn_sb_str(sb, text);
}

/* The end of a field that begins behind its "{": the place of the "}". */
static size_t field_end(struct braces *b, size_t from, size_t to)
{
    size_t depth = 1, at;

    for (at = from; at < to; at++) {
        if (b->format->bytes[at] == '{')
            depth++;
        if (b->format->bytes[at] == '}' && --depth == 0)
            return at;
    }
    rn_tpl_fail(b->run, "expected '}' before end of string");
}

static void put_braces(struct braces *b, struct rn_sb *sb, size_t from, size_t to, int levels)
{
    const struct rn_str *f = b->format;
    size_t at, end;

    if (levels < 0)
        rn_tpl_fail(b->run, "max string recursion exceeded");
    for (at = from; at < to; at++) {
        char c = f->bytes[at];

        if (c != '{' && c != '}') {
            rn_sb_slice(sb, f, at, at + 1);
            continue;
        }
        if (at + 1 < to && f->bytes[at + 1] == c) {
            rn_sb_slice(sb, f, at, at + 1);
            at++;
            continue;
        }
        if (c == '}')
            rn_tpl_fail(b->run, "single '}' encountered in format string");
        end = field_end(b, at + 1, to);
        put_brace_field(b, sb, at + 1, end, levels);
        at = end;
    }
}

const struct rn_str *rn_tpl_format_braces(struct rn_run *run, const struct rn_str *format,
                                          const struct rn_tpl_call *call)
{
    struct braces b = {run, format, call, 0, false};
    struct rn_sb sb;

    rn_sb_init(&sb, &run->arena);
    put_braces(&b, &sb, 0, format->n, 1);
    return rn_sb_done(&sb);
}
