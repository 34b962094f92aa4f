/* The simulation: one engine, its models and a host on one thread, under a schedule, a clock and faults
 * that all come from one seed.
 *
 *   seed ─▶ plan (which features, how large, how the scheduler chooses)
 *        ─▶ ticks: run an actor | complete a step | let time pass | the host does something
 *        ─▶ end: everything is let run out, judged and freed
 *
 * Nothing that is decided depends on an address, so a seed replays; each message handled and each act of the
 * host goes into a rolling hash, the order signature, which must be the same in a second run.
 *
 *   sim.c         the plan, the engine, the ticks, the end
 *   sim_draft.c   drafters
 *   sim_host.c    the host: what it submits and does, what it is told
 *   sim_choose.c  the host's own draws
 *   sim_tiers.c   lower tiers of the cache, on a fake disk
 *   sim_verdict.c checks while it runs, and of each answer against judge.h
 *
 * The first thing found wrong is kept as a sentence and ends the run; a failed run keeps its memory. */
#ifndef RN_TESTS_SIM_SIM_H
#define RN_TESTS_SIM_SIM_H

#include <stdio.h>

#include "actors/engine.h"
#include "model/kv_size.h"
#include "tests/sim/fake_disk.h"
#include "tests/sim/judge.h"
#include "tests/sim/liar.h"
#include "tests/sim/oracle_backend.h"

#define SIM_MODELS 3
#define SIM_SESSIONS 8
#define SIM_STREAMS 256 /* requests accepted in one run at most */
#define SIM_PROMPTS 3
#define SIM_FILES 8           /* exports in one run at most */
#define SIM_ALL_SESSIONS 1024 /* ever made in one run, at most */
#define SIM_PROMPT_TOKENS 200
#define SIM_STOPS 3
#define SIM_STOP_BYTES 16
#define SIM_EVENT_TOKENS JUDGE_TOKENS

/* Swarm: each seed switches on a random part of these (Groce et al., "Swarm testing", 2012). */
enum sim_feature {
    SIM_SESSION,
    SIM_CANCEL,
    SIM_PAUSE,
    SIM_STOP_STRINGS,
    SIM_STOP_TOKENS,
    SIM_SAMPLED,
    SIM_LOGITS,
    SIM_PROGRESS,
    SIM_LOGPROBS,
    SIM_PULL,
    SIM_TINY_MEMORY,
    SIM_FEW_STREAMS,
    SIM_MANY_MODELS,
    SIM_FREE_MODEL,
    SIM_FREE_ENGINE,
    SIM_ALLOC_FAULTS,
    SIM_DEVICE_FAULTS,
    SIM_NAN_FAULTS,
    SIM_ACT_INSIDE,
    SIM_BURSTS,
    SIM_CHURN,
    SIM_NO_PREFIX_CACHE,
    SIM_SALTS,
    SIM_SHARED_STEMS,
    SIM_SESSION_FILES,
    SIM_PRIORITY,
    SIM_TENANTS,
    SIM_DEADLINES,
    SIM_QUEUE_LIMITS,
    SIM_COALESCE,
    SIM_SPECULATE,
    SIM_WARM,
    SIM_COLD,
    SIM_DISK_FAULTS,
    SIM_SHIFTS, /* answers that go on when the context is full */
    SIM_GRAMMARS,
    SIM_HOSTS, /* the host draws */
    SIM_FEATURES
};

/* How the next actor is chosen among those that can run. */
enum sim_policy { SIM_UNIFORM, SIM_PRIORITIES, SIM_STARVE_ONE, SIM_NEWEST, SIM_POLICIES };

struct sim_plan {
    uint64_t features;
    enum sim_policy policy;
    uint32_t n_ticks, n_requests, max_batch;
    uint32_t max_streams, max_sessions;
    uint64_t max_queued_tokens, max_queued_bytes; /* 0: no limit */
    uint32_t most_latency_us;
    uint32_t weight_actor, weight_step, weight_host, weight_dispatch, weight_time;
    struct rn_backend_limits limits;
    bool on_cuda; /* the model is computed on the CUDA device, emulated (cuda_oracle.h): $RUNNEL_SIM_DEVICE is "cuda" */
    bool draws_itself; /* the device: parameters and coins go down */
    uint32_t ring;     /* steps in flight that suit it */
    struct oracle_alphabet alphabet;
    uint64_t warm_bytes;   /* 0: no warm tier */
    uint32_t cache_places; /* of a lower tier */
};

