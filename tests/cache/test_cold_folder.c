/* Cache folders seen from outside (runnel_cache_*), what a damaged head leaves readable, and two processes at one
 * folder. Records have a closed form (cold_fixture.h); which bytes of a segment are under a check follows from the
 * table in docs/TIERS.md. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/cold_folder.h"
#include "cache/store/cold_format.h"
#include "base/sort.h"
#include "runnel_files.h"
#include "tests/base/whole_file.h"
#include "tests/cache/cold_fixture.h"
#include "tests/support/child.h"

static struct rn_tier_id id_of(unsigned char model)
{
    struct rn_tier_id id = cold_id();

    id.model.bytes[0] = model;
    return id;
}

static void hex_of(unsigned char model, char *hex)
{
    struct rn_tier_id id = id_of(model);
    struct rn_fingerprint print = rn_cold_fingerprint(&id);

    rn_cold_hex(&print, hex);
}

static struct rn_cold_store *open_store(unsigned char model, const struct rn_cold_limits *limits,
                                        struct cold_told *told)
{
    struct rn_tier_id id = id_of(model);
    struct rn_cold_store *store;

    assert_int_equal(rn_cold_store_open(&cold_heap, NULL, cold_folder, &id, limits,
                                        told == NULL ? NULL : cold_on_record, told, &store, NULL),
                     RUNNEL_OK);
    return store;
}

static void append_chain(struct rn_cold_store *store, uint32_t chain, uint32_t n, uint32_t salt)
{
    uint64_t handle = 0;

    for (uint32_t d = 0; d < n; d++)
        assert_int_equal(cold_append(store, (struct cold_key){chain, d, salt}, handle, &handle), RUNNEL_OK);
}

/* Chains of `depth` records under the salt, which has 0 as its second word like those of requests. */
static void fill(unsigned char model, uint32_t chains, uint32_t depth)
{
    const struct rn_cold_limits small = {.max_bytes = 64 << 20, .segment_bytes = 4 << 10};
    struct rn_cold_store *store = open_store(model, &small, NULL);

    for (uint32_t c = 0; c < chains; c++)
        append_chain(store, c, depth, c % 2);
    rn_cold_store_close(store);
}

static size_t readable(unsigned char model)
{
    struct cold_told told = {.n = 0};
    const struct rn_cold_limits look = {.max_bytes = 64 << 20, .read_only = true};

    return cold_close_whole(open_store(model, &look, &told), &told);
}

/* ---- Looking ---- */

struct seen {
    uint64_t n, records;
    char first[40], last[40];
    runnel_cache_entry entry;
};

static void on_entry(void *user, const runnel_cache_entry *entry)
{
    struct seen *seen = user;

    assert_int_equal(entry->struct_size, sizeof *entry);
    snprintf(seen->n == 0 ? seen->first : seen->last, sizeof seen->first, "%s", entry->fingerprint);
    assert_string_equal(entry->model, "closed form");
    seen->entry = *entry;
    seen->n++;
    seen->records += entry->records;
}

static void on_inspected(void *user, const runnel_cache_record *record)
{
    struct cold_key key = {(uint32_t)record->tokens[0], (uint32_t)record->tokens[1], (uint32_t)record->salt};
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];
    uint64_t *n = user;

    cold_tokens(key, tokens);
    assert_int_equal(record->n_tokens, COLD_B);
    assert_memory_equal(tokens, record->tokens, sizeof tokens);
    assert_int_equal(record->depth, key.depth);
    assert_int_equal(record->bytes, cold_payload(key, payload));
    assert_int_equal(record->parent == 0, key.depth == 0);
    (*n)++;
}

