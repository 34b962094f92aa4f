/* Any bytes as the file of an adapter: there is a sentence that says what is wrong, or a plan with it that its checker
 * accepts. Seeds: of three matrices, of one, and of what cannot be adapted. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/check.h"
#include "model/adapter.h"
#include "model/quant/quant.h"
#include "tests/model/adapter_file.h"
#include "tests/oracle/made_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct rn_heap heap;
static struct writer bytes;
static struct rn_gguf *model;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("adapter", MFD_CLOEXEC);
    struct rn_adapters *adapters;
    struct rn_plan *plan;
    runnel_error error = {0};
    uint64_t before = rn_heap_blocks(&heap);
    char path[64];

    RN_CHECK(fd >= 0 && (size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    RN_CHECK(rn_plan_new(&heap, model, 0, &plan, NULL) == RUNNEL_OK);
    if (rn_adapters_load(&heap, plan, (struct rn_adapter_source[]){{"a", path, 1}, {"b", path, -2}}, 2, NULL, &adapters,
                         &error) == RUNNEL_OK) {
        RN_CHECK(rn_plan_adapt(plan, adapters, &error) == RUNNEL_OK && rn_plan_check(plan));
        RN_CHECK(plan->n_adapters == 2);
        rn_plan_free(plan);
        rn_adapters_free(adapters);
    } else {
        RN_CHECK(error.message[0] != '\0');
        rn_plan_free(plan);
    }
    close(fd);
    RN_CHECK(rn_heap_blocks(&heap) == before);
    return 0;
}

/* A and B of these matrices. */
static void write_adapter(struct writer *w, const char *const *names, uint32_t n)
{
    enum { RANK = 2 };
    uint64_t at = 0;
    char name[96];

    adapter_file_head(w, "llama", 2 * (uint64_t)n, 3);
    for (uint32_t i = 0; i < 2 * n; i++) {
        const struct rn_tensor *target = rn_gguf_find_tensor(model, names[i / 2]);
        const uint64_t a_dims[] = {target->dims[0], RANK}, b_dims[] = {RANK, target->dims[1]};

        snprintf(name, sizeof name, "%s.lora_%c", names[i / 2], i % 2 == 0 ? 'a' : 'b');
        w_tensor(w, name, 2, i % 2 == 0 ? a_dims : b_dims, RN_F16, at);
        at += (target->dims[i % 2] * RANK * 2 + 31) / 32 * 32;
    }
    w_align(w, 32);
    w_zeros(w, at);
}

static void write_seeds(const char *folder)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.1.ffn_up.weight", "output.weight",
                                        "token_embd.weight"};

    for (uint32_t i = 0; i < 4; i++) {
        struct writer adapter = {0};
        char name[32];

        snprintf(name, sizeof name, "seed-%u", i);
        write_adapter(&adapter, names + i, i == 0 ? 3 : 1);
        w_save(&adapter, folder, name);
        w_free(&adapter);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");

    (void)argc;
    (void)argv;
    rn_heap_init(&heap, NULL);
    made_model_write(RN_FUZZ_ROOT "/tests/oracle/made/llama-made-none.txt", &bytes);
    RN_CHECK(rn_gguf_parse(&heap, bytes.bytes, bytes.n, "model", &model, NULL) == RUNNEL_OK);
    if (folder != NULL)
        write_seeds(folder);
    return 0;
}
