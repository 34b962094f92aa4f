/* See payload_poison.h. */
#include "actors/runtime/payload_poison.h"

#ifdef RN_WITH_ASAN
void rn_payload_poison(const uint32_t *bytes, const struct rn_msg *msg)
{
    if (bytes != NULL)
        RN_POISON(msg->request.request, bytes[msg->head.kind]);
}

void rn_payload_unpoison(const uint32_t *bytes, const struct rn_msg *msg)
{
    if (bytes != NULL)
        RN_UNPOISON(msg->request.request, bytes[msg->head.kind]);
}
#endif
