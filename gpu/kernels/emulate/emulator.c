/* Blocks, warps and barriers of emulator.h. The launching thread is the scheduler: it lets one warp after another run.
 * In a warp whoever waits or ends hands on to the next thread that can run, and back to the scheduler when none can.
 * Fibers live as long as the emulator: each runs a thread of one block after another. */
#include "gpu/kernels/emulate/emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/poison.h"
#include "gpu/kernels/emulate/fiber.h"
#include "gpu/kernels/emulate/inside.h"
#include "gpu/kernels/emulate/races.h"

enum { WARP = 32, MAX_THREADS = 1024, MAX_SHARED_BYTES = RN_SHARED_BYTES, GUARD_BYTES = 65536 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 160 * 1024 };
#endif
enum { STACK_SHIFT = 576, STACK_SHIFTS = 64 }; /* stacks that all began alike would lie in the same lines of a cache */

/* Of the launches of one form the first ones are checked for races within and between blocks, and then every few:
 * models launch the same a thousand times. */
enum { FORMS = 4096, CHECKED_FIRST = 4, CHECKED_EVERY = 16 };
struct form {
    uint64_t of; /* hash of kernel and launch */
    uint64_t launches;
};

struct thread {
    struct rn_fiber fiber;
    struct rn_emulator *emulator;
    struct copy *copies; /* [MAX_COPIES] under way, oldest first */
    uint32_t n_copies, groups;
    bool made;
};

/* From global to shared memory, beside the thread. */
enum { MAX_COPIES = 64, COPY_BYTES = 16 };
struct copy {
    uint32_t offset, bytes;
    uint32_t group; /* how many the thread had made before its own */
    unsigned char data[COPY_BYTES];
};

/* Where its threads are, a bit for each, which is in one of the four. */
struct warp {
    uint32_t ready;               /* they run when it is their turn */
    uint32_t arrived, at_barrier; /* they wait in an operation of the warp; in a barrier of the block */
    uint32_t ended;
    uint32_t phase;                                          /* sync_warps so far */
    const struct rn_emulated_site *operation, *barrier_site; /* of those who wait */
    void *data[WARP];                                        /* of those who have arrived */
};

/* Who has touched a word of shared memory, and when. A phase before the block's first one: never; MANY: several. */
enum { MANY = 0xffff };
#define LAST_PHASE UINT32_C(0x80000000) /* of block_phase: a launch of so many barriers would not end within a day */
struct touch {
    uint32_t block_phase, warp_phase;
    uint16_t thread, warp;
};
struct shadow {
    struct touch write, read;
    uint16_t is_atomic; /* the write: several threads may have made it */
    uint16_t copier;    /* 1 + the thread whose copy to it is under way; 0: none is */
};

struct rn_emulator {
    struct rn_heap *heap;
    struct rn_fiber scheduler;
    struct thread *threads; /* [MAX_THREADS] */
    unsigned char *stacks;  /* [MAX_THREADS][GUARD_BYTES + STACK_BYTES], mapped */
    unsigned char *shared;  /* [MAX_SHARED_BYTES] */
    struct shadow *shadows; /* [MAX_SHARED_BYTES / 4] */
    struct copy *copies;    /* [MAX_THREADS][MAX_COPIES] */
    struct rn_races *races;
    struct warp warps[MAX_THREADS / WARP];

    /* The launch. */
    rn_emulated_kernel kernel;
    const struct rn_launch *launch;
    const void *args;
    const struct rn_emulated_range *ranges;
    size_t n_ranges;
    size_t last_range; /* that has been asked for */
    uint32_t n_threads;
    uint32_t block_phase, first_phase; /* barriers and blocks so far, from 1 on; when this block began */
    char *fault;                       /* NULL: none yet */
    char *fault_text;

    struct form forms[FORMS]; /* at their hash; the last one that came there */
};

