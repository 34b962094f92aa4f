/* The worker thread: see worker.h. */
#include "actors/runtime/worker.h"

#include <pthread.h>

#include "base/check.h"
#include "base/thread.h"

static void *worker_main(void *arg)
{
    struct rn_worker *worker = arg;

    for (;;) {
        uint32_t ticket = rn_wake_ticket(&worker->wake);
        struct rn_work *work = rn_queue_pop_mpmc(worker->queue);

        if (work != NULL)
            work->run(work);
        else if (rn_word_get(&worker->stopping) != 0)
            return NULL;
        else
            rn_wake_wait(&worker->wake, ticket, -1, 0);
    }
}

runnel_status rn_worker_init(struct rn_worker *worker, struct rn_heap *heap, uint32_t capacity, bool manual)
{
    *worker = (struct rn_worker){.manual = manual};
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
    rn_queue_free(worker->queue);
}

void rn_worker_post(struct rn_worker *worker, struct rn_work *work)
{
    if (worker->manual) {
        work->run(work);
        return;
    }
    RN_CHECK(rn_queue_push_mpmc(worker->queue, work));
    rn_wake_notify(&worker->wake);
}
