/* Rows of the structs that runnel_fields.h has no table of, for fields.c alone. */
#ifndef RUNNEL_PYTHON_FIELD_ROWS_H
#define RUNNEL_PYTHON_FIELD_ROWS_H

#define ENGINE_ROWS(X)                          \
    X(runnel_engine_options, scheduler_threads) \
    X(runnel_engine_options, compute_threads)   \
    X(runnel_engine_options, max_streams)       \
    X(runnel_engine_options, max_sessions)      \
    X(runnel_engine_options, delivery)          \
    X(runnel_engine_options, log_level)         \
    X(runnel_engine_options, allocator)         \
    X(runnel_engine_options, on_log)            \
    X(runnel_engine_options, log_user)          \
    X(runnel_engine_options, on_trace)          \
    X(runnel_engine_options, trace_user)        \
    X(runnel_engine_options, max_queued_tokens) \
    X(runnel_engine_options, max_queued_bytes)  \
    X(runnel_engine_options, architectures)     \
    X(runnel_engine_options, n_architectures)   \
    X(runnel_engine_options, device_library)    \
    X(runnel_engine_options, compute_nice)      \
    X(runnel_engine_options, gather_us)
TABLE(engine, ENGINE_ROWS(FIELD))

#define MODEL_ROWS(X)                            \
    X(runnel_model_options, context_tokens)      \
    X(runnel_model_options, batch_tokens)        \
    X(runnel_model_options, kv_bytes)            \
    X(runnel_model_options, kv_type)             \
    X(runnel_model_options, chunk_mean)          \
    X(runnel_model_options, device)              \
    X(runnel_model_options, on_load)             \
    X(runnel_model_options, load_user)           \
    X(runnel_model_options, vocab_only)          \
    X(runnel_model_options, no_prefix_cache)     \
    X(runnel_model_options, max_slowdown)        \
    X(runnel_model_options, draft_path)          \
    X(runnel_model_options, draft_kv_bytes)      \
    X(runnel_model_options, draft_threads)       \
    X(runnel_model_options, draft_measure_ms)    \
    X(runnel_model_options, cache_warm_bytes)    \
    X(runnel_model_options, cache_dir)           \
    X(runnel_model_options, cache_cold_bytes)    \
    X(runnel_model_options, cache_codec)         \
    X(runnel_model_options, cache_shared)        \
    X(runnel_model_options, cache_shared_ca)     \
    X(runnel_model_options, cache_shared_cert)   \
    X(runnel_model_options, cache_shared_key)    \
    X(runnel_model_options, weight_order)        \
    X(runnel_model_options, bound_windows)       \
    X(runnel_model_options, weights_dir)         \
    X(runnel_model_options, device_layers)       \
    X(runnel_model_options, device_expert_bytes) \
    X(runnel_model_options, adapters)            \
    X(runnel_model_options, n_adapters)
TABLE(model, MODEL_ROWS(FIELD))

#define EMBED_ROWS(X)                      \
    X(runnel_embed_request, text)          \
    X(runnel_embed_request, text_bytes)    \
    X(runnel_embed_request, tokens)        \
    X(runnel_embed_request, n_tokens)      \
    X(runnel_embed_request, on_event)      \
    X(runnel_embed_request, user)          \
    X(runnel_embed_request, label)         \
    X(runnel_embed_request, cache_salt)    \
    X(runnel_embed_request, tenant)        \
    X(runnel_embed_request, priority)      \
    X(runnel_embed_request, deadline_ms)   \
    X(runnel_embed_request, pooling)       \
    X(runnel_embed_request, dimensions)    \
    X(runnel_embed_request, parse_special) \
    X(runnel_embed_request, want_progress) \
    X(runnel_embed_request, raw)           \
    X(runnel_embed_request, adapter)
TABLE(embed, EMBED_ROWS(FIELD))

#define ARCHITECTURE_ROWS(X)               \
    X(runnel_architecture_row, name)       \
    X(runnel_architecture_row, like)       \
    X(runnel_architecture_row, with)       \
    X(runnel_architecture_row, without)    \
    X(runnel_architecture_row, activation) \
    X(runnel_architecture_row, ffn_norm)   \
    X(runnel_architecture_row, unused)     \
    X(runnel_architecture_row, n_unused)   \
    X(runnel_architecture_row, window_period)
TABLE(architecture, ARCHITECTURE_ROWS(FIELD))

#define INFILL_ROWS(X)             \
    X(runnel_infill, prefix)       \
    X(runnel_infill, prefix_bytes) \
    X(runnel_infill, suffix)       \
    X(runnel_infill, suffix_bytes) \
    X(runnel_infill, repository)   \
    X(runnel_infill, name)         \
    X(runnel_infill, files)        \
    X(runnel_infill, n_files)      \
    X(runnel_infill, suffix_first)
