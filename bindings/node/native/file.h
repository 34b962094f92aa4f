/* A model file that is looked into, as JavaScript holds it. */
#ifndef RN_NODE_FILE_H
#define RN_NODE_FILE_H

#include <runnel_files.h>

#include "addon.h"

struct node_file {
    enum box_kind kind;
    runnel_file *file;
    uint32_t jobs; /* on Node's pool */
    bool closed;   /* the last job frees the file */
};

/* The file of a handle; NULL: an error was thrown. */
struct node_file *file_open(napi_env env, napi_value value);

/* A job on the pool has ended. */
void file_job_done(struct node_file *file);

#endif
