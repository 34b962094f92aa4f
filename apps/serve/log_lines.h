/* Lines on their way to standard error. Who reads them may be slow or stop: a pipe fills up, a disk is busy. So they
 * are written on a thread of libuv's, and the loop never waits for it. At most 1 MiB of lines waits; further ones are
 * lost, and a line says how many once others are taken again. */
#ifndef RUNNEL_SERVE_LOG_LINES_H
#define RUNNEL_SERVE_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct serve;

struct serve_log {
    uv_work_t work;
    bool writes;        /* the thread has `going`, `at` and `stuck` */
    char *going;        /* [n_going], of which `at` are written; owned */
    size_t n_going, at; /* ... */
    bool stuck;         /* nothing could be written for a while */
    char *waiting;      /* [n_waiting]; owned */
    size_t n_waiting, room;
    uint64_t n_lost;  /* lines that nobody was told of */
    uint32_t n_stuck; /* how often, one after the other */
    bool closing;     /* what cannot be written soon is lost */
};

/* A line, with its end. On the loop's thread. */
void serve_log_put(struct serve *serve, const char *line, size_t n);

/* At the end, outside the loop: what waits is written, unless nobody takes it for a second. */
void serve_log_close(struct serve *serve);

#endif
