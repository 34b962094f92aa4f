/* Packed blocks. The judges: the bytes that went in; the format's own definition, read here a second time with
 * zstd's and lz4's plain decoders and a reader of packed bits that goes bit by bit; and closed forms for what must be
 * small and what must not grow. Then damage: every bit, every length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <lz4.h>
#include <zstd.h>

#include "base/rng.h"
#include "cache/block_codec.h"
#include "tests/base/refusing.h"

#define MOST_BYTES 70001

static struct rn_heap heap;

static void fill_random(uint8_t *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)rn_splitmix64(&seed);
}

/* Numbers as KV has them: the last byte of each unit one of seven, the others noise. */
static void fill_numbers(uint8_t *bytes, size_t n, uint32_t unit, uint64_t seed)
{
    fill_random(bytes, n, seed);
    for (size_t i = unit - 1; i < n; i += unit)
        bytes[i] = (uint8_t)(0x38 + bytes[i] % 7);
}

static void start(struct rn_block_codec *codec, int method, int level, uint32_t unit, size_t n)
{
    struct rn_codec_options options = {
        .method = (enum rn_codec_method)method, .level = level, .unit_bytes = unit, .block_bytes = n};

    assert_int_equal(rn_block_codec_init(codec, &heap, &options, NULL), RUNNEL_OK);
}

static uint32_t get(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* bit_plane.h's definition, a bit at a time: bit `bit` of code i lies in the part that has it, ... */
static unsigned bit_of(const uint8_t *codes, unsigned width, unsigned i, unsigned bit)
{
    unsigned at = 0;

    for (unsigned part = 4; part > 0; at += width & part ? 32 * part : 0, part /= 2) {
        unsigned first = width & ~(2 * part - 1), field = 32 * part;

        if ((width & part) != 0 && bit >= first && bit < first + part)
            return codes[at + i % field] >> (i / field * part + bit - first) & 1;
    }
    fail_msg("no part has bit %u of %u", bit, width);
    return 0;
}

static void read_bits(const uint8_t *packed, size_t size, uint8_t *plane, size_t wanted)
{
    size_t at = 0;

    for (size_t done = 0; done < wanted; done += 256) {
        unsigned width = packed[at], base = packed[at + 1], n = packed[at + 2];
        size_t here = wanted - done < 256 ? wanted - done : 256;
        const uint8_t *codes = packed + at + 3;

        at += 3 + (width == 8 ? here : 32 * width + 2 * n);
        for (unsigned i = 0; i < here; i++) {
            unsigned code = base;

            for (unsigned bit = 0; width < 8 && bit < width; bit++)
                code += bit_of(codes, width, i, bit) << bit;
            plane[done + i] = (uint8_t)(width == 8 ? codes[i] : (code & 0xff) >> 1 | code << 7);
        }
        for (unsigned i = 0; width < 8 && i < n; i++)
            plane[done + codes[32 * width + i]] = codes[32 * width + n + i];
    }
    assert_int_equal(at, size);
}

static void read_plane(const uint8_t *packed, uint32_t size, uint32_t method, uint8_t *plane, size_t wanted)
{
    if (method == 1) {
        assert_int_equal(LZ4_decompress_safe((const char *)packed, (char *)plane, (int)size, (int)wanted), wanted);
    } else if (method == 2) {
        assert_int_equal(ZSTD_decompress(plane, wanted, packed, size), wanted);
    } else if (method == 3) {
        read_bits(packed, size, plane, wanted);
    } else {
        assert_int_equal(method, 0);
        assert_int_equal(size, wanted);
        memcpy(plane, packed, size);
    }
}

/* The definition at the head of block_codec.c, byte by byte. */
static void assert_means(const uint8_t *packed, size_t n_packed, const uint8_t *block, size_t n)
{
    uint32_t unit = packed[2];
    size_t at = 24;

    assert_memory_equal(packed, "B\x01", 2);
    assert_int_equal(packed[3], 0);
    assert_int_equal(get(packed + 4), n);
    for (uint32_t p = 0; p < 4; p++) {
        uint32_t word = get(packed + 8 + 4 * p);
        size_t wanted = p < unit ? (n + unit - 1 - p) / unit : 0;
        uint8_t *plane = malloc(wanted + 1);

        read_plane(packed + at, word & 0x3fffffff, word >> 30, plane, wanted);
        for (size_t i = 0; i < wanted; i++)
            if (plane[i] != block[i * unit + p])
                fail_msg("plane %u, byte %zu", p, i);
        free(plane);
        at += word & 0x3fffffff;
    }
    assert_int_equal(at, n_packed);
}

static size_t round_trip(struct rn_block_codec *codec, const uint8_t *block)
{
    size_t n = codec->options.block_bytes, bound = rn_block_codec_bound(codec), size;
    uint8_t *packed = malloc(bound), *back = malloc(n);

    memset(packed, 0xa5, bound);
    size = rn_block_codec_pack(codec, block, packed);
    assert_true(size <= bound);
    assert_means(packed, size, block, n);
    memset(back, 0x5a, n);
    assert_int_equal(rn_block_codec_unpack(codec, packed, size, back), RUNNEL_OK);
    assert_memory_equal(back, block, n);
    free(packed);
    free(back);
    return size;
}

static void test_round_trips(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 5, 31, 32, 33, 127, 1000, 4096, 65536, MOST_BYTES};
    uint8_t *block = malloc(MOST_BYTES);

    (void)state;
    for (int method = 0; method < RN_CODEC_METHODS; method++) {
        for (uint32_t unit = 1; unit <= 4; unit *= 2) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                struct rn_block_codec codec;

                start(&codec, method, (int)(i % 4), unit, sizes[i]);
                fill_numbers(block, sizes[i], unit, i);
                round_trip(&codec, block);
                memset(block, 0, sizes[i]);
                round_trip(&codec, block);
                fill_random(block, sizes[i], i);
                assert_int_equal(round_trip(&codec, block), RN_CODEC_HEADER_BYTES + sizes[i]); /* noise stays */
                rn_block_codec_fini(&codec);
            }
        }
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
    free(block);
}

