/* Adapters, judged by another program and by the sum that they stand for.
 *
 * Logits of some models with adapters were computed by llama.cpp (adapters/README.md). Of every tiny model at hand, an
 * adapter of each matrix that its plan multiplies by, or passes over, is compared with the model whose matrices are the
 * sums W + (alpha / rank) * scale * B A, made in double precision: so what is passed over has no effect on the model.
 * Sequences with one adapter, another one and none go through one step, and each must have the bits that it has alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/adapter_file.h"
#include "../model/model_edit.h"
#include "base/rng.h"
#include "tests/base/whole_file.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

enum { ADAPTERS = 2, MOST_TARGETS = 1024 };

static const char *const backends[] = {"reference", "fast"};
static char folder[] = "/tmp/rn_adapters_XXXXXX";

/* ---- Two adapters for a model ---- */

/* What adapter i has: ranks that are no multiples of vectors, alpha absent in the second. */
static const struct {
    uint32_t rank, every; /* it changes every so many-th matrix */
    float alpha, scale;
    bool short_type; /* F16 */
} shapes[ADAPTERS] = {{5, 1, 10, 0.5f, false}, {3, 2, 0, -1, true}};

struct target {
    const struct rn_tensor *tensor;
    float *a[ADAPTERS], *b[ADAPTERS]; /* as the files have them */
};

static struct fixture {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct writer made; /* of a model of the tree */
    const char *name, *path;
    uint32_t context_tokens;
    struct target targets[MOST_TARGETS];
    uint32_t n_targets;
    char paths[ADAPTERS][64];
    struct model_edit edit;
} f;

static const struct rn_adapter_source *sources(void)
{
    static struct rn_adapter_source list[ADAPTERS];

    for (int i = 0; i < ADAPTERS; i++)
        list[i] = (struct rn_adapter_source){i == 0 ? "first" : "second", f.paths[i], shapes[i].scale};
    return list;
}

static void open_model(const char *name, const char *text, const char *path, uint32_t context_tokens)
{
    f.name = name;
    f.path = path;
    f.context_tokens = context_tokens;
    rn_heap_init(&f.heap, NULL);
    if (text != NULL) {
        made_model_write(text, &f.made);
        assert_int_equal(rn_gguf_parse(&f.heap, f.made.bytes, f.made.n, name, &f.gguf, NULL), RUNNEL_OK);
    } else {
        assert_int_equal(rn_gguf_open(&f.heap, path, &f.gguf, NULL), RUNNEL_OK);
    }
    f.n_targets = 0;
}

static void close_model(void)
{
    for (uint32_t t = 0; t < f.n_targets; t++)
        for (int i = 0; i < ADAPTERS; i++) {
            free(f.targets[t].a[i]);
            free(f.targets[t].b[i]);
        }
    rn_gguf_free(f.gguf);
    w_free(&f.made);
    f.made = (struct writer){0};
    assert_int_equal(rn_heap_blocks(&f.heap), 0);
}

/* The matrices that can be adapted; how many of them the plan does not read. */
static uint32_t find_targets(void)
{
    struct rn_plan *plan;
    runnel_error error = {0};
    uint32_t unread = 0;
    bool is_read;

    if (rn_plan_new(&f.heap, f.gguf, f.context_tokens, &plan, &error) != RUNNEL_OK)
        fail_msg("%s: %s", f.name, error.message);
    for (uint64_t i = 0; i < rn_gguf_n_tensors(f.gguf); i++) {
        const struct rn_tensor *tensor = rn_gguf_tensor(f.gguf, i);

        if (rn_plan_can_adapt(plan, tensor, "", &is_read, NULL) != RUNNEL_OK)
            continue;
        assert_true(f.n_targets < MOST_TARGETS);
        f.targets[f.n_targets++] = (struct target){.tensor = tensor};
        unread += !is_read;
    }
    rn_plan_free(plan);
    return unread;
}

static float uniform(uint64_t *seed)
{
    return (float)((double)(rn_splitmix64(seed) >> 40) * 0x1p-23 - 1);
}

