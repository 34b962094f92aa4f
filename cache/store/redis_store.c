/* See redis_store.h.
 *
 * Entries lie in one array; a handle is an entry's place and how often the place has been used. Reads that have been
 * asked for ahead have their answers coming in the same order: a read that is not the next one passes over those before
 * it. */
#include "cache/store/redis_store.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's size */
#include <hiredis/hiredis.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/bytes.h"
#include "cache/store/fingerprint_hash.h"
#include "cache/store/cold_format.h"
#include "cache/store/redis_link.h"
#include "cache/store/redis_parts.h"

#define FIRST_ENTRIES 256u
/* Bytes of an answer that is no value: a thousand keys, and some more at the server's will. */
#define BESIDE_VALUES (4u << 20)

static_assert((FIRST_ENTRIES & (FIRST_ENTRIES - 1)) == 0, "a place in the table is some bits of a chain");
static_assert(RN_REDIS_PREFIX_BYTES == 9 + RN_COLD_HEX + 1, "runnel:1:, the fingerprint, a colon");
static_assert(RN_REDIS_KEY_BYTES == RN_REDIS_PREFIX_BYTES + RN_COLD_HEX, "and the chain");

static struct rn_redis_store *store_of(struct rn_tier_store *tier)
{
    return (struct rn_redis_store *)tier;
}

static const struct rn_redis_store *borrow(const struct rn_tier_store *tier)
{
    return (const struct rn_redis_store *)tier;
}

/* ---- Keys and values ---- */

/* The chain that ends in the block of tokens[block_tokens]; before NULL: it is the first of the salt's. */
static struct rn_fingerprint chain_of(const struct rn_redis_store *store, const struct rn_fingerprint *before,
                                      struct rn_prefix_salt salt, const int32_t *tokens)
{
    unsigned char word[16];
    XXH3_state_t state;

    XXH3_128bits_reset_withSeed(&state, store->seed);
    rn_bytes_put(word, salt.word[0], 8);
    rn_bytes_put(word + 8, salt.word[1], 8);
    XXH3_128bits_update(&state, word, sizeof word);
    if (before != NULL)
        XXH3_128bits_update(&state, before->bytes, sizeof before->bytes);
    for (uint32_t i = 0; i < store->id.block_tokens; i++) {
        rn_bytes_put(word, (uint32_t)tokens[i], 4);
        XXH3_128bits_update(&state, word, 4);
    }
    return rn_fingerprint_of(XXH3_128bits_digest(&state));
}

void rn_redis_key(const struct rn_redis_store *store, const struct rn_fingerprint *chain, char *key)
{
    memcpy(key, store->prefix, RN_REDIS_PREFIX_BYTES);
    rn_cold_hex(chain, key + RN_REDIS_PREFIX_BYTES);
}

static uint64_t half(const struct rn_fingerprint *chain)
{
    return rn_bytes_get(chain->bytes, 8);
}

/* ---- Entries ---- */

static uint64_t handle_of(const struct rn_redis_store *store, uint32_t entry)
{
    RN_ASSERT(entry < store->n_touched && store->entries[entry].generation > 0);
    return (uint64_t)store->entries[entry].generation << 32 | (entry + 1);
}

static struct rn_redis_entry *find(const struct rn_redis_store *store, uint64_t handle)
{
    uint64_t place = (handle & UINT32_MAX) - 1;

    if (place >= store->n_touched || store->entries[place].generation != handle >> 32 || !store->entries[place].known)
        return NULL;
    return &store->entries[place];
}

static uint32_t *bucket(const struct rn_redis_store *store, uint64_t first_half)
{
    return &store->table[first_half & (2 * (uint64_t)store->n_entries - 1)];
}

static void put_in_table(struct rn_redis_store *store, uint32_t entry)
{
    uint32_t *first = bucket(store, half(&store->entries[entry].chain));

    RN_ASSERT(store->entries[entry].known && (*first == RN_REDIS_NONE || store->entries[*first].known));
    store->entries[entry].next = *first;
    *first = entry;
}

