/* Text out of token pieces: every cut of a text gives the same output, and that output is the one a
 * plain reading of the whole text gives; Unicode's own cases for ill-formed bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "text/piece_stream.h"
#include "text/vocab.h"

#define FFFD "\xef\xbf\xbd"

struct input {
    const char *bytes;
    size_t n;
    const char *stops[RUNNEL_MAX_STOPS];
    uint32_t stop_bytes[RUNNEL_MAX_STOPS];
    uint32_t n_stops;
    bool strip;
};

/* The rule in one sentence each, over the whole text at once: replace, strip, cut. */
static size_t reference(const struct input *input, bool keep_stop, char *out, int *stop)
{
    size_t n = 0, at = 0, cut;
    uint32_t i;

    while (at < input->n) { /* the longest well-formed prefix of a character is one subpart */
        size_t part = 1;

        while (part < 4 && at + part < input->n) {
            static const char *const tails[] = {"", "\x80", "\x80\x80", "\x80\x80\x80", "\xa0\x80", "\x90\x80\x80"};
            unsigned char lead = (unsigned char)input->bytes[at];
            size_t length = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
            char whole[8];
            bool extends = false;
            size_t t;

            /* do these bytes and one more begin some character? */
            for (t = 0; t < sizeof tails / sizeof tails[0]; t++) {
                size_t n_tail = strlen(tails[t]);

                memcpy(whole, input->bytes + at, part + 1);
                memcpy(whole + part + 1, tails[t], n_tail);
                extends = extends || (part + 1 + n_tail == length && rn_utf8_valid(whole, length));
            }
            if (!extends)
                break;
            part++;
        }
        if (rn_utf8_valid(input->bytes + at, part)) {
            memcpy(out + n, input->bytes + at, part);
            n += part;
        } else {
            memcpy(out + n, FFFD, 3);
            n += 3;
        }
        at += part;
    }
    if (input->strip && n > 0 && out[0] == ' ')
        memmove(out, out + 1, --n);
    *stop = -1;
    for (cut = 0; cut < n; cut++) {
        for (i = 0; i < input->n_stops; i++) {
            if (n - cut >= input->stop_bytes[i] && memcmp(out + cut, input->stops[i], input->stop_bytes[i]) == 0 &&
                (*stop < 0 || input->stop_bytes[i] < input->stop_bytes[*stop]))
                *stop = (int)i;
        }
        if (*stop >= 0)
            return cut + (keep_stop ? input->stop_bytes[*stop] : 0);
    }
    return n;
}

/* Feeds the text cut after each byte i with bit i of `cuts` set; checks the bound of each call and
 * that what is out is whole UTF-8 after each. */
static size_t stream(const struct input *input, uint64_t cuts, bool keep_stop, char *out, int *stop)
{
    struct rn_piece_stream s;
    size_t from = 0, n = 0, longest = 0, i;
    char *held = NULL;

    for (i = 0; i < input->n_stops; i++)
        longest = input->stop_bytes[i] > longest ? input->stop_bytes[i] : longest;
    held = malloc(RN_PIECE_HELD_BYTES(longest)); /* to the byte: AddressSanitizer looks */
    rn_piece_stream_init(&s, input->stops, input->stop_bytes, input->n_stops, held, input->strip);
    s.keep_stop = keep_stop;
    for (i = 0; i < input->n; i++) {
        if (i + 1 == input->n || (cuts >> (i % 64) & 1)) {
            size_t wrote = rn_piece_stream_feed(&s, input->bytes + from, i + 1 - from, out + n);

            assert_true(wrote <= rn_piece_stream_bound(longest, i + 1 - from));
            n += wrote;
            assert_true(rn_utf8_valid(out, n));
            assert_true(s.n_held == 0 || s.n_held < longest);
            from = i + 1;
        }
    }
    n += rn_piece_stream_end(&s, out + n);
    assert_int_equal(rn_piece_stream_end(&s, out + n), 0);
    free(held);
    *stop = s.stopped ? s.stop : -1;
    return n;
}

static void check(const struct input *input, uint64_t cuts)
{
    char want[4096], got[4096];
    int want_stop, got_stop;

    for (int keep = 0; keep < 2; keep++) {
        size_t n_want = reference(input, keep, want, &want_stop);
        size_t n_got = stream(input, cuts, keep, got, &got_stop);

        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_want);
        assert_int_equal(got_stop, want_stop);
    }
}

