/* The files that a command reads and writes, by its operands and options: what it writes must be none of the others.
 * See common.h. Asked before anything is opened, for to open an output is to empty it. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

enum { READ = 1, WRITTEN = 2, STREAM = 4 /* "-" is a standard stream, and no file */ };
enum { MOST = APP_MAX_OPERANDS + 64, MOST_LINKS = 40 };

struct named {
    const char *name, *path;
    char *own; /* of path, or NULL */
    int kind;
};

struct files {
    struct named list[MOST];
    size_t n;
};

/* Where a path leads: to a regular file, or to where one would be made. */
struct place {
    dev_t device;
    ino_t node;              /* of the file, or of the folder, where: */
    char name[NAME_MAX + 1]; /* is not empty: that of a file to be made in it */
};

/* ---- Places ------------------------------------------------------------------------------ */

static bool place_in_folder(const char *path, struct place *place, int links);

/* False: there is none, or it is no regular file: a device or a pipe can be written to twice. */
static bool place_of(const char *path, struct place *place, int links)
{
    struct stat status;

    *place = (struct place){0};
    if (stat(path, &status) != 0)
        return place_in_folder(path, place, links);
    place->device = status.st_dev;
    place->node = status.st_ino;
    return S_ISREG(status.st_mode);
}

/* Of a path where nothing is, or a link that leads to nothing. */
static bool place_in_folder(const char *path, struct place *place, int links)
{
    char target[PATH_MAX], *folder = strdup(path), *name = strdup(path), *next = NULL;
    ssize_t n = readlink(path, target, sizeof target - 1);
    bool found = false;
    struct stat status;

    if (folder == NULL || name == NULL) {
        n = -1;
    } else if (n > 0 && links < MOST_LINKS) {
        target[n] = '\0';
        if (asprintf(&next, "%s%s%s", target[0] == '/' ? "" : dirname(folder), target[0] == '/' ? "" : "/", target) >=
            0)
            found = place_of(next, place, links + 1);
    } else if (n < 0 && stat(dirname(folder), &status) == 0) {
        place->device = status.st_dev;
        place->node = status.st_ino;
        found = snprintf(place->name, sizeof place->name, "%s", basename(name)) < (int)sizeof place->name;
    }
    free(next);
    free(name);
    free(folder);
    return found;
}

static bool is_at(const char *path, const struct place *place)
{
    struct place other;

    return place_of(path, &other, 0) && other.device == place->device && other.node == place->node &&
           strcmp(other.name, place->name) == 0;
}

/* "..-00001-of-00003.gguf" has three parts; what is no model in parts, one. */
static unsigned parts_of(const char *path, size_t *front)
{
    static const char first[] = "-00001-of-";
    size_t n = strlen(path), tail = strlen("-00001-of-00003.gguf");

    *front = n > tail ? n - tail : 0;
    if (n <= tail || strncmp(path + *front, first, strlen(first)) != 0 || strcmp(path + n - 5, ".gguf") != 0)
        return 1;
    return (unsigned)strtoul(path + *front + strlen(first), NULL, 10);
}

/* Whether that is the place of the file, or, of a model in parts, of one of them. */
static bool leads_to(const char *path, const struct place *place)
{
    size_t front;
    unsigned parts = parts_of(path, &front);
    bool found = is_at(path, place);

    for (unsigned part = 2; part <= parts && !found; part++) {
        char *other = NULL;

        if (asprintf(&other, "%.*s-%05u-of-%05u.gguf", (int)front, path, part, parts) < 0)
            return false;
        found = is_at(other, place);
        free(other);
    }
    return found;
}

/* ---- Which files ------------------------------------------------------------------------- */

static void add(struct files *files, const char *name, const char *path, int kind)
{
    if (path != NULL && files->n < MOST && ((kind & STREAM) == 0 || !app_is_standard(path)))
        files->list[files->n++] = (struct named){name, path, NULL, kind};
}

/* One that is written beside another. Without memory it is not looked at, and the command fails for want of it. */
static void add_beside(struct files *files, const char *name, const char *path, const char *ending)
{
    char *whole = NULL;

    if (path == NULL || files->n == MOST || asprintf(&whole, "%s%s", path, ending) < 0)
        return;
    files->list[files->n++] = (struct named){name, whole, whole, WRITTEN};
}

static void add_job(struct files *files, const struct app_options *options)
{
    bool passing = app_is_standard(options->operands[1]) || app_is_standard(options->operands[2]);

    add(files, "the output", options->operands[2], WRITTEN | STREAM);
    if (options->journal != NULL || passing)
        add(files, "the journal", options->journal, WRITTEN);
    else
        add_beside(files, "the journal", options->operands[2], ".journal");
    add(files, "--errors", options->errors_file, WRITTEN | STREAM);
    add(files, "--summary", options->summary_file, WRITTEN | STREAM);
    if (options->summary_file != NULL && !app_is_standard(options->summary_file))
        add_beside(files, "--summary with .part", options->summary_file, ".part");
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

static void add_options(struct files *files, const struct app_options *options, unsigned command)
{
    bool shared_file = options->cache_shared != NULL && options->cache_shared[0] == '@';

    add(files, "--file", options->file, READ | STREAM);
    add(files, "--text", options->text, READ | STREAM);
    add(files, "--tools", options->tools_file, READ | STREAM);
    add(files, "--template", options->template_file, READ | STREAM);
    add(files, "--grammar-file", options->gbnf_file, READ | STREAM);
    add(files, "--json-schema-file", options->json_schema_file, READ | STREAM);
    add(files, "--ebnf-file", options->ebnf_file, READ | STREAM);
    add(files, "--draft", app_draft_path(options), READ);
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
        add_beside(files, "--output with .training", options->out, ".training");
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

        if ((written->kind & WRITTEN) == 0 || !place_of(written->path, &place, 0) || !leads_to(beside->path, &place))
            continue;
        app_error("%s is %s and %s at once", file->path, other->name, file->name);
        return false;
    }
    return true;
}

bool app_files_apart(const struct app_options *options, unsigned command)
{
    struct files files = {.n = 0};
    bool apart = true;

    add_operands(&files, options, command);
    add_options(&files, options, command);
    for (size_t i = 0; i < files.n && apart; i++)
        apart = is_apart(&files, i);
    free_files(&files);
    return apart;
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
