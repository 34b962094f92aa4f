/* See cold_scan.h. */
#include "cache/store/cold_scan.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/sort.h"

#define FIRST_ENTRIES 64u
#define WINDOW_BYTES 4096u /* of a search; a head's magic and its first words lie whole in it, or in the next */

#define FIRST_NUMBERS 64u

static_assert(RN_COLD_SEGMENT_RECORDS < 1u << RN_COLD_NTH_BITS, "a serial has room for the place in a segment");
static_assert(WINDOW_BYTES % 8 == 0 && WINDOW_BYTES > RN_COLD_HEAD_BYTES, "a search goes on at a multiple of 8");

bool rn_cold_numbers_add(struct rn_cold_numbers *of, struct rn_heap *heap, uint64_t number)
{
    if (of->n == of->room) {
        size_t room = of->room == 0 ? FIRST_NUMBERS : 2 * of->room;
        uint64_t *numbers = rn_realloc(heap, of->numbers, room, sizeof *numbers);

        if (numbers == NULL)
            return false;
        of->numbers = numbers;
        of->room = room;
    }
    RN_ASSERT(of->n < of->room);
    of->numbers[of->n++] = number;
    return true;
}

bool rn_cold_numbers_has(const struct rn_cold_numbers *of, uint64_t number)
{
    for (size_t i = 0; i < of->n; i++)
        if (of->numbers[i] == number)
            return true;
    return false;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void rn_cold_numbers_sort(struct rn_cold_numbers *of)
{
    if (of->n > 0)
        rn_sort_in_place(of->numbers, of->n, sizeof *of->numbers, by_number);
}

bool rn_cold_pread(const struct rn_cold_io *io, int fd, void *bytes, size_t n, uint64_t offset, int *status)
{
    unsigned char *at = bytes;

    *status = 0;
    while (n > 0) {
        int64_t got = io->pread(io->user, fd, at, n, offset);

        if (got <= 0) {
            *status = (int)got;
            return false;
        }
        RN_CHECK((uint64_t)got <= n); /* more would have been written behind the bytes */
        at += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static bool take(struct rn_cold_scan *scan, void *bytes, size_t n, uint64_t offset)
{
    int status;
    bool good = rn_cold_pread(scan->io, scan->fd, bytes, n, offset, &status);

    scan->broken |= status < 0;
    return good;
}

/* The index as it stands at the end of the file; false: there is none that is whole. */
static bool read_index(struct rn_cold_scan *scan)
{
    size_t one = rn_cold_index_bytes(scan->block_tokens);
    unsigned char trailer[RN_COLD_TRAILER_BYTES];
    uint64_t at;
    uint32_t n;

    if (scan->size < RN_COLD_HEADER_BYTES + sizeof trailer ||
        !take(scan, trailer, sizeof trailer, scan->size - sizeof trailer) ||
        !rn_cold_trailer_unpack(trailer, scan->seed, scan->number, &at, &n) || at < RN_COLD_HEADER_BYTES ||
        at > scan->size || scan->size - at != n * (uint64_t)one + sizeof trailer)
        return false;
    scan->index = rn_alloc(scan->heap, n, one);
    scan->no_memory = scan->index == NULL;
    if (scan->no_memory)
        return false;
    if (!take(scan, scan->index, n * one, at)) {
        rn_free(scan->heap, scan->index);
        scan->index = NULL;
        return false;
    }
    RN_ASSERT(scan->index != NULL || n == 0);
    scan->n = n;
    scan->index_at = at;
    scan->end = scan->size;
    return true;
}

/* The entry behind the last; NULL: no memory. */
static unsigned char *next_entry(struct rn_cold_scan *scan, uint32_t *room)
{
    size_t one = rn_cold_index_bytes(scan->block_tokens);

    RN_ASSERT(scan->n <= *room);
    if (scan->n == *room) {
        uint32_t more = *room == 0 ? FIRST_ENTRIES : 2 * *room;
        unsigned char *grown = rn_realloc(scan->heap, scan->index, more, one);

        scan->no_memory = grown == NULL;
        if (scan->no_memory)
            return NULL;
        *room = more;
        scan->index = grown;
    }
    return scan->index + scan->n * one;
}

bool rn_cold_may_hold(const struct rn_cold_io *io, const char *path)
{
    int fd = io->open(io->user, path, O_RDONLY);
    int64_t size = fd < 0 ? fd : io->size(io->user, fd);

    if (fd >= 0)
        io->close(io->user, fd);
    if (size < 0) /* no plain file, a link, a folder, a socket, none: else it is there and cannot be looked into */
        return size != -EINVAL && size != -ELOOP && size != -EISDIR && size != -ENXIO && size != -ENOENT;
    return size > RN_COLD_HEADER_BYTES;
}

bool rn_cold_head_at(struct rn_cold_scan *scan, uint64_t at, unsigned char *entry, struct rn_cold_head *head)
{
    size_t head_bytes = rn_cold_head_bytes(scan->block_tokens);

    if (at > scan->size || head_bytes > scan->size - at || !take(scan, entry + RN_COLD_PLACE_BYTES, head_bytes, at) ||
        !rn_cold_head_unpack(entry + RN_COLD_PLACE_BYTES, scan->seed, scan->block_tokens, head) ||
        head->payload_bytes > scan->size - at - head_bytes)
        return false;
    rn_bytes_put(entry, at, RN_COLD_PLACE_BYTES);
    return true;
}

static bool seen(const struct rn_cold_scan *scan, uint64_t serial)
{
    size_t one = rn_cold_index_bytes(scan->block_tokens);

    for (uint32_t i = 0; i < scan->n; i++)
        if (rn_cold_head_serial(scan->index + i * one + RN_COLD_PLACE_BYTES) == serial)
            return true;
    return false;
}

static bool payload_fits(struct rn_cold_scan *scan, uint64_t at, const struct rn_cold_head *head)
{
    unsigned char *payload = rn_alloc(scan->heap, head->payload_bytes, 1);
    struct rn_fingerprint check;
    bool good;

    scan->no_memory = payload == NULL;
    if (scan->no_memory)
        return false;
    good = take(scan, payload, head->payload_bytes, at + rn_cold_head_bytes(scan->block_tokens));
    if (good) {
        check = rn_cold_payload_check(scan->seed, head->serial, payload, head->payload_bytes);
        good = rn_fingerprint_equal(&check, &head->payload_check);
    }
    rn_free(scan->heap, payload);
    return good;
}

/* The next place from `at` on whose first bytes could be a head's; scan->size: there is none. */
static uint64_t next_magic(struct rn_cold_scan *scan, uint64_t at)
{
    unsigned char window[WINDOW_BYTES];

    while (at + RN_COLD_HEAD_BYTES <= scan->size) {
        size_t n = scan->size - at < sizeof window ? (size_t)(scan->size - at) : sizeof window;

        if (!take(scan, window, n, at))
            return scan->size;
        for (size_t i = 0; i + 8 <= n; i += 8)
            if (rn_cold_head_begins(window + i))
                return at + i;
        at += n / 8 * 8;
    }
    return scan->size;
}

/* Looks for a record at or behind `at`. */
static bool find_head(struct rn_cold_scan *scan, uint64_t *at, unsigned char *entry, struct rn_cold_head *head)
{
    for (;;) {
        RN_ASSERT(*at % 8 == 0);
        *at = next_magic(scan, *at);
        if (*at >= scan->size || scan->broken)
            return false;
        if (rn_cold_head_at(scan, *at, entry, head) && !seen(scan, head->serial) && payload_fits(scan, *at, head))
            return true;
        if (scan->broken || scan->no_memory)
            return false;
        *at += 8;
    }
}

/* Builds the index from the heads; payloads are passed over. */
static void read_heads(struct rn_cold_scan *scan)
{
    uint32_t room = 0;
    uint64_t at = RN_COLD_HEADER_BYTES;

    for (scan->end = at; scan->n < RN_COLD_SEGMENT_RECORDS; scan->n++) {
        unsigned char *entry = next_entry(scan, &room);
        struct rn_cold_head head;

        if (entry == NULL)
            return;
        if (!rn_cold_head_at(scan, at, entry, &head)) {
            if (scan->broken || !find_head(scan, &at, entry, &head))
                return;
            scan->skipped++;
        }
        at += rn_cold_record_bytes(scan->block_tokens, head.payload_bytes);
        RN_ASSERT(at > scan->end && at % 8 == 0);
        scan->end = at;
    }
}

void rn_cold_scan(struct rn_cold_scan *scan)
{
    scan->index = NULL;
    scan->n = scan->skipped = 0;
    scan->index_at = scan->end = 0;
    scan->no_memory = scan->broken = false;
    if (!read_index(scan) && !scan->no_memory && !scan->broken)
        read_heads(scan);
    RN_ASSERT(scan->n == 0 || scan->index != NULL);
    RN_ASSERT(scan->index_at == 0 || (scan->index_at <= scan->end && scan->end == scan->size));
}
