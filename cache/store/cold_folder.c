/* See cold_folder.h. */
#include "cache/store/cold_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

#define NAME_ROOM 32u
#define FIRST 16u

static_assert(16 + sizeof RN_COLD_SUFFIX <= NAME_ROOM && sizeof RN_COLD_LOCK <= NAME_ROOM, "names of ours have room");

/* ---- Names ---- */

/* Digits of a fingerprint, at most all of them. */
static bool is_hex(const char *name)
{
    return strspn(name, "0123456789abcdef") == strlen(name) && strlen(name) <= RN_COLD_HEX;
}

/* A folder itself, not a link to one. */
static bool is_folder(const struct rn_cold_folder *folder, const char *name)
{
    size_t n = strlen(folder->path);
    char *path = rn_alloc(folder->heap, n + 1 + strlen(name) + 1, 1);
    int fd;

    if (path == NULL)
        return false;
    memcpy(path, folder->path, n);
    path[n] = '/';
    memcpy(path + n + 1, name, strlen(name) + 1);
    fd = folder->io->open(folder->io->user, path, O_RDONLY | O_DIRECTORY);
    rn_free(folder->heap, path);
    if (fd >= 0)
        folder->io->close(folder->io->user, fd);
    return fd >= 0;
}

static void on_store(void *user, const char *name)
{
    struct rn_cold_folder *folder = user;

    if (strlen(name) != RN_COLD_HEX || !is_hex(name)) {
        folder->foreign++;
        return;
    }
    if (folder->n == folder->room) {
        size_t room = folder->room == 0 ? FIRST : 2 * folder->room;
        char(*stores)[RN_COLD_HEX + 1] = rn_realloc(folder->heap, folder->stores, room, sizeof *stores);

        folder->no_memory |= stores == NULL;
        if (stores == NULL)
            return;
        folder->stores = stores;
        folder->room = room;
    }
    RN_ASSERT(folder->n < folder->room);
    memcpy(folder->stores[folder->n++], name, RN_COLD_HEX + 1);
}

/* Straight insertion: there are as many as models have been used. */
static void sort_stores(struct rn_cold_folder *folder)
{
    char store[RN_COLD_HEX + 1];

    for (size_t i = 1; i < folder->n; i++) {
        size_t at = i;

        memcpy(store, folder->stores[i], sizeof store);
        for (; at > 0 && strcmp(folder->stores[at - 1], store) > 0; at--)
            memcpy(folder->stores[at], folder->stores[at - 1], sizeof store);
        memcpy(folder->stores[at], store, sizeof store);
    }
}

/* Keeps the true folders whose names begin so. */
static void choose(struct rn_cold_folder *folder, const char *fingerprint)
{
    size_t kept = 0;

    for (size_t i = 0; i < folder->n; i++) {
        if (!is_folder(folder, folder->stores[i]))
            folder->foreign++;
        else if (fingerprint == NULL || strncmp(folder->stores[i], fingerprint, strlen(fingerprint)) == 0)
            memmove(folder->stores[kept++], folder->stores[i], sizeof *folder->stores);
    }
    folder->n = kept;
}

runnel_status rn_cold_folder_open(struct rn_cold_folder *folder, struct rn_heap *heap, const struct rn_cold_io *io,
                                  const char *path, const char *fingerprint, runnel_error *error)
{
    int status;

    *folder = (struct rn_cold_folder){.heap = heap, .io = io == NULL ? &rn_cold_io_machine : io, .path = path};
    if (fingerprint != NULL && (fingerprint[0] == '\0' || !is_hex(fingerprint)))
        return rn_error_set(error, RUNNEL_INVALID, "'%s' is no fingerprint: up to 32 digits 0-9 a-f", fingerprint);
    status = folder->io->list(folder->io->user, path, on_store, folder);
    if (status < 0)
        return rn_error_set(error, RUNNEL_IO, "%s: %s", path, strerror(-status));
    if (folder->no_memory)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", path);
    sort_stores(folder);
    choose(folder, fingerprint);
    if (fingerprint != NULL && folder->n != 1)
        return rn_error_set(error, RUNNEL_NOT_FOUND, "%s: %s fingerprint begins with %s", path,
                            folder->n == 0 ? "no" : "more than one", fingerprint);
    return RUNNEL_OK;
}

