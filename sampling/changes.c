/* Changes of single logits for a device: see changes.h. */
#include "sampling/changes.h"

#include "base/check.h"
#include "sampling/sampler_state.h"

bool rn_changes_are_all(const struct rn_sampler *s)
{
    return s->is_plain && !s->dry_on;
}

uint32_t rn_changes_most(const struct rn_sampler *s, uint32_t n_behind)
{
    uint64_t n_counts = s->penalties ? (uint64_t)s->counts.n_entries + n_behind : 0, n;

    n_counts = n_counts < s->n_vocab ? n_counts : s->n_vocab;
    n = n_counts + s->n_ends + s->params.n_biases;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* The count of the token that leaves the window when one more comes; NULL: none does. */
static const int32_t *leaves(const struct rn_counts *counts)
{
    if (counts->window == 0 || counts->n_tokens < counts->window)
        return NULL;
    return &counts->ring[counts->n_tokens % counts->window];
}

static bool is_among(int32_t token, const struct rn_count *behind, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (behind[i].token == token)
            return true;
    return false;
}

static uint32_t take_counts(const struct rn_counts *counts, struct rn_path path, bool waits, struct rn_draw_count *to)
{
    const int32_t *gone = waits ? leaves(counts) : NULL;
    struct rn_count behind[2 * RN_PATH_MOST];
    uint32_t n_behind = rn_counts_behind(counts, path.tokens, path.n, behind), n = 0;

    for (uint32_t i = 0; i < counts->n_entries; i++) {
        const struct rn_count *seen = &counts->entries[i];
        uint32_t count = seen->count - (gone != NULL && *gone == seen->token);

        if (count > 0 && (n_behind == 0 || !is_among(seen->token, behind, n_behind)))
            to[n++] = (struct rn_draw_count){seen->token, count};
    }
    for (uint32_t i = 0; i < n_behind; i++)
        if (behind[i].count > 0)
            to[n++] = (struct rn_draw_count){behind[i].token, behind[i].count};
    return n;
}

void rn_changes_take(const struct rn_sampler *s, struct rn_path path, bool waits, struct rn_draw_count *counts,
                     struct rn_draw_changes *changes)
{
    RN_CHECK(rn_changes_are_all(s) && path.n <= RN_PATH_MOST && (!waits || path.n == 0));
    *changes = (struct rn_draw_changes){
        .counts = counts, .barred = s->ends, .n_barred = rn_sampler_n_barred(s, path.n + waits)};
    if (!s->penalties)
        return;
    changes->n_counts = take_counts(&s->counts, path, waits, counts);
    changes->counts_own = waits;
}
