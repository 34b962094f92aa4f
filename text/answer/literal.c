/* A push-down machine over bytes: see literal.h.
 *
 *     VALUE --> STRING | NUMBER | WORD | '{' KEY COLON VALUE NEXT ... '}' | '[' VALUE NEXT ... ']'
 *
 * A state's handler takes the byte (EAT), has it looked at again in the state that it set (AGAIN), or refuses
 * it. In JSON each byte is written as it stands; in the other dialects white space and last commas go, and
 * commas are written once it is known that an item follows. */
#include "text/answer/literal.h"

#include <string.h>

#include "base/hex.h"

enum state {
    VALUE,
    KEY,
    COLON,
    NEXT,
    STRING,
    QUOTED,
    ESCAPE,
    CODE,
    NUMBER,
    WORD,
    BARE,
    MARK_OPENS,
    MARK_CLOSES,
    PAIR,
    END,
    N_STATES
};

enum number { MINUS, ZERO, DIGITS, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS };

enum verdict { EAT, AGAIN, ENDS, ENDED, BAD };

struct sink {
    char *bytes;
    size_t n;
};

static void put(struct sink *sink, char byte)
{
    sink->bytes[sink->n++] = byte;
}

static void put_escaped(struct sink *sink, unsigned char byte)
{
    sink->n += rn_json_escape(byte, sink->bytes + sink->n);
}

size_t rn_json_escape(unsigned char byte, char *out)
{
    static const char digits[] = "0123456789abcdef", names[] = "btn?fr";
    size_t n = 0;

    if (byte >= 0x20 && byte != '"' && byte != '\\') {
        out[n++] = (char)byte;
        return n;
    }
    out[n++] = '\\';
    if (byte >= 0x20) {
        out[n++] = (char)byte;
    } else if (byte >= '\b' && byte <= '\r' && byte != '\v') {
        out[n++] = names[byte - '\b'];
    } else {
        memcpy(out + n, "u00", 3);
        out[n + 3] = digits[byte >> 4];
        out[n + 4] = digits[byte & 15];
        n += 5;
    }
    return n;
}

static bool is_space(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_json(const struct rn_literal *l)
{
    return l->dialect == RN_LITERAL_JSON;
}

/* White space: kept in JSON within the value. */
static enum verdict space(const struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_json(l) && l->started)
        put(sink, (char)c);
    return EAT;
}

/* A value has ended with the byte at hand (`taken`), or before it. */
static enum verdict value_ends(struct rn_literal *l, bool taken)
{
    l->state = NEXT;
    if (l->depth == 0)
        l->state = END;
    if (l->state == END)
        return taken ? ENDS : ENDED;
    return taken ? EAT : AGAIN;
}

static enum verdict open_container(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (l->depth == RN_LITERAL_DEPTH)
        return BAD;
    l->closers[l->depth++] = c == '{' ? '}' : c == '[' ? ']' : ')';
    put(sink, c == '{' ? '{' : '[');
    l->may_close = true;
    l->comma = false;
    l->state = c == '{' ? KEY : VALUE;
    return EAT;
}

static enum verdict close_container(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (l->depth == 0 || l->closers[l->depth - 1] != c)
        return BAD;
    l->depth--;
    l->comma = false;
    put(sink, c == '}' ? '}' : ']');
    return value_ends(l, true);
}

/* What comes before an item of a container. */
static void owe(struct rn_literal *l, struct sink *sink)
{
    if (l->comma)
        put(sink, ',');
    l->comma = false;
    l->may_close = false;
    l->started = true;
}

static enum verdict begin_string(struct rn_literal *l, unsigned char quote, bool key, struct sink *sink)
{
    owe(l, sink);
    put(sink, '"');
    l->quote = quote;
    l->key = key;
    l->state = STRING;
    return EAT;
}

/* With the byte at hand (`taken`), or before it. */
static enum verdict string_ends(struct rn_literal *l, struct sink *sink, bool taken)
{
    put(sink, '"');
    if (!l->key)
        return value_ends(l, taken);
    l->state = COLON;
    return taken ? EAT : AGAIN;
}

static enum verdict begin_mark(struct rn_literal *l, bool key)
{
    l->key = key;
    l->at = 1;
    l->state = MARK_OPENS;
    return EAT;
}

static enum verdict begin_number(struct rn_literal *l, unsigned char c, bool key, struct sink *sink)
{
    owe(l, sink);
    if (key)
        put(sink, '"');
    put(sink, (char)c);
    l->key = key;
    l->number = c == '-' ? MINUS : c == '0' ? ZERO : DIGITS;
    l->state = NUMBER;
    return EAT;
}

