/* The table of filters, and those about numbers and defaults. */
#include "text/template/filters.h"

#include <math.h>
#include <string.h>

#include "text/template/number.h"

#define WHITE " \t\n\r\f\v"

/* ---- Numbers ---- */

/* s without blanks around it and single underscores between digits; false: too long, or an underscore elsewhere. */
static bool clean_number(const struct rn_str *s, char *out, size_t room, size_t *n)
{
    size_t from = 0, to = s->n, i, at = 0;

    while (from < to && s->bytes[from] != '\0' && strchr(WHITE, s->bytes[from]) != NULL)
        from++;
    while (to > from && s->bytes[to - 1] != '\0' && strchr(WHITE, s->bytes[to - 1]) != NULL)
        to--;
    for (i = from; i < to; i++) {
        if (s->bytes[i] == '_') {
            if (i == from || i + 1 == to || s->bytes[i - 1] == '_' || strchr("+-.eE", s->bytes[i - 1]) != NULL ||
                strchr("+-._eE", s->bytes[i + 1]) != NULL)
                return false;
            continue;
        }
        if (at + 1 >= room)
            return false;
        out[at++] = s->bytes[i];
    }
    out[at] = '\0';
    *n = at;
    return at > 0 && memchr(out, '\0', at) == NULL;
}

/* float("..."). */
static bool string_to_float(const struct rn_str *s, double *out)
{
    char text[400];
    const char *digits = text;
    size_t n;

    if (!clean_number(s, text, sizeof text, &n))
        return false;
    digits += *digits == '+' || *digits == '-';
    if (strcasecmp(digits, "inf") == 0 || strcasecmp(digits, "infinity") == 0)
        *out = INFINITY;
    else if (strcasecmp(digits, "nan") == 0)
        *out = NAN;
    else if (strspn(digits, "0123456789.eE+-") != strlen(digits) ||
             !rn_tpl_number_parse_float(digits, strlen(digits), out) || *digits == '+' || *digits == '-')
        return false;
    if (text[0] == '-')
        *out = -*out;
    return true;
}

/* int("...", base). */
static bool string_to_int(struct rn_run *run, const struct rn_str *s, int64_t base, int64_t *out)
{
    char text[400], *digits = text;
    int64_t prefix = 0;
    size_t n;

    if (base != 0 && (base < 2 || base > 36))
        return false;
    if (!clean_number(s, text, sizeof text, &n))
        return false;
    digits += *digits == '+' || *digits == '-';
    if (digits[0] == '0' && digits[1] != '\0')
        prefix = strchr("bB", digits[1]) ? 2 : strchr("oO", digits[1]) ? 8 : strchr("xX", digits[1]) ? 16 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
        digits += 2;
        base = prefix;
    } else if (base == 0) {
        if (digits[0] == '0' && strspn(digits, "0") != strlen(digits))
            return false;
        base = 10;
    }
    if (!rn_tpl_number_parse_int(digits, strlen(digits), (int)base, out)) {
        if (base == 10 && digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits))
            rn_tpl_fail(run, "an integer beyond 64 bits");
        return false;
    }
    if (text[0] == '-')
        *out = -*out;
    return true;
}

static struct rn_value truncated(struct rn_run *run, double real)
{
    if (!(fabs(real) < 0x1p63))
        rn_tpl_fail(run, "an integer beyond 64 bits");
    return rn_int((int64_t)real);
}

RN_TPL_FILTER(int)
{
    struct rn_value otherwise = rn_tpl_is_missing(call->args[0]) ? rn_int(0) : call->args[0];
    struct rn_value given = rn_tpl_is_missing(call->args[1]) ? rn_int(10) : call->args[1];
    int64_t base = given.kind == RN_VALUE_INT ? given.integer : -1, integer; /* a bad base converts nothing */
    double real;

    switch (self.kind) {
    case RN_VALUE_UNDEFINED:
        rn_tpl_fail_undefined(run, self);
    case RN_VALUE_INT:
    case RN_VALUE_BOOL:
        return rn_int(rn_tpl_want_int(run, self, "the value"));
    case RN_VALUE_FLOAT:
        return isnan(self.real) ? otherwise : truncated(run, self.real);
    case RN_VALUE_STRING:
        rn_step(&run->arena, self.string->n);
        if (string_to_int(run, self.string, base, &integer))
            return rn_int(integer);
        if (!string_to_float(self.string, &real) || isnan(real) || isinf(real))
            return otherwise;
        return truncated(run, real);
    default:
        return otherwise;
    }
}

