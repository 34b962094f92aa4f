/* Keys of those who may ask, as SHA-256 of them: what a file holds or what this process keeps opens nothing.
 *
 * A line of a key file, words parted by blanks; empty lines and those that begin with # are left out:
 *
 *     sha256:HEX NAME [scopes=chat,embeddings] [requests=N] [tokens=N] [budget=N] [streams=N]
 *     KEY [name=NAME] [the same]
 *
 * A table is read whole or not at all. Keys are counted by references, so that one that a reload has dropped stays
 * until what it has asked for has ended; one that is in the new table too goes on counting. So does one that was out of
 * the table in between: of those that are out, KEYS_MOST are remembered, before others those that have used
 * something. */
#ifndef RUNNEL_SERVE_KEYS_H
#define RUNNEL_SERVE_KEYS_H

#include "digest.h"
#include "key_limits.h"

enum { KEYS_MOST = 4096, KEY_BYTES = 256, KEY_NAME_BYTES = 64 };

/* What a key opens: a bit for each, and its word in files. */
#define SERVE_SCOPES(X)            \
    X(CHAT, 0, "chat")             \
    X(EMBEDDINGS, 1, "embeddings") \
    X(TOKENS, 2, "tokens")         \
    X(MODELS, 3, "models")         \
    X(METRICS, 4, "metrics")       \
    X(ADMIN, 5, "admin")           \
    X(BATCHES, 6, "batches")

#define SERVE_SCOPE_BIT(name, bit, word) SCOPE_##name = 1u << (bit),
enum serve_scope { SCOPE_PUBLIC = 0, SERVE_SCOPES(SERVE_SCOPE_BIT) SCOPE_ALL = ~0u };

struct serve_key {
    uint8_t digest[DIGEST_BYTES];
    char name[KEY_NAME_BYTES]; /* "": of those who ask where there are no keys */
    uint32_t scopes;
    uint64_t tenant; /* follows from the digest: the same after a reload, and in each process */
    struct serve_limits limits;
    uint32_t refs;
    bool stays; /* within keys_replace: it is in the new table */
};

struct serve_keys {
    struct serve_key **at; /* [n]; owned */
    size_t n;
    struct serve_key **gone; /* [n_gone]: those that reloads have dropped and that are remembered */
    size_t n_gone;
};

/* Adds the key of one line (number: of it, in `from`, for sentences); or of a text that is a key and nothing else, with
 * a name. False: *sentence says why; it never has a key in it. */
bool keys_add_line(struct serve_keys *keys, const char *line, size_t n, unsigned number, uint64_t now_ms,
                   char sentence[256]);
bool keys_add_plain(struct serve_keys *keys, const char *key, const char *name, uint64_t now_ms, char sentence[256]);

/* Each line of a text. */
bool keys_add_text(struct serve_keys *keys, const char *text, uint64_t now_ms, char sentence[256]);

/* `fresh` takes the place of *keys: of a key that both have, or that *keys remembers, the old object stays, with what
 * it has used, and gets the new rights. False: no memory; both are as they were. */
bool keys_replace(struct serve_keys *keys, struct serve_keys *fresh, uint64_t now_ms);

void keys_fini(struct serve_keys *keys);

/* Whose digest it is; NULL: nobody's. Looks at all bytes of all keys, whatever it finds. */
struct serve_key *keys_find(const struct serve_keys *keys, const uint8_t digest[DIGEST_BYTES]);

struct serve_key *key_ref(struct serve_key *key);
void key_unref(struct serve_key *key); /* NULL is allowed */

/* The word of a scope. */
const char *scope_word(uint32_t scope);

#endif
