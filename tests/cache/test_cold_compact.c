/* Purging a salt gives its room back: files are as long as what is left in them needs, all else is what it was; also
 * where the disk is full, fails, or the process is killed at any call. Records have a closed form (cold_fixture.h), and
 * so has the length of a segment (docs/TIERS.md). */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "cache/store/cold_format.h"
#include "tests/base/whole_file.h"
#include "tests/cache/cold_fixture.h"

enum { SALTS = 3, CHAINS = 30, DEPTH = 4, N = CHAINS * DEPTH, MOST_CALLS = 3000 };

static const struct rn_cold_limits small = {.max_bytes = 256 << 10, .segment_bytes = 4 << 10};

/* Chains of all salts side by side, block by block. */
static void fill(void)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store = cold_open(NULL, &small, &told);
    uint64_t handles[CHAINS] = {0};

    for (uint32_t d = 0; d < DEPTH; d++)
        for (uint32_t c = 0; c < CHAINS; c++)
            assert_int_equal(cold_append(store, (struct cold_key){c, d, c % SALTS}, handles[c], &handles[c]),
                             RUNNEL_OK);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

static runnel_status purge(struct rn_cold_store *store, uint32_t salt)
{
    runnel_status status;
    uint64_t n;

    status = rn_cold_store_wipe_salt(store, cold_salt((struct cold_key){.salt = salt}).word[0], &n);
    while (status == RUNNEL_OK && rn_cold_store_maintain(store, UINT64_MAX, NULL, NULL))
        continue;
    if (status == RUNNEL_OK)
        status = rn_cold_store_compact(store);
    assert_true(rn_cold_store_check(store));
    return status;
}

static uint64_t folder_bytes(uint32_t *n_segments)
{
    struct rn_tier_id id = cold_id();
    struct rn_fingerprint print = rn_cold_fingerprint(&id);
    char hex[RN_COLD_HEX + 1], path[500];
    const struct dirent *entry;
    uint64_t bytes = 0;
    DIR *folder;

    rn_cold_hex(&print, hex);
    snprintf(path, sizeof path, "%s/%s", cold_folder, hex);
    folder = opendir(path);
    assert_non_null(folder);
    *n_segments = 0;
    while ((entry = readdir(folder)) != NULL) {
        struct stat is;
        uint64_t number;

        if (!rn_cold_segment_number(entry->d_name, &number))
            continue;
        snprintf(path, sizeof path, "%s/%s/%s", cold_folder, hex, entry->d_name);
        assert_int_equal(stat(path, &is), 0);
        if (is.st_size < RN_COLD_HEADER_BYTES)
            continue; /* its header was being written */
        bytes += (uint64_t)is.st_size;
        ++*n_segments;
    }
    closedir(folder);
    return bytes;
}

/* Of what is left when the salts from `first` on are kept: the lengths that docs/TIERS.md gives. */
static uint64_t closed_form(uint32_t first, uint32_t n_segments)
{
    uint64_t bytes = n_segments * (uint64_t)(RN_COLD_HEADER_BYTES + RN_COLD_TRAILER_BYTES);

    for (uint32_t c = 0; c < CHAINS; c++) {
        for (uint32_t d = 0; d < DEPTH && c % SALTS >= first; d++) {
            uint8_t payload[COLD_MOST_PAYLOAD];
            size_t n = cold_payload((struct cold_key){c, d, c % SALTS}, payload);

            bytes += (96 + 4 * COLD_B + n + 7) / 8 * 8; /* the record */
            bytes += 8 + 96 + 4 * COLD_B;               /* its entry of the index */
        }
    }
    return bytes;
}

