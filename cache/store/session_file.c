/* Session files: see session_file.h, and docs/SESSIONS.md for the places of the header. */
#include "cache/store/session_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* the state's size */
#include <xxhash.h>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/store/fingerprint_hash.h"

static const unsigned char magic[8] = {'R', 'N', 'S', 'E', 'S', 'S', 0x1a, '\n'};

enum place {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_MODEL = 16,
    AT_VOCAB = 32,
    AT_KV = 48,
    AT_BLOCK_BYTES = 64,
    AT_BLOCK_TOKENS = 72,
    AT_N_TOKENS = 76,
    AT_N_COMPUTED = 80,
    AT_N_BLOCKS = 84,
    AT_NOTE_BYTES = 88,
    AT_TEXT_CHECK = 96,
    AT_CHECK = 112
};

#define CHUNK 16384 /* what is checked and not wanted is read in such pieces; as are tokens */
#define MAX_BLOCK_TOKENS 65536u
#define PRINT_BYTES (int)sizeof(struct rn_fingerprint)

static_assert(AT_HEADER_BYTES + 4 == AT_MODEL && AT_MODEL + PRINT_BYTES == AT_VOCAB, "the header's first words");
static_assert(AT_VOCAB + PRINT_BYTES == AT_KV && AT_KV + PRINT_BYTES == AT_BLOCK_BYTES, "the header's prints");
static_assert(AT_BLOCK_BYTES + 8 == AT_BLOCK_TOKENS && AT_BLOCK_TOKENS + 4 == AT_N_TOKENS, "the header's sizes");
static_assert(AT_N_COMPUTED + 4 == AT_N_BLOCKS && AT_N_BLOCKS + 4 == AT_NOTE_BYTES, "the header's counts");
static_assert(AT_NOTE_BYTES + 8 == AT_TEXT_CHECK && AT_TEXT_CHECK + PRINT_BYTES == AT_CHECK, "the text's check");
static_assert(AT_CHECK + PRINT_BYTES == RN_SESSION_HEADER_BYTES, "the header is under its check");
static_assert(RN_SESSION_CHECK_BYTES == PRINT_BYTES && CHUNK % 4 == 0, "a block is followed by its check");

/* ---- Checks ---- */

/* What the checks of blocks begin with: the header's own check, its first eight bytes. */
static uint64_t seed_of(const unsigned char *header)
{
    return rn_bytes_get(header + AT_CHECK, 8);
}

/* Each block its own. */
static uint64_t block_seed(uint64_t seed, uint32_t index)
{
    return seed + index + 1;
}

/* ---- Reading ---- */

static runnel_status read_failed(const struct rn_session_reader *reader, runnel_error *error)
{
    return rn_error_set(error, RUNNEL_IO, "%s: %s", reader->name, strerror(errno));
}

