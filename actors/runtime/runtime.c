/* The scheduler of actors: see runtime.h. Runs on the scheduler threads. */
#include "actors/runtime/runtime.h"

#include <pthread.h>
#include <string.h>

#include "actors/runtime/payload_poison.h"
#include "actors/runtime/dedicated.h"
#include "actors/runtime/trace.h"
#include "base/check.h"
#include "base/thread.h"

/* Before parking a scheduler thread looks for work for this long: about what a wake through the kernel costs. */
#define SPIN_US 5

static_assert(sizeof(pthread_t) == sizeof(unsigned long), "runtime.h keeps pthread_t without its header");

static const char *const names[RN_MSG_KINDS] = {
#define X(kind, payload, from, to, bound, meaning) [RN_MSG_##kind] = #kind,
    RN_MESSAGES(X)
#undef X
};

const char *rn_message_name(uint32_t kind)
{
    return kind < RN_MSG_KINDS ? names[kind] : "?";
}

static void schedule(struct rn_actor *actor)
{
    struct rn_runtime *runtime = actor->runtime;

    if (actor->dedicated != NULL) {
        rn_dedicated_wake(actor->dedicated);
        return;
    }
    if (runtime->n_threads == 0) {
        RN_CHECK(runtime->n_runnable < runtime->runnable_capacity);
        runtime->runnable[runtime->n_runnable++] = actor;
        return;
    }
    RN_CHECK(rn_queue_push_mpmc(runtime->queue, actor));
    rn_wake_notify(&runtime->wake);
}

/* A batch of messages while it is handled; nothing of it is used without a tracer. */
struct span {
    uint64_t begin_ns;
    struct rn_trace_kinds kinds;
};

static void begin_span(const struct rn_tracer *tracer, struct span *span)
{
    memset(&span->kinds, 0, sizeof span->kinds);
    span->begin_ns = rn_now_ns(tracer->clock);
}

static void end_span(struct rn_tracer *tracer, const struct rn_actor *actor, const struct span *span)
{
    const runnel_trace_event event = {
        .kind = RUNNEL_TRACE_ACTOR,
        .track = actor->id,
        .name = actor->class->name,
        .model = actor->model,
        .begin_ns = span->begin_ns,
        .end_ns = rn_now_ns(tracer->clock),
    };

    rn_tracer_put(tracer, actor->thread, &event, &span->kinds);
}

/* Handles up to `batch` messages and either marks the mailbox empty or schedules the actor again.
 * After a successful mark the actor is not touched: it may be running elsewhere, or be freed. */
static void run_actor(struct rn_actor *actor, uint32_t batch, uint32_t thread)
{
    struct rn_runtime *runtime = actor->runtime;
    struct rn_tracer *tracer =
        actor->dedicated == NULL ? runtime->tracer : NULL; /* a ring has one thread that writes */
    struct span span;
    struct rn_msg *gone_msg;
    struct rn_actor *gone_to;

    actor->thread = thread;
    if (tracer != NULL)
        begin_span(tracer, &span);
    for (uint32_t i = 0; i < batch; i++) {
        struct rn_msg *msg = (struct rn_msg *)rn_mailbox_receive(&actor->mailbox);

        if (msg == NULL)
            break;
        RN_CHECK(msg->head.kind < RN_MSG_KINDS && actor->class->handlers[msg->head.kind] != NULL);
        rn_payload_unpoison(runtime->payload_bytes_of, msg);
        if (runtime->trace != NULL)
            runtime->trace(runtime->trace_user, actor, msg);
        if (tracer != NULL)
            span.kinds.n[msg->head.kind]++;
        actor->class->handlers[msg->head.kind](actor, msg);
    }
    if (actor->class->flush != NULL)
        actor->class->flush(actor);
    if (tracer != NULL)
        end_span(tracer, actor, &span);
    gone_msg = actor->gone_msg;
    gone_to = gone_msg != NULL ? actor->gone_to : NULL; /* written before CLOSE was sent: not to be looked at earlier */
    if (!rn_mailbox_mark_empty(&actor->mailbox))
        schedule(actor);
    else if (gone_msg != NULL)
        rn_actor_send(gone_to, gone_msg);
}

void rn_runtime_run(struct rn_actor *actor, uint32_t thread)
{
    RN_ASSERT(actor->dedicated != NULL && thread >= actor->runtime->n_threads);
    run_actor(actor, RN_ACTOR_BATCH, thread);
}

