/* Work that takes long asks now and then whether it is still wanted. NULL stands for work that nobody interrupts. */
#ifndef RN_BASE_INTERRUPT_H
#define RN_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

struct rn_interrupt {
    bool (*asked)(const void *user); /* true: the work is to end now. Any number of times */
    const void *user;
};

static inline bool rn_interrupted(const struct rn_interrupt *interrupt)
{
    return interrupt != NULL && interrupt->asked(interrupt->user);
}

#endif
