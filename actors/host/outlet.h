/* The outlet of a stream: where its events leave the actors and reach the host.
 *
 * One outlet per stream slot, in a table that lives as long as the engine. Three parties touch it:
 *
 *   submitter   fills it and opens it (generation even → odd is the last write)
 *   producer    the detokenizer actor: piece stream, writes cells into the ring
 *   consumer    whoever dispatches, or the one thread inside runnel_stream_next
 *
 *   detokenizer ──cells──▶ ring (SPSC) ──▶ consumer ──CREDIT after half a window──▶ decode
 *        └──ready node, on the edge──▶ host mailbox (or the slot's wake, for pulled streams)
 *
 * Flow control: every event but the last two (held-back tail, terminal) costs a credit; a stream has
 * `window` of them, so the ring never overflows and a reader that stops stops only its own stream.
 *
 * A stream that asked for it (coalesce_bytes) goes on while its reader is behind: once RN_JOIN_FROM cells wait, further
 * tokens are joined in one cell beside the ring, the coalesced event, all for the credit of its first.
 *
 *   ring  | t | t | t | t |            coalesced  | t t t t t t ...          |   coalesce_bytes of text
 *           consumer ▲   └ after = 4 ───────▲  the consumer takes it when `after` cells are consumed
 *
 * The coalesced event stands in the order of events behind the first `after` cells. The producer adds to it while it
 * holds it (BUSY) and nothing was published behind it; the consumer claims it (TAKEN) when it is its turn, full or
 * not, so that nothing waits in it for a next token. There is one; while it is full or taken, tokens go into the ring.
 *
 * A stream that waits for its turn has no ring: the tier takes its memory when it admits the request
 * (rn_outlet_prepare). The terminal event, which every stream gets, has a cell of its own.
 *
 * Life: free → open (rn_outlet_open) → … → terminal cell consumed → free (rn_outlet_close), generation
 * advanced. An id is (slot, generation); a stale id never matches. */
#ifndef RN_ACTORS_HOST_OUTLET_H
#define RN_ACTORS_HOST_OUTLET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "mailbox/flag.h"
#include "mailbox/message.h"
#include "mailbox/ring.h"
#include "mailbox/wake.h"
#include "runnel.h"
#include "sampling/choice.h"
#include "text/answer/answer.h"
#include "text/piece_stream.h"

/* Undelivered events of one stream at most; a stream that wants logits has fewer, they are large. */
#define RN_WINDOW 30 /* with the tail: a ring of 32 */
#define RN_WINDOW_LOGITS 8
#define RN_WINDOW_JOINED 14 /* of one whose tokens are joined: a ring of 16 */
/* Tokens are joined while so many cells wait: less than half a window, so that decode has credit. */
#define RN_JOIN_FROM 4

/* The lower bits of rn_outlet.coalesced_state; above them `after`. */
enum rn_coalesced_state { RN_COALESCED_NONE = 0, RN_COALESCED_BUSY = 1, RN_COALESCED_OPEN = 2, RN_COALESCED_TAKEN = 3 };

/* Whether the coalesced event has a cell's content: no; it is its first; it has it besides others', and its credit is
 * free. */
enum rn_joined { RN_JOINED_NOT, RN_JOINED_FIRST, RN_JOINED_MORE };

/* One token, or one event of another kind. The answer to a chat is taken apart: then a cell of a token is several
 * events, the token's own first, then those of its parts (rn_cell_events). Each is written on one processor and read on
 * another: it has no more than such events need. */
struct rn_cell {
    uint32_t type; /* runnel_event_type */
    int32_t token;
    float logprob;
    uint32_t n_tokens; /* that it stands for */
    uint32_t n_top;
    uint32_t text_bytes;
    uint32_t n_parts; /* of the text; 0: all of it is content */
    uint32_t n_logits;
    uint32_t n_embedding; /* of outlet->embedding */
    bool asks;            /* the host is asked for its choice: no event, and the rest has no meaning */
    const float *logits;
    uint64_t position;
    uint64_t prompt_done, prompt_total, cached_tokens;
    uint64_t shifts, shifted_tokens; /* of runnel_usage */
    /* runnel_logprob top[n_top_max], struct rn_part parts[parts_capacity], char text[text_capacity] */
};

/* What the terminal event says besides. */
struct rn_ending {
    runnel_finish finish;
    int32_t stop, stop_token; /* of runnel_event */
    float logprob;            /* of the cell's token; the best ones are the outlet's end_top */
    uint32_t n_top;
    runnel_status status;
    runnel_about about;
    runnel_usage usage;
    runnel_timings timings;
};

