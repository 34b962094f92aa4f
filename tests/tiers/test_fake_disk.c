/* The fake disk is what tests judge by, so it is judged itself: what it keeps when a process dies and when the power
 * goes, and that each fault it is told to make comes, and no other. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/fake_disk.h"

enum { N = 4096, GRAIN = 64 };

static int open_file(const struct rn_cold_io *io, const char *path)
{
    int fd = io->open(io->user, path, O_RDWR | O_CREAT);

    assert_true(fd >= 0);
    return fd;
}

static void write_all(const struct rn_cold_io *io, int fd, uint8_t value, size_t n, uint64_t offset)
{
    uint8_t *bytes = malloc(n);

    assert_non_null(bytes);
    memset(bytes, value, n);
    assert_int_equal(io->pwrite(io->user, fd, bytes, n, offset), n);
    free(bytes);
}

/* How many of the file's bytes are `value`. */
static size_t count(const struct rn_cold_io *io, const char *path, uint8_t value, int64_t *size)
{
    int fd = io->open(io->user, path, O_RDONLY);
    uint8_t bytes[2 * N];
    size_t n = 0;

    *size = fd < 0 ? fd : io->pread(io->user, fd, bytes, sizeof bytes, 0);
    for (int64_t i = 0; i < *size; i++)
        n += bytes[i] == value;
    if (fd >= 0)
        io->close(io->user, fd);
    return n;
}

static void test_names(void **state)
{
    struct fake_disk *disk = fake_disk_new(1);
    const struct rn_cold_io *io = fake_disk_io(disk, 0);
    int fd;

    (void)state;
    assert_int_equal(io->open(io->user, "/d/f", O_RDWR | O_CREAT), -ENOENT);
    assert_int_equal(io->mkdir(io->user, "/d/e"), -ENOENT);
    assert_int_equal(io->mkdir(io->user, "/d"), 0);
    assert_int_equal(io->mkdir(io->user, "/d"), -EEXIST);
    assert_int_equal(io->open(io->user, "/d/f", O_RDWR), -ENOENT);
    fd = open_file(io, "/d/f");
    assert_int_equal(io->open(io->user, "/d/f", O_RDWR | O_CREAT | O_EXCL), -EEXIST);
    assert_int_equal(io->open(io->user, "/d", O_RDWR), -EISDIR);
    assert_int_equal(io->rmdir(io->user, "/d"), -ENOTEMPTY);
    write_all(io, fd, 7, 10, 5);
    assert_int_equal(io->size(io->user, fd), 15);
    assert_int_equal(io->unlink(io->user, "/d/f"), 0);
    assert_int_equal(io->size(io->user, fd), 15); /* who has it open has it still */
    assert_int_equal(io->unlink(io->user, "/d/f"), -ENOENT);
    io->close(io->user, fd);
    assert_int_equal(io->rmdir(io->user, "/d"), 0);
    assert_int_equal(io->list(io->user, "/d", NULL, NULL), -ENOENT);
    assert_int_equal(fake_disk_files(disk), 0);
    fake_disk_free(disk);
}

/* One has the lock until it closes it or dies; a process that was killed does nothing any more. */
static void test_lock_and_kill(void **state)
{
    struct fake_disk *disk = fake_disk_new(2);
    const struct rn_cold_io *a = fake_disk_io(disk, 0), *b = fake_disk_io(disk, 1);
    int fa = open_file(a, "/lock"), fb = open_file(b, "/lock"), fc = open_file(a, "/lock");
    int64_t size;

    (void)state;
    assert_int_equal(a->lock(a->user, fa), 0);
    assert_int_equal(b->lock(b->user, fb), -EWOULDBLOCK);
    assert_int_equal(a->lock(a->user, fc), -EWOULDBLOCK);
    write_all(a, fa, 3, N, 0);
    fake_disk_kill(disk, 0);
    assert_false(fake_disk_alive(disk, 0));
    assert_int_equal(fake_disk_descriptors(disk, 0), 0);
    assert_int_equal(a->pwrite(a->user, fa, "x", 1, 0), -EIO);
    assert_int_equal(b->lock(b->user, fb), 0);
    assert_int_equal(count(b, "/lock", 3, &size), N); /* what the machine had in memory is there */
    fake_disk_start(disk, 0);
    assert_int_equal(a->pwrite(a->user, fa, "x", 1, 0), -EBADF);
    assert_int_equal(fake_disk_calls(disk, 0), 1);
    fake_disk_free(disk);
}

/* Synced bytes stay; of the others some do, for a hundred seeds neither none nor all; nothing else appears but zeros
 * and bytes of the other file. */
static void test_power(void **state)
{
    size_t kept = 0, files = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct fake_disk *disk = fake_disk_new(seed);
        const struct rn_cold_io *io = fake_disk_io(disk, 0);
        int fd = open_file(io, "/a"), other = open_file(io, "/b");
        int64_t size, other_size;
        size_t a;

        fake_disk_faults(disk)->grain_bytes = GRAIN;
        write_all(io, fd, 1, N, 0);
        assert_int_equal(io->sync(io->user, fd), 0);
        write_all(io, fd, 2, N / 2, 0);
        write_all(io, fd, 2, N, N);
        write_all(io, other, 9, N, 0);
        fake_disk_lose_power(disk);
        fake_disk_start(disk, 0);
        a = count(io, "/a", 1, &size);
        assert_true(size >= N && size <= 2 * N && a >= N / 2 && a <= 2 * N);
        assert_int_equal(count(io, "/a", 1, &size) + count(io, "/a", 2, &size) + count(io, "/a", 0, &size) +
                             count(io, "/a", 9, &size),
                         size);
        kept += count(io, "/a", 2, &size);
        assert_int_equal(count(io, "/a", 2, &size) % GRAIN, 0);
        count(io, "/b", 9, &other_size);
        assert_true(other_size == -ENOENT || (other_size >= 0 && other_size <= N));
        files += other_size >= 0;
        fake_disk_free(disk);
    }
    assert_in_range(kept, 100 * N / 2, 100 * N);
    assert_in_range(files, 30, 70);
}

