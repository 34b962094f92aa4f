/* Numbers in a cold folder that its writers cannot have given: a file with the last number that a name can have, and a
 * whole record with a serial of a later segment. What is written behind them is found again, or is not written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cache/store/cold_format.h"
#include "tests/base/whole_file.h"
#include "tests/cache/cold_fixture.h"

static const struct cold_key first = {4, 0, 0}, second = {9, 0, 0};

/* A folder with one segment, of one record; and the path of a name in it. */
static void make_folder(void)
{
    struct rn_cold_store *store = cold_open(NULL, &cold_roomy, NULL);
    uint64_t handle;

    assert_int_equal(cold_append(store, first, 0, &handle), RUNNEL_OK);
    rn_cold_store_close(store);
}

static const char *path_of(uint64_t number)
{
    static char path[300];
    struct rn_tier_id id = cold_id();
    struct rn_fingerprint print = rn_cold_fingerprint(&id);
    char hex[RN_COLD_HEX + 1], name[32];

    rn_cold_hex(&print, hex);
    rn_cold_segment_name(number, name);
    snprintf(path, sizeof path, "%s/%s/%s", cold_folder, hex, name);
    return path;
}

/* What would be written behind it could not be found again. */
static void test_last_number(void **state)
{
    struct cold_told told = {.n = 0};
    struct rn_cold_store *store;
    uint64_t handle;
    runnel_error error;

    (void)state;
    make_folder();
    write_whole(path_of(RN_COLD_MOST_SEGMENTS - 1), (const uint8_t *)"not ours", 8);
    store = cold_open(NULL, &cold_roomy, &told);
    assert_int_equal(told.n, 1);
    assert_int_equal(cold_read_all(store, &told), 1);
    assert_int_equal(cold_append(store, second, 0, &handle), RUNNEL_IO);
    assert_int_equal(cold_append(store, second, 0, &handle), RUNNEL_STATE);
    assert_true(rn_tier_store_error(rn_cold_store_tier(store), &error));
    assert_non_null(strstr(error.message, "number"));
    assert_true(rn_cold_store_check(store));
    rn_cold_store_close(store);
    cold_told_free(&told);
}

/* Segment 1 anew, with a record that says it is the first of segment `of`. */
static void forge(uint64_t of)
{
    struct rn_tier_id id = cold_id();
    struct rn_cold_head head = {.serial = of << RN_COLD_NTH_BITS | 1, .salt = cold_salt(first), .alive = true};
    uint64_t seed = rn_cold_seed(&id);
    uint8_t bytes[1024] = {0}, *record = bytes + RN_COLD_HEADER_BYTES, *payload;
    int32_t tokens[COLD_B];

    payload = record + rn_cold_head_bytes(COLD_B);
    head.payload_bytes = (uint32_t)cold_payload(first, payload);
    head.payload_check = rn_cold_payload_check(seed, head.serial, payload, head.payload_bytes);
    cold_tokens(first, tokens);
    rn_cold_header_pack(&id, 1, bytes);
    rn_cold_head_pack(&head, seed, tokens, COLD_B, record);
    write_whole(path_of(1), bytes, RN_COLD_HEADER_BYTES + (size_t)rn_cold_record_bytes(COLD_B, head.payload_bytes));
}

/* The next segment is 2, and gives that serial to another record. */
static void test_foreign_serial(void **state)
{
    (void)state;
    for (uint64_t of = 1; of <= 2; of++) {
        struct cold_told told = {.n = 0};
        struct rn_cold_store *store;
        struct rn_cold_stats stats;
        uint64_t handle;

        make_folder();
        forge(of);
        store = cold_open(NULL, &cold_roomy, &told);
        rn_cold_store_stats(store, &stats);
        assert_int_equal(told.n, of == 1);
        assert_int_equal(stats.damaged, of == 2);
        assert_int_equal(cold_append(store, second, 0, &handle), RUNNEL_OK);
        assert_true(cold_read(store, second, 0, handle));
        assert_true(rn_cold_store_check(store));
        rn_cold_store_close(store);
        cold_told_free(&told);
        assert_int_equal(remove(path_of(1)), 0);
        assert_int_equal(remove(path_of(2)), 0);
    }
}

/* Who only reads meets the record while it follows the writer. */
static void test_followed(void **state)
{
    struct rn_cold_limits limits = cold_roomy;
    struct cold_told told = {.n = 0};
    struct rn_cold_store *writer, *reader;
    uint64_t handle;
    bool more, no_room;

    (void)state;
    writer = cold_open(NULL, &limits, NULL);
    reader = cold_open(NULL, &limits, NULL);
    assert_true(rn_cold_store_follows(reader));
    assert_int_equal(cold_append(writer, first, 0, &handle), RUNNEL_OK);
    forge(2);
    rn_cold_store_follow(reader, 8, cold_on_record, &told, &more, &no_room);
    assert_int_equal(told.n, 0);
    assert_true(rn_cold_store_check(reader));
    rn_cold_store_close(reader);
    rn_cold_store_close(writer);
    cold_told_free(&told);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, cold_set_up, cold_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_last_number),
        TEST(test_foreign_serial),
        TEST(test_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
