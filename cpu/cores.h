/* How many cores this process may use. */
#ifndef RN_CPU_CORES_H
#define RN_CPU_CORES_H

#include <stdint.h>

/* Physical cores in the affinity mask, at most the CPU quota of the control group (whole cores,
 * rounded down), at least 1. Reads a few files below /sys and /proc; what cannot be read does not
 * limit. */
uint32_t rn_cores_usable(void);

/* Logical processors in the affinity mask, at most the quota, at least 1. */
uint32_t rn_cores_logical(void);

/* The logical processors in the affinity mask, those that stand for a core first, then their siblings. Writes
 * at most `room` numbers; returns how many there are, and in *cores how many of them stand for a core. */
uint32_t rn_cores_list(int *list, uint32_t room, uint32_t *cores);

/* Whole cores that a cpu.max line ("max 100000", "250000 100000") allows, at least 1; UINT32_MAX:
 * no limit or not such a line. */
uint32_t rn_cores_quota(const char *line);

#endif