TABLE(infill, INFILL_ROWS(FIELD))

#define SESSION_FILE_ROWS(X)           \
    X(runnel_session_file, path)       \
    X(runnel_session_file, note)       \
    X(runnel_session_file, note_bytes) \
    X(runnel_session_file, cache_salt) \
    X(runnel_session_file, on_event)   \
    X(runnel_session_file, user)       \
    X(runnel_session_file, label)
TABLE(session_file, SESSION_FILE_ROWS(FIELD))

#define PURGE_ROWS(X)                          \
    X(runnel_cache_purge_options, fingerprint) \
    X(runnel_cache_purge_options, salt)        \
    X(runnel_cache_purge_options, keep_bytes)  \
    X(runnel_cache_purge_options, by_salt)
TABLE(purge, PURGE_ROWS(FIELD))

#define EAGLE_ROWS(X)                    \
    X(runnel_eagle_options, steps)       \
    X(runnel_eagle_options, text_tokens) \
    X(runnel_eagle_options, texts)       \
    X(runnel_eagle_options, unroll)      \
    X(runnel_eagle_options, layers)      \
    X(runnel_eagle_options, n_layers)    \
    X(runnel_eagle_options, rate)        \
    X(runnel_eagle_options, seed)        \
    X(runnel_eagle_options, state)       \
    X(runnel_eagle_options, resume)
TABLE(eagle, EAGLE_ROWS(FIELD))

#define INFO_ROWS(X)                          \
    X(runnel_model_info, vocab_tokens)        \
    X(runnel_model_info, context_tokens)      \
    X(runnel_model_info, trained_tokens)      \
    X(runnel_model_info, embedding)           \
    X(runnel_model_info, layers)              \
    X(runnel_model_info, bos)                 \
    X(runnel_model_info, eos)                 \
    X(runnel_model_info, add_bos)             \
    X(runnel_model_info, parameters)          \
    X(runnel_model_info, weight_bytes)        \
    X(runnel_model_info, kv_bytes)            \
    X(runnel_model_info, kv_bytes_per_token)  \
    X(runnel_model_info, block_tokens)        \
    X(runnel_model_info, chunk_mean)          \
    X(runnel_model_info, kv_bytes_longest)    \
    X(runnel_model_info, draft_parameters)    \
    X(runnel_model_info, draft_kv_bytes)      \
    X(runnel_model_info, tiled_bytes)         \
    X(runnel_model_info, mapped_bytes)        \
    X(runnel_model_info, device_layers)       \
    X(runnel_model_info, device_experts)      \
    X(runnel_model_info, device_expert_bytes) \
    X(runnel_model_info, state_bytes)         \
    X(runnel_model_info, draft_weight_bytes)
TABLE(info, INFO_ROWS(FIELD))

#define STATS_ROWS(X)                            \
    X(runnel_engine_stats, streams)              \
    X(runnel_engine_stats, sessions)             \
    X(runnel_engine_stats, models)               \
    X(runnel_engine_stats, messages)             \
    X(runnel_engine_stats, blocks_used)          \
    X(runnel_engine_stats, blocks_total)         \
    X(runnel_engine_stats, heap_bytes)           \
    X(runnel_engine_stats, steps)                \
    X(runnel_engine_stats, prompt_tokens)        \
    X(runnel_engine_stats, tokens)               \
    X(runnel_engine_stats, prefix_hit_tokens)    \
    X(runnel_engine_stats, prefix_missed_tokens) \
    X(runnel_engine_stats, prefix_ceiling)       \
    X(runnel_engine_stats, evicted_blocks)       \
    X(runnel_engine_stats, preemptions)          \
    X(runnel_engine_stats, queued_tokens)        \
    X(runnel_engine_stats, queued_bytes)
TABLE(stats, STATS_ROWS(FIELD))

