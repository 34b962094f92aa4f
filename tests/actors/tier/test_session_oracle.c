/* Copies of shared blocks, and files by hostile hands, on the oracle model: its KV is a chain over all of the past, so
 * that one position from elsewhere shows in every token behind it. One thread; steps at the test's will. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache/store/session_file.h"
#include "tests/actors/fixture.h"
#include "runnel_files.h"
#include "tests/base/whole_file.h"
#include "tests/sim/manual.h"

#define BLOCK 8
#define MAX_TOKENS 32

static bool at_once;
static char path[64];

static void on_step(void *user, struct oracle *of)
{
    const struct rn_step *step = of->last;

    (void)user;
    for (uint32_t i = 0; i < step->n_rows; i++)
        assert_int_equal(rn_block_pool_references(&manual.model->tier.cache.blocks.pool,
                                                  step->seqs[step->rows[i].seq].blocks[step->rows[i].position / BLOCK]),
                         1);
    if (at_once)
        oracle_complete(of, ORACLE_FAULT_NONE);
}

static void open_engine(uint32_t n_blocks)
{
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits = {.max_rows = 16,
                   .max_seqs = 10,
                   .max_outs = 8,
                   .n_blocks = n_blocks,
                   .block_tokens = BLOCK,
                   .context_tokens = MAX_TOKENS},
        .n_letters = 4,
        .options = &options,
        .submitted = on_step,
    };

    at_once = true;
    runnel_engine_options_default(&options);
    options.max_streams = 4;
    options.max_sessions = 4;
    manual_begin(&plan);
}

static int setup(void **state)
{
    (void)state;
    open_engine(32);
    return 0;
}

static int setup_tight(void **state)
{
    (void)state;
    open_engine(4);
    return 0;
}

/* All that can be done without another step; what is free then holds rubbish. */
static void settle(void)
{
    manual_settle(manual.engine);
    manual_check(manual.model, manual.oracle);
}

static void step(enum oracle_fault fault)
{
    assert_non_null(manual.oracle->first);
    oracle_complete(manual.oracle, fault);
    settle();
}

/* A conversation of one message, which takes the place of the session's: what both begin with stays. */
static runnel_stream say(struct capture *capture, runnel_session session, const char *text, int64_t max_tokens)
{
    runnel_message message = {"user", text, NULL};
    runnel_request request = make_request(NULL, max_tokens, capture);
    runnel_chat chat;
    runnel_stream stream;

    memset(capture, 0, sizeof *capture);
    runnel_chat_default(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    chat.template_text = "{{ messages[0].content }}";
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.chat = &chat;
    request.raw_answer = 1;
    request.session = session;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    settle();
    return stream;
}

/* Done, and right. */
static void assert_done(struct capture *capture, const char *text, uint64_t n_cached)
{
    struct oracle_chain chain;

    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->last.usage.cached_tokens, n_cached);
    oracle_chain_init(&chain, manual.oracle->salt);
    for (; *text != '\0'; text++)
        oracle_chain_push(&chain, *text);
    for (size_t i = 0; i < capture->n_tokens; i++) {
        assert_int_equal(capture->tokens[i], oracle_chain_next(&chain, &manual.oracle->alphabet));
        oracle_chain_push(&chain, capture->tokens[i]);
    }
    capture_clear(capture);
}

static runnel_session new_session(void)
{
    runnel_session session;

    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
    return session;
}

/* ---- Copies ---- */

#define LONG "abcdefghijklmnopqrst" /* two blocks and a half */

/* Back into a block that the tree has: what stands before the cut is not computed again, and the tree's stays whole. */
static void cut_back(void **state)
{
    runnel_session session = new_session();
    struct capture capture;

    (void)state;
    say(&capture, session, LONG, 2);
    assert_done(&capture, LONG, 0);
    say(&capture, session, "abcdefghijklmX", 1); /* 13 tokens are the same */
    assert_int_equal(manual.oracle->n_copies, 1);
    assert_done(&capture, "abcdefghijklmX", 13);
    say(&capture, (runnel_session){0}, LONG, 3);
    assert_done(&capture, LONG, 16);
    say(&capture, session, "abcdefghijklmX", 3); /* all but the last are there, in the session's own block */
    assert_done(&capture, "abcdefghijklmX", 13);
    assert_int_equal(manual.oracle->n_copies, 1);
    say(&capture, session, "abcdefghX", 1); /* at a block's start there is nothing to copy */
    assert_done(&capture, "abcdefghX", 8);
    assert_int_equal(manual.oracle->n_copies, 1);
}

