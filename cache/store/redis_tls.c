/* See redis_tls.h. A context of OpenSSL for each connection: it lives as long as the files that it was made from count.
 * Its bytes go through a BIO of our own, since that for sockets raises SIGPIPE. OpenSSL's list of errors is the
 * thread's: it is emptied before each call, so that what it holds afterwards is the call's own. */
#include "cache/store/redis_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/check.h"

#define READ_AHEAD_BYTES 65536 /* a few records by one recv: a block has hundreds of kilobytes */

struct rn_redis_tls {
    struct rn_heap *heap;
    SSL_CTX *context;
    SSL *session;
    BIO_METHOD *method;
    int fd;
    char why[160];
};

/* ---- Bytes ---- */

static int raw_write(BIO *bio, const char *bytes, int n)
{
    const struct rn_redis_tls *tls = BIO_get_data(bio);
    ssize_t sent = send(tls->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static int raw_read(BIO *bio, char *bytes, int n)
{
    const struct rn_redis_tls *tls = BIO_get_data(bio);
    ssize_t got = recv(tls->fd, bytes, (size_t)n, MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)got;
}

static long raw_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* nothing is held back; nothing else is known */
}

static bool take_line(struct rn_redis_tls *tls)
{
    BIO *bio;

    tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "runnel");
    if (tls->method == NULL || BIO_meth_set_write(tls->method, raw_write) != 1 ||
        BIO_meth_set_read(tls->method, raw_read) != 1 || BIO_meth_set_ctrl(tls->method, raw_control) != 1)
        return false;
    bio = BIO_new(tls->method);
    if (bio == NULL)
        return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->session, bio, bio);
    return true;
}

/* ---- What has gone wrong ---- */

/* The oldest error of the thread's list. */
static const char *reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *text = code == 0 ? NULL : ERR_reason_error_string(code);

    if (text != NULL)
        return text;
    return code != 0 && ERR_GET_LIB(code) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(code)) : "no reason is told";
}

static enum rn_redis_io lose(struct rn_redis_tls *tls, const char *why)
{
    snprintf(tls->why, sizeof tls->why, "TLS: %s", why);
    return RN_REDIS_LOST;
}

/* After a call that has returned `result` and, if it was the line's, `number` in errno. */
static enum rn_redis_io judge(struct rn_redis_tls *tls, int result, int number)
{
    int error = SSL_get_error(tls->session, result);
    long certificate = SSL_get_verify_result(tls->session);

    if (error == SSL_ERROR_WANT_READ)
        return RN_REDIS_READ;
    if (error == SSL_ERROR_WANT_WRITE)
        return RN_REDIS_WRITE;
    if (certificate != X509_V_OK) {
        snprintf(tls->why, sizeof tls->why, "TLS: the server's certificate is refused: %s",
                 X509_verify_cert_error_string(certificate));
        return RN_REDIS_LOST;
    }
    if (ERR_peek_error() != 0)
        return lose(tls, reason());
    if (error == SSL_ERROR_SYSCALL && result < 0 && number != 0)
        return lose(tls, strerror(number));
    return lose(tls, "the server has closed the connection");
}

const char *rn_redis_tls_why(const struct rn_redis_tls *tls)
{
    return tls->why;
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

static bool complain(const char *what, const char *path, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "TLS: %s %s: %s", what, path, reason());
    return false;
}

static bool trust(SSL_CTX *context, const char *ca, char *why, size_t why_bytes)
{
    if (ca == NULL)
        return SSL_CTX_set_default_verify_paths(context) == 1 ||
               complain("certificates of", "the system", why, why_bytes);
    return SSL_CTX_load_verify_locations(context, ca, NULL) == 1 ||
           complain("there are no certificates to trust in", ca, why, why_bytes);
}

