/* What a grammar costs: making it ready, and the mask of each token of an answer.
 *
 *     bench_grammar [VOCABULARY.gguf | TOKENS]
 *
 * Without a file the vocabulary is made here: 128,000 tokens or as many as are asked for, of which most are words, with
 * a space before them or not, in two scripts; the rest are numbers, runs of spaces, marks as they stand in JSON and
 * code, and pieces of characters.
 *
 *     compile   from the text to an automaton with empty tables: the median of 21 runs
 *     answers   texts written by hand, cut into the longest tokens, and walks of random allowed tokens
 *     mask      microseconds of processor time for each token of all answers, of tables that begin empty: the mask and
 *               accepting the token. Means, the 99th of a hundred, the longest */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/rng.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/matcher.h"

#define TOKENS 128000u
#define FEWEST_TOKENS 1500u
#define MOST_TIMES 400000u
#define WALKS 8u
#define WALK_TOKENS 150u

#define JSON_RULES                                                                                        \
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"                      \
    "object ::= \"{\" ws (string ws \":\" ws value ws (\",\" ws string ws \":\" ws value ws)*)? \"}\"\n"  \
    "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n"                                         \
    "string ::= \"\\\"\" char* \"\\\"\"\n"                                                                \
    "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"                  \
    "number ::= integer (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)?\n"                                           \
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]*)\n"                                                         \
    "date ::= [0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])\n" \
    "ws ::= [ \\t\\n]*\n"

