/* Error sentences: see status.h. */
#include "base/status.h"

#include <string.h>

#include "base/one_line.h"

void rn_error_clear(runnel_error *error)
{
    if (error != NULL) {
        error->status = RUNNEL_OK;
        error->message[0] = '\0';
        error->retry_ms = 0;
        error->about = RUNNEL_ABOUT_NONE;
        error->reserved_word = 0;
        memset(error->reserved, 0, sizeof error->reserved);
    }
}

runnel_status rn_error_vset(runnel_error *error, runnel_status status, const char *format, va_list args)
{
    if (error == NULL)
        return status;
    if (error->status != RUNNEL_OK)
        return error->status;
    error->status = status;
    rn_one_line_vprint(error->message, sizeof error->message, format, args);
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

runnel_status rn_error_set_about(runnel_error *error, runnel_about about, runnel_status status, const char *format, ...)
{
    va_list args;

    if (error != NULL && error->status == RUNNEL_OK)
        error->about = about;
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
