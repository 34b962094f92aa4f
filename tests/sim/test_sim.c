/* The deterministic simulation over many seeds; each runs twice, the second time without a look at
 * the actors' state, and must give the same order signature.
 *
 *   RUNNEL_SIM_SEEDS=a..b   which seeds (default: 1..first argument, or 1..2000)
 *   RUNNEL_SIM_DEVICE=cuda   the oracle model on the CUDA device, emulated (cuda_oracle.h)
 *   RUNNEL_SIM_VERBOSE=1    one line per seed
 *   RUNNEL_SIM_STORY=1      every message and act of the first run of each seed
 *
 * A seed that fails is printed with the way to replay it. */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/sim/cuda_oracle.h"
#include "tests/sim/sim.h"

/* There under AddressSanitizer, which ends the program without SIGABRT. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* A run takes milliseconds; one that is not through after so much of the processor's time never will be. */
#define WATCHDOG_S 60

static unsigned long long first_seed = 1, last_seed = 2000;
static volatile unsigned long long seed_now;

static void say_replay(void)
{
    char line[128];
    int n = snprintf(line, sizeof line, "\nseed %llu; replay: RUNNEL_SIM_SEEDS=%llu..%llu bin/test_sim\n", seed_now,
                     seed_now, seed_now);

    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}

static void on_signal(int number)
{
    say_replay();
    signal(number, SIG_DFL);
    raise(number);
}

static void say(uint64_t seed, const struct sim_report *r)
{
    printf("seed %llu: %u requests (%llu done, %llu cancelled, %llu failed), %llu ticks, %llu steps, %llu events, %llu "
           "checks, %016llx\n",
           (unsigned long long)seed, r->n_streams, (unsigned long long)r->n_outcomes[0],
           (unsigned long long)r->n_outcomes[1], (unsigned long long)r->n_outcomes[2], (unsigned long long)r->n_ticks,
           (unsigned long long)r->n_steps, (unsigned long long)r->n_events, (unsigned long long)r->n_checks,
           (unsigned long long)r->signature);
}

static bool run_twice(uint64_t seed, struct sim_report *report)
{
    FILE *story = getenv("RUNNEL_SIM_STORY") != NULL ? stderr : NULL;
    struct sim_report again;

    if (!sim_run(seed, SIM_LOOK_AT_STATE, story, report)) {
        fprintf(stderr, "%s\n", report->failure);
        return false;
    }
    if (!sim_run(seed, SIM_LOOK_AT_ANSWERS, NULL, &again) || again.signature != report->signature ||
        again.n_ticks != report->n_ticks) {
        fprintf(stderr, "the second run went another way: signature %016llx, then %016llx %s\n",
                (unsigned long long)report->signature, (unsigned long long)again.signature, again.failure);
        return false;
    }
    return true;
}

/* The model was computed on the CUDA device. */
static bool is_on_cuda(void)
{
    const char *device = getenv("RUNNEL_SIM_DEVICE");

    return device != NULL && strcmp(device, "cuda") == 0;
}

/* What some seeds on the CUDA device have to meet, which has a part of all. */
static void expect_cuda(const struct sim_report *sum)
{
    assert_true(cuda_oracle_launches() > sum->n_steps);
    if (last_seed - first_seed < 20)
        return;
    assert_true(cuda_oracle_failures() > 0 && sum->n_outcomes[0] > 0 && sum->n_hit_tokens > 0 && sum->n_evicted > 0 &&
                sum->n_copies > 0 && sum->n_ahead > 0 && sum->n_warm_tokens > 0);
}

