/* A program with a bug: it writes to what it has already handed over. Built only under
 * ThreadSanitizer, which must say so; its silence would mean that the annotations of the room hide
 * real races together with the false ones. The argument says through which door: mailbox, queue,
 * ring or pool. With the second argument "clean" the bug is left out and nothing may be said. */
#include <string.h>

#include "mailbox/mailbox.h"
#include "mailbox/pool.h"
#include "mailbox/queue.h"
#include "mailbox/ring.h"
#include "tests/mailbox/threads.h"

#define ROUNDS 2000

struct note {
    struct rn_message head;
    uint64_t value;
};

static struct rn_mailbox mailbox;
static struct rn_queue *queue;
static struct rn_ring *ring;
static struct rn_pool pool;
static struct note notes[ROUNDS];
static bool with_bug;
static uint64_t sum;

static void *mailbox_reader(void *user)
{
    (void)user;
    for (int n = 0; n < ROUNDS;) {
        struct rn_message *message = rn_mailbox_receive(&mailbox);

        if (message == NULL) {
            sched_yield();
            continue;
        }
        sum += ((struct note *)message)->value;
        n++;
    }
    return NULL;
}

static void mailbox_writer(void)
{
    for (int n = 0; n < ROUNDS; n++) {
        notes[n].value = 1;
        while (rn_mailbox_send_try(&mailbox, &notes[n].head) == RN_SEND_REFUSED)
            sched_yield();
        if (with_bug)
            notes[n].value = 2;
    }
}

static void *queue_reader(void *user)
{
    (void)user;
    for (int n = 0; n < ROUNDS;) {
        struct note *note = (struct note *)rn_queue_pop_mpmc(queue);

        if (note == NULL) {
            sched_yield();
            continue;
        }
        sum += note->value;
        n++;
    }
    return NULL;
}

static void queue_writer(void)
{
    for (int n = 0; n < ROUNDS; n++) {
        notes[n].value = 1;
        while (!rn_queue_push_mpmc(queue, &notes[n]))
            sched_yield();
        if (with_bug)
            notes[n].value = 2;
    }
}

static void *ring_reader(void *user)
{
    (void)user;
    for (int n = 0; n < ROUNDS;) {
        uint64_t *cell = (uint64_t *)rn_ring_peek_spsc(ring);

        if (cell == NULL) {
            sched_yield();
            continue;
        }
        sum += *cell;
        rn_ring_release_spsc(ring);
        n++;
    }
    return NULL;
}

static void ring_writer(void)
{
    for (int n = 0; n < ROUNDS; n++) {
        uint64_t *cell;

        while ((cell = (uint64_t *)rn_ring_reserve_spsc(ring)) == NULL)
            sched_yield();
        *cell = 1;
        rn_ring_publish_spsc(ring);
        if (with_bug)
            *cell = 2;
    }
}

/* Both threads run the same loop here, at the same time: one after the other there might be no race. */
static void pool_user(void)
{
    static _Atomic(int) users;

    /* relaxed: orders nothing, so it hides no race */
    atomic_fetch_add_explicit(&users, 1, memory_order_relaxed);
    while (atomic_load_explicit(&users, memory_order_relaxed) < 2)
        sched_yield();
    for (int n = 0; n < ROUNDS; n++) {
        uint64_t *cell;

        if (n % 16 == 0)
            sched_yield();
        while ((cell = (uint64_t *)rn_pool_take(&pool)) == NULL)
            sched_yield();
        *cell = (uint64_t)n;
        rn_pool_give(&pool, cell);
        if (with_bug)
            *cell = 2;
    }
}

static void *pool_reader(void *user)
{
    (void)user;
    pool_user();
    return NULL;
}

struct door {
    const char *name;
    void *(*reader)(void *);
    void (*writer)(void);
};

static const struct door doors[] = {
    {"mailbox", mailbox_reader, mailbox_writer},
    {"queue", queue_reader, queue_writer},
    {"ring", ring_reader, ring_writer},
    {"pool", pool_reader, pool_user},
};

int main(int argc, char **argv)
{
    struct rn_heap heap;
    struct crew crew = {.n = 0};

    rn_heap_init(&heap, NULL);
    rn_mailbox_init(&mailbox, 64);
    queue = rn_queue_new(&heap, 64);
    ring = rn_ring_new(&heap, 64, sizeof(uint64_t));
    RN_CHECK(queue != NULL && ring != NULL && rn_pool_init(&pool, &heap, 2, 64) == RUNNEL_OK);
    with_bug = !(argc > 2 && strcmp(argv[2], "clean") == 0);
    for (size_t i = 0; argc > 1 && i < sizeof doors / sizeof *doors; i++) {
        if (strcmp(argv[1], doors[i].name) != 0)
            continue;
        crew_start(&crew, doors[i].reader, NULL);
        doors[i].writer();
        crew_join(&crew);
    }
    rn_queue_free(queue);
    rn_ring_free(ring);
    rn_pool_fini(&pool);
    return 0;
}
