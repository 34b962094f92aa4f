/* What lower tiers of the prefix cache are worth: time to the first token of a long prompt whose beginning is hot, warm
 * or cold, against computing it; what the traffic costs streams beside it; and distinct prefixes without end.
 *
 *   bench_tiers fill MODEL DIR WHICH TOKENS   computes prefix number WHICH and leaves it in DIR: computed, hot, and
 *                                             a prompt as long as the rest alone
 *   bench_tiers serve MODEL DIR TOKENS        prefixes 1 and 2, filled before: cold (the files' pages are dropped from
 *                                             memory), warm by turns in room for one and a rest
 *   bench_tiers beside MODEL DIR TOKENS RATE ROUNDS  another stream decodes, by turns alone and beside RATE requests
 *                                             a second for those two, in a model where both are hot and in one where
 *                                             each comes up from warm; what the mover's thread took, and how long the
 *                                             compute team's threads were ready to run but did not
 *   bench_tiers storm MODEL DIR N TOKENS TENTHS BLOCK ROUNDS  N prefixes in a cyclic order, hot room for TENTHS/10 of
 *                                             them, four at once: without a cache, with the hot tier alone, with warm
 *                                             memory for a half, with DIR. Each is a process; they take turns after
 *                                             each BLOCK prefixes, so that what the machine does meanwhile is the same
 *                                             for all, and are stopped between
 *
 * One prompt is prefix, then a rest of REST tokens that no other has. Times are the library's own, from submit. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runnel.h"

enum { REST = 32, MOST_TOKENS = 16384, BESIDE = 100, ROUNDS = 3, MOST_ROUNDS = 100, MOST_BLOCKS = 1000 };

static runnel_engine *engine;
static runnel_model *model;
static uint32_t n_asked, n_vocab;

struct answer {
    runnel_event end;
    bool ended;
};

_Noreturn static void die(const char *what, const runnel_error *error)
{
    fprintf(stderr, "bench_tiers: %s: %s\n", what, error != NULL ? error->message : "");
    exit(1);
}

static void on_event(void *user, const runnel_event *event)
{
    struct answer *answer = user;

    if (event->type < RUNNEL_EVENT_DONE)
        return;
    answer->end = *event;
    answer->ended = true;
}

static void on_log(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

/* Another one, where there is an engine already. */
static void load(const char *path, const runnel_model_options *options)
{
    runnel_engine_options engine_options;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_error error = {0};

    runnel_engine_options_default(&engine_options);
    engine_options.on_log = on_log;
    engine_options.log_level = RUNNEL_LOG_WARNING;
    if ((engine == NULL && runnel_engine_new(&engine_options, &engine, &error) != RUNNEL_OK) ||
        runnel_model_load(engine, path, options, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK || runnel_model_get_info(model, &info) != RUNNEL_OK)
        die(path, &error);
    n_vocab = info.vocab_tokens;
}

static void unload(void)
{
    runnel_engine_free(engine);
    engine = NULL;
}

/* Token i of a text: any of the vocabulary but the first hundreds, which may be control tokens. */
static int32_t token_of(uint64_t text, uint32_t i)
{
    uint64_t z = text * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;

    z = (z ^ (z >> 30)) * 0x94d049bb133111ebu;
    return (int32_t)(300 + (z >> 33) % (n_vocab - 400));
}

/* prefix 0: only the rest, which is new each time. */
static void begin(struct answer *answer, uint64_t prefix, uint32_t n_prefix, uint32_t n_rest, int64_t max_tokens,
                  bool pin)
{
    static int32_t tokens[MOST_TOKENS];
    runnel_request request;
    runnel_stream stream;
    runnel_error error = {0};

    *answer = (struct answer){.ended = false};
    n_asked++;
    for (uint32_t i = 0; i < n_prefix; i++)
        tokens[i] = token_of(prefix, i);
    for (uint32_t i = 0; i < n_rest; i++)
        tokens[n_prefix + i] = token_of((uint64_t)1 << 40 | (uint64_t)getpid() << 20 | n_asked, i);
    runnel_request_default(&request);
    request.tokens = tokens;
    request.n_tokens = n_prefix + n_rest;
    request.max_tokens = max_tokens;
    request.ignore_eos = 1;
    request.pin_prefix = pin;
    request.on_event = on_event;
    request.user = answer;
    if (runnel_generate(model, &request, &stream, &error) != RUNNEL_OK)
        die("generate", &error);
}

static void end(struct answer *answer)
{
    while (!answer->ended) {
        runnel_engine_wait(engine, 1000);
        runnel_engine_dispatch(engine, 0);
    }
    if (answer->end.type != RUNNEL_EVENT_DONE)
        die("a request has failed", NULL);
}

static double ask(uint64_t prefix, uint32_t n_prefix, uint32_t n_rest, bool pin, const char *name)
{
    struct answer answer;
    const runnel_usage *usage = &answer.end.usage;
    double ms;

    begin(&answer, prefix, n_prefix, n_rest, 1, pin);
    end(&answer);
    ms = (double)answer.end.timings.first_token_us / 1000;
    if (name != NULL)
        printf("%-28s %9.1f ms to the first token; of %5llu tokens %5llu cached, %5llu from warm, %5llu from cold\n",
               name, ms, (unsigned long long)usage->prompt_tokens, (unsigned long long)usage->cached_tokens,
               (unsigned long long)usage->warm_tokens, (unsigned long long)usage->cold_tokens);
    fflush(stdout);
    return ms;
}

/* Until nothing is on its way between tiers. */
static void settle(void)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    const struct timespec pause = {0, 2000000};

    for (unsigned calm = 0; calm < 5; calm = stats.messages == 0 ? calm + 1 : 0) {
        nanosleep(&pause, NULL);
        runnel_engine_get_stats(engine, &stats);
    }
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void options_for(runnel_model_options *options, const char *dir, uint32_t context)
{
    runnel_model_options_default(options);
    options->context_tokens = context;
    options->cache_dir = dir;
    options->cache_cold_bytes = (uint64_t)4 << 30;
}

/* Room for so many tokens; asked of a model that is loaded for nothing else. */
static uint64_t bytes_of(const char *path, uint64_t n_tokens, uint32_t context)
{
    runnel_model_options options;
    runnel_model_info info = {.struct_size = sizeof info};
    uint64_t bytes;

    options_for(&options, NULL, context);
    load(path, &options);
    runnel_model_get_info(model, &info);
    bytes = (n_tokens + info.block_tokens - 1) / info.block_tokens * info.block_tokens * info.kv_bytes_per_token;
    unload();
    return bytes;
}

/* ---- fill ---- */

static void fill(const char *path, const char *dir, uint64_t which, uint32_t n)
{
    runnel_model_options options;

    options_for(&options, dir, n + 256);
    load(path, &options);
    ask(0, 0, REST, false, NULL); /* the weights are in memory */
    ask(0, 0, REST, false, "rest alone");
    ask(0, 0, REST, false, "rest alone");
    ask(which, n, REST, true, "computed");
    for (unsigned i = 0; i < ROUNDS; i++)
        ask(which, n, REST, false, "hot");
    settle();
    unload();
}

/* ---- serve ---- */

/* The pages of all files below are dropped from memory; they have been synced. */
static void drop_pages(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char inside[4096];

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int fd;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        fd = open(inside, O_RDONLY);
        if (fd < 0)
            continue;
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
        drop_pages(inside);
    }
    if (folder != NULL)
        closedir(folder);
}

