/* GGUF files on disk: split files and everything that can be wrong with them, paths that are no
 * regular file, headers longer than one read, files that shrink while they are read. */
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

#include "gguf_writer.h"
#include "model/quant/quant.h"
#include "tests/base/refusing.h"

static char directory[64];

static int setup(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/runnel-test-XXXXXX");
    return mkdtemp(directory) == NULL;
}

static const char *in_directory(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int teardown(void **state)
{
    static const char *const names[] = {
        "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf", "m.gguf", "fifo", "empty"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (unlink(in_directory(names[i])) != 0)
            rmdir(in_directory(names[i]));
    return rmdir(directory);
}

/* ---- Split files: part i has i + 1 tensors "p<i>.<j>" of 32 I8; its alignment is 32 << i. ---- */

#define PARTS 3
#define NONE UINT64_MAX

struct part_spec {
    uint64_t no, count, total; /* NONE: the key is left out */
    uint32_t n_tensors;
    const char *rename; /* of the first tensor */
    size_t cut;         /* bytes missing at the end */
};

static const char *part_name(uint32_t part)
{
    static const char *const names[PARTS] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};

    return names[part];
}

static void good_parts(struct part_spec *specs)
{
    for (uint32_t i = 0; i < PARTS; i++)
        specs[i] = (struct part_spec){i, PARTS, 6, i + 1, NULL, 0};
}

static void w_key_u16(struct writer *w, const char *key, uint64_t v)
{
    if (v == NONE)
        return;
    w_key(w, key, RN_GGUF_U16);
    w_u16(w, (uint16_t)v);
}

static void write_part(struct writer *w, uint32_t part, const struct part_spec *s)
{
    uint32_t alignment = 32u << part;
    char name[16];

    w_header(w, 3, s->n_tensors, 1 + (s->no != NONE) + (s->count != NONE) + (s->total != NONE) + (part == 0));
    w_key_u32(w, "general.alignment", alignment);
    w_key_u16(w, "split.no", s->no);
    w_key_u16(w, "split.count", s->count);
    if (s->total != NONE) {
        w_key(w, "split.tensors.count", RN_GGUF_I32);
        w_u32(w, (uint32_t)s->total);
    }
    if (part == 0)
        w_key_string(w, "general.name", "whole");
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        snprintf(name, sizeof name, "p%u.%u", part, i);
        w_tensor(w, i == 0 && s->rename != NULL ? s->rename : name, 1, (uint64_t[]){32}, RN_I8, i * alignment);
    }
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        w_align(w, alignment);
        for (int j = 0; j < 32; j++)
            w_u8(w, (uint8_t)(part * 16 + i));
    }
    w->n -= s->cut;
}

static void save_parts(const struct part_spec *specs)
{
    for (uint32_t i = 0; i < PARTS; i++) {
        struct writer w = {0};

        write_part(&w, i, &specs[i]);
        w_save(&w, directory, part_name(i));
        w_free(&w);
    }
}

static runnel_status open_named(const char *name, struct rn_gguf **g, struct rn_heap *heap, runnel_error *error)
{
    runnel_status status = rn_gguf_open(heap, in_directory(name), g, error);

    assert_int_equal(*g != NULL, status == RUNNEL_OK);
    return status;
}