static void test_look(void **state)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    struct seen seen = {.n = 0};
    uint64_t inspected = 0;
    char hex[40];

    (void)state;
    fill(1, 3, 4);
    fill(2, 20, 5);
    assert_int_equal(runnel_cache_ls(cold_folder, on_entry, &seen, &totals, NULL), RUNNEL_OK);
    assert_int_equal(seen.n, 2);
    assert_true(strcmp(seen.first, seen.last) < 0);
    assert_int_equal(seen.records, 3 * 4 + 20 * 5);
    assert_true(totals.fingerprints == 2 && totals.records == seen.records && totals.foreign == 0 &&
                totals.damaged == 0);
    hex_of(2, hex);
    hex[6] = '\0';
    assert_int_equal(runnel_cache_inspect(cold_folder, hex, on_inspected, &inspected, NULL), RUNNEL_OK);
    assert_int_equal(inspected, 100);
    hex_of(2, hex);
    if (strcmp(hex, seen.last) == 0) {
        assert_int_equal(seen.entry.prefixes, 20);
        assert_int_equal(seen.entry.salts, 2);
        assert_int_equal(seen.entry.longest_tokens, 5 * COLD_B);
        assert_true(seen.entry.segments > 2);
    } else {
        assert_int_equal(seen.entry.prefixes, 3);
        assert_int_equal(seen.entry.longest_tokens, 4 * COLD_B);
    }
    assert_int_equal(seen.entry.salts, 2);
}

/* ---- Verifying ---- */

struct damage {
    uint64_t n, offset;
};

static void on_damage(void *user, const runnel_cache_damage *damage)
{
    struct damage *d = user;

    assert_true(damage->what[0] != '\0' && strlen(damage->fingerprint) == 32 && strstr(damage->file, ".kv") != NULL);
    d->n++;
    d->offset = damage->offset;
}

static void one_segment(char *path, size_t n)
{
    char hex[40];

    hex_of(1, hex);
    snprintf(path, n, "%s/%s/%016x.kv", cold_folder, hex, 1);
}

/* Marks the bytes that are under no check: whether a record lives, and what fills a record up to a multiple of 8. */
static void mark_free(bool *unchecked, uint32_t records, size_t *index)
{
    const size_t head = 96 + 4 * COLD_B;
    uint8_t payload[COLD_MOST_PAYLOAD];
    size_t at = 256;

    for (uint32_t d = 0; d < records; d++) {
        size_t n = cold_payload((struct cold_key){0, d, 0}, payload);

        unchecked[at + 56] = true;
        for (size_t i = at + head + n; i % 8 != 0; i++)
            unchecked[i] = true;
        at += (head + n + 7) / 8 * 8;
    }
    *index = at;
    for (uint32_t d = 0; d < records; d++)
        unchecked[at + d * (8 + head) + 8 + 56] = true;
}

static void test_verify_each_byte(void **state)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    bool unchecked[8192] = {false};
    uint8_t bytes[8192];
    size_t n, index;
    char path[200];

    (void)state;
    fill(1, 1, 3);
    one_segment(path, sizeof path);
    n = read_whole(path, bytes, sizeof bytes);
    mark_free(unchecked, 3, &index);
    assert_int_equal(n, index + 3 * (8 + 96 + 4 * COLD_B) + 48);
    for (size_t i = 0; i <= n; i++) {
        struct damage damage = {0};

        if (i < n)
            bytes[i] ^= (uint8_t)(1 + i % 255);
        write_whole(path, bytes, n);
        assert_int_equal(runnel_cache_verify(cold_folder, NULL, on_damage, &damage, &totals, NULL), RUNNEL_OK);
        assert_int_equal(damage.n, totals.damaged);
        assert_int_equal(damage.n > 0, i < n && !unchecked[i]);
        if (i < n)
            bytes[i] ^= (uint8_t)(1 + i % 255);
    }
    assert_true(totals.segments == 1 && totals.records == 3 && totals.bytes == n);
}