/* One of seven values has log2 7 = 2.81 bits, Huffman's codes for seven even ones 20 / 7 = 2.86, and
 * no code of whole bits needs more than 3; the noise stays. */
static void test_zstd_is_near_the_entropy(void **state)
{
    uint8_t *block = malloc(4 * 65536);

    (void)state;
    for (uint32_t unit = 1; unit <= 4; unit *= 2) {
        struct rn_block_codec codec;
        size_t size;

        start(&codec, RN_CODEC_ZSTD, 1, unit, unit * 65536);
        fill_numbers(block, unit * 65536, unit, 7);
        size = round_trip(&codec, block) - (unit - 1) * 65536;
        assert_in_range(size, 65536 / 8 * 2807 / 1000, 65536 / 8 * 3020 / 1000);
        rn_block_codec_fini(&codec);
    }
    free(block);
}

/* The seven values 0x38 .. 0x3e turned are 0x70, 0x72, ..., 0x7c: 13 in a row, four bits. */
static void test_bits_of_numbers(void **state)
{
    uint8_t *block = malloc(4 * 65536);

    (void)state;
    for (uint32_t unit = 1; unit <= 4; unit *= 2) {
        struct rn_block_codec codec;

        start(&codec, RN_CODEC_BITS, 0, unit, unit * 65536);
        fill_numbers(block, unit * 65536, unit, 7);
        assert_int_equal(round_trip(&codec, block), 24 + (unit - 1) * 65536 + 65536 / 256 * (3 + 256 * 4 / 8));
        rn_block_codec_fini(&codec);
    }
    free(block);
}

/* Bytes of each spread and place on the circle, with some elsewhere: every width, those told apart, codes that go
 * around. What one group takes is in closed form while none is elsewhere. */
static void test_bits_of_every_width(void **state)
{
    enum { N = 4096 };
    uint8_t block[N];
    struct rn_block_codec codec;
    uint64_t seed = 5;

    (void)state;
    start(&codec, RN_CODEC_BITS, 0, 1, N);
    for (unsigned width = 0; width < 8; width++)
        for (unsigned base = 0; base < 256; base += 5)
            for (unsigned others = 0; others < 30; others += 1 + 9 * (others > 0)) {
                size_t size;

                for (unsigned i = 0; i < N; i++) {
                    unsigned code = base + rn_splitmix64(&seed) % (1u << width);

                    block[i] = (uint8_t)((code & 0xff) >> 1 | code << 7);
                }
                for (unsigned i = 0; i < others * 16; i++)
                    block[rn_splitmix64(&seed) % N] = (uint8_t)rn_splitmix64(&seed);
                size = round_trip(&codec, block);
                if (others == 0)
                    assert_int_equal(size, 24 + N / 256 * (3 + 32 * width));
            }
    rn_block_codec_fini(&codec);
}

static void test_zeros_are_nothing(void **state)
{
    uint8_t *block = calloc(1, 65536);

    (void)state;
    for (int method = RN_CODEC_LZ4; method < RN_CODEC_METHODS; method++) {
        struct rn_block_codec codec;

        start(&codec, method, 1, 2, 65536);
        assert_true(round_trip(&codec, block) < 65536 / 80);
        rn_block_codec_fini(&codec);
    }
    free(block);
}

