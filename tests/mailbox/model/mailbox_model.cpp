/* The mailbox under Relacy, a checker that runs C11 atomics in every order the memory model allows
 * (random search): a re-statement of mailbox.c's send, receive and mark_empty, step by step, with
 * the memory orders from mailbox/orders.h.
 *
 * The scene is the scheduler of actors in small. Each thread sends a few messages; whoever gets
 * FIRST becomes the consumer on the spot and stays it until it has marked the mailbox empty. The
 * consumer sends the messages of thread 0 once more, as an actor sends to itself. What must hold:
 *  - the consumer's fields and the messages' content are plain variables: Relacy reports a data
 *    race if two threads are consumers at once or a hand-over does not order them;
 *  - in the end every message has been received as often as it was accepted: a lost link or a lost
 *    wake leaves some behind;
 *  - the messages of one sender arrive in order; at most CREDITS are inside.
 *
 *   mailbox_model ITERATIONS [PLANT]
 *
 * PLANT breaks one thing, and Relacy must find it:
 *   1  the link is published relaxed
 *   2  the empty mark is a load and a store instead of one exchange: a send between them is lost
 *   3  the head is swapped without acquire
 *   4  the head is swapped without release
 *   5  the mark is set without release
 *   6  the link is read relaxed
 *   7  the place is given back before the message has left: one too many inside */
#include <relacy/relacy.hpp>

#include "mailbox/orders.h"

/* Which thing is broken; 0: none. Not by the preprocessor: a program takes seconds to compile, and Relacy its orders
 * when it runs. */
static int plant;

static rl::memory_order as_it_is(rl::memory_order order, rl::debug_info_param)
{
    return order;
}

/* A step's order, weaker where plant `n` is in. */
#define ORDER(step, n, weaker) (plant == (n) ? rl::weaker : as_it_is(step)), $
#define ORDER_LINK ORDER(RN_ORDER_LINK, 1, mo_relaxed)
#define ORDER_HEAD_SWAP (plant == 3 ? rl::mo_release : plant == 4 ? rl::mo_acquire : as_it_is(RN_ORDER_HEAD_SWAP)), $
#define ORDER_MARK ORDER(RN_ORDER_MARK, 5, mo_relaxed)
#define ORDER_LINK_READ ORDER(RN_ORDER_LINK_READ, 6, mo_relaxed)

/* Left out where the loss itself is to be seen, which comes later than the race. */
#define GHOST(variable, value) \
    do { \
        if (plant != 2) \
            VAR(variable) = (value); \
    } while (0)

namespace
{

const int THREADS = 3;
const int EACH = 2; /* messages of one thread */
const int CREDITS = 4;
const uintptr_t MARK = 1;

enum sent { REFUSED, QUEUED, FIRST };

struct message {
    rl::atomic<message *> next;
    rl::var<int> sender, number, passes; /* content; races in it are found */
    /* Ghost. Two threads store to `next`, NULL and the link, and the second must stay on top. Relacy
     * never turns stores to one place around, so this stands in: unordered, it is a data race. */
    rl::var<int> cleared;
};

struct mailbox {
    rl::atomic<uintptr_t> head;
    rl::atomic<uint64_t> sent_, known, received;
    rl::var<message *> tail;
    message stub;
    int inside; /* ghost: what the bound is about; the checker switches threads only at atomics */

    static uintptr_t address(message *m)
    {
        return reinterpret_cast<uintptr_t>(m);
    }

    void init()
    {
        using namespace rl;
        stub.next.store(static_cast<message *>(0), memory_order_relaxed);
        GHOST(stub.cleared, 1);
        head.store(address(&stub) | MARK, memory_order_relaxed);
        sent_.store(0, memory_order_relaxed);
        known.store(0, memory_order_relaxed);
        received.store(0, memory_order_relaxed);
        VAR(tail) = &stub;
        inside = 0;
    }

    bool claim()
    {
        using namespace rl;
        uint64_t place = sent_.fetch_add(1, RN_ORDER_CLAIM);
        uint64_t seen = known.load(RN_ORDER_KNOWN_READ);

        if (static_cast<int64_t>(place - seen) < CREDITS)
            return true;
        seen = received.load(RN_ORDER_RECEIVED_READ);
        known.store(seen, RN_ORDER_KNOWN);
        if (static_cast<int64_t>(place - seen) < CREDITS)
            return true;
        sent_.fetch_sub(1, RN_ORDER_CLAIM);
        return false;
    }

