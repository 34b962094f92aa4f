/* runnel on a host's libuv loop. */
#ifndef RUNNEL_UV_H
#define RUNNEL_UV_H

#include "runnel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct uv_loop_s; /* uv_loop_t */

/* From now on the loop delivers this engine's events: callbacks run on the loop's thread, a bounded number per turn of
 * the loop. The handle keeps the loop alive only while streams or loads are running, whoever reads them. One that
 * another thread begins keeps it alive from the loop's next turn on: until then something of the host's has to, as any
 * handle of libuv's does. Call on the loop's thread. Returns OK; INVALID; STATE: already attached, or not
 * RUNNEL_DELIVER_HOST; NO_MEMORY, also where libuv refuses the handle. */
RUNNEL_API runnel_status runnel_uv_attach(runnel_engine *engine, struct uv_loop_s *loop);

/* Stops delivery; the loop can be closed after it has run once more. Call on the loop's thread, before uv_loop_close;
 * runnel_engine_free on that thread does it too. On another thread runnel_engine_free ends all streams, loads and
 * trainings, and the loop's next turn detaches and frees the engine: the loop's thread must not have gone by then, and
 * if nothing was running, something of the host's has to keep the loop alive for that turn. Returns OK; INVALID; STATE:
 * not attached there. */
RUNNEL_API runnel_status runnel_uv_detach(runnel_engine *engine);

#ifdef __cplusplus
}
#endif

#endif
