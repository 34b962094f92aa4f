/* The host's side of the bridge: see host.h. Runs on the host's threads. */
#include "actors/host/host.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/engine.h"
#include "base/check.h"
#include "base/sized.h"
#include "base/thread.h"

static_assert(sizeof(pthread_t) == sizeof(unsigned long), "bridge.h keeps pthread_t without its header");
static_assert(RN_WINDOW / 2 > 0 && RN_JOIN_FROM < RN_WINDOW_JOINED / 2, "decode has credit while tokens are joined");

/* ---- Consuming ---- */

static void send_credit(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    struct rn_msg *msg = rn_msg_new(&engine->runtime, RN_MSG_CREDIT);

    RN_ASSERT(outlet->consumed > 0 && outlet->consumed <= outlet->window);
    msg->stream = (struct rn_pay_stream){outlet->slot, generation, outlet->consumed};
    outlet->consumed = 0;
    rn_actor_send(&engine->router.actor, msg);
}

/* The consumer is through with the cell at the ring's front. */
static void release_cell(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    outlet->shown = 0;
    rn_outlet_release(outlet);
    if (++outlet->consumed >= outlet->window / 2)
        send_credit(engine, outlet, generation);
}

/* The slot is free. */
static void give_slot(struct runnel_engine *engine, struct rn_outlet *outlet)
{
    rn_outlet_close(outlet);
    rn_word_set(&outlet->pulling, 0); /* before another stream has the slot */
    rn_pool_give(&engine->host.slots, rn_pool_cell(&engine->host.slots, outlet->slot));
}

/* The terminal event was delivered: what waits for that goes on. */
static void count_end(struct runnel_engine *engine)
{
    rn_counter_add(&engine->totals.streams, -1);
    if (rn_counter_get(&engine->totals.streams) == 0)
        rn_uv_keep_alive(engine);
}

static void close_stream(struct runnel_engine *engine, struct rn_outlet *outlet)
{
    give_slot(engine, outlet);
    count_end(engine);
}

static bool is_paused(const struct rn_outlet *outlet, uint32_t generation)
{
    return rn_word_get(&outlet->paused) == generation;
}

static bool is_cancelled(const struct rn_outlet *outlet, uint32_t generation)
{
    return rn_word_get(&outlet->cancelled) == generation;
}

/* The cell asks for the host's choice: it is no event. Not of a stream that was cancelled, nor of an engine that is
 * being freed: nobody waits for that. True: that is done, and the cell released. */
static bool serve_question(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation,
                           const struct rn_cell *cell)
{
    if (!cell->asks)
        return false;
    release_cell(engine, outlet, generation);
    if (!is_cancelled(outlet, generation) && rn_word_get(&engine->closing) == 0)
        rn_host_ask(engine, outlet, generation);
    return true;
}

/* One more event of the cell at the front has been shown. */
static void step_cell(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation,
                      const struct rn_cell *cell)
{
    RN_ASSERT(outlet->shown < rn_cell_events(outlet, cell) || outlet->shown == 0);
    if (++outlet->shown >= rn_cell_events(outlet, cell))
        release_cell(engine, outlet, generation);
}

/* The slot first: the host may submit the next request inside the callback. */
static void deliver_end(struct runnel_engine *engine, struct rn_outlet *outlet)
{
    runnel_event_fn on_event = outlet->on_event;
    struct rn_kept_end kept;
    runnel_event event;
    void *user = outlet->user;

    rn_outlet_take_end(outlet, &kept, &event);
    give_slot(engine, outlet);
    if (on_event != NULL) /* NULL: of a host that takes, and has gone */
        on_event(user, &event);
    count_end(engine);
}

/* Runs the callback for the next event of the cell at the front, or drops the cell. True: it was the terminal one. */
static bool deliver_event(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation,
                          const struct rn_cell *cell, bool paused)
{
    runnel_event event;

    if (rn_event_is_terminal(cell->type)) {
        deliver_end(engine, outlet);
        return true;
    }
    outlet->dropping |= paused;
    if (!outlet->dropping && outlet->on_event != NULL) {
        rn_cell_event(outlet, cell, outlet->shown, &event);
        outlet->on_event(outlet->user, &event);
    }
    if (outlet->dropping)
        release_cell(engine, outlet, generation);
    else
        step_cell(engine, outlet, generation, cell);
    return false;
}

