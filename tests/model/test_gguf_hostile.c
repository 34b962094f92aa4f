/* Hostile GGUF files: one defect at a time in a file that is right without it. Each must be refused
 * with the right code and a sentence that names the file and the thing at fault, in both versions of
 * the format, from memory and from disk, and leave no memory behind. And odd files that are right.
 *
 * The defects come from what has been found in parsers of this format (CVE-2024-21802, -21825,
 * -21836, -23496, -23605, CVE-2025-53630, CVE-2026-27940, -33298, GHSA-3p75-pq92-q28f, and others). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/status.h"
#include "gguf_writer.h"
#include "model/quant/quant.h"
#include "tests/base/refusing.h"

#define AS_IT_IS UINT64_MAX /* a claimed length or count that is the true one */
#define MAX (UINT64_MAX - 1)
#define SIGN ((uint64_t)1 << 63)

/* A string that may claim another length than it has. */
struct text {
    const char *bytes;
    uint64_t n, claim;
};

struct shape {
    struct text name;
    uint32_t n_dims;
    uint64_t dims[5];
    uint32_t type;
    uint64_t offset;
};

/* A file: the keys general.alignment, `key`, "last", the tensors `first` and `second`. */
struct spec {
    const char *magic;
    uint32_t version;
    uint64_t n_entries, n_tensors;
    uint32_t alignment_type;
    uint64_t alignment;
    struct text key;
    uint32_t type;
    struct writer value;
    struct shape first, second;
    uint64_t data_bytes;
};

#define TEXT(s) ((struct text){s, sizeof(s) - 1, AS_IT_IS})
#define SPLIT TEXT("split.count")

static char long_text[65536 + 1]; /* "kkk..." */

static struct text long_of(uint64_t n)
{
    memset(long_text, 'k', sizeof long_text);
    return (struct text){long_text, n, AS_IT_IS};
}

static struct spec good(void)
{
    return (struct spec){
        .magic = "GGUF",
        .version = 3,
        .n_entries = AS_IT_IS,
        .n_tensors = AS_IT_IS,
        .alignment_type = RN_GGUF_U32,
        .alignment = 32,
        .key = TEXT("the.key"),
        .type = RN_GGUF_U8,
        .first = {TEXT("first"), 2, {8, 2, 1, 1, 1}, RN_F32, 0},      /* 64 bytes */
        .second = {TEXT("second"), 2, {32, 2, 1, 1, 1}, RN_Q4_0, 64}, /* 36 bytes */
        .data_bytes = 64 + 36,
    };
}

static void write_text(struct writer *w, struct text text)
{
    w_u64(w, text.claim == AS_IT_IS ? text.n : text.claim);
    w_raw(w, text.bytes, text.n);
}

static void write_shape(struct writer *w, const struct shape *s)
{
    write_text(w, s->name);
    w_u32(w, s->n_dims);
    w_raw(w, s->dims, (s->n_dims < 5 ? s->n_dims : 5) * sizeof *s->dims);
    w_u32(w, s->type);
    w_u64(w, s->offset);
}

static void write_spec(struct writer *w, struct spec *s)
{
    bool usable = s->alignment_type == RN_GGUF_U32 && s->alignment > 0 && s->alignment <= 65536;
    size_t alignment = usable ? s->alignment : 32;

    w_raw(w, s->magic, 4);
    w_u32(w, s->version);
    w_u64(w, s->n_tensors == AS_IT_IS ? 2 : s->n_tensors);
    w_u64(w, s->n_entries == AS_IT_IS ? 3 : s->n_entries);
    w_key(w, "general.alignment", s->alignment_type);
    w_raw(w, &s->alignment, s->alignment_type == RN_GGUF_U64 ? 8 : s->alignment_type == RN_GGUF_BOOL ? 1 : 4);
    if (s->alignment_type == RN_GGUF_STRING)
        w_raw(w,
              "\0\0\0\0"
              "32",
              6); /* with the 4 bytes before: length 2 or 32 */
    if (s->alignment_type == RN_GGUF_ARRAY) {
        w_u64(w, 1);
        w_u32(w, 32);
    }
    write_text(w, s->key);
    w_u32(w, s->type);
    if (s->value.n == 0)
        w_u8(w, 1);
    w_raw(w, s->value.bytes, s->value.n);
    w_key_u32(w, "last", 1);
    write_shape(w, &s->first);
    write_shape(w, &s->second);
    w_align(w, alignment);
    w_zeros(w, s->data_bytes);
    w_free(&s->value);
}