void rn_cold_folder_fini(struct rn_cold_folder *folder)
{
    rn_free(folder->heap, folder->stores);
    *folder = (struct rn_cold_folder){.heap = folder->heap};
}

/* ---- One fingerprint ---- */

/* The path of a name in it, until the next call. */
static const char *path_of(struct rn_cold_listing *listing, const char *name)
{
    size_t n = strlen(name);

    RN_CHECK(n < NAME_ROOM);
    listing->path[listing->path_bytes] = '/';
    memcpy(listing->path + listing->path_bytes + 1, name, n + 1);
    return listing->path;
}

static void on_name(void *user, const char *name)
{
    struct rn_cold_listing *listing = user;
    struct rn_heap *heap = listing->folder->heap;
    uint64_t number;

    if (!rn_cold_segment_number(name, &number)) {
        listing->foreign += strcmp(name, RN_COLD_LOCK) != 0;
        return;
    }
    listing->folder->no_memory |= !rn_cold_numbers_add(&listing->segments, heap, number);
}

/* A descriptor, or -errno. */
static int open_segment(struct rn_cold_listing *listing, uint64_t number, int64_t *size)
{
    const struct rn_cold_io *io = listing->folder->io;
    char name[NAME_ROOM];
    int fd;

    rn_cold_segment_name(number, name);
    fd = io->open(io->user, path_of(listing, name), O_RDONLY);
    if (fd < 0)
        return fd;
    *size = io->size(io->user, fd);
    if (*size >= 0)
        return fd;
    io->close(io->user, fd);
    return (int)*size;
}

/* The header, if it is whole, of this number and of this folder. */
static bool read_header(struct rn_cold_listing *listing, int fd, uint64_t number, struct rn_tier_id *id, int *status)
{
    unsigned char header[RN_COLD_HEADER_BYTES];
    char hex[RN_COLD_HEX + 1];
    struct rn_fingerprint print;
    uint64_t says;

    if (!rn_cold_pread(listing->folder->io, fd, header, sizeof header, 0, status) ||
        !rn_cold_header_unpack(header, id, &says))
        return false;
    print = rn_cold_fingerprint(id);
    rn_cold_hex(&print, hex);
    return says == number && strcmp(hex, listing->hex) == 0;
}

static void identify(struct rn_cold_listing *listing)
{
    for (size_t i = 0; i < listing->segments.n && !listing->known; i++) {
        int64_t size;
        int fd = open_segment(listing, listing->segments.numbers[i], &size), status;

        if (fd < 0)
            continue;
        listing->known = read_header(listing, fd, listing->segments.numbers[i], &listing->id, &status);
        listing->folder->io->close(listing->folder->io->user, fd);
    }
}

/* The names that are there now. */
static runnel_status read_names(struct rn_cold_listing *listing, runnel_error *error)
{
    struct rn_cold_folder *folder = listing->folder;
    int status;

    listing->path[listing->path_bytes] = '\0';
    listing->segments.n = 0;
    listing->foreign = 0;
    status = folder->io->list(folder->io->user, listing->path, on_name, listing);
    if (status < 0)
        return rn_error_set(error, RUNNEL_IO, "%s: %s", listing->path, strerror(-status));
    if (folder->no_memory)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", folder->path);
    rn_cold_numbers_sort(&listing->segments);
    return RUNNEL_OK;
}

