/* Admission as a whole: see admission.h. */
#include "actors/tier/admission.h"

#include "actors/context.h"
#include "actors/tier/session_slot.h"
#include "base/check.h"

runnel_status rn_admission_init(struct rn_admission *admission, const struct rn_context *context,
                                struct rn_prefix_cache *cache)
{
    struct rn_heap *heap = context->heap;

    *admission = (struct rn_admission){.context = context, .cache = cache, .blocks = &cache->blocks};
    admission->streams = rn_calloc(heap, context->max_streams, sizeof admission->streams[0]);
    admission->inside = rn_alloc(heap, context->max_streams, sizeof admission->inside[0]);
    admission->tokens = rn_alloc(heap, context->limits->context_tokens, sizeof *admission->tokens);
    if (admission->streams != NULL && admission->inside != NULL && admission->tokens != NULL)
        return RUNNEL_OK;
    rn_admission_fini(admission);
    return RUNNEL_NO_MEMORY;
}

void rn_admission_fini(struct rn_admission *admission)
{
    struct rn_heap *heap = admission->context->heap;

    rn_free(heap, admission->streams);
    rn_free(heap, admission->inside);
    rn_free(heap, admission->tokens);
}

void rn_admission_end(struct rn_admission *admission, struct rn_request *request)
{
    RN_ASSERT(request->outcome != RN_OUTCOME_NONE);
    RN_ASSERT(!rn_admission_is_inside(admission, request->slot, request->generation));
    rn_prefix_cache_leave(admission->cache, request); /* it may be waiting for another's blocks */
    rn_request_send(request, rn_request_end_actor(request), RN_MSG_END);
}

bool rn_admission_is_inside(const struct rn_admission *admission, uint32_t slot, uint32_t generation)
{
    RN_ASSERT(slot < admission->context->max_streams && generation != 0);
    return admission->streams[slot].passed == generation;
}

bool rn_admission_has_waiting(const struct rn_admission *admission)
{
    return admission->waiting.n > 0 || admission->n_wanting > 0;
}

/* ---- Check ---- */

static bool check_inside(const struct rn_admission *admission)
{
    uint32_t n_inside = 0, n_wanting = 0, n_preempting = 0;

    for (uint32_t slot = 0; slot < admission->context->max_streams; slot++) {
        const struct rn_admission_stream *stream = &admission->streams[slot];

        n_wanting += stream->n_wanted > 0;
        n_preempting += stream->preempting;
        if (stream->passed == 0) {
            if (stream->n_wanted > 0 || stream->preempting)
                return false;
            continue;
        }
        n_inside++;
        if (stream->place >= admission->n_inside || admission->inside[stream->place] != slot)
            return false;
    }
    return n_inside == admission->n_inside && n_wanting == admission->n_wanting &&
           n_preempting == admission->n_preempting;
}

/* In order, each once, and none of them inside. */
static bool check_waiting(const struct rn_admission *admission)
{
    if (!rn_fair_queue_check(&admission->waiting))
        return false;
    for (const struct rn_request *r = admission->waiting.first; r != NULL; r = r->next)
        if (rn_admission_is_inside(admission, r->slot, r->generation) || r->n_blocks > 0)
            return false;
    return true;
}

static bool check_sessions(const struct rn_admission *admission)
{
    for (const struct rn_session *s = admission->sessions; s != NULL; s = s->next) {
        if ((s->next != NULL && s->next->before != s) || s->n_computed > s->n_tokens ||
            (s->n_blocks > 0 && s->blocks == NULL) ||
            (!s->busy && rn_tier_blocks_for(admission->blocks, s->n_computed) > s->n_blocks) ||
            (rn_word_get(&s->generation) & 1) == 0)
            return false;
        for (uint32_t i = 0; i < s->n_blocks; i++)
            if (rn_block_pool_references(&admission->blocks->pool, s->blocks[i]) == 0)
                return false;
    }
    return true;
}

/* What waits to be taken is of a session's copy or of an export, in the order of arrival; a copy is busy until then. */
static bool check_snapshots(const struct rn_admission *admission)
{
    uint64_t order = 0;

    for (const struct rn_snapshot *s = admission->snapshots; s != NULL; order = s->order, s = s->next)
        if ((s->next == NULL && s != admission->last_snapshot) || (s->copy != NULL) == (s->request != NULL) ||
            s->order <= order || s->order > admission->orders ||
            (s->copy != NULL && (!s->copy->busy || s->copy->n_blocks > 0)))
            return false;
    return true;
}

bool rn_admission_check(const struct rn_admission *admission)
{
    return check_inside(admission) && check_waiting(admission) && check_sessions(admission) &&
           check_snapshots(admission) && admission->leaving == NULL &&
           (admission->n_preempting == 0 || admission->n_inside > 0);
}
