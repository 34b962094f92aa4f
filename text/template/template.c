/* Parsing and rendering: the boundaries at which what the rest raises ends. See template.h. */
#include "text/template/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/template/run.h"
#include "text/template_keys.h"
#include "text/vocab.h"

const struct rn_template_limits rn_template_limits_default = {
    .steps = 100000000, .output_bytes = (size_t)64 << 20, .memory_bytes = (size_t)256 << 20, .depth = 200};

void rn_template_place(const char *source, size_t n, uint32_t at, uint32_t *line, uint32_t *column)
{
    size_t i;

    *line = *column = 1;
    for (i = 0; i < at && i < n; i++) {
        if (source[i] == '\n') {
            ++*line;
            *column = 1;
        } else {
            *column += ((unsigned char)source[i] & 0xc0) != 0x80;
        }
    }
}

/* ---- Parsing ---- */

_Noreturn void rn_template_fail(struct rn_tpl_parser *p, uint32_t at, const char *format, ...)
{
    char sentence[RUNNEL_ERROR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    p->at = at;
    rn_raise(p->arena, RUNNEL_FORMAT, "%s", sentence);
}

/* A copy of the source in which lines end with "\n"; the last end of line goes. */
static void take_source(struct rn_tpl_parser *p, const char *source, size_t n)
{
    char *copy = rn_arena_take(p->arena, n + 1, 1);
    size_t i, at = 0;

    for (i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
            continue;
        copy[at++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (at > 0 && copy[at - 1] == '\n')
        at--;
    copy[at] = '\0';
    p->source = copy;
    p->n = at;
}

struct parsing {
    struct rn_tpl_parser *p;
    struct rn_template *tmpl;
    const char *source;
    size_t n;
};

static void parse_all(void *user)
{
    const struct parsing *all = user;
    struct rn_tpl_parser *p = all->p;
    struct rn_template *tmpl = all->tmpl;

    take_source(p, all->source, all->n);
    tmpl->source = p->source;
    tmpl->n = p->n;
    p->names = rn_dict_new(&p->scratch);
    p->n_caller = rn_template_intern(p, "caller", 6);
    p->n_kwargs = rn_template_intern(p, "kwargs", 6);
    p->n_varargs = rn_template_intern(p, "varargs", 7);
    p->n_loop = rn_template_intern(p, "loop", 4);
    rn_template_lex(p);
    p->at = p->tokens[0].at;
    tmpl->root = rn_tpl_parse_template(p);
    rn_template_bind(p, tmpl->root, &tmpl->function, &tmpl->frame);
    tmpl->function.slots = NULL;
}

static runnel_status parse_error(const struct rn_tpl_parser *p, runnel_error *error)
{
    const struct rn_arena *from = p->arena->status != RUNNEL_OK ? p->arena : &p->scratch;
    uint32_t line, column;

    if (from->status == RUNNEL_NO_MEMORY)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s", from->message);
    rn_template_place(p->source == NULL ? "" : p->source, p->n, p->at, &line, &column);
    return rn_error_set(error, RUNNEL_FORMAT, "line %u, column %u: %s", line, column, from->message);
}

runnel_status rn_template_parse(struct rn_heap *heap, const char *source, size_t n, struct rn_template **out,
                                runnel_error *error)
{
    struct rn_template *tmpl;
    struct rn_tpl_parser p = {0};
    runnel_status status = RUNNEL_OK;

    if (n > RN_TEMPLATE_BYTES)
        return rn_error_set(error, RUNNEL_FORMAT, "a template of %zu bytes; at most %zu", n, RN_TEMPLATE_BYTES);
    if (!rn_utf8_valid(source, n))
        return rn_error_set(error, RUNNEL_FORMAT, "the template is not UTF-8");
    tmpl = rn_calloc(heap, 1, sizeof *tmpl);
    if (tmpl == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a template");
    rn_arena_init(&tmpl->arena, heap, rn_template_limits_default.memory_bytes);
    rn_arena_init(&p.scratch, heap, rn_template_limits_default.memory_bytes);
    tmpl->arena.steps_limit = p.scratch.steps_limit = rn_template_limits_default.steps;
    tmpl->arena.depth_limit = p.scratch.depth_limit = rn_template_limits_default.depth;
    p.arena = &tmpl->arena;
    if (!rn_arena_try(p.arena, &p.scratch, parse_all, &(struct parsing){&p, tmpl, source, n})) {
        status = parse_error(&p, error);
        rn_template_free(tmpl);
    } else {
        *out = tmpl;
    }
    rn_arena_fini(&p.scratch);
    return status;
}

void rn_template_free(struct rn_template *tmpl)
{
    struct rn_heap *heap;

    if (tmpl == NULL)
        return;
    heap = tmpl->arena.heap;
    rn_arena_fini(&tmpl->arena);
    rn_free(heap, tmpl);
}

/* ---- Rendering ---- */

static void set_string(struct rn_run *run, const struct rn_template_string *string)
{
    struct rn_arena *arena = &run->arena;

    if (!rn_utf8_valid(string->text.bytes, string->text.n))
        rn_tpl_fail(run, "the string %s is not UTF-8", string->name);
    rn_dict_set(arena, run->globals, rn_string_value(rn_str_of(arena, string->name)),
                rn_string_value(rn_str_borrow(arena, string->text.bytes, string->text.n, RN_ORIGIN_TRUSTED)));
}

static void fill_globals(struct rn_run *run)
{
    const struct rn_template_context *context = run->context;
    runnel_error error = {0};
    runnel_status status;
    struct rn_value json;
    size_t i;

    run->globals = rn_dict_new(&run->arena);
    rn_tpl_globals_fill(run);
    for (i = 0; i < context->n_strings; i++)
        set_string(run, &context->strings[i]);
    if (context->json == NULL)
        return;
    status = rn_json_parse(&run->arena, context->json, context->json_bytes, &json, &error);
    run->own_sentence = true; /* no place in the template is at fault */
    if (status != RUNNEL_OK)
        rn_raise(&run->arena, status, "the context: %s", error.message);
    if (json.kind != RN_VALUE_DICT)
        rn_tpl_fail(run, "the context is not a JSON object");
    run->own_sentence = false;
    if (context->forms != NULL)
        rn_tpl_fix_messages(run, rn_dict_at(json, "messages"));
    for (i = 0; i < json.dict->n; i++)
        rn_dict_set(&run->arena, run->globals, json.dict->entries[i].key, json.dict->entries[i].value);
}

static void render(void *user)
{
    struct rn_run *run = user;

    fill_globals(run);
    run->env = rn_tpl_env_new(run, &run->tmpl->function, NULL);
    rn_tpl_enter_frame(run, &run->tmpl->frame);
    rn_tpl_exec(run, run->tmpl->root);
    if (run->out->bytes == NULL) { /* an empty text is a block too */
        rn_sb_text(run->out, " ");
        run->out->n = 0;
    }
}

static runnel_status render_error(const struct rn_run *run, runnel_error *error)
{
    uint32_t line, column;

    if (run->arena.status == RUNNEL_NO_MEMORY || run->own_sentence)
        return rn_error_set(error, run->arena.status, "%s", run->arena.message);
    rn_template_place(run->tmpl->source, run->tmpl->n, run->at, &line, &column);
    return rn_error_set(error, run->arena.status, "line %u, column %u: %s", line, column, run->arena.message);
}

runnel_status rn_template_render(const struct rn_template *tmpl, struct rn_heap *heap,
                                 const struct rn_template_context *context, const struct rn_template_limits *limits,
                                 struct rn_rendered *out, runnel_error *error)
{
    struct rn_run run = {.tmpl = tmpl, .context = context};
    runnel_status status = RUNNEL_OK;
    struct rn_sb text;

    if (limits == NULL)
        limits = &rn_template_limits_default;
    rn_arena_init(&run.arena, heap, limits->memory_bytes);
    run.arena.steps_limit = limits->steps;
    rn_arena_set_stop(&run.arena, context->stop);
    run.arena.depth_limit = limits->depth;
    rn_sb_init_heap(&text, &run.arena, limits->output_bytes);
    run.out = &text;
    if (rn_arena_try(&run.arena, NULL, render, &run)) {
        *out = (struct rn_rendered){text.bytes, text.n, text.ranges, text.n_ranges, text.n};
    } else {
        status = render_error(&run, error);
        rn_sb_fini(&text);
    }
    rn_arena_fini(&run.arena);
    return status;
}

void rn_rendered_free(struct rn_rendered *rendered, struct rn_heap *heap)
{
    rn_free(heap, rendered->text);
    rn_free(heap, rendered->data);
    *rendered = (struct rn_rendered){0};
}
