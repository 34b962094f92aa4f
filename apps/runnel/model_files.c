/* The files that a model is loaded from, its own and those of --lora: what tells them from others, and how much memory
 * adapters take. See common.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common.h"
#include "runnel_files.h"

enum { SAMPLE_BYTES = 1 << 20 };

/* File `i` of the model: 0 its own, then those of its adapters. To be freed; NULL: no memory. */
static char *path_of(const char *path, const struct app_options *options, size_t i)
{
    struct app_lora lora;

    if (i == 0)
        return strdup(path);
    app_lora_read(options->loras[i - 1], &lora); /* the table has checked it */
    return strndup(lora.path, lora.path_bytes);
}

/* ---- What the system says of them -------------------------------------------------------- */

/* False: there is no such file. name: freed; NULL: none, likewise. */
static bool add_stamp(char *name, uint64_t *stamp)
{
    struct stat status;
    bool there = name != NULL && stat(name, &status) == 0;
    const uint64_t words[] = {there ? status.st_dev : 0,
                              there ? status.st_ino : 0,
                              there ? (uint64_t)status.st_size : 0,
                              there ? (uint64_t)status.st_mtim.tv_sec : 0,
                              there ? (uint64_t)status.st_mtim.tv_nsec : 0,
                              there ? (uint64_t)status.st_ctim.tv_sec : 0,
                              there ? (uint64_t)status.st_ctim.tv_nsec : 0};

    *stamp = XXH3_64bits_withSeed(words, sizeof words, *stamp);
    free(name);
    return there;
}

uint64_t app_model_stamp(const char *path, const struct app_options *options)
{
    uint64_t stamp = 0;

    for (size_t i = 0; i <= options->n_loras; i++)
        add_stamp(path_of(path, options, i), &stamp);
    for (unsigned part = 2; add_stamp(app_model_part(path, part), &stamp); part++)
        continue;
    return stamp;
}

/* ---- What is in them --------------------------------------------------------------------- */

/* Of the first and last bytes: models that differ, differ there. *hash: of the files before, and of this one, too.
 * buffer: [2 * SAMPLE_BYTES] */
static bool hash_ends(int fd, off_t size, char *buffer, uint64_t *hash)
{
    off_t from = size > SAMPLE_BYTES ? size - SAMPLE_BYTES : 0;
    ssize_t head = pread(fd, buffer, SAMPLE_BYTES, 0),
            tail = head >= 0 ? pread(fd, buffer + head, SAMPLE_BYTES, from) : -1;

    if (tail >= 0)
        *hash = XXH3_64bits_withSeed(buffer, (size_t)(head + tail), *hash);
    return tail >= 0;
}

/* Of all bytes: adapters of one base that were trained longer may begin and end alike. */
static bool hash_whole(int fd, char *buffer, uint64_t *hash)
{
    XXH3_state_t *state = XXH3_createState();
    ssize_t n = -1;

    if (state == NULL) {
        errno = ENOMEM;
        return false;
    }
    XXH3_64bits_reset(state);
    while ((n = read(fd, buffer, SAMPLE_BYTES)) > 0)
        XXH3_64bits_update(state, buffer, (size_t)n);
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return n == 0;
}

/* Adds the file to what was read of others. False: errno says why. */
static bool read_print(const char *path, bool whole, struct app_fingerprint *print)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), reason = 0;
    char *buffer = malloc(2 * (size_t)SAMPLE_BYTES);
    struct stat status;
    bool good = fd >= 0 && buffer != NULL && fstat(fd, &status) == 0 &&
                (whole ? hash_whole(fd, buffer, &print->hash) : hash_ends(fd, status.st_size, buffer, &print->hash));

    reason = errno;
    if (good)
        print->size += (uint64_t)status.st_size;
    free(buffer);
    if (fd >= 0)
        close(fd);
    errno = reason;
    return good;
}

/* *name: freed, and that of the part. False: there is none, or no memory. */
static bool next_part(const char *path, unsigned part, char **name)
{
    free(*name);
    *name = app_model_part(path, part);
    return *name != NULL;
}

bool app_fingerprints(const char *path, const struct app_options *options, uint64_t stamp,
                      struct app_fingerprint *prints, char sentence[512])
{
    bool good = true;

