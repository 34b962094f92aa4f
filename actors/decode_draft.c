/* Decode's side of drafting: see decode_draft.h. */
#include "actors/decode_draft.h"

#include <string.h>

#include "actors/context.h"
#include "actors/decode_actor.h"
#include "actors/decode_batch.h"
#include "base/check.h"

#define NEWS_TOKENS 4096u     /* of one list: a long prompt goes in several */
#define PROMPT_FEATURES 512u  /* of so many positions at its end */
#define TRIAL 2u              /* guesses that a stream waits for when it tries again */
#define TRIAL_ACCEPTANCE 0.9f /* what it would have to find */
#define PATIENCE 4u           /* so many times what a wait should take ... */
#define PATIENCE_US 2000u     /* ... and this are waited at most */
#define READ_SHARE 0.5f       /* of a purse, for what is to be read: the other half finds out whether that was of use */
#define READ_PROMPT 0.03125f  /* of the time that the model takes for a prompt */
#define READ_BESIDE 16.0f     /* steps, where nobody waits for it but its own first guess */
#define LEAD 4u /* steps of a rest, the last ones, whose features are wanted: a head needs little of the past */

static struct rn_draft_lane *lane_of(const struct rn_decode *decode, const struct rn_request *request)
{
    return &decode->drafting.lanes[request->slot];
}

/* Does the draft actor work for it? */
static bool is_begun(const struct rn_decode *decode, const struct rn_request *request)
{
    return decode->drafting.drafter != NULL && lane_of(decode, request)->begun &&
           lane_of(decode, request)->generation == request->generation;
}

/* ---- Begin and end ---- */

static void note_ending(struct rn_drafting *drafting, uint32_t slot)
{
    struct rn_draft_lane *lane = &drafting->lanes[slot];

    lane->begun = lane->changed = false;
    drafting->n_begun--;
    if (!lane->told)
        return;
    RN_CHECK(!lane->ending);
    lane->ending = true;
    drafting->endings[drafting->n_endings++] = slot;
}

void rn_drafting_begin(struct rn_decode *decode, const struct rn_request *request)
{
    struct rn_drafting *drafting = &decode->drafting;
    struct rn_draft_lane *lane;

    if (drafting->drafter == NULL || !request->draft_model || drafting->failed)
        return;
    lane = lane_of(decode, request);
    /* One whose end is still to be told waits for a later step to begin. */
    if (lane->begun || lane->ending || drafting->n_begun == drafting->drafter->limits.max_seqs)
        return;
    *lane = (struct rn_draft_lane){.generation = request->generation, .begun = true, .changed = true};
    drafting->n_begun++;
}

void rn_drafting_end(struct rn_decode *decode, const struct rn_request *request)
{
    if (is_begun(decode, request))
        note_ending(&decode->drafting, request->slot);
}

/* ---- Features ---- */

static bool reads_features(const struct rn_decode *decode)
{
    return decode->drafting.drafter != NULL && decode->drafting.drafter->kind == RN_DRAFTER_FEATURES;
}

/* It will not draft for a while: it rests, or its purse does not pay for a pass that the step waits for. */
static bool is_at_rest(const struct rn_decode *decode, const struct rn_request *request)
{
    const struct rn_speculation *speculation = &request->model_speculation;
    float step_us = rn_step_cost_of(&decode->cost, decode->n_running);

    if (speculation->rest > 0)
        return speculation->rest > LEAD;
    return !decode->drafting.drafter->concurrent && step_us > 0 &&
           speculation->purse * step_us < (float)decode->drafting.pass_us;
}

bool rn_drafting_wants_features(const struct rn_decode *decode, const struct rn_request *request, uint32_t position)
{
    return reads_features(decode) && is_begun(decode, request) &&
           (request->n_done < request->n_fill || !is_at_rest(decode, request)) &&
           (request->n_fill < PROMPT_FEATURES || position >= request->n_fill - PROMPT_FEATURES);
}

