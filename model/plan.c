/* Making, freeing and measuring plans: see plan.h. The checker is in plan_check.c. */
#include "model/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/one_line.h"
#include "model/build/build.h"
#include "model/kv.h"

/* The context of a request for 0: what most machines can hold. */
enum { DEFAULT_CONTEXT = 8192 };

/* The row of the file's host. */
static const struct rn_arch *find_own(const struct rn_arch_rows *rows, struct rn_view name)
{
    for (size_t i = 0; rows != NULL && i < rows->n; i++)
        if (strlen(rows->rows[i].name) == name.n && memcmp(rows->rows[i].name, name.bytes, name.n) == 0)
            return &rows->rows[i].arch;
    return NULL;
}

/* Keys of the architecture begin with its name. */
static bool is_name(struct rn_view name)
{
    size_t i;

    for (i = 0; i < name.n; i++)
        if (name.bytes[i] <= ' ' || name.bytes[i] > '~')
            return false;
    return name.n > 0 && name.n < RN_ARCH_NAME_BYTES;
}

runnel_status rn_plan_arch(const struct rn_gguf *gguf, struct rn_arch_choice *choice, runnel_error *error)
{
    struct rn_view name = {"", 0};
    runnel_status status = rn_gguf_get_string(gguf, "general.architecture", true, &name, error);
    const struct rn_arch *arch;

    if (status != RUNNEL_OK)
        return status;
    choice->assumed[0] = '\0';
    arch = rn_arch_find(name);
    if (arch == NULL)
        arch = find_own(rn_gguf_rows(gguf), name);
    if (arch != NULL) {
        choice->arch = *arch;
        return RUNNEL_OK;
    }
    if (!is_name(name))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: architecture '%s' is not supported", rn_gguf_path(gguf),
                            rn_quoted(name.bytes, name.n).text);
    snprintf(choice->name, sizeof choice->name, "%.*s", (int)name.n, name.bytes);
    return rn_arch_standard(gguf, choice, error);
}

/* The vocabulary has as many tokens as the embedding has rows; where the file also lists or counts
 * the tokens, that must agree. */
static runnel_status read_vocab(struct rn_build *b)
{
    const struct rn_gguf *gguf = b->plan->gguf;
    const struct rn_tensor *embedding = rn_gguf_find_tensor(b->target != NULL ? b->target : gguf, "token_embd.weight");
    const struct rn_gguf_entry *tokens = rn_gguf_find(gguf, "tokenizer.ggml.tokens");
    char key[RN_KEY_BYTES];
    uint64_t n;

    if (embedding == NULL) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor token_embd.weight is missing");
        return b->status;
    }
    n = embedding->dims[1];
    if (n > RN_MAX_VOCAB)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor token_embd.weight has too many rows");
    b->plan->n_vocab = (uint32_t)n;
    rn_hparams_key(&b->hparams, "vocab_size", key);
    if (tokens != NULL && tokens->type == RN_GGUF_ARRAY && tokens->count != n)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor token_embd.weight has %llu rows, key tokenizer.ggml.tokens %llu",
                      (unsigned long long)n, (unsigned long long)tokens->count);
    else if (tokens == NULL && b->status == RUNNEL_OK)
        b->status = rn_gguf_get_u64(gguf, key, false, n, n, &n, b->error);
    return b->status;
}

static void check_taps(struct rn_build *b)
{
    for (uint32_t i = 0; i < b->n_taps; i++)
        if (b->taps[i] >= b->n_blocks || (i > 0 && b->taps[i] <= b->taps[i - 1]))
            rn_build_fail(b, RUNNEL_INVALID, "blocks to be tapped: %u is not one of 0 to %u, in ascending order",
                          b->taps[i], b->n_blocks - 1);
}

