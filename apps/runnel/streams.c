/* SIGUSR1: the streams that live now, on standard error. The handler sets a flag; the loops look at it. */
#include <signal.h>

#include "common.h"

static volatile sig_atomic_t asked;

static void on_ask(int number)
{
    (void)number;
    asked = 1;
}

/* SA_RESTART: whoever reads or writes goes on. */
void app_streams_arm(void)
{
    struct sigaction action = {.sa_handler = on_ask, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
}

static void show_stream(const runnel_stream_info *info)
{
    fprintf(stderr, "  %-8s %8llu token%-1s  %s%s%s\n", runnel_phase_name(info->phase),
            (unsigned long long)info->tokens, app_plural(info->tokens), info->model, info->label[0] != '\0' ? "  " : "",
            info->label);
}

void app_streams_show(const struct app *app)
{
    runnel_stream_info info = {.struct_size = sizeof info};
    uint64_t cursor = 0, n = 0;

    if (!asked)
        return;
    asked = 0;
    app_progress_clear();
    fflush(stdout);
    while (runnel_engine_streams(app->engine, &cursor, &info) == RUNNEL_OK) {
        show_stream(&info);
        n++;
    }
    fprintf(stderr, "%llu stream%s\n", (unsigned long long)n, app_plural(n));
}
