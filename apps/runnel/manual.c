/* The manual page: made of the same tables as the help, so that neither has what the other lacks. See command.h. */
#include <string.h>

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

static void put_command(FILE *to, const struct app_command *command)
{
    fprintf(to, ".SH RUNNEL %s\n", command->name);
    put_text(to, command->summary);
    fprintf(to, "\n.PP\n.B runnel %s\n", command->name);
    put_text(to, command->usage);
    fputs("\n[\\fIOPTION\\fR ...]\n", to);
    put_lines(to, command->text);
    for (size_t i = 0; i < app_n_options; i++)
        if (app_option_table[i].name != NULL && (app_option_table[i].commands & command->bit) != 0)
            put_option(to, &app_option_table[i]);
    put_lines(to, command->examples);
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
