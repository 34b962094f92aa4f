/* What is told of a device before a model is on it (runnel_engine_device): of machines that lack the kernels, the
 * driver, the device, or nothing. A stub of libcuda.so.1, behind which is the emulated driver with faults, is the
 * machine's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/module.h"
#include "runnel_observe.h"
#include "tests/actors/fixture.h"
#include "tests/gpu/rigs/faulty_driver.h"
#include "tests/gpu/rigs/stubs.h"

enum {
    MEMORY = 48 << 20,
    BEHIND = 10 /* calls behind the device's start: what memory is free, its end, and the thread's context */
};

static struct stubs stubs;

struct machine {
    struct rn_heap heap;
    struct rn_gpu_fault fault;
    struct rn_gpu_driver *driver;
    runnel_engine *engine;
};

/* Its devices are as `change` makes them. NULL library: the usual one. */
static void open_machine(struct machine *machine, const char *library, void (*change)(struct rn_gpu_driver *driver))
{
    runnel_engine_options options;

    memset(machine, 0, sizeof *machine);
    rn_heap_init(&machine->heap, NULL);
    machine->driver = rn_gpu_driver_faulty(
        &machine->heap, stubs.kernels->driver(&machine->heap, stubs.kernels->emulation, MEMORY), &machine->fault);
    assert_non_null(machine->driver);
    if (change != NULL)
        change(machine->driver);
    *stubs.driver = machine->driver;
    runnel_engine_options_default(&options);
    options.device_library = library;
    options.compute_threads = options.scheduler_threads = 1;
    machine->engine = start_engine(&options);
}

/* Nothing of the driver is left. */
static void close_machine(struct machine *machine)
{
    runnel_engine_free(machine->engine);
    assert_int_equal(machine->fault.owed, 0);
    machine->driver->close(machine->driver);
    assert_int_equal(rn_heap_blocks(&machine->heap), 0);
}

