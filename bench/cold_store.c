/* The cold store against the disk it lies on.
 *
 *   bench_cold_store DIR [MEGABYTES]      (512; DIR must be there and is left as it was)
 *
 * Blocks of 80 KB (about an f16 block of a small model, packed; random bytes) are appended until there are so many
 * megabytes, and read back in their order after the page cache has let go of them. The disk's own speed is had in the
 * same run by writes and reads of 1 MiB with O_DIRECT. Then 100,000 records of 64 bytes: how long it takes to open
 * them, what their index takes. Time is the clock's. */
#define _GNU_SOURCE /* O_DIRECT, nftw */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rng.h"
#include "cache/store/cold_store.h"

enum { TOKENS = 32, PAYLOAD = 80000, PIECE = 1 << 20, AHEAD = 8, MANY = 100000, SMALL = 64, CHAIN = 125 };

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int visit(const char *path, const struct stat *is, int type, struct FTW *at)
{
    (void)is;
    (void)type;
    (void)at;
    return remove(path);
}

/* The page cache lets go of what is clean. */
static int let_go(const char *path, const struct stat *is, int type, struct FTW *at)
{
    int fd = type == FTW_F ? open(path, O_RDONLY) : -1;

    (void)is;
    (void)at;
    if (fd >= 0) {
        RN_CHECK(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        close(fd);
    }
    return 0;
}

static void drop_pages(const char *folder)
{
    RN_CHECK(nftw(folder, let_go, 16, FTW_PHYS) == 0);
}

/* ---- The disk alone ---- */

static void print_speed(const char *what, double bytes, double took)
{
    printf("%-28s %8.0f MB/s\n", what, bytes / took / 1e6);
}

static void measure_disk(const char *folder, size_t megabytes)
{
    unsigned char *piece = aligned_alloc(4096, PIECE);
    uint64_t random = 1;
    char path[300];
    double begin;
    int fd;

    snprintf(path, sizeof path, "%s/plain", folder);
    RN_CHECK(piece != NULL);
    for (size_t i = 0; i < PIECE; i++)
        piece[i] = (unsigned char)rn_splitmix64(&random);
    fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0) {
        printf("no O_DIRECT here\n");
        free(piece);
        return;
    }
    begin = seconds();
    for (size_t i = 0; i < megabytes; i++)
        RN_CHECK(write(fd, piece, PIECE) == PIECE);
    RN_CHECK(fdatasync(fd) == 0);
    print_speed("disk, O_DIRECT, write", (double)megabytes * PIECE, seconds() - begin);
    begin = seconds();
    for (size_t i = 0; i < megabytes; i++)
        RN_CHECK(pread(fd, piece, PIECE, (off_t)(i * PIECE)) == PIECE);
    print_speed("disk, O_DIRECT, read", (double)megabytes * PIECE, seconds() - begin);
    close(fd);
    unlink(path);
    free(piece);
}

/* ---- The store ---- */

static struct rn_cold_store *open_store(struct rn_heap *heap, const char *folder)
{
    const struct rn_cold_limits limits = {.max_bytes = (uint64_t)1 << 40};
    struct rn_tier_id id = {.block_tokens = TOKENS, .block_bytes = 98304, .name = "bench"};
    struct rn_cold_store *store;

    RN_CHECK(rn_cold_store_open(heap, NULL, folder, &id, &limits, NULL, NULL, &store, NULL) == RUNNEL_OK);
    return store;
}

static void tokens_of(size_t i, int32_t *tokens)
{
    for (int32_t k = 0; k < TOKENS; k++)
        tokens[k] = (int32_t)i + k;
}

/* n records in chains of CHAIN; handles [n]. */
static void append(struct rn_cold_store *store, size_t n, unsigned char *payload, size_t bytes, uint64_t *handles)
{
    int32_t tokens[TOKENS];

    for (size_t i = 0; i < n; i++) {
        tokens_of(i, tokens);
        memcpy(payload, &i, sizeof i);
        RN_CHECK(rn_tier_store_put(rn_cold_store_tier(store),
                                   &(struct rn_tier_key){i % CHAIN == 0 ? 0 : handles[i - 1],
                                                         (struct rn_prefix_salt){{0, 0}}, tokens},
                                   payload, bytes, &handles[i]) == RUNNEL_OK);
    }
}

