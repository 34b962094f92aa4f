/* The rules that hold for every function of the public headers: NULLs, sizes of structs, names; and labels with the
 * list of streams. tests/abi/walked.sh looks that no function is missing here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runnel_files.h"
#include "runnel_infill.h"
#include "runnel_scores.h"
#include "runnel_uv.h"
#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

static runnel_engine *engine;
static runnel_model *model;
static struct oracle *oracle;
static char log_lines[4096], traced_labels[1024];

static void on_log(void *user, runnel_log_level level, const char *line)
{
    (void)user, (void)level;
    strncat(log_lines, line, sizeof log_lines - strlen(log_lines) - 2);
    strcat(log_lines, "\n");
}

static void on_trace(void *user, const runnel_trace_event *event)
{
    (void)user;
    if (event->kind == RUNNEL_TRACE_REQUEST) {
        strncat(traced_labels, event->label, sizeof traced_labels - strlen(traced_labels) - 2);
        strcat(traced_labels, ";");
    } else {
        assert_string_equal(event->label, "");
    }
}

static int setup(void **state)
{
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = 16, .block_tokens = 8, .context_tokens = 64},
        .options = &options,
    };

    (void)state;
    log_lines[0] = traced_labels[0] = '\0';
    runnel_engine_options_default(&options);
    options.max_streams = 4;
    options.max_sessions = 2;
    options.on_log = on_log;
    options.log_level = RUNNEL_LOG_DEBUG;
    options.on_trace = on_trace;
    manual_open(&plan, &engine, &model, &oracle);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (engine != NULL)
        manual_close(engine, oracle);
    engine = NULL;
    return 0;
}

/* ---- NULL -------------------------------------------------------------------------------- */

#define INVALID(call) assert_int_equal(call, RUNNEL_INVALID)

/* INVALID, and the error says it, too. */
#define TOLD(call)                                      \
    do {                                                \
        memset(&error, 0, sizeof error);                \
        INVALID(call);                                  \
        assert_int_equal(error.status, RUNNEL_INVALID); \
        assert_true(strlen(error.message) > 0);         \
    } while (0)

static void null_engines(void **state)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    runnel_expert_use use = {.struct_size = sizeof use};
    runnel_machine machine = {.struct_size = sizeof machine};
    runnel_device_info device = {.struct_size = sizeof device};
    runnel_stream_info info = {.struct_size = sizeof info};
    const runnel_event *events[1];
    runnel_event event;
    runnel_stream stream = {1};
    runnel_error error;
    uint64_t cursor = 0;
    size_t bytes;
    char text[4];

    (void)state;
    TOLD(runnel_engine_new(NULL, NULL, &error));
    runnel_engine_free(NULL);
    INVALID(runnel_engine_drain(NULL, 0));
    assert_int_equal(runnel_engine_fd(NULL), -1);
    assert_int_equal(runnel_engine_dispatch(NULL, 0), 0);
    assert_int_equal(runnel_engine_take(NULL, events, 1), 0);
    assert_int_equal(runnel_engine_take(engine, NULL, 1), 0);
    INVALID(runnel_engine_wait(NULL, 0));
    INVALID(runnel_engine_get_stats(NULL, &stats));
    INVALID(runnel_engine_get_stats(engine, NULL));
    INVALID(runnel_engine_metrics(NULL, &metrics));
    INVALID(runnel_engine_metrics(engine, NULL));
    INVALID(runnel_engine_expert_use(NULL, 0, &use, NULL, 0));
    INVALID(runnel_engine_expert_use(engine, 0, NULL, NULL, 0));
    INVALID(runnel_engine_expert_use(engine, 0, &use, NULL, 1));
    assert_int_equal(runnel_engine_expert_use(engine, 0, &use, NULL, 0),
                     RUNNEL_NOT_FOUND); /* a model without experts */
    INVALID(runnel_engine_prometheus(NULL, text, 4, &bytes));
    INVALID(runnel_engine_prometheus(engine, NULL, 4, &bytes));
    INVALID(runnel_engine_prometheus(engine, text, 4, NULL));
    INVALID(runnel_engine_streams(NULL, &cursor, &info));
    INVALID(runnel_engine_streams(engine, NULL, &info));
    INVALID(runnel_engine_streams(engine, &cursor, NULL));
    TOLD(runnel_engine_measure(NULL, &machine, &error));
    TOLD(runnel_engine_measure(engine, NULL, &error));
    TOLD(runnel_engine_device(NULL, "cpu", &device, &error));
    TOLD(runnel_engine_device(engine, NULL, &device, &error));
    TOLD(runnel_engine_device(engine, "cpu", NULL, &error));
    INVALID(runnel_stream_cancel(NULL, stream));
    INVALID(runnel_stream_pause(NULL, stream));
    INVALID(runnel_stream_resume(NULL, stream));
    INVALID(runnel_stream_choose(NULL, stream, 0));
    assert_int_equal(runnel_candidates_draw(NULL), -1);
    INVALID(runnel_stream_next(NULL, stream, 0, &event));
    INVALID((runnel_stream_next)(engine, stream, 0, NULL));
    INVALID(runnel_stream_read(engine, stream, 0, NULL, sizeof event));
    INVALID(runnel_stream_read(engine, stream, 0, &event, 0));
    INVALID(runnel_stream_read(engine, stream, 0, &event, sizeof event + 1));
    INVALID(runnel_uv_attach(NULL, (struct uv_loop_s *)text));
    INVALID(runnel_uv_attach(engine, NULL));
    INVALID(runnel_uv_detach(NULL));
}

