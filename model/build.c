/* Slots, weights and single ops of a plan being built: see build.h. */
#include "model/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

#define NAME_BYTES 64

void rn_build_fail(struct rn_build *b, runnel_status status, const char *format, ...)
{
    char why[RUNNEL_ERROR_BYTES];
    va_list args;

    if (b->status != RUNNEL_OK)
        return;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    b->status = status;
    rn_error_set(b->error, status, "%s: %s", rn_gguf_path(b->plan->gguf), why);
}

/* Room for one more element of the array at *array; false (and the build has failed) on refusal. */
static bool grow(struct rn_build *b, void **array, uint32_t n, uint32_t *room, size_t size)
{
    uint32_t more = *room == 0 ? 64 : *room * 2;
    void *bigger;

    if (b->status != RUNNEL_OK)
        return false;
    if (n < *room)
        return true;
    bigger = rn_realloc(b->plan->heap, *array, more, size);
    if (bigger == NULL) {
        rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
        return false;
    }
    *array = bigger;
    *room = more;
    return true;
}

/* ---- Weights ---- */

static void tensor_name(const struct rn_build *b, const char *name, char out[NAME_BYTES])
{
    const char *number = strstr(name, "%d");

    if (number == NULL)
        snprintf(out, NAME_BYTES, "%s", name);
    else
        snprintf(out, NAME_BYTES, "%.*s%d%s", (int)(number - name), name, (int)b->layer, number + 2);
}

bool rn_build_has(struct rn_build *b, const char *name)
{
    char full[NAME_BYTES];

    tensor_name(b, name, full);
    return rn_gguf_find_tensor(b->source, full) != NULL;
}

static bool computable(uint32_t type)
{
    switch (type) {
    case RN_I8:
    case RN_I16:
    case RN_I32:
    case RN_I64:
    case RN_F64:
    case RN_Q8_1:
    case RN_Q8_K:
        return false;
    default:
        return rn_type(type) != NULL;
    }
}

static bool shape_is(const struct rn_tensor *t, uint64_t cols, uint64_t rows, uint64_t experts)
{
    return t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == experts && t->dims[3] == 1;
}

static int32_t add_weight(struct rn_build *b, const struct rn_tensor *tensor, const char *name, uint32_t cols,
                          uint32_t rows, uint32_t experts)
{
    struct rn_plan *plan = b->plan;
    struct rn_weight *weight;

    if (!shape_is(tensor, cols, rows, experts)) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is [%llu, %llu, %llu, %llu], not [%u, %u, %u, 1]", name,
                      (unsigned long long)tensor->dims[0], (unsigned long long)tensor->dims[1],
                      (unsigned long long)tensor->dims[2], (unsigned long long)tensor->dims[3], cols, rows, experts);
        return 0;
    }
    if (!computable(tensor->type) || cols % rn_type(tensor->type)->elements != 0) {
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor %s: type %s cannot hold a weight of %u columns", name,
                      rn_type(tensor->type)->name, cols);
        return 0;
    }
    if (!grow(b, (void **)&plan->weights, plan->n_weights, &b->weights_room, sizeof *plan->weights))
        return 0;
    weight = &plan->weights[plan->n_weights];
    *weight = (struct rn_weight){.tensor = tensor,
                                 .type = rn_type(tensor->type),
                                 .type_id = tensor->type,
                                 .cols = cols,
                                 .rows = rows,
                                 .experts = experts};
    weight->row_bytes = rn_type_bytes(weight->type, cols);
    b->n_foreign += b->source != plan->gguf;
    plan->parameters += tensor->elements;
    plan->weight_bytes += tensor->bytes;
    return (int32_t)plan->n_weights++;
}

int32_t rn_build_matrix(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t experts,
                        bool optional)
{
    const struct rn_tensor *tensor;
    char full[NAME_BYTES];

    if (b->status != RUNNEL_OK)
        return 0;
    tensor_name(b, name, full);
    tensor = rn_gguf_find_tensor(b->source, full);
    if (tensor != NULL)
        return add_weight(b, tensor, full, cols, rows, experts == 0 ? 1 : experts);
    if (!optional)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is missing", full);
    return -1;
}

int32_t rn_build_vector(struct rn_build *b, const char *name, uint32_t n, bool optional)
{
    return rn_build_matrix(b, name, n, 1, 1, optional);
}

/* ---- Slots ---- */

static bool fits(const struct rn_slot *slot, uint32_t width, bool is_i32, const struct rn_build *b)
{
    return slot->width == width && slot->is_i32 == is_i32 && slot->selected == b->selected && slot->logits == b->logits;
}

