/* Lower tiers of the cache in the simulation: see sim.h. All models of a run share one disk in memory, and one folder.
 * The calls of a disk take time, fail and lie; a model's process dies under it, or the power goes, and the next model
 * of the same KV finds what is left. Whatever happens to a disk, the answers are judged as ever. */
#include <string.h>

#include "tests/sim/sim.h"

#define COLD_BYTES ((uint64_t)4 << 20) /* the least */

static void choose_faults(struct sim *sim)
{
    struct fake_disk_faults *faults = fake_disk_faults(sim->disk);

    *faults = (struct fake_disk_faults){.room_bytes = UINT64_MAX, .most_us = sim->plan.most_latency_us};
    if (!sim_has(sim, SIM_DISK_FAULTS))
        return;
    faults->short_call = sim_chance(sim, 30) ? FAKE_DISK_ALWAYS / 8 : 0;
    faults->read_error = sim_chance(sim, 20) ? FAKE_DISK_ALWAYS / 50 : 0;
    faults->write_error = sim_chance(sim, 10) ? FAKE_DISK_ALWAYS / 200 : 0;
    faults->flipped = sim_chance(sim, 20) ? FAKE_DISK_ALWAYS / 10 : 0;
    faults->lazy = sim_chance(sim, 20) ? FAKE_DISK_ALWAYS : 0;
    faults->room_bytes = sim_chance(sim, 10) ? sim_pick(sim, 1 << 16) : UINT64_MAX;
    faults->grain_bytes = 1u << sim_pick(sim, 11);
}

static void disk_waits(void *user, uint32_t us)
{
    ((struct sim *)user)->now_us += us;
}

/* Prompts that come again when their blocks have been evicted: few stems, more of them than fit, models that come and
 * go. */
static void plan_pressure(struct sim *sim)
{
    struct sim_plan *plan = &sim->plan;
    const uint64_t hinders = UINT64_C(1) << SIM_NO_PREFIX_CACHE | UINT64_C(1) << SIM_LOGITS | UINT64_C(1) << SIM_CHURN |
                             UINT64_C(1) << SIM_SHARED_STEMS | UINT64_C(1) << SIM_SESSION_FILES |
                             UINT64_C(1) << SIM_QUEUE_LIMITS | UINT64_C(1) << SIM_FEW_STREAMS;

    plan->features &= ~hinders;
    plan->features |= UINT64_C(1) << SIM_MANY_MODELS | UINT64_C(1) << SIM_FREE_MODEL;
    plan->limits.mean_window = 0;
    plan->limits.block_tokens = 1u << sim_pick(sim, 5);
    plan->limits.context_tokens = 60 + sim_pick(sim, 180);
    plan->limits.n_blocks = (plan->limits.context_tokens + sim_pick(sim, 200)) / plan->limits.block_tokens + 1;
    plan->limits.max_rows = 8 + sim_pick(sim, 56);
    plan->max_streams = 8 + sim_pick(sim, 24);
    plan->n_requests = 40 + sim_pick(sim, 60);
    plan->n_ticks = 1500 + sim_pick(sim, 2500);
}

void sim_plan_tiers(struct sim *sim)
{
    struct sim_plan *plan = &sim->plan;
    uint64_t block_bytes;

    if ((sim_has(sim, SIM_WARM) || sim_has(sim, SIM_COLD)) && sim_chance(sim, 30))
        plan_pressure(sim);
    block_bytes = 8 * plan->limits.block_tokens + 64; /* of the oracle model, packed at its worst */
    if (sim_has(sim, SIM_WARM))
        plan->warm_bytes = 16384 + (sim_chance(sim, 50) ? 12 : 200) * (block_bytes + 300);
    plan->cache_places = sim_chance(sim, 50) ? 1 + sim_pick(sim, 40) : 1000;
    if (!sim_has(sim, SIM_COLD))
        return;
    sim->disk = fake_disk_new(sim->seed);
    fake_disk_on_wait(sim->disk, disk_waits, sim);
    choose_faults(sim);
}