/* The generation of the callback stream in the slot; false: there is none, the raise came after its end. A slot
 * can change hands between two looks while its stream is a pulled one, so the generation is looked at twice. */
static bool has_callback_stream(const struct rn_outlet *outlet, uint32_t *generation)
{
    *generation = rn_word_get(&outlet->generation);
    return (*generation & 1) != 0 && rn_word_get(&outlet->pull) == 0 && rn_word_get(&outlet->generation) == *generation;
}

/* The dispatch has had its n events, or has to make way. */
static bool is_over(const struct runnel_engine *engine, const struct rn_dispatch *how, size_t n)
{
    return (how->max_events > 0 && n >= how->max_events) || rn_word_get(&engine->host.free_wanted) != 0 ||
           (how->until != NULL && rn_word_get(how->until) != 0) ||
           (how->due_us > 0 && rn_now_us(&engine->clock) >= how->due_us);
}

/* The events of a stream that was raised, as many as wait now: with those that come meanwhile it is raised again by who
 * brings them. Counts them in *n. */
static void deliver_stream(struct runnel_engine *engine, struct rn_outlet *outlet, const struct rn_dispatch *how,
                           size_t *n)
{
    uint32_t generation;

    RN_ASSERT(outlet == &engine->host.outlets[outlet->slot]);
    rn_edge_lower(&outlet->edge);
    if (!has_callback_stream(outlet, &generation))
        return;
    for (uint32_t n_cells = rn_outlet_waiting(outlet, generation); n_cells > 0; n_cells -= outlet->shown == 0) {
        const struct rn_cell *cell;
        bool paused = is_paused(outlet, generation);

        /* Paused: nothing, but the end of a cancelled stream comes through. */
        if (paused && !is_cancelled(outlet, generation))
            return;
        if (is_over(engine, how, *n)) {
            rn_host_raise(&engine->host, &outlet->edge, &outlet->ready);
            return;
        }
        cell = rn_outlet_front(outlet, generation);
        if (cell == NULL)
            return;
        ++*n;
        if (!serve_question(engine, outlet, generation, cell) &&
            deliver_event(engine, outlet, generation, cell, paused))
            return;
    }
}

static size_t deliver_load(struct runnel_model *model)
{
    runnel_load_event event = {.model = model};
    uint32_t state, bits;

    rn_edge_lower(&model->load_edge);
    state = rn_word_get(&model->state);
    bits = rn_word_get(&model->fraction);
    memcpy(&event.fraction, &bits, sizeof bits);
    RN_ASSERT(state <= RN_MODEL_CANCELLED && event.fraction >= 0 && event.fraction <= 1);
    if (model->load_reported) {
        rn_model_load_reported(model);
        return 0;
    }
    if (state == RN_MODEL_LOADING) {
        event.state = RUNNEL_LOAD_PROGRESS;
    } else {
        model->load_reported = true;
        event.fraction = state == RN_MODEL_READY ? 1.0f : event.fraction;
        event.state = state == RN_MODEL_READY       ? RUNNEL_LOAD_READY
                      : state == RN_MODEL_CANCELLED ? RUNNEL_LOAD_CANCELLED
                                                    : RUNNEL_LOAD_FAILED;
        event.error = event.state == RUNNEL_LOAD_FAILED ? &model->error : NULL;
    }
    model->options.on_load(model->options.load_user, &event);
    /* The end may have been seen before the loader raised the edge for it. Raised by us it stays up, and the node
     * never comes again; raised by the loader the node is on its way, and the model must outlive it. */
    if (model->load_reported && rn_edge_raise(&model->load_edge))
        rn_model_load_reported(model);
    return 1;
}

/* The next node, NULL when the mailbox is marked empty. A producer between its two steps is awaited: it
 * is a few instructions away, unless it lost its core. */
static struct rn_message *next_node(struct rn_host *host)
{
    struct rn_message *node;

    while ((node = rn_mailbox_receive(&host->mailbox)) == NULL) {
        if (rn_mailbox_mark_empty(&host->mailbox))
            return NULL;
        sched_yield();
    }
    return node;
}

static struct rn_outlet *outlet_of(struct rn_message *node)
{
    return (struct rn_outlet *)((char *)node - offsetof(struct rn_outlet, ready));
}

static struct runnel_model *model_of(struct rn_message *node)
{
    return (struct runnel_model *)((char *)node - offsetof(struct runnel_model, load_node));
}

