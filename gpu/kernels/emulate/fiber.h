/* Fibers: stacks that take turns on one thread. */
#ifndef RN_GPU_EMULATED_FIBER_H
#define RN_GPU_EMULATED_FIBER_H

#include <stddef.h>

/* A stack that is not running, and what the sanitizers keep of it. */
struct rn_fiber {
    void *top;         /* where it goes on */
    void *context;     /* of builds without a switch of our own */
    const void *stack; /* its lowest byte; of the thread's own stack what is told when a fiber first leaves it */
    size_t bytes;
    void *fake; /* AddressSanitizer's */
    void *tsan; /* ThreadSanitizer's */
};

/* The fiber of the calling thread, on the stack that it has. */
void rn_fiber_init_thread(struct rn_fiber *fiber);

/* A fiber that will call entry(user) on the stack; entry never returns. */
void rn_fiber_init(struct rn_fiber *fiber, void *stack, size_t bytes, void (*entry)(void *user), void *user);

/* Each init of fibers that are not a thread's. */
void rn_fiber_fini(struct rn_fiber *fiber);

/* Leaves `from`, which is running, for `to`; comes back when somebody switches to `from`. With `last` nobody will. */
void rn_fiber_switch(struct rn_fiber *from, struct rn_fiber *to, int last);

#endif
