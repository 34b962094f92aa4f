/* What a file says of its chats: traits of templates, recommended sampling, and the tokens of a chat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"
#include "runnel_files.h"
#include "tests/base/refusing.h"
#include "tests/model/model_edit.h"

#define LOOP(body) "{% for m in messages %}" body "{% endfor %}"

/* ---- Traits ---- */

static runnel_template_info inspect(const char *source, runnel_status status)
{
    runnel_template_info info = {.struct_size = sizeof info};
    runnel_error error;

    assert_int_equal(runnel_inspect_template(source, strlen(source), &info, &error), status);
    assert_int_equal(info.bytes, strlen(source));
    assert_string_equal(info.name, "");
    assert_true(status == RUNNEL_OK || strlen(error.message) > 0);
    return info;
}

static void traits(void **state)
{
    static const struct {
        const char *source;
        uint32_t knows;
        const char *format;
    } cases[] = {
        {"nothing", 0, "plain"},
        {LOOP("{{ m.content }}"), RUNNEL_TEMPLATE_SYSTEM, "plain"},
        {LOOP("{% if m.role != 'system' %}{{ m.content }}{% endif %}"), 0, "plain"},
        {LOOP("{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ m.content }}"), 0,
         "plain"},
        {LOOP("{{ m.content }}") "{% if tools %}{{ tools | tojson }}{% endif %}",
         RUNNEL_TEMPLATE_SYSTEM | RUNNEL_TEMPLATE_TOOLS, "plain"},
        {LOOP("{{ m.content }}") "<tool_call>{{ tools[0].function.name if tools }}",
         RUNNEL_TEMPLATE_SYSTEM | RUNNEL_TEMPLATE_TOOLS, "json-in-tags"},
        {LOOP("{{ m.content }}") "{% if enable_thinking %}<think>{% endif %}",
         RUNNEL_TEMPLATE_SYSTEM | RUNNEL_TEMPLATE_REASONING | RUNNEL_TEMPLATE_THINKING, "think"},
        {LOOP("{{ m.content.split('</think>')[-1] }}"), RUNNEL_TEMPLATE_SYSTEM | RUNNEL_TEMPLATE_REASONING, "think"},
        {LOOP("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
              "{% endfor %}{% endif %}"),
         RUNNEL_TEMPLATE_SYSTEM | RUNNEL_TEMPLATE_PARTS, "plain"},
        {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", 0, "plain"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        runnel_template_info info = inspect(cases[i].source, RUNNEL_OK);

        if (info.knows != cases[i].knows)
            print_error("%s\n", cases[i].source);
        assert_int_equal(info.knows, cases[i].knows);
        assert_string_equal(info.format, cases[i].format);
    }
}

static void malformed(void **state)
{
    runnel_template_info info = {.struct_size = sizeof info};
    runnel_error error;

    (void)state;
    assert_int_equal(inspect("a {# never closed <think>", RUNNEL_FORMAT).knows, 0);
    assert_int_equal(inspect("{% if %}", RUNNEL_FORMAT).knows, 0);
    assert_int_equal(runnel_inspect_template("a\n {% if %}", 11, &info, &error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "line 2"));
}

/* ---- A file ---- */

#define TOOL_USE LOOP("{{ m.content }}") "{{ tools }}"

static char directory[] = "/tmp/runnel-templates-XXXXXX", path[64];

/* The bundled model with another template, a broken one, and values for sampling. */
static int write_model(void **state)
{
    static struct model_edit edit;
    static struct {
        uint64_t n;
        char text[sizeof TOOL_USE];
    } tool_use = {sizeof TOOL_USE - 1, TOOL_USE};
    struct writer writer = {0};
    struct rn_heap heap;
    struct rn_gguf *gguf;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, BUNDLED_MODEL, &gguf, NULL), RUNNEL_OK);
    edit_from(&edit, gguf);
    edit.keys[edit.n_keys++] = (struct edit_key){.name = "tokenizer.chat_template.tool_use",
                                                 .type = RN_GGUF_STRING,
                                                 .item = RN_GGUF_STRING,
                                                 .count = 1,
                                                 .data = &tool_use,
                                                 .bytes = 8 + sizeof TOOL_USE - 1};
    edit_text(&edit, "tokenizer.chat_template.bad", "{% if");
    edit_text(&edit, "tokenizer.chat_templates", "no template");
    edit_f32(&edit, "general.sampling.temp", 0.25f);
    edit_u32(&edit, "general.sampling.top_k", 20);
    edit_f32(&edit, "general.sampling.top_p", 1.5f);
    edit_text(&edit, "general.sampling.min_p", "0.1");
    edit_f32(&edit, "general.sampling.penalty_repeat", 1.5f);
    edit_u32(&edit, "general.sampling.penalty_last_n", 64);
    edit_f32(&edit, "general.sampling.xtc_probability", 0.5f);
    edit_f32(&edit, "general.sampling.xtc_threshold", 1.5f);
    edit_u32(&edit, "general.sampling.mirostat", 2);
    edit_text(&edit, "general.sampling.mirostat_tau", "4");
    edit_u32(&edit, "general.sampling.mirostat_eta", 1);
    edit_write(&edit, &writer);
    rn_gguf_free(gguf);
    assert_non_null(mkdtemp(directory));
    w_save(&writer, directory, "m.gguf");
    snprintf(path, sizeof path, "%s/m.gguf", directory);
    w_free(&writer);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    unlink(path);
    rmdir(directory);
    return 0;
}

