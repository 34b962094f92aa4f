/* Python's format(value, spec), and the numbers of "%d" % x.
 *
 *     spec: [[fill]align][sign][#][0][width][group][.precision][type]
 *
 * A number is sign, prefix ("0x"), whole digits, rest (".5e+10"); padding goes around, or with "=" between the
 * prefix and the digits. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/format.h"
#include "text/template/number.h"

#define PRECISION_MOST 60 /* of floats: as much as RN_TPL_FLOAT_TEXT has room for */

/* ---- Padding ---- */

void rn_tpl_put_padded(struct rn_run *run, struct rn_sb *sb, const struct rn_str *s, const struct rn_tpl_format *f,
                       char default_align)
{
    char align = f->align != '\0' ? f->align : default_align;
    size_t more = f->width > (int64_t)s->chars ? (size_t)f->width - s->chars : 0, left;
    struct rn_sb fill;

    left = align == '>' || align == '=' ? more : align == '^' ? more / 2 : 0;
    rn_sb_init(&fill, &run->arena);
    rn_sb_char(&fill, f->fill, f->fill_origin);
    rn_sb_repeat(sb, rn_sb_done(&fill), left);
    rn_sb_str(sb, s);
    rn_sb_init(&fill, &run->arena);
    rn_sb_char(&fill, f->fill, f->fill_origin);
    rn_sb_repeat(sb, rn_sb_done(&fill), more - left);
}

/* ---- Numbers ---- */

/* Whole digits with separators, and zeros in front up to `width` characters. */
static void put_grouped(struct rn_sb *sb, const char *digits, size_t n, char group, size_t every, int64_t width)
{
    char all[RN_TPL_FLOAT_TEXT * 2];
    size_t at = sizeof all, count = 0, i = n;

    while (i > 0 || ((int64_t)(sizeof all - at) < width && at > 2)) {
        if (group != '\0' && count > 0 && count % every == 0) {
            all[--at] = group;
            if (i == 0 && (int64_t)(sizeof all - at) >= width) {
                all[--at] = '0'; /* no separator stands in front */
                break;
            }
        }
        all[--at] = i > 0 ? digits[--i] : '0';
        count++;
        if (at < 4)
            break;
    }
    rn_sb_bytes(sb, all + at, sizeof all - at, RN_ORIGIN_TRUSTED);
}

/* Digits and rest with what f says around them. */
static void put_number(struct rn_run *run, struct rn_sb *sb, const struct rn_tpl_format *f, bool negative,
                       const char *prefix, const char *digits, size_t n, const char *rest)
{
    char sign = negative ? '-' : f->sign == '+' || f->sign == ' ' ? f->sign : '\0';
    size_t every = f->type == 'x' || f->type == 'X' || f->type == 'o' || f->type == 'b' ? 4 : 3;
    char align = f->align != '\0' ? f->align : '>';
    int64_t inner = 0;
    struct rn_sb head, body;

    rn_sb_init(&head, &run->arena);
    rn_sb_bytes(&head, &sign, sign != '\0', RN_ORIGIN_TRUSTED);
    rn_sb_text(&head, prefix);
    if (align == '=' && f->fill == '0')
        inner = f->width - (int64_t)(head.n + strlen(rest));
    if (inner > RN_TPL_FLOAT_TEXT)
        rn_tpl_fail(run, "a width of more than %d", RN_TPL_FLOAT_TEXT);
    rn_sb_init(&body, &run->arena);
    put_grouped(&body, digits, n, f->group, every, inner);
    rn_sb_text(&body, rest);
    if (align == '=') {
        struct rn_tpl_format pad = *f;
        const struct rn_str *text = rn_sb_done(&body);

        pad.width = f->width - (int64_t)head.n;
        rn_sb_str(sb, rn_sb_done(&head));
        rn_tpl_put_padded(run, sb, text, &pad, '>');
        return;
    }
    rn_sb_str(&head, rn_sb_done(&body));
    rn_tpl_put_padded(run, sb, rn_sb_done(&head), f, '>');
}

void rn_tpl_put_int(struct rn_run *run, struct rn_sb *sb, int64_t value, const struct rn_tpl_format *f)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const char *prefix = "";
    char digits[80];
    size_t at = sizeof digits, least = f->precision > 0 ? (size_t)f->precision : 1;
    unsigned base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : f->type == 'x' || f->type == 'X' ? 16 : 10;

    if (least > 64)
        rn_tpl_fail(run, "a precision of more than 64");
    if (f->alternate)
        prefix = f->type == 'b' ? "0b" : f->type == 'o' ? "0o" : f->type == 'x' ? "0x" : f->type == 'X' ? "0X" : "";
    while (size > 0 || sizeof digits - at < least) {
        digits[--at] = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[size % base];
        size /= base;
    }
    put_number(run, sb, f, value < 0, prefix, digits + at, sizeof digits - at, "");
}

