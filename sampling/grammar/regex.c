/* Regular expressions: see front.h.
 *
 * Anchors: a grammar's expression knows nothing of what stands around it, so ^ and $ are taken where they say something
 * about the whole text: at the ends of an alternative of the whole expression, or of a group that is such an
 * alternative by itself, as in (^a$|^b). Searching, an alternative without ^ has any characters before it, one without
 * $ behind. */
#include <string.h>

#include "sampling/grammar/code_points.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/reader.h"
#include "text/unicode.h"

struct regex {
    struct rn_reader r;
    const struct rn_regex_options *options;
    struct rn_code_points *ranges; /* of the class that is being read */
    uint32_t n_ranges, room_ranges;
};

static const struct rn_code_points digits[] = {{'0', '9'}};
static const struct rn_code_points word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct rn_code_points space[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                              {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                              {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct rn_code_points line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/* ---- Sets ---- */

static void add_range(struct regex *x, uint32_t first, uint32_t last)
{
    if (rn_grammar_failed(x->r.g))
        return;
    if (x->n_ranges + 8 > x->room_ranges) { /* and room for what normalising and negating needs */
        uint32_t room = x->room_ranges == 0 ? 64 : x->room_ranges * 2;
        struct rn_code_points *ranges = rn_realloc(x->r.g->heap, x->ranges, room, sizeof *ranges);

        if (ranges == NULL) {
            rn_grammar_fail(x->r.g, RUNNEL_NO_MEMORY, "no memory for a grammar");
            return;
        }
        x->ranges = ranges;
        x->room_ranges = room;
    }
    x->ranges[x->n_ranges++] = (struct rn_code_points){first, last};
}

static void add_ranges(struct regex *x, const struct rn_code_points *ranges, uint32_t n, bool negated)
{
    uint32_t next = 0, i;

    for (i = 0; i < n; i++) {
        if (!negated)
            add_range(x, ranges[i].first, ranges[i].last);
        else if (ranges[i].first > next)
            add_range(x, next, ranges[i].first - 1);
        next = ranges[i].last + 1;
    }
    if (negated && next <= RN_CODE_POINT_MOST)
        add_range(x, next, RN_CODE_POINT_MOST);
}

/* The other case of ASCII letters beside those that are there. */
static void add_cases(struct regex *x, uint32_t from)
{
    uint32_t n = x->n_ranges, i;
    uint32_t c;

    for (i = from; i < n && x->options->ignore_case; i++) {
        for (c = 'a'; c <= 'z'; c++) {
            if (x->ranges[i].first <= c && c <= x->ranges[i].last)
                add_range(x, c - 32, c - 32);
            if (x->ranges[i].first <= c - 32 && c - 32 <= x->ranges[i].last)
                add_range(x, c, c);
        }
    }
}

/* The ranges gathered become an expression, and leave. */
static rn_expr take_set(struct regex *x, bool negated)
{
    struct rn_grammar *g = x->r.g;
    uint32_t n;
    rn_expr e;

    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    add_cases(x, 0);
    n = x->n_ranges;
    x->n_ranges = 0;
    if (x->options->write == NULL)
        return rn_grammar_set(g, x->ranges, n, negated);
    n = (uint32_t)rn_code_points_normalise(x->ranges, n);
    if (negated) {
        struct rn_code_points *others = rn_alloc(g->heap, (size_t)n + 2, sizeof *others);

        if (others == NULL) {
            rn_grammar_fail(g, RUNNEL_NO_MEMORY, "no memory for a grammar");
            return RN_GRAMMAR_NONE;
        }
        n = (uint32_t)rn_code_points_negate(x->ranges, n, others);
        e = x->options->write(x->options->user, g, others, n);
        rn_free(g->heap, others);
        return e;
    }
    return n == 0 ? rn_grammar_alternatives(g, NULL, 0) : x->options->write(x->options->user, g, x->ranges, n);
}

static rn_expr set_of(struct regex *x, const struct rn_code_points *ranges, uint32_t n, bool negated)
{
    add_ranges(x, ranges, n, negated);
    return take_set(x, false);
}

static rn_expr any_characters(struct regex *x)
{
    return rn_grammar_repeat(x->r.g, set_of(x, NULL, 0, true), 0, RN_GRAMMAR_FOREVER);
}

/* ---- Properties ---- */

static const struct {
    const char *name, *long_name;
    uint32_t mask;
} categories[] = {
    {"L", "Letter", RN_CHAR_LETTER},
    {"LC", "Cased_Letter", RN_CHAR_LU | RN_CHAR_LL | RN_CHAR_LT},
    {"Lu", "Uppercase_Letter", RN_CHAR_LU},
    {"Ll", "Lowercase_Letter", RN_CHAR_LL},
    {"Lt", "Titlecase_Letter", RN_CHAR_LT},
    {"Lm", "Modifier_Letter", RN_CHAR_LM},
    {"Lo", "Other_Letter", RN_CHAR_LO},
    {"M", "Mark", RN_CHAR_MARK},
    {"M", "Combining_Mark", RN_CHAR_MARK},
    {"Mn", "Nonspacing_Mark", RN_CHAR_MN},
    {"N", "Number", RN_CHAR_NUMBER},
    {"Nd", "Decimal_Number", RN_CHAR_ND},
    {"Nd", "digit", RN_CHAR_ND},
    {"Nl", "Letter_Number", RN_CHAR_NL},
    {"No", "Other_Number", RN_CHAR_NO},
    {"P", "Punctuation", RN_CHAR_PUNCT},
    {"P", "punct", RN_CHAR_PUNCT},
    {"Pc", "Connector_Punctuation", RN_CHAR_PC},
    {"S", "Symbol", RN_CHAR_SYMBOL},
};

static uint32_t mask_of_name(const char *name, size_t n)
{
    size_t i;

    for (i = 0; i < sizeof categories / sizeof categories[0]; i++)
        if ((strlen(categories[i].name) == n && memcmp(categories[i].name, name, n) == 0) ||
            (strlen(categories[i].long_name) == n && memcmp(categories[i].long_name, name, n) == 0))
            return categories[i].mask;
    return 0;
}

/* The code points whose category is in the mask. */
static void add_property(struct regex *x, uint32_t mask, bool negated)
{
    uint32_t i, end;

    for (i = 0; i < rn_unicode_n_runs; i++) {
        bool in = (1u << (rn_unicode_runs[i] & 0xff) & mask) != 0;

        end = i + 1 < rn_unicode_n_runs ? rn_unicode_runs[i + 1] >> 8 : RN_CODE_POINT_MOST + 1;
        if (in != negated)
            add_range(x, rn_unicode_runs[i] >> 8, end - 1);
    }
}

/* \p{..}, behind the p: into the ranges. */
static void read_property(struct regex *x, bool negated)
{
    struct rn_reader *r = &x->r;
    size_t begin, name;
    uint32_t mask;

    if (!rn_reader_take(r, "{")) {
        rn_reader_fail(r, RUNNEL_FORMAT, "\"{\" is expected behind \\p");
        return;
    }
    begin = name = r->at;
    for (; !rn_reader_done(r) && rn_reader_peek(r, 0) != '}'; r->at++)
        name = rn_reader_peek(r, 0) == '=' ? r->at + 1 : name; /* General_Category=L, gc=L */
    mask = mask_of_name(r->text + name, r->at - name);
    if (mask == 0) {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "the property \"%s\" is not known",
                       rn_grammar_quote(r->text + begin, r->at - begin).text);
        return;
    }
    if (!rn_reader_take(r, "}"))
        rn_reader_fail(r, RUNNEL_FORMAT, "\"}\" is expected");
    add_property(x, mask, negated);
}

/* ---- Escapes ---- */

/* \uHHHH, of two where they are a pair of surrogates, \u{H..}. */
static uint32_t read_unicode(struct rn_reader *r)
{
    uint32_t c = 0, low;
    size_t begin;

    if (rn_reader_take(r, "{")) {
        begin = r->at;
        while (!rn_reader_done(r) && rn_reader_peek(r, 0) != '}' && r->at - begin < 7)
            c = c << 4 | rn_reader_hex(r, 1);
        if (!rn_reader_take(r, "}") || r->at == begin + 1 || c > RN_CODE_POINT_MOST)
            rn_reader_fail(r, RUNNEL_FORMAT, "a character is written \\u{1F600}");
        return c;
    }
    c = rn_reader_hex(r, 4);
    if (c < 0xd800 || c > 0xdbff || rn_reader_peek(r, 0) != '\\' || rn_reader_peek(r, 1) != 'u')
        return c;
    r->at += 2;
    low = rn_reader_hex(r, 4);
    if (low < 0xdc00 || low > 0xdfff)
        rn_reader_fail(r, RUNNEL_FORMAT, "a surrogate without another");
    return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* A control character's escape; UINT32_MAX: it is not one. */
static uint32_t control_of(char c)
{
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    default:
        return UINT32_MAX;
    }
}

/* Behind the backslash: a set's letter adds to the ranges and gives UINT32_MAX, else the character. */
static uint32_t read_escape(struct regex *x)
{
    struct rn_reader *r = &x->r;
    char c = rn_reader_peek(r, 0);
    uint32_t control = control_of(c);

    if (control != UINT32_MAX || c == 'x' || c == 'u' || c == 'c') {
        r->at++;
        if (c == 'x')
            return rn_reader_hex(r, 2);
        return c == 'u' ? read_unicode(r) : c == 'c' ? rn_reader_character(r) % 32 : control;
    }
    switch (c) {
    case 'd':
    case 'D':
        add_ranges(x, digits, 1, c == 'D');
        break;
    case 'w':
    case 'W':
        add_ranges(x, word, 4, c == 'W');
        break;
    case 's':
    case 'S':
        add_ranges(x, space, sizeof space / sizeof space[0], c == 'S');
        break;
    case 'p':
    case 'P':
        r->at++;
        read_property(x, c == 'P');
        return UINT32_MAX;
    case '0':
        if (rn_reader_peek(r, 1) < '0' || rn_reader_peek(r, 1) > '9') {
            r->at++;
            return 0;
        } /* fall through */
    default:
        if ((c >= '0' && c <= '9') || c == 'k')
            rn_reader_fail(r, RUNNEL_UNSUPPORTED, "back references are not supported");
        else if (c == 'b' || c == 'B')
            rn_reader_fail(r, RUNNEL_UNSUPPORTED, "the word boundary \\%c is not supported", c);
        else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\0')
            rn_reader_fail(r, RUNNEL_FORMAT, "an escape that is not known");
        return rn_reader_character(r);
    }
    r->at++;
    return UINT32_MAX;
}

/* ---- Classes ---- */

/* One member: a character, or UINT32_MAX where a set was added. */
static uint32_t read_member(struct regex *x)
{
    struct rn_reader *r = &x->r;

    if (!rn_reader_take(r, "\\"))
        return rn_reader_character(r);
    if (rn_reader_take(r, "b"))
        return '\b';
    return read_escape(x);
}

/* Behind the [. */
static rn_expr read_class(struct regex *x)
{
    struct rn_reader *r = &x->r;
    bool negated = rn_reader_take(r, "^");

    while (!rn_reader_done(r) && rn_reader_peek(r, 0) != ']') {
        uint32_t first = read_member(x), last = first;

        if (first != UINT32_MAX && rn_reader_peek(r, 0) == '-' && rn_reader_peek(r, 1) != ']') {
            size_t dash = r->at++;

            last = read_member(x);
            if (last == UINT32_MAX) { /* [a-\d]: a dash among others */
                add_range(x, '-', '-');
                last = first;
            } else if (last < first) {
                r->at = dash;
                rn_reader_fail(r, RUNNEL_FORMAT, "a range of characters ends before it begins");
            }
        }
        if (first != UINT32_MAX)
            add_range(x, first, last);
    }
    if (!rn_reader_take(r, "]"))
        rn_reader_fail(r, RUNNEL_FORMAT, "a class of characters has no \"]\" behind it");
    return take_set(x, negated);
}

/* ---- Groups ---- */

static rn_expr read_alternatives(struct regex *x, bool whole);

/* Where the group that has been opened ends: its ")", or the end of the text. */
static size_t end_of_group(const struct rn_reader *r)
{
    size_t at, depth = 1;
    bool in_class = false;

    for (at = r->at; at < r->n; at++) {
        char c = r->text[at];

        if (c == '\\')
            at++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(')
            depth++;
        else if (c == ')' && --depth == 0)
            break;
    }
    return at < r->n ? at : r->n;
}

/* Behind "(?": takes what says that the group only groups; anything else is refused by name. */
static void read_group_kind(struct rn_reader *r)
{
    if (rn_reader_take(r, ":"))
        return;
    if (rn_reader_peek(r, 0) == '=' || rn_reader_peek(r, 0) == '!') {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "lookahead is not supported");
    } else if (rn_reader_peek(r, 0) == '<' && (rn_reader_peek(r, 1) == '=' || rn_reader_peek(r, 1) == '!')) {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "lookbehind is not supported");
    } else if (rn_reader_take(r, "P<") || rn_reader_take(r, "<")) {
        while (!rn_reader_done(r) && rn_reader_peek(r, 0) != '>' && rn_reader_peek(r, 0) != ')')
            r->at++;
        if (!rn_reader_take(r, ">"))
            rn_reader_fail(r, RUNNEL_FORMAT, "the name of a group has no \">\" behind it");
    } else {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "groups of the kind (?%s are not supported",
                       rn_grammar_quote(r->text + r->at, r->n - r->at > 0).text);
    }
}

