/* The prefix tree against a model that is too simple to be wrong: an array of prefixes, each spelled out from its
 * first token, searched from end to end (prefix_naive.c). Sequences start, wait, compute, publish, are cancelled;
 * blocks are evicted to a colder tier or for good, pinned; what was computed wrong is forgotten with all below it;
 * blocks and nodes are far too few. After every operation the tree's own check must hold, and tree and model must be
 * equal in everything: nodes, states, blocks, pins, holds, handles, claims. The orders of eviction and of waking must
 * be the same too. Run with a good hash and with hashes that collide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cache/prefix_naive.h"

static struct rn_prefix_salt salt_of(uint32_t salt)
{
    return (struct rn_prefix_salt){{salt % 2, salt / 2}};
}

/* ---- The colder tier ------------------------------------------------------------------------------ */

/* The tree is about to evict: the model says what. */
static uint64_t on_evicted(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref ref)
{
    struct world *w = user;
    struct entry *victim = naive_victim(w);
    struct rn_prefix_view view;
    struct rn_prefix_salt salt;
    int32_t tokens[DEPTH * B];

    assert_non_null(victim);
    assert_true(rn_prefix_tree_look(tree, ref, &view));
    assert_int_equal(view.n_blocks, victim->depth);
    assert_int_equal(view.block, victim->block);
    assert_int_equal(view.handle, victim->handle);
    assert_true(rn_prefix_tree_spell(tree, ref, &salt, tokens));
    assert_int_equal(salt.word[0], salt_of(victim->salt).word[0]);
    assert_int_equal(salt.word[1], salt_of(victim->salt).word[1]);
    assert_memory_equal(tokens, victim->tokens, victim->depth * B * sizeof *tokens);
    assert_memory_equal(view.tokens, victim->tokens + (victim->depth - 1) * B, B * sizeof *tokens);
    w->inflation = victim->rank > w->inflation ? victim->rank : w->inflation;
    victim->handle = chance(w, 4) < w->cold_chance ? ++w->handles : 0;
    w->n_evicted++;
    /* naive_cool may clear the entry */
    salt.word[0] = victim->handle;
    naive_cool(w, victim);
    return salt.word[0];
}

static void on_forgotten(void *user, uint64_t handle)
{
    struct world *w = user;

    assert_true(w->n_forgotten < FORGOTTEN_MOST);
    w->forgotten[w->n_forgotten++] = handle;
}

