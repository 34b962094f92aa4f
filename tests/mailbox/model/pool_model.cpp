/* The pool under Relacy: pool.c's take and give, step by step, with the orders of
 * mailbox/orders.h. Three threads share two cells, sign what they hold and find their signature
 * again; the cells' content is plain, so two owners of one cell are a data race.
 *
 * PLANT=n breaks one thing, and Relacy must find it:
 *   1  a cell is given back relaxed
 *   2  a cell is taken relaxed
 *   3  the tag stands still (ABA) */
#include <relacy/relacy.hpp>

#include "mailbox/orders.h"

#ifndef PLANT
#define PLANT 0
#endif

#if PLANT == 1
#undef RN_ORDER_GIVE
#define RN_ORDER_GIVE memory_order_relaxed
#elif PLANT == 2
#undef RN_ORDER_TAKE
#define RN_ORDER_TAKE memory_order_relaxed
#endif

namespace
{

const int THREADS = 3;
const int ROUNDS = 3;
const uint32_t CELLS = 2;
const uint32_t NONE = 0xffffffffu;
#if PLANT == 3
const uint64_t STEP = 0;
#else
const uint64_t STEP = 1;
#endif

struct pool {
    rl::atomic<uint64_t> head;
    rl::atomic<uint32_t> next[CELLS];
    rl::var<int> content[CELLS];

    static uint64_t next_head(uint64_t old, uint32_t top)
    {
        return ((old >> 32) + STEP) << 32 | top;
    }

    void init()
    {
        using namespace rl;
        for (uint32_t i = 0; i < CELLS; i++) {
            next[i].store(i + 1 < CELLS ? i + 1 : NONE, memory_order_relaxed);
            VAR(content[i]) = -1;
        }
        head.store(0, memory_order_relaxed);
    }

    uint32_t take()
    {
        using namespace rl;
        uint64_t seen = head.load(RN_ORDER_TAKE);
        uint32_t index, below;

        do {
            index = static_cast<uint32_t>(seen);
            if (index == NONE)
                return NONE;
            below = next[index].load(memory_order_relaxed);
        } while (!head.compare_exchange_weak(seen, next_head(seen, below), RN_ORDER_TAKE, RN_ORDER_TAKE));
        return index;
    }

    void give(uint32_t index)
    {
        using namespace rl;
        uint64_t seen = head.load(memory_order_relaxed);

        do {
            next[index].store(static_cast<uint32_t>(seen), memory_order_relaxed);
        } while (!head.compare_exchange_weak(seen, next_head(seen, index), RN_ORDER_GIVE, memory_order_relaxed));
    }
};

struct scene : rl::test_suite<scene, THREADS> {
    pool cells;

    void before()
    {
        cells.init();
    }

    /* Odd rounds hold both cells at once, if there are two to be had: what ABA needs. */
    void thread(unsigned me)
    {
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t a = cells.take();
            uint32_t b = (round & 1) != 0 ? cells.take() : NONE;

            sign(a, me);
            sign(b, me);
            check_and_give(a, me);
            check_and_give(b, me);
        }
    }

    void sign(uint32_t cell, unsigned me)
    {
        if (cell != NONE)
            VAR(cells.content[cell]) = static_cast<int>(me);
    }

    void check_and_give(uint32_t cell, unsigned me)
    {
        if (cell == NONE)
            return;
        RL_ASSERT(VAR(cells.content[cell]) == static_cast<int>(me));
        cells.give(cell);
    }

    void after()
    {
        uint32_t first = cells.take(), second = cells.take();

        RL_ASSERT(first != NONE && second != NONE && first != second && cells.take() == NONE);
    }
};

} // namespace

int main(int argc, char **argv)
{
    rl::test_params params;

    params.iteration_count = argc > 1 ? static_cast<rl::iteration_t>(atoll(argv[1])) : 20000;
    params.execution_depth_limit = 5000;
    return rl::simulate<scene>(params) ? 0 : 1;
}