/* All n bytes, or an error. */
static runnel_status read_all(const struct rn_session_reader *reader, void *bytes, size_t n, runnel_error *error)
{
    char *at = bytes;

    while (n > 0) {
        ssize_t got = read(reader->fd, at, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return read_failed(reader, error);
        if (got == 0)
            return rn_error_set(error, RUNNEL_FORMAT, "%s: the file ends too early", reader->name);
        at += got;
        n -= (size_t)got;
    }
    return RUNNEL_OK;
}

static void unpack(const unsigned char *bytes, struct rn_session_head *head)
{
    memcpy(head->model.bytes, bytes + AT_MODEL, sizeof head->model.bytes);
    memcpy(head->vocab.bytes, bytes + AT_VOCAB, sizeof head->vocab.bytes);
    memcpy(head->kv.bytes, bytes + AT_KV, sizeof head->kv.bytes);
    head->block_bytes = rn_bytes_get(bytes + AT_BLOCK_BYTES, 8);
    head->block_tokens = (uint32_t)rn_bytes_get(bytes + AT_BLOCK_TOKENS, 4);
    head->n_tokens = (uint32_t)rn_bytes_get(bytes + AT_N_TOKENS, 4);
    head->n_computed = (uint32_t)rn_bytes_get(bytes + AT_N_COMPUTED, 4);
    head->n_blocks = (uint32_t)rn_bytes_get(bytes + AT_N_BLOCKS, 4);
    head->note_bytes = rn_bytes_get(bytes + AT_NOTE_BYTES, 8);
}

static bool head_good(const struct rn_session_head *head)
{
    uint64_t needed;

    if (head->block_tokens == 0 || head->block_tokens > MAX_BLOCK_TOKENS ||
        (head->block_tokens & (head->block_tokens - 1)) != 0)
        return false;
    needed = ((uint64_t)head->n_computed + head->block_tokens - 1) / head->block_tokens;
    return head->n_tokens <= INT32_MAX && head->n_computed <= head->n_tokens && head->n_blocks == needed &&
           (head->block_bytes > 0 || head->n_blocks == 0);
}

/* The whole file's; false: more than any file has. */
static bool file_bytes(const struct rn_session_head *head, uint64_t *bytes)
{
    uint64_t block, blocks, text;

    return !__builtin_add_overflow(head->note_bytes, RN_SESSION_HEADER_BYTES + 4 * (uint64_t)head->n_tokens, &text) &&
           !__builtin_add_overflow(head->block_bytes, RN_SESSION_CHECK_BYTES, &block) &&
           !__builtin_mul_overflow(block, head->n_blocks, &blocks) && !__builtin_add_overflow(blocks, text, bytes);
}

static runnel_status check_header(struct rn_session_reader *reader, const unsigned char *bytes, runnel_error *error)
{
    struct rn_fingerprint check = rn_fingerprint_of(XXH3_128bits(bytes, AT_CHECK));

    if (memcmp(bytes, magic, sizeof magic) != 0)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: not a session's file", reader->name);
    if (rn_bytes_get(bytes + AT_VERSION, 4) != RN_SESSION_VERSION)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: version %u of session files is not known", reader->name,
                            (unsigned)rn_bytes_get(bytes + AT_VERSION, 4));
    unpack(bytes, &reader->head);
    if (memcmp(check.bytes, bytes + AT_CHECK, sizeof check.bytes) != 0 ||
        rn_bytes_get(bytes + AT_HEADER_BYTES, 4) != RN_SESSION_HEADER_BYTES || !head_good(&reader->head))
        return rn_error_set(error, RUNNEL_FORMAT, "%s: the header is damaged", reader->name);
    memcpy(reader->text_check.bytes, bytes + AT_TEXT_CHECK, sizeof reader->text_check.bytes);
    reader->seed = seed_of(bytes);
    return RUNNEL_OK;
}

static runnel_status check_size(const struct rn_session_reader *reader, runnel_error *error)
{
    struct stat is;
    uint64_t bytes;

    if (fstat(reader->fd, &is) != 0)
        return read_failed(reader, error);
    if (!file_bytes(&reader->head, &bytes) || (uint64_t)is.st_size != bytes)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: %lld bytes are not what its header says", reader->name,
                            (long long)is.st_size);
    return RUNNEL_OK;
}

runnel_status rn_session_reader_init(struct rn_session_reader *reader, int fd, const char *name, runnel_error *error)
{
    unsigned char header[RN_SESSION_HEADER_BYTES];
    runnel_status status;

    *reader = (struct rn_session_reader){.fd = fd, .name = name};
    status = read_all(reader, header, sizeof header, error);
    if (status == RUNNEL_OK)
        status = check_header(reader, header, error);
    if (status == RUNNEL_OK)
        status = check_size(reader, error);
    if (status != RUNNEL_OK)
        rn_session_reader_fini(reader);
    return status;
}

runnel_status rn_session_reader_open(struct rn_session_reader *reader, const char *path, runnel_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer is no reason to wait */
    struct stat is;

    *reader = (struct rn_session_reader){.fd = -1};
    if (fd < 0)
        return rn_error_set(error, RUNNEL_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &is) != 0 || !S_ISREG(is.st_mode)) {
        close(fd);
        return rn_error_set(error, RUNNEL_FORMAT, "%s: not a regular file", path);
    }
    return rn_session_reader_init(reader, fd, path, error);
}

/* n bytes to `bytes`, or (NULL) to nowhere; hashed. */
static runnel_status read_bytes(const struct rn_session_reader *reader, void *bytes, uint64_t n_bytes,
                                XXH3_state_t *state, runnel_error *error)
{
    unsigned char chunk[CHUNK];

    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        unsigned char *to = bytes != NULL ? (unsigned char *)bytes + at : chunk;
        runnel_status status;

        if (reader->stops != NULL && reader->stops(reader->user))
            return rn_error_set(error, RUNNEL_CANCELLED, "%s: cancelled", reader->name);
        n = n_bytes - at < CHUNK ? n_bytes - at : CHUNK;
        status = read_all(reader, to, (size_t)n, error);
        if (status != RUNNEL_OK)
            return status;
        XXH3_128bits_update(state, to, (size_t)n);
    }
    return RUNNEL_OK;
}