    bool enqueue(message *m)
    {
        using namespace rl;
        m->next.store(static_cast<message *>(0), RN_ORDER_LINK_CLEAR);
        GHOST(m->cleared, 1);
        uintptr_t previous = head.exchange(address(m), ORDER_HEAD_SWAP);
        message *before = reinterpret_cast<message *>(previous & ~MARK);
        GHOST(before->cleared, 0);
        before->next.store(m, ORDER_LINK);
        return (previous & MARK) != 0;
    }

    sent send(message *m)
    {
        if (!claim())
            return REFUSED;
        RL_ASSERT(++inside <= CREDITS);
        return enqueue(m) ? FIRST : QUEUED;
    }

    message *hand_out(message *m, message *next)
    {
        using namespace rl;
        uint64_t count = received.load(memory_order_relaxed);

        VAR(tail) = next;
        if (plant != 7)
            inside--;
        received.store(count + 1, RN_ORDER_RECEIVED);
        if (plant == 7) {
            rl::yield(1, $);
            inside--;
        }
        return m;
    }

    message *receive()
    {
        using namespace rl;
        message *last = VAR(tail);
        message *next = last->next.load(ORDER_LINK_READ);

        if (last == &stub) {
            if (next == 0)
                return 0;
            VAR(tail) = next;
            last = next;
            next = last->next.load(ORDER_LINK_READ);
        }
        if (next != 0)
            return hand_out(last, next);
        if (head.load(RN_ORDER_HEAD_PEEK) != address(last))
            return 0;
        RL_ASSERT(!enqueue(&stub));
        next = last->next.load(ORDER_LINK_READ);
        return next != 0 ? hand_out(last, next) : 0;
    }

    bool mark_empty()
    {
        using namespace rl;
        uintptr_t expected = address(&stub);

        if (VAR(tail) != &stub)
            return false;
        if (plant == 2) {
            if (head.load(memory_order_acquire) != expected)
                return false;
            head.store(expected | MARK, ORDER_MARK);
            return true;
        }
        if (head.compare_exchange_strong(expected, expected | MARK, ORDER_MARK, RN_ORDER_MARK_FAIL))
            return true;
        return expected == (address(&stub) | MARK);
    }
};

struct scene : rl::test_suite<scene, THREADS> {
    mailbox box;
    message messages[THREADS][EACH];
    /* ghosts */
    int accepted, received, last[THREADS][2];

    void before()
    {
        box.init();
        accepted = received = 0;
        for (int i = 0; i < THREADS; i++)
            last[i][0] = last[i][1] = -1;
    }

    void consume()
    {
        do {
            message *m = box.receive();

            if (m != 0)
                handle(m);
            else
                rl::yield(1, $);
        } while (!box.mark_empty());
    }

    /* The first passes of one sender come in order, and so do the second ones. */
    void handle(message *m)
    {
        int from = VAR(m->sender), pass = VAR(m->passes), number = VAR(m->number);

        received++;
        RL_ASSERT(pass < 2 && number > last[from][pass]);
        last[from][pass] = number;
        VAR(m->passes) = pass + 1;
        if (pass == 0 && from == 0) {
            sent result = box.send(m);

            RL_ASSERT(result != FIRST); /* the consumer is awake */
            accepted += result == QUEUED;
        }
    }

    void thread(unsigned me)
    {
        for (int n = 0; n < EACH; n++) {
            message *m = &messages[me][n];

            VAR(m->sender) = static_cast<int>(me);
            VAR(m->number) = n;
            VAR(m->passes) = 0;
            sent result = box.send(m);
            if (result == REFUSED)
                VAR(m->passes) = -1; /* still ours */
            else
                accepted++;
            if (result == FIRST)
                consume();
        }
    }

    void after()
    {
        RL_ASSERT(received == accepted);
        RL_ASSERT(box.inside == 0);
        RL_ASSERT(accepted >= CREDITS);
    }
};

} // namespace

int main(int argc, char **argv)
{
    rl::test_params params;

    params.iteration_count = argc > 1 ? static_cast<rl::iteration_t>(atoll(argv[1])) : 20000;
    plant = argc > 2 ? atoi(argv[2]) : 0;
    params.execution_depth_limit = 5000;
    return rl::simulate<scene>(params) ? 0 : 1;
}
