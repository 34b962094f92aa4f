/* What runnel_model_get_info says of memory, against what the allocator's hook sees: of two loads of one model with
 * more and less memory for its caches, the second takes so much less as is said. And against the tensors of the files
 * that weights lie in. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/actors/fixture.h"
#include "tests/actors/scratch.h"
#include "tests/oracle/made_model.h"

enum { KIB = 1 << 10 };

static struct scratch scratch;

/* ---- The hook ---- */

struct counter {
    pthread_mutex_t mutex;
    uint64_t bytes; /* that are held */
};

static void count(struct counter *counter, int64_t bytes)
{
    pthread_mutex_lock(&counter->mutex);
    counter->bytes += (uint64_t)bytes;
    pthread_mutex_unlock(&counter->mutex);
}

static void *counted_alloc(void *user, size_t bytes, size_t alignment)
{
    void *ptr = NULL;

    if (posix_memalign(&ptr, alignment < sizeof ptr ? sizeof ptr : alignment, bytes) != 0)
        return NULL;
    count(user, (int64_t)bytes);
    return ptr;
}

static void counted_free(void *user, void *ptr, size_t bytes)
{
    count(user, -(int64_t)bytes);
    free(ptr);
}

/* ---- Models ---- */

/* One block, and two layers that predict tokens further on. */
static const char layers_text[] = "key general.architecture str llama\n"
                                  "key llama.vocab_size u32 64\n"
                                  "key llama.context_length u32 256\n"
                                  "key llama.embedding_length u32 64\n"
                                  "key llama.block_count u32 3\n"
                                  "key llama.nextn_predict_layers u32 2\n"
                                  "key llama.feed_forward_length u32 96\n"
                                  "key llama.attention.head_count u32 4\n"
                                  "key llama.attention.layer_norm_rms_epsilon f32 1e-5\n"
                                  "key llama.rope.dimension_count u32 16\n"
                                  "vocabulary 64\n"
                                  "tensor token_embd.weight 64 64 = 0 1\n"
                                  "tensor output_norm.weight 64\n"
                                  "tensor output.weight 64 64\n"
                                  "blocks 0 3\n"
                                  "tensor blk.%d.attn_norm.weight 64\n"
                                  "tensor blk.%d.attn_q.weight 64 64\n"
                                  "tensor blk.%d.attn_k.weight 64 64\n"
                                  "tensor blk.%d.attn_v.weight 64 64\n"
                                  "tensor blk.%d.attn_output.weight 64 64\n"
                                  "tensor blk.%d.ffn_norm.weight 64\n"
                                  "tensor blk.%d.ffn_gate.weight 64 96\n"
                                  "tensor blk.%d.ffn_down.weight 96 64\n"
                                  "tensor blk.%d.ffn_up.weight 64 96\n"
                                  "blocks 1 3\n"
                                  "tensor blk.%d.nextn.eh_proj.weight 128 64\n"
                                  "tensor blk.%d.nextn.enorm.weight 64\n"
                                  "tensor blk.%d.nextn.hnorm.weight 64\n";

/* The file of a text; its path is good until the next one's. */
static const char *make(const char *name, const char *text)
{
    struct writer w = {0};
    const char *path;

    made_model_write(text, &w);
    path = scratch_save(&scratch, name, w.bytes, w.n);
    w_free(&w);
    return path;
}

static const char *make_layers(void)
{
    char text[sizeof scratch.path];

    strcpy(text, scratch_save(&scratch, "layers.txt", layers_text, strlen(layers_text)));
    return make("layers.gguf", text);
}

