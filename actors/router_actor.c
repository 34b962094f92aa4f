/* The router: see router_actor.h. */
#include "actors/router_actor.h"

#include <stddef.h>

#include "actors/context.h"
#include "actors/host/bridge.h"
#include "actors/request.h"
#include "base/check.h"

static_assert(offsetof(struct rn_router, actor) == 0, "handlers get the actor");

static struct rn_router *router_of(struct rn_actor *actor)
{
    return (struct rn_router *)actor;
}

static struct rn_routed *routed_of(struct runnel_model *model)
{
    return (struct rn_routed *)model; /* its first member */
}

static struct rn_routed *model_of(struct rn_router *router, const struct rn_pay_stream *stream)
{
    const struct rn_route *route = &router->routes[stream->slot];

    RN_ASSERT(stream->slot < router->context->max_streams);
    return route->generation == stream->generation && !route->ended ? route->model : NULL;
}

/* One actor after the other, so that nothing that one had to send on can come behind the CLOSE of the next. What could
 * still be sent when no request is left are forwarded wishes, prefill → verifier → decode, proposals and choices,
 * verifier or router → sampler → decode, and answers to what the tier had sent, decode → tier: so the tier is last, but
 * for the mover, which answers what the tier has sent. False: all are gone. */
static bool close_next_actor(struct rn_router *router, struct rn_routed *model)
{
    const struct rn_context *context = model->context;
    struct rn_actor *actors[RN_MODEL_ACTORS] = {
        context->tokenizer, context->grammar, context->prefill,     context->verifier, context->sampler,
        context->decode,    context->draft,   context->detokenizer, context->tier,     context->mover};
    struct rn_msg *msg;

    if (model->n_gone == RN_MODEL_ACTORS)
        return false;
    RN_ASSERT(model->closed && model->n_streams == 0);
    msg = rn_msg_new(router->context->runtime, RN_MSG_CLOSE);
    msg->model.model = context->model;
    actors[model->n_gone]->gone_to = &router->actor;
    rn_actor_send(actors[model->n_gone], msg);
    return true;
}

/* Closes a model that nobody needs any more. */
static void close_if_quiet(struct rn_router *router, struct rn_routed *model)
{
    if (!model->free_wanted || !model->load_ended || model->n_streams > 0 || model->closed)
        return;
    model->closed = true;
    if (model->ops->acts(model))
        close_next_actor(router, model);
    else
        model->ops->post_free(model);
}

/* ---- Deadlines ---- */

static void sift_down(struct rn_deadline *heap, uint32_t n, uint32_t at)
{
    struct rn_deadline moved = heap[at];

    RN_ASSERT(at < n);
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && heap[child + 1].at_us < heap[child].at_us;
        if (moved.at_us <= heap[child].at_us)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void push_deadline(struct rn_router *router, struct rn_deadline deadline)
{
    struct rn_deadline *heap = router->deadlines;
    uint32_t at = router->n_deadlines++;

    RN_ASSERT(at < 4 * router->context->max_streams);
    for (; at > 0 && deadline.at_us < heap[(at - 1) / 2].at_us; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = deadline;
}

static bool is_live(struct rn_router *router, const struct rn_deadline *deadline)
{
    const struct rn_pay_stream stream = {deadline->slot, deadline->generation, 0};

    return model_of(router, &stream) != NULL;
}

/* Makes room: at most 2 max_streams of them are live. */
static void forget_ended(struct rn_router *router)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < router->n_deadlines; i++)
        if (is_live(router, &router->deadlines[i]))
            router->deadlines[n++] = router->deadlines[i];
    router->n_deadlines = n;
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(router->deadlines, n, i);
}

static void set_alarm(struct rn_router *router)
{
    uint64_t at_us = router->n_deadlines > 0 ? router->deadlines[0].at_us : UINT64_MAX;

    for (const struct rn_routed *m = router->models; m != NULL; m = m->next)
        if (m->wake_us != 0 && m->wake_us < at_us)
            at_us = m->wake_us;
    rn_runtime_alarm(router->context->runtime, &router->actor, at_us);
}

