/* Whole files, for tests: what cannot be read or written fails the test. */
#ifndef RN_TESTS_BASE_WHOLE_FILE_H
#define RN_TESTS_BASE_WHOLE_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

/* The file's length; a file of `room` bytes or more fails the test. */
static inline size_t read_whole(const char *path, void *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t n;

    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    n = fread(bytes, 1, room, file);
    assert_false(ferror(file));
    assert_int_equal(fclose(file), 0);
    if (n >= room)
        fail_msg("%s has more than %zu bytes", path, room);
    return n;
}

/* The bytes, and one of 0 behind them: the caller's, to be freed. */
static inline char *read_whole_new(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *bytes;
    long size;

    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)size, file);
    assert_int_equal(*n, size);
    assert_int_equal(fclose(file), 0);
    bytes[*n] = '\0';
    return bytes;
}

/* The file has these bytes, and nothing else, from now on. */
static inline void write_whole(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL)
        fail_msg("%s cannot be written", path);
    if (n > 0)
        assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

#endif
