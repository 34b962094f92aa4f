/* See fake_disk.h. A file is two arrays of bytes, the machine's and the disk's; descriptors are places in a list that
 * only grows, so that none comes twice. */
#include "tests/sim/fake_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { PATH_BYTES = 256, GRAIN_BYTES = 512, NOBODY = FAKE_DISK_PROCESSES };

struct bytes {
    uint8_t *at; /* [n] */
    size_t n, room;
};

struct file {
    char path[PATH_BYTES];
    bool folder;
    bool named, named_on_disk;
    struct bytes memory, disk;
    unsigned locked_by; /* a descriptor + 1; 0: nobody */
};

struct descriptor {
    size_t file;
    unsigned process; /* NOBODY: closed */
    bool writes;
};

struct process {
    struct rn_cold_io io; /* user is this */
    struct fake_disk *disk;
    unsigned nth;
    bool alive;
    uint64_t calls;
};

struct fake_disk {
    pthread_mutex_t lock;
    uint64_t rng, us;
    struct fake_disk_faults faults;
    void (*wait)(void *user, uint32_t us);
    void *wait_user;
    struct file *files; /* [n_files] */
    size_t n_files;
    struct descriptor *descriptors; /* [n_descriptors] */
    size_t n_descriptors;
    struct process processes[FAKE_DISK_PROCESSES];
};

/* ---- Chance ---- */

static uint64_t draw(struct fake_disk *disk, uint64_t below)
{
    return below == 0 ? 0 : rn_splitmix64(&disk->rng) % below;
}

static bool chance(struct fake_disk *disk, uint32_t of_65536)
{
    return of_65536 > 0 && draw(disk, FAKE_DISK_ALWAYS) < of_65536;
}

/* ---- Bytes ---- */

static void resize(struct bytes *bytes, size_t n)
{
    if (n > bytes->room) {
        size_t room = n < 2 * bytes->room ? 2 * bytes->room : n + 256;

        bytes->at = realloc(bytes->at, room);
        assert_non_null(bytes->at);
        bytes->room = room;
    }
    if (n > bytes->n)
        memset(bytes->at + bytes->n, 0, n - bytes->n);
    bytes->n = n;
}

/* from[begin .. end) as far as there is one, to the same place. */
static void copy_range(struct bytes *to, const struct bytes *from, size_t begin, size_t end)
{
    if (end > from->n)
        end = from->n;
    if (begin >= end)
        return;
    if (to->n < end)
        resize(to, end);
    memcpy(to->at + begin, from->at + begin, end - begin);
}

/* ---- A call ---- */

/* The process that calls, with the disk locked until the value of the call is there. */
static struct process *enter(void *user)
{
    struct process *process = user;

    pthread_mutex_lock(&process->disk->lock);
    return process;
}

static int64_t leave(struct process *process, int64_t value)
{
    pthread_mutex_unlock(&process->disk->lock);
    return value;
}

enum step { GOES, FAILS, SHORT, DIES };

/* Every call begins here, with the lock held; *status is what it returns if it FAILS. */
static enum step begin(struct process *process, bool changes, int *status)
{
    struct fake_disk *disk = process->disk;
    const struct fake_disk_faults *faults = &disk->faults;
    uint32_t us = (uint32_t)draw(disk, faults->most_us);

    disk->us += us;
    if (us > 0 && disk->wait != NULL)
        disk->wait(disk->wait_user, us);
    *status = -EIO;
    if (!process->alive)
        return FAILS;
    process->calls++;
    if (faults->die_at != 0 && process->calls >= faults->die_at)
        return DIES;
    if (faults->fail_at != 0 &&
        (process->calls == faults->fail_at || (faults->fail_for_good && process->calls > faults->fail_at))) {
        *status = -faults->fail_error;
        return faults->fail_error == 0 ? SHORT : FAILS;
    }
    if (chance(disk, changes ? faults->write_error : faults->read_error))
        return FAILS;
    return chance(disk, faults->short_call) ? SHORT : GOES;
}

static void close_all(struct process *process)
{
    struct fake_disk *disk = process->disk;

    for (size_t i = 0; i < disk->n_descriptors; i++) {
        struct descriptor *d = &disk->descriptors[i];

        if (d->process != process->nth)
            continue;
        if (disk->files[d->file].locked_by == i + 1)
            disk->files[d->file].locked_by = 0;
        d->process = NOBODY;
    }
    process->alive = false;
}

/* A call that has nothing to do in part: true, and what it returns; else *status is 0. One that dies may be done all
 * the same: then the process is dead, and *status what it will never see. */
