/* The stream: the window, plain text and the markers within it, and what happens when a call fails.
 *
 *     TEXT --marker--> OPEN --> WRAP | LITERAL | PARAMS | PYTHON --> TEXT
 *
 * In text three things are held back: white space (which may go with a marker behind it), what may be the beginning
 * of a marker, and a call that is not certain yet. See impl.h for the window. */
#define _GNU_SOURCE /* memmem, memrchr */
#include "text/answer/answer.h"

#include <string.h>

#include "text/answer/impl.h"

#define PER_BYTE 6u /* an escaped byte is the longest that one byte of input becomes */
#define SLACK 128u  /* what ends or begins a call, and what the literal machine holds */
#define MESSAGE_BEGIN "<|start|>assistant"
#define MESSAGE_TEXT "<|message|>"
#define FENCE "```"
#define PROMPT_TAIL 512u

/* ---- Giving out ---- */

void rn_answer_put(struct rn_answer *a, uint32_t kind, const char *bytes, size_t n)
{
    struct rn_part *last = a->n_parts > 0 ? &a->parts[a->n_parts - 1] : NULL;
    uint32_t call = kind >= RN_PART_TOOL_NAME ? a->call : 0;
    bool joins = kind == RN_PART_CONTENT || kind == RN_PART_REASONING || kind == RN_PART_TOOL_ARGUMENTS;

    if (n == 0 && kind != RN_PART_TOOL_END)
        return;
    if (!joins || last == NULL || last->kind != kind || last->call != call) {
        last = &a->parts[a->n_parts++];
        *last = (struct rn_part){.kind = kind, .call = call};
    }
    memcpy(a->out + a->n_out, bytes, n);
    a->n_out += n;
    last->bytes += (uint32_t)n;
    a->said = true;
}

void rn_answer_put_escaped(struct rn_answer *a, char byte)
{
    char escaped[RN_JSON_ESCAPE_BYTES];
    size_t n = rn_json_escape((unsigned char)byte, escaped);

    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, escaped, n);
}

void rn_answer_put_string(struct rn_answer *a, const char *bytes, size_t n)
{
    size_t i;

    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "\"", 1);
    for (i = 0; i < n; i++)
        rn_answer_put_escaped(a, bytes[i]);
    rn_answer_put(a, RN_PART_TOOL_ARGUMENTS, "\"", 1);
}

/* Moves base forward by n bytes, which are given out as text or dropped. */
static void advance(struct rn_answer *a, uint32_t n, bool give_out)
{
    uint32_t phantom = n < a->phantom ? n : a->phantom;

    if (give_out)
        rn_answer_put(a, a->kind, a->window + a->base + phantom, n - phantom);
    a->phantom -= phantom;
    a->base += n;
    a->cur = a->base;
    if (n > 0)
        a->blocked = false;
}

void rn_answer_take(struct rn_answer *a)
{
    advance(a, a->cur - a->base, false);
}

/* ---- Markers ---- */

enum rn_answer_match rn_answer_match(const struct rn_answer *a, uint32_t at, const char *pattern, uint32_t *bytes)
{
    uint32_t begin = at, spaces;

    for (; *pattern != '\0'; pattern++) {
        if (*pattern == RN_F_SPACE[0]) {
            for (spaces = 0; at < a->len && rn_answer_space(a->window[at]) && spaces < RN_ANSWER_SPACES; spaces++)
                at++;
        } else if (*pattern == RN_F_ANY[0]) {
            for (spaces = 0; at < a->len && a->window[at] != pattern[1] && spaces < RN_ANSWER_SPACES; spaces++)
                at++;
        } else if (at == a->len) {
            return RN_MATCH_PARTIAL;
        } else if (a->window[at++] != *pattern) {
            return RN_MATCH_NONE;
        }
    }
    *bytes = at - begin;
    return RN_MATCH_FULL;
}

