/* What an answer may be, in bodies: OpenAI's response_format, vLLM's structured_outputs and guided_.., llama.cpp's
 * grammar and json_schema, and which tools are called. See openai_request.h. */
#include <stdlib.h>
#include <string.h>

#include "openai_request.h"
#include "runnel_fields.h"

struct reader {
    struct openai_request *r;
    struct openai_error *error;
    const char *name; /* of the member, as errors have it */
};

static bool no_memory(struct reader *reader)
{
    openai_error_of(RUNNEL_NO_MEMORY, "not enough memory for the request", reader->error);
    return false;
}

/* ---- Kinds ------------------------------------------------------------------------------- */

/* An answer has one grammar: a body may say so once. */
static bool claim(struct reader *reader, runnel_grammar_kind kind)
{
    struct openai_request *r = reader->r;

    if (r->grammar.kind != RUNNEL_GRAMMAR_NONE)
        return openai_refuse(reader->error, "invalid_value", reader->name,
                             "%s: %s has said already what the answer may be", reader->name, r->grammar_of);
    r->grammar.kind = kind;
    snprintf(r->grammar_of, sizeof r->grammar_of, "%s", reader->name);
    return true;
}

/* Clients that speak to older and newer servers send a member by both of vLLM's names. */
static bool are_names_of_one(const char *a, const char *b)
{
    static const char newer[] = "structured_outputs.", older[] = "guided_";
    bool a_newer = strncmp(a, newer, sizeof newer - 1) == 0, b_newer = strncmp(b, newer, sizeof newer - 1) == 0;

    return a_newer != b_newer && strncmp(a_newer ? b : a, older, sizeof older - 1) == 0;
}

/* Whether the other name has said the same text; the newer one is told from now on. */
static bool says_again(struct reader *reader, runnel_grammar_kind kind, const char *text, size_t n)
{
    struct openai_request *r = reader->r;

    if (r->grammar.kind != kind || !are_names_of_one(r->grammar_of, reader->name) || n != r->grammar.text_bytes ||
        memcmp(text, r->grammar_text, n) != 0)
        return false;
    if (strchr(reader->name, '.') != NULL)
        snprintf(r->grammar_of, sizeof r->grammar_of, "%s", reader->name);
    return true;
}

static bool take_text(struct reader *reader, runnel_grammar_kind kind, const char *text, size_t n)
{
    struct openai_request *r = reader->r;

    if (says_again(reader, kind, text, n))
        return true;
    if (!claim(reader, kind))
        return false;
    if (n > RUNNEL_MAX_GRAMMAR_BYTES)
        return openai_refuse(reader->error, "invalid_value", reader->name, "%s has %zu bytes; at most %u are allowed",
                             reader->name, n, RUNNEL_MAX_GRAMMAR_BYTES);
    r->grammar_text = malloc(n + 1);
    if (r->grammar_text == NULL)
        return no_memory(reader);
    memcpy(r->grammar_text, text, n + 1);
    r->grammar.text = r->grammar_text;
    r->grammar.text_bytes = n;
    return true;
}

static bool read_string(struct reader *reader, runnel_grammar_kind kind, const json_t *value)
{
    return openai_expect(reader->error, reader->name, value, JSON_STRING) &&
           take_text(reader, kind, json_string_value(value), json_string_length(value));
}

/* A schema: an object, true or false; or a text that is one. */
static bool read_schema(struct reader *reader, const json_t *value)
{
    char *text = NULL;
    bool good;

    if (json_is_string(value))
        return read_string(reader, RUNNEL_GRAMMAR_JSON_SCHEMA, value);
    if (!json_is_boolean(value) && !openai_expect(reader->error, reader->name, value, JSON_OBJECT))
        return false;
    text = openai_dump(value);
    if (text == NULL)
        return no_memory(reader);
    good = take_text(reader, RUNNEL_GRAMMAR_JSON_SCHEMA, text, strlen(text));
    free(text);
    return good;
}

