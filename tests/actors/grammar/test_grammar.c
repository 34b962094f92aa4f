/* Answers that a grammar guides, of real models on real threads: valid by judges that know nothing of the grammar room
 * (grammar_kinds.h), and the same text alone, batched, preempted, with chunks of
 * any size and with each drafter. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"
#include "tests/actors/grammar/grammar_kinds.h"
#include "tests/support/shared.h"

/* ---- A set of requests ---- */

static const char *const prompts[] = {"Once upon a time there was a little dog who", "Tom and his mom went to the",
                                      "The cat sat on the mat. It was"};

#define N_SET 28

/* All of them, or on an emulated device one of each way to draw. */
static size_t set_step(void)
{
    return test_device() != NULL ? 5 : 1;
}

struct set {
    runnel_grammar grammars[N_GRAMMAR_KINDS];
    struct capture captures[N_SET];
    runnel_request requests[N_SET];
    runnel_samplers samplers;
};

/* Each kind at four ways to draw, one of them with samplers that need a list. */
static void fill(struct set *set)
{
    memset(set, 0, sizeof *set);
    runnel_samplers_default(&set->samplers);
    set->samplers.xtc_probability = 0.5f;
    set->samplers.typical_p = 0.9f;
    for (size_t i = 0; i < N_GRAMMAR_KINDS; i++)
        set->grammars[i] = grammar_of(i);
    for (size_t i = 0; i < N_SET; i += set_step()) {
        runnel_request *request = &set->requests[i];

        *request = make_request(prompts[i % 3], test_device() != NULL ? 20 : 120, &set->captures[i]);
        request->grammar = &set->grammars[i % N_GRAMMAR_KINDS];
        request->sampling.temperature = i / N_GRAMMAR_KINDS == 0 ? 0 : i / N_GRAMMAR_KINDS == 1 ? 0.8f : 1.5f;
        request->sampling.top_p = i / N_GRAMMAR_KINDS == 2 ? 0.9f : 1;
        request->sampling.repetition_penalty = i / N_GRAMMAR_KINDS == 2 ? 1.3f : 1;
        request->sampling.samplers = i / N_GRAMMAR_KINDS == 3 ? &set->samplers : NULL;
        request->sampling.seed = i;
    }
}

static void clear(struct set *set)
{
    for (size_t i = 0; i < N_SET; i += set_step())
        capture_clear(&set->captures[i]);
}

static void run_all_at_once(runnel_engine *engine, runnel_model *model, struct set *set)
{
    runnel_stream stream;

    for (size_t i = 0; i < N_SET; i += set_step())
        assert_int_equal(runnel_generate(model, &set->requests[i], &stream, NULL), RUNNEL_OK);
    for (size_t i = 0; i < N_SET; i += set_step())
        run_until_end(engine, &set->captures[i]);
}

