/* A driver whose n-th call fails. */
#ifndef RN_TESTS_GPU_RIGS_FAULTY_DRIVER_H
#define RN_TESTS_GPU_RIGS_FAULTY_DRIVER_H

#include "gpu/driver.h"

/* The functions of the table by number. */
enum rn_gpu_called {
    RN_GPU_ANY_CALL,
#define RN_GPU_CALL(name, symbol, parameters, arguments) RN_GPU_CALL_##name,
#include "gpu/driver.def"
    RN_GPU_CALLS
};

/* Where a driver's calls fail. Set before the calls, read when no other thread calls. */
struct rn_gpu_fault {
    enum rn_gpu_called of;        /* the function whose call fails, or any */
    uint64_t at;                  /* which of its calls, from 1; 0: none */
    int result;                   /* what it returns */
    bool for_good;                /* and all calls behind it but error_text: the context is lost */
    bool is_lost;                 /* by now */
    uint64_t calls[RN_GPU_CALLS]; /* so far, of each function and of any */
    int64_t owed;                 /* objects that have been made, less calls that free one */
};

/* `inner` with these faults; close closes inner, too. NULL on refusal of memory. */
struct rn_gpu_driver *rn_gpu_driver_faulty(struct rn_heap *heap, struct rn_gpu_driver *inner,
                                           struct rn_gpu_fault *fault);

#endif
