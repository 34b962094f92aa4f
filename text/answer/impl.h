/* The state of one answer being read, shared by the files that read it (answer_*.c).
 *
 *     window:  [ . . . base . . . . cur . . . . len )
 *                      |  held back  |  not yet looked at
 *
 * A mode looks at the bytes from cur. Until a call is certain ("committed") nothing from base on has been given out,
 * and a failure goes back to base: the next pattern is tried, and in the end the byte at base is text. Once committed,
 * bytes are taken as they are read, and after a failure the rest is text.
 *
 * What is held is bounded: RN_ANSWER_HOLD bytes behind base. Decisions depend on offsets from base alone, never on
 * how much happens to lie in the window: that makes the parts independent of how the input was cut. */
#ifndef RN_TEXT_ANSWER_IMPL_H
#define RN_TEXT_ANSWER_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "text/answer/answer.h"
#include "text/answer/format.h"
#include "text/answer/literal.h"
#include "text/answer/tools.h"

#define RN_ANSWER_HOLD 8192u       /* bytes behind base, at most */
#define RN_ANSWER_WINDOW 12288u    /* that, and room to look at more at once */
#define RN_ANSWER_VALUE_HOLD 4096u /* of a parameter's value, until its type is decided */
#define RN_ANSWER_FIELD 256u       /* bytes of a name, an id, a key */
#define RN_ANSWER_SPACES 64u       /* white space that is held back, or stands between two markers */
#define RN_ANSWER_MARKERS 32u
#define RN_ANSWER_LEVELS 32u /* of values within values that are marked */
#define RN_ANSWER_KEYS 1024u /* bytes of the keys that are open */

enum rn_answer_mode {
    RN_MODE_TEXT,
    RN_MODE_OPEN,          /* a pattern is being matched */
    RN_MODE_WRAP,          /* JSON around the arguments */
    RN_MODE_LITERAL,       /* the arguments, through the literal machine */
    RN_MODE_PARAMS,        /* between parameters */
    RN_MODE_KEY,           /* the name of a parameter */
    RN_MODE_VALUE,         /* what kind of value? */
    RN_MODE_VALUE_TEXT,    /* a value that is a string */
    RN_MODE_VALUE_LITERAL, /* one that is an object or a list */
    RN_MODE_VALUE_CLOSE,   /* behind that */
    RN_MODE_VALUE_HELD,    /* one that is judged when it is whole */
    RN_MODE_PYTHON,
    RN_MODE_HEADER, /* of a message */
    RN_N_MODES
};

enum rn_answer_step { RN_STEP_ON, RN_STEP_WAIT, RN_STEP_FAIL };

enum rn_answer_match { RN_MATCH_NONE, RN_MATCH_PARTIAL, RN_MATCH_FULL };

enum rn_answer_skip { RN_SKIP_NONE, RN_SKIP_ONE_SPACE, RN_SKIP_NEWLINES, RN_SKIP_SPACES };

enum rn_marker_role {
    RN_MARKER_CALL,
    RN_MARKER_REASONING,
    RN_MARKER_REASONING_END,
    RN_MARKER_WRAPPER,
    RN_MARKER_CLOSER,
    RN_MARKER_TURN_END,
    RN_MARKER_HEADER
};

struct rn_answer_marker {
    const char *text;
    uint32_t bytes;
    uint8_t role;
    uint8_t pattern; /* CALL: which of the row's */
};

struct rn_field {
    uint32_t bytes;
    char text[RN_ANSWER_FIELD];
};

/* A JSON string being decoded. */
struct rn_unescape {
    uint32_t code, high;
    uint8_t digits; /* still to come; 0: none */
    bool escape;
};

/* JSON around the arguments: {"name": .., "id": .., "arguments": {..}} */
struct rn_wrap {
    uint8_t state, key;
    bool keyed;                   /* {"name": {arguments}} */
    bool list;                    /* within [ ] */
    bool nested;                  /* within "function": { } */
    bool held;                    /* arguments came before the name: they lie in the window */
    bool argued;                  /* arguments were given out */
    bool id_sent;                 /* or there is none */
    uint32_t held_at, held_bytes; /* from base */
    struct rn_unescape unescape;
};

/* Marked values within marked values: level 0 is the arguments, the last one the value that is read. */
struct rn_nest {
    uint32_t depth, key_bytes; /* of the levels above 0; of their keys, one behind the other */
    struct {
        struct rn_value schema;
        uint32_t n, key_at; /* members so far; its key, up to the next level's */
        bool list;
    } levels[RN_ANSWER_LEVELS];
    char keys[RN_ANSWER_KEYS];
};

struct rn_answer {
    struct rn_heap *heap;
    struct rn_answer_rows rows;
    struct rn_answer_tools tools;
    bool has_tools;
    struct rn_answer_marker markers[RN_ANSWER_MARKERS];
    uint32_t n_markers;
    int bare;         /* the pattern that begins without a marker, or -1 */
    bool stops[256];  /* bytes at which plain text must be looked at */
    bool holds_space; /* white space may go with a marker behind it */

    uint32_t base, cur, len;
    uint32_t phantom; /* so many bytes from base on are the prompt's: never given out */
    uint8_t mode;
    bool committed;
    bool final;    /* no more input comes */
    bool finished; /* and the model ended by itself */