void rn_drafting_settle(struct rn_decode *decode)
{
    if (decode->drafting.filling != NULL)
        decode->drafting.full = decode->drafting.filling;
    decode->drafting.filling = NULL;
}

void rn_drafting_settle_part(struct rn_decode *decode, const struct rn_batch_part *part)
{
    const struct rn_request *request = part->request;
    struct rn_draft_lane *lane;

    if (!reads_features(decode) || part->n_features == 0 || !is_begun(decode, request))
        return;
    lane = lane_of(decode, request);
    lane->n_positions = part->prompt ? part->n_features : 1 + part->n_accepted;
    lane->features_at = part->prompt ? part->n_done - part->n_features : part->n_done - 1;
    lane->features = part->features;
    lane->strayed = part->strayed; /* each of its rows has features */
    lane->changed = true;
}

/* ---- Guesses ---- */

/* What is left of the line behind the request's tokens. */
static struct rn_guesses rest_of(const struct rn_guess_line *line, const struct rn_request *request)
{
    struct rn_guesses none = {0};
    uint32_t n;

    if (line->first > request->n_tokens || line->first + line->n <= request->n_tokens)
        return none;
    n = request->n_tokens - line->first;
    if (n > 0 && memcmp(line->guesses, request->tokens + line->first, n * sizeof line->guesses[0]) != 0)
        return none;
    return (struct rn_guesses){line->n - n, line->guesses + n, line->seconds + n};
}

struct rn_guesses rn_drafting_guesses(const struct rn_decode *decode, const struct rn_request *request)
{
    struct rn_guesses guesses = {0};

    if (!is_begun(decode, request))
        return guesses;
    for (uint32_t i = 0; i < RN_GUESS_LINES && guesses.n == 0; i++)
        guesses = rest_of(&lane_of(decode, request)->lines[i], request);
    return guesses;
}

static void take_guesses(struct rn_drafting *drafting, const struct rn_drafts *item)
{
    struct rn_draft_lane *lane = &drafting->lanes[item->slot];

    if (lane->generation != item->generation || !lane->begun)
        return;
    lane->state = item->state;
    lane->read_us += item->read_us;
    memcpy(lane->lines, item->lines, sizeof lane->lines);
}

void rn_drafting_on_drafts(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = (struct rn_decode *)self;
    struct rn_drafting *drafting = &decode->drafting;
    const struct rn_drafts_list *list = msg->drafts.list;

    for (uint32_t i = 0; i < list->n; i++)
        take_guesses(drafting, &list->items[i]);
    drafting->pass_us = list->step_us;
    drafting->answered = list->answers;
    drafting->failed |= list->failed;
    msg->head.kind = RN_MSG_DRAFTS_BACK;
    rn_actor_send(decode->context->draft, msg);
}

/* ---- Holding a step back ---- */

static bool is_waiting(const struct rn_drafting *drafting)
{
    return drafting->serial != drafting->answered && !drafting->failed;
}

/* Of one running sequence: it is one that may draft (an outlook more), or that does not, or that cannot run. */
static uint32_t look_at(struct rn_decode *decode, struct rn_request *request, uint32_t n, uint32_t *n_plain)
{
    struct rn_drafting *drafting = &decode->drafting;
    uint32_t most;

    if (!rn_batch_can_step(decode, request))
        return n;
    most = rn_batch_draft_room(decode, request);
    if (!is_begun(decode, request) || lane_of(decode, request)->state != RN_DRAFTS_READY || most == 0 ||
        request->model_speculation.rest > 0 || rn_batch_has_drafts(decode, request)) {
        (*n_plain)++;
        return n;
    }
    drafting->money += request->model_speculation.purse;
    drafting->outlooks[n] = (struct rn_outlook){
        .acceptance = request->model_speculation.acceptance,
        .n = rn_drafting_guesses(decode, request).n,
        .most = most,
    };
    if (request->model_speculation.trial) {
        drafting->outlooks[n].acceptance = TRIAL_ACCEPTANCE;
        drafting->outlooks[n].most = most < TRIAL ? most : TRIAL;
    }
    return n + 1;
}

