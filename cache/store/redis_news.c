/* What others put into a Redis server while this store is open: the stream of news. See redis_store.h.
 *
 *   put     SET record | XADD news MAXLEN ~ N * writer chain          one trip, two answers
 *   news    XRANGE news last + COUNT n                                last: the newest that has been seen
 *           begins with `last`: nothing is missing; what is behind it is new
 *           does not: the stream was cut, or is another's: list all that the server has (redis_list.c), a step each
 * time
 *
 * The newest entry is looked up before a list is begun: what comes meanwhile is in the list, or news, or both. Of an
 * entry only the chain is used; what the record is stands in its head, which is fetched and checked as in a list. So
 * who can write to the stream alone can make an engine look at keys that are not there, and no more. */
#define _DEFAULT_SOURCE /* getrandom */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <hiredis/hiredis.h>

#include "base/check.h"
#include "cache/store/cold_format.h"
#include "cache/store/redis_parts.h"

#define LOOKED_AT 64u     /* entries of one call; garbage and one's own are passed over so fast */
#define SCANNED 512u      /* keys that the server looks at for a step of a list */
#define MUTE_US 60000000u /* after a refusal */
#define TOLD_AT_ONCE 32u  /* records of one call at most */

static_assert(TOLD_AT_ONCE <= LOOKED_AT, "each record that is told of has been looked at");
static_assert(RN_REDIS_NEWS_BYTES == RN_REDIS_PREFIX_BYTES + 4, "news");
static_assert(RN_REDIS_WRITER_BYTES == 2 * sizeof(uint64_t), "two digits a byte");

struct reading {
    rn_tier_record_fn *on_record;
    void *user;
    uint32_t most, n; /* records to be told; those whose heads are asked for */
    struct rn_fingerprint chains[TOLD_AT_ONCE];
    bool full;
};

void rn_redis_news_init(struct rn_redis_store *store)
{
    struct rn_redis_news *news = &store->news;
    uint64_t writer;

    if (getrandom(&writer, sizeof writer, GRND_NONBLOCK) != (ssize_t)sizeof writer)
        writer = rn_now_us(&store->options.clock) ^ (uint64_t)(uintptr_t)store << 20;
    snprintf(news->writer, sizeof news->writer, "%016llx", (unsigned long long)writer);
    memcpy(news->key, store->prefix, RN_REDIS_PREFIX_BYTES);
    memcpy(news->key + RN_REDIS_PREFIX_BYTES, "news", 5);
}

void rn_redis_news_fini(struct rn_redis_store *store)
{
    rn_redis_list_free(store->news.list);
    store->news.list = NULL;
}

static bool is_mute(const struct rn_redis_store *store)
{
    return rn_now_us(&store->options.clock) < store->news.mute_until_us;
}

/* The server does not know the command, or does not allow it, or the key is something else. */
static void mute(struct rn_redis_store *store, const char *why)
{
    rn_redis_link_complain(&store->link, why);
    store->news.mute_until_us = rn_now_us(&store->options.clock) + MUTE_US;
}

/* ---- Telling ---- */

unsigned rn_redis_news_tell(struct rn_redis_store *store, const struct rn_fingerprint *chain)
{
    const struct rn_redis_news *news = &store->news;
    char hex[RN_COLD_HEX + 1], ttl[24];
    unsigned n = 0;

    if (is_mute(store))
        return 0;
    rn_cold_hex(chain, hex);
    n += rn_redis_link_send(
        &store->link, 8,
        (const char *const[]){"XADD", news->key, "MAXLEN", "~", RN_REDIS_NEWS_KEPT, "*", news->writer, hex},
        (const size_t[]){4, RN_REDIS_NEWS_BYTES, 6, 1, sizeof RN_REDIS_NEWS_KEPT - 1, 1, RN_REDIS_WRITER_BYTES,
                         RN_COLD_HEX});
    if (store->url.ttl_s == 0)
        return n;
    snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)store->url.ttl_s);
    n += rn_redis_link_send(&store->link, 3, (const char *const[]){"EXPIRE", news->key, ttl},
                            (const size_t[]){6, RN_REDIS_NEWS_BYTES, strlen(ttl)});
    return n;
}

void rn_redis_news_told(struct rn_redis_store *store, unsigned n, bool put)
{
    for (unsigned i = 0; i < n; i++) {
        struct redisReply *reply = rn_redis_link_answer(&store->link);

        if (reply == NULL)
            return;
        if (put && reply->type == REDIS_REPLY_ERROR) /* a record that was refused has a reason of its own */
            mute(store, reply->str);
        freeReplyObject(reply);
    }
}

/* ---- Entries ---- */

/* The id of an entry, which is [id, [name, value ...]]; NULL: it is none. */
static const char *id_of(const struct redisReply *entry)
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 || entry->element[0]->type != REDIS_REPLY_STRING ||
        entry->element[0]->len >= RN_REDIS_ID_BYTES || strlen(entry->element[0]->str) != entry->element[0]->len)
        return NULL;
    return entry->element[0]->str;
}

