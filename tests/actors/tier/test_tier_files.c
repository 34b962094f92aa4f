/* Prefixes that come back out of files, after a restart too: what goes there and when, what is damaged, a disk that
 * fails, and a folder or a server that is not there. */
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
#include "cache/store/cold_io.h"
#include "tests/actors/tier/tiered.h"

/* What has come twice is there after a restart; what came once is not, nor is anything of another salt. */
static void restart(void **state)
{
    struct tiered_plan tiers = {.cold = true};
    int32_t twice[TIERED_LONG], once[TIERED_LONG];
    runnel_usage usage;

    (void)state;
    tiered_prompt(twice, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_prompt(once, TIERED_LONG, 2, TIERED_LONG, 0);
    tiered_begin(&tiers);
    tiered_ask(twice, TIERED_LONG, 3);
    tiered_ask(twice, TIERED_LONG, 3);
    tiered_ask(once, TIERED_LONG, 3);
    tiered_end();
    tiered_begin(&tiers);
    assert_int_equal(tiered_ask(twice, TIERED_LONG, 0).cached_tokens, 0);
    usage = tiered_ask(twice, TIERED_LONG, 3);
    assert_int_equal(usage.cold_tokens, TIERED_LONG - TIERED_BLOCK);
    assert_int_equal(usage.cached_tokens, TIERED_LONG - TIERED_BLOCK);
    assert_true(tiered_ask(once, TIERED_LONG, 3).cached_tokens < TIERED_BLOCK);
    assert_true(tiered_metrics().cold_bytes > 0);
    tiered_end();
    assert_int_equal(tiered.n_warnings, 0);
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
    struct tiered_plan tiers = {.cold = true};
    int32_t tokens[TIERED_LONG];

    (void)state;
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_begin(&tiers);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_end();
    damage_all(tiered.folder);
    tiered_begin(&tiers);
    assert_true(tiered_ask(tokens, TIERED_LONG, 0).cold_tokens < TIERED_LONG - TIERED_BLOCK);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_end();
}

/* What a request computes goes into files once it has left, and was good: another that shares it and is pinned has
 * ended long before, and a process that is killed then leaves nothing that may be wrong. */
static void proved(void **state)
{
    enum { SHARED = 6 * TIERED_BLOCK, PROMPT = 100, FOLLOWER = SHARED + TIERED_BLOCK };
    struct tiered_plan tiers = {.cold = true};
    int32_t tokens[TIERED_LONG];

    (void)state;
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    for (int fails = 0; fails < 2; fails++) {
        struct capture first, second;
        runnel_request request = tiered_request(&first, tokens, PROMPT, 20);

        tiered_begin(&tiers);
        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        tiered_settle();
        for (int i = 0; i < 5; i++)
            tiered_step(ORACLE_FAULT_NONE);
        request = tiered_request(&second, tokens, FOLLOWER, 1);
        request.pin_prefix = 1;
        assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        tiered_settle();
        for (int i = 0; i < 8 && second.n_terminal == 0; i++)
            tiered_step(ORACLE_FAULT_NONE);
        tiered_assert_right(&second, tokens, FOLLOWER);
        assert_true(second.last.usage.cached_tokens >= SHARED);
        assert_int_equal(first.n_terminal, 0);
        assert_int_equal(tiered_metrics().cold_bytes_in, 0); /* killed now, it leaves nothing */
        if (fails)
            tiered_step(ORACLE_FAULT_DEVICE);
        tiered_run_out();
        assert_int_equal(first.last.type, fails ? RUNNEL_EVENT_FAILED : RUNNEL_EVENT_DONE);
        assert_true((tiered_metrics().cold_bytes_in > 0) == !fails);
        capture_clear(&first);
        capture_clear(&second);
        tiered_end();
        tiered_begin(&tiers);
        assert_int_equal(tiered_ask(tokens, FOLLOWER, 0).cold_tokens, fails ? 0 : SHARED);
        tiered_end();
        tiered_remove_folder();
    }
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
    int32_t tokens[TIERED_LONG];

    (void)state;
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    for (n_good_calls = 0; n_good_calls < 60; n_good_calls += 3) {
        struct rn_cold_io io = rn_cold_io_machine;
        struct tiered_plan tiers = {.cold = true, .io = &io};

        tiered.n_warnings = 0;
        n_calls = 0;
        io.pwrite = bad_pwrite;
        tiered_begin(&tiers);
        tiered_ask(tokens, TIERED_LONG, 0);
        tiered_ask(tokens, TIERED_LONG, 0);
        tiered_crowd_out(10, 5);
        tiered_ask(tokens, TIERED_LONG, 0);
        tiered_end();
        assert_int_equal(tiered.n_warnings, n_calls > n_good_calls);
        io = rn_cold_io_machine;
        io.pread = bad_pread;
        n_calls = 0;
        tiered_begin(&tiers);
        tiered_ask(tokens, TIERED_LONG, 0);
        tiered_ask(tokens, TIERED_LONG, 0);
        tiered_end();
        tiered_remove_folder();
    }
}

/* A tiered.folder that cannot be: one line in the log, and everything works without. */
static void no_folder(void **state)
{
    struct tiered_plan tiers = {.cold = true};
    int32_t tokens[TIERED_LONG];

    (void)state;
    strcpy(tiered.folder, "/proc/runnel-there-is-none");
    tiered.n_warnings = 0;
    tiered_begin(&tiers);
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_end();
    assert_int_equal(tiered.n_warnings, 1);
}

/* From warm into cold: what has left the pool and comes again is written out of packed memory. */
static void both(void **state)
{
    struct tiered_plan tiers = {.warm_bytes = 1 << 20, .cold = true};
    int32_t tokens[TIERED_LONG];
    runnel_usage usage;

    (void)state;
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_begin(&tiers);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_crowd_out(10, 5);
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).warm_tokens, TIERED_LONG - TIERED_BLOCK);
    tiered_end();
    tiered_begin(&tiers);
    usage = tiered_ask(tokens, TIERED_LONG, 0);
    assert_int_equal(usage.cold_tokens, TIERED_LONG - TIERED_BLOCK);
    assert_int_equal(usage.warm_tokens, 0);
    tiered_end();
}

