/* Where routed experts lie, and the memory for it: see experts.h. */
#include <sched.h>
#include <string.h>

#include "base/check.h"
#include "gpu/expert_policy.h"
#include "gpu/experts.h"
#include "gpu/steps.h"
#include "model/expert_use.h"

/* ---- Groups ---- */

static bool is_same_tensor(const struct rn_plan *plan, int32_t a, int32_t b)
{
    return plan->weights[a].tensor == plan->weights[b].tensor;
}

/* An op in front of this one has the experts, too. */
static bool is_known(const struct rn_plan *plan, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (plan->ops[i].kind == RN_OP_EXPERT_MATMUL &&
            is_same_tensor(plan, plan->ops[i].weight, plan->ops[index].weight))
            return true;
    return false;
}

bool rn_gpu_is_expert(const struct rn_plan *plan, uint32_t weight, bool routed)
{
    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == RN_OP_EXPERT_MATMUL && !(routed && plan->ops[i].adapted) &&
            is_same_tensor(plan, plan->ops[i].weight, (int32_t)weight))
            return true;
    return false;
}

static void add_part(struct rn_gpu_expert_group *group, const struct rn_plan *plan, const struct rn_op *op)
{
    const struct rn_weight *weight = &plan->weights[op->weight];
    struct rn_gpu_expert_part *part = &group->parts[group->n_parts++];

    part->weight = (uint32_t)op->weight;
    part->bytes = rn_tiled_bytes(weight->type_id, weight->rows, weight->cols);
    part->place_at = group->place_bytes;
    group->place_bytes += rn_gpu_aligned(part->bytes);
}

/* The group that begins at the op *at or behind it; *at: the op behind it. It is what products of experts stand one
 * behind the other in a layer, of as many experts. False: there is none. */
static bool next_group(const struct rn_plan *plan, uint32_t *at, struct rn_gpu_expert_group *group)
{
    *group = (struct rn_gpu_expert_group){.n_parts = 0};
    for (; *at < plan->n_ops && group->n_parts < RN_GPU_EXPERT_PARTS; ++*at) {
        const struct rn_op *op = &plan->ops[*at];

        if (op->kind != RN_OP_EXPERT_MATMUL || op->adapted || is_known(plan, *at))
            continue;
        if (group->n_parts > 0 && ((uint32_t)op->layer != group->layer || op->experts != group->experts))
            break;
        group->layer = (uint32_t)op->layer;
        group->experts = op->experts;
        group->counts = group->counts || op->counted;
        add_part(group, plan, op);
    }
    return group->n_parts > 0;
}

/* How places are shared out: as many to each group, and to the first ones one more. */
struct shares {
    uint64_t each, left; /* places; bytes for those */
};

static uint32_t places_of(const struct rn_gpu_expert_group *group, const struct shares *shares)
{
    return shares->each < group->experts ? (uint32_t)shares->each : group->experts;
}

static struct shares share_out(const struct rn_plan *plan, uint64_t bytes)
{
    struct rn_gpu_expert_group group;
    struct shares shares = {0, bytes};
    uint64_t row = 0;

    for (uint32_t at = 0; next_group(plan, &at, &group);)
        row += group.place_bytes;
    shares.each = row == 0 ? 0 : bytes / row;
    for (uint32_t at = 0; next_group(plan, &at, &group);)
        shares.left -= places_of(&group, &shares) * group.place_bytes;
    return shares;
}

/* Groups are asked in their order. */
static uint32_t take_places(const struct rn_gpu_expert_group *group, struct shares *shares)
{
    uint32_t n = places_of(group, shares);

    if (n == group->experts || shares->left < group->place_bytes)
        return n;
    shares->left -= group->place_bytes;
    return n + 1;
}

void rn_gpu_expert_room(const struct rn_plan *plan, uint64_t expert_bytes, struct rn_expert_room *room)
{
    struct shares shares = share_out(plan, expert_bytes);
    struct rn_gpu_expert_group group;
    uint32_t n;

    *room = (struct rn_expert_room){.n = 0};
    for (uint32_t at = 0; next_group(plan, &at, &group);) {
        n = take_places(&group, &shares);
        room->n += group.experts;
        room->n_places += n;
        room->device_bytes += n * group.place_bytes;
        for (uint32_t p = 0; p < group.n_parts; p++)
            room->host_bytes += group.experts * group.parts[p].bytes;
    }
}

/* ---- On the heap ---- */

