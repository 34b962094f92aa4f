/* What a Redis server has of a fingerprint: SCAN for the keys, the beginnings of their values, and then all of them by
 * depth, so that each finds its parent: the record one less deep from whose chain and its own tokens its key follows.
 * What does not is left out, and what is known already.
 *
 * Memory until it is freed: for each record its head with the tokens, and 40 bytes. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "base/check.h"
#include "cache/store/cold_format.h"
#include "cache/store/redis_parts.h"
#include "base/sort.h"

#define FIRST_FOUND 256u
#define AT_ONCE 64u /* values asked for in one go */
#define CURSOR_BYTES 24u

static_assert(CURSOR_BYTES > 20, "a cursor is a number of 64 bits");
static_assert(2 * sizeof(uint32_t) <= RN_SORT_MOST_BYTES, "the order can be sorted");

struct order {
    uint32_t depth, nth;
};

struct rn_redis_list {
    struct rn_redis_store *store;
    struct rn_fingerprint *chains; /* [n] */
    unsigned char *heads;          /* [n × head_bytes] */
    struct order *order;           /* [n], by depth */
    int32_t *tokens;               /* [block_tokens] */
    size_t n, room, head_bytes;
    size_t at; /* of order: the next one to be told */
    char cursor[CURSOR_BYTES];
    bool no_memory;
    bool by_trip; /* each trip to the server has command_ms for itself */
};

/* ---- What the server says ---- */

bool rn_redis_chain_of(const char *hex, struct rn_fingerprint *chain)
{
    char back[RN_COLD_HEX + 1];

    for (unsigned i = 0; i < 16; i++) {
        unsigned value;

        if (sscanf(hex + 2 * i, "%2x", &value) != 1)
            return false;
        chain->bytes[i] = (unsigned char)value;
    }
    rn_cold_hex(chain, back);
    return memcmp(back, hex, RN_COLD_HEX) == 0;
}

bool rn_redis_ask_head(struct rn_redis_store *store, const char *key)
{
    char last[16];
    size_t n = (size_t)snprintf(last, sizeof last, "%zu", rn_cold_head_bytes(store->id.block_tokens) - 1);

    return rn_redis_link_send(&store->link, 4, (const char *const[]){"GETRANGE", key, "0", last},
                              (const size_t[]){8, RN_REDIS_KEY_BYTES, 1, n}) &&
           rn_redis_link_send(&store->link, 2, (const char *const[]){"STRLEN", key},
                              (const size_t[]){6, RN_REDIS_KEY_BYTES});
}

static bool head_good(struct rn_redis_store *store, const struct redisReply *beginning, const struct redisReply *length,
                      unsigned char *bytes, struct rn_cold_head *head)
{
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);

    if (beginning->type != REDIS_REPLY_STRING || beginning->len != head_bytes || length->type != REDIS_REPLY_INTEGER)
        return false;
    if (!rn_cold_head_unpack((const unsigned char *)beginning->str, store->seed, store->id.block_tokens, head) ||
        head->payload_bytes > store->options.payload_bytes || head->serial != (uint64_t)head->depth + 1 ||
        (uint64_t)length->integer != head_bytes + head->payload_bytes) {
        store->stats.damaged++;
        return false;
    }
    memcpy(bytes, beginning->str, head_bytes);
    return head->alive;
}

int rn_redis_take_head(struct rn_redis_store *store, unsigned char *bytes, struct rn_cold_head *head)
{
    struct redisReply *beginning = rn_redis_link_answer(&store->link);
    struct redisReply *length = beginning == NULL ? NULL : rn_redis_link_answer(&store->link);
    int good = length == NULL ? -1 : head_good(store, beginning, length, bytes, head);

    if (beginning != NULL)
        freeReplyObject(beginning);
    if (length != NULL)
        freeReplyObject(length);
    return good;
}

/* ---- Keys ---- */

