/* EAGLE-3 heads as other programs write them, and a model that one of them knows. */
#ifndef RN_TESTS_ACTORS_DRAFT_EAGLE3_FILE_H
#define RN_TESTS_ACTORS_DRAFT_EAGLE3_FILE_H

#include <stdbool.h>

enum { EAGLE3_PERIOD = 32 }; /* tokens of a round */

/* A model with the bundled model's vocabulary whose text goes round: behind whatever token, always the same one. */
void eagle3_write_round(const char *path);

/* A head for it that is right always, or (errs) behind every fourth token never: of another width, with an embedding,
 * an output of these tokens alone and a norm before the fusion. */
void eagle3_write_round_head(const char *path, bool errs);

/* A head for the bundled model: its last block once more, over its last residual stream and a little of the token, with
 * an output of three in four tokens (some), or that of the model. */
void eagle3_write_again(const char *path, bool some);

#endif