/* ---- The alarm ---- */

#define NEVER UINT64_MAX
#define TICKING (UINT64_MAX - 1) /* the TICK is under way, and there is no alarm */

void rn_runtime_alarm(struct rn_runtime *runtime, struct rn_actor *actor, uint64_t at_us)
{
    uint64_t old = atomic_load_explicit(&runtime->alarm.at_us, memory_order_relaxed);

    RN_ASSERT(runtime->alarm.actor == NULL || runtime->alarm.actor == actor);
    RN_ASSERT(at_us != TICKING);
    if (runtime->alarm.actor == NULL)
        runtime->alarm.actor = actor;
    do {
        if (old == TICKING)
            return;
        /* Release; partner: the exchange in send_tick, behind which the actor is looked at. */
    } while (!atomic_compare_exchange_weak_explicit(&runtime->alarm.at_us, &old, at_us, memory_order_release,
                                                    memory_order_relaxed));
    if (runtime->n_threads > 0 && at_us != NEVER)
        rn_wake_notify(&runtime->wake); /* a sleeper has to sleep for less long */
}

void rn_runtime_ticked(struct rn_runtime *runtime)
{
    /* Relaxed: nobody but the caller changes it now, and the next alarm is a release. */
    RN_ASSERT(atomic_load_explicit(&runtime->alarm.at_us, memory_order_relaxed) == TICKING);
    atomic_store_explicit(&runtime->alarm.at_us, NEVER, memory_order_relaxed);
}

/* Sends the TICK if its time has come; else, how many microseconds are left (-1: for ever). */
static int64_t send_tick(struct rn_runtime *runtime)
{
    uint64_t at = atomic_load_explicit(&runtime->alarm.at_us, memory_order_relaxed), now;

    if (at == NEVER || at == TICKING)
        return -1;
    now = rn_now_us(runtime->clock);
    if (now < at)
        return at - now < INT64_MAX ? (int64_t)(at - now) : INT64_MAX;
    /* Of several threads that see it due one sends it. Acquire; partner: the store in rn_runtime_alarm. */
    if (atomic_compare_exchange_strong(&runtime->alarm.at_us, &at, TICKING))
        rn_actor_send(runtime->alarm.actor, rn_msg_new(runtime, RN_MSG_TICK));
    return 0;
}

void rn_runtime_look_at_clock(struct rn_runtime *runtime)
{
    send_tick(runtime);
}

static void *scheduler_main(void *arg)
{
    struct rn_runtime *runtime = arg;
    uint32_t thread = atomic_fetch_add(&runtime->next_thread.value, 1); /* a number; orders nothing */

    for (;;) {
        uint32_t ticket = rn_wake_ticket(&runtime->wake);
        int64_t left_us = send_tick(runtime);
        struct rn_actor *actor = rn_queue_pop_mpmc(runtime->queue);

        if (actor != NULL)
            run_actor(actor, RN_ACTOR_BATCH, thread);
        else if (rn_word_get(&runtime->stopping) != 0)
            return NULL;
        else if (left_us != 0)
            rn_wake_wait(&runtime->wake, ticket, left_us, SPIN_US);
    }
}

void rn_runtime_stop(struct rn_runtime *runtime)
{
    rn_word_set(&runtime->stopping, 1);
    rn_wake_notify(&runtime->wake);
    for (uint32_t i = 0; i < runtime->n_threads; i++)
        pthread_join((pthread_t)runtime->threads[i], NULL);
    runtime->n_threads = 0;
}

void rn_runtime_fini(struct rn_runtime *runtime)
{
    rn_queue_free(runtime->queue);
    rn_free(runtime->heap, runtime->threads);
    rn_free(runtime->heap, runtime->runnable);
    rn_pool_fini(&runtime->messages);
}

static runnel_status start_threads(struct rn_runtime *runtime, uint32_t n_threads)
{
    for (uint32_t i = 0; i < n_threads; i++) {
        if (!rn_thread_start((pthread_t *)&runtime->threads[i], scheduler_main, runtime)) {
            rn_runtime_stop(runtime);
            return RUNNEL_NO_MEMORY;
        }
        runtime->n_threads = i + 1;
    }
    return RUNNEL_OK;
}

