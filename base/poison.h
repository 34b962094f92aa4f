/* Memory that nobody may touch for now: under AddressSanitizer an access to it is reported; else nothing happens. */
#ifndef RN_BASE_POISON_H
#define RN_BASE_POISON_H

#if defined(__SANITIZE_ADDRESS__)
#define RN_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RN_WITH_ASAN 1
#endif
#endif

#ifdef RN_WITH_ASAN
#include <sanitizer/asan_interface.h>
#define RN_POISON(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define RN_UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define RN_POISON(address, bytes) ((void)(address), (void)(bytes))
#define RN_UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#endif

#endif
