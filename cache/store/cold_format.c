/* The bytes of the cold store's files: see cold_format.h. */
#include "cache/store/cold_format.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's size */
#include <xxhash.h>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/store/fingerprint_hash.h"

static const unsigned char segment_magic[8] = {'R', 'N', 'K', 'V', 'S', 'E', 0x1a, '\n'};
static const unsigned char trailer_magic[8] = {'R', 'N', 'K', 'V', 'E', 'N', 0x1a, '\n'};

#define HEAD_MAGIC 0x52434e52u /* "RNCR" */
#define MAX_BLOCK_TOKENS 65536u

enum header_place {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_MODEL = 16,
    AT_KV = 32,
    AT_ADAPTER = 48,
    AT_NUMBER = 64,
    AT_BLOCK_BYTES = 72,
    AT_BLOCK_TOKENS = 80,
    AT_NAME = 96,
    AT_CHECK = 240
};

enum head_place {
    AT_MAGIC = 0,
    AT_PAYLOAD_BYTES = 4,
    AT_SERIAL = 8,
    AT_PARENT = 16,
    AT_PARENT_CHECK = 24,
    AT_SALT = 32,
    AT_DEPTH = 48,
    AT_N_TOKENS = 52,
    AT_PAYLOAD_CHECK = 64,
    AT_HEAD_CHECK = 80
};

enum trailer_place { AT_N = 8, AT_INDEX = 16, AT_OF = 24, AT_TRAILER_CHECK = 32 };

#define PRINT_BYTES (int)sizeof(struct rn_fingerprint)

static_assert(sizeof(struct rn_fingerprint) == 16, "as it stands in the files");
static_assert(AT_MODEL + PRINT_BYTES == AT_KV && AT_KV + PRINT_BYTES == AT_ADAPTER, "the header's three prints");
static_assert(AT_ADAPTER + PRINT_BYTES == AT_NUMBER && AT_NUMBER + 8 == AT_BLOCK_BYTES, "the header's numbers");
static_assert(AT_BLOCK_BYTES + 8 == AT_BLOCK_TOKENS && AT_BLOCK_TOKENS + 4 <= AT_NAME, "the header's sizes");
static_assert(AT_NAME + RN_TIER_NAME_BYTES <= AT_CHECK, "the name ends before the check");
static_assert(AT_CHECK + PRINT_BYTES == RN_COLD_HEADER_BYTES, "the header is under its check");
static_assert(AT_PAYLOAD_BYTES + 4 == AT_SERIAL && AT_SERIAL + 8 == AT_PARENT, "whose head it is");
static_assert(AT_PARENT + 8 == AT_PARENT_CHECK && AT_PARENT_CHECK + 8 == AT_SALT, "what the head builds on");
static_assert(AT_SALT + sizeof(struct rn_prefix_salt) == AT_DEPTH && AT_DEPTH + 4 == AT_N_TOKENS, "salt and depth");
static_assert(AT_N_TOKENS + 4 == RN_COLD_AT_STATE && RN_COLD_AT_STATE + 1 <= AT_PAYLOAD_CHECK, "the state is one byte");
static_assert(AT_PAYLOAD_CHECK + PRINT_BYTES == AT_HEAD_CHECK, "the payload's check is under the head's");
static_assert(AT_HEAD_CHECK + PRINT_BYTES == RN_COLD_HEAD_BYTES, "the head is under its check");
static_assert(AT_OF + 8 == AT_TRAILER_CHECK, "the trailer's numbers are under its check");
static_assert(AT_TRAILER_CHECK + PRINT_BYTES == RN_COLD_TRAILER_BYTES, "the trailer ends with its check");
static_assert(RN_COLD_HEADER_BYTES % 8 == 0 && RN_COLD_HEAD_BYTES % 8 == 0, "records begin at multiples of 8");
static_assert(RN_COLD_HEX == 2 * PRINT_BYTES, "two digits a byte");

/* ---- Names ---- */

