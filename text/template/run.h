/* Templates while they are rendered.
 *
 * A run owns an arena (values), a heap buffer (the text) and the chain of variable environments. Functions here
 * raise: a type error, a bound, no memory; rn_template_render catches. run->at is the place in the source that is
 * being evaluated, for the sentence.
 *
 * Python objects that are no plain values are struct rn_object and what follows it, by kind. */
#ifndef RN_TEXT_TEMPLATE_RUN_H
#define RN_TEXT_TEMPLATE_RUN_H

#include "text/template/ast.h"
#include "text/template/template.h"
#include "text/template/value_text.h"

#define RN_TPL_RANGE_MOST 100000 /* Jinja2's sandbox: a range of more is an error */

struct rn_tpl_env {
    struct rn_tpl_env *outer; /* of the function around */
    struct rn_value slots[];
};

struct rn_run {
    struct rn_arena arena;
    const struct rn_template *tmpl;
    const struct rn_template_context *context;
    struct rn_dict *globals;
    struct rn_tpl_env *env;
    struct rn_sb *out;
    uint32_t at;
    bool own_sentence; /* raise_exception: the sentence stands without a place */
};

/* Raises INVALID with a sentence; the place is run->at. */
#define rn_tpl_fail(run, ...) rn_raise(&(run)->arena, RUNNEL_INVALID, __VA_ARGS__)

/* A variable that has no value; differs from an undefined value, which can be passed on. */
extern const struct rn_str rn_tpl_missing_mark;
static inline struct rn_value rn_tpl_missing(void)
{
    return (struct rn_value){.kind = RN_VALUE_UNDEFINED, .why = &rn_tpl_missing_mark};
}
static inline bool rn_tpl_is_missing(struct rn_value value)
{
    return value.kind == RN_VALUE_UNDEFINED && value.why == &rn_tpl_missing_mark;
}
static inline bool rn_tpl_is_string(struct rn_value value)
{
    return value.kind == RN_VALUE_STRING;
}

/* ---- Calls ---- */

struct rn_tpl_named {
    const struct rn_str *name;
    struct rn_value value;
};

struct rn_tpl_call {
    struct rn_value *args;      /* [n] */
    struct rn_tpl_named *named; /* [n_named] */
    size_t n, n_named;
};

/* A function of ours that templates call: a filter (self: the value filtered), a test, a method (self: the object),
 * a global.
 * params: names with blanks between, "?" behind those that may be left out; a leading "/" forbids to pass them by
 * name; "*" alone: anything. Unless "*", call->args has one item per parameter, rn_tpl_missing where none was given. */
struct rn_tpl_builtin {
    const char *name, *params;
    struct rn_value (*call)(struct rn_run *run, struct rn_value self, const struct rn_tpl_call *call);
    uint32_t flags;
};

#define RN_TPL_MARKUP_KEEP 1u /* a method of str: of Markup it gives Markup, or a list of Markup */
#define RN_TPL_UNSAFE 2u      /* changes a list or dict: Jinja2's sandbox forbids it */

struct rn_value rn_tpl_builtin_call(struct rn_run *run, const struct rn_tpl_builtin *builtin, struct rn_value self,
                                    const struct rn_tpl_call *call);
struct rn_value rn_tpl_call_value(struct rn_run *run, struct rn_value callee, const struct rn_tpl_call *call);
struct rn_tpl_call rn_tpl_eval_args(struct rn_run *run, const struct rn_tpl_args *args);
const struct rn_tpl_builtin *rn_tpl_builtin_find(const struct rn_tpl_builtin *table, size_t n,
                                                 const struct rn_str *name);

/* Puts range, dict, namespace, ... and those of transformers among run->globals. */
void rn_tpl_globals_fill(struct rn_run *run);

/* ---- Objects ---- */

