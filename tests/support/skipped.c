/* See skipped.h. */
#define _GNU_SOURCE /* on_exit */
#include "tests/support/skipped.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_do_leak_check() (void)0
#endif

enum { SKIPPED = 77 };

static pid_t skips; /* the process that has to end as skipped: not a child of it */

/* Registered last, run first: the check for leaks would come behind it. */
static void end_as_skipped(int status, void *user)
{
    (void)user;
    if (status != 0 || getpid() != skips)
        return;
    fflush(NULL);
    __lsan_do_leak_check();
    _exit(SKIPPED);
}

void note_skipped(const char *form, ...)
{
    va_list list;

    va_start(list, form);
    fputs("skipped: ", stdout);
    vprintf(form, list);
    fputc('\n', stdout);
    va_end(list);
    if (skips == 0)
        on_exit(end_as_skipped, NULL);
    skips = getpid();
}
