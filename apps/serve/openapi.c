/* GET /openapi.json: OpenAPI 3.1 of the table of routes, of the tables that read requests, and of openapi.json, which
 * has the forms of answers; as "x-bodies" what is inside fields of bodies: for some paths, schemas of properties, and
 * what holds for several of them together; as "x-links" which routes take what a POST has made. See routes.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "embedded.h"
#include "routes.h"

/* Statuses beside 200, and which routes give them. */
enum { ALWAYS = 1, WITH_BODY = 2, IF_KEYED = 4, OF_FILES = 8, REFUSED = 16 };

static const struct {
    const char *status;
    unsigned when;
    const char *what;
} refusals[] = {
    {"400", ALWAYS, "the request is at fault"},
    {"401", IF_KEYED, "a valid key is needed"},
    {"403", ALWAYS, "the key has not the scope that this needs, or a foreign page asks"},
    {"404", ALWAYS, "what was asked for is not there"},
    {"408", ALWAYS, "the request did not come in time"},
    {"409", OF_FILES, "a batch reads the file"},
    {"413", WITH_BODY, "the body is too long"},
    {"414", ALWAYS, "the request line is too long"},
    {"415", WITH_BODY, "the body has a content coding"},
    {"429", IF_KEYED, "too many requests of this key"},
    {"431", ALWAYS, "the header fields are too long"},
    {"500", ALWAYS, "the server is at fault"},
    {"501", OF_FILES | REFUSED, "the server keeps no files, or the model gives no such numbers"},
    {"503", ALWAYS, "full, going down, or a model is not loaded"},
    {"504", WITH_BODY, "the answer was not there in time"},
    {"507", OF_FILES, "there is no room for a further file"},
};

static json_t *ref(const char *name)
{
    return json_pack("{s:s+}", "$ref", "#/components/schemas/", name);
}

/* "content" with a schema (stolen) of each type that is not NULL. Of a stream of events the schema is one event's. */
static json_t *content(const char *type, json_t *schema, const char *second)
{
    json_t *all = json_pack("{s:{s:o}}", type, "schema", schema);

    if (second != NULL)
        json_object_set_new(
            all, second,
            json_pack("{s:o}", "schema",
                      strcmp(second, "text/event-stream") == 0 ? ref("Event") : json_pack("{s:s}", "type", "string")));
    return all;
}

static const char *error_of(const struct serve_route *route)
{
    const struct serve_dialect *dialect = route->dialect != NULL ? route->dialect : &serve_openai;

    return dialect->put_error == serve_openai.put_error      ? "Error"
           : dialect->put_error == serve_anthropic.put_error ? "AnthropicError"
                                                             : "OllamaError";
}

/* Of an answer that is no JSON. */
static const char *type_of(const struct serve *serve, const struct serve_route *route)
{
    return route->page == serve_files_one                          ? "application/octet-stream"
           : route->page == serve_page && !serve->options->no_page ? "text/html"
                                                                   : "text/plain";
}

static json_t *answers_of(const struct serve *serve, const struct serve_route *route, json_t *links)
{
    unsigned when = ALWAYS | (strcmp(route->method, "POST") == 0 ? WITH_BODY : 0) |
                    (serve->keys.n > 0 && route->auth != SCOPE_PUBLIC ? IF_KEYED : 0) |
                    (route->auth == SCOPE_BATCHES ? OF_FILES : 0) |
                    ((route->endpoint & OPENAI_POOLED) != 0 ? REFUSED : 0);
    const char *pieces = route->page == NULL && route->dialect != NULL && (route->endpoint & OPENAI_POOLED) == 0
                             ? route->dialect->stream_type
                             : NULL;
    json_t *good = route->answer != NULL ? content("application/json", ref(route->answer), pieces)
                                         : content(type_of(serve, route), json_pack("{s:s}", "type", "string"), NULL);
    json_t *all = json_pack("{s:{s:s,s:o}}", "200", "description", "what was asked for", "content", good);

    if (links != NULL && strcmp(route->method, "POST") == 0)
        json_object_set(json_object_get(all, "200"), "links", links);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        json_t *form = NULL;

        if ((refusals[i].when & when) == 0)
            continue;
        form =
            content("application/json",
                    strcmp(route->path, "/ready") == 0 && strcmp(refusals[i].status, "503") == 0 ? ref("Status")
                                                                                                 : ref(error_of(route)),
                    NULL);
        json_object_set_new(all, refusals[i].status,
                            json_pack("{s:s,s:o}", "description", refusals[i].what, "content", form));
    }
    return all;
}

