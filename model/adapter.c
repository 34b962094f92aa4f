/* Loading LoRA adapters: see adapter.h. */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/one_line.h"
#include "model/build/build.h"

#define A_END ".lora_a"
#define B_END ".lora_b"

enum { NAME_BYTES = 96 }; /* of a tensor of the model, at most */

struct adapter {
    char name[RN_ADAPTER_NAME_BYTES];
    struct rn_gguf *gguf;
    float scale;
    double alpha;
};

/* What they do to one matrix. */
struct delta {
    const struct rn_tensor *target; /* of the model's file */
    struct rn_tensor a, b;
    void *memory; /* of both: a's, then ... */
    size_t b_at;  /* ... b's, so many bytes behind */
    uint32_t rank;
};

/* What a load works with. */
struct loading {
    const struct rn_plan *plan;
    const struct rn_adapter_watch *watch;
    runnel_error *error;
};

struct rn_adapters {
    struct rn_heap *heap;
    uint32_t n, n_deltas, deltas_room;
    struct adapter *list;
    struct delta *deltas;
    uint64_t bytes;
};

/* ---- What they are ---- */

uint32_t rn_adapters_count(const struct rn_adapters *adapters)
{
    return adapters == NULL ? 0 : adapters->n;
}

static const struct adapter *adapter_at(const struct rn_adapters *adapters, uint32_t number)
{
    RN_ASSERT(number >= 1 && number <= adapters->n);
    return &adapters->list[number - 1];
}

const struct rn_gguf *rn_adapter_gguf(const struct rn_adapters *adapters, uint32_t number)
{
    return adapter_at(adapters, number)->gguf;
}

float rn_adapter_scale(const struct rn_adapters *adapters, uint32_t number)
{
    return adapter_at(adapters, number)->scale;
}

uint32_t rn_adapters_find(const struct rn_adapters *adapters, const char *name)
{
    for (uint32_t i = 0; i < rn_adapters_count(adapters); i++)
        if (strcmp(adapters->list[i].name, name) == 0)
            return i + 1;
    return 0;
}

uint64_t rn_adapters_bytes(const struct rn_adapters *adapters)
{
    return adapters == NULL ? 0 : adapters->bytes;
}

/* NULL: there is none. */
static struct delta *find_delta(const struct rn_adapters *adapters, const struct rn_tensor *target)
{
    for (uint32_t i = 0; i < adapters->n_deltas; i++)
        if (adapters->deltas[i].target == target)
            return &adapters->deltas[i];
    return NULL;
}

bool rn_adapters_of(const struct rn_adapters *adapters, const struct rn_tensor *tensor,
                    struct rn_adapter_stacks *stacks)
{
    const struct delta *delta = find_delta(adapters, tensor);

    if (delta == NULL)
        return false;
    *stacks = (struct rn_adapter_stacks){&delta->a, &delta->b, delta->rank};
    return true;
}

/* ---- One file ---- */

static runnel_status expect(const struct rn_gguf *gguf, const char *key, struct rn_view wanted, runnel_error *error)
{
    struct rn_view value = {"", 0};
    runnel_status status = rn_gguf_get_string(gguf, key, true, &value, error);

    if (status != RUNNEL_OK)
        return status;
    if (value.n == wanted.n && memcmp(value.bytes, wanted.bytes, wanted.n) == 0)
        return RUNNEL_OK;
    return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: key %s is '%s', not '%s'", rn_gguf_path(gguf), key,
                        rn_quoted(value.bytes, value.n).text, rn_quoted(wanted.bytes, wanted.n).text);
}