/* What a node leads to was written on other processors: all of it is asked for, step by step along its pointers, before
 * any of it is waited for. */
static void prefetch_streams(struct rn_message *const *nodes, size_t n)
{
    for (int step = 0; step < RN_PREFETCH_STEPS; step++)
        for (size_t i = 0; i < n; i++) {
            struct rn_outlet *outlet = outlet_of(nodes[i]);
            uint32_t generation;

            /* the ring of a pulled stream may go at any time */
            if (nodes[i]->kind == RN_HOST_STREAM && (step == 0 || has_callback_stream(outlet, &generation)))
                rn_outlet_prefetch(outlet, step);
        }
}

/* At most n nodes, with what they lead to on its way here; 0: the mailbox is marked empty. */
static size_t receive_nodes(struct rn_host *host, struct rn_message **nodes, size_t n)
{
    size_t n_nodes = 0;

    RN_ASSERT(n > 0 && n <= RUNNEL_MAX_TAKE);
    while (n_nodes < n && (nodes[n_nodes] = next_node(host)) != NULL)
        n_nodes++;
    prefetch_streams(nodes, n_nodes);
    return n_nodes;
}

/* Another dispatch looks at it. */
static void put_back(struct rn_host *host, struct rn_message *node)
{
    struct rn_edge *edge = node->kind == RN_HOST_STREAM ? &outlet_of(node)->edge : &model_of(node)->load_edge;

    rn_edge_lower(edge);
    rn_host_raise(host, edge, node);
}

static void deliver_node(struct runnel_engine *engine, struct rn_message *node, const struct rn_dispatch *how,
                         size_t *n)
{
    if (is_over(engine, how, *n))
        put_back(&engine->host, node);
    else if (node->kind == RN_HOST_STREAM)
        deliver_stream(engine, outlet_of(node), how, n);
    else
        *n += deliver_load(model_of(node));
}

/* No more nodes at once than the dispatch can have events. */
static size_t nodes_at_once(const struct rn_dispatch *how, size_t n_events, size_t n_nodes)
{
    size_t left = how->max_events > 0 ? how->max_events - n_events : SIZE_MAX;

    n_nodes = n_nodes < left ? n_nodes : left;
    return n_nodes < RUNNEL_MAX_TAKE ? n_nodes : RUNNEL_MAX_TAKE;
}

/* The nodes that are there now. Where it ends without having marked the mailbox no send says that there is more. */
static size_t deliver(struct runnel_engine *engine, const struct rn_dispatch *how)
{
    struct rn_message *nodes[RUNNEL_MAX_TAKE];
    struct rn_host *host = &engine->host;
    size_t n = 0, left = (size_t)rn_mailbox_count(&host->mailbox);

    while (left > 0 && !is_over(engine, how, n)) {
        size_t n_nodes = receive_nodes(host, nodes, nodes_at_once(how, n, left));

        if (n_nodes == 0)
            return n;
        for (size_t i = 0; i < n_nodes; i++)
            deliver_node(engine, nodes[i], how, &n);
        left -= n_nodes;
    }
    if (is_over(engine, how, n))
        rn_notifier_raise_now(&host->notifier);
    else if (!rn_mailbox_mark_empty(&host->mailbox))
        rn_notifier_raise(&host->notifier);
    return n;
}

/* ---- One dispatcher ---- */

/* False: another thread dispatches, or this one further out. Its wake is the other one's then, or a loop that watches
 * the descriptor would spin: it is cleared, and raised again by end_dispatch. Cleared before the edge is up, so that
 * what end_dispatch raises stays; and a dispatcher that has ended meanwhile, without seeing the edge, is found gone. */
static bool begin_dispatch(struct rn_host *host)
{
    if (rn_holder_take(&host->dispatcher, (uint64_t)pthread_self()))
        return true;
    rn_notifier_clear(&host->notifier);
    rn_edge_raise(&host->missed);
    if (!rn_holder_take(&host->dispatcher, (uint64_t)pthread_self()))
        return false;
    rn_edge_lower(&host->missed); /* it looks itself */
    return true;
}

static void end_dispatch(struct rn_host *host)
{
    rn_holder_give(&host->dispatcher);
    if (rn_edge_take(&host->missed))
        rn_notifier_raise_now(&host->notifier);
}

/* ---- Taking ---- */

