/* Opening a cold store: the folder, the lock, what lies there.
 *
 * Of each segment the index is read, or its heads (cold_scan.h). Then all records by serial, which is parents before
 * children; one whose parent is not there is left out, and of two with the same serial (the writer was killed while it
 * moved it) the newer one counts, dead or alive, if it is whole. A writer gives each segment without one its index.
 * cold_reload.c does it again while the store is in use.
 *
 * Memory for the time of the call: the indexes, and 16 bytes per record. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/check.h"
#include "base/bytes.h"
#include "cache/store/cold_parts.h"
#include "base/sort.h"

struct found {
    uint64_t serial;
    uint32_t segment, nth;
};

struct load {
    struct rn_cold_store *store;
    struct rn_cold_numbers segments;
    unsigned char **index; /* [segments.n]: by slot; [segment.n × rn_cold_index_bytes] */
    struct found *found;   /* [n_found] */
    size_t n_found;
    int32_t *tokens; /* [block_tokens] */
    uint64_t dead;   /* the last serial whose newest record was dead */
    bool no_memory;
};

/* ---- The folder ---- */

static void on_name(void *user, const char *name)
{
    struct load *load = user;
    uint64_t number;

    if (!rn_cold_segment_number(name, &number) || load->no_memory)
        return;
    load->no_memory = !rn_cold_numbers_add(&load->segments, load->store->heap, number);
    if (load->no_memory)
        return;
    if (number >= load->store->next_number)
        load->store->next_number = number + 1;
}

/* ---- One segment ---- */

bool rn_cold_header_fits(const struct rn_cold_store *store, int fd, uint64_t number, int *status)
{
    unsigned char header[RN_COLD_HEADER_BYTES];
    struct rn_fingerprint own = rn_cold_fingerprint(&store->id), other;
    struct rn_tier_id id;
    uint64_t says;

    if (!rn_cold_pread(store->io, fd, header, sizeof header, 0, status) || !rn_cold_header_unpack(header, &id, &says))
        return false;
    other = rn_cold_fingerprint(&id);
    return says == number && rn_fingerprint_equal(&own, &other);
}

/* Errors that say what the file is, not that the disk has failed: a link, a folder, a socket, another's. */
static bool is_foreign(int64_t status)
{
    return status == -ELOOP || status == -EISDIR || status == -ENXIO || status == -EINVAL || status == -EACCES ||
           status == -EPERM;
}

/* scan->broken: the file is not what its name says, or (*status below 0) the disk does not give it. */
static void scan_segment(const struct rn_cold_store *store, uint64_t number, int fd, struct rn_cold_scan *scan,
                         int *status)
{
    int64_t size = store->io->size(store->io->user, fd);

    *scan = (struct rn_cold_scan){.heap = store->heap,
                                  .io = store->io,
                                  .fd = fd,
                                  .size = (uint64_t)size,
                                  .number = number,
                                  .seed = store->seed,
                                  .block_tokens = store->id.block_tokens};
    *status = size < 0 ? (int)size : 0;
    if (size < RN_COLD_HEADER_BYTES || !rn_cold_header_fits(store, fd, number, status)) {
        scan->broken = true;
        return;
    }
    rn_cold_scan(scan);
    if (scan->broken)
        *status = -EIO;
}

/* A file that is not what its name says is left where it is; one that the disk does not give is looked at again. */
static void load_segment(struct load *load, uint64_t number)
{
    struct rn_cold_store *store = load->store;
    uint32_t slot = rn_cold_segment_slot(store);
    struct rn_cold_scan scan;
    char name[32];
    int fd, status;

    load->no_memory = slot == RN_COLD_NONE;
    if (load->no_memory)
        return;
    rn_cold_segment_name(number, name);
    fd = store->io->open(store->io->user, rn_cold_path(store, name), store->stats.writes ? O_RDWR : O_RDONLY);
    if (fd < 0 && !is_foreign(fd))
        rn_cold_unread(store, number);
    if (fd < 0)
        return;
    scan_segment(store, number, fd, &scan, &status);
    if (status < 0 && !is_foreign(status))
        rn_cold_unread(store, number);
    store->stats.damaged += scan.skipped + scan.broken;
    if (scan.broken || scan.no_memory) {
        load->no_memory = scan.no_memory;
        store->io->close(store->io->user, fd);
        rn_free(store->heap, scan.index);
        return;
    }
    RN_CHECK(slot < load->segments.n && load->index[slot] == NULL);
    RN_ASSERT(store->segments[slot].fd < 0 && store->next_number > number);
    load->index[slot] = scan.index;
    store->segments[slot] =
        (struct rn_cold_segment){.fd = fd, .number = number, .n = scan.n, .bytes = scan.end, .index = scan.index_at};
    store->stats.segments++;
    store->stats.file_bytes += scan.end;
    load->n_found += scan.n;
}

