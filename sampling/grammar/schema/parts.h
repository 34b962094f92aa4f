/* The inside of the JSON Schema front end (schema.h): what its files share.
 *
 * All memory is the arena's; errors are raised in it (text/value.h) and caught in schema.c. Lists are linked, never
 * changed once made, and shared between the cases that begin alike; the newest item is first. */
#ifndef RN_SAMPLING_GRAMMAR_SCHEMA_PARTS_H
#define RN_SAMPLING_GRAMMAR_SCHEMA_PARTS_H

#include "sampling/grammar/schema/schema.h"
#include "text/value.h"

#define RN_SCHEMA_SEEN_STEPS 4u /* that a schema takes which a reader looks at: measured */

/* ---- Schemas of the document ---- */

struct rn_schema_resource { /* a schema with $id, or the whole document */
    const struct rn_schema_resource *next;
    const struct rn_str *uri; /* without a fragment */
    struct rn_value root;
};

struct rn_schema_anchor {
    const struct rn_schema_anchor *next;
    const struct rn_schema_resource *resource;
    const struct rn_str *name;
    struct rn_value value;
    bool dynamic;
};

#define RN_COMPARISONS_MOST 2u /* of branches of oneOf, one within another; below them oneOf is anyOf */

enum rn_apart { RN_APART_UNKNOWN, RN_APART, RN_APART_NOT_PROVED };

struct rn_schema {
    const struct rn_dict *dict; /* NULL: true or false */
    bool truth;
    uint32_t id;                    /* its place in schemas; of a boolean 0 or 1 */
    const struct rn_schema *parent; /* and the way from it, for the pointer: */
    const char *keyword;            /* NULL: none */
    const struct rn_str *name;      /* NULL: none */
    int64_t index;                  /* -1: none */
    const struct rn_schema_resource *resource;
    uint8_t color; /* of the search for circles */
    uint8_t apart; /* enum rn_apart: the branches of its oneOf */
};

/* A schema that holds, 2 × id, or does not, 2 × id + 1. */
typedef uint32_t rn_literal;

struct rn_literals {
    const rn_literal *items; /* [n] ascending */
    uint32_t n;
};

struct rn_schema_goal {
    struct rn_literals literals;
    uint32_t rule;
};

/* The tags within a value that satisfies all literals; `seen`: its schema, as the answer's reader finds it. */
struct rn_schema_tags {
    struct rn_literals literals;
    struct rn_value seen;
    uint32_t rule;
};

#define RN_DRAFT_LATER 6u

struct rn_schema_maker {
    struct rn_grammar *g;
    struct rn_arena *arena;
    struct rn_schema_options options;
    struct rn_value root;
    struct rn_schema **schemas; /* [n_schemas]: 0 is false, 1 is true */
    uint32_t n_schemas, room_schemas;
    uint32_t *by_dict; /* [n_by_dict] schema id, 0: free */
    uint32_t n_by_dict;
    const struct rn_schema_resource *resources;
    const struct rn_schema_anchor *anchors;
    bool recursive_anchor; /* there is one */
    uint32_t draft;        /* that $schema of the root names: 3, 4, or RN_DRAFT_LATER; 0: it names none */
    struct rn_schema_goal *goals;
    uint32_t n_goals, room_goals;
    uint32_t *by_literals; /* [n_by_literals] 1 + goal */
    uint32_t n_by_literals;
    uint32_t string_rule, number_rule, integer_rule; /* UINT32_MAX: not yet */
    uint32_t char_rules[2];                          /* the second: raw */
    bool raw;                                        /* characters are spelled as they are, without escapes */
    rn_expr mark;                                    /* stands for a string's quotes; RN_GRAMMAR_NONE: they do */
    bool python;                                     /* words of Python stand for those of JSON as well */
    const struct rn_arguments_form *form;            /* NULL: JSON */
    struct rn_value seen;                            /* by the reader: the schema of what is being written in tags */
    bool in_tags;                                    /* items are */
    struct rn_schema_tags *tags;
    uint32_t n_tags, room_tags;
    const struct rn_schema *one_of;  /* its branches are being told apart */
    uint32_t comparisons;            /* of branches of oneOf that run, one within another */
    struct rn_text_cache *texts;     /* patterns and formats that were made */
    struct rn_length_cache *lengths; /* strings with lengths that were made */
    uint32_t likely;                 /* where in an enum the value that is looked for stands, if it is of that enum */
};

