/* Values to JSON text, as Python's json.dumps writes it: the filter tojson. If any string in the value is data, the
 * whole text is. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/template/number.h"
#include "text/template/run.h"

struct writer {
    struct rn_run *run;
    struct rn_sb sb;
    const struct rn_tpl_json_options *options;
    const struct rn_str *indent, *item_separator, *key_separator; /* indent NULL: all on one line */
    size_t level;
};

static void put(struct writer *w, struct rn_value value);

static void put_unit(struct writer *w, uint32_t c, enum rn_origin origin)
{
    char text[16];

    snprintf(text, sizeof text, "\\u%04x", c);
    rn_sb_bytes(&w->sb, text, 6, origin);
}

static void put_escape(struct writer *w, uint32_t c, enum rn_origin origin)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *simple = c < 0x80 && c != 0 ? strchr(from, (int)c) : NULL;

    if (simple != NULL) {
        rn_sb_bytes(&w->sb, "\\", 1, origin);
        rn_sb_bytes(&w->sb, &to[simple - from], 1, origin);
    } else if (c >= 0x10000) {
        put_unit(w, 0xd800 + ((c - 0x10000) >> 10), origin);
        put_unit(w, 0xdc00 + ((c - 0x10000) & 0x3ff), origin);
    } else {
        put_unit(w, c, origin);
    }
}

static void put_string(struct writer *w, const struct rn_str *s)
{
    enum rn_origin origin = rn_str_any_data(s) ? RN_ORIGIN_DATA : RN_ORIGIN_TRUSTED;
    size_t at, from = 0;
    uint32_t n, c;

    rn_sb_bytes(&w->sb, "\"", 1, origin);
    for (at = 0; at < s->n; at += n) {
        c = rn_utf8_decode(s->bytes + at, &n);
        if (c >= 0x20 && c != '"' && c != '\\' && (!w->options->ensure_ascii || c < 0x7f))
            continue;
        rn_sb_bytes(&w->sb, s->bytes + from, at - from, origin);
        put_escape(w, c, origin);
        from = at + n;
    }
    rn_sb_bytes(&w->sb, s->bytes + from, s->n - from, origin);
    rn_sb_bytes(&w->sb, "\"", 1, origin);
}