/* What the host asked of the delivery of one stream; copied. */
struct rn_outlet_options {
    runnel_event_fn on_event;
    void *user;
    const char *const *stops;
    size_t n_stops;
    uint32_t n_top;
    uint32_t longest_piece;
    uint32_t n_logits;       /* vocabulary, when logits are wanted; else 0 */
    uint32_t coalesce_bytes; /* 0: each token has an event. Not with n_top */
    uint32_t n_embedding;    /* values of an embedding; 0: none */
    bool strip_first_space;
    bool keep_stop;           /* of runnel_request */
    bool taken;               /* it is taken (runnel_engine_take), not read, and has no callback */
    struct rn_answer *answer; /* NULL: the text is delivered as it is. Moves to the outlet if it opens */
    const char *label;        /* NULL: none */
    const char *model_name;   /* lives as long as the engine */
    runnel_phase phase;       /* of the list of streams */
};

struct rn_outlet {
    struct rn_message ready;   /* node in the host mailbox; inside at most once: guarded by `edge` */
    struct rn_edge edge;       /* up exactly while `ready` is in the mailbox, over all lives of the slot */
    struct rn_word generation; /* odd: open. Released by open and close, acquired by every look-up */
    struct rn_word paused;     /* = generation while paused */
    struct rn_word cancelled;  /* = generation once cancelled */
    struct rn_word choosing;   /* = generation while the host's choice is awaited: who sets it to 0 makes the choice */
    struct rn_word pull;       /* 1: read with runnel_stream_next; read by the producer and by dispatch */
    struct rn_word pulling;    /* = generation while a thread is inside runnel_stream_next; that of an older stream says
                                  nothing: its reader finds it gone */
    struct rn_wake wake;       /* of a pulled stream */
    uint32_t slot;

    /* For the list of streams, which any thread reads at any time: see rn_outlet_look. */
    struct rn_word phase;    /* runnel_phase, but for ENDED */
    struct rn_word n_tokens; /* of the answer */
    struct rn_word label[RUNNEL_LABEL_BYTES / sizeof(uint32_t)];
    _Atomic(const char *) model_name;

    /* Written by the submitter before the outlet is opened, constant while it is open. */
    struct rn_heap *heap;
    runnel_event_fn on_event;
    void *user;
    _Atomic(struct rn_ring *) ring; /* NULL: not admitted yet. Set by the tier, before the first cell; see
                                       rn_outlet_front */
    char *memory;                   /* stop strings, and what is held back for them */
    float *logits;    /* [window + 1][n_logits], with the ring: written by the sampler under the stream's credits */
    float *embedding; /* [n_embedding], with the ring: written by the sampler before its event */
    uint32_t n_embedding;
    runnel_logprob *end_top; /* [n_top_max], with the ring: of the token that ends the answer. Written by decode, before
                                the request's end */
    struct rn_choice
        *choice; /* with the ring, set by the tier; NULL: the host does not draw. The request's owner writes
                                 it, but between its question and CHOICE the host */
    struct rn_answer *answer; /* used by the tokenizer actor before the first token, by the producer from then on */
    char *raw;                /* [raw_capacity]: text on its way to `answer` */
    uint32_t n_top_max, n_logits, window, text_capacity, parts_capacity, raw_capacity, coalesce_bytes;
    struct rn_cell *coalesced;      /* with the ring; text of coalesce_bytes. NULL: nothing is joined */
    struct rn_word coalesced_state; /* after << 2 | enum rn_coalesced_state. Acquired by whom the event is handed to */

    /* Producer. */
    uint32_t n_published; /* cells of the ring */
    struct rn_piece_stream pieces;
    uint32_t n_answer;   /* tokens of the answer seen */
    uint32_t stopped_at; /* tokens kept when a stop string was found */
    uint64_t until_full; /* tokens of the answer with which the context is full for the first time ... */
    uint64_t lost;       /* ... and how many tokens go each time; 0: none ever does. Set by the tier with the ring */

    struct rn_cell end; /* the terminal event, with ... */
    struct rn_ending ending;
    struct rn_word ended; /* = generation once it is written; its partner is in rn_outlet_front */

    /* Consumer. */
    bool dropping;       /* an event was dropped on the way to the end of a cancelled stream: so are all others */
    bool held;           /* the cell at the front has been shown or taken, and not yet released */
    bool on_coalesced;   /* that cell is the coalesced event */
    uint32_t n_released; /* cells of the ring */
    uint32_t shown;      /* events of the cell at the front that have been shown */
    uint32_t consumed;   /* events not yet reported by CREDIT */
    char error[RUNNEL_ERROR_BYTES]; /* of a FAILED cell: written by the producer before it publishes that cell */
};

static inline runnel_stream rn_stream_id(uint32_t slot, uint32_t generation)
{
    return (runnel_stream){(uint64_t)generation << 32 | slot};
}

