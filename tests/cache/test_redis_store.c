/* The shared tier against a true redis-server, looked at from beside it by hiredis alone; and against servers that die,
 * hang, drip or talk nonsense. Payloads have a closed form (cold_fixture.h): what is read is right, or a miss. Keys and
 * values are held against what redis_store.h says of them. */
#define _GNU_SOURCE /* usleep */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#include <xxhash.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/bytes.h"
#include "cache/store/fingerprint_hash.h"
#include "cache/store/cold_format.h"
#include "cache/store/redis_store.h"
#include "tests/cache/cold_fixture.h"
#include "tests/cache/redis_fixture.h"
#include "tests/support/patience.h"

enum { NEWS = 1 }; /* keys besides records: the stream */

static struct rn_heap heap;
static struct redis_server server;

static int set_up(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    redis_start(&server, NULL);
    return 0;
}

static int set_up_alone(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    redis_remove(&server);
    return rn_heap_blocks(&heap) == 0 ? 0 : -1;
}

static struct rn_redis_store *open_at(const char *url, struct cold_told *told)
{
    struct rn_redis_options options = {.url = url,
                                       .id = cold_id(),
                                       .payload_bytes = COLD_MOST_PAYLOAD,
                                       .retry_ms = 1,
                                       .list_ms = PATIENCE_S * 1000,
                                       .command_ms = PATIENCE_S * 1000};
    struct rn_redis_store *store;
    runnel_error error = {0};

    if (strncmp(url, "rediss:", 7) == 0)
        options.files = redis_files(&server);
    assert_int_equal(rn_redis_store_open(&heap, &options, told == NULL ? NULL : cold_on_record, told, &store, &error),
                     RUNNEL_OK);
    return store;
}

static runnel_status put(struct rn_redis_store *store, struct cold_key key, uint64_t parent, uint64_t *handle)
{
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    cold_tokens(key, tokens);
    return rn_tier_store_put(rn_redis_store_tier(store), &(struct rn_tier_key){parent, cold_salt(key), tokens}, payload,
                             cold_payload(key, payload), handle);
}

static void put_chain(struct rn_redis_store *store, uint32_t chain, uint32_t n, uint32_t salt, uint64_t *handles)
{
    for (uint32_t d = 0; d < n; d++)
        assert_int_equal(put(store, (struct cold_key){chain, d, salt}, d == 0 ? 0 : handles[d - 1], &handles[d]),
                         RUNNEL_OK);
}

/* 1: the right payload; 0: a miss. */
static int read_one(struct rn_redis_store *store, struct cold_key key, uint64_t parent, uint64_t handle)
{
    uint8_t expected[COLD_MOST_PAYLOAD], got[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];
    runnel_status status;

    cold_tokens(key, tokens);
    status = rn_tier_store_get(rn_redis_store_tier(store), handle,
                               &(struct rn_tier_key){parent, cold_salt(key), tokens}, got);
    if (status != RUNNEL_OK) {
        assert_true(status == RUNNEL_NOT_FOUND || status == RUNNEL_IO);
        return 0;
    }
    assert_int_equal(rn_tier_store_payload_bytes(rn_redis_store_tier(store), handle), cold_payload(key, expected));
    assert_memory_equal(got, expected, cold_payload(key, expected));
    return 1;
}

static size_t read_told(struct rn_redis_store *store, const struct cold_told *told)
{
    size_t good = 0;

    for (size_t i = 0; i < told->n; i++)
        good += (size_t)read_one(store, told->records[i].key, told->records[i].parent, told->records[i].handle);
    return good;
}

/* From beside the store. */
static redisContext *beside(void)
{
    redisContext *c = redisConnectUnix(server.socket);

    assert_true(c != NULL && c->err == 0);
    return c;
}

static long long command(const char *format)
{
    redisContext *c = beside();
    redisReply *reply = redisCommand(c, format);
    long long value;

    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    value = reply->integer;
    freeReplyObject(reply);
    redisFree(c);
    return value;
}

/* ---- What it is for ---- */

