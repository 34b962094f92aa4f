/* Grammars that were compiled: see grammars.h. */
#include "grammars.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MOST_KNOWN 65536u /* a verdict is some 100 bytes; what comes behind is compiled each time */

struct verdict {
    struct verdict *next;
    XXH128_hash_t key;
    runnel_status status;
    runnel_about about;
    char sentence[];
};

struct batch_grammars {
    struct verdict *slots[4096];
    uint32_t n;
};

struct batch_grammars *batch_grammars_new(void)
{
    return calloc(1, sizeof(struct batch_grammars));
}

void batch_grammars_free(struct batch_grammars *grammars)
{
    struct verdict *next;

    for (size_t i = 0; grammars != NULL && i < sizeof grammars->slots / sizeof grammars->slots[0]; i++)
        for (struct verdict *v = grammars->slots[i]; v != NULL; v = next) {
            next = v->next;
            free(v);
        }
    free(grammars);
}

/* ---- What decides about the verdict ---- */

static void add(XXH3_state_t *state, const void *bytes, size_t n)
{
    uint64_t length = n;

    XXH3_128bits_update(state, &length, sizeof length);
    if (n > 0)
        XXH3_128bits_update(state, bytes, n);
}

static void add_string(XXH3_state_t *state, const char *string)
{
    add(state, string != NULL ? string : "", string != NULL ? strlen(string) + 1 : 0);
}

static void add_grammar(XXH3_state_t *state, const runnel_grammar *g)
{
    const uint8_t flags[] = {g->free_white,       g->any_order,        g->closed,
                             g->one_of_as_any_of, g->allow_unenforced, g->free_reasoning};

    add(state, &g->kind, sizeof g->kind);
    add(state, flags, sizeof flags);
    add(state, g->text, g->text_bytes);
    for (size_t i = 0; i < g->n_choices; i++)
        add_string(state, g->choices[i]);
}

/* But for the conversation itself: the end of a prompt decides where an answer begins, not whether it can be had. */
static void add_chat(XXH3_state_t *state, const runnel_chat *chat)
{
    add_string(state, chat->tools);
    add_string(state, chat->tool_choice);
    add(state, &chat->single_call, sizeof chat->single_call);
    add_string(state, chat->variables);
    add_string(state, chat->template_text);
    add_string(state, chat->template_name);
}

static bool make_key(const runnel_request *request, XXH128_hash_t *key)
{
    XXH3_state_t *state = XXH3_createState();

    if (state == NULL)
        return false;
    XXH3_128bits_reset(state);
    if (request->grammar != NULL)
        add_grammar(state, request->grammar);
    if (request->chat != NULL)
        add_chat(state, request->chat);
    *key = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    return true;
}

/* ---- Verdicts ---- */

/* One that there is no memory for is not kept. */
static void keep(struct batch_grammars *grammars, struct verdict **slot, XXH128_hash_t key, const runnel_error *error)
{
    size_t n = strlen(error->message) + 1;
    struct verdict *verdict = grammars->n < MOST_KNOWN ? malloc(sizeof *verdict + n) : NULL;

    if (verdict == NULL)
        return;
    *verdict = (struct verdict){*slot, key, error->status, error->about};
    memcpy(verdict->sentence, error->message, n);
    *slot = verdict;
    grammars->n++;
}

runnel_status batch_grammars_check(struct batch_grammars *grammars, runnel_model *model, const runnel_request *request,
                                   runnel_error *error)
{
    struct verdict **slot;
    XXH128_hash_t key;

    if (request->grammar == NULL && (request->chat == NULL || request->chat->tools == NULL))
        return RUNNEL_OK;
    if (!make_key(request, &key))
        return RUNNEL_NO_MEMORY;
    slot = &grammars->slots[key.low64 % (sizeof grammars->slots / sizeof grammars->slots[0])];
    for (const struct verdict *v = *slot; v != NULL; v = v->next)
        if (XXH128_isEqual(v->key, key)) {
            error->status = v->status;
            error->about = v->about;
            snprintf(error->message, sizeof error->message, "%s", v->sentence);
            return v->status;
        }
    error->status = runnel_grammar_check(model, request, error);
    if (error->status != RUNNEL_NO_MEMORY)
        keep(grammars, slot, key, error);
    return error->status;
}
