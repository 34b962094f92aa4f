/* See redis_url.h. */
#include "cache/store/redis_url.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"

#define DEFAULT_PORT 6379u
#define MOST_DATABASE 65535u

/* In place. False: a % without two digits, or a byte 0. */
static bool decode(char *text)
{
    char *to = text;

    for (const char *at = text; *at != '\0'; at++) {
        int high, low;

        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        high = rn_hex_value(at[1]);
        low = high < 0 ? -1 : rn_hex_value(at[2]);
        if (low < 0 || high + low == 0)
            return false;
        *to++ = (char)(16 * high + low);
        at += 2;
    }
    *to = '\0';
    return true;
}

static bool number(const char *text, uint64_t most, uint64_t *value)
{
    *value = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || *value > most)
            return false;
        *value = 10 * *value + (uint64_t)(*at - '0');
    }
    return text[0] != '\0' && *value <= most;
}

/* One of the query's settings. */
static bool set(struct rn_redis_url *url, const char *text)
{
    uint64_t database;

    if (strncmp(text, "ttl=", 4) == 0)
        return url->ttl_s == 0 && number(text + 4, UINT32_MAX, &url->ttl_s) && url->ttl_s != 0;
    if (strncmp(text, "db=", 3) != 0 || url->has_database || !number(text + 3, MOST_DATABASE, &database))
        return false;
    url->database = (uint32_t)database;
    url->has_database = true;
    return true;
}

/* Cuts "?ttl=N&db=N" off. */
static const char *take_query(struct rn_redis_url *url, char *text)
{
    char *at = strchr(text, '?');

    if (at == NULL)
        return NULL;
    *at++ = '\0';
    for (;;) {
        char *end = strchr(at, '&');

        if (end != NULL)
            *end = '\0';
        if (!set(url, at))
            return "behind the question mark stand ttl=SECONDS and db=NUMBER, each once, with & between them";
        if (end == NULL)
            return NULL;
        at = end + 1;
    }
}

/* user:password, :password */
static const char *take_user(struct rn_redis_url *url, char *text)
{
    char *colon = strchr(text, ':');

    if (colon == NULL)
        return "in front of the @ a password is missing: user:password or :password";
    *colon = '\0';
    if (!decode(text) || !decode(colon + 1))
        return "a % is not followed by two hexadecimal digits";
    url->user = text[0] != '\0' ? text : NULL;
    url->password = colon + 1;
    return url->password[0] != '\0' ? NULL : "the password is empty";
}

static const char *take_host(struct rn_redis_url *url, char *text)
{
    char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
    uint64_t value = DEFAULT_PORT;

    if (colon != NULL && (bracket == NULL || colon > bracket)) {
        *colon = '\0';
        if (!number(colon + 1, 65535, &value) || value == 0)
            return "the port is not a number from 1 to 65535";
    }
    RN_ASSERT(value > 0 && value <= 65535);
    url->port = (uint32_t)value;
    if (text[0] == '[') {
        if (bracket == NULL || bracket[1] != '\0')
            return "a bracket is not closed";
        *bracket = '\0';
        text++;
    } else if (strchr(text, ':') != NULL) {
        return "an IPv6 address stands in brackets: [::1]:6379";
    }
    if (!decode(text))
        return "a % is not followed by two hexadecimal digits";
    url->host = text;
    return text[0] != '\0' ? NULL : "the host is missing";
}

static const char *take_database(struct rn_redis_url *url, const char *text)
{
    uint64_t value;

    if (text[0] == '\0')
        return NULL;
    if (url->has_database)
        return "there are two databases";
    if (!number(text, MOST_DATABASE, &value))
        return "the database is not a number up to 65535";
    url->database = (uint32_t)value;
    return NULL;
}

static const char *parse_network(struct rn_redis_url *url, char *text)
{
    char *at = strrchr(text, '@'), *slash;
    const char *wrong = NULL;

    if (at != NULL) {
        *at = '\0';
        wrong = take_user(url, text);
        text = at + 1;
    }
    slash = strchr(text, '/');
    if (wrong == NULL && slash != NULL) {
        *slash = '\0';
        wrong = take_database(url, slash + 1);
    }
    return wrong != NULL ? wrong : take_host(url, text);
}

/* With two slashes there may be a user between them and the path. */
static const char *parse_unix(struct rn_redis_url *url, char *text)
{
    const char *wrong = NULL;

    if (strncmp(text, "//", 2) == 0) {
        char *at = strstr(text + 2, "@/");

        text += 2;
        if (text[0] != '/' && at != NULL) {
            *at = '\0';
            wrong = take_user(url, text);
            text = at + 1;
        }
    }
    if (wrong != NULL)
        return wrong;
    url->path = text;
    if (!decode(text))
        return "a % is not followed by two hexadecimal digits";
    if (text[0] != '/')
        return "the path of the socket does not begin with /";
    return strlen(text) < 108 ? NULL : "the path of the socket is longer than 107 bytes";
}

runnel_status rn_redis_url_parse(struct rn_redis_url *url, struct rn_heap *heap, const char *text, runnel_error *error)
{
    bool tls = strncmp(text, "rediss://", 9) == 0, local = strncmp(text, "unix:", 5) == 0;
    size_t scheme = tls ? 9 : local ? 5 : 8;
    const char *wrong;

    *url = (struct rn_redis_url){.heap = heap, .tls = tls};
    if (!tls && !local && strncmp(text, "redis://", 8) != 0)
        return rn_error_set(error, RUNNEL_INVALID,
                            "a shared cache is redis://[[user]:password@]host[:port][/database], "
                            "rediss:// and the same for TLS, or unix:/path");
    url->text = rn_strndup(heap, text, strlen(text));
    if (url->text == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a shared cache");
    wrong = take_query(url, url->text);
    if (wrong == NULL)
        wrong = local ? parse_unix(url, url->text + scheme) : parse_network(url, url->text + scheme);
    RN_ASSERT(wrong != NULL || (url->host == NULL) != (url->path == NULL));
    RN_ASSERT(wrong != NULL || url->path != NULL || url->port > 0);
    RN_ASSERT(wrong != NULL || url->user == NULL || url->password != NULL);
    if (wrong == NULL)
        return RUNNEL_OK;
    rn_redis_url_fini(url);
    return rn_error_set(error, RUNNEL_INVALID, "the address of the shared cache: %s", wrong);
}

void rn_redis_url_fini(struct rn_redis_url *url)
{
    if (url->heap != NULL)
        rn_free(url->heap, url->text);
    *url = (struct rn_redis_url){.heap = NULL};
}

void rn_redis_url_show(const struct rn_redis_url *url, char *text, size_t n)
{
    if (url->path != NULL)
        snprintf(text, n, "%s", url->path);
    else
        snprintf(text, n, strchr(url->host, ':') != NULL ? "[%s]:%u" : "%s:%u", url->host, (unsigned)url->port);
}
