/* The host of the simulation and sessions as wholes: forks, exports, imports. Each file is written once, and read only
 * when the host knows that it is there; what it holds is known by which session it was of, and when. See sim.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runnel_files.h"
#include "tests/sim/sim.h"

static struct sim_session *choose(struct sim *sim)
{
    uint32_t first = sim_pick(sim, SIM_SESSIONS);

    for (uint32_t i = 0; i < SIM_SESSIONS; i++)
        if (sim->sessions[(first + i) % SIM_SESSIONS].id.id != 0)
            return &sim->sessions[(first + i) % SIM_SESSIONS];
    return NULL;
}

/* A place for one more, or NULL. */
static struct sim_session *free_place(struct sim *sim)
{
    if (sim->n_sessions == SIM_ALL_SESSIONS)
        return NULL;
    for (uint32_t i = 0; i < SIM_SESSIONS; i++)
        if (sim->sessions[i].id.id == 0)
            return &sim->sessions[i];
    return NULL;
}

static bool sessions_full(const struct sim *sim)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(sim->engine, &stats);
    return stats.sessions >= sim->plan.max_sessions;
}

/* A new session of the host's, which goes on from where another is now. */
static void enter(struct sim *sim, struct sim_session *place, runnel_session id, uint32_t model,
                  struct sim_origin origin, bool importing)
{
    *place = (struct sim_session){id, ++sim->n_sessions, model, importing};
    sim->origins[place->serial] = origin;
}

static void act_fork(struct sim *sim)
{
    struct sim_session *session = choose(sim), *place = free_place(sim);
    bool full = sessions_full(sim);
    runnel_session copy;
    runnel_status status;

    if (session == NULL || place == NULL)
        return;
    status = runnel_session_fork(sim->models[session->model].handle, session->id, &copy);
    sim_sign(sim, 0x800 + (uint64_t)-status);
    sim_tell(sim, "host: forks session %u: %s", session->serial, runnel_status_name(status));
    if (status != (full ? RUNNEL_BUSY : RUNNEL_OK) && !(status == RUNNEL_NOT_FOUND && session->importing))
        sim_fail(sim, "a fork got %s", runnel_status_name(status));
    if (status != RUNNEL_OK)
        return;
    sim->n_forks++;
    enter(sim, place, copy, session->model, (struct sim_origin){session->serial, sim->n_streams + 1},
          session->importing);
}

/* ---- Files ---- */

