/* The priority of threads that compute, as the system tells it: runnel_engine_options.compute_nice. */
#include <ctype.h>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/support/shared.h"

enum { NICE = 5, MOST_NICE = 19 };

/* The text of a thread's file, "" where the thread has gone. */
static void read_file(const char *thread, const char *name, char text[512])
{
    char path[300];
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%s/%s", thread, name);
    file = fopen(path, "r");
    text[file == NULL ? 0 : fread(text, 1, 511, file)] = '\0';
    if (file != NULL)
        fclose(file);
}

/* Threads of compute teams, which must have the nice value `wanted`; all others must have that of this one. */
static uint32_t count_team(int wanted)
{
    const int mine = getpriority(PRIO_PROCESS, 0);
    DIR *folder = opendir("/proc/self/task");
    char name[512], stat[512];
    uint32_t n = 0;

    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int nice = 0;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        read_file(entry->d_name, "comm", name);
        read_file(entry->d_name, "stat", stat);
        if (stat[0] == '\0')
            continue;
        /* behind the name: the state, fifteen numbers, and the nice value */
        assert_int_equal(sscanf(strrchr(stat, ')') + 1,
                                " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d", &nice),
                         1);
        if (strncmp(name, "rn-cpu-", 7) != 0) {
            assert_int_equal(nice, mine);
            continue;
        }
        assert_int_equal(nice, wanted);
        n++;
    }
    closedir(folder);
    return n;
}

static int lowered(int by)
{
    const int nice = getpriority(PRIO_PROCESS, 0) + by;

    return nice < MOST_NICE ? nice : MOST_NICE;
}

static void warn(void *user, runnel_log_level level, const char *line)
{
    int *warnings = user;

    if (level == RUNNEL_LOG_WARNING && strstr(line, "priority") != NULL)
        ++*warnings;
}

static runnel_engine *start_nice(uint32_t nice, int *warnings)
{
    runnel_engine_options options;
    runnel_engine *engine;

    runnel_engine_options_default(&options);
    assert_int_equal(options.compute_nice, 0);
    options.compute_threads = 2;
    options.compute_nice = nice;
    options.on_log = warn;
    options.log_user = warnings;
    assert_int_equal(runnel_engine_new(&options, &engine, NULL), RUNNEL_OK);
    return engine;
}

/* The team's, and that of a drafter that has threads of its own. */
static void threads_that_compute_are_nice(void **state)
{
    runnel_model_options options;
    runnel_engine *engine;
    char draft[300];
    int warnings = 0;

    (void)state;
    engine = start_nice(NICE, &warnings);
    assert_int_equal(count_team(lowered(NICE)), 2);
    if (shared_find("models/runnel-tiny-draft-F16.gguf", draft, sizeof draft)) {
        runnel_model_options_default(&options);
        options.draft_path = draft;
        options.draft_threads = 1;
        load_model(engine, BUNDLED_MODEL, &options);
        assert_int_equal(count_team(lowered(NICE)), 3);
    }
    runnel_engine_free(engine);
    engine = start_nice(MOST_NICE, &warnings);
    assert_int_equal(count_team(lowered(MOST_NICE)), 2);
    runnel_engine_free(engine);
    assert_int_equal(warnings, 0);
}

/* Once a job has run on all of them they have their names. */
static void they_can_be_left_alone(void **state)
{
    struct capture capture = {0};
    runnel_request request;
    runnel_engine *engine;
    runnel_model *model;
    int warnings = 0;

    (void)state;
    engine = start_nice(0, &warnings);
    model = load_model(engine, quick_model(), NULL);
    request = make_request("Once", 2, &capture);
    run_request(engine, model, &request);
    assert_int_equal(count_team(lowered(0)), 2);
    runnel_engine_free(engine);
    capture_clear(&capture);
    assert_int_equal(warnings, 0);
}

static void bad_values_are_refused(void **state)
{
    runnel_engine_options options;
    runnel_engine *engine = NULL;
    runnel_error error = {0};

    (void)state;
    runnel_engine_options_default(&options);
    options.compute_nice = MOST_NICE + 1;
    assert_int_equal(runnel_engine_new(&options, &engine, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "compute_nice"));
}

/* Last: from here on this process may not change priorities. */
static void a_system_that_refuses_is_told_of_once(void **state)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    runnel_engine *engine;
    int warnings = 0;

    (void)state;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        skip();
    engine = start_nice(NICE, &warnings);
    assert_int_equal(warnings, 1);
    assert_int_equal(count_team(lowered(0)), 2);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_compute_are_nice),
        cmocka_unit_test(they_can_be_left_alone),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(a_system_that_refuses_is_told_of_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
