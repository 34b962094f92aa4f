/* A flood of prompts that nobody asks for again, and a few that are asked for again and again: what these find cached
 * is counted against a model of the pool that knows no tree, and what the flood leaves in files.
 *
 * The model, of prompts that nobody has found yet: blocks leave in the order of their last use. A prompt is 13 blocks
 * and is lent two more (RIG_ANSWER), so between two uses of a hot prompt f others of the flood take at most 15 f
 * blocks, and itself 15: it stays whole if 15 (f + 1) + 13 are not more than the pool has, and none of it is left if f
 * others alone fill the pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"
#include "tests/cache/cold_fixture.h"
#include "tests/tiers/rig.h"

enum {
    PROMPT = 100,
    FULL = (PROMPT - 1) / RIG_BLOCK * RIG_BLOCK, /* positions that can be cached */
    HELD = (PROMPT + RIG_BLOCK - 1) / RIG_BLOCK, /* blocks of a prompt */
    LENT = HELD + 2,
    ROUNDS = UNLESS_SLOW(100, 10),
    FLOOD = UNLESS_SLOW(1500, 150)
};

#define COLD ((uint64_t)8 << 20)

/* The stem of each is its own: chains of one family begin alike. (Some begin with the same few tokens by chance: these
 * positions are copied, less than a block.) */
static struct rig_ask one(uint32_t family)
{
    return (struct rig_ask){.chain = 8 * family, .n_prompt = PROMPT, .wait = RUNNEL_CACHE_WAIT};
}

/* Others come between two uses of the hot ones: as long as all fit by the model, they are in the pool each time. */
static void test_pool(void **state)
{
    uint32_t next = 100;

    (void)state;
    for (uint32_t n_hot = 1; n_hot <= 3; n_hot++) {
        for (uint32_t f = 0; f <= 6; f++) {
            struct rig_plan plan = {.n_blocks = LENT * (f + n_hot) + HELD};
            struct rig rig;

            rig_open(&rig, &plan);
            for (uint32_t round = 0; round < ROUNDS; round++) {
                for (uint32_t i = 0; i < f; i++)
                    assert_true(rig_ask(&rig, one(next++)).cached_tokens < RIG_BLOCK);
                for (uint32_t hot = 0; hot < n_hot; hot++)
                    assert_true((rig_ask(&rig, one(hot)).cached_tokens >= FULL) == (round > 0));
            }
            rig_close(&rig);
        }
    }
}

/* Where the flood alone fills the pool between two uses, without other tiers nothing is left. */
static void test_too_many(void **state)
{
    struct rig_plan plan = {.n_blocks = 4 * LENT};
    uint32_t next = 100;
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 6; i++)
            rig_ask(&rig, one(next++));
        assert_true(rig_ask(&rig, one(0)).cached_tokens < RIG_BLOCK);
    }
    rig_close(&rig);
}

/* What was found three times stays for three turnovers of the pool at least, where one that came once stays for one;
 * and then it goes. A turnover: the blocks that neither the hot prompt has nor the one that runs. */
static void test_found_often(void **state)
{
    enum {
        POOL = 10 * LENT + HELD,
        TURNOVER = POOL - 2 * LENT,
        FITS = 3 * TURNOVER / LENT,
        GONE = 5 * POOL / HELD + 1
    };
    struct rig_plan plan = {.n_blocks = POOL};
    uint32_t next = 100;
    struct rig rig;

    (void)state;
    assert_true(FITS > 2 * POOL / LENT); /* without ranks it would be gone at half of that */
    rig_open(&rig, &plan);
    for (uint32_t found = 0; found <= 3; found++)
        assert_true((rig_ask(&rig, one(0)).cached_tokens >= FULL) == (found > 0));
    for (uint32_t round = 0; round < UNLESS_SLOW(20, 2); round++) {
        for (uint32_t i = 0; i < FITS; i++)
            assert_true(rig_ask(&rig, one(next++)).cached_tokens < RIG_BLOCK);
        assert_true(rig_ask(&rig, one(0)).cached_tokens >= FULL);
    }
    for (uint32_t i = 0; i < GONE; i++)
        rig_ask(&rig, one(next++));
    assert_true(rig_ask(&rig, one(0)).cached_tokens < RIG_BLOCK);
    rig_close(&rig);
}

/* With files: what has come twice is there for good, however long the flood; of the flood, which came once, next to
 * nothing is written (the filter takes a few for known, doorkeeper.h). After a restart too. */
static void test_files(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD, .n_blocks = 4 * LENT};
    enum { HOT = 5 };
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    uint64_t of_hot;
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (uint32_t hot = 0; hot < HOT; hot++) {
        rig_ask(&rig, one(hot));
        assert_true(rig_ask(&rig, one(hot)).cached_tokens >= FULL);
    }
    runnel_engine_metrics(rig.engine, &metrics);
    of_hot = metrics.cold_bytes_in;
    assert_true(of_hot > 0);
    for (uint32_t i = 0; i < FLOOD; i++) {
        assert_true(rig_ask(&rig, one(100 + i)).cached_tokens < RIG_BLOCK);
        if (i % 50 == 49)
            for (uint32_t hot = 0; hot < HOT; hot++)
                assert_true(rig_ask(&rig, one(hot)).cold_tokens >= FULL);
    }
    runnel_engine_metrics(rig.engine, &metrics);
    print_message("%llu bytes of %u hot prompts in files, %llu of a flood of %u\n", (unsigned long long)of_hot, HOT,
                  (unsigned long long)(metrics.cold_bytes_in - of_hot), FLOOD);
    assert_true(metrics.cold_bytes_in - of_hot < of_hot / HOT * FLOOD / 10);
    rig_close(&rig);
    rig_open(&rig, &plan);
    for (uint32_t hot = 0; hot < HOT; hot++)
        assert_true(rig_ask(&rig, one(hot)).cold_tokens >= FULL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_found_often),
        cmocka_unit_test_setup_teardown(test_files, cold_set_up, cold_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
