/* Status codes and error texts that cross rooms.
 *
 * The codes themselves are public (include/runnel.h). A function that can fail for a reason
 * worth a sentence takes a `runnel_error *`: it holds the code and one sentence that names
 * the file, tensor, key or parameter at fault. A NULL error is allowed everywhere. */
#ifndef RN_BASE_STATUS_H
#define RN_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include "runnel.h"

/* Sets *error (when not NULL) to the code and the formatted sentence, and returns the code, so
 * that `return rn_error_set(...)` reads as one step. Control bytes that come in through "%s"
 * arguments (names from a hostile file) are written as "\xNN", and so are bytes that are not UTF-8,
 * also those of a character that "%.60s" has cut. Of a sentence that is too long and begins with a
 * file's path ("%s: ") the path's beginning is left out, so that the reason stays; any other ends
 * between two characters. Keeps the first error: a second call on an error that is already set changes
 * nothing and returns the first code. */
runnel_status rn_error_set(runnel_error *error, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
runnel_status rn_error_vset(runnel_error *error, runnel_status status, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* The same of a part of the request. */
runnel_status rn_error_set_about(runnel_error *error, runnel_about about, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Makes *error OK with an empty sentence. */
void rn_error_clear(runnel_error *error);

#endif
