/* The official JSON Schema Test Suite (tests/grammar/schema_suite, MIT): each valid instance is accepted and each
 * invalid one rejected, as the grammar spells it (members in the schema's order, or else in any), by the automaton and
 * by the definition of expressions; groups whose schema is refused are listed with the reason, and counted.
 *
 *     test_schema_suite --table     prints the tables of docs/SCHEMA-SUITE.md */
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
    uint32_t groups, refused, valid, invalid, narrower, wrong;
};

static struct rn_heap heap;
static bool table, reasons_wanted;

/* Valid instances that the grammar does not have: those of files whose names begin so, of groups that hold a text, that
 * hold a text. Each row has at least one. */
static struct {
    const char *file, *group, *text, *why;
    uint32_t n;
} narrower[] = {
    {"format/hostname", "", "xn--", "hosts in code for other letters (xn--) have rules of their own", 0},
    {"draft2020-12/format", " format", "", "formats are enforced, not only noted", 0},
    {"draft2020-12/vocabulary", "no validation", "\":1}", "the dialect that `$schema` names is not looked up", 0},
    {"draft2019-09/vocabulary", "no validation", "\":1}", "the dialect that `$schema` names is not looked up", 0},
};
#define N_NARROWER (sizeof narrower / sizeof narrower[0])

static bool is_narrower(const char *file, const char *group, const char *text)
{
    for (size_t i = 0; i < N_NARROWER; i++)
        if (strncmp(narrower[i].file, file, strlen(narrower[i].file)) == 0 && strstr(text, narrower[i].text) != NULL &&
            strstr(group, narrower[i].group) != NULL) {
            narrower[i].n++;
            return true;
        }
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

    if (valid && !in_any_order && is_narrower(file, group, text))
        counts->narrower++;
    else if (accepted != slowly || (accepted && !in_any_order) || in_any_order != valid) {
        counts->wrong++;
        print_message("%s: %s: %s: %.300s is %s; accepted %d, by definition %d\n", file, group, name, text,
                      valid ? "valid" : "invalid", accepted, slowly);
    }
    counts->valid += valid;
    counts->invalid += !valid;
    free(text);
}

/* ---- Reasons ---- */

/* How many schemas of a file are refused with the same sentence, places and names aside. */
static struct reason {
    char sentence[RUNNEL_ERROR_BYTES];
    uint32_t n;
} reasons[64];
static uint32_t n_reasons;

/* `"items" at "#/a" cannot be enforced: why` says `"items": why`. */
static void add_reason(const char *message)
{
    char sentence[RUNNEL_ERROR_BYTES];
    const char *at = strstr(message, " at \"#"), *why = strstr(message, ": ");
    uint32_t i;

    if (at != NULL && why != NULL)
        snprintf(sentence, sizeof sentence, "%.*s%s", (int)(at - message), message, why);
    else
        snprintf(sentence, sizeof sentence, "%s", message);
    for (i = 0; i < n_reasons && strcmp(reasons[i].sentence, sentence) != 0; i++)
        ;
    assert_true(i < sizeof reasons / sizeof reasons[0]);
    if (i == n_reasons)
        snprintf(reasons[n_reasons++].sentence, sizeof sentence, "%s", sentence);
    reasons[i].n++;
}

static void print_reasons(const char *folder, const char *file)
{
    for (uint32_t i = 0; i < n_reasons; i++)
        printf("| %s/%.*s | refused: %s | %u |\n", folder, (int)strlen(file) - 5, file, reasons[i].sentence,
               reasons[i].n);
    memset(reasons, 0, sizeof reasons);
    n_reasons = 0;
}

/* ---- Groups, files, folders ---- */

static void one_group(const char *file, const json_t *group, struct counts *counts)
{
    char *schema = judge_write(json_object_get(group, "schema"));
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
        add_reason(error.message);
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
    char path[512];
    json_t *groups;

    snprintf(path, sizeof path, "%s/%s/%s", FOLDER, folder, file);
    groups = judge_load(path);
    assert_non_null(groups);
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

        if (table && reasons_wanted)
            print_reasons(folder, files[i]->d_name);
        else if (table)
            printf("| %s/%.*s | %u | %u | %u | %u |\n", folder, (int)strlen(files[i]->d_name) - 5, files[i]->d_name,
                   one.groups, one.refused, one.valid, one.invalid);
        n_reasons = reasons_wanted ? n_reasons : 0;
        all.groups += one.groups;
        all.refused += one.refused;
        all.valid += one.valid;
        all.invalid += one.invalid;
        all.narrower += one.narrower;
        all.wrong += one.wrong;
        free(files[i]);
    }
    free(files);
    return all;
}

/* refused: schemas; narrower: valid instances that are rejected. */
static void check_folder(const char *folder, uint32_t groups, uint32_t refused, uint32_t n_narrower)
{
    struct counts all = one_folder(folder);

    print_message("%s: %u schemas, %u refused, %u valid and %u invalid instances, %u of them narrower\n", folder,
                  all.groups, all.refused, all.valid, all.invalid, all.narrower);
    assert_int_equal(all.wrong, 0);
    assert_int_equal(all.groups, groups);
    assert_int_equal(all.refused, refused);
    assert_int_equal(all.narrower, n_narrower);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_2020(void **state)
{
    (void)state;
    check_folder("draft2020-12", 433, 79, 14);
}

static void test_2019(void **state)
{
    (void)state;
    check_folder("draft2019-09", 407, 71, 1);
}

static void test_formats(void **state)
{
    (void)state;
    check_folder("format", 23, 8, 15);
}

static void each_narrower_row_has_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NARROWER; i++)
        if (narrower[i].n == 0)
            fail_msg("%s: nothing is narrower: %s", narrower[i].file, narrower[i].why);
}

static void print_tables(void)
{
    static const char *const folders[] = {"draft2020-12", "draft2019-09", "format"};

    printf("| suite | schemas | refused | valid | invalid |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < 3; i++)
        one_folder(folders[i]);
    for (size_t i = 0; i < N_NARROWER; i++)
        narrower[i].n = 0;
    reasons_wanted = true;
    printf("\n| suite | what, and why | how many |\n|---|---|---|\n");
    for (size_t i = 0; i < 3; i++)
        one_folder(folders[i]);
    for (size_t i = 0; i < N_NARROWER; i++)
        printf("| %s | valid, and rejected: %s | %u |\n", narrower[i].file, narrower[i].why, narrower[i].n);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2020),
        cmocka_unit_test(test_2019),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(each_narrower_row_has_one),
    };

    rn_heap_init(&heap, NULL);
    table = argc > 1 && strcmp(argv[1], "--table") == 0;
    if (!table)
        return cmocka_run_group_tests(tests, NULL, NULL);
    print_tables();
    return 0;
}
