/* Bodies of Anthropic's form with many text blocks: what is asked of the allocator while they become one text grows as
 * they do, not as their square. Counted are the bytes that the translation and jansson ask for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/serve/dialects/anthropic.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *bytes, size_t n);

static uint64_t asked;

/* In place of those that the units of this program call (see CMakeLists.txt). */
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *bytes, size_t n);

void *__wrap_malloc(size_t n)
{
    asked += n;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t size)
{
    asked += count * size;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *bytes, size_t n)
{
    asked += n;
    return __real_realloc(bytes, n);
}

static json_t *blocks_of(size_t n, const char *type, const char *member)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s,s:s}", "type", type, member, "Twelve bytes"));
    return list;
}

enum place { SYSTEM, USER, RESULT, ANSWER, THOUGHTS, PLACES };

static json_t *body_of(enum place place, size_t n)
{
    json_t *blocks = blocks_of(n, place == THOUGHTS ? "thinking" : "text", place == THOUGHTS ? "thinking" : "text");
    json_t *content =
        place == RESULT ? json_pack("[{s:s,s:s,s:o}]", "type", "tool_result", "tool_use_id", "call", "content", blocks)
                        : blocks;
    json_t *body = json_pack("{s:i}", "max_tokens", 5);

    if (place == THOUGHTS)
        json_array_append_new(content, json_pack("{s:s,s:s}", "type", "text", "text", "So."));
    if (place == SYSTEM) {
        json_object_set_new(body, "system", content);
        json_object_set_new(body, "messages", json_pack("[{s:s,s:s}]", "role", "user", "content", "Hello"));
    } else {
        json_object_set_new(
            body, "messages",
            json_pack("[{s:s,s:o}]", "role", place >= ANSWER ? "assistant" : "user", "content", content));
    }
    return body;
}

/* Bytes that are asked for while a body with n blocks in this place becomes a request. */
static uint64_t cost_of(enum place place, size_t n)
{
    json_t *body = body_of(place, n), *out = NULL;
    struct openai_request request = {0};
    struct openai_error error = {0};
    uint64_t cost = 0;
    bool good;

    asked = 0;
    out = anthropic_translate(body, &error);
    if (out == NULL)
        fail_msg("place %d: %s", (int)place, error.message);
    good = openai_request_read(&request, OPENAI_CHAT, OPENAI_SERVED, out, &error);
    cost = asked;
    if (!good)
        fail_msg("place %d: %s", (int)place, error.message);
    assert_true(strlen(request.messages) > 12 * n);
    openai_request_fini(&request);
    json_decref(out);
    json_decref(body);
    return cost;
}

static void many_blocks(void **state)
{
    (void)state;
    for (enum place place = 0; place < PLACES; place++) {
        uint64_t few = cost_of(place, 2000), many = cost_of(place, 16000);

        assert_true(few > UINT64_C(2000) * 12); /* else nothing is counted */
        if (many > 10 * few)                    /* 8 times as many; squares are 64 times as much */
            fail_msg("place %d: %llu bytes for 2,000 blocks, %llu for 16,000", (int)place, (unsigned long long)few,
                     (unsigned long long)many);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_blocks)};

    json_set_alloc_funcs(__wrap_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
