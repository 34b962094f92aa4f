/* --architecture NAME=LIKE[,FEATURE...]: a row for models of an architecture that the library does not know. */
#include <stdio.h>
#include <string.h>

#include "common.h"

/* Appends a word to a text of words; false: there is no room. */
static bool append(char text[APP_ARCHITECTURE_BYTES], const char *word, size_t n)
{
    size_t used = strlen(text);

    if (used + n + 2 > APP_ARCHITECTURE_BYTES)
        return false;
    snprintf(text + used, APP_ARCHITECTURE_BYTES - used, "%.*s ", (int)n, word);
    return true;
}

/* One part behind NAME=LIKE. */
static bool read_part(struct app_architecture *made, const char *part, size_t n)
{
    static const char activation[] = "activation=";

    if (n > strlen(activation) && strncmp(part, activation, strlen(activation)) == 0) {
        snprintf(made->activation, sizeof made->activation, "%.*s", (int)(n - strlen(activation)),
                 part + strlen(activation));
        made->row.activation = made->activation;
        return n - strlen(activation) < sizeof made->activation;
    }
    return n > 1 && part[0] == '-' ? append(made->without, part + 1, n - 1) : n > 0 && append(made->with, part, n);
}

static bool read_text(struct app_architecture *made, const char *text)
{
    const char *like = strchr(text, '=');
    size_t n;

    if (like == NULL || like == text || (size_t)(like - text) >= sizeof made->name)
        return false;
    snprintf(made->name, sizeof made->name, "%.*s", (int)(like - text), text);
    n = strcspn(++like, ",");
    if (n == 0 || n >= sizeof made->like)
        return false;
    snprintf(made->like, sizeof made->like, "%.*s", (int)n, like);
    for (text = like + n; *text == ','; text += n) {
        n = strcspn(++text, ",");
        if (!read_part(made, text, n))
            return false;
    }
    return true;
}

bool app_architecture_read(const char *text, struct app_architecture *made)
{
    *made = (struct app_architecture){.rows = {&made->row}};
    if (text == NULL)
        return true;
    runnel_architecture_row_default(&made->row);
    if (!read_text(made, text)) {
        app_error("--architecture %s: NAME=LIKE is wanted, and behind it features, each with a comma in front", text);
        return false;
    }
    made->row.name = made->name;
    made->row.like = made->like;
    made->row.with = made->with;
    made->row.without = made->without;
    made->n = 1;
    return true;
}