/* Behind the (. whole: the group is an alternative of the whole expression. */
static rn_expr read_group(struct regex *x, bool whole)
{
    struct rn_reader *r = &x->r;
    rn_expr e;

    if (!rn_reader_enter(r))
        return RN_GRAMMAR_NONE;
    if (rn_reader_take(r, "?"))
        read_group_kind(r);
    e = read_alternatives(x, whole);
    if (!rn_reader_take(r, ")"))
        rn_reader_fail(r, RUNNEL_FORMAT, "a group has no \")\" behind it");
    rn_reader_leave(r);
    return e;
}

/* ---- Sequences ---- */

static rn_expr read_character(struct regex *x, uint32_t c)
{
    if (x->options->write == NULL && !x->options->ignore_case)
        return rn_reader_code_point(&x->r, c);
    if (c > RN_CODE_POINT_MOST || (c >= 0xd800 && c <= 0xdfff))
        return rn_reader_code_point(&x->r, c); /* its error */
    add_range(x, c, c);
    return take_set(x, false);
}

/* {m}, {m,}, {m,n}, {,n}: takes it and tells the counts; false: it is not one, and a brace is a character. */
static bool read_counts(struct rn_reader *r, uint32_t *least, uint32_t *most)
{
    size_t begin = r->at;
    bool has_least, has_most = true;

    if (!rn_reader_take(r, "{"))
        return false;
    has_least = rn_reader_number(r, least);
    *most = *least;
    if (rn_reader_take(r, ",")) {
        has_most = rn_reader_number(r, most);
        if (!has_most)
            *most = RN_GRAMMAR_FOREVER;
    } else {
        has_most = has_least;
    }
    if ((has_least || has_most) && rn_reader_take(r, "}"))
        return true;
    r->at = begin;
    return false;
}

