/* Lower tiers of the prefix cache, with the oracle model: every answer is judged by its closed form (rig.h). What is
 * counted; who sees whose; what a restart finds; a disk of which each call fails in turn, that is full, read-only or
 * slow; folders with what does not belong there. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/rng.h"
#include "cache/store/cold_format.h"
#include "tests/actors/fixture.h"
#include "tests/cache/cold_fixture.h"
#include "tests/sim/fake_disk.h"
#include "tests/tiers/rig.h"

enum { PROMPT = 100, FULL = (PROMPT - 1) / RIG_BLOCK * RIG_BLOCK }; /* FULL: positions that can be cached */

#define WARM ((uint64_t)1 << 20)
#define COLD ((uint64_t)8 << 20)

static struct rig_ask one(uint32_t chain)
{
    return (struct rig_ask){.chain = chain, .n_prompt = PROMPT, .wait = RUNNEL_CACHE_WAIT};
}

/* Asks, and what was computed is what was not cached. */
static runnel_usage ask_exact(struct rig *rig, struct rig_ask ask)
{
    uint64_t before = rig_stats(rig).prompt_tokens;
    runnel_usage usage = rig_ask(rig, ask);

    assert_int_equal(rig_stats(rig).prompt_tokens - before, usage.prompt_tokens - usage.cached_tokens);
    return usage;
}

/* Five prompts of which two fit: what was evicted comes back from the warm tier, to the token. */
static void test_warm(void **state)
{
    struct rig_plan plan = {.warm_bytes = WARM};
    uint64_t warm = 0, cached = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (uint32_t round = 0; round < 4; round++)
        for (uint32_t family = 0; family < 5; family++) {
            runnel_usage usage = ask_exact(&rig, one(8 * family));

            assert_int_equal(usage.cold_tokens, 0);
            assert_int_equal(usage.cached_tokens, round == 0 ? 0 : FULL);
            if (round == 1)
                assert_int_equal(usage.warm_tokens, FULL);
            warm += usage.warm_tokens;
            cached += usage.cached_tokens;
        }
    assert_int_equal(cached, 3 * 5 * FULL);
    assert_true(warm > cached / 2);
    assert_int_equal(rig.n_warnings, 0);
    rig_close(&rig);
}

/* What was asked for twice, or pinned, is there after a restart; and again after the next. */
static void test_restart(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    struct rig rig;

    (void)state;
    for (uint32_t life = 0; life < 4; life++) {
        rig_open(&rig, &plan);
        for (uint32_t family = 0; family < 2; family++) {
            struct rig_ask ask = one(8 * family);
            runnel_usage usage;

            ask.pin = family == 1;
            usage = ask_exact(&rig, ask);
            assert_int_equal(usage.cold_tokens, life == 0 ? 0 : FULL);
            assert_int_equal(ask_exact(&rig, ask).cached_tokens, PROMPT - 1); /* hot: with the last block, copied */
        }
        assert_int_equal(rig.n_warnings, 0);
        rig_close(&rig);
    }
}

/* Another model, in the same folder, finds nothing of it. */
static void test_other_model(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    struct rig rig;

    (void)state;
    for (uint32_t life = 0; life < 6; life++) {
        plan.oracle_salt = life % 3;
        rig_open(&rig, &plan);
        assert_int_equal(ask_exact(&rig, one(3)).cold_tokens, life < 3 ? 0 : FULL);
        ask_exact(&rig, one(3));
        rig_close(&rig);
    }
}

/* A prompt of one salt is never cached for another: not hot, not warm, not cold, not after a restart; nor is the stem
 * that all prompts of a family share. */
static void test_salts(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD, .warm_bytes = WARM};
    bool seen[4][40] = {{false}};
    uint64_t rng = 7, own = 0;
    struct rig rig;

    (void)state;
    for (uint32_t life = 0; life < 4; life++) {
        rig_open(&rig, &plan);
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t chain = (uint32_t)(rn_splitmix64(&rng) % 40), salt = (uint32_t)(rn_splitmix64(&rng) % 4);
            struct rig_ask ask = one(chain);
            bool stem = false;
            runnel_usage usage;

            ask.salt = salt;
            usage = ask_exact(&rig, ask);
            for (uint32_t c = chain / 8 * 8; c < chain / 8 * 8 + 8; c++)
                stem |= seen[salt][c];
            assert_true(usage.cached_tokens <= (seen[salt][chain] ? PROMPT - 1 : stem ? RIG_STEM + RIG_BLOCK : 0));
            own += usage.cached_tokens;
            seen[salt][chain] = true;
        }
        rig_close(&rig);
    }
    assert_true(own > 1000); /* else nothing was cached for anybody */
}