static void write_values(struct writer *w, const float *values, size_t n, bool short_type)
{
    for (size_t i = 0; i < n; i++) {
        if (short_type)
            w_u16(w, rn_f32_to_f16(values[i]));
        else
            w_f32(w, values[i]);
    }
    w_align(w, 32);
}

/* n values of a file, rounded to what it stores. */
static float *values_of(size_t n, float reach, bool short_type, uint64_t *seed)
{
    float *values = malloc(n * sizeof *values);

    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        values[i] = reach * uniform(seed);
        if (short_type)
            values[i] = rn_f16_to_f32(rn_f32_to_f16(values[i]));
    }
    return values;
}

static void write_adapter(int i)
{
    const uint32_t rank = shapes[i].rank, type = shapes[i].short_type ? RN_F16 : RN_F32;
    struct rn_view architecture;
    struct writer w = {0}, data = {0};
    uint64_t seed = 77 + (uint64_t)i, n = 0;
    char text[64], name[128];

    snprintf(f.paths[i], sizeof f.paths[i], "%s/%d.gguf", folder, i);
    for (uint32_t t = 0; t < f.n_targets; t += shapes[i].every)
        n += 2;
    assert_int_equal(rn_gguf_get_string(f.gguf, "general.architecture", true, &architecture, NULL), RUNNEL_OK);
    snprintf(text, sizeof text, "%.*s", (int)architecture.n, architecture.bytes);
    adapter_file_head(&w, text, n, shapes[i].alpha);
    for (uint32_t t = 0; t < f.n_targets; t += shapes[i].every) {
        struct target *target = &f.targets[t];
        const uint64_t cols = target->tensor->dims[0], rows = target->tensor->dims[1];
        const uint64_t a_dims[] = {cols, rank}, b_dims[] = {rank, rows};

        target->a[i] = values_of(cols * rank, 1.7f / sqrtf((float)cols), shapes[i].short_type, &seed);
        target->b[i] = values_of(rows * rank, 0.2f, shapes[i].short_type, &seed);
        snprintf(name, sizeof name, "%.*s.lora_a", (int)target->tensor->name.n, target->tensor->name.bytes);
        w_tensor(&w, name, 2, a_dims, type, data.n);
        write_values(&data, target->a[i], cols * rank, shapes[i].short_type);
        snprintf(name, sizeof name, "%.*s.lora_b", (int)target->tensor->name.n, target->tensor->name.bytes);
        w_tensor(&w, name, 2, b_dims, type, data.n);
        write_values(&data, target->b[i], rows * rank, shapes[i].short_type);
    }
    w_align(&w, 32);
    w_raw(&w, data.bytes, data.n);
    write_whole(f.paths[i], w.bytes, w.n);
    w_free(&w);
    w_free(&data);
}

/* The file with W + factor * B A in place of each W that adapter i changes; F32. */
static void write_merged(int i, struct writer *w)
{
    const double factor = (shapes[i].alpha != 0 ? shapes[i].alpha / shapes[i].rank : 1) * (double)shapes[i].scale;
    const uint32_t rank = shapes[i].rank;
    float *merged[MOST_TARGETS] = {NULL};

    edit_from(&f.edit, f.gguf);
    for (uint32_t t = 0; t < f.n_targets; t++) {
        const struct rn_tensor *tensor = f.targets[t].tensor;
        const uint64_t cols = tensor->dims[0], rows = tensor->dims[1];
        struct edit_tensor *edited;
        char name[64];

        if (f.targets[t].a[i] == NULL)
            continue;
        merged[t] = malloc(tensor->elements * sizeof(float));
        assert_non_null(merged[t]);
        rn_type(tensor->type)->decode(tensor->data, merged[t], tensor->elements);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < cols; c++) {
                double sum = 0;

                for (uint32_t k = 0; k < rank; k++)
                    sum += (double)f.targets[t].b[i][r * rank + k] * f.targets[t].a[i][k * cols + c];
                merged[t][r * cols + c] = (float)(merged[t][r * cols + c] + factor * sum);
            }
        snprintf(name, sizeof name, "%.*s", (int)tensor->name.n, tensor->name.bytes);
        edited = edit_tensor(&f.edit, name);
        edited->type = RN_F32;
        edited->data = merged[t];
        edited->bytes = tensor->elements * sizeof(float);
    }
    edit_write(&f.edit, w);
    for (uint32_t t = 0; t < f.n_targets; t++)
        free(merged[t]);
}

