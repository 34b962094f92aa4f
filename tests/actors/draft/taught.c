/* See taught.h. */
#include "tests/actors/draft/taught.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runnel_files.h"
#include "tests/base/whole_file.h"
#include "tests/support/shared.h"

enum { TRAINED_BYTES = 60000, MOST_PROMPT = 1000 };

struct taught taught;
static char corpus[100000];
static size_t corpus_bytes;

static void read_corpus(const char *path)
{
    corpus_bytes = read_whole(path, corpus, sizeof corpus);
    assert_true(corpus_bytes > TRAINED_BYTES + 2 * MOST_PROMPT);
}

static int train(uint32_t steps, uint32_t layer)
{
    runnel_training_progress now = {.struct_size = sizeof now};
    runnel_eagle_options options;
    runnel_training *training = NULL;
    runnel_engine *engine = start_engine(NULL);
    runnel_error error = {0};

    runnel_eagle_options_default(&options);
    options.steps = steps;
    options.text_tokens = 40;
    options.unroll = 1;
    options.rate = 2e-3f;
    options.layers[0] = layer;
    options.n_layers = layer > 0 ? 1 : options.n_layers;
    if (runnel_eagle_train(engine, taught.target, corpus, TRAINED_BYTES, taught.head_path, &options, &training,
                           &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    while (now.state == RUNNEL_TRAINING_RUNNING)
        runnel_training_wait(training, 1000, &now, &error);
    runnel_training_free(training);
    runnel_engine_free(engine);
    return now.state == RUNNEL_TRAINING_DONE ? 0 : 1;
}

int taught_begin(uint32_t steps, uint32_t layer)
{
    char path[300];

    if (!shared_find("models/runnel-tiny-F16.gguf", taught.target, sizeof taught.target) ||
        !shared_find("oracles/runnel-tiny.heldout.txt", path, sizeof path))
        exit(77);
    snprintf(taught.head_path, sizeof taught.head_path, "/tmp/runnel-head-%d.gguf", (int)getpid());
    read_corpus(path);
    return train(steps, layer);
}

void taught_end(void)
{
    unlink(taught.head_path);
}

void taught_prompt(uint32_t i, uint32_t n, char *prompt)
{
    const char *at = corpus + TRAINED_BYTES + (size_t)i * 977 % (corpus_bytes - TRAINED_BYTES - 2 * MOST_PROMPT);

    assert_true(n < MOST_PROMPT);
    at = strchr(at, ' ');
    assert_non_null(at);
    snprintf(prompt, n + 1, "%s", at + 1);
}
