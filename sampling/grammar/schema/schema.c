/* JSON Schema as a grammar: goals and their rules. See schema.h for what, parts.h for how.
 *
 * Goals wait in a list and are made one after another, so that the depth of schemas costs no stack. Two schemas that
 * come to the same set of literals share a rule, which also ends the recursion of $ref. So do all references to one
 * schema that say nothing else: their rules call its rule. */
#include "sampling/grammar/schema/schema.h"

#include <string.h>

#include "base/check.h"
#include "sampling/grammar/schema/parts.h"

#define FALSE_SCHEMA 0u
#define TRUE_SCHEMA 1u
#define NO_RULE UINT32_MAX

/* ---- Literals ---- */

const struct rn_literal_list *rn_literals_add(struct rn_schema_maker *m, const struct rn_literal_list *list,
                                              rn_literal literal)
{
    struct rn_literal_list *item;

    if (literal == 2 * TRUE_SCHEMA || literal == 2 * FALSE_SCHEMA + 1)
        return list;
    item = rn_arena_take(m->arena, 1, sizeof *item);
    *item = (struct rn_literal_list){list, literal};
    return item;
}

struct rn_literals rn_literals_of(struct rn_schema_maker *m, const struct rn_literal_list *list)
{
    const struct rn_literal_list *at;
    rn_literal *items;
    uint32_t n = 0, i;

    for (at = list; at != NULL; at = at->next)
        n++;
    items = rn_arena_take(m->arena, n, sizeof *items);
    for (n = 0, at = list; at != NULL; at = at->next) {
        rn_step(m->arena, n + 1);
        for (i = n; i > 0 && items[i - 1] > at->literal; i--)
            ;
        if (i > 0 && items[i - 1] == at->literal)
            continue;
        memmove(items + i + 1, items + i, (n - i) * sizeof *items);
        items[i] = at->literal;
        n++;
    }
    return (struct rn_literals){items, n};
}

bool rn_literals_false(const struct rn_literal_list *list)
{
    const struct rn_literal_list *other;

    for (; list != NULL; list = list->next) {
        if (list->literal == 2 * FALSE_SCHEMA || list->literal == 2 * TRUE_SCHEMA + 1)
            return true;
        for (other = list->next; other != NULL; other = other->next)
            if (other->literal == (list->literal ^ 1))
                return true;
    }
    return false;
}

/* ---- Rules ---- */

void rn_schema_look(struct rn_schema_maker *m)
{
    if (rn_grammar_failed(m->g))
        rn_raise(m->arena, m->g->error.status, "%s", m->g->error.message);
}

uint32_t rn_schema_rule(struct rn_schema_maker *m)
{
    uint32_t rule = rn_grammar_rule(m->g, NULL, 0);

    rn_schema_look(m);
    return rule;
}

rn_expr rn_schema_literal_text(struct rn_schema_maker *m, const char *text)
{
    return rn_grammar_bytes(m->g, text, strlen(text));
}

rn_expr rn_schema_optional(struct rn_schema_maker *m, rn_expr item)
{
    return rn_grammar_repeat(m->g, item, 0, 1);
}

rn_expr rn_schema_white(struct rn_schema_maker *m)
{
    static const struct rn_code_points white[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};

    if (!m->options.free_white)
        return rn_grammar_empty(m->g);
    if (m->options.short_white)
        return rn_grammar_short_white(m->g);
    return rn_grammar_repeat(m->g, rn_grammar_set(m->g, white, 3, false), 0, RN_GRAMMAR_FOREVER);
}

rn_expr rn_grammar_short_white(struct rn_grammar *g)
{
    static const struct rn_code_points blanks[] = {{'\t', '\t'}, {' ', ' '}};
    rn_expr lines = rn_grammar_repeat(g, rn_grammar_bytes(g, "\n", 1), 1, 2);
    rn_expr indent = rn_grammar_repeat(g, rn_grammar_set(g, blanks, 2, false), 0, 20);
    rn_expr parts[] = {rn_grammar_empty(g), rn_grammar_bytes(g, " ", 1),
                       rn_grammar_sequence(g, (rn_expr[]){lines, indent}, 2)};

    return rn_grammar_alternatives(g, parts, 3);
}

/* ---- Goals ---- */

static uint32_t goal_place(const struct rn_schema_maker *m, struct rn_literals literals)
{
    uint64_t hash = literals.n;
    uint32_t at, i;

    for (i = 0; i < literals.n; i++)
        hash = (hash ^ literals.items[i]) * 0x9e3779b97f4a7c15u;
    for (at = (uint32_t)(hash >> 32) & (m->n_by_literals - 1); m->by_literals[at] != 0;
         at = (at + 1) & (m->n_by_literals - 1)) {
        const struct rn_schema_goal *goal = &m->goals[m->by_literals[at] - 1];

        if (goal->literals.n == literals.n &&
            (literals.n == 0 || memcmp(goal->literals.items, literals.items, literals.n * sizeof *literals.items) == 0))
            break;
    }
    return at;
}