/* ---- All records ---- */

static int by_serial(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->serial != y->serial)
        return x->serial < y->serial ? -1 : 1;
    return (x->segment < y->segment) - (x->segment > y->segment);
}

static const unsigned char *entry_of(const struct load *load, const struct found *found)
{
    RN_ASSERT(found->nth < load->store->segments[found->segment].n);
    return load->index[found->segment] + found->nth * rn_cold_index_bytes(load->store->id.block_tokens);
}

/* Slots are taken in the order of the numbers. */
static bool collect(struct load *load)
{
    const struct rn_cold_store *store = load->store;
    size_t n = 0;

    load->found = rn_alloc(store->heap, load->n_found, sizeof *load->found);
    if (load->found == NULL)
        return false;
    for (uint32_t slot = 0; slot < store->n_segments; slot++) {
        for (uint32_t nth = 0; nth < store->segments[slot].n; nth++) {
            struct found *found = &load->found[n++];
            struct rn_cold_head head = {0};

            RN_CHECK(n <= load->n_found);
            *found = (struct found){.segment = slot, .nth = nth};
            if (rn_cold_head_unpack(entry_of(load, found) + RN_COLD_PLACE_BYTES, store->seed, store->id.block_tokens,
                                    &head))
                found->serial = head.serial;
        }
    }
    RN_CHECK(n == load->n_found);
    rn_sort_in_place(load->found, n, sizeof *load->found, by_serial);
    return true;
}

bool rn_cold_place_good(const struct rn_cold_store *store, const struct rn_cold_segment *segment, uint64_t place,
                        uint32_t payload_bytes)
{
    uint64_t end = segment->index != 0 ? segment->index : segment->bytes;
    uint64_t bytes = rn_cold_record_bytes(store->id.block_tokens, payload_bytes);

    return place >= RN_COLD_HEADER_BYTES && place % 8 == 0 && place <= end && bytes <= end - place;
}

/* An older copy of a record that a killed writer was moving is marked dead: else the record would be back when the
 * newer one has been forgotten and its segment removed. */
static void bury(struct load *load, const struct found *found, uint64_t place)
{
    struct rn_cold_store *store = load->store;
    const struct rn_cold_segment *segment = &store->segments[found->segment];
    size_t in_index = found->nth * rn_cold_index_bytes(store->id.block_tokens) + RN_COLD_PLACE_BYTES + RN_COLD_AT_STATE;
    unsigned char *state = load->index[found->segment] + in_index;
    int status;

    if (!store->stats.writes || *state != RN_COLD_ALIVE)
        return;
    RN_ASSERT(rn_cold_place_good(store, segment, place, 1));
    *state = RN_COLD_DEAD;
    status = rn_cold_pwrite(store, segment->fd, state, 1, place + RN_COLD_AT_STATE);
    if (status == 0 && segment->index != 0)
        status = rn_cold_pwrite(store, segment->fd, state, 1, segment->index + in_index);
    if (status < 0)
        rn_cold_write_failed(store, "a copy of a block cannot be marked", status);
}