static void fill_sizes(struct rn_build *b, uint32_t context_tokens)
{
    struct rn_plan *plan = b->plan;

    plan->n_nextn = b->hparams.n_nextn;
    b->n_blocks = b->hparams.n_layers - plan->n_nextn;
    if (b->exit >= b->n_blocks)
        rn_build_fail(b, RUNNEL_INVALID, "an exit behind %u blocks of %u", b->exit, b->n_blocks);
    if (b->exit > 0)
        b->n_blocks = b->exit;
    b->last = (int32_t)b->n_blocks - 1;
    check_taps(b);
    plan->embedding = b->hparams.embedding;
    plan->bidirectional = !b->hparams.causal;
    plan->features_width = b->fuse != NULL ? rn_build_fused_width(b) : b->n_taps * b->hparams.embedding;
    plan->n_layers = b->n_blocks;
    plan->trained_tokens = b->hparams.trained_tokens;
    plan->context_tokens = context_tokens;
    if (context_tokens == 0)
        plan->context_tokens = plan->trained_tokens < DEFAULT_CONTEXT ? plan->trained_tokens : DEFAULT_CONTEXT;
    if (context_tokens > RN_MAX_CONTEXT)
        rn_build_fail(b, RUNNEL_INVALID, "a context of %u positions is more than the %d allowed", context_tokens,
                      RN_MAX_CONTEXT);
}

static int by_address(const void *a, const void *b)
{
    const struct rn_tensor *const *x = a, *const *y = b;

    return (*x > *y) - (*x < *y);
}

/* One of a prediction layer's, which lie behind the blocks and have a plan of their own; in that plan, whatever is not
 * the layer's; or, in a head's file, what the target's plan reads. */
static bool read_elsewhere(const struct rn_build *b, struct rn_view name)
{
    char stem[32], *end;
    unsigned long block;

    snprintf(stem, sizeof stem, "%.*s", (int)(name.n < sizeof stem ? name.n : sizeof stem - 1), name.bytes);
    if (b->target != NULL &&
        (strcmp(stem, "fc.weight") == 0 || (b->facts->norm_before_fc && strcmp(stem, "enc.output_norm.weight") == 0)))
        return true;
    if (strncmp(stem, "blk.", 4) != 0)
        return b->only_nextn;
    block = strtoul(stem + 4, &end, 10);
    if (b->only_nextn)
        return block < b->hparams.n_layers && block != b->n_blocks + b->nextn && *end == '.';
    return block >= b->hparams.n_layers - b->plan->n_nextn && block < b->hparams.n_layers && *end == '.';
}

static bool is_weight(const struct rn_plan *plan, const struct rn_tensor *tensor)
{
    for (uint32_t i = 0; i < plan->n_weights; i++)
        if (plan->weights[i].tensor == tensor)
            return true;
    return false;
}

/* "<stem>.scale" beside a "<stem>.weight" that no op reads, which has its own verdict; and "<stem>.input_scale" beside
 * any, which says what the inputs of products were once scaled by: nothing is computed with it. */
static bool is_idle_scale(const struct rn_plan *plan, struct rn_view name)
{
    static const char *const ends[] = {".input_scale", ".scale"};
    const struct rn_tensor *weight;
    char full[RN_BUILD_NAME_BYTES + 8];
    size_t i, n;

    for (i = 0; i < 2; i++) {
        n = strlen(ends[i]);
        if (name.n <= n || name.n > RN_BUILD_NAME_BYTES || memcmp(name.bytes + name.n - n, ends[i], n) != 0)
            continue;
        snprintf(full, sizeof full, "%.*s.weight", (int)(name.n - n), name.bytes);
        weight = rn_gguf_find_tensor(plan->gguf, full);
        return weight != NULL && (i == 0 || !is_weight(plan, weight));
    }
    return false;
}

/* A tensor that no op reads would change the result if it were read: refused by name. */
static void refuse_unread(struct rn_build *b)
{
    struct rn_plan *plan = b->plan;
    const struct rn_tensor **read, *tensor;
    uint64_t i, n = rn_gguf_n_tensors(plan->gguf);

    if (b->status != RUNNEL_OK || b->partial)
        return;
    read = rn_alloc(plan->heap, (size_t)plan->n_weights + b->n_ignored, sizeof *read);
    if (read == NULL) {
        rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
        return;
    }
    for (i = 0; i < plan->n_weights; i++)
        read[i] = plan->weights[i].tensor;
    for (i = 0; i < b->n_ignored; i++)
        read[plan->n_weights + i] = b->ignored[i];
    qsort(read, (size_t)plan->n_weights + b->n_ignored, sizeof *read, by_address);
    for (i = 0; i < n && b->status == RUNNEL_OK; i++) {
        tensor = rn_gguf_tensor(plan->gguf, i);
        if (bsearch(&tensor, read, (size_t)plan->n_weights + b->n_ignored, sizeof *read, by_address) != NULL ||
            rn_build_is_divisors(tensor->name) || read_elsewhere(b, tensor->name) ||
            rn_build_is_unused(b, tensor->name) || is_idle_scale(plan, tensor->name))
            continue;
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor %.*s is not part of architecture %s as it is known here",
                      (int)(tensor->name.n < 64 ? tensor->name.n : 64), tensor->name.bytes, plan->architecture);
    }
    rn_free(plan->heap, read);
}

