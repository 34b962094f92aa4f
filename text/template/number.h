/* Numbers of templates as text: Python's int(), float() and repr(), whatever the locale. */
#ifndef RN_TEXT_TEMPLATE_NUMBER_H
#define RN_TEXT_TEMPLATE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_TPL_FLOAT_TEXT 400 /* bytes that rn_tpl_number_print needs at most, with the precisions that are allowed */

/* bytes[n] is digits only ("12.5e3", "ff" in base 16); false: not a number, or an integer beyond 64 bits. */
bool rn_tpl_number_parse_int(const char *bytes, size_t n, int base, int64_t *out);
bool rn_tpl_number_parse_float(const char *bytes, size_t n, double *out);

/* repr(float): the shortest text that reads back the same. Returns its bytes; out [RN_TPL_FLOAT_TEXT]. */
size_t rn_tpl_number_repr(double real, char *out);

/* printf's %.*e, %.*f, %.*g (style 'e', 'f', 'g') with a point; precision at most 60. "inf" and "nan" too. */
size_t rn_tpl_number_print(double real, char style, int precision, bool alternate, char *out);

#endif