static void put_float(struct writer *w, double real)
{
    char text[RN_TPL_FLOAT_TEXT];

    if (isnan(real) || isinf(real))
        rn_sb_text(&w->sb, isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity");
    else
        rn_sb_bytes(&w->sb, text, rn_tpl_number_repr(real, text), RN_ORIGIN_TRUSTED);
}

static void put_int(struct writer *w, int64_t integer)
{
    char text[24];

    rn_sb_bytes(&w->sb, text, (size_t)snprintf(text, sizeof text, "%" PRId64, integer), RN_ORIGIN_TRUSTED);
}

static void put_line(struct writer *w)
{
    if (w->indent == NULL)
        return;
    rn_sb_text(&w->sb, "\n");
    rn_sb_repeat(&w->sb, w->indent, w->level);
}

static void begin_item(struct writer *w, size_t i)
{
    if (i > 0)
        rn_sb_str(&w->sb, w->item_separator);
    put_line(w);
}

static void put_list(struct writer *w, const struct rn_list *list)
{
    size_t i;

    rn_sb_text(&w->sb, "[");
    w->level++;
    for (i = 0; i < list->n; i++) {
        begin_item(w, i);
        put(w, list->items[i]);
    }
    w->level--;
    if (list->n > 0)
        put_line(w);
    rn_sb_text(&w->sb, "]");
}

/* Keys are strings; numbers, True, False and None are made into some. */
static void put_key(struct writer *w, struct rn_value key)
{
    if (rn_tpl_is_string(key)) {
        put_string(w, key.string);
    } else if (key.kind == RN_VALUE_INT || key.kind == RN_VALUE_BOOL || key.kind == RN_VALUE_NONE ||
               key.kind == RN_VALUE_FLOAT) {
        rn_sb_text(&w->sb, "\"");
        put(w, key);
        rn_sb_text(&w->sb, "\"");
    } else {
        rn_tpl_fail(w->run, "keys must be str, int, float, bool or None, not %s", rn_tpl_type_name(key));
    }
}

/* The entries in the order of their keys. */
static const struct rn_dict_entry *sorted(struct writer *w, const struct rn_dict *dict)
{
    struct rn_arena *arena = &w->run->arena;
    struct rn_value *keys = rn_arena_take(arena, dict->n, sizeof *keys);
    struct rn_value *values = rn_arena_take(arena, dict->n, sizeof *values);
    struct rn_dict_entry *entries = rn_arena_take(arena, dict->n, sizeof *entries);
    size_t i;

    for (i = 0; i < dict->n; i++) {
        keys[i] = dict->entries[i].key;
        values[i] = dict->entries[i].value;
    }
    rn_tpl_sort(w->run, keys, values, dict->n, false);
    for (i = 0; i < dict->n; i++)
        entries[i] = (struct rn_dict_entry){keys[i], values[i], 0};
    return entries;
}

static void put_dict(struct writer *w, const struct rn_dict *dict)
{
    const struct rn_dict_entry *entries = w->options->sort_keys ? sorted(w, dict) : dict->entries;
    size_t i;

    rn_sb_text(&w->sb, "{");
    w->level++;
    for (i = 0; i < dict->n; i++) {
        begin_item(w, i);
        put_key(w, entries[i].key);
        rn_sb_str(&w->sb, w->key_separator);
        put(w, entries[i].value);
    }
    w->level--;
    if (dict->n > 0)
        put_line(w);
    rn_sb_text(&w->sb, "}");
}

static void put(struct writer *w, struct rn_value value)
{
    rn_step(&w->run->arena, 1);
    switch (value.kind) {
    case RN_VALUE_NONE:
        rn_sb_text(&w->sb, "null");
        break;
    case RN_VALUE_BOOL:
        rn_sb_text(&w->sb, value.boolean ? "true" : "false");
        break;
    case RN_VALUE_INT:
        put_int(w, value.integer);
        break;
    case RN_VALUE_FLOAT:
        put_float(w, value.real);
        break;
    case RN_VALUE_STRING:
        put_string(w, value.string);
        break;
    case RN_VALUE_LIST:
    case RN_VALUE_TUPLE:
        rn_enter(&w->run->arena);
        put_list(w, value.list);
        rn_leave(&w->run->arena);
        break;
    case RN_VALUE_DICT:
        rn_enter(&w->run->arena);
        put_dict(w, value.dict);
        rn_leave(&w->run->arena);
        break;
    default:
        rn_tpl_fail(w->run, "Object of type %s is not JSON serializable", rn_tpl_type_name(value));
    }
}

static const struct rn_str *indent_of(struct rn_run *run, struct rn_value indent)
{
    struct rn_str blank = {.bytes = " ", .n = 1, .chars = 1};
    struct rn_sb sb;
    int64_t n;

    if (indent.kind == RN_VALUE_NONE)
        return NULL;
    if (rn_tpl_is_string(indent))
        return indent.string;
    n = rn_tpl_want_int(run, indent, "indent");
    rn_sb_init(&sb, &run->arena);
    rn_sb_repeat(&sb, &blank, n > 0 ? (size_t)n : 0);
    return rn_sb_done(&sb);
}

const struct rn_str *rn_tpl_json_dump(struct rn_run *run, struct rn_value value,
                                      const struct rn_tpl_json_options *options)
{
    struct rn_arena *arena = &run->arena;
    struct writer w = {.run = run, .options = options};

    if (!rn_tpl_is_string(value)) /* of a string alone Python does not look at the indent */
        w.indent = indent_of(run, options->indent);
    w.item_separator = options->item_separator;
    w.key_separator = options->key_separator;
    if (w.item_separator == NULL)
        w.item_separator = rn_str_of(arena, w.indent == NULL ? ", " : ",");
    if (w.key_separator == NULL)
        w.key_separator = rn_str_of(arena, ": ");
    rn_sb_init(&w.sb, arena);
    put(&w, value);
    return rn_str_smear(arena, rn_sb_done(&w.sb));
}
