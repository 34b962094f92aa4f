/* The headers of messages, where an answer is a row of such.
 *
 *     harmony      <|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{..}
 *                  `------- header ------'      ^ text or arguments, until the end of the message
 *     recipients    to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Hi.<|eot|>
 *
 * A message to a recipient that is neither the model itself nor the user has a call in the row's own marks; in one to
 * the user such marks are text. In harmony a message to anyone but the user and the request's tools is the model's own:
 * reasoning. */
#include <string.h>

#include "text/answer/impl.h"

#define HEADER_CHANNEL '\x01' /* stands for "<|channel|>" in the header that is collected */
#define HEADER_START '\x02'
#define HEADER_CONSTRAIN '\x03'

void rn_answer_begin_header(struct rn_answer *a)
{
    a->mode = RN_MODE_HEADER;
    a->text.bytes = 0;
}

/* The word behind `mark` in the header, to the field; empty if there is none. */
static void header_word(const struct rn_answer *a, const char *mark, size_t n, struct rn_field *word)
{
    uint32_t at;

    word->bytes = 0;
    for (at = 0; at + n <= a->text.bytes; at++)
        if (memcmp(a->text.text + at, mark, n) == 0)
            break;
    for (at += (uint32_t)n; at < a->text.bytes && (unsigned char)a->text.text[at] > ' '; at++)
        rn_field_add(word, a->text.text + at, 1);
}

/* Before its channel a header is "assistant", and perhaps " to=..": else it is none. */
static bool header_plausible(const struct rn_answer *a)
{
    static const char role[] = "\002assistant to=";
    uint32_t n = a->text.bytes < sizeof role - 1 ? a->text.bytes : (uint32_t)sizeof role - 1, i;

    if (a->text.bytes == 0 || a->text.text[0] == HEADER_CHANNEL)
        return true;
    for (i = 0; i < n; i++)
        if (a->text.text[i] != role[i])
            return i >= 10 && (unsigned char)a->text.text[i] < ' '; /* a marker, behind "assistant" */
    return true;
}

/* A marker within a header: each stands there once. */
static bool add_mark(struct rn_answer *a, char mark)
{
    return memchr(a->text.text, mark, a->text.bytes) == NULL && rn_field_add(&a->text, &mark, 1) && header_plausible(a);
}

/* Text of this kind follows the header. */
static enum rn_answer_step text_follows(struct rn_answer *a, uint32_t kind, enum rn_answer_skip skip)
{
    rn_answer_take(a);
    a->mode = RN_MODE_TEXT;
    a->kind = kind;
    a->skip = (uint8_t)skip;
    a->start = false;
    a->after_call = false;
    return RN_STEP_ON;
}

static enum rn_answer_step recipient_ends(struct rn_answer *a)
{
    bool to_user, to_self;

    header_word(a, "to=", 3, &a->id);
    to_user = a->id.bytes == 0 || rn_field_is(&a->id, "user");
    to_self = rn_field_is(&a->id, "self");
    a->to_user = rn_field_is(&a->id, "user");
    return text_follows(a, to_self ? RN_PART_REASONING : RN_PART_CONTENT,
                        to_user || to_self ? RN_SKIP_NONE : RN_SKIP_SPACES);
}

/* The header is whole: what kind of message follows? */
static enum rn_answer_step channel_ends(struct rn_answer *a)
{
    static const char functions[] = "functions.";
    struct rn_field channel;
    uint32_t prefix = sizeof functions - 1;
    bool call, to_user;

    header_word(a, "\001", 1, &channel);
    header_word(a, "to=", 3, &a->id);
    to_user = a->id.bytes == 0 || rn_field_is(&a->id, "user") || rn_field_is(&a->id, "all");
    if (a->id.bytes > prefix && memcmp(a->id.text, functions, prefix) == 0) {
        memmove(a->id.text, a->id.text + prefix, a->id.bytes - prefix);
        a->id.bytes -= prefix;
        call = true;
    } else {
        call = rn_answer_tools_find(&a->tools, a->id.text, a->id.bytes).kind != RN_VALUE_UNDEFINED;
    }
    a->kind = RN_PART_CONTENT;
    if (call && a->has_tools) {
        struct rn_field name = a->id;

        rn_answer_open(a, RN_F_SPACE RN_F_OBJECT, -1);
        a->name = name;
        return RN_STEP_ON;
    }
    to_user = to_user && !rn_field_is(&channel, "analysis");
    return text_follows(a, to_user ? RN_PART_CONTENT : RN_PART_REASONING, RN_SKIP_NONE);
}

enum rn_answer_step rn_answer_on_header(struct rn_answer *a)
{
    static const struct {
        const char *text;
        char stands_for;
    } marks[] = {{"<|message|>", 0},
                 {"<|channel|>", HEADER_CHANNEL},
                 {"<|constrain|>", HEADER_CONSTRAIN},
                 {"<|start|>", HEADER_START}};
    bool channels = a->rows.calls->headers == RN_HEADERS_CHANNELS, partial = false;
    uint32_t bytes;
    size_t i;
    char c;

    if (a->cur == a->len)
        return RN_STEP_WAIT;
    c = a->window[a->cur];
    if (c != '<') {
        a->cur++;
        return (rn_answer_name_byte(c) || c == ' ' || c == '=') && rn_field_add(&a->text, &c, 1) && header_plausible(a)
                   ? RN_STEP_ON
                   : RN_STEP_FAIL;
    }
    for (i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        enum rn_answer_match match = rn_answer_match(a, a->cur, marks[i].text, &bytes);

        partial = partial || match == RN_MATCH_PARTIAL;
        if (match != RN_MATCH_FULL)
            continue;
        a->cur += bytes;
        if (marks[i].stands_for == 0)
            return channels ? channel_ends(a) : recipient_ends(a);
        return add_mark(a, marks[i].stands_for) ? RN_STEP_ON : RN_STEP_FAIL;
    }
    return partial ? RN_STEP_WAIT : RN_STEP_FAIL;
}
