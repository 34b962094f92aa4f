/* Reads the words behind a command: see options.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common.h"
#include "option_table.h"

static const struct app_option *find(const char *word, size_t n, unsigned command)
{
    for (size_t i = 0; i < app_n_options; i++) {
        const struct app_option *o = &app_option_table[i];

        if (o->name == NULL || (o->commands & command) == 0)
            continue;
        if (n == 2 && word[0] == '-' && o->letter != 0 && word[1] == o->letter)
            return o;
        if (strlen(o->name) == n && strncmp(o->name, word, n) == 0)
            return o;
    }
    return NULL;
}

const struct app_option *app_option_find(const char *name, unsigned commands)
{
    return find(name, strlen(name), commands);
}

bool app_option_given(const struct app_options *options, const char *name)
{
    for (size_t i = 0; i < app_n_options; i++)
        if (options->given[i] && strcmp(app_option_table[i].name, name) == 0)
            return true;
    return false;
}

bool app_options_has(const char *name, unsigned commands)
{
    for (size_t i = 0; i < app_n_options; i++)
        if (app_option_table[i].name != NULL && (app_option_table[i].commands & commands) != 0 &&
            strcmp(app_option_table[i].name, name) == 0)
            return true;
    return false;
}

bool app_option_hint(const char *word)
{
    static const char *const known[][2] = {
        {"-hf", "nothing is downloaded: give the path of a GGUF file"},
        {"-hfr", "nothing is downloaded: give the path of a GGUF file"},
        {"--hf-repo", "nothing is downloaded: give the path of a GGUF file"},
        {"-ngl", "models run on the processor: leave it out; or see --device cuda and --device-layers"},
        {"--n-gpu-layers", "models run on the processor: leave it out; or see --device cuda and --device-layers"},
        {"--n-predict", "it is -n, --max-tokens"},
        {"--predict", "it is -n, --max-tokens"},
        {"--ctx-size", "it is -c, --ctx"},
        {"--repeat-penalty", "it is --repetition-penalty"},
        {"--repeat-last-n", "it is --penalty-tokens"},
        {"--samplers", "it is --sampler-order"},
        {"--sampler-seq", "it is --sampler-order, with names"},
        {"--sampling-seq", "it is --sampler-order, with names"},
        {"--top-nsigma", "it is --top-n-sigma"},
        {"--typical-p", "it is --typical"},
        {"--mirostat-tau", "it is --mirostat-ent"},
        {"--mirostat-eta", "it is --mirostat-lr"},
        {"-s", "it is --seed"},
        {"-b", "it is --batch"},
        {"-ctk", "it is --kv-type"},
        {"--cache-type-k", "it is --kv-type"},
        {"-cnv", "it is the command chat"},
        {"-i", "it is the command chat"},
        {"--interactive", "it is the command chat"},
        {"-sys", "it is --system, of the command chat"},
        {"--lora-scaled", "it is --lora PATH:SCALE"},
        {"--lora-modules", "it is --lora NAME=PATH"},
        {"-md", "it is --draft FILE"},
        {"--model-draft", "it is --draft FILE"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(word, known[i][0]) != 0)
            continue;
        app_error("'%s' is not an option here; %s", word, known[i][1]);
        return true;
    }
    return false;
}

static void complain_unknown(const char *command_name, unsigned command, const char *word, size_t n)
{
    const char *names[APP_MAX_OPTIONS];
    const char *near = NULL;
    char copy[64];
    size_t count = 0;

    snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy - 1), word);
    if (app_option_hint(copy))
        return;
    for (size_t i = 0; i < app_n_options; i++)
        if (app_option_table[i].name != NULL && (app_option_table[i].commands & command) != 0)
            names[count++] = app_option_table[i].name;
    near = app_nearest(copy, names, count);
    if (near != NULL)
        app_error("'%s' is not an option of %s; did you mean %s?", copy, command_name, near);
    else
        app_error("'%s' is not an option of %s; see runnel %s --help", copy, command_name, command_name);
}

/* Handles the option at argv[*i] and moves *i to its last word. */
static bool parse_option(struct app_options *options, const char *name, unsigned command, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    const char *equal = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t n = equal != NULL ? (size_t)(equal - word) : strlen(word);
    const struct app_option *o = find(word, n, command);
    const char *text = equal != NULL ? equal + 1 : NULL;

    if (o == NULL && word[1] != '-' && n > 2) { /* -n5 */
        o = find(word, 2, command);
        o = o != NULL && o->value != NULL && (isdigit((unsigned char)word[2]) || word[2] == '-') ? o : NULL;
        text = word + 2;
    }
    if (o == NULL) {
        complain_unknown(name, command, word, n);
        return false;
    }
    if (o->value == NULL && text != NULL) {
        app_error("%s takes no value", o->name);
        return false;
    }
    if (o->value != NULL && text == NULL) {
        if (*i + 1 >= argc) {
            app_error("%s needs a value: %s", o->name, o->value);
            return false;
        }
        text = argv[++*i];
    }
    options->given[o - app_option_table] = true;
    if (app_option_store(o, text, options))
        return true;
    app_option_complain(o, o->name, text);
    return false;
}

