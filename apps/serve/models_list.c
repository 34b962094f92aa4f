/* Which models there are: see served_models.h. A configuration file is
 *
 *     {"models": [{"name": .., "path": .., "aliases": [..], "load": "start", "keep_alive": 300, "options": {"ctx": 4096}}]}
 *
 * of which only "path" is needed; a path is relative to the file. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "apps/runnel/option_table.h"
#include "serve.h"

struct reader {
    struct serve *serve;
    struct serve_models *list;
    char *sentence; /* [512] */
};

__attribute__((format(printf, 2, 3))) static bool complain(struct reader *reader, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reader->sentence, 512, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- One model --------------------------------------------------------------------------- */

void serve_model_free(struct serve_model *model)
{
    if (model == NULL)
        return;
    json_decref(model->entry);
    json_decref(model->texts);
    free(model->adapters.at);
    free(model->adapters.digests);
    serve_facts_fini(&model->facts);
    serve_facts_fini(&model->read);
    free(model->path);
    free(model);
}

void serve_models_fini(struct serve_models *list)
{
    for (size_t i = 0; i < list->n; i++)
        serve_model_free(list->at[i]);
    free(list->at);
    *list = (struct serve_models){0};
}

const runnel_adapter *serve_adapter_named(const struct serve_model *model, const char *name)
{
    for (size_t i = 0; i < model->adapters.n; i++)
        if (strcmp(model->adapters.at[i].name, name) == 0)
            return &model->adapters.at[i];
    return NULL;
}

const char *serve_model_alias(const struct serve_model *model, size_t i)
{
    return json_string_value(json_array_get(json_object_get(model->entry, "aliases"), i));
}

/* The model's own: its name, or an alias. */
static bool has_name(const struct serve_model *model, const char *name)
{
    const char *alias = NULL;

    for (size_t i = 0; (alias = serve_model_alias(model, i)) != NULL; i++)
        if (strcmp(alias, name) == 0)
            return true;
    return strcmp(model->name, name) == 0;
}

struct serve_model *serve_model_named(const struct serve_models *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (has_name(list->at[i], name) || serve_adapter_named(list->at[i], name) != NULL)
            return list->at[i];
    return NULL;
}

/* The name without the tag that Ollama's clients put behind names. False: it has none. */
static bool take_tag(const char *name, char bare[SERVE_NAME_BYTES])
{
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;

    if (n <= n_tag || n - n_tag >= SERVE_NAME_BYTES || strcmp(name + n - n_tag, tag) != 0)
        return false;
    snprintf(bare, SERVE_NAME_BYTES, "%.*s", (int)(n - n_tag), name);
    return true;
}

struct serve_model *serve_model_asked(const struct serve_models *list, const char *name)
{
    struct serve_model *model = serve_model_named(list, name);
    char bare[SERVE_NAME_BYTES];

    return model == NULL && take_tag(name, bare) ? serve_model_named(list, bare) : model;
}

const runnel_adapter *serve_adapter_asked(const struct serve_model *model, const char *name)
{
    char bare[SERVE_NAME_BYTES];

    if (name == NULL || has_name(model, name))
        return NULL;
    return serve_adapter_named(model, name) == NULL && take_tag(name, bare) ? serve_adapter_named(model, bare)
                                                                            : serve_adapter_named(model, name);
}

const char *serve_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

bool serve_model_same(const struct serve_model *a, const struct serve_model *b)
{
    const json_t *own = json_object_get(a->entry, "options"), *other = json_object_get(b->entry, "options");
    bool options = json_object_size(own) == 0 ? json_object_size(other) == 0 : json_equal(own, other);

    return options && strcmp(a->name, b->name) == 0 && strcmp(a->path, b->path) == 0 && a->stamp == b->stamp;
}

void serve_model_adopt(struct serve_model *model, struct serve_model *fresh)
{
    json_t *entry = model->entry;
    char(*digests)[SERVE_DIGEST_BYTES] = model->adapters.digests;

    model->entry = fresh->entry;
    fresh->entry = entry;
    model->adapters.digests = fresh->adapters.digests; /* its files may have been replaced before it was loaded */
    fresh->adapters.digests = digests;
    memcpy(model->digest, fresh->digest, sizeof model->digest);
    model->created = fresh->created;
    model->file_bytes = fresh->file_bytes;
    model->pinned = fresh->pinned;
    if (model->own_keep_ms != fresh->own_keep_ms)
        model->keep_ms = model->own_keep_ms = fresh->own_keep_ms;
}

/* What clients call it: the file's name without its end, and of a file in parts without the part. */
static void name_model(struct serve_model *model, const char *path)
{
    const char *name = serve_file_name(path);
    size_t n = strlen(name);

    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
        n -= 5;
    if (n > 15 && strncmp(name + n - 15, "-00001-of-", 10) == 0)
        n -= 15;
    snprintf(model->name, sizeof model->name, "%.*s", (int)n, name);
}

/* name NULL: of the file. NULL: no memory. */
static struct serve_model *new_model(struct reader *reader, const char *path, const char *name, size_t n)
{
    struct serve_model *model = calloc(1, sizeof *model);
    double keep_s = reader->serve->options->keep_alive_s;
    struct stat status;

    if (model != NULL)
        model->path = strdup(path);
    if (model == NULL || model->path == NULL) {
        free(model);
        complain(reader, "not enough memory");
        return NULL;
    }
    model->serve = reader->serve;
    model->options = *reader->serve->options;
    memset(model->options.loras, 0, sizeof model->options.loras); /* those of the command line are the first MODEL's */
    model->options.n_loras = 0;
    model->keep_ms = model->own_keep_ms = keep_s < 0 ? -1 : (int64_t)(keep_s * 1000);
    if (name != NULL)
        snprintf(model->name, sizeof model->name, "%.*s", (int)n, name);
    else
        name_model(model, path);
    if (stat(path, &status) == 0) {
        model->created = (int64_t)status.st_mtime;
        model->file_bytes = (uint64_t)status.st_size;
    }
    return model;
}

/* Those of the model's options. Their names are no other's. */
static bool add_adapters(struct reader *reader, struct serve_model *model)
{
    struct serve_adapters *adapters = &model->adapters;

    adapters->at = app_adapters(&model->options);
    adapters->digests = calloc(model->options.n_loras + 1, sizeof *adapters->digests);
    if (adapters->digests == NULL || (adapters->at == NULL && model->options.n_loras > 0))
        return complain(reader, "not enough memory");
    for (size_t i = 0; i < model->options.n_loras; i++) {
        const char *name = adapters->at[i].name;

        if (serve_model_named(reader->list, name) != NULL || has_name(model, name))
            return complain(reader,
                            "--lora: the adapter %.70s has the name of a model or of another model's adapter; "
                            "NAME=PATH gives it another name",
                            name);
        if (serve_adapter_named(model, name) != NULL)
            return complain(reader, "--lora: two adapters are called '%.70s'; NAME=PATH gives one another name", name);
        serve_place_digest(adapters->at[i].path, adapters->digests[i]);
        adapters->n++;
    }
    return true;
}

/* Takes the model in any case. */
static bool add(struct reader *reader, struct serve_model *model)
{
    struct serve_models *list = reader->list;
    const json_t *aliases = json_object_get(model->entry, "aliases");
    struct serve_model **grown = NULL;
    bool good = true;

    if (serve_model_named(list, model->name) != NULL)
        good = complain(reader, "two models are named %.100s; NAME=FILE gives one another name", model->name);
    for (size_t i = 0; good && i < json_array_size(aliases); i++) {
        const char *alias = json_string_value(json_array_get(aliases, i));

        if (serve_model_named(list, alias) != NULL || strcmp(alias, model->name) == 0)
            good = complain(reader, "two models are named %.100s", alias);
    }
    good = good && add_adapters(reader, model);
    if (good && list->n == SERVE_MODELS_MOST)
        good = complain(reader, "there are more than 4096 models");
    if (good && (grown = realloc(list->at, (list->n + 1) * sizeof *grown)) == NULL)
        good = complain(reader, "not enough memory");
    if (!good) {
        serve_model_free(model);
        return false;
    }
    serve_place_digest(model->path, model->digest);
    model->stamp = app_model_stamp(model->path, &model->options);
    list->at = grown;
    list->at[list->n++] = model;
    return true;
}

static bool names(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    return n > 0 && n < SERVE_NAME_BYTES;
}

static bool is_name(const char *text)
{
    return text != NULL && names(text, strlen(text));
}

/* ---- The command line -------------------------------------------------------------------- */

/* --alias: as the configuration file would have them. */
static bool add_aliases(struct reader *reader, struct serve_model *model)
{
    const char *at = reader->serve->options->alias;
    json_t *names = NULL, *name = NULL;

    if (at == NULL)
        return true;
    names = json_array();
    model->entry = json_pack("{s:o}", "aliases", names);
    for (size_t n = 0; model->entry != NULL; at += n + 1) {
        n = strcspn(at, ",");
        name = json_stringn(at, n);
        if (!is_name(json_string_value(name))) {
            json_decref(name);
            return complain(reader, "--alias: a name has 1 to 127 bytes and no control characters");
        }
        if (json_array_append_new(names, name) != 0)
            break;
        if (at[n] == '\0')
            return true;
    }
    return complain(reader, "not enough memory");
}

/* --lora's. */
static void take_loras(const struct reader *reader, struct serve_model *model)
{
    const struct app_options *options = reader->serve->options;

    memcpy(model->options.loras, options->loras, sizeof options->loras);
    model->options.n_loras = options->n_loras;
}

static bool add_operand(struct reader *reader, const char *operand)
{
    const char *equal = strchr(operand, '=');
    bool named = equal != NULL && memchr(operand, '/', (size_t)(equal - operand)) == NULL; /* NAME=FILE */
    size_t n = named ? (size_t)(equal - operand) : 0;
    struct serve_model *model = NULL;

    if (named && !names(operand, n))
        return complain(reader, "%.200s: a name has 1 to 127 bytes and no control characters", operand);
    model = new_model(reader, named ? equal + 1 : operand, named ? operand : NULL, n);
    if (model == NULL)
        return false;
    model->pinned = true;
    if (reader->list->n == 0)
        take_loras(reader, model);
    if (reader->list->n == 0 && !add_aliases(reader, model)) {
        serve_model_free(model);
        return false;
    }
    return add(reader, model);
}

/* ---- The configuration file -------------------------------------------------------------- */

/* Options of a model, named as on the command line, without the hyphens in front. */
static const struct app_option *find_option(const char *name)
{
    static const char *const own[] = {"ctx",           "batch",           "kv-type",     "kv-size",
                                      "cache-hot",     "cache-warm",      "draft",       "lora",
                                      "device",        "cache-dir",       "cache-cold",  "chunk-mean",
                                      "max-slowdown",  "no-prefix-cache", "weights",     "weights-dir",
                                      "draft-threads", "draft-max",       "draft-chain", "bound-windows",
                                      "device-layers", "device-experts",  "architecture"};
    char word[64];

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i], name) == 0) {
            snprintf(word, sizeof word, "--%s", name);
            return app_option_find(word, APP_SERVE);
        }
    return NULL;
}

