/* runnel: conversations, and the chat templates by which they become prompts. Included by runnel.h, whose rules hold
 * here too. */
#ifndef RUNNEL_CHAT_H
#define RUNNEL_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "runnel_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct runnel_model; /* runnel_model of runnel.h */

/* ---- Conversations ----------------------------------------------------------------------- */

/* A message of a conversation, in OpenAI's form; where a template takes another it is brought into that
 * (docs/TEMPLATES.md, "The forms of messages"). All strings are UTF-8 and NUL-terminated. */
typedef struct runnel_message {
    const char *role;    /* "system", "developer", "user", "assistant", "tool", or what else the template knows */
    const char *content; /* NULL: null. Of an assistant null and "" say the same: it becomes what the template takes */
    const char *more;    /* a JSON object whose members join the message ("tool_calls", "reasoning_content", "name",
                            "content" as a list of parts, ...), or NULL. null and no "tool_calls" are as no member */
} runnel_message;

/* A conversation, and how it becomes a prompt: by a chat template, the model's own or a given one. */
typedef struct runnel_chat {
    size_t struct_size;
    const runnel_message *messages; /* [n_messages] */
    size_t n_messages;
    const char *messages_json;    /* instead of messages: a JSON array of messages in OpenAI's form */
    const char *tools;            /* a JSON array of tools in OpenAI's form, or NULL */
    const char *variables;        /* a JSON object: further variables of the template ("enable_thinking"), or NULL */
    const char *template_text;    /* a Jinja template instead of the model's, or NULL */
    const char *template_name;    /* of several templates in the file; NULL: "tool_use" for a chat with tools where
                                     there is one, else the unnamed one */
    int64_t now_s;                /* the time that strftime_now reads, in seconds since 1970; 0: the machine's clock */
    uint8_t no_generation_prompt; /* 1: the text does not end with the beginning of an answer */
    uint8_t single_call;          /* 1, where calls are enforced: at most one */
    uint8_t continue_final;       /* 1: the text ends with the content of the last message, and the answer goes on with
                                     it; there is no beginning of an answer then */
    uint8_t reserved[5];
    const char *tool_choice; /* "auto": free text or calls; calls fit the schemas of their tools. "none": no call can
                                begin. "required": a call, or several. Any other text: a call of the tool of this name.
                                NULL: as "auto" if one of the tools has "strict": true (the others leave out what
                                cannot be enforced); else nothing is enforced */
} runnel_chat;

RUNNEL_API void runnel_chat_init(runnel_chat *chat, size_t struct_size);
RUNNEL_API void runnel_chat_default(runnel_chat *chat);
#define runnel_chat_default(chat) runnel_chat_init((chat), sizeof *(chat))

/* The conversation as text. When a request carries the chat, text of messages, tools and variables never becomes a
 * control token; a text from here that comes back as a prompt with parse_special has no such protection. Writes at most
 * `capacity` bytes, the whole size to *text_bytes; not NUL-terminated. Runs on this thread, bounded in time and memory.
 * Returns OK; INVALID: a NULL, malformed JSON, a part of a content that the template cannot take, or an error raised by
 * the template; NOT_FOUND: the model has no (such) template; FORMAT: its template is malformed; STATE: the model is not
 * loaded; CLOSED; NO_MEMORY. */
RUNNEL_API runnel_status runnel_apply_template(struct runnel_model *model, const runnel_chat *chat, char *text,
                                               size_t capacity, size_t *text_bytes, runnel_error *error);

/* A template [template_bytes] by itself: the members of the JSON object context [context_bytes] are its variables.
 * now_s and sizes as above. Returns OK; INVALID: a NULL, malformed JSON, or an error raised by the template; FORMAT:
 * the template is malformed; NO_MEMORY. */
RUNNEL_API runnel_status runnel_render_template(const char *template_text, size_t template_bytes, const char *context,
                                                size_t context_bytes, int64_t now_s, char *text, size_t capacity,
                                                size_t *text_bytes, runnel_error *error);

/* The prompt that a request with this chat would have, as token ids. Sizes as in runnel_tokenize, the rest as in
 * runnel_apply_template; UNSUPPORTED, too: the model has no text vocabulary. */
RUNNEL_API runnel_status runnel_tokenize_chat(struct runnel_model *model, const runnel_chat *chat, int32_t *tokens,
                                              size_t capacity, size_t *count, runnel_error *error);

/* ---- Templates --------------------------------------------------------------------------- */

/* What a chat template does with a conversation, found out by rendering small ones. Flags. */
typedef enum runnel_template_trait {
    RUNNEL_TEMPLATE_SYSTEM = 1,    /* the text of a message of the role "system" is in the prompt */
    RUNNEL_TEMPLATE_TOOLS = 2,     /* the name of a tool is in the prompt */
    RUNNEL_TEMPLATE_REASONING = 4, /* answers have marks of reasoning; it is delivered as REASONING events */
    RUNNEL_TEMPLATE_THINKING = 8,  /* the variable "enable_thinking" changes the prompt */
    RUNNEL_TEMPLATE_PARTS = 16     /* a user's content may be a list of parts; for other templates text is joined */
} runnel_template_trait;

typedef struct runnel_template_info {
    size_t struct_size; /* set by the caller to sizeof(runnel_template_info) */
    char name[64];      /* runnel_chat.template_name; "": the unnamed one. Longer names are cut */
    const char *format; /* how answers are read back: a name of docs/ANSWERS.md; never freed */
    uint64_t bytes;     /* of its source */
    uint32_t knows;     /* RUNNEL_TEMPLATE_ flags */
    uint32_t reserved;
} runnel_template_info;

/* Template `index` of the model's file, from 0. Returns OK; INVALID; NOT_FOUND: there are no more; FORMAT: the template
 * is malformed: *info is filled in but for what it knows, and the error says where; STATE: the model is not loaded;
 * CLOSED. Any thread. */
RUNNEL_API runnel_status runnel_model_template(struct runnel_model *model, uint32_t index, runnel_template_info *info,
                                               runnel_error *error);

/* The same of a template [template_bytes] by itself. Runs on this thread, bounded in time and memory. Returns OK,
 * INVALID, FORMAT or NO_MEMORY. */
RUNNEL_API runnel_status runnel_inspect_template(const char *template_text, size_t template_bytes,
                                                 runnel_template_info *info, runnel_error *error);

#ifdef __cplusplus
}
#endif

#endif
