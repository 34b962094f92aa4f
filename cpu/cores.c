/* Counting cores: see cores.h.
 *
 * Two logical processors belong to one core when the kernel gives them the same list of siblings;
 * the first number of that list stands for the core. The quota is that of the process's control
 * group (version 2) and of every group above it. Threads: any. */
#define _GNU_SOURCE
#include "cpu/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first bytes of a small file as a string; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
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

/* The smallest quota from the process's group up to the root. */
static uint32_t group_quota(void)
{
    uint32_t least = UINT32_MAX, quota;
    char text[4096], path[4200], line[64];
    char *group, *end;

    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return least;
    group = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (group == NULL)
        return least;
    group = strchr(group, '/');
    if (group == NULL)
        return least;
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        if (read_text(path, line, sizeof line)) {
            quota = rn_cores_quota(line);
            least = quota < least ? quota : least;
        }
        end = strrchr(group, '/');
        if (end == NULL)
            return least;
        *end = '\0';
    }
}

static void affinity(cpu_set_t *set)
{
    if (sched_getaffinity(0, sizeof *set, set) != 0 || CPU_COUNT(set) == 0) {
        CPU_ZERO(set);
        CPU_SET(0, set);
    }
}

uint32_t rn_cores_logical(void)
{
    cpu_set_t allowed;
    uint32_t quota = group_quota();
    uint32_t n;

    affinity(&allowed);
    n = (uint32_t)CPU_COUNT(&allowed);
    return n < quota ? n : quota;
}

uint32_t rn_cores_usable(void)
{
    cpu_set_t allowed, cores;
    uint32_t quota = group_quota();
    char path[96], text[256];
    unsigned long first;
    uint32_t n;
    int cpu;

    affinity(&allowed);
    CPU_ZERO(&cores);
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        first = read_text(path, text, sizeof text) ? strtoul(text, NULL, 10) : (unsigned long)cpu;
        CPU_SET(first < CPU_SETSIZE ? first : (unsigned long)cpu, &cores);
    }
    n = (uint32_t)CPU_COUNT(&cores);
    return n < quota ? n : quota;
}
