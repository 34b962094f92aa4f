/* The page at /, and the files that are in the program: see embedded.h.
 *
 * The page is plain files of this origin alone. Its policy lets nothing else in: no script that stands in markup, no
 * other host, no frame around it, and no text that becomes markup (Trusted Types). It is public like the source that it
 * is; what it asks for needs a key where there are keys. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "embedded.h"
#include "serve.h"

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                             "require-trusted-types-for 'script'; trusted-types 'none'";

const struct serve_file *serve_find_file(const char *name)
{
    for (const struct serve_file *file = serve_files; file->name != NULL; file++)
        if (strcmp(file->name, name) == 0)
            return file;
    return NULL;
}

static const char *type_of(const char *name)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *end = strrchr(name, '.');

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (end != NULL && strcmp(end, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

/* Whether an element of Accept-Encoding (RFC 9110, section 12.5.3) is gzip, and not with a weight of 0. */
static bool is_gzip(const char *element, size_t n)
{
    const char *end = element + n, *at = element + strspn(element, " \t");
    size_t word = strcspn(at, " \t;,");

    if (!(word == 4 && strncasecmp(at, "gzip", 4) == 0) && !(word == 6 && strncasecmp(at, "x-gzip", 6) == 0))
        return false;
    at += word;
    at += strspn(at, " \t;");
    if (at >= end || strncasecmp(at, "q=", 2) != 0)
        return true;
    return strtod(at + 2, NULL) > 0;
}

/* "*" is not taken at its word: who wants gzip says so. */
static bool takes_gzip(const struct http_exchange *exchange)
{
    const char *at = http_field(exchange, "accept-encoding");

    while (at != NULL && *at != '\0') {
        size_t n = strcspn(at, ",");

        if (is_gzip(at, n))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* A client that has the file asks whether it is still the same one. Each form of it has a tag of its own. */
static bool is_known(struct http_exchange *exchange, const struct serve_file *file, bool packed)
{
    const char *known = http_field(exchange, "if-none-match");
    char tag[32];

    snprintf(tag, sizeof tag, "\"%016llx%s\"", (unsigned long long)XXH3_64bits(file->bytes, file->n),
             packed ? "-gzip" : "");
    http_add_field(exchange, "ETag", tag);
    return known != NULL && (strstr(known, tag) != NULL || strcmp(known, "*") == 0);
}

/* What / says in place of a page: clients ask it whether a server is there, the ollama program by HEAD. */
static void tell_alive(struct serve *serve, struct http_exchange *exchange)
{
    fputs("runnel is running", serve_write(serve));
    serve_reply(serve, exchange, 200, "text/plain; charset=utf-8");
}

void serve_page(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    const struct serve_file *file = NULL;
    bool packed = false;
    char name[64];
    FILE *to = serve_write(serve);

    if (serve->options->no_page && rest[0] == '\0') {
        tell_alive(serve, exchange);
        return;
    }
    snprintf(name, sizeof name, "page/%s", rest[0] != '\0' ? rest : "index.html");
    if (!serve->options->no_page)
        file = serve_find_file(name);
    if (file == NULL) {
        serve_refuse_as(serve, exchange, 404, "not_found_error", NULL, "there is no such file of the page", 0);
        return;
    }
    http_add_field(exchange, "Content-Security-Policy", policy);
    http_add_field(exchange, "X-Content-Type-Options", "nosniff");
    http_add_field(exchange, "Referrer-Policy", "no-referrer");
    http_add_field(exchange, "Cross-Origin-Opener-Policy", "same-origin");
    http_add_field(exchange, "Cache-Control", "no-cache");
    http_add_field(exchange, "Vary", "Accept-Encoding");
    packed = file->packed != NULL && takes_gzip(exchange);
    if (is_known(exchange, file, packed)) {
        serve_reply(serve, exchange, 304, NULL);
        return;
    }
    if (packed)
        http_add_field(exchange, "Content-Encoding", "gzip");
    fwrite(packed ? file->packed : file->bytes, 1, packed ? file->n_packed : file->n, to);
    serve_reply(serve, exchange, 200, type_of(file->name));
}