static const struct {
    const char *name;
    enum rn_front kind;
    const char *grammar;
    const char *answer;
} cases[] = {
    {"any JSON", RN_FRONT_GBNF, "root ::= ws value ws\n" JSON_RULES,
     "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"known for\": [\"the first program\", \"notes on the engine\"],\n"
     "  \"works\": {\"1843\": {\"title\": \"Sketch of the Analytical Engine\", \"pages\": -2.5e+3}}, \"alive\": "
     "false}"},
    {"person", RN_FRONT_GBNF,
     "root ::= \"{\" ws \"\\\"name\\\":\" ws string \",\" ws \"\\\"age\\\":\" ws integer \",\" ws \"\\\"email\\\":\" "
     "ws email "
     "(\",\" ws \"\\\"tags\\\":\" ws \"[\" (string (\",\" ws string)*)? \"]\")? ws \"}\"\n"
     "email ::= \"\\\"\" [a-zA-Z0-9._%+-]+ \"@\" [a-zA-Z0-9-]+ (\".\" [a-zA-Z0-9-]+)+ \"\\\"\"\n" JSON_RULES,
     "{\"name\": \"Grace Hopper of New York\", \"age\": 85, \"email\": \"grace.hopper@navy.example.org\", \"tags\": "
     "[\"compiler\", \"admiral\", \"a ship in port is safe\"]}"},
    {"order", RN_FRONT_GBNF,
     "root ::= \"{\\\"id\\\":\\\"\" [0-9a-f]{8} \"-\" [0-9a-f]{4} \"\\\",\\\"date\\\":\\\"\" date "
     "\"\\\",\\\"state\\\":\" state "
     "\",\\\"items\\\":[\" item (\",\" item){0,9} \"]\" (\",\\\"note\\\":\\\"\" char{0,200} \"\\\"\")? \"}\"\n"
     "state ::= \"\\\"new\\\"\" | \"\\\"paid\\\"\" | \"\\\"shipped\\\"\" | \"\\\"cancelled\\\"\"\n"
     "item ::= \"{\\\"sku\\\":\\\"\" [A-Z]{3} [0-9]{4} \"\\\",\\\"count\\\":\" [1-9] [0-9]{0,2} \",\\\"price\\\":\" "
     "number \"}\"\n" JSON_RULES,
     "{\"id\":\"00c0ffee-beef\",\"date\":\"2026-11-23\",\"state\":\"shipped\",\"items\":[{\"sku\":\"ABC1234\","
     "\"count\":12,"
     "\"price\":19.95},{\"sku\":\"XYZ0001\",\"count\":1,\"price\":0.5}],\"note\":\"please leave the parcel with the "
     "neighbours "
     "on the second floor, thank you\"}"},
    {"call of a tool", RN_FRONT_GBNF,
     "root ::= [^<]* \"<tool_call>\" ws call ws \"</tool_call>\"\n"
     "call ::= \"{\" ws \"\\\"name\\\":\" ws (weather | search) ws \"}\"\n"
     "weather ::= \"\\\"get_weather\\\",\" ws \"\\\"arguments\\\":\" ws \"{\" ws \"\\\"city\\\":\" ws string (\",\" ws "
     "\"\\\"unit\\\":\" ws (\"\\\"celsius\\\"\" | \"\\\"fahrenheit\\\"\"))? ws \"}\"\n"
     "search ::= \"\\\"search\\\",\" ws \"\\\"arguments\\\":\" ws \"{\" ws \"\\\"query\\\":\" ws string \",\" ws "
     "\"\\\"limit\\\":\" ws "
     "integer ws \"}\"\n" JSON_RULES,
     "I will look at the weather first.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"San "
     "Francisco\", "
     "\"unit\": \"celsius\"}}\n</tool_call>"},
    {"arithmetic", RN_FRONT_GBNF,
     "root ::= sum \"\\n\"\nsum ::= sum ws [-+] ws product | product\nproduct ::= product ws [*/] ws atom | atom\n"
     "atom ::= [0-9]+ (\".\" [0-9]+)? | [a-z] [a-z0-9]* | \"(\" ws sum ws \")\"\nws ::= [ ]*",
     "(1 + 23) * (value / 4.75 - (total + 3)) + 100000 - x1 * (2 + 3)\n"},
    {"calculator", RN_FRONT_EBNF,
     "start: (NAME \"=\" sum NEWLINE)+\nsum: product | sum \"+\" product | sum \"-\" product\nproduct: atom | product "
     "\"*\" atom\n"
     "atom: NUMBER | NAME | \"(\" sum \")\" | ESCAPED_STRING\n%import common.CNAME -> NAME\n%import common (NUMBER, "
     "NEWLINE, "
     "WS_INLINE, ESCAPED_STRING)\n%ignore WS_INLINE",
     "area = width * (height + 2.5)\nlabel = \"the area of it\" + name\n"},
    {"date and time", RN_FRONT_REGEX,
     "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-][01]\\d:[0-"
     "5]\\d)",
     "2026-11-23T08:30:00.123456+01:00"},
    {"sentence", RN_FRONT_REGEX, "[A-Z][a-z]*([ ,;][ ]?[A-Za-z0-9']+){2,40}[.!?]",
     "The quick brown fox jumps over the lazy dog, and the dog; it sleeps on until 9 or later."},
    {"choice", RN_FRONT_CHOICES, "8\npositive8\nnegative7\nneutral", "neutral"},
};
#define CASES (sizeof cases / sizeof cases[0])

/* ---- A vocabulary ---- */

struct file {
    unsigned char *bytes;
    size_t n, room;
    uint64_t n_tokens;
};