static bool show_who(SSL_CTX *context, const struct rn_redis_tls_files *files, char *why, size_t why_bytes)
{
    const char *key = files->key != NULL ? files->key : files->cert;

    if (key == NULL)
        return true;
    if (files->cert == NULL) {
        snprintf(why, why_bytes, "TLS: a key without a certificate");
        return false;
    }
    if (SSL_CTX_use_certificate_chain_file(context, files->cert) != 1)
        return complain("there is no certificate in", files->cert, why, why_bytes);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) /* it is compared with the certificate */
        return complain("there is no key without a passphrase, for the certificate, in", key, why, why_bytes);
    return true;
}

static SSL_CTX *new_context(const struct rn_redis_tls_files *files, char *why, size_t why_bytes)
{
    SSL_CTX *context;

    ERR_clear_error();
    context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) {
        complain("OpenSSL gives", "no context", why, why_bytes);
        return NULL;
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD_BYTES);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 && trust(context, files->ca, why, why_bytes) &&
        show_who(context, files, why, why_bytes))
        return context;
    SSL_CTX_free(context);
    return NULL;
}

runnel_status rn_redis_tls_check(const struct rn_redis_tls_files *files, runnel_error *error)
{
    char why[320] = "TLS: OpenSSL refuses TLS 1.2";
    SSL_CTX *context = new_context(files, why, sizeof why);

    ERR_clear_error();
    if (context == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "the shared cache: %s", why);
    SSL_CTX_free(context);
    return RUNNEL_OK;
}

/* ---- A connection ---- */

/* Whose certificate is wanted. */
static bool set_host(SSL *session, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host) == 1;
    SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(session, host) == 1 && SSL_set_tlsext_host_name(session, host) == 1;
}

struct rn_redis_tls *rn_redis_tls_new(struct rn_heap *heap, int fd, const char *host,
                                      const struct rn_redis_tls_files *files, char *why, size_t why_bytes)
{
    struct rn_redis_tls *tls = rn_calloc(heap, 1, sizeof *tls);

    snprintf(why, why_bytes, "TLS: no memory");
    if (tls == NULL)
        return NULL;
    tls->heap = heap;
    tls->fd = fd;
    tls->context = new_context(files, why, why_bytes);
    tls->session = tls->context == NULL ? NULL : SSL_new(tls->context);
    if (tls->session != NULL && set_host(tls->session, host) && take_line(tls)) {
        SSL_set_connect_state(tls->session);
        return tls;
    }
    rn_redis_tls_free(tls);
    return NULL;
}

void rn_redis_tls_free(struct rn_redis_tls *tls)
{
    if (tls == NULL)
        return;
    ERR_clear_error();
    SSL_free(tls->session);
    BIO_meth_free(tls->method);
    SSL_CTX_free(tls->context);
    rn_free(tls->heap, tls);
}

enum rn_redis_io rn_redis_tls_handshake(struct rn_redis_tls *tls)
{
    int result;

    ERR_clear_error();
    errno = 0;
    result = SSL_do_handshake(tls->session);
    if (result != 1)
        return judge(tls, result, errno);
    if (SSL_get_peer_cert_chain(tls->session) == NULL) /* a system may allow ciphers that need none */
        return lose(tls, "the server shows no certificate");
    return RN_REDIS_DONE;
}

enum rn_redis_io rn_redis_tls_send(struct rn_redis_tls *tls, const char *bytes, size_t n, size_t *sent)
{
    int result;

    ERR_clear_error();
    errno = 0;
    result = SSL_write(tls->session, bytes, n > INT_MAX ? INT_MAX : (int)n);
    if (result <= 0)
        return judge(tls, result, errno);
    *sent = (size_t)result;
    return RN_REDIS_DONE;
}

enum rn_redis_io rn_redis_tls_receive(struct rn_redis_tls *tls, char *bytes, size_t n, size_t *got)
{
    int result;

    ERR_clear_error();
    errno = 0;
    result = SSL_read(tls->session, bytes, n > INT_MAX ? INT_MAX : (int)n);
    if (result <= 0)
        return judge(tls, result, errno);
    RN_CHECK((size_t)result <= n);
    *got = (size_t)result;
    return RN_REDIS_DONE;
}