/* As a killed writer leaves it: whole records are fine, and so is one that has no head yet. */
static void test_verify_without_index(void **state)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    uint8_t bytes[8192], payload[COLD_MOST_PAYLOAD];
    bool unchecked[8192];
    struct damage damage = {0};
    size_t end;
    char path[200];

    (void)state;
    fill(1, 1, 3);
    one_segment(path, sizeof path);
    read_whole(path, bytes, sizeof bytes);
    mark_free(unchecked, 3, &end);
    memset(bytes + end, 0, 96 + 4 * COLD_B);
    memset(bytes + end + 96 + 4 * COLD_B, 7, 50);
    write_whole(path, bytes, end + 96 + 4 * COLD_B + 50);
    assert_int_equal(runnel_cache_verify(cold_folder, NULL, on_damage, &damage, &totals, NULL), RUNNEL_OK);
    assert_true(totals.damaged == 0 && totals.records == 3);
    bytes[256 + 20] ^= 1; /* the first head: the two behind it are still found */
    write_whole(path, bytes, end);
    assert_int_equal(runnel_cache_verify(cold_folder, NULL, on_damage, &damage, &totals, NULL), RUNNEL_OK);
    assert_true(totals.damaged == 1 && totals.records == 2 && damage.offset == 256);
    assert_true(cold_payload((struct cold_key){0, 0, 0}, payload) > 0);
}

/* Three prefixes of one block each; a head is damaged, anywhere: the others are read. */
static void test_behind_a_damaged_head(void **state)
{
    const size_t head = 96 + 4 * COLD_B;
    uint8_t bytes[8192], payload[COLD_MOST_PAYLOAD];
    size_t n = 256, starts[3];
    char path[200];

    (void)state;
    fill(1, 3, 1);
    one_segment(path, sizeof path);
    read_whole(path, bytes, sizeof bytes);
    for (uint32_t c = 0; c < 3; c++) {
        starts[c] = n;
        n += (head + cold_payload((struct cold_key){c, 0, c % 2}, payload) + 7) / 8 * 8;
    }
    for (uint32_t c = 0; c < 3; c++) {
        for (size_t i = 0; i < head; i++) {
            bytes[starts[c] + i] ^= (uint8_t)(1 + i % 255);
            write_whole(path, bytes, n);
            assert_int_equal(readable(1), 2);
            bytes[starts[c] + i] ^= (uint8_t)(1 + i % 255);
        }
    }
    write_whole(path, bytes, n);
    assert_int_equal(readable(1), 3);
}

/* ---- Purging ---- */

static bool files_hold(unsigned char model, const void *bytes, size_t n)
{
    static uint8_t file[1 << 16];
    char hex[40], path[200];
    bool found = false;

    hex_of(model, hex);
    for (unsigned number = 1; number < 40; number++) {
        snprintf(path, sizeof path, "%s/%s/%016x.kv", cold_folder, hex, number);
        if (access(path, F_OK) == 0)
            found |= memmem(file, read_whole(path, file, sizeof file), bytes, n) != NULL;
    }
    return found;
}

/* Salts of requests have 0 as their second word. */
static runnel_status append_salted(struct rn_cold_store *store, struct cold_key key, uint64_t parent, uint64_t *handle)
{
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    cold_tokens(key, tokens);
    return rn_tier_store_put(rn_cold_store_tier(store),
                             &(struct rn_tier_key){parent, (struct rn_prefix_salt){{key.salt, 0}}, tokens}, payload,
                             cold_payload(key, payload), handle);
}