#define METRICS_ROWS(X)                        \
    X(runnel_metrics, requests)                \
    X(runnel_metrics, stopped)                 \
    X(runnel_metrics, length)                  \
    X(runnel_metrics, cancelled)               \
    X(runnel_metrics, failed)                  \
    X(runnel_metrics, refused)                 \
    X(runnel_metrics, tokens)                  \
    X(runnel_metrics, prompt_tokens)           \
    X(runnel_metrics, steps)                   \
    X(runnel_metrics, prefix_queries)          \
    X(runnel_metrics, prefix_hits)             \
    X(runnel_metrics, evicted_blocks)          \
    X(runnel_metrics, preemptions)             \
    X(runnel_metrics, trace_dropped)           \
    X(runnel_metrics, drafted)                 \
    X(runnel_metrics, accepted)                \
    X(runnel_metrics, branched)                \
    X(runnel_metrics, branched_right)          \
    X(runnel_metrics, drafts)                  \
    X(runnel_metrics, drafted_at)              \
    X(runnel_metrics, accepted_at)             \
    X(runnel_metrics, draft_passes)            \
    X(runnel_metrics, draft_us)                \
    X(runnel_metrics, draft_beside_us)         \
    X(runnel_metrics, draft_branches)          \
    X(runnel_metrics, draft_branches_right)    \
    X(runnel_metrics, warm_hits)               \
    X(runnel_metrics, cold_hits)               \
    X(runnel_metrics, shared_hits)             \
    X(runnel_metrics, warm_bytes_in)           \
    X(runnel_metrics, warm_bytes_out)          \
    X(runnel_metrics, cold_bytes_in)           \
    X(runnel_metrics, cold_bytes_out)          \
    X(runnel_metrics, shared_bytes_in)         \
    X(runnel_metrics, shared_bytes_out)        \
    X(runnel_metrics, cache_dropped)           \
    X(runnel_metrics, cache_unpaid)            \
    X(runnel_metrics, cache_copy_us)           \
    X(runnel_metrics, cache_skipped)           \
    X(runnel_metrics, cache_errors)            \
    X(runnel_metrics, cache_adopted)           \
    X(runnel_metrics, warm_bytes)              \
    X(runnel_metrics, cold_bytes)              \
    X(runnel_metrics, shared_bytes)            \
    X(runnel_metrics, cold_writes)             \
    X(runnel_metrics, running)                 \
    X(runnel_metrics, waiting)                 \
    X(runnel_metrics, queued_tokens)           \
    X(runnel_metrics, sessions)                \
    X(runnel_metrics, blocks_used)             \
    X(runnel_metrics, blocks_total)            \
    X(runnel_metrics, first_token_s)           \
    X(runnel_metrics, inter_token_s)           \
    X(runnel_metrics, per_token_s)             \
    X(runnel_metrics, queue_s)                 \
    X(runnel_metrics, prefill_s)               \
    X(runnel_metrics, decode_s)                \
    X(runnel_metrics, inference_s)             \
    X(runnel_metrics, request_s)               \
    X(runnel_metrics, request_prompt_tokens)   \
    X(runnel_metrics, request_computed_tokens) \
    X(runnel_metrics, request_tokens)          \
    X(runnel_metrics, step_s)                  \
    X(runnel_metrics, step_rows)               \
    X(runnel_metrics, step_sequences)          \
    X(runnel_metrics, context_shifts)          \
    X(runnel_metrics, forced)                  \
    X(runnel_metrics, cut)                     \
    X(runnel_metrics, compared)
TABLE(metrics, METRICS_ROWS(FIELD))

#define MACHINE_ROWS(X)                        \
    X(runnel_machine, compute_threads)         \
    X(runnel_machine, memory_nodes)            \
    X(runnel_machine, level)                   \
    X(runnel_machine, cpu)                     \
    X(runnel_machine, memory_bytes)            \
    X(runnel_machine, read_bytes_per_s)        \
    X(runnel_machine, read_median_bytes_per_s) \
    X(runnel_machine, integer_ops_per_s)       \
    X(runnel_machine, float_ops_per_s)
TABLE(machine, MACHINE_ROWS(FIELD))

#define DEVICE_INFO_ROWS(X)             \
    X(runnel_device_info, n_devices)    \
    X(runnel_device_info, index)        \
    X(runnel_device_info, memory_bytes) \
    X(runnel_device_info, free_bytes)   \
    X(runnel_device_info, name)         \
    X(runnel_device_info, capability)   \
    X(runnel_device_info, kernels)      \
    X(runnel_device_info, driver)       \
    X(runnel_device_info, why)
TABLE(device_info, DEVICE_INFO_ROWS(FIELD))

#define USAGE_ROWS(X)                  \
    X(runnel_usage, prompt_tokens)     \
    X(runnel_usage, cached_tokens)     \
    X(runnel_usage, completion_tokens) \
    X(runnel_usage, drafted_tokens)    \
    X(runnel_usage, accepted_tokens)   \
    X(runnel_usage, warm_tokens)       \
    X(runnel_usage, cold_tokens)       \
    X(runnel_usage, shared_tokens)     \
    X(runnel_usage, rested_passes)     \
    X(runnel_usage, rest)              \
    X(runnel_usage, shifts)            \
    X(runnel_usage, shifted_tokens)
TABLE(usage, USAGE_ROWS(FIELD))

#define TIMINGS_ROWS(X)               \
    X(runnel_timings, admitted_us)    \
    X(runnel_timings, first_token_us) \
    X(runnel_timings, end_us)