/* The chain of a record that another has put and that is not known. */
static bool is_news(const struct rn_redis_store *store, const struct redisReply *entry, struct rn_fingerprint *chain)
{
    const struct redisReply *pair = entry->element[1];

    return pair->type == REDIS_REPLY_ARRAY && pair->elements == 2 && pair->element[0]->type == REDIS_REPLY_STRING &&
           pair->element[1]->type == REDIS_REPLY_STRING && pair->element[0]->len == RN_REDIS_WRITER_BYTES &&
           pair->element[1]->len == RN_COLD_HEX &&
           memcmp(pair->element[0]->str, store->news.writer, RN_REDIS_WRITER_BYTES) != 0 &&
           rn_redis_chain_of(pair->element[1]->str, chain) && !rn_redis_knows(store, chain);
}

static bool is_among(const struct rn_fingerprint *chain, const struct rn_fingerprint *chains, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (rn_fingerprint_equal(chain, &chains[i]))
            return true;
    return false;
}

static struct redisReply *ask_range(struct rn_redis_store *store, const char *command, const char *from, const char *to,
                                    const char *count)
{
    struct redisReply *reply;

    if (!rn_redis_link_send(
            &store->link, 6, (const char *const[]){command, store->news.key, from, to, "COUNT", count},
            (const size_t[]){strlen(command), RN_REDIS_NEWS_BYTES, strlen(from), strlen(to), 5, strlen(count)}))
        return NULL;
    reply = rn_redis_link_answer(&store->link);
    if (reply == NULL || reply->type == REDIS_REPLY_ARRAY)
        return reply;
    if (reply->type == REDIS_REPLY_ERROR)
        mute(store, reply->str);
    else
        rn_redis_link_drop(&store->link, "an answer of another kind than asked for");
    store->news.lost = true;
    freeReplyObject(reply);
    return NULL;
}

/* The newest entry is the last one that was seen. False: the server does not say. */
static bool mark(struct rn_redis_store *store)
{
    struct rn_redis_news *news = &store->news;
    struct redisReply *reply = ask_range(store, "XREVRANGE", "+", "-", "1");
    const char *id;

    if (reply == NULL)
        return false;
    id = reply->elements == 1 ? id_of(reply->element[0]) : NULL;
    news->last[0] = '\0';
    if (id != NULL)
        memcpy(news->last, id, strlen(id) + 1);
    news->connections = store->link.connections;
    freeReplyObject(reply);
    return true;
}

/* Goes through entries, but for the first `seen`; those of records that are not known are added to `reading`. True:
 * there are more. */
static bool look_at(struct rn_redis_store *store, const struct redisReply *entries, size_t seen,
                    struct reading *reading)
{
    struct rn_redis_news *news = &store->news;

    for (size_t i = seen; i < entries->elements; i++) {
        const char *id = id_of(entries->element[i]);

        if (reading->n == reading->most)
            return true;
        if (id == NULL) {
            rn_redis_link_drop(&store->link, "an answer of another kind than asked for");
            return false;
        }
        RN_CHECK(reading->n < TOLD_AT_ONCE);
        if (is_news(store, entries->element[i], &reading->chains[reading->n]) &&
            !is_among(&reading->chains[reading->n], reading->chains, reading->n))
            reading->n++;
        memcpy(news->last, id, strlen(id) + 1);
    }
    return entries->elements > LOOKED_AT;
}

/* True: there are more. */
static bool read_entries(struct rn_redis_store *store, struct reading *reading)
{
    struct rn_redis_news *news = &store->news;
    bool from_start = news->last[0] == '\0', more = false;
    struct redisReply *reply;
    char count[16];

    snprintf(count, sizeof count, "%u", LOOKED_AT + 1);
    reply = ask_range(store, "XRANGE", from_start ? "-" : news->last, "+", count);
    if (reply == NULL)
        return false;
    if (from_start ? news->connections != store->link.connections
                   : reply->elements == 0 || id_of(reply->element[0]) == NULL ||
                         strcmp(id_of(reply->element[0]), news->last) != 0)
        news->lost = true;
    else
        more = look_at(store, reply, !from_start, reading);
    news->connections = store->link.connections;
    freeReplyObject(reply);
    return more;
}

/* ---- Their records ---- */

static void take_in(struct rn_redis_store *store, const struct rn_fingerprint *chain, const struct rn_cold_head *head,
                    struct reading *reading)
{
    struct rn_tier_record record = {.salt = head->salt, .depth = head->depth, .payload_bytes = head->payload_bytes};
    uint32_t n = store->id.block_tokens;
    int32_t *tokens = rn_alloc(store->heap, n, sizeof *tokens);

