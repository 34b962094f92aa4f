/* The help of options, and what was perhaps meant: see options.h. */
#include <string.h>

#include "option_table.h"

void app_options_help(FILE *to, unsigned command)
{
    const char *heading = NULL;
    char left[64], letter[8];

    for (size_t i = 0; i < app_n_options; i++) {
        const struct app_option *o = &app_option_table[i];

        if (o->name == NULL)
            heading = o->help;
        if (o->name == NULL || (o->commands & command) == 0)
            continue;
        if (heading != NULL)
            fprintf(to, "\n%s:\n", heading);
        heading = NULL;
        snprintf(letter, sizeof letter, o->letter != 0 ? "-%c, " : "    ", o->letter);
        snprintf(left, sizeof left, "%s%s%s%s", letter, o->name, o->value != NULL ? " " : "",
                 o->value != NULL ? o->value : "");
        fprintf(to, "  %-31s %s\n", left, o->help);
    }
}

/* Optimal string alignment distance, in rows; words longer than `LONGEST` are never near. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t rows[3][LONGEST + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *last = rows[(i - 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            best = best < last[j] + 1 ? best : last[j] + 1;
            best = best < now[j - 1] + 1 ? best : now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                size_t swapped = rows[(i - 2) % 3][j - 2] + 1;

                best = best < swapped ? best : swapped;
            }
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *app_nearest(const char *word, const char *const *words, size_t n)
{
    const char *bare = word + strspn(word, "-");
    size_t best = strlen(bare) / 3 + 2; /* a third of the word mistyped, and one more: short words too */
    const char *near = NULL;

    for (size_t i = 0; i < n; i++) {
        const char *other = words[i] + strspn(words[i], "-");
        size_t n_bare = strlen(bare);
        size_t d = n_bare > 1 && strncmp(bare, other, n_bare) == 0 ? 1 : distance(bare, other);

        if (d < best) {
            best = d;
            near = words[i];
        }
    }
    return near;
}