static uint32_t count_groups(const struct rn_plan *plan)
{
    struct rn_gpu_expert_group group;
    uint32_t n = 0;

    for (uint32_t at = 0; next_group(plan, &at, &group);)
        n++;
    return n;
}

static void place_groups(struct rn_gpu_experts *experts, const struct rn_plan *plan, uint64_t bytes)
{
    struct shares shares = share_out(plan, bytes);

    for (uint32_t i = 0, at = 0; i < experts->n_groups; i++) {
        struct rn_gpu_expert_group *group = &experts->groups[i];

        next_group(plan, &at, group);
        group->n_places = take_places(group, &shares);
        group->first = experts->n_experts;
        group->first_place = experts->n_places;
        group->places_at = experts->place_bytes;
        experts->n_experts += group->experts;
        experts->n_places += group->n_places;
        experts->place_bytes += group->n_places * group->place_bytes;
        experts->n_addresses += group->n_parts * (uint64_t)group->experts;
    }
}

static bool take_arrays(struct rn_gpu_experts *experts, struct rn_heap *heap)
{
    uint32_t n = experts->n_experts;
    bool is_good = true;

    experts->place_of = rn_calloc(heap, n, sizeof *experts->place_of);
    experts->expert_of = rn_calloc(heap, (size_t)experts->n_places + 1, sizeof *experts->expert_of);
    experts->scores = rn_calloc(heap, n, sizeof *experts->scores);
    experts->seen = rn_calloc(heap, n, sizeof *experts->seen);
    experts->fresh = rn_calloc(heap, n, sizeof *experts->fresh);
    experts->uses = rn_calloc(heap, n, sizeof *experts->uses);
    for (int i = 0; i <= RN_GPU_RING; i++) {
        experts->is_here[i] = rn_calloc(heap, n, 1);
        is_good = is_good && experts->is_here[i] != NULL;
    }
    return is_good && experts->place_of != NULL && experts->expert_of != NULL && experts->scores != NULL &&
           experts->seen != NULL && experts->fresh != NULL && experts->uses != NULL;
}

static uint64_t use_of(const struct rn_expert_use *use, const struct rn_gpu_expert_group *group, uint32_t expert)
{
    bool is_known = use != NULL && group->counts && group->layer < use->n_blocks && group->experts == use->n_experts;

    return is_known ? rn_expert_use_get(use, group->layer, expert) : 0;
}

/* What was used most while the model was loaded before, else the first ones. */
static void fill_places(struct rn_gpu_experts *experts, struct rn_gpu_expert_group *group,
                        const struct rn_expert_use *use)
{
    int32_t *place_of = experts->place_of + group->first;

    for (uint32_t e = 0; e < group->experts; e++)
        place_of[e] = RN_EXPERT_NOWHERE;
    for (uint32_t i = 0; i < group->n_places; i++) {
        uint32_t best = group->experts;

        for (uint32_t e = 0; e < group->experts; e++)
            if (place_of[e] == RN_EXPERT_NOWHERE &&
                (best == group->experts || use_of(use, group, e) > use_of(use, group, best)))
                best = e;
        place_of[best] = (int32_t)(group->first_place + i);
        experts->expert_of[group->first_place + i] = (int32_t)(group->first + best);
        experts->is_here[RN_GPU_RING][group->first + best] = 1;
    }
}

bool rn_gpu_experts_new(struct rn_gpu_backend *backend)
{
    uint32_t n_groups = backend->limits.expert_bytes == 0 ? 0 : count_groups(backend->plan);
    struct rn_gpu_experts *experts;

    if (n_groups == 0)
        return true;
    experts = backend->experts = rn_calloc(backend->heap, 1, sizeof *experts);
    if (experts == NULL)
        return false;
    experts->groups = rn_calloc(backend->heap, n_groups, sizeof *experts->groups);
    if (experts->groups == NULL)
        return false;
    experts->n_groups = n_groups;
    place_groups(experts, backend->plan, backend->limits.expert_bytes);
    if (!take_arrays(experts, backend->heap))
        return false;
    for (uint32_t i = 0; i < n_groups; i++)
        fill_places(experts, &experts->groups[i], backend->limits.expert_use);
    return true;
}

/* ---- Memory of the device and of the host ---- */

static int take_host(struct rn_gpu_backend *backend, uint64_t bytes, void **memory)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    int result = driver->host_new(driver, memory, bytes, RN_GPU_HOST_PORTABLE);

    if (result == RN_GPU_OUT_OF_MEMORY)
        backend->host_wanted = true;
    return result;
}

