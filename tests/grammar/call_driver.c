/* Answers with tools, for call_random.py: each line of the input is a JSON object,
 *
 *     {"template": "..", "prompt": "..", "tools": "[..]" or null, "choice": "..", "single": false, "reasoning": true,
 *      "schema": "..", "controls": true, "seed": 1, "texts": 3, "answers": ["..", ..]}
 *
 * of which all but the template may lack. The answer is a line: {"refused": "the sentence"}, or
 *
 *     {"texts": [[text, parts], ..], "cut": 0, "longest": [bytes, ..]}
 *
 * texts: random ones that the rules allow, and how text/answer reads them ([[kind, call, text], ..]); cut: how many had
 * no end; longest: of each of the answers how much of it is allowed and complete (-1: nothing). The vocabulary has each
 * byte, an end, and the marks of the format: as control tokens, or as text. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "model/gguf/gguf.h"
#include "sampling/grammar/answer_rules.h"
#include "sampling/grammar/matcher.h"
#include "tests/text/answer_parts.h"
#include "tests/text/fixture.h"

#define WORDS_MOST 128u
#define TEXT_BYTES 6000u
#define TOKENS_MOST 3000u
#define LONG_TEXT 150u /* tokens: from here on it looks for an end */
#define END 1
#define BYTES 2
#define FIRST (BYTES + 256)

static uint64_t rng;

struct words {
    char *texts[WORDS_MOST];
    size_t n;
};

/* ---- A vocabulary ---- */

static void add_word(struct words *words, const char *text, size_t n)
{
    for (size_t i = 0; i < words->n; i++)
        if (strlen(words->texts[i]) == n && memcmp(words->texts[i], text, n) == 0)
            return;
    if (n < 2)
        return;
    RN_CHECK(words->n < WORDS_MOST);
    words->texts[words->n++] = strndup(text, n);
}

/* The marks in a pattern: from a bracket to the next that closes it. */
static void add_marks(struct words *words, const char *pattern)
{
    size_t n, i, begin;

    for (; pattern != NULL && *pattern != '\0'; pattern += n > 0 ? n : 1) {
        n = rn_pattern_head(pattern);
        for (i = 0, begin = 0; i < n; i++) {
            if (pattern[i] == '<' || pattern[i] == '[')
                begin = i;
            if (pattern[i] == '>' || pattern[i] == ']')
                add_word(words, pattern + begin, i + 1 - begin);
        }
    }
}

static void collect(struct words *words, const struct rn_answer_format *format)
{
    static const char *const channels[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};
    struct rn_answer_rows rows = rn_answer_format_rows(format);
    const struct rn_param_syntax *params = rows.calls->params;
    int i;

    words->n = 0;
    for (i = 0; i < 4; i++) {
        add_marks(words, rows.calls->open[i]);
        add_marks(words, rows.calls->written[i].begin);
        add_marks(words, rows.calls->written[i].call);
        add_marks(words, rows.calls->written[i].end);
        add_marks(words, rows.reasoning->wrappers[i]);
        add_marks(words, rows.calls->closers[i]);
    }
    if (strcmp(rows.calls->name, "solar") == 0)
        add_marks(words, "<|flush|>"); /* by which the vocabulary knows that <|end|> does not end an answer */
    add_marks(words, rows.reasoning->open[0]);
    add_marks(words, rows.reasoning->open[1]);
    add_marks(words, rows.reasoning->close);
    add_marks(words, rows.calls->mark);
    for (i = 0; i < 4 && rows.calls->headers == RN_HEADERS_CHANNELS; i++)
        add_marks(words, channels[i]);
    for (i = 0; i < 3 && rows.calls->headers != RN_HEADERS_NONE; i++)
        add_marks(words, rows.turn->ends[i]);
    if (params == NULL)
        return;
    add_marks(words, params->open);
    add_marks(words, params->close);
    add_marks(words, params->end);
    for (i = 0; i < 3; i++)
        add_marks(words, params->openers[i].pattern);
}

static struct rn_vocab *vocabulary(struct rn_heap *heap, const struct words *words, bool controls)
{
    const char *texts[FIRST + WORDS_MOST] = {"<unk>", "<the-end>"};
    int32_t types[FIRST + WORDS_MOST] = {RN_TOKEN_UNKNOWN, RN_TOKEN_CONTROL};
    float scores[FIRST + WORDS_MOST] = {0};
    static char names[256][8];
    size_t count = FIRST + words->n, i;
    struct maker maker;

    for (i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        texts[BYTES + i] = names[i];
        types[BYTES + i] = RN_TOKEN_BYTE;
    }
    for (i = 0; i < words->n; i++) {
        texts[FIRST + i] = words->texts[i];
        types[FIRST + i] = controls ? RN_TOKEN_CONTROL : RN_TOKEN_NORMAL;
    }
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, count);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, count, count * sizeof *types);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, count, count * sizeof *scores);
    maker_u32(&maker, KEY "eos_token_id", END);
    return made(heap, &maker);
}

/* ---- Random texts ---- */

