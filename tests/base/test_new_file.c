/* Files that replace others at once: what lies at the path and beside it at each step, whatever goes wrong. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/new_file.h"
#include "tests/base/refusing.h"
#include "tests/base/whole_file.h"
#include "tests/support/child.h"

static struct rn_heap heap;
static char folder[] = "/tmp/runnel-new-file-XXXXXX", path[64], beside[64], other[64];
static const enum rn_new_file_name both[2] = {RN_NEW_FILE_ONE, RN_NEW_FILE_OWN};

static int n_names(void)
{
    DIR *directory = opendir(folder);
    int n = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL)
        n++;
    closedir(directory);
    return n - 2; /* . and .. */
}

static void assert_file(const char *name, const char *text)
{
    char bytes[64];
    size_t n = read_whole(name, bytes, sizeof bytes);

    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, n);
}

/* Nothing is left, in memory neither. */
static void clear(void)
{
    assert_int_equal(rn_heap_blocks(&heap), 0);
    (void)unlink(path);
    (void)unlink(beside);
    (void)unlink(other);
    assert_int_equal(n_names(), 0);
}

static runnel_status save(const char *to, enum rn_new_file_name name, const char *text, runnel_error *error)
{
    struct rn_new_file file;
    runnel_status status;

    rn_error_clear(error);
    status = rn_new_file_open(&file, &heap, to, name, error);
    if (status == RUNNEL_OK)
        status = rn_new_file_write(&file, text, strlen(text), error);
    if (status == RUNNEL_OK)
        status = rn_new_file_finish(&file, error);
    rn_new_file_fini(&file);
    rn_new_file_fini(&file); /* harmless */
    return status;
}

/* The old file is there until the new one is whole, and it is there when it is given up. */
static void test_at_once(void **state)
{
    struct rn_new_file file;
    runnel_error error = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        write_whole(path, "old", 3);
        for (int finish = 0; finish < 2; finish++) {
            assert_int_equal(rn_new_file_open(&file, &heap, path, both[i], &error), RUNNEL_OK);
            assert_int_equal(rn_new_file_write(&file, "ne", 2, &error), RUNNEL_OK);
            assert_int_equal(rn_new_file_write(&file, "west", 4, &error), RUNNEL_OK);
            assert_file(path, "old");
            assert_int_equal(n_names(), 2);
            if (finish)
                assert_int_equal(rn_new_file_finish(&file, &error), RUNNEL_OK);
            rn_new_file_fini(&file);
            assert_file(path, finish ? "newest" : "old");
            assert_int_equal(n_names(), 1);
        }
        clear();
    }
}

/* What a killed writer has left goes; who may read the file; a link stays a link. */
static void test_names(void **state)
{
    runnel_error error;
    struct stat is;
    mode_t mask = umask(027);

    (void)state;
    write_whole(beside, "left by one who was killed", 26);
    assert_int_equal(save(path, RN_NEW_FILE_ONE, "new", &error), RUNNEL_OK);
    assert_file(path, "new");
    assert_int_equal(n_names(), 1);
    clear();
    assert_int_equal(save(path, RN_NEW_FILE_ONE, "new", &error), RUNNEL_OK);
    assert_true(stat(path, &is) == 0 && (is.st_mode & 0777) == 0640);
    assert_int_equal(save(path, RN_NEW_FILE_OWN, "own", &error), RUNNEL_OK);
    assert_true(stat(path, &is) == 0 && (is.st_mode & 0777) == 0600);
    umask(mask);
    clear();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(symlink("other", path), 0);
        assert_int_equal(save(path, both[i], "new", &error), RUNNEL_OK);
        assert_true(lstat(path, &is) == 0 && S_ISLNK(is.st_mode));
        assert_file(other, "new");
        clear();
    }
}

