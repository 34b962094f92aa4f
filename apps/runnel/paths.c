/* The files that a command reads and writes, by its operands and options: what it writes must be none of the others,
 * and one alone may be standard input. See common.h. Asked before anything is opened, for to open an output is to empty
 * it. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/runnel/chat/chat.h"

enum { READ = 1, WRITTEN = 2, STREAM = 4 /* "-" is a standard stream, and no file */ };
enum { MOST = APP_MAX_OPERANDS + RUNNEL_MAX_ADAPTERS + 64, MOST_LINKS = 40 };

struct named {
    const char *name, *path;
    char *own; /* of path, or NULL */
    int kind;
};

struct files {
    struct named list[MOST];
    size_t n;
    const char *input, *second; /* names of the first two that are standard input, or NULL */
};

/* Where a path leads: to a regular file, or to where one would be made. */
struct place {
    dev_t device;
    ino_t node;              /* of the file, or of the folder, where: */
    char name[NAME_MAX + 1]; /* is not empty: that of a file to be made in it */
};

/* ---- Places ------------------------------------------------------------------------------ */

/* What a symbolic link says, as a path, to be freed; NULL: it is none, or memory is short. */
static char *next_of(const char *path)
{
    char target[PATH_MAX], *folder = NULL, *next = NULL;
    ssize_t n = readlink(path, target, sizeof target - 1);

    if (n <= 0 || (folder = strdup(path)) == NULL)
        return NULL;
    target[n] = '\0';
    if (asprintf(&next, "%s%s%s", target[0] == '/' ? "" : dirname(folder), target[0] == '/' ? "" : "/", target) < 0)
        next = NULL;
    free(folder);
    return next;
}

char *app_target(const char *path)
{
    char *at = realpath(path, NULL), *next = NULL;

    if (at != NULL)
        return at;
    at = strdup(path);
    for (int links = 0; at != NULL && links < MOST_LINKS && (next = next_of(at)) != NULL; links++) {
        free(at);
        at = next;
    }
    return at;
}

/* Where a file would be made, behind the links. False: nowhere. */
static bool place_in_folder(const char *path, struct place *place)
{
    char *target = app_target(path), *folder = target != NULL ? strdup(target) : NULL;
    struct stat status;
    bool found = folder != NULL && stat(dirname(folder), &status) == 0;

    if (found) {
        place->device = status.st_dev;
        place->node = status.st_ino;
        found = snprintf(place->name, sizeof place->name, "%s", basename(target)) < (int)sizeof place->name;
    }
    free(folder);
    free(target);
    return found;
}

/* False: there is none, or it is no regular file: a device or a pipe can be written to twice. */
static bool place_of(const char *path, struct place *place)
{
    struct stat status;

    *place = (struct place){0};
    if (stat(path, &status) != 0)
        return place_in_folder(path, place);
    place->device = status.st_dev;
    place->node = status.st_ino;
    return S_ISREG(status.st_mode);
}

static bool is_at(const char *path, const struct place *place)
{
    struct place other;

    return place_of(path, &other) && other.device == place->device && other.node == place->node &&
           strcmp(other.name, place->name) == 0;
}

/* "..-00001-of-00003.gguf" has three parts; what is no model in parts, one. */
static unsigned parts_of(const char *path, size_t *front)
{
    static const char first[] = "-00001-of-";
    size_t n = strlen(path), tail = strlen("-00001-of-00003.gguf");

    *front = n > tail ? n - tail : 0;
    if (n <= tail || strncmp(path + *front, first, strlen(first)) != 0 ||
        strspn(path + *front + strlen(first), "0123456789") != 5 || strcmp(path + n - 5, ".gguf") != 0)
        return 1;
    return (unsigned)strtoul(path + *front + strlen(first), NULL, 10);
}

char *app_model_part(const char *path, unsigned part)
{
    size_t front;
    unsigned parts = parts_of(path, &front);
    char *name = NULL;

    if (part == 1)
        return strdup(path);
    if (part > parts || asprintf(&name, "%.*s-%05u-of-%05u.gguf", (int)front, path, part, parts) < 0)
        return NULL;
    return name;
}

/* Whether that is the place of the file, or, of a model in parts, of one of them. */
static bool leads_to(const char *path, const struct place *place)
{
    bool found = is_at(path, place);
    char *other = NULL;

    for (unsigned part = 2; !found && (other = app_model_part(path, part)) != NULL; part++) {
        found = is_at(other, place);
        free(other);
    }
    return found;
}