struct sim_model {
    runnel_model *handle; /* NULL: not there, or given back */
    struct oracle *oracle;
    struct oracle *drafter; /* NULL: none. Its guesses are right with a chance, and it may fail as the other one */
    bool quick;             /* its passes mostly take no time beside a step */
    struct liar_plan liar;
    uint32_t n_lives; /* of this place */
    bool mover_acted; /* since its mover's tables were looked at, which nobody else changes */
    bool tier_acted;  /* since its tier's objects were */
    uint64_t n_seen;  /* blocks that its hit ceiling had seen when that was looked at */
    uint64_t salt;    /* of the last life: a cold tier is found again by who has the same */
};

struct sim_session {
    runnel_session id; /* 0: not there */
    uint32_t serial;   /* never reused, as places and ids are */
    uint32_t model;
    bool importing; /* it comes out of a file, or (when that fails) is gone */
};

/* What the turns of a session go on from: what another was when `at` - 1 streams had been submitted. */
struct sim_origin {
    uint32_t serial; /* 0: nothing */
    uint32_t at;
};

/* A request the engine accepted, and all that the host was told about it. */
enum sim_kind { SIM_GENERATES, SIM_EXPORTS, SIM_IMPORTS };

struct sim_stream {
    struct sim *sim;
    enum sim_kind kind;
    struct sim_origin origin; /* of a session's file: what is in it */
    uint32_t file;            /* its number */
    uint32_t imported;        /* serial of the session that an import makes */
    runnel_stream id;
    uint32_t model;
    uint64_t salt; /* of the model's oracle */
    uint32_t room;
    uint32_t session;   /* serial; 0: none */
    bool session_freed; /* before the end of this turn */
    bool paused, cancelled, pull;

    int32_t prompt[SIM_PROMPT_TOKENS];
    uint32_t n_prompt;
    int64_t max_tokens, keep; /* context_keep */
    struct judge_grammar grammar;
    char grammar_text[128];
    runnel_grammar_kind grammar_kind;
    bool hosted;       /* the host draws: */
    uint32_t turn;     /* so many tokens behind what the model wants */
    uint32_t lateness; /* percent of its answers come later */
    bool asked, wrong; /* an answer is due; or was one that is none */
    uint64_t asked_at; /* the last position it was asked for */
    size_t place;      /* what it answers */
    bool as_text, want_logits, want_progress, want_logprobs;
    uint64_t cache_salt, tenant;
    int32_t priority;
    uint32_t deadline_ms;
    uint32_t n_top;
    uint32_t coalesce_bytes;
    char stops[SIM_STOPS][SIM_STOP_BYTES];
    const char *stop_list[SIM_STOPS];
    int32_t stop_tokens[SIM_STOPS];
    uint32_t n_stops, n_stop_tokens;

    int32_t tokens[SIM_EVENT_TOKENS];  /* of TOKEN events; -1: it was joined with others */
    uint32_t shifts[SIM_EVENT_TOKENS]; /* that each came with */
    uint32_t n_tokens;
    char text[JUDGE_TEXT];
    size_t text_bytes;
    bool got_tail; /* an event with text alone: what was held back */
    uint64_t first_logits, n_logits, progress, progress_total;
    int32_t hot[SIM_PROMPT_TOKENS + JUDGE_TOKENS]; /* of LOGITS events, by their order */
    bool ended;
    bool may_drop; /* it was cancelled and paused at once: events before its end may be missing */
    runnel_event_type outcome;
    runnel_event_type computed; /* how the model's work on it ended: DONE also where its events were dropped */
    runnel_finish finish;
    int32_t stop, stop_token;
    runnel_status status;
    runnel_usage usage;
    runnel_timings timings;
    uint64_t phase_begin_ns, phase_end_ns; /* of the trace: so far; 0: none */
};