/* A second writer is told so and disturbs nothing; when the first has gone, whichever way, there is room. */
static void test_two_writers(void **state)
{
    struct rn_new_file first;
    runnel_error error = {0};
    pid_t child;
    int status;

    (void)state;
    for (int finish = 0; finish < 2; finish++) {
        assert_int_equal(rn_new_file_open(&first, &heap, path, RN_NEW_FILE_ONE, &error), RUNNEL_OK);
        assert_int_equal(rn_new_file_write(&first, "first", 5, &error), RUNNEL_OK);
        child = child_fork();
        if (child == 0) {
            struct rn_new_file second;

            _exit(rn_new_file_open(&second, &heap, path, RN_NEW_FILE_ONE, NULL) == RUNNEL_BUSY ? 7 : 8);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        assert_int_equal(access(beside, F_OK), 0);
        if (finish)
            assert_int_equal(rn_new_file_finish(&first, &error), RUNNEL_OK);
        rn_new_file_fini(&first);
        if (finish)
            assert_file(path, "first");
        assert_int_equal(save(path, RN_NEW_FILE_ONE, "second", &error), RUNNEL_OK);
        assert_file(path, "second");
        clear();
    }
    assert_int_equal(rn_new_file_open(&first, &heap, path, RN_NEW_FILE_OWN, &error), RUNNEL_OK);
    assert_int_equal(save(path, RN_NEW_FILE_OWN, "second", &error), RUNNEL_OK);
    assert_int_equal(rn_new_file_finish(&first, &error), RUNNEL_OK);
    rn_new_file_fini(&first);
    assert_file(path, ""); /* the last one's stays */
    clear();
}

static void assert_refused(enum rn_new_file_name name, const char *why)
{
    runnel_error error;

    assert_int_equal(save(path, name, "new", &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, why));
}

/* What is no regular file stays what it is, at the path as under the temporary name. */
static void test_refused(void **state)
{
    runnel_error error;
    struct stat is;

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(RN_NEW_FILE_ONE, "not a regular file");
    assert_refused(RN_NEW_FILE_OWN, "not a regular file");
    assert_true(lstat(path, &is) == 0 && S_ISFIFO(is.st_mode));
    clear();
    write_whole(other, "victim", 6);
    assert_int_equal(symlink("other", beside), 0);
    assert_refused(RN_NEW_FILE_ONE, "cannot be written");
    assert_file(other, "victim");
    clear();
    assert_int_equal(symlink("other", beside), 0); /* nor is what is not there yet made */
    assert_refused(RN_NEW_FILE_ONE, "cannot be written");
    assert_int_equal(n_names(), 1);
    clear();
    assert_int_equal(mkfifo(beside, 0600), 0);
    assert_refused(RN_NEW_FILE_ONE, "not a regular file");
    assert_true(lstat(beside, &is) == 0 && S_ISFIFO(is.st_mode));
    clear();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(save("/nowhere/at/all", both[i], "new", &error), RUNNEL_IO);
        assert_non_null(strstr(error.message, "/nowhere/at/all: cannot be"));
    }
}

/* A full disk, as the kernel says it: the part that was written is not taken for the file. */
static void test_no_room(void **state)
{
    struct rlimit before, little;
    runnel_error error;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){2, before.rlim_max};
    for (int i = 0; i < 2; i++) {
        write_whole(path, "old", 3);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
        assert_int_equal(save(path, both[i], "newest", &error), RUNNEL_IO);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_non_null(strstr(error.message, "cannot be written"));
        assert_file(path, "old");
        assert_int_equal(n_names(), 1);
        clear();
    }
}

/* Whichever allocation is refused: NO_MEMORY, and nothing is left. */
static void test_no_memory(void **state)
{
    runnel_status status = RUNNEL_NO_MEMORY;

    (void)state;
    for (uint64_t at = 1; status != RUNNEL_OK; at++) {
        struct refusing refusing = {.refuse_at = at};
        struct rn_heap small = refusing_heap(&refusing);
        struct rn_new_file file;

        assert_true(at < 10);
        status = rn_new_file_open(&file, &small, path, RN_NEW_FILE_ONE, NULL);
        assert_true(status == RUNNEL_NO_MEMORY || (status == RUNNEL_OK && at > 1));
        assert_int_equal(n_names(), status == RUNNEL_OK);
        rn_new_file_fini(&file);
        assert_int_equal(n_names(), 0);
        assert_int_equal(rn_heap_blocks(&small), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_once),     cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_two_writers), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_no_room),     cmocka_unit_test(test_no_memory)};
    int failed;

    rn_heap_init(&heap, NULL);
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(beside, sizeof beside, "%s/file.new", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    clear();
    return rmdir(folder) != 0 ? 1 : failed;
}
