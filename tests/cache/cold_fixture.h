/* Records in closed form for the tests of the cold store: chain c, depth d, salt s say tokens and payload. And a
 * disk whose n-th call fails. */
#ifndef TESTS_CACHE_COLD_FIXTURE_H
#define TESTS_CACHE_COLD_FIXTURE_H

#include "cache/store/cold_store.h"

enum { COLD_B = 4, COLD_MOST_PAYLOAD = 200 };

struct cold_key {
    uint32_t chain, depth, salt;
};

struct rn_tier_id cold_id(void);
struct rn_prefix_salt cold_salt(struct cold_key key);
void cold_tokens(struct cold_key key, int32_t *tokens);
size_t cold_payload(struct cold_key key, uint8_t *payload);
runnel_status cold_append(struct rn_cold_store *store, struct cold_key key, uint64_t parent, uint64_t *handle);

/* 1: the right payload; 0: a miss. Anything else fails the test. */
int cold_read(struct rn_cold_store *store, struct cold_key key, uint64_t parent, uint64_t handle);

/* What an open told, checked as it comes: parents first, tokens in closed form. */
struct cold_told {
    struct cold_record {
        struct cold_key key;
        uint64_t handle, parent;
    } * records; /* [n] */
    size_t n, room;
};
void cold_on_record(void *user, const struct rn_tier_record *record);

/* Reads all that was told; returns how many were right. */
size_t cold_read_all(struct rn_cold_store *store, const struct cold_told *told);

/* All that was told is right; returns how many that are. Closes the store and frees told. */
size_t cold_close_whole(struct rn_cold_store *store, struct cold_told *told);
void cold_told_free(struct cold_told *told);

/* The machine's disk with a plan of faults. */
struct cold_disk {
    struct rn_cold_io io;    /* user is this */
    uint64_t calls, fail_at; /* the fail_at-th call fails, from 1; 0: none */
    bool for_good;           /* and all later ones */
    int error;               /* as what; 0: a read or write is short by half instead */
    uint64_t room;           /* bytes that can still be written; UINT64_MAX */
    int full;                /* ENOSPC: what a write says then */
    int64_t n_open;          /* descriptors */
    uint64_t n_pread;
};
void cold_disk_init(struct cold_disk *disk);

/* What a test of the store stands in: set_up makes the heap and a fresh folder; tear_down removes it, and fails the
 * test where the heap still holds something. */
extern struct rn_heap cold_heap;
extern char cold_folder[100];
extern const struct rn_cold_limits cold_roomy; /* limits that are not met */
int cold_set_up(void **state);
int cold_tear_down(void **state);

/* A store of cold_id in cold_folder. io NULL: the machine's. */
struct rn_cold_store *cold_open(const struct rn_cold_io *io, const struct rn_cold_limits *limits,
                                struct cold_told *told);

/* A fresh folder under /dev/shm or /tmp; and it, with all in it, gone again. */
void cold_folder_make(char *path, size_t n);
void cold_folder_remove(const char *path);

#endif