/* It is a LoRA adapter for a model of that architecture. */
static runnel_status read_keys(const struct rn_gguf *gguf, const struct rn_gguf *model, double *alpha,
                               runnel_error *error)
{
    struct rn_view architecture = {"", 0};
    runnel_status status = expect(gguf, "general.type", (struct rn_view){"adapter", 7}, error);

    *alpha = 0;
    if (status == RUNNEL_OK)
        status = expect(gguf, "adapter.type", (struct rn_view){"lora", 4}, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_string(model, "general.architecture", true, &architecture, error);
    if (status == RUNNEL_OK)
        status = expect(gguf, "general.architecture", architecture, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_f64(gguf, "adapter.lora.alpha", false, -1e6, 1e6, alpha, error);
    if (status == RUNNEL_OK && rn_gguf_find(gguf, "adapter.alora.invocation_tokens") != NULL)
        status = rn_error_set(error, RUNNEL_UNSUPPORTED,
                              "%s: key adapter.alora.invocation_tokens: an adapter that some tokens of a prompt turn "
                              "on is not supported",
                              rn_gguf_path(gguf));
    return status;
}

/* The part of a tensor's name in front of `end`, in `name`; false: it does not end so. */
static bool base_name(const struct rn_tensor *tensor, const char *end, char *name, size_t size)
{
    size_t n = strlen(end);

    if (tensor->name.n <= n || tensor->name.n - n >= size ||
        memcmp(tensor->name.bytes + tensor->name.n - n, end, n) != 0)
        return false;
    snprintf(name, size, "%.*s", (int)(tensor->name.n - n), tensor->name.bytes);
    return true;
}

/* A and B of the matrix `target`, checked. */
static runnel_status find_pair(const struct rn_gguf *gguf, const struct rn_tensor *target, const char *name,
                               const struct rn_tensor **a, const struct rn_tensor **b, runnel_error *error)
{
    char full[NAME_BYTES + sizeof A_END];

    snprintf(full, sizeof full, "%s" A_END, name);
    *a = rn_gguf_find_tensor(gguf, full);
    snprintf(full, sizeof full, "%s" B_END, name);
    *b = rn_gguf_find_tensor(gguf, full);
    if (*a == NULL || *b == NULL)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: tensor %s%s is missing", rn_gguf_path(gguf), name,
                            *a == NULL ? A_END : B_END);
    if ((*a)->dims[0] != target->dims[0] || (*b)->dims[1] != target->dims[1] || (*a)->dims[1] != (*b)->dims[0] ||
        (*a)->dims[2] != 1 || (*b)->dims[2] != 1 || (*a)->dims[3] != 1 || (*b)->dims[3] != 1)
        return rn_error_set(error, RUNNEL_FORMAT,
                            "%s: tensors %s" A_END ", [%llu, %llu], and " B_END ", [%llu, %llu], do not fit a matrix "
                            "[%llu, %llu]",
                            rn_gguf_path(gguf), name, (unsigned long long)(*a)->dims[0],
                            (unsigned long long)(*a)->dims[1], (unsigned long long)(*b)->dims[0],
                            (unsigned long long)(*b)->dims[1], (unsigned long long)target->dims[0],
                            (unsigned long long)target->dims[1]);
    if ((*a)->dims[1] > RN_MAX_RANK)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: tensor %s" A_END ": a rank of %llu is more than %d",
                            rn_gguf_path(gguf), name, (unsigned long long)(*a)->dims[1], RN_MAX_RANK);
    if (!rn_build_computable((*a)->type) || !rn_build_computable((*b)->type))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: tensors %s" A_END " and " B_END " are not of numbers",
                            rn_gguf_path(gguf), name);
    return RUNNEL_OK;
}

/* ---- Stacks ---- */

/* NULL: no memory. */
static struct delta *add_delta(struct rn_adapters *adapters, const struct rn_tensor *target)
{
    uint32_t more = adapters->deltas_room == 0 ? 64 : adapters->deltas_room * 2;
    struct delta *bigger;

    if (adapters->n_deltas == adapters->deltas_room) {
        bigger = rn_realloc(adapters->heap, adapters->deltas, more, sizeof *bigger);
        if (bigger == NULL)
            return NULL;
        adapters->deltas = bigger;
        adapters->deltas_room = more;
    }
    adapters->deltas[adapters->n_deltas] = (struct delta){.target = target, .b = {.type = UINT32_MAX}};
    return &adapters->deltas[adapters->n_deltas++];
}

static bool is_plain(uint32_t type)
{
    return type == RN_F32 || type == RN_F16 || type == RN_BF16;
}

/* The type of B's stack behind one more tensor: the one that all have, else F32, which holds what any other does. A's,
 * which have factors, are F32. */
static uint32_t joined(uint32_t type, uint32_t other)
{
    if (type == UINT32_MAX && is_plain(other))
        return other;
    return type == other ? type : RN_F32;
}

/* Notes what a pair of the file does to `target`. */
static runnel_status note_pair(struct rn_adapters *adapters, const struct loading *l, const struct rn_gguf *gguf,
                               const struct rn_tensor *target, const struct rn_tensor *a, const struct rn_tensor *b)
{
    struct delta *delta = find_delta(adapters, target);
    runnel_status status;
    bool is_read;

    if (delta == NULL) {
        status = rn_plan_can_adapt(l->plan, target, rn_gguf_path(gguf), &is_read, l->error);
        if (status != RUNNEL_OK)
            return status;
        if (!is_read) {
            rn_log(l->watch->log, RUNNEL_LOG_INFO,
                   "%s: the adapter of tensor %.*s is passed over: the model computes nothing with that tensor",
                   rn_gguf_path(gguf), (int)target->name.n, target->name.bytes);
            return RUNNEL_OK;
        }
        delta = add_delta(adapters, target);
    }
    if (delta == NULL)
        return rn_error_set(l->error, RUNNEL_NO_MEMORY, "%s: no memory for the adapter", rn_gguf_path(gguf));
    delta->b.type = joined(delta->b.type, b->type);
    delta->rank = a->dims[1] > delta->rank ? (uint32_t)a->dims[1] : delta->rank;
    return RUNNEL_OK;
}

