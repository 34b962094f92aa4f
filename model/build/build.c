/* Slots, weights and single ops of a plan being built: see build.h. */
#include "model/build/build.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

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
    rn_error_set(b->error, status, "%s: %s", rn_gguf_path(b->source != NULL ? b->source : b->plan->gguf), why);
}

bool rn_build_grow(struct rn_build *b, void **array, uint32_t n, uint32_t *room, size_t size)
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

static void tensor_name(const struct rn_build *b, const char *name, char out[RN_BUILD_NAME_BYTES])
{
    const char *number = strstr(name, "%d");

    if (number == NULL)
        snprintf(out, RN_BUILD_NAME_BYTES, "%.*s", RN_BUILD_NAME_BYTES - 1, name);
    else
        snprintf(out, RN_BUILD_NAME_BYTES, "%.*s%d%s", (int)(number - name), name, (int)b->layer, number + 2);
}

const struct rn_tensor *rn_build_tensor(const struct rn_build *b, const char *name)
{
    char full[RN_BUILD_NAME_BYTES];

    tensor_name(b, name, full);
    return rn_gguf_find_tensor(b->source, full);
}

bool rn_build_has(struct rn_build *b, const char *name)
{
    return rn_build_tensor(b, name) != NULL;
}

void rn_build_ignore(struct rn_build *b, const char *name)
{
    const struct rn_tensor *tensor = rn_build_tensor(b, name);

    if (tensor != NULL &&
        rn_build_grow(b, (void **)&b->ignored, b->n_ignored, &b->ignored_room, sizeof(struct rn_tensor *)))
        b->ignored[b->n_ignored++] = tensor;
}

bool rn_build_is_unused(const struct rn_build *b, struct rn_view name)
{
    const char *const *unused = b->arch->unused, *number;
    size_t head, digits;

    for (; unused != NULL && *unused != NULL; unused++) {
        number = strstr(*unused, "%d");
        head = number == NULL ? strlen(*unused) : (size_t)(number - *unused);
        if (name.n < head || memcmp(name.bytes, *unused, head) != 0)
            continue;
        for (digits = 0; number != NULL && head + digits < name.n && isdigit((unsigned char)name.bytes[head + digits]);)
            digits++;
        number = number == NULL ? "" : number + 2;
        if (name.n - head - digits == strlen(number) && memcmp(name.bytes + head + digits, number, strlen(number)) == 0)
            return true;
    }
    return false;
}

bool rn_build_computable(uint32_t type)
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

/* The plan's weight of that tensor, or -1: of blocks that come once more. They come in the same order each time, so
 * that the search begins behind the last find. */
static int32_t known_weight(struct rn_build *b, const struct rn_tensor *tensor)
{
    uint32_t i, n = b->plan->n_weights, at;

    for (i = 0; b->again && i < n; i++) {
        at = (b->found + 1 + i) % n;
        if (b->plan->weights[at].tensor == tensor) {
            b->found = at;
            return (int32_t)at;
        }
    }
    return -1;
}

struct rn_weight rn_build_weight(const struct rn_tensor *tensor, uint32_t cols, uint32_t rows, uint32_t experts)
{
    const struct rn_type *type = rn_type(tensor->type);

    return (struct rn_weight){.tensor = tensor,
                              .type = type,
                              .type_id = tensor->type,
                              .cols = cols,
                              .rows = rows,
                              .experts = experts,
                              .row_bytes = rn_type_bytes(type, cols)};
}

/* Shape and type are right. */
static int32_t append_weight(struct rn_build *b, const struct rn_tensor *tensor, uint32_t cols, uint32_t rows,
                             uint32_t experts)
{
    struct rn_plan *plan = b->plan;

    if (!rn_build_grow(b, (void **)&plan->weights, plan->n_weights, &b->weights_room, sizeof *plan->weights))
        return 0;
    plan->weights[plan->n_weights] = rn_build_weight(tensor, cols, rows, experts);
    plan->parameters += tensor->elements;
    plan->weight_bytes += tensor->bytes;
    return (int32_t)plan->n_weights++;
}

/* What a tensor is looked for as. */
enum form { AS_SHAPED, ANY_SHAPE, AS_IDS };

