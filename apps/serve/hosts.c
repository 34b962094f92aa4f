/* By which names the server may be asked: see serve.h.
 *
 * A page that a user visits can have its own name resolve to 127.0.0.1 (DNS rebinding). Its browser then takes this
 * server for the page's own: no Origin is foreign, and the page may read each answer. The Host of such requests is the
 * page's name, which no page can change. So requests that come from this machine to a server that everyone may ask must
 * name a host that no such page can have: an address, a name that is of this machine alone, or one that was allowed. A
 * page has no key, and https asks the server for a certificate of the page's name: either of them keeps pages out. */
#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "serve.h"

struct name {
    const char *at;
    size_t n;
};

/* Of "a.example.:8080" the name "a.example"; of "[::1]:8080" what stands in the brackets. */
static struct name name_of(const char *host, size_t n)
{
    const char *end = n > 0 && host[0] == '[' ? memchr(host, ']', n) : NULL;
    struct name name = {host, n};

    if (end != NULL)
        return (struct name){host + 1, (size_t)(end - host) - 1};
    end = memchr(host, ':', n);
    name.n = end != NULL ? (size_t)(end - host) : n;
    name.n -= name.n > 1 && host[name.n - 1] == '.';
    return name;
}

static bool is_same(struct name name, const char *text)
{
    return strlen(text) == name.n && strncasecmp(name.at, text, name.n) == 0;
}

static bool ends_with(struct name name, const char *end)
{
    size_t n = strlen(end);

    return name.n > n && strncasecmp(name.at + name.n - n, end, n) == 0;
}

static bool is_address(struct name name)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;

    snprintf(text, sizeof text, "%.*s", (int)(name.n < sizeof text ? name.n : 0), name.at);
    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

/* Names that nobody can have in the public DNS: those without a dot (localhost, an alias of /etc/hosts), those of
 * loopback, those that containers have for their host (host.docker.internal), and this machine's own. */
static bool is_local(struct name name)
{
    char own[HOST_NAME_MAX + sizeof ".local"] = "";

    if (memchr(name.at, '.', name.n) == NULL || ends_with(name, ".localhost") || ends_with(name, ".internal"))
        return true;
    if (gethostname(own, HOST_NAME_MAX) != 0 || own[0] == '\0')
        return false;
    if (is_same(name, own))
        return true;
    strcat(own, ".local");
    return is_same(name, own);
}

/* Whether a list, parted by commas, has the name, "*", or an origin of that name (https://a.example:8443). */
static bool is_listed(const char *list, struct name name)
{
    while (list != NULL && *list != '\0') {
        size_t word = strcspn(list, ",");
        const char *scheme = memmem(list, word, "://", 3), *host = scheme != NULL ? scheme + 3 : list;
        struct name listed = name_of(host, word - (size_t)(host - list));

        if ((word == 1 && list[0] == '*') ||
            (listed.n == name.n && name.n > 0 && strncasecmp(listed.at, name.at, name.n) == 0))
            return true;
        list += word + (list[word] == ',');
    }
    return false;
}

/* Whether it comes from this machine, by its address: what resolves to loopback does. */
static bool is_from_here(const struct http_exchange *exchange)
{
    const char *peer = http_peer(exchange);

    return strncmp(peer, "127.", 4) == 0 || strncmp(peer, "[::1]", 5) == 0 || strncmp(peer, "[::ffff:127.", 12) == 0;
}

bool serve_knows_host(const struct serve *serve, const struct http_exchange *exchange)
{
    const struct app_options *options = serve->options;
    const char *host = http_field(exchange, "host");
    bool kept_out = serve->keys.n > 0 || options->tls_cert != NULL || !is_from_here(exchange);
    struct name name;

    if (host == NULL || host[0] == '\0' || (options->allow_host == NULL && kept_out))
        return true;
    name = name_of(host, strlen(host));
    return is_address(name) || is_local(name) || is_same(name, options->host) || is_listed(options->allow_host, name) ||
           is_listed(options->cors, name);
}

/* A name alone, as browsers write it. */
static bool is_name(const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)word[i]) && strchr("-_.", word[i]) == NULL)
            return false;
    return n > 0;
}

bool serve_check_hosts(const char *list)
{
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, ",");

        if (!(n == 1 && list[0] == '*') && !is_name(list, n)) {
            app_error("--allow-host '%.*s': a host is written as a.example, without a port", (int)n, list);
            return false;
        }
        list += n + (list[n] == ',');
    }
    return true;
}