/* May this marker stand here? */
static bool allowed(const struct rn_answer *a, const struct rn_answer_marker *marker)
{
    const struct rn_reasoning_row *reasoning = a->rows.reasoning;
    uint32_t flags = a->rows.calls->flags;
    bool content = a->kind == RN_PART_CONTENT;

    switch (marker->role) {
    case RN_MARKER_CALL:
        if (!content)
            return !a->blocked && a->has_tools && (flags & RN_CALL_THINKING) != 0;
        return !a->blocked && !a->to_user && (a->has_tools || (flags & RN_CALL_MESSAGES) != 0);
    case RN_MARKER_REASONING:
        return a->start || (content && reasoning->anywhere);
    case RN_MARKER_REASONING_END:
        return !content || (a->start && !a->said) || a->unclosed;
    case RN_MARKER_WRAPPER:
        return content || (reasoning->response_ends && marker->text == reasoning->wrappers[0]);
    case RN_MARKER_CLOSER:
        return a->after_call && (a->fenced || strcmp(marker->text, FENCE) != 0);
    case RN_MARKER_HEADER:
        return !a->blocked;
    default:
        return true;
    }
}

/* The longest marker at window[at..); PARTIAL while a longer one is possible. */
static enum rn_answer_match find_marker(const struct rn_answer *a, uint32_t at, const struct rn_answer_marker **found)
{
    enum rn_answer_match best = RN_MATCH_NONE, match;
    uint32_t bytes, i;

    *found = NULL;
    for (i = 0; i < a->n_markers; i++) {
        const struct rn_answer_marker *marker = &a->markers[i];
        bool partial;

        if (a->window[at] != marker->text[0] || !allowed(a, marker))
            continue;
        partial = a->len - at < marker->bytes;
        bytes = partial ? a->len - at : marker->bytes;
        if (memcmp(a->window + at, marker->text, bytes) != 0)
            continue;
        match = partial ? RN_MATCH_PARTIAL : RN_MATCH_FULL;
        if (partial && !a->final)
            best = RN_MATCH_PARTIAL;
        if (match == RN_MATCH_FULL && (*found == NULL || marker->bytes > (*found)->bytes))
            *found = marker;
    }
    if (best != RN_MATCH_PARTIAL && *found != NULL)
        best = RN_MATCH_FULL;
    return best;
}

static void begin_section(struct rn_answer *a, uint32_t kind, uint8_t skip)
{
    a->kind = kind;
    a->skip = skip;
    a->start = true;
}

/* The marker stands behind `spaces` bytes of white space at base. */
static void act(struct rn_answer *a, const struct rn_answer_marker *marker, uint32_t spaces)
{
    const struct rn_reasoning_row *reasoning = a->rows.reasoning;
    bool between = marker->role == RN_MARKER_REASONING_END && a->kind == RN_PART_CONTENT && !a->start;
    uint32_t kept = spaces, newlines = 0;

    if (marker->role == RN_MARKER_CALL || marker->role == RN_MARKER_HEADER) {
        a->lead = spaces;
        a->cur = a->base + spaces;
        if (marker->role == RN_MARKER_CALL)
            rn_answer_open(a, a->rows.calls->open[marker->pattern], marker->pattern);
        else
            rn_answer_begin_header(a);
        return;
    }
    if (marker->role == RN_MARKER_TURN_END) {
        for (; kept > 0 && newlines < a->rows.turn->newlines && a->window[a->base + kept - 1] == '\n'; newlines++)
            kept--;
    } else if (!between && (marker->role != RN_MARKER_WRAPPER || reasoning->trim || a->kind == RN_PART_REASONING)) {
        kept = 0;
    }
    a->in_lines = a->fenced = false;
    a->unclosed = a->unclosed && marker->role == RN_MARKER_CLOSER;
    advance(a, kept, true);
    advance(a, spaces - kept + marker->bytes, false);
    switch (marker->role) {
    case RN_MARKER_REASONING:
        begin_section(a, RN_PART_REASONING, RN_SKIP_SPACES);
        break;
    case RN_MARKER_REASONING_END:
        begin_section(a, RN_PART_CONTENT, between ? RN_SKIP_NONE : RN_SKIP_NEWLINES);
        break;
    case RN_MARKER_WRAPPER:
        begin_section(a, RN_PART_CONTENT, reasoning->trim ? RN_SKIP_NEWLINES : RN_SKIP_NONE);
        break;
    default:
        a->to_user = false;
        begin_section(a, RN_PART_CONTENT, RN_SKIP_SPACES);
    }
}

/* Drops white space that goes at the beginning of a section; true if there was some. */
static bool skip_space(struct rn_answer *a)
{
    char c = a->window[a->base];
    bool skips = (a->skip == RN_SKIP_SPACES && rn_answer_space(c)) ||
                 (a->skip == RN_SKIP_NEWLINES && (c == '\n' || c == '\r')) ||
                 (a->skip == RN_SKIP_ONE_SPACE && c == ' ');

    if (!skips)
        return false;
    if (a->skip == RN_SKIP_ONE_SPACE)
        a->skip = RN_SKIP_NONE;
    advance(a, 1, false);
    return true;
}