RN_TPL_FILTER(float)
{
    double real;

    switch (self.kind) {
    case RN_VALUE_UNDEFINED:
        rn_tpl_fail_undefined(run, self);
    case RN_VALUE_INT:
    case RN_VALUE_BOOL:
        return rn_float((double)rn_tpl_want_int(run, self, "the value"));
    case RN_VALUE_FLOAT:
        return self;
    case RN_VALUE_STRING:
        rn_step(&run->arena, self.string->n);
        if (string_to_float(self.string, &real))
            return rn_float(real);
        break;
    default:
        break;
    }
    return rn_tpl_is_missing(call->args[0]) ? rn_float(0) : call->args[0];
}

RN_TPL_FILTER(abs)
{
    (void)call;
    if (self.kind == RN_VALUE_FLOAT)
        return rn_float(fabs(self.real));
    if (rn_tpl_want_int(run, self, "the value of abs") < 0)
        return rn_tpl_negate(run, self, true);
    return rn_int(rn_tpl_want_int(run, self, "the value of abs"));
}

/* An integer to tens, hundreds ... (places < 0), half to even. */
static int64_t round_int(struct rn_run *run, int64_t value, int64_t places)
{
    int64_t unit = 1, rest, half;

    for (; places < 0; places++)
        if (__builtin_mul_overflow(unit, 10, &unit))
            return 0;
    rest = value % unit;
    value -= rest;
    half = unit / 2;
    if (rest > half || (rest == half && unit > 1 && (value / unit) % 2 != 0)) {
        if (__builtin_add_overflow(value, unit, &value))
            rn_tpl_fail(run, "an integer beyond 64 bits");
    } else if (rest < -half || (rest == -half && unit > 1 && (value / unit) % 2 != 0)) {
        if (__builtin_sub_overflow(value, unit, &value))
            rn_tpl_fail(run, "an integer beyond 64 bits");
    }
    return value;
}

static double round_float(double value, int64_t places)
{
    char text[RN_TPL_FLOAT_TEXT];
    double result = value, unit;
    size_t n;

    if (isnan(value) || isinf(value) || places > 22)
        return value;
    if (places < 0) {
        unit = pow(10, (double)-places);
        return rint(value / unit) * unit;
    }
    n = rn_tpl_number_print(value, 'f', (int)places, false, text);
    rn_tpl_number_parse_float(text + (text[0] == '-'), n - (text[0] == '-'), &result);
    return text[0] == '-' ? -result : result;
}

RN_TPL_FILTER(round)
{
    bool to_int = call->args[0].kind == RN_VALUE_NONE; /* round(x, None) is round(x) */
    int64_t places = rn_tpl_is_missing(call->args[0]) || to_int ? 0 : rn_tpl_want_int(run, call->args[0], "precision");
    struct rn_value method = call->args[1], scaled, unit;

    if (rn_tpl_is_missing(method) || rn_value_is(method, "common")) {
        if (self.kind == RN_VALUE_FLOAT && to_int)
            return truncated(run, rint(self.real));
        if (self.kind == RN_VALUE_FLOAT)
            return rn_float(round_float(self.real, places));
        return rn_int(round_int(run, rn_tpl_want_int(run, self, "the value of round"), places));
    }
    if (!rn_value_is(method, "ceil") && !rn_value_is(method, "floor"))
        rn_tpl_fail(run, "method must be common, ceil or floor");
    if (to_int)
        rn_tpl_fail(run, "precision must be an integer");
    unit = rn_tpl_binary(run, RN_TPL_OP_POW, rn_int(10), rn_int(places));
    scaled = rn_tpl_binary(run, RN_TPL_OP_MUL, self, unit);
    if (scaled.kind == RN_VALUE_FLOAT) {
        double whole = rn_value_is(method, "ceil") ? ceil(scaled.real) : floor(scaled.real);

        if (!isfinite(whole))
            rn_tpl_fail(run, "an infinite value can not be rounded");
        scaled = rn_float(whole);
    }
    return rn_tpl_binary(run, RN_TPL_OP_DIV, scaled, unit);
}

/* ---- Defaults and attributes ---- */