static void null_models(void **state)
{
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_adapter adapter;
    runnel_model *loaded = NULL;
    runnel_template_info info_of = {.struct_size = sizeof info_of};
    runnel_sampling sampling;
    runnel_samplers samplers = {0};
    runnel_chat chat;
    runnel_infill infill;
    runnel_scores_info scores = {.struct_size = sizeof scores};
    runnel_error error;
    const char *label;
    size_t n;
    uint32_t recommended;
    int32_t ids[1];
    char text[1];

    (void)state;
    runnel_chat_default(&chat);
    runnel_infill_default(&infill);
    TOLD(runnel_model_load(NULL, BUNDLED_MODEL, NULL, &loaded, &error));
    TOLD(runnel_model_load(engine, NULL, NULL, &loaded, &error));
    TOLD(runnel_model_load(engine, BUNDLED_MODEL, NULL, NULL, &error));
    TOLD(runnel_model_wait(NULL, 0, &error));
    runnel_model_free(NULL);
    runnel_model_cancel_load(NULL);
    INVALID(runnel_model_get_info(NULL, &info));
    INVALID(runnel_model_get_info(model, NULL));
    INVALID(runnel_model_adapter(NULL, 0, &adapter));
    INVALID(runnel_model_adapter(model, 0, NULL));
    assert_int_equal(runnel_model_adapter(model, 0, &adapter), RUNNEL_NOT_FOUND);
    INVALID(runnel_tokenize(NULL, "a", 1, 0, ids, 1, &n));
    INVALID(runnel_tokenize(model, NULL, 1, 0, ids, 1, &n));
    INVALID(runnel_tokenize(model, "a", 1, 0, NULL, 1, &n));
    INVALID(runnel_tokenize(model, "a", 1, 0, ids, 1, NULL));
    INVALID(runnel_detokenize(NULL, ids, 1, 0, text, 1, &n));
    INVALID(runnel_detokenize(model, NULL, 1, 0, text, 1, &n));
    INVALID(runnel_detokenize(model, ids, 1, 0, NULL, 1, &n));
    INVALID(runnel_detokenize(model, ids, 1, 0, text, 1, NULL));
    INVALID(runnel_token_text(NULL, 0, 0, text, 1, &n));
    INVALID(runnel_token_text(model, 0, 0, NULL, 1, &n));
    INVALID(runnel_token_text(model, 0, 0, text, 1, NULL));
    TOLD(runnel_apply_template(NULL, &chat, text, 1, &n, &error));
    TOLD(runnel_apply_template(model, NULL, text, 1, &n, &error));
    TOLD(runnel_apply_template(model, &chat, NULL, 1, &n, &error));
    TOLD(runnel_apply_template(model, &chat, text, 1, NULL, &error));
    TOLD(runnel_tokenize_chat(NULL, &chat, ids, 1, &n, &error));
    TOLD(runnel_tokenize_chat(model, NULL, ids, 1, &n, &error));
    TOLD(runnel_tokenize_chat(model, &chat, NULL, 1, &n, &error));
    TOLD(runnel_tokenize_chat(model, &chat, ids, 1, NULL, &error));
    TOLD(runnel_tokenize_infill(NULL, &infill, ids, 1, &n, &error));
    TOLD(runnel_tokenize_infill(model, NULL, ids, 1, &n, &error));
    TOLD(runnel_tokenize_infill(model, &infill, NULL, 1, &n, &error));
    TOLD(runnel_tokenize_infill(model, &infill, ids, 1, NULL, &error));
    INVALID(runnel_model_scores(NULL, &scores));
    INVALID(runnel_model_scores(model, NULL));
    assert_int_equal(runnel_model_scores(model, &scores), RUNNEL_UNSUPPORTED);
    INVALID(runnel_model_label(NULL, 0, &label, &n));
    INVALID(runnel_model_label(model, 0, NULL, &n));
    INVALID(runnel_model_label(model, 0, &label, NULL));
    assert_int_equal(runnel_model_label(model, 0, &label, &n), RUNNEL_NOT_FOUND);
    TOLD(runnel_model_template(NULL, 0, &info_of, &error));
    TOLD(runnel_model_template(model, 0, NULL, &error));
    INVALID(runnel_model_sampling(NULL, &sampling, &recommended));
    INVALID(runnel_model_sampling(model, NULL, &recommended));
    INVALID(runnel_model_sampling(model, &sampling, NULL));
    assert_int_equal(runnel_model_sampling(model, &sampling, &recommended), RUNNEL_OK);
    assert_int_equal(recommended, 0); /* a model without a file */
    INVALID(runnel_model_samplers(NULL, &samplers, &recommended));
    INVALID(runnel_model_samplers(model, NULL, &recommended));
    INVALID(runnel_model_samplers(model, &samplers, NULL));
    INVALID(runnel_model_samplers(model, &samplers, &recommended)); /* no struct_size */
    runnel_samplers_default(&samplers);
    assert_int_equal(runnel_model_samplers(model, &samplers, &recommended), RUNNEL_OK);
    assert_int_equal(recommended, 0);
    TOLD(runnel_render_template(NULL, 1, "{}", 2, 0, text, 1, &n, &error));
    TOLD(runnel_render_template("x", 1, NULL, 2, 0, text, 1, &n, &error));
    TOLD(runnel_render_template("x", 1, "{}", 2, 0, NULL, 1, &n, &error));
    TOLD(runnel_render_template("x", 1, "{}", 2, 0, text, 1, NULL, &error));
}

