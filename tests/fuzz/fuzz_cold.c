/* Any bytes as a packed block, and as a segment of the cold store: as they are, and with all checks made right first.
 * What a store tells of must hold together (its own check), parents come first, and each read is a payload or a miss.
 * Seeds: a segment with and without its index. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "cache/block_codec.h"
#include "base/bytes.h"
#include "cache/store/cold_format.h"
#include "cache/store/cold_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { B = 2, HEAD = 96 + 4 * B, ENTRY = 8 + HEAD };

static struct rn_heap heap;
static struct rn_tier_id id = {.block_tokens = B, .block_bytes = 64, .name = "fuzz"};
static char root[64], folder[128], path[192];

static void put_check(uint8_t *at, XXH128_hash_t hash)
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(at, canonical.digest, 16);
}

/* By docs/TIERS.md: the head's check leaves out byte 56. */
static void right_head(uint8_t *head)
{
    uint8_t covered[79 + 4 * B];

    memcpy(head, "RNCR", 4);
    rn_bytes_put(head + 52, B, 4);
    memcpy(covered, head, 56);
    memcpy(covered + 56, head + 57, 23);
    memcpy(covered + 79, head + 96, 4 * B);
    put_check(head + 80, XXH3_128bits_withSeed(covered, sizeof covered, rn_cold_seed(&id)));
}

/* The last byte says whether there is an index, and of how many entries. */
static void make_right(uint8_t *bytes, size_t size)
{
    uint32_t n = bytes[size - 1] % 8;
    size_t index = size;

    rn_cold_header_pack(&id, 1, bytes);
    if (n > 0 && size >= 256 + 48 + n * ENTRY) {
        index = size - 48 - n * ENTRY;
        rn_cold_trailer_pack(rn_cold_seed(&id), 1, index, n, bytes + size - 48);
        for (uint32_t i = 0; i < n; i++)
            right_head(bytes + index + i * ENTRY + 8);
    }
    for (size_t at = 256; at + HEAD <= index;) {
        uint64_t payload = rn_bytes_get(bytes + at + 4, 4);

        if (payload <= index - at - HEAD)
            put_check(bytes + at + 64, XXH3_128bits_withSeed(bytes + at + HEAD, (size_t)payload,
                                                             rn_cold_seed(&id) + rn_bytes_get(bytes + at + 8, 8)));
        right_head(bytes + at);
        if (payload > index - at - HEAD)
            break;
        at += (HEAD + (size_t)payload + 7) / 8 * 8;
    }
}

struct told {
    struct rn_tier_record records[256];
    int32_t tokens[256][B];
    uint32_t n;
};

static void on_record(void *user, const struct rn_tier_record *record)
{
    struct told *told = user;
    bool found = record->parent == 0;

    for (uint32_t i = 0; i < told->n && !found; i++)
        found = told->records[i].handle == record->parent;
    RN_CHECK(record->handle != 0 && told->n < 256 && found);
    told->records[told->n] = *record;
    memcpy(told->tokens[told->n++], record->tokens, sizeof told->tokens[0]);
}

static void spill(const char *to, const uint8_t *bytes, size_t n)
{
    FILE *f = fopen(to, "wb");

    RN_CHECK(f != NULL && (n == 0 || fwrite(bytes, 1, n, f) == n) && fclose(f) == 0);
}

static void read_all(struct rn_cold_store *store, const struct told *told, size_t size)
{
    for (uint32_t i = 0; i < told->n; i++) {
        const struct rn_tier_record *r = &told->records[i];
        size_t n = rn_tier_store_payload_bytes(rn_cold_store_tier(store), r->handle);
        void *payload = malloc(n + 1);

        RN_CHECK(n <= size);
        rn_tier_store_get(rn_cold_store_tier(store), r->handle,
                          &(struct rn_tier_key){r->parent, r->salt, told->tokens[i]}, payload);
        RN_CHECK(rn_cold_store_check(store));
        free(payload);
    }
}

