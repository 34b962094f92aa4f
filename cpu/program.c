/* From a plan to phases: see program.h.
 *
 * What an op touches, model/op_info.h says; here an input buffer may stand for the slot that was quantised into it. */
#include "cpu/program.h"

#include "base/check.h"
#include "model/op_info.h"

/* The number of an input buffer: above those of rn_op_touched. */
static int32_t buffer(enum rn_input input)
{
    return INT32_MAX - (int32_t)input;
}

/* That of what is laid. */
static int32_t laid(void)
{
    return buffer(RN_INPUT_KINDS);
}

static struct rn_op_touched touched(const struct rn_plan *plan, const struct rn_instruction *in)
{
    struct rn_op_touched t = {.reads = {in->from}, .n_reads = 1, .writes = {buffer(in->input)}, .n_writes = 1};

    if (in->op == NULL && in->lays)
        return (struct rn_op_touched){.reads = {buffer(in->input)}, .n_reads = 1, .writes = {laid()}, .n_writes = 1};
    if (in->op == NULL)
        return t;
    t = rn_op_touched(plan, in->op);
    if (in->kernel != NULL && in->input != RN_INPUT_F32)
        t.reads[0] = buffer(in->input); /* instead of a, the first of what an op reads */
    if (in->lays) {
        RN_ASSERT(t.n_reads < RN_MAX_TOUCHED);
        t.reads[t.n_reads++] = laid();
    }
    return t;
}

static bool meet(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    uint32_t i, j;

    for (i = 0; i < n_a; i++)
        for (j = 0; j < n_b; j++)
            if (a[i] == b[j])
                return true;
    return false;
}

static bool conflict(const struct rn_op_touched *a, const struct rn_op_touched *b)
{
    return meet(a->writes, a->n_writes, b->writes, b->n_writes) || meet(a->writes, a->n_writes, b->reads, b->n_reads) ||
           meet(a->reads, a->n_reads, b->writes, b->n_writes);
}

static bool same_worker(const struct rn_instruction *a, const struct rn_instruction *b)
{
    return a->by_rows && b->by_rows && a->selected == b->selected && a->logits == b->logits;
}

static bool is_product(const struct rn_op *op)
{
    enum rn_op_weight weight = rn_op_info(op->kind)->weight;

    return weight == RN_WEIGHT_MATRIX || weight == RN_WEIGHT_EXPERTS || weight == RN_WEIGHT_HEADS;
}

/* The slot whose rows an op goes through. */
static const struct rn_slot *rows_of(const struct rn_plan *plan, const struct rn_op *op)
{
    return &plan->slots[op->out >= 0 ? op->out : op->a];
}

static const struct rn_kernel *kernel_of(const struct rn_level *level, const struct rn_plan *plan,
                                         const struct rn_op *op)
{
    const struct rn_kernel *kernel;

    if (!is_product(op))
        return NULL;
    kernel = level->kernel(plan->weights[op->weight].type_id);
    return kernel != NULL ? kernel : level->other;
}

/* What each input buffer holds while the list is made. */
struct held {
    int16_t slot;
    uint32_t cols;
    bool laid;
};

/* Appends the quantising of what the op reads, where no buffer holds it yet, and the laying. all: [RN_INPUT_KINDS] */
static void append_input(struct rn_program *program, const struct rn_plan *plan, const struct rn_instruction *in,
                         uint32_t cols, struct held *all)
{
    struct held *held = &all[in->input];
    struct rn_instruction made = {.input = in->input,
                                  .from = in->op->a,
                                  .cols = cols,
                                  .by_rows = true,
                                  .selected = plan->slots[in->op->a].selected,
                                  .logits = plan->slots[in->op->a].logits};
    size_t bytes = rn_input_bytes(in->input, cols) * (plan->slots[in->op->a].width / cols);
    uint32_t kind;

    if (held->slot != in->op->a || held->cols != cols) {
        program->list[program->n++] = made;
        *held = (struct held){in->op->a, cols, false};
    }
    if (in->lays && !held->laid) {
        made.by_rows = false;
        made.lays = true;
        program->list[program->n++] = made;
        program->laid_cols = cols > program->laid_cols ? cols : program->laid_cols;
        for (kind = 0; kind < RN_INPUT_KINDS; kind++) /* there is one place for what is laid */
            all[kind].laid = false;
        held->laid = true;
    }
    if (bytes > program->input_bytes[in->input])
        program->input_bytes[in->input] = bytes;
}

