/* See cuda_oracle.h. */
#include "tests/sim/cuda_oracle.h"

#include <assert.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gpu/backend.h"
#include "gpu/emulated/emulation.h"
#include "tests/gpu/rigs/faulty_driver.h"
#include "tests/sim/oracle_device.h"

enum { WIDTH = 32, HOT = 1000000, RING = 2, MEMORY = 64 << 20, TABLE = 0, OUTPUT = 1, N_WEIGHTS = 2 };
enum { X, S, SELECTED, LOGITS, N_SLOTS };
enum { N_OPS = 5 };

static_assert(CUDA_ORACLE_BYTES == 2 * WIDTH * sizeof(float), "keys and values of a position");
static_assert(HOT == (int)ORACLE_HOT, "the logits are the oracle's");

/* ---- Kernels ---- */

static const struct rn_gpu_kernels *real; /* the emulated module's */
static struct oracle_alphabet alphabet;
static _Atomic uint64_t n_launches;

static void *at(rn_address address)
{
    return (void *)(uintptr_t)address;
}

static void write_parts(float *out, uint64_t value)
{
    for (uint32_t i = 0; i < 4; i++)
        out[i] = (float)(value >> 16 * i & 0xffff);
}

static uint64_t read_parts(const float *in)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < 4; i++)
        value |= (uint64_t)in[i] << 16 * i;
    return value;
}

/* Where a sequence's position lies in the keys, or the values. */
static uint64_t *place_of(const struct rn_cache_args *cache, rn_address part, uint32_t row_bytes, uint32_t seq,
                          uint32_t position)
{
    const uint32_t *tables = at(cache->tables), *table_at = at(cache->table_at);
    uint32_t block = tables[table_at[seq] + (position >> cache->block_log)];
    uint32_t place = position & ((1u << cache->block_log) - 1);

    return at(part + block * cache->block_bytes + (uint64_t)place * row_bytes);
}

static uint64_t read_kv(const struct rn_cache_args *cache, uint32_t seq, uint32_t position)
{
    const uint32_t bytes = WIDTH * sizeof(float);
    uint64_t key = *place_of(cache, cache->keys, bytes, seq, position);

    return *place_of(cache, cache->values, bytes, seq, position) == ~key ? key : ~0ull;
}

/* Rows in their order: a row of a sequence reads what the one before it has stored. */
static void store(const struct rn_kv_store_args *args)
{
    const uint32_t *seqs = at(args->seqs), *places = at(args->places), bytes = WIDTH * sizeof(float);
    const float *x = at(args->k);

    for (uint32_t r = 0; r < args->n_rows; r++, x += WIDTH) {
        struct oracle_chain chain = {.position = places[r]};

        chain.kv = places[r] == 0 ? read_parts(x + 1) : read_kv(&args->cache, seqs[r], places[r] - 1);
        oracle_chain_push(&chain, (int32_t)x[0]);
        *place_of(&args->cache, args->cache.keys, bytes, seqs[r], places[r]) = chain.kv;
        *place_of(&args->cache, args->cache.values, bytes, seqs[r], places[r]) = ~chain.kv;
    }
}

static void attend(const struct rn_attention_args *args)
{
    const uint32_t *seqs = at(args->seqs), *positions = at(args->positions);
    float *out = at(args->out);

    for (uint32_t r = 0; r < args->n_rows; r++, out += WIDTH) {
        uint64_t sum = 0;

        for (uint32_t p = 0; p <= positions[r]; p++)
            sum += read_kv(&args->cache, seqs[r], p);
        memset(out, 0, WIDTH * sizeof *out);
        write_parts(out, sum);
    }
}