static bool read_choices(struct reader *reader, const json_t *value)
{
    struct openai_request *r = reader->r;
    size_t n = json_array_size(value);

    if (!openai_expect(reader->error, reader->name, value, JSON_ARRAY) || !claim(reader, RUNNEL_GRAMMAR_CHOICES))
        return false;
    if (n == 0)
        return openai_refuse(reader->error, "invalid_value", reader->name, "%s is empty", reader->name);
    r->grammar_choices = calloc(n, sizeof *r->grammar_choices);
    if (r->grammar_choices == NULL)
        return no_memory(reader);
    r->grammar.choices = (const char *const *)r->grammar_choices;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_array_get(value, i);

        if (!openai_expect(reader->error, reader->name, text, JSON_STRING))
            return false;
        if (json_string_length(text) != strlen(json_string_value(text)))
            return openai_refuse(reader->error, "invalid_value", reader->name, "%s[%zu]: a choice has no zero bytes",
                                 reader->name, i);
        r->grammar_choices[i] = strdup(json_string_value(text));
        if (r->grammar_choices[i] == NULL)
            return no_memory(reader);
        r->grammar.n_choices++;
    }
    return true;
}

/* vLLM's and llama.cpp's members, whose servers close objects. */
static bool read_closing(struct reader *reader, const json_t *value)
{
    reader->r->closes = true;
    return read_schema(reader, value);
}

/* GBNF has "::=", Lark's notation has not. */
static bool read_either(struct reader *reader, const json_t *value)
{
    const char *text = json_string_value(value);
    bool gbnf = text != NULL && memmem(text, json_string_length(value), "::=", 3) != NULL;

    return read_string(reader, gbnf ? RUNNEL_GRAMMAR_GBNF : RUNNEL_GRAMMAR_EBNF, value);
}

static bool read_gbnf(struct reader *reader, const json_t *value)
{
    return read_string(reader, RUNNEL_GRAMMAR_GBNF, value);
}

static bool read_regex(struct reader *reader, const json_t *value)
{
    return read_string(reader, RUNNEL_GRAMMAR_REGEX, value);
}

/* true: any JSON object. */
static bool read_object(struct reader *reader, const json_t *value)
{
    return openai_expect(reader->error, reader->name, value, JSON_TRUE) &&
           (json_is_false(value) || claim(reader, RUNNEL_GRAMMAR_JSON_OBJECT));
}

/* ---- OpenAI's form ----------------------------------------------------------------------- */

/* The schema of a format, and whether all of it must be enforced. */
static bool read_strict(struct reader *reader, const json_t *of)
{
    const json_t *strict = json_object_get(of, "strict"), *schema = json_object_get(of, "schema");
    char name[64];

    snprintf(name, sizeof name, "%.40s.schema", reader->name);
    if (strict != NULL && !json_is_null(strict) && !json_is_boolean(strict))
        return openai_refuse(reader->error, "invalid_type", reader->name, "%s: strict must be a boolean", reader->name);
    if (schema == NULL)
        return openai_refuse(reader->error, "missing_required_parameter", name, "%s is missing", name);
    reader->name = name;
    if (!read_schema(reader, schema))
        return false;
    reader->r->unenforced_format = !json_is_true(strict);
    return true;
}

bool openai_read_format(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error)
{
    struct reader reader = {request, error, name};
    const char *type = openai_word(json_object_get(value, "type"));
    const json_t *of = json_object_get(value, "json_schema");
    char nested[48];

    if (!openai_expect(error, name, value, JSON_OBJECT))
        return false;
    if (type == NULL)
        return openai_refuse(error, "missing_required_parameter", name, "%s: type is missing", name);
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0)
        return json_object_get(value, "schema") != NULL ? read_strict(&reader, value)
                                                        : claim(&reader, RUNNEL_GRAMMAR_JSON_OBJECT);
    if (strcmp(type, "json_schema") != 0)
        return openai_refuse(error, "unsupported_value", name,
                             "%s: the types are text, json_object and json_schema, not %.40s", name, type);
    if (request->endpoint == OPENAI_RESPONSES)
        return read_strict(&reader, value);
    snprintf(nested, sizeof nested, "%.32s.json_schema", name);
    reader.name = nested;
    return openai_expect(error, nested, of, JSON_OBJECT) && read_strict(&reader, of);
}

