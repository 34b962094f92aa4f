/* Rates, budgets and keys, without a server: the clock is a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/serve/keys/keys.h"

static void test_bucket(void **state)
{
    struct serve_bucket bucket;

    (void)state;
    serve_bucket_init(&bucket, 60, 1000);
    assert_int_equal(serve_bucket_left(&bucket, 1000), 60);
    serve_bucket_take(&bucket, 60, 1000);
    assert_int_equal(serve_bucket_left(&bucket, 1999), 0);
    assert_int_equal(serve_bucket_wait_ms(&bucket, 1, 1999), 1);
    assert_int_equal(serve_bucket_left(&bucket, 2000), 1);
    assert_int_equal(serve_bucket_full_ms(&bucket, 2000), 59000);
    assert_int_equal(serve_bucket_left(&bucket, 500), 1); /* a clock that goes back brings and takes nothing */
    assert_int_equal(serve_bucket_left(&bucket, UINT64_MAX), 60);
}

/* A debt is waited for; over an hour no more than the rate and the first minute's is had. */
static void test_debt(void **state)
{
    struct serve_bucket bucket;
    int64_t had = 0;

    (void)state;
    serve_bucket_init(&bucket, 100, 0);
    for (uint64_t now = 0; now < 3600000; now += 7)
        if (serve_bucket_wait_ms(&bucket, 1, now) == 0) {
            serve_bucket_take(&bucket, 37, now);
            had += 37;
        }
    assert_in_range(had, 6000, 6100 + 37);
    serve_bucket_init(&bucket, 100, 0);
    serve_bucket_take(&bucket, 300, 0);
    assert_int_equal(serve_bucket_left(&bucket, 0), 0);
    assert_int_equal(serve_bucket_wait_ms(&bucket, 1, 0), 120600);
    assert_int_equal(serve_bucket_wait_ms(&bucket, 1, 120600), 0);
}

static void test_extremes(void **state)
{
    struct serve_bucket bucket;

    (void)state;
    serve_bucket_init(&bucket, SERVE_MOST_LIMIT, 0);
    serve_bucket_take(&bucket, INT64_MAX, 0);
    serve_bucket_take(&bucket, INT64_MAX, 0);
    assert_int_equal(serve_bucket_wait_ms(&bucket, SERVE_MOST_LIMIT, 0), 120000);
    assert_int_equal(serve_bucket_left(&bucket, UINT64_MAX), SERVE_MOST_LIMIT);
    serve_bucket_init(&bucket, 0, 0); /* no limit */
    serve_bucket_take(&bucket, INT64_MAX, 5);
    assert_int_equal(serve_bucket_wait_ms(&bucket, 1, 5), 0);
}

static void test_other_rate(void **state)
{
    struct serve_bucket bucket;

    (void)state;
    serve_bucket_init(&bucket, 60, 0);
    serve_bucket_take(&bucket, 50, 0);
    serve_bucket_set(&bucket, 100, 0);
    assert_int_equal(serve_bucket_left(&bucket, 0), 50);
    serve_bucket_set(&bucket, 40, 0);
    assert_int_equal(serve_bucket_left(&bucket, 0), 0);
    serve_bucket_set(&bucket, 0, 0);
    serve_bucket_set(&bucket, 10, 0);
    assert_int_equal(serve_bucket_left(&bucket, 0), 10);
}

static void test_ask(void **state)
{
    struct serve_limits limits = {.budget = 100, .streams = 3};
    uint64_t retry = 7;

    (void)state;
    serve_bucket_init(&limits.requests, 2, 0);
    serve_bucket_init(&limits.tokens, 50, 0);
    assert_int_equal(serve_limits_ask(&limits, 0, &retry), EXCESS_NONE);
    assert_int_equal(serve_limits_ask(&limits, 0, &retry), EXCESS_NONE);
    assert_int_equal(serve_limits_ask(&limits, 0, &retry), EXCESS_REQUESTS);
    assert_int_equal(retry, 30000);
    assert_true(serve_limits_charge(&limits, 75, 0));
    assert_int_equal(serve_limits_ask(&limits, 0, &retry), EXCESS_TOKENS);
    assert_int_equal(retry, 31200);
    assert_int_equal(serve_limits_ask(&limits, 31200, &retry), EXCESS_NONE);
    assert_false(serve_limits_charge(&limits, 25, 31200));
    assert_int_equal(serve_limits_ask(&limits, UINT64_MAX, &retry), EXCESS_BUDGET);
    assert_int_equal(retry, 0);
    assert_true(serve_limits_open(&limits, 2));
    assert_false(serve_limits_open(&limits, 2));
    assert_true(serve_limits_open(&limits, 1));
    serve_limits_close(&limits, 2);
    assert_true(serve_limits_open(&limits, 2));
}