/* Zeros behind the point, and the point, go; what stands behind them (an exponent) moves up. */
static void strip_zeros(char *text)
{
    char *end = text + strcspn(text, "e"), *last = end;

    if (memchr(text, '.', (size_t)(end - text)) == NULL)
        return;
    while (last[-1] == '0')
        last--;
    if (last[-1] == '.')
        last--;
    memmove(last, end, strlen(end) + 1);
}

/* A float without a type: like "g", but it always looks like a float: with a point or an exponent, which comes as soon
 * as the digits would fill the precision. */
static void print_untyped(double size, int precision, bool alternate, char *text)
{
    int exponent;

    if (precision == 0)
        precision = 1;
    rn_tpl_number_print(size, 'e', precision - 1, alternate, text);
    if (isnan(size) || isinf(size))
        return;
    exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < precision - 1)
        rn_tpl_number_print(size, 'f', precision - 1 - exponent, false, text);
    if (!alternate)
        strip_zeros(text);
    if (strchr(text, 'e') == NULL && strchr(text, '.') == NULL)
        strcat(text, ".0");
}

static void print_float(struct rn_run *run, double size, const struct rn_tpl_format *f, char *text)
{
    char style = f->type == '%' ? 'f' : f->type == 'n' ? 'g' : (char)(f->type | 0x20), *exponent;
    int precision = f->precision < 0 ? 6 : (int)f->precision;

    if (f->precision > PRECISION_MOST)
        rn_tpl_fail(run, "a precision of more than %d", PRECISION_MOST);
    if (f->type != '\0') {
        rn_tpl_number_print(size, style, style == 'g' && precision == 0 ? 1 : precision, f->alternate, text);
        return;
    }
    if (f->precision >= 0) {
        print_untyped(size, precision, f->alternate, text);
        return;
    }
    text[rn_tpl_number_repr(size, text)] = '\0';
    exponent = strchr(text, 'e');
    if (f->alternate && exponent != NULL && strchr(text, '.') == NULL) {
        memmove(exponent + 1, exponent, strlen(exponent) + 1);
        *exponent = '.';
    }
}

