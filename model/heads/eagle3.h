/* EAGLE-3 heads of other programs, for head.c: see eagle3.c. Private to model/. */
#ifndef RN_MODEL_HEADS_EAGLE3_H
#define RN_MODEL_HEADS_EAGLE3_H

#include "model/build/build.h"
#include "model/heads/head.h"

/* What a file of RN_EAGLE3_ARCH says; *facts is zeros before. FORMAT and UNSUPPORTED name the key. */
runnel_status rn_eagle3_read(const struct rn_gguf *gguf, struct rn_head_facts *facts, runnel_error *error);

/* Whether the head can draft for `target`, of that architecture, as far as both files say. INVALID names the key. */
runnel_status rn_eagle3_fits(const struct rn_gguf *head, const struct rn_head_facts *facts,
                             const struct rn_gguf *target, const char *architecture, runnel_error *error);

/* The head's plan: rn_arch.build. */
void rn_eagle3_build(struct rn_build *b);

#endif
