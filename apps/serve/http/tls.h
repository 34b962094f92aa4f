/* TLS for a connection: bytes of the wire in and out, in memory; tls_none.c stands in where there is no OpenSSL.
 * */
#ifndef RUNNEL_SERVE_HTTP_TLS_H
#define RUNNEL_SERVE_HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct http_tls_files; /* certificate and key, shared by reference */
struct http_tls;

/* NULL: *sentence says why. One reference. */
struct http_tls_files *http_tls_files_new(const char *certificate, const char *key, char sentence[256]);
struct http_tls_files *http_tls_files_ref(struct http_tls_files *files); /* NULL is allowed, also below */
void http_tls_files_unref(struct http_tls_files *files);

struct http_tls *http_tls_new(struct http_tls_files *files); /* NULL: no memory */
void http_tls_free(struct http_tls *tls);

/* Bytes from the wire; false: no memory. */
bool http_tls_put(struct http_tls *tls, const char *bytes, size_t n);

/* Goes on with the handshake and opens. The number of bytes; 0: none yet; -1: this is broken; -2: the peer has properly
 * said that it sends no more. */
long http_tls_open(struct http_tls *tls, char *bytes, size_t n);

/* Seals bytes, at most n; how many; 0: not now (the handshake goes on); -1: this is broken. */
long http_tls_seal(struct http_tls *tls, const char *bytes, size_t n);

/* Bytes for the wire: how many there are; takes them. */
size_t http_tls_sealed(struct http_tls *tls);
size_t http_tls_take(struct http_tls *tls, char *bytes, size_t n);

bool http_tls_ready(const struct http_tls *tls); /* the handshake is done */

/* Says that no more is sent. */
void http_tls_end(struct http_tls *tls);

#endif
