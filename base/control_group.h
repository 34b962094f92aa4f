/* The control groups of this process, whose files tell what it may have. */
#ifndef RN_BASE_CONTROL_GROUP_H
#define RN_BASE_CONTROL_GROUP_H

/* A group's folder, of version 1 or 2. */
typedef void rn_control_group_fn(void *user, unsigned version, const char *folder);

/* Calls look for the group of version 2 and for that of the controller ("memory") in version 1, each with those above
 * it. In a container the path of the group may be the host's, which is not there: its own group is then where groups
 * are mounted, and that is where the way up ends. root: "" for the system's own files, or a folder in which a test has
 * proc/ and sys/. Any thread. */
void rn_control_groups(const char *root, const char *controller, rn_control_group_fn *look, void *user);

#endif
