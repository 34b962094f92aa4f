/* Text for people that has names of strangers in it: a file's, a key's, an architecture's.
 * Threads: any; nothing here has state. */
#ifndef RN_BASE_ONE_LINE_H
#define RN_BASE_ONE_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum { RN_LINE_BYTES = 512 };

/* Copies `in` to out[capacity] with control bytes, and those that are not UTF-8, as "\xNN", so that it is one line and
 * moves no terminal's cursor. What is too long ends between two characters. capacity > 0. False: it was too long. */
bool rn_one_line(char *out, size_t capacity, const char *in);

/* Bytes of a file, U+0000 among them, for "%s" in a sentence: the first RN_QUOTED_MOST of them, written as above. */
enum { RN_QUOTED_MOST = 60 };
struct rn_quoted {
    char text[4 * RN_QUOTED_MOST + 8];
};
struct rn_quoted rn_quoted(const char *bytes, size_t n);

/* The same of a formatted sentence, with numbers as the C locale has them. One that is too long and whose format begins
 * with "%s: " keeps what it says: the beginning of that name, a file's as a rule, gives way, and "..." stands in its
 * place. capacity: 100 to RN_LINE_BYTES. */
void rn_one_line_vprint(char *out, size_t capacity, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

#endif
