/* Models of an architecture that the library does not know: taken for a standard decoder with one warning, or by a row
 * of the host's. Judge: the same weights under the name that the library knows. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"
#include "runnel_files.h"
#include "tests/model/model_edit.h"

#define NAME "of-our-house"

static char path[] = "/tmp/rn_architectures_XXXXXX"; /* the bundled model under NAME */
static char wanted[4096];                            /* what it answers under its own */

static void save_as(const char *name, const char *layout)
{
    static struct model_edit edit;
    struct rn_gguf *gguf;
    struct rn_heap heap;
    struct writer w = {0};
    FILE *file;

    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, BUNDLED_MODEL, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit_rename(&edit, name);
    if (layout != NULL)
        edit_text(&edit, NAME ".tensor_data_layout", layout);
    edit_write(&edit, &w);
    file = fopen(path, "wb");
    assert_true(file != NULL && fwrite(w.bytes, 1, w.n, file) == w.n && fclose(file) == 0);
    w_free(&w);
    rn_gguf_free(gguf);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void save_renamed(const char *layout)
{
    save_as(NAME, layout);
}

/* ---- What is logged ---- */

struct lines {
    char last[512];
    size_t n;
};

/* On the loader's thread, before the load is over for runnel_model_wait. */
static void on_line(void *user, runnel_log_level level, const char *line)
{
    struct lines *lines = user;

    if (level <= RUNNEL_LOG_WARNING) {
        snprintf(lines->last, sizeof lines->last, "%s", line);
        lines->n++;
    }
}

static runnel_engine_options log_to(struct lines *lines)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.on_log = on_line;
    options.log_user = lines;
    options.log_level = RUNNEL_LOG_WARNING;
    return options;
}

static void answer_of(const runnel_engine_options *options, const char *model_path, char text[sizeof wanted])
{
    struct capture capture = {0};
    runnel_request request = make_request("The river", 24, &capture);
    runnel_engine *engine = start_engine(options);
    runnel_model *model = load_model(engine, model_path, NULL);

    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    snprintf(text, sizeof wanted, "%.*s", (int)capture.text_bytes, capture.text);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

/* ---- Cases ---- */

static void a_standard_decoder_warns_once(void **state)
{
    struct lines lines = {.n = 0};
    runnel_engine_options options = log_to(&lines);
    char text[sizeof wanted];

    (void)state;
    save_renamed("Meta AI original pth");
    answer_of(&options, path, text);
    assert_string_equal(text, wanted);
    assert_int_equal(lines.n, 1);
    assert_non_null(strstr(lines.last, path));
    assert_non_null(strstr(lines.last, "architecture '" NAME "' is not known"));
    assert_non_null(strstr(lines.last, "rotation of neighbours"));
}

static void a_row_of_the_host_counts(void **state)
{
    struct lines lines = {.n = 0};
    runnel_engine_options options = log_to(&lines);
    runnel_architecture_row row, other;
    const runnel_architecture_row *rows[] = {&other, &row};
    char text[sizeof wanted];

    (void)state;
    save_renamed(NULL);
    runnel_architecture_row_default(&row);
    runnel_architecture_row_default(&other);
    row.name = NAME;
    row.like = "qwen3";
    row.without = "neox  head-norm ";
    other.name = "of-another-house";
    options.architectures = rows;
    options.n_architectures = 2;
    answer_of(&options, path, text);
    assert_string_equal(text, wanted);
    assert_int_equal(lines.n, 0);
    row.without = "head-norm"; /* another rotation: other tokens */
    answer_of(&options, path, text);
    assert_string_not_equal(text, wanted);
    assert_int_equal(lines.n, 0);
}

/* Its logits are judged in tests/oracle, its embeddings in test_both_ways.c; a stream of tokens is not what it gives,
 * nor are guesses. */
static void whole_texts_are_not_generated(void **state)
{
    runnel_request request = make_request("The river", 4, NULL);
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;
    runnel_error error;

    (void)state;
    save_as("llada", NULL);
    model = load_model(engine, path, NULL);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "architecture llada attends in both directions"));
    runnel_model_options_default(&options);
    options.draft_path = path;
    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "architecture llada attends in both directions"));
    runnel_engine_free(engine);
}

