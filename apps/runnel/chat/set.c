/* /set, /show, /tokens of `runnel chat`, and which sampling it begins with. See chat.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "apps/runnel/fields.h"
#include "apps/runnel/option_table.h"

/* ---- Parameters: the members of a request that an option reaches with a number or a switch ---------------- */

#define OPTION(of, member, option, value, json, json_value) option,
static const char *const reached[] = {APP_FIELDS(OPTION)};
enum { N_REACHED = sizeof reached / sizeof reached[0] };

/* The option behind row i, where a parameter of a running chat is behind it. */
static const struct app_option *parameter(size_t i)
{
    const struct app_option *o = reached[i] != NULL ? app_option_find(reached[i], APP_CHAT) : NULL;

    if (o == NULL || (o->commands & APP_RUN) == 0) /* what a chat alone has is of its beginning */
        return NULL;
    for (size_t before = 0; before < i; before++) /* an option may reach several members: it is one parameter */
        if (reached[before] != NULL && strcmp(reached[before], reached[i]) == 0)
            return NULL;
    return o->kind == OPTION_INTEGER || o->kind == OPTION_UNSIGNED || o->kind == OPTION_REAL || o->kind == OPTION_FLAG
               ? o
               : NULL;
}

/* A name as it is typed: with or without dashes in front, and with either kind of them. */
static const struct app_option *find_parameter(const char *name, size_t n)
{
    for (size_t i = 0; i < N_REACHED; i++) {
        const struct app_option *o = parameter(i);
        const char *own = o != NULL ? o->name + 2 : "";
        size_t at = 0;

        while (at < n && own[at] != '\0' && (own[at] == name[at] || (own[at] == '-' && name[at] == '_')))
            at++;
        if (o != NULL && at == n && own[at] == '\0')
            return o;
    }
    return NULL;
}

/* Off where it was not given, which is no number: 0 keeps the system message alone. */
static bool is_keep(const struct app_option *o)
{
    return o->at == offsetof(struct app_options, context_keep);
}

static void value_text(const struct chat *chat, const struct app_option *o, char *text, size_t capacity)
{
    const char *field = (const char *)&chat->options + o->at;

    if (o->kind == OPTION_FLAG)
        snprintf(text, capacity, "%s", *(const bool *)field ? "on" : "off");
    else if (is_keep(o) && chat->options.context_keep < 0)
        snprintf(text, capacity, "off");
    else if (o->kind == OPTION_REAL)
        snprintf(text, capacity, "%.6g", *(const double *)field);
    else if (o->kind == OPTION_INTEGER)
        snprintf(text, capacity, "%lld", (long long)*(const int64_t *)field);
    else
        snprintf(text, capacity, "%llu", (unsigned long long)*(const uint64_t *)field);
}

static int list(const struct chat *chat)
{
    char value[32];

    for (size_t i = 0; i < N_REACHED; i++) {
        const struct app_option *o = parameter(i);

        if (o == NULL)
            continue;
        value_text(chat, o, value, sizeof value);
        fprintf(stderr, "  %-19s %s\n", o->name + 2, value);
    }
    return APP_OK;
}

static int complain_name(const char *name, size_t n)
{
    const char *names[N_REACHED], *near;
    char copy[64], all[64 * N_REACHED] = "";
    size_t count = 0;

    for (size_t i = 0; i < N_REACHED; i++) {
        const struct app_option *o = parameter(i);

        if (o == NULL)
            continue;
        names[count++] = o->name + 2;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", count > 1 ? ", " : "", o->name + 2);
    }
    snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy - 1), name);
    near = app_nearest(copy, names, count);
    if (near != NULL)
        app_error("'%s' is not a parameter; did you mean %s? /set lists them", copy, near);
    else
        app_error("'%s' is not a parameter; there are %s", copy, all);
    return APP_USAGE;
}

static int set_flag(struct chat *chat, const struct app_option *o, const char *text)
{
    bool on = strcmp(text, "on") == 0, *flag = (bool *)((char *)&chat->options + o->at), before = *flag;

    if (!on && strcmp(text, "off") != 0) {
        app_error("/set %s '%.80s' is not allowed: it takes on or off", o->name + 2, text);
        return APP_USAGE;
    }
    *flag = on;
    if (app_grammar_is_one(&chat->options))
        return APP_OK;
    *flag = before;
    return APP_USAGE;
}

bool chat_check_keep(const struct chat *chat, const char *name, int64_t value)
{
    uint32_t half = chat->app.info.context_tokens / 2;

    if (value <= (int64_t)half)
        return true;
    app_error("%s %lld is not allowed: half of the context, %u tokens, is the most", name, (long long)value, half);
    return false;
}