static bool refused(struct process *process, bool changes, int *status)
{
    enum step step = begin(process, changes, status);
    bool done;

    if (step == FAILS)
        return true;
    *status = 0;
    if (step != DIES)
        return false;
    done = draw(process->disk, 2) == 0;
    close_all(process);
    *status = -EIO;
    return !done;
}

static struct file *file_of(struct process *process, int fd)
{
    struct fake_disk *disk = process->disk;

    if (fd < 0 || (size_t)fd >= disk->n_descriptors || disk->descriptors[fd].process != process->nth)
        return NULL;
    return &disk->files[disk->descriptors[fd].file];
}

static struct file *named(struct fake_disk *disk, const char *path)
{
    for (size_t i = 0; i < disk->n_files; i++)
        if (disk->files[i].named && strcmp(disk->files[i].path, path) == 0)
            return &disk->files[i];
    return NULL;
}

static bool has_folder(struct fake_disk *disk, const char *path)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_BYTES];
    struct file *file;

    if (slash == NULL || slash == path)
        return true;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    file = named(disk, parent);
    return file != NULL && file->folder;
}

static struct file *make(struct fake_disk *disk, const char *path, bool folder)
{
    struct file *file;

    assert_true(strlen(path) < PATH_BYTES);
    disk->files = realloc(disk->files, (disk->n_files + 1) * sizeof *disk->files);
    assert_non_null(disk->files);
    file = &disk->files[disk->n_files++];
    *file = (struct file){.folder = folder, .named = true, .named_on_disk = folder};
    memcpy(file->path, path, strlen(path) + 1);
    return file;
}

static uint64_t bytes_of_all(const struct fake_disk *disk)
{
    uint64_t n = 0;

    for (size_t i = 0; i < disk->n_files; i++)
        n += disk->files[i].named ? disk->files[i].memory.n : 0;
    return n;
}

/* ---- Names ---- */

static int open_locked(struct process *process, const char *path, int flags)
{
    struct fake_disk *disk = process->disk;
    struct file *file = named(disk, path);
    int status;

    if (refused(process, (flags & O_CREAT) != 0, &status))
        return status;
    if (file != NULL && (flags & O_EXCL) != 0)
        return -EEXIST;
    if (file != NULL && file->folder)
        return -EISDIR;
    if (file == NULL && (flags & O_CREAT) == 0)
        return -ENOENT;
    if (!has_folder(disk, path))
        return -ENOENT;
    if (file == NULL)
        file = make(disk, path, false);
    if (!process->alive)
        return -EIO;
    disk->descriptors = realloc(disk->descriptors, (disk->n_descriptors + 1) * sizeof *disk->descriptors);
    assert_non_null(disk->descriptors);
    disk->descriptors[disk->n_descriptors] = (struct descriptor){
        .file = (size_t)(file - disk->files), .process = process->nth, .writes = (flags & O_ACCMODE) != O_RDONLY};
    return (int)disk->n_descriptors++;
}

static int disk_open(void *user, const char *path, int flags)
{
    struct process *process = enter(user);

    return (int)leave(process, open_locked(process, path, flags));
}

static void disk_close(void *user, int fd)
{
    struct process *process = enter(user);
    struct file *file = file_of(process, fd);

    if (process->alive)
        assert_non_null(file); /* closed twice, or never opened */
    if (file != NULL) {
        if (file->locked_by == (unsigned)fd + 1)
            file->locked_by = 0;
        process->disk->descriptors[fd].process = NOBODY;
    }
    leave(process, 0);
}

static int disk_mkdir(void *user, const char *path)
{
    struct process *process = enter(user);
    struct fake_disk *disk = process->disk;
    int status;

    if (!refused(process, true, &status)) {
        status = named(disk, path) != NULL ? -EEXIST : has_folder(disk, path) ? 0 : -ENOENT;
        if (status == 0)
            make(disk, path, true);
    }
    return (int)leave(process, status);
}

static int unlink_locked(struct process *process, const char *path, bool folder)
{
    struct file *file = named(process->disk, path);
    size_t n = strlen(path);
    int status;

    if (refused(process, true, &status))
        return status;
    if (file == NULL)
        return -ENOENT;
    if (file->folder != folder)
        return folder ? -ENOTDIR : -EISDIR;
    for (size_t i = 0; folder && i < process->disk->n_files; i++) {
        const struct file *inside = &process->disk->files[i];

        if (inside->named && strncmp(inside->path, path, n) == 0 && inside->path[n] == '/')
            return -ENOTEMPTY;
    }
    file->named = false;
    return 0;
}

