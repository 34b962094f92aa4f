/* The oracle model: see oracle_backend.h. */
#include "tests/sim/oracle_backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/kv_size.h"
#include "model/stop.h"
#include "tests/sim/oracle_checks.h"
#include "tests/sim/oracle_device.h"
#include "tests/sim/oracle_draw.h"

#define POISON 0xdeadbeefcafef00dull

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ (b * 0x9e3779b97f4a7c15ull);

    return rn_splitmix64(&state);
}

static uint64_t kv_after(uint64_t previous, int32_t token, uint32_t position)
{
    return mix(previous, (uint64_t)(uint32_t)token << 32 | position);
}

static int32_t token_of(uint64_t sum, const struct oracle_alphabet *alphabet)
{
    return alphabet->bytes[mix(sum, 1) % alphabet->n];
}

void oracle_chain_init(struct oracle_chain *chain, uint64_t salt)
{
    *chain = (struct oracle_chain){.kv = salt};
}

void oracle_chain_push(struct oracle_chain *chain, int32_t token)
{
    chain->kv = kv_after(chain->kv, token, chain->position++);
    chain->sum += chain->kv;
}

int32_t oracle_chain_next(const struct oracle_chain *chain, const struct oracle_alphabet *alphabet)
{
    return token_of(chain->sum, alphabet);
}

void oracle_chain_write(const struct oracle_chain *chain, float features[ORACLE_FEATURES])
{
    for (uint32_t i = 0; i < 4; i++) {
        features[i] = (float)(chain->kv >> 16 * i & 0xffff);
        features[4 + i] = (float)(chain->sum >> 16 * i & 0xffff);
    }
    features[8] = (float)chain->position;
}

struct oracle_chain oracle_chain_read(const float features[ORACLE_FEATURES])
{
    struct oracle_chain chain = {.position = (uint32_t)features[8]};

    for (uint32_t i = 0; i < 4; i++) {
        chain.kv |= (uint64_t)features[i] << 16 * i;
        chain.sum |= (uint64_t)features[4 + i] << 16 * i;
    }
    return chain;
}

void oracle_foretell(const struct oracle *oracle, uint64_t sum, int32_t *token, int32_t *second)
{
    *token = *second = token_of(sum, &oracle->alphabet);
    if (mix(sum, 2) % 100 < oracle->wrong_percent)
        *token = (*token + 1) % ORACLE_VOCAB;
    if (*second == *token || mix(sum, 3) % 100 >= oracle->second_percent)
        *second = (*token + 1 + (int32_t)(mix(sum, 4) % 50)) % ORACLE_VOCAB;
}

/* ---- The backend ---- */

static void submit_async(struct rn_backend *backend, struct rn_step *step)
{
    struct oracle *oracle = (struct oracle *)backend;

    if (oracle->freed)
        oracle_breach(oracle, "a step was submitted to a freed backend");
    if (oracle_step_good(oracle, step))
        oracle_check_moves(oracle, step);
    if (oracle->breach == NULL)
        oracle_check_copies(oracle, step);
    if (oracle->breach == NULL)
        oracle_check_states(oracle, step);
    step->next = NULL;
    if (oracle->last != NULL)
        oracle->last->next = step;
    else
        oracle->first = step;
    oracle->last = step;
    oracle->n_steps++;
    if (++oracle->n_flying > oracle->caps.ring)
        oracle_breach(oracle, "more steps are in flight than the device takes");
    if (oracle->device != NULL && oracle->breach == NULL)
        oracle->device->begin(oracle->device, step);
    if (oracle->n_flying > oracle->most_flying)
        oracle->most_flying = oracle->n_flying;
    if (oracle->submitted != NULL)
        oracle->submitted(oracle->user, oracle);
}

static void free_backend(struct rn_backend *backend)
{
    struct oracle *oracle = (struct oracle *)backend;

    if (oracle->freed)
        oracle_breach(oracle, "the backend was freed twice");
    if (oracle->first != NULL || oracle->first_copies != NULL)
        oracle_breach(oracle, "the backend was freed with a step in flight, or a copy");
    oracle->freed = true;
}