static void add_deadline(struct rn_router *router, const struct rn_request *request, uint32_t ms, uint32_t kind)
{
    if (router->n_deadlines == 4 * router->context->max_streams)
        forget_ended(router);
    push_deadline(router, (struct rn_deadline){request->submitted_us + (uint64_t)ms * 1000, request->slot,
                                               request->generation, kind});
    if (router->deadlines[0].slot == request->slot && router->deadlines[0].generation == request->generation)
        set_alarm(router);
}

static void wake_models(struct rn_router *router, uint64_t now_us)
{
    for (struct rn_routed *m = router->models; m != NULL; m = m->next) {
        if (m->wake_us == 0 || m->wake_us > now_us)
            continue;
        m->wake_us = 0;
        if (!m->closed) /* else its decode may be gone */
            rn_actor_send(m->context->decode, rn_msg_new(router->context->runtime, RN_MSG_WAKE));
    }
}

static void on_tick(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_router *router = router_of(self);
    uint64_t now = rn_now_us(router->context->clock);

    rn_msg_free(self->runtime, msg);
    rn_runtime_ticked(self->runtime);
    wake_models(router, now);
    while (router->n_deadlines > 0 && router->deadlines[0].at_us <= now) {
        struct rn_deadline due = router->deadlines[0];

        router->deadlines[0] = router->deadlines[--router->n_deadlines];
        if (router->n_deadlines > 0)
            sift_down(router->deadlines, router->n_deadlines, 0);
        if (is_live(router, &due)) {
            struct rn_msg *expire = rn_msg_new(self->runtime, due.kind);

            expire->stream = (struct rn_pay_stream){due.slot, due.generation, 0};
            rn_actor_send(router->routes[due.slot].model->context->tier, expire);
        }
    }
    set_alarm(router);
}

/* ---- Messages ---- */

static void send_cancel(struct rn_actor *to, uint32_t slot, uint32_t generation)
{
    struct rn_msg *msg = rn_msg_new(to->runtime, RN_MSG_CANCEL);

    msg->stream = (struct rn_pay_stream){slot, generation, 0};
    rn_actor_send(to, msg);
}

static void free_model(struct rn_router *router, struct rn_routed *model)
{
    if (model->free_wanted)
        return;
    model->free_wanted = true;
    model->ops->cancel(model);
    for (uint32_t slot = 0; slot < router->context->max_streams; slot++) {
        struct rn_route *route = &router->routes[slot];
        struct rn_outlet *outlet = &router->context->outlets[slot];

        if (route->generation == 0 || route->model != model)
            continue;
        /* One CANCEL per stream, the host's or ours: the word decides who sends it. */
        if (rn_host_cancel(router->context->host, outlet, route->generation) && !route->ended)
            send_cancel(model->context->tier, slot, route->generation);
        if (route->ended)
            route->generation = 0;
    }
    close_if_quiet(router, model);
}

/* The request goes on to its model. */
static void send_on(struct rn_router *router, struct rn_msg *msg)
{
    struct rn_request *request = msg->request.request;
    struct rn_routed *model = routed_of(request->context->model);
    struct rn_route *route = &router->routes[request->slot];

    RN_ASSERT(route->generation == request->generation && (route->n_sent == 0 || route->sent_to == model));
    route->n_sent++;
    route->sent_to = model;
    if (model->free_wanted) {
        rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
        msg->head.kind = RN_MSG_END;
        rn_actor_send(model->context->detokenizer, msg);
    } else {
        if (request->deadline_ms > 0)
            add_deadline(router, request, request->deadline_ms, RN_MSG_EXPIRE);
        if (request->cache_wait == RUNNEL_CACHE_DEADLINE && request->cache_wait_ms > 0)
            add_deadline(router, request, request->cache_wait_ms, RN_MSG_CACHE_DUE);
        msg->head.kind = RN_MSG_ENCODE;
        rn_actor_send(model->context->tokenizer, msg);
    }
}

/* The slot's last streams are of another model, and have not all been reported ENDED. */
static bool is_slot_taken(const struct rn_router *router, const struct rn_msg *msg, const struct rn_routed *model)
{
    const struct rn_route *route;

    if (msg->head.kind != RN_MSG_SUBMIT)
        return false;
    route = &router->routes[msg->request.request->slot];
    return route->n_sent > 0 && route->sent_to != model;
}