static void test_two_stores(void **state)
{
    struct rn_redis_store *a = open_at(server.url, NULL), *b;
    struct cold_told told = {.n = 0};
    struct rn_redis_stats stats;
    uint64_t handles[20], ahead[40];
    size_t n = 0;

    (void)state;
    for (uint32_t c = 0; c < 50; c++)
        put_chain(a, c, 1 + c % 20, c % 3, handles);
    for (uint32_t c = 0; c < 50; c++)
        n += 1 + c % 20;
    b = open_at(server.url, &told);
    assert_int_equal(told.n, n);
    assert_int_equal(read_told(b, &told), n);
    for (size_t i = 0; i < 40; i++)
        ahead[i] = told.records[i].handle;
    for (size_t first = 0; first < 40; first++) { /* asked for ahead; some of them are not read then */
        rn_tier_store_will_get(rn_redis_store_tier(b), ahead + first, (uint32_t)(40 - first));
        for (size_t i = first; i < 40; i += 1 + first % 3)
            assert_int_equal(read_one(b, told.records[i].key, told.records[i].parent, ahead[i]), 1);
    }
    assert_int_equal(read_told(b, &told), n);
    rn_redis_store_stats(b, &stats);
    assert_true(stats.misses == 0 && stats.damaged == 0 && stats.losses == 0 && stats.connections == 1 && stats.up);
    put_chain(b, 1000, 3, 0, handles);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
    a = open_at(server.url, &told);
    assert_int_equal(told.n, n + 3);
    redis_close(a);
    cold_told_free(&told);
}

/* "runnel:1:" fingerprint ":" chain, and a record of the cold store, byte for byte. */
static void test_key_and_value(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    struct rn_tier_id id = cold_id();
    struct rn_fingerprint fingerprint = rn_cold_fingerprint(&id), chain;
    uint64_t seed = rn_cold_seed(&id), handles[2];
    uint8_t text[32 + 4 * COLD_B] = {0}, value[1000], payload[COLD_MOST_PAYLOAD];
    struct cold_key first = {5, 0, 2}, second = {5, 1, 2};
    char hex[40], key[120] = "runnel:1:";
    struct rn_cold_head head;
    int32_t tokens[COLD_B];
    redisReply *reply;
    redisContext *c = beside();
    size_t n;

    (void)state;
    put_chain(store, 5, 2, 2, handles);
    text[0] = 2;
    text[8] = 77;
    for (int d = 0; d < 2; d++) {
        cold_tokens(d == 0 ? first : second, tokens);
        n = 16 + 16 * (size_t)d;
        for (int i = 0; i < COLD_B; i++)
            rn_bytes_put(text + n + 4 * i, (uint32_t)tokens[i], 4);
        chain = rn_fingerprint_of(XXH3_128bits_withSeed(text, n + 4 * COLD_B, seed));
        if (d == 0)
            memcpy(text + 16, chain.bytes, 16);
    }
    rn_cold_hex(&fingerprint, hex);
    strcat(strcat(key, hex), ":");
    rn_cold_hex(&chain, hex);
    strcat(key, hex);
    n = cold_payload(second, payload);
    head = (struct rn_cold_head){.serial = 2,
                                 .parent = 1,
                                 .parent_check = rn_bytes_get(text + 16, 8),
                                 .depth = 1,
                                 .salt = cold_salt(second),
                                 .payload_bytes = (uint32_t)n,
                                 .alive = true,
                                 .payload_check = rn_cold_payload_check(seed, 2, payload, n)};
    rn_cold_head_pack(&head, seed, tokens, COLD_B, value);
    memcpy(value + 96 + 4 * COLD_B, payload, n);
    reply = redisCommand(c, "GET %s", key);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_int_equal(reply->len, 96 + 4 * COLD_B + n);
    assert_memory_equal(reply->str, value, reply->len);
    freeReplyObject(reply);
    redisFree(c);
    redis_close(store);
}

static void test_get_compares(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    struct cold_key key = {1, 1, 0};
    uint64_t handles[3], other[1], none;
    uint8_t got[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    (void)state;
    put_chain(store, 1, 3, 0, handles);
    put_chain(store, 2, 1, 0, other);
    cold_tokens(key, tokens);
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), handles[1],
                                       &(struct rn_tier_key){other[0], cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), handles[1],
                                       &(struct rn_tier_key){0, cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), handles[1],
                                       &(struct rn_tier_key){handles[2], cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), handles[2],
                                       &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    key.salt = 1;
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), handles[1],
                                       &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    key.salt = 0;
    tokens[3]++;
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), handles[1],
                                       &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), 12345,
                                       &(struct rn_tier_key){handles[0], cold_salt(key), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(read_one(store, key, handles[0], handles[1]), 1);
    assert_int_equal(put(store, (struct cold_key){1, 3, 0}, 999, &none), RUNNEL_NOT_FOUND);
    redis_close(store);
}

static void on_gone(void *user, uint64_t handle)
{
    (void)handle;
    ++*(uint64_t *)user;
}