enum rn_tpl_object_kind {
    RN_TPL_OBJECT_MACRO,
    RN_TPL_OBJECT_FUNCTION,
    RN_TPL_OBJECT_METHOD,
    RN_TPL_OBJECT_NAMESPACE,
    RN_TPL_OBJECT_LOOP,
    RN_TPL_OBJECT_JOINER,
    RN_TPL_OBJECT_CYCLER,
    RN_TPL_OBJECT_RANGE,
    RN_TPL_OBJECT_VIEW,
    RN_TPL_OBJECT_ITER
};

struct rn_object {
    enum rn_tpl_object_kind kind;
};

struct rn_tpl_macro_object {
    struct rn_object head;
    const struct rn_tpl_macro *macro;
    struct rn_tpl_env *env;
};

struct rn_tpl_function_object { /* FUNCTION, METHOD */
    struct rn_object head;
    const struct rn_tpl_builtin *builtin;
    struct rn_value self;
};

struct rn_tpl_namespace_object {
    struct rn_object head;
    struct rn_dict *attrs;
};

struct rn_tpl_loop_object {
    struct rn_object head;
    struct rn_value iterable;
    struct rn_tpl_iter *iter;
    int64_t index0, depth0, length; /* length -1: not known yet */
    bool peeked, at_end;            /* `after` is there; or there is none */
    struct rn_value before, current, after, changed;
    const struct rn_tpl_loop *recursive; /* NULL: can not be called */
    struct rn_tpl_env *env;
};

struct rn_tpl_joiner_object {
    struct rn_object head;
    struct rn_value separator;
    bool used;
};

struct rn_tpl_cycler_object {
    struct rn_object head;
    struct rn_list *items;
    size_t at;
};

struct rn_tpl_range_object {
    struct rn_object head;
    int64_t start, step, n, stop;
};

enum rn_tpl_view_kind { RN_TPL_VIEW_KEYS, RN_TPL_VIEW_VALUES, RN_TPL_VIEW_ITEMS };

struct rn_tpl_view_object {
    struct rn_object head;
    enum rn_tpl_view_kind kind;
    struct rn_dict *dict;
};

/* An iterator: over a container, or a generator that a filter made. */
enum rn_tpl_iter_kind {
    RN_TPL_ITER_LIST,
    RN_TPL_ITER_REVERSED, /* list */
    RN_TPL_ITER_STRING,
    RN_TPL_ITER_DICT,
    RN_TPL_ITER_RANGE,
    RN_TPL_ITER_VIEW,
    RN_TPL_ITER_EMPTY,
    RN_TPL_ITER_LOOP,      /* a loop variable, iterated over: goes on with the loop */
    RN_TPL_ITER_LOOP_TEST, /* the items of `inner` that pass the test of a for */
    RN_TPL_ITER_MAP,       /* of filters: made when the first item is asked for */
    RN_TPL_ITER_SELECT,
    RN_TPL_ITER_LAZY /* a list that `make` makes when the first item is asked for */
};

struct rn_tpl_iter {
    struct rn_object head;
    enum rn_tpl_iter_kind kind;
    bool started;
    size_t at;
    union {
        struct rn_list *list;
        const struct rn_str *string;
        struct rn_dict *dict;
        const struct rn_tpl_range_object *range;
        const struct rn_tpl_view_object *view;
        struct rn_tpl_loop_object *around;
    };
    /* generators */
    struct rn_value source;
    struct rn_tpl_iter *inner;
    struct rn_tpl_call call;
    const struct rn_tpl_loop *loop;
    struct rn_tpl_env *env;
    bool by_attribute, negate;
    struct rn_list *path; /* of an attribute */
    struct rn_value or_else;
    const struct rn_tpl_builtin *builtin;
    struct rn_list *(*make)(struct rn_run *run, struct rn_value source, const struct rn_tpl_call *call);
};

void *rn_tpl_object_new(struct rn_run *run, enum rn_tpl_object_kind kind, size_t bytes);
struct rn_value rn_tpl_object_value(void *object);
bool rn_tpl_is_object(struct rn_value value, enum rn_tpl_object_kind kind);