static void assert_same(const struct set *a, const struct set *b)
{
    for (size_t i = 0; i < N_SET; i += set_step()) {
        assert_int_equal(a->captures[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(b->captures[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(a->captures[i].last.finish, b->captures[i].last.finish);
        assert_int_equal(a->captures[i].n_tokens, b->captures[i].n_tokens);
        assert_memory_equal(a->captures[i].tokens, b->captures[i].tokens,
                            a->captures[i].n_tokens * sizeof *a->captures[i].tokens);
        assert_int_equal(a->captures[i].text_bytes, b->captures[i].text_bytes);
        assert_memory_equal(a->captures[i].text, b->captures[i].text, a->captures[i].text_bytes);
    }
}

static void judge(const struct capture *capture, size_t kind)
{
    char text[4096];

    assert_true(capture->text_bytes < sizeof text);
    memcpy(text, capture->text, capture->text_bytes);
    text[capture->text_bytes] = '\0';
    if (capture->last.type != RUNNEL_EVENT_DONE)
        fail_msg("kind %zu: %s", kind, capture->error);
    if (capture->last.finish == RUNNEL_FINISH_STOP ? !grammar_kinds[kind].judge(text) : grammar_kinds[kind].bounded)
        fail_msg("kind %zu, %s: '%s'", kind, capture->last.finish == RUNNEL_FINISH_STOP ? "complete" : "cut", text);
}

/* Alone, on a plain engine: what all others are compared with. */
static struct set *alone(void)
{
    static struct set set;
    static bool known;
    runnel_engine *engine;
    runnel_model *model;

    if (known)
        return &set;
    engine = start_engine(NULL);
    model = load_model(engine, quick_model(), NULL);
    fill(&set);
    for (size_t i = 0; i < N_SET; i += set_step())
        run_request(engine, model, &set.requests[i]);
    runnel_engine_free(engine);
    known = true;
    return &set;
}

static void each_kind_is_valid(void **state)
{
    struct set *set = alone();
    size_t complete = 0;

    (void)state;
    for (size_t i = 0; i < N_SET; i += set_step()) {
        judge(&set->captures[i], i % N_GRAMMAR_KINDS);
        complete += set->captures[i].last.finish == RUNNEL_FINISH_STOP;
    }
    assert_true(complete >= N_SET * 5 / 7);
}

static void batched_says_the_same(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    static struct set set;

    (void)state;
    fill(&set);
    run_all_at_once(engine, model, &set);
    assert_same(alone(), &set);
    clear(&set);
    runnel_engine_free(engine);
}

/* Small chunks, and a pool in which the streams do not fit at once. */
static void preempted_says_the_same(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_model *model;
    static struct set set;

    (void)state;
    runnel_model_options_default(&options);
    model = load_model(engine, quick_model(), &options);
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    options.context_tokens = 256;
    options.batch_tokens = 16;
    options.kv_bytes = info.kv_bytes_per_token * 400;
    model = load_model(engine, quick_model(), &options);
    fill(&set);
    run_all_at_once(engine, model, &set);
    assert_same(alone(), &set);
    clear(&set);
    runnel_engine_free(engine);
}

static void run_drafted(runnel_engine *engine, runnel_model *model, uint32_t draft, bool chain, uint64_t *accepted)
{
    static struct set set;

    fill(&set);
    for (size_t i = 0; i < N_SET; i += set_step()) {
        set.requests[i].draft = draft;
        set.requests[i].draft_chain = chain;
    }
    run_all_at_once(engine, model, &set);
    assert_same(alone(), &set);
    for (size_t i = 0; i < N_SET; i += set_step())
        *accepted += set.captures[i].last.usage.accepted_tokens;
    clear(&set);
}

static void drafted_says_the_same(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *pair;
    uint64_t accepted = 0;
    char draft[300];

    (void)state;
    runnel_model_options_default(&options);
    options.kv_bytes = shared_kv_bytes();
    run_drafted(engine, load_model(engine, quick_model(), &options), RUNNEL_DRAFT_NGRAM, false, &accepted);
    if (shared_find("models/runnel-tiny-draft-F16.gguf", draft, sizeof draft)) {
        options.draft_path = draft;
        pair = load_model(engine, quick_model(), &options);
        run_drafted(engine, pair, RUNNEL_DRAFT_MODEL, true, &accepted);
        run_drafted(engine, pair, RUNNEL_DRAFT_MODEL, false, &accepted);
        run_drafted(engine, pair, RUNNEL_DRAFT_MODEL | RUNNEL_DRAFT_NGRAM, false, &accepted);
    }
    print_message("%llu drafts were right\n", (unsigned long long)accepted);
    runnel_engine_free(engine);
}

/* ---- Text of which there is no choice ---- */

static runnel_engine *engine_of_bytes(uint64_t max_queued_bytes)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.max_queued_bytes = max_queued_bytes;
    return start_engine(&options);
}

/* The limit counts the one before until the last of it has gone. */
static void run_after_others(runnel_engine *engine, runnel_model *model, const runnel_request *request)
{
    runnel_status status;
    runnel_stream stream;

    do
        status = runnel_generate(model, request, &stream, NULL);
    while (status == RUNNEL_BUSY);
    assert_int_equal(status, RUNNEL_OK);
    run_until_end(engine, request->user);
}

/* Where the limit of bytes leaves no room for their rows there are no drafts: the same text, a token a pass. (That
 * there are some else is test_grammar_heads.c's, which has a clock of its own.) */
static void forced_says_the_same(void **state)
{
    runnel_engine *engine = engine_of_bytes(1);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    struct set *with = alone();
    static struct set set;

    (void)state;
    fill(&set);
    for (size_t i = 0; i < N_SET; i += set_step()) {
        run_after_others(engine, model, &set.requests[i]); /* one alone is always taken */
        assert_int_equal(set.captures[i].last.usage.drafted_tokens, 0);
    }
    assert_same(with, &set);
    assert_int_equal(runnel_engine_metrics(engine, &metrics), RUNNEL_OK);
    assert_int_equal(metrics.forced, 0);
    runnel_engine_free(engine);
    clear(&set);

    engine = start_engine(NULL);
    model = load_model(engine, quick_model(), NULL);
    fill(&set);
    run_all_at_once(engine, model, &set);
    assert_same(with, &set);
    for (size_t i = 0, n = 0; i < N_SET; i++) {
        n += set.captures[i].last.usage.accepted_tokens;
        if (i + 1 == N_SET) {
            assert_int_equal(runnel_engine_metrics(engine, &metrics), RUNNEL_OK);
            assert_int_equal(metrics.forced, n);
            print_message("%zu tokens of text without a choice took no pass of their own\n", n);
        }
    }
    clear(&set);
    runnel_engine_free(engine);
}

static uint64_t bytes_queued(runnel_engine *engine)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    assert_int_equal(runnel_engine_get_stats(engine, &stats), RUNNEL_OK);
    return stats.queued_bytes;
}

/* A grammar's row of logits and its mask count in the engine's limit. Nobody reads the answers, so none ends. */
static void rows_count_in_the_limit(void **state)
{
    runnel_engine *engine = engine_of_bytes(0);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_grammar grammar;
    struct capture captures[2] = {0};
    runnel_request plain = make_request(prompts[0], 120, &captures[0]),
                   guided = make_request(prompts[0], 120, &captures[1]);
    runnel_error error = {0};
    runnel_stream stream;
    uint64_t one, row;

    (void)state;
    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_REGEX;
    grammar.text = "[a-z ]{200}";
    grammar.text_bytes = strlen(grammar.text);
    guided.grammar = &grammar;
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    assert_int_equal(runnel_generate(model, &plain, &stream, NULL), RUNNEL_OK);
    one = bytes_queued(engine);
    assert_int_equal(runnel_generate(model, &guided, &stream, NULL), RUNNEL_OK);
    row = info.vocab_tokens * sizeof(float) + info.vocab_tokens / 8;
    assert_true(bytes_queued(engine) >= 2 * one + row);
    runnel_engine_free(engine);
    capture_clear(&captures[0]);
    capture_clear(&captures[1]);

    engine = engine_of_bytes(2 * one + row / 2);
    model = load_model(engine, quick_model(), NULL);
    assert_int_equal(runnel_generate(model, &plain, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_generate(model, &guided, &stream, &error), RUNNEL_BUSY);
    assert_non_null(strstr(error.message, "bytes"));
    assert_true(error.retry_ms > 0);
    guided.grammar = NULL;
    assert_int_equal(runnel_generate(model, &guided, &stream, NULL), RUNNEL_OK);
    runnel_engine_free(engine);
    capture_clear(&captures[0]);
    capture_clear(&captures[1]);
}

/* ---- Ends ---- */

/* The grammar's end is the answer's, whatever keeps answers from ending. */
static void the_grammar_ends_the_answer(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_grammar grammar = grammar_of(4);
    struct capture capture = {0};
    runnel_request request = make_request(prompts[0], 60, &capture);
    runnel_samplers samplers;

    (void)state;
    runnel_samplers_default(&samplers);
    samplers.min_tokens = 40;
    request.sampling.samplers = &samplers;
    request.grammar = &grammar;
    for (request.ignore_eos = 0; request.ignore_eos < 3; request.ignore_eos++) {
        run_request(engine, model, &request);
        judge(&capture, 4);
        capture_clear(&capture);
    }
    /* where the text may go on as well, min_tokens counts */
    grammar.kind = RUNNEL_GRAMMAR_REGEX;
    grammar.text = "[a-z ]*";
    grammar.text_bytes = strlen(grammar.text);
    grammar.choices = NULL;
    grammar.n_choices = 0;
    request.ignore_eos = 0;
    run_request(engine, model, &request);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_true(capture.n_tokens >= 40);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

/* Behind a prompt of BOS alone nothing is taken away from a guided text: a vocabulary whose texts begin with a space
 * that is not shown says all that the grammar let in. Without one the first space goes, as in detokenizing. */
static void the_first_space_is_the_grammars(void **state)
{
    const int32_t bos = 1;
    struct capture capture = {0};
    runnel_request request;
    runnel_grammar grammar = grammar_of(1);
    runnel_engine *engine;
    runnel_model *model;
    char path[300], text[100] = "";

    (void)state;
    if (!shared_find("models/stories260K.gguf", path, sizeof path))
        skip();
    engine = start_engine(NULL);
    model = load_model(engine, path, NULL);
    request = make_request("", 40, &capture);
    request.prompt = NULL;
    request.tokens = &bos;
    request.n_tokens = 1;
    run_request(engine, model, &request);
    assert_memory_equal(capture.text, "Once", 4);
    grammar.text = "( [a-z]{1,9}){3}";
    grammar.text_bytes = strlen(grammar.text);
    request.grammar = &grammar;
    for (; request.sampling.seed < 12; request.sampling.seed++) {
        capture_clear(&capture);
        request.sampling.temperature = (float)(request.sampling.seed % 3);
        run_request(engine, model, &request);
        assert_int_equal(capture.last.finish, RUNNEL_FINISH_STOP);
        snprintf(text, sizeof text, "%.*s", (int)capture.text_bytes, capture.text);
        if (!matches_regex(text, "^( [a-z]{1,9}){3}$"))
            fail_msg("'%s' is not of the grammar", text);
    }
    capture_clear(&capture);
    runnel_engine_free(engine);
}

static int32_t only_token(runnel_model *model, const char *text)
{
    int32_t token;
    size_t n;

    assert_int_equal(runnel_tokenize(model, text, strlen(text), 0, &token, 1, &n), RUNNEL_OK);
    assert_int_equal(n, 1);
    return token;
}

/* Where the grammar may end the request's stop tokens may come, and with ignore_eos the model's ends not. */
static void stop_tokens_end_it(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_grammar grammar = grammar_of(1);
    struct capture capture = {0};
    runnel_request request = make_request(prompts[0], 40, &capture);
    runnel_logit_bias bias = {only_token(model, "."), 1000};
    int32_t twice[] = {bias.token, bias.token};

    (void)state;
    grammar.text = "[a-z ]{4}[a-z ]*";
    grammar.text_bytes = strlen(grammar.text);
    request.grammar = &grammar;
    request.sampling.biases = &bias; /* it is wanted most, and not of the grammar */
    request.sampling.n_biases = 1;
    request.ignore_eos = 1;
    run_request(engine, model, &request);
    assert_int_equal(capture.last.finish, RUNNEL_FINISH_LENGTH);
    assert_int_equal(capture.n_tokens, 40);
    assert_true(memchr(capture.text, '.', capture.text_bytes) == NULL);
    capture_clear(&capture);

    request.stop_tokens = twice;
    request.n_stop_tokens = 2;
    for (request.draft = 0; request.draft <= RUNNEL_DRAFT_NGRAM; request.draft += RUNNEL_DRAFT_NGRAM) {
        run_request(engine, model, &request);
        assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(capture.last.finish, RUNNEL_FINISH_STOP);
        assert_true(capture.text_bytes >= 4 && capture.text_bytes < 16);
        assert_true(memchr(capture.text, '.', capture.text_bytes) == NULL);
        capture_clear(&capture);
    }
    runnel_engine_free(engine);
}

/* Two turns of a session: each answer has its own grammar. */
static void sessions_go_on(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_session session;
    struct capture captures[6] = {0};
    runnel_grammar grammars[3] = {grammar_of(4), grammar_of(1), grammar_of(2)};
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    for (size_t i = 0; i < 6; i++) { /* every second one has none; all are submitted at once */
        runnel_request request = make_request(prompts[i % 3], 30, &captures[i]);

        request.session = session;
        request.grammar = i % 2 == 0 ? &grammars[i / 2] : NULL;
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    }
    for (size_t i = 0; i < 6; i++) {
        run_until_end(engine, &captures[i]);
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
        assert_true(i == 0 || captures[i].last.usage.prompt_tokens > captures[i - 1].last.usage.prompt_tokens);
    }
    judge(&captures[0], 4);
    judge(&captures[2], 1);
    judge(&captures[4], 2);
    for (size_t i = 0; i < 6; i++)
        capture_clear(&captures[i]);
    runnel_engine_free(engine);
}

/* ---- Chats ---- */

#define HERMES                                                                                                     \
    "{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools> Return calls within "          \
    "<tool_call></tool_call>: <tool_call>\n{\"name\": <function-name>, \"arguments\": "                            \
    "<args-json-object>}\n</tool_call>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" \
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define TOOL(name)                                                                                               \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", \"parameters\": {\"type\": \"object\", "    \
    "\"properties\": {\"city\": {\"enum\": [\"Oslo\", \"Paris\", \"Rome\"]}, \"days\": {\"type\": \"integer\", " \
    "\"minimum\": 1, \"maximum\": 14}}, \"required\": [\"city\"]}}}"

/* What an answer to a chat comes to. */
struct answer {
    struct capture capture;
    char names[8][32], arguments[8][256];
    size_t n_calls, n_content;
};

static void note(struct capture *capture, const runnel_event *event)
{
    struct answer *answer = capture->hook_user;

    if (event->type == RUNNEL_EVENT_TOOL_CALL) {
        assert_true(answer->n_calls < 8 && event->text_bytes < sizeof answer->names[0]);
        memcpy(answer->names[answer->n_calls++], event->text, event->text_bytes);
    } else if (event->type == RUNNEL_EVENT_TOOL_ARGUMENTS) {
        char *arguments = answer->arguments[answer->n_calls - 1];

        assert_true(strlen(arguments) + event->text_bytes < sizeof answer->arguments[0]);
        strncat(arguments, event->text, event->text_bytes);
    } else if (event->type == RUNNEL_EVENT_TOKEN) {
        answer->n_content += event->text_bytes;
    }
}

static void run_chat(runnel_engine *engine, runnel_model *model, const char *choice, uint64_t seed,
                     const runnel_grammar *grammar, struct answer *answer)
{
    const runnel_message message = {"user", "How is the weather in the north?", NULL};
    runnel_request request = make_request("", 250, &answer->capture);
    runnel_chat chat;

    memset(answer, 0, sizeof *answer);
    answer->capture.hook = note;
    answer->capture.hook_user = answer;
    runnel_chat_default(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    chat.template_text = HERMES;
    chat.tools = "[" TOOL("weather") ", " TOOL("travel") "]";
    chat.tool_choice = choice;
    chat.single_call = seed % 2 == 0;
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.chat = &chat;
    request.grammar = grammar;
    request.sampling.temperature = 1.2f;
    request.sampling.seed = seed;
    run_request(engine, model, &request);
    if (answer->capture.last.type != RUNNEL_EVENT_DONE)
        fail_msg("tool_choice %s: %s", choice, answer->capture.error);
}

static void judge_calls(const struct answer *answer, const char *choice)
{
    for (size_t i = 0; i < answer->n_calls; i++) {
        json_t *arguments = json_loads(answer->arguments[i], JSON_REJECT_DUPLICATES, NULL);
        const char *city = json_string_value(json_object_get(arguments, "city"));
        const json_t *days = json_object_get(arguments, "days");

        if (answer->capture.last.finish == RUNNEL_FINISH_STOP || i + 1 < answer->n_calls) {
            assert_true(strcmp(answer->names[i], "weather") == 0 || strcmp(answer->names[i], "travel") == 0);
            assert_true(city != NULL &&
                        (strcmp(city, "Oslo") == 0 || strcmp(city, "Paris") == 0 || strcmp(city, "Rome") == 0));
            assert_true(days == NULL || (json_integer_value(days) >= 1 && json_integer_value(days) <= 14));
            if (strcmp(choice, "travel") == 0)
                assert_string_equal(answer->names[i], "travel");
        }
        json_decref(arguments);
    }
}

/* Calls are made as they are asked for, and fit their schemas. */
static void tools_are_called_as_asked(void **state)
{
    static const char *const choices_of_tools[] = {"required", "travel", "auto", "none"};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_grammar grammar = grammar_of(4);
    struct answer answer;
    size_t n_complete = 0; /* of those that must call: what is cut in a call is told as text */
    bool complete;

    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        const char *choice = choices_of_tools[seed % 4];

        run_chat(engine, model, choice, seed / 4, NULL, &answer);
        judge_calls(&answer, choice);
        complete = answer.capture.last.finish == RUNNEL_FINISH_STOP;
        n_complete += complete && seed % 4 < 2;
        if (seed % 4 < 2 && complete && (answer.n_calls == 0 || answer.n_content > 0))
            fail_msg("tool_choice %s: %zu calls beside %zu bytes: %.*s", choice, answer.n_calls, answer.n_content,
                     (int)answer.capture.text_bytes, answer.capture.text);
        if (seed % 4 == 3)
            assert_int_equal(answer.n_calls, 0);
        if ((seed / 4) % 2 == 0)
            assert_true(answer.n_calls <= 1);
        capture_clear(&answer.capture);
    }
    assert_true(n_complete >= 4);
    run_chat(engine, model, "none", 1, &grammar, &answer); /* content with a grammar of its own */
    judge(&answer.capture, 4);
    capture_clear(&answer.capture);
    runnel_engine_free(engine);
}

/* ---- Checks and cancels ---- */

/* What a request would fail with is told without it. */
static void grammars_are_checked(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_request request;
    runnel_error error = {0};
    runnel_chat chat;

    (void)state;
    runnel_request_default(&request);
    assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_OK);
    for (size_t i = 0; i < N_GRAMMAR_KINDS; i++) {
        runnel_grammar grammar = grammar_of(i);

        request.grammar = &grammar;
        assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_OK);
        if (grammar_kinds[i].text == NULL)
            continue;
        grammar.text = "(";
        grammar.text_bytes = 1;
        assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_FORMAT);
        assert_memory_equal(error.message, "grammar: ", 9);
        grammar.text = "\xff";
        assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_INVALID);
    }
    request.grammar = NULL;
    runnel_chat_default(&chat);
    chat.messages_json = "[{\"role\": \"user\", \"content\": \"a\"}]";
    chat.template_text = HERMES;
    chat.tools = "[" TOOL("weather") "]";
    chat.tool_choice = "weather";
    request.chat = &chat;
    assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_OK);
    chat.tool_choice = "wether";
    assert_int_not_equal(runnel_grammar_check(model, &request, &error), RUNNEL_OK);
    assert_non_null(strstr(error.message, "wether"));
    chat.template_text = "{% if %}";
    assert_int_equal(runnel_grammar_check(model, &request, &error), RUNNEL_FORMAT);
    assert_int_equal(runnel_grammar_check(NULL, &request, &error), RUNNEL_INVALID);
    assert_int_equal(runnel_grammar_check(model, NULL, &error), RUNNEL_INVALID);
    runnel_engine_free(engine);
}