/* The value becomes an array of `count` items of type `item`, with `bytes` zero bytes behind it. */
static void array(struct spec *s, uint32_t item, uint64_t count, size_t bytes)
{
    s->type = RN_GGUF_ARRAY;
    w_u32(&s->value, item);
    w_u64(&s->value, count);
    w_zeros(&s->value, bytes);
}

static void string_value(struct spec *s, uint64_t claim)
{
    s->type = RN_GGUF_STRING;
    w_u64(&s->value, claim);
    w_raw(&s->value, "text", 4);
}

static void dims(struct shape *t, uint32_t n, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    t->n_dims = n;
    memcpy(t->dims, (uint64_t[]){a, b, c, d}, 4 * sizeof a);
}

static void typed(struct shape *t, uint32_t type, uint64_t row)
{
    t->type = type;
    dims(t, 1, row, 1, 1, 1);
}

/* title, status, what the sentence must name, what is done to the file `s` */
#define DEFECTS(X)                                                                                                 \
    X(magic_wrong, FORMAT, "not a GGUF", s->magic = "GGUf")                                                        \
    X(magic_older, FORMAT, "not a GGUF", s->magic = "ggml")                                                        \
    X(version_0, UNSUPPORTED, "version 0", s->version = 0)                                                         \
    X(version_1, UNSUPPORTED, "version 1", s->version = 1)                                                         \
    X(version_4, UNSUPPORTED, "version 4", s->version = 4)                                                         \
    X(version_max, UNSUPPORTED, "version 4294967295", s->version = UINT32_MAX)                                     \
    X(big_endian, UNSUPPORTED, "big-endian", s->version = 0x03000000)                                              \
    X(tensors_max, FORMAT, "tensors", s->n_tensors = MAX)                                                          \
    X(tensors_sign, FORMAT, "tensors", s->n_tensors = SIGN)                                                        \
    X(tensors_wrap, FORMAT, "tensors", s->n_tensors = MAX / sizeof(struct rn_tensor) + 2)                          \
    X(tensors_2_32, FORMAT, "tensors", s->n_tensors = (uint64_t)1 << 32)                                           \
    X(tensors_no_room, FORMAT, "1000 tensors", s->n_tensors = 1000)                                                \
    X(tensors_one_more, FORMAT, "tensor number 2", s->n_tensors = 3)                                               \
    X(entries_max, FORMAT, "keys", s->n_entries = MAX)                                                             \
    X(entries_sign, FORMAT, "keys", s->n_entries = SIGN)                                                           \
    X(entries_wrap, FORMAT, "keys", s->n_entries = MAX / sizeof(struct rn_gguf_entry) + 2)                         \
    X(entries_2_32, FORMAT, "keys", s->n_entries = (uint64_t)1 << 32)                                              \
    X(entries_no_room, FORMAT, "1000 keys", s->n_entries = 1000)                                                   \
    X(entries_one_more, FORMAT, "tensor number 0", s->n_entries = 4) /* the first tensor passes for a key */       \
    X(entries_one_less, FORMAT, "tensor last", s->n_entries = 2)                                                   \
    X(key_length_max, FORMAT, "key number 1", s->key.claim = MAX)                                                  \
    X(key_length_sign, FORMAT, "key number 1", s->key.claim = SIGN)                                                \
    X(key_length_over, FORMAT, "key number 1", s->key.claim = 65536)                                               \
    X(key_too_long, FORMAT, "key number 1", s->key = long_of(65536))                                               \
    X(key_length_past_end, FORMAT, "key number 1", s->key.claim = 60000)                                           \
    X(key_empty, FORMAT, "key number 1", s->key = TEXT(""))                                                        \
    X(key_nul, FORMAT, "key number 1", s->key = TEXT("the\0key"))                                                  \
    X(key_escape, FORMAT, "key number 1", s->key = TEXT("\x1b[2Jkey"))                                             \
    X(key_delete, FORMAT, "key number 1", s->key = TEXT("key\x7f"))                                                \
    X(key_byte_ff, FORMAT, "key number 1", s->key = TEXT("key\xff"))                                               \
    X(key_overlong, FORMAT, "key number 1", s->key = TEXT("\xc0\x80"))                                             \
    X(key_overlong_3, FORMAT, "key number 1", s->key = TEXT("\xe0\x9f\xbf"))                                       \
    X(key_overlong_4, FORMAT, "key number 1", s->key = TEXT("\xf0\x8f\xbf\xbf"))                                   \
    X(key_surrogate, FORMAT, "key number 1", s->key = TEXT("\xed\xa0\x80"))                                        \
    X(key_too_high, FORMAT, "key number 1", s->key = TEXT("\xf4\x90\x80\x80"))                                     \
    X(key_cut, FORMAT, "key number 1", s->key = TEXT("key\xe2\x82"))                                               \
    X(key_twice, FORMAT, "key last", s->key = TEXT("last"))                                                        \
    X(type_13, FORMAT, "key the.key", s->type = 13)                                                                \
    X(type_max, FORMAT, "key the.key", s->type = UINT32_MAX)                                                       \
    X(string_max, FORMAT, "key the.key", string_value(s, MAX + 1))                                                 \
    X(string_sign, FORMAT, "key the.key", string_value(s, SIGN))                                                   \
    X(string_2_gib, FORMAT, "key the.key", string_value(s, (uint64_t)1 << 31))                                     \
    X(string_past_end, FORMAT, "key the.key", string_value(s, 100000))                                             \
    X(bool_2, FORMAT, "key the.key", (s->type = RN_GGUF_BOOL, w_u8(&s->value, 2)))                                 \
    X(bools_255, FORMAT, "key the.key", (array(s, RN_GGUF_BOOL, 3, 2), w_u8(&s->value, 255)))                      \
    X(array_type_13, FORMAT, "key the.key", array(s, 13, 1, 8))                                                    \
    X(array_type_max, FORMAT, "key the.key", array(s, UINT32_MAX, 1, 8))                                           \
    X(array_nested, FORMAT, "array of arrays", array(s, RN_GGUF_ARRAY, 1, 20))                                     \
    X(array_nested_empty, FORMAT, "key the.key", array(s, RN_GGUF_ARRAY, 0, 0))                                    \
    X(array_count_max, FORMAT, "key the.key", array(s, RN_GGUF_U8, MAX + 1, 8))                                    \
    X(array_count_sign, FORMAT, "key the.key", array(s, RN_GGUF_I32, SIGN, 8))                                     \
    X(array_count_wrap_8, FORMAT, "key the.key", array(s, RN_GGUF_F64, (uint64_t)1 << 61, 8))                      \
    X(array_count_wrap_4, FORMAT, "key the.key", array(s, RN_GGUF_F32, ((uint64_t)1 << 62) + 1, 8))                \
    X(array_past_end, FORMAT, "key the.key", array(s, RN_GGUF_U8, 100000, 8))                                      \
    X(strings_count_max, FORMAT, "key the.key", array(s, RN_GGUF_STRING, MAX + 1, 8))                              \
    X(strings_count_wrap, FORMAT, "key the.key", array(s, RN_GGUF_STRING, ((uint64_t)1 << 61) + 1, 8))             \
    X(strings_length_max, FORMAT, "key the.key", (array(s, RN_GGUF_STRING, 1, 0), w_u64(&s->value, MAX + 1)))      \
    X(alignment_0, FORMAT, "general.alignment", s->alignment = 0)                                                  \
    X(alignment_3, FORMAT, "general.alignment", s->alignment = 3)                                                  \
    X(alignment_48, FORMAT, "general.alignment", s->alignment = 48)                                                \
    X(alignment_over, FORMAT, "general.alignment", s->alignment = 131072)                                          \
    X(alignment_2_31, FORMAT, "general.alignment", s->alignment = (uint64_t)1 << 31)                               \
    X(alignment_max, FORMAT, "general.alignment", s->alignment = UINT32_MAX)                                       \
    X(alignment_i32, FORMAT, "general.alignment", s->alignment_type = RN_GGUF_I32)                                 \
    X(alignment_u64, FORMAT, "general.alignment", s->alignment_type = RN_GGUF_U64)                                 \
    X(alignment_f32, FORMAT, "general.alignment", s->alignment_type = RN_GGUF_F32)                                 \
    X(alignment_bool, FORMAT, "general.alignment", (s->alignment_type = RN_GGUF_BOOL, s->alignment = 1))           \
    X(alignment_string, FORMAT, "general.alignment", (s->alignment_type = RN_GGUF_STRING, s->alignment = 2))       \
    X(alignment_array, FORMAT, "general.alignment", (s->alignment_type = RN_GGUF_ARRAY, s->alignment = 4))         \
    X(name_length_max, FORMAT, "tensor number 0", s->first.name.claim = MAX)                                       \
    X(name_length_over, FORMAT, "tensor number 1", s->second.name.claim = 256)                                     \
    X(name_too_long, FORMAT, "tensor number 1", s->second.name = long_of(256))                                     \
    X(name_length_past_end, FORMAT, "tensor number 1", (s->second.name.claim = 200, s->data_bytes = 0))            \
    X(name_empty, FORMAT, "tensor number 1", s->second.name = TEXT(""))                                            \
    X(name_nul, FORMAT, "tensor number 1", s->second.name = TEXT("first\0"))                                       \
    X(name_escape, FORMAT, "tensor number 1", s->second.name = TEXT("\x1b]0;x\x07"))                               \
    X(name_byte_80, FORMAT, "tensor number 1", s->second.name = TEXT("\x80"))                                      \
    X(name_twice, FORMAT, "tensor first", s->second.name = TEXT("first"))                                          \
    X(dims_0, FORMAT, "tensor first", s->first.n_dims = 0)                                                         \
    X(dims_5, FORMAT, "tensor first", s->first.n_dims = 5)                                                         \
    X(dims_max, FORMAT, "tensor first", s->first.n_dims = UINT32_MAX)                                              \
    X(zero_0, FORMAT, "tensor first", dims(&s->first, 1, 0, 1, 1, 1))                                              \
    X(zero_1_0, FORMAT, "tensor first", dims(&s->first, 2, 1, 0, 1, 1))                                            \
    X(zero_32_0, FORMAT, "tensor second", dims(&s->second, 2, 32, 0, 1, 1))                                        \
    X(zero_1_1_0, FORMAT, "tensor first", dims(&s->first, 3, 1, 1, 0, 1))                                          \
    X(zero_1_1_1_0, FORMAT, "tensor first", dims(&s->first, 4, 1, 1, 1, 0))                                        \
    X(zero_all, FORMAT, "tensor first", dims(&s->first, 4, 0, 0, 0, 0))                                            \
    X(dim_max, FORMAT, "tensor first", dims(&s->first, 1, UINT64_MAX, 1, 1, 1))                                    \
    X(dim_sign, FORMAT, "tensor first", dims(&s->first, 1, SIGN, 1, 1, 1))                                         \
    X(dim_f32_wrap, FORMAT, "tensor first", typed(&s->first, RN_F32, ((uint64_t)1 << 62) - 1))                     \
    X(dim_f32_wrap_exact, FORMAT, "tensor first", typed(&s->first, RN_F32, (uint64_t)1 << 62))                     \
    X(dim_f64_wrap, FORMAT, "tensor first", typed(&s->first, RN_F64, ((uint64_t)1 << 61) + 8))                     \
    X(dim_i8_wrap, FORMAT, "tensor first", typed(&s->first, RN_I8, 0x7fffffffffffffc0u))                           \
    X(dim_q4_0_wrap, FORMAT, "tensor first", typed(&s->first, RN_Q4_0, (UINT64_MAX / 576 + 1) * 32))               \
    X(dim_q8_0_wrap, FORMAT, "tensor first", typed(&s->first, RN_Q8_0, (UINT64_MAX / 1088 + 1) * 32))              \
    X(dim_q4_k_wrap, FORMAT, "tensor first", typed(&s->first, RN_Q4_K, (UINT64_MAX / 36864 + 1) * 256))            \
    X(dim_q8_k_wrap, FORMAT, "tensor first", typed(&s->first, RN_Q8_K, SIGN - 256))                                \
    X(product_2_64, FORMAT, "tensor first", dims(&s->first, 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1))        \
    X(product_wrap_small, FORMAT, "tensor first", dims(&s->first, 3, (uint64_t)1 << 32, (uint64_t)1 << 31, 2, 1))  \
    X(product_wrap_rows, FORMAT, "tensor first", dims(&s->first, 2, 1 << 20, ((uint64_t)1 << 42) + 1, 1, 1))       \
    X(product_wrap_4, FORMAT, "tensor first", dims(&s->first, 4, 1 << 16, 1 << 16, 1 << 16, 1 << 16))              \
    X(rows_2_42, FORMAT, "tensor first", dims(&s->first, 2, 1, ((uint64_t)1 << 42) + 1, 1, 1))                     \
    X(type_removed_4, UNSUPPORTED, "tensor first", s->first.type = 4)                                              \
    X(type_removed_5, UNSUPPORTED, "tensor first", s->first.type = 5)                                              \
    X(type_removed_31, UNSUPPORTED, "tensor first", s->first.type = 31)                                            \
    X(type_removed_36, UNSUPPORTED, "tensor first", s->first.type = 36)                                            \
    X(type_removed_38, UNSUPPORTED, "tensor first", s->first.type = 38)                                            \
    X(tensor_type_99, UNSUPPORTED, "tensor first", s->first.type = 99)                                             \
    X(tensor_type_max, UNSUPPORTED, "tensor first", s->first.type = UINT32_MAX)                                    \
    X(row_33_of_q4_0, FORMAT, "tensor second", s->second.dims[0] = 33)                                             \
    X(row_16_of_q4_0, FORMAT, "tensor second", s->second.dims[0] = 16)                                             \
    X(row_128_of_q4_k, FORMAT, "tensor second", (s->second.type = RN_Q4_K, s->second.dims[0] = 128))               \
    X(offset_unaligned, FORMAT, "multiple of the alignment", (s->second.offset = 68, s->data_bytes += 32))         \
    X(offset_and_size_wrap, FORMAT, "tensor second", typed(&s->second, RN_F32, ((uint64_t)1 << 62) - 8))           \
    X(offset_max, FORMAT, "tensor second", s->second.offset = UINT64_MAX - 31)                                     \
    X(offset_sign, FORMAT, "tensor second", s->second.offset = SIGN)                                               \
    X(offset_past_end, FORMAT, "tensor second", s->second.offset = 96)                                             \
    X(one_row_too_long, FORMAT, "tensor second", s->second.dims[1] = 3)                                            \
    X(data_one_short, FORMAT, "tensor second", s->data_bytes -= 1)                                                 \
    X(data_missing, FORMAT, "tensor first", s->data_bytes = 0)                                                     \
    X(same_place, FORMAT, "overlaps", s->second.offset = 0)                                                        \
    X(overlap_by_half, FORMAT, "tensor second", s->second.offset = 32)                                             \
    X(overlap_unsorted, FORMAT, "tensor first", (s->second.offset = 0, s->first.offset = 32, s->data_bytes = 200)) \
    X(split_negative, FORMAT, "split.count", (s->key = SPLIT, s->type = RN_GGUF_I8, w_u8(&s->value, 255)))         \
    X(split_string, FORMAT, "split.count", (s->key = SPLIT, string_value(s, 4)))                                   \
    X(split_over, FORMAT, "split.count", (s->key = SPLIT, s->type = RN_GGUF_U32, w_u32(&s->value, 100000)))