static bool make_room(struct rn_redis_list *list)
{
    struct rn_heap *heap = list->store->heap;
    size_t room = list->room == 0 ? FIRST_FOUND : 2 * list->room;
    struct rn_fingerprint *chains;
    unsigned char *heads;

    if (list->n < list->room)
        return true;
    chains = rn_realloc(heap, list->chains, room, sizeof *chains);
    list->chains = chains != NULL ? chains : list->chains;
    heads = rn_realloc(heap, list->heads, room, list->head_bytes);
    list->heads = heads != NULL ? heads : list->heads;
    list->no_memory = chains == NULL || heads == NULL;
    RN_ASSERT(list->order == NULL && list->n == list->room);
    if (!list->no_memory)
        list->room = room;
    return !list->no_memory;
}

static void begin_trip(const struct rn_redis_list *list)
{
    struct rn_redis_link *link = &list->store->link;

    if (list->by_trip)
        link->deadline_us = rn_now_us(&link->clock) + (uint64_t)link->command_ms * 1000;
}

/* Two answers for each key, all of which are taken off the line. False: the link is down. */
static bool take_answers(struct rn_redis_list *list, const struct rn_fingerprint *chains, size_t n)
{
    struct rn_redis_store *store = list->store;

    for (size_t i = 0; i < n; i++) {
        struct rn_cold_head head;
        int good = rn_redis_take_head(store, store->value, &head);

        if (good < 0)
            return false;
        if (good == 0 || list->n == store->options.max_records || !make_room(list))
            continue;
        RN_CHECK(list->n < list->room);
        memcpy(list->heads + list->n * list->head_bytes, store->value, list->head_bytes);
        list->chains[list->n++] = chains[i];
    }
    return true;
}

static bool is_wanted(const struct rn_redis_list *list, const struct redisReply *key, struct rn_fingerprint *chain)
{
    return key->type == REDIS_REPLY_STRING && key->len == RN_REDIS_KEY_BYTES &&
           memcmp(key->str, list->store->prefix, RN_REDIS_PREFIX_BYTES) == 0 &&
           rn_redis_chain_of(key->str + RN_REDIS_PREFIX_BYTES, chain) && !rn_redis_knows(list->store, chain);
}

static bool take_keys(struct rn_redis_list *list, const struct redisReply *keys)
{
    struct rn_fingerprint chains[AT_ONCE];
    size_t n = 0;

    for (size_t i = 0; i < keys->elements; i++) {
        const struct redisReply *key = keys->element[i];

        RN_CHECK(n < AT_ONCE);
        if (is_wanted(list, key, &chains[n])) {
            if (n == 0)
                begin_trip(list);
            if (!rn_redis_ask_head(list->store, key->str))
                return false;
            n++;
        }
        if (n == AT_ONCE || (i + 1 == keys->elements && n > 0)) {
            if (!take_answers(list, chains, n))
                return false;
            n = 0;
        }
    }
    return true;
}

static struct redisReply *scan(struct rn_redis_list *list, unsigned count)
{
    struct rn_redis_store *store = list->store;
    char pattern[RN_REDIS_PREFIX_BYTES + 2], number[16];
    size_t n = (size_t)snprintf(number, sizeof number, "%u", count);

    begin_trip(list);
    snprintf(pattern, sizeof pattern, "%s*", store->prefix);
    if (!rn_redis_link_send(&store->link, 6,
                            (const char *const[]){"SCAN", list->cursor, "MATCH", pattern, "COUNT", number},
                            (const size_t[]){4, strlen(list->cursor), 5, RN_REDIS_PREFIX_BYTES + 1, 5, n}))
        return NULL;
    return rn_redis_link_answer(&store->link);
}

enum rn_redis_step rn_redis_list_step(struct rn_redis_list *list, unsigned count)
{
    struct rn_redis_store *store = list->store;
    struct redisReply *reply = scan(list, count);
    bool good;

    if (reply == NULL)
        return RN_REDIS_FAILED;
    good = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
           reply->element[0]->len < CURSOR_BYTES && reply->element[1]->type == REDIS_REPLY_ARRAY;
    if (good) {
        memcpy(list->cursor, reply->element[0]->str, reply->element[0]->len + 1);
        good = take_keys(list, reply->element[1]);
    } else {
        rn_redis_link_drop(&store->link, reply->type == REDIS_REPLY_ERROR ? reply->str : "no answer to SCAN");
    }
    freeReplyObject(reply);
    if (!good)
        return RN_REDIS_FAILED;
    return strcmp(list->cursor, "0") == 0 || list->n == store->options.max_records || list->no_memory
               ? RN_REDIS_ALL
               : RN_REDIS_GOES_ON;
}

