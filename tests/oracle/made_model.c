/* See made_model.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/quant/quant.h"
#include "tests/base/whole_file.h"
#include "tests/oracle/made_model.h"

enum { WORDS = 160, NAME_BYTES = 64 };

struct maker {
    const char *path;
    unsigned line;
    uint64_t seed;
    uint32_t from, to; /* blocks */
    uint64_t n_keys, n_tensors;
    struct writer keys, directory, data;
};

struct words {
    char *at[WORDS];
    uint32_t n;
};

static void bad(const struct maker *m, const char *why)
{
    fail_msg("%s, line %u: %s", m->path, m->line, why);
}

static double number(const struct maker *m, const char *word)
{
    char *end;
    double value = strtod(word, &end);

    if (end == word || *end != '\0')
        bad(m, "a number is wanted");
    return value;
}

/* ---- Keys ---- */

static uint32_t type_of(const struct maker *m, const char *word, size_t n)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {
        {"u32", RN_GGUF_U32}, {"i32", RN_GGUF_I32}, {"u64", RN_GGUF_U64}, {"f32", RN_GGUF_F32}, {"bool", RN_GGUF_BOOL}};
    size_t i;

    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strlen(types[i].name) == n && memcmp(types[i].name, word, n) == 0)
            return types[i].type;
    bad(m, "no such type");
    return 0;
}

static void add_value(struct maker *m, uint32_t type, const char *word)
{
    double value = number(m, word);

    if (type == RN_GGUF_F32)
        w_f32(&m->keys, (float)value);
    else if (type == RN_GGUF_BOOL)
        w_u8(&m->keys, value != 0);
    else if (type == RN_GGUF_U64)
        w_u64(&m->keys, (uint64_t)value);
    else
        w_u32(&m->keys, type == RN_GGUF_I32 ? (uint32_t)(int32_t)value : (uint32_t)value);
}

/* key NAME TYPE VALUE... */
static void add_key(struct maker *m, const struct words *words)
{
    const char *type = words->n >= 3 ? words->at[2] : "";
    size_t n = strcspn(type, "[");
    uint32_t i, id;

    m->n_keys++;
    if (words->n < 3 || (words->n < 4 && strchr(type, '[') == NULL))
        bad(m, "a key has a name, a type and a value; an array may have none");
    if (strcmp(type, "str") == 0) {
        w_key_string(&m->keys, words->at[1], words->at[3]);
        return;
    }
    if (strcmp(type, "str[]") == 0) {
        w_key_array(&m->keys, words->at[1], RN_GGUF_STRING, words->n - 3);
        for (i = 3; i < words->n; i++)
            w_string(&m->keys, words->at[i]);
        return;
    }
    id = type_of(m, type, n);
    if (type[n] == '[')
        w_key_array(&m->keys, words->at[1], id, words->n - 3);
    else
        w_key(&m->keys, words->at[1], id);
    for (i = 3; i < (type[n] == '[' ? words->n : 4); i++)
        add_value(m, id, words->at[i]);
}

static void add_vocabulary(struct maker *m, uint32_t n)
{
    char text[16];
    uint32_t i;

    m->n_keys += 4;
    w_key_string(&m->keys, "tokenizer.ggml.model", "test");
    w_key_array(&m->keys, "tokenizer.ggml.tokens", RN_GGUF_STRING, n);
    for (i = 0; i < n; i++) {
        snprintf(text, sizeof text, "tok_%u", i);
        w_string(&m->keys, text);
    }
    w_key_array(&m->keys, "tokenizer.ggml.scores", RN_GGUF_F32, n);
    w_zeros(&m->keys, n * sizeof(float));
    w_key_array(&m->keys, "tokenizer.ggml.token_type", RN_GGUF_I32, n);
    for (i = 0; i < n; i++)
        w_u32(&m->keys, 1); /* an ordinary token */
}

