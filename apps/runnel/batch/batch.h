/* What the parts of `runnel batch` share: batch.c begins and ends a job, run.c computes it, show.c tells
 * how far it is, check.c only judges its lines. Everything runs on the main thread. */
#ifndef RUNNEL_APP_BATCH_H
#define RUNNEL_APP_BATCH_H

#include "input.h"
#include "journal.h"
#include "line.h"
#include "output.h"
#include "apps/runnel/common.h"

enum { BATCH_MAX_STREAMS = 1024 };

/* Whether a line may begin: now, in a while, or never; then *error says why, and is the line's answer. */
enum batch_leave { BATCH_GO, BATCH_LATER, BATCH_NEVER };

/* Who else has a say in a job; of a job of the program's own all NULL. */
struct batch_owner {
    enum batch_leave (*ask)(void *user, uint64_t *retry_ms, struct openai_error *error); /* once for each line */
    void (*pay)(void *user, uint64_t tokens); /* read and written for a line that is done */
    bool (*room)(void *user, uint64_t bytes); /* for so many bytes of answers in all; false: the job stops, cancelled */
    /* A line of more than loop_bytes: takes raw->bytes, has batch_line_new make a line of it on any thread, and gives it
     * to batch_take_line. Until then no other line is read, and the batch is kept. */
    void (*read)(void *user, const struct batch_raw *raw, size_t limit);
    size_t loop_bytes;
    void *user;
};

struct batch {
    struct app app;
    /* of a server's batch: whose it is, and what its lines must ask; 0 and NULL: nobody's, and anything */
    uint64_t tenant;
    struct batch_owner owner;
    const char *only_model, *only_url;
    const char *model_name;                                /* of the file, without its directories */
    struct app_fingerprint files[1 + RUNNEL_MAX_ADAPTERS]; /* that the model was loaded from, and --lora's */
    struct app_text template_text;
    struct batch_input input;
    struct batch_journal *journal;
    struct batch_output output;
    struct batch_job job;
    struct batch_line *lines[BATCH_MAX_STREAMS]; /* [n_lines] in flight, by number; owned */
    size_t n_lines;
    size_t line_bytes; /* of the lines in flight, as they were read */
    size_t n_running;  /* streams that have not ended */
    bool reads;        /* the owner reads a line */
    bool input_ended;
    bool changed; /* the input is not the one that the journal knows */
    int code;     /* why the job stops early; APP_OK: it does not */
    uint64_t now_us, began_us, retry_us, committed_us, flushed_us, flush_cost_us, shown_us;
    /* of this run */
    uint64_t done_lines, first_offset; /* first_offset: where the first line that was not done before begins */
    uint64_t tokens;
};

/* Opens input, journal and output, and begins the job or goes on with it, as options say; the engine, model, what is
 * known of its files, and the template are there. False after a message. batch_end after any outcome: frees all but
 * these. */
bool batch_begin(struct batch *batch, const char *journal_path);
void batch_end(struct batch *batch);

/* Bytes of the answers that the job has: those in its files, and those in the journal that wait to be written. */
uint64_t batch_answer_bytes(const struct batch *batch);

/* What can be done now without waiting; batch->now_us is set. False: the job is over, and batch->code says how. */
bool batch_turn(struct batch *batch);

/* What the owner has read; takes the line. NULL: not enough memory, and the job stops. */
void batch_take_line(struct batch *batch, struct batch_line *line);

/* Streams that have not ended. Cancels them: the batch must be kept until there are none, or, detached, until the
 * engine is gone. */
size_t batch_live(const struct batch *batch);
void batch_cancel(struct batch *batch);
void batch_detach(struct batch *batch);

/* Reads lines, submits them and writes their answers until all is done or batch->code says why it is not. */
void batch_run(struct batch *batch);

/* The bar, if it is time for it. */
void batch_show(struct batch *batch);

/* What the job has come to, on standard error, unless --quiet. */
void batch_summary(const struct batch *batch, const struct batch_counts *counts);

/* Whether --summary names what can be written: asked before the work begins. An exit code, after a message. */
int batch_check_summary(const char *path);

/* And as JSON, to the file of --summary; batch->code says how the job ends. False after a message. */
bool batch_write_summary(const struct batch *batch, const struct batch_counts *counts);

/* check.c: --check. Reads the input and judges its lines without computing any: names the bad ones on standard
 * output, a line each. An exit code. */
int batch_check(const struct app_options *options);

/* The exit code that --fail-on asks for; `usual`: what is meant where it is not given. */
int batch_judge(const struct app_options *options, const char *usual, const struct batch_counts *counts);

uint64_t batch_clock_us(void);

#endif