struct rn_fingerprint rn_cold_fingerprint(const struct rn_tier_id *id)
{
    unsigned char bytes[64] = {0};

    memcpy(bytes, id->model.bytes, 16);
    memcpy(bytes + 16, id->kv.bytes, 16);
    memcpy(bytes + 32, id->adapter.bytes, 16);
    rn_bytes_put(bytes + 48, id->block_tokens, 4);
    rn_bytes_put(bytes + 52, RN_COLD_VERSION, 4);
    rn_bytes_put(bytes + 56, id->block_bytes, 8);
    return rn_fingerprint_of(XXH3_128bits(bytes, sizeof bytes));
}

uint64_t rn_cold_seed(const struct rn_tier_id *id)
{
    struct rn_fingerprint print = rn_cold_fingerprint(id);

    return rn_bytes_get(print.bytes, 8);
}

void rn_cold_hex(const struct rn_fingerprint *print, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (unsigned i = 0; i < 16; i++) {
        hex[2 * i] = digits[print->bytes[i] >> 4];
        hex[2 * i + 1] = digits[print->bytes[i] & 15];
    }
    hex[RN_COLD_HEX] = '\0';
}

void rn_cold_segment_name(uint64_t number, char *name)
{
    RN_ASSERT(number > 0 && number < RN_COLD_MOST_SEGMENTS);
    snprintf(name, 32, "%016llx" RN_COLD_SUFFIX, (unsigned long long)number);
}

/* A serial has room for 44 bits of it. */
bool rn_cold_segment_number(const char *name, uint64_t *number)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 16; i++) {
        const char *digits = "0123456789abcdef", *at = name[i] != '\0' ? strchr(digits, name[i]) : NULL;

        if (at == NULL)
            return false;
        value = value << 4 | (uint64_t)(at - digits);
    }
    *number = value;
    return strcmp(name + 16, RN_COLD_SUFFIX) == 0 && value > 0 && value < RN_COLD_MOST_SEGMENTS;
}

/* ---- Segments ---- */

void rn_cold_header_pack(const struct rn_tier_id *id, uint64_t number, unsigned char *header)
{
    struct rn_fingerprint check;

    RN_ASSERT(id->name[RN_TIER_NAME_BYTES - 1] == '\0' && id->block_tokens <= MAX_BLOCK_TOKENS);
    RN_ASSERT(id->block_tokens > 0 && (id->block_tokens & (id->block_tokens - 1)) == 0);
    memset(header, 0, RN_COLD_HEADER_BYTES);
    memcpy(header, segment_magic, sizeof segment_magic);
    rn_bytes_put(header + AT_VERSION, RN_COLD_VERSION, 4);
    rn_bytes_put(header + AT_HEADER_BYTES, RN_COLD_HEADER_BYTES, 4);
    memcpy(header + AT_MODEL, id->model.bytes, 16);
    memcpy(header + AT_KV, id->kv.bytes, 16);
    memcpy(header + AT_ADAPTER, id->adapter.bytes, 16);
    rn_bytes_put(header + AT_NUMBER, number, 8);
    rn_bytes_put(header + AT_BLOCK_BYTES, id->block_bytes, 8);
    rn_bytes_put(header + AT_BLOCK_TOKENS, id->block_tokens, 4);
    memcpy(header + AT_NAME, id->name, RN_TIER_NAME_BYTES - 1);
    check = rn_fingerprint_of(XXH3_128bits(header, AT_CHECK));
    memcpy(header + AT_CHECK, check.bytes, 16);
}

