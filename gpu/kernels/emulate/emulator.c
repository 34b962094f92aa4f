/* Blocks, warps and barriers of emulator.h. The launching thread is the scheduler: it lets each fiber run until the
 * fiber waits or ends. Fibers live as long as the emulator: each runs a thread of one block after another. */
#include "gpu/kernels/emulate/emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/poison.h"
#include "gpu/kernels/emulate/fiber.h"
#include "gpu/kernels/emulate/inside.h"

enum { WARP = 32, MAX_THREADS = 1024, MAX_SHARED_BYTES = RN_SHARED_BYTES, GUARD_BYTES = 65536 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 128 * 1024 };
#endif

enum wait { RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK, ENDED };

struct thread {
    struct rn_fiber fiber;
    struct rn_emulator *emulator;
    enum wait wait;
    struct rn_emulated_site site; /* where it waits */
    struct rn_emulated_place place;
    bool made;
};

struct warp {
    void *data[WARP]; /* of those who have arrived at the operation under way */
    uint32_t arrived; /* bit for each */
    uint32_t phase;   /* sync_warps so far in this launch */
};

/* Who has touched a word of shared memory, and when. Phase 0 of a block: never; `many`: several. */
enum { MANY = 0xffff };
struct touch {
    uint32_t block_phase, warp_phase;
    uint16_t thread, warp;
};
struct shadow {
    struct touch write, read;
    bool adds; /* it was written by atomic operations alone since the last barrier that orders them */
};

struct rn_emulator {
    struct rn_heap *heap;
    struct rn_fiber scheduler;
    struct thread *threads; /* [MAX_THREADS] */
    unsigned char *stacks;  /* [MAX_THREADS][GUARD_BYTES + STACK_BYTES], mapped */
    unsigned char *shared;  /* [MAX_SHARED_BYTES] */
    struct shadow *shadows; /* [MAX_SHARED_BYTES / 4] */
    struct warp warps[MAX_THREADS / WARP];

    /* The launch. */
    rn_emulated_kernel kernel;
    const struct rn_launch *launch;
    const void *args;
    const struct rn_emulated_range *ranges;
    size_t n_ranges;
    uint32_t n_threads;
    uint32_t block_phase; /* barriers and blocks so far, from 1 on */
    struct thread *runs;
    char *fault; /* NULL: none yet */
    char *fault_text;
};

static _Thread_local struct rn_emulator *current;

/* ---- Life ---- */

struct rn_emulator *rn_emulator_new(struct rn_heap *heap)
{
    struct rn_emulator *e = rn_calloc(heap, 1, sizeof *e);

