/* Fingerprints: see fingerprint.h. */
#include "cache/store/fingerprint.h"

#include <assert.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's size */
#include <xxhash.h>

#include "base/bytes.h"
#include "cache/store/fingerprint_hash.h"

/* Of a tensor of a model: all of its bytes up to so many, else so many windows. One page each at most: cheap also for
 * large models. */
#define WHOLE_BYTES 4096u
#define WINDOWS 16u
#define WINDOW_BYTES 64u

static_assert(WINDOWS * WINDOW_BYTES <= WHOLE_BYTES, "a tensor that is read by windows is longer than they are");

static void add(XXH3_state_t *state, const void *bytes, size_t n)
{
    if (n > 0)
        XXH3_128bits_update(state, bytes, n);
}

static void add_u64(XXH3_state_t *state, uint64_t value)
{
    unsigned char bytes[8];

    rn_bytes_put(bytes, value, sizeof bytes);
    add(state, bytes, sizeof bytes);
}

static void add_view(XXH3_state_t *state, struct rn_view view)
{
    add_u64(state, view.n);
    add(state, view.bytes, view.n);
}

static struct rn_fingerprint end(XXH3_state_t *state)
{
    return rn_fingerprint_of(XXH3_128bits_digest(state));
}

static void add_entry(XXH3_state_t *state, const struct rn_gguf_entry *entry)
{
    add_view(state, entry->key);
    add_u64(state, entry->type);
    add_u64(state, entry->item);
    add_u64(state, entry->count);
    add_view(state, (struct rn_view){entry->data, entry->data_bytes});
}

static void add_tensor(XXH3_state_t *state, const struct rn_tensor *tensor, uint64_t whole_bytes)
{
    const char *data = tensor->data;

    add_view(state, tensor->name);
    add_u64(state, tensor->type);
    for (uint32_t i = 0; i < 4; i++)
        add_u64(state, tensor->dims[i]);
    add_u64(state, tensor->bytes);
    if (tensor->bytes <= whole_bytes) {
        add(state, data, (size_t)tensor->bytes);
        return;
    }
    for (uint32_t i = 0; i < WINDOWS; i++)
        add(state, data + (tensor->bytes - WINDOW_BYTES) / (WINDOWS - 1) * i, WINDOW_BYTES);
}

static void add_file(XXH3_state_t *state, const struct rn_gguf *gguf, uint64_t whole_bytes)
{
    add_u64(state, rn_gguf_n_entries(gguf));
    for (uint64_t i = 0; i < rn_gguf_n_entries(gguf); i++)
        add_entry(state, rn_gguf_entry(gguf, i));
    add_u64(state, rn_gguf_n_tensors(gguf));
    for (uint64_t i = 0; i < rn_gguf_n_tensors(gguf); i++)
        add_tensor(state, rn_gguf_tensor(gguf, i), whole_bytes);
}

struct rn_fingerprint rn_fingerprint_model(const struct rn_gguf *gguf)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    if (gguf != NULL)
        add_file(&state, gguf, WHOLE_BYTES);
    return end(&state);
}

struct rn_fingerprint rn_fingerprint_adapter(const struct rn_gguf *gguf, float scale)
{
    XXH3_state_t state;
    uint32_t bits;

    memcpy(&bits, &scale, sizeof bits);
    XXH3_128bits_reset(&state);
    add_file(&state, gguf, UINT64_MAX);
    add_u64(&state, bits);
    return end(&state);
}

static void add_double(XXH3_state_t *state, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    add_u64(state, bits);
}

struct rn_fingerprint rn_fingerprint_kv(const struct rn_plan *plan, const struct rn_backend *backend,
                                        const struct rn_backend_limits *limits)
{
    const struct rn_backend_ops *ops = backend->ops;
    XXH3_state_t state;

    if (!rn_backend_has_blocks(backend))
        return (struct rn_fingerprint){{0}};
    XXH3_128bits_reset(&state);
    add_view(&state, (struct rn_view){ops->layout(backend), strlen(ops->layout(backend))});
    add_u64(&state, limits->kv_type);
    add_u64(&state, limits->block_tokens);
    add_u64(&state, ops->block_bytes(backend));
    for (uint32_t i = 0; plan != NULL && i < plan->n_ropes; i++) {
        add_u64(&state, plan->ropes[i].dims);
        add_double(&state, plan->ropes[i].magnitude);
        for (uint32_t k = 0; k < plan->ropes[i].dims / 2; k++)
            add_double(&state, plan->ropes[i].inv_freq[k]);
    }
    return end(&state);
}

struct rn_fingerprint rn_fingerprint_list(uint32_t n, struct rn_view (*item)(const void *user, uint32_t index),
                                          const void *user)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    add_u64(&state, n);
    for (uint32_t i = 0; i < n; i++)
        add_view(&state, item(user, i));
    return end(&state);
}

bool rn_fingerprint_equal(const struct rn_fingerprint *a, const struct rn_fingerprint *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
