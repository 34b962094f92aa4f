/* The cold store. Every payload has a closed form (cold_fixture.h), so whatever is read is judged without the store: it
 * is right or it is a miss. Damage to every byte, a fault in every call, a full disk, killed writers, two processes,
 * and the limits. */
#define _GNU_SOURCE /* kill, usleep */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/cold_format.h"
#include "tests/base/refusing.h"
#include "tests/base/whole_file.h"
#include "tests/cache/cold_fixture.h"
#include "tests/slow.h"
#include "tests/support/child.h"

static struct rn_cold_store *open_with(const struct rn_cold_io *io, const struct rn_cold_limits *limits,
                                       struct cold_told *told)
{
    struct rn_tier_id id = cold_id();
    struct rn_cold_store *store;
    runnel_error error = {0};
    runnel_status status = rn_cold_store_open(&cold_heap, io, cold_folder, &id, limits,
                                              told != NULL ? cold_on_record : NULL, told, &store, &error);

    if (status == RUNNEL_OK)
        assert_true(rn_cold_store_check(store));
    else
        assert_int_equal(error.status, status);
    return store;
}

/* Chain c of depth 0 .. n - 1; handles[n]. */
static void append_chain(struct rn_cold_store *store, uint32_t chain, uint32_t n, uint32_t salt, uint64_t *handles)
{
    for (uint32_t d = 0; d < n; d++) {
        struct cold_key key = {chain, d, salt};

        assert_int_equal(cold_append(store, key, d == 0 ? 0 : handles[d - 1], &handles[d]), RUNNEL_OK);
        assert_true(handles[d] != 0);
    }
}

/* ---- What it is for ---- */

static void test_round_trip(void **state)
{
    struct rn_cold_store *store = open_with(NULL, &cold_roomy, NULL);
    struct cold_told told = {.n = 0};
    struct rn_cold_stats stats;
    uint64_t handles[5][8];

    (void)state;
    for (uint32_t c = 0; c < 5; c++)
        append_chain(store, c, 8, c % 2, handles[c]);
    for (uint32_t c = 0; c < 5; c++)
        for (uint32_t d = 0; d < 8; d++)
            assert_true(
                cold_read(store, (struct cold_key){c, d, c % 2}, d == 0 ? 0 : handles[c][d - 1], handles[c][d]));
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    store = open_with(NULL, &cold_roomy, &told);
    assert_int_equal(told.n, 40);
    assert_int_equal(cold_read_all(store, &told), 40);
    append_chain(store, 5, 8, 0, handles[0]); /* another segment: handles go on, none twice */
    for (uint32_t d = 0; d < 8; d++)
        for (size_t i = 0; i < told.n; i++)
            assert_true(handles[0][d] != told.records[i].handle);
    rn_cold_store_stats(store, &stats);
    assert_int_equal(stats.records, 48);
    assert_int_equal(stats.segments, 2);
    assert_int_equal(stats.misses, 0);
    assert_int_equal(stats.damaged, 0);
    assert_true(stats.writes && stats.reads_work);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* Another salt, parent or token: a miss, and the record stays. A parent of another salt has no children. */
static void test_what_must_be_the_same(void **state)
{
    struct rn_cold_store *store = open_with(NULL, &cold_roomy, NULL);
    struct cold_key key = {3, 1, 1}, other = {3, 1, 2};
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];
    uint64_t handles[2], none;

    (void)state;
    append_chain(store, 3, 2, 1, handles);
    cold_tokens(key, tokens);
    for (uint32_t i = 0; i < COLD_B; i++) {
        tokens[i] ^= 1 << 20;
        assert_int_equal(rn_tier_store_get(rn_cold_store_tier(store), handles[1],
                                           &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, payload),
                         RUNNEL_NOT_FOUND);
        tokens[i] ^= 1 << 20;
    }
    assert_int_equal(rn_tier_store_get(rn_cold_store_tier(store), handles[1],
                                       &(struct rn_tier_key){handles[0], cold_salt(other), tokens}, payload),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_cold_store_tier(store), handles[1],
                                       &(struct rn_tier_key){0, cold_salt(key), tokens}, payload),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_cold_store_tier(store), handles[1] + 1,
                                       &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, payload),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_cold_store_tier(store), handles[1],
                                       &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, payload),
                     RUNNEL_OK);
    assert_int_equal(cold_append(store, other, handles[0], &none), RUNNEL_NOT_FOUND);
    assert_int_equal(cold_append(store, key, handles[1] + 9, &none), RUNNEL_NOT_FOUND);
    rn_cold_store_close(store);
}