/* Tokens a second of one stream, while prefixes come and go every so many seconds (0: without a pause; negative: not
 * at all). */
static double decode_rate(uint32_t n_prefix, double every_s, uint32_t *n_moves)
{
    struct answer answer, other;
    double next = now_s();

    *n_moves = 0;
    begin(&answer, 0, 0, REST, BESIDE, false);
    while (!answer.ended) {
        if (every_s >= 0 && now_s() >= next) {
            begin(&other, 1 + *n_moves % 2, n_prefix, 1, 0, false);
            end(&other);
            (*n_moves)++;
            next += every_s;
        }
        runnel_engine_wait(engine, 20);
        runnel_engine_dispatch(engine, 0);
    }
    end(&answer);
    return (double)(BESIDE - 1) * 1e6 / (double)(answer.end.timings.end_us - answer.end.timings.first_token_us);
}

static void serve(const char *path, const char *dir, uint32_t n)
{
    runnel_model_options options;
    uint64_t room = bytes_of(path, n + 2 * REST, n + 256);

    options_for(&options, dir, n + 256);
    options.kv_bytes = room;
    options.cache_warm_bytes = 2 * room;
    drop_pages(dir);
    load(path, &options);
    ask(0, 0, REST, false, NULL);
    ask(1, n, REST, false, "cold, after a restart");
    settle();
    ask(2, n, REST, false, "cold, after a restart");
    settle();
    for (uint64_t i = 0; i < 2 * ROUNDS; i++) {
        ask(1 + i % 2, n, REST, false, "warm");
        settle();
    }
    unload();
}