bool rn_cold_header_unpack(const unsigned char *header, struct rn_tier_id *id, uint64_t *number)
{
    struct rn_fingerprint check = rn_fingerprint_of(XXH3_128bits(header, AT_CHECK));

    if (memcmp(header, segment_magic, sizeof segment_magic) != 0 || memcmp(header + AT_CHECK, check.bytes, 16) != 0 ||
        rn_bytes_get(header + AT_VERSION, 4) != RN_COLD_VERSION ||
        rn_bytes_get(header + AT_HEADER_BYTES, 4) != RN_COLD_HEADER_BYTES)
        return false;
    memcpy(id->model.bytes, header + AT_MODEL, 16);
    memcpy(id->kv.bytes, header + AT_KV, 16);
    memcpy(id->adapter.bytes, header + AT_ADAPTER, 16);
    memcpy(id->name, header + AT_NAME, RN_TIER_NAME_BYTES);
    id->block_bytes = rn_bytes_get(header + AT_BLOCK_BYTES, 8);
    id->block_tokens = (uint32_t)rn_bytes_get(header + AT_BLOCK_TOKENS, 4);
    *number = rn_bytes_get(header + AT_NUMBER, 8);
    return id->name[RN_TIER_NAME_BYTES - 1] == '\0' && id->block_tokens > 0 && id->block_tokens <= MAX_BLOCK_TOKENS &&
           (id->block_tokens & (id->block_tokens - 1)) == 0;
}

static struct rn_fingerprint trailer_check(uint64_t seed, const unsigned char *trailer)
{
    return rn_fingerprint_of(XXH3_128bits_withSeed(trailer, AT_TRAILER_CHECK, seed));
}

void rn_cold_trailer_pack(uint64_t seed, uint64_t number, uint64_t index, uint32_t n, unsigned char *trailer)
{
    struct rn_fingerprint check;

    RN_ASSERT(n < 1u << RN_COLD_NTH_BITS && index >= RN_COLD_HEADER_BYTES);
    memcpy(trailer, trailer_magic, sizeof trailer_magic);
    rn_bytes_put(trailer + AT_N, n, 8);
    rn_bytes_put(trailer + AT_INDEX, index, 8);
    rn_bytes_put(trailer + AT_OF, number, 8);
    check = trailer_check(seed, trailer);
    memcpy(trailer + AT_TRAILER_CHECK, check.bytes, 16);
}

bool rn_cold_trailer_unpack(const unsigned char *trailer, uint64_t seed, uint64_t number, uint64_t *index, uint32_t *n)
{
    struct rn_fingerprint check = trailer_check(seed, trailer);
    uint64_t count = rn_bytes_get(trailer + AT_N, 8);

    *index = rn_bytes_get(trailer + AT_INDEX, 8);
    *n = (uint32_t)count;
    return memcmp(trailer, trailer_magic, sizeof trailer_magic) == 0 && count < 1u << RN_COLD_NTH_BITS &&
           memcmp(trailer + AT_TRAILER_CHECK, check.bytes, 16) == 0 && rn_bytes_get(trailer + AT_OF, 8) == number;
}

/* ---- Records ---- */

struct rn_fingerprint rn_cold_payload_check(uint64_t seed, uint64_t serial, const void *payload, size_t n)
{
    return rn_fingerprint_of(XXH3_128bits_withSeed(payload, n, seed + serial));
}

static struct rn_fingerprint head_check(const unsigned char *bytes, uint64_t seed, uint32_t block_tokens)
{
    XXH3_state_t state;

    XXH3_128bits_reset_withSeed(&state, seed);
    XXH3_128bits_update(&state, bytes, RN_COLD_AT_STATE);
    XXH3_128bits_update(&state, bytes + RN_COLD_AT_STATE + 1, AT_HEAD_CHECK - RN_COLD_AT_STATE - 1);
    XXH3_128bits_update(&state, bytes + RN_COLD_HEAD_BYTES, 4 * (size_t)block_tokens);
    return rn_fingerprint_of(XXH3_128bits_digest(&state));
}

