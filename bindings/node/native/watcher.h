/* The thread that receives an engine's events for the loop.
 *
 *     watcher: poll ─▶ take, take, ... into a pack ─▶ threadsafe function ─▶ poll ...
 *     loop:                                            └─▶ deliver the pack, give it back
 *
 * A wake costs the loop as much as many tokens do. So pieces are held back until `hold_us` after the last wake, and
 * longer the more streams there are, unless the pack has what somebody waits for: the first piece of a stream, its end,
 * anything of a load. What is held goes along.
 *
 * There are two packs: while the loop has one, the watcher fills the other; when it has none it waits, and events wait
 * in the engine. What is left in a full pack's wake makes a wake of its own, so the loop's other handles get their turn
 * in between.
 *
 * A draw that JavaScript makes (choose.h) is asked for inside a take: the watcher hands the question over and waits for
 * the answer.
 *
 * The lock guards what both threads touch: which packs are full, the question, `stopping`. The watcher alone takes
 * events; nothing of it is left when watcher_stop returns. */
#ifndef RN_NODE_WATCHER_H
#define RN_NODE_WATCHER_H

#include <pthread.h>

#include "events.h"

enum { N_PACKS = 2, STREAMS_PER_HOLD = 16, MAX_HOLDS = 5 };

struct node_question {
    struct node_slot *slot;
    runnel_candidates *candidates;
    int64_t place;
};

/* A draw, on the loop's thread: the place of a candidate. */
typedef int64_t (*watcher_choose)(struct node_slot *slot, runnel_candidates *candidates);

struct node_watcher {
    runnel_engine *engine;
    const struct event_sink *sink;
    watcher_choose choose;
    pthread_t thread;
    bool running; /* loop's: false from watcher_stop on, when nothing is delivered on a wake */
    napi_threadsafe_function wake;
    int stop_fd; /* -1: never started */
    struct event_pack packs[N_PACKS];

    pthread_mutex_t lock;
    pthread_cond_t turned;          /* a pack was given back, a question answered, or stopping */
    bool full[N_PACKS];             /* the loop's */
    struct node_question *question; /* of the watcher, which waits until the loop has answered and set this to NULL */
    bool stopping;
    bool alone; /* the environment has let go of `wake`: nobody delivers any more */

    /* The watcher's own. */
    uint64_t hold_us;   /* with one stream */
    uint32_t n_streams; /* that have begun and not ended */
    uint64_t woken_us;  /* when the last pack was handed over, on the monotonic clock */
    bool holds;         /* the pack that it fills has something, and it is the watcher's */
    uint32_t writing;   /* watcher's: the pack that it fills */
    uint32_t reading;   /* loop's: the pack that comes next */
};

/* These on the loop's thread. The packs are made by who starts it. False: no thread, or no memory. */
void watcher_init(struct node_watcher *watcher, const struct event_sink *sink);
bool watcher_start(struct node_watcher *watcher, runnel_engine *engine, watcher_choose choose, uint32_t hold_us);
void watcher_stop(struct node_watcher *watcher);
void watcher_fini(struct node_watcher *watcher);

/* After watcher_stop: the packs that the loop has not come to. */
void watcher_deliver_rest(struct node_watcher *watcher);

/* Inside a take, on the watcher's thread. */
void watcher_on_load(struct node_watcher *watcher, uint32_t slot, const runnel_load_event *event, runnel_error *error);
int64_t watcher_ask(struct node_watcher *watcher, struct node_slot *slot, runnel_candidates *candidates);

#endif
