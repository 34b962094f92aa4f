/* Many streams: what actors and scheduling cost, and what streams take from one another.
 *
 * Over a device that computes nothing (streams_device.h):
 *   overhead   64 streams; processor time of the scheduler threads and of the host's thread per token, and as a
 *              share of one core where the device's pace gives 5,000 tokens/s
 *   idle       the device's time between the end of a step and the next submit, for steps of 1, 2 and 5 ms
 *   open       10,000 streams of which 500 run: memory of one that waits, time of a submit, and what the waiting cost
 *   arrivals   32 streams while a prompt of 4,000 tokens arrives every second: p99 of the time between tokens, with and
 *              without
 * Over a model's file (--model):
 *   throughput tokens per second of 16, 64 and 256 streams
 *   shared     64 prompts that begin with the same 1,000 tokens: time until all have their first token, and until one
 *              alone has
 *   arrivals   the same as above, over the model (--model; slow models cannot compute 4,000 tokens in a second)
 *
 *   bench_streams [--test NAME[,NAME...]] [--model FILE] [--streams N[,N...]] [--seconds S] [--threads N] [--csv]
 *
 * A row is a figure: its goal stands beside it, if it has one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runnel_files.h"
#include "streams_host.h"

#define DEFAULT_SECONDS 3.0

static struct {
    const char *tests, *model;
    uint32_t streams[8];
    size_t n_streams;
    double seconds;
    uint32_t threads;
    bool csv;
} arguments = {NULL, NULL, {16, 64, 256}, 3, DEFAULT_SECONDS, 0, false};

/* ---- Rows of the table ---- */

static void head(void)
{
    if (arguments.csv)
        printf("program,test,case,figure,value,unit,goal,met\n");
    else
        printf("%-11s %-38s %-34s %12s %-9s %s\n", "test", "case", "figure", "value", "unit", "goal");
}

/* goal 0: none; else the value is to be at most the goal. */
static void row(const char *test, const char *what, const char *figure, double value, const char *unit, double goal)
{
    const char *met = goal == 0 ? "" : value <= goal ? "yes" : "no";

    if (arguments.csv) {
        printf("runnel,%s,%s,%s,%.6g,%s,", test, what, figure, value, unit);
        if (goal != 0)
            printf("%g", goal);
        printf(",%s\n", met);
    } else {
        printf("%-11s %-38s %-34s %12.4g %-9s", test, what, figure, value, unit);
        if (goal != 0)
            printf(" <= %g: %s", goal, met);
        putchar('\n');
    }
    fflush(stdout);
}

static uint64_t seconds_from_now(double seconds)
{
    return monotonic_ns() + (uint64_t)(seconds * 1e9);
}

/* ---- A device and streams that never end ---- */

static struct host_options device_options(uint32_t n_streams, uint32_t context)
{
    uint32_t blocks = n_streams * ((context + 31) / 32);

    return (struct host_options){
        .limits = {.max_rows = 256 > n_streams ? 256 : n_streams,
                   .max_seqs = n_streams + 8,
                   .max_outs = 2 * n_streams,
                   .n_blocks = blocks,
                   .block_tokens = 32,
                   .context_tokens = context,
                   .draws = true},
        .max_streams = n_streams + 8,
    };
}

static void open_device(struct host *host, uint32_t n_streams, uint64_t step_ns, runnel_trace_fn on_trace)
{
    struct host_options options = device_options(n_streams, 512);

    options.on_trace = on_trace;
    host_open(host, &options);
    host->device->step_ns = step_ns;
    for (uint32_t i = 0; i < n_streams; i++) {
        struct user *user = host_user(host, NULL, 0, 16, 300 + (int64_t)i); /* not all begin again at once */

        user->again = true;
        user_submit(user);
    }
    host_run(host, 0, &host->n_first, n_streams);
    host_run(host, seconds_from_now(0.2), NULL, 0);
}

/* ---- overhead ---- */

