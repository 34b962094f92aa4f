/* Numbers: decimals, and the texts of those between two bounds that are multiples of a unit, as an automaton that reads
 * digits. See parts.h.
 *
 * A magnitude is read digit by digit. What is known of it after some digits is a state:
 *
 *     start -digit 1..9-> whole -digit-> whole ... -.-> point -digit-> fraction -digit-> fraction ...
 *     start -0-> zero -.-> point
 *
 * with how many digits were read (up to where it no longer matters), how the digits compare with those of each bound
 * (below, equal so far, above), whether the fraction is not zero, and the remainder by each unit. While the whole part
 * is read, digits compare only with as many digits of the bound; at its end their number decides first.
 *
 * Signs are apart: a minus, and a magnitude above zero. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/schema/parts.h"

#define UNITS_MOST 3u
#define STATES_MOST 20000u
#define INLINE_DEPTH 24u

/* ---- Decimals ---- */

static const struct rn_decimal *trimmed(struct rn_decimal *d)
{
    while (d->n_int > 0 && d->digits[0] == 0) {
        d->digits++;
        d->n_int--;
    }
    while (d->n_frac > 0 && d->digits[d->n_int + d->n_frac - 1] == 0)
        d->n_frac--;
    if (d->n_int + d->n_frac == 0)
        d->negative = false;
    return d;
}

const struct rn_decimal *rn_schema_decimal(struct rn_arena *arena, struct rn_value value)
{
    struct rn_decimal *d = rn_arena_take(arena, 1, sizeof *d);
    char integer[24];
    const char *text = integer;
    uint8_t *digits;
    size_t n, i, at = 0, point;

    if (value.kind == RN_VALUE_INT) {
        n = (size_t)snprintf(integer, sizeof integer, "%lld", (long long)value.integer);
    } else {
        text = value.string->bytes;
        n = value.string->n;
    }
    digits = rn_arena_take(arena, n, 1);
    d->negative = text[0] == '-';
    point = n;
    for (i = d->negative; i < n; i++) {
        if (text[i] == '.')
            point = i;
        else
            digits[at++] = (uint8_t)(text[i] - '0');
    }
    d->n_int = (uint32_t)(point - d->negative);
    d->n_frac = (uint32_t)at - d->n_int;
    d->digits = digits;
    return trimmed(d);
}

static int compare_magnitudes(const struct rn_decimal *a, const struct rn_decimal *b)
{
    uint32_t n = a->n_int + (a->n_frac > b->n_frac ? a->n_frac : b->n_frac), i;

    if (a->n_int != b->n_int)
        return a->n_int < b->n_int ? -1 : 1;
    for (i = 0; i < n; i++) {
        int of_a = i < a->n_int + a->n_frac ? a->digits[i] : 0, of_b = i < b->n_int + b->n_frac ? b->digits[i] : 0;

        if (of_a != of_b)
            return of_a < of_b ? -1 : 1;
    }
    return 0;
}

