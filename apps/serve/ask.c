/* From a body to a task whose streams are submitted: see serve.h.
 *
 *     JSON ──read──▶ request ──▶ its model, perhaps after a while ──measure──▶ streams
 *
 * Of a long body both steps run on a thread of libuv's (works.h). */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/keys/digest.h"
#include "serve.h"

/* Of text that a reader who is behind has not taken: then its stream stops. */
enum { COALESCE_BYTES = 4096 };

/* Where there was no room for any further answer. */
enum { AGAIN_MS = 20 };

static void link_task(struct serve *serve, struct serve_task *task)
{
    task->next = serve->tasks;
    task->link = &serve->tasks;
    if (task->next != NULL)
        task->next->link = &task->next;
    serve->tasks = task;
}

static bool open_choices(struct serve_task *task)
{
    task->n_choices = openai_request_choices(&task->request);
    task->choices = calloc(task->n_choices, sizeof *task->choices);
    task->streams = calloc(task->n_choices, sizeof *task->streams);
    if (task->choices == NULL || task->streams == NULL)
        return false;
    for (; task->n_open < task->n_choices; task->n_open++)
        if (!openai_choice_open(&task->choices[task->n_open], &task->request, task->n_open, task->model->handle)) {
            openai_choice_close(&task->choices[task->n_open]);
            return false;
        }
    return true;
}

static const char *name_of(const runnel_adapter *adapter)
{
    return adapter != NULL ? adapter->name : NULL;
}

static runnel_status submit_embedding(struct serve_task *task, size_t i, runnel_error *error)
{
    runnel_embed_request request;

    openai_request_embed(&task->request, i, &request);
    request.on_event = serve_task_event;
    request.user = &task->streams[i];
    request.label = task->head.id;
    request.cache_salt = task->visit->key->tenant;
    request.tenant = task->visit->key->tenant;
    request.adapter = name_of(task->adapter);
    return runnel_embed(task->model->handle, &request, &task->streams[i].id, error);
}

static runnel_status submit_score(struct serve_task *task, size_t i, runnel_error *error)
{
    runnel_score_request request;

    openai_request_score(&task->request, i, &request);
    request.on_event = serve_task_event;
    request.user = &task->streams[i];
    request.label = task->head.id;
    request.cache_salt = task->visit->key->tenant;
    request.tenant = task->visit->key->tenant;
    request.adapter = name_of(task->adapter);
    return runnel_score(task->model->handle, &request, &task->streams[i].id, error);
}

/* Of a key's requests those share cached prompts that name the same salt. Its digest keeps it apart from every other
 * key's; a program without digests has no keys. */
static uint64_t salt_of(const struct serve_task *task)
{
    const char *given = task->request.cache_salt;
    uint64_t tenant = task->visit->key->tenant, salt = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    uint8_t digest[DIGEST_BYTES];
    size_t n = given != NULL ? strlen(given) : 0;
    char *both = n > 0 ? malloc(sizeof tenant + n) : NULL;

    if (both == NULL)
        return tenant;
    memcpy(both, &tenant, sizeof tenant);
    memcpy(both + sizeof tenant, given, n);
    if (digest_of(both, sizeof tenant + n, digest)) {
        memcpy(&salt, digest, sizeof salt);
    } else {
        for (size_t i = 0; i < sizeof tenant + n; i++)
            salt = (salt ^ (unsigned char)both[i]) * UINT64_C(0x100000001b3);
    }
    free(both);
    return salt;
}

/* What the server says of a conversation. The time of one whose ids are told is that of its ids. */
static void fill_chat(const struct serve_task *task, runnel_chat *chat)
{
    const struct serve *serve = task->serve; /* its template and options stay as they are */

    chat->template_text = serve->template_text.bytes;
    chat->template_name = serve->options->template_name;
    chat->now_s = serve->options->now_s;
    if (chat->now_s == 0 && task->request.tells_ids)
        chat->now_s = task->head.created;
}

static runnel_status submit_answer(struct serve_task *task, size_t i, uint64_t seed, runnel_error *error)
{
    runnel_request request;
    runnel_chat chat;

    runnel_chat_default(&chat);
    openai_request_choice(&task->request, i, seed, &request, &chat);
    fill_chat(task, &chat);
    app_draft(&task->model->options, &request);
    request.on_event = serve_task_event;
    request.user = &task->streams[i];
    request.label = task->head.id;
    request.cache_salt = salt_of(task);
    request.tenant = task->visit->key->tenant;
    request.adapter = name_of(task->adapter);
    request.want_progress = task->request.stream && (task->request.usage_always || task->dialect->tells_prompt);
    request.coalesce_bytes = request.want_logprobs || task->request.keeps_ids ? 0 : COALESCE_BYTES;
    return runnel_generate(task->model->handle, &request, &task->streams[i].id, error);
}