static void test_forget(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    uint64_t handles[3], again[1], gone = 0;

    (void)state;
    put_chain(store, 1, 3, 0, handles);
    assert_int_equal(command("DBSIZE"), 3 + NEWS);
    rn_tier_store_forget(rn_redis_store_tier(store), handles[2]);
    assert_int_equal(command("DBSIZE"), 2 + NEWS);
    assert_int_equal(rn_tier_store_payload_bytes(rn_redis_store_tier(store), handles[2]), 0);
    command("FLUSHALL"); /* as the server does with what is too much */
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, handles[0]), 0);
    rn_tier_store_watch(rn_redis_store_tier(store), on_gone, &gone);
    rn_tier_store_tend(rn_redis_store_tier(store));
    assert_int_equal(gone, 2);
    put_chain(store, 1, 1, 0, again);
    assert_true(again[0] != handles[0] && again[0] != handles[2]);
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, again[0]), 1);
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, handles[0]), 0);
    redis_close(store);
}

static void test_ttl(void **state)
{
    char url[200];
    uint64_t handles[1];
    struct rn_redis_store *store;
    redisContext *c = beside();
    redisReply *keys, *ttl;

    (void)state;
    snprintf(url, sizeof url, "%s?ttl=1000", server.url);
    store = open_at(url, NULL);
    put_chain(store, 1, 1, 0, handles);
    keys = redisCommand(c, "KEYS runnel:1:*[0-9a-f]");
    assert_int_equal(keys->elements, 1);
    ttl = redisCommand(c, "TTL %s", keys->element[0]->str);
    assert_in_range(ttl->integer, 900, 1000);
    freeReplyObject(ttl);
    freeReplyObject(keys);
    redisFree(c);
    redis_close(store);
}

/* ---- Values that are not what they should be ---- */

/* Every byte of every value in turn, and what is no value at all. */
static void test_garbage(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    uint64_t handles[2];
    redisContext *c = beside();
    redisReply *keys, *value;
    size_t bytes, missed = 0;

    (void)state;
    put_chain(store, 1, 1, 0, handles);
    redis_close(store);
    keys = redisCommand(c, "KEYS *[0-9a-f]");
    value = redisCommand(c, "GET %s", keys->element[0]->str);
    bytes = value->len;
    for (size_t i = 0; i < bytes + 4; i++) {
        struct cold_told told = {.n = 0};

        if (i < bytes)
            value->str[i] ^= (char)(1 + i % 255);
        freeReplyObject(redisCommand(c, "DEL %s", keys->element[0]->str));
        if (i == bytes + 1)
            freeReplyObject(redisCommand(c, "LPUSH %s x", keys->element[0]->str));
        else if (i == bytes + 2)
            freeReplyObject(redisCommand(c, "SET %s %s", keys->element[0]->str, ""));
        else
            freeReplyObject(
                redisCommand(c, "SET %s %b", keys->element[0]->str, value->str, i == bytes + 3 ? bytes - 1 : bytes));
        store = open_at(server.url, &told);
        if (i != bytes)
            missed += read_told(store, &told) == 0;
        else
            assert_int_equal(read_told(store, &told), 1);
        redis_close(store);
        cold_told_free(&told);
        if (i < bytes)
            value->str[i] ^= (char)(1 + i % 255);
    }
    assert_int_equal(missed, bytes + 3); /* even the byte that says whether a record lives: dead is a miss too */
    freeReplyObject(value);
    freeReplyObject(keys);
    redisFree(c);
}

/* Damaged while a store is open: a miss, and the value is gone, so that a good one can take its place. */
static void test_damaged_value(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    uint64_t handles[3], again, gone = 0, ahead[3];
    struct rn_redis_stats stats;
    redisContext *c = beside();
    redisReply *keys;

    (void)state;
    put_chain(store, 1, 1, 0, handles);
    keys = redisCommand(c, "KEYS *[0-9a-f]");
    freeReplyObject(redisCommand(c, "SETRANGE %s 150 zzz", keys->element[0]->str));
    put_chain(store, 2, 2, 0, handles + 1);
    memcpy(ahead, handles, sizeof ahead);
    rn_tier_store_will_get(rn_redis_store_tier(store), ahead, 3);
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, handles[0]), 0);
    assert_int_equal(read_one(store, (struct cold_key){2, 0, 0}, 0, handles[1]), 1);
    assert_int_equal(read_one(store, (struct cold_key){2, 1, 0}, handles[1], handles[2]), 1);
    rn_tier_store_watch(rn_redis_store_tier(store), on_gone, &gone);
    rn_tier_store_tend(rn_redis_store_tier(store));
    assert_int_equal(gone, 1);
    assert_int_equal(command("DBSIZE"), 2 + NEWS);
    rn_redis_store_stats(store, &stats);
    assert_int_equal(stats.damaged, 1);
    assert_int_equal(put(store, (struct cold_key){1, 0, 0}, 0, &again), RUNNEL_OK);
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, again), 1);
    freeReplyObject(keys);
    redisFree(c);
    redis_close(store);
}