static int compare_handles(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* ---- Both at once --------------------------------------------------------------------------------- */

static void assert_forgotten(struct world *w)
{
    qsort(w->forgotten, w->n_forgotten, sizeof *w->forgotten, compare_handles);
    qsort(w->expected, w->n_expected, sizeof *w->expected, compare_handles);
    assert_int_equal(w->n_forgotten, w->n_expected);
    assert_memory_equal(w->forgotten, w->expected, w->n_expected * sizeof *w->expected);
    w->n_forgotten = w->n_expected = 0;
}

static void assert_same_node(struct world *w, uint32_t node)
{
    const struct rn_prefix_node *n = &w->tree.nodes[node];
    struct rn_prefix_salt salt;
    int32_t tokens[DEPTH * B];
    const struct entry *e;

    assert_true(rn_prefix_tree_spell(&w->tree, rn_prefix_ref_to(&w->tree, node), &salt, tokens));
    e = naive_find(w, (uint32_t)(salt.word[0] + 2 * salt.word[1]), tokens, n->depth);
    assert_non_null(e);
    assert_int_equal(n->state, e->state);
    assert_int_equal(n->block, e->block);
    assert_int_equal(n->pins, e->pins);
    assert_int_equal(n->holds, e->holds);
    assert_ptr_equal(n->computing, e->claimer < 0 ? NULL : &w->sequences[e->claimer].path);
    assert_int_equal(n->n_warm, naive_children(w, e, true));
    if (e->depth > 0)
        assert_int_equal(n->handle, e->handle);
}

static void assert_same(struct world *w)
{
    uint32_t n_tree = 0, n_model = 0;

    assert_true(rn_block_pool_check(&w->pool));
    assert_true(rn_prefix_tree_check(&w->tree));
    for (uint32_t i = 0; i < w->max_nodes; i++)
        n_model += w->entries[i].state != RN_PREFIX_FREE;
    for (uint32_t i = 0; i < w->tree.n_touched; i++) {
        if (w->tree.nodes[i].state == RN_PREFIX_FREE)
            continue;
        n_tree++;
        assert_same_node(w, i);
    }
    assert_int_equal(n_tree, n_model);
    assert_forgotten(w);
}

static void assert_woken(struct world *w, struct rn_prefix_woken *woken)
{
    struct rn_prefix_path *path;
    uint32_t n = 0;

    while ((path = rn_prefix_woken_pop(woken)) != NULL) {
        assert_true(n < w->n_woken);
        assert_ptr_equal(path->owner, w->woken[n]);
        assert_int_equal(path->state, RN_PATH_OUT);
        n++;
    }
    assert_int_equal(n, w->n_woken);
    w->n_woken_all += n;
    w->n_woken = 0;
}

static void evict(struct world *w, uint32_t n)
{
    uint32_t before = w->n_evicted, free_before = w->pool.n_free;
    uint32_t done = rn_prefix_tree_evict(&w->tree, n);

    assert_int_equal(w->n_evicted - before, done);
    assert_int_equal(w->pool.n_free - free_before, done);
    assert_true(done == n || naive_victim(w) == NULL);
}

/* Few different blocks, so that most prompts share something; some go on where another one ends. */
static void make_prompt(struct world *w, struct sequence *s)
{
    const struct sequence *other = &w->sequences[chance(w, SEQUENCES)];

    if (other != s && other->path.state == RN_PATH_ENTERED && chance(w, 3) == 0) {
        s->salt = other->salt;
        s->n_tokens = other->n_tokens + chance(w, DEPTH * B - other->n_tokens + 1);
        memcpy(s->tokens, other->tokens, sizeof s->tokens);
        return;
    }
    s->salt = chance(w, 6) < 4 ? 0 : chance(w, SALTS);
    s->n_tokens = 1 + chance(w, DEPTH * B);
    for (uint32_t i = 0; i < DEPTH * B; i++)
        s->tokens[i] = i % B != 0 ? (int32_t)i : chance(w, 5) == 0 ? 1 + (int32_t)chance(w, 2) : 0;
}

static void match(struct world *w, struct sequence *s, struct rn_prefix_match *found)
{
    uint32_t n_tokens = s->n_tokens - 1, n_blocks = n_tokens / B, d = 1;
    struct entry *e, *last = NULL, *last_pending = NULL, *last_cold = NULL;
    struct rn_prefix_view view;

    rn_prefix_tree_match(&w->tree, salt_of(s->salt), s->tokens, n_tokens, s->blocks, found);
    for (; d <= n_blocks && (e = naive_find(w, s->salt, s->tokens, d)) != NULL && e->state == RN_PREFIX_READY; d++) {
        assert_int_equal(s->blocks[d - 1], e->block);
        last = e;
    }
    assert_int_equal(found->n_ready, d - 1);
    for (; d <= n_blocks && (e = naive_find(w, s->salt, s->tokens, d)) != NULL && e->state == RN_PREFIX_PENDING; d++)
        last_pending = e;
    assert_int_equal(found->n_pending, d - 1 - found->n_ready);
    assert_ptr_equal(found->computing, last_pending ? &w->sequences[last_pending->claimer].path : NULL);
    for (; d <= n_blocks && (e = naive_find(w, s->salt, s->tokens, d)) != NULL && e->handle != 0; d++)
        last_cold = e;
    assert_int_equal(found->n_cold, d - 1 - found->n_ready - found->n_pending);
    if (last_cold != NULL) {
        w->n_cold_hits++;
        assert_true(rn_prefix_tree_look(&w->tree, found->cold, &view));
        assert_int_equal(view.handle, last_cold->handle);
    }
    w->now++;
    naive_touch(w, last);
}

static void wait_for(struct world *w, struct sequence *s, const struct rn_prefix_match *found)
{
    assert_true(rn_prefix_tree_wait(&w->tree, &s->path, found));
    s->waits_for = naive_find(w, s->salt, s->tokens, found->n_ready + found->n_pending);
    s->since = ++w->order;
}

static void enter(struct world *w, struct sequence *s, const struct rn_prefix_match *found)
{
    uint32_t n_claims = 0;
    struct entry *at;

    s->n_computed = s->n_published = found->n_ready;
    rn_prefix_tree_enter(&w->tree, &s->path, salt_of(s->salt), s->tokens, s->n_tokens, found);
    at = naive_find(w, s->salt, s->tokens, found->n_ready);
    if (at == NULL)
        at = naive_add(w, s->salt, s->tokens, 0);
    s->at = at;
    w->n_short += at == NULL;
    if (at == NULL)
        return;
    at->hits += found->n_ready > 0 && at->hits < 3;
    at->holds++;
    for (uint32_t d = found->n_ready + 1; d <= s->n_tokens / B; d++) {
        struct entry *e = naive_find(w, s->salt, s->tokens, d);

        if (e != NULL && rn_prefix_is_warm(e->state))
            continue;
        if (e != NULL) {
            e->state = RN_PREFIX_PENDING;
            e->joined = ++w->order;
        } else {
            e = naive_add(w, s->salt, s->tokens, d);
        }
        if (e == NULL) {
            w->n_short++;
            break;
        }
        e->claimer = (int)(s - w->sequences);
        n_claims++;
    }
    assert_int_equal(s->path.n_claims, n_claims);
    assert_ptr_equal(rn_prefix_at(&w->tree, s->path.at) == RN_PREFIX_NO_NODE, 0);
}

/* An idle sequence gets a prompt and starts, waits or finds no room. */
static void start(struct world *w, struct sequence *s, bool patient)
{
    struct rn_prefix_match found;
    uint32_t needed;

    match(w, s, &found);
    if (found.n_pending > 0 && patient) {
        wait_for(w, s, &found);
        return;
    }
    rn_prefix_tree_ref(&w->tree, s->blocks, found.n_ready);
    needed = (s->n_tokens + B - 1) / B - found.n_ready;
    if (w->pool.n_free < needed)
        evict(w, needed - w->pool.n_free);
    s->n_blocks = found.n_ready;
    if (rn_block_pool_take(&w->pool, needed, s->blocks + found.n_ready)) {
        s->n_blocks += needed;
        enter(w, s, &found);
        return;
    }
    w->now++;
    for (uint32_t i = 0; i < found.n_ready; i++)
        naive_touch(w, naive_find(w, s->salt, s->tokens, i + 1));
    rn_prefix_tree_unref(&w->tree, s->blocks, found.n_ready);
    s->n_blocks = 0;
}

static void model_publish(struct world *w, struct sequence *s, uint32_t n, const uint32_t *duplicate_blocks)
{
    uint32_t d;
    struct entry *old = s->at;

    for (d = s->n_published + 1; s->at != NULL && d <= n; d++) {
        struct entry *e = naive_find(w, s->salt, s->tokens, d);

        if (e == NULL)
            e = naive_add(w, s->salt, s->tokens, d);
        w->n_short += e == NULL;
        if (e == NULL)
            break;
        if (e->state == RN_PREFIX_READY) {
            bool duplicate_block = e->block != s->blocks[d - 1];

            assert_int_equal(duplicate_blocks[d - 1], duplicate_block ? e->block : RN_PREFIX_NO_BLOCK);
            w->n_twins += duplicate_block;
        } else {
            assert_int_equal(duplicate_blocks[d - 1], RN_PREFIX_NO_BLOCK);
            e->joined = e->state == RN_PREFIX_COLD ? ++w->order : e->joined;
            e->state = RN_PREFIX_READY;
            e->block = s->blocks[d - 1];
            e->claimer = -1;
            naive_wake(w, e);
        }
        s->at = e;
    }
    w->now++;
    if (s->at != NULL && s->at != old) {
        s->n_published = d - 1;
        naive_touch(w, s->at);
        old->holds--;
        s->at->holds++;
    }
}

/* Exchanges own blocks for their duplicate blocks. */
static void adopt(struct world *w, struct sequence *s, const uint32_t *duplicate_blocks, uint32_t from)
{
    for (uint32_t i = from; i < s->n_published; i++) {
        if (duplicate_blocks[i] == RN_PREFIX_NO_BLOCK)
            continue;
        rn_prefix_tree_ref(&w->tree, &duplicate_blocks[i], 1);
        rn_prefix_tree_unref(&w->tree, &s->blocks[i], 1);
        w->now++; /* its own block is in no node */
        s->blocks[i] = duplicate_blocks[i];
    }
}

static void step(struct world *w, struct sequence *s)
{
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t duplicate_blocks[DEPTH], from = s->n_published;
    uint32_t whole = s->n_tokens / B;

    if (s->n_tokens < s->n_blocks * B) /* a generated token */
        whole = ++s->n_tokens / B;
    s->n_computed += chance(w, 5) == 0 ? 2 : chance(w, 4) == 0;
    if (s->n_computed > whole)
        s->n_computed = whole;
    memset(duplicate_blocks, 0xee, sizeof duplicate_blocks);
    rn_prefix_tree_publish(&w->tree, &s->path, s->tokens, s->blocks, s->n_computed, duplicate_blocks, &woken);
    model_publish(w, s, s->n_computed, duplicate_blocks);
    assert_int_equal(s->path.n_ready, s->n_published);
    assert_woken(w, &woken);
    if (chance(w, 2) == 0)
        adopt(w, s, duplicate_blocks, from);
}

static void model_leave(struct world *w, struct sequence *s)
{
    int self = (int)(s - w->sequences);
    struct entry *at = s->at;

    s->waits_for = NULL;
    for (uint32_t d = DEPTH; d > 0; d--) {
        struct entry *e = naive_find(w, s->salt, s->tokens, d), *gone_to = NULL;

        if (e == NULL || e->claimer != self)
            continue;
        for (uint32_t i = 0; i < w->max_nodes; i++) {
            struct entry *c = &w->entries[i];

            if (naive_is_child(c, e) && rn_prefix_is_warm(c->state) && (gone_to == NULL || c->joined > gone_to->joined))
                gone_to = c;
        }
        e->claimer = gone_to != NULL ? gone_to->claimer : -1;
        w->n_inherited += gone_to != NULL;
        w->n_abandoned += gone_to == NULL;
        if (gone_to == NULL) {
            naive_wake(w, e);
            naive_cool(w, e);
        }
    }
    s->at = NULL;
    if (at != NULL) {
        at->holds--;
        naive_tidy(w, at);
    }
}

static void leave(struct world *w, struct sequence *s)
{
    struct rn_prefix_woken woken = {NULL, NULL};

    rn_prefix_tree_leave(&w->tree, &s->path, &woken);
    model_leave(w, s);
    assert_int_equal(s->path.state, RN_PATH_OUT);
    assert_woken(w, &woken);
    w->now++;
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        struct entry *e = naive_find(w, s->salt, s->tokens, i + 1);

        if (e != NULL && e->state == RN_PREFIX_READY && e->block == s->blocks[i])
            naive_touch(w, e);
    }
    rn_prefix_tree_unref(&w->tree, s->blocks, s->n_blocks);
    s->n_blocks = 0;
}