static void take_from_table(struct rn_redis_store *store, uint32_t entry)
{
    uint32_t *at = bucket(store, half(&store->entries[entry].chain));

    while (*at != entry) {
        RN_CHECK(*at != RN_REDIS_NONE);
        at = &store->entries[*at].next;
    }
    *at = store->entries[entry].next;
}

/* Twice as many of both; on refusal nothing has changed. */
static bool grow(struct rn_redis_store *store)
{
    uint32_t n = store->n_entries == 0 ? FIRST_ENTRIES : 2 * store->n_entries;
    uint32_t *table = rn_alloc(store->heap, 2 * (size_t)n, sizeof *table);
    struct rn_redis_entry *entries = table == NULL ? NULL : rn_realloc(store->heap, store->entries, n, sizeof *entries);

    if (entries == NULL) {
        rn_free(store->heap, table);
        return false;
    }
    rn_free(store->heap, store->table);
    store->entries = entries;
    store->n_entries = n;
    store->table = table;
    for (size_t i = 0; i < 2 * (size_t)n; i++)
        table[i] = RN_REDIS_NONE;
    for (uint32_t i = 0; i < store->n_touched; i++)
        if (entries[i].known)
            put_in_table(store, i);
    return true;
}

/* RN_REDIS_NONE: no memory, or max_records. */
static uint32_t take_entry(struct rn_redis_store *store)
{
    uint32_t entry = store->first_free;

    if (entry != RN_REDIS_NONE) {
        RN_ASSERT(entry < store->n_touched && !store->entries[entry].known);
        store->first_free = store->entries[entry].next;
        return entry;
    }
    if (store->n_touched == store->options.max_records)
        return RN_REDIS_NONE;
    if (store->n_touched == store->n_entries && !grow(store))
        return RN_REDIS_NONE;
    RN_CHECK(store->n_touched < store->n_entries);
    store->entries[store->n_touched] = (struct rn_redis_entry){.generation = 0};
    return store->n_touched++;
}

bool rn_redis_knows(const struct rn_redis_store *store, const struct rn_fingerprint *chain)
{
    uint32_t at = store->table == NULL ? RN_REDIS_NONE : *bucket(store, half(chain));

    while (at != RN_REDIS_NONE && !rn_fingerprint_equal(&store->entries[at].chain, chain))
        at = store->entries[at].next;
    return at != RN_REDIS_NONE;
}

static bool follows(const struct rn_redis_store *store, const struct rn_fingerprint *before, struct rn_prefix_salt salt,
                    const int32_t *tokens, const struct rn_fingerprint *chain)
{
    struct rn_fingerprint own = chain_of(store, before, salt, tokens);

    return rn_fingerprint_equal(&own, chain);
}

bool rn_redis_parent(const struct rn_redis_store *store, const struct rn_cold_head *head, const int32_t *tokens,
                     const struct rn_fingerprint *chain, uint64_t *parent)
{
    uint32_t at;

    *parent = 0;
    if (head->depth == 0)
        return follows(store, NULL, head->salt, tokens, chain);
    at = store->table == NULL ? RN_REDIS_NONE : *bucket(store, head->parent_check);
    for (; at != RN_REDIS_NONE; at = store->entries[at].next) {
        const struct rn_redis_entry *e = &store->entries[at];

        if (half(&e->chain) == head->parent_check && e->depth + 1 == head->depth &&
            rn_prefix_salt_same(e->salt, head->salt) && follows(store, &e->chain, head->salt, tokens, chain)) {
            *parent = handle_of(store, at);
            return true;
        }
    }
    return false;
}

uint64_t rn_redis_add(struct rn_redis_store *store, const struct rn_fingerprint *chain, struct rn_prefix_salt salt,
                      uint32_t depth, uint32_t payload_bytes)
{
    uint32_t place = take_entry(store);
    struct rn_redis_entry *e;

    RN_ASSERT(payload_bytes > 0 && payload_bytes <= store->options.payload_bytes);
    if (place == RN_REDIS_NONE)
        return 0;
    e = &store->entries[place];
    *e = (struct rn_redis_entry){.chain = *chain,
                                 .salt = salt,
                                 .depth = depth,
                                 .payload_bytes = payload_bytes,
                                 .known = true,
                                 .generation = e->generation + 1};
    put_in_table(store, place);
    RN_ASSERT(store->stats.records < store->options.max_records);
    store->stats.records++;
    store->stats.known_bytes += rn_cold_head_bytes(store->id.block_tokens) + payload_bytes;
    return handle_of(store, place);
}