static void same(const runnel_template_info *a, const runnel_template_info *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->format, b->format);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->knows, b->knows);
}

static void check_sampling(const runnel_sampling *sampling, uint32_t recommended)
{
    assert_int_equal(recommended, RUNNEL_RECOMMENDED_TEMPERATURE | RUNNEL_RECOMMENDED_TOP_K |
                                      RUNNEL_RECOMMENDED_REPETITION_PENALTY | RUNNEL_RECOMMENDED_PENALTY_TOKENS);
    assert_true(sampling->temperature == 0.25f && sampling->top_k == 20 && sampling->repetition_penalty == 1.5f &&
                sampling->penalty_tokens == 64);
    assert_true(sampling->top_p == 7 && sampling->min_p == 8); /* as they were */
}

static void check_samplers(const runnel_samplers *samplers, uint32_t recommended)
{
    assert_int_equal(recommended, RUNNEL_RECOMMENDED_XTC_PROBABILITY | RUNNEL_RECOMMENDED_MIROSTAT |
                                      RUNNEL_RECOMMENDED_MIROSTAT_ETA);
    assert_true(samplers->xtc_probability == 0.5f && samplers->mirostat == 2 && samplers->mirostat_eta == 1);
    assert_true(samplers->xtc_threshold == 0.1f && samplers->mirostat_tau == 5 && samplers->min_tokens == 3);
}

/* File and loaded model say the same. */
static void of_a_file(void **state)
{
    static const char *const names[] = {"", "tool_use", "bad"};
    runnel_template_info here = {.struct_size = sizeof here}, there = {.struct_size = sizeof there};
    runnel_sampling sampling = {.top_p = 7, .min_p = 8}, again = sampling;
    runnel_samplers samplers, same_samplers;
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, path, NULL);
    runnel_file *file;
    uint32_t recommended;

    (void)state;
    assert_int_equal(runnel_file_open(path, &file, NULL), RUNNEL_OK);
    for (uint32_t i = 0; i < 3; i++) {
        runnel_status status = i == 2 ? RUNNEL_FORMAT : RUNNEL_OK;

        assert_int_equal(runnel_file_template(file, i, &here, NULL), status);
        assert_int_equal(runnel_model_template(model, i, &there, NULL), status);
        assert_string_equal(here.name, names[i]);
        same(&here, &there);
    }
    assert_int_equal(runnel_file_template(file, 1, &here, NULL), RUNNEL_OK);
    assert_int_equal(here.knows, RUNNEL_TEMPLATE_SYSTEM | RUNNEL_TEMPLATE_TOOLS);
    assert_int_equal(runnel_file_template(file, 3, &here, NULL), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_model_template(model, 3, &here, NULL), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_file_sampling(file, &sampling, &recommended), RUNNEL_OK);
    check_sampling(&sampling, recommended);
    assert_int_equal(runnel_model_sampling(model, &again, &recommended), RUNNEL_OK);
    check_sampling(&again, recommended);
    runnel_samplers_default(&samplers);
    samplers.min_tokens = 3;
    same_samplers = samplers;
    assert_int_equal(runnel_file_samplers(file, &samplers, &recommended), RUNNEL_OK);
    check_samplers(&samplers, recommended);
    assert_int_equal(runnel_model_samplers(model, &same_samplers, &recommended), RUNNEL_OK);
    check_samplers(&same_samplers, recommended);
    runnel_file_close(file);
    assert_int_equal(runnel_file_open(BUNDLED_MODEL, &file, NULL), RUNNEL_OK);
    assert_int_equal(runnel_file_sampling(file, &sampling, &recommended), RUNNEL_OK);
    assert_int_equal(recommended, 0);
    runnel_file_close(file);
    runnel_model_free(model);
    runnel_engine_free(engine);
}