static int set_keep(struct chat *chat, const struct app_option *o, const char *text)
{
    struct app_options read = {.context_keep = -1};

    if (strcmp(text, "off") != 0 && !app_option_store(o, text, &read)) {
        app_error("/set context-keep '%.80s' is not allowed: it takes a number of tokens, or off", text);
        return APP_USAGE;
    }
    if (!chat_check_keep(chat, "/set context-keep", read.context_keep))
        return APP_USAGE;
    chat->options.context_keep = read.context_keep;
    return APP_OK;
}

int chat_set(struct chat *chat, const char *operand)
{
    const struct app_option *o;
    char name[64], value[32];
    size_t n;

    if (operand == NULL)
        return list(chat);
    operand += strncmp(operand, "--", 2) == 0 ? 2 : 0;
    n = strcspn(operand, " =");
    o = find_parameter(operand, n);
    if (o == NULL)
        return complain_name(operand, n);
    operand += n;
    operand += strspn(operand, " =");
    if (*operand == '\0') {
        value_text(chat, o, value, sizeof value);
        fprintf(stderr, "%s is %s: %s\n", o->name + 2, value, o->help);
        return APP_OK;
    }
    if (o->kind == OPTION_FLAG)
        return set_flag(chat, o, operand);
    if (is_keep(o))
        return set_keep(chat, o, operand);
    if (app_option_store(o, operand, &chat->options))
        return APP_OK;
    snprintf(name, sizeof name, "/set %s", o->name + 2);
    app_option_complain(o, name, operand);
    return APP_USAGE;
}

/* ---- Which sampling ---------------------------------------------------------------------- */

/* A float as the decimal number that it was written as. */
static double rounded(float value)
{
    char text[32];

    snprintf(text, sizeof text, "%.6g", (double)value);
    return strtod(text, NULL);
}

void chat_choose_sampling(struct chat *chat)
{
    struct app_options *options = &chat->options;
    runnel_sampling file = {.temperature = 0.7f, .top_p = 1, .repetition_penalty = 1};
    uint32_t bits = 0, further = 0;
    runnel_samplers samplers;
    struct {
        const char *option;
        uint32_t bit;
        double *real; /* where it goes, or: */
        int64_t *whole;
        double value;
    } all[] = {
        {"--temperature", RUNNEL_RECOMMENDED_TEMPERATURE, &options->temperature, NULL, 0},
        {"--top-k", RUNNEL_RECOMMENDED_TOP_K, NULL, &options->top_k, 0},
        {"--top-p", RUNNEL_RECOMMENDED_TOP_P, &options->top_p, NULL, 0},
        {"--min-p", RUNNEL_RECOMMENDED_MIN_P, &options->min_p, NULL, 0},
        {"--repetition-penalty", RUNNEL_RECOMMENDED_REPETITION_PENALTY, &options->repetition_penalty, NULL, 0},
        {"--penalty-tokens", RUNNEL_RECOMMENDED_PENALTY_TOKENS, NULL, &options->penalty_tokens, 0},
        {"--xtc-probability", RUNNEL_RECOMMENDED_XTC_PROBABILITY, &options->samplers.xtc_probability, NULL, 0},
        {"--xtc-threshold", RUNNEL_RECOMMENDED_XTC_THRESHOLD, &options->samplers.xtc_threshold, NULL, 0},
        {"--mirostat", RUNNEL_RECOMMENDED_MIROSTAT, NULL, &options->samplers.mirostat, 0},
        {"--mirostat-ent", RUNNEL_RECOMMENDED_MIROSTAT_TAU, &options->samplers.mirostat_tau, NULL, 0},
        {"--mirostat-lr", RUNNEL_RECOMMENDED_MIROSTAT_ETA, &options->samplers.mirostat_eta, NULL, 0},
    };

    runnel_samplers_default(&samplers);
    runnel_model_sampling(chat->app.model, &file, &bits);
    runnel_model_samplers(chat->app.model, &samplers, &further);
    bits |= further;
    if (bits == 0) {
        file.top_p = 0.95f;
        file.min_p = 0.05f;
    }
    all[0].value = rounded(file.temperature);
    all[1].value = file.top_k;
    all[2].value = rounded(file.top_p);
    all[3].value = rounded(file.min_p);
    all[4].value = rounded(file.repetition_penalty);
    all[5].value = file.penalty_tokens;
    all[6].value = rounded(samplers.xtc_probability);
    all[7].value = rounded(samplers.xtc_threshold);
    all[8].value = samplers.mirostat;
    all[9].value = rounded(samplers.mirostat_tau);
    all[10].value = rounded(samplers.mirostat_eta);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        bool other = all[i].bit == RUNNEL_RECOMMENDED_MIROSTAT && options->samplers.adaptive_target >= 0; /* not both */

        if (other || app_option_given(options, all[i].option))
            bits &= ~all[i].bit;
        else if (all[i].whole != NULL)
            *all[i].whole = (int64_t)all[i].value;
        else
            *all[i].real = all[i].value;
    }
    chat->recommended = bits;
}

