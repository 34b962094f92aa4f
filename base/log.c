/* Log lines: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/one_line.h"

void rn_log(const struct rn_log *log, runnel_log_level level, const char *format, ...)
{
    char line[RN_LINE_BYTES];
    va_list args;

    if (log == NULL || log->sink == NULL || level > log->level)
        return;
    va_start(args, format);
    rn_one_line_vprint(line, sizeof line, format, args);
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
