/* News of the shared tier: what one store puts is told to another that has been open all the time. Against a true
 * redis-server, looked at and abused from beside by hiredis alone. Records have a closed form (cold_fixture.h): what is
 * told is held against it, parents first, and what is read is right or a miss. */
#define _GNU_SOURCE /* usleep, kill */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include <cmocka.h>

#include "cache/store/redis_store.h"
#include "tests/cache/cold_fixture.h"
#include "tests/cache/redis_fixture.h"
#include "tests/support/patience.h"

enum { MOST_CALLS = 100000 };

static struct rn_heap heap;
static struct redis_server server;
static uint64_t later_us, tick_us; /* the stores' clock is the machine's and so much more; each look adds a tick */
static uint32_t max_records, list_ms;

static uint64_t now_us(void *user)
{
    const struct rn_clock clock = rn_clock_machine();

    (void)user;
    later_us += tick_us;
    return rn_now_us(&clock) + later_us;
}

static int set_up(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    redis_start(&server, NULL);
    later_us = tick_us = max_records = 0;
    list_ms = PATIENCE_S * 1000;
    return 0;
}

static int set_up_alone(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    later_us = tick_us = max_records = 0;
    list_ms = PATIENCE_S * 1000;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    redis_remove(&server);
    return rn_heap_blocks(&heap) == 0 ? 0 : -1;
}

static struct rn_redis_store *open_as(const char *url, uint8_t model)
{
    struct rn_redis_options options = {.url = url,
                                       .files = redis_files(&server),
                                       .id = cold_id(),
                                       .payload_bytes = COLD_MOST_PAYLOAD,
                                       .retry_ms = 1,
                                       .list_ms = list_ms,
                                       .command_ms = PATIENCE_S * 1000,
                                       .relist_ms = 1,
                                       .max_records = max_records,
                                       .clock = {.now_us = now_us}};
    struct rn_redis_store *store;
    runnel_error error = {0};

    options.id.model.bytes[3] ^= model;
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &store, &error), RUNNEL_OK);
    return store;
}

static struct rn_redis_store *open_store(void)
{
    return open_as(server.url, 0);
}

static void put_chain(struct rn_redis_store *store, uint32_t chain, uint32_t n)
{
    uint8_t payload[COLD_MOST_PAYLOAD];
    uint64_t parent = 0;

    for (uint32_t d = 0; d < n; d++) {
        struct cold_key key = {chain, d, 0};
        int32_t tokens[COLD_B];

        cold_tokens(key, tokens);
        assert_int_equal(rn_tier_store_put(rn_redis_store_tier(store),
                                           &(struct rn_tier_key){parent, cold_salt(key), tokens}, payload,
                                           cold_payload(key, payload), &parent),
                         RUNNEL_OK);
    }
}

/* All that there is; each call tells of at most `most`. How many calls it took. */
static uint32_t hear_by(struct rn_redis_store *store, uint32_t most, struct cold_told *told)
{
    uint32_t n_calls = 0;
    bool more = true, no_room;

    while (more) {
        size_t before = told->n;

        rn_tier_store_news(rn_redis_store_tier(store), most, cold_on_record, told, &more, &no_room);
        assert_true(told->n - before <= most && ++n_calls < MOST_CALLS);
    }
    return n_calls;
}

static uint32_t hear(struct rn_redis_store *store, struct cold_told *told)
{
    return hear_by(store, 8, told);
}

/* What was told since `from` is `n` records of which each can be read. */
static void assert_told(struct rn_redis_store *store, const struct cold_told *told, size_t from, size_t n)
{
    assert_int_equal(told->n - from, n);
    for (size_t i = from; i < told->n; i++) {
        const struct cold_record *r = &told->records[i];
        uint8_t expected[COLD_MOST_PAYLOAD], got[COLD_MOST_PAYLOAD];
        int32_t tokens[COLD_B];
        size_t bytes = cold_payload(r->key, expected);

        cold_tokens(r->key, tokens);
        assert_int_equal(rn_tier_store_payload_bytes(rn_redis_store_tier(store), r->handle), bytes);
        assert_int_equal(rn_tier_store_get(rn_redis_store_tier(store), r->handle,
                                           &(struct rn_tier_key){r->parent, cold_salt(r->key), tokens}, got),
                         RUNNEL_OK);
        assert_memory_equal(got, expected, bytes);
    }
}