/* ---- A server that is away ---- */

static void test_killed(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    struct patience patience = {0};
    uint64_t handles[4], none;
    runnel_error error = {0};
    struct rn_redis_stats stats;

    (void)state;
    put_chain(store, 1, 4, 0, handles);
    rn_tier_store_will_get(rn_redis_store_tier(store), handles, 4);
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, handles[0]), 1);
    redis_stop(&server);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put(store, (struct cold_key){9, 0, 0}, 0, &none), RUNNEL_IO);
        read_one(store, (struct cold_key){1, 1, 0}, handles[0], handles[1]);
    }
    assert_true(rn_tier_store_error(rn_redis_store_tier(store), &error));
    assert_non_null(strstr(error.message, strrchr(server.url, '/') + 1));
    assert_false(rn_tier_store_error(rn_redis_store_tier(store), &error));
    redis_again(&server);
    while (put(store, (struct cold_key){9, 0, 0}, 0, &none) != RUNNEL_OK)
        assert_true(patience_left(&patience));
    assert_int_equal(read_one(store, (struct cold_key){9, 0, 0}, 0, none), 1);
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, handles[0]), 0); /* the new one is empty */
    rn_redis_store_stats(store, &stats);
    assert_true(stats.connections >= 2 && stats.losses >= 1);
    redis_close(store);
}

/* Not again before its time: the calls in between cost nothing. */
static uint64_t fake_us;

static uint64_t fake_now(void *user)
{
    (void)user;
    return fake_us;
}

static void test_retry(void **state)
{
    struct rn_redis_options options = {.url = "unix:/nonexistent/socket",
                                       .id = cold_id(),
                                       .payload_bytes = 100,
                                       .retry_ms = 1000,
                                       .clock = {.now_us = fake_now}};
    struct rn_redis_store *store;
    struct rn_redis_stats stats;
    uint64_t none, tried_at = 0, wait = 1000000;
    uint8_t byte = 1;
    int32_t tokens[COLD_B] = {0};

    (void)state;
    fake_us = 1000;
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &store, NULL), RUNNEL_OK);
    tried_at = fake_us;
    for (int i = 0; i < 10; i++) {
        fake_us = tried_at + wait - 1;
        rn_redis_store_stats(store, &stats);
        assert_false(stats.up);
        fake_us++;
        rn_redis_store_stats(store, &stats);
        assert_true(stats.up);
        assert_int_equal(rn_tier_store_put(rn_redis_store_tier(store),
                                           &(struct rn_tier_key){0, cold_salt((struct cold_key){0}), tokens}, &byte, 1,
                                           &none),
                         RUNNEL_IO);
        tried_at = fake_us;
        wait = 2 * wait < 60000000 ? 2 * wait : 60000000;
    }
    redis_close(store);
}

static void test_full(void **state)
{
    struct rn_redis_store *store = open_at(server.url, NULL);
    uint64_t handles[3], none;
    struct rn_redis_stats stats;
    runnel_error error = {0};

    (void)state;
    put_chain(store, 1, 3, 0, handles);
    command("CONFIG SET maxmemory 1");
    assert_int_equal(put(store, (struct cold_key){2, 0, 0}, 0, &none), RUNNEL_IO);
    assert_true(rn_tier_store_error(rn_redis_store_tier(store), &error));
    assert_non_null(strstr(error.message, "OOM"));
    assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, handles[0]), 1); /* the connection stays */
    rn_redis_store_stats(store, &stats);
    assert_true(stats.refused == 1 && stats.losses == 0);
    redis_close(store);
}