static int32_t add_weight(struct rn_build *b, const struct rn_tensor *tensor, const char *name, uint32_t cols,
                          uint32_t rows, uint32_t experts, enum form form)
{
    bool any_shape = form == ANY_SHAPE, ids = form == AS_IDS;
    int32_t known;

    if (any_shape && tensor->elements != (uint64_t)cols * rows) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s has %llu values, not %llu", name,
                      (unsigned long long)tensor->elements, (unsigned long long)cols * rows);
        return 0;
    }
    if (!any_shape && !shape_is(tensor, cols, rows, experts)) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is [%llu, %llu, %llu, %llu], not [%u, %u, %u, 1]", name,
                      (unsigned long long)tensor->dims[0], (unsigned long long)tensor->dims[1],
                      (unsigned long long)tensor->dims[2], (unsigned long long)tensor->dims[3], cols, rows, experts);
        return 0;
    }
    if (!(ids ? tensor->type == RN_I32 : rn_build_computable(tensor->type)) ||
        cols % rn_type(tensor->type)->elements != 0) {
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor %s: type %s cannot hold a weight of %u columns", name,
                      rn_type(tensor->type)->name, cols);
        return 0;
    }
    known = known_weight(b, tensor);
    return known >= 0 ? known : append_weight(b, tensor, cols, rows, experts);
}

/* A tensor, or -1 where it is optional and not there. */
static int32_t find_weight(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t experts,
                           bool optional, enum form form)
{
    const struct rn_tensor *tensor;
    char full[RN_BUILD_NAME_BYTES];

    if (b->status != RUNNEL_OK)
        return 0;
    tensor_name(b, name, full);
    tensor = rn_gguf_find_tensor(b->source, full);
    if (tensor != NULL && !(optional && rn_build_is_unused(b, tensor->name)))
        return add_weight(b, tensor, full, cols, rows, experts == 0 ? 1 : experts, form);
    if (!optional)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is missing", full);
    return -1;
}

int32_t rn_build_matrix(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t experts,
                        bool optional)
{
    return find_weight(b, name, cols, rows, experts, optional, AS_SHAPED);
}

int32_t rn_build_values(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, bool optional)
{
    return find_weight(b, name, cols, rows, 0, optional, ANY_SHAPE);
}

int32_t rn_build_ids(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows)
{
    return find_weight(b, name, cols, rows, 0, false, AS_IDS);
}

int32_t rn_build_heads(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t heads)
{
    const struct rn_tensor *tensor;
    char full[RN_BUILD_NAME_BYTES];
    int32_t weight;

    if (b->status != RUNNEL_OK)
        return 0;
    tensor_name(b, name, full);
    tensor = rn_gguf_find_tensor(b->source, full);
    if (tensor == NULL || heads == 1 || tensor->dims[2] != 1)
        return rn_build_matrix(b, name, cols, rows, heads, false);
    weight = rn_build_matrix(b, name, cols, rows * heads, 0, false);
    if (b->status == RUNNEL_OK) {
        b->plan->weights[weight].rows = rows;
        b->plan->weights[weight].experts = heads;
    }
    return weight;
}

int32_t rn_build_stack(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t n)
{
    int32_t weight = rn_build_matrix(b, name, cols, rows, n, false);

    if (b->status == RUNNEL_OK) {
        b->plan->weights[weight].rows = rows * n;
        b->plan->weights[weight].experts = 1;
    }
    return weight;
}

/* Each is below `most`, and another: seen has a bit for each. */
static void check_ids(struct rn_build *b, const struct rn_tensor *tensor, const char *name, uint32_t most,
                      unsigned char *seen)
{
    for (uint64_t i = 0; i < tensor->elements && b->status == RUNNEL_OK; i++) {
        int64_t id;

        memcpy(&id, (const unsigned char *)tensor->data + i * sizeof id, sizeof id);
        if (id < 0 || id >= most)
            rn_build_fail(b, RUNNEL_FORMAT, "tensor %s: number %llu is %lld, not one of 0 to %u", name,
                          (unsigned long long)i, (long long)id, most - 1);
        else if ((seen[id / 8] >> id % 8 & 1) != 0)
            rn_build_fail(b, RUNNEL_FORMAT, "tensor %s says %lld twice", name, (long long)id);
        else
            seen[id / 8] |= (unsigned char)(1 << id % 8);
    }
}

