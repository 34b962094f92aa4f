/* Grammars with every kind of tokenizer that generates: real vocabularies (../shared, and the bundled model's) and made
 * ones, random tokens by the mask. The bytes that the tokens stand for are what jansson and PCRE2 accept; the bits of a
 * mask are what a reading of each token's bytes says; control tokens come only where a grammar names them; the tokens
 * that the tokenizer itself makes of a text are allowed. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sampling/grammar/schema/schema.h"
#include "tests/grammar/reading.h"
#include "tests/grammar/vocabularies.h"
#include "tests/text/fixture.h"

#define TEXT_BYTES 2000u
#define STEPS_MOST 800u
#define LONG 60u /* tokens: from here on it ends where it may */

#if defined(__SANITIZE_ADDRESS__)
#define WALKS 3u
#define LOOKED_AT 1u /* states of a walk whose mask is compared bit by bit */
#else
#define WALKS 12u
#define LOOKED_AT 2u
#endif

/* ---- Grammars, each with its judge ---- */

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"naïve\": {\"type\": \"string\", \"maxLength\": 8}, \"größe\": "
    "{\"type\": "
    "\"integer\", \"minimum\": -50, \"maximum\": 5000}, \"tags\": {\"type\": \"array\", \"items\": {\"enum\": "
    "[\"päivä\", \"日本\", \"a b\", null]}, \"maxItems\": 3}, \"code\": {\"type\": \"string\", \"pattern\": "
    "\"^[а-яё]{2,5}[0-9é]?$\"}}, \"required\": [\"naïve\", \"größe\", \"tags\", \"code\"], \"additionalProperties\": "
    "false}";

#define WORDS "(?:[a-zßàéё一-龯ぁ-ん]{1,8}|\"[^\"\\n]{0,6}\")"

static const char gbnf[] = "root ::= line{1,3}\n"
                           "line ::= \"- \" word (\" \" word){0,2} \"\\n\"\n"
                           "word ::= [a-zßàéё一-龯ぁ-ん]{1,8} | \"\\\"\" [^\"\\n]{0,6} \"\\\"\"\n";

static const char *const regexes[] = {
    "( [a-zäöüß]{1,9}){1,4}",
    "([А-Яа-яё]{2,12}|[ぁ-んァ-ン一-龯]{1,6}|[α-ω]+x)([,.!?] ?)?",
    "[^a-z]{0,8}é.{1,6}(😀|🦉|  )",
};

static bool matches(const char *pattern, const char *text, size_t n)
{
    uint32_t options = PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
    pcre2_match_data *data;
    bool is;

    assert_non_null(re);
    data = pcre2_match_data_create_from_pattern(re, NULL);
    is = pcre2_match(re, (PCRE2_SPTR)text, n, 0, 0, data, NULL) > 0;
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    return is;
}

static bool is_tag(const json_t *tag)
{
    const char *text = json_string_value(tag);

    return json_is_null(tag) ||
           (text != NULL && (strcmp(text, "päivä") == 0 || strcmp(text, "日本") == 0 || strcmp(text, "a b") == 0));
}

static bool is_record(const char *text, size_t n)
{
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL), *tag;
    const json_t *name = json_object_get(value, "naïve"), *size = json_object_get(value, "größe"),
                 *tags = json_object_get(value, "tags"), *code = json_object_get(value, "code");
    bool good = json_object_size(value) == 4 && json_is_string(name) && json_is_integer(size) && json_is_array(tags) &&
                json_is_string(code) && json_array_size(tags) <= 3 && json_integer_value(size) >= -50 &&
                json_integer_value(size) <= 5000 &&
                matches("[а-яё]{2,5}[0-9é]?", json_string_value(code), json_string_length(code)) &&
                matches("(?s).{0,8}", json_string_value(name), json_string_length(name));
    size_t i;

    json_array_foreach(tags, i, tag) good = good && is_tag(tag);
    json_decref(value);
    return good;
}

#define N_GRAMMARS (2 + COUNT(regexes))