/* ---- Constraints ---- */

enum rn_kinds { /* of values; integers and numbers with a fraction apart */
                RN_KIND_NULL = 1,
                RN_KIND_FALSE = 2,
                RN_KIND_TRUE = 4,
                RN_KIND_INTEGER = 8,
                RN_KIND_FRACTION = 16,
                RN_KIND_STRING = 32,
                RN_KIND_ARRAY = 64,
                RN_KIND_OBJECT = 128,
                RN_KIND_NUMBER = 24,
                RN_KINDS_ALL = 255
};

/* A number as it is written without an exponent. No zeros in front of the digits or behind the fraction. */
struct rn_decimal {
    bool negative;
    uint32_t n_int, n_frac;
    const uint8_t *digits; /* [n_int + n_frac] 0..9 */
};

struct rn_interval {
    const struct rn_interval *next;
    const struct rn_decimal *low, *high; /* NULL: no bound */
    bool low_open, high_open;
};

struct rn_multiple { /* a multiple of unit / 10^places, or no multiple */
    const struct rn_multiple *next;
    uint32_t unit, places;
    bool negated;
};

struct rn_text_rule { /* a pattern or format that strings match, or do not; or a string that they are not */
    const struct rn_text_rule *next;
    const struct rn_schema *schema;
    const struct rn_str *text;
    enum { RN_TEXT_PATTERN, RN_TEXT_FORMAT, RN_TEXT_IS } kind;
    bool negated;
};

struct rn_name_list {
    const struct rn_name_list *next;
    const struct rn_str *name;
    rn_literal literal; /* of the value, where the list says so */
};

struct rn_clause { /* properties, patternProperties, additionalProperties; or prefixItems, items: of one schema */
    const struct rn_clause *next;
    const struct rn_schema *schema;
};

/* The object has a property that breaks what this keyword of the schema says: propertyNames; patternProperties;
 * additionalProperties or unevaluatedProperties, of those that it neither lists nor matches. */
struct rn_broken {
    const struct rn_broken *next;
    const struct rn_schema *schema;
    const char *keyword; /* static */
};

struct rn_contains { /* at least `least`, at most `most` of the items from..to, the last one not counted, match */
    const struct rn_contains *next;
    const struct rn_schema *schema; /* that says so */
    rn_literal literal;
    uint32_t from, to, least, most;
};

/* A conjunction of plain constraints. Those on a kind of values that is not allowed mean nothing. */
struct rn_case {
    uint32_t kinds;
    bool has_values;
    const struct rn_list *values; /* only these, where has_values */
    const struct rn_interval *intervals;
    const struct rn_multiple *multiples;
    uint32_t min_length, max_length; /* RN_GRAMMAR_FOREVER: no bound */
    const struct rn_text_rule *texts;
    const struct rn_clause *arrays;
    const struct rn_contains *contains;
    uint32_t min_items, max_items;
    const struct rn_schema *unique;
    const struct rn_clause *objects; /* newest first; the order of properties */
    const struct rn_schema *behind;  /* of objects: the next one is put behind it; NULL: in front of all */
    const struct rn_name_list *required, *lacking, *extra; /* extra: a literal for the value of a name */
    const struct rn_name_list *names;                      /* literals for all names; no name */
    const struct rn_broken *broken;                        /* none in a case that is found */
    uint32_t min_properties, max_properties;
    const struct rn_schema *min_properties_of;
    const struct rn_literal_list *seen; /* literals that are in it */
};

struct rn_literal_list {
    const struct rn_literal_list *next;
    rn_literal literal;
};

struct rn_case_list {
    struct rn_case_list *next;
    struct rn_case the;
};