/* A record that is in two places, and the newer one does not fit its check: the power went while it was moved. */
static bool is_torn_copy(const struct load *load, size_t nth)
{
    const struct rn_cold_store *store = load->store;
    const struct found *found = &load->found[nth];
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    const unsigned char *bytes = entry_of(load, found);
    struct rn_cold_head head;
    unsigned char *record;
    bool good;
    int status;

    if (nth + 1 == load->n_found || found[1].serial != found->serial || found->serial == 0 ||
        !rn_cold_head_unpack(bytes + RN_COLD_PLACE_BYTES, store->seed, store->id.block_tokens, &head) || !head.alive)
        return false;
    record = rn_alloc(store->heap, head_bytes + head.payload_bytes, 1);
    good = record != NULL &&
           rn_cold_pread(store->io, store->segments[found->segment].fd, record, head_bytes + head.payload_bytes,
                         rn_bytes_get(bytes, RN_COLD_PLACE_BYTES), &status) &&
           rn_cold_record_fits(store, record, record + head_bytes, &head);
    rn_free(store->heap, record);
    return !good;
}

/* True: the record is known now. *no_entry: there is no room for it. */
static bool add(struct load *load, const struct found *found, struct rn_cold_head *head, bool *no_entry)
{
    struct rn_cold_store *store = load->store;
    const unsigned char *bytes = entry_of(load, found);
    uint64_t place = rn_bytes_get(bytes, RN_COLD_PLACE_BYTES);
    uint32_t parent, entry;

    if (!rn_cold_head_unpack(bytes + RN_COLD_PLACE_BYTES, store->seed, store->id.block_tokens, head) ||
        !rn_cold_serial_good(&store->segments[found->segment], head->serial) ||
        !rn_cold_place_good(store, &store->segments[found->segment], place, head->payload_bytes)) {
        store->stats.damaged++;
        return false;
    }
    if (!head->alive)
        load->dead = head->serial;
    if (load->dead == head->serial || rn_cold_index_find(store, head->serial) != RN_COLD_NONE) {
        bury(load, found, place);
        return false;
    }
    if (!rn_cold_find_parent(store, head, &parent))
        return false;
    entry = rn_cold_index_take(store);
    *no_entry = entry == RN_COLD_NONE;
    if (*no_entry)
        return false;
    store->entries[entry] = (struct rn_cold_entry){.serial = head->serial,
                                                   .check = head->check,
                                                   .offset = place,
                                                   .salt = head->salt,
                                                   .payload_bytes = head->payload_bytes,
                                                   .depth = head->depth,
                                                   .segment = found->segment,
                                                   .nth = found->nth};
    rn_cold_index_add(store, entry, parent);
    RN_ASSERT(rn_cold_index_find(store, head->serial) == entry);
    return true;
}

static bool add_all(struct load *load, rn_tier_record_fn *on_record, void *user)
{
    struct rn_cold_store *store = load->store;

    for (size_t i = 0; i < load->n_found; i++) {
        const struct found *found = &load->found[i];
        bool no_entry = false;
        struct rn_cold_head head;

        if (is_torn_copy(load, i)) {
            store->stats.damaged++;
            continue;
        }
        if (add(load, found, &head, &no_entry) && on_record != NULL) {
            rn_cold_tokens_unpack(entry_of(load, found) + rn_cold_index_bytes(0), store->id.block_tokens, load->tokens);
            on_record(user, &(struct rn_tier_record){.handle = head.serial,
                                                     .parent = head.parent,
                                                     .salt = head.salt,
                                                     .tokens = load->tokens,
                                                     .depth = head.depth,
                                                     .payload_bytes = head.payload_bytes});
        }
        if (no_entry)
            return store->n_touched >= store->limits.max_records;
    }
    return true;
}

/* What a killed writer has left gets its index; what it has left empty goes. */
static void seal_all(struct load *load)
{
    struct rn_cold_store *store = load->store;

    for (uint32_t slot = 0; slot < store->n_segments && store->stats.writes; slot++) {
        struct rn_cold_segment *segment = &store->segments[slot];

        if (segment->fd < 0 || segment->index != 0)
            continue;
        if (segment->n > 0)
            rn_cold_seal(store, segment, load->index[slot]);
        else
            rn_cold_remove_segment(store, slot);
    }
}

