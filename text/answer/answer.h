/* Answers read back: which part of a model's answer is reasoning, which is content, which a tool call.
 *
 *     text of the answer, control tokens written out --> rn_answer --> parts
 *     "<think>hm</think>Sure.<tool_call>{"name": "f", ..."   REASONING "hm", CONTENT "Sure.", TOOL_NAME 0 "f",
 *                                                            TOOL_ARGUMENTS 0 "{" ...
 *
 * The format follows from the chat template of the model (rn_answer_format_of): a row of a table, not code
 * per model where it can be helped. Parts come out as soon as they are certain: a marker that may be
 * beginning is held back, and so is what is needed to decide; nothing is held back twice. What does not
 * parse as the format promises is content, byte for byte, never lost. The parts depend on the concatenated
 * input alone, not on how it was cut.
 *
 * Arguments are fragments whose concatenation, when the call is complete, is one valid JSON object, in the
 * model's own bytes where the model writes JSON, and translated where it writes something else (Python-like
 * calls, XML-like parameters). A call that is cut off (length) leaves its fragments incomplete. */
#ifndef RN_TEXT_ANSWER_ANSWER_H
#define RN_TEXT_ANSWER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"

enum rn_part_kind {
    RN_PART_CONTENT,
    RN_PART_REASONING,
    RN_PART_TOOL_NAME,      /* whole; begins call number `call` */
    RN_PART_TOOL_ID,        /* whole, where the format has ids; behind the name, or behind the arguments where the model
                             * writes it there */
    RN_PART_TOOL_ARGUMENTS, /* a fragment */
    RN_PART_TOOL_END        /* the call is complete: its fragments are valid JSON. No text */
};

/* A part: the next `bytes` bytes of the text written with it. Neighbours of one kind are joined. */
struct rn_part {
    uint32_t kind; /* enum rn_part_kind */
    uint32_t call; /* TOOL_*: 0, 1, 2 ... */
    uint32_t bytes;
};

struct rn_answer_format; /* format.h */
struct rn_answer_tools;  /* tools.h */

struct rn_answer; /* the state of one stream; single owner */

/* What the end of a prompt has opened, so that the answer goes on with it. */
enum rn_opened_kind {
    RN_OPENED_NOTHING,
    RN_OPENED_REASONING,
    RN_OPENED_CALL,
    RN_OPENED_CONTENT /* reasoning was closed there, or the head of a message is written */
};

struct rn_opened {
    enum rn_opened_kind kind;
    const char *marker; /* [marker_bytes] of the format's table: static; NULL: none */
    size_t marker_bytes;
    size_t bytes; /* of the prompt's end, from the marker on */
};

/* prompt [n]: or its end. content: where the content of the message begins with which it ends, and with which the
 * answer goes on; n: it begins anew. */
struct rn_opened rn_answer_opened(const struct rn_answer_format *format, const char *prompt, size_t n, size_t content);

/* tools: those of the request, which are the answer's from here on: none are left in *tools. NULL, or without any: no
 * calls are recognised. Their schemas decide the types of arguments that a format does not mark. All memory of the
 * stream is taken here; starting and feeding allocate nothing. NULL: refused, and *tools is as before. */
struct rn_answer *rn_answer_new(struct rn_heap *heap, const struct rn_answer_format *format,
                                struct rn_answer_tools *tools);

/* Before the first feeding. prompt [n], content: as above; a template may have opened a reasoning section at its end.
 * (Apart from rn_answer_new because a prompt is rendered after its stream exists.) */
void rn_answer_start(struct rn_answer *answer, const char *prompt, size_t n, size_t content);

/* True if control tokens of this name are part of the format: the detokenizer spells out those, and no others. */
bool rn_answer_wants(const struct rn_answer *answer, const char *name, size_t n);
void rn_answer_free(struct rn_answer *answer);

/* Bounds of what feeding n bytes, or ending (n 0), writes. */
size_t rn_answer_text_bound(const struct rn_answer *answer, size_t n);
size_t rn_answer_parts_bound(const struct rn_answer *answer, size_t n);

/* Feeds text[n] (whole UTF-8; control tokens by their names: "<|channel|>"). Writes parts and their text, one behind
 * the other; returns the number of parts; *out_bytes gets the bytes of text. */
size_t rn_answer_feed(struct rn_answer *answer, const char *text, size_t n, struct rn_part *parts, char *out,
                      size_t *out_bytes);

/* The end of the answer: what was held back. finished: the model ended it itself (not cut off by a limit). */
size_t rn_answer_end(struct rn_answer *answer, bool finished, struct rn_part *parts, char *out, size_t *out_bytes);

#endif