/* What keeps its place among the requests of a model goes on to it. */
static void send_in_order(struct rn_router *router, struct rn_msg *msg, struct rn_routed *model)
{
    if (msg->head.kind == RN_MSG_SUBMIT)
        send_on(router, msg);
    else if (!model->closed)
        rn_actor_send(model->context->tokenizer, msg);
    else /* behind CLOSE the tier frees the sessions itself */
        rn_msg_free(router->actor.runtime, msg);
}

/* Now, or behind what waits for the model. */
static void send_or_hold(struct rn_router *router, struct rn_msg *msg, struct rn_routed *model)
{
    if (model->n_held == 0 && !is_slot_taken(router, msg, model)) {
        send_in_order(router, msg, model);
        return;
    }
    RN_CHECK(router->n_held < router->context->max_streams + 3 * router->context->session_places);
    router->held[router->n_held++] = (struct rn_held){msg, model};
    model->n_held++;
    model->n_held_streams += msg->head.kind == RN_MSG_SUBMIT;
}

/* A slot may be free: of each model goes what is in front of the first one that waits still. */
static void send_held(struct rn_router *router)
{
    uint32_t n_kept = 0;

    for (struct rn_routed *m = router->models; m != NULL; m = m->next)
        m->blocked = false;
    for (uint32_t i = 0; i < router->n_held; i++) {
        struct rn_held held = router->held[i];

        held.model->blocked |= is_slot_taken(router, held.msg, held.model);
        if (held.model->blocked) {
            router->held[n_kept++] = held;
            continue;
        }
        held.model->n_held--;
        held.model->n_held_streams -= held.msg->head.kind == RN_MSG_SUBMIT;
        send_in_order(router, held.msg, held.model);
    }
    router->n_held = n_kept;
}

static void on_submit(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_router *router = router_of(self);
    struct rn_request *request = msg->request.request;
    struct rn_routed *model = routed_of(request->context->model);
    struct rn_route *route = &router->routes[request->slot];

    RN_ASSERT(request->slot < router->context->max_streams && !model->closed);
    RN_ASSERT(rn_request_check(request) && request->outcome == RN_OUTCOME_NONE);
    RN_ASSERT(router->routes[request->slot].generation != request->generation); /* each is submitted once */
    /* The slot's last stream may not have been reported ENDED yet: the host can reuse a slot at once. */
    route->generation = request->generation;
    route->ended = false;
    route->model = model;
    model->n_streams++;
    send_or_hold(router, msg, model);
}

static void on_cancel(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_routed *model = model_of(router_of(self), &msg->stream);

    if (model != NULL)
        rn_actor_send(model->context->tier, msg);
    else
        rn_msg_free(self->runtime, msg);
}

static void on_credit(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_routed *model = model_of(router_of(self), &msg->stream);

    RN_ASSERT(msg->stream.n > 0);
    if (model != NULL)
        rn_actor_send(model->context->decode, msg);
    else
        rn_msg_free(self->runtime, msg);
}

/* By way of the sampler, which has the stream's place in its grammar. */
static void on_choice(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_pay_stream stream = {msg->choice.slot, msg->choice.generation, 0};
    struct rn_routed *model = model_of(router_of(self), &stream);

    if (model != NULL)
        rn_actor_send(model->context->sampler, msg);
    else
        rn_msg_free(self->runtime, msg);
}

static void on_wake_at(struct rn_actor *self, struct rn_msg *msg)
{
    routed_of(msg->wake.model)->wake_us = msg->wake.at_us;
    rn_msg_free(self->runtime, msg);
    set_alarm(router_of(self));
}

/* SESSION_NEW and SESSION_FREE go to the tier through the tokenizer, as requests do: so they keep their
 * place among the requests of the session. */
static void on_session(struct rn_actor *self, struct rn_msg *msg)
{
    send_or_hold(router_of(self), msg, routed_of(msg->session.model));
}

static void on_session_fork(struct rn_actor *self, struct rn_msg *msg)
{
    send_or_hold(router_of(self), msg, routed_of(msg->fork.model));
}