/* ---- Which files ------------------------------------------------------------------------- */

static void add_stream(struct files *files, const char *name, int kind)
{
    if ((kind & READ) == 0)
        return;
    if (files->input != NULL && files->second == NULL)
        files->second = name;
    if (files->input == NULL)
        files->input = name;
}

static void add(struct files *files, const char *name, const char *path, int kind)
{
    if (path != NULL && (kind & STREAM) != 0 && app_is_standard(path))
        add_stream(files, name, kind);
    else if (path != NULL && files->n < MOST)
        files->list[files->n++] = (struct named){name, path, NULL, kind};
}

/* The path is taken, and freed where there is no room. */
static void add_own(struct files *files, const char *name, char *path, int kind)
{
    if (files->n < MOST)
        files->list[files->n++] = (struct named){name, path, path, kind};
    else
        free(path);
}

/* One that is written beside another. Without memory it is not looked at, and the command fails for want of it. */
static void add_beside(struct files *files, const char *name, const char *path, const char *ending)
{
    char *whole = NULL;

    if (path != NULL && asprintf(&whole, "%s%s", path, ending) >= 0)
        add_own(files, name, whole, WRITTEN);
}

/* Likewise, beside the file that the path leads to. */
static void add_behind(struct files *files, const char *name, const char *path, const char *ending)
{
    char *target = path != NULL ? app_target(path) : NULL;

    add_beside(files, name, target, ending);
    free(target);
}

/* And what SQLite keeps beside it. */
static void add_journal(struct files *files, const char *journal, const char *output)
{
    char *path = NULL;

    if (asprintf(&path, "%s%s", journal != NULL ? journal : output, journal != NULL ? "" : ".journal") < 0)
        return;
    add_behind(files, "the journal with -wal", path, "-wal");
    add_behind(files, "the journal with -shm", path, "-shm");
    add_own(files, "the journal", path, WRITTEN);
}

/* A head is written under another name first, and so is how far its training is. */
static void add_training(struct files *files, const char *out)
{
    char *state = NULL;

    if (out == NULL || asprintf(&state, "%s.training", out) < 0)
        return;
    add_behind(files, "--output with .new", out, ".new");
    add_beside(files, "--output with .training", out, ".training");
    add_behind(files, "--output with .training.new", state, ".new");
    free(state);
}

/* The lines of earlier runs, which are no conversation. */
static void add_history(struct files *files, const struct app_options *options)
{
    char path[PATH_MAX], *own = NULL;

    if (!options->no_history && chat_history_path(path, sizeof path) && (own = strdup(path)) != NULL)
        add_own(files, "the history", own, READ);
}

static void add_job(struct files *files, const struct app_options *options)
{
    bool passing = app_is_standard(options->operands[1]) || app_is_standard(options->operands[2]);

    add(files, "the output", options->operands[2], WRITTEN | STREAM);
    if (options->journal != NULL || !passing)
        add_journal(files, options->journal, options->operands[2]);
    add(files, "--errors", options->errors_file, WRITTEN | STREAM);
    add(files, "--summary", options->summary_file, WRITTEN | STREAM);
    if (options->summary_file != NULL && !app_is_standard(options->summary_file))
        add_behind(files, "--summary with .part", options->summary_file, ".part");
}

/* NAME=FILE */
static const char *served_path(const char *operand)
{
    const char *equal = strchr(operand, '=');

    return equal != NULL && memchr(operand, '/', (size_t)(equal - operand)) == NULL ? equal + 1 : operand;
}

static void add_operands(struct files *files, const struct app_options *options, unsigned command)
{
    bool warm = command == APP_CACHE && options->n_operands == 3;
    int models = command == APP_SERVE || command == APP_BENCH ? options->n_operands : options->n_operands > 0;

    for (int i = 0; i < models && command != APP_CACHE; i++)
        add(files, "the model", command == APP_SERVE ? served_path(options->operands[i]) : options->operands[i], READ);
    if (warm)
        add(files, "the model", options->operands[1], READ);
    if (warm)
        add(files, "the file of prompts", options->operands[2], READ | STREAM);
    if (command == APP_PERPLEXITY || command == APP_EAGLE)
        add(files, command == APP_EAGLE ? "the corpus" : "the text", options->operands[1], READ | STREAM);
    if (command == APP_BATCH)
        add(files, "the input", options->operands[1], READ | STREAM);
    if (command == APP_BATCH && !options->check)
        add_job(files, options);
}

