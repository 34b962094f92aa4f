/* What an answer may be, by options: see common.h. */
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* One option each; at most one of them is given. */
struct source {
    const char *option;
    const char *text, *file; /* one of them; both NULL: the kind needs no text */
    bool given;
    runnel_grammar_kind kind;
};

#define N_SOURCES 9

static void sources_of(const struct app_options *o, struct source sources[N_SOURCES])
{
    const struct source all[N_SOURCES] = {
        {"--grammar", o->gbnf, NULL, o->gbnf != NULL, RUNNEL_GRAMMAR_GBNF},
        {"--grammar-file", NULL, o->gbnf_file, o->gbnf_file != NULL, RUNNEL_GRAMMAR_GBNF},
        {"--json-schema", o->json_schema, NULL, o->json_schema != NULL, RUNNEL_GRAMMAR_JSON_SCHEMA},
        {"--json-schema-file", NULL, o->json_schema_file, o->json_schema_file != NULL, RUNNEL_GRAMMAR_JSON_SCHEMA},
        {"--regex", o->regex, NULL, o->regex != NULL, RUNNEL_GRAMMAR_REGEX},
        {"--ebnf-file", NULL, o->ebnf_file, o->ebnf_file != NULL, RUNNEL_GRAMMAR_EBNF},
        {"--choice", NULL, NULL, o->n_choices > 0, RUNNEL_GRAMMAR_CHOICES},
        {"--json-object", NULL, NULL, o->json_object, RUNNEL_GRAMMAR_JSON_OBJECT},
        {"--json-value", NULL, NULL, o->json_value, RUNNEL_GRAMMAR_JSON},
    };

    memcpy(sources, all, sizeof all);
}

/* The one that was given; kind NONE: none was. */
static struct source source_of(const struct app_options *options)
{
    struct source sources[N_SOURCES];

    sources_of(options, sources);
    for (size_t i = 0; i < N_SOURCES; i++)
        if (sources[i].given)
            return sources[i];
    return (struct source){.kind = RUNNEL_GRAMMAR_NONE};
}

bool app_grammar_is_one(const struct app_options *options)
{
    struct source sources[N_SOURCES], *first = NULL;

    sources_of(options, sources);
    for (size_t i = 0; i < N_SOURCES; i++) {
        if (!sources[i].given)
            continue;
        if (first != NULL) {
            app_error("%s and %s exclude each other", first->option, sources[i].option);
            return false;
        }
        first = &sources[i];
    }
    return true;
}

int app_grammar_open(struct app_options *options)
{
    struct source source = source_of(options);
    struct app_text text = {0};

    if (!app_grammar_is_one(options))
        return APP_USAGE;
    if (source.file == NULL)
        return APP_OK;
    if (!app_read_file(source.file, &text))
        return APP_FAILURE;
    options->grammar_text = text.bytes;
    options->grammar_bytes = text.size;
    return APP_OK;
}

const runnel_grammar *app_grammar(const struct app_options *options)
{
    struct source source = source_of(options);
    runnel_grammar *grammar = options->request_grammar;

    runnel_grammar_default(grammar);
    grammar->kind = source.kind;
    grammar->text = source.file != NULL ? options->grammar_text : source.text;
    grammar->text_bytes = source.file != NULL ? options->grammar_bytes : source.text != NULL ? strlen(source.text) : 0;
    if (source.kind == RUNNEL_GRAMMAR_CHOICES) {
        grammar->choices = (const char *const *)options->choices;
        grammar->n_choices = options->n_choices;
    }
    grammar->free_white = options->grammar_white;
    grammar->any_order = options->grammar_any_order;
    grammar->closed = options->grammar_closed;
    grammar->one_of_as_any_of = options->grammar_one_of;
    grammar->allow_unenforced = options->grammar_unenforced;
    grammar->free_reasoning = !options->grammar_reasoning;
    return source.kind != RUNNEL_GRAMMAR_NONE || options->tools_file != NULL ? grammar : NULL;
}
