/* Numbers of JSON as they are written: see openai_request.h.
 *
 * The parser knows 64-bit integers and doubles. Of a schema each digit counts (GRAMMARS.md), so a number that a double
 * does not give back by its first 15 digits, or that no integer has room for, becomes an object that holds its text:
 *
 *     18446744073709551615  ──parse──▶  {"\u0001KEY": "18446744073709551615"}  ──dump──▶  18446744073709551615
 *
 * KEY is drawn when the process first parses, so that no text can name it and no object of its own stand for a number.
 *
 * Where a number is asked for, openai_make_whole has made one of it before. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "openai_reader.h"

#define TAIL "\"}"

enum {
    KEY_DIGITS = 32,
    HEAD_BYTES = sizeof "{\"\\u0001\":\"" - 1 + KEY_DIGITS,
    TAIL_BYTES = sizeof TAIL - 1,
    MOST_EXPONENT = 290 /* beyond it a double may have no 15 digits, or be no number */
};

/* What stands before a number's text, in JSON; the name alone, as it is parsed. Partner: once. */
static char head[HEAD_BYTES + 1], key[1 + KEY_DIGITS + 1];

static void draw_key(void)
{
    uint64_t bits[2];

    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        abort(); /* Linux has had it since 3.17, and so few bytes are never cut short */
    snprintf(key, sizeof key, "\001%016llx%016llx", (unsigned long long)bits[0], (unsigned long long)bits[1]);
    snprintf(head, sizeof head, "{\"\\u0001%s\":\"", key + 1);
}

static void have_key(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, draw_key);
}

/* ---- Tokens ------------------------------------------------------------------------------ */

struct number {
    size_t bytes;  /* of the token; 0: it is no number of JSON */
    size_t digits; /* significant ones; zeros at the end count */
    bool real;     /* it has a fraction or an exponent */
    long exponent; /* of ten, about: the value is below ten to it */
};

static size_t count_digits(const char *at, const char *end)
{
    const char *first = at;

    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return (size_t)(at - first);
}

static const char *read_exponent(const char *at, const char *end, struct number *number)
{
    bool minus = at < end && *at == '-';
    long value = 0;
    size_t n;

    at += at < end && (*at == '-' || *at == '+');
    n = count_digits(at, end);
    for (size_t i = 0; i < n && value < 100000; i++)
        value = value * 10 + (at[i] - '0');
    number->exponent += minus ? -value : value;
    return n > 0 ? at + n : NULL;
}

/* What stands before the exponent: `whole` digits, and in all up to `end`. */
static void read_digits(const char *at, const char *end, size_t whole, struct number *number)
{
    const char *first = at;

    while (at < end && (*at == '0' || *at == '.'))
        at++;
    number->exponent = (long)(whole < INT_MAX ? whole : INT_MAX) - (long)(at - first < INT_MAX ? at - first : INT_MAX);
    for (; at < end; at++)
        number->digits += *at != '.';
}

static struct number read_token(const char *first, const char *end)
{
    struct number number = {0};
    const char *digits = first + (*first == '-'), *at = digits;
    size_t whole = count_digits(at, end), n = whole;

    if (n == 0 || (n > 1 && *at == '0'))
        return number;
    at += n;
    number.real = at < end && *at == '.';
    n = number.real ? count_digits(at + 1, end) : 0;
    if (number.real && n == 0)
        return number;
    at += n + number.real;
    read_digits(digits, at, whole, &number);
    if (at < end && (*at == 'e' || *at == 'E')) {
        number.real = true;
        at = read_exponent(at + 1, end, &number);
        if (at == NULL)
            return number;
    }
    number.bytes = (size_t)(at - first);
    return number;
}

/* Whether an integer of C has the value. */
static bool fits_integer(const char *token, size_t n)
{
    static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
    bool minus = token[0] == '-';

    token += minus;
    n -= minus;
    return n < sizeof most - 1 || (n == sizeof most - 1 && memcmp(token, minus ? least : most, n) <= 0);
}