/* Steps grow by a few rows at a time: each stream has its share of them. */
static void bound_rows(struct rn_decode *decode, uint32_t n, uint32_t n_plain)
{
    uint32_t reach = rn_step_cost_reach(&decode->cost), more = reach > n + n_plain ? reach - n - n_plain : 0;

    for (uint32_t i = 0; i < n; i++) {
        struct rn_outlook *outlook = &decode->drafting.outlooks[i];
        uint32_t share = more / n + (i < more % n);

        outlook->most = outlook->most < share ? outlook->most : share;
    }
}

/* Passes for which the streams have the money: a step of t tokens that takes so much longer costs t times that share. */
static uint32_t affordable(const struct rn_decode *decode, uint32_t n_rows)
{
    const struct rn_drafting *drafting = &decode->drafting;
    float price = (float)n_rows * (float)drafting->pass_us / rn_step_cost_of(&decode->cost, n_rows);

    return drafting->money > price ? (uint32_t)(drafting->money / price) : 0;
}

/* Those that wait share what it costs. */
static void pay(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;
    uint64_t us = rn_now_us(decode->context->clock) - drafting->asked_us;
    uint64_t read_us = (uint64_t)(drafting->drafter->row_us * (float)(RN_DRAFT_LAG * drafting->n_waiting));
    uint64_t most = (uint64_t)2 * drafting->passes * drafting->pass_us + read_us; /* beyond it was held up */
    float price =
        (float)drafting->n_rows * (float)(us < most ? us : most) / rn_step_cost_of(&decode->cost, drafting->n_rows);

    drafting->unpaid = false;
    for (uint32_t i = 0; i < decode->n_running; i++)
        if (is_begun(decode, decode->running[i]) && lane_of(decode, decode->running[i])->waited)
            decode->running[i]->model_speculation.purse -= price / (float)drafting->n_waiting;
}

/* Those that could wait, and for which waiting does not pay: a drafter that only works while it is waited for has
 * nothing for them. They try again later. */
static void let_rest(struct rn_decode *decode)
{
    for (uint32_t i = 0; i < decode->n_running; i++) {
        struct rn_request *request = decode->running[i];

        if (rn_batch_can_step(decode, request) && is_begun(decode, request) &&
            lane_of(decode, request)->state == RN_DRAFTS_READY && request->model_speculation.rest == 0 &&
            rn_batch_draft_room(decode, request) > 0 && rn_drafting_guesses(decode, request).n == 0)
            rn_speculation_rest(&request->model_speculation);
    }
}

static void ask(struct rn_decode *decode, uint32_t passes)
{
    struct rn_drafting *drafting = &decode->drafting;

    for (uint32_t i = 0; i < decode->n_running; i++) {
        struct rn_request *request = decode->running[i];
        struct rn_draft_lane *lane;
        uint32_t most, want;

        if (!is_begun(decode, request) || request->model_speculation.rest > 0 || !rn_batch_can_step(decode, request))
            continue;
        lane = lane_of(decode, request);
        most = rn_batch_draft_room(decode, request);
        want = rn_drafting_guesses(decode, request).n + passes;
        lane->want = want < most ? want : most;
        lane->n_flying = lane->leaves = 0;
        lane->flying = false;
        lane->changed = lane->waits = lane->waited = true;
    }
    drafting->serial++;
    drafting->must_tell = true;
    drafting->asked_us = rn_now_us(decode->context->clock);
    drafting->unpaid = true;
    drafting->patience_us = PATIENCE_US + PATIENCE * passes * drafting->pass_us;
}