/* Notes what the adapter changes. */
static runnel_status note(struct rn_adapters *adapters, const struct loading *l, const struct rn_gguf *gguf)
{
    const struct rn_tensor *tensor, *target, *a, *b;
    runnel_status status = RUNNEL_OK;
    runnel_error *error = l->error;
    char name[NAME_BYTES];

    if (rn_gguf_n_tensors(gguf) == 0)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: an adapter without tensors", rn_gguf_path(gguf));
    for (uint64_t i = 0; i < rn_gguf_n_tensors(gguf) && status == RUNNEL_OK; i++) {
        tensor = rn_gguf_tensor(gguf, i);
        if (!base_name(tensor, A_END, name, sizeof name) && !base_name(tensor, B_END, name, sizeof name))
            return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: tensor %s is not one of a pair " A_END ", " B_END,
                                rn_gguf_path(gguf), rn_quoted(tensor->name.bytes, tensor->name.n).text);
        target = rn_gguf_find_tensor(l->plan->gguf, name);
        if (target == NULL)
            return rn_error_set(error, RUNNEL_FORMAT, "%s: tensor %s: the model has no tensor %s", rn_gguf_path(gguf),
                                rn_quoted(tensor->name.bytes, tensor->name.n).text, name);
        status = find_pair(gguf, target, name, &a, &b, error);
        if (status == RUNNEL_OK && tensor == a)
            status = note_pair(adapters, l, gguf, target, a, b);
    }
    return status;
}

static struct rn_tensor stack(const struct delta *delta, uint32_t type, uint64_t cols, uint64_t rows, uint64_t n,
                              const void *data)
{
    struct rn_tensor tensor = {.name = delta->target->name, .type = type, .n_dims = 3, .dims = {cols, rows, n, 1}};

    tensor.elements = cols * rows * n;
    tensor.bytes = rn_type_bytes(rn_type(type), tensor.elements);
    tensor.data = data;
    return tensor;
}

/* Zeros, which are F16 and BF16, too: of what no adapter has, and of number 0. */
static bool take_stacks(struct rn_adapters *adapters, struct delta *delta)
{
    uint64_t n = (uint64_t)adapters->n + 1, cols = delta->target->dims[0], rows = delta->target->dims[1];
    size_t bytes;

    if (cols > UINT32_MAX || rows > UINT32_MAX || cols + rows > SIZE_MAX / 16 / n / delta->rank)
        return false;
    delta->b_at = n * delta->rank * cols * sizeof(float);
    bytes = delta->b_at + n * delta->rank * rows * rn_type(delta->b.type)->bytes;
    delta->memory = rn_calloc(adapters->heap, bytes, 1);
    if (delta->memory == NULL)
        return false;
    delta->a = stack(delta, RN_F32, cols, delta->rank, n, delta->memory);
    delta->b = stack(delta, delta->b.type, delta->rank, rows, n, (char *)delta->memory + delta->b_at);
    adapters->bytes += bytes;
    return true;
}

/* Row `row` of a tensor in the type `to`, which is its own or F32. */
static void copy_row(const struct rn_tensor *from, uint64_t row, uint32_t to, void *out)
{
    const struct rn_type *type = rn_type(from->type);
    const char *data = (const char *)from->data + row * rn_type_bytes(type, from->dims[0]);

    if (from->type == to)
        memcpy(out, data, rn_type_bytes(type, from->dims[0]));
    else
        type->decode(data, out, from->dims[0]);
}