static runnel_status read_tokens(const struct rn_session_reader *reader, int32_t *tokens, XXH3_state_t *state,
                                 runnel_error *error)
{
    unsigned char chunk[CHUNK];

    for (uint32_t at = 0, n; at < reader->head.n_tokens; at += n) {
        runnel_status status;

        n = reader->head.n_tokens - at < CHUNK / 4 ? reader->head.n_tokens - at : CHUNK / 4;
        status = read_bytes(reader, chunk, 4 * (uint64_t)n, state, error);
        if (status != RUNNEL_OK)
            return status;
        for (uint32_t i = 0; tokens != NULL && i < n; i++)
            tokens[at + i] = (int32_t)rn_bytes_get(chunk + 4 * (size_t)i, 4);
    }
    return RUNNEL_OK;
}

runnel_status rn_session_reader_text(struct rn_session_reader *reader, int32_t *tokens, void *note, runnel_error *error)
{
    struct rn_fingerprint check;
    XXH3_state_t state;
    runnel_status status;

    RN_ASSERT(reader->fd >= 0 && reader->next == 0);
    XXH3_128bits_reset(&state);
    status = read_tokens(reader, tokens, &state, error);
    if (status == RUNNEL_OK)
        status = read_bytes(reader, note, reader->head.note_bytes, &state, error);
    if (status != RUNNEL_OK)
        return status;
    check = rn_fingerprint_of(XXH3_128bits_digest(&state));
    if (!rn_fingerprint_equal(&check, &reader->text_check))
        return rn_error_set(error, RUNNEL_FORMAT, "%s: tokens or note are damaged", reader->name);
    return RUNNEL_OK;
}

runnel_status rn_session_reader_block(struct rn_session_reader *reader, void *bytes, runnel_error *error)
{
    struct rn_fingerprint check, found;
    XXH3_state_t state;
    runnel_status status;

    RN_CHECK(reader->next < reader->head.n_blocks);
    XXH3_128bits_reset_withSeed(&state, block_seed(reader->seed, reader->next));
    status = read_bytes(reader, bytes, reader->head.block_bytes, &state, error);
    if (status == RUNNEL_OK)
        status = read_all(reader, check.bytes, sizeof check.bytes, error);
    if (status != RUNNEL_OK)
        return status;
    found = rn_fingerprint_of(XXH3_128bits_digest(&state));
    if (!rn_fingerprint_equal(&found, &check))
        return rn_error_set(error, RUNNEL_FORMAT, "%s: block %u is damaged", reader->name, reader->next);
    reader->next++;
    return RUNNEL_OK;
}

void rn_session_reader_fini(struct rn_session_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}

bool rn_session_reader_check(const struct rn_session_reader *reader)
{
    return reader->fd < 0 || (head_good(&reader->head) && reader->next <= reader->head.n_blocks);
}

/* ---- Writing ---- */

/* Tokens as they stand in the file, a piece at a time: hashed (file NULL) or written. */
static runnel_status each_chunk(const int32_t *tokens, uint32_t n, XXH3_state_t *state, const struct rn_new_file *file,
                                runnel_error *error)
{
    unsigned char chunk[CHUNK];

    for (uint32_t at = 0, m; at < n; at += m) {
        m = n - at < CHUNK / 4 ? n - at : CHUNK / 4;
        for (uint32_t i = 0; i < m; i++)
            rn_bytes_put(chunk + 4 * (size_t)i, (uint32_t)tokens[at + i], 4);
        if (state != NULL)
            XXH3_128bits_update(state, chunk, 4 * (size_t)m);
        if (file != NULL && rn_new_file_write(file, chunk, 4 * (size_t)m, error) != RUNNEL_OK)
            return RUNNEL_IO;
    }
    return RUNNEL_OK;
}

