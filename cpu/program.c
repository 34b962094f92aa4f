/* From a plan to phases: see program.h.
 *
 * What ops touch is named by one number: slots from 0, then the input buffers, then the cache layers. */
#include "cpu/program.h"

#include "base/check.h"

enum { MAX_TOUCHED = 4 };

struct touched {
    int32_t reads[MAX_TOUCHED], writes[MAX_TOUCHED];
    uint32_t n_reads, n_writes;
};

static void add(int32_t *list, uint32_t *n, int32_t thing)
{
    RN_ASSERT(*n < MAX_TOUCHED);
    if (thing >= 0)
        list[(*n)++] = thing;
}

static struct touched touched(const struct rn_plan *plan, const struct rn_instruction *in)
{
    int32_t buffers = (int32_t)plan->n_slots, layers = buffers + RN_INPUT_KINDS;
    struct touched t = {.n_reads = 0};

    if (in->op == NULL) {
        add(t.reads, &t.n_reads, in->from);
        add(t.writes, &t.n_writes, buffers + (int32_t)in->input);
        return t;
    }
    if (in->kernel != NULL && in->input != RN_INPUT_F32)
        add(t.reads, &t.n_reads, buffers + (int32_t)in->input);
    else
        add(t.reads, &t.n_reads, in->op->a);
    add(t.reads, &t.n_reads, in->op->b);
    if (in->op->kind == RN_OP_ATTENTION)
        add(t.reads, &t.n_reads, layers + in->op->layer);
    add(t.writes, &t.n_writes, in->op->out);
    if (in->op->kind == RN_OP_ROUTE)
        add(t.writes, &t.n_writes, in->op->out2);
    if (in->op->kind == RN_OP_KV_STORE)
        add(t.writes, &t.n_writes, layers + in->op->layer);
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

static bool conflict(const struct touched *a, const struct touched *b)
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
    return op->kind == RN_OP_MATMUL || op->kind == RN_OP_EXPERT_MATMUL;
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
};

/* Appends the op, and in front of it the quantising of its input where no buffer holds it yet. */
static void append(struct rn_program *program, const struct rn_plan *plan, const struct rn_level *level,
                   const struct rn_op *op, struct held *held)
{
    const struct rn_kernel *kernel = kernel_of(level, plan, op);
    struct rn_instruction in = {
        .op = op, .kernel = kernel, .selected = rows_of(plan, op)->selected, .logits = rows_of(plan, op)->logits};
    uint32_t cols = kernel == NULL ? 0 : plan->weights[op->weight].cols, kind;
    size_t bytes;

    in.by_rows = kernel == NULL && op->kind != RN_OP_ATTENTION;
    if (kernel != NULL)
        in.input = kernel->input;
    if (in.input != RN_INPUT_F32) {
        if (held[in.input].slot != op->a || held[in.input].cols != cols)
            program->list[program->n++] = (struct rn_instruction){.input = in.input,
                                                                  .from = op->a,
                                                                  .cols = cols,
                                                                  .by_rows = true,
                                                                  .selected = plan->slots[op->a].selected,
                                                                  .logits = plan->slots[op->a].logits};
        held[in.input] = (struct held){op->a, cols};
        bytes = rn_input_bytes(in.input, cols) * (plan->slots[op->a].width / cols);
        if (bytes > program->input_bytes[in.input])
            program->input_bytes[in.input] = bytes;
    }
    program->list[program->n++] = in;
    for (kind = 0; kind < RN_INPUT_KINDS; kind++)
        if ((op->out >= 0 && held[kind].slot == op->out) || (op->kind == RN_OP_ROUTE && held[kind].slot == op->out2))
            held[kind].slot = -1;
}

static void set_phases(struct rn_program *program, const struct rn_plan *plan)
{
    struct touched mine, other;
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
    struct held held[RN_INPUT_KINDS] = {{-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}};
    struct rn_instruction *sorted;
    uint32_t i;

    *program = (struct rn_program){.heap = heap};
    program->list = rn_calloc(heap, (size_t)plan->n_ops * 2, sizeof *program->list);
    sorted = rn_calloc(heap, (size_t)plan->n_ops * 2, sizeof *sorted);
    program->starts = rn_calloc(heap, (size_t)plan->n_ops * 2 + 1, sizeof *program->starts);
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

bool rn_program_check(const struct rn_program *program, const struct rn_plan *plan)
{
    struct touched a, b;
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