static void test_seeds(void **state)
{
    bool verbose = getenv("RUNNEL_SIM_VERBOSE") != NULL;
    const struct itimerval watchdog = {.it_value.tv_sec = WATCHDOG_S};
    unsigned long long failed = 0;
    struct sim_report sum = {0};

    (void)state;
    for (unsigned long long seed = first_seed; seed <= last_seed && failed < 10; seed++) {
        struct sim_report report;

        seed_now = seed;
        setitimer(ITIMER_PROF, &watchdog, NULL);
        if (!run_twice(seed, &report)) {
            say_replay();
            failed++;
            continue;
        }
        if (verbose)
            say(seed, &report);
        sum.n_streams += report.n_streams;
        sum.n_ticks += report.n_ticks;
        sum.n_steps += report.n_steps;
        sum.n_events += report.n_events;
        sum.n_checks += report.n_checks;
        sum.n_hit_tokens += report.n_hit_tokens;
        sum.n_state_tokens += report.n_state_tokens;
        sum.n_window_tokens += report.n_window_tokens;
        sum.n_waits += report.n_waits;
        sum.n_evicted += report.n_evicted;
        sum.n_copies += report.n_copies;
        sum.n_moves += report.n_moves;
        sum.n_means += report.n_means;
        sum.n_ahead += report.n_ahead;
        sum.n_again += report.n_again;
        sum.n_guesses += report.n_guesses;
        sum.n_branches += report.n_branches;
        sum.n_branches_right += report.n_branches_right;
        sum.n_forks += report.n_forks;
        sum.n_imports += report.n_imports;
        sum.n_preempted += report.n_preempted;
        sum.n_expired += report.n_expired;
        sum.n_busy += report.n_busy;
        sum.n_joined += report.n_joined;
        sum.n_warm_tokens += report.n_warm_tokens;
        sum.n_cold_tokens += report.n_cold_tokens;
        sum.n_adopted += report.n_adopted;
        sum.n_deaths += report.n_deaths;
        sum.n_stopped += report.n_stopped;
        sum.n_shifts += report.n_shifts;
        sum.n_guided += report.n_guided;
        sum.n_forced += report.n_forced;
        sum.n_cut += report.n_cut;
        sum.n_asked += report.n_asked;
        for (int i = 0; i < 3; i++)
            sum.n_outcomes[i] += report.n_outcomes[i];
        sum.signature ^= report.signature;
    }
    printf("all of ");
    say(last_seed, &sum);
    printf("%llu prompt tokens were cached, %llu of them with their state, %llu with their windows, %llu waits seen, "
           "%llu blocks evicted\n",
           (unsigned long long)sum.n_hit_tokens, (unsigned long long)sum.n_state_tokens,
           (unsigned long long)sum.n_window_tokens, (unsigned long long)sum.n_waits, (unsigned long long)sum.n_evicted);
    printf("%llu sessions forked, %llu imported, %llu blocks copied, %llu rows saw means, %llu "
           "waited for a draw\n",
           (unsigned long long)sum.n_forks, (unsigned long long)sum.n_imports, (unsigned long long)sum.n_copies,
           (unsigned long long)sum.n_means, (unsigned long long)sum.n_ahead);
    printf("%llu guesses of drafters, %llu runners-up moved, %llu branches begun, %llu came true\n",
           (unsigned long long)sum.n_guesses, (unsigned long long)sum.n_moves, (unsigned long long)sum.n_branches,
           (unsigned long long)sum.n_branches_right);
    printf("%llu preemptions, %llu deadlines passed, %llu submits refused, %llu tokens joined\n",
           (unsigned long long)sum.n_preempted, (unsigned long long)sum.n_expired, (unsigned long long)sum.n_busy,
           (unsigned long long)sum.n_joined);
    printf("%llu steps were stopped, %llu contexts were full and their answers went on, %llu tokens had a grammar and "
           "%llu of them no choice, %llu drafts were cut, hosts drew %llu tokens\n",
           (unsigned long long)sum.n_stopped, (unsigned long long)sum.n_shifts, (unsigned long long)sum.n_guided,
           (unsigned long long)sum.n_forced, (unsigned long long)sum.n_cut, (unsigned long long)sum.n_asked);
    printf("%llu prompt tokens came from warm tiers, %llu from cold ones; %llu blocks of others adopted, %llu disks "
           "died\n",
           (unsigned long long)sum.n_warm_tokens, (unsigned long long)sum.n_cold_tokens,
           (unsigned long long)sum.n_adopted, (unsigned long long)sum.n_deaths);
    assert_int_equal(failed, 0);
    if (is_on_cuda()) {
        expect_cuda(&sum);
        return;
    }
    /* A range of some size has to have met everything, or it proves little. */
    if (last_seed - first_seed >= 500)
        assert_true(sum.n_outcomes[0] > 0 && sum.n_outcomes[1] > 0 && sum.n_outcomes[2] > 0 &&
                    sum.n_steps > sum.n_streams && sum.n_hit_tokens > 0 && sum.n_state_tokens > 0 &&
                    sum.n_window_tokens > 0 && sum.n_waits > 0 && sum.n_evicted > 0 && sum.n_preempted > 0 &&
                    sum.n_expired > 0 && sum.n_busy > 0 && sum.n_joined > 0 && sum.n_forks > 0 && sum.n_imports > 0 &&
                    sum.n_copies > 0 && sum.n_means > 0 && sum.n_ahead > 0 && sum.n_again > 0 && sum.n_guesses > 0 &&
                    (last_seed - first_seed < 1900 || (sum.n_moves > 0 && sum.n_adopted > 0)) &&
                    sum.n_warm_tokens > 0 && sum.n_cold_tokens > 0 && sum.n_deaths > 0 && sum.n_stopped > 0 &&
                    sum.n_shifts > 0 && sum.n_guided > 0 && sum.n_forced > 0 && sum.n_cut > 0 && sum.n_asked > 0);
}

/* Two seeds must not give one signature: it would say nothing. */
static void test_signature_tells_apart(void **state)
{
    struct sim_report one, other;

    (void)state;
    if (is_on_cuda())
        skip(); /* it is the same there */
    assert_true(sim_run(1, SIM_LOOK_AT_ANSWERS, NULL, &one));
    assert_true(sim_run(2, SIM_LOOK_AT_ANSWERS, NULL, &other));
    assert_true(one.signature != other.signature);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signature_tells_apart),
        cmocka_unit_test(test_seeds),
    };
    const char *range = getenv("RUNNEL_SIM_SEEDS");

    if (argc > 1)
        last_seed = strtoull(argv[1], NULL, 10);
    if (range != NULL && sscanf(range, "%llu..%llu", &first_seed, &last_seed) != 2) {
        fprintf(stderr, "RUNNEL_SIM_SEEDS is not of the form a..b\n");
        return 2;
    }
    signal(SIGABRT, on_signal);
    signal(SIGPROF, on_signal);
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(say_replay);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