/* Another fingerprint is another folder; neither sees the other's. */
static void test_fingerprints(void **state)
{
    struct rn_tier_id id = cold_id();
    struct rn_cold_store *store = open_with(NULL, &cold_roomy, NULL), *other;
    struct cold_told told = {.n = 0};
    uint64_t handles[4];

    (void)state;
    append_chain(store, 1, 4, 0, handles);
    id.adapter.bytes[15] ^= 1;
    assert_int_equal(
        rn_cold_store_open(&cold_heap, NULL, cold_folder, &id, &cold_roomy, cold_on_record, &told, &other, NULL),
        RUNNEL_OK);
    assert_int_equal(told.n, 0);
    append_chain(other, 2, 3, 0, handles);
    rn_cold_store_close(other);
    rn_cold_store_close(store);
    store = open_with(NULL, &cold_roomy, &told);
    assert_int_equal(told.n, 4);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* Forgotten with all that builds on it, here and after the next open, in a segment with an index and in the newest. */
static void test_forget(void **state)
{
    struct rn_cold_store *store = open_with(NULL, &cold_roomy, NULL);
    struct cold_told told = {.n = 0};
    uint64_t old[6], new[6], salted[6], n_wiped;

    (void)state;
    append_chain(store, 1, 6, 0, old);
    rn_cold_store_close(store);
    store = open_with(NULL, &cold_roomy, NULL);
    append_chain(store, 2, 6, 0, new);
    append_chain(store, 3, 6, 9, salted);
    rn_tier_store_forget(rn_cold_store_tier(store), old[2]);
    rn_tier_store_forget(rn_cold_store_tier(store), new[4]);
    rn_tier_store_forget(rn_cold_store_tier(store), new[4]); /* harmless */
    assert_int_equal(rn_cold_store_wipe_salt(store, 9, &n_wiped), RUNNEL_OK);
    assert_int_equal(n_wiped, 6);
    assert_true(rn_cold_store_check(store));
    assert_int_equal(cold_read(store, (struct cold_key){1, 5, 0}, old[4], old[5]), 0);
    rn_cold_store_close(store);
    store = open_with(NULL, &cold_roomy, &told);
    assert_int_equal(told.n, 2 + 4);
    assert_int_equal(cold_read_all(store, &told), 6);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* The second to open reads what was there, and does not write. */
static void test_lock(void **state)
{
    struct rn_cold_store *writer = open_with(NULL, &cold_roomy, NULL), *reader;
    struct cold_told told = {.n = 0};
    uint64_t handles[5], none;
    runnel_error error;

    (void)state;
    append_chain(writer, 1, 3, 0, handles);
    reader = open_with(NULL, &cold_roomy, &told);
    assert_int_equal(told.n, 3);
    assert_int_equal(cold_append(reader, (struct cold_key){2, 0, 0}, 0, &none), RUNNEL_STATE);
    rn_tier_store_forget(rn_cold_store_tier(reader), handles[2]);
    assert_false(rn_cold_store_maintain(reader, 1 << 20, NULL, NULL));
    assert_false(rn_tier_store_error(rn_cold_store_tier(reader), &error)); /* it is no failure */
    assert_int_equal(cold_append(writer, (struct cold_key){1, 3, 0}, handles[2], &handles[3]), RUNNEL_OK);
    rn_cold_store_close(writer);
    assert_int_equal(cold_read_all(reader, &told), 2);
    rn_cold_store_close(reader);
    cold_told_free(&told);
    writer = open_with(NULL, &cold_roomy, &told);
    assert_int_equal(told.n, 4);
    append_chain(writer, 7, 1, 0, handles);
    rn_cold_store_close(writer);
    cold_told_free(&told);
}

/* ---- Damage ---- */

/* The only segment's path. */
static void segment_path(char *path, size_t n)
{
    struct rn_tier_id id = cold_id();
    char hex[40];
    struct dirent *entry;
    DIR *list;
    unsigned found = 0;
    struct rn_fingerprint print = rn_cold_fingerprint(&id);

    rn_cold_hex(&print, hex);
    snprintf(path, n, "%s/%s", cold_folder, hex);
    list = opendir(path);
    assert_non_null(list);
    while ((entry = readdir(list)) != NULL) {
        if (strstr(entry->d_name, ".kv") != NULL) {
            snprintf(path, n, "%s/%s/%.40s", cold_folder, hex, entry->d_name);
            found++;
        }
    }
    closedir(list);
    assert_int_equal(found, 1);
}

/* Three records; without an index (as a killed writer leaves it) the file is cut behind the last. */
static size_t small_segment(bool with_index, char *path, size_t path_bytes, uint8_t *bytes, size_t room)
{
    struct rn_cold_store *store = open_with(NULL, &cold_roomy, NULL);
    struct rn_cold_stats stats;
    uint64_t handles[3];
    size_t n;

    append_chain(store, 4, 3, 0, handles);
    rn_cold_store_stats(store, &stats);
    rn_cold_store_close(store);
    segment_path(path, path_bytes);
    n = read_whole(path, bytes, room);
    assert_true(n > stats.file_bytes);
    return with_index ? n : (size_t)stats.file_bytes;
}

/* Returns how many of the three were read; each is right (cold_read). */
static size_t read_damaged(const char *path, const uint8_t *bytes, size_t n)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store;
    size_t good;

    write_whole(path, bytes, n);
    store = open_with(NULL, &cold_roomy, &told);
    assert_true(told.n <= 3);
    good = cold_read_all(store, &told);
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    cold_told_free(&told);
    return good;
}

static void flip_each_byte(bool with_index)
{
    uint8_t bytes[4096];
    char path[300];
    size_t n = small_segment(with_index, path, sizeof path, bytes, sizeof bytes), all = 0, fewer = 0;

    assert_int_equal(read_damaged(path, bytes, n), 3);
    for (size_t i = 0; i < n; i++) {
        size_t good;

        bytes[i] ^= (uint8_t)(1 + i % 255);
        good = read_damaged(path, bytes, n);
        bytes[i] ^= (uint8_t)(1 + i % 255);
        if (i < 256)
            assert_int_equal(good, 0); /* the header: all of it is checked, and no other file is taken for ours */
        fewer += good < 3;
        all += good == 3;
    }
    assert_true(fewer >= 256 + 3 * 100); /* header, and at least heads and tokens */
    assert_true(all < n / 2);
    assert_int_equal(read_damaged(path, bytes, n), 3);
}

static void test_flips_with_index(void **state)
{
    (void)state;
    flip_each_byte(true);
}

static void test_flips_without_index(void **state)
{
    (void)state;
    flip_each_byte(false);
}

/* Cut anywhere: the records before the cut are there, and the store goes on. */
static void test_cuts(void **state)
{
    uint8_t bytes[4096], payload[COLD_MOST_PAYLOAD];
    char path[300];
    size_t n = small_segment(false, path, sizeof path, bytes, sizeof bytes), whole = 0;
    uint64_t end = 256;

    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        size_t last = whole < 3 ? 96 + 4 * COLD_B + cold_payload((struct cold_key){4, (uint32_t)whole, 0}, payload) : n;

        if (cut >= 256 && whole < 3 && cut >= end + last) {
            end += (last + 7) / 8 * 8;
            whole++;
        }
        assert_int_equal(read_damaged(path, bytes, cut), whole);
        if (cut < 256)
            assert_int_equal(access(path, F_OK), 0); /* what is not known as ours is left */
    }
}

