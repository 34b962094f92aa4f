/* Any bytes as a grammar: one program for each notation (RN_FUZZ_FRONT). The input is the grammar up to its last "TEXT"
 * mark, and the bytes behind it are read with what it becomes. Whatever it is: an end within the bounds, a sentence
 * with an error; masks that agree with what is accepted; a text that can be taken back; and nothing left in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/matcher.h"

#define MARK "TEXT"
#define MARK_BYTES (sizeof MARK - 1)
#define WORDS 4u /* of a mask: 256 tokens, each a byte */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const struct rn_grammar_limits limits = {.source_bytes = 16384,
                                                .rules = 1000,
                                                .nodes = 20000,
                                                .depth = 64,
                                                .states = 20000,
                                                .bytes = 8 << 20,
                                                .steps = 500000};
static const struct rn_masks_limits masks_limits = {
    .stack_bytes = 1 << 20, .mask_bytes = 1 << 20, .depth = 100, .steps = 100000};

/* Each byte: allowed by the mask exactly where it is accepted. */
static void check_mask(struct rn_matcher *m, const uint64_t *mask)
{
    int32_t token;

    for (token = 0; token < 256; token++) {
        runnel_status status = rn_matcher_accept(m, token, NULL);
        bool allowed = (mask[token / 64] >> token % 64 & 1) != 0;

        RN_CHECK(status == RUNNEL_BUSY || (status == RUNNEL_OK) == allowed);
        if (status == RUNNEL_OK)
            RN_CHECK(rn_matcher_rollback(m, 1));
    }
}

static void read_text(struct rn_matcher *m, const uint8_t *text, size_t n)
{
    uint64_t mask[WORDS];
    char forced[16];
    size_t i, k;

    for (i = 0; i < n && i < 64; i++) {
        if (rn_matcher_mask(m, mask, NULL) != RUNNEL_OK)
            return;
        if (i < 8)
            check_mask(m, mask);
        if (rn_matcher_forced(m, forced, sizeof forced, &k, NULL) == RUNNEL_OK && k > 0)
            RN_CHECK(mask[(uint8_t)forced[0] / 64] == (uint64_t)1 << (uint8_t)forced[0] % 64);
        if (rn_matcher_accept(m, text[i], NULL) != RUNNEL_OK)
            return;
        rn_masks_check(m->masks);
    }
}

static void use(struct rn_heap *heap, const struct rn_grammar *grammar, const struct rn_token_trie *trie,
                const uint8_t *text, size_t n)
{
    runnel_error error = {0};
    struct rn_automaton *a;
    runnel_status status = rn_automaton_new(heap, grammar, &a, &error);
    struct rn_masks *masks;
    struct rn_matcher *m;

    RN_CHECK(status == RUNNEL_OK || (error.status == status && error.message[0] != '\0'));
    if (status != RUNNEL_OK)
        return;
    rn_automaton_check(a);
    masks = rn_masks_new(heap, a, trie, &masks_limits);
    RN_CHECK(masks != NULL);
    if (rn_matcher_new(masks, 4, &m, NULL) == RUNNEL_OK) {
        read_text(m, text, n);
        rn_matcher_free(m);
    }
    rn_masks_free(masks);
    rn_automaton_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t split = size;
    runnel_error error = {0};
    struct rn_grammar *grammar;
    struct rn_token_trie *trie;
    struct rn_vocab *vocab;
    struct rn_heap heap;
    runnel_status status;

    while (split >= MARK_BYTES && memcmp(data + split - MARK_BYTES, MARK, MARK_BYTES) != 0)
        split--;
    if (split < MARK_BYTES)
        return 0;
    rn_heap_init(&heap, NULL);
    vocab = rn_vocab_new_bytes(&heap);
    trie = rn_token_trie_new(&heap, vocab);
    status =
        rn_front_read(&heap, RN_FUZZ_FRONT, (const char *)data, split - MARK_BYTES, vocab, &limits, &grammar, &error);
    RN_CHECK(status == RUNNEL_OK || (error.status == status && error.message[0] != '\0'));
    if (status == RUNNEL_OK) {
        use(&heap, grammar, trie, data + split, size - split);
        rn_grammar_free(grammar);
    }
    rn_token_trie_free(trie);
    rn_vocab_free(vocab);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}

/* ---- Seeds -------------------------------------------------------------------------------- */

static const struct {
    enum rn_front front;
    const char *grammar;
} seeds[] = {
    {RN_FRONT_GBNF, "root ::= a | <[7]> !<[8]>* [^a-c\\]\\x20\\u00e9-\\U0001F600]{2,3} . # remark\na ::= a \"x\" | b\n"
                    "b ::= c \"\\n\"?\nc ::= a \"z\" | (\"y\" |\n\"\")+" MARK "yzx"},
    {RN_FRONT_GBNF,
     "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | \"{\" \"}\" | [0-9]+{,4}" MARK "[[1],2"},
    {RN_FRONT_REGEX, "^(?:a|b{2,}c?)*[^\\d\\w-]\\s+(?<n>\\p{Lu}|[\\u{1F600}-\\x{7f}])$|^.\\.\\cJ" MARK "abbc"},
    {RN_FRONT_REGEX, "([a-z]+@[a-z]+(\\.[a-z]{2,3})+)?|\\uD83D\\uDE00*?|\\P{L}{0,3}" MARK "a@b.cd"},
    {RN_FRONT_EBNF, "?start: sum -> x\n | NAME \"=\"i sum\n!sum: sum \"+\" (T | \"a\"..\"z\")~2..3 | [T] {\nT.2: "
                    "/[a-z]+/is | \"\\n\"\n"
                    "%import common.CNAME -> NAME\n%import common (WS, INT)\n%ignore WS // r" MARK "x=ab"},
    {RN_FRONT_EBNF, "start: (A | start B{1,2})*\nA: \"(\" B \")\"\nB: /\\/x[/]/ <[3]>?" MARK "(/x/)"},
    {RN_FRONT_CHOICES, "1\na2\nbc" MARK "a"},
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char path[1024];
    FILE *file;
    size_t i;

    (void)argc;
    (void)argv;
    for (i = 0; folder != NULL && i < sizeof seeds / sizeof seeds[0]; i++) {
        if (seeds[i].front != RN_FUZZ_FRONT)
            continue;
        snprintf(path, sizeof path, "%s/seed_%zu", folder, i);
        file = fopen(path, "wb");
        RN_CHECK(file != NULL);
        fputs(seeds[i].grammar, file);
        fclose(file);
    }
    return 0;
}
