/* GGUF files, versions 2 and 3: metadata and tensor directory, checked, over a read-only map.
 *
 * Everything is validated when the file is opened: after that every string, array and tensor view
 * handed out lies inside the file. Time and memory are linear in the file's header and bounded by
 * its size; nothing in a file can make this room abort, recurse or allocate by a count that the
 * file only claims. Split files (split.count > 1): the first part's path is given, the others are
 * derived from its name ("...-00001-of-00003.gguf"), and the directory is the union.
 *
 * Format: the GGUF specification of the ggml project.
 * Threads: immutable after opening; any thread may read. */
#ifndef RN_MODEL_GGUF_GGUF_H
#define RN_MODEL_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"

enum rn_gguf_type {
    RN_GGUF_U8 = 0,
    RN_GGUF_I8 = 1,
    RN_GGUF_U16 = 2,
    RN_GGUF_I16 = 3,
    RN_GGUF_U32 = 4,
    RN_GGUF_I32 = 5,
    RN_GGUF_F32 = 6,
    RN_GGUF_BOOL = 7,
    RN_GGUF_STRING = 8,
    RN_GGUF_ARRAY = 9,
    RN_GGUF_U64 = 10,
    RN_GGUF_I64 = 11,
    RN_GGUF_F64 = 12
};

/* A borrowed piece of the file: not NUL-terminated. */
struct rn_view {
    const char *bytes;
    size_t n;
};

struct rn_gguf_entry {
    struct rn_view key;
    uint32_t type;    /* enum rn_gguf_type */
    uint32_t item;    /* element type of an array, else = type */
    uint64_t count;   /* elements of an array, else 1 */
    const char *data; /* first element, unaligned, little-endian; strings: u64 length + bytes each */
    size_t data_bytes;
};

struct rn_tensor {
    struct rn_view name;
    uint32_t type;    /* ggml type id; rn_type() of it is never NULL */
    uint32_t n_dims;  /* 1..4 */
    uint64_t dims[4]; /* fastest first, each >= 1; 1 beyond n_dims */
    uint64_t elements;
    uint64_t bytes;   /* elements / block elements * block bytes */
    uint32_t part;    /* of a split file, from 0 */
    uint64_t offset;  /* from the start of that part's file */
    const void *data; /* [bytes], mapped; aligned to the file's general.alignment, which may be 1 */
};

struct rn_gguf;      /* opaque */
struct rn_arch_rows; /* arch/table.h */

/* Of a known general.architecture with its 0; of a sentence about a file whose architecture is not known. */
enum { RN_ARCH_NAME_BYTES = 64, RN_ARCH_ASSUMED_BYTES = 384 };

/* Opens and maps the file and its parts. IO, FORMAT, UNSUPPORTED (a version or tensor type that is
 * not known), NO_MEMORY; *error names the file and the key or tensor. Blocks on the disk. */
runnel_status rn_gguf_open(struct rn_heap *heap, const char *path, struct rn_gguf **out, runnel_error *error);

/* The same over bytes in memory, which must outlive the result; `name` is used in errors. Split
 * files are refused. */
runnel_status rn_gguf_parse(struct rn_heap *heap, const void *bytes, size_t n, const char *name, struct rn_gguf **out,
                            runnel_error *error);
void rn_gguf_free(struct rn_gguf *gguf);

/* Paths of the parts of a split file end in "-00001-of-00003.gguf" and so on; `part` is from 0.
 * is_part: path is that of this part. set_part: path, that of some part of `count`, becomes that of this part.
 * parts_of: how many parts there are by the path of the first; 1: it is no such path. */
bool rn_gguf_is_part(const char *path, uint32_t part, uint32_t count);
void rn_gguf_set_part(char *path, uint32_t part, uint32_t count);
uint32_t rn_gguf_parts_of(const char *path);

/* The file as error sentences name it: its path, of a long one the end. */
const char *rn_gguf_path(const struct rn_gguf *gguf);
uint32_t rn_gguf_version(const struct rn_gguf *gguf);
uint32_t rn_gguf_alignment(const struct rn_gguf *gguf);
uint32_t rn_gguf_parts(const struct rn_gguf *gguf);
uint64_t rn_gguf_file_bytes(const struct rn_gguf *gguf); /* of all parts */

/* When a part was last changed, in nanoseconds since 1970: the latest; 0 of bytes in memory. */
uint64_t rn_gguf_modified_ns(const struct rn_gguf *gguf);

/* Gives the memory of the whole pages in bytes[0..n) back to the system, where they are of the file's map: who reads
 * them again reads the file. Any thread. */
void rn_gguf_release(const struct rn_gguf *gguf, const void *bytes, size_t n);

/* Rows of architectures beside those of the table, for the file's plans; NULL: none. Borrowed, until the file is freed.
 * Set before any other thread reads the file. */
void rn_gguf_set_rows(struct rn_gguf *gguf, const struct rn_arch_rows *rows);
const struct rn_arch_rows *rn_gguf_rows(const struct rn_gguf *gguf);

uint64_t rn_gguf_n_entries(const struct rn_gguf *gguf); /* the first part's */
const struct rn_gguf_entry *rn_gguf_entry(const struct rn_gguf *gguf, uint64_t index);
const struct rn_gguf_entry *rn_gguf_find(const struct rn_gguf *gguf, const char *key); /* NULL: absent */

uint64_t rn_gguf_n_tensors(const struct rn_gguf *gguf); /* of all parts, in file order */
const struct rn_tensor *rn_gguf_tensor(const struct rn_gguf *gguf, uint64_t index);
const struct rn_tensor *rn_gguf_find_tensor(const struct rn_gguf *gguf, const char *name);

/* Typed reading. An absent key leaves *value as it was and is OK, unless `required` (then FORMAT).
 * A value of another kind (integers of any width are one kind; a float key accepts F32 and F64) or
 * outside [min, max], or a float that is not finite, is FORMAT, with the key named. */
runnel_status rn_gguf_get_u64(const struct rn_gguf *gguf, const char *key, bool required, uint64_t min, uint64_t max,
                              uint64_t *value, runnel_error *error);
runnel_status rn_gguf_get_f64(const struct rn_gguf *gguf, const char *key, bool required, double min, double max,
                              double *value, runnel_error *error);
runnel_status rn_gguf_get_bool(const struct rn_gguf *gguf, const char *key, bool required, bool *value,
                               runnel_error *error);
runnel_status rn_gguf_get_string(const struct rn_gguf *gguf, const char *key, bool required, struct rn_view *value,
                                 runnel_error *error);
/* An array whose items are of the kind of `item` (RN_GGUF_U32: any integers, RN_GGUF_F32: any
 * floats, RN_GGUF_STRING, RN_GGUF_BOOL). *entry is NULL when absent and not required. */
runnel_status rn_gguf_get_array(const struct rn_gguf *gguf, const char *key, bool required, uint32_t item,
                                const struct rn_gguf_entry **entry, runnel_error *error);

/* Element `index` of a scalar (index 0) or array entry; the entry's item type must be of that kind.
 * Integers are sign-extended. rn_gguf_item_string is for walking: *cursor starts at entry->data and
 * moves to the next string. */
int64_t rn_gguf_item_i64(const struct rn_gguf_entry *entry, uint64_t index);
double rn_gguf_item_f64(const struct rn_gguf_entry *entry, uint64_t index);
struct rn_view rn_gguf_item_string(const char **cursor);

#endif
