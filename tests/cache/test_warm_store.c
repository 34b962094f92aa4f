/* The warm store, judged by a list of records that is searched from end to end, and by payloads in closed form. Which
 * record has to leave, and when, is the list's own decision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/warm_store.h"
#include "tests/base/refusing.h"

enum { B = 4, PAYLOAD = 10000, MOST = 4000 };

static struct rn_heap heap;

static int set_up(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rn_heap_blocks(&heap) == 0 ? 0 : -1;
}

/* ---- The list ---- */

struct known {
    uint64_t handle, parent, stamp;
    uint32_t salt, n;
};

struct list {
    struct rn_warm_store *store;
    struct known known[MOST];
    uint32_t n;
    uint64_t clock;
    bool forgetting; /* what leaves is not chosen by age */
    uint32_t gone;   /* since the last call */
};

static struct rn_prefix_salt salt_of(uint32_t salt)
{
    return (struct rn_prefix_salt){{salt, 5}};
}

static void tokens_of(uint64_t handle, int32_t *tokens)
{
    for (int32_t i = 0; i < B; i++)
        tokens[i] = (int32_t)(handle * 31) + i;
}

static void payload_of(uint64_t handle, uint32_t n, uint8_t *payload)
{
    uint64_t state = handle;

    for (uint32_t i = 0; i < n; i++)
        payload[i] = (uint8_t)rn_splitmix64(&state);
}

static struct known *known_at(struct list *list, uint64_t handle)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->known[i].handle == handle)
            return &list->known[i];
    return NULL;
}

static bool has_child(const struct list *list, uint64_t handle)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->known[i].parent == handle)
            return true;
    return false;
}

static void read_back(const struct list *list, const struct known *k)
{
    uint8_t got[PAYLOAD], expected[PAYLOAD];
    int32_t tokens[B];

    tokens_of(k->handle, tokens);
    assert_int_equal(rn_tier_store_payload_bytes(rn_warm_store_tier(list->store), k->handle), k->n);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(list->store), k->handle,
                                       &(struct rn_tier_key){k->parent, salt_of(k->salt), tokens}, got),
                     RUNNEL_OK);
    payload_of(k->handle, k->n, expected);
    assert_memory_equal(got, expected, k->n);
}

/* Still whole, without children, and the oldest of those where age decides. */
static void on_gone(void *user, uint64_t handle)
{
    struct list *list = user;
    struct known *k = known_at(list, handle), *parent;

    assert_non_null(k);
    assert_false(has_child(list, handle));
    read_back(list, k);
    for (uint32_t i = 0; i < list->n && !list->forgetting; i++)
        assert_true(list->known[i].stamp >= k->stamp || has_child(list, list->known[i].handle));
    parent = k->parent == 0 ? NULL : known_at(list, k->parent);
    if (parent != NULL && parent->stamp < k->stamp)
        parent->stamp = k->stamp;
    *k = list->known[--list->n];
    list->gone++;
}

static struct rn_warm_store *open_store(struct list *list, uint64_t max_bytes)
{
    struct rn_warm_options options = {.max_bytes = max_bytes, .block_tokens = B, .payload_bytes = PAYLOAD};
    struct rn_warm_store *store;
    runnel_error error = {0};

    assert_int_equal(rn_warm_store_open(&heap, &options, &store, &error), RUNNEL_OK);
    if (list != NULL) {
        rn_tier_store_watch(rn_warm_store_tier(store), on_gone, list);
        list->store = store;
        list->n = 0;
    }
    return store;
}

static runnel_status put(struct rn_warm_store *store, uint64_t *handle, uint64_t parent, uint32_t salt, uint32_t n)
{
    uint8_t payload[PAYLOAD + 1] = {0};
    int32_t tokens[B];

    tokens_of(*handle, tokens);
    payload_of(*handle, n, payload);
    return rn_tier_store_put(rn_warm_store_tier(store), &(struct rn_tier_key){parent, salt_of(salt), tokens}, payload,
                             n, handle);
}

static void put_listed(struct list *list, uint64_t handle, uint64_t parent, uint32_t salt, uint32_t n)
{
    assert_int_equal(put(list->store, &handle, parent, salt, n), RUNNEL_OK);
    assert_true(list->n < MOST);
    list->known[list->n++] = (struct known){handle, parent, ++list->clock, salt, n};
}

