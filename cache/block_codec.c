/* Packed blocks: see block_codec.h.
 *
 *   header   0  'B'      1  version     2  unit_bytes   3  0
 *            4  block_bytes, 4 bytes
 *            8  for each of four planes 4 bytes: packed size in the low 30 bits, method above; 0 beyond the unit
 *
 * Numbers have their low byte first. Plane p has each unit's byte p: of the last unit, which may be shorter, if it has
 * one. */
#include "cache/block_codec.h"

#include <string.h>

#include <lz4.h>
#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory of ours */
#include <zstd.h>

#include "base/check.h"
#include "cache/bit_plane.h"
#include "base/bytes.h"

enum place { AT_MAGIC = 0, AT_VERSION = 1, AT_UNIT = 2, AT_ZERO = 3, AT_BLOCK_BYTES = 4, AT_PLANES = 8 };

#define MAGIC 'B'
#define VERSION 1
#define MAX_BLOCK_BYTES ((size_t)1 << 30)
#define SIZE_BITS 30
#define LEAST_SAVED 32 /* a plane that saves less than this fraction is not worth unpacking */

static_assert(AT_PLANES + 4 * RN_CODEC_MAX_PLANES == RN_CODEC_HEADER_BYTES, "the header is full");
static_assert(MAX_BLOCK_BYTES == (size_t)1 << SIZE_BITS, "the size of any plane fits below the method");
static_assert(RN_CODEC_METHODS <= 1 << (32 - SIZE_BITS), "a method fits above the size");

const char *rn_codec_name(enum rn_codec_method method)
{
    static const char *const names[RN_CODEC_METHODS] = {"none", "lz4", "zstd", "bits"};

    return names[method];
}

/* ---- Planes ---- */

static size_t plane_bytes(size_t block_bytes, uint32_t unit, uint32_t plane)
{
    return block_bytes / unit + (plane < block_bytes % unit ? 1 : 0);
}

/* Fixed units, so that the compiler makes shuffles of the loops. */
static void split2(const unsigned char *restrict block, size_t n, unsigned char *restrict a, unsigned char *restrict b)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = block[2 * i];
        b[i] = block[2 * i + 1];
    }
}

static inline void gather4(const unsigned char *restrict block, size_t n, unsigned char *restrict plane)
{
    for (size_t i = 0; i < n; i++)
        plane[i] = block[4 * i];
}

static void merge2(const unsigned char *restrict a, const unsigned char *restrict b, size_t n,
                   unsigned char *restrict block)
{
    for (size_t i = 0; i < n; i++) {
        block[2 * i] = a[i];
        block[2 * i + 1] = b[i];
    }
}

static void merge4(const unsigned char *restrict a, const unsigned char *restrict b, const unsigned char *restrict c,
                   const unsigned char *restrict d, size_t n, unsigned char *restrict block)
{
    for (size_t i = 0; i < n; i++) {
        block[4 * i] = a[i];
        block[4 * i + 1] = b[i];
        block[4 * i + 2] = c[i];
        block[4 * i + 3] = d[i];
    }
}

static void split(const unsigned char *block, size_t n_bytes, uint32_t unit, unsigned char *planes)
{
    size_t n = n_bytes / unit;

    if (unit == 1) {
        memcpy(planes, block, n);
    } else if (unit == 2) {
        split2(block, n, planes, planes + plane_bytes(n_bytes, 2, 0));
        if (n_bytes % 2 != 0)
            planes[n] = block[n_bytes - 1];
    } else {
        for (uint32_t p = 0; p < 4; p++) {
            gather4(block + p, n, planes);
            if (p < n_bytes % 4)
                planes[n] = block[4 * n + p];
            planes += plane_bytes(n_bytes, 4, p);
        }
    }
}

static void merge(const unsigned char *const planes[], size_t n_bytes, uint32_t unit, unsigned char *block)
{
    size_t n = n_bytes / unit;

    if (unit == 1)
        memcpy(block, planes[0], n);
    else if (unit == 2)
        merge2(planes[0], planes[1], n, block);
    else
        merge4(planes[0], planes[1], planes[2], planes[3], n, block);
    for (uint32_t p = 0; p < n_bytes % unit; p++)
        block[unit * n + p] = planes[p][n];
}

/* ---- Methods ---- */

static int level_of(const struct rn_codec_options *options)
{
    return options->level == 0 ? 1 : options->level;
}

/* n bytes into at most `room`; 0: they do not fit. */
static size_t pack_plane(struct rn_block_codec *codec, const unsigned char *plane, size_t n, unsigned char *out,
                         size_t room)
{
    int level = level_of(&codec->options);
    size_t size;

    if (codec->options.method == RN_CODEC_LZ4)
        return (size_t)LZ4_compress_fast_extState(codec->lz4, (const char *)plane, (char *)out, (int)n, (int)room,
                                                  level);
    if (codec->options.method == RN_CODEC_BITS)
        return rn_bit_plane_pack(plane, n, out, room);
    size = ZSTD_compress2(codec->packer, out, room, plane, n);
    return ZSTD_isError(size) ? 0 : size;
}