/* A server that is away: files have all that they should, and it is told once. */
static void no_server(void **state)
{
    int32_t tokens[TIERED_LONG];

    (void)state;
#ifndef HAVE_HIREDIS
    skip();
#endif
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_begin(&(struct tiered_plan){.cold = true, .shared = "unix:/proc/there-is-none"});
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_ask(tokens, TIERED_LONG, 0);
    tiered_end();
    assert_int_equal(tiered.n_warnings, 1);
    tiered_begin(&(struct tiered_plan){.cold = true});
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).cold_tokens, TIERED_LONG - TIERED_BLOCK);
    tiered_end();
}

/* A prompt that is pinned stays through what would push it out, until it is let go of; pins that hold all that there is
 * keep nobody from running. */
static void ask_pinned(const int32_t *tokens, uint32_t n, uint8_t pin)
{
    struct capture capture;
    runnel_request request = tiered_request(&capture, tokens, n, 1);

    request.pin_prefix = pin;
    assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    tiered_run_out();
    tiered_assert_right(&capture, tokens, n);
    capture_clear(&capture);
}

static void pins(void **state)
{
    struct tiered_plan tiers = {.cold = true};
    int32_t tokens[TIERED_LONG], other[TIERED_LONG];

    (void)state;
    tiered_begin(&tiers);
    tiered_prompt(tokens, TIERED_LONG, 1, TIERED_LONG, 0);
    tiered_prompt(other, TIERED_LONG, 2, TIERED_LONG, 0);
    ask_pinned(tokens, 64, 1);
    assert_true(tiered_metrics().cold_bytes_in > 0); /* at once, though it came once */
    tiered_crowd_out(10, 5);
    assert_int_equal(tiered_ask(tokens, TIERED_LONG, 0).cached_tokens, 64);
    tiered_crowd_out(20, 5);
    assert_int_equal(tiered_ask(tokens, 72, 0).cold_tokens, 0);
    ask_pinned(tokens, TIERED_LONG, 2);
    assert_int_equal(tiered.model->tier.cache.pins.n, 0);
    tiered_crowd_out(30, 5);
    assert_true(tiered_ask(tokens, 72, 0).cold_tokens > 0); /* not here any more */
    ask_pinned(tokens, TIERED_LONG, 1);
    ask_pinned(other, TIERED_LONG, 1);
    tiered_crowd_out(40, 5); /* needs 17 of 32 */
    assert_int_equal(tiered.model->tier.cache.pins.n, 1);
    tiered_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(restart, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test_setup_teardown(damaged, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test_setup_teardown(proved, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test_setup_teardown(failing_disk, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test_setup_teardown(pins, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test_setup_teardown(both, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test_setup_teardown(no_server, tiered_make_folder, tiered_drop_folder),
        cmocka_unit_test(no_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