static void pin(struct world *w, struct sequence *s)
{
    struct rn_prefix_match found;
    struct entry *e;

    if (w->n_pins == PINS_MOST || s->path.state != RN_PATH_OUT)
        return;
    make_prompt(w, s);
    match(w, s, &found);
    e = naive_find(w, s->salt, s->tokens, found.n_ready);
    if (!rn_prefix_tree_pin(&w->tree, found.ready)) {
        assert_int_equal(found.n_ready, 0);
        return;
    }
    assert_true(found.n_ready > 0);
    e->pins++;
    w->pins[w->n_pins++] = (struct pin){found.ready, e};
}

/* A look alone counts as a use. */
static void look_up(struct world *w, struct sequence *s)
{
    struct rn_prefix_match found;

    if (s->path.state != RN_PATH_OUT)
        return;
    make_prompt(w, s);
    match(w, s, &found);
}

static void unpin(struct world *w)
{
    struct pin *p;

    if (w->n_pins == 0)
        return;
    p = &w->pins[chance(w, w->n_pins)];
    rn_prefix_tree_unpin(&w->tree, p->ref);
    if (p->entry != NULL)
        p->entry->pins--;
    *p = w->pins[--w->n_pins];
}

static bool is_below(const struct entry *e, const struct entry *top)
{
    return e->state != RN_PREFIX_FREE && e->salt == top->salt && e->depth >= top->depth &&
           memcmp(e->tokens, top->tokens, top->depth * B * sizeof *e->tokens) == 0;
}