int16_t rn_build_scatter(struct rn_build *b, int16_t a, const char *name)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SCATTER);
    const struct rn_tensor *tensor = rn_build_tensor(b, name);
    uint32_t n = rn_build_width(b, a), most = b->plan->n_vocab;
    unsigned char *seen;

    if (b->status != RUNNEL_OK)
        return 0;
    if (tensor == NULL || tensor->type != RN_I64 || !shape_is(tensor, n, 1, 1) || most > RN_MOST_IDS) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is not %u tokens, out of at most %d, of type I64", name, n,
                      RN_MOST_IDS);
        return 0;
    }
    seen = rn_calloc(b->plan->heap, most / 8 + 1, 1);
    if (seen == NULL)
        rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
    else
        check_ids(b, tensor, name, most, seen);
    rn_free(b->plan->heap, seen);
    op.a = a;
    op.weight = append_weight(b, tensor, n, 1, 1);
    op.out = rn_build_slot(b, most, false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

uint32_t rn_build_rows(struct rn_build *b, const char *name)
{
    const struct rn_tensor *tensor;
    char full[RN_BUILD_NAME_BYTES];

    tensor_name(b, name, full);
    tensor = rn_gguf_find_tensor(b->source, full);
    if (tensor != NULL && tensor->dims[1] <= RN_MAX_WIDTH)
        return (uint32_t)tensor->dims[1];
    rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is missing or has too many rows", full);
    return 1;
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
    if (!rn_build_grow(b, (void **)&plan->slots, plan->n_slots, &room, sizeof *plan->slots) ||
        !rn_build_grow(b, (void **)&b->slot_free, plan->n_slots, &b->slots_room, sizeof *b->slot_free))
        return 0;
    plan->slots[plan->n_slots] =
        (struct rn_slot){.width = width, .is_i32 = is_i32, .selected = b->selected, .logits = b->logits};
    b->slot_free[plan->n_slots] = false;
    return (int16_t)plan->n_slots++;
}

/* Features of an architecture that do not go together can ask for a value that a block has not: it is slot -1. */
static bool is_slot(struct rn_build *b, int16_t slot)
{
    if (slot < 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "architecture %s asks for a value that block %d does not have",
                      b->plan->architecture, (int)b->layer);
    return b->status == RUNNEL_OK;
}

void rn_build_release(struct rn_build *b, int16_t slot)
{
    if (!is_slot(b, slot))
        return;
    RN_ASSERT((uint32_t)slot < b->plan->n_slots && !b->slot_free[slot]);
    b->slot_free[slot] = true;
}

uint32_t rn_build_width(struct rn_build *b, int16_t slot)
{
    return is_slot(b, slot) ? b->plan->slots[slot].width : 1;
}

/* Of each head. */
static uint32_t head_width(struct rn_build *b, int16_t a, uint32_t heads)
{
    if (heads > 0)
        return rn_build_width(b, a) / heads;
    rn_build_fail(b, RUNNEL_FORMAT, "block %d has no heads", (int)b->layer);
    return 1;
}

/* ---- Ops ---- */

struct rn_op rn_build_bare(enum rn_op_kind kind, int32_t layer)
{
    return (struct rn_op){
        .kind = kind, .out = -1, .out2 = -1, .a = -1, .b = -1, .weight = -1, .bias = -1, .layer = layer, .scale = 1};
}

struct rn_op rn_build_empty(const struct rn_build *b, enum rn_op_kind kind)
{
    return rn_build_bare(kind, b->layer);
}

void rn_build_op(struct rn_build *b, const struct rn_op *op)
{
    struct rn_plan *plan = b->plan;

    if (rn_build_grow(b, (void **)&plan->ops, plan->n_ops, &b->ops_room, sizeof *plan->ops))
        plan->ops[plan->n_ops++] = *op;
}

int16_t rn_build_embed(struct rn_build *b, int32_t weight, float scale)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EMBED);

    op.weight = weight;
    op.scale = scale;
    op.out = rn_build_slot(b, b->status == RUNNEL_OK ? b->plan->weights[weight].cols : 1, false);
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
    op.out = rn_build_slot(b, rn_build_width(b, a) + (c < 0 ? 0 : rn_build_width(b, c)), false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_concat_heads(struct rn_build *b, int16_t a, int16_t c, uint32_t heads)
{
    struct rn_op op = rn_build_empty(b, RN_OP_CONCAT);

    op.a = a;
    op.b = c;
    op.heads = heads;
    op.out = rn_build_slot(b, rn_build_width(b, a) + rn_build_width(b, c), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    rn_build_release(b, c);
    return op.out;
}

/* An op over each head's own matrix. Releases a. */
static int16_t by_head(struct rn_build *b, struct rn_op op, int16_t a, int32_t weight, uint32_t from, uint32_t n)
{
    const struct rn_weight *w;

    if (b->status != RUNNEL_OK)
        return 0;
    w = &b->plan->weights[weight];
    op.a = a;
    op.weight = weight;
    op.heads = w->experts;
    op.group = from;
    op.k_dim = n;
    op.out = rn_build_slot(b, w->experts * (op.kind == RN_OP_HEAD_SUM ? w->cols : n), false);
    rn_build_op(b, &op);
    if (a >= 0)
        rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_head_matmul(struct rn_build *b, int16_t a, int32_t weight, uint32_t from, uint32_t n)
{
    return by_head(b, rn_build_empty(b, RN_OP_HEAD_MATMUL), a, weight, from, n);
}

int16_t rn_build_head_sum(struct rn_build *b, int16_t a, int32_t weight, uint32_t from, uint32_t n)
{
    return by_head(b, rn_build_empty(b, RN_OP_HEAD_SUM), a, weight, from, n);
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

/* The op of a norm by "<stem>.weight" and "<stem>.bias", [group] or [group, rows]; without weights where stem is NULL.
 * */
static int16_t norm(struct rn_build *b, enum rn_op_kind kind, int16_t a, const char *stem, bool may_bias,
                    uint32_t group, uint32_t rows)
{
    bool rms = kind == RN_OP_RMS_NORM;
    struct rn_op op = rn_build_empty(b, kind);
    char name[RN_BUILD_NAME_BYTES + 8];

    op.a = a;
    op.group = group;
    if (stem != NULL) {
        snprintf(name, sizeof name, "%s.weight", stem);
        if (!rn_build_has(b, name) && rn_build_has(b, stem)) /* PLaMo's files leave the ending out */
            snprintf(name, sizeof name, "%.*s", RN_BUILD_NAME_BYTES - 1, stem);
        op.weight = rn_build_matrix(b, name, group, rows, 1, false);
        snprintf(name, sizeof name, "%s.bias", stem);
        op.bias = may_bias ? rn_build_matrix(b, name, group, rows, 1, true) : -1;
    }
    op.eps = rms ? b->hparams.rms_eps : b->hparams.layer_eps;
    if (op.eps < 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.attention.layer_norm_%sepsilon is missing", b->hparams.architecture,
                      rms ? "rms_" : "");
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_rms_norm(struct rn_build *b, int16_t a, const char *name)
{
    char stem[RN_BUILD_NAME_BYTES];

    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    return norm(b, RN_OP_RMS_NORM, a, stem, false, rn_build_width(b, a), 1);
}

int16_t rn_build_layer_norm(struct rn_build *b, int16_t a, const char *stem)
{
    return norm(b, RN_OP_LAYER_NORM, a, stem, true, rn_build_width(b, a), 1);
}

int16_t rn_build_norm(struct rn_build *b, int16_t a, const char *stem)
{
    bool layer_norm = (b->arch->flags & RN_ARCH_LAYER_NORM) != 0;

    if ((b->arch->flags & RN_ARCH_BARE_NORM) != 0)
        stem = NULL;
    return norm(b, layer_norm ? RN_OP_LAYER_NORM : RN_OP_RMS_NORM, a, stem, true, rn_build_width(b, a), 1);
}

int16_t rn_build_head_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads)
{
    return norm(b, RN_OP_RMS_NORM, a, stem, false, head_width(b, a, heads), 1);
}

int16_t rn_build_unit_norm(struct rn_build *b, int16_t a, uint32_t group)
{
    int16_t out = norm(b, RN_OP_RMS_NORM, a, NULL, false, group, 1);

    rn_build_release(b, a);
    return out;
}

int16_t rn_build_own_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads)
{
    bool layer_norm = (b->arch->flags & RN_ARCH_LAYER_NORM) != 0;

    return norm(b, layer_norm ? RN_OP_LAYER_NORM : RN_OP_RMS_NORM, a, stem, false, head_width(b, a, heads), heads);
}

int16_t rn_build_own_layer_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads)
{
    return norm(b, RN_OP_LAYER_NORM, a, stem, true, head_width(b, a, heads), heads);
}

int16_t rn_build_own_rms_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads)
{
    return norm(b, RN_OP_RMS_NORM, a, stem, false, head_width(b, a, heads), heads);
}

int16_t rn_build_linear(struct rn_build *b, int16_t a, const char *stem, uint32_t rows)
{
    char name[RN_BUILD_NAME_BYTES];
    int32_t weight;

    snprintf(name, sizeof name, "%s.weight", stem);
    weight = rn_build_matrix(b, name, rn_build_width(b, a), rows, 0, false);
    snprintf(name, sizeof name, "%s.bias", stem);
    return rn_build_stored(b, a, weight, rn_build_vector(b, name, rows, true), stem);
}

int16_t rn_build_matmul(struct rn_build *b, int16_t a, int32_t weight)
{
    struct rn_op op = rn_build_empty(b, RN_OP_MATMUL);

    op.a = a;
    op.weight = weight;
    op.out = rn_build_slot(b, b->status == RUNNEL_OK ? b->plan->weights[weight].rows : 1, false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_spread(struct rn_build *b, int16_t a, int16_t c, double plus)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SPREAD);

    op.a = a;
    op.b = c;
    op.scale = (float)plus;
    op.out = rn_build_slot(b, rn_build_width(b, a) * rn_build_width(b, c), false);
    rn_build_op(b, &op);
    rn_build_release(b, c);
    return op.out;
}

static int16_t pairwise(struct rn_build *b, struct rn_op *op, int16_t a, int16_t c)
{
    op->a = a;
    op->b = c;
    op->out = rn_build_slot(b, rn_build_width(b, c), false);
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

int16_t rn_build_activate_biased(struct rn_build *b, enum rn_activation act, int16_t a, int32_t bias)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ACTIVATE);

    op.a = a;
    op.act = act;
    op.bias = bias;
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_activate(struct rn_build *b, enum rn_activation act, int16_t a)
{
    return rn_build_activate_biased(b, act, a, -1);
}

int16_t rn_build_gate(struct rn_build *b, enum rn_activation act, int16_t a, int16_t c)
{
    struct rn_op op = rn_build_empty(b, RN_OP_GATE);

    op.act = act;
    return pairwise(b, &op, a, c);
}

/* An op over its own input by one number. */
static void in_place(struct rn_build *b, enum rn_op_kind kind, int16_t a, double scale)
{
    struct rn_op op = rn_build_empty(b, kind);

    op.a = op.out = a;
    op.scale = (float)scale;
    rn_build_op(b, &op);
}

void rn_build_scale(struct rn_build *b, int16_t a, double scale)
{
    if (scale != 1)
        in_place(b, RN_OP_SCALE, a, scale);
}

void rn_build_clamp(struct rn_build *b, int16_t a, double most)
{
    if (most > 0)
        in_place(b, RN_OP_CLAMP, a, most);
}

void rn_build_softcap(struct rn_build *b, int16_t a, double cap)
{
    if (cap > 0)
        in_place(b, RN_OP_SOFTCAP, a, cap);
}

void rn_build_temper(struct rn_build *b, int16_t q)
{
    const struct rn_temperature *t = &b->hparams.temperature;
    struct rn_op op = rn_build_empty(b, RN_OP_TEMPER);

    if ((uint64_t)b->plan->context_tokens + t->ahead <= t->span)
        return;
    op.a = op.out = q;
    op.scale = (float)t->scale;
    op.span = t->span;
    op.ahead = t->ahead;
    rn_build_op(b, &op);
}

int16_t rn_build_cut_gate(struct rn_build *b, int16_t a, int16_t c)
{
    struct rn_op op = rn_build_empty(b, RN_OP_CUT_GATE);

    op.scale = 1.702f; /* of the GELU's approximation x * sigmoid(1.702 x) (arXiv 1606.08415) */
    op.cut = 7;
    op.plus = 1;
    return pairwise(b, &op, a, c);
}

int16_t rn_build_cut_silu(struct rn_build *b, int16_t a, int16_t c, double cut)
{
    struct rn_op op = rn_build_empty(b, RN_OP_CUT_GATE);

    op.scale = 1;
    op.cut = (float)cut;
    return pairwise(b, &op, a, c);
}

void rn_build_rope(struct rn_build *b, uint32_t rope, int16_t a, uint32_t heads)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ROPE);

    op.a = op.out = a;
    op.rope = rope;
    op.heads = heads;
    op.k_dim = head_width(b, a, heads);
    rn_build_op(b, &op);
}

int16_t rn_build_rope_behind(struct rn_build *b, uint32_t rope, int16_t a, uint32_t heads)
{
    uint32_t dims = b->hparams.ropes[rope].dims, all = head_width(b, a, heads);
    int16_t front, behind;

    if (all <= dims) {
        rn_build_rope(b, rope, a, heads);
        return a;
    }
    front = rn_build_split(b, a, heads, 0, all - dims);
    behind = rn_build_split(b, a, heads, all - dims, dims);
    rn_build_release(b, a);
    rn_build_rope(b, rope, behind, heads);
    return rn_build_concat_heads(b, front, behind, heads);
}

int16_t rn_build_select(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SELECT);

    op.a = a;
    b->selected = true;
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}
