/* Grammars of a batch's lines, each distinct one compiled once: for --check. */
#ifndef RUNNEL_APP_BATCH_GRAMMARS_H
#define RUNNEL_APP_BATCH_GRAMMARS_H

#include "apps/runnel/common.h"

struct batch_grammars;

/* NULL: no memory. */
struct batch_grammars *batch_grammars_new(void);
void batch_grammars_free(struct batch_grammars *grammars); /* NULL is allowed */

/* What runnel_grammar_check says of the request, which is asked once for all that have the same grammar and tools. */
runnel_status batch_grammars_check(struct batch_grammars *grammars, runnel_model *model, const runnel_request *request,
                                   runnel_error *error);

#endif
