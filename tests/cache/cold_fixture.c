/* See cold_fixture.h. */
#define _GNU_SOURCE /* nftw */
#include "tests/cache/cold_fixture.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"

struct rn_tier_id cold_id(void)
{
    struct rn_tier_id id = {.block_tokens = COLD_B, .block_bytes = 256, .name = "closed form"};

    memset(id.model.bytes, 1, 16);
    memset(id.kv.bytes, 2, 16);
    return id;
}

struct rn_prefix_salt cold_salt(struct cold_key key)
{
    return (struct rn_prefix_salt){{key.salt, 77}};
}

void cold_tokens(struct cold_key key, int32_t *tokens)
{
    tokens[0] = (int32_t)key.chain;
    tokens[1] = (int32_t)key.depth;
    tokens[2] = -1;
    tokens[3] = (int32_t)(key.chain ^ key.depth * 1000003u);
}

size_t cold_payload(struct cold_key key, uint8_t *payload)
{
    uint64_t state = key.chain * 1000003u + key.depth * 101u + key.salt;
    size_t n = 1 + (key.chain * 7 + key.depth * 31) % COLD_MOST_PAYLOAD;

    for (size_t i = 0; i < n; i++)
        payload[i] = (uint8_t)rn_splitmix64(&state);
    return n;
}

runnel_status cold_append(struct rn_cold_store *store, struct cold_key key, uint64_t parent, uint64_t *handle)
{
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    cold_tokens(key, tokens);
    return rn_tier_store_put(rn_cold_store_tier(store), &(struct rn_tier_key){parent, cold_salt(key), tokens}, payload,
                             cold_payload(key, payload), handle);
}

int cold_read(struct rn_cold_store *store, struct cold_key key, uint64_t parent, uint64_t handle)
{
    uint8_t payload[COLD_MOST_PAYLOAD], *got;
    size_t n = rn_tier_store_payload_bytes(rn_cold_store_tier(store), handle);
    int32_t tokens[COLD_B];
    runnel_status status;

    cold_tokens(key, tokens);
    got = malloc(n + 1);
    status = rn_tier_store_get(rn_cold_store_tier(store), handle, &(struct rn_tier_key){parent, cold_salt(key), tokens},
                               got);
    if (status == RUNNEL_OK) {
        assert_int_equal(n, cold_payload(key, payload));
        assert_memory_equal(got, payload, n);
    } else {
        assert_true(status == RUNNEL_NOT_FOUND || status == RUNNEL_IO);
    }
    free(got);
    return status == RUNNEL_OK;
}

void cold_on_record(void *user, const struct rn_tier_record *record)
{
    struct cold_key key = {(uint32_t)record->tokens[0], (uint32_t)record->tokens[1], (uint32_t)record->salt.word[0]};
    struct cold_told *told = user;
    int32_t tokens[COLD_B];
    bool found = record->parent == 0;

    cold_tokens(key, tokens);
    assert_memory_equal(tokens, record->tokens, sizeof tokens);
    assert_int_equal(record->salt.word[1], 77);
    assert_int_equal(record->depth, key.depth);
    assert_true(record->handle != 0 && record->payload_bytes > 0);
    for (size_t i = told->n; i-- > 0 && !found;)
        found = told->records[i].handle == record->parent && told->records[i].key.chain == key.chain &&
                told->records[i].key.depth + 1 == key.depth && told->records[i].key.salt == key.salt;
    assert_true(found);
    if (told->n == told->room) {
        told->room = told->room == 0 ? 64 : 2 * told->room;
        told->records = realloc(told->records, told->room * sizeof *told->records);
    }
    told->records[told->n++] = (struct cold_record){key, record->handle, record->parent};
}

size_t cold_read_all(struct rn_cold_store *store, const struct cold_told *told)
{
    size_t good = 0;

    for (size_t i = 0; i < told->n; i++)
        good += (size_t)cold_read(store, told->records[i].key, told->records[i].parent, told->records[i].handle);
    return good;
}

void cold_told_free(struct cold_told *told)
{
    free(told->records);
    *told = (struct cold_told){.n = 0};
}

size_t cold_close_whole(struct rn_cold_store *store, struct cold_told *told)
{
    size_t n = cold_read_all(store, told);

    assert_int_equal(n, told->n);
    rn_cold_store_close(store);
    cold_told_free(told);
    return n;
}

/* ---- A disk with faults ---- */

/* True: this call fails. */
static bool fails(struct cold_disk *disk)
{
    disk->calls++;
    return disk->fail_at != 0 && (disk->calls == disk->fail_at || (disk->for_good && disk->calls > disk->fail_at));
}