/* Its place is used again when it has been told of. */
static void lose(struct rn_redis_store *store, struct rn_redis_entry *e)
{
    RN_ASSERT(e->known && store->stats.records > 0 && store->stats.known_bytes >= e->payload_bytes);
    take_from_table(store, (uint32_t)(e - store->entries));
    e->known = false;
    e->next = store->first_gone;
    store->first_gone = (uint32_t)(e - store->entries);
    store->stats.records--;
    store->stats.known_bytes -= rn_cold_head_bytes(store->id.block_tokens) + e->payload_bytes;
}

/* Tells of what is gone; there is no more to do. */
static bool tend(struct rn_tier_store *tier)
{
    struct rn_redis_store *store = store_of(tier);

    while (store->first_gone != RN_REDIS_NONE) {
        uint32_t entry = store->first_gone;

        RN_ASSERT(entry < store->n_touched && !store->entries[entry].known);
        store->first_gone = store->entries[entry].next;
        if (tier->gone != NULL)
            tier->gone(tier->user, handle_of(store, entry));
        store->entries[entry].next = store->first_free;
        store->first_free = entry;
    }
    return false;
}

/* ---- Answers that are on their way ---- */

/* Answers that nobody has come for are taken off the line. */
static void pass_over(struct rn_redis_store *store, uint32_t n)
{
    RN_ASSERT(store->n_ahead <= RN_REDIS_AHEAD && n <= store->n_ahead - store->ahead_at);
    for (uint32_t i = 0; i < n && rn_redis_link_is_up(&store->link); i++) {
        struct redisReply *reply = rn_redis_link_answer(&store->link);

        if (reply != NULL)
            freeReplyObject(reply);
    }
    store->ahead_at += n;
    if (!rn_redis_link_is_up(&store->link) || store->ahead_at == store->n_ahead)
        store->ahead_at = store->n_ahead = 0;
}

bool rn_redis_begin(struct rn_redis_store *store)
{
    if (!rn_redis_link_begin(&store->link))
        return false;
    if (store->ahead_of != store->link.connections)
        store->ahead_at = store->n_ahead = 0;
    pass_over(store, store->n_ahead - store->ahead_at);
    RN_ASSERT(store->n_ahead == 0 && store->ahead_at == 0);
    return rn_redis_link_is_up(&store->link);
}

static bool ask_for(struct rn_redis_store *store, const struct rn_redis_entry *e)
{
    char key[RN_REDIS_KEY_BYTES + 1];

    rn_redis_key(store, &e->chain, key);
    return rn_redis_link_send(&store->link, 2, (const char *const[]){"GET", key},
                              (const size_t[]){3, RN_REDIS_KEY_BYTES});
}

static void will_get(struct rn_tier_store *tier, const uint64_t *handles, uint32_t n)
{
    struct rn_redis_store *store = store_of(tier);

    if (n < 2 || !rn_redis_begin(store))
        return;
    for (uint32_t i = 0; i < n && store->n_ahead < RN_REDIS_AHEAD; i++) {
        const struct rn_redis_entry *e = find(store, handles[i]);

        if (e == NULL)
            continue;
        if (!ask_for(store, e))
            break;
        store->ahead[store->n_ahead++] = handles[i];
        store->ahead_of = store->link.connections;
    }
}

/* ---- Reading ---- */

