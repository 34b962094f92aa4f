/* The script that completes words in bash: made of the tables of commands and options. See command.h.
 *
 * What an option's value may be is told by its table: one of its choices, or a file where the help calls it FILE or
 * DIR. Operands are files, models and folders first. */
#include <string.h>

#include "command.h"
#include "option_table.h"

static void put_names(FILE *to, unsigned bit)
{
    for (size_t i = 0; i < app_n_options; i++)
        if (app_option_table[i].name != NULL && (app_option_table[i].commands & bit) != 0)
            fprintf(to, " %s", app_option_table[i].name);
}

/* Choices that are parted by bars, parted by spaces. */
static void put_choices(FILE *to, const char *choices)
{
    for (; *choices != '\0'; choices++)
        fputc(*choices == '|' ? ' ' : *choices, to);
}

static void put_pattern(FILE *to, const struct app_command *command, const struct app_option *o)
{
    if (o->letter != 0)
        fprintf(to, "    %s:-%c | ", command->name, o->letter);
    else
        fputs("    ", to);
    fprintf(to, "%s:%s) ", command->name, o->name);
}

static void put_values(FILE *to, const struct app_command *command)
{
    for (size_t i = 0; i < app_n_options; i++) {
        const struct app_option *o = &app_option_table[i];

        if (o->name == NULL || (o->commands & command->bit) == 0 || o->value == NULL)
            continue;
        put_pattern(to, command, o);
        if (o->choices != NULL) {
            fputs("words='", to);
            put_choices(to, o->choices);
            fputs("' ;;\n", to);
        } else {
            fprintf(to, "kind=%s ;;\n",
                    strcmp(o->value, "FILE") == 0 || o->kind == OPTION_LORA ? "file"
                    : strcmp(o->value, "DIR") == 0                          ? "folder"
                                                                            : "value");
        }
    }
}

void app_completion(FILE *to, const struct app_command *commands, size_t n)
{
    fputs("# Completes the words of runnel in bash. Made by runnel --completion.\n"
          "_runnel() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words= "
          "kind=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        words='",
          to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%s ", commands[i].name);
    fputs("help version --help --version --manual --completion'\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "        return\n"
          "    fi\n"
          "    case $command:$before in\n",
          to);
    for (size_t i = 0; i < n; i++)
        put_values(to, &commands[i]);
    fputs("    esac\n"
          "    if [ -z \"$words$kind\" ] && [[ $word == -* ]]; then\n"
          "        case $command in\n",
          to);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, "        %s) words='", commands[i].name);
        put_names(to, commands[i].bit);
        fputs("' ;;\n", to);
    }
    fputs("        esac\n"
          "    fi\n"
          "    if [ -n \"$words\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "    elif [ \"$kind\" = folder ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -d -- \"$word\")\n"
          "        compopt -o filenames 2>/dev/null\n"
          "    elif [ \"$kind\" = file ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "        compopt -o filenames 2>/dev/null\n"
          "    elif [ -z \"$kind\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- \"$word\"; compgen -d -- \"$word\")\n"
          "        [ \"${#COMPREPLY[@]}\" -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "        compopt -o filenames 2>/dev/null\n"
          "    fi\n"
          "}\n"
          "complete -F _runnel runnel\n",
          to);
}
