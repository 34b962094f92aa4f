/* runnel batch: many requests from a file, answers to a file, in OpenAI's batch format. Killed at any moment and
 * begun again with --resume, it ends with the same bytes as if it had not been: see journal.h for how,
 * docs/BATCH.md for the format.
 *
 * A job begins in this order, so that there is no moment at which --resume would go wrong: the model is loaded, the
 * journal is opened and locked, the output is opened and compared with it, the job is written to the journal, the
 * output is cut. */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { N_SETTINGS = 12 };

static enum batch_begin begin_of(const struct app_options *options)
{
    return options->resume ? BATCH_RESUME : options->overwrite ? BATCH_OVERWRITE : BATCH_FRESH;
}

/* ---- Files ------------------------------------------------------------------------------- */

/* What is read or written once cannot be gone on with. */
static bool is_passing(const struct app_options *options)
{
    return app_is_standard(options->operands[1]) || app_is_standard(options->operands[2]);
}

/* *size of a file that is there. */
static bool has_file(const char *path, off_t *size)
{
    struct stat status;
    bool has = path != NULL && !app_is_standard(path) && stat(path, &status) == 0;

    *size = has ? status.st_size : 0;
    return has;
}

/* What a job writes: its output, its errors, and at last its journal. NULL: it does not write that. */
enum { OUT_FILES = 3 };

/* What is there already must have been meant: checked before anything is opened or made. */
static bool check_existing(const struct app_options *options, const char *const paths[OUT_FILES])
{
    const char *there = NULL, *filled = NULL;
    bool has = false;
    off_t size = 0;

    for (size_t i = 0; i < OUT_FILES; i++) {
        has = has_file(paths[i], &size); /* at last: the journal */
        there = there == NULL && has ? paths[i] : there;
        filled = filled == NULL && size > 0 ? paths[i] : filled;
    }
    if (begin_of(options) == BATCH_FRESH && there != NULL) {
        app_error("%s exists already: %s--overwrite begins anew", there,
                  is_passing(options) ? "" : "--resume goes on with its job, ");
        return false;
    }
    if (begin_of(options) == BATCH_RESUME && !has && filled != NULL) {
        app_error("%s exists, but its journal %s does not: --overwrite begins anew", filled, paths[OUT_FILES - 1]);
        return false;
    }
    return true;
}

/* Whether those that are not there can be made: told before the model is loaded, and before one of them is. */
static bool check_places(const char *const paths[OUT_FILES])
{
    struct stat status;

    for (size_t i = 0; i < OUT_FILES; i++)
        if (paths[i] != NULL && !app_is_standard(paths[i]) && lstat(paths[i], &status) != 0 &&
            !app_can_make(paths[i])) {
            app_error("%s: %s", paths[i], strerror(errno));
            return false;
        }
    return true;
}

/* ---- Settings: what must be the same in every run of a job ------------------------------- */

static void set(struct batch_setting *settings, size_t *n, const char *name, const char *text)
{
    settings[*n].name = name;
    snprintf(settings[*n].value, sizeof settings[*n].value, "%s", text);
    ++*n;
}

static void set_number(struct batch_setting *settings, size_t *n, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set(settings, n, name, text);
}

/* What is loaded, and which of it lines use that name none; of a server's batch, whose lines name none, only the one
 * that it uses. "": nothing, likewise in older versions. */
static void describe_adapters(const struct batch *batch, char *text, size_t room)
{
    const struct app_options *options = batch->app.options;
    const char *used = app_adapter(options);
    uint64_t all = 0, n = 0;
    struct app_lora lora;

    text[0] = '\0';
    for (size_t i = 0; i < options->n_loras; i++) {
        const struct app_fingerprint *file = &batch->files[1 + i];

        app_lora_read(options->loras[i], &lora); /* the table has checked it */
        if (batch->only_model != NULL && (used == NULL || strcmp(lora.name, used) != 0))
            continue;
        all = XXH3_64bits_withSeed(lora.name, strlen(lora.name), all ^ file->hash ^ file->size);
        all = XXH3_64bits_withSeed(&lora.scale, sizeof lora.scale, all);
        n++;
    }
    if (n > 0)
        snprintf(text, room, "%llu loaded, %s used (%016llx)", (unsigned long long)n, used != NULL ? used : "none",
                 (unsigned long long)all);
}