/* A step of a conjunction that is still to be taken. */
enum rn_atom_kind {
    RN_ATOM_NEVER,
    RN_ATOM_LITERAL,
    RN_ATOM_CHOICE,
    RN_ATOM_KINDS,
    RN_ATOM_VALUES,
    RN_ATOM_NOT_VALUES,
    RN_ATOM_BOUND,
    RN_ATOM_MULTIPLE,
    RN_ATOM_LENGTH,
    RN_ATOM_TEXT,
    RN_ATOM_ARRAY,
    RN_ATOM_ITEMS,
    RN_ATOM_CONTAINS,
    RN_ATOM_UNIQUE,
    RN_ATOM_OBJECT,
    RN_ATOM_REQUIRED,
    RN_ATOM_LACKS,
    RN_ATOM_EXTRA,
    RN_ATOM_NAMES,
    RN_ATOM_BROKEN,
    RN_ATOM_PROPERTIES
};

struct rn_branch {
    const struct rn_branch *next;
    const struct rn_atom *atoms;
};

struct rn_atom {
    const struct rn_atom *next;
    const struct rn_schema *schema; /* where it comes from */
    enum rn_atom_kind kind;
    union {
        rn_literal literal;
        const struct rn_branch *branches;
        uint32_t kinds;
        const struct rn_list *values;
        struct rn_interval bound;
        struct rn_multiple multiple;
        struct {
            uint32_t least, most;
        } count;
        struct rn_text_rule text;
        struct rn_contains contains;
        struct rn_name_list name;
        const char *broken; /* the keyword */
    };
};

/* Of a value and what a schema says. Ordered: of several that must all hold, the least counts. */
enum rn_holds { RN_HOLDS_NOT, RN_HOLDS_UNKNOWN, RN_HOLDS };

/* ---- read.c ---- */

/* Finds all schemas in m->root, their names and places. */
const struct rn_schema *rn_schema_read(struct rn_schema_maker *m);

/* Refuses a circle among the schemas that say something of the same value as this one. */
void rn_schema_check_circles(struct rn_schema_maker *m, const struct rn_schema *root);

/* The schema that a value of the document is; raises where it is none. `of`, `keyword`: who asks. */
const struct rn_schema *rn_schema_of(struct rn_schema_maker *m, struct rn_value value, const struct rn_schema *of,
                                     const char *keyword);

/* What $ref, $dynamicRef or $recursiveRef of a schema means. NULL: it is refused, and it is allowed that it is not
 * enforced. */
const struct rn_schema *rn_schema_target(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                         struct rn_value value);

/* Where a schema stands: "#/properties/a". */
const char *rn_schema_pointer(struct rn_schema_maker *m, const struct rn_schema *schema);

/* The same of the schema that says this keyword of a case; where none does, of one of those that make the case. */
const char *rn_schema_where(struct rn_schema_maker *m, const struct rn_case *the, const char *keyword);

/* Raises UNSUPPORTED, unless it is allowed that the keyword is not enforced. */
void rn_schema_refuse(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword, const char *why);

/* Raises FORMAT: the keyword must be `what`. */
_Noreturn void rn_schema_malformed(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                   const char *what);

/* ---- schema.c ---- */

/* What a schema says, as a value; of true and false nothing. */
static inline struct rn_value rn_schema_dict(const struct rn_schema *schema)
{
    return (struct rn_value){.kind = RN_VALUE_DICT, .dict = (struct rn_dict *)schema->dict};
}

static inline rn_literal rn_literal_of(const struct rn_schema *schema, bool negated)
{
    return 2 * schema->id + negated;
}

struct rn_literals rn_literals_of(struct rn_schema_maker *m, const struct rn_literal_list *list);
const struct rn_literal_list *rn_literals_add(struct rn_schema_maker *m, const struct rn_literal_list *list,
                                              rn_literal literal);

/* The values of one case of a goal. */
rn_expr rn_schema_case(struct rn_schema_maker *m, struct rn_literals literals, const struct rn_case *the);

/* The value of a goal; of the empty set any value. */
rn_expr rn_schema_goal(struct rn_schema_maker *m, const struct rn_literal_list *literals);

/* Is it a set with false in it? Proves little, and costs nothing. */
bool rn_literals_false(const struct rn_literal_list *list);

/* ---- keywords.c, solve.c ---- */