/* ---- Requests ---------------------------------------------------------------------------- */

static void put_field(void *user, const struct openai_field *field)
{
    json_t *schema = user;

    json_object_set_new(json_object_get(schema, "properties"), field->name, openai_field_schema(field));
    if (field->needed)
        json_array_append_new(json_object_get(schema, "required"), json_string(field->name));
}

/* Of an upload. */
static json_t *form_of(void)
{
    json_t *schema = json_pack("{s:s,s:[s,s],s:{s:{s:s,s:s},s:{s:s}}}", "type", "object", "required", "file", "purpose",
                               "properties", "file", "type", "string", "format", "binary", "purpose", "const", "batch");

    return json_pack("{s:b,s:o}", "required", 1, "content", content("multipart/form-data", schema, NULL));
}

static bool has_word(const json_t *words, const char *word)
{
    const json_t *item = NULL;
    size_t i = 0;

    json_array_foreach(words, i, item)
    {
        if (strcmp(json_string_value(item), word) == 0)
            return true;
    }
    return false;
}

/* What an entry of x-bodies says of a schema that the tables have made. */
static void refine(json_t *schema, const json_t *entry)
{
    static const char *const together[] = {"anyOf", "oneOf"};
    json_t *properties = json_object_get(schema, "properties"), *inside = NULL;
    const char *name = NULL;

    json_object_foreach(json_object_get(entry, "properties"), name, inside)
    {
        if (has_word(json_object_get(schema, "required"), name))
            json_object_set(properties, name, inside);
        else if (json_object_get(properties, name) != NULL)
            json_object_set_new(properties, name, json_pack("{s:[O,{s:s}]}", "anyOf", inside, "type", "null"));
    }
    for (size_t i = 0; i < sizeof together / sizeof together[0]; i++)
        if (json_object_get(entry, together[i]) != NULL)
            json_object_set(schema, together[i], json_object_get(entry, together[i]));
}

/* The bodies that a route takes: its own fields, OpenAI's, or both; NULL: none. */
static json_t *body_of(const struct serve_route *route, const json_t *bodies)
{
    const json_t *entry = NULL;
    size_t i = 0;
    bool openai = route->endpoint != 0 && (route->fields == NULL || (route->dialect != NULL && route->dialect->passes));
    json_t *schema = NULL;

    if (route->page == serve_files_upload)
        return form_of();
    if (strcmp(route->method, "POST") != 0 || (!openai && route->fields == NULL))
        return NULL;
    schema = json_pack("{s:s,s:{},s:[]}", "type", "object", "properties", "required");
    if (openai)
        openai_fields_each(route->endpoint, put_field, schema);
    if (route->fields != NULL) /* what both have is the route's own */
        json_object_set_new(schema, "required", json_array());
    for (const struct openai_field *field = route->fields; field != NULL && field->name != NULL; field++)
        put_field(schema, field);
    json_array_foreach(bodies, i, entry)
    {
        if (has_word(json_object_get(entry, "paths"), route->path))
            refine(schema, entry);
    }
    return json_pack("{s:b,s:o}", "required", 1, "content", content("application/json", schema, NULL));
}