/* How a row without experts would weigh them is not known: where its file has some, none is guessed. */
static void refuse_experts(struct rn_build *b)
{
    if (b->arch->experts != 0 || b->status != RUNNEL_OK)
        return;
    for (b->layer = 0; (uint32_t)b->layer < b->hparams.n_layers; b->layer++)
        if (rn_build_has(b, "blk.%d.ffn_gate_inp.weight"))
            rn_build_fail(b, RUNNEL_UNSUPPORTED,
                          "tensor blk.%d.ffn_gate_inp.weight chooses experts, which architecture %s has none of as it "
                          "is known here",
                          (int)b->layer, b->plan->architecture);
    b->layer = -1;
}

/* A recurrent state knows what stands before a row alone. Convolutions, each of which has one, can look ahead. */
static void refuse_states_both_ways(struct rn_build *b)
{
    const struct rn_plan *plan = b->plan;
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_ops; i++)
        n += plan->ops[i].kind == RN_OP_CONV && plan->ops[i].ahead > 0;
    if (plan->bidirectional && n < plan->n_state_layers)
        rn_build_fail(b, RUNNEL_UNSUPPORTED,
                      "key %s.attention.causal asks for attention in both directions beside recurrent states",
                      b->hparams.architecture);
}

/* Any number is let through: it only matters to who asks for embeddings. */
static void read_pooling(struct rn_build *b)
{
    char key[RN_KEY_BYTES];
    uint64_t pooling = 0;

    if (b->status != RUNNEL_OK)
        return;
    rn_hparams_key(&b->hparams, "pooling_type", key);
    b->status = rn_gguf_get_u64(b->plan->gguf, key, false, 0, UINT32_MAX, &pooling, b->error);
    b->plan->pooling = (uint32_t)pooling;
}

static void build(struct rn_build *b, const struct rn_arch *arch, uint32_t context_tokens)
{
    struct rn_heap *heap = b->plan->heap;

    b->status = rn_hparams_read(heap, b->plan->gguf, arch, &b->hparams, b->error);
    if (b->status != RUNNEL_OK)
        return;
    fill_sizes(b, context_tokens);
    refuse_experts(b);
    if (read_vocab(b) == RUNNEL_OK)
        (arch->build != NULL ? arch->build : rn_build_decoder)(b);
    refuse_states_both_ways(b);
    read_pooling(b);
    refuse_unread(b);
    rn_hparams_fini(heap, &b->hparams);
    rn_free(heap, b->slot_free);
    rn_free(heap, b->ignored);
}

runnel_status rn_plan_make(struct rn_build *b, struct rn_heap *heap, const struct rn_gguf *gguf,
                           const struct rn_arch *arch, uint32_t context_tokens, struct rn_plan **out)
{
    char flaw[128];

    b->layer = b->tapped = b->carried = b->per_layer = b->chosen = b->routed = -1;
    b->source = gguf;
    b->arch = arch;
    b->plan = rn_calloc(heap, 1, sizeof *b->plan);
    if (b->plan == NULL)
        return rn_error_set(b->error, RUNNEL_NO_MEMORY, "%s: no memory for the plan", rn_gguf_path(gguf));
    b->plan->heap = heap;
    b->plan->gguf = gguf;
    snprintf(b->plan->architecture, sizeof b->plan->architecture, "%s", arch->name);
    snprintf(b->plan->assumed, sizeof b->plan->assumed, "%s", b->assumed != NULL ? b->assumed : "");
    build(b, arch, context_tokens);
    if (b->status == RUNNEL_OK && rn_plan_flaw(b->plan, flaw, sizeof flaw))
        rn_build_fail(b, RUNNEL_FORMAT, "its tensors and keys do not fit together as architecture %s: %s", arch->name,
                      flaw);
    if (b->status != RUNNEL_OK) {
        rn_plan_free(b->plan);
        return b->status;
    }
    *out = b->plan;
    return RUNNEL_OK;
}