static bool is_one_of(size_t grammar, const char *text, size_t n)
{
    if (grammar == 0)
        return is_record(text, n);
    return grammar == 1 ? matches("(?:- " WORDS "(?: " WORDS "){0,2}\\n){1,3}", text, n)
                        : matches(regexes[grammar - 2], text, n);
}

static void open_grammar(struct reading *r, size_t which)
{
    struct rn_grammar *grammar;
    runnel_status status;
    uint32_t root;

    if (which > 0) {
        const char *text = which == 1 ? gbnf : regexes[which - 2];

        status = reading_open(r, which == 1 ? RN_FRONT_GBNF : RN_FRONT_REGEX, text, strlen(text));
    } else {
        grammar = rn_grammar_new(&r->heap, NULL, NULL);
        root = rn_grammar_rule(grammar, "root", 4);
        rn_grammar_define(grammar, root, rn_grammar_schema(grammar, schema, strlen(schema), NULL));
        assert_int_equal(rn_grammar_finish(grammar, root, NULL), RUNNEL_OK);
        status = reading_open_grammar(r, grammar);
    }
    if (status != RUNNEL_OK)
        fail_msg("grammar %zu: %s", which, r->error.message);
}

/* ---- A mask, bit by bit ---- */

static bool bit(const uint64_t *mask, int32_t token)
{
    return (mask[token / 64] >> token % 64 & 1) != 0;
}

static bool reads_as_text(const struct rn_vocab *vocab, int32_t token)
{
    enum rn_token_kind kind = rn_vocab_kind(vocab, token);

    return (kind == RN_TOKEN_NORMAL || kind == RN_TOKEN_USER || kind == RN_TOKEN_BYTE) &&
           !rn_vocab_is_end(vocab, token) && rn_vocab_piece(vocab, token, false).n > 0;
}

/* named: the control token that the grammar wants here, -1: none. */
static void check_mask(struct reading *r, struct rn_matcher *m, const uint64_t *mask, int32_t named, const char *name)
{
    bool complete = rn_matcher_can_end(m);
    int32_t token, n = (int32_t)rn_vocab_count(r->vocab);

    for (token = 0; token < n; token++) {
        struct rn_view piece = rn_vocab_piece(r->vocab, token, false);
        bool expected = token == named || (complete && rn_vocab_is_end(r->vocab, token));

        if (reads_as_text(r->vocab, token)) {
            expected = rn_matcher_accept_bytes(m, piece.bytes, piece.n, NULL) == RUNNEL_OK;
            if (expected)
                assert_true(rn_matcher_rollback(m, 1));
        }
        if (bit(mask, token) != expected)
            fail_msg("%s: token %d, '%.*s' of kind %d: %d, not %d", name, token, (int)piece.n, piece.bytes,
                     (int)rn_vocab_kind(r->vocab, token), !expected, expected);
    }
}

/* ---- Walks ---- */

struct walk {
    struct reading *r;
    struct rn_matcher *m;
    uint64_t *mask;
    uint64_t rng;
    char text[TEXT_BYTES];
    size_t n;
    int32_t tokens[STEPS_MOST];
    uint32_t n_tokens;
};

static struct counts {
    uint32_t walks, in_characters, fallback, canonical;
} counts;

/* One of the tokens of the mask, long and short ones in turn; an end where one may come, sooner or later. */
static int32_t draw(struct walk *w)
{
    const struct rn_token_trie *trie = w->r->trie;
    size_t longest = (size_t[]){1, 2, 4, SIZE_MAX}[rn_splitmix64(&w->rng) % 4];
    int32_t chosen = -1, shortest = -1;
    uint32_t i, n = 0;

    if (rn_matcher_can_end(w->m) && (w->n_tokens > LONG || rn_splitmix64(&w->rng) % 4 == 0)) {
        assert_true(bit(w->mask, trie->ends[0]));
        return trie->ends[0];
    }
    for (i = 0; i < trie->words; i++)
        for (uint64_t rest = w->mask[i]; rest != 0; rest &= rest - 1) {
            int32_t token = (int32_t)(i * 64) + __builtin_ctzll(rest);
            struct rn_view bytes = rn_token_bytes(trie, token);

            if (rn_token_is_end(trie, token))
                continue;
            if (shortest < 0 || bytes.n < rn_token_bytes(trie, shortest).n)
                shortest = token;
            if (bytes.n <= longest && rn_splitmix64(&w->rng) % ++n == 0)
                chosen = token;
        }
    return chosen >= 0 ? chosen : shortest >= 0 ? shortest : trie->ends[0];
}

