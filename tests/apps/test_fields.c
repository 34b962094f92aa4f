/* No member of a request is forgotten on the command line or in the lines of a batch: apps/runnel/fields.h has a row
 * for each that the public tables have, and what it names exists and arrives. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/runnel/common.h"
#include "apps/runnel/fields.h"
#include "apps/openai/openai_request.h"
#include "apps/runnel/option_table.h"
#include "apps/runnel/options.h"

#define ALL_COMMANDS (~0u)

struct row {
    const char *of, *member, *option, *option_value, *json, *json_value;
    size_t at, bytes; /* in struct whole */
    bool pointer;
};

struct whole {
    runnel_request request;
    runnel_chat chat;
    runnel_samplers samplers; /* what the request points to */
    runnel_grammar grammar;   /* what it points to where there is one */
};

#define AT_sampling(member) offsetof(struct whole, request.sampling.member)
#define AT_samplers(member) offsetof(struct whole, samplers.member)
#define AT_grammar(member) offsetof(struct whole, grammar.member)
#define AT_request(member) offsetof(struct whole, request.member)
#define AT_chat(member) offsetof(struct whole, chat.member)
#define BYTES(of, member) sizeof(((runnel_##of *)0)->member)
#define POINTER(of, member)                                                                                            \
    _Generic(((runnel_##of *)0)->member, float : 0, uint8_t : 0, uint32_t : 0, int32_t : 0, int64_t : 0, uint64_t : 0, \
             runnel_session : 0, default : 1)
#define ROW(of, member, option, option_value, json, json_value) \
    {#of, #member, option, option_value, json, json_value, AT_##of(member), BYTES(of, member), POINTER(of, member)},

static const struct row rows[] = {APP_FIELDS(ROW)};
#define N_ROWS (sizeof rows / sizeof rows[0])

/* ---- The tables -------------------------------------------------------------------------- */

static size_t count(const char *of, const char *member)
{
    size_t n = 0;

    for (size_t i = 0; i < N_ROWS; i++)
        n += strcmp(rows[i].of, of) == 0 && strcmp(rows[i].member, member) == 0;
    if (n != 1)
        print_error("%s.%s: %zu rows in apps/runnel/fields.h\n", of, member, n);
    return n;
}

static void every_member_has_a_row(void **state)
{
    size_t n = 0, n_missing = 0;

    (void)state;
#define SAMPLING(type, member) n++, n_missing += count("sampling", #member) != 1;
#define SAMPLERS(type, member) n++, n_missing += count("samplers", #member) != 1;
#define REQUEST(type, member) n++, n_missing += count("request", #member) != 1;
#define CHAT(type, member) n++, n_missing += count("chat", #member) != 1;
#define GRAMMAR(type, member) n++, n_missing += count("grammar", #member) != 1;
    RUNNEL_SAMPLING_FIELDS(SAMPLING)
    RUNNEL_SAMPLERS_FIELDS(SAMPLERS)
    RUNNEL_REQUEST_FIELDS(REQUEST)
    RUNNEL_CHAT_FIELDS(CHAT)
    RUNNEL_GRAMMAR_FIELDS(GRAMMAR)
    assert_int_equal(n_missing, 0);
    assert_int_equal(n, N_ROWS);
    for (size_t i = 0; i < N_ROWS; i++) { /* what is left out says why */
        assert_true(rows[i].option != NULL || rows[i].option_value != NULL);
        assert_true(rows[i].json != NULL || rows[i].json_value != NULL);
    }
}

/* The member is there: not as it was, or of a pointer, not NULL. */
static bool arrived(const struct row *row, const struct whole *before, const struct whole *after)
{
    static const void *const none = NULL;
    const char *was = (const char *)before + row->at, *is = (const char *)after + row->at;

    return row->pointer ? memcmp(is, &none, sizeof none) != 0 : memcmp(was, is, row->bytes) != 0;
}

/* ---- Options ----------------------------------------------------------------------------- */

static void by_options(const char *option, const char *value, struct whole *whole)
{
    static struct app_options options; /* what the request points to */
    char word[64], text[64], model[] = "MODEL";
    char *argv[3] = {model, word, text};

    memset(whole, 0, sizeof *whole);
    app_options_fini(&options);
    app_options_default(&options);
    snprintf(word, sizeof word, "%s", option != NULL ? option : "");
    snprintf(text, sizeof text, "%s", option != NULL ? value : "");
    if (!app_options_parse(&options, "run", APP_RUN, 1, 1, option == NULL ? 1 : value[0] == '\0' ? 2 : 3, argv))
        fail_msg("%s %s: not parsed", option, value);
    app_request(&options, &whole->request);
    whole->samplers = *whole->request.sampling.samplers;
    whole->grammar = *options.request_grammar;
}

static void options_arrive(void **state)
{
    struct whole before, after;
    size_t n = 0;

    (void)state;
    by_options(NULL, NULL, &before);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].option != NULL && !app_options_has(rows[i].option, ALL_COMMANDS))
            fail_msg("%s.%s: there is no option %s", rows[i].of, rows[i].member, rows[i].option);
        if (rows[i].option == NULL || rows[i].option_value == NULL)
            continue;
        by_options(rows[i].option, rows[i].option_value, &after);
        if (!arrived(&rows[i], &before, &after))
            fail_msg("%s %s does not arrive in %s.%s", rows[i].option, rows[i].option_value, rows[i].of,
                     rows[i].member);
        n++;
    }
    assert_true(n >= 20);
}

