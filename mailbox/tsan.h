/* What ThreadSanitizer cannot see in Concurrency Kit (inline assembly) is told to it here: a
 * hand-over through address `at` orders what the releasing thread did before against what the
 * acquiring thread does after. Nothing in other builds. Included by .c files of this room only. */
#ifndef RN_MAILBOX_TSAN_H
#define RN_MAILBOX_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define RN_WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RN_WITH_TSAN 1
#endif
#endif

#ifdef RN_WITH_TSAN
#include <sanitizer/tsan_interface.h>
#define RN_TSAN_RELEASE(at) __tsan_release((void *)(at))
#define RN_TSAN_ACQUIRE(at) __tsan_acquire((void *)(at))
#else
#define RN_TSAN_RELEASE(at) ((void)(at))
#define RN_TSAN_ACQUIRE(at) ((void)(at))
#endif

#endif