static void grow_goals(struct rn_schema_maker *m)
{
    m->goals = rn_arena_grow(m->arena, m->goals, m->room_goals, 2 * m->room_goals + 32, sizeof *m->goals);
    m->room_goals = 2 * m->room_goals + 32;
    for (m->n_by_literals = 64; m->n_by_literals < 2 * m->room_goals; m->n_by_literals *= 2)
        ;
    m->by_literals = rn_arena_take(m->arena, m->n_by_literals, sizeof *m->by_literals);
    memset(m->by_literals, 0, m->n_by_literals * sizeof *m->by_literals);
    for (uint32_t i = 0; i < m->n_goals; i++)
        m->by_literals[goal_place(m, m->goals[i].literals)] = i + 1;
}

rn_expr rn_schema_goal(struct rn_schema_maker *m, const struct rn_literal_list *list)
{
    struct rn_literals literals = rn_literals_of(m, list);
    uint32_t at;

    if (rn_literals_false(list))
        return rn_grammar_alternatives(m->g, NULL, 0);
    if (m->n_goals == m->room_goals)
        grow_goals(m);
    at = goal_place(m, literals);
    if (m->by_literals[at] == 0) {
        m->goals[m->n_goals++] = (struct rn_schema_goal){literals, rn_schema_rule(m)};
        m->by_literals[at] = m->n_goals;
    }
    return rn_grammar_call(m->g, m->goals[m->by_literals[at] - 1].rule);
}

rn_expr rn_schema_case(struct rn_schema_maker *m, struct rn_literals literals, const struct rn_case *the)
{
    static const struct {
        uint32_t kind;
        const char *text, *python;
    } plain[] = {{RN_KIND_NULL, "null", "None"}, {RN_KIND_FALSE, "false", "False"}, {RN_KIND_TRUE, "true", "True"}};
    rn_expr *parts = rn_arena_take(m->arena, 10 + (the->has_values ? the->values->n : 0), sizeof *parts);
    uint32_t n = 0, i;

    if (the->has_values) {
        for (i = 0; i < the->values->n; i++) {
            m->likely = i;
            if (rn_schema_all_hold(m, literals, the->values->items[i]))
                parts[n++] = rn_schema_value(m, the->values->items[i]);
        }
        return rn_grammar_alternatives(m->g, parts, n);
    }
    for (i = 0; i < 3; i++) {
        if ((the->kinds & plain[i].kind) == 0)
            continue;
        parts[n++] = rn_schema_literal_text(m, plain[i].text);
        if (m->python)
            parts[n++] = rn_schema_literal_text(m, plain[i].python);
    }
    if ((the->kinds & RN_KIND_NUMBER) != 0)
        parts[n++] = rn_schema_number(m, the);
    if ((the->kinds & RN_KIND_STRING) != 0)
        parts[n++] = rn_schema_string(m, the);
    if ((the->kinds & RN_KIND_ARRAY) != 0)
        parts[n++] = rn_schema_array(m, the);
    if ((the->kinds & RN_KIND_OBJECT) != 0)
        parts[n++] = rn_schema_object(m, the);
    return rn_grammar_alternatives(m->g, parts, n);
}

static void make_goal(struct rn_schema_maker *m, struct rn_schema_goal goal)
{
    struct rn_case_list *cases, *at;
    const struct rn_literal_list *same;
    uint32_t n = 0;
    rn_expr *parts;

    for (uint32_t i = 0; i < goal.literals.n; i++)
        rn_schema_check_circles(m, m->schemas[goal.literals.items[i] / 2]);
    same = rn_schema_same(m, goal.literals);
    if (same != NULL) {
        rn_grammar_define(m->g, goal.rule, rn_schema_goal(m, same));
        return;
    }
    cases = rn_schema_solve(m, goal.literals);
    for (at = cases; at != NULL; at = at->next)
        n++;
    parts = rn_arena_take(m->arena, n, sizeof *parts);
    for (n = 0, at = cases; at != NULL; at = at->next) {
        parts[n++] = rn_schema_case(m, goal.literals, &at->the);
        rn_schema_look(m);
    }
    rn_grammar_define(m->g, goal.rule, rn_grammar_alternatives(m->g, parts, n));
    rn_schema_look(m);
}

/* ---- From outside ---- */

static void make_all(struct rn_schema_maker *m)
{
    uint32_t goals = 0, tags = 0;

    while (goals < m->n_goals || tags < m->n_tags)
        if (goals < m->n_goals)
            make_goal(m, m->goals[goals++]);
        else
            rn_schema_make_tags(m, m->tags[tags++]);
}

struct job {
    struct rn_schema_maker m;
    struct rn_arena arena;
    const char *text; /* NULL: any JSON */
    size_t n;
    bool object; /* any object */
    const struct rn_arguments_form *form;
    rn_expr made;
};