/* A value as the command line would have it; it stays in model->texts. NULL: it has none. */
static const char *text_of(struct serve_model *model, const json_t *value)
{
    char number[40];

    if (json_is_string(value))
        snprintf(number, sizeof number, "%s", "");
    else if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else
        return NULL;
    if (model->texts == NULL)
        model->texts = json_array();
    if (json_array_append_new(model->texts, json_string(json_is_string(value) ? json_string_value(value) : number)) !=
        0)
        return NULL;
    return json_string_value(json_array_get(model->texts, json_array_size(model->texts) - 1));
}

/* A value, or an array of them where the option may be repeated. */
static bool store_option(struct serve_model *model, const struct app_option *o, const json_t *value)
{
    bool several = o->kind == OPTION_LORA && json_is_array(value);
    size_t n = several ? json_array_size(value) : 1;
    bool good = true;

    if (o->kind == OPTION_FLAG && json_is_false(value)) { /* the program's own may be true */
        *(bool *)((char *)&model->options + o->at) = false;
        return true;
    }
    for (size_t i = 0; good && i < n; i++) {
        const char *text = o->value != NULL ? text_of(model, several ? json_array_get(value, i) : value) : NULL;

        good = (o->value != NULL ? text != NULL : json_is_true(value)) && app_option_store(o, text, &model->options);
    }
    return good;
}