int rn_decimal_compare(const struct rn_decimal *a, const struct rn_decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

bool rn_decimal_is_multiple(const struct rn_decimal *a, uint32_t unit, uint32_t places)
{
    uint64_t rest = 0;
    uint32_t i;

    if (a->n_frac > places)
        return false;
    for (i = 0; i < a->n_int + places; i++)
        rest = (rest * 10 + (i < a->n_int + a->n_frac ? a->digits[i] : 0u)) % unit;
    return rest == 0;
}

const char *rn_decimal_text(struct rn_arena *arena, const struct rn_decimal *a, size_t *n)
{
    char *out = rn_arena_take(arena, a->n_int + a->n_frac + 4, 1);
    size_t at = 0;
    uint32_t i;

    if (a->negative)
        out[at++] = '-';
    if (a->n_int == 0)
        out[at++] = '0';
    for (i = 0; i < a->n_int + a->n_frac; i++) {
        if (i == a->n_int)
            out[at++] = '.';
        out[at++] = (char)('0' + a->digits[i]);
    }
    *n = at;
    return out;
}

/* ---- The automaton of magnitudes ---- */

enum phase { START, ZERO, WHOLE, POINT, FRACTION };
enum order { BELOW, EQUAL, ABOVE };

struct state {
    uint8_t phase, low, high;  /* how it compares with the bounds so far */
    bool fraction;             /* it has a digit behind the point that is not 0; kept only where that matters */
    uint32_t digits;           /* of this phase */
    uint32_t rest[UNITS_MOST]; /* unit: no multiple, whatever follows */
};

struct edges {
    uint32_t to[11]; /* digits, the point; 0: none */
    uint32_t users;  /* edges from others that lead here */
    bool final, alive, circle;
    rn_expr made;
    uint32_t rule; /* UINT32_MAX: none */
};

struct magnitude {
    struct rn_schema_maker *m;
    const struct rn_decimal *low, *high; /* high NULL: none */
    bool low_open, high_open;
    uint32_t kinds;
    const struct rn_multiple *units[UNITS_MOST];
    uint32_t n_units;
    uint32_t most_whole, most_fraction; /* digits that are told apart */
    struct state *states;               /* [n], from 1 */
    struct edges *edges;
    uint32_t n, room;
    uint32_t *table; /* [n_table] */
    uint32_t n_table;
};

static uint32_t place_of(const struct magnitude *g, const struct state *s)
{
    const unsigned char *bytes = (const unsigned char *)s;
    uint64_t hash = 1469598103934665603u;
    uint32_t at;

    for (size_t i = 0; i < sizeof *s; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    for (at = (uint32_t)(hash >> 20) & (g->n_table - 1); g->table[at] != 0; at = (at + 1) & (g->n_table - 1))
        if (memcmp(&g->states[g->table[at]], s, sizeof *s) == 0)
            break;
    return at;
}

static void grow_table(struct magnitude *g)
{
    g->n_table = g->n_table == 0 ? 128 : 4 * g->n_table;
    g->table = rn_arena_take(g->m->arena, g->n_table, sizeof *g->table);
    memset(g->table, 0, g->n_table * sizeof *g->table);
    for (uint32_t i = 1; i < g->n; i++)
        g->table[place_of(g, &g->states[i])] = i;
}

/* The number of a state; a new one is put at the end. 0: too many. */
static uint32_t number_of(struct magnitude *g, const struct state *s)
{
    uint32_t at;

    if (2 * g->n >= g->n_table)
        grow_table(g);
    at = place_of(g, s);
    rn_step(g->m->arena, 2);
    if (g->table[at] != 0)
        return g->table[at];
    if (g->n >= STATES_MOST)
        return 0;
    if (g->n == g->room) {
        g->states = rn_arena_grow(g->m->arena, g->states, g->n, 2 * g->room, sizeof *g->states);
        g->edges = rn_arena_grow(g->m->arena, g->edges, g->n, 2 * g->room, sizeof *g->edges);
        g->room *= 2;
    }
    g->states[g->n] = *s;
    memset(&g->edges[g->n], 0, sizeof g->edges[g->n]);
    g->edges[g->n].rule = UINT32_MAX;
    g->table[at] = g->n;
    return g->n++;
}

static uint8_t order_of(uint8_t before, uint32_t digit, uint32_t other)
{
    return before != EQUAL ? before : digit < other ? BELOW : digit > other ? ABOVE : EQUAL;
}

/* How a whole part of so many digits compares at its end. */
static uint8_t whole_order(uint8_t order, uint32_t digits, const struct rn_decimal *bound)
{
    return digits < bound->n_int ? BELOW : digits > bound->n_int ? ABOVE : order;
}

static uint8_t fraction_digit(const struct rn_decimal *bound, uint32_t at)
{
    return at < bound->n_frac ? bound->digits[bound->n_int + at] : 0;
}

static void read_whole(const struct magnitude *g, struct state *s, uint32_t digit)
{
    uint32_t i, at = s->phase == START ? 0 : s->digits;

    if (s->phase == START)
        s->low = s->high = EQUAL;
    s->phase = WHOLE;
    s->digits = at < g->most_whole ? at + 1 : at;
    if (at < g->low->n_int)
        s->low = order_of(s->low, digit, g->low->digits[at]);
    else
        s->low = ABOVE;
    if (g->high != NULL && at < g->high->n_int)
        s->high = order_of(s->high, digit, g->high->digits[at]);
    else
        s->high = g->high != NULL ? ABOVE : BELOW;
    for (i = 0; i < g->n_units; i++)
        s->rest[i] = (uint32_t)(((uint64_t)s->rest[i] * 10 + digit) % g->units[i]->unit);
}

static void end_whole(const struct magnitude *g, struct state *s)
{
    uint32_t digits = s->phase == WHOLE ? s->digits : 0;

    if (s->phase != WHOLE)
        s->low = s->high = EQUAL;
    s->low = whole_order(s->low, digits, g->low);
    s->high = g->high == NULL ? (uint8_t)BELOW : whole_order(s->high, digits, g->high);
}

static void read_fraction(const struct magnitude *g, struct state *s, uint32_t digit)
{
    uint32_t at = s->phase == POINT ? 0 : s->digits, i;

    s->phase = FRACTION;
    s->low = order_of(s->low, digit, fraction_digit(g->low, at));
    if (g->high != NULL)
        s->high = order_of(s->high, digit, fraction_digit(g->high, at));
    s->fraction = g->kinds == RN_KIND_FRACTION && (s->fraction || digit != 0);
    for (i = 0; i < g->n_units; i++) {
        uint32_t unit = g->units[i]->unit;

        if (s->rest[i] == unit)
            continue;
        if (at < g->units[i]->places)
            s->rest[i] = (uint32_t)(((uint64_t)s->rest[i] * 10 + digit) % unit);
        else if (digit != 0)
            s->rest[i] = unit;
    }
    s->digits = at < g->most_fraction ? at + 1 : at;
    if (s->low != EQUAL && s->high != EQUAL && g->n_units == 0)
        s->digits = g->most_fraction;
}

/* The state behind a digit, or the point (10); false: it is not read. */
static bool next_state(const struct magnitude *g, struct state *s, uint32_t symbol)
{
    if (symbol == 10) {
        if ((s->phase != ZERO && s->phase != WHOLE) || (g->kinds & RN_KIND_FRACTION) == 0)
            return false;
        end_whole(g, s);
        s->phase = POINT;
        s->digits = 0;
    } else if (s->phase == START && symbol == 0) {
        s->phase = ZERO;
    } else if (s->phase == START || s->phase == WHOLE) {
        read_whole(g, s, symbol);
    } else if (s->phase == POINT || s->phase == FRACTION) {
        read_fraction(g, s, symbol);
    } else {
        return false;
    }
    return true;
}

static bool is_multiple(const struct rn_multiple *unit, uint32_t rest, uint32_t digits)
{
    uint64_t value = rest;

    if (rest == unit->unit)
        return false;
    for (; digits < unit->places; digits++)
        value = value * 10 % unit->unit;
    return value == 0;
}

static bool is_final(const struct magnitude *g, struct state s)
{
    uint32_t digits = s.phase == FRACTION ? s.digits : 0, i;
    uint8_t low, high;

    if (s.phase == START || s.phase == POINT)
        return false;
    if (s.phase != FRACTION)
        end_whole(g, &s);
    low = s.low == EQUAL && digits < g->low->n_frac ? (uint8_t)BELOW : s.low;
    high = g->high != NULL && s.high == EQUAL && digits < g->high->n_frac ? (uint8_t)BELOW : s.high;
    if (low == BELOW || (low == EQUAL && g->low_open) || high == ABOVE || (high == EQUAL && g->high_open))
        return false;
    if (g->kinds == RN_KIND_FRACTION && !s.fraction)
        return false;
    for (i = 0; i < g->n_units; i++)
        if (is_multiple(g->units[i], s.rest[i], digits) == g->units[i]->negated)
            return false;
    return true;
}

/* A state of which it is known that no end is reached. */
static bool is_dead(const struct magnitude *g, const struct state *s)
{
    bool decided = s->phase == POINT || s->phase == FRACTION;

    if (decided && (s->low == BELOW || s->high == ABOVE))
        return true;
    if (s->phase == WHOLE && g->high != NULL && s->digits > g->high->n_int)
        return true;
    for (uint32_t i = 0; i < g->n_units; i++)
        if (s->rest[i] == g->units[i]->unit && !g->units[i]->negated)
            return true;
    return false;
}

/* All states that can be reached; false: too many. */
static bool explore(struct magnitude *g)
{
    struct state start;
    uint32_t i, symbol;

    memset(&start, 0, sizeof start);
    number_of(g, &start);
    for (i = 1; i < g->n; i++) {
        for (symbol = 0; symbol < 11; symbol++) {
            struct state s = g->states[i];
            uint32_t to;

            if (!next_state(g, &s, symbol) || is_dead(g, &s))
                continue;
            to = number_of(g, &s);
            if (to == 0)
                return false;
            g->edges[i].to[symbol] = to;
        }
        g->edges[i].final = g->edges[i].alive = is_final(g, g->states[i]);
    }
    return true;
}

/* Finds the states from which an end is reached, and how many edges lead to each. */
static void prune(struct magnitude *g)
{
    bool changed = true;
    uint32_t i, symbol;

    while (changed) {
        changed = false;
        for (i = g->n; i-- > 1;) {
            struct edges *e = &g->edges[i];

            rn_step(g->m->arena, 1);
            for (symbol = 0; symbol < 11 && !e->alive; symbol++) {
                e->alive = e->to[symbol] != 0 && g->edges[e->to[symbol]].alive;
                changed = changed || e->alive;
            }
        }
    }
    for (i = 1; i < g->n; i++)
        for (symbol = 0; symbol < 11; symbol++) {
            uint32_t to = g->edges[i].to[symbol];

            if (to != 0 && !g->edges[to].alive)
                g->edges[i].to[symbol] = 0;
            else if (to != 0 && to != i)
                g->edges[to].users += g->edges[i].alive;
            else if (to == i)
                g->edges[i].circle = true;
        }
}

static rn_expr make_state(struct magnitude *g, uint32_t i, uint32_t depth);

/* A state as it is used from another: in place, or by a rule where several use it. */
static rn_expr use_state(struct magnitude *g, uint32_t i, uint32_t depth)
{
    struct edges *e = &g->edges[i];

    if (e->rule == UINT32_MAX && e->users < 2 && depth < INLINE_DEPTH)
        return make_state(g, i, depth + 1);
    if (e->rule == UINT32_MAX)
        e->rule = rn_schema_rule(g->m);
    return rn_grammar_call(g->m->g, e->rule);
}

/* The symbols that lead to one state, as a set. */
static rn_expr symbols_to(struct magnitude *g, uint32_t i, uint32_t to)
{
    struct rn_code_points ranges[11];
    uint32_t n = 0, symbol;

    for (symbol = 0; symbol < 11; symbol++) {
        uint32_t c = symbol < 10 ? '0' + symbol : '.';

        if (g->edges[i].to[symbol] == to)
            ranges[n++] = (struct rn_code_points){c, c};
    }
    return rn_grammar_set(g->m->g, ranges, n, false);
}

static rn_expr make_state(struct magnitude *g, uint32_t i, uint32_t depth)
{
    rn_expr parts[12], e;
    uint32_t n = 0, symbol, k;

    if (g->edges[i].final)
        parts[n++] = rn_grammar_empty(g->m->g);
    for (symbol = 0; symbol < 11; symbol++) {
        uint32_t to = g->edges[i].to[symbol];

        for (k = 0; k < symbol && g->edges[i].to[k] != to; k++)
            ;
        if (to == 0 || to == i || k < symbol)
            continue;
        parts[n++] = rn_grammar_sequence(g->m->g, (rn_expr[]){symbols_to(g, i, to), use_state(g, to, depth)}, 2);
    }
    e = rn_grammar_alternatives(g->m->g, parts, n);
    if (g->edges[i].circle) {
        rn_expr again = rn_grammar_repeat(g->m->g, symbols_to(g, i, i), 0, RN_GRAMMAR_FOREVER);

        e = rn_grammar_sequence(g->m->g, (rn_expr[]){again, e}, 2);
    }
    rn_schema_look(g->m);
    return e;
}

static void prepare(struct magnitude *g, const struct rn_case *the)
{
    const struct rn_multiple *unit;
    uint32_t whole = g->low->n_int, fraction = g->low->n_frac;

    for (unit = the->multiples; unit != NULL; unit = unit->next) {
        if (g->n_units == UNITS_MOST)
            rn_raise(g->m->arena, RUNNEL_UNSUPPORTED,
                     "\"multipleOf\" at \"%s\" cannot be enforced: more than %u of one number",
                     rn_schema_where(g->m, the, "multipleOf"), UNITS_MOST);
        g->units[g->n_units++] = unit;
        fraction = unit->places > fraction ? unit->places : fraction;
    }
    if (g->high != NULL && g->high->n_int > whole)
        whole = g->high->n_int;
    if (g->high != NULL && g->high->n_frac > fraction)
        fraction = g->high->n_frac;
    g->most_whole = whole + 1;
    g->most_fraction = fraction + 1;
    g->room = 64;
    g->n = 1;
    g->states = rn_arena_take(g->m->arena, g->room, sizeof *g->states);
    g->edges = rn_arena_take(g->m->arena, g->room, sizeof *g->edges);
}

static rn_expr magnitude(struct rn_schema_maker *m, const struct rn_case *the, struct magnitude g)
{
    uint32_t i;
    rn_expr e;

    g.m = m;
    g.kinds = the->kinds & RN_KIND_NUMBER;
    prepare(&g, the);
    if (!explore(&g))
        rn_raise(m->arena, RUNNEL_UNSUPPORTED,
                 "bounds and \"multipleOf\" of the number at \"%s\" cannot be enforced: they need more than %u states",
                 rn_schema_where(m, the, "multipleOf"), STATES_MOST);
    prune(&g);
    if (!g.edges[1].alive)
        return rn_grammar_alternatives(m->g, NULL, 0);
    e = make_state(&g, 1, 0);
    for (i = 1; i < g.n; i++) /* rules in the order of their states; making one may add others before it */
        if (g.edges[i].rule != UINT32_MAX && !rn_grammar_is_defined(m->g, g.edges[i].rule)) {
            rn_grammar_define(m->g, g.edges[i].rule, make_state(&g, i, 0));
            i = 0;
        }
    return e;
}

/* ---- Numbers ---- */

static const struct rn_decimal zero = {false, 0, 0, NULL};

static const struct rn_decimal *minus(struct rn_schema_maker *m, const struct rn_decimal *d)
{
    struct rn_decimal *copy = rn_arena_take(m->arena, 1, sizeof *copy);

    *copy = *d;
    copy->negative = !d->negative && d->n_int + d->n_frac > 0;
    return copy;
}

/* The numbers of an interval that are not below zero, and those that are. */
static rn_expr one_interval(struct rn_schema_maker *m, const struct rn_case *the, const struct rn_interval *at)
{
    rn_expr parts[2];
    uint32_t n = 0;

    if (at->high == NULL || rn_decimal_compare(at->high, &zero) >= 0) {
        bool own = at->low != NULL && rn_decimal_compare(at->low, &zero) >= 0;

        parts[n++] = magnitude(m, the,
                               (struct magnitude){.low = own ? at->low : &zero,
                                                  .low_open = own && at->low_open,
                                                  .high = at->high,
                                                  .high_open = at->high_open});
    }
    if (at->low == NULL || rn_decimal_compare(at->low, &zero) < 0) {
        bool own = at->high != NULL && rn_decimal_compare(at->high, &zero) < 0;
        rn_expr e = magnitude(m, the,
                              (struct magnitude){.low = own ? minus(m, at->high) : &zero,
                                                 .low_open = own ? at->high_open : true,
                                                 .high = at->low != NULL ? minus(m, at->low) : NULL,
                                                 .high_open = at->low_open});

        parts[n++] = rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_literal_text(m, "-"), e}, 2);
    }
    return rn_grammar_alternatives(m->g, parts, n);
}

