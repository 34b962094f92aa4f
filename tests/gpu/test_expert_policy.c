/* Which experts a cache has: scores against their closed form, who comes and who goes, and that a cache comes to rest:
 * with the experts that are used most, or, where all are used alike, almost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/expert_policy.h"

enum { N = 16, PLACES = 4, PERIOD = N * RN_EXPERT_PERIOD, NOWHERE = RN_EXPERT_NOWHERE, COMING = RN_EXPERT_COMING };

/* An expert with a share p of the uses has p n PERIOD (1 - 2^-k) behind the k-th halving. */
static void scores_have_a_closed_form(void **state)
{
    enum { LOOKS = 4, ROUNDS = 6 };
    uint32_t scores[N] = {0}, fresh[N] = {PERIOD / LOOKS};
    uint64_t age = 0;

    (void)state;
    for (uint32_t e = 1; e < N; e++) {
        fresh[e] = e;
        fresh[0] -= e;
    }
    for (uint32_t k = 1; k <= ROUNDS; k++) {
        for (uint32_t look = 1; look <= LOOKS; look++) {
            rn_expert_scores_add(scores, fresh, N, &age);
            assert_int_equal(age, look < LOOKS ? look * PERIOD / LOOKS : 0);
        }
        for (uint32_t e = 0; e < N; e++) {
            double want = (double)(LOOKS * fresh[e]) * (1 - 1.0 / (double)(1u << k));

            assert_true(scores[e] <= want && scores[e] > want - 1); /* halvings round down, all together by less */
        }
    }
}

struct choice {
    uint32_t scores[4];
    int32_t place[4];
    bool has_room, chooses;
    uint32_t in, out;
};

static void who_comes_and_who_goes(void **state)
{
    static const struct choice cases[] = {
        {{0, 0, 0, 0}, {NOWHERE, NOWHERE, NOWHERE, NOWHERE}, true, false, 0, 0}, /* nobody was used */
        {{0, 1, 3, 3}, {NOWHERE, NOWHERE, NOWHERE, NOWHERE}, true, true, 2, 4},  /* of equals the first one */
        {{0, 1, 3, 3}, {0, 1, 2, 3}, true, false, 0, 0},                         /* all are there */
        {{10, 0, 0, 0}, {NOWHERE, 0, 1, 2}, false, true, 0, 1},                  /* 10^2 > 9 * 10 */
        {{9, 0, 0, 0}, {NOWHERE, 0, 1, 2}, false, false, 0, 0},                  /* 9^2 = 9 * 9 */
        {{100, 60, 50, 90}, {NOWHERE, 0, 1, 2}, false, true, 0, 2},              /* 50^2 > 9 * 150 */
        {{100, 67, 66, 90}, {NOWHERE, 0, 1, 2}, false, false, 0, 0},             /* 34^2 < 9 * 166 */
        {{100, 0, 0, 90}, {COMING, 0, COMING, NOWHERE}, false, true, 3, 1},      /* who comes is left alone */
        {{100, 0, 0, 90}, {COMING, COMING, COMING, NOWHERE}, false, false, 0, 0},
        {{0, 5, 0, 0}, {NOWHERE, 0, 1, 2}, false, false, 0, 0},
        {{4000000000u, 0, 0, 0}, {NOWHERE, 0, 1, 2}, false, true, 0, 1},
    };
    uint32_t in, out;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct choice *c = &cases[i];

        assert_int_equal(rn_expert_choose(c->scores, c->place, 4, c->has_room, &in, &out), c->chooses);
        if (!c->chooses)
            continue;
        assert_int_equal(in, c->in);
        assert_int_equal(out, c->out);
    }
}

/* ---- A cache over time ---- */

struct cache {
    uint32_t scores[N], n_swaps;
    int32_t place[N];
    uint64_t age;
};

static void start(struct cache *cache)
{
    memset(cache, 0, sizeof *cache);
    for (int32_t e = 0; e < N; e++)
        cache->place[e] = e < PLACES ? e : NOWHERE;
}

static void look(struct cache *cache, const uint32_t fresh[N])
{
    uint32_t in, out;

    rn_expert_scores_add(cache->scores, fresh, N, &cache->age);
    if (!rn_expert_choose(cache->scores, cache->place, N, false, &in, &out))
        return;
    cache->place[in] = cache->place[out];
    cache->place[out] = NOWHERE;
    cache->n_swaps++;
}

/* The last experts are used most, then the first ones: each time they come, by one swap each, and stay. */
static void the_most_used_come_and_stay(void **state)
{
    struct cache cache;

    (void)state;
    start(&cache);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < 40 * N; i++) {
            uint32_t fresh[N];

            for (uint32_t e = 0; e < N; e++)
                fresh[e] = (turn == 0 ? e >= N - PLACES : e < PLACES) ? 8 : 1;
            look(&cache, fresh);
        }
        assert_int_equal(cache.n_swaps, (turn + 1) * PLACES);
        for (uint32_t e = 0; e < N; e++)
            assert_int_equal(cache.place[e] >= 0, turn == 0 ? e >= N - PLACES : e < PLACES);
    }
}

/* Chance alone moves few: less than one use in two hundred. */
static void alike_is_rest(void **state)
{
    enum { USES = 100000 };
    struct cache cache;
    uint32_t random = 1;

    (void)state;
    start(&cache);
    for (uint32_t i = 0; i < USES; i++) {
        uint32_t fresh[N] = {0};

        random = random * 1664525 + 1013904223;
        fresh[random >> 28] = 1;
        look(&cache, fresh);
    }
    print_message("%u swaps in %d uses\n", cache.n_swaps, USES);
    assert_true(cache.n_swaps < USES / 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_have_a_closed_form),
                                       cmocka_unit_test(who_comes_and_who_goes),
                                       cmocka_unit_test(the_most_used_come_and_stay), cmocka_unit_test(alike_is_rest)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
