/* Any bytes over a whole connection: a server of http.h, a socket whose other end sends them, and a client that reads
 * the answers with a parser of its own.
 *
 *     bytes ──pieces──▶ socketpair ──▶ connection ──▶ handlers (by path) ──▶ answers ──▶ llhttp, as a client
 *
 * The first byte says how the bytes are cut, the second what else happens: handlers that answer some turns later, a
 * client that leaves in the middle, one that reads nothing or only now and then. Whatever comes: what the client reads
 * is proper HTTP, each exchange that a handler knows has one end, an answer or on_gone, and nothing is left behind; and
 * where the client neither leaves nor dawdles, it reads the same however its bytes were cut. */
#include <errno.h>
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/serve/http/inside.h"
#include "base/check.h"
#include "pieces.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { LATE = 1, LEAVES = 2, DAWDLES = 4 };
enum { MOST_ANSWERS = 512, MOST_BYTES = 1 << 22, BIG_BYTES = 100000, QUIET_TURNS = 8 };

struct play {
    uv_loop_t loop;
    struct http_server *server;
    struct http_exchange *late; /* is to be answered; NULL: none is */
    unsigned flags, turns;
    size_t n_announced, n_over, n_gone;
    bool silent[MOST_ANSWERS]; /* of the exchange with this number: it was asked by HEAD */
    int client;                /* -1: closed */
    char *read;                /* [n_read]: what the client has received */
    size_t n_read;
    bool ended; /* the client has seen the end */
};

/* ---- Handlers ---------------------------------------------------------------------------- */

static char big[BIG_BYTES];

static void stream(struct http_exchange *exchange)
{
    http_stream_begin(exchange, 200, "text/plain");
    for (int i = 0; i < 3; i++)
        http_stream_write(exchange, "a piece\r\n0\r\n\r\n", 14);
    http_stream_end(exchange);
}

static char *copy(const char *bytes, size_t n)
{
    char *to = malloc(n);

    RN_CHECK(to != NULL);
    return memcpy(to, bytes, n);
}

/* By the first letter of its path. */
static void answer(struct http_exchange *exchange)
{
    size_t n = 0;
    const char *body = http_body(exchange, &n);

    RN_CHECK(body[n] == '\0');
    http_add_field(exchange, "X-Seen", http_path(exchange));
    switch (http_path(exchange)[1]) {
    case 's':
        stream(exchange);
        break;
    case 'b':
        http_answer_take(exchange, 200, "text/plain", copy(big, sizeof big), sizeof big);
        break;
    case 'n':
        http_answer(exchange, 204, NULL, NULL, 0);
        break;
    case 't': {
        char *taken = http_take_body(exchange, &n);

        http_answer_take(exchange, 200, "text/plain", taken, n);
        break;
    }
    default:
        http_answer(exchange, 200, "text/plain", body, n);
    }
}

static void on_head(void *user, struct http_exchange *exchange)
{
    struct play *play = user;

    RN_CHECK(play->n_announced < MOST_ANSWERS);
    play->silent[play->n_announced++] = strcmp(http_method(exchange), "HEAD") == 0;
    if (http_path(exchange)[1] == 'h')
        http_answer(exchange, 401, NULL, NULL, 0);
}

static void on_request(void *user, struct http_exchange *exchange)
{
    struct play *play = user;

    if ((play->flags & LATE) != 0 && http_path(exchange)[1] != 'b')
        play->late = exchange;
    else
        answer(exchange);
}

static void on_gone(void *user, struct http_exchange *exchange)
{
    struct play *play = user;

    play->n_gone++;
    if (play->late == exchange)
        play->late = NULL;
}

static void on_end(void *user, struct http_exchange *exchange)
{
    struct play *play = user;

    play->n_over++;
    RN_CHECK(play->n_over <= play->n_announced && play->late != exchange);
}

/* ---- The client -------------------------------------------------------------------------- */