static void choose(rn_address a, rn_address out, uint32_t n_rows)
{
    const float *sums = at(a);
    float *logits = at(out);

    for (uint32_t r = 0; r < n_rows; r++, sums += WIDTH, logits += ORACLE_VOCAB) {
        struct oracle_chain chain = {.sum = read_parts(sums)};

        memset(logits, 0, ORACLE_VOCAB * sizeof *logits);
        logits[oracle_chain_next(&chain, &alphabet)] = HOT;
    }
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* It is one of the oracle's, and done; a part of one that has nothing to do is done, too. */
static bool launch_own(const char *name, const void *arguments)
{
    const struct rn_products_args *few = arguments;
    const struct rn_matmul_args *many = arguments;

    if (begins(name, "rn_kernel_kv_store"))
        store(arguments);
    else if (begins(name, "rn_kernel_attention_join") || begins(name, "rn_kernel_split_rows") ||
             begins(name, "rn_kernel_matmul_join"))
        return true;
    else if (begins(name, "rn_kernel_attention"))
        attend(arguments);
    else if (begins(name, "rn_kernel_matmul_many"))
        choose(many->a, many->out, many->n_rows);
    else if (begins(name, "rn_kernel_matmul"))
        choose(few->a, few->of[0].out, few->n_rows);
    else
        return false;
    atomic_fetch_add_explicit(&n_launches, 1, memory_order_relaxed); /* a count */
    return true;
}

static bool launch(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, const void *arguments, const struct rn_emulated_range *ranges,
                   size_t n_ranges, char fault[RN_EMULATED_FAULT_BYTES])
{
    const struct rn_gpu_listed *listed = kernel;

    return launch_own(listed->name, arguments) ||
           real->emulation->launch(emulator, kernel, grid, block, shared_bytes, arguments, ranges, n_ranges, fault);
}

static const struct rn_gpu_kernels *kernels(void)
{
    static struct rn_gpu_emulation emulation;
    static struct rn_gpu_kernels own;
    rn_gpu_kernels_fn function;
    void *library, *address;

    if (real != NULL)
        return &own;
    library = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_LOCAL);
    address = library == NULL ? NULL : dlsym(library, RN_GPU_KERNELS_SYMBOL);
    if (address == NULL)
        return NULL;
    memcpy(&function, &address, sizeof function);
    real = function();
    emulation = *real->emulation;
    emulation.launch = launch;
    own = *real;
    own.emulation = &emulation;
    return &own;
}

static uint64_t n_failures;

uint64_t cuda_oracle_failures(void)
{
    return n_failures;
}

uint64_t cuda_oracle_launches(void)
{
    return atomic_load_explicit(&n_launches, memory_order_relaxed);
}

/* ---- The plan ---- */

struct oracle_plan {
    struct rn_plan plan; /* of the arrays below */
    struct rn_op ops[N_OPS];
    struct rn_slot slots[N_SLOTS];
    struct rn_weight weights[N_WEIGHTS];
    struct rn_tensor tensors[N_WEIGHTS];
    struct rn_kv_layer layer;
    float table[ORACLE_VOCAB * WIDTH], output[ORACLE_VOCAB * WIDTH];
};

static void set_weight(struct oracle_plan *p, int index, const char *name, const float *data)
{
    p->tensors[index] = (struct rn_tensor){.name = {name, strlen(name)},
                                           .n_dims = 2,
                                           .dims = {WIDTH, ORACLE_VOCAB, 1, 1},
                                           .elements = (uint64_t)WIDTH * ORACLE_VOCAB,
                                           .bytes = (uint64_t)WIDTH * ORACLE_VOCAB * sizeof(float),
                                           .data = data};
    p->weights[index] = (struct rn_weight){.tensor = &p->tensors[index],
                                           .type = rn_type(0),
                                           .cols = WIDTH,
                                           .rows = ORACLE_VOCAB,
                                           .experts = 1,
                                           .row_bytes = WIDTH * sizeof(float)};
    p->plan.weight_bytes += p->tensors[index].bytes;
}