static bool path_of(struct sim *sim, uint32_t file, char *path, size_t n)
{
    if (sim->folder[0] == '\0') {
        /* memory where there is such a place: thousands of runs sync their files */
        strcpy(sim->folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/runnel-sim-XXXXXX" : "/tmp/runnel-sim-XXXXXX");
        if (mkdtemp(sim->folder) == NULL) {
            sim_fail(sim, "no folder for sessions could be made");
            sim->folder[0] = '\0';
            return false;
        }
    }
    snprintf(path, n, "%s/%u", sim->folder, file);
    return true;
}

void sim_remove_files(struct sim *sim)
{
    char path[64];

    if (sim->folder[0] == '\0')
        return;
    for (uint32_t i = 0; i < sim->n_files; i++)
        if (path_of(sim, i, path, sizeof path))
            unlink(path);
    if (rmdir(sim->folder) != 0)
        sim_fail(sim, "something temporary is left in %s", sim->folder);
}

static struct sim_stream *new_job(struct sim *sim, enum sim_kind kind, uint32_t model, uint32_t file,
                                  struct sim_origin origin)
{
    struct sim_stream *stream = &sim->streams[sim->n_streams];

    memset(stream, 0, sizeof *stream);
    stream->sim = sim;
    stream->kind = kind;
    stream->model = model;
    stream->file = file;
    stream->origin = origin;
    stream->pull = sim_has(sim, SIM_PULL) && sim_chance(sim, 40);
    return stream;
}

static runnel_session_file file_of(struct sim_stream *stream, const char *path)
{
    runnel_session_file file;

    runnel_session_file_default(&file);
    file.path = path;
    file.on_event = stream->pull ? NULL : sim_on_event;
    file.user = stream;
    file.cache_salt = sim_has(stream->sim, SIM_SALTS) ? sim_pick(stream->sim, 3) : 0;
    return file;
}

/* Whether the engine may say so; `busy`: something is all taken. */
static bool accepted(struct sim *sim, struct sim_stream *stream, runnel_status status, bool busy, bool importing)
{
    sim_sign(sim, 0x900 + ((uint64_t)stream->kind << 8) + (uint64_t)-status);
    sim_tell(sim, "host: %s session %u at %u, file %u: stream %u, slot %u: %s",
             stream->kind == SIM_EXPORTS ? "exports" : "imports", stream->origin.serial, stream->origin.at,
             stream->file, (uint32_t)(stream - sim->streams), (uint32_t)stream->id.id, runnel_status_name(status));
    if (!(status == RUNNEL_OK          ? !busy
          : status == RUNNEL_BUSY      ? busy
          : status == RUNNEL_NO_MEMORY ? sim->faults_armed
                                       : status == RUNNEL_NOT_FOUND && importing))
        sim_fail(sim, "a session's file got %s", runnel_status_name(status));
    if (status != RUNNEL_OK)
        return false;
    sim->n_streams++;
    sim->n_live++;
    sim->n_jobs++;
    return true;
}

static void act_export(struct sim *sim)
{
    struct sim_session *session = choose(sim);
    struct sim_stream *stream;
    runnel_session_file file;
    runnel_status status;
    char path[64];

    if (session == NULL || sim->n_files == SIM_FILES || !path_of(sim, sim->n_files, path, sizeof path))
        return;
    stream = new_job(sim, SIM_EXPORTS, session->model, sim->n_files,
                     (struct sim_origin){session->serial, sim->n_streams + 1});
    file = file_of(stream, path);
    status = runnel_session_export(sim->models[session->model].handle, session->id, &file, &stream->id, NULL);
    if (accepted(sim, stream, status, sim->n_live >= sim->plan.max_streams, session->importing))
        sim->files[sim->n_files++].holds = stream->origin;
}

static void act_import(struct sim *sim)
{
    struct sim_session *place = free_place(sim);
    bool busy = sessions_full(sim) || sim->n_live >= sim->plan.max_streams;
    uint32_t n = sim->n_files > 0 ? sim_pick(sim, sim->n_files) : 0, model;
    struct sim_stream *stream;
    runnel_session_file file;
    runnel_session id = {0};
    runnel_status status;
    char path[64];

    if (place == NULL || sim->n_files == 0 || !sim->files[n].written || !sim_choose_model(sim, &model) ||
        !path_of(sim, n, path, sizeof path))
        return;
    stream = new_job(sim, SIM_IMPORTS, model, n, sim->files[n].holds);
    file = file_of(stream, path);
    status = runnel_session_import(sim->models[model].handle, &file, &id, &stream->id, NULL);
    if (!accepted(sim, stream, status, busy, false))
        return;
    enter(sim, place, id, model, stream->origin, true);
    stream->imported = place->serial;
}

static struct sim_session *by_serial(struct sim *sim, uint32_t serial)
{
    for (uint32_t i = 0; i < SIM_SESSIONS; i++)
        if (sim->sessions[i].serial == serial)
            return &sim->sessions[i];
    return NULL;
}

/* Its turns and exports, and those of its copies, may be told that it is not there. */
void sim_lose(struct sim *sim, uint32_t serial)
{
    for (uint32_t i = 0; i < sim->n_streams; i++)
        if (sim->streams[i].kind == SIM_GENERATES ? sim->streams[i].session == serial
                                                  : sim->streams[i].origin.serial == serial)
            sim->streams[i].session_freed = true;
    for (uint32_t child = serial + 1; child <= sim->n_sessions; child++)
        if (sim->origins[child].serial == serial)
            sim_lose(sim, child);
}

void sim_job_ended(struct sim *sim, struct sim_stream *stream)
{
    struct sim_session *session;

    if (stream->kind == SIM_EXPORTS) {
        sim->files[stream->file].written = stream->outcome == RUNNEL_EVENT_DONE;
        return;
    }
    session = by_serial(sim, stream->imported);
    sim->n_imports += stream->outcome == RUNNEL_EVENT_DONE;
    if (session != NULL && stream->outcome == RUNNEL_EVENT_DONE)
        session->importing = false;
    else if (session != NULL)
        session->id.id = 0;
}

static bool may_fail(const struct sim *sim, const struct sim_stream *stream)
{
    if (stream->status == RUNNEL_DEVICE)
        return sim_has(sim, SIM_DEVICE_FAULTS);
    return (stream->status == RUNNEL_NO_MEMORY || stream->status == RUNNEL_NOT_FOUND) &&
           (sim_has(sim, SIM_ALLOC_FAULTS) || stream->session_freed);
}

/* n_tokens: what the session had. */
void sim_judge_job(struct sim *sim, const struct sim_stream *stream, uint32_t n_tokens, bool known)
{
    uint32_t index = (uint32_t)(stream - sim->streams);

    if (!stream->ended)
        return;
    if (stream->outcome == RUNNEL_EVENT_CANCELLED ? !stream->cancelled
        : stream->outcome == RUNNEL_EVENT_FAILED  ? !may_fail(sim, stream)
                                                  : stream->finish != RUNNEL_FINISH_NONE)
        sim_fail(sim, "stream %u, of a session's file, ended with event %d, %s", index, (int)stream->outcome,
                 runnel_status_name(stream->status));
    if (stream->outcome != RUNNEL_EVENT_DONE)
        return;
    if ((known && stream->usage.prompt_tokens != n_tokens) ||
        stream->usage.cached_tokens > stream->usage.prompt_tokens || stream->usage.completion_tokens != 0)
        sim_fail(sim, "stream %u: the file has %llu tokens, %llu of them computed; the session had %u", index,
                 (unsigned long long)stream->usage.prompt_tokens, (unsigned long long)stream->usage.cached_tokens,
                 n_tokens);
}

void sim_act_session(struct sim *sim)
{
    uint32_t what = sim_pick(sim, 100);

    if (!sim_has(sim, SIM_SESSION) || sim->closing)
        return;
    if (what < 50 || !sim_has(sim, SIM_SESSION_FILES))
        act_fork(sim);
    else if (sim->n_streams == SIM_STREAMS || sim->n_streams == sim->plan.n_requests)
        return;
    else if (what < 75)
        act_export(sim);
    else
        act_import(sim);
}
