/* A proposer that lies: see liar.h. */
#include "tests/sim/liar.h"

#include "base/rng.h"

struct liar {
    struct rn_proposer proposer; /* first */
    struct rn_heap *heap;
    const struct liar_plan *plan;
    uint64_t state;
};

static int32_t lie(struct liar *liar)
{
    static const int32_t beyond[] = {-1, ORACLE_VOCAB, INT32_MIN, INT32_MAX};
    uint64_t what = rn_splitmix64(&liar->state);

    return what % 8 == 0 ? beyond[what / 8 % 4] : (int32_t)(what / 8 % ORACLE_VOCAB);
}

static uint32_t count(struct liar *liar, uint32_t most)
{
    uint64_t what = rn_splitmix64(&liar->state);

    if (liar->plan->honest_count)
        return most;
    return what % 4 == 0 ? (uint32_t)(what / 4 % (most + 1)) : what % 4 == 1 ? most + 1000 : most;
}

static uint32_t propose(struct rn_proposer *proposer, const int32_t *tokens, uint32_t n_tokens, uint32_t most,
                        int32_t *drafts)
{
    struct liar *liar = (struct liar *)proposer;
    struct oracle_chain chain;

    oracle_chain_init(&chain, liar->plan->salt);
    for (uint32_t i = 0; i < n_tokens; i++)
        oracle_chain_push(&chain, tokens[i]);
    for (uint32_t i = 0; i < most; i++) {
        bool right = rn_splitmix64(&liar->state) % 100 < liar->plan->percent;

        drafts[i] = right ? oracle_chain_next(&chain, &liar->plan->alphabet) : lie(liar);
        oracle_chain_push(&chain, drafts[i]);
    }
    return count(liar, most);
}

static void free_liar(struct rn_proposer *proposer)
{
    rn_free(((struct liar *)proposer)->heap, proposer);
}

static const struct rn_proposer_ops liar_ops = {.propose = propose, .free = free_liar};

struct rn_proposer *liar_new(void *user, struct rn_heap *heap)
{
    struct liar_plan *plan = user;
    struct liar *liar = rn_calloc(heap, 1, sizeof *liar);

    if (liar == NULL)
        return NULL;
    *liar = (struct liar){.proposer = {&liar_ops}, .heap = heap, .plan = plan, .state = rn_splitmix64(&plan->seed)};
    return &liar->proposer;
}