static void set_ops(struct oracle_plan *p)
{
    for (int i = 0; i < N_OPS; i++)
        p->ops[i] =
            (struct rn_op){.out = -1, .out2 = -1, .a = -1, .b = -1, .weight = -1, .bias = -1, .layer = -1, .scale = 1};
    p->ops[0].kind = RN_OP_EMBED;
    p->ops[0].out = X;
    p->ops[0].weight = TABLE;
    p->ops[1].kind = RN_OP_KV_STORE;
    p->ops[1].a = p->ops[1].b = X;
    p->ops[1].layer = 0;
    p->ops[2].kind = RN_OP_ATTENTION;
    p->ops[2].a = X;
    p->ops[2].out = S;
    p->ops[2].layer = 0;
    p->ops[2].heads = p->ops[2].kv_heads = 1;
    p->ops[2].k_dim = p->ops[2].v_dim = WIDTH;
    p->ops[3].kind = RN_OP_SELECT;
    p->ops[3].a = S;
    p->ops[3].out = SELECTED;
    p->ops[4].kind = RN_OP_MATMUL;
    p->ops[4].a = SELECTED;
    p->ops[4].out = LOGITS;
    p->ops[4].weight = OUTPUT;
}

static void plan_init(struct oracle_plan *p, uint64_t salt, uint32_t context_tokens)
{
    memset(p, 0, sizeof *p);
    for (uint32_t t = 0; t < ORACLE_VOCAB; t++) {
        p->table[t * WIDTH] = (float)t;
        write_parts(p->table + t * WIDTH + 1, salt);
    }
    set_weight(p, TABLE, "table", p->table);
    set_weight(p, OUTPUT, "output", p->output);
    set_ops(p);
    for (int i = 0; i < N_SLOTS; i++)
        p->slots[i] = (struct rn_slot){.width = WIDTH, .selected = i >= SELECTED, .logits = i == LOGITS};
    p->slots[LOGITS].width = ORACLE_VOCAB;
    p->layer = (struct rn_kv_layer){.k_width = WIDTH, .v_width = WIDTH, .kv_heads = 1};
    strcpy(p->plan.architecture, "oracle");
    p->plan.n_vocab = ORACLE_VOCAB;
    p->plan.embedding = WIDTH;
    p->plan.context_tokens = context_tokens;
    p->plan.n_layers = 1;
    p->plan.n_ops = N_OPS;
    p->plan.n_slots = N_SLOTS;
    p->plan.n_weights = N_WEIGHTS;
    p->plan.n_kv_layers = 1;
    p->plan.ops = p->ops;
    p->plan.slots = p->slots;
    p->plan.weights = p->weights;
    p->plan.kv_layers = &p->layer;
    p->plan.logits_slot = LOGITS;
}

/* ---- The device ---- */

/* A step that was begun. The one that the backend gets has rows and draws of its own, which its threads write. */
struct flight {
    struct rn_step step; /* first */
    struct rn_step_row *rows;
    struct rn_draw *draws;
    sem_t done;
    bool is_back; /* settle has waited for it */
};

struct copying {
    struct rn_host_copies copies; /* first */
    struct rn_host_copies *of;    /* NULL: free */
    sem_t done;
};

enum { MOST_COPYING = 8 };

struct cuda_device {
    struct oracle_device base; /* first */
    struct rn_heap heap;
    struct rn_gpu_module module;
    struct rn_device *device;
    struct rn_backend *backend;
    struct oracle_plan plan;
    struct flight flights[RING];
    uint64_t n_begun, n_awaited;
    struct copying copying[MOST_COPYING];
    struct rn_gpu_fault fault;
    uint64_t random; /* which calls fail */
};

static struct cuda_device *of(const struct oracle_device *device)
{
    return (struct cuda_device *)device;
}

/* One of the next few calls of the driver fails, sometimes; all are this thread's, until `disarm`. */
static void arm(struct cuda_device *d)
{
    uint64_t bits = rn_splitmix64(&d->random);

    if (d->base.may_fail && bits % 20 == 0)
        d->fault.at = d->fault.calls[RN_GPU_ANY_CALL] + 1 + (bits >> 32) % 16;
}

