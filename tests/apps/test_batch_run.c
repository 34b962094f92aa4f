/* The loop of a batch job over an engine that is played here: one that is busy, short of memory, fails, or cancels. The
 * functions of runnel.h that the loop calls are defined below; the library is not linked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/runnel/batch/batch.h"

enum { MAX_PLAYED = 64 };

/* What the played engine does, and what it has seen. */
static struct {
    runnel_status refusal;     /* of the next `refusals` submits */
    unsigned refusals, spared; /* spared: submits that go well before */
    uint32_t retry_ms;
    runnel_event_type end; /* how streams end */
    runnel_status failure;
    unsigned submits, good, most_at_once;
    int32_t priority;
    struct {
        runnel_event_fn on_event;
        void *user;
    } streams[MAX_PLAYED];
    unsigned n_streams;
} played;

/* ---- The engine -------------------------------------------------------------------------- */

void runnel_request_init(runnel_request *request, size_t struct_size)
{
    *request = (runnel_request){.struct_size = struct_size};
}

void runnel_grammar_init(runnel_grammar *grammar, size_t struct_size)
{
    assert_int_equal(struct_size, sizeof *grammar);
    *grammar = (runnel_grammar){.struct_size = struct_size, .free_reasoning = 1};
}

void runnel_infill_init(runnel_infill *infill, size_t struct_size)
{
    *infill = (runnel_infill){.struct_size = struct_size};
}

runnel_status runnel_tokenize_infill(runnel_model *model, const runnel_infill *infill, int32_t *tokens, size_t capacity,
                                     size_t *count, runnel_error *error)
{
    (void)model, (void)infill, (void)tokens, (void)capacity, (void)error;
    *count = 0;
    return RUNNEL_UNSUPPORTED;
}

void runnel_samplers_init(runnel_samplers *samplers, size_t struct_size)
{
    *samplers = (runnel_samplers){.struct_size = struct_size};
}

void runnel_chat_init(runnel_chat *chat, size_t struct_size)
{
    *chat = (runnel_chat){.struct_size = struct_size};
}

const char *runnel_status_text(runnel_status status)
{
    (void)status;
    return "a played failure";
}

runnel_status runnel_model_get_info(runnel_model *model, runnel_model_info *info)
{
    (void)model;
    info->add_bos = 0;
    return RUNNEL_OK;
}

runnel_status runnel_detokenize(runnel_model *model, const int32_t *tokens, size_t count, int special, char *text,
                                size_t capacity, size_t *text_bytes)
{
    (void)model, (void)tokens, (void)count, (void)special, (void)text, (void)capacity;
    *text_bytes = 0;
    return RUNNEL_OK;
}

runnel_status runnel_token_text(runnel_model *model, int32_t token, int special, char *text, size_t capacity,
                                size_t *text_bytes)
{
    (void)model, (void)token, (void)special, (void)text, (void)capacity;
    *text_bytes = 0;
    return RUNNEL_OK;
}

void app_streams_show(const struct app *app)
{
    (void)app;
}

runnel_status runnel_tokenize(runnel_model *model, const char *text, size_t text_bytes, uint32_t flags, int32_t *tokens,
                              size_t capacity, size_t *count)
{
    (void)model, (void)text, (void)text_bytes, (void)flags, (void)tokens, (void)capacity;
    *count = 0;
    return RUNNEL_OK;
}

runnel_status runnel_generate(runnel_model *model, const runnel_request *request, runnel_stream *stream,
                              runnel_error *error)
{
    (void)model;
    played.submits++;
    played.priority = request->priority;
    if (played.spared > 0) {
        played.spared--;
    } else if (played.refusals > 0) {
        played.refusals--;
        *error = (runnel_error){.status = played.refusal, .retry_ms = played.retry_ms};
        return played.refusal;
    }
    assert_in_range(played.n_streams, 0, MAX_PLAYED - 1);
    played.streams[played.n_streams].on_event = request->on_event;
    played.streams[played.n_streams].user = request->user;
    played.n_streams++;
    played.good++;
    played.most_at_once = played.n_streams > played.most_at_once ? played.n_streams : played.most_at_once;
    stream->id = played.good;
    return RUNNEL_OK;
}

/* No line of these tests asks for one. */
runnel_status runnel_embed(runnel_model *model, const runnel_embed_request *request, runnel_stream *stream,
                           runnel_error *error)
{
    (void)model, (void)request, (void)stream, (void)error;
    fail_msg("an embedding is asked for");
    return RUNNEL_UNSUPPORTED;
}