/* All 2^(n-1) cuts of a short text. */
static void check_all_cuts(const struct input *input)
{
    uint64_t cuts;

    assert_in_range(input->n, 1, 14);
    for (cuts = 0; cuts < (uint64_t)1 << (input->n - 1); cuts++)
        check(input, cuts);
}

static void add_stop(struct input *input, const char *stop)
{
    input->stops[input->n_stops] = stop;
    input->stop_bytes[input->n_stops++] = (uint32_t)strlen(stop);
}

static void check_text(const char *text, const char *stop, const char *other, const char *want)
{
    struct input input = {text, strlen(text), {0}, {0}, 0, false};
    char got[4096];
    int found;
    size_t n;

    if (stop != NULL)
        add_stop(&input, stop);
    if (other != NULL)
        add_stop(&input, other);
    n = stream(&input, ~(uint64_t)0, false, got, &found);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, n);
    if (input.n <= 14)
        check_all_cuts(&input);
}

static void test_stops(void **state)
{
    (void)state;
    check_text("aaab", "aab", NULL, "a");
    check_text("aaaab!", "aab", NULL, "aa");
    check_text("abababac", "abac", NULL, "abab");
    check_text("one.two", ".", NULL, "one");
    check_text("stop", "stop", NULL, "");
    check_text("no sto", "stop", NULL, "no sto");
    check_text("x<|im_end|>y", "<|im_end|>", NULL, "x");
    check_text("x<|im_en|>y", "<|im_end|>", NULL, "x<|im_en|>y");
    check_text("caf\xc3\xa9!", "\xc3\xa9", NULL, "caf");
    check_text("\xf0\x9f\x9a\x80\xf0\x9f\x9a\x81", "\xf0\x9f\x9a\x81", NULL, "\xf0\x9f\x9a\x80");
    /* The earliest start wins, even where the other is complete first ... */
    check_text("xabcdy", "bc", "abcd", "x");
    check_text("xabcdy", "abcd", "bc", "x");
    /* ... and what is complete is not lost when the longer one does not come about. */
    check_text("xabcey", "bc", "abcd", "xa");
    check_text("xabc", "bc", "abcd", "xa");
    /* Of two that start together the text before is the same. */
    check_text("xab", "a", "ab", "x");
}