static void take(struct walk *w, int32_t token)
{
    struct rn_view piece = rn_vocab_piece(w->r->vocab, token, false);

    assert_true(reads_as_text(w->r->vocab, token) && w->n + piece.n <= sizeof w->text);
    memcpy(w->text + w->n, piece.bytes, piece.n);
    w->n += piece.n;
    w->tokens[w->n_tokens++] = token;
    counts.in_characters += !rn_utf8_valid(w->text, w->n);
    counts.fallback += rn_vocab_kind(w->r->vocab, token) == RN_TOKEN_BYTE;
}

/* What the tokenizer makes of a text is one of the ways to spell it. Where it puts a space in front, a text that begins
 * with one is made of the rest. */
static void check_canonical(struct walk *w, const char *name)
{
    struct rn_heap *heap = &w->r->heap;
    size_t space = rn_vocab_strips_first_space(w->r->vocab) && w->n > 0 && w->text[0] == ' ', n = 0, at = 0, i;
    int32_t *tokens = tokenize(heap, w->r->vocab, w->text + space, w->n - space, 0, &n);

    for (i = 0; i < n; i++) { /* not where spaces are taken away, or a character is not known */
        struct rn_view piece = rn_vocab_piece(w->r->vocab, tokens[i], false);

        if (piece.n == 0 || at + piece.n > w->n || memcmp(w->text + at, piece.bytes, piece.n) != 0)
            break;
        at += piece.n;
    }
    if (i == n && at == w->n) {
        assert_int_equal(rn_matcher_reset(w->m, NULL), RUNNEL_OK);
        for (i = 0; i < n; i++) {
            assert_int_equal(rn_matcher_mask(w->m, w->mask, NULL), RUNNEL_OK);
            if (!bit(w->mask, tokens[i]) || rn_matcher_accept(w->m, tokens[i], NULL) != RUNNEL_OK)
                fail_msg("%s: token %d of '%.*s' is not allowed", name, tokens[i], (int)w->n, w->text);
        }
        assert_true(rn_matcher_can_end(w->m));
        counts.canonical++;
    }
    rn_free(heap, tokens);
}

/* The text is what detokenizing gives, but for a first space. */
static void check_detokenized(const struct walk *w)
{
    char text[TEXT_BYTES];
    size_t n, space = rn_vocab_strips_first_space(w->r->vocab) && w->n > 0 && w->text[0] == ' ';

    rn_detokenize(w->r->vocab, w->tokens, w->n_tokens, false, text, sizeof text, &n);
    assert_int_equal(n, w->n - space);
    assert_memory_equal(text, w->text + space, n);
}

static void one_walk(struct walk *w, const char *name, size_t grammar)
{
    uint32_t look = 1 + (uint32_t)(rn_splitmix64(&w->rng) % 3);
    int32_t token;

    assert_int_equal(rn_matcher_reset(w->m, NULL), RUNNEL_OK);
    for (w->n = w->n_tokens = 0;; take(w, token)) {
        assert_int_equal(rn_matcher_mask(w->m, w->mask, NULL), RUNNEL_OK);
        if (w->n_tokens % 5 == look && w->n_tokens < 5 * LOOKED_AT)
            check_mask(w->r, w->m, w->mask, -1, name);
        token = draw(w);
        assert_int_equal(rn_matcher_accept(w->m, token, NULL), RUNNEL_OK);
        if (rn_matcher_has_ended(w->m))
            break;
        assert_true(w->n_tokens + 1 < STEPS_MOST);
    }
    if (!rn_utf8_valid(w->text, w->n) || !is_one_of(grammar, w->text, w->n))
        fail_msg("%s: '%.*s' is none of grammar %zu", name, (int)w->n, w->text, grammar);
    check_detokenized(w);
    check_canonical(w, name);
    counts.walks++;
}

