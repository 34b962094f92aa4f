/* The contract of tier.h, kept by each store alike: what is said there of handles, keys, misses, forgetting and of
 * being told is asked of warm memory, of a folder and of a redis-server (where there is one) by the same code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cache/store/cold_store.h"
#include "cache/store/redis_store.h"
#include "cache/store/warm_store.h"
#include "tests/cache/cold_fixture.h"
#include "tests/cache/redis_fixture.h"
#include "tests/support/skipped.h"

enum { CHAIN = 5, MOST_GONE = 64 };

static struct redis_server server;

/* ---- A tier of each kind ---- */

static struct rn_tier_store *open_tier(enum rn_tier_kind kind)
{
    if (kind == RN_TIER_WARM) {
        const struct rn_warm_options options = {1 << 20, COLD_B, COLD_MOST_PAYLOAD};
        struct rn_warm_store *store;

        assert_int_equal(rn_warm_store_open(&cold_heap, &options, &store, NULL), RUNNEL_OK);
        return rn_warm_store_tier(store);
    }
    if (kind == RN_TIER_SHARED) {
        const struct rn_redis_options options = {
            .url = server.url, .id = cold_id(), .payload_bytes = COLD_MOST_PAYLOAD, .command_ms = 5000};
        struct rn_redis_store *store;

        assert_int_equal(rn_redis_store_open(&cold_heap, &options, NULL, NULL, &store, NULL), RUNNEL_OK);
        return rn_redis_store_tier(store);
    }
    return rn_cold_store_tier(cold_open(NULL, &cold_roomy, NULL));
}

/* NULL: there is no redis-server on this machine, or the build has no client. */
static struct rn_tier_store *begin(void **state)
{
    enum rn_tier_kind kind = *(const enum rn_tier_kind *)*state;

    if (kind == RN_TIER_SHARED) {
        struct rn_redis_store *store = NULL;
        const struct rn_redis_options options = {.url = "redis://127.0.0.1:1", .id = cold_id(), .payload_bytes = 1};

        if (!redis_is_installed() ||
            rn_redis_store_open(&cold_heap, &options, NULL, NULL, &store, NULL) == RUNNEL_UNSUPPORTED) {
            note_skipped("there is no redis-server, or no client");
            return NULL;
        }
        rn_redis_store_close(store);
        redis_start(&server, NULL);
    }
    return open_tier(kind);
}

static void end(void **state, struct rn_tier_store *tier)
{
    rn_tier_store_close(tier);
    if (*(const enum rn_tier_kind *)*state == RN_TIER_SHARED)
        redis_remove(&server);
}

/* ---- Records in closed form ---- */

static runnel_status put(struct rn_tier_store *tier, uint32_t chain, uint32_t depth, uint64_t parent, uint64_t *handle)
{
    struct cold_key key = {chain, depth, 0};
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    cold_tokens(key, tokens);
    *handle = 0;
    return rn_tier_store_put(tier, &(struct rn_tier_key){parent, cold_salt(key), tokens}, payload,
                             cold_payload(key, payload), handle);
}

static void put_chain(struct rn_tier_store *tier, uint32_t chain, uint64_t *handles)
{
    for (uint32_t depth = 0; depth < CHAIN; depth++) {
        assert_int_equal(put(tier, chain, depth, depth == 0 ? 0 : handles[depth - 1], &handles[depth]), RUNNEL_OK);
        assert_true(handles[depth] != 0);
    }
}

/* Whether the record is there; then it is the right one. */
static bool has(struct rn_tier_store *tier, uint32_t chain, uint32_t depth, uint64_t parent, uint64_t handle)
{
    struct cold_key key = {chain, depth, 0};
    uint8_t payload[COLD_MOST_PAYLOAD], got[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];
    size_t n = cold_payload(key, payload);
    runnel_status status;

    cold_tokens(key, tokens);
    status = rn_tier_store_get(tier, handle, &(struct rn_tier_key){parent, cold_salt(key), tokens}, got);
    assert_true(status == RUNNEL_OK || status == RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_payload_bytes(tier, handle), status == RUNNEL_OK ? n : 0);
    if (status == RUNNEL_OK)
        assert_memory_equal(got, payload, n);
    return status == RUNNEL_OK;
}