/* ---- Keys -------------------------------------------------------------------------------- */

/* SHA-256 of "secret", by coreutils. */
#define SECRET "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

static struct serve_key *find(const struct serve_keys *keys, const char *key)
{
    uint8_t digest[DIGEST_BYTES];

    assert_true(digest_of(key, strlen(key), digest));
    return keys_find(keys, digest);
}

static void test_file(void **state)
{
    struct serve_keys keys = {0};
    char sentence[256] = "";
    struct serve_key *key = NULL;

    (void)state;
    assert_true(keys_add_text(&keys,
                              "# ours\n\n  \t\nplain-key\r\nsha256:" SECRET
                              "  alice scopes=chat,tokens requests=60 tokens=1000 budget=5000 streams=2\n"
                              "sha256:0000000000000000000000000000000000000000000000000000000000000AbC bob\n"
                              "other name=carol scopes=metrics",
                              5, sentence));
    assert_int_equal(keys.n, 4);
    assert_null(find(&keys, "plain"));
    assert_null(find(&keys, "sha256:" SECRET));
    assert_null(find(&keys, SECRET));
    key = find(&keys, "secret");
    assert_non_null(key);
    assert_string_equal(key->name, "alice");
    assert_int_equal(key->scopes, SCOPE_CHAT | SCOPE_TOKENS);
    assert_int_equal(key->limits.requests.per_minute, 60);
    assert_int_equal(key->limits.tokens.per_minute, 1000);
    assert_int_equal(key->limits.budget, 5000);
    assert_int_equal(key->limits.streams, 2);
    assert_string_equal(find(&keys, "plain-key")->name, "key-1");
    assert_int_equal(find(&keys, "plain-key")->scopes, SCOPE_ALL);
    assert_string_equal(find(&keys, "other")->name, "carol");
    assert_true(key->tenant != find(&keys, "other")->tenant && key->tenant != 0);
    keys_fini(&keys);
}