static void start(struct job *job, struct rn_grammar *g, const struct rn_schema_options *options)
{
    job->m = (struct rn_schema_maker){.g = g,
                                      .arena = &job->arena,
                                      .string_rule = NO_RULE,
                                      .char_rules = {NO_RULE, NO_RULE},
                                      .number_rule = NO_RULE,
                                      .integer_rule = NO_RULE};
    if (options != NULL)
        job->m.options = *options;
    rn_arena_init(&job->arena, g->heap, RN_SCHEMA_BYTES);
    job->arena.steps_limit = RN_SCHEMA_STEPS;
    job->arena.depth_limit = 2 * RN_JSON_DEPTH;
    rn_arena_set_stop(&job->arena, g->stop);
}

/* The objects among the values of the root. */
static rn_expr arguments(struct rn_schema_maker *m, const struct rn_schema *root)
{
    struct rn_literals literals = rn_literals_of(m, rn_literals_add(m, NULL, rn_literal_of(root, false)));
    struct rn_case_list *at;
    rn_expr e = rn_grammar_alternatives(m->g, NULL, 0), one;

    for (at = rn_schema_solve(m, literals); at != NULL; at = at->next) {
        struct rn_case the = at->the;

        the.kinds &= RN_KIND_OBJECT;
        if (the.kinds == 0)
            continue;
        if (m->form->kind != RN_ARGUMENTS_JSON && the.has_values)
            rn_raise(m->arena, RUNNEL_UNSUPPORTED, "the values of arguments as a whole cannot be listed, as at \"%s\"",
                     rn_schema_where(m, &the, "const"));
        one = m->form->kind == RN_ARGUMENTS_JSON ? rn_schema_case(m, literals, &the) : rn_schema_members(m, &the);
        rn_schema_look(m);
        e = rn_grammar_alternatives(m->g, (rn_expr[]){e, one}, 2);
    }
    return e;
}

static void compile(void *user)
{
    static const struct rn_interval all;
    struct job *job = user;
    struct rn_schema_maker *m = &job->m;
    const struct rn_literal_list *goal = NULL;
    const struct rn_schema *root;

    if (job->form != NULL) {
        m->form = job->form;
        m->seen = m->root;
        m->raw = job->form->kind == RN_ARGUMENTS_MARKED;
        m->python = job->form->kind == RN_ARGUMENTS_PYTHON;
        if (m->raw)
            m->mark = job->form->pattern(job->form->user, m->g, job->form->mark);
        root = rn_schema_read(m);
        rn_schema_check_circles(m, root);
        m->options.escape_angle |= rn_schema_ambiguous(m, root);
        job->made = arguments(m, root);
    } else if (job->object) {
        struct rn_case any = {.kinds = RN_KIND_OBJECT, .intervals = &all, .max_properties = RN_GRAMMAR_FOREVER};

        job->made = rn_schema_object(m, &any);
    } else {
        if (job->text != NULL) {
            root = rn_schema_read(m);
            goal = rn_literals_add(m, NULL, rn_literal_of(root, false));
        }
        job->made = rn_schema_goal(m, goal);
    }
    make_all(m);
    rn_schema_look(m);
}

static runnel_status guarded(struct job *job)
{
    return rn_arena_try(&job->arena, NULL, compile, job) ? RUNNEL_OK : job->arena.status;
}

static rn_expr finish(struct job *job, runnel_status status)
{
    struct rn_grammar *g = job->m.g;

    if (status != RUNNEL_OK && !rn_grammar_failed(g))
        rn_grammar_fail(g, status, "%s", job->arena.message);
    rn_arena_fini(&job->arena);
    return rn_grammar_failed(g) ? RN_GRAMMAR_NONE : job->made;
}

rn_expr rn_grammar_schema(struct rn_grammar *g, const char *text, size_t n, const struct rn_schema_options *options)
{
    struct job job = {.text = text, .n = n};
    runnel_error error = {0};
    runnel_status status;

    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    if (n > g->limits.source_bytes) {
        rn_grammar_fail(g, RUNNEL_INVALID, "a schema of %zu bytes; at most %zu", n, g->limits.source_bytes);
        return RN_GRAMMAR_NONE;
    }
    start(&job, g, options);
    status = rn_json_parse_exact(&job.arena, text, n, &job.m.root, &error);
    if (status != RUNNEL_OK) {
        rn_grammar_fail(g, status == RUNNEL_NO_MEMORY ? status : RUNNEL_FORMAT, "the schema: %s", error.message);
        return finish(&job, status);
    }
    return finish(&job, guarded(&job));
}

rn_expr rn_grammar_arguments(struct rn_grammar *g, struct rn_value schema, const struct rn_schema_options *options,
                             const struct rn_arguments_form *form)
{
    struct job job = {.form = form};
    runnel_status status;

    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    start(&job, g, options);
    job.m.root = schema;
    job.arena.steps_limit = *form->steps;
    status = guarded(&job);
    *form->steps -= job.arena.steps < *form->steps ? job.arena.steps : *form->steps;
    return finish(&job, status);
}

rn_expr rn_grammar_any_json(struct rn_grammar *g, bool object, const struct rn_schema_options *options)
{
    struct job job = {.object = object};

    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    start(&job, g, options);
    return finish(&job, guarded(&job));
}
