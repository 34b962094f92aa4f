/* As much of cmocka's interface as the tests of cpu/ use, for targets that have no cmocka: the first
 * failed assertion ends the program with status 1, skip() with 77. Include directory of cross builds alone. */
#ifndef RN_TESTS_CROSS_CMOCKA_H
#define RN_TESTS_CROSS_CMOCKA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function) \
    {                              \
#function, function        \
    }

#define fail_msg(...)                                   \
    do {                                                \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__);                   \
        fputc('\n', stderr);                            \
        exit(1);                                        \
    } while (0)

#define assert_true(condition)          \
    do {                                \
        if (!(condition))               \
            fail_msg("%s", #condition); \
    } while (0)

#define assert_false(condition) assert_true(!(condition))
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_int_equal(a, b) assert_true((uintmax_t)(a) == (uintmax_t)(b))
#define assert_int_not_equal(a, b) assert_true((uintmax_t)(a) != (uintmax_t)(b))
#define assert_ptr_equal(a, b) assert_true((a) == (b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) == 0)
#define assert_memory_not_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) != 0)
#define assert_in_range(value, low, high) assert_true((value) >= (low) && (value) <= (high))
#define print_message printf
#define skip() exit(77)

/* Runs the tests whose names contain $RN_TESTS (all without it); there is neither set-up nor tear-down. */
#define cmocka_run_group_tests(tests, setup, teardown) cross_run(tests, sizeof(tests) / sizeof *(tests))

static inline int cross_run(const struct CMUnitTest *tests, size_t n)
{
    const char *only = getenv("RN_TESTS"); /* "": all */
    void *state = NULL;
    size_t i;

    for (i = 0; i < n; i++)
        if (only == NULL || strstr(tests[i].name, only) != NULL) {
            fprintf(stderr, "%s\n", tests[i].name);
            tests[i].run(&state);
        }
    return 0;
}

#endif
