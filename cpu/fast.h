/* The fast backend from inside: what backend.c sets up and execute.c runs. */
#ifndef RN_CPU_FAST_H
#define RN_CPU_FAST_H

#include <stdatomic.h>

#include "cpu/program.h"
#include "cpu/team.h"
#include "cpu/tile_file.h"

/* Keys and values of one cache layer: [block][kv head][dim][position in block] and
 * [block][kv head][position in block][dim]; `dim` counts the bytes of a row where the format is grouped
 * (model/kv.h). Scores are summed over dim, one position per lane. v_dim 0: values are the front of the keys, and there
 * are no others. */
struct rn_fast_layer {
    uint8_t *keys, *values;
    uint32_t kv_heads, k_dim, v_dim;
    size_t key_head, value_head;   /* bytes of one head in one block */
    size_t key_block, value_block; /* bytes of one block */
    bool windowed;                 /* it lies in blocks of layers with windows */
};

/* Consecutive rows of one sequence whose attention is computed together. */
struct rn_fast_group {
    uint32_t row, n;
};

/* Where a row of a tree stores, and whether it stands there: then its ancestors do, too. */
struct rn_fast_place {
    uint32_t place, first; /* first: its sequence's first row */
    bool in_line;
};

/* One worker's own memory. */
struct rn_fast_scratch {
    void *panel;       /* of the kernels */
    const void *meets; /* of a product: whose inputs are gathered in the panel; NULL: nobody's */
    float *attend;
    float *means;      /* [RN_MEANS_PARTS][rn_attend_part of the widest]; NULL without a mean window */
    uint32_t *blocks;  /* [blocks of the longest context]: a table of the row of a tree; NULL without trees */
    uint8_t *gathered; /* blocks of the chosen keys of one head of a row; NULL where attention looks at all */
    uint32_t *order;   /* [max_rows * used]: entries (row, j), sorted by expert */
    uint32_t *starts;  /* [experts + 1] */
    uint32_t *active;  /* [experts]: those that have entries */
};

/* In which order the weights of a type are read. */
enum rn_fast_order { RN_FAST_UNDECIDED, RN_FAST_ROWS, RN_FAST_TILES };
enum { RN_FAST_TYPES = 64 };

struct rn_fast {
    struct rn_backend base; /* first */
    struct rn_device_caps caps;
    struct rn_heap *heap;
    struct rn_team *team;
    const struct rn_level *level;
    const struct rn_plan *plan; /* NULL: not prepared */
    struct rn_backend_limits limits;
    uint32_t block_shift;

    struct rn_program program;
    float **slots;                  /* [n_slots][max_rows or max_outs][width]; NULL for the logits: the step's */
    void *inputs[RN_INPUT_KINDS];   /* quantised rows */
    void *laid;                     /* [sixteens of rows][blocks], RN_LAID_BYTES each; NULL: nothing is laid */
    float *own_logits;              /* [max_outs][n_vocab]: of steps that have no place for them; NULL: limits.draws is
                                        false */
    float *logits;                  /* of the current step: its own place or that */
    struct rn_drawn *drawn;         /* [max_outs]: what the last step has drawn ... */
    uint32_t n_drawn;               /* ... and for how many rows. Of whoever holds the job */
    _Atomic uint32_t next_draw;     /* of the current step: the next wanted row to draw for */
    uint8_t **tiles;                /* [n_weights]: of a matrix in tiles; NULL: it is read where it lies */
    struct rn_tile_file *tile_file; /* where some of them are mapped; NULL: all are memory of the backend's own */
    uint8_t orders[RN_FAST_TYPES];  /* of each type, enum rn_fast_order */
    struct rn_reading readings[RN_FAST_TYPES][RN_READINGS]; /* how its tiles are read */
    size_t least_sample, most_sample; /* bytes of a format by which its orders are tried: not where it has less than the
                                         least. A test may change them before prepare */
    float **vectors;                  /* [n_weights]: norm weights and biases as floats; NUMBERS likewise, [cols, rows];
                                        NULL for matrices */
    struct rn_fast_layer *layers;     /* [n_kv_layers] */
    char layout[32];                  /* how a block's bytes are arranged, and who computed them */
    uint8_t *states;                  /* [n_states][state_stride]: recurrent states; NULL: the plan has none */
    size_t state_stride;
    float **angles;                  /* [n_ropes][max_rows][dims]: cosines, then sines of a row's position */
    float **slopes;                  /* [n_ops]: of an ATTENTION whose scores fall with distance, of each head; else
                                        NULL */
    struct rn_fast_scratch *scratch; /* [threads] */
    uint32_t least_kv_heads;         /* over the layers */
    uint32_t group_rows;             /* rows of a group at most */
    uint32_t n_groups;
    struct rn_fast_group *groups; /* [max_rows]: of the step, those with the longest contexts first */
    float *scores;                /* [threads][context_tokens]: of a worker's row, or of each row of a step that has no
                                     more of them than there are workers; NULL where no positions are chosen */
    _Atomic uint32_t *scored;     /* [threads]: spans of each of such rows; 0 between ops */
    uint32_t *in_order;           /* [blocks of the most chosen positions]: 0, 1, 2 ... */
    uint32_t max_split;           /* attentions (group, head of keys) up to which their segments are split */
    float *parts;                 /* [max_split][RN_ATTEND_SEGMENTS][rn_attend_part of the widest] */
    _Atomic uint32_t *parts_done; /* [max_split]: segments of each; 0 between attentions */
    struct rn_fast_place *places; /* [max_rows]: of a step with a tree; NULL without trees */
    uint32_t tree_blocks;         /* blocks behind the cache's own, of each worker, for what a row of a tree sees */
    uint32_t *mean_rows;          /* [max_rows]: of the step, those with which a chunk ends */
    uint32_t n_mean_rows;
    uint32_t *selected_rows; /* [max_rows]: the rows behind SELECT: first those with logits, in order */
    uint32_t n_selected;
    bool is_adapted; /* a row of the step has an adapter */
    bool has_features;
    int32_t *features_of;     /* [max_rows]: index of a row's features, -1: not wanted. Set where any are */
    _Atomic uint32_t *pieces; /* [instructions]: the next piece of a shared one */
    _Atomic uint32_t *shares; /* [threads][share_stride]: of an instruction the next piece of a thread's share, or of
                                 the stretch of the node whose first worker that is */
    size_t share_stride;      /* instructions, rounded up to a line */