/* ---- Tensors ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash_of(const struct maker *m, const char *name)
{
    uint64_t hash = mixed(m->seed + 1);

    for (; *name != '\0'; name++)
        hash = mixed(hash ^ (unsigned char)*name);
    return hash;
}

static void add_values(struct maker *m, const char *name, uint64_t n, float middle, float reach)
{
    uint64_t hash = hash_of(m, name), i;
    float u;

    for (i = 0; i < n; i++) {
        u = (float)(int32_t)(mixed(hash + (i + 1) * 0x9e3779b97f4a7c15u) >> 40) / (1 << 23) - 1;
        w_f32(&m->data, middle + reach * u);
    }
}

static void add_ids(struct maker *m, const char *name, uint64_t n, uint32_t below)
{
    uint64_t hash = hash_of(m, name), i;

    for (i = 0; i < n; i++)
        w_u32(&m->data, (uint32_t)((mixed(hash + (i + 1) * 0x9e3779b97f4a7c15u) >> 40) % below));
}

static void add_tensor(struct maker *m, const char *name, const uint64_t *dims, uint32_t n_dims, const float *range,
                       uint32_t ids)
{
    bool bias = strlen(name) > 5 && strcmp(name + strlen(name) - 5, ".bias") == 0, norm = !bias && n_dims == 1;
    float middle = norm ? 1 : 0, reach = norm ? 0.25f : bias ? 0.2f : 2 / sqrtf((float)dims[0]);
    uint64_t n = 1;
    uint32_t i;

    for (i = 0; i < n_dims; i++)
        n *= dims[i];
    w_tensor(&m->directory, name, n_dims, dims, ids > 0 ? RN_I32 : RN_F32, m->data.n);
    m->n_tensors++;
    if (ids > 0)
        add_ids(m, name, n, ids);
    else
        add_values(m, name, n, range != NULL ? range[0] : middle, range != NULL ? range[1] : reach);
    w_align(&m->data, 32);
}

/* tensor NAME DIMS... [= MIDDLE REACH, or ids N] */
static void add_tensors(struct maker *m, const struct words *words)
{
    const char *block = words->n > 2 ? strstr(words->at[1], "%d") : NULL;
    uint64_t dims[4];
    float range[2];
    uint32_t n_dims = 0, ids = 0, i;
    char name[NAME_BYTES];
    bool ranged;

    for (i = 2; i < words->n && n_dims < 4 && strcmp(words->at[i], "=") != 0 && strcmp(words->at[i], "ids") != 0; i++)
        dims[n_dims++] = (uint64_t)number(m, words->at[i]);
    ranged = i < words->n && words->n - i == 3;
    if (i < words->n && words->n - i == 2 && strcmp(words->at[i], "ids") == 0)
        ids = (uint32_t)number(m, words->at[i + 1]);
    if (n_dims == 0 || (i < words->n && !ranged && ids == 0))
        bad(m, "a tensor has a name, dimensions, and perhaps = MIDDLE REACH, or ids N");
    for (i = 0; ranged && i < 2; i++)
        range[i] = (float)number(m, words->at[words->n - 2 + i]);
    for (i = block != NULL ? m->from : 0; i < (block != NULL ? m->to : 1); i++) {
        if (block != NULL)
            snprintf(name, sizeof name, "%.*s%u%s", (int)(block - words->at[1]), words->at[1], i, block + 2);
        else
            snprintf(name, sizeof name, "%s", words->at[1]);
        add_tensor(m, name, dims, n_dims, ranged ? range : NULL, ids);
    }
}

/* ---- Lines ---- */

static void read_line(struct maker *m, char *line)
{
    struct words words = {.n = 0};
    char *word, *rest = line;

    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        if (words.n == WORDS)
            bad(m, "too many words");
        words.at[words.n++] = word;
    }
    if (words.n == 0 || words.at[0][0] == '#')
        return;
    if (strcmp(words.at[0], "key") == 0) {
        add_key(m, &words);
    } else if (strcmp(words.at[0], "tensor") == 0) {
        add_tensors(m, &words);
    } else if (strcmp(words.at[0], "vocabulary") == 0 && words.n == 2) {
        add_vocabulary(m, (uint32_t)number(m, words.at[1]));
    } else if (strcmp(words.at[0], "seed") == 0 && words.n == 2) {
        m->seed = (uint64_t)number(m, words.at[1]);
    } else if (strcmp(words.at[0], "blocks") == 0 && words.n == 3) {
        m->from = (uint32_t)number(m, words.at[1]);
        m->to = (uint32_t)number(m, words.at[2]);
    } else {
        bad(m, "no such line");
    }
}

void made_model_write(const char *path, struct writer *w)
{
    struct maker m = {.path = path};
    size_t n;
    char *text = read_whole_new(path, &n), *line, *rest = text;

    while ((line = strsep(&rest, "\n")) != NULL) {
        m.line++;
        read_line(&m, line);
    }
    free(text);
    w_header(w, 3, m.n_tensors, m.n_keys);
    w_raw(w, m.keys.bytes, m.keys.n);
    w_raw(w, m.directory.bytes, m.directory.n);
    w_align(w, 32);
    w_raw(w, m.data.bytes, m.data.n);
    w_free(&m.keys);
    w_free(&m.directory);
    w_free(&m.data);
}