static void disarm(struct cuda_device *d)
{
    n_failures += d->fault.at != 0 && d->fault.calls[RN_GPU_ANY_CALL] >= d->fault.at;
    d->fault.at = 0;
}

static bool can_draw(const struct oracle_device *device, const runnel_sampling *sampling)
{
    struct rn_backend *backend = of(device)->backend;

    return backend->ops->can_draw(backend, sampling);
}

static void on_step_done(struct rn_step *step)
{
    sem_post(&((struct flight *)step)->done);
}

static void begin(struct oracle_device *base, struct rn_step *step)
{
    struct cuda_device *d = of(base);
    struct flight *flight = &d->flights[d->n_begun++ % RING];

    flight->step = *step;
    flight->is_back = false;
    memcpy(flight->rows, step->rows, step->n_rows * sizeof *flight->rows);
    flight->step.rows = flight->rows;
    if (step->draws != NULL) {
        memcpy(flight->draws, step->draws, step->n_outs * sizeof *flight->draws);
        flight->step.draws = flight->draws;
    }
    flight->step.drawer = NULL;
    flight->step.on_done = on_step_done;
    arm(d);
    d->backend->ops->submit_async(d->backend, &flight->step);
    disarm(d);
}

static void wait_for(struct flight *flight)
{
    if (!flight->is_back)
        sem_wait(&flight->done);
    flight->is_back = true;
}

static runnel_status await(struct oracle_device *base, struct rn_step *step)
{
    struct cuda_device *d = of(base);
    struct flight *flight = &d->flights[d->n_awaited++ % RING];

    wait_for(flight);
    memcpy(step->rows, flight->rows, step->n_rows * sizeof *step->rows);
    if (step->draws != NULL)
        memcpy(step->draws, flight->draws, step->n_outs * sizeof *step->draws);
    return flight->step.status;
}

static void settle(struct oracle_device *base)
{
    struct cuda_device *d = of(base);

    for (uint64_t n = d->n_awaited; n < d->n_begun; n++)
        wait_for(&d->flights[n % RING]);
}

static void on_copied(struct rn_host_copies *copies)
{
    sem_post(&((struct copying *)copies)->done);
}

/* Too many at a time: the test is to have room for more. */
static struct copying *copying_of(struct cuda_device *d, const struct rn_host_copies *copies)
{
    for (int i = 0; i < MOST_COPYING; i++)
        if (d->copying[i].of == copies)
            return &d->copying[i];
    fprintf(stderr, "more than %d lists of copies at a time\n", MOST_COPYING);
    abort();
}

static void begin_copies(struct oracle_device *base, struct rn_host_copies *copies)
{
    struct cuda_device *d = of(base);
    struct copying *own = copying_of(d, NULL);

    own->of = copies;
    own->copies = (struct rn_host_copies){.n = copies->n, .items = copies->items, .on_done = on_copied};
    arm(d);
    d->backend->ops->copy_async(d->backend, &own->copies);
    disarm(d);
}

static runnel_status await_copies(struct oracle_device *base, struct rn_host_copies *copies)
{
    struct copying *own = copying_of(of(base), copies);

    sem_wait(&own->done);
    own->of = NULL;
    return own->copies.status;
}

static void poison(struct oracle_device *base, uint32_t block, uint32_t place, uint64_t rubbish)
{
    const struct rn_gpu_backend *backend = (const struct rn_gpu_backend *)of(base)->backend;
    rn_address row = backend->blocks + block * backend->block_bytes + (uint64_t)place * WIDTH * sizeof(float);
    uint64_t *key = at(row + backend->layer_at[0]), *value = at(row + backend->layer_values_at[0]);

    *key = rubbish;
    *value = ~rubbish;
}

static size_t block_bytes(const struct oracle_device *base)
{
    struct rn_backend *backend = of(base)->backend;

    return backend->ops->block_bytes(backend);
}