void rn_cold_head_pack(struct rn_cold_head *head, uint64_t seed, const int32_t *tokens, uint32_t block_tokens,
                       unsigned char *bytes)
{
    struct rn_fingerprint check;

    RN_ASSERT(head->serial > head->parent && (head->parent == 0) == (head->depth == 0));
    RN_ASSERT(head->payload_bytes > 0 && head->payload_bytes <= RN_COLD_MAX_PAYLOAD);
    memset(bytes, 0, RN_COLD_HEAD_BYTES);
    rn_bytes_put(bytes + AT_MAGIC, HEAD_MAGIC, 4);
    rn_bytes_put(bytes + AT_PAYLOAD_BYTES, head->payload_bytes, 4);
    rn_bytes_put(bytes + AT_SERIAL, head->serial, 8);
    rn_bytes_put(bytes + AT_PARENT, head->parent, 8);
    rn_bytes_put(bytes + AT_PARENT_CHECK, head->parent_check, 8);
    rn_bytes_put(bytes + AT_SALT, head->salt.word[0], 8);
    rn_bytes_put(bytes + AT_SALT + 8, head->salt.word[1], 8);
    rn_bytes_put(bytes + AT_DEPTH, head->depth, 4);
    rn_bytes_put(bytes + AT_N_TOKENS, block_tokens, 4);
    bytes[RN_COLD_AT_STATE] = head->alive ? RN_COLD_ALIVE : RN_COLD_DEAD;
    memcpy(bytes + AT_PAYLOAD_CHECK, head->payload_check.bytes, 16);
    for (uint32_t i = 0; i < block_tokens; i++)
        rn_bytes_put(bytes + RN_COLD_HEAD_BYTES + 4 * (size_t)i, (uint32_t)tokens[i], 4);
    check = head_check(bytes, seed, block_tokens);
    memcpy(bytes + AT_HEAD_CHECK, check.bytes, 16);
    head->check = rn_bytes_get(check.bytes, 8);
}

bool rn_cold_head_unpack(const unsigned char *bytes, uint64_t seed, uint32_t block_tokens, struct rn_cold_head *head)
{
    struct rn_fingerprint check;

    if (rn_bytes_get(bytes + AT_MAGIC, 4) != HEAD_MAGIC || rn_bytes_get(bytes + AT_N_TOKENS, 4) != block_tokens)
        return false;
    check = head_check(bytes, seed, block_tokens);
    if (memcmp(bytes + AT_HEAD_CHECK, check.bytes, 16) != 0)
        return false;
    head->payload_bytes = (uint32_t)rn_bytes_get(bytes + AT_PAYLOAD_BYTES, 4);
    head->serial = rn_bytes_get(bytes + AT_SERIAL, 8);
    head->parent = rn_bytes_get(bytes + AT_PARENT, 8);
    head->parent_check = rn_bytes_get(bytes + AT_PARENT_CHECK, 8);
    head->salt.word[0] = rn_bytes_get(bytes + AT_SALT, 8);
    head->salt.word[1] = rn_bytes_get(bytes + AT_SALT + 8, 8);
    head->depth = (uint32_t)rn_bytes_get(bytes + AT_DEPTH, 4);
    head->alive = bytes[RN_COLD_AT_STATE] == RN_COLD_ALIVE;
    memcpy(head->payload_check.bytes, bytes + AT_PAYLOAD_CHECK, 16);
    head->check = rn_bytes_get(check.bytes, 8);
    return head->serial != 0 && head->parent < head->serial && head->payload_bytes > 0 &&
           head->payload_bytes <= RN_COLD_MAX_PAYLOAD && (head->parent == 0) == (head->depth == 0);
}

bool rn_cold_head_begins(const unsigned char *bytes)
{
    return rn_bytes_get(bytes + AT_MAGIC, 4) == HEAD_MAGIC;
}

uint64_t rn_cold_head_serial(const unsigned char *bytes)
{
    return rn_bytes_get(bytes + AT_SERIAL, 8);
}

uint32_t rn_cold_head_depth(const unsigned char *bytes)
{
    return (uint32_t)rn_bytes_get(bytes + AT_DEPTH, 4);
}

void rn_cold_tokens_unpack(const unsigned char *bytes, uint32_t n, int32_t *tokens)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rn_bytes_get(bytes + 4 * (size_t)i, 4);
}