enum defect {
#define DEFECT_ENUM(title, status, names, change) DEFECT_##title,
    DEFECTS(DEFECT_ENUM) DEFECT_COUNT
};

static const struct expectation {
    const char *title;
    runnel_status status;
    const char *names;
} expectations[] = {
#define DEFECT_EXPECTATION(title, status, names, change) {#title, RUNNEL_##status, names},
    DEFECTS(DEFECT_EXPECTATION)};

static void apply(enum defect defect, struct spec *s)
{
    switch (defect) {
#define DEFECT_CASE(title, status, names, change) \
    case DEFECT_##title:                          \
        change;                                   \
        break;
        DEFECTS(DEFECT_CASE)
    case DEFECT_COUNT:
        break;
    }
}

/* In a block of exactly its size, so that a sanitizer sees the first byte beyond. */
static runnel_status parse(const struct writer *w, runnel_error *error)
{
    struct refusing none = {0};
    struct rn_heap heap = refusing_heap(&none);
    struct rn_gguf *g = NULL;
    char *copy = malloc(w->n);
    runnel_status status;

    assert_non_null(copy);
    memcpy(copy, w->bytes, w->n);
    status = rn_gguf_parse(&heap, copy, w->n, "hostile.gguf", &g, error);
    assert_int_equal(g != NULL, status == RUNNEL_OK);
    rn_gguf_free(g);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    free(copy);
    return status;
}

