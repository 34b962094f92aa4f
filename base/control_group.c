/* See control_group.h.
 *
 *     version 2   /sys/fs/cgroup/GROUP
 *     version 1   /sys/fs/cgroup/CONTROLLER/GROUP */
#include "base/control_group.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct walk {
    const char *root, *controller;
    rn_control_group_fn *look;
    void *user;
};

/* The group, and those above it. */
static void look_at_groups(const struct walk *walk, unsigned version, const char *group)
{
    bool first = version == 1;
    char folder[PATH_MAX], *slash;
    size_t mount = strlen(walk->root) + strlen("/sys/fs/cgroup") + (first ? 1 + strlen(walk->controller) : 0);

    if (snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s%s", walk->root, first ? "/" : "",
                 first ? walk->controller : "", group) >= (int)sizeof folder)
        return;
    do {
        walk->look(walk->user, version, folder);
        slash = strrchr(folder + mount, '/');
        if (slash != NULL)
            *slash = '\0';
    } while (slash != NULL);
}

/* Whether "cpu,memory" has the controller among its words. */
static bool has(const char *controllers, size_t n, const char *controller)
{
    for (size_t i = 0, length; i < n; i += length + 1) {
        length = strcspn(controllers + i, ",:");
        if (length == strlen(controller) && strncmp(controllers + i, controller, length) == 0)
            return true;
    }
    return false;
}

/* ID:CONTROLLERS:GROUP; of version 2 there are no controllers. */
static void look_at_line(const struct walk *walk, char *line)
{
    char *controllers = strchr(line, ':'), *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

    if (group == NULL)
        return;
    group[strcspn(group, "\n")] = '\0';
    if (group == controllers + 1)
        look_at_groups(walk, 2, group + 1);
    else if (has(controllers + 1, (size_t)(group - controllers - 1), walk->controller))
        look_at_groups(walk, 1, group + 1);
}

void rn_control_groups(const char *root, const char *controller, rn_control_group_fn *look, void *user)
{
    const struct walk walk = {root, controller, look, user};
    char path[PATH_MAX], line[PATH_MAX + 256];
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        look_at_line(&walk, line);
    if (file != NULL)
        fclose(file);
}
