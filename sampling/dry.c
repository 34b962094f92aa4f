/* Repetitions: see dry.h. */
#include "sampling/dry.h"

#include <string.h>

#include "base/check.h"

#define BREAKS INT32_MIN /* bit 31 of a token */

static size_t all_bytes(const runnel_samplers *samplers)
{
    size_t n = 0;

    for (size_t i = 0; i < samplers->n_dry_breakers; i++)
        n += strlen(samplers->dry_breakers[i]);
    return n;
}

static void copy_breakers(struct rn_dry *dry, const runnel_samplers *samplers)
{
    char *to = dry->breakers;

    for (size_t i = 0; i < samplers->n_dry_breakers; i++) {
        size_t n = strlen(samplers->dry_breakers[i]);

        memcpy(to, samplers->dry_breakers[i], n);
        dry->sizes[i] = (uint8_t)n;
        to += n;
    }
    dry->n_breakers = (uint32_t)samplers->n_dry_breakers;
}

bool rn_dry_init(struct rn_dry *dry, struct rn_heap *heap, const runnel_samplers *samplers, uint32_t max_tokens)
{
    uint32_t window = samplers->dry_tokens;

    *dry = (struct rn_dry){.window = window > 0 && window < max_tokens ? window : max_tokens};
    dry->tokens = rn_alloc(heap, dry->window, sizeof *dry->tokens);
    dry->breakers = rn_alloc(heap, all_bytes(samplers) + 1, 1);
    dry->sizes = rn_alloc(heap, samplers->n_dry_breakers + 1, 1);
    if (dry->tokens == NULL || dry->breakers == NULL || dry->sizes == NULL) {
        rn_dry_fini(dry, heap);
        return false;
    }
    copy_breakers(dry, samplers);
    return true;
}

void rn_dry_fini(struct rn_dry *dry, struct rn_heap *heap)
{
    rn_free(heap, dry->sizes);
    rn_free(heap, dry->breakers);
    rn_free(heap, dry->tokens);
    *dry = (struct rn_dry){0};
}

void rn_dry_clear(struct rn_dry *dry)
{
    dry->n_tokens = 0;
    dry->tail.n = 0;
}

/* Does `text` stand in the n bytes, with its last byte at `from` or behind? */
static bool ends_in(const char *bytes, size_t n, size_t from, const char *text, size_t n_text)
{
    for (size_t end = from + 1 > n_text ? from + 1 : n_text; end <= n; end++)
        if (bytes[end - 1] == text[n_text - 1] && memcmp(bytes + end - n_text, text, n_text) == 0)
            return true;
    return false;
}

/* Of a text longer than this, the end is looked at. */
#define LONGEST_PIECE 960u

/* Adds the token's text to the tail: does a breaker end in it? */
static bool breaks(const struct rn_dry *dry, struct rn_dry_tail *tail, int32_t token)
{
    struct rn_view piece = dry->vocab == NULL ? (struct rn_view){0} : rn_vocab_piece(dry->vocab, token, true);
    char bytes[sizeof tail->bytes + LONGEST_PIECE];
    const char *text = dry->breakers;
    size_t cut = piece.n > LONGEST_PIECE ? piece.n - LONGEST_PIECE : 0, n = tail->n + piece.n - cut;
    bool found = false;

    if (piece.n == 0 || dry->n_breakers == 0)
        return false;
    memcpy(bytes, tail->bytes, tail->n);
    memcpy(bytes + tail->n, piece.bytes + cut, piece.n - cut);
    for (uint32_t i = 0; i < dry->n_breakers && !found; text += dry->sizes[i++])
        found = ends_in(bytes, n, tail->n, text, dry->sizes[i]);
    tail->n = (uint32_t)(n < sizeof tail->bytes ? n : sizeof tail->bytes);
    memcpy(tail->bytes, bytes + n - tail->n, tail->n);
    return found;
}

