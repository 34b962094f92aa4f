/* runnel_cache_*: cache folders for people and programs, see runnel.h and cold_folder.h. No state: any thread. */
#include "base/check.h"
#include "base/sized.h"
#include "cache/store/cold_folder.h"
#include "cache/store/cold_store.h"
#include "base/sort.h"
#include "runnel_files.h"

#define FIRST_SALTS 64u

/* A store of a folder is opened as it is, however large. */
static const struct rn_cold_limits look_only = {.max_bytes = UINT64_MAX, .max_records = 1u << 30, .read_only = true};
static const struct rn_cold_limits no_limits = {.max_bytes = UINT64_MAX, .max_records = 1u << 30};

/* What the calls have in common. */
struct job {
    struct rn_heap heap;
    struct rn_cold_folder folder;
    runnel_cache_totals totals;
    uint64_t left; /* segments that purging a salt has not looked into */
    runnel_error *error;
};

static runnel_status job_open(struct job *job, const char *path, const char *fingerprint, runnel_error *error)
{
    *job = (struct job){.totals = {.struct_size = sizeof job->totals}, .error = error};
    rn_error_clear(error);
    rn_heap_init(&job->heap, NULL);
    if (path == NULL || path[0] == '\0')
        return rn_error_set(error, RUNNEL_INVALID, "no path of a cache folder is given");
    return rn_cold_folder_open(&job->folder, &job->heap, NULL, path, fingerprint, error);
}

static runnel_status job_close(struct job *job, runnel_status status, runnel_cache_totals *totals)
{
    job->totals.foreign += job->folder.foreign;
    if (job->folder.heap != NULL)
        rn_cold_folder_fini(&job->folder);
    if (totals != NULL && status == RUNNEL_OK)
        rn_sized_write(totals, totals->struct_size, &job->totals, sizeof job->totals);
    return status;
}

static bool totals_good(const runnel_cache_totals *totals)
{
    return totals == NULL || rn_sized_known(totals->struct_size, sizeof *totals);
}

static runnel_status wrong_size(runnel_error *error)
{
    rn_error_clear(error);
    return rn_error_set(error, RUNNEL_INVALID, "struct_size is not that of this library");
}

/* ---- Looking ---- */

struct look {
    struct rn_heap *heap;
    runnel_cache_entry entry;
    uint64_t *salts; /* [n_salts]: of first blocks, with repetitions */
    size_t n_salts, room;
    bool no_memory;
};

