/* runnel: prompts of models that fill a gap in a text, as models of code do. */
#ifndef RUNNEL_INFILL_H
#define RUNNEL_INFILL_H

#include "runnel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Another file that the model is shown. */
typedef struct runnel_infill_file {
    const char *name; /* NUL-terminated; NULL: "tmp" */
    const char *text; /* [text_bytes] UTF-8 */
    size_t text_bytes;
} runnel_infill_file;

typedef struct runnel_infill {
    size_t struct_size;
    const char *prefix; /* [prefix_bytes] UTF-8: the text before the gap */
    size_t prefix_bytes;
    const char *suffix; /* [suffix_bytes] UTF-8: the text behind it */
    size_t suffix_bytes;
    const char *repository; /* the name of all files together; NULL: it is not told */
    const char *name;       /* of the file with the gap; NULL: it is not told */
    const runnel_infill_file *files;
    size_t n_files;
    uint8_t suffix_first; /* 1: the suffix stands before the prefix */
    uint8_t reserved[31];
} runnel_infill;

RUNNEL_API void runnel_infill_init(runnel_infill *infill, size_t struct_size);
RUNNEL_API void runnel_infill_default(runnel_infill *infill);
#define runnel_infill_default(infill) runnel_infill_init((infill), sizeof *(infill))

/* The tokens of the prompt behind which the model writes what is missing: for runnel_request.tokens. They are tokens of
 * the file's own (GGUF: tokenizer.ggml.fim_pre_token_id, fim_suf_.., fim_mid_.., and for other files fim_rep_.. and
 * fim_sep_..) and the texts between them; control tokens that a text spells stay text. An answer ends where the model
 * begins another file. Sizes as in runnel_tokenize. Returns OK; INVALID; UNSUPPORTED: the file names no such tokens;
 * CONTEXT: texts that cannot fit, however few tokens they become; STATE: the model is not loaded; CLOSED; NO_MEMORY. */
RUNNEL_API runnel_status runnel_tokenize_infill(runnel_model *model, const runnel_infill *infill, int32_t *tokens,
                                                size_t capacity, size_t *count, runnel_error *error);

#ifdef __cplusplus
}
#endif

#endif
