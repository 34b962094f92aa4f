/* The prefix tree step by step: what each operation promises at its edges, what it refuses. What its
 * checks see is test_prefix_check.c; the random test against a model, test_prefix_model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cache/prefix_node.h"
#include "cache/prefix_tree.h"
#include "tests/base/refusing.h"
#include "tests/cache/prefix_fixture.h"

/* ---- Life ------------------------------------------------------------------------------------------ */

static void the_second_waits_for_the_first(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0}, c = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 32);
    enter(&f, &a, salt, text, 18);
    assert_int_equal(a.path.n_claims, 4);
    match(&f, &b, salt, text, 15); /* a prompt of 16 leaves one token to compute */
    assert_int_equal(b.found.n_ready, 0);
    assert_int_equal(b.found.n_pending, 3);
    assert_ptr_equal(b.found.computing->owner, &a);
    assert_true(rn_prefix_tree_wait(&f.tree, &b.path, &b.found));
    c.path.owner = &c;
    match(&f, &c, salt, text, 15);
    assert_true(rn_prefix_tree_wait(&f.tree, &c.path, &c.found));
    assert_true(rn_prefix_tree_check(&f.tree));

    assert_int_equal(publish(&f, &a, text, 2, NULL, &woken), 2);
    assert_null(woken.first);
    assert_int_equal(publish(&f, &a, text, 4, NULL, &woken), 4);
    assert_ptr_equal(rn_prefix_woken_pop(&woken), &b.path);
    assert_ptr_equal(rn_prefix_woken_pop(&woken), &c.path);
    assert_null(rn_prefix_woken_pop(&woken));
    assert_false(rn_prefix_tree_wait(&f.tree, &b.path, &b.found)); /* no longer pending */

    match(&f, &b, salt, text, 15);
    assert_int_equal(b.found.n_ready, 3);
    assert_memory_equal(b.blocks, a.blocks, 3 * sizeof *a.blocks);
    assert_int_equal(b.found.n_pending, 0);
    match(&f, &c, other_salt, text, 15);
    assert_int_equal(c.found.n_ready, 0);
    assert_int_equal(c.found.ready.node, RN_PREFIX_NO_NODE);
    leave(&f, &a, &woken);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).ready, 4);
    assert_int_equal(f.pool.n_free, BLOCKS - 4);
    close_tree(&f);
}

static void who_is_abandoned_is_told(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0}, c = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 32);
    enter(&f, &a, salt, text, 12);
    match(&f, &b, salt, text, 12);
    assert_true(rn_prefix_tree_wait(&f.tree, &b.path, &b.found));
    match(&f, &c, salt, text, 8);
    assert_true(rn_prefix_tree_wait(&f.tree, &c.path, &c.found));
    rn_prefix_tree_leave(&f.tree, &c.path, &woken); /* cancelled while it waits */
    assert_null(woken.first);
    publish(&f, &a, text, 1, NULL, &woken);
    leave(&f, &a, &woken);
    assert_ptr_equal(rn_prefix_woken_pop(&woken), &b.path);
    assert_null(rn_prefix_woken_pop(&woken));
    assert_int_equal(rn_prefix_tree_stats(&f.tree).pending, 0);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).abandoned, 2);
    match(&f, &b, salt, text, 12); /* it finds what had been published, and computes the rest itself */
    assert_int_equal(b.found.n_ready, 1);
    assert_int_equal(b.found.n_pending, 0);
    rn_prefix_tree_leave(&f.tree, &a.path, &woken); /* harmless */
    close_tree(&f);
}

/* B did not wait and has claimed what is below A's claims: it computes those too. */
static void a_claim_is_inherited(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0}, c = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 32);
    enter(&f, &a, salt, text, 8);
    enter(&f, &b, salt, text, 20);
    assert_int_equal(b.path.n_claims, 3);
    match(&f, &c, salt, text, 8);
    assert_ptr_equal(c.found.computing, &a.path);
    assert_true(rn_prefix_tree_wait(&f.tree, &c.path, &c.found));
    leave(&f, &a, &woken);
    assert_null(woken.first);
    assert_int_equal(b.path.n_claims, 5);
    match(&f, &a, salt, text, 8);
    assert_ptr_equal(a.found.computing, &b.path);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).inherited, 2);
    publish(&f, &b, text, 2, NULL, &woken);
    assert_ptr_equal(rn_prefix_woken_pop(&woken), &c.path);
    assert_null(woken.first);
    leave(&f, &b, &woken);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).ready, 2);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).pending, 0);
    close_tree(&f);
}