static void test_purge_salt(void **state)
{
    const struct rn_cold_limits small = {.max_bytes = 64 << 20, .segment_bytes = 4 << 10};
    runnel_cache_purge_options options;
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    struct rn_cold_store *store = open_store(1, &small, NULL);
    uint8_t payload[COLD_MOST_PAYLOAD];
    int32_t tokens[COLD_B];

    (void)state;
    for (uint32_t c = 0; c < 30; c++) {
        uint64_t handle = 0;

        for (uint32_t d = 0; d < 3; d++)
            assert_int_equal(append_salted(store, (struct cold_key){c, d, 7 + c % 2}, handle, &handle), RUNNEL_OK);
    }
    rn_cold_store_close(store);
    runnel_cache_purge_options_default(&options);
    options.by_salt = 1;
    options.salt = 8;
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, NULL), RUNNEL_OK);
    assert_int_equal(totals.records, 15 * 3);
    for (uint32_t c = 0; c < 30; c++) {
        for (uint32_t d = 0; d < 3; d++) {
            struct cold_key key = {c, d, 7 + c % 2};
            size_t n = cold_payload(key, payload);

            cold_tokens(key, tokens);
            assert_int_equal(files_hold(1, tokens, sizeof tokens), key.salt == 7);
            if (n > 8)
                assert_int_equal(files_hold(1, payload, n), key.salt == 7);
        }
    }
    assert_int_equal(runnel_cache_verify(cold_folder, NULL, NULL, NULL, &totals, NULL), RUNNEL_OK);
    assert_true(totals.damaged == 0 && totals.records == 45);
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, NULL), RUNNEL_OK);
    assert_int_equal(totals.records, 0);
    options.salt = 7;
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, NULL), RUNNEL_OK);
    assert_int_equal(totals.records, 45);
    assert_int_equal(runnel_cache_ls(cold_folder, NULL, NULL, &totals, NULL), RUNNEL_OK);
    assert_int_equal(totals.segments, 0); /* a segment without living records goes */
}

static void flip(const char *path, size_t at)
{
    static uint8_t bytes[1 << 16];
    size_t n = read_whole(path, bytes, sizeof bytes);

    bytes[at] ^= 1;
    write_whole(path, bytes, n);
}

/* A segment with a damaged header keeps what it has: the purge does all the rest and says so; so it does where no
 * segment of a fingerprint can be read. One that was torn in its header has no record. */
static void test_purge_left(void **state)
{
    runnel_cache_purge_options options;
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    runnel_error error = {0};
    char path[200], torn[200];
    uint8_t header[100] = {0};

    (void)state;
    fill(1, 30, 3);
    one_segment(path, sizeof path);
    snprintf(torn, sizeof torn, "%s", path);
    memcpy(strrchr(torn, '/') + 1, "00000000000000ff.kv", 19);
    write_whole(torn, header, sizeof header);
    runnel_cache_purge_options_default(&options);
    options.by_salt = 1;
    options.salt = 5; /* nobody's */
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, &error), RUNNEL_OK);
    flip(path, 20);
    options.salt = 1;
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, "1 segments could not be read and are left"));
    assert_int_equal(runnel_cache_ls(cold_folder, NULL, NULL, &totals, NULL), RUNNEL_OK);
    assert_true(totals.records > 0);
    flip(path, 20);
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, &error), RUNNEL_OK);
    assert_true(totals.records > 0);
    options.salt = 0;
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, &error), RUNNEL_OK);
    fill(2, 1, 1);
    hex_of(2, strrchr(path, '/') - 32);
    memcpy(path + strlen(path), "/0000000000000001.kv", 21);
    flip(path, 20);
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, &error), RUNNEL_IO);
    assert_non_null(strstr(error.message, "1 segments could not be read and are left"));
}

static void test_purge_files(void **state)
{
    runnel_cache_purge_options options;
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    char hex[40];

    (void)state;
    fill(1, 30, 3);
    fill(2, 30, 3);
    runnel_cache_purge_options_default(&options);
    hex_of(2, hex);
    options.fingerprint = hex;
    options.keep_bytes = 9 << 10;
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, NULL), RUNNEL_OK);
    assert_true(totals.segments > 0);
    assert_int_equal(readable(1), 90);
    assert_true(readable(2) > 20 && readable(2) < 60);
    options.fingerprint = NULL;
    options.keep_bytes = 0;
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, NULL), RUNNEL_OK);
    assert_int_equal(totals.fingerprints, 2);
    assert_int_equal(runnel_cache_ls(cold_folder, NULL, NULL, &totals, NULL), RUNNEL_OK);
    assert_true(totals.fingerprints == 0 && totals.segments == 0);
    fill(1, 2, 2); /* and it can be used again */
    assert_int_equal(readable(1), 4);
}

