#include "answer_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/answer/tools.h"

static void append(struct parts *p, struct rn_part part, const char *text)
{
    struct rn_part *last = p->n > 0 ? &p->parts[p->n - 1] : NULL;
    bool joins = part.kind == RN_PART_CONTENT || part.kind == RN_PART_REASONING || part.kind == RN_PART_TOOL_ARGUMENTS;

    if (p->n == p->cap) {
        p->cap = 2 * p->cap + 16;
        p->parts = realloc(p->parts, p->cap * sizeof *p->parts);
        p->at = realloc(p->at, p->cap * sizeof *p->at);
        RN_CHECK(p->parts != NULL && p->at != NULL);
        last = p->n > 0 ? &p->parts[p->n - 1] : NULL;
    }
    if (p->bytes + part.bytes > p->text_cap) {
        p->text_cap = 2 * p->text_cap + part.bytes + 256;
        p->text = realloc(p->text, p->text_cap);
        RN_CHECK(p->text != NULL);
    }
    if (joins && last != NULL && last->kind == part.kind && last->call == part.call) {
        last->bytes += part.bytes;
    } else {
        p->at[p->n] = p->bytes;
        p->parts[p->n++] = part;
    }
    memcpy(p->text + p->bytes, text, part.bytes);
    p->bytes += part.bytes;
}

/* Buffers of exactly the bounds: what writes beyond is seen by the address sanitizer. */
static void step(struct rn_answer *answer, const char *text, size_t n, bool end, bool finished, struct parts *parts)
{
    size_t text_bound = rn_answer_text_bound(answer, n), parts_bound = rn_answer_parts_bound(answer, n), bytes, count,
           i;
    struct rn_part *list = malloc(parts_bound * sizeof *list);
    char *out = malloc(text_bound), *exact = malloc(n + 1), *at = out;

    RN_CHECK(list != NULL && out != NULL && exact != NULL);
    memcpy(exact, text, n);
    if (end)
        count = rn_answer_end(answer, finished, list, out, &bytes);
    else
        count = rn_answer_feed(answer, exact, n, list, out, &bytes);
    RN_CHECK(count <= parts_bound && bytes <= text_bound);
    for (i = 0; i < count; i++) {
        RN_CHECK((list[i].bytes == 0) == (list[i].kind == RN_PART_TOOL_END));
        append(parts, list[i], at);
        at += list[i].bytes;
    }
    RN_CHECK(at == out + bytes);
    free(exact);
    free(out);
    free(list);
}

struct rn_answer *answer_with(struct rn_heap *heap, const struct rn_answer_format *format, const char *tools,
                              size_t tools_bytes)
{
    struct rn_answer_tools read = {0};
    struct rn_answer *answer;

    if (tools != NULL && rn_answer_tools_read(&read, heap, tools, tools_bytes, NULL) == RUNNEL_NO_MEMORY)
        return NULL;
    answer = rn_answer_new(heap, format, &read);
    rn_answer_tools_fini(&read);
    return answer;
}

void parts_read(const struct reading *reading, const char *text, size_t n, enum cut cut, uint64_t seed,
                struct parts *parts)
{
    struct rn_answer *answer = answer_with(reading->heap, reading->format, reading->tools, reading->tools_bytes);
    size_t at = 0, blocks, bytes;

    memset(parts, 0, sizeof *parts);
    RN_CHECK(answer != NULL);
    blocks = rn_heap_blocks(reading->heap);
    rn_answer_start(answer, reading->prompt, reading->prompt_bytes, reading->prompt_bytes);
    while (at < n) {
        bytes = n - at;
        if (cut == CUT_BYTES)
            bytes = 1;
        if (cut == CUT_RANDOM) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes = 1 + (seed >> 33) % ((seed >> 60) < 4 ? 200 : 9);
        }
        if (bytes > n - at)
            bytes = n - at;
        step(answer, text + at, bytes, false, false, parts);
        at += bytes;
    }
    step(answer, "", 0, true, reading->finished, parts);
    RN_CHECK(rn_heap_blocks(reading->heap) == blocks);
    rn_answer_free(answer);
}

void parts_fini(struct parts *parts)
{
    free(parts->parts);
    free(parts->at);
    free(parts->text);
}

bool parts_equal(const struct parts *a, const struct parts *b)
{
    if (a->n != b->n || a->bytes != b->bytes)
        return false;
    if (a->n > 0 && memcmp(a->parts, b->parts, a->n * sizeof *a->parts) != 0)
        return false;
    return a->bytes == 0 || memcmp(a->text, b->text, a->bytes) == 0;
}

uint32_t parts_calls(const struct parts *parts)
{
    uint32_t calls = 0;
    size_t i;

    for (i = 0; i < parts->n; i++)
        calls += parts->parts[i].kind == RN_PART_TOOL_NAME;
    return calls;
}

uint32_t parts_ends(const struct parts *parts)
{
    uint32_t ends = 0;
    size_t i;

    for (i = 0; i < parts->n; i++)
        ends += parts->parts[i].kind == RN_PART_TOOL_END;
    return ends;
}

bool parts_open(const struct parts *parts)
{
    return parts_calls(parts) > parts_ends(parts);
}

char *parts_text(const struct parts *parts, uint32_t kind, uint32_t call, size_t *bytes)
{
    char *text = malloc(parts->bytes + 1);
    size_t i;

    RN_CHECK(text != NULL);
    *bytes = 0;
    for (i = 0; i < parts->n; i++) {
        if (parts->parts[i].kind != kind || (kind >= RN_PART_TOOL_NAME && parts->parts[i].call != call))
            continue;
        memcpy(text + *bytes, parts->text + parts->at[i], parts->parts[i].bytes);
        *bytes += parts->parts[i].bytes;
    }
    text[*bytes] = '\0';
    return text;
}