static runnel_status submit_one(struct serve_task *task, size_t i, uint64_t seed, runnel_error *error)
{
    switch (task->request.endpoint) {
    case OPENAI_EMBEDDINGS:
        return submit_embedding(task, i, error);
    case OPENAI_RERANK:
    case OPENAI_CLASSIFY:
        return submit_score(task, i, error);
    default:
        return submit_answer(task, i, seed, error);
    }
}

/* As many of them as may run at once. What is not told before its end goes on with fewer where there is no room for
 * more, as long as one runs. False: what was submitted is to be cancelled. */
static bool submit_some(struct serve_task *task, runnel_error *error)
{
    bool waits = (task->request.endpoint & OPENAI_POOLED) != 0;

    while (task->n_submitted < task->n_choices && (int64_t)(task->n_submitted - task->n_ended) < task->n_counted) {
        struct serve_stream *stream = &task->streams[task->n_submitted];

        stream->task = task;
        error->status = submit_one(task, task->n_submitted, task->seed, error);
        if (error->status == RUNNEL_BUSY && waits && task->n_submitted > task->n_ended)
            return true;
        if (error->status != RUNNEL_OK)
            return false;
        stream->live = true;
        task->n_submitted++;
    }
    return true;
}

static bool submit(struct serve_task *task, runnel_error *error)
{
    task->seed = task->serve->seed ^ (task->serve->number * UINT64_C(0x9e3779b97f4a7c15));
    error->status = openai_place_biases(&task->request, task->model->handle);
    if (error->status != RUNNEL_OK) {
        snprintf(error->message, sizeof error->message, "logit_bias: %s", runnel_status_text(error->status));
        return false;
    }
    error->status = openai_infill(&task->request, task->model->handle, error);
    return error->status == RUNNEL_OK && submit_some(task, error);
}

/* What a stream cannot show as it comes. */
static bool can_stream(const struct openai_request *request, struct openai_error *error)
{
    if (!request->stream || request->best_of <= 1)
        return true;
    return openai_refuse(error, "unsupported_value", "best_of",
                         "best_of: which answers are the best is known at their end; stream must be false");
}

static const char *prefix_of(const struct serve_task *task)
{
    if (task->dialect == &serve_anthropic)
        return "msg_";
    return task->request.endpoint == OPENAI_CHAT        ? "chatcmpl-"
           : task->request.endpoint == OPENAI_RESPONSES ? "resp_"
           : task->request.endpoint == OPENAI_RERANK    ? "rerank-"
           : task->request.endpoint == OPENAI_CLASSIFY  ? "classify-"
                                                        : "cmpl-";
}

/* The task is let go: nothing runs for it, or what runs is cancelled. */
static void let_go(struct serve_task *task)
{
    task->visit->task = NULL;
    task->exchange = NULL;
    serve_task_cancel(task);
    serve_task_release(task);
}

static void refuse(struct serve_task *task, const struct openai_error *error, uint32_t retry_ms)
{
    struct serve *serve = task->serve;
    struct http_exchange *exchange = task->exchange;

    let_go(task);
    serve_refuse(serve, exchange, error, retry_ms);
}

/* The text becomes its first tokens, as many as fit; the end that the model wants behind each text stays. */
static bool cut_prompt(const struct serve_task *task, struct openai_prompt *prompt)
{
    runnel_model *model = task->model->handle;
    size_t n = 0, n_empty = 0, most = task->model->info.context_tokens;
    int32_t empty[4], *tokens = NULL;

    if (runnel_tokenize(model, prompt->text, prompt->text_bytes, RUNNEL_TOKENIZE_BOS, NULL, 0, &n) != RUNNEL_OK ||
        n <= most || runnel_tokenize(model, "", 0, RUNNEL_TOKENIZE_BOS, empty, 4, &n_empty) != RUNNEL_OK)
        return true; /* it fits, or the submit will say what is wrong */
    tokens = malloc(n * sizeof *tokens);
    if (tokens == NULL ||
        runnel_tokenize(model, prompt->text, prompt->text_bytes, RUNNEL_TOKENIZE_BOS, tokens, n, &n) != RUNNEL_OK) {
        free(tokens);
        return false;
    }
    if (n_empty > task->model->info.add_bos)
        tokens[most - 1] = empty[n_empty - 1];
    free(prompt->text);
    *prompt = (struct openai_prompt){.tokens = tokens, .n_tokens = most};
    return true;
}