/* ---- What there is ----------------------------------------------------------------------- */

static uint32_t sampling_of(const struct app_options *options, runnel_sampling *sampling)
{
    runnel_request request;
    uint32_t members = RUNNEL_RECOMMENDED_TEMPERATURE;

    app_request(options, &request);
    *sampling = request.sampling;
    if (sampling->temperature > 0) {
        members |= sampling->top_k > 0 ? RUNNEL_RECOMMENDED_TOP_K : 0;
        members |= sampling->top_p < 1 ? RUNNEL_RECOMMENDED_TOP_P : 0;
        members |= sampling->min_p > 0 ? RUNNEL_RECOMMENDED_MIN_P : 0;
    }
    members |= sampling->repetition_penalty != 1 ? RUNNEL_RECOMMENDED_REPETITION_PENALTY : 0;
    members |= sampling->penalty_tokens > 0 ? RUNNEL_RECOMMENDED_PENALTY_TOKENS : 0;
    if (request.sampling.samplers->xtc_probability > 0)
        members |= RUNNEL_RECOMMENDED_XTC_PROBABILITY | RUNNEL_RECOMMENDED_XTC_THRESHOLD;
    if (request.sampling.samplers->mirostat > 0)
        members |= RUNNEL_RECOMMENDED_MIROSTAT | RUNNEL_RECOMMENDED_MIROSTAT_TAU | RUNNEL_RECOMMENDED_MIROSTAT_ETA;
    return members;
}

void chat_print_sampling(const struct chat *chat, char *text, size_t capacity)
{
    FILE *to = fmemopen(text, capacity, "w");
    runnel_sampling sampling;
    uint32_t members = sampling_of(&chat->options, &sampling);

    text[0] = '\0';
    if (to == NULL)
        return;
    app_sampling_print(to, &sampling, members, false);
    fputs(chat->recommended != 0 ? " (as the file recommends)" : " (the file recommends none)", to);
    fclose(to);
    text[capacity - 1] = '\0';
}

/* "name    text", the text wrapped behind its beginning. */
static void row(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void row(const char *name, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%-9s ", name);
    chat_wrap(stderr, 10, 10, text);
}

static void show_template(const struct chat *chat)
{
    const struct app_options *options = &chat->options;
    char knows[256] = "";
    FILE *to;

    if (chat->plain) {
        row("template", "none in the file: plain User:/Assistant: turns");
        return;
    }
    to = fmemopen(knows, sizeof knows, "w");
    if (to != NULL) {
        app_template_knows(to, chat->template_info.knows);
        fclose(to);
    }
    row("template", "%s%s%s; it knows: %s",
        options->template_file != NULL        ? options->template_file
        : chat->template_info.name[0] != '\0' ? "the model's, named "
                                              : "the model's",
        options->template_file == NULL ? chat->template_info.name : "", "", knows);
}

int chat_show(struct chat *chat, const char *operand)
{
    const runnel_model_info *info = &chat->app.info;
    size_t turns = chat_talk_turns(&chat->talk), used = chat_tokens(chat, &chat->talk, false);
    char sampling[256];

    (void)operand;
    chat_print_sampling(chat, sampling, sizeof sampling);
    row("model", "%s: %.3g million parameters in %u layers, %.1f MiB", chat->options.operands[0],
        (double)info->parameters * 1e-6, info->layers, (double)info->weight_bytes / (1 << 20));
    if (app_adapter(&chat->options) != NULL)
        row("adapter", "%s", app_adapter(&chat->options));
    show_template(chat);
    row("sampling", "%s, seed %llu", sampling, (unsigned long long)(chat->options.seed + chat->again));
    row("session", "%zu turn%s, %zu message%s, %u set aside%s%s", turns, app_plural(turns), chat->talk.n,
        app_plural(chat->talk.n), chat->n_aside,
        chat->options.session_file != NULL ? "; kept in " : "; not kept: /save FILE, or --session FILE",
        chat->options.session_file != NULL ? chat->options.session_file : "");
    row("context", "%zu of %u tokens used", used, info->context_tokens);
    return APP_OK;
}

int chat_show_tokens(struct chat *chat, const char *operand)
{
    size_t used = chat_tokens(chat, &chat->talk, false), all = chat->app.info.context_tokens;

    (void)operand;
    fprintf(stderr, "%zu of %zu tokens used, %zu free\n", used, all, used < all ? all - used : 0);
    return APP_OK;
}