/* A file of an architecture that is not known is not wrong: it is no standard decoder. */
static runnel_status say_unknown(const struct rn_arch_choice *choice, runnel_status status, runnel_error *error)
{
    char why[RUNNEL_ERROR_BYTES];

    if (choice->assumed[0] == '\0' || (status != RUNNEL_FORMAT && status != RUNNEL_UNSUPPORTED))
        return status;
    if (error == NULL)
        return RUNNEL_UNSUPPORTED;
    snprintf(why, sizeof why, "%s", error->message);
    rn_error_clear(error);
    return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s (architecture '%s' is not known)", why, choice->name);
}

static runnel_status make(struct rn_build *b, struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                          struct rn_plan **out)
{
    struct rn_arch_choice choice;
    runnel_status status = rn_plan_arch(gguf, &choice, b->error);

    if (status != RUNNEL_OK)
        return status;
    b->assumed = choice.assumed;
    return say_unknown(&choice, rn_plan_make(b, heap, gguf, &choice.arch, context_tokens, out), b->error);
}

runnel_status rn_plan_new(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                          struct rn_plan **out, runnel_error *error)
{
    struct rn_build b = {.error = error};

    return make(&b, heap, gguf, context_tokens, out);
}

runnel_status rn_plan_new_tapped(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                                 const uint32_t *blocks, uint32_t n, struct rn_plan **out, runnel_error *error)
{
    struct rn_build b = {.error = error, .taps = blocks, .n_taps = n};

    return make(&b, heap, gguf, context_tokens, out);
}

runnel_status rn_plan_new_exit(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens, uint32_t n,
                               struct rn_plan **out, runnel_error *error)
{
    struct rn_build b = {.error = error, .exit = n, .partial = true};

    if (n == 0)
        return rn_error_set(error, RUNNEL_INVALID, "%s: an exit behind no block", rn_gguf_path(gguf));
    return make(&b, heap, gguf, context_tokens, out);
}

void rn_plan_free(struct rn_plan *plan)
{
    uint32_t i;

    if (plan == NULL)
        return;
    for (i = 0; i < plan->n_ropes; i++)
        rn_free(plan->heap, plan->ropes[i].inv_freq);
    rn_free(plan->heap, plan->ops);
    rn_free(plan->heap, plan->slots);
    rn_free(plan->heap, plan->weights);
    rn_free(plan->heap, plan->ropes);
    rn_free(plan->heap, plan->kv_layers);
    rn_free(plan->heap, plan->state_layers);
    rn_free(plan->heap, plan);
}

static uint64_t layer_bytes(const struct rn_kv_layer *layer, runnel_kv_type kv_type)
{
    return (uint64_t)layer->kv_heads * (rn_kv_row_bytes(kv_type, layer->k_width / layer->kv_heads) +
                                        rn_kv_row_bytes(kv_type, layer->v_width / layer->kv_heads));
}

uint64_t rn_plan_kv_bytes(const struct rn_plan *plan, runnel_kv_type kv_type)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->n_kv_layers; i++)
        bytes += layer_bytes(&plan->kv_layers[i], kv_type);
    return bytes;
}

uint32_t rn_plan_layer_window(const struct rn_plan *plan, uint32_t layer)
{
    uint32_t widest = 0;

    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];

        if (op->kind == RN_OP_ATTENTION && op->second == layer + 1)
            return 0;
        if (op->kind != RN_OP_ATTENTION || (uint32_t)op->layer != layer)
            continue;
        if (op->window == 0 || op->bidirectional)
            return 0;
        widest = op->window > widest ? op->window : widest;
    }
    return widest;
}

uint32_t rn_plan_window(const struct rn_plan *plan)
{
    uint32_t widest = 0;

    for (uint32_t i = 0; i < plan->n_kv_layers; i++) {
        uint32_t window = rn_plan_layer_window(plan, i);

        widest = window > widest ? window : widest;
    }
    return widest;
}

uint64_t rn_plan_window_bytes(const struct rn_plan *plan, runnel_kv_type kv_type)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->n_kv_layers; i++)
        if (rn_plan_layer_window(plan, i) > 0)
            bytes += layer_bytes(&plan->kv_layers[i], kv_type);
    return bytes;
}