/* Who opens it now finds all of the salts from `first` on, right, and so many others. */
static void assert_left(uint32_t first, size_t least_others, size_t most_others)
{
    const size_t kept = (size_t)N / SALTS * (SALTS - first);
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store = cold_open(NULL, &small, &told);
    size_t n = 0;

    for (size_t i = 0; i < told.n; i++) {
        bool is_kept = told.records[i].key.salt >= first;

        n += is_kept;
        if (is_kept)
            assert_int_equal(cold_read(store, told.records[i].key, told.records[i].parent, told.records[i].handle), 1);
    }
    assert_int_equal(n, kept);
    assert_in_range(told.n - n, least_others, most_others);
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* One salt after another. */
static void test_room(void **state)
{
    uint32_t n_segments, n_before;
    uint64_t bytes;

    (void)state;
    fill();
    bytes = folder_bytes(&n_before);
    assert_int_equal(bytes, closed_form(0, n_before));
    assert_true(n_before > 6);
    for (uint32_t salt = 0; salt < SALTS; salt++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store = cold_open(NULL, &small, &told);
        struct rn_cold_stats stats;

        assert_int_equal(purge(store, salt), RUNNEL_OK);
        rn_cold_store_stats(store, &stats);
        assert_int_equal(stats.records, N / SALTS * (SALTS - 1 - salt));
        for (size_t i = 0; i < told.n; i++) /* the store goes on with what it has moved */
            assert_int_equal(cold_read(store, told.records[i].key, told.records[i].parent, told.records[i].handle),
                             told.records[i].key.salt > salt);
        rn_cold_store_close(store);
        bytes = folder_bytes(&n_segments);
        assert_int_equal(bytes, closed_form(salt + 1, n_segments));
        assert_true(n_segments <= n_before);
        assert_left(salt + 1, 0, 0);
        cold_told_free(&told);
    }
    assert_int_equal(n_segments, 0);
}

/* Killed at each call, in the middle of what it writes: nothing of the others is lost, and the next purge ends it. */
static void test_killed(void **state)
{
    bool killed = true;
    uint64_t fail_at;

    (void)state;
    for (fail_at = 1; killed && fail_at < MOST_CALLS; fail_at++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;
        struct cold_disk disk;
        uint32_t n_segments;
        uint64_t bytes;

        fill();
        cold_disk_init(&disk);
        store = cold_open(&disk.io, &small, &told);
        disk.fail_at = disk.calls + fail_at;
        disk.for_good = true;
        disk.error = fail_at % 2 ? EIO : 0;
        purge(store, 0);
        killed = disk.calls >= disk.fail_at;
        rn_cold_store_close(store);
        assert_int_equal(disk.n_open, 0);
        assert_left(1, 0, N / SALTS);
        told.n = 0;
        store = cold_open(NULL, &small, &told);
        assert_int_equal(purge(store, 0), RUNNEL_OK);
        rn_cold_store_close(store);
        assert_left(1, 0, 0);
        bytes = folder_bytes(&n_segments);
        assert_int_equal(bytes, closed_form(1, n_segments));
        cold_told_free(&told);
        cold_folder_remove(cold_folder);
    }
    assert_in_range(fail_at, 300, MOST_CALLS - 1);
}

/* No room but what is freed on the way: an error that says so, the salt is gone, the rest is there, and nothing takes
 * more than before. With room for all that is moved it works. */
static void test_full(void **state)
{
    uint32_t n_good = 0, n_bad = 0;

    (void)state;
    for (uint64_t room = 0; room < 40000; room += 2000) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;
        struct cold_disk disk;
        uint32_t n_segments;
        uint64_t before;
        runnel_status status;
        runnel_error error;
        uint64_t n;

        fill();
        before = folder_bytes(&n_segments);
        cold_disk_init(&disk);
        store = cold_open(&disk.io, &small, &told);
        assert_int_equal(rn_cold_store_wipe_salt(store, cold_salt((struct cold_key){.salt = 0}).word[0], &n),
                         RUNNEL_OK);
        disk.room = room; /* of new bytes: what is overwritten needs none */
        status = rn_cold_store_compact(store);
        assert_true(rn_cold_store_check(store));
        n_good += status == RUNNEL_OK;
        n_bad += status != RUNNEL_OK;
        if (status != RUNNEL_OK) {
            assert_int_equal(status, RUNNEL_IO);
            assert_true(rn_tier_store_error(rn_cold_store_tier(store), &error));
            assert_non_null(strstr(error.message, "No space"));
            assert_true(folder_bytes(&n_segments) <= before);
        }
        rn_cold_store_close(store);
        assert_left(1, 0, 0);
        cold_told_free(&told);
        cold_folder_remove(cold_folder);
    }
    assert_true(n_bad > 3 && n_good > 0);
    print_message("%u worked, %u had no room\n", n_good, n_bad);
}

