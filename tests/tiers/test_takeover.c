/* Engines that follow one another on one cache folder: the second comes while the first still runs, as in a rolling
 * restart, reads what that writes, and writes itself when that has gone: closed, killed, or with its power lost. Every
 * answer is judged by the closed form (rig.h), and what the last engine finds in files is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/cold_folder.h"
#include "tests/actors/fixture.h"
#include "tests/cache/cold_fixture.h"
#include "tests/sim/fake_disk.h"
#include "tests/tiers/rig.h"

enum { PROMPT = 100, FULL = (PROMPT - 1) / RIG_BLOCK * RIG_BLOCK, ENGINES = 8, SEEDS = UNLESS_SLOW(150, 15) };

#define COLD ((uint64_t)8 << 20)

struct doubles {
    struct rn_tier_record records[256];
    int32_t tokens[256][RIG_BLOCK];
    uint32_t n;
};

static struct rig_ask one(uint32_t chain)
{
    return (struct rig_ask){.chain = chain, .n_prompt = PROMPT, .wait = RUNNEL_CACHE_WAIT};
}

static runnel_metrics metrics_of(const struct rig *rig)
{
    runnel_metrics metrics = {.struct_size = sizeof metrics};

    runnel_engine_metrics(rig->engine, &metrics);
    return metrics;
}

/* Some looks for news: a few seconds of the engine's clock lie between two. Without threads it looks when it is asked
 * something. */
static void listen(struct rig *rig)
{
    for (unsigned i = 0; i < 8; i++) {
        rig->now_us += 20000000;
        rig_ask(rig, (struct rig_ask){.chain = 1000, .n_prompt = 2});
    }
}

/* One engine after another: each asks for something of its own, twice, while the next one is there already. */
static void test_rolling(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    struct rig rigs[ENGINES];

    (void)state;
    rig_open(&rigs[0], &plan);
    for (uint32_t i = 0; i < ENGINES; i++) {
        assert_int_equal(metrics_of(&rigs[i]).cold_writes, 1);
        if (i + 1 < ENGINES) {
            rig_open(&rigs[i + 1], &plan);
            assert_int_equal(metrics_of(&rigs[i + 1]).cold_writes, 0);
        }
        for (uint32_t k = 0; k < 2; k++)
            rig_ask(&rigs[i], one(8 * i));
        assert_int_equal(rigs[i].n_warnings, 0);
        if (i + 1 == ENGINES)
            break;
        listen(&rigs[i + 1]);
        assert_int_equal(metrics_of(&rigs[i + 1]).cold_writes, 0);
        assert_int_equal(rig_ask(&rigs[i + 1], one(8 * i)).cold_tokens, FULL);
        rig_close(&rigs[i]);
        listen(&rigs[i + 1]);
    }
    rig_close(&rigs[ENGINES - 1]);
    rig_open(&rigs[0], &plan);
    for (uint32_t i = 0; i < ENGINES; i++)
        assert_int_equal(rig_ask(&rigs[0], one(8 * i)).cold_tokens, FULL);
    rig_close(&rigs[0]);
}

/* What the reader had in its own memory and in none of the files comes there as soon as it may be written. */
static void test_own_blocks(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    struct rig writer, reader;

    (void)state;
    rig_open(&writer, &plan);
    rig_open(&reader, &plan);
    rig_ask(&reader, one(3));
    rig_close(&writer);
    listen(&reader);
    assert_int_equal(rig_ask(&reader, one(3)).cached_tokens, PROMPT - 1); /* hot; it has come twice now */
    rig_close(&reader);
    rig_open(&reader, &plan);
    assert_int_equal(rig_ask(&reader, one(3)).cold_tokens, FULL);
    rig_close(&reader);
}

/* Each record of the folder once more: the same block behind the same parent, under a handle of its own. */
static void put_again(void *user, const struct rn_tier_record *record)
{
    struct doubles *doubles = user;

    assert_true(doubles->n < sizeof doubles->records / sizeof *doubles->records);
    doubles->records[doubles->n] = *record;
    memcpy(doubles->tokens[doubles->n++], record->tokens, sizeof doubles->tokens[0]);
}