/* A folder full of what does not belong there. */
static void test_foreign_files(void **state)
{
    static const char *const names[] = {"0000000000000009.kv", "0000000000000000.kv", "ffffffffffffffff.kv",
                                        "notes.txt",           "000000000000000g.kv", "0000000000000008.kvx"};
    uint8_t bytes[4096];
    char path[300], other[400];
    size_t n = small_segment(true, path, sizeof path, bytes, sizeof bytes);

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(other, sizeof other, "%.*s/%s", (int)(strrchr(path, '/') - path), path, names[i]);
        write_whole(other, bytes, i % 2 == 0 ? n : i); /* the segment under another's number, or next to nothing */
    }
    snprintf(other, sizeof other, "%.*s/0000000000000007.kv", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(read_damaged(path, bytes, n), 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(other, sizeof other, "%.*s/%s", (int)(strrchr(path, '/') - path), path, names[i]);
        assert_int_equal(access(other, F_OK), 0);
    }
}

/* ---- Faults ---- */

/* All calls there are: an old store opened, read, written, forgotten in, kept small, closed. */
static void live(struct cold_disk *disk)
{
    const struct rn_cold_limits limits = {.max_bytes = 16 << 10, .segment_bytes = 4 << 10, .dirty_bytes = 1 << 10};
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store = open_with(&disk->io, &limits, &told);
    runnel_error error = {0};
    uint64_t last = 0;

    if (store == NULL)
        return;
    cold_read_all(store, &told);
    if (told.n > 3)
        rn_tier_store_forget(rn_cold_store_tier(store), told.records[3].handle);
    for (uint32_t d = 0; d < 60; d++) {
        uint64_t handle;

        if (cold_append(store, (struct cold_key){8, d, 0}, last, &handle) != RUNNEL_OK)
            break;
        assert_true(cold_read(store, (struct cold_key){8, d, 0}, last, handle) || disk->fail_at != 0);
        rn_tier_store_used(rn_cold_store_tier(store), handle);
        last = d % 6 == 5 ? 0 : handle;
        if (last == 0)
            break;
        rn_cold_store_maintain(store, 4096, NULL, NULL);
    }
    for (uint32_t c = 100; c < 200; c++) {
        uint64_t handle;

        if (cold_append(store, (struct cold_key){c, 0, 0}, 0, &handle) == RUNNEL_OK && c % 3 == 0)
            rn_tier_store_used(rn_cold_store_tier(store), handle);
        while (rn_cold_store_maintain(store, 2000, NULL, NULL))
            ;
        assert_true(rn_cold_store_check(store));
    }
    if (rn_tier_store_error(rn_cold_store_tier(store), &error)) {
        assert_int_equal(error.status, RUNNEL_IO);
        assert_true(disk->fail_at != 0 && strlen(error.message) > strlen(cold_folder));
        assert_false(rn_tier_store_error(rn_cold_store_tier(store), &error));
    }
    rn_cold_store_close(store);
    cold_told_free(&told);
}

