/* What Linux tells of the machine (MemTotal, and MemAvailable, its estimate), and of the limits of the process's control
 * groups, each with those above it. A group's pages of files count as free, as the machine's do: they go when memory is
 * wanted.
 *
 *     version 2   /sys/fs/cgroup/GROUP/memory.max, .current, .stat
 *     version 1   /sys/fs/cgroup/memory/GROUP/memory.limit_in_bytes, .usage_in_bytes, .stat
 *
 * In a container the path of the group may be the host's, which is not there: its own group is then where groups are
 * mounted, and that is where the way up ends. */
#include "base/machine_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct version {
    const char *mount, *limit, *used, *files[2]; /* files: rows of memory.stat */
};

static const struct version second = {"/sys/fs/cgroup", "max", "current", {"inactive_file", "active_file"}};
static const struct version first = {
    "/sys/fs/cgroup/memory", "limit_in_bytes", "usage_in_bytes", {"total_inactive_file", "total_active_file"}};

/* The number behind `name` in a line of the file; name NULL: its first line is a number. False: there is none. */
static bool read_number(const char *path, const char *name, uint64_t *value)
{
    FILE *file = fopen(path, "re");
    size_t n = name != NULL ? strlen(name) : 0;
    unsigned long long number = 0;
    char line[256];
    bool found = false;

    while (!found && file != NULL && fgets(line, sizeof line, file) != NULL)
        found = (n == 0 || (strncmp(line, name, n) == 0 && (line[n] == ' ' || line[n] == ':'))) &&
                sscanf(line + n + (n > 0), "%llu", &number) == 1;
    if (file != NULL)
        fclose(file);
    if (found)
        *value = number;
    return found;
}

static bool read_of(const char *folder, const char *file, const char *name, uint64_t *value)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/memory.%s", folder, file) < (int)sizeof path &&
           read_number(path, name, value);
}

static void lessen(uint64_t *known, uint64_t bytes)
{
    if (*known == 0 || bytes < *known)
        *known = bytes;
}

/* What the group in the folder allows and leaves, where that is less than *memory has. */
static void look_at_group(const struct version *version, const char *folder, struct rn_machine_memory *memory)
{
    uint64_t limit = 0, used = 0, file = 0;

    if (!read_of(folder, version->limit, NULL, &limit) || !read_of(folder, version->used, NULL, &used))
        return;
    for (size_t i = 0; i < 2; i++)
        if (read_of(folder, "stat", version->files[i], &file))
            used -= file < used ? file : used;
    lessen(&memory->bytes, limit > 0 ? limit : 1);          /* 0 is not known */
    lessen(&memory->free, limit > used ? limit - used : 1); /* likewise */
}

/* The group, and those above it. */
static void look_at_groups(const char *root, const struct version *version, const char *group,
                           struct rn_machine_memory *memory)
{
    char folder[PATH_MAX];
    size_t mount = strlen(root) + strlen(version->mount);
    char *slash;

    if (snprintf(folder, sizeof folder, "%s%s%s", root, version->mount, group) >= (int)sizeof folder)
        return;
    do {
        look_at_group(version, folder, memory);
        slash = strrchr(folder + mount, '/');
        if (slash != NULL)
            *slash = '\0';
    } while (slash != NULL);
}

/* Whether "cpu,memory" has memory among its words. */
static bool has_memory(const char *controllers, size_t n)
{
    static const char word[] = "memory";

    for (size_t i = 0, length; i < n; i += length + 1) {
        length = strcspn(controllers + i, ",:");
        if (length == strlen(word) && strncmp(controllers + i, word, length) == 0)
            return true;
    }
    return false;
}

/* ID:CONTROLLERS:GROUP; of version 2 there are no controllers. */
static void look_at_line(const char *root, char *line, struct rn_machine_memory *memory)
{
    char *controllers = strchr(line, ':'), *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

    if (group == NULL)
        return;
    group[strcspn(group, "\n")] = '\0';
    if (group == controllers + 1)
        look_at_groups(root, &second, group + 1, memory);
    else if (has_memory(controllers + 1, (size_t)(group - controllers - 1)))
        look_at_groups(root, &first, group + 1, memory);
}

struct rn_machine_memory rn_machine_memory(const char *root)
{
    struct rn_machine_memory memory = {0};
    char path[PATH_MAX], line[PATH_MAX + 256];
    uint64_t kilobytes = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_number(path, "MemTotal", &kilobytes))
        memory.bytes = kilobytes * 1024;
    if (read_number(path, "MemAvailable", &kilobytes))
        memory.free = kilobytes * 1024;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        look_at_line(root, line, &memory);
    if (file != NULL)
        fclose(file);
    return memory;
}