/* How much of a run is looked at. The looks change nothing: a seed takes the same way with both. */
enum sim_looks {
    SIM_LOOK_AT_STATE, /* the state of every actor after each tick, and all that SIM_LOOK_AT_ANSWERS does */
    SIM_LOOK_AT_ANSWERS
};

struct sim {
    uint64_t seed, rng, signature, tick;
    FILE *story;
    enum sim_looks looks;
    struct sim_plan plan;
    uint64_t now_us;
    runnel_engine *engine; /* NULL once freed */
    bool closing;          /* engine_free was called */
    bool free_at_return;   /* ... inside a callback: carried out when the dispatch returns */
    bool step_at_once;     /* the engine is being freed: no step waits for the simulation */
    bool ending;           /* the host only lets things run out */
    bool faults_armed;
    uint64_t live_bytes, live_allocations;
    struct sim_model models[SIM_MODELS];
    struct sim_session sessions[SIM_SESSIONS];
    uint32_t n_sessions;                             /* ever made */
    struct sim_origin origins[SIM_ALL_SESSIONS + 1]; /* by serial */
    struct {
        struct sim_origin holds;
        bool written;
    } files[SIM_FILES];
    uint32_t n_files;
    char folder[32];                                        /* of the files; "": not made yet */
    struct fake_disk *disk;                                 /* of the cold tiers; a process for each place of models */
    uint64_t n_copies, n_moves, n_forks, n_imports, n_jobs; /* n_moves: of runners-up that were right */
    uint64_t n_means;                                       /* rows that saw one */
    uint64_t n_ahead;                                       /* rows that waited for a draw */
    uint64_t n_again;                                       /* rows that a state had gone back behind */
    uint64_t n_guesses;                                     /* rows of drafters with logits */
    uint64_t n_branches, n_branches_right;                  /* of drafters */
    struct sim_stream *streams;                             /* [SIM_STREAMS] */
    uint32_t n_streams, n_live;                             /* n_live: those whose slot the engine holds */
    struct sim_stream *telling;                             /* its callback is running */
    uint8_t priorities[64];                                 /* by actor id */
    uint32_t starved;                                       /* role of the actor that is kept waiting */
    int32_t prompts[SIM_PROMPTS][SIM_PROMPT_TOKENS];
    uint64_t n_events, n_steps, n_checks, n_outcomes[3];
    uint64_t n_hit_tokens, n_waits, n_evicted;                            /* what the prefix cache came to */
    uint64_t n_trace_steps, n_trace_prompt, n_trace_queued, actor_end_ns; /* of the trace */
    uint64_t n_model_steps, n_model_rows; /* submitted to models' backends, not to drafters' */
    uint64_t n_preempted, n_expired, n_busy, n_joined;
    uint64_t n_warm_tokens, n_cold_tokens;
    uint64_t n_adopted; /* blocks that another model has put into the folder */
    uint64_t n_deaths;  /* of disks under a running model */
    uint64_t n_shifts;  /* of answers that were told */
    uint64_t n_forced;  /* tokens of which a grammar left no choice, and which took no pass of their own */
    uint64_t n_cut;     /* drafts that a grammar refused before they cost a row */
    uint64_t n_guided;  /* tokens of answers with a grammar that were told */
    uint64_t n_asked;   /* tokens that hosts drew */
    uint64_t n_stopped; /* steps that were in flight for nobody, and ended so */
    bool failed;
    char failure[512];
};

struct sim_report {
    bool failed;
    char failure[512];
    uint64_t signature;
    uint32_t n_streams;
    uint64_t n_ticks, n_steps, n_events, n_checks;
    uint64_t n_outcomes[3];   /* done, cancelled, failed */
    uint64_t n_state_tokens;  /* of n_hit_tokens those of models with a recurrent state ... */
    uint64_t n_window_tokens; /* ... and those of models whose layers with windows have blocks of their own */
    uint64_t n_hit_tokens, n_waits, n_evicted, n_preempted, n_expired, n_busy, n_joined, n_copies, n_moves, n_ahead,
        n_forks, n_imports, n_means, n_guesses, n_branches, n_branches_right, n_warm_tokens, n_cold_tokens, n_adopted,
        n_deaths, n_stopped, n_shifts, n_guided, n_forced, n_cut, n_asked, n_again;
};