/* ---- Two processes ---- */

/* The child opens first, says so, and goes on with each byte it is told. */
static pid_t start_writer(int *told, int *say)
{
    int up[2], down[2];
    char byte = 0;
    pid_t child;

    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    child = child_fork();
    if (child == 0) {
        struct rn_cold_store *store = open_store(1, &cold_roomy, NULL);

        append_chain(store, 1, 3, 0);
        if (write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1)
            _exit(1);
        append_chain(store, 2, 1, 0);
        if (write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1)
            _exit(1);
        rn_cold_store_close(store);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    *told = up[0];
    *say = down[1];
    assert_int_equal(read(*told, &byte, 1), 1);
    return child;
}

/* An engine writes and ends between the look at the folder and the lock: what it has written goes, too. */
static void test_purge_late(void **state)
{
    struct rn_cold_folder folder;
    struct rn_cold_listing listing;
    struct rn_cold_totals gone = {0};
    struct rn_cold_store *store;
    int lock;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        store = open_store(1, &cold_roomy, NULL);
        append_chain(store, i, 5, 0);
        rn_cold_store_close(store);
        if (i > 0)
            continue;
        assert_int_equal(rn_cold_folder_open(&folder, &cold_heap, NULL, cold_folder, NULL, NULL), RUNNEL_OK);
        assert_int_equal(rn_cold_listing_open(&listing, &folder, 0, NULL), RUNNEL_OK);
        assert_int_equal(listing.segments.n, 1);
    }
    assert_int_equal(rn_cold_listing_lock(&listing, &lock, NULL), RUNNEL_OK);
    assert_int_equal(rn_cold_listing_purge(&listing, 0, &gone, NULL), RUNNEL_OK);
    assert_true(gone.segments == 2 && gone.records == 10 && listing.foreign == 0);
    close(lock);
    rn_cold_listing_fini(&listing);
    rn_cold_folder_fini(&folder);
}

