/* Calls from their opening on: the pattern up to the arguments, JSON around them, the arguments themselves.
 *
 *     <tool_call> {"name": "f", "arguments": {"a": 1} }
 *     ^ OPEN      ^ WRAP                     ^ LITERAL ^ WRAP
 *
 * The call is certain, and its name given out, when the first byte of the arguments is there. */
#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"
#include "text/answer/impl.h"

/* ---- Fields and strings ---- */

bool rn_answer_name_byte(char c)
{
    return (unsigned char)c > ' ' && c != 0x7f && strchr("<>[]{}()\"'`,;=|\\", c) == NULL;
}

bool rn_field_add(struct rn_field *field, const char *bytes, size_t n)
{
    if (n > RN_ANSWER_FIELD - field->bytes)
        return false;
    memcpy(field->text + field->bytes, bytes, n);
    field->bytes += (uint32_t)n;
    return true;
}

bool rn_field_is(const struct rn_field *field, const char *text)
{
    return field->bytes == strlen(text) && memcmp(field->text, text, field->bytes) == 0;
}

/* The four digits of an escape are there: a character, or half of a pair. */
static bool unit_ends(struct rn_unescape *u, char *out, uint32_t *n_out)
{
    bool high = u->code >= 0xd800 && u->code <= 0xdbff, low = u->code >= 0xdc00 && u->code <= 0xdfff;

    if ((u->high != 0) != low)
        return false;
    if (low)
        *n_out = rn_utf8_encode(0x10000 + ((u->high - 0xd800) << 10) + (u->code - 0xdc00), out);
    else if (!high)
        *n_out = rn_utf8_encode(u->code, out);
    u->high = high ? u->code : 0;
    return true;
}

bool rn_unescape_step(struct rn_unescape *u, char c, char *out, uint32_t *n_out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *at;
    int digit;

    *n_out = 0;
    if (u->digits > 0) {
        digit = rn_hex_value(c);
        if (digit < 0)
            return false;
        u->code = u->code * 16 + (uint32_t)digit;
        return --u->digits > 0 || unit_ends(u, out, n_out);
    }
    if (u->escape) {
        u->escape = false;
        at = c == '\0' || u->high != 0 ? NULL : strchr(names, c);
        if (c == 'u') {
            u->digits = 4;
            u->code = 0;
        } else if (at != NULL) {
            out[(*n_out)++] = values[at - names];
        }
        return c == 'u' || at != NULL;
    }
    u->escape = c == '\\';
    if (u->escape)
        return true;
    out[(*n_out)++] = c;
    return u->high == 0 && (unsigned char)c >= 0x20;
}

bool rn_unescape_rests(const struct rn_unescape *u)
{
    return u->digits == 0 && !u->escape && u->high == 0;
}

/* ---- The opening ---- */

void rn_answer_open(struct rn_answer *a, const char *pattern, int index)
{
    a->mode = RN_MODE_OPEN;
    a->pattern = pattern;
    a->pattern_index = index;
    a->pattern_at = 0;
    a->spaces = 0;
    a->in_field = false;
    a->name.bytes = a->id.bytes = 0;
    a->n_params = 0;
}

/* "functions.NAME:INDEX" was read as the id: the name is within. */
static void name_from_id(struct rn_answer *a)
{
    static const char prefix[] = "functions.";
    uint32_t begin = 0, end = a->id.bytes, at;

    if (end > sizeof prefix - 1 && memcmp(a->id.text, prefix, sizeof prefix - 1) == 0)
        begin = sizeof prefix - 1;
    for (at = end; at > begin + 1 && a->id.text[at - 1] >= '0' && a->id.text[at - 1] <= '9';)
        at--;
    if (at < end && at > begin + 1 && a->id.text[at - 1] == ':')
        end = at - 1;
    rn_field_add(&a->name, a->id.text + begin, end - begin);
}

/* ">>>all\n": the marker goes, and content follows. */
static enum rn_answer_step open_message(struct rn_answer *a)
{
    a->cur++;
    rn_answer_take(a);
    a->mode = RN_MODE_TEXT;
    a->kind = RN_PART_CONTENT;
    a->skip = RN_SKIP_NONE;
    a->start = false;
    a->after_call = false;
    return RN_STEP_ON;
}

/* A byte within or behind NAME, ID or INDEX. */
static enum rn_answer_step open_field(struct rn_answer *a, char field, char c)
{
    struct rn_field *to = field == RN_F_NAME[0] ? &a->name : &a->id;