static void read_all(struct rn_cold_store *store, size_t n, unsigned char *payload, const uint64_t *handles)
{
    int32_t tokens[TOKENS];

    for (size_t i = 0; i < n; i++) {
        if (i % AHEAD == 0)
            rn_tier_store_will_get(rn_cold_store_tier(store), handles + i,
                                   (uint32_t)(n - i < 2 * AHEAD ? n - i : 2 * AHEAD));
        tokens_of(i, tokens);
        RN_CHECK(rn_tier_store_get(rn_cold_store_tier(store), handles[i],
                                   &(struct rn_tier_key){i % CHAIN == 0 ? 0 : handles[i - 1],
                                                         (struct rn_prefix_salt){{0, 0}}, tokens},
                                   payload) == RUNNEL_OK);
        RN_CHECK(memcmp(payload, &i, sizeof i) == 0);
    }
}

static void measure_blocks(struct rn_heap *heap, const char *folder, size_t megabytes)
{
    size_t n = megabytes * PIECE / PAYLOAD;
    unsigned char *payload = malloc(PAYLOAD);
    uint64_t *handles = malloc(n * sizeof *handles), random = 2;
    struct rn_cold_store *store = open_store(heap, folder);
    double begin;

    RN_CHECK(payload != NULL && handles != NULL);
    for (size_t i = 0; i < PAYLOAD; i++)
        payload[i] = (unsigned char)rn_splitmix64(&random);
    begin = seconds();
    append(store, n, payload, PAYLOAD, handles);
    print_speed("store, append", (double)n * PAYLOAD, seconds() - begin);
    rn_cold_store_close(store);
    print_speed("store, append and close", (double)n * PAYLOAD, seconds() - begin);
    drop_pages(folder);
    store = open_store(heap, folder);
    begin = seconds();
    read_all(store, n, payload, handles);
    print_speed("store, read", (double)n * PAYLOAD, seconds() - begin);
    begin = seconds();
    read_all(store, n, payload, handles);
    print_speed("store, read, in page cache", (double)n * PAYLOAD, seconds() - begin);
    rn_cold_store_close(store);
    free(payload);
    free(handles);
}

static void measure_open(struct rn_heap *heap, const char *folder)
{
    unsigned char payload[SMALL] = {0};
    uint64_t *handles = malloc(MANY * sizeof *handles);
    struct rn_cold_store *store = open_store(heap, folder);
    struct rn_cold_stats stats;

    RN_CHECK(handles != NULL);
    append(store, MANY, payload, SMALL, handles);
    rn_cold_store_close(store);
    for (int cold = 1; cold >= 0; cold--) {
        double begin;

        if (cold)
            drop_pages(folder);
        begin = seconds();
        store = open_store(heap, folder);
        printf("open of %d records, %-8s %7.3f s\n", (int)MANY, cold ? "cold" : "again", seconds() - begin);
        rn_cold_store_stats(store, &stats);
        RN_CHECK(stats.records == MANY);
        rn_cold_store_close(store);
    }
    printf("index in memory              %8.1f bytes per record, %u segments\n", (double)stats.memory_bytes / MANY,
           (unsigned)stats.segments);
    free(handles);
}

int main(int argc, char **argv)
{
    size_t megabytes = argc > 2 ? (size_t)atol(argv[2]) : 512;
    struct rn_heap heap;
    char folder[200];

    if (argc < 2 || argc > 3 || megabytes == 0) {
        fprintf(stderr, "usage: bench_cold_store DIR [MEGABYTES]\n");
        return 2;
    }
    rn_heap_init(&heap, NULL);
    snprintf(folder, sizeof folder, "%.150s/bench_cold_XXXXXX", argv[1]);
    if (mkdtemp(folder) == NULL) {
        perror(argv[1]);
        return 1;
    }
    measure_disk(folder, megabytes);
    measure_blocks(&heap, folder, megabytes);
    RN_CHECK(nftw(folder, visit, 16, FTW_DEPTH | FTW_PHYS) == 0 && mkdir(folder, 0700) == 0);
    measure_open(&heap, folder);
    RN_CHECK(nftw(folder, visit, 16, FTW_DEPTH | FTW_PHYS) == 0);
    return 0;
}