static uint64_t life_of(struct cold_disk *disk)
{
    char path[300];

    cold_folder_remove(cold_folder);
    snprintf(path, sizeof path, "%s", cold_folder);
    assert_int_equal(rn_cold_io_machine.mkdir(NULL, path), 0);
    for (int i = 0; i < 2; i++) /* the second finds what the first has left */
        live(disk);
    assert_int_equal(disk->n_open, 0);
    assert_int_equal(rn_heap_blocks(&cold_heap), 0);
    return disk->calls;
}

static void every_fault(int error, bool for_good)
{
    struct cold_disk disk;
    uint64_t n;

    cold_disk_init(&disk);
    n = life_of(&disk);
    assert_true(n > 500);
    for (uint64_t at = 1; at <= n; at += for_good ? 7 : 1) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;

        cold_disk_init(&disk);
        disk.fail_at = at;
        disk.error = error;
        disk.for_good = for_good;
        life_of(&disk);
        store = open_with(NULL, &cold_roomy, &told);
        assert_non_null(store);
        cold_read_all(store, &told); /* right, or a miss */
        assert_true(rn_cold_store_check(store));
        rn_cold_store_close(store);
        cold_told_free(&told);
    }
}

static void test_every_call_fails(void **state)
{
    (void)state;
    every_fault(EIO, false);
}

static void test_every_call_and_all_later_fail(void **state)
{
    (void)state;
    every_fault(ENOSPC, true);
}

static void test_every_call_is_short(void **state)
{
    (void)state;
    every_fault(0, false);
}

/* Refused until the next try; then there is room, and the chain handles[0..n) goes on. Its new length. */
static uint32_t go_on(struct cold_disk *disk, struct rn_cold_store *store, uint64_t *handles, uint32_t n)
{
    uint32_t n_refused = 0, end = n + 20;

    disk->room = UINT64_MAX;
    while (cold_append(store, (struct cold_key){5, n, 0}, n == 0 ? 0 : handles[n - 1], &handles[n]) != RUNNEL_OK)
        assert_true(++n_refused < 31);
    assert_int_equal(n_refused, 30); /* of 32 one has found it full, and one was refused before */
    for (n++; n < end; n++)
        assert_int_equal(cold_append(store, (struct cold_key){5, n, 0}, n == 0 ? 0 : handles[n - 1], &handles[n]),
                         RUNNEL_OK);
    assert_true(rn_cold_store_check(store));
    return n;
}

