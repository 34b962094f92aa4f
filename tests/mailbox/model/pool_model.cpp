/* The pool under Relacy: pool.c's take and give, step by step, with the orders of
 * mailbox/orders.h. Three threads share two cells, sign what they hold and find their signature
 * again; the cells' content is plain, so two owners of one cell are a data race.
 *
 *   pool_model ITERATIONS [PLANT]
 *
 * PLANT breaks one thing, and Relacy must find it:
 *   1  a cell is given back relaxed
 *   2  a cell is taken relaxed
 *   3  the tag stands still (ABA) */
#include <relacy/relacy.hpp>

#include "mailbox/orders.h"

/* Which thing is broken; 0: none. Not by the preprocessor: a program takes seconds to compile, and Relacy its orders
 * when it runs. */
static int plant;

static rl::memory_order as_it_is(rl::memory_order order, rl::debug_info_param)
{
    return order;
}

#define ORDER(step, n) (plant == (n) ? rl::mo_relaxed : as_it_is(step)), $
#define ORDER_GIVE ORDER(RN_ORDER_GIVE, 1)
#define ORDER_TAKE ORDER(RN_ORDER_TAKE, 2)

namespace
{

const int THREADS = 3;
const int ROUNDS = 3;
const uint32_t CELLS = 2;
const uint32_t NONE = 0xffffffffu;

struct pool {
    rl::atomic<uint64_t> head;
    rl::atomic<uint32_t> next[CELLS];
    rl::var<int> content[CELLS];

    static uint64_t next_head(uint64_t old, uint32_t top)
    {
        return ((old >> 32) + (plant == 3 ? 0 : 1)) << 32 | top;
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
        uint64_t seen = head.load(ORDER_TAKE);
        uint32_t index, below;

        do {
            index = static_cast<uint32_t>(seen);
            if (index == NONE)
                return NONE;
            below = next[index].load(memory_order_relaxed);
        } while (!head.compare_exchange_weak(seen, next_head(seen, below), ORDER_TAKE, ORDER_TAKE));
        return index;
    }

    void give(uint32_t index)
    {
        using namespace rl;
        uint64_t seen = head.load(memory_order_relaxed);

        do {
            next[index].store(static_cast<uint32_t>(seen), memory_order_relaxed);
        } while (!head.compare_exchange_weak(seen, next_head(seen, index), ORDER_GIVE, memory_order_relaxed));
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
    plant = argc > 2 ? atoi(argv[2]) : 0;
    params.execution_depth_limit = 5000;
    return rl::simulate<scene>(params) ? 0 : 1;
}
