/* Files and batches that clients have: see store.h. */
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/runnel/common.h"

enum { PATH_BYTES = 4096 };

/* ---- Records ----------------------------------------------------------------------------- */

json_t *store_object(const json_t *record)
{
    return json_object_get(record, "object");
}

const char *store_id(const json_t *record)
{
    const char *id = json_string_value(json_object_get(store_object(record), "id"));

    return id != NULL ? id : "";
}

bool store_owns(const json_t *record, uint64_t owner)
{
    const char *text = json_string_value(json_object_get(record, "owner"));

    return text != NULL && strtoull(text, NULL, 16) == owner;
}

static json_t *find(const struct serve_store *store, enum store_kind kind, const char *id)
{
    json_t *record = NULL;
    size_t i = 0;

    json_array_foreach(store->records[kind], i, record)
    {
        if (strcmp(store_id(record), id) == 0)
            return record;
    }
    return NULL;
}

json_t *store_find(const struct serve_store *store, enum store_kind kind, const char *id, uint64_t owner)
{
    json_t *record = find(store, kind, id);

    return record != NULL && store_owns(record, owner) ? record : NULL;
}

static uint64_t bytes_of(const json_t *record)
{
    json_int_t bytes = json_integer_value(json_object_get(store_object(record), "bytes"));

    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* ---- Paths and bytes --------------------------------------------------------------------- */

bool store_path(const struct serve_store *store, const char *id, const char *ending, char *to, size_t room)
{
    int n = snprintf(to, room, "%s/%s%s", store->folder, id, ending);

    return n > 0 && (size_t)n < room;
}

static bool write_whole(const char *path, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0;

    while (good && n > 0) {
        ssize_t put = write(fd, bytes, n);

        good = put > 0 || (put < 0 && errno == EINTR);
        bytes += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
    good = good && fsync(fd) == 0;
    if (!good)
        app_error("%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (!good)
        unlink(path);
    return good;
}

bool store_write(const struct serve_store *store, const char *id, const char *bytes, size_t n)
{
    char path[PATH_BYTES];

    return store_path(store, id, "", path, sizeof path) && write_whole(path, bytes, n);
}

char *store_read(const struct serve_store *store, const char *id, size_t *n, char why[512])
{
    struct app_text text = {0};
    char path[PATH_BYTES];

    snprintf(why, 512, "%s: its path is too long", id);
    if (!store_path(store, id, "", path, sizeof path) || !app_take_file(path, &text, why))
        return NULL;
    why[0] = '\0';
    *n = text.size;
    return text.bytes;
}

bool store_save(const struct serve_store *store, const json_t *record)
{
    char path[PATH_BYTES], beside[PATH_BYTES];
    char *text = json_dumps(record, JSON_COMPACT);
    bool good = text != NULL && store_path(store, store_id(record), ".json", path, sizeof path) &&
                store_path(store, store_id(record), ".new", beside, sizeof beside) &&
                write_whole(beside, text, strlen(text)) && rename(beside, path) == 0;

    free(text);
    return good;
}

bool store_add(struct serve_store *store, enum store_kind kind, uint64_t owner, json_t *object)
{
    char text[24];
    json_t *record = NULL;

    snprintf(text, sizeof text, "%016" PRIx64, owner);
    record = json_pack("{s:s, s:o}", "owner", text, "object", object);
    if (record == NULL || !store_save(store, record) || json_array_append(store->records[kind], record) != 0) {
        json_decref(record);
        return false;
    }
    store->bytes += kind == STORE_FILES ? bytes_of(record) : 0;
    json_decref(record);
    return true;
}

void store_unlink(const struct serve_store *store, const char *id)
{
    static const char *const of_file[] = {"", ".json", ".new", NULL};
    static const char *const of_batch[] = {".json",    ".new",         ".out",         ".err",
                                           ".journal", ".journal-wal", ".journal-shm", NULL};
    char path[PATH_BYTES];

    for (const char *const *ending = strncmp(id, "batch-", 6) == 0 ? of_batch : of_file; *ending != NULL; ending++)
        if (store_path(store, id, *ending, path, sizeof path))
            unlink(path);
}

void store_remove(struct serve_store *store, enum store_kind kind, const json_t *record)
{
    size_t i = 0;
    json_t *other = NULL;

    store_unlink(store, store_id(record));
    store->bytes -= kind == STORE_FILES ? bytes_of(record) : 0;
    json_array_foreach(store->records[kind], i, other)
    {
        if (other == record) {
            json_array_remove(store->records[kind], i);
            return;
        }
    }
}

/* ---- Opening ----------------------------------------------------------------------------- */

/* A record that has what later code relies on: an owner, an object, and the id that its file is named after. */
static bool is_sound(const json_t *record, const char *id)
{
    return json_is_string(json_object_get(record, "owner")) && strcmp(store_id(record), id) == 0 &&
           json_is_integer(json_object_get(store_object(record), "created_at"));
}

static void load(struct serve_store *store, const char *name)
{
    enum store_kind kind = strncmp(name, "file-", 5) == 0 ? STORE_FILES : STORE_BATCHES;
    char id[128], path[PATH_BYTES];
    json_t *record = NULL;

    snprintf(id, sizeof id, "%.*s", (int)(strlen(name) - 5), name);
    if (!store_path(store, id, ".json", path, sizeof path))
        return;
    record = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (is_sound(record, id)) {
        json_array_append(store->records[kind], record);
        store->bytes += kind == STORE_FILES ? bytes_of(record) : 0;
    } else {
        app_error("%s: it is no record; it is left alone", path);
    }
    json_decref(record);
}

/* Ids of one moment have the order in which they were made. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_record(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return n > 5 && n < 100 && strcmp(entry->d_name + n - 5, ".json") == 0 &&
           (strncmp(entry->d_name, "file-", 5) == 0 || strncmp(entry->d_name, "batch-", 6) == 0);
}

/* A name as files_new_id makes it, without an ending. */
static int is_content(const struct dirent *entry)
{
    const char *digits = entry->d_name + 5;

    return strncmp(entry->d_name, "file-", 5) == 0 && strlen(digits) == STORE_ID_DIGITS &&
           strspn(digits, "0123456789abcdef") == STORE_ID_DIGITS;
}

/* Whether a batch has moved its results there, and a record is still to be made. */
static bool is_result(const struct serve_store *store, const char *id)
{
    static const char *const members[] = {"output_file_id", "error_file_id"};
    json_t *record = NULL;
    size_t i = 0;

    json_array_foreach(store->records[STORE_BATCHES], i, record)
    {
        for (size_t k = 0; k < sizeof members / sizeof members[0]; k++) {
            const char *of = json_string_value(json_object_get(store_object(record), members[k]));

            if (of != NULL && strcmp(of, id) == 0)
                return true;
        }
    }
    return false;
}

static bool is_orphan(const struct serve_store *store, const char *id)
{
    char path[PATH_BYTES];
    struct stat status;

    return store_path(store, id, "", path, sizeof path) && lstat(path, &status) == 0 && S_ISREG(status.st_mode) &&
           store_path(store, id, ".json", path, sizeof path) && lstat(path, &status) != 0 && errno == ENOENT &&
           !is_result(store, id);
}

/* Contents that no record tells of: the process ended between the one and the other. Nobody knows their names. The
 * record may lie beside its place. */
static bool unlink_orphans(const struct serve_store *store)
{
    struct dirent **entries = NULL;
    int n = scandir(store->folder, &entries, is_content, NULL);

    for (int i = 0; i < n; i++) {
        if (is_orphan(store, entries[i]->d_name))
            store_unlink(store, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return n >= 0;
}

static bool take_lock(struct serve_store *store)
{
    char path[PATH_BYTES];

    if (mkdir(store->folder, 0700) != 0 && errno != EEXIST) {
        app_error("%s: %s", store->folder, strerror(errno));
        return false;
    }
    if (!store_path(store, "lock", "", path, sizeof path))
        return false;
    store->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock >= 0 && flock(store->lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    app_error("%s: %s", store->folder, errno == EWOULDBLOCK ? "another server uses it" : strerror(errno));
    return false;
}

bool store_open(struct serve_store *store, const char *folder, uint64_t most_bytes)
{
    struct dirent **entries = NULL;
    int n = 0;

    *store = (struct serve_store){.folder = folder, .lock = -1, .most_bytes = most_bytes};
    for (int i = 0; i < STORE_KINDS; i++)
        if ((store->records[i] = json_array()) == NULL)
            return false;
    if (folder == NULL)
        return true;
    if (!take_lock(store))
        return false;
    n = scandir(folder, &entries, is_record, by_name);
    for (int i = 0; i < n; i++) {
        load(store, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return n >= 0 && unlink_orphans(store);
}

void store_close(struct serve_store *store)
{
    for (int i = 0; i < STORE_KINDS; i++)
        json_decref(store->records[i]);
    if (store->folder != NULL && store->lock >= 0)
        close(store->lock);
    *store = (struct serve_store){.lock = -1};
}