static void forget(struct world *w)
{
    struct rn_prefix_woken woken = {NULL, NULL};
    struct entry top = w->entries[chance(w, w->max_nodes)];
    struct rn_prefix_path *path;
    uint32_t n = 0, n_waiting = 0, n_told = 0;

    if (top.state != RN_PREFIX_READY)
        return;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        const struct sequence *s = &w->sequences[i];

        w->n_forgotten_in += s->at != NULL && is_below(s->at, &top);
        n_waiting += s->waits_for != NULL && is_below(s->waits_for, &top);
    }
    for (uint32_t i = 0; i < w->max_nodes; i++) {
        if (!is_below(&w->entries[i], &top))
            continue;
        naive_forget(w, &w->entries[i]);
        n++;
    }
    assert_int_equal(rn_prefix_tree_forget(&w->tree, &top.block, 1, &woken), n);
    naive_tidy(w, naive_find(w, top.salt, top.tokens, top.depth - 1));
    while ((path = rn_prefix_woken_pop(&woken)) != NULL) { /* of several nodes, in any order */
        struct sequence *s = path->owner;

        assert_true(s->waits_for != NULL && s->waits_for->state == RN_PREFIX_FREE);
        s->waits_for = NULL;
        n_told++;
    }
    assert_int_equal(n_told, n_waiting);
}