static runnel_device_info look(struct machine *machine, const char *device)
{
    runnel_device_info info = {.struct_size = sizeof info};
    runnel_error error = {0};

    if (runnel_engine_device(machine->engine, device, &info, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(info.struct_size, sizeof info);
    return info;
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, text);
}

static void test_usable(void **state)
{
    struct machine machine;
    runnel_device_info info;

    (void)state;
    open_machine(&machine, STUB_KERNELS, NULL);
    for (int i = 0; i < 2; i++) {
        info = look(&machine, i == 0 ? "cuda" : "auto");
        assert_string_equal(info.why, "");
        assert_string_equal(info.kernels, STUB_KERNELS);
        assert_string_equal(info.driver, "libcuda.so.1 of CUDA 12.0");
        assert_string_equal(info.name, "emulated device");
        assert_string_equal(info.capability, "9.0");
        assert_int_equal(info.n_devices, 1);
        assert_int_equal(info.memory_bytes, MEMORY);
        assert_true(info.free_bytes > 0 && info.free_bytes <= MEMORY);
    }
    info = look(&machine, "cuda:3");
    assert_string_equal(info.why, "cuda: there is no device 3: the machine has 1 of them");
    assert_int_equal(info.index, 3);
    assert_int_equal(info.n_devices, 1);
    assert_string_equal(info.name, "");
    info = look(&machine, "cpu");
    assert_string_equal(info.why, "");
    assert_true(info.memory_bytes > 0 && info.name[0] != '\0' && info.kernels[0] != '\0');
    close_machine(&machine);
}

/* The context that a thread of the host has, as the driver's functions know it; another than the device's. */
static struct rn_gpu_driver whole;
static struct rn_gpu_context *current, *const hosts = (struct rn_gpu_context *)(uintptr_t)8;
static int changes;

static int get_context(struct rn_gpu_driver *driver, struct rn_gpu_context **context)
{
    (void)driver;
    *context = current;
    return RN_GPU_OK;
}

static int set_context(struct rn_gpu_driver *driver, struct rn_gpu_context *context)
{
    changes++;
    current = context;
    return context == NULL || context == hosts ? RN_GPU_OK : whole.context_set(driver, context);
}

static void make_watched(struct rn_gpu_driver *driver)
{
    whole = *driver;
    driver->context_get = get_context;
    driver->context_set = set_context;
}

/* Whoever asks has the context afterwards that it had, or none. */
static void test_context(void **state)
{
    struct machine machine;

    (void)state;
    for (int i = 0; i < 2; i++) {
        changes = 0;
        current = i == 0 ? NULL : hosts;
        open_machine(&machine, STUB_KERNELS, make_watched);
        assert_string_equal(look(&machine, "cuda").why, "");
        assert_true(changes > 0);
        assert_ptr_equal(current, i == 0 ? NULL : hosts);
        close_machine(&machine);
    }
}

static void test_emulated(void **state)
{
    struct machine machine;
    runnel_device_info info;

    (void)state;
    open_machine(&machine, EMULATED_MODULE, NULL);
    info = look(&machine, "cuda:0");
    assert_string_equal(info.why, "");
    assert_says(info.driver, "emulated");
    assert_says(info.kernels, "runnel-cuda-emulated");
    close_machine(&machine);
}

/* Kernels, driver and device are each told of where another one is missing. */
static void test_no_kernels(void **state)
{
    static const struct {
        const char *file, *says;
    } files[] = {{"/nowhere/kernels.so", "the kernels are not there: /nowhere/kernels.so"},
                 {"libm.so.6", "libm.so.6 has not the kernels of this version of runnel"},
                 {STUB_OTHER_DRIVER, "has not the kernels of this version of runnel"}};

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct machine machine;
        runnel_device_info info;

        open_machine(&machine, files[i].file, NULL);
        info = look(&machine, "auto");
        assert_says(info.why, files[i].says);
        assert_memory_equal(info.why, "cuda: ", 6);
        assert_says(info.kernels, files[i].says);
        assert_int_equal(strncmp(info.kernels, "cuda: ", 6) == 0, false);
        assert_string_equal(info.driver, "libcuda.so.1 of CUDA 12.0");
        assert_string_equal(info.name, "emulated device");
        assert_int_equal(info.memory_bytes, MEMORY);
        assert_int_equal(info.free_bytes, 0);
        close_machine(&machine);
    }
}

/* What this program, copied to `folder`, says of the usual places; `before`: of the shell, in front of it. */
static void words_of_copy(const char *before, const char *folder, char *words, size_t size)
{
    char command[900];
    FILE *pipe;
    size_t n;

    snprintf(command, sizeof command, "%s %s/look look", before, folder);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    n = fread(words, 1, size - 1, pipe);
    words[n] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[1200];
    va_list list;

    va_start(list, format);
    assert_true((size_t)vsnprintf(command, sizeof command, format, list) < sizeof command);
    va_end(list);
    assert_int_equal(system(command), 0);
}

/* Makes the folder, and copies this program to its part `in`. */
static void copy_self(char *folder, const char *in)
{
    char self[300];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    assert_true(n > 0 && mkdtemp(folder) != NULL);
    self[n] = '\0';
    shell("mkdir -p %s%s && cp '%s' %s%s/look", folder, in, self, folder, in);
}

/* A file in a usual place that is no library: why it does not load, and not that it is not there. */
static void test_broken(void **state)
{
    char folder[] = "/tmp/runnel-look-XXXXXX", words[600];

    (void)state;
    copy_self(folder, "");
    words_of_copy("", folder, words, sizeof words);
    assert_says(words, "the kernels are not there: librunnel-cuda.so is neither");
    shell("echo nothing that is a library > %s/librunnel-cuda.so", folder);
    words_of_copy("", folder, words, sizeof words);
    assert_says(words, "the kernels do not load: ");
    assert_says(words, folder);
    shell("rm -r %s", folder);
}

