/* Addresses of Redis servers: what each part says, and what is none; then garbage: addresses cut off, with bytes
 * changed, put together at random. What is read of those must be in the text, and an error must not repeat a word of
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/redis_url.h"

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

static void same(const char *a, const char *b)
{
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL)
        assert_string_equal(a, b);
}

static void test_good(void **state)
{
    static const struct {
        const char *url, *shown, *user, *password;
        uint32_t database;
        uint64_t ttl;
        bool tls;
    } good[] = {
        {"redis://host", "host:6379", NULL, NULL, 0, 0, false},
        {"redis://host:7000/12", "host:7000", NULL, NULL, 12, 0, false},
        {"redis://:p%40ss@host/", "host:6379", NULL, "p@ss", 0, 0, false},
        {"redis://me:p:q@10.0.0.1:1/2?ttl=5", "10.0.0.1:1", "me", "p:q", 2, 5, false},
        {"redis://me:p%2Fq%3F%23%25@h", "h:6379", "me", "p/q?#%", 0, 0, false},
        {"redis://m%65%3a:%20@h", "h:6379", "me:", " ", 0, 0, false},
        {"redis://:p@q@host", "host:6379", NULL, "p@q", 0, 0, false},
        {"redis://[::1]:7000", "[::1]:7000", NULL, NULL, 0, 0, false},
        {"redis://[fe80::1%25eth0]/1", "[fe80::1%eth0]:6379", NULL, NULL, 1, 0, false},
        {"redis://x?db=3", "x:6379", NULL, NULL, 3, 0, false},
        {"redis://x/?ttl=9&db=3", "x:6379", NULL, NULL, 3, 9, false},
        {"redis://x?db=0&ttl=4294967295", "x:6379", NULL, NULL, 0, UINT32_MAX, false},
        {"rediss://x", "x:6379", NULL, NULL, 0, 0, true},
        {"rediss://u:s@[2001:db8::7]:65535/65535?ttl=1", "[2001:db8::7]:65535", "u", "s", 65535, 1, true},
        {"unix:/a%20b", "/a b", NULL, NULL, 0, 0, false},
        {"unix:/a@/b", "/a@/b", NULL, NULL, 0, 0, false},
        {"unix:///run/redis.sock", "/run/redis.sock", NULL, NULL, 0, 0, false},
        {"unix:///run/redis.sock?db=1", "/run/redis.sock", NULL, NULL, 1, 0, false},
        {"unix://u:p%2F@/run/r?ttl=7&db=15", "/run/r", "u", "p/", 15, 7, false},
        {"unix://:p@/run/@/r", "/run/@/r", NULL, "p", 0, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct rn_redis_url url;
        char shown[120];

        assert_int_equal(rn_redis_url_parse(&url, &heap, good[i].url, NULL), RUNNEL_OK);
        rn_redis_url_show(&url, shown, sizeof shown);
        assert_string_equal(shown, good[i].shown);
        assert_int_equal(url.database, good[i].database);
        assert_int_equal(url.ttl_s, good[i].ttl);
        assert_int_equal(url.tls, good[i].tls);
        assert_true((url.path != NULL) == (strncmp(good[i].url, "unix:", 5) == 0));
        assert_true((url.path == NULL) == (url.host != NULL));
        same(url.user, good[i].user);
        same(url.password, good[i].password);
        rn_redis_url_fini(&url);
    }
}

static void test_bad(void **state)
{
    static const struct {
        const char *url, *words;
    } bad[] = {
        {"", "redis://"},
        {"localhost", "redis://"},
        {"http://x", "redis://"},
        {"redis:/x", "redis://"},
        {"REDIS://x", "redis://"},
        {"redissss://x", "redis://"},
        {"unixx:/", "redis://"},
        {"redis://", "host is missing"},
        {"rediss://", "host is missing"},
        {"redis://:6379", "host is missing"},
        {"redis:///1", "host is missing"},
        {"redis://:secret@", "host is missing"},
        {"redis://[]:1", "host is missing"},
        {"redis://x:0", "port"},
        {"redis://x:65536", "port"},
        {"redis://x:1x", "port"},
        {"redis://x:", "port"},
        {"redis://x:-1", "port"},
        {"redis://x: 1", "port"},
        {"redis://x:99999999999999999999", "port"},
        {"redis://x/y", "database"},
        {"redis://x/65536", "database"},
        {"redis://x/1/2", "database"},
        {"redis://x/-1", "database"},
        {"redis://x/1?db=1", "two databases"},
        {"redis://secret@x", "password is missing"},
        {"redis://@x", "password is missing"},
        {"redis://:@x", "password is empty"},
        {"redis://me:@x", "password is empty"},
        {"redis://:%zz@x", "hexadecimal"},
        {"redis://:%00@x", "hexadecimal"},
        {"redis://:secret%@x", "hexadecimal"},
        {"redis://:secret%4@x", "hexadecimal"},
        {"redis://%:secret@x", "hexadecimal"},
        {"redis://x%2", "hexadecimal"},
        {"redis://[::1", "bracket"},
        {"redis://[::1]x", "bracket"},
        {"redis://[::1]x:5", "bracket"},
        {"redis://::1", "brackets"},
        {"redis://2001:db8::7:6379", "brackets"},
        {"redis://x?ttl=0", "ttl"},
        {"redis://x?ttl=abc", "ttl"},
        {"redis://x?ttl=4294967296", "ttl"},
        {"redis://x?ttl=1&ttl=2", "ttl"},
        {"redis://x?size=3", "ttl"},
        {"redis://x?", "ttl"},
        {"redis://x?ttl=1&", "ttl"},
        {"redis://x?&ttl=1", "ttl"},
        {"redis://x?db=1&db=1", "db"},
        {"redis://x?db=", "db"},
        {"redis://x?db=65536", "db"},
        {"redis://x?password=secret", "ttl"},
        {"unix:relative", "begin with /"},
        {"unix:", "begin with /"},
        {"unix://", "begin with /"},
        {"unix://relative", "begin with /"},
        {"unix://secret@/x", "password is missing"},
        {"unix:/%0", "hexadecimal"},
        {"unix:/x?db=x", "db"},
        {"unix:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "longer than 107"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rn_redis_url url;
        runnel_error error = {0};

        assert_int_equal(rn_redis_url_parse(&url, &heap, bad[i].url, &error), RUNNEL_INVALID);
        assert_null(url.text);
        if (strstr(error.message, bad[i].words) == NULL)
            fail_msg("%s: %s", bad[i].url, error.message);
        assert_null(strstr(error.message, "secret"));
    }
}

/* What is read lies in the copy of the text, and means what can be. */
static void is_sound(const struct rn_redis_url *url, size_t n)
{
    const char *const parts[] = {url->host, url->path, url->user, url->password};
    char shown[32];

    for (size_t i = 0; i < 4; i++)
        if (parts[i] != NULL)
            assert_true(parts[i] >= url->text && parts[i] + strlen(parts[i]) <= url->text + n);
    assert_true((url->host == NULL) != (url->path == NULL));
    assert_true(url->host == NULL ? url->path[0] == '/' && !url->tls : url->host[0] != '\0');
    assert_true(url->host == NULL || (url->port >= 1 && url->port <= 65535));
    assert_true(url->database <= 65535 && url->ttl_s <= UINT32_MAX);
    assert_true(url->user == NULL || url->password != NULL);
    assert_true(url->password == NULL || url->password[0] != '\0');
    rn_redis_url_show(url, shown, sizeof shown);
}

