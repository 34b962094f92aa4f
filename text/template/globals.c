/* The functions that every template sees: Jinja2's range, dict, namespace, joiner and cycler, and raise_exception and
 * strftime_now, which transformers adds. */
#include <stdio.h>
#include <string.h>

#include "text/template/run.h"

static struct rn_value call_range(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    struct rn_tpl_range_object *range;
    int64_t start = 0, step = 1, stop;
    uint64_t span, stride;

    (void)self;
    stop = rn_tpl_want_int(run, call->args[0], "range's argument");
    if (!rn_tpl_is_missing(call->args[1])) {
        start = stop;
        stop = rn_tpl_want_int(run, call->args[1], "range's argument");
    }
    if (!rn_tpl_is_missing(call->args[2]))
        step = rn_tpl_want_int(run, call->args[2], "range's argument");
    if (step == 0)
        rn_tpl_fail(run, "range() arg 3 must not be zero");
    span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 ? stop <= start : stop >= start)
        span = 0;
    else
        span = (span - 1) / stride + 1;
    if (span > RN_TPL_RANGE_MOST)
        rn_tpl_fail(run, "Range too big. The sandbox blocks ranges larger than %d.", RN_TPL_RANGE_MOST);
    range = rn_tpl_object_new(run, RN_TPL_OBJECT_RANGE, sizeof *range);
    range->start = start;
    range->step = step;
    range->stop = stop;
    range->n = (int64_t)span;
    return rn_tpl_object_value(range);
}

static void merge(struct rn_run *run, struct rn_dict *dict, struct rn_value from)
{
    struct rn_tpl_iter *iter;
    struct rn_value item;
    size_t i;

    if (from.kind == RN_VALUE_DICT) {
        for (i = 0; i < from.dict->n; i++)
            rn_dict_set(&run->arena, dict, from.dict->entries[i].key, from.dict->entries[i].value);
        return;
    }
    if (from.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, from); /* it has a method keys, which raises */
    iter = rn_tpl_iter_of(run, from);
    while (rn_tpl_iter_next(run, iter, &item)) {
        struct rn_list *pair = rn_tpl_list_of(run, item);

        if (pair->n != 2)
            rn_tpl_fail(run, "dictionary update sequence element has length %zu; 2 is required", pair->n);
        rn_dict_set(&run->arena, dict, pair->items[0], pair->items[1]);
    }
}

static struct rn_dict *make_dict(struct rn_run *run, const struct rn_tpl_call *call)
{
    struct rn_dict *dict = rn_dict_new(&run->arena);
    size_t i;

    if (call->n > 1)
        rn_tpl_fail(run, "dict expected at most 1 argument, got %zu", call->n);
    if (call->n == 1)
        merge(run, dict, call->args[0]);
    for (i = 0; i < call->n_named; i++)
        rn_dict_set(&run->arena, dict, rn_string_value(call->named[i].name), call->named[i].value);
    return dict;
}

static struct rn_value call_dict(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    (void)self;
    return rn_dict_value(make_dict(run, call));
}

static struct rn_value call_namespace(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    struct rn_tpl_namespace_object *object = rn_tpl_object_new(run, RN_TPL_OBJECT_NAMESPACE, sizeof *object);

    (void)self;
    object->attrs = make_dict(run, call);
    return rn_tpl_object_value(object);
}

static struct rn_value call_joiner(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    struct rn_tpl_joiner_object *object = rn_tpl_object_new(run, RN_TPL_OBJECT_JOINER, sizeof *object);

    (void)self;
    object->separator =
        rn_tpl_is_missing(call->args[0]) ? rn_string_value(rn_str_of(&run->arena, ", ")) : call->args[0];
    return rn_tpl_object_value(object);
}

static struct rn_value call_cycler(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    struct rn_tpl_cycler_object *object = rn_tpl_object_new(run, RN_TPL_OBJECT_CYCLER, sizeof *object);
    size_t i;

    (void)self;
    if (call->n == 0 || call->n_named > 0)
        rn_tpl_fail(run, "at least one item has to be provided");
    object->items = rn_list_new(&run->arena, call->n);
    for (i = 0; i < call->n; i++)
        rn_list_push(&run->arena, object->items, call->args[i]);
    return rn_tpl_object_value(object);
}