bool rn_drafting_holds(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;
    uint32_t n = 0, n_plain = 0, passes;
    struct rn_wait wait;

    if (reads_features(decode) && drafting->free_lists == NULL)
        return true; /* the step's features would have no place */
    if (drafting->drafter == NULL || drafting->n_begun == 0 || drafting->failed)
        return false;
    if (is_waiting(drafting))
        return true;
    if (drafting->waited || decode->prompts.n > 0 || drafting->pass_us == 0)
        return false;
    rn_batch_count_spare(decode);
    drafting->money = 0;
    for (uint32_t i = 0; i < decode->n_running; i++)
        n = look_at(decode, decode->running[i], n, &n_plain);
    if (n == 0)
        return false;
    wait = (struct rn_wait){.streams = drafting->outlooks,
                            .n_streams = n,
                            .n_plain = n_plain,
                            .cost = &decode->cost,
                            .pass_us = drafting->pass_us,
                            .beside = drafting->drafter->concurrent};
    wait.most_passes = affordable(decode, n + n_plain);
    bound_rows(decode, n, n_plain);
    passes = rn_wait_passes(&wait);
    if (passes == 0) {
        /* it may pay when there is money, or the others come in: until then those are awake, not at rest */
        wait.n_plain = 0;
        if (!wait.beside && wait.most_passes > 0 && rn_wait_passes(&wait) == 0)
            let_rest(decode);
        return false;
    }
    drafting->n_rows = n + n_plain;
    drafting->n_waiting = n;
    drafting->passes = passes;
    ask(decode, passes);
    drafting->waited = true;
    return true;
}

/* ---- What may be read ---- */

/* What the model itself is still to compute of what the request begins with. */
static float prompt_us(const struct rn_decode *decode, const struct rn_request *request)
{
    uint32_t rows = request->n_fill > request->n_done ? request->n_fill - request->n_done : 0;
    uint32_t most = decode->context->limits->max_rows, chunk = rows < most ? rows : most;

    return rows == 0 ? 0 : rn_step_cost_of(&decode->cost, chunk) * (float)rows / (float)chunk;
}

/* What a token is worth, in time: all running streams wait while one's past is read. */
static float token_us(const struct rn_decode *decode)
{
    uint32_t n = decode->n_running > 0 ? decode->n_running : 1;

    return rn_step_cost_of(&decode->cost, n) / (float)n;
}

/* What reading the rest of the request's past may cost now. */
static float may_read_us(const struct rn_decode *decode, const struct rn_request *request)
{
    float purse = request->model_speculation.purse;

    if (decode->drafting.drafter->concurrent)
        return READ_BESIDE * rn_step_cost_of(&decode->cost, 1) + prompt_us(decode, request);
    return lane_of(decode, request)->free_us + (purse > 0 ? READ_SHARE * purse * token_us(decode) : 0);
}

/* For what was read. */
static void pay_reading(struct rn_decode *decode, struct rn_request *request)
{
    struct rn_draft_lane *lane = lane_of(decode, request);
    float us = lane->read_us < lane->free_us ? 0 : lane->read_us - lane->free_us;

    lane->free_us -= lane->read_us - us;
    lane->read_us = 0;
    if (us > 0 && !decode->drafting.drafter->concurrent)
        request->model_speculation.purse -= us / token_us(decode);
}

/* ---- News ---- */

/* The step writes its features into a list of its own. */
static void take_filling(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;

    drafting->filling = drafting->free_lists;
    drafting->free_lists = drafting->filling->next;
    decode->batch->step.features = drafting->filling->features;
}

/* Of the step that is about to begin; 0: nobody knows. While it is in flight the batch is not decode's to look at. */
static uint64_t expected_end_us(const struct rn_decode *decode)
{
    float takes_us = rn_step_cost_of(&decode->cost, decode->batch->step.n_rows);

    return takes_us > 0 ? rn_now_us(decode->context->clock) + (uint64_t)takes_us : 0;
}