static runnel_status open_saved(const struct writer *w, runnel_error *error)
{
    char directory[] = "/tmp/runnel-test-XXXXXX", path[64];
    struct refusing none = {0};
    struct rn_heap heap = refusing_heap(&none);
    struct rn_gguf *g = NULL;
    runnel_status status;

    assert_non_null(mkdtemp(directory));
    w_save(w, directory, "hostile.gguf");
    snprintf(path, sizeof path, "%s/hostile.gguf", directory);
    status = rn_gguf_open(&heap, path, &g, error);
    assert_int_equal(g != NULL, status == RUNNEL_OK);
    rn_gguf_free(g);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    unlink(path);
    rmdir(directory);
    return status;
}

typedef runnel_status reader_fn(const struct writer *w, runnel_error *error);

static void check_refused(enum defect defect, uint32_t version, reader_fn *reader)
{
    const struct expectation *wanted = &expectations[defect];
    struct spec s = good();
    struct writer w = {0};
    runnel_error error = {0};
    runnel_status status;

    s.version = version;
    apply(defect, &s);
    write_spec(&w, &s);
    status = reader(&w, &error);
    if (status != wanted->status || error.status != status)
        fail_msg("%s: status %d, not %d: %s", wanted->title, status, wanted->status, error.message);
    if (strstr(error.message, "hostile.gguf: ") == NULL || strstr(error.message, wanted->names) == NULL)
        fail_msg("%s: the sentence does not name %s: %s", wanted->title, wanted->names, error.message);
    for (const char *c = error.message; *c != '\0'; c++)
        assert_in_range((unsigned char)*c, 0x20, 0x7e);
    w_free(&w);
}

