/* The mailbox by itself: one thread against a model that is too simple to be wrong, then many
 * producers against a consumer that sleeps and is woken by nothing but RN_SEND_FIRST. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "mailbox/mailbox.h"
#include "mailbox/pool.h"
#include "mailbox/wake.h"
#include "tests/mailbox/threads.h"

struct note {
    struct rn_message head;
    uint64_t number;
    uint64_t check; /* of the number and the sender, written without atomics: the race detector's bait */
};

static uint64_t check_of(uint32_t sender, uint64_t number)
{
    return (number ^ sender) * 0x9e3779b97f4a7c15u;
}

/* ---- One thread -------------------------------------------------------------------------- */

static void test_edges(void **state)
{
    struct rn_mailbox mailbox;
    struct rn_message a, b;

    (void)state;
    rn_mailbox_init(&mailbox, 8);
    assert_null(rn_mailbox_receive(&mailbox));
    assert_int_equal(rn_mailbox_count(&mailbox), 0);
    assert_int_equal(rn_mailbox_send_try(&mailbox, &a), RN_SEND_FIRST);
    assert_int_equal(rn_mailbox_send_try(&mailbox, &b), RN_SEND_QUEUED);
    assert_int_equal(rn_mailbox_count(&mailbox), 2);
    assert_false(rn_mailbox_mark_empty(&mailbox));
    assert_ptr_equal(rn_mailbox_receive(&mailbox), &a);
    assert_false(rn_mailbox_mark_empty(&mailbox));
    assert_ptr_equal(rn_mailbox_receive(&mailbox), &b);
    assert_null(rn_mailbox_receive(&mailbox));
    assert_int_equal(rn_mailbox_send_try(&mailbox, &b), RN_SEND_QUEUED); /* empty but not marked: awake */
    assert_ptr_equal(rn_mailbox_receive(&mailbox), &b);
    assert_true(rn_mailbox_mark_empty(&mailbox));
    assert_int_equal(rn_mailbox_send_try(&mailbox, &a), RN_SEND_FIRST);
    assert_ptr_equal(rn_mailbox_receive(&mailbox), &a);
    assert_int_equal(rn_mailbox_count(&mailbox), 0);
}

static void test_refused_stays_with_the_sender(void **state)
{
    struct rn_mailbox full, other;
    struct rn_message a;
    struct note kept, before;

    (void)state;
    rn_mailbox_init(&full, 1);
    rn_mailbox_init(&other, 1);
    memset(&kept, 0x5a, sizeof kept);
    memcpy(&before, &kept, sizeof kept);
    assert_int_equal(rn_mailbox_send_try(&full, &a), RN_SEND_FIRST);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rn_mailbox_send_try(&full, &kept.head), RN_SEND_REFUSED);
    assert_memory_equal(&kept, &before, sizeof kept); /* not even the link was touched */
    assert_int_equal(rn_mailbox_send_try(&other, &kept.head), RN_SEND_FIRST);
    assert_ptr_equal(rn_mailbox_receive(&full), &a);
    assert_null(rn_mailbox_receive(&full));
    assert_int_equal(rn_mailbox_send_try(&full, &a), RN_SEND_QUEUED); /* the credit came back at once */
    assert_ptr_equal(rn_mailbox_receive(&other), &kept.head);
}

/* Random operations against an array: every answer is determined when nobody else is there. */
static void random_steps(int32_t credits, uint64_t rng)
{
    enum { STEPS = 20000, NOTES = 40 };
    struct rn_mailbox mailbox;
    struct note notes[NOTES], *inside[NOTES];
    bool is_inside[NOTES] = {false}, marked = true;
    int n = 0;

    rn_mailbox_init(&mailbox, credits);
    for (int step = 0; step < STEPS; step++) {
        uint64_t draw = rn_splitmix64(&rng), which = (draw >> 8) % NOTES;

        if (draw % 2 == 0 && !is_inside[which]) {
            enum rn_send expected = n == credits ? RN_SEND_REFUSED : marked ? RN_SEND_FIRST : RN_SEND_QUEUED;

            assert_int_equal(rn_mailbox_send_try(&mailbox, &notes[which].head), expected);
            if (expected != RN_SEND_REFUSED) {
                inside[n++] = &notes[which];
                is_inside[which] = true;
                marked = false;
            }
        } else if (draw % 2 == 1 && draw % 64 < 40) {
            assert_ptr_equal(rn_mailbox_receive(&mailbox), n > 0 ? &inside[0]->head : NULL);
            if (n > 0) {
                is_inside[inside[0] - notes] = false;
                memset(inside[0], 0xee, sizeof *inside[0]); /* the receiver's now */
                memmove(inside, inside + 1, (size_t)--n * sizeof *inside);
            }
        } else {
            marked = rn_mailbox_mark_empty(&mailbox); /* again and again, too: a consumer may look in unasked */
            assert_int_equal(marked, n == 0);
        }
        assert_int_equal(rn_mailbox_count(&mailbox), n);
    }
}