/* The answer ends within a marker that means nothing behind a call: that is no text. */
static bool ends_in_closer(const struct rn_answer *a, uint32_t at)
{
    uint32_t i;

    for (i = 0; a->final && at < a->len && i < a->n_markers; i++)
        if (a->markers[i].role == RN_MARKER_CLOSER && allowed(a, &a->markers[i]) && a->len - at < a->markers[i].bytes &&
            memcmp(a->window + at, a->markers[i].text, a->len - at) == 0)
            return true;
    return false;
}

/* At the end of an answer that the model ended: the newlines that belong to the end of a turn. */
static uint32_t ending_newlines(const struct rn_answer *a, uint32_t n)
{
    uint32_t newlines = 0;

    while (a->finished && newlines < n && newlines < a->rows.turn->newlines &&
           a->window[a->base + n - 1 - newlines] == '\n')
        newlines++;
    return newlines;
}

/* Gives out n bytes of white space, one byte that begins no marker, and what plain text follows. */
static void give_text(struct rn_answer *a, uint32_t n)
{
    uint32_t dropped = 0;

    if (a->base + n < a->len) {
        a->skip = RN_SKIP_NONE;
        a->start = false;
        a->after_call = a->in_lines = false;
        n++;
        while (a->base + n < a->len && !a->stops[(unsigned char)a->window[a->base + n]])
            n++;
    } else if (a->final) {
        dropped = ending_newlines(a, n);
    }
    advance(a, n - dropped, true);
    advance(a, dropped, false);
}

/* Begins to match a call that has no marker, if one may begin with this byte. */
static bool open_bare(struct rn_answer *a, char c, uint32_t spaces)
{
    bool begins = a->bare >= 0 && a->start && (c == '{' || c == '['), follows = a->in_lines && c == '{';

    if (!(begins || follows) || !a->has_tools || a->blocked || a->kind != RN_PART_CONTENT)
        return false;
    a->lead = spaces;
    a->cur = a->base + spaces;
    rn_answer_open(a, follows ? RN_F_CALL : a->rows.calls->open[a->bare], follows ? -1 : a->bare);
    return true;
}

static enum rn_answer_step on_text(struct rn_answer *a)
{
    const struct rn_answer_marker *marker;
    uint32_t n = a->len - a->base, spaces = 0;
    enum rn_answer_match match;

    if (n == 0)
        return RN_STEP_WAIT;
    if (skip_space(a))
        return RN_STEP_ON;
    while (a->holds_space && spaces < n && spaces < RN_ANSWER_SPACES && rn_answer_space(a->window[a->base + spaces]))
        spaces++;
    if (spaces == RN_ANSWER_SPACES) {
        advance(a, 1, true);
        return RN_STEP_ON;
    }
    if (spaces == n && !a->final)
        return RN_STEP_WAIT;
    match = spaces == n ? RN_MATCH_NONE : find_marker(a, a->base + spaces, &marker);
    if (match == RN_MATCH_PARTIAL)
        return RN_STEP_WAIT;
    if (match == RN_MATCH_FULL) {
        act(a, marker, spaces);
        return RN_STEP_ON;
    }
    if (spaces < n && open_bare(a, a->window[a->base + spaces], spaces))
        return RN_STEP_ON;
    if (ends_in_closer(a, a->base + spaces))
        advance(a, n, false);
    else
        give_text(a, spaces);
    return RN_STEP_ON;
}

/* ---- Calls ---- */

bool rn_answer_commit(struct rn_answer *a)
{
    bool known;

    if (a->out == NULL) /* the prompt is read */
        return false;
    a->function = rn_answer_tools_find(&a->tools, a->name.text, a->name.bytes);
    known = (a->rows.calls->flags & RN_CALL_KNOWN) != 0 || a->kind == RN_PART_REASONING;
    if (known && a->function.kind == RN_VALUE_UNDEFINED)
        return false;
    a->unclosed = a->unclosed || a->kind == RN_PART_REASONING;
    a->kind = RN_PART_CONTENT;
    a->call = a->n_calls++;
    a->committed = true;
    a->fenced = strstr(a->pattern, FENCE) != NULL;
    rn_answer_take(a);
    rn_answer_put(a, RN_PART_TOOL_NAME, a->name.text, a->name.bytes);
    rn_answer_put(a, RN_PART_TOOL_ID, a->id.text, a->id.bytes);
    return true;
}

