/* Memory that this process could have now. */
#ifndef RUNNEL_APP_ROOM_H
#define RUNNEL_APP_ROOM_H

#include <stdint.h>

struct app_room {
    uint64_t bytes; /* without anything being swapped out; 0: not known */
    uint64_t limit; /* of the control group for which it is less than the machine has; 0: none */
};

/* root: "" for this system's own files, or a folder in which a test has proc/ and sys/. */
struct app_room app_room_find(const char *root);

#endif
