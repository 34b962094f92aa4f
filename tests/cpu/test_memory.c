/* What a load takes at most: with weights in tiles the peak of the process's memory stays below the file, the keys and
 * values, and a tenth. The file's pages are given back while it is read; were they kept, the peak would be near twice
 * the file. The model is made here, large enough to tell. Needs Linux's /proc; not under sanitizers, whose memory
 * counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/quant/types.h"
#include "tests/cpu/runner.h"
#include "tests/model/model_edit.h"
#include "tests/support/child.h"

enum { TIMES = 128, BLOCK = 32, N_BLOCKS = 4, CONTEXT = 64 };

static char path[] = "/tmp/runnel-memory-XXXXXX";

/* The tiny model, 128 times as wide, its matrices in Q8_0: 270 MB. What is not given as numbers is zeros. */
static void grow(struct model_edit *edit)
{
    struct edit_tensor *t;
    uint32_t i;

    edit_tiny(edit, 0, false);
    edit_u32(edit, "llama.embedding_length", 32 * TIMES);
    edit_u32(edit, "llama.feed_forward_length", 48 * TIMES);
    edit_u32(edit, "llama.attention.head_count", 64);
    edit_u32(edit, "llama.attention.head_count_kv", 32);
    edit_u32(edit, "llama.rope.dimension_count", 64);
    for (i = 0; i < edit->n_tensors; i++) {
        t = &edit->tensors[i];
        t->dims[0] *= TIMES;
        if (strncmp(t->name, "blk", 3) != 0 || t->n_dims == 1)
            continue;
        t->dims[1] *= TIMES;
        t->type = RN_Q8_0;
        t->bytes = 0;
    }
}

/* In a process of its own, whose memory does not count. */
static void write_model(void)
{
    int status, fd = mkstemp(path);
    pid_t child;

    assert_true(fd >= 0);
    child = child_fork();
    if (child == 0) {
        static struct model_edit edit;
        struct writer w = {0};
        FILE *file = fdopen(fd, "wb");
        bool good;

        grow(&edit);
        edit_write(&edit, &w);
        good = file != NULL && fwrite(w.bytes, 1, w.n, file) == w.n && fclose(file) == 0;
        _exit(good ? 0 : 1);
    }
    close(fd);
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Bytes, of a line of /proc/self/status. */
static uint64_t memory_of(const char *line)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char text[256];

    assert_non_null(file);
    while (kib == 0 && fgets(text, sizeof text, file) != NULL)
        if (strncmp(text, line, strlen(line)) == 0)
            kib = strtoull(text + strlen(line), NULL, 10);
    fclose(file);
    assert_true(kib > 0);
    return kib * 1024;
}

static void test_peak(void **state)
{
    const struct rn_backend_limits limits = {.max_rows = 16,
                                             .max_seqs = 1,
                                             .max_outs = 1,
                                             .n_blocks = N_BLOCKS,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = RUNNEL_KV_F16,
                                             .weight_order = RUNNEL_WEIGHTS_TILES};
    uint64_t before = memory_of("VmRSS:"), file, kv, peak;
    runnel_error error = {0};
    struct runner runner;
    struct model model;
    struct rn_heap heap;

    (void)state;
    if (rn_level_best()->tiled == NULL)
        skip();
    rn_heap_init(&heap, NULL);
    if (rn_gguf_open(&heap, path, &model.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, model.gguf, CONTEXT, &model.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    open_runner(&runner, &heap, model.plan, rn_level_best(), 2, &limits);
    file = rn_gguf_file_bytes(model.gguf);
    kv = (uint64_t)N_BLOCKS * BLOCK * rn_plan_kv_bytes(model.plan, RUNNEL_KV_F16);
    peak = memory_of("VmHWM:") - before;
    print_message("file %llu, keys and values %llu, peak %llu bytes\n", (unsigned long long)file,
                  (unsigned long long)kv, (unsigned long long)peak);
    assert_true(file > 200u << 20);
    assert_true(runner.backend->ops->tiled_bytes(runner.backend) > file / 10 * 9);
    assert_true(peak < file + kv + file / 10);
    close_runner(&runner);
    close_model(&model);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak)};
    int failed;

    write_model();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