/* iter.c. rn_tpl_iter_of raises if the value can not be iterated; rn_tpl_iter_try gives NULL instead. */
struct rn_tpl_iter *rn_tpl_iter_of(struct rn_run *run, struct rn_value value);
struct rn_tpl_iter *rn_tpl_iter_try(struct rn_run *run, struct rn_value value);
bool rn_tpl_iter_next(struct rn_run *run, struct rn_tpl_iter *iter, struct rn_value *out);
struct rn_tpl_iter *rn_tpl_iter_new(struct rn_run *run, enum rn_tpl_iter_kind kind);
struct rn_list *rn_tpl_list_of(struct rn_run *run, struct rn_value value); /* a new list of all items */

/* Reads the arguments of a generator of map, or of select and its like (filters_list.c). */
void rn_tpl_prepare_map(struct rn_run *run, struct rn_tpl_iter *iter);
void rn_tpl_prepare_select(struct rn_run *run, struct rn_tpl_iter *iter);

/* len(); -1: the value has none. */
int64_t rn_tpl_length(struct rn_run *run, struct rn_value value);

/* object.c: the sandbox's getattr and getitem; UNDEFINED where there is nothing. */
struct rn_value rn_tpl_get_attribute(struct rn_run *run, struct rn_value of, const struct rn_str *name,
                                     const struct rn_str *why);
struct rn_value rn_tpl_get_item(struct rn_run *run, struct rn_value of, struct rn_value key);
struct rn_value rn_tpl_get_slice(struct rn_run *run, struct rn_value of, const struct rn_value part[3]);

/* getattr without the fall back to items; false: there is none. */
bool rn_tpl_own_attribute(struct rn_run *run, struct rn_value of, const struct rn_str *name, struct rn_value *out);
struct rn_value rn_tpl_bind_method(struct rn_run *run, const struct rn_tpl_builtin *builtin, struct rn_value self);

/* The parts of "a.b.0" (an attribute argument of filters), and what it finds in an item. */
struct rn_list *rn_tpl_attribute_path(struct rn_run *run, struct rn_value attribute);
struct rn_value rn_tpl_follow_path(struct rn_run *run, const struct rn_list *path, struct rn_value item,
                                   struct rn_value or_else);

/* Loops; loop.c. */
bool rn_tpl_loop_next(struct rn_run *run, struct rn_tpl_loop_object *loop, struct rn_value *out);
int64_t rn_tpl_loop_length(struct rn_run *run, struct rn_tpl_loop_object *loop);
bool rn_tpl_loop_attribute(struct rn_run *run, struct rn_tpl_loop_object *loop, const struct rn_str *name,
                           struct rn_value *out);

/* ---- Values ---- */

/* Raises what using an undefined value says. */
_Noreturn void rn_tpl_fail_undefined(struct rn_run *run, struct rn_value value);

const char *rn_tpl_type_name(struct rn_value value);
bool rn_tpl_truth(struct rn_run *run, struct rn_value value);
struct rn_value rn_tpl_binary(struct rn_run *run, enum rn_tpl_op op, struct rn_value a, struct rn_value b);
struct rn_value rn_tpl_negate(struct rn_run *run, struct rn_value a, bool minus);
bool rn_tpl_compare(struct rn_run *run, enum rn_tpl_op op, struct rn_value a, struct rn_value b);
bool rn_tpl_contains(struct rn_run *run, struct rn_value container, struct rn_value item);

/* An integer from int or bool; raises TypeError's sentence else. */
int64_t rn_tpl_want_int(struct rn_run *run, struct rn_value value, const char *what);
const struct rn_str *rn_tpl_want_string(struct rn_run *run, struct rn_value value, const char *what);