static void test_against_model(void **state)
{
    (void)state;
    for (int32_t credits = 1; credits <= 32; credits += credits < 4 ? 1 : 7)
        random_steps(credits, (uint64_t)credits);
}

/* The counters pass 2^32 and 2^63 without a refusal or a place too many. */
static void test_counters_wrap(void **state)
{
    static const uint64_t starts[] = {UINT32_MAX - 5u, INT64_MAX - 5u, UINT64_MAX - 5u};
    struct rn_message messages[3];

    (void)state;
    for (size_t s = 0; s < 3; s++) {
        struct rn_mailbox mailbox;

        rn_mailbox_init(&mailbox, 2);
        atomic_store(&mailbox.sent, starts[s]);
        atomic_store(&mailbox.known, starts[s]);
        atomic_store(&mailbox.received, starts[s]);
        for (int i = 0; i < 20; i++) {
            assert_int_not_equal(rn_mailbox_send_try(&mailbox, &messages[0]), RN_SEND_REFUSED);
            assert_int_not_equal(rn_mailbox_send_try(&mailbox, &messages[1]), RN_SEND_REFUSED);
            assert_int_equal(rn_mailbox_send_try(&mailbox, &messages[2]), RN_SEND_REFUSED);
            assert_int_equal(rn_mailbox_count(&mailbox), 2);
            assert_ptr_equal(rn_mailbox_receive(&mailbox), &messages[0]);
            assert_ptr_equal(rn_mailbox_receive(&mailbox), &messages[1]);
        }
    }
}

/* ---- Many producers, a sleeping consumer ------------------------------------------------- */

#define PRODUCERS_MAX 4

struct post {
    struct rn_mailbox mailbox;
    struct rn_wake wake;
    struct rn_pool pool;
    int producers;
    int32_t credits;
    uint64_t each; /* messages of each producer */
    uint32_t spin_us;
    _Atomic(uint64_t) next_id, accepted, refused, edges;
    _Atomic(bool) given_up; /* the consumer was forgotten; nobody will make room any more */
    /* the consumer's findings */
    uint64_t received, out_of_order, damaged, over_credit, marks, forgotten, double_wakes;
    uint64_t last[PRODUCERS_MAX];
};

static void deliver(struct post *post, struct note *note)
{
    enum rn_send sent;

    while ((sent = rn_mailbox_send_try(&post->mailbox, &note->head)) == RN_SEND_REFUSED) {
        bump(&post->refused);
        if (atomic_load(&post->given_up))
            return;
        sched_yield();
    }
    bump(&post->accepted);
    if (sent == RN_SEND_FIRST) {
        bump(&post->edges);
        rn_wake_notify(&post->wake);
    }
}

static void *produce(void *user)
{
    struct post *post = (struct post *)user;
    uint32_t id = (uint32_t)bump(&post->next_id);

    for (uint64_t number = 1; number <= post->each; number++) {
        struct note *note;

        while ((note = (struct note *)rn_pool_take(&post->pool)) == NULL) {
            if (atomic_load(&post->given_up))
                return NULL;
            sched_yield();
        }
        note->head.sender = id;
        note->number = number;
        note->check = check_of(id, number);
        deliver(post, note);
    }
    return NULL;
}