static bool allowed(const uint64_t *mask, uint32_t token)
{
    return (mask[token / 64] >> token % 64 & 1) != 0;
}

static uint32_t choose_of(const uint32_t *tokens, size_t n)
{
    return tokens[rn_splitmix64(&rng) % n];
}

/* A token that may come next; 0: none. Marks, and bytes that close something, are taken more often, and nothing else
 * once the text is long. */
static uint32_t choose(const struct rn_vocab *vocab, const uint64_t *mask, uint32_t length)
{
    uint32_t all[FIRST + WORDS_MOST], marks[FIRST + WORDS_MOST], closing[16], n = 0, n_marks = 0, n_closing = 0;
    uint32_t end = 0;
    bool is_long = length > LONG_TEXT;

    for (uint32_t token = 0; token < rn_vocab_count(vocab); token++) {
        if (!allowed(mask, token))
            continue;
        all[n++] = token;
        if (rn_vocab_is_end(vocab, (int32_t)token))
            end = token;
        else if (token >= FIRST)
            marks[n_marks++] = token;
        else if (token != BYTES && token >= BYTES && strchr("\"]}),>:", (int)(token - BYTES)) != NULL)
            closing[n_closing++] = token;
    }
    if (n == 0)
        return 0;
    if (end != 0 && (is_long || n == 1 || rn_splitmix64(&rng) % 3 == 0))
        return end;
    if (n_marks > 0 && (is_long || rn_splitmix64(&rng) % 4 == 0))
        return choose_of(marks, n_marks);
    if (n_closing == 0 && is_long && allowed(mask, BYTES + '\n') && rn_splitmix64(&rng) % 2 == 0)
        return BYTES + '\n'; /* a mark may follow */
    if (n_closing > 0 && (is_long || rn_splitmix64(&rng) % 3 == 0))
        return choose_of(closing, n_closing);
    return choose_of(all, n);
}

static uint32_t bytes_of(const struct rn_vocab *vocab, uint32_t token, char *text)
{
    struct rn_view piece = rn_vocab_piece(vocab, (int32_t)token, true);

    memcpy(text, piece.bytes, piece.n);
    return (uint32_t)piece.n;
}

/* A random text; false: it found no end. */
static bool one_text(struct rn_masks *masks, const struct rn_vocab *vocab, char *text, size_t *n)
{
    uint64_t mask[(FIRST + WORDS_MOST + 63) / 64];
    struct rn_matcher *matcher;
    runnel_error error = {0};
    uint32_t length;
    bool ended = false;

    RN_CHECK(rn_matcher_new(masks, 0, &matcher, &error) == RUNNEL_OK);
    for (length = 0, *n = 0; length < TOKENS_MOST && *n + 256 < TEXT_BYTES && !ended; length++) {
        uint32_t token;

        RN_CHECK(rn_matcher_mask(matcher, mask, &error) == RUNNEL_OK);
        token = choose(vocab, mask, length);
        RN_CHECK(token != 0); /* a text that was begun can be completed: the vocabulary has all bytes */
        RN_CHECK(rn_matcher_accept(matcher, (int32_t)token, &error) == RUNNEL_OK);
        ended = rn_vocab_is_end(vocab, (int32_t)token);
        if (!ended)
            *n += bytes_of(vocab, token, text + *n);
    }
    rn_matcher_free(matcher);
    return ended;
}

/* How much of the text is allowed and complete. Marks that are control tokens are taken as these where that is
 * allowed. */
static long long longest(struct rn_masks *masks, const struct words *words, bool controls, const char *text, size_t n)
{
    struct rn_matcher *matcher;
    runnel_error error = {0};
    long long found = -1;
    size_t at = 0, i, bytes;

    RN_CHECK(rn_matcher_new(masks, 0, &matcher, &error) == RUNNEL_OK);
    for (;;) {
        int32_t token = BYTES + (uint8_t)text[at];

        if (rn_matcher_can_end(matcher))
            found = (long long)at;
        if (at == n)
            break;
        bytes = 1;
        for (i = 0; controls && i < words->n; i++)
            if (strncmp(text + at, words->texts[i], strlen(words->texts[i])) == 0 && strlen(words->texts[i]) > bytes) {
                token = (int32_t)(FIRST + i);
                bytes = strlen(words->texts[i]);
            }
        if (rn_matcher_accept(matcher, token, &error) != RUNNEL_OK) { /* it may be text */
            bytes = 1;
            if (rn_matcher_accept(matcher, BYTES + (uint8_t)text[at], &error) != RUNNEL_OK)
                break;
        }
        at += bytes;
    }
    rn_matcher_free(matcher);
    return found;
}

/* ---- A line ---- */

static json_t *parts_of(struct reading *reading, const char *text, size_t n)
{
    json_t *list = json_array();
    struct parts parts;

    reading->finished = true;
    parts_read(reading, text, n, CUT_WHOLE, 0, &parts);
    for (size_t i = 0; i < parts.n; i++)
        json_array_append_new(list, json_pack("[iis%]", (int)parts.parts[i].kind, (int)parts.parts[i].call,
                                              parts.text + parts.at[i], (size_t)parts.parts[i].bytes));
    parts_fini(&parts);
    return list;
}

