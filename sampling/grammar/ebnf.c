/* EBNF in Lark's notation: see front.h.
 *
 *     rule          name: alternatives; lines that begin with | go on. In front of the name ? ! _ are allowed
 *     terminal      NAME: alternatives of texts, without rules. NAME.2: the priority says nothing here
 *     texts         "text", "text"i (ASCII letters in either case), /regex/ with the flags i, s, m, u, "a".."z"
 *     repetition    * + ? [optional] ~3 ~2..4, and {3} {2,4} {2,}; a space may stand before them
 *     tokens        <[17]>, <think>
 *     %ignore X     texts that may stand before each text of a rule, and at the end
 *     %import common.INT -> NUMBER, %import common (INT, WS), from the list below
 *     -> name       behind an alternative: names a tree, which nobody builds here
 *     comments      // and # up to the end of the line
 *
 * There is no lexer: a terminal may be any of its texts, not only the longest that fits. So what Lark's lexer would
 * read as one word may be read as two; keep words apart by what stands between them. */
#include <string.h>

#include "sampling/grammar/front.h"
#include "sampling/grammar/reader.h"

/* Terminals of Lark's library "common", as regular expressions. */
static const char *const common[][2] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

struct ebnf {
    struct rn_reader r;
    uint32_t ignored; /* rule: what may stand before a text */
    rn_expr *ignore;  /* [n_ignore] */
    uint32_t n_ignore, room_ignore;
};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-';
}

/* The first letter behind underscores tells a terminal from a rule. */
static bool is_terminal(const char *name, size_t n)
{
    size_t i = 0;

    while (i + 1 < n && name[i] == '_')
        i++;
    return name[i] >= 'A' && name[i] <= 'Z';
}

static void skip_space(struct rn_reader *r, bool lines)
{
    rn_reader_skip_space(r, lines, true);
}

/* Takes a name; 0: there is none. */
static size_t read_name(struct rn_reader *r)
{
    size_t begin = r->at;

    if (is_letter(rn_reader_peek(r, 0)))
        while (is_name(rn_reader_peek(r, 0)) && !(rn_reader_peek(r, 0) == '-' && rn_reader_peek(r, 1) == '>'))
            r->at++;
    return r->at - begin;
}

/* ---- Texts ---- */

static uint32_t read_character(struct rn_reader *r)
{
    return rn_reader_escaped(r, "ntrfvxuU\"\\/'");
}

/* A letter in both cases. */
static rn_expr either_case(struct rn_grammar *g, uint32_t c)
{
    const struct rn_code_points both[] = {{c & ~32u, c & ~32u}, {c | 32u, c | 32u}};

    return rn_grammar_set(g, both, 2, false);
}

/* "a".."z", behind the dots and the quote. */
static rn_expr read_range(struct rn_reader *r, uint32_t first)
{
    struct rn_code_points range = {first, read_character(r)};

    if (!rn_reader_take(r, "\""))
        rn_reader_fail(r, RUNNEL_FORMAT, "a range is written \"a\"..\"z\", with one character on either side");
    return rn_grammar_failed(r->g) ? RN_GRAMMAR_NONE : rn_grammar_set(r->g, &range, 1, false);
}

/* Behind the quote. */
static rn_expr read_text(struct rn_reader *r)
{
    size_t begin = r->at, end;
    uint32_t from = r->n_parts, n = 0, c = 0;
    bool ignore_case;

    while (!rn_reader_done(r) && rn_reader_peek(r, 0) != '"') { /* to know the flag behind it first */
        c = read_character(r);
        n++;
    }
    if (!rn_reader_take(r, "\"")) {
        rn_reader_fail(r, RUNNEL_FORMAT, "a text has no quote behind it");
        return RN_GRAMMAR_NONE;
    }
    if (n == 1 && rn_reader_take(r, "..\""))
        return read_range(r, c);
    ignore_case = rn_reader_peek(r, 0) == 'i' && !is_name(rn_reader_peek(r, 1)) && rn_reader_take(r, "i");
    end = r->at;
    for (r->at = begin; !rn_grammar_failed(r->g) && n > 0; n--) {
        c = read_character(r);
        if (ignore_case && is_letter((char)(c < 128 ? c : 0)) && c != '_')
            rn_reader_push(r, either_case(r->g, c));
        else
            rn_reader_push(r, rn_reader_code_point(r, c));
    }
    r->at = end;
    return rn_reader_sequence(r, from);
}

