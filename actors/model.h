/* A model as a whole, for those who do not know what it consists of: the router, which closes and frees it, and the
 * bridge to the host. See engine.h for the rest. */
#ifndef RN_ACTORS_MODEL_H
#define RN_ACTORS_MODEL_H

#include <stdbool.h>

struct runnel_model;
struct rn_routed;

/* The router's part of it. */
struct rn_routed *rn_model_routed(struct runnel_model *model);

/* Ends a load that is under way. Any thread. */
void rn_model_cancel(struct runnel_model *model);

/* Has it been loaded, and with actors? Once the load has ended. */
bool rn_model_acts(const struct runnel_model *model);

/* Posts the job that frees the model's parts, then tells the router MODEL_FREED. */
void rn_model_post_free(struct runnel_model *model);

/* The host knows how the load ended; drops that reference. Any thread. */
void rn_model_load_told(struct runnel_model *model);

/* Drops one reference; the last one frees the struct. Any thread. */
void rn_model_unref(struct runnel_model *model);

#endif
