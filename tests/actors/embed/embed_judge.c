/* See embed_judge.h. */
#include "tests/actors/embed/embed_judge.h"
#include "tests/support/nmse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

const char *const embed_texts[EMBED_TEXTS] = {
    "Once upon a time there was a little fox who lived in the woods.",
    "The cat sat on the mat, and the dog looked at it for a long time without a word.",
    "Hello",
};

static void take(void *user, const runnel_event *event)
{
    struct vector *v = user;

    if (event->type == RUNNEL_EVENT_EMBEDDING) {
        assert_true(event->n_embedding <= EMBED_MOST && v->n_ended == 0);
        memcpy(v->values, event->embedding, event->n_embedding * sizeof v->values[0]);
        v->n = event->n_embedding;
        v->n_embeddings++;
    } else if (event->type >= RUNNEL_EVENT_DONE) {
        v->last = *event;
        snprintf(v->error, sizeof v->error, "%s", event->error);
        v->n_ended++;
    } else {
        v->n_others++;
    }
}

runnel_embed_request embed_request(const char *text, runnel_pooling pooling, bool raw, struct vector *v)
{
    runnel_embed_request request;

    memset(v, 0, sizeof *v);
    runnel_embed_request_default(&request);
    request.text = text;
    request.text_bytes = strlen(text);
    request.pooling = pooling;
    request.raw = raw;
    request.on_event = take;
    request.user = v;
    return request;
}

void embed_submit(runnel_model *model, const runnel_embed_request *request, runnel_stream *stream)
{
    runnel_error error = {0};

    if (runnel_embed(model, request, stream, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

void embed_await(runnel_engine *engine, struct vector *v)
{
    while (v->n_ended == 0) {
        assert_int_equal(runnel_engine_wait(engine, -1), RUNNEL_OK);
        runnel_engine_dispatch(engine, 0);
    }
    assert_int_equal(v->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(v->n_embeddings, 1);
    assert_int_equal(v->n_others, 0);
    assert_int_equal(v->last.usage.completion_tokens, 0);
}

void embed(runnel_engine *engine, runnel_model *model, const char *text, runnel_pooling pooling, bool raw,
           struct vector *v)
{
    runnel_embed_request request = embed_request(text, pooling, raw, v);
    runnel_stream stream;

    embed_submit(model, &request, &stream);
    embed_await(engine, v);
}

/* ---- Against another program ---- */

/* A line of the file. */
struct line {
    unsigned text, pooling, n;
    float expected[EMBED_MOST];
    struct vector v;
    runnel_stream stream;
};

static unsigned read_lines(const char *name, struct line *lines)
{
    FILE *file = fopen("tests/actors/embed/embeddings.txt", "r");
    char text[1 << 14], of[64];
    unsigned n_lines = 0;

    assert_non_null(file);
    while (fgets(text, sizeof text, file) != NULL) {
        struct line line;
        int at = 0, skip = 0;

        if (text[0] == '#' || sscanf(text, "%63s %u %u %u%n", of, &line.text, &line.pooling, &line.n, &at) != 4 ||
            strcmp(of, name) != 0)
            continue;
        assert_true(n_lines < EMBED_LINES && line.text < EMBED_TEXTS && line.n <= EMBED_MOST);
        for (uint32_t i = 0; i < line.n; i++, at += skip)
            assert_int_equal(sscanf(text + at, "%f%n", &line.expected[i], &skip), 1);
        lines[n_lines++] = line;
    }
    fclose(file);
    return n_lines;
}

void embed_judge(runnel_engine *engine, runnel_model *model, const char *name, const char *what, double limit)
{
    static struct line lines[EMBED_LINES];

    assert_int_equal(read_lines(name, lines), EMBED_LINES);
    for (unsigned i = 0; i < EMBED_LINES; i++) {
        runnel_embed_request request =
            embed_request(embed_texts[lines[i].text], (runnel_pooling)lines[i].pooling, true, &lines[i].v);

        embed_submit(model, &request, &lines[i].stream);
    }
    for (unsigned i = 0; i < EMBED_LINES; i++) {
        double error;

        embed_await(engine, &lines[i].v);
        assert_int_equal(lines[i].v.n, lines[i].n);
        error = nmse(lines[i].v.values, lines[i].expected, lines[i].n);
        print_message("%s %-9s text %u, pooling %u: nmse %.3g\n", name, what, lines[i].text, lines[i].pooling, error);
        assert_true(error <= limit);
    }
}
