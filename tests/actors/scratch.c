#include "tests/actors/scratch.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/model/gguf_writer.h"

void scratch_open(struct scratch *scratch)
{
    snprintf(scratch->directory, sizeof scratch->directory, "/tmp/runnel-load-XXXXXX");
    assert_non_null(mkdtemp(scratch->directory));
}

const char *scratch_save(struct scratch *scratch, const char *name, const void *bytes, size_t n)
{
    struct writer writer = {0};

    w_raw(&writer, bytes, n);
    w_save(&writer, scratch->directory, name);
    w_free(&writer);
    snprintf(scratch->path, sizeof scratch->path, "%s/%s", scratch->directory, name);
    return scratch->path;
}

void scratch_close(struct scratch *scratch)
{
    DIR *directory = opendir(scratch->directory);

    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[400];

        snprintf(path, sizeof path, "%s/%s", scratch->directory, entry->d_name);
        unlink(path);
    }
    closedir(directory);
    assert_int_equal(rmdir(scratch->directory), 0);
}
