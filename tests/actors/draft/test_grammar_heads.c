/* Law 5 with grammars and drafters: a head that was trained here, an early exit, the model's own prediction layers, and
 * each beside an n-gram lookup. The same tokens alone without drafts, batched, preempted, with chains and with trees.
 * And what a grammar refuses of their guesses costs no row.
 *
 * But for the preempted ones time is the test's (metered.h), so that the policy always drafts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/engine.h"
#include "tests/actors/fixture.h"
#include "metered.h"
#include "nextn_file.h"
#include "taught.h"

enum { STREAMS = UNLESS_SLOW(12, 6), TOKENS = UNLESS_SLOW(80, 24) };

static const struct {
    runnel_grammar_kind kind;
    const char *text;
} kinds[] = {
    {RUNNEL_GRAMMAR_REGEX, "( [A-Z]?[a-z]{1,12}[,.]?){40,60}"},
    {RUNNEL_GRAMMAR_JSON_SCHEMA,
     "{\"type\": \"array\", \"minItems\": 4, \"maxItems\": 6, \"items\": {\"type\": \"object\", "
     "\"properties\": {\"character\": {\"type\": \"string\", \"maxLength\": 20}, "
     "\"happened afterwards\": {\"type\": \"string\", \"maxLength\": 40}}, \"required\": "
     "[\"character\", \"happened afterwards\"], \"additionalProperties\": false}}"},
    {RUNNEL_GRAMMAR_GBNF, "root ::= (line \"\\n\"){5,9}\nline ::= \"- \" [A-Z] [a-z ,']{3,40} \".\""},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* ---- Requests ---- */

struct answers {
    struct capture captures[STREAMS];
    uint64_t drafted, accepted, tokens;
};

static runnel_grammar grammar_of(size_t i)
{
    runnel_grammar grammar;

    runnel_grammar_default(&grammar);
    grammar.kind = kinds[i % N_KINDS].kind;
    grammar.text = kinds[i % N_KINDS].text;
    grammar.text_bytes = strlen(grammar.text);
    return grammar;
}

/* All streams at once, or one after the other; even ones greedy. */
static void answer(runnel_engine *engine, runnel_model *model, uint32_t draft, bool chain, bool together,
                   struct answers *a)
{
    char prompt[161];

    memset(a, 0, sizeof *a);
    for (uint32_t i = 0; i < STREAMS; i++) {
        runnel_grammar grammar = grammar_of(i);
        runnel_request request;
        runnel_stream stream;
        runnel_status status;

        taught_prompt(i, 60 + i * 13 % 100, prompt);
        request = make_request(prompt, TOKENS, &a->captures[i]);
        request.sampling.temperature = i % 2 == 1 ? 0.7f : 0;
        request.sampling.seed = i;
        request.grammar = &grammar;
        request.draft = draft;
        request.draft_chain = chain;
        do /* a limit counts the one before until the last of it has gone */
            status = runnel_generate(model, &request, &stream, NULL);
        while (status == RUNNEL_BUSY);
        assert_int_equal(status, RUNNEL_OK);
        if (!together)
            run_until_end(engine, &a->captures[i]);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        run_until_end(engine, &a->captures[i]);
        assert_int_equal(a->captures[i].last.type, RUNNEL_EVENT_DONE);
        a->drafted += a->captures[i].last.usage.drafted_tokens;
        a->accepted += a->captures[i].last.usage.accepted_tokens;
        a->tokens += a->captures[i].n_tokens;
    }
}

static void clear(struct answers *a)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        capture_clear(&a->captures[i]);
}

static void assert_same(const struct answers *plain, const struct answers *fast)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        const struct capture *a = &plain->captures[i], *b = &fast->captures[i];

        assert_int_equal(a->last.finish, b->last.finish);
        assert_int_equal(a->n_tokens, b->n_tokens);
        assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
        assert_int_equal(a->text_bytes, b->text_bytes);
        assert_memory_equal(a->text, b->text, a->text_bytes);
    }
}

/* Alone, without a drafter, and without room for the rows of drafts: a token a pass. */
static struct answers *alone(void)
{
    static struct answers answers;
    static bool known;
    runnel_engine_options options;
    runnel_engine *engine;