    for (size_t i = 0; good && i <= options->n_loras; i++) {
        char *name = path_of(path, options, i);

        prints[i] = (struct app_fingerprint){0};
        good = name != NULL && read_print(name, i > 0, &prints[i]);
        for (unsigned part = 2; i == 0 && good && next_part(path, part, &name); part++)
            good = read_print(name, false, &prints[i]);
        if (!good)
            snprintf(sentence, 512, "%.300s: %.150s", name != NULL ? name : path, strerror(errno));
        free(name);
    }
    if (good && app_model_stamp(path, options) != stamp) {
        snprintf(sentence, 512, "%.300s%s was changed while the model was loaded", path,
                 options->n_loras > 0 ? ", or an adapter's file," : "");
        good = false;
    }
    return good;
}

/* ---- What adapters take ------------------------------------------------------------------ */

/* A matrix of the model that adapters change. */
struct matrix {
    char name[96], type[8]; /* of what B's stack is of; "": not known yet */
    uint64_t rank, columns, rows;
};

struct matrices {
    struct matrix *at; /* [n]; owned */
    size_t n, last;    /* last: that was found last, for files have them in one order */
};

/* NULL: no memory. */
static struct matrix *matrix_of(struct matrices *all, const char *name, size_t n)
{
    struct matrix *grown = NULL;

    for (size_t i = 0; i < all->n; i++) {
        size_t at = (all->last + i) % all->n;

        if (strlen(all->at[at].name) == n && memcmp(all->at[at].name, name, n) == 0)
            return &all->at[all->last = at];
    }
    grown = realloc(all->at, (all->n + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    all->at = grown;
    all->last = all->n;
    grown[all->n] = (struct matrix){.rank = 0};
    snprintf(grown[all->n].name, sizeof grown->name, "%.*s", (int)n, name);
    return &grown[all->n++];
}

/* B stays as it is where all have it in one type of these; else it becomes F32, as A does in any case. */
static void join_type(struct matrix *matrix, const char *type)
{
    bool plain = strcmp(type, "F16") == 0 || strcmp(type, "BF16") == 0;

    if (!plain || (matrix->type[0] != '\0' && strcmp(matrix->type, type) != 0))
        type = "F32";
    snprintf(matrix->type, sizeof matrix->type, "%s", type);
}

static void add_tensor(struct matrices *all, const runnel_tensor *tensor)
{
    static const char end[] = ".lora_a";
    size_t n = tensor->name_bytes - (sizeof end - 1);
    struct matrix *matrix = NULL;

    if (tensor->name_bytes < sizeof end || n >= sizeof matrix->name ||
        memcmp(tensor->name + n, end, sizeof end - 2) != 0 || (matrix = matrix_of(all, tensor->name, n)) == NULL)
        return;
    if (tensor->name[tensor->name_bytes - 1] == 'a') {
        matrix->columns = tensor->dims[0];
        matrix->rank = tensor->dims[1] > matrix->rank ? tensor->dims[1] : matrix->rank;
    } else {
        matrix->rows = tensor->dims[1];
        join_type(matrix, tensor->type);
    }
}

static void add_file(struct matrices *all, const char *text)
{
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    runnel_file *file = NULL;
    struct app_lora lora;
    char *path = NULL;

    app_lora_read(text, &lora); /* the table has checked it */
    path = strndup(lora.path, lora.path_bytes);
    if (path != NULL && runnel_file_open(path, &file, NULL) == RUNNEL_OK)
        for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
            add_tensor(all, &tensor);
    runnel_file_close(file);
    free(path);
}

uint64_t app_adapters_bytes(const struct app_options *options)
{
    struct matrices all = {.n = 0};
    uint64_t sum = 0, bytes = 0;

    for (size_t i = 0; i < options->n_loras; i++)
        add_file(&all, options->loras[i]);
    for (size_t i = 0; i < all.n; i++) {
        const struct matrix *matrix = &all.at[i];
        uint64_t of_b = strcmp(matrix->type, "F32") == 0 ? 4 : 2;

        if (__builtin_mul_overflow(matrix->columns * 4 + matrix->rows * of_b, matrix->rank, &bytes) ||
            __builtin_mul_overflow(bytes, options->n_loras + 1, &bytes) || __builtin_add_overflow(sum, bytes, &sum))
            sum = UINT64_MAX;
    }
    free(all.at);
    return sum;
}
