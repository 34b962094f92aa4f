/* The public functions that look into a file, over one of our own making and over a real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "gguf_writer.h"
#include "runnel_files.h"
#include "tests/support/shared.h"
#include "tests/base/comma_locale.h"

#define STRINGS 1000

static char directory[64], path[96];

static void write_numbers(struct writer *w)
{
    w_key(w, "f32", RN_GGUF_F32);
    w_f32(w, 0.1f);
    w_key(w, "f64", RN_GGUF_F64);
    w_f64(w, 0.1);
    w_key(w, "base", RN_GGUF_F32);
    w_f32(w, 500000.0f);
    w_key_array(w, "floats", RN_GGUF_F32, 4);
    w_f32(w, INFINITY);
    w_f32(w, -1.5e-30f);
    w_f32(w, 3.4028235e38f);
    w_f32(w, 16777217.0f);
    w_key(w, "u64", RN_GGUF_U64);
    w_u64(w, UINT64_MAX);
    w_key(w, "i8", RN_GGUF_I8);
    w_u8(w, 0x80);
    w_key_array(w, "bools", RN_GGUF_BOOL, 2);
    w_raw(w, "\x01\x00", 2);
}

static int setup(void **state)
{
    struct writer w = {0};
    char text[32];

    (void)state;
    strcpy(directory, "/tmp/runnel-test-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/file.gguf", directory);
    w_header(&w, 3, 2, 9);
    w_key_string(&w, "general.name", "a \xc3\xa4 name");
    w_key_array(&w, "strings", RN_GGUF_STRING, STRINGS);
    for (int i = 0; i < STRINGS; i++) {
        snprintf(text, sizeof text, "%d", i * i);
        w_string(&w, i == 500 ? "" : text);
    }
    write_numbers(&w);
    w_tensor(&w, "a", 2, (uint64_t[]){256, 3}, 12, 0);
    w_tensor(&w, "b", 1, (uint64_t[]){5}, 0, 448);
    w_align(&w, 32);
    w_zeros(&w, 448 + 20);
    w_save(&w, directory, "file.gguf");
    w_free(&w);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static runnel_file *open_file(const char *at)
{
    runnel_file *file = NULL;
    runnel_error error;

    if (runnel_file_open(at, &file, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return file;
}

static void expect_metadata(const runnel_file *file, uint64_t index, const char *key, const char *type, uint64_t count)
{
    runnel_metadata got = {.struct_size = sizeof got};

    assert_int_equal(runnel_file_metadata(file, index, &got), RUNNEL_OK);
    assert_int_equal(got.key_bytes, strlen(key));
    assert_memory_equal(got.key, key, got.key_bytes);
    assert_string_equal(got.type, type);
    assert_int_equal(got.count, count);
}

static void expect_text(const runnel_file *file, uint64_t index, uint64_t element, const char *wanted)
{
    char text[64];
    size_t n = 0, measured = 0;

    memset(text, '#', sizeof text);
    assert_int_equal(runnel_file_metadata_text(file, index, element, NULL, 0, &measured), RUNNEL_OK);
    assert_int_equal(measured, strlen(wanted));
    assert_int_equal(runnel_file_metadata_text(file, index, element, text, sizeof text, &n), RUNNEL_OK);
    assert_int_equal(n, measured);
    assert_memory_equal(text, wanted, n);
    assert_int_equal(text[n], '#');
}

static void test_info(void **state)
{
    runnel_file *file = open_file(path);
    runnel_file_info info = {.struct_size = sizeof info};
    runnel_file_info partial;

    (void)state;
    runnel_file_get_info(file, &info);
    assert_int_equal(info.version, 3);
    assert_int_equal(info.parts, 1);
    assert_int_equal(info.alignment, 32);
    assert_int_equal(info.n_metadata, 9);
    assert_int_equal(info.n_tensors, 2);
    assert_int_equal(info.parameters, 256 * 3 + 5);
    assert_int_equal(info.weight_bytes, 3 * 144 + 20);
    memset(&partial, 0xee, sizeof partial);
    partial.struct_size = offsetof(runnel_file_info, parameters); /* of an older caller */
    runnel_file_get_info(file, &partial);
    assert_int_equal(partial.file_bytes, info.file_bytes);
    assert_true(partial.parameters == 0xeeeeeeeeeeeeeeeeu);
    runnel_file_close(file);
}

static void check_texts(const runnel_file *file)
{
    char text[32];

    expect_text(file, 0, 0, "a \xc3\xa4 name");
    for (int i = STRINGS - 1; i >= 0; i--) {
        snprintf(text, sizeof text, "%d", i * i);
        expect_text(file, 1, (uint64_t)i, i == 500 ? "" : text);
    }
    expect_text(file, 2, 0, "0.1");
    expect_text(file, 3, 0, "0.1");
    expect_text(file, 4, 0, "500000");
    expect_text(file, 5, 0, "inf");
    expect_text(file, 5, 1, "-1.5e-30");
    expect_text(file, 5, 2, "3.4028235e+38");
    expect_text(file, 5, 3, "16777216");
    expect_text(file, 6, 0, "18446744073709551615");
    expect_text(file, 7, 0, "-128");
    expect_text(file, 8, 0, "true");
    expect_text(file, 8, 1, "false");
}

