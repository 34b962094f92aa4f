/* See slot.h. */
#include "slot.h"

#include <stdlib.h>

struct node_slot *slot_new(struct node_engine *engine, struct node_slot **list, uint32_t number)
{
    struct node_slot *slot = calloc(1, sizeof *slot);

    if (slot == NULL)
        return NULL;
    slot->engine = engine;
    slot->number = number;
    slot->list = list;
    slot->next = *list;
    if (slot->next != NULL)
        slot->next->previous = slot;
    *list = slot;
    return slot;
}

void slot_free(struct node_slot *slot)
{
    if (slot->previous != NULL)
        slot->previous->next = slot->next;
    else
        *slot->list = slot->next;
    if (slot->next != NULL)
        slot->next->previous = slot->previous;
    answer_free(&slot->answer);
    free(slot);
}