static void test_password(void **state)
{
    static const char *const options[] = {"--requirepass", "geheim:@1", "--bind", "127.0.0.1", NULL};
    struct rn_redis_store *store;
    runnel_error error = {0};
    char url[200];
    uint64_t none;
    redisReply *reply;
    redisContext *c;

    (void)state;
    redis_remove(&server);
    redis_start(&server, options);
    c = beside();
    freeReplyObject(redisCommand(c, "AUTH geheim:@1"));
    for (int port = 20000 + getpid() % 20000;; port++) {
        bool taken;

        reply = redisCommand(c, "CONFIG SET port %d", port);
        taken = reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (!taken)
            continue;
        snprintf(url, sizeof url, "redis://:geheim%%3A%%401@127.0.0.1:%d/3", port);
        break;
    }
    store = open_at(url, NULL);
    assert_int_equal(put(store, (struct cold_key){1, 0, 0}, 0, &none), RUNNEL_OK);
    redis_close(store);
    freeReplyObject(redisCommand(c, "SELECT 3"));
    reply = redisCommand(c, "DBSIZE");
    assert_int_equal(reply->integer, 1 + NEWS);
    freeReplyObject(reply);
    redisFree(c);
    store = open_at(server.url, NULL);
    assert_int_equal(put(store, (struct cold_key){1, 0, 0}, 0, &none), RUNNEL_IO);
    assert_true(rn_tier_store_error(rn_redis_store_tier(store), &error));
    assert_non_null(strstr(error.message, "NOAUTH"));
    redis_close(store);
}

/* ---- Servers that are none ---- */

static void act_hang(int fd)
{
    (void)fd;
    for (;;)
        pause();
}

static void act_nonsense(int fd)
{
    uint64_t random = (uint64_t)getpid() + 5;
    char bytes[512];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)rn_splitmix64(&random);
    while (read(fd, bytes, 1) == 1 && write(fd, bytes, sizeof bytes) > 0)
        continue;
}

/* The beginning of an answer without end. */
static void act_drip(int fd)
{
    if (write(fd, "$1000000\r\n", 10) != 10)
        return;
    while (write(fd, "x", 1) == 1)
        usleep(2000);
}

static void act_counts(int fd)
{
    static const char text[] = "*1000000\r\n*1000000\r\n*1000000\r\n*-5\r\n$-7\r\n";

    if (write(fd, text, sizeof text - 1) > 0)
        usleep(1000000);
}

/* Says yes to everything. */
static void act_yes(int fd)
{
    char bytes[4096];

    while (read(fd, bytes, sizeof bytes) > 0 && write(fd, "+OK\r\n", 5) == 5)
        continue;
}

static void act_close(int fd)
{
    char byte;

    if (read(fd, &byte, 1) != 1)
        return;
}

/* Comes up, and then has an answer for each command that takes half a gigabyte. */
static void act_large(int fd)
{
    static char bytes[1 << 16];
    char word[256];

    if (read(fd, word, sizeof word) <= 0 || write(fd, "+PONG\r\n", 7) != 7 || read(fd, word, sizeof word) <= 0 ||
        write(fd, "$500000000\r\n", 12) != 12)
        return;
    while (write(fd, bytes, sizeof bytes) > 0)
        continue;
}

/* Comes up, and then has an array of a hundred million for each command. */
static void act_many(int fd)
{
    char word[256];

    if (read(fd, word, sizeof word) > 0 && write(fd, "+PONG\r\n", 7) == 7 && read(fd, word, sizeof word) > 0)
        (void)!write(fd, "*100000000\r\n:1\r\n", 16);
}

static uint64_t stands_still(void *user)
{
    (void)user;
    return 1000000;
}

/* Its first answer is given up, since it is longer than any good one. */
static void is_given_up(void (*act)(int fd))
{
    struct rn_redis_options options = {.id = cold_id(), .payload_bytes = COLD_MOST_PAYLOAD, .clock = {stands_still}};
    struct rn_redis_store *store;
    struct rn_redis_stats stats;
    runnel_error error = {0};

    redis_pretend(&server, act);
    options.url = server.url;
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &store, NULL), RUNNEL_OK);
    assert_true(rn_tier_store_error(rn_redis_store_tier(store), &error));
    assert_non_null(strstr(error.message, "longer than any"));
    rn_redis_store_stats(store, &stats);
    assert_true(stats.connections == 1 && stats.losses == 1);
    redis_close(store);
    redis_remove(&server);
}

/* An answer is given up when it is longer than any good one, not when its time is over: here it never is. */
static void test_large(void **state)
{
    (void)state;
    is_given_up(act_large);
}

/* So is one that says it has more elements than so many bytes can hold: no memory is taken for them. */
static void test_many(void **state)
{
    (void)state;
    is_given_up(act_many);
}

