/* SHA-256, of libcrypto. */
#ifndef RUNNEL_SERVE_DIGEST_H
#define RUNNEL_SERVE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_BYTES = 32 };

/* Whether this program can: it was built with OpenSSL. */
bool digest_is_there(void);

/* Of bytes[0..n). False: it cannot, or there is no memory. */
bool digest_of(const void *bytes, size_t n, uint8_t digest[DIGEST_BYTES]);

#endif