static void client_read(struct play *play)
{
    ssize_t n = 1;

    while (play->client >= 0 && !play->ended && n > 0) {
        play->read = realloc(play->read, play->n_read + 65536);
        RN_CHECK(play->read != NULL);
        n = recv(play->client, play->read + play->n_read, 65536, MSG_DONTWAIT);
        if (n > 0)
            play->n_read += (size_t)n;
        else
            play->ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
        RN_CHECK(play->n_read <= MOST_BYTES);
    }
}

/* What the server does about what has come. */
static void turn(struct play *play)
{
    uv_run(&play->loop, UV_RUN_NOWAIT);
    if (play->late != NULL && ++play->turns % 3 == 0) {
        struct http_exchange *exchange = play->late;

        play->late = NULL;
        answer(exchange);
    }
    if ((play->flags & DAWDLES) == 0 || play->turns % 5 == 4)
        client_read(play);
}

/* Until nothing happens any more. */
static void settle(struct play *play)
{
    for (int quiet = 0; quiet < QUIET_TURNS;) {
        size_t before = play->n_read + play->n_over;

        turn(play);
        quiet = play->n_read + play->n_over == before && play->late == NULL ? quiet + 1 : 0;
    }
}

static void client_send(struct play *play, const char *bytes, size_t n)
{
    size_t at = 0;

    for (int tries = 0; at < n && !play->ended && tries < 1000; tries++) {
        ssize_t sent = send(play->client, bytes + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);

        at += sent > 0 ? (size_t)sent : 0;
        turn(play);
        if (sent < 0 && errno != EAGAIN)
            return;
    }
}

static void client_close(struct play *play)
{
    if (play->client >= 0)
        close(play->client);
    play->client = -1;
}

/* ---- What it has read -------------------------------------------------------------------- */

struct answers {
    const struct play *play;
    size_t n;   /* whole ones */
    int status; /* of the one under way */
    bool open;
};

static int answer_begins(llhttp_t *parser)
{
    ((struct answers *)parser->data)->open = true;
    return 0;
}

/* Of HEAD there is no body whatever the head says. What was refused before it was a request may have been one, too. */
static int head_read(llhttp_t *parser)
{
    struct answers *answers = parser->data;

    answers->status = parser->status_code;
    return answers->n < answers->play->n_announced && answers->play->silent[answers->n] ? 1 : 0;
}

static int answer_ends(llhttp_t *parser)
{
    struct answers *answers = parser->data;

    answers->open = false;
    answers->n += answers->status >= 200;
    return 0;
}

static void check_answers(const struct play *play)
{
    const llhttp_settings_t settings = {
        .on_message_begin = answer_begins, .on_headers_complete = head_read, .on_message_complete = answer_ends};
    struct answers answers = {.play = play};
    llhttp_t parser;
    llhttp_errno_t error;

    if (play->n_read == 0)
        return;
    llhttp_init(&parser, HTTP_RESPONSE, &settings);
    parser.data = &answers;
    error = llhttp_execute(&parser, play->read, play->n_read);
    if (error != HPE_OK)
        fprintf(stderr, "%s: %.*s\n", llhttp_errno_name(error), (int)play->n_read, play->read);
    RN_CHECK(error == HPE_OK);
    RN_CHECK(answers.n <= play->n_announced + 1); /* one more: a refusal of what was no request */
}

/* ---- One connection ---------------------------------------------------------------------- */

static void open_play(struct play *play, struct http_listener *listener)
{
    enum { NEVER = INT32_MAX }; /* a process that is stopped for a minute must not see another answer */
    static const struct http_limits limits = {.head_bytes = 1024,
                                              .fields = 12,
                                              .body_bytes = 2048,
                                              .waiting_bytes = 65536,
                                              .connections = 4,
                                              .head_ms = NEVER,
                                              .body_ms = NEVER,
                                              .idle_ms = NEVER,
                                              .reader_ms = NEVER};
    const struct http_handlers handlers = {
        .on_head = on_head, .on_request = on_request, .on_gone = on_gone, .on_end = on_end, .user = play};
    int pair[2], little = 8192; /* so that long answers leave in several turns */

    RN_CHECK(uv_loop_init(&play->loop) == 0);
    play->server = http_server_new(&play->loop, &limits, &handlers);
    RN_CHECK(play->server != NULL && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    RN_CHECK(setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &little, sizeof little) == 0);
    play->client = pair[0];
    *listener = (struct http_listener){.server = play->server};
    RN_CHECK(http_connection_new(listener, pair[1], "peer", false) != NULL);
}