void rn_dry_add(struct rn_dry *dry, int32_t token)
{
    if (breaks(dry, &dry->tail, token))
        token |= BREAKS;
    dry->tokens[dry->n_tokens++ % dry->window] = token;
}

/* The sequence with a path behind it. */
struct view {
    const struct rn_dry *dry;
    int32_t path[RUNNEL_MAX_DRAFTS];
    uint64_t n;    /* tokens */
    uint64_t base; /* the token at the ring's first place, if it has come */
};

static int32_t token_at(const struct view *view, uint64_t i)
{
    const struct rn_dry *dry = view->dry;

    if (i >= dry->n_tokens)
        return view->path[i - dry->n_tokens];
    return dry->tokens[i >= view->base ? i - view->base : i + dry->window - view->base];
}

/* The end of the sequence, from its last token back, as far as a repetition can reach: a breaker ends it. */
struct end {
    int32_t tokens[RN_DRY_LONGEST];
    uint32_t same[RN_DRY_LONGEST]; /* how many from there on equal as many from the last; of 0 not asked */
    uint32_t n;
};

static void take_end(const struct view *view, uint64_t first, struct end *end)
{
    uint32_t from = 0, to = 0; /* the run of equal tokens that reaches furthest: those from `from` to `to` */

    end->n = 0;
    while (end->n < RN_DRY_LONGEST && end->n < view->n - first) {
        int32_t token = token_at(view, view->n - 1 - end->n);

        if (token < 0)
            break;
        end->tokens[end->n++] = token;
    }
    for (uint32_t i = 1; i < end->n; i++) {
        uint32_t n = i >= to ? 0 : end->same[i - from] < to - i ? end->same[i - from] : to - i;

        while (i + n < end->n && end->tokens[n] == end->tokens[i + n])
            n++;
        end->same[i] = n;
        if (i + n > to) {
            from = i;
            to = i + n;
        }
    }
}

/* For each place from the last but one back, how many tokens up to it equal as many at the end, none before `first`:
 * the Z-algorithm. What has been compared already, the tokens of the furthest run, says how long a run inside it is, so
 * each token is compared about once whatever the text is. */
uint32_t rn_dry_lengths(const struct rn_dry *dry, const int32_t *path, uint32_t n_path, uint32_t least,
                        int32_t *lengths, int32_t *touched)
{
    struct view view = {.dry = dry, .n = dry->n_tokens + n_path, .base = dry->n_tokens - dry->n_tokens % dry->window};
    struct rn_dry_tail tail = dry->tail;
    uint64_t first = view.n > dry->window ? view.n - dry->window : 0, n_places, from = 0, to = 0;
    uint32_t n_touched = 0;
    struct end end;

    RN_ASSERT(n_path <= RUNNEL_MAX_DRAFTS);
    for (uint32_t i = 0; i < n_path; i++)
        view.path[i] = breaks(dry, &tail, path[i]) ? path[i] | BREAKS : path[i];
    if (view.n - first < 2)
        return 0;
    take_end(&view, first, &end);
    n_places = end.n == 0 ? 0 : view.n - 1 - first;
    for (uint64_t i = 0; i < n_places; i++) { /* the token view.n - 2 - i */
        uint32_t n = i >= to ? 0 : end.same[i - from] < to - i ? end.same[i - from] : (uint32_t)(to - i);
        int32_t next;

        while (n < end.n && i + n < n_places && token_at(&view, view.n - 2 - i - n) == end.tokens[n])
            n++;
        if (i + n > to) {
            from = i;
            to = i + n;
        }
        if (n == 0 || n < least)
            continue;
        next = token_at(&view, view.n - 1 - i) & INT32_MAX;
        if ((int32_t)n <= lengths[next])
            continue;
        if (lengths[next] == 0)
            touched[n_touched++] = next;
        lengths[next] = (int32_t)n;
    }
    return n_touched;
}
