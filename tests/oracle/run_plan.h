/* A model file, its plan and a backend, for tests that ask "which logits?".
 *
 * Every sequence has a block table of its own, drawn from a shuffled list of all blocks, so that no
 * two of its blocks are neighbours but by chance. Steps are submitted and waited for. */
#ifndef RN_TESTS_ORACLE_RUN_PLAN_H
#define RN_TESTS_ORACLE_RUN_PLAN_H

#include "cpu/team.h"
#include "model/adapter.h"
#include "model/backend.h"

struct run_options {
    const char *backend;     /* "reference" or "fast" */
    uint32_t threads;        /* of the team; 0: 2 */
    uint32_t block_tokens;   /* 0: 16 */
    uint32_t context_tokens; /* 0: 512, but not more than trained */
    uint32_t max_seqs;       /* 0: 4; each gets room for a full context */
    uint32_t tree_depth;     /* as in rn_backend_limits */
    runnel_kv_type kv_type;
    uint64_t seed;        /* of the shuffle of blocks */
    const uint32_t *taps; /* [n_taps] blocks */
    uint32_t n_taps;
    const void *bytes; /* [n_bytes] of the file, which then is only a name; NULL: they are at the path */
    size_t n_bytes;
    struct rn_expert_use *expert_use;         /* NULL: not counted */
    const struct rn_adapter_source *adapters; /* [n_adapters]: numbers from 1 on, for pieces */
    uint32_t n_adapters;
};

struct run {
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    struct rn_adapters *adapters; /* NULL: none */
    struct rn_team *team;
    struct rn_backend *backend;
    struct rn_backend_limits limits;
    uint32_t *blocks; /* [max_seqs, blocks_per_seq], all different */
    uint32_t blocks_per_seq;
    uint32_t width;  /* of what a wanted row gives: n_vocab, or of an encoder features_width */
    float *logits;   /* [max_rows, width] of the last step: of an encoder features */
    float *features; /* [max_rows, features_width] of the last step; NULL without taps */
};

/* Positions [first, first + n) of sequence `seq` (below max_seqs) in one step. What is behind position `first` of it in
 * a plan with recurrent states is what the sequence's last step has left. */
struct run_piece {
    uint32_t seq, first, n;
    const int32_t *tokens;  /* [n] */
    bool last_only;         /* logits of the last position only; else of all */
    const int32_t *parents; /* [n] of a tree, see rn_step.parents; then it is the step's only piece. NULL: no tree */
    uint32_t adapter;       /* 0: none */
};

/* Fails the test on any error. */
void run_open(struct run *run, const char *path, const struct run_options *options);
void run_close(struct run *run);

/* One step; logits of the wanted rows, in order, in run->logits; of an encoder these are features. */
void run_step(struct run *run, const struct run_piece *pieces, uint32_t n_pieces);

/* All tokens of a sequence in steps of `chunk` positions; logits [n, width] to out. */
void run_tokens(struct run *run, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t chunk, float *out);

/* A .logits file (README of ../shared); of an encoder it has features, and n_vocab is their width. */
struct oracle {
    uint32_t n_tokens, n_vocab;
    int32_t *tokens;
    float *logits; /* [n_tokens, n_vocab] */
};
void oracle_open(struct rn_heap *heap, const char *path, struct oracle *oracle);
void oracle_close(struct rn_heap *heap, struct oracle *oracle);

/* Ends the test as skipped (77) where there is no shared folder. */
void shared_or_skip(void);
/* shared_find, in one of a few static buffers; without the folder the test ends as skipped. */
const char *shared_path(const char *name);

#endif
