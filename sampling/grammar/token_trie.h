/* The text tokens of a vocabulary in the order in which a mask looks at them.
 *
 * Nodes lie in the order of a walk from left to right, children behind their parent, so that a walk goes straight
 * through memory, and one that is refused a byte goes on behind the subtree:
 *
 *     tokens a, ab, abc, b      node   0 a   1 b   2 c   3 b   4
 *                               end    3     3     3     4           the first node behind the subtree
 *                               first  0     1     2     3     4     its tokens: ids[first .. first of the next node)
 *
 * Tokens are in parts with a trie each. The first part is what has something special in it: control characters, a
 * quote, a backslash, or a piece of a character. The others are plain: whole characters without those, by how many
 * characters they have. A state in which any plain character is allowed, forever or so many times, allows parts as a
 * whole.
 *
 * Text tokens are those whose kind is normal, byte or user-defined, which have bytes and do not end an answer. Of equal
 * texts all tokens are in.
 *
 * Threads: constant once made. */
#ifndef RN_SAMPLING_GRAMMAR_TOKEN_TRIE_H
#define RN_SAMPLING_GRAMMAR_TOKEN_TRIE_H

#include "base/alloc.h"
#include "text/vocab.h"

#define RN_TOKEN_PARTS 5u

/* Kinds of bytes, a bit for each: where a state is not left by any byte of the kinds below a node, the whole subtree is
 * allowed. */
enum rn_byte_kind {
    RN_BYTE_LOWER = 1,
    RN_BYTE_UPPER = 2,
    RN_BYTE_DIGIT = 4,
    RN_BYTE_SPACE = 8,
    RN_BYTE_MARK = 16,    /* other printable ASCII, but for the quote and the backslash */
    RN_BYTE_SPECIAL = 32, /* these, and control characters */
    RN_BYTE_FAR = 64      /* not ASCII */
};
#define RN_BYTE_KINDS 7u

enum rn_byte_kind rn_byte_kind(uint8_t byte);

struct rn_trie_place {
    uint32_t end, first;
    uint16_t depth; /* bytes up to here, from 1 */
    uint8_t label;
    uint8_t kinds; /* of the labels below it */
};

struct rn_token_part {
    uint32_t begin, end; /* nodes */
    uint32_t characters; /* the most of a token; part 0: 0 */
};

struct rn_token_trie {
    struct rn_heap *heap;
    struct rn_trie_place *nodes; /* [n_nodes + 1] */
    int32_t *ids;                /* [n_ids] text tokens */
    uint32_t n_nodes, n_ids;
    struct rn_token_part parts[RN_TOKEN_PARTS];
    int32_t *ends; /* [n_ends] tokens that end an answer */
    uint32_t n_ends;
    uint64_t *text;      /* [words] a bit for each text token */
    uint64_t *part_text; /* [RN_TOKEN_PARTS × words] the same of each part */
    char *bytes;         /* of all tokens */
    uint64_t *bytes_at;  /* [n_vocab + 1]; not text: empty */
    uint32_t n_vocab, words, longest;
    uint64_t fingerprint[2]; /* of all that is here: equal ones give equal masks */
    size_t size;
};

/* NULL: memory was refused, or there are 2^31 bytes of text and more. */
struct rn_token_trie *rn_token_trie_new(struct rn_heap *heap, const struct rn_vocab *vocab);
void rn_token_trie_free(struct rn_token_trie *trie); /* NULL is allowed */

static inline bool rn_token_is_text(const struct rn_token_trie *trie, int32_t token)
{
    return token >= 0 && (uint32_t)token < trie->n_vocab && (trie->text[token / 64] >> token % 64 & 1) != 0;
}

static inline struct rn_view rn_token_bytes(const struct rn_token_trie *trie, int32_t token)
{
    return (struct rn_view){trie->bytes + trie->bytes_at[token],
                            (size_t)(trie->bytes_at[token + 1] - trie->bytes_at[token])};
}

/* The longest text token that bytes[n] begin with; *length gets its bytes. -1: there is none. */
int32_t rn_token_longest(const struct rn_token_trie *trie, const char *bytes, size_t n, size_t *length);

bool rn_token_is_end(const struct rn_token_trie *trie, int32_t token);

#endif
