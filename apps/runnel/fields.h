/* How the members of a request are reached from the command line and from the lines of a batch. A row for each member
 * of the tables in runnel_fields.h; tests/apps/test_fields.c fails where one is missing, or where an option or a JSON
 * member does not arrive.
 *
 * X(struct, member, option, value of it, JSON member, value of it)
 *
 * option or JSON member NULL: there is none on purpose, and the value says why. A value NULL: there is one, but it is
 * not a matter of app_request or of openai_request_choice. */
#ifndef RUNNEL_APP_FIELDS_H
#define RUNNEL_APP_FIELDS_H

#include "runnel_fields.h"

#define APP_FIELDS(X)                                                                                                 \
    X(sampling, temperature, "--temperature", "0.5", "temperature", "0.5")                                            \
    X(sampling, top_k, "--top-k", "5", "top_k", "5")                                                                  \
    X(sampling, top_p, "--top-p", "0.5", "top_p", "0.5")                                                              \
    X(sampling, min_p, "--min-p", "0.5", "min_p", "0.5")                                                              \
    X(sampling, repetition_penalty, "--repetition-penalty", "2", "repetition_penalty", "2")                           \
    X(sampling, frequency_penalty, "--frequency-penalty", "1", "frequency_penalty", "1")                              \
    X(sampling, presence_penalty, "--presence-penalty", "1", "presence_penalty", "1")                                 \
    X(sampling, penalty_tokens, "--penalty-tokens", "7", "penalty_tokens", "7")                                       \
    X(sampling, seed, "--seed", "7", "seed", "7")                                                                     \
    X(sampling, biases, "--logit-bias", "5=1", "logit_bias", "{\"5\": 1}")                                            \
    X(sampling, n_biases, "--logit-bias", "5=1", "logit_bias", "{\"5\": 1}")                                          \
    X(sampling, samplers, "--mirostat", "1", "mirostat", "1")                                                         \
    X(samplers, order, "--sampler-order", "top_k", "samplers", "[\"top_k\"]")                                         \
    X(samplers, dry_breakers, "--dry-sequence-breaker", "x", "dry_sequence_breakers", "[\"x\"]")                      \
    X(samplers, n_dry_breakers, "--dry-sequence-breaker", "x", "dry_sequence_breakers", "[\"x\"]")                    \
    X(samplers, min_tokens, "--min-tokens", "7", "min_tokens", "7")                                                   \
    X(samplers, penalty_scope, "--penalty-scope", "1", "penalty_scope", "1")                                          \
    X(samplers, dry_multiplier, "--dry-multiplier", "0.5", "dry_multiplier", "0.5")                                   \
    X(samplers, dry_base, "--dry-base", "2", "dry_base", "2")                                                         \
    X(samplers, dry_allowed_length, "--dry-allowed-length", "3", "dry_allowed_length", "3")                           \
    X(samplers, dry_tokens, "--dry-penalty-last-n", "7", "dry_penalty_last_n", "7")                                   \
    X(samplers, top_n_sigma, "--top-n-sigma", "1", "top_n_sigma", "1")                                                \
    X(samplers, typical_p, "--typical", "0.5", "typical_p", "0.5")                                                    \
    X(samplers, xtc_probability, "--xtc-probability", "0.5", "xtc_probability", "0.5")                                \
    X(samplers, xtc_threshold, "--xtc-threshold", "0.2", "xtc_threshold", "0.2")                                      \
    X(samplers, temperature_range, "--dynatemp-range", "0.5", "dynatemp_range", "0.5")                                \
    X(samplers, temperature_exponent, "--dynatemp-exp", "2", "dynatemp_exponent", "2")                                \
    X(samplers, mirostat, "--mirostat", "2", "mirostat", "2")                                                         \
    X(samplers, mirostat_tau, "--mirostat-ent", "3", "mirostat_tau", "3")                                             \
    X(samplers, mirostat_eta, "--mirostat-lr", "0.2", "mirostat_eta", "0.2")                                          \
    X(samplers, adaptive_target, "--adaptive-target", "0.5", "adaptive_target", "0.5")                                \
    X(samplers, adaptive_decay, "--adaptive-decay", "0.5", "adaptive_decay", "0.5")                                   \
    X(samplers, logprobs_after, "--logprobs-after", "1", "post_sampling_probs", "true")                               \
    X(samplers, choose, NULL, "a function of a host", NULL, "a function of a host")                                   \
    X(samplers, choose_user, NULL, "a function of a host", NULL, "a function of a host")                              \
    X(request, prompt, "--prompt", NULL, "prompt", "\"two\"")                                                         \
    X(request, prompt_bytes, "--prompt", NULL, "prompt", "\"two\"")                                                   \
    X(request, tokens, "--tokens", NULL, "prompt", "[1, 2]")                                                          \
    X(request, n_tokens, "--tokens", NULL, "prompt", "[1, 2]")                                                        \
    X(request, chat, NULL, "the command chat", "messages", NULL)                                                      \
    X(request, session, "--session", NULL, NULL, "each line is a whole conversation")                                 \
    X(request, max_tokens, "--max-tokens", "7", "max_tokens", "7")                                                    \
    X(request, stops, "--stop", "x", "stop", "\"x\"")                                                                 \
    X(request, n_stops, "--stop", "x", "stop", "\"x\"")                                                               \
    X(request, stop_tokens, "--stop-token", "5", NULL, "not in OpenAI's form; a stop is a text")                      \
    X(request, n_stop_tokens, "--stop-token", "5", NULL, "not in OpenAI's form; a stop is a text")                    \
    X(request, on_event, NULL, "the program's own", NULL, "the program's own")                                        \
    X(request, user, NULL, "the program's own", NULL, "the program's own")                                            \
    X(request, label, "--label", "one", NULL, "the line's custom_id")                                                 \
    X(request, cache_salt, "--salt", "7", NULL, "the job is of one user")                                             \
    X(request, tenant, NULL, "one user", NULL, "the job is of one user")                                              \
    X(request, priority, NULL, "one request at a time", NULL, "the job's: below those of others")                     \
    X(request, deadline_ms, "--deadline", "7", NULL, "a job waits for its answers")                                   \
    X(request, n_top, "--logprobs", "7", "logprobs", "7")                                                             \
    X(request, coalesce_bytes, NULL, "the program reads each token at once", NULL, "the job's")                       \
    X(request, draft, "--draft", "ngram", NULL, "the job's: --draft")                                                 \
    X(request, draft_max, "--draft-max", "7", NULL, "the job's: --draft-max")                                         \
    X(request, cache_wait, "--cache-wait", "7", NULL, "the job waits for them")                                       \
    X(request, cache_wait_ms, "--cache-wait", "7", NULL, "the job waits for them")                                    \
    X(request, parse_special, "--special", "", NULL, "texts of others write no control tokens")                       \
    X(request, ignore_eos, "--ignore-eos", "", "ignore_eos", "true")                                                  \
    X(request, want_logprobs, "--logprobs", "0", "logprobs", "0")                                                     \
    X(request, want_progress, NULL, "always", NULL, "an answer has no progress")                                      \
    X(request, want_logits, NULL, "the command logits", NULL, "not in OpenAI's form")                                 \
    X(request, raw_answer, "--raw", NULL, NULL, "reasoning and calls are members of their own")                       \
    X(request, pin_prefix, NULL, "with --cache-dir and --cache-shared", NULL, "the job's prefixes stay by their use") \
    X(request, draft_share, "--draft-share", NULL, NULL, "the job's: --draft-share")                                  \
    X(request, draft_chain, "--draft-chain", "", NULL, "the job's: --draft-chain")                                    \
    X(request, keep_stop, "--keep-stop", "", "include_stop_str_in_output", "true")                                    \
    X(request, context_keep, "--context-keep", "7", "context_keep", "7")                                              \
    X(request, grammar, "--json-object", "", "response_format", "{\"type\": \"json_object\"}")                        \
    X(request, adapter, "--lora", "a.gguf", "adapter", "\"a\"")                                                       \
    X(grammar, text, "--regex", "a", "guided_regex", "\"a\"")                                                         \
    X(grammar, text_bytes, "--regex", "a", "guided_regex", "\"a\"")                                                   \
    X(grammar, choices, "--choice", "a,b", "guided_choice", "[\"a\"]")                                                \
    X(grammar, n_choices, "--choice", "a,b", "guided_choice", "[\"a\"]")                                              \
    X(grammar, kind, "--json-value", "", "guided_regex", "\"a\"")                                                     \
    X(grammar, free_white, "--grammar-white", "", "grammar_options", "{\"free_white\": true}")                        \
    X(grammar, any_order, "--grammar-any-order", "", "grammar_options", "{\"any_order\": true}")                      \
    X(grammar, closed, "--grammar-closed", "", "grammar_options", "{\"closed\": true}")                               \
    X(grammar, one_of_as_any_of, "--grammar-one-of", "", "grammar_options", "{\"one_of_as_any_of\": true}")           \
    X(grammar, allow_unenforced, "--grammar-unenforced", "", "grammar_options", "{\"allow_unenforced\": true}")       \
    X(grammar, free_reasoning, "--grammar-reasoning", NULL, "grammar_options", "{\"free_reasoning\": false}")         \
    X(chat, messages, NULL, "lines that are typed", NULL, "messages_json")                                            \
    X(chat, n_messages, NULL, "lines that are typed", NULL, "messages_json")                                          \
    X(chat, messages_json, NULL, "lines that are typed", "messages", "[{\"role\": \"user\", \"content\": \"two\"}]")  \
    X(chat, tools, "--tools", NULL, "tools", "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]")           \
    X(chat, variables, "--variables", NULL, "chat_template_kwargs", "{\"a\": 1}")                                     \
    X(chat, template_text, "--template", NULL, NULL, "the job's: --template")                                         \
    X(chat, template_name, "--template-name", NULL, NULL, "the job's: --template-name")                               \
    X(chat, now_s, "--now", NULL, NULL, "the job's date")                                                             \
    X(chat, no_generation_prompt, NULL, "an answer follows", "add_generation_prompt", "false")                        \
    X(chat, continue_final, NULL, "lines that are typed", "continue_final_message", "true")                           \
    X(chat, single_call, "--single-call", NULL, "parallel_tool_calls", "false")                                       \
    X(chat, tool_choice, "--tool-choice", NULL, "tool_choice", NULL)

#endif