/* Everything is a miss; how many seconds it took. */
static time_t ask_in_vain(void (*act)(int fd))
{
    struct rn_redis_options options = {
        .id = cold_id(), .payload_bytes = COLD_MOST_PAYLOAD, .command_ms = 50, .connect_ms = 1000, .retry_ms = 1};
    struct rn_redis_store *store;
    runnel_error error = {0};
    uint64_t none;
    time_t took, began;

    redis_pretend(&server, act);
    options.url = server.url;
    began = patience_now();
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &store, NULL), RUNNEL_OK);
    for (int k = 0; k < 5; k++) {
        runnel_status status = put(store, (struct cold_key){1, 0, 0}, 0, &none);

        assert_true(status == RUNNEL_IO || (act == act_yes && status == RUNNEL_OK));
        if (status == RUNNEL_OK)
            assert_int_equal(read_one(store, (struct cold_key){1, 0, 0}, 0, none), 0);
        usleep(2000);
    }
    took = patience_now() - began;
    assert_true(rn_tier_store_error(rn_redis_store_tier(store), &error));
    redis_close(store);
    redis_remove(&server);
    return took;
}

/* All of it ends: an answer that drips would take half an hour. */
static void test_no_server(void **state)
{
    static void (*const acts[])(int fd) = {act_hang, act_nonsense, act_drip, act_counts, act_yes, act_close};

    (void)state;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        assert_in_range(ask_in_vain(acts[i]), 0, PATIENCE_S);
}

/* A clock that goes on when it is looked at, and by nothing else. */
static uint64_t tick_us;

static uint64_t ticks(void *user)
{
    (void)user;
    return fake_us += tick_us;
}

/* Ten puts while a server that hangs is tried again: by the store's own clock they wait not as long as an attempt may
 * take. */
static void test_hangs_beside(void **state)
{
    struct rn_redis_options options = {.id = cold_id(),
                                       .payload_bytes = COLD_MOST_PAYLOAD,
                                       .connect_ms = 1,
                                       .command_ms = 1000,
                                       .retry_ms = 1,
                                       .clock = {.now_us = ticks}};
    struct rn_redis_store *store;
    uint64_t began, none;

    (void)state;
    redis_pretend(&server, act_hang);
    options.url = server.url;
    tick_us = 500000; /* it waits a second */
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &store, NULL), RUNNEL_OK);
    tick_us = 5000;
    began = fake_us;
    for (int i = 0; i < 10; i++)
        assert_int_equal(put(store, (struct cold_key){1, 0, 0}, 0, &none), RUNNEL_IO);
    assert_in_range(fake_us - began, 50000, 899000);
    redis_close(store);
    redis_remove(&server);
}

/* The first connection is closed at once. Of the others the way is longer than any wait of a call. */
static void act_far(int fd)
{
    static int n;
    char bytes[64];

    if (n++ == 0)
        return;
    while (read(fd, bytes, sizeof bytes) > 0) {
        usleep(250000);
        if (write(fd, "+PONG\r\n", 7) != 7)
            return;
    }
}

/* A connection that takes longer than a call may wait is made all the same, by calls that wait for nothing. */
static void test_far(void **state)
{
    struct rn_redis_options options = {
        .id = cold_id(), .payload_bytes = COLD_MOST_PAYLOAD, .connect_ms = 20, .command_ms = 50, .retry_ms = 1};
    struct rn_redis_stats stats = {.up = false};
    struct patience patience = {0};
    struct rn_redis_store *store;
    bool more, no_room;

    (void)state;
    redis_pretend(&server, act_far);
    options.url = server.url;
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &store, NULL), RUNNEL_OK);
    while (stats.connections == 0) {
        rn_tier_store_news(rn_redis_store_tier(store), 8, NULL, NULL, &more, &no_room);
        rn_redis_store_stats(store, &stats);
        assert_true(patience_left(&patience));
    }
    redis_close(store);
    redis_remove(&server);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define ALONE(f) cmocka_unit_test_setup_teardown(f, set_up_alone, NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(test_retry),        ALONE(test_no_server), ALONE(test_hangs_beside), ALONE(test_far),
        ALONE(test_large),        ALONE(test_many),      TEST(test_two_stores),    TEST(test_key_and_value),
        TEST(test_get_compares),  TEST(test_forget),     TEST(test_ttl),           TEST(test_garbage),
        TEST(test_damaged_value), TEST(test_killed),     TEST(test_full),          TEST(test_password),
    };

    if (!redis_is_installed()) {
        puts("skipped: there is no redis-server");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
