/* A KV block's bytes made smaller, and back to the bit: what the warm and the cold tier keep.
 *
 *   block  [x0 x1 | y0 y1 | z0 z1 ...]   units of 1, 2 or 4 bytes
 *   planes [x0 y0 z0 ...] [x1 y1 z1 ...]  all first bytes, all second bytes, ...
 *   packed header | plane 0 | plane 1 ...  each by the method, or as it is where that saves less than 1/32
 *
 * The exponents of the numbers of a block are much alike and their low mantissa bits are noise: apart from each other
 * the first pack well and the second need not be tried again when they are read. "bits" is bit_plane.h: made for the
 * planes of exponents, a tenth larger there than what zstd makes of them, and several times as fast to read. What each
 * method makes of the KV of a real model is in docs/TIERS.md.
 *
 * Packed bytes say themselves how they are packed: a codec of the same block size reads what any other has written.
 * They are not under a checksum (the stores have one); any bytes are refused or unpacked, never read or written out of
 * bounds.
 *
 * A codec has its working memory from init on; it allocates nothing later. One thread at a time. */
#ifndef RN_CACHE_BLOCK_CODEC_H
#define RN_CACHE_BLOCK_CODEC_H

#include <stdbool.h>

#include "base/alloc.h"
#include "base/status.h"

enum rn_codec_method { RN_CODEC_NONE, RN_CODEC_LZ4, RN_CODEC_ZSTD, RN_CODEC_BITS, RN_CODEC_METHODS };

#define RN_CODEC_MAX_PLANES 4u
#define RN_CODEC_MAX_LEVEL 19
#define RN_CODEC_HEADER_BYTES 24u

struct rn_codec_options {
    enum rn_codec_method method;
    int level;           /* zstd: 1 .. RN_CODEC_MAX_LEVEL; lz4: its acceleration, 1 is the best ratio. 0: 1 */
    uint32_t unit_bytes; /* 1, 2 or 4: rn_kv_unit_bytes() of the KV type */
    size_t block_bytes;  /* of every block, in [1, 2^30) */
};

struct rn_block_codec {
    struct rn_heap *heap;
    struct rn_codec_options options;
    unsigned char *planes;   /* [block_bytes] */
    void *packer, *unpacker; /* zstd's contexts; all methods can be unpacked, whatever the own one */
    void *packer_memory, *unpacker_memory, *lz4;
};

/* NO_MEMORY: nothing is held. INVALID: an option is out of range. Borrows the heap until fini. */
runnel_status rn_block_codec_init(struct rn_block_codec *codec, struct rn_heap *heap,
                                  const struct rn_codec_options *options, runnel_error *error);

/* Harmless on a zeroed codec. */
void rn_block_codec_fini(struct rn_block_codec *codec);

/* The most bytes that a packed block has: little more than block_bytes. */
size_t rn_block_codec_bound(const struct rn_block_codec *codec);

/* Packs block [block_bytes] into packed [rn_block_codec_bound]; returns the bytes it takes. Cannot fail: what cannot be
 * made smaller is stored as it is. The same bytes from the same block, options and library versions. */
size_t rn_block_codec_pack(struct rn_block_codec *codec, const void *block, void *packed);

/* Unpacks packed [n] into block [block_bytes]. FORMAT: these are not the bytes of a packed block of this size; what is
 * in `block` then is undefined. */
runnel_status rn_block_codec_unpack(struct rn_block_codec *codec, const void *packed, size_t n, void *block);

/* True: zeroed, or it has the memory that its options ask for, and no other. */
bool rn_block_codec_check(const struct rn_block_codec *codec);

/* "none", "lz4", "zstd", "bits". */
const char *rn_codec_name(enum rn_codec_method method);

#endif
