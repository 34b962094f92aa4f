/* See devices.h. */
#include "devices.h"

#include <stdarg.h>
#include <string.h>

enum { MOST_DEVICES = 64 };

void app_fact(const char *name, const char *format, ...)
{
    va_list args;

    printf("%-18s ", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static runnel_device_info look_at(runnel_engine *engine, const char *name)
{
    runnel_device_info info = {.struct_size = sizeof info};
    runnel_error error = {0};

    if (runnel_engine_device(engine, name, &info, &error) != RUNNEL_OK)
        snprintf(info.why, sizeof info.why, "%s", error.message);
    return info;
}

static runnel_device_info look(runnel_engine *engine, uint32_t index)
{
    char name[32];

    snprintf(name, sizeof name, "cuda:%u", (unsigned)index);
    return look_at(engine, name);
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void print_device(uint32_t index, const runnel_device_info *info)
{
    char name[32], rest[RUNNEL_ERROR_BYTES + 64] = "";

    snprintf(name, sizeof name, "cuda:%u", (unsigned)index);
    if (info->why[0] == '\0')
        snprintf(rest, sizeof rest, ", of which %.1f are free", gib(info->free_bytes));
    else
        snprintf(rest, sizeof rest, "; it cannot be used: %s", info->why);
    app_fact(name, "%s, compute capability %s, %.1f GiB%s", info->name[0] != '\0' ? info->name : "without a name",
             info->capability[0] != '\0' ? info->capability : "not known", gib(info->memory_bytes), rest);
}

void app_devices_print(runnel_engine *engine)
{
    const runnel_device_info first = look(engine, 0);
    runnel_device_info info = first;

    app_fact("cpu:LEVEL", "%s", look_at(engine, "cpu").kernels);
    app_fact("cuda kernels", "%s", first.kernels);
    app_fact("cuda driver", "%s", first.driver);
    for (uint32_t i = 0; i < first.n_devices && i < MOST_DEVICES; i++) {
        if (i > 0)
            info = look(engine, i);
        print_device(i, &info);
    }
    if (first.why[0] == '\0')
        app_fact("device auto", "cuda:0");
    else
        app_fact("device auto", "the CPU: %s", first.why);
}

/* ---- runnel info --devices --------------------------------------------------------------- */

static void json_text(const char *key, const char *text)
{
    printf("\"%s\":", key);
    app_json_string(stdout, text, strlen(text));
}

/* Of words with ", " between them an array. */
static void json_words(const char *key, const char *words)
{
    size_t n;

    printf("\"%s\":[", key);
    for (; (n = strcspn(words, ",")) > 0; words += n + strspn(words + n, ", ")) {
        app_json_string(stdout, words, n);
        fputs(words[n] != '\0' ? "," : "", stdout);
    }
    putchar(']');
}

static void print_json(runnel_engine *engine)
{
    const runnel_device_info cpu = look_at(engine, "cpu");
    const runnel_device_info first = look(engine, 0);
    runnel_device_info info = first;

    putchar('{');
    json_words("cpu_levels", cpu.kernels);
    putchar(',');
    json_text("kernels", first.kernels);
    putchar(',');
    json_text("driver", first.driver);
    fputs(",\n\"devices\":[", stdout);
    for (uint32_t i = 0; i < first.n_devices && i < MOST_DEVICES; i++) {
        if (i > 0)
            info = look(engine, i);
        printf("%s\n{\"device\":\"cuda:%u\",", i > 0 ? "," : "", (unsigned)i);
        json_text("name", info.name);
        putchar(',');
        json_text("capability", info.capability);
        printf(",\"memory_bytes\":%llu,\"free_bytes\":%llu,\"usable\":%s,", (unsigned long long)info.memory_bytes,
               (unsigned long long)info.free_bytes, info.why[0] == '\0' ? "true" : "false");
        json_text("why", info.why);
        putchar('}');
    }
    fputs("],\n", stdout);
    json_text("auto", first.why[0] == '\0' ? "cuda:0" : "cpu");
    putchar(',');
    json_text("why", first.why);
    fputs("}\n", stdout);
}

int app_devices(const struct app_options *options)
{
    runnel_engine_options engine_options;
    runnel_engine *engine = NULL;
    runnel_error error = {0};

    runnel_engine_options_default(&engine_options);
    engine_options.compute_threads = 1;
    engine_options.device_library = options->cuda_library;
    app_log_options(options, &engine_options);
    error.status = runnel_engine_new(&engine_options, &engine, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    if (options->json)
        print_json(engine);
    else
        app_devices_print(engine);
    runnel_engine_free(engine);
    return app_output_code();
}
