/* Any bytes as a GGUF file: parsed, and what is accepted walked to its last item; the first and the
 * last block of every tensor decoded. Seeds: small files with each kind of value and each type,
 * written here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/check.h"
#include "model/gguf/gguf.h"
#include "model/quant/quant.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static volatile double sink; /* what is read must not be optimised away */

static void walk_entry(const struct rn_gguf *g, const struct rn_gguf_entry *entry)
{
    const char *cursor = entry->data;
    char key[64];
    uint64_t u = 0;
    double f = 0;
    bool b = false;
    struct rn_view view = {0};
    const struct rn_gguf_entry *found;

    for (uint64_t i = 0; i < entry->count; i++) {
        if (entry->item == RN_GGUF_STRING) {
            view = rn_gguf_item_string(&cursor);
            if (view.n > 0)
                sink = view.bytes[0] + view.bytes[view.n - 1];
        } else if (entry->item == RN_GGUF_F32 || entry->item == RN_GGUF_F64) {
            sink = rn_gguf_item_f64(entry, i);
        } else {
            sink = (double)rn_gguf_item_i64(entry, i);
        }
    }
    RN_CHECK(entry->item != RN_GGUF_STRING || cursor == entry->data + entry->data_bytes);
    if (entry->key.n >= sizeof key)
        return;
    memcpy(key, entry->key.bytes, entry->key.n);
    key[entry->key.n] = '\0';
    RN_CHECK(rn_gguf_find(g, key) == entry);
    for (uint32_t item = 0; item <= RN_GGUF_F64; item++) {
        runnel_error error = {0};

        rn_gguf_get_array(g, key, true, item, &found, &error);
    }
    rn_gguf_get_u64(g, key, true, 1, 1000, &u, NULL);
    rn_gguf_get_f64(g, key, true, -1, 1, &f, NULL);
    rn_gguf_get_bool(g, key, true, &b, NULL);
    rn_gguf_get_string(g, key, true, &view, NULL);
}

static void walk_tensor(const struct rn_tensor *t, const uint8_t *data, size_t size)
{
    const struct rn_type *type = rn_type(t->type);
    const uint8_t *bytes = t->data;
    float out[256];

    RN_CHECK(type != NULL && t->n_dims >= 1 && t->n_dims <= 4 && t->elements % type->elements == 0);
    RN_CHECK(t->bytes == t->elements / type->elements * type->bytes);
    RN_CHECK(bytes >= data && t->bytes <= size && (size_t)(bytes - data) <= size - t->bytes);
    RN_CHECK(t->offset == (uint64_t)(bytes - data));
    type->decode(bytes, out, type->elements);
    type->decode(bytes + t->bytes - type->bytes, out, type->elements);
    sink = (double)out[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rn_heap heap;
    struct rn_gguf *g = NULL;
    runnel_error error = {0};
    runnel_status status;

    rn_heap_init(&heap, NULL);
    status = rn_gguf_parse(&heap, data, size, "fuzz.gguf", &g, &error);
    RN_CHECK((status == RUNNEL_OK) == (g != NULL) && error.status == status);
    RN_CHECK(status == RUNNEL_OK || strstr(error.message, "fuzz.gguf: ") != NULL);
    if (g != NULL) {
        uint64_t total = 0;

        for (uint64_t i = 0; i < rn_gguf_n_entries(g); i++)
            walk_entry(g, rn_gguf_entry(g, i));
        for (uint64_t i = 0; i < rn_gguf_n_tensors(g); i++) {
            walk_tensor(rn_gguf_tensor(g, i), data, size);
            total += rn_gguf_tensor(g, i)->bytes;
        }
        RN_CHECK(total <= size); /* no two overlap */
        RN_CHECK(rn_heap_bytes(&heap) <= 65536 + 16 * size);
        rn_gguf_free(g);
    }
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}

/* ---- Seeds ---- */

struct seed {
    uint8_t bytes[16384];
    size_t n;
};

static void put(struct seed *s, const void *bytes, size_t n)
{
    RN_CHECK(n <= sizeof s->bytes - s->n);
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void put_u32(struct seed *s, uint32_t v)
{
    put(s, &v, sizeof v);
}

static void put_u64(struct seed *s, uint64_t v)
{
    put(s, &v, sizeof v);
}

static void put_string(struct seed *s, const char *text)
{
    put_u64(s, strlen(text));
    put(s, text, strlen(text));
}

/* A key of every type, alone (zero bytes) and as an array of two. */
static void put_entries(struct seed *s)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8}; /* an empty string: its length */
    char key[3] = "k?";

    put_string(s, "general.alignment");
    put_u32(s, RN_GGUF_U32);
    put_u32(s, 32);
    for (uint32_t type = 0; type <= RN_GGUF_F64; type++) {
        key[1] = (char)('a' + type);
        put_string(s, key);
        put_u32(s, type);
        if (type == RN_GGUF_ARRAY) {
            put_u32(s, RN_GGUF_STRING);
            put_u64(s, 2);
            put_string(s, "one");
            put_string(s, "two");
        }
        put(s, (char[16]){0}, bytes[type]);
    }
}

/* One block of each type from `from` on, eight of them, 320 bytes apart. */
static void write_seed(const char *folder, uint32_t from)
{
    static struct seed s;
    char name[512];
    uint32_t n = 0;
    FILE *file;

    s.n = 0;
    put(&s, "GGUF\x03\0\0\0", 8);
    for (uint32_t id = from; id < from + 8; id++)
        n += rn_type(id) != NULL;
    put_u64(&s, n);
    put_u64(&s, 1 + RN_GGUF_F64 + 1);
    put_entries(&s);
    for (uint32_t id = from, i = 0; id < from + 8; id++) {
        if (rn_type(id) == NULL)
            continue;
        put_string(&s, rn_type(id)->name);
        put_u32(&s, 2);
        put_u64(&s, rn_type(id)->elements);
        put_u64(&s, 1);
        put_u32(&s, id);
        put_u64(&s, 320 * i++);
    }
    put(&s, (char[32]){0}, (32 - s.n % 32) % 32);
    for (uint32_t i = 0; i < 320 * n; i++)
        put(&s, &(uint8_t){(uint8_t)(i * 37)}, 1);
    snprintf(name, sizeof name, "%s/seed-%u", folder, from);
    file = fopen(name, "wb");
    RN_CHECK(file != NULL && fwrite(s.bytes, 1, s.n, file) == s.n && fclose(file) == 0);
}

/* With RUNNEL_FUZZ_SEEDS set, writes the seeds there before anything else: see run.sh. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");

    (void)argc;
    (void)argv;
    for (uint32_t from = 0; folder != NULL && from < 48; from += 8)
        write_seed(folder, from);
    return 0;
}
