/* Log lines: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void rn_log(const struct rn_log *log, runnel_log_level level, const char *format, ...)
{
    char line[512];
    va_list args;

    if (log == NULL || log->sink == NULL || level > log->level)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->sink(log->user, level, line);
}

void rn_log_fatal(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}
