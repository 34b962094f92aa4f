/* The filter wordwrap: Python's textwrap, which breaks a paragraph into chunks (words, blanks, parts of hyphenated
 * words, dashes) and lays them into lines, blanks at the ends of lines dropped. */
#include <string.h>

#include "text/template/filters.h"
#include "text/unicode.h"

struct wrap {
    struct rn_run *run;
    int64_t width;
    bool break_long, break_hyphens;
    struct rn_list *chunks; /* of one paragraph, last first, so that the next is at the end */
    struct rn_sb *out;
    const struct rn_str *newline;
    size_t lines;
};

/* ---- Chunks; `c` holds the paragraph's code points with a zero behind, `at` byte positions ---- */

static bool is_blank(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_LETTER) != 0 || c == '_';
}

static bool is_word(uint32_t c)
{
    return is_letter(c) || (rn_char_class(c) & RN_CHAR_NUMBER) != 0;
}

static bool is_word_punct(uint32_t c)
{
    return is_word(c) || (c != 0 && c < 0x80 && strchr("!\"'&.,?", (int)c) != NULL);
}

/* A word character that is no decimal digit. */
static bool is_hyphen_letter(uint32_t c)
{
    return is_word(c) && rn_char_class(c) != RN_CHAR_ND;
}

/* The end of a dash of two or more hyphens before a word, or `from`. */
static size_t dash_end(const uint32_t *c, size_t from)
{
    size_t end = from;

    while (c[end] == '-')
        end++;
    return end - from >= 2 && is_word(c[end]) ? end : from;
}

/* Does a hyphenated word break behind the hyphen at i? */
static bool breaks_at(const uint32_t *c, size_t i)
{
    bool before = (i >= 2 && is_hyphen_letter(c[i - 1]) && is_hyphen_letter(c[i - 2])) ||
                  (i >= 3 && is_word_punct(c[i - 1]) && c[i - 2] == '-' && is_hyphen_letter(c[i - 3]));
    size_t after = i + 1;

    if (c[i] != '-' || !before || !is_hyphen_letter(c[after]))
        return false;
    after += c[after + 1] == '-' ? 2 : 1;
    return is_hyphen_letter(c[after]);
}

static size_t chunk_end(const struct wrap *w, const uint32_t *c, size_t from, size_t n)
{
    size_t i = from;

    if (is_blank(c[from])) {
        while (i < n && is_blank(c[i]))
            i++;
        return i;
    }
    if (!w->break_hyphens) {
        while (i < n && !is_blank(c[i]))
            i++;
        return i;
    }
    if (from > 0 && is_word_punct(c[from - 1]) && dash_end(c, from) > from)
        return dash_end(c, from);
    for (i = from + 1;; i++) {
        if (i < n && breaks_at(c, i))
            return i + 1;
        if (i >= n || is_blank(c[i]) || (is_word_punct(c[i - 1]) && dash_end(c, i) > i))
            return i;
    }
}

static void split_chunks(struct wrap *w, const struct rn_str *line)
{
    struct rn_arena *arena = &w->run->arena;
    uint32_t *c = rn_arena_take(arena, line->chars + 3, sizeof *c), bytes;
    size_t *at = rn_arena_take(arena, line->chars + 1, sizeof *at), n = 0, from, end;
    struct rn_value swap;

    for (from = 0; from < line->n; from += bytes) {
        at[n] = from;
        c[n++] = rn_utf8_decode(line->bytes + from, &bytes);
    }
    at[n] = line->n;
    c[n] = c[n + 1] = c[n + 2] = 0;
    rn_step(arena, n);
    w->chunks = rn_list_new(arena, 8);
    for (from = 0; from < n; from = end) {
        end = chunk_end(w, c, from, n);
        rn_list_push(arena, w->chunks, rn_string_value(rn_str_slice(arena, line, at[from], at[end])));
    }
    for (from = 0; from < w->chunks->n / 2; from++) {
        swap = w->chunks->items[from];
        w->chunks->items[from] = w->chunks->items[w->chunks->n - 1 - from];
        w->chunks->items[w->chunks->n - 1 - from] = swap;
    }
}

/* ---- Lines ---- */

