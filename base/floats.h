/* The floating-point environment of a computation on the host's own thread, where the host may have set another
 * rounding, flush to zero or traps: law 5 wants the default one, as the engine's threads have it (thread.h).
 *
 *     fenv_t host = rn_floats_default();
 *     ... computes ...
 *     fesetenv(&host);
 */
#ifndef RN_BASE_FLOATS_H
#define RN_BASE_FLOATS_H

#include <fenv.h>

/* From now on this thread has the default environment; what it had is returned. */
static inline fenv_t rn_floats_default(void)
{
    fenv_t host;

    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    return host;
}

#endif