struct gone {
    uint64_t handles[MOST_GONE];
    size_t n;
};

static void on_gone(void *user, uint64_t handle)
{
    struct gone *gone = user;

    assert_true(gone->n < MOST_GONE);
    gone->handles[gone->n++] = handle;
}

static bool is_gone(const struct gone *gone, uint64_t handle)
{
    size_t n = 0;

    for (size_t i = 0; i < gone->n; i++)
        n += gone->handles[i] == handle;
    assert_true(n <= 1);
    return n == 1;
}

/* ---- What every tier does ---- */

static void test_puts_and_gets(void **state)
{
    struct rn_tier_store *tier = begin(state);
    uint64_t a[CHAIN], b[CHAIN], ahead[CHAIN];

    if (tier == NULL)
        skip();
    put_chain(tier, 1, a);
    put_chain(tier, 2, b);
    memcpy(ahead, a, sizeof ahead);
    rn_tier_store_will_get(tier, ahead, CHAIN);
    for (uint32_t depth = 0; depth < CHAIN; depth++) {
        assert_true(has(tier, 1, depth, depth == 0 ? 0 : a[depth - 1], a[depth]));
        assert_true(has(tier, 2, depth, depth == 0 ? 0 : b[depth - 1], b[depth]));
        rn_tier_store_used(tier, a[depth]);
        for (uint32_t other = 0; other < CHAIN; other++)
            assert_true(a[depth] != b[other] && (other == depth || a[depth] != a[other]));
    }
    assert_true(rn_tier_store_writes(tier) && rn_tier_store_bytes(tier) > 0);
    assert_false(rn_tier_store_error(tier, &(runnel_error){0}));
    end(state, tier);
}