/* The host is through with the events it holds. */
static void give_back_taken(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;

    for (uint32_t i = 0; i < host->n_taken; i++) {
        struct rn_outlet *outlet = &host->outlets[host->taken_slots[i]];
        uint32_t generation = rn_word_get(&outlet->generation);

        RN_ASSERT(outlet->held && host->taken[i].stream.id == rn_stream_id(outlet->slot, generation).id);
        outlet->held = false;
        if (rn_event_is_terminal(host->taken[i].type))
            close_stream(engine, outlet);
        else
            step_cell(engine, outlet, generation, rn_outlet_front(outlet, generation));
    }
    host->n_taken = 0;
}

/* The event that is to be taken next; NULL: none. Events of a paused stream that was cancelled are dropped. */
static const struct rn_cell *next_taken(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    for (;;) {
        bool paused = is_paused(outlet, generation);
        const struct rn_cell *cell =
            paused && !is_cancelled(outlet, generation) ? NULL : rn_outlet_front(outlet, generation);

        if (cell == NULL || rn_event_is_terminal(cell->type))
            return cell;
        if (serve_question(engine, outlet, generation, cell))
            continue;
        outlet->dropping |= paused;
        if (!outlet->dropping)
            return cell;
        release_cell(engine, outlet, generation);
    }
}

/* A stream that was raised: its next event is held by the host from now on. One whose event is held already is looked
 * at again when that one is given back. */
static void take_stream(struct runnel_engine *engine, struct rn_outlet *outlet)
{
    struct rn_host *host = &engine->host;
    const struct rn_cell *cell;
    uint32_t generation;

    rn_edge_lower(&outlet->edge);
    if (!has_callback_stream(outlet, &generation) || outlet->held)
        return;
    cell = next_taken(engine, outlet, generation);
    if (cell == NULL)
        return;
    RN_CHECK(host->n_taken < RUNNEL_MAX_TAKE);
    rn_cell_event(outlet, cell, outlet->shown, &host->taken[host->n_taken]);
    host->taken_slots[host->n_taken++] = outlet->slot;
    outlet->held = true;
}

/* Those that have more than what is held come again. */
static void raise_taken(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;
    bool more = false;

    for (uint32_t i = 0; i < host->n_taken; i++) {
        struct rn_outlet *outlet = &host->outlets[host->taken_slots[i]];
        uint32_t generation = rn_word_get(&outlet->generation);
        const struct rn_cell *cell;

        if (rn_event_is_terminal(host->taken[i].type))
            continue;
        cell = rn_outlet_front(outlet, generation);
        if (outlet->shown + 1 < rn_cell_events(outlet, cell) || rn_outlet_waiting(outlet, generation) > 1) {
            rn_host_raise(&engine->host, &outlet->edge, &outlet->ready);
            more = true;
        }
    }
    if (more && host->notifier.gather_us > 0) /* it waits already */
        rn_notifier_raise_now(&host->notifier);
}

/* Of at most n nodes; returns how many there were. Behind a callback that frees the engine none has another one. */
static size_t take_some(struct runnel_engine *engine, size_t n)
{
    struct rn_message *nodes[RUNNEL_MAX_TAKE];
    size_t n_nodes = receive_nodes(&engine->host, nodes, n);

    for (size_t i = 0; i < n_nodes; i++)
        if (rn_word_get(&engine->host.free_wanted) != 0)
            put_back(&engine->host, nodes[i]);
        else if (nodes[i]->kind == RN_HOST_STREAM)
            take_stream(engine, outlet_of(nodes[i]));
        else
            deliver_load(model_of(nodes[i]));
    return n_nodes;
}

size_t runnel_engine_take(runnel_engine *engine, const runnel_event **events, size_t n)
{
    struct rn_host *host;
    bool free_wanted;
    size_t n_taken;

    if (engine == NULL || events == NULL || n == 0 || engine->host.delivery == RUNNEL_DELIVER_THREAD)
        return 0;
    host = &engine->host;
    if (rn_engine_enter(engine, NULL) != RUNNEL_OK)
        return 0;
    if (!begin_dispatch(host)) {
        rn_gate_leave(&engine->gate);
        return 0;
    }
    give_back_taken(engine);
    rn_notifier_clear(&host->notifier);
    n = n < RUNNEL_MAX_TAKE ? n : RUNNEL_MAX_TAKE;
    while (host->n_taken < n && rn_word_get(&host->free_wanted) == 0 && take_some(engine, n - host->n_taken) > 0)
        continue;
    n_taken = host->n_taken;
    RN_ASSERT(n_taken <= n);
    if (n_taken == n)
        rn_notifier_raise_now(&host->notifier);
    raise_taken(engine);
    for (size_t i = 0; i < n_taken; i++)
        events[i] = &host->taken[i];
    end_dispatch(host);
    free_wanted = rn_word_replace(&host->free_wanted, 1, 0); /* by on_load */
    rn_gate_leave(&engine->gate);
    if (free_wanted)
        runnel_engine_free(engine);
    return free_wanted ? 0 : n_taken;
}

