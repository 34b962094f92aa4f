/* Paths that outlive a change of the working directory. The judge is the system: what a path names by its own rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "tests/base/refusing.h"

static char *absolute(struct rn_heap *heap, const char *path)
{
    char *made = rn_path_absolute(heap, path);

    assert_non_null(made);
    return made;
}

static void stays_as_it_is(void **state)
{
    static const char *const paths[] = {"/", "/a/b", "//x", ""};
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char *made = absolute(&heap, paths[i]);

        assert_string_equal(made, paths[i]);
        rn_free(&heap, made);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* From the root, from here, and from a directory whose name is longer than the first try has room for. */
static void names_the_same(void **state)
{
    enum { DEEP = 12 };
    static const char long_name[] = "a-directory-with-a-name-of-forty-letters";
    char top[] = "/tmp/runnel-path-XXXXXX";
    int home = open(".", O_RDONLY | O_DIRECTORY);
    struct stat there, now;
    struct rn_heap heap;
    char *file, *dots;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_true(home >= 0 && mkdtemp(top) != NULL && chdir(top) == 0);
    for (int depth = 0; depth <= DEEP; depth++) {
        int fd = open("file", O_CREAT | O_WRONLY, 0600);

        assert_true(fd >= 0 && fstat(fd, &there) == 0 && close(fd) == 0);
        file = absolute(&heap, "file");
        dots = absolute(&heap, "./../././file");
        assert_int_equal(file[0], '/');
        if (depth > 0)
            assert_true(stat(dots, &now) == 0 && now.st_ino != there.st_ino);
        assert_int_equal(chdir("/"), 0);
        assert_true(stat(file, &now) == 0 && now.st_ino == there.st_ino && now.st_dev == there.st_dev);
        *strrchr(file, '/') = '\0';
        assert_int_equal(chdir(file), 0);
        rn_free(&heap, file);
        rn_free(&heap, dots);
        assert_true(mkdir(long_name, 0700) == 0 && chdir(long_name) == 0);
    }
    for (int depth = DEEP; depth >= 0; depth--)
        assert_true(chdir("..") == 0 && rmdir(long_name) == 0 && unlink("file") == 0);
    assert_int_equal(chdir("/"), 0);
    file = absolute(&heap, "tmp");
    assert_string_equal(file, "/tmp");
    rn_free(&heap, file);
    assert_int_equal(rmdir(top), 0);
    assert_true(fchdir(home) == 0 && close(home) == 0);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void refused_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);

    (void)state;
    refusing_allow(&refusing, 0);
    assert_null(rn_path_absolute(&heap, "a"));
    assert_null(rn_path_absolute(&heap, "/a"));
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* In a directory that is gone a relative path names nothing, and stays so. */
static void without_a_name(void **state)
{
    char top[] = "/tmp/runnel-path-XXXXXX";
    int home = open(".", O_RDONLY | O_DIRECTORY);
    struct rn_heap heap;
    char *made;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_true(home >= 0 && mkdtemp(top) != NULL && chdir(top) == 0 && rmdir(top) == 0);
    made = absolute(&heap, "a");
    assert_string_equal(made, "a");
    rn_free(&heap, made);
    assert_true(fchdir(home) == 0 && close(home) == 0);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_as_it_is),
        cmocka_unit_test(names_the_same),
        cmocka_unit_test(refused_memory),
        cmocka_unit_test(without_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
