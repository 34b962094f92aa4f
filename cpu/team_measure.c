/* What the machine can do at most: runnel_engine_measure, on the compute team.
 *
 * Every pass is a job of its own, so that steps of running models stand between the passes and never inside
 * one. In a pass the workers start together and the slowest ends it:
 *
 *   worker 0:  barrier, clock, work, barrier, clock        the others:  barrier, work, barrier
 *
 * Memory is filled by the worker that will read it, so that on a machine of several nodes each reads its own.
 * Runs on the thread that asks, which sleeps while the team works. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpu/levels/peak.h"
#include "cpu/team.h"

enum { READ_PASSES = 5, PATTERNS = 6, PEAK_PASSES = 5, SHARE_UNIT = 4096 };

static const size_t least_bytes = (size_t)32 << 20, usual_bytes = (size_t)256 << 20, most_bytes = (size_t)1 << 30;
static const size_t alignment = (size_t)2 << 20; /* whole pages of any size: they are given back as such */
static const uint64_t pass_us = 20000; /* of a peak pass: long beside the start of threads and the clock's tick */

/* How a worker reads its share: at so many places by turns, `visit` bytes at a time; one place is a linear read. */
struct pattern {
    size_t places, visit;
    bool ahead; /* asks for what comes next; else the processor does by itself */
};

/* Which is the fastest depends on the processor and on the size of pages: see docs/SPEED-LOG.md. */
static const struct pattern patterns[PATTERNS] = {{1, 65536, false}, {1, 65536, true}, {4, 1024, false},
                                                  {4, 1024, true},   {8, 1024, false}, {8, 1024, true}};

struct pass {
    struct rn_job job; /* first */
    struct rn_team *team;
    uint64_t (*work)(struct pass *pass, uint32_t worker, uint32_t n_workers); /* what it returns is used for nothing */
    const struct rn_peak *peak;
    const struct pattern *pattern; /* of a read pass */
    char *memory;
    size_t bytes;
    uint64_t rounds;
    uint64_t took_us; /* written by worker 0, read after the job */
    _Atomic uint64_t sink;
    bool (*is_unwanted)(void *user); /* NULL: it is wanted to its end */
    void *user;
    bool unwanted; /* passes are left out from now on */
};

/* ---- What the workers do ---- */

/* Worker's part of the memory: whole pages, and a length that the read loops take. */
static char *share(const struct pass *pass, uint32_t worker, uint32_t n_workers, size_t *bytes)
{
    *bytes = pass->bytes / n_workers / SHARE_UNIT * SHARE_UNIT;
    return pass->memory + *bytes * worker;
}

static uint64_t fill(struct pass *pass, uint32_t worker, uint32_t n_workers)
{
    size_t bytes, i;
    char *at = share(pass, worker, n_workers, &bytes);
    uint64_t word = (uint64_t)worker << 48; /* no two pages alike: a kernel may merge those */

    for (i = 0; i < bytes; i += sizeof word, word++)
        memcpy(at + i, &word, sizeof word);
    return 0;
}

static uint64_t read_share(struct pass *pass, uint32_t worker, uint32_t n_workers)
{
    const struct pattern *p = pass->pattern;
    uint64_t (*read)(const void *, size_t) = p->ahead ? pass->peak->read : pass->peak->read_plain;
    size_t bytes, stride, i, place;
    const char *at = share(pass, worker, n_workers, &bytes);
    uint64_t sum = 0;

    stride = bytes / p->places;
    for (i = 0; i < stride; i += p->visit)
        for (place = 0; place < p->places; place++)
            sum += read(at + place * stride + i, p->visit < stride - i ? p->visit : stride - i);
    return sum;
}

static uint64_t integer(struct pass *pass, uint32_t worker, uint32_t n_workers)
{
    (void)worker;
    (void)n_workers;
    return pass->peak->integer(pass->rounds);
}

static uint64_t real(struct pass *pass, uint32_t worker, uint32_t n_workers)
{
    (void)worker;
    (void)n_workers;
    return pass->peak->real(pass->rounds);
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct pass *pass = (struct pass *)job;
    const struct rn_clock clock = rn_clock_machine();
    uint64_t begin_us = 0, result;

    rn_team_barrier(pass->team, worker);
    if (worker == 0)
        begin_us = rn_now_us(&clock);
    result = pass->work(pass, worker, n_workers);
    rn_team_barrier(pass->team, worker);
    if (worker == 0)
        pass->took_us = rn_now_us(&clock) - begin_us;
    atomic_fetch_xor_explicit(&pass->sink, result, memory_order_relaxed); /* nobody reads it; orders nothing */
}

/* ---- Passes ---- */