/* A disk, a quota or a file of a process that may have no longer ones, with so much room: the store says so once, then
 * refuses, and what was written can be read. It ends with whole records. Where there is room again, every other time,
 * it goes on. */
static void test_full_disk(void **state)
{
    static const int full[] = {ENOSPC, EDQUOT, EFBIG};

    (void)state;
    for (uint64_t room = 0; room < 6000; room += 97) {
        struct cold_disk disk;
        struct rn_cold_store *store;
        struct cold_told told = {.n = 0};
        uint64_t handles[200];
        runnel_error error = {0};
        uint32_t n = 0;

        cold_folder_remove(cold_folder);
        assert_int_equal(rn_cold_io_machine.mkdir(NULL, cold_folder), 0);
        cold_disk_init(&disk);
        disk.room = room;
        disk.full = full[room / 97 % 3];
        store = open_with(&disk.io, &cold_roomy, NULL);
        while (cold_append(store, (struct cold_key){5, n, 0}, n == 0 ? 0 : handles[n - 1], &handles[n]) == RUNNEL_OK)
            n++;
        assert_true(n < 100);
        assert_true(rn_tier_store_error(rn_cold_store_tier(store), &error));
        assert_non_null(strstr(error.message, strerror(disk.full)));
        assert_false(rn_tier_store_error(rn_cold_store_tier(store), &error));
        assert_int_equal(cold_append(store, (struct cold_key){6, 0, 0}, 0, &handles[n]), RUNNEL_STATE);
        if (room % 2 == 0)
            n = go_on(&disk, store, handles, n);
        for (uint32_t d = 0; d < n; d++)
            assert_true(cold_read(store, (struct cold_key){5, d, 0}, d == 0 ? 0 : handles[d - 1], handles[d]));
        rn_cold_store_close(store);
        store = open_with(NULL, &cold_roomy, &told);
        assert_int_equal(told.n, n);
        assert_int_equal(cold_read_all(store, &told), told.n);
        rn_cold_store_close(store);
        cold_told_free(&told);
    }
}

/* Each allocation refused in turn. */
static void test_memory(void **state)
{
    struct refusing refusing = {0};
    struct cold_disk disk;
    uint64_t n;

    (void)state;
    cold_heap = refusing_heap(&refusing);
    cold_disk_init(&disk);
    disk.fail_at = UINT64_MAX; /* an append may be refused */
    life_of(&disk);
    n = refusing.calls;
    assert_true(n > 20);
    for (uint64_t at = 1; at <= n; at++) {
        refusing.calls = 0;
        refusing.refuse_at = at;
        life_of(&disk);
    }
    rn_heap_init(&cold_heap, NULL);
}

/* ---- Killed writers ---- */

enum { KILLED_CHAINS = 60, KILLED_DEPTH = 5, KILLED_ROUNDS = UNLESS_SANITIZED(200, 40) };

/* Appends chains and then waits to be killed; says each handle that it was given. */
static void write_until_killed(int out, uint32_t round)
{
    const struct rn_cold_limits limits = {.max_bytes = 64 << 20, .segment_bytes = 8 << 10, .dirty_bytes = 4 << 10};
    struct rn_cold_store *store = open_with(NULL, &limits, NULL);

    for (uint32_t c = 0; c < KILLED_CHAINS; c++) {
        uint64_t handle = 0;

        for (uint32_t d = 0; d < KILLED_DEPTH; d++)
            if (cold_append(store, (struct cold_key){round << 16 | c, d, 0}, handle, &handle) != RUNNEL_OK ||
                write(out, &handle, sizeof handle) != sizeof handle)
                _exit(1);
    }
    for (;;)
        pause();
}

/* Every record that the writer was given a handle for is there; at most one more, which it had no time to say. */
static uint32_t check_killed(int in, const struct cold_told *told, size_t before)
{
    uint64_t handle;
    uint32_t n = 0;

    for (; read(in, &handle, sizeof handle) == sizeof handle; n++) {
        assert_true(before + n < told->n);
        assert_true(told->records[before + n].handle == handle);
    }
    assert_in_range(told->n - before, n, n + 1);
    return n;
}