    if (rn_answer_name_byte(c)) {
        a->cur++;
        return rn_field_add(to, &c, 1) ? RN_STEP_ON : RN_STEP_FAIL;
    }
    if (to->bytes == 0)
        return RN_STEP_FAIL;
    if (field == RN_F_INDEX[0])
        name_from_id(a);
    a->pattern_at++;
    if ((a->rows.calls->flags & RN_CALL_MESSAGES) && c == '\n' && rn_field_is(&a->name, "all"))
        return open_message(a);
    return RN_STEP_ON;
}

/* The pattern's last field: what follows is read by another mode. */
static enum rn_answer_step open_ends(struct rn_answer *a, char field)
{
    bool whole; /* the opening is; else, and within reasoning, it takes a parameter or the end to be certain */

    if (!a->has_tools)
        return RN_STEP_FAIL;
    switch (field) {
    case 0x05: /* RN_F_CALL */
    case 0x06: /* RN_F_KEYED */
        rn_answer_begin_wrap(a, field == RN_F_KEYED[0]);
        return RN_STEP_ON;
    case 0x08: /* RN_F_PARAMS */
        rn_answer_begin_params(a);
        whole = a->pattern_at > 0 && !rn_is_field(a->pattern[a->pattern_at - 1]) && a->kind != RN_PART_REASONING;
        return whole && !rn_answer_commit(a) ? RN_STEP_FAIL : RN_STEP_ON;
    case 0x0b: /* RN_F_PYTHON */
        rn_answer_begin_python(a);
        return RN_STEP_ON;
    case 0x07: /* RN_F_OBJECT */
        if (a->cur == a->len)
            return RN_STEP_WAIT;
        if (a->window[a->cur] != '{')
            return RN_STEP_FAIL;
    }
    if (!rn_answer_commit(a))
        return RN_STEP_FAIL;
    a->mode = RN_MODE_LITERAL;
    a->resume = RN_MODE_TEXT;
    rn_literal_init(&a->literal, field == RN_F_GEMMA[0] ? RN_LITERAL_GEMMA : RN_LITERAL_JSON, a->rows.calls->mark);
    if (field != RN_F_GEMMA[0])
        return RN_STEP_ON;
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "{", 1);
    rn_literal_open_object(&a->literal);
    return RN_STEP_ON;
}

enum rn_answer_step rn_answer_on_open(struct rn_answer *a)
{
    char field = a->pattern[a->pattern_at], c;
    bool passes;

    if (rn_field_ends_pattern(field))
        return open_ends(a, field);
    if (a->cur == a->len)
        return RN_STEP_WAIT;
    c = a->window[a->cur];
    passes = (field == RN_F_SPACE[0] && rn_answer_space(c)) ||
             (field == RN_F_ANY[0] && c != a->pattern[a->pattern_at + 1] && (unsigned char)c >= ' ');
    if (passes) {
        a->cur++;
        return ++a->spaces <= RN_ANSWER_SPACES ? RN_STEP_ON : RN_STEP_FAIL;
    }
    if (field == RN_F_SPACE[0] || field == RN_F_ANY[0]) {
        a->spaces = 0;
        a->pattern_at++;
        return RN_STEP_ON;
    }
    if (rn_is_field(field))
        return open_field(a, field, c);
    a->cur++;
    a->pattern_at++;
    return c == field ? RN_STEP_ON : RN_STEP_FAIL;
}

/* ---- The arguments ---- */

enum rn_literal_result rn_answer_literal(struct rn_answer *a, char byte)
{
    char out[RN_LITERAL_STEP_BYTES];
    size_t n;
    enum rn_literal_result result = rn_literal_step(&a->literal, (unsigned char)byte, out, &n);

    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, out, n);
    return result;
}

enum rn_answer_step rn_answer_on_literal(struct rn_answer *a)
{
    enum rn_literal_result result = RN_LITERAL_MORE;

    while (a->cur < a->len && result == RN_LITERAL_MORE) {
        result = rn_answer_literal(a, a->window[a->cur]);
        if (result == RN_LITERAL_MORE || result == RN_LITERAL_DONE)
            a->cur++;
    }
    rn_answer_take(a);
    if (result == RN_LITERAL_MORE)
        return RN_STEP_WAIT;
    if (result != RN_LITERAL_DONE)
        return RN_STEP_FAIL;
    if (a->resume == RN_MODE_TEXT)
        rn_answer_call_ends(a);
    else
        a->mode = a->resume;
    return RN_STEP_ON;
}