static void add_loras(struct files *files, const struct app_options *options)
{
    struct app_lora lora;
    char *path = NULL;

    for (size_t i = 0; i < options->n_loras; i++)
        if (app_lora_read(options->loras[i], &lora) && (path = strndup(lora.path, lora.path_bytes)) != NULL)
            add_own(files, "--lora", path, READ);
}

static void add_options(struct files *files, const struct app_options *options, unsigned command)
{
    bool shared_file = options->cache_shared != NULL && options->cache_shared[0] == '@';

    add(files, "--file", options->file, READ | STREAM);
    add(files, "--text", options->text, READ | STREAM);
    add(files, "--context", options->context_file, READ | STREAM);
    add(files, "--tools", options->tools_file, READ | STREAM);
    add(files, "--template", options->template_file, READ | STREAM);
    add(files, "--grammar-file", options->gbnf_file, READ | STREAM);
    add(files, "--json-schema-file", options->json_schema_file, READ | STREAM);
    add(files, "--ebnf-file", options->ebnf_file, READ | STREAM);
    add(files, "--draft", app_draft_path(options), READ);
    add_loras(files, options);
    add(files, "--cuda-library", options->cuda_library, READ);
    add(files, "--cache-shared", shared_file ? options->cache_shared + 1 : NULL, READ | STREAM);
    add(files, "--cache-shared-ca", options->cache_shared_ca, READ);
    add(files, "--cache-shared-cert", options->cache_shared_cert, READ);
    add(files, "--cache-shared-key", options->cache_shared_key, READ);
    add(files, "--api-key-file", options->api_key_file, READ);
    add(files, "--models-file", options->models_file, READ);
    add(files, "--tls-cert", options->tls_cert, READ);
    add(files, "--tls-key", options->tls_key, READ);
    add(files, "--session", options->session_file, READ | WRITTEN);
    add(files, "--output", options->out, WRITTEN | STREAM);
    if (command == APP_EAGLE)
        add_training(files, options->out);
    if (command == APP_CHAT)
        add_history(files, options);
    add(files, "--metrics", options->metrics_file, WRITTEN | STREAM);
    add(files, "--experts", options->experts_file, WRITTEN);
    add(files, "--trace", options->trace_file, WRITTEN);
}

static void free_files(struct files *files)
{
    for (size_t i = 0; i < files->n; i++)
        free(files->list[i].own);
}

/* ---- What may not be one file ------------------------------------------------------------ */

/* Whether file `at` is none of those in front of it, of two that are read. False after a message. */
static bool is_apart(const struct files *files, size_t at)
{
    const struct named *file = &files->list[at], *other;
    struct place place;

    for (other = files->list; other < file; other++) {
        const struct named *written = (file->kind & WRITTEN) != 0 ? file : other,
                           *beside = written == file ? other : file;

        if ((written->kind & WRITTEN) == 0 || !place_of(written->path, &place) || !leads_to(beside->path, &place))
            continue;
        app_error("%s is %s and %s at once", file->path, other->name, file->name);
        return false;
    }
    return true;
}

/* Frees them. */
static bool are_apart(struct files *files)
{
    bool apart = files->second == NULL;

    if (!apart)
        app_error("%s and %s both read standard input", files->input, files->second);
    for (size_t i = 0; i < files->n && apart; i++)
        apart = is_apart(files, i);
    free_files(files);
    return apart;
}

bool app_files_apart(const struct app_options *options, unsigned command)
{
    struct files files = {.n = 0};

    if (command == APP_CHAT && !isatty(STDIN_FILENO)) /* else it is what is typed behind a Ctrl-D */
        add_stream(&files, "the conversation", READ);
    add_operands(&files, options, command);
    add_options(&files, options, command);
    return are_apart(&files);
}

bool app_model_apart(const struct app_options *options, unsigned command, const char *path)
{
    struct files files = {.n = 0};

    add_options(&files, options, command);
    add(&files, "the model", path, READ);
    return are_apart(&files);
}

bool app_file_apart(const struct app_options *options, unsigned command, const char *name, const char *path)
{
    struct app_options others = *options;
    struct files files = {.n = 0};
    bool apart;

    others.session_file = NULL;
    add_operands(&files, &others, command);
    add_options(&files, &others, command);
    add(&files, name, path, WRITTEN);
    apart = is_apart(&files, files.n - 1);
    free_files(&files);
    return apart;
}