/* The calls of runnel_stream_next that this thread is inside: `choose` may run there, and call again. */
struct reading {
    const struct runnel_engine *engine;
    struct reading *outer;
    bool free_wanted; /* by `choose` */
};
static _Thread_local struct reading *readings;

static bool is_dispatching(const struct runnel_engine *engine)
{
    return rn_holder_is(&engine->host.dispatcher, (uint64_t)pthread_self());
}

bool rn_host_in_callback(const struct runnel_engine *engine)
{
    const struct reading *r = readings;

    while (r != NULL && r->engine != engine)
        r = r->outer;
    return r != NULL || is_dispatching(engine);
}

bool rn_host_defer_free(struct runnel_engine *engine)
{
    bool wanted = rn_word_get(&engine->closing) == 0; /* else another thread does it already */

    if (!rn_host_in_callback(engine))
        return false;
    if (wanted && is_dispatching(engine))
        rn_word_set(&engine->host.free_wanted, 1);
    for (struct reading *r = readings; wanted && r != NULL; r = r->outer)
        r->free_wanted |= r->engine == engine;
    return true;
}

size_t rn_host_dispatch(struct runnel_engine *engine, const struct rn_dispatch *how, bool *free_wanted)
{
    struct rn_host *host = &engine->host;
    size_t n;

    *free_wanted = false;
    if (!begin_dispatch(host))
        return 0;
    give_back_taken(engine);
    rn_notifier_clear(&host->notifier);
    n = deliver(engine, how);
    end_dispatch(host);
    *free_wanted = rn_word_replace(&host->free_wanted, 1, 0);
    return n;
}

size_t runnel_engine_dispatch(runnel_engine *engine, size_t max_events)
{
    struct rn_dispatch how = {.max_events = max_events};
    bool free_wanted;
    size_t n;

    if (engine == NULL || engine->host.delivery != RUNNEL_DELIVER_HOST || rn_engine_enter(engine, NULL) != RUNNEL_OK)
        return 0;
    how.until = &engine->closing;
    n = rn_host_dispatch(engine, &how, &free_wanted);
    rn_gate_leave(&engine->gate);
    if (free_wanted)
        runnel_engine_free(engine);
    return n;
}

int runnel_engine_fd(runnel_engine *engine)
{
    return engine != NULL ? engine->host.notifier.fd : -1;
}