    struct rn_job job;
    struct rn_step *step;            /* the one that runs; belongs to whoever holds the job */
    struct rn_step *queue;           /* oldest first, the job holder's */
    _Atomic(struct rn_step *) inbox; /* newest first; pushed by submit, emptied by the job holder */
    _Atomic uint32_t pending;        /* steps submitted and not done; the job is held while it is not 0 */
};

/* Brings all weights of the plan into memory on the team, so that no step waits for the disk. Sleeps meanwhile;
 * progress is called on the calling thread. CANCELLED when it says so. */
runnel_status rn_fast_load_weights(struct rn_fast *fast, rn_progress_fn progress, void *user);
void rn_fast_free_tiles(struct rn_fast *fast);

/* Of a format, for its trial: the least shows memory and not the caches. */
enum { RN_LEAST_SAMPLE = 16 << 20, RN_MOST_SAMPLE = 24 << 20 };

/* team_order.c: while weights are loaded, in their order. take_tiles: memory for the tiles of weight i, which from now
 * on are what products read; NULL: it stays as it lies. Which it is: as limits.weight_order says, or as a trial of the
 * weight's format does, which sleeps for some milliseconds while the team works. */
uint8_t *rn_fast_take_tiles(struct rn_fast *fast, uint32_t i);

/* Tiles of weight i in the tile file, which products read from now on; NULL: there are none, or none are wanted. */
const uint8_t *rn_fast_map_tiles(struct rn_fast *fast, uint32_t i);

/* Products read weight i as it lies in the model's file again. */
void rn_fast_forget_tiles(struct rn_fast *fast, uint32_t i);

uint64_t rn_fast_tiled_bytes(const struct rn_backend *backend);
uint64_t rn_fast_mapped_bytes(const struct rn_backend *backend);

/* Memory in huge pages where the kernel has them, aligned to a line at least; NULL on refusal. */
void *rn_fast_take_huge(struct rn_heap *heap, size_t bytes);

/* Rows that one worker, or the workers of one node, have of n. */
struct rn_fast_rows {
    uint32_t first, n;
};

/* The share of the workers [first, end): of whole tiles of so many rows, but for the last ones; of no workers none. A
 * worker that lays weights out, and the one that reads them, have the same. */
struct rn_fast_rows rn_fast_share(uint32_t n_rows, uint32_t tile, uint32_t first, uint32_t end, uint32_t n_workers);

/* The products of one input, n times, with rows of a weight, the first of which is at `matrix`; reading: how tiles are
 * read; NULL: rows lie as in the file; out [n, n_rows]. For trials; by a worker. */
void rn_fast_try(struct rn_fast *fast, uint32_t worker, const struct rn_kernel *kernel, const struct rn_weight *weight,
                 const uint8_t *matrix, uint32_t n_rows, const struct rn_reading *reading, const void *input,
                 uint32_t n, float *out);

/* Makes `step` the current one: the rows of the wanted logits, its groups, no piece taken. Before the team
 * runs it. */
void rn_fast_ready(struct rn_fast *fast, struct rn_step *step);