static void inspect(struct post *post, struct note *note)
{
    uint32_t id = note->head.sender;

    post->damaged += note->check != check_of(id, note->number);
    post->out_of_order += note->number != ++post->last[id];
    post->received++;
    memset((char *)note + offsetof(struct note, number), 0xee, sizeof *note - offsetof(struct note, number));
    rn_pool_give(&post->pool, note);
}

/* Sleeps until the one notify that belongs to this mark; the count then stands exactly one higher,
 * because the next edge needs the next mark. */
static bool sleep_until_woken(struct post *post, uint32_t *ticket)
{
    if (!rn_wake_wait(&post->wake, *ticket, MAX_WAIT_US, post->spin_us)) {
        post->forgotten++;
        atomic_store(&post->given_up, true);
        return false;
    }
    *ticket = (*ticket + 1) & 0x7fffffffu;
    post->double_wakes += rn_wake_ticket(&post->wake) != *ticket;
    return true;
}

static void consume(struct post *post)
{
    uint64_t all = post->each * (uint64_t)post->producers;
    uint32_t ticket = 0; /* of rn_wake_init: the first edge may already have passed */
    bool awake = sleep_until_woken(post, &ticket);

    while (awake) {
        struct rn_message *message;

        /* All that were accepted are received or inside; loaded first, so it can only be too few. */
        post->over_credit += (int64_t)(peek(&post->accepted) - post->received) > post->credits;
        message = rn_mailbox_receive(&post->mailbox);
        if (message != NULL) {
            inspect(post, (struct note *)message);
        } else if (rn_mailbox_mark_empty(&post->mailbox)) {
            post->marks++;
            awake = post->received < all && sleep_until_woken(post, &ticket);
        } else {
            sched_yield(); /* a producer is between its two steps */
        }
    }
}

static void stress(int producers, int32_t credits, uint32_t cells, uint32_t spin_us)
{
    struct post post = {.producers = producers, .credits = credits, .spin_us = spin_us};
    struct rn_heap heap;
    struct crew crew = {.n = 0};

    post.each = 120000 / TEST_SLOWDOWN / (uint64_t)producers;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_pool_init(&post.pool, &heap, cells, sizeof(struct note)), RUNNEL_OK);
    rn_mailbox_init(&post.mailbox, credits);
    rn_wake_init(&post.wake);
    for (int i = 0; i < producers; i++)
        crew_start(&crew, produce, &post);
    consume(&post);
    crew_join(&crew);

    assert_int_equal(post.forgotten, 0);
    assert_int_equal(post.received, post.each * (uint64_t)producers);
    assert_int_equal(post.damaged, 0);
    assert_int_equal(post.out_of_order, 0);
    assert_int_equal(post.over_credit, 0);
    assert_int_equal(post.double_wakes, 0);
    /* Marked at the start and once per mark; all but the last mark were taken by an edge. */
    assert_int_equal(peek(&post.edges), post.marks);
    assert_int_equal(rn_wake_ticket(&post.wake), peek(&post.edges));
    assert_int_equal(peek(&post.accepted), post.received);
    if (credits < (int32_t)cells && credits < producers)
        assert_true(peek(&post.refused) > 0); /* the bound was really met */
    assert_int_equal(rn_mailbox_count(&post.mailbox), 0);
    assert_int_equal(rn_pool_taken(&post.pool), 0);
    rn_pool_fini(&post.pool);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_stress_stream(void **state)
{
    (void)state;
    for (int producers = 1; producers <= PRODUCERS_MAX; producers++)
        stress(producers, 1024, 2048, 0);
}

static void test_stress_one_credit(void **state)
{
    (void)state;
    stress(1, 1, 4, 0);
    stress(4, 1, 8, 0);
    stress(4, 3, 8, 20);
}

/* Few cells: the pool runs dry, every cell is reused at once, and the mailbox is empty often. */
static void test_stress_few_cells(void **state)
{
    (void)state;
    stress(1, 16, 1, 0);
    stress(3, 16, 2, 0);
    stress(4, 16, 5, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refused_stays_with_the_sender),
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_counters_wrap),
        cmocka_unit_test(test_stress_stream),
        cmocka_unit_test(test_stress_one_credit),
        cmocka_unit_test(test_stress_few_cells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