static bool read_options(struct reader *reader, struct serve_model *model, const json_t *options)
{
    const char *name = NULL;
    json_t *value = NULL;

    json_object_foreach((json_t *)(uintptr_t)options, name, value)
    {
        const struct app_option *o = find_option(name);

        if (o == NULL)
            return complain(reader, "model %.100s: '%.60s' is no option of a model", model->name, name);
        if (!store_option(model, o, value))
            return complain(reader, "model %.100s: this value is not allowed for the option %.60s", model->name, name);
    }
    return true;
}

static bool read_rest(struct reader *reader, struct serve_model *model)
{
    const json_t *aliases = json_object_get(model->entry, "aliases"), *load = json_object_get(model->entry, "load"),
                 *keep = json_object_get(model->entry, "keep_alive"),
                 *options = json_object_get(model->entry, "options");
    const char *when = json_string_value(load);

    if (!is_name(model->name))
        return complain(reader, "a name has 1 to 127 bytes and no control characters");
    if (aliases != NULL && !json_is_array(aliases))
        return complain(reader, "model %.100s: aliases are an array of strings", model->name);
    for (size_t i = 0; i < json_array_size(aliases); i++)
        if (!is_name(json_string_value(json_array_get(aliases, i))))
            return complain(reader, "model %.100s: an alias has 1 to 127 bytes and no control characters", model->name);
    if (load != NULL && (when == NULL || (strcmp(when, "start") != 0 && strcmp(when, "demand") != 0)))
        return complain(reader, "model %.100s: load is \"start\" or \"demand\"", model->name);
    model->pinned = when != NULL && strcmp(when, "start") == 0;
    if (keep != NULL && (!json_is_number(keep) || !(json_number_value(keep) <= 1e9)))
        return complain(reader, "model %.100s: keep_alive is a number of seconds; -1: for good", model->name);
    if (keep != NULL)
        model->keep_ms = model->own_keep_ms =
            json_number_value(keep) < 0 ? -1 : (int64_t)(json_number_value(keep) * 1000);
    if (options != NULL && !json_is_object(options))
        return complain(reader, "model %.100s: options are an object", model->name);
    return read_options(reader, model, options);
}

