/* Memory out of the caches, for trials that must see what memory gives. */
#ifndef RN_CPU_LEVELS_DROP_H
#define RN_CPU_LEVELS_DROP_H

#include <stdbool.h>
#include <stddef.h>

/* Drops the lines of bytes[0..n) from all caches: who reads them next reads memory. False: the processor cannot. Any
 * thread. */
bool rn_drop(const void *bytes, size_t n);

#endif