/* Of two engines on one folder the second reads what was there when it came, and writes nothing. */
static void test_two_engines(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    struct rig writer, reader;

    (void)state;
    rig_open(&writer, &plan);
    ask_exact(&writer, one(1));
    ask_exact(&writer, one(1));
    rig_open(&reader, &plan);
    assert_int_equal(ask_exact(&reader, one(1)).cold_tokens, FULL);
    for (uint32_t i = 0; i < 3; i++)
        ask_exact(&reader, one(9));
    for (uint32_t i = 0; i < 2; i++)
        ask_exact(&writer, one(17));
    assert_int_equal(reader.n_warnings, 0);
    rig_close(&reader);
    rig_close(&writer);
    rig_open(&writer, &plan);
    assert_int_equal(ask_exact(&writer, one(9)).cold_tokens, 0);
    assert_int_equal(ask_exact(&writer, one(1)).cold_tokens, FULL);
    assert_int_equal(ask_exact(&writer, one(17)).cold_tokens, FULL);
    rig_close(&writer);
}

/* A pinned prompt is hot after a flood, and no longer once it was let go. */
static void test_pin(void **state)
{
    struct rig_plan plan = {.warm_bytes = WARM};
    struct rig_ask pinned = one(0);
    runnel_usage usage;
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    pinned.pin = 1;
    ask_exact(&rig, pinned);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t family = 1; family < 12; family++)
            ask_exact(&rig, one(8 * family));
        pinned.pin = round == 0 ? 2 : 0; /* 2: let go */
        usage = ask_exact(&rig, pinned);
        assert_int_equal(usage.cached_tokens, FULL);
        assert_int_equal(usage.warm_tokens, round == 0 ? 0 : FULL);
    }
    rig_close(&rig);
}

/* Far more than fits anywhere, at once and by four: no answer suffers, and all comes to rest. */
static void test_storm(void **state)
{
    struct fake_disk *disk = fake_disk_new(1);
    struct rig_plan plan = {.dir = "/cache",
                            .cold_bytes = COLD,
                            .warm_bytes = 40 << 10,
                            .places = 30,
                            .n_blocks = 40,
                            .io = fake_disk_io(disk, 0)};
    uint64_t rng = 99, cached = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (uint32_t i = 0; i < UNLESS_SLOW(400, 120); i++) {
        for (unsigned id = 0; id < 4; id++) {
            struct rig_ask ask = one((uint32_t)(rn_splitmix64(&rng) % 60));

            ask.wait = (runnel_cache_wait)(rn_splitmix64(&rng) % 3);
            ask.wait_ms = 1;
            ask.n_prompt = 20 + (uint32_t)(rn_splitmix64(&rng) % 90);
            rig_begin(&rig, ask, id);
        }
        for (unsigned id = 0; id < 4; id++)
            cached += rig_end(&rig, id).cached_tokens;
    }
    rig_settle(&rig);
    assert_int_equal(rig_stats(&rig).blocks_used, 0);
    assert_true(cached > 0 && rig_stats(&rig).evicted_blocks > 1000);
    assert_true(rn_tier_check(&rig.model->tier));
    rig_close(&rig);
    fake_disk_free(disk);
}

/* ---- Disks ---- */

/* A model serves, ends, and another begins with what it left. Returns the tokens that came from the cold tier. */
static uint64_t serve_and_restart(struct fake_disk *disk, uint64_t warm_bytes, uint32_t *n_warnings)
{
    uint64_t cold = 0;

    *n_warnings = 0;
    for (uint32_t life = 0; life < 2; life++) {
        struct rig_plan plan = {.dir = "/cache",
                                .cold_bytes = COLD,
                                .warm_bytes = warm_bytes,
                                .io = fake_disk_io(disk, life),
                                .n_blocks = 20};
        struct rig rig;

        rig_open(&rig, &plan);
        for (uint32_t round = 0; round < 2; round++)
            for (uint32_t family = 0; family < 3; family++)
                cold += rig_ask(&rig, one(8 * family)).cold_tokens;
        assert_true(rig.n_warnings <= 1);
        *n_warnings += rig.n_warnings;
        rig_close(&rig);
        assert_int_equal(fake_disk_descriptors(disk, life), 0);
    }
    return cold;
}

/* Each call in turn fails, once or from then on, or is short: the answers are right, and what has failed is told once
 * by each model. */
