/* HEAD.gguf: what is written is what is read, in F32 to the bit and in F16 to its rounding; files that are wrong in one
 * thing each are refused by name. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "model/quant/quant.h"
#include "tests/base/whole_file.h"
#include "train/head_file.h"

static struct rn_heap heap;
static char path[64];
static const struct rn_eagle_shape shape = {16, 9, 2, 2, 1, 8, 24, 1e-5f, 100.0f};
static const struct rn_trainer_options options = {60, 5, 2, 0.8f, 0.01f, 0.01f, 1.0f, 7};
static const struct rn_trainer_origin origin = {{1, 0xab, 0xff}, {2}, {3, 5}};

static void save(bool f16, struct rn_trainer *trainer)
{
    assert_int_equal(rn_trainer_init(trainer, &heap, &shape, &options, &origin), RUNNEL_OK);
    assert_int_equal(rn_head_save(trainer, 77, f16, path, NULL), RUNNEL_OK);
}

static void check_round(bool f16)
{
    struct rn_trainer trainer;
    struct rn_head head;

    save(f16, &trainer);
    assert_int_equal(rn_head_open(&head, &heap, path, NULL), RUNNEL_OK);
    assert_memory_equal(&head.shape, &shape, sizeof shape);
    assert_memory_equal(head.target, origin.target, 16);
    assert_memory_equal(head.tapped, origin.tapped, sizeof head.tapped);
    assert_int_equal(head.context_tokens, 77);
    for (size_t i = 0; i < trainer.n; i++)
        assert_true(head.weights[i] == (f16 ? rn_f16_to_f32(rn_f32_to_f16(trainer.weights[i])) : trainer.weights[i]));
    rn_head_fini(&head);
    rn_trainer_fini(&trainer);
    assert_true(rn_heap_blocks(&heap) == 0);
}

static void test_f32(void **state)
{
    (void)state;
    check_round(false);
}

static void test_f16(void **state)
{
    (void)state;
    check_round(true);
}

/* Where `name` stands in the file, replaces what follows after `skip` bytes; then opens it. */
static runnel_status open_changed(const char *name, size_t skip, const void *bytes, size_t n, runnel_error *error)
{
    static char content[200000];
    struct rn_trainer trainer;
    struct rn_head head;
    runnel_status status;
    size_t length;
    char *at;

    save(false, &trainer);
    rn_trainer_fini(&trainer);
    length = read_whole(path, content, sizeof content);
    at = memmem(content, length, name, strlen(name));
    assert_non_null(at);
    memcpy(at + strlen(name) + skip, bytes, n);
    write_whole(path, content, length);
    rn_error_clear(error);
    status = rn_head_open(&head, &heap, path, error);
    assert_true(status == RUNNEL_OK || head.weights == NULL);
    rn_head_fini(&head);
    assert_true(rn_heap_blocks(&heap) == 0);
    return status;
}

static void test_hostile(void **state)
{
    static const struct {
        const char *name;
        size_t skip;
        const char *bytes;
        size_t n;
        runnel_status status;
        const char *says;
    } list[] = {
        {"general.architecture", 12, "r", 1, RUNNEL_OK, ""},
        {"general.architecture", 12, "x", 1, RUNNEL_UNSUPPORTED, "not an EAGLE head"},
        {"runnel-eagle.vocab_siz", 0, "x", 1, RUNNEL_FORMAT, "vocab_size"},
        {"runnel-eagle.embedding_length", 4, "\0\0\0\0", 4, RUNNEL_FORMAT, "embedding_length"},
        {"runnel-eagle.embedding_length", 4, "\0\0\0\1", 4, RUNNEL_FORMAT, "out of range"},
        {"runnel-eagle.feed_forward_length", 4, "\0\0\10\0", 4, RUNNEL_FORMAT, "too short"},
        {"runnel-eagle.feed_forward_length", 4, "\31\0\0\0", 4, RUNNEL_FORMAT, "blk.0.ffn_gate.weight is not [25, 16]"},
        {"runnel-eagle.attention.head_count_kv", 4, "\3\0\0\0", 4, RUNNEL_FORMAT, "out of range"},
        {"runnel-eagle.target_print", 12, "z", 1, RUNNEL_FORMAT, "hex digits"},
        {"runnel-eagle.target_layers", 16, "\6\0\0\0", 4, RUNNEL_FORMAT, "not ascending"},
        {"runnel-eagle.rope.freq_base", 4, "\0\0\300\177", 4, RUNNEL_FORMAT, "freq_base"},
        {"blk.0.attn_q.weigh", 0, "x", 1, RUNNEL_FORMAT, "blk.0.attn_q.weight is missing"},
    };
    runnel_error error;

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        runnel_status status = open_changed(list[i].name, list[i].skip, list[i].bytes, list[i].n, &error);

        if (status != list[i].status)
            fail_msg("%zu: %s: %s", i, runnel_status_text(status), error.message);
        if (strstr(error.message, list[i].says) == NULL)
            fail_msg("%zu: %s", i, error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f16),
                                       cmocka_unit_test(test_hostile)};
    int failed;

    rn_heap_init(&heap, NULL);
    snprintf(path, sizeof path, "/tmp/runnel-head-%d", (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