/* A colder tier that loses or moves what it has. */
static void set_handle(struct world *w)
{
    uint32_t node = chance(w, w->max_nodes);
    struct rn_prefix_ref ref;
    struct rn_prefix_salt salt;
    int32_t tokens[DEPTH * B];
    struct entry *e;

    if (node >= w->tree.n_touched || w->tree.nodes[node].state == RN_PREFIX_FREE)
        return;
    ref = rn_prefix_ref_to(&w->tree, node);
    assert_true(rn_prefix_tree_spell(&w->tree, ref, &salt, tokens));
    e = naive_find(w, (uint32_t)(salt.word[0] + 2 * salt.word[1]), tokens, w->tree.nodes[node].depth);
    if (e->depth == 0) {
        assert_false(rn_prefix_tree_set_handle(&w->tree, ref, 5));
        return;
    }
    e->handle = chance(w, 2) == 0 ? 0 : ++w->handles;
    assert_true(rn_prefix_tree_set_handle(&w->tree, ref, e->handle));
    naive_tidy(w, e);
}

static void one_operation(struct world *w)
{
    struct sequence *s = &w->sequences[chance(w, SEQUENCES)];

    switch (chance(w, 40)) {
    case 0:
        evict(w, chance(w, 6));
        break;
    case 1:
        pin(w, s);
        break;
    case 2:
        unpin(w);
        break;
    case 3:
        if (chance(w, 4) == 0) {
            forget(w);
        } else if (chance(w, 6) == 0) {
            w->reload = chance(w, 5);
            rn_prefix_tree_set_reload(&w->tree, w->reload);
        }
        break;
    case 4:
        set_handle(w);
        break;
    case 5:
    case 6:
        look_up(w, s);
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        leave(w, s);
        break;
    default:
        if (s->path.state == RN_PATH_ENTERED && s->n_computed == s->n_tokens / B && chance(w, 3) == 0) {
            leave(w, s);
        } else if (s->path.state == RN_PATH_ENTERED) {
            step(w, s);
        } else if (s->path.state == RN_PATH_OUT) {
            make_prompt(w, s);
            start(w, s, chance(w, 2) == 0);
        }
    }
}

