/* The memory orders of the mailbox and of the pool, named after the step that uses them.
 *
 * mailbox.c and the model in tests/mailbox/model/ both take their orders from here, so that what
 * the model checker has passed is what runs. The model also weakens them one at a time and expects
 * the damage that each comment names. Macros and not constants: the model's atomics are C++ types
 * with their own `memory_order_*`. */
#ifndef RN_MAILBOX_ORDERS_H
#define RN_MAILBOX_ORDERS_H

/* ---- Mailbox ----------------------------------------------------------------------------- */

/* send: exchange of the head, putting a message in.
 * Release half; partner: RN_ORDER_HEAD_SWAP's own acquire half in the next sender. It carries "my
 *   link is NULL" to whoever will set that link; weaker: the NULL may land on top of the successor
 *   and everything behind it is lost.
 * Acquire half; partners: the same release, and RN_ORDER_MARK. The sender that clears the mark
 *   sees all that the consumer did before marking, and passes it on to the thread it wakes;
 *   weaker: the next consumer works on an old tail. */
#define RN_ORDER_HEAD_SWAP memory_order_acq_rel

/* send: store of the link predecessor → message. Release; partner: RN_ORDER_LINK_READ. Weaker: the
 * consumer reads a message that is not written yet. */
#define RN_ORDER_LINK memory_order_release

/* receive: load of the link. Acquire; partner: RN_ORDER_LINK. Weaker: as there. */
#define RN_ORDER_LINK_READ memory_order_acquire

/* send, before the exchange: the message's own link becomes NULL. Relaxed: published by the exchange. */
#define RN_ORDER_LINK_CLEAR memory_order_relaxed

/* receive: is the tail also the head? Relaxed: a guess that the exchange behind it decides. */
#define RN_ORDER_HEAD_PEEK memory_order_relaxed

/* mark_empty: exchange of an unmarked head by a marked one. Release; partner: RN_ORDER_HEAD_SWAP of
 * the send that finds the mark. Weaker: the consumer's last reads and writes may fall behind the
 * wake, and two threads are consumers at once. */
#define RN_ORDER_MARK memory_order_release

/* mark_empty, when the exchange fails: nothing follows from the value. */
#define RN_ORDER_MARK_FAIL memory_order_relaxed

/* send: a place is claimed by counting `sent` up (down again on refusal). Relaxed: only the order
 * of changes to this one counter matters. */
#define RN_ORDER_CLAIM memory_order_relaxed

/* receive: `received` is counted up by its only writer. Release; partner: RN_ORDER_RECEIVED_READ.
 * A sender that relied on this place sees the reads of the message whose place it was. */
#define RN_ORDER_RECEIVED memory_order_release

/* send: load of `received`. Acquire; partner: RN_ORDER_RECEIVED. */
#define RN_ORDER_RECEIVED_READ memory_order_acquire

/* send: `known`, the senders' copy of `received`. Release and acquire, so that a sender that trusts
 * the copy stands as if it had read the original; partner: each other. Any older value is only
 * a reason to look at the original. */
#define RN_ORDER_KNOWN memory_order_release
#define RN_ORDER_KNOWN_READ memory_order_acquire

/* ---- Pool -------------------------------------------------------------------------------- */

/* give: exchange of the top. Release; partner: RN_ORDER_TAKE. All changes of the top are
 * read-modify-writes, so each of them carries every earlier release on. Weaker: the taker may see
 * the last owner's writes arrive on top of its own, or follow an old link. */
#define RN_ORDER_GIVE memory_order_release

/* take: load and exchange of the top. Acquire; partner: RN_ORDER_GIVE. Weaker: as there. */
#define RN_ORDER_TAKE memory_order_acquire

#endif
