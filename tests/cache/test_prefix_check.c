/* The prefix tree's checks: what its callers must not do ends the process, and the check of its structures sees each
 * word that is planted. */
#include <string.h>

#include "cache/prefix_node.h"
#include "tests/base/aborts.h"
#include "tests/cache/prefix_fixture.h"

/* ---- Breaches by who uses the tree ------------------------------------------------------------------ */

static struct fixture doomed;

static void wait_while_inside(void)
{
    struct run a = {.n_blocks = 0};

    enter(&doomed, &a, salt, text, 8);
    match(&doomed, &a, salt, text, 8);
    rn_prefix_tree_wait(&doomed.tree, &a.path, &a.found);
}

static void publish_one_block_twice(void)
{
    struct run a = {.n_blocks = 0};
    struct rn_prefix_woken woken = {NULL, NULL};

    enter(&doomed, &a, salt, text, 8);
    a.blocks[1] = a.blocks[0];
    rn_prefix_tree_publish(&doomed.tree, &a.path, text, a.blocks, 2, NULL, &woken);
}

static void unpin_too_often(void)
{
    struct run a = {.n_blocks = 0};

    compute(&doomed, salt, text, 8);
    match(&doomed, &a, salt, text, 8);
    rn_prefix_tree_unpin(&doomed.tree, a.found.ready);
}

static void end_with_a_path_inside(void)
{
    struct run a = {.n_blocks = 0};

    compute(&doomed, salt, text, 8);
    enter(&doomed, &a, salt, text, 8);
    rn_prefix_tree_fini(&doomed.tree);
}

static void leave_before_it_is_popped(void)
{
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0};
    struct rn_prefix_woken woken = {NULL, NULL};

    enter(&doomed, &a, salt, text, 8);
    match(&doomed, &b, salt, text, 8);
    rn_prefix_tree_wait(&doomed.tree, &b.path, &b.found);
    publish(&doomed, &a, text, 2, NULL, &woken);
    rn_prefix_tree_leave(&doomed.tree, &b.path, &woken);
}

static void nothing_wrong(void)
{
    compute(&doomed, salt, text, 8);
    close_tree(&doomed);
}

struct breach {
    void (*operation)(void);
};

static void commit(const void *user)
{
    open_tree(&doomed, 32);
    ((const struct breach *)user)->operation();
}

static void breaches_end_the_process(void **state)
{
    (void)state;
    assert_false(aborts(commit, &(struct breach){nothing_wrong}));
    assert_true(aborts(commit, &(struct breach){wait_while_inside}));
    assert_true(aborts(commit, &(struct breach){publish_one_block_twice}));
    assert_true(aborts(commit, &(struct breach){unpin_too_often}));
    assert_true(aborts(commit, &(struct breach){end_with_a_path_inside}));
    assert_true(aborts(commit, &(struct breach){leave_before_it_is_popped}));
}

/* ---- The check ------------------------------------------------------------------------------------- */

/* Changes a word and sees that the check fails, and no more when it is put back. */
static void planted(struct fixture *f, void *word, uint32_t value)
{
    uint32_t before;

    memcpy(&before, word, sizeof before);
    assert_int_not_equal(before, value);
    memcpy(word, &value, sizeof value);
    assert_false(rn_prefix_tree_check(&f->tree));
    memcpy(word, &before, sizeof before);
    assert_true(rn_prefix_tree_check(&f->tree));
}

static void check_sees_planted_breaches(void **state)
{
    struct fixture f;
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run a = {.n_blocks = 0}, b = {.n_blocks = 0};
    struct rn_prefix_node *n;
    uint32_t first, second, cold;

    (void)state;
    open_tree(&f, 32);
    compute(&f, salt, text, 12);
    compute(&f, salt, fork_text, 12);
    f.handle = 9;
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 1), 1); /* the third of text */
    match(&f, &b, salt, text, 12);
    cold = b.found.cold.node;
    second = b.found.ready.node;
    n = f.tree.nodes;
    first = n[second].parent;
    enter(&f, &a, other_salt, text, 8);

    planted(&f, &n[first].state, RN_PREFIX_PENDING);
    planted(&f, &n[second].state, RN_PREFIX_FREE);
    planted(&f, &n[first].n_warm, 1);
    planted(&f, &n[first].depth, 2);
    planted(&f, &n[first].block, RN_PREFIX_NO_BLOCK);
    planted(&f, &n[second].block, n[first].block);
    planted(&f, &n[second].parent, cold);
    planted(&f, &n[second].next, second);
    planted(&f, &n[second].hash, 1);
    planted(&f, &n[second].place, RN_PREFIX_NO_NODE);
    planted(&f, &n[second].pins, 1); /* then it may not be among the idle */
    planted(&f, &n[cold].handle, 0);
    planted(&f, &f.tree.node_of[n[first].block], RN_PREFIX_NO_NODE);
    planted(&f, &f.tree.first_cold, RN_PREFIX_NO_NODE);
    planted(&f, &f.tree.count[RN_PREFIX_READY], 1);
    planted(&f, &f.tree.n_idle, 1);
    planted(&f, rn_prefix_tokens(&f.tree, second), 5);
    planted(&f, &a.path.first_claim, a.path.last_claim);
    planted(&f, &a.path.n_claims, 1);
    planted(&f, &a.path.state, RN_PATH_OUT);
    leave(&f, &a, &woken);
    close_tree(&f);
}

/* Turns the list of cold nodes round: links and ends stay good. */
static void turn_cold(struct rn_prefix_tree *tree)
{
    uint32_t i = tree->first_cold, next;

    for (; i != RN_PREFIX_NO_NODE; i = next) {
        next = tree->nodes[i].list_next;
        tree->nodes[i].list_next = tree->nodes[i].list_prev;
        tree->nodes[i].list_prev = next;
    }
    i = tree->first_cold;
    tree->first_cold = tree->last_cold;
    tree->last_cold = i;
}

/* The oldest cold node is dropped without a look at what is below it, so nothing may be; nor may the list have an end
 * that is none, or go round. */
static void check_sees_the_order_of_cold_nodes(void **state)
{
    struct fixture f;
    struct rn_prefix_node *n;

    (void)state;
    open_tree(&f, 32);
    compute(&f, salt, text, 20);
    f.handle = 9;
    assert_int_equal(rn_prefix_tree_evict(&f.tree, 3), 3);
    n = f.tree.nodes;
    assert_int_equal(n[f.tree.first_cold].parent, n[f.tree.first_cold].list_next);
    turn_cold(&f.tree);
    assert_false(rn_prefix_tree_check(&f.tree));
    assert_false(rn_prefix_tree_check(&f.tree)); /* it has taken its numbers back */
    turn_cold(&f.tree);
    assert_true(rn_prefix_tree_check(&f.tree));
    planted(&f, &n[f.tree.last_cold].list_next, f.tree.first_cold);
    planted(&f, &n[f.tree.first_cold].list_next, f.tree.last_cold);
    planted(&f, &f.tree.last_cold, f.tree.first_cold);
    planted(&f, &n[f.tree.first_cold].list_next, n[f.tree.last_cold].parent); /* one that is ready */
    close_tree(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breaches_end_the_process),
        cmocka_unit_test(check_sees_planted_breaches),
        cmocka_unit_test(check_sees_the_order_of_cold_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