/* Unicode 15, 3.9, tables 3-8 to 3-11, and cases of their kind. */
static void test_ill_formed(void **state)
{
    (void)state;
    check_text("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", NULL, NULL, FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    check_text("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", NULL, NULL, FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    check_text("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", NULL, NULL, FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B");
    check_text("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", NULL, NULL, FFFD FFFD FFFD FFFD "A");
    check_text("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", NULL, NULL,
               "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
    check_text("ab\xe2\x82", NULL, NULL, "ab" FFFD);
    check_text("ab\xf0", NULL, NULL, "ab" FFFD);
    check_text("\xe2\x82\xac\xf4\x8f\xbf\xbf", NULL, NULL, "\xe2\x82\xac\xf4\x8f\xbf\xbf");
    check_text("\xf5\xf8\xfe", NULL, NULL, FFFD FFFD FFFD);
    /* A stop may be the replacement character itself, also at the very end. */
    check_text("ab\xe2\x82", FFFD, NULL, "ab");
}

static void test_strip(void **state)
{
    static const char *const texts[] = {" a", "  a", "a b", "\xe2\x82\xac", "\xffz", " ", "\xe2\x82 x", " \xe2"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct input input = {texts[i], strlen(texts[i]), {0}, {0}, 0, true};

        check_all_cuts(&input);
        add_stop(&input, " x");
        add_stop(&input, " ");
        check_all_cuts(&input);
    }
}

/* Held back is what may become a stop, and nothing more. */
static void test_lets_go(void **state)
{
    const char *stops[] = {"aab"};
    const uint32_t bytes[] = {3};
    struct rn_piece_stream s;
    char out[400], held[RN_PIECE_HELD_BYTES(3)];

    (void)state;
    rn_piece_stream_init(&s, stops, bytes, 1, held, false);
    assert_int_equal(rn_piece_stream_feed(&s, "xa", 2, out), 1);
    assert_int_equal(rn_piece_stream_feed(&s, "a", 1, out), 0);
    assert_int_equal(rn_piece_stream_feed(&s, "a", 1, out), 1);
    assert_int_equal(rn_piece_stream_feed(&s, "c", 1, out), 3);
    assert_memory_equal(out, "aac", 3);
    assert_int_equal(rn_piece_stream_feed(&s, "\xc3", 1, out), 0);
    assert_int_equal(rn_piece_stream_feed(&s, "\xa9", 1, out), 2);
    assert_int_equal(rn_piece_stream_feed(&s, "aab", 3, out), 0);
    assert_true(s.stopped);
    assert_int_equal(rn_piece_stream_feed(&s, "more", 4, out), 0);
    assert_int_equal(rn_piece_stream_end(&s, out), 0);
}

/* As many and as long stops as there may be, that differ at the end, over a text that teases them. */
static void test_longest(void **state)
{
    static char stops[RUNNEL_MAX_STOPS][RUNNEL_MAX_STOP_BYTES];
    static char text[3 * RUNNEL_MAX_STOP_BYTES + 100];
    struct input input = {text, sizeof text, {0}, {0}, 0, false};
    uint64_t seed = 3;
    size_t i;

    (void)state;
    for (i = 0; i < RUNNEL_MAX_STOPS; i++) {
        memset(stops[i], 'a', RUNNEL_MAX_STOP_BYTES);
        stops[i][RUNNEL_MAX_STOP_BYTES - 2] = (char)('b' + i / 16);
        stops[i][RUNNEL_MAX_STOP_BYTES - 1] = (char)('b' + i % 16);
        input.stops[i] = stops[i];
        input.stop_bytes[i] = RUNNEL_MAX_STOP_BYTES;
    }
    input.n_stops = RUNNEL_MAX_STOPS;
    memset(text, 'a', sizeof text);
    check(&input, rn_splitmix64(&seed));
    memcpy(text + 100, "\xf0\x9f\x9a\x80", 4);
    memcpy(text + 100 + 4 + RUNNEL_MAX_STOP_BYTES - 1, "\xf0\x9f\x9a\x80", 4);
    check(&input, rn_splitmix64(&seed));
    text[2 * RUNNEL_MAX_STOP_BYTES] = 'q';
    check(&input, rn_splitmix64(&seed));
    memcpy(text + 3 * RUNNEL_MAX_STOP_BYTES, "qq", 2); /* the last of them */
    check(&input, rn_splitmix64(&seed));
    assert_int_equal(rn_piece_stream_bound(0, SIZE_MAX), SIZE_MAX);
    assert_int_equal(rn_piece_stream_bound(RUNNEL_MAX_STOP_BYTES, SIZE_MAX), SIZE_MAX);
}

/* Random texts of few letters, broken characters among them, random stops, random cuts. */
static void test_random(void **state)
{
    static const char *const atoms[] = {"a",    "b",    "a",    "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x80",
                                        "\xe2", "\x82", "\xff", " "};
    static const char *const stops[] = {"aab", "ab",       "\xe2\x82\xac", "b\xc3\xa9", "\303\251a",
                                        FFFD,  "aaaaaaaa", "a b",          " "};
    uint64_t seed = 7;
    int round;

    (void)state;
    for (round = 0; round < 60000; round++) {
        char text[64];
        struct input input = {text, 0, {0}, {0}, 0, rn_splitmix64(&seed) % 4 == 0};
        size_t n_atoms = rn_splitmix64(&seed) % 14;

        while (n_atoms-- > 0) {
            const char *atom = atoms[rn_splitmix64(&seed) % (sizeof atoms / sizeof atoms[0])];

            memcpy(text + input.n, atom, strlen(atom));
            input.n += strlen(atom);
        }
        while (rn_splitmix64(&seed) % 3 != 0 && input.n_stops < 6)
            add_stop(&input, stops[rn_splitmix64(&seed) % (sizeof stops / sizeof stops[0])]);
        check(&input, rn_splitmix64(&seed));
        check(&input, ~(uint64_t)0);
        check(&input, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stops),   cmocka_unit_test(test_ill_formed), cmocka_unit_test(test_strip),
        cmocka_unit_test(test_lets_go), cmocka_unit_test(test_longest),    cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