    /* TEXT */
    uint32_t kind; /* RN_PART_CONTENT or RN_PART_REASONING */
    uint8_t skip;  /* enum rn_answer_skip: white space that goes at the beginning */
    bool start;    /* nothing but white space since a section began */
    bool said;     /* something was given out */
    bool after_call;
    bool fenced;   /* the last call's pattern opened a fence of code that nothing has closed */
    bool unclosed; /* a call began in reasoning: what closes that may still come */
    bool in_lines; /* a call of RN_CALL_LINES has ended, and nothing else has come since */
    bool blocked;  /* no call begins at base: that was tried */
    bool to_user;  /* the message is the user's: a call in it is quoted */

    /* a call */
    const char *pattern;
    int pattern_index; /* in the row; -1: there is no other to try */
    uint32_t pattern_at, spaces;
    uint32_t lead; /* white space before the marker */
    bool in_field;
    struct rn_field name, id, key, text;
    uint32_t call, n_calls;
    struct rn_value function;
    uint8_t resume; /* the mode behind LITERAL; TEXT: the call ends */
    struct rn_wrap wrap;
    struct rn_literal literal;

    /* parameters, python */
    uint32_t n_params, types;
    uint32_t scan; /* behind cur: so much of a held value holds no end */
    uint8_t rule, python;
    bool list, in_cdata, line_passed;
    struct rn_nest nest; /* of a syntax with items */

    struct rn_part *parts; /* while feeding */
    size_t n_parts;
    char *out;
    size_t n_out;
    char window[RN_ANSWER_WINDOW];
};

static inline bool rn_answer_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Gives out bytes[n] as a part of this kind, joined to the last where that is the same. */
void rn_answer_put(struct rn_answer *a, uint32_t kind, const char *bytes, size_t n);

/* A byte, or a string with its quotes, as arguments. */
void rn_answer_put_escaped(struct rn_answer *a, char byte);
void rn_answer_put_string(struct rn_answer *a, const char *bytes, size_t n);

/* Takes everything up to cur: it can not come back. */
void rn_answer_take(struct rn_answer *a);

/* Does window[at..) begin with the pattern (literal text, RN_F_SPACE, RN_F_ANY)? *bytes: how many it took, if FULL. */
enum rn_answer_match rn_answer_match(const struct rn_answer *a, uint32_t at, const char *pattern, uint32_t *bytes);

/* Bytes to a field; false: it is full. */
bool rn_field_add(struct rn_field *field, const char *bytes, size_t n);
bool rn_field_is(const struct rn_field *field, const char *text);

/* Decodes one byte of a JSON string (not its closing quote); false: malformed. Up to 4 bytes to out. */
bool rn_unescape_step(struct rn_unescape *u, char c, char *out, uint32_t *n_out);

/* Is no escape under way? */
bool rn_unescape_rests(const struct rn_unescape *u);

/* The call is certain: gives out its name and, if known, its id. False: the name is none of the tools', and must be. */
bool rn_answer_commit(struct rn_answer *a);

/* The call is complete: gives out its end; text follows. */
void rn_answer_call_ends(struct rn_answer *a);

/* Begins to match a pattern at cur. */
void rn_answer_open(struct rn_answer *a, const char *pattern, int index);

/* One step through the literal machine: gives out what it writes. */
enum rn_literal_result rn_answer_literal(struct rn_answer *a, char byte);

/* The modes. */
enum rn_answer_step rn_answer_on_open(struct rn_answer *a);
enum rn_answer_step rn_answer_on_wrap(struct rn_answer *a);
enum rn_answer_step rn_answer_on_literal(struct rn_answer *a);
enum rn_answer_step rn_answer_on_params(struct rn_answer *a);
enum rn_answer_step rn_answer_on_key(struct rn_answer *a);
enum rn_answer_step rn_answer_on_value(struct rn_answer *a);
enum rn_answer_step rn_answer_on_value_text(struct rn_answer *a);
enum rn_answer_step rn_answer_on_value_literal(struct rn_answer *a);
enum rn_answer_step rn_answer_on_value_close(struct rn_answer *a);
enum rn_answer_step rn_answer_on_value_held(struct rn_answer *a);
enum rn_answer_step rn_answer_on_python(struct rn_answer *a);
enum rn_answer_step rn_answer_on_header(struct rn_answer *a);

/* Begin the modes that have a state of their own; cur is at the first byte. */
void rn_answer_begin_wrap(struct rn_answer *a, bool keyed);
void rn_answer_begin_params(struct rn_answer *a);
void rn_answer_begin_python(struct rn_answer *a);
void rn_answer_begin_header(struct rn_answer *a);

/* ---- nested.c: values with members of their own; only of a syntax that has them ---- */

void rn_answer_nest_begin(struct rn_answer *a);

/* The key of a member is whole: gives it out, and what opens the object or list that it is in. False: it has no place
 * there. */
bool rn_answer_nest_member(struct rn_answer *a);

/* Does what closes the innermost value stand at `at`? */
enum rn_answer_match rn_answer_nest_closes(const struct rn_answer *a, uint32_t at, uint32_t *bytes);

/* At a value's first byte: ON, and the mode is that of its members, or it was empty and is over; FAIL: it is neither. */
enum rn_answer_step rn_answer_nest_value(struct rn_answer *a);

/* The innermost value is over; `closed`: it had members. */
void rn_answer_nest_ends(struct rn_answer *a, bool closed);

/* The types of the innermost value. */
uint32_t rn_answer_nest_types(const struct rn_answer *a);

/* The input ends within a value: gives out what is held of it. */
void rn_answer_cut_value(struct rn_answer *a);

#endif
