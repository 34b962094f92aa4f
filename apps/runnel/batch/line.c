/* One line of a batch: see line.h. */
#include "line.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "apps/runnel/common.h"

/* ---- Reading ----------------------------------------------------------------------------- */

static void bad_line(struct batch_line *line)
{
    line->fault = BATCH_BAD_LINE;
}

static size_t mark_bytes(const struct batch_raw *raw)
{
    return raw->number == 1 ? openai_mark_bytes(raw->bytes, raw->n) : 0;
}

/* Control bytes become question marks; cut between two code points. */
static void set_label(struct batch_line *line)
{
    size_t n = line->custom_id_bytes < sizeof line->label ? line->custom_id_bytes : sizeof line->label - 1;

    while (n < line->custom_id_bytes && n > 0 && ((unsigned char)line->custom_id[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)line->custom_id[i];

        line->label[i] = (char)(c < ' ' || c == 0x7f ? '?' : c);
    }
    line->label[n] = '\0';
}

static bool read_id(struct batch_line *line, const json_t *id)
{
    if (!openai_expect(&line->error, "custom_id", id, JSON_STRING))
        return false;
    if (json_string_length(id) == 0)
        return openai_refuse(&line->error, "invalid_value", "custom_id", "custom_id is empty");
    line->custom_id_bytes = json_string_length(id);
    line->custom_id = malloc(line->custom_id_bytes);
    if (line->custom_id == NULL) {
        openai_error_of(RUNNEL_NO_MEMORY, "", &line->error);
        return false;
    }
    memcpy(line->custom_id, json_string_value(id), line->custom_id_bytes);
    set_label(line);
    return true;
}

static bool read_method(struct batch_line *line, const json_t *method)
{
    if (!openai_expect(&line->error, "method", method, JSON_STRING))
        return false;
    if (strcmp(openai_word(method), "POST") == 0)
        return true;
    return openai_refuse(&line->error, "invalid_method", "method", "method must be 'POST'");
}

static bool read_url(struct batch_line *line, const json_t *url, enum openai_endpoint *endpoint)
{
    const char *text = openai_word(url);

    if (!openai_expect(&line->error, "url", url, JSON_STRING))
        return false;
    *endpoint = openai_endpoint_of(text);
    if (*endpoint != 0)
        return true;
    return openai_refuse(&line->error, "invalid_url", "url",
                         "'%.80s' is not known; there are /v1/chat/completions, /v1/completions, /v1/embeddings, "
                         "/v1/responses, /v1/rerank and /v1/classify",
                         text);
}

static bool no_others(struct batch_line *line, const json_t *root)
{
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    const char *name = NULL;
    const json_t *value = NULL;

    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        bool found = false;

        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found |= strcmp(known[i], name) == 0;
        if (!found)
            return openai_refuse(&line->error, "unknown_parameter", name, "unknown member '%.80s'", name);
    }
    return true;
}

static void read_object(struct batch_line *line, const json_t *root)
{
    enum openai_endpoint endpoint = OPENAI_CHAT;
    const json_t *body = json_object_get(root, "body");

    if (!openai_expect(&line->error, "line", root, JSON_OBJECT) || !read_id(line, json_object_get(root, "custom_id")) ||
        !read_method(line, json_object_get(root, "method")) ||
        !read_url(line, json_object_get(root, "url"), &endpoint) || !no_others(line, root) ||
        !openai_expect(&line->error, "body", body, JSON_OBJECT)) {
        bad_line(line);
        return;
    }
    if (!openai_request_read(&line->request, endpoint, OPENAI_STRICT, body, &line->error))
        line->fault = BATCH_BAD_REQUEST;
}

static void read_json(struct batch_line *line, const struct batch_raw *raw)
{
    size_t skip = mark_bytes(raw);
    json_error_t error;
    json_t *root = openai_parse(raw->bytes + skip, raw->n - skip, &error);

    if (root == NULL && json_error_code(&error) == json_error_out_of_memory) {
        openai_error_of(RUNNEL_NO_MEMORY, "", &line->error);
        return;
    }
    if (root == NULL) {
        openai_refuse(&line->error, "invalid_json_line", NULL, "the line is not JSON: %s (at byte %d)", error.text,
                      error.position);
        bad_line(line);
        return;
    }
    openai_make_whole(json_object_get(root, "body"));
    read_object(line, root);
    json_decref(root);
}

static bool make_room(struct batch_line *line)
{
    line->n_choices = openai_request_choices(&line->request);
    line->choices = calloc(line->n_choices, sizeof *line->choices);
    line->streams = calloc(line->n_choices, sizeof *line->streams);
    return line->choices != NULL && line->streams != NULL;
}

struct batch_line *batch_line_new(struct batch_raw *raw, size_t limit)
{
    struct batch_line *line = calloc(1, sizeof *line);
    bool good = line != NULL;

    if (good) {
        *line = (struct batch_line){.number = raw->number, .hash = raw->hash, .end = raw->end, .fault_at = SIZE_MAX};
        line->bytes = raw->too_long ? 0 : raw->n;
        if (raw->too_long) {
            openai_refuse(&line->error, "line_too_long", NULL,
                          "the line has %zu bytes; at most %zu are allowed (--max-line-bytes)", raw->n, limit);
            bad_line(line);
        } else {
            read_json(line, raw);
        }
        good = line->error.http != 500; /* memory was short: not the line's fault */
    }
    free(raw->bytes);
    raw->bytes = NULL;
    if (good && (line->fault != BATCH_GOOD || make_room(line)))
        return line;
    batch_line_free(line);
    return NULL;
}