static bool must_keep(const char *token, const struct number *number)
{
    if (number->bytes == 0)
        return false;
    if (!number->real)
        return !fits_integer(token, number->bytes);
    return number->digits > DBL_DIG || number->exponent > MOST_EXPONENT || number->exponent < -MOST_EXPONENT;
}

/* Behind the string that begins at `at`. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\' && at + 1 < end;
    return at < end ? at + 1 : end;
}

/* Of what begins as a number and is none: the sign and all digits at once, or a long row of them would be read again
 * from each digit on. The parser refuses it. */
static size_t skipped_bytes(const char *at, const char *end)
{
    size_t sign = *at == '-';

    return sign + count_digits(at + sign, end);
}

/* The next number to be kept in [at, end); NULL: there is none. */
static const char *find_kept(const char *at, const char *end, size_t *n)
{
    struct number number;

    while (at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            number = read_token(at, end);
            *n = number.bytes;
            if (must_keep(at, &number))
                return at;
            at += number.bytes > 0 ? number.bytes : skipped_bytes(at, end);
        } else {
            at++;
        }
    }
    return NULL;
}

/* ---- Parsing ----------------------------------------------------------------------------- */

/* The text with each of these numbers as an object. NULL: there is none, or no memory (*short_of_memory). */
static char *keep_numbers(const char *bytes, size_t n, size_t *size, bool *short_of_memory)
{
    const char *end = bytes + n, *at = bytes, *found;
    char *text = NULL;
    size_t length = 0;
    FILE *to;

    found = find_kept(bytes, end, &length);
    if (found == NULL)
        return NULL;
    to = open_memstream(&text, size);
    *short_of_memory = to == NULL;
    for (; to != NULL && found != NULL; found = find_kept(at, end, &length)) {
        fwrite(at, 1, (size_t)(found - at), to);
        fwrite(head, 1, HEAD_BYTES, to);
        fwrite(found, 1, length, to);
        fwrite(TAIL, 1, TAIL_BYTES, to);
        at = found + length;
    }
    if (to == NULL)
        return NULL;
    fwrite(at, 1, (size_t)(end - at), to);
    *short_of_memory = ferror(to) != 0;
    *short_of_memory = fclose(to) != 0 || *short_of_memory;
    if (!*short_of_memory)
        return text;
    free(text);
    return NULL;
}

/* The place of an error in a text with kept numbers, as a place in the text that came. */
static void move_back(const char *text, json_error_t *where)
{
    const char *at = text, *end = text + where->position;
    int all = 0, line = 0;

    for (; at < end; at++) {
        bool is_kept = *at == '{' && strncmp(at, head, HEAD_BYTES) == 0;

        line = *at == '\n' ? 0 : line + is_kept;
        all += is_kept;
    }
    where->position -= all * (HEAD_BYTES + TAIL_BYTES);
    where->column -= line * (HEAD_BYTES + TAIL_BYTES);
    where->position = where->position > 0 ? where->position : 0; /* within an object: somewhere near */
    where->column = where->column > 0 ? where->column : 0;
}

json_t *openai_parse_as(const char *bytes, size_t n, size_t flags, json_error_t *where)
{
    json_error_t unused;
    json_t *value = NULL;
    bool short_of_memory = false;
    size_t size = 0;
    char *text = NULL;

    where = where != NULL ? where : &unused;
    have_key();
    text = keep_numbers(bytes, n, &size, &short_of_memory);
    if (short_of_memory) {
        *where = (json_error_t){.text = "not enough memory"};
        where->text[JSON_ERROR_TEXT_LENGTH - 1] = (char)json_error_out_of_memory;
        return NULL;
    }
    if (text == NULL)
        return json_loadb(bytes, n, flags, where);
    value = json_loadb(text, size, flags, where);
    if (value == NULL)
        move_back(text, where);
    free(text);
    return value;
}

json_t *openai_parse(const char *bytes, size_t n, json_error_t *where)
{
    return openai_parse_as(bytes, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, where);
}