/* ---- Blocks as a whole ---- */

static uint64_t *block_at(const struct oracle *oracle, uint32_t block)
{
    return &oracle->kv[(size_t)block * oracle->limits.block_tokens];
}

static size_t block_bytes(const struct rn_backend *backend)
{
    const struct oracle_device *device = ((const struct oracle *)backend)->device;

    if (device != NULL)
        return device->block_bytes(device);
    return ((const struct oracle *)backend)->limits.block_tokens * sizeof(uint64_t);
}

static const char *layout(const struct rn_backend *backend)
{
    return ((const struct oracle *)backend)->layout;
}

static bool is_there(struct oracle *oracle, const struct rn_host_copy *copy)
{
    if (copy->block < oracle->limits.n_blocks && copy->n_positions <= oracle->limits.block_tokens &&
        (!copy->to_host || copy->n_positions > 0))
        return true;
    oracle_breach(oracle, "a block is copied that is not there");
    return false;
}

static void copy_block(struct oracle *oracle, const struct rn_host_copy *copy)
{
    size_t bytes = block_bytes(&oracle->backend);

    if (!is_there(oracle, copy)) {
        return;
    } else if (copy->to_host) {
        memset(copy->host, 0, bytes);
        memcpy(copy->host, block_at(oracle, copy->block), copy->n_positions * sizeof(uint64_t));
    } else {
        memcpy(block_at(oracle, copy->block), copy->host, bytes);
    }
}

static void copy_state(struct oracle *oracle, const struct rn_host_copy *copy)
{
    if (copy->block >= oracle->limits.n_states)
        oracle_breach(oracle, "a state is copied that is not there");
    else if (copy->to_host)
        memcpy(copy->host, &oracle->states[copy->block], sizeof oracle->states[0]);
    else
        memcpy(&oracle->states[copy->block], copy->host, sizeof oracle->states[0]);
}

static size_t state_bytes(const struct rn_backend *backend)
{
    return ((const struct oracle *)backend)->limits.n_states > 0 ? sizeof(uint64_t) : 0;
}

/* The device's list ends before its failure is made up: where it goes to is worth nothing then. */
static void end_list(struct oracle *oracle, struct rn_host_copies *copies)
{
    if (oracle->device->await_copies(oracle->device, copies) == RUNNEL_OK)
        return;
    copies->status = RUNNEL_DEVICE;
    if (!oracle->device->may_fail)
        oracle_breach(oracle, "the device has failed to copy");
}

static void begin_list(struct oracle *oracle, struct rn_host_copies *copies)
{
    for (uint32_t i = 0; i < copies->n; i++)
        is_there(oracle, &copies->items[i]);
    oracle->device->begin_copies(oracle->device, copies);
}

static void run_list(struct oracle *oracle, struct rn_host_copies *copies)
{
    copies->status = oracle->copy_fails ? RUNNEL_DEVICE : RUNNEL_OK;
    if (oracle->device != NULL)
        end_list(oracle, copies);
    for (uint32_t i = 0; i < copies->n && !oracle->copy_fails && oracle->device == NULL; i++)
        if (copies->items[i].is_state)
            copy_state(oracle, &copies->items[i]);
        else
            copy_block(oracle, &copies->items[i]);
    oracle->copy_fails = false;
    oracle->n_host_copies += copies->n;
    copies->on_done(copies);
}

void oracle_copy(struct oracle *oracle)
{
    struct rn_host_copies *copies = oracle->first_copies;

    oracle->first_copies = copies->next;
    run_list(oracle, copies);
}

static void copy_async(struct rn_backend *backend, struct rn_host_copies *copies)
{
    struct oracle *oracle = (struct oracle *)backend;

    if (oracle->freed || copies->n == 0)
        oracle_breach(oracle, "an empty list of copies, or one for a freed backend");
    if (oracle->device != NULL)
        begin_list(oracle, copies);
    if (oracle->copying == NULL || !oracle->copying(oracle->user, oracle, copies)) {
        run_list(oracle, copies);
        return;
    }
    copies->next = NULL;
    if (oracle->first_copies != NULL)
        oracle->last_copies->next = copies;
    else
        oracle->first_copies = copies;
    oracle->last_copies = copies;
}

