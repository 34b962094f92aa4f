/* Log lines go to the host's sink (runnel_engine_options.on_log) and nowhere else: without a sink
 * the library is silent. The only writer to stderr is rn_log_fatal, for broken invariants. */
#ifndef RN_BASE_LOG_H
#define RN_BASE_LOG_H

#include "runnel.h"

struct rn_log {
    runnel_log_fn sink; /* may be NULL; called from any thread */
    void *user;
    runnel_log_level level; /* lines above it are dropped before formatting */
};

/* One line, whatever is in the arguments: control bytes are written as "\xNN", and a line that is too long ends between
 * two characters. Never blocks but in the sink. `log` may be NULL. */
void rn_log(const struct rn_log *log, runnel_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void rn_log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
