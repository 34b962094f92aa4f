/* What the shared tier's way costs: blocks put into a Redis server and read again, eight at a time as the mover does
 * it.
 *
 *   bench_shared_store URL BLOCKS BYTES ROUNDS [CA]      of a prefix of BLOCKS blocks with BYTES of payload each: ms on
 *                                                        the clock, and of this thread's processor time
 *
 * Payloads are noise. What is read is compared with what was put. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cache/store/redis_store.h"

enum { TOKENS = 32, AT_ONCE = 8, MOST_BLOCKS = 4096 };

struct stretch {
    uint64_t us, spent_us;
};

static struct rn_clock clock_;
static int32_t tokens[TOKENS];
static uint64_t handles[MOST_BLOCKS];
static unsigned char *noise, *got;

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "bench_shared_store: %s\n", what);
    exit(1);
}

static struct stretch now(void)
{
    return (struct stretch){rn_now_us(&clock_), rn_spent_us(&clock_)};
}

static void show(const char *name, struct stretch begin, double bytes)
{
    struct stretch end = now();
    double ms = (double)(end.us - begin.us) / 1000, spent = (double)(end.spent_us - begin.spent_us) / 1000;

    printf("%-5s %8.1f ms  %8.1f ms of processor  %6.0f MB/s\n", name, ms, spent, bytes / ms / 1000);
}

static void name_block(uint32_t round, uint32_t block)
{
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(round * 100000 + block * TOKENS + (uint32_t)i);
}

static void put_all(struct rn_redis_store *store, uint32_t round, uint32_t n, size_t bytes)
{
    struct rn_prefix_salt salt = {{0}};

    for (uint32_t i = 0; i < n; i++) {
        name_block(round, i);
        memcpy(noise, &i, sizeof i);
        if (rn_tier_store_put(rn_redis_store_tier(store),
                              &(struct rn_tier_key){i == 0 ? 0 : handles[i - 1], salt, tokens}, noise, bytes,
                              &handles[i]) != RUNNEL_OK)
            die("a put has failed");
    }
}

static void read_all(struct rn_redis_store *store, uint32_t round, uint32_t n, size_t bytes)
{
    struct rn_prefix_salt salt = {{0}};

    for (uint32_t i = 0; i < n; i++) {
        if (i % AT_ONCE == 0)
            rn_tier_store_will_get(rn_redis_store_tier(store), handles + i, n - i < AT_ONCE ? n - i : AT_ONCE);
        name_block(round, i);
        memcpy(noise, &i, sizeof i);
        if (rn_tier_store_get(rn_redis_store_tier(store), handles[i],
                              &(struct rn_tier_key){i == 0 ? 0 : handles[i - 1], salt, tokens}, got) != RUNNEL_OK ||
            memcmp(noise, got, bytes) != 0)
            die("a read has failed");
    }
}

static struct rn_redis_store *open_at(struct rn_heap *heap, const char *url, const char *ca, size_t bytes)
{
    struct rn_redis_options options = {.url = url,
                                       .files = {.ca = ca},
                                       .payload_bytes = bytes,
                                       .command_ms = 5000,
                                       .id = {.block_tokens = TOKENS, .block_bytes = bytes}};
    struct rn_redis_store *store;
    runnel_error error = {0};

    if (rn_redis_store_open(heap, &options, NULL, NULL, &store, &error) != RUNNEL_OK)
        die(error.message);
    if (rn_tier_store_error(rn_redis_store_tier(store), &error))
        die(error.message);
    return store;
}

int main(int argc, char **argv)
{
    uint32_t n = argc < 5 ? 0 : (uint32_t)strtoul(argv[2], NULL, 10);
    size_t bytes = argc < 5 ? 0 : strtoul(argv[3], NULL, 10);
    struct rn_redis_store *store;
    struct stretch begin;
    struct rn_heap heap;
    uint64_t random = 1;

    if (n == 0 || n > MOST_BLOCKS || bytes < 8)
        die("URL BLOCKS BYTES ROUNDS [CA]");
    clock_ = rn_clock_machine();
    rn_heap_init(&heap, NULL);
    noise = rn_alloc(&heap, bytes + 8, 1);
    got = rn_alloc(&heap, bytes, 1);
    if (noise == NULL || got == NULL)
        die("no memory");
    for (size_t i = 0; i + 8 <= bytes + 8; i += 8) {
        uint64_t word = rn_splitmix64(&random);

        memcpy(noise + i, &word, 8);
    }
    begin = now();
    store = open_at(&heap, argv[1], argc > 5 ? argv[5] : NULL, bytes);
    show("open", begin, 0);
    for (uint32_t round = 0; round < (uint32_t)strtoul(argv[4], NULL, 10); round++) {
        begin = now();
        put_all(store, round, n, bytes);
        show("put", begin, (double)n * (double)bytes);
        begin = now();
        read_all(store, round, n, bytes);
        show("read", begin, (double)n * (double)bytes);
    }
    rn_redis_store_close(store);
    rn_free(&heap, noise);
    rn_free(&heap, got);
    return 0;
}
