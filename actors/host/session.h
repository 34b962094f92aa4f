/* Sessions from the host's side: see session.c. */
#ifndef RN_ACTORS_HOST_SESSION_H
#define RN_ACTORS_HOST_SESSION_H

#include "actors/tier/session_slot.h"

/* The model's open session of that id; NULL: there is none, or it is being freed. Any thread. */
struct rn_session *rn_session_find(runnel_model *model, runnel_session session);

#endif