/* Runs one seed. True: nothing was wrong. story: each message and act is written there; NULL: nowhere. */
bool sim_run(uint64_t seed, enum sim_looks looks, FILE *story, struct sim_report *report);

/* ---- Between the files ---- */

uint32_t sim_pick(struct sim *sim, uint32_t n); /* uniform in [0, n) */
bool sim_chance(struct sim *sim, uint32_t percent);
bool sim_has(const struct sim *sim, enum sim_feature feature);
void sim_sign(struct sim *sim, uint64_t what);
void sim_tell(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* sim_plan.c: draws all that the seed decides before the run; tells the story of it. */
void sim_make_plan(struct sim *sim);
void sim_tell_plan(struct sim *sim);

/* sim.c: makes a model in place `index`; false: memory was refused. */
bool sim_new_model(struct sim *sim, uint32_t index);
void sim_free_model(struct sim *sim, uint32_t index);
void sim_free_engine(struct sim *sim);

/* sim_draft.c: a drafter for the model, beside its oracle; false: no memory. What its requests think of drafts. After a
 * tick: the draft streams know what decode knows, and what the drafter has computed is what follows from a draft
 * stream's tokens. */
bool sim_new_drafter(struct sim *sim, struct sim_model *model, struct rn_model_parts *parts);
void sim_encourage(struct sim *sim, const struct oracle *oracle);
void sim_check_drafter(struct sim *sim, uint32_t index);
void sim_hurry_drafters(struct sim *sim);

/* sim_host.c: one act of the host; callbacks; streams that are pulled: the events that came. */
void sim_act(struct sim *sim);
size_t sim_deliver(struct sim *sim, size_t max_events);
size_t sim_pull(struct sim *sim);
bool sim_resume_some(struct sim *sim); /* false: none was paused */

void sim_on_event(void *user, const runnel_event *event);
bool sim_choose_model(struct sim *sim, uint32_t *model);

/* sim_choose.c: makes a request one whose host draws, or not; answers some of those that wait for it. False: none
 * did. */
void sim_choose_host(struct sim *sim, struct sim_stream *stream, runnel_request *request, runnel_samplers *samplers);
bool sim_answer_some(struct sim *sim);

/* sim_session.c: forks, exports and imports; what the end of such a stream means; removes the files. */
void sim_act_session(struct sim *sim);
void sim_job_ended(struct sim *sim, struct sim_stream *stream);
void sim_judge_job(struct sim *sim, const struct sim_stream *stream, uint32_t n_tokens, bool known);
void sim_lose(struct sim *sim, uint32_t serial);
void sim_remove_files(struct sim *sim);

/* sim_tiers.c: what a model's options and parts say of lower tiers; what happens to its disk; before it is freed; what
 * of a prompt can have been cached, by what others have asked. */
void sim_plan_tiers(struct sim *sim);
void sim_tiers_of_model(struct sim *sim, uint32_t index, struct rn_model_parts *parts, runnel_model_options *options);
void sim_act_disk(struct sim *sim);
void sim_end_disk(struct sim *sim, uint32_t index);
void sim_judge_cached(struct sim *sim, const struct sim_stream *stream, uint32_t n_history);

/* sim_verdict.c: after each tick; after some, with more to look at; when nothing can run; at the end,
 * of all answers. */
void sim_check_actors(struct sim *sim);
void sim_check_tick(struct sim *sim);
void sim_poison_free(struct sim *sim); /* what no request holds must not be read any more */
/* Decode has asked to be woken: time has to pass. */
bool sim_wakes(const struct sim_model *model);
void sim_check_quiet(struct sim *sim);
void sim_check_event(struct sim *sim, struct sim_stream *stream, const runnel_event *event);
void sim_judge_all(struct sim *sim);

/* sim_metrics.c: at the end, with nothing alive but models; and the trace's receiver. */
void sim_check_metrics(struct sim *sim);
void sim_on_trace(void *user, const runnel_trace_event *event);

#endif