static void measure_overhead(const char *what, uint64_t step_ns, double share_goal, double token_goal)
{
    struct host host;
    uint64_t begin, scheduler, own, tokens;
    double wall, us;

    open_device(&host, 64, step_ns, NULL);
    begin = monotonic_ns();
    scheduler = host_scheduler_ns(&host);
    own = host_own_ns();
    tokens = host.n_tokens;
    host_run(&host, seconds_from_now(arguments.seconds), NULL, 0);
    wall = (double)(monotonic_ns() - begin);
    scheduler = host_scheduler_ns(&host) - scheduler;
    own = host_own_ns() - own;
    tokens = host.n_tokens - tokens;
    us = 1e-3 / (double)tokens;
    row("overhead", what, "tokens per second", (double)tokens / wall * 1e9, "tokens/s", 0);
    row("overhead", what, "scheduler threads, per token", (double)scheduler * us, "us", token_goal);
    row("overhead", what, "host's thread, per token", (double)own * us, "us", 0);
    row("overhead", what, "scheduler threads, of one core", 100 * (double)scheduler / wall, "%", share_goal);
    row("overhead", what, "both, of one core", 100 * (double)(scheduler + own) / wall, "%", share_goal);
    host_close(&host);
}

/* What a token costs in the metrics: a count, and a time in the middle of the buckets. */
static void measure_metrics(void)
{
    struct rn_metrics_list list = {NULL};
    struct rn_heap heap;
    struct rn_metrics *metrics;
    const uint64_t n = 20000000;
    uint64_t begin;

    rn_heap_init(&heap, NULL);
    metrics = rn_metrics_of(&list, &heap, NULL);
    if (metrics == NULL)
        die("metrics", "no memory");
    begin = monotonic_ns();
    for (uint64_t i = 0; i < n; i++) {
        rn_metrics_count(metrics, RN_COUNT_TOKENS, 1);
        rn_metrics_time(metrics, RN_TIMING_INTER_TOKEN, 20000 + i % 65536);
    }
    begin = monotonic_ns() - begin;
    row("overhead", "metrics of a token", "count and histogram", (double)begin / (double)n, "ns", 50);
    rn_metrics_fini(&list, &heap);
}

static void overhead(void)
{
    measure_metrics();
    measure_overhead("64 streams, steps of 1 ms", 1000000, 0, 2);
    measure_overhead("64 streams, steps of 12.8 ms", 12800000, 10, 2);
}

/* ---- idle ---- */

static void measure_idle(const char *what, uint64_t step_ns)
{
    struct host host;
    double idle, busy, steps;

    open_device(&host, 64, step_ns, NULL);
    device_reset(host.device);
    host_run(&host, seconds_from_now(arguments.seconds), NULL, 0);
    idle = (double)host.device->idle_ns;
    busy = (double)host.device->busy_ns;
    steps = (double)host.device->n_steps;
    row("idle", what, "from the end to the next submit", idle / steps * 1e-3, "us", 0);
    row("idle", what, "device idle", 100 * idle / (idle + busy), "%", 2);
    host_close(&host);
}

/* Time of the actors, by name; the tracer's thread writes. */
#define ROLES 7
static struct {
    const char *names[ROLES];
    uint64_t ns[ROLES], steps;
} work;

static void on_trace(void *user, const runnel_trace_event *event)
{
    uint32_t i = 0;

    (void)user;
    work.steps += event->kind == RUNNEL_TRACE_STEP;
    if (event->kind != RUNNEL_TRACE_ACTOR)
        return;
    while (i < ROLES - 1 && work.names[i] != NULL && strcmp(work.names[i], event->name) != 0)
        i++;
    work.names[i] = event->name;
    work.ns[i] += event->end_ns - event->begin_ns;
}

