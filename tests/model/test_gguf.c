/* The GGUF reader over whole and partial files in memory: what is written is read; every prefix is
 * an error; every refused allocation is survived; time is linear. Hostile files: test_gguf_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gguf_writer.h"
#include "model/quant/quant.h"
#include "tests/base/refusing.h"

#define ENTRIES 21

static void write_arrays(struct writer *w)
{
    w_key_array(w, "a.u8", RN_GGUF_U8, 3);
    w_raw(w, "\x01\x80\xff", 3);
    w_key_array(w, "a.i16", RN_GGUF_I16, 2);
    w_u16(w, 0x8000);
    w_u16(w, 7);
    w_key_array(w, "a.f32", RN_GGUF_F32, 2);
    w_f32(w, 0.5f);
    w_f32(w, -3e38f);
    w_key_array(w, "a.bool", RN_GGUF_BOOL, 2);
    w_raw(w, "\x01\x00", 2);
    w_key_array(w, "a.string", RN_GGUF_STRING, 3);
    w_string(w, "");
    w_string(w, "two");
    w_string(w, "\xff\x01 any bytes");
    w_key_array(w, "a.empty", RN_GGUF_STRING, 0);
}

/* One of everything; alignment 64; the file ends with the last tensor's last byte. */
static void write_all(struct writer *w, uint32_t version)
{
    w_header(w, version, 3, ENTRIES);
    w_key_u32(w, "general.alignment", 64);
    w_key(w, "u8", RN_GGUF_U8);
    w_u8(w, 200);
    w_key(w, "i8", RN_GGUF_I8);
    w_u8(w, (uint8_t)-3);
    w_key(w, "u16", RN_GGUF_U16);
    w_u16(w, 60000);
    w_key(w, "i16", RN_GGUF_I16);
    w_u16(w, (uint16_t)-30000);
    w_key_u32(w, "u32", 4000000000u);
    w_key(w, "i32", RN_GGUF_I32);
    w_u32(w, (uint32_t)-2000000000);
    w_key(w, "u64", RN_GGUF_U64);
    w_u64(w, UINT64_MAX - 1);
    w_key(w, "i64", RN_GGUF_I64);
    w_u64(w, (uint64_t)INT64_MIN);
    w_key(w, "f32", RN_GGUF_F32);
    w_f32(w, 1e-5f);
    w_key(w, "f64", RN_GGUF_F64);
    w_f64(w, 1.0 / 3);
    w_key(w, "inf", RN_GGUF_F32);
    w_f32(w, INFINITY);
    w_key(w, "bool", RN_GGUF_BOOL);
    w_u8(w, 1);
    w_key_string(w, "string", "a \xc3\xa4 text");
    w_key_string(w, "sch\xc3\xbcssel", "");
    write_arrays(w);
    w_tensor(w, "one", 1, (uint64_t[]){3}, RN_I8, 128);
    w_tensor(w, "four", 4, (uint64_t[]){32, 1, 2, 1}, RN_Q4_0, 64);
    w_tensor(w, "two", 2, (uint64_t[]){4, 3}, RN_F32, 0);
    w_align(w, 64);
    for (int i = 0; i < 12; i++)
        w_f32(w, (float)i);
    w_align(w, 64);
    w_zeros(w, 36);
    w_align(w, 64);
    w_raw(w, "\x05\x06\x07", 3);
}

static struct rn_gguf *parse_ok(struct rn_heap *heap, const struct writer *w)
{
    struct rn_gguf *gguf = NULL;
    runnel_error error = {0};
    runnel_status status = rn_gguf_parse(heap, w->bytes, w->n, "test.gguf", &gguf, &error);

    if (status != RUNNEL_OK)
        fail_msg("%s", error.message);
    return gguf;
}

static void expect_u64(const struct rn_gguf *g, const char *key, uint64_t wanted)
{
    uint64_t value = wanted + 1;

    assert_int_equal(rn_gguf_get_u64(g, key, true, 0, UINT64_MAX, &value, NULL), RUNNEL_OK);
    assert_true(value == wanted);
}

static void expect_item(const struct rn_gguf *g, const char *key, uint64_t index, int64_t wanted)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(g, key);

    assert_non_null(entry);
    assert_true(rn_gguf_item_i64(entry, index) == wanted);
}

static void expect_text(struct rn_view got, const char *wanted)
{
    assert_int_equal(got.n, strlen(wanted));
    assert_memory_equal(got.bytes, wanted, got.n);
}