/* ---- Lines of a batch -------------------------------------------------------------------- */

/* Keeps the request that was read: *whole points into it. */
static bool by_body(enum openai_endpoint endpoint, const char *name, const char *value, struct openai_request *request,
                    struct whole *whole)
{
    json_t *body = json_object(), *json = name != NULL ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    struct openai_error error;
    bool good;

    memset(whole, 0, sizeof *whole);
    assert_true(name == NULL || json != NULL);
    json_object_set_new(body, "model", json_string("m"));
    if (endpoint == OPENAI_CHAT)
        json_object_set_new(body, "messages", json_pack("[{s:s,s:s}]", "role", "user", "content", "one"));
    else
        json_object_set_new(body, "prompt", json_string("o"));
    if (name != NULL)
        json_object_set_new(body, name, json);
    good = openai_request_read(request, endpoint, OPENAI_STRICT, body, &error);
    if (good) {
        runnel_chat_default(&whole->chat);
        openai_request_choice(request, 0, 0, &whole->request, &whole->chat);
        whole->samplers = *whole->request.sampling.samplers;
        whole->grammar = request->grammar;
    }
    json_decref(body);
    return good;
}

/* In one of the two forms. */
static bool line_arrives(const struct row *row)
{
    static const enum openai_endpoint endpoints[] = {OPENAI_COMPLETIONS, OPENAI_CHAT};
    struct openai_request plain, with;
    struct whole before, after;
    bool found = false;

    for (int i = 0; i < 2; i++) {
        assert_true(by_body(endpoints[i], NULL, NULL, &plain, &before));
        if (by_body(endpoints[i], row->json, row->json_value, &with, &after)) {
            found |= arrived(row, &before, &after);
            openai_request_fini(&with);
        }
        openai_request_fini(&plain);
    }
    return found;
}

static void lines_arrive(void **state)
{
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].json == NULL || rows[i].json_value == NULL)
            continue;
        if (!line_arrives(&rows[i]))
            fail_msg("\"%s\": %s does not arrive in %s.%s", rows[i].json, rows[i].json_value, rows[i].of,
                     rows[i].member);
        n++;
    }
    assert_true(n >= 20);
}

static void whole_numbers_stay_whole(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {12, "12"},
                 {0.125, "0.125"},
                 {-2.5, "-2.5"},
                 {999999999, "999999999"},
                 {1e9, "1000000000"},
                 {5137088512.0, "5137088512"},
                 {-5137088512.0, "-5137088512"},
                 {25e9 + 0.25, "25000000000"},
                 {9007199254740992.0, "9007199254740992"},
                 {1e300, "1e+300"},
                 {1e-7, "1e-07"},
                 {(double)NAN, "null"},
                 {(double)INFINITY, "null"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64] = "";
        FILE *to = fmemopen(text, sizeof text, "w");

        assert_non_null(to);
        app_json_number(to, cases[i].value);
        fclose(to);
        assert_string_equal(text, cases[i].text);
    }
}

