/* Loading a drafter beside its model: for the job that loads the model (model.c). */
#ifndef RN_ACTORS_DRAFT_DRAFTER_LOAD_H
#define RN_ACTORS_DRAFT_DRAFTER_LOAD_H

#include <stdbool.h>

#include "runnel.h"

struct rn_drafter;
struct runnel_model;

/* Loads what draft_path names into model->parts.drafter, beside the model's parts, which are there but for the backend.
 * What is there after an error rn_drafter_fini frees. INVALID: it does not have the model's tokens (the first
 * difference is named), or its memory holds no block; FORMAT, UNSUPPORTED, NO_MEMORY, CANCELLED. May take long. */
runnel_status rn_drafter_load(struct runnel_model *model, const char *path, runnel_error *error);

/* UNSUPPORTED: the model's plan generates no tokens that the drafter of draft_path could guess: it gives no logits, or
 * attends in both directions. */
runnel_status rn_drafter_check_model(const struct runnel_model *model, runnel_error *error);

/* Is rn_drafter_measure_model wanted, and can it be? */
bool rn_drafter_measures(const struct runnel_model *model);

/* What steps of the model take, in parts->cost, for one to eight rows and for larger ones twice as many each time, for
 * as long as a load may wait for it (draft_measure_ms): who drafts would have to find out at the answers' cost
 * otherwise. The backend is prepared. DEVICE, NO_MEMORY. */
runnel_status rn_drafter_measure_model(struct runnel_model *model, runnel_error *error);

/* The model's own plan, with features where the drafter that draft_path names reads them: sets the plan, and the
 * drafter's kind and file. Before rn_drafter_load. INVALID: a head of another model. */
runnel_status rn_drafter_plan_model(struct runnel_model *model, const char *path, runnel_error *error);

/* Does draft_path name a part of the model's own file: "mtp" or "exit:N"? */
bool rn_drafter_is_inside(const char *path);
void rn_drafter_fini(struct rn_drafter *drafter);

#endif