/* Any codec of the size reads what any other has written, and none of another size does. */
static void test_methods_read_each_other(void **state)
{
    enum { N = 6000 };
    uint8_t block[N], back[N], packed[N + 100];

    (void)state;
    fill_numbers(block, N, 2, 3);
    for (int from = 0; from < RN_CODEC_METHODS; from++) {
        for (int to = 0; to < RN_CODEC_METHODS; to++) {
            struct rn_block_codec a, b, c;
            size_t n;

            start(&a, from, 1, 2, N);
            start(&b, to, 1, 4, N);
            start(&c, to, 1, 2, N - 2);
            n = rn_block_codec_pack(&a, block, packed);
            assert_int_equal(rn_block_codec_unpack(&b, packed, n, back), RUNNEL_OK);
            assert_memory_equal(back, block, N);
            assert_int_equal(rn_block_codec_unpack(&c, packed, n, back), RUNNEL_FORMAT);
            rn_block_codec_fini(&a);
            rn_block_codec_fini(&b);
            rn_block_codec_fini(&c);
        }
    }
}

/* From memory of exactly the size, so that a sanitizer sees a step beyond it. */
static runnel_status unpack_exact(struct rn_block_codec *codec, const uint8_t *packed, size_t n, uint8_t *block)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    runnel_status status;

    memcpy(copy, packed, n);
    status = rn_block_codec_unpack(codec, copy, n, block);
    free(copy);
    return status;
}

/* Cut or lengthened anywhere: refused. Elsewhere a changed bit may be another block (the checksum is the store's) or
 * say that a plane is in one of the other ways; nothing worse. */
static void test_damage(void **state)
{
    enum { N = 1400 };
    uint8_t block[N], back[N], packed[N + 100];

    (void)state;
    for (int method = 0; method < RN_CODEC_METHODS; method++) {
        struct rn_block_codec codec;
        size_t n;

        start(&codec, method, 1, 2, N);
        fill_numbers(block, N, 2, 11);
        memset(block, 0, N / 2);
        memset(packed, 0, sizeof packed);
        n = rn_block_codec_pack(&codec, block, packed);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(unpack_exact(&codec, packed, i, back), RUNNEL_FORMAT);
        assert_int_equal(unpack_exact(&codec, packed, n + 1, back), RUNNEL_FORMAT);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            runnel_status status;

            packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
            status = unpack_exact(&codec, packed, n, back);
            assert_true(status == RUNNEL_FORMAT || (status == RUNNEL_OK && bit / 8 >= 8));
            packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        assert_int_equal(unpack_exact(&codec, packed, n, back), RUNNEL_OK);
        assert_memory_equal(back, block, N);
        rn_block_codec_fini(&codec);
    }
}

static void test_options(void **state)
{
    static const struct rn_codec_options bad[] = {{RN_CODEC_METHODS, 1, 1, 8}, {RN_CODEC_ZSTD, -1, 1, 8},
                                                  {RN_CODEC_ZSTD, 20, 1, 8},   {RN_CODEC_ZSTD, 1, 0, 8},
                                                  {RN_CODEC_ZSTD, 1, 3, 8},    {RN_CODEC_ZSTD, 1, 8, 8},
                                                  {RN_CODEC_ZSTD, 1, 1, 0},    {RN_CODEC_ZSTD, 1, 1, (size_t)1 << 30}};
    struct rn_block_codec codec;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        runnel_error error = {0};

        assert_int_equal(rn_block_codec_init(&codec, &heap, &bad[i], &error), RUNNEL_INVALID);
        assert_int_equal(error.status, RUNNEL_INVALID);
        rn_block_codec_fini(&codec);
    }
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Memory ---- */

/* Each allocation refused in turn; and after init there is none. */
static void test_memory(void **state)
{
    uint8_t block[5000], packed[5100];

    (void)state;
    fill_numbers(block, sizeof block, 4, 1);
    for (int method = 0; method < RN_CODEC_METHODS; method++) {
        struct rn_codec_options options = {
            .method = (enum rn_codec_method)method, .unit_bytes = 4, .block_bytes = 5000};
        runnel_status status = RUNNEL_NO_MEMORY;

        for (uint64_t at = 1; status != RUNNEL_OK; at++) {
            struct refusing refusing = {.refuse_at = at};
            struct rn_heap small = refusing_heap(&refusing);
            struct rn_block_codec codec;

            status = rn_block_codec_init(&codec, &small, &options, NULL);
            assert_true(status == RUNNEL_NO_MEMORY || (status == RUNNEL_OK && at > 2));
            if (status == RUNNEL_OK) {
                uint64_t before = refusing.calls;
                size_t n = rn_block_codec_pack(&codec, block, packed);

                assert_int_equal(rn_block_codec_unpack(&codec, packed, n, block), RUNNEL_OK);
                assert_int_equal(refusing.calls, before);
                rn_block_codec_fini(&codec);
            }
            assert_int_equal(rn_heap_blocks(&small), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_zstd_is_near_the_entropy),
        cmocka_unit_test(test_bits_of_numbers),
        cmocka_unit_test(test_bits_of_every_width),
        cmocka_unit_test(test_zeros_are_nothing),
        cmocka_unit_test(test_methods_read_each_other),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_memory),
    };

    rn_heap_init(&heap, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
