/* runnel: what an answer may be. Included by runnel.h, whose rules hold here too. docs/GRAMMARS.md teaches the
 * notations. */
#ifndef RUNNEL_GRAMMAR_H
#define RUNNEL_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

#include "runnel_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum runnel_grammar_kind {
    RUNNEL_GRAMMAR_NONE = 0,    /* any text */
    RUNNEL_GRAMMAR_GBNF,        /* text: llama.cpp's notation; begins with the rule `root` */
    RUNNEL_GRAMMAR_REGEX,       /* text: a regular expression; all of the answer matches it */
    RUNNEL_GRAMMAR_EBNF,        /* text: Lark's notation; begins with the rule `start` */
    RUNNEL_GRAMMAR_CHOICES,     /* choices: the answer is one of them */
    RUNNEL_GRAMMAR_JSON,        /* any JSON value */
    RUNNEL_GRAMMAR_JSON_OBJECT, /* any JSON object */
    RUNNEL_GRAMMAR_JSON_SCHEMA  /* text: a JSON Schema */
} runnel_grammar_kind;

/* Only tokens that the grammar allows are drawn, and what ends the answer only where its text is complete: the model's
 * end-of-text tokens (without ignore_eos) and the request's stop tokens. Other control tokens are never allowed, unless
 * the grammar names them. Where nothing but the end is allowed the answer ends, whatever ignore_eos and min_tokens say.
 * A stop token that the grammar takes as text, stop strings, max_tokens and deadlines may cut it before that. */
typedef struct runnel_grammar {
    size_t struct_size;
    const char *text; /* [text_bytes] UTF-8 */
    size_t text_bytes;
    const char *const *choices; /* [n_choices], NUL-terminated, UTF-8 */
    size_t n_choices;
    uint32_t kind;            /* a runnel_grammar_kind */
    uint8_t free_white;       /* JSON: white space where JSON allows it; 0: none */
    uint8_t any_order;        /* JSON_SCHEMA: properties of small objects in any order; 0: in the schema's */
    uint8_t closed;           /* JSON_SCHEMA: objects that do not say have no other properties than those listed */
    uint8_t one_of_as_any_of; /* JSON_SCHEMA: oneOf, where branches overlap, is taken as anyOf */
    uint8_t allow_unenforced; /* JSON_SCHEMA: what cannot be enforced is left out; 0: refused by name */
    uint8_t free_reasoning;   /* 1 (default): the reasoning of a chat's answer is free and the grammar begins behind
                                 it; 0: it holds from the first token on */
    uint8_t reserved[22];
} runnel_grammar;

#define RUNNEL_MAX_GRAMMAR_BYTES (2u << 20) /* of text, or of all choices */

RUNNEL_API void runnel_grammar_init(runnel_grammar *grammar, size_t struct_size);
RUNNEL_API void runnel_grammar_default(runnel_grammar *grammar);
#define runnel_grammar_default(grammar) runnel_grammar_init((grammar), sizeof *(grammar))

#ifdef __cplusplus
}
#endif

#endif
