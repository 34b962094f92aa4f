/* The judge: see judge.h. Plain and slow on purpose: nothing is carried from one token to the next. */
#include "tests/sim/judge.h"

#include <string.h>

/* Unicode 15, table 3-7: lead byte, range of the second byte, length. All later bytes are 80..BF. */
static const struct {
    uint8_t lead_low, lead_high, second_low, second_high, length;
} well_formed[] = {
    {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
    {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

enum character { WHOLE, ILL_FORMED, UNFINISHED };

/* What stands at bytes[0..n), n >= 1, and how many bytes of it belong together. */
static enum character look(const uint8_t *bytes, size_t n, size_t *length)
{
    for (size_t row = 0; row < sizeof well_formed / sizeof well_formed[0]; row++) {
        if (bytes[0] < well_formed[row].lead_low || bytes[0] > well_formed[row].lead_high)
            continue;
        for (*length = 1; *length < well_formed[row].length; ++*length) {
            uint8_t low = *length == 1 ? well_formed[row].second_low : 0x80;
            uint8_t high = *length == 1 ? well_formed[row].second_high : 0xbf;

            if (*length == n)
                return UNFINISHED;
            if (bytes[*length] < low || bytes[*length] > high)
                return ILL_FORMED;
        }
        return WHOLE;
    }
    *length = 1;
    return ILL_FORMED;
}

bool judge_utf8(const char *text, size_t n)
{
    for (size_t at = 0, length; at < n; at += length)
        if (look((const uint8_t *)text + at, n - at, &length) != WHOLE)
            return false;
    return true;
}

/* Characters of the bytes, the ill-formed ones replaced; an unfinished one at the end only with `end`. */
static size_t characters(const uint8_t *bytes, size_t n, bool end, char *text)
{
    size_t out = 0;

    for (size_t at = 0, length; at < n; at += length) {
        enum character kind = look(bytes + at, n - at, &length);

        if (kind == UNFINISHED && !end)
            break;
        if (kind == WHOLE)
            memcpy(text + out, bytes + at, length);
        else
            memcpy(text + out, "\xef\xbf\xbd", 3);
        out += kind == WHOLE ? length : 3;
    }
    return out;
}

/* Where the text ends: before the first place where a stop string stands, or, if more may come, before the
 * first place where one may still begin. */
static size_t cut(const char *text, size_t n, const struct judge_stops *stops, bool end, int32_t *stop)
{
    for (size_t at = 0; at < n; at++) {
        bool open = false;

        for (size_t i = 0; i < stops->n_strings; i++) {
            size_t length = strlen(stops->strings[i]);

            if (length <= n - at && memcmp(text + at, stops->strings[i], length) == 0 &&
                (*stop < 0 || length < strlen(stops->strings[*stop])))
                *stop = (int32_t)i;
            open |= length > n - at && memcmp(text + at, stops->strings[i], n - at) == 0;
        }
        if (*stop >= 0 || (open && !end))
            return at;
    }
    return n;
}

size_t judge_text(const int32_t *tokens, uint32_t n, const struct judge_stops *stops, bool end, char *text,
                  int32_t *stop)
{
    uint8_t bytes[JUDGE_TOKENS];

    for (uint32_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)tokens[i];
    *stop = -1;
    return cut(text, characters(bytes, n, end, text), stops, end, stop);
}

static bool is_stop_token(const struct judge_stops *stops, int32_t token)
{
    for (size_t i = 0; i < stops->n_tokens; i++)
        if (stops->tokens[i] == token)
            return true;
    return false;
}

/* What the model sees: all of it, or what is left of it. */
struct seen {
    int32_t tokens[JUDGE_TOKENS];
    uint32_t n;
};

/* Between its kept head and the newer half of the rest everything goes. */
static void shift(const struct judge_request *request, struct seen *seen, struct judge_answer *answer)
{
    uint32_t prompt = request->n_history + request->n_prompt;
    uint32_t head = request->keep < (int64_t)prompt ? (uint32_t)request->keep : prompt;
    uint32_t tail = (seen->n - head) / 2;

    answer->lost = seen->n - head - tail;
    memmove(seen->tokens + head, seen->tokens + seen->n - tail, tail * sizeof seen->tokens[0]);
    seen->n = head + tail;
    answer->shifts++;
}

static void read_again(const struct judge_request *request, const struct seen *seen, struct oracle_chain *chain)
{
    oracle_chain_init(chain, request->salt);
    for (uint32_t i = 0; i < seen->n; i++)
        oracle_chain_push(chain, seen->tokens[i]);
}

/* What the grammar makes of the wanted token, by the whole answer so far; *complete: it is the last one. */
static int32_t guided(const struct judge_grammar *grammar, const struct judge_answer *answer, int32_t wanted,
                      bool *complete)
{
    uint32_t n = 0;
    bool inside = false;

    *complete = false;
    if (grammar->n == 0)
        return wanted;
    for (uint32_t i = 0; i < answer->n; i++) {
        inside = !inside && answer->tokens[i] == grammar->first;
        n += !inside;
    }
    if (inside)
        wanted = grammar->second;
    *complete = n + 1 == grammar->n && (inside || wanted != grammar->first);
    return wanted;
}

/* Draws until something ends the answer. */
static void draw(const struct judge_request *request, struct seen *seen, uint32_t most, struct judge_answer *answer)
{
    struct oracle_chain chain;
    bool complete = false;

    read_again(request, seen, &chain);
    while (answer->n < most && answer->stop < 0 && !complete) {
        int32_t token, wanted;

        if (seen->n == request->room) {
            shift(request, seen, answer);
            read_again(request, seen, &chain);
        }
        wanted = (oracle_chain_next(&chain, request->alphabet) + (int32_t)request->turn) % ORACLE_VOCAB;
        token = guided(&request->grammar, answer, wanted, &complete);
        oracle_chain_push(&chain, token);
        seen->tokens[seen->n++] = token;
        answer->shifted[answer->n] = answer->shifts;
        answer->tokens[answer->n++] = token;
        if (is_stop_token(&request->stops, token)) {
            answer->finish = RUNNEL_FINISH_STOP;
            answer->stop_token = token;
            return;
        }
        answer->n_shown = answer->n;
        if (request->stops.n_strings > 0)
            judge_text(answer->tokens, answer->n, &request->stops, false, answer->text, &answer->stop);
    }
    answer->finish = answer->stop >= 0 || complete ? RUNNEL_FINISH_STOP : RUNNEL_FINISH_LENGTH;
}

void judge_answer(const struct judge_request *request, struct judge_answer *answer)
{
    uint64_t prompt = (uint64_t)request->n_history + request->n_prompt;
    uint64_t most = request->max_tokens >= 0 ? (uint64_t)request->max_tokens : UINT64_MAX;
    struct seen seen = {.n = (uint32_t)prompt};

    answer->n = answer->n_shown = answer->shifts = answer->lost = 0;
    answer->text_bytes = 0;
    answer->stop = answer->stop_token = -1;
    answer->finish = RUNNEL_FINISH_LENGTH;
    answer->fits = prompt + (request->max_tokens != 0) <= request->room;
    if (!answer->fits)
        return;
    if (request->keep < 0 && most > request->room - prompt)
        most = request->room - prompt;
    if (request->n_history > 0)
        memcpy(seen.tokens, request->history, request->n_history * sizeof seen.tokens[0]);
    memcpy(seen.tokens + request->n_history, request->prompt, request->n_prompt * sizeof seen.tokens[0]);
    draw(request, &seen, (uint32_t)most, answer);
    answer->text_bytes =
        judge_text(answer->tokens, answer->n_shown, &request->stops, true, answer->text, &answer->stop);
    if (answer->stop < 0)
        return;
    answer->finish = RUNNEL_FINISH_STOP; /* also where what was held back at the end held a stop string */
    answer->stop_token = -1;
}