static struct rn_value call_raise(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    const struct rn_str *s = rn_tpl_str_value(run, call->args[0]);
    size_t n = s->n;

    (void)self;
    if (n >= RUNNEL_ERROR_BYTES) /* cut between characters */
        for (n = RUNNEL_ERROR_BYTES - 1; n > 0 && ((unsigned char)s->bytes[n] & 0xc0) == 0x80;)
            n--;
    run->own_sentence = true;
    rn_tpl_fail(run, "%.*s", (int)n, s->bytes);
}

static struct rn_value call_strftime(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call)
{
    (void)self;
    return rn_tpl_strftime(run, run->context->now_s, rn_tpl_want_string(run, call->args[0], "the format"));
}

static const struct rn_tpl_builtin globals[] = {
    {"raise_exception", "message", call_raise, 0},
    {"namespace", "*", call_namespace, 0},
    {"strftime_now", "format", call_strftime, 0},
    {"range", "/start stop? step?", call_range, 0},
    {"dict", "*", call_dict, 0},
    {"joiner", "sep?", call_joiner, 0},
    {"cycler", "*", call_cycler, 0},
};

void rn_tpl_globals_fill(struct rn_run *run)
{
    size_t i;

    for (i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        struct rn_tpl_function_object *function = rn_tpl_object_new(run, RN_TPL_OBJECT_FUNCTION, sizeof *function);

        function->builtin = &globals[i];
        rn_dict_set(&run->arena, run->globals, rn_string_value(rn_str_of(&run->arena, globals[i].name)),
                    rn_tpl_object_value(function));
    }
}

/* ---- strftime ---- */

struct calendar {
    int64_t year;
    int month, day, hour, minute, second; /* month and day from 1 */
    int weekday, yearday;                 /* from 0; Sunday is 0 */
};

/* Days since 1970-01-01 to a date, by counting years of 365 days and their leap days from 0000-03-01. */
static struct calendar calendar_of(int64_t now_s)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t days = now_s / 86400, rest = now_s % 86400, era, of_era, years, of_year;
    struct calendar c;
    bool leap;

    if (rest < 0) {
        rest += 86400;
        days--;
    }
    c.weekday = (int)(((days + 4) % 7 + 7) % 7);
    days += 719468; /* from 0000-03-01 to 1970-01-01 */
    era = (days >= 0 ? days : days - 146096) / 146097;
    of_era = days - era * 146097;
    years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    of_year = of_era - (365 * years + years / 4 - years / 100);
    c.month = (int)((5 * of_year + 2) / 153);
    c.day = (int)(of_year - (153 * c.month + 2) / 5 + 1);
    c.month += c.month < 10 ? 3 : -9;
    c.year = years + era * 400 + (c.month <= 2);
    leap = (c.year % 4 == 0 && c.year % 100 != 0) || c.year % 400 == 0;
    c.yearday = before[c.month - 1] + c.day - 1 + (leap && c.month > 2);
    c.hour = (int)(rest / 3600);
    c.minute = (int)(rest / 60 % 60);
    c.second = (int)(rest % 60);
    return c;
}

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

static void put_name(struct rn_sb *sb, const char *name, bool whole)
{
    rn_sb_bytes(sb, name, whole ? strlen(name) : 3, RN_ORIGIN_TRUSTED);
}

/* A number with leading zeros, or with the flag: '-' none, '_' blanks, '0' zeros. */
static void put_number(struct rn_sb *sb, int64_t value, int width, char pad, char given)
{
    char text[32];

    pad = given != '\0' ? given : pad;
    snprintf(text, sizeof text, pad == '0' ? "%0*lld" : "%*lld", pad == '-' ? 1 : width, (long long)value);
    rn_sb_text(sb, text);
}

static void put_directive(struct rn_run *run, struct rn_sb *sb, const struct calendar *c, int64_t now_s, char letter,
                          char pad);

static void put_many(struct rn_run *run, struct rn_sb *sb, const struct calendar *c, int64_t now_s, const char *format)
{
    for (; *format != '\0'; format++) {
        if (*format >= 'A')
            put_directive(run, sb, c, now_s, *format, '\0');
        else
            rn_sb_bytes(sb, format, 1, RN_ORIGIN_TRUSTED);
    }
}

