/* Tools with "strict": true bind the answer of a chat that says nothing of a tool_choice; others do not. The prompts
 * end with the mark that opens a call, so that the model writes one at once: what it writes freely fits no schema. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/actors/fixture.h"

#define ASKS "{% for m in messages %}{{ m.content }}{% endfor %}"
#define CALLS ASKS "\n<tool_call>\n{# {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call> #}"
#define TOOL(name, more)                                                                                             \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", " more                                          \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Oslo\", \"Rome\"]}, \"days\": " \
    "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}}, \"required\": [\"city\", \"days\"]}}}"
#define ODD(name, more)                                                                                                \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", " more                                            \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"format\": \"regex\", " \
    "\"maxLength\": 4}}, \"required\": [\"city\"]}}}"
#define STRICT "\"strict\": true, "

enum { SEEDS = 6 };

struct answer {
    struct capture capture;
    char name[64], arguments[512];
    size_t n_calls;
    bool fits; /* the last call is whole, of one of the tools, and its arguments fit */
};

static void note(struct capture *capture, const runnel_event *event)
{
    struct answer *answer = capture->hook_user;

    if (event->type == RUNNEL_EVENT_TOOL_CALL) {
        answer->n_calls++;
        answer->arguments[0] = '\0';
        snprintf(answer->name, sizeof answer->name, "%.*s", (int)event->text_bytes, event->text);
    } else if (event->type == RUNNEL_EVENT_TOOL_ARGUMENTS &&
               strlen(answer->arguments) + event->text_bytes < sizeof answer->arguments) {
        strncat(answer->arguments, event->text, event->text_bytes);
    }
}

static bool fits(const struct answer *answer)
{
    json_t *arguments = json_loads(answer->arguments, JSON_REJECT_DUPLICATES, NULL);
    const char *city = json_string_value(json_object_get(arguments, "city"));
    json_int_t days = json_integer_value(json_object_get(arguments, "days"));
    bool good = city != NULL;

    if (strcmp(answer->name, "weather") == 0)
        good = good && (strcmp(city, "Oslo") == 0 || strcmp(city, "Rome") == 0) && days >= 1 && days <= 14 &&
               json_object_size(arguments) == 2;
    else
        good = good && strcmp(answer->name, "odd") == 0 && strlen(city) <= 16 && json_object_size(arguments) == 1;
    json_decref(arguments);
    return good;
}

static void run(runnel_engine *engine, runnel_model *model, const runnel_chat *given, uint64_t seed, bool raw,
                struct answer *answer)
{
    const runnel_message message = {"user", "Once upon a time", NULL};
    runnel_request request = make_request("", 150, &answer->capture);
    runnel_chat chat = *given;

    memset(answer, 0, sizeof *answer);
    answer->capture.hook = note;
    answer->capture.hook_user = answer;
    chat.messages = &message;
    chat.n_messages = 1;
    chat.single_call = 1;
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.chat = &chat;
    request.raw_answer = raw;
    request.sampling.temperature = 1.2f;
    request.sampling.seed = seed;
    run_request(engine, model, &request);
    answer->fits = answer->n_calls == 1 && fits(answer);
}

static runnel_chat asking(const char *template_text, const char *tools)
{
    runnel_chat chat;

    runnel_chat_default(&chat);
    chat.template_text = template_text;
    chat.tools = tools;
    return chat;
}

/* How many of the seeds' answers are a call that fits. */
static size_t count(runnel_engine *engine, runnel_model *model, const char *tools)
{
    runnel_chat chat = asking(CALLS, tools);
    struct answer answer;
    size_t n = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run(engine, model, &chat, seed, false, &answer);
        if (answer.capture.last.type != RUNNEL_EVENT_DONE)
            fail_msg("%s: %s", tools, answer.capture.error);
        n += answer.fits;
        capture_clear(&answer.capture);
    }
    return n;
}

static void strict_tools_bind(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);

    (void)state;
    assert_int_equal(count(engine, model, "[" TOOL("weather", STRICT) "]"), SEEDS);
    assert_int_equal(count(engine, model, "[" TOOL("weather", "") "]"), 0);
    assert_int_equal(count(engine, model, "[" TOOL("weather", "\"strict\": false, ") "]"), 0);
    /* a tool beside them that is not strict leaves out what cannot be enforced */
    assert_int_equal(count(engine, model, "[" TOOL("weather", STRICT) ", " ODD("odd", "") "]"), SEEDS);
    assert_int_equal(count(engine, model, "[" ODD("odd", "") "]"), 0);
    runnel_engine_free(engine);
}

/* A strict schema is enforced to the letter or refused, unless the host allows less. */
static void what_cannot_be_enforced_is_told(void **state)
{
    static const char tools[] = "[" TOOL("weather", "") ", " ODD("odd", STRICT) "]";
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_chat chat = asking(CALLS, tools);
    runnel_grammar grammar;
    runnel_request request;
    runnel_error error = {0};
    struct answer answer;

    (void)state;
    run(engine, model, &chat, 1, false, &answer);
    assert_int_equal(answer.capture.last.type, RUNNEL_EVENT_FAILED);
    assert_non_null(strstr(answer.capture.error, "the tool \"odd\""));
    assert_int_equal(answer.capture.last.about, RUNNEL_ABOUT_TOOLS);
    capture_clear(&answer.capture);
    runnel_request_default(&request);
    chat.messages_json = "[{\"role\": \"user\", \"content\": \"a\"}]";
    request.chat = &chat;
    assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "the tool \"odd\""));
    assert_int_equal(error.about, RUNNEL_ABOUT_TOOLS);
    runnel_grammar_default(&grammar);
    grammar.allow_unenforced = 1;
    request.grammar = &grammar;
    assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_OK);
    runnel_engine_free(engine);
}

/* A template that shows no way to call, and an answer that is not taken apart: the text without tools. */
static void nothing_binds_where_nothing_calls(void **state)
{
    static const char *const tools[] = {NULL, "[" TOOL("weather", "") "]", "[" TOOL("weather", STRICT) "]",
                                        "[" ODD("odd", "") "]"};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct answer plain, answer;

    (void)state;
    for (int raw = 0; raw < 2; raw++)
        for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
            runnel_chat chat = asking(raw ? CALLS : ASKS, tools[i]);

            run(engine, model, &chat, 1, raw, i == 0 ? &plain : &answer);
            if (i == 0) {
                assert_true(plain.capture.text_bytes > 20);
                continue;
            }
            assert_int_equal(answer.capture.last.type, RUNNEL_EVENT_DONE);
            assert_int_equal(answer.capture.text_bytes, plain.capture.text_bytes);
            assert_memory_equal(answer.capture.text, plain.capture.text, plain.capture.text_bytes);
            capture_clear(&answer.capture);
            if (i + 1 == sizeof tools / sizeof tools[0])
                capture_clear(&plain.capture);
        }
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strict_tools_bind),
                                       cmocka_unit_test(what_cannot_be_enforced_is_told),
                                       cmocka_unit_test(nothing_binds_where_nothing_calls)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
