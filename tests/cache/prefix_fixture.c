/* See prefix_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/cache/prefix_fixture.h"

const struct rn_prefix_salt salt = {{1, 2}}, other_salt = {{2, 1}};
const int32_t text[20] = {10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33, 40, 41, 42, 43, 50, 51, 52, 53};
const int32_t fork_text[12] = {10, 11, 12, 13, 20, 21, 22, 99, 98, 97, 96, 95};

static uint64_t on_evicted(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref node)
{
    struct fixture *f = user;
    struct rn_prefix_view view;

    assert_true(rn_prefix_tree_look(tree, node, &view));
    assert_int_equal(view.state, RN_PREFIX_READY);
    f->evicted[f->n_evicted++] = view.block;
    return f->handle;
}

static void on_forgotten(void *user, uint64_t handle)
{
    ((struct fixture *)user)->forgotten = handle;
}

void open_tree(struct fixture *f, uint32_t max_nodes)
{
    struct rn_prefix_options options = {
        .block_tokens = B,
        .max_nodes = max_nodes,
        .seed = 7,
        .user = f,
        .evicted = on_evicted,
        .forgotten = on_forgotten,
    };

    memset(f, 0, sizeof *f);
    rn_heap_init(&f->heap, NULL);
    assert_int_equal(rn_block_pool_init(&f->pool, &f->heap, BLOCKS), RUNNEL_OK);
    assert_int_equal(rn_prefix_tree_init(&f->tree, &f->heap, &f->pool, &options), RUNNEL_OK);
}

void close_tree(struct fixture *f)
{
    assert_true(rn_prefix_tree_check(&f->tree));
    rn_prefix_tree_fini(&f->tree);
    rn_prefix_tree_fini(&f->tree); /* harmless */
    assert_int_equal(f->pool.n_free, BLOCKS);
    rn_block_pool_fini(&f->pool);
    assert_int_equal(rn_heap_blocks(&f->heap), 0);
}

void match(struct fixture *f, struct run *r, struct rn_prefix_salt s, const int32_t *tokens, uint32_t n)
{
    rn_prefix_tree_match(&f->tree, s, tokens, n, r->blocks, &r->found);
    assert_true(rn_prefix_tree_check(&f->tree));
}

void enter(struct fixture *f, struct run *r, struct rn_prefix_salt s, const int32_t *tokens, uint32_t n)
{
    match(f, r, s, tokens, n);
    rn_prefix_tree_ref(&f->tree, r->blocks, r->found.n_ready);
    r->n_blocks = (n + B - 1) / B;
    assert_true(rn_block_pool_take(&f->pool, r->n_blocks - r->found.n_ready, r->blocks + r->found.n_ready));
    r->path.owner = r;
    rn_prefix_tree_enter(&f->tree, &r->path, s, tokens, n, &r->found);
    assert_true(rn_prefix_tree_check(&f->tree));
}

uint32_t publish(struct fixture *f, struct run *r, const int32_t *tokens, uint32_t n, uint32_t *duplicate_blocks,
                 struct rn_prefix_woken *woken)
{
    uint32_t n_ready = rn_prefix_tree_publish(&f->tree, &r->path, tokens, r->blocks, n, duplicate_blocks, woken);

    assert_true(rn_prefix_tree_check(&f->tree));
    return n_ready;
}

void leave(struct fixture *f, struct run *r, struct rn_prefix_woken *woken)
{
    rn_prefix_tree_leave(&f->tree, &r->path, woken);
    assert_true(rn_prefix_tree_check(&f->tree));
    rn_prefix_tree_unref(&f->tree, r->blocks, r->n_blocks);
    assert_true(rn_prefix_tree_check(&f->tree));
    r->n_blocks = 0;
}

void compute(struct fixture *f, struct rn_prefix_salt s, const int32_t *tokens, uint32_t n)
{
    struct rn_prefix_woken woken = {NULL, NULL};
    struct run r = {.n_blocks = 0};

    enter(f, &r, s, tokens, n);
    assert_int_equal(publish(f, &r, tokens, n / B, NULL, &woken), n / B);
    leave(f, &r, &woken);
    assert_null(woken.first);
}
