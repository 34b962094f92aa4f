/* runnel info: what a model file holds and what memory it will need. Nothing is loaded.
 *
 * Long values are abbreviated: a string to SHOWN_BYTES (as text only), an array to its first
 * SHOWN_ELEMENTS. Names and strings come from the file and are escaped, so that a file cannot write
 * to the terminal. */
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "devices.h"
#include "runnel_files.h"

enum { SHOWN_BYTES = 60, SHOWN_ELEMENTS = 6, MAX_TYPES = 64, DEFAULT_CONTEXT = 8192 };

struct type_total {
    const char *type;
    uint64_t tensors, elements, bytes;
};

/* ---- Metadata ---------------------------------------------------------------------------- */

/* Whether text[0..n) may stand in JSON as it is: a number (RFC 8259, section 6), true or false. */
static bool is_json_literal(const char *text, size_t n)
{
    size_t i = 0, digits = 0;

    if ((n == 4 && memcmp(text, "true", 4) == 0) || (n == 5 && memcmp(text, "false", 5) == 0))
        return true;
    i += i < n && text[i] == '-';
    digits = strspn(text + i, "0123456789");
    if (digits == 0 || (digits > 1 && text[i] == '0'))
        return false;
    i += digits;
    if (i < n && text[i] == '.') {
        digits = strspn(text + ++i, "0123456789");
        if (digits == 0)
            return false;
        i += digits;
    }
    if (i < n && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        i += i < n && (text[i] == '+' || text[i] == '-');
        digits = strspn(text + i, "0123456789");
        if (digits == 0)
            return false;
        i += digits;
    }
    return i == n;
}

/* How one element is written: a JSON value, or escaped text of bounded length. */
static void print_value(const runnel_file *file, uint64_t index, uint64_t element, bool is_string, bool json)
{
    size_t n = 0;
    char *text = app_element_text(file, index, element, &n);

    if (text == NULL)
        fputs(json ? "null" : "?", stdout);
    else if (!json)
        app_escaped(stdout, text, n, SHOWN_BYTES);
    else if (is_string || !is_json_literal(text, n))
        app_json_string(stdout, text, n);
    else
        fwrite(text, 1, n, stdout);
    free(text);
}

static bool is_array(const runnel_metadata *entry)
{
    return strncmp(entry->type, "array", 5) == 0;
}

static void print_values(const runnel_file *file, uint64_t index, const runnel_metadata *entry, bool json)
{
    bool is_string = strstr(entry->type, "string") != NULL;
    uint64_t shown = entry->count < SHOWN_ELEMENTS ? entry->count : SHOWN_ELEMENTS;

    if (!is_array(entry)) {
        print_value(file, index, 0, is_string, json);
        return;
    }
    fputc('[', stdout);
    for (uint64_t i = 0; i < shown; i++) {
        fputs(i == 0 ? "" : json ? "," : ", ", stdout);
        print_value(file, index, i, is_string, json);
    }
    if (!json && shown < entry->count)
        printf(", ... %llu in all", (unsigned long long)entry->count);
    fputc(']', stdout);
}

static void print_metadata(const runnel_file *file, bool json)
{
    runnel_metadata entry = {.struct_size = sizeof entry};

    for (uint64_t i = 0; runnel_file_metadata(file, i, &entry) == RUNNEL_OK; i++) {
        if (json) {
            fputs(i > 0 ? ",\n  {\"key\":" : "\n  {\"key\":", stdout);
            app_json_string(stdout, entry.key, entry.key_bytes);
            printf(",\"type\":\"%s\",\"count\":%llu,\"value\":", entry.type, (unsigned long long)entry.count);
            print_values(file, i, &entry, true);
            fputc('}', stdout);
        } else {
            fputs("  ", stdout);
            app_escaped(stdout, entry.key, entry.key_bytes, 0);
            printf(" (%s) = ", entry.type);
            print_values(file, i, &entry, false);
            fputc('\n', stdout);
        }
    }
}

/* ---- Tensors ----------------------------------------------------------------------------- */