void batch_line_free(struct batch_line *line)
{
    if (line == NULL)
        return;
    for (size_t i = 0; i < line->n_open; i++)
        openai_choice_close(&line->choices[i]);
    openai_request_fini(&line->request);
    free(line->choices);
    free(line->streams);
    free(line->custom_id);
    free(line);
}

/* ---- Faults ------------------------------------------------------------------------------ */

void batch_line_duplicate(struct batch_line *line, uint64_t first)
{
    openai_refuse(&line->error, "duplicate_custom_id", "custom_id", "line %llu has the same custom_id",
                  (unsigned long long)first);
    bad_line(line);
}

void batch_line_fault(struct batch_line *line, size_t at, runnel_about about, runnel_status status,
                      const char *sentence)
{
    if (at >= line->fault_at)
        return;
    line->fault_at = at;
    line->fault = BATCH_BAD_REQUEST;
    openai_error_of(status, sentence, &line->error);
    openai_request_fault(&line->request, about, &line->error);
}

void batch_line_check_adapter(struct batch_line *line, const struct app_options *options)
{
    const char *name = openai_request_adapter(&line->request, NULL);

    if (line->fault != BATCH_GOOD || name == NULL || app_has_adapter(options, name))
        return;
    line->fault = BATCH_BAD_REQUEST;
    openai_refuse(&line->error, "invalid_value", "adapter", "adapter: no --lora is called '%.80s'", name);
}

uint64_t batch_line_seed(const struct batch_line *line)
{
    return XXH3_64bits_withSeed(line->custom_id, line->custom_id_bytes, line->number);
}

/* Choices are submitted in order, so that all below a fault have been. */
bool batch_line_done(const struct batch_line *line)
{
    return line->n_ended == line->n_submitted && (line->fault != BATCH_GOOD || line->n_submitted == line->n_choices);
}

/* ---- Writing ----------------------------------------------------------------------------- */

/* An id of this line: the same in every run. */
static uint64_t id_of(const struct batch_line *line, uint64_t what)
{
    const uint64_t key[2] = {line->number, line->hash};

    return XXH3_64bits_withSeed(key, sizeof key, what);
}

static void put_line_error(FILE *to, const struct batch_line *line)
{
    fputs(",\"response\":null,\"error\":{\"code\":", to);
    openai_string_write(to, line->error.code);
    fputs(",\"message\":", to);
    openai_sentence_write(to, line->error.message);
    fputs(",\"param\":", to);
    openai_string_write(to, line->error.param[0] != '\0' ? line->error.param : NULL);
    fprintf(to, ",\"line\":%llu}", (unsigned long long)line->number);
}

static void put_response(FILE *to, struct batch_line *line, const char *model, int64_t created)
{
    const char *kind = line->request.endpoint == OPENAI_CHAT        ? "chatcmpl"
                       : line->request.endpoint == OPENAI_RESPONSES ? "resp"
                       : line->request.endpoint == OPENAI_RERANK    ? "rerank"
                       : line->request.endpoint == OPENAI_CLASSIFY  ? "classify"
                                                                    : "cmpl";
    struct openai_head head = {.created = created, .model = model};

    fprintf(to, ",\"response\":{\"status_code\":%d,\"request_id\":\"req_%016llx\",\"body\":",
            line->fault == BATCH_GOOD ? 200 : line->error.http, (unsigned long long)id_of(line, 1));
    if (line->fault == BATCH_GOOD) {
        snprintf(head.id, sizeof head.id, "%s%c%016llx", kind, line->request.endpoint == OPENAI_RESPONSES ? '_' : '-',
                 (unsigned long long)id_of(line, 2));
        openai_answer_write(to, &line->request, line->choices, line->n_choices, &head);
    } else {
        openai_error_write(to, &line->error);
    }
    fputs("},\"error\":null", to);
}

void batch_line_write(FILE *to, struct batch_line *line, const char *model, int64_t created,
                      struct batch_answer *answer)
{
    *answer = (struct batch_answer){.number = line->number, .hash = line->hash, .good = line->fault == BATCH_GOOD};
    fprintf(to, "{\"id\":\"batch_req_%016llx\",\"custom_id\":", (unsigned long long)id_of(line, 0));
    if (line->custom_id != NULL)
        app_json_string(to, line->custom_id, line->custom_id_bytes);
    else
        fputs("null", to);
    if (line->fault == BATCH_BAD_LINE)
        put_line_error(to, line);
    else
        put_response(to, line, model, created);
    fputs("}\n", to);
    for (size_t i = 0; i < line->n_open; i++) {
        bool is_first = i % openai_request_tries(&line->request) == 0; /* as the answer's usage has it */

        answer->prompt_tokens += is_first ? line->choices[i].usage.prompt_tokens : 0;
        answer->cached_tokens += is_first ? line->choices[i].usage.cached_tokens : 0;
        answer->completion_tokens += line->choices[i].usage.completion_tokens;
        answer->shifts += line->choices[i].usage.shifts;
        answer->shifted_tokens += line->choices[i].usage.shifted_tokens;
    }
}