/* Where the model is computed, as far as its texts hang on it: what "auto" has chosen. Of the CPU's instruction sets
 * AMX, which is the best where there is one, has bits of its own. */
static const char *used_device(const struct batch *batch)
{
    static const char amx[] = "cpu:avx512-amx";
    const char *device = batch->app.options->device;
    runnel_device_info cpu = {.struct_size = sizeof cpu};

    if (strcmp(device, "auto") == 0)
        device = batch->app.info.device_layers > 0 ? "cuda" : "cpu";
    if (strcmp(device, "cpu") == 0 && runnel_engine_device(batch->app.engine, device, &cpu, NULL) == RUNNEL_OK &&
        strncmp(cpu.kernels, amx + strlen("cpu:"), strlen(amx) - strlen("cpu:")) == 0)
        device = amx;
    return device;
}

static void collect_settings(const struct batch *batch, struct batch_setting settings[N_SETTINGS], size_t *n)
{
    const struct app_options *options = batch->app.options;
    const runnel_model_info *info = &batch->app.info;
    char model[192], template[64], adapters[160],
        layers[64] = ""; /* of what is not split; likewise in older versions */

    *n = 0;
    describe_adapters(batch, adapters, sizeof adapters);
    snprintf(model, sizeof model, "%.120s of %llu bytes (%016llx)", batch->model_name,
             (unsigned long long)batch->files[0].size, (unsigned long long)batch->files[0].hash);
    snprintf(template, sizeof template, "%.32s %016llx", options->template_name != NULL ? options->template_name : "",
             batch->template_text.size > 0
                 ? (unsigned long long)XXH3_64bits(batch->template_text.bytes, batch->template_text.size)
                 : 0ull);
    if (info->device_layers > 0 && info->device_layers < info->layers)
        app_layers_text(info, layers, sizeof layers);
    set(settings, n, "model", model);
    set(settings, n, "template", template);
    set(settings, n, "adapters", adapters);
    set(settings, n, "order", options->unordered ? "unordered" : "ordered");
    set(settings, n, "errors", options->errors_file != NULL ? "in a file of their own" : ""); /* "": older versions */
    set(settings, n, "device", used_device(batch));
    set(settings, n, "device-layers", layers);
    set(settings, n, "kv-type", options->kv_type);
    set_number(settings, n, "kv-size", options->kv_bytes);
    set_number(settings, n, "chunk-mean", batch->app.info.chunk_mean);
    set_number(settings, n, "context", batch->app.info.context_tokens);
    set_number(settings, n, "max-line-bytes", options->max_line_bytes);
}

/* ---- The job ----------------------------------------------------------------------------- */

bool batch_begin(struct batch *batch, const char *journal_path)
{
    const struct app_options *options = batch->app.options;
    struct batch_setting settings[N_SETTINGS];
    struct stat status;
    size_t n = 0;
    bool fresh = false;

    collect_settings(batch, settings, &n);
    if (!batch_input_open(&batch->input, options->operands[1], options->max_line_bytes) ||
        !batch_journal_open(&batch->journal, journal_path, begin_of(options), &fresh))
        return false;
    /* Answers are dated with the input's date, so that the same job gives the same bytes whenever it runs. */
    batch->job.created = fstat(batch->input.fd, &status) != 0 ? 0
                         : S_ISREG(status.st_mode)            ? (int64_t)status.st_mtime
                                                              : (int64_t)time(NULL);
    if (!fresh && !batch_journal_load(batch->journal, settings, n, &batch->job))
        return false;
    if (!batch_output_open(&batch->output, options->operands[2], options->errors_file, begin_of(options), fresh,
                           !options->unordered, &batch->job))
        return false;
    if (fresh && !batch_journal_create(batch->journal, settings, n, &batch->job))
        return false;
    return batch_output_cut(&batch->output);
}

/* What --fail-on asks for. */
int batch_judge(const struct app_options *options, const char *usual, const struct batch_counts *counts)
{
    const char *when = options->fail_on != NULL ? options->fail_on : usual;
    bool fails = strcmp(when, "none") != 0 && counts->bad > 0 && (strcmp(when, "any") == 0 || counts->good == 0);

    return fails ? APP_BAD_LINES : APP_OK;
}