/* The adapter's part of the stacks; it stays zeros where the adapter has nothing for this matrix. */
static void fill(struct delta *delta, const struct adapter *adapter, uint32_t number)
{
    const uint64_t cols = delta->target->dims[0], rows = delta->target->dims[1];
    const size_t b_row = delta->rank * (size_t)rn_type(delta->b.type)->bytes;
    float *a_out = (float *)delta->memory + (uint64_t)number * delta->rank * cols, factor = adapter->scale;
    char *b_out = (char *)delta->memory + delta->b_at + (uint64_t)number * rows * b_row;
    const struct rn_tensor *a, *b;
    char name[NAME_BYTES + sizeof A_END];

    snprintf(name, sizeof name, "%.*s" A_END, (int)delta->target->name.n, delta->target->name.bytes);
    a = rn_gguf_find_tensor(adapter->gguf, name);
    snprintf(name, sizeof name, "%.*s" B_END, (int)delta->target->name.n, delta->target->name.bytes);
    b = rn_gguf_find_tensor(adapter->gguf, name);
    if (a == NULL || b == NULL)
        return;
    if (adapter->alpha != 0)
        factor = (float)(adapter->alpha / (double)a->dims[1] * adapter->scale);
    for (uint64_t i = 0; i < a->dims[1]; i++)
        copy_row(a, i, RN_F32, a_out + i * cols);
    for (uint64_t i = 0; i < a->dims[1] * cols; i++)
        a_out[i] *= factor;
    for (uint64_t i = 0; i < rows; i++)
        copy_row(b, i, delta->b.type, b_out + i * b_row);
}

/* ---- All of them ---- */

static bool goes_on(const struct rn_adapter_watch *watch)
{
    return watch->goes_on == NULL || watch->goes_on(watch->user);
}

static runnel_status load(struct rn_adapters *adapters, const struct loading *l, const struct rn_adapter_source *source,
                          struct adapter *adapter)
{
    runnel_status status;

    RN_ASSERT(strlen(source->name) < sizeof adapter->name && isfinite(source->scale));
    if (!goes_on(l->watch))
        return RUNNEL_CANCELLED;
    snprintf(adapter->name, sizeof adapter->name, "%s", source->name);
    adapter->scale = source->scale;
    status = rn_gguf_open(adapters->heap, source->path, &adapter->gguf, l->error);
    if (status == RUNNEL_OK)
        status = read_keys(adapter->gguf, l->plan->gguf, &adapter->alpha, l->error);
    return status == RUNNEL_OK ? note(adapters, l, adapter->gguf) : status;
}

static runnel_status fill_stacks(struct rn_adapters *adapters, const struct loading *l, struct delta *delta)
{
    if (!goes_on(l->watch))
        return RUNNEL_CANCELLED;
    if (!take_stacks(adapters, delta))
        return rn_error_set(l->error, RUNNEL_NO_MEMORY, "no memory for the adapters of %s",
                            rn_gguf_path(l->plan->gguf));
    for (uint32_t i = 1; i <= adapters->n; i++) {
        if (!goes_on(l->watch))
            return RUNNEL_CANCELLED;
        fill(delta, adapter_at(adapters, i), i);
    }
    return RUNNEL_OK;
}

runnel_status rn_adapters_load(struct rn_heap *heap, const struct rn_plan *plan,
                               const struct rn_adapter_source *sources, uint32_t n,
                               const struct rn_adapter_watch *watch, struct rn_adapters **out, runnel_error *error)
{
    const struct rn_adapter_watch nobody = {NULL, NULL, NULL};
    const struct loading l = {plan, watch != NULL ? watch : &nobody, error};
    struct rn_adapters *adapters = rn_calloc(heap, 1, sizeof *adapters);
    runnel_status status = RUNNEL_OK;

    RN_ASSERT(n >= 1 && n <= RN_MAX_ADAPTERS);
    if (adapters == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for adapters");
    *adapters = (struct rn_adapters){.heap = heap, .n = n};
    adapters->list = rn_calloc(heap, n, sizeof *adapters->list);
    if (adapters->list == NULL)
        status = rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for adapters");
    for (uint32_t i = 0; i < n && status == RUNNEL_OK; i++)
        status = load(adapters, &l, &sources[i], &adapters->list[i]);
    for (uint32_t i = 0; i < adapters->n_deltas && status == RUNNEL_OK; i++)
        status = fill_stacks(adapters, &l, &adapters->deltas[i]);
    if (status == RUNNEL_OK)
        *out = adapters;
    else
        rn_adapters_free(adapters);
    return status;
}

void rn_adapters_free(struct rn_adapters *adapters)
{
    if (adapters == NULL)
        return;
    for (uint32_t i = 0; adapters->list != NULL && i < adapters->n; i++)
        if (adapters->list[i].gguf != NULL)
            rn_gguf_free(adapters->list[i].gguf);
    for (uint32_t i = 0; i < adapters->n_deltas; i++)
        rn_free(adapters->heap, adapters->deltas[i].memory);
    rn_free(adapters->heap, adapters->list);
    rn_free(adapters->heap, adapters->deltas);
    rn_free(adapters->heap, adapters);
}