void rn_drafting_step(struct rn_decode *decode)
{
    const struct rn_batch *batch = decode->batch;
    struct rn_drafting *drafting = &decode->drafting;

    if (drafting->drafter == NULL)
        return;
    drafting->waited = false;
    if (reads_features(decode) && batch->step.n_features > 0)
        take_filling(decode);
    drafting->ends_us = expected_end_us(decode);
    if (drafting->unpaid)
        pay(decode); /* behind the choice of lengths: who has paid for drafts is to take them */
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        const struct rn_batch_part *part = &batch->parts[i];
        struct rn_draft_lane *lane = lane_of(decode, part->request);

        if (!is_begun(decode, part->request)) {
            if (!part->prompt)
                rn_drafting_begin(decode, part->request);
            continue;
        }
        lane->flying = !part->prompt;
        lane->n_flying = part->n_drafts;
        lane->leaves = part->leaves;
        lane->want = part->request->model_speculation.rest > 0 ? 0 : part->request->draft_max;
        lane->waits = lane->waited = false;
        if (lane->read_us > 0)
            pay_reading(decode, part->request);
        /* one that takes turns needs to know nothing while nobody waits, once it is through with the past */
        lane->changed |= drafting->drafter->concurrent || lane->state != RN_DRAFTS_READY || drafting->pass_us == 0;
    }
}

static bool add_ending(struct rn_drafting *drafting, struct rn_news_list *list, uint32_t slot)
{
    struct rn_draft_lane *lane = &drafting->lanes[slot];

    if (list->n == list->capacity)
        return false;
    list->items[list->n++] = (struct rn_news){.slot = slot, .generation = lane->generation, .ended = true};
    lane->ending = lane->told = false;
    return true;
}

/* What is new of one stream, as far as there is room. */
static void add_news(struct rn_decode *decode, struct rn_news_list *list, const struct rn_request *request)
{
    struct rn_draft_lane *lane;
    struct rn_news *news;
    bool begins;
    uint32_t n;

    if (!is_begun(decode, request))
        return;
    lane = lane_of(decode, request);
    if (!lane->changed || list->n == list->capacity ||
        (list->n_tokens == list->token_capacity && lane->n_positions == 0)) {
        lane->n_positions = 0; /* they were the list's; without them it begins behind the gap */
        return;
    }
    news = &list->items[list->n++];
    begins = !lane->told;
    n = request->n_tokens - lane->n_told;
    n = n < list->token_capacity - list->n_tokens ? n : list->token_capacity - list->n_tokens;
    *news = (struct rn_news){.slot = request->slot,
                             .generation = request->generation,
                             .waits = lane->waits,
                             .begins = begins,
                             .n_limit = request->n_limit,
                             .first = lane->n_told,
                             .n_tokens = n,
                             .tokens = list->tokens + list->n_tokens,
                             .n_flying = lane->n_flying,
                             .leaves = lane->leaves,
                             .flying = lane->flying,
                             .want = lane->want,
                             .odds = rn_odds_of(&request->model_speculation),
                             .features_at = lane->features_at,
                             .n_positions = lane->n_positions,
                             .strayed = lane->strayed};
    if (news->n_positions > 0)
        news->features = list->features + (size_t)lane->features * decode->context->row_features;
    lane->n_positions = 0;
    lane->told = true;
    if (begins) {
        news->sampling = rn_sampler_plain(request->sampler);
        news->salt = request->cache_salt;
        lane->free_us = READ_PROMPT * prompt_us(decode, request);
    }
    news->read_us = may_read_us(decode, request);
    memcpy(list->tokens + list->n_tokens, request->tokens + lane->n_told, n * sizeof list->tokens[0]);
    list->n_tokens += n;
    lane->n_told += n;
    lane->changed = news->more = lane->n_told < request->n_tokens;
}

static void send(struct rn_decode *decode, struct rn_news_list *list)
{
    struct rn_msg *msg = rn_msg_new(decode->actor.runtime, RN_MSG_NEWS);

    list->step_us = (uint32_t)rn_step_cost_of(&decode->cost, 1);
    list->ends_us = decode->in_flight ? decode->drafting.ends_us : 0;
    msg->news.list = list;
    rn_actor_send(decode->context->draft, msg);
}