/* What one keyword says, or says negated, as atoms that all hold. NULL: nothing. */
const struct rn_atom *rn_schema_atoms(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                      struct rn_value value, bool negated);

/* unevaluatedProperties and unevaluatedItems mean what additionalProperties and additionalItems would. */
bool rn_schema_unevaluated_plain(const struct rn_schema *schema);

const struct rn_atom *rn_atom_add(struct rn_schema_maker *m, const struct rn_atom *next, struct rn_atom atom);
const struct rn_branch *rn_branch_add(struct rn_schema_maker *m, const struct rn_branch *next,
                                      const struct rn_atom *atoms);

/* What a set of one schema comes to that says nothing but what another one says, by $ref or a lone allOf; NULL: it says
 * more. Its circles have been looked for. */
const struct rn_literal_list *rn_schema_same(struct rn_schema_maker *m, struct rn_literals literals);

/* The cases of a set of literals: a value is in one of them if and only if all literals hold. */
struct rn_case_list *rn_schema_solve(struct rn_schema_maker *m, struct rn_literals literals);

/* No value satisfies all literals. False: not proved. */
bool rn_schema_empty(struct rn_schema_maker *m, struct rn_literals literals, uint32_t depth);

/* ---- others.c ---- */

/* The ways in which an object of the case can have a property that breaks a keyword, where the case says which names
 * there can be. False: it does not, and it is allowed that this is not enforced. */
bool rn_schema_ways_to_break(struct rn_schema_maker *m, const struct rn_case *the, const struct rn_broken *broken,
                             const struct rn_branch **ways);

/* ---- values.c ---- */

bool rn_schema_equal(struct rn_schema_maker *m, struct rn_value a, struct rn_value b);
uint32_t rn_schema_kind(struct rn_value value);

/* Is the value allowed by the schema? What is not enforced is not known, and neither is its negation. */
enum rn_holds rn_schema_holds(struct rn_schema_maker *m, const struct rn_schema *schema, struct rn_value value);

/* None of the literals is known not to hold of the value. */
bool rn_schema_all_hold(struct rn_schema_maker *m, struct rn_literals literals, struct rn_value value);

/* One value, as it is spelled. */
rn_expr rn_schema_value(struct rn_schema_maker *m, struct rn_value value);

/* ---- strings.c ---- */

rn_expr rn_schema_any_string(struct rn_schema_maker *m); /* with its quotes, all spellings */
rn_expr rn_schema_quoted(struct rn_schema_maker *m, rn_expr content);
rn_expr rn_schema_key(struct rn_schema_maker *m, const struct rn_str *name); /* of a member, as it is written */
rn_expr rn_schema_string(struct rn_schema_maker *m, const struct rn_case *the);
rn_expr rn_schema_content(struct rn_schema_maker *m, const struct rn_case *the,
                          struct rn_literals literals);                                        /* no quotes */
rn_expr rn_schema_spelled(struct rn_schema_maker *m, const char *text, size_t n, bool quoted); /* one string */
rn_expr rn_schema_plain(struct rn_schema_maker *m, uint32_t least,
                        uint32_t most); /* characters in their one spelling */

/* The texts of a pattern or a format; RN_GRAMMAR_NONE: it is not enforced. Made once. */
rn_expr rn_schema_text_rule(struct rn_schema_maker *m, const struct rn_text_rule *rule);
enum rn_holds rn_schema_text_holds(struct rn_schema_maker *m, const struct rn_text_rule *rule,
                                   const struct rn_str *text);

/* The regular expression of a format; NULL: none is known. *ignored: the standard does not name it, so it says nothing
 * about the text. */
const char *rn_schema_format(const struct rn_str *name, bool *ignored);

/* ---- numbers.c ---- */

const struct rn_decimal *rn_schema_decimal(struct rn_arena *arena, struct rn_value value);
int rn_decimal_compare(const struct rn_decimal *a, const struct rn_decimal *b);
bool rn_decimal_is_multiple(const struct rn_decimal *a, uint32_t unit, uint32_t places);
const char *rn_decimal_text(struct rn_arena *arena, const struct rn_decimal *a, size_t *n);
rn_expr rn_schema_number(struct rn_schema_maker *m, const struct rn_case *the);