static void pack(const struct rn_session_head *head, const int32_t *tokens, const void *note, unsigned char *bytes)
{
    XXH3_state_t state;
    struct rn_fingerprint check;

    memset(bytes, 0, RN_SESSION_HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    rn_bytes_put(bytes + AT_VERSION, RN_SESSION_VERSION, 4);
    rn_bytes_put(bytes + AT_HEADER_BYTES, RN_SESSION_HEADER_BYTES, 4);
    memcpy(bytes + AT_MODEL, head->model.bytes, sizeof head->model.bytes);
    memcpy(bytes + AT_VOCAB, head->vocab.bytes, sizeof head->vocab.bytes);
    memcpy(bytes + AT_KV, head->kv.bytes, sizeof head->kv.bytes);
    rn_bytes_put(bytes + AT_BLOCK_BYTES, head->block_bytes, 8);
    rn_bytes_put(bytes + AT_BLOCK_TOKENS, head->block_tokens, 4);
    rn_bytes_put(bytes + AT_N_TOKENS, head->n_tokens, 4);
    rn_bytes_put(bytes + AT_N_COMPUTED, head->n_computed, 4);
    rn_bytes_put(bytes + AT_N_BLOCKS, head->n_blocks, 4);
    rn_bytes_put(bytes + AT_NOTE_BYTES, head->note_bytes, 8);
    XXH3_128bits_reset(&state);
    each_chunk(tokens, head->n_tokens, &state, NULL, NULL);
    if (head->note_bytes > 0)
        XXH3_128bits_update(&state, note, (size_t)head->note_bytes);
    check = rn_fingerprint_of(XXH3_128bits_digest(&state));
    memcpy(bytes + AT_TEXT_CHECK, check.bytes, sizeof check.bytes);
    check = rn_fingerprint_of(XXH3_128bits(bytes, AT_CHECK));
    memcpy(bytes + AT_CHECK, check.bytes, sizeof check.bytes);
}

runnel_status rn_session_writer_open(struct rn_session_writer *writer, struct rn_heap *heap, const char *path,
                                     const struct rn_session_head *head, const int32_t *tokens, const void *note,
                                     runnel_error *error)
{
    unsigned char header[RN_SESSION_HEADER_BYTES];
    runnel_status status;

    RN_CHECK(head_good(head));
    *writer = (struct rn_session_writer){.file.fd = -1, .block_bytes = head->block_bytes, .n_blocks = head->n_blocks};
    pack(head, tokens, note, header);
    writer->seed = seed_of(header);
    status = rn_new_file_open(&writer->file, heap, path, RN_NEW_FILE_OWN, error);
    if (status == RUNNEL_OK)
        status = rn_new_file_write(&writer->file, header, sizeof header, error);
    if (status == RUNNEL_OK)
        status = each_chunk(tokens, head->n_tokens, NULL, &writer->file, error);
    if (status == RUNNEL_OK)
        status = rn_new_file_write(&writer->file, note, (size_t)head->note_bytes, error);
    if (status != RUNNEL_OK)
        rn_session_writer_fini(writer);
    return status;
}

runnel_status rn_session_writer_block(struct rn_session_writer *writer, const void *bytes, runnel_error *error)
{
    struct rn_fingerprint check = rn_fingerprint_of(
        XXH3_128bits_withSeed(bytes, (size_t)writer->block_bytes, block_seed(writer->seed, writer->next)));
    runnel_status status;

    RN_CHECK(writer->next < writer->n_blocks);
    status = rn_new_file_write(&writer->file, bytes, (size_t)writer->block_bytes, error);
    if (status == RUNNEL_OK)
        status = rn_new_file_write(&writer->file, check.bytes, sizeof check.bytes, error);
    writer->next++;
    return status;
}

runnel_status rn_session_writer_finish(struct rn_session_writer *writer, runnel_error *error)
{
    RN_CHECK(writer->next == writer->n_blocks);
    return rn_new_file_finish(&writer->file, error);
}

void rn_session_writer_fini(struct rn_session_writer *writer)
{
    rn_new_file_fini(&writer->file);
}

/* Once it is renamed the file has no temporary name any more, and is whole. */
bool rn_session_writer_check(const struct rn_session_writer *writer)
{
    const struct rn_new_file *file = &writer->file;

    if (file->fd < 0)
        return file->temporary == NULL && file->path == NULL;
    return file->path != NULL && writer->next <= writer->n_blocks &&
           (file->temporary != NULL || writer->next == writer->n_blocks);
}
