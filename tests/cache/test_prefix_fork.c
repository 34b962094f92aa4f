/* Copy on write: sequences that share blocks, the partially filled last one included, over a KV memory that can be
 * judged. The KV of position p is a hash of all tokens up to p, as in the oracle model; a sequence reads its own
 * positions through its block table. Sequences begin from the tree, grow, are forked, cut back and end in any order,
 * in a pool that is too small; after every operation every position of every sequence, and every block in the tree,
 * must hold what it should: one write into a shared block, or one copy too few or too late, is seen at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "cache/prefix_node.h"
#include "cache/prefix_tree.h"

#define B 4
#define BLOCKS 30
#define SEQUENCES 6
#define TOKENS_MOST 24
#define OPERATIONS 40000

struct sequence {
    struct rn_prefix_path path;
    int32_t tokens[TOKENS_MOST];
    uint32_t n; /* tokens, all computed; 0: idle */
    uint32_t blocks[TOKENS_MOST / B];
    uint32_t n_blocks;
};

struct world {
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    uint64_t kv[BLOCKS][B];
    struct sequence sequences[SEQUENCES];
    uint64_t rng;
    uint32_t n_copies, n_written_in_place, n_starved, n_last_only;
};

static const struct rn_prefix_salt salt = {{3, 4}};

static uint32_t chance(struct world *w, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(&w->rng) % n);
}

/* The KV of position p. */
static uint64_t right_kv(const int32_t *tokens, uint32_t p)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i <= p; i++) {
        value ^= (uint64_t)(uint32_t)tokens[i] + 1;
        value = rn_splitmix64(&value);
    }
    return value;
}

static void assert_all_right(struct world *w)
{
    int32_t tokens[TOKENS_MOST];
    struct rn_prefix_salt spelled;

    assert_true(rn_block_pool_check(&w->pool));
    assert_true(rn_prefix_tree_check(&w->tree));
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        const struct sequence *s = &w->sequences[i];

        assert_int_equal(s->n_blocks, (s->n + B - 1) / B);
        for (uint32_t p = 0; p < s->n; p++)
            assert_true(w->kv[s->blocks[p / B]][p % B] == right_kv(s->tokens, p));
    }
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t node = w->tree.node_of[b];
        uint32_t end;

        if (node == RN_PREFIX_NO_NODE)
            continue;
        assert_true(rn_prefix_tree_spell(&w->tree, rn_prefix_ref_to(&w->tree, node), &spelled, tokens));
        end = w->tree.nodes[node].depth * B;
        for (uint32_t p = end - B; p < end; p++)
            assert_true(w->kv[b][p % B] == right_kv(tokens, p));
    }
}

/* A block of its own for position p of the sequence; false: the pool is full of blocks in use. */
static bool make_writable(struct world *w, struct sequence *s, uint32_t p)
{
    uint32_t source;

    if (w->pool.n_free == 0)
        rn_prefix_tree_evict(&w->tree, 1);
    if (p / B == s->n_blocks) {
        if (!rn_block_pool_take(&w->pool, 1, &s->blocks[s->n_blocks]))
            return false;
        s->n_blocks++;
        return true;
    }
    switch (rn_block_pool_writable(&w->pool, &s->blocks[p / B], &source)) {
    case RN_BLOCK_OWN:
        w->n_written_in_place++;
        return true;
    case RN_BLOCK_COPY:
        memcpy(w->kv[s->blocks[p / B]], w->kv[source], p % B * sizeof(uint64_t));
        rn_prefix_tree_unref(&w->tree, &source, 1);
        w->n_copies++;
        return true;
    default:
        return false;
    }
}

static bool compute(struct world *w, struct sequence *s, uint32_t p)
{
    if (!make_writable(w, s, p)) {
        w->n_starved++;
        return false;
    }
    w->kv[s->blocks[p / B]][p % B] = right_kv(s->tokens, p);
    s->n = p + 1;
    return true;
}

static void publish(struct world *w, struct sequence *s)
{
    struct rn_prefix_woken woken = {NULL, NULL};

    rn_prefix_tree_publish(&w->tree, &s->path, s->tokens, s->blocks, s->n / B, NULL, &woken);
    assert_null(woken.first);
}

static void leave(struct world *w, struct sequence *s)
{
    struct rn_prefix_woken woken = {NULL, NULL};

    rn_prefix_tree_leave(&w->tree, &s->path, &woken);
}

static void end(struct world *w, struct sequence *s)
{
    leave(w, s);
    rn_prefix_tree_unref(&w->tree, s->blocks, s->n_blocks);
    s->n = s->n_blocks = 0;
}

/* Where all whole blocks of the prompt are ready, only the last position is computed: in a copy. */
static void begin(struct world *w, struct sequence *s)
{
    struct rn_prefix_match found;
    uint32_t n = 1 + chance(w, TOKENS_MOST);

    for (uint32_t i = 0; i < TOKENS_MOST; i++)
        s->tokens[i] = chance(w, 8) == 0;
    rn_prefix_tree_match(&w->tree, salt, s->tokens, n, s->blocks, &found);
    rn_prefix_tree_ref(&w->tree, s->blocks, found.n_ready);
    rn_prefix_tree_enter(&w->tree, &s->path, salt, s->tokens, n, &found);
    s->n_blocks = found.n_ready;
    s->n = found.n_ready * B;
    if (s->n == n) {
        s->n = n - 1;
        w->n_last_only++;
    }
    while (s->n < n)
        if (!compute(w, s, s->n)) {
            end(w, s);
            return;
        }
    publish(w, s);
}

