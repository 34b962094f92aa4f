/* What a token is, as files say it: tokenizer.ggml.token_type. */
#ifndef RN_TEXT_TOKEN_KIND_H
#define RN_TEXT_TOKEN_KIND_H

enum rn_token_kind {
    RN_TOKEN_NORMAL = 1,
    RN_TOKEN_UNKNOWN = 2,
    RN_TOKEN_CONTROL = 3,
    RN_TOKEN_USER = 4,
    RN_TOKEN_UNUSED = 5,
    RN_TOKEN_BYTE = 6
};

#endif
