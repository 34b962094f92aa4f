/* Models of every architecture, as tests make them, with several things of their headers changed: the plan is one that
 * its checker accepts, or there is a sentence that says what is wrong; the same for its prediction layers.
 *
 * The input is a program: bytes 0 and 1 pick the model, then four bytes for each change (see change). Seeds: each model
 * with the first change of each kind. What one change does alone, tests/oracle/test_changed.c looks at in full; a table
 * that no program has written, fuzz_plan.c. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/check.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/changed_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char *const names[] = {
#define MADE(name, context) RN_FUZZ_ROOT "/" MADE_TEXT(name),
    MADE_MODELS(MADE) FORMULA_MODELS(MADE) RANK_MODELS(MADE)
#undef MADE
};

enum { MODELS = sizeof names / sizeof names[0], MOST_CHANGES = 12 };

static struct changed_model *models[MODELS]; /* opened when an input asks for it */
static struct model_edit before;

/* Files name a key once. */
static bool has_key(const struct model_edit *edit, const char *name)
{
    for (uint32_t i = 0; i < edit->n_keys; i++)
        if (strcmp(edit->keys[i].name, name) == 0)
            return true;
    return false;
}

/* A key of this model by the name that it has in another file. */
static void rename_key(struct model_edit *edit, struct edit_key *key, const struct edit_key *other)
{
    const char *rest = strchr(other->name, '.');
    char name[sizeof key->name];
    size_t stem = strcspn(key->name, ".");

    if (rest == NULL || stem + strlen(rest) >= sizeof name)
        return;
    memcpy(name, key->name, stem);
    strcpy(name + stem, rest);
    if (!has_key(edit, name))
        strcpy(key->name, name);
}

/* Keeps the name. */
static void set_key(struct edit_key *key, const struct edit_key *value)
{
    char name[sizeof key->name];

    strcpy(name, key->name);
    *key = *value;
    strcpy(key->name, name);
}

/* What the file has no room for is not changed. */
static void change(struct changed_model *m, const uint8_t op[4])
{
    struct model_edit *edit = &m->edit;
    struct edit_key *key = &edit->keys[op[1] % edit->n_keys], *other = &edit->keys[op[2] % edit->n_keys];
    struct edit_tensor *tensor = &edit->tensors[(op[2] << 8 | op[1]) % edit->n_tensors];
    const struct changed_value *value = changed_value(op[2] % 32);
    const struct edit_key old_key = *key;
    const struct edit_tensor old_tensor = *tensor;
    const uint32_t old_without_key = m->without_key, old_without_tensor = m->without_tensor;
    char name[sizeof key->name];

    switch (op[0] % 7) {
    case 0:
        if (value != NULL)
            set_key(key, &value->key);
        break;
    case 1:
        strcpy(name, key->name);
        edit_u32(edit, name, (uint32_t)op[2] << 8 | op[3]);
        break;
    case 2:
        set_key(key, other);
        break;
    case 3:
        rename_key(edit, key, other);
        break;
    case 4:
        changed_tensor(tensor, op[3] % CHANGED_TENSORS);
        break;
    case 5:
        m->without_key = (uint32_t)(key - edit->keys);
        break;
    case 6:
        m->without_tensor = (uint32_t)(tensor - edit->tensors);
    }
    if (!changed_fits(m)) {
        *key = old_key;
        *tensor = old_tensor;
        m->without_key = old_without_key;
        m->without_tensor = old_without_tensor;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct changed_model *m;
    size_t which, at;

    if (size < 2)
        return 0;
    which = (size_t)(data[0] << 8 | data[1]) % MODELS;
    if (models[which] == NULL) {
        models[which] = malloc(sizeof *m);
        RN_CHECK(models[which] != NULL);
        changed_open(models[which], names[which]);
    }
    m = models[which];
    before = m->edit;
    for (at = 2; at + 4 <= size && at < 2 + 4 * MOST_CHANGES; at += 4)
        change(m, data + at);
    for (int nextn = 0; nextn < 2; nextn++)
        RN_CHECK(changed_plan(m, nextn) == RUNNEL_OK || strstr(m->error.message, "changed.gguf") != NULL);
    m->edit = before;
    m->without_key = m->without_tensor = UINT32_MAX;
    return 0;
}

/* With RUNNEL_FUZZ_SEEDS set, writes the seeds there before anything else: see run.sh. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char name[512];

    (void)argc;
    (void)argv;
    for (uint32_t model = 0; folder != NULL && model < MODELS; model++) {
        uint8_t seed[] = {(uint8_t)(model >> 8),
                          (uint8_t)model,
                          0,
                          (uint8_t)(model % 24),
                          (uint8_t)(model % 29),
                          0,
                          4,
                          (uint8_t)(model % 37),
                          0,
                          (uint8_t)(model % CHANGED_TENSORS)};
        FILE *file;

        snprintf(name, sizeof name, "%s/seed-%u", folder, model);
        file = fopen(name, "wb");
        RN_CHECK(file != NULL && fwrite(seed, 1, sizeof seed, file) == sizeof seed && fclose(file) == 0);
    }
    return 0;
}
