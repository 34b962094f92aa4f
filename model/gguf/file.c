/* Files: opening, mapping, reading the header, and the parts of a split file: see internal.h.
 *
 * The header's length is not known before it is parsed. It is read in pieces that at least double;
 * the parser, started anew each time, says when it wants more. That is linear in the header, and
 * what has been parsed is a copy that no writer of the file can change afterwards. The whole file
 * is mapped for the tensors' data, of which nothing is touched here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/gguf/internal.h"

#define FIRST_READ ((uint64_t)64 << 10)

static runnel_status io_error(const struct rn_gguf *gguf, const char *what, int number, runnel_error *error)
{
    char reason[64];

    if (strerror_r(number, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", number);
    return rn_error_set(error, RUNNEL_IO, "%s: %s: %s", rn_shown_path(gguf->path).text, what, reason);
}

static runnel_status io_fault(const struct rn_gguf *gguf, const char *what, runnel_error *error)
{
    return rn_error_set(error, RUNNEL_IO, "%s: %s", rn_shown_path(gguf->path).text, what);
}

/* Opens a regular file that is not empty. O_NONBLOCK: the open of a FIFO must not wait for a writer. */
static runnel_status open_regular(const struct rn_gguf *gguf, int *fd, struct stat *info, runnel_error *error)
{
    *fd = open(gguf->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0)
        return io_error(gguf, "it cannot be opened", errno, error);
    if (fstat(*fd, info) != 0)
        return io_error(gguf, "it cannot be examined", errno, error);
    if (S_ISDIR(info->st_mode))
        return io_fault(gguf, "it is a directory", error);
    if (!S_ISREG(info->st_mode))
        return io_fault(gguf, "it is not a regular file", error);
    if (info->st_size == 0)
        return io_fault(gguf, "the file is empty", error);
    return RUNNEL_OK;
}

/* Fills bytes[from..to) of the file. */
static runnel_status read_range(const struct rn_gguf *gguf, int fd, char *bytes, uint64_t from, uint64_t to,
                                runnel_error *error)
{
    while (from < to) {
        ssize_t n = pread(fd, bytes + from, (size_t)(to - from), (off_t)from);

        if (n == 0)
            return io_fault(gguf, "the file became shorter while it was being read", error);
        if (n < 0 && errno != EINTR)
            return io_error(gguf, "it cannot be read", errno, error);
        if (n > 0)
            from += (uint64_t)n;
    }
    return RUNNEL_OK;
}

/* Makes `header` the file's first `want` bytes. */
static runnel_status extend_header(struct rn_gguf *gguf, int fd, uint64_t want, runnel_error *error)
{
    char *grown = rn_realloc(gguf->heap, gguf->header_copy, want, 1);
    runnel_status status;

    if (grown == NULL)
        return rn_gguf_no_memory(gguf, error);
    gguf->header = gguf->header_copy = grown;
    status = read_range(gguf, fd, grown, gguf->have, want, error);
    if (status == RUNNEL_OK)
        gguf->have = want;
    return status;
}

static runnel_status read_header(struct rn_gguf *gguf, int fd, runnel_error *error)
{
    uint64_t want = FIRST_READ;
    runnel_status status;

    do {
        if (want > gguf->file_bytes)
            want = gguf->file_bytes;
        status = extend_header(gguf, fd, want, error);
        if (status != RUNNEL_OK)
            return status;
        status = rn_gguf_parse_header(gguf, error);
        want = gguf->need > 2 * want ? gguf->need : 2 * want;
    } while (status == RUNNEL_BUSY);
    return status;
}

/* Gives back what was read beyond the header; every view moves with it. */
static runnel_status trim_header(struct rn_gguf *gguf, runnel_error *error)
{
    char *old = gguf->header_copy, *trimmed = rn_alloc(gguf->heap, gguf->header_bytes, 1);

    if (trimmed == NULL)
        return rn_gguf_no_memory(gguf, error);
    memcpy(trimmed, old, (size_t)gguf->header_bytes);
    for (uint64_t i = 0; i < gguf->n_entries; i++) {
        gguf->entries[i].key.bytes = trimmed + (gguf->entries[i].key.bytes - old);
        gguf->entries[i].data = trimmed + (gguf->entries[i].data - old);
    }
    for (uint64_t i = 0; i < gguf->n_tensors; i++)
        gguf->tensors[i].name.bytes = trimmed + (gguf->tensors[i].name.bytes - old);
    rn_free(gguf->heap, old);
    gguf->header = gguf->header_copy = trimmed;
    gguf->have = gguf->header_bytes;
    return RUNNEL_OK;
}

