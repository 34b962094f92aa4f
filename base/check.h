/* Assertions.
 *
 * RN_ASSERT: debug builds only; states a pre- or post-condition.
 * RN_CHECK:  always; where going on would corrupt memory. Never used on input from outside. */
#ifndef RN_BASE_CHECK_H
#define RN_BASE_CHECK_H

#include <assert.h>

#define RN_CHECK(condition) \
    (__builtin_expect(!!(condition), 1) ? (void)0 : rn_check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define RN_ASSERT(condition) ((void)sizeof(condition))
#else
#define RN_ASSERT(condition) RN_CHECK(condition)
#endif

/* Writes the place to stderr and aborts. */
_Noreturn void rn_check_failed(const char *condition, const char *file, int line);

#endif
