/* What the files of the GGUF reader share. Private to model/gguf.
 *
 * One `struct rn_gguf` holds one file. Of a split file, the first part's object owns those of the
 * others and takes over their tensors:
 *
 *     file.c   open, map, read the header into memory, split files
 *     parse.c  header bytes -> entries and tensors, all checks within one file
 *     names.c  the index of names, which also finds duplicates; names made fit for a sentence
 *     gguf.c        life, accessors, typed reading
 *
 * The header is parsed from a copy in memory, so that a file that is changed or cut while it is
 * open cannot change what has been checked; only tensor data stays in the map. */
#ifndef RN_MODEL_GGUF_INTERNAL_H
#define RN_MODEL_GGUF_INTERNAL_H

#include "model/gguf/gguf.h"

/* Limits beyond what the format says. Real headers have at most some 20 MB (a vocabulary of 256
 * thousand tokens with merges), some thousand entries and tensors, and tensor names of under 64
 * bytes (ggml's own limit; some programs raise it to 128). */
#define RN_GGUF_MAX_HEADER ((uint64_t)256 << 20)
#define RN_GGUF_MAX_ENTRIES ((uint64_t)1 << 20)
#define RN_GGUF_MAX_TENSORS ((uint64_t)1 << 20)     /* in one file */
#define RN_GGUF_MAX_ALL_TENSORS ((uint64_t)1 << 30) /* in all parts */
#define RN_GGUF_MAX_KEY 65535
#define RN_GGUF_MAX_NAME 255
#define RN_GGUF_MAX_ALIGNMENT 65536
#define RN_GGUF_MAX_PARTS 99999 /* five digits in the file name */

/* A hash set over items that begin with a `struct rn_view`: open addressing, at most half full. The
 * hash is keyed with random numbers, so that a file cannot choose names that collide. */
struct rn_names {
    const char *items;
    size_t stride;
    uint32_t *slots; /* [mask + 1]: index + 1, or 0 */
    uint64_t mask;
    uint64_t keys[2];
};

/* Indexes items[0..n); n < 2^31. FORMAT: two names are equal, *duplicate is the later one.
 * NO_MEMORY. Sets no error. The items must stay where they are. */
runnel_status rn_names_build(struct rn_names *names, struct rn_heap *heap, const void *items, size_t stride, uint64_t n,
                             uint64_t *duplicate);
void rn_names_free(struct rn_names *names, struct rn_heap *heap);
/* NULL: absent. */
const void *rn_names_find(const struct rn_names *names, struct rn_view name);

/* A name or path from outside, cut to fit an error sentence, at a character's edge. */
struct rn_shown {
    char text[80];
};
struct rn_shown rn_shown_name(struct rn_view name); /* the beginning; bytes outside of ASCII text as "?" */
struct rn_shown rn_shown_path(const char *path);    /* the end */

/* True where bytes[0..n) is well-formed UTF-8 without control characters below U+0020 and U+007F. */
bool rn_utf8_name_check(struct rn_view name);

struct rn_gguf {
    struct rn_heap *heap;
    char *path;
    struct rn_shown shown; /* the path */
    const char *header;    /* [have] from the start of the file */
    uint64_t have;
    char *header_copy; /* = header where it is owned, else NULL */
    const char *data;  /* the whole file: the map, or the bytes given to rn_gguf_parse */
    uint64_t file_bytes;
    uint64_t modified_ns;
    void *map;             /* NULL or [file_bytes] */
    uint64_t need;         /* after BUSY from rn_gguf_parse_header: bytes it must have at least */
    uint64_t header_bytes; /* up to the end of the last tensor's record */
    uint32_t version;
    uint32_t alignment;
    struct rn_gguf_entry *entries;
    uint64_t n_entries, entry_capacity;
    struct rn_tensor *tensors; /* of the first part: of all parts */
    uint64_t n_tensors, tensor_capacity;
    struct rn_names entry_names;
    struct rn_names tensor_names; /* first part only */
    struct rn_gguf **others;      /* [n_others]: parts 1, 2, ... */
    uint64_t n_others, other_capacity;
    const struct rn_arch_rows *rows; /* borrowed */
};

/* An empty object; NULL on refusal. */
struct rn_gguf *rn_gguf_new(struct rn_heap *heap, const char *path);

/* Parses header[0..have) of a file of file_bytes, from scratch; fills version, alignment, entries,
 * tensors, entry_names. BUSY, without a sentence: the header goes on behind `have`; give it `need`
 * bytes or more and call again. Else FORMAT, UNSUPPORTED, NO_MEMORY. */
runnel_status rn_gguf_parse_header(struct rn_gguf *gguf, runnel_error *error);

/* Builds tensor_names over all tensors. FORMAT: a name twice. */
runnel_status rn_gguf_index_tensors(struct rn_gguf *gguf, runnel_error *error);

/* Frees entries, tensors and their indexes. */
void rn_gguf_drop_directory(struct rn_gguf *gguf);

/* items[0..n) with room for items[n], moved where it had to grow, to at most `most` > n items. NULL:
 * refused, and items is as it was. */
void *rn_gguf_grow(struct rn_heap *heap, void *items, uint64_t n, uint64_t *capacity, uint64_t most, size_t size);

runnel_status rn_gguf_no_memory(const struct rn_gguf *gguf, runnel_error *error);

#endif