/* Behind the slash. */
static rn_expr read_regex(struct rn_reader *r)
{
    struct rn_regex_options options = {.search = false};
    size_t begin = r->at, end;
    bool in_class = false;

    for (; !rn_reader_done(r) && (in_class || rn_reader_peek(r, 0) != '/') && rn_reader_peek(r, 0) != '\n'; r->at++) {
        if (rn_reader_peek(r, 0) == '\\' && r->at + 1 < r->n)
            r->at++;
        else if (rn_reader_peek(r, 0) == '[')
            in_class = true;
        else if (rn_reader_peek(r, 0) == ']')
            in_class = false;
    }
    end = r->at;
    if (!rn_reader_take(r, "/")) {
        r->at = begin;
        rn_reader_fail(r, RUNNEL_FORMAT, "a regular expression has no \"/\" behind it");
        return RN_GRAMMAR_NONE;
    }
    for (; rn_reader_peek(r, 0) >= 'a' && rn_reader_peek(r, 0) <= 'z'; r->at++) {
        char flag = rn_reader_peek(r, 0);

        options.ignore_case = options.ignore_case || flag == 'i';
        options.dot_all = options.dot_all || flag == 's';
        if (strchr("ismu", flag) == NULL)
            rn_reader_fail(r, RUNNEL_UNSUPPORTED, "the flag %c of a regular expression is not supported", flag);
    }
    return rn_regex(r->g, r->text + begin, end - begin, begin, &options);
}

/* ---- Alternatives ---- */

static rn_expr read_alternatives(struct ebnf *x, bool in_rule, bool nested);

/* A text of a rule, with what may stand before it. */
static rn_expr with_ignored(struct ebnf *x, rn_expr e, bool in_rule)
{
    if (!in_rule || rn_grammar_failed(x->r.g))
        return e;
    return rn_grammar_sequence(x->r.g, (rn_expr[]){rn_grammar_call(x->r.g, x->ignored), e}, 2);
}

static rn_expr read_group(struct ebnf *x, bool in_rule, const char *end)
{
    struct rn_reader *r = &x->r;
    rn_expr e;

    if (!rn_reader_enter(r))
        return RN_GRAMMAR_NONE;
    e = read_alternatives(x, in_rule, true);
    if (!rn_reader_take(r, end))
        rn_reader_fail(r, RUNNEL_FORMAT, "\"%s\" is expected", end);
    rn_reader_leave(r);
    return e;
}

static rn_expr read_call(struct ebnf *x, bool in_rule)
{
    struct rn_reader *r = &x->r;
    size_t begin = r->at, n = read_name(r);
    rn_expr call;

    rn_grammar_at(r->g, begin);
    if (n > 0 && !in_rule && !is_terminal(r->text + begin, n)) {
        rn_grammar_fail(r->g, RUNNEL_FORMAT, "the terminal calls the rule \"%s\"",
                        rn_grammar_quote(r->text + begin, n).text);
        return RN_GRAMMAR_NONE;
    }
    if (rn_reader_peek(r, 0) == '{' && rn_reader_peek(r, 1) != '\0' &&
        strchr("0123456789, ", rn_reader_peek(r, 1)) == NULL) {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "templates are not supported");
        return RN_GRAMMAR_NONE;
    }
    call = rn_grammar_call(r->g, rn_grammar_rule(r->g, r->text + begin, n));
    return is_terminal(r->text + begin, n) ? with_ignored(x, call, in_rule) : call;
}

static rn_expr read_part(struct ebnf *x, bool in_rule)
{
    struct rn_reader *r = &x->r;

    rn_grammar_at(r->g, r->at);
    if (rn_reader_take(r, "("))
        return read_group(x, in_rule, ")");
    if (rn_reader_take(r, "["))
        return rn_grammar_repeat(r->g, read_group(x, in_rule, "]"), 0, 1);
    if (rn_reader_take(r, "\""))
        return with_ignored(x, read_text(r), in_rule);
    if (rn_reader_take(r, "/"))
        return with_ignored(x, read_regex(r), in_rule);
    if (rn_reader_peek(r, 0) == '<')
        return with_ignored(x, rn_reader_token(r, false), in_rule);
    return read_call(x, in_rule);
}

