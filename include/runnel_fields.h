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
    X(size_t, n_biases)                  \
    X(const runnel_samplers *, samplers)

/* The samplers of a chain, in the order in which they stand unless runnel_samplers.order says another:
 *
 *   name, what it needs besides the logits, what it does
 *
 * COUNTS: of the tokens so far; HISTORY: their order, too; NOTHING; RANKS: who is better than whom; COIN: one of its
 * own; HOST: the host; STATE: what it has drawn before */
#define RUNNEL_SAMPLER_NAMES(X)                                                                  \
    X(penalties, COUNTS, "repetition, frequency and presence penalty")                           \
    X(dry, HISTORY, "what would go on with a repetition becomes less likely")                    \
    X(temperature, NOTHING, "divides the logits; with a range, by the entropy")                  \
    X(top_n_sigma, NOTHING, "logits within so many standard deviations of the best")             \
    X(top_k, RANKS, "the likeliest so many")                                                     \
    X(typical_p, RANKS, "those whose information is nearest to the entropy")                     \
    X(top_p, RANKS, "the likeliest that together reach a share")                                 \
    X(min_p, NOTHING, "those at least so likely as a share of the likeliest")                    \
    X(xtc, COIN, "now and then, of several likely tokens only the least likely")                 \
    X(host, HOST, "runnel_samplers.choose: the host draws, or changes logits")                   \
    X(mirostat, STATE, "keeps the surprise near a target, version 1 or 2; draws, so it is last") \
    X(adaptive_p, STATE, "keeps the probability near a target; draws, so it is last")

/* The numbers of runnel_samplers:
 *
 *   type, member, its sampler, default, least, most, the program's option, the JSON member of batch lines, help */
#define RUNNEL_SAMPLERS_NUMBERS(X)                                                                 \
    X(uint32_t, min_tokens, ends, 0, 0, 4294967295.0, "--min-tokens", "min_tokens",                \
      "until an answer has N tokens, nothing that ends it is drawn; default 0")                    \
    X(uint32_t, penalty_scope, penalties, 0, 0, 1, "--penalty-scope", "penalty_scope",             \
      "penalties count 0: prompt and answer (default), 1: the answer")                             \
    X(float, dry_multiplier, dry, 0, 0, 1e6, "--dry-multiplier", "dry_multiplier",                 \
      "make what goes on with a repetition less likely, by X; 0: off (default)")                   \
    X(float, dry_base, dry, 1.75, 1, 1e6, "--dry-base", "dry_base",                                \
      "for each token that the repetition is longer, X times as much; default 1.75")               \
    X(uint32_t, dry_allowed_length, dry, 2, 1, 64, "--dry-allowed-length", "dry_allowed_length",   \
      "repetitions shorter than N tokens are left alone; default 2")                               \
    X(uint32_t, dry_tokens, dry, 0, 0, 4294967295.0, "--dry-penalty-last-n", "dry_penalty_last_n", \
      "look at the last N tokens; 0: all (default)")                                               \
    X(float, top_n_sigma, top_n_sigma, 0, 0, 1e6, "--top-n-sigma", "top_n_sigma",                  \
      "drop logits X standard deviations below the best; 0: off (default)")                        \
    X(float, typical_p, typical_p, 1, 0, 1, "--typical", "typical_p",                              \
      "keep the most typical that together reach X; 1: off (default)")                             \
    X(float, xtc_probability, xtc, 0, 0, 1, "--xtc-probability", "xtc_probability",                \
      "so often, drop all likely tokens but the least likely; 0: off (default)")                   \
    X(float, xtc_threshold, xtc, 0.1, 0, 1, "--xtc-threshold", "xtc_threshold",                    \
      "likely is what has at least this probability; default 0.1")                                 \
    X(float, temperature_range, temperature, 0, 0, 1000, "--dynatemp-range", "dynatemp_range",     \
      "temperature lower or higher by up to X, by the entropy; 0: off (default)")                  \
    X(float, temperature_exponent, temperature, 1, 0, 1000, "--dynatemp-exp", "dynatemp_exponent", \
      "exponent of the entropy's share in that; default 1")                                        \
    X(uint32_t, mirostat, mirostat, 0, 0, 2, "--mirostat", "mirostat",                             \
      "keep the surprise near --mirostat-ent: version 1 or 2; 0: off (default)")                   \
    X(float, mirostat_tau, mirostat, 5, 0, 1000, "--mirostat-ent", "mirostat_tau",                 \
      "the surprise that mirostat steers to, in bits; default 5")                                  \
    X(float, mirostat_eta, mirostat, 0.1, 0, 1000, "--mirostat-lr", "mirostat_eta",                \
      "how fast mirostat steers; default 0.1")                                                     \
    X(float, adaptive_target, adaptive_p, -1, -1, 1, "--adaptive-target", "adaptive_target",       \
      "prefer tokens of about this probability; below 0: off (default)")                           \
    X(float, adaptive_decay, adaptive_p, 0.9, 0, 0.99, "--adaptive-decay", "adaptive_decay",       \
      "how long adaptive_p remembers what was drawn; default 0.9")                                 \
    X(uint32_t, logprobs_after, logprobs, 0, 0, 1, "--logprobs-after", "post_sampling_probs",      \
      "log-probabilities of 0: the model (default), 1: what the samplers have left")

