/* What a file says of its chats, as text and as JSON: see common.h. */
#include <string.h>

#include "common.h"

static const struct {
    uint32_t bit;
    const char *name, *json;
} traits[] = {
    {RUNNEL_TEMPLATE_SYSTEM, "system role", "system"},
    {RUNNEL_TEMPLATE_TOOLS, "tools", "tools"},
    {RUNNEL_TEMPLATE_REASONING, "reasoning", "reasoning"},
    {RUNNEL_TEMPLATE_THINKING, "enable_thinking", "enable_thinking"},
    {RUNNEL_TEMPLATE_PARTS, "content in parts", "content_parts"},
};

enum { N_TRAITS = sizeof traits / sizeof traits[0] };

void app_template_knows(FILE *to, uint32_t knows)
{
    size_t n = 0;

    for (size_t i = 0; i < N_TRAITS; i++)
        if ((knows & traits[i].bit) != 0)
            fprintf(to, "%s%s", n++ > 0 ? ", " : "", traits[i].name);
    if (n == 0)
        fputs("messages alone", to);
}

static void template_text(const runnel_template_info *info, const runnel_error *error)
{
    fputs("  ", stdout);
    app_escaped(stdout, info->name[0] != '\0' ? info->name : "(unnamed)",
                info->name[0] != '\0' ? strlen(info->name) : strlen("(unnamed)"), 0);
    printf(": %llu bytes; ", (unsigned long long)info->bytes);
    if (error->status != RUNNEL_OK) {
        printf("malformed: %s\n", error->message);
        return;
    }
    app_template_knows(stdout, info->knows);
    printf("; answers: %s\n", info->format);
}

static void template_json(const runnel_template_info *info, const runnel_error *error)
{
    fputs("{\"name\":", stdout);
    app_json_string(stdout, info->name, strlen(info->name));
    printf(",\"bytes\":%llu,\"answers\":\"%s\",\"error\":", (unsigned long long)info->bytes, info->format);
    if (error->status == RUNNEL_OK)
        fputs("null", stdout);
    else
        app_json_string(stdout, error->message, strlen(error->message));
    for (size_t i = 0; i < N_TRAITS; i++)
        printf(",\"%s\":%s", traits[i].json, (info->knows & traits[i].bit) != 0 ? "true" : "false");
    fputc('}', stdout);
}

void app_template_print(const runnel_template_info *info, const runnel_error *error, bool json)
{
    if (json)
        template_json(info, error);
    else
        template_text(info, error);
}

uint32_t app_templates_print(const runnel_file *file, bool json)
{
    runnel_template_info info = {.struct_size = sizeof info};
    runnel_error error = {0};
    uint32_t n = 0;

    for (;; n++) {
        error.status = runnel_file_template(file, n, &info, &error);
        if (error.status != RUNNEL_OK && error.status != RUNNEL_FORMAT)
            return n;
        if (json && n > 0)
            fputs(",\n  ", stdout);
        app_template_print(&info, &error, json);
    }
}

void app_sampling_print(FILE *to, const runnel_sampling *sampling, uint32_t members, bool json)
{
    const runnel_samplers *samplers = sampling->samplers;
    const struct {
        uint32_t bit;
        const char *name, *json;
        double value;
    } all[] = {
        {RUNNEL_RECOMMENDED_TEMPERATURE, "temperature", "temperature", (double)sampling->temperature},
        {RUNNEL_RECOMMENDED_TOP_K, "top-k", "top_k", sampling->top_k},
        {RUNNEL_RECOMMENDED_TOP_P, "top-p", "top_p", (double)sampling->top_p},
        {RUNNEL_RECOMMENDED_MIN_P, "min-p", "min_p", (double)sampling->min_p},
        {RUNNEL_RECOMMENDED_REPETITION_PENALTY, "repetition-penalty", "repetition_penalty",
         (double)sampling->repetition_penalty},
        {RUNNEL_RECOMMENDED_PENALTY_TOKENS, "penalty-tokens", "penalty_tokens", sampling->penalty_tokens},
        {RUNNEL_RECOMMENDED_XTC_PROBABILITY, "xtc-probability", "xtc_probability", (double)samplers->xtc_probability},
        {RUNNEL_RECOMMENDED_XTC_THRESHOLD, "xtc-threshold", "xtc_threshold", (double)samplers->xtc_threshold},
        {RUNNEL_RECOMMENDED_MIROSTAT, "mirostat", "mirostat", samplers->mirostat},
        {RUNNEL_RECOMMENDED_MIROSTAT_TAU, "mirostat-ent", "mirostat_tau", (double)samplers->mirostat_tau},
        {RUNNEL_RECOMMENDED_MIROSTAT_ETA, "mirostat-lr", "mirostat_eta", (double)samplers->mirostat_eta},
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if ((members & all[i].bit) != 0)
            fprintf(to, json ? "%s\"%s\":%.6g" : "%s%s %.6g", n++ > 0 ? json ? "," : ", " : "",
                    json ? all[i].json : all[i].name, all[i].value);
}