/* A text has no more tokens than bytes, but for those that every text gets. */
static bool cut_prompts(struct serve_task *task)
{
    for (size_t i = 0; task->wish.truncate && i < task->request.n_prompts; i++) {
        struct openai_prompt *prompt = &task->request.prompts[i];

        if (prompt->text != NULL && prompt->text_bytes + 4 > task->model->info.context_tokens &&
            !cut_prompt(task, prompt))
            return false;
    }
    return true;
}

static void submit_all(struct serve_task *task)
{
    struct openai_error fault;
    runnel_error error = {0};

    if ((!task->is_long && !cut_prompts(task)) || !open_choices(task)) {
        error.status = RUNNEL_NO_MEMORY;
        snprintf(error.message, sizeof error.message, "not enough memory for the request");
    } else if (!serve_open_answers(task, &fault)) {
        refuse(task, &fault, fault.http == 429 ? 1000 : 0);
        return;
    } else if (submit(task, &error)) {
        return;
    }
    serve_task_fault(task, &error, &fault);
    if (error.status == RUNNEL_UNSUPPORTED && (task->request.endpoint & OPENAI_SCORES) != 0) {
        fault.http = 501;
        fault.type = "not_supported_error";
    }
    refuse(task, &fault, error.status == RUNNEL_BUSY ? error.retry_ms + 1 : 0);
}

/* ---- Further answers --------------------------------------------------------------------- */

void serve_submit_soon(struct serve *serve)
{
    uv_timer_start(&serve->waves, serve_on_waves, 0, 0);
}

/* Of a task of which some answers have ended. True: there is no room for any, it has to be tried again. */
static bool submit_more(struct serve_task *task)
{
    struct openai_error fault;
    runnel_error error = {0};

    if (submit_some(task, &error))
        return false;
    if (error.status == RUNNEL_BUSY)
        return true;
    serve_task_fault(task, &error, &fault);
    refuse(task, &fault, 0);
    return false;
}

void serve_on_waves(uv_timer_t *timer)
{
    struct serve *serve = timer->data;
    struct serve_task *next = NULL;
    bool again = false;

    for (struct serve_task *task = serve->tasks; task != NULL; task = next) {
        next = task->next;
        if (task->exchange != NULL && task->n_submitted > 0 && task->n_submitted < task->n_choices)
            again = submit_more(task) || again;
    }
    if (again)
        uv_timer_start(&serve->waves, serve_on_waves, AGAIN_MS, 0);
}

/* ---- A step on another thread ------------------------------------------------------------ */

struct step {
    struct serve_work work; /* first */
    struct serve_task *task;
    json_t *body; /* to be read; a reference. NULL: the prompts are to be measured */
    enum openai_endpoint endpoint;
    struct openai_error error; /* http 0: there is none */
};

static void start(struct serve_task *task);
static bool read_body(struct serve_task *task, enum openai_endpoint endpoint, const json_t *body,
                      struct openai_error *error);
static void measure(struct serve_task *task, struct openai_error *error);

static void run_step(struct serve_work *work)
{
    struct step *step = (struct step *)work;

    if (step->body != NULL)
        read_body(step->task, step->endpoint, step->body, &step->error);
    else
        measure(step->task, &step->error);
}

static void step_done(struct serve_work *work, bool ran)
{
    struct step *step = (struct step *)work;
    struct serve_task *task = step->task;
    bool has_read = step->body != NULL;

    if (!ran)
        openai_no_memory(&step->error);
    task->apart = false;
    if (task->exchange == NULL)
        serve_task_release(task);
    else if (step->error.http != 0)
        refuse(task, &step->error, 0);
    else if (has_read)
        start(task);
    else
        submit_all(task);
    json_decref(step->body);
    free(step);
}

static void begin_step(struct serve_task *task, json_t *body, enum openai_endpoint endpoint)
{
    struct step *step = calloc(1, sizeof *step);
    struct openai_error error;

    if (step == NULL) {
        openai_no_memory(&error);
        refuse(task, &error, 0);
        return;
    }
    step->task = task;
    step->body = json_incref(body);
    step->endpoint = endpoint;
    task->apart = true;
    serve_work_begin(task->serve, task->visit, &step->work, run_step, step_done);
}

/* ---- From a request to its model --------------------------------------------------------- */

/* Of llama.cpp's list: the one that is not off, with the scale with which it was loaded. Of two entries for one the
 * last counts. */
