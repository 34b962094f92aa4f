/* A file system that is full, a true one: a tmpfs of a few kilobytes in a mount namespace of the test's own. What does
 * not fit is a miss, that is told once, and no answer changes (rig.h judges each by the closed form). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/cache/cold_fixture.h"
#include "tests/tiers/rig.h"

enum { PROMPT = 100, FULL = (PROMPT - 1) / RIG_BLOCK * RIG_BLOCK, FAMILIES = 60 };

static char folder[100];

static bool mount_empty(void)
{
    return mount("none", folder, "tmpfs", 0, "size=96k") == 0;
}

/* False: it is not permitted here. */
static bool mount_small(void)
{
    snprintf(folder, sizeof folder, "/tmp/runnel-full-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return false;
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount_empty();
}

static uint64_t free_bytes(void)
{
    struct statvfs s;

    assert_int_equal(statvfs(folder, &s), 0);
    return (uint64_t)s.f_bavail * s.f_bsize;
}

/* Families [first, first + n), each twice so that it is worth keeping; tokens that came out of files. */
static uint64_t ask_all(struct rig *rig, uint32_t first, uint32_t n)
{
    uint64_t cold = 0;

    for (uint32_t i = 0; i < 2 * n; i++) {
        struct rig_ask ask = {.chain = 8 * (first + i / 2), .n_prompt = PROMPT, .wait = RUNNEL_CACHE_WAIT};

        cold += rig_ask(rig, ask).cold_tokens;
    }
    return cold;
}

static void test_full(void **state)
{
    struct rig_plan plan = {.dir = folder, .cold_bytes = (uint64_t)8 << 20};
    struct rig rig;
    uint64_t kept;

    (void)state;
    rig_open(&rig, &plan);
    ask_all(&rig, 0, FAMILIES);
    assert_true(free_bytes() < 8192);
    assert_int_equal(rig.n_warnings, 1);
    if (strstr(rig.warning, "No space left") == NULL || strstr(rig.warning, folder) == NULL)
        fail_msg("%s", rig.warning);
    kept = ask_all(&rig, 0, FAMILIES); /* what was written before can be read */
    assert_true(kept >= 2 * FULL && kept < FAMILIES * FULL);
    assert_int_equal(rig.n_warnings, 1);
    rig_close(&rig);
    rig_open(&rig, &plan);
    assert_true(ask_all(&rig, 0, FAMILIES) >= 2 * FULL);
    assert_true(rig.n_warnings <= 1);
    rig_close(&rig);
}

/* Full from the beginning, of what is somebody else's: not even a folder can be made. */
static void test_nothing_left(void **state)
{
    struct rig_plan plan = {.dir = folder, .cold_bytes = (uint64_t)8 << 20};
    char path[150], zeros[4096] = {0};
    struct rig rig;
    int fd;

    (void)state;
    assert_int_equal(umount(folder), 0);
    assert_true(mount_empty());
    snprintf(path, sizeof path, "%s/other", folder);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
    close(fd);
    plan.oracle_salt = 5; /* another model, which has nothing there */
    for (uint32_t life = 0; life < 2; life++) {
        rig_open(&rig, &plan);
        assert_int_equal(ask_all(&rig, 0, 3), 0);
        assert_int_equal(rig.n_warnings, 1);
        rig_close(&rig);
    }
    assert_int_equal(unlink(path), 0); /* there is room again: the next one keeps what it can */
    rig_open(&rig, &plan);
    ask_all(&rig, 0, 1);
    assert_int_equal(rig.n_warnings, 0);
    rig_close(&rig);
    rig_open(&rig, &plan);
    assert_int_equal(ask_all(&rig, 0, 1), FULL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_nothing_left),
    };
    int failed;

    if (!mount_small()) {
        rmdir(folder);
        puts("skipped: no file system can be mounted here");
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    umount(folder);
    rmdir(folder);
    return failed;
}
