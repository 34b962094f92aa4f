/* Weights in tiles in a file: see tile_file.h. */
#include "cpu/tile_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL /* the header alone: the library is not there for each processor that this room is built for */
#include <xxhash.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/new_file.h"
#include "model/gguf/gguf.h"

/* Places in the header, and the bytes of an entry of the directory: part 4, type 2, how it is read 2, place in the part
 * 8, bytes 8, place here 8. How: four bits for each of RN_READINGS, from the lowest on: how far ahead in KiB 2, the
 * logarithm of the streams 2. */
enum {
    AT_VERSION = 8,
    AT_TILE_ROWS = 12,
    AT_PRINT = 16,
    AT_MODEL_BYTES = 32,
    AT_MODIFIED = 40,
    AT_ENTRIES = 48,
    AT_CHECKS = 56,
    AT_FILE_BYTES = 64,
    AT_CHECK = 72, /* XXH3-64 of header, directory and checks, this place being 0 */
    HEADER = 80,
    ENTRY = 32,
    PAGE = 4096,
    READING_BITS = 4,
    VERSION = 4 /* those before may have a drafter head's weights among the model's */
};

static const char magic[8] = {'r', 'u', 'n', 'n', 'e', 'l', 'w', 't'};

struct rn_tile_file {
    struct rn_heap *heap;
    const uint8_t *map;
    size_t bytes;
    const struct rn_plan *plan;
    uint64_t *places; /* [n_weights]: where the weight stands; 0: it is not in the file */
    uint64_t *checks; /* [n_weights]: where its first check stands */
    uint16_t *reads;  /* [n_weights]: as in the directory */
};

/* ---- Layout ---- */

static uint64_t pieces_of(uint64_t bytes)
{
    return (bytes + RN_TILE_FILE_PIECE - 1) / RN_TILE_FILE_PIECE;
}

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static uint64_t check_of(const void *bytes, uint64_t n, uint64_t place)
{
    return XXH3_64bits_withSeed(bytes, (size_t)n, place);
}

/* The header's, the directory's and the checks' own, of `n` bytes at `head`. */
static uint64_t head_check(const uint8_t *head, uint64_t n)
{
    static const uint8_t none[8];
    XXH3_state_t state;

    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, head, AT_CHECK);
    XXH3_64bits_update(&state, none, sizeof none);
    XXH3_64bits_update(&state, head + HEADER, (size_t)n - HEADER);
    return XXH3_64bits_digest(&state);
}

/* ---- Opening ---- */

bool rn_tile_file_keeps(const struct rn_plan *plan, uint32_t i)
{
    const uintptr_t tensor = (uintptr_t)plan->weights[i].tensor;
    const uint64_t n = rn_gguf_n_tensors(plan->gguf);

    return n > 0 && tensor >= (uintptr_t)rn_gguf_tensor(plan->gguf, 0) &&
           tensor <= (uintptr_t)rn_gguf_tensor(plan->gguf, n - 1);
}

/* Whether an entry is the one of weight i. */
static bool is_of(const uint8_t *entry, const struct rn_plan *plan, uint32_t i)
{
    const struct rn_weight *w = &plan->weights[i];

    return rn_tile_file_keeps(plan, i) && rn_bytes_get(entry, 4) == w->tensor->part &&
           rn_bytes_get(entry + 4, 2) == w->type_id && rn_bytes_get(entry + 8, 8) == w->tensor->offset &&
           rn_bytes_get(entry + 16, 8) == w->tensor->bytes;
}