static bool put_part(struct rn_sb *sb, const struct calendar *c, char letter, char pad)
{
    int hour12 = c->hour % 12 == 0 ? 12 : c->hour % 12;

    switch (letter) {
    case 'Y':
        put_number(sb, c->year, 1, '-', pad);
        return true;
    case 'C':
        put_number(sb, c->year / 100, 2, '0', pad);
        return true;
    case 'y':
        put_number(sb, c->year % 100, 2, '0', pad);
        return true;
    case 'm':
        put_number(sb, c->month, 2, '0', pad);
        return true;
    case 'd':
    case 'e':
        put_number(sb, c->day, 2, letter == 'd' ? '0' : '_', pad);
        return true;
    case 'H':
    case 'k':
        put_number(sb, c->hour, 2, letter == 'H' ? '0' : '_', pad);
        return true;
    case 'I':
    case 'l':
        put_number(sb, hour12, 2, letter == 'I' ? '0' : '_', pad);
        return true;
    case 'M':
        put_number(sb, c->minute, 2, '0', pad);
        return true;
    case 'S':
        put_number(sb, c->second, 2, '0', pad);
        return true;
    case 'j':
        put_number(sb, c->yearday + 1, 3, '0', pad);
        return true;
    case 'u':
        put_number(sb, c->weekday == 0 ? 7 : c->weekday, 1, '0', pad);
        return true;
    case 'w':
        put_number(sb, c->weekday, 1, '0', pad);
        return true;
    case 'U':
        put_number(sb, (c->yearday + 7 - c->weekday) / 7, 2, '0', pad);
        return true;
    case 'W':
        put_number(sb, (c->yearday + 7 - (c->weekday + 6) % 7) / 7, 2, '0', pad);
        return true;
    default:
        return false;
    }
}

static void put_directive(struct rn_run *run, struct rn_sb *sb, const struct calendar *c, int64_t now_s, char letter,
                          char pad)
{
    if (put_part(sb, c, letter, pad))
        return;
    switch (letter) {
    case 'B':
    case 'b':
    case 'h':
        put_name(sb, months[c->month - 1], letter == 'B');
        break;
    case 'A':
    case 'a':
        put_name(sb, weekdays[c->weekday], letter == 'A');
        break;
    case 'p':
    case 'P':
        rn_sb_text(sb, letter == 'p' ? (c->hour < 12 ? "AM" : "PM") : (c->hour < 12 ? "am" : "pm"));
        break;
    case 'D':
    case 'x':
        put_many(run, sb, c, now_s, "m/d/y");
        break;
    case 'F':
        put_many(run, sb, c, now_s, "Y-m-d");
        break;
    case 'R':
        put_many(run, sb, c, now_s, "H:M");
        break;
    case 'T':
    case 'X':
        put_many(run, sb, c, now_s, "H:M:S");
        break;
    case 'r':
        put_many(run, sb, c, now_s, "I:M:S p");
        break;
    case 'c':
        put_many(run, sb, c, now_s, "a b e H:M:S Y");
        break;
    case 's':
        put_number(sb, now_s, 1, '-', pad);
        break;
    case 'f':
        rn_sb_text(sb, "000000");
        break;
    case 'Z': /* the time is naive: it has no zone */
    case 'z':
        break;
    case 'n':
    case 't':
    case '%':
        rn_sb_text(sb, letter == 'n' ? "\n" : letter == 't' ? "\t" : "%");
        break;
    default:
        rn_tpl_fail(run, "strftime: the directive %%%c is not supported", letter);
    }
}

struct rn_value rn_tpl_strftime(struct rn_run *run, int64_t now_s, const struct rn_str *format)
{
    struct calendar c;
    struct rn_sb sb;
    size_t at, from = 0;
    char pad;

    if (now_s < -62135596800 || now_s > 253402300799) /* years 1 to 9999 */
        rn_tpl_fail(run, "the time is out of range");
    c = calendar_of(now_s);
    rn_sb_init(&sb, &run->arena);
    for (at = 0; at < format->n; at++) {
        if (format->bytes[at] != '%' || at + 1 == format->n)
            continue;
        rn_sb_slice(&sb, format, from, at++);
        pad = strchr("-_0", format->bytes[at]) != NULL ? format->bytes[at] : '\0';
        if (pad != '\0' && ++at == format->n)
            rn_tpl_fail(run, "strftime: the format ends within a directive");
        put_directive(run, &sb, &c, now_s, format->bytes[at], pad);
        from = at + 1;
    }
    rn_sb_slice(&sb, format, from, format->n);
    return rn_string_value(rn_sb_done(&sb));
}
