/* The state of a training in a file: a head, then weights, m and v as they lie in memory, then a checksum. The file is
 * for the machine that wrote it: numbers in its own byte order, checked by `order`. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/new_file.h"
#include "base/rng.h"
#include "train/trainer.h"

#define MAGIC "runnel-eagle-1\n"

/* Without holes: it is written and compared as bytes. */
struct head {
    char magic[16];
    uint32_t order; /* 0x01020304 */
    uint32_t step;
    uint64_t n;
    struct rn_eagle_shape shape;
    uint32_t steps, warm_steps, unroll;
    float decay, rate, weight_decay, clip;
    uint64_t seed;
    struct rn_trainer_origin origin;
    double loss[RN_EAGLE_MAX_UNROLL], accepted[RN_EAGLE_MAX_UNROLL];
};
static_assert(sizeof(struct head) == 16 + 16 + 36 + 28 + 8 + 64 + 128, "a head without holes");
static_assert(sizeof(struct head) % 4 == 0 && sizeof MAGIC == 16, "it is under its checksum word by word");

static struct head head_of(const struct rn_trainer *t)
{
    const struct rn_trainer_options *o = &t->options;
    struct head head;

    memset(&head, 0, sizeof head);
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    head.order = 0x01020304;
    head.step = t->step;
    head.n = t->n;
    head.shape = t->shape;
    head.steps = o->steps;
    head.warm_steps = o->warm_steps;
    head.unroll = o->unroll;
    head.decay = o->decay;
    head.rate = o->rate;
    head.weight_decay = o->weight_decay;
    head.clip = o->clip;
    head.seed = o->seed;
    head.origin = t->origin;
    memcpy(head.loss, t->loss, sizeof head.loss);
    memcpy(head.accepted, t->accepted, sizeof head.accepted);
    return head;
}

/* Of 4-byte words, each with its place. */
static uint64_t checksum(uint64_t sum, const void *bytes, size_t n)
{
    uint32_t word;

    for (size_t i = 0; i + 4 <= n; i += 4) {
        memcpy(&word, (const char *)bytes + i, 4);
        sum ^= word;
        sum = rn_splitmix64(&sum);
    }
    return sum;
}

static uint64_t sum_of(const struct head *head, const float *floats, size_t n)
{
    return checksum(checksum(0, head, sizeof *head), floats, n * sizeof *floats);
}

static runnel_status write_all(const struct rn_new_file *file, const struct rn_trainer *t, runnel_error *error)
{
    struct head head = head_of(t);
    uint64_t sum;
    runnel_status status;

    RN_ASSERT(rn_trainer_check(t));
    sum = sum_of(&head, t->weights, 3 * t->n);
    status = rn_new_file_write(file, &head, sizeof head, error);
    if (status == RUNNEL_OK)
        status = rn_new_file_write(file, t->weights, 3 * t->n * sizeof *t->weights, error);
    return status == RUNNEL_OK ? rn_new_file_write(file, &sum, sizeof sum, error) : status;
}

runnel_status rn_trainer_save(const struct rn_trainer *t, const char *path, runnel_error *error)
{
    struct rn_new_file file;
    runnel_status status = rn_new_file_open(&file, t->heap, path, RN_NEW_FILE_ONE, error);

    if (status != RUNNEL_OK)
        return status;
    status = write_all(&file, t, error);
    if (status == RUNNEL_OK)
        status = rn_new_file_finish(&file, error);
    rn_new_file_fini(&file);
    return status;
}

/* What the file's head says against what this training is. */
static runnel_status compare(const struct rn_trainer *t, const struct head *head, const char *path, runnel_error *error)
{
    struct head mine = head_of(t);
    const char *other = NULL;

    if (memcmp(head->magic, mine.magic, sizeof mine.magic) != 0 || head->order != mine.order)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: not the state of a training on a machine like this", path);
    if (memcmp(&head->shape, &mine.shape, sizeof mine.shape) != 0 || head->n != mine.n)
        other = "head of another shape";
    else if (memcmp(head->origin.target, mine.origin.target, sizeof mine.origin.target) != 0)
        other = "target";
    else if (memcmp(head->origin.tapped, mine.origin.tapped, sizeof mine.origin.tapped) != 0)
        other = "choice of layers";
    else if (memcmp(head->origin.corpus, mine.origin.corpus, sizeof mine.origin.corpus) != 0)
        other = "corpus";
    else if (head->steps != mine.steps || head->warm_steps != mine.warm_steps || head->unroll != mine.unroll ||
             head->decay != mine.decay || head->rate != mine.rate || head->weight_decay != mine.weight_decay ||
             head->clip != mine.clip || head->seed != mine.seed)
        other = "number of steps, rate or seed";
    if (other != NULL)
        return rn_error_set(error, RUNNEL_STATE, "%s: the training that was stopped had another %s", path, other);
    return head->step <= head->steps ? RUNNEL_OK : rn_error_set(error, RUNNEL_FORMAT, "%s: damaged", path);
}

static runnel_status read_all(struct rn_trainer *t, FILE *file, const char *path, runnel_error *error)
{
    struct head head;
    float *floats;
    uint64_t sum;
    runnel_status status;

    if (fread(&head, sizeof head, 1, file) != 1)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: not the state of a training", path);
    status = compare(t, &head, path, error);
    if (status != RUNNEL_OK)
        return status;
    floats = rn_alloc(t->heap, 3 * t->n, sizeof *floats);
    if (floats == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory to read it", path);
    if (fread(floats, sizeof *floats, 3 * t->n, file) != 3 * t->n || fread(&sum, sizeof sum, 1, file) != 1 ||
        fgetc(file) != EOF || sum != sum_of(&head, floats, 3 * t->n)) {
        rn_free(t->heap, floats);
        return rn_error_set(error, RUNNEL_FORMAT, "%s: damaged, or not whole", path);
    }
    memcpy(t->weights, floats, 3 * t->n * sizeof *floats);
    rn_free(t->heap, floats);
    t->step = head.step;
    memcpy(t->loss, head.loss, sizeof t->loss);
    memcpy(t->accepted, head.accepted, sizeof t->accepted);
    RN_ASSERT(rn_trainer_check(t));
    return RUNNEL_OK;
}

runnel_status rn_trainer_load(struct rn_trainer *t, const char *path, runnel_error *error)
{
    FILE *file = fopen(path, "rbe");
    runnel_status status;

    if (file == NULL)
        return rn_error_set(error, RUNNEL_IO, "%s: cannot be opened: %s", path, strerror(errno));
    status = read_all(t, file, path, error);
    fclose(file);
    return status;
}
