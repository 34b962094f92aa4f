/* What is wrong with a grammar is told in a sentence, at submit or by the stream's end, and harms nothing else. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"

#define PROMPT "Once upon a time"

static const char *const choices[] = {"red", "green"};

static runnel_grammar regex(void)
{
    runnel_grammar grammar;

    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_REGEX;
    grammar.text = "[0-9]{4}";
    grammar.text_bytes = strlen(grammar.text);
    return grammar;
}

static runnel_grammar one_of_them(void)
{
    runnel_grammar grammar;

    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_CHOICES;
    grammar.choices = choices;
    grammar.n_choices = 2;
    return grammar;
}

static void expect_failure(runnel_engine *engine, runnel_model *model, const runnel_request *request,
                           runnel_status status, const char *sentence)
{
    struct capture *capture = request->user;

    assert_int_equal(run_request(engine, model, request), RUNNEL_EVENT_FAILED);
    assert_int_equal(capture->last.status, status);
    if (strncmp(capture->error, "grammar: ", 9) == 0)
        assert_int_equal(capture->last.about, RUNNEL_ABOUT_GRAMMAR);
    if (strstr(capture->error, sentence) == NULL)
        fail_msg("'%s' has no '%s'", capture->error, sentence);
    capture_clear(capture);
}

static void errors_have_sentences(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_grammar grammar = regex();
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 20, &capture);
    runnel_logit_bias biases[10];
    char digits[] = "0";

    (void)state;
    request.grammar = &grammar;
    grammar.text = "(a|b";
    grammar.text_bytes = strlen(grammar.text);
    expect_failure(engine, model, &request, RUNNEL_FORMAT, "grammar: line 1, column 5");
    expect_failure(engine, model, &request, RUNNEL_FORMAT, "grammar: line 1, column 5"); /* not kept */
    grammar.text = "[^\\s\\S]";
    grammar.text_bytes = strlen(grammar.text);
    expect_failure(engine, model, &request, RUNNEL_FORMAT, "matches no text");
    grammar.kind = RUNNEL_GRAMMAR_JSON_SCHEMA;
    grammar.text = "{\"type\": \"strin\"}";
    grammar.text_bytes = strlen(grammar.text);
    expect_failure(engine, model, &request, RUNNEL_FORMAT, "type");
    grammar.kind = RUNNEL_GRAMMAR_GBNF;
    grammar.text = "root ::= \"a\" other";
    grammar.text_bytes = strlen(grammar.text);
    expect_failure(engine, model, &request, RUNNEL_FORMAT, "other");

    /* what the grammar allows, biases forbid */
    grammar.kind = RUNNEL_GRAMMAR_REGEX;
    grammar.text = "[0-9]";
    grammar.text_bytes = strlen(grammar.text);
    for (size_t i = 0; i < 10; i++, digits[0]++) {
        size_t n;

        assert_int_equal(runnel_tokenize(model, digits, 1, 0, &biases[i].token, 1, &n), RUNNEL_OK);
        biases[i].bias = -INFINITY;
    }
    request.sampling.biases = biases;
    request.sampling.n_biases = 10;
    run_request(engine, model, &request);
    if (capture.last.type == RUNNEL_EVENT_FAILED)
        assert_non_null(strstr(capture.error, "no token that the grammar allows"));
    capture_clear(&capture);

    /* and all goes on */
    request.sampling.n_biases = 0;
    run_request(engine, model, &request);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_true(capture.text_bytes == 1 && capture.text[0] >= '0' && capture.text[0] <= '9');
    capture_clear(&capture);
    runnel_model_free(model);
    await_models(engine, 0); /* its actors have found nothing left */
    runnel_engine_free(engine);
}

static void submits_are_checked(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 20, &capture);
    const char *const broken[] = {"a", "\xff"}, *const missing[] = {"a", NULL};
    runnel_grammar good = regex(), choice = one_of_them(), grammars[12];
    runnel_stream stream;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < 8; i++)
        grammars[i] = good;
    grammars[n++].struct_size = 3;
    grammars[n++].reserved[1] = 1;
    grammars[n++].kind = 8;
    grammars[n++].text = NULL;
    grammars[n++].text = "\xc0";
    grammars[n++].choices = choices;
    grammars[n++].text_bytes = RUNNEL_MAX_GRAMMAR_BYTES + 1;
    grammars[n++].kind = RUNNEL_GRAMMAR_JSON; /* with a text */
    for (size_t i = n; i < 12; i++)
        grammars[i] = choice;
    grammars[n++].n_choices = 0;
    grammars[n++].choices = NULL;
    grammars[n].n_choices = 2;
    grammars[n++].choices = broken;
    grammars[n].n_choices = 2;
    grammars[n++].choices = missing;
    grammars[4].text_bytes = 1;
    for (size_t i = 0; i < n; i++) {
        runnel_error error = {0};

        request.grammar = &grammars[i];
        if (runnel_generate(model, &request, &stream, &error) != RUNNEL_INVALID)
            fail_msg("%zu: taken", i);
        assert_non_null(strstr(error.message, "grammar"));
    }
    good.kind = RUNNEL_GRAMMAR_NONE;
    good.text = NULL;
    good.text_bytes = 0;
    request.grammar = &good;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_sentences),
        cmocka_unit_test(submits_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
