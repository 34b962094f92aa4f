/* The formats of answers, as tables: a format is a row of each of three.
 *
 *     how reasoning is marked  x  how calls are written  x  how a turn ends
 *
 * A pattern is a string of literal text and of the fields below; a marker is a pattern without fields. */
#ifndef RN_TEXT_ANSWER_FORMAT_H
#define RN_TEXT_ANSWER_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fields of a pattern. Those from CALL to GEMMA end it: what follows is read by code. */
#define RN_F_NAME "\x01"   /* the name of the function */
#define RN_F_ID "\x02"     /* the id of the call */
#define RN_F_INDEX "\x03"  /* "functions.NAME:INDEX": an id that holds the name */
#define RN_F_SPACE "\x04"  /* white space, or none */
#define RN_F_CALL "\x05"   /* JSON: {"name": .., "arguments": {..}}, or a list of such */
#define RN_F_KEYED "\x06"  /* JSON: {"name": {arguments}}, or a list of such */
#define RN_F_OBJECT "\x07" /* JSON: the arguments alone */
#define RN_F_PARAMS "\x08" /* parameter after parameter, as `params` says */
#define RN_F_PYTHON "\x0b" /* f(a=1), or a list of such */
#define RN_F_GEMMA "\x0c"  /* a:1,b:<|"|>x<|"|>} */
#define RN_F_ANY "\x0e"    /* what means nothing, up to the byte that follows in the pattern */

static inline bool rn_is_field(char c)
{
    return (c > 0 && c <= 0x08) || c == 0x0b || c == 0x0c || c == 0x0e;
}
static inline bool rn_field_ends_pattern(char c)
{
    return (c >= 0x05 && c <= 0x08) || c == 0x0b || c == 0x0c;
}

/* May the byte stand in a name or an id that is not quoted? */
bool rn_answer_name_byte(char c);

/* Bits of a call row. */
enum rn_call_flag {
    RN_CALL_KNOWN = 1,    /* the marks are everyday text: only names of the request's tools make a call */
    RN_CALL_MESSAGES = 2, /* ">>>all\n" opens content */
    RN_CALL_LINES = 4,    /* behind a call, another may follow without its mark, up to a closer */
    RN_CALL_THINKING = 8  /* models forget to close reasoning before a call: one of the request's tools ends it */
};

/* An answer may be a row of messages: "<|start|>assistant", a header that says what the message is, "<|message|>", its
 * text, an end. */
enum rn_headers {
    RN_HEADERS_NONE,
    RN_HEADERS_CHANNELS,  /* harmony: a channel, and for calls a recipient */
    RN_HEADERS_RECIPIENTS /* a recipient alone */
};

enum rn_value_rule { RN_VALUE_BY_SCHEMA, RN_VALUE_TEXT, RN_VALUE_JSON };

/* How parameters are marked: open KEY opener[i] VALUE close, and `end` behind the last. */
struct rn_param_syntax {
    const char *open;
    struct {
        const char *pattern; /* behind the key; begins with the byte that ends it */
        enum rn_value_rule rule;
    } openers[3];
    const char *close;
    const char *end;
    bool lines;       /* a value stands on lines of its own: one newline before and after it is not part of it */
    bool cdata;       /* a value in <![CDATA[ .. ]]> is text */
    bool python;      /* values without a type are written as Python prints them */
    const char *item; /* a value may have marked members of its own, or items with this key; what closes it is `close`,
                         its key and '>'. NULL: it may not */
};

/* How calls are written, as a grammar asks for it: begin, call, between, call, ..., end. Patterns; here the fields from
 * CALL to GEMMA may have more behind them, CALL, KEYED and PYTHON are one call each, PARAMS includes its end, GEMMA its
 * brace. */
struct rn_call_writing {
    const char *begin, *call, *between, *end; /* NULL: nothing; but call */
};

struct rn_call_row {
    const char *name;
    const char *tells[2][3]; /* any of these sets, all of whose strings are in the template */
    const char *open[4];     /* patterns; those with the same beginning are tried in this order */
    const char *closers[5];  /* markers that mean nothing behind a call; "```" where its opening has one */
    struct rn_call_writing written[4];
    const struct rn_param_syntax *params;
    const char *mark; /* of strings, for GEMMA */
    uint32_t flags;
    enum rn_headers headers;
};

struct rn_reasoning_row {
    const char *name;
    const char *tells[2];
    const char *open[2];
    const char *close;       /* NULL: there is no reasoning */
    const char *wrappers[4]; /* markers around content */
    bool anywhere;           /* it may begin within content; else only where a section begins */
    bool trim;               /* newlines at the wrappers go with them */
    bool response_ends;      /* wrappers[0] ends it where `close` was forgotten */
};

struct rn_turn_row {
    const char *tells[2];
    const char *ends[3];
    uint32_t newlines; /* so many at most before an end belong to it */
};

struct rn_answer_rows {
    const struct rn_reasoning_row *reasoning;
    const struct rn_call_row *calls;
    const struct rn_turn_row *turn;
};

struct rn_answer_format; /* static, immutable */

/* The format that answers to this template have; never NULL: one that knows neither reasoning nor tools if the
 * template shows nothing. source [n]: the template's. */
const struct rn_answer_format *rn_answer_format_of(const char *source, size_t n);

/* Its name, for logs and tests: "json-in-tags", "harmony", ... */
const char *rn_answer_format_name(const struct rn_answer_format *format);

/* True if it has marks of reasoning. */
bool rn_answer_format_reasons(const struct rn_answer_format *format);

struct rn_answer_rows rn_answer_format_rows(const struct rn_answer_format *format);

/* The length of the literal text that a pattern begins with. */
size_t rn_pattern_head(const char *pattern);

#endif
