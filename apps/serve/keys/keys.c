/* See keys.h. */
#include "keys.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t"

struct word {
    const char *at;
    size_t n;
};

/* What one line says, and where a complaint goes. */
struct line {
    const char *rest, *end;
    unsigned number;
    char *sentence;
    struct serve_key *key;
    bool hashed, named;
};

static const struct {
    uint32_t bit;
    const char *word;
} scopes[] = {
#define SCOPE_ROW(name, bit, word) {SCOPE_##name, word},
    SERVE_SCOPES(SCOPE_ROW)};

const char *scope_word(uint32_t scope)
{
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++)
        if (scopes[i].bit == scope)
            return scopes[i].word;
    return "";
}

static bool complain(const struct line *line, const char *what)
{
    if (line->number > 0)
        snprintf(line->sentence, 256, "line %u: %s", line->number, what);
    else
        snprintf(line->sentence, 256, "%s", what);
    return false;
}

static struct word next_word(struct line *line)
{
    struct word word;

    while (line->rest < line->end && strchr(BLANKS, *line->rest) != NULL)
        line->rest++;
    word.at = line->rest;
    while (line->rest < line->end && strchr(BLANKS, *line->rest) == NULL)
        line->rest++;
    word.n = (size_t)(line->rest - word.at);
    return word;
}

static bool is_word(struct word word, const char *text)
{
    return word.n == strlen(text) && memcmp(word.at, text, word.n) == 0;
}

/* ---- The members of a key ---------------------------------------------------------------- */