void rn_tpl_put_float(struct rn_run *run, struct rn_sb *sb, double value, const struct rn_tpl_format *f)
{
    bool upper = f->type == 'E' || f->type == 'F' || f->type == 'G';
    char text[RN_TPL_FLOAT_TEXT + 4], *at;
    struct rn_tpl_format plain = *f;
    size_t whole;

    print_float(run, fabs(f->type == '%' ? value * 100 : value), f, text);
    if (f->type == '%')
        strcat(text, "%");
    for (at = text; upper && *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
    whole = strspn(text, "0123456789");
    if (whole == 0) { /* inf and nan are not grouped, and zeros in front are blanks */
        whole = strlen(text);
        plain.group = '\0';
    }
    plain.type = '\0';
    at = text + whole;
    put_number(run, sb, &plain, signbit(value) && !isnan(value), "", text, whole, at);
}

/* ---- Specs ---- */

static uint32_t char_at(const struct rn_str *s, size_t at, uint32_t *n)
{
    *n = 1;
    return at < s->n ? rn_utf8_decode(s->bytes + at, n) : 0;
}

static bool is_align(uint32_t c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static int64_t parse_number(struct rn_run *run, const struct rn_str *s, size_t *at)
{
    int64_t value = -1;

    for (; *at < s->n && s->bytes[*at] >= '0' && s->bytes[*at] <= '9'; ++*at) {
        value = (value < 0 ? 0 : value) * 10 + (s->bytes[*at] - '0');
        if (value > INT32_MAX)
            rn_tpl_fail(run, "too many decimal digits in format string");
    }
    return value;
}

static void parse_spec(struct rn_run *run, const struct rn_str *s, struct rn_tpl_format *f)
{
    uint32_t n, skip;
    size_t at = 0;
    uint32_t first = char_at(s, 0, &n), second = char_at(s, n, &skip);

    *f = (struct rn_tpl_format){.fill = ' ', .precision = -1, .width = -1};
    if (s->n > n && is_align(second)) {
        f->fill = first;
        f->fill_origin = rn_str_origin_at(s, 0);
        f->align = (char)second;
        at = n + 1;
    } else if (is_align(first)) {
        f->align = (char)first;
        at = 1;
    }
    if (at < s->n && strchr("+- ", s->bytes[at]) != NULL && s->bytes[at] != '\0')
        f->sign = s->bytes[at++];
    if (at < s->n && s->bytes[at] == '#') {
        f->alternate = true;
        at++;
    }
    if (at < s->n && s->bytes[at] == '0') {
        if (f->align == '\0') {
            f->fill = '0';
            f->zero = true;
        } else if (f->fill == ' ' && at > 0 && first != ' ') {
            f->fill = '0';
        }
        at++;
    }
    f->width = parse_number(run, s, &at);
    if (at < s->n && (s->bytes[at] == ',' || s->bytes[at] == '_'))
        f->group = s->bytes[at++];
    if (at < s->n && s->bytes[at] == '.') {
        at++;
        f->precision = parse_number(run, s, &at);
        if (f->precision < 0)
            rn_tpl_fail(run, "format specifier missing precision");
    }
    if (at < s->n)
        f->type = s->bytes[at++];
    if (at < s->n || (f->type == 'n' && f->group != '\0'))
        rn_tpl_fail(run, "invalid format specifier");
}

static void format_string(struct rn_run *run, struct rn_sb *sb, const struct rn_str *s, struct rn_tpl_format *f)
{
    if (f->type != '\0' && f->type != 's')
        rn_tpl_fail(run, "unknown format code '%c' for object of type 'str'", f->type);
    if (f->sign != '\0' || f->alternate || f->group != '\0' || f->align == '=')
        rn_tpl_fail(run, "not allowed in string format specifier");
    if (f->precision >= 0 && f->precision < (int64_t)s->chars)
        s = rn_str_slice(&run->arena, s, 0, rn_str_offset(&run->arena, s, (size_t)f->precision));
    rn_tpl_put_padded(run, sb, s, f, '<');
}

static void format_float(struct rn_run *run, struct rn_sb *sb, double value, struct rn_tpl_format *f)
{
    if (f->type != '\0' && strchr("eEfFgGn%", f->type) == NULL)
        rn_tpl_fail(run, "unknown format code '%c' for object of type 'float'", f->type);
    if (f->zero)
        f->align = '=';
    rn_tpl_put_float(run, sb, value, f);
}

static void format_int(struct rn_run *run, struct rn_sb *sb, int64_t value, struct rn_tpl_format *f)
{
    if (f->type != '\0' && strchr("eEfFgG%", f->type) != NULL) {
        format_float(run, sb, (double)value, f);
        return;
    }
    if (f->precision >= 0)
        rn_tpl_fail(run, "precision not allowed in integer format specifier");
    if (f->zero)
        f->align = '=';
    if (f->group == ',' && (f->type == 'x' || f->type == 'X' || f->type == 'o' || f->type == 'b'))
        rn_tpl_fail(run, "cannot specify ',' with '%c'", f->type);
    if (f->type == 'c') {
        struct rn_sb one;

        if (f->sign != '\0' || f->alternate || f->group != '\0' || value < 0 || value > 0x10ffff ||
            (value >= 0xd800 && value < 0xe000))
            rn_tpl_fail(run, "not allowed with integer format specifier 'c'");
        rn_sb_init(&one, &run->arena);
        rn_sb_char(&one, (uint32_t)value, RN_ORIGIN_DATA); /* any character: not trusted */
        rn_tpl_put_padded(run, sb, rn_sb_done(&one), f, '>');
        return;
    }
    if (f->type != '\0' && strchr("bdoxXn", f->type) == NULL)
        rn_tpl_fail(run, "unknown format code '%c' for object of type 'int'", f->type);
    rn_tpl_put_int(run, sb, value, f);
}

void rn_tpl_format_spec(struct rn_run *run, struct rn_sb *sb, struct rn_value value, const struct rn_str *spec)
{
    struct rn_tpl_format f;

    if (spec->n == 0) {
        rn_tpl_put_value(run, sb, value);
        return;
    }
    parse_spec(run, spec, &f);
    switch (value.kind) {
    case RN_VALUE_STRING:
        format_string(run, sb, value.string, &f);
        break;
    case RN_VALUE_FLOAT:
        format_float(run, sb, value.real, &f);
        break;
    case RN_VALUE_INT:
        format_int(run, sb, value.integer, &f);
        break;
    case RN_VALUE_BOOL:
        format_int(run, sb, value.boolean, &f);
        break;
    default:
        rn_tpl_fail(run, "unsupported format string passed to %s.__format__", rn_tpl_type_name(value));
    }
}