static void delete_value(struct rn_redis_store *store, const struct rn_redis_entry *e)
{
    char key[RN_REDIS_KEY_BYTES + 1];
    struct redisReply *reply;

    rn_redis_key(store, &e->chain, key);
    if (!rn_redis_begin(store) || !rn_redis_link_send(&store->link, 2, (const char *const[]){"DEL", key},
                                                      (const size_t[]){3, RN_REDIS_KEY_BYTES}))
        return;
    reply = rn_redis_link_answer(&store->link);
    if (reply != NULL)
        freeReplyObject(reply);
}

/* The value is the record of this entry behind that parent; its payload goes to `payload`. */
static bool value_good(const struct rn_redis_store *store, const struct rn_redis_entry *e, uint64_t parent_half,
                       const struct rn_tier_key *key, const char *value, size_t n, void *payload)
{
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    const unsigned char *bytes = (const unsigned char *)value, *words = bytes + RN_COLD_HEAD_BYTES;
    struct rn_fingerprint check;
    struct rn_cold_head head;

    if (n != head_bytes + e->payload_bytes || !rn_cold_head_unpack(bytes, store->seed, store->id.block_tokens, &head) ||
        !head.alive || head.payload_bytes != e->payload_bytes || head.depth != e->depth ||
        head.parent_check != parent_half || !rn_prefix_salt_same(head.salt, key->salt))
        return false;
    for (uint32_t i = 0; i < store->id.block_tokens; i++)
        if ((uint32_t)rn_bytes_get(words + 4 * (size_t)i, 4) != (uint32_t)key->tokens[i])
            return false;
    check = rn_cold_payload_check(store->seed, head.serial, bytes + head_bytes, e->payload_bytes);
    if (!rn_fingerprint_equal(&check, &head.payload_check))
        return false;
    memcpy(payload, bytes + head_bytes, e->payload_bytes);
    return true;
}

/* The answer to the GET of the entry, asked for ahead or now. */
static struct redisReply *fetch(struct rn_redis_store *store, const struct rn_redis_entry *e, uint64_t handle)
{
    for (uint32_t i = store->ahead_at; i < store->n_ahead; i++) {
        struct redisReply *reply;

        if (store->ahead[i] != handle)
            continue;
        if (!rn_redis_link_begin(&store->link) || store->ahead_of != store->link.connections)
            break;
        pass_over(store, i - store->ahead_at);
        reply = rn_redis_link_answer(&store->link);
        RN_ASSERT(reply == NULL || store->ahead_at == i);
        store->ahead_at++;
        if (reply == NULL || store->ahead_at == store->n_ahead)
            store->ahead_at = store->n_ahead = 0;
        return reply;
    }
    if (!rn_redis_begin(store) || !ask_for(store, e))
        return NULL;
    return rn_redis_link_answer(&store->link);
}

static runnel_status take_value(struct rn_redis_store *store, struct rn_redis_entry *e, uint64_t parent_half,
                                const struct rn_tier_key *key, const struct redisReply *reply, void *payload)
{
    if (reply->type == REDIS_REPLY_NIL) {
        lose(store, e);
        return RUNNEL_NOT_FOUND;
    }
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGTYPE", 9) != 0) { /* loading, no password ... */
        rn_redis_link_complain(&store->link, reply->str);
        return RUNNEL_IO;
    }
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_ERROR) {
        rn_redis_link_drop(&store->link, "an answer of another kind than asked for");
        return RUNNEL_IO;
    }
    if (reply->type == REDIS_REPLY_STRING && value_good(store, e, parent_half, key, reply->str, reply->len, payload))
        return RUNNEL_OK;
    store->stats.damaged++;
    delete_value(store, e);
    lose(store, e);
    return RUNNEL_NOT_FOUND;
}

