/* make_model TEXT FILE.gguf: a model of tests/oracle/made as a file, for programs that want one. */
#include <stdio.h>

#include "tests/oracle/made_model.h"

int main(int argc, char **argv)
{
    struct writer w = {0};
    FILE *file;
    bool written;

    if (argc != 3) {
        fprintf(stderr, "usage: make_model TEXT FILE.gguf\n");
        return 2;
    }
    made_model_write(argv[1], &w);
    file = fopen(argv[2], "wb");
    written = file != NULL && fwrite(w.bytes, 1, w.n, file) == w.n;
    written = file != NULL && fclose(file) == 0 && written;
    w_free(&w);
    if (!written)
        fprintf(stderr, "cannot write %s\n", argv[2]);
    return written ? 0 : 1;
}