TABLE(timings, TIMINGS_ROWS(FIELD))

#define TEMPLATE_ROWS(X)            \
    X(runnel_template_info, name)   \
    X(runnel_template_info, format) \
    X(runnel_template_info, bytes)  \
    X(runnel_template_info, knows)
TABLE(template, TEMPLATE_ROWS(FIELD))

#define FILE_INFO_ROWS(X)           \
    X(runnel_file_info, version)    \
    X(runnel_file_info, parts)      \
    X(runnel_file_info, alignment)  \
    X(runnel_file_info, n_metadata) \
    X(runnel_file_info, n_tensors)  \
    X(runnel_file_info, file_bytes) \
    X(runnel_file_info, parameters) \
    X(runnel_file_info, weight_bytes)
TABLE(file_info, FILE_INFO_ROWS(FIELD))

#define TENSOR_ROWS(X)           \
    X(runnel_tensor, name)       \
    X(runnel_tensor, name_bytes) \
    X(runnel_tensor, type)       \
    X(runnel_tensor, n_dims)     \
    X(runnel_tensor, part)       \
    X(runnel_tensor, dims)       \
    X(runnel_tensor, bytes)      \
    X(runnel_tensor, offset)
TABLE(tensor, TENSOR_ROWS(FIELD))

#define TOTALS_ROWS(X)                   \
    X(runnel_cache_totals, fingerprints) \
    X(runnel_cache_totals, segments)     \
    X(runnel_cache_totals, records)      \
    X(runnel_cache_totals, bytes)        \
    X(runnel_cache_totals, damaged)      \
    X(runnel_cache_totals, foreign)
TABLE(totals, TOTALS_ROWS(FIELD))

#define ENTRY_ROWS(X)                     \
    X(runnel_cache_entry, fingerprint)    \
    X(runnel_cache_entry, model)          \
    X(runnel_cache_entry, block_tokens)   \
    X(runnel_cache_entry, block_bytes)    \
    X(runnel_cache_entry, segments)       \
    X(runnel_cache_entry, records)        \
    X(runnel_cache_entry, salts)          \
    X(runnel_cache_entry, prefixes)       \
    X(runnel_cache_entry, longest_tokens) \
    X(runnel_cache_entry, file_bytes)     \
    X(runnel_cache_entry, record_bytes)   \
    X(runnel_cache_entry, damaged)
TABLE(entry, ENTRY_ROWS(FIELD))

#define RECORD_ROWS(X)               \
    X(runnel_cache_record, id)       \
    X(runnel_cache_record, parent)   \
    X(runnel_cache_record, salt)     \
    X(runnel_cache_record, tokens)   \
    X(runnel_cache_record, n_tokens) \
    X(runnel_cache_record, depth)    \
    X(runnel_cache_record, bytes)
TABLE(record, RECORD_ROWS(FIELD))

#define DAMAGE_ROWS(X)                  \
    X(runnel_cache_damage, fingerprint) \
    X(runnel_cache_damage, file)        \
    X(runnel_cache_damage, offset)      \
    X(runnel_cache_damage, bytes)       \
    X(runnel_cache_damage, what)
TABLE(damage, DAMAGE_ROWS(FIELD))

#define PROGRESS_ROWS(X)               \
    X(runnel_training_progress, state) \
    X(runnel_training_progress, step)  \
    X(runnel_training_progress, steps) \
    X(runnel_training_progress, loss)  \
    X(runnel_training_progress, accepted)
TABLE(progress, PROGRESS_ROWS(FIELD))

#define SCORE_ROWS(X)                      \
    X(runnel_score_request, query)         \
    X(runnel_score_request, query_bytes)   \
    X(runnel_score_request, text)          \
    X(runnel_score_request, text_bytes)    \
    X(runnel_score_request, tokens)        \
    X(runnel_score_request, n_tokens)      \
    X(runnel_score_request, on_event)      \
    X(runnel_score_request, user)          \
    X(runnel_score_request, label)         \
    X(runnel_score_request, cache_salt)    \
    X(runnel_score_request, tenant)        \
    X(runnel_score_request, priority)      \
    X(runnel_score_request, deadline_ms)   \
    X(runnel_score_request, form)          \
    X(runnel_score_request, parse_special) \
    X(runnel_score_request, want_progress) \
    X(runnel_score_request, adapter)
TABLE(score, SCORE_ROWS(FIELD))

#define SCORES_ROWS(X)               \
    X(runnel_scores_info, n_scores)  \
    X(runnel_scores_info, n_labels)  \
    X(runnel_scores_info, of_tokens) \
    X(runnel_scores_info, has_template)
TABLE(scores, SCORES_ROWS(FIELD))

#endif