static bool add_entry(struct reader *reader, json_t *entry, const char *folder, size_t n)
{
    static const char known[] = " name path aliases load keep_alive options ";
    const char *path = json_string_value(json_object_get(entry, "path")), *member = NULL;
    const json_t *name = json_object_get(entry, "name");
    struct serve_model *model = NULL;
    char whole[4096], word[80];
    json_t *value = NULL;

    if (path == NULL || path[0] == '\0')
        return complain(reader, "each model is an object with a path");
    json_object_foreach(entry, member, value)
    {
        snprintf(word, sizeof word, " %.70s ", member);
        if (strstr(known, word) == NULL)
            return complain(reader, "a model has name, path, aliases, load, keep_alive and options; not '%.60s'",
                            member);
    }
    if (name != NULL && !is_name(json_string_value(name)))
        return complain(reader, "a name has 1 to 127 bytes and no control characters");
    if (snprintf(whole, sizeof whole, "%.*s%s", path[0] == '/' ? 0 : (int)n, folder, path) >= (int)sizeof whole)
        return complain(reader, "a path is too long");
    model = new_model(reader, whole, json_string_value(name), name != NULL ? json_string_length(name) : 0);
    if (model == NULL)
        return false;
    model->entry = json_incref(entry);
    if (read_rest(reader, model))
        return add(reader, model);
    serve_model_free(model);
    return false;
}

