/* Planes in few bits: see bit_plane.h.
 *
 * Eight bytes at a time in words of 64 bits, all shifts masked to stay within their byte: so compilers make vectors of
 * the loops where there are no shifts of bytes, and the byte order of the machine does not matter.
 *
 * Width and base are chosen once for PIECE bytes, from the histogram of a quarter of them. */
#include "cache/bit_plane.h"

#include <assert.h>
#include <string.h>

#include "base/check.h"

enum { GROUP = RN_BIT_GROUP, WORDS = GROUP / 8, BIT_BYTES = GROUP / 8, RAW = 8, PIECE = 16 * GROUP, SAMPLE = 4 };

#define EACH(byte) ((uint64_t)(byte)*UINT64_C(0x0101010101010101))

/* Sixteen bytes in one register, where the machine has such. */
typedef uint64_t lanes __attribute__((vector_size(16)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));

union group {
    uint8_t bytes[GROUP];
    uint64_t words[WORDS];
};

static_assert(GROUP == UINT8_MAX + 1, "a place is a byte, so that any byte is a place within the group");
static_assert(sizeof(union group) == GROUP && WORDS % 8 == 0, "parts of one bit are whole words");
static_assert(PIECE % GROUP == 0 && PIECE / SAMPLE <= INT16_MAX, "a piece is counted in 16 bits");

struct choice {
    uint32_t width;
    uint8_t base;
};

/* ---- Codes of one group ---- */

/* words[i] = codes in bytes, below 2^bits, from bit `at` of those given on; returns where the next part goes. */
static inline uint8_t *put_part(const union group *codes, unsigned bits, unsigned at, uint8_t *out)
{
    unsigned n = WORDS * bits / 8, n_fields = 8 / bits;
    uint64_t mask = EACH((1u << bits) - 1), words[WORDS / 2];

    for (unsigned i = 0; i < n; i++)
        words[i] = codes->words[i] >> at & mask;
    for (unsigned k = 1; k < n_fields; k++)
        for (unsigned i = 0; i < n; i++)
            words[i] |= (codes->words[k * n + i] >> at & mask) << k * bits;
    memcpy(out, words, n * sizeof *words);
    return out + n * sizeof *words;
}

static void put_codes(const union group *codes, uint32_t width, uint8_t *out)
{
    if (width & 4)
        out = put_part(codes, 4, 0, out);
    if (width & 2)
        out = put_part(codes, 2, width & 4, out);
    if (width & 1)
        put_part(codes, 1, width & 6, out);
}

static inline void turn_left(union group *group)
{
    for (unsigned i = 0; i < WORDS; i++)
        group->words[i] = (group->words[i] << 1 & EACH(0xfe)) | (group->words[i] >> 7 & EACH(0x01));
}

static inline void add(union group *group, uint8_t number)
{
    for (unsigned i = 0; i < GROUP; i++)
        group->bytes[i] = (uint8_t)(group->bytes[i] + number);
}

/* ---- Packing ---- */

/* below[v]: how many of the sample are less than v; a second turn of the circle behind it. */
static unsigned count(const uint8_t *piece, size_t n, int16_t below[static 2 * 256])
{
    int16_t bins[256] = {0}, sum = 0;

    for (size_t i = 0; i < n / SAMPLE; i++) {
        uint8_t byte = piece[SAMPLE * i + i % SAMPLE];

        bins[(uint8_t)(byte << 1 | byte >> 7)]++;
    }
    for (unsigned v = 0; v < 2 * 256; v++) {
        below[v] = sum;
        sum = (int16_t)(sum + bins[v % 256]);
    }
    return (unsigned)(n / SAMPLE);
}

/* The most that lie in any 2^width values in a row. */
static inline int16_t most_in(const int16_t *below, uint32_t width)
{
    const int16_t *end = below + (1u << width);
    int16_t most = 0;

    for (unsigned v = 0; v < 256; v++) {
        int16_t n = (int16_t)(end[v] - below[v]);

        most = n > most ? n : most;
    }
    return most;
}

static uint8_t first_with(const int16_t *below, uint32_t width, int16_t most)
{
    unsigned v = 0;

    while (below[v + (1u << width)] - below[v] != most)
        v++;
    return (uint8_t)v;
}

/* One that is told apart takes two bytes. */
static struct choice choose(const uint8_t *piece, size_t n_bytes)
{
    struct choice choice = {RAW, 0};
    int16_t below[2 * 256], most = 0;
    unsigned n = count(piece, n_bytes, below), least = 8 * n;

    for (uint32_t width = 0; width < RAW; width++) {
        int16_t in = most_in(below, width);
        unsigned bits = width * n + 16 * (n - (unsigned)in);

        if (bits < least) {
            choice.width = width;
            least = bits;
            most = in;
        }
    }
    if (choice.width < RAW)
        choice.base = first_with(below, choice.width, most);
    RN_ASSERT(most >= 0 && (unsigned)most <= n);
    return choice;
}

/* Those whose code has more bits than `width`: their places; how many. */
static unsigned find_others(const union group *codes, uint32_t width, uint8_t places[static GROUP])
{
    uint64_t mask = EACH((0xffu << width) & 0xff);
    unsigned n = 0;

    for (unsigned i = 0; i < WORDS; i++) {
        if ((codes->words[i] & mask) == 0)
            continue;
        for (unsigned k = 8 * i; k < 8 * i + 8; k++) {
            places[n] = (uint8_t)k;
            n += codes->bytes[k] >> width != 0;
        }
    }
    return n;
}

static size_t pack_raw(const uint8_t *bytes, size_t n, uint8_t *out, size_t room)
{
    if (room < RN_BIT_HEADER + n)
        return 0;
    out[0] = RAW;
    out[1] = out[2] = 0;
    memcpy(out + RN_BIT_HEADER, bytes, n);
    return RN_BIT_HEADER + n;
}