static struct rn_redis_stats stats_of(const struct rn_redis_store *store)
{
    struct rn_redis_stats stats;

    rn_redis_store_stats(store, &stats);
    return stats;
}

/* ---- From beside the stores ---- */

static redisContext *beside(void)
{
    redisContext *c = redisConnectUnix(server.socket);

    assert_true(c != NULL && c->err == 0);
    return c;
}

/* key [100] */
static void stream_key(redisContext *c, char *key)
{
    redisReply *keys = redisCommand(c, "KEYS runnel:1:*:news");

    assert_int_equal(keys->elements, 1);
    snprintf(key, 100, "%s", keys->element[0]->str);
    freeReplyObject(keys);
}

static long long ask(redisContext *c, const char *format, const char *key)
{
    redisReply *reply = redisCommand(c, format, key);
    long long value = reply->integer;

    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    return value;
}

/* Entries of a stranger, for records that are not there. */
static void flood(redisContext *c, const char *key, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        redisAppendCommand(c, "XADD %s * 0123456789abcdef %032x", key, i + 1);
    for (unsigned i = 0; i < n; i++) {
        redisReply *reply;

        assert_int_equal(redisGetReply(c, (void **)&reply), REDIS_OK);
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        freeReplyObject(reply);
    }
}

/* ---- What it is for ---- */

static void test_heard(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store(), *c;
    struct cold_told by_a = {.n = 0}, by_b = {.n = 0}, by_c = {.n = 0};

    (void)state;
    assert_int_equal(hear(b, &by_b), 1);
    assert_int_equal(by_b.n, 0);
    put_chain(a, 1, 20);
    hear(b, &by_b);
    assert_told(b, &by_b, 0, 20);
    put_chain(a, 2, 3);
    put_chain(b, 3, 5);
    hear(b, &by_b);
    assert_told(b, &by_b, 20, 3); /* and not its own */
    hear(a, &by_a);
    assert_told(a, &by_a, 0, 5);
    assert_int_equal(hear(a, &by_a), 1);
    assert_int_equal(by_a.n, 5); /* once each */
    c = open_store();
    hear(c, &by_c);
    assert_int_equal(by_c.n, 0); /* it was all there when c was opened */
    assert_int_equal(stats_of(c).records, 28);
    assert_int_equal(stats_of(a).lists + stats_of(b).lists + stats_of(c).lists, 0);
    redis_close(a);
    redis_close(b);
    redis_close(c);
    cold_told_free(&by_a);
    cold_told_free(&by_b);
}

