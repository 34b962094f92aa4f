/* The mailbox: see mailbox.h for the contract, orders.h for what each memory order is for.
 *
 *      tail                                        head
 *       |                                           |
 *       v                                           v
 *     [stub] --next--> [m1] --next--> [m2] --next--> [m3] --next--> NULL
 *
 * A send swaps itself in as head (step 1) and then sets the old head's link (step 2). Between the
 * two steps the list is broken there and the consumer sees NULL where the head is not yet reached.
 *
 * The stub is a message of the mailbox itself. It stands in whenever the consumer takes the last
 * message, because a message whose link may still be written must not leave the list.
 *
 * Invariants
 *  - A message that receive returned is never touched again: its link was seen non-NULL, and a
 *    link is written once per send.
 *  - head == stub | MARK only while the consumer rests. The send whose swap finds the mark takes it
 *    away and is the only one that returns RN_SEND_FIRST.
 *  - received ≤ messages linked ≤ sent, and sent - received ≤ credits but for sends that are about
 *    to be refused. */
#include "mailbox/mailbox.h"

#include <stddef.h>

#include "base/check.h"
#include "mailbox/orders.h"

#define MARK ((uintptr_t)1)
#define CREDITS_MAX (1 << 30)

static_assert(_Alignof(struct rn_message) > 1, "the low bit of a message's address is the mark");
static_assert(offsetof(struct rn_mailbox, tail) == 64, "senders and consumer write different lines");

void rn_mailbox_init(struct rn_mailbox *mailbox, int32_t credits)
{
    RN_CHECK(credits >= 1 && credits <= CREDITS_MAX);
    atomic_init(&mailbox->stub.next, NULL);
    mailbox->stub.kind = 0;
    mailbox->stub.sender = 0;
    mailbox->tail = &mailbox->stub;
    mailbox->credits = credits;
    atomic_init(&mailbox->head, (uintptr_t)&mailbox->stub | MARK);
    atomic_init(&mailbox->sent, 0);
    atomic_init(&mailbox->known, 0);
    atomic_init(&mailbox->received, 0);
}

/* Takes one place, or none and returns false. The difference is signed: `received` is read after
 * the claim and may have passed it. */
static bool claim(struct rn_mailbox *mailbox)
{
    uint64_t place = atomic_fetch_add_explicit(&mailbox->sent, 1, RN_ORDER_CLAIM);
    uint64_t received = atomic_load_explicit(&mailbox->known, RN_ORDER_KNOWN_READ);

    if (__builtin_expect((int64_t)(place - received) < mailbox->credits, 1))
        return true;
    received = atomic_load_explicit(&mailbox->received, RN_ORDER_RECEIVED_READ);
    atomic_store_explicit(&mailbox->known, received, RN_ORDER_KNOWN);
    if ((int64_t)(place - received) < mailbox->credits)
        return true;
    atomic_fetch_sub_explicit(&mailbox->sent, 1, RN_ORDER_CLAIM);
    return false;
}

/* Both steps of a send. Returns whether the mark was found. */
static bool enqueue(struct rn_mailbox *mailbox, struct rn_message *message)
{
    uintptr_t previous;

    atomic_store_explicit(&message->next, NULL, RN_ORDER_LINK_CLEAR);
    previous = atomic_exchange_explicit(&mailbox->head, (uintptr_t)message, RN_ORDER_HEAD_SWAP);
    atomic_store_explicit(&((struct rn_message *)(previous & ~MARK))->next, message, RN_ORDER_LINK);
    return (previous & MARK) != 0;
}

enum rn_send rn_mailbox_send_try(struct rn_mailbox *mailbox, struct rn_message *message)
{
    if (!claim(mailbox))
        return RN_SEND_REFUSED;
    return enqueue(mailbox, message) ? RN_SEND_FIRST : RN_SEND_QUEUED;
}

/* Only the consumer writes `received`, so it can read it relaxed and needs no read-modify-write. */
static struct rn_message *hand_out(struct rn_mailbox *mailbox, struct rn_message *message, struct rn_message *next)
{
    uint64_t received = atomic_load_explicit(&mailbox->received, memory_order_relaxed);

    mailbox->tail = next;
    atomic_store_explicit(&mailbox->received, received + 1, RN_ORDER_RECEIVED);
    return message;
}

struct rn_message *rn_mailbox_receive(struct rn_mailbox *mailbox)
{
    struct rn_message *tail = mailbox->tail;
    struct rn_message *next = atomic_load_explicit(&tail->next, RN_ORDER_LINK_READ);

    if (tail == &mailbox->stub) {
        if (next == NULL)
            return NULL;
        mailbox->tail = tail = next;
        next = atomic_load_explicit(&tail->next, RN_ORDER_LINK_READ);
    }
    if (next != NULL)
        return hand_out(mailbox, tail, next);
    if (atomic_load_explicit(&mailbox->head, RN_ORDER_HEAD_PEEK) != (uintptr_t)tail)
        return NULL;
    /* The last message: the stub goes in behind it. No mark can be found, the consumer is awake. */
    enqueue(mailbox, &mailbox->stub);
    next = atomic_load_explicit(&tail->next, RN_ORDER_LINK_READ);
    return next != NULL ? hand_out(mailbox, tail, next) : NULL;
}

bool rn_mailbox_mark_empty(struct rn_mailbox *mailbox)
{
    uintptr_t expected = (uintptr_t)&mailbox->stub;

    if (mailbox->tail != &mailbox->stub)
        return false;
    if (atomic_compare_exchange_strong_explicit(&mailbox->head, &expected, expected | MARK, RN_ORDER_MARK,
                                                RN_ORDER_MARK_FAIL))
        return true;
    /* A consumer that was not woken has looked in. Should the mark be gone by now, its wake is on the way. */
    return expected == ((uintptr_t)&mailbox->stub | MARK);
}

int32_t rn_mailbox_count(const struct rn_mailbox *mailbox)
{
    uint64_t received = atomic_load_explicit(&mailbox->received, memory_order_relaxed);
    int64_t inside = (int64_t)(atomic_load_explicit(&mailbox->sent, memory_order_relaxed) - received);

    return (int32_t)(inside < 0 ? 0 : inside > mailbox->credits ? mailbox->credits : inside);
}
