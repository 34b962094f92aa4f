/* What is a request and what is none: each row of the attack list, sent whole and byte by byte, with the same answers;
 * beside it a stream and a connection of other clients that must not notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

#define LINE "\r\n"
#define HOST "Host: a\r\n"
#define POST "POST /echo HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct row {
    const char *what, *bytes, *statuses;
    const char *last; /* the request that came last; NULL: none came */
} rows[] = {
    {"plain", GET, "200 ", "GET /hello? 0"},
    {"two at once", GET GET, "200 200 ", "GET /hello? 0"},
    {"an empty line in front", LINE GET, "200 ", "GET /hello? 0"},
    {"many empty lines", LINE LINE LINE LINE LINE LINE LINE LINE LINE LINE GET, "400 ", NULL},
    {"query", "GET /hello?a=%2f&b HTTP/1.1\r\n" HOST LINE, "200 ", "GET /hello?a=%2f&b 0"},
    {"HTTP/1.0", "GET /hello HTTP/1.0\r\n\r\n" GET, "200 ", "GET /hello? 0"},
    {"HTTP/1.0 that goes on", "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" GET, "200 200 ", "GET /hello? 0"},
    {"close", "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n" GET, "200 ", "GET /hello? 0"},
    {"length", POST "Content-Length: 5\r\n\r\nhello" GET, "200 200 ", "GET /hello? 0"},
    {"no length", POST LINE, "200 ", "POST /echo? 0"},
    {"chunks", CHUNKED "5\r\nhello\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\nT: v\r\n\r\n", "200 ", "POST /echo? 15"},
    {"GET with a body", "GET /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" GET, "200 200 ",
     "GET /hello? 0"},
    {"absolute", "GET http://evil:80/hello?x HTTP/1.1\r\n" HOST LINE, "200 ", "GET /hello?x 0"},
    {"absolute without a path", "GET http://evil?x HTTP/1.1\r\n" HOST LINE, "404 ", "GET /?x 0"},
    {"absolute with a user", "GET http://a@evil/hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"all of the server", "OPTIONS * HTTP/1.1\r\n" HOST LINE, "404 ", "OPTIONS /? 0"},
    {"GET *", "GET * HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"HEAD", "HEAD /hello HTTP/1.1\r\n" HOST LINE GET, "200 200 ", "GET /hello? 0"},
    {"another protocol offered", "GET /hello HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" GET,
     "200 200 ", "GET /hello? 0"},
    {"refused at its head", "POST /early HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello" GET, "401 ", NULL},
    {"refused at its head, no body", "GET /early HTTP/1.1\r\n" HOST LINE GET, "401 200 ", "GET /hello? 0"},

    /* Two readers, two requests */
    {"two lengths in one", POST "Content-Length: 5, 6\r\n\r\nhello", "400 ", NULL},
    {"one length twice in one", POST "Content-Length: 5, 5\r\n\r\nhello", "400 ", NULL},
    {"two lengths", POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "400 ", NULL},
    {"the same length twice", POST "Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello", "400 ", NULL},
    {"a length with a sign", POST "Content-Length: +5\r\n\r\nhello", "400 ", NULL},
    {"a negative length", POST "Content-Length: -5\r\n\r\nhello", "400 ", NULL},
    {"a length in hexadecimal", POST "Content-Length: 0x5\r\n\r\nhello", "400 ", NULL},
    {"an empty length", POST "Content-Length: \r\n\r\nhello", "400 ", NULL},
    {"a length of 2^64 + 5", POST "Content-Length: 18446744073709551621\r\n\r\nhello", "413 ", NULL},
    {"length and chunks", POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 ", NULL},
    {"chunks and length", POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "400 ", NULL},
    {"xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501 ", NULL},
    {"gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501 ", NULL},
    {"chunked, identity", POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501 ", NULL},
    {"chunked twice", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 ", NULL},
    {"chunked, a tab before", POST "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", "200 ", "POST /echo? 0"},
    {"chunked, a vertical tab before", POST "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", "400 ", NULL},
    {"chunks in HTTP/1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 ", NULL},
    {"space before the colon", POST "Content-Length : 5\r\n\r\nhello", "400 ", NULL},
    {"space before a name", POST " Content-Length: 5\r\n\r\nhello", "400 ", NULL},
    {"folded", POST "X: a\r\n b\r\n\r\n", "400 ", NULL},
    {"folded length", POST "Content-Length:\r\n 5\r\n\r\nhello", "400 ", NULL},
    {"bare line feeds", "GET /hello HTTP/1.1\nHost: a\n\n", "400 ", NULL},
    {"a bare line feed at the end", "GET /hello HTTP/1.1\r\nHost: a\r\n\n", "400 ", NULL},
    {"a bare carriage return", "GET /hello HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", "400 ", NULL},
    {"a NUL in a value", NULL, "400 ", NULL},
    {"a field without a colon", "GET /hello HTTP/1.1\r\n" HOST "X\r\n\r\n", "400 ", NULL},
    {"a field without a name", "GET /hello HTTP/1.1\r\n" HOST ": x\r\n\r\n", "400 ", NULL},
    {"a name with a bracket", "GET /hello HTTP/1.1\r\n" HOST "X[]: x\r\n\r\n", "400 ", NULL},
    {"no host", "GET /hello HTTP/1.1\r\n\r\n", "400 ", NULL},
    {"two hosts", "GET /hello HTTP/1.1\r\n" HOST HOST LINE, "400 ", NULL},
    {"a host with a path", "GET /hello HTTP/1.1\r\nHost: evil/?\r\n\r\n", "400 ", NULL},
    {"a host with a fragment", "GET /hello HTTP/1.1\r\nHost: x/#\r\n\r\n", "400 ", NULL},
    {"an empty host", "GET /hello HTTP/1.1\r\nHost: \r\n\r\n", "200 ", "GET /hello? 0"},

    /* Chunks */
    {"an endless size", CHUNKED "ffffffffffffffff\r\n", "413 ", NULL},
    {"a size of 17 digits", CHUNKED "00000000000000005\r\nhello\r\n0\r\n\r\n", "200 ", "POST /echo? 5"},
    {"a size of 2^64 + 5", CHUNKED "10000000000000005\r\nhello\r\n0\r\n\r\n", "413 ", NULL},
    {"no size", CHUNKED "\r\nhello\r\n0\r\n\r\n", "400 ", NULL},
    {"a size with a sign", CHUNKED "+5\r\nhello\r\n0\r\n\r\n", "400 ", NULL},
    {"a size like C's", CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", "400 ", NULL},
    {"blanks behind a size", CHUNKED "5 \r\nhello\r\n0\r\n\r\n", "400 ", NULL},
    {"a size and a bare line feed", CHUNKED "5\nhello\r\n0\r\n\r\n", "400 ", NULL},
    {"an extension with a line feed", CHUNKED "5;a\nb\r\nhello\r\n0\r\n\r\n", "400 ", NULL},
    {"data longer than its size", CHUNKED "5\r\nhelloX\r\n0\r\n\r\n", "400 ", NULL},
    {"data without an end", CHUNKED "5\r\nhelloXX0\r\n\r\n", "400 ", NULL},
    {"an end without a line", CHUNKED "5\r\nhello\r\n0\r\nGET /hello HTTP/1.1\r\n\r\n", "400 ", NULL},
    {"a folded trailer", CHUNKED "0\r\nT: a\r\n b\r\n\r\n", "400 ", NULL},
    {"a cut body", POST "Content-Length: 5\r\n\r\nhel", "400 ", NULL},
    {"cut chunks", CHUNKED "5\r\nhel", "400 ", NULL},
    {"a cut head", "GET /hello HTTP/1.1\r\nHost", "400 ", NULL},

    /* Lines and targets */
    {"HTTP/0.9", "GET /hello\r\n\r\n", "400 ", NULL},
    {"HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 ", NULL},
    {"HTTP/1.2", "GET /hello HTTP/1.2\r\n" HOST LINE, "505 ", NULL},
    {"HTTP/1.10", "GET /hello HTTP/1.10\r\n" HOST LINE, "400 ", NULL},
    {"http/1.1", "GET /hello http/1.1\r\n" HOST LINE, "400 ", NULL},
    {"two spaces", "GET  /hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"a space in the target", "GET /hel lo HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"no known method", "FROB /hello HTTP/1.1\r\n" HOST LINE, "501 ", NULL},
    {"small letters", "get /hello HTTP/1.1\r\n" HOST LINE, "501 ", NULL},
    {"CONNECT", "CONNECT a:80 HTTP/1.1\r\n" HOST LINE, "501 ", NULL},
    {"a proxy's line", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" GET, "400 ", NULL},
    {"TLS", "\x16\x03\x01\x02\n\r\n\r\n", "400 ", NULL},
    {"two slashes", "GET //hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"dots", "GET /v1/../hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"one dot", "GET /./hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"encoded dots", "GET /v1/%2e%2E/hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"an encoded slash", "GET /v1%2fhello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"an encoded NUL", "GET /hello%00 HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"an encoded line", "GET /hello%0d%0aX:y HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"no hexadecimal", "GET /hello%4 HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"no UTF-8", "GET /hello%c0%80 HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"a surrogate", "GET /hello%ed%a0%80 HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"UTF-8", "GET /h%c3%a9 HTTP/1.1\r\n" HOST LINE, "404 ", "GET /h\xc3\xa9? 0"},
    {"bytes beyond ASCII", "GET /h\xc3\xa9 HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"an encoded letter", "GET /%68ello HTTP/1.1\r\n" HOST LINE, "200 ", "GET /hello? 0"},
    {"a dot behind", "GET /hello. HTTP/1.1\r\n" HOST LINE, "404 ", "GET /hello.? 0"},
    {"capitals", "GET /HELLO HTTP/1.1\r\n" HOST LINE, "404 ", "GET /HELLO? 0"},
    {"a backslash", "GET /a\\hello HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"a fragment", "GET /hello#x HTTP/1.1\r\n" HOST LINE, "400 ", NULL},
    {"another expectation", POST "Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello", "417 ", NULL},
};

static const char with_nul[] = "GET /hello HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n";

/* ---- The others ---- */

struct others {
    int stream, talker;
    struct text heard;
};

static void others_open(struct rig *rig, struct others *others)
{
    memset(others, 0, sizeof *others);
    others->stream = rig_connect(rig);
    others->talker = rig_connect(rig);
    assert_true(rig_say(rig, others->stream, "GET /open HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(rig_read(rig, others->stream, &others->heard, "\r\n\r\n"));
}

/* Each gets what it should. */
static void others_ask(struct rig *rig, struct others *others)
{
    struct text answer = {0};

    http_stream_write(rig->routes.held[0], "a piece.", 8);
    assert_true(rig_read(rig, others->stream, &others->heard, "8\r\na piece.\r\n"));
    assert_true(rig_say(rig, others->talker, GET));
    assert_true(rig_read(rig, others->talker, &answer, "hello\n"));
    text_fini(&answer);
}

static void others_close(struct rig *rig, struct others *others)
{
    http_stream_end(rig->routes.held[0]);
    assert_true(rig_read(rig, others->stream, &others->heard, "\r\n0\r\n\r\n"));
    text_fini(&others->heard);
    close(others->stream);
    close(others->talker);
}

/* ---- Rows ---- */

static void check_row(struct rig *rig, struct others *others, const struct row *row)
{
    const char *bytes = row->bytes != NULL ? row->bytes : with_nul;
    size_t n = row->bytes != NULL ? strlen(row->bytes) : sizeof with_nul - 1;
    struct text whole, piecewise;
    char statuses[8192];

    rig->routes.last[0] = '\0';
    whole = rig_talk(rig, bytes, n, n);
    rig_statuses(&whole, statuses);
    if (strcmp(statuses, row->statuses) != 0 || strcmp(rig->routes.last, row->last != NULL ? row->last : "") != 0)
        fail_msg("%s: %s, %s, %s", row->what, statuses, rig->routes.last, whole.bytes);
    rig->routes.last[0] = '\0';
    piecewise = rig_talk(rig, bytes, n, 1);
    if (whole.n != piecewise.n || memcmp(whole.bytes, piecewise.bytes, whole.n) != 0)
        fail_msg("%s: byte by byte\n%s\n%s", row->what, whole.bytes, piecewise.bytes);
    text_fini(&whole);
    text_fini(&piecewise);
    others_ask(rig, others);
}

static void test_rows(void **state)
{
    struct others others;
    struct rig rig;

    (void)state;
    rig_open(&rig, NULL);
    others_open(&rig, &others);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(&rig, &others, &rows[i]);
    others_close(&rig, &others);
    rig_close(&rig);
}

/* ---- Bounds ---- */

/* `begin`, then `piece` until there are n bytes, then `end`. */
static struct text pile(const char *begin, const char *piece, size_t n, const char *end)
{
    struct text text = {0};

    text_add(&text, begin, strlen(begin));
    while (text.n < n)
        text_add(&text, piece, strlen(piece));
    text_add(&text, end, strlen(end));
    return text;
}

static void check_pile(struct rig *rig, struct others *others, struct text sent, const char *wanted)
{
    struct text answers = rig_talk(rig, sent.bytes, sent.n, sent.n);
    char statuses[8192];

    rig_statuses(&answers, statuses);
    assert_string_equal(statuses, wanted);
    text_fini(&answers);
    text_fini(&sent);
    others_ask(rig, others);
}

static void test_bounds(void **state)
{
    static const struct http_limits limits = {.head_bytes = 4096, .fields = 20, .body_bytes = 100000};
    const size_t mega = 1 << 20;
    struct others others;
    struct rig rig;

    (void)state;
    rig_open(&rig, &limits);
    others_open(&rig, &others);
    check_pile(&rig, &others, pile("GET /", "a", mega, " HTTP/1.1\r\nHost: a\r\n\r\n"), "414 ");
    check_pile(&rig, &others, pile("GET / HTTP/1.1\r\nHost: a\r\nX: ", "a", mega, "\r\n\r\n"), "431 ");
    check_pile(&rig, &others, pile("GET / HTTP/1.1\r\nHost: a\r\n", "a:\r\n", mega, "\r\n"), "431 ");
    check_pile(&rig, &others, pile("GET / HTTP/1.1\r\nHost: a\r\n", "a:\r\n", 25 + 19 * 4, "\r\n"), "404 ");
    check_pile(&rig, &others, pile("GET / HTTP/1.1\r\nHost: a\r\n", "a:\r\n", 25 + 20 * 4, "\r\n"), "431 ");
    check_pile(&rig, &others, pile("GET / HTTP/1.1\r\nHost: a\r\nX: ", "a", 4092, "\r\n\r\n"), "404 ");
    check_pile(&rig, &others, pile("GET / HTTP/1.1\r\nHost: a\r\nX: ", "a", 4093, "\r\n\r\n"), "431 ");
    check_pile(&rig, &others, pile(POST "Content-Length: 100001\r\n\r\n", "a", 200000, ""), "413 ");
    check_pile(&rig, &others, pile(CHUNKED, "10000\r\n", 100, ""), "400 ");
    check_pile(&rig, &others, pile(CHUNKED, "1\r\na\r\n", mega, "0\r\n\r\n"), "413 ");
    check_pile(&rig, &others, pile(CHUNKED, "1\r\na\r\n", 500000, "0\r\n\r\n"), "200 ");
    check_pile(&rig, &others, pile(CHUNKED "5;", "a", mega, "\r\nhello\r\n0\r\n\r\n"), "400 ");
    check_pile(&rig, &others, pile(CHUNKED "5;", "a", 4000, "\r\nhello\r\n0\r\n\r\n"), "200 ");
    check_pile(&rig, &others, pile(CHUNKED "0\r\n", "a: b\r\n", mega, "\r\n"), "400 ");
    check_pile(&rig, &others, pile(CHUNKED, "0", mega, "\r\n\r\n"), "400 ");
    others_close(&rig, &others);
    rig_close(&rig);
}

/* ---- Texts ---- */

static void check_answer(struct rig *rig, const char *bytes, const char *wanted)
{
    struct text answers = rig_talk(rig, bytes, strlen(bytes), strlen(bytes));

    assert_string_equal(answers.bytes, wanted);
    text_fini(&answers);
}

static void test_answers(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, NULL);
    check_answer(&rig, GET, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n");
    check_answer(&rig, "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\n");
    check_answer(&rig, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "4\r\none\n\r\n4\r\ntwo\n\r\n6\r\nthree\n\r\n0\r\n\r\n");
    check_answer(&rig, "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
    check_answer(&rig, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\none\ntwo\nthree\n");
    check_answer(
        &rig, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\nConnection: keep-alive\r\n\r\nhello\n");
    check_answer(&rig, "GET /early HTTP/1.1\r\nHost: a\r\n\r\n",
                 "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
                 "WWW-Authenticate: Bearer  X: y\r\n\r\nno\n");
    check_answer(&rig, "GET /field?x-y HTTP/1.1\r\nHost: a\r\nX-Y: 1\r\nZ: 2\r\nx-Y:  3  4 \t\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\n1, 3  4");
    check_answer(&rig, "GET /hello HTTP/1.1\r\nHost: a\r\n X: y\r\n\r\n",
                 "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 25\r\n"
                 "Connection: close\r\n\r\na header field is folded\n");
    rig_close(&rig);
}

/* 100 is said to who asks, once, and not where the body is there already. */
static void test_continue(void **state)
{
    static const char head[] = POST "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    struct text answer = {0};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    assert_true(rig_say(&rig, fd, head));
    assert_true(rig_read(&rig, fd, &answer, "\r\n\r\n"));
    assert_string_equal(answer.bytes, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_true(rig_say(&rig, fd, "hello"));
    assert_true(rig_read(&rig, fd, &answer, "hello"));
    text_fini(&answer);
    assert_true(rig_say(&rig, fd, POST "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"));
    assert_true(rig_read(&rig, fd, &answer, "hello"));
    assert_null(strstr(answer.bytes, "100 Continue"));
    text_fini(&answer);
    assert_true(
        rig_say(&rig, fd, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
    assert_true(rig_read(&rig, fd, &answer, NULL)); /* the server ends it: the body may come, or not */
    assert_null(strstr(answer.bytes, "100 Continue"));
    assert_non_null(strstr(answer.bytes, "Connection: close"));
    text_fini(&answer);
    close(fd);
    rig_close(&rig);
}

/* A thousand requests sent at once are answered in their order, also by one who lets each wait. */
static void test_pipeline(void **state)
{
    struct text sent = {0}, answers;
    struct rig rig;
    char line[128];
    const char *at;

    (void)state;
    rig_open(&rig, NULL);
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof line, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n%04d", i);
        text_add(&sent, line, strlen(line));
    }
    answers = rig_talk(&rig, sent.bytes, sent.n, sent.n);
    at = answers.bytes;
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof line, "\r\n\r\n%04d", i);
        at = strstr(at, line);
        assert_non_null(at);
    }
    assert_int_equal(rig.routes.requests, 1000);
    text_fini(&answers);
    text_fini(&sent);
    rig_close(&rig);
}

static void test_pipeline_that_waits(void **state)
{
    struct text answers = {0};
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    fd = rig_connect(&rig);
    for (int i = 0; i < 1000; i++)
        assert_true(rig_say(&rig, fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"));
    shutdown(fd, SHUT_WR);
    for (unsigned i = 0; i < 1000; i++) {
        char number[16];

        while (rig.routes.n_held == i)
            rig_turn(&rig);
        assert_int_equal(rig.routes.n_held, i + 1); /* one at a time */
        snprintf(number, sizeof number, "<%u>", i);
        http_answer(rig.routes.held[i], 200, NULL, number, strlen(number));
    }
    assert_true(rig_read(&rig, fd, &answers, NULL));
    for (unsigned i = 0; i < 1000; i++) {
        char number[16];

        snprintf(number, sizeof number, "<%u>", i);
        assert_non_null(strstr(answers.bytes, number));
    }
    assert_int_equal(rig.routes.gone, 0);
    text_fini(&answers);
    close(fd);
    rig_close(&rig);
}

/* ---- Behind the answer ---- */

static char *answered_late; /* what was read behind the answer; owned */

static void answer_twice(void *user, struct http_exchange *exchange)
{
    const char *path = http_path(exchange), *body;
    size_t n;

    (void)user;
    http_set_user(exchange, &answered_late);
    http_answer(exchange, 200, "text/plain", "first\n", 6);
    body = http_body(exchange, &n);
    if (asprintf(&answered_late, "%s?%s %s %.*s", path, http_query(exchange), http_field(exchange, "host"), (int)n,
                 body) < 0)
        abort();
    assert_null(http_user(exchange));
    assert_false(http_add_field(exchange, "X", "y"));
    http_answer(exchange, 500, "text/plain", "second\n", 7);
    http_stream_begin(exchange, 500, "text/plain");
    assert_int_equal(http_stream_write(exchange, "third\n", 6), 0);
    http_stream_end(exchange);
}

/* Behind the answer the request can still be read, in the handler that gave it; a second answer does nothing. */
static void test_read_behind_the_answer(void **state)
{
    static const char body[] = "POST /a%20b?c=d HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nfour";
    struct http_handlers handlers = {.on_request = answer_twice};
    struct rig rig = {0};
    int fd;

    (void)state;
    assert_int_equal(uv_loop_init(&rig.loop), 0);
    rig.server = http_server_new(&rig.loop, NULL, &handlers);
    assert_int_equal(http_listen_tcp(rig.server, "127.0.0.1", 0, &rig.port), 0);
    fd = rig_connect(&rig);
    for (int i = 0; i < 2; i++) {
        struct text text = {0};

        assert_true(rig_say(&rig, fd, body));
        assert_true(rig_read(&rig, fd, &text, "\r\n\r\nfirst\n"));
        assert_non_null(strstr(text.bytes, "200 OK"));
        assert_null(strstr(text.bytes, "500"));
        assert_string_equal(answered_late, "/a b?c=d here four");
        free(answered_late);
        text_fini(&text);
    }
    close(fd);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_behind_the_answer),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_pipeline_that_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
