/* runnel cache: what models have kept in a cache folder: shown, verified, taken away (warm: cache_warm.c). */
#include <inttypes.h>
#include <string.h>

#include "common.h"
#include "runnel_files.h"

#define SHORT_FINGERPRINT 12

static void print_string(const char *name, const char *text)
{
    printf("\"%s\":", name);
    app_json_string(stdout, text, strlen(text));
}

/* ---- ls ---------------------------------------------------------------------------------- */

/* What is being printed: `head` in front of the first line, or of the end where there is none. */
struct list {
    bool json;
    const char *head;
    uint64_t n;
};

static void begin(struct list *list)
{
    if (list->head != NULL)
        fputs(list->head, stdout);
    list->head = NULL;
}

static void begin_item(struct list *list)
{
    begin(list);
    if (list->json)
        fputs(list->n > 0 ? ",\n" : "", stdout);
    list->n++;
}

static void ls_json(const runnel_cache_entry *e)
{
    fputc('{', stdout);
    print_string("fingerprint", e->fingerprint);
    fputc(',', stdout);
    print_string("model", e->model);
    printf(",\"records\":%" PRIu64 ",\"prefixes\":%" PRIu64 ",\"tokens\":%" PRIu64 ",\"longest_tokens\":%" PRIu64
           ",\"salts\":%" PRIu64 ",\"segments\":%" PRIu64 ",\"file_bytes\":%" PRIu64 ",\"record_bytes\":%" PRIu64
           ",\"block_tokens\":%u,\"block_bytes\":%" PRIu64 ",\"damaged\":%" PRIu64 "}",
           e->records, e->prefixes, e->records * e->block_tokens, e->longest_tokens, e->salts, e->segments,
           e->file_bytes, e->record_bytes, (unsigned)e->block_tokens, e->block_bytes, e->damaged);
}

static void on_entry(void *user, const runnel_cache_entry *e)
{
    struct list *list = user;

    begin_item(list);
    if (list->json) {
        ls_json(e);
        return;
    }
    printf("%.*s %10" PRIu64 " %12" PRIu64 " %10" PRIu64 " %8" PRIu64 " %9" PRIu64 " %14" PRIu64 " %8" PRIu64 "  ",
           SHORT_FINGERPRINT, e->fingerprint, e->records, e->records * e->block_tokens, e->longest_tokens, e->salts,
           e->segments, e->file_bytes, e->damaged);
    app_escaped(stdout, e->model, strlen(e->model), 0);
    fputc('\n', stdout);
}

static void on_record(void *user, const runnel_cache_record *r)
{
    struct list *list = user;

    begin_item(list);
    if (!list->json) {
        printf("%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t%u\t", r->id, r->parent, (unsigned)r->depth, r->salt,
               (unsigned)r->bytes);
    } else {
        printf("{\"id\":%" PRIu64 ",\"parent\":%" PRIu64 ",\"depth\":%u,\"salt\":%" PRIu64 ",\"bytes\":%u,\"tokens\":[",
               r->id, r->parent, (unsigned)r->depth, r->salt, (unsigned)r->bytes);
    }
    for (uint32_t i = 0; i < r->n_tokens; i++)
        printf("%s%d", i > 0 ? "," : "", (int)r->tokens[i]);
    fputs(list->json ? "]}" : "\n", stdout);
}

static int ls_records(const char *path, const struct app_options *options)
{
    struct list list = {.json = options->json,
                        .head = options->json ? "[" : "id\tparent\tdepth\tsalt\tbytes\ttokens\n"};
    runnel_error error = {0};

    if (runnel_cache_inspect(path, options->fingerprint, on_record, &list, &error) != RUNNEL_OK)
        return app_fail(&error);
    begin(&list);
    fputs(options->json ? "]\n" : "", stdout);
    return app_output_code();
}

static int ls(const char *path, const struct app_options *options)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    struct list list = {.json = options->json};
    runnel_error error = {0};

    if (options->fingerprint != NULL)
        return ls_records(path, options);
    list.head = options->json ? "{\"entries\":["
                              : "fingerprint     records       tokens    longest    salts  segments          bytes  "
                                "damaged  model\n";
    if (runnel_cache_ls(path, on_entry, &list, &totals, &error) != RUNNEL_OK)
        return app_fail(&error);
    if (options->json) {
        begin(&list);
        printf("],\n\"foreign\":%" PRIu64 "}\n", totals.foreign);
    } else if (totals.fingerprints == 0) {
        puts("nothing is kept here");
    }
    if (totals.foreign > 0 && !options->json)
        fprintf(stderr, "%" PRIu64 " of the files here are no cache's\n", totals.foreign);
    return app_output_code();
}

