/* Bodies of multipart/form-data (RFC 7578), read where they lie: nothing is copied but names, nothing allocated.
 *
 *     --BOUNDARY CRLF  fields CRLF CRLF  bytes  CRLF --BOUNDARY CRLF ..  CRLF --BOUNDARY--
 *
 * What stands before the first boundary, and blanks behind one, are skipped (RFC 2046, 5.1.1).
 *
 * Bounded: MULTIPART_PARTS parts, MULTIPART_HEAD bytes of fields in each, names as long as their room. */
#ifndef RUNNEL_SERVE_MULTIPART_H
#define RUNNEL_SERVE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

enum { MULTIPART_PARTS = 16, MULTIPART_HEAD = 4096, MULTIPART_BOUNDARY = 70, MULTIPART_FILENAME = 1024 };

struct multipart {
    const char *at, *end;
    char mark[MULTIPART_BOUNDARY + 5]; /* CRLF, two dashes, the boundary */
    size_t mark_bytes, n_parts;
};

struct multipart_part {
    char name[64];
    char filename[MULTIPART_FILENAME]; /* "": it has none */
    const char *bytes;                 /* [n], in the body */
    size_t n;
};

enum multipart_step { MULTIPART_PART, MULTIPART_END, MULTIPART_BAD };

/* type: the value of Content-Type, or NULL; the body is borrowed. False: *why is a sentence. */
bool multipart_open(struct multipart *form, const char *type, const char *body, size_t n, const char **why);

/* The next part. BAD: *why is a sentence; there is no further one. */
enum multipart_step multipart_next(struct multipart *form, struct multipart_part *part, const char **why);

#endif
