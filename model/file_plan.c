/* The part of looking into a file that needs its plan or the architectures: see runnel_files.h. */
#include <assert.h>

#include "model/file.h"
#include "model/arch/table.h"
#include "model/kv.h"
#include "model/plan.h"
#include "model/plan_text.h"

static runnel_status plan_of(const runnel_file *file, struct rn_heap *heap, struct rn_plan **plan, runnel_error *error)
{
    rn_heap_init(heap, NULL); /* the file's own is counted, and the file is const */
    return rn_plan_new(heap, file->gguf, 0, plan, error);
}

runnel_status runnel_file_set_architectures(runnel_file *file, const runnel_architecture_row *const *rows, size_t n,
                                            runnel_error *error)
{
    struct rn_arch_rows made;
    runnel_status status;

    rn_error_clear(error);
    if (file == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "a file is needed");
    status = rn_arch_rows_init(&made, &file->heap, rows, n, error);
    if (status != RUNNEL_OK)
        return status;
    rn_arch_rows_fini(&file->architectures, &file->heap);
    file->architectures = made;
    rn_gguf_set_rows(file->gguf, &file->architectures);
    return RUNNEL_OK;
}

runnel_status runnel_file_kv_bytes_per_token(const runnel_file *file, runnel_kv_type kv_type, uint64_t *bytes,
                                             runnel_error *error)
{
    struct rn_heap heap;
    struct rn_plan *plan;
    runnel_status status;

    rn_error_clear(error);
    if (file == NULL || bytes == NULL || !rn_kv_known(kv_type))
        return rn_error_set(error, RUNNEL_INVALID, "a file, a KV type and a place for the result are needed");
    status = plan_of(file, &heap, &plan, error);
    if (status != RUNNEL_OK)
        return status;
    *bytes = rn_plan_kv_bytes(plan, kv_type);
    rn_plan_free(plan);
    return RUNNEL_OK;
}

runnel_status runnel_file_plan(const runnel_file *file, char *text, size_t capacity, size_t *text_bytes,
                               runnel_error *error)
{
    struct rn_heap heap;
    struct rn_plan *plan;
    runnel_status status;

    rn_error_clear(error);
    if (file == NULL || text_bytes == NULL || (text == NULL && capacity > 0))
        return rn_error_set(error, RUNNEL_INVALID, "a file, a place for the text and one for its size are needed");
    status = plan_of(file, &heap, &plan, error);
    if (status != RUNNEL_OK)
        return status;
    *text_bytes = rn_plan_text(plan, text, capacity);
    rn_plan_free(plan);
    return RUNNEL_OK;
}

const char *runnel_architecture(uint32_t index, char features[RUNNEL_FEATURES_BYTES])
{
    const struct rn_arch *arch = rn_arch_at(index);

    static_assert((int)RN_ARCH_FEATURES_BYTES == (int)RUNNEL_FEATURES_BYTES, "the caller's text has room");
    if (arch != NULL && features != NULL)
        rn_arch_features(arch, features);
    return arch != NULL ? arch->name : NULL;
}