static void grow(struct world *w, struct sequence *s)
{
    if (s->n == TOKENS_MOST)
        return;
    s->tokens[s->n] = (int32_t)chance(w, 3);
    if (compute(w, s, s->n))
        publish(w, s);
}

static void fork_into(struct world *w, const struct sequence *parent, struct sequence *child)
{
    struct rn_prefix_match found;

    memcpy(child->tokens, parent->tokens, sizeof child->tokens);
    memcpy(child->blocks, parent->blocks, sizeof child->blocks);
    child->n = parent->n;
    child->n_blocks = parent->n_blocks;
    rn_prefix_tree_ref(&w->tree, child->blocks, child->n_blocks);
    rn_prefix_tree_match(&w->tree, salt, child->tokens, child->n, NULL, &found);
    rn_prefix_tree_enter(&w->tree, &child->path, salt, child->tokens, child->n, &found);
}

/* A stop string was found some tokens late, or the user goes back. */
static void cut_back(struct world *w, struct sequence *s)
{
    struct rn_prefix_match found;
    uint32_t n_blocks;

    leave(w, s);
    s->n = 1 + chance(w, s->n);
    n_blocks = (s->n + B - 1) / B;
    rn_prefix_tree_unref(&w->tree, s->blocks + n_blocks, s->n_blocks - n_blocks);
    s->n_blocks = n_blocks;
    rn_prefix_tree_match(&w->tree, salt, s->tokens, s->n, NULL, &found);
    rn_prefix_tree_enter(&w->tree, &s->path, salt, s->tokens, s->n, &found);
}

static void one_operation(struct world *w)
{
    struct sequence *s = &w->sequences[chance(w, SEQUENCES)];
    struct sequence *other = &w->sequences[chance(w, SEQUENCES)];

    if (s->n == 0 && other->n > 0 && chance(w, 2) == 0)
        fork_into(w, other, s);
    else if (s->n == 0)
        begin(w, s);
    else if (chance(w, 12) == 0)
        end(w, s);
    else if (chance(w, 12) == 0)
        cut_back(w, s);
    else
        grow(w, s);
}

static void nobody_writes_what_others_read(void **state)
{
    static struct world w;
    struct rn_prefix_options options = {.block_tokens = B, .max_nodes = 64, .seed = 1};

    (void)state;
    w.rng = 11;
    rn_heap_init(&w.heap, NULL);
    assert_int_equal(rn_block_pool_init(&w.pool, &w.heap, BLOCKS), RUNNEL_OK);
    assert_int_equal(rn_prefix_tree_init(&w.tree, &w.heap, &w.pool, &options), RUNNEL_OK);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        one_operation(&w);
        assert_all_right(&w);
    }
    assert_true(w.n_copies > OPERATIONS / 20 && w.n_written_in_place > OPERATIONS / 20);
    assert_true(w.n_last_only > OPERATIONS / 1000 && w.n_starved > 0);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        end(&w, &w.sequences[i]);
    rn_prefix_tree_fini(&w.tree);
    assert_int_equal(w.pool.n_free, BLOCKS);
    rn_block_pool_fini(&w.pool);
    assert_int_equal(rn_heap_blocks(&w.heap), 0);
}

/* Three samples of one prompt of 6 tokens: two copies of its second block, the third writes in place. */
static void the_last_sample_needs_no_copy(void **state)
{
    struct rn_heap heap;
    struct rn_block_pool pool;
    uint32_t table[3][2], source;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_block_pool_init(&pool, &heap, 4), RUNNEL_OK);
    assert_true(rn_block_pool_take(&pool, 2, table[0]));
    for (int i = 1; i < 3; i++) {
        memcpy(table[i], table[0], sizeof table[0]);
        rn_block_pool_ref(&pool, table[i], 2);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rn_block_pool_writable(&pool, &table[i][1], &source), RN_BLOCK_COPY);
        assert_int_equal(source, table[2][1]);
        assert_int_equal(rn_block_pool_references(&pool, table[i][1]), 1);
        rn_block_pool_unref(&pool, &source, 1); /* the copy is done */
    }
    assert_int_equal(rn_block_pool_writable(&pool, &table[2][1], &source), RN_BLOCK_OWN);
    assert_int_equal(rn_block_pool_references(&pool, table[0][0]), 3);
    source = 77;
    assert_int_equal(rn_block_pool_writable(&pool, &table[0][0], &source), RN_BLOCK_NONE); /* none is free */
    assert_int_equal(table[0][0], table[2][0]);
    assert_int_equal(source, 77);
    for (int i = 0; i < 3; i++)
        rn_block_pool_unref(&pool, table[i], 2);
    assert_true(rn_block_pool_check(&pool));
    assert_int_equal(pool.n_free, 4);
    rn_block_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_writes_what_others_read),
        cmocka_unit_test(the_last_sample_needs_no_copy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