/* "GET /v1/models/" as "get_v1_models_one". */
static json_t *name_of(const struct serve_route *route)
{
    char name[96];
    size_t n = (size_t)snprintf(name, sizeof name, "%s%s%s", route->method, route->path,
                                serve_route_is_named(route) ? "one" : "");

    for (size_t i = 0; i < n && i < sizeof name - 1; i++)
        name[i] = (char)(isalnum((unsigned char)name[i]) ? tolower((unsigned char)name[i]) : '_');
    return json_string(name);
}

static json_t *operation_of(const struct serve *serve, const struct serve_route *route, const json_t *forms)
{
    json_t *operation =
        json_pack("{s:o,s:s,s:o}", "operationId", name_of(route), "summary", route->summary, "responses",
                  answers_of(serve, route, json_object_get(json_object_get(forms, "x-links"), route->path)));
    json_t *body = body_of(route, json_object_get(forms, "x-bodies"));

    if (body != NULL)
        json_object_set_new(operation, "requestBody", body);
    if (serve->keys.n > 0 && route->auth != SCOPE_PUBLIC)
        json_object_set_new(operation, "security", json_pack("[{s:[]},{s:[]}]", "bearer", "header"));
    return operation;
}

/* ---- The whole --------------------------------------------------------------------------- */

static void put_path(const struct serve *serve, const struct serve_route *route, const json_t *forms, json_t *paths)
{
    static const char parameter[] =
        "[{\"name\":\"name\",\"in\":\"path\",\"required\":true,"
        "\"schema\":{\"type\":\"string\",\"minLength\":1,\"pattern\":\"^[a-zA-Z0-9_-]+$\"}}]";
    size_t stem = serve_route_stem(route);
    bool named = route->path[stem] == '*' || serve_route_is_named(route);
    char path[96], method[8] = "";
    json_t *item = NULL;

    snprintf(path, sizeof path, "%.*s%s%s", (int)stem, route->path, named ? "{name}" : "",
             route->path[stem] == '*' ? route->path + stem + 1 : "");
    for (size_t i = 0; i < sizeof method - 1 && route->method[i] != '\0'; i++)
        method[i] = (char)tolower((unsigned char)route->method[i]);
    item = json_object_get(paths, path);
    if (item == NULL) {
        json_object_set_new(paths, path, json_object());
        item = json_object_get(paths, path);
        if (named)
            json_object_set_new(item, "parameters", json_loads(parameter, 0, NULL));
    }
    json_object_set_new(item, method, operation_of(serve, route, forms));
}

/* NULL: no memory. */
static json_t *document(const struct serve *serve)
{
    const struct serve_file *file = serve_find_file("openapi.json");
    json_t *forms = json_loadb((const char *)file->bytes, file->n, 0, NULL), *paths = json_object();
    size_t n = 0;
    const struct serve_route *routes = serve_routes(&n);

    for (size_t i = 0; i < n; i++)
        if (routes[i].summary != NULL)
            put_path(serve, &routes[i], forms, paths);
    json_object_del(forms, "x-bodies");
    json_object_del(forms, "x-links");
    return json_pack("{s:s,s:{s:s,s:s,s:s},s:o,s:{s:o,s:{s:{s:s,s:s},s:{s:s,s:s,s:s}}}}", "openapi", "3.1.0", "info",
                     "title", "runnel serve", "version", runnel_version(), "description",
                     "Fields that are not listed are left alone; null is the same as a field that is missing.", "paths",
                     paths, "components", "schemas", forms, "securitySchemes", "bearer", "type", "http", "scheme",
                     "bearer", "header", "type", "apiKey", "in", "header", "name", "X-Api-Key");
}

void serve_openapi(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    json_t *all = document(serve);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;

    (void)rest;
    json_decref(all);
    if (text == NULL) {
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "not enough memory for the document", 0);
        return;
    }
    fputs(text, serve_write(serve));
    free(text);
    serve_reply(serve, exchange, 200, "application/json");
}
