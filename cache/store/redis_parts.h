/* The inside of the shared tier, for its own files: redis_store.c (one record), redis_list.c (all that is there),
 * redis_news.c (what others put there meanwhile).
 *
 * A known entry is in the table under the first half of its chain; of two with the same chain the newer
 * one is found. */
#ifndef RN_CACHE_STORE_REDIS_PARTS_H
#define RN_CACHE_STORE_REDIS_PARTS_H

#include "cache/store/redis_link.h"
#include "cache/store/redis_store.h"

#define RN_REDIS_NONE UINT32_MAX
#define RN_REDIS_PREFIX_BYTES 42u /* "runnel:1:" | 32 digits | ":" */
#define RN_REDIS_KEY_BYTES 74u    /* and 32 more */
#define RN_REDIS_NEWS_BYTES 46u   /* instead: "news" */
#define RN_REDIS_WRITER_BYTES 16u /* digits */
#define RN_REDIS_ID_BYTES 48u     /* of an entry of a stream: two numbers of 64 bits and a hyphen, and a NUL */

struct rn_cold_head;

struct rn_redis_entry {
    struct rn_fingerprint chain;
    struct rn_prefix_salt salt;
    uint32_t depth, payload_bytes;
    uint32_t generation;
    uint32_t next; /* known: of the table. Free, or gone and not told of yet: the list */
    bool known;
};

struct rn_redis_list;

/* The stream of news: "runnel:1:<fingerprint>:news", an entry for each record that was put. */
struct rn_redis_news {
    char key[RN_REDIS_NEWS_BYTES + 1];
    char writer[RN_REDIS_WRITER_BYTES + 1]; /* this store's name in it */
    char last[RN_REDIS_ID_BYTES];           /* the last entry that was looked at; "": the stream was empty */
    uint64_t connections;                   /* link.connections when it was looked at */
    bool lost;                              /* there may be records of which no entry tells any more: list all */
    struct rn_redis_list *list;             /* under way; NULL: none */
    uint64_t list_at_us;                    /* not before */
    uint64_t mute_until_us;                 /* the server has refused a command about news: none before */
};

struct rn_redis_store {
    struct rn_tier_store tier; /* first */
    struct rn_heap *heap;
    struct rn_redis_options options;
    struct rn_tier_id id;
    uint64_t seed;
    struct rn_redis_url url;
    char *files[3]; /* what link.files names */
    struct rn_redis_link link;
    char prefix[RN_REDIS_PREFIX_BYTES + 1];
    struct rn_redis_entry *entries; /* [n_entries], n_touched of them ever used */
    uint32_t n_entries, n_touched, first_free, first_gone;
    uint32_t *table;                /* [2 × n_entries]: first of a chain */
    unsigned char *value;           /* [head with tokens, and the longest payload] */
    uint64_t ahead[RN_REDIS_AHEAD]; /* [n_ahead]: reads that have been asked for, from ahead_at on not yet answered */
    uint32_t n_ahead, ahead_at;
    uint64_t ahead_of; /* link.connections when they were asked for */
    struct rn_redis_news news;
    struct rn_redis_stats stats;
};

/* A new record's handle; 0: no memory, or max_records. */
uint64_t rn_redis_add(struct rn_redis_store *store, const struct rn_fingerprint *chain, struct rn_prefix_salt salt,
                      uint32_t depth, uint32_t payload_bytes);

/* True: a record with this chain is known. */
bool rn_redis_knows(const struct rn_redis_store *store, const struct rn_fingerprint *chain);

/* *parent: the handle of the known record from which, with the tokens, the chain follows that the head's record has; 0
 * for the first of a prefix. False: there is none. */
bool rn_redis_parent(const struct rn_redis_store *store, const struct rn_cold_head *head, const int32_t *tokens,
                     const struct rn_fingerprint *chain, uint64_t *parent);

/* key [RN_REDIS_KEY_BYTES + 1] */
void rn_redis_key(const struct rn_redis_store *store, const struct rn_fingerprint *chain, char *key);

/* The line is free, and the server there; command_ms from now on. */
bool rn_redis_begin(struct rn_redis_store *store);

/* ---- redis_list.c ---- */

/* 32 digits to a chain; false: they are none. */
bool rn_redis_chain_of(const char *hex, struct rn_fingerprint *chain);

/* Asks for the beginning of a record and for its length: two answers. */
bool rn_redis_ask_head(struct rn_redis_store *store, const char *key);

/* Takes these answers. 1: bytes [head with tokens] and *head are those of a record; 0: it is none; -1: the link is
 * down. */
int rn_redis_take_head(struct rn_redis_store *store, unsigned char *bytes, struct rn_cold_head *head);

/* What the server has, in steps. by_trip: command_ms are for each trip of a step, not for all that its caller does.
 * NULL: no memory. */
struct rn_redis_list *rn_redis_list_new(struct rn_redis_store *store, bool by_trip);
void rn_redis_list_free(struct rn_redis_list *list);

/* True: NULL, or within its bounds. */
bool rn_redis_list_check(const struct rn_redis_list *list);

enum rn_redis_step { RN_REDIS_GOES_ON, RN_REDIS_ALL, RN_REDIS_FAILED };

/* The next keys, about `count` of those the server has, and their heads. */
enum rn_redis_step rn_redis_list_step(struct rn_redis_list *list, unsigned count);

/* No more keys are asked for: sorts. False: no memory. */
bool rn_redis_list_sort(struct rn_redis_list *list);
bool rn_redis_list_is_sorted(const struct rn_redis_list *list);

/* Makes known up to `most` of those that are not, and tells of them, parents first; true: that was all. */
bool rn_redis_list_tell(struct rn_redis_list *list, uint32_t most, rn_tier_record_fn *on_record, void *user);

/* ---- redis_news.c ---- */

/* The names; nothing is asked. */
void rn_redis_news_init(struct rn_redis_store *store);
void rn_redis_news_fini(struct rn_redis_store *store);

/* Says that a record was put, behind the command that puts it; how many answers will come. */
unsigned rn_redis_news_tell(struct rn_redis_store *store, const struct rn_fingerprint *chain);

/* Takes them; put: the record's own answer was good. */
void rn_redis_news_told(struct rn_redis_store *store, unsigned n, bool put);

/* rn_tier_store_news. */
void rn_redis_news_hear(struct rn_tier_store *tier, uint32_t most, rn_tier_record_fn *on_record, void *user, bool *more,
                        bool *no_room);

/* At the beginning: makes known what the server has, as far as memory and list_ms go, and tells of it, parents
 * first. */
void rn_redis_news_begin(struct rn_redis_store *store, rn_tier_record_fn *on_record, void *user);

#endif
