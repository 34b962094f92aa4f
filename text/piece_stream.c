/* From token pieces to text that can be shown: see piece_stream.h.
 *
 *     bytes --> characters (partial[]) --> first space --> stop strings (held[]) --> out
 *
 * held[] is what may still begin a stop string. After each character the question is asked for its
 * first byte alone: does a stop begin here (then the text ends here), may one still (then wait),
 * or neither (then that byte goes out and the question is asked of the next). So the stop with the
 * earliest start wins, whatever is complete first. */
#include "text/piece_stream.h"

#include <assert.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"
#define REPLACEMENT_BYTES 3

static_assert(RUNNEL_MAX_STOPS <= UINT8_MAX + 1, "rn_piece_stream.stop is an index of them");

enum verdict { GOES_OUT, MAY_BEGIN_STOP, IS_STOP };

void rn_piece_stream_init(struct rn_piece_stream *s, const char *const *stops, const uint32_t *stop_bytes,
                          uint32_t n_stops, char *held, bool strip_first_space)
{
    uint32_t i;

    RN_CHECK(n_stops <= RUNNEL_MAX_STOPS);
    memset(s, 0, sizeof *s);
    for (i = 0; i < n_stops; i++) {
        unsigned char first = (unsigned char)stops[i][0];

        RN_CHECK(stop_bytes[i] >= 1 && stop_bytes[i] <= RUNNEL_MAX_STOP_BYTES);
        s->longest_stop = stop_bytes[i] > s->longest_stop ? stop_bytes[i] : s->longest_stop;
        s->begins[first / 32] |= UINT32_C(1) << first % 32;
    }
    s->stops = stops;
    s->stop_bytes = stop_bytes;
    s->n_stops = n_stops;
    s->held = held;
    s->strip_space = strip_first_space;
}

size_t rn_piece_stream_bound(size_t longest_stop, size_t n)
{
    size_t bound, held = RN_PIECE_HELD_BYTES(longest_stop) + REPLACEMENT_BYTES; /* with an incomplete character */

    if (__builtin_mul_overflow(n, (size_t)REPLACEMENT_BYTES, &bound) || __builtin_add_overflow(bound, held, &bound))
        return SIZE_MAX;
    return bound;
}

/* What is to be done with the first byte of text[n]; `end`: nothing comes after it. *stop: the shortest of
 * those that IS_STOP means. */
static enum verdict judge(const struct rn_piece_stream *s, const char *text, uint32_t n, bool end, uint8_t *stop)
{
    unsigned char first = (unsigned char)text[0];
    enum verdict verdict = GOES_OUT;
    uint32_t i;

    if ((s->begins[first / 32] >> first % 32 & 1) == 0)
        return GOES_OUT;
    for (i = 0; i < s->n_stops; i++) {
        uint32_t stop_bytes = s->stop_bytes[i];

        if (memcmp(s->stops[i], text, n < stop_bytes ? n : stop_bytes) != 0)
            continue;
        if (n >= stop_bytes) {
            if (verdict != IS_STOP || stop_bytes < s->stop_bytes[*stop])
                *stop = (uint8_t)i;
            verdict = IS_STOP;
        } else if (!end && verdict == GOES_OUT) {
            verdict = MAY_BEGIN_STOP;
        }
    }
    return verdict;
}

/* Lets out of held[] what is certain; returns the bytes written to out. */
static size_t release(struct rn_piece_stream *s, bool end, char *out)
{
    uint32_t first = 0;
    enum verdict verdict = GOES_OUT;

    while (first < s->n_held) {
        verdict = judge(s, s->held + first, s->n_held - first, end, &s->stop);
        if (verdict != GOES_OUT)
            break;
        out[first] = s->held[first];
        first++;
    }
    if (verdict == IS_STOP) {
        uint32_t kept = s->keep_stop ? s->stop_bytes[s->stop] : 0;

        RN_CHECK(kept <= s->n_held - first);
        memcpy(out + first, s->held + first, kept);
        first += kept;
        s->stopped = true;
        s->n_held = 0;
        s->n_partial = 0;
        return first;
    }
    s->n_held -= first;
    if (s->n_held > 0)
        memmove(s->held, s->held + first, s->n_held);
    return first;
}

/* One whole character of the text. */
static size_t put(struct rn_piece_stream *s, const char *bytes, uint32_t n, char *out)
{
    bool strip = s->strip_space;

    s->strip_space = false;
    if (strip && bytes[0] == ' ')
        return 0;
    if (s->n_stops == 0) {
        memcpy(out, bytes, n);
        return n;
    }
    RN_CHECK(s->n_held + n <= RN_PIECE_HELD_BYTES(s->longest_stop));
    memcpy(s->held + s->n_held, bytes, n);
    s->n_held += n;
    return release(s, false, out);
}

/* May `byte` continue the incomplete character? */
static bool continues(const struct rn_piece_stream *s, unsigned char byte)
{
    if (s->n_partial == 1)
        return rn_utf8_second((unsigned char)s->partial[0], byte);
    return (byte & 0xc0) == 0x80;
}

static size_t put_partial(struct rn_piece_stream *s, char *out)
{
    if (s->n_partial == 0)
        return 0;
    s->n_partial = 0;
    return put(s, REPLACEMENT, REPLACEMENT_BYTES, out);
}

static size_t feed_byte(struct rn_piece_stream *s, char byte, char *out)
{
    unsigned char u = (unsigned char)byte;
    size_t written = 0;
    uint32_t length;

    if (s->n_partial > 0 && continues(s, u)) {
        s->partial[s->n_partial++] = byte;
        length = rn_utf8_length((unsigned char)s->partial[0]);
        if (s->n_partial < length)
            return 0;
        s->n_partial = 0;
        return put(s, s->partial, length, out);
    }
    written = put_partial(s, out);
    if (s->stopped)
        return written;
    length = rn_utf8_length(u);
    if (length == 1)
        return written + put(s, &byte, 1, out + written);
    if (length == 0)
        return written + put(s, REPLACEMENT, REPLACEMENT_BYTES, out + written);
    s->partial[0] = byte;
    s->n_partial = 1;
    return written;
}

size_t rn_piece_stream_feed(struct rn_piece_stream *s, const char *piece, size_t n, char *out)
{
    size_t written = 0;
    size_t i;

    for (i = 0; i < n && !s->stopped; i++)
        written += feed_byte(s, piece[i], out + written);
    return written;
}

size_t rn_piece_stream_end(struct rn_piece_stream *s, char *out)
{
    size_t written;

    if (s->stopped)
        return 0;
    written = put_partial(s, out);
    if (!s->stopped)
        written += release(s, true, out + written);
    return written;
}