static void assert_limits(const struct list *list, uint64_t max_bytes)
{
    struct rn_warm_stats stats;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < list->n; i++)
        bytes += list->known[i].n;
    rn_warm_store_stats(list->store, &stats);
    assert_int_equal(stats.records, list->n);
    assert_int_equal(stats.payload_bytes, bytes);
    assert_int_equal(stats.memory_bytes, rn_heap_bytes(&heap));
    assert_true(stats.memory_bytes <= max_bytes);
}

/* What the list still has the store still has. */
static void rest_is_there(struct list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        assert_int_equal(rn_tier_store_payload_bytes(rn_warm_store_tier(list->store), list->known[i].handle),
                         list->known[i].n);
}

/* True: `handle` is `above` or lies below it. */
static bool below(struct list *list, uint64_t handle, uint64_t above)
{
    while (handle != above) {
        const struct known *k = handle == 0 ? NULL : known_at(list, handle);

        if (k == NULL)
            return false;
        handle = k->parent;
    }
    return true;
}

static void forget_one(struct list *list, uint64_t handle)
{
    uint32_t expected = 0;

    for (uint32_t i = 0; i < list->n; i++)
        expected += below(list, list->known[i].handle, handle);
    list->forgetting = true;
    list->gone = 0;
    assert_int_equal(rn_tier_store_forget(rn_warm_store_tier(list->store), handle), expected);
    assert_int_equal(list->gone, expected);
    list->forgetting = false;
    rest_is_there(list);
}

/* Handle 8k + s is of salt s (from 1); its parent is 8 (k / 2) + s, put before, after, or never. */
static void random_step(struct list *list, uint64_t *random)
{
    uint64_t roll = rn_splitmix64(random), k = 1 + (roll >> 8) % 400, handle = 8 * k + 1 + (roll >> 40) % 3;
    struct known *at = known_at(list, handle);

    if (at == NULL) {
        put_listed(list, handle, k < 4 ? 0 : 8 * (k / 2) + handle % 8, (uint32_t)(handle % 8),
                   1 + (uint32_t)(rn_splitmix64(random) % PAYLOAD));
    } else if (roll % 16 < 8) {
        read_back(list, at);
        at->stamp = ++list->clock;
    } else if (roll % 16 < 12) {
        rn_tier_store_used(rn_warm_store_tier(list->store), handle);
        at->stamp = ++list->clock;
    } else if (roll % 16 < 13) {
        forget_one(list, handle);
    }
}

static void run_model(uint64_t max_bytes, uint32_t steps, uint64_t seed)
{
    struct list *list = calloc(1, sizeof *list);
    struct rn_warm_store *store = open_store(list, max_bytes);

    for (uint32_t i = 0; i < steps; i++) {
        random_step(list, &seed);
        assert_limits(list, max_bytes);
        if (i % 16 == 0)
            assert_true(rn_warm_store_check(store));
    }
    rn_warm_store_close(store);
    free(list);
}

static void test_model_all_fits(void **state)
{
    (void)state;
    run_model(40 << 20, 6000, 1);
}

static void test_model_crowded(void **state)
{
    (void)state;
    run_model(200000, 12000, 2);
    run_model(1000000, 6000, 3);
}

/* ---- Limits ---- */

/* Room is used: what fits in is at least 90 % of the limit, and nothing leaves before that. */
static void test_limit_is_used(void **state)
{
    const uint64_t max_bytes = 4 << 20;
    struct list *list = calloc(1, sizeof *list);
    struct rn_warm_store *store = open_store(list, max_bytes);
    uint64_t bytes = 0;

    (void)state;
    for (uint64_t handle = 1; list->gone == 0; handle++) {
        put_listed(list, handle, handle - 1, 1, PAYLOAD - (uint32_t)(handle % 500));
        bytes += list->gone == 0 ? list->known[list->n - 1].n : 0;
    }
    assert_true(bytes > max_bytes / 10 * 9);
    assert_limits(list, max_bytes);
    rn_warm_store_close(store);
    free(list);
}

/* Small payloads: the index is what is full; the limit holds. */
static void test_small_payloads(void **state)
{
    struct list *list = calloc(1, sizeof *list);
    struct rn_warm_store *store = open_store(list, 1 << 20);
    struct rn_warm_stats stats;

    (void)state;
    for (uint64_t handle = 1; handle <= 1000; handle++)
        put_listed(list, handle, 0, 1, 1);
    rn_warm_store_stats(store, &stats);
    assert_int_equal(stats.records, stats.max_records);
    assert_limits(list, 1 << 20);
    assert_true(rn_warm_store_check(store));
    rn_warm_store_close(store);
    free(list);
}