static void the_first_of_twins_wins(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0};
    uint32_t duplicate_blocks[5] = {77, 77, 77, 77, 77};

    (void)state;
    open_tree(&f, 32);
    enter(&f, &a, salt, text, 8);
    enter(&f, &b, salt, text, 12);
    assert_int_equal(publish(&f, &b, text, 1, duplicate_blocks, &woken), 1); /* A's node, B's block */
    assert_int_equal(duplicate_blocks[0], RN_PREFIX_NO_BLOCK);
    assert_int_equal(a.path.n_claims, 1);
    assert_int_equal(publish(&f, &a, text, 2, duplicate_blocks, &woken), 2);
    assert_int_equal(duplicate_blocks[0], b.blocks[0]);
    assert_int_equal(duplicate_blocks[1], RN_PREFIX_NO_BLOCK);
    assert_int_equal(publish(&f, &b, text, 3, duplicate_blocks, &woken), 3);
    assert_int_equal(duplicate_blocks[0], b.blocks[0]); /* was not gone over again */
    assert_int_equal(duplicate_blocks[1], a.blocks[1]);
    assert_int_equal(duplicate_blocks[2], RN_PREFIX_NO_BLOCK);
    assert_int_equal(duplicate_blocks[3], 77);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).duplicate_blocks, 2);
    assert_int_equal(rn_block_pool_references(&f.pool, b.blocks[1]), 1); /* B's own alone */
    leave(&f, &a, &woken);
    leave(&f, &b, &woken);
    assert_int_equal(f.pool.n_free, BLOCKS - 3);
    close_tree(&f);
}

/* ---- Eviction, pins -------------------------------------------------------------------------- */

static void leaves_go_first_and_holders_keep_a_prefix(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 32);
    compute(&f, salt, text, 16); /* blocks 0 1 2 3 */
    assert_int_equal(rn_prefix_tree_stats(&f.tree).idle, 1);
    match(&f, &a, salt, text, 8);
    assert_true(rn_prefix_tree_pin(&f.tree, a.found.ready));
    assert_true(rn_prefix_tree_pin(&f.tree, a.found.ready));
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 2);
    assert_int_equal(f.evicted[0], 3);
    assert_int_equal(f.evicted[1], 2);
    assert_int_equal(f.pool.n_free, BLOCKS - 2);
    rn_prefix_tree_unpin(&f.tree, a.found.ready);
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 0);
    rn_prefix_tree_ref(&f.tree, a.blocks, 1); /* a sequence that uses the first block alone */
    rn_prefix_tree_unpin(&f.tree, a.found.ready);
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 1);
    assert_true(rn_prefix_tree_check(&f.tree));
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 0);
    assert_false(rn_prefix_tree_pin(&f.tree, a.found.ready)); /* gone */
    rn_prefix_tree_unref(&f.tree, a.blocks, 1);
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 1);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).roots, 0); /* nothing is left of the salt */
    assert_int_equal(rn_prefix_tree_stats(&f.tree).evicted, 4);

    enter(&f, &a, salt, text, 8); /* a path holds the place on which it stands, with or without its block */
    publish(&f, &a, text, 1, NULL, &woken);
    rn_prefix_tree_unref(&f.tree, a.blocks, 2);
    a.n_blocks = 0;
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 0);
    leave(&f, &a, &woken);
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 9), 1);
    close_tree(&f);
}

/* A use of a child is one of its parent, also when the child has gone since. */
static void a_child_leaves_its_last_use_to_its_parent(void **state)
{
    struct fixture f;
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 32);
    compute(&f, salt, text, 8);       /* blocks 0 1 */
    compute(&f, other_salt, text, 4); /* block 2, used later */
    match(&f, &b, other_salt, text, 4);
    assert_true(rn_prefix_tree_pin(&f.tree, b.found.ready));
    match(&f, &a, salt, text, 8); /* 0 and 1 are used later still */
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 1), 1);
    assert_int_equal(f.evicted[0], 1);
    rn_prefix_tree_unpin(&f.tree, b.found.ready);
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 1), 1);
    assert_int_equal(f.evicted[1], 2);
    close_tree(&f);
}

