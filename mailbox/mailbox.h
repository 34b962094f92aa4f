/* An intrusive, bounded mailbox: many producers, one consumer, no allocation.
 *
 * The queue is a singly linked list from tail (consumer) to head (producers). A send exchanges the
 * head and links the predecessor; the head's low bit says "the consumer has marked me empty", so
 * the very exchange that enqueues reports the empty→non-empty edge, and exactly one sender learns
 * that it has to wake the consumer (law 3).
 *
 * Method: Vyukov's intrusive MPSC queue with the empty mark of the Pony runtime's messageq.
 *
 * Bound: at most `credits` messages are inside; a send beyond that is refused and the message stays
 * with the sender. A message keeps its credit until it has been received, and not longer.
 * `sent` counts the places claimed, `received` those given back; a sender reads the consumer's
 * line only when its copy of `received` says "full", so a stream does not share that line. */
#ifndef RN_MAILBOX_MAILBOX_H
#define RN_MAILBOX_MAILBOX_H

#include <stdbool.h>

#include "mailbox/message.h"

enum rn_send {
    RN_SEND_REFUSED = 0, /* no credit: the message is still the sender's */
    RN_SEND_QUEUED = 1,  /* the consumer is awake or being woken */
    RN_SEND_FIRST = 2    /* it was marked empty: the sender must wake the consumer */
};

struct rn_mailbox {
    /* producers' line */
    _Alignas(64) _Atomic(uintptr_t) head; /* the newest message; low bit: marked empty */
    _Atomic(uint64_t) sent;               /* places claimed since init */
    _Atomic(uint64_t) known;              /* a past value of `received` */
    int64_t credits;                      /* constant */
    /* consumer's line */
    _Alignas(64) struct rn_message *tail; /* the oldest message, or the stub */
    _Atomic(uint64_t) received;           /* places given back since init; written by the consumer alone */
    struct rn_message stub;
};

/* Starts empty and marked: the first send reports RN_SEND_FIRST. credits in [1, 2^30]. */
void rn_mailbox_init(struct rn_mailbox *mailbox, int32_t credits);

/* Any thread. On RN_SEND_QUEUED and RN_SEND_FIRST the message has moved. Wait-free. While one send
 * is being refused, another may be refused with it though a place has just become free; senders
 * whose shares add up to no more than `credits` are never refused. */
enum rn_send rn_mailbox_send_try(struct rn_mailbox *mailbox, struct rn_message *message);

/* Consumer only. The oldest message, or NULL when none can be had now: the mailbox is empty, or a
 * producer is between its two steps (rn_mailbox_mark_empty tells them apart). */
struct rn_message *rn_mailbox_receive(struct rn_mailbox *mailbox);

/* Consumer only. True: the mailbox was empty and is now marked; the consumer must not touch it
 * again until woken (law 3). False: there is more, go on receiving. On a mailbox that is marked
 * already it is true again: a consumer may look in without having been woken. */
bool rn_mailbox_mark_empty(struct rn_mailbox *mailbox);

/* Messages inside, roughly; any thread. Exact when nobody sends or receives. */
int32_t rn_mailbox_count(const struct rn_mailbox *mailbox);

#endif
