/* The manual pages: made of the same tables as the help, so that neither has what the other lacks. See command.h. */
#include <ctype.h>
#include <string.h>

#include "apps/serve/routes.h"
#include "command.h"
#include "option_table.h"

/* text[0..n) as it is: no escape, no request, no hyphen but a minus. */
static void put(FILE *to, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", to);
        if (text[i] == '\\')
            fputs("\\e", to);
        else if (text[i] == '-')
            fputs("\\-", to);
        else
            fputc(text[i], to);
    }
}

static void put_text(FILE *to, const char *text)
{
    put(to, text, strlen(text));
}

/* Lines that stay as they are. */
static void put_lines(FILE *to, const char *text)
{
    fputs(".PP\n.nf\n", to);
    put_text(to, text);
    fputs(".fi\n", to);
}

static void put_option(FILE *to, const struct app_option *o)
{
    fputs(".TP\n", to);
    if (o->letter != 0)
        fprintf(to, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB", to);
    put_text(to, o->name);
    fputs("\\fR", to);
    if (o->value != NULL) {
        fputs(" \\fI", to);
        put_text(to, o->value);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    put_text(to, o->help);
    fputc('\n', to);
}

static void put_usage(FILE *to, const struct app_command *command)
{
    fprintf(to, ".B runnel %s\n", command->name);
    put_text(to, command->usage);
    fputs("\n[\\fIOPTION\\fR ...]\n", to);
}

static void put_options(FILE *to, const struct app_command *command, bool headings)
{
    const char *heading = NULL;

    for (size_t i = 0; i < app_n_options; i++) {
        const struct app_option *o = &app_option_table[i];

        if (o->name == NULL)
            heading = o->help;
        if (o->name == NULL || (o->commands & command->bit) == 0)
            continue;
        if (headings && heading != NULL) {
            fputs(".SS \"", to);
            put_text(to, heading);
            fputs("\"\n", to);
        }
        heading = NULL;
        put_option(to, o);
    }
}

static void put_command(FILE *to, const struct app_command *command)
{
    fprintf(to, ".SH RUNNEL %s\n", command->name);
    put_text(to, command->summary);
    fputs("\n.PP\n", to);
    put_usage(to, command);
    put_lines(to, command->text);
    put_options(to, command, false);
    put_lines(to, command->examples);
}

/* What the server answers, from its table. */
static void put_routes(FILE *to)
{
    size_t n = 0;
    const struct serve_route *routes = serve_routes(&n);

    fputs(".SH ROUTES\n", to);
    for (size_t i = 0; i < n; i++) {
        if (routes[i].summary == NULL)
            continue;
        fputs(".TP\n\\fB", to);
        put_text(to, routes[i].method);
        fputc(' ', to);
        put_text(to, routes[i].path);
        fputs("\\fR\n", to);
        put_text(to, routes[i].summary);
        fputc('\n', to);
    }
}

void app_manual_command(FILE *to, const struct app_command *command)
{
    fputs(".TH RUNNEL\\-", to);
    for (const char *c = command->name; *c != '\0'; c++)
        fputc(toupper((unsigned char)*c), to);
    fprintf(to, " 1 \"\" \"runnel %s\" \"User Commands\"\n.SH NAME\nrunnel\\-%s \\- ", runnel_version(), command->name);
    put_text(to, command->summary);
    fputs("\n.SH SYNOPSIS\n", to);
    put_usage(to, command);
    fputs(".SH DESCRIPTION\n", to);
    put_lines(to, command->text);
    fputs(".SH OPTIONS\n", to);
    put_options(to, command, true);
    if (command->bit == APP_SERVE)
        put_routes(to);
    fputs(".SH EXAMPLES\n", to);
    put_lines(to, command->examples);
    fputs(".SH SEE ALSO\n.BR runnel (1)\n", to);
}

void app_manual(FILE *to, const struct app_command *commands, size_t n, const char *about)
{
    fprintf(to, ".TH RUNNEL 1 \"\" \"runnel %s\" \"User Commands\"\n", runnel_version());
    fputs(".SH NAME\nrunnel \\- token streams from language models (GGUF files)\n"
          ".SH SYNOPSIS\n.B runnel\n\\fICOMMAND\\fR [\\fIMODEL\\fR] [\\fIOPTION\\fR ...]\n.PP\n"
          ".B runnel\n\\fICOMMAND\\fR \\fB\\-\\-help\\fR\n.PP\n.B runnel \\-\\-version\n.SH DESCRIPTION\n",
          to);
    put_text(to, about);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, ".TP\n.B %s\n", commands[i].name);
        put_text(to, commands[i].summary);
        fputc('\n', to);
    }
    for (size_t i = 0; i < n; i++)
        put_command(to, &commands[i]);
}