static void null_requests(void **state)
{
    runnel_request request = make_request("abc", 1, NULL);
    runnel_embed_request embed;
    runnel_score_request score;
    runnel_session_file file;
    runnel_session session = {1};
    runnel_stream stream;
    runnel_error error;
    size_t n;
    char note[1];

    (void)state;
    runnel_embed_request_default(&embed);
    embed.text = "abc";
    embed.text_bytes = 3;
    runnel_session_file_default(&file);
    file.path = "/tmp/never";
    TOLD(runnel_grammar_check(NULL, &request, &error));
    TOLD(runnel_grammar_check(model, NULL, &error));
    TOLD(runnel_sampling_check(NULL, &request, &error));
    TOLD(runnel_sampling_check(model, NULL, &error));
    TOLD(runnel_generate(NULL, &request, &stream, &error));
    TOLD(runnel_generate(model, NULL, &stream, &error));
    TOLD(runnel_generate(model, &request, NULL, &error));
    INVALID(runnel_generate(model, NULL, &stream, NULL));
    TOLD(runnel_embed(NULL, &embed, &stream, &error));
    TOLD(runnel_embed(model, NULL, &stream, &error));
    TOLD(runnel_embed(model, &embed, NULL, &error));
    runnel_score_request_default(&score);
    score.text = "abc";
    score.text_bytes = 3;
    TOLD(runnel_score(NULL, &score, &stream, &error));
    TOLD(runnel_score(model, NULL, &stream, &error));
    TOLD(runnel_score(model, &score, NULL, &error));
    INVALID(runnel_session_new(NULL, &session));
    INVALID(runnel_session_new(model, NULL));
    INVALID(runnel_session_free(NULL, session));
    INVALID(runnel_session_fork(NULL, session, &session));
    INVALID(runnel_session_fork(model, session, NULL));
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    TOLD(runnel_session_export(NULL, session, &file, &stream, &error));
    TOLD(runnel_session_export(model, session, NULL, &stream, &error));
    TOLD(runnel_session_export(model, session, &file, NULL, &error));
    TOLD(runnel_session_import(NULL, &file, &session, &stream, &error));
    TOLD(runnel_session_import(model, NULL, &session, &stream, &error));
    TOLD(runnel_session_import(model, &file, NULL, &stream, &error));
    TOLD(runnel_session_import(model, &file, &session, NULL, &error));
    TOLD(runnel_session_read_note(NULL, note, 1, &n, &error));
    TOLD(runnel_session_read_note("/tmp/never", NULL, 1, &n, &error));
    TOLD(runnel_session_read_note("/tmp/never", note, 1, NULL, &error));
    runnel_session_free(model, session);
    manual_settle(engine);
}