static void a_colder_tier_keeps_and_brings_back(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0};
    struct rn_prefix_view view;
    struct rn_prefix_salt spelled_salt;
    int32_t spelled[20];
    uint32_t all[4];

    (void)state;
    open_tree(&f, 4); /* a root and three */
    compute(&f, salt, text, 12);
    f.handle = 500;
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 2), 2);
    match(&f, &a, salt, text, 20);
    assert_int_equal(a.found.n_ready, 1);
    assert_int_equal(a.found.n_cold, 2);
    assert_true(rn_prefix_tree_look(&f.tree, a.found.cold, &view));
    assert_int_equal(view.handle, 500);
    assert_int_equal(view.n_blocks, 3);
    assert_int_equal(view.block, RN_PREFIX_NO_BLOCK);
    assert_memory_equal(view.tokens, text + 8, B * sizeof *text);
    assert_true(rn_prefix_tree_spell(&f.tree, a.found.cold, &spelled_salt, spelled));
    assert_memory_equal(spelled, text, 12 * sizeof *text);
    assert_memory_equal(&spelled_salt, &salt, sizeof salt);
    assert_true(rn_prefix_tree_look(&f.tree, view.parent, &view));
    assert_int_equal(view.n_blocks, 2);

    enter(&f, &a, salt, text, 12); /* brings both back, whether by copy or by computing */
    assert_int_equal(a.path.n_claims, 2);
    publish(&f, &a, text, 2, NULL, &woken);
    leave(&f, &a, &woken); /* the third is cold as before */
    match(&f, &a, salt, text, 12);
    assert_int_equal(a.found.n_ready, 2);
    assert_int_equal(a.found.n_cold, 1);
    assert_true(rn_prefix_tree_set_handle(&f.tree, a.found.cold, 501));
    assert_true(rn_prefix_tree_check(&f.tree));

    enter(&f, &a, salt, fork_text, 8); /* nodes are short: the cold one is forgotten for it */
    assert_int_equal(f.forgotten, 501);
    assert_int_equal(a.path.n_claims, 1);
    leave(&f, &a, &woken);
    f.handle = 0;
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 1), 1);
    match(&f, &a, salt, text, 12);
    assert_int_equal(a.found.n_ready, 1);
    assert_int_equal(a.found.n_cold, 0);
    assert_true(rn_block_pool_take(&f.pool, 4, all));
    rn_block_pool_unref(&f.pool, all, 4);
    close_tree(&f);
}

/* Between match and enter the prefix was evicted: the path starts at the root. */
static void a_stale_match_is_seen(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0};

    (void)state;
    for (uint64_t handle = 0; handle < 2; handle++) {
        open_tree(&f, 32);
        f.handle = handle;
        compute(&f, salt, text, 8);
        match(&f, &a, salt, text, 8);
        assert_int_equal(a.found.n_ready, 2);
        assert_int_equal(rn_prefix_tree_evict(&f.tree, 2), 2);
        rn_prefix_tree_enter(&f.tree, &a.path, salt, text, 8, &a.found);
        assert_true(rn_prefix_tree_check(&f.tree));
        assert_int_equal(a.path.n_ready, 0);
        assert_int_equal(a.path.n_claims, 2);
        rn_prefix_tree_leave(&f.tree, &a.path, &woken);
        assert_int_equal(rn_prefix_tree_stats(&f.tree).cold, handle * 2);
        close_tree(&f);
    }
}

