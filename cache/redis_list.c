/* What a Redis server has of a fingerprint: SCAN for the keys, the beginnings of their values, and then all of them by
 * depth, so that each finds its parent: the record one less deep from whose chain and its own tokens its key follows.
 * What does not is left out. */
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "cache/bytes.h"
#include "cache/cold_format.h"
#include "cache/redis_parts.h"
#include "cache/sort.h"

#define FIRST_FOUND 256u
#define AT_ONCE 64u /* values asked for in one go */
#define CURSOR_BYTES 24u

struct found {
    struct rn_print chain;
    uint64_t handle; /* 0: not made known */
    uint32_t payload_bytes;
};

struct order {
    uint64_t half; /* of the chain */
    uint32_t depth, nth;
};

struct list {
    struct rn_redis_store *store;
    struct found *found;  /* [n] */
    unsigned char *heads; /* [n × head_bytes] */
    struct order *order;  /* [n], by depth and half */
    int32_t *tokens;      /* [block_tokens] */
    size_t n, room, head_bytes;
    char cursor[CURSOR_BYTES];
    bool no_memory;
};

/* ---- What the server says ---- */

/* 32 digits to a chain. */
static bool chain_of(const char *hex, struct rn_print *chain)
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

static bool make_room(struct list *list)
{
    struct rn_heap *heap = list->store->heap;
    size_t room = list->room == 0 ? FIRST_FOUND : 2 * list->room;
    struct found *found;
    unsigned char *heads;

    if (list->n < list->room)
        return true;
    found = rn_realloc(heap, list->found, room, sizeof *found);
    list->found = found != NULL ? found : list->found;
    heads = rn_realloc(heap, list->heads, room, list->head_bytes);
    list->heads = heads != NULL ? heads : list->heads;
    list->no_memory = found == NULL || heads == NULL;
    if (!list->no_memory)
        list->room = room;
    return !list->no_memory;
}

/* The answers about one key: the beginning of the value, and its length. */
static void take_one(struct list *list, const struct rn_print *chain, const struct redisReply *beginning,
                     const struct redisReply *length)
{
    const struct rn_redis_store *store = list->store;
    struct rn_cold_head head;

    if (beginning->type != REDIS_REPLY_STRING || beginning->len != list->head_bytes ||
        length->type != REDIS_REPLY_INTEGER || list->n == store->options.max_records)
        return;
    if (!rn_cold_head_unpack((const unsigned char *)beginning->str, store->seed, store->id.block_tokens, &head) ||
        head.payload_bytes > store->options.payload_bytes || head.serial != (uint64_t)head.depth + 1 ||
        (uint64_t)length->integer != list->head_bytes + head.payload_bytes) {
        list->store->stats.damaged++;
        return;
    }
    if (!make_room(list))
        return;
    list->found[list->n] = (struct found){.chain = *chain, .payload_bytes = head.payload_bytes};
    memcpy(list->heads + list->n * list->head_bytes, beginning->str, list->head_bytes);
    list->n++;
}

static bool ask(struct list *list, const char *key)
{
    struct rn_redis_link *link = &list->store->link;
    char last[16];
    size_t n = (size_t)snprintf(last, sizeof last, "%zu", list->head_bytes - 1);

    return rn_redis_link_send(link, 4, (const char *const[]){"GETRANGE", key, "0", last},
                              (const size_t[]){8, RN_REDIS_KEY_BYTES, 1, n}) &&
           rn_redis_link_send(link, 2, (const char *const[]){"STRLEN", key}, (const size_t[]){6, RN_REDIS_KEY_BYTES});
}

/* Two answers for each key. False: the link is down. */
static bool take_answers(struct list *list, const struct rn_print *chains, size_t n)
{
    struct rn_redis_link *link = &list->store->link;

    for (size_t i = 0; i < n; i++) {
        struct redisReply *beginning = rn_redis_link_answer(link);
        struct redisReply *length = beginning == NULL ? NULL : rn_redis_link_answer(link);

        if (length != NULL)
            take_one(list, &chains[i], beginning, length);
        if (beginning != NULL)
            freeReplyObject(beginning);
        if (length == NULL)
            return false;
        freeReplyObject(length);
    }
    return true;
}