/* The segment's heads are read once more. If they are not what they were, the disk is not to be trusted. */
static void seal_late(struct rn_cold_store *store, struct rn_cold_segment *segment)
{
    struct rn_cold_scan scan = {.heap = store->heap,
                                .io = store->io,
                                .fd = segment->fd,
                                .size = segment->bytes,
                                .number = segment->number,
                                .seed = store->seed,
                                .block_tokens = store->id.block_tokens};

    rn_cold_scan(&scan);
    if (scan.no_memory) {
        store->stats.writes = false;
        store->refusals = 1; /* the next put tries again */
    } else if (scan.broken || scan.n != segment->n || scan.end != segment->bytes) {
        rn_cold_write_failed(store, "a segment cannot be read for its index", -EIO);
    } else {
        rn_cold_seal(store, segment, scan.index);
    }
    rn_free(store->heap, scan.index);
}

void rn_cold_write_again(struct rn_cold_store *store)
{
    RN_ASSERT(!store->stats.writes && store->lock_fd >= 0);
    store->refusals = 0;
    store->stats.writes = true;
    for (uint32_t slot = 0; slot < store->n_segments && store->stats.writes; slot++) {
        struct rn_cold_segment *segment = &store->segments[slot];

        if (segment->fd < 0 || segment->index != 0 || slot == store->active)
            continue;
        if (segment->n > 0)
            seal_late(store, segment);
        else
            rn_cold_remove_segment(store, slot);
    }
}

static runnel_status load_all(struct load *load, rn_tier_record_fn *on_record, void *user, runnel_error *error)
{
    struct rn_cold_store *store = load->store;
    int status = store->io->list(store->io->user, store->folder, on_name, load);

    if (status < 0)
        return rn_error_set(error, RUNNEL_IO, "%s: %s", store->folder, strerror(-status));
    load->index = rn_calloc(store->heap, load->segments.n, sizeof *load->index);
    load->tokens = rn_alloc(store->heap, store->id.block_tokens, sizeof *load->tokens);
    load->no_memory |= load->index == NULL || load->tokens == NULL;
    rn_cold_numbers_sort(&load->segments);
    for (uint32_t i = 0; i < load->segments.n && !load->no_memory; i++)
        load_segment(load, load->segments.numbers[i]);
    if (load->no_memory || !collect(load) || !add_all(load, on_record, user))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory for its index", store->folder);
    seal_all(load);
    RN_ASSERT(store->stats.records <= store->limits.max_records && store->stats.records <= load->n_found);
    return RUNNEL_OK;
}

runnel_status rn_cold_load(struct rn_cold_store *store, rn_tier_record_fn *on_record, void *user, runnel_error *error)
{
    struct load load = {.store = store};
    runnel_status status = load_all(&load, on_record, user, error);

    for (uint32_t i = 0; load.index != NULL && i < load.segments.n; i++)
        rn_free(store->heap, load.index[i]);
    rn_free(store->heap, load.index);
    rn_free(store->heap, load.segments.numbers);
    rn_free(store->heap, load.found);
    rn_free(store->heap, load.tokens);
    return status;
}

/* ---- Open ---- */

static bool limits_good(struct rn_cold_limits *limits)
{
    const uint64_t least = 1 << 20, most = 256 << 20;

    if (limits->segment_bytes == 0) {
        limits->segment_bytes = limits->max_bytes / 16 < least ? least : limits->max_bytes / 16;
        if (limits->segment_bytes > most)
            limits->segment_bytes = most;
    }
    if (limits->max_records == 0)
        limits->max_records = 1u << 20;
    if (limits->dirty_bytes == 0)
        limits->dirty_bytes = 32 << 20;
    return limits->max_bytes / 4 >= limits->segment_bytes;
}

