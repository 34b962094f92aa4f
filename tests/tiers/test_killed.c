/* A process that serves is killed 200 times, each time at another moment, on the machine's own disk; the next one
 * begins with what it left. Every answer of every life is judged by its closed form (rig.h), and what a life found in
 * the cold tier is told to the parent: after the first lives there must be something. */
#define _GNU_SOURCE /* pipe2, mkdtemp */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/actors/fixture.h"
#include "tests/tiers/rig.h"
#include "tests/support/child.h"

/* FIRST: answers of the first life, so that something is in the folder however slow the machine is. */
enum { LIVES = UNLESS_SLOW(200, 20), PROMPT = 100, MOST_US = 12000, FIRST = UNLESS_SLOW(100, 30) };

/* What a life tells of each answer. */
struct told {
    uint32_t chain;
    uint32_t cached, cold;
};

/* Serves until it is killed. A wrong answer fails the test of the child, which then ends with another status. */
_Noreturn static void serve(const char *folder, uint64_t seed, int out)
{
    struct rig_plan plan = {.dir = folder, .cold_bytes = 8 << 20, .warm_bytes = 1 << 20, .threads = true};
    struct rig rig;

    rig_open(&rig, &plan);
    for (;;) {
        struct rig_ask ask = {.chain = (uint32_t)(rn_splitmix64(&seed) % 24),
                              .n_prompt = PROMPT,
                              .pin = rn_splitmix64(&seed) % 4 == 0,
                              .wait = RUNNEL_CACHE_WAIT};
        runnel_usage usage = rig_ask(&rig, ask);
        struct told told = {ask.chain, (uint32_t)usage.cached_tokens, (uint32_t)usage.cold_tokens};

        if (rig.n_warnings > 0 || write(out, &told, sizeof told) != sizeof told)
            _exit(3);
    }
}

static void wait_for_answer(int in, struct told *told)
{
    assert_int_equal(read(in, told, sizeof *told), sizeof *told);
}

static void test_killed(void **state)
{
    char folder[] = "/tmp/runnel-killed-XXXXXX", command[100];
    uint64_t rng = 2026, n_answers = 0, n_cold = 0, lives_with_cold = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (uint32_t life = 0; life < LIVES; life++) {
        int pipes[2];
        struct told told;
        uint64_t cold = 0;
        pid_t child;

        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        child = child_fork();
        if (child == 0)
            serve(folder, life, pipes[1]);
        close(pipes[1]);
        for (int i = 0; i < (life == 0 ? FIRST : 1); i++) { /* it has come so far; now its time runs */
            wait_for_answer(pipes[0], &told);
            cold += told.cold;
            n_answers++;
        }
        usleep((unsigned)(rn_splitmix64(&rng) % MOST_US));
        child_kill(child);
        for (; read(pipes[0], &told, sizeof told) == sizeof told; n_answers++)
            cold += told.cold;
        close(pipes[0]);
        n_cold += cold;
        lives_with_cold += cold > 0;
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    print_message("%llu answers, %llu tokens of cold blocks, in %llu of %d lives\n", (unsigned long long)n_answers,
                  (unsigned long long)n_cold, (unsigned long long)lives_with_cold, LIVES);
    assert_true(lives_with_cold > LIVES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