static void forget_takes_pinned_ones(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0}, c = {.n_blocks = 0};
    struct rn_prefix_ref pinned;

    (void)state;
    open_tree(&f, 32);
    compute(&f, other_salt, text, 8);
    compute(&f, salt, fork_text, 12);
    enter(&f, &a, salt, text, 16);
    publish(&f, &a, text, 2, NULL, &woken);
    match(&f, &b, salt, text, 16);
    pinned = b.found.ready;
    assert_true(rn_prefix_tree_pin(&f.tree, pinned));
    assert_true(rn_prefix_tree_wait(&f.tree, &b.path, &b.found));
    assert_int_equal(rn_prefix_tree_forget(&f.tree, a.blocks, 1, &woken), 1 + 3 + 2); /* shared, text, fork_text */
    assert_true(rn_prefix_tree_check(&f.tree));
    assert_ptr_equal(rn_prefix_woken_pop(&woken), &b.path);
    rn_prefix_tree_unpin(&f.tree, pinned); /* stale: nothing */
    assert_int_equal(rn_prefix_tree_forget(&f.tree, a.blocks, 1, &woken), 0);

    assert_int_equal(a.path.n_claims, 0);
    assert_int_equal(rn_block_pool_references(&f.pool, a.blocks[0]), 1); /* still A's */
    enter(&f, &c, salt, text, 8); /* a new life of the salt, in which A has no part */
    assert_int_equal(publish(&f, &a, text, 4, NULL, &woken), 2);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).pending, 2);
    leave(&f, &a, &woken);
    leave(&f, &c, &woken);
    match(&f, &a, other_salt, text, 8);
    assert_int_equal(a.found.n_ready, 2);
    close_tree(&f);
}

static void without_nodes_nothing_is_cached(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 2);
    enter(&f, &a, salt, text, 12);
    assert_int_equal(a.path.n_claims, 1);
    assert_int_equal(publish(&f, &a, text, 3, NULL, &woken), 1);
    enter(&f, &b, other_salt, text, 12);
    assert_int_equal(b.path.n_claims, 0);
    assert_int_equal(publish(&f, &b, text, 3, NULL, &woken), 0);
    leave(&f, &b, &woken);
    leave(&f, &a, &woken);
    close_tree(&f);
}

static void hits_and_misses(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0};

    (void)state;
    open_tree(&f, 32);
    compute(&f, salt, text, 17);
    match(&f, &a, salt, text, 19);
    rn_prefix_tree_enter(&f.tree, &a.path, salt, text, 20, &a.found);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).hit_tokens, 16);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).missed_tokens, 17 + 4);
    rn_prefix_tree_leave(&f.tree, &a.path, &woken);
    close_tree(&f);
}

/* ---- Forgetting ---------------------------------------------------------------------------------------- */

/* The nodes of some blocks and all below go: who stands or waits there is told, or publishes nothing; the rest
 * stays. */
static void forget_takes_what_is_below(void **state)
{
    struct fixture f;
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0}, c = {.n_blocks = 0};
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t bad;

    (void)state;
    open_tree(&f, 24);
    compute(&f, salt, text, 8);
    compute(&f, other_salt, text, 12);
    enter(&f, &a, salt, text, 12);
    assert_int_equal(publish(&f, &a, text, 3, NULL, &woken), 3);
    bad = a.blocks[2];
    assert_true(rn_prefix_tree_has(&f.tree, bad));
    enter(&f, &b, salt, text, 20);
    match(&f, &c, salt, text, 20);
    assert_int_equal(c.found.n_pending, 2);
    assert_true(rn_prefix_tree_wait(&f.tree, &c.path, &c.found));
    assert_int_equal(rn_prefix_tree_forget(&f.tree, &bad, 1, &woken), 3); /* its own, and b's two */
    assert_ptr_equal(rn_prefix_woken_pop(&woken), &c.path);
    assert_null(rn_prefix_woken_pop(&woken));
    assert_true(rn_prefix_tree_check(&f.tree));
    assert_false(rn_prefix_tree_has(&f.tree, bad));
    assert_int_equal(rn_prefix_tree_forget(&f.tree, &bad, 1, &woken), 0);
    assert_int_equal(publish(&f, &b, text, 5, NULL, &woken), 3);
    leave(&f, &a, &woken);
    leave(&f, &b, &woken);
    match(&f, &c, salt, text, 20);
    assert_int_equal(c.found.n_ready, 2);
    assert_int_equal(rn_prefix_tree_forget(&f.tree, c.blocks, 2, &woken), 2);
    match(&f, &c, salt, text, 20);
    assert_int_equal(c.found.n_ready, 0);
    assert_int_equal(rn_prefix_tree_stats(&f.tree).roots, 1); /* the other salt's, whose blocks are others */
    match(&f, &c, other_salt, text, 12);
    assert_int_equal(c.found.n_ready, 3);
    close_tree(&f);
}

/* ---- Refusals and breaches -------------------------------------------------------------------------- */