/* ---- The tokens of a chat ---- */

static void tokens_of_a_chat(void **state)
{
    static const runnel_message messages[] = {{"system", "Be kind.", NULL}, {"user", "Hello <|im_end|>", NULL}};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, BUNDLED_MODEL, NULL);
    struct capture capture = {0};
    runnel_request request = make_request(NULL, 1, &capture);
    runnel_chat chat;
    int32_t tokens[64] = {0};
    size_t n, whole;

    (void)state;
    runnel_chat_default(&chat);
    chat.messages = messages;
    chat.n_messages = 2;
    assert_int_equal(runnel_tokenize_chat(model, &chat, NULL, 0, &n, NULL), RUNNEL_OK);
    request.prompt_bytes = 0;
    request.chat = &chat;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(n, capture.last.usage.prompt_tokens); /* what the user wrote is no control token */
    assert_int_equal(runnel_tokenize_chat(model, &chat, tokens, n - 1, &whole, NULL), RUNNEL_OK);
    assert_int_equal(whole, n);
    assert_int_equal(tokens[n - 1], 0);
    chat.template_name = "nonesuch";
    assert_int_equal(runnel_tokenize_chat(model, &chat, tokens, 64, &whole, NULL), RUNNEL_NOT_FOUND);
    capture_clear(&capture);
    runnel_model_free(model);
    runnel_engine_free(engine);
}

/* Memory is refused at each place of it: then there is no token. */
static void tokens_refused(void **state)
{
    static const runnel_message messages[] = {{"user", "Hello", NULL}};
    struct refusing hook = {.refuse_at = 0};
    runnel_engine_options options;
    runnel_engine *engine;
    runnel_model *model;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_chat chat;
    runnel_status status;
    uint64_t at = 0;

    (void)state;
    runnel_engine_options_default(&options);
    options.allocator = refusing_hook(&hook);
    engine = start_engine(&options);
    model = load_model(engine, BUNDLED_MODEL, NULL);
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    assert_int_equal(info.add_bos, 1);
    runnel_chat_default(&chat);
    chat.messages = messages;
    chat.n_messages = 1;
    chat.template_text = "{{ messages[0].content }}"; /* BOS is put in front */
    do {
        size_t n = 7;

        hook.calls = 0;
        hook.refuse_at = ++at;
        status = runnel_tokenize_chat(model, &chat, NULL, 0, &n, NULL);
        assert_true(status == RUNNEL_OK ? n > 1 : status == RUNNEL_NO_MEMORY && n == 0);
    } while (status != RUNNEL_OK);
    hook.refuse_at = 0;
    assert_true(at > 3);
    runnel_engine_free(engine);
    assert_int_equal(hook.live, 0);
}

/* ---- The forms of messages --------------------------------------------------------------- */

static char *apply(runnel_model *model, const runnel_chat *chat)
{
    static char text[1024];
    runnel_error error = {0};
    size_t n = 0;

    if (runnel_apply_template(model, chat, text, sizeof text - 1, &n, &error) != RUNNEL_OK)
        fail_msg("%s\n%s", chat->template_text, error.message);
    text[n] = '\0';
    return text;
}

