/* See thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/floats.h"

bool rn_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, before;
    fenv_t floats;
    pthread_t made;
    bool ok;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* a thread is born with its maker's: pthread_create(3) */
    floats = rn_floats_default();
    ok = pthread_create(&made, NULL, run, argument) == 0;
    fesetenv(&floats);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok)
        *thread = made;
    return ok;
}

bool rn_thread_lower(uint32_t nice)
{
    int old;

    errno = 0; /* -1 is a nice value, too */
    old = getpriority(PRIO_PROCESS, 0);
    if (old == -1 && errno != 0)
        return false;
    return setpriority(PRIO_PROCESS, 0, old + (int)(nice < RN_MOST_NICE ? nice : RN_MOST_NICE)) == 0;
}