static void *host_alloc(struct rn_backend *backend, size_t bytes)
{
    struct oracle_device *device = ((struct oracle *)backend)->device;

    return device != NULL ? device->host_alloc(device, bytes) : malloc(bytes);
}

static void host_free(struct rn_backend *backend, void *memory)
{
    if (((struct oracle *)backend)->freed)
        oracle_breach((struct oracle *)backend, "memory is given back to a freed backend");
    if (((struct oracle *)backend)->device != NULL)
        ((struct oracle *)backend)->device->host_free(((struct oracle *)backend)->device, memory);
    else
        free(memory);
}

static bool draws_with(const struct rn_backend *backend, const runnel_sampling *sampling)
{
    const struct oracle_device *device = ((const struct oracle *)backend)->device;

    return device == NULL || device->can_draw(device, sampling);
}

/* Nothing of the step is computed: what it would have written becomes rubbish. */
static bool is_lost(enum oracle_fault fault)
{
    return fault == ORACLE_FAULT_DEVICE || fault == ORACLE_FAULT_STOPPED;
}

static runnel_status status_of(enum oracle_fault fault)
{
    return fault == ORACLE_FAULT_DEVICE ? RUNNEL_DEVICE : fault == ORACLE_FAULT_STOPPED ? RUNNEL_CANCELLED : RUNNEL_OK;
}

static void run_copies(struct oracle *oracle, const struct rn_step *step, enum oracle_fault fault)
{
    for (uint32_t i = 0; i < step->n_copies; i++)
        if (is_lost(fault))
            oracle_poison_block(oracle, step->copies[i].to);
        else
            memcpy(block_at(oracle, step->copies[i].to), block_at(oracle, step->copies[i].from),
                   block_bytes(&oracle->backend));
}

static const struct rn_device_caps oracle_caps = {
    .can = RN_CAN_TREES | RN_CAN_MEANS | RN_CAN_WINDOWS | RN_CAN_FEATURES | RN_CAN_INPUTS | RN_CAN_DRAW | RN_CAN_STATE,
    .kv_types = 1u << RUNNEL_KV_F16,
    .max_rows = UINT32_MAX,
    .max_outs = UINT32_MAX,
    .good_outs = 64,
    .good_ring = 1,
    .ring = ORACLE_RING,
    .draw_threads = 3,
};

static const struct rn_backend_ops oracle_ops = {
    .name = "oracle",
    .submit_async = submit_async,
    .can_draw = draws_with,
    .free = free_backend,
    .block_bytes = block_bytes,
    .layout = layout,
    .state_bytes = state_bytes,
    .copy_async = copy_async,
    .host_alloc = host_alloc,
    .host_free = host_free,
};

/* Entry i of a table: a position's of seq->blocks, a chunk's of seq->means. */
static uint64_t *at(const struct oracle *oracle, const uint32_t *table, uint32_t i)
{
    uint32_t per_block = oracle->limits.block_tokens;

    return &oracle->kv[(size_t)table[i / per_block] * per_block + i % per_block];
}

static uint64_t *kv_at(const struct oracle *oracle, const struct rn_step_seq *seq, uint32_t position)
{
    return at(oracle, seq->blocks, position);
}

/* Of positions [from, to), or of chunks. */
static uint64_t sum_of(const struct oracle *oracle, const uint32_t *table, uint32_t from, uint32_t to)
{
    uint64_t sum = 0;

    for (uint32_t i = from; i < to; i++)
        sum += *at(oracle, table, i);
    return sum;
}

static void run_moves(struct oracle *oracle, const struct rn_step *step, enum oracle_fault fault)
{
    for (uint32_t i = 0; i < step->n_moves; i++) {
        const struct rn_step_seq *seq = &step->seqs[step->moves[i].seq];

        *kv_at(oracle, seq, step->moves[i].to) = is_lost(fault) ? POISON : *kv_at(oracle, seq, step->moves[i].from);
    }
}

