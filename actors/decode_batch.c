/* One step's batch: first a row of each running sequence, in turn, then chunks of prompts, in turn.
 *
 *   rows:  | r3 | r4 | r0 | r1 | prompt A, chunk of 120 ............ | prompt B, 8 |
 *            └ running, from the cursor on ┘  └ what is left of max_rows ┘
 *
 * While prompts wait, running sequences take at most three quarters of the rows and of the wanted rows, so
 * that a prompt always advances. A sequence without credit (its reader is behind) is left out. Nothing here
 * changes what a row computes (law 5), only when. */
#include "actors/decode_batch.h"

#include "actors/engine.h"

static int32_t credit_of(const struct rn_decode *decode, const struct rn_request *request)
{
    return decode->credits[request->slot].n;
}

static struct rn_batch_part *add_part(struct rn_batch *batch, struct rn_request *request, bool prompt)
{
    struct rn_batch_part *part = &batch->parts[batch->n_parts];

    *part = (struct rn_batch_part){.request = request, .prompt = prompt};
    batch->step.seqs[batch->n_parts] = (struct rn_step_seq){request->blocks, request->n_blocks};
    if (request->copy == RN_COPY_WANTED)
        batch->step.copies[batch->step.n_copies++] =
            (struct rn_step_copy){request->copy_from, request->blocks[request->copy_at]};
    batch->n_parts++;
    request->in_step = true;
    return part;
}

static void add_row(struct rn_batch *batch, struct rn_batch_part *part, bool sample, float *keep_logits)
{
    struct rn_request *request = part->request;
    struct rn_step_row *row = &batch->step.rows[batch->step.n_rows++];

    row->token = request->tokens[request->n_done];
    row->position = request->n_done;
    row->seq = (uint32_t)(part - batch->parts);
    row->out = -1;
    if (sample || keep_logits != NULL) {
        row->out = (int32_t)batch->step.n_outs;
        batch->outs[batch->step.n_outs++] = (struct rn_batch_out){
            .request = request, .position = row->position, .sample = sample, .keep_logits = keep_logits};
        part->n_outs++;
    }
    part->n_rows++;
    request->n_done++;
}

/* Of `most`, what the running sequences may take. */
static uint32_t share(const struct rn_decode *decode, uint32_t most)
{
    return decode->prompts.n > 0 ? most - most / 4 : most;
}

static void add_running(struct rn_decode *decode)
{
    struct rn_batch *batch = &decode->batch;
    const struct rn_backend_limits *limits = &decode->model->parts.limits;
    uint32_t max_rows = share(decode, limits->max_rows), max_outs = share(decode, limits->max_outs);
    uint32_t n = decode->n_running;
    uint32_t first = decode->cursor;

    for (uint32_t i = 0; i < n; i++) {
        struct rn_request *request = decode->running[(first + i) % n];

        if (batch->step.n_rows == max_rows || batch->step.n_outs == max_outs || batch->n_parts == limits->max_seqs)
            break;
        decode->cursor = (first + i + 1) % n;
        if (credit_of(decode, request) > 0)
            add_row(batch, add_part(batch, request, false), true, NULL);
    }
}

/* Rows of the prompt that this step can take: bounded by the rows left and, where each row gives an
 * event, by the reader's credits and the outs left. */
static uint32_t chunk_rows(const struct rn_decode *decode, const struct rn_request *request)
{
    const struct rn_backend_limits *limits = &decode->model->parts.limits;
    const struct rn_step *step = &decode->batch.step;
    uint32_t left = request->n_prompt - request->n_done;
    uint32_t rows = limits->max_rows - step->n_rows;
    uint32_t outs = limits->max_outs - step->n_outs;
    int32_t credit = credit_of(decode, request) - request->want_progress - 1; /* progress, and the first token */
    uint32_t n = left < rows ? left : rows;

    if (credit < 0 || outs == 0)
        return 0;
    if (request->want_logits) {
        n = n < outs ? n : outs;
        n = n < (uint32_t)credit ? n : (uint32_t)credit;
    }
    return n;
}

static float *next_logits(struct rn_decode *decode, struct rn_request *request)
{
    size_t n_vocab = decode->model->parts.n_vocab;

    return request->want_logits ? request->logits + (request->n_scored++ % request->n_logits_rows) * n_vocab : NULL;
}

static void add_chunk(struct rn_decode *decode, struct rn_request *request, uint32_t n)
{
    struct rn_batch_part *part = add_part(&decode->batch, request, true);

    for (uint32_t i = 0; i < n; i++) {
        bool last = request->n_done + 1 == request->n_prompt;

        add_row(&decode->batch, part, last && request->n_prompt < request->n_limit, next_logits(decode, request));
    }
    request->last_chunk = request->n_done == request->n_prompt;
    rn_counter_add(&decode->model->engine->totals.prompt_tokens, n);
}

static void add_prompts(struct rn_decode *decode)
{
    const struct rn_backend_limits *limits = &decode->model->parts.limits;

    for (uint32_t turns = decode->prompts.n; turns > 0; turns--) {
        struct rn_request *request;
        uint32_t n;

        if (decode->batch.step.n_rows == limits->max_rows || decode->batch.n_parts == limits->max_seqs)
            break;
        request = rn_request_pop(&decode->prompts);
        rn_request_push(&decode->prompts, request); /* the next one is first in the next step */
        n = chunk_rows(decode, request);
        if (n > 0)
            add_chunk(decode, request, n);
    }
}

bool rn_batch_compose(struct rn_decode *decode)
{
    struct rn_batch *batch = &decode->batch;

    batch->n_parts = 0;
    batch->step.n_rows = batch->step.n_outs = batch->step.n_copies = 0;
    add_running(decode);
    add_prompts(decode);
    batch->step.n_seqs = batch->n_parts;
    return batch->step.n_rows > 0;
}