/* Files of other versions in usual places: the right one is found behind them, and beside the program before another
 * that the system finds. Where there is no right one the sentence names the first. */
static void test_others(void **state)
{
    char folder[] = "/tmp/runnel-look-XXXXXX", bin[64], before[128], words[600], path[128];

    (void)state;
    copy_self(folder, "/bin");
    snprintf(bin, sizeof bin, "%s/bin", folder);
    snprintf(before, sizeof before, "LD_LIBRARY_PATH=%s/old:$LD_LIBRARY_PATH", folder);
    shell("mkdir %s/old && cp '" STUB_OTHER_DRIVER "' %s/old/librunnel-cuda.so", folder, folder);
    words_of_copy(before, bin, words, sizeof words);
    snprintf(path, sizeof path, "cuda: %s/old/librunnel-cuda.so has not the kernels of this version", folder);
    assert_says(words, path);
    shell("cp '" STUB_KERNELS "' %s/bin/librunnel-cuda.so", folder);
    words_of_copy(before, bin, words, sizeof words);
    snprintf(path, sizeof path, "found %s/bin/librunnel-cuda.so", folder);
    assert_says(words, path);
    shell("mkdir %s/lib && cp %s/bin/librunnel-cuda.so %s/lib", folder, folder, folder);
    shell("cp '" STUB_OTHER_DRIVER "' %s/bin/librunnel-cuda.so", folder);
    words_of_copy(before, bin, words, sizeof words);
    assert_says(words, "found ");
    assert_says(words, "/../lib/librunnel-cuda.so");
    snprintf(before, sizeof before, "LD_LIBRARY_PATH=%s/lib:$LD_LIBRARY_PATH", folder);
    shell("mkdir %s/other && mv %s/bin/look %s/other && cp %s/old/* %s/other", folder, folder, folder, folder, folder);
    shell("mv %s/lib %s/libs", folder, folder);
    snprintf(before, sizeof before, "LD_LIBRARY_PATH=%s/libs:$LD_LIBRARY_PATH", folder);
    snprintf(bin, sizeof bin, "%s/other", folder);
    words_of_copy(before, bin, words, sizeof words);
    snprintf(path, sizeof path, "found %s/libs/librunnel-cuda.so", folder);
    assert_says(words, path);
    shell("rm -r %s", folder);
}

static int old_version(struct rn_gpu_driver *driver, int *version)
{
    (void)driver;
    *version = 11040;
    return RN_GPU_OK;
}

static int no_devices(struct rn_gpu_driver *driver, int *n)
{
    (void)driver;
    *n = 0;
    return RN_GPU_OK;
}

static void make_empty(struct rn_gpu_driver *driver)
{
    driver->device_count = no_devices;
}

static void make_old_driver(struct rn_gpu_driver *driver)
{
    driver->version = old_version;
}

static int old_attribute(struct rn_gpu_driver *driver, int *value, int attribute, int device)
{
    (void)driver;
    (void)device;
    *value = attribute == RN_GPU_DEVICE_MAJOR ? 7 : attribute == RN_GPU_DEVICE_MINOR ? 5 : 1;
    return RN_GPU_OK;
}

static void make_old_device(struct rn_gpu_driver *driver)
{
    driver->device_attribute = old_attribute;
}

static void test_too_old(void **state)
{
    struct machine machine;
    runnel_device_info info;

    (void)state;
    open_machine(&machine, STUB_KERNELS, make_old_driver);
    info = look(&machine, "cuda");
    assert_says(info.driver, "CUDA 11.4, which is older than 12.0");
    assert_says(info.why, info.driver);
    assert_string_equal(info.kernels, STUB_KERNELS);
    assert_int_equal(info.n_devices, 0);
    close_machine(&machine);
    open_machine(&machine, STUB_KERNELS, make_old_device);
    info = look(&machine, "cuda");
    assert_string_equal(info.capability, "7.5");
    assert_says(info.why, "emulated device, has compute capability 7.5, which is below 8.0");
    close_machine(&machine);
}