    if (tokens == NULL)
        return;
    rn_cold_tokens_unpack(store->value + RN_COLD_HEAD_BYTES, n, tokens);
    if (rn_redis_parent(store, head, tokens, chain, &record.parent)) {
        RN_ASSERT((record.parent == 0) == (record.depth == 0));
        record.handle = rn_redis_add(store, chain, head->salt, head->depth, head->payload_bytes);
        reading->full |= record.handle == 0;
    }
    if (record.handle != 0) {
        record.tokens = tokens;
        store->stats.heard++;
        if (reading->on_record != NULL)
            reading->on_record(reading->user, &record);
    }
    rn_free(store->heap, tokens);
}

static void fetch_heads(struct rn_redis_store *store, struct reading *reading)
{
    char key[RN_REDIS_KEY_BYTES + 1];

    for (uint32_t i = 0; i < reading->n; i++) {
        rn_redis_key(store, &reading->chains[i], key);
        if (!rn_redis_ask_head(store, key)) {
            store->news.lost = true; /* their entries have been passed */
            return;
        }
    }
    for (uint32_t i = 0; i < reading->n; i++) {
        struct rn_cold_head head;
        int good = rn_redis_take_head(store, store->value, &head);

        if (good < 0) {
            store->news.lost = true;
            return;
        }
        if (good > 0)
            take_in(store, &reading->chains[i], &head, reading);
    }
}

/* ---- All anew ---- */

static void end_list(struct rn_redis_store *store, bool failed)
{
    rn_redis_list_free(store->news.list);
    store->news.list = NULL;
    store->news.lost = failed;
    store->news.list_at_us = rn_now_us(&store->options.clock) + (uint64_t)store->options.relist_ms * 1000;
}

static void begin_list(struct rn_redis_store *store)
{
    RN_ASSERT(store->news.list == NULL);
    if (!mark(store))
        return;
    store->news.list = rn_redis_list_new(store, false);
    if (store->news.list == NULL)
        end_list(store, true);
    store->stats.lists += store->news.list != NULL;
}

/* A step: keys, or once they are all there, records. True: there is more. */
static bool go_on_with_list(struct rn_redis_store *store, struct reading *reading)
{
    struct rn_redis_list *list = store->news.list;
    enum rn_redis_step step;

    if (rn_redis_list_is_sorted(list)) {
        if (!rn_redis_list_tell(list, reading->most, reading->on_record, reading->user))
            return true;
        end_list(store, false);
        return true; /* what has come meanwhile */
    }
    step = rn_redis_list_step(list, SCANNED);
    if (step == RN_REDIS_FAILED || (step == RN_REDIS_ALL && !rn_redis_list_sort(list)))
        end_list(store, true);
    return store->news.list != NULL;
}

void rn_redis_news_begin(struct rn_redis_store *store, rn_tier_record_fn *on_record, void *user)
{
    struct rn_redis_list *list;
    enum rn_redis_step step = RN_REDIS_FAILED;
    uint64_t until_us;

    RN_ASSERT(store->news.list == NULL && store->stats.records == 0);
    store->news.lost = true;
    if (!rn_redis_begin(store))
        return;
    if (!mark(store))
        store->news.last[0] = '\0'; /* a server without streams still has records */
    list = rn_redis_list_new(store, true);
    if (list == NULL)
        return;
    until_us = rn_now_us(&store->link.clock) + (uint64_t)store->options.list_ms * 1000;
    do
        step = !rn_redis_link_is_up(&store->link) ? RN_REDIS_FAILED : rn_redis_list_step(list, 1000);
    while (step == RN_REDIS_GOES_ON && rn_now_us(&store->link.clock) < until_us);
    if (rn_redis_list_sort(list))
        rn_redis_list_tell(list, UINT32_MAX, on_record, user);
    rn_redis_list_free(list);
    end_list(store, step != RN_REDIS_ALL); /* what is missing is listed later */
}

static bool is_near_full(const struct rn_redis_store *store)
{
    return store->stats.records + store->options.max_records / 16 >= store->options.max_records;
}

void rn_redis_news_hear(struct rn_tier_store *tier, uint32_t most, rn_tier_record_fn *on_record, void *user, bool *more,
                        bool *no_room)
{
    struct rn_redis_store *store = (struct rn_redis_store *)tier;
    struct reading reading = {.on_record = on_record, .user = user, .most = most < TOLD_AT_ONCE ? most : TOLD_AT_ONCE};
    uint64_t heard = store->stats.heard;

    *more = *no_room = false;
    if (is_mute(store) || !rn_redis_begin(store))
        return;
    if (store->news.list == NULL && store->news.lost) {
        if (rn_now_us(&store->options.clock) < store->news.list_at_us)
            return;
        begin_list(store);
    }
    if (store->news.list != NULL) {
        *more = go_on_with_list(store, &reading);
        *no_room = *more && is_near_full(store);
        return;
    }
    if (store->news.lost)
        return;
    *more = read_entries(store, &reading);
    RN_ASSERT(reading.n <= reading.most && memchr(store->news.last, '\0', RN_REDIS_ID_BYTES) != NULL);
    fetch_heads(store, &reading);
    *no_room = reading.full || (store->stats.heard != heard && is_near_full(store));
}
