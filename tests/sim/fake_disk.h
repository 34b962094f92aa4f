/* A disk in memory, with everything that can go wrong with one: a struct rn_cold_io for tests.
 *
 *   process 0 ─┐                 ┌─ what the machine has in memory: every read sees it
 *   process 1 ─┼─ calls ─▶ file ─┤
 *   ...        ┘                 └─ what the disk has: sync and write_out bring it there
 *
 * By seed: calls take time, are short, fail, give a flipped bit; a chosen call fails, or is the last that a process
 * does, in the middle of it if it writes. A process that is killed leaves what the machine has in memory. When the
 * power goes, each grain of bytes that had not been brought to the disk is there or is what was there before, or,
 * behind the end that the disk knew, zeros or bytes of other files; a file that was never synced may be missing, a
 * removed one may be back. The same seed and the same calls give the same disk.
 *
 * Any thread; calls are one after another. */
#ifndef TESTS_SIM_FAKE_DISK_H
#define TESTS_SIM_FAKE_DISK_H

#include "cache/store/cold_io.h"

#define FAKE_DISK_PROCESSES 4
#define FAKE_DISK_ALWAYS 65536u /* a probability of one */

/* What goes wrong from now on. Probabilities are of 65536; all zeros, and room_bytes UINT64_MAX, is a disk in order. */
struct fake_disk_faults {
    uint32_t read_error, write_error; /* -EIO, of any call that reads or changes */
    uint32_t short_call;              /* a read or write does a part, at least a byte */
    uint32_t flipped;                 /* a read gives one bit the wrong way round */
    uint32_t lazy;                    /* a write_out that was waited for brings nothing to the disk */
    uint64_t room_bytes;              /* of all files; a write beyond is short, then -ENOSPC */
    uint64_t fail_at;                 /* this call of the process fails, from 1; 0: none */
    int fail_error;                   /* with this errno, positive; 0: it is short by half where it can be */
    bool fail_for_good;               /* and all later ones */
    uint64_t die_at;                  /* this call of the process is its last, and is done in part; 0: none */
    uint32_t most_us;                 /* a call takes up to so long */
    uint32_t grain_bytes;             /* what the disk writes at once, for lose_power; 0: 512 */
};

struct fake_disk; /* fake_disk.c */

/* Fails the test where there is no memory, as all of this. All processes are alive. */
struct fake_disk *fake_disk_new(uint64_t seed);
void fake_disk_free(struct fake_disk *disk);

/* May be changed between calls by the thread that makes them. */
struct fake_disk_faults *fake_disk_faults(struct fake_disk *disk);

/* How a call waits; NULL: it does not. The time of all calls is counted in any case. */
void fake_disk_on_wait(struct fake_disk *disk, void (*wait)(void *user, uint32_t us), void *user);
uint64_t fake_disk_us(const struct fake_disk *disk);

/* The disk as the process sees it; valid until fake_disk_free. */
const struct rn_cold_io *fake_disk_io(struct fake_disk *disk, unsigned process);

/* Its descriptors are closed and its locks gone; from now on its calls fail with -EIO and do nothing, so that its
 * structures can be freed. start: another process takes its place, its calls counted from 0. */
void fake_disk_kill(struct fake_disk *disk, unsigned process);
void fake_disk_start(struct fake_disk *disk, unsigned process);

/* All processes are killed, and only what the disk has is left. */
void fake_disk_lose_power(struct fake_disk *disk);

/* Flips n bits, anywhere in all files. */
void fake_disk_rot(struct fake_disk *disk, unsigned n);

bool fake_disk_alive(const struct fake_disk *disk, unsigned process);
uint64_t fake_disk_calls(const struct fake_disk *disk, unsigned process); /* but for close and will_read */
unsigned fake_disk_descriptors(const struct fake_disk *disk, unsigned process);
uint64_t fake_disk_bytes(const struct fake_disk *disk); /* of files that have a name */
unsigned fake_disk_files(const struct fake_disk *disk);

#endif
