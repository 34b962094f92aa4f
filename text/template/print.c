/* str() and repr() of values. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/template/number.h"
#include "text/template/run.h"

static void put_repr(struct rn_run *run, struct rn_sb *sb, struct rn_value value);

static void put_float(struct rn_sb *sb, double real)
{
    char text[RN_TPL_FLOAT_TEXT];

    rn_sb_bytes(sb, text, rn_tpl_number_repr(real, text), RN_ORIGIN_TRUSTED);
}

static void put_int(struct rn_sb *sb, int64_t integer)
{
    char text[24];

    rn_sb_bytes(sb, text, (size_t)snprintf(text, sizeof text, "%" PRId64, integer), RN_ORIGIN_TRUSTED);
}

static void put_escape(struct rn_sb *sb, uint32_t c, enum rn_origin origin)
{
    char text[12];

    snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    rn_sb_bytes(sb, text, strlen(text), origin);
}

static void put_quoted(struct rn_sb *sb, const struct rn_str *s)
{
    char quote = memchr(s->bytes, '\'', s->n) != NULL && memchr(s->bytes, '"', s->n) == NULL ? '"' : '\'';
    enum rn_origin origin = rn_str_any_data(s) ? RN_ORIGIN_DATA : RN_ORIGIN_TRUSTED;
    uint32_t n, c;
    size_t at;

    rn_sb_bytes(sb, &quote, 1, origin);
    for (at = 0; at < s->n; at += n) {
        c = rn_utf8_decode(s->bytes + at, &n);
        if (c == (uint32_t)quote || c == '\\')
            rn_sb_bytes(sb, "\\", 1, origin);
        if (c == '\n' || c == '\r' || c == '\t')
            rn_sb_bytes(sb, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", 2, origin);
        else if (rn_char_is_printable(c))
            rn_sb_bytes(sb, s->bytes + at, n, origin);
        else
            put_escape(sb, c, origin);
    }
    rn_sb_bytes(sb, &quote, 1, origin);
}

static void put_items(struct rn_run *run, struct rn_sb *sb, const struct rn_list *list, const char *open,
                      const char *close)
{
    size_t i;

    rn_sb_text(sb, open);
    for (i = 0; i < list->n; i++) {
        if (i > 0)
            rn_sb_text(sb, ", ");
        put_repr(run, sb, list->items[i]);
    }
    rn_sb_text(sb, close);
}

static void put_dict(struct rn_run *run, struct rn_sb *sb, const struct rn_dict *dict)
{
    size_t i;

    rn_sb_text(sb, "{");
    for (i = 0; i < dict->n; i++) {
        if (i > 0)
            rn_sb_text(sb, ", ");
        put_repr(run, sb, dict->entries[i].key);
        rn_sb_text(sb, ": ");
        put_repr(run, sb, dict->entries[i].value);
    }
    rn_sb_text(sb, "}");
}

static void put_range(struct rn_sb *sb, const struct rn_tpl_range_object *range)
{
    rn_sb_text(sb, "range(");
    put_int(sb, range->start);
    rn_sb_text(sb, ", ");
    put_int(sb, range->stop);
    if (range->step != 1) {
        rn_sb_text(sb, ", ");
        put_int(sb, range->step);
    }
    rn_sb_text(sb, ")");
}

static void put_view(struct rn_run *run, struct rn_sb *sb, struct rn_value value)
{
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
    const struct rn_tpl_view_object *view = (struct rn_tpl_view_object *)value.object;

    put_items(run, sb, rn_tpl_list_of(run, value), names[view->kind], "])");
}

static void put_loop(struct rn_run *run, struct rn_sb *sb, struct rn_tpl_loop_object *loop)
{
    rn_sb_text(sb, "<LoopContext ");
    put_int(sb, loop->index0 + 1);
    rn_sb_text(sb, "/");
    put_int(sb, rn_tpl_loop_length(run, loop));
    rn_sb_text(sb, ">");
}

static void put_object(struct rn_run *run, struct rn_sb *sb, struct rn_value value)
{
    switch (value.object->kind) {
    case RN_TPL_OBJECT_RANGE:
        put_range(sb, (struct rn_tpl_range_object *)value.object);
        break;
    case RN_TPL_OBJECT_VIEW:
        put_view(run, sb, value);
        break;
    case RN_TPL_OBJECT_LOOP:
        put_loop(run, sb, (struct rn_tpl_loop_object *)value.object);
        break;
    case RN_TPL_OBJECT_NAMESPACE:
        rn_sb_text(sb, "<Namespace ");
        put_dict(run, sb, ((struct rn_tpl_namespace_object *)value.object)->attrs);
        rn_sb_text(sb, ">");
        break;
    case RN_TPL_OBJECT_MACRO: {
        const struct rn_str *name = ((struct rn_tpl_macro_object *)value.object)->macro->name;

        rn_sb_text(sb, "<Macro ");
        if (name == NULL)
            rn_sb_text(sb, "anonymous");
        else
            put_quoted(sb, name);
        rn_sb_text(sb, ">");
        break;
    }
    default: /* Python would write an address */
        rn_sb_text(sb, "<");
        rn_sb_text(sb, rn_tpl_type_name(value));
        rn_sb_text(sb, " object>");
    }
}