static bool add_file(struct reader *reader, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct app_text text = {0};
    json_error_t where = {0};
    json_t *all = NULL, *models = NULL;
    char why[384];
    bool good = true;

    if (!serve_read_file(reader->serve, path, &text, reader->sentence))
        return false;
    all = json_loadb(text.bytes, text.size, JSON_REJECT_DUPLICATES, &where);
    free(text.bytes);
    models = json_object_get(all, "models");
    if (all == NULL)
        good = complain(reader, "it is not JSON: %.160s (line %d, column %d)", where.text, where.line, where.column);
    else if (!json_is_array(models) || json_object_size(all) != 1)
        good = complain(reader, "it is an object with one member, \"models\", an array");
    for (size_t i = 0; good && i < json_array_size(models); i++)
        good = add_entry(reader, json_array_get(models, i), path, slash != NULL ? (size_t)(slash - path) + 1 : 0);
    json_decref(all);
    if (good)
        return true;
    snprintf(why, sizeof why, "%.380s", reader->sentence);
    return complain(reader, "%.100s: %s", path, why);
}

/* ---- The folder -------------------------------------------------------------------------- */

/* GGUF files; of a file in parts the first part. */
static int is_model(const struct dirent *entry)
{
    const char *name = entry->d_name;
    size_t n = strlen(name);

    if (n <= 5 || strcmp(name + n - 5, ".gguf") != 0 || name[0] == '.')
        return 0;
    return n < 20 || strncmp(name + n - 14, "-of-", 4) != 0 || strncmp(name + n - 20, "-00001", 6) == 0;
}

static bool add_folder(struct reader *reader, const char *folder)
{
    struct dirent **names = NULL;
    int n = scandir(folder, &names, is_model, alphasort);
    bool good = true;

    if (n < 0)
        return complain(reader, "%.200s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct serve_model *model = NULL;
        char path[4096];

        if (good && snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name) < (int)sizeof path)
            good = (model = new_model(reader, path, NULL, 0)) != NULL;
        if (model != NULL && (serve_model_named(reader->list, model->name) != NULL || !is_name(model->name)))
            serve_model_free(model); /* who is named elsewhere is meant */
        else if (model != NULL)
            good = add(reader, model);
        free(names[i]);
    }
    free(names);
    return good;
}

bool serve_list_models(struct serve *serve, struct serve_models *list, char sentence[512])
{
    const struct app_options *options = serve->options;
    struct reader reader = {serve, list, sentence};
    bool good = true;

    *list = (struct serve_models){0};
    if (options->alias != NULL && options->n_operands == 0)
        good = complain(&reader, "--alias names a MODEL of the command line, and there is none");
    if (good && options->n_loras > 0 && options->n_operands == 0)
        good = complain(&reader, "--lora is for a MODEL of the command line, and there is none; a list of models has "
                                 "an option lora for each");
    for (int i = 0; i < options->n_operands && good; i++)
        good = add_operand(&reader, options->operands[i]);
    good = good && (options->models_file == NULL || add_file(&reader, options->models_file));
    good = good && (options->models_dir == NULL || add_folder(&reader, options->models_dir));
    if (good && list->n == 0)
        good = complain(&reader, "there is no model in %.200s",
                        options->models_dir != NULL ? options->models_dir : options->models_file);
    if (!good)
        serve_models_fini(list);
    return good;
}