/* What is wrong with the header; NULL: nothing. */
static const char *header_fault(const uint8_t *head, uint64_t bytes, const struct rn_weights_place *place,
                                uint32_t n_weights)
{
    uint64_t entries, checks;

    if (bytes < HEADER || memcmp(head, magic, sizeof magic) != 0)
        return "it is no file of weights in tiles";
    if (rn_bytes_get(head + AT_VERSION, 4) != VERSION || rn_bytes_get(head + AT_TILE_ROWS, 4) != RN_TILE_ROWS)
        return "it is of another version";
    entries = rn_bytes_get(head + AT_ENTRIES, 8);
    checks = rn_bytes_get(head + AT_CHECKS, 8);
    if (rn_bytes_get(head + AT_FILE_BYTES, 8) != bytes || entries > n_weights || checks > bytes / 8 ||
        HEADER + entries * ENTRY + checks * 8 > bytes)
        return "it is not as long as it was";
    if (rn_bytes_get(head + AT_CHECK, 8) != head_check(head, HEADER + entries * ENTRY + checks * 8))
        return "its directory is damaged";
    if (memcmp(head + AT_PRINT, place->print, sizeof place->print) != 0 ||
        rn_bytes_get(head + AT_MODEL_BYTES, 8) != place->model_bytes ||
        rn_bytes_get(head + AT_MODIFIED, 8) != place->modified_ns)
        return "it was made of another model, or before the model's file was changed";
    return NULL;
}

/* Fills places, checks and reads of the weights that the directory has. False: it does not add up. */
static bool read_directory(struct rn_tile_file *file)
{
    const uint8_t *head = file->map, *entry = head + HEADER;
    uint64_t entries = rn_bytes_get(head + AT_ENTRIES, 8), checks = rn_bytes_get(head + AT_CHECKS, 8), k;
    uint64_t check_at = HEADER + entries * ENTRY, first = whole_pages(check_at + checks * 8), place, bytes;
    uint32_t i;

    for (k = 0; k < entries; k++, entry += ENTRY) {
        bytes = rn_bytes_get(entry + 16, 8);
        place = rn_bytes_get(entry + 24, 8);
        if (bytes == 0 || bytes > file->bytes || place < first || place % PAGE != 0 || place > file->bytes - bytes ||
            pieces_of(bytes) > checks)
            return false;
        for (i = 0; i < file->plan->n_weights; i++)
            if (is_of(entry, file->plan, i)) {
                file->places[i] = place;
                file->checks[i] = check_at;
                file->reads[i] = (uint16_t)rn_bytes_get(entry + 6, 2);
            }
        check_at += pieces_of(bytes) * 8;
        checks -= pieces_of(bytes);
    }
    return checks == 0;
}

/* NULL: errno is ENOENT where there is no file. */
static const uint8_t *map_file(const char *path, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    void *map = MAP_FAILED;
    struct stat info;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        *bytes = (size_t)info.st_size;
        map = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    errno = EINVAL;
    if (map == MAP_FAILED)
        return NULL;
    (void)madvise(map, *bytes, MADV_HUGEPAGE); /* advice only */
    return map;
}

struct rn_tile_file *rn_tile_file_open(struct rn_heap *heap, const struct rn_weights_place *place,
                                       const struct rn_plan *plan, runnel_error *why)
{
    struct rn_tile_file *file = rn_calloc(heap, 1, sizeof *file);
    const char *fault;

    if (file == NULL)
        return NULL;
    *file = (struct rn_tile_file){.heap = heap, .plan = plan};
    file->places = rn_calloc(heap, plan->n_weights, sizeof *file->places);
    file->checks = rn_calloc(heap, plan->n_weights, sizeof *file->checks);
    file->reads = rn_calloc(heap, plan->n_weights, sizeof *file->reads);
    if (file->places == NULL || file->checks == NULL || file->reads == NULL) {
        rn_error_set(why, RUNNEL_NO_MEMORY, "no memory for its directory");
        goto fail;
    }
    file->map = map_file(place->path, &file->bytes);
    if (file->map == NULL) {
        if (errno != ENOENT)
            rn_error_set(why, RUNNEL_IO, "it cannot be read");
        goto fail;
    }
    fault = header_fault(file->map, file->bytes, place, plan->n_weights);
    if (fault == NULL && !read_directory(file))
        fault = "its directory does not add up";
    if (fault == NULL)
        return file;
    rn_error_set(why, RUNNEL_FORMAT, "%s", fault);
fail:
    rn_tile_file_free(file);
    return NULL;
}