static int disk_unlink(void *user, const char *path)
{
    struct process *process = enter(user);

    return (int)leave(process, unlink_locked(process, path, false));
}

static int disk_rmdir(void *user, const char *path)
{
    struct process *process = enter(user);

    return (int)leave(process, unlink_locked(process, path, true));
}

/* Names as they were when the call came, beginning anywhere: the caller may call again from name(). */
static int disk_list(void *user, const char *path, void (*name)(void *to, const char *name), void *to)
{
    struct process *process = enter(user);
    struct fake_disk *disk = process->disk;
    size_t n = strlen(path), n_names = 0, first = 0;
    char(*names)[PATH_BYTES] = NULL;
    int status;

    if (!refused(process, false, &status)) {
        struct file *folder = named(disk, path);

        status = folder == NULL ? -ENOENT : folder->folder ? 0 : -ENOTDIR;
        names = malloc((disk->n_files + 1) * sizeof *names);
        assert_non_null(names);
        for (size_t i = 0; i < disk->n_files && status == 0; i++) {
            const struct file *file = &disk->files[i];

            if (file->named && strncmp(file->path, path, n) == 0 && file->path[n] == '/' &&
                strchr(file->path + n + 1, '/') == NULL)
                memcpy(names[n_names++], file->path + n + 1, strlen(file->path + n + 1) + 1);
        }
        first = draw(disk, n_names);
    }
    leave(process, 0);
    for (size_t i = 0; i < n_names; i++)
        name(to, names[(first + i) % n_names]);
    free(names);
    return status;
}

/* ---- Bytes of a file ---- */

/* How many of n a call does that goes so far. */
static size_t part(struct fake_disk *disk, enum step step, size_t n)
{
    if (step == SHORT)
        return disk->faults.fail_at != 0 ? (n + 1) / 2 : n == 0 ? 0 : 1 + draw(disk, n);
    return step == DIES ? draw(disk, n + 1) : n;
}

static int64_t read_locked(struct process *process, int fd, uint8_t *bytes, size_t n, uint64_t offset)
{
    struct fake_disk *disk = process->disk;
    const struct file *file = file_of(process, fd);
    int status;
    enum step step = begin(process, false, &status);

    if (step == FAILS)
        return status;
    if (step == DIES)
        close_all(process);
    if (step == DIES || file == NULL)
        return step == DIES ? -EIO : -EBADF;
    if (offset >= file->memory.n)
        return 0;
    if (n > file->memory.n - offset)
        n = (size_t)(file->memory.n - offset);
    n = part(disk, step, n);
    if (n > 0)
        memcpy(bytes, file->memory.at + offset, n);
    if (n > 0 && chance(disk, disk->faults.flipped))
        bytes[draw(disk, n)] ^= (uint8_t)(1u << draw(disk, 8));
    return (int64_t)n;
}

static int64_t disk_pread(void *user, int fd, void *bytes, size_t n, uint64_t offset)
{
    struct process *process = enter(user);

    return leave(process, read_locked(process, fd, bytes, n, offset));
}

static int64_t write_locked(struct process *process, int fd, const void *bytes, size_t n, uint64_t offset)
{
    struct fake_disk *disk = process->disk;
    struct file *file = file_of(process, fd);
    uint64_t all = bytes_of_all(disk), grows;
    int status;
    enum step step = begin(process, true, &status);

    if (step == FAILS)
        return status;
    if (file == NULL || !disk->descriptors[fd].writes)
        return -EBADF;
    n = part(disk, step, n);
    grows = offset + n > file->memory.n ? offset + n - file->memory.n : 0;
    if (grows > 0 && all + grows > disk->faults.room_bytes) {
        uint64_t over = all + grows - disk->faults.room_bytes;

        if (over >= n)
            return -ENOSPC;
        n -= (size_t)over;
    }
    if (n > 0) {
        if (file->memory.n < offset + n)
            resize(&file->memory, (size_t)offset + n);
        memcpy(file->memory.at + offset, bytes, n);
    }
    if (step == DIES)
        close_all(process);
    return step == DIES ? -EIO : (int64_t)n;
}

static int64_t disk_pwrite(void *user, int fd, const void *bytes, size_t n, uint64_t offset)
{
    struct process *process = enter(user);

    return leave(process, write_locked(process, fd, bytes, n, offset));
}

/* What a call on a file that was not refused returns, whatever it did. */
static int outcome(const struct process *process, const struct file *file)
{
    return !process->alive ? -EIO : file == NULL ? -EBADF : 0;
}

static int64_t disk_size(void *user, int fd)
{
    struct process *process = enter(user);
    const struct file *file = file_of(process, fd);
    int status;

    if (!refused(process, false, &status))
        status = outcome(process, file);
    return leave(process, status != 0 ? status : (int64_t)file->memory.n);
}