/* What attention is here: of all that the row sees. */
static uint64_t seen_by(const struct oracle *oracle, const struct rn_step *step, uint32_t r)
{
    const struct rn_step_seq *seq = &step->seqs[step->rows[r].seq];
    uint32_t position = step->rows[r].position, root = step->rows[rn_step_first(step, r)].position;
    struct rn_chunk_span span = rn_chunk_span(oracle->limits.mean_window, position, 0);
    uint64_t sum = sum_of(oracle, seq->blocks, span.sink, span.sink_end) +
                   sum_of(oracle, seq->means, span.from, span.to) +
                   sum_of(oracle, seq->blocks, span.first, step->parents == NULL ? position + 1 : root);

    for (int32_t a = (int32_t)r; step->parents != NULL && a >= 0; a = step->parents[a])
        sum += *kv_at(oracle, seq, rn_step_place(step, (uint32_t)a));
    return sum;
}

/* What a head's row has come to: its input, and its token behind it. */
static struct oracle_chain goes_on(struct oracle *oracle, const struct rn_step *step, uint32_t r)
{
    const struct rn_step_row *row = &step->rows[r];
    struct oracle_chain chain = oracle_chain_read(step->inputs + (size_t)r * ORACLE_FEATURES);

    if (row->position > 0 && *kv_at(oracle, &step->seqs[row->seq], row->position - 1) != chain.kv)
        oracle_breach(oracle, "a head's row has features that are not of the row before");
    oracle_chain_push(&chain, row->token);
    return chain;
}

/* What row r has come to, once it is computed. */
static struct oracle_chain state_of(struct oracle *oracle, const struct rn_step *step, uint32_t r)
{
    const struct rn_step_row *row = &step->rows[r];

    if (oracle->is_head)
        return goes_on(oracle, step, r);
    return (struct oracle_chain){.kv = *kv_at(oracle, &step->seqs[row->seq], rn_step_place(step, r)),
                                 .sum = seen_by(oracle, step, r),
                                 .position = row->position + 1};
}

static void write_features(struct oracle *oracle, const struct rn_step *step)
{
    for (uint32_t i = 0; i < step->n_features; i++) {
        struct oracle_chain chain = state_of(oracle, step, step->feature_rows[i]);

        oracle_chain_write(&chain, step->features + (size_t)i * ORACLE_FEATURES);
    }
}

static void write_logits(struct oracle *oracle, const struct rn_step *step, uint32_t r, float *logits)
{
    int32_t token, second;

    oracle_foretell(oracle, state_of(oracle, step, r).sum, &token, &second);
    memset(logits, 0, ORACLE_VOCAB * sizeof *logits);
    logits[token] = ORACLE_HOT;
    if (oracle->second_percent > 0)
        logits[second] = ORACLE_HOT - 1;
}

/* What the row's past has come to: its parent's, or that of the position before. */
static uint64_t kv_before(const struct oracle *oracle, const struct rn_step *step, uint32_t r)
{
    const struct rn_step_seq *seq = &step->seqs[step->rows[r].seq];
    uint32_t position = step->rows[r].position;

    if (position == 0)
        return oracle->salt;
    if (step->parents == NULL || step->parents[r] < 0)
        return *kv_at(oracle, seq, position - 1);
    return *kv_at(oracle, seq, rn_step_place(step, (uint32_t)step->parents[r]));
}

static uint64_t kv_of(struct oracle *oracle, const struct rn_step *step, uint32_t r)
{
    const struct rn_step_row *row = &step->rows[r];

    return oracle->is_head ? goes_on(oracle, step, r).kv
                           : kv_after(kv_before(oracle, step, r), row->token, row->position);
}

/* The step's own place, or the oracle's. */
static float *logits_of(struct oracle *oracle, const struct rn_step *step, uint32_t out)
{
    return (step->logits != NULL ? step->logits : oracle->logits) + (size_t)out * ORACLE_VOCAB;
}