static uint64_t elements_of(const runnel_tensor *tensor)
{
    return tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
}

static void print_tensor(const runnel_tensor *tensor, uint64_t index, bool json)
{
    char shape[96];
    int n = 0;

    for (uint32_t d = 0; d < tensor->n_dims && d < 4; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%llu",
                      d == 0 ? ""
                      : json ? ","
                             : " x ",
                      (unsigned long long)tensor->dims[d]);
    if (n == 0)
        shape[0] = '\0';
    if (json) {
        fputs(index > 0 ? ",\n  {\"name\":" : "\n  {\"name\":", stdout);
        app_json_string(stdout, tensor->name, tensor->name_bytes);
        printf(",\"type\":\"%s\",\"shape\":[%s],\"bytes\":%llu}", tensor->type, shape,
               (unsigned long long)tensor->bytes);
    } else {
        printf("  %-8s %14llu  %-24s ", tensor->type, (unsigned long long)tensor->bytes, shape);
        app_escaped(stdout, tensor->name, tensor->name_bytes, 0);
        fputc('\n', stdout);
    }
}

static void print_tensors(const runnel_file *file, bool json)
{
    runnel_tensor tensor = {.struct_size = sizeof tensor};

    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
        print_tensor(&tensor, i, json);
}

static void print_totals(const runnel_file *file, bool json)
{
    struct type_total totals[MAX_TYPES];
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    size_t n = 0, at = 0;

    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++) {
        for (at = 0; at < n && strcmp(totals[at].type, tensor.type) != 0; at++)
            continue;
        if (at == MAX_TYPES)
            continue;
        if (at == n)
            totals[n++] = (struct type_total){.type = tensor.type};
        totals[at].tensors++;
        totals[at].elements += elements_of(&tensor);
        totals[at].bytes += tensor.bytes;
    }
    for (at = 0; at < n; at++)
        printf(json ? "%s\n  {\"type\":\"%s\",\"tensors\":%llu,\"elements\":%llu,\"bytes\":%llu}"
                    : "%s  %-8s %6llu tensors %14llu elements %14llu bytes\n",
               json && at > 0 ? "," : "", totals[at].type, (unsigned long long)totals[at].tensors,
               (unsigned long long)totals[at].elements, (unsigned long long)totals[at].bytes);
}

/* ---- Memory ------------------------------------------------------------------------------ */

void app_file_memory(const runnel_file *file, const struct app_options *options, struct app_memory *memory)
{
    runnel_file_info info = {.struct_size = sizeof info};
    size_t n = 0;
    char *architecture = app_file_text(file, "general.architecture", "", &n);
    char *text = app_file_text(file, architecture != NULL ? architecture : "", ".context_length", &n);

    runnel_file_get_info(file, &info);
    *memory = (struct app_memory){.weight_bytes = info.weight_bytes};
    if (text != NULL)
        memory->trained = strtoull(text, NULL, 10);
    free(text);
    free(architecture);
    memory->context = (uint64_t)options->context;
    if (memory->context == 0)
        memory->context = memory->trained > 0 && memory->trained < DEFAULT_CONTEXT ? memory->trained : DEFAULT_CONTEXT;
    memory->error.status = runnel_file_kv_bytes_per_token(file, app_kv_type(options->kv_type),
                                                          &memory->kv_bytes_per_token, &memory->error);
}

static void print_bytes(const char *name, uint64_t bytes)
{
    printf("  %-34s %14llu bytes  %10.1f MiB\n", name, (unsigned long long)bytes, (double)bytes / (1 << 20));
}

static void print_memory(const struct app_memory *memory, const char *kv_type)
{
    uint64_t kv = 0;
    char name[64];

    puts("memory");
    print_bytes("weights", memory->weight_bytes);
    if (memory->error.status != RUNNEL_OK) {
        printf("  key-value cache: not known: %s\n", memory->error.message);
        return;
    }
    if (__builtin_mul_overflow(memory->kv_bytes_per_token, memory->context, &kv)) {
        puts("  key-value cache: more than any machine has");
        return;
    }
    snprintf(name, sizeof name, "keys and values, %llu in %s", (unsigned long long)memory->context, kv_type);
    print_bytes(name, kv);
    print_bytes("together", memory->weight_bytes + kv);
}