/* Neither of them: each has a sentence of its own, and the first one counts. */
static void test_nothing(void **state)
{
    struct machine machine;
    runnel_device_info info;

    (void)state;
    open_machine(&machine, "/nowhere/kernels.so", make_empty);
    info = look(&machine, "auto");
    assert_says(info.why, "the kernels are not there");
    assert_says(info.kernels, "the kernels are not there");
    assert_says(info.driver, "the driver libcuda.so.1 finds no device");
    assert_int_equal(info.n_devices, 0);
    close_machine(&machine);
}

/* Whatever call fails, there is a sentence, and nothing of the driver is left. */
static void test_each_call(void **state)
{
    struct machine machine;
    uint64_t n;

    (void)state;
    open_machine(&machine, STUB_KERNELS, NULL);
    look(&machine, "cuda");
    n = machine.fault.calls[RN_GPU_ANY_CALL];
    assert_true(n > 10);
    close_machine(&machine);
    for (uint64_t i = 1; i <= n; i++) {
        runnel_device_info info;

        open_machine(&machine, STUB_KERNELS, NULL);
        machine.fault.of = RN_GPU_ANY_CALL;
        machine.fault.at = i;
        machine.fault.result = RN_GPU_OUT_OF_MEMORY;
        machine.fault.for_good = true;
        info = look(&machine, "cuda");
        assert_true(machine.fault.calls[RN_GPU_ANY_CALL] >= i);
        assert_string_equal(info.kernels, STUB_KERNELS);
        assert_int_equal(info.why[0] == '\0', i + BEHIND > n);
        machine.fault.at = 0;
        machine.fault.is_lost = false;
        runnel_engine_free(machine.engine);
        machine.driver->close(machine.driver);
        assert_int_equal(rn_heap_blocks(&machine.heap), 0);
    }
}

static void test_bad_input(void **state)
{
    runnel_device_info info = {.struct_size = sizeof info};
    struct machine machine;
    runnel_error error = {0};

    (void)state;
    open_machine(&machine, STUB_KERNELS, NULL);
    assert_int_equal(runnel_engine_device(NULL, "cuda", &info, &error), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_device(machine.engine, NULL, &info, &error), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_device(machine.engine, "cuda", NULL, &error), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_device(machine.engine, "tpu", &info, &error), RUNNEL_UNSUPPORTED);
    assert_says(error.message, "device \"tpu\" is not known");
    assert_int_equal(runnel_engine_device(machine.engine, "cuda:x", &info, &error), RUNNEL_UNSUPPORTED);
    info.struct_size = 4;
    assert_int_equal(runnel_engine_device(machine.engine, "cuda", &info, &error), RUNNEL_INVALID);
    assert_says(error.message, "struct_size 4");
    close_machine(&machine);
}

static int setup(void **state)
{
    (void)state;
    find_stubs(&stubs);
    return 0;
}

int main(int argc, char **argv)
{
    struct rn_gpu_module module;
    runnel_error error = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),    cmocka_unit_test(test_usable),    cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_no_kernels), cmocka_unit_test(test_too_old),   cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_each_call),  cmocka_unit_test(test_bad_input), cmocka_unit_test(test_broken),
        cmocka_unit_test(test_others),
    };

    if (argc == 2 && strcmp(argv[1], "look") == 0) { /* see words_of_copy */
        if (rn_gpu_module_find(NULL, &module, &error) == RUNNEL_OK) {
            rn_gpu_module_path(&module, error.message, sizeof error.message);
            printf("found ");
            rn_gpu_module_close(&module);
        }
        puts(error.message);
        return 0;
    }

    return cmocka_run_group_tests(tests, setup, NULL);
}
