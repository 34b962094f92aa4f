/* A command of the program: a row of main.c's table, from which the parser, the help and the manual page are made. */
#ifndef RUNNEL_APP_COMMAND_H
#define RUNNEL_APP_COMMAND_H

#include <stddef.h>
#include <stdio.h>

#include "options.h"

struct app_command {
    const char *name;
    unsigned bit;
    int least, most; /* operands */
    const char *usage, *summary, *text, *examples;
    int (*act)(const struct app_options *options);
};

/* manual.c: the page runnel(1) in the man macros of roff. about: what holds for all commands. */
void app_manual(FILE *to, const struct app_command *commands, size_t n, const char *about);

/* And that of one command, runnel-serve(1). */
void app_manual_command(FILE *to, const struct app_command *command);

/* completion.c: a script for bash that completes commands, options and their values. */
void app_completion(FILE *to, const struct app_command *commands, size_t n);

#endif
