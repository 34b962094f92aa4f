/* From token pieces to text that can be shown: whole UTF-8 only, never a part of a stop string.
 *
 * Bytes go in as tokens arrive; text comes out as soon as it is certain. Held back are an incomplete
 * character at the end and the longest suffix that may still become a stop string. Bytes that can
 * not be part of well-formed UTF-8 come out as U+FFFD, one per maximal ill-formed subpart (Unicode
 * 15, 3.9 "U+FFFD substitution of maximal subparts"). The text ends before (with keep_stop behind) the stop
 * string whose occurrence starts earliest, even if another one was complete before it. The concatenated output
 * depends on the concatenated input alone, not on how it was cut into pieces.
 *
 * A plain struct without heap: lives inside the state of a stream, beside the memory that init borrows. Single
 * owner. */
#ifndef RN_TEXT_PIECE_STREAM_H
#define RN_TEXT_PIECE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runnel.h"

/* Room for the text that is held back: a stop string less its last byte, and a character. 0: no stop strings. */
#define RN_PIECE_HELD_BYTES(longest_stop) ((longest_stop) > 0 ? (size_t)(longest_stop) + 3 : 0)

struct rn_piece_stream {
    const char *const *stops; /* [n_stops], borrowed; valid UTF-8, 1..RUNNEL_MAX_STOP_BYTES bytes each */
    const uint32_t *stop_bytes;
    uint32_t n_stops, longest_stop;
    uint32_t begins[8]; /* a bit for each byte with which a stop begins */
    bool strip_space;   /* the next byte of text, if a space, is dropped (SentencePiece's first) */
    bool keep_stop;     /* the stop string is part of the text; false unless set behind init */
    bool stopped;       /* a stop string was found; everything after it is ignored */
    uint8_t stop;       /* ... and which: the shortest of those that begin there */
    uint8_t n_partial;  /* bytes of an incomplete character */
    char partial[4];
    uint32_t n_held; /* whole characters that may begin a stop string */
    char *held;      /* [RN_PIECE_HELD_BYTES(longest_stop)], borrowed */
};

/* Borrows the stops, their lengths and `held` for as long as the stream is fed. */
void rn_piece_stream_init(struct rn_piece_stream *s, const char *const *stops, const uint32_t *stop_bytes,
                          uint32_t n_stops, char *held, bool strip_first_space);

/* Most bytes that feeding a piece of n bytes, or ending (n is 0), can put out, with stops of that length. */
size_t rn_piece_stream_bound(size_t longest_stop, size_t n);

/* Feeds a piece; writes the text that is now certain to out[rn_piece_stream_bound(.., n)] and returns
 * its length. After a stop string was found (s->stopped) it writes nothing more. */
size_t rn_piece_stream_feed(struct rn_piece_stream *s, const char *piece, size_t n, char *out);

/* The end of the text: an incomplete character becomes U+FFFD, and what was held back comes out. */
size_t rn_piece_stream_end(struct rn_piece_stream *s, char *out);

#endif