/* A copy that was not made, since the step failed or the turn was cancelled before it ran, costs nothing that was
 * there. */
static void not_made(void **state)
{
    runnel_session session = new_session(), copy;
    struct capture capture, other;
    runnel_stream stream;

    (void)state;
    say(&capture, session, "abcdefghijk", 1);
    assert_done(&capture, "abcdefghijk", 0);
    assert_int_equal(runnel_session_fork(manual.model, session, &copy), RUNNEL_OK);
    settle();
    at_once = false;
    say(&capture, copy, "abcdefghijX", 1);
    step(ORACLE_FAULT_DEVICE);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_FAILED);
    capture_clear(&capture);
    say(&other, (runnel_session){0}, "zzz", 1); /* its step holds the next one up */
    stream = say(&capture, copy, "abcdefghijY", 1);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    settle();
    assert_int_equal(manual.oracle->first->n_copies, 0);
    step(ORACLE_FAULT_NONE);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    capture_clear(&capture);
    assert_done(&other, "zzz", 0);
    say(&capture, copy, "abcdefghijZ", 1);
    say(&other, session, "abcdefghijk", 1); /* both at once */
    while (manual.oracle->first != NULL)
        step(ORACLE_FAULT_NONE);
    assert_done(&capture, "abcdefghijZ", 10);
    assert_done(&other, "abcdefghijk", 10);
}

/* Four blocks, all of them wanted: a copy would need a fifth. Shared with the tree the block is computed again; shared
 * with an idle session, which gives its own back, it is written in place. */
static void no_room(void **state)
{
    runnel_session session = new_session(), copy;
    struct capture capture;

    (void)state;
    say(&capture, session, "abcdefghijklmnopq", 1);
    assert_done(&capture, "abcdefghijklmnopq", 0);
    say(&capture, session, "abcdefghijklmX", -1);
    assert_done(&capture, "abcdefghijklmX", 8);
    say(&capture, session, "abcdefghijkl", 1);
    capture_clear(&capture);
    assert_int_equal(runnel_session_fork(manual.model, session, &copy), RUNNEL_OK);
    settle();
    say(&capture, session, "abcdefghijklm", -1);
    assert_done(&capture, "abcdefghijklm", 12);
    say(&capture, copy, "abcdefghijklm", 1);
    assert_done(&capture, "abcdefghijklm", 12); /* of the tree: a block, and of another one a copy */
    assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_OK);
    assert_int_equal(runnel_session_free(manual.model, copy), RUNNEL_OK);
    settle();
    assert_quiet(manual.engine, 0);
}

/* ---- Files ---- */

static runnel_event send_file(runnel_session *session, bool exports, struct capture *capture)
{
    runnel_session_file file;
    runnel_stream stream;

    memset(capture, 0, sizeof *capture);
    runnel_session_file_default(&file);
    file.path = path;
    file.note = "note";
    file.note_bytes = 4;
    file.on_event = capture_event;
    file.user = capture;
    assert_int_equal(exports ? runnel_session_export(manual.model, *session, &file, &stream, NULL)
                             : runnel_session_import(manual.model, &file, session, &stream, NULL),
                     RUNNEL_OK);
    settle();
    assert_int_equal(capture->n_events, 1);
    return capture->last;
}

/* An error, and no session; never a crash. */
static void assert_refused(void)
{
    struct capture capture;
    runnel_session session;
    runnel_event end = send_file(&session, false, &capture);

    if (end.type != RUNNEL_EVENT_FAILED || (end.status != RUNNEL_FORMAT && end.status != RUNNEL_UNSUPPORTED))
        fail_msg("a damaged file gave event %d, %s", (int)end.type, runnel_status_name(end.status));
    assert_true(strstr(capture.error, path) != NULL);
    assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_NOT_FOUND);
    capture_clear(&capture);
}