void rn_tile_file_free(struct rn_tile_file *file)
{
    if (file == NULL)
        return;
    if (file->map != NULL)
        munmap((void *)file->map, file->bytes);
    rn_free(file->heap, file->places);
    rn_free(file->heap, file->checks);
    rn_free(file->heap, file->reads);
    rn_free(file->heap, file);
}

const uint8_t *rn_tile_file_weight(const struct rn_tile_file *file, uint32_t i)
{
    return file == NULL || file->places[i] == 0 ? NULL : file->map + file->places[i];
}

struct rn_reading rn_tile_file_reading(const struct rn_tile_file *file, uint32_t i, uint32_t inputs)
{
    uint32_t bits = (uint32_t)file->reads[i] >> READING_BITS * inputs;

    return (struct rn_reading){.ahead = (uint16_t)((bits & 3) << 10), .streams = (uint8_t)(1 << (bits >> 2 & 3))};
}

bool rn_tile_file_good(const struct rn_tile_file *file, uint32_t i, size_t piece)
{
    uint64_t bytes = file->plan->weights[i].tensor->bytes, at = (uint64_t)piece * RN_TILE_FILE_PIECE, place;

    RN_CHECK(file->places[i] != 0 && at < bytes);
    place = file->places[i] + at;
    bytes = bytes - at < RN_TILE_FILE_PIECE ? bytes - at : RN_TILE_FILE_PIECE;
    return check_of(file->map + place, bytes, place) == rn_bytes_get(file->map + file->checks[i] + piece * 8, 8);
}

/* ---- Writing ---- */

struct writer {
    struct rn_heap *heap;
    const struct rn_weights_place *place;
    const struct rn_plan *plan;
    uint8_t *const *tiles;
    const struct rn_reading (*readings)[RN_READINGS]; /* by type */
    struct rn_new_file file;
    uint8_t *head; /* [head_bytes]: header, directory, checks */
    uint64_t head_bytes, n_checks, bytes;
    uint32_t n;
};

static uint64_t how_read(const struct writer *w, uint32_t type_id)
{
    const struct rn_reading *reading = w->readings[type_id];
    uint32_t how = 0, inputs, log;

    for (inputs = 0; inputs < RN_READINGS; inputs++, reading++) {
        for (log = 0; 2u << log <= reading->streams; log++)
            continue;
        RN_CHECK(log <= 3 && reading->ahead >> 10 <= 3 && reading->ahead % 1024 == 0);
        how |= (reading->ahead >> 10 | log << 2) << READING_BITS * inputs;
    }
    return how;
}

/* Whether weight i is written: of one tensor that several weights have, the first. */
static bool is_written(const struct writer *w, uint32_t i)
{
    uint32_t k;

    for (k = 0; k < i; k++)
        if (w->tiles[k] != NULL && w->plan->weights[k].tensor == w->plan->weights[i].tensor)
            return false;
    return w->tiles[i] != NULL && rn_tile_file_keeps(w->plan, i);
}