/* Streams end at any time, and leave nothing. */
static void cancelled_streams_leave_nothing(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct set set;

    (void)state;
    fill(&set);
    for (size_t round = 0; round < 4; round++) {
        runnel_stream streams[N_SET];

        for (size_t i = 0; i < N_SET; i += set_step())
            assert_int_equal(runnel_generate(model, &set.requests[i], &streams[i], NULL), RUNNEL_OK);
        for (size_t i = 0; i < N_SET; i += set_step())
            if (i % 4 == round) {
                runnel_engine_dispatch(engine, 0);
                runnel_stream_cancel(engine, streams[i]);
            }
        for (size_t i = 0; i < N_SET; i += set_step()) {
            run_until_end(engine, &set.captures[i]);
            assert_int_not_equal(set.captures[i].last.type, RUNNEL_EVENT_FAILED);
        }
        clear(&set);
        fill(&set);
    }
    runnel_model_free(model);
    await_models(engine, 0); /* its actors have found nothing left */
    runnel_engine_free(engine);
}

static int free_alone(void **state)
{
    (void)state;
    clear(alone());
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_valid),
        cmocka_unit_test(batched_says_the_same),
        cmocka_unit_test(preempted_says_the_same),
        cmocka_unit_test(drafted_says_the_same),
        cmocka_unit_test(forced_says_the_same),
        cmocka_unit_test(rows_count_in_the_limit),
        cmocka_unit_test(the_grammar_ends_the_answer),
        cmocka_unit_test(the_first_space_is_the_grammars),
        cmocka_unit_test(stop_tokens_end_it),
        cmocka_unit_test(sessions_go_on),
        cmocka_unit_test(tools_are_called_as_asked),
        cmocka_unit_test(grammars_are_checked),
        cmocka_unit_test(cancelled_streams_leave_nothing),
    };

    return run_cases(tests, NULL, free_alone);
}