/* ---- Parents before children ---- */

static int by_depth(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    return (x->depth > y->depth) - (x->depth < y->depth);
}

bool rn_redis_list_sort(struct rn_redis_list *list)
{
    RN_ASSERT(list->order == NULL && list->at == 0);
    list->order = rn_alloc(list->store->heap, list->n, sizeof *list->order);
    if (list->order == NULL)
        return false;
    for (size_t i = 0; i < list->n; i++)
        list->order[i] = (struct order){rn_cold_head_depth(list->heads + i * list->head_bytes), (uint32_t)i};
    if (list->n > 0)
        rn_sort_in_place(list->order, list->n, sizeof *list->order, by_depth);
    return true;
}

bool rn_redis_list_is_sorted(const struct rn_redis_list *list)
{
    return list->order != NULL;
}

/* True: it was not known, and is now. A scan may tell of a key twice. */
static bool make_known(struct rn_redis_list *list, uint32_t nth, struct rn_tier_record *record)
{
    struct rn_redis_store *store = list->store;
    const unsigned char *bytes = list->heads + nth * list->head_bytes;
    const struct rn_fingerprint *chain = &list->chains[nth];
    struct rn_cold_head head;

    if (rn_redis_knows(store, chain) || !rn_cold_head_unpack(bytes, store->seed, store->id.block_tokens, &head))
        return false;
    rn_cold_tokens_unpack(bytes + RN_COLD_HEAD_BYTES, store->id.block_tokens, list->tokens);
    *record = (struct rn_tier_record){
        .salt = head.salt, .tokens = list->tokens, .depth = head.depth, .payload_bytes = head.payload_bytes};
    if (!rn_redis_parent(store, &head, list->tokens, chain, &record->parent))
        return false;
    RN_ASSERT((record->parent == 0) == (record->depth == 0));
    record->handle = rn_redis_add(store, chain, head.salt, head.depth, head.payload_bytes);
    return record->handle != 0;
}

bool rn_redis_list_tell(struct rn_redis_list *list, uint32_t most, rn_tier_record_fn *on_record, void *user)
{
    RN_ASSERT(rn_redis_list_is_sorted(list) || list->n == 0);
    for (uint32_t n = 0; n < most && list->at < list->n; list->at++) {
        struct rn_tier_record record;

        if (!make_known(list, list->order[list->at].nth, &record))
            continue;
        if (on_record != NULL)
            on_record(user, &record);
        n++;
    }
    return list->at == list->n;
}

/* ---- The whole ---- */

struct rn_redis_list *rn_redis_list_new(struct rn_redis_store *store, bool by_trip)
{
    struct rn_redis_list *list = rn_calloc(store->heap, 1, sizeof *list);

    if (list == NULL)
        return NULL;
    list->store = store;
    list->by_trip = by_trip;
    list->head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    list->cursor[0] = '0';
    list->tokens = rn_alloc(store->heap, store->id.block_tokens, sizeof *list->tokens);
    if (list->tokens != NULL)
        return list;
    rn_redis_list_free(list);
    return NULL;
}

bool rn_redis_list_check(const struct rn_redis_list *list)
{
    if (list == NULL)
        return true;
    return list->n <= list->room && list->n <= list->store->options.max_records && list->tokens != NULL &&
           list->at <= list->n && (list->at == 0 || list->order != NULL) &&
           memchr(list->cursor, '\0', CURSOR_BYTES) != NULL;
}

void rn_redis_list_free(struct rn_redis_list *list)
{
    struct rn_heap *heap;

    if (list == NULL)
        return;
    heap = list->store->heap;
    rn_free(heap, list->chains);
    rn_free(heap, list->heads);
    rn_free(heap, list->order);
    rn_free(heap, list->tokens);
    rn_free(heap, list);
}
