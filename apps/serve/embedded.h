/* Files that are in the program: made at build time by cmake/runnel_embed.cmake of the list in apps/CMakeLists.txt. */
#ifndef RUNNEL_SERVE_EMBEDDED_H
#define RUNNEL_SERVE_EMBEDDED_H

#include <stddef.h>

struct serve_file {
    const char *name; /* from apps/serve on; NULL: the end */
    const unsigned char *bytes;
    size_t n;
    const unsigned char *packed; /* [n_packed] by gzip; NULL: that is hardly shorter */
    size_t n_packed;
};

extern const struct serve_file serve_files[];

/* The file of that name, or NULL. page.c */
const struct serve_file *serve_find_file(const char *name);

#endif