static void copy_states(struct oracle *oracle, const struct rn_step *step)
{
    for (uint32_t i = 0; i < step->n_state_copies; i++) {
        const struct rn_step_state_copy *copy = &step->state_copies[i];

        oracle->states[copy->to] = copy->from == RN_NO_STATE ? 0 : oracle->states[copy->from];
    }
}

/* The state behind row r, whose KV is there. */
static void run_state(struct oracle *oracle, const struct rn_step *step, uint32_t r, enum oracle_fault fault)
{
    const struct rn_step_row *row = &step->rows[r];
    const struct rn_step_seq *seq = &step->seqs[row->seq];
    uint64_t *state = &oracle->states[step->states[row->seq]];

    if (*state != (row->position == 0 ? 0 : *kv_at(oracle, seq, row->position - 1)) && !is_lost(fault))
        oracle_breach(oracle, "a sequence's state is not that of its tokens");
    *state = is_lost(fault) ? POISON : *kv_at(oracle, seq, row->position);
}

/* What layers with windows are here. */
static void run_window(struct oracle *oracle, const struct rn_step *step, uint32_t r, enum oracle_fault fault)
{
    const struct rn_step_row *row = &step->rows[r];
    const struct rn_step_seq *seq = &step->seqs[row->seq];
    uint32_t per_block = oracle->limits.block_tokens, window = oracle->limits.window;

    for (uint32_t i = row->position + 1 > window ? row->position + 1 - window : 0; i <= row->position; i++) {
        uint32_t block = i / per_block < seq->n_windows ? seq->windows[i / per_block] : RN_NO_BLOCK;
        uint64_t *seen = &oracle->windows[(size_t)block * per_block + i % per_block];

        if (block >= oracle->limits.n_windows) {
            oracle_breach(oracle, "a row sees a window that has no block");
            return;
        }
        if (i == row->position)
            *seen = *kv_at(oracle, seq, i);
        else if (*seen != *kv_at(oracle, seq, i) && !is_lost(fault))
            oracle_breach(oracle, "a window is not that of its sequence");
    }
}

static void run_row(struct oracle *oracle, struct rn_step *step, uint32_t r, enum oracle_fault fault)
{
    const struct rn_step_row *row = &step->rows[r];
    const struct rn_step_seq *seq = &step->seqs[row->seq];
    float *logits;

    *kv_at(oracle, seq, rn_step_place(step, r)) = is_lost(fault) ? POISON : kv_of(oracle, step, r);
    if (oracle->limits.n_states > 0)
        run_state(oracle, step, r, fault);
    if (oracle->limits.window > 0)
        run_window(oracle, step, r, fault);
    if (rn_chunk_ends(oracle->limits.mean_window, row->position))
        *at(oracle, seq->means, row->position / RN_CHUNK) =
            sum_of(oracle, seq->blocks, row->position + 1 - RN_CHUNK, row->position + 1);
    if (row->out < 0 || is_lost(fault))
        return;
    logits = logits_of(oracle, step, (uint32_t)row->out);
    write_logits(oracle, step, r, logits);
    if (fault == ORACLE_FAULT_NAN && (uint32_t)row->out == step->n_outs - 1)
        logits[row->position % ORACLE_VOCAB] = NAN;
}

/* From the parameters, the coin's name and what counts. */
static void draw_itself(struct oracle *oracle, struct rn_step *step, uint32_t out, const float *logits)
{
    struct rn_draw *draw = &step->draws[out];
    struct rn_sampler *sampler;
    struct rn_pick pick;

    if (draw->status == RUNNEL_OK && draw->keep_logits != NULL)
        memcpy(draw->keep_logits, logits, ORACLE_VOCAB * sizeof *logits);
    if (draw->status != RUNNEL_OK || !draw->wanted)
        return;
    sampler = oracle_sampler(oracle, step, out);
    if (sampler == NULL) {
        oracle_breach(oracle, "no memory for a draw");
        return;
    }
    draw->status =
        rn_sampler_pick(sampler, oracle->scratch, logits, draw->position, draw->want_logprob, draw->want_top, &pick);
    rn_sampler_free(sampler);
    draw->token = pick.token;
    draw->logprob = pick.logprob;
    draw->n_top = pick.n_top;
    memcpy(draw->top, pick.top, pick.n_top * sizeof pick.top[0]);
    oracle->n_own_draws++;
}