/* ~3, ~2..4, {3}, {2,4}, {2,}, {,4}: behind the first character. */
static rn_expr read_counts(struct rn_reader *r, rn_expr e, const char *between, const char *end)
{
    uint32_t least = 0, most;
    bool some;

    skip_space(r, false);
    some = rn_reader_number(r, &least);
    most = least;
    skip_space(r, false);
    if (rn_reader_take(r, between)) {
        skip_space(r, false);
        if (!rn_reader_number(r, &most))
            most = RN_GRAMMAR_FOREVER;
        else
            some = true;
        skip_space(r, false);
    }
    if (!some || !rn_reader_take(r, end))
        rn_reader_fail(r, RUNNEL_FORMAT, "a number of repetitions is expected, as ~2..4 or {2,4}");
    return rn_grammar_repeat(r->g, e, least, most);
}

/* Behind a space and in front of a name it is no operator, as in Lark. */
static bool take_question(struct rn_reader *r, bool spaced)
{
    char next = rn_reader_peek(r, 1);

    return !(spaced && ((next >= 'a' && next <= 'z') || next == '_')) && rn_reader_take(r, "?");
}

static rn_expr read_repeats(struct rn_reader *r, rn_expr e)
{
    for (;;) {
        size_t begin = r->at;

        skip_space(r, false);
        rn_grammar_at(r->g, r->at);
        if (rn_reader_take(r, "*"))
            e = rn_grammar_repeat(r->g, e, 0, RN_GRAMMAR_FOREVER);
        else if (rn_reader_take(r, "+"))
            e = rn_grammar_repeat(r->g, e, 1, RN_GRAMMAR_FOREVER);
        else if (take_question(r, r->at > begin))
            e = rn_grammar_repeat(r->g, e, 0, 1);
        else if (rn_reader_take(r, "{"))
            e = read_counts(r, e, ",", "}");
        else if (rn_reader_take(r, "~"))
            e = read_counts(r, e, "..", "");
        else
            return e;
    }
}

static bool begins_part(const struct rn_reader *r)
{
    char c = rn_reader_peek(r, 0);

    return c == '"' || c == '[' || c == '(' || c == '/' || c == '<' || is_letter(c);
}

static void skip_alias(struct rn_reader *r)
{
    if (!rn_reader_take(r, "->"))
        return;
    skip_space(r, false);
    if (read_name(r) == 0)
        rn_reader_fail(r, RUNNEL_FORMAT, "a name is expected behind \"->\"");
    skip_space(r, false);
}

static rn_expr read_alternatives(struct ebnf *x, bool in_rule, bool nested)
{
    struct rn_reader *r = &x->r;
    uint32_t from = r->n_parts;

    do {
        uint32_t sequence = r->n_parts;

        for (skip_space(r, nested); !rn_reader_done(r) && begins_part(r); skip_space(r, nested))
            rn_reader_push(r, read_repeats(r, read_part(x, in_rule)));
        skip_alias(r);
        rn_reader_push(r, rn_reader_sequence(r, sequence));
    } while (!rn_grammar_failed(r->g) && rn_reader_goes_on(r, true) && rn_reader_take(r, "|"));
    if (nested)
        skip_space(r, true);
    return rn_reader_alternatives(r, from);
}

/* ---- Lines ---- */

static void add_ignore(struct ebnf *x)
{
    rn_expr e = read_alternatives(x, false, false);

    if (x->n_ignore == x->room_ignore) {
        uint32_t room = x->room_ignore == 0 ? 8 : x->room_ignore * 2;
        rn_expr *ignore = rn_realloc(x->r.g->heap, x->ignore, room, sizeof *ignore);

        if (ignore == NULL) {
            rn_grammar_fail(x->r.g, RUNNEL_NO_MEMORY, "no memory for a grammar");
            return;
        }
        x->ignore = ignore;
        x->room_ignore = room;
    }
    x->ignore[x->n_ignore++] = e;
}

/* One terminal of the library, by its name there, under another. */
static void import(struct rn_reader *r, size_t name, size_t n, size_t alias, size_t n_alias)
{
    size_t i;

    for (i = 0; i < sizeof common / sizeof common[0]; i++) {
        const char *regex = common[i][1];

        if (strlen(common[i][0]) != n || memcmp(common[i][0], r->text + name, n) != 0)
            continue;
        rn_grammar_define(r->g, rn_grammar_rule(r->g, r->text + alias, n_alias),
                          rn_regex(r->g, regex, strlen(regex), name, NULL));
        return;
    }
    rn_grammar_at(r->g, name);
    rn_grammar_fail(r->g, RUNNEL_UNSUPPORTED, "the library has no terminal \"%s\"",
                    rn_grammar_quote(r->text + name, n).text);
}