void rn_answer_call_ends(struct rn_answer *a)
{
    rn_answer_put(a, RN_PART_TOOL_END, "", 0);
    rn_answer_take(a);
    a->committed = false;
    a->mode = RN_MODE_TEXT;
    a->after_call = true;
    a->in_lines = (a->rows.calls->flags & RN_CALL_LINES) != 0;
    begin_section(a, RN_PART_CONTENT, RN_SKIP_SPACES);
}

/* Another pattern of the row with the same beginning, behind this one; -1: none. */
static int next_pattern(const struct rn_answer *a)
{
    const char *const *open = a->rows.calls->open;
    int i = a->pattern_index;
    size_t head;

    if (i < 0)
        return -1;
    head = rn_pattern_head(open[i]);
    for (i++; i < 4 && open[i] != NULL; i++)
        if (rn_pattern_head(open[i]) == head && memcmp(open[i], open[a->pattern_index], head) == 0)
            return i;
    return -1;
}

static void fail(struct rn_answer *a)
{
    int next = a->committed ? -1 : next_pattern(a);

    if (next >= 0) {
        a->cur = a->base + a->lead;
        rn_answer_open(a, a->rows.calls->open[next], next);
        return;
    }
    if (a->committed) {
        rn_answer_take(a);
        a->skip = RN_SKIP_NONE;
        a->start = false;
        a->after_call = false;
    } else {
        a->blocked = true;
        a->cur = a->base;
    }
    a->committed = false;
    a->mode = RN_MODE_TEXT;
}

/* ---- The stream ---- */

static enum rn_answer_step (*const modes[RN_N_MODES])(struct rn_answer *) = {
    [RN_MODE_TEXT] = on_text,
    [RN_MODE_OPEN] = rn_answer_on_open,
    [RN_MODE_WRAP] = rn_answer_on_wrap,
    [RN_MODE_LITERAL] = rn_answer_on_literal,
    [RN_MODE_PARAMS] = rn_answer_on_params,
    [RN_MODE_KEY] = rn_answer_on_key,
    [RN_MODE_VALUE] = rn_answer_on_value,
    [RN_MODE_VALUE_TEXT] = rn_answer_on_value_text,
    [RN_MODE_VALUE_LITERAL] = rn_answer_on_value_literal,
    [RN_MODE_VALUE_CLOSE] = rn_answer_on_value_close,
    [RN_MODE_VALUE_HELD] = rn_answer_on_value_held,
    [RN_MODE_PYTHON] = rn_answer_on_python,
    [RN_MODE_HEADER] = rn_answer_on_header,
};

/* Goes on until more input is needed. */
static void run(struct rn_answer *a)
{
    enum rn_answer_step step;

    for (;;) {
        step = modes[a->mode](a);
        RN_ASSERT(a->base <= a->cur && a->cur <= a->len);
        if (step == RN_STEP_WAIT && a->final && a->mode != RN_MODE_TEXT && !a->committed)
            step = RN_STEP_FAIL;
        if (step == RN_STEP_WAIT)
            return;
        if (step == RN_STEP_FAIL)
            fail(a);
    }
}

/* Room in the window behind len. */
static uint32_t make_room(struct rn_answer *a)
{
    if (a->base > 0) {
        memmove(a->window, a->window + a->base, a->len - a->base);
        a->len -= a->base;
        a->cur -= a->base;
        a->base = 0;
    }
    RN_CHECK(a->len < RN_ANSWER_WINDOW);
    return RN_ANSWER_WINDOW - a->len;
}

static void feed(struct rn_answer *a, const char *text, size_t n)
{
    while (n > 0) {
        uint32_t room = RN_ANSWER_WINDOW - a->len;

        if (room < n || a->base == a->len)
            room = make_room(a);
        if (room > n)
            room = (uint32_t)n;
        memcpy(a->window + a->len, text, room);
        a->len += room;
        text += room;
        n -= room;
        run(a);
    }
}

static void begin_output(struct rn_answer *a, struct rn_part *parts, char *out)
{
    a->parts = parts;
    a->n_parts = 0;
    a->out = out;
    a->n_out = 0;
}