static rn_expr digits_of(struct rn_schema_maker *m, uint32_t least)
{
    static const struct rn_code_points digit = {'0', '9'};

    return rn_grammar_repeat(m->g, rn_grammar_set(m->g, &digit, 1, false), least, RN_GRAMMAR_FOREVER);
}

/* An optional minus and a whole number. */
static rn_expr any_integer(struct rn_schema_maker *m)
{
    static const struct rn_code_points first = {'1', '9'};
    rn_expr whole = rn_grammar_sequence(m->g, (rn_expr[]){rn_grammar_set(m->g, &first, 1, false), digits_of(m, 0)}, 2);

    whole = rn_grammar_alternatives(m->g, (rn_expr[]){rn_schema_literal_text(m, "0"), whole}, 2);
    return rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_optional(m, rn_schema_literal_text(m, "-")), whole}, 2);
}

static rn_expr any_number(struct rn_schema_maker *m)
{
    static const struct rn_code_points e[] = {{'E', 'E'}, {'e', 'e'}}, sign[] = {{'+', '+'}, {'-', '-'}};
    rn_expr fraction, exponent;

    if (m->number_rule == UINT32_MAX) {
        m->number_rule = rn_schema_rule(m);
        fraction = rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_literal_text(m, "."), digits_of(m, 1)}, 2);
        exponent = rn_schema_optional(m, rn_grammar_set(m->g, sign, 2, false));
        exponent =
            rn_grammar_sequence(m->g, (rn_expr[]){rn_grammar_set(m->g, e, 2, false), exponent, digits_of(m, 1)}, 3);
        rn_grammar_define(m->g, m->number_rule,
                          rn_grammar_sequence(m->g,
                                              (rn_expr[]){any_integer(m), rn_schema_optional(m, fraction),
                                                          rn_schema_optional(m, exponent)},
                                              3));
    }
    return rn_grammar_call(m->g, m->number_rule);
}

rn_expr rn_schema_number(struct rn_schema_maker *m, const struct rn_case *the)
{
    const struct rn_interval *at = the->intervals;
    bool all = at->next == NULL && at->low == NULL && at->high == NULL && the->multiples == NULL;
    uint32_t n = 0;
    rn_expr *parts;

    if (all && (the->kinds & RN_KIND_NUMBER) == RN_KIND_NUMBER)
        return any_number(m);
    if (all && (the->kinds & RN_KIND_NUMBER) == RN_KIND_INTEGER) {
        if (m->integer_rule == UINT32_MAX) {
            m->integer_rule = rn_schema_rule(m);
            rn_grammar_define(m->g, m->integer_rule, any_integer(m));
        }
        return rn_grammar_call(m->g, m->integer_rule);
    }
    for (; at != NULL; at = at->next)
        n++;
    parts = rn_arena_take(m->arena, n, sizeof *parts);
    for (n = 0, at = the->intervals; at != NULL; at = at->next)
        parts[n++] = one_interval(m, the, at);
    return rn_grammar_alternatives(m->g, parts, n);
}
