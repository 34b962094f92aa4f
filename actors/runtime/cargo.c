/* See cargo.h. */
#include "actors/runtime/cargo.h"

#ifdef RN_WITH_ASAN
void rn_cargo_seal(const uint32_t *bytes, const struct rn_msg *msg)
{
    if (bytes != NULL)
        RN_POISON(msg->request.request, bytes[msg->head.kind]);
}

void rn_cargo_unseal(const uint32_t *bytes, const struct rn_msg *msg)
{
    if (bytes != NULL)
        RN_UNPOISON(msg->request.request, bytes[msg->head.kind]);
}
#endif
