/* The C locale for text that the library reads or writes on any thread: the host's may have another decimal point.
 *
 *     locale_t host = rn_plain_locale();
 *     ... printf, strtod ...
 *     uselocale(host);
 */
#ifndef RN_BASE_PLAIN_LOCALE_H
#define RN_BASE_PLAIN_LOCALE_H

#include <locale.h>

/* From now on this thread has the C locale; what it had is returned. The C library has an object for it that is never
 * freed, so nothing is allocated. */
static inline locale_t rn_plain_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

#endif
