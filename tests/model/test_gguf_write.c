/* The writer: a small file against its bytes, spelled out from the GGUF specification; what our reader makes of a
 * larger one; and what refused memory and a full path leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "gguf_writer.h"
#include "model/gguf/write.h"
#include "tests/base/refusing.h"
#include "tests/base/whole_file.h"

static struct rn_heap heap;
static char path[64];

static void test_bytes(void **state)
{
    /* clang-format off */
    static const unsigned char expected[] = {
        'G', 'G', 'U', 'F', 3, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0, 'a', '.', 'b',  8, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0, 'h', 'i',
        1, 0, 0, 0, 0, 0, 0, 0, 'n',  9, 0, 0, 0,  4, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  7, 0, 0, 0, 0, 1, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 'x',  1, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 'y',  2, 0, 0, 0,  1, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,
        32, 0, 0, 0, 0, 0, 0, 0,
        /* 156 bytes so far: 4 of padding */
        0, 0, 0, 0,
        /* 1, -2, 0.5 as halves; padding; 1, -2 as floats; padding */
        0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0x80, 0x3f, 0, 0, 0x00, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    };
    /* clang-format on */
    static const float values[3] = {1.0f, -2.0f, 0.5f};
    static const uint64_t three[] = {3}, column[] = {1, 2};
    static const uint32_t numbers[] = {7, 256};
    unsigned char bytes[sizeof expected + 1];
    struct rn_gguf_writer w;

    (void)state;
    rn_gguf_writer_init(&w, &heap);
    rn_gguf_put_string(&w, "a.b", "hi");
    rn_gguf_put_u32s(&w, "n", numbers, 2);
    rn_gguf_put_tensor(&w, "x", RN_F16, 1, three, values);
    rn_gguf_put_tensor(&w, "y", RN_F32, 2, column, values);
    assert_int_equal(rn_gguf_writer_save(&w, path, NULL), RUNNEL_OK);
    rn_gguf_writer_fini(&w);
    assert_int_equal(read_whole(path, bytes, sizeof bytes), sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_true(rn_heap_blocks(&heap) == 0);
}

static void fill(struct rn_gguf_writer *w, const float *values)
{
    static const uint64_t dims[] = {100, 30, 3};

    rn_gguf_put_string(w, "general.architecture", "nothing");
    rn_gguf_put_string(w, "empty", "");
    rn_gguf_put_f32(w, "f", -0.25f);
    rn_gguf_put_u64(w, "u", UINT64_MAX - 1);
    rn_gguf_put_u32(w, "v", UINT32_MAX);
    rn_gguf_put_u32s(w, "none", NULL, 0);
    rn_gguf_put_tensor(w, "all", RN_F32, 3, dims, values);
    rn_gguf_put_tensor(w, "half", RN_F16, 1, dims, values);
}

