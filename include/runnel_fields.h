/* runnel: tables of the members that a host fills in, for programs that carry them on: options, JSON members, bindings.
 * A program that expands a table and has a row for each name cannot miss one that a later version adds; tests of the
 * library hold the tables against the structs.
 *
 *     #define PRINT(type, name) puts(#name);
 *     RUNNEL_SAMPLING_FIELDS(PRINT)
 */
#ifndef RUNNEL_FIELDS_H
#define RUNNEL_FIELDS_H

#include "runnel.h"

/* type, name: of runnel_sampling, in its order, without `reserved` */
#define RUNNEL_SAMPLING_FIELDS(X)        \
    X(float, temperature)                \
    X(uint32_t, top_k)                   \
    X(float, top_p)                      \
    X(float, min_p)                      \
    X(float, repetition_penalty)         \
    X(float, frequency_penalty)          \
    X(float, presence_penalty)           \
    X(uint32_t, penalty_tokens)          \
    X(uint64_t, seed)                    \
    X(const runnel_logit_bias *, biases) \
    X(size_t, n_biases)

/* likewise of runnel_request, without struct_size, sampling and `reserved` */
#define RUNNEL_REQUEST_FIELDS(X)     \
    X(const char *, prompt)          \
    X(size_t, prompt_bytes)          \
    X(const int32_t *, tokens)       \
    X(size_t, n_tokens)              \
    X(const runnel_chat *, chat)     \
    X(runnel_session, session)       \
    X(int64_t, max_tokens)           \
    X(const char *const *, stops)    \
    X(size_t, n_stops)               \
    X(const int32_t *, stop_tokens)  \
    X(size_t, n_stop_tokens)         \
    X(runnel_event_fn, on_event)     \
    X(void *, user)                  \
    X(const char *, label)           \
    X(uint64_t, cache_salt)          \
    X(uint64_t, tenant)              \
    X(int32_t, priority)             \
    X(uint32_t, deadline_ms)         \
    X(uint32_t, n_top)               \
    X(uint32_t, coalesce_bytes)      \
    X(uint32_t, draft)               \
    X(uint32_t, draft_max)           \
    X(runnel_cache_wait, cache_wait) \
    X(uint32_t, cache_wait_ms)       \
    X(uint8_t, parse_special)        \
    X(uint8_t, ignore_eos)           \
    X(uint8_t, want_logprobs)        \
    X(uint8_t, want_progress)        \
    X(uint8_t, want_logits)          \
    X(uint8_t, raw_answer)           \
    X(uint8_t, pin_prefix)           \
    X(uint8_t, draft_share)          \
    X(uint8_t, draft_chain)          \
    X(int64_t, context_keep)

/* likewise of runnel_chat, without struct_size and `reserved` */
#define RUNNEL_CHAT_FIELDS(X)           \
    X(const runnel_message *, messages) \
    X(size_t, n_messages)               \
    X(const char *, messages_json)      \
    X(const char *, tools)              \
    X(const char *, variables)          \
    X(const char *, template_text)      \
    X(const char *, template_name)      \
    X(int64_t, now_s)                   \
    X(uint8_t, no_generation_prompt)

#endif