/* Header and directory; the checks are filled in as the weights are written. */
static bool make_head(struct writer *w)
{
    uint64_t check_bytes, place;
    const struct rn_tensor *t;
    uint8_t *entry;
    uint32_t i;

    for (i = 0; i < w->plan->n_weights; i++)
        if (is_written(w, i)) {
            w->n++;
            w->n_checks += pieces_of(w->plan->weights[i].tensor->bytes);
        }
    check_bytes = w->n_checks * 8;
    w->head_bytes = HEADER + (uint64_t)w->n * ENTRY + check_bytes;
    w->head = rn_calloc(w->heap, w->head_bytes, 1);
    if (w->head == NULL)
        return false;
    place = whole_pages(w->head_bytes);
    for (i = 0, entry = w->head + HEADER; i < w->plan->n_weights; i++) {
        t = w->plan->weights[i].tensor;
        if (!is_written(w, i))
            continue;
        rn_bytes_put(entry, t->part, 4);
        rn_bytes_put(entry + 4, w->plan->weights[i].type_id, 2);
        rn_bytes_put(entry + 6, how_read(w, w->plan->weights[i].type_id), 2);
        rn_bytes_put(entry + 8, t->offset, 8);
        rn_bytes_put(entry + 16, t->bytes, 8);
        rn_bytes_put(entry + 24, place, 8);
        w->bytes = place + t->bytes;
        place = whole_pages(w->bytes);
        entry += ENTRY;
    }
    memcpy(w->head, magic, sizeof magic);
    rn_bytes_put(w->head + AT_VERSION, VERSION, 4);
    rn_bytes_put(w->head + AT_TILE_ROWS, RN_TILE_ROWS, 4);
    memcpy(w->head + AT_PRINT, w->place->print, sizeof w->place->print);
    rn_bytes_put(w->head + AT_MODEL_BYTES, w->place->model_bytes, 8);
    rn_bytes_put(w->head + AT_MODIFIED, w->place->modified_ns, 8);
    rn_bytes_put(w->head + AT_ENTRIES, w->n, 8);
    rn_bytes_put(w->head + AT_CHECKS, w->n_checks, 8);
    rn_bytes_put(w->head + AT_FILE_BYTES, w->bytes, 8);
    return true;
}

static runnel_status write_at(const struct writer *w, const uint8_t *bytes, uint64_t n, uint64_t at,
                              runnel_error *error)
{
    ssize_t written;

    while (n > 0) {
        written = pwrite(w->file.fd, bytes, n < RN_TILE_FILE_PIECE ? (size_t)n : RN_TILE_FILE_PIECE, (off_t)at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return rn_error_set(error, RUNNEL_IO, "%s: it cannot be written: %s", w->place->path, strerror(errno));
        bytes += written;
        n -= (uint64_t)written;
        at += (uint64_t)written;
    }
    return RUNNEL_OK;
}

static runnel_status write_weights(struct writer *w, runnel_error *error)
{
    uint8_t *entry = w->head + HEADER, *check = entry + (size_t)w->n * ENTRY;
    runnel_status status = RUNNEL_OK;
    uint64_t bytes, place, at, n;
    uint32_t i;

    for (i = 0; i < w->plan->n_weights && status == RUNNEL_OK; i++) {
        if (!is_written(w, i))
            continue;
        bytes = w->plan->weights[i].tensor->bytes;
        place = rn_bytes_get(entry + 24, 8);
        for (at = 0; at < bytes && status == RUNNEL_OK; at += n, check += 8) {
            n = bytes - at < RN_TILE_FILE_PIECE ? bytes - at : RN_TILE_FILE_PIECE;
            rn_bytes_put(check, check_of(w->tiles[i] + at, n, place + at), 8);
            status = write_at(w, w->tiles[i] + at, n, place + at, error);
        }
        entry += ENTRY;
    }
    return status;
}

static runnel_status write_file(struct writer *w, runnel_error *error)
{
    runnel_status status = write_weights(w, error);

    if (status != RUNNEL_OK)
        return status;
    rn_bytes_put(w->head + AT_CHECK, head_check(w->head, w->head_bytes), 8);
    status = write_at(w, w->head, w->head_bytes, 0, error);
    return status == RUNNEL_OK ? rn_new_file_finish(&w->file, error) : status;
}

runnel_status rn_tile_file_write(struct rn_heap *heap, const struct rn_weights_place *place, const struct rn_plan *plan,
                                 uint8_t *const *tiles, const struct rn_reading (*readings)[RN_READINGS],
                                 runnel_error *error)
{
    struct writer w = {.heap = heap, .place = place, .plan = plan, .tiles = tiles, .readings = readings};
    runnel_status status = rn_new_file_open(&w.file, heap, place->path, RN_NEW_FILE_ONE, error);

    if (status == RUNNEL_OK && make_head(&w))
        status = write_file(&w, error);
    else if (status == RUNNEL_OK)
        status = rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory for its directory", place->path);
    rn_new_file_fini(&w.file);
    rn_free(heap, w.head);
    return status;
}