static runnel_status make_paths(struct rn_cold_store *store, const char *path)
{
    size_t n = strlen(path);
    struct rn_fingerprint print = rn_cold_fingerprint(&store->id);

    store->folder = rn_alloc(store->heap, n + 1 + RN_COLD_HEX + 1, 1);
    store->path = rn_alloc(store->heap, n + 1 + RN_COLD_HEX + 1 + 32, 1);
    store->head = rn_alloc(store->heap, rn_cold_index_bytes(store->id.block_tokens), 1);
    if (store->folder == NULL || store->path == NULL || store->head == NULL)
        return RUNNEL_NO_MEMORY;
    memcpy(store->folder, path, n);
    store->folder[n] = '/';
    rn_cold_hex(&print, store->folder + n + 1);
    return RUNNEL_OK;
}

int rn_cold_lock(struct rn_cold_store *store, int flags)
{
    const struct rn_cold_io *io = store->io;
    int fd = io->open(io->user, rn_cold_path(store, RN_COLD_LOCK), flags), status;

    RN_ASSERT(store->lock_fd < 0 && !store->limits.read_only);
    if (fd < 0)
        return fd;
    status = io->lock(io->user, fd);
    if (status == 0 && io->same(io->user, fd, store->path) != 1)
        status = -EWOULDBLOCK; /* removed meanwhile: whoever has the next one writes */
    if (status == 0)
        store->lock_fd = fd;
    else
        io->close(io->user, fd);
    return status;
}

/* 0: it is there. */
static int make_folder(const struct rn_cold_io *io, const char *path)
{
    int status = io->mkdir(io->user, path);

    return status == -EEXIST ? 0 : status;
}

/* Makes the folders as far as it can, and takes the lock if nobody else has it. Below 0: they are not there, and
 * why. */
static int take_lock(struct rn_cold_store *store, const char *path)
{
    const struct rn_cold_io *io = store->io;
    int outer, inner, status;

    if (store->limits.read_only)
        return 0;
    outer = make_folder(io, path);
    inner = make_folder(io, store->folder);
    status = rn_cold_lock(store, O_RDWR | O_CREAT);
    if (status == -ENOENT && (outer != 0 || inner != 0))
        return outer != 0 ? outer : inner;
    store->stats.writes = status == 0;
    store->follows = status != 0;
    store->waits = status == -EWOULDBLOCK;
    RN_ASSERT(store->stats.writes == (store->lock_fd >= 0));
    if (status != 0 && status != -EWOULDBLOCK)
        rn_cold_write_failed(store, "cannot be locked", status);
    return 0;
}

runnel_status rn_cold_store_open(struct rn_heap *heap, const struct rn_cold_io *io, const char *path,
                                 const struct rn_tier_id *id, const struct rn_cold_limits *limits,
                                 rn_tier_record_fn *on_record, void *user, struct rn_cold_store **out,
                                 runnel_error *error)
{
    struct rn_cold_store *store = rn_calloc(heap, 1, sizeof *store);
    runnel_status status;
    int made;

    *out = NULL;
    if (store == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", path);
    *store = (struct rn_cold_store){.tier = {.ops = &rn_cold_ops},
                                    .heap = heap,
                                    .io = io == NULL ? &rn_cold_io_machine : io,
                                    .id = *id,
                                    .limits = *limits,
                                    .lock_fd = -1,
                                    .seed = rn_cold_seed(id),
                                    .first_free = RN_COLD_NONE,
                                    .first_root = RN_COLD_NONE,
                                    .first_gone = RN_COLD_NONE,
                                    .active = RN_COLD_NONE,
                                    .victim = RN_COLD_NONE,
                                    .next_number = 1,
                                    .stats = {.reads_work = true}};
    if (!limits_good(&store->limits))
        status = rn_error_set(error, RUNNEL_INVALID, "%s: a cold tier of %llu bytes is too small", path,
                              (unsigned long long)limits->max_bytes);
    else if (make_paths(store, path) != RUNNEL_OK)
        status = rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", path);
    else if ((made = take_lock(store, path)) != 0)
        status = rn_error_set(error, RUNNEL_IO, "%s: cannot be made: %s", store->folder, strerror(-made));
    else
        status = rn_cold_load(store, on_record, user, error);
    if (status != RUNNEL_OK) {
        store->stats.writes = false; /* nothing is written on the way out */
        rn_cold_store_close(store);
        return status;
    }
    *out = store;
    return RUNNEL_OK;
}