/* means.c. ready: part of rn_fast_ready. due: whether means are made in front of the phase, which has an ATTENTION: the
 * same for all workers of a step. store: a worker's part of them; all meet at a barrier before the phase. attend: one
 * row of t, which is as for all positions up to its own, where the row sees means; parts[RN_MEANS_PARTS] is scratch. */
enum { RN_MEANS_PARTS = 2 * RN_ATTEND_SEGMENTS + 1 }; /* means, positions, sinks */
void rn_fast_means_ready(struct rn_fast *fast);
bool rn_fast_means_due(const struct rn_fast *fast, uint32_t phase);
void rn_fast_means_store(struct rn_fast *fast, uint32_t phase, uint32_t worker, uint32_t n_workers);
void rn_fast_means_attend(const struct rn_attention *attention, const struct rn_attend *t,
                          const struct rn_step_seq *seq, const struct rn_chunk_span *span, float *parts);

/* tree.c. blocks: what one worker needs of blocks besides the cache's. ready: part of rn_fast_ready. place: the
 * position at whose place a row stores. in_line: it sees what lies at the places of its positions, as do those before
 * it. see: the blocks of t, which is as for such a row, become those that the row sees, in one head of keys; t->from
 * and t->to say where it looks. move: one worker's part of a step's moves. */
uint32_t rn_fast_tree_blocks(const struct rn_backend_limits *limits);
void rn_fast_tree_ready(struct rn_fast *fast);
static inline uint32_t rn_fast_place(const struct rn_fast *fast, uint32_t row)
{
    return fast->step->parents == NULL ? fast->step->rows[row].position : fast->places[row].place;
}
static inline bool rn_fast_in_line(const struct rn_fast *fast, uint32_t row)
{
    return fast->step->parents == NULL || fast->places[row].in_line;
}
void rn_fast_tree_see(const struct rn_fast *fast, uint32_t worker, uint32_t layer, uint32_t head, uint32_t row,
                      struct rn_attend *t);
void rn_fast_move_rows(struct rn_fast *fast, uint32_t worker, uint32_t n_workers);

/* draw.c. ready: before the step is the current one, by the job's holder, as is done. draw: a worker's part, when all
 * have met behind the last phase. */
void rn_fast_draws_ready(struct rn_fast *fast, struct rn_step *step);
void rn_fast_draw(struct rn_fast *fast, uint32_t worker);
void rn_fast_draws_done(struct rn_fast *fast);

/* The table by which positions of the sequence lie in the layer's cache. */
static inline const uint32_t *rn_fast_table(const struct rn_fast_layer *layer, const struct rn_step_seq *seq)
{
    return layer->windowed ? seq->windows : seq->blocks;
}

/* fast_blocks.c: the cache's blocks as a whole. describe: once the layers are there. copy: one worker's part of a
 * step's copies. The others are the backend's. */
void rn_fast_describe(struct rn_fast *fast);
void rn_fast_copy_blocks(struct rn_fast *fast, uint32_t worker, uint32_t n_workers);
void rn_fast_copy_states(struct rn_fast *fast, uint32_t worker, uint32_t n_workers);
size_t rn_fast_state_bytes(const struct rn_backend *backend);
size_t rn_fast_block_bytes(const struct rn_backend *backend);
const char *rn_fast_layout(const struct rn_backend *backend);
void rn_fast_copy_async(struct rn_backend *backend, struct rn_host_copies *copies);
void *rn_fast_host_alloc(struct rn_backend *backend, size_t bytes);
void rn_fast_host_free(struct rn_backend *backend, void *memory);

/* One worker's part of what precedes the phases of the current step, and of one phase. All workers meet at a
 * barrier between phases. */
void rn_fast_begin(struct rn_fast *fast, uint32_t worker, uint32_t n_workers);
void rn_fast_phase(struct rn_fast *fast, uint32_t worker, uint32_t n_workers, uint32_t phase);

/* What a worker asks for while it waits at a barrier: of the next product in tiles the weights that it reads first, the
 * beginnings of its streams. */
struct rn_fast_ask {
    struct rn_meanwhile meanwhile; /* first */
    struct rn_fast *fast;
    uint32_t worker, n_workers;
    uint32_t from;  /* the product is looked for from that instruction on ... */
    bool looks;     /* ... when the worker has time for it */
    uint32_t index; /* of the product that was found last */
    const char *at; /* the first stream */
    size_t apart;   /* bytes from one stream to the next */
    uint32_t streams;
    uint32_t line, lines; /* asked for; in all */
};

/* products.c: asks for nothing yet; from now on what comes from the phase on, in a step that runs. */
void rn_fast_ask_init(struct rn_fast_ask *ask, struct rn_fast *fast, uint32_t worker, uint32_t n_workers);
struct rn_meanwhile *rn_fast_ask_from(struct rn_fast_ask *ask, uint32_t phase);

#endif