static void test_each_call_fails(void **state)
{
    static const struct {
        int error;
        bool for_good;
    } kinds[] = {{EIO, false}, {ENOSPC, true}, {EROFS, true}, {0, false}};
    struct fake_disk *disk = fake_disk_new(1);
    uint64_t n, told = 0;
    uint32_t n_warnings;

    (void)state;
    assert_true(serve_and_restart(disk, 0, &n_warnings) >= 3 * FULL);
    assert_int_equal(n_warnings, 0);
    n = fake_disk_calls(disk, 0) > fake_disk_calls(disk, 1) ? fake_disk_calls(disk, 0) : fake_disk_calls(disk, 1);
    fake_disk_free(disk);
    assert_true(n > 40);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (uint64_t at = 1; at <= n; at += UNLESS_SLOW(1, 17)) {
            disk = fake_disk_new(at);
            fake_disk_faults(disk)->fail_at = at;
            fake_disk_faults(disk)->fail_error = kinds[kind].error;
            fake_disk_faults(disk)->fail_for_good = kinds[kind].for_good;
            serve_and_restart(disk, at % 2 == 0 ? WARM : 0, &n_warnings);
            told += n_warnings;
            fake_disk_free(disk);
        }
    assert_true(told > n / UNLESS_SLOW(4, 80));
}

/* A disk that lies by seed: flipped bits, errors, no room, all at once. */
static void test_lying_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < UNLESS_SLOW(200, 10); seed++) {
        struct fake_disk *disk = fake_disk_new(seed);
        struct fake_disk_faults *faults = fake_disk_faults(disk);
        uint32_t n_warnings;

        *(seed % 2 == 0 ? &faults->flipped : &faults->short_call) = FAKE_DISK_ALWAYS / 4;
        faults->read_error = seed % 3 == 0 ? FAKE_DISK_ALWAYS / 30 : 0;
        faults->write_error = seed % 5 == 0 ? FAKE_DISK_ALWAYS / 100 : 0;
        faults->room_bytes = seed % 7 == 0 ? seed * 100 : UINT64_MAX;
        serve_and_restart(disk, seed % 4 == 0 ? WARM : 0, &n_warnings);
        fake_disk_rot(disk, 20);
        serve_and_restart(disk, 0, &n_warnings);
        fake_disk_free(disk);
    }
}

/* Killed or without power in the middle of any call; what is left is right or a miss. */
static void test_death_in_each_call(void **state)
{
    uint64_t cold = 0;

    (void)state;
    for (uint64_t at = 1; at <= 60; at += UNLESS_SLOW(1, 5)) {
        struct fake_disk *disk = fake_disk_new(at);
        struct rig_plan plan = {.dir = "/cache", .cold_bytes = COLD, .io = fake_disk_io(disk, 0), .n_blocks = 20};
        struct rig rig;

        fake_disk_faults(disk)->die_at = at;
        rig_open(&rig, &plan);
        for (uint32_t i = 0; i < 6; i++)
            rig_ask(&rig, one(i % 3 * 8));
        if (at % 2 == 0)
            fake_disk_lose_power(disk);
        rig_close(&rig);
        fake_disk_faults(disk)->die_at = 0;
        fake_disk_start(disk, 0);
        rig_open(&rig, &plan);
        for (uint32_t i = 0; i < 6; i++)
            cold += rig_ask(&rig, one(i % 3 * 8)).cold_tokens;
        assert_int_equal(rig.n_warnings, 0);
        rig_close(&rig);
        fake_disk_free(disk);
    }
    assert_true(cold > UNLESS_SLOW(10, 2) * FULL);
}

/* A call of the disk takes until the test lets it end. */
static void wait_for_leave(void *user, uint32_t us)
{
    const struct timespec moment = {0, 100000};
    const _Atomic(bool) *leave = user;

    (void)us;
    while (!*leave)
        nanosleep(&moment, NULL);
}

/* A disk that takes long for each call holds up nobody but who wants to wait for it. */
static void test_slow_disk(void **state)
{
    struct fake_disk *disk = fake_disk_new(5);
    struct rig_plan plan = {.dir = "/cache", .cold_bytes = COLD, .io = fake_disk_io(disk, 0), .threads = true};
    const runnel_cache_wait waits[] = {RUNNEL_CACHE_BEST_EFFORT, RUNNEL_CACHE_DEADLINE};
    _Atomic(bool) leave = false;
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (uint32_t i = 0; i < 4; i++)
        rig_ask(&rig, one(i % 2 * 8));
    rig_close(&rig);
    fake_disk_start(disk, 0);
    rig_open(&rig, &plan);
    rig_settle(&rig);
    fake_disk_on_wait(disk, wait_for_leave, &leave);
    fake_disk_faults(disk)->most_us = 100000;
    for (uint32_t i = 0; i < 2; i++) {
        struct rig_ask ask = one(8 * i);

        ask.wait = waits[i];
        ask.wait_ms = 5;
        rig_begin(&rig, ask, 0);
        assert_true(rig_end(&rig, 0).cold_tokens < FULL);
    }
    leave = true;
    rig_settle(&rig);
    rig_close(&rig);
    fake_disk_free(disk);
}