static void world_init(struct world *w, uint64_t seed, uint32_t max_nodes, uint32_t cold_chance,
                       rn_prefix_hash_fn *hash)
{
    struct rn_prefix_options options = {
        .block_tokens = B,
        .max_nodes = max_nodes,
        .seed = seed,
        .hash = hash,
        .user = w,
        .evicted = on_evicted,
        .forgotten = on_forgotten,
    };

    memset(w, 0, sizeof *w);
    w->rng = seed;
    w->max_nodes = max_nodes;
    w->cold_chance = cold_chance;
    w->reload = 4;
    for (uint32_t i = 0; i < SEQUENCES; i++)
        w->sequences[i].path.owner = &w->sequences[i];
    rn_heap_init(&w->heap, NULL);
    assert_int_equal(rn_block_pool_init(&w->pool, &w->heap, BLOCKS), RUNNEL_OK);
    assert_int_equal(rn_prefix_tree_init(&w->tree, &w->heap, &w->pool, &options), RUNNEL_OK);
}

static void world_fini(struct world *w)
{
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        leave(w, &w->sequences[i]);
        assert_same(w);
    }
    for (uint32_t i = 0; i < w->max_nodes; i++)
        if (w->entries[i].state != RN_PREFIX_FREE)
            naive_forget(w, &w->entries[i]);
    rn_prefix_tree_fini(&w->tree);
    assert_forgotten(w);
    assert_int_equal(w->pool.n_free, BLOCKS);
    rn_block_pool_fini(&w->pool);
    assert_int_equal(rn_heap_blocks(&w->heap), 0);
}

static void run(uint64_t seed, uint32_t n, uint32_t max_nodes, uint32_t cold_chance, rn_prefix_hash_fn *hash)
{
    static struct world w;
    struct rn_prefix_stats stats;

    world_init(&w, seed, max_nodes, cold_chance, hash);
    for (uint32_t i = 0; i < n; i++) {
        one_operation(&w);
        assert_same(&w);
    }
    stats = rn_prefix_tree_stats(&w.tree);
    assert_int_equal(stats.evicted, w.n_evicted);
    assert_int_equal(stats.duplicate_blocks, w.n_twins);
    assert_int_equal(stats.inherited, w.n_inherited);
    assert_int_equal(stats.abandoned, w.n_abandoned);
    /* Each of these paths was taken, or the test would prove less than it says. */
    assert_true(w.n_evicted > n / 100 && w.n_twins > n / 1000 && w.n_abandoned > n / 100);
    assert_true(w.n_inherited > n / 3000 && w.n_woken_all > n / 1000 && w.n_forgotten_in > n / 2000);
    assert_true(cold_chance == 0 || (w.n_cold_hits > n / 1000 && w.n_recycled > n / 2000));
    assert_true(max_nodes > 26 || w.n_short > n / 2000);
    world_fini(&w);
}

/* ---- Hashes that collide -------------------------------------------------------------------------- */

static uint64_t always_the_same(uint64_t previous, const int32_t *tokens, uint32_t n)
{
    (void)previous;
    (void)tokens;
    (void)n;
    return UINT64_C(0xffffffff00000000); /* its home is the last slot: every run goes around */
}

/* Four values, and the prefix counts for nothing. */
static uint64_t two_bits(uint64_t previous, const int32_t *tokens, uint32_t n)
{
    (void)previous;
    return (uint64_t)(tokens[0] + tokens[n - 1]) << 62;
}

/* Eight homes in a row: runs that grow into one another. */
static uint64_t neighbours(uint64_t previous, const int32_t *tokens, uint32_t n)
{
    return ((previous >> 57) + (uint64_t)tokens[0] * 3 + n) % 8 << 57;
}

static void a_good_hash(void **state)
{
    (void)state;
    run(1, 60000, NODES_MOST, 2, NULL);
    run(2, 40000, 26, 0, NULL);
}

static void few_nodes(void **state)
{
    (void)state;
    run(3, 20000, 20, 3, NULL);
    run(4, 12000, 28, 2, NULL);
}

static void colliding_hashes(void **state)
{
    (void)state;
    run(5, 8000, NODES_MOST, 2, always_the_same);
    run(6, 8000, 28, 2, two_bits);
    run(7, 8000, 40, 1, neighbours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_hash),
        cmocka_unit_test(few_nodes),
        cmocka_unit_test(colliding_hashes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