static void test_defects_in_memory(void **state)
{
    (void)state;
    assert_true(DEFECT_COUNT > 100);
    for (int d = 0; d < DEFECT_COUNT; d++)
        for (uint32_t version = 2; version <= 3; version++)
            check_refused((enum defect)d, version, parse);
}

static void test_defects_on_disk(void **state)
{
    (void)state;
    for (int d = 0; d < DEFECT_COUNT; d++)
        check_refused((enum defect)d, 3, open_saved);
}

/* Odd, but right: must be read. */
#define ODDITIES(X)                                                                                            \
    X(nothing_odd, (void)s)                                                                                    \
    X(version_2, s->version = 2)                                                                               \
    X(alignment_1, (s->alignment = 1, s->second.offset = 64))                                                  \
    X(alignment_1_odd_offset, (s->alignment = 1, s->second.offset = 65, s->data_bytes = 101))                  \
    X(alignment_65536, (s->alignment = 65536, s->second.offset = 65536, s->data_bytes = 65536 + 36))           \
    X(gap, (s->second.offset = 96, s->data_bytes = 96 + 36))                                                   \
    X(descending, (s->second.offset = 0, s->first.offset = 64, s->data_bytes = 64 + 64))                       \
    X(bytes_behind, s->data_bytes += 1000)                                                                     \
    X(no_tensors, (s->n_tensors = 0))                                                                          \
    X(empty_array, array(s, RN_GGUF_U64, 0, 0))                                                                \
    X(empty_strings, array(s, RN_GGUF_STRING, 3, 24))                                                          \
    X(string_of_nothing, (s->type = RN_GGUF_STRING, w_u64(&s->value, 0)))                                      \
    X(key_of_4_bytes, s->key = TEXT("\xf0\x9f\xa6\x89"))                                                       \
    X(key_at_the_edges, s->key = TEXT("\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf")) \
    X(longest_key, s->key = long_of(65535))                                                                    \
    X(longest_name, s->second.name = long_of(255))                                                             \
    X(split_of_one, s->key = TEXT("split.count"))                                                              \
    X(largest_dims, dims(&s->first, 4, 1, 1, 1, 16))