int16_t rn_build_slot(struct rn_build *b, uint32_t width, bool is_i32)
{
    struct rn_plan *plan = b->plan;
    uint32_t i, room = b->slots_room;

    if (b->status != RUNNEL_OK)
        return 0;
    for (i = 0; i < plan->n_slots; i++) {
        if (b->slot_free[i] && fits(&plan->slots[i], width, is_i32, b)) {
            b->slot_free[i] = false;
            return (int16_t)i;
        }
    }
    if (plan->n_slots == INT16_MAX) {
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "the plan needs too many slots");
        return 0;
    }
    if (!grow(b, (void **)&plan->slots, plan->n_slots, &room, sizeof *plan->slots) ||
        !grow(b, (void **)&b->slot_free, plan->n_slots, &b->slots_room, sizeof *b->slot_free))
        return 0;
    plan->slots[plan->n_slots] =
        (struct rn_slot){.width = width, .is_i32 = is_i32, .selected = b->selected, .logits = b->logits};
    b->slot_free[plan->n_slots] = false;
    return (int16_t)plan->n_slots++;
}

void rn_build_release(struct rn_build *b, int16_t slot)
{
    if (b->status != RUNNEL_OK)
        return;
    RN_ASSERT(slot >= 0 && (uint32_t)slot < b->plan->n_slots && !b->slot_free[slot]);
    b->slot_free[slot] = true;
}

/* The width of a slot; 1 in a build that has failed. */
static uint32_t width_of(const struct rn_build *b, int16_t slot)
{
    return b->status == RUNNEL_OK ? b->plan->slots[slot].width : 1;
}

/* ---- Ops ---- */

struct rn_op rn_build_empty(const struct rn_build *b, enum rn_op_kind kind)
{
    return (struct rn_op){
        .kind = kind, .out = -1, .out2 = -1, .a = -1, .b = -1, .weight = -1, .bias = -1, .layer = b->layer, .scale = 1};
}

void rn_build_op(struct rn_build *b, const struct rn_op *op)
{
    struct rn_plan *plan = b->plan;

    if (grow(b, (void **)&plan->ops, plan->n_ops, &b->ops_room, sizeof *plan->ops))
        plan->ops[plan->n_ops++] = *op;
}

