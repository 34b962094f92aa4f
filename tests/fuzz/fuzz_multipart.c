/* Any bytes as a form that is uploaded: what is read lies in the body, and parts that are put together again give the
 * same parts. The bytes up to the first zero are the Content-Type. */
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/http/multipart.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const types[] = {"multipart/form-data; boundary=b", "multipart/form-data; boundary=\"b c\"",
                                        "multipart/form-data;charset=x;  boundary=-"};
    static const char *const bodies[] = {
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\\\"b\"\r\nX: y\r\n\r\n1\r\n--b--\r\n",
        "--b c\r\ncontent-disposition: form-data;name=a\r\n\r\n\r\n--b c\r\nContent-Disposition: form-data; "
        "name=\"c\"\r\n\r\n--b c--",
        "---\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n-----"};
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char path[4096];

    (void)argc, (void)argv;
    for (size_t i = 0; folder != NULL && i < 3; i++) {
        FILE *to = NULL;

        snprintf(path, sizeof path, "%s/%zu", folder, i);
        to = fopen(path, "w");
        RN_CHECK(to != NULL);
        fwrite(types[i], 1, strlen(types[i]) + 1, to);
        fputs(bodies[i], to);
        fclose(to);
    }
    return 0;
}

/* The part once more, in a form of its own with the same boundary. */
static void check_again(const struct multipart *form, const struct multipart_part *part)
{
    const char *mark = form->mark + 2, *why = NULL;
    struct multipart again = *form;
    struct multipart_part same;
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);

    RN_CHECK(to != NULL);
    fprintf(to, "\r\nContent-Disposition: form-data; name=\"");
    for (const char *c = part->name; *c != '\0'; c++)
        fprintf(to, "\\%c", *c);
    fputs("\"\r\n\r\n", to);
    fwrite(part->bytes, 1, part->n, to);
    fprintf(to, "\r\n%s--", mark);
    fclose(to);
    again.at = text;
    again.end = text + n;
    again.n_parts = 0;
    if (strpbrk(part->name, "\r\n") == NULL) {
        RN_CHECK(multipart_next(&again, &same, &why) == MULTIPART_PART && strcmp(same.name, part->name) == 0);
        RN_CHECK(same.n == part->n && memcmp(same.bytes, part->bytes, part->n) == 0);
        RN_CHECK(multipart_next(&again, &same, &why) == MULTIPART_END);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = memchr(data, 0, size);
    size_t n = zero != NULL ? size - (size_t)(zero - data) - 1 : 0;
    struct multipart form;
    struct multipart_part part;
    enum multipart_step step = MULTIPART_BAD;
    const char *why = NULL;
    char *body = NULL;

    if (zero == NULL)
        return 0;
    body = malloc(n > 0 ? n : 1); /* of its own, so that a read behind it is seen */
    RN_CHECK(body != NULL);
    memcpy(body, zero + 1, n);
    if (multipart_open(&form, (const char *)data, body, n, &why)) {
        size_t parts = 0;

        while ((step = multipart_next(&form, &part, &why)) == MULTIPART_PART) {
            RN_CHECK(part.bytes >= body && part.n <= n && part.bytes + part.n <= body + n);
            RN_CHECK(++parts <= MULTIPART_PARTS && strlen(part.name) < sizeof part.name);
            check_again(&form, &part);
        }
    }
    RN_CHECK(step == MULTIPART_END || why != NULL);
    free(body);
    return 0;
}