static void print_memory_json(const struct app_memory *memory, const char *kv_type)
{
    uint64_t kv = 0;
    bool known =
        memory->error.status == RUNNEL_OK && !__builtin_mul_overflow(memory->kv_bytes_per_token, memory->context, &kv);

    printf("\"memory\":{\"context_tokens\":%llu,\"kv_type\":\"%s\",\"weight_bytes\":%llu,",
           (unsigned long long)memory->context, kv_type, (unsigned long long)memory->weight_bytes);
    if (known)
        printf("\"kv_bytes_per_token\":%llu,\"kv_bytes\":%llu,\"total_bytes\":%llu}",
               (unsigned long long)memory->kv_bytes_per_token, (unsigned long long)kv,
               (unsigned long long)(memory->weight_bytes + kv));
    else
        fputs("\"kv_bytes_per_token\":null,\"kv_bytes\":null,\"total_bytes\":null}", stdout);
}

/* ---- Chats ------------------------------------------------------------------------------- */

static void print_chats(const runnel_file *file, bool json)
{
    runnel_template_info probe = {.struct_size = sizeof probe};
    runnel_samplers samplers;
    runnel_sampling sampling = {.samplers = &samplers};
    uint32_t recommended = 0, further = 0;

    runnel_samplers_default(&samplers);
    runnel_file_sampling(file, &sampling, &recommended);
    runnel_file_samplers(file, &samplers, &further);
    recommended |= further;
    fputs(json ? "\"sampling\":{" : "recommended sampling: ", stdout);
    app_sampling_print(stdout, &sampling, recommended, json);
    if (json) {
        fputs("},\n\"templates\":[", stdout);
        app_templates_print(file, true);
        fputs("],\n", stdout);
        return;
    }
    puts(recommended == 0 ? "none" : "");
    if (runnel_file_template(file, 0, &probe, NULL) == RUNNEL_NOT_FOUND) {
        puts("chat templates: none");
        return;
    }
    puts("chat templates");
    app_templates_print(file, false);
}

/* ---- The whole --------------------------------------------------------------------------- */

struct names {
    char *architecture, *name;
    size_t architecture_bytes, name_bytes;
};

static void print_text(const runnel_file *file, const runnel_file_info *info, const struct names *names,
                       const struct app_memory *memory, const struct app_options *options)
{
    fputs("architecture: ", stdout);
    app_escaped(stdout, names->architecture, names->architecture_bytes, 0);
    fputs("\nname: ", stdout);
    app_escaped(stdout, names->name, names->name_bytes, 0);
    printf("\nfile: GGUF version %u, %u part%s, %llu bytes, alignment %u\n", (unsigned)info->version,
           (unsigned)info->parts, info->parts == 1 ? "" : "s", (unsigned long long)info->file_bytes,
           (unsigned)info->alignment);
    printf("parameters: %llu\n", (unsigned long long)info->parameters);
    if (memory->trained > 0)
        printf("trained context: %llu\n", (unsigned long long)memory->trained);
    print_chats(file, false);
    printf("\nmetadata: %llu entries\n", (unsigned long long)info->n_metadata);
    print_metadata(file, false);
    printf("\ntensors: %llu; type, bytes, shape (fastest first), name\n", (unsigned long long)info->n_tensors);
    print_tensors(file, false);
    puts("\nformats");
    print_totals(file, false);
    fputc('\n', stdout);
    print_memory(memory, options->kv_type);
}

