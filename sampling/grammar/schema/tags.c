/* Objects and lists in tags: see parts.h, and text/answer/nested.c for how they are read.
 *
 *     <deep><a>1</a></deep>   <list><item>1</item></list>      each tag with the format's token in front
 *
 * A reader has the schema and no more. So a value is written in tags only where the schema that the reader finds for it
 * allows objects and nothing else, or lists (and null); and where all that it may have can be written so: the members
 * that the schema lists, items that are alike. Else it is JSON between its tags. */
#include <string.h>

#include "sampling/grammar/schema/parts.h"
#include "text/answer/tools.h"

static uint32_t types_of(struct rn_schema_maker *m, struct rn_value schema)
{
    uint64_t steps = 0;
    uint32_t types = rn_answer_tools_types_of(m->root, schema, &steps);

    rn_step(m->arena, RN_SCHEMA_SEEN_STEPS * steps);
    return types;
}

uint32_t rn_schema_seen_member(struct rn_schema_maker *m, const struct rn_str *name, struct rn_value *seen)
{
    uint64_t steps = 0;

    *seen = rn_answer_tools_member(m->root, m->seen, name->bytes, name->n, &steps);
    rn_step(m->arena, RN_SCHEMA_SEEN_STEPS * steps);
    return types_of(m, *seen);
}

/* Are the members of these objects those that the schema lists, and no others? */
static bool lists_members(const struct rn_case *the)
{
    const struct rn_clause *clause;
    bool lists = false;

    for (clause = the->objects; clause != NULL; clause = clause->next) {
        struct rn_value dict = rn_schema_dict(clause->schema), others = rn_schema_others(clause->schema);
        bool closed = others.kind == RN_VALUE_UNDEFINED || (others.kind == RN_VALUE_BOOL && !others.boolean);

        if (!closed || rn_dict_at(dict, "patternProperties").kind == RN_VALUE_DICT)
            return false;
        lists = lists || rn_dict_at(dict, "properties").kind == RN_VALUE_DICT;
    }
    return lists;
}

/* Can all values of the goal be written in tags, or as a word? */
static bool writable(struct rn_schema_maker *m, struct rn_literals literals)
{
    struct rn_case_list *at;

    for (at = rn_schema_solve(m, literals); at != NULL; at = at->next)
        if (at->the.has_values || ((at->the.kinds & RN_KIND_OBJECT) != 0 && !lists_members(&at->the)) ||
            ((at->the.kinds & RN_KIND_ARRAY) != 0 && !rn_schema_items_plain(&at->the)))
            return false;
    return true;
}

rn_expr rn_schema_tags(struct rn_schema_maker *m, const struct rn_literal_list *goal, struct rn_value seen)
{
    uint32_t types = types_of(m, seen) & ~(uint32_t)RN_SCHEMA_NULL, i;
    struct rn_literals literals = rn_literals_of(m, goal);

    if ((types != RN_SCHEMA_OBJECT && types != RN_SCHEMA_ARRAY) || rn_literals_false(goal) || !writable(m, literals))
        return RN_GRAMMAR_NONE;
    for (i = 0; i < m->n_tags; i++)
        if (m->tags[i].seen.dict == seen.dict && m->tags[i].literals.n == literals.n &&
            memcmp(m->tags[i].literals.items, literals.items, literals.n * sizeof *literals.items) == 0)
            return rn_grammar_call(m->g, m->tags[i].rule);
    rn_step(m->arena, 1 + m->n_tags);
    if (m->n_tags == m->room_tags) {
        m->tags = rn_arena_grow(m->arena, m->tags, m->room_tags, 2 * m->room_tags + 8, sizeof *m->tags);
        m->room_tags = 2 * m->room_tags + 8;
    }
    m->tags[m->n_tags++] = (struct rn_schema_tags){literals, seen, rn_schema_rule(m)};
    return rn_grammar_call(m->g, m->tags[m->n_tags - 1].rule);
}

void rn_schema_make_tags(struct rn_schema_maker *m, struct rn_schema_tags tags)
{
    struct rn_value seen = m->seen;
    rn_expr e = rn_grammar_alternatives(m->g, NULL, 0), one;
    struct rn_case_list *at;

    m->seen = tags.seen;
    for (at = rn_schema_solve(m, tags.literals); at != NULL; at = at->next) {
        struct rn_case the = at->the;
        uint32_t kinds = the.kinds;

        if ((kinds & RN_KIND_OBJECT) != 0) {
            the.kinds = RN_KIND_OBJECT;
            one = rn_schema_members(m, &the);
        } else if ((kinds & RN_KIND_ARRAY) != 0) {
            the.kinds = RN_KIND_ARRAY;
            m->in_tags = true;
            one = rn_schema_items(m, &the);
            m->in_tags = false;
        } else {
            one = rn_grammar_alternatives(m->g, NULL, 0);
        }
        one = rn_grammar_sequence(
            m->g, (rn_expr[]){rn_schema_form_pattern(m, RN_F_SPACE), one, rn_schema_form_pattern(m, RN_F_SPACE)}, 3);
        if ((kinds & RN_KIND_NULL) != 0)
            one = rn_grammar_alternatives(m->g, (rn_expr[]){one, rn_schema_literal_text(m, "null")}, 2);
        rn_schema_look(m);
        e = rn_grammar_alternatives(m->g, (rn_expr[]){e, one}, 2);
    }
    m->seen = seen;
    rn_grammar_define(m->g, tags.rule, e);
}

rn_expr rn_schema_tagged(struct rn_schema_maker *m, const struct rn_literal_list *goal, bool first)
{
    const struct rn_param_syntax *params = m->form->params;
    uint64_t steps = 0;
    struct rn_value seen = rn_answer_tools_item(m->root, m->seen, &steps);
    rn_expr tag = rn_schema_literal_text(m, params->item), end = rn_schema_literal_text(m, ">"), e;

    rn_step(m->arena, RN_SCHEMA_SEEN_STEPS * steps);
    m->in_tags = false;
    e = rn_schema_tags(m, goal, seen);
    if (e == RN_GRAMMAR_NONE)
        e = rn_schema_parameter(m, goal, types_of(m, seen));
    else
        e = rn_grammar_sequence(m->g, (rn_expr[]){end, e}, 2);
    m->in_tags = true;
    if (e == RN_GRAMMAR_NONE)
        return rn_grammar_alternatives(m->g, NULL, 0);
    e = rn_grammar_sequence(m->g,
                            (rn_expr[]){rn_schema_form_pattern(m, params->open), tag, e,
                                        rn_schema_form_pattern(m, params->close), tag, end},
                            6);
    return first ? e : rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_form_pattern(m, RN_F_SPACE), e}, 2);
}
