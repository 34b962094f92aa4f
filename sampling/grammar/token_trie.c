/* Tries of text tokens: see token_trie.h. */
#include "sampling/grammar/token_trie.h"

#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

/* A token while they are put in order. */
struct item {
    uint64_t key; /* its first eight bytes, the first highest */
    int32_t id;
    uint32_t part;
};

struct sorter {
    struct rn_token_trie *trie;
    struct item *items, *other; /* [n_ids] each */
};

/* Tokens of this many characters and fewer, for each plain part. */
static const uint32_t part_characters[RN_TOKEN_PARTS] = {0, 4, 8, 16, UINT32_MAX};

/* The part that a text belongs to; *characters of a plain one. */
static uint32_t part_of(struct rn_view text, uint32_t *characters)
{
    size_t at = 0;
    uint32_t part = 1;

    *characters = 0;
    while (at < text.n) {
        uint32_t n = rn_utf8_check_one(text.bytes + at, text.n - at);
        unsigned char byte = (unsigned char)text.bytes[at];

        if (n == 0 || byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7f)
            return 0;
        at += n;
        ++*characters;
    }
    while (*characters > part_characters[part])
        part++;
    return part;
}

static uint64_t key_of(struct rn_view text)
{
    uint64_t key = 0;

    for (size_t i = 0; i < 8; i++)
        key = key << 8 | (i < text.n ? (unsigned char)text.bytes[i] : 0);
    return key;
}

static bool is_before(const struct rn_token_trie *trie, const struct item *a, const struct item *b)
{
    struct rn_view x = rn_token_bytes(trie, a->id), y = rn_token_bytes(trie, b->id);
    int order;

    if (a->part != b->part)
        return a->part < b->part;
    if (a->key != b->key)
        return a->key < b->key;
    order = memcmp(x.bytes, y.bytes, x.n < y.n ? x.n : y.n);
    if (order != 0)
        return order < 0;
    return x.n != y.n ? x.n < y.n : a->id < b->id;
}

/* Merges runs of twice the length until there is one: n log n on any input. */
static void sort(struct sorter *s, uint32_t n)
{
    uint64_t run;

    for (run = 1; run < n; run *= 2) {
        struct item *swap = s->items;
        uint64_t at;

        for (at = 0; at < n; at += 2 * run) {
            uint64_t a = at, middle = at + run < n ? at + run : n, b = middle,
                     end = at + 2 * run < n ? at + 2 * run : n;
            uint64_t out;

            for (out = at; out < end; out++) {
                if (b >= end || (a < middle && !is_before(s->trie, &s->items[b], &s->items[a])))
                    s->other[out] = s->items[a++];
                else
                    s->other[out] = s->items[b++];
            }
        }
        s->items = s->other;
        s->other = swap;
    }
}

enum rn_byte_kind rn_byte_kind(uint8_t byte)
{
    if (byte >= 'a' && byte <= 'z')
        return RN_BYTE_LOWER;
    if (byte >= 'A' && byte <= 'Z')
        return RN_BYTE_UPPER;
    if (byte >= '0' && byte <= '9')
        return RN_BYTE_DIGIT;
    if (byte >= 0x80)
        return RN_BYTE_FAR;
    if (byte == ' ')
        return RN_BYTE_SPACE;
    return byte < ' ' || byte == '"' || byte == '\\' || byte == 0x7f ? RN_BYTE_SPECIAL : RN_BYTE_MARK;
}

/* ---- Nodes ---- */

static uint32_t shared_bytes(struct rn_view a, struct rn_view b)
{
    uint32_t n = 0;

    while (n < a.n && n < b.n && a.bytes[n] == b.bytes[n])
        n++;
    return n;
}

static uint64_t count_nodes(const struct rn_token_trie *trie, const struct item *items)
{
    uint64_t nodes = 0;

    for (uint32_t i = 0; i < trie->n_ids; i++) {
        struct rn_view text = rn_token_bytes(trie, items[i].id);

        nodes += text.n;
        if (i > 0 && items[i - 1].part == items[i].part)
            nodes -= shared_bytes(rn_token_bytes(trie, items[i - 1].id), text);
    }
    return nodes;
}

/* The nodes path[from..to) have no more children; the deepest first, so that what is below them is known. */
static void close_nodes(struct rn_token_trie *trie, const uint32_t *path, uint32_t from, uint32_t to)
{
    while (to-- > from) {
        struct rn_trie_place *place = &trie->nodes[path[to]];

        place->end = trie->n_nodes;
        if (to > 0)
            trie->nodes[path[to - 1]].kinds |= place->kinds | (uint8_t)rn_byte_kind(place->label);
    }
}

