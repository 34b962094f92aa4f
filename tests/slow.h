/* Less work where a sanitizer makes a test slow. What a shorter run leaves out is compared in full without one. */
#ifndef RN_TESTS_SLOW_H
#define RN_TESTS_SLOW_H

/* `few` under ThreadSanitizer, where arithmetic costs twenty times as much; else `many`. */
#if defined(__SANITIZE_THREAD__)
#define UNLESS_SLOW(many, few) (few)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNLESS_SLOW(many, few) (few)
#endif
#endif
#ifndef UNLESS_SLOW
#define UNLESS_SLOW(many, few) (many)
#endif

/* The same under any sanitizer, for long tables of which each row takes the same paths, and for many repetitions. */
#if defined(__SANITIZE_ADDRESS__)
#define UNLESS_SANITIZED(many, few) (few)
#else
#define UNLESS_SANITIZED(many, few) UNLESS_SLOW(many, few)
#endif

/* Where tests of levels begin in a list whose first is plain C. An emulated run (tests/cross) leaves that out where the
 * loop is long: the machine itself compares it in full, and what another processor may change of it, in other tests. */
#ifdef RN_EMULATED
#define FIRST_LEVEL 1
#else
#define FIRST_LEVEL 0
#endif

#endif
