/* Which entries of a file's metadata are chat templates. */
#ifndef RN_TEXT_TEMPLATE_KEYS_H
#define RN_TEXT_TEMPLATE_KEYS_H

#include <stdbool.h>

#include "model/gguf/gguf.h"

#define RN_TEMPLATE_BYTES ((size_t)16 << 20) /* of a source: positions are 32 bits wide, with room to spare */

/* True for "tokenizer.chat_template" and "tokenizer.chat_template.NAME" with a string as value: *name ("" for the
 * first) and *source are views of the file's bytes then. */
bool rn_template_key(const struct rn_gguf_entry *entry, struct rn_view *name, struct rn_view *source);

#endif