/* ---- beside ---- */

struct time_of {            /* of all threads of a name */
    double run_ms, wait_ms; /* wait: ready to run, but others did */
};

static struct time_of time_of(const char *name)
{
    struct time_of sum = {0, 0};
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;

    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        char path[300], comm[32] = "";
        unsigned long long run = 0, wait = 0;
        FILE *file;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        if ((file = fopen(path, "r")) != NULL) {
            if (fgets(comm, sizeof comm, file) == NULL)
                comm[0] = '\0';
            fclose(file);
        }
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        if (strncmp(comm, name, strlen(name)) != 0 || (file = fopen(path, "r")) == NULL)
            continue;
        if (fscanf(file, "%llu %llu", &run, &wait) == 2) {
            sum.run_ms += (double)run / 1e6;
            sum.wait_ms += (double)wait / 1e6;
        }
        fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return sum;
}

struct beside {
    runnel_model *model;
    const char *name;
    double alone[MOST_ROUNDS], with[MOST_ROUNDS], ratio[MOST_ROUNDS];
};

static void prepare(struct beside *beside, const char *path, const char *dir, uint32_t n, uint64_t room)
{
    runnel_model_options options;

    options_for(&options, dir, n + 256);
    options.kv_bytes = room;
    options.cache_warm_bytes = 2 * room + ((uint64_t)64 << 20);
    load(path, &options);
    beside->model = model;
    ask(0, 0, REST, false, NULL);
    for (uint64_t i = 0; i < 4; i++) {
        ask(1 + i % 2, n, 1, false, i < 2 ? NULL : beside->name);
        settle();
    }
}

/* By turns alone and beside; the time that the mover took for each prefix. */
static void turn(struct beside *beside, uint32_t n, double rate, unsigned round)
{
    struct time_of mover, team, mover_after, team_after;
    uint32_t n_moves;
    double alone, with;

    model = beside->model;
    alone = decode_rate(n, -1, &n_moves);
    mover = time_of("rn-mover");
    team = time_of("rn-cpu-");
    with = decode_rate(n, 1 / rate, &n_moves);
    mover_after = time_of("rn-mover");
    team_after = time_of("rn-cpu-");
    beside->alone[round] = alone;
    beside->with[round] = with;
    beside->ratio[round] = with / alone;
    printf("%-4s alone %6.2f tokens/s, beside %2u %6.2f, %5.1f %%; the mover ran %5.1f ms and waited %5.1f for each, "
           "the team ran %5.0f and waited %5.1f in all\n",
           beside->name, alone, n_moves, with, 100 * with / alone, (mover_after.run_ms - mover.run_ms) / n_moves,
           (mover_after.wait_ms - mover.wait_ms) / n_moves, team_after.run_ms - team.run_ms,
           team_after.wait_ms - team.wait_ms);
    fflush(stdout);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, compare);
    return (values[n / 2] + values[(n - 1) / 2]) / 2;
}

static void beside(const char *path, const char *dir, uint32_t n, double rate, unsigned n_rounds)
{
    struct beside both[2] = {{.name = "hot"}, {.name = "warm"}};
    uint64_t hot_room = bytes_of(path, 2 * (uint64_t)n + 512, n + 256), room = bytes_of(path, n + 512, n + 256);

    if (rate <= 0 || n_rounds < 1 || n_rounds > MOST_ROUNDS)
        die("rate or rounds", NULL);
    prepare(&both[0], path, dir, n, hot_room);
    prepare(&both[1], path, dir, n, room);
    for (unsigned round = 0; round < n_rounds; round++)
        for (unsigned i = 0; i < 2; i++)
            turn(&both[(round + i) % 2], n, rate, round);
    for (unsigned i = 0; i < 2; i++) {
        printf("%-4s medians of %u, at %.2f a second: alone %.2f tokens/s, ", both[i].name, n_rounds, rate,
               median(both[i].alone, n_rounds));
        printf("beside %.2f, pair by pair %.1f %%\n", median(both[i].with, n_rounds),
               100 * median(both[i].ratio, n_rounds));
    }
    unload();
}

/* ---- storm ---- */

enum { AT_ONCE = 4, CONFIGS = 4 };

/* From the parent: ask for prefixes first .. first + n - 1; stop: go home. */
struct order {
    uint32_t first, n, stop;
};

