/* runnel doctor: what this machine will do with a model: the instruction set, the memory and how fast it is read, what
 * the model needs of both, and what is missing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "devices.h"
#include "runnel_files.h"

struct doctor {
    const struct app_options *options;
    runnel_machine machine;
    uint64_t free;        /* bytes of memory that could be had now; 0: not known */
    bool on_device;       /* the model goes to a device with memory of its own, ... */
    uint64_t device_free; /* ... of which so many bytes are free */
    unsigned n_missing;
};

static void missing(struct doctor *doctor, const char *what)
{
    app_fact("missing", "%s", what);
    doctor->n_missing++;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void print_machine(struct doctor *doctor)
{
    const runnel_machine *machine = &doctor->machine;
    uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    app_fact("processor", "%s", machine->cpu);
    app_fact("instructions", "%s", machine->level);
    app_fact("threads", "%u on %u memory node%s", machine->compute_threads, machine->memory_nodes,
             machine->memory_nodes == 1 ? "" : "s");
    app_fact("memory", "%.1f GiB%s, of which %.1f could be had now", gib(machine->memory_bytes),
             machine->memory_bytes < physical ? " (the control group's limit)" : "", gib(doctor->free));
    app_fact("reads memory", "%.1f GB/s", machine->read_bytes_per_s * 1e-9);
    app_fact("computes", "%.0f G/s on bytes, %.0f G/s on floats", machine->integer_ops_per_s * 1e-9,
             machine->float_ops_per_s * 1e-9);
    if (strcmp(machine->level, "c") == 0)
        missing(doctor, "fast instructions (AVX2, AVX-512 or NEON): the plain C loops are many times slower");
}

static void look_at_memory_of_host(struct doctor *doctor, runnel_engine *engine)
{
    runnel_device_info info = {.struct_size = sizeof info};

    if (runnel_engine_device(engine, "cpu", &info, NULL) == RUNNEL_OK)
        doctor->free = info.free_bytes;
}

/* Whether it is one that can be used; of one that cannot the load says why. */
static void look_at_device(struct doctor *doctor, runnel_engine *engine)
{
    const char *name = doctor->options->device;
    runnel_device_info info = {.struct_size = sizeof info};

    if (strncmp(name, "cpu", 3) == 0 || strcmp(name, "reference") == 0 ||
        runnel_engine_device(engine, name, &info, NULL) != RUNNEL_OK || info.why[0] != '\0')
        return;
    doctor->on_device = true;
    doctor->device_free = info.free_bytes;
}

static int look_at_machine(struct doctor *doctor)
{
    runnel_engine_options options;
    runnel_engine *engine = NULL;
    runnel_error error = {0};

    runnel_engine_options_default(&options);
    options.compute_threads = (uint32_t)doctor->options->threads;
    options.device_library = doctor->options->cuda_library;
    app_log_options(doctor->options, &options);
    error.status = runnel_engine_new(&options, &engine, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    doctor->machine.struct_size = sizeof doctor->machine;
    error.status = runnel_engine_measure(engine, &doctor->machine, &error);
    if (error.status == RUNNEL_OK) {
        look_at_memory_of_host(doctor, engine);
        print_machine(doctor);
        app_devices_print(engine);
        look_at_device(doctor, engine);
    }
    runnel_engine_free(engine);
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

/* What a token reads of the weights bounds the speed: of experts, those that it uses. How fast a device reads its own
 * memory is not known. */
static void print_speed(const struct doctor *doctor)
{
    const struct bench_test one = {.decode = true, .streams = 1};
    struct bench_cost cost;
    double bytes = 0;

    if (!doctor->on_device &&
        bench_cost_read(&cost, doctor->options->operands[0], app_kv_type(doctor->options->kv_type)) == APP_OK)
        bytes = bench_cost_need(&cost, &one, 1).bytes;
    if (bytes > 0)
        app_fact("one stream", "at most %.1f tokens/s, as fast as the weights of a token can be read",
                 doctor->machine.read_bytes_per_s / bytes);
}

/* What the machine and the device have together: a model that the device does not hold is split between them. */
static void judge_memory(struct doctor *doctor, uint64_t needed)
{
    char why[192], device[64] = "";

    if (doctor->free == 0 || needed <= doctor->free + doctor->device_free)
        return;
    if (doctor->on_device)
        snprintf(device, sizeof device, " and %.1f on the device", gib(doctor->device_free));
    snprintf(why, sizeof why,
             "memory: %.1f GiB are needed, %.1f could be had%s; a smaller --ctx, --kv-type q8 or model", gib(needed),
             gib(doctor->free), device);
    missing(doctor, why);
}

static void look_at_memory(struct doctor *doctor, const struct app_memory *memory)
{
    uint64_t kv = 0;
    char why[160];

    app_fact("weights", "%.2f GiB", gib(memory->weight_bytes));
    if (memory->error.status != RUNNEL_OK) {
        snprintf(why, sizeof why, "the key-value cache's size: %.120s", memory->error.message);
        missing(doctor, why);
        return;
    }
    if (__builtin_mul_overflow(memory->kv_bytes_per_token, memory->context, &kv))
        kv = UINT64_MAX / 2;
    app_fact("keys and values", "%.2f GiB for a context of %llu in %s", gib(kv), (unsigned long long)memory->context,
             doctor->options->kv_type);
    if (memory->trained > 0 && memory->context > memory->trained)
        app_fact("context", "more than the %llu that the model was trained for", (unsigned long long)memory->trained);
    print_speed(doctor);
    judge_memory(doctor, memory->weight_bytes + kv);
}

/* Loads it, where it fits: nothing else tells whether it works. */
static int try_model(struct doctor *doctor)
{
    struct app app = {0};
    char order[96];
    runnel_chat chat;
    size_t n = 0;
    int code = app_open(&app, doctor->options, false);

    if (code == APP_OK) {
        runnel_chat_default(&chat);
        chat.messages_json = "[]";
        app_weights_text(&app.info, order, sizeof order);
        app_fact("loads", "yes");
        app_fact("order", "weights lie %s", order);
        app_layers_text(&app.info, order, sizeof order);
        if (app.info.device_layers > 0)
            app_fact("layers", "%s", order);
        app_experts_text(&app.info, order, sizeof order);
        if (doctor->options->device_experts > 0 && app.info.device_layers > 0)
            app_fact("experts", "%s", order);
        app_fact("chat template", runnel_apply_template(app.model, &chat, NULL, 0, &n, NULL) == RUNNEL_NOT_FOUND
                                      ? "none: chat has plain User:/Assistant: turns"
                                      : "yes");
    }
    app_close(&app);
    return code;
}

static int look_at_model(struct doctor *doctor)
{
    runnel_file *file = NULL;
    runnel_error error = {0};
    struct app_memory memory;

    error.status = runnel_file_open(doctor->options->operands[0], &file, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    app_file_memory(file, doctor->options, &memory);
    runnel_file_close(file);
    putchar('\n');
    look_at_memory(doctor, &memory);
    return doctor->n_missing == 0 ? try_model(doctor) : APP_OK;
}

int app_doctor(const struct app_options *options)
{
    struct doctor doctor = {.options = options};
    int code = look_at_machine(&doctor);

    if (code == APP_OK && options->n_operands > 0)
        code = look_at_model(&doctor);
    if (code == APP_OK)
        app_fact("verdict", "%s", doctor.n_missing == 0 ? "all is well" : "see what is missing above");
    return app_worse(code == APP_OK && doctor.n_missing > 0 ? APP_FAILURE : code, app_output_code());
}