/* What would be without effect, or not what was meant. */
static bool check_together(struct app_options *options, unsigned command)
{
    const char *draft = options->draft, *comma = draft != NULL ? strchr(draft, ',') : NULL;

    if (options->cache_cold != 0 && options->cache_dir == NULL) {
        app_error("--cache-cold needs --cache-dir: it is the most that this folder may hold");
        return false;
    }
    if (draft != NULL && strncmp(draft, "ngram,", 6) == 0 &&
        (comma[1] == '\0' || strcmp(comma + 1, "none") == 0 || strcmp(comma + 1, "ngram") == 0)) {
        app_error("--draft '%.80s' is not allowed: behind 'ngram,' stands a FILE, eagle:HEAD, mtp or exit:N", draft);
        return false;
    }
    if (draft != NULL && (*draft == '\0' || strcmp(draft + (comma != NULL ? comma + 1 - draft : 0), "eagle:") == 0)) {
        app_error("--draft '%.80s' is not allowed: it takes none, ngram, FILE, ngram,FILE, eagle:HEAD, mtp or exit:N",
                  draft);
        return false;
    }
    return command == APP_SERVE || app_adapter_choose(options); /* who asks a server names one */
}

/* The model by its name elsewhere; here it stands first. */
static bool is_model(const char *word)
{
    return strcmp(word, "-m") == 0 || strcmp(word, "--model") == 0;
}

static bool put_model(struct app_options *options, const char *path, int most)
{
    if (path == NULL || options->n_operands == most) {
        app_error(path == NULL ? "-m needs a value: %s" : "'%.80s' is one word too many: the model was named before",
                  path == NULL ? "MODEL" : path);
        return false;
    }
    memmove(&options->operands[1], &options->operands[0], (size_t)options->n_operands * sizeof options->operands[0]);
    options->operands[0] = path;
    options->n_operands++;
    return true;
}

static bool is_one_of(const char *text, const char *const words[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

/* What a variable says of an option without a value. False: neither yes nor no. */
static bool read_switch(const char *text, bool *on)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no", "off"};

    *on = is_one_of(text, yes, sizeof yes / sizeof yes[0]);
    return *on || is_one_of(text, no, sizeof no / sizeof no[0]);
}

/* A server's options as variables: --max-streams is RUNNEL_MAX_STREAMS. The command line counts for more. */
static bool read_environment(struct app_options *options)
{
    for (size_t i = 0; i < app_n_options; i++) {
        const struct app_option *o = &app_option_table[i];
        char variable[64] = "RUNNEL_";
        const char *text = NULL;
        size_t n = strlen(variable);
        bool on = true;

        if (o->name == NULL || (o->commands & APP_SERVE) == 0 || options->given[i])
            continue;
        for (const char *at = o->name + 2; *at != '\0' && n < sizeof variable - 1; at++)
            variable[n++] = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
        variable[n] = '\0';
        text = getenv(variable);
        if (text == NULL || text[0] == '\0')
            continue;
        if (o->value == NULL && read_switch(text, &on) && !on)
            continue;
        options->given[i] = true;
        if (on && app_option_store(o, o->value != NULL ? text : NULL, options))
            continue;
        app_option_complain(o, variable, text);
        return false;
    }
    return true;
}

bool app_options_parse(struct app_options *options, const char *name, unsigned command, int least, int most, int argc,
                       char **argv)
{
    bool words_only = false;

    for (int i = 0; i < argc && !options->help; i++) {
        if (!words_only && strcmp(argv[i], "--") == 0) {
            words_only = true;
        } else if (!words_only && is_model(argv[i])) {
            if (!put_model(options, ++i < argc ? argv[i] : NULL, most))
                return false;
        } else if (!words_only && argv[i][0] == '-' && argv[i][1] != '\0') {
            if (!parse_option(options, name, command, argc, argv, &i))
                return false;
        } else if (options->n_operands == most) {
            app_error("'%.80s' is one word too many; see runnel %s --help%s", argv[i], name,
                      command == APP_RUN ? " (a text of several words stands in quotes)" : "");
            return false;
        } else {
            options->operands[options->n_operands++] = argv[i];
        }
    }
    if (options->help)
        return true;
    if (command == APP_SERVE && !read_environment(options))
        return false;
    if (command == APP_RUN && options->n_operands == 2) {
        if (options->prompt != NULL || options->file != NULL) {
            app_error("'%.80s' is one word too many: --%s has the text", options->operands[1],
                      options->prompt != NULL ? "prompt" : "file");
            return false;
        }
        options->prompt = options->operands[1];
    }
    if (command == APP_SERVE && (options->models_dir != NULL || options->models_file != NULL))
        least = 0;
    if (options->n_operands >= least - options->check) /* nothing is written to OUT */
        return check_together(options, command);
    app_error("%s is missing; see runnel %s --help",
              command == APP_CACHE       ? options->n_operands == 0 ? "what to do (ls, verify, purge or warm)" : "DIR"
              : options->n_operands == 0 ? "MODEL"
              : command != APP_BATCH     ? "FILE"
              : options->n_operands == 1 ? "IN.jsonl"
                                         : "OUT.jsonl",
              name);
    return false;
}
