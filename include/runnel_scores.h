/* runnel: scores of rerankers and classifiers. */
#ifndef RUNNEL_SCORES_H
#define RUNNEL_SCORES_H

#include "runnel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the numbers of a model's head become. */
typedef enum runnel_score_form {
    RUNNEL_SCORES_OF_MODEL = 0,     /* probabilities where the head's numbers are logits of tokens (Qwen3's rerankers),
                                       else the numbers themselves: what llama.cpp gives */
    RUNNEL_SCORES_LOGITS = 1,       /* the numbers themselves */
    RUNNEL_SCORES_PROBABILITIES = 2 /* their softmax; of a single one its sigmoid */
} runnel_score_form;

/* One of text and tokens is given, and not empty. */
typedef struct runnel_score_request {
    size_t struct_size;
    const char *query; /* [query_bytes] UTF-8: how well does the text answer it? NULL: the text alone is classified */
    size_t query_bytes;
    const char *text; /* [text_bytes] UTF-8 */
    size_t text_bytes;
    const int32_t *tokens; /* instead of query and text: the ids of the whole prompt, taken as they are */
    size_t n_tokens;
    runnel_event_fn on_event; /* as in runnel_request, like all that is not explained here */
    void *user;
    const char *label;
    uint64_t cache_salt;
    uint64_t tenant;
    int32_t priority;
    uint32_t deadline_ms;
    runnel_score_form form;
    uint8_t parse_special; /* of a text without a query */
    uint8_t want_progress;
    uint8_t reserved[10];
    const char *adapter;
} runnel_score_request;

RUNNEL_API void runnel_score_request_init(runnel_score_request *request, size_t struct_size);
RUNNEL_API void runnel_score_request_default(runnel_score_request *request);
#define runnel_score_request_default(request) runnel_score_request_init((request), sizeof *(request))

/* The scores of a text, or of a text with a query. The stream has one EMBEDDING event, whose vector has a score for
 * each label of the model; the first one is the relevance that a reranker gives. It ends as that of runnel_embed, and
 * is as independent of what runs beside it.
 *
 * A query and a text are put into the file's template tokenizer.chat_template.rerank, at its {query} and {document};
 * neither can become a control token. Without a template the prompt is BOS, query, EOS, text, EOS, each mark where the
 * file asks for it; BERT's is [CLS] query [SEP] text [SEP]. A text alone is tokenized as by runnel_embed. The head
 * (tensors cls and cls.output) reads the last position, of models that see both ways the first, behind the model's
 * final norm: scores = cls.output · tanh(cls · x), or without cls: cls.output · x.
 *
 * Statuses as of runnel_generate, and UNSUPPORTED: the model has no head; FORMAT: its template has no place for a query
 * or a text. A prompt that is too long may be a FAILED event with CONTEXT. */
RUNNEL_API runnel_status runnel_score(runnel_model *model, const runnel_score_request *request, runnel_stream *stream,
                                      runnel_error *error);

typedef struct runnel_scores_info {
    size_t struct_size;   /* set by the caller to sizeof(runnel_scores_info) */
    uint32_t n_scores;    /* of a text */
    uint32_t n_labels;    /* that the file names: n_scores or 0 */
    uint8_t of_tokens;    /* 1: RUNNEL_SCORES_OF_MODEL gives probabilities */
    uint8_t has_template; /* 1: the file has a template for a query and a text */
    uint8_t reserved[6];
} runnel_scores_info;

/* Returns OK; INVALID; UNSUPPORTED: the model has no head; STATE: it is not loaded, or with vocab_only; CLOSED. */
RUNNEL_API runnel_status runnel_model_scores(runnel_model *model, runnel_scores_info *info);

/* The name of score `index` (GGUF: <architecture>.classifier.output_labels), as a part of what the model holds: valid
 * as long as the model, not NUL-terminated. Returns OK; INVALID; NOT_FOUND: it has no name; STATE; CLOSED. */
RUNNEL_API runnel_status runnel_model_label(runnel_model *model, uint32_t index, const char **text, size_t *text_bytes);

#ifdef __cplusplus
}
#endif

#endif
