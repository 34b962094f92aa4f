/* What Linux tells of the machine (MemTotal, and MemAvailable, its estimate), and of the limits of the process's
 * control groups. A group's pages of files count as free, as the machine's do: they go when memory is wanted.
 *
 *     version 2   memory.max, .current, .stat
 *     version 1   memory.limit_in_bytes, .usage_in_bytes, .stat */
#include "base/machine_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/control_group.h"

static const struct {
    const char *limit, *used, *files[2]; /* files: rows of memory.stat */
} versions[] = {[1] = {"limit_in_bytes", "usage_in_bytes", {"total_inactive_file", "total_active_file"}},
                [2] = {"max", "current", {"inactive_file", "active_file"}}};

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

/* What the group in the folder allows and leaves, where that is less than the memory has. */
static void look_at_group(void *user, unsigned version, const char *folder)
{
    struct rn_machine_memory *memory = user;
    uint64_t limit = 0, used = 0, file = 0;

    if (!read_of(folder, versions[version].limit, NULL, &limit) ||
        !read_of(folder, versions[version].used, NULL, &used))
        return;
    for (size_t i = 0; i < 2; i++)
        if (read_of(folder, "stat", versions[version].files[i], &file))
            used -= file < used ? file : used;
    lessen(&memory->bytes, limit > 0 ? limit : 1);          /* 0 is not known */
    lessen(&memory->free, limit > used ? limit - used : 1); /* likewise */
}

struct rn_machine_memory rn_machine_memory(const char *root)
{
    struct rn_machine_memory memory = {0};
    uint64_t kilobytes = 0;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_number(path, "MemTotal", &kilobytes))
        memory.bytes = kilobytes * 1024;
    if (read_number(path, "MemAvailable", &kilobytes))
        memory.free = kilobytes * 1024;
    rn_control_groups(root, "memory", look_at_group, &memory);
    return memory;
}
