/* See redis_url.h. */
#include "cache/redis_url.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_PORT 6379u
#define MOST_DATABASE 65535u

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

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
        high = digit(at[1]);
        low = high < 0 ? -1 : digit(at[2]);
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

/* Cuts "?ttl=N" off. */
static const char *take_query(struct rn_redis_url *url, char *text)
{
    char *query = strchr(text, '?');

    if (query == NULL)
        return NULL;
    *query++ = '\0';
    if (strncmp(query, "ttl=", 4) != 0 || !number(query + 4, UINT32_MAX, &url->ttl_s) || url->ttl_s == 0)
        return "behind the question mark only ttl=SECONDS is known";
    return NULL;
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
    url->port = (uint32_t)value;
    if (text[0] == '[') {
        if (bracket == NULL || bracket[1] != '\0')
            return "a bracket is not closed";
        *bracket = '\0';
        text++;
    }
    url->host = text;
    return text[0] != '\0' ? NULL : "the host is missing";
}

static const char *parse_network(struct rn_redis_url *url, char *text)
{
    char *at = strrchr(text, '@'), *slash;
    const char *wrong = NULL;
    uint64_t value = 0;

    if (at != NULL) {
        *at = '\0';
        wrong = take_user(url, text);
        text = at + 1;
    }
    slash = strchr(text, '/');
    if (slash != NULL) {
        *slash = '\0';
        if (slash[1] != '\0' && !number(slash + 1, MOST_DATABASE, &value))
            return "the database is not a number";
        url->database = (uint32_t)value;
    }
    return wrong != NULL ? wrong : take_host(url, text);
}

static const char *parse_unix(struct rn_redis_url *url, char *text)
{
    if (strncmp(text, "//", 2) == 0)
        text += 2;
    url->path = text;
    if (!decode(text))
        return "a % is not followed by two hexadecimal digits";
    if (text[0] != '/')
        return "the path of the socket does not begin with /";
    return strlen(text) < 108 ? NULL : "the path of the socket is longer than 107 bytes";
}

runnel_status rn_redis_url_parse(struct rn_redis_url *url, struct rn_heap *heap, const char *text, runnel_error *error)
{
    const char *wrong;

    *url = (struct rn_redis_url){.heap = heap};
    if (strncmp(text, "rediss://", 9) == 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "a shared cache at rediss:// needs TLS, which is not supported");
    if (strncmp(text, "redis://", 8) != 0 && strncmp(text, "unix:", 5) != 0)
        return rn_error_set(error, RUNNEL_INVALID,
                            "a shared cache is redis://[:password@]host[:port][/database] or unix:/path");
    url->text = rn_strndup(heap, text, strlen(text));
    if (url->text == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a shared cache");
    wrong = take_query(url, url->text);
    if (wrong == NULL)
        wrong = url->text[0] == 'r' ? parse_network(url, url->text + 8) : parse_unix(url, url->text + 5);
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
        snprintf(text, n, "%s:%u", url->host, (unsigned)url->port);
}