static runnel_status get(struct rn_tier_store *tier, uint64_t handle, const struct rn_tier_key *key, void *payload)
{
    struct rn_redis_store *store = store_of(tier);
    struct rn_redis_entry *e = find(store, handle);
    const struct rn_redis_entry *p = key->parent == 0 ? NULL : find(store, key->parent);
    struct redisReply *reply;
    struct rn_fingerprint chain;
    runnel_status status;

    store->stats.misses++;
    if (e == NULL || (key->parent != 0 && p == NULL) || (e->depth == 0) != (key->parent == 0))
        return RUNNEL_NOT_FOUND;
    chain = chain_of(store, p == NULL ? NULL : &p->chain, key->salt, key->tokens);
    if (!rn_fingerprint_equal(&chain, &e->chain))
        return RUNNEL_NOT_FOUND;
    reply = fetch(store, e, handle);
    if (reply == NULL)
        return RUNNEL_IO;
    status = take_value(store, e, p == NULL ? 0 : half(&p->chain), key, reply, payload);
    freeReplyObject(reply);
    store->stats.misses -= status == RUNNEL_OK;
    return status;
}

static size_t payload_bytes(const struct rn_tier_store *tier, uint64_t handle)
{
    const struct rn_redis_entry *e = find(borrow(tier), handle);

    return e == NULL ? 0 : e->payload_bytes;
}

/* ---- Writing ---- */

/* The record as bytes in store->value; how many. */
static size_t make_value(struct rn_redis_store *store, const struct rn_redis_entry *parent,
                         const struct rn_tier_key *key, const void *payload, size_t n)
{
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    struct rn_cold_head head = {.salt = key->salt, .alive = true, .payload_bytes = (uint32_t)n};

    if (parent != NULL) {
        head.depth = parent->depth + 1;
        head.parent_check = half(&parent->chain);
    }
    head.parent = head.depth;
    head.serial = head.depth + 1;
    RN_CHECK(n <= store->options.payload_bytes); /* what store->value has room for */
    head.payload_check = rn_cold_payload_check(store->seed, head.serial, payload, n);
    rn_cold_head_pack(&head, store->seed, key->tokens, store->id.block_tokens, store->value);
    memcpy(store->value + head_bytes, payload, n);
    return head_bytes + n;
}

static runnel_status set_value(struct rn_redis_store *store, const struct rn_fingerprint *chain, size_t n)
{
    char key[RN_REDIS_KEY_BYTES + 1], ttl[24];
    size_t bytes[5] = {3, RN_REDIS_KEY_BYTES, n, 2, 0};
    struct redisReply *reply;
    unsigned n_told;
    bool good;

    rn_redis_key(store, chain, key);
    bytes[4] = (size_t)snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)store->url.ttl_s);
    if (!rn_redis_begin(store) ||
        !rn_redis_link_send(&store->link, store->url.ttl_s == 0 ? 3 : 5,
                            (const char *const[]){"SET", key, (const char *)store->value, "EX", ttl}, bytes))
        return RUNNEL_IO;
    n_told = rn_redis_news_tell(store, chain);
    reply = rn_redis_link_answer(&store->link);
    if (reply == NULL)
        return RUNNEL_IO;
    good = reply->type == REDIS_REPLY_STATUS;
    if (reply->type == REDIS_REPLY_ERROR)
        rn_redis_link_complain(&store->link, reply->str);
    else if (!good)
        rn_redis_link_drop(&store->link, "an answer of another kind than asked for");
    freeReplyObject(reply);
    rn_redis_news_told(store, n_told, good);
    store->stats.refused += !good;
    return good ? RUNNEL_OK : RUNNEL_IO;
}

static runnel_status put(struct rn_tier_store *tier, const struct rn_tier_key *key, const void *payload, size_t n,
                         uint64_t *handle)
{
    struct rn_redis_store *store = store_of(tier);
    const struct rn_redis_entry *p = key->parent == 0 ? NULL : find(store, key->parent);
    uint32_t depth = p == NULL ? 0 : p->depth + 1;
    struct rn_fingerprint chain;
    runnel_status status;

    *handle = 0;
    if (n == 0 || n > store->options.payload_bytes)
        return RUNNEL_INVALID;
    if (key->parent != 0 && p == NULL)
        return RUNNEL_NOT_FOUND;
    chain = chain_of(store, p == NULL ? NULL : &p->chain, key->salt, key->tokens);
    status = set_value(store, &chain, make_value(store, p, key, payload, n));
    if (status != RUNNEL_OK)
        return status;
    *handle = rn_redis_add(store, &chain, key->salt, depth, (uint32_t)n);
    if (*handle == 0)
        return RUNNEL_BUSY;
    store->stats.puts++;
    return RUNNEL_OK;
}

