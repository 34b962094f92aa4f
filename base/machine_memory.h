/* Memory of this machine, as far as this process may have it. */
#ifndef RN_BASE_MACHINE_MEMORY_H
#define RN_BASE_MACHINE_MEMORY_H

#include <stdint.h>

struct rn_machine_memory {
    uint64_t bytes; /* of the machine, or what the process's control groups allow, where that is less; 0: not known */
    uint64_t free;  /* of them, what could be had now without anything being swapped out; 0: not known */
};

/* From the system's files. root: "" for its own, or a folder in which a test has proc/ and sys/. Any thread. */
struct rn_machine_memory rn_machine_memory(const char *root);

#endif
