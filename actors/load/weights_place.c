/* The file for weights in tiles: see weights_place.h. Runs on the thread that loads. */
#include "actors/load/weights_place.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/store/fingerprint.h"

#define SUFFIX ".tiles"

runnel_status rn_weights_place_init(struct rn_weights_place *place, struct rn_heap *heap, const char *folder,
                                    const struct rn_gguf *gguf, const struct rn_log *log, runnel_error *error)
{
    struct rn_fingerprint print = rn_fingerprint_model(gguf);
    size_t n = strlen(folder) + 1 + 2 * sizeof print.bytes + sizeof SUFFIX, at, i;
    char *path = rn_alloc(heap, n, 1);

    static_assert(sizeof place->print == sizeof print.bytes, "a fingerprint");
    if (path == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a path in %s", folder);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        rn_log(log, RUNNEL_LOG_WARNING, "%s: cannot be made: %s", folder, strerror(errno));
    at = (size_t)snprintf(path, n, "%s/", folder);
    for (i = 0; i < sizeof print.bytes; i++)
        at += (size_t)snprintf(path + at, n - at, "%02x", print.bytes[i]);
    snprintf(path + at, n - at, SUFFIX);
    *place = (struct rn_weights_place){
        .path = path, .model_bytes = rn_gguf_file_bytes(gguf), .modified_ns = rn_gguf_modified_ns(gguf), .log = log};
    memcpy(place->print, print.bytes, sizeof print.bytes);
    return RUNNEL_OK;
}

void rn_weights_place_fini(struct rn_weights_place *place, struct rn_heap *heap)
{
    rn_free(heap, (char *)place->path);
    place->path = NULL;
}