/* Prepares a free slot and opens it; the new generation goes to *generation. NO_MEMORY: still free.
 * The caller owns the slot (it took it from the pool of slots). */
runnel_status rn_outlet_open(struct rn_outlet *outlet, struct rn_heap *heap, const struct rn_outlet_options *options,
                             uint32_t *generation);

/* The tier, before anything is produced: memory for the ring, and for logits where they are wanted. NO_MEMORY: nothing
 * is held. */
runnel_status rn_outlet_prepare(struct rn_outlet *outlet);

/* Frees what open and prepare took and makes every id of this stream stale. Consumer, after the terminal cell; or
 * the submitter, when nothing was sent. The slot can be given back afterwards. */
void rn_outlet_close(struct rn_outlet *outlet);

/* Any thread: what the list of streams says of the stream that is there. False: there is none. */
bool rn_outlet_look(const struct rn_outlet *outlet, runnel_stream_info *info);

/* A label is NULL or UTF-8 without control bytes, short enough. */
bool rn_label_valid(const char *label);
#define RN_LABEL_RULE "label is not UTF-8 without control bytes, or has more than 63 bytes"

/* True when the outlet is open for that generation. */
static inline bool rn_outlet_is(const struct rn_outlet *outlet, uint32_t generation)
{
    return (generation & 1) != 0 && rn_word_get(&outlet->generation) == generation;
}

/* Counts are within each other and the window, and what goes with the ring is there with it and not without. Where
 * neither producer nor consumer is at work. */
bool rn_outlet_check(const struct rn_outlet *outlet);

/* How often the context was full before the last of so many tokens of the answer, into the cell. By the answer
 * alone: decode may have run on and have dropped more. Producer. */
void rn_outlet_count_shifts(const struct rn_outlet *outlet, uint64_t answered, struct rn_cell *cell);

/* Producer: the next cell, cleared, and its parts. Never NULL: credits bound the cells. Only of a stream that is
 * prepared. */
struct rn_cell *rn_outlet_reserve(struct rn_outlet *outlet);
void rn_outlet_publish(struct rn_outlet *outlet);
bool rn_outlet_is_prepared(const struct rn_outlet *outlet);

/* Producer: instead of publishing the reserved cell, a token's or the tail's, its content goes to the coalesced event,
 * where that is called for; a tail begins none. Then the cell is reserved still, and the consumer is to be woken. */
enum rn_joined rn_outlet_join(struct rn_outlet *outlet, const struct rn_cell *cell);

/* Consumer: the oldest cell that is not released, the terminal one last; NULL: none is there. The terminal one is not
 * released: the stream is closed. */
const struct rn_cell *rn_outlet_front(struct rn_outlet *outlet, uint32_t generation);
void rn_outlet_release(struct rn_outlet *outlet);

/* Consumer, of a stream that only it may close: asks for the memory that the next look at it needs. Each step follows
 * the pointers that the one before has asked for. */
#define RN_PREFETCH_STEPS 3
void rn_outlet_prefetch(const struct rn_outlet *outlet, int step);

/* Cells that wait for the consumer, a moment's value. */
uint32_t rn_outlet_waiting(const struct rn_outlet *outlet, uint32_t generation);
runnel_logprob *rn_cell_top(const struct rn_cell *cell);
struct rn_part *rn_cell_parts(const struct rn_outlet *outlet, const struct rn_cell *cell);
char *rn_cell_text(const struct rn_outlet *outlet, const struct rn_cell *cell);

/* Producer: the piece of a token, or (last) what was held back at the end, becomes the cell's text and parts. The end
 * may have a piece of its own. finished: the model ended the answer itself. */
void rn_outlet_put_piece(struct rn_outlet *outlet, struct rn_cell *cell, const char *piece, size_t n);
void rn_outlet_put_tail(struct rn_outlet *outlet, struct rn_cell *cell, const char *piece, size_t n, bool finished);

/* Consumer: how many events the cell is (at least 1, but for a tail without anything), and the index'th of them. */
uint32_t rn_cell_events(const struct rn_outlet *outlet, const struct rn_cell *cell);
void rn_cell_event(const struct rn_outlet *outlet, const struct rn_cell *cell, uint32_t index, runnel_event *event);

/* Consumer: the terminal event, and what it points to in `kept`: so it is valid when the stream is closed. */
struct rn_kept_end {
    char error[RUNNEL_ERROR_BYTES];
    runnel_logprob top[RUNNEL_MAX_TOP_LOGPROBS];
};
void rn_outlet_take_end(const struct rn_outlet *outlet, struct rn_kept_end *kept, runnel_event *event);

static inline bool rn_event_is_terminal(uint32_t type)
{
    return type >= RUNNEL_EVENT_DONE;
}

#endif