static bool unpack_plane(struct rn_block_codec *codec, enum rn_codec_method method, const unsigned char *packed,
                         size_t n_packed, unsigned char *plane, size_t n)
{
    switch (method) {
    case RN_CODEC_LZ4:
        return LZ4_decompress_safe((const char *)packed, (char *)plane, (int)n_packed, (int)n) == (int)n;
    case RN_CODEC_ZSTD:
        return ZSTD_decompressDCtx(codec->unpacker, plane, n, packed, n_packed) == n;
    case RN_CODEC_BITS:
        return rn_bit_plane_unpack(packed, n_packed, plane, n);
    default:
        return false;
    }
}

/* ---- Contexts ---- */

/* Parameters fixed for the size of a plane, so that the memory taken at init is enough for each. */
static runnel_status start_packer(struct rn_block_codec *codec)
{
    size_t n = plane_bytes(codec->options.block_bytes, codec->options.unit_bytes, 0);
    ZSTD_compressionParameters p = ZSTD_getCParams(level_of(&codec->options), n, 0);
    size_t bytes = ZSTD_estimateCCtxSize_usingCParams(p);
    const struct {
        ZSTD_cParameter name;
        unsigned value;
    } set[] = {{ZSTD_c_windowLog, p.windowLog}, {ZSTD_c_chainLog, p.chainLog}, {ZSTD_c_hashLog, p.hashLog},
               {ZSTD_c_searchLog, p.searchLog}, {ZSTD_c_minMatch, p.minMatch}, {ZSTD_c_targetLength, p.targetLength},
               {ZSTD_c_strategy, p.strategy},   {ZSTD_c_contentSizeFlag, 0}};

    codec->packer_memory = rn_alloc(codec->heap, bytes, 1);
    if (codec->packer_memory == NULL)
        return RUNNEL_NO_MEMORY;
    codec->packer = ZSTD_initStaticCCtx(codec->packer_memory, bytes);
    RN_CHECK(codec->packer != NULL);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        RN_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(codec->packer, set[i].name, (int)set[i].value)));
    return RUNNEL_OK;
}

static runnel_status start_unpacker(struct rn_block_codec *codec)
{
    size_t bytes = ZSTD_estimateDCtxSize();

    codec->unpacker_memory = rn_alloc(codec->heap, bytes, 1);
    if (codec->unpacker_memory == NULL)
        return RUNNEL_NO_MEMORY;
    codec->unpacker = ZSTD_initStaticDCtx(codec->unpacker_memory, bytes);
    RN_CHECK(codec->unpacker != NULL);
    return RUNNEL_OK;
}

static runnel_status start(struct rn_block_codec *codec)
{
    codec->planes = rn_calloc(codec->heap, codec->options.block_bytes, 1);
    if (codec->planes == NULL)
        return RUNNEL_NO_MEMORY;
    if (codec->options.method == RN_CODEC_LZ4) {
        codec->lz4 = rn_alloc(codec->heap, (size_t)LZ4_sizeofState(), 1);
        if (codec->lz4 == NULL)
            return RUNNEL_NO_MEMORY;
    }
    if (codec->options.method == RN_CODEC_ZSTD && start_packer(codec) != RUNNEL_OK)
        return RUNNEL_NO_MEMORY;
    return start_unpacker(codec);
}

static bool options_good(const struct rn_codec_options *options)
{
    return (unsigned)options->method < RN_CODEC_METHODS && options->level >= 0 &&
           options->level <= RN_CODEC_MAX_LEVEL &&
           (options->unit_bytes == 1 || options->unit_bytes == 2 || options->unit_bytes == 4) &&
           options->block_bytes > 0 && options->block_bytes <= MAX_BLOCK_BYTES - 1;
}

runnel_status rn_block_codec_init(struct rn_block_codec *codec, struct rn_heap *heap,
                                  const struct rn_codec_options *options, runnel_error *error)
{
    *codec = (struct rn_block_codec){.heap = heap, .options = *options};
    if (!options_good(options))
        return rn_error_set(error, RUNNEL_INVALID, "block codec: an option is out of range");
    if (start(codec) != RUNNEL_OK) {
        rn_block_codec_fini(codec);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "block codec: no memory for blocks of %zu bytes",
                            options->block_bytes);
    }
    return RUNNEL_OK;
}

void rn_block_codec_fini(struct rn_block_codec *codec)
{
    if (codec->heap == NULL)
        return;
    rn_free(codec->heap, codec->planes);
    rn_free(codec->heap, codec->lz4);
    rn_free(codec->heap, codec->packer_memory);
    rn_free(codec->heap, codec->unpacker_memory);
    *codec = (struct rn_block_codec){.heap = NULL};
}

bool rn_block_codec_check(const struct rn_block_codec *codec)
{
    const enum rn_codec_method method = codec->options.method;

    if (codec->heap == NULL)
        return codec->planes == NULL && codec->packer == NULL && codec->unpacker == NULL && codec->lz4 == NULL;
    return options_good(&codec->options) && codec->planes != NULL && codec->unpacker != NULL &&
           (codec->packer != NULL) == (method == RN_CODEC_ZSTD) && (codec->lz4 != NULL) == (method == RN_CODEC_LZ4);
}