static void test_two_processes(void **state)
{
    runnel_cache_purge_options options;
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    struct cold_told told = {.n = 0};
    struct rn_cold_store *reader;
    runnel_error error = {0};
    int from, to, status;
    uint64_t none;
    char byte = 0;
    pid_t child = start_writer(&from, &to);

    (void)state;
    reader = open_store(1, &cold_roomy, &told);
    assert_int_equal(cold_read_all(reader, &told), 3);
    assert_int_equal(cold_append(reader, (struct cold_key){5, 0, 0}, 0, &none), RUNNEL_STATE);
    runnel_cache_purge_options_default(&options);
    for (options.by_salt = 0; options.by_salt < 2; options.by_salt++) {
        error = (runnel_error){0};
        assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, &error), RUNNEL_BUSY);
        assert_non_null(strstr(error.message, "an engine is writing to it"));
    }
    assert_int_equal(runnel_cache_verify(cold_folder, NULL, NULL, NULL, &totals, NULL), RUNNEL_OK);
    assert_true(totals.records == 3 && totals.damaged == 0);
    assert_int_equal(write(to, &byte, 1), 1);
    assert_int_equal(read(from, &byte, 1), 1);
    assert_int_equal(cold_read_all(reader, &told), 3);
    assert_int_equal(readable(1), 4);
    assert_int_equal(write(to, &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(from);
    close(to);
    rn_cold_store_close(reader);
    cold_told_free(&told);
    reader = open_store(1, &cold_roomy, NULL);
    append_chain(reader, 6, 1, 0);
    rn_cold_store_close(reader);
    assert_int_equal(readable(1), 5);
}

/* ---- What does not belong there ---- */

static void put_foreign(const char *store)
{
    char path[300], target[200];
    uint8_t byte = 1;

    snprintf(path, sizeof path, "%s/notes.txt", cold_folder);
    write_whole(path, &byte, 1);
    snprintf(path, sizeof path, "%s/%032d", cold_folder, 7); /* a link to a fingerprint is none */
    assert_int_equal(symlink(store, path), 0);
    snprintf(path, sizeof path, "%s/%032d", cold_folder, 8); /* nor is a file */
    write_whole(path, &byte, 1);
    snprintf(path, sizeof path, "%s/notes.txt", store);
    write_whole(path, &byte, 1);
    snprintf(target, sizeof target, "%s/notes.txt", cold_folder);
    snprintf(path, sizeof path, "%s/%016x.kv", store, 0x70);
    assert_int_equal(symlink(target, path), 0);
    snprintf(path, sizeof path, "%s/%016x.kv", store, 0x71);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%016x.kv", store, 0x72);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void test_foreign(void **state)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    runnel_cache_purge_options options;
    struct damage damage = {0};
    char store[150], hex[40], path[300];

    (void)state;
    fill(1, 2, 2);
    hex_of(1, hex);
    snprintf(store, sizeof store, "%s/%s", cold_folder, hex);
    put_foreign(store);
    assert_int_equal(runnel_cache_ls(cold_folder, NULL, NULL, &totals, NULL), RUNNEL_OK);
    assert_true(totals.fingerprints == 1 && totals.records == 4 && totals.foreign == 4);
    assert_int_equal(runnel_cache_verify(cold_folder, NULL, on_damage, &damage, &totals, NULL), RUNNEL_OK);
    assert_true(damage.n == 3 && totals.damaged == 3 && totals.records == 4 && totals.foreign == 4);
    runnel_cache_purge_options_default(&options);
    assert_int_equal(runnel_cache_purge(cold_folder, &options, &totals, NULL), RUNNEL_OK);
    assert_true(totals.segments == 1 && totals.foreign == 4);
    snprintf(path, sizeof path, "%s/notes.txt", cold_folder);
    assert_int_equal(access(path, F_OK), 0);
    for (unsigned i = 0x70; i <= 0x72; i++) {
        struct stat is;

        snprintf(path, sizeof path, "%s/%016x.kv", store, i);
        assert_int_equal(lstat(path, &is), 0);
    }
    snprintf(path, sizeof path, "%s/%016x.kv", store, 0x71);
    assert_int_equal(rmdir(path), 0); /* for the tear-down */
}

static void assert_error(runnel_status status, runnel_status expected, const runnel_error *error, const char *words)
{
    assert_int_equal(status, expected);
    assert_int_equal(error->status, expected);
    assert_non_null(strstr(error->message, words));
}

static void test_errors(void **state)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals}, wrong = {.struct_size = 3};
    runnel_cache_purge_options options;
    runnel_error error = {0};
    char path[200];
    uint8_t byte = 1;

    (void)state;
    fill(1, 1, 1);
    assert_error(runnel_cache_ls("/nonexistent/x", NULL, NULL, &totals, &error), RUNNEL_IO, &error, "/nonexistent/x");
    snprintf(path, sizeof path, "%s/file", cold_folder);
    write_whole(path, &byte, 1);
    assert_error(runnel_cache_verify(path, NULL, NULL, NULL, &totals, &error), RUNNEL_IO, &error, "ot a directory");
    assert_error(runnel_cache_ls(NULL, NULL, NULL, NULL, &error), RUNNEL_INVALID, &error, "no path");
    assert_error(runnel_cache_ls("", NULL, NULL, NULL, &error), RUNNEL_INVALID, &error, "no path");
    assert_error(runnel_cache_ls(cold_folder, NULL, NULL, &wrong, &error), RUNNEL_INVALID, &error, "struct_size");
    assert_error(runnel_cache_inspect(cold_folder, "../..", on_inspected, NULL, &error), RUNNEL_INVALID, &error,
                 "'../..'");
    assert_error(runnel_cache_inspect(cold_folder, NULL, on_inspected, NULL, &error), RUNNEL_INVALID, &error, "NULL");
    runnel_cache_purge_options_default(&options);
    options.fingerprint = "";
    assert_error(runnel_cache_purge(cold_folder, &options, NULL, &error), RUNNEL_INVALID, &error, "no fingerprint");
    options.fingerprint = "0123456789abcdef";
    assert_error(runnel_cache_purge(cold_folder, &options, NULL, &error), RUNNEL_NOT_FOUND, &error, "begins with");
    options.struct_size = 1;
    assert_error(runnel_cache_purge(cold_folder, &options, NULL, &error), RUNNEL_INVALID, &error, "struct_size");
    runnel_cache_purge_options_default(&options);
    options.reserved[6] = 1;
    assert_error(runnel_cache_purge(cold_folder, &options, NULL, &error), RUNNEL_INVALID, &error, "reserved");
    assert_error(runnel_cache_purge(cold_folder, NULL, NULL, &error), RUNNEL_INVALID, &error, "NULL");
    runnel_cache_purge_options_default(&options);
    assert_error(runnel_cache_purge("/nonexistent/x", &options, NULL, &error), RUNNEL_IO, &error, "/nonexistent/x");
    assert_error(runnel_cache_inspect(path, "0", on_inspected, NULL, &error), RUNNEL_IO, &error, "ot a directory");
    assert_int_equal(readable(1), 1);
}