static int digit_of(char c)
{
    c = (char)tolower((unsigned char)c);
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(struct word hex, uint8_t digest[DIGEST_BYTES])
{
    if (hex.n != DIGEST_BYTES * 2)
        return false;
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int high = digit_of(hex.at[2 * i]), low = digit_of(hex.at[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        digest[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

/* The tenant is another digest, so that files that name it say nothing of the key's own. */
static bool name_tenant(struct serve_key *key)
{
    static const char what[] = "runnel tenant";
    uint8_t bytes[sizeof what + DIGEST_BYTES], digest[DIGEST_BYTES];

    memcpy(bytes, what, sizeof what);
    memcpy(bytes + sizeof what, key->digest, DIGEST_BYTES);
    if (!digest_of(bytes, sizeof bytes, digest))
        return false;
    memcpy(&key->tenant, digest, sizeof key->tenant);
    key->tenant |= key->tenant == 0; /* 0 is of those who need no key */
    return true;
}

static bool read_key(struct line *line)
{
    struct word word = next_word(line);

    line->hashed = word.n >= 7 && memcmp(word.at, "sha256:", 7) == 0;
    if (!digest_is_there())
        return complain(line, "keys need OpenSSL, and this program was built without");
    if (line->hashed && !read_hex((struct word){word.at + 7, word.n - 7}, line->key->digest))
        return complain(line, "behind sha256: there must be 64 hexadecimal digits");
    if (!line->hashed && word.n >= KEY_BYTES)
        return complain(line, "a key has at most 255 bytes");
    if ((!line->hashed && !digest_of(word.at, word.n, line->key->digest)) || !name_tenant(line->key))
        return complain(line, "not enough memory");
    return true;
}

static bool read_name(struct line *line, struct word name)
{
    if (line->named)
        return complain(line, "it has two names");
    if (name.n == 0 || name.n >= KEY_NAME_BYTES)
        return complain(line, "a name has 1 to 63 bytes");
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((unsigned char)name.at[i]) && strchr("._-@", name.at[i]) == NULL)
            return complain(line, "a name is made of letters, digits and . _ - @");
    memcpy(line->key->name, name.at, name.n);
    line->key->name[name.n] = '\0';
    line->named = true;
    return true;
}

static bool read_scope(struct line *line, struct word word)
{
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++)
        if (is_word(word, scopes[i].word)) {
            line->key->scopes |= scopes[i].bit;
            return true;
        }
    return complain(line, "scopes are chat, embeddings, tokens, models, metrics, admin, batches, parted by commas");
}

static bool read_scopes(struct line *line, struct word list)
{
    line->key->scopes = 0;
    for (size_t begin = 0, end = 0; begin <= list.n; begin = end + 1) {
        for (end = begin; end < list.n && list.at[end] != ','; end++)
            ;
        if (!read_scope(line, (struct word){list.at + begin, end - begin}))
            return false;
    }
    return true;
}

static bool read_number(struct line *line, struct word word, int64_t *number)
{
    int64_t value = 0;

    for (size_t i = 0; i < word.n; i++) {
        if (!isdigit((unsigned char)word.at[i]) || value > SERVE_MOST_LIMIT)
            return complain(line, "requests, tokens, budget and streams are whole numbers from 1 to 10^12");
        value = value * 10 + (word.at[i] - '0');
    }
    if (value < 1 || value > SERVE_MOST_LIMIT)
        return complain(line, "requests, tokens, budget and streams are whole numbers from 1 to 10^12");
    *number = value;
    return true;
}

/* NAME=VALUE; behind a hash also a name alone. */
static bool read_member(struct line *line, struct word word)
{
    const char *equal = memchr(word.at, '=', word.n);
    struct word name = {word.at, equal != NULL ? (size_t)(equal - word.at) : 0}, value = {NULL, 0};
    struct serve_limits *limits = &line->key->limits;

    if (equal == NULL)
        return line->hashed
                   ? read_name(line, word)
                   : complain(line, "behind a key stand words like name=NAME or requests=60; a key has no blank");
    value = (struct word){equal + 1, word.n - name.n - 1};
    if (is_word(name, "name"))
        return read_name(line, value);
    if (is_word(name, "scopes"))
        return read_scopes(line, value);
    if (is_word(name, "requests"))
        return read_number(line, value, &limits->requests.per_minute);
    if (is_word(name, "tokens"))
        return read_number(line, value, &limits->tokens.per_minute);
    if (is_word(name, "budget"))
        return read_number(line, value, &limits->budget);
    if (is_word(name, "streams"))
        return read_number(line, value, &limits->streams);
    return complain(line, "there are name=, scopes=, requests=, tokens=, budget= and streams=");
}

static bool read_line(struct line *line, uint64_t now_ms)
{
    struct serve_limits *limits = &line->key->limits;

    if (!read_key(line))
        return false;
    for (struct word word = next_word(line); word.n > 0; word = next_word(line))
        if (!read_member(line, word))
            return false;
    serve_bucket_init(&limits->requests, limits->requests.per_minute, now_ms);
    serve_bucket_init(&limits->tokens, limits->tokens.per_minute, now_ms);
    return true;
}

/* ---- The table --------------------------------------------------------------------------- */

static bool has_name(const struct serve_keys *keys, const char *name)
{
    for (size_t i = 0; i < keys->n; i++)
        if (strcmp(keys->at[i]->name, name) == 0)
            return true;
    return false;
}

/* By its place; further on where that name was given to a key before. */
static void name_by_place(const struct serve_keys *keys, char name[KEY_NAME_BYTES])
{
    size_t number = keys->n;

    do
        snprintf(name, KEY_NAME_BYTES, "key-%zu", ++number);
    while (has_name(keys, name));
}

/* Of a file's own lines: who reads how long it takes has written them. */
static bool has_digest(const struct serve_keys *keys, const uint8_t digest[DIGEST_BYTES])
{
    for (size_t i = 0; i < keys->n; i++)
        if (memcmp(keys->at[i]->digest, digest, DIGEST_BYTES) == 0)
            return true;
    return false;
}

static bool add(struct serve_keys *keys, struct line *line)
{
    struct serve_key **grown = NULL;

    if (has_digest(keys, line->key->digest))
        return complain(line, "this key was there before");
    if (has_name(keys, line->key->name))
        return complain(line, "this name was there before");
    if (keys->n == KEYS_MOST)
        return complain(line, "there are more than 4096 keys");
    grown = realloc(keys->at, (keys->n + 1) * sizeof *grown);
    if (grown == NULL)
        return complain(line, "not enough memory");
    keys->at = grown;
    keys->at[keys->n++] = line->key;
    return true;
}

bool keys_add_line(struct serve_keys *keys, const char *line, size_t n, unsigned number, uint64_t now_ms,
                   char sentence[256])
{
    struct line reader = {.rest = line, .end = line + n, .number = number, .sentence = sentence};

    reader.key = calloc(1, sizeof *reader.key);
    if (reader.key == NULL)
        return complain(&reader, "not enough memory");
    reader.key->refs = 1;
    reader.key->scopes = SCOPE_ALL;
    if (read_line(&reader, now_ms)) {
        if (!reader.named)
            name_by_place(keys, reader.key->name);
        if (add(keys, &reader))
            return true;
    }
    free(reader.key);
    return false;
}

bool keys_add_plain(struct serve_keys *keys, const char *key, const char *name, uint64_t now_ms, char sentence[256])
{
    if (key[strcspn(key, BLANKS)] != '\0' || strncmp(key, "sha256:", 7) == 0) {
        snprintf(sentence, 256, "it is one key, without a blank and not hashed");
        return false;
    }
    if (!keys_add_line(keys, key, strlen(key), 0, now_ms, sentence))
        return false;
    snprintf(keys->at[keys->n - 1]->name, KEY_NAME_BYTES, "%s", name);
    return true;
}

bool keys_add_text(struct serve_keys *keys, const char *text, uint64_t now_ms, char sentence[256])
{
    for (unsigned number = 1; *text != '\0'; number++) {
        size_t n = strcspn(text, "\n"), used = n > 0 && text[n - 1] == '\r' ? n - 1 : n;

        if (strspn(text, BLANKS) < used && text[strspn(text, BLANKS)] != '#' &&
            !keys_add_line(keys, text, used, number, now_ms, sentence))
            return false;
        text += n + (text[n] == '\n');
    }
    return true;
}

static void unref_all(struct serve_key **at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        key_unref(at[i]);
    free(at);
}

static int by_digest(const void *a, const void *b)
{
    const struct serve_key *const *one = a, *const *other = b;

    return memcmp((*one)->digest, (*other)->digest, DIGEST_BYTES);
}

/* A key of the new table: the object of `old` [n], sorted, that has its digest, with the new rights. */
static struct serve_key *take_over(struct serve_key **old, size_t n, struct serve_key *key, uint64_t now_ms)
{
    struct serve_key **found = bsearch(&key, old, n, sizeof *old, by_digest), *same = found != NULL ? *found : NULL;

    if (same == NULL)
        return key;
    serve_limits_set(&same->limits, &key->limits, now_ms);
    memcpy(same->name, key->name, sizeof same->name);
    same->scopes = key->scopes;
    same->stays = true;
    key_unref(key);
    return key_ref(same);
}

/* The keys that are not in the new table, as far as there is room: first those that have used something, or of which
 * something runs. */
static void list_gone(const struct serve_keys *keys, struct serve_keys *fresh, uint64_t now_ms)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < keys->n + keys->n_gone && fresh->n_gone < KEYS_MOST; i++) {
            struct serve_key *key = i < keys->n ? keys->at[i] : keys->gone[i - keys->n];
            bool used = !key->stays && (key->refs > 1 || !serve_limits_are_new(&key->limits, now_ms));

            if (!key->stays && used == (pass == 0))
                fresh->gone[fresh->n_gone++] = key_ref(key);
        }
    }
}

