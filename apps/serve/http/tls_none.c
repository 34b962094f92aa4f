/* See tls.h: built without OpenSSL. */
#include "tls.h"

#include <stdio.h>

struct http_tls_files *http_tls_files_new(const char *certificate, const char *key, char sentence[256])
{
    (void)certificate;
    (void)key;
    snprintf(sentence, 256, "TLS: this program was built without OpenSSL");
    return NULL;
}

struct http_tls_files *http_tls_files_ref(struct http_tls_files *files)
{
    return files;
}

void http_tls_files_unref(struct http_tls_files *files)
{
    (void)files;
}

struct http_tls *http_tls_new(struct http_tls_files *files)
{
    (void)files;
    return NULL;
}

void http_tls_free(struct http_tls *tls)
{
    (void)tls;
}

bool http_tls_put(struct http_tls *tls, const char *bytes, size_t n)
{
    (void)tls;
    (void)bytes;
    (void)n;
    return false;
}

long http_tls_open(struct http_tls *tls, char *bytes, size_t n)
{
    (void)tls;
    (void)bytes;
    (void)n;
    return -1;
}

long http_tls_seal(struct http_tls *tls, const char *bytes, size_t n)
{
    (void)tls;
    (void)bytes;
    (void)n;
    return -1;
}

size_t http_tls_sealed(struct http_tls *tls)
{
    (void)tls;
    return 0;
}

size_t http_tls_take(struct http_tls *tls, char *bytes, size_t n)
{
    (void)tls;
    (void)bytes;
    (void)n;
    return 0;
}

bool http_tls_ready(const struct http_tls *tls)
{
    (void)tls;
    return false;
}

void http_tls_end(struct http_tls *tls)
{
    (void)tls;
}
