/* Any bytes as a session's file: read as an import reads it. Twice: as they are, which tests the checks; and with all
 * checks made right first (the first byte is dropped, and says how much else), which gets past them. What is accepted
 * is written again, and must be the same bytes. Seeds: a small file, with and without KV, a note, tokens. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "cache/store/session_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct rn_heap heap;
static char path[64];

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static void put_check(uint8_t *at, XXH128_hash_t hash)
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(at, canonical.digest, 16);
}

/* By the places of docs/SESSIONS.md, as far as they lie in the file. */
static void make_right(uint8_t *bytes, size_t size)
{
    uint64_t n_tokens = get(bytes + 76, 4), n_blocks = get(bytes + 84, 4), note = get(bytes + 88, 8);
    uint64_t block = get(bytes + 64, 8), at = 128 + 4 * n_tokens, seed;

    memcpy(bytes, "RNSESS\x1a\n\x01\0\0\0\x80\0\0", 15);
    if (at <= size && note <= size - at)
        put_check(bytes + 96, XXH3_128bits(bytes + 128, (size_t)(4 * n_tokens + note)));
    put_check(bytes + 112, XXH3_128bits(bytes, 112));
    seed = get(bytes + 112, 8);
    at = note <= size ? at + note : size;
    for (uint64_t i = 0; i < n_blocks && at <= size && block <= size - at && size - at - block >= 16; i++) {
        put_check(bytes + at + block, XXH3_128bits_withSeed(bytes + at, (size_t)block, seed + i + 1));
        at += block + 16;
    }
}

static int file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("session", MFD_CLOEXEC);

    RN_CHECK(fd >= 0);
    RN_CHECK(size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size);
    return fd;
}

struct content {
    struct rn_session_head head;
    int32_t *tokens;
    uint8_t *note, *blocks;
};

/* All of it, or an error. */
static bool read_content(const uint8_t *data, size_t size, struct content *content)
{
    struct rn_session_reader reader;
    runnel_error error = {0};
    bool good;

    if (rn_session_reader_init(&reader, file_of(data, size), "fuzz", &error) != RUNNEL_OK) {
        RN_CHECK(error.message[0] != '\0' && reader.fd == -1);
        return false;
    }
    content->head = reader.head;
    RN_CHECK(reader.head.n_computed <= reader.head.n_tokens && 4 * (uint64_t)reader.head.n_tokens <= size &&
             reader.head.note_bytes <= size && (reader.head.n_blocks == 0 || reader.head.block_bytes <= size));
    content->tokens = rn_alloc(&heap, reader.head.n_tokens, 4);
    content->note = rn_alloc(&heap, (size_t)reader.head.note_bytes, 1);
    content->blocks =
        rn_alloc(&heap, reader.head.n_blocks > 0 ? (size_t)reader.head.block_bytes : 0, reader.head.n_blocks);
    RN_CHECK(content->tokens != NULL && content->note != NULL && content->blocks != NULL);
    good = rn_session_reader_text(&reader, content->tokens, content->note, &error) == RUNNEL_OK;
    for (uint32_t i = 0; good && i < reader.head.n_blocks; i++)
        good = rn_session_reader_block(&reader, content->blocks + i * reader.head.block_bytes, &error) == RUNNEL_OK;
    RN_CHECK(good == (error.status == RUNNEL_OK));
    rn_session_reader_fini(&reader);
    return good;
}

static void write_content(const struct content *content)
{
    struct rn_session_writer writer;
    runnel_error error = {0};

    RN_CHECK(rn_session_writer_open(&writer, &heap, path, &content->head, content->tokens, content->note, &error) ==
             RUNNEL_OK);
    for (uint32_t i = 0; i < content->head.n_blocks; i++)
        RN_CHECK(rn_session_writer_block(&writer, content->blocks + i * content->head.block_bytes, &error) ==
                 RUNNEL_OK);
    RN_CHECK(rn_session_writer_finish(&writer, &error) == RUNNEL_OK);
    rn_session_writer_fini(&writer);
}

static void assert_file_is(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    FILE *f = fopen(path, "rb");

    RN_CHECK(f != NULL && fread(bytes, 1, size + 1, f) == size && memcmp(bytes, data, size) == 0);
    fclose(f);
    free(bytes);
}

static void try_bytes(const uint8_t *data, size_t size)
{
    struct content content = {.tokens = NULL};

    if (read_content(data, size, &content)) {
        write_content(&content);
        assert_file_is(data, size);
    }
    rn_free(&heap, content.tokens);
    rn_free(&heap, content.note);
    rn_free(&heap, content.blocks);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    try_bytes(data, size);
    if (size < 129)
        return 0;
    copy = malloc(size - 1);
    memcpy(copy, data + 1, size - 1);
    make_right(copy, size - 1);
    try_bytes(copy, size - 1);
    free(copy);
    return 0;
}

/* Each seed twice: as it is, and behind a byte that is dropped. */
static void write_seed(const char *folder, const char *name, const struct content *content)
{
    char at[512];
    uint8_t bytes[4096] = {0};
    size_t n;
    FILE *f;

    write_content(content);
    f = fopen(path, "rb");
    RN_CHECK(f != NULL);
    n = fread(bytes + 1, 1, sizeof bytes - 1, f);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        snprintf(at, sizeof at, "%s/%s-%d", folder, name, i);
        f = fopen(at, "wb");
        if (f == NULL || fwrite(bytes + 1 - i, 1, n + (size_t)i, f) != n + (size_t)i || fclose(f) != 0) {
            fprintf(stderr, "%s: cannot be written\n", at);
            exit(1);
        }
    }
}

static void remove_path(void)
{
    unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    int32_t tokens[] = {1, 2, 300, 4000, 50000};
    uint8_t note[] = "[{\"role\":\"user\"}]", blocks[3 * 24] = {1, 2, 3};
    struct content content = {
        {.block_tokens = 2, .block_bytes = 24, .note_bytes = 17, .n_tokens = 5, .n_computed = 5, .n_blocks = 3},
        tokens,
        note,
        blocks};

    (void)argc;
    (void)argv;
    rn_heap_init(&heap, NULL);
    snprintf(path, sizeof path, "%s/runnel-fuzz-session-%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (int)getpid());
    atexit(remove_path);
    if (folder == NULL)
        return 0;
    write_seed(folder, "whole", &content);
    content.head.n_computed = content.head.n_blocks = 0;
    write_seed(folder, "tokens", &content);
    content.head.n_tokens = 0;
    content.head.note_bytes = 0;
    write_seed(folder, "empty", &content);
    return 0;
}