static bool take_keys(struct list *list, const struct redisReply *keys)
{
    const char *prefix = list->store->prefix;
    struct rn_print chains[AT_ONCE];
    size_t n = 0;

    for (size_t i = 0; i < keys->elements; i++) {
        const struct redisReply *key = keys->element[i];

        if (key->type == REDIS_REPLY_STRING && key->len == RN_REDIS_KEY_BYTES &&
            memcmp(key->str, prefix, RN_REDIS_PREFIX_BYTES) == 0 &&
            chain_of(key->str + RN_REDIS_PREFIX_BYTES, &chains[n])) {
            if (!ask(list, key->str))
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

/* One step of the scan. False: it has ended. */
static bool step(struct list *list)
{
    struct rn_redis_store *store = list->store;
    char pattern[RN_REDIS_PREFIX_BYTES + 2];
    struct redisReply *reply;
    bool good;

    snprintf(pattern, sizeof pattern, "%s*", store->prefix);
    if (!rn_redis_link_send(&store->link, 6,
                            (const char *const[]){"SCAN", list->cursor, "MATCH", pattern, "COUNT", "1000"},
                            (const size_t[]){4, strlen(list->cursor), 5, RN_REDIS_PREFIX_BYTES + 1, 5, 4}))
        return false;
    reply = rn_redis_link_answer(&store->link);
    if (reply == NULL)
        return false;
    good = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_STRING && reply->element[0]->len < CURSOR_BYTES &&
           reply->element[1]->type == REDIS_REPLY_ARRAY;
    if (good) {
        memcpy(list->cursor, reply->element[0]->str, reply->element[0]->len + 1);
        good = take_keys(list, reply->element[1]);
    } else {
        rn_redis_link_drop(&store->link, reply->type == REDIS_REPLY_ERROR ? reply->str : "no answer to SCAN");
    }
    freeReplyObject(reply);
    return good && strcmp(list->cursor, "0") != 0 && list->n < store->options.max_records && !list->no_memory;
}

/* ---- Parents before children ---- */

static int by_place(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    if (x->depth != y->depth)
        return x->depth < y->depth ? -1 : 1;
    return (x->half > y->half) - (x->half < y->half);
}

/* The first one that is not before (depth, half). */
static size_t lower_bound(const struct list *list, uint32_t depth, uint64_t half)
{
    const struct order wanted = {.half = half, .depth = depth};
    size_t low = 0, high = list->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (by_place(&list->order[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool follows(const struct list *list, const struct found *found, const struct found *parent,
                    struct rn_prefix_salt salt)
{
    struct rn_print chain = rn_redis_chain(list->store, parent == NULL ? NULL : &parent->chain, salt, list->tokens);

    return rn_print_same(&chain, &found->chain);
}

/* Its parent, by its head; NULL: there is none that fits. */
static const struct found *parent_of(const struct list *list, const struct found *found,
                                     const struct rn_cold_head *head)
{
    size_t at = lower_bound(list, head->depth - 1, head->parent_check);

    for (; at < list->n && list->order[at].depth + 1 == head->depth && list->order[at].half == head->parent_check;
         at++) {
        const struct found *parent = &list->found[list->order[at].nth];
        struct rn_cold_head its;

        if (parent->handle != 0 &&
            rn_cold_head_unpack(list->heads + list->order[at].nth * list->head_bytes, list->store->seed,
                                list->store->id.block_tokens, &its) &&
            its.salt.word[0] == head->salt.word[0] && its.salt.word[1] == head->salt.word[1] &&
            follows(list, found, parent, head->salt))
            return parent;
    }
    return NULL;
}

/* True: it is known now; *parent: its parent's handle. */
static bool make_known(struct list *list, size_t nth, struct rn_cold_head *head, uint64_t *parent)
{
    struct found *found = &list->found[list->order[nth].nth];
    const unsigned char *bytes = list->heads + list->order[nth].nth * list->head_bytes;
    uint32_t block_tokens = list->store->id.block_tokens;

    *parent = 0;
    if (!rn_cold_head_unpack(bytes, list->store->seed, block_tokens, head) || !head->alive ||
        (nth > 0 && rn_print_same(&list->found[list->order[nth - 1].nth].chain, &found->chain)))
        return false; /* a scan may tell of a key twice */
    rn_cold_tokens_unpack(bytes + RN_COLD_HEAD_BYTES, block_tokens, list->tokens);
    if (head->depth == 0) {
        if (!follows(list, found, NULL, head->salt))
            return false;
    } else {
        const struct found *its = parent_of(list, found, head);

        if (its == NULL)
            return false;
        *parent = its->handle;
    }
    found->handle = rn_redis_add(list->store, &found->chain, head->depth, found->payload_bytes);
    return found->handle != 0;
}

static void tell_all(struct list *list, rn_cold_record_fn *on_record, void *user)
{
    for (size_t i = 0; i < list->n; i++) {
        list->order[i] = (struct order){.half = rn_bytes_get(list->found[i].chain.bytes, 8), .nth = (uint32_t)i};
        list->order[i].depth = rn_cold_head_depth(list->heads + i * list->head_bytes);
    }
    if (list->n > 0)
        rn_sort_in_place(list->order, list->n, sizeof *list->order, by_place);
    for (size_t i = 0; i < list->n; i++) {
        struct rn_cold_head head;
        uint64_t parent;

        if (make_known(list, i, &head, &parent) && on_record != NULL)
            on_record(user, &(struct rn_cold_record){
                                .handle = list->found[list->order[i].nth].handle, .parent = parent,
                                .salt = head.salt, .tokens = list->tokens, .depth = head.depth,
                                .payload_bytes = head.payload_bytes});
    }
}

void rn_redis_list(struct rn_redis_store *store, rn_cold_record_fn *on_record, void *user)
{
    struct list list = {.store = store, .head_bytes = rn_cold_head_bytes(store->id.block_tokens), .cursor = "0"};
    struct rn_heap *heap = store->heap;

    if (rn_redis_link_begin(&store->link)) {
        store->link.deadline_us = rn_now_us(&store->link.clock) + (uint64_t)store->options.list_ms * 1000;
        while (step(&list))
            continue;
    }
    list.order = rn_alloc(heap, list.n, sizeof *list.order);
    list.tokens = rn_alloc(heap, store->id.block_tokens, sizeof *list.tokens);
    if (list.order != NULL && list.tokens != NULL)
        tell_all(&list, on_record, user);
    rn_free(heap, list.found);
    rn_free(heap, list.heads);
    rn_free(heap, list.order);
    rn_free(heap, list.tokens);
}