/* Where the time between two steps goes: of it, the sampler's and decode's work is on the way; the rest is waking. */
static void measure_work(void)
{
    struct host host;

    memset(&work, 0, sizeof work);
    open_device(&host, 64, 2000000, on_trace);
    host_run(&host, seconds_from_now(arguments.seconds), NULL, 0);
    host_close(&host);
    for (uint32_t i = 0; i < ROLES && work.names[i] != NULL; i++) {
        char figure[64];

        snprintf(figure, sizeof figure, "%s, per step", work.names[i]);
        row("idle", "64 streams, traced", figure, (double)work.ns[i] / (double)work.steps * 1e-3, "us", 0);
    }
}

static void idle(void)
{
    measure_idle("64 streams, steps of 1 ms", 1000000);
    measure_idle("64 streams, steps of 2 ms", 2000000);
    measure_idle("64 streams, steps of 5 ms", 5000000);
    measure_work();
}

/* ---- open ---- */

#define OPEN 10000u
#define ACTIVE 500u
#define OPEN_PROMPT 16
#define OPEN_TOKENS 112 /* with the prompt: four blocks, as many as there are for each that runs */
#define SIZES 32

/* What submits take from the allocator on this thread, by size. */
static struct {
    bool on;
    size_t sizes[SIZES];
    uint64_t counts[SIZES];
    size_t n;
} taken;

static _Thread_local bool is_host; /* this is the thread that submits */

static void *count_alloc(void *user, size_t bytes, size_t alignment)
{
    void *ptr = NULL;
    size_t i = 0;

    (void)user;
    if (is_host && taken.on) {
        while (i < taken.n && taken.sizes[i] != bytes)
            i++;
        if (i == taken.n && taken.n < SIZES)
            taken.sizes[taken.n++] = bytes;
        if (i < taken.n)
            taken.counts[i]++;
    }
    return posix_memalign(&ptr, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) == 0 ? ptr : NULL;
}

static void count_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

static uint64_t heap_bytes(const struct host *host)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(host->engine, &stats);
    return stats.heap_bytes;
}

/* Submits n more, one at a time; the microseconds of each to list. Callbacks run in between. */
static void submit_waiting(struct host *host, uint32_t n, double *list)
{
    for (uint32_t i = 0; i < n; i++) {
        struct user *user = host_user(host, NULL, 0, OPEN_PROMPT, OPEN_TOKENS);

        user_submit(user);
        list[i] = (double)(monotonic_ns() - user->submitted_ns) * 1e-3;
        if (i % 64 == 63)
            runnel_engine_dispatch(host->engine, 0);
    }
}

static double cpu_per_token(struct host *host)
{
    uint64_t scheduler, tokens;

    host_run(host, seconds_from_now(0.5), NULL, 0);
    scheduler = host_scheduler_ns(host);
    tokens = host->n_tokens;
    host_run(host, seconds_from_now(arguments.seconds), NULL, 0);
    return (double)(host_scheduler_ns(host) - scheduler) / (double)(host->n_tokens - tokens) * 1e-3;
}

static void report_sizes(const char *what, uint32_t n)
{
    for (size_t i = 0; i < taken.n; i++)
        if (taken.counts[i] >= n / 2) {
            char figure[64];

            snprintf(figure, sizeof figure, "a submit takes %zu bytes", taken.sizes[i]);
            row("open", what, figure, (double)taken.counts[i] / n, "times", 0);
        }
}

/* What a stream more costs in the tables whose size max_streams sets. */
static double table_bytes(void)
{
    double bytes[2];

    for (int i = 0; i < 2; i++) {
        struct host_options options = device_options(ACTIVE, OPEN_PROMPT + OPEN_TOKENS);
        struct host host;

        options.max_streams = i == 0 ? 1000 : OPEN + 1000;
        host_open(&host, &options);
        bytes[i] = (double)heap_bytes(&host);
        host_close(&host);
    }
    return (bytes[1] - bytes[0]) / OPEN;
}

