/* Which peak loops a level of Arm has: see peak.h. */
#include <string.h>
#include <sys/auxv.h>

#include "cpu/levels/peak.h"

const struct rn_peak *rn_peak(const char *level)
{
    const unsigned long dotprod = 1ul << 20; /* HWCAP_ASIMDDP of the kernel's interface */

    if (strncmp(level, "neon", 4) != 0)
        return &rn_peak_c;
    return (getauxval(AT_HWCAP) & dotprod) != 0 ? &rn_peak_dotprod : &rn_peak_neon;
}