/* ---- Comparing ---- */

enum { TOKENS = 19, SEQS = 3 };

static void tokens_of(const struct run *run, int32_t *tokens)
{
    uint64_t seed = 5;

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(rn_splitmix64(&seed) % run->plan->n_vocab);
}

static struct run_options options_of(const char *backend, bool adapted)
{
    struct run_options options = {
        .backend = backend, .kv_type = RUNNEL_KV_F32, .context_tokens = f.context_tokens, .max_seqs = 2 * SEQS};

    if (f.made.bytes != NULL) {
        options.bytes = f.made.bytes;
        options.n_bytes = f.made.n;
    }
    if (adapted) {
        options.adapters = sources();
        options.n_adapters = ADAPTERS;
    }
    return options;
}

/* What sequence `seq` gives alone with an adapter, in one step. */
static void run_alone(struct run *run, uint32_t seq, uint32_t adapter, float *out)
{
    int32_t tokens[TOKENS];
    struct run_piece piece = {.seq = seq, .n = TOKENS, .tokens = tokens, .adapter = adapter};

    tokens_of(run, tokens);
    run_step(run, &piece, 1);
    memcpy(out, run->logits, (size_t)TOKENS * run->width * sizeof *out);
}

/* The model whose matrices are sums. */
static void run_merged(const char *backend, int adapter, float *out)
{
    struct run_options options = options_of(backend, false);
    struct writer w = {0};
    struct run run;

    write_merged(adapter, &w);
    options.bytes = w.bytes;
    options.n_bytes = w.n;
    run_open(&run, f.path, &options);
    run_alone(&run, 0, 0, out);
    run_close(&run);
    w_free(&w);
}

/* All in one step: none, the first adapter, the second; then each alone. */
static bool together_as_alone(struct run *run, float *const *alone)
{
    int32_t tokens[TOKENS];
    struct run_piece pieces[SEQS];
    bool good = true;

    tokens_of(run, tokens);
    for (uint32_t s = 0; s < SEQS; s++)
        pieces[s] = (struct run_piece){.seq = SEQS + s, .n = TOKENS, .tokens = tokens, .adapter = s};
    run_step(run, pieces, SEQS);
    for (uint32_t s = 0; s < SEQS; s++)
        good = good && memcmp(run->logits + (size_t)s * TOKENS * run->width, alone[s],
                              (size_t)TOKENS * run->width * sizeof(float)) == 0;
    return good;
}

/* 1 where the model fails. */
static int compare(const char *backend)
{
    struct run_options options = options_of(backend, true);
    float *alone[SEQS], *merged, *plain;
    struct run run;
    int failed = 0;
    size_t n;

    run_open(&run, f.path, &options);
    n = (size_t)TOKENS * run.width;
    for (uint32_t s = 0; s < SEQS; s++) {
        alone[s] = calloc(n, sizeof(float));
        assert_non_null(alone[s]);
        run_alone(&run, s, s, alone[s]);
    }
    if (!together_as_alone(&run, alone)) {
        print_message("%s, %s: in one step not the same bits as alone\n", f.name, backend);
        failed = 1;
    }
    run_close(&run);
    merged = calloc(n, sizeof *merged);
    plain = calloc(n, sizeof *plain);
    assert_true(merged != NULL && plain != NULL);
    options = options_of(backend, false);
    run_open(&run, f.path, &options);
    run_alone(&run, 0, 0, plain);
    run_close(&run);
    if (memcmp(plain, alone[0], n * sizeof *plain) != 0) {
        print_message("%s, %s: without an adapter not the bits of a model that has none\n", f.name, backend);
        failed = 1;
    }
    for (int i = 0; i < ADAPTERS; i++) {
        double error, effect;

        run_merged(backend, i, merged);
        error = nmse(alone[i + 1], merged, n);
        effect = nmse(alone[i + 1], plain, n);
        print_message("%-9s %-28s adapter %d: %u matrices, effect %.2g, nmse %.2g\n", backend, f.name, i, f.n_targets,
                      effect, error);
        if (!(error <= 1e-6) || !(error <= effect / 1000))
            failed = 1;
    }
    for (uint32_t s = 0; s < SEQS; s++)
        free(alone[s]);
    free(merged);
    free(plain);
    return failed;
}

