/* Lines of the log and spans of the trace, from any thread to functions of JavaScript. */
#ifndef RN_NODE_LOG_H
#define RN_NODE_LOG_H

#include "addon.h"

struct node_log;

/* A way to the function: (level, line) => void for a log, (span) => void for a trace. It holds no loop. NULL: an error
 * was thrown. */
struct node_log *log_new(napi_env env, napi_value function);

/* What the engine calls, with the way as `user`. */
void log_line(void *user, runnel_log_level level, const char *line);
void log_span(void *user, const runnel_trace_event *event);

/* After the engine is freed; what was said before is still told. NULL is allowed. On the environment's thread. */
void log_free(struct node_log *log);

#endif
