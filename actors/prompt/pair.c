/* Prompts of rerankers: see pair.h. */
#include "actors/prompt/pair.h"

#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

/* A place of the template. */
struct place {
    const char *at; /* NULL: there are no more */
    size_t bytes;   /* of its name */
    bool is_query;
};

static struct place next_place(const char *at, const char *end)
{
    static const char query[] = "{query}", text[] = "{document}";
    enum { QUERY = sizeof query - 1, TEXT = sizeof text - 1 };

    for (; at < end; at++) {
        if (*at != '{')
            continue;
        if (end - at >= QUERY && memcmp(at, query, QUERY) == 0)
            return (struct place){at, QUERY, true};
        if (end - at >= TEXT && memcmp(at, text, TEXT) == 0)
            return (struct place){at, TEXT, false};
    }
    return (struct place){NULL, 0, false};
}

/* Counts the places, and the bytes of the prompt; stops where these are too many, so that no sum overflows. */
static runnel_status measure(struct rn_pair *pair, struct rn_view tmpl, struct rn_view query, struct rn_view text,
                             uint64_t most, runnel_error *error)
{
    const char *end = tmpl.bytes + tmpl.n;
    bool has_query = false, has_text = false;
    uint64_t bytes = tmpl.n;

    for (struct place p = next_place(tmpl.bytes, end); p.at != NULL; p = next_place(p.at + p.bytes, end)) {
        bytes += (p.is_query ? query.n : text.n) - p.bytes;
        has_query |= p.is_query;
        has_text |= !p.is_query;
        pair->n_data++;
        if (bytes > most)
            break;
    }
    if (bytes > most)
        return rn_error_set(error, RUNNEL_CONTEXT, "the query and the text have %llu bytes or more, which never fit",
                            (unsigned long long)bytes);
    if (!has_query || !has_text)
        return rn_error_set(error, RUNNEL_FORMAT, "the model's template " RN_PAIR_TEMPLATE " has no place for a %s: %s",
                            has_query ? "text" : "query", has_query ? "{document}" : "{query}");
    pair->bytes = (size_t)bytes;
    return RUNNEL_OK;
}

static void fill(struct rn_pair *pair, struct rn_view tmpl, struct rn_view query, struct rn_view text)
{
    const char *from = tmpl.bytes, *end = tmpl.bytes + tmpl.n;
    char *to = pair->text;
    size_t i = 0;

    for (struct place p = next_place(from, end); p.at != NULL; p = next_place(from, end)) {
        struct rn_view in = p.is_query ? query : text;

        memcpy(to, from, (size_t)(p.at - from));
        to += p.at - from;
        pair->data[i].begin = (size_t)(to - pair->text);
        if (in.n > 0)
            memcpy(to, in.bytes, in.n);
        to += in.n;
        pair->data[i].end = (size_t)(to - pair->text);
        i += in.n > 0;
        from = p.at + p.bytes;
    }
    memcpy(to, from, (size_t)(end - from));
    RN_CHECK(i <= pair->n_data && (size_t)(to - pair->text) + (size_t)(end - from) == pair->bytes);
    pair->n_data = i;
}

