/* runnel: what a call returns: a status, and an error that says more; and why a drafter rested. Included by runnel.h,
 * whose rules hold here too. */
#ifndef RUNNEL_STATUS_H
#define RUNNEL_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RUNNEL_API __attribute__((visibility("default")))
#else
#define RUNNEL_API
#endif

/* name, value, sentence */
#define RUNNEL_STATUS_MAP(X)                                                      \
    X(OK, 0, "success")                                                           \
    X(INVALID, -1, "an argument is invalid")                                      \
    X(NO_MEMORY, -2, "the allocator refused memory")                              \
    X(BUSY, -3, "a limit is reached; try again later")                            \
    X(NOT_FOUND, -4, "there is no such thing")                                    \
    X(IO, -5, "a file could not be read or written")                              \
    X(FORMAT, -6, "a file is malformed")                                          \
    X(UNSUPPORTED, -7, "the file asks for something this build does not support") \
    X(CONTEXT, -8, "the prompt does not fit the context")                         \
    X(CANCELLED, -9, "cancelled by the host")                                     \
    X(TIMEOUT, -10, "the time given has passed")                                  \
    X(CLOSED, -11, "the engine or model is being closed")                         \
    X(NUMERIC, -12, "the model produced logits that are not numbers")             \
    X(DEVICE, -13, "the compute device failed")                                   \
    X(STATE, -14, "not allowed in this state")

#define RUNNEL_STATUS_ENUM(name, value, sentence) RUNNEL_##name = value,
typedef enum runnel_status { RUNNEL_STATUS_MAP(RUNNEL_STATUS_ENUM) RUNNEL_STATUS_MAX_ = 0x7fffffff } runnel_status;
#undef RUNNEL_STATUS_ENUM

RUNNEL_API const char *runnel_status_name(runnel_status status); /* "NO_MEMORY"; "UNKNOWN" */
RUNNEL_API const char *runnel_status_text(runnel_status status); /* "the allocator refused memory" */

#define RUNNEL_ERROR_BYTES 256

/* Of a request that is refused or fails: which part of it is at fault, where that can be told of no member alone.
 * Others may come. */
typedef enum runnel_about {
    RUNNEL_ABOUT_NONE = 0,    /* the sentence alone tells */
    RUNNEL_ABOUT_PROMPT = 1,  /* it is empty */
    RUNNEL_ABOUT_GRAMMAR = 2, /* runnel_request.grammar cannot be read, or not be followed */
    RUNNEL_ABOUT_TOOLS = 3,   /* the chat's tools, or the choice among them, cannot become a grammar */
    RUNNEL_ABOUT_MAX_ = 0x7fffffff
} runnel_about;

/* What failed. A function that fails writes the status and one sentence that names the file, tensor, key or parameter
 * at fault; a function that succeeds clears it. */
typedef struct runnel_error {
    runnel_status status;
    uint32_t retry_ms; /* BUSY, where streams that end make room: estimated time until a retry may succeed; else 0, also
                          where the host has to free something first: a session, a model, a training */
    char message[RUNNEL_ERROR_BYTES];
    runnel_about about;
    uint32_t reserved_word;
    uint64_t reserved[6];
} runnel_error;

/* name, value, sentence: why passes of an answer had no guesses although its request asked for them */
#define RUNNEL_REST_MAP(X)                                             \
    X(NONE, 0, "it did not rest")                                      \
    X(WRONG, 1, "too few guesses were right")                          \
    X(DEAR, 2, "right guesses would not have paid for a longer pass")  \
    X(SLOW, 3, "the drafter takes longer than its guesses would save") \
    X(MEMORY, 4, "there was no room for the stream with the drafter")  \
    X(BROKEN, 5, "the drafter has failed")

#define RUNNEL_REST_ENUM(name, value, sentence) RUNNEL_REST_##name = value,
typedef enum runnel_rest { RUNNEL_REST_MAP(RUNNEL_REST_ENUM) RUNNEL_REST_MAX_ = 0x7fffffff } runnel_rest;
#undef RUNNEL_REST_ENUM

RUNNEL_API const char *runnel_rest_name(runnel_rest rest); /* "WRONG"; "UNKNOWN" */
RUNNEL_API const char *runnel_rest_text(runnel_rest rest); /* "too few guesses were right" */

#ifdef __cplusplus
}
#endif

#endif