/* ---- arrays.c, objects.c ---- */

rn_expr rn_schema_array(struct rn_schema_maker *m, const struct rn_case *the);
rn_expr rn_schema_items(struct rn_schema_maker *m, const struct rn_case *the); /* without brackets */

/* All items are alike, and nothing is said of some or two of them. */
bool rn_schema_items_plain(const struct rn_case *the);
rn_expr rn_schema_object(struct rn_schema_maker *m, const struct rn_case *the);

/* Members of an object that are written in another form than JSON's, without braces; none but those that the schema
 * lists. */
rn_expr rn_schema_members(struct rn_schema_maker *m, const struct rn_case *the);

/* Does a key of the schema's patternProperties match the name? */
enum rn_holds rn_schema_pattern_has(struct rn_schema_maker *m, const struct rn_schema *schema,
                                    const struct rn_str *pattern, const struct rn_str *name);

/* What a schema says of properties that it neither lists nor matches by a pattern; undefined: nothing. */
struct rn_value rn_schema_others(const struct rn_schema *schema);

/* What holds of item i; of the value of a property. */
const struct rn_literal_list *rn_schema_item(struct rn_schema_maker *m, const struct rn_case *the, uint32_t i);
const struct rn_literal_list *rn_schema_property(struct rn_schema_maker *m, const struct rn_case *the,
                                                 const struct rn_str *name);

/* May this be a property's name, by propertyNames and what is lacking? */
bool rn_schema_name_allowed(struct rn_schema_maker *m, const struct rn_case *the, const struct rn_str *name);
bool rn_name_list_has(struct rn_schema_maker *m, const struct rn_name_list *list, const struct rn_str *name);
bool rn_str_same(const struct rn_str *a, const struct rn_str *b);

/* ---- arguments.c ---- */

/* May a reader see something else than strings in an argument whose strings are bare? root: of the arguments, which has
 * no circles. */
bool rn_schema_ambiguous(struct rn_schema_maker *m, const struct rn_schema *root);

/* A member in the maker's form; RN_GRAMMAR_NONE: it cannot be written. And what stands between two. */
rn_expr rn_schema_member(struct rn_schema_maker *m, const struct rn_str *name, const struct rn_literal_list *goal);
rn_expr rn_schema_between(struct rn_schema_maker *m);

/* A pattern of the calls' format, without names. */
rn_expr rn_schema_form_pattern(struct rn_schema_maker *m, const char *text);

/* What stands in a parameter between its opener and what closes it. types: as a reader sees them; NONE: nothing may. */
rn_expr rn_schema_parameter(struct rn_schema_maker *m, const struct rn_literal_list *goal, uint32_t types);

/* ---- tags.c: objects and lists whose members are marked themselves (text/answer/nested.c) ---- */

/* What a reader finds for a member of m->seen, and its types. */
uint32_t rn_schema_seen_member(struct rn_schema_maker *m, const struct rn_str *name, struct rn_value *seen);

/* The tags within a value, where it can be written so; RN_GRAMMAR_NONE: it cannot. Its rule is made later. */
rn_expr rn_schema_tags(struct rn_schema_maker *m, const struct rn_literal_list *goal, struct rn_value seen);
void rn_schema_make_tags(struct rn_schema_maker *m, struct rn_schema_tags tags);

/* An item in its tag. */
rn_expr rn_schema_tagged(struct rn_schema_maker *m, const struct rn_literal_list *goal, bool first);

/* All texts with none of these in them. The rest of the texts of `from`, or of all. */
rn_expr rn_schema_lacking(struct rn_grammar *g, rn_expr from, rn_expr what);

/* White space where it is free; else nothing. */
rn_expr rn_schema_white(struct rn_schema_maker *m);
rn_expr rn_schema_literal_text(struct rn_schema_maker *m, const char *text); /* NUL-terminated */
rn_expr rn_schema_optional(struct rn_schema_maker *m, rn_expr item);

/* A new rule; raises the grammar's error. */
uint32_t rn_schema_rule(struct rn_schema_maker *m);

/* Raises where the grammar has an error. */
void rn_schema_look(struct rn_schema_maker *m);

#endif