struct report {
    double seconds;
    uint64_t cached, warm, cold;                /* tokens */
    uint64_t evicted, dropped, unpaid, copy_us; /* so far */
};

struct child {
    const char *name;
    pid_t pid;
    int orders, reports; /* pipes */
    struct report last, sum;
    double rates[MOST_BLOCKS];
};

static void write_all(int fd, const void *bytes, size_t n)
{
    if (write(fd, bytes, n) != (ssize_t)n)
        die("a pipe is closed", NULL);
}

static bool read_all(int fd, void *bytes, size_t n)
{
    return read(fd, bytes, n) == (ssize_t)n;
}

static struct report run_order(const struct order *order, uint32_t n)
{
    struct report report = {0};
    static runnel_metrics m;
    double begun = now_s();

    for (uint32_t done = 0; done < order->n; done += AT_ONCE) {
        struct answer answers[AT_ONCE];

        for (uint32_t k = 0; k < AT_ONCE; k++)
            begin(&answers[k], 10 + order->first + done + k, n, 4, 1, false);
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            end(&answers[k]);
            report.cached += answers[k].end.usage.cached_tokens;
            report.warm += answers[k].end.usage.warm_tokens;
            report.cold += answers[k].end.usage.cold_tokens;
        }
    }
    report.seconds = now_s() - begun;
    m.struct_size = sizeof m;
    if (runnel_engine_metrics(engine, &m) != RUNNEL_OK)
        die("metrics", NULL);
    report.evicted = m.evicted_blocks;
    report.dropped = m.cache_dropped;
    report.unpaid = m.cache_unpaid;
    report.copy_us = m.cache_copy_us;
    return report;
}

/* A process for each way of caching: between its turns it is stopped, so that nothing is copied for nothing. */
static void be_child(const char *path, const runnel_model_options *options, uint32_t n, int orders, int reports)
{
    const struct timespec rest = {0, 4000000}; /* or all the time that it is stopped were taken for that of requests */
    struct report report = {0};
    struct order order;

    load(path, options);
    ask(0, 0, REST, false, NULL);
    write_all(reports, &report, sizeof report);
    raise(SIGSTOP);
    while (read_all(orders, &order, sizeof order) && !order.stop) {
        report = run_order(&order, n);
        write_all(reports, &report, sizeof report);
        nanosleep(&rest, NULL);
        raise(SIGSTOP);
    }
    unload();
    exit(0);
}