/* ---- Variables of a server --------------------------------------------------------------- */

/* What the option takes that is not its default. */
static void sample(const struct app_option *o, char value[64])
{
    const char *bar = o->choices != NULL ? strrchr(o->choices, '|') : NULL;

    if (o->kind == OPTION_INTEGER)
        snprintf(value, 64, "%.0f", o->min + 1);
    else if (o->kind == OPTION_REAL)
        snprintf(value, 64, "%g", o->min + 1.5);
    else if (o->kind == OPTION_SIZE)
        strcpy(value, "3M");
    else
        snprintf(value, 64, "%s", bar != NULL ? bar + 1 : "ngram");
}

static bool is_text(const struct app_option *o)
{
    return o->kind == OPTION_STRING || o->kind == OPTION_CHOICE || o->kind == OPTION_DEVICE || o->kind == OPTION_LORA;
}

/* Of these words, or of what the environment has. */
static bool parse(struct app_options *options, int argc, char **argv)
{
    app_options_default(options);
    return app_options_parse(options, "serve", APP_SERVE, 1, 4, argc, argv);
}

/* By the option's member, where that is a text, and by all other bytes. */
static bool same(const struct app_option *o, const struct app_options *a, const struct app_options *b)
{
    struct app_options x = *a, y = *b;
    const char **text_x = (const char **)((char *)&x + o->at), **text_y = (const char **)((char *)&y + o->at);

    x.request_samplers = y.request_samplers = NULL; /* each points into its own */
    x.request_grammar = y.request_grammar = NULL;
    if (is_text(o)) {
        if (strcmp(*text_x, *text_y) != 0)
            return false;
        *text_x = *text_y = NULL;
    }
    return memcmp(&x, &y, sizeof x) == 0;
}

static void variables_of_a_server(void **state)
{
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < app_n_options; i++) {
        const struct app_option *o = &app_option_table[i];
        char variable[64] = "RUNNEL_", value[64] = "1", name[64];
        struct app_options plain, by_word, by_variable;
        char *words[] = {(char *)"model.gguf", name, value};
        int n_words = o->value != NULL ? 3 : 2;

        if (o->name == NULL || (o->commands & APP_SERVE) == 0 || strcmp(o->name, "--help") == 0)
            continue;
        n++;
        if (o->value != NULL)
            sample(o, value);
        snprintf(name, sizeof name, "%s", o->name);
        for (size_t k = 2; o->name[k] != '\0'; k++) {
            variable[k + 5] = o->name[k] == '-' ? '_' : (char)(o->name[k] - ('a' - 'A'));
            variable[k + 6] = '\0';
        }
        memset(&plain, 0, sizeof plain), memset(&by_word, 0, sizeof by_word);
        memset(&by_variable, 0, sizeof by_variable);
        if (strcmp(name, "--cache-cold") == 0) /* it needs the other */
            setenv("RUNNEL_CACHE_DIR", "folder", 1);
        assert_true(parse(&plain, 1, words));
        assert_true(parse(&by_word, n_words, words));
        setenv(variable, value, 1);
        assert_true(parse(&by_variable, 1, words));
        if (!same(o, &by_word, &by_variable) || memcmp(&plain, &by_word, sizeof plain) == 0)
            fail_msg("%s=%s is not %s %s", variable, value, name, value);
        setenv(variable, "", 1);
        assert_true(parse(&by_variable, 1, words));
        assert_memory_equal(plain.given, by_variable.given, sizeof plain.given);
        if (o->value == NULL) {
            for (size_t k = 0; k < 4; k++) {
                setenv(variable, (const char *const[]){"0", "false", "No", "OFF"}[k], 1);
                assert_true(parse(&by_variable, 1, words));
                assert_memory_equal(plain.given, by_variable.given, sizeof plain.given);
                setenv(variable, (const char *const[]){"1", "True", "yes", "on"}[k], 1);
                assert_true(parse(&by_variable, 1, words));
                assert_true(same(o, &by_word, &by_variable));
            }
            setenv(variable, "maybe", 1);
            assert_false(parse(&by_variable, 1, words));
        } else {
            setenv(variable, "no such value", 1);
            assert_int_equal(parse(&by_variable, 1, words), o->kind == OPTION_STRING || o->kind == OPTION_LORA);
            assert_true(parse(&by_variable, n_words, words)); /* the word counts for more */
            assert_true(same(o, &by_word, &by_variable));
        }
        unsetenv(variable);
        unsetenv("RUNNEL_CACHE_DIR");
    }
    assert_in_range(n, 40, APP_MAX_OPTIONS);
}