runnel_status rn_cold_listing_open(struct rn_cold_listing *listing, struct rn_cold_folder *folder, size_t nth,
                                   runnel_error *error)
{
    size_t n = strlen(folder->path);
    runnel_status status;

    RN_ASSERT(nth < folder->n);
    *listing = (struct rn_cold_listing){.folder = folder, .hex = folder->stores[nth]};
    listing->path = rn_alloc(folder->heap, n + 1 + RN_COLD_HEX + 1 + NAME_ROOM, 1);
    if (listing->path == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", folder->path);
    memcpy(listing->path, folder->path, n);
    listing->path[n] = '/';
    memcpy(listing->path + n + 1, listing->hex, RN_COLD_HEX + 1);
    listing->path_bytes = n + 1 + RN_COLD_HEX;
    status = read_names(listing, error);
    if (status == RUNNEL_OK)
        identify(listing);
    return status;
}

void rn_cold_listing_fini(struct rn_cold_listing *listing)
{
    if (listing->folder == NULL)
        return;
    rn_free(listing->folder->heap, listing->path);
    rn_free(listing->folder->heap, listing->segments.numbers);
    *listing = (struct rn_cold_listing){.folder = NULL};
}

/* ---- Verifying ---- */

struct verify {
    struct rn_cold_listing *listing;
    void (*damage)(void *user, const struct runnel_cache_damage *damage);
    void *user;
    struct rn_cold_totals *totals;
    struct rn_cold_scan scan;
    uint64_t number;
    unsigned char *head, *payload; /* [rn_cold_head_bytes], [payload_room] */
    size_t payload_room;
    bool no_memory;
};

static void damaged(struct verify *v, uint64_t offset, uint64_t bytes, const char *what)
{
    char name[NAME_ROOM];

    v->totals->damaged++;
    rn_cold_segment_name(v->number, name);
    if (v->damage != NULL)
        v->damage(v->user, &(struct runnel_cache_damage){.struct_size = sizeof(struct runnel_cache_damage),
                                                         .fingerprint = v->listing->hex,
                                                         .file = name,
                                                         .offset = offset,
                                                         .bytes = bytes,
                                                         .what = what});
}

/* Head and payload as they stand in the file. */
static void verify_record(struct verify *v, const unsigned char *entry, const struct rn_cold_head *head, uint64_t at)
{
    const struct rn_cold_scan *scan = &v->scan;
    size_t head_bytes = rn_cold_head_bytes(scan->block_tokens);
    struct rn_cold_head own;
    struct rn_fingerprint check;
    int status;

    if (v->payload_room < head->payload_bytes) {
        rn_free(scan->heap, v->payload);
        v->payload = rn_alloc(scan->heap, head->payload_bytes, 1);
        v->payload_room = v->payload == NULL ? 0 : head->payload_bytes;
        v->no_memory = v->payload == NULL;
        if (v->no_memory)
            return;
    }
    RN_ASSERT(v->payload_room >= head->payload_bytes);
    if (!rn_cold_pread(scan->io, scan->fd, v->head, head_bytes, at, &status) ||
        !rn_cold_pread(scan->io, scan->fd, v->payload, head->payload_bytes, at + head_bytes, &status)) {
        damaged(v, at, head_bytes + head->payload_bytes, status == 0 ? "the file ends too early" : strerror(-status));
        return;
    }
    if (!rn_cold_head_unpack(v->head, scan->seed, scan->block_tokens, &own) || own.check != head->check) {
        damaged(v, at, head_bytes, "a block's head is not what the index says");
        return;
    }
    check = rn_cold_payload_check(scan->seed, head->serial, v->payload, head->payload_bytes);
    if (!rn_fingerprint_equal(&check, &head->payload_check))
        damaged(v, at + head_bytes, head->payload_bytes, "a block's bytes do not fit their checksum");
    else
        v->totals->records += entry[RN_COLD_PLACE_BYTES + RN_COLD_AT_STATE] == RN_COLD_ALIVE;
}

static void verify_entries(struct verify *v)
{
    const struct rn_cold_scan *scan = &v->scan;
    size_t one = rn_cold_index_bytes(scan->block_tokens);
    uint64_t expected = RN_COLD_HEADER_BYTES, limit = scan->index_at != 0 ? scan->index_at : scan->end;

    for (uint32_t i = 0; i < scan->n && !v->no_memory; i++) {
        const unsigned char *entry = scan->index + i * one;
        uint64_t at = rn_bytes_get(entry, RN_COLD_PLACE_BYTES), bytes;
        struct rn_cold_head head;

        if (!rn_cold_head_unpack(entry + RN_COLD_PLACE_BYTES, scan->seed, scan->block_tokens, &head)) {
            damaged(v, limit + i * one, one, "an entry of the index does not fit its checksum");
            expected = 0;
            continue;
        }
        bytes = rn_cold_record_bytes(scan->block_tokens, head.payload_bytes);
        if (at < RN_COLD_HEADER_BYTES || at > limit || bytes > limit - at) {
            damaged(v, limit + i * one, one, "an entry of the index tells of a place outside the file");
            expected = 0;
            continue;
        }
        if (expected != 0 && at != expected)
            damaged(v, expected, at > expected ? at - expected : bytes, "a record has lost its head");
        verify_record(v, entry, &head, at);
        expected = at + bytes;
    }
}

/* Behind the last record of a segment without a whole index: a record that is being written, or was when its writer
 * was killed, has no head yet. */
static void verify_end(struct verify *v)
{
    unsigned char word[8] = {0};
    uint64_t left = v->scan.size - v->scan.end;
    int status;

    if (v->scan.index_at != 0 || left == 0)
        return;
    rn_cold_pread(v->scan.io, v->scan.fd, word, left < sizeof word ? (size_t)left : sizeof word, v->scan.end, &status);
    if (rn_bytes_get(word, sizeof word) != 0)
        damaged(v, v->scan.end, left, "neither a record nor an index that is whole");
}

static void verify_segment(struct verify *v, int fd, int64_t size)
{
    struct rn_cold_folder *folder = v->listing->folder;
    struct rn_tier_id id;
    int status = 0;

    v->totals->segments++;
    v->totals->bytes += (uint64_t)size;
    if (!read_header(v->listing, fd, v->number, &id, &status)) {
        damaged(v, 0, RN_COLD_HEADER_BYTES,
                status < 0 ? strerror(-status) : "its header is damaged, of another version, or of another folder");
        return;
    }
    v->scan = (struct rn_cold_scan){.heap = folder->heap,
                                    .io = folder->io,
                                    .fd = fd,
                                    .size = (uint64_t)size,
                                    .number = v->number,
                                    .seed = rn_cold_seed(&id),
                                    .block_tokens = id.block_tokens};
    rn_cold_scan(&v->scan);
    v->head = rn_alloc(folder->heap, rn_cold_head_bytes(id.block_tokens), 1);
    v->no_memory = v->scan.no_memory || v->head == NULL;
    if (v->scan.broken)
        damaged(v, v->scan.end, (uint64_t)size - v->scan.end, "the disk does not give it");
    else if (!v->no_memory) {
        verify_entries(v);
        verify_end(v);
    }
    rn_free(folder->heap, v->scan.index);
    rn_free(folder->heap, v->head);
}

runnel_status rn_cold_listing_verify(struct rn_cold_listing *listing,
                                     void (*damage)(void *user, const struct runnel_cache_damage *damage), void *user,
                                     struct rn_cold_totals *totals, runnel_error *error)
{
    struct verify v = {.listing = listing, .damage = damage, .user = user, .totals = totals};
    const struct rn_cold_io *io = listing->folder->io;

    for (size_t i = 0; i < listing->segments.n && !v.no_memory; i++) {
        int64_t size = 0;
        int fd;

        v.number = listing->segments.numbers[i];
        fd = open_segment(listing, v.number, &size);
        if (fd >= 0) {
            verify_segment(&v, fd, size);
            io->close(io->user, fd);
        } else if (fd != -ENOENT) { /* a writer may have dropped it since it was listed */
            damaged(&v, 0, 0, fd == -EINVAL || fd == -ELOOP ? "not a plain file" : strerror(-fd));
        }
    }
    rn_free(listing->folder->heap, v.payload);
    if (v.no_memory)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", listing->folder->path);
    return RUNNEL_OK;
}

/* ---- Purging ---- */

uint64_t rn_cold_listing_left(struct rn_cold_listing *listing)
{
    uint64_t n = 0;

    for (size_t i = 0; i < listing->segments.n; i++) {
        char name[32];

        rn_cold_segment_name(listing->segments.numbers[i], name);
        n += rn_cold_may_hold(listing->folder->io, path_of(listing, name));
    }
    return n;
}

runnel_status rn_cold_listing_lock(struct rn_cold_listing *listing, int *fd, runnel_error *error)
{
    const struct rn_cold_io *io = listing->folder->io;
    const char *path = path_of(listing, RN_COLD_LOCK);
    int status;

    *fd = io->open(io->user, path, O_RDWR | O_CREAT);
    if (*fd < 0)
        return rn_error_set(error, RUNNEL_IO, "%s: %s", path, strerror(-*fd));
    status = io->lock(io->user, *fd);
    if (status == 0)
        return read_names(listing, error); /* whoever had the lock before may have written more */
    io->close(io->user, *fd);
    *fd = -1;
    listing->path[listing->path_bytes] = '\0';
    if (status == -EWOULDBLOCK)
        return rn_error_set(error, RUNNEL_BUSY, "%s: an engine is writing to it", listing->path);
    return rn_error_set(error, RUNNEL_IO, "%s: cannot be locked: %s", listing->path, strerror(-status));
}

/* Records of a segment that could be read; 0 where there is no memory to look. */
static uint64_t count_records(struct rn_cold_listing *listing, int fd, uint64_t number, int64_t size)
{
    struct rn_tier_id id;
    struct rn_cold_head head;
    struct rn_cold_scan scan;
    uint64_t n = 0;
    int status = 0;

    if (!read_header(listing, fd, number, &id, &status))
        return 0;
    scan = (struct rn_cold_scan){.heap = listing->folder->heap,
                                 .io = listing->folder->io,
                                 .fd = fd,
                                 .size = (uint64_t)size,
                                 .number = number,
                                 .seed = rn_cold_seed(&id),
                                 .block_tokens = id.block_tokens};
    rn_cold_scan(&scan);
    for (uint32_t i = 0; !scan.broken && !scan.no_memory && i < scan.n; i++) {
        const unsigned char *place = scan.index + i * rn_cold_index_bytes(id.block_tokens) + RN_COLD_PLACE_BYTES;

        n += place[RN_COLD_AT_STATE] == RN_COLD_ALIVE && rn_cold_head_unpack(place, scan.seed, id.block_tokens, &head);
    }
    rn_free(scan.heap, scan.index);
    return n;
}

runnel_status rn_cold_listing_purge(struct rn_cold_listing *listing, uint64_t keep_bytes, struct rn_cold_totals *gone,
                                    runnel_error *error)
{
    const struct rn_cold_io *io = listing->folder->io;
    uint64_t kept = 0;

    for (size_t i = listing->segments.n; i-- > 0;) {
        int64_t size = 0;
        int fd = open_segment(listing, listing->segments.numbers[i], &size), status;
        uint64_t records = 0;
        char name[NAME_ROOM];

        if (fd < 0)
            continue; /* gone, or not a plain file of ours */
        kept += (uint64_t)size;
        records = kept > keep_bytes ? count_records(listing, fd, listing->segments.numbers[i], size) : 0;
        io->close(io->user, fd);
        if (kept <= keep_bytes)
            continue;
        rn_cold_segment_name(listing->segments.numbers[i], name);
        status = io->unlink(io->user, path_of(listing, name));
        if (status < 0 && status != -ENOENT)
            return rn_error_set(error, RUNNEL_IO, "%s: %s", listing->path, strerror(-status));
        gone->segments++;
        gone->records += records;
        gone->bytes += (uint64_t)size;
    }
    return RUNNEL_OK;
}