static void bad_rows_are_refused(void **state)
{
    static const char *const two_percents[] = {"blk.%d.%d"};
    const struct {
        runnel_architecture_row row;
        const char *word;
    } cases[] = {
        {{.name = NULL}, "architecture 1"},
        {{.name = ""}, "no name"},
        {{.name = "with space"}, "no name"},
        {{.name = "llama"}, "the library knows 'llama'"},
        {{.name = "first"}, "two rows are for 'first'"},
        {{.name = NAME, .like = "nonesuch"}, "no architecture 'nonesuch'"},
        {{.name = NAME, .with = "neox wings"}, "no feature 'wings'"},
        {{.name = NAME, .without = "NEOX"}, "no feature 'NEOX'"},
        {{.name = NAME, .with = "neox latent"}, "no reader for feature 'latent'"},
        {{.name = NAME, .like = "deepseek2", .without = "latent"}, "cannot be without feature 'latent'"},
        {{.name = NAME, .activation = "swish"}, "no activation 'swish'"},
        {{.name = NAME, .ffn_norm = "blk.%s.norm"}, "'blk.%s.norm'"},
        {{.name = NAME, .unused = two_percents, .n_unused = 1}, "'blk.%d.%d'"},
        {{.name = NAME, .n_unused = 1}, "unused"},
        {{.name = NAME, .reserved = 1}, "reserved"},
    };
    runnel_architecture_row first;
    runnel_engine_options options;
    runnel_engine *engine;
    runnel_error error;

    (void)state;
    runnel_architecture_row_default(&first);
    first.name = "first";
    runnel_engine_options_default(&options);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        runnel_architecture_row row = cases[i].row;
        const runnel_architecture_row *rows[] = {&first, &row};

        row.struct_size = sizeof row;
        options.architectures = rows;
        options.n_architectures = 2;
        assert_int_equal(runnel_engine_new(&options, &engine, &error), RUNNEL_INVALID);
        if (strstr(error.message, cases[i].word) == NULL)
            fail_msg("case %zu: \"%s\" does not say %s", i, error.message, cases[i].word);
        row = (runnel_architecture_row){.struct_size = sizeof row + 1, .name = NAME};
        assert_int_equal(runnel_engine_new(&options, &engine, &error), RUNNEL_INVALID);
    }
    options.architectures = NULL;
    assert_int_equal(runnel_engine_new(&options, &engine, &error), RUNNEL_INVALID);
}

/* Beside the engine: the plan of a file by a row. */
static void a_file_is_looked_into_by_a_row(void **state)
{
    runnel_architecture_row row;
    const runnel_architecture_row *rows[] = {&row};
    char text[256];
    runnel_file *file;
    runnel_error error;
    size_t n;

    (void)state;
    save_renamed(NULL);
    runnel_architecture_row_default(&row);
    row.name = NAME;
    row.with = "head-norm";
    assert_int_equal(runnel_file_open(path, &file, NULL), RUNNEL_OK);
    assert_int_equal(runnel_file_plan(file, text, sizeof text, &n, NULL), RUNNEL_OK);
    assert_non_null(memmem(text, sizeof text, "is not known", strlen("is not known")));
    assert_int_equal(runnel_file_set_architectures(file, rows, 1, NULL), RUNNEL_OK);
    assert_int_equal(runnel_file_plan(file, text, sizeof text, &n, &error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "attn_q_norm.weight"));
    row.with = NULL;
    assert_int_equal(runnel_file_set_architectures(file, rows, 1, NULL), RUNNEL_OK);
    assert_int_equal(runnel_file_plan(file, text, sizeof text, &n, NULL), RUNNEL_OK);
    assert_memory_equal(text, "plan of " NAME ": ", strlen("plan of " NAME ": "));
    row.name = "qwen2";
    assert_int_equal(runnel_file_set_architectures(file, rows, 1, &error), RUNNEL_INVALID);
    assert_int_equal(runnel_file_set_architectures(NULL, rows, 1, NULL), RUNNEL_INVALID);
    assert_int_equal(runnel_file_plan(file, text, sizeof text, &n, NULL), RUNNEL_OK); /* as before */
    runnel_file_close(file);
}

static int set_up(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    if (fd < 0)
        return -1;
    close(fd);
    answer_of(NULL, BUNDLED_MODEL, wanted);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_standard_decoder_warns_once), cmocka_unit_test(a_row_of_the_host_counts),
        cmocka_unit_test(whole_texts_are_not_generated), cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(a_file_is_looked_into_by_a_row)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