static uint32_t double_all(void)
{
    static struct doubles doubles;
    static unsigned char payload[1 << 20];
    struct rn_cold_folder folder;
    struct rn_cold_listing listing;
    struct rn_cold_store *store;
    struct rn_tier_store *tier;
    runnel_error error;

    doubles.n = 0;
    assert_int_equal(rn_cold_folder_open(&folder, &cold_heap, NULL, cold_folder, NULL, &error), RUNNEL_OK);
    assert_int_equal(rn_cold_listing_open(&listing, &folder, 0, &error), RUNNEL_OK);
    assert_true(listing.known);
    assert_int_equal(rn_cold_store_open(&cold_heap, NULL, cold_folder, &listing.id, &cold_roomy, put_again, &doubles,
                                        &store, &error),
                     RUNNEL_OK);
    tier = rn_cold_store_tier(store);
    for (uint32_t i = 0; i < doubles.n; i++) {
        const struct rn_tier_record *record = &doubles.records[i];
        struct rn_tier_key key = {record->parent, record->salt, doubles.tokens[i]};
        uint64_t handle;

        assert_true(record->payload_bytes <= sizeof payload);
        assert_int_equal(rn_tier_store_get(tier, record->handle, &key, payload), RUNNEL_OK);
        assert_int_equal(rn_tier_store_put(tier, &key, payload, record->payload_bytes, &handle), RUNNEL_OK);
    }
    assert_true(rn_tier_store_check(tier));
    rn_cold_store_close(store);
    rn_cold_listing_fini(&listing);
    rn_cold_folder_fini(&folder);
    return doubles.n;
}

/* A writer that could not keep all records of a folder in mind may have put a block there that was there before. */
static void test_doubles(void **state)
{
    struct rig_plan plan = {.dir = cold_folder, .cold_bytes = COLD};
    struct rig rig;

    (void)state;
    rig_open(&rig, &plan);
    for (unsigned k = 0; k < 2; k++)
        rig_ask(&rig, one(5));
    rig_close(&rig);
    assert_true(double_all() >= FULL / RIG_BLOCK);
    rig_open(&rig, &plan);
    assert_true(rn_mover_check(&rig.model->mover) && rn_tier_check(&rig.model->tier));
    assert_int_equal(rig_ask(&rig, one(5)).cold_tokens, FULL);
    rig_ask(&rig, one(13));
    rig_ask(&rig, one(13));
    assert_true(rn_mover_check(&rig.model->mover) && rn_tier_check(&rig.model->tier));
    rig_close(&rig);
}

/* By seed, on a disk in memory: two engines on one folder, of which one dies now and then in whatever it is doing; a
 * new one comes in its place. After the last death the one that is left is the writer, and what it writes stays. */
static void test_seeds(void **state)
{
    uint64_t n_cold = 0, n_taken = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fake_disk *disk = fake_disk_new(seed);
        struct rig rigs[2];
        uint64_t rng = seed;

        for (unsigned i = 0; i < 2; i++) {
            struct rig_plan plan = {.dir = "/cache", .cold_bytes = COLD, .io = fake_disk_io(disk, i)};

            rig_open(&rigs[i], &plan);
        }
        fake_disk_faults(disk)->short_call = rn_splitmix64(&rng) % 2 ? FAKE_DISK_ALWAYS / 16 : 0;
        for (unsigned life = 0; life < 6; life++) {
            unsigned dies = (unsigned)(rn_splitmix64(&rng) % 2);

            if (rn_splitmix64(&rng) % 2) /* in the middle of a call */
                fake_disk_faults(disk)->die_at = fake_disk_calls(disk, dies) + rn_splitmix64(&rng) % 60;
            for (unsigned k = 0; k < 8; k++) {
                struct rig *rig = &rigs[rn_splitmix64(&rng) % 2];
                struct rig_ask ask = one((uint32_t)(rn_splitmix64(&rng) % 24));

                ask.pin = rn_splitmix64(&rng) % 3 == 0;
                n_cold += rig_ask(rig, ask).cold_tokens;
                if (rn_splitmix64(&rng) % 3 == 0)
                    listen(rig);
            }
            fake_disk_faults(disk)->die_at = 0;
            fake_disk_kill(disk, dies);
            rig_close(&rigs[dies]);
            listen(&rigs[1 - dies]);
            if (fake_disk_alive(disk, 1 - dies)) { /* die_at is of both */
                assert_int_equal(metrics_of(&rigs[1 - dies]).cold_writes, 1);
                n_taken++;
            } else {
                rig_close(&rigs[1 - dies]);
                fake_disk_start(disk, 1 - dies);
                rig_open(&rigs[1 - dies],
                         &(struct rig_plan){.dir = "/cache", .cold_bytes = COLD, .io = fake_disk_io(disk, 1 - dies)});
            }
            fake_disk_start(disk, dies);
            rig_open(&rigs[dies],
                     &(struct rig_plan){.dir = "/cache", .cold_bytes = COLD, .io = fake_disk_io(disk, dies)});
            assert_int_equal(metrics_of(&rigs[dies]).cold_writes, 0);
        }
        rig_close(&rigs[0]);
        rig_close(&rigs[1]);
        fake_disk_free(disk);
    }
    print_message("%llu tokens of cold blocks, %llu times one was left, and wrote\n", (unsigned long long)n_cold,
                  (unsigned long long)n_taken);
    assert_true(n_cold > 200 * SEEDS && n_taken > 2 * SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rolling, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_own_blocks, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_doubles, cold_set_up, cold_tear_down),
        cmocka_unit_test(test_seeds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
