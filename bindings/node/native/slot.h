/* What the library gives back with an event: whose it is. */
#ifndef RN_NODE_SLOT_H
#define RN_NODE_SLOT_H

#include "answer.h"

struct node_engine;

/* The answer, `begun` and the end are written by the thread of the engine's events, and are the environment's once the end has
 * been delivered or no events come any more; the rest is the environment's. */
struct node_slot {
    struct node_engine *engine;
    uint32_t number;
    bool quiet; /* nobody asks for pieces: text goes to `answer` alone */
    bool begun; /* something of it has been written to a pack */
    struct node_answer answer;
    runnel_event end; /* without its strings, which are the library's */
    char error[RUNNEL_ERROR_BYTES];
    struct node_slot **list, *next, *previous; /* of the engine's streams that have not ended */
};

/* A slot for a stream that is about to be submitted, in front of the list; NULL: no memory. It goes with the terminal
 * event, or by slot_free where the submit fails. */
struct node_slot *slot_new(struct node_engine *engine, struct node_slot **list, uint32_t number);
void slot_free(struct node_slot *slot);

#endif
