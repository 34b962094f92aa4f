/* The architectures, a row each: see table.h. */
#include "model/arch/table.h"

#include <string.h>

#include "model/arch/families.h"

static const struct rn_arch archs[] = {
    {"llama", 0, NULL, rn_arch_llama},
    {"mistral3", 0, rn_arch_mistral3_keys, rn_arch_mistral3},
};

const struct rn_arch *rn_arch_find(struct rn_view name)
{
    size_t i;

    for (i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i].name) == name.n && memcmp(archs[i].name, name.bytes, name.n) == 0)
            return &archs[i];
    return NULL;
}
