/* A folder that one store writes and another reads: what is appended is told to the reader, what is removed is gone,
 * and what is copied is read at its new place. Records have a closed form (cold_fixture.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cache/store/cold_format.h"
#include "tests/base/whole_file.h"
#include "tests/cache/cold_fixture.h"

enum { MOST_CALLS = 100000 };

static const struct rn_cold_limits small = {.max_bytes = 64 << 10, .segment_bytes = 4 << 10};

static uint64_t append_chain(struct rn_cold_store *store, uint32_t chain, uint32_t n)
{
    uint64_t handle = 0;

    for (uint32_t d = 0; d < n; d++)
        assert_int_equal(cold_append(store, (struct cold_key){chain, d, 0}, handle, &handle), RUNNEL_OK);
    return handle;
}

/* All that there is now, eight at a time. */
static uint32_t follow(struct rn_cold_store *store, struct cold_told *told)
{
    uint32_t n_calls = 0;
    bool more = true, no_room;

    while (more) {
        size_t before = told->n;

        rn_cold_store_follow(store, 8, cold_on_record, told, &more, &no_room);
        assert_true(told->n - before <= 8 && ++n_calls < MOST_CALLS);
        assert_true(rn_cold_store_check(store));
    }
    return n_calls;
}

static struct rn_cold_stats stats_of(const struct rn_cold_store *store)
{
    struct rn_cold_stats stats;

    rn_cold_store_stats(store, &stats);
    return stats;
}

static void test_followed(void **state)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct rn_cold_store *writer = cold_open(NULL, &cold_roomy, &of_writer), *reader;

    (void)state;
    append_chain(writer, 1, 5);
    reader = cold_open(NULL, &cold_roomy, &told);
    assert_true(rn_cold_store_follows(reader) && !rn_cold_store_follows(writer));
    assert_int_equal(told.n, 5);
    append_chain(writer, 2, 100);
    assert_in_range(follow(reader, &told), 100 / 8, 100 / 8 + 2);
    assert_int_equal(told.n, 105);
    assert_int_equal(cold_read_all(reader, &told), 105);
    follow(reader, &told);
    assert_int_equal(told.n, 105); /* once each */
    rn_cold_store_close(writer);   /* it writes the index */
    writer = cold_open(NULL, &cold_roomy, &of_writer);
    append_chain(writer, 3, 20); /* into a new segment */
    follow(reader, &told);
    assert_int_equal(told.n, 125);
    assert_int_equal(cold_read_all(reader, &told), 125);
    rn_cold_store_close(writer);
    rn_cold_store_close(reader);
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

/* A writer that drops its oldest segments all the time, and keeps what is used by copying it. */
static void test_dropped(void **state)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct cold_disk disk;
    struct rn_cold_store *writer = cold_open(NULL, &small, &of_writer), *reader;
    uint64_t used = append_chain(writer, 0, 3);
    size_t good = 0;

    (void)state;
    cold_disk_init(&disk);
    reader = cold_open(&disk.io, &small, &told);
    for (uint32_t chain = 1; chain < 600; chain++) {
        append_chain(writer, chain, 2);
        rn_tier_store_used(rn_cold_store_tier(writer), used);
        while (rn_cold_store_maintain(writer, 1 << 20, NULL, NULL))
            continue;
        if (chain % 7 == 0)
            follow(reader, &told);
    }
    follow(reader, &told);
    assert_true(told.n > 3 + 600); /* what was dropped between two calls was never seen */
    assert_int_equal(stats_of(reader).records, stats_of(writer).records);
    for (size_t i = 0; i < told.n; i++) {
        int here = cold_read(writer, told.records[i].key, told.records[i].parent, told.records[i].handle);

        assert_int_equal(cold_read(reader, told.records[i].key, told.records[i].parent, told.records[i].handle), here);
        good += (size_t)here;
    }
    assert_int_equal(good, stats_of(writer).records);
    assert_int_equal(cold_read(reader, (struct cold_key){0, 2, 0}, told.records[1].handle, used), 1);
    assert_int_equal(stats_of(reader).segments, stats_of(writer).segments);
    assert_int_equal(disk.n_open, stats_of(reader).segments);
    rn_cold_store_close(writer);
    rn_cold_store_close(reader);
    assert_int_equal(disk.n_open, 0);
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

/* A fault in each call of the reader's in turn: nothing wrong is told or read, and the next time it is all there. */
static void test_faults(void **state)
{
    struct cold_told of_writer = {.n = 0};
    struct rn_cold_store *writer = cold_open(NULL, &small, &of_writer);
    bool more = true, no_room;

    (void)state;
    for (uint64_t fail_at = 1; more; fail_at++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *reader;
        struct cold_disk disk;

        cold_disk_init(&disk);
        reader = cold_open(&disk.io, &small, &told);
        append_chain(writer, 1000 + (uint32_t)fail_at, 12);
        while (rn_cold_store_maintain(writer, 1 << 20, NULL, NULL))
            continue;
        disk.fail_at = disk.calls + fail_at;
        disk.error = fail_at % 2 ? 5 : 0;
        rn_cold_store_follow(reader, 8, cold_on_record, &told, &more, &no_room);
        rn_cold_store_follow(reader, 8, cold_on_record, &told, &more, &no_room);
        more = disk.calls >= disk.fail_at;
        disk.fail_at = 0;
        follow(reader, &told);
        assert_int_equal(stats_of(reader).records, stats_of(writer).records);
        assert_int_equal(cold_read_all(reader, &told), stats_of(writer).records);
        rn_cold_store_close(reader);
        assert_int_equal(disk.n_open, 0);
        cold_told_free(&told);
    }
    rn_cold_store_close(writer);
    cold_told_free(&of_writer);
}

/* Files that are none, and heads that are damaged: nothing of them is told. */
static void test_garbage(void **state)
{
    struct cold_told of_writer = {.n = 0}, told = {.n = 0};
    struct rn_cold_store *writer = cold_open(NULL, &cold_roomy, &of_writer), *reader;
    struct rn_tier_id id = cold_id();
    struct rn_fingerprint print = rn_cold_fingerprint(&id);
    char path[300], hex[RN_COLD_HEX + 1];
    static uint8_t bytes[1 << 16];
    size_t n;

    (void)state;
    append_chain(writer, 1, 1);
    reader = cold_open(NULL, &cold_roomy, &told);
    rn_cold_hex(&print, hex);
    append_chain(writer, 2, 6);
    snprintf(path, sizeof path, "%s/%s/%016x.kv", cold_folder, hex, 1);
    n = read_whole(path, bytes, sizeof bytes);
    memset(bytes + n, 'x', 4000); /* behind the last record */
    write_whole(path, bytes, n + 4000);
    snprintf(path, sizeof path, "%s/%s/%016x.kv", cold_folder, hex, 2);
    write_whole(path, bytes, n); /* says that it is another */
    snprintf(path, sizeof path, "%s/%s/%016x.kv", cold_folder, hex, 3);
    write_whole(path, bytes, 100);
    follow(reader, &told);
    assert_int_equal(told.n, 7);
    assert_int_equal(stats_of(reader).segments, 1);
    assert_int_equal(cold_read_all(reader, &told), 7);
    rn_cold_store_close(reader);
    rn_cold_store_close(writer);
    cold_told_free(&of_writer);
    cold_told_free(&told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_followed, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_dropped, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_faults, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_garbage, cold_set_up, cold_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