/* path[longest + 1]: nodes of the text at hand. */
static void add_nodes(struct rn_token_trie *trie, const struct item *items, uint32_t *path)
{
    struct rn_view last = {NULL, 0};
    uint32_t part = 0, i;
    size_t depth;

    for (i = 0; i < trie->n_ids; i++) {
        struct rn_view text = rn_token_bytes(trie, items[i].id);
        uint32_t shared = shared_bytes(last, text);

        if (items[i].part != part)
            shared = 0;
        close_nodes(trie, path, shared, (uint32_t)last.n);
        for (; part < items[i].part; part++) {
            trie->parts[part].end = trie->n_nodes;
            trie->parts[part + 1].begin = trie->n_nodes;
        }
        for (depth = shared; depth < text.n; depth++) {
            path[depth] = trie->n_nodes;
            trie->nodes[trie->n_nodes++] =
                (struct rn_trie_place){.first = i, .depth = (uint16_t)(depth + 1), .label = (uint8_t)text.bytes[depth]};
        }
        trie->ids[i] = items[i].id;
        trie->part_text[(size_t)part * trie->words + (uint32_t)items[i].id / 64] |= (uint64_t)1 << items[i].id % 64;
        last = text;
    }
    close_nodes(trie, path, 0, (uint32_t)last.n);
    trie->parts[part].end = trie->n_nodes;
    while (++part < RN_TOKEN_PARTS)
        trie->parts[part].begin = trie->parts[part].end = trie->n_nodes;
    trie->nodes[trie->n_nodes] = (struct rn_trie_place){.end = trie->n_nodes, .first = trie->n_ids};
}

static bool build(struct rn_token_trie *trie)
{
    struct item *room = rn_alloc(trie->heap, trie->n_ids, 2 * sizeof *room);
    uint32_t *path = rn_alloc(trie->heap, (size_t)trie->longest + 1, sizeof *path);
    struct sorter s = {trie, room, room != NULL ? room + trie->n_ids : NULL};
    uint32_t characters, i, n = 0;
    uint64_t nodes = 0;
    int32_t id;

    for (id = 0; room != NULL && id < (int32_t)trie->n_vocab; id++) {
        struct rn_view text = rn_token_bytes(trie, id);

        if (!rn_token_is_text(trie, id))
            continue;
        room[n] = (struct item){key_of(text), id, part_of(text, &characters)};
        if (characters > trie->parts[room[n].part].characters && room[n].part > 0)
            trie->parts[room[n].part].characters = characters;
        n++;
    }
    if (room != NULL) {
        sort(&s, n);
        nodes = count_nodes(trie, s.items);
        trie->nodes = rn_alloc(trie->heap, (size_t)nodes + 1, sizeof *trie->nodes);
        trie->ids = rn_alloc(trie->heap, n, sizeof *trie->ids);
    }
    if (path != NULL && trie->nodes != NULL && trie->ids != NULL)
        add_nodes(trie, s.items, path);
    for (i = 0; i < RN_TOKEN_PARTS; i++)
        trie->size += sizeof trie->parts[i];
    trie->size += (size_t)nodes * sizeof *trie->nodes + n * sizeof *trie->ids;
    rn_free(trie->heap, room);
    rn_free(trie->heap, path);
    return trie->nodes != NULL && trie->ids != NULL && path != NULL;
}

/* ---- What is text ---- */

static bool is_text(const struct rn_vocab *vocab, int32_t token)
{
    enum rn_token_kind kind = rn_vocab_kind(vocab, token);

    if (kind != RN_TOKEN_NORMAL && kind != RN_TOKEN_BYTE && kind != RN_TOKEN_USER)
        return false;
    return !rn_vocab_is_end(vocab, token) && rn_vocab_piece(vocab, token, false).n > 0;
}

