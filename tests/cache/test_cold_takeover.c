/* A folder whose writer goes, and a reader that takes its place: every record that was given a handle is there, is told
 * once, and is what it was; of several readers one writes; whoever cannot have the lock stays a reader. Records have a
 * closed form (cold_fixture.h). And segments that the disk gives only later. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/cold_format.h"
#include "tests/cache/cold_fixture.h"
#include "tests/slow.h"
#include "tests/support/child.h"

enum { MOST_CALLS = 100000 };

static const struct rn_cold_limits small = {.max_bytes = 64 << 10, .segment_bytes = 4 << 10};

static struct rn_cold_stats stats_of(const struct rn_cold_store *store)
{
    struct rn_cold_stats stats;

    rn_cold_store_stats(store, &stats);
    return stats;
}

static bool writes(const struct rn_cold_store *store)
{
    return stats_of(store).writes;
}

/* It is no longer told of. */
static void on_gone(void *user, uint64_t handle)
{
    struct cold_told *told = user;

    for (size_t i = 0; i < told->n; i++) {
        if (told->records[i].handle == handle) {
            memmove(told->records + i, told->records + i + 1, (told->n - i - 1) * sizeof told->records[0]);
            told->n--;
            return;
        }
    }
}

/* All that there is now, eight at a time. */
static void follow(struct rn_cold_store *store, struct cold_told *told)
{
    uint32_t n_calls = 0;
    bool more = true, no_room;

    while (more) {
        size_t before = told->n;

        rn_cold_store_follow(store, 8, cold_on_record, told, &more, &no_room);
        assert_true(told->n - before <= 8 && ++n_calls < MOST_CALLS);
        rn_cold_store_maintain(store, 0, on_gone, told);
        assert_true(rn_cold_store_check(store));
    }
}

/* A chain, as if the store had been told of each of its records. */
static void append_chain(struct rn_cold_store *store, uint32_t chain, uint32_t n, struct cold_told *told)
{
    uint64_t parent = 0, handle;

    for (uint32_t d = 0; d < n; d++, parent = handle) {
        struct cold_key key = {chain, d, 0};
        int32_t tokens[COLD_B];

        assert_int_equal(cold_append(store, key, parent, &handle), RUNNEL_OK);
        cold_tokens(key, tokens);
        if (told != NULL)
            cold_on_record(told, &(struct rn_tier_record){.handle = handle,
                                                          .parent = parent,
                                                          .salt = cold_salt(key),
                                                          .tokens = tokens,
                                                          .depth = d,
                                                          .payload_bytes = 1});
    }
}

/* Each record once. */
static void assert_told_once(const struct cold_told *told)
{
    for (size_t i = 0; i < told->n; i++)
        for (size_t j = i + 1; j < told->n; j++)
            assert_true(told->records[i].handle != told->records[j].handle);
}