/* A range that was waited for is there, but where the disk is lazy. */
static void test_write_out(void **state)
{
    (void)state;
    for (unsigned lazy = 0; lazy < 2; lazy++) {
        size_t kept = 0;

        for (uint64_t seed = 0; seed < 20; seed++) {
            struct fake_disk *disk = fake_disk_new(seed);
            const struct rn_cold_io *io = fake_disk_io(disk, 0);
            int fd = open_file(io, "/a");
            int64_t size;

            fake_disk_faults(disk)->lazy = lazy * FAKE_DISK_ALWAYS;
            write_all(io, fd, 1, N, 0);
            io->sync(io->user, fd);
            write_all(io, fd, 2, N, 0);
            io->write_out(io->user, fd, 0, N, false);
            io->write_out(io->user, fd, 0, N / 2, true);
            fake_disk_lose_power(disk);
            fake_disk_start(disk, 0);
            kept += count(io, "/a", 2, &size) >= N / 2;
            fake_disk_free(disk);
        }
        assert_true(lazy ? kept < 20 : kept == 20);
    }
}

static void test_room(void **state)
{
    struct fake_disk *disk = fake_disk_new(3);
    const struct rn_cold_io *io = fake_disk_io(disk, 0);
    int fd = open_file(io, "/a");
    uint8_t bytes[100] = {0};

    (void)state;
    fake_disk_faults(disk)->room_bytes = 250;
    assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 0), 100);
    assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 100), 100);
    assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 200), 50);
    assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 250), -ENOSPC);
    assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 20), 100); /* over what is there */
    assert_int_equal(fake_disk_bytes(disk), 250);
    assert_int_equal(io->truncate(io->user, fd, 100), 0);
    assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 100), 100);
    fake_disk_free(disk);
}

/* Each kind of fault by itself: it comes, about as often as was asked for, and looks like itself. */
static void test_faults(void **state)
{
    struct fake_disk *disk = fake_disk_new(4);
    const struct rn_cold_io *io = fake_disk_io(disk, 0);
    int fd = open_file(io, "/a");
    unsigned errors = 0, shorts = 0, flips = 0;

    (void)state;
    write_all(io, fd, 0, 64, 0);
    for (unsigned i = 0; i < 3000; i++) {
        struct fake_disk_faults *faults = fake_disk_faults(disk);
        uint8_t bytes[64], bits = 0;
        int64_t got;

        *faults = (struct fake_disk_faults){.room_bytes = UINT64_MAX};
        *(i % 3 == 0   ? &faults->read_error
          : i % 3 == 1 ? &faults->short_call
                       : &faults->flipped) = FAKE_DISK_ALWAYS / 4;
        got = io->pread(io->user, fd, bytes, 64, 0);
        errors += got == -EIO;
        shorts += got >= 0 && got < 64;
        for (int64_t b = 0; b < got; b++)
            bits = (uint8_t)(bits + __builtin_popcount(bytes[b]));
        assert_true(bits <= 1 && got != 0);
        flips += bits;
    }
    assert_in_range(errors, 180, 320);
    assert_in_range(shorts, 180, 320); /* a short call of all bytes is none */
    assert_in_range(flips, 180, 320);
    fake_disk_free(disk);
}

static void test_chosen_call(void **state)
{
    (void)state;
    for (unsigned dies = 0; dies < 2; dies++) {
        size_t parts = 0;

        for (uint64_t seed = 0; seed < 50; seed++) {
            struct fake_disk *disk = fake_disk_new(seed);
            const struct rn_cold_io *io = fake_disk_io(disk, 0);
            int fd = open_file(io, "/a");
            uint8_t bytes[100] = {1};
            int64_t size;

            *(dies ? &fake_disk_faults(disk)->die_at : &fake_disk_faults(disk)->fail_at) = 3;
            fake_disk_faults(disk)->fail_error = EDQUOT;
            assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 0), 100);
            assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 100), dies ? -EIO : -EDQUOT);
            assert_int_equal(io->pwrite(io->user, fd, bytes, 100, 200), dies ? -EIO : 100);
            fake_disk_faults(disk)->die_at = 0;
            fake_disk_start(disk, 0);
            count(io, "/a", 1, &size);
            assert_true(dies ? size >= 100 && size <= 200 : size == 300);
            parts += size > 100 && size < 200;
            fake_disk_free(disk);
        }
        assert_true(dies ? parts > 30 : parts == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_lock_and_kill), cmocka_unit_test(test_power),
        cmocka_unit_test(test_write_out),   cmocka_unit_test(test_room),          cmocka_unit_test(test_faults),
        cmocka_unit_test(test_chosen_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
