/* The CPU as a device: a compute team that backends share, and the SIMD level of these. Kinds and teams: see cpu.h. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/machine_memory.h"
#include "cpu/kernels.h"
#include "cpu/levels/peak.h"
#include "cpu/team.h"
#include "model/kv.h"

enum {
    MAX_ROWS = 1 << 20,
    GOOD_ROWS = 256,
    GOOD_OUTS = 64,    /* sequences that decode in one step */
    BLOCK_TOKENS = 32, /* also the tile that attention walks */
    GOOD_RING = 1,     /* it hides little here, and who comes new would wait for a step more: RATIONALE */
    RING = 2           /* a step more can wait while one runs */
};

struct cpu_device {
    struct rn_device base; /* first */
    struct rn_heap *heap;
    struct rn_team *team;
    bool shares;                  /* the team is another device's */
    const struct rn_level *level; /* of "reference" plain C, and unused */
    struct rn_device_caps caps;
};

struct rn_device_caps rn_cpu_caps(const struct rn_team *team)
{
    struct rn_device_caps caps = {.can = RN_CAN_TREES | RN_CAN_MEANS | RN_CAN_WINDOWS | RN_CAN_FEATURES |
                                         RN_CAN_INPUTS | RN_CAN_DRAW | RN_CAN_STATE,
                                  .max_rows = MAX_ROWS,
                                  .max_outs = MAX_ROWS,
                                  .good_rows = GOOD_ROWS,
                                  .good_outs = GOOD_OUTS,
                                  .block_tokens = BLOCK_TOKENS,
                                  .good_ring = GOOD_RING,
                                  .ring = RING,
                                  .draw_threads = rn_team_threads(team)};

    for (unsigned type = 0; type < 32; type++)
        caps.kv_types |= rn_kv_known((runnel_kv_type)type) ? 1u << type : 0;
    return caps;
}

uint64_t rn_cpu_memory_bytes(void)
{
    return rn_machine_memory("").bytes;
}

static uint32_t count(struct rn_heap *heap, const char *library, runnel_error *error)
{
    (void)heap;
    (void)library;
    (void)error;
    return 1;
}

static uint32_t count_levels(struct rn_heap *heap, const char *library, runnel_error *error)
{
    uint32_t n = 0;

    (void)heap;
    (void)library;
    (void)error;
    while (rn_level_at(n) != NULL)
        n++;
    return n;
}

/* Their names, "avx512, avx2, c". */
static void list_levels(char *text, size_t size)
{
    const struct rn_level *level;
    size_t n = 0;
    uint32_t i;

    for (i = 0; (level = rn_level_at(i)) != NULL && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "", level->name);
}

static runnel_status find_level(const char *part, uint32_t *index, runnel_error *error)
{
    const struct rn_level *level;
    char levels[64];

    for (*index = 0; (level = rn_level_at(*index)) != NULL; (*index)++)
        if (strcmp(level->name, part) == 0)
            return RUNNEL_OK;
    list_levels(levels, sizeof levels);
    return rn_error_set(error, RUNNEL_UNSUPPORTED,
                        "device \"cpu:%.32s\" is not there: this machine has the instruction sets %s", part, levels);
}

static bool has_team(const struct rn_device *device)
{
    return device != NULL && (device->kind == &rn_cpu_kind || device->kind == &rn_cpu_reference_kind);
}

static void lower(struct rn_team *team, const struct rn_device_options *options)
{
    uint32_t refused = rn_team_lower(team, options->nice);

    if (refused > 0)
        rn_log(options->log, RUNNEL_LOG_WARNING,
               "the system refuses %u of %u compute threads a lower priority; they compete with the host's threads",
               refused, rn_team_threads(team));
}

static struct rn_device *open_kind(const struct rn_device_kind *kind, struct rn_heap *heap,
                                   const struct rn_device_options *options, runnel_error *error)
{
    struct cpu_device *device = rn_calloc(heap, 1, sizeof *device);

    if (device == NULL) {
        rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a device");
        return NULL;
    }
    device->base = (struct rn_device){kind, &device->caps, options->index};
    device->level = kind == &rn_cpu_kind ? rn_level_at(options->index) : rn_level_c();
    device->heap = heap;
    device->shares = has_team(options->beside);
    device->team =
        device->shares ? ((struct cpu_device *)options->beside)->team : rn_team_new(heap, options->n_threads);
    if (device->team == NULL) {
        rn_error_set(error, RUNNEL_NO_MEMORY, "no memory or threads for a compute team");
        rn_free(heap, device);
        return NULL;
    }
    if (!device->shares)
        lower(device->team, options);
    device->caps = rn_cpu_caps(device->team);
    return &device->base;
}