static void test_read_back(void **state)
{
    static float values[9000];
    struct rn_gguf *gguf = NULL;
    struct rn_gguf_writer w;
    uint64_t number = 0;
    double real = 0;
    const struct rn_tensor *tensor;

    (void)state;
    for (int i = 0; i < 9000; i++)
        values[i] = (float)i / 16.0f - 3.0f;
    rn_gguf_writer_init(&w, &heap);
    fill(&w, values);
    assert_int_equal(rn_gguf_writer_save(&w, path, NULL), RUNNEL_OK);
    rn_gguf_writer_fini(&w);
    assert_int_equal(rn_gguf_open(&heap, path, &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_gguf_n_entries(gguf), 6);
    assert_int_equal(rn_gguf_get_u64(gguf, "u", true, 0, UINT64_MAX, &number, NULL), RUNNEL_OK);
    assert_true(number == UINT64_MAX - 1);
    assert_int_equal(rn_gguf_get_f64(gguf, "f", true, -1, 1, &real, NULL), RUNNEL_OK);
    assert_true(real == -0.25);
    tensor = rn_gguf_find_tensor(gguf, "all");
    assert_true(tensor != NULL && tensor->n_dims == 3 && tensor->dims[1] == 30 && tensor->bytes == sizeof values);
    assert_memory_equal(tensor->data, values, sizeof values);
    tensor = rn_gguf_find_tensor(gguf, "half");
    assert_true(tensor != NULL && tensor->bytes == 200);
    for (int i = 0; i < 100; i++)
        assert_true(rn_f16_to_f32(((const uint16_t *)tensor->data)[i]) == values[i]);
    rn_gguf_free(gguf);
}

/* Whichever allocation is refused: NO_MEMORY, the file that was there is as it was, nothing is left. */
static void test_no_memory(void **state)
{
    static const float values[9000];
    runnel_status status = RUNNEL_NO_MEMORY;

    (void)state;
    for (uint64_t at = 1; status != RUNNEL_OK; at++) {
        struct refusing refusing = {.refuse_at = at};
        struct rn_heap small = refusing_heap(&refusing);
        struct rn_gguf_writer w;
        char now[4];

        write_whole(path, "old", 3);
        rn_gguf_writer_init(&w, &small);
        fill(&w, values);
        status = rn_gguf_writer_save(&w, path, NULL);
        rn_gguf_writer_fini(&w);
        assert_true(rn_heap_blocks(&small) == 0);
        if (status == RUNNEL_OK)
            break;
        assert_int_equal(status, RUNNEL_NO_MEMORY);
        assert_int_equal(read_whole(path, now, sizeof now), 3);
        assert_memory_equal(now, "old", 3);
        assert_true(at < 100);
    }
}

static void test_no_place(void **state)
{
    struct rn_gguf_writer w;
    runnel_error error = {0};

    (void)state;
    rn_gguf_writer_init(&w, &heap);
    assert_int_equal(rn_gguf_writer_save(&w, "/nowhere/at/all", &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
    rn_error_clear(&error);
    assert_int_equal(rn_gguf_writer_save(&w, "/dev/full/x", &error), RUNNEL_IO);
    rn_gguf_writer_fini(&w);
}

static runnel_status save_small(const char *to, runnel_error *error)
{
    struct rn_gguf_writer w;
    runnel_status status;

    rn_error_clear(error);
    rn_gguf_writer_init(&w, &heap);
    rn_gguf_put_u32(&w, "a", 1);
    status = rn_gguf_writer_save(&w, to, error);
    rn_gguf_writer_fini(&w);
    assert_true(rn_heap_blocks(&heap) == 0);
    return status;
}

static void assert_refused(const char *what)
{
    runnel_error error;

    assert_int_equal(save_small(what, &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
}

/* Of links the target is written, through several and where nothing is yet; what is no regular file stays. */
static void test_links_and_pipes(void **state)
{
    char folder[] = "/tmp/runnel-test-XXXXXX", names[5][64], bytes[200];
    static const char *const each[5] = {"target", "folder/near", "far", "pipe", "circle"};
    struct stat is;
    runnel_error error;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(names[0], sizeof names[0], "%s/folder", folder);
    assert_int_equal(mkdir(names[0], 0700), 0);
    for (int i = 0; i < 5; i++)
        snprintf(names[i], sizeof names[i], "%s/%s", folder, each[i]);
    assert_int_equal(symlink("../target", names[1]), 0);
    assert_int_equal(symlink(names[1], names[2]), 0);
    assert_int_equal(mkfifo(names[3], 0600), 0);
    assert_int_equal(symlink("circle", names[4]), 0);
    for (int there = 0; there < 2; there++) {
        if (there)
            write_whole(names[0], "old", 3);
        assert_int_equal(save_small(names[2], &error), RUNNEL_OK);
        assert_int_equal(read_whole(names[0], bytes, sizeof bytes), 64);
        assert_true(lstat(names[1], &is) == 0 && S_ISLNK(is.st_mode));
        assert_true(lstat(names[2], &is) == 0 && S_ISLNK(is.st_mode));
    }
    assert_refused(names[3]);
    assert_true(lstat(names[3], &is) == 0 && S_ISFIFO(is.st_mode));
    assert_refused(names[4]);
    assert_refused(folder);
    for (int i = 0; i < 5; i++)
        assert_int_equal(unlink(names[i]), 0);
    snprintf(names[0], sizeof names[0], "%s/folder", folder);
    assert_int_equal(rmdir(names[0]), 0); /* nothing was left beside the link ... */
    assert_int_equal(rmdir(folder), 0);   /* ... or the target */
}

/* What lies under the temporary name is not followed, and the file that it names stays as it is. */
static void test_planted_link(void **state)
{
    char folder[] = "/tmp/runnel-test-XXXXXX", names[3][64], bytes[8];
    static const char *const each[3] = {"victim", "file", "file.new"};
    struct stat is;
    runnel_error error;

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++)
        snprintf(names[i], sizeof names[i], "%s/%s", folder, each[i]);
    write_whole(names[0], "old", 3);
    assert_int_equal(symlink("victim", names[2]), 0);
    assert_int_equal(save_small(names[1], &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, names[1]));
    assert_int_equal(read_whole(names[0], bytes, sizeof bytes), 3);
    assert_int_equal(lstat(names[1], &is), -1);
    assert_int_equal(unlink(names[2]), 0);
    assert_int_equal(save_small(names[1], &error), RUNNEL_OK);
    assert_true(unlink(names[0]) == 0 && unlink(names[1]) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes),           cmocka_unit_test(test_read_back),
                                       cmocka_unit_test(test_no_memory),       cmocka_unit_test(test_no_place),
                                       cmocka_unit_test(test_links_and_pipes), cmocka_unit_test(test_planted_link)};
    int failed;

    rn_heap_init(&heap, NULL);
    snprintf(path, sizeof path, "/tmp/runnel-gguf-%d", (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
