/* The table of architectures: a row each. What model/ knows of them is this header.
 *
 * The rows are in table.c. A family of architectures has a file beside it, with the builders and key readers of its
 * rows, written with model/build.h and model/hparams.h. */
#ifndef RN_MODEL_ARCH_TABLE_H
#define RN_MODEL_ARCH_TABLE_H

#include "model/gguf.h"

struct rn_build;
struct rn_hparams_reader;

enum {
    RN_ARCH_NEOX = 1,          /* pairs of the rotation: see rn_rope */
    RN_ARCH_NO_ROPE = 2,       /* nothing is rotated */
    RN_ARCH_LAYER_NORM = 4,    /* norms are LAYER_NORM with a bias where the file has one, not RMS_NORM */
    RN_ARCH_GAPS = 8,          /* blocks may be without attention: head counts of 0 */
    RN_ARCH_BIDIRECTIONAL = 16 /* attention sees what is behind a row, unless key attention.causal says true */
};

struct rn_arch {
    const char *name; /* as in general.architecture */
    unsigned flags;
    runnel_status (*keys)(const struct rn_hparams_reader *r); /* what is not common to all; NULL: nothing */
    void (*build)(struct rn_build *b);                        /* b->arch is the row */
};

/* NULL: not known. */
const struct rn_arch *rn_arch_find(struct rn_view name);

#endif