/* In an order of the step's own, with any of the scratch areas. */
static void draw_all(struct oracle *oracle, struct rn_step *step, enum oracle_fault fault)
{
    uint64_t seed = mix(oracle->salt, oracle->n_drawn_steps++);
    uint32_t at = (uint32_t)(seed % (step->n_outs == 0 ? 1 : step->n_outs));

    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs; i++) {
        uint32_t out = (seed >> 40 & 1) != 0 ? (at + i) % step->n_outs : (at + step->n_outs - i) % step->n_outs;

        if (is_lost(fault))
            step->draws[out].status = status_of(fault);
        else if (oracle->scratch != NULL)
            draw_itself(oracle, step, out, logits_of(oracle, step, out));
        else
            rn_draw_one(step, out, logits_of(oracle, step, out), ORACLE_VOCAB,
                        (uint32_t)(mix(seed, i) % step->drawer->n_scratch));
    }
    oracle->n_drawn = rn_draw_keep(step, oracle->drawn);
}

/* It was stopped, and the device has seen it. */
static bool is_stopped(struct oracle *oracle, const struct rn_step *step)
{
    return rn_stop_is_set(step->stop) && mix(oracle->salt, oracle->n_steps) % 100 >= oracle->deaf_percent;
}

/* What the device has made of the step; where that is lost, rubbish, once the step behind it has run, too. A draw has
 * what its row depends on: the device does not know of steps that are lost. What became of the step. */
static enum oracle_fault take(struct oracle *oracle, struct rn_step *step, enum oracle_fault fault)
{
    enum { MOST_OUTS = 64 };
    struct oracle_device *device = oracle->device;
    runnel_status fates[MOST_OUTS];

    if (step->n_outs > MOST_OUTS)
        oracle_breach(oracle, "more draws than there is room for");
    rn_draw_chain(step, oracle->drawn, oracle->n_drawn);
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs && i < MOST_OUTS; i++)
        fates[i] = step->draws[i].status;
    if (device->await(device, step) != RUNNEL_OK) {
        fault = ORACLE_FAULT_DEVICE;
        if (!device->may_fail)
            oracle_breach(oracle, "the device has failed");
    }
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs && i < MOST_OUTS; i++) {
        oracle->n_own_draws += step->draws[i].wanted;
        if (is_lost(fault) || fates[i] != RUNNEL_OK)
            step->draws[i].status = is_lost(fault) ? status_of(fault) : fates[i];
    }
    oracle->n_drawn = rn_draw_keep(step, oracle->drawn);
    if (!is_lost(fault))
        return fault;
    device->settle(device);
    run_copies(oracle, step, fault);
    for (uint32_t r = 0; r < step->n_rows; r++) {
        uint32_t place = rn_step_place(step, r), per_block = oracle->limits.block_tokens;

        device->poison(device, step->seqs[step->rows[r].seq].blocks[place / per_block], place % per_block, POISON);
    }
    return fault;
}

void oracle_complete(struct oracle *oracle, enum oracle_fault fault)
{
    struct rn_step *step = oracle->first;

    if (fault == ORACLE_FAULT_NONE && is_stopped(oracle, step))
        fault = ORACLE_FAULT_STOPPED;
    oracle->n_stopped += fault == ORACLE_FAULT_STOPPED;
    oracle->first = step->next;
    oracle->n_flying--;
    if (oracle->first == NULL)
        oracle->last = NULL;
    if (oracle->device != NULL) {
        if (oracle_step_good(oracle, step))
            fault = take(oracle, step, fault);
    } else if (oracle_step_good(oracle, step)) {
        rn_draw_chain(step, oracle->drawn, oracle->n_drawn);
        run_copies(oracle, step, fault);
        copy_states(oracle, step);
        run_moves(oracle, step, fault);
        for (uint32_t i = 0; i < step->n_rows; i++)
            run_row(oracle, step, i, fault);
        if (!is_lost(fault))
            write_features(oracle, step);
        draw_all(oracle, step, fault);
    }
    oracle->n_copies += step->n_copies;
    step->status = oracle->breach != NULL ? RUNNEL_DEVICE : status_of(fault);
    step->on_done(step);
}