static bool choose_of_list(struct serve_task *task, struct openai_error *error)
{
    const struct serve_adapters *adapters = &task->model->adapters;
    double scales[RUNNEL_MAX_ADAPTERS] = {0};

    for (size_t i = 0; i < task->request.n_loras; i++) {
        const struct openai_lora *lora = &task->request.loras[i];

        if (lora->id >= (int64_t)adapters->n)
            return openai_refuse(error, "invalid_value", "lora",
                                 "lora: there is no adapter %lld; GET /lora-adapters lists them", (long long)lora->id);
        scales[lora->id] = lora->scale;
    }
    for (size_t i = 0; i < adapters->n; i++) {
        if (scales[i] == 0)
            continue;
        if (task->adapter != NULL)
            return openai_refuse(error, "unsupported_value", "lora", "lora: a request has one adapter at most");
        task->adapter = &adapters->at[i];
        if ((float)scales[i] != task->adapter->scale)
            return openai_refuse(error, "unsupported_value", "lora",
                                 "lora: adapter %zu was loaded with the scale %g; no other is supported", i,
                                 (double)task->adapter->scale);
    }
    return true;
}

/* The adapter that the body names by a field of its own; else by its model's name. */
static bool choose_adapter(struct serve_task *task, struct openai_error *error)
{
    const struct openai_request *request = &task->request;
    const char *name = openai_request_adapter(request, NULL);

    if (request->adapter != NULL && request->loras != NULL)
        return openai_refuse(error, "invalid_value", "lora", "lora and adapter do not go together");
    if (request->loras != NULL)
        return choose_of_list(task, error);
    if (request->adapter == NULL)
        task->adapter = serve_adapter_asked(task->model, request->model);
    else if (name != NULL)
        task->adapter = serve_adapter_named(task->model, name);
    if (name == NULL || task->adapter != NULL)
        return true;
    openai_refuse(error, "model_not_found", "adapter",
                  "the model '%.60s' has no adapter '%.80s'; GET /v1/models lists "
                  "them",
                  task->model->name, name);
    error->http = 404;
    error->type = "not_found_error";
    return false;
}

static void start(struct serve_task *task)
{
    struct serve *serve = task->serve;
    struct openai_error error;

    task->model = serve_find_model(serve, task->exchange, task->request.model);
    if (task->model == NULL) {
        task->visit->task = NULL;
        task->exchange = NULL; /* it was refused, or begins anew with the model */
        serve_task_release(task);
        return;
    }
    serve_free_json(serve, task->visit->json);
    task->visit->json = NULL;
    task->visit->json_bytes = 0;
    serve_model_use(task->model);
    serve_keep(task->model, task->keep_ms);
    serve_new_id(serve, prefix_of(task), task->head.id);
    task->number = serve->number;
    task->head.created = (int64_t)time(NULL);
    if (!choose_adapter(task, &error)) {
        serve_name_field(task->dialect, task->names_used, &error);
        refuse(task, &error, 0);
        return;
    }
    task->head.model = task->adapter != NULL ? task->adapter->name : task->model->name;
    task->head.details = true;
    snprintf(task->visit->model, sizeof task->visit->model, "%s", task->model->name);
    if (task->is_long || task->request.tells_ids)
        begin_step(task, NULL, 0);
    else
        submit_all(task);
}

/* A prompt of so many tokens. */
static void judge_length(const struct serve_task *task, size_t n, struct openai_error *error)
{
    runnel_error fault = {.status = RUNNEL_CONTEXT};
    uint32_t context = task->model->info.context_tokens;
    bool answers = (task->request.endpoint & OPENAI_POOLED) == 0 && task->request.max_tokens != 0;

    if (n <= context)
        return;
    snprintf(fault.message, sizeof fault.message, "the prompt has %zu tokens, %u fit", n, context - answers);
    serve_task_fault(task, &fault, error);
}

static void tell_prompts(struct serve_task *task, const runnel_chat *chat, struct openai_error *error)
{
    size_t longest = 0;

    if (!openai_tell_prompts(&task->request, task->model->handle, chat, task->model->info.context_tokens, &longest))
        openai_no_memory(error);
    else
        judge_length(task, longest, error);
}

static void measure_chat(struct serve_task *task, struct openai_error *error)
{
    runnel_request unused;
    runnel_chat chat;
    size_t n = 0;

    runnel_chat_default(&chat);
    openai_request_choice(&task->request, 0, 0, &unused, &chat);
    fill_chat(task, &chat);
    if (task->request.tells_ids)
        tell_prompts(task, &chat, error);
    else if (runnel_tokenize_chat(task->model->handle, &chat, NULL, 0, &n, NULL) == RUNNEL_OK)
        judge_length(task, n, error);
}

/* What cannot fit is refused here, so that what is submitted on the loop's thread is no longer than a context. The rest
 * is judged there. Prompts get their ids here, where they are told. */
