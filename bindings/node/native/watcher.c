/* The thread that receives events: see watcher.h. */
#include "watcher.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- On the watcher's thread --------------------------------------------------------------- */

/* Wakes the loop; false: there is none any more. */
static bool wake_loop(struct node_watcher *watcher)
{
    watcher->alone =
        watcher->alone || napi_call_threadsafe_function(watcher->wake, NULL, napi_tsfn_nonblocking) == napi_closing;
    return !watcher->alone;
}

/* The pack to write to, once the loop has given it back; NULL: stopping. */
static struct event_pack *own_pack(struct node_watcher *watcher)
{
    bool stopping;

    pthread_mutex_lock(&watcher->lock);
    while (watcher->full[watcher->writing] && !watcher->stopping)
        pthread_cond_wait(&watcher->turned, &watcher->lock);
    stopping = watcher->stopping;
    pthread_mutex_unlock(&watcher->lock);
    return stopping || watcher->alone ? NULL : &watcher->packs[watcher->writing];
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void hand_over(struct node_watcher *watcher)
{
    if (watcher->packs[watcher->writing].n_events == 0)
        return;
    watcher->woken_us = now_us();
    watcher->holds = false;
    pthread_mutex_lock(&watcher->lock);
    watcher->full[watcher->writing] = true;
    pthread_mutex_unlock(&watcher->lock);
    watcher->writing = (watcher->writing + 1) % N_PACKS;
    wake_loop(watcher);
}

/* The more streams there are, the further apart are the pieces of each: so the wait is longer by hold_us for every
 * STREAMS_PER_HOLD of them. */
static uint64_t hold_us(const struct node_watcher *watcher)
{
    uint32_t n = watcher->n_streams < STREAMS_PER_HOLD * (MAX_HOLDS - 1) ? watcher->n_streams
                                                                         : STREAMS_PER_HOLD * (MAX_HOLDS - 1);

    return watcher->hold_us + watcher->hold_us * n / STREAMS_PER_HOLD;
}

/* How long what is in the pack can wait; 0: the loop is to have it now. */
static uint64_t left_us(const struct node_watcher *watcher)
{
    const struct event_pack *pack = &watcher->packs[watcher->writing];
    uint64_t waited = now_us() - watcher->woken_us, hold = hold_us(watcher);

    if (!pack->can_wait || pack->n_events + RUNNEL_MAX_TAKE > EVENTS_PER_PACK || waited >= hold)
        return 0;
    return hold - waited;
}

/* The pack is full. */
static struct event_pack *next_pack(struct node_watcher *watcher)
{
    hand_over(watcher);
    return own_pack(watcher);
}

static void add(struct node_watcher *watcher, struct event_pack *pack, const runnel_event *event)
{
    struct node_slot *slot = event->user;
    bool had_begun = slot->begun;

    pack_add(pack, slot, event);
    watcher->n_streams += slot->begun && !had_begun;
    watcher->n_streams -= event_is_terminal(event->type);
}

/* What waits. False: stopping. */
static bool take_all(struct node_watcher *watcher)
{
    const runnel_event *events[RUNNEL_MAX_TAKE];
    struct event_pack *pack = own_pack(watcher);
    size_t n = 1;

    while (pack != NULL && n > 0 && pack->n_events + RUNNEL_MAX_TAKE <= EVENTS_PER_PACK) {
        n = runnel_engine_take(watcher->engine, events, RUNNEL_MAX_TAKE);
        pack = own_pack(watcher); /* events of loads may have filled it */
        for (size_t i = 0; i < n && pack != NULL; i++) {
            add(watcher, pack, events[i]);
            if (pack_is_full(pack))
                pack = next_pack(watcher);
        }
    }
    if (pack == NULL)
        return false;
    watcher->holds = pack->n_events > 0;
    if (left_us(watcher) == 0)
        hand_over(watcher);
    return true;
}

void watcher_on_load(struct node_watcher *watcher, uint32_t slot, const runnel_load_event *event, runnel_error *error)
{
    struct event_pack *pack = own_pack(watcher);

    if (pack == NULL)
        return;
    pack_add_load(pack, slot, event, error);
    if (pack_is_full(pack))
        hand_over(watcher);
}

int64_t watcher_ask(struct node_watcher *watcher, struct node_slot *slot, runnel_candidates *candidates)
{
    struct node_question question = {.slot = slot, .candidates = candidates, .place = INT64_MAX};

    pthread_mutex_lock(&watcher->lock);
    watcher->question = &question;
    pthread_mutex_unlock(&watcher->lock);
    if (!wake_loop(watcher))
        return INT64_MAX;
    pthread_mutex_lock(&watcher->lock);
    while (watcher->question != NULL && !watcher->stopping)
        pthread_cond_wait(&watcher->turned, &watcher->lock);
    pthread_mutex_unlock(&watcher->lock);
    return question.place;
}

/* Waits for events, or until those in the pack have waited long enough. As poll(). */
static int wait(const struct node_watcher *watcher, struct pollfd fds[2])
{
    uint64_t left = watcher->holds ? left_us(watcher) : 0;
    struct timespec time = {.tv_sec = (time_t)(left / 1000000), .tv_nsec = (long)(left % 1000000 * 1000)};

    return ppoll(fds, 2, watcher->holds ? &time : NULL, NULL);
}

static void *watch(void *data)
{
    struct node_watcher *watcher = data;
    struct pollfd fds[2] = {{.fd = runnel_engine_fd(watcher->engine), .events = POLLIN},
                            {.fd = watcher->stop_fd, .events = POLLIN}};

    for (;;) {
        int ready = wait(watcher, fds);

        if (ready < 0 && errno != EINTR)
            break;
        if (ready == 0)
            hand_over(watcher);
        if (ready > 0 && (fds[1].revents != 0 || ((fds[0].revents & POLLIN) != 0 && !take_all(watcher))))
            break;
    }
    if (!watcher->alone)
        napi_release_threadsafe_function(watcher->wake, napi_tsfn_release);
    return NULL;
}

/* ---- On the loop's thread ------------------------------------------------------------------ */

static void answer(struct node_watcher *watcher)
{
    struct node_question *question;

    pthread_mutex_lock(&watcher->lock);
    question = watcher->question;
    pthread_mutex_unlock(&watcher->lock);
    if (question == NULL)
        return;
    question->place = watcher->choose(question->slot, question->candidates);
    pthread_mutex_lock(&watcher->lock);
    watcher->question = NULL;
    pthread_cond_signal(&watcher->turned);
    pthread_mutex_unlock(&watcher->lock);
}

static void deliver_next(struct node_watcher *watcher)
{
    uint32_t number = watcher->reading;
    bool full;

    pthread_mutex_lock(&watcher->lock);
    full = watcher->full[number];
    pthread_mutex_unlock(&watcher->lock);
    if (!full)
        return;
    watcher->reading = (number + 1) % N_PACKS;
    pack_deliver(&watcher->packs[number], watcher->sink);
    pthread_mutex_lock(&watcher->lock);
    watcher->full[number] = false;
    pthread_cond_signal(&watcher->turned);
    pthread_mutex_unlock(&watcher->lock);
}

static void on_wake(napi_env env, napi_value function, void *context, void *data)
{
    struct node_watcher *watcher = context;

    (void)function;
    (void)data;
    if (env == NULL || !watcher->running)
        return;
    deliver_next(watcher);
    answer(watcher);
}

static bool start_thread(struct node_watcher *watcher)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all); /* signals are Node's own */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&watcher->thread, NULL, watch, watcher);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0)
        pthread_setname_np(watcher->thread, "runnel-events");
    return failed == 0;
}

