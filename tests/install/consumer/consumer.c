/* The least a user's program does, in C or C++: the header, the library, and that the two agree. Prints the
 * version. */
#include <runnel.h>
#include <runnel_uv.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char header[32];

    snprintf(header, sizeof header, "%d.%d.%d", RUNNEL_VERSION_MAJOR, RUNNEL_VERSION_MINOR, RUNNEL_VERSION_PATCH);
    if (strcmp(header, runnel_version()) != 0)
        return 2;
    if (strcmp(runnel_status_name(RUNNEL_NO_MEMORY), "NO_MEMORY") != 0)
        return 3;
    return puts(runnel_version()) < 0;
}
