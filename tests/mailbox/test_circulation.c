/* All of the room together, as the scheduler of actors uses it, in a closed circulation: a fixed
 * number of messages hops between boxes for ever. Whoever gets RN_SEND_FIRST puts the box on the
 * run queue; whichever thread pops it is its consumer until it has marked it empty. A lost message,
 * a lost edge or two consumers at once show up as a wrong sum, a standstill or a data race (the
 * boxes' fields are plain). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "mailbox/mailbox.h"
#include "mailbox/pool.h"
#include "mailbox/queue.h"
#include "mailbox/wake.h"
#include "tests/mailbox/threads.h"

#define BOXES 7
#define THREADS 4
#define BATCH 5 /* messages that a box may handle before it goes to the back of the queue */
#define HOPS (200000 / TEST_SLOWDOWN)

struct token {
    struct rn_message head;
    uint64_t hops, rng;
};

struct box {
    struct rn_mailbox mailbox;
    uint64_t handled, turns; /* plain: the consumer's */
    bool busy;
};

struct town {
    struct box box[BOXES];
    struct rn_queue *queue;
    struct rn_wake wake;
    struct rn_pool pool;
    _Atomic(uint64_t) hops, edges, refused, two_consumers, queue_full, forgotten;
    _Atomic(bool) stop;
};

static void schedule(struct town *town, struct box *box)
{
    if (!rn_queue_push_mpmc(town->queue, box))
        bump(&town->queue_full);
    rn_wake_notify(&town->wake);
}

static void post(struct town *town, struct box *to, struct token *token)
{
    enum rn_send sent = rn_mailbox_send_try(&to->mailbox, &token->head);

    if (sent == RN_SEND_REFUSED)
        bump(&town->refused); /* there are credits for all: never */
    if (sent == RN_SEND_FIRST) {
        bump(&town->edges);
        schedule(town, to);
    }
}

static void handle(struct town *town, struct box *box, struct token *token)
{
    box->handled++;
    token->hops++;
    if (bump(&town->hops) + 1 >= HOPS) {
        atomic_store(&town->stop, true);
        rn_pool_give(&town->pool, token);
        return;
    }
    post(town, &town->box[rn_splitmix64(&token->rng) % BOXES], token);
}

static void turn(struct town *town, struct box *box)
{
    if (box->busy)
        bump(&town->two_consumers);
    box->busy = true;
    box->turns++;
    for (int i = 0; i < BATCH; i++) {
        struct rn_message *message = rn_mailbox_receive(&box->mailbox);

        if (message == NULL)
            break;
        handle(town, box, (struct token *)message);
    }
    box->busy = false;
    if (!rn_mailbox_mark_empty(&box->mailbox))
        schedule(town, box); /* still ours until the push */
}

static void *work(void *user)
{
    struct town *town = (struct town *)user;

    for (;;) {
        uint32_t ticket = rn_wake_ticket(&town->wake);
        struct box *box = (struct box *)rn_queue_pop_mpmc(town->queue);

        if (box != NULL) {
            turn(town, box);
        } else if (atomic_load(&town->stop) && rn_pool_taken(&town->pool) == 0) {
            rn_wake_notify(&town->wake);
            return NULL;
        } else if (!rn_wake_wait(&town->wake, ticket, MAX_WAIT_US, 5)) {
            bump(&town->forgotten);
            return NULL;
        }
    }
}

/* Every box is empty, marked, and was handed over once per edge or once per unfinished batch. */
static void assert_at_rest(struct town *town)
{
    struct rn_message probe;
    uint64_t handled = 0;

    assert_null(rn_queue_pop_mpmc(town->queue));
    for (int i = 0; i < BOXES; i++) {
        assert_int_equal(rn_mailbox_count(&town->box[i].mailbox), 0);
        assert_int_equal(rn_mailbox_send_try(&town->box[i].mailbox, &probe), RN_SEND_FIRST);
        handled += town->box[i].handled;
    }
    assert_int_equal(handled, peek(&town->hops));
}

static void circulate(uint32_t tokens)
{
    static struct town town;
    struct crew crew = {.n = 0};
    struct rn_heap heap;

    town = (struct town){.queue = NULL};
    rn_heap_init(&heap, NULL);
    rn_wake_init(&town.wake);
    assert_int_equal(rn_pool_init(&town.pool, &heap, tokens, sizeof(struct token)), RUNNEL_OK);
    town.queue = rn_queue_new(&heap, BOXES);
    assert_non_null(town.queue);
    for (int i = 0; i < BOXES; i++)
        rn_mailbox_init(&town.box[i].mailbox, (int32_t)tokens);
    for (uint32_t i = 0; i < tokens; i++) {
        struct token *token = (struct token *)rn_pool_take(&town.pool);

        token->hops = 0;
        token->rng = i;
        post(&town, &town.box[i % BOXES], token);
    }
    for (int i = 0; i < THREADS; i++)
        crew_start(&crew, work, &town);
    crew_join(&crew);

    assert_int_equal(peek(&town.forgotten), 0);
    assert_int_equal(peek(&town.refused), 0);
    assert_int_equal(peek(&town.queue_full), 0);
    assert_int_equal(peek(&town.two_consumers), 0);
    assert_int_equal(peek(&town.hops), HOPS + tokens - 1); /* each token left at its first hop past the end */
    assert_true(peek(&town.edges) > 0);
    assert_int_equal(rn_pool_taken(&town.pool), 0);
    assert_at_rest(&town);
    rn_queue_free(town.queue);
    rn_pool_fini(&town.pool);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_circulation(void **state)
{
    (void)state;
    circulate(1);
    circulate(3);
    circulate(40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_circulation)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