/* Who opens the folder now finds so many records, and all of them right. */
static void assert_found(size_t n)
{
    const struct rn_cold_limits look = {.max_bytes = UINT64_MAX, .max_records = 1 << 20, .read_only = true};
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store = cold_open(NULL, &look, &told);

    assert_int_equal(told.n, n);
    assert_int_equal(cold_read_all(store, &told), n);
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* ---- The writer ends ---- */

/* Two stores that take turns: each writes a while, ends, and comes back as a reader. */
static void test_back_and_forth(void **state)
{
    struct cold_told told[2] = {{.n = 0}, {.n = 0}};
    struct rn_cold_store *stores[2];

    (void)state;
    stores[0] = cold_open(NULL, &cold_roomy, &told[0]);
    stores[1] = cold_open(NULL, &cold_roomy, &told[1]);
    for (uint32_t turn = 0; turn < 20; turn++) {
        uint32_t one = turn % 2, other = 1 - one;

        assert_true(writes(stores[one]) && !writes(stores[other]) && rn_cold_store_follows(stores[other]));
        append_chain(stores[one], 2 * turn, 5, &told[one]);
        follow(stores[other], &told[other]);
        assert_false(writes(stores[other]));
        append_chain(stores[one], 2 * turn + 1, 12, NULL);
        rn_cold_store_close(stores[one]);
        cold_told_free(&told[one]);
        follow(stores[other], &told[other]); /* what it had not seen yet is told now */
        assert_true(writes(stores[other]) && !rn_cold_store_follows(stores[other]));
        assert_int_equal(told[other].n, 17 * (turn + 1));
        assert_told_once(&told[other]);
        assert_int_equal(cold_read_all(stores[other], &told[other]), told[other].n);
        stores[one] = cold_open(NULL, &cold_roomy, &told[one]);
        assert_int_equal(told[one].n, 17 * (turn + 1));
    }
    rn_cold_store_close(stores[0]);
    rn_cold_store_close(stores[1]);
    assert_found(17 * 20);
    cold_told_free(&told[0]);
    cold_told_free(&told[1]);
}

/* Several readers want it, in any order: one gets it. The others follow it. */
static void test_race(void **state)
{
    enum { READERS = 5 };
    struct cold_told told[READERS + 1] = {{.n = 0}};
    struct rn_cold_store *stores[READERS + 1];
    uint64_t rng = 7;

    (void)state;
    for (unsigned i = 0; i <= READERS; i++)
        stores[i] = cold_open(NULL, &cold_roomy, &told[i]);
    for (unsigned alive = READERS; alive > 0; alive--) {
        unsigned n_writers = 0, writer = 0;

        append_chain(stores[0], alive, 10, &told[0]);
        rn_cold_store_close(stores[0]);
        cold_told_free(&told[0]);
        for (unsigned calls = 0; calls < 4 * alive || n_writers == 0; calls++) {
            unsigned at = 1 + (unsigned)(rn_splitmix64(&rng) % alive);

            follow(stores[at], &told[at]);
            n_writers = 0;
            for (unsigned i = 1; i <= alive; i++) {
                n_writers += writes(stores[i]);
                writer = writes(stores[i]) ? i : writer;
            }
            assert_true(n_writers <= 1);
        }
        stores[0] = stores[writer];
        told[0] = told[writer];
        stores[writer] = stores[alive];
        told[writer] = told[alive];
    }
    follow(stores[0], &told[0]);
    assert_int_equal(told[0].n, 10 * READERS);
    assert_told_once(&told[0]);
    rn_cold_store_close(stores[0]);
    cold_told_free(&told[0]);
}

/* The writer's calls end in the middle of each of its calls in turn, and its lock is free: what had a handle is there,
 * the reader writes, and behind it a third finds all. */
static void test_torn(void **state)
{
    bool ended = true;

    (void)state;
    for (uint64_t fail_at = 1; ended; fail_at++) {
        struct cold_told of_writer = {.n = 0}, told = {.n = 0};
        struct rn_cold_store *writer, *reader;
        struct cold_disk disk;
        uint64_t handle = 0, n = 0;

        cold_disk_init(&disk);
        writer = cold_open(&disk.io, &small, &of_writer);
        reader = cold_open(NULL, &small, &told);
        disk.fail_at = disk.calls + fail_at;
        disk.for_good = true;
        while (n < 60 && cold_append(writer, (struct cold_key){(uint32_t)fail_at, (uint32_t)n, 0}, handle, &handle) ==
                             RUNNEL_OK) {
            n++;
            if (n == 20)
                follow(reader, &told);
        }
        ended = n < 60;
        rn_cold_store_close(writer); /* it can write nothing any more */
        follow(reader, &told);
        assert_true(writes(reader));
        assert_in_range(told.n, n, n + 1); /* the last may have come to the disk */
        assert_told_once(&told);
        assert_int_equal(cold_read_all(reader, &told), told.n);
        append_chain(reader, 1000, 30, &told);
        rn_cold_store_close(reader);
        assert_found(told.n);
        cold_told_free(&of_writer);
        cold_told_free(&told);
        cold_folder_remove(cold_folder);
    }
}

/* A fault in each call of the reader's, from when the writer has gone. */
static void test_faults(void **state)
{
    uint64_t n_readers = 0, fail_at = 1;
    bool more = true, no_room;

    (void)state;
    for (; more; fail_at++) {
        struct cold_told of_writer = {.n = 0}, told = {.n = 0};
        struct rn_cold_store *writer = cold_open(NULL, &small, &of_writer), *reader;
        struct cold_disk disk;
        runnel_error error;

        cold_disk_init(&disk);
        append_chain(writer, 1, 40, NULL);
        reader = cold_open(&disk.io, &small, &told);
        append_chain(writer, 2, 40, NULL);
        rn_cold_store_close(writer);
        disk.fail_at = disk.calls + fail_at;
        disk.error = fail_at % 2 ? EIO : EMFILE;
        for (unsigned i = 0; i < 40; i++) { /* what is tried again comes within so many calls */
            rn_cold_store_follow(reader, 8, cold_on_record, &told, &more, &no_room);
            rn_cold_store_maintain(reader, 0, on_gone, &told);
        }
        more = disk.calls >= disk.fail_at;
        disk.fail_at = 0;
        assert_true(rn_cold_store_check(reader));
        if (!writes(reader)) {
            n_readers++;
            assert_true(rn_tier_store_error(rn_cold_store_tier(reader), &error)); /* and it says why */
        }
        assert_int_equal(stats_of(reader).records, 80);
        assert_told_once(&told);
        assert_int_equal(told.n, 80);
        assert_int_equal(cold_read_all(reader, &told), 80);
        rn_cold_store_close(reader);
        assert_int_equal(disk.n_open, 0);
        assert_found(80);
        cold_told_free(&of_writer);
        cold_told_free(&told);
        cold_folder_remove(cold_folder);
    }
    assert_in_range(n_readers, 1, fail_at / 2);
}

/* ---- The lock cannot be had ---- */

static int n_locks, lock_says;

static int odd_lock(void *user, int fd)
{
    (void)user;
    (void)fd;
    n_locks++;
    return lock_says;
}

/* A file system that refuses locks, from the beginning or later: it is said once, and the store reads, and follows. */
static void test_refused(void **state)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct rn_cold_io io = rn_cold_io_machine;
    runnel_error error;

    (void)state;
    io.lock = odd_lock;
    for (int later = 0; later < 2; later++) {
        struct rn_cold_store *writer = cold_open(NULL, &cold_roomy, &of_writer), *reader;

        n_locks = 0;
        lock_says = later ? -EWOULDBLOCK : -ENOLCK;
        reader = cold_open(&io, &cold_roomy, &told);
        lock_says = -ENOLCK;
        for (uint32_t i = 0; i < 10; i++) {
            append_chain(writer, 10 * (uint32_t)later + i, 4, NULL);
            follow(reader, &told);
        }
        assert_int_equal(n_locks, 1 + later);
        assert_int_equal(told.n, 40 + 40 * (size_t)later);
        assert_int_equal(cold_read_all(reader, &told), told.n);
        assert_true(rn_tier_store_error(rn_cold_store_tier(reader), &error) &&
                    strstr(error.message, "cannot be locked") != NULL);
        assert_false(rn_tier_store_error(rn_cold_store_tier(reader), &error));
        rn_cold_store_close(writer);
        follow(reader, &told);
        assert_false(writes(reader));
        rn_cold_store_close(reader);
        told.n = 0;
    }
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

static int no_mkdir(void *user, const char *path)
{
    (void)user;
    (void)path;
    return -EROFS;
}

/* A folder that cannot be made: the sentence says why, not that it is not there. */
static void test_not_made(void **state)
{
    struct rn_tier_id id = cold_id();
    struct rn_cold_io io = rn_cold_io_machine;
    struct rn_cold_store *store;
    runnel_error error = {0};

    (void)state;
    io.mkdir = no_mkdir;
    assert_int_equal(rn_cold_store_open(&cold_heap, &io, cold_folder, &id, &cold_roomy, NULL, NULL, &store, &error),
                     RUNNEL_IO);
    assert_non_null(strstr(error.message, "cannot be made: Read-only file system"));
}

/* The folder is removed under both, and made anew by a third: the reader follows that one, and takes its place; the
 * first writer touches nothing of it, though its numbers are the same. */
static void test_removed(void **state)
{
    struct cold_told of_writer = {.n = 0}, of_third = {.n = 0}, told = {.n = 0};
    struct rn_cold_store *writer = cold_open(NULL, &small, &of_writer), *reader, *third;
    uint64_t handle;
    runnel_error error;

    (void)state;
    append_chain(writer, 1, 6, NULL);
    reader = cold_open(NULL, &small, &told);
    cold_folder_remove(cold_folder);
    follow(reader, &told);
    assert_false(writes(reader));
    assert_int_equal(cold_read_all(reader, &told), 6);
    third = cold_open(NULL, &small, &of_third);
    assert_true(writes(third));
    append_chain(third, 2, 70, &of_third);
    while (cold_append(writer, (struct cold_key){3, 0, 0}, 0, &handle) == RUNNEL_OK) /* until it needs a new segment */
        continue;
    assert_true(!writes(writer) && rn_tier_store_error(rn_cold_store_tier(writer), &error));
    assert_non_null(strstr(error.message, "removed"));
    rn_cold_store_close(writer);
    follow(reader, &told);
    follow(reader, &told); /* it finds that it is another folder, and reads that */
    assert_false(writes(reader));
    assert_int_equal(told.n, 70);
    rn_cold_store_close(third);
    follow(reader, &told);
    assert_true(writes(reader));
    assert_int_equal(told.n, 70);
    assert_int_equal(cold_read_all(reader, &told), 70);
    rn_cold_store_close(reader);
    assert_found(70);
    cold_told_free(&of_writer);
    cold_told_free(&of_third);
    cold_told_free(&told);
}

/* What the last writer has forgotten is gone, what it has copied is read at its new place, and what was used by the
 * reader outlives segments of its own time as a writer. */
static void test_forgotten(void **state)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct rn_cold_store *writer = cold_open(NULL, &small, &of_writer), *reader;

    (void)state;
    append_chain(writer, 1, 3, &of_writer);
    append_chain(writer, 2, 3, &of_writer);
    reader = cold_open(NULL, &small, &told);
    rn_tier_store_forget(rn_cold_store_tier(writer),
                         of_writer.records[4].handle); /* the second of the second chain, and the third */
    rn_tier_store_used(rn_cold_store_tier(reader), of_writer.records[2].handle);
    follow(reader, &told);
    assert_int_equal(stats_of(reader).records, 6); /* a reader looks at a head once */
    rn_cold_store_close(writer);
    follow(reader, &told);
    assert_true(writes(reader));
    assert_int_equal(told.n, 4);
    assert_int_equal(stats_of(reader).records, 4);
    for (uint32_t chain = 10; chain < 300; chain++) {
        append_chain(reader, chain, 2, NULL);
        while (rn_cold_store_maintain(reader, 1 << 20, NULL, NULL))
            continue;
        if (chain % 10 == 0)
            rn_tier_store_used(rn_cold_store_tier(reader), of_writer.records[2].handle);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(cold_read(reader, told.records[i].key, told.records[i].parent, told.records[i].handle), 1);
    rn_cold_store_close(reader);
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

/* ---- Segments that the disk gives later ---- */

static struct {
    const struct rn_cold_io *under;
    char name[32]; /* of files with this name nothing can be read */
    int fds[64];
    bool spared; /* not just now */
    uint64_t n_tries;
} bad;

static int bad_open(void *user, const char *path, int flags)
{
    int fd = bad.under->open(user, path, flags);

    if (fd >= 0 && fd < 64)
        bad.fds[fd] = bad.name[0] != '\0' && strstr(path, bad.name) != NULL;
    return fd;
}

static int64_t bad_pread(void *user, int fd, void *bytes, size_t n, uint64_t offset)
{
    if (fd < 64 && bad.fds[fd] && !bad.spared) {
        bad.n_tries++;
        return -EIO;
    }
    return bad.under->pread(user, fd, bytes, n, offset);
}

static runnel_status get_one(struct rn_cold_store *store, const struct cold_record *r)
{
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    cold_tokens(r->key, tokens);
    return rn_tier_store_get(rn_cold_store_tier(store), r->handle,
                             &(struct rn_tier_key){r->parent, cold_salt(r->key), tokens}, payload);
}

/* Gets whose reads fail, one of them or all, take nothing away: who forgets what is not found forgets nothing. */
static void test_bad_reads(void **state)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_io io = rn_cold_io_machine;
    struct rn_cold_store *store = cold_open(NULL, &cold_roomy, NULL);

    (void)state;
    append_chain(store, 1, 20, NULL);
    rn_cold_store_close(store);
    bad.under = &rn_cold_io_machine;
    io.open = bad_open;
    io.pread = bad_pread;
    rn_cold_segment_name(1, bad.name);
    bad.spared = true;
    store = cold_open(&io, &cold_roomy, &told);
    assert_int_equal(told.n, 20);
    for (size_t i = 0; i < told.n; i++) {
        runnel_status status;

        bad.spared = i == 1; /* the first fails alone, the others in sequence until reading is off */
        status = get_one(store, &told.records[i]);
        assert_int_equal(status, i == 1 ? RUNNEL_OK : RUNNEL_IO);
        if (status == RUNNEL_NOT_FOUND)
            rn_tier_store_forget(rn_cold_store_tier(store), told.records[i].handle);
    }
    assert_false(stats_of(store).reads_work);
    assert_int_equal(stats_of(store).records, 20);
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    bad.name[0] = '\0';
    bad.spared = false;
    assert_found(20);
    cold_told_free(&told);
}

/* The second segment of three cannot be read for a time: its records, and those that build on them in the third, are
 * misses; later they are there, told parents first. As a writer and as a reader. */
static void test_unread(void **state)
{
    struct cold_told of_writer = {.n = 0};
    struct rn_cold_io io = rn_cold_io_machine;
    struct rn_cold_store *writer = cold_open(NULL, &small, &of_writer);

    (void)state;
    append_chain(writer, 1, 70, NULL);
    assert_true(stats_of(writer).segments >= 3);
    bad.under = &rn_cold_io_machine;
    io.open = bad_open;
    io.pread = bad_pread;
    for (int as_writer = 0; as_writer < 2; as_writer++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;
        uint64_t handle = 0;
        size_t before;

        if (as_writer)
            rn_cold_store_close(writer);
        bad.n_tries = 0;
        rn_cold_segment_name(2, bad.name);
        store = cold_open(&io, &small, &told);
        before = told.n;
        assert_true(writes(store) == (as_writer == 1) && rn_cold_store_follows(store));
        assert_in_range(before, 1, 60);
        for (uint32_t i = 0; i < 2000; i++) {
            bool more, no_room;

            rn_cold_store_follow(store, 8, cold_on_record, &told, &more, &no_room);
            assert_false(more);
        }
        assert_int_equal(told.n, before);
        assert_in_range(bad.n_tries, 8, 20); /* 1, 2, 4, ... 1024 calls apart */
        assert_true(rn_cold_store_check(store));
        if (as_writer)
            assert_int_equal(cold_append(store, (struct cold_key){5, 0, 0}, 0, &handle), RUNNEL_OK);
        bad.name[0] = '\0';
        for (uint32_t i = 0; i < 1100 && told.n < 70; i++)
            follow(store, &told);
        assert_int_equal(told.n, 70);
        assert_told_once(&told);
        assert_int_equal(cold_read_all(store, &told), 70);
        if (as_writer) {
            assert_false(rn_cold_store_follows(store)); /* nothing is left to be looked at */
            assert_int_equal(cold_read(store, (struct cold_key){5, 0, 0}, 0, handle), 1);
        }
        rn_cold_store_close(store);
        cold_told_free(&told);
    }
    assert_found(71);
    cold_told_free(&of_writer);
}

/* A segment that cannot be read comes back while the disk is full, and the disk has room again: noticed by a block that
 * is written, or when the folder is looked at. Then all is read, and what comes is written. */
static void unread_while_full(bool by_writing)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct rn_cold_store *store = cold_open(NULL, &small, &of_writer);
    struct cold_disk disk;
    struct rn_cold_io io;
    uint64_t first = 0, last = 0;
    size_t before;

    append_chain(store, 1, 70, NULL);
    rn_cold_store_close(store);
    cold_disk_init(&disk);
    io = disk.io;
    io.open = bad_open;
    io.pread = bad_pread;
    bad.under = &disk.io;
    rn_cold_segment_name(2, bad.name);
    store = cold_open(&io, &small, &told);
    before = told.n;
    assert_in_range(before, 1, 60);
    assert_int_equal(cold_append(store, (struct cold_key){5, 0, 0}, 0, &first), RUNNEL_OK);
    disk.room = 0;
    assert_int_equal(cold_append(store, (struct cold_key){6, 0, 0}, 0, &last), RUNNEL_IO);
    bad.name[0] = '\0';
    for (uint32_t i = 0; i < 100; i++)
        follow(store, &told);
    assert_false(writes(store));
    assert_int_equal(cold_append(store, (struct cold_key){6, 0, 0}, 0, &last), RUNNEL_STATE);
    assert_int_equal(cold_read(store, (struct cold_key){5, 0, 0}, 0, first), 1);
    assert_true(rn_cold_store_check(store));
    disk.room = UINT64_MAX;
    for (uint32_t i = 0; by_writing && i < 40 && !writes(store); i++)
        cold_append(store, (struct cold_key){6, 0, 0}, 0, &last);
    for (uint32_t i = 0; i < 1100 && told.n < 70; i++)
        follow(store, &told);
    assert_int_equal(told.n, 70);
    assert_true(writes(store));
    assert_int_equal(cold_append(store, (struct cold_key){7, 0, 0}, 0, &last), RUNNEL_OK);
    assert_told_once(&told);
    assert_int_equal(cold_read_all(store, &told), 70);
    assert_int_equal(cold_read(store, (struct cold_key){5, 0, 0}, 0, first), 1);
    assert_int_equal(cold_read(store, (struct cold_key){7, 0, 0}, 0, last), 1);
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    assert_found(by_writing ? 73 : 72);
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

static void test_unread_while_full(void **state)
{
    (void)state;
    unread_while_full(false);
}

static void test_unread_until_written(void **state)
{
    (void)state;
    unread_while_full(true);
}

/* A writer ends, and the next one begins, while the disk is full: the segment has no index, or a part of one, before
 * there is room again. Then it is like any other: what is forgotten in it is forgotten for good, all else is there. */
static void left_without_index(uint64_t room)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct cold_disk disk;
    struct rn_cold_store *store;
    uint64_t handle;

    cold_folder_remove(cold_folder);
    assert_int_equal(rn_cold_io_machine.mkdir(NULL, cold_folder), 0);
    cold_disk_init(&disk);
    store = cold_open(&disk.io, &cold_roomy, &of_writer);
    append_chain(store, 1, 1, &of_writer);
    append_chain(store, 2, 10, &of_writer);
    disk.room = room;
    rn_cold_store_close(store);
    disk.room = 0;
    store = cold_open(&disk.io, &cold_roomy, &told);
    assert_int_equal(told.n, 11);
    assert_false(writes(store));
    disk.room = UINT64_MAX;
    for (uint32_t i = 0; i < 40 && !writes(store); i++)
        cold_append(store, (struct cold_key){3, 0, 0}, 0, &handle);
    assert_true(writes(store));
    assert_int_equal(rn_tier_store_forget(rn_cold_store_tier(store), told.records[0].handle), 1);
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    assert_found(11);
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

static void test_left_without_index(void **state)
{
    (void)state;
    for (uint64_t room = 0; room < 1368; room += 99) /* of the bytes that the index has with its trailer */
        left_without_index(room);
}

/* ---- Killed ---- */

enum { LIVES = UNLESS_SANITIZED(200, 20), LEDGER = 1 << 16, MOST_US = 3000 };

/* What has been given a handle, by whichever process; in memory that all of them have. */
struct ledger {
    atomic_uint n, writer; /* records; the life that writes, 0: none yet */
    struct cold_record records[LEDGER];
};

/* A process: reads what another writes until it is gone, checks all, writes until it is killed. */
_Noreturn static void live(struct ledger *ledger, uint32_t life)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store = cold_open(NULL, &cold_roomy, &told);
    uint64_t handle = 0;

    while (!writes(store)) {
        follow(store, &told);
        usleep(100);
    }
    follow(store, &told);
    assert_told_once(&told);
    for (unsigned i = 0; i < ledger->n; i++) {
        const struct cold_record *r = &ledger->records[i];

        assert_int_equal(cold_read(store, r->key, r->parent, r->handle), 1);
    }
    assert_true(told.n >= ledger->n && told.n <= ledger->n + life); /* each may have left one that it told nobody of */
    ledger->writer = life;
    for (uint32_t d = 0;; d++) {
        struct cold_key key = {life, d % 50, 0};
        uint64_t parent = key.depth == 0 ? 0 : handle;

        assert_int_equal(cold_append(store, key, parent, &handle), RUNNEL_OK);
        if (ledger->n == LEDGER)
            pause();
        ledger->records[ledger->n] = (struct cold_record){key, handle, parent};
        ledger->n++;
        usleep(10);
    }
}