    if (e == NULL)
        return NULL;
    e->heap = heap;
    e->stacks = MAP_FAILED;
    e->threads = rn_calloc(heap, MAX_THREADS, sizeof *e->threads);
    e->shared = rn_alloc_aligned(heap, MAX_SHARED_BYTES, 128);
    e->shadows = rn_calloc(heap, MAX_SHARED_BYTES / 4, sizeof *e->shadows);
    if (e->threads != NULL && e->shared != NULL && e->shadows != NULL)
        e->stacks = mmap(NULL, (size_t)MAX_THREADS * (GUARD_BYTES + STACK_BYTES), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (e->stacks == MAP_FAILED) {
        rn_emulator_free(e);
        return NULL;
    }
    return e;
}

void rn_emulator_free(struct rn_emulator *e)
{
    uint32_t i;

    if (e == NULL)
        return;
    for (i = 0; e->threads != NULL && i < MAX_THREADS; i++)
        if (e->threads[i].made)
            rn_fiber_fini(&e->threads[i].fiber);
    if (e->stacks != MAP_FAILED) {
        RN_UNPOISON(e->stacks, (size_t)MAX_THREADS * (GUARD_BYTES + STACK_BYTES));
        munmap(e->stacks, (size_t)MAX_THREADS * (GUARD_BYTES + STACK_BYTES));
    }
    rn_free(e->heap, e->shadows);
    rn_free(e->heap, e->shared);
    rn_free(e->heap, e->threads);
    rn_free(e->heap, e);
}

/* What each fiber does: a thread's part of one block after another. */
static void thread_main(void *user)
{
    struct thread *t = user;
    struct rn_emulator *e = t->emulator;

    for (;;) {
        e->kernel(e->args);
        t->wait = ENDED;
        rn_fiber_switch(&t->fiber, &e->scheduler, 0);
    }
}

/* The fibers of a launch; false on refusal of memory. */
static bool make_threads(struct rn_emulator *e)
{
    unsigned char *stack;
    uint32_t i;

    for (i = 0; i < e->n_threads; i++) {
        if (e->threads[i].made)
            continue;
        stack = e->stacks + (size_t)i * (GUARD_BYTES + STACK_BYTES) + GUARD_BYTES;
        if (mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
            return false;
        RN_UNPOISON(stack, STACK_BYTES); /* what a fault has left of frames */
        e->threads[i].emulator = e;
        rn_fiber_init(&e->threads[i].fiber, stack, STACK_BYTES, thread_main, &e->threads[i]);
        e->threads[i].made = true;
    }
    return true;
}

/* ---- Faults ---- */

static void note_fault(struct rn_emulator *e, const char *format, va_list values)
{
    vsnprintf(e->fault_text, RN_EMULATED_FAULT_BYTES, format, values);
    e->fault = e->fault_text;
}

__attribute__((format(printf, 2, 3))) static void fault(struct rn_emulator *e, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    note_fault(e, format, values);
    va_end(values);
}

void rn_emulated_fail(const char *format, ...)
{
    struct rn_emulator *e = current;
    va_list values;

    va_start(values, format);
    note_fault(e, format, values);
    va_end(values);
    rn_fiber_switch(&e->runs->fiber, &e->scheduler, 0);
    RN_CHECK(0);
    __builtin_unreachable();
}

/* ---- Waiting ---- */

const struct rn_emulated_place *rn_emulated_here(void)
{
    return &current->runs->place;
}

static void wait_for(enum wait what, struct rn_emulated_site site)
{
    struct rn_emulator *e = current;
    struct thread *t = e->runs;

    t->wait = what;
    t->site = site;
    rn_fiber_switch(&t->fiber, &e->scheduler, 0);
}

void rn_emulated_sync_block(struct rn_emulated_site site)
{
    wait_for(WAITS_FOR_BLOCK, site);
}

void rn_emulated_warp(struct rn_emulated_site site, rn_emulated_together together, void *data)
{
    struct rn_emulator *e = current;
    uint32_t thread = e->runs->place.thread, first = thread / WARP * WARP, i;
    struct warp *warp = &e->warps[thread / WARP];

    for (i = first; i < first + WARP && warp->arrived != 0; i++)
        if ((warp->arrived >> (i - first) & 1) != 0 &&
            (e->threads[i].site.line != site.line || strcmp(e->threads[i].site.file, site.file) != 0))
            rn_emulated_fail("%s:%d: thread %u is in an operation of its warp, thread %u in that of line %d", site.file,
                             site.line, thread, i, e->threads[i].site.line);
    warp->data[thread - first] = data;
    warp->arrived |= UINT32_C(1) << (thread - first);
    if (warp->arrived != UINT32_MAX) {
        wait_for(WAITS_FOR_WARP, site);
        return;
    }
    warp->arrived = 0;
    together(warp->data);
    for (i = first; i < first + WARP; i++)
        e->threads[i].wait = RUNS;
}

static void order_warp(void *const data[WARP])
{
    ++*(uint32_t *)data[0];
}

void rn_emulated_sync_warp(struct rn_emulated_site site)
{
    rn_emulated_warp(site, order_warp, &current->warps[current->runs->place.thread / WARP].phase);
}

/* ---- Memory ---- */

/* Is what the touch tells of before what `thread` does now? */
static bool is_ordered(const struct rn_emulator *e, const struct touch *touch, uint32_t thread)
{
    const struct warp *warp = &e->warps[thread / WARP];

    return touch->block_phase != e->block_phase || touch->thread == thread ||
           (touch->warp == thread / WARP && touch->warp_phase != warp->phase);
}

static void note_touch(const struct rn_emulator *e, struct touch *touch, uint32_t thread, bool joins)
{
    const struct warp *warp = &e->warps[thread / WARP];
    struct touch now = {e->block_phase, warp->phase, (uint16_t)thread, (uint16_t)(thread / WARP)};

    if (joins && touch->block_phase == e->block_phase) {
        if (touch->warp != now.warp)
            now.warp = now.thread = MANY;
        else if (touch->thread != now.thread && touch->warp_phase == now.warp_phase)
            now.thread = MANY;
    }
    *touch = now;
}

void *rn_emulated_shared(size_t offset, size_t bytes, enum rn_emulated_access access)
{
    bool writes = access != RN_EMULATED_READ, adds = access == RN_EMULATED_ADD;
    struct rn_emulator *e = current;
    uint32_t thread = e->runs->place.thread;
    struct shadow *shadow;
    size_t i;

    RN_CHECK(offset % 4 == 0 && bytes % 4 == 0);
    if (offset + bytes > e->launch->shared_bytes)
        rn_emulated_fail("byte %zu of shared memory is touched, and the launch has %u", offset + bytes - 1,
                         e->launch->shared_bytes);
    for (i = offset / 4; i < (offset + bytes) / 4; i++) {
        shadow = &e->shadows[i];
        if (access != RN_EMULATED_WRITE && shadow->write.block_phase == 0)
            rn_emulated_fail("shared memory: thread %u reads byte %zu, which nobody has written", thread, i * 4);
        if (!(adds && shadow->adds) && !is_ordered(e, &shadow->write, thread))
            rn_emulated_fail("shared memory: thread %u %s byte %zu, which thread %u has written since the last barrier",
                             thread, writes ? "writes" : "reads", i * 4, shadow->write.thread);
        if (writes && !is_ordered(e, &shadow->read, thread))
            rn_emulated_fail("shared memory: thread %u writes byte %zu, which another has read since the last barrier",
                             thread, i * 4);
        note_touch(e, writes ? &shadow->write : &shadow->read, thread, !writes || adds);
        shadow->adds = writes ? adds : shadow->adds;
    }
    return e->shared + offset;
}

void rn_emulated_range_of(uint64_t address, uint64_t *begin, uint64_t *end)
{
    const struct rn_emulator *e = current;
    size_t low = 0, high = e->n_ranges, middle;

    *begin = *end = address;
    while (low < high) {
        middle = (low + high) / 2;
        if (address - e->ranges[middle].at < e->ranges[middle].bytes) {
            *begin = e->ranges[middle].at;
            *end = *begin + e->ranges[middle].bytes;
            return;
        }
        if (address < e->ranges[middle].at)
            high = middle;
        else
            low = middle + 1;
    }
}

/* ---- Running ---- */

static void run_thread(struct rn_emulator *e, struct thread *t)
{
    e->runs = t;
    rn_fiber_switch(&e->scheduler, &t->fiber, 0);
}

/* Lets the threads of a warp run until none can, and finds those that wait for others that do not come. */
static void run_warp(struct rn_emulator *e, uint32_t warp)
{
    struct thread *threads = &e->threads[warp * WARP];
    bool again = true;
    uint32_t i, waits = WARP, other = WARP;

    while (again && e->fault == NULL) {
        again = false;
        for (i = 0; i < WARP && e->fault == NULL; i++) {
            if (threads[i].wait != RUNS)
                continue;
            run_thread(e, &threads[i]);
            again = true;
        }
    }
    for (i = 0; i < WARP; i++) {
        if (threads[i].wait == WAITS_FOR_WARP)
            waits = i;
        else
            other = i;
    }
    if (e->fault == NULL && waits < WARP && other < WARP)
        fault(e, "%s:%d: thread %u waits in an operation of its warp, and thread %u has %s", threads[waits].site.file,
              threads[waits].site.line, threads[waits].place.thread, threads[other].place.thread,
              threads[other].wait == ENDED ? "ended" : "gone to a barrier");
}

/* All threads wait for the block, or all have ended: true if they go on. */
static bool pass_barrier(struct rn_emulator *e)
{
    const struct thread *first = &e->threads[0], *t;
    uint32_t i;

    for (i = 0; i < e->n_threads; i++) {
        t = &e->threads[i];
        if (t->wait != first->wait)
            fault(e, "%s:%d: thread %u waits in a barrier, and thread %u has ended",
                  t->wait == ENDED ? first->site.file : t->site.file,
                  t->wait == ENDED ? first->site.line : t->site.line, t->wait == ENDED ? 0 : i,
                  t->wait == ENDED ? i : 0);
        else if (t->wait == WAITS_FOR_BLOCK && t->site.line != first->site.line)
            fault(e, "%s:%d: thread %u waits in a barrier, and thread 0 in that of line %d", t->site.file, t->site.line,
                  i, first->site.line);
        if (e->fault != NULL)
            return false;
    }
    if (first->wait == ENDED)
        return false;
    e->block_phase++;
    for (i = 0; i < e->n_threads; i++)
        e->threads[i].wait = RUNS;
    return true;
}

static void run_block(struct rn_emulator *e, const uint32_t block[3])
{
    struct thread *t;
    uint32_t i;

    e->block_phase++;
    memset(e->shadows, 0, e->launch->shared_bytes / 4 * sizeof *e->shadows);
    for (i = 0; i < e->n_threads; i++) {
        t = &e->threads[i];
        t->wait = RUNS;
        t->place.thread = i;
        memcpy(t->place.grid, e->launch->grid, sizeof t->place.grid);
        memcpy(t->place.block, block, sizeof t->place.block);
    }
    do {
        for (i = 0; i < e->n_threads / WARP && e->fault == NULL; i++)
            run_warp(e, i);
    } while (e->fault == NULL && pass_barrier(e));
}

/* Fibers that a fault has left in the middle of a block begin anew. */
static void drop_threads(struct rn_emulator *e)
{
    uint32_t i;

    for (i = 0; i < MAX_THREADS; i++) {
        if (e->threads[i].made)
            rn_fiber_fini(&e->threads[i].fiber);
        e->threads[i].made = false;
    }
    memset(e->warps, 0, sizeof e->warps);
}

static bool is_launch(const struct rn_launch *launch)
{
    return launch->threads > 0 && launch->threads <= MAX_THREADS && launch->threads % WARP == 0 &&
           launch->shared_bytes <= MAX_SHARED_BYTES && launch->shared_bytes % 4 == 0 && launch->grid[0] > 0 &&
           launch->grid[1] > 0 && launch->grid[2] > 0 && launch->grid[1] <= 65535 && launch->grid[2] <= 65535;
}

bool rn_emulator_launch(struct rn_emulator *e, rn_emulated_kernel kernel, const struct rn_launch *launch,
                        const void *args, const struct rn_emulated_range *ranges, size_t n_ranges,
                        char fault_text[RN_EMULATED_FAULT_BYTES])
{
    uint32_t block[3];

    e->kernel = kernel;
    e->launch = launch;
    e->args = args;
    e->ranges = ranges;
    e->n_ranges = n_ranges;
    e->n_threads = launch->threads;
    e->fault = NULL;
    e->fault_text = fault_text;
    if (!is_launch(launch)) {
        fault(e, "a launch of %u x %u x %u blocks of %u threads with %u bytes of shared memory", launch->grid[0],
              launch->grid[1], launch->grid[2], launch->threads, launch->shared_bytes);
        return false;
    }
    if (!make_threads(e)) {
        fault(e, "no memory for %u stacks", e->n_threads);
        return false;
    }
    rn_fiber_init_thread(&e->scheduler);
    current = e;
    for (block[2] = 0; block[2] < launch->grid[2] && e->fault == NULL; block[2]++)
        for (block[1] = 0; block[1] < launch->grid[1] && e->fault == NULL; block[1]++)
            for (block[0] = 0; block[0] < launch->grid[0] && e->fault == NULL; block[0]++)
                run_block(e, block);
    current = NULL;
    if (e->fault != NULL)
        drop_threads(e);
    return e->fault == NULL;
}
