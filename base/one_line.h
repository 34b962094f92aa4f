/* Text for people that has names of strangers in it: a file's, a key's, an architecture's.
 * Threads: any; nothing here has state. */
#ifndef RN_BASE_ONE_LINE_H
#define RN_BASE_ONE_LINE_H

#include <stddef.h>

/* Copies `in` to out[capacity] with control bytes, and those that are not UTF-8, as "\xNN", so that it is one line and
 * moves no terminal's cursor. What is too long ends between two characters. capacity > 0. */
void rn_one_line(char *out, size_t capacity, const char *in);

#endif
