/* Memory out of the caches on x86: see drop.h. */
#include <cpuid.h>
#include <emmintrin.h>

#include "cpu/levels/drop.h"

bool rn_drop(const void *bytes, size_t n)
{
    enum { LINE = 64, EBX_FLUSH = 1 << 23 }; /* clflushopt: lines are dropped in any order, some at a time */
    const char *line = bytes;
    unsigned a, b, c, d;
    size_t i;

    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & EBX_FLUSH) == 0)
        return false;
    for (i = 0; i < n; i += LINE)
        __asm__ volatile("clflushopt %0" : : "m"(line[i]) : "memory");
    _mm_mfence(); /* they are done before what follows */
    return true;
}