static void all_again(struct host *host, bool again)
{
    for (uint32_t i = 0; i < host->n_users; i++)
        host->users[i].again = again;
}

/* 500 streams that have just begun and whose steps are slow: none ends while the others are submitted. */
static void begin_slowly(struct host *host)
{
    all_again(host, false);
    host_run(host, 0, &host->n_live, 0);
    host->device->step_ns = 25000000;
    host->n_first = 0;
    for (uint32_t i = 0; i < ACTIVE; i++)
        user_submit(&host->users[i]);
    host_run(host, 0, &host->n_first, ACTIVE);
}

static void report_waiting(struct host *host, const char *what, double *list, uint32_t n)
{
    uint64_t bytes = heap_bytes(host);

    taken.on = is_host = true;
    submit_waiting(host, n, list);
    taken.on = false;
    host_run(host, seconds_from_now(0.2), NULL, 0); /* the actors are through with them */
    bytes = heap_bytes(host) - bytes;
    row("open", what, "memory of a waiting stream", (double)bytes / n, "bytes", 2048);
    row("open", what, "its share of tables", table_bytes(), "bytes", 0);
    report_sizes(what, n);
    row("open", what, "submit, p50", quantile(list, n, 0.5), "us", 5);
    row("open", what, "submit, p99", quantile(list, n, 0.99), "us", 0);
    row("open", what, "submit, most", quantile(list, n, 1), "us", 0);
}

static void open_streams(void)
{
    static const char *const what = "10000 streams, 500 of them run";
    static const runnel_allocator allocator = {count_alloc, count_free, NULL};
    struct host_options options = device_options(ACTIVE, OPEN_PROMPT + OPEN_TOKENS);
    uint32_t n = OPEN - ACTIVE;
    double *list = malloc(n * sizeof *list), alone;
    struct host host;
    uint64_t begin;

    options.max_streams = OPEN + 8;
    options.allocator = &allocator;
    host_open(&host, &options);
    host.device->step_ns = 5000000;
    for (uint32_t i = 0; i < ACTIVE; i++) {
        struct user *user = host_user(&host, NULL, 0, OPEN_PROMPT, OPEN_TOKENS);

        user->again = true;
        user_submit(user);
    }
    host_run(&host, 0, &host.n_first, ACTIVE);
    alone = cpu_per_token(&host);
    begin_slowly(&host);
    report_waiting(&host, what, list, n);
    all_again(&host, true);
    host.device->step_ns = 5000000;
    row("open", what, "scheduler, per token, none waiting", alone, "us", 0);
    row("open", what, "scheduler, per token, 9500 waiting", cpu_per_token(&host), "us", 0);
    begin = monotonic_ns();
    host_close(&host);
    row("open", what, "to cancel and free all", (double)(monotonic_ns() - begin) * 1e-6, "ms", 0);
    free(list);
}

/* ---- arrivals ---- */

#define ARRIVAL_STREAMS 32
#define ARRIVAL_TOKENS 4000

/* Of so many positions of a model's file. */
static uint64_t kv_bytes_of(const char *path, uint64_t tokens)
{
    runnel_file *file;
    runnel_error error = {0};
    uint64_t bytes = 0;

    if (runnel_file_open(path, &file, &error) != RUNNEL_OK ||
        runnel_file_kv_bytes_per_token(file, RUNNEL_KV_F16, &bytes, &error) != RUNNEL_OK)
        die(path, error.message);
    runnel_file_close(file);
    return bytes * tokens;
}

static struct host_options file_options(uint32_t n_streams, uint32_t context, uint64_t kv_tokens)
{
    return (struct host_options){.path = arguments.model,
                                 .max_streams = n_streams + 64,
                                 .context_tokens = context,
                                 .threads = arguments.threads,
                                 .kv_bytes = kv_bytes_of(arguments.model, kv_tokens)};
}