/* Digits with which no fingerprint begins, one does, and several do. */
static void test_shortened(void **state)
{
    char hex[2][40], short_one[40];
    uint64_t n = 0;
    runnel_error error = {0};
    unsigned char other = 1;
    size_t same = 1;

    (void)state;
    hex_of(1, hex[0]);
    do {
        hex_of(++other, hex[1]);
    } while (hex[0][0] != hex[1][0]);
    fill(1, 2, 3);
    fill(other, 1, 1);
    while (hex[0][same] == hex[1][same])
        same++;
    snprintf(short_one, sizeof short_one, "%.*s", (int)same, hex[0]);
    assert_error(runnel_cache_inspect(cold_folder, short_one, on_inspected, &n, &error), RUNNEL_NOT_FOUND, &error,
                 "more than one fingerprint begins with");
    assert_error(runnel_cache_verify(cold_folder, short_one, NULL, NULL, NULL, &error), RUNNEL_NOT_FOUND, &error,
                 "more than one fingerprint begins with");
    snprintf(short_one, sizeof short_one, "%.*s", (int)same + 1, hex[0]);
    assert_int_equal(runnel_cache_inspect(cold_folder, short_one, on_inspected, &n, &error), RUNNEL_OK);
    assert_int_equal(n, 6);
    short_one[same] = (char)(hex[0][same] == 'f' || hex[1][same] == 'f' ? 'e' : 'f');
    if (short_one[same] != hex[0][same] && short_one[same] != hex[1][same])
        assert_error(runnel_cache_verify(cold_folder, short_one, NULL, NULL, NULL, &error), RUNNEL_NOT_FOUND, &error,
                     "no fingerprint begins with");
}

/* ---- The sort ---- */

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void test_sort(void **state)
{
    uint64_t random = 4, ours[300], theirs[300];

    (void)state;
    for (size_t n = 0; n <= 300; n++) {
        uint64_t most = 1 + rn_splitmix64(&random) % 1000;

        for (size_t i = 0; i < n; i++)
            ours[i] = theirs[i] = rn_splitmix64(&random) % most;
        rn_sort_in_place(ours, n, sizeof *ours, by_value);
        qsort(theirs, n, sizeof *theirs, by_value);
        assert_true(n == 0 || memcmp(ours, theirs, n * sizeof *ours) == 0);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, cold_set_up, cold_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_look),
        TEST(test_verify_each_byte),
        TEST(test_verify_without_index),
        TEST(test_behind_a_damaged_head),
        TEST(test_purge_salt),
        TEST(test_purge_left),
        TEST(test_purge_files),
        TEST(test_purge_late),
        TEST(test_two_processes),
        TEST(test_foreign),
        TEST(test_errors),
        TEST(test_shortened),
        TEST(test_sort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
