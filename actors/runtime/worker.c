/* The worker thread: see worker.h. */
#include "actors/runtime/worker.h"

#include <pthread.h>

#include "base/check.h"
#include "base/thread.h"

static_assert(sizeof(pthread_t) == sizeof(unsigned long), "worker.h keeps pthread_t without its header");

static void *worker_main(void *arg)
{
    struct rn_worker *worker = arg;

    for (;;) {
        uint32_t ticket = rn_wake_ticket(&worker->wake);
        struct rn_work *work = rn_queue_pop_mpmc(worker->queue);

        if (work != NULL) {
            rn_counter_add(&worker->n_waiting, -1);
            work->run(work);
        } else if (rn_word_get(&worker->stopping) != 0) {
            return NULL;
        } else {
            rn_wake_wait(&worker->wake, ticket, -1, 0);
        }
    }
}

runnel_status rn_worker_init(struct rn_worker *worker, struct rn_heap *heap, uint32_t capacity, bool manual)
{
    *worker = (struct rn_worker){.manual = manual, .capacity = capacity};
    if (manual)
        return RUNNEL_OK;
    rn_wake_init(&worker->wake);
    worker->queue = rn_queue_new(heap, capacity);
    if (worker->queue == NULL)
        return RUNNEL_NO_MEMORY;
    if (!rn_thread_start((pthread_t *)&worker->thread, worker_main, worker)) {
        rn_queue_free(worker->queue);
        return RUNNEL_NO_MEMORY;
    }
    return RUNNEL_OK;
}

void rn_worker_fini(struct rn_worker *worker)
{
    if (worker->manual)
        return;
    rn_word_set(&worker->stopping, 1);
    rn_wake_notify(&worker->wake);
    pthread_join((pthread_t)worker->thread, NULL);
    RN_ASSERT(rn_worker_check(worker) && rn_counter_get(&worker->n_waiting) == 0); /* all that was posted has run */
    rn_queue_free(worker->queue);
}

bool rn_worker_check(const struct rn_worker *worker)
{
    int64_t n = rn_counter_get(&worker->n_waiting);

    return worker->manual ? worker->queue == NULL && n == 0 : n >= 0 && n <= (int64_t)worker->capacity;
}

void rn_worker_post(struct rn_worker *worker, struct rn_work *work)
{
    if (worker->manual) {
        work->run(work);
        return;
    }
    RN_ASSERT(rn_word_get(&worker->stopping) == 0);
    rn_counter_add(&worker->n_waiting, 1); /* before another thread takes it */
    RN_CHECK(rn_queue_push_mpmc(worker->queue, work));
    rn_wake_notify(&worker->wake);
}
