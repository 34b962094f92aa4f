/* Whoever tries keys learns nothing from how long it takes: a look for a key takes the same number of instructions
 * whichever key is found, and whichever byte of whichever key a wrong one differs in. Counted by single steps of a
 * child process. Exit code 77: the machine lets no process be traced, or a sanitizer makes instructions of its own. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/serve/keys/keys.h"
#include "tests/slow.h"
#include "tests/support/child.h"

enum { N = 20, MOST_STEPS = 1 << 20 };

static struct serve_key all[N];
static struct serve_key *places[N];
static const struct serve_keys keys = {.at = places, .n = N};

static _Noreturn void look_for(const uint8_t digest[DIGEST_BYTES])
{
    struct serve_key *found = NULL;

    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(77);
    found = keys_find(&keys, digest); /* so that its symbol is bound */
    raise(SIGSTOP);
    found = keys_find(&keys, digest);
    raise(SIGSTOP);
    _exit(found != NULL);
}

/* Instructions between the two stops. */
static long steps_for(const uint8_t digest[DIGEST_BYTES], bool is_there)
{
    pid_t child = child_fork();
    int status = 0;
    long n = 0;

    if (child == 0)
        look_for(digest);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("no process may be traced here\n");
        exit(77);
    }
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    do {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status) && ++n < MOST_STEPS);
    } while (WSTOPSIG(status) == SIGTRAP);
    assert_int_equal(WSTOPSIG(status), SIGSTOP);
    assert_int_equal(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == is_there);
    return n;
}

static void steps_tell_nothing(void **state)
{
    uint8_t digest[DIGEST_BYTES];
    long found = 0, absent = 0;

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        for (unsigned k = 0; k < DIGEST_BYTES; k++)
            all[i].digest[k] = (uint8_t)(i * 37 + k * 11 + 5);
        places[i] = &all[i];
    }
    for (unsigned i = 0; i < N; i += N / 2 - 1) { /* the first, one in the middle, one near the end */
        long steps = steps_for(all[i].digest, true);

        found = found == 0 ? steps : found;
        assert_int_equal(steps, found);
        for (unsigned k = 0; k < DIGEST_BYTES; k += DIGEST_BYTES - 1) {
            memcpy(digest, all[i].digest, sizeof digest);
            digest[k] ^= 0x80;
            steps = steps_for(digest, false);
            absent = absent == 0 ? steps : absent;
            assert_int_equal(steps, absent);
        }
    }
    assert_true(found > N);                      /* it was counted */
    assert_in_range(labs(found - absent), 0, 8); /* what is returned */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_tell_nothing)};

    if (UNLESS_SANITIZED(false, true))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