/* p99 over so many seconds, in each of which a long prompt arrives, or none does. */
static double p99_gap(struct host *host, bool arrivals, uint64_t *n_arrived)
{
    uint32_t before = host->n_users;

    host_forget_gaps(host);
    *n_arrived = 0;
    for (double at = 0; at < arguments.seconds; at += 1) {
        if (arrivals) {
            user_submit(host_user(host, NULL, 0, ARRIVAL_TOKENS, 1));
            (*n_arrived)++;
        }
        host_run(host, seconds_from_now(1), NULL, 0);
    }
    for (uint32_t i = before; i < host->n_users; i++)
        if (host->users[i].live)
            (*n_arrived)--;
    return quantile(host->gaps, host->n_gaps, 0.99);
}

static void measure_arrivals(const char *what, const struct host_options *options)
{
    struct host host;
    double without, with;
    uint64_t n_through;

    host_open(&host, options);
    if (host.device != NULL) {
        host.device->step_ns = 5000000;
        host.device->row_ns = 20000;
    }
    for (uint32_t i = 0; i < ARRIVAL_STREAMS; i++) {
        struct user *user = host_user(&host, NULL, 0, 16, 300 + (int64_t)i);

        user->again = user->timed = true;
        user_submit(user);
    }
    host_run(&host, 0, &host.n_first, ARRIVAL_STREAMS);
    host_run(&host, seconds_from_now(0.5), NULL, 0);
    without = p99_gap(&host, false, &n_through);
    with = p99_gap(&host, true, &n_through);
    row("arrivals", what, "between tokens, p99, without", without, "ms", 0);
    row("arrivals", what, "between tokens, p99, with", with, "ms", 0);
    row("arrivals", what, "ratio", with / without, "", 2);
    row("arrivals", what, "long prompts that were through", (double)n_through, "", 0);
    host_close(&host);
}

static void arrivals(void)
{
    struct host_options options = device_options(ARRIVAL_STREAMS, 4608);

    if (arguments.model != NULL)
        options = file_options(ARRIVAL_STREAMS, 4608, ARRIVAL_STREAMS * 512 + 8 * 4608);
    measure_arrivals(arguments.model != NULL ? "32 streams; 4000 tokens each second"
                                             : "32 streams, 5 ms + 20 us a row; 4000 each s",
                     &options);
}

/* ---- throughput ---- */

static void measure_throughput(uint32_t n)
{
    struct host_options options = file_options(n, 160, (uint64_t)n * 160);
    char what[64];
    struct host host;
    uint64_t begin, tokens;

    snprintf(what, sizeof what, "%u streams", (unsigned)n);
    host_open(&host, &options);
    for (uint32_t i = 0; i < n; i++) {
        struct user *user = host_user(&host, NULL, 0, 4, 100 + (int64_t)(i % 32));

        user->again = true;
        user_submit(user);
    }
    host_run(&host, 0, &host.n_first, n);
    begin = monotonic_ns();
    tokens = host.n_tokens;
    host_run(&host, seconds_from_now(arguments.seconds), NULL, 0);
    row("throughput", what, "all together", (double)(host.n_tokens - tokens) / (double)(monotonic_ns() - begin) * 1e9,
        "tokens/s", 0);
    host_close(&host);
}

static void throughput(void)
{
    for (size_t i = 0; i < arguments.n_streams; i++)
        measure_throughput(arguments.streams[i]);
}

/* ---- shared ---- */

#define SHARED_STREAMS 64
#define ROUNDS_MOST 32

/* Milliseconds from the first submit until n streams with a prefix that is new, the same for all, have a token. */
static double first_tokens(struct host *host, uint32_t n, uint32_t n_shared, uint32_t n_own)
{
    struct user *source = host_user(host, NULL, 0, n_shared, 1); /* only its tokens are used */
    uint64_t begin = monotonic_ns();

    host->n_first = 0;
    for (uint32_t i = 0; i < n; i++)
        user_submit(host_user(host, source->prompt, n_shared, n_own, 1));
    host_run(host, 0, &host->n_first, n);
    begin = monotonic_ns() - begin;
    host_run(host, 0, &host->n_live, 0);
    return (double)begin * 1e-6;
}