/* Opening `name` fails with `status` and a sentence that names all of `names`; nothing is left. */
static void expect_refusal(const char *name, runnel_status status, const char *first, const char *second)
{
    struct refusing none = {0};
    struct rn_heap heap = refusing_heap(&none);
    struct rn_gguf *g = NULL;
    runnel_error error = {0};

    assert_int_equal(open_named(name, &g, &heap, &error), status);
    if (strstr(error.message, first) == NULL || strstr(error.message, second) == NULL)
        fail_msg("does not name %s and %s: %s", first, second, error.message);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void check_union(const struct rn_gguf *g)
{
    uint64_t index = 0;

    assert_int_equal(rn_gguf_parts(g), PARTS);
    assert_int_equal(rn_gguf_n_tensors(g), 6);
    assert_int_equal(rn_gguf_alignment(g), 32);
    assert_non_null(rn_gguf_find(g, "general.name"));
    assert_int_equal(rn_gguf_n_entries(g), 5);
    for (uint32_t part = 0; part < PARTS; part++) {
        for (uint32_t i = 0; i < part + 1; i++, index++) {
            const struct rn_tensor *t = rn_gguf_tensor(g, index);
            char name[16];
            uint8_t wanted[32];

            snprintf(name, sizeof name, "p%u.%u", part, i);
            assert_ptr_equal(rn_gguf_find_tensor(g, name), t);
            assert_int_equal(t->part, part);
            assert_int_equal(t->offset % (32u << part), 0);
            memset(wanted, (int)(part * 16 + i), sizeof wanted);
            assert_memory_equal(t->data, wanted, sizeof wanted);
        }
    }
}

static void test_split(void **state)
{
    struct part_spec specs[PARTS];
    struct refusing none = {0};
    struct rn_heap heap = refusing_heap(&none);
    struct rn_gguf *g = NULL;
    uint64_t bytes = 0;

    (void)state;
    good_parts(specs);
    save_parts(specs);
    assert_int_equal(open_named(part_name(0), &g, &heap, NULL), RUNNEL_OK);
    check_union(g);
    for (uint32_t i = 0; i < PARTS; i++) {
        struct stat info;

        assert_int_equal(stat(in_directory(part_name(i)), &info), 0);
        bytes += (uint64_t)info.st_size;
    }
    assert_int_equal(rn_gguf_file_bytes(g), bytes);
    rn_gguf_free(g);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    specs[1].total = specs[2].total = NONE; /* only the first part has to tell */
    save_parts(specs);
    assert_int_equal(open_named(part_name(0), &g, &heap, NULL), RUNNEL_OK);
    check_union(g);
    rn_gguf_free(g);
}

/* what is changed in parts `p`, status, and what the sentence names */
#define SPLIT_DEFECTS(X)                                                        \
    X(p[0].no = 1, FORMAT, "00001-of-00003", "split.no")                        \
    X(p[0].no = NONE, FORMAT, "00001-of-00003", "split.no")                     \
    X(p[0].total = NONE, FORMAT, "00001-of-00003", "split.tensors.count")       \
    X(p[0].total = 0, FORMAT, "00001-of-00003", "split.tensors.count")          \
    X(p[0].total = UINT32_MAX, FORMAT, "00001-of-00003", "split.tensors.count") \
    X(p[0].count = 2, FORMAT, "00001-of-00003", "-00001-of-00002.gguf")         \
    X(p[0].count = 65535, FORMAT, "00001-of-00003", "-00001-of-65535.gguf")     \
    X(p[1].no = 0, FORMAT, "00002-of-00003", "split.no")                        \
    X(p[1].no = 2, FORMAT, "00002-of-00003", "split.no")                        \
    X(p[1].no = NONE, FORMAT, "00002-of-00003", "split.no")                     \
    X(p[2].count = 2, FORMAT, "00003-of-00003", "split.count")                  \
    X(p[2].count = NONE, FORMAT, "00003-of-00003", "split.count")               \
    X(p[1].total = 5, FORMAT, "00002-of-00003", "split.tensors.count")          \
    X(p[2].n_tensors = 4, FORMAT, "00003-of-00003", "split.tensors.count")      \
    X(p[2].n_tensors = 2, FORMAT, "00001-of-00003", "split.tensors.count")      \
    X(p[2].rename = "p0.0", FORMAT, "tensor p0.0", "twice")                     \
    X(p[1].cut = 1, FORMAT, "00002-of-00003", "tensor p1.1")                    \
    X(p[2].cut = 250, FORMAT, "00003-of-00003", "tensor p2.")

static void test_split_defects(void **state)
{
    struct part_spec p[PARTS];

    (void)state;
#define SPLIT_DEFECT(change, status, first, second) \
    good_parts(p);                                  \
    change;                                         \
    save_parts(p);                                  \
    expect_refusal(part_name(0), RUNNEL_##status, first, second);
    SPLIT_DEFECTS(SPLIT_DEFECT)
}

static void test_split_paths(void **state)
{
    struct part_spec specs[PARTS];
    char first[256];

    (void)state;
    good_parts(specs);
    save_parts(specs);
    expect_refusal(part_name(1), RUNNEL_FORMAT, "00002-of-00003", "split.no"); /* not the first part */
    expect_refusal(part_name(2), RUNNEL_FORMAT, "it is part 3 of 3 of a model", "give the first, ");
    expect_refusal(part_name(2), RUNNEL_FORMAT, "give the first, ", "/m-00001-of-00003.gguf");
    snprintf(first, sizeof first, "%s", in_directory(part_name(0)));
    assert_int_equal(rename(first, in_directory("m.gguf")), 0);
    expect_refusal("m.gguf", RUNNEL_FORMAT, "m.gguf", "-00001-of-00003.gguf");
    save_parts(specs);
    assert_int_equal(unlink(in_directory(part_name(1))), 0);
    expect_refusal(part_name(0), RUNNEL_IO, "00002-of-00003.gguf", "No such file");
    assert_int_equal(mkdir(in_directory(part_name(1)), 0700), 0);
    expect_refusal(part_name(0), RUNNEL_IO, "00002-of-00003.gguf", "directory");
    assert_int_equal(rmdir(in_directory(part_name(1))), 0);
    save_parts(specs);
    w_save(&(struct writer){"junk", 4, 4}, directory, part_name(2));
    expect_refusal(part_name(0), RUNNEL_FORMAT, "00003-of-00003.gguf", "not a GGUF");
}

static void test_part_names(void **state)
{
    static const char *const no_first[] = {"",
                                           "m.gguf",
                                           "00001-of-00003.gguf",
                                           "m-00002-of-00003.gguf",
                                           "m-00001-of-00000.gguf",
                                           "m-00001-of-0003.gguf",
                                           "m-00001-of- 0003.gguf",
                                           "m-00001-of-00003.ggu"};
    char path[] = "/d/m-00001-of-00012.gguf";

    (void)state;
    assert_int_equal(rn_gguf_parts_of(path), 12);
    assert_true(rn_gguf_is_part(path, 0, 12) && !rn_gguf_is_part(path, 1, 12) && !rn_gguf_is_part(path, 0, 13));
    rn_gguf_set_part(path, 11, 12);
    assert_string_equal(path, "/d/m-00012-of-00012.gguf");
    for (size_t i = 0; i < sizeof no_first / sizeof no_first[0]; i++)
        assert_int_equal(rn_gguf_parts_of(no_first[i]), 1);
}

static void test_split_refusals(void **state)
{
    struct part_spec specs[PARTS];
    uint64_t n = 1;

    (void)state;
    good_parts(specs);
    save_parts(specs);
    for (;; n++) {
        struct refusing r = {.refuse_at = n};
        struct rn_heap heap = refusing_heap(&r);
        struct rn_gguf *g = NULL;
        runnel_status status = open_named(part_name(0), &g, &heap, NULL);

        rn_gguf_free(g);
        assert_int_equal(rn_heap_blocks(&heap), 0);
        assert_int_equal(status, r.calls < n ? RUNNEL_OK : RUNNEL_NO_MEMORY);
        if (r.calls < n)
            break;
    }
    assert_in_range(n, 25, 200);
}

/* ---- What is no file ---- */

static void test_no_file(void **state)
{
    (void)state;
    alarm(300); /* an open that blocks ends the test */
    assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
    w_save(&(struct writer){0}, directory, "empty");
    expect_refusal("", RUNNEL_IO, directory, "directory");
    expect_refusal("fifo", RUNNEL_IO, "fifo", "not a regular file");
    expect_refusal("empty", RUNNEL_IO, "empty", "the file is empty");
    expect_refusal("absent", RUNNEL_IO, "absent", "No such file");
    expect_refusal("../../dev/zero", RUNNEL_IO, "zero", "not a regular file");
    alarm(0);
}

/* ---- Long headers, and files that shrink ---- */

/* A header of some 400 KB, which takes several reads, and one tensor. */
static void write_long(struct writer *w)
{
    char text[64];

    w_header(w, 3, 1, 2);
    w_key_array(w, "texts", RN_GGUF_STRING, 10000);
    for (int i = 0; i < 10000; i++) {
        snprintf(text, sizeof text, "this is the text with the number %d", i);
        w_string(w, text);
    }
    w_key_u32(w, "last", 99);
    w_tensor(w, "only", 1, (uint64_t[]){4096}, RN_I8, 0);
    w_align(w, 32);
    w_zeros(w, 4096);
}

static void test_long_header(void **state)
{
    struct writer w = {0};
    struct refusing none = {0};
    struct rn_heap heap = refusing_heap(&none);
    struct rn_gguf *g = NULL;
    const char *cursor;
    uint64_t last = 0;

    (void)state;
    write_long(&w);
    w_save(&w, directory, "m.gguf");
    assert_int_equal(open_named("m.gguf", &g, &heap, NULL), RUNNEL_OK);
    cursor = rn_gguf_find(g, "texts")->data;
    for (int i = 0; i < 10000; i++) {
        struct rn_view view = rn_gguf_item_string(&cursor);
        char text[64];

        snprintf(text, sizeof text, "this is the text with the number %d", i);
        assert_int_equal(view.n, strlen(text));
        assert_memory_equal(view.bytes, text, view.n);
    }
    assert_int_equal(rn_gguf_get_u64(g, "last", true, 0, 100, &last, NULL), RUNNEL_OK);
    assert_int_equal(last, 99);
    assert_int_equal(rn_gguf_find_tensor(g, "only")->bytes, 4096);
    assert_true(rn_heap_bytes(&heap) < w.n); /* what was read beyond the header has been given back */
    rn_gguf_free(g);
    w_free(&w);
}

struct shrink {
    uint64_t at_call;
    long to_bytes;
};

static void shrink(uint64_t call, void *user)
{
    const struct shrink *s = user;

    if (call == s->at_call)
        assert_int_equal(truncate(in_directory("m.gguf"), s->to_bytes), 0);
}

/* The file is cut at each allocation of the opening in turn: never a crash (SIGBUS), and an error
 * unless all was over; and the directory, once open, does not feel it. */
static void test_shrinking(void **state)
{
    static const long lengths[] = {0, 100, 70000};
    struct writer w = {0};
    uint32_t errors = 0, calls = 0;

    (void)state;
    write_long(&w);
    for (size_t l = 0; l < 3; l++) {
        for (uint64_t at = 1;; at++) {
            struct shrink s = {at, lengths[l]};
            struct refusing none = {.before = shrink, .user = &s};
            struct rn_heap heap = refusing_heap(&none);
            struct rn_gguf *g = NULL;
            runnel_error error = {0};
            runnel_status status;

            w_save(&w, directory, "m.gguf");
            status = open_named("m.gguf", &g, &heap, &error);
            if (status != RUNNEL_OK) {
                assert_int_equal(status, at <= 2 && lengths[l] > 0 ? RUNNEL_FORMAT : RUNNEL_IO);
                assert_non_null(strstr(error.message, "m.gguf"));
                errors++;
            }
            rn_gguf_free(g);
            assert_int_equal(rn_heap_blocks(&heap), 0);
            calls++;
            if (none.calls < at)
                break;
        }
    }
    assert_true(errors > 10 && calls - errors < 10);
    w_free(&w);
}

/* A cut after opening does not reach what has been parsed. */
static void test_shrinks_later(void **state)
{
    struct writer w = {0};
    struct rn_heap heap;
    struct rn_gguf *g = NULL;
    uint64_t last = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    write_long(&w);
    w_save(&w, directory, "m.gguf");
    assert_int_equal(open_named("m.gguf", &g, &heap, NULL), RUNNEL_OK);
    assert_int_equal(truncate(in_directory("m.gguf"), 0), 0);
    assert_int_equal(rn_gguf_get_u64(g, "last", true, 0, 100, &last, NULL), RUNNEL_OK);
    assert_int_equal(last, 99);
    assert_non_null(rn_gguf_find_tensor(g, "only"));
    rn_gguf_free(g);
    w_free(&w);
}

/* A sparse file of a terabyte whose header claims most of it: refused without reading it. */
static void test_claims_a_terabyte(void **state)
{
    struct writer w = {0};
    const uint64_t terabyte = (uint64_t)1 << 40;

    (void)state;
    w_header(&w, 3, 0, 1);
    w_key_array(&w, "huge", RN_GGUF_U8, terabyte / 2);
    w_zeros(&w, 100);
    w_save(&w, directory, "m.gguf");
    w_free(&w);
    if (truncate(in_directory("m.gguf"), (off_t)terabyte) != 0)
        skip();
    expect_refusal("m.gguf", RUNNEL_FORMAT, "m.gguf", "key huge");
}

int main(void)
{
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ON_DISK(test_split),         ON_DISK(test_split_defects),
        ON_DISK(test_split_paths),   ON_DISK(test_split_refusals),
        ON_DISK(test_part_names),    ON_DISK(test_no_file),
        ON_DISK(test_long_header),   ON_DISK(test_shrinking),
        ON_DISK(test_shrinks_later), ON_DISK(test_claims_a_terabyte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
