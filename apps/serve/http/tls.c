/* See tls.h: OpenSSL over memory BIOs. OpenSSL's list of errors is the thread's: it is emptied before each call.
 * */
#include "tls.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

struct http_tls {
    SSL *session;
    BIO *from, *to; /* the session's */
};

static SSL_CTX *context_of(struct http_tls_files *files)
{
    return (SSL_CTX *)files;
}

/* ---- Files ---- */

/* A key with a passphrase is refused instead of OpenSSL asking for one on the terminal. */
static int no_passphrase(char *text, int n, int writes, void *user)
{
    (void)text;
    (void)n;
    (void)writes;
    (void)user;
    return -1;
}

/* Of several protocols that a client offers, the one that is spoken here; a client that offers others gets no answer to
 * that, and speaks what it can. */
static int choose_protocol(SSL *session, const unsigned char **out, unsigned char *n, const unsigned char *in,
                           unsigned int in_bytes, void *user)
{
    static const unsigned char spoken[] = "\x08http/1.1";
    unsigned char *chosen;

    (void)session;
    (void)user;
    if (SSL_select_next_proto(&chosen, n, spoken, sizeof spoken - 1, in, in_bytes) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static bool complain(const char *what, const char *path, char sentence[256])
{
    unsigned long code = ERR_peek_error();
    const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);

    if (reason == NULL)
        reason = code != 0 && ERR_GET_LIB(code) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(code)) : "no reason is told";
    snprintf(sentence, 256, "TLS: %s %s: %s", what, path, reason);
    return false;
}

static bool fill(SSL_CTX *context, const char *certificate, const char *key, char sentence[256])
{
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* tickets do it without memory of ours */
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
        return complain("OpenSSL refuses", "TLS 1.2", sentence);
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        return complain("there is no certificate in", certificate, sentence);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) /* it is compared with the certificate */
        return complain("there is no key without a passphrase, for the certificate, in", key, sentence);
    return true;
}

struct http_tls_files *http_tls_files_new(const char *certificate, const char *key, char sentence[256])
{
    SSL_CTX *context;
    bool filled;

    ERR_clear_error();
    context = SSL_CTX_new(TLS_server_method());
    filled =
        context != NULL ? fill(context, certificate, key, sentence) : complain("OpenSSL gives", "no context", sentence);
    ERR_clear_error();
    if (filled)
        return (struct http_tls_files *)context;
    SSL_CTX_free(context);
    return NULL;
}

struct http_tls_files *http_tls_files_ref(struct http_tls_files *files)
{
    if (files != NULL)
        SSL_CTX_up_ref(context_of(files));
    return files;
}

void http_tls_files_unref(struct http_tls_files *files)
{
    SSL_CTX_free(context_of(files));
}

/* ---- A connection ---- */

struct http_tls *http_tls_new(struct http_tls_files *files)
{
    struct http_tls *tls = calloc(1, sizeof *tls);

    if (tls == NULL)
        return NULL;
    ERR_clear_error();
    tls->session = SSL_new(context_of(files));
    tls->from = BIO_new(BIO_s_mem());
    tls->to = BIO_new(BIO_s_mem());
    if (tls->session == NULL || tls->from == NULL || tls->to == NULL) {
        BIO_free(tls->from);
        BIO_free(tls->to);
        SSL_free(tls->session);
        free(tls);
        return NULL;
    }
    BIO_set_mem_eof_return(tls->from, -1); /* nothing there: try again */
    BIO_set_mem_eof_return(tls->to, -1);
    SSL_set_bio(tls->session, tls->from, tls->to);
    SSL_set_accept_state(tls->session);
    return tls;
}

void http_tls_free(struct http_tls *tls)
{
    if (tls == NULL)
        return;
    ERR_clear_error();
    SSL_free(tls->session);
    free(tls);
}

bool http_tls_put(struct http_tls *tls, const char *bytes, size_t n)
{
    return n <= INT_MAX && BIO_write(tls->from, bytes, (int)n) == (int)n;
}

/* After a call that has returned result. */
static long judge(struct http_tls *tls, int result)
{
    int error = SSL_get_error(tls->session, result);

    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return 0;
    return error == SSL_ERROR_ZERO_RETURN ? -2 : -1;
}

long http_tls_open(struct http_tls *tls, char *bytes, size_t n)
{
    int result;

    ERR_clear_error();
    result = SSL_read(tls->session, bytes, n > INT_MAX ? INT_MAX : (int)n);
    return result > 0 ? result : judge(tls, result);
}

long http_tls_seal(struct http_tls *tls, const char *bytes, size_t n)
{
    int result;

    if (!SSL_is_init_finished(tls->session))
        return 0;
    ERR_clear_error();
    result = SSL_write(tls->session, bytes, n > INT_MAX ? INT_MAX : (int)n);
    if (result > 0)
        return result;
    return judge(tls, result) == 0 ? 0 : -1;
}

size_t http_tls_sealed(struct http_tls *tls)
{
    return BIO_ctrl_pending(tls->to);
}

size_t http_tls_take(struct http_tls *tls, char *bytes, size_t n)
{
    int result = BIO_read(tls->to, bytes, n > INT_MAX ? INT_MAX : (int)n);

    return result > 0 ? (size_t)result : 0;
}

bool http_tls_ready(const struct http_tls *tls)
{
    return SSL_is_init_finished(tls->session);
}

void http_tls_end(struct http_tls *tls)
{
    ERR_clear_error();
    if (SSL_is_init_finished(tls->session))
        SSL_shutdown(tls->session);
    ERR_clear_error();
}
