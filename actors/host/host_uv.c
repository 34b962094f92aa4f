/* A host's libuv loop as the dispatcher: a poll handle on the engine's eventfd. All of it runs on the
 * loop's thread. See runnel_uv.h. */
#include "runnel_uv.h"

#include <sched.h>
#include <stddef.h>
#include <uv.h>

#include "actors/engine.h"
#include "actors/host/host.h"
#include "base/check.h"

/* Events per turn of the loop: callbacks are short; the host's other handles get their turn in between. */
#define EVENTS_PER_TURN 64

struct rn_uv {
    uv_poll_t poll; /* first: its address is the handle's */
    struct runnel_engine *engine;
    struct rn_heap heap; /* its own: the close callback may come after the engine is gone */
};

static_assert(offsetof(struct rn_uv, poll) == 0, "libuv gives the handle back");

/* The handle counts as alive for the loop exactly while something will come, the rest of a free among it. Lowers the
 * edge before it looks: who raises it later, and has changed a count, sees that a loop is attached. */
static void keep_alive_if_busy(struct rn_uv *uv)
{
    struct rn_totals *totals = &uv->engine->totals;

    rn_edge_lower(&uv->engine->host.uv_edge);
    if (rn_counter_get(&totals->streams) > 0 || rn_counter_get(&totals->loads) > 0 ||
        rn_word_get(&uv->engine->closing) != 0)
        uv_ref((uv_handle_t *)&uv->poll);
    else
        uv_unref((uv_handle_t *)&uv->poll);
}

bool rn_uv_hand_over(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;

    if (rn_holder_is(&host->uv_thread, 0) || rn_holder_is(&host->uv_thread, (uint64_t)uv_thread_self()))
        return false;
    rn_word_set(&host->handed_over, RN_HANDED_SOON); /* before the wake that is to find it */
    rn_notifier_raise_now(&host->notifier);
    rn_word_set(&host->handed_over, RN_HANDED_OVER); /* this thread's last touch */
    return true;
}

static void take_over(struct runnel_engine *engine)
{
    while (rn_word_get(&engine->host.handed_over) != RN_HANDED_OVER)
        sched_yield(); /* for one write */
    rn_engine_free_rest(engine);
}

/* False: a callback has detached the loop; then another thread may free the engine as soon as we are out of its gate.
 * */
static bool deliver(struct rn_uv *uv, bool *free_wanted)
{
    struct runnel_engine *engine = uv->engine;
    const struct rn_dispatch how = {.max_events = EVENTS_PER_TURN, .until = &engine->closing};
    bool attached;

    if (!rn_gate_enter(&engine->gate)) { /* another thread frees the engine, and delivers */
        rn_notifier_clear(&engine->host.notifier);
        return true;
    }
    rn_host_dispatch(engine, &how, free_wanted);
    attached = engine->host.uv == uv;
    rn_gate_leave(&engine->gate);
    return attached;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct rn_uv *uv = (struct rn_uv *)poll;
    struct runnel_engine *engine = uv->engine;
    bool free_wanted = false, attached;

    RN_ASSERT(rn_holder_is(&engine->host.uv_thread, (uint64_t)uv_thread_self()));
    (void)status;
    (void)events;
    attached = deliver(uv, &free_wanted);
    if (free_wanted)
        runnel_engine_free(engine);
    else if (attached && rn_word_get(&engine->host.handed_over) != RN_HANDED_NOTHING)
        take_over(engine);
    else if (attached)
        keep_alive_if_busy(uv);
}

static void on_closed(uv_handle_t *handle)
{
    struct rn_heap heap = ((struct rn_uv *)handle)->heap;

    rn_free(&heap, handle);
}

void rn_uv_keep_alive(struct runnel_engine *engine)
{
    struct rn_host *host = &engine->host;

    if (rn_holder_is(&host->uv_thread, (uint64_t)uv_thread_self())) {
        keep_alive_if_busy(host->uv);
        return;
    }
    rn_edge_raise(&host->uv_edge);
    if (!rn_holder_is(&host->uv_thread, 0)) /* each time: a drain on another thread may have taken the wake before */
        rn_notifier_raise_now(&host->notifier);
}

runnel_status runnel_uv_attach(runnel_engine *engine, struct uv_loop_s *loop)
{
    struct rn_heap heap;
    struct rn_uv *uv;

    if (engine == NULL || loop == NULL)
        return RUNNEL_INVALID;
    if (engine->host.delivery != RUNNEL_DELIVER_HOST ||
        !rn_holder_take(&engine->host.uv_thread, (uint64_t)uv_thread_self()))
        return RUNNEL_STATE;
    RN_ASSERT(engine->host.uv == NULL);
    rn_heap_init(&heap, &engine->heap.hook);
    uv = rn_calloc(&heap, 1, sizeof *uv);
    if (uv == NULL)
        goto fail_take;
    uv->engine = engine;
    uv->heap = heap;
    if (uv_poll_init(loop, &uv->poll, engine->host.notifier.fd) != 0)
        goto fail_alloc;
    if (uv_poll_start(&uv->poll, UV_READABLE, on_readable) != 0) {
        uv_close((uv_handle_t *)&uv->poll, on_closed);
        goto fail_take;
    }
    engine->host.uv = uv;
    keep_alive_if_busy(uv);
    return RUNNEL_OK;
fail_alloc:
    rn_free(&heap, uv);
fail_take:
    rn_holder_give(&engine->host.uv_thread);
    return RUNNEL_NO_MEMORY;
}

runnel_status runnel_uv_detach(runnel_engine *engine)
{
    struct rn_uv *uv;

    if (engine == NULL)
        return RUNNEL_INVALID;
    if (!rn_holder_is(&engine->host.uv_thread, (uint64_t)uv_thread_self()))
        return RUNNEL_STATE;
    uv = engine->host.uv;
    RN_ASSERT(uv->engine == engine && uv_is_active((uv_handle_t *)&uv->poll));
    engine->host.uv = NULL;
    rn_holder_give(&engine->host.uv_thread);
    uv_poll_stop(&uv->poll);
    uv_close((uv_handle_t *)&uv->poll, on_closed);
    return RUNNEL_OK;
}
