/* Prefixes that leave the pool and come back: out of packed memory, out of files after a restart, or, where something
 * fails, by being computed. The oracle model, one thread, steps at the test's will: what is wrong anywhere in the past
 * changes every later token. The same with the bundled model and its threads, against a model without a cache. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "base/rng.h"
#include "fixture.h"
#include "tests/sim/oracle_backend.h"

#define BLOCK 8
#define BLOCKS 32
#define LONG 120 /* fifteen blocks */

static const struct oracle_alphabet alphabet = {4, {'a', 'b', 'c', 'd'}};
static runnel_engine *engine;
static runnel_model *model;
static struct oracle *oracle;
static char folder[64];
static int n_warnings;

/* ---- The oracle model ---- */

static void on_log(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    (void)line;
    n_warnings += level <= RUNNEL_LOG_WARNING;
}

/* A step takes a while, so that fetching is worth it: or else the tier would rather compute. */
static uint64_t time_us;
static const struct rn_backend_ops *fast_ops;
static struct rn_backend_ops slow_ops;
static uint64_t block_us; /* that one takes to come up */

static uint64_t now_us(void *user)
{
    (void)user;
    return ++time_us;
}

static runnel_status slow_write(struct rn_backend *backend, uint32_t block, const void *bytes)
{
    time_us += block_us;
    return fast_ops->write_block(backend, block, bytes);
}

static uint64_t copy_us; /* that a block takes to be copied down */

static runnel_status slow_read(struct rn_backend *backend, uint32_t block, uint32_t n, void *bytes)
{
    time_us += copy_us;
    return fast_ops->read_block(backend, block, n, bytes);
}

struct tiers {
    uint64_t warm_bytes;
    bool cold;
    const struct rn_cold_io *io;
    const char *shared;
    const char *codec;
};