static uint32_t forget(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_redis_store *store = store_of(tier);
    struct rn_redis_entry *e = find(store, handle);

    if (e == NULL)
        return 0;
    delete_value(store, e);
    lose(store, e);
    return 1;
}

static void let_go(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_redis_store *store = store_of(tier);
    struct rn_redis_entry *e = find(store, handle);

    if (e != NULL)
        lose(store, e);
}

/* ---- The whole ---- */

static bool error_of(struct rn_tier_store *tier, runnel_error *error)
{
    struct rn_redis_store *store = store_of(tier);

    if (!store->link.has_error || store->link.error_reported)
        return false;
    store->link.error_reported = true;
    *error = store->link.error;
    return true;
}

static uint64_t known_bytes(const struct rn_tier_store *tier)
{
    return borrow(tier)->stats.known_bytes;
}

/* Of the list that begins there: how many, all of them not known; more than there are entries: it has no end. */
static uint32_t length_of(const struct rn_redis_store *store, uint32_t first)
{
    uint32_t n = 0;

    for (uint32_t at = first; at != RN_REDIS_NONE && n <= store->n_touched; at = store->entries[at].next, n++)
        if (at >= store->n_touched || store->entries[at].known)
            return UINT32_MAX;
    return n;
}

static bool is_in_table(const struct rn_redis_store *store, uint32_t entry)
{
    uint32_t at = *bucket(store, half(&store->entries[entry].chain));

    for (uint32_t n = 0; at != RN_REDIS_NONE && at != entry && n < store->n_touched; n++)
        at = store->entries[at].next;
    return at == entry;
}

bool rn_redis_store_check(const struct rn_redis_store *store)
{
    uint32_t n_known = 0, n_gone = length_of(store, store->first_gone), n_free = length_of(store, store->first_free);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < store->n_touched; i++) {
        const struct rn_redis_entry *e = &store->entries[i];

        if (!e->known)
            continue;
        if (e->generation == 0 || e->payload_bytes > store->options.payload_bytes || !is_in_table(store, i))
            return false;
        n_known++;
        bytes += rn_cold_head_bytes(store->id.block_tokens) + e->payload_bytes;
    }
    return store->n_touched <= store->n_entries && n_known == store->stats.records &&
           bytes == store->stats.known_bytes && (uint64_t)n_known + n_gone + n_free == store->n_touched &&
           store->ahead_at <= store->n_ahead && store->n_ahead <= RN_REDIS_AHEAD &&
           rn_redis_list_check(store->news.list) && rn_redis_link_check(&store->link);
}

static bool check_store(const struct rn_tier_store *tier)
{
    return rn_redis_store_check(borrow(tier));
}

static void close_store(struct rn_tier_store *tier)
{
    rn_redis_store_close(store_of(tier));
}

static const struct rn_tier_ops redis_ops = {
    .name = "shared",
    .durable = true,
    .put = put,
    .payload_bytes = payload_bytes,
    .get = get,
    .will_get = will_get,
    .forget = forget,
    .let_go = let_go,
    .news = rn_redis_news_hear,
    .tend = tend,
    .error = error_of,
    .bytes = known_bytes,
    .check = check_store,
    .close = close_store,
};

struct rn_tier_store *rn_redis_store_tier(struct rn_redis_store *store)
{
    return &store->tier;
}

void rn_redis_store_stats(const struct rn_redis_store *store, struct rn_redis_stats *stats)
{
    *stats = store->stats;
    stats->connections = store->link.connections;
    stats->losses = store->link.losses;
    stats->up = rn_redis_link_would(&store->link);
}