__thread struct rn_emulated_here rn_emulated_here;

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
    e->copies = rn_calloc(heap, (size_t)MAX_THREADS * MAX_COPIES, sizeof *e->copies);
    e->races = rn_races_new(heap);
    if (e->threads != NULL && e->shared != NULL && e->shadows != NULL && e->copies != NULL && e->races != NULL)
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
    rn_races_free(e->races);
    rn_free(e->heap, e->copies);
    rn_free(e->heap, e->shadows);
    rn_free(e->heap, e->shared);
    rn_free(e->heap, e->threads);
    rn_free(e->heap, e);
}

static struct warp *warp_of(struct rn_emulator *e, uint32_t thread)
{
    return &e->warps[thread / WARP];
}

/* Leaves the thread that runs, which is not ready any more, for the next one of its warp that is. */
static void hand_on(struct rn_emulator *e)
{
    uint32_t thread = rn_emulated_here.thread, lane = thread % WARP, ready = warp_of(e, thread)->ready;
    uint32_t behind = ready & ~((UINT32_C(2) << lane) - 1), next;

    if (ready == 0) {
        rn_fiber_switch(&e->threads[thread].fiber, &e->scheduler, 0);
        return;
    }
    next = thread - lane + (uint32_t)__builtin_ctz(behind != 0 ? behind : ready);
    rn_emulated_here.thread = next;
    rn_fiber_switch(&e->threads[thread].fiber, &e->threads[next].fiber, 0);
}