static int fault(const struct cold_disk *disk)
{
    return disk->error != 0 ? -disk->error : -EIO;
}

static int disk_open(void *user, const char *path, int flags)
{
    struct cold_disk *disk = user;
    int fd = fails(disk) ? fault(disk) : rn_cold_io_machine.open(NULL, path, flags);

    disk->n_open += fd >= 0;
    return fd;
}

static void disk_close(void *user, int fd)
{
    struct cold_disk *disk = user;

    disk->n_open--;
    rn_cold_io_machine.close(NULL, fd);
}

static int64_t disk_pread(void *user, int fd, void *bytes, size_t n, uint64_t offset)
{
    struct cold_disk *disk = user;
    bool fail = fails(disk);

    disk->n_pread++;
    if (fail && disk->error != 0)
        return fault(disk);
    return rn_cold_io_machine.pread(NULL, fd, bytes, fail ? n / 2 : n, offset);
}

static int64_t disk_pwrite(void *user, int fd, const void *bytes, size_t n, uint64_t offset)
{
    struct cold_disk *disk = user;
    bool fail = fails(disk);

    if (fail && disk->error != 0)
        return fault(disk);
    if (fail)
        n /= 2;
    if (n > disk->room)
        n = (size_t)disk->room;
    if (n == 0)
        return -disk->full;
    if (disk->room != UINT64_MAX)
        disk->room -= n;
    return rn_cold_io_machine.pwrite(NULL, fd, bytes, n, offset);
}

static int64_t disk_size(void *user, int fd)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.size(NULL, fd);
}

static int disk_truncate(void *user, int fd, uint64_t bytes)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.truncate(NULL, fd, bytes);
}

static int disk_sync(void *user, int fd)
{
    (void)fd; /* nothing here outlives the machine */
    return fails(user) ? fault(user) : 0;
}

static int disk_write_out(void *user, int fd, uint64_t offset, uint64_t n, bool wait)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.write_out(NULL, fd, offset, n, wait);
}

static void disk_will_read(void *user, int fd, uint64_t offset, uint64_t n)
{
    (void)user;
    rn_cold_io_machine.will_read(NULL, fd, offset, n);
}

static int disk_lock(void *user, int fd)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.lock(NULL, fd);
}

static int disk_same(void *user, int fd, const char *path)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.same(NULL, fd, path);
}

static int disk_mkdir(void *user, const char *path)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.mkdir(NULL, path);
}

static int disk_unlink(void *user, const char *path)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.unlink(NULL, path);
}

static int disk_rmdir(void *user, const char *path)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.rmdir(NULL, path);
}

static int disk_list(void *user, const char *path, void (*name)(void *to, const char *name), void *to)
{
    return fails(user) ? fault(user) : rn_cold_io_machine.list(NULL, path, name, to);
}

void cold_disk_init(struct cold_disk *disk)
{
    *disk = (struct cold_disk){.io = {disk, disk_open, disk_close, disk_pread, disk_pwrite, disk_size, disk_truncate,
                                      disk_sync, disk_write_out, disk_will_read, disk_lock, disk_same, disk_mkdir,
                                      disk_unlink, disk_rmdir, disk_list},
                               .room = UINT64_MAX,
                               .full = ENOSPC};
}

/* ---- Folders ---- */

void cold_folder_make(char *path, size_t n)
{
    snprintf(path, n, "%s/runnel-cold-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *where)
{
    (void)is;
    (void)kind;
    (void)where;
    return remove(path);
}

void cold_folder_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct rn_heap cold_heap;
char cold_folder[100];
const struct rn_cold_limits cold_roomy = {.max_bytes = 64 << 20, .segment_bytes = 1 << 20};

int cold_set_up(void **state)
{
    (void)state;
    rn_heap_init(&cold_heap, NULL);
    cold_folder_make(cold_folder, sizeof cold_folder);
    return 0;
}

int cold_tear_down(void **state)
{
    (void)state;
    cold_folder_remove(cold_folder);
    return rn_heap_blocks(&cold_heap) == 0 ? 0 : -1;
}

struct rn_cold_store *cold_open(const struct rn_cold_io *io, const struct rn_cold_limits *limits,
                                struct cold_told *told)
{
    struct rn_tier_id id = cold_id();
    struct rn_cold_store *store;
    runnel_error error;

    assert_int_equal(rn_cold_store_open(&cold_heap, io, cold_folder, &id, limits, cold_on_record, told, &store, &error),
                     RUNNEL_OK);
    return store;
}
