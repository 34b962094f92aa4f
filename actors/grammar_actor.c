/* The grammar actor: see grammar_actor.h. */
#include "actors/grammar_actor.h"

#include <stddef.h>
#include <string.h>

#include "actors/context.h"
#include "actors/grammar/compile.h"
#include "actors/grammar/guide.h"
#include "actors/grammar/text.h"
#include "actors/request.h"
#include "base/check.h"
#include "model/device.h"

static_assert(offsetof(struct rn_grammar_actor, actor) == 0, "handlers get the actor");

/* ---- The cache ---- */

static size_t bytes_of(const void *value)
{
    const struct rn_compiled *compiled = value;

    return sizeof *compiled + compiled->automaton->bytes;
}

static void free_value(void *value)
{
    rn_compiled_unref(value);
}

static const struct rn_grammar_cache_ops cache_ops = {bytes_of, free_value};

/* All that was asked for, as bytes: what decides about the automaton and nothing else. */
struct key {
    char *bytes;
    size_t n;
};

static void put(struct key *key, const void *bytes, size_t n)
{
    uint64_t length = n;

    memcpy(key->bytes + key->n, &length, sizeof length);
    if (n > 0)
        memcpy(key->bytes + key->n + sizeof length, bytes, n);
    key->n += sizeof length + n;
}

static void put_string(struct key *key, const char *string)
{
    put(key, string != NULL ? string : "", string != NULL ? strlen(string) + 1 : 0);
}

static bool make_key(const struct rn_grammar_text *text, struct key *key)
{
    const uint8_t flags[] = {(uint8_t)text->kind,    text->free_white,       text->any_order,      text->closed,
                             text->one_of_as_any_of, text->allow_unenforced, text->free_reasoning, text->single_call};

    *key = (struct key){rn_alloc(text->heap, rn_grammar_text_bytes(text) + text->opened.marker_bytes + 128, 1), 0};
    if (key->bytes == NULL)
        return false;
    put(key, flags, sizeof flags);
    put(key, &text->format, sizeof text->format); /* one of a table */
    put(key, &text->opened.kind, sizeof text->opened.kind);
    put(key, text->opened.marker, text->opened.marker_bytes);
    put(key, text->text, text->text_bytes);
    put_string(key, text->tools);
    put_string(key, text->tool_choice);
    return true;
}

/* ---- Compiling ---- */

/* *out has one reference. */
static runnel_status compile(struct rn_grammar_actor *actor, const struct rn_grammar_text *text,
                             const struct rn_interrupt *stop, struct rn_compiled **out, runnel_error *error)
{
    struct rn_heap *heap = actor->context->heap;
    struct rn_automaton *automaton;
    runnel_status status = rn_grammar_compile(heap, actor->context->vocab, text, stop, &automaton, error);

    *out = NULL;
    if (status != RUNNEL_OK)
        return status;
    *out = rn_compiled_new(heap, ++actor->n_compiled, automaton, actor->trie);
    return *out != NULL ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
}

/* ---- Requests ---- */

static bool take_memory(struct rn_grammar_actor *actor)
{
    if (actor->trie == NULL)
        actor->trie = rn_token_trie_new(actor->context->heap, actor->context->vocab);
    if (actor->cache == NULL)
        actor->cache = rn_grammar_cache_new(actor->context->heap, &cache_ops, RN_GRAMMAR_CACHE_BYTES);
    return actor->trie != NULL && actor->cache != NULL;
}

/* The compiled grammar, with a reference. One for which the cache has no memory serves the request all the same. */
static runnel_status find(struct rn_grammar_actor *actor, const struct rn_grammar_text *text,
                          const struct rn_interrupt *stop, struct rn_compiled **out, runnel_error *error)
{
    struct rn_grammar_cached *entry;
    runnel_status status = RUNNEL_OK;
    struct key key;

    if (!make_key(text, &key))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
    entry = rn_grammar_cache_find(actor->cache, key.bytes, key.n);
    if (entry != NULL) {
        *out = rn_compiled_ref(entry->value);
    } else if ((status = compile(actor, text, stop, out, error)) == RUNNEL_OK) {
        entry = rn_grammar_cache_add(actor->cache, key.bytes, key.n, rn_compiled_ref(*out));
    }
    if (entry != NULL)
        rn_grammar_cache_release(actor->cache, entry);
    rn_free(text->heap, key.bytes);
    return status;
}

static runnel_status guide(struct rn_grammar_actor *actor, struct rn_request *request, runnel_error *error)
{
    const struct rn_context *context = actor->context;
    bool draws = rn_device_can(context->backend->caps, RN_CAN_DRAW);
    const struct rn_interrupt stop = rn_request_interrupt(request);
    struct rn_compiled *compiled = NULL;
    runnel_status status;

    if (!take_memory(actor))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
    status = find(actor, request->grammar, &stop, &compiled, error);
    if (status != RUNNEL_OK)
        return status;
    request->guide = rn_guide_new(request->heap, compiled, context->n_vocab, draws);
    rn_compiled_unref(compiled);
    return request->guide != NULL ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
}

static void on_compile(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_grammar_actor *actor = (struct rn_grammar_actor *)self;
    struct rn_request *request = msg->request.request;
    runnel_error error = {0};

    RN_ASSERT(rn_request_check(request) && request->guide == NULL);
    if (request->grammar != NULL && !rn_request_end_unwanted(request) && guide(actor, request, &error) != RUNNEL_OK &&
        !rn_request_end_unwanted(request))
        rn_request_fail_about(request, error.about != RUNNEL_ABOUT_NONE ? error.about : RUNNEL_ABOUT_GRAMMAR,
                              error.status, "grammar: %s", error.message);
    rn_grammar_text_free(request->grammar);
    request->grammar = NULL;
    RN_ASSERT(rn_request_check(request));
    msg->head.kind = RN_MSG_ADMIT;
    rn_actor_send(actor->context->tier, msg);
}

static void on_session(struct rn_actor *self, struct rn_msg *msg)
{
    rn_actor_send(((struct rn_grammar_actor *)self)->context->tier, msg);
}

static const struct rn_actor_class grammar_class = {
    .name = "grammar",
    .handlers =
        {
            [RN_MSG_COMPILE] = on_compile,
            [RN_MSG_SESSION_NEW] = on_session,
            [RN_MSG_SESSION_FREE] = on_session,
            [RN_MSG_SESSION_FORK] = on_session,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
};

runnel_status rn_grammar_actor_init(struct rn_grammar_actor *actor, const struct rn_context *context)
{
    *actor = (struct rn_grammar_actor){.context = context};
    rn_actor_init(&actor->actor, context->runtime, &grammar_class,
                  rn_bounds_credits(&context->bounds, RN_ROLE_GRAMMAR));
    if (context->runtime->n_threads == 0)
        return RUNNEL_OK;
    actor->dedicated = rn_dedicated_new(context->heap, &actor->actor, NULL);
    return actor->dedicated != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

void rn_grammar_actor_fini(struct rn_grammar_actor *actor)
{
    rn_dedicated_free(actor->dedicated);
    rn_grammar_cache_free(actor->cache);
    rn_token_trie_free(actor->trie);
}

bool rn_grammar_actor_check(const struct rn_grammar_actor *actor)
{
    return actor->actor.class == &grammar_class && actor->context->grammar == &actor->actor &&
           (actor->cache == NULL || rn_grammar_cache_check(actor->cache));
}
