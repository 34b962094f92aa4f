/* Routed experts while steps run: see experts.h. */
#include "gpu/experts.h"

#include <string.h>

#include "base/check.h"
#include "gpu/expert_policy.h"
#include "gpu/ops.h"
#include "model/expert_use.h"

/* ---- Tables ---- */

static uint64_t address_of(const struct rn_gpu_experts *experts, const struct rn_gpu_expert_group *group,
                           const struct rn_gpu_expert_part *part, uint32_t expert)
{
    int32_t place = experts->place_of[group->first + expert];

    return place >= 0 ? rn_gpu_expert_place(experts, group, part, (uint32_t)place)
                      : (uintptr_t)(part->host + expert * part->bytes);
}

/* The group's tables to the device, behind what the stream has. `to`: pinned, as long as this may be under way. */
static int send_tables(struct rn_gpu_backend *backend, struct rn_gpu_expert_group *group, uint64_t *to)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    int result = RN_GPU_OK;

    for (uint32_t p = 0; p < group->n_parts && result == RN_GPU_OK; p++, to += group->experts) {
        for (uint32_t e = 0; e < group->experts; e++)
            to[e] = address_of(backend->experts, group, &group->parts[p], e);
        result = driver->copy_in(driver, rn_gpu_matrices(backend, (int32_t)group->parts[p].weight), to,
                                 group->experts * sizeof *to, backend->stream);
    }
    group->changed = result != RN_GPU_OK;
    return result;
}

/* Of all groups, or of those that have changed. */
static int send_all(struct rn_gpu_backend *backend, bool all)
{
    struct rn_gpu_experts *experts = backend->experts;
    uint64_t *to = experts->addresses + backend->n_submitted % RN_GPU_RING * experts->n_addresses;
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < experts->n_groups && result == RN_GPU_OK; i++) {
        struct rn_gpu_expert_group *group = &experts->groups[i];

        if (all || group->changed)
            result = send_tables(backend, group, to);
        to += group->n_parts * (uint64_t)group->experts;
    }
    return result;
}

int rn_gpu_experts_tables(struct rn_gpu_backend *backend)
{
    return backend->experts == NULL ? RN_GPU_OK : send_all(backend, true);
}

/* ---- Fetches ---- */

static void on_fetched(struct rn_gpu_stream *stream, int result, void *user)
{
    struct rn_gpu_fetch *fetch = user;

    (void)stream;
    atomic_store_explicit(&fetch->ended, result == RN_GPU_OK ? 1 : 2, memory_order_release);
}

/* The expert is in its place; or the place is empty. */
static void end_fetch(struct rn_gpu_experts *experts, struct rn_gpu_fetch *fetch, bool is_good)
{
    RN_ASSERT(experts->expert_of[fetch->place] == RN_EXPERT_COMING);
    experts->expert_of[fetch->place] = is_good ? (int32_t)fetch->expert : RN_EXPERT_NOWHERE;
    experts->place_of[fetch->expert] = is_good ? (int32_t)fetch->place : RN_EXPERT_NOWHERE;
    experts->is_here[RN_GPU_RING][fetch->expert] = is_good;
    if (is_good)
        experts->groups[fetch->group].changed = true;
    fetch->is_there = fetch->begins = false;
}

/* What has come since the last step. */
static void take_fetched(struct rn_gpu_backend *backend)
{
    struct rn_gpu_experts *experts = backend->experts;

    for (int i = 0; i < RN_GPU_FETCHES; i++) {
        struct rn_gpu_fetch *fetch = &experts->fetches[i];
        int ended = fetch->is_there ? atomic_load_explicit(&fetch->ended, memory_order_acquire) : 0;

        if (ended == 0)
            continue;
        if (ended == 1 && backend->limits.expert_use != NULL)
            rn_expert_use_note(&backend->limits.expert_use->fetched_bytes, experts->groups[fetch->group].place_bytes);
        end_fetch(experts, fetch, ended == 1);
    }
}

static struct rn_gpu_fetch *free_fetch(struct rn_gpu_experts *experts)
{
    for (int i = 0; i < RN_GPU_FETCHES; i++)
        if (!experts->fetches[i].is_there)
            return &experts->fetches[i];
    return NULL;
}

/* A place of the group that is empty; n_places: there is none. */
static uint32_t empty_place(const struct rn_gpu_experts *experts, const struct rn_gpu_expert_group *group)
{
    uint32_t at = group->first_place;

    while (at < group->first_place + group->n_places && experts->expert_of[at] != RN_EXPERT_NOWHERE)
        at++;
    return at < group->first_place + group->n_places ? at : experts->n_places;
}

/* One that goes is in the host's memory alone from this step on. */
static void choose_fetch(struct rn_gpu_experts *experts, uint32_t index)
{
    struct rn_gpu_expert_group *group = &experts->groups[index];
    struct rn_gpu_fetch *fetch = free_fetch(experts);
    uint32_t place = empty_place(experts, group), in, out;
    bool has_room = place < experts->n_places;

    if (fetch == NULL || !rn_expert_choose(experts->scores + group->first, experts->place_of + group->first,
                                           group->experts, has_room, &in, &out))
        return;
    in += group->first;
    out += group->first;
    if (!has_room) {
        place = (uint32_t)experts->place_of[out];
        experts->place_of[out] = RN_EXPERT_NOWHERE;
        experts->is_here[RN_GPU_RING][out] = 0;
        group->changed = true;
    }
    experts->place_of[in] = experts->expert_of[place] = RN_EXPERT_COMING;
    fetch->is_there = fetch->begins = true;
    fetch->group = index;
    fetch->expert = in;
    fetch->place = place;
    atomic_store_explicit(&fetch->ended, 0, memory_order_relaxed); /* nobody has it yet */
}