void oracle_poison_block(struct oracle *oracle, uint32_t block)
{
    uint32_t per_block = oracle->limits.block_tokens;

    for (uint32_t i = 0; i < per_block && oracle->device != NULL; i++)
        oracle->device->poison(oracle->device, block, i, POISON + i);
    for (uint32_t i = 0; i < per_block && oracle->device == NULL; i++)
        oracle->kv[(size_t)block * per_block + i] = POISON + i;
}

void oracle_poison_window(struct oracle *oracle, uint32_t block)
{
    uint32_t per_block = oracle->limits.block_tokens;

    for (uint32_t i = 0; i < per_block; i++)
        oracle->windows[(size_t)block * per_block + i] = POISON - i;
}

void oracle_poison_state(struct oracle *oracle, uint32_t slot)
{
    oracle->states[slot] = POISON + slot;
}

struct oracle *oracle_new(const struct rn_backend_limits *limits, const struct oracle_alphabet *alphabet, uint64_t salt)
{
    struct oracle *oracle = calloc(1, sizeof *oracle);

    if (oracle == NULL)
        return NULL;
    oracle->caps = oracle_caps;
    oracle->backend = (struct rn_backend){&oracle_ops, &oracle->caps};
    rn_heap_init(&oracle->heap, NULL);
    oracle->limits = *limits;
    oracle->alphabet = *alphabet;
    oracle->salt = salt;
    snprintf(oracle->layout, sizeof oracle->layout, "oracle %016llx", (unsigned long long)salt);
    oracle->kv = malloc((size_t)limits->n_blocks * limits->block_tokens * sizeof *oracle->kv);
    oracle->drawn = calloc(limits->max_outs + 1, sizeof *oracle->drawn);
    oracle->logits = malloc((limits->max_outs + 1) * ORACLE_VOCAB * sizeof *oracle->logits);
    oracle->states = malloc((limits->n_states + 1) * sizeof *oracle->states);
    oracle->windows = calloc((size_t)limits->n_windows * limits->block_tokens + 1, sizeof *oracle->windows);
    if (oracle->kv == NULL || oracle->windows == NULL || oracle->states == NULL || oracle->drawn == NULL ||
        oracle->logits == NULL) {
        oracle_free(oracle);
        return NULL;
    }
    for (uint32_t i = 0; i < limits->n_blocks; i++)
        oracle_poison_block(oracle, i);
    for (uint32_t i = 0; i < limits->n_states; i++)
        oracle->states[i] = POISON + i;
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    if (oracle == NULL)
        return;
    if (oracle->device != NULL)
        oracle->device->free(oracle->device);
    free(oracle->kv);
    free(oracle->states);
    free(oracle->windows);
    free(oracle->drawn);
    free(oracle->logits);
    rn_sampler_scratch_free(oracle->scratch);
    free(oracle);
}

bool oracle_draw_itself(struct oracle *oracle)
{
    oracle->caps.can |= RN_CAN_DRAW_ITSELF;
    oracle->caps.draw_threads = 0;
    oracle->scratch = rn_sampler_scratch_new(&oracle->heap, ORACLE_VOCAB);
    return oracle->scratch != NULL;
}

void oracle_attach(struct oracle *oracle, struct oracle_device *device)
{
    oracle->device = device;
    oracle->caps.ring = device->ring;
    for (uint32_t i = 0; i < oracle->limits.n_blocks; i++)
        oracle_poison_block(oracle, i);
}