static struct rn_device *open_cpu(struct rn_heap *heap, const struct rn_device_options *options, runnel_error *error)
{
    return open_kind(&rn_cpu_kind, heap, options, error);
}

static struct rn_device *open_reference(struct rn_heap *heap, const struct rn_device_options *options,
                                        runnel_error *error)
{
    return open_kind(&rn_cpu_reference_kind, heap, options, error);
}

static void close_device(struct rn_device *base)
{
    struct cpu_device *device = (struct cpu_device *)base;

    if (!device->shares)
        rn_team_free(device->team);
    rn_free(device->heap, device);
}

static struct rn_backend *new_cpu(struct rn_device *device, struct rn_heap *heap)
{
    struct cpu_device *cpu = (struct cpu_device *)device;

    return rn_cpu_backend_new_level(heap, cpu->team, cpu->level);
}

static struct rn_backend *new_reference(struct rn_device *device, struct rn_heap *heap)
{
    return rn_cpu_reference_new(heap, ((struct cpu_device *)device)->team);
}

static void memory_of(const struct rn_device *device, struct rn_device_memory *memory)
{
    struct rn_machine_memory machine = rn_machine_memory("");

    (void)device;
    *memory = (struct rn_device_memory){machine.bytes, machine.free, true};
}

static void describe_level(const struct rn_team *team, const struct rn_level *level, char *text, size_t size)
{
    snprintf(text, size, "compute team of %u threads on %u memory node%s, instruction set %s", rn_team_threads(team),
             rn_team_nodes(team), rn_team_nodes(team) == 1 ? "" : "s", level->name);
}

static void describe(const struct rn_device *device, char *text, size_t size)
{
    const struct cpu_device *cpu = (const struct cpu_device *)device;

    describe_level(cpu->team, cpu->level, text, size);
}

static void look_at_team(const struct rn_device *device, const struct rn_level *level, runnel_device_info *info)
{
    struct rn_device_memory memory;

    memory_of(device, &memory);
    info->memory_bytes = memory.total_bytes;
    info->free_bytes = memory.free_bytes;
    if (has_team(device))
        describe_level(((const struct cpu_device *)device)->team, level, info->name, sizeof info->name);
}

static void look(struct rn_heap *heap, const struct rn_device_options *options, runnel_device_info *info)
{
    info->n_devices = count_levels(heap, NULL, NULL);
    list_levels(info->kernels, sizeof info->kernels);
    look_at_team(options->beside, rn_level_at(options->index), info);
}

static void look_at_reference(struct rn_heap *heap, const struct rn_device_options *options, runnel_device_info *info)
{
    (void)heap;
    info->n_devices = 1;
    look_at_team(options->beside, rn_level_c(), info);
}

static runnel_status measure(struct rn_device *device, struct rn_heap *heap, bool (*is_unwanted)(void *user),
                             void *user, runnel_machine *machine, runnel_error *error)
{
    const struct cpu_device *cpu = (const struct cpu_device *)device;

    snprintf(machine->level, sizeof machine->level, "%s", cpu->level->name);
    return rn_cpu_measure(rn_peak(cpu->level->name), heap, cpu->team, is_unwanted, user, machine, error);
}

const struct rn_device_kind rn_cpu_kind = {
    .name = "cpu",
    .find = find_level,
    .count = count_levels,
    .open = open_cpu,
    .close = close_device,
    .new_backend = new_cpu,
    .memory = memory_of,
    .describe = describe,
    .look = look,
    .measure = measure,
};

const struct rn_device_kind rn_cpu_reference_kind = {
    .name = "reference",
    .count = count,
    .open = open_reference,
    .close = close_device,
    .new_backend = new_reference,
    .memory = memory_of,
    .describe = describe,
    .look = look_at_reference,
    .measure = measure,
};