static pid_t start(struct ledger *ledger, uint32_t life)
{
    pid_t child = child_fork();

    if (child == 0)
        live(ledger, life);
    return child;
}

static void look_after(pid_t child)
{
    child_runs(child);
    usleep(100);
}

/* A writer is killed, a reader that waited takes its place, is killed while the next one waits, ... */
static void test_killed(void **state)
{
    struct ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t rng = 2026;
    pid_t writer, reader;

    (void)state;
    assert_true(ledger != MAP_FAILED);
    writer = start(ledger, 1);
    while (ledger->writer < 1)
        look_after(writer);
    for (uint32_t life = 2; life < 2 + LIVES; life++) {
        unsigned before = ledger->n;

        reader = start(ledger, life);
        usleep((unsigned)(rn_splitmix64(&rng) % MOST_US));
        while (ledger->n == before && before < LEDGER)
            look_after(writer);
        child_kill(writer);
        writer = reader;
        while (ledger->writer < life)
            look_after(writer);
    }
    child_kill(writer);
    assert_true(ledger->n > LIVES);
    print_message("%u records of %d writers\n", ledger->n, LIVES + 1);
    munmap(ledger, sizeof *ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_back_and_forth, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_race, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_torn, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_faults, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_refused, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_not_made, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_removed, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_forgotten, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_reads, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_unread, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_unread_while_full, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_unread_until_written, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_left_without_index, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_killed, cold_set_up, cold_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