/* What a model's info says, and what the hook has seen of its engine. */
static uint64_t load_info(const char *path, const runnel_model_options *options, runnel_model_info *info)
{
    struct counter counter = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    runnel_engine_options of_engine;
    runnel_engine *engine;
    runnel_model *model;
    uint64_t bytes;

    runnel_engine_options_default(&of_engine);
    of_engine.allocator = (runnel_allocator){counted_alloc, counted_free, &counter};
    of_engine.max_streams = 64;
    engine = start_engine(&of_engine);
    model = load_model(engine, path, options);
    *info = (runnel_model_info){.struct_size = sizeof *info};
    assert_int_equal(runnel_model_get_info(model, info), RUNNEL_OK);
    pthread_mutex_lock(&counter.mutex);
    bytes = counter.bytes;
    pthread_mutex_unlock(&counter.mutex);
    runnel_engine_free(engine);
    assert_int_equal(counter.bytes, 0);
    return bytes;
}

static uint64_t caches(const runnel_model_info *info)
{
    return info->kv_bytes + info->state_bytes + info->draft_kv_bytes;
}

/* Of loads with `less` bytes and with four times as many in the option *which of *options. Lists of blocks come on top
 * of the blocks. */
static void expect_difference(const char *path, runnel_model_options *options, uint64_t *which, uint64_t less)
{
    runnel_model_info small, large;
    uint64_t few, many, said;

    *which = less;
    few = load_info(path, options, &small);
    *which = 4 * less;
    many = load_info(path, options, &large);
    said = caches(&large) - caches(&small);
    if (said < less || many - few < said || many - few > said + said / 8)
        fail_msg("%s: %llu bytes more are said, %llu are taken", path, (unsigned long long)said,
                 (unsigned long long)(many - few));
}

static void caches_are_what_they_take(void **state)
{
    runnel_model_options options;

    (void)state;
    runnel_model_options_default(&options);
    expect_difference(make("plain.gguf", "tests/oracle/made/qwen3-made-linear.txt"), &options, &options.kv_bytes,
                      512 * KIB);
    expect_difference(make("states.gguf", "tests/oracle/made/qwen35moe-made.txt"), &options, &options.kv_bytes,
                      512 * KIB);
}

static void draft_caches_are_what_they_take(void **state)
{
    runnel_model_options options;

    (void)state;
    runnel_model_options_default(&options);
    options.kv_bytes = 8192 * KIB;
    options.draft_measure_ms = 1;
    options.draft_path = "mtp";
    expect_difference(make_layers(), &options, &options.draft_kv_bytes, 512 * KIB);
}

/* Of the text above. */
enum {
    BLOCK = 4 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64),
    HEAD = 4 * (2 * 64 * 64 + 64),
    LAYER = BLOCK + 4 * (128 * 64 + 2 * 64)
};

static void weights_are_those_of_the_files(void **state)
{
    runnel_model_options options;
    runnel_model_info info;
    char path[sizeof scratch.path];

    (void)state;
    strcpy(path, make_layers());
    runnel_model_options_default(&options);
    options.draft_measure_ms = 1;
    load_info(path, &options, &info);
    assert_int_equal(info.weight_bytes, BLOCK + HEAD);
    assert_int_equal(info.draft_weight_bytes, 0);
    options.draft_path = "mtp";
    load_info(path, &options, &info);
    assert_int_equal(info.weight_bytes, BLOCK + HEAD);
    assert_int_equal(info.draft_weight_bytes, 2 * LAYER);
    options.draft_path = path;
    load_info(path, &options, &info);
    assert_int_equal(info.draft_weight_bytes, BLOCK + HEAD);
    options.draft_path = "exit:1";
    load_info(BUNDLED_MODEL, &options, &info);
    assert_true(info.draft_kv_bytes > 0 && info.weight_bytes > 0);
    assert_int_equal(info.draft_weight_bytes, 0);
}

static int setup(void **state)
{
    (void)state;
    scratch_open(&scratch);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(caches_are_what_they_take),
                                       cmocka_unit_test(draft_caches_are_what_they_take),
                                       cmocka_unit_test(weights_are_those_of_the_files)};

    return run_cases(tests, setup, teardown);
}
