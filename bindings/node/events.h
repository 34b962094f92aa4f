/* Events on their way to JavaScript: collected as numbers and one text, then handed over in one call. On the
 * environment's thread. */
#ifndef RN_NODE_EVENTS_H
#define RN_NODE_EVENTS_H

#include "engine.h"

/* Writes the event down, and what it says to the slot's answer; the terminal one brings the answer and frees the slot.
 * There is room for it, or a flush makes some. */
void events_add(struct node_engine *engine, struct node_slot *slot, const runnel_event *event);

/* Calls JavaScript with what was written, if anything. */
void events_flush(struct node_engine *engine);

#endif