/* true, false, null; True, False, None where Python's words are understood. NULL: none begins so. */
static const char *word_of(const struct rn_literal *l, unsigned char c)
{
    switch (c) {
    case 't':
        return "true";
    case 'f':
        return "false";
    case 'n':
        return "null";
    case 'T':
        return is_json(l) ? NULL : "True";
    case 'F':
        return is_json(l) ? NULL : "False";
    case 'N':
        return is_json(l) ? NULL : "None";
    default:
        return NULL;
    }
}

/* Python's words have as many letters as JSON's, so each letter is written as it comes. */
static char json_letter(const char *word, size_t at)
{
    if (strcmp(word, "None") == 0)
        return "null"[at];
    return (char)(word[at] | 0x20);
}

static enum verdict on_value(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_space(c))
        return space(l, c, sink);
    if ((c == ']' || c == ')') && l->may_close)
        return close_container(l, c, sink);
    if (c == '"' || (c == '\'' && l->dialect == RN_LITERAL_PYTHON))
        return begin_string(l, c, false, sink);
    if (l->mark != NULL && c == (unsigned char)l->mark[0])
        return begin_mark(l, false);
    if (is_digit(c) || c == '-')
        return begin_number(l, c, false, sink);
    if (c == '{' || c == '[' || (c == '(' && l->dialect == RN_LITERAL_PYTHON)) {
        owe(l, sink);
        return open_container(l, c, sink);
    }
    l->word = word_of(l, c);
    if (l->word == NULL)
        return BAD;
    owe(l, sink);
    put(sink, json_letter(l->word, 0));
    l->at = 1;
    l->state = WORD;
    return EAT;
}

static bool is_bare(unsigned char c)
{
    return c > ' ' && c != 0x7f && strchr("{}[](),:\"'", c) == NULL;
}

static enum verdict on_key(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_space(c))
        return space(l, c, sink);
    if (c == '}' && l->may_close)
        return close_container(l, c, sink);
    if (c == '"' || (c == '\'' && l->dialect == RN_LITERAL_PYTHON))
        return begin_string(l, c, true, sink);
    if (l->mark != NULL && c == (unsigned char)l->mark[0])
        return begin_mark(l, true);
    if (l->dialect == RN_LITERAL_PYTHON && (is_digit(c) || c == '-'))
        return begin_number(l, c, true, sink);
    if (l->dialect != RN_LITERAL_GEMMA || !is_bare(c))
        return BAD;
    owe(l, sink);
    put(sink, '"');
    put_escaped(sink, c);
    l->state = BARE;
    return EAT;
}

static enum verdict on_bare(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_bare(c)) {
        put_escaped(sink, c);
        return EAT;
    }
    if (c != ':')
        return BAD;
    put(sink, '"');
    l->state = COLON;
    return AGAIN;
}

static enum verdict on_colon(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_space(c))
        return space(l, c, sink);
    if (c != ':')
        return BAD;
    put(sink, ':');
    l->state = VALUE;
    l->may_close = false;
    return EAT;
}

static enum verdict on_next(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_space(c))
        return space(l, c, sink);
    if (c != ',')
        return close_container(l, c, sink);
    if (is_json(l))
        put(sink, ',');
    l->comma = !is_json(l);
    l->may_close = !is_json(l);
    l->state = l->closers[l->depth - 1] == '}' ? KEY : VALUE;
    return EAT;
}

static enum verdict on_string(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (l->quote == 0 && c == (unsigned char)l->mark[0]) {
        l->at = 1;
        l->state = MARK_CLOSES;
        return EAT;
    }
    if (c == l->quote && l->quote != 0) {
        l->state = QUOTED;
        return l->dialect == RN_LITERAL_PYTHON ? EAT : string_ends(l, sink, true);
    }
    if (c == '\\' && l->quote != 0) {
        l->state = ESCAPE;
        return EAT;
    }
    if (c < 0x20 && is_json(l))
        return BAD;
    put_escaped(sink, c);
    return EAT;
}

/* Behind a quote in Python. Models forget to escape quotes: where nothing of Python follows, it is part of the text. */
static enum verdict on_quoted(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (is_space(c) || (c != 0 && strchr(",)]}:", c) != NULL))
        return string_ends(l, sink, false);
    put_escaped(sink, l->quote);
    l->state = STRING;
    return AGAIN;
}

static void begin_code(struct rn_literal *l, uint8_t kind)
{
    l->kind = kind;
    l->at = 0;
    l->code = 0;
    l->state = CODE;
}

