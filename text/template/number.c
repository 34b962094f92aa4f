/* Numbers as text, in the C locale. */
#include "text/template/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_locale.h"

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
}

bool rn_tpl_number_parse_int(const char *bytes, size_t n, int base, int64_t *out)
{
    int64_t value = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        int digit = digit_value(bytes[i]);

        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return n > 0;
}

bool rn_tpl_number_parse_float(const char *bytes, size_t n, double *out)
{
    char text[512], *end;
    locale_t host;

    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, bytes, n);
    text[n] = '\0';
    host = rn_plain_locale();
    *out = strtod(text, &end);
    uselocale(host);
    return end == text + n;
}

size_t rn_tpl_number_print(double real, char style, int precision, bool alternate, char *out)
{
    char format[] = "%.*e", alternate_format[] = "%#.*e";
    locale_t host;
    int n;

    if (isnan(real) || isinf(real)) {
        strcpy(out, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return strlen(out);
    }
    format[3] = alternate_format[4] = style;
    host = rn_plain_locale();
    n = snprintf(out, RN_TPL_FLOAT_TEXT, alternate ? alternate_format : format, precision, real);
    uselocale(host);
    return (size_t)n;
}

/* Digits of the shortest text: fewest after which the value reads back. */
static int shortest(double real, char *text)
{
    double back;
    int digits;

    for (digits = 0; digits < 17; digits++) {
        size_t n = rn_tpl_number_print(real, 'e', digits, false, text);

        if (rn_tpl_number_parse_float(text, n, &back) && back == real)
            break;
    }
    return digits;
}

size_t rn_tpl_number_repr(double real, char *out)
{
    char text[RN_TPL_FLOAT_TEXT];
    int digits, exponent;
    size_t n;

    if (isnan(real) || isinf(real))
        return rn_tpl_number_print(real, 'f', 0, false, out);
    digits = shortest(real, text);
    exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        strcpy(out, text);
        return strlen(out);
    }
    n = rn_tpl_number_print(real, 'f', digits > exponent ? digits - exponent : 0, false, out);
    if (strchr(out, '.') == NULL) {
        strcpy(out + n, ".0");
        n += 2;
    }
    return n;
}
