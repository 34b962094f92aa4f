/* The chat templates of a model's file, parsed and asked what they know. Immutable once loaded: any thread reads
 * them. */
#ifndef RN_ACTORS_PROMPT_CHAT_TEMPLATES_H
#define RN_ACTORS_PROMPT_CHAT_TEMPLATES_H

#include "base/alloc.h"
#include "model/gguf/gguf.h"
#include "runnel.h"
#include "text/answer/answer.h"
#include "text/template/template.h"

struct rn_chat_template {
    char *name;                 /* "" for tokenizer.chat_template, "tool_use" for tokenizer.chat_template.tool_use */
    size_t bytes;               /* of its source */
    struct rn_template *parsed; /* NULL: error says why */
    runnel_error error;
    struct rn_template_traits traits;
    const struct rn_answer_format *format;
};

struct rn_chat_templates {
    struct rn_heap *heap;
    struct rn_chat_template *list; /* [n] */
    uint32_t n;
};

/* The templates of a file. One that is malformed is kept with its error: it fails who uses it, not the load.
 * NO_MEMORY alone is an error. */
runnel_status rn_chat_templates_init(struct rn_chat_templates *templates, struct rn_heap *heap,
                                     const struct rn_gguf *gguf);
void rn_chat_templates_fini(struct rn_chat_templates *templates);

/* The one of that name; of name NULL "tool_use" for a chat with tools where there is one, else the unnamed one. NULL:
 * there is none. */
const struct rn_chat_template *rn_chat_template_find(const struct rn_chat_templates *templates, const char *name,
                                                     bool tools);

/* One template by itself, named `name`; fini frees what it holds. NO_MEMORY alone is an error. */
runnel_status rn_chat_template_init(struct rn_chat_template *tmpl, struct rn_heap *heap, struct rn_view name,
                                    struct rn_view source);
void rn_chat_template_fini(struct rn_chat_template *tmpl, struct rn_heap *heap);

/* What the public interface tells of it; as runnel_model_template. */
runnel_status rn_chat_template_tell(const struct rn_chat_template *tmpl, runnel_template_info *info,
                                    runnel_error *error);

#endif
