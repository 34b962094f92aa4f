/* Chats: from a conversation, as the host gives it, to the text and the tokens of a prompt.
 *
 *     submit (host's thread)      checks the JSON, joins all in one context: {"messages": [...], "tools": ...}
 *     tokenizer actor             renders the template with it, tokenizes: control tokens from the template alone
 *
 * A template may take long (it is a stranger's), so that it never runs inside runnel_generate. */
#ifndef RN_ACTORS_PROMPT_CHAT_H
#define RN_ACTORS_PROMPT_CHAT_H

#include "actors/prompt/chat_templates.h"
#include "base/alloc.h"
#include "runnel.h"
#include "text/answer/answer.h"
#include "text/answer/tools.h"
#include "text/template/template.h"
#include "text/vocab.h"

/* A chat on its way to its prompt: the template to use, and the context as one JSON object. */
struct rn_chat {
    struct rn_heap *heap;
    const struct rn_template *tmpl;
    struct rn_template *own; /* tmpl, when the chat brought it */
    const struct rn_answer_format *format;
    char *context; /* [context_bytes] */
    size_t context_bytes;
    struct rn_answer_tools tools;   /* until what reads the answer takes them */
    bool special;                   /* a message has what templates take in different forms */
    struct rn_template_forms forms; /* those of the template; not known of `own` */
    bool goes_on;                   /* with its last message */
    int64_t now_s;                  /* never 0 */
};

/* Checks a chat and copies what it needs. `given` is read up to its struct_size. INVALID, NOT_FOUND, FORMAT,
 * NO_MEMORY. */
runnel_status rn_chat_new(struct rn_heap *heap, const struct rn_chat_templates *templates, const runnel_chat *given,
                          struct rn_chat **out, runnel_error *error);
void rn_chat_free(struct rn_chat *chat);

/* The text; errors of rn_template_render, CANCELLED once `stop` is asked (NULL: nobody ends it). Messages are brought
 * into the forms that the template takes. Of a chat whose last message goes on the text ends with its content: INVALID
 * where the template does not write it. */
runnel_status rn_chat_render(const struct rn_chat *chat, const struct rn_vocab *vocab, struct rn_heap *heap,
                             const struct rn_interrupt *stop, struct rn_rendered *rendered, runnel_error *error);

/* The prompt of a rendered text: BOS in front where the model wants it and the text does not begin with it.
 * stop likewise. */
runnel_status rn_chat_tokenize(const struct rn_rendered *rendered, const struct rn_vocab *vocab, struct rn_heap *heap,
                               const struct rn_interrupt *stop, int32_t **tokens, size_t *count, runnel_error *error);

#endif