static double computed_tokens(const struct host *host)
{
    runnel_metrics metrics = {.struct_size = sizeof metrics};

    runnel_engine_metrics(host->engine, &metrics);
    return (double)metrics.prompt_tokens;
}

/* The time's ratio, beside that of the positions computed: what is not a whole block of 32 is not shared. */
static void measure_shared(const char *what, uint32_t n_shared, uint32_t n_own)
{
    struct host_options options = file_options(SHARED_STREAMS, 1100, 4 * 1100 + SHARED_STREAMS * 96);
    double alone[ROUNDS_MOST], all[ROUNDS_MOST], rows_alone = 0, rows_all = 0;
    uint64_t end = seconds_from_now(arguments.seconds);
    struct host host;
    size_t n = 0;

    host_open(&host, &options);
    do {
        double before = computed_tokens(&host);

        alone[n] = first_tokens(&host, 1, n_shared, n_own);
        rows_alone += computed_tokens(&host) - before;
        before = computed_tokens(&host);
        all[n++] = first_tokens(&host, SHARED_STREAMS, n_shared, n_own);
        rows_all += computed_tokens(&host) - before;
    } while (n < ROUNDS_MOST && monotonic_ns() < end);
    row("shared", what, "first token of one", quantile(alone, n, 0.5), "ms", 0);
    row("shared", what, "first tokens of 64", quantile(all, n, 0.5), "ms", 0);
    row("shared", what, "ratio", quantile(all, n, 0.5) / quantile(alone, n, 0.5), "", 1.3);
    row("shared", what, "ratio of positions computed", rows_all / rows_alone, "", 0);
    host_close(&host);
}

static void shared(void)
{
    measure_shared("64: 1000 tokens shared, 8 own", 1000, 8);
    measure_shared("64: 1000 tokens shared, 1 own", 1000, 1);
    measure_shared("64: 31 blocks shared, 1 token own", 992, 1);
}

/* ---- Arguments ---- */

static const struct test {
    const char *name;
    void (*run)(void);
    bool needs_model, takes_model;
} tests[] = {
    {"overhead", overhead, false, false}, {"idle", idle, false, false},           {"open", open_streams, false, false},
    {"arrivals", arrivals, false, true},  {"throughput", throughput, true, true}, {"shared", shared, true, true},
};

/* True when the word is in the comma-separated list. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* Without --test: all that go with what was given. */
static bool wanted(const struct test *test)
{
    if (arguments.tests != NULL)
        return has_word(arguments.tests, test->name);
    return arguments.model != NULL ? test->takes_model : !test->needs_model;
}

static void read_streams(const char *text)
{
    char *end;

    for (arguments.n_streams = 0; arguments.n_streams < 8; text = end + 1) {
        arguments.streams[arguments.n_streams++] = (uint32_t)strtoul(text, &end, 10);
        if (*end != ',')
            return;
    }
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--csv") == 0) {
            arguments.csv = true;
            continue;
        }
        if (strcmp(argv[i], "--test") == 0)
            arguments.tests = value;
        else if (strcmp(argv[i], "--model") == 0)
            arguments.model = value;
        else if (strcmp(argv[i], "--streams") == 0)
            read_streams(value);
        else if (strcmp(argv[i], "--seconds") == 0)
            arguments.seconds = strtod(value, NULL);
        else if (strcmp(argv[i], "--threads") == 0)
            arguments.threads = (uint32_t)strtoul(value, NULL, 10);
        else
            die(argv[i], "not an option");
        i++;
    }
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    head();
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (!wanted(&tests[i]))
            continue;
        if (tests[i].needs_model && arguments.model == NULL)
            die(tests[i].name, "needs --model");
        tests[i].run();
    }
    return 0;
}