/* A little with each call: records by `most`, and what is one's own or known by 64. */
static void test_a_little(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store();
    struct cold_told told = {.n = 0};

    (void)state;
    put_chain(a, 1, 60);
    put_chain(b, 2, 200);
    assert_in_range(hear_by(b, 3, &told), 60 / 3, 60 / 3 + 200 / 64 + 2);
    assert_told(b, &told, 0, 60);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

/* A child is told only behind its parent, wherever that one comes from. */
static void test_parents(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store(), *c = open_store();
    struct cold_told told = {.n = 0};

    (void)state;
    put_chain(a, 1, 4); /* of which b hears nothing yet, and puts the same */
    put_chain(b, 1, 6);
    hear(b, &told);
    assert_int_equal(told.n, 0);
    hear(c, &told);
    assert_told(c, &told, 0, 6);
    rn_tier_store_let_go(rn_redis_store_tier(c), told.records[2].handle);
    rn_tier_store_tend(rn_redis_store_tier(c));
    assert_int_equal(rn_tier_store_payload_bytes(rn_redis_store_tier(c), told.records[2].handle), 0);
    put_chain(a, 1, 3); /* again: known to b, not any more to c */
    hear(c, &told);
    assert_told(c, &told, 6, 1);
    redis_close(a);
    redis_close(b);
    redis_close(c);
    cold_told_free(&told);
}

/* ---- What is no news ---- */

static void test_garbage(void **state)
{
    static const char *const words[] = {"XADD %s * x y",
                                        "XADD %s * 0123456789abcdef zz",
                                        "XADD %s * a b c d",
                                        "XADD %s * 0123456789abcdef 00",
                                        "XADD %s * 0123456789abcdef 0000000000000000000000000000000g",
                                        "XADD %s * 0123456789abcdef ABCDEFABCDEFABCDEFABCDEFABCDEFAB",
                                        "XADD %s * 0123456789abcde 00000000000000000000000000000001"};
    struct rn_redis_store *a = open_store(), *b = open_store(), *other = open_as(server.url, 1);
    struct cold_told told = {.n = 0};
    redisContext *c = beside();
    runnel_error error;
    char key[100];
    uint32_t calls;

    (void)state;
    put_chain(a, 1, 2);
    stream_key(c, key);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ask(c, words[i], key);
    flood(c, key, 5000);
    put_chain(other, 5, 3); /* of another model: a stream of its own */
    put_chain(a, 2, 2);
    calls = hear(b, &told);
    assert_told(b, &told, 0, 4);
    assert_in_range(calls, 5000 / 8, 5000 / 8 + 5); /* eight look-ups each */
    assert_int_equal(stats_of(b).lists, 0);
    assert_false(rn_tier_store_error(rn_redis_store_tier(b), &error));
    redisFree(c);
    redis_close(a);
    redis_close(b);
    redis_close(other);
    cold_told_free(&told);
}

/* Records that are not what the stream says: damaged, of another place, of another type, gone. */
static void test_damaged(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store();
    struct cold_told told = {.n = 0};
    redisContext *c = beside();
    redisReply *keys;
    char stream[100];

    (void)state;
    for (uint32_t chain = 0; chain < 40; chain++)
        put_chain(a, chain, 1);
    stream_key(c, stream);
    keys = redisCommand(c, "KEYS *[0-9a-f]");
    assert_int_equal(keys->elements, 40);
    for (unsigned i = 0; i < 32; i++) {
        static const char *const words[] = {"SETRANGE %s 20 x", "APPEND %s x", "DEL %s", "SET %s short"};
        redisReply *other = redisCommand(c, "GET %s", keys->element[39]->str);

        if (i < 24)
            ask(c, words[i % 4], keys->element[i]->str);
        else /* a good record under another's key */
            freeReplyObject(redisCommand(c, "SET %s %b", keys->element[i]->str, other->str, other->len));
        freeReplyObject(other);
    }
    hear(b, &told);
    assert_told(b, &told, 0, 8);
    freeReplyObject(keys);
    redisFree(c);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

/* ---- Streams that end, and servers ---- */

/* Cut behind the last entry that was seen: all is listed anew, and only what is not known is told. */
static void cut_with(const char *cut)
{
    struct rn_redis_store *a = open_store(), *b = open_store();
    struct cold_told told = {.n = 0};
    redisContext *c = beside();
    char key[100];

    put_chain(a, 1, 5);
    hear(b, &told);
    put_chain(a, 2, 50);
    stream_key(c, key);
    ask(c, cut, key);
    assert_int_equal(hear(b, &told), 1); /* it sees that something is missing */
    usleep(2000);
    hear(b, &told);
    assert_told(b, &told, 5, 50);
    assert_int_equal(stats_of(b).lists, 1);
    put_chain(a, 3, 1);
    hear(b, &told);
    assert_told(b, &told, 55, 1);
    assert_int_equal(stats_of(b).lists, 1);
    freeReplyObject(redisCommand(c, "FLUSHALL"));
    redisFree(c);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

static void test_cut(void **state)
{
    (void)state;
    cut_with("XTRIM %s MAXLEN 0");
    cut_with("XTRIM %s MAXLEN 1");
}

/* A list of many keys, most of them none of ours, takes many calls; what comes meanwhile is not lost. */
static void test_long_list(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store();
    struct cold_told told = {.n = 0};
    redisContext *c = beside();
    bool more, no_room;
    char key[100];

    (void)state;
    for (int i = 0; i < 4000; i++)
        freeReplyObject(redisCommand(c, "SET other:%d x", i));
    put_chain(a, 1, 1);
    hear(b, &told);
    for (uint32_t chain = 2; chain < 22; chain++)
        put_chain(a, chain, 20);
    stream_key(c, key);
    ask(c, "XTRIM %s MAXLEN 0", key);
    hear(b, &told);
    usleep(2000);
    for (int i = 0; i < 5; i++) { /* in the middle of it */
        rn_tier_store_news(rn_redis_store_tier(b), 8, cold_on_record, &told, &more, &no_room);
        assert_true(more);
    }
    assert_int_equal(told.n, 1);
    put_chain(a, 50, 10);
    assert_in_range(hear(b, &told), 50, 100);
    assert_told(b, &told, 1, 20 * 20 + 10);
    redisFree(c);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

/* The time for the first list is over behind its first step: the connection stays, and the rest is listed later. */
static void test_list_in_part(void **state)
{
    struct rn_redis_store *a = open_store(), *b;
    redisContext *c = beside();
    bool more = true, no_room;
    runnel_error error;

    (void)state;
    put_chain(a, 1, 20);
    for (int i = 0; i < 4000; i++)
        freeReplyObject(redisCommand(c, "SET other:%d x", i));
    list_ms = 1;
    tick_us = 10000;
    b = open_store();
    tick_us = 0;
    assert_int_equal(stats_of(b).connections, 1);
    assert_int_equal(stats_of(b).losses, 0);
    assert_true(stats_of(b).up);
    assert_false(rn_tier_store_error(rn_redis_store_tier(b), &error));
    usleep(2000);
    while (more)
        rn_tier_store_news(rn_redis_store_tier(b), 8, NULL, NULL, &more, &no_room);
    assert_int_equal(stats_of(b).records, 20);
    assert_int_equal(stats_of(b).lists, 1);
    redisFree(c);
    redis_close(a);
    redis_close(b);
}

/* Until the store has its second connection: a call waits for that but a moment. */
static void come_back(struct rn_redis_store *store, struct cold_told *told)
{
    struct patience patience = {0};

    while (stats_of(store).connections < 2) {
        hear(store, told);
        assert_true(patience_left(&patience));
    }
    assert_int_equal(stats_of(store).connections, 2);
}

/* The server is killed, and an empty one takes its place: what is put there is heard of. */
static void test_replaced(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store(), *c = open_store();
    struct cold_told told = {.n = 0}, by_a = {.n = 0}, by_c = {.n = 0};
    struct patience patience = {0};

    (void)state;
    put_chain(a, 1, 4);
    hear(b, &told);
    redis_stop(&server);
    hear(b, &told);
    hear(c, &by_c); /* which has not seen any entry */
    assert_int_equal(told.n, 4);
    assert_int_equal(hear(a, &by_a), 1);
    redis_again(&server);
    later_us += 2000000;
    come_back(a, &by_a);
    put_chain(a, 2, 4);
    while (told.n < 8 || by_c.n < 4) {
        hear(b, &told);
        hear(c, &by_c);
        assert_true(patience_left(&patience));
    }
    assert_told(b, &told, 4, 4);
    assert_told(c, &by_c, 0, 4);
    redis_close(a);
    redis_close(b);
    redis_close(c);
    cold_told_free(&told);
    cold_told_free(&by_a);
    cold_told_free(&by_c);
}

/* A server that was away when the store was opened is listed when it is back. */
static void test_away_at_first(void **state)
{
    const struct rn_redis_options options = {.url = server.url,
                                             .files = redis_files(&server),
                                             .id = cold_id(),
                                             .payload_bytes = COLD_MOST_PAYLOAD,
                                             .connect_ms = 50,
                                             .command_ms = 200,
                                             .retry_ms = 1,
                                             .relist_ms = 1};
    struct rn_redis_store *a = open_store(), *b;
    struct cold_told told = {.n = 0};
    struct patience patience = {0};
    runnel_error error;

    (void)state;
    put_chain(a, 1, 30);
    kill(server.pid, SIGSTOP);
    assert_int_equal(rn_redis_store_open(&heap, &options, NULL, NULL, &b, &error), RUNNEL_OK);
    hear(b, &told);
    assert_int_equal(told.n, 0);
    kill(server.pid, SIGCONT);
    while (told.n < 30) {
        hear(b, &told);
        assert_true(patience_left(&patience));
    }
    assert_told(b, &told, 0, 30);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

static bool say(int fd, const char *words)
{
    return write(fd, words, strlen(words)) == (ssize_t)strlen(words);
}

/* A server of one entry of a stream and no keys. When it first tells of the entry it takes no more commands. */
static void act_deaf(int fd)
{
    static const char entry[] = "*1\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$16\r\n0123456789abcdef\r\n"
                                "$32\r\n00000000000000000000000000000001\r\n";
    static bool told;
    char command[4096];
    bool good = true;

    while (good) {
        ssize_t n = read(fd, command, sizeof command - 1);

        if (n <= 0)
            return;
        command[n] = '\0';
        if (strstr(command, "XRANGE") != NULL) {
            if (!told)
                shutdown(fd, SHUT_RD);
            told = true;
            good = say(fd, entry);
        } else if (strstr(command, "XREVRANGE") != NULL) {
            good = say(fd, told ? entry : "*0\r\n");
        } else if (strstr(command, "SCAN") != NULL) {
            good = say(fd, "*2\r\n$1\r\n0\r\n*0\r\n");
        } else {
            good = say(fd, "+PONG\r\n");
        }
    }
}

/* The connection is lost between an entry and its record: all is listed anew. */
static void test_lost_between(void **state)
{
    struct patience patience = {0};
    struct rn_redis_store *b;

    (void)state;
    redis_pretend(&server, act_deaf);
    b = open_store();
    assert_int_equal(stats_of(b).connections, 1);
    assert_int_equal(stats_of(b).lists, 0);
    while (stats_of(b).lists == 0) {
        bool more, no_room;

        rn_tier_store_news(rn_redis_store_tier(b), 8, NULL, NULL, &more, &no_room);
        assert_true(patience_left(&patience));
    }
    assert_int_equal(stats_of(b).losses, 1);
    assert_int_equal(stats_of(b).lists, 1);
    redis_close(b);
}

/* ---- Refused ---- */

/* The stream's key is something else: told once, no news for a minute, and all else works. */
static void test_no_stream(void **state)
{
    struct rn_redis_store *a = open_store(), *b = open_store();
    struct cold_told told = {.n = 0};
    redisContext *c = beside();
    runnel_error error;
    char key[100];

    (void)state;
    put_chain(a, 1, 1);
    stream_key(c, key);
    ask(c, "DEL %s", key);
    freeReplyObject(redisCommand(c, "SET %s x", key));
    for (int i = 0; i < 2; i++) {
        put_chain(a, 2, 3);
        hear(b, &told);
    }
    assert_int_equal(told.n, 0);
    assert_true(rn_tier_store_error(rn_redis_store_tier(a), &error));
    assert_non_null(strstr(error.message, "WRONGTYPE"));
    assert_true(rn_tier_store_error(rn_redis_store_tier(b), &error));
    assert_false(rn_tier_store_error(rn_redis_store_tier(a), &error) ||
                 rn_tier_store_error(rn_redis_store_tier(b), &error));
    assert_int_equal(stats_of(a).refused + stats_of(a).losses + stats_of(b).losses, 0);
    ask(c, "DEL %s", key);
    put_chain(a, 3, 1);
    assert_int_equal(ask(c, "EXISTS %s", key), 0);
    later_us += 61 * 1000000;
    put_chain(a, 4, 2);
    for (int i = 0; i < 3; i++) {
        hear(b, &told);
        usleep(2000);
    }
    assert_told(b, &told, 0, 1 + 3 + 1 + 2); /* all of it: the stream that it knew is gone */
    redisFree(c);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

/* As with a server that knows no streams. */
static void test_denied(void **state)
{
    struct rn_redis_store *a = open_store(), *b;
    struct cold_told told = {.n = 0};
    redisContext *c = beside();
    runnel_error error;

    (void)state;
    freeReplyObject(redisCommand(c, "ACL SETUSER default -xadd -xrange -xrevrange"));
    put_chain(a, 1, 3);
    assert_int_equal(stats_of(a).puts, 3);
    assert_true(rn_tier_store_error(rn_redis_store_tier(a), &error));
    assert_non_null(strstr(error.message, "NOPERM"));
    b = open_store();
    assert_int_equal(stats_of(b).records, 3);
    hear(b, &told);
    assert_int_equal(told.n, 0);
    redisFree(c);
    redis_close(a);
    redis_close(b);
}

/* 200 bytes; no eight in a row come twice. */
static void long_password(char *password)
{
    for (int i = 0; i < 50; i++)
        snprintf(password + 4 * i, 5, "p%03d", i * 7);
}

/* Knows no AUTH, and repeats it as Redis does: 128 bytes of what is behind the first word. */
static void act_repeats(int fd)
{
    char bytes[4096], password[201], answer[300];
    int n;

    long_password(password);
    n = snprintf(answer, sizeof answer, "-ERR unknown command 'AUTH', with args beginning with: '%.128s' \r\n",
                 password);
    if (read(fd, bytes, sizeof bytes) <= 0 || write(fd, answer, (size_t)n) != n)
        return;
    while (read(fd, bytes, sizeof bytes) > 0)
        continue;
}

/* Nothing of a long password is in an error, also where the server repeats but the beginning. */
static void test_repeated_password(void **state)
{
    struct rn_redis_store *store;
    runnel_error error = {0};
    char password[201], url[500];

    (void)state;
    long_password(password);
    redis_pretend(&server, act_repeats);
    snprintf(url, sizeof url, "unix://:%s@%s", password, server.socket);
    store = open_as(url, 0);
    assert_true(rn_tier_store_error(rn_redis_store_tier(store), &error));
    assert_non_null(strstr(error.message, "an error with the password in it"));
    assert_null(strstr(error.message, "p000"));
    redis_close(store);
}

/* ---- Bounds ---- */

/* The stream is kept short, and lives no longer than the records. */
static void test_kept(void **state)
{
    struct rn_redis_store *a;
    redisContext *c = beside();
    char key[100], url[200];

    (void)state;
    snprintf(url, sizeof url, "%s?ttl=1000", server.url);
    a = open_as(url, 0);
    put_chain(a, 1, 1);
    stream_key(c, key);
    assert_in_range(ask(c, "TTL %s", key), 900, 1000);
    flood(c, key, 30000);
    put_chain(a, 2, 3); /* Redis cuts 10,000 at a time */
    assert_in_range(ask(c, "XLEN %s", key), 16384, 16384 + 200);
    redisFree(c);
    redis_close(a);
}

/* A store that can keep only so many in mind says so before it is full, and goes on when some are let go. */
static void test_no_room(void **state)
{
    struct rn_redis_store *a = open_store(), *b;
    struct cold_told told = {.n = 0};
    bool more, no_room = false;

    (void)state;
    max_records = 64;
    b = open_store();
    put_chain(a, 1, 60);
    while (!no_room)
        rn_tier_store_news(rn_redis_store_tier(b), 8, cold_on_record, &told, &more, &no_room);
    assert_in_range(told.n, 48, 64);
    for (size_t i = told.n - 16; i < told.n; i++)
        rn_tier_store_let_go(rn_redis_store_tier(b), told.records[i].handle);
    rn_tier_store_tend(rn_redis_store_tier(b));
    assert_int_equal(stats_of(b).records, told.n - 16);
    put_chain(a, 2, 10);
    rn_tier_store_news(rn_redis_store_tier(b), 8, cold_on_record, &told, &more, &no_room);
    put_chain(a, 3, 100);
    hear(b, &told);
    assert_int_equal(stats_of(b).records, 64); /* full: what comes then is passed over */
    assert_int_equal(hear(b, &told), 1);
    redis_close(a);
    redis_close(b);
    cold_told_free(&told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_heard, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_little, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_list, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_list_in_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_between, set_up_alone, tear_down),
        cmocka_unit_test_setup_teardown(test_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_away_at_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_repeated_password, set_up_alone, tear_down),
        cmocka_unit_test_setup_teardown(test_denied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_room, set_up, tear_down),
    };

    if (!redis_is_installed()) {
        puts("skipped: there is no redis-server");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