static int disk_truncate(void *user, int fd, uint64_t bytes)
{
    struct process *process = enter(user);
    struct file *file = file_of(process, fd);
    int status;

    if (!refused(process, true, &status)) {
        if (file != NULL)
            resize(&file->memory, (size_t)bytes);
        status = outcome(process, file);
    }
    return (int)leave(process, status);
}

static void bring(struct file *file)
{
    resize(&file->disk, file->memory.n);
    copy_range(&file->disk, &file->memory, 0, file->memory.n);
    file->named_on_disk = file->named;
}

static int disk_sync(void *user, int fd)
{
    struct process *process = enter(user);
    struct file *file = file_of(process, fd);
    int status;

    if (!refused(process, true, &status)) {
        if (file != NULL)
            bring(file);
        status = outcome(process, file);
    }
    return (int)leave(process, status);
}

/* One that is not waited for does nothing: what it would have brought, losing power draws by lot. */
static int disk_write_out(void *user, int fd, uint64_t offset, uint64_t n, bool wait)
{
    struct process *process = enter(user);
    struct file *file = file_of(process, fd);
    int status;

    if (!refused(process, true, &status)) {
        if (file != NULL && wait && !chance(process->disk, process->disk->faults.lazy)) {
            copy_range(&file->disk, &file->memory, (size_t)offset, (size_t)(offset + n));
            file->named_on_disk = file->named;
        }
        status = outcome(process, file);
    }
    return (int)leave(process, status);
}

static void disk_will_read(void *user, int fd, uint64_t offset, uint64_t n)
{
    struct process *process = enter(user);

    (void)offset;
    (void)n;
    if (process->alive)
        assert_non_null(file_of(process, fd));
    leave(process, 0);
}

/* Of the two that want it the first has it, also in one process: locks are of descriptors. */
static int disk_lock(void *user, int fd)
{
    struct process *process = enter(user);
    struct file *file = file_of(process, fd);
    int status;

    if (!refused(process, true, &status))
        status = outcome(process, file);
    if (status == 0 && file->locked_by != 0 && file->locked_by != (unsigned)fd + 1)
        status = -EWOULDBLOCK;
    if (status == 0)
        file->locked_by = (unsigned)fd + 1;
    return (int)leave(process, status);
}

static int disk_same(void *user, int fd, const char *path)
{
    struct process *process = enter(user);
    const struct file *file = file_of(process, fd);
    int status;

    if (!refused(process, false, &status))
        status = outcome(process, file);
    if (status == 0)
        status = file == named(process->disk, path);
    return (int)leave(process, status);
}

/* ---- What happens to it ---- */

void fake_disk_kill(struct fake_disk *disk, unsigned process)
{
    pthread_mutex_lock(&disk->lock);
    close_all(&disk->processes[process]);
    pthread_mutex_unlock(&disk->lock);
}

void fake_disk_start(struct fake_disk *disk, unsigned process)
{
    pthread_mutex_lock(&disk->lock);
    close_all(&disk->processes[process]);
    disk->processes[process].alive = true;
    disk->processes[process].calls = 0;
    pthread_mutex_unlock(&disk->lock);
}

/* A grain of the file that the disk may or may not have: *n bytes at `at`. */
static void settle(struct fake_disk *disk, struct file *file, size_t at, size_t n)
{
    const struct file *other = &disk->files[draw(disk, disk->n_files)];
    bool known = at < file->disk.n;

    if (draw(disk, 2) == 0)
        copy_range(&file->disk, &file->memory, at, at + n);
    else if (!known && draw(disk, 2) == 0 && other != file && other->disk.n >= n) {
        resize(&file->disk, at + n);
        memcpy(file->disk.at + at, other->disk.at + draw(disk, other->disk.n - n + 1), n);
    }
}

static void lose_file(struct fake_disk *disk, struct file *file, size_t grain)
{
    size_t n = file->memory.n;

    if (n < file->disk.n && draw(disk, 2) == 0)
        resize(&file->disk, n); /* a truncate that was on its way */
    for (size_t at = 0; at < n; at += grain) {
        size_t here = n - at < grain ? n - at : grain;

        if (at + here > file->disk.n || memcmp(file->memory.at + at, file->disk.at + at, here) != 0)
            settle(disk, file, at, here);
    }
    if (file->named != file->named_on_disk && draw(disk, 2) == 0)
        file->named_on_disk = file->named;
    file->named = file->named_on_disk;
    resize(&file->memory, file->disk.n);
    copy_range(&file->memory, &file->disk, 0, file->disk.n);
}