/* Python's escapes beyond JSON's. */
static enum verdict python_escape(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    l->state = STRING;
    if (c == 'x' || c == 'U') {
        begin_code(l, c);
    } else if (c >= '0' && c <= '7') {
        begin_code(l, '0');
        return AGAIN;
    } else if (c == '\'') {
        put(sink, '\'');
    } else if (c == 'a' || c == 'v') {
        put_escaped(sink, c == 'a' ? 7 : 11);
    } else if (c != '\n') { /* a line that goes on is joined; any other pair stands for itself */
        put_escaped(sink, '\\');
        put_escaped(sink, c);
    }
    return EAT;
}

static enum verdict on_escape(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (l->low_surrogate && c != 'u')
        return BAD;
    if (c == 'u') {
        begin_code(l, c);
        return EAT;
    }
    if (c != 0 && strchr("\"\\/bfnrt", c) != NULL) {
        put(sink, '\\');
        put(sink, (char)c);
        l->state = STRING;
        return EAT;
    }
    return l->dialect == RN_LITERAL_PYTHON ? python_escape(l, c, sink) : BAD;
}

static void put_unit(struct sink *sink, uint32_t unit)
{
    int shift;

    put(sink, '\\');
    put(sink, 'u');
    for (shift = 12; shift >= 0; shift -= 4)
        put(sink, "0123456789abcdef"[unit >> shift & 15]);
}

/* The code of an escape is complete. Halves of pairs must come in pairs: a dedicated one is no character. */
static enum verdict code_ends(struct rn_literal *l, struct sink *sink, bool taken)
{
    bool high = l->code >= 0xd800 && l->code <= 0xdbff, low = l->code >= 0xdc00 && l->code <= 0xdfff;

    if (l->low_surrogate != low || l->code > 0x10ffff || (high && l->kind != 'u'))
        return BAD;
    if (l->code >= 0x10000) {
        put_unit(sink, 0xd800 + ((l->code - 0x10000) >> 10));
        put_unit(sink, 0xdc00 + ((l->code - 0x10000) & 0x3ff));
    } else if (!is_json(l)) {
        put_unit(sink, l->code);
    }
    l->low_surrogate = high;
    l->state = high ? PAIR : STRING;
    return taken ? EAT : AGAIN;
}

/* In JSON the digits are written as they stand. */
static enum verdict on_code(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    static const char kinds[] = "xuU";
    static const uint8_t lengths[] = {2, 4, 8};
    int digit = rn_hex_value((char)c);

    if (l->kind == '0') {
        if (c < '0' || c > '7' || l->at == 3)
            return code_ends(l, sink, false);
        l->code = l->code * 8 + (c - '0');
        l->at++;
        return EAT;
    }
    if (digit < 0 || l->code > 0x10ffff)
        return BAD;
    if (is_json(l) && l->at == 0) {
        put(sink, '\\');
        put(sink, 'u');
    }
    if (is_json(l))
        put(sink, (char)c);
    l->code = l->code * 16 + (uint32_t)digit;
    l->at++;
    return l->at == lengths[strchr(kinds, l->kind) - kinds] ? code_ends(l, sink, true) : EAT;
}

static enum verdict on_pair(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    (void)sink;
    if (c != '\\')
        return BAD;
    l->state = ESCAPE;
    return EAT;
}

/* The next state of a number, or -1: it ends before c. */
static int number_next(uint8_t state, unsigned char c)
{
    switch (state) {
    case MINUS:
        return c == '0' ? ZERO : is_digit(c) ? DIGITS : -1;
    case ZERO:
    case DIGITS:
        if (is_digit(c) && state == DIGITS)
            return DIGITS;
        return c == '.' ? POINT : (c | 0x20) == 'e' ? EXPONENT : -1;
    case POINT:
    case FRACTION:
        if (is_digit(c))
            return FRACTION;
        return state == FRACTION && (c | 0x20) == 'e' ? EXPONENT : -1;
    case EXPONENT:
        if (c == '+' || c == '-')
            return EXPONENT_SIGN;
        return is_digit(c) ? EXPONENT_DIGITS : -1;
    default:
        return is_digit(c) ? EXPONENT_DIGITS : -1;
    }
}

static bool number_whole(uint8_t state)
{
    return state == ZERO || state == DIGITS || state == FRACTION || state == EXPONENT_DIGITS;
}

static enum verdict on_number(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    int next = number_next(l->number, c);

    if (next >= 0) {
        put(sink, (char)c);
        l->number = (uint8_t)next;
        return EAT;
    }
    if (!number_whole(l->number))
        return BAD;
    if (!l->key)
        return value_ends(l, false);
    put(sink, '"');
    l->state = COLON;
    return AGAIN;
}

