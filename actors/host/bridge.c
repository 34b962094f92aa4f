/* The producers' side of the bridge to the host: see bridge.h. Runs on the actors' threads, the loader's, and those of
 * the host that cancel or pause a stream. */
#include "actors/host/bridge.h"

#include "base/check.h"

void rn_host_raise(struct rn_host *host, struct rn_edge *edge, struct rn_message *node)
{
    enum rn_send sent;

    if (!rn_edge_raise(edge))
        return;
    sent = rn_mailbox_send_try(&host->mailbox, node);
    RN_CHECK(sent != RN_SEND_REFUSED);
    if (sent == RN_SEND_FIRST)
        rn_notifier_raise(&host->notifier);
}

static void wake_reader(struct rn_host *host, struct rn_outlet *outlet, bool pull)
{
    if (pull)
        rn_wake_notify(&outlet->wake);
    else
        rn_host_raise(host, &outlet->edge, &outlet->ready);
}

void rn_host_publish(struct rn_host *host, struct rn_outlet *outlet)
{
    rn_outlet_publish(outlet);
    wake_reader(host, outlet, rn_word_get(&outlet->pull) != 0);
}

bool rn_host_put(struct rn_host *host, struct rn_outlet *outlet, const struct rn_cell *cell)
{
    enum rn_joined joined = rn_outlet_join(outlet, cell);

    RN_ASSERT(joined == RN_JOINED_NOT || outlet->coalesce_bytes > 0);
    if (joined == RN_JOINED_NOT)
        rn_outlet_publish(outlet);
    wake_reader(host, outlet, rn_word_get(&outlet->pull) != 0);
    return joined == RN_JOINED_MORE;
}

void rn_host_publish_end(struct rn_host *host, struct rn_outlet *outlet)
{
    bool pull = rn_word_get(&outlet->pull) != 0; /* read before the end is out: after it the slot may be reused */

    RN_ASSERT(rn_event_is_terminal(outlet->end.type));
    RN_ASSERT(rn_word_get(&outlet->ended) != rn_word_get(&outlet->generation)); /* once */
    rn_word_set(&outlet->ended, rn_word_get(&outlet->generation));
    wake_reader(host, outlet, pull);
}

void rn_host_closed(struct rn_host *host)
{
    rn_word_set(&host->closed, 1);
    rn_notifier_raise_now(&host->notifier);
}

bool rn_host_claim(struct rn_word *word, uint32_t generation)
{
    RN_ASSERT((generation & 1) != 0);
    for (;;) {
        uint32_t seen = rn_word_get(word);

        if (seen != 0 && (int32_t)(generation - seen) <= 0)
            return false;
        if (rn_word_replace(word, seen, generation))
            return true;
    }
}

void rn_host_wake_consumer(struct rn_host *host, struct rn_outlet *outlet)
{
    rn_wake_notify(&outlet->wake);
    rn_host_raise(host, &outlet->edge, &outlet->ready);
}

/* What the host holds is at the front of open streams, one event of each. */
static bool taken_are_whole(const struct rn_host *host)
{
    if (host->n_taken > RUNNEL_MAX_TAKE)
        return false;
    for (uint32_t i = 0; i < host->n_taken; i++) {
        uint32_t slot = host->taken_slots[i];

        if (slot >= host->slots.capacity || !host->outlets[slot].held ||
            host->taken[i].stream.id != rn_stream_id(slot, rn_word_get(&host->outlets[slot].generation)).id)
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (host->taken_slots[k] == slot)
                return false;
    }
    return true;
}

bool rn_host_check(const struct rn_host *host)
{
    uint32_t n_open = 0, n_held = 0;

    for (uint32_t slot = 0; slot < host->slots.capacity; slot++) {
        const struct rn_outlet *outlet = &host->outlets[slot];
        bool is_open = (rn_word_get(&outlet->generation) & 1) != 0;

        if (outlet->slot != slot || outlet->ready.kind != RN_HOST_STREAM ||
            (!is_open && (rn_outlet_is_prepared(outlet) || rn_word_get(&outlet->pulling) != 0)))
            return false;
        n_open += is_open;
        n_held += is_open && outlet->held && rn_word_get(&outlet->pull) == 0;
    }
    return n_open == rn_pool_taken(&host->slots) && n_held == host->n_taken && taken_are_whole(host);
}

bool rn_host_cancel(struct rn_host *host, struct rn_outlet *outlet, uint32_t generation)
{
    if (!rn_host_claim(&outlet->cancelled, generation))
        return false;
    rn_host_wake_consumer(host, outlet);
    return true;
}
