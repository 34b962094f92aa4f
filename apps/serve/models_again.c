/* The list of models read again: see served_models.h. */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

struct reload {
    uv_work_t work;
    struct serve *serve;
    struct serve_models fresh;
    bool good;
    char sentence[512]; /* why not */
};

/* Room in the list of the retired for whoever may get there until the list is read once more: each model and candidate
 * that is there, and of each new candidate itself or the one before. */
static bool reserve(struct serve *serve, const struct serve_models *fresh)
{
    size_t n = serve->retired.n + serve->models.n + serve->candidates.n + fresh->n + 1;
    struct serve_model **grown = realloc(serve->retired.at, n * sizeof *grown);

    if (grown == NULL)
        return false;
    serve->retired.at = grown;
    return true;
}

static void retire(struct serve *serve, struct serve_model *model)
{
    model->retired = true;
    model->replaces = NULL;
    serve->retired.at[serve->retired.n++] = model;
}

/* ---- Candidates -------------------------------------------------------------------------- */

static void take_out(struct serve *serve, const struct serve_model *candidate)
{
    struct serve_models *list = &serve->candidates;
    size_t i = 0;

    while (list->at[i] != candidate)
        i++;
    list->at[i] = list->at[--list->n];
}

void serve_candidate_take(struct serve_model *model)
{
    struct serve *serve = model->serve;
    struct serve_model *before = model->replaces;
    size_t i = 0;

    while (serve->models.at[i] != before)
        i++;
    take_out(serve, model);
    serve->models.at[i] = model;
    model->replaces = NULL;
    retire(serve, before);
    serve_settle(serve);
}

void serve_candidate_failed(struct serve_model *model)
{
    struct serve *serve = model->serve;

    serve_complain(serve, "%s: the one before goes on: %s", model->name, model->error);
    take_out(serve, model);
    retire(serve, model);
    serve_settle(serve);
}

/* ---- The list ---------------------------------------------------------------------------- */

static struct serve_model **place_of(const struct serve_models *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i]->name, name) == 0)
            return &list->at[i];
    return NULL;
}

/* What becomes of a model for which the new list has `*place`, and of the candidate that it has already (NULL: none).
 * The candidate that it has now; NULL: none, and of another model of its name *place. */
static struct serve_model *choose(struct serve *serve, struct serve_model *model, struct serve_model *candidate,
                                  struct serve_model **place)
{
    struct serve_model *fresh = *place;
    bool same = serve_model_same(model, fresh),
         goes_on = !same && candidate != NULL && serve_model_same(candidate, fresh);

    if (candidate != NULL && !goes_on)
        retire(serve, candidate);
    if (!same && !goes_on && model->load == SERVE_FAILED) {
        retire(serve, model);
        return NULL;
    }
    *place = model;
    if (!same && !goes_on) {
        fresh->replaces = model;
        return fresh;
    }
    serve_model_adopt(same ? model : candidate, fresh);
    serve_model_free(fresh);
    return same ? NULL : candidate;
}

/* candidates: [fresh->n], becomes the server's. */
static void take_over(struct serve *serve, struct serve_models *fresh, struct serve_model **candidates)
{
    struct serve_models old = serve->models, before = serve->candidates;
    size_t n = 0;

    for (size_t i = 0; i < old.n; i++) {
        struct serve_model *model = old.at[i], *candidate = NULL, **place = place_of(fresh, model->name);

        for (size_t k = 0; k < before.n; k++)
            if (before.at[k]->replaces == model)
                candidate = before.at[k];
        if (place != NULL) {
            candidate = choose(serve, model, candidate, place);
            if (candidate != NULL)
                candidates[n++] = candidate;
            continue;
        }
        if (candidate != NULL)
            retire(serve, candidate);
        retire(serve, model);
    }
    free(old.at);
    free(before.at);
    serve->models = *fresh;
    serve->candidates = (struct serve_models){candidates, n};
    *fresh = (struct serve_models){0};
}

/* What is read at once: models that are to be loaded, and the heads of candidates. One whose head cannot be read leaves
 * the list. */
static void begin_all(struct serve *serve)
{
    for (size_t i = 0; i < serve->models.n; i++) {
        struct serve_model *model = serve->models.at[i];

        if (model->pinned && (model->load == SERVE_UNLOADED || model->load == SERVE_FAILED))
            serve_model_begin(model);
    }
    for (size_t i = serve->candidates.n; i-- > 0;)
        if (serve->candidates.at[i]->load == SERVE_UNLOADED)
            serve_model_begin(serve->candidates.at[i]);
    serve_settle(serve);
}

static void read_list(uv_work_t *work)
{
    struct reload *reload = work->data;

    reload->good = serve_list_models(reload->serve, &reload->fresh, reload->sentence) &&
                   serve_has_rows(reload->serve, &reload->fresh, reload->sentence);
}

static void on_list(uv_work_t *work, int status)
{
    struct reload *reload = work->data;
    struct serve *serve = reload->serve;
    struct serve_model **candidates = calloc(reload->fresh.n + 1, sizeof *candidates);

    serve->reloads = false;
    if (status == 0 && reload->good && (candidates == NULL || !reserve(serve, &reload->fresh))) {
        snprintf(reload->sentence, sizeof reload->sentence, "not enough memory");
        reload->good = false;
    }
    if (!serve->ending && status == 0 && reload->good) {
        serve->reloaded = true;
        take_over(serve, &reload->fresh, candidates);
        candidates = NULL;
        serve_tell(serve, "read again: %zu model%s", serve->models.n, app_plural(serve->models.n));
        begin_all(serve);
    } else if (!serve->ending) {
        serve_complain(serve, "the models stay as they were: %s", reload->sentence);
    }
    serve_models_fini(&reload->fresh);
    free(candidates);
    free(reload);
    if (serve->reload_again && !serve->ending)
        serve_reload_models(serve);
}

void serve_reload_models(struct serve *serve)
{
    struct reload *reload = NULL;

    serve->reload_again = serve->reloads;
    if (serve->reloads)
        return;
    reload = calloc(1, sizeof *reload);
    if (reload != NULL) {
        reload->serve = serve;
        reload->work.data = reload;
    }
    if (reload == NULL || uv_queue_work(&serve->loop, &reload->work, read_list, on_list) != 0) {
        serve_complain(serve, "the models stay as they were: not enough memory");
        free(reload);
        return;
    }
    serve->reloads = true;
}