static bool parse(const char *text)
{
    struct rn_redis_url url;
    runnel_error error = {0};
    runnel_status status = rn_redis_url_parse(&url, &heap, text, &error);

    if (status == RUNNEL_OK)
        is_sound(&url, strlen(text));
    else
        assert_true(status == RUNNEL_INVALID && error.message[0] != '\0' && strstr(error.message, "geheim") == NULL);
    rn_redis_url_fini(&url);
    return status == RUNNEL_OK;
}

static void test_garbage(void **state)
{
    static const char whole[] = "rediss://user:geheim%41@[fe80::7%25e]:6380/12?ttl=77";
    static const char *const pieces[] = {
        "redis://", "rediss://", "unix:", "//", "/",   ":",   "@", "@/",    "[", "]",      "?",        "&",
        "ttl=",     "db=",       "%",     "%4", "%41", "%00", "7", "65536", "x", "geheim", "\x01\xff", "::1"};
    size_t n_pieces = sizeof pieces / sizeof *pieces, n_good = 0;
    uint64_t random = 20261122;
    char text[400];

    (void)state;
    for (size_t n = 0; n < sizeof whole; n++)
        for (int byte = 0; byte < 256; byte++) { /* cut off there, or another byte there */
            memcpy(text, whole, sizeof whole);
            text[n] = (char)byte;
            text[sizeof whole] = '\0';
            n_good += parse(text);
        }
    assert_true(n_good > 1000);
    n_good = 0;
    for (int i = 0; i < 200000; i++) {
        size_t n = (size_t)(rn_splitmix64(&random) % 14);

        strcpy(text, pieces[rn_splitmix64(&random) % 3]);
        for (size_t k = 0; k < n; k++)
            strcat(text, pieces[rn_splitmix64(&random) % n_pieces]);
        n_good += parse(text);
    }
    assert_true(n_good > 1000 && n_good < 199000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_good, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
