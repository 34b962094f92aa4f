/* Models whose time is the test's: a step takes a millisecond and a pass of the drafter a twentieth of it, by a clock
 * that only they advance, so that the policy of drafts decides alike on a machine of any speed under any load. */
#ifndef RN_TESTS_ACTORS_METERED_H
#define RN_TESTS_ACTORS_METERED_H

#include "model/backend.h"
#include "runnel.h"

/* Told of each step of the model (of the drafter: of none), on decode's thread, before it is computed. NULL: nobody. */
extern void (*metered_watch)(const struct rn_step *step);

/* One engine at a time. */
runnel_engine *metered_engine(void);

/* draft: as draft_path. Of a drafter with several layers only the first one's passes take time. */
runnel_model *metered_model(runnel_engine *engine, const char *path, const char *draft);

#endif