static enum verdict on_word(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (c != (unsigned char)l->word[l->at])
        return BAD;
    put(sink, json_letter(l->word, l->at++));
    return l->word[l->at] == '\0' ? value_ends(l, true) : EAT;
}

static enum verdict on_mark_opens(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    if (c != (unsigned char)l->mark[l->at])
        return BAD;
    if (l->mark[++l->at] != '\0')
        return EAT;
    return begin_string(l, 0, l->key, sink);
}

/* A mark begins with a byte that it has but once: after a mismatch none can have begun within it. */
static enum verdict on_mark_closes(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    uint8_t i;

    if (c == (unsigned char)l->mark[l->at]) {
        if (l->mark[++l->at] != '\0')
            return EAT;
        l->at = 0;
        return string_ends(l, sink, true);
    }
    for (i = 0; i < l->at; i++)
        put_escaped(sink, (unsigned char)l->mark[i]);
    l->at = 0;
    l->state = STRING;
    return AGAIN;
}

static enum verdict on_end(struct rn_literal *l, unsigned char c, struct sink *sink)
{
    (void)l;
    (void)c;
    (void)sink;
    return BAD;
}

static enum verdict (*const handlers[N_STATES])(struct rn_literal *, unsigned char, struct sink *) = {
    [VALUE] = on_value,
    [KEY] = on_key,
    [COLON] = on_colon,
    [NEXT] = on_next,
    [QUOTED] = on_quoted,
    [STRING] = on_string,
    [ESCAPE] = on_escape,
    [CODE] = on_code,
    [NUMBER] = on_number,
    [WORD] = on_word,
    [BARE] = on_bare,
    [MARK_OPENS] = on_mark_opens,
    [MARK_CLOSES] = on_mark_closes,
    [PAIR] = on_pair,
    [END] = on_end,
};

void rn_literal_init(struct rn_literal *literal, enum rn_literal_dialect dialect, const char *mark)
{
    memset(literal, 0, offsetof(struct rn_literal, closers));
    literal->dialect = (uint8_t)dialect;
    literal->mark = mark;
    literal->state = VALUE;
}

void rn_literal_open_object(struct rn_literal *literal)
{
    literal->closers[literal->depth++] = '}';
    literal->state = KEY;
    literal->may_close = true;
    literal->started = true;
}

enum rn_literal_result rn_literal_step(struct rn_literal *literal, unsigned char byte, char *out, size_t *n_out)
{
    struct sink sink = {out, 0};
    enum verdict verdict;

    do {
        verdict = handlers[literal->state](literal, byte, &sink);
    } while (verdict == AGAIN);
    *n_out = sink.n;
    switch (verdict) {
    case EAT:
        return RN_LITERAL_MORE;
    case ENDS:
        return RN_LITERAL_DONE;
    case ENDED:
        return RN_LITERAL_DONE_BEFORE;
    default:
        return RN_LITERAL_BAD;
    }
}

bool rn_literal_whole(const struct rn_literal *literal)
{
    if (literal->depth > 0)
        return false;
    return literal->state == END || (literal->state == QUOTED && !literal->key) ||
           (literal->state == NUMBER && number_whole(literal->number));
}

size_t rn_literal_flush(struct rn_literal *literal, char *out)
{
    struct sink sink = {out, 0};
    uint8_t i;

    if (literal->state == QUOTED)
        string_ends(literal, &sink, true);
    if (literal->state != MARK_CLOSES)
        return sink.n;
    for (i = 0; i < literal->at; i++)
        put_escaped(&sink, (unsigned char)literal->mark[i]);
    literal->at = 0;
    literal->state = STRING;
    return sink.n;
}

bool rn_literal_is(enum rn_literal_dialect dialect, const char *text, size_t n)
{
    char out[RN_LITERAL_STEP_BYTES];
    enum rn_literal_result result = RN_LITERAL_MORE;
    struct rn_literal literal;
    size_t i, n_out;

    rn_literal_init(&literal, dialect, NULL);
    for (i = 0; i < n && result == RN_LITERAL_MORE; i++)
        result = rn_literal_step(&literal, (unsigned char)text[i], out, &n_out);
    if (result == RN_LITERAL_MORE)
        return rn_literal_whole(&literal);
    for (; i < n && result == RN_LITERAL_DONE; i++)
        if (!is_space((unsigned char)text[i]))
            return false;
    if (result == RN_LITERAL_DONE_BEFORE) {
        for (i--; i < n; i++)
            if (!is_space((unsigned char)text[i]))
                return false;
        return true;
    }
    return result == RN_LITERAL_DONE;
}
