/* runnel-tiny of ../shared, a head that is trained for it here, in seconds, on the first part of a text, and prompts
 * out of the rest. */
#ifndef RN_TESTS_ACTORS_DRAFT_TAUGHT_H
#define RN_TESTS_ACTORS_DRAFT_TAUGHT_H

#include <stddef.h>
#include <stdint.h>

#include "tests/actors/fixture.h"

extern struct taught {
    char target[300];
    char head_path[64]; /* GGUF; removed at the end */
} taught;

/* steps: of training; UNLESS_SLOW makes them few, and the head bad: training gives way to all other threads. layer: the
 * block whose output the head reads; 0: as runnel_eagle_train chooses. Ends the process as skipped (77) without
 * ../shared. 0, or 1: training failed. */
int taught_begin(uint32_t steps, uint32_t layer);
void taught_end(void);

/* Up to n bytes of the text that was not trained on, from a word's beginning, of its own for each i, and 0. */
void taught_prompt(uint32_t i, uint32_t n, char *prompt);

#endif
