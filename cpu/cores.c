/* Counting cores: see cores.h.
 *
 * Two logical processors belong to one core when the kernel gives them the same list of siblings;
 * the first allowed one of that list stands for the core. The quota is that of the process's control
 * group (version 2) and of every group above it. Threads: any. */
#define _GNU_SOURCE
#include "cpu/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/control_group.h"

bool rn_cores_read(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, text, size - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return true;
}

uint32_t rn_cores_quota(const char *line)
{
    char *end;
    unsigned long long quota, period;

    quota = strtoull(line, &end, 10);
    if (end == line || *end != ' ')
        return UINT32_MAX;
    period = strtoull(end, NULL, 10);
    if (period == 0 || quota / period >= UINT32_MAX)
        return UINT32_MAX;
    return quota < period ? 1 : (uint32_t)(quota / period);
}

/* Lessens *user, whole cores, to what the group in the folder allows. */
static void look_at_group(void *user, unsigned version, const char *folder)
{
    char path[4200], line[64];
    uint32_t *least = user, quota;

    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (version != 2 || !rn_cores_read(path, line, sizeof line))
        return;
    quota = rn_cores_quota(line);
    *least = quota < *least ? quota : *least;
}

static uint32_t group_quota(void)
{
    uint32_t least = UINT32_MAX;

    rn_control_groups("", "cpu", look_at_group, &least);
    return least;
}

/* The kernel refuses a mask that is shorter than its own, and a cpu_set_t is. */
struct mask {
    cpu_set_t part[RN_MOST_PROCESSORS / CPU_SETSIZE];
};

static void affinity(struct mask *mask)
{
    memset(mask, 0, sizeof *mask);
    if (sched_getaffinity(0, sizeof mask->part, mask->part) != 0 || CPU_COUNT_S(sizeof mask->part, mask->part) == 0)
        CPU_SET_S(0, sizeof mask->part, mask->part);
}

static bool is_allowed(const struct mask *mask, size_t cpu)
{
    return cpu < RN_MOST_PROCESSORS && CPU_ISSET_S(cpu, sizeof mask->part, mask->part);
}

uint32_t rn_cores_logical(void)
{
    struct mask allowed;
    uint32_t quota = group_quota();
    uint32_t n;

    affinity(&allowed);
    n = (uint32_t)CPU_COUNT_S(sizeof allowed.part, allowed.part);
    return n < quota ? n : quota;
}

uint32_t rn_cores_allowed(bool *allowed)
{
    struct mask mask;

    affinity(&mask);
    for (size_t cpu = 0; cpu < RN_MOST_PROCESSORS; cpu++)
        allowed[cpu] = is_allowed(&mask, cpu);
    return (uint32_t)CPU_COUNT_S(sizeof mask.part, mask.part);
}

const char *rn_cores_range(const char *at, unsigned long *first, unsigned long *last)
{
    char *end;

    *first = *last = strtoul(at, &end, 10);
    if (end == at)
        return NULL;
    at = end;
    if (*at == '-')
        *last = strtoul(at + 1, &end, 10);
    return *end == ',' ? end + 1 : end;
}

/* The processor that stands for the core of this one: the first of its siblings that is allowed. */
static int core_of(int cpu, const struct mask *allowed)
{
    char path[96], text[256];
    const char *at = text;
    unsigned long first, last;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!rn_cores_read(path, text, sizeof text))
        return cpu;
    while ((at = rn_cores_range(at, &first, &last)) != NULL)
        for (; first <= last && first < RN_MOST_PROCESSORS; first++)
            if (is_allowed(allowed, first))
                return (int)first;
    return cpu;
}

uint32_t rn_cores_list(int *list, uint32_t room, uint32_t *cores)
{
    struct mask allowed;
    uint32_t n = 0;
    int cpu, sibling;

    affinity(&allowed);
    *cores = 0;
    for (sibling = 0; sibling < 2; sibling++)
        for (cpu = 0; cpu < RN_MOST_PROCESSORS; cpu++) {
            if (!is_allowed(&allowed, (size_t)cpu) || (core_of(cpu, &allowed) == cpu) == sibling)
                continue;
            if (n < room)
                list[n] = cpu;
            n++;
            *cores += !sibling;
        }
    return n;
}

uint32_t rn_cores_usable(void)
{
    uint32_t quota = group_quota(), cores;

    (void)rn_cores_list(NULL, 0, &cores);
    return cores < quota ? cores : quota;
}