static rn_expr read_atom(struct regex *x)
{
    struct rn_reader *r = &x->r;
    uint32_t c, least, most;

    rn_grammar_at(r->g, r->source_at + r->at);
    if (rn_reader_take(r, "("))
        return read_group(x, false);
    if (rn_reader_take(r, "["))
        return read_class(x);
    if (rn_reader_take(r, "."))
        return x->options->dot_all ? set_of(x, NULL, 0, true) : set_of(x, line_ends, 3, true);
    if (rn_reader_take(r, "\\")) {
        c = read_escape(x);
        return c == UINT32_MAX ? take_set(x, false) : read_character(x, c);
    }
    if (rn_reader_peek(r, 0) == '*' || rn_reader_peek(r, 0) == '+' || rn_reader_peek(r, 0) == '?' ||
        read_counts(r, &least, &most)) {
        rn_reader_fail(r, RUNNEL_FORMAT, "there is nothing to repeat");
        return RN_GRAMMAR_NONE;
    }
    if (rn_reader_peek(r, 0) == '^' || rn_reader_peek(r, 0) == '$') {
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "an anchor (^ or $) in the middle is not supported");
        return RN_GRAMMAR_NONE;
    }
    return read_character(x, rn_reader_character(r));
}

static rn_expr read_repeats(struct regex *x, rn_expr e)
{
    struct rn_reader *r = &x->r;
    uint32_t least = 0, most = RN_GRAMMAR_FOREVER;

    rn_grammar_at(r->g, r->source_at + r->at);
    if (rn_reader_take(r, "?"))
        most = 1;
    else if (rn_reader_take(r, "+"))
        least = 1;
    else if (!rn_reader_take(r, "*") && !read_counts(r, &least, &most))
        return e;
    if (rn_reader_take(r, "+"))
        rn_reader_fail(r, RUNNEL_UNSUPPORTED, "possessive quantifiers are not supported");
    rn_reader_take(r, "?"); /* lazy: the same texts */
    if (rn_reader_peek(r, 0) == '*' || rn_reader_peek(r, 0) == '+' || rn_reader_peek(r, 0) == '?')
        rn_reader_fail(r, RUNNEL_FORMAT, "there is nothing to repeat");
    return rn_grammar_repeat(r->g, e, least, most);
}

