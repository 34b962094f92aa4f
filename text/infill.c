/* The prompt of a model that fills a gap: see infill.h. */
#include "text/infill.h"

#include <string.h>

#include "base/check.h"

struct tokens {
    const struct rn_vocab *vocab;
    struct rn_heap *heap;
    int32_t *ids; /* [capacity], n of them used; owned */
    size_t n, capacity;
    runnel_error *error;
};

static runnel_status add_ids(struct tokens *to, const int32_t *ids, size_t n)
{
    size_t capacity = to->capacity;
    int32_t *grown = NULL;

    if (to->capacity - to->n < n) {
        capacity = 2 * capacity > to->n + n ? 2 * capacity : to->n + n;
        grown = rn_alloc(to->heap, capacity, sizeof *grown);
        if (grown == NULL)
            return rn_error_set(to->error, RUNNEL_NO_MEMORY, "no memory for the prompt");
        if (to->n > 0)
            memcpy(grown, to->ids, to->n * sizeof *grown);
        rn_free(to->heap, to->ids);
        to->ids = grown;
        to->capacity = capacity;
    }
    if (n > 0)
        memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += n;
    RN_ASSERT(to->n <= to->capacity);
    return RUNNEL_OK;
}

/* -1: nothing. */
static runnel_status add_id(struct tokens *to, int32_t id)
{
    return id >= 0 ? add_ids(to, &id, 1) : RUNNEL_OK;
}

static runnel_status add_text(struct tokens *to, const char *text, size_t n)
{
    int32_t *ids = NULL;
    size_t count = 0;
    runnel_status status;

    if (n == 0)
        return RUNNEL_OK;
    if (text == NULL)
        return rn_error_set(to->error, RUNNEL_INVALID, "infill: a text is NULL but has %zu bytes", n);
    status = rn_tokenize(to->vocab, to->heap, text, n, 0, &ids, &count, to->error);
    if (status == RUNNEL_OK)
        status = add_ids(to, ids, count);
    rn_free(to->heap, ids);
    return status;
}

/* The name of a file or of all, and the end of its line. */
static runnel_status add_name(struct tokens *to, const char *name)
{
    size_t n = strlen(name);
    char *line = rn_alloc(to->heap, n + 1, 1);
    runnel_status status;

    if (line == NULL)
        return rn_error_set(to->error, RUNNEL_NO_MEMORY, "no memory for the prompt");
    memcpy(line, name, n);
    line[n] = '\n';
    status = add_text(to, line, n + 1);
    rn_free(to->heap, line);
    return status;
}

static runnel_status add_file(struct tokens *to, const runnel_infill_file *file)
{
    static const char between[] = "\n\n--- snippet ---\n\n";
    int32_t mark = rn_vocab_fim(to->vocab, RN_FIM_FILE);
    runnel_status status;

    if (mark >= 0) {
        status = add_id(to, mark);
        if (status == RUNNEL_OK)
            status = add_name(to, file->name != NULL ? file->name : "tmp");
    } else {
        status = add_text(to, between, sizeof between - 1);
    }
    return status == RUNNEL_OK ? add_text(to, file->text, file->text_bytes) : status;
}

/* What stands around the file with the gap. */
static runnel_status add_others(struct tokens *to, const runnel_infill *infill)
{
    int32_t all = rn_vocab_fim(to->vocab, RN_FIM_REPOSITORY), mark = rn_vocab_fim(to->vocab, RN_FIM_FILE);
    runnel_status status = RUNNEL_OK;

    if (infill->repository != NULL && all >= 0) {
        status = add_id(to, all);
        if (status == RUNNEL_OK)
            status = add_name(to, infill->repository);
    }
    for (size_t i = 0; i < infill->n_files && status == RUNNEL_OK; i++)
        status = add_file(to, &infill->files[i]);
    if (status == RUNNEL_OK && infill->name != NULL && mark >= 0) {
        status = add_id(to, mark);
        if (status == RUNNEL_OK)
            status = add_name(to, infill->name);
    }
    return status;
}

static runnel_status add_part(struct tokens *to, const runnel_infill *infill, bool suffix)
{
    runnel_status status = add_id(to, rn_vocab_fim(to->vocab, suffix ? RN_FIM_SUFFIX : RN_FIM_PREFIX));

    if (status != RUNNEL_OK)
        return status;
    return suffix ? add_text(to, infill->suffix, infill->suffix_bytes)
                  : add_text(to, infill->prefix, infill->prefix_bytes);
}

static runnel_status add_all(struct tokens *to, const runnel_infill *infill)
{
    bool first = infill->suffix_first != 0;
    runnel_status status = add_id(to, rn_vocab_add_bos(to->vocab) ? rn_vocab_bos(to->vocab) : -1);

    if (status == RUNNEL_OK)
        status = add_others(to, infill);
    if (status == RUNNEL_OK)
        status = add_part(to, infill, first);
    if (status == RUNNEL_OK)
        status = add_part(to, infill, !first);
    return status == RUNNEL_OK ? add_id(to, rn_vocab_fim(to->vocab, RN_FIM_MIDDLE)) : status;
}

runnel_status rn_infill_tokenize(const struct rn_vocab *vocab, struct rn_heap *heap, const runnel_infill *infill,
                                 int32_t **tokens, size_t *count, runnel_error *error)
{
    static const char *const names[] = {"prefix", "suffix", "middle"};
    struct tokens to = {.vocab = vocab, .heap = heap, .error = error};
    runnel_status status;

    *tokens = NULL;
    *count = 0;
    for (int i = RN_FIM_PREFIX; i <= RN_FIM_MIDDLE; i++)
        if (rn_vocab_fim(vocab, i) < 0)
            return rn_error_set(error, RUNNEL_UNSUPPORTED,
                                "the model does not fill gaps: its file names no token for the %s "
                                "(tokenizer.ggml.fim_%.3s_token_id)",
                                names[i],
                                i == RN_FIM_PREFIX   ? "pre"
                                : i == RN_FIM_SUFFIX ? "suf"
                                                     : "mid");
    status = add_all(&to, infill);
    if (status != RUNNEL_OK) {
        rn_free(heap, to.ids);
        return status;
    }
    *tokens = to.ids;
    *count = to.n;
    return RUNNEL_OK;
}
