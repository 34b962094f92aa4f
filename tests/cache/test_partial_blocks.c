/* Partial blocks against a model that is too simple to be wrong: a list of what was kept, the newest use last, searched
 * from end to end. Random operations; the own check after every one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "cache/partial_blocks.h"
#include "tests/base/refusing.h"

#define B 8
#define BLOCKS 97
#define MOST (BLOCKS / 16)
#define NODES 4 /* whole blocks in the tree, of which some are lost */
#define SALTS 2

struct left {
    uint32_t place; /* 0 to SALTS - 1: the beginning; else a node */
    uint32_t n, block;
    int32_t ids[B];
};

struct world {
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    struct rn_partial_blocks partials;
    struct rn_partial_place places[SALTS + NODES];
    bool lost[SALTS + NODES];
    uint32_t node_blocks[NODES];
    struct left list[MOST + 1]; /* by use */
    uint32_t n;
    uint32_t held[BLOCKS], n_held; /* of some, a second reference */
    uint64_t rng;
};

/* What happened, to see that the test reached it. */
static struct {
    uint32_t n_kept, n_found, n_replaced, n_pushed_out, n_lost_out, n_spared;
} seen;

static uint32_t chance(struct world *w, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(&w->rng) % n);
}

/* A block of the tree behind the root, whose first id is `id`. */
static void grow(struct world *w, uint32_t nth, int32_t id)
{
    int32_t tokens[B];
    struct rn_prefix_path path = {0};
    struct rn_prefix_match found;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct rn_prefix_salt salt = {{nth % SALTS, 0}};

    for (int i = 0; i < B; i++)
        tokens[i] = id;
    assert_true(rn_block_pool_take(&w->pool, 1, &w->node_blocks[nth]));
    rn_prefix_tree_match(&w->tree, salt, tokens, B, NULL, &found);
    rn_prefix_tree_enter(&w->tree, &path, salt, tokens, B, &found);
    assert_int_equal(rn_prefix_tree_publish(&w->tree, &path, tokens, &w->node_blocks[nth], 1, NULL, &woken), 1);
    w->places[SALTS + nth] = (struct rn_partial_place){salt, path.at};
    w->lost[SALTS + nth] = false;
    rn_prefix_tree_leave(&w->tree, &path, &woken);
    rn_prefix_tree_unref(&w->tree, &w->node_blocks[nth], 1);
}

static void begin(struct world *w, uint64_t seed)
{
    const struct rn_prefix_options options = {.block_tokens = B, .max_nodes = 32};

    memset(w, 0, sizeof *w);
    w->rng = seed;
    rn_heap_init(&w->heap, NULL);
    assert_int_equal(rn_block_pool_init(&w->pool, &w->heap, BLOCKS), RUNNEL_OK);
    assert_int_equal(rn_prefix_tree_init(&w->tree, &w->heap, &w->pool, &options), RUNNEL_OK);
    assert_int_equal(rn_partial_blocks_init(&w->partials, &w->heap, &w->pool, &w->tree), RUNNEL_OK);
    for (uint32_t i = 0; i < SALTS; i++)
        w->places[i] = (struct rn_partial_place){{{i, 0}}, {RN_PREFIX_NO_NODE, 0}};
    for (uint32_t i = 0; i < NODES; i++)
        grow(w, i, (int32_t)i);
}

static void end(struct world *w)
{
    rn_partial_blocks_fini(&w->partials);
    for (uint32_t i = 0; i < w->n_held; i++)
        rn_block_pool_unref(&w->pool, &w->held[i], 1);
    rn_prefix_tree_fini(&w->tree);
    assert_int_equal(w->pool.n_free, BLOCKS); /* every reference has come back */
    rn_block_pool_fini(&w->pool);
    assert_int_equal(rn_heap_blocks(&w->heap), 0);
}

static uint32_t same(const struct left *left, uint32_t place, const int32_t *ids, uint32_t n)
{
    uint32_t i = 0;

    while (left->place == place && i < n && i < left->n && left->ids[i] == ids[i])
        i++;
    return i;
}