runnel_status rn_runtime_init(struct rn_runtime *runtime, struct rn_heap *heap, const struct rn_clock *clock,
                              uint32_t n_threads, uint32_t max_actors, uint32_t max_messages)
{
    *runtime = (struct rn_runtime){.heap = heap, .clock = clock, .runnable_capacity = max_actors};
    atomic_init(&runtime->alarm.at_us, NEVER);
    rn_wake_init(&runtime->wake);
    if (rn_pool_init(&runtime->messages, heap, max_messages, sizeof(struct rn_msg)) != RUNNEL_OK)
        return RUNNEL_NO_MEMORY;
    if (n_threads == 0) {
        runtime->runnable = rn_calloc(heap, max_actors, sizeof(struct rn_actor *));
        if (runtime->runnable == NULL)
            goto fail;
        return RUNNEL_OK;
    }
    runtime->queue = rn_queue_new(heap, max_actors);
    runtime->threads = rn_calloc(heap, n_threads, sizeof runtime->threads[0]);
    if (runtime->queue == NULL || runtime->threads == NULL)
        goto fail;
    /* n_threads is 0 until a thread exists, and schedule() reads it: the threads find an empty queue. */
    if (start_threads(runtime, n_threads) != RUNNEL_OK)
        goto fail;
    return RUNNEL_OK;
fail:
    rn_runtime_fini(runtime);
    return RUNNEL_NO_MEMORY;
}

void rn_actor_init(struct rn_actor *actor, struct rn_runtime *runtime, const struct rn_actor_class *class,
                   int32_t credits)
{
    RN_ASSERT(credits > 0 && (uint32_t)credits <= runtime->messages.capacity);
    rn_mailbox_init(&actor->mailbox, credits);
    actor->class = class;
    actor->runtime = runtime;
    actor->id = atomic_fetch_add(&runtime->next_id.value, 1); /* a name for the trace; orders nothing */
    actor->thread = 0;
    actor->dedicated = NULL;
    actor->model = "";
    actor->gone_msg = NULL;
    actor->gone_to = NULL;
}

struct rn_msg *rn_msg_try(struct rn_runtime *runtime, enum rn_message_kind kind)
{
    struct rn_msg *msg = rn_pool_take(&runtime->messages);

    RN_ASSERT(kind < RN_MSG_KINDS);
    if (msg != NULL)
        msg->head.kind = kind;
    return msg;
}

struct rn_msg *rn_msg_new(struct rn_runtime *runtime, enum rn_message_kind kind)
{
    struct rn_msg *msg = rn_msg_try(runtime, kind);

    RN_CHECK(msg != NULL);
    return msg;
}

void rn_msg_free(struct rn_runtime *runtime, struct rn_msg *msg)
{
    RN_ASSERT(msg->head.kind < RN_MSG_KINDS); /* it is not free yet ... */
    msg->head.kind = RN_MSG_KINDS;            /* ... and who sends it from now on is found out */
    rn_pool_give(&runtime->messages, msg);
}

void rn_actor_send(struct rn_actor *to, struct rn_msg *msg)
{
    enum rn_send sent;

    RN_ASSERT(msg->head.kind < RN_MSG_KINDS && to->class->handlers[msg->head.kind] != NULL);
    rn_payload_poison(to->runtime->payload_bytes_of, msg);
    sent = rn_mailbox_send_try(&to->mailbox, &msg->head);
    RN_CHECK(sent != RN_SEND_REFUSED);
    if (sent == RN_SEND_FIRST)
        schedule(to);
}

void rn_actor_on_close(struct rn_actor *self, struct rn_msg *msg)
{
    RN_ASSERT(self->gone_msg == NULL && self->gone_to != NULL);
    msg->head.kind = RN_MSG_GONE;
    self->gone_msg = msg;
}

uint32_t rn_runtime_runnable(const struct rn_runtime *runtime)
{
    return runtime->n_runnable;
}

void rn_runtime_step(struct rn_runtime *runtime, uint32_t choice, uint32_t batch)
{
    struct rn_actor *actor;

    RN_CHECK(choice < runtime->n_runnable);
    actor = runtime->runnable[choice];
    runtime->runnable[choice] = runtime->runnable[--runtime->n_runnable];
    run_actor(actor, batch, 0);
}

bool rn_runtime_check(const struct rn_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->n_runnable; i++) {
        if (runtime->runnable[i]->runtime != runtime)
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (runtime->runnable[k] == runtime->runnable[i])
                return false;
    }
    return runtime->n_runnable <= runtime->runnable_capacity &&
           rn_pool_taken(&runtime->messages) <= runtime->messages.capacity;
}