size_t rn_answer_feed(struct rn_answer *answer, const char *text, size_t n, struct rn_part *parts, char *out,
                      size_t *out_bytes)
{
    begin_output(answer, parts, out);
    feed(answer, text, n);
    *out_bytes = answer->n_out;
    return answer->n_parts;
}

size_t rn_answer_end(struct rn_answer *answer, bool finished, struct rn_part *parts, char *out, size_t *out_bytes)
{
    begin_output(answer, parts, out);
    answer->final = true;
    answer->finished = finished;
    run(answer);
    if (answer->committed)
        rn_answer_cut_value(answer);
    *out_bytes = answer->n_out;
    return answer->n_parts;
}

size_t rn_answer_text_bound(const struct rn_answer *answer, size_t n)
{
    size_t bound;

    if (__builtin_add_overflow(n, (size_t)(answer->len - answer->base) + SLACK, &bound) ||
        __builtin_mul_overflow(bound, (size_t)PER_BYTE, &bound))
        return SIZE_MAX;
    return bound;
}

size_t rn_answer_parts_bound(const struct rn_answer *answer, size_t n)
{
    size_t bound;

    if (__builtin_add_overflow(n, (size_t)(answer->len - answer->base) + SLACK, &bound))
        return SIZE_MAX;
    return bound;
}

/* ---- Beginning ---- */

static void add_marker(struct rn_answer *a, const char *text, uint32_t bytes, enum rn_marker_role role, size_t pattern)
{
    RN_CHECK(a->n_markers < RN_ANSWER_MARKERS);
    a->markers[a->n_markers++] =
        (struct rn_answer_marker){.text = text, .bytes = bytes, .role = (uint8_t)role, .pattern = (uint8_t)pattern};
    a->stops[(unsigned char)text[0]] = true;
    if (role != RN_MARKER_TURN_END || a->rows.turn->newlines > 0)
        a->holds_space = true;
}

static void add_markers(struct rn_answer *a, const char *const *texts, size_t n, enum rn_marker_role role)
{
    size_t i;

    for (i = 0; i < n && texts[i] != NULL; i++)
        add_marker(a, texts[i], (uint32_t)strlen(texts[i]), role, 0);
}

/* Each beginning once, for the first pattern that has it. */
static void add_patterns(struct rn_answer *a)
{
    const char *const *open = a->rows.calls->open;
    size_t i, j, head;

    a->bare = -1;
    for (i = 0; i < 4 && open[i] != NULL; i++) {
        head = rn_pattern_head(open[i]);
        if (head == 0)
            a->bare = (int)i;
        for (j = 0; j < i; j++)
            if (rn_pattern_head(open[j]) == head && memcmp(open[j], open[i], head) == 0)
                break;
        if (head > 0 && j == i)
            add_marker(a, open[i], (uint32_t)head, RN_MARKER_CALL, i);
    }
}

static void collect_markers(struct rn_answer *a)
{
    static const char *const headers[] = {"<|start|>", "<|channel|>"};
    const struct rn_reasoning_row *reasoning = a->rows.reasoning;

    if (a->rows.calls->headers == RN_HEADERS_NONE) {
        add_markers(a, reasoning->open, 2, RN_MARKER_REASONING);
        add_markers(a, &reasoning->close, 1, RN_MARKER_REASONING_END);
        add_markers(a, reasoning->wrappers, 4, RN_MARKER_WRAPPER);
    } else {
        add_markers(a, headers, a->rows.calls->headers == RN_HEADERS_CHANNELS ? 2 : 1, RN_MARKER_HEADER);
    }
    add_patterns(a);
    add_markers(a, a->rows.calls->closers, 5, RN_MARKER_CLOSER);
    add_markers(a, a->rows.turn->ends, 3, RN_MARKER_TURN_END);
    a->holds_space = a->holds_space && a->rows.calls->headers == RN_HEADERS_NONE;
    if (a->holds_space)
        a->stops[' '] = a->stops['\n'] = a->stops['\t'] = a->stops['\r'] = true;
}

struct rn_answer *rn_answer_new(struct rn_heap *heap, const struct rn_answer_format *format,
                                struct rn_answer_tools *tools)
{
    struct rn_answer *a = (struct rn_answer *)rn_calloc(heap, 1, sizeof *a);