static void null_files(void **state)
{
    runnel_file *file = NULL;
    runnel_file_info info = {.struct_size = sizeof info};
    runnel_metadata metadata = {.struct_size = sizeof metadata};
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    runnel_cache_purge_options purge;
    runnel_training_progress progress = {.struct_size = sizeof progress};
    runnel_training *training = NULL;
    runnel_error error;
    runnel_template_info info_of = {.struct_size = sizeof info_of};
    runnel_sampling sampling;
    runnel_samplers samplers;
    uint64_t bytes;
    uint32_t recommended;
    size_t n;
    char text[1];

    (void)state;
    TOLD(runnel_file_open(NULL, &file, &error));
    TOLD(runnel_file_open(BUNDLED_MODEL, NULL, &error));
    assert_int_equal(runnel_file_open(BUNDLED_MODEL, &file, &error), RUNNEL_OK);
    INVALID(runnel_file_get_info(NULL, &info));
    INVALID(runnel_file_get_info(file, NULL));
    INVALID(runnel_file_metadata(NULL, 0, &metadata));
    INVALID(runnel_file_metadata(file, 0, NULL));
    INVALID(runnel_file_metadata_text(NULL, 0, 0, text, 1, &n));
    INVALID(runnel_file_metadata_text(file, 0, 0, NULL, 1, &n));
    INVALID(runnel_file_metadata_text(file, 0, 0, text, 1, NULL));
    INVALID(runnel_file_tensor(NULL, 0, &tensor));
    INVALID(runnel_file_tensor(file, 0, NULL));
    TOLD(runnel_file_kv_bytes_per_token(NULL, RUNNEL_KV_F16, &bytes, &error));
    TOLD(runnel_file_kv_bytes_per_token(file, RUNNEL_KV_F16, NULL, &error));
    TOLD(runnel_file_set_architectures(NULL, NULL, 0, &error));
    TOLD(runnel_file_set_architectures(file, NULL, 1, &error));
    TOLD(runnel_file_plan(NULL, text, 1, &n, &error));
    TOLD(runnel_file_plan(file, NULL, 1, &n, &error));
    TOLD(runnel_file_plan(file, text, 1, NULL, &error));
    assert_int_equal(runnel_file_plan(file, text, 1, &n, &error), RUNNEL_OK);
    assert_true(n > 1 && text[0] == 'p');
    assert_null(runnel_architecture(UINT32_MAX, NULL));
    assert_string_equal(runnel_architecture(0, NULL), "llama");
    TOLD(runnel_file_template(NULL, 0, &info_of, &error));
    TOLD(runnel_file_template(file, 0, NULL, &error));
    INVALID(runnel_file_sampling(NULL, &sampling, &recommended));
    INVALID(runnel_file_sampling(file, NULL, &recommended));
    INVALID(runnel_file_sampling(file, &sampling, NULL));
    INVALID(runnel_file_samplers(NULL, &samplers, &recommended));
    INVALID(runnel_file_samplers(file, NULL, &recommended));
    INVALID(runnel_file_samplers(file, &samplers, NULL));
    TOLD(runnel_inspect_template(NULL, 0, &info_of, &error));
    TOLD(runnel_inspect_template("", 0, NULL, &error));
    runnel_file_close(file);
    runnel_file_close(NULL);
    runnel_cache_purge_options_default(&purge);
    TOLD(runnel_cache_ls(NULL, NULL, NULL, NULL, &error));
    TOLD(runnel_cache_inspect(NULL, NULL, NULL, NULL, &error));
    TOLD(runnel_cache_verify(NULL, NULL, NULL, NULL, NULL, &error));
    TOLD(runnel_cache_purge(NULL, &purge, NULL, &error));
    TOLD(runnel_cache_purge("/tmp", NULL, NULL, &error));
    TOLD(runnel_eagle_train(NULL, BUNDLED_MODEL, "a", 1, "/tmp/never", NULL, &training, &error));
    TOLD(runnel_eagle_train(engine, NULL, "a", 1, "/tmp/never", NULL, &training, &error));
    TOLD(runnel_eagle_train(engine, BUNDLED_MODEL, NULL, 1, "/tmp/never", NULL, &training, &error));
    TOLD(runnel_eagle_train(engine, BUNDLED_MODEL, "a", 1, NULL, NULL, &training, &error));
    TOLD(runnel_eagle_train(engine, BUNDLED_MODEL, "a", 1, "/tmp/never", NULL, NULL, &error));
    TOLD(runnel_training_wait(NULL, 0, &progress, &error));
    runnel_training_cancel(NULL);
    runnel_training_free(NULL);
}