/* In every other round the writer is at work already when its time begins to run. */
static void let_write_and_kill(int pipes[2], uint32_t round, unsigned us)
{
    struct pollfd ready = {.fd = pipes[0], .events = POLLIN};
    pid_t child = child_fork();

    if (child == 0)
        write_until_killed(pipes[1], round);
    close(pipes[1]);
    if (round % 2 == 0)
        assert_int_equal(poll(&ready, 1, -1), 1);
    usleep(us);
    child_kill(child);
}

static void test_killed_writers(void **state)
{
    uint64_t rng = 2026;
    size_t before = 0, written = 0;

    (void)state;
    for (uint32_t round = 1; round <= KILLED_ROUNDS; round++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;
        int pipes[2];

        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        let_write_and_kill(pipes, round, (unsigned)(rn_splitmix64(&rng) % 3000));
        store = open_with(NULL, &cold_roomy, &told);
        written += check_killed(pipes[0], &told, before);
        assert_int_equal(cold_read_all(store, &told), told.n);
        before = told.n;
        rn_cold_store_close(store);
        close(pipes[0]);
        cold_told_free(&told);
        if (round % 25 == 0) {
            cold_folder_remove(cold_folder);
            assert_int_equal(rn_cold_io_machine.mkdir(NULL, cold_folder), 0);
            before = 0;
        }
    }
    assert_true(written >= KILLED_ROUNDS / 2);
}

/* ---- Limits ---- */

static size_t n_gone;

static void on_gone(void *user, uint64_t handle)
{
    assert_int_equal(rn_tier_store_payload_bytes(rn_cold_store_tier(user), handle), 0);
    n_gone++;
}

/* Far more than fits: never beyond the limit, the chain that is used over and over stays, and each record that goes is
 * told of. Then the same after the next open. */