/* Another parent, salt or token than what was put, or a handle that was never given: a miss, and nothing is lost. */
static void test_get_compares(void **state)
{
    struct rn_tier_store *tier = begin(state);
    uint64_t a[CHAIN], b[CHAIN];
    uint8_t got[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    if (tier == NULL)
        skip();
    put_chain(tier, 1, a);
    put_chain(tier, 2, b);
    cold_tokens((struct cold_key){1, 2, 0}, tokens);
    for (unsigned wrong = 0; wrong < 5; wrong++) {
        struct cold_key salted = {1, 2, wrong == 0};
        uint64_t parent = wrong == 1 ? b[1] : wrong == 2 ? 0 : a[1];

        tokens[COLD_B - 1] += wrong == 3;
        assert_int_equal(rn_tier_store_get(tier, wrong == 4 ? 12345 : a[2],
                                           &(struct rn_tier_key){parent, cold_salt(salted), tokens}, got),
                         RUNNEL_NOT_FOUND);
        tokens[COLD_B - 1] -= wrong == 3;
    }
    assert_int_equal(rn_tier_store_payload_bytes(tier, 12345), 0);
    assert_true(has(tier, 1, 2, a[1], a[2]));
    end(state, tier);
}

/* A durable tier takes a block behind one that it has; the other takes it wherever it comes. */
static void test_parent(void **state)
{
    struct rn_tier_store *tier = begin(state);
    uint64_t handle = 0;
    runnel_status status;

    if (tier == NULL)
        skip();
    status = put(tier, 1, 1, 999, &handle);
    assert_int_equal(status, tier->ops->durable ? RUNNEL_NOT_FOUND : RUNNEL_OK);
    assert_true(tier->ops->durable == (handle == 0));
    end(state, tier);
}

/* What is forgotten is gone, and told once; what it was put behind stays. */
static void test_forget(void **state)
{
    struct rn_tier_store *tier = begin(state);
    struct gone gone = {.n = 0};
    uint64_t a[CHAIN], b[CHAIN];

    if (tier == NULL)
        skip();
    rn_tier_store_watch(tier, on_gone, &gone);
    put_chain(tier, 1, a);
    put_chain(tier, 2, b);
    assert_true(rn_tier_store_forget(tier, a[CHAIN - 2]) >= 1);
    assert_int_equal(rn_tier_store_forget(tier, a[CHAIN - 2]), 0);
    assert_false(has(tier, 1, CHAIN - 2, a[CHAIN - 3], a[CHAIN - 2]));
    assert_true(has(tier, 1, CHAIN - 3, a[CHAIN - 4], a[CHAIN - 3]));
    rn_tier_store_let_go(tier, b[CHAIN - 1]);
    rn_tier_store_let_go(tier, 12345);
    assert_false(has(tier, 2, CHAIN - 1, b[CHAIN - 2], b[CHAIN - 1]));
    rn_tier_store_tend(tier);
    assert_true(is_gone(&gone, a[CHAIN - 2]) && is_gone(&gone, b[CHAIN - 1]));
    assert_false(is_gone(&gone, a[CHAIN - 3]) || is_gone(&gone, b[CHAIN - 2]));
    rn_tier_store_watch(tier, NULL, NULL);
    rn_tier_store_forget(tier, a[0]);
    rn_tier_store_tend(tier);
    assert_false(is_gone(&gone, a[0]));
    end(state, tier);
}

/* News is what another has put there: told where the tier listens, and once. */
static void test_news(void **state)
{
    struct rn_tier_store *tier = begin(state), *other;
    enum rn_tier_kind kind = *(const enum rn_tier_kind *)*state;
    struct cold_told told = {0};
    uint64_t a[CHAIN];
    bool more, no_room;

    if (tier == NULL)
        skip();
    other = open_tier(kind);
    assert_int_equal(rn_tier_store_listens(other), kind != RN_TIER_WARM);
    put_chain(tier, 1, a);
    for (unsigned i = 0; i < 4 * CHAIN; i++) {
        size_t before = told.n;

        rn_tier_store_news(other, 2, cold_on_record, &told, &more, &no_room);
        assert_true(told.n - before <= 2 && !no_room);
    }
    assert_false(more);
    assert_int_equal(told.n, kind == RN_TIER_WARM ? 0 : CHAIN);
    for (size_t i = 0; i < told.n; i++)
        assert_true(has(other, 1, (uint32_t)i, told.records[i].parent, told.records[i].handle));
    if (told.n > 0)
        rn_tier_store_decline(other, told.records[CHAIN - 1].handle);
    for (uint32_t depth = 0; depth < CHAIN; depth++) /* what one declines the other keeps */
        assert_true(has(tier, 1, depth, depth == 0 ? 0 : a[depth - 1], a[depth]));
    cold_told_free(&told);
    rn_tier_store_close(other);
    end(state, tier);
}

static void test_close_nothing(void **state)
{
    (void)state;
    rn_tier_store_close(NULL);
}

#define OF_EACH(test, name)                                        \
    {name " (warm)", test, cold_set_up, cold_tear_down, NULL},     \
        {name " (cold)", test, cold_set_up, cold_tear_down, NULL}, \
    {                                                              \
        name " (shared)", test, cold_set_up, cold_tear_down, NULL  \
    }

int main(void)
{
    static enum rn_tier_kind kinds[RN_TIERS] = {RN_TIER_WARM, RN_TIER_COLD, RN_TIER_SHARED};
    struct CMUnitTest tests[] = {
        OF_EACH(test_puts_and_gets, "puts and gets"),
        OF_EACH(test_get_compares, "get compares"),
        OF_EACH(test_parent, "parent"),
        OF_EACH(test_forget, "forget"),
        OF_EACH(test_news, "news"),
        {"close nothing", test_close_nothing, NULL, NULL, NULL},
    };

    for (size_t i = 0; i + 1 < sizeof tests / sizeof tests[0]; i++)
        tests[i].initial_state = &kinds[i % RN_TIERS];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