/* The scores of some groups with what has been used since; and what they want to have here. */
static void look(struct rn_gpu_experts *experts)
{
    for (uint32_t i = 0; i < RN_GPU_LOOKED_AT && i < experts->n_groups; i++) {
        uint32_t index = experts->next_group;
        struct rn_gpu_expert_group *group = &experts->groups[index];

        experts->next_group = (index + 1) % experts->n_groups;
        if (!group->counts || group->n_places == 0 || group->n_places == group->experts)
            continue;
        for (uint32_t e = 0; e < group->experts; e++) {
            uint32_t now = atomic_load_explicit(&experts->uses[group->first + e], memory_order_relaxed);

            experts->fresh[e] = now - experts->seen[group->first + e];
            experts->seen[group->first + e] = now;
        }
        rn_expert_scores_add(experts->scores + group->first, experts->fresh, group->experts, &group->age);
        choose_fetch(experts, index);
    }
}

/* The host's copy into the place, behind what the stream of fetches waits for. */
static int enqueue_fetch(struct rn_gpu_backend *backend, struct rn_gpu_fetch *fetch)
{
    struct rn_gpu_experts *experts = backend->experts;
    const struct rn_gpu_expert_group *group = &experts->groups[fetch->group];
    struct rn_gpu_driver *driver = backend->device->driver;
    int result = RN_GPU_OK;

    for (uint32_t p = 0; p < group->n_parts && result == RN_GPU_OK; p++) {
        const struct rn_gpu_expert_part *part = &group->parts[p];

        result =
            driver->copy_in(driver, rn_gpu_expert_place(experts, group, part, fetch->place),
                            part->host + (fetch->expert - group->first) * part->bytes, part->bytes, experts->stream);
    }
    return result == RN_GPU_OK ? driver->stream_callback(driver, experts->stream, on_fetched, fetch, 0) : result;
}

/* Those that begin with this step. One that cannot leaves its place empty, and the step fails. */
static int begin_fetches(struct rn_gpu_backend *backend, int result)
{
    struct rn_gpu_experts *experts = backend->experts;
    struct rn_gpu_driver *driver = backend->device->driver;
    bool waits = false;

    for (int i = 0; i < RN_GPU_FETCHES; i++) {
        struct rn_gpu_fetch *fetch = &experts->fetches[i];

        if (!fetch->begins)
            continue;
        if (result == RN_GPU_OK && !waits)
            result = driver->event_record(driver, experts->before, backend->stream);
        if (result == RN_GPU_OK && !waits)
            result = driver->stream_wait(driver, experts->stream, experts->before, 0);
        waits = true;
        if (result == RN_GPU_OK)
            result = enqueue_fetch(backend, fetch);
        if (result != RN_GPU_OK)
            end_fetch(experts, fetch, false); /* what is under way into the place ends before another one's copy */
        fetch->begins = false;
    }
    return result;
}

int rn_gpu_experts_step(struct rn_gpu_backend *backend)
{
    struct rn_gpu_experts *experts = backend->experts;

    if (experts == NULL)
        return RN_GPU_OK;
    take_fetched(backend);
    look(experts);
    memcpy(experts->is_here[backend->n_submitted % RN_GPU_RING], experts->is_here[RN_GPU_RING], experts->n_experts);
    return begin_fetches(backend, send_all(backend, false));
}

/* ---- Uses ---- */

static const struct rn_gpu_expert_group *group_of(const struct rn_gpu_experts *experts, const struct rn_op *op)
{
    for (uint32_t i = 0; i < experts->n_groups; i++)
        if (experts->groups[i].counts && experts->groups[i].layer == (uint32_t)op->layer &&
            experts->groups[i].experts == op->experts)
            return &experts->groups[i];
    return NULL;
}

void rn_gpu_experts_count(struct rn_gpu_backend *backend, const struct rn_op *op, const int32_t *ids, uint32_t n)
{
    struct rn_gpu_experts *experts = backend->experts;
    const struct rn_gpu_expert_group *group = experts == NULL ? NULL : group_of(experts, op);
    uint64_t n_ended = atomic_load_explicit(&backend->n_ended, memory_order_relaxed); /* by this thread */
    uint32_t n_hits = 0, n_misses = 0, expert, uses;
    const unsigned char *is_here;

    if (group == NULL)
        return;
    is_here = experts->is_here[n_ended % RN_GPU_RING];
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= group->experts)
            continue;
        expert = group->first + (uint32_t)ids[i];
        uses = atomic_load_explicit(&experts->uses[expert], memory_order_relaxed); /* nobody else writes it */
        atomic_store_explicit(&experts->uses[expert], uses + 1, memory_order_relaxed);
        if (is_here[expert] != 0)
            n_hits++;
        else
            n_misses++;
    }
    rn_expert_use_note(&backend->limits.expert_use->hits, n_hits);
    rn_expert_use_note(&backend->limits.expert_use->misses, n_misses);
}