static void start_child(struct child *child, const char *path, const runnel_model_options *options, uint32_t n)
{
    int down[2], up[2];
    struct report ready;

    if (pipe(down) != 0 || pipe(up) != 0 || (child->pid = fork()) < 0)
        die("no process", NULL);
    if (child->pid == 0) {
        close(down[1]);
        close(up[0]);
        be_child(path, options, n, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    child->orders = down[1];
    child->reports = up[0];
    if (!read_all(child->reports, &ready, sizeof ready))
        die("a process has failed", NULL);
    waitpid(child->pid, NULL, WUNTRACED); /* it stops by itself */
}

static void give(struct child *child, uint32_t first, uint32_t n, uint32_t block)
{
    struct order order = {first, n, 0};
    struct report *sum = &child->sum;

    write_all(child->orders, &order, sizeof order);
    kill(child->pid, SIGCONT);
    if (!read_all(child->reports, &child->last, sizeof child->last))
        die("a process has failed", NULL);
    waitpid(child->pid, NULL, WUNTRACED);
    child->rates[block] = n / child->last.seconds;
    sum->seconds += child->last.seconds;
    sum->cached += child->last.cached;
    sum->warm += child->last.warm;
    sum->cold += child->last.cold;
}

/* sum's counters of blocks are those before the round. Turns rates into those by no cache's of the same block. */
static void print_round(struct child *child, const struct child *plain, const double *plain_rates, unsigned round,
                        uint32_t n_prefixes, uint32_t n, uint32_t n_blocks)
{
    double tokens = (double)n_prefixes * n, rate = n_prefixes / child->sum.seconds;
    const struct report *before = &child->sum, *now = &child->last;
    uint64_t evicted = now->evicted - before->evicted, dropped = now->dropped - before->dropped;

    for (uint32_t i = 0; i < n_blocks; i++)
        child->rates[i] /= plain_rates[i];
    printf("%-8s round %u: %8.1f prompts/s, %7.0f tokens/s, %6.3f of no cache, blocks' median %6.3f; cached %5.1f %%, "
           "warm %5.1f %%, cold %5.1f %%",
           child->name, round + 1, rate, rate * n, plain->sum.seconds / child->sum.seconds,
           median(child->rates, n_blocks), 100.0 * (double)child->sum.cached / tokens,
           100.0 * (double)child->sum.warm / tokens, 100.0 * (double)child->sum.cold / tokens);
    printf("; evicted %llu, dropped %llu, of them unpaid %llu; copies %.2f %% of the time\n",
           (unsigned long long)evicted, (unsigned long long)dropped, (unsigned long long)(now->unpaid - before->unpaid),
           (double)(now->copy_us - before->copy_us) / child->sum.seconds / 1e4);
    fflush(stdout);
}

static void storm_round(struct child *children, unsigned round, uint32_t n_prefixes, uint32_t n, uint32_t block)
{
    uint32_t n_blocks = n_prefixes / block;
    static double plain_rates[MOST_BLOCKS];

    for (unsigned i = 0; i < CONFIGS; i++) {
        children[i].sum = children[i].last;
        children[i].sum.seconds = 0;
        children[i].sum.cached = children[i].sum.warm = children[i].sum.cold = 0;
    }
    for (uint32_t k = 0; k < n_blocks; k++)
        for (unsigned i = 0; i < CONFIGS; i++)
            give(&children[(k + i) % CONFIGS], k * block, block, k);
    memcpy(plain_rates, children[0].rates, sizeof plain_rates);
    for (unsigned i = 0; i < CONFIGS; i++)
        print_round(&children[i], &children[0], plain_rates, round, n_blocks * block, n, n_blocks);
}

static void storm(const char *path, const char *dir, uint32_t n_prefixes, uint32_t n, uint32_t tenths, uint32_t block,
                  unsigned n_rounds)
{
    static struct child children[CONFIGS] = {
        {.name = "no cache"}, {.name = "hot"}, {.name = "and warm"}, {.name = "and cold"}};
    struct order stop = {0, 0, 1};
    runnel_model_options options;
    uint64_t need;
    int told[2];

    if (block == 0 || block % AT_ONCE != 0 || n_prefixes < block || n_prefixes / block > MOST_BLOCKS)
        die("N or BLOCK", NULL);
    if (pipe(told) != 0) /* the library has threads: asked for in a process of its own */
        die("no pipe", NULL);
    if (fork() == 0) {
        need = bytes_of(path, (uint64_t)n_prefixes * n, n + 128);
        write_all(told[1], &need, sizeof need);
        exit(0);
    }
    if (!read_all(told[0], &need, sizeof need))
        die("a process has failed", NULL);
    for (unsigned i = 0; i < CONFIGS; i++) {
        runnel_model_options_default(&options);
        options.context_tokens = n + 128;
        options.kv_bytes = need / 10 * tenths;
        options.no_prefix_cache = i == 0;
        options.cache_warm_bytes = i >= 2 ? need / 2 : 0;
        options.cache_dir = i == 3 ? dir : NULL;
        start_child(&children[i], path, &options, n);
    }
    for (unsigned round = 0; round < n_rounds; round++)
        storm_round(children, round, n_prefixes, n, block);
    for (unsigned i = 0; i < CONFIGS; i++) {
        write_all(children[i].orders, &stop, sizeof stop);
        kill(children[i].pid, SIGCONT);
    }
    while (wait(NULL) > 0)
        ;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";

    if (argc == 6 && strcmp(mode, "fill") == 0)
        fill(argv[2], argv[3], strtoull(argv[4], NULL, 10), (uint32_t)atoi(argv[5]));
    else if (argc == 5 && strcmp(mode, "serve") == 0)
        serve(argv[2], argv[3], (uint32_t)atoi(argv[4]));
    else if (argc == 7 && strcmp(mode, "beside") == 0)
        beside(argv[2], argv[3], (uint32_t)atoi(argv[4]), atof(argv[5]), (unsigned)atoi(argv[6]));
    else if (argc == 9 && strcmp(mode, "storm") == 0)
        storm(argv[2], argv[3], (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]), (uint32_t)atoi(argv[6]),
              (uint32_t)atoi(argv[7]), (unsigned)atoi(argv[8]));
    else {
        fprintf(stderr, "usage: bench_tiers fill MODEL DIR WHICH TOKENS | serve MODEL DIR TOKENS | beside MODEL DIR "
                        "TOKENS RATE ROUNDS | storm MODEL DIR N TOKENS TENTHS BLOCK ROUNDS\n");
        return 2;
    }
    return 0;
}