void sim_tiers_of_model(struct sim *sim, uint32_t index, struct rn_model_parts *parts, runnel_model_options *options)
{
    static const char *const codecs[] = {NULL, "none", "lz4", "zstd"};

    options->cache_warm_bytes = sim->plan.warm_bytes;
    options->cache_codec = codecs[sim_pick(sim, 4)];
    parts->cache_places = sim->plan.cache_places;
    if (sim->disk == NULL)
        return;
    if (fake_disk_alive(sim->disk, index))
        fake_disk_kill(sim->disk, index);
    fake_disk_start(sim->disk, index);
    options->cache_dir = "/cache";
    options->cache_cold_bytes = COLD_BYTES;
    parts->cold_io = fake_disk_io(sim->disk, index);
    parts->news_us = (uint64_t)500 << sim->seed % 10; /* how soon it hears of what another model writes there */
}

/* Something happens to the disk under the models. */
void sim_act_disk(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MODELS);

    if (sim->disk == NULL || !sim_has(sim, SIM_DISK_FAULTS) || !sim_chance(sim, 5))
        return;
    switch (sim_pick(sim, 4)) {
    case 0:
        choose_faults(sim);
        return;
    case 1:
        fake_disk_rot(sim->disk, 1 + sim_pick(sim, 3));
        return;
    case 2:
        fake_disk_faults(sim->disk)->die_at = fake_disk_calls(sim->disk, index) + 1 + sim_pick(sim, 20);
        return;
    default:
        sim->n_deaths += sim->models[index].handle != NULL && fake_disk_alive(sim->disk, index);
        sim_tell(sim, "the disk of model %u dies", index);
        fake_disk_kill(sim->disk, index);
    }
}

/* What a model that is freed could not write any more is missing for the next one. */
void sim_end_disk(struct sim *sim, uint32_t index)
{
    if (sim->disk == NULL || !sim_chance(sim, 40))
        return;
    sim_tell(sim, "the process of model %u is killed", index);
    if (sim_chance(sim, 50))
        fake_disk_kill(sim->disk, index);
    else
        fake_disk_lose_power(sim->disk);
}

/* ---- What can have been cached ---- */

/* Of the prompt, what the other's prompt and answer begin with too. */
static uint32_t in_common(const struct sim *sim, const struct sim_stream *stream, const struct sim_stream *other)
{
    const struct judge_request request = {
        .alphabet = &sim->plan.alphabet,
        .salt = other->salt,
        .prompt = other->prompt,
        .n_prompt = other->n_prompt,
        .max_tokens = other->max_tokens,
        .room = other->room,
        .keep = other->keep,
        .grammar = other->grammar,
        .turn = other->turn,
        .stops = {other->stop_list, other->n_stops, other->stop_tokens, other->n_stop_tokens},
    };
    struct judge_answer answer;
    uint32_t n = 0, more = 0;

    while (n < stream->n_prompt && n < other->n_prompt && stream->prompt[n] == other->prompt[n])
        n++;
    if (other->keep < 0 && (n < other->n_prompt || n == stream->n_prompt))
        return n;
    judge_answer(&request, &answer);
    if (answer.shifts > 0)
        return stream->n_prompt; /* what it has read again behind its head is not looked for */
    while (n == other->n_prompt && n + more < stream->n_prompt && more < answer.n &&
           stream->prompt[n + more] == answer.tokens[more])
        more++;
    return n + more;
}

/* A request's cached tokens are of what was asked with the same model and salt, by whomever: no tier gives one tenant
 * what is another's. */
void sim_judge_cached(struct sim *sim, const struct sim_stream *stream, uint32_t n_history)
{
    uint32_t most = 0;

    if (stream->session != 0 || n_history > 0 || stream->usage.cached_tokens == 0)
        return;
    for (uint32_t i = 0; i < sim->n_streams; i++) {
        const struct sim_stream *other = &sim->streams[i];
        uint32_t n;

        if (other == stream || other->salt != stream->salt || other->cache_salt != stream->cache_salt)
            continue;
        if (other->kind != SIM_GENERATES || other->session != 0)
            return; /* what a session has been is not known here */
        n = in_common(sim, stream, other);
        most = n > most ? n : most;
    }
    if (stream->usage.cached_tokens > most)
        sim_fail(sim, "stream %u: %llu tokens were cached, and only %u of them were asked under its salt",
                 (uint32_t)(stream - sim->streams), (unsigned long long)stream->usage.cached_tokens, most);
}