static int judge(const char *name, const char *text, const char *path, uint32_t context_tokens)
{
    int failed = 0;

    open_model(name, text, path, context_tokens);
    if (find_targets() == f.n_targets) {
        print_message("%s: nothing of it can be adapted\n", name);
        failed = 1;
    } else {
        for (int i = 0; i < ADAPTERS; i++)
            write_adapter(i);
        for (size_t b = 0; b < 2; b++)
            failed += compare(backends[b]);
    }
    close_model();
    return failed;
}

static void adapters_are_sums(void **state)
{
    int failed = 0;

    (void)state;
#define ARCH(name, context) failed += judge(name, NULL, shared_path("oracles/arch/" name ".gguf"), context);
    ARCH_MODELS(ARCH)
    assert_int_equal(failed, 0);
}

static void adapters_of_made_models_are_sums(void **state)
{
    int failed = 0;

    (void)state;
#define MADE(name, context) failed += judge(name, MADE_TEXT(name), name, context);
    MADE_MODELS(MADE)
    assert_int_equal(failed, 0);
}

/* ---- Matrices that no op reads ---- */

static void count_lines(void *user, runnel_log_level level, const char *line)
{
    uint32_t *n = user;

    *n += level == RUNNEL_LOG_INFO && strncmp(line, f.paths[0], strlen(f.paths[0])) == 0 &&
          strstr(line, "passed over") != NULL && strstr(line, "tensor blk.") != NULL;
}