/* Behind %import. */
static void read_import(struct rn_reader *r)
{
    size_t name, n, alias, n_alias;

    skip_space(r, false);
    if (!rn_reader_take(r, "common")) {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "only terminals of the library \"common\" can be imported");
        return;
    }
    skip_space(r, false);
    if (rn_reader_take(r, "(")) {
        do {
            skip_space(r, true);
            name = r->at;
            n = read_name(r);
            import(r, name, n, name, n);
            skip_space(r, true);
        } while (rn_reader_take(r, ","));
        if (!rn_reader_take(r, ")"))
            rn_reader_fail(r, RUNNEL_FORMAT, "\")\" is expected");
        return;
    }
    if (!rn_reader_take(r, "."))
        rn_reader_fail(r, RUNNEL_FORMAT, "\".\" is expected");
    alias = name = r->at;
    n_alias = n = read_name(r);
    skip_space(r, false);
    if (rn_reader_take(r, "->")) {
        skip_space(r, false);
        alias = r->at;
        n_alias = read_name(r);
    }
    if (n_alias == 0)
        rn_reader_fail(r, RUNNEL_FORMAT, "a name is expected");
    else
        import(r, name, n, alias, n_alias);
}

static void read_definition(struct ebnf *x)
{
    struct rn_reader *r = &x->r;
    size_t begin, n;
    uint32_t number, rule;

    while (rn_reader_take(r, "?") || rn_reader_take(r, "!"))
        ;
    begin = r->at;
    n = read_name(r);
    if (n == 0) {
        rn_reader_fail(r, RUNNEL_FORMAT, "the name of a rule is expected");
        return;
    }
    rn_grammar_at(r->g, begin);
    rule = rn_grammar_rule(r->g, r->text + begin, n);
    if (rn_reader_take(r, ".")) {
        rn_reader_take(r, "-");
        rn_reader_number(r, &number);
    }
    skip_space(r, false);
    if (rn_reader_peek(r, 0) == '{' || rn_reader_peek(r, 0) == '[') {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "templates and attributes of rules are not supported");
    } else if (!rn_reader_take(r, ":")) {
        rn_reader_fail(r, RUNNEL_FORMAT, "\":\" is expected");
    } else {
        rn_reader_goes_on(r, true);
        rn_reader_take(r, "|");
        rn_grammar_define(r->g, rule, read_alternatives(x, !is_terminal(r->text + begin, n), false));
    }
}

static void read_line(struct ebnf *x)
{
    struct rn_reader *r = &x->r;

    if (rn_reader_take(r, "%ignore"))
        add_ignore(x);
    else if (rn_reader_take(r, "%import"))
        read_import(r);
    else if (rn_reader_peek(r, 0) == '%')
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "of the lines with %% only %%ignore and %%import are supported");
    else
        read_definition(x);
    rn_reader_end_line(r, true);
}

/* The whole answer: start, and what is ignored behind it. */
static uint32_t make_root(struct ebnf *x)
{
    struct rn_grammar *g = x->r.g;
    uint32_t root = rn_grammar_rule(g, NULL, 0);
    rn_expr ignored = rn_grammar_failed(g) ? RN_GRAMMAR_NONE : rn_grammar_alternatives(g, x->ignore, x->n_ignore);

    rn_grammar_define(g, x->ignored, rn_grammar_repeat(g, ignored, 0, RN_GRAMMAR_FOREVER));
    rn_grammar_at(g, 0);
    rn_grammar_define(
        g, root,
        rn_grammar_sequence(
            g, (rn_expr[]){rn_grammar_call(g, rn_grammar_rule(g, "start", 5)), rn_grammar_call(g, x->ignored)}, 2));
    return root;
}

uint32_t rn_ebnf(struct rn_grammar *g, const char *text, size_t n)
{
    struct ebnf x = {.r = {.g = g, .text = text, .n = n}};
    uint32_t root;

    rn_grammar_source(g, text, n);
    x.ignored = rn_grammar_rule(g, NULL, 0);
    for (skip_space(&x.r, true); !rn_reader_done(&x.r); skip_space(&x.r, true))
        read_line(&x);
    root = make_root(&x);
    rn_free(g->heap, x.ignore);
    rn_reader_fini(&x.r);
    return root;
}