static runnel_status compile(struct rn_heap *heap, const struct rn_vocab *vocab, const struct rn_answer_rules *rules,
                             const json_t *schema, struct rn_automaton **automaton, runnel_error *error)
{
    struct rn_grammar *g = rn_grammar_new(heap, NULL, vocab);
    uint32_t root = rn_grammar_rule(g, "root", 4);
    rn_expr content = RN_GRAMMAR_NONE;
    runnel_status status;

    if (schema != NULL)
        content = rn_grammar_schema(g, json_string_value(schema), json_string_length(schema), NULL);
    content = rn_grammar_answer(g, rules, content);
    if (!rn_grammar_failed(g))
        rn_grammar_define(g, root, content);
    status = rn_grammar_finish(g, root, error);
    if (status == RUNNEL_OK)
        status = rn_automaton_new(heap, g, automaton, error);
    rn_grammar_free(g);
    return status;
}

struct line {
    struct rn_heap *heap;
    const json_t *input;
    struct reading reading;
    struct words words;
    struct rn_vocab *vocab;
    bool controls;
};

static json_t *walk(struct line *l, struct rn_automaton *automaton)
{
    struct rn_token_trie *trie = rn_token_trie_new(l->heap, l->vocab);
    struct rn_masks *masks = rn_masks_new(l->heap, automaton, trie, NULL);
    json_int_t texts = json_integer_value(json_object_get(l->input, "texts")), cut = 0;
    json_t *made_texts = json_array(), *lengths = json_array(), *answer;
    char text[TEXT_BYTES];
    size_t n, i;

    for (json_int_t k = 0; k < texts; k++) {
        if (one_text(masks, l->vocab, text, &n))
            json_array_append_new(made_texts, json_pack("[s%o]", text, n, parts_of(&l->reading, text, n)));
        else
            cut++;
    }
    json_array_foreach(json_object_get(l->input, "answers"), i, answer) json_array_append_new(
        lengths,
        json_integer(longest(masks, &l->words, l->controls, json_string_value(answer), json_string_length(answer))));
    rn_masks_free(masks);
    rn_token_trie_free(trie);
    return json_pack("{sosIso}", "texts", made_texts, "cut", cut, "longest", lengths);
}

static json_t *on_line(struct rn_heap *heap, const json_t *input)
{
    const json_t *source = json_object_get(input, "template"), *prompt = json_object_get(input, "prompt");
    const json_t *tools = json_object_get(input, "tools"), *reasoning = json_object_get(input, "reasoning");
    struct line l = {.heap = heap, .input = input, .controls = json_is_true(json_object_get(input, "controls"))};
    struct rn_automaton *automaton = NULL;
    runnel_error error = {0};
    struct rn_opened opened;
    json_t *output;

    l.reading = (struct reading){.format = rn_answer_format_of(json_string_value(source), json_string_length(source)),
                                 .heap = heap,
                                 .prompt = prompt == NULL ? "" : json_string_value(prompt),
                                 .prompt_bytes = json_string_length(prompt),
                                 .tools = json_string_value(tools),
                                 .tools_bytes = json_string_length(tools)};
    opened = rn_answer_opened(l.reading.format, l.reading.prompt, l.reading.prompt_bytes, l.reading.prompt_bytes);
    rng = (uint64_t)json_integer_value(json_object_get(input, "seed"));
    collect(&l.words, l.reading.format);
    l.vocab = vocabulary(heap, &l.words, l.controls);
    struct rn_answer_rules rules = {.format = l.reading.format,
                                    .opened = opened.kind,
                                    .opened_marker = opened.marker,
                                    .opened_bytes = opened.marker_bytes,
                                    .tools = l.reading.tools,
                                    .tools_bytes = l.reading.tools_bytes,
                                    .choice = json_string_value(json_object_get(input, "choice")),
                                    .single_call = json_is_true(json_object_get(input, "single")),
                                    .reasoning = reasoning == NULL || json_is_true(reasoning)};

    if (compile(heap, l.vocab, &rules, json_object_get(input, "schema"), &automaton, &error) == RUNNEL_OK)
        output = walk(&l, automaton);
    else
        output = json_pack("{ss}", "refused", error.message);
    json_object_set_new(output, "format", json_string(rn_answer_format_name(l.reading.format)));
    rn_automaton_free(automaton);
    rn_vocab_free(l.vocab);
    for (size_t i = 0; i < l.words.n; i++)
        free(l.words.texts[i]);
    return output;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    json_error_t error;
    struct rn_heap heap;

    rn_heap_init(&heap, NULL);
    while (getline(&line, &cap, stdin) > 0) {
        json_t *input = json_loads(line, JSON_ALLOW_NUL, &error), *output;
        char *text;

        RN_CHECK(input != NULL);
        output = on_line(&heap, input);
        text = json_dumps(output, JSON_COMPACT);
        RN_CHECK(text != NULL);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(output);
        json_decref(input);
        RN_CHECK(rn_heap_blocks(&heap) == 0);
    }
    free(line);
    return 0;
}
