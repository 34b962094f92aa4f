/* Hosts that draw (runnel_samplers.choose): what they choose is known in closed form, judge_request.turn tokens behind
 * the one that the model wants, or that one itself, which the coin draws, too. Some answer later, some never rightly.
 * See sim.h. */
#include <string.h>

#include "base/rng.h"
#include "tests/sim/sim.h"

static uint32_t index_of(const struct sim *sim, const struct sim_stream *stream)
{
    return (uint32_t)(stream - sim->streams);
}

/* Each token is asked for once, in their order. */
static void check_question(struct sim *sim, struct sim_stream *stream, const runnel_candidates *candidates)
{
    if (candidates->stream != stream->id.id || stream->ended || stream->paused || stream->asked)
        sim_fail(sim, "stream %u is asked for a token, and should not be", index_of(sim, stream));
    if (candidates->n == 0 || candidates->n > ORACLE_VOCAB || (stream->turn > 0 && candidates->n != ORACLE_VOCAB))
        sim_fail(sim, "stream %u: %zu candidates", index_of(sim, stream), candidates->n);
    if (stream->asked_at > 0 ? candidates->position != stream->asked_at + 1 : candidates->position < stream->n_prompt)
        sim_fail(sim, "stream %u: asked for position %llu behind %llu", index_of(sim, stream),
                 (unsigned long long)candidates->position, (unsigned long long)stream->asked_at);
    if (candidates->n_sequence > candidates->position ||
        (stream->keep < 0 && candidates->n_sequence != candidates->position))
        sim_fail(sim, "stream %u: a sequence of %zu tokens at position %llu", index_of(sim, stream),
                 candidates->n_sequence, (unsigned long long)candidates->position);
    stream->asked_at = candidates->position;
}

static int64_t choose(void *user, runnel_candidates *candidates)
{
    struct sim_stream *stream = user;
    struct sim *sim = stream->sim;
    size_t best = 0;

    check_question(sim, stream, candidates);
    sim->n_asked++;
    sim_sign(sim, 0xa00 + candidates->position);
    sim_tell(sim, "host: stream %u is asked for position %llu", index_of(sim, stream),
             (unsigned long long)candidates->position);
    for (size_t i = 1; i < candidates->n; i++)
        best = candidates->logits[i] > candidates->logits[best] ? i : best;
    stream->place = (best + stream->turn) % candidates->n;
    if (sim_chance(sim, 1)) {
        stream->wrong = true;
        return (int64_t)candidates->n;
    }
    if (sim_has(sim, SIM_CANCEL) && sim_has(sim, SIM_ACT_INSIDE) && sim_chance(sim, 2)) {
        stream->cancelled = true;
        runnel_stream_cancel(sim->engine, stream->id);
    }
    stream->asked = sim_chance(sim, stream->lateness);
    return stream->asked                              ? RUNNEL_CHOOSE_LATER
           : stream->turn == 0 && sim_chance(sim, 50) ? RUNNEL_CHOOSE_DRAW
                                                      : (int64_t)stream->place;
}

/* Not by the run's random numbers: of other requests all stays the same. */
void sim_choose_host(struct sim *sim, struct sim_stream *stream, runnel_request *request, runnel_samplers *samplers)
{
    uint64_t state = sim->seed + 0x686f7374 + sim->tick * 0x10001, bits = rn_splitmix64(&state);

    if (!sim_has(sim, SIM_HOSTS) || bits % 2 != 0)
        return;
    stream->hosted = true;
    stream->lateness = (uint32_t)(bits >> 8) % 101;
    stream->turn = stream->grammar.n == 0 && (bits & 2) != 0 ? 1 + (uint32_t)(bits >> 20) % (ORACLE_VOCAB - 1) : 0;
    if (request->sampling.samplers == NULL)
        runnel_samplers_default(samplers);
    request->sampling.samplers = samplers;
    samplers->mirostat = 0;
    samplers->choose = choose;
    samplers->choose_user = stream;
    if (stream->turn > 0)
        samplers->order = "host";
    if (request->sampling.temperature < 0.1f)
        request->sampling.temperature = 0.1f;
}

bool sim_answer_some(struct sim *sim)
{
    bool asked = false;

    for (uint32_t i = 0; i < sim->n_streams; i++) {
        struct sim_stream *stream = &sim->streams[i];

        if (stream->ended || !stream->asked)
            continue;
        asked = true;
        if (!sim_chance(sim, 40))
            continue;
        stream->asked = false;
        sim_tell(sim, "host: answers for stream %u", i);
        if (runnel_stream_choose(sim->engine, stream->id, stream->place) != RUNNEL_OK)
            sim_fail(sim, "a choice of stream %u, which has not ended, was refused", i);
        if (runnel_stream_choose(sim->engine, stream->id, stream->place) != RUNNEL_STATE)
            sim_fail(sim, "a second choice of stream %u was taken", i);
    }
    return asked;
}