static void test_options(void **state)
{
    const struct rn_warm_options bad[] = {
        {.max_bytes = 30000, .block_tokens = B, .payload_bytes = PAYLOAD},
        {.max_bytes = 0, .block_tokens = B, .payload_bytes = PAYLOAD},
        {.max_bytes = 1 << 20, .block_tokens = 0, .payload_bytes = PAYLOAD},
        {.max_bytes = 1 << 20, .block_tokens = B, .payload_bytes = 0},
        {.max_bytes = UINT64_MAX, .block_tokens = B, .payload_bytes = ((size_t)1 << 30) + 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rn_warm_store *store;
        runnel_error error = {0};

        assert_int_equal(rn_warm_store_open(&heap, &bad[i], &store, &error), RUNNEL_INVALID);
        assert_null(store);
        assert_non_null(strstr(error.message, "cache_warm_bytes"));
    }
    rn_warm_store_close(NULL);
}

/* ---- What must be the same ---- */

static void test_get_compares(void **state)
{
    struct rn_warm_store *store = open_store(NULL, 1 << 20);
    uint64_t first = 7, second = 8;
    uint8_t got[PAYLOAD];
    int32_t tokens[B], other[B];
    struct rn_warm_stats stats;

    (void)state;
    assert_int_equal(put(store, &first, 0, 1, 100), RUNNEL_OK);
    assert_int_equal(put(store, &second, 7, 1, 200), RUNNEL_OK);
    tokens_of(8, tokens);
    memcpy(other, tokens, sizeof other);
    other[B - 1]++;
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 8, &(struct rn_tier_key){7, salt_of(1), other}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 8, &(struct rn_tier_key){6, salt_of(1), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 8, &(struct rn_tier_key){0, salt_of(1), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 8, &(struct rn_tier_key){7, salt_of(2), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 9, &(struct rn_tier_key){7, salt_of(1), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 7, &(struct rn_tier_key){7, salt_of(1), tokens}, got),
                     RUNNEL_NOT_FOUND);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 8, &(struct rn_tier_key){7, salt_of(1), tokens}, got),
                     RUNNEL_OK);
    rn_warm_store_stats(store, &stats);
    assert_true(stats.gets == 7 && stats.misses == 6 && stats.damaged == 0);
    rn_warm_store_close(store);
}

static void test_put_refuses(void **state)
{
    struct rn_warm_store *store = open_store(NULL, 1 << 20);
    uint64_t own = 0, own_too = 0, a = 1, b = 2, c = 3, d = 4, high = RN_WARM_OWN_HANDLE | 1;

    (void)state;
    assert_int_equal(put(store, &own, 0, 1, 10), RUNNEL_OK);
    assert_int_equal(put(store, &own_too, own, 1, 10), RUNNEL_OK);
    assert_true((own & RN_WARM_OWN_HANDLE) != 0 && own != own_too);
    assert_int_equal(put(store, &own, 0, 1, 10), RUNNEL_INVALID);
    assert_int_equal(put(store, &high, 0, 1, 10), RUNNEL_INVALID);
    assert_int_equal(put(store, &a, 0, 1, 0), RUNNEL_INVALID);
    assert_int_equal(put(store, &a, 0, 1, PAYLOAD + 1), RUNNEL_INVALID);
    assert_int_equal(put(store, &a, 1, 1, 10), RUNNEL_INVALID); /* its own parent */
    assert_int_equal(put(store, &a, 0, 1, PAYLOAD), RUNNEL_OK);
    assert_int_equal(put(store, &a, 0, 1, 10), RUNNEL_INVALID); /* in use */
    assert_int_equal(put(store, &b, 1, 2, 10), RUNNEL_INVALID); /* another's salt */
    assert_int_equal(put(store, &b, 3, 1, 10), RUNNEL_OK);      /* its parent is not here */
    assert_int_equal(put(store, &c, 0, 2, 10), RUNNEL_INVALID); /* comes, with another salt */
    assert_int_equal(put(store, &d, 2, 1, 10), RUNNEL_OK);
    assert_int_equal(put(store, &c, 4, 1, 10), RUNNEL_INVALID); /* 2 -> 4 -> 3 -> 2 */
    assert_int_equal(put(store, &c, 1, 1, 10), RUNNEL_OK);
    assert_true(rn_warm_store_check(store));
    assert_int_equal(rn_tier_store_forget(rn_warm_store_tier(store), 1), 4);
    assert_int_equal(rn_tier_store_forget(rn_warm_store_tier(store), 1), 0);
    rn_warm_store_close(store);
}

/* Eviction keeps a prefix's beginning, in whichever order its blocks came. */
static void test_beginnings_stay(void **state)
{
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        struct list *list = calloc(1, sizeof *list);
        struct rn_warm_store *store = open_store(list, 400000);

        for (uint64_t i = 0; i < 20; i++) {
            uint64_t handle = backwards ? 20 - i : 1 + i;

            put_listed(list, handle, handle - 1, 1, PAYLOAD);
        }
        list->gone = 0;
        for (uint64_t handle = 100; list->gone < 10; handle++)
            put_listed(list, handle, 0, 1, PAYLOAD);
        for (uint64_t handle = 1; handle <= 20; handle++)
            assert_int_equal(rn_tier_store_payload_bytes(rn_warm_store_tier(store), handle),
                             handle <= 10 ? PAYLOAD : 0);
        rn_warm_store_close(store);
        free(list);
    }
}