/* A removed file that is back while a later one has its name: there is one of them. */
static void settle_names(struct fake_disk *disk)
{
    for (size_t i = 0; i < disk->n_files; i++)
        for (size_t j = i + 1; j < disk->n_files && disk->files[i].named; j++)
            if (disk->files[j].named && strcmp(disk->files[i].path, disk->files[j].path) == 0)
                disk->files[i].named = disk->files[i].named_on_disk = false;
}

void fake_disk_lose_power(struct fake_disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    for (unsigned i = 0; i < FAKE_DISK_PROCESSES; i++)
        close_all(&disk->processes[i]);
    for (size_t i = 0; i < disk->n_files; i++)
        if (!disk->files[i].folder)
            lose_file(disk, &disk->files[i], disk->faults.grain_bytes == 0 ? GRAIN_BYTES : disk->faults.grain_bytes);
    settle_names(disk);
    pthread_mutex_unlock(&disk->lock);
}

void fake_disk_rot(struct fake_disk *disk, unsigned n)
{
    pthread_mutex_lock(&disk->lock);
    for (unsigned i = 0; i < n && bytes_of_all(disk) > 0; i++) {
        uint64_t at = draw(disk, bytes_of_all(disk));
        struct file *file = disk->files;

        for (; !file->named || at >= file->memory.n; file++)
            at -= file->named ? file->memory.n : 0;
        file->memory.at[at] ^= (uint8_t)(1u << draw(disk, 8));
        copy_range(&file->disk, &file->memory, (size_t)at, (size_t)at + 1);
    }
    pthread_mutex_unlock(&disk->lock);
}

/* ---- What is asked ---- */

struct fake_disk *fake_disk_new(uint64_t seed)
{
    struct fake_disk *disk = calloc(1, sizeof *disk);

    assert_non_null(disk);
    pthread_mutex_init(&disk->lock, NULL);
    disk->rng = seed;
    disk->faults.room_bytes = UINT64_MAX;
    for (unsigned i = 0; i < FAKE_DISK_PROCESSES; i++) {
        struct process *process = &disk->processes[i];

        *process = (struct process){.disk = disk, .nth = i, .alive = true};
        process->io = (struct rn_cold_io){.user = process,
                                          .open = disk_open,
                                          .close = disk_close,
                                          .pread = disk_pread,
                                          .pwrite = disk_pwrite,
                                          .size = disk_size,
                                          .truncate = disk_truncate,
                                          .sync = disk_sync,
                                          .write_out = disk_write_out,
                                          .will_read = disk_will_read,
                                          .lock = disk_lock,
                                          .same = disk_same,
                                          .mkdir = disk_mkdir,
                                          .unlink = disk_unlink,
                                          .rmdir = disk_rmdir,
                                          .list = disk_list};
    }
    return disk;
}

void fake_disk_free(struct fake_disk *disk)
{
    for (size_t i = 0; i < disk->n_files; i++) {
        free(disk->files[i].memory.at);
        free(disk->files[i].disk.at);
    }
    free(disk->files);
    free(disk->descriptors);
    pthread_mutex_destroy(&disk->lock);
    free(disk);
}

struct fake_disk_faults *fake_disk_faults(struct fake_disk *disk)
{
    return &disk->faults;
}

void fake_disk_on_wait(struct fake_disk *disk, void (*wait)(void *user, uint32_t us), void *user)
{
    disk->wait = wait;
    disk->wait_user = user;
}

uint64_t fake_disk_us(const struct fake_disk *disk)
{
    return disk->us;
}

const struct rn_cold_io *fake_disk_io(struct fake_disk *disk, unsigned process)
{
    return &disk->processes[process].io;
}

bool fake_disk_alive(const struct fake_disk *disk, unsigned process)
{
    return disk->processes[process].alive;
}

uint64_t fake_disk_calls(const struct fake_disk *disk, unsigned process)
{
    return disk->processes[process].calls;
}

unsigned fake_disk_descriptors(const struct fake_disk *disk, unsigned process)
{
    unsigned n = 0;

    for (size_t i = 0; i < disk->n_descriptors; i++)
        n += disk->descriptors[i].process == process;
    return n;
}

uint64_t fake_disk_bytes(const struct fake_disk *disk)
{
    return bytes_of_all(disk);
}

unsigned fake_disk_files(const struct fake_disk *disk)
{
    unsigned n = 0;

    for (size_t i = 0; i < disk->n_files; i++)
        n += disk->files[i].named && !disk->files[i].folder;
    return n;
}