static void close_play(struct play *play)
{
    http_server_free(play->server);
    uv_run(&play->loop, UV_RUN_DEFAULT);
    RN_CHECK(uv_loop_close(&play->loop) == 0);
    RN_CHECK(play->n_over == play->n_announced && play->n_gone <= play->n_over && play->late == NULL);
    client_close(play);
    check_answers(play);
}

/* What differs from run to run, and by the cut: dates, and whether a body was waited for. */
static void strip(struct play *play)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t to = 0;

    for (size_t at = 0; at < play->n_read;) {
        const char *feed = memchr(play->read + at, '\n', play->n_read - at);
        size_t line = feed != NULL ? (size_t)(feed - play->read) + 1 - at : play->n_read - at;

        if (play->n_read - at >= sizeof go_on - 1 && memcmp(play->read + at, go_on, sizeof go_on - 1) == 0) {
            at += sizeof go_on - 1;
            continue;
        }
        if (line < 7 || memcmp(play->read + at, "Date: ", 6) != 0) {
            memmove(play->read + to, play->read + at, line);
            to += line;
        }
        at += line;
    }
    play->n_read = to;
}

static void run_play(struct play *play, const char *bytes, size_t size, unsigned cut, unsigned flags)
{
    struct http_listener listener;
    size_t leaves_at = (flags & LEAVES) != 0 ? size / 2 : size + 1;

    *play = (struct play){.flags = flags};
    open_play(play, &listener);
    for (size_t at = 0; at < size && at < leaves_at && !play->ended;) {
        size_t n = piece_at(at, size, cut);

        client_send(play, bytes + at, n);
        at += n;
    }
    if ((flags & LEAVES) != 0)
        client_close(play);
    else
        settle(play), shutdown(play->client, SHUT_WR);
    settle(play);
    close_play(play);
    strip(play);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct play whole, cut;
    const char *bytes = (const char *)data + 2;

    if (size < 2)
        return 0;
    run_play(&whole, bytes, size - 2, 0, data[1] & LATE);
    run_play(&cut, bytes, size - 2, 1u + data[0], data[1] & LATE);
    RN_CHECK(whole.n_read == cut.n_read && memcmp(whole.read, cut.read, cut.n_read) == 0);
    free(cut.read);
    run_play(&cut, bytes, size - 2, 1u + data[0], data[1]);
    free(cut.read);
    free(whole.read);
    return 0;
}

/* ---- Seeds ---- */

#define POST(path) "POST " path " HTTP/1.1\r\nHost: a.b:80\r\n"

static const char *const seeds[] = {
    "\1\1GET /s HTTP/1.1\r\nHost: a\r\n\r\nGET /%61 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /s "
    "HTTP/1.1\r\nHost: a\r\n\r\n",
    "\2\4" POST(
        "/e") "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhelloHEAD http://x/b HTTP/1.1\r\nHost: x\r\n\r\n",
    "\3\1" POST(
        "/t") "Transfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n"
              "GET /n HTTP/1.1\r\nHost: a\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\n\r\nGET /s HTTP/1.1\r\nHost: a\r\n\r\n",
    "\4\2" POST("/h") "Content-Length: 1000\r\n\r\nabc",
    "\5\6GET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /s HTTP/1.0\r\n\r\n",
    "\6\3" POST("/e") "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "\7\5GET /s HTTP/1.0\r\n\r\nGET /s HTTP/1.1\r\n\r\n",
    "\10\7" POST("/s") "Connection: close\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\nHost: a\r\n\r\n",
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    memset(big, 'x', sizeof big);
    write_seeds(seeds, sizeof seeds / sizeof seeds[0]);
    return 0;
}