static void used(struct world *w, uint32_t nth)
{
    struct left left = w->list[nth];

    memmove(&w->list[nth], &w->list[nth + 1], (w->n - nth - 1) * sizeof left);
    w->list[w->n - 1] = left;
}

static void gone(struct world *w, uint32_t nth)
{
    used(w, nth);
    w->n--;
}

/* The next to give way: the oldest of the lost ones, then the oldest of all. */
static uint32_t victim(const struct world *w, bool all, bool free_only)
{
    for (int lost = 1; lost >= !all; lost--)
        for (uint32_t i = 0; i < w->n; i++)
            if (w->lost[w->list[i].place] == lost &&
                (!free_only || rn_block_pool_references(&w->pool, w->list[i].block) == 1))
                return i;
    return UINT32_MAX;
}

/* Few different ids, so that much is in common. */
static uint32_t make_ids(struct world *w, int32_t *ids, uint32_t most)
{
    for (uint32_t i = 0; i < most; i++)
        ids[i] = (int32_t)(chance(w, 4) == 0);
    return 1 + chance(w, most);
}

static void keep(struct world *w)
{
    struct left left = {.place = chance(w, SALTS + NODES)};

    if (w->lost[left.place] || !rn_block_pool_take(&w->pool, 1, &left.block))
        return;
    left.n = make_ids(w, left.ids, B - 1);
    rn_partial_blocks_keep(&w->partials, &w->places[left.place], left.ids, left.n, left.block);
    rn_block_pool_unref(&w->pool, &left.block, 1); /* its writer has ended */
    for (uint32_t i = 0; i < w->n; i++)
        if (same(&w->list[i], left.place, left.ids, left.n) == left.n)
            return;
    for (uint32_t i = w->n; i-- > 0;)
        if (same(&w->list[i], left.place, left.ids, left.n) == w->list[i].n) {
            gone(w, i);
            seen.n_replaced++;
        }
    if (w->n == MOST) {
        gone(w, victim(w, true, false));
        seen.n_pushed_out++;
    }
    w->list[w->n++] = left;
    seen.n_kept++;
}

/* As many in common as the model's best, and in a block of the model that has them. */
static void find(struct world *w)
{
    uint32_t place = chance(w, SALTS + NODES), block = UINT32_MAX, most = 0, nth = UINT32_MAX, n, got;
    int32_t ids[B];

    n = make_ids(w, ids, B);
    got = rn_partial_blocks_find(&w->partials, &w->places[place], ids, n, &block);
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t common = same(&w->list[i], place, ids, n);

        most = common > most ? common : most;
        nth = w->list[i].block == block ? i : nth;
    }
    assert_int_equal(got, most);
    if (most == 0)
        return;
    assert_int_equal(same(&w->list[nth], place, ids, n), most);
    used(w, nth);
    seen.n_found++;
}

static void evict(struct world *w)
{
    uint32_t n = chance(w, 3), n_free = w->pool.n_free, n_expected = 0;
    bool all = chance(w, 8) == 0;

    while (n_expected < n && victim(w, all, true) != UINT32_MAX) {
        gone(w, victim(w, all, true));
        n_expected++;
    }
    seen.n_spared += n_expected < n && w->n > 0;
    seen.n_lost_out += !all && n_expected > 0;
    assert_int_equal(rn_partial_blocks_evict(&w->partials, n, all), n_expected);
    assert_int_equal(w->pool.n_free, n_free + n_expected);
}

/* Someone copies from one of them, or has done so. */
static void hold(struct world *w)
{
    if (w->n_held > 0 && chance(w, 2) == 0)
        rn_block_pool_unref(&w->pool, &w->held[--w->n_held], 1);
    else if (w->n > 0 && w->n_held < 3) {
        w->held[w->n_held] = w->list[chance(w, w->n)].block;
        rn_block_pool_ref(&w->pool, &w->held[w->n_held++], 1);
    }
}

