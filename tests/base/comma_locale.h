/* A locale whose decimal point is a comma, whatever the machine has: the C library's file of LC_NUMERIC, made here.
 *
 *     assert_true(comma_begin());  ... printf("%.1f", 0.5) writes "0,5" ...  comma_end();
 */
#ifndef RN_TESTS_BASE_COMMA_LOCALE_H
#define RN_TESTS_BASE_COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/stat.h>

/* glibc's format: a number that names it and the category, six entries, where each of them begins; decimal point,
 * thousands separator, grouping, the first two as wide characters, code set. */
static bool comma_write(const char *path)
{
    static const struct {
        uint32_t magic, n, at[6];
        char point[2], separator[2], grouping[4];
        uint32_t wide_point, wide_separator;
        char codeset[6];
    } file = {0x20031115 ^ LC_NUMERIC, 6, {32, 34, 36, 40, 44, 48}, ",", ".", "\3\3", ',', '.', "UTF-8"};
    FILE *out = fopen(path, "wb");
    bool good = out != NULL && fwrite(&file, sizeof file, 1, out) == 1;

    return out != NULL && fclose(out) == 0 && good;
}

/* False: the file cannot be written, or the C library does not take it. */
static bool comma_begin(void)
{
    char folder[] = "/tmp/rn_comma_XXXXXX", name[64], path[80], text[8];
    bool good;

    if (mkdtemp(folder) == NULL)
        return false;
    snprintf(name, sizeof name, "%s/comma", folder);
    snprintf(path, sizeof path, "%s/LC_NUMERIC", name);
    good = mkdir(name, 0700) == 0 && comma_write(path) && setenv("LOCPATH", folder, 1) == 0 &&
           setlocale(LC_NUMERIC, "comma") != NULL;
    unsetenv("LOCPATH");
    unlink(path);
    rmdir(name);
    rmdir(folder);
    snprintf(text, sizeof text, "%.1f", 0.5);
    return good && text[1] == ',';
}

static void comma_end(void)
{
    setlocale(LC_NUMERIC, "C");
}

#endif