/* ---- Blocks ---- */

size_t rn_block_codec_bound(const struct rn_block_codec *codec)
{
    return RN_CODEC_HEADER_BYTES + codec->options.block_bytes;
}

/* One plane behind the others at `out`; what stands in the header for it. */
static uint32_t add_plane(struct rn_block_codec *codec, const unsigned char *plane, size_t n, unsigned char *out)
{
    size_t room = n - n / LEAST_SAVED - 1, size = 0;

    if (codec->options.method != RN_CODEC_NONE && n > LEAST_SAVED)
        size = pack_plane(codec, plane, n, out, room);
    RN_ASSERT(n < MAX_BLOCK_BYTES && size <= n);
    if (size > 0 && size <= room)
        return (uint32_t)size | (uint32_t)codec->options.method << SIZE_BITS;
    if (n > 0)
        memcpy(out, plane, n);
    return (uint32_t)n | (uint32_t)RN_CODEC_NONE << SIZE_BITS;
}

size_t rn_block_codec_pack(struct rn_block_codec *codec, const void *block, void *packed)
{
    uint32_t unit = codec->options.unit_bytes;
    unsigned char *header = packed, *out = header + RN_CODEC_HEADER_BYTES;
    const unsigned char *plane = codec->planes;

    memset(header, 0, RN_CODEC_HEADER_BYTES);
    header[AT_MAGIC] = MAGIC;
    header[AT_VERSION] = VERSION;
    header[AT_UNIT] = (unsigned char)unit;
    rn_bytes_put(header + AT_BLOCK_BYTES, (uint32_t)codec->options.block_bytes, 4);
    split(block, codec->options.block_bytes, unit, codec->planes);
    for (uint32_t p = 0; p < unit; p++) {
        size_t n = plane_bytes(codec->options.block_bytes, unit, p);
        uint32_t word = add_plane(codec, plane, n, out);

        rn_bytes_put(header + AT_PLANES + 4 * p, word, 4);
        out += word & (((uint32_t)1 << SIZE_BITS) - 1);
        plane += n;
    }
    RN_ASSERT((size_t)(out - header) <= rn_block_codec_bound(codec));
    RN_ASSERT((size_t)(plane - codec->planes) == codec->options.block_bytes);
    return (size_t)(out - header);
}

static bool header_good(const struct rn_block_codec *codec, const unsigned char *header, size_t n)
{
    return n >= RN_CODEC_HEADER_BYTES && header[AT_MAGIC] == MAGIC && header[AT_VERSION] == VERSION &&
           (header[AT_UNIT] == 1 || header[AT_UNIT] == 2 || header[AT_UNIT] == 4) && header[AT_ZERO] == 0 &&
           rn_bytes_get(header + AT_BLOCK_BYTES, 4) == codec->options.block_bytes;
}

/* The plane's bytes: those at `at` themselves, if they are as they were, else at `room`; NULL: they cannot be had. */
static const unsigned char *open_plane(struct rn_block_codec *codec, uint32_t word, const unsigned char *at,
                                       size_t size, unsigned char *room, size_t wanted)
{
    enum rn_codec_method method = (enum rn_codec_method)(word >> SIZE_BITS);

    if (method == RN_CODEC_NONE)
        return size == wanted ? at : NULL;
    return unpack_plane(codec, method, at, size, room, wanted) ? room : NULL;
}

runnel_status rn_block_codec_unpack(struct rn_block_codec *codec, const void *packed, size_t n, void *block)
{
    const unsigned char *header = packed, *at = header + RN_CODEC_HEADER_BYTES;
    const unsigned char *planes[RN_CODEC_MAX_PLANES];
    unsigned char *room = codec->planes;
    uint32_t unit;

    if (!header_good(codec, header, n))
        return RUNNEL_FORMAT;
    unit = header[AT_UNIT];
    n -= RN_CODEC_HEADER_BYTES;
    for (uint32_t p = 0; p < RN_CODEC_MAX_PLANES; p++) {
        uint32_t word = (uint32_t)rn_bytes_get(header + AT_PLANES + 4 * p, 4);
        uint32_t size = word & (((uint32_t)1 << SIZE_BITS) - 1);
        size_t wanted = p < unit ? plane_bytes(codec->options.block_bytes, unit, p) : 0;

        if (size > n || (wanted == 0 && word != 0))
            return RUNNEL_FORMAT;
        planes[p] = open_plane(codec, word, at, size, room, wanted);
        if (wanted > 0 && planes[p] == NULL)
            return RUNNEL_FORMAT;
        at += size;
        room += wanted;
        n -= size;
    }
    if (n != 0)
        return RUNNEL_FORMAT;
    RN_ASSERT((size_t)(room - codec->planes) == codec->options.block_bytes);
    merge(planes, codec->options.block_bytes, unit, block);
    return RUNNEL_OK;
}
