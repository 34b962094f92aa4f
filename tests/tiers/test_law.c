/* Law 5 over the tiers: with the bundled model (whose texts other programs judge, tests/oracle) each answer, its
 * logprobs and those of the others are, to the bit, what they are without a cache: hot, warm, cold, after a restart,
 * for each KV type and each way to pack. And each request carries a canary of its own: only who shares its salt ever
 * finds a token of it cached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/actors/answer.h"
#include "tests/cache/cold_fixture.h"

enum { ANSWER = 8, PROMPTS = 3, HOT_BLOCKS = 6, CONTEXT = 192 };

/* A text of some five blocks; `canary` stands in its first and its last sentence. */
static void prompt_of(unsigned which, const char *canary, char *text, size_t room)
{
    static const char *const stories[PROMPTS] = {
        "an old man in the village knew all the stories, and each night the children asked him for another one",
        "the ships that came into the harbour in autumn brought salt and iron, and news of the war in the south",
        "she counted the windows of the house on the hill, and each time there was one more than the day before"};

    snprintf(text, room, "%s: %s; %s. The word was %s.", canary, stories[which % PROMPTS],
             stories[(which + 1) % PROMPTS], canary);
}

static void ask(runnel_engine *engine, runnel_model *model, const char *prompt, uint64_t salt, uint8_t pin,
                struct answer *answer)
{
    runnel_request request = answer_request(answer, prompt, ANSWER);

    request.cache_salt = salt;
    request.pin_prefix = pin;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
}

static runnel_model *load_tiers(runnel_engine *engine, runnel_kv_type kv_type, const char *codec, bool warm, bool cold)
{
    runnel_model_options options;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_model *whole;

    runnel_model_options_default(&options);
    options.kv_type = kv_type;
    options.context_tokens = CONTEXT;
    options.batch_tokens = 24; /* chunks that end inside blocks */
    whole = load_model(engine, quick_model(), &options);
    assert_int_equal(runnel_model_get_info(whole, &info), RUNNEL_OK);
    runnel_model_free(whole);
    options.kv_bytes = HOT_BLOCKS * info.block_tokens * info.kv_bytes_per_token;
    options.cache_warm_bytes = warm ? 32 << 20 : 0;
    options.cache_dir = cold ? cold_folder : NULL;
    options.cache_cold_bytes = cold ? 64 << 20 : 0;
    options.cache_codec = codec;
    return load_model(engine, quick_model(), &options);
}

/* Until no block is on its way. */
static void settle(runnel_engine *engine)
{
    assert_quiet(engine, 0);
    assert_quiet(engine, 0);
}

static void check_type(runnel_kv_type kv_type, const char *codec)
{
    struct answer plain[PROMPTS], tiered;
    uint64_t warm = 0, cold = 0;
    char text[PROMPTS][600];
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;

    runnel_model_options_default(&options);
    options.kv_type = kv_type;
    options.no_prefix_cache = 1;
    model = load_model(engine, quick_model(), &options);
    for (unsigned i = 0; i < PROMPTS; i++) {
        prompt_of(i, "Heron", text[i], sizeof text[i]);
        ask(engine, model, text[i], 0, 0, &plain[i]);
    }
    runnel_model_free(model);
    for (unsigned life = 0; life < 2; life++) {
        model = load_tiers(engine, kv_type, codec, true, true);
        for (unsigned i = 0; i < 2 * PROMPTS; i++) {
            ask(engine, model, text[i % PROMPTS], 0, i % PROMPTS == 0, &tiered);
            assert_same_answer(&tiered, &plain[i % PROMPTS]);
            warm += tiered.capture.last.usage.warm_tokens;
            cold += tiered.capture.last.usage.cold_tokens;
            capture_clear(&tiered.capture);
            settle(engine);
        }
        runnel_model_free(model);
        await_models(engine, 0);
    }
    for (unsigned i = 0; i < PROMPTS; i++)
        capture_clear(&plain[i].capture);
    runnel_engine_free(engine);
    assert_true(warm > 0 && cold > 0);
}

static void test_types(void **state)
{
    static const runnel_kv_type types[] = {RUNNEL_KV_F32, RUNNEL_KV_F16, RUNNEL_KV_BF16, RUNNEL_KV_FP8,
                                           RUNNEL_KV_Q8,  RUNNEL_KV_Q4,  RUNNEL_KV_Q3};
    static const char *const codecs[] = {NULL, "none", "lz4", "zstd"};

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_type(types[i], NULL);
        check_type(types[i], codecs[1 + i % 3]);
    }
}

/* Six tenants, each with a canary, ask the same otherwise; three rounds over a restart, in room for one. Until a tenant
 * has asked, nothing is cached for it, and what it is told is what a model without a cache tells. */
static void test_canaries(void **state)
{
    enum { TENANTS = 6 };
    static const char *const canaries[TENANTS] = {"Kestrel", "Quartz", "Zither", "Ostler", "Nimbus", "Jackdaw"};
    struct answer plain[TENANTS], tiered;
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;
    uint64_t own = 0;
    char text[600];

    (void)state;
    runnel_model_options_default(&options);
    options.no_prefix_cache = 1;
    model = load_model(engine, quick_model(), &options);
    for (unsigned t = 0; t < TENANTS; t++) {
        prompt_of(0, canaries[t], text, sizeof text);
        ask(engine, model, text, 0, 0, &plain[t]);
    }
    runnel_model_free(model);
    for (unsigned round = 0; round < 3; round++) {
        model = load_tiers(engine, RUNNEL_KV_F16, NULL, round > 0, true);
        for (unsigned t = 0; t < TENANTS; t++)
            for (unsigned duplicate_block = 0; duplicate_block < 2;
                 duplicate_block++) { /* duplicate block: the same prompt, another tenant */
                prompt_of(0, canaries[t], text, sizeof text);
                ask(engine, model, text, 1 + t + duplicate_block * round * 100, duplicate_block == 0, &tiered);
                assert_same_answer(&tiered, &plain[t]);
                for (unsigned other = 0; other < TENANTS; other++)
                    assert_true(other == t || strstr(tiered.capture.text, canaries[other]) == NULL);
                if (round == 0 ? duplicate_block == 0 : duplicate_block == 1) /* the first time that this tenant asks */
                    assert_int_equal(tiered.capture.last.usage.cached_tokens, 0);
                own += duplicate_block == 0 ? tiered.capture.last.usage.cold_tokens : 0;
                capture_clear(&tiered.capture);
                settle(engine);
            }
        runnel_model_free(model);
        await_models(engine, 0);
    }
    for (unsigned t = 0; t < TENANTS; t++)
        capture_clear(&plain[t].capture);
    runnel_engine_free(engine);
    assert_true(own > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_types, cold_set_up, cold_tear_down),
        cmocka_unit_test_setup_teardown(test_canaries, cold_set_up, cold_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