/* What each fiber does: a thread's part of one block after another. */
static void thread_main(void *user)
{
    struct thread *t = user;
    struct rn_emulator *e = t->emulator;
    uint32_t thread = (uint32_t)(t - e->threads), bit = UINT32_C(1) << thread % WARP;

    for (;;) {
        e->kernel(e->args);
        e->warps[thread / WARP].ready &= ~bit;
        e->warps[thread / WARP].ended |= bit;
        hand_on(e);
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
        e->threads[i].copies = e->copies + (size_t)i * MAX_COPIES;
        rn_fiber_init(&e->threads[i].fiber, stack, STACK_BYTES - i % STACK_SHIFTS * STACK_SHIFT, thread_main,
                      &e->threads[i]);
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
    struct rn_emulator *e = rn_emulated_here.emulator;
    va_list values;

    va_start(values, format);
    note_fault(e, format, values);
    va_end(values);
    rn_fiber_switch(&e->threads[rn_emulated_here.thread].fiber, &e->scheduler, 0);
    RN_CHECK(0);
    __builtin_unreachable();
}

/* ---- Waiting ---- */

void rn_emulated_sync_block(const struct rn_emulated_site *site)
{
    struct rn_emulator *e = rn_emulated_here.emulator;
    uint32_t thread = rn_emulated_here.thread, bit = UINT32_C(1) << thread % WARP;
    struct warp *warp = warp_of(e, thread);

    if (warp->at_barrier != 0 && warp->barrier_site != site)
        rn_emulated_fail("%s:%d: thread %u waits in a barrier, and another of its warp in that of line %d", site->file,
                         site->line, thread, warp->barrier_site->line);
    warp->barrier_site = site;
    warp->ready &= ~bit;
    warp->at_barrier |= bit;
    hand_on(e);
}

void rn_emulated_warp(const struct rn_emulated_site *site, rn_emulated_together together, void *data)
{
    struct rn_emulator *e = rn_emulated_here.emulator;
    uint32_t thread = rn_emulated_here.thread, bit = UINT32_C(1) << thread % WARP;
    struct warp *warp = warp_of(e, thread);

    if (warp->arrived != 0 && warp->operation != site)
        rn_emulated_fail("%s:%d: thread %u is in an operation of its warp, thread %u in that of line %d", site->file,
                         site->line, thread, thread / WARP * WARP + (uint32_t)__builtin_ctz(warp->arrived),
                         warp->operation->line);
    warp->operation = site;
    warp->data[thread % WARP] = data;
    warp->arrived |= bit;
    if (warp->arrived != UINT32_MAX) {
        warp->ready &= ~bit;
        hand_on(e);
        return;
    }
    warp->arrived = 0;
    together(warp->data);
    warp->ready = UINT32_MAX;
}

static void order_warp(void *const data[WARP])
{
    ++*(uint32_t *)data[0];
}

void rn_emulated_sync_warp(const struct rn_emulated_site *site)
{
    rn_emulated_warp(site, order_warp, &warp_of(rn_emulated_here.emulator, rn_emulated_here.thread)->phase);
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

/* One word. */
static void touch_shared(struct rn_emulator *e, size_t word, uint32_t thread, enum rn_emulated_touch touch)
{
    struct shadow *shadow = &e->shadows[word];
    bool writes = touch != RN_EMULATED_READ, is_atomic = touch == RN_EMULATED_ATOMIC, ordered;

    if (shadow->copier != 0)
        rn_emulated_fail("shared memory: thread %u touches byte %zu, to which a copy of thread %d is under way", thread,
                         word * 4, shadow->copier - 1);
    if (touch != RN_EMULATED_WRITE && shadow->write.block_phase < e->first_phase)
        rn_emulated_fail("shared memory: thread %u reads byte %zu, which nobody has written", thread, word * 4);
    ordered = is_ordered(e, &shadow->write, thread);
    if (!ordered && (!is_atomic || shadow->is_atomic == 0))
        rn_emulated_fail("shared memory: thread %u %s byte %zu, which thread %u has written since the last barrier",
                         thread, writes ? "writes" : "reads", word * 4, shadow->write.thread);
    if (writes && !is_ordered(e, &shadow->read, thread))
        rn_emulated_fail("shared memory: thread %u writes byte %zu, which another has read since the last barrier",
                         thread, word * 4);
    if (is_atomic && ordered && shadow->is_atomic == 0 && shadow->write.thread == thread &&
        shadow->write.block_phase == e->block_phase)
        return; /* what it has written otherwise stays that for the others */
    note_touch(e, writes ? &shadow->write : &shadow->read, thread, !writes || (is_atomic && shadow->is_atomic != 0));
    if (writes)
        shadow->is_atomic = is_atomic;
}

void *rn_emulated_note_shared(size_t offset, size_t bytes, enum rn_emulated_touch touch)
{
    struct rn_emulator *e = rn_emulated_here.emulator;

    RN_CHECK(offset % 4 == 0 && bytes % 4 == 0);
    if (offset + bytes > e->launch->shared_bytes)
        rn_emulated_fail("byte %zu of shared memory is touched, and the launch has %u", offset + bytes - 1,
                         e->launch->shared_bytes);
    for (size_t i = offset / 4; rn_emulated_here.is_checked && i < (offset + bytes) / 4; i++)
        touch_shared(e, i, rn_emulated_here.thread, touch);
    return e->shared + offset;
}

static void mark_copier(struct rn_emulator *e, size_t offset, size_t bytes, uint16_t copier)
{
    for (size_t i = offset / 4; rn_emulated_here.is_checked && i < (offset + bytes) / 4; i++)
        e->shadows[i].copier = copier;
}

/* The copy writes when it begins, and again when it has ended: nobody may touch the place between. */
void rn_emulated_copy(size_t offset, const void *from, size_t bytes)
{
    struct rn_emulator *e = rn_emulated_here.emulator;
    uint32_t thread = rn_emulated_here.thread;
    struct thread *t = &e->threads[thread];
    struct copy *copy = &t->copies[t->n_copies];

    RN_CHECK(bytes <= COPY_BYTES);
    if (t->n_copies == MAX_COPIES)
        rn_emulated_fail("thread %u has more than %d copies under way", thread, MAX_COPIES);
    if (offset % bytes != 0)
        rn_emulated_fail("shared memory: a copy of %zu bytes to byte %zu is not aligned", bytes, offset);
    memset(rn_emulated_shared(offset, bytes, RN_EMULATED_WRITE), 0xff, bytes);
    mark_copier(e, offset, bytes, (uint16_t)(thread + 1));
    *copy = (struct copy){(uint32_t)offset, (uint32_t)bytes, t->groups, {0}};
    memcpy(copy->data, from, bytes);
    t->n_copies++;
}

void rn_emulated_commit_copies(void)
{
    rn_emulated_here.emulator->threads[rn_emulated_here.thread].groups++;
}

void rn_emulated_wait_copies(uint32_t left)
{
    struct rn_emulator *e = rn_emulated_here.emulator;
    struct thread *t = &e->threads[rn_emulated_here.thread];
    uint32_t n = 0;

    for (; n < t->n_copies && t->copies[n].group + left < t->groups; n++) {
        const struct copy *copy = &t->copies[n];

        mark_copier(e, copy->offset, copy->bytes, 0);
        memcpy(rn_emulated_shared(copy->offset, copy->bytes, RN_EMULATED_WRITE), copy->data, copy->bytes);
    }
    if (n == 0)
        return;
    t->n_copies -= n;
    memmove(t->copies, t->copies + n, t->n_copies * sizeof *t->copies);
}

void rn_emulated_note_global(uint64_t at, size_t bytes, enum rn_emulated_touch touch)
{
    struct rn_emulator *e = rn_emulated_here.emulator;
    const struct rn_emulated_here *place = &rn_emulated_here;
    enum rn_race race = rn_races_touch(e->races, at, bytes, touch);
    uint64_t begin, end;

    if (race == RN_RACE_NONE)
        return;
    rn_emulated_range_of(at, &begin, &end);
    rn_emulated_fail(
        "global memory: block (%u, %u, %u) %s byte %llu of an allocation, which another block of the launch "
        "has %s",
        place->block[0], place->block[1], place->block[2], touch == RN_EMULATED_READ ? "reads" : "writes",
        (unsigned long long)(at - begin), race == RN_RACE_READ ? "read" : "written");
}

static bool is_within(const struct rn_emulated_range *range, uint64_t address)
{
    return address - range->at < range->bytes;
}

/* The range of the address; none: n_ranges. */
static size_t find_range(const struct rn_emulator *e, uint64_t address)
{
    size_t low = 0, high = e->n_ranges, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (is_within(&e->ranges[middle], address))
            return middle;
        if (address < e->ranges[middle].at)
            high = middle;
        else
            low = middle + 1;
    }
    return e->n_ranges;
}

void rn_emulated_range_of(uint64_t address, uint64_t *begin, uint64_t *end)
{
    struct rn_emulator *e = rn_emulated_here.emulator;
    size_t i = e->last_range;

    if (i >= e->n_ranges || !is_within(&e->ranges[i], address))
        i = e->last_range = find_range(e, address);
    *begin = i < e->n_ranges ? e->ranges[i].at : address;
    *end = i < e->n_ranges ? *begin + e->ranges[i].bytes : address;
}

/* ---- Running ---- */

/* Lets the threads of a warp run until none can, and finds those that wait for others that do not come. */
static void run_warp(struct rn_emulator *e, uint32_t w)
{
    const struct warp *warp = &e->warps[w];
    uint32_t waits, other;

    rn_emulated_here.thread = w * WARP + (uint32_t)__builtin_ctz(warp->ready);
    rn_fiber_switch(&e->scheduler, &e->threads[rn_emulated_here.thread].fiber, 0);
    if (e->fault != NULL || warp->arrived == 0)
        return;
    waits = (uint32_t)__builtin_ctz(warp->arrived);
    other = (uint32_t)__builtin_ctz(~warp->arrived);
    fault(e, "%s:%d: thread %u waits in an operation of its warp, and thread %u has %s", warp->operation->file,
          warp->operation->line, w * WARP + waits, w * WARP + other,
          (warp->ended >> other & 1) != 0 ? "ended" : "gone to a barrier");
}

/* A thread of the warp for which the bits say so. */
static uint32_t one_of(uint32_t w, uint32_t bits)
{
    return w * WARP + (uint32_t)__builtin_ctz(bits);
}

/* All threads wait for the block, or all have ended: true if they go on. */
static bool pass_barrier(struct rn_emulator *e)
{
    uint32_t n = e->n_threads / WARP, waits = n, ended = n, w;

    for (w = 0; w < n; w++) {
        waits = e->warps[w].at_barrier != 0 && waits == n ? w : waits;
        ended = e->warps[w].ended != 0 && ended == n ? w : ended;
    }
    if (waits == n)
        return false;
    if (ended < n) {
        fault(e, "%s:%d: thread %u waits in a barrier, and thread %u has ended", e->warps[waits].barrier_site->file,
              e->warps[waits].barrier_site->line, one_of(waits, e->warps[waits].at_barrier),
              one_of(ended, e->warps[ended].ended));
        return false;
    }
    e->block_phase++;
    for (w = 0; w < n; w++) {
        const struct rn_emulated_site *site = e->warps[w].barrier_site;

        if (site != e->warps[0].barrier_site)
            fault(e, "%s:%d: thread %u waits in a barrier, and thread 0 in that of line %d", site->file, site->line,
                  w * WARP, e->warps[0].barrier_site->line);
        e->warps[w].ready = UINT32_MAX;
        e->warps[w].at_barrier = 0;
    }
    return e->fault == NULL;
}

/* Copies that nobody has waited for end with the block. */
static void drop_copies(struct rn_emulator *e, struct thread *t)
{
    for (uint32_t i = 0; i < t->n_copies; i++)
        mark_copier(e, t->copies[i].offset, t->copies[i].bytes, 0);
    t->n_copies = t->groups = 0;
}

/* Shared memory that nobody has written is full of 0xff: where it is not noted, numbers from there are NaN. */
static void run_block(struct rn_emulator *e, const uint32_t block[3])
{
    uint32_t i;

    e->first_phase = ++e->block_phase;
    if (rn_emulated_here.is_checked)
        rn_races_block(e->races);
    else
        memset(e->shared, 0xff, e->launch->shared_bytes);
    memcpy(rn_emulated_here.block, block, sizeof rn_emulated_here.block);
    for (i = 0; i < e->n_threads / WARP; i++) {
        e->warps[i].ready = UINT32_MAX;
        e->warps[i].ended = 0;
    }
    do {
        for (i = 0; i < e->n_threads / WARP && e->fault == NULL; i++)
            run_warp(e, i);
    } while (e->fault == NULL && pass_barrier(e));
    for (i = 0; i < e->n_threads; i++)
        if (e->threads[i].groups != 0 || e->threads[i].n_copies != 0)
            drop_copies(e, &e->threads[i]);
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

/* Counts the launch among those of its form. */
static bool is_to_be_checked(struct rn_emulator *e, rn_emulated_kernel kernel, const struct rn_launch *launch)
{
    const uint64_t words[] = {
        (uint64_t)(uintptr_t)kernel, launch->grid[0], launch->grid[1], launch->grid[2], launch->threads,
        launch->shared_bytes};
    uint64_t hash = 0, n;
    struct form *form;

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) >> 1;
    form = &e->forms[hash >> 20 & (FORMS - 1)];
    if (form->of != hash)
        *form = (struct form){hash, 0};
    n = form->launches++;
    return n < CHECKED_FIRST || n % CHECKED_EVERY == 0;
}

/* Sets what the fibers find, and what notes nothing of the launches before. */
static void begin_launch(struct rn_emulator *e, const struct rn_launch *launch)
{
    rn_fiber_init_thread(&e->scheduler);
    rn_emulated_here = (struct rn_emulated_here){.emulator = e,
                                                 .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
                                                 .shared = e->shared,
                                                 .shared_bytes = launch->shared_bytes,
                                                 .is_checked = is_to_be_checked(e, e->kernel, launch)};
    e->last_range = 0;
    if (e->block_phase > LAST_PHASE) {
        memset(e->shadows, 0, MAX_SHARED_BYTES / 4 * sizeof *e->shadows);
        e->block_phase = 0;
    }
    if (rn_emulated_here.is_checked)
        rn_races_launch(e->races, (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2]);
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
    begin_launch(e, launch);
    for (block[2] = 0; block[2] < launch->grid[2] && e->fault == NULL; block[2]++)
        for (block[1] = 0; block[1] < launch->grid[1] && e->fault == NULL; block[1]++)
            for (block[0] = 0; block[0] < launch->grid[0] && e->fault == NULL; block[0]++)
                run_block(e, block);
    rn_emulated_here.emulator = NULL;
    if (e->fault != NULL)
        drop_threads(e);
    return e->fault == NULL;
}
