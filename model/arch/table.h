/* The table of architectures: a row each. What model/ knows of them is this header.
 *
 * The rows are in table.c. A family of architectures has a file beside it, with the builders and key readers of its
 * rows, written with model/build/build.h and model/hparams.h. */
#ifndef RN_MODEL_ARCH_TABLE_H
#define RN_MODEL_ARCH_TABLE_H

#include <assert.h>
#include <stdint.h>

#include "model/activation.h"
#include "model/gguf/gguf.h"
#include "runnel.h"

struct rn_build;
struct rn_hparams_reader;

/* Flags of a row: flags.def. */
enum rn_arch_bit {
#define RN_ARCH_FLAG(NAME, words) RN_ARCH_BIT_##NAME,
#include "model/arch/flags.def"
    RN_ARCH_BITS
};

enum rn_arch_flag {
#define RN_ARCH_FLAG(NAME, words) RN_ARCH_##NAME = UINT64_C(1) << RN_ARCH_BIT_##NAME,
#include "model/arch/flags.def"
};

/* How experts are routed. */
enum {
    RN_EXPERTS_NORMALISED = 1 << 0,  /* the weights of those chosen are divided by their sum */
    RN_EXPERTS_SIGMOID = 1 << 1,     /* weights are sigmoids, not a softmax */
    RN_EXPERTS_KEYS = 1 << 2,        /* keys expert_gating_func and expert_weights_norm may say otherwise */
    RN_EXPERTS_SCALE = 1 << 3,       /* key expert_weights_scale */
    RN_EXPERTS_NORM_KEY = 1 << 9,    /* of these the second alone */
    RN_EXPERTS_GATING_KEY = 1 << 11, /* and the first */
    RN_EXPERTS_BEFORE = 1 << 5,      /* weights count before the experts: each sees the row times its own */
    RN_EXPERTS_SOFTMAX = 1 << 4,     /* nothing of this: weights are what the softmax gives */
    RN_EXPERTS_AVERAGED = 1 << 6,    /* with shared experts: half of what both give */
    RN_EXPERTS_LATENT =
        1 << 8, /* where the file has ffn_latent_down and ffn_latent_up (or ffn_routed_*), these stand around them */
    RN_EXPERTS_SHARE = 1 << 12, /* without key expert_feed_forward_length an expert is as wide as feed_forward_length
                                   divided by those used, as in llama.cpp; else as wide as feed_forward_length */
    RN_EXPERTS_ALWAYS_SHARED = 1 << 10, /* where the file has no shared expert, one without products: act(x) */
    RN_EXPERTS_BESIDE = 1 << 7 /* where the file has ffn_up, the dense feed-forward beside the experts; what both give
                                       times the root of 1/2 */
};

static_assert(RN_ARCH_BITS <= 64, "a flag is a bit of rn_arch.flags");

struct rn_arch {
    const char *name;                                         /* as in general.architecture */
    uint64_t flags;                                           /* RN_ARCH_* */
    runnel_status (*keys)(const struct rn_hparams_reader *r); /* what no flag says; NULL: nothing */
    void (*build)(struct rn_build *b);                        /* NULL: rn_build_decoder. b->arch is the row */
    int16_t (*block)(struct rn_build *b, int16_t x);          /* rn_build_block of it; NULL: as the flags say */
    enum rn_activation act;
    unsigned experts;          /* RN_EXPERTS_*, of files that have experts; 0: a file with experts is refused */
    const char *ffn_norm;      /* the norm before the feed-forward; NULL: blk.%d.ffn_norm */
    const char *output_norm;   /* the norm before the output; NULL: output_norm; "": none */
    uint32_t window_period;    /* key attention.sliding_window counts, but for the last of each so many blocks (the
                                  first with FULL_FIRST); 0: the key does not count. Key
                                  attention.sliding_window_pattern may say otherwise */
    const char *const *unused; /* tensors of the file that are no part of the forward pass, NULL behind the last; or
                                  NULL */
};

/* Row `index`, in the order of the table; NULL behind the last. */
const struct rn_arch *rn_arch_at(size_t index);

/* What the row's flags say, in words; cut where text is too small. */
enum { RN_ARCH_FEATURES_BYTES = 1024 };
void rn_arch_features(const struct rn_arch *arch, char text[RN_ARCH_FEATURES_BYTES]);

/* NULL: not known. */
const struct rn_arch *rn_arch_find(struct rn_view name);

/* The name of flag `bit` and of activation `act` as rn_arch_rows_init reads them: small letters, words joined by
 * '-'. */
void rn_arch_flag_name(enum rn_arch_bit bit, char name[RN_ARCH_NAME_BYTES]);
const char *rn_arch_act_name(enum rn_activation act);

/* ---- Rows of a host (host_row.c) ---- */

/* A row that owns its texts. Constant after rn_arch_rows_init. */
struct rn_arch_row {
    struct rn_arch arch;
    char name[RN_ARCH_NAME_BYTES], ffn_norm[RN_ARCH_NAME_BYTES];
    char **unused; /* [n_unused + 1] */
};

struct rn_arch_rows {
    struct rn_arch_row *rows;
    size_t n;
};

/* Rows made of descriptions[0..n), in *rows. INVALID: a description, named by its number and what is wrong with it.
 * NO_MEMORY. On failure there is nothing to free. */
runnel_status rn_arch_rows_init(struct rn_arch_rows *rows, struct rn_heap *heap,
                                const runnel_architecture_row *const *descriptions, size_t n, runnel_error *error);
void rn_arch_rows_fini(struct rn_arch_rows *rows, struct rn_heap *heap);

/* ---- The row for a file ---- */

/* A copy of a row, or one that is made for the file. Stays where it is: arch.name may be `name`. */
struct rn_arch_choice {
    struct rn_arch arch;
    char name[RN_ARCH_NAME_BYTES];
    char assumed[RN_ARCH_ASSUMED_BYTES]; /* a sentence: what no key or tensor says; "" for a row that was found */
};

/* A row for a file whose architecture, choice->name, no table has: read off its tensors and keys, see standard.c.
 * UNSUPPORTED: they are not a standard decoder's; the first of them that is not is named. */
runnel_status rn_arch_standard(const struct rn_gguf *gguf, struct rn_arch_choice *choice, runnel_error *error);

#endif
