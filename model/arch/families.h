/* What the rows of the table consist of: each family's builders, and readers of keys that are not common to all. */
#ifndef RN_MODEL_ARCH_FAMILIES_H
#define RN_MODEL_ARCH_FAMILIES_H

#include "base/status.h"

struct rn_build;
struct rn_hparams_reader;

/* llama.c */
void rn_arch_llama(struct rn_build *b);
void rn_arch_mistral3(struct rn_build *b);
runnel_status rn_arch_mistral3_keys(const struct rn_hparams_reader *r);

#endif