static void check_scalars(const struct rn_gguf *g)
{
    double f = 0;
    bool truth = false;
    struct rn_view text;

    expect_u64(g, "u8", 200);
    expect_u64(g, "u16", 60000);
    expect_u64(g, "u32", 4000000000u);
    expect_u64(g, "u64", UINT64_MAX - 1);
    expect_item(g, "i8", 0, -3);
    expect_item(g, "i16", 0, -30000);
    expect_item(g, "i32", 0, -2000000000);
    expect_item(g, "i64", 0, INT64_MIN);
    assert_int_equal(rn_gguf_get_f64(g, "f32", true, 0, 1, &f, NULL), RUNNEL_OK);
    assert_true(f == (double)1e-5f);
    assert_int_equal(rn_gguf_get_f64(g, "f64", true, 0, 1, &f, NULL), RUNNEL_OK);
    assert_true(f == 1.0 / 3);
    assert_int_equal(rn_gguf_get_bool(g, "bool", true, &truth, NULL), RUNNEL_OK);
    assert_true(truth);
    assert_int_equal(rn_gguf_get_string(g, "string", true, &text, NULL), RUNNEL_OK);
    expect_text(text, "a \xc3\xa4 text");
    assert_int_equal(rn_gguf_get_string(g, "sch\xc3\xbcssel", true, &text, NULL), RUNNEL_OK);
    expect_text(text, "");
}

static void check_arrays(const struct rn_gguf *g)
{
    const struct rn_gguf_entry *entry;
    const char *cursor;

    expect_item(g, "a.u8", 1, 128);
    expect_item(g, "a.u8", 2, 255);
    expect_item(g, "a.i16", 0, -32768);
    expect_item(g, "a.i16", 1, 7);
    expect_item(g, "a.bool", 0, 1);
    expect_item(g, "a.bool", 1, 0);
    assert_int_equal(rn_gguf_get_array(g, "a.f32", true, RN_GGUF_F32, &entry, NULL), RUNNEL_OK);
    assert_int_equal(entry->count, 2);
    assert_true(rn_gguf_item_f64(entry, 0) == 0.5 && rn_gguf_item_f64(entry, 1) == (double)-3e38f);
    assert_int_equal(rn_gguf_get_array(g, "a.string", true, RN_GGUF_STRING, &entry, NULL), RUNNEL_OK);
    assert_int_equal(entry->count, 3);
    cursor = entry->data;
    expect_text(rn_gguf_item_string(&cursor), "");
    expect_text(rn_gguf_item_string(&cursor), "two");
    expect_text(rn_gguf_item_string(&cursor), "\xff\x01 any bytes");
    assert_ptr_equal(cursor, entry->data + entry->data_bytes);
    assert_int_equal(rn_gguf_get_array(g, "a.empty", true, RN_GGUF_STRING, &entry, NULL), RUNNEL_OK);
    assert_int_equal(entry->count, 0);
    assert_int_equal(entry->data_bytes, 0);
}

static void check_tensors(const struct rn_gguf *g, const struct writer *w)
{
    const struct rn_tensor *one = rn_gguf_find_tensor(g, "one"), *two = rn_gguf_find_tensor(g, "two");
    const struct rn_tensor *four = rn_gguf_tensor(g, 1);

    assert_int_equal(rn_gguf_n_tensors(g), 3);
    assert_ptr_equal(rn_gguf_tensor(g, 0), one);
    assert_ptr_equal(rn_gguf_tensor(g, 2), two);
    expect_text(four->name, "four");
    assert_int_equal(one->bytes, 3);
    assert_memory_equal(one->data, "\x05\x06\x07", 3);
    assert_int_equal(one->offset, w->n - 3);
    assert_int_equal(two->n_dims, 2);
    assert_int_equal(two->dims[0], 4);
    assert_int_equal(two->dims[1], 3);
    assert_int_equal(two->dims[2], 1);
    assert_int_equal(two->elements, 12);
    assert_int_equal(two->bytes, 48);
    assert_int_equal(two->offset % 64, 0);
    assert_ptr_equal(two->data, w->bytes + two->offset);
    assert_int_equal(four->type, RN_Q4_0);
    assert_int_equal(four->elements, 64);
    assert_int_equal(four->bytes, 36);
    assert_null(rn_gguf_find_tensor(g, "thre"));
}

