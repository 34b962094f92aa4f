/* The one place of the library that ends the process: see check.h. */
#include "base/check.h"

#include <stdlib.h>

#include "base/log.h"

_Noreturn void rn_check_failed(const char *condition, const char *file, int line)
{
    rn_log_fatal("runnel: %s:%d: broken invariant: %s\n", file, line, condition);
    abort();
}