/* A hash of 64 bits; with two different seeds, a fingerprint. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static void add_to_fingerprint(struct rn_token_trie *trie, int32_t id, bool end)
{
    struct rn_view text = rn_token_bytes(trie, id);
    uint64_t what = text.n << 1 | end;
    size_t i;

    for (i = 0; i < text.n; i += 8) {
        uint64_t word = 0;

        memcpy(&word, text.bytes + i, text.n - i < 8 ? text.n - i : 8);
        trie->fingerprint[0] = mix(trie->fingerprint[0], word);
        trie->fingerprint[1] = mix(trie->fingerprint[1] + 0x632be59bd9b4e019u, word);
    }
    trie->fingerprint[0] = mix(trie->fingerprint[0], what);
    trie->fingerprint[1] = mix(trie->fingerprint[1] + 0x632be59bd9b4e019u, what);
}

/* Copies texts and ends. */
static bool gather(struct rn_token_trie *trie, const struct rn_vocab *vocab)
{
    uint64_t bytes = 0;
    int32_t id;

    for (id = 0; id < (int32_t)trie->n_vocab; id++) {
        bytes += is_text(vocab, id) ? rn_vocab_piece(vocab, id, false).n : 0;
        trie->n_ends += rn_vocab_is_end(vocab, id);
    }
    if (bytes >= INT32_MAX)
        return false;
    trie->bytes = rn_alloc(trie->heap, (size_t)bytes, 1);
    trie->bytes_at = rn_alloc(trie->heap, (size_t)trie->n_vocab + 1, sizeof *trie->bytes_at);
    trie->text = rn_calloc(trie->heap, trie->words, sizeof *trie->text);
    trie->part_text = rn_calloc(trie->heap, trie->words, RN_TOKEN_PARTS * sizeof *trie->part_text);
    trie->ends = rn_alloc(trie->heap, trie->n_ends, sizeof *trie->ends);
    if (trie->bytes == NULL || trie->bytes_at == NULL || trie->text == NULL || trie->part_text == NULL ||
        trie->ends == NULL)
        return false;
    trie->size =
        sizeof *trie + (size_t)bytes + ((size_t)trie->n_vocab + 1) * 8 + (size_t)trie->words * 8 * (1 + RN_TOKEN_PARTS);
    trie->n_ends = 0;
    bytes = 0;
    for (id = 0; id < (int32_t)trie->n_vocab; id++) {
        struct rn_view piece = is_text(vocab, id) ? rn_vocab_piece(vocab, id, false) : (struct rn_view){NULL, 0};
        bool end = rn_vocab_is_end(vocab, id);

        trie->bytes_at[id] = bytes;
        trie->bytes_at[id + 1] = bytes + piece.n;
        if (piece.n > 0) {
            memcpy(trie->bytes + bytes, piece.bytes, piece.n);
            trie->text[id / 64] |= (uint64_t)1 << id % 64;
            trie->n_ids++;
        }
        trie->longest = piece.n > trie->longest ? (uint32_t)piece.n : trie->longest;
        bytes += piece.n;
        if (end)
            trie->ends[trie->n_ends++] = id;
        add_to_fingerprint(trie, id, end);
    }
    return true;
}

struct rn_token_trie *rn_token_trie_new(struct rn_heap *heap, const struct rn_vocab *vocab)
{
    struct rn_token_trie *trie = rn_calloc(heap, 1, sizeof *trie);

    if (trie == NULL)
        return NULL;
    trie->heap = heap;
    trie->n_vocab = rn_vocab_count(vocab);
    trie->words = (trie->n_vocab + 63) / 64;
    if (!gather(trie, vocab) || !build(trie)) {
        rn_token_trie_free(trie);
        return NULL;
    }
    return trie;
}

void rn_token_trie_free(struct rn_token_trie *trie)
{
    struct rn_heap *heap = trie != NULL ? trie->heap : NULL;

    if (trie == NULL)
        return;
    rn_free(heap, trie->nodes);
    rn_free(heap, trie->ids);
    rn_free(heap, trie->ends);
    rn_free(heap, trie->text);
    rn_free(heap, trie->part_text);
    rn_free(heap, trie->bytes);
    rn_free(heap, trie->bytes_at);
    rn_free(heap, trie);
}

/* In one part of the trie. */
static int32_t longest_of(const struct rn_token_trie *trie, const struct rn_token_part *part, const char *bytes,
                          size_t n, size_t *length)
{
    uint32_t node = part->begin, end = part->end;
    int32_t token = -1;
    size_t depth = 0;

    while (node < end && depth < n) {
        const struct rn_trie_place *place = &trie->nodes[node];

        if (place->label != (uint8_t)bytes[depth]) {
            node = place->end;
            continue;
        }
        depth++;
        if (place[1].first > place->first) {
            token = trie->ids[place->first];
            *length = depth;
        }
        end = place->end;
        node++;
    }
    return token;
}

int32_t rn_token_longest(const struct rn_token_trie *trie, const char *bytes, size_t n, size_t *length)
{
    int32_t token = -1;

    *length = 0;
    for (uint32_t part = 0; part < RN_TOKEN_PARTS; part++) {
        size_t own = 0;
        int32_t found = longest_of(trie, &trie->parts[part], bytes, n, &own);

        if (own > *length) {
            *length = own;
            token = found;
        }
    }
    return token;
}

bool rn_token_is_end(const struct rn_token_trie *trie, int32_t token)
{
    for (uint32_t i = 0; i < trie->n_ends; i++)
        if (trie->ends[i] == token)
            return true;
    return false;
}