static void on_model_new(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_router *router = router_of(self);
    struct rn_routed *model = routed_of(msg->model.model);

    RN_ASSERT(!model->free_wanted && !model->closed && model->n_streams == 0 && model->n_gone == 0);
    model->next = router->models;
    router->models = model;
    rn_msg_free(self->runtime, msg);
    if (router->closing)
        free_model(router, model);
}

static void on_model_loaded(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_routed *model = routed_of(msg->model.model);

    RN_ASSERT(!model->load_ended && !model->closed);
    model->load_ended = true;
    rn_msg_free(self->runtime, msg);
    close_if_quiet(router_of(self), model);
}

static void on_model_free(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_routed *model = routed_of(msg->model.model);

    rn_msg_free(self->runtime, msg);
    free_model(router_of(self), model);
}

static void report_if_closed(struct rn_router *router)
{
    if (router->closing && router->models == NULL)
        rn_host_closed(router->context->host);
}

static void on_engine_close(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_router *router = router_of(self);

    rn_msg_free(self->runtime, msg);
    router->closing = true;
    for (struct rn_routed *m = router->models, *next; m != NULL; m = next) {
        next = m->next;
        free_model(router, m);
    }
    report_if_closed(router);
}

/* How long it takes until a stream ends: what a submit that is refused is told. */
static void note_end(struct rn_router *router)
{
    uint64_t now = rn_now_us(router->context->clock), interval = now - router->last_end_us;

    if (router->last_end_us > 0) {
        router->interval_us = router->interval_us == 0 ? interval : (7 * router->interval_us + interval) / 8;
        rn_word_set(&router->context->totals->retry_us,
                    router->interval_us < UINT32_MAX ? (uint32_t)router->interval_us : UINT32_MAX);
    }
    router->last_end_us = now;
}

static void on_ended(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_router *router = router_of(self);
    struct rn_routed *model = routed_of(msg->ended.model);
    struct rn_route *route = &router->routes[msg->ended.slot];

    RN_CHECK(model->n_streams > 0 && msg->ended.slot < router->context->max_streams);
    RN_ASSERT(route->n_sent > 0 && route->sent_to == model);
    if (route->generation == msg->ended.generation)
        route->ended = true;
    route->n_sent--;
    model->n_streams--;
    note_end(router);
    rn_msg_free(self->runtime, msg);
    if (route->n_sent == 0 && router->n_held > 0)
        send_held(router);
    close_if_quiet(router, model);
}

static void on_gone(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_routed *model = routed_of(msg->model.model);

    rn_msg_free(self->runtime, msg);
    RN_ASSERT(model->closed && model->n_gone < RN_MODEL_ACTORS);
    model->n_gone++;
    if (!close_next_actor(router_of(self), model))
        model->ops->post_free(model);
}

static void on_model_freed(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_router *router = router_of(self);
    struct rn_routed **link = &router->models, *model = routed_of(msg->model.model);

    RN_ASSERT(model->n_gone == RN_MODEL_ACTORS || !model->ops->acts(model));
    RN_ASSERT(model->closed && model->n_streams == 0);
    while (*link != model)
        link = &(*link)->next;
    *link = model->next;
    if (router->closing) {
        model->next = router->kept;
        router->kept = model;
    } else {
        model->ops->unref(model);
    }
    rn_msg_free(self->runtime, msg);
    report_if_closed(router);
}

static const struct rn_actor_class router_class = {
    .name = "router",
    .handlers =
        {
            [RN_MSG_SUBMIT] = on_submit,
            [RN_MSG_TICK] = on_tick,
            [RN_MSG_CANCEL] = on_cancel,
            [RN_MSG_CREDIT] = on_credit,
            [RN_MSG_CHOICE] = on_choice,
            [RN_MSG_WAKE_AT] = on_wake_at,
            [RN_MSG_SESSION_NEW] = on_session,
            [RN_MSG_SESSION_FREE] = on_session,
            [RN_MSG_SESSION_FORK] = on_session_fork,
            [RN_MSG_MODEL_NEW] = on_model_new,
            [RN_MSG_MODEL_LOADED] = on_model_loaded,
            [RN_MSG_MODEL_FREE] = on_model_free,
            [RN_MSG_MODEL_FREED] = on_model_freed,
            [RN_MSG_ENGINE_CLOSE] = on_engine_close,
            [RN_MSG_ENDED] = on_ended,
            [RN_MSG_GONE] = on_gone,
        },
};