RN_TPL_FILTER(default)
{
    bool boolean = !rn_tpl_is_missing(call->args[1]) && rn_tpl_truth(run, call->args[1]);

    if (self.kind != RN_VALUE_UNDEFINED && !(boolean && !rn_tpl_truth(run, self)))
        return self;
    return rn_tpl_is_missing(call->args[0]) ? rn_string_value(rn_str_of(&run->arena, "")) : call->args[0];
}

RN_TPL_FILTER(attr)
{
    struct rn_value value = rn_undefined();
    const struct rn_str *name = rn_tpl_want_string(run, call->args[0], "the attribute's name");

    return rn_tpl_own_attribute(run, self, name, &value) ? value : rn_undefined();
}

/* ---- The table ---- */

static const struct rn_tpl_builtin filters[] = {
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", rn_tpl_filter_tojson, 0},
    {"trim", "chars?", rn_tpl_filter_trim, 0},
    {"length", "", rn_tpl_filter_length, 0},
    {"default", "default_value? boolean?", rn_tpl_filter_default, 0},
    {"string", "", rn_tpl_filter_string, 0},
    {"join", "d? attribute?", rn_tpl_filter_join, 0},
    {"upper", "", rn_tpl_filter_upper, 0},
    {"lower", "", rn_tpl_filter_lower, 0},
    {"selectattr", "*", rn_tpl_filter_selectattr, 0},
    {"rejectattr", "*", rn_tpl_filter_rejectattr, 0},
    {"select", "*", rn_tpl_filter_select, 0},
    {"reject", "*", rn_tpl_filter_reject, 0},
    {"map", "*", rn_tpl_filter_map, 0},
    {"list", "", rn_tpl_filter_list, 0},
    {"first", "", rn_tpl_filter_first, 0},
    {"last", "", rn_tpl_filter_last, 0},
    {"items", "", rn_tpl_filter_items, 0},
    {"dictsort", "case_sensitive? by? reverse?", rn_tpl_filter_dictsort, 0},
    {"replace", "old new count?", rn_tpl_filter_replace, 0},
    {"indent", "width? first? blank?", rn_tpl_filter_indent, 0},
    {"safe", "", rn_tpl_filter_safe, 0},
    {"int", "default? base?", rn_tpl_filter_int, 0},
    {"float", "default?", rn_tpl_filter_float, 0},
    {"round", "precision? method?", rn_tpl_filter_round, 0},
    {"abs", "", rn_tpl_filter_abs, 0},
    {"attr", "name", rn_tpl_filter_attr, 0},
    {"batch", "linecount fill_with?", rn_tpl_filter_batch, 0},
    {"capitalize", "", rn_tpl_filter_capitalize, 0},
    {"center", "width?", rn_tpl_filter_center, 0},
    {"count", "", rn_tpl_filter_length, 0},
    {"d", "default_value? boolean?", rn_tpl_filter_default, 0},
    {"e", "", rn_tpl_filter_escape, 0},
    {"escape", "", rn_tpl_filter_escape, 0},
    {"forceescape", "", rn_tpl_filter_forceescape, 0},
    {"format", "*", rn_tpl_filter_format, 0},
    {"groupby", "attribute default? case_sensitive?", rn_tpl_filter_groupby, 0},
    {"max", "case_sensitive? attribute?", rn_tpl_filter_max, 0},
    {"min", "case_sensitive? attribute?", rn_tpl_filter_min, 0},
    {"reverse", "", rn_tpl_filter_reverse, 0},
    {"slice", "slices fill_with?", rn_tpl_filter_slice, 0},
    {"sort", "reverse? case_sensitive? attribute?", rn_tpl_filter_sort, 0},
    {"sum", "attribute? start?", rn_tpl_filter_sum, 0},
    {"title", "", rn_tpl_filter_title, 0},
    {"truncate", "length? killwords? end? leeway?", rn_tpl_filter_truncate, 0},
    {"unique", "case_sensitive? attribute?", rn_tpl_filter_unique, 0},
    {"urlencode", "", rn_tpl_filter_urlencode, 0},
    {"wordcount", "", rn_tpl_filter_wordcount, 0},
    {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", rn_tpl_filter_wordwrap, 0},
    {"xmlattr", "autospace?", rn_tpl_filter_xmlattr, 0},
};

const struct rn_tpl_builtin *rn_tpl_filter_find(const struct rn_str *name)
{
    return rn_tpl_builtin_find(filters, sizeof filters / sizeof filters[0], name);
}