static runnel_status check_unchanged(const struct rn_gguf *gguf, int fd, const struct stat *before, runnel_error *error)
{
    struct stat now;

    if (fstat(fd, &now) != 0)
        return io_error(gguf, "it cannot be examined", errno, error);
    if (now.st_size != before->st_size || now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != before->st_mtim.tv_nsec)
        return io_fault(gguf, "the file was changed while it was being opened", error);
    return RUNNEL_OK;
}

static runnel_status load(struct rn_gguf *gguf, int fd, const struct stat *info, runnel_error *error)
{
    void *map = mmap(NULL, (size_t)info->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    runnel_status status;

    if (map == MAP_FAILED)
        return io_error(gguf, "it cannot be mapped", errno, error);
    /* Advice only. Where the file system reads in huge pages the weights cost a step far fewer walks through page
     * tables, and a warm start a fraction of the page faults. */
    (void)madvise(map, (size_t)info->st_size, MADV_HUGEPAGE);
    gguf->map = map;
    gguf->data = map;
    gguf->file_bytes = (uint64_t)info->st_size;
    gguf->modified_ns = (uint64_t)info->st_mtim.tv_sec * 1000000000u + (uint64_t)info->st_mtim.tv_nsec;
    status = read_header(gguf, fd, error);
    if (status == RUNNEL_OK)
        status = trim_header(gguf, error);
    return status == RUNNEL_OK ? check_unchanged(gguf, fd, info, error) : status;
}

/* One file, whole or a part. */
static runnel_status open_one(struct rn_heap *heap, const char *path, struct rn_gguf **out, runnel_error *error)
{
    struct rn_gguf *gguf = rn_gguf_new(heap, path);
    struct stat info;
    int fd = -1;
    runnel_status status;

    if (gguf == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: the allocator refused memory", rn_shown_path(path).text);
    status = open_regular(gguf, &fd, &info, error);
    if (status == RUNNEL_OK)
        status = load(gguf, fd, &info, error);
    if (fd >= 0)
        close(fd);
    if (status == RUNNEL_OK)
        *out = gguf;
    else
        rn_gguf_free(gguf);
    return status;
}

/* ---- Names of parts ---- */

enum { SUFFIX = sizeof "-00002-of-00003.gguf" - 1 };

struct suffix {
    char text[32];
};

static struct suffix suffix_of(uint32_t part, uint32_t count)
{
    struct suffix suffix;

    snprintf(suffix.text, sizeof suffix.text, "-%05u-of-%05u.gguf", part + 1, count);
    return suffix;
}

bool rn_gguf_is_part(const char *path, uint32_t part, uint32_t count)
{
    size_t n = strlen(path);

    return n >= SUFFIX && memcmp(path + n - SUFFIX, suffix_of(part, count).text, SUFFIX) == 0;
}

void rn_gguf_set_part(char *path, uint32_t part, uint32_t count)
{
    memcpy(path + strlen(path) - SUFFIX, suffix_of(part, count).text, SUFFIX);
}

uint32_t rn_gguf_parts_of(const char *path)
{
    size_t n = strlen(path);
    unsigned long count = n >= SUFFIX ? strtoul(path + n - strlen("00003.gguf"), NULL, 10) : 0;

    return count >= 1 && count <= RN_GGUF_MAX_PARTS && rn_gguf_is_part(path, 0, (uint32_t)count) ? (uint32_t)count : 1;
}

/* ---- Parts ---- */

/* The key must be there and hold `wanted`. */
static runnel_status expect(const struct rn_gguf *part, const char *key, uint64_t wanted, runnel_error *error)
{
    uint64_t got = 0;
    runnel_status status = rn_gguf_get_u64(part, key, true, 0, UINT64_MAX, &got, error);

    if (status == RUNNEL_OK && got != wanted)
        status = rn_error_set(error, RUNNEL_FORMAT, "%s: key %s: it is %llu, but %llu is wanted here",
                              rn_shown_path(part->path).text, key, (unsigned long long)got, (unsigned long long)wanted);
    return status;
}

/* Moves the tensors of `part`, number `number`, behind those of `first`. */
static runnel_status take_tensors(struct rn_gguf *first, struct rn_gguf *part, uint32_t number, uint64_t total,
                                  runnel_error *error)
{
    if (part->n_tensors > total - first->n_tensors)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: key split.tensors.count: it is %llu, but the parts hold more",
                            rn_shown_path(part->path).text, (unsigned long long)total);
    for (uint64_t i = 0; i < part->n_tensors; i++) {
        void *grown = rn_gguf_grow(first->heap, first->tensors, first->n_tensors, &first->tensor_capacity, total,
                                   sizeof *first->tensors);

        if (grown == NULL)
            return rn_gguf_no_memory(first, error);
        first->tensors = grown;
        first->tensors[first->n_tensors] = part->tensors[i];
        first->tensors[first->n_tensors++].part = number;
    }
    rn_gguf_drop_directory(part);
    return RUNNEL_OK;
}

/* Opens part `number`, which becomes first->others[number - 1]; `path` is that of a part, and is overwritten. */
static runnel_status open_part(struct rn_gguf *first, char *path, uint32_t number, uint32_t count, uint64_t total,
                               runnel_error *error)
{
    struct rn_gguf *part;
    runnel_status status;

    rn_gguf_set_part(path, number, count);
    status = open_one(first->heap, path, &part, error);
    if (status != RUNNEL_OK)
        return status;
    first->others[first->n_others++] = part;
    status = expect(part, "split.no", number, error);
    if (status == RUNNEL_OK)
        status = expect(part, "split.count", count, error);
    if (status == RUNNEL_OK && rn_gguf_find(part, "split.tensors.count") != NULL)
        status = expect(part, "split.tensors.count", total, error);
    return status == RUNNEL_OK ? take_tensors(first, part, number, total, error) : status;
}

static runnel_status open_parts(struct rn_gguf *first, char *path, uint32_t count, uint64_t total, runnel_error *error)
{
    runnel_status status = RUNNEL_OK;

    for (uint32_t i = 1; i < count && status == RUNNEL_OK; i++) {
        void *grown = rn_gguf_grow(first->heap, first->others, first->n_others, &first->other_capacity, count,
                                   sizeof *first->others);

        if (grown == NULL)
            return rn_gguf_no_memory(first, error);
        first->others = grown;
        status = open_part(first, path, i, count, total, error);
    }
    if (status == RUNNEL_OK && first->n_tensors != total)
        status = rn_error_set(error, RUNNEL_FORMAT, "%s: key split.tensors.count: it is %llu, but the parts hold %llu",
                              rn_shown_path(first->path).text, (unsigned long long)total,
                              (unsigned long long)first->n_tensors);
    return status;
}

/* The file is the first of the parts. Of a later one that has its name, that of the first is said; `path` is a copy of
 * the file's, and is overwritten then. */
static runnel_status expect_first(const struct rn_gguf *file, char *path, uint32_t count, runnel_error *error)
{
    uint64_t number = 0;
    runnel_status status = rn_gguf_get_u64(file, "split.no", true, 0, UINT64_MAX, &number, error);

    if (status != RUNNEL_OK || number == 0 || number >= count || !rn_gguf_is_part(path, (uint32_t)number, count))
        return status == RUNNEL_OK ? expect(file, "split.no", 0, error) : status;
    rn_gguf_set_part(path, 0, count);
    return rn_error_set(error, RUNNEL_FORMAT, "%s: it is part %u of %u of a model (key split.no): give the first, %s",
                        rn_shown_path(file->path).text, (unsigned)number + 1, count, rn_shown_path(path).text);
}

/* Given the first part of `count`: finds the others by its name. */
static runnel_status open_split(struct rn_gguf *first, uint32_t count, runnel_error *error)
{
    char *path = rn_strndup(first->heap, first->path, strlen(first->path));
    uint64_t total = 0;
    runnel_status status;

    if (path == NULL)
        return rn_gguf_no_memory(first, error);
    status = expect_first(first, path, count, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_u64(first, "split.tensors.count", true, first->n_tensors, RN_GGUF_MAX_ALL_TENSORS, &total,
                                 error);
    if (status == RUNNEL_OK && !rn_gguf_is_part(path, 0, count))
        status = rn_error_set(error, RUNNEL_FORMAT, "%s: the first of %u parts must have a name that ends in %s",
                              rn_shown_path(first->path).text, count, suffix_of(0, count).text);
    if (status == RUNNEL_OK)
        status = open_parts(first, path, count, total, error);
    rn_free(first->heap, path);
    return status;
}

runnel_status rn_gguf_open(struct rn_heap *heap, const char *path, struct rn_gguf **out, runnel_error *error)
{
    struct rn_gguf *gguf;
    uint64_t count = 1;
    runnel_status status = open_one(heap, path, &gguf, error);

    *out = NULL;
    if (status != RUNNEL_OK)
        return status;
    status = rn_gguf_get_u64(gguf, "split.count", false, 0, RN_GGUF_MAX_PARTS, &count, error);
    if (status == RUNNEL_OK && count > 1)
        status = open_split(gguf, (uint32_t)count, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_index_tensors(gguf, error);
    if (status != RUNNEL_OK) {
        rn_gguf_free(gguf);
        return status;
    }
    *out = gguf;
    return RUNNEL_OK;
}