/* ---- vLLM's and llama.cpp's members ------------------------------------------------------ */

static const struct member {
    const char *name, *inside; /* of a body; of structured_outputs; NULL: not there */
    bool (*read)(struct reader *reader, const json_t *value);
    enum openai_shape shape;
} members[] = {
    {"guided_json", "json", read_closing, OPENAI_ANY},       {"guided_regex", "regex", read_regex, OPENAI_STRING},
    {"guided_choice", "choice", read_choices, OPENAI_ARRAY}, {"guided_grammar", "grammar", read_either, OPENAI_STRING},
    {NULL, "json_object", read_object, OPENAI_BOOLEAN},      {"grammar", NULL, read_gbnf, OPENAI_STRING},
    {"json_schema", NULL, read_closing, OPENAI_ANY},
};

/* A boolean of the grammar, perhaps the other way round. */
static bool read_flag(struct reader *reader, const json_t *value, uint8_t *flag, bool negated)
{
    if (!openai_expect(reader->error, reader->name, value, JSON_TRUE))
        return false;
    *flag = json_is_true(value) != negated;
    return true;
}

static bool read_inside(struct reader *reader, const char *name, const json_t *value)
{
    runnel_grammar *grammar = &reader->r->grammar;

    if (json_is_null(value))
        return true;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (members[i].inside != NULL && strcmp(members[i].inside, name) == 0)
            return members[i].read(reader, value);
    if (strcmp(name, "disable_any_whitespace") == 0)
        return read_flag(reader, value, &grammar->free_white, true);
    if (strcmp(name, "disable_additional_properties") == 0)
        return read_flag(reader, value, &grammar->closed, false);
    return openai_refuse(reader->error, "unknown_parameter", reader->name, "unknown parameter '%.80s'", reader->name);
}

static bool read_structured(struct reader *reader, const json_t *value)
{
    const char *name = NULL;
    const json_t *item = NULL;
    char full[80];

    if (!openai_expect(reader->error, "structured_outputs", value, JSON_OBJECT))
        return false;
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        snprintf(full, sizeof full, "structured_outputs.%.40s", name);
        reader->name = full;
        if (!read_inside(reader, name, item))
            return false;
    }
    return true;
}

#define FLAG(name) {#name, offsetof(runnel_grammar, name)},

/* Booleans by the names that runnel_grammar has for them. */
static bool read_options(struct reader *reader, const json_t *value)
{
    static const struct {
        const char *name;
        size_t at;
    } flags[] = {FLAG(free_white) FLAG(any_order) FLAG(closed) FLAG(one_of_as_any_of) FLAG(allow_unenforced)
                     FLAG(free_reasoning)};
    const char *name = NULL;
    const json_t *item = NULL;
    char full[80];
    size_t i;

    if (!openai_expect(reader->error, "grammar_options", value, JSON_OBJECT))
        return false;
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        snprintf(full, sizeof full, "grammar_options.%.40s", name);
        reader->name = full;
        for (i = 0; i < sizeof flags / sizeof flags[0] && strcmp(flags[i].name, name) != 0; i++)
            ;
        if (i == sizeof flags / sizeof flags[0])
            return openai_refuse(reader->error, "unknown_parameter", full, "unknown parameter '%.80s'", full);
        if (!json_is_null(item) && !read_flag(reader, item, (uint8_t *)&reader->r->grammar + flags[i].at, false))
            return false;
        reader->r->has_unenforced |= flags[i].at == offsetof(runnel_grammar, allow_unenforced) && !json_is_null(item);
        reader->r->has_closed |= flags[i].at == offsetof(runnel_grammar, closed) && !json_is_null(item);
    }
    return true;
}

int openai_read_grammar(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error)
{
    struct reader reader = {request, error, name};

    if (strcmp(name, "structured_outputs") == 0)
        return json_is_null(value) || read_structured(&reader, value) ? 1 : -1;
    if (strcmp(name, "grammar_options") == 0)
        return json_is_null(value) || read_options(&reader, value) ? 1 : -1;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (members[i].name != NULL && strcmp(members[i].name, name) == 0)
            return json_is_null(value) || members[i].read(&reader, value) ? 1 : -1;
    return 0;
}