static void test_size(void **state)
{
    const struct rn_cold_limits limits = {.max_bytes = 256 << 10, .segment_bytes = 32 << 10};
    struct rn_cold_store *store = open_with(NULL, &limits, NULL);
    struct cold_told told = {.n = 0};
    struct rn_cold_stats stats;
    uint64_t loved[6], handle;

    (void)state;
    n_gone = 0;
    append_chain(store, 1, 6, 0, loved);
    for (uint32_t c = 10; c < 6000; c++) {
        runnel_status status = cold_append(store, (struct cold_key){c, 0, 0}, 0, &handle);

        assert_int_equal(status, RUNNEL_OK);
        if (c % 50 == 0)
            rn_tier_store_used(rn_cold_store_tier(store), loved[5]);
        for (int i = 0; i < 100 && rn_cold_store_maintain(store, 4096, on_gone, store); i++)
            ;
        rn_cold_store_stats(store, &stats);
        assert_true(stats.file_bytes <= limits.max_bytes);
    }
    assert_true(rn_cold_store_check(store));
    assert_int_equal(6 + 5990, stats.records + n_gone);
    assert_int_equal(stats.dropped, n_gone);
    assert_true(stats.live_bytes > limits.max_bytes / 2 && stats.copied_bytes > 0);
    for (uint32_t d = 0; d < 6; d++)
        assert_true(cold_read(store, (struct cold_key){1, d, 0}, d == 0 ? 0 : loved[d - 1], loved[d]));
    rn_cold_store_close(store);
    store = open_with(NULL, &limits, &told);
    assert_int_equal(told.n, stats.records);
    assert_int_equal(cold_read_all(store, &told), told.n);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* Work per call is bounded by the budget: a look or a record at a time. */
static void test_budget(void **state)
{
    const struct rn_cold_limits limits = {.max_bytes = 256 << 10, .segment_bytes = 64 << 10};
    struct rn_cold_store *store = open_with(NULL, &limits, NULL);
    struct rn_cold_stats a, b;
    uint64_t handle;
    uint32_t c = 0, calls = 0;

    (void)state;
    while (cold_append(store, (struct cold_key){c, 0, 0}, 0, &handle) == RUNNEL_OK) {
        rn_tier_store_used(rn_cold_store_tier(store), handle);
        c++;
    }
    for (bool more = true; more && calls < 10000; calls++) {
        rn_cold_store_stats(store, &a);
        more = rn_cold_store_maintain(store, 1000, NULL, NULL);
        rn_cold_store_stats(store, &b);
        assert_true(b.copied_bytes - a.copied_bytes <= 1000 + 2 * 400);
        assert_true(rn_cold_store_check(store));
    }
    assert_true(calls > 50 && calls < 10000);
    assert_true(b.copied_bytes > 0 && b.file_bytes + limits.segment_bytes <= limits.max_bytes);
    rn_cold_store_close(store);
}

static void test_max_records(void **state)
{
    const struct rn_cold_limits limits = {.max_bytes = 64 << 20, .segment_bytes = 1 << 20, .max_records = 100};
    struct rn_cold_store *store = open_with(NULL, &limits, NULL);
    struct cold_told told = {.n = 0};
    struct rn_cold_stats stats;
    uint64_t handle;

    (void)state;
    for (uint32_t c = 0; c < 1000; c++) {
        while (rn_cold_store_maintain(store, 1 << 20, NULL, NULL))
            ;
        assert_int_equal(cold_append(store, (struct cold_key){c, 0, 0}, 0, &handle), RUNNEL_OK);
        rn_cold_store_stats(store, &stats);
        assert_true(stats.records <= 100);
    }
    rn_cold_store_close(store);
    store = open_with(NULL, &(struct rn_cold_limits){.max_bytes = 64 << 20, .max_records = 3}, &told);
    assert_int_equal(told.n, 3);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* 100,000 records: opened with a few reads per segment, not one per record; memory per record as promised. */
static void test_many(void **state)
{
    enum { MANY = 100000 };
    const struct rn_cold_limits limits = {.max_bytes = 1 << 30, .segment_bytes = 4 << 20};
    struct rn_cold_store *store = open_with(NULL, &limits, NULL);
    struct cold_told told = {.n = 0};
    struct rn_cold_stats stats;
    struct cold_disk disk;
    uint64_t handle = 0;

    (void)state;
    for (uint32_t i = 0; i < MANY; i++)
        if (cold_append(store, (struct cold_key){i / 50, i % 50, 0}, i % 50 == 0 ? 0 : handle, &handle) != RUNNEL_OK)
            fail_msg("record %u", i);
    rn_cold_store_close(store);
    cold_disk_init(&disk);
    store = open_with(&disk.io, &limits, NULL);
    rn_cold_store_stats(store, &stats);
    assert_int_equal(stats.records, MANY);
    assert_true(disk.n_pread <= 3 * stats.segments && stats.segments < 20);
    assert_true(stats.memory_bytes <= 2 * MANY * (RN_COLD_ENTRY_BYTES + 16));
    rn_cold_store_close(store);
    store = open_with(NULL, &limits, &told);
    assert_int_equal(told.n, MANY);
    assert_int_equal(cold_read_all(store, &told), MANY);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

static void test_too_small(void **state)
{
    struct rn_tier_id id = cold_id();
    struct rn_cold_store *store;
    runnel_error error = {0};

    (void)state;
    assert_int_equal(rn_cold_store_open(&cold_heap, NULL, cold_folder, &id,
                                        &(struct rn_cold_limits){.max_bytes = 1 << 20}, NULL, NULL, &store, &error),
                     RUNNEL_INVALID);
    assert_int_equal(error.status, RUNNEL_INVALID);
    assert_int_equal(
        rn_cold_store_open(&cold_heap, NULL, "/nonexistent/folder", &id, &cold_roomy, NULL, NULL, &store, NULL),
        RUNNEL_IO);
    assert_null(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, cold_set_up, cold_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_what_must_be_the_same),
        TEST(test_fingerprints),
        TEST(test_forget),
        TEST(test_lock),
        TEST(test_flips_with_index),
        TEST(test_flips_without_index),
        TEST(test_cuts),
        TEST(test_foreign_files),
        TEST(test_every_call_fails),
        TEST(test_every_call_and_all_later_fail),
        TEST(test_every_call_is_short),
        TEST(test_full_disk),
        TEST(test_memory),
        TEST(test_killed_writers),
        TEST(test_size),
        TEST(test_budget),
        TEST(test_max_records),
        TEST(test_many),
        TEST(test_too_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