static void test_round_trip(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct writer w = {0};
        struct refusing none = {0};
        struct rn_heap heap = refusing_heap(&none);
        struct rn_gguf *g;

        write_all(&w, version);
        g = parse_ok(&heap, &w);
        assert_string_equal(rn_gguf_path(g), "test.gguf");
        assert_int_equal(rn_gguf_version(g), version);
        assert_int_equal(rn_gguf_alignment(g), 64);
        assert_int_equal(rn_gguf_parts(g), 1);
        assert_int_equal(rn_gguf_file_bytes(g), w.n);
        assert_int_equal(rn_gguf_n_entries(g), ENTRIES);
        for (uint64_t i = 0; i < ENTRIES; i++) {
            char key[32] = "";

            memcpy(key, rn_gguf_entry(g, i)->key.bytes, rn_gguf_entry(g, i)->key.n);
            assert_ptr_equal(rn_gguf_find(g, key), rn_gguf_entry(g, i));
        }
        check_scalars(g);
        check_arrays(g);
        check_tensors(g, &w);
        rn_gguf_free(g);
        assert_int_equal(rn_heap_blocks(&heap), 0);
        w_free(&w);
    }
}

/* The call failed with FORMAT and a sentence that names the key; `value` was left alone. */
#define REFUSED(call, key)                                   \
    do {                                                     \
        runnel_error error = {0};                            \
        assert_int_equal(call, RUNNEL_FORMAT);               \
        assert_int_equal(error.status, RUNNEL_FORMAT);       \
        assert_non_null(strstr(error.message, key));         \
        assert_non_null(strstr(error.message, "test.gguf")); \
    } while (0)