static size_t pack_group(const uint8_t *bytes, struct choice choice, uint8_t *out, size_t room)
{
    size_t n_codes = BIT_BYTES * choice.width, size;
    uint8_t places[GROUP];
    union group codes;
    unsigned n;

    if (choice.width == RAW)
        return pack_raw(bytes, GROUP, out, room);
    memcpy(codes.bytes, bytes, GROUP);
    turn_left(&codes);
    add(&codes, (uint8_t)-choice.base);
    n = find_others(&codes, choice.width, places);
    size = RN_BIT_HEADER + n_codes + 2 * n;
    if (size >= RN_BIT_HEADER + GROUP)
        return pack_raw(bytes, GROUP, out, room);
    if (size > room)
        return 0;
    RN_ASSERT(n < GROUP / 2); /* else the group had been left as it is: so the count fits its byte */
    out[0] = (uint8_t)choice.width;
    out[1] = choice.base;
    out[2] = (uint8_t)n;
    put_codes(&codes, choice.width, out + RN_BIT_HEADER);
    memcpy(out + RN_BIT_HEADER + n_codes, places, n);
    for (unsigned i = 0; i < n; i++)
        out[RN_BIT_HEADER + n_codes + n + i] = bytes[places[i]];
    return size;
}

size_t rn_bit_plane_pack(const uint8_t *plane, size_t n, uint8_t *out, size_t room)
{
    struct choice choice = {RAW, 0};
    size_t size = 0;

    for (size_t at = 0; at < n; at += GROUP) {
        size_t taken;

        if (at % PIECE == 0)
            choice = choose(plane + at, n - at < PIECE ? n - at : PIECE);
        taken = n - at < GROUP ? pack_raw(plane + at, n - at, out + size, room - size)
                               : pack_group(plane + at, choice, out + size, room - size);
        if (taken == 0)
            return 0;
        size += taken;
        RN_ASSERT(size <= room);
    }
    return size;
}

/* ---- Unpacking ---- */

static inline lanes load(const uint8_t *in)
{
    lanes value;

    memcpy(&value, in, sizeof value);
    return value;
}

/* All bytes of a group, sixteen at a time; inlined with a fixed width, so that what the width has not is not there. */
static inline __attribute__((always_inline)) void get_codes(const uint8_t *in, uint32_t width, uint8_t base,
                                                            uint8_t *restrict bytes)
{
    const uint8_t *twos = in + 32 * (width & 4), *ones = in + 32 * (width & 6);
    const lanes low = {EACH(0x7f), EACH(0x7f)}, high = {EACH(0x80), EACH(0x80)};
    const bytes16 bases = (bytes16)(lanes){EACH(base), EACH(base)};

    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < 8; i++) {
            lanes code = {0, 0};

            if (width & 4)
                code |= load(in + 16 * i) >> 4 * k & EACH(15);
            if (width & 2)
                code |= (load(twos + 16 * (i % 4)) >> (4 * k + i / 4 * 2) & EACH(3)) << (width & 4);
            if (width & 1)
                code |= (load(ones + 16 * (i % 2)) >> (4 * k + i / 2) & EACH(1)) << (width & 6);
            code = (lanes)((bytes16)code + bases);
            code = (code >> 1 & low) | (code << 7 & high);
            memcpy(bytes + 128 * k + 16 * i, &code, sizeof code);
        }
    }
}

static void get_group(const uint8_t *in, uint32_t width, uint8_t base, uint8_t *restrict bytes)
{
    switch (width) {
    case 0:
        get_codes(in, 0, base, bytes);
        return;
    case 1:
        get_codes(in, 1, base, bytes);
        return;
    case 2:
        get_codes(in, 2, base, bytes);
        return;
    case 3:
        get_codes(in, 3, base, bytes);
        return;
    case 4:
        get_codes(in, 4, base, bytes);
        return;
    case 5:
        get_codes(in, 5, base, bytes);
        return;
    case 6:
        get_codes(in, 6, base, bytes);
        return;
    default:
        get_codes(in, 7, base, bytes);
    }
}

/* The bytes it has taken; 0: this is no group. */
static size_t unpack_group(const uint8_t *packed, size_t n_packed, uint8_t *bytes)
{
    const uint8_t *codes = packed + RN_BIT_HEADER, *places;
    uint32_t width = packed[0], n = packed[2];

    if (width >= RAW || n_packed < RN_BIT_HEADER + BIT_BYTES * width + 2 * n)
        return 0;
    get_group(codes, width, packed[1], bytes);
    places = codes + BIT_BYTES * width;
    for (uint32_t i = 0; i < n; i++)
        bytes[places[i]] = places[n + i];
    return RN_BIT_HEADER + BIT_BYTES * width + 2 * n;
}

bool rn_bit_plane_unpack(const uint8_t *packed, size_t n_packed, uint8_t *plane, size_t n)
{
    while (n > 0) {
        size_t here = n < GROUP ? n : GROUP, taken;

        if (n_packed < RN_BIT_HEADER)
            return false;
        if (packed[0] == RAW && packed[1] == 0 && packed[2] == 0 && n_packed >= RN_BIT_HEADER + here) {
            memcpy(plane, packed + RN_BIT_HEADER, here);
            taken = RN_BIT_HEADER + here;
        } else {
            taken = here == GROUP ? unpack_group(packed, n_packed, plane) : 0;
        }
        if (taken == 0)
            return false;
        packed += taken;
        n_packed -= taken;
        plane += here;
        n -= here;
    }
    return n_packed == 0;
}