/* Blocks that take the keys and values of others have matrices for their own, too. */
static void unread_keys_and_values(const char *name, const char *text, const char *path, uint32_t expected)
{
    uint32_t lines = 0;
    const struct rn_log log = {count_lines, &lines, RUNNEL_LOG_INFO};
    const struct rn_adapter_watch watch = {.log = &log};
    struct rn_adapter_stacks stacks;
    struct rn_adapters *adapters;
    struct rn_plan *plan;
    runnel_error error = {0};
    uint32_t with = 0;

    open_model(name, text, path, 0);
    assert_int_equal(find_targets(), expected);
    write_adapter(0);
    assert_int_equal(rn_plan_new(&f.heap, f.gguf, 0, &plan, NULL), RUNNEL_OK);
    if (rn_adapters_load(&f.heap, plan, sources(), 1, &watch, &adapters, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(lines, expected);
    for (uint32_t t = 0; t < f.n_targets; t++)
        with += rn_adapters_of(adapters, f.targets[t].tensor, &stacks);
    assert_int_equal(with, f.n_targets - expected);
    rn_plan_free(plan);
    rn_adapters_free(adapters);
    close_model();
}

static void what_has_no_effect_is_passed_over(void **state)
{
    (void)state;
    unread_keys_and_values("gemma3n-made-shared", MADE_TEXT("gemma3n-made-shared"), NULL, 2 * 2);
    unread_keys_and_values("gemma3n-dense", NULL, shared_path("oracles/arch/gemma3n-dense.gguf"), 2 * 2);
}

/* The plan of the edited model, and what it says of an adapter of tensor `name`. */
static void assert_refused(const struct model_edit *edit, const char *name, const char *says)
{
    struct writer w = {0};
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    runnel_error error = {0};
    bool is_read;

    edit_write(edit, &w);
    assert_int_equal(rn_gguf_parse(&f.heap, w.bytes, w.n, "edited", &gguf, NULL), RUNNEL_OK);
    if (rn_plan_new(&f.heap, gguf, 0, &plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(rn_plan_can_adapt(plan, rn_gguf_find_tensor(gguf, name), "some.gguf", &is_read, &error),
                     RUNNEL_UNSUPPORTED);
    if (strncmp(error.message, "some.gguf: adapters of tensor ", 30) != 0 || strstr(error.message, says) == NULL)
        fail_msg("%s", error.message);
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    w_free(&w);
}

/* No op reads them, either, but what they stand for has an effect. */
static void what_is_read_in_another_form_is_refused(void **state)
{
    const float *zeros;

    (void)state;
    open_model("deepseek2-made-lite", MADE_TEXT("deepseek2-made-lite"), NULL, 0);
    zeros = calloc(32 * 160, sizeof *zeros);
    assert_non_null(zeros);
    edit_from(&f.edit, f.gguf);
    edit_add_tensor(&f.edit, "blk.1.attn_kv_b.weight", 32, 160, zeros); /* [rank of the latent, heads (16 + 24)] */
    assert_refused(&f.edit, "blk.1.attn_kv_b.weight", "reads blk.1.attn_k_b.weight in its place");
    free((void *)zeros);
    close_model();
    open_model("qwen3next-moe", NULL, shared_path("oracles/arch/qwen3next-moe.gguf"), 0);
    edit_from(&f.edit, f.gguf);
    assert_refused(&f.edit, "blk.0.ssm_in.weight", "reads blk.0.attn_qkv.weight in its place");
    close_model();
    open_model("llama-made-longrope", MADE_TEXT("llama-made-longrope"), NULL, 0);
    edit_from(&f.edit, f.gguf);
    assert_refused(&f.edit, "rope_factors_long.weight", "does not multiply by it");
    close_model();
}

/* ---- llama.cpp ---- */

#define JUDGED(X)            \
    X("deepseek2-made-lite") \
    X("gemma2-made")         \
    X("glm4-made")           \
    X("gpt2-made")           \
    X("granite-made")        \
    X("lfm2-made-ways")      \
    X("llama-made-moe")      \
    X("llama-made-none")     \
    X("mamba-made")          \
    X("phi3-made-short")     \
    X("rwkv7-made")

static void judge_file(const char *name, const char *text, const char *adapter_text, const char *logits)
{
    struct rn_adapter_source source = {"only", f.paths[0], 1};
    struct writer adapter = {0};
    struct oracle oracle;
    struct run run;
    float *ours;

    open_model(name, text, name, 0);
    made_model_write(adapter_text, &adapter);
    w_save(&adapter, folder, "0.gguf");
    w_free(&adapter);
    snprintf(f.paths[0], sizeof f.paths[0], "%s/0.gguf", folder);
    for (size_t b = 0; b < 2; b++) {
        struct run_options options = options_of(backends[b], false);
        struct run_piece piece = {.adapter = 1};
        double error;

        options.adapters = &source;
        options.n_adapters = 1;
        run_open(&run, name, &options);
        oracle_open(&run.heap, logits, &oracle);
        ours = calloc((size_t)oracle.n_tokens * oracle.n_vocab, sizeof *ours);
        assert_true(ours != NULL && run.width == oracle.n_vocab);
        piece.n = oracle.n_tokens;
        piece.tokens = oracle.tokens;
        run_step(&run, &piece, 1);
        error = nmse(run.logits, oracle.logits, (size_t)oracle.n_tokens * oracle.n_vocab);
        print_message("%-9s %-28s nmse %.2g\n", backends[b], logits, error);
        assert_true(error <= 1e-6);
        free(ours);
        oracle_close(&run.heap, &oracle);
        run_close(&run);
    }
    close_model();
}

static void llama_cpp_agrees(void **state)
{
    (void)state;
#define JUDGE(name) \
    judge_file(name, MADE_TEXT(name), "tests/oracle/adapters/" name ".txt", "tests/oracle/adapters/" name ".logits");
    JUDGED(JUDGE)
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_cpp_agrees), cmocka_unit_test(what_has_no_effect_is_passed_over),
        cmocka_unit_test(what_is_read_in_another_form_is_refused), cmocka_unit_test(adapters_of_made_models_are_sums),
        cmocka_unit_test(adapters_are_sums)};
    int failed;

    shared_or_skip();
    assert_non_null(mkdtemp(folder));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < ADAPTERS; i++)
        unlink(f.paths[i]);
    rmdir(folder);
    return failed;
}