/* The tree loses a node, and a new one comes. */
static void lose(struct world *w)
{
    uint32_t nth = chance(w, NODES);
    struct rn_prefix_woken woken = {NULL, NULL};

    if (w->lost[SALTS + nth]) {
        for (uint32_t i = w->n; i-- > 0;) /* the model knows places by number: nothing of the former one is left */
            if (w->list[i].place == SALTS + nth)
                return;
        grow(w, nth, (int32_t)nth);
        return;
    }
    assert_int_equal(rn_prefix_tree_forget(&w->tree, &w->node_blocks[nth], 1, &woken), 1);
    w->lost[SALTS + nth] = true;
}

static void random_operations(void **state)
{
    static struct world w;

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        begin(&w, seed);
        for (int i = 0; i < 600; i++) {
            static void (*const operations[])(struct world *) = {keep, keep, keep, find, find, evict, hold, lose};

            operations[chance(&w, chance(&w, 4) == 0 ? 8 : 7)](&w);
            assert_true(rn_partial_blocks_check(&w.partials));
            for (uint32_t block = 0; block < BLOCKS; block++) {
                bool here = false;

                for (uint32_t k = 0; k < w.n; k++)
                    here |= w.list[k].block == block;
                assert_int_equal(rn_partial_blocks_have(&w.partials, block), here);
            }
        }
        end(&w);
    }
    assert_true(seen.n_kept > 2000 && seen.n_found > 1000 && seen.n_replaced > 100 && seen.n_pushed_out > 400);
    assert_true(seen.n_lost_out > 20 && seen.n_spared > 20);
}

/* A pool so small that none can be kept keeps none. */
static void small_pool(void **state)
{
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    struct rn_partial_blocks partials;
    const struct rn_prefix_options options = {.block_tokens = B, .max_nodes = 4};
    const struct rn_partial_place start = {{{0, 0}}, {RN_PREFIX_NO_NODE, 0}};
    const int32_t ids[3] = {1, 2, 3};
    uint32_t block;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_block_pool_init(&pool, &heap, 15), RUNNEL_OK);
    assert_int_equal(rn_prefix_tree_init(&tree, &heap, &pool, &options), RUNNEL_OK);
    assert_int_equal(rn_partial_blocks_init(&partials, &heap, &pool, &tree), RUNNEL_OK);
    assert_true(rn_block_pool_take(&pool, 1, &block));
    rn_partial_blocks_keep(&partials, &start, ids, 3, block);
    assert_int_equal(rn_block_pool_references(&pool, block), 1);
    assert_int_equal(rn_partial_blocks_find(&partials, &start, ids, 3, &block), 0);
    assert_int_equal(rn_partial_blocks_evict(&partials, 1, true), 0);
    rn_block_pool_unref(&pool, &block, 1);
    rn_partial_blocks_fini(&partials);
    rn_prefix_tree_fini(&tree);
    rn_block_pool_fini(&pool);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void no_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    struct rn_partial_blocks partials;
    const struct rn_prefix_options options = {.block_tokens = B, .max_nodes = 4};

    (void)state;
    heap = refusing_heap(&refusing);
    assert_int_equal(rn_block_pool_init(&pool, &heap, BLOCKS), RUNNEL_OK);
    assert_int_equal(rn_prefix_tree_init(&tree, &heap, &pool, &options), RUNNEL_OK);
    for (uint64_t call = 1; call <= 3; call++) {
        int64_t live = refusing.live;

        refusing.calls = 0;
        refusing.refuse_at = call;
        assert_int_equal(rn_partial_blocks_init(&partials, &heap, &pool, &tree), RUNNEL_NO_MEMORY);
        assert_int_equal(refusing.live, live);
        rn_partial_blocks_fini(&partials); /* harmless */
    }
    refusing.refuse_at = 0;
    assert_int_equal(rn_partial_blocks_init(&partials, &heap, &pool, &tree), RUNNEL_OK);
    rn_partial_blocks_fini(&partials);
    rn_prefix_tree_fini(&tree);
    rn_block_pool_fini(&pool);
    assert_int_equal(refusing.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),
        cmocka_unit_test(small_pool),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