void openai_fields_of_grammars(openai_field_fn *fn, void *user)
{
    fn(user, &(struct openai_field){"structured_outputs", OPENAI_OBJECT, false, 0, 0});
    fn(user, &(struct openai_field){"grammar_options", OPENAI_OBJECT, false, 0, 0});
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (members[i].name != NULL)
            fn(user, &(struct openai_field){members[i].name, members[i].shape, false, 0, 0});
}

/* ---- Tools ------------------------------------------------------------------------------- */

bool openai_read_tool_choice(struct openai_request *request, const char *name, const json_t *value,
                             struct openai_error *error)
{
    static const char *const words[] = {"none", "auto", "required"};
    const json_t *function = json_object_get(value, "function");
    const char *choice = openai_word(value), *type = openai_word(json_object_get(value, "type"));

    if (choice == NULL && !json_is_object(value))
        return openai_refuse(error, "invalid_type", name, "%s must be a string or an object", name);
    for (size_t i = 0; i < 3 && choice != NULL; i++)
        if (strcmp(words[i], choice) == 0) {
            request->tool_choice = strdup(choice);
            return request->tool_choice != NULL || no_memory(&(struct reader){request, error, name});
        }
    if (choice != NULL || type == NULL || strcmp(type, "function") != 0)
        return openai_refuse(error, "unsupported_value", name,
                             "%s: only 'none', 'auto', 'required' and a function are supported", name);
    choice = openai_word(json_object_get(function != NULL ? function : value, "name"));
    if (choice == NULL || choice[0] == '\0')
        return openai_refuse(error, "missing_required_parameter", name, "%s: the function has no name", name);
    request->tool_choice = strdup(choice);
    return request->tool_choice != NULL || no_memory(&(struct reader){request, error, name});
}

/* Is it the name of one of the tools? */
static bool has_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *own = openai_word(json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"));

        if (own != NULL && strcmp(own, name) == 0)
            return true;
    }
    return false;
}

/* Does one of the tools ask that its schema be enforced to the letter? */
static bool is_strict(const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (json_is_true(json_object_get(json_object_get(json_array_get(tools, i), "function"), "strict")))
            return true;
    return false;
}

bool openai_finish_grammar(struct openai_request *request, const json_t *tools, struct openai_error *error)
{
    const char *choice = request->tool_choice;

    if (choice != NULL && request->grammar.kind == RUNNEL_GRAMMAR_NONE)
        request->unenforced_format = !is_strict(tools);
    if (request->unenforced_format && !request->has_unenforced)
        request->grammar.allow_unenforced = 1;
    if (request->closes && !request->has_closed)
        request->grammar.closed = 1;
    if (choice == NULL || strcmp(choice, "auto") == 0 || strcmp(choice, "none") == 0)
        return true;
    if (json_array_size(tools) == 0)
        return openai_refuse(error, "invalid_value", "tool_choice",
                             "tool_choice asks for a call, and there are no tools");
    return strcmp(choice, "required") == 0 || has_tool(tools, choice) ||
           openai_refuse(error, "invalid_value", "tool_choice", "tool_choice: there is no tool '%.80s'", choice);
}

void openai_grammar_fault(const struct openai_request *request, runnel_about about, struct openai_error *error)
{
    static const char prefix[] = "grammar: ";
    size_t n = sizeof prefix - 1;
    bool tools = request->grammar.kind == RUNNEL_GRAMMAR_NONE || about == RUNNEL_ABOUT_TOOLS;
    const char *field = !tools ? request->grammar_of : request->functions ? "functions" : "tools";
    char sentence[sizeof error->message];

    snprintf(sentence, sizeof sentence, "%s", error->message + (strncmp(error->message, prefix, n) == 0 ? n : 0));
    openai_refuse(error, "invalid_value", field, "%s: %s", field, sentence);
}

void openai_fini_grammar(struct openai_request *request)
{
    for (size_t i = 0; i < request->grammar.n_choices; i++)
        free(request->grammar_choices[i]);
    free(request->grammar_choices);
    free(request->grammar_text);
    free(request->tool_choice);
}