static const struct rn_str *next_chunk(const struct wrap *w)
{
    return w->chunks->items[w->chunks->n - 1].string;
}

static bool is_all_blank(struct wrap *w, const struct rn_str *s)
{
    return rn_str_strip(&w->run->arena, s, NULL, true, true)->n == 0;
}

/* A word that fits no line: as much of it as there is space, up to a hyphen if one is there. */
static void break_word(struct wrap *w, struct rn_list *line, int64_t filled)
{
    struct rn_arena *arena = &w->run->arena;
    const struct rn_str *chunk = next_chunk(w), *hyphen = rn_str_of(arena, "-"), *head;
    size_t space = w->width < 1 ? 1 : (size_t)(w->width - filled), end, found;

    if (!w->break_long) {
        if (line->n == 0) {
            rn_list_push(arena, line, rn_string_value(chunk));
            w->chunks->n--;
        }
        return;
    }
    end = rn_str_offset(arena, chunk, space);
    found = w->break_hyphens && chunk->chars > space ? rn_str_rfind(arena, chunk, 0, end, hyphen) : RN_NOWHERE;
    if (found != RN_NOWHERE && found > 0) {
        head = rn_str_slice(arena, chunk, 0, found);
        if (rn_str_strip(arena, head, hyphen, true, true)->n > 0)
            end = found + 1;
    }
    rn_list_push(arena, line, rn_string_value(rn_str_slice(arena, chunk, 0, end)));
    w->chunks->items[w->chunks->n - 1] = rn_string_value(rn_str_slice(arena, chunk, end, chunk->n));
}

static void fill_line(struct wrap *w)
{
    struct rn_list *line = rn_list_new(&w->run->arena, 8);
    int64_t filled = 0;
    size_t i;

    if (w->lines > 0 && is_all_blank(w, next_chunk(w)))
        w->chunks->n--;
    while (w->chunks->n > 0 && filled + (int64_t)next_chunk(w)->chars <= w->width) {
        filled += (int64_t)next_chunk(w)->chars;
        rn_list_push(&w->run->arena, line, w->chunks->items[--w->chunks->n]);
    }
    if (w->chunks->n > 0 && (int64_t)next_chunk(w)->chars > w->width)
        break_word(w, line, filled);
    if (line->n > 0 && is_all_blank(w, line->items[line->n - 1].string))
        line->n--;
    if (line->n == 0)
        return;
    if (w->lines++ > 0)
        rn_sb_str(w->out, w->newline);
    for (i = 0; i < line->n; i++)
        rn_sb_str(w->out, line->items[i].string);
}

RN_TPL_FILTER(wordwrap)
{
    struct rn_value *args = call->args;
    const struct rn_str *s;
    struct rn_sb sb;
    struct wrap w = {.run = run, .out = &sb};
    size_t at = 0, end, next;

    if (self.kind == RN_VALUE_UNDEFINED)
        rn_tpl_fail_undefined(run, self);
    s = rn_tpl_want_string(run, self, "the value of wordwrap");
    if (s->n == 0) /* no line, no look at the width */
        return rn_string_value(rn_str_of(&run->arena, ""));
    w.width = rn_tpl_is_missing(args[0]) ? 79 : rn_tpl_want_int(run, args[0], "width");
    w.break_long = rn_tpl_is_missing(args[1]) || rn_tpl_truth(run, args[1]);
    w.newline = rn_tpl_is_missing(args[2]) || args[2].kind == RN_VALUE_NONE
                    ? rn_str_of(&run->arena, "\n")
                    : rn_tpl_want_string(run, args[2], "wrapstring");
    w.break_hyphens = rn_tpl_is_missing(args[3]) || rn_tpl_truth(run, args[3]);
    rn_sb_init(&sb, &run->arena);
    for (; at < s->n; at = next) {
        end = rn_str_line_end(s, at, &next);
        if (w.width <= 0)
            rn_tpl_fail(run, "invalid width (must be > 0)");
        if (at > 0)
            rn_sb_str(&sb, w.newline);
        w.lines = 0;
        split_chunks(&w, rn_str_slice(&run->arena, s, at, end));
        while (w.chunks->n > 0)
            fill_line(&w);
    }
    return rn_string_value(rn_sb_done(&sb));
}