runnel_status runnel_score(runnel_model *model, const runnel_score_request *request, runnel_stream *stream,
                           runnel_error *error)
{
    (void)model, (void)request, (void)stream, (void)error;
    fail_msg("scores are asked for");
    return RUNNEL_UNSUPPORTED;
}

void runnel_score_request_init(runnel_score_request *request, size_t struct_size)
{
    *request = (runnel_score_request){.struct_size = struct_size};
}

runnel_status runnel_model_label(runnel_model *model, uint32_t index, const char **text, size_t *text_bytes)
{
    (void)model, (void)index, (void)text, (void)text_bytes;
    fail_msg("a label is asked for");
    return RUNNEL_UNSUPPORTED;
}

void runnel_embed_request_init(runnel_embed_request *request, size_t struct_size)
{
    *request = (runnel_embed_request){.struct_size = struct_size};
}

runnel_status runnel_engine_wait(runnel_engine *engine, int64_t timeout_ms)
{
    struct timespec pause = {.tv_nsec = (long)timeout_ms * 1000000};

    (void)engine;
    if (played.n_streams == 0)
        nanosleep(&pause, NULL);
    return RUNNEL_OK;
}

/* The stream that was submitted last says "hi" and ends. */
size_t runnel_engine_dispatch(runnel_engine *engine, size_t max_events)
{
    runnel_event event = {.type = RUNNEL_EVENT_TOKEN, .text = "hi", .text_bytes = 2, .token = 1, .error = ""};
    unsigned last = 0;

    (void)engine, (void)max_events;
    if (played.n_streams == 0)
        return 0;
    last = --played.n_streams;
    played.streams[last].on_event(played.streams[last].user, &event);
    event.type = played.end;
    event.text_bytes = 0;
    event.finish = RUNNEL_FINISH_STOP;
    event.status = played.failure;
    event.error = "a played failure";
    event.usage = (runnel_usage){.prompt_tokens = 2, .completion_tokens = 1};
    played.streams[last].on_event(played.streams[last].user, &event);
    return 2;
}

runnel_status runnel_stream_cancel(runnel_engine *engine, runnel_stream stream)
{
    (void)engine, (void)stream;
    return RUNNEL_OK;
}

/* ---- A job ------------------------------------------------------------------------------- */

struct job {
    char folder[64], paths[3][96]; /* input, output, journal */
    struct app_options options;
    struct batch *batch;
};

static void begin(struct job *job, unsigned n_lines)
{
    static const char *const names[] = {"in", "out", "journal"};
    char folder[] = "/tmp/runnel-batch-XXXXXX";
    bool fresh = false;
    FILE *file = NULL;

    memset(&played, 0, sizeof played);
    played.end = RUNNEL_EVENT_DONE;
    *job = (struct job){.options = {.batch_streams = 4, .quiet = true}};
    assert_non_null(mkdtemp(folder));
    memcpy(job->folder, folder, sizeof folder);
    for (int i = 0; i < 3; i++)
        snprintf(job->paths[i], sizeof job->paths[i], "%s/%s", folder, names[i]);
    file = fopen(job->paths[0], "w");
    assert_non_null(file);
    for (unsigned i = 0; i < n_lines; i++)
        fprintf(file,
                "{\"custom_id\":\"%u\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                "\"body\":{\"prompt\":\"a\"}}\n",
                i);
    fclose(file);
    job->batch = calloc(1, sizeof *job->batch);
    assert_non_null(job->batch);
    job->batch->app.options = &job->options;
    job->batch->model_name = "played";
    assert_true(batch_input_open(&job->batch->input, job->paths[0], 1 << 20));
    assert_true(batch_journal_open(&job->batch->journal, job->paths[2], BATCH_FRESH, &fresh));
    assert_true(fresh);
    assert_true(
        batch_output_open(&job->batch->output, job->paths[1], NULL, BATCH_FRESH, fresh, true, &job->batch->job));
    assert_true(batch_journal_create(job->batch->journal, NULL, 0, &job->batch->job));
}

/* Lines of the output that hold `word`. */
static unsigned count(const struct job *job, const char *word)
{
    FILE *file = fopen(job->paths[1], "r");
    char line[4096];
    unsigned n = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        n += strstr(line, word) != NULL;
    fclose(file);
    return n;
}