static runnel_status join(struct rn_pair *pair, struct rn_view tmpl, struct rn_view query, struct rn_view text,
                          uint64_t most, runnel_error *error)
{
    runnel_status status = measure(pair, tmpl, query, text, most, error);

    if (status != RUNNEL_OK)
        return status;
    pair->text = rn_alloc(pair->heap, pair->bytes, 1);
    pair->data = rn_alloc(pair->heap, pair->n_data, sizeof *pair->data);
    if (pair->text == NULL || pair->data == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the prompt");
    fill(pair, tmpl, query, text);
    pair->joined = true;
    return RUNNEL_OK;
}

static runnel_status append(struct rn_pair *pair, struct rn_view query, struct rn_view text, uint64_t most,
                            runnel_error *error)
{
    if ((uint64_t)query.n + text.n > most)
        return rn_error_set(error, RUNNEL_CONTEXT, "the query and the text have %llu bytes, which never fit",
                            (unsigned long long)query.n + text.n);
    pair->bytes = query.n + text.n;
    pair->query_bytes = query.n;
    pair->text = rn_alloc(pair->heap, pair->bytes + 1, 1);
    if (pair->text == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the prompt");
    if (query.n > 0)
        memcpy(pair->text, query.bytes, query.n);
    if (text.n > 0)
        memcpy(pair->text + query.n, text.bytes, text.n);
    return RUNNEL_OK;
}

runnel_status rn_pair_new(struct rn_heap *heap, struct rn_view tmpl, struct rn_view query, struct rn_view text,
                          uint64_t most, struct rn_pair **out, runnel_error *error)
{
    struct rn_pair *pair;
    runnel_status status;

    if (!rn_utf8_valid(query.bytes, query.n) || !rn_utf8_valid(text.bytes, text.n))
        return rn_error_set(error, RUNNEL_INVALID, "the query or the text is not UTF-8");
    pair = rn_calloc(heap, 1, sizeof *pair);
    if (pair == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the prompt");
    pair->heap = heap;
    status = tmpl.n > 0 ? join(pair, tmpl, query, text, most, error) : append(pair, query, text, most, error);
    if (status == RUNNEL_OK)
        *out = pair;
    else
        rn_pair_free(pair);
    return status;
}

void rn_pair_free(struct rn_pair *pair)
{
    if (pair == NULL)
        return;
    rn_free(pair->heap, pair->text);
    rn_free(pair->heap, pair->data);
    rn_free(pair->heap, pair);
}

static void put(int32_t *ids, size_t *n, const int32_t *more, size_t n_more)
{
    if (n_more > 0)
        memcpy(ids + *n, more, n_more * sizeof *ids);
    *n += n_more;
}

static runnel_status tokenize_apart(const struct rn_pair *pair, const struct rn_vocab *vocab,
                                    const struct rn_interrupt *stop, int32_t **tokens, size_t *count,
                                    runnel_error *error)
{
    const struct rn_tokenize_text query_text = {.text = pair->text, .n = pair->query_bytes};
    const struct rn_tokenize_text document = {.text = pair->text + pair->query_bytes,
                                              .n = pair->bytes - pair->query_bytes};
    enum { MARKS = 3 };
    int32_t bos = rn_vocab_bos(vocab), between[MARKS], behind[MARKS], *query = NULL, *text = NULL, *all = NULL;
    size_t n_bos = rn_vocab_add_bos(vocab) && bos >= 0, n_between = rn_vocab_ends(vocab, true, between);
    size_t n_behind = rn_vocab_ends(vocab, false, behind);
    size_t n_query = 0, n_text = 0, n = 0;
    runnel_status status = rn_tokenize_until(vocab, pair->heap, &query_text, stop, &query, &n_query, error);

    if (status == RUNNEL_OK)
        status = rn_tokenize_until(vocab, pair->heap, &document, stop, &text, &n_text, error);
    if (status == RUNNEL_OK) {
        all = rn_alloc(pair->heap, n_query + n_text + 1 + 2 * MARKS, sizeof *all);
        status = all != NULL ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the prompt");
    }
    if (status == RUNNEL_OK) {
        put(all, &n, &bos, n_bos);
        put(all, &n, query, n_query);
        put(all, &n, between, n_between);
        put(all, &n, text, n_text);
        put(all, &n, behind, n_behind);
        *tokens = all;
        *count = n;
    }
    rn_free(pair->heap, query);
    rn_free(pair->heap, text);
    return status;
}

runnel_status rn_pair_tokenize(const struct rn_pair *pair, const struct rn_vocab *vocab,
                               const struct rn_interrupt *stop, int32_t **tokens, size_t *count, runnel_error *error)
{
    const struct rn_tokenize_text joined = {pair->text, pair->bytes, 0, true, pair->data, pair->n_data};

    return pair->joined ? rn_tokenize_until(vocab, pair->heap, &joined, stop, tokens, count, error)
                        : tokenize_apart(pair, vocab, stop, tokens, count, error);
}
