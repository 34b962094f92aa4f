/* What an answer may be, as a request asks for it: checked and copied at submit, read by the grammar actor. */
#ifndef RN_ACTORS_GRAMMAR_TEXT_H
#define RN_ACTORS_GRAMMAR_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "runnel.h"
#include "text/answer/answer.h"

struct rn_chat;

struct rn_grammar_text {
    struct rn_heap *heap;
    runnel_grammar_kind kind; /* NONE: the content is free, and tool calls are not */
    bool free_white, any_order, closed, one_of_as_any_of, allow_unenforced, free_reasoning;
    char *text; /* [text_bytes] of CHOICES what rn_choices_text gives; NULL where the kind needs none */
    size_t text_bytes;

    /* Of a chat whose answer is read back. */
    const struct rn_answer_format *format; /* NULL: the answer is its content, from the first token on */
    char *tools;                           /* NUL-terminated JSON array; NULL: there are none */
    char *tool_choice;                     /* NUL-terminated; NULL: as "auto" (see answer_rules.h) */
    bool single_call;
    struct rn_opened opened; /* by the end of the prompt: set by the tokenizer */
};

/* Checks what is asked for and copies it; *out NULL and OK: nothing is. chat: of the request, as rn_chat_new read it;
 * NULL: it has none. INVALID names the member; NO_MEMORY. */
runnel_status rn_grammar_text_new(struct rn_heap *heap, const runnel_request *request, const struct rn_chat *chat,
                                  struct rn_grammar_text **out, runnel_error *error);
void rn_grammar_text_free(struct rn_grammar_text *text); /* NULL is allowed */

/* Bytes of the copies. */
size_t rn_grammar_text_bytes(const struct rn_grammar_text *text);

#endif
