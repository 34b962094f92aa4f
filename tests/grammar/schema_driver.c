/* Texts of schemas, for schema_random.py: each line of the input is a schema; the answer is one line with "refused" and
 * the sentence, or some lines with a text of its grammar each, chosen byte by byte; then an empty line.
 *
 *     schema_driver SEED TEXTS < schemas */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/grammar/schema_judge.h"

#define LINE_BYTES 65536u
#define TEXT_BYTES 400u
#define LONG_TEXT 60u /* from here on it looks for an end */

static uint64_t rng;

/* Which of the bytes that may come next; -1: the end. */
static int choose(struct judge *judge, uint32_t set, uint32_t length)
{
    uint8_t bytes[256], ends[8];
    uint32_t n = 0, n_ends = 0, byte;

    for (byte = 0; byte < 256; byte++) {
        if (rn_stacks_read(&judge->stacks, set, (uint8_t)byte) == RN_STACKS_DEAD)
            continue;
        bytes[n++] = (uint8_t)byte;
        if (byte != 0 && strchr("\"]},:", (int)byte) != NULL)
            ends[n_ends++] = (uint8_t)byte;
    }
    if (judge->stacks.sets[set].bottom && (n == 0 || length > LONG_TEXT || rn_splitmix64(&rng) % 4 == 0))
        return -1;
    if (n_ends > 0 && (length > LONG_TEXT || rn_splitmix64(&rng) % 3 == 0))
        return ends[n_ends - 1 - (length > LONG_TEXT ? 0 : rn_splitmix64(&rng) % n_ends)];
    return bytes[rn_splitmix64(&rng) % n];
}

static void one_text(struct judge *judge)
{
    char text[TEXT_BYTES];
    uint32_t set, n = 0;

    judge->stacks.steps = 100000000;
    for (set = rn_stacks_start(&judge->stacks); n < TEXT_BYTES; n++) {
        int byte = choose(judge, set, n);

        if (byte < 0) {
            printf("%.*s\n", (int)n, text);
            return;
        }
        text[n] = (char)byte;
        set = rn_stacks_read(&judge->stacks, set, (uint8_t)byte);
    }
}

int main(int argc, char **argv)
{
    char *line = malloc(LINE_BYTES);
    struct rn_heap heap;

    rn_heap_init(&heap, NULL);
    rng = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    while (fgets(line, LINE_BYTES, stdin) != NULL) {
        runnel_error error = {0};
        struct judge judge;
        runnel_status status = judge_init(&judge, &heap, line, strlen(line), NULL, &error);

        if (status != RUNNEL_OK)
            printf("refused %s\n", error.message);
        for (int i = 0; status == RUNNEL_OK && judge.automaton != NULL && i < (argc > 2 ? atoi(argv[2]) : 4); i++)
            one_text(&judge);
        judge_fini(&judge);
        printf("\n");
    }
    free(line);
    return rn_heap_blocks(&heap) != 0;
}