static void put(struct file *f, const void *bytes, size_t n)
{
    if (f->n + n > f->room) {
        f->room = (f->n + n) * 2;
        f->bytes = realloc(f->bytes, f->room);
        RN_CHECK(f->bytes != NULL);
    }
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void put_u32(struct file *f, uint32_t value)
{
    put(f, &value, 4);
}

static void put_text(struct file *f, const char *text, size_t n)
{
    uint64_t bytes = n;

    put(f, &bytes, 8);
    put(f, text, n);
}

static void put_key(struct file *f, const char *key, uint32_t type)
{
    put_text(f, key, strlen(key));
    put_u32(f, type);
}

/* One that looks like a word: syllables of two scripts. */
static size_t make_word(uint64_t *rng, char *word)
{
    static const char *const onsets[] = {"b", "c", "d", "f", "g",  "l",  "m",  "n",
                                         "p", "r", "s", "t", "st", "tr", "ch", ""};
    static const char *const rests[] = {"a", "e", "i", "o", "u", "er", "an", "on", "al", "ing", "es", "ion", "y", "ed"};
    static const char *const far[] = {"\xd0\xb0",     "\xd0\xb5",     "\xd1\x80", "\xd0\xbd",
                                      "\xe4\xb8\xad", "\xe6\x96\x87", "\xc3\xa9"};
    uint64_t draw = rn_splitmix64(rng);
    uint32_t syllables = 1 + (uint32_t)(draw % 3), i;
    bool is_far = (draw >> 16) % 5 == 0;
    size_t n = 0;

    if (draw >> 8 & 1)
        word[n++] = ' ';
    for (i = 0; i < syllables; i++) {
        draw = rn_splitmix64(rng);
        if (is_far)
            n += (size_t)sprintf(word + n, "%s%s", far[(draw >> 8) % 7], far[(draw >> 16) % 7]);
        else
            n += (size_t)sprintf(word + n, "%s%s", onsets[(draw >> 8) % 16], rests[(draw >> 16) % 14]);
    }
    draw = rn_splitmix64(rng);
    if (draw % 6 == 0 && word[0] != ' ' && word[0] >= 'a')
        word[0] = (char)(word[0] & (word[0] < 0 ? 0xff : 0xdf));
    return n;
}

/* Marks, as they stand together in JSON and code, and pieces of characters. */
static size_t make_mark(uint64_t *rng, char *word)
{
    static const char *const marks[] = {"\"", "\\", "{",  "}", "[", "]",  ":", ",",        " ",    "\n",   "\"", ".",
                                        "(",  ")",  "\t", ";", "=", "\"", "/", "\xe4\xb8", "\xc3", "\xad", "a",  "x"};
    uint32_t count = 1 + (uint32_t)(rn_splitmix64(rng) % 4), i;
    size_t n = 0;

    for (i = 0; i < count; i++)
        n += (size_t)sprintf(word + n, "%s", marks[rn_splitmix64(rng) % (sizeof marks / sizeof marks[0])]);
    return n;
}

static size_t make_token(uint64_t *rng, uint32_t token, char *word)
{
    if (token < 3)
        return (size_t)sprintf(word, "%s", token == 0 ? "<unk>" : token == 1 ? "<s>" : "</s>");
    if (token < 259)
        return (size_t)sprintf(word, "<0x%02X>", token - 3);
    if (token < 259 + 1110)
        return (size_t)sprintf(word, "%0*u",
                               token < 269   ? 1
                               : token < 369 ? 2
                                             : 3,
                               token < 269   ? token - 259
                               : token < 369 ? token - 269
                                             : token - 369);
    if (token < 1500)
        return (size_t)sprintf(word, "%*s", (int)(token - 1369) % 80 + 1, "");
    return rn_splitmix64(rng) % 12 == 0 ? make_mark(rng, word) : make_word(rng, word);
}

static void make_file(struct file *f, uint32_t tokens)
{
    uint64_t rng = 3, entries = 5, zero = 0, count = tokens;
    char word[256];
    uint32_t i;

    put(f, "GGUF", 4);
    put_u32(f, 3);
    put(f, &zero, 8);
    put(f, &entries, 8);
    put_key(f, "tokenizer.ggml.model", RN_GGUF_STRING);
    put_text(f, "llama", 5);
    put_key(f, "tokenizer.ggml.eos_token_id", RN_GGUF_U32);
    put_u32(f, 2);
    put_key(f, "tokenizer.ggml.tokens", RN_GGUF_ARRAY);
    put_u32(f, RN_GGUF_STRING);
    put(f, &count, 8);
    for (i = 0; i < tokens; i++)
        put_text(f, word, make_token(&rng, i, word));
    put_key(f, "tokenizer.ggml.token_type", RN_GGUF_ARRAY);
    put_u32(f, RN_GGUF_I32);
    put(f, &count, 8);
    for (i = 0; i < tokens; i++)
        put_u32(f, i == 0 ? RN_TOKEN_UNKNOWN : i < 3 ? RN_TOKEN_CONTROL : i < 259 ? RN_TOKEN_BYTE : RN_TOKEN_NORMAL);
    put_key(f, "tokenizer.ggml.scores", RN_GGUF_ARRAY);
    put_u32(f, RN_GGUF_F32);
    put(f, &count, 8);
    for (i = 0; i < tokens; i++)
        put_u32(f, 0);
}

/* path NULL: made, of so many tokens. */
static struct rn_vocab *vocabulary(struct rn_heap *heap, const char *path, uint32_t tokens)
{
    struct file f = {NULL, 0, 0, 0};
    struct rn_vocab *vocab = NULL;
    runnel_error error = {0};
    struct rn_gguf *gguf;
    runnel_status status;

    if (path == NULL)
        make_file(&f, tokens);
    status = path == NULL ? rn_gguf_parse(heap, f.bytes, f.n, "made", &gguf, &error)
                          : rn_gguf_open(heap, path, &gguf, &error);
    if (status == RUNNEL_OK)
        status = rn_vocab_new(heap, gguf, 0, &vocab, &error);
    if (status != RUNNEL_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    rn_gguf_free(gguf);
    free(f.bytes);
    return vocab;
}

/* ---- Measuring ---- */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct times {
    double *us;
    uint32_t n;
};

static void report(const char *name, struct times *all, uint32_t from, double compile_us, const struct rn_masks *masks)
{
    double sum = 0;
    uint32_t n = all->n - from, i;

    qsort(all->us + from, n, sizeof *all->us, ascending);
    for (i = from; i < all->n; i++)
        sum += all->us[i];
    printf("%-16s %8.0f %8u %8.1f %8.1f %8.1f %8.1f", name, compile_us, n, n > 0 ? sum / n : 0, all->us[from + n / 2],
           all->us[from + n * 99 / 100], n > 0 ? all->us[all->n - 1] : 0);
    if (masks != NULL)
        printf(" %8u %8zu", masks->automaton->n_states, rn_masks_bytes(masks) / 1024);
    printf("\n");
}

struct bench {
    struct rn_heap heap;
    struct rn_vocab *vocab;
    struct rn_token_trie *trie;
    uint64_t *mask;
    struct times all;
};

static bool allowed(const struct bench *b, int32_t token)
{
    return (b->mask[token / 64] >> token % 64 & 1) != 0;
}

static void step(struct bench *b, struct rn_matcher *m, double *began)
{
    *began = now_us();
    RN_CHECK(rn_matcher_mask(m, b->mask, NULL) == RUNNEL_OK);
}

static void end_step(struct bench *b, struct rn_matcher *m, int32_t token, double spent)
{
    double began = now_us();

    RN_CHECK(rn_matcher_accept(m, token, NULL) == RUNNEL_OK);
    if (b->all.n < MOST_TIMES)
        b->all.us[b->all.n++] = spent + now_us() - began;
}

/* The longest token that the rest of a text begins with. */
static int32_t longest(const struct bench *b, const char *text)
{
    size_t best = 0, n = strlen(text);
    int32_t token, found = -1;

    for (token = 0; token < (int32_t)b->trie->n_vocab; token++) {
        struct rn_view bytes = rn_token_bytes(b->trie, token);

        if (bytes.n > best && bytes.n <= n && memcmp(bytes.bytes, text, bytes.n) == 0) {
            best = bytes.n;
            found = token;
        }
    }
    return found;
}

static void answer(struct bench *b, struct rn_matcher *m, const char *text)
{
    double began, spent;

    while (*text != '\0') {
        int32_t token = longest(b, text);

        step(b, m, &began);
        spent = now_us() - began;
        RN_CHECK(allowed(b, token));
        end_step(b, m, token, spent);
        text += rn_token_bytes(b->trie, token).n;
    }
    RN_CHECK(rn_matcher_can_end(m));
}

static void random_walk(struct bench *b, struct rn_matcher *m, uint64_t *rng)
{
    double began, spent;
    uint32_t i;

    for (i = 0; i < WALK_TOKENS; i++) {
        int32_t token = (int32_t)(rn_splitmix64(rng) % b->trie->n_vocab), tries;

        step(b, m, &began);
        spent = now_us() - began;
        for (tries = 0; tries < (int32_t)b->trie->n_vocab && (!allowed(b, token) || rn_token_is_end(b->trie, token));
             tries++)
            token = (token + 1) % (int32_t)b->trie->n_vocab;
        if (tries == (int32_t)b->trie->n_vocab)
            break;
        end_step(b, m, token, spent);
    }
}

static struct rn_automaton *compile(struct bench *b, size_t at, double *us)
{
    double times[21];
    struct rn_automaton *a = NULL;
    uint32_t i;

    for (i = 0; i < 21; i++) {
        double began = now_us();
        struct rn_grammar *g;
        runnel_error error = {0};

        rn_automaton_free(a);
        if (rn_front_read(&b->heap, cases[at].kind, cases[at].grammar, strlen(cases[at].grammar), b->vocab, NULL, &g,
                          &error) != RUNNEL_OK ||
            rn_automaton_new(&b->heap, g, &a, &error) != RUNNEL_OK) {
            fprintf(stderr, "%s: %s\n", cases[at].name, error.message);
            exit(1);
        }
        rn_grammar_free(g);
        rn_masks_free(rn_masks_new(&b->heap, a, b->trie, NULL));
        times[i] = now_us() - began;
    }
    qsort(times, 21, sizeof *times, ascending);
    *us = times[10];
    return a;
}

static void measure(struct bench *b, size_t at, double *compile_us)
{
    struct rn_automaton *a = compile(b, at, compile_us);
    struct rn_masks *masks = rn_masks_new(&b->heap, a, b->trie, NULL);
    uint32_t from = b->all.n, i;
    struct rn_matcher *m;
    uint64_t rng = at;

    RN_CHECK(masks != NULL && rn_matcher_new(masks, 8, &m, NULL) == RUNNEL_OK);
    answer(b, m, cases[at].answer);
    for (i = 0; i < WALKS; i++) {
        rn_matcher_reset(m, NULL);
        random_walk(b, m, &rng);
    }
    report(cases[at].name, &b->all, from, *compile_us, masks);
    rn_matcher_free(m);
    rn_masks_free(masks);
    rn_automaton_free(a);
}

int main(int argc, char **argv)
{
    double compile_us[CASES], began;
    struct bench b;
    uint32_t tokens = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : TOKENS;
    size_t i;

    rn_heap_init(&b.heap, NULL);
    b.vocab = vocabulary(&b.heap, tokens < FEWEST_TOKENS ? argv[1] : NULL, tokens);
    began = now_us();
    b.trie = rn_token_trie_new(&b.heap, b.vocab);
    RN_CHECK(b.trie != NULL);
    printf("%u tokens, %u nodes, %zu KiB, made in %.1f ms\n", b.trie->n_vocab, b.trie->n_nodes, b.trie->size / 1024,
           (now_us() - began) * 1e-3);
    b.mask = malloc(b.trie->words * sizeof *b.mask);
    b.all = (struct times){malloc(MOST_TIMES * sizeof(double)), 0};
    RN_CHECK(b.mask != NULL && b.all.us != NULL);
    printf("%-16s %8s %8s %8s %8s %8s %8s %8s %8s\n", "us", "compile", "tokens", "mean", "median", "p99", "longest",
           "states", "KiB");
    for (i = 0; i < CASES; i++)
        measure(&b, i, &compile_us[i]);
    qsort(compile_us, CASES, sizeof *compile_us, ascending);
    report("all", &b.all, 0, compile_us[CASES / 2], NULL);
    free(b.mask);
    free(b.all.us);
    rn_token_trie_free(b.trie);
    rn_vocab_free(b.vocab);
    return 0;
}