/* Messages as servers answer them, with templates that take but one form of each. */
static void forms(void **state)
{
#define CALLED(content, arguments)                                                                \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\"," content "\"tool_calls\":[{" \
    "\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]}]"
#define OBJECT "{\"a\":1}"
#define TEXT "\"{\\\"a\\\": 1}\""
#define CALLS(body) LOOP("{% for c in m.tool_calls %}" body "{% endfor %}")
    static const struct {
        const char *source, *messages, *text;
    } cases[] = {
        /* null */
        {LOOP("{{ m.content + '.' }}{{ m.tool_calls[0].function.name if m.tool_calls }}"),
         CALLED("\"content\":null,", OBJECT), "u..f"},
        {LOOP("{{ m.content }}.{{ m.tool_calls[0].function.arguments.items() | list | tojson if m.tool_calls }}"),
         CALLED("", OBJECT), "u..[[\"a\", 1]]"},
        {LOOP("{% if m.content is none %}{{ m.tool_calls | tojson }}{% else %}{{ m.content }}{% endif %}"),
         CALLED("\"content\":null,", OBJECT), "u[{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]"},
        /* no message has anything else that is special */
        {LOOP("{% if m.content == '' %}{{ raise_exception('empty') }}{% endif %}{{ m.content or '-' }}"),
         "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\"}]", "u-"},
        {LOOP("{{ m.content if m.thinking is undefined else m.thinking | length }}"),
         "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":null}]", "ua"},
        /* arguments */
        {CALLS("{{ c.function.name + c.function.arguments }}"), CALLED("", OBJECT), "f{\"a\": 1}"},
        {CALLS("{{ c.function.name ~ c.function.arguments }}"), CALLED("", TEXT), "f{\"a\": 1}"},
        {CALLS("{{ c.function.arguments | tojson }}"), CALLED("", TEXT), "{\"a\": 1}"},
        {CALLS("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"), CALLED("", TEXT), "a=1"},
        {CALLS("({% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %})"), CALLED("", "\"\""), "()"},
        {CALLS("{{ c.function.arguments | tojson }}"), CALLED("", "\"not JSON\""), "\"not JSON\""},
        /* developer */
        {LOOP("{% if m.role == 'system' %}S{% endif %}{% if m.role != 'developer' %}{{ m.content }}{% endif %}"),
         "[{\"role\":\"developer\",\"content\":\"d\"}]", "Sd"},
        {LOOP("{{ m.role }}:{{ m.content }}"), "[{\"role\":\"developer\",\"content\":\"d\"}]", "system:d"},
        {LOOP("{{ m.role if m.role in ['system', \"developer\"] }}:{{ m.content }}"),
         "[{\"role\":\"developer\",\"content\":\"d\"}]", "developer:d"},
        /* reasoning */
        {LOOP("{{ m.thinking }}"), CALLED("\"reasoning_content\":\"r\",", OBJECT), "r"},
        {LOOP("{{ m.reasoning }}"), CALLED("\"reasoning_content\":\"r\",\"reasoning\":\"own\",", OBJECT), "own"},
        {LOOP("{{ m.thinking }}{{ m.reasoning_content }}"), CALLED("\"reasoning_content\":\"r\",", OBJECT), "r"},
        {LOOP("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}<{{ p[p.type] }}>"
              "{% endfor %}{% endif %}"),
         CALLED("\"content\":\"c\",\"reasoning_content\":\"r\",", OBJECT), "u<r><c>"},
        {LOOP("{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}"
              "{{ m.thinking }}|{{ m.content }}"),
         CALLED("\"content\":\"c\",\"reasoning_content\":\"r\",", OBJECT), "|ur\n\nc|"},
    };
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, BUNDLED_MODEL, NULL);
    runnel_chat chat;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        runnel_chat_default(&chat);
        chat.template_text = cases[i].source;
        chat.messages_json = cases[i].messages;
        chat.no_generation_prompt = 1;
        if (strcmp(apply(model, &chat), cases[i].text) != 0)
            fail_msg("%s\n%s\n%s\nexpected: %s", cases[i].source, cases[i].messages, apply(model, &chat),
                     cases[i].text);
    }
    runnel_model_free(model);
    runnel_engine_free(engine);
}

/* Messages one by one are brought into the same forms. */
static void forms_of_members(void **state)
{
    static const runnel_message messages[] = {
        {"developer", "d", NULL},
        {"user", "u", NULL},
        {"assistant", NULL, "{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":2}\"}}]}"}};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, BUNDLED_MODEL, NULL);
    runnel_chat chat;

    (void)state;
    runnel_chat_default(&chat);
    chat.messages = messages;
    chat.n_messages = 3;
    chat.template_text = LOOP("{% if m.role != 'developer' %}{{ m.role + '=' + m.content }}{% endif %}"
                              "{{ m.tool_calls[0].function.arguments.a if m.tool_calls }};");
    assert_string_equal(apply(model, &chat), "system=d;user=u;assistant=2;");
    runnel_model_free(model);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traits),
        cmocka_unit_test(malformed),
        cmocka_unit_test(forms),
        cmocka_unit_test(forms_of_members),
        cmocka_unit_test_setup_teardown(of_a_file, write_model, remove_model),
        cmocka_unit_test(tokens_of_a_chat),
        cmocka_unit_test(tokens_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