static void put_container(struct rn_run *run, struct rn_sb *sb, struct rn_value value)
{
    if (value.kind == RN_VALUE_LIST)
        put_items(run, sb, value.list, "[", "]");
    else if (value.kind == RN_VALUE_TUPLE)
        put_items(run, sb, value.list, "(", value.list->n == 1 ? ",)" : ")");
    else if (value.kind == RN_VALUE_DICT)
        put_dict(run, sb, value.dict);
    else
        put_object(run, sb, value);
}

static void put_repr(struct rn_run *run, struct rn_sb *sb, struct rn_value value)
{
    rn_step(&run->arena, 1);
    switch (value.kind) {
    case RN_VALUE_UNDEFINED:
        rn_sb_text(sb, "Undefined");
        break;
    case RN_VALUE_NONE:
        rn_sb_text(sb, "None");
        break;
    case RN_VALUE_BOOL:
        rn_sb_text(sb, value.boolean ? "True" : "False");
        break;
    case RN_VALUE_INT:
        put_int(sb, value.integer);
        break;
    case RN_VALUE_FLOAT:
        put_float(sb, value.real);
        break;
    case RN_VALUE_STRING:
        if (value.string->markup)
            rn_sb_text(sb, "Markup(");
        put_quoted(sb, value.string);
        if (value.string->markup)
            rn_sb_text(sb, ")");
        break;
    default:
        rn_enter(&run->arena);
        put_container(run, sb, value);
        rn_leave(&run->arena);
    }
}

const struct rn_str *rn_tpl_repr_value(struct rn_run *run, struct rn_value value)
{
    struct rn_sb sb;

    rn_sb_init(&sb, &run->arena);
    put_repr(run, &sb, value);
    return rn_str_smear(&run->arena, rn_sb_done(&sb));
}

const struct rn_str *rn_tpl_str_value(struct rn_run *run, struct rn_value value)
{
    if (rn_tpl_is_string(value))
        return value.string;
    if (value.kind == RN_VALUE_UNDEFINED)
        return rn_str_of(&run->arena, "");
    return rn_tpl_repr_value(run, value);
}

void rn_tpl_put_value(struct rn_run *run, struct rn_sb *sb, struct rn_value value)
{
    if (rn_tpl_is_string(value))
        rn_sb_str(sb, value.string);
    else if (value.kind == RN_VALUE_INT)
        put_int(sb, value.integer);
    else if (value.kind != RN_VALUE_UNDEFINED)
        rn_sb_str(sb, rn_tpl_repr_value(run, value));
}