static void end(struct job *job)
{
    for (size_t i = 0; i < job->batch->n_lines; i++)
        batch_line_free(job->batch->lines[i]);
    batch_output_close(&job->batch->output);
    batch_journal_close(job->batch->journal);
    batch_input_close(&job->batch->input);
    free(job->batch);
    for (int i = 0; i < 3; i++)
        unlink(job->paths[i]);
    assert_int_equal(rmdir(job->folder), 0);
}

/* ---- Tests ------------------------------------------------------------------------------- */

static void test_good(void **state)
{
    struct job job;

    (void)state;
    begin(&job, 20);
    batch_run(job.batch);
    assert_int_equal(job.batch->code, APP_OK);
    assert_int_equal(count(&job, "\"text\":\"hi\""), 20);
    assert_int_equal(played.submits, 20);
    assert_int_equal(played.most_at_once, 4); /* --streams */
    assert_true(played.priority < 0);
    end(&job);
}

/* Tried again, no sooner than the engine says, until it takes the line; nothing is lost and nothing is an error. */
static void test_busy(void **state)
{
    struct job job;
    uint64_t before = 0;

    (void)state;
    begin(&job, 10);
    played.refusal = RUNNEL_BUSY;
    played.refusals = 5;
    played.retry_ms = 30;
    before = batch_clock_us();
    batch_run(job.batch);
    assert_int_equal(job.batch->code, APP_OK);
    assert_int_equal(count(&job, "\"text\":\"hi\""), 10);
    assert_int_equal(played.submits, 15);
    assert_true(batch_clock_us() - before >= 5 * 30 * 1000);
    end(&job);
}

static void test_short_of_memory(void **state)
{
    struct job job;

    (void)state;
    begin(&job, 10);
    played.refusal = RUNNEL_NO_MEMORY;
    played.spared = 2; /* others run: they give memory back when they end */
    played.refusals = 1;
    batch_run(job.batch);
    assert_int_equal(job.batch->code, APP_OK);
    assert_int_equal(count(&job, "\"text\":\"hi\""), 10);
    end(&job);

    begin(&job, 10);
    played.refusal = RUNNEL_NO_MEMORY; /* nobody runs: it will not get better */
    played.refusals = 1;
    batch_run(job.batch);
    assert_int_equal(job.batch->code, APP_FAILURE);
    assert_int_equal(count(&job, "custom_id"), 0);
    end(&job);
}

/* What the request is at fault for is its answer; what the machine fails at is none. */
static void test_failures(void **state)
{
    static const struct {
        runnel_event_type end;
        runnel_status status;
        int code;
        const char *word;
    } cases[] = {
        {RUNNEL_EVENT_FAILED, RUNNEL_CONTEXT, APP_OK, "\"code\":\"context_length_exceeded\""},
        {RUNNEL_EVENT_FAILED, RUNNEL_INVALID, APP_OK, "\"status_code\":400"},
        {RUNNEL_EVENT_FAILED, RUNNEL_NUMERIC, APP_OK, "\"status_code\":500"},
        {RUNNEL_EVENT_FAILED, RUNNEL_NO_MEMORY, APP_FAILURE, NULL},
        {RUNNEL_EVENT_FAILED, RUNNEL_DEVICE, APP_FAILURE, NULL},
        {RUNNEL_EVENT_FAILED, RUNNEL_TIMEOUT, APP_FAILURE, NULL},
        {RUNNEL_EVENT_CANCELLED, RUNNEL_OK, APP_FAILURE, NULL},
    };
    struct job job;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(&job, 3);
        played.end = cases[i].end;
        played.failure = cases[i].status;
        batch_run(job.batch);
        assert_int_equal(job.batch->code, cases[i].code);
        assert_int_equal(count(&job, "custom_id"), cases[i].word != NULL ? 3 : 0);
        assert_int_equal(cases[i].word != NULL ? count(&job, cases[i].word) : 0, cases[i].word != NULL ? 3 : 0);
        end(&job);
    }
}

static void test_refused(void **state)
{
    struct job job;

    (void)state;
    begin(&job, 6);
    played.refusal = RUNNEL_CONTEXT;
    played.spared = 2;
    played.refusals = 1;
    batch_run(job.batch);
    assert_int_equal(job.batch->code, APP_OK);
    assert_int_equal(count(&job, "\"text\":\"hi\""), 5);
    assert_int_equal(count(&job, "\"custom_id\":\"2\",\"response\":{\"status_code\":400"), 1);
    end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),     cmocka_unit_test(test_busy),    cmocka_unit_test(test_short_of_memory),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
