/* RWKV's tokenizer ("rwkv" in GGUF): the longest token that the text begins with, again and again. Tokens are bytes,
 * written in the file as the body of a Python literal. A byte that begins no token is the unknown token. */
#include "base/hex.h"
#include "text/merge.h"

bool rn_rwkv_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                    bool after_special, struct rn_tokens *tokens)
{
    size_t at = 0;

    (void)scratch;
    (void)after_special;
    while (at < n) {
        int32_t best = vocab->unknown;
        size_t end = at + 1, i;
        uint32_t node = 0;

        for (i = at; i < n && (node = rn_trie_step(&vocab->trie, node, (unsigned char)text[i])) != 0; i++) {
            if (rn_trie_value(&vocab->trie, node) >= 0) {
                best = rn_trie_value(&vocab->trie, node);
                end = i + 1;
            }
        }
        if (best >= 0) {
            if (!rn_tokens_reserve(tokens, 1))
                return false;
            tokens->ids[tokens->n++] = best;
        }
        at = end;
    }
    return true;
}

size_t rn_rwkv_unescape(struct rn_view text, char *out)
{
    size_t written = 0;
    size_t i;

    for (i = 0; i < text.n; i++) {
        char c = text.bytes[i];

        if (c != '\\' || i + 1 == text.n) {
            out[written++] = c;
            continue;
        }
        c = text.bytes[++i];
        if (c == 'x' && text.n - i > 2) {
            out[written++] = (char)(rn_hex_value(text.bytes[i + 1]) * 16 + rn_hex_value(text.bytes[i + 2]));
            i += 2;
        } else {
            out[written++] = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
        }
    }
    return written;
}
