/* Values of a model file as text: see common.h. */
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "runnel_files.h"

char *app_element_text(const runnel_file *file, uint64_t index, uint64_t element, size_t *n)
{
    char *text = NULL;

    if (runnel_file_metadata_text(file, index, element, NULL, 0, n) != RUNNEL_OK)
        return NULL;
    text = calloc(*n + 1, 1);
    if (text == NULL || runnel_file_metadata_text(file, index, element, text, *n, n) == RUNNEL_OK)
        return text;
    free(text);
    return NULL;
}

static bool key_is(const runnel_metadata *entry, const char *prefix, size_t prefix_bytes, const char *rest)
{
    size_t n = strlen(rest);

    return entry->key_bytes == prefix_bytes + n && memcmp(entry->key, prefix, prefix_bytes) == 0 &&
           memcmp(entry->key + prefix_bytes, rest, n) == 0;
}

char *app_file_text(const runnel_file *file, const char *prefix, const char *rest, size_t *n)
{
    runnel_metadata entry = {.struct_size = sizeof entry};

    for (uint64_t i = 0; runnel_file_metadata(file, i, &entry) == RUNNEL_OK; i++)
        if (key_is(&entry, prefix, strlen(prefix), rest) && entry.count == 1)
            return app_element_text(file, i, 0, n);
    return NULL;
}
