/* The official JSON Schema Test Suite (tests/grammar/schema_suite, MIT): each valid instance is accepted and each invalid
 * one rejected, as the grammar spells it (members in the schema's order, or else in any), by the automaton and by the definition of expressions; groups whose schema is
 * refused are listed with the keyword, and counted.
 *
 *     test_schema_suite --table     prints the table of docs/GRAMMARS.md */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/grammar/schema_judge.h"

#define FOLDER "tests/grammar/schema_suite"

struct counts {
    uint32_t groups, refused, valid, invalid, wrong;
};

static struct rn_heap heap;
static bool table;

/* Valid instances that the grammar does not have: those of a file that hold a text. */
static const struct {
    const char *file, *text, *why;
} narrower[] = {
    {"format/hostname.json", "xn--", "names that are code for others have rules of their own"},
    {"format/time.json", ":60", "leap seconds stand at 23:59:60Z alone"},
    {"format/date-time.json", ":60", "leap seconds stand at 23:59:60Z alone"},
};

static bool is_narrower(const char *file, const char *text)
{
    for (size_t i = 0; i < sizeof narrower / sizeof narrower[0]; i++)
        if (strcmp(narrower[i].file, file) == 0 && strstr(text, narrower[i].text) != NULL)
            return true;
    return false;
}

static void one_test(struct judge *judge, const char *file, const char *group, const char *schema, const json_t *test,
                     struct counts *counts)
{
    char *text = judge_spell(json_object_get(test, "data"), schema);
    bool valid = json_is_true(json_object_get(test, "valid"));
    bool accepted = judge_accepts(&judge[0], text, strlen(text));
    bool slowly = judge_accepts_slowly(&judge[0], text, strlen(text));
    bool in_any_order = judge_accepts(&judge[1], text, strlen(text));
    const char *name = json_string_value(json_object_get(test, "description"));

    if (accepted != slowly || (accepted && !in_any_order) ||
        (in_any_order != valid && !(valid && is_narrower(file, text)))) {
        counts->wrong++;
        print_message("%s: %s: %s: %.300s is %s; accepted %d, by definition %d\n", file, group, name, text,
                      valid ? "valid" : "invalid", accepted, slowly);
    }
    counts->valid += valid;
    counts->invalid += !valid;
    free(text);
}

static void one_group(const char *file, const json_t *group, struct counts *counts)
{
    char *schema = json_dumps(json_object_get(group, "schema"), JSON_ENCODE_ANY | JSON_COMPACT);
    const char *name = json_string_value(json_object_get(group, "description"));
    runnel_error error = {0};
    const struct rn_schema_options any_order = {.any_order = true};
    struct judge judge[2]; /* the second has members in any order */
    runnel_status status = judge_init(&judge[0], &heap, schema, strlen(schema), NULL, &error);
    const json_t *tests = json_object_get(group, "tests");

    counts->groups++;
    if (judge_init(&judge[1], &heap, schema, strlen(schema), &any_order, &error) != status)
        fail_msg("%s: %s: in any order it is another status", file, name);
    if (status != RUNNEL_OK) {
        counts->refused++;
        if (!table)
            print_message("%s: %s: refused: %s\n", file, name, error.message);
    }
    for (size_t i = 0; status == RUNNEL_OK && i < json_array_size(tests); i++)
        one_test(judge, file, name, schema, json_array_get(tests, i), counts);
    judge_fini(&judge[0]);
    judge_fini(&judge[1]);
    free(schema);
}

static struct counts one_file(const char *folder, const char *file)
{
    struct counts counts = {0};
    json_error_t error;
    char path[512];
    json_t *groups;

    snprintf(path, sizeof path, "%s/%s/%s", FOLDER, folder, file);
    groups = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (groups == NULL)
        fail_msg("%s: %s", path, error.text);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    for (size_t i = 0; i < json_array_size(groups); i++)
        one_group(path, json_array_get(groups, i), &counts);
    json_decref(groups);
    return counts;
}

static int is_json(const struct dirent *entry)
{
    return strstr(entry->d_name, ".json") != NULL;
}

static struct counts one_folder(const char *folder)
{
    struct counts all = {0};
    struct dirent **files;
    char path[512];
    int n, i;

    snprintf(path, sizeof path, "%s/%s", FOLDER, folder);
    n = scandir(path, &files, is_json, alphasort);
    assert_true(n > 0);
    for (i = 0; i < n; i++) {
        struct counts one = one_file(folder, files[i]->d_name);

        if (table)
            printf("| %s/%.*s | %u | %u | %u | %u |\n", folder, (int)strlen(files[i]->d_name) - 5, files[i]->d_name,
                   one.groups, one.refused, one.valid, one.invalid);
        all.groups += one.groups;
        all.refused += one.refused;
        all.valid += one.valid;
        all.invalid += one.invalid;
        all.wrong += one.wrong;
        free(files[i]);
    }
    free(files);
    return all;
}

static void check_folder(const char *folder, uint32_t groups, uint32_t refused)
{
    struct counts all = one_folder(folder);

    print_message("%s: %u schemas, %u refused, %u valid and %u invalid instances\n", folder, all.groups, all.refused,
                  all.valid, all.invalid);
    assert_int_equal(all.wrong, 0);
    assert_int_equal(all.groups, groups);
    assert_int_equal(all.refused, refused);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_2020(void **state)
{
    (void)state;
    check_folder("draft2020-12", 357, 56);
}

static void test_2019(void **state)
{
    (void)state;
    check_folder("draft2019-09", 28, 6);
}

static void test_formats(void **state)
{
    (void)state;
    check_folder("format", 15, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2020),
        cmocka_unit_test(test_2019),
        cmocka_unit_test(test_formats),
    };

    rn_heap_init(&heap, NULL);
    table = argc > 1 && strcmp(argv[1], "--table") == 0;
    if (!table)
        return cmocka_run_group_tests(tests, NULL, NULL);
    printf("| suite | schemas | refused | valid | invalid |\n|---|---|---|---|---|\n");
    one_folder("draft2020-12");
    one_folder("draft2019-09");
    one_folder("format");
    return 0;
}