static void begin(const struct tiers *tiers)
{
    static const struct rn_backend_limits limits = {.max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = BLOCKS,
                                                    .block_tokens = BLOCK, .context_tokens = 128};
    struct rn_model_parts parts = {.limits = limits, .n_vocab = ORACLE_VOCAB, .cold_io = tiers->io,
                                   .cache_places = 256};
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_error error;
    const struct rn_clock clock = {.now_us = now_us};

    runnel_engine_options_default(&options);
    options.max_streams = 8;
    options.on_log = on_log;
    assert_int_equal(rn_engine_new(&options, &clock, true, &engine, NULL), RUNNEL_OK);
    oracle = oracle_new(&limits, &alphabet, 1);
    parts.backend = &oracle->backend;
    fast_ops = oracle->backend.ops;
    slow_ops = *fast_ops;
    slow_ops.write_block = slow_write;
    slow_ops.read_block = slow_read;
    oracle->backend.ops = &slow_ops;
    parts.vocab = rn_vocab_new_bytes(&engine->heap);
    runnel_model_options_default(&model_options);
    model_options.cache_warm_bytes = tiers->warm_bytes;
    model_options.cache_dir = tiers->cold ? folder : NULL;
    model_options.cache_shared = tiers->shared;
    model_options.cache_codec = tiers->codec;
    if (rn_model_new_of_parts(engine, &parts, &model_options, &model, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

static void end(void)
{
    runnel_engine_free(engine);
    assert_null(oracle->breach);
    oracle_free(oracle);
}

static bool mover_hangs; /* as if its disk did */

/* Runs one actor; false: none can run. */
static bool run_one(void)
{
    for (uint32_t i = 0; i < rn_runtime_runnable(&engine->runtime); i++)
        if (!mover_hangs || engine->runtime.runnable[i] != &model->mover.actor) {
            rn_runtime_step(&engine->runtime, i, RN_ACTOR_BATCH);
            return true;
        }
    return false;
}

static void settle(void)
{
    do {
        while (run_one())
            continue;
    } while (runnel_engine_dispatch(engine, 0) > 0);
    assert_true(rn_prefix_tree_check(&model->tier.tree) && rn_block_pool_check(&model->tier.pool));
    for (uint32_t i = 0; i < model->tier.pool.n_free; i++)
        oracle_poison_block(oracle, model->tier.pool.free_stack[i]);
}

static void run_out(void)
{
    settle();
    while (oracle->first != NULL) {
        time_us += 1000;
        oracle_complete(oracle, ORACLE_FAULT_NONE);
        settle();
    }
}

/* A prompt of its own for each number; those of one `family` begin alike. */
static void make_prompt(int32_t *tokens, uint32_t n, uint32_t family, uint32_t n_same, uint32_t number)
{
    uint64_t same = family, own = 1000 + number;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(rn_splitmix64(i < n_same ? &same : &own) % 251);
}

static runnel_request request_of(struct capture *capture, const int32_t *tokens, uint32_t n, int64_t max_tokens)
{
    runnel_request request = make_request(NULL, max_tokens, capture);

    memset(capture, 0, sizeof *capture);
    request.tokens = tokens;
    request.n_tokens = n;
    return request;
}

/* Every token is the closed form's. */
static void assert_right(const struct capture *capture, const int32_t *tokens, uint32_t n)
{
    struct oracle_chain chain;

    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    oracle_chain_init(&chain, oracle->salt);
    for (uint32_t i = 0; i < n; i++)
        oracle_chain_push(&chain, tokens[i]);
    for (size_t i = 0; i < capture->n_tokens; i++) {
        assert_int_equal(capture->tokens[i], oracle_chain_next(&chain, &alphabet));
        oracle_chain_push(&chain, capture->tokens[i]);
    }
}

static runnel_usage ask(const int32_t *tokens, uint32_t n, uint64_t salt)
{
    struct capture capture;
    runnel_request request = request_of(&capture, tokens, n, 4);
    runnel_usage usage;

    request.cache_salt = salt;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    run_out();
    assert_right(&capture, tokens, n);
    usage = capture.last.usage;
    capture_clear(&capture);
    assert_int_equal(model->tier.n_used, 0);
    assert_int_equal(model->tier.shelf.n_lent, 0);
    return usage;
}

static void crowd_out(uint32_t first, uint32_t n)
{
    int32_t other[LONG];

    for (uint32_t i = first; i < first + n; i++) {
        make_prompt(other, LONG, 0, 0, i);
        assert_true(ask(other, LONG, 0).cached_tokens < BLOCK);
    }
}

static runnel_metrics metrics(void)
{
    static runnel_metrics now;

    now.struct_size = sizeof now;
    assert_int_equal(runnel_engine_metrics(engine, &now), RUNNEL_OK);
    return now;
}

/* What had to make room comes out of packed memory, in each way of packing; of another salt it does not. */
static void warm(void **state)
{
    static const char *const codecs[] = {NULL, "none", "lz4", "zstd"};

    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        struct tiers tiers = {.warm_bytes = 1 << 20, .codec = codecs[i]};
        int32_t tokens[LONG];
        runnel_usage usage;

        begin(&tiers);
        make_prompt(tokens, LONG, 1, LONG, 0);
        assert_int_equal(ask(tokens, LONG, 0).cached_tokens, 0);
        crowd_out(10, 5);
        usage = ask(tokens, LONG, 0);
        assert_int_equal(usage.warm_tokens, LONG - BLOCK);
        assert_int_equal(usage.cached_tokens, LONG - BLOCK);
        assert_int_equal(usage.cold_tokens, 0);
        usage = ask(tokens, LONG, 0); /* now it is here */
        assert_int_equal(usage.warm_tokens, 0);
        assert_true(usage.cached_tokens >= LONG - BLOCK);
        crowd_out(20, 5);
        assert_int_equal(ask(tokens, LONG, 7).cached_tokens, 0);
        assert_int_equal(metrics().warm_hits, LONG - BLOCK);
        assert_true(metrics().warm_bytes > 0 && metrics().warm_bytes <= 1 << 20);
        assert_int_equal(metrics().cache_errors, 0);
        end();
    }
}

/* Two that begin alike, and come when only the warm tier has it: one carries it up, both use it. */
static void two_at_once(void **state)
{
    struct tiers tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[2][LONG];
    struct capture captures[2];

    (void)state;
    begin(&tiers);
    make_prompt(tokens[0], LONG, 1, 80, 1);
    make_prompt(tokens[1], LONG, 1, 80, 2);
    ask(tokens[0], LONG, 0);
    crowd_out(10, 5);
    for (int i = 0; i < 2; i++) {
        runnel_request request = request_of(&captures[i], tokens[i], LONG, 4);

        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    run_out();
    for (int i = 0; i < 2; i++) {
        assert_right(&captures[i], tokens[i], LONG);
        assert_true(captures[i].last.usage.cached_tokens >= 80);
        capture_clear(&captures[i]);
    }
    assert_true(metrics().warm_hits > 0 && metrics().warm_hits <= LONG);
    end();
}

/* A disk that hangs: one that waits does so until its time has come, one that does not goes on at once; when the disk
 * goes on, what it brings is not in the way. */
static void impatient(void **state)
{
    struct tiers tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[LONG];

    (void)state;
    make_prompt(tokens, LONG, 1, LONG, 0);
    for (int wait = RUNNEL_CACHE_BEST_EFFORT; wait <= RUNNEL_CACHE_DEADLINE; wait++) {
        struct capture capture;
        runnel_request request = request_of(&capture, tokens, LONG, 4);

        begin(&tiers);
        ask(tokens, LONG, 0);
        crowd_out(10, 5);
        request.cache_wait = (runnel_cache_wait)wait;
        request.cache_wait_ms = 50;
        mover_hangs = true;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        run_out();
        assert_int_equal(capture.n_terminal, wait == RUNNEL_CACHE_BEST_EFFORT);
        time_us += 60000;
        rn_runtime_look_at_clock(&engine->runtime);
        run_out();
        assert_int_equal(capture.n_terminal, wait != RUNNEL_CACHE_WAIT);
        mover_hangs = false;
        run_out();
        assert_right(&capture, tokens, LONG);
        assert_int_equal(capture.last.usage.warm_tokens, wait == RUNNEL_CACHE_WAIT ? LONG - BLOCK : 0);
        capture_clear(&capture);
        assert_int_equal(model->tier.n_used, 0);
        assert_true(ask(tokens, LONG, 0).cached_tokens >= LONG - BLOCK);
        end();
    }
}

/* It is fetched while its request waits for others to make room. */
static void prefetch(void **state)
{
    struct tiers tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[3][LONG];
    struct capture captures[3];

    (void)state;
    begin(&tiers);
    for (uint32_t i = 0; i < 3; i++)
        make_prompt(tokens[i], LONG, i, LONG, 0);
    ask(tokens[2], 50, 0);
    crowd_out(10, 5);
    for (int i = 0; i < 3; i++) {
        runnel_request request = request_of(&captures[i], tokens[i], i < 2 ? LONG : 50, 4);

        request.cache_wait = RUNNEL_CACHE_BEST_EFFORT;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        settle();
    }
    assert_int_equal(metrics().waiting, 2);
    assert_true(metrics().warm_bytes_out > 0);
    run_out();
    for (int i = 0; i < 3; i++) {
        assert_right(&captures[i], tokens[i], i < 2 ? LONG : 50);
        capture_clear(&captures[i]);
    }
    end();
}

/* A prompt that is pinned stays through what would push it out, until it is let go of; pins that hold all that there is
 * keep nobody from running. */
static void ask_pinned(const int32_t *tokens, uint32_t n, uint8_t pin)
{
    struct capture capture;
    runnel_request request = request_of(&capture, tokens, n, 1);

    request.pin_prefix = pin;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    run_out();
    assert_right(&capture, tokens, n);
    capture_clear(&capture);
}

static void pins(void **state)
{
    struct tiers tiers = {.cold = true};
    int32_t tokens[LONG], other[LONG];

    (void)state;
    begin(&tiers);
    make_prompt(tokens, LONG, 1, LONG, 0);
    make_prompt(other, LONG, 2, LONG, 0);
    ask_pinned(tokens, 64, 1);
    assert_true(metrics().cold_bytes_in > 0); /* at once, though it came once */
    crowd_out(10, 5);
    assert_int_equal(ask(tokens, LONG, 0).cached_tokens, 64);
    crowd_out(20, 5);
    assert_int_equal(ask(tokens, 72, 0).cold_tokens, 0);
    ask_pinned(tokens, LONG, 2);
    assert_int_equal(model->tier.pins.n, 0);
    crowd_out(30, 5);
    assert_true(ask(tokens, 72, 0).cold_tokens > 0); /* not here any more */
    ask_pinned(tokens, LONG, 1);
    ask_pinned(other, LONG, 1);
    crowd_out(40, 5); /* needs 17 of 32 */
    assert_int_equal(model->tier.pins.n, 1);
    end();
}

/* Where fetching takes longer than computing nothing is fetched; and when it is faster again, it is found out. */
static void dearer_than_computing(void **state)
{
    struct tiers tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[LONG];
    uint64_t skipped;

    (void)state;
    begin(&tiers);
    make_prompt(tokens, LONG, 1, LONG, 0);
    ask(tokens, LONG, 0);
    crowd_out(10, 5);
    assert_int_equal(ask(tokens, LONG, 0).warm_tokens, LONG - BLOCK); /* now both are known */
    block_us = 5000;
    for (uint32_t i = 0; i < 5; i++) {
        crowd_out(100 + 5 * i, 5);
        ask(tokens, LONG, 0);
    }
    skipped = metrics().cache_skipped;
    assert_true(skipped > 0);
    block_us = 0;
    for (uint32_t i = 0; i < 40; i++) {
        crowd_out(300 + 5 * i, 5);
        ask(tokens, LONG, 0);
    }
    assert_int_equal(ask(tokens, LONG, 0).warm_tokens, 0);
    assert_true(metrics().cache_skipped > skipped);
    crowd_out(1500, 5);
    assert_int_equal(ask(tokens, LONG, 0).warm_tokens, LONG - BLOCK);
    end();
}

/* More than both tiers have room for, in random order: right tokens, nothing held at the end. */
static void storm(void **state)
{
    struct tiers tiers = {.warm_bytes = 1 << 20};
    uint64_t rng = 5;

    (void)state;
    begin(&tiers);
    for (int round = 0; round < 2000; round++) {
        int32_t tokens[LONG];
        uint32_t n = 20 + (uint32_t)(rn_splitmix64(&rng) % 100);

        make_prompt(tokens, n, (uint32_t)(rn_splitmix64(&rng) % 200), n, 0);
        ask(tokens, n, 0);
    }
    assert_true(metrics().warm_hits > 0 && metrics().evicted_blocks > 0);
    assert_true(metrics().warm_bytes <= 1 << 20);
    end();
}

/* ---- Files ---- */

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static int make_folder(void **state)
{
    (void)state;
    n_warnings = 0;
    strcpy(folder, "/tmp/runnel-tiers-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    remove_folder();
    return 0;
}

/* What has come twice is there after a restart; what came once is not, nor is anything of another salt. */
static void restart(void **state)
{
    struct tiers tiers = {.cold = true};
    int32_t twice[LONG], once[LONG];
    runnel_usage usage;

    (void)state;
    make_prompt(twice, LONG, 1, LONG, 0);
    make_prompt(once, LONG, 2, LONG, 0);
    begin(&tiers);
    ask(twice, LONG, 3);
    ask(twice, LONG, 3);
    ask(once, LONG, 3);
    end();
    begin(&tiers);
    assert_int_equal(ask(twice, LONG, 0).cached_tokens, 0);
    usage = ask(twice, LONG, 3);
    assert_int_equal(usage.cold_tokens, LONG - BLOCK);
    assert_int_equal(usage.cached_tokens, LONG - BLOCK);
    assert_true(ask(once, LONG, 3).cached_tokens < BLOCK);
    assert_true(metrics().cold_bytes > 0);
    end();
    assert_int_equal(n_warnings, 0);
}

/* All files are damaged in one byte of each record: all is computed, and the text is right. */
static void damage(const char *path)
{
    int fd = open(path, O_RDWR);
    off_t n = lseek(fd, 0, SEEK_END);
    unsigned char byte;

    assert_true(fd >= 0);
    for (off_t at = 256 + 96 + 20; at < n; at += 40) {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void damage_all(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char name[512];

        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        if (strstr(entry->d_name, ".kv") != NULL)
            damage(name);
        else if (strcmp(entry->d_name, "lock") != 0)
            damage_all(name);
    }
    closedir(dir);
}

static void damaged(void **state)
{
    struct tiers tiers = {.cold = true};
    int32_t tokens[LONG];

    (void)state;
    make_prompt(tokens, LONG, 1, LONG, 0);
    begin(&tiers);
    ask(tokens, LONG, 0);
    ask(tokens, LONG, 0);
    end();
    damage_all(folder);
    begin(&tiers);
    assert_true(ask(tokens, LONG, 0).cold_tokens < LONG - BLOCK);
    ask(tokens, LONG, 0);
    end();
}

/* What a request computes goes into files once it has left, and was good: another that shares it and is pinned has ended
 * long before, and a process that is killed then leaves nothing that may be wrong. */
static void step(enum oracle_fault fault)
{
    assert_non_null(oracle->first);
    time_us += 1000;
    oracle_complete(oracle, fault);
    settle();
}

static void proved(void **state)
{
    enum { SHARED = 6 * BLOCK, PROMPT = 100, FOLLOWER = SHARED + BLOCK };
    struct tiers tiers = {.cold = true};
    int32_t tokens[LONG];

    (void)state;
    make_prompt(tokens, LONG, 1, LONG, 0);
    for (int fails = 0; fails < 2; fails++) {
        struct capture first, second;
        runnel_request request = request_of(&first, tokens, PROMPT, 20);

        begin(&tiers);
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        settle();
        for (int i = 0; i < 5; i++)
            step(ORACLE_FAULT_NONE);
        request = request_of(&second, tokens, FOLLOWER, 1);
        request.pin_prefix = 1;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        settle();
        for (int i = 0; i < 8 && second.n_terminal == 0; i++)
            step(ORACLE_FAULT_NONE);
        assert_right(&second, tokens, FOLLOWER);
        assert_true(second.last.usage.cached_tokens >= SHARED);
        assert_int_equal(first.n_terminal, 0);
        assert_int_equal(metrics().cold_bytes_in, 0); /* killed now, it leaves nothing */
        if (fails)
            step(ORACLE_FAULT_DEVICE);
        run_out();
        assert_int_equal(first.last.type, fails ? RUNNEL_EVENT_FAILED : RUNNEL_EVENT_DONE);
        assert_true((metrics().cold_bytes_in > 0) == !fails);
        capture_clear(&first);
        capture_clear(&second);
        end();
        begin(&tiers);
        assert_int_equal(ask(tokens, FOLLOWER, 0).cold_tokens, fails ? 0 : SHARED);
        end();
        remove_folder();
    }
}

/* Prompts that are never asked again, one behind another without a pause: what copies take is what the purse has, what
 * could not be paid is counted; and once nobody comes any more the rest is copied for nothing. */
static void never_again(void **state)
{
    enum { PROMPT = 60, N = 400, MOVE = BLOCKS / 8 };
    struct tiers tiers = {.warm_bytes = 1 << 20};
    int32_t tokens[2][PROMPT];
    struct capture captures[2];
    uint64_t begin_us, spent_us;
    double purse_us;

    (void)state;
    begin(&tiers);
    begin_us = time_us;
    copy_us = 5000; /* a step takes 1000 */
    for (uint32_t i = 0; i <= N; i++) {
        runnel_request request = request_of(&captures[i % 2], tokens[i % 2], PROMPT, 4);

        make_prompt(tokens[i % 2], PROMPT, i, PROMPT, 0);
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        settle();
        while (i > 0 && captures[(i - 1) % 2].n_terminal == 0)
            step(ORACLE_FAULT_NONE);
        if (i > 0) {
            assert_right(&captures[(i - 1) % 2], tokens[(i - 1) % 2], PROMPT);
            capture_clear(&captures[(i - 1) % 2]);
        }
    }
    spent_us = metrics().cache_copy_us;
    assert_true((double)spent_us <= RN_PURSE_FIRST_US + (double)(time_us - begin_us) / RN_PURSE_BUSY_PART +
                                        (double)(MOVE * copy_us + 100));
    assert_true((double)spent_us >= RN_PURSE_FIRST_US - (double)(MOVE * copy_us));
    assert_true(metrics().cache_unpaid > N && metrics().cache_dropped >= metrics().cache_unpaid);
    purse_us = model->tier.shelf.purse.us;
    run_out();
    assert_right(&captures[N % 2], tokens[N % 2], PROMPT);
    capture_clear(&captures[N % 2]);
    assert_true(metrics().cache_copy_us >= spent_us + 2 * MOVE * copy_us);
    assert_true(model->tier.shelf.purse.us >= purse_us - (double)(MOVE * copy_us + 100));
    copy_us = 0;
    end();
}

/* A disk on which every write after the n-th fails, and every read: the first error is told, and the text is right. */
static uint64_t n_calls, n_good_calls;

static int64_t bad_pwrite(void *user, int fd, const void *bytes, size_t n, uint64_t offset)
{
    return n_calls++ < n_good_calls ? rn_cold_io_machine.pwrite(user, fd, bytes, n, offset) : -ENOSPC;
}

static int64_t bad_pread(void *user, int fd, void *bytes, size_t n, uint64_t offset)
{
    return n_calls++ < n_good_calls ? rn_cold_io_machine.pread(user, fd, bytes, n, offset) : -EIO;
}

static void failing_disk(void **state)
{
    int32_t tokens[LONG];

    (void)state;
    make_prompt(tokens, LONG, 1, LONG, 0);
    for (n_good_calls = 0; n_good_calls < 60; n_good_calls += 3) {
        struct rn_cold_io io = rn_cold_io_machine;
        struct tiers tiers = {.cold = true, .io = &io};

        n_warnings = 0;
        n_calls = 0;
        io.pwrite = bad_pwrite;
        begin(&tiers);
        ask(tokens, LONG, 0);
        ask(tokens, LONG, 0);
        crowd_out(10, 5);
        ask(tokens, LONG, 0);
        end();
        assert_int_equal(n_warnings, n_calls > n_good_calls);
        io = rn_cold_io_machine;
        io.pread = bad_pread;
        n_calls = 0;
        begin(&tiers);
        ask(tokens, LONG, 0);
        ask(tokens, LONG, 0);
        end();
        remove_folder();
    }
}

/* A folder that cannot be: one line in the log, and everything works without. */
static void no_folder(void **state)
{
    struct tiers tiers = {.cold = true};
    int32_t tokens[LONG];

    (void)state;
    strcpy(folder, "/proc/runnel-there-is-none");
    n_warnings = 0;
    begin(&tiers);
    make_prompt(tokens, LONG, 1, LONG, 0);
    ask(tokens, LONG, 0);
    end();
    assert_int_equal(n_warnings, 1);
}

/* From warm into cold: what has left the pool and comes again is written out of packed memory. */
static void both(void **state)
{
    struct tiers tiers = {.warm_bytes = 1 << 20, .cold = true};
    int32_t tokens[LONG];
    runnel_usage usage;

    (void)state;
    make_prompt(tokens, LONG, 1, LONG, 0);
    begin(&tiers);
    ask(tokens, LONG, 0);
    crowd_out(10, 5);
    assert_int_equal(ask(tokens, LONG, 0).warm_tokens, LONG - BLOCK);
    end();
    begin(&tiers);
    usage = ask(tokens, LONG, 0);
    assert_int_equal(usage.cold_tokens, LONG - BLOCK);
    assert_int_equal(usage.warm_tokens, 0);
    end();
}

/* A server that is away: files have all that they should, and it is told once. */
static void no_server(void **state)
{
    int32_t tokens[LONG];

    (void)state;
#ifndef HAVE_HIREDIS
    skip();
#endif
    make_prompt(tokens, LONG, 1, LONG, 0);
    begin(&(struct tiers){.cold = true, .shared = "unix:/proc/there-is-none"});
    ask(tokens, LONG, 0);
    ask(tokens, LONG, 0);
    end();
    assert_int_equal(n_warnings, 1);
    begin(&(struct tiers){.cold = true});
    assert_int_equal(ask(tokens, LONG, 0).cold_tokens, LONG - BLOCK);
    end();
}

/* ---- The bundled model, with threads ---- */

#define STEM                                                                                                          \
    "This is a story from a long time ago, told by the fire on winter nights, when the snow lay deep and the wolves " \
    "came down from the hills. There was an old man in the village who knew all the stories, and each night the "     \
    "children asked him for another one. "

static runnel_model *load_with(runnel_engine *of, bool cache, runnel_kv_type kv_type)
{
    runnel_model_options options;
    runnel_model_info info = {.struct_size = sizeof info};

    runnel_model_options_default(&options);
    options.kv_type = kv_type;
    options.context_tokens = 160;
    options.no_prefix_cache = !cache;
    if (cache) {
        runnel_model *whole = load_model(of, quick_model(), &options);

        assert_int_equal(runnel_model_get_info(whole, &info), RUNNEL_OK);
        runnel_model_free(whole);
        options.kv_bytes = 6 * info.block_tokens * info.kv_bytes_per_token;
        options.cache_warm_bytes = 16 << 20;
        options.cache_dir = folder;
    }
    return load_model(of, quick_model(), &options);
}

static void ask_both(runnel_engine *of, runnel_model *cached, runnel_model *plain, const char *prompt,
                     runnel_usage *usage)
{
    struct capture a = {0}, b = {0};
    runnel_request request = make_request(prompt, 12, &a);

    request.ignore_eos = 1;
    assert_int_equal(run_request(of, cached, &request), RUNNEL_EVENT_DONE);
    request.user = &b;
    assert_int_equal(run_request(of, plain, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_memory_equal(a.tokens, b.tokens, a.n_tokens * sizeof *a.tokens);
    *usage = a.last.usage;
    capture_clear(&a);
    capture_clear(&b);
}

/* Each KV format, evicted, restarted: the tokens of a model without a cache. */
static void real_model(void **state)
{
    static const runnel_kv_type types[] = {RUNNEL_KV_F16, RUNNEL_KV_Q8, RUNNEL_KV_FP8, RUNNEL_KV_F32};
    static const char *const prompts[] = {STEM "The owl", "Quite another " STEM, "And one more, other than " STEM,
                                          "Nothing like " STEM};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (int life = 0; life < 2; life++) {
            runnel_engine *of = start_engine(NULL);
            runnel_model *cached = load_with(of, true, types[t]), *plain = load_with(of, false, types[t]);
            uint64_t n_lower = 0;

            for (size_t i = 0; i < 12; i++) {
                runnel_usage usage;

                ask_both(of, cached, plain, prompts[i % 4], &usage);
                n_lower += usage.warm_tokens + usage.cold_tokens;
                if (life == 1 && i == 0)
                    assert_true(usage.cold_tokens >= 32);
            }
            assert_true(n_lower >= 64);
            runnel_engine_free(of);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm),
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(impatient),
        cmocka_unit_test(prefetch),
        cmocka_unit_test(dearer_than_computing),
        cmocka_unit_test(storm),
        cmocka_unit_test_setup_teardown(restart, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(damaged, make_folder, drop_folder),
        cmocka_unit_test(never_again),
        cmocka_unit_test_setup_teardown(proved, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(failing_disk, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(pins, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(both, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(no_server, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(real_model, make_folder, drop_folder),
        cmocka_unit_test(no_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