/* ---- verify ------------------------------------------------------------------------------ */

static void on_damage(void *user, const runnel_cache_damage *d)
{
    struct list *list = user;

    begin_item(list);
    if (!list->json) {
        printf("%s/%s: byte %" PRIu64 ", %" PRIu64 " bytes: %s\n", d->fingerprint, d->file, d->offset, d->bytes,
               d->what);
        return;
    }
    fputc('{', stdout);
    print_string("fingerprint", d->fingerprint);
    fputc(',', stdout);
    print_string("file", d->file);
    printf(",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 ",", d->offset, d->bytes);
    print_string("what", d->what);
    fputc('}', stdout);
}

static void print_totals(const runnel_cache_totals *t, bool json)
{
    printf(json ? "\"fingerprints\":%" PRIu64 ",\"segments\":%" PRIu64 ",\"records\":%" PRIu64 ",\"bytes\":%" PRIu64
                : "%" PRIu64 " fingerprints, %" PRIu64 " segments, %" PRIu64 " records, %" PRIu64 " bytes",
           t->fingerprints, t->segments, t->records, t->bytes);
}

static int verify(const char *path, const struct app_options *options)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    struct list list = {.json = options->json, .head = options->json ? "{\"damage\":[" : NULL};
    runnel_error error = {0};
    int code;

    if (runnel_cache_verify(path, options->fingerprint, on_damage, &list, &totals, &error) != RUNNEL_OK)
        return app_fail(&error);
    begin(&list);
    fputs(options->json ? "],\n" : "", stdout);
    print_totals(&totals, options->json);
    if (options->json)
        printf(",\"damaged\":%" PRIu64 ",\"foreign\":%" PRIu64 "}\n", totals.damaged, totals.foreign);
    else
        printf(": %s\n", totals.damaged == 0 ? "all whole" : "damaged, see above; what is damaged is not used");
    code = app_output_code();
    return code == APP_OK && totals.damaged > 0 ? APP_FAILURE : code;
}

/* ---- purge ------------------------------------------------------------------------------- */

static int purge(const char *path, const struct app_options *options)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    runnel_cache_purge_options what;
    runnel_error error = {0};
    int ways = options->purge_all + (options->salt.given != 0) + (options->keep_bytes != 0);

    if (ways > 1 || (ways == 0 && options->fingerprint == NULL)) {
        app_error("purge takes one of --all, --salt and --keep, or --fingerprint alone");
        return APP_USAGE;
    }
    runnel_cache_purge_options_default(&what);
    what.fingerprint = options->fingerprint;
    what.by_salt = options->salt.given;
    what.salt = options->salt.value;
    what.keep_bytes = options->keep_bytes;
    if (runnel_cache_purge(path, &what, &totals, &error) != RUNNEL_OK)
        return app_fail(&error);
    fputs(options->json ? "{" : "gone: ", stdout);
    print_totals(&totals, options->json);
    puts(options->json ? "}" : "");
    return app_output_code();
}

/* ---- The command ------------------------------------------------------------------------- */

static const struct verb {
    const char *name;
    int (*act)(const char *path, const struct app_options *options);
} verbs[] = {{"ls", ls}, {"verify", verify}, {"purge", purge}};

#define N_VERBS (sizeof verbs / sizeof verbs[0])

int app_cache(const struct app_options *options)
{
    const char *names[N_VERBS + 1], *word = options->operands[0], *near;

    names[N_VERBS] = "warm";
    if (strcmp(word, "warm") == 0) {
        if (options->n_operands == 3)
            return app_cache_warm(options);
        app_error("%s is missing; see runnel cache --help", options->n_operands == 1 ? "MODEL" : "PROMPTS");
        return APP_USAGE;
    }
    for (size_t i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
        if (strcmp(word, names[i]) != 0)
            continue;
        if (options->n_operands == 2)
            return verbs[i].act(options->operands[1], options);
        if (options->n_operands > 2)
            app_error("'%.80s' is one word too many; see runnel cache --help", options->operands[2]);
        else
            app_error("DIR is missing; see runnel cache --help");
        return APP_USAGE;
    }
    near = app_nearest(word, names, N_VERBS + 1);
    if (near != NULL)
        app_error("'%.80s' is nothing that runnel cache does; did you mean %s?", word, near);
    else
        app_error("'%.80s' is nothing that runnel cache does; see runnel cache --help", word);
    return APP_USAGE;
}
