/* A small vocabulary: see words.h. */
#include "tests/grammar/words.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/gguf/gguf.h"
#include "tests/text/fixture.h"

struct rn_vocab *words_vocab(struct rn_heap *heap, const char *const *words, size_t n)
{
    size_t count = WORD_FIRST + n, i;
    const char **texts = calloc(count, sizeof *texts);
    int32_t *types = calloc(count, sizeof *types);
    float *scores = calloc(count, sizeof *scores);
    char names[256][8];
    struct maker maker;
    struct rn_vocab *vocab;

    texts[WORD_UNKNOWN] = "<unk>";
    types[WORD_UNKNOWN] = RN_TOKEN_UNKNOWN;
    texts[WORD_END] = "</s>";
    texts[WORD_THINK] = "<think>";
    texts[WORD_DONE] = "</think>";
    types[WORD_END] = types[WORD_THINK] = types[WORD_DONE] = RN_TOKEN_CONTROL;
    for (i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        texts[WORD_BYTES + i] = names[i];
        types[WORD_BYTES + i] = RN_TOKEN_BYTE;
    }
    for (i = 0; i < n; i++) {
        texts[WORD_FIRST + i] = words[i];
        types[WORD_FIRST + i] = RN_TOKEN_NORMAL;
    }
    maker_init(&maker);
    maker_string(&maker, KEY "model", "llama");
    maker_strings(&maker, KEY "tokens", texts, count);
    maker_array(&maker, KEY "token_type", RN_GGUF_I32, types, count, count * sizeof *types);
    maker_array(&maker, KEY "scores", RN_GGUF_F32, scores, count, count * sizeof *scores);
    maker_u32(&maker, KEY "eos_token_id", WORD_END);
    vocab = made(heap, &maker);
    free(texts);
    free(types);
    free(scores);
    return vocab;
}