void rn_drafting_tell(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;
    struct rn_news_list *list = drafting->full != NULL ? drafting->full : drafting->free_lists;

    if (drafting->drafter == NULL || list == NULL || drafting->closing)
        return;
    if (list == drafting->full)
        drafting->full = NULL;
    else
        drafting->free_lists = list->next;
    list->n = list->n_tokens = list->serial = 0;
    while (drafting->n_endings > 0 && add_ending(drafting, list, drafting->endings[drafting->n_endings - 1]))
        drafting->n_endings--;
    for (uint32_t i = 0; i < decode->n_running; i++)
        add_news(decode, list, decode->running[i]);
    for (const struct rn_request *r = decode->prompts.first; r != NULL; r = r->next)
        add_news(decode, list, r);
    if (drafting->must_tell) {
        drafting->must_tell = false;
        list->serial = drafting->serial;
        list->patience_us = drafting->patience_us;
    }
    if (list->n > 0 || list->serial != 0) {
        send(decode, list);
        return;
    }
    list->next = drafting->free_lists;
    drafting->free_lists = list;
}

void rn_drafting_on_news_back(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = (struct rn_decode *)self;
    struct rn_drafting *drafting = &decode->drafting;
    struct rn_news_list *list = msg->news.list;

    drafting->closed |= list->closing;
    list->next = drafting->free_lists;
    drafting->free_lists = list;
    rn_msg_free(self->runtime, msg);
}

bool rn_drafting_close(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;
    struct rn_news_list *list = drafting->free_lists;

    if (drafting->drafter == NULL || drafting->closed)
        return true;
    if (drafting->closing || list == NULL)
        return false;
    drafting->closing = true;
    drafting->free_lists = list->next;
    list->n = list->n_tokens = list->serial = 0;
    list->closing = true;
    send(decode, list);
    return false;
}

/* ---- Life ---- */

static runnel_status take_lists(struct rn_drafting *drafting, const struct rn_context *context)
{
    struct rn_heap *heap = context->heap;
    size_t n_features = (size_t)context->limits->max_rows * context->row_features;

    for (uint32_t i = 0; i < RN_NEWS_LISTS; i++) {
        struct rn_news_list *list = &drafting->lists[i];

        list->capacity = 2 * drafting->drafter->limits.max_seqs;
        list->token_capacity = NEWS_TOKENS;
        list->items = rn_alloc(heap, list->capacity, sizeof list->items[0]);
        list->tokens = rn_alloc(heap, list->token_capacity, sizeof list->tokens[0]);
        if (drafting->drafter->n_features > 0)
            list->features = rn_alloc(heap, n_features, sizeof(float));
        if (list->items == NULL || list->tokens == NULL || (drafting->drafter->n_features > 0 && !list->features))
            return RUNNEL_NO_MEMORY;
        list->next = drafting->free_lists;
        drafting->free_lists = list;
    }
    return RUNNEL_OK;
}

runnel_status rn_drafting_init(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;
    const struct rn_context *context = decode->context;

    if (decode->context->drafter->kind == RN_DRAFTER_NONE)
        return RUNNEL_OK;
    drafting->drafter = decode->context->drafter;
    drafting->pass_us = drafting->drafter->pass_us;
    drafting->lanes = rn_calloc(context->heap, context->max_streams, sizeof drafting->lanes[0]);
    drafting->endings = rn_alloc(context->heap, context->max_streams, sizeof drafting->endings[0]);
    drafting->outlooks = rn_alloc(context->heap, context->max_streams, sizeof drafting->outlooks[0]);
    if (drafting->lanes == NULL || drafting->endings == NULL || drafting->outlooks == NULL)
        return RUNNEL_NO_MEMORY;
    return take_lists(drafting, context);
}

void rn_drafting_fini(struct rn_decode *decode)
{
    struct rn_drafting *drafting = &decode->drafting;
    struct rn_heap *heap = decode->context->heap;

    rn_free(heap, drafting->lanes);
    rn_free(heap, drafting->endings);
    rn_free(heap, drafting->outlooks);
    for (uint32_t i = 0; i < RN_NEWS_LISTS; i++) {
        rn_free(heap, drafting->lists[i].items);
        rn_free(heap, drafting->lists[i].tokens);
        rn_free(heap, drafting->lists[i].features);
    }
}