/* What is wrong is told with its line, and never a key with it. */
static void test_bad_files(void **state)
{
    static const char *const bad[][2] = {{"topsecret\nsha256:topsecret x", "line 2: behind sha256"},
                                         {"topsecret bob", "line 1: behind a key"},
                                         {"topsecret name=", "line 1: a name has"},
                                         {"topsecret name=a/b", "line 1: a name is made"},
                                         {"topsecret name=a name=b", "line 1: it has two names"},
                                         {"topsecret scopes=chat,root", "line 1: scopes are"},
                                         {"topsecret scopes=", "line 1: scopes are"},
                                         {"topsecret scopes=chat,", "line 1: scopes are"},
                                         {"topsecret requests=0", "line 1: requests, tokens"},
                                         {"topsecret tokens=-1", "line 1: requests, tokens"},
                                         {"topsecret budget=99999999999999999999", "line 1: requests, tokens"},
                                         {"topsecret streams=1x", "line 1: requests, tokens"},
                                         {"topsecret streams=", "line 1: requests, tokens"},
                                         {"topsecret speed=1", "line 1: there are name="},
                                         {"topsecret\n\ntopsecret name=b", "line 3: this key was there"},
                                         {"topsecret name=a\nb name=a", "line 2: this name was there"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct serve_keys keys = {0};
        char sentence[256] = "";

        assert_false(keys_add_text(&keys, bad[i][0], 0, sentence));
        assert_memory_equal(sentence, bad[i][1], strlen(bad[i][1]));
        assert_null(strstr(sentence, "topsecret"));
        keys_fini(&keys);
    }
}

static void test_long_key(void **state)
{
    struct serve_keys keys = {0};
    char sentence[256] = "", line[KEY_BYTES + 1];

    (void)state;
    memset(line, 'k', sizeof line);
    assert_false(keys_add_line(&keys, line, KEY_BYTES, 1, 0, sentence));
    assert_true(keys_add_line(&keys, line, KEY_BYTES - 1, 1, 0, sentence));
    assert_false(keys_add_plain(&keys, "a b", "x", 0, sentence));
    keys_fini(&keys);
}

/* A reload keeps the counts of keys that stay, and those who use one that goes keep it. */
static void test_replace(void **state)
{
    struct serve_keys keys = {0}, fresh = {0};
    char sentence[256] = "";
    struct serve_key *stays = NULL, *goes = NULL;
    uint64_t tenant = 0;

    (void)state;
    assert_true(keys_add_text(&keys, "one requests=10 budget=50\ntwo", 0, sentence));
    stays = find(&keys, "one");
    goes = key_ref(find(&keys, "two"));
    tenant = stays->tenant;
    serve_bucket_take(&stays->limits.requests, 4, 0);
    serve_limits_charge(&stays->limits, 40, 0);
    assert_true(keys_add_text(&fresh, "three\none name=first requests=20 scopes=chat", 0, sentence));
    serve_limits_charge(&goes->limits, 7, 0);
    assert_true(keys_replace(&keys, &fresh, 0));
    assert_int_equal(keys.n, 2);
    assert_ptr_equal(find(&keys, "one"), stays);
    assert_string_equal(stays->name, "first");
    assert_int_equal(stays->scopes, SCOPE_CHAT);
    assert_int_equal(stays->tenant, tenant);
    assert_int_equal(stays->limits.used, 40);
    assert_int_equal(stays->limits.budget, 0);
    assert_int_equal(serve_bucket_left(&stays->limits.requests, 0), 16);
    assert_null(find(&keys, "two"));
    assert_string_equal(goes->name, "key-2");
    for (int i = 0; i < 2; i++) { /* who was out for a while has not got its budget again */
        assert_true(
            keys_add_text(&fresh, i == 0 ? "one\nthree" : "one\ntwo name=back budget=10 scopes=chat", 0, sentence));
        assert_true(keys_replace(&keys, &fresh, 0));
        assert_int_equal(keys.n, 2);
    }
    assert_ptr_equal(find(&keys, "two"), goes);
    assert_string_equal(goes->name, "back");
    assert_int_equal(goes->scopes, SCOPE_CHAT);
    assert_int_equal(goes->limits.used, 7);
    assert_false(serve_limits_charge(&goes->limits, 3, 0));
    key_unref(goes);
    keys_fini(&keys);
}

/* A whole table of other keys, each of which has used a token where it is `used`. */
static void turn_over(struct serve_keys *keys, unsigned generation, bool used, uint64_t now_ms)
{
    struct serve_keys fresh = {0};
    char line[64], sentence[256] = "";

    for (unsigned i = 0; i < KEYS_MOST; i++) {
        int n = snprintf(line, sizeof line, "key-of-%u-%u requests=10 tokens=10", generation, i);

        assert_true(keys_add_line(&fresh, line, (size_t)n, i + 1, now_ms, sentence));
    }
    assert_true(keys_replace(keys, &fresh, now_ms));
    for (size_t i = 0; used && i < keys->n; i++)
        serve_limits_charge(&keys->at[i]->limits, 1, now_ms);
}

/* KEYS_MOST keys that are out of the table are remembered: before others those that have used something, the last
 * first. */
static void test_gone(void **state)
{
    struct serve_keys keys = {0};
    struct serve_key *held = NULL;

    (void)state;
    turn_over(&keys, 0, false, 0);
    held = key_ref(keys.at[7]); /* a batch runs for it, and has paid nothing yet */
    serve_bucket_take(&keys.at[8]->limits.requests, 1, 0);
    turn_over(&keys, 1, true, 0);
    assert_int_equal(keys.n_gone, KEYS_MOST);
    assert_ptr_equal(keys.gone[0], held);
    assert_int_equal(serve_bucket_left(&keys.gone[1]->limits.requests, 0), 9);
    key_unref(held);
    turn_over(&keys, 2, true, 60000);
    assert_int_equal(keys.n_gone, KEYS_MOST);
    turn_over(&keys, 3, false, 60000);
    turn_over(&keys, 4, false, 60000);
    assert_int_equal(keys.n_gone, KEYS_MOST);
    turn_over(&keys, 2, false, 60000); /* those of the second table, which were the last to be remembered */
    for (size_t i = 0; i < keys.n; i++)
        assert_int_equal(keys.at[i]->limits.used, 1);
    assert_int_equal(keys.n_gone, KEYS_MOST);
    keys_fini(&keys);
}

int main(void)
{
    static const struct CMUnitTest limits[] = {cmocka_unit_test(test_bucket), cmocka_unit_test(test_debt),
                                               cmocka_unit_test(test_extremes), cmocka_unit_test(test_other_rate),
                                               cmocka_unit_test(test_ask)};
    static const struct CMUnitTest keys[] = {cmocka_unit_test(test_file), cmocka_unit_test(test_bad_files),
                                             cmocka_unit_test(test_long_key), cmocka_unit_test(test_replace),
                                             cmocka_unit_test(test_gone)};
    int failed = cmocka_run_group_tests(limits, NULL, NULL);

    return digest_is_there() ? failed + cmocka_run_group_tests(keys, NULL, NULL) : failed;
}