/* Each allocation of init is refused in turn; and none is made after it. */
static void every_allocation_refused(void **state)
{
    struct fixture f;
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_prefix_options options = {.block_tokens = B, .max_nodes = 24};
    struct rn_prefix_tree tree;
    uint32_t needed = 0;

    (void)state;
    open_tree(&f, 24);
    for (;; needed++) {
        refusing_allow(&refusing, needed);
        if (rn_prefix_tree_init(&tree, &heap, &f.pool, &options) == RUNNEL_OK)
            break;
        assert_int_equal(rn_heap_blocks(&heap), 0);
        rn_prefix_tree_fini(&tree);
    }
    assert_int_equal(needed, 5);
    rn_prefix_tree_fini(&f.tree);
    f.tree = tree;
    refusing_allow(&refusing, 0);
    compute(&f, salt, text, 20);
    compute(&f, salt, fork_text, 12);
    compute(&f, other_salt, text, 20);
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 4), 4);
    compute(&f, salt, text, 20);
    assert_int_equal(refusing.calls, 0);
    close_tree(&f);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void options_out_of_range(void **state)
{
    struct fixture f;
    struct rn_prefix_tree tree;
    static const uint32_t bad[][2] = {{0, 9}, {3, 9}, {131072, 9}, {4, 0}, {4, 1}, {4, (1u << 30) + 1}};

    (void)state;
    open_tree(&f, 9);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rn_prefix_options options = {.block_tokens = bad[i][0], .max_nodes = bad[i][1]};

        assert_int_equal(rn_prefix_tree_init(&tree, &f.heap, &f.pool, &options), RUNNEL_INVALID);
    }
    close_tree(&f);
}

/* Of the children that are ready the one with the most tokens in common; a pending one, a cold one and one that has
 * nothing in common are none, and all of n is the most. */
static void nearest_child(void **state)
{
    static const int32_t near[] = {20, 21, 99, 99}, far[] = {90, 21, 22, 23};
    struct fixture f;
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0};
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t block = 77;

    (void)state;
    open_tree(&f, 32);
    enter(&f, &a, salt, text, 8);
    publish(&f, &a, text, 1, NULL, &woken);
    assert_int_equal(rn_prefix_tree_nearest(&f.tree, a.path.at, text + 4, 4, &block), 0); /* pending */
    enter(&f, &b, salt, fork_text, 8);
    publish(&f, &b, fork_text, 2, NULL, &woken);
    assert_int_equal(rn_prefix_tree_nearest(&f.tree, a.path.at, text + 4, 4, &block), 3);
    assert_int_equal(block, b.blocks[1]);
    publish(&f, &a, text, 2, NULL, &woken);
    match(&f, &a, salt, text, 4);
    assert_int_equal(rn_prefix_tree_nearest(&f.tree, a.found.ready, text + 4, 4, &block), 4);
    assert_int_equal(block, a.blocks[1]);
    assert_int_equal(rn_prefix_tree_nearest(&f.tree, a.found.ready, text + 4, 2, &block), 2);
    assert_int_equal(rn_prefix_tree_nearest(&f.tree, a.found.ready, near, 4, &block), 2);
    assert_int_equal(rn_prefix_tree_nearest(&f.tree, a.found.ready, far, 4, &block), 0);
    leave(&f, &a, &woken);
    leave(&f, &b, &woken);
    assert_null(woken.first);
    close_tree(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_waits_for_the_first),
        cmocka_unit_test(who_is_abandoned_is_told),
        cmocka_unit_test(a_claim_is_inherited),
        cmocka_unit_test(the_first_of_twins_wins),
        cmocka_unit_test(leaves_go_first_and_holders_keep_a_prefix),
        cmocka_unit_test(a_child_leaves_its_last_use_to_its_parent),
        cmocka_unit_test(a_colder_tier_keeps_and_brings_back),
        cmocka_unit_test(a_stale_match_is_seen),
        cmocka_unit_test(forget_takes_pinned_ones),
        cmocka_unit_test(forget_takes_what_is_below),
        cmocka_unit_test(nearest_child),
        cmocka_unit_test(without_nodes_nothing_is_cached),
        cmocka_unit_test(hits_and_misses),
        cmocka_unit_test(every_allocation_refused),
        cmocka_unit_test(options_out_of_range),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