static int end_job(struct batch *batch)
{
    const struct app_options *options = batch->app.options;
    struct batch_counts counts = {0};
    bool ended = batch->code == APP_OK;

    batch->now_us = batch_clock_us();
    if ((ended || options->summary_file != NULL) && !batch_journal_count(batch->journal, &counts))
        return APP_FAILURE;
    if (ended) {
        batch_summary(batch, &counts);
        batch->code = batch_judge(options, "none", &counts);
    }
    if (options->summary_file != NULL && !batch_write_summary(batch, &counts) && ended)
        batch->code = APP_FAILURE;
    if (ended || batch->changed || is_passing(options))
        return batch->code;
    app_error("%llu line%s done in this run; the same command with --resume%s goes on",
              (unsigned long long)batch->done_lines, batch->done_lines == 1 ? " was" : "s were",
              options->overwrite ? " instead of --overwrite" : "");
    return batch->code;
}

void batch_end(struct batch *batch)
{
    for (size_t i = 0; i < batch->n_lines; i++)
        batch_line_free(batch->lines[i]);
    batch_output_close(&batch->output);
    batch_journal_close(batch->journal);
    batch_input_close(&batch->input);
    batch->n_lines = 0;
    batch->journal = NULL;
}

/* The engine goes first: it may still deliver events of the lines. */
static void close_batch(struct batch *batch)
{
    batch_detach(batch);
    app_close(&batch->app);
    batch_end(batch);
    free(batch->template_text.bytes);
}

static int run_job(struct batch *batch, const char *journal_path)
{
    const struct app_options *options = batch->app.options;
    uint64_t stamp = app_model_stamp(options->operands[0], options);
    char sentence[512];
    int code = APP_OK;

    if (options->template_file != NULL && !app_read_file(options->template_file, &batch->template_text))
        return APP_FAILURE;
    code = app_open(&batch->app, options, false);
    if (code != APP_OK)
        return code;
    if (!app_fingerprints(options->operands[0], options, stamp, batch->files, sentence)) {
        app_error("%s", sentence);
        return APP_FAILURE;
    }
    if (!batch_begin(batch, journal_path))
        return APP_FAILURE;
    batch_run(batch);
    return end_job(batch);
}

/* An exit code. */
static int check_options(const struct app_options *options)
{
    if (options->resume && options->overwrite) {
        app_error("--resume and --overwrite exclude each other");
        return APP_USAGE;
    }
    if (is_passing(options) && (options->resume || options->journal != NULL)) {
        app_error("%s: a job with - for standard input or output keeps no journal and cannot go on",
                  options->resume ? "--resume" : "--journal");
        return APP_USAGE;
    }
    if (options->journal != NULL && *options->journal == '\0') {
        app_error("--journal is empty: it takes the name of a file");
        return APP_USAGE;
    }
    if (options->errors_file != NULL && app_is_standard(options->errors_file)) {
        app_error("--errors takes a file: answers go to standard output");
        return APP_USAGE;
    }
    if (options->summary_file != NULL && app_is_standard(options->summary_file) &&
        app_is_standard(options->operands[2])) {
        app_error("--summary -: answers go to standard output");
        return APP_USAGE;
    }
    return options->summary_file != NULL ? batch_check_summary(options->summary_file) : APP_OK;
}

int app_batch(const struct app_options *options)
{
    const char *slash = strrchr(options->operands[0], '/'),
               *paths[OUT_FILES] = {options->operands[2], options->errors_file};
    struct batch *batch = NULL;
    char *journal_path = NULL;
    bool memory = true;
    int code = APP_OK;

    if (options->check)
        return batch_check(options);
    code = check_options(options);
    if (code != APP_OK)
        return code;
    batch = calloc(1, sizeof *batch);
    if (!is_passing(options))
        memory = asprintf(&journal_path, "%s%s", options->journal != NULL ? options->journal : options->operands[2],
                          options->journal != NULL ? "" : ".journal") >= 0;
    if (batch == NULL || !memory) {
        app_error("not enough memory");
        free(batch);
        return APP_FAILURE;
    }
    paths[OUT_FILES - 1] = journal_path;
    batch->app.options = options;
    batch->input.fd = -1;
    batch->model_name = slash != NULL ? slash + 1 : options->operands[0];
    code = !check_existing(options, paths) ? APP_USAGE
           : check_places(paths)           ? run_job(batch, journal_path)
                                           : APP_FAILURE;
    close_batch(batch);
    free(batch);
    free(journal_path);
    return code;
}
