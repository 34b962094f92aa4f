/* What a model asks of the machine, from the head of its file.
 *
 * A step reads every weight once, whatever the number of its rows, and of experts those that some row chose: of E
 * experts, k for each of r rows, if choices are even,
 *
 *     E (1 - (1 - k/E)^r)
 *
 * An answer's token reads the keys and values of all positions before it too; a chunk of a prompt reads those once.
 * Tables of which a row is looked up are not read and not multiplied, but for one that is the head as well.
 * Operations are those with weights, two for each weight: attention's own are left out, so that the limit told is
 * never too low. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "runnel_files.h"

enum { MAX_TYPES = 64 };

struct type_bytes {
    const char *type;
    uint64_t bytes;
};

static bool is_named(const runnel_tensor *tensor, const char *name)
{
    return tensor->name_bytes == strlen(name) && memcmp(tensor->name, name, tensor->name_bytes) == 0;
}

static bool is_table(const runnel_tensor *tensor)
{
    return is_named(tensor, "position_embd.weight") || is_named(tensor, "token_types.weight") ||
           is_named(tensor, "per_layer_token_embd.weight");
}

static bool is_float(const char *type)
{
    return strcmp(type, "F32") == 0 || strcmp(type, "F16") == 0 || strcmp(type, "BF16") == 0 ||
           strcmp(type, "F64") == 0;
}

static bool has_head(const runnel_file *file)
{
    runnel_tensor tensor = {.struct_size = sizeof tensor};

    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
        if (is_named(&tensor, "output.weight"))
            return true;
    return false;
}

static double metadata_number(const runnel_file *file, const char *architecture, const char *rest)
{
    size_t n = 0;
    char *text = app_file_text(file, architecture, rest, &n);
    double value = text != NULL ? strtod(text, NULL) : 0;

    free(text);
    return value > 0 ? value : 0;
}

static void add_tensor(struct bench_cost *cost, const runnel_tensor *tensor, bool own_head)
{
    bool is_embedding = is_named(tensor, "token_embd.weight");
    bool is_head = is_embedding ? !own_head : is_named(tensor, "output.weight");
    bool is_expert = memmem(tensor->name, tensor->name_bytes, "_exps.", 6) != NULL;
    double ops =
        2.0 * (double)tensor->dims[0] * (double)tensor->dims[1] * (double)tensor->dims[2] * (double)tensor->dims[3];

    if ((is_embedding && own_head) || is_table(tensor))
        return;
    *(is_expert ? &cost->expert_bytes : &cost->bytes) += (double)tensor->bytes;
    if (tensor->n_dims < 2)
        return;
    if (is_expert)
        ops *= cost->experts_used / cost->experts;
    if (is_head)
        *(is_float(tensor->type) ? &cost->head_float_ops : &cost->head_integer_ops) += ops;
    else
        *(is_float(tensor->type) ? &cost->float_ops : &cost->integer_ops) += ops;
}

/* The type with the most bytes. */
static void find_format(struct bench_cost *cost, const runnel_file *file)
{
    struct type_bytes types[MAX_TYPES];
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    size_t n = 0, at = 0, best = 0;

    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++) {
        for (at = 0; at < n && strcmp(types[at].type, tensor.type) != 0; at++)
            continue;
        if (at == MAX_TYPES)
            continue;
        if (at == n)
            types[n++] = (struct type_bytes){tensor.type, 0};
        types[at].bytes += tensor.bytes;
        if (types[at].bytes > types[best].bytes)
            best = at;
    }
    snprintf(cost->format, sizeof cost->format, "%s", n > 0 ? types[best].type : "none");
}

static void read_experts(struct bench_cost *cost, const runnel_file *file)
{
    cost->experts = metadata_number(file, cost->architecture, ".expert_count");
    cost->experts_used = metadata_number(file, cost->architecture, ".expert_used_count");
    if (cost->experts < 1 || cost->experts_used < 1 || cost->experts_used > cost->experts)
        cost->experts = cost->experts_used = 1; /* all of each tensor is used */
}

int bench_cost_read(struct bench_cost *cost, const char *path, runnel_kv_type kv_type)
{
    runnel_file *file = NULL;
    runnel_file_info info = {.struct_size = sizeof info};
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    runnel_error error = {0};
    char *text = NULL;
    size_t n = 0;
    bool own_head = false;

    *cost = (struct bench_cost){0};
    error.status = runnel_file_open(path, &file, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    runnel_file_get_info(file, &info);
    cost->file_bytes = info.file_bytes;
    text = app_file_text(file, "general.architecture", "", &n);
    snprintf(cost->architecture, sizeof cost->architecture, "%s", text != NULL ? text : "");
    free(text);
    read_experts(cost, file);
    find_format(cost, file);
    own_head = has_head(file);
    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
        add_tensor(cost, &tensor, own_head);
    error.status = runnel_file_kv_bytes_per_token(file, kv_type, &cost->kv_bytes_per_token, &error);
    runnel_file_close(file);
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

/* Bytes of weights that a step of so many rows reads. */
static double step_bytes(const struct bench_cost *cost, double rows)
{
    double share = 1 - pow(1 - cost->experts_used / cost->experts, rows);

    return cost->bytes + cost->expert_bytes * share;
}

/* How many positions and means attention reads behind so many positions: with --chunk-mean the first 64, the window and
 * half a chunk on average, and one for each 64 others. */
static double entries_read(const struct bench_cost *cost, double depth)
{
    double exact = 64 + 32 + (double)cost->chunk_mean;

    return cost->chunk_mean == 0 || depth < exact ? depth : exact + (depth - exact) / 64;
}

static struct bench_need decode_need(const struct bench_cost *cost, const struct bench_test *test)
{
    double depth = test->depth + test->tokens / 2.0; /* on average */

    return (struct bench_need){
        .bytes = step_bytes(cost, test->streams) / test->streams +
                 entries_read(cost, depth) * (double)cost->kv_bytes_per_token,
        .integer_ops = cost->integer_ops + cost->head_integer_ops,
        .float_ops = cost->float_ops + cost->head_float_ops,
    };
}

static struct bench_need prefill_need(const struct bench_cost *cost, const struct bench_test *test, double batch)
{
    double tokens = test->tokens, all = tokens * test->streams, steps = ceil(all / batch);
    double chunks = ceil(tokens / batch), kv = 0;

    for (double i = 1; i <= chunks; i++)
        kv += entries_read(cost, fmin(tokens, i * batch)) * (double)cost->kv_bytes_per_token;
    return (struct bench_need){
        .bytes = (steps * step_bytes(cost, fmin(all, batch)) + kv * test->streams) / all,
        .integer_ops = cost->integer_ops + cost->head_integer_ops / tokens,
        .float_ops = cost->float_ops + cost->head_float_ops / tokens,
    };
}

struct bench_need bench_cost_need(const struct bench_cost *cost, const struct bench_test *test, uint32_t batch_tokens)
{
    return test->decode ? decode_need(cost, test) : prefill_need(cost, test, batch_tokens);
}
