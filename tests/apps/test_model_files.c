/* What tells the files of a model from others: made-up files, whose bytes nobody reads as a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/runnel/common.h"

static char folder[] = "/tmp/runnel-files-XXXXXX", first[64], second[64], third[64];
static const struct app_options options;

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(first, sizeof first, "%s/m-00001-of-00003.gguf", folder);
    snprintf(second, sizeof second, "%s/m-00002-of-00003.gguf", folder);
    snprintf(third, sizeof third, "%s/m-00003-of-00003.gguf", folder);
    put(first, "one");
    put(second, "two");
    put(third, "three");
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(first);
    unlink(second);
    unlink(third);
    return rmdir(folder);
}

static struct app_fingerprint print_of(void)
{
    struct app_fingerprint print;
    char sentence[512] = "";

    assert_true(app_fingerprints(first, &options, app_model_stamp(first, &options), &print, sentence));
    return print;
}

static void test_parts(void **state)
{
    char *name = app_model_part(first, 1), *other = app_model_part(first, 3);

    (void)state;
    assert_string_equal(name, first);
    assert_string_equal(other, third);
    assert_null(app_model_part(first, 4));
    assert_null(app_model_part("m.gguf", 2));
    free(name);
    free(other);
}

/* A part that is written again, with as many bytes, is another model's. */
static void test_any_part_counts(void **state)
{
    const char *const paths[] = {first, second, third}, *const texts[] = {"eno", "owt", "eerht"};
    uint64_t stamp = app_model_stamp(first, &options), changed;
    struct app_fingerprint print = print_of(), other;

    (void)state;
    assert_int_equal(print.size, strlen("onetwothree"));
    for (size_t i = 0; i < 3; i++) {
        unlink(paths[i]);
        put(paths[i], texts[i]);
        changed = app_model_stamp(first, &options);
        other = print_of();
        assert_int_not_equal(changed, stamp);
        assert_int_not_equal(other.hash, print.hash);
        stamp = changed;
        print = other;
    }
}

static void test_changed_meanwhile(void **state)
{
    uint64_t stamp = app_model_stamp(first, &options);
    struct app_fingerprint print;
    char sentence[512] = "";

    (void)state;
    put(third, "longer than before");
    assert_false(app_fingerprints(first, &options, stamp, &print, sentence));
    assert_non_null(strstr(sentence, "was changed while the model was loaded"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_any_part_counts),
        cmocka_unit_test(test_changed_meanwhile),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
