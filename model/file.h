/* A file opened for inspection (runnel_file_* in include/runnel.h): a GGUF directory and the heap it
 * lies on, which is its own, since there is no engine. */
#ifndef RN_MODEL_FILE_H
#define RN_MODEL_FILE_H

#include "model/arch/table.h"
#include "model/gguf/gguf.h"
#include "runnel_files.h"

struct runnel_file {
    struct rn_heap heap; /* also holds this struct */
    struct rn_gguf *gguf;
    struct rn_arch_rows architectures;
    const char ***marks; /* [entries]: of an array of strings where each RN_FILE_STRIDE-th begins, else NULL */
};

#define RN_FILE_STRIDE 64

#endif