/* ---- Memory ---- */

/* The heap refuses from its n-th call on: nothing is held, or the store is a smaller one. */
static void test_refused_memory(void **state)
{
    struct rn_warm_options options = {.max_bytes = 1 << 20, .block_tokens = B, .payload_bytes = PAYLOAD};
    uint32_t opened = 0, small = 0;

    (void)state;
    for (uint64_t n = 1; n < 40; n++) {
        struct refusing refusing = {.refuse_at = n, .for_good = true};
        struct rn_heap own = refusing_heap(&refusing);
        struct rn_warm_store *store;

        if (rn_warm_store_open(&own, &options, &store, NULL) == RUNNEL_OK) {
            uint64_t kept = 0;

            opened++;
            for (uint64_t handle = 1; handle <= 60; handle++) {
                uint64_t h = handle;
                runnel_status status = put(store, &h, 0, 1, PAYLOAD);

                assert_true(status == RUNNEL_OK ||
                            (kept == 0 && (status == RUNNEL_NO_MEMORY || status == RUNNEL_BUSY)));
                kept += status == RUNNEL_OK;
            }
            small += kept > 0 && refusing.calls >= n;
            assert_true(rn_warm_store_check(store));
            rn_warm_store_close(store);
        }
        assert_int_equal(rn_heap_blocks(&own), 0);
    }
    assert_true(opened > 20 && small > 10);
}

/* A bit that falls over in memory is a miss, once, and the record goes with what builds on it. */
static void test_damage(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap own = refusing_heap(&refusing);
    struct rn_warm_options options = {.max_bytes = 1 << 20, .block_tokens = B, .payload_bytes = PAYLOAD};
    uint64_t first = 1, second = 2;
    struct rn_warm_store *store;
    struct rn_warm_stats stats;
    uint8_t got[PAYLOAD];
    int32_t tokens[B];

    (void)state;
    assert_int_equal(rn_warm_store_open(&own, &options, &store, NULL), RUNNEL_OK);
    assert_int_equal(put(store, &first, 0, 1, 300), RUNNEL_OK); /* in the first pages of the first slab */
    ((uint8_t *)refusing.newest)[299] ^= 4;
    assert_int_equal(put(store, &second, 1, 1, 10), RUNNEL_OK);
    tokens_of(1, tokens);
    assert_int_equal(rn_tier_store_get(rn_warm_store_tier(store), 1, &(struct rn_tier_key){0, salt_of(1), tokens}, got),
                     RUNNEL_NOT_FOUND);
    rn_warm_store_stats(store, &stats);
    assert_true(stats.damaged == 1 && stats.records == 0);
    assert_int_equal(rn_tier_store_payload_bytes(rn_warm_store_tier(store), 2), 0);
    rn_warm_store_close(store);
    assert_int_equal(rn_heap_blocks(&own), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_model_all_fits), TEST(test_model_crowded), TEST(test_limit_is_used), TEST(test_small_payloads),
        TEST(test_options),        TEST(test_get_compares),  TEST(test_put_refuses),   TEST(test_beginnings_stay),
        TEST(test_refused_memory), TEST(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