static void print_json(const runnel_file *file, const runnel_file_info *info, const struct names *names,
                       const struct app_memory *memory, const struct app_options *options)
{
    fputs("{\"path\":", stdout);
    app_json_string(stdout, options->operands[0], strlen(options->operands[0]));
    fputs(",\"architecture\":", stdout);
    app_json_string(stdout, names->architecture, names->architecture_bytes);
    fputs(",\"name\":", stdout);
    app_json_string(stdout, names->name, names->name_bytes);
    printf(",\n\"version\":%u,\"parts\":%u,\"alignment\":%u,\"file_bytes\":%llu,\"parameters\":%llu,"
           "\"trained_tokens\":%llu,\n",
           (unsigned)info->version, (unsigned)info->parts, (unsigned)info->alignment,
           (unsigned long long)info->file_bytes, (unsigned long long)info->parameters,
           (unsigned long long)memory->trained);
    print_memory_json(memory, options->kv_type);
    fputs(",\n", stdout);
    print_chats(file, true);
    fputs("\"metadata\":[", stdout);
    print_metadata(file, true);
    fputs("],\n\"tensors\":[", stdout);
    print_tensors(file, true);
    fputs("],\n\"formats\":[", stdout);
    print_totals(file, true);
    fputs("]}\n", stdout);
}

/* ---- Plans and architectures ------------------------------------------------------------- */

static int print_architectures(bool json)
{
    char features[RUNNEL_FEATURES_BYTES];
    const char *name;

    fputs(json ? "{\"architectures\":[" : "", stdout);
    for (uint32_t i = 0; (name = runnel_architecture(i, features)) != NULL; i++)
        if (json)
            printf("%s\n{\"name\":\"%s\",\"features\":\"%s\"}", i > 0 ? "," : "", name, features);
        else
            printf("%-12s %s\n", name, features);
    fputs(json ? "]}\n" : "", stdout);
    return app_output_code();
}

static int print_plan(const runnel_file *file, bool json)
{
    runnel_error error = {0};
    size_t n = 0;
    char *text;

    error.status = runnel_file_plan(file, NULL, 0, &n, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    text = malloc(n);
    error.status = text != NULL ? runnel_file_plan(file, text, n, &n, &error) : RUNNEL_NO_MEMORY;
    if (error.status == RUNNEL_OK && json) {
        fputs("{\"plan\":", stdout);
        app_json_string(stdout, text, n);
        fputs("}\n", stdout);
    } else if (error.status == RUNNEL_OK) {
        fwrite(text, 1, n, stdout);
    }
    free(text);
    return error.status == RUNNEL_OK ? app_output_code() : app_fail(&error);
}

static int print_file(const runnel_file *file, const struct app_options *options)
{
    runnel_file_info info = {.struct_size = sizeof info};
    struct names names = {0};
    struct app_memory memory;

    runnel_file_get_info(file, &info);
    names.architecture = app_file_text(file, "general.architecture", "", &names.architecture_bytes);
    names.name = app_file_text(file, "general.name", "", &names.name_bytes);
    app_file_memory(file, options, &memory);
    if (options->json)
        print_json(file, &info, &names, &memory, options);
    else
        print_text(file, &info, &names, &memory, options);
    free(names.architecture);
    free(names.name);
    return app_output_code();
}

int app_info(const struct app_options *options)
{
    struct app_architecture architecture;
    runnel_file *file = NULL;
    runnel_error error = {0};
    int code;

    if (options->architectures && options->n_operands == 0)
        return print_architectures(options->json);
    if (options->devices && options->n_operands == 0 && !options->architectures)
        return app_devices(options);
    if (options->architectures || options->devices || options->n_operands == 0) {
        app_error("%s; see runnel info --help", options->architectures ? "--architectures takes no MODEL"
                                                : options->devices     ? "--devices takes no MODEL"
                                                                       : "MODEL is missing");
        return APP_USAGE;
    }
    if (!app_architecture_read(options->architecture, &architecture))
        return APP_USAGE;
    error.status = runnel_file_open(options->operands[0], &file, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    error.status = runnel_file_set_architectures(file, architecture.rows, architecture.n, &error);
    if (error.status != RUNNEL_OK) {
        runnel_file_close(file);
        return app_fail(&error);
    }
    code = options->plan ? print_plan(file, options->json) : print_file(file, options);
    runnel_file_close(file);
    return code;
}