static int take_part(struct rn_gpu_backend *backend, const struct rn_gpu_expert_group *group,
                     struct rn_gpu_expert_part *part)
{
    void *host = NULL;
    int result = take_host(backend, group->experts * part->bytes, &host);

    part->host = host;
    return result;
}

int rn_gpu_experts_take(struct rn_gpu_backend *backend)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    struct rn_gpu_experts *experts = backend->experts;
    void *addresses = NULL;
    int result = RN_GPU_OK;

    if (experts == NULL)
        return RN_GPU_OK;
    if (experts->place_bytes > 0)
        result = driver->memory_new(driver, &experts->places, experts->place_bytes);
    for (uint32_t i = 0; i < experts->n_groups; i++)
        for (uint32_t p = 0; p < experts->groups[i].n_parts && result == RN_GPU_OK; p++)
            result = take_part(backend, &experts->groups[i], &experts->groups[i].parts[p]);
    if (result == RN_GPU_OK)
        result = take_host(backend, RN_GPU_RING * experts->n_addresses * sizeof *experts->addresses, &addresses);
    experts->addresses = addresses;
    if (result == RN_GPU_OK)
        result = driver->stream_new(driver, &experts->stream, RN_GPU_STREAM_APART);
    return result == RN_GPU_OK ? driver->event_new(driver, &experts->before, RN_GPU_EVENT_NO_TIME) : result;
}

/* The driver calls back for each that is on its way, with an error where the device is lost. */
static void await_fetches(struct rn_gpu_experts *experts)
{
    for (int i = 0; i < RN_GPU_FETCHES; i++)
        while (experts->fetches[i].is_there &&
               atomic_load_explicit(&experts->fetches[i].ended, memory_order_acquire) == 0)
            sched_yield();
}

static void free_memory(struct rn_gpu_experts *experts, struct rn_gpu_driver *driver)
{
    if (experts->stream != NULL) {
        driver->stream_finish(driver, experts->stream); /* of a fetch that was not begun whole */
        driver->stream_free(driver, experts->stream);
    }
    if (experts->before != NULL)
        driver->event_free(driver, experts->before);
    if (experts->places != 0)
        driver->memory_free(driver, experts->places);
    if (experts->addresses != NULL)
        driver->host_free(driver, experts->addresses);
    for (uint32_t i = 0; i < experts->n_groups; i++)
        for (uint32_t p = 0; p < experts->groups[i].n_parts; p++)
            if (experts->groups[i].parts[p].host != NULL)
                driver->host_free(driver, experts->groups[i].parts[p].host);
}

void rn_gpu_experts_free(struct rn_gpu_backend *backend)
{
    struct rn_gpu_experts *experts = backend->experts;

    if (experts == NULL)
        return;
    await_fetches(experts);
    free_memory(experts, backend->device->driver);
    for (int i = 0; i <= RN_GPU_RING; i++)
        rn_free(backend->heap, experts->is_here[i]);
    rn_free(backend->heap, experts->place_of);
    rn_free(backend->heap, experts->expert_of);
    rn_free(backend->heap, experts->scores);
    rn_free(backend->heap, experts->seen);
    rn_free(backend->heap, experts->fresh);
    rn_free(backend->heap, (void *)experts->uses);
    rn_free(backend->heap, experts->groups);
    rn_free(backend->heap, experts);
    backend->experts = NULL;
}

bool rn_gpu_expert_home(const struct rn_gpu_backend *backend, uint32_t weight, uint32_t expert,
                        struct rn_gpu_expert_home *home)
{
    const struct rn_gpu_experts *experts = backend->experts;

    for (uint32_t i = 0; experts != NULL && i < experts->n_groups; i++)
        for (uint32_t p = 0; p < experts->groups[i].n_parts; p++) {
            const struct rn_gpu_expert_group *group = &experts->groups[i];
            int32_t place;

            if (!is_same_tensor(backend->plan, (int32_t)group->parts[p].weight, (int32_t)weight))
                continue;
            RN_CHECK(expert < group->experts);
            place = experts->place_of[group->first + expert];
            *home = (struct rn_gpu_expert_home){
                group->parts[p].host + expert * group->parts[p].bytes,
                place < 0 ? 0 : rn_gpu_expert_place(experts, group, &group->parts[p], (uint32_t)place)};
            return true;
        }
    return false;
}