/* A control token comes where the grammar names it, and nowhere else. */
static void check_named(struct walk *w, const char *name)
{
    int32_t n = (int32_t)rn_vocab_count(w->r->vocab), token = 0;
    char text[100];

    while (token < n && (rn_vocab_kind(w->r->vocab, token) != RN_TOKEN_CONTROL || rn_vocab_is_end(w->r->vocab, token)))
        token++;
    if (token == n)
        return;
    snprintf(text, sizeof text, "root ::= [a-zé]{2,9} <[%d]> [0-9]", token);
    assert_int_equal(reading_open(w->r, RN_FRONT_GBNF, text, strlen(text)), RUNNEL_OK);
    assert_int_equal(rn_matcher_new(w->r->masks, 1, &w->m, NULL), RUNNEL_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rn_matcher_mask(w->m, w->mask, NULL), RUNNEL_OK);
        check_mask(w->r, w->m, w->mask, i == 2 ? token : -1, name);
        assert_int_equal(i == 2 ? rn_matcher_accept(w->m, token, NULL)
                                : rn_matcher_accept_bytes(w->m,
                                                          i == 0   ? "a"
                                                          : i == 1 ? "\xc3\xa9"
                                                                   : "7",
                                                          1 + (i == 1), NULL),
                         RUNNEL_OK);
    }
    assert_true(rn_matcher_can_end(w->m));
    rn_matcher_free(w->m);
    reading_close(w->r);
}

static void check_vocabulary(struct reading *r, const char *name)
{
    struct walk *w = calloc(1, sizeof *w);
    struct counts before = counts;

    assert_true(r->trie != NULL && r->trie->n_ends > 0);
    w->r = r;
    w->rng = r->trie->n_ids;
    w->mask = calloc(r->trie->words, sizeof *w->mask);
    for (size_t grammar = 0; grammar < N_GRAMMARS; grammar++) {
        open_grammar(r, grammar);
        assert_int_equal(rn_matcher_new(r->masks, 1, &w->m, NULL), RUNNEL_OK);
        for (uint32_t i = 0; i < WALKS; i++)
            one_walk(w, name, grammar);
        rn_matcher_free(w->m);
        reading_close(r);
    }
    check_named(w, name);
    free(w->mask);
    free(w);
    print_message(
        "%s: %u tokens, %u texts, %u places within characters, %u byte tokens, %u as the tokenizer spells them\n", name,
        r->trie->n_vocab, counts.walks - before.walks, counts.in_characters - before.in_characters,
        counts.fallback - before.fallback, counts.canonical - before.canonical);
    assert_true(counts.in_characters > before.in_characters && counts.canonical > before.canonical);
}

/* ---- Vocabularies ---- */

static void check_file(const char *name, const char *path)
{
    struct reading r = {0};

    rn_heap_init(&r.heap, NULL);
    r.vocab = vocab_of_file(&r.heap, path);
    r.trie = rn_token_trie_new(&r.heap, r.vocab);
    check_vocabulary(&r, name);
    reading_fini(&r);
}

static void test_real(void **state)
{
    static const char *const files[] = {
        "oracles/tokenizers/ggml-vocab-llama-spm.gguf",
        "oracles/tokenizers/ggml-vocab-phi-3.gguf",
        "oracles/tokenizers/ggml-vocab-deepseek-llm.gguf",
        "oracles/tokenizers/ggml-vocab-falcon.gguf",
        "oracles/tokenizers/ggml-vocab-gpt-2.gguf",
        "oracles/tokenizers/ggml-vocab-starcoder.gguf",
        "models/stories260K.gguf",
    };

    (void)state;
    check_file("runnel-tiny", "examples/models/runnel-tiny-Q8_0.gguf");
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *path = shared_path(files[i]);

        if (path == NULL)
            skip();
        check_file(files[i], path);
    }
}

static void test_made(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MADE_VOCABULARIES; i++) {
        struct reading r = {0};

        rn_heap_init(&r.heap, NULL);
        r.vocab = made_vocabulary(&r.heap, made_vocabularies[i]);
        r.trie = rn_token_trie_new(&r.heap, r.vocab);
        check_vocabulary(&r, made_vocabularies[i]);
        reading_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_real)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