static void *host_alloc(struct oracle_device *base, size_t bytes)
{
    struct rn_backend *backend = of(base)->backend;

    return backend->ops->host_alloc(backend, bytes);
}

static void host_free(struct oracle_device *base, void *memory)
{
    struct rn_backend *backend = of(base)->backend;

    backend->ops->host_free(backend, memory);
}

static void free_device(struct oracle_device *base)
{
    struct cuda_device *d = of(base);

    settle(base);
    if (d->backend != NULL)
        d->backend->ops->free(d->backend);
    if (d->device != NULL)
        d->device->kind->close(d->device);
    for (int i = 0; i < RING; i++) {
        free(d->flights[i].rows);
        free(d->flights[i].draws);
        sem_destroy(&d->flights[i].done);
    }
    for (int i = 0; i < MOST_COPYING; i++)
        sem_destroy(&d->copying[i].done);
    if (rn_heap_blocks(&d->heap) != 0) {
        fprintf(stderr, "the CUDA backend has left %zu blocks of memory\n", (size_t)rn_heap_blocks(&d->heap));
        abort();
    }
    free(d);
}

static const struct oracle_device functions = {.ring = RING,
                                               .can_draw = can_draw,
                                               .begin = begin,
                                               .await = await,
                                               .settle = settle,
                                               .begin_copies = begin_copies,
                                               .await_copies = await_copies,
                                               .poison = poison,
                                               .block_bytes = block_bytes,
                                               .host_alloc = host_alloc,
                                               .host_free = host_free,
                                               .free = free_device};

static bool start(struct cuda_device *d, const struct rn_backend_limits *given)
{
    struct rn_backend_limits limits = *given;
    struct rn_gpu_driver *emulated;
    runnel_error error = {0};
    bool good = true;

    limits.kv_type = RUNNEL_KV_F32;
    limits.draws = true;
    for (int i = 0; i < RING; i++) {
        sem_init(&d->flights[i].done, 0, 0);
        d->flights[i].rows = calloc(limits.max_rows, sizeof *d->flights[i].rows);
        d->flights[i].draws = calloc(limits.max_outs + 1, sizeof *d->flights[i].draws);
        good = good && d->flights[i].rows != NULL && d->flights[i].draws != NULL;
    }
    for (int i = 0; i < MOST_COPYING; i++)
        sem_init(&d->copying[i].done, 0, 0);
    d->module.kernels = kernels();
    if (!good || d->module.kernels == NULL)
        return false;
    emulated = d->module.kernels->driver(&d->heap, d->module.kernels->emulation, MEMORY);
    d->fault.result = RN_GPU_UNKNOWN;
    d->module.driver = emulated == NULL ? NULL : rn_gpu_driver_faulty(&d->heap, emulated, &d->fault);
    d->device = d->module.driver == NULL ? NULL : rn_gpu_device_open(&d->heap, &d->module, 0, &error);
    d->backend = d->device == NULL ? NULL : d->device->kind->new_backend(d->device, &d->heap);
    if (d->backend != NULL &&
        d->backend->ops->prepare(d->backend, &d->plan.plan, &limits, NULL, NULL, &error) == RUNNEL_OK)
        return true;
    fprintf(stderr, "%s\n", error.message);
    return false;
}

bool cuda_oracle_attach(struct oracle *oracle, bool may_fail)
{
    struct cuda_device *d = calloc(1, sizeof *d);

    if (d == NULL)
        return false;
    d->base = functions;
    d->base.may_fail = may_fail;
    d->random = oracle->salt;
    rn_heap_init(&d->heap, NULL);
    plan_init(&d->plan, oracle->salt, oracle->limits.context_tokens);
    alphabet = oracle->alphabet;
    if (start(d, &oracle->limits)) {
        oracle_attach(oracle, &d->base);
        return true;
    }
    free_device(&d->base);
    return false;
}