/* type, name: of runnel_samplers, in its order, without struct_size and `reserved` */
#define RUNNEL_SAMPLERS_FIELDS(X)        \
    X(const char *, order)               \
    X(const char *const *, dry_breakers) \
    X(size_t, n_dry_breakers)            \
    X(uint32_t, min_tokens)              \
    X(uint32_t, penalty_scope)           \
    X(float, dry_multiplier)             \
    X(float, dry_base)                   \
    X(uint32_t, dry_allowed_length)      \
    X(uint32_t, dry_tokens)              \
    X(float, top_n_sigma)                \
    X(float, typical_p)                  \
    X(float, xtc_probability)            \
    X(float, xtc_threshold)              \
    X(float, temperature_range)          \
    X(float, temperature_exponent)       \
    X(uint32_t, mirostat)                \
    X(float, mirostat_tau)               \
    X(float, mirostat_eta)               \
    X(float, adaptive_target)            \
    X(float, adaptive_decay)             \
    X(uint32_t, logprobs_after)          \
    X(runnel_choose_fn, choose)          \
    X(void *, choose_user)

/* likewise of runnel_request, without struct_size, sampling and `reserved` */
#define RUNNEL_REQUEST_FIELDS(X)       \
    X(const char *, prompt)            \
    X(size_t, prompt_bytes)            \
    X(const int32_t *, tokens)         \
    X(size_t, n_tokens)                \
    X(const runnel_chat *, chat)       \
    X(runnel_session, session)         \
    X(int64_t, max_tokens)             \
    X(const char *const *, stops)      \
    X(size_t, n_stops)                 \
    X(const int32_t *, stop_tokens)    \
    X(size_t, n_stop_tokens)           \
    X(runnel_event_fn, on_event)       \
    X(void *, user)                    \
    X(const char *, label)             \
    X(uint64_t, cache_salt)            \
    X(uint64_t, tenant)                \
    X(int32_t, priority)               \
    X(uint32_t, deadline_ms)           \
    X(uint32_t, n_top)                 \
    X(uint32_t, coalesce_bytes)        \
    X(uint32_t, draft)                 \
    X(uint32_t, draft_max)             \
    X(runnel_cache_wait, cache_wait)   \
    X(uint32_t, cache_wait_ms)         \
    X(uint8_t, parse_special)          \
    X(uint8_t, ignore_eos)             \
    X(uint8_t, want_logprobs)          \
    X(uint8_t, want_progress)          \
    X(uint8_t, want_logits)            \
    X(uint8_t, raw_answer)             \
    X(uint8_t, pin_prefix)             \
    X(uint8_t, draft_share)            \
    X(uint8_t, draft_chain)            \
    X(uint8_t, keep_stop)              \
    X(int64_t, context_keep)           \
    X(const runnel_grammar *, grammar) \
    X(const char *, adapter)

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
    X(uint8_t, no_generation_prompt)    \
    X(uint8_t, single_call)             \
    X(uint8_t, continue_final)          \
    X(const char *, tool_choice)

/* likewise of runnel_grammar, without struct_size and `reserved` */
#define RUNNEL_GRAMMAR_FIELDS(X)    \
    X(const char *, text)           \
    X(size_t, text_bytes)           \
    X(const char *const *, choices) \
    X(size_t, n_choices)            \
    X(uint32_t, kind)               \
    X(uint8_t, free_white)          \
    X(uint8_t, any_order)           \
    X(uint8_t, closed)              \
    X(uint8_t, one_of_as_any_of)    \
    X(uint8_t, allow_unenforced)    \
    X(uint8_t, free_reasoning)

#endif