static void test_getters_refuse(void **state)
{
    struct writer w = {0};
    struct rn_heap heap;
    struct rn_gguf *g;
    uint64_t u = 77;
    double f = 77;
    bool b = true;
    struct rn_view v = {"x", 1};
    const struct rn_gguf_entry *entry;

    (void)state;
    rn_heap_init(&heap, NULL);
    write_all(&w, 3);
    g = parse_ok(&heap, &w);
    REFUSED(rn_gguf_get_u64(g, "absent", true, 0, 9, &u, &error), "absent");
    REFUSED(rn_gguf_get_u64(g, "i8", true, 0, UINT64_MAX, &u, &error), "i8");
    REFUSED(rn_gguf_get_u64(g, "u8", true, 0, 199, &u, &error), "u8");
    REFUSED(rn_gguf_get_u64(g, "u8", true, 201, 300, &u, &error), "u8");
    REFUSED(rn_gguf_get_u64(g, "u64", true, 0, UINT64_MAX - 2, &u, &error), "u64");
    REFUSED(rn_gguf_get_u64(g, "f32", true, 0, 9, &u, &error), "f32");
    REFUSED(rn_gguf_get_u64(g, "bool", true, 0, 9, &u, &error), "bool");
    REFUSED(rn_gguf_get_u64(g, "string", false, 0, 9, &u, &error), "string");
    REFUSED(rn_gguf_get_u64(g, "a.u8", false, 0, 9, &u, &error), "a.u8");
    REFUSED(rn_gguf_get_f64(g, "inf", true, -INFINITY, INFINITY, &f, &error), "inf");
    REFUSED(rn_gguf_get_f64(g, "f64", true, 0.5, 1, &f, &error), "f64");
    REFUSED(rn_gguf_get_f64(g, "u8", true, 0, 1000, &f, &error), "u8");
    REFUSED(rn_gguf_get_bool(g, "u8", true, &b, &error), "u8");
    REFUSED(rn_gguf_get_string(g, "a.string", true, &v, &error), "a.string");
    REFUSED(rn_gguf_get_array(g, "string", true, RN_GGUF_STRING, &entry, &error), "string");
    REFUSED(rn_gguf_get_array(g, "a.u8", true, RN_GGUF_F32, &entry, &error), "a.u8");
    REFUSED(rn_gguf_get_array(g, "a.bool", true, RN_GGUF_U32, &entry, &error), "a.bool");
    REFUSED(rn_gguf_get_array(g, "a.string", true, RN_GGUF_BOOL, &entry, &error), "a.string");
    REFUSED(rn_gguf_get_array(g, "absent", true, RN_GGUF_BOOL, &entry, &error), "absent");
    assert_int_equal(rn_gguf_get_u64(g, "absent", false, 0, 9, &u, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_get_f64(g, "absent", false, 0, 9, &f, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_get_bool(g, "absent", false, &b, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_get_string(g, "absent", false, &v, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_get_array(g, "absent", false, RN_GGUF_BOOL, &entry, NULL), RUNNEL_OK);
    assert_null(entry);
    assert_true(u == 77 && f == 77 && b && v.n == 1);
    rn_gguf_free(g);
    w_free(&w);
}

/* Parses a copy that is exactly n bytes long, so that a sanitizer sees the first byte beyond. */
static runnel_status parse_prefix(const struct writer *w, size_t n, runnel_error *error)
{
    struct refusing none = {0};
    struct rn_heap heap = refusing_heap(&none);
    struct rn_gguf *g = NULL;
    char *copy = malloc(n > 0 ? n : 1);
    runnel_status status;

    assert_non_null(copy);
    memcpy(copy, w->bytes, n);
    status = rn_gguf_parse(&heap, copy, n, "cut.gguf", &g, error);
    assert_int_equal(g != NULL, status == RUNNEL_OK);
    rn_gguf_free(g);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    free(copy);
    return status;
}

static void test_every_prefix(void **state)
{
    struct writer w = {0};

    (void)state;
    write_all(&w, 3);
    for (size_t n = 0; n < w.n; n++) {
        runnel_error error = {0};

        assert_int_equal(parse_prefix(&w, n, &error), RUNNEL_FORMAT);
        assert_non_null(strstr(error.message, "cut.gguf: "));
    }
    assert_int_equal(parse_prefix(&w, w.n, NULL), RUNNEL_OK);
    w_free(&w);
}

static void test_every_refusal(void **state)
{
    struct writer w = {0};

    (void)state;
    write_all(&w, 3);
    for (int for_good = 0; for_good < 2; for_good++) {
        uint64_t n = 1;

        for (;; n++) {
            struct refusing r = {.refuse_at = n, .for_good = for_good};
            struct rn_heap heap = refusing_heap(&r);
            struct rn_gguf *g = NULL;
            runnel_error error = {0};
            runnel_status status = rn_gguf_parse(&heap, w.bytes, w.n, "test.gguf", &g, &error);

            rn_gguf_free(g);
            assert_int_equal(rn_heap_blocks(&heap), 0);
            if (r.calls < n) { /* it never got that far */
                assert_int_equal(status, RUNNEL_OK);
                break;
            }
            assert_int_equal(status, RUNNEL_NO_MEMORY);
            assert_non_null(strstr(error.message, "test.gguf"));
        }
        assert_in_range(n, 7, 100);
    }
    w_free(&w);
}

static void write_many(struct writer *w, uint64_t n_entries, uint64_t n_tensors)
{
    char name[32];

    w_header(w, 3, n_tensors, n_entries);
    for (uint64_t i = 0; i < n_entries; i++) {
        snprintf(name, sizeof name, "%llx", (unsigned long long)i);
        w_key(w, name, RN_GGUF_U8);
        w_u8(w, (uint8_t)i);
    }
    for (uint64_t i = 0; i < n_tensors; i++) { /* offsets descend: the worst order for a naive sort */
        snprintf(name, sizeof name, "%llx", (unsigned long long)i);
        w_tensor(w, name, 1, (uint64_t[]){1}, RN_I8, 32 * (n_tensors - 1 - i));
    }
    w_align(w, 32);
    w_zeros(w, 32 * n_tensors);
}

/* Seconds of processor time, the best of three. */
static double seconds_to_parse(const struct writer *w)
{
    double best = INFINITY;

    for (int i = 0; i < 3; i++) {
        struct rn_heap heap;
        clock_t start = clock();
        double seconds;

        rn_heap_init(&heap, NULL);
        rn_gguf_free(parse_ok(&heap, w));
        seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* 200,000 records are a matter of milliseconds; a pairwise search would take a minute of processor time. The bound
 * lies far from both. (A ratio of two sizes is no measure: the larger one leaves the caches.) */
static void check_linear(uint64_t entries, uint64_t tensors)
{
    struct writer many = {0};

    write_many(&many, entries, tensors);
    assert_true(seconds_to_parse(&many) < 5);
    w_free(&many);
}

static void test_linear_time(void **state)
{
    (void)state;
    check_linear(200000, 0);
    check_linear(0, 200000);
}

/* Memory is bounded by the file: 14 bytes of a key become an entry and at most 4 slots. */
static void test_memory_bound(void **state)
{
    struct writer w = {0};
    struct rn_heap heap;
    struct rn_gguf *g;

    (void)state;
    rn_heap_init(&heap, NULL);
    write_many(&w, 50000, 50000);
    g = parse_ok(&heap, &w);
    assert_in_range(rn_heap_bytes(&heap), 50000 * sizeof(struct rn_tensor), 16 * w.n);
    rn_gguf_free(g);
    w_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_getters_refuse),
        cmocka_unit_test(test_every_prefix), cmocka_unit_test(test_every_refusal),
        cmocka_unit_test(test_linear_time),  cmocka_unit_test(test_memory_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