int16_t rn_build_embed(struct rn_build *b, int32_t weight, float scale)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EMBED);

    op.weight = weight;
    op.scale = scale;
    op.out = rn_build_slot(b, b->hparams.embedding, false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_input(struct rn_build *b, uint32_t width)
{
    struct rn_op op = rn_build_empty(b, RN_OP_INPUT);

    b->plan->inputs_width = width;
    op.out = rn_build_slot(b, width, false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_concat(struct rn_build *b, int16_t a, int16_t c)
{
    struct rn_op op = rn_build_empty(b, RN_OP_CONCAT);

    op.a = a;
    op.b = c;
    op.out = rn_build_slot(b, width_of(b, a) + (c < 0 ? 0 : width_of(b, c)), false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_split(struct rn_build *b, int16_t a, uint32_t parts, uint32_t from, uint32_t n)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SPLIT);

    op.a = a;
    op.heads = parts;
    op.group = from;
    op.k_dim = n;
    op.out = rn_build_slot(b, parts * n, false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_positions(struct rn_build *b, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EMBED_POSITION);

    if (b->plan->context_tokens > b->hparams.trained_tokens)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "a context of %u positions, of which the model has learned %u",
                      b->plan->context_tokens, b->hparams.trained_tokens);
    op.weight = rn_build_matrix(b, "position_embd.weight", b->hparams.embedding, b->hparams.trained_tokens, 0, false);
    op.out = rn_build_slot(b, b->hparams.embedding, false);
    rn_build_op(b, &op);
    return rn_build_add(b, x, op.out);
}

int16_t rn_build_rms_norm(struct rn_build *b, int16_t a, const char *name)
{
    struct rn_op op = rn_build_empty(b, RN_OP_RMS_NORM);

    op.a = a;
    op.group = width_of(b, a);
    op.weight = rn_build_vector(b, name, op.group, false);
    op.eps = b->hparams.rms_eps;
    if (op.eps < 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.attention.layer_norm_rms_epsilon is missing", b->hparams.architecture);
    op.out = rn_build_slot(b, op.group, false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_layer_norm(struct rn_build *b, int16_t a, const char *stem)
{
    struct rn_op op = rn_build_empty(b, RN_OP_LAYER_NORM);
    char name[NAME_BYTES];

    op.a = a;
    snprintf(name, sizeof name, "%s.weight", stem);
    op.weight = rn_build_vector(b, name, width_of(b, a), false);
    snprintf(name, sizeof name, "%s.bias", stem);
    op.bias = rn_build_vector(b, name, width_of(b, a), true);
    op.eps = b->hparams.layer_eps;
    if (op.eps < 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.attention.layer_norm_epsilon is missing", b->hparams.architecture);
    op.out = rn_build_slot(b, width_of(b, a), false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_norm(struct rn_build *b, int16_t a, const char *stem)
{
    char name[NAME_BYTES];

    if ((b->arch->flags & RN_ARCH_LAYER_NORM) != 0)
        return rn_build_layer_norm(b, a, stem);
    snprintf(name, sizeof name, "%s.weight", stem);
    return rn_build_rms_norm(b, a, name);
}

int16_t rn_build_linear(struct rn_build *b, int16_t a, const char *stem, uint32_t rows)
{
    struct rn_op op = rn_build_empty(b, RN_OP_MATMUL);
    char name[NAME_BYTES];

    op.a = a;
    snprintf(name, sizeof name, "%s.weight", stem);
    op.weight = rn_build_matrix(b, name, width_of(b, a), rows, 0, false);
    snprintf(name, sizeof name, "%s.bias", stem);
    op.bias = rn_build_vector(b, name, rows, true);
    op.out = rn_build_slot(b, rows, false);
    rn_build_op(b, &op);
    return op.out;
}

static int16_t pairwise(struct rn_build *b, struct rn_op *op, int16_t a, int16_t c)
{
    op->a = a;
    op->b = c;
    op->out = rn_build_slot(b, width_of(b, a), false);
    rn_build_op(b, op);
    rn_build_release(b, a);
    rn_build_release(b, c);
    return op->out;
}

int16_t rn_build_add(struct rn_build *b, int16_t a, int16_t c)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ADD);

    return pairwise(b, &op, a, c);
}

int16_t rn_build_activate(struct rn_build *b, enum rn_activation act, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ACTIVATE);

    op.a = a;
    op.act = act;
    op.out = rn_build_slot(b, width_of(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_gate(struct rn_build *b, enum rn_activation act, int16_t a, int16_t c)
{
    struct rn_op op = rn_build_empty(b, RN_OP_GATE);

    op.act = act;
    return pairwise(b, &op, a, c);
}

void rn_build_rope(struct rn_build *b, uint32_t rope, int16_t a, uint32_t heads)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ROPE);

    op.a = op.out = a;
    op.rope = rope;
    op.heads = heads;
    op.k_dim = width_of(b, a) / heads;
    rn_build_op(b, &op);
}

int16_t rn_build_select(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SELECT);

    op.a = a;
    b->selected = true;
    op.out = rn_build_slot(b, width_of(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

/* x joins what is tapped already; the last one makes a feature of all. */
static void fuse(struct rn_build *b, int16_t x, bool is_last)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TAP);
    int16_t all = rn_build_concat(b, b->tapped < 0 ? x : b->tapped, b->tapped < 0 ? -1 : x);

    if (b->tapped >= 0)
        rn_build_release(b, b->tapped);
    b->tapped = all;
    if (!is_last)
        return;
    b->source = b->fuse;
    op.a = rn_build_linear(b, all, "fc", b->hparams.embedding);
    b->source = b->plan->gguf;
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, all);
}

void rn_build_tap(struct rn_build *b, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TAP);

    op.a = x;
    for (uint32_t i = 0; i < b->n_taps; i++) {
        op.group = i * b->hparams.embedding;
        if (b->taps[i] != (uint32_t)b->layer)
            continue;
        if (b->fuse != NULL && b->n_taps > 1)
            fuse(b, x, i + 1 == b->n_taps);
        else
            rn_build_op(b, &op);
    }
}

void rn_build_features(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TAP);

    op.a = a;
    op.group = b->plan->features_width;
    b->plan->features_width += width_of(b, a);
    b->plan->taps_selected = true;
    rn_build_op(b, &op);
}

void rn_build_logits(struct rn_build *b, int16_t normed, const char *name, int32_t shared)
{
    struct rn_op op = rn_build_empty(b, RN_OP_MATMUL);

    b->logits = true;
    op.a = normed;
    op.weight = rn_build_matrix(b, name, b->hparams.embedding, b->plan->n_vocab, 0, true);
    if (op.weight < 0)
        op.weight = shared;
    op.bias = rn_build_vector(b, "output.bias", b->plan->n_vocab, true);
    op.out = rn_build_slot(b, b->plan->n_vocab, false);
    rn_build_op(b, &op);
    rn_build_release(b, normed);
    b->plan->logits_slot = op.out;
}

void rn_build_head(struct rn_build *b, int16_t x, int32_t embedding)
{
    int16_t normed;

    if (!b->selected)
        x = rn_build_select(b, x);
    normed = rn_build_norm(b, x, "output_norm");
    if (b->n_taps == 0 || b->with_norm) {
        b->plan->normed_at = b->plan->features_width;
        rn_build_features(b, normed);
    }
    rn_build_logits(b, normed, "output.weight", embedding);
    rn_build_release(b, x);
}
