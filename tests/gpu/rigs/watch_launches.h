/* How many launches a device has, and how long their grids are. Those of a graph are seen when it is
 * made. A file of its own, since gpu/backend.h and cpu/kernels.h have names in common. One thread. */
#ifndef RN_TESTS_GPU_RIGS_WATCH_LAUNCHES_H
#define RN_TESTS_GPU_RIGS_WATCH_LAUNCHES_H

#include "model/device.h"

/* From now on. */
void watch_launches(struct rn_device *device);

/* Since then. longest_grid: along z. */
unsigned n_launches(void);
unsigned longest_grid(void);

#endif