runnel_status rn_router_init(struct rn_router *router, const struct rn_context *context)
{
    struct rn_bounds bounds = context->bounds;

    *router = (struct rn_router){.context = context};
    router->routes = rn_calloc(context->heap, context->max_streams, sizeof(struct rn_route));
    router->deadlines = rn_alloc(context->heap, 4 * (size_t)context->max_streams, sizeof router->deadlines[0]);
    router->held =
        rn_alloc(context->heap, (size_t)context->max_streams + 3 * context->session_places, sizeof router->held[0]);
    if (router->routes == NULL || router->deadlines == NULL || router->held == NULL) {
        rn_router_fini(router);
        return RUNNEL_NO_MEMORY;
    }
    bounds.per_model = bounds.models; /* it hears of all of them */
    rn_actor_init(&router->actor, context->runtime, &router_class, rn_bounds_credits(&bounds, RN_ROLE_ROUTER));
    return RUNNEL_OK;
}

void rn_router_fini(struct rn_router *router)
{
    if (router->context == NULL)
        return;
    for (struct rn_routed *m = router->kept, *next; m != NULL; m = next) {
        next = m->next;
        m->ops->unref(m);
    }
    rn_free(router->context->heap, router->routes);
    rn_free(router->context->heap, router->deadlines);
    rn_free(router->context->heap, router->held);
}

/* ---- Check ---- */

static bool deadlines_are_whole(const struct rn_router *router)
{
    const struct rn_deadline *heap = router->deadlines;

    for (uint32_t i = 0; i < router->n_deadlines; i++)
        if ((heap[i].kind != RN_MSG_EXPIRE && heap[i].kind != RN_MSG_CACHE_DUE) ||
            heap[i].slot >= router->context->max_streams || (i > 0 && heap[(i - 1) / 2].at_us > heap[i].at_us))
            return false;
    return router->n_deadlines <= 4 * router->context->max_streams;
}

/* Streams of the model that have not been reported ENDED: those in the directory, and older ones of their slots. */
static bool model_is_whole(const struct rn_router *router, const struct rn_routed *model)
{
    uint32_t n_live = 0, n_sent = 0, n_held = 0;

    for (uint32_t i = 0; i < router->n_held; i++)
        n_held += router->held[i].model == model;
    for (uint32_t slot = 0; slot < router->context->max_streams; slot++) {
        const struct rn_route *route = &router->routes[slot];

        n_live += route->generation != 0 && !route->ended && route->model == model;
        n_sent += route->n_sent > 0 && route->sent_to == model ? route->n_sent : 0;
    }
    if (n_live > model->n_streams || n_sent + model->n_held_streams != model->n_streams || n_held != model->n_held ||
        model->n_held_streams > model->n_held || model->n_gone >= RN_MODEL_ACTORS + (uint32_t)model->closed)
        return false;
    return model->closed ? model->free_wanted && model->load_ended && model->n_streams == 0 : model->n_gone == 0;
}

static bool is_listed(const struct rn_router *router, const struct rn_routed *model)
{
    const struct rn_routed *m = router->models;

    while (m != NULL && m != model)
        m = m->next;
    return m != NULL;
}

bool rn_router_check(const struct rn_router *router)
{
    uint32_t n = 0;

    for (const struct rn_routed *m = router->models; m != NULL; m = m->next)
        if (++n > router->context->bounds.models || !model_is_whole(router, m))
            return false;
    for (uint32_t slot = 0; slot < router->context->max_streams; slot++) {
        const struct rn_route *route = &router->routes[slot];

        if (route->generation != 0 &&
            ((route->generation & 1) == 0 || (!route->ended && !is_listed(router, route->model))))
            return false;
    }
    return deadlines_are_whole(router) && (router->kept == NULL || router->closing);
}