static void set_defaults(struct rn_redis_options *options)
{
    options->max_records = options->max_records == 0 ? 1u << 20 : options->max_records;
    options->connect_ms = options->connect_ms == 0 ? 200 : options->connect_ms;
    options->command_ms = options->command_ms == 0 ? 500 : options->command_ms;
    options->list_ms = options->list_ms == 0 ? 2000 : options->list_ms;
    options->retry_ms = options->retry_ms == 0 ? 1000 : options->retry_ms;
    options->relist_ms = options->relist_ms == 0 ? 5000 : options->relist_ms;
    if (options->clock.now_us == NULL)
        options->clock = rn_clock_machine();
}

static void name_keys(struct rn_redis_store *store)
{
    struct rn_fingerprint print = rn_cold_fingerprint(&store->id);

    memcpy(store->prefix, "runnel:1:", 9);
    rn_cold_hex(&print, store->prefix + 9);
    memcpy(store->prefix + 9 + RN_COLD_HEX, ":", 2);
}

static bool keep(struct rn_heap *heap, const char *text, char **kept)
{
    *kept = text == NULL ? NULL : rn_strndup(heap, text, strlen(text));
    return text == NULL || *kept != NULL;
}

/* The address and the files, read and kept. */
static runnel_status set_way(struct rn_redis_store *store, const struct rn_redis_options *options, runnel_error *error)
{
    const struct rn_redis_tls_files *files = &options->files;
    runnel_status status = rn_redis_url_parse(&store->url, store->heap, options->url, error);

    if (status != RUNNEL_OK)
        return status;
    if (store->url.tls)
        status = rn_redis_tls_check(files, error);
    else if (files->ca != NULL || files->cert != NULL || files->key != NULL)
        status = rn_error_set(error, RUNNEL_INVALID, "the shared cache: certificates are for rediss:// only");
    if (status != RUNNEL_OK)
        return status;
    if (keep(store->heap, files->ca, &store->files[0]) && keep(store->heap, files->cert, &store->files[1]) &&
        keep(store->heap, files->key, &store->files[2]))
        return RUNNEL_OK;
    return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a shared cache");
}

runnel_status rn_redis_store_open(struct rn_heap *heap, const struct rn_redis_options *options,
                                  rn_tier_record_fn *on_record, void *user, struct rn_redis_store **out,
                                  runnel_error *error)
{
    struct rn_redis_store *store = rn_calloc(heap, 1, sizeof *store);
    struct rn_redis_tls_files files;
    runnel_status status;

    *out = NULL;
    if (store == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a shared cache");
    store->tier.ops = &redis_ops;
    store->heap = heap;
    store->options = *options;
    store->options.url = NULL;
    store->options.files = (struct rn_redis_tls_files){.ca = NULL};
    store->id = options->id;
    store->seed = rn_cold_seed(&options->id);
    store->first_free = store->first_gone = RN_REDIS_NONE;
    set_defaults(&store->options);
    name_keys(store);
    status = set_way(store, options, error);
    if (status == RUNNEL_OK) {
        store->value = rn_alloc(heap, rn_cold_head_bytes(store->id.block_tokens) + options->payload_bytes, 1);
        if (store->value == NULL)
            status = rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a shared cache");
    }
    if (status != RUNNEL_OK) {
        rn_redis_store_close(store);
        return status;
    }
    files = (struct rn_redis_tls_files){store->files[0], store->files[1], store->files[2]};
    rn_redis_link_init(&store->link, &store->url, &files, store->options.clock, store->options.connect_ms,
                       store->options.command_ms, store->options.retry_ms,
                       rn_cold_head_bytes(store->id.block_tokens) + options->payload_bytes + BESIDE_VALUES);
    rn_redis_news_init(store);
    rn_redis_news_begin(store, on_record, user);
    *out = store;
    return RUNNEL_OK;
}

void rn_redis_store_close(struct rn_redis_store *store)
{
    if (store == NULL)
        return;
    rn_redis_news_fini(store);
    rn_redis_link_fini(&store->link);
    rn_redis_url_fini(&store->url);
    for (unsigned i = 0; i < 3; i++)
        rn_free(store->heap, store->files[i]);
    rn_free(store->heap, store->value);
    rn_free(store->heap, store->entries);
    rn_free(store->heap, store->table);
    rn_free(store->heap, store);
}
