/* The bytes of the cold store's files; docs/TIERS.md has them as a table. Pure functions: any thread.
 *
 *   segment  header (256) | record ... | index: entry ... | trailer (48)
 *   record   head (96) | tokens (4 each) | payload | up to 7 bytes, so that the next begins at a multiple of 8
 *   entry    place of the record (8) | its head | its tokens
 *
 * Numbers have their low byte first. Checks are XXH3-128, canonical, all but the header's seeded with the fingerprint:
 * bytes of another store do not pass. A head's covers the head (but for itself and for the byte that says whether
 * the record lives) and the tokens, the payload's check among them. */
#ifndef RN_CACHE_STORE_COLD_FORMAT_H
#define RN_CACHE_STORE_COLD_FORMAT_H

#include "cache/store/tier.h"

#define RN_COLD_VERSION 1

enum {
    RN_COLD_HEADER_BYTES = 256,
    RN_COLD_HEAD_BYTES = 96,
    RN_COLD_TRAILER_BYTES = 48,
    RN_COLD_PLACE_BYTES = 8,
    RN_COLD_AT_STATE = 56, /* of a head: */
    RN_COLD_ALIVE = 1,     /* anything else: dead */
    RN_COLD_DEAD = 0,
    RN_COLD_HEX = 32,     /* digits of a fingerprint */
    RN_COLD_NTH_BITS = 20 /* a serial is segment << 20 | place among its records, from 1 */
};

#define RN_COLD_SUFFIX ".kv"
#define RN_COLD_LOCK "lock"
#define RN_COLD_MOST_SEGMENTS \
    ((uint64_t)1 << (63 - RN_COLD_NTH_BITS)) /* numbers below it: a serial has room for them */
#define RN_COLD_MAX_PAYLOAD ((size_t)1 << 30)

/* What a head says. */
struct rn_cold_head {
    uint64_t serial, parent, parent_check;
    uint64_t check; /* half of the head's own: what children name */
    struct rn_prefix_salt salt;
    uint32_t payload_bytes, depth;
    bool alive;
    struct rn_fingerprint payload_check;
};

/* The folder's name and the seed of the checks. */
struct rn_fingerprint rn_cold_fingerprint(const struct rn_tier_id *id);
uint64_t rn_cold_seed(const struct rn_tier_id *id);

/* 32 hexadecimal digits and a NUL. */
void rn_cold_hex(const struct rn_fingerprint *print, char *hex);

/* "000000000000002a.kv" and back; false: no segment's name. `name` has 32 bytes. */
void rn_cold_segment_name(uint64_t number, char *name);
bool rn_cold_segment_number(const char *name, uint64_t *number);

/* header [RN_COLD_HEADER_BYTES]. unpack: false: not a header of this version, or damaged. */
void rn_cold_header_pack(const struct rn_tier_id *id, uint64_t number, unsigned char *header);
bool rn_cold_header_unpack(const unsigned char *header, struct rn_tier_id *id, uint64_t *number);

/* Bytes of a head with its tokens; of the whole record, which is a multiple of 8; of an entry. */
static inline size_t rn_cold_head_bytes(uint32_t block_tokens)
{
    return RN_COLD_HEAD_BYTES + 4 * (size_t)block_tokens;
}
static inline uint64_t rn_cold_record_bytes(uint32_t block_tokens, uint64_t payload_bytes)
{
    return (rn_cold_head_bytes(block_tokens) + payload_bytes + 7) / 8 * 8;
}
static inline size_t rn_cold_index_bytes(uint32_t block_tokens)
{
    return RN_COLD_PLACE_BYTES + rn_cold_head_bytes(block_tokens);
}

struct rn_fingerprint rn_cold_payload_check(uint64_t seed, uint64_t serial, const void *payload, size_t n);

/* Head and tokens as bytes [rn_cold_head_bytes]; sets head->check. */
void rn_cold_head_pack(struct rn_cold_head *head, uint64_t seed, const int32_t *tokens, uint32_t block_tokens,
                       unsigned char *bytes);

/* False: damaged, or something else. The tokens behind it are checked and stay where they are. */
bool rn_cold_head_unpack(const unsigned char *bytes, uint64_t seed, uint32_t block_tokens, struct rn_cold_head *head);

/* Of bytes that may be a head's: whether the first 8 can be; the serial and the depth
 * that they tell. */
bool rn_cold_head_begins(const unsigned char *bytes);
uint64_t rn_cold_head_serial(const unsigned char *bytes);
uint32_t rn_cold_head_depth(const unsigned char *bytes);

/* tokens [n] out of the bytes behind a head. */
void rn_cold_tokens_unpack(const unsigned char *bytes, uint32_t n, int32_t *tokens);

/* trailer [RN_COLD_TRAILER_BYTES] behind n entries, which begin at `index`. */
void rn_cold_trailer_pack(uint64_t seed, uint64_t number, uint64_t index, uint32_t n, unsigned char *trailer);
bool rn_cold_trailer_unpack(const unsigned char *trailer, uint64_t seed, uint64_t number, uint64_t *index, uint32_t *n);

#endif
