/* Bodies of multipart/form-data: see multipart.h. */
#include "multipart.h"

#include <string.h>
#include <strings.h>

/* ---- Values of fields -------------------------------------------------------------------- */

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

/* A word up to a blank or semicolon, or a string in quotes, where \ takes the next byte as it is. NULL: it does not fit
 * into to[0..room), does not end, or has a zero byte. Else what is behind it. */
static const char *take_value(const char *at, const char *end, char *to, size_t room)
{
    bool quoted = at < end && *at == '"';
    size_t n = 0;

    for (at += quoted; at < end; at++) {
        if (quoted ? *at == '"' : *at == ';' || *at == ' ' || *at == '\t')
            break;
        if (quoted && *at == '\\' && at + 1 < end)
            at++;
        if (n + 1 >= room || *at == '\0')
            return NULL;
        to[n++] = *at;
    }
    to[n] = '\0';
    return quoted ? (at < end ? at + 1 : NULL) : at;
}

/* The parameter of that name among "; a=b; c="d"", into to. 1; 0: it is not there; -1: the list is malformed. */
static int find_parameter(const char *at, const char *end, const char *name, char *to, size_t room)
{
    size_t n = strlen(name);
    char other[MULTIPART_HEAD];

    for (;;) {
        const char *word = skip_blanks(at, end), *equal = NULL;
        bool found = false;

        if (word == end)
            return 0;
        if (*word != ';')
            return -1;
        word = skip_blanks(word + 1, end);
        if (word == end)
            return 0;
        equal = memchr(word, '=', (size_t)(end - word));
        if (equal == NULL)
            return -1;
        found = (size_t)(equal - word) == n && strncasecmp(word, name, n) == 0;
        at = take_value(equal + 1, end, found ? to : other, found ? room : sizeof other);
        if (at == NULL)
            return -1;
        if (found)
            return 1;
    }
}

/* ---- The body ---------------------------------------------------------------------------- */

static bool bad(const char **why, const char *sentence)
{
    *why = sentence;
    return false;
}

bool multipart_open(struct multipart *form, const char *type, const char *body, size_t n, const char **why)
{
    static const char name[] = "multipart/form-data";
    size_t word = sizeof name - 1;

    *form = (struct multipart){.at = body, .end = body + n, .mark = "\r\n--"};
    if (type == NULL || strncasecmp(type, name, word) != 0 || (type[word] != ';' && type[word] != ' '))
        return bad(why, "the body must be multipart/form-data");
    if (find_parameter(type + word, type + strlen(type), "boundary", form->mark + 4, MULTIPART_BOUNDARY + 1) != 1 ||
        form->mark[4] == '\0')
        return bad(why, "Content-Type names no boundary of 1 to 70 bytes");
    form->mark_bytes = strlen(form->mark);
    if (n >= form->mark_bytes - 2 && memcmp(body, form->mark + 2, form->mark_bytes - 2) == 0) {
        form->at += form->mark_bytes - 2;
        return true;
    }
    form->at = memmem(body, n, form->mark, form->mark_bytes);
    if (form->at == NULL)
        return bad(why, "the body does not have its boundary");
    form->at += form->mark_bytes;
    return true;
}

/* A field of a part's head, if it is the one that has the names. */
static bool take_field(const char *line, const char *end, struct multipart_part *part, bool *named, const char **why)
{
    static const char malformed[] = "the Content-Disposition of a part is no form-data with a name of at most 63 bytes"
                                    " and a filename of at most 1023";
    static const char field[] = "Content-Disposition:", form[] = "form-data";
    size_t n = sizeof field - 1;

    if ((size_t)(end - line) < n || strncasecmp(line, field, n) != 0)
        return true;
    line = skip_blanks(line + n, end);
    n = sizeof form - 1;
    if ((size_t)(end - line) < n || strncasecmp(line, form, n) != 0)
        return bad(why, malformed);
    *named = find_parameter(line + n, end, "name", part->name, sizeof part->name) == 1;
    return (*named && find_parameter(line + n, end, "filename", part->filename, sizeof part->filename) >= 0) ||
           bad(why, malformed);
}

/* The fields up to an empty line; form->at is behind it then. */
static bool read_head(struct multipart *form, struct multipart_part *part, const char **why)
{
    const char *most = form->end - form->at > MULTIPART_HEAD ? form->at + MULTIPART_HEAD : form->end;
    bool named = false;

    for (;;) {
        const char *end = memmem(form->at, (size_t)(most - form->at), "\r\n", 2);

        if (end == NULL)
            return bad(why, "the head of a part does not end, or has more than 4096 bytes");
        if (end == form->at)
            break;
        if (!take_field(form->at, end, part, &named, why))
            return false;
        form->at = end + 2;
    }
    form->at += 2;
    return named || bad(why, "a part has no Content-Disposition");
}

enum multipart_step multipart_next(struct multipart *form, struct multipart_part *part, const char **why)
{
    const char *mark = NULL;

    *part = (struct multipart_part){0};
    if (form->end - form->at >= 2 && memcmp(form->at, "--", 2) == 0)
        return MULTIPART_END;
    form->at = skip_blanks(form->at, form->end);
    if (form->end - form->at < 2 || memcmp(form->at, "\r\n", 2) != 0) {
        bad(why, "the body does not end with its boundary");
        return MULTIPART_BAD;
    }
    if (form->n_parts++ == MULTIPART_PARTS) {
        bad(why, "the body has more than 16 parts");
        return MULTIPART_BAD;
    }
    form->at += 2;
    if (!read_head(form, part, why))
        return MULTIPART_BAD;
    form->at -= 2; /* what is empty ends with the line end of the head */
    mark = memmem(form->at, (size_t)(form->end - form->at), form->mark, form->mark_bytes);
    if (mark == NULL) {
        bad(why, "the body does not end with its boundary");
        return MULTIPART_BAD;
    }
    part->bytes = form->at + 2 < mark ? form->at + 2 : mark;
    part->n = (size_t)(mark - part->bytes);
    form->at = mark + form->mark_bytes;
    return MULTIPART_PART;
}
