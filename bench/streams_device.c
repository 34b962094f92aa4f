/* A device that computes nothing: see streams_device.h. */
#include "streams_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/stop.h"

/* The last part of a step is waited for without sleeping: a timer of the kernel is late by about as much. */
#define SPIN_NS 80000u

/* So often it looks whether the step is still wanted. */
#define LOOK_NS 1000000u

uint64_t monotonic_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t thread_cpu_ns(unsigned long thread)
{
    struct timespec t = {0, 0};
    clockid_t clock;

    if (pthread_getcpuclockid((pthread_t)thread, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Or until it is stopped. */
static void wait_until(uint64_t end_ns, struct rn_stop *stop)
{
    uint64_t now = monotonic_ns();

    while (end_ns > now + SPIN_NS && !rn_stop_is_set(stop)) {
        uint64_t at = end_ns - now > LOOK_NS + SPIN_NS ? now + LOOK_NS : end_ns - SPIN_NS;
        const struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};

        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        now = monotonic_ns();
    }
    while (monotonic_ns() < end_ns && !rn_stop_is_set(stop))
        continue;
}

static int32_t hot_of(const struct rn_step_row *row)
{
    return 'a' + (int32_t)(row->position % 26);
}

/* Of a row that is drawn by somebody else, or is wanted by a reader. */
static void keep_logits(float *logits, const struct rn_step_row *row)
{
    memset(logits, 0, DEVICE_VOCAB * sizeof *logits);
    logits[hot_of(row)] = 1;
}

static void write_logits(struct device *device, const struct rn_step *step, const struct rn_step_row *row)
{
    float *logits = step->logits + (size_t)row->out * DEVICE_VOCAB;
    int32_t *hot = &device->hot[row->out];

    if (*hot < 0)
        memset(logits, 0, DEVICE_VOCAB * sizeof *logits);
    else
        logits[*hot] = 0;
    *hot = hot_of(row);
    logits[*hot] = 1;
}

static void draw(struct rn_draw *draw, const struct rn_step_row *row)
{
    draw->status = RUNNEL_OK;
    if (draw->keep_logits != NULL)
        keep_logits(draw->keep_logits, row);
    draw->token = hot_of(row);
    draw->logprob = 0;
    draw->n_top = 0;
}

static void run_step(struct device *device, struct rn_step *step, uint64_t submitted_ns)
{
    uint64_t begin_ns = submitted_ns > device->done_ns ? submitted_ns : device->done_ns;

    if (device->done_ns != 0)
        device->idle_ns += begin_ns - device->done_ns;
    device->n_steps++;
    for (uint32_t i = 0; i < step->n_rows; i++)
        if (step->rows[i].out >= 0 && step->logits != NULL)
            write_logits(device, step, &step->rows[i]);
    for (uint32_t i = 0; i < step->n_rows; i++)
        if (step->rows[i].out >= 0 && step->draws != NULL)
            draw(&step->draws[step->rows[i].out], &step->rows[i]);
    wait_until(begin_ns + device->step_ns + device->row_ns * step->n_rows, step->stop);
    step->status = rn_stop_is_set(step->stop) ? RUNNEL_CANCELLED : RUNNEL_OK;
    if (step->status != RUNNEL_OK)
        rn_draw_stop(step);
    device->done_ns = monotonic_ns();
    device->busy_ns += device->done_ns - begin_ns;
    step->on_done(step); /* the next submit may come before it returns: nothing of the step is touched behind it */
}

static void *device_main(void *arg)
{
    struct device *device = arg;

    while (rn_word_get(&device->stopping) == 0) {
        struct device_slot *slot = &device->ring[device->n_run % DEVICE_RING];
        uint32_t ticket = rn_wake_ticket(&device->wake);

        if (rn_word_replace(&slot->full, 1, 0)) {
            device->n_run++;
            run_step(device, slot->step, slot->submitted_ns);
        } else
            rn_wake_wait(&device->wake, ticket, -1, 0);
    }
    return NULL;
}

static void submit_async(struct rn_backend *backend, struct rn_step *step)
{
    struct device *device = (struct device *)backend;
    struct device_slot *slot = &device->ring[device->n_submitted++ % DEVICE_RING];

    slot->step = step;
    slot->submitted_ns = monotonic_ns();
    rn_word_set(&slot->full, 1);
    rn_wake_notify(&device->wake);
}

void device_reset(struct device *device)
{
    device->done_ns = device->idle_ns = device->busy_ns = device->n_steps = 0;
}

static void free_backend(struct rn_backend *backend)
{
    (void)backend; /* device_free does */
}

static const struct rn_device_caps device_caps = {.can = RN_CAN_DRAW | RN_CAN_DRAW_ITSELF,
                                                  .kv_types = UINT32_MAX,
                                                  .max_rows = UINT32_MAX,
                                                  .max_outs = UINT32_MAX,
                                                  .good_outs = 64,
                                                  .good_ring = DEVICE_RING,
                                                  .ring = DEVICE_RING};

static const struct rn_backend_ops device_ops = {.name = "device", .submit_async = submit_async, .free = free_backend};

struct device *device_new(const struct rn_backend_limits *limits)
{
    struct device *device = aligned_alloc(64, (sizeof *device + 63) / 64 * 64);

    if (device == NULL)
        return NULL;
    *device = (struct device){.backend = {&device_ops, &device_caps}, .max_outs = limits->max_outs};
    rn_wake_init(&device->wake);
    device->hot = malloc(limits->max_outs * sizeof *device->hot);
    if (device->hot == NULL || pthread_create((pthread_t *)&device->thread, NULL, device_main, device) != 0) {
        free(device->hot);
        free(device);
        return NULL;
    }
    memset(device->hot, -1, limits->max_outs * sizeof *device->hot);
    return device;
}

void device_free(struct device *device)
{
    rn_word_set(&device->stopping, 1);
    rn_wake_notify(&device->wake);
    pthread_join((pthread_t)device->thread, NULL);
    free(device->hot);
    free(device);
}
