/* Answers by hostile hands, read in linear time; the machine for literals; and refused
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "answer_samples.h"
#include "tests/base/refusing.h"
#include "text/answer/literal.h"

#define HOSTILE ((size_t)1 << 20)

/* begin, then `unit` again and again to a megabyte. */
static char *hostile(const char *begin, const char *unit)
{
    char *text = malloc(HOSTILE + 1);
    size_t n = strlen(begin), unit_bytes = strlen(unit);

    assert_non_null(text);
    memcpy(text, begin, n);
    for (; n < HOSTILE; n++)
        text[n] = unit[(n - strlen(begin)) % unit_bytes];
    text[HOSTILE] = '\0';
    return text;
}

/* A megabyte of what might keep a parser busy, in far less than the minutes that anything quadratic would take. */
static void test_hostile(void **state)
{
    static const struct {
        const char *source, *begin, *unit;
    } inputs[] = {
        {HERMES, "", "<"},
        {HERMES, "", "\n"},
        {HERMES, "", "<tool_call>"},
        {HERMES, "", "<tool_call>\n{\"x\":\""},
        {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "["},
        {HERMES, "<tool_call>", "["},
        {HERMES, "<tool_call>{\"name\":\"", "n"},
        {HERMES, "<tool_call>{\"arguments\":{\"a\":\"", "n"},
        {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "\\\\"},
        {CODER, "<function=", "f"},
        {CODER, "<function=f><parameter=", "f"},
        {CODER, "<function=f><parameter=s>", "<"},
        {CODER, "<function=f><parameter=s>", "\n</param"},
        {CODER, "<function=f><parameter=z>", "[1,"},
        {CODER, "<function=f><parameter=z>", "</"},
        {CODER, "<function=f><parameter=o>", "{\"a\":"},
        {LFM2, "<|tool_call_start|>", "[f(a=1),"},
        {LFM2, "<|tool_call_start|>[f(a=", "("},
        {GEMMA, "<|tool_call>call:f{a:<|\"|>", "<|\""},
        {HARMONY, "", "<|start|>assistant"},
        {HARMONY, "", "<|channel|>"},
        {HARMONY, "", "<|channel|>x to="},
        {LLAMA, "", "{\"name\":\"f\"};"},
        {MISTRAL, "", "[TOOL_CALLS]f[ARGS]{}"},
    };
    struct rn_heap heap;
    size_t i;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        struct reading reading = {.format = rn_answer_format_of(inputs[i].source, strlen(inputs[i].source)),
                                  .heap = &heap,
                                  .prompt = "",
                                  .tools = TOOLS,
                                  .tools_bytes = strlen(TOOLS)};
        char *text = hostile(inputs[i].begin, inputs[i].unit);
        clock_t begin = clock(); /* the processor's time: a machine under load is no parser's fault */
        struct parts whole, bytes;

        parts_read(&reading, text, HOSTILE, CUT_WHOLE, 0, &whole);
        parts_fini(&whole);
        if (clock() - begin > 10 * CLOCKS_PER_SEC)
            fail_msg("%s%s..: too slow", inputs[i].begin, inputs[i].unit);
        parts_read(&reading, text, HOSTILE / 32, CUT_WHOLE, 0, &whole);
        parts_read(&reading, text, HOSTILE / 32, CUT_BYTES, 0, &bytes);
        assert_true(parts_equal(&whole, &bytes));
        parts_fini(&bytes);
        parts_fini(&whole);
        free(text);
    }
}

/* ---- The literal machine ---- */

static void test_literal(void **state)
{
    static const char *const good[] = {
        "{}", "[]", "0", "-0.5e+10", "\"\\ud83e\\udd89\"", "[1,[2,{\"a\":null}]]", " true ", "\"\\u0000\\/\""};
    static const char *const bad[] = {
        "",     "{",         "[1,]",        "{\"a\":1,}",  "01",     "1.",    "-",     "+1",        "'a'", "tru",
        "True", "\"\\x41\"", "\"\\ud83e\"", "\"\\udd89\"", "\"\n\"", "{a:1}", "[1 2]", "{\"a\" 1}", "1 2", "nulll"};
    char deep[2 * RN_LITERAL_DEPTH + 3];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!rn_literal_is(RN_LITERAL_JSON, good[i], strlen(good[i])))
            fail_msg("%s", good[i]);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (rn_literal_is(RN_LITERAL_JSON, bad[i], strlen(bad[i])))
            fail_msg("%s", bad[i]);
    assert_true(rn_literal_is(RN_LITERAL_PYTHON, "{'a': (1, None,), \"b\": True}", 28));
    assert_false(rn_literal_is(RN_LITERAL_PYTHON, "{True: 1}", 9));
    memset(deep, '[', RN_LITERAL_DEPTH + 1);
    memset(deep + RN_LITERAL_DEPTH + 1, ']', RN_LITERAL_DEPTH + 1);
    assert_false(rn_literal_is(RN_LITERAL_JSON, deep, 2 * RN_LITERAL_DEPTH + 2));
    assert_true(rn_literal_is(RN_LITERAL_JSON, deep + 1, 2 * RN_LITERAL_DEPTH));
}

/* ---- Memory ---- */

static void test_refused(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_answer *answer = NULL;
    uint32_t i;

    (void)state;
    for (i = 0; answer == NULL; i++) {
        assert_true(i < 100);
        refusing_allow(&refusing, i);
        answer = answer_with(&heap, rn_answer_format_of(HERMES, strlen(HERMES)), TOOLS, strlen(TOOLS));
        if (answer == NULL)
            assert_int_equal(rn_heap_blocks(&heap), 0);
    }
    assert_true(i > 2);
    rn_answer_free(answer);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile), cmocka_unit_test(test_literal),
                                       cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
