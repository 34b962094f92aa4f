/* Is each edge within its bound? Counts what lies in the mailboxes of an engine that runs by hand. */
#ifndef RN_TESTS_SIM_EDGES_H
#define RN_TESTS_SIM_EDGES_H

#include "actors/engine.h"

/* NULL: no more messages of a kind lie in a mailbox of the engine's router, or of the model's actors, than
 * rn_bounds_edge says, and no kind in that of an actor that is none of its receivers. Else a sentence, valid until the
 * next call. */
const char *edges_check_router(struct runnel_engine *engine);
const char *edges_check_model(struct runnel_model *model);

#endif