/* Microseconds of one pass, at least 1. */
static uint64_t time_pass(struct pass *pass, uint64_t (*work)(struct pass *, uint32_t, uint32_t))
{
    pass->unwanted = pass->unwanted || (pass->is_unwanted != NULL && pass->is_unwanted(pass->user));
    if (pass->unwanted)
        return pass_us;
    pass->work = work;
    rn_team_run(pass->team, &pass->job);
    return pass->took_us > 0 ? pass->took_us : 1;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Of the pattern with the fastest pass that pass, and the median of its passes. The patterns are read in turn, so that
 * what else the machine does meets all of them. */
static void measure_read(struct pass *pass, runnel_machine *machine)
{
    uint32_t n = rn_team_threads(pass->team);
    double bytes = (double)(pass->bytes / n / SHARE_UNIT * SHARE_UNIT * n);
    uint64_t times[PATTERNS][READ_PASSES];
    int i, k, best = 0;

    time_pass(pass, fill);
    for (i = 0; i < READ_PASSES; i++)
        for (k = 0; k < PATTERNS; k++) {
            pass->pattern = &patterns[k];
            times[k][i] = time_pass(pass, read_share);
        }
    for (k = 0; k < PATTERNS; k++) {
        qsort(times[k], READ_PASSES, sizeof times[k][0], compare_times);
        best = times[k][0] < times[best][0] ? k : best;
    }
    machine->read_bytes_per_s = bytes * 1e6 / (double)times[best][0];
    machine->read_median_bytes_per_s = bytes * 1e6 / (double)times[best][READ_PASSES / 2];
}

/* Operations per second of all workers: as many rounds as fill a pass, then the best of several. */
static double measure_peak(struct pass *pass, uint64_t (*work)(struct pass *, uint32_t, uint32_t), double round_ops)
{
    uint64_t took_us, best_us = UINT64_MAX;
    int i;

    for (pass->rounds = 1000; (took_us = time_pass(pass, work)) < pass_us / 2; pass->rounds *= 2)
        continue;
    for (i = 0; i < PEAK_PASSES; i++) {
        took_us = time_pass(pass, work);
        best_us = took_us < best_us ? took_us : best_us;
    }
    return (double)rn_team_threads(pass->team) * (double)pass->rounds * round_ops * 1e6 / (double)best_us;
}

/* ---- The machine ---- */

/* The value of "model name : ..." in /proc/cpuinfo, or the architecture's name where there is none (Arm). */
static void name_cpu(char *name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    struct utsname system;
    char line[256];
    const char *value;

    snprintf(name, size, "%.*s", (int)size - 1, uname(&system) == 0 ? system.machine : "unknown");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "model name", 10) != 0 || (value = strchr(line, ':')) == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, size, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

/* Twice the largest cache, within bounds and an eighth of the machine's memory. A cache of more than half the upper
 * bound is that of a whole server, of which this machine has a part. */
static size_t working_set(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? 2 * (size_t)cache : usual_bytes;
    uint64_t most = rn_cpu_memory_bytes() / 8;

    bytes = bytes > usual_bytes ? bytes : usual_bytes;
    bytes = bytes < most_bytes ? bytes : most_bytes;
    bytes = bytes < most ? bytes : (size_t)most;
    bytes = bytes > least_bytes ? bytes : least_bytes;
    return bytes / alignment * alignment;
}

runnel_status rn_cpu_measure(const struct rn_peak *peak, struct rn_heap *heap, struct rn_team *team,
                             bool (*is_unwanted)(void *user), void *user, runnel_machine *machine, runnel_error *error)
{
    struct pass pass = {.job = {run, NULL, NULL},
                        .team = team,
                        .peak = peak,
                        .bytes = working_set(),
                        .is_unwanted = is_unwanted,
                        .user = user};

    while ((pass.memory = rn_alloc_aligned(heap, pass.bytes, alignment)) == NULL && pass.bytes / 2 >= least_bytes)
        pass.bytes = pass.bytes / 2 / alignment * alignment;
    if (pass.memory == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no %zu bytes of memory to measure its bandwidth", pass.bytes);
    (void)madvise(pass.memory, pass.bytes, MADV_HUGEPAGE); /* advice only: the limit is that of the best pages */
    machine->compute_threads = rn_team_threads(team);
    machine->memory_nodes = rn_team_nodes(team);
    machine->memory_bytes = rn_cpu_memory_bytes();
    name_cpu(machine->cpu, sizeof machine->cpu);
    measure_read(&pass, machine);
    machine->integer_ops_per_s = measure_peak(&pass, integer, pass.peak->integer_ops);
    machine->float_ops_per_s = measure_peak(&pass, real, pass.peak->real_ops);
    (void)madvise(pass.memory, pass.bytes, MADV_DONTNEED); /* an allocator may keep what it gets back resident */
    rn_free(heap, pass.memory);
    return pass.unwanted ? rn_error_set(error, RUNNEL_CLOSED, "the measurement is no longer wanted") : RUNNEL_OK;
}
