/* Files and batches that clients have, kept in a folder so that they outlive the process.
 *
 *     FOLDER/lock              one server at a time
 *     FOLDER/file-ID           what the file holds
 *     FOLDER/file-ID.json      what is known of it: {"owner": TENANT, "object": {.. as clients see it}}
 *     FOLDER/batch-ID.json     likewise
 *     FOLDER/batch-ID.out, .err, .journal     of a batch that is not over (docs/BATCH.md)
 *
 * A record is written beside its place (FOLDER/ID.new) and moved there. Everything runs on the loop's thread but
 * store_read and store_write, which any thread may call; contents are at most as long as a body may be. IDs are
 * STORE_ID_DIGITS small hexadecimal digits, made by files_new_id and compared as texts: no path comes from outside.
 * Other names in the folder are somebody else's, and are left alone. */
#ifndef RUNNEL_SERVE_STORE_H
#define RUNNEL_SERVE_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    STORE_RECORDS = 1000, /* files, and batches, of all clients together */
    STORE_ID_DIGITS = 27
};

enum store_kind { STORE_FILES, STORE_BATCHES, STORE_KINDS };

struct serve_store {
    const char *folder;           /* NULL: nothing is kept */
    int lock;                     /* -1: not taken */
    uint64_t most_bytes, bytes;   /* of files: allowed, and those of the records and of what is being written */
    size_t n_writing;             /* files that have no record yet */
    json_t *records[STORE_KINDS]; /* arrays, the oldest first */
};

/* Reads what is there, and removes contents of files without a record. False after a message. store_close after any
 * outcome. */
bool store_open(struct serve_store *store, const char *folder, uint64_t most_bytes);
void store_close(struct serve_store *store);

/* A borrowed record; NULL: there is none of that id that the owner has. */
json_t *store_find(const struct serve_store *store, enum store_kind kind, const char *id, uint64_t owner);
bool store_owns(const json_t *record, uint64_t owner);

/* The part of a record that clients see. */
json_t *store_object(const json_t *record);
const char *store_id(const json_t *record);

/* Adds a record of an object (stolen) that has its id; saves. False: the disk is full, or memory is short. */
bool store_add(struct serve_store *store, enum store_kind kind, uint64_t owner, json_t *object);
bool store_save(const struct serve_store *store, const json_t *record);
void store_remove(struct serve_store *store, enum store_kind kind, const json_t *record);

/* What the folder has of an id that no record is kept of. */
void store_unlink(const struct serve_store *store, const char *id);

/* FOLDER/ID and an ending, in to[0..room); where it does not fit: false. */
bool store_path(const struct serve_store *store, const char *id, const char *ending, char *to, size_t room);

/* The bytes of a new file. False: not written. */
bool store_write(const struct serve_store *store, const char *id, const char *bytes, size_t n);

/* All that it holds, ended with a zero byte, to be freed; NULL: it cannot be read, and `why`, else "",
 * says so. */
char *store_read(const struct serve_store *store, const char *id, size_t *n, char why[512]);

#endif