    if (a == NULL)
        return NULL;
    a->heap = heap;
    if (tools != NULL) {
        a->tools = *tools;
        *tools = (struct rn_answer_tools){0};
    }
    a->rows = rn_answer_format_rows(format);
    a->has_tools = rn_answer_tools_any(&a->tools);
    a->kind = RN_PART_CONTENT;
    a->start = true;
    a->pattern_index = -1;
    collect_markers(a);
    return a;
}

void rn_answer_free(struct rn_answer *answer)
{
    if (answer == NULL)
        return;
    rn_answer_tools_fini(&answer->tools);
    rn_free(answer->heap, answer);
}

/* Does text[n], without the white space at its end, end with end[bytes]? Then so many bytes from there to n, else 0. */
static size_t ends_with(const char *text, size_t n, const char *end, size_t bytes)
{
    size_t trimmed = n;

    while (trimmed > 0 && rn_answer_space(text[trimmed - 1]))
        trimmed--;
    if (bytes == 0 || trimmed < bytes || memcmp(text + trimmed - bytes, end, bytes) != 0)
        return 0;
    return n - trimmed + bytes;
}

/* The marker that the end of a prompt is, of those that open a section or a call. */
static struct rn_opened opened_by(const struct rn_answer_rows *rows, const char *prompt, size_t n)
{
    const struct rn_reasoning_row *reasoning = rows->reasoning;
    struct rn_opened opened = {RN_OPENED_NOTHING, NULL, 0, 0};
    const char *text;
    size_t bytes, i;

    for (i = 0; i < 7; i++) {
        text = i < 2 ? reasoning->open[i] : i < 6 ? rows->calls->open[i - 2] : reasoning->close;
        if (text == NULL)
            continue;
        bytes = i < 2 || i == 6 ? strlen(text) : rn_pattern_head(text);
        if (ends_with(prompt, n, text, bytes) == 0 || ends_with(prompt, n, text, bytes) > PROMPT_TAIL)
            continue;
        opened.kind = i < 2 ? RN_OPENED_REASONING : i < 6 ? RN_OPENED_CALL : RN_OPENED_CONTENT;
        opened.marker = text;
        opened.marker_bytes = bytes;
        opened.bytes = ends_with(prompt, n, text, bytes);
        break;
    }
    return opened;
}

/* The last place of the marker in text[n]; NULL: nowhere. */
static const char *last_of(const char *text, size_t n, const char *marker)
{
    size_t bytes = marker != NULL ? strlen(marker) : 0;

    for (size_t at = n; bytes > 0 && at >= bytes; at--)
        if (memcmp(text + at - bytes, marker, bytes) == 0)
            return text + at - bytes;
    return NULL;
}

/* The last message of the model, in a prompt text[n] that is a row of messages, if it has no end yet; else NULL. */
static const char *open_message(const struct rn_answer_rows *rows, const char *text, size_t n)
{
    const char *at = last_of(text, n, MESSAGE_BEGIN);

    for (size_t i = 0; i < 3 && at != NULL && rows->turn->ends[i] != NULL; i++)
        if (last_of(at, n - (size_t)(at - text), rows->turn->ends[i]) != NULL)
            return NULL;
    return at;
}

/* What a message has opened whose content so far is text[n]: reasoning that it has not closed. */
static struct rn_opened opened_within(const struct rn_reasoning_row *row, const char *text, size_t n)
{
    struct rn_opened opened = {RN_OPENED_CONTENT, NULL, 0, 0};
    const char *close = last_of(text, n, row->close);

    for (size_t i = 0; i < 2; i++) {
        const char *open = last_of(text, n, row->open[i]);

        if (open != NULL && (close == NULL || close < open))
            opened =
                (struct rn_opened){RN_OPENED_REASONING, row->open[i], strlen(row->open[i]), n - (size_t)(open - text)};
    }
    return opened;
}

struct rn_opened rn_answer_opened(const struct rn_answer_format *format, const char *prompt, size_t n, size_t content)
{
    struct rn_answer_rows rows = rn_answer_format_rows(format);
    size_t tail = n < PROMPT_TAIL ? n : PROMPT_TAIL, begin = sizeof MESSAGE_BEGIN - 1;
    const char *end = prompt + (n - tail), *at;
    struct rn_opened opened = {RN_OPENED_NOTHING, NULL, 0, 0};