void watcher_init(struct node_watcher *watcher, const struct event_sink *sink)
{
    watcher->sink = sink;
    watcher->stop_fd = -1;
}

bool watcher_start(struct node_watcher *watcher, runnel_engine *engine, watcher_choose choose, uint32_t hold_us)
{
    napi_env env = watcher->sink->env;
    napi_value name;

    watcher->engine = engine;
    watcher->choose = choose;
    watcher->hold_us = hold_us;
    watcher->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (watcher->stop_fd < 0)
        return false;
    pthread_mutex_init(&watcher->lock, NULL);
    pthread_cond_init(&watcher->turned, NULL);
    if (napi_create_string_latin1(env, "runnel", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_threadsafe_function(env, NULL, NULL, name, 0, 1, NULL, NULL, watcher, on_wake, &watcher->wake) !=
            napi_ok)
        return false;
    napi_unref_threadsafe_function(env, watcher->wake);
    watcher->running = start_thread(watcher);
    if (!watcher->running)
        napi_release_threadsafe_function(watcher->wake, napi_tsfn_release);
    return watcher->running;
}

void watcher_stop(struct node_watcher *watcher)
{
    uint64_t one = 1;

    if (!watcher->running)
        return;
    watcher->running = false;
    pthread_mutex_lock(&watcher->lock);
    watcher->stopping = true;
    pthread_cond_signal(&watcher->turned);
    pthread_mutex_unlock(&watcher->lock);
    while (write(watcher->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(watcher->thread, NULL);
}

void watcher_deliver_rest(struct node_watcher *watcher)
{
    for (uint32_t i = 0; i < N_PACKS; i++)
        pack_deliver(&watcher->packs[(watcher->reading + i) % N_PACKS], watcher->sink);
}

void watcher_fini(struct node_watcher *watcher)
{
    if (watcher->stop_fd < 0)
        return;
    pthread_cond_destroy(&watcher->turned);
    pthread_mutex_destroy(&watcher->lock);
    close(watcher->stop_fd);
    watcher->stop_fd = -1;
}