static void try_segment(const uint8_t *bytes, size_t size)
{
    const struct rn_cold_limits limits = {.max_bytes = 8 << 20, .segment_bytes = 1 << 20};
    static struct told told;
    struct rn_cold_store *store;

    spill(path, bytes, size);
    for (int i = 0; i < 2; i++) { /* the second finds what the first has made of it */
        told.n = 0;
        RN_CHECK(rn_cold_store_open(&heap, NULL, root, &id, &limits, on_record, &told, &store, NULL) == RUNNEL_OK);
        RN_CHECK(rn_cold_store_check(store));
        read_all(store, &told, size);
        rn_cold_store_close(store);
    }
    RN_CHECK(rn_heap_blocks(&heap) == 0);
}

static void try_packed(const uint8_t *data, size_t size)
{
    struct rn_codec_options options = {.method = RN_CODEC_NONE, .unit_bytes = 1, .block_bytes = 1 + data[0] * 4u};
    struct rn_block_codec codec;
    uint8_t *block = malloc(options.block_bytes), *packed = malloc(size + 1);

    memcpy(packed, data, size);
    memcpy(packed, "B\x01", size < 2 ? size : 2);
    if (size >= 8)
        rn_bytes_put(packed + 4, options.block_bytes, 4);
    RN_CHECK(rn_block_codec_init(&codec, &heap, &options, NULL) == RUNNEL_OK);
    rn_block_codec_unpack(&codec, packed, size, block);
    rn_block_codec_fini(&codec);
    free(block);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    if (size == 0 || size > 16384)
        return 0;
    try_packed(data, size);
    try_segment(data, size);
    if (size <= 256)
        return 0;
    copy = malloc(size);
    memcpy(copy, data, size);
    make_right(copy, size);
    try_segment(copy, size);
    free(copy);
    return 0;
}

static void remove_all(void)
{
    char lock[192];

    snprintf(lock, sizeof lock, "%s/lock", folder);
    unlink(path);
    unlink(lock);
    rmdir(folder);
    rmdir(root);
}

static void write_seeds(const char *to)
{
    const struct rn_cold_limits limits = {.max_bytes = 8 << 20, .segment_bytes = 1 << 20};
    const int32_t tokens[B] = {5, 6};
    uint8_t bytes[4096] = {0};
    struct rn_cold_store *store;
    uint64_t handle = 0;
    char name[512];
    size_t n;
    FILE *f;

    RN_CHECK(rn_cold_store_open(&heap, NULL, root, &id, &limits, NULL, NULL, &store, NULL) == RUNNEL_OK);
    for (int i = 0; i < 3; i++)
        RN_CHECK(rn_tier_store_put(rn_cold_store_tier(store),
                                   &(struct rn_tier_key){handle, (struct rn_prefix_salt){{1, 2}}, tokens}, "payload", 7,
                                   &handle) == RUNNEL_OK);
    rn_cold_store_close(store);
    f = fopen(path, "rb");
    RN_CHECK(f != NULL);
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    snprintf(name, sizeof name, "%s/with", to);
    spill(name, bytes, n);
    snprintf(name, sizeof name, "%s/without", to);
    spill(name, bytes, n - 48 - 3 * ENTRY);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct rn_fingerprint print = rn_cold_fingerprint(&id);
    const char *seeds = getenv("RUNNEL_FUZZ_SEEDS");
    char hex[RN_COLD_HEX + 1];

    (void)argc;
    (void)argv;
    rn_heap_init(&heap, NULL);
    rn_cold_hex(&print, hex);
    snprintf(root, sizeof root, "%s/runnel-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    RN_CHECK(mkdtemp(root) != NULL);
    snprintf(folder, sizeof folder, "%s/%s", root, hex);
    snprintf(path, sizeof path, "%s/0000000000000001.kv", folder);
    RN_CHECK(rn_cold_io_machine.mkdir(NULL, folder) == 0);
    atexit(remove_all);
    if (seeds != NULL)
        write_seeds(seeds);
    return 0;
}
