/* How many cores this process may use. */
#ifndef RN_CPU_CORES_H
#define RN_CPU_CORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As many as a Linux kernel can be built for. */
enum { RN_MOST_PROCESSORS = 8192 };

/* Physical cores in the affinity mask, at most the CPU quota of the control group (whole cores,
 * rounded down), at least 1. Reads a few files below /sys and /proc; what cannot be read does not
 * limit. */
uint32_t rn_cores_usable(void);

/* Logical processors in the affinity mask, at most the quota, at least 1. */
uint32_t rn_cores_logical(void);

/* Of each logical processor whether it is in the affinity mask: allowed[RN_MOST_PROCESSORS]. Returns how many are. */
uint32_t rn_cores_allowed(bool *allowed);

/* The logical processors in the affinity mask, those that stand for a core first, then their siblings. Writes
 * at most `room` numbers; returns how many there are, and in *cores how many of them stand for a core. */
uint32_t rn_cores_list(int *list, uint32_t room, uint32_t *cores);

/* The first bytes of a small file as a string; false: it cannot be read, or is empty. */
bool rn_cores_read(const char *path, char *text, size_t size);

/* The next range of a list as the kernel writes it ("0,64", "0-3,8-11"): the first and last number of the one that `at`
 * begins with. Returns where the next one begins, NULL: there was none. */
const char *rn_cores_range(const char *at, unsigned long *first, unsigned long *last);

/* Whole cores that a cpu.max line ("max 100000", "250000 100000") allows, at least 1; UINT32_MAX:
 * no limit or not such a line. */
uint32_t rn_cores_quota(const char *line);

#endif