/* ---- Sizes ------------------------------------------------------------------------------- */

#define CANARY 0xa5

/* Of every size that an older or newer header might have: as many bytes are written, and no more. What is there is what
 * the whole has there, behind it zeros. */
#define EVERY_SIZE(type, init)                                                                         \
    do {                                                                                               \
        runnel_##type whole;                                                                           \
        unsigned char *bytes = malloc(sizeof whole + 128);                                             \
        init(&whole, sizeof whole);                                                                    \
        for (size_t size = 0; size <= sizeof whole + 64; size++) {                                     \
            size_t first = sizeof(size_t), shared = size < sizeof whole ? size : sizeof whole, n;      \
            memset(bytes, CANARY, sizeof whole + 128);                                                 \
            init((runnel_##type *)(void *)bytes, size);                                                \
            n = size < first ? 0 : size;                                                               \
            assert_true(n == 0 || memcmp(bytes, &size, first) == 0);                                   \
            assert_true(n == 0 || memcmp(bytes + first, (char *)&whole + first, shared - first) == 0); \
            for (size_t i = n; i < sizeof whole + 128; i++)                                            \
                assert_int_equal(bytes[i], CANARY);                                                    \
            for (size_t i = shared; i < n; i++)                                                        \
                assert_int_equal(bytes[i], 0);                                                         \
        }                                                                                              \
        init(NULL, sizeof whole);                                                                      \
        free(bytes);                                                                                   \
        (void)runnel_##type##_default;                                                                 \
    } while (0)

static void parameter_sizes(void **state)
{
    (void)state;
    EVERY_SIZE(engine_options, runnel_engine_options_init);
    EVERY_SIZE(architecture_row, runnel_architecture_row_init);
    EVERY_SIZE(model_options, runnel_model_options_init);
    EVERY_SIZE(chat, runnel_chat_init);
    EVERY_SIZE(samplers, runnel_samplers_init);
    EVERY_SIZE(grammar, runnel_grammar_init);
    EVERY_SIZE(infill, runnel_infill_init);
    EVERY_SIZE(score_request, runnel_score_request_init);
    EVERY_SIZE(request, runnel_request_init);
    EVERY_SIZE(embed_request, runnel_embed_request_init);
    EVERY_SIZE(cache_purge_options, runnel_cache_purge_options_init);
    EVERY_SIZE(eagle_options, runnel_eagle_options_init);
    EVERY_SIZE(session_file, runnel_session_file_init);
}

/* The functions that are told no size write that of the first version. */
static void first_sizes(void **state)
{
    runnel_request request;

    (void)state;
    memset(&request, CANARY, sizeof request);
    (runnel_request_default)(&request);
    assert_in_range(request.struct_size, 1, sizeof request);
    assert_int_equal(request.max_tokens, -1);
    (runnel_request_default)(NULL);
}

/* A result of every size: INVALID, also where a member would be cut in two, or as many bytes and no more. Numbers may
 * have changed in between. */
#define EVERY_RESULT(type, call)                                                  \
    do {                                                                          \
        size_t whole = sizeof(runnel_##type);                                     \
        unsigned char *bytes = malloc(whole + 64);                                \
        for (size_t size = 0; size <= whole + 64; size += size < 16 ? 1 : 4) {    \
            runnel_##type *out = (void *)bytes;                                   \
            memset(bytes, CANARY, whole + 64);                                    \
            memcpy(bytes, &size, sizeof size);                                    \
            if (size < sizeof(size_t) || size > whole || size % sizeof(size_t)) { \
                INVALID(call);                                                    \
                continue;                                                         \
            }                                                                     \
            assert_int_equal(call, RUNNEL_OK);                                    \
            assert_memory_equal(bytes, &size, sizeof size);                       \
            for (size_t i = size; i < whole + 64; i++)                            \
                assert_int_equal(bytes[i], CANARY);                               \
        }                                                                         \
        free(bytes);                                                              \
    } while (0)

/* The same of what has no result here: INVALID comes before what is said else, and nothing is written. */
#define NO_OTHER_RESULT(type, call)                                                    \
    do {                                                                               \
        unsigned char bytes[sizeof(runnel_##type) + 64], before[sizeof bytes];         \
        size_t sizes[] = {0, sizeof(size_t) - 1, sizeof(runnel_##type) + 1, SIZE_MAX}; \
        runnel_##type *out = (void *)bytes;                                            \
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {                  \
            memset(bytes, CANARY, sizeof bytes);                                       \
            memcpy(bytes, &sizes[i], sizeof sizes[i]);                                 \
            memcpy(before, bytes, sizeof bytes);                                       \
            INVALID(call);                                                             \
            assert_memory_equal(bytes, before, sizeof bytes);                          \
        }                                                                              \
    } while (0)

static void result_sizes(void **state)
{
    runnel_request request = make_request("abc", 2, NULL);
    runnel_stream stream;
    runnel_file *file;
    uint64_t cursor;

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    EVERY_RESULT(engine_stats, runnel_engine_get_stats(engine, out));
    EVERY_RESULT(metrics, runnel_engine_metrics(engine, out));
    EVERY_RESULT(stream_info, (cursor = 0, runnel_engine_streams(engine, &cursor, out)));
    EVERY_RESULT(model_info, runnel_model_get_info(model, out));
    assert_int_equal(runnel_file_open(BUNDLED_MODEL, &file, NULL), RUNNEL_OK);
    EVERY_RESULT(file_info, runnel_file_get_info(file, out));
    EVERY_RESULT(metadata, runnel_file_metadata(file, 0, out));
    EVERY_RESULT(tensor, runnel_file_tensor(file, 0, out));
    EVERY_RESULT(template_info, runnel_inspect_template("x", 1, out, NULL));
    NO_OTHER_RESULT(template_info, runnel_file_template(file, 99, out, NULL));
    runnel_file_close(file);
    NO_OTHER_RESULT(template_info, runnel_model_template(model, 0, out, NULL));
    NO_OTHER_RESULT(expert_use, runnel_engine_expert_use(engine, 0, out, NULL, 0));
    NO_OTHER_RESULT(scores_info, runnel_model_scores(model, out));
    NO_OTHER_RESULT(machine, runnel_engine_measure(engine, out, NULL));
    NO_OTHER_RESULT(device_info, runnel_engine_device(engine, "cpu", out, NULL));
    NO_OTHER_RESULT(cache_totals, runnel_cache_ls("/nowhere", NULL, NULL, out, NULL));
    NO_OTHER_RESULT(cache_totals, runnel_cache_verify("/nowhere", NULL, NULL, NULL, out, NULL));
}

/* An event is copied as far as the caller's struct reaches. */
static void event_sizes(void **state)
{
    runnel_request request = make_request("abc", -1, NULL);
    unsigned char bytes[sizeof(runnel_event) + 64];
    runnel_stream stream;
    runnel_event *event = (void *)bytes;
    size_t n = 0;

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    for (size_t size = sizeof event->type; size <= sizeof *event; size += 12) {
        manual_settle(engine);
        while (oracle->first != NULL) {
            oracle_complete(oracle, ORACLE_FAULT_NONE);
            manual_settle(engine);
        }
        memset(bytes, CANARY, sizeof bytes);
        assert_int_equal(runnel_stream_read(engine, stream, 0, event, size), RUNNEL_OK);
        for (size_t i = size; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], CANARY);
        n++;
        if (event->type >= RUNNEL_EVENT_DONE)
            break;
    }
    assert_true(n > 10);
}

/* What a newer header may have put into reserved members is not taken for nothing. */
static void reserved(void **state)
{
    runnel_request request = make_request("abc", 1, NULL);
    runnel_stream stream;
    runnel_error error;

    (void)state;
    request.reserved[0] = 1;
    TOLD(runnel_generate(model, &request, &stream, &error));
    request.reserved[0] = 0;
    request.sampling.reserved[7] = 1;
    TOLD(runnel_generate(model, &request, &stream, &error));
    assert_non_null(strstr(error.message, "reserved"));
}

/* ---- Names ------------------------------------------------------------------------------- */

static void names(void **state)
{
    (void)state;
    assert_string_equal(runnel_event_name(RUNNEL_EVENT_TOKEN), "TOKEN");
    assert_string_equal(runnel_event_name(RUNNEL_EVENT_TOOL_ARGUMENTS), "TOOL_ARGUMENTS");
    assert_string_equal(runnel_event_name(RUNNEL_EVENT_FAILED), "FAILED");
    assert_string_equal(runnel_event_name((runnel_event_type)99), "UNKNOWN");
    assert_string_equal(runnel_phase_name(RUNNEL_PHASE_PREFILL), "PREFILL");
    assert_string_equal(runnel_phase_name((runnel_phase)99), "UNKNOWN");
    assert_string_equal(runnel_rest_name(RUNNEL_REST_WRONG), "WRONG");
    assert_string_equal(runnel_rest_name((runnel_rest)99), "UNKNOWN");
    assert_string_equal(runnel_rest_text(RUNNEL_REST_BROKEN), "the drafter has failed");
    assert_string_equal(runnel_status_name(RUNNEL_NO_MEMORY), "NO_MEMORY");
    assert_string_equal(runnel_status_text(RUNNEL_OK), "success");
    assert_non_null(runnel_version());
}

/* ---- Empty requests ---------------------------------------------------------------------- */

static void empty(void **state)
{
    runnel_request request = make_request(NULL, 4, NULL);
    runnel_session session;
    runnel_stream stream;
    runnel_error error;

    (void)state;
    TOLD(runnel_generate(model, &request, &stream, &error));
    assert_non_null(strstr(error.message, "the prompt is empty"));
    assert_int_equal(error.about, RUNNEL_ABOUT_PROMPT);
    request.prompt = "";
    TOLD(runnel_generate(model, &request, &stream, &error));
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request.session = session;
    TOLD(runnel_generate(model, &request, &stream, &error));
    runnel_session_free(model, session);
    manual_settle(engine);
}

/* ---- Labels and the list ----------------------------------------------------------------- */

static void labels_refused(void **state)
{
    static const char *const bad[] = {"a\nb", "\x7f", "\xff", "\xc3"};
    runnel_request request = make_request("abc", 4, NULL);
    char longest[RUNNEL_LABEL_BYTES + 1];
    runnel_stream stream;
    runnel_error error;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        request.label = bad[i];
        TOLD(runnel_generate(model, &request, &stream, &error));
        assert_non_null(strstr(error.message, "label"));
    }
    memset(longest, 'x', sizeof longest);
    longest[RUNNEL_LABEL_BYTES] = '\0';
    request.label = longest;
    TOLD(runnel_generate(model, &request, &stream, &error));
    longest[RUNNEL_LABEL_BYTES - 1] = '\0';
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_OK);
    runnel_stream_cancel(engine, stream);
}

/* The one live stream. */
static runnel_stream_info only(void)
{
    runnel_stream_info info = {.struct_size = sizeof info}, other = info;
    uint64_t cursor = 0;

    assert_int_equal(runnel_engine_streams(engine, &cursor, &info), RUNNEL_OK);
    assert_int_equal(runnel_engine_streams(engine, &cursor, &other), RUNNEL_NOT_FOUND);
    return info;
}

static void step(void)
{
    manual_run(engine);
    assert_non_null(oracle->first);
    oracle_complete(oracle, ORACLE_FAULT_NONE);
    manual_run(engine);
}

static void life_of_a_stream(void **state)
{
    runnel_request request = make_request("a prompt of more than sixteen rows", 3, NULL);
    char label[] = "r\xc3\xa9sum\xc3\xa9 7";
    runnel_stream_info info;
    runnel_stream stream;
    runnel_event event;
    uint64_t cursor = 0;

    (void)state;
    info.struct_size = sizeof info;
    assert_int_equal(runnel_engine_streams(engine, &cursor, &info), RUNNEL_NOT_FOUND);
    request.label = label;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    memset(label, 'x', sizeof label - 1); /* it was copied */
    info = only();
    assert_int_equal(info.phase, RUNNEL_PHASE_QUEUED);
    assert_int_equal(info.stream.id, stream.id);
    assert_string_equal(info.label, "r\xc3\xa9sum\xc3\xa9 7");
    assert_string_equal(info.model, "model");
    assert_int_equal(info.tokens, 0);
    step();
    info = only();
    assert_int_equal(info.phase, RUNNEL_PHASE_PREFILL);
    while (only().phase == RUNNEL_PHASE_PREFILL)
        step();
    info = only();
    assert_int_equal(info.phase, RUNNEL_PHASE_DECODE);
    assert_int_equal(info.tokens, 1);
    assert_int_equal(info.paused, 0);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
    assert_int_equal(only().paused, 1);
    assert_int_equal(runnel_stream_resume(engine, stream), RUNNEL_OK);
    step();
    assert_int_equal(only().tokens, 2);
    step();
    info = only();
    assert_int_equal(info.phase, RUNNEL_PHASE_ENDED);
    assert_int_equal(info.tokens, 3);
    do {
        assert_int_equal(runnel_stream_next(engine, stream, 0, &event), RUNNEL_OK);
        assert_ptr_equal(event.user, NULL);
    } while (event.type < RUNNEL_EVENT_DONE);
    cursor = 0;
    assert_int_equal(runnel_engine_streams(engine, &cursor, &info), RUNNEL_NOT_FOUND);
    assert_non_null(strstr(log_lines, "r\xc3\xa9sum\xc3\xa9 7: done, "));
    manual_close(engine, oracle); /* the trace is told */
    engine = NULL;
    assert_string_equal(traced_labels, "r\xc3\xa9sum\xc3\xa9 7;r\xc3\xa9sum\xc3\xa9 7;r\xc3\xa9sum\xc3\xa9 7;");
}

static void list_of_several(void **state)
{
    runnel_stream_info info = {.struct_size = sizeof info};
    runnel_stream streams[3];
    uint64_t cursor = 0;
    unsigned seen = 0;
    char label[8];

    (void)state;
    for (int i = 0; i < 3; i++) {
        runnel_request request = make_request("abc", 1, NULL);

        snprintf(label, sizeof label, "no. %d", i);
        request.label = label;
        assert_int_equal(runnel_generate(model, &request, &streams[i], NULL), RUNNEL_OK);
    }
    while (runnel_engine_streams(engine, &cursor, &info) == RUNNEL_OK) {
        int i = info.label[4] - '0';

        assert_in_range(i, 0, 2);
        assert_int_equal(info.stream.id, streams[i].id);
        assert_int_equal(seen & 1u << i, 0);
        seen |= 1u << i;
    }
    assert_int_equal(seen, 7);
}

/* A host without descriptors hears what is lacking. */
static void no_descriptors(void **state)
{
    runnel_engine *none = NULL;
    runnel_error error;
    struct rlimit limit, few;
    int next = dup(0);

    (void)state;
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(runnel_engine_new(NULL, &none, &error), RUNNEL_NO_MEMORY);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_non_null(strstr(error.message, "file descriptors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(null_engines, setup, teardown),
        cmocka_unit_test_setup_teardown(null_models, setup, teardown),
        cmocka_unit_test_setup_teardown(null_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(null_files, setup, teardown),
        cmocka_unit_test(parameter_sizes),
        cmocka_unit_test(first_sizes),
        cmocka_unit_test_setup_teardown(result_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(event_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(reserved, setup, teardown),
        cmocka_unit_test(names),
        cmocka_unit_test(no_descriptors),
        cmocka_unit_test_setup_teardown(empty, setup, teardown),
        cmocka_unit_test_setup_teardown(labels_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(life_of_a_stream, setup, teardown),
        cmocka_unit_test_setup_teardown(list_of_several, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