static void check_accepted(const char *title, struct spec *s)
{
    struct writer w = {0};
    runnel_error error = {0};

    write_spec(&w, s);
    if (parse(&w, &error) != RUNNEL_OK || open_saved(&w, &error) != RUNNEL_OK)
        fail_msg("%s: %s", title, error.message);
    w_free(&w);
}

static void test_oddities(void **state)
{
    (void)state;
#define ODDITY(title, change)      \
    {                              \
        struct spec file = good(); \
        struct spec *s = &file;    \
                                   \
        change;                    \
        check_accepted(#title, s); \
    }
    ODDITIES(ODDITY)
}

/* In memory a split file is refused, not half read. */
static void test_split_in_memory(void **state)
{
    struct spec s = good();
    struct writer w = {0};
    runnel_error error = {0};

    (void)state;
    s.key = SPLIT;
    w_u8(&s.value, 3);
    write_spec(&w, &s);
    assert_int_equal(parse(&w, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "split.count"));
    w_free(&w);
}

/* Depth is not recursion: 100,000 nested arrays are refused at the first. */
static void test_deep_nesting(void **state)
{
    struct spec s = good();
    struct writer w = {0};
    runnel_error error = {0};

    (void)state;
    s.type = RN_GGUF_ARRAY;
    for (int i = 0; i < 100000; i++) {
        w_u32(&s.value, RN_GGUF_ARRAY);
        w_u64(&s.value, 1);
    }
    write_spec(&w, &s);
    assert_int_equal(parse(&w, &error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "the.key"));
    w_free(&w);
}

/* Counts over the limit are refused although the file has the bytes. */
static void test_limits(void **state)
{
    struct writer w = {0};
    runnel_error error = {0};

    (void)state;
    w_header(&w, 3, (1 << 20) + 1, 0);
    w_zeros(&w, 40u << 20);
    assert_int_equal(parse(&w, &error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "1048577 tensors"));
    rn_error_clear(&error);
    memcpy(w.bytes + 8, (uint64_t[]){0, (1 << 20) + 1}, 16);
    assert_int_equal(parse(&w, &error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "1048577 keys"));
    w_free(&w);
}

/* `n` tensors of 32 bytes in a random order of offsets; the one at place `long_one` has 33. */
static void write_shuffled(struct writer *w, uint32_t n, uint32_t long_one, uint64_t *rng)
{
    uint32_t place[256] = {0};
    char name[16];

    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = (uint32_t)(rn_splitmix64(rng) % (i + 1));

        place[i] = place[other];
        place[other] = i;
    }
    w_header(w, 3, n, 0);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "t%u", place[i]);
        w_tensor(w, name, 1, (uint64_t[]){place[i] == long_one ? 33 : 32}, RN_I8, 32 * place[i]);
    }
    w_align(w, 32);
    w_zeros(w, 32 * n + 1);
}