static void test_metadata(void **state)
{
    runnel_file *file = open_file(path);

    (void)state;
    expect_metadata(file, 0, "general.name", "string", 1);
    expect_metadata(file, 1, "strings", "array of string", STRINGS);
    expect_metadata(file, 2, "f32", "f32", 1);
    expect_metadata(file, 3, "f64", "f64", 1);
    expect_metadata(file, 5, "floats", "array of f32", 4);
    expect_metadata(file, 6, "u64", "u64", 1);
    expect_metadata(file, 7, "i8", "i8", 1);
    expect_metadata(file, 8, "bools", "array of bool", 2);
    check_texts(file);
    assert_true(comma_begin());
    check_texts(file); /* the decimal point stays a point */
    comma_end();
    runnel_file_close(file);
}

static void test_short_buffer(void **state)
{
    runnel_file *file = open_file(path);
    char text[4] = "####";
    size_t n;

    (void)state;
    assert_int_equal(runnel_file_metadata_text(file, 0, 0, text, 3, &n), RUNNEL_OK);
    assert_int_equal(n, 9);
    assert_memory_equal(text, "a \xc3#", 4);
    runnel_file_close(file);
}

static void test_tensors(void **state)
{
    runnel_file *file = open_file(path);
    runnel_tensor a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};

    (void)state;
    assert_int_equal(runnel_file_tensor(file, 0, &a), RUNNEL_OK);
    assert_int_equal(runnel_file_tensor(file, 1, &b), RUNNEL_OK);
    assert_int_equal(a.name_bytes, 1);
    assert_memory_equal(a.name, "a", 1);
    assert_string_equal(a.type, "Q4_K");
    assert_int_equal(a.n_dims, 2);
    assert_int_equal(a.dims[0], 256);
    assert_int_equal(a.dims[1], 3);
    assert_int_equal(a.dims[3], 1);
    assert_int_equal(a.bytes, 3 * 144);
    assert_int_equal(a.part, 0);
    assert_string_equal(b.type, "F32");
    assert_int_equal(b.offset - a.offset, 448);
    runnel_file_close(file);
}

static void test_refusals(void **state)
{
    runnel_file *file = open_file(path), *none = NULL;
    runnel_metadata metadata = {.struct_size = sizeof metadata};
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    runnel_error error;
    size_t n;

    (void)state;
    assert_int_equal(runnel_file_metadata(file, 9, &metadata), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_file_metadata_text(file, 9, 0, NULL, 0, &n), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_file_metadata_text(file, 1, STRINGS, NULL, 0, &n), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_file_metadata_text(file, 0, 0, NULL, 1, &n), RUNNEL_INVALID);
    assert_int_equal(runnel_file_metadata_text(file, 0, 0, NULL, 0, NULL), RUNNEL_INVALID);
    assert_int_equal(runnel_file_tensor(file, 2, &tensor), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_file_tensor(NULL, 0, &tensor), RUNNEL_INVALID);
    tensor.struct_size = metadata.struct_size = 0;
    assert_int_equal(runnel_file_tensor(file, 0, &tensor), RUNNEL_INVALID);
    assert_int_equal(runnel_file_metadata(file, 0, &metadata), RUNNEL_INVALID);
    runnel_file_close(file);
    runnel_file_close(NULL);
    memset(&error, 0xee, sizeof error); /* what is in it before does not matter */
    assert_int_equal(runnel_file_open("/nonexistent/x.gguf", &none, &error), RUNNEL_IO);
    assert_int_equal(error.status, RUNNEL_IO);
    assert_non_null(strstr(error.message, "x.gguf"));
    assert_int_equal(runnel_file_open(NULL, &none, NULL), RUNNEL_INVALID);
    assert_int_equal(runnel_file_open(path, NULL, NULL), RUNNEL_INVALID);
    assert_null(none);
}

/* The same text whatever the host's locale. */
static void check_plan(const runnel_file *file)
{
    static char plain[1 << 16], other[1 << 16];
    size_t n, n_other;

    assert_int_equal(runnel_file_plan(file, plain, sizeof plain, &n, NULL), RUNNEL_OK);
    assert_true(comma_begin());
    assert_int_equal(runnel_file_plan(file, other, sizeof other, &n_other, NULL), RUNNEL_OK);
    comma_end();
    assert_in_range(n, 1, sizeof plain - 1);
    assert_non_null(strstr(plain, ", eps 1e-05"));
    assert_non_null(strstr(plain, ", scale 0.")); /* of attention: a root of the head's size */
    assert_int_equal(n_other, n);
    assert_memory_equal(other, plain, n);
}

static void test_real_file(void **state)
{
    char real[512];
    runnel_file *file;
    runnel_file_info info = {.struct_size = sizeof info};

    (void)state;
    if (!shared_find("models/stories260K.gguf", real, sizeof real))
        skip();
    file = open_file(real);
    runnel_file_get_info(file, &info);
    assert_int_equal(info.parameters, 260032); /* the model's name says 260 K */
    assert_int_equal(info.weight_bytes, 4 * 260032);
    expect_metadata(file, 0, "general.architecture", "string", 1);
    expect_text(file, 0, 0, "llama");
    check_plan(file);
    runnel_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),    cmocka_unit_test(test_metadata), cmocka_unit_test(test_short_buffer),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_refusals), cmocka_unit_test(test_real_file),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