/* Appends the op, and in front of it what makes its input. */
static void append(struct rn_program *program, const struct rn_plan *plan, const struct rn_level *level,
                   const struct rn_op *op, struct held *held)
{
    const struct rn_kernel *kernel = kernel_of(level, plan, op);
    struct rn_instruction in = {
        .op = op, .kernel = kernel, .selected = rows_of(plan, op)->selected, .logits = rows_of(plan, op)->logits};
    uint32_t cols = kernel == NULL ? 0 : plan->weights[op->weight].cols, kind;

    in.by_rows = rn_op_info(op->kind)->work == RN_WORK_BY_ROW;
    if (kernel != NULL)
        in.input = kernel->input;
    in.lays = kernel != NULL && kernel->lays && op->kind == RN_OP_MATMUL;
    if (in.input != RN_INPUT_F32)
        append_input(program, plan, &in, cols, held);
    program->list[program->n++] = in;
    for (kind = 0; kind < RN_INPUT_KINDS; kind++)
        if ((op->out >= 0 && held[kind].slot == op->out) || (op->out2 >= 0 && held[kind].slot == op->out2))
            held[kind].slot = -1;
}

static void set_phases(struct rn_program *program, const struct rn_plan *plan)
{
    struct rn_op_touched mine, other;
    uint32_t i, j, least;

    for (i = 0; i < program->n; i++) {
        mine = touched(plan, &program->list[i]);
        for (j = 0; j < i; j++) {
            other = touched(plan, &program->list[j]);
            if (!conflict(&mine, &other))
                continue;
            least = program->list[j].phase + (same_worker(&program->list[i], &program->list[j]) ? 0 : 1);
            if (least > program->list[i].phase)
                program->list[i].phase = least;
        }
        if (program->list[i].phase >= program->n_phases)
            program->n_phases = program->list[i].phase + 1;
    }
}

/* Sorts by phase, keeping the order inside each. */
static void sort(struct rn_program *program, struct rn_instruction *sorted)
{
    uint32_t i, phase, n = 0;

    for (phase = 0; phase < program->n_phases; phase++) {
        program->starts[phase] = n;
        for (i = 0; i < program->n; i++)
            if (program->list[i].phase == phase)
                sorted[n++] = program->list[i];
    }
    program->starts[phase] = n;
    RN_ASSERT(n == program->n);
}

runnel_status rn_program_init(struct rn_program *program, struct rn_heap *heap, const struct rn_plan *plan,
                              const struct rn_level *level)
{
    struct held held[RN_INPUT_KINDS] = {{-1, 0, false}, {-1, 0, false}};
    struct rn_instruction *sorted;
    uint32_t i;

    *program = (struct rn_program){.heap = heap};
    program->list = rn_calloc(heap, (size_t)plan->n_ops * 3, sizeof *program->list);
    sorted = rn_calloc(heap, (size_t)plan->n_ops * 3, sizeof *sorted);
    program->starts = rn_calloc(heap, (size_t)plan->n_ops * 3 + 1, sizeof *program->starts);
    if (program->list == NULL || sorted == NULL || program->starts == NULL) {
        rn_free(heap, sorted);
        rn_program_fini(program);
        return RUNNEL_NO_MEMORY;
    }
    for (i = 0; i < plan->n_ops; i++)
        append(program, plan, level, &plan->ops[i], held);
    set_phases(program, plan);
    sort(program, sorted);
    rn_free(heap, program->list);
    program->list = sorted;
    RN_ASSERT(rn_program_check(program, plan));
    return RUNNEL_OK;
}

void rn_program_fini(struct rn_program *program)
{
    rn_free(program->heap, program->list);
    rn_free(program->heap, program->starts);
    *program = (struct rn_program){.heap = program->heap};
}

bool rn_program_only_lays(const struct rn_program *program, uint32_t phase)
{
    uint32_t i;

    for (i = program->starts[phase]; i < program->starts[phase + 1]; i++)
        if (program->list[i].op != NULL || !program->list[i].lays)
            return false;
    return true;
}

bool rn_program_only_adapts(const struct rn_program *program, uint32_t phase)
{
    for (uint32_t i = program->starts[phase]; i < program->starts[phase + 1]; i++)
        if (program->list[i].op == NULL || !program->list[i].op->adapted)
            return false;
    return true;
}

bool rn_program_attends(const struct rn_program *program, uint32_t phase)
{
    for (uint32_t i = program->starts[phase]; i < program->starts[phase + 1]; i++)
        if (program->list[i].op != NULL && program->list[i].op->kind == RN_OP_ATTENTION)
            return true;
    return false;
}

bool rn_program_check(const struct rn_program *program, const struct rn_plan *plan)
{
    struct rn_op_touched a, b;
    uint32_t phase, i, j;

    for (phase = 0; phase < program->n_phases; phase++)
        for (i = program->starts[phase]; i < program->starts[phase + 1]; i++)
            for (j = program->starts[phase]; j < i; j++) {
                a = touched(plan, &program->list[i]);
                b = touched(plan, &program->list[j]);
                if (conflict(&a, &b) && !same_worker(&program->list[i], &program->list[j]))
                    return false;
            }
    return program->starts[program->n_phases] == program->n;
}