/* One byte of overlap is found in any order of the offsets, and none is made up. */
static void test_overlap_in_any_order(void **state)
{
    uint64_t rng = 7;

    (void)state;
    for (uint32_t n = 2; n <= 256; n++) {
        struct writer w = {0};
        runnel_error error = {0};
        uint32_t long_one = (uint32_t)(rn_splitmix64(&rng) % n); /* the last one has nothing to overlap */
        char names[64];

        write_shuffled(&w, n, long_one, &rng);
        snprintf(names, sizeof names, "tensor t%u: its data overlaps that of tensor t%u", long_one + 1, long_one);
        assert_int_equal(parse(&w, &error), long_one == n - 1 ? RUNNEL_OK : RUNNEL_FORMAT);
        assert_true(long_one == n - 1 || strstr(error.message, names) != NULL);
        w_free(&w);
    }
}

/* One byte of a right file replaced: refused or read, but always in bounds, and what is read
 * can be walked. Deterministic. */
static void test_random_damage(void **state)
{
    struct spec s = good();
    struct writer w = {0};
    uint32_t refused = 0;

    (void)state;
    array(&s, RN_GGUF_STRING, 2, 16);
    write_spec(&w, &s);
    for (size_t at = 0; at < w.n - 100; at++) {
        static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};

        for (size_t v = 0; v < sizeof values; v++) {
            char kept = w.bytes[at];

            w.bytes[at] = (char)values[v];
            refused += parse(&w, NULL) != RUNNEL_OK;
            w.bytes[at] = kept;
        }
    }
    assert_in_range(refused, 300, 5 * w.n);
    w_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defects_in_memory),
        cmocka_unit_test(test_defects_on_disk),
        cmocka_unit_test(test_oddities),
        cmocka_unit_test(test_split_in_memory),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_overlap_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