static void measure(struct serve_task *task, struct openai_error *error)
{
    struct openai_request *request = &task->request;
    uint32_t flags = RUNNEL_TOKENIZE_BOS | (request->parse_special ? RUNNEL_TOKENIZE_SPECIAL : 0);
    runnel_error fault = {0};
    size_t n = 0;

    if (openai_place_biases(request, task->model->handle) == RUNNEL_NO_MEMORY) { /* else the submit tells */
        openai_no_memory(error);
        return;
    }
    if (request->messages != NULL) {
        measure_chat(task, error);
        return;
    }
    fault.status = openai_infill(request, task->model->handle, &fault);
    if (fault.status != RUNNEL_OK)
        serve_task_fault(task, &fault, error);
    else if (!cut_prompts(task))
        openai_no_memory(error);
    else if (request->tells_ids)
        tell_prompts(task, NULL, error);
    for (size_t i = 0; i < request->n_prompts && error->http == 0 && !request->tells_ids; i++) {
        const struct openai_prompt *prompt = &request->prompts[i];

        if (prompt->tokens == NULL && prompt->text_bytes > SERVE_LOOP_BYTES &&
            runnel_tokenize(task->model->handle, prompt->text, prompt->text_bytes, flags, NULL, 0, &n) == RUNNEL_OK)
            judge_length(task, n, error);
    }
}

/* ---- From a body to a request ------------------------------------------------------------ */

/* Which adapter, in every dialect by the same two fields. */
static bool pass_adapter(const json_t *body, json_t *translated)
{
    static const char *const names[] = {"adapter", "lora"};
    bool good = true;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *value = json_object_get(body, names[i]);

        good = good && (value == NULL || json_object_set(translated, names[i], value) == 0);
    }
    return good;
}

/* A body in the task's dialect, read. False: *error says why. */
static bool read_body(struct serve_task *task, enum openai_endpoint endpoint, const json_t *body,
                      struct openai_error *error)
{
    json_t *translated = NULL;
    const json_t *given = body;
    bool good = false;

    *error = (struct openai_error){0};
    if (task->dialect->endpoint != NULL)
        endpoint = task->dialect->endpoint(body);
    if (!serve_read_keep_alive(body, &task->keep_ms, error))
        return false;
    if (task->dialect->translate != NULL) {
        translated = task->dialect->translate(body, error);
        if (translated == NULL || !pass_adapter(body, translated)) {
            json_decref(translated);
            return error->http != 0 ? false : openai_no_memory(error);
        }
        body = translated;
    }
    task->names_used = serve_names_used(task->dialect, given);
    good = openai_request_read(&task->request, endpoint, task->dialect->free_ranges ? OPENAI_FREE : OPENAI_SERVED, body,
                               error);
    json_decref(translated);
    if (good && task->dialect->llama_entries) {
        task->request.llama_entries = true;
        task->request.echo = false; /* OpenAI's alone, like best_of and return_token_ids */
        task->request.best_of = 0;
        task->request.tells_ids = task->request.keeps_ids = false;
    }
    good = good && can_stream(&task->request, error);
    if (!good)
        serve_name_field(task->dialect, task->names_used, error);
    if (good && task->dialect->wish != NULL)
        task->dialect->wish(task, given);
    return good;
}

static struct serve_task *new_task(struct serve *serve, struct http_exchange *exchange)
{
    struct serve_task *task = calloc(1, sizeof *task);

    if (task == NULL)
        return NULL;
    task->serve = serve;
    task->exchange = exchange;
    task->dialect = serve_dialect_of(exchange);
    task->visit = visit_ref(visit_of(exchange));
    task->visit->task = task;
    task->is_long = task->visit->json != NULL;
    task->began_ns = uv_hrtime();
    task->told_ms = uv_now(&serve->loop);
    link_task(serve, task);
    return task;
}

void serve_ask(struct serve *serve, struct http_exchange *exchange, enum openai_endpoint endpoint)
{
    json_t *body = serve_read_json(serve, exchange);
    struct serve_task *task = NULL;
    struct openai_error error;

    if (body == NULL)
        return;
    if (serve_ollama_load(serve, exchange, body)) {
        json_decref(body);
        return;
    }
    task = new_task(serve, exchange);
    if (task == NULL) {
        openai_no_memory(&error);
        serve_refuse(serve, exchange, &error, 0);
    } else if (task->is_long) {
        begin_step(task, body, endpoint);
    } else if (read_body(task, endpoint, body, &error)) {
        start(task);
    } else {
        refuse(task, &error, 0);
    }
    json_decref(body);
}