/* The milliseconds that are left of timeout_ms, rounded up; -1: for ever. On the machine's clock, as poll's are. */
static int ms_left(int64_t timeout_ms, uint64_t begin_us)
{
    const struct rn_clock clock = rn_clock_machine();
    int64_t left;

    if (timeout_ms < 0)
        return -1;
    left = timeout_ms - (int64_t)((rn_now_us(&clock) - begin_us) / 1000);
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

runnel_status rn_host_wait(struct runnel_engine *engine, int64_t timeout_ms)
{
    const struct rn_clock clock = rn_clock_machine();
    struct pollfd pollers[2] = {{.fd = engine->host.closing_fd, .events = POLLIN},
                                {.fd = engine->host.notifier.fd, .events = POLLIN}};
    uint64_t begin_us = rn_now_us(&clock);
    int n;

    do /* a signal is none of its business */
        n = poll(pollers, 2, ms_left(timeout_ms, begin_us));
    while (n < 0 && errno == EINTR);
    return pollers[0].revents != 0 ? RUNNEL_CLOSED : n > 0 ? RUNNEL_OK : RUNNEL_TIMEOUT;
}

void rn_host_wake_all(struct runnel_engine *engine)
{
    uint64_t one = 1;

    while (write(engine->host.closing_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

runnel_status runnel_engine_wait(runnel_engine *engine, int64_t timeout_ms)
{
    runnel_status status;

    if (engine == NULL)
        return RUNNEL_INVALID;
    status = rn_engine_enter(engine, NULL);
    if (status != RUNNEL_OK)
        return status;
    status = rn_host_wait(engine, timeout_ms);
    rn_gate_leave(&engine->gate);
    return status;
}

/* It delivers while an engine that is being freed waits for others, too: so it sleeps on the notifier alone, and not on
 * what rn_host_wake_all raises. */
static void *delivery_main(void *arg)
{
    struct runnel_engine *engine = arg;
    const struct rn_dispatch how = {.until = &engine->host.stopping};
    bool free_wanted = false;

    while (!free_wanted && rn_word_get(&engine->host.stopping) == 0) {
        struct pollfd poller = {.fd = engine->host.notifier.fd, .events = POLLIN};

        (void)poll(&poller, 1, -1);
        rn_host_dispatch(engine, &how, &free_wanted);
    }
    if (free_wanted)
        runnel_engine_free(engine);
    return NULL;
}

void rn_host_stop_delivery(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;
    pthread_t thread = (pthread_t)host->thread;

    if (host->delivery != RUNNEL_DELIVER_THREAD)
        return;
    host->delivery = RUNNEL_DELIVER_HOST;
    if (pthread_equal(thread, pthread_self())) {
        pthread_detach(thread); /* freed inside a callback: the thread ends by itself */
        return;
    }
    rn_word_set(&host->stopping, 1);
    rn_notifier_raise_now(&host->notifier);
    pthread_join(thread, NULL);
}

/* ---- Pulling ---- */

/* Waits for a cell; NULL when the time is up. Paused streams show nothing but the end of a cancelled one. */
static const struct rn_cell *await_cell(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation,
                                        int64_t timeout_ms)
{
    uint64_t start = rn_now_us(&engine->clock);

    for (;;) {
        uint32_t ticket = rn_wake_ticket(&outlet->wake);
        bool paused = is_paused(outlet, generation);
        const struct rn_cell *cell =
            paused && !is_cancelled(outlet, generation) ? NULL : rn_outlet_front(outlet, generation);
        uint64_t waited_us = rn_now_us(&engine->clock) - start;

        if (cell != NULL && serve_question(engine, outlet, generation, cell)) {
            if (readings->free_wanted)
                return NULL;
            continue;
        }
        outlet->dropping |= cell != NULL && paused && !rn_event_is_terminal(cell->type);
        if (cell != NULL && (!outlet->dropping || rn_event_is_terminal(cell->type)))
            return cell;
        if (cell != NULL) {
            release_cell(engine, outlet, generation);
            continue;
        }
        if (timeout_ms >= 0 && waited_us / 1000 >= (uint64_t)timeout_ms)
            return NULL;
        rn_wake_wait(&outlet->wake, ticket, rn_us_left(timeout_ms, waited_us), 0);
    }
}

static _Thread_local struct rn_kept_end last_end; /* of the streams that this thread reads */

static runnel_status pull(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation,
                          int64_t timeout_ms, runnel_event *event)
{
    const struct rn_cell *cell;

    RN_ASSERT(rn_word_get(&outlet->pulling) == generation && rn_word_get(&outlet->pull) == 1);
    if (outlet->held) {
        outlet->held = false;
        step_cell(engine, outlet, generation, rn_outlet_front(outlet, generation));
    }
    cell = await_cell(engine, outlet, generation, timeout_ms);
    if (cell == NULL)
        return RUNNEL_TIMEOUT;
    if (rn_event_is_terminal(cell->type)) {
        rn_outlet_take_end(outlet, &last_end, event);
        close_stream(engine, outlet);
    } else {
        rn_cell_event(outlet, cell, outlet->shown, event);
        outlet->held = true;
    }
    return RUNNEL_OK;
}

static runnel_status next_event(struct runnel_engine *engine, runnel_stream stream, int64_t timeout_ms,
                                runnel_event *event)
{
    uint32_t generation;
    struct rn_outlet *outlet = rn_host_find(engine, stream, &generation);
    runnel_status status;

    if (outlet == NULL)
        return RUNNEL_NOT_FOUND;
    /* The stream may have ended between the look-up and here; the one that has the slot then is left alone. */
    if (rn_word_get(&outlet->pull) == 0 || !rn_host_claim(&outlet->pulling, generation))
        return rn_outlet_is(outlet, generation) ? RUNNEL_STATE : RUNNEL_NOT_FOUND;
    status = rn_outlet_is(outlet, generation) ? pull(engine, outlet, generation, timeout_ms, event) : RUNNEL_NOT_FOUND;
    rn_word_replace(&outlet->pulling, generation, 0);
    return status;
}

runnel_status runnel_stream_read(runnel_engine *engine, runnel_stream stream, int64_t timeout_ms, runnel_event *event,
                                 size_t struct_size)
{
    struct reading reading = {.engine = engine, .outer = readings};
    runnel_event own;
    runnel_status status;

    if (engine == NULL || event == NULL || struct_size == 0 || struct_size > sizeof own)
        return RUNNEL_INVALID;
    status = rn_engine_enter(engine, NULL);
    if (status != RUNNEL_OK)
        return status;
    readings = &reading;
    status = next_event(engine, stream, timeout_ms, &own);
    readings = reading.outer;
    rn_gate_leave(&engine->gate);
    if (status == RUNNEL_OK)
        memcpy(event, &own, struct_size);
    if (!reading.free_wanted)
        return status;
    runnel_engine_free(engine);
    return RUNNEL_CLOSED;
}

runnel_status(runnel_stream_next)(runnel_engine *engine, runnel_stream stream, int64_t timeout_ms, runnel_event *event)
{
    return runnel_stream_read(engine, stream, timeout_ms, event, RN_FIRST_SIZE(runnel_event, timings));
}

/* ---- Life ---- */

static runnel_status start_delivery(struct runnel_engine *engine, runnel_delivery delivery, bool manual)
{
    struct rn_host *host = &engine->host;

    host->delivery = manual && delivery == RUNNEL_DELIVER_THREAD ? RUNNEL_DELIVER_HOST : delivery;
    if (host->delivery == RUNNEL_DELIVER_THREAD &&
        !rn_thread_start((pthread_t *)&host->thread, delivery_main, engine)) {
        host->delivery = RUNNEL_DELIVER_HOST;
        return RUNNEL_NO_MEMORY;
    }
    return RUNNEL_OK;
}

static runnel_status init_outlets(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;

    host->outlets = rn_alloc_aligned(&engine->heap, engine->max_streams * sizeof(struct rn_outlet), 64);
    if (host->outlets == NULL)
        return RUNNEL_NO_MEMORY;
    memset(host->outlets, 0, engine->max_streams * sizeof(struct rn_outlet));
    for (uint32_t i = 0; i < engine->max_streams; i++) {
        host->outlets[i].slot = i;
        host->outlets[i].ready.kind = RN_HOST_STREAM;
        rn_wake_init(&host->outlets[i].wake);
    }
    return rn_pool_init(&host->slots, &engine->heap, engine->max_streams, sizeof(uint32_t));
}

runnel_status rn_host_init(struct runnel_engine *engine, runnel_delivery delivery, uint32_t gather_us, bool manual)
{
    struct rn_host *host = &engine->host;

    *host = (struct rn_host){.closing_fd = -1};
    rn_mailbox_init(&host->mailbox, (int32_t)(engine->max_streams + RN_MAX_MODELS));
    if (!rn_notifier_init(&host->notifier, gather_us, &engine->clock))
        return RUNNEL_NO_MEMORY;
    host->closing_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (host->closing_fd < 0)
        goto fail_notifier;
    if (init_outlets(engine) == RUNNEL_OK) {
        if (start_delivery(engine, delivery, manual) == RUNNEL_OK)
            return RUNNEL_OK;
        rn_pool_fini(&host->slots);
    }
    rn_free(&engine->heap, host->outlets);
    close(host->closing_fd);
fail_notifier:
    rn_notifier_fini(&host->notifier);
    return RUNNEL_NO_MEMORY;
}

/* Streams whose terminal event was never taken (pulled ones) are closed here. */
void rn_host_fini(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;

    for (uint32_t i = 0; i < engine->max_streams; i++)
        if ((rn_word_get(&host->outlets[i].generation) & 1) != 0)
            close_stream(engine, &host->outlets[i]);
    RN_ASSERT(rn_pool_taken(&host->slots) == 0 && rn_counter_get(&engine->totals.streams) == 0);
    rn_pool_fini(&host->slots);
    rn_free(&engine->heap, host->outlets);
    close(host->closing_fd);
    rn_notifier_fini(&host->notifier);
}