/* str() and repr(): print.c. A list or dict that holds any data is data as a whole. */
const struct rn_str *rn_tpl_str_value(struct rn_run *run, struct rn_value value);
const struct rn_str *rn_tpl_repr_value(struct rn_run *run, struct rn_value value);
void rn_tpl_put_value(struct rn_run *run, struct rn_sb *sb, struct rn_value value); /* str() */

/* Markup: markup.c. */
const struct rn_str *rn_tpl_escape(struct rn_run *run, struct rn_value value);

/* json.dumps: json.c. indent: NONE, INT or STRING; separators NULL: the defaults. */
struct rn_tpl_json_options {
    bool ensure_ascii, sort_keys;
    struct rn_value indent;
    const struct rn_str *item_separator, *key_separator;
};
const struct rn_str *rn_tpl_json_dump(struct rn_run *run, struct rn_value value,
                                      const struct rn_tpl_json_options *options);

/* format.c, format_spec.c */
const struct rn_str *rn_tpl_format_percent(struct rn_run *run, const struct rn_str *format, struct rn_value args);
const struct rn_str *rn_tpl_format_braces(struct rn_run *run, const struct rn_str *format,
                                          const struct rn_tpl_call *call);
void rn_tpl_format_spec(struct rn_run *run, struct rn_sb *sb, struct rn_value value, const struct rn_str *spec);

/* Stable; key(a) < key(b) by Python's order. keys and items are moved together. */
void rn_tpl_sort(struct rn_run *run, struct rn_value *keys, struct rn_value *items, size_t n, bool reverse);

/* ---- Rendering ---- */

enum rn_tpl_flow { RN_TPL_FLOW_NEXT, RN_TPL_FLOW_BREAK, RN_TPL_FLOW_CONTINUE };

struct rn_value rn_tpl_eval(struct rn_run *run, const struct rn_tpl_node *node);
struct rn_value rn_tpl_eval_filter(struct rn_run *run, const struct rn_tpl_node *node, const struct rn_str *block);
enum rn_tpl_flow rn_tpl_exec(struct rn_run *run, const struct rn_tpl_node *node);
enum rn_tpl_flow rn_tpl_exec_loop(struct rn_run *run, const struct rn_tpl_node *node);
void rn_tpl_assign(struct rn_run *run, const struct rn_tpl_node *target, struct rn_value value);
struct rn_value *rn_tpl_slot(struct rn_tpl_env *env, struct rn_tpl_ref ref);
struct rn_tpl_env *rn_tpl_env_new(struct rn_run *run, const struct rn_tpl_function *function, struct rn_tpl_env *outer);
void rn_tpl_enter_frame(struct rn_run *run, const struct rn_tpl_frame *frame);
void rn_tpl_leave_frame(struct rn_run *run, const struct rn_tpl_frame *frame);
struct rn_value rn_tpl_call_macro(struct rn_run *run, struct rn_tpl_macro_object *object,
                                  const struct rn_tpl_call *call);
struct rn_value rn_tpl_call_loop(struct rn_run *run, struct rn_tpl_loop_object *loop, struct rn_value iterable);
struct rn_value rn_tpl_strftime(struct rn_run *run, int64_t now_s, const struct rn_str *format);

/* forms.c: the messages in the forms of context->forms. Raises where a content has a part that the template cannot
 * take. */
void rn_tpl_fix_messages(struct rn_run *run, struct rn_value messages);

extern const char *const rn_tpl_role_names[]; /* [RN_TEMPLATE_OTHER] by enum rn_template_role */

/* The content of a turn, with calls or without, that says what `given` says and is fit for the template. */
enum rn_template_content rn_tpl_fit_content(const struct rn_template_forms *forms, bool calls,
                                            enum rn_template_content given);

/* Methods of str, list, tuple, dict ... by name; NULL: none (methods.c, methods_str.c). */
const struct rn_tpl_builtin *rn_tpl_str_method(const struct rn_str *name);
const struct rn_tpl_builtin *rn_tpl_method(struct rn_value of, const struct rn_str *name);

#endif
