/* The version of the library in use: see runnel.h. */
#include "runnel.h"

#define TEXT(x) #x
#define DOTTED(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *runnel_version(void)
{
    return DOTTED(RUNNEL_VERSION_MAJOR, RUNNEL_VERSION_MINOR, RUNNEL_VERSION_PATCH);
}
