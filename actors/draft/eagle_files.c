/* The files of a training: see eagle_files.h. */
#include "actors/draft/eagle_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/file_target.h"
#include "model/gguf/gguf.h"

/* Is the file at `target` the model's, or that of one of its parts? no_memory: it could not be found out. */
static bool is_of_model(struct rn_heap *heap, const char *model, const char *target, bool *no_memory)
{
    const uint32_t n_parts = rn_gguf_parts_of(model);
    bool is = rn_file_target_same(model, target);
    char *part;

    if (n_parts <= 1 || is)
        return is;
    part = rn_strndup(heap, model, strlen(model));
    *no_memory = part == NULL;
    for (uint32_t i = 1; i < n_parts && part != NULL && !is; i++) {
        rn_gguf_set_part(part, i, n_parts);
        is = rn_file_target_same(part, target);
    }
    rn_free(heap, part);
    return is;
}

/* The file that is to be written at `path`, of the option `name`; it goes to *target. */
static runnel_status check_written(struct rn_heap *heap, const char *model, const char *name, const char *path,
                                   char **target, runnel_error *error)
{
    bool no_memory = false;
    runnel_status status;

    if (path[0] == '\0')
        return rn_error_set(error, RUNNEL_IO, "%s: the path is empty", name);
    status = rn_file_target(heap, path, target, error);
    if (status == RUNNEL_OK && is_of_model(heap, model, *target, &no_memory))
        return rn_error_set(error, RUNNEL_INVALID, "%s: %s is a file of the model", name, path);
    if (no_memory)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a training");
    return status == RUNNEL_OK ? rn_file_target_check(heap, *target, error) : status;
}

runnel_status rn_eagle_files_check(struct rn_heap *heap, const char *model, const char *head, const char *state,
                                   runnel_error *error)
{
    char *head_target = NULL, *state_target = NULL;
    runnel_status status;

    if (faccessat(AT_FDCWD, model, R_OK, AT_EACCESS) != 0)
        return rn_error_set(error, RUNNEL_IO, "%s: cannot be opened: %s", model, strerror(errno));
    status = check_written(heap, model, "head", head, &head_target, error);
    if (status == RUNNEL_OK && state != NULL)
        status = check_written(heap, model, "eagle options: state", state, &state_target, error);
    if (status == RUNNEL_OK && state != NULL && rn_file_target_same(head_target, state_target))
        status = rn_error_set(error, RUNNEL_INVALID, "eagle options: state: %s is the file of the head", state);
    rn_free(heap, head_target);
    rn_free(heap, state_target);
    return status;
}
