/* Any bytes as JSON: what jansson reads is read as the same values, what it refuses is refused with a place, and
 * nothing is left in memory. Seeds: texts with all of the grammar, written here. */
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "pieces.h"
#include "tests/text/json_judge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct rn_heap heap;
    bool right;

    RN_CHECK(text != NULL);
    memcpy(text + 1, data, size); /* to the very end of its memory: a byte read behind it is found */
    rn_heap_init(&heap, NULL);
    RN_CHECK(json_agrees(&heap, text + 1, size, false, &right) && json_agrees(&heap, text + 1, size, true, &right));
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    free(text);
    return 0;
}

static const char *const seeds[] = {
    "{\"a\": [1, -2.5e+3, 0.1E-2, true, false, null], \"b\\u00e9\\ud83d\\ude00\": {\"\": "
    "\"x\\\"\\\\\\/\\b\\f\\n\\r\\t\"},\n"
    "\t\"a\": \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}\r\n",
    "[[[[]]], {}, \"text that is longer than a word of eight bytes\", 9223372036854775807, -0, 1e308, 4.9e-324]",
    "12345678901234567890.123456789e-5",
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    write_seeds(seeds, sizeof seeds / sizeof seeds[0]);
    return 0;
}
