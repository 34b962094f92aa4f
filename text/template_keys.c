/* Keys of chat templates: see template_keys.h. */
#include "text/template_keys.h"

#include <string.h>

bool rn_template_key(const struct rn_gguf_entry *entry, struct rn_view *name, struct rn_view *source)
{
    static const char key[] = "tokenizer.chat_template";
    const char *cursor = entry->data;
    size_t n = sizeof key - 1;

    if (entry->type != RN_GGUF_STRING || entry->key.n < n || memcmp(entry->key.bytes, key, n) != 0)
        return false;
    if (entry->key.n > n && entry->key.bytes[n] != '.')
        return false;
    n += entry->key.n > n;
    *name = (struct rn_view){entry->key.bytes + n, entry->key.n - n};
    *source = rn_gguf_item_string(&cursor);
    return true;
}