static uint64_t n_unlinks;

static int no_unlink(void *user, const char *path)
{
    n_unlinks++;
    (void)user;
    (void)path;
    return -EIO;
}

/* The machine stops behind the first move, and of the new segment a byte had not come to the disk: what the old one has
 * counts. */
static void test_torn_copy(void **state)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_io io = rn_cold_io_machine;
    struct rn_cold_store *store;
    struct rn_tier_id id = cold_id();
    struct rn_fingerprint print = rn_cold_fingerprint(&id);
    char hex[RN_COLD_HEX + 1], path[500], *bytes;
    uint32_t n_segments;
    size_t n;

    (void)state;
    fill();
    folder_bytes(&n_segments);
    io.unlink = no_unlink;
    store = cold_open(&io, &small, &told);
    assert_int_equal(purge(store, 0), RUNNEL_IO);
    assert_true(n_unlinks > 0);
    rn_cold_store_close(store);
    rn_cold_hex(&print, hex);
    snprintf(path, sizeof path, "%s/%s/%016x.kv", cold_folder, hex, n_segments + 1);
    bytes = read_whole_new(path, &n);
    memset(bytes + 256 + 96 + 4 * COLD_B, 0, 4); /* of the first payload */
    write_whole(path, bytes, n);
    free(bytes);
    assert_left(1, 0, 0);
    assert_left(1, 0, 0); /* and when it has been opened by a writer */
    cold_told_free(&told);
}

/* ---- Many small segments ---- */

/* A process that writes one block, behind the last one of all. */
static void one_more(uint32_t depth, bool tends)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store = cold_open(NULL, &cold_roomy, &told);
    struct rn_cold_stats stats;
    uint64_t handle;

    assert_int_equal(told.n, depth);
    assert_int_equal(
        cold_append(store, (struct cold_key){1, depth, 0}, depth == 0 ? 0 : told.records[depth - 1].handle, &handle),
        RUNNEL_OK);
    while (tends && rn_cold_store_maintain(store, 1, NULL, NULL))
        assert_true(rn_cold_store_check(store));
    rn_cold_store_stats(store, &stats);
    assert_int_equal(stats.segments, tends && depth >= 64 ? 64 : depth + 1);
    assert_int_equal(stats.records, depth + 1);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

static size_t all_there(void)
{
    struct cold_told told = {.n = 0};

    return cold_close_whole(cold_open(NULL, &cold_roomy, &told), &told);
}

static void test_joined(void **state)
{
    (void)state;
    for (uint32_t depth = 0; depth < 150; depth++)
        one_more(depth, true);
    assert_int_equal(all_there(), 150);
}

/* Whatever fails meanwhile: no record goes. */
static void test_joined_in_part(void **state)
{
    (void)state;
    for (uint32_t depth = 0; depth < 110; depth++)
        one_more(depth, false);
    for (uint64_t at = 1; at < 30; at++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;
        struct cold_disk disk;

        cold_disk_init(&disk);
        disk.error = EIO;
        store = cold_open(&disk.io, &cold_roomy, &told);
        assert_int_equal(told.n, 110);
        disk.fail_at = disk.calls + at;
        for (int i = 0; i < 2 && rn_cold_store_maintain(store, 1, NULL, NULL); i++)
            assert_true(rn_cold_store_check(store));
        rn_cold_store_close(store);
        cold_told_free(&told);
        assert_int_equal(all_there(), 110);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_room, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_killed, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_full, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_torn_copy, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_joined, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_joined_in_part, cold_set_up, cold_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
