/* What a token is, as files say it: tokenizer.ggml.token_type. */
#ifndef RN_TEXT_TOKEN_KIND_H
#define RN_TEXT_TOKEN_KIND_H

#include <stdint.h>

enum rn_token_kind {
    RN_TOKEN_NORMAL = 1,
    RN_TOKEN_UNKNOWN = 2,
    RN_TOKEN_CONTROL = 3,
    RN_TOKEN_USER = 4,
    RN_TOKEN_UNUSED = 5,
    RN_TOKEN_BYTE = 6
};

/* Tokens around a gap that a model fills: see infill.h. */
enum rn_fim { RN_FIM_PREFIX, RN_FIM_SUFFIX, RN_FIM_MIDDLE, RN_FIM_PAD, RN_FIM_REPOSITORY, RN_FIM_FILE, RN_FIMS };

/* A key that names a token, and the number that it has in the file. */
struct rn_stray_id {
    const char *key;
    uint64_t id;
};

#endif