bool keys_replace(struct serve_keys *keys, struct serve_keys *fresh, uint64_t now_ms)
{
    size_t n = keys->n + keys->n_gone;
    struct serve_key **sorted = calloc(n + 1, sizeof *sorted), **gone = calloc(KEYS_MOST, sizeof *gone);

    if (sorted == NULL || gone == NULL) {
        free(sorted);
        free(gone);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        sorted[i] = i < keys->n ? keys->at[i] : keys->gone[i - keys->n];
    qsort(sorted, n, sizeof *sorted, by_digest);
    for (size_t i = 0; i < fresh->n; i++)
        fresh->at[i] = take_over(sorted, n, fresh->at[i], now_ms);
    free(sorted);
    fresh->gone = gone;
    list_gone(keys, fresh, now_ms);
    for (size_t i = 0; i < fresh->n; i++)
        fresh->at[i]->stays = false;
    keys_fini(keys);
    *keys = *fresh;
    *fresh = (struct serve_keys){0};
    return true;
}

void keys_fini(struct serve_keys *keys)
{
    unref_all(keys->at, keys->n);
    unref_all(keys->gone, keys->n_gone);
    *keys = (struct serve_keys){0};
}

/* 1 where all bytes are the same: no byte ends the comparison early. */
static size_t is_same(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;

    for (size_t i = 0; i < DIGEST_BYTES; i++)
        difference |= a[i] ^ b[i];
    return (difference - 1) >> 31;
}

struct serve_key *keys_find(const struct serve_keys *keys, const uint8_t digest[DIGEST_BYTES])
{
    size_t found = 0;

    for (size_t i = 0; i < keys->n; i++)
        found |= (i + 1) * is_same(digest, keys->at[i]->digest);
    return found > 0 ? keys->at[found - 1] : NULL;
}

struct serve_key *key_ref(struct serve_key *key)
{
    key->refs++;
    return key;
}

void key_unref(struct serve_key *key)
{
    if (key != NULL && --key->refs == 0)
        free(key);
}