/* ---- Dumping ----------------------------------------------------------------------------- */

/* Of an object's text, the bytes of the number that it stands for; 0: it is none. */
static size_t kept_bytes(const char *text, const char *end)
{
    const char *first = text + HEAD_BYTES;
    size_t n;

    if ((size_t)(end - text) <= HEAD_BYTES + TAIL_BYTES || memcmp(text, head, HEAD_BYTES) != 0)
        return 0;
    n = read_token(first, end).bytes;
    return (size_t)(end - first) >= n + TAIL_BYTES && memcmp(first + n, TAIL, TAIL_BYTES) == 0 ? n : 0;
}

char *openai_dump(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(DBL_DIG)), *to = text, *next;
    const char *at = text, *end = text != NULL ? text + strlen(text) : NULL;
    size_t n;

    have_key();
    /* A string's quotes are escaped, so that none can hold what is looked for. */
    for (; at != NULL && (next = strstr(at, head)) != NULL; at = next + n) {
        memmove(to, at, (size_t)(next - at));
        to += next - at;
        n = kept_bytes(next, end);
        memmove(to, n > 0 ? next + HEAD_BYTES : next, n > 0 ? n : 1);
        to += n > 0 ? n : 1;
        n = n > 0 ? HEAD_BYTES + n + TAIL_BYTES : 1;
    }
    if (at != NULL)
        memmove(to, at, (size_t)(end - at) + 1);
    return text;
}

/* ---- Values ------------------------------------------------------------------------------ */

bool openai_is_kept(const json_t *value)
{
    const json_t *text;
    const char *token;
    size_t n;

    have_key();
    text = json_object_size(value) == 1 ? json_object_get(value, key) : NULL;
    token = json_string_value(text);
    n = json_string_length(text);
    return token != NULL && n > 0 && read_token(token, token + n).bytes == n;
}

static const double beyond_integers = 9223372036854775808.0;

bool openai_is_too_long(const json_t *value)
{
    return fabs(json_real_value(value)) >= beyond_integers;
}

static json_t *integer_of(double number)
{
    if (number < -beyond_integers || number >= beyond_integers || number != (double)(json_int_t)number)
        return NULL;
    return json_integer((json_int_t)number);
}

/* An integer only where the double is what was written: from 2^53 on it may be a neighbour, which could be the last
 * integer that there is room for. */
static json_t *number_of_kept(const json_t *value)
{
    double number = strtod(json_string_value(json_object_get(value, key)), NULL);
    json_t *integer = number > -0x1p53 && number < 0x1p53 ? integer_of(number) : NULL;

    number = number > DBL_MAX ? DBL_MAX : number < -DBL_MAX ? -DBL_MAX : number;
    return integer != NULL ? integer : json_real(number);
}

/* The number that stands in the value's place; NULL: it stays. */
static json_t *number_of(const json_t *value)
{
    if (json_is_real(value))
        return integer_of(json_real_value(value));
    return openai_is_kept(value) ? number_of_kept(value) : NULL;
}

static void make_array_whole(json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_t *value = json_array_get(array, i), *number = number_of(value);

        if (number != NULL)
            json_array_set_new(array, i, number);
        else if (json_is_array(value))
            make_array_whole(value);
    }
}

void openai_make_whole(json_t *body)
{
    static const char *const opened[] = {"options", "logit_bias", "thinking", NULL};
    const char *name = NULL;
    json_t *value = NULL, *number = NULL, *entry = NULL;
    void *next = NULL;
    size_t i = 0;

    json_object_foreach_safe(body, next, name, value)
    {
        number = number_of(value);
        if (number != NULL)
            json_object_set_new(body, name, number);
        else if (json_is_array(value))
            make_array_whole(value);
        else if (json_is_object(value) && openai_known_word(opened, name))
            openai_make_whole(value);
        if (strcmp(name, "lora") == 0)
            json_array_foreach(value, i, entry) openai_make_whole(entry);
    }
}
