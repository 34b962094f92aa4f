/* The part of looking into a file that needs its plan: see runnel.h. */
#include "model/file.h"
#include "model/kv.h"
#include "model/plan.h"

runnel_status runnel_file_kv_bytes_per_token(const runnel_file *file, runnel_kv_type kv_type, uint64_t *bytes,
                                             runnel_error *error)
{
    struct rn_heap heap; /* the file's own is counted, and the file is const */
    struct rn_plan *plan;
    runnel_status status;

    rn_error_clear(error);
    if (file == NULL || bytes == NULL || !rn_kv_known(kv_type))
        return rn_error_set(error, RUNNEL_INVALID, "a file, a KV type and a place for the result are needed");
    rn_heap_init(&heap, NULL);
    status = rn_plan_new(&heap, file->gguf, 0, &plan, error);
    if (status != RUNNEL_OK)
        return status;
    *bytes = rn_plan_kv_bytes(plan, kv_type);
    rn_plan_free(plan);
    return RUNNEL_OK;
}
