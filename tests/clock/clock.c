/* A clock that runs RUNNEL_CLOCK_FACTOR times as fast, for programs that are started with this library preloaded:
 *
 *   virtual time = begin + FACTOR (real time - begin)          begin: when the program started
 *
 * Every clock is read so but the time of day, which files and certificates of other processes carry. Who waits for a
 * time waits until it has come by that clock. Work takes as long as ever: so with a factor of 10 the machine looks ten
 * times slower to whoever compares work with time, with 0.1 ten times faster. clock.sh runs the suite with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll
#define CLOCKS 16 /* ids of the system's clocks are below */

static double factor;
static int64_t begins[CLOCKS];

/* The system's own, without this library: a call of the kernel cannot be preloaded. */
static int64_t real_ns(clockid_t id)
{
    static int (*gettime)(clockid_t, struct timespec *);
    struct timespec time = {0};

    if (gettime == NULL)
        gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return gettime(id, &time) == 0 ? time.tv_sec * NS_PER_S + time.tv_nsec : -1;
}

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("RUNNEL_CLOCK_FACTOR");

    if (factor > 0)
        return;
    for (int id = 0; id < CLOCKS; id++)
        begins[id] = real_ns(id);
    factor = given != NULL ? strtod(given, NULL) : 1;
    factor = factor > 0 ? factor : 1;
}

static bool scaled(clockid_t id)
{
    return id >= 0 && id < CLOCKS && id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE && id != CLOCK_TAI;
}

static int64_t virtual_of(clockid_t id, int64_t ns)
{
    begin();
    return scaled(id) ? begins[id] + (int64_t)(factor * (double)(ns - begins[id])) : ns;
}

static int64_t real_of(clockid_t id, int64_t ns)
{
    begin();
    return scaled(id) ? begins[id] + (int64_t)((double)(ns - begins[id]) / factor) : ns;
}

static int64_t ns_of(const struct timespec *time)
{
    return time->tv_sec * NS_PER_S + time->tv_nsec;
}

static struct timespec time_of(int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* How long a wait takes in real time: not nothing, if it was not. */
static struct timespec span_of(const struct timespec *span)
{
    int64_t ns = ns_of(span);

    begin();
    return time_of((int64_t)((double)ns / factor) + (ns > 0));
}

static struct timespec deadline_of(clockid_t id, const struct timespec *deadline)
{
    return time_of(real_of(id, ns_of(deadline)));
}

/* Milliseconds of poll and epoll; below 0: for ever. */
static int span_ms(int ms)
{
    double real;

    begin();
    real = (double)ms / factor;
    return ms <= 0 ? ms : real < 1 ? 1 : real > 1e9 ? 1000000000 : (int)real;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

/* ---- Clocks ---- */

int clock_gettime(clockid_t id, struct timespec *time)
{
    int64_t ns = real_ns(id);

    if (ns < 0)
        return -1;
    *time = time_of(virtual_of(id, ns));
    return 0;
}

/* ---- Waits for a time ---- */

int clock_nanosleep(clockid_t id, int flags, const struct timespec *time, struct timespec *left)
{
    struct timespec real = (flags & TIMER_ABSTIME) != 0 ? deadline_of(id, time) : span_of(time);
    int result = REAL(clock_nanosleep)(id, flags, &real, left);

    if (result == EINTR && left != NULL && (flags & TIMER_ABSTIME) == 0)
        *left = time_of((int64_t)(factor * (double)ns_of(left)));
    return result;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    int result = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);

    errno = result;
    return result == 0 ? 0 : -1;
}

int usleep(useconds_t us)
{
    struct timespec time = time_of((int64_t)us * 1000);

    return nanosleep(&time, NULL);
}

unsigned sleep(unsigned seconds)
{
    struct timespec time = {.tv_sec = seconds}, left = {0};

    return nanosleep(&time, &left) == 0 ? 0 : (unsigned)left.tv_sec;
}

int poll(struct pollfd *descriptors, nfds_t n, int ms)
{
    return REAL(poll)(descriptors, n, span_ms(ms));
}

int ppoll(struct pollfd *descriptors, nfds_t n, const struct timespec *time, const sigset_t *mask)
{
    struct timespec real = time != NULL ? span_of(time) : (struct timespec){0};

    return REAL(ppoll)(descriptors, n, time != NULL ? &real : NULL, mask);
}

int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict bad, struct timeval *restrict time)
{
    struct timespec span, real;

    if (time == NULL)
        return pselect(n, in, out, bad, NULL, NULL);
    span = (struct timespec){.tv_sec = time->tv_sec, .tv_nsec = time->tv_usec * 1000};
    real = span_of(&span);
    return pselect(n, in, out, bad, &real, NULL);
}

int epoll_wait(int epoll, struct epoll_event *events, int n, int ms)
{
    return REAL(epoll_wait)(epoll, events, n, span_ms(ms));
}

int epoll_pwait(int epoll, struct epoll_event *events, int n, int ms, const sigset_t *mask)
{
    return REAL(epoll_pwait)(epoll, events, n, span_ms(ms), mask);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline)
{
    struct timespec real = deadline_of(CLOCK_REALTIME, deadline);

    return REAL(pthread_cond_timedwait)(condition, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t id,
                           const struct timespec *deadline)
{
    struct timespec real = deadline_of(id, deadline);

    return REAL(pthread_cond_clockwait)(condition, mutex, id, &real);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline)
{
    struct timespec real = deadline_of(CLOCK_REALTIME, deadline);

    return REAL(sem_timedwait)(semaphore, &real);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t id, const struct timespec *restrict deadline)
{
    struct timespec real = deadline_of(id, deadline);

    return REAL(sem_clockwait)(semaphore, id, &real);
}

int timerfd_settime(int timer, int flags, const struct itimerspec *time, struct itimerspec *old)
{
    struct itimerspec real = {.it_interval = span_of(&time->it_interval)};

    real.it_value =
        (flags & TFD_TIMER_ABSTIME) != 0 ? deadline_of(CLOCK_MONOTONIC, &time->it_value) : span_of(&time->it_value);
    return REAL(timerfd_settime)(timer, flags, &real, old);
}

/* A futex with a deadline is the one wait that mailbox/wake.c asks the kernel for itself. */
long syscall(long number, ...)
{
    long (*real_syscall)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    const struct timespec *deadline;
    struct timespec real;
    long a[6];
    va_list list;
    int operation;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    operation = (int)a[1] & FUTEX_CMD_MASK;
    deadline = (const struct timespec *)a[3];
    if (number == SYS_futex && deadline != NULL && (operation == FUTEX_WAIT_BITSET || operation == FUTEX_WAIT)) {
        real = operation == FUTEX_WAIT
                   ? span_of(deadline)
                   : deadline_of(((int)a[1] & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, deadline);
        a[3] = (long)&real;
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