/* Copies that were asked for of a session that then does not come out of its file: no empty ones. */
static void never_came(void **state)
{
    struct capture came = {0}, copied = {0}, said;
    runnel_session_file file;
    runnel_session session, copy;
    runnel_stream stream;

    (void)state;
    strcpy(path, "/tmp/runnel-test-XXXXXX");
    close(mkstemp(path));
    write_whole(path, "rubbish", 7);
    runnel_session_file_default(&file);
    file.path = path;
    file.on_event = capture_event;
    file.user = &came;
    assert_int_equal(runnel_session_import(manual.model, &file, &session, &stream, NULL), RUNNEL_OK);
    file.user = &copied;
    assert_int_equal(runnel_session_export(manual.model, session, &file, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_session_fork(manual.model, session, &copy), RUNNEL_OK);
    settle();
    assert_int_equal(came.last.status, RUNNEL_FORMAT);
    assert_int_equal(copied.last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(copied.last.status, RUNNEL_NOT_FOUND);
    say(&said, copy, "abcd", 4);
    assert_int_equal(said.last.status, RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_session_free(manual.model, copy), RUNNEL_OK);
    capture_clear(&came);
    capture_clear(&copied);
    capture_clear(&said);
    settle();
    unlink(path);
}

/* Every bit of a small file flipped, every length, something behind its end. */
static void mutated(void **state)
{
    static unsigned char bytes[2048];
    runnel_session session = new_session();
    struct capture capture;
    runnel_event end;
    size_t n;

    (void)state;
    strcpy(path, access("/dev/shm", W_OK) == 0 ? "/dev/shm/runnel-test-XXXXXX" : "/tmp/runnel-test-XXXXXX");
    close(mkstemp(path));
    say(&capture, session, LONG, 2);
    capture_clear(&capture);
    end = send_file(&session, true, &capture);
    assert_int_equal(end.type, RUNNEL_EVENT_DONE);
    n = read_whole(path, bytes, sizeof bytes);
    assert_int_equal(n, 128 + 4 * 22 + 4 + 3 * (BLOCK * 8 + 16));
    for (size_t i = 0; i < 8 * n; i++) {
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        write_whole(path, bytes, n);
        assert_refused();
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    for (size_t i = 0; i < n; i++) {
        write_whole(path, bytes, i);
        assert_refused();
    }
    write_whole(path, bytes, n + 1);
    assert_refused();
    for (size_t i = 0; i < BLOCK * 8 + 16; i++) { /* two blocks change places */
        unsigned char *block = bytes + n - 3 * (BLOCK * 8 + 16) + i, kept = block[0];

        block[0] = block[BLOCK * 8 + 16];
        block[BLOCK * 8 + 16] = kept;
    }
    write_whole(path, bytes, n);
    assert_refused();
    unlink(path);
    assert_int_equal(runnel_session_free(manual.model, session), RUNNEL_OK);
    settle();
    assert_quiet(manual.engine, 0);
}

static bool stops_at_once(void *user)
{
    uint32_t *left = user;

    return (*left)-- == 1;
}

/* Who reads is asked all the time whether he still wants to: of a note, and of a block, of a megabyte each. */
static void stopped(void **state)
{
    enum { MEGABYTE = 1 << 20, ASKED = MEGABYTE / 16384 };
    const struct rn_session_head head = {.block_tokens = 1,
                                         .block_bytes = MEGABYTE,
                                         .note_bytes = MEGABYTE,
                                         .n_tokens = 1,
                                         .n_computed = 1,
                                         .n_blocks = 1};
    unsigned char *bytes = calloc(1, MEGABYTE);
    struct rn_session_writer writer;
    struct rn_heap heap;
    runnel_error error = {0};
    int32_t token = 7;

    (void)state;
    rn_heap_init(&heap, NULL);
    strcpy(path, "/tmp/runnel-test-XXXXXX");
    close(mkstemp(path));
    assert_int_equal(rn_session_writer_open(&writer, &heap, path, &head, &token, bytes, &error), RUNNEL_OK);
    assert_int_equal(rn_session_writer_block(&writer, bytes, &error), RUNNEL_OK);
    assert_int_equal(rn_session_writer_finish(&writer, &error), RUNNEL_OK);
    rn_session_writer_fini(&writer);
    for (uint32_t at = 1; at <= 2 * ASKED + 2; at++) {
        struct rn_session_reader reader;
        uint32_t left = at;
        runnel_status status;

        error = (runnel_error){0};
        assert_int_equal(rn_session_reader_open(&reader, path, &error), RUNNEL_OK);
        reader.stops = stops_at_once;
        reader.user = &left;
        status = rn_session_reader_text(&reader, NULL, NULL, &error);
        assert_int_equal(status, at <= 1 + ASKED ? RUNNEL_CANCELLED : RUNNEL_OK);
        if (status == RUNNEL_OK)
            status = rn_session_reader_block(&reader, NULL, &error);
        assert_int_equal(status, at <= 1 + 2 * ASKED ? RUNNEL_CANCELLED : RUNNEL_OK);
        rn_session_reader_fini(&reader);
    }
    unlink(path);
    free(bytes);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* The oracle of another salt has another KV: the tokens come, and are computed. */
static void foreign_kv(void **state)
{
    runnel_session session = new_session();
    struct capture capture;
    runnel_event end;

    (void)state;
    strcpy(path, "/tmp/runnel-test-XXXXXX");
    close(mkstemp(path));
    say(&capture, session, LONG, 2);
    capture_clear(&capture);
    assert_int_equal(send_file(&session, true, &capture).type, RUNNEL_EVENT_DONE);
    runnel_engine_free(manual.engine);
    oracle_free(manual.oracle);
    open_engine(16);
    end = send_file(&session, false, &capture); /* the same salt: another engine */
    assert_int_equal(end.usage.prompt_tokens, 22);
    assert_int_equal(end.usage.cached_tokens, 21);
    say(&capture, session, LONG "X", 2);
    assert_done(&capture, LONG "X", 20);
    snprintf(manual.oracle->layout, sizeof manual.oracle->layout, "another");
    manual.model->prints.known = false;
    end = send_file(&session, false, &capture);
    assert_int_equal(end.usage.prompt_tokens, 22);
    assert_int_equal(end.usage.cached_tokens, 0);
    say(&capture, session, LONG "X", 2);
    assert_done(&capture, LONG "X", 0);
    unlink(path);
}

/* A turn of a whole conversation that is cancelled while it waits for room leaves its session as it was. */
static void a_chat_that_never_ran(void **state)
{
    static const int32_t first[] = {'a', 'b', 'c', 'd', 'e'}, other[] = {'x'};
    runnel_message message = {"user", "a longer text than is free", NULL};
    const struct manual_plan plan = {
        .limits = {
            .max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = 4, .block_tokens = 8, .context_tokens = 32}};
    struct capture captures[3] = {{0}};
    runnel_request requests[3];
    runnel_stream stream;
    runnel_session session;
    runnel_chat chat;

    (void)state;
    manual_begin(&plan);
    runnel_chat_default(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    chat.template_text = "{{ messages[0].content }}";
    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
    for (int i = 0; i < 3; i++)
        requests[i] = make_request(NULL, i == 0 ? 2 : 3, &captures[i]);
    requests[0].tokens = first;
    requests[0].n_tokens = 5;
    requests[0].session = requests[2].session = session;
    assert_int_equal(runnel_generate(manual.model, &requests[0], &stream, NULL), RUNNEL_OK);
    manual_run_out();
    assert_int_equal(captures[0].last.usage.prompt_tokens, 5);
    requests[1].tokens = other; /* it computes, and has a block */
    requests[1].n_tokens = 1;
    assert_int_equal(runnel_generate(manual.model, &requests[1], &stream, NULL), RUNNEL_OK);
    manual_settle(manual.engine);
    requests[2].chat = &chat; /* it needs all four */
    assert_int_equal(runnel_generate(manual.model, &requests[2], &stream, NULL), RUNNEL_OK);
    manual_settle(manual.engine);
    assert_int_equal(captures[2].n_terminal, 0);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    manual_settle(manual.engine);
    assert_int_equal(captures[2].last.type, RUNNEL_EVENT_CANCELLED);
    manual_run_out();
    requests[2].chat = NULL;
    requests[2].tokens = other;
    requests[2].n_tokens = 1;
    captures[2] = (struct capture){0};
    assert_int_equal(runnel_generate(manual.model, &requests[2], &stream, NULL), RUNNEL_OK);
    manual_run_out();
    assert_int_equal(captures[2].last.usage.prompt_tokens, 5 + 2 + 1);
    for (int i = 0; i < 3; i++)
        capture_clear(&captures[i]);
    manual_end(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cut_back, setup, manual_end),
        cmocka_unit_test_setup_teardown(not_made, setup, manual_end),
        cmocka_unit_test_setup_teardown(no_room, setup_tight, manual_end),
        cmocka_unit_test_setup_teardown(never_came, setup, manual_end),
        cmocka_unit_test_setup_teardown(mutated, setup, manual_end),
        cmocka_unit_test(stopped),
        cmocka_unit_test(a_chat_that_never_ran),
        cmocka_unit_test_setup_teardown(foreign_kv, setup, manual_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