    RN_ASSERT(content <= n);
    if (content < n && rows.calls->headers != RN_HEADERS_NONE)
        return (struct rn_opened){RN_OPENED_CONTENT, NULL, 0, 0};
    if (content < n)
        return opened_within(rows.reasoning, prompt + content, n - content);
    if (rows.calls->headers == RN_HEADERS_NONE)
        return opened_by(&rows, end, tail);
    at = open_message(&rows, end, tail);
    if (at != NULL && at + begin < end + tail)
        opened.kind = RN_OPENED_CONTENT;
    return opened;
}

/* Reads text that is the prompt's: it sets the state and is never given out, as there is no place for it; a call that
 * is whole in it is none. */
static void read_phantom(struct rn_answer *a, const char *text, size_t n)
{
    begin_output(a, NULL, NULL);
    a->phantom = (uint32_t)n;
    feed(a, text, n);
    RN_CHECK(a->n_out == 0);
}

/* Reads the header of a message that has begun, text[n]: nothing behind it, which may hold whole calls. */
static void read_header(struct rn_answer *a, const char *text, size_t n)
{
    const char *end = memmem(text, n, MESSAGE_TEXT, sizeof MESSAGE_TEXT - 1);

    read_phantom(a, text, end == NULL ? n : (size_t)(end - text) + sizeof MESSAGE_TEXT - 1);
}

/* A message goes on: no white space goes, and of its content only reasoning that is open matters. */
static void go_on(struct rn_answer *answer, const char *content, size_t n)
{
    struct rn_opened opened = opened_within(answer->rows.reasoning, content, n);

    if (opened.kind == RN_OPENED_REASONING)
        read_phantom(answer, opened.marker, opened.marker_bytes);
    answer->skip = RN_SKIP_NONE;
    answer->start = false;
}

void rn_answer_start(struct rn_answer *answer, const char *prompt, size_t n, size_t content)
{
    bool messages = answer->rows.calls->headers != RN_HEADERS_NONE;
    size_t head = messages ? content : n; /* a message that goes on is read up to its content */
    size_t tail = head < PROMPT_TAIL ? head : PROMPT_TAIL;
    const char *end = prompt + (head - tail), *at;
    struct rn_opened opened;

    RN_ASSERT(content <= n);
    if (messages) {
        at = open_message(&answer->rows, end, tail);
        if (at == NULL)
            read_phantom(answer, MESSAGE_BEGIN, sizeof MESSAGE_BEGIN - 1);
        else
            read_header(answer, at, (size_t)(end + tail - at));
        return;
    }
    if (content < n) {
        go_on(answer, prompt + content, n - content);
        return;
    }
    opened = opened_by(&answer->rows, end, tail);
    if (opened.kind == RN_OPENED_REASONING || opened.kind == RN_OPENED_CALL)
        read_phantom(answer, end + tail - opened.bytes, opened.bytes);
    else if (opened.kind == RN_OPENED_CONTENT)
        answer->skip = RN_SKIP_NEWLINES;
    else if (tail > 0 && end[tail - 1] == ':')
        answer->skip = RN_SKIP_ONE_SPACE;
}

static bool mentions(const char *text, const char *name, size_t n)
{
    return text != NULL && memmem(text, strlen(text), name, n) != NULL;
}

static bool params_mention(const struct rn_param_syntax *params, const char *name, size_t n)
{
    size_t i;

    if (params == NULL)
        return false;
    for (i = 0; i < 3; i++)
        if (mentions(params->openers[i].pattern, name, n))
            return true;
    return mentions(params->open, name, n) || mentions(params->close, name, n) || mentions(params->end, name, n);
}

bool rn_answer_wants(const struct rn_answer *answer, const char *name, size_t n)
{
    static const char headers[] = "<|start|><|channel|><|message|><|constrain|>";
    const struct rn_call_row *calls = answer->rows.calls;
    size_t i;

    if (n == 0)
        return false;
    if (calls->headers != RN_HEADERS_NONE && mentions(headers, name, n))
        return true;
    for (i = 0; i < answer->n_markers; i++) {
        uint8_t role = answer->markers[i].role;
        bool of_call = role == RN_MARKER_CALL || role == RN_MARKER_CLOSER;

        if ((answer->has_tools || !of_call) && mentions(answer->markers[i].text, name, n))
            return true;
    }
    if (!answer->has_tools)
        return false;
    for (i = 0; i < 4; i++)
        if (mentions(calls->open[i], name, n))
            return true;
    return mentions(calls->mark, name, n) || params_mention(calls->params, name, n);
}