static bool ends_alternative(const struct rn_reader *r, size_t at)
{
    return at >= r->n || r->text[at] == '|' || r->text[at] == ')';
}

/* whole: it is one of the whole expression. */
static rn_expr read_sequence(struct regex *x, bool whole)
{
    struct rn_reader *r = &x->r;
    uint32_t from = r->n_parts;
    bool begin = false, end = false;

    if (whole && rn_reader_peek(r, 0) == '(') {
        size_t at = r->at++;

        if (ends_alternative(r, end_of_group(r) + 1))
            return read_group(x, true);
        r->at = at;
    }
    while (whole && rn_reader_take(r, "^"))
        begin = true;
    if (whole && x->options->search && !begin)
        rn_reader_push(r, any_characters(x));
    while (!rn_reader_done(r) && !end && !ends_alternative(r, r->at)) {
        while (whole && rn_reader_peek(r, 0) == '$' &&
               (ends_alternative(r, r->at + 1) || rn_reader_peek(r, 1) == '$')) {
            r->at++;
            end = true;
        }
        if (!end)
            rn_reader_push(r, read_repeats(x, read_atom(x)));
    }
    if (whole && x->options->search && !end)
        rn_reader_push(r, any_characters(x));
    return rn_reader_sequence(r, from);
}

static rn_expr read_alternatives(struct regex *x, bool whole)
{
    uint32_t from = x->r.n_parts;

    do {
        rn_reader_push(&x->r, read_sequence(x, whole));
    } while (rn_reader_take(&x->r, "|"));
    return rn_reader_alternatives(&x->r, from);
}

rn_expr rn_regex(struct rn_grammar *g, const char *text, size_t n, size_t at, const struct rn_regex_options *options)
{
    static const struct rn_regex_options none = {.search = false};
    struct regex x = {.r = {.g = g, .text = text, .n = n, .source_at = at},
                      .options = options != NULL ? options : &none};
    rn_expr e = read_alternatives(&x, true);

    if (!rn_reader_done(&x.r))
        rn_reader_fail(&x.r, RUNNEL_FORMAT, "\")\" has no \"(\" before it");
    rn_free(g->heap, x.ranges);
    rn_reader_fini(&x.r);
    return rn_grammar_failed(g) ? RN_GRAMMAR_NONE : e;
}