static void count_record(void *user, const struct rn_tier_record *record)
{
    struct look *look = user;
    uint64_t tokens = ((uint64_t)record->depth + 1) * look->entry.block_tokens;

    look->entry.longest_tokens = tokens > look->entry.longest_tokens ? tokens : look->entry.longest_tokens;
    if (record->depth > 0)
        return;
    look->entry.prefixes++;
    if (look->n_salts == look->room) {
        size_t room = look->room == 0 ? FIRST_SALTS : 2 * look->room;
        uint64_t *salts = rn_realloc(look->heap, look->salts, room, sizeof *salts);

        look->no_memory |= salts == NULL;
        if (salts == NULL)
            return;
        look->salts = salts;
        look->room = room;
    }
    RN_ASSERT(look->n_salts < look->room);
    look->salts[look->n_salts++] = record->salt.word[0];
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static uint64_t different(uint64_t *values, size_t n)
{
    uint64_t found = n > 0;

    if (n > 0)
        rn_sort_in_place(values, n, sizeof *values, by_value);
    for (size_t i = 1; i < n; i++)
        found += values[i] != values[i - 1];
    RN_ASSERT(found <= n);
    return found;
}

/* Fills in what the segments of a known fingerprint hold. */
static runnel_status look_in(struct job *job, const struct rn_cold_listing *listing, struct look *look)
{
    struct rn_cold_store *store;
    struct rn_cold_stats stats;
    runnel_status status = rn_cold_store_open(&job->heap, NULL, job->folder.path, &listing->id, &look_only,
                                              count_record, look, &store, job->error);

    if (status != RUNNEL_OK)
        return status;
    rn_cold_store_stats(store, &stats);
    rn_cold_store_close(store);
    if (look->no_memory)
        return rn_error_set(job->error, RUNNEL_NO_MEMORY, "%s: no memory", job->folder.path);
    RN_ASSERT(!stats.writes && look->entry.prefixes <= stats.records && stats.live_bytes <= stats.file_bytes);
    look->entry.records = stats.records;
    look->entry.file_bytes = stats.file_bytes;
    look->entry.record_bytes = stats.live_bytes;
    look->entry.damaged = stats.damaged;
    look->entry.salts = different(look->salts, look->n_salts);
    return RUNNEL_OK;
}

/* An empty folder is none. */
static runnel_status look_at(struct job *job, const struct rn_cold_listing *listing,
                             void (*on_entry)(void *user, const runnel_cache_entry *entry), void *user)
{
    struct look look = {.heap = &job->heap,
                        .entry = {.struct_size = sizeof look.entry,
                                  .fingerprint = listing->hex,
                                  .model = "",
                                  .segments = listing->segments.n,
                                  .damaged = listing->segments.n}};
    runnel_status status = RUNNEL_OK;

    if (listing->segments.n == 0)
        return RUNNEL_OK;
    if (listing->known) {
        look.entry.model = listing->id.name;
        look.entry.block_tokens = listing->id.block_tokens;
        look.entry.block_bytes = listing->id.block_bytes;
        status = look_in(job, listing, &look);
    }
    rn_free(&job->heap, look.salts);
    if (status != RUNNEL_OK)
        return status;
    job->totals.fingerprints++;
    job->totals.segments += look.entry.segments;
    job->totals.records += look.entry.records;
    job->totals.bytes += look.entry.file_bytes;
    job->totals.damaged += look.entry.damaged;
    if (on_entry != NULL)
        on_entry(user, &look.entry);
    return RUNNEL_OK;
}

runnel_status runnel_cache_ls(const char *path, void (*on_entry)(void *user, const runnel_cache_entry *entry),
                              void *user, runnel_cache_totals *totals, runnel_error *error)
{
    struct job job;
    runnel_status status;

    if (!totals_good(totals))
        return wrong_size(error);
    status = job_open(&job, path, NULL, error);
    for (size_t i = 0; i < job.folder.n && status == RUNNEL_OK; i++) {
        struct rn_cold_listing listing;

        status = rn_cold_listing_open(&listing, &job.folder, i, error);
        if (status == RUNNEL_OK)
            status = look_at(&job, &listing, on_entry, user);
        job.totals.foreign += listing.foreign;
        rn_cold_listing_fini(&listing);
    }
    return job_close(&job, status, totals);
}

/* ---- Records ---- */

struct inspect {
    uint32_t block_tokens;
    void (*on_record)(void *user, const runnel_cache_record *record);
    void *user;
};

static void pass_on(void *user, const struct rn_tier_record *record)
{
    const struct inspect *inspect = user;

    inspect->on_record(inspect->user, &(runnel_cache_record){.struct_size = sizeof(runnel_cache_record),
                                                             .id = record->handle,
                                                             .parent = record->parent,
                                                             .salt = record->salt.word[0],
                                                             .depth = record->depth,
                                                             .tokens = record->tokens,
                                                             .n_tokens = inspect->block_tokens,
                                                             .bytes = record->payload_bytes});
}

runnel_status runnel_cache_inspect(const char *path, const char *fingerprint,
                                   void (*on_record)(void *user, const runnel_cache_record *record), void *user,
                                   runnel_error *error)
{
    struct inspect inspect = {.on_record = on_record, .user = user};
    struct rn_cold_listing listing;
    struct rn_cold_store *store = NULL;
    struct job job;
    runnel_status status;

    if (fingerprint == NULL || on_record == NULL) {
        rn_error_clear(error);
        return rn_error_set(error, RUNNEL_INVALID, "%s is NULL", fingerprint == NULL ? "fingerprint" : "on_record");
    }
    status = job_open(&job, path, fingerprint, error);
    if (status == RUNNEL_OK) {
        status = rn_cold_listing_open(&listing, &job.folder, 0, error);
        if (status == RUNNEL_OK && listing.known) {
            inspect.block_tokens = listing.id.block_tokens;
            status =
                rn_cold_store_open(&job.heap, NULL, path, &listing.id, &look_only, pass_on, &inspect, &store, error);
            rn_cold_store_close(store);
        }
        rn_cold_listing_fini(&listing);
    }
    return job_close(&job, status, NULL);
}

/* ---- Verifying ---- */

static void add_totals(runnel_cache_totals *to, const struct rn_cold_totals *from)
{
    to->segments += from->segments;
    to->records += from->records;
    to->bytes += from->bytes;
    to->damaged += from->damaged;
}

runnel_status runnel_cache_verify(const char *path, const char *fingerprint,
                                  void (*on_damage)(void *user, const runnel_cache_damage *damage), void *user,
                                  runnel_cache_totals *totals, runnel_error *error)
{
    struct job job;
    runnel_status status;

    if (!totals_good(totals))
        return wrong_size(error);
    status = job_open(&job, path, fingerprint, error);
    for (size_t i = 0; i < job.folder.n && status == RUNNEL_OK; i++) {
        struct rn_cold_listing listing;
        struct rn_cold_totals seen = {0};

        status = rn_cold_listing_open(&listing, &job.folder, i, error);
        if (status == RUNNEL_OK)
            status = rn_cold_listing_verify(&listing, on_damage, user, &seen, error);
        job.totals.fingerprints += listing.segments.n > 0;
        job.totals.foreign += listing.foreign;
        add_totals(&job.totals, &seen);
        rn_cold_listing_fini(&listing);
    }
    return job_close(&job, status, totals);
}

/* ---- Purging ---- */

void runnel_cache_purge_options_init(runnel_cache_purge_options *options, size_t struct_size)
{
    const runnel_cache_purge_options own = {0};

    rn_sized_write(options, struct_size, &own, sizeof own);
}

void(runnel_cache_purge_options_default)(runnel_cache_purge_options *options)
{
    runnel_cache_purge_options_init(options, RN_FIRST_SIZE(runnel_cache_purge_options, reserved));
}

/* One fingerprint under its lock: a descriptor, or a store that has it. */
struct held {
    struct rn_cold_listing listing;
    int lock_fd;
    struct rn_cold_store *store;
};

static runnel_status hold(struct job *job, struct held *held, bool by_salt)
{
    const char *path = job->folder.path;
    struct rn_cold_stats stats;
    runnel_status status;

    if (!by_salt)
        return rn_cold_listing_lock(&held->listing, &held->lock_fd, job->error);
    if (!held->listing.known)
        return RUNNEL_OK; /* nothing in it can be read */
    status =
        rn_cold_store_open(&job->heap, NULL, path, &held->listing.id, &no_limits, NULL, NULL, &held->store, job->error);
    if (status != RUNNEL_OK)
        return status;
    rn_cold_store_stats(held->store, &stats);
    if (stats.writes)
        return RUNNEL_OK;
    if (rn_tier_store_error(rn_cold_store_tier(held->store), job->error))
        return RUNNEL_IO;
    return rn_error_set(job->error, RUNNEL_BUSY, "%s/%s: an engine is writing to it", path, held->listing.hex);
}

static runnel_status wipe(struct job *job, struct held *held, uint64_t salt, struct rn_cold_totals *gone)
{
    struct rn_cold_stats before, after;
    runnel_error why;
    runnel_status status;
    bool wiped;
    uint64_t n;

    if (held->store == NULL) {
        job->left += rn_cold_listing_left(&held->listing);
        return RUNNEL_OK;
    }
    rn_cold_store_stats(held->store, &before);
    status = rn_cold_store_wipe_salt(held->store, salt, &n);
    while (status == RUNNEL_OK && rn_cold_store_maintain(held->store, UINT64_MAX, NULL, NULL))
        continue;
    wiped = status == RUNNEL_OK;
    if (wiped)
        status = rn_cold_store_compact(held->store);
    if (status == RUNNEL_OK && (status = rn_cold_store_left(held->store, &n)) == RUNNEL_OK)
        job->left += n;
    rn_cold_store_stats(held->store, &after);
    RN_ASSERT(after.records <= before.records && after.live_bytes <= before.live_bytes);
    RN_ASSERT(after.segments <= before.segments);
    gone->records += before.records - after.records;
    gone->segments += before.segments - after.segments;
    gone->bytes += before.live_bytes - after.live_bytes;
    if (rn_tier_store_error(rn_cold_store_tier(held->store), &why))
        status = RUNNEL_IO;
    else if (status != RUNNEL_OK)
        rn_error_set(&why, status, "%s: %s", job->folder.path, runnel_status_text(status));
    if (status == RUNNEL_OK)
        return RUNNEL_OK;
    return rn_error_set(job->error, status, "%s%s", why.message,
                        wiped ? " (the records are gone; not all of their room is free)" : "");
}

/* All locks, then all the work. */
static runnel_status purge(struct job *job, struct held *held, const runnel_cache_purge_options *options)
{
    runnel_status status = RUNNEL_OK;

    for (size_t i = 0; i < job->folder.n && status == RUNNEL_OK; i++) {
        status = rn_cold_listing_open(&held[i].listing, &job->folder, i, job->error);
        if (status == RUNNEL_OK)
            status = hold(job, &held[i], options->by_salt != 0);
    }
    for (size_t i = 0; i < job->folder.n && status == RUNNEL_OK; i++) {
        struct rn_cold_totals gone = {0};

        status = options->by_salt ? wipe(job, &held[i], options->salt, &gone)
                                  : rn_cold_listing_purge(&held[i].listing, options->keep_bytes, &gone, job->error);
        job->totals.fingerprints += held[i].listing.segments.n > 0;
        job->totals.foreign += held[i].listing.foreign;
        add_totals(&job->totals, &gone);
    }
    if (status == RUNNEL_OK && job->left > 0)
        status = rn_error_set(job->error, RUNNEL_IO, "%s: %llu segments could not be read and are left",
                              job->folder.path, (unsigned long long)job->left);
    return status;
}

runnel_status runnel_cache_purge(const char *path, const runnel_cache_purge_options *given, runnel_cache_totals *totals,
                                 runnel_error *error)
{
    runnel_cache_purge_options options;
    struct held *held = NULL;
    struct job job;
    runnel_status status;

    rn_error_clear(error);
    runnel_cache_purge_options_default(&options);
    if (given == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "options are NULL");
    if (!rn_sized_read(&options, sizeof options, given) || !totals_good(totals))
        return wrong_size(error);
    if (!rn_all_zero(options.reserved, sizeof options.reserved))
        return rn_error_set(error, RUNNEL_INVALID, "purge options: reserved is not zero");
    status = job_open(&job, path, options.fingerprint, error);
    if (status == RUNNEL_OK) {
        held = rn_calloc(&job.heap, job.folder.n, sizeof *held);
        if (held == NULL)
            status = rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory", path);
    }
    for (size_t i = 0; held != NULL && i < job.folder.n; i++)
        held[i].lock_fd = -1;
    if (status == RUNNEL_OK)
        status = purge(&job, held, &options);
    for (size_t i = 0; held != NULL && i < job.folder.n; i++) {
        if (held[i].lock_fd >= 0)
            job.folder.io->close(job.folder.io->user, held[i].lock_fd);
        rn_cold_store_close(held[i].store);
        rn_cold_listing_fini(&held[i].listing);
    }
    rn_free(&job.heap, held);
    return job_close(&job, status, totals);
}
