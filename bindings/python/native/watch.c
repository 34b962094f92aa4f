/* Watch: the descriptor that an event loop of asyncio's watches for an engine, and how long it leaves pieces to gather.
 *
 *     engine's descriptor ──┐
 *                           ├── epoll ──▶ the loop ──▶ Engine.dispatch
 *     timer ────────────────┘
 *
 * A wake costs the loop as much as many pieces do. The engine lets events gather for gather_us, which suits one stream;
 * the tokens of a step of many streams come over a longer time. So a dispatch that brought pieces leaves the engine's
 * descriptor out of the epoll where at least FEWEST_STREAMS run, and the timer alone wakes the loop: GATHERS times
 * gather_us later, and longer the more streams there are, most_us at most. A timer that finds nothing ends the hold:
 * the next event wakes the loop at once.
 *
 * Nothing is held while anybody may wait for a first token, a load or a draw of Python's: that is, unless all that runs
 * are streams whose first token has come. What begins ends a hold.
 *
 * All of it is the loop's thread's; but a stream's first token and its end may be told by another thread, and so the
 * two counts are atomic. */
#include "binding.h"

#include <errno.h>
#include <fcntl.h>
#include <structmember.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A step of 64 streams of a small model takes 4 to 10 ms on two cores: they are held for about one. */
enum { FEWEST_STREAMS = 16, GATHERS = 2 };

struct rnpy_watch {
    PyObject_HEAD int fd; /* the epoll; -1: closed, and so are the others */
    int news, timer;      /* a duplicate of the engine's descriptor, which may be closed meanwhile */
    uint64_t gather_us, most_us;
    atomic_int running; /* streams, loads and trainings. Partner: the loop, which sees it late at worst, and then
                           holds a wake once */
    atomic_int flowing; /* of these streams whose first token has come, and that draw for themselves. Likewise */
    char holds;         /* the timer wakes the loop, and the engine's descriptor does not */
};

static PyTypeObject *watch_type;

rnpy_watch *rnpy_watch_of(PyObject *host)
{
    return PyObject_TypeCheck(host, watch_type) ? (rnpy_watch *)host : NULL;
}

/* 0: stops it; it is not readable then. */
static void set_timer(rnpy_watch *self, uint64_t us)
{
    const struct itimerspec time = {
        .it_value = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000 * 1000)}};

    timerfd_settime(self->timer, 0, &time, NULL); /* fails for a wrong descriptor or time alone */
}

/* Whether the engine's descriptor wakes the loop. False: it could not be said. */
static bool listen_to_news(rnpy_watch *self, bool listens)
{
    struct epoll_event event = {.events = listens ? EPOLLIN : 0, .data.fd = self->news};

    return epoll_ctl(self->fd, EPOLL_CTL_MOD, self->news, &event) == 0;
}

static void end_hold(rnpy_watch *self)
{
    if (!self->holds || !listen_to_news(self, true))
        return;
    set_timer(self, 0);
    self->holds = false;
}

/* How long the next wake waits; 0: as the engine says. */
static uint64_t hold_us(rnpy_watch *self)
{
    int flowing = atomic_load(&self->flowing);
    uint64_t us;

    if (flowing < FEWEST_STREAMS || flowing != atomic_load(&self->running))
        return 0;
    us = GATHERS * self->gather_us * (uint64_t)(FEWEST_STREAMS + flowing) / FEWEST_STREAMS;
    us = us < self->most_us ? us : self->most_us;
    return us > self->gather_us ? us : 0;
}

void rnpy_watch_dispatched(rnpy_watch *self, bool any, bool more)
{
    uint64_t us = any && !more ? hold_us(self) : 0;

    if (self->fd < 0)
        return;
    if (us == 0) {
        end_hold(self);
        return;
    }
    if (!self->holds && !listen_to_news(self, false))
        return;
    self->holds = true;
    set_timer(self, us);
}

void rnpy_watch_ended(rnpy_watch *self)
{
    if (self->fd < 0)
        return;
    listen_to_news(self, false);
    set_timer(self, 0);
    self->holds = false;
}

void rnpy_watch_flows(rnpy_watch *self)
{
    atomic_fetch_add(&self->flowing, 1);
}

void rnpy_watch_flows_no_more(rnpy_watch *self)
{
    atomic_fetch_sub(&self->flowing, 1);
}

/* ---- The object ---------------------------------------------------------------------------- */

static PyObject *watch_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    rnpy_watch *self = (rnpy_watch *)PyType_GenericAlloc(type, 0);

    (void)arguments;
    (void)keywords;
    if (self == NULL)
        return NULL;
    self->fd = self->news = self->timer = -1;
    return (PyObject *)self;
}

static void close_all(rnpy_watch *self)
{
    int *all[] = {&self->fd, &self->news, &self->timer};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
    self->holds = false;
}

static void watch_dealloc(PyObject *object)
{
    close_all((rnpy_watch *)object);
    rnpy_free_object(object);
}

static bool add(rnpy_watch *self, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return fd >= 0 && epoll_ctl(self->fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* _open(fd, gather_us, most_us): the descriptor for the loop, of the engine's. */
static PyObject *watch_open(PyObject *object, PyObject *arguments)
{
    rnpy_watch *self = (rnpy_watch *)object;
    unsigned long long gather_us, most_us;
    int fd;

    if (!PyArg_ParseTuple(arguments, "iKK", &fd, &gather_us, &most_us))
        return NULL;
    close_all(self);
    self->gather_us = gather_us;
    self->most_us = most_us;
    self->fd = epoll_create1(EPOLL_CLOEXEC);
    self->news = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    self->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (self->fd < 0 || !add(self, self->news) || !add(self, self->timer)) {
        PyErr_SetFromErrno(PyExc_OSError);
        close_all(self);
        return NULL;
    }
    return PyLong_FromLong(self->fd);
}

static PyObject *watch_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    close_all((rnpy_watch *)object);
    Py_RETURN_NONE;
}

static PyObject *watch_begin(PyObject *object, PyObject *unused)
{
    rnpy_watch *self = (rnpy_watch *)object;

    (void)unused;
    atomic_fetch_add(&self->running, 1);
    end_hold(self);
    Py_RETURN_NONE;
}

static PyObject *watch_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(atomic_fetch_sub(&((rnpy_watch *)object)->running, 1) - 1);
}

static PyObject *get_running(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromLong(atomic_load(&((rnpy_watch *)object)->running));
}

static PyMethodDef methods[] = {
    {"_open", watch_open, METH_VARARGS, "_open(fd, gather_us, most_us): the descriptor that the loop is to watch."},
    {"_close", RNPY_METHOD(watch_close), METH_NOARGS, "The loop watches it no more."},
    {"_begin", RNPY_METHOD(watch_begin), METH_NOARGS, "Something begins to run; on the loop's thread."},
    {"_end", RNPY_METHOD(watch_end), METH_NOARGS, "It has ended; on any thread. How many still run."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"_holds", T_BOOL, offsetof(rnpy_watch, holds), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"_running", get_running, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)"What an event loop watches for an engine."},
    {Py_tp_new, RNPY_SLOT(watch_new)},
    {Py_tp_dealloc, RNPY_SLOT(watch_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {0, NULL},
};
static PyType_Spec spec = {"runnel._runnel.Watch", sizeof(rnpy_watch), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           slots};

int rnpy_watch_ready(PyObject *module)
{
    watch_type = rnpy_add_type(module, &spec);
    return watch_type == NULL ? -1 : 0;
}
