/* Filters that make text. Origins are kept byte by byte, except where the text is made anew (tojson, urlencode). */
#include "text/template/filters.h"

#include <string.h>

#include "text/unicode.h"

/* soft_str: a string stays what it is, Markup too. */
static struct rn_value as_string(struct rn_run *run, struct rn_value value)
{
    return rn_tpl_is_string(value) ? value : rn_string_value(rn_tpl_str_value(run, value));
}

struct rn_value rn_tpl_call_str_method(struct rn_run *run, struct rn_value self, const char *name,
                                       const struct rn_value *args, size_t n)
{
    const struct rn_str method = {.bytes = name, .n = strlen(name)};
    struct rn_tpl_call call = {.n = n};

    call.args = rn_arena_take(&run->arena, n, sizeof *args);
    if (n > 0)
        memcpy(call.args, args, n * sizeof *args);
    return rn_tpl_builtin_call(run, rn_tpl_str_method(&method), as_string(run, self), &call);
}

#define METHOD_FILTER(name)                                       \
    RN_TPL_FILTER(name)                                           \
    {                                                             \
        (void)call;                                               \
        return rn_tpl_call_str_method(run, self, #name, NULL, 0); \
    }

METHOD_FILTER(upper)
METHOD_FILTER(lower)
METHOD_FILTER(capitalize)

RN_TPL_FILTER(trim)
{
    return rn_tpl_call_str_method(run, self, "strip", call->args, 1);
}

RN_TPL_FILTER(center)
{
    struct rn_value width = rn_tpl_is_missing(call->args[0]) ? rn_int(80) : call->args[0];

    return rn_tpl_call_str_method(run, self, "center", &width, 1);
}

RN_TPL_FILTER(string)
{
    (void)call;
    return as_string(run, self);
}

RN_TPL_FILTER(safe)
{
    (void)call;
    return rn_string_value(rn_str_marked(&run->arena, rn_tpl_str_value(run, self), true));
}

RN_TPL_FILTER(escape)
{
    (void)call;
    return rn_string_value(rn_tpl_escape(run, self));
}

RN_TPL_FILTER(forceescape)
{
    const struct rn_str *s = rn_str_marked(&run->arena, rn_tpl_str_value(run, self), false);

    (void)call;
    return rn_string_value(rn_tpl_escape(run, rn_string_value(s)));
}

RN_TPL_FILTER(replace)
{
    const struct rn_str *s = rn_tpl_str_value(run, self);
    const struct rn_str *old = rn_tpl_str_value(run, call->args[0]), *with = rn_tpl_str_value(run, call->args[1]);
    struct rn_value count = call->args[2];
    int64_t most = rn_tpl_is_missing(count) || count.kind == RN_VALUE_NONE ? -1 : rn_tpl_want_int(run, count, "count");

    s = rn_str_replace(&run->arena, s, old, with, most < 0 ? SIZE_MAX : (size_t)most);
    return rn_string_value(rn_str_marked(&run->arena, s, false));
}

RN_TPL_FILTER(join)
{
    bool by_attribute = !rn_tpl_is_missing(call->args[1]) && call->args[1].kind != RN_VALUE_NONE;
    struct rn_list *path = by_attribute ? rn_tpl_attribute_path(run, call->args[1]) : NULL;
    struct rn_tpl_iter *iter = rn_tpl_iter_of(run, self);
    struct rn_value item;
    struct rn_sb sb;
    size_t i;

    rn_sb_init(&sb, &run->arena);
    for (i = 0; rn_tpl_iter_next(run, iter, &item); i++) {
        if (i > 0 && !rn_tpl_is_missing(call->args[0]))
            rn_tpl_put_value(run, &sb, call->args[0]);
        rn_tpl_put_value(run, &sb, by_attribute ? rn_tpl_follow_path(run, path, item, rn_none()) : item);
    }
    return rn_string_value(rn_sb_done(&sb));
}

RN_TPL_FILTER(format)
{
    struct rn_list *list = rn_list_new(&run->arena, call->n);
    struct rn_dict *dict = rn_dict_new(&run->arena);
    const struct rn_str *s = rn_tpl_str_value(run, self);
    size_t i;

    if (call->n > 0 && call->n_named > 0)
        rn_tpl_fail(run, "can't handle positional and keyword arguments at the same time");
    for (i = 0; i < call->n; i++)
        rn_list_push(&run->arena, list, call->args[i]);
    for (i = 0; i < call->n_named; i++)
        rn_dict_set(&run->arena, dict, rn_string_value(call->named[i].name), call->named[i].value);
    return rn_string_value(
        rn_tpl_format_percent(run, s, call->n_named > 0 ? rn_dict_value(dict) : rn_tuple_value(list)));
}

static bool separates_words(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || rn_char_is_space(c);
}

/* Words begin behind blanks, hyphens and opening brackets here, unlike in str.title. */
RN_TPL_FILTER(title)
{
    const struct rn_str *s = rn_tpl_str_value(run, self);
    size_t at = 0, first, end;
    uint32_t n;
    struct rn_sb sb;

    (void)call;
    rn_sb_init(&sb, &run->arena);
    while (at < s->n) {
        bool separator = separates_words(rn_utf8_decode(s->bytes + at, &n));

        first = at + n;
        for (end = first; end < s->n && separates_words(rn_utf8_decode(s->bytes + end, &n)) == separator;)
            end += n;
        rn_sb_case(&sb, rn_str_slice(&run->arena, s, at, first), 0, first - at, RN_CASE_UPPER);
        rn_sb_case(&sb, rn_str_slice(&run->arena, s, first, end), 0, end - first, RN_CASE_LOWER);
        at = end;
    }
    return rn_string_value(rn_sb_done(&sb));
}

RN_TPL_FILTER(wordcount)
{
    const struct rn_str *s = rn_tpl_str_value(run, self);
    bool in_word = false;
    int64_t count = 0;
    uint32_t n, c;
    size_t at;

    (void)call;
    rn_step(&run->arena, s->n);
    for (at = 0; at < s->n; at += n) {
        bool word;

        c = rn_utf8_decode(s->bytes + at, &n);
        word = c == '_' || (rn_char_class(c) & (RN_CHAR_LETTER | RN_CHAR_NUMBER)) != 0;
        count += word && !in_word;
        in_word = word;
    }
    return rn_int(count);
}

/* ---- indent, truncate ---- */

static const struct rn_str *indention(struct rn_run *run, struct rn_value width)
{
    const struct rn_str blank = {.bytes = " ", .n = 1, .chars = 1};
    struct rn_sb sb;
    int64_t n;

    if (rn_tpl_is_string(width))
        return width.string;
    n = rn_tpl_is_missing(width) ? 4 : rn_tpl_want_int(run, width, "width");
    rn_sb_init(&sb, &run->arena);
    rn_sb_repeat(&sb, &blank, n > 0 ? (size_t)n : 0);
    return rn_sb_done(&sb);
}

RN_TPL_FILTER(indent)
{
    const struct rn_str *indent = indention(run, call->args[0]), *s;
    bool first = !rn_tpl_is_missing(call->args[1]) && rn_tpl_truth(run, call->args[1]);
    bool blank = !rn_tpl_is_missing(call->args[2]) && rn_tpl_truth(run, call->args[2]);
    size_t at = 0, end, next, lines = 0;
    struct rn_sb sb;

    if (self.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, self);
    s = rn_tpl_want_string(run, self, "the value of indent");
    rn_step(&run->arena, s->n);
    rn_sb_init(&sb, &run->arena);
    if (first)
        rn_sb_str(&sb, indent);
    do { /* the lines of s + "\n" */
        end = rn_str_line_end(s, at, &next);
        if (lines++ > 0) {
            rn_sb_text(&sb, "\n");
            if (blank || end > at)
                rn_sb_str(&sb, indent);
        }
        rn_sb_slice(&sb, s, at, end);
        if (end == s->n)
            break;
        at = next;
        /* "a\r" + "\n": one end of line, not two */
        if (at == s->n && s->bytes[s->n - 1] == '\r')
            break;
    } while (true);
    return rn_string_value(rn_str_marked(&run->arena, rn_sb_done(&sb), s->markup));
}

RN_TPL_FILTER(truncate)
{
    int64_t length = rn_tpl_is_missing(call->args[0]) ? 255 : rn_tpl_want_int(run, call->args[0], "length");
    bool kill = !rn_tpl_is_missing(call->args[1]) && rn_tpl_truth(run, call->args[1]);
    const struct rn_str *end = rn_tpl_is_missing(call->args[2]) ? rn_str_of(&run->arena, "...")
                                                                : rn_tpl_want_string(run, call->args[2], "end");
    struct rn_value given = call->args[3];
    int64_t leeway =
        rn_tpl_is_missing(given) || given.kind == RN_VALUE_NONE ? 5 : rn_tpl_want_int(run, given, "leeway");
    const struct rn_str blank = {.bytes = " ", .n = 1, .chars = 1}, *s;
    size_t cut, found;

    if (length < (int64_t)end->chars || leeway < 0)
        rn_tpl_fail(run, "expected length >= %zu and leeway >= 0", end->chars);
    if (rn_tpl_length(run, self) < 0)
        rn_tpl_fail(run, "object of type '%s' has no len()", rn_tpl_type_name(self));
    if (rn_tpl_length(run, self) <= (leeway > INT64_MAX - length ? INT64_MAX : length + leeway))
        return self;
    s = rn_tpl_want_string(run, self, "the value of truncate");
    cut = rn_str_offset(&run->arena, s, (size_t)length - end->chars);
    found = kill ? RN_NOWHERE : rn_str_rfind(&run->arena, s, 0, cut, &blank);
    s = rn_str_slice(&run->arena, s, 0, found == RN_NOWHERE ? cut : found);
    return rn_tpl_binary(run, RN_TPL_OP_ADD, rn_string_value(rn_str_marked(&run->arena, s, self.string->markup)),
                         rn_string_value(end));
}

/* ---- Other notations ---- */

static void json_separators(struct rn_run *run, struct rn_value separators, struct rn_tpl_json_options *options)
{
    struct rn_list *list;

    if (rn_tpl_is_missing(separators) || separators.kind == RN_VALUE_NONE)
        return;
    list = rn_tpl_list_of(run, separators);
    if (list->n != 2)
        rn_tpl_fail(run, "separators must be two strings");
    options->item_separator = rn_tpl_want_string(run, list->items[0], "a separator");
    options->key_separator = rn_tpl_want_string(run, list->items[1], "a separator");
}

RN_TPL_FILTER(tojson)
{
    struct rn_tpl_json_options options = {.indent = rn_none()};

    options.ensure_ascii = !rn_tpl_is_missing(call->args[0]) && rn_tpl_truth(run, call->args[0]);
    if (!rn_tpl_is_missing(call->args[1]))
        options.indent = call->args[1];
    json_separators(run, call->args[2], &options);
    options.sort_keys = !rn_tpl_is_missing(call->args[3]) && rn_tpl_truth(run, call->args[3]);
    return rn_string_value(rn_tpl_json_dump(run, self, &options));
}

static void put_quoted(struct rn_run *run, struct rn_sb *sb, struct rn_value value, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    const struct rn_str *s = rn_tpl_str_value(run, value);
    enum rn_origin origin = rn_str_any_data(s) ? RN_ORIGIN_DATA : RN_ORIGIN_TRUSTED;
    size_t i;

    for (i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->bytes[i];
        char escape[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 0x80) ||
                     (c != '\0' && strchr(query ? "_.-~" : "_.-~/", c) != NULL);

        if (plain)
            rn_sb_bytes(sb, s->bytes + i, 1, origin);
        else if (query && c == ' ')
            rn_sb_bytes(sb, "+", 1, origin);
        else
            rn_sb_bytes(sb, escape, 3, origin);
    }
}

RN_TPL_FILTER(urlencode)
{
    struct rn_tpl_iter *iter;
    struct rn_value pair;
    struct rn_sb sb;
    size_t i;

    (void)call;
    rn_sb_init(&sb, &run->arena);
    iter = rn_tpl_is_string(self) ? NULL : rn_tpl_iter_try(run, self);
    if (iter == NULL)
        put_quoted(run, &sb, self, false);
    else if (self.kind == RN_VALUE_DICT)
        iter = rn_tpl_iter_of(
            run, rn_tpl_call_value(run, rn_tpl_get_attribute(run, self, rn_str_of(&run->arena, "items"), NULL),
                                   &(struct rn_tpl_call){0}));
    for (i = 0; iter != NULL && rn_tpl_iter_next(run, iter, &pair); i++) {
        struct rn_list *parts = rn_tpl_list_of(run, pair);

        if (parts->n != 2)
            rn_tpl_fail(run, "not pairs of key and value");
        if (i > 0)
            rn_sb_text(&sb, "&");
        put_quoted(run, &sb, parts->items[0], true);
        rn_sb_text(&sb, "=");
        put_quoted(run, &sb, parts->items[1], true);
    }
    return rn_string_value(rn_sb_done(&sb));
}

RN_TPL_FILTER(xmlattr)
{
    bool space = rn_tpl_is_missing(call->args[0]) || rn_tpl_truth(run, call->args[0]);
    struct rn_sb sb;
    size_t i, k;

    if (self.kind != RN_VALUE_DICT)
        rn_tpl_fail(run, "xmlattr takes a mapping");
    rn_sb_init(&sb, &run->arena);
    for (i = 0; i < self.dict->n; i++) {
        const struct rn_dict_entry *entry = &self.dict->entries[i];
        const struct rn_str *key;

        if (entry->value.kind == RN_VALUE_NONE || entry->value.kind == RN_VALUE_UNDEFINED)
            continue;
        key = rn_tpl_want_string(run, entry->key, "an attribute's name");
        for (k = 0; k < key->n; k++)
            if (memchr(" \t\n\r\f\v/>=", key->bytes[k], 9) != NULL)
                rn_tpl_fail(run, "invalid character in attribute name");
        if (space || sb.n > 0)
            rn_sb_text(&sb, " ");
        rn_sb_str(&sb, rn_tpl_escape(run, entry->key));
        rn_sb_text(&sb, "=\"");
        rn_sb_str(&sb, rn_tpl_escape(run, entry->value));
        rn_sb_text(&sb, "\"");
    }
    return rn_string_value(rn_sb_done(&sb));
}
