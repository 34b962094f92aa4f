/* Requests in the order of their turns: see fair_queue.h. */
#include "actors/fair_queue.h"
#include "base/check.h"

/* True when a stands in front of b. */
static bool goes_before(const struct rn_request *a, const struct rn_request *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->turn.tag != b->turn.tag)
        return a->turn.tag < b->turn.tag;
    return a->order < b->order;
}

void rn_fair_queue_put_back(struct rn_fair_queue *turns, struct rn_request *request, struct rn_request *next)
{
    struct rn_request *previous = next != NULL ? next->turn.previous : turns->last;

    RN_ASSERT(request->next == NULL && request->turn.previous == NULL && request != turns->first);
    RN_ASSERT((previous == NULL || !goes_before(request, previous)) && (next == NULL || !goes_before(next, request)));
    request->turn.previous = previous;
    request->next = next;
    if (next != NULL)
        next->turn.previous = request;
    else
        turns->last = request;
    if (previous != NULL)
        previous->next = request;
    else
        turns->first = request;
    turns->n++;
}

/* From the end, where it will stand most of the time. */
static void insert(struct rn_fair_queue *turns, struct rn_request *request)
{
    struct rn_request *before = turns->last;

    while (before != NULL && goes_before(request, before))
        before = before->turn.previous;
    rn_fair_queue_put_back(turns, request, before != NULL ? before->next : turns->first);
}

void rn_fair_queue_push(struct rn_fair_queue *turns, struct rn_request *request, uint64_t cost)
{
    const struct rn_request *own = turns->last;

    while (own != NULL && (own->tenant != request->tenant || own->priority != request->priority))
        own = own->turn.previous;
    request->turn.tag =
        own != NULL && own->turn.tag + own->turn.cost > turns->served ? own->turn.tag + own->turn.cost : turns->served;
    request->turn.cost = cost;
    insert(turns, request);
}

void rn_fair_queue_push_front(struct rn_fair_queue *turns, struct rn_request *request)
{
    request->turn.tag = 0;
    request->turn.cost = 0;
    insert(turns, request);
}

void rn_fair_queue_take(struct rn_fair_queue *turns, struct rn_request *request)
{
    struct rn_request *previous = request->turn.previous;

    RN_ASSERT(turns->n > 0 && (previous != NULL ? previous->next : turns->first) == request);
    RN_ASSERT((request->next != NULL ? request->next->turn.previous : turns->last) == request);
    if (previous != NULL)
        previous->next = request->next;
    else
        turns->first = request->next;
    if (request->next != NULL)
        request->next->turn.previous = previous;
    else
        turns->last = previous;
    request->next = request->turn.previous = NULL;
    turns->n--;
}

void rn_fair_queue_served(struct rn_fair_queue *turns, const struct rn_request *request)
{
    if (request->turn.tag > turns->served)
        turns->served = request->turn.tag;
}

struct rn_request *rn_fair_queue_remove(struct rn_fair_queue *turns, uint32_t slot, uint32_t generation)
{
    struct rn_request *request = turns->first;

    while (request != NULL && (request->slot != slot || request->generation != generation))
        request = request->next;
    if (request != NULL)
        rn_fair_queue_take(turns, request);
    return request;
}

bool rn_fair_queue_check(const struct rn_fair_queue *turns)
{
    const struct rn_request *previous = NULL;
    uint32_t n = 0;

    for (const struct rn_request *r = turns->first; r != NULL && n < turns->n; previous = r, r = r->next, n++)
        if (r->turn.previous != previous || (previous != NULL && goes_before(r, previous)))
            return false;
    return n == turns->n && turns->last == previous && (previous == NULL || previous->next == NULL);
}
