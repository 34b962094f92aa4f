/* What the targets over HTTP share: how bytes are cut into pieces, and seeds that are texts. */
#ifndef RUNNEL_FUZZ_PIECES_H
#define RUNNEL_FUZZ_PIECES_H

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/* A piece's length: all; one; or some that depend on where it begins. */
static inline size_t piece_at(size_t at, size_t size, unsigned cut)
{
    size_t n = cut == 0 ? size : cut == 1 ? 1 : 1 + (at * 2654435761u >> 7) % cut;

    return n < size - at ? n : size - at;
}

/* With RUNNEL_FUZZ_SEEDS set, writes the seeds there before anything else: see run.sh. */
static inline void write_seeds(const char *const *seeds, size_t n)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char name[512];

    for (size_t i = 0; folder != NULL && i < n; i++) {
        FILE *file;

        snprintf(name, sizeof name, "%s/seed-%zu", folder, i);
        file = fopen(name, "wb");
        RN_CHECK(file != NULL && fputs(seeds[i], file) >= 0 && fclose(file) == 0);
    }
}

#endif