/* Of n bytes that are no UTF-8 here and there, or characters, quotes and controls. */
static size_t make_text(char *text, size_t n, uint64_t *state, bool broken)
{
    static const char *const parts[] = {
        "a", "word ",  "\"",     "\\",         "\n",     "\t",     "\r",   "\x01",         "\x1f", "\x7f",
        "/", "\u00e9", "\u20ac", "\U0001F600", "\u0800", "\uffff", "\xc3", "\xed\xa0\x80", "\xff"};
    size_t n_parts = sizeof parts / sizeof parts[0] - (broken ? 0 : 3), at = 0;

    for (;;) {
        const char *part = parts[(*state >> 33) % n_parts];

        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
        if (at + strlen(part) > n)
            return at;
        memcpy(text + at, part, strlen(part));
        at += strlen(part);
    }
}

/* By jansson: what it reads is what was written; of broken texts that it can be read at all. */
static void strings_of_json(void **state)
{
    char text[2048], bytes[APP_JSON_BYTES(sizeof text)], *written = NULL;
    uint64_t random = 1;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < 2000; i++) {
        bool broken = i % 2 == 1;
        size_t length = make_text(text, i % 50 < 40 ? i % 50 : i % sizeof text, &random, broken);
        FILE *to = open_memstream(&written, &n);
        json_t *read;

        app_json_string(to, text, length);
        fclose(to);
        assert_int_equal(app_json_bytes(bytes, text, length), n);
        assert_memory_equal(bytes, written, n);
        read = json_loadb(written, n, JSON_DECODE_ANY, NULL);
        assert_true(json_is_string(read));
        if (!broken) {
            assert_int_equal(json_string_length(read), length);
            assert_memory_equal(json_string_value(read), text, length);
        }
        json_decref(read);
        free(written);
    }
}

/* Of what Unicode ends lines with none is left as it is: clients split lines there. Nor is a control character:
 * terminals obey it. */
static void strings_are_one_line(void **state)
{
    static const char text[] = "a\xc2\x85"
                               "b\xe2\x80\xa8"
                               "c\xe2\x80\xa9"
                               "d\v\f\x1c\x1d\x1e\n\re\xc2\x9b\x7f\xc2\xa0\xe2\x80\xaa";
    static const char want[] =
        "\"a\\u0085b\\u2028c\\u2029d\\u000b\\u000c\\u001c\\u001d\\u001e\\n\\re\\u009b\\u007f\xc2\xa0\xe2\x80\xaa\"";
    char bytes[APP_JSON_BYTES(sizeof text)];
    size_t n = app_json_bytes(bytes, text, sizeof text - 1);

    (void)state;
    assert_int_equal(n, sizeof want - 1);
    assert_memory_equal(bytes, want, n);
}

/* Likewise what is passed on as it came. */
static void json_is_one_line(void **state)
{
    static const char text[] = "{\n \"a\xe2\x80\xa8\": \"\xc2\x85\xe2\x80\xa9\xc2\x86\",\r\n \"b\": \"\xe2\x80\"}";
    static const char want[] = "{  \"a\\u2028\": \"\\u0085\\u2029\xc2\x86\",   \"b\": \"\xe2\x80\"}";
    char *bytes = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&bytes, &n);

    (void)state;
    assert_non_null(to);
    app_json_line(to, text, sizeof text - 1);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(n, sizeof want - 1);
    assert_memory_equal(bytes, want, n);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_one_line),   cmocka_unit_test(json_is_one_line),
        cmocka_unit_test(every_member_has_a_row), cmocka_unit_test(options_arrive),
        cmocka_unit_test(lines_arrive),           cmocka_unit_test(whole_numbers_stay_whole),
        cmocka_unit_test(variables_of_a_server),  cmocka_unit_test(strings_of_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
