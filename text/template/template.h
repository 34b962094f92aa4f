/* Chat templates: the part of Jinja2 (trim_blocks, lstrip_blocks, loopcontrols, as Hugging Face's
 * transformers configures it) that templates in model files use.
 *
 * A template comes from a stranger's file: parsing and rendering are bounded in steps, output, depth
 * and memory, and end in an error that names line and column, never in a crash or a long wait.
 *
 * What was rendered knows where it came from: text of the template itself and of trusted variables
 * (bos_token and the like) may hold control tokens; text of the caller's data (messages, tools,
 * arguments) may not, whatever it says. So the result carries the ranges that are data, and
 * rn_tokenize_marked (vocab.h) leaves control tokens in them unrecognised. A string operation keeps the
 * origin of each byte where it can, and calls the whole result data where it can not. */
#ifndef RN_TEXT_TEMPLATE_TEMPLATE_H
#define RN_TEXT_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "model/gguf/gguf.h"
#include "text/range.h"

struct rn_template; /* parsed; immutable, any thread may render it */

struct rn_template_limits {
    uint64_t steps; /* nodes evaluated and bytes copied, together */
    size_t output_bytes;
    size_t memory_bytes; /* of values, while rendering */
    uint32_t depth;      /* nesting of expressions, blocks and macro calls */
};

/* 10^8 steps, 64 MiB of output, 256 MiB of values, depth 200. */
extern const struct rn_template_limits rn_template_limits_default;

struct rn_rendered {
    char *text; /* [n], UTF-8, not NUL-terminated; from the heap, also when n is 0 */
    size_t n;
    struct rn_range *data; /* [n_data] ascending, disjoint, not touching: what came from the caller's data */
    size_t n_data;
    size_t content; /* of a text that ends with the content of a message: where that begins; else n */
};

/* A trusted string that the template sees under `name`: "bos_token", "eos_token". */
struct rn_template_string {
    const char *name;
    struct rn_view text;
};

/* Whose content it is: templates write that of one role in another way than that of the next. */
enum rn_template_role {
    RN_TEMPLATE_USER,
    RN_TEMPLATE_SYSTEM,
    RN_TEMPLATE_DEVELOPER,
    RN_TEMPLATE_ASSISTANT,
    RN_TEMPLATE_CALLS, /* an assistant's message with calls */
    RN_TEMPLATE_TOOL,
    RN_TEMPLATE_OTHER
};

/* What the content of an assistant's message can be that says nothing. */
enum rn_template_content { RN_TEMPLATE_NULL, RN_TEMPLATE_EMPTY, RN_TEMPLATE_MISSING };

enum rn_template_arguments { RN_TEMPLATE_AS_GIVEN, RN_TEMPLATE_AS_OBJECT, RN_TEMPLATE_AS_TEXT };

/* The forms in which a template takes messages, where templates differ. A conversation in OpenAI's form is brought into
 * them before it is rendered. All 0: it stays as it is, but for members that are null, calls that are none, and
 * refusals; so it does where nothing could be found out. */
struct rn_template_forms {
    bool parts;       /* a user's content that is a list of text parts comes out as their text */
    uint32_t joined;  /* 1 << enum rn_template_role: there such a list is lost, fails or comes out as Python writes it;
                       * the parts become one string, with newlines between */
    uint8_t unfit[2]; /* 1 << enum rn_template_content, of a turn without calls and of one with: it fails, is written as
                       * a word or loses the call, where another of them does not; null or "" takes its place */
    enum rn_template_arguments arguments; /* what those of a call become, JSON text or an object; AS_GIVEN where the
                                           * template writes the one like the other */
    bool developer_as_system; /* it does not know the role "developer": such messages get the role "system" */
    const char *reasoning_as; /* of an answer: the member it reads, as reasoning_content is not; NULL: none else, too */
    bool reasoning_is_part;   /* that is one of a first part of the content, of that type */
    bool reasoning_alone; /* it does not take reasoning and content beside calls: there the content goes behind it */
};

/* What to render with. Names in `json` win over those in `strings`; both are seen as global variables.
 * raise_exception, strftime_now, range, namespace, dict, joiner, cycler and lipsum-free basics are always there. */
struct rn_template_context {
    const char *json; /* [json_bytes]: one JSON object; its members are the variables. Data, not trusted. */
    size_t json_bytes;
    const struct rn_template_string *strings; /* [n_strings], borrowed */
    size_t n_strings;
    int64_t now_s;                         /* for strftime_now: seconds since the epoch, taken as UTC */
    const struct rn_template_forms *forms; /* what the variable "messages" is brought into first; NULL: it stays */
    const struct rn_interrupt *stop;       /* ends the rendering; NULL: nobody does */
};

/* Parses source[n] (UTF-8). FORMAT: a syntax error, "line L, column C: ..."; UNSUPPORTED: a tag, filter or test
 * that is unknown may stay an error of rendering, as in Jinja2, if it is reached; NO_MEMORY. */
runnel_status rn_template_parse(struct rn_heap *heap, const char *source, size_t n, struct rn_template **out,
                                runnel_error *error);
void rn_template_free(struct rn_template *tmpl);

/* Renders. INVALID: the context is not a JSON object, or the template raised an error (raise_exception: its own
 * sentence; else "line L, column C: ..."); BUSY is never returned; a bound that is exceeded is INVALID and named;
 * CANCELLED once context->stop is asked.
 * limits NULL: the defaults. */
runnel_status rn_template_render(const struct rn_template *tmpl, struct rn_heap *heap,
                                 const struct rn_template_context *context, const struct rn_template_limits *limits,
                                 struct rn_rendered *out, runnel_error *error);

void rn_rendered_free(struct rn_rendered *rendered, struct rn_heap *heap);

/* What a template does with a conversation. */
struct rn_template_traits {
    bool system;   /* the text of a message of role "system" comes out */
    bool tools;    /* the name of a tool comes out */
    bool thinking; /* the variable enable_thinking changes the text */
    struct rn_template_forms forms;
};

/* Finds the traits, or the forms alone, out by rendering small conversations within narrow limits. A template that
 * fails with one does not have that trait; a message changes its form only where the template was seen to take the
 * other one. NO_MEMORY. */
runnel_status rn_template_probe(const struct rn_template *tmpl, struct rn_heap *heap,
                                struct rn_template_traits *traits);
runnel_status rn_template_probe_forms(const struct rn_template *tmpl, struct rn_heap *heap,
                                      struct rn_template_forms *forms);

#endif