/* Nothing can be written, or not even made: the model works without a cold tier, and says so once. */
static void test_bad_folders(void **state)
{
    char path[3][200];

    (void)state;
    snprintf(path[0], sizeof path[0], "%s/missing/deep", cold_folder);
    snprintf(path[1], sizeof path[1], "%s/file", cold_folder);
    snprintf(path[2], sizeof path[2], "/proc/self/nothing");
    close(open(path[1], O_CREAT | O_WRONLY, 0600));
    for (unsigned i = 0; i < 3; i++) {
        struct rig_plan plan = {.dir = path[i], .cold_bytes = COLD};
        struct rig rig;

        rig_open(&rig, &plan);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(ask_exact(&rig, one(k % 2)).cold_tokens, 0);
        assert_int_equal(rig.n_warnings, 1);
        if (strstr(rig.warning, path[i]) == NULL)
            fail_msg("%s", rig.warning);
        rig_close(&rig);
    }
}

/* ---- Files that do not belong there ---- */

/* Path of the n-th file of the only folder of a fingerprint that ends with .kv. */
static void segment_path(char *path, size_t n)
{
    char command[200];
    FILE *list;

    snprintf(command, sizeof command, "ls %s/*/*.kv", cold_folder);
    list = popen(command, "r");
    assert_non_null(list);
    assert_non_null(fgets(path, (int)n, list));
    path[strcspn(path, "\n")] = '\0';
    pclose(list);
}

/* The segment's header says another version, with the right check. */
static void make_older(const char *path)
{
    unsigned char header[RN_COLD_HEADER_BYTES];
    XXH128_canonical_t check;
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fread(header, 1, sizeof header, file), sizeof header);
    assert_int_equal(header[8], RN_COLD_VERSION);
    header[8] = RN_COLD_VERSION + 1;
    XXH128_canonicalFromHash(&check, XXH3_128bits(header, 240));
    memcpy(header + 240, &check, sizeof check);
    rewind(file);
    assert_int_equal(fwrite(header, 1, sizeof header, file), sizeof header);
    fclose(file);
}

static void make_rubbish(const char *path)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    for (unsigned i = 0; i < 3000; i++)
        fputc((int)(i * 2654435761u >> 24), file);
    fclose(file);
}

static void make_empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void test_foreign_segments(void **state)
{
    static void (*const damages[])(const char *) = {make_older, make_rubbish, make_empty};
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    char path[200];
    struct rig rig;

    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        cold_tear_down(NULL);
        assert_int_equal(mkdir(cold_folder, 0700), 0);
        rig_open(&rig, &plan);
        ask_exact(&rig, one(1));
        ask_exact(&rig, one(1));
        rig_close(&rig);
        segment_path(path, sizeof path);
        damages[i](path);
        rig_open(&rig, &plan);
        assert_int_equal(ask_exact(&rig, one(1)).cold_tokens, 0);
        ask_exact(&rig, one(1));
        rig_close(&rig);
        assert_int_equal(access(path, F_OK), 0); /* what is not known as ours is left alone */
        rig_open(&rig, &plan);
        assert_int_equal(ask_exact(&rig, one(1)).cold_tokens, FULL);
        rig_close(&rig);
    }
}

/* A number of the directory that was given back is nobody's, whoever has its place next. */
static void test_numbers(void **state)
{
    const struct rn_prefix_ref nobody = {RN_PREFIX_NO_NODE, 0};
    struct rig_plan plan = {.warm_bytes = WARM};
    uint64_t numbers[8] = {0};
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (unsigned i = 0; i < 8; i++) {
        struct rn_directory *directory = &rig.model->tier.directory;

        numbers[i] = rn_directory_take_number(directory, nobody);
        assert_true(numbers[i] != 0 && (uint32_t)numbers[i] == (uint32_t)numbers[0]);
        for (unsigned k = 0; k < i; k++)
            assert_true(numbers[k] != numbers[i] && rn_directory_entry_of(directory, numbers[k]) == NULL);
        rn_directory_free_entry(directory, rn_directory_entry_of(directory, numbers[i]));
        assert_null(rn_directory_entry_of(directory, numbers[i]));
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_warm, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_restart, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_other_model, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_salts, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_two_engines, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_pin, cold_set_up, cold_tear_down),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_each_call_fails),
        cmocka_unit_test(test_lying_disk),
        cmocka_unit_test(test_death_in_each_call),
        cmocka_unit_test(test_slow_disk),
        cmocka_unit_test_setup_teardown(test_bad_folders, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_foreign_segments, cold_set_up, cold_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
