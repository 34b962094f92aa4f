/* Error sentences: see status.h. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

void rn_error_clear(runnel_error *error)
{
    if (error != NULL) {
        error->status = RUNNEL_OK;
        error->message[0] = '\0';
        error->retry_ms = 0;
        memset(error->reserved, 0, sizeof error->reserved);
    }
}

/* Of text[0..n), which was cut there, what is left without the beginning of a character of UTF-8 at its end. */
static size_t whole_characters(const char *text, size_t n)
{
    size_t tail = 0, needed;
    unsigned char lead;

    while (tail < 3 && tail < n && ((unsigned char)text[n - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == n)
        return n;
    lead = (unsigned char)text[n - 1 - tail];
    needed = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return needed > tail + 1 ? n - 1 - tail : n;
}

/* Copies `in` with control bytes as "\xNN"; truncates at the end of `out`, between two characters. */
static void escape(char *out, size_t capacity, const char *in)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;

    for (; *in != '\0' && n + 5 < capacity; in++) {
        unsigned char c = (unsigned char)*in;
        if (c >= 0x20 && c != 0x7f) {
            out[n++] = (char)c;
        } else {
            out[n++] = '\\';
            out[n++] = 'x';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        }
    }
    out[*in != '\0' ? whole_characters(out, n) : n] = '\0';
}

runnel_status rn_error_vset(runnel_error *error, runnel_status status, const char *format, va_list args)
{
    char raw[RUNNEL_ERROR_BYTES];

    if (error == NULL)
        return status;
    if (error->status != RUNNEL_OK)
        return error->status;
    vsnprintf(raw, sizeof raw, format, args);
    error->status = status;
    escape(error->message, sizeof error->message, raw);
    return status;
}

runnel_status rn_error_set(runnel_error *error, runnel_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    status = rn_error_vset(error, status, format, args);
    va_end(args);
    return status;
}

#define CASE_NAME(name, value, sentence) \
    case RUNNEL_##name:                  \
        return #name;
#define CASE_TEXT(name, value, sentence) \
    case RUNNEL_##name:                  \
        return sentence;

const char *runnel_status_name(runnel_status status)
{
    switch (status) {
        RUNNEL_STATUS_MAP(CASE_NAME)
    default:
        break;
    }
    return "UNKNOWN";
}

const char *runnel_status_text(runnel_status status)
{
    switch (status) {
        RUNNEL_STATUS_MAP(CASE_TEXT)
    default:
        break;
    }
    return "unknown status";
}

#define CASE_REST_NAME(name, value, sentence) \
    case RUNNEL_REST_##name:                  \
        return #name;
#define CASE_REST_TEXT(name, value, sentence) \
    case RUNNEL_REST_##name:                  \
        return sentence;

const char *runnel_rest_name(runnel_rest rest)
{
    switch (rest) {
        RUNNEL_REST_MAP(CASE_REST_NAME)
    default:
        break;
    }
    return "UNKNOWN";
}

const char *runnel_rest_text(runnel_rest rest)
{
    switch (rest) {
        RUNNEL_REST_MAP(CASE_REST_TEXT)
    default:
        break;
    }
    return "unknown reason";
}

#define CASE_EVENT(name, value) \
    case RUNNEL_EVENT_##name:   \
        return #name;
#define CASE_PHASE(name, value) \
    case RUNNEL_PHASE_##name:   \
        return #name;

const char *runnel_event_name(runnel_event_type type)
{
    switch (type) {
        RUNNEL_EVENT_MAP(CASE_EVENT)
    default:
        break;
    }
    return "UNKNOWN";
}

const char *runnel_phase_name(runnel_phase phase)
{
    switch (phase) {
        RUNNEL_PHASE_MAP(CASE_PHASE)
    default:
        break;
    }
    return "UNKNOWN";
}