    if (known)
        return &answers;
    runnel_engine_options_default(&options);
    options.max_queued_bytes = 1;
    engine = start_engine(&options);
    answer(engine, load_model(engine, taught.target, NULL), 0, false, false, &answers);
    assert_int_equal(answers.drafted, 0);
    runnel_engine_free(engine);
    known = true;
    return &answers;
}

/* ---- Speculated ---- */

static void check_drafter(const char *target, const char *draft)
{
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, target, draft);
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    struct answers fast;

    for (uint32_t way = 0; way < 4; way++) {
        answer(engine, model, way == 3 ? RUNNEL_DRAFT_MODEL | RUNNEL_DRAFT_NGRAM : RUNNEL_DRAFT_MODEL, way == 1,
               way != 0, &fast);
        assert_same(alone(), &fast);
        print_message("%s, way %u: %llu tokens, %llu drafts, %llu right\n", draft, way, (unsigned long long)fast.tokens,
                      (unsigned long long)fast.drafted, (unsigned long long)fast.accepted);
        assert_true(fast.accepted > 0);
        clear(&fast);
    }
    assert_int_equal(runnel_engine_metrics(engine, &metrics), RUNNEL_OK);
    print_message("%s: %llu were forced, %llu guesses were cut before they cost a row\n", draft,
                  (unsigned long long)metrics.forced, (unsigned long long)metrics.cut);
    assert_true(metrics.forced > 0 && metrics.forced <= metrics.accepted);
    assert_true(metrics.cut > 0 || UNLESS_SLOW(false, true)); /* by a head that is hardly trained */
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* Text without a choice takes no pass of its own where nobody drafts, either. */
static void forced_says_the_same(void **state)
{
    runnel_engine *engine = metered_engine();
    runnel_model *model = metered_model(engine, taught.target, NULL);
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    struct answers fast;

    (void)state;
    answer(engine, model, 0, false, true, &fast);
    assert_same(alone(), &fast);
    assert_int_equal(runnel_engine_metrics(engine, &metrics), RUNNEL_OK);
    print_message("%llu of %llu tokens took no pass of their own, of %llu guesses\n", (unsigned long long)fast.accepted,
                  (unsigned long long)fast.tokens, (unsigned long long)fast.drafted);
    assert_true(fast.accepted >= UNLESS_SLOW(20, 4));
    assert_int_equal(metrics.forced, fast.accepted);
    assert_int_equal(metrics.cut, 0);
    clear(&fast);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

static void head_says_the_same(void **state)
{
    (void)state;
    check_drafter(taught.target, taught.head_path);
}

static void exit_says_the_same(void **state)
{
    (void)state;
    check_drafter(taught.target, "exit:4");
}

/* Each of three layers makes a guess that a mask may cut. */
static void layers_say_the_same(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof path, "/tmp/runnel-grammar-nextn-%d.gguf", (int)getpid());
    nextn_file_write(3, path);
    check_drafter(path, "mtp");
    unlink(path);
}

/* ---- Preempted ---- */

/* Small chunks, and a pool in which the streams do not fit at once. */
static void preempted_says_the_same(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    runnel_model *model = load_model(engine, taught.target, NULL);
    struct answers fast;

    (void)state;
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    runnel_model_options_default(&options);
    options.context_tokens = 256;
    options.batch_tokens = 16;
    options.kv_bytes = info.kv_bytes_per_token * 320;
    options.draft_path = taught.head_path;
    model = load_model(engine, taught.target, &options);
    for (uint32_t round = 0; round < 2 || (metrics.preemptions == 0 && round < UNLESS_SLOW(10, 2)); round++) {
        answer(engine, model, RUNNEL_DRAFT_MODEL, round % 2 == 1, true, &fast);
        assert_same(alone(), &fast);
        clear(&fast);
        assert_int_equal(runnel_engine_metrics(engine, &metrics), RUNNEL_OK);
    }
    assert_true(metrics.preemptions > 0 || UNLESS_SLOW(false, true)); /* few and short ones fit */
    runnel_engine_free(engine);
}

static int begin(void **state)
{
    (void)state;
    return taught_begin(UNLESS_SLOW(UNLESS_SANITIZED(30, 10), 3), 5);
}

static int end(void **state)
{
    (void)state;
    clear(alone());
    taught_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_says_the_same),    cmocka_unit_test(head_says_the_same),
        cmocka_unit_test(exit_says_the_same),      cmocka_unit_test(layers_say_the_same),
        cmocka_unit_test(preempted_says_the_same),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
