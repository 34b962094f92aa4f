/* runnel eagle-train: a head that drafts for a model, from text of the kind that will be generated. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "runnel_files.h"

static void options_of(const struct app_options *options, const char *state, runnel_eagle_options *eagle)
{
    runnel_eagle_options_default(eagle);
    if (options->train_steps > 0)
        eagle->steps = (uint32_t)options->train_steps;
    if (options->text_tokens > 0)
        eagle->text_tokens = (uint32_t)options->text_tokens;
    if (options->unroll > 0)
        eagle->unroll = (uint32_t)options->unroll;
    if (options->rate > 0)
        eagle->rate = (float)options->rate;
    eagle->seed = options->seed;
    eagle->n_layers = (uint32_t)options->layers.n;
    for (size_t i = 0; i < options->layers.n && i < sizeof eagle->layers / sizeof *eagle->layers; i++)
        eagle->layers[i] = (uint32_t)options->layers.values[i];
    eagle->state = state;
    eagle->resume = options->resume;
}

static void show(const struct app_options *options, const runnel_training_progress *now)
{
    char tail[64];

    snprintf(tail, sizeof tail, "  loss %.3f, accepted %.0f %%", (double)now->loss, (double)now->accepted * 100);
    app_progress(options, "training", (double)now->step / (double)now->steps, tail);
}

/* Until it has ended; a signal cancels it. An exit code. */
static int follow(const struct app_options *options, runnel_training *training, const char *state)
{
    runnel_training_progress now = {.struct_size = sizeof now};
    runnel_error error = {0};
    runnel_status status = RUNNEL_OK;

    while (status == RUNNEL_OK && now.state == RUNNEL_TRAINING_RUNNING) {
        if (app_interrupted())
            runnel_training_cancel(training);
        status = runnel_training_wait(training, APP_TICK_MS, &now, &error);
        show(options, &now);
    }
    app_progress_clear();
    if (status != RUNNEL_OK)
        return app_fail(&error);
    if (now.state == RUNNEL_TRAINING_CANCELLED) {
        app_error("stopped at step %u of %u; the same command with --resume goes on (%s)", (unsigned)now.step,
                  (unsigned)now.steps, state);
        return APP_CANCELLED;
    }
    unlink(state); /* of no more use */
    printf("steps     %u\nloss      %.4f\naccepted  %.4f\n", (unsigned)now.steps, (double)now.loss,
           (double)now.accepted);
    return app_output_code();
}

static int train(const struct app_options *options, const struct app_text *corpus, const char *state)
{
    struct app_architecture architecture;
    runnel_engine_options engine_options;
    runnel_eagle_options eagle;
    runnel_engine *engine = NULL;
    runnel_training *training = NULL;
    runnel_error error = {0};
    int code = APP_OK;

    if (!app_architecture_read(options->architecture, &architecture))
        return APP_USAGE;
    runnel_engine_options_default(&engine_options);
    engine_options.compute_threads = (uint32_t)options->threads;
    engine_options.compute_nice = options->nice > 0 ? (uint32_t)options->nice : 0;
    engine_options.architectures = architecture.rows;
    engine_options.n_architectures = architecture.n;
    app_log_options(options, &engine_options);
    options_of(options, state, &eagle);
    app_signals_arm();
    error.status = runnel_engine_new(&engine_options, &engine, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    error.status = runnel_eagle_train(engine, options->operands[0], corpus->bytes, corpus->size, options->out, &eagle,
                                      &training, &error);
    code = error.status == RUNNEL_OK ? follow(options, training, state) : app_fail(&error);
    runnel_training_free(error.status == RUNNEL_OK ? training : NULL);
    runnel_engine_free(engine);
    return code;
}

int app_eagle_train(const struct app_options *options)
{
    struct app_text corpus = {0};
    char *state;
    int code = APP_FAILURE;

    if (options->out == NULL) {
        app_error("eagle-train needs -o HEAD.gguf");
        return APP_USAGE;
    }
    if (!app_read_file(options->operands[1], &corpus))
        return APP_FAILURE;
    state = malloc(strlen(options->out) + sizeof ".training");
    if (state != NULL) {
        sprintf(state, "%s.training", options->out);
        code = train(options, &corpus, state);
    }
    free(state);
    free(corpus.bytes);
    return code;
}
