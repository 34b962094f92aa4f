/* How far a batch job is: a bar while it runs, a summary at its end. */
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "batch.h"

enum { SHOW_US = 200 * 1000 };

uint64_t batch_clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static double seconds_since(const struct batch *batch, uint64_t from_us)
{
    return (double)(batch->now_us - from_us) * 1e-6 + 1e-6;
}

/* How far in the input all lines are done, but for those in flight. */
static uint64_t done_bytes(const struct batch *batch)
{
    uint64_t bytes = batch->input.bytes;

    return bytes > batch->line_bytes ? bytes - batch->line_bytes : 0;
}

void batch_show(struct batch *batch)
{
    double size = (double)batch->input.size, done = (double)done_bytes(batch);
    double here = done - (double)batch->first_offset, seconds = seconds_since(batch, batch->began_us);
    double left = here > 0 ? fmax(size - done, 0) * seconds / here : 0;
    unsigned long whole = left < 3.6e9 ? (unsigned long)left : 3600000000ul;
    char tail[128];
    int n;

    if (batch->app.options->quiet || !app_redraws() || batch->now_us - batch->shown_us < SHOW_US)
        return;
    batch->shown_us = batch->now_us;
    n = snprintf(tail, sizeof tail, "  %llu line%s, %.1f/s", (unsigned long long)batch->done_lines,
                 app_plural(batch->done_lines), (double)batch->done_lines / seconds);
    if (here > 0 && size > 0)
        snprintf(tail + n, sizeof tail - (size_t)n, ", %lu:%02lu:%02lu left", whole / 3600, whole / 60 % 60,
                 whole % 60);
    app_progress(batch->app.options, "batch", size > 0 ? fmin(done / size, 1) : -1, tail);
}

bool batch_summary(struct batch *batch)
{
    struct batch_counts counts;
    double seconds = 0;

    if (batch->app.options->quiet)
        return true;
    if (!batch_journal_count(batch->journal, &counts))
        return false;
    batch->now_us = batch_clock_us();
    seconds = seconds_since(batch, batch->began_us);
    fprintf(stderr, "lines: %llu, %llu ok, %llu error%s", (unsigned long long)counts.lines,
            (unsigned long long)counts.good, (unsigned long long)counts.bad, app_plural(counts.bad));
    if (counts.lines > batch->done_lines)
        fprintf(stderr, " (%llu from earlier runs)", (unsigned long long)(counts.lines - batch->done_lines));
    fprintf(stderr, "\ntokens: %llu of prompts (%llu cached), %llu of answers\n",
            (unsigned long long)counts.prompt_tokens, (unsigned long long)counts.cached_tokens,
            (unsigned long long)counts.completion_tokens);
    fprintf(stderr, "time: %.1f s, %.1f lines/s, %.1f tokens/s\n", seconds, (double)batch->done_lines / seconds,
            (double)batch->tokens / seconds);
    return true;
}
