/* What packing makes of the KV of a real conversation: ratio and speed of each method.
 *
 *   runnel chat MODEL --session talk.session --kv-type q8     (and a long conversation)
 *   bench_block_codec UNIT_BYTES talk.session                 (1, 2 or 4: bytes of a number of the KV type)
 *
 * All blocks but the last, which may not be full. Time is the processor's, the best of several runs; each block is
 * unpacked again and compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "cache/block_codec.h"
#include "cache/store/session_file.h"

#define RUNS 5

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct blocks {
    unsigned char *bytes; /* [n][block_bytes] */
    size_t n, block_bytes;
};

static void read_blocks(const char *path, struct blocks *blocks)
{
    struct rn_session_reader reader;
    runnel_error error = {0};

    if (rn_session_reader_open(&reader, path, &error) != RUNNEL_OK ||
        rn_session_reader_text(&reader, NULL, NULL, &error) != RUNNEL_OK || reader.head.n_blocks < 2) {
        fprintf(stderr, "%s: %s\n", path, error.status != RUNNEL_OK ? error.message : "fewer than two blocks");
        exit(1);
    }
    *blocks = (struct blocks){.n = reader.head.n_blocks - 1, .block_bytes = (size_t)reader.head.block_bytes};
    blocks->bytes = malloc(blocks->n * blocks->block_bytes);
    RN_CHECK(blocks->bytes != NULL);
    for (size_t i = 0; i < blocks->n; i++)
        RN_CHECK(rn_session_reader_block(&reader, blocks->bytes + i * blocks->block_bytes, &error) == RUNNEL_OK);
    rn_session_reader_fini(&reader);
}

static void measure(const struct blocks *blocks, const struct rn_codec_options *options)
{
    double all = (double)blocks->n * (double)blocks->block_bytes, pack = 1e9, unpack = 1e9;
    struct rn_block_codec codec;
    struct rn_heap heap;
    unsigned char *packed, *back = malloc(blocks->block_bytes);
    size_t *sizes = calloc(blocks->n, sizeof *sizes), bound, total = 0;

    rn_heap_init(&heap, NULL);
    RN_CHECK(rn_block_codec_init(&codec, &heap, options, NULL) == RUNNEL_OK);
    bound = rn_block_codec_bound(&codec);
    packed = malloc(blocks->n * bound);
    RN_CHECK(packed != NULL && back != NULL && sizes != NULL);
    for (int run = 0; run < RUNS; run++) {
        double start = seconds(), between;

        for (size_t i = 0; i < blocks->n; i++)
            sizes[i] = rn_block_codec_pack(&codec, blocks->bytes + i * blocks->block_bytes, packed + i * bound);
        between = seconds();
        pack = between - start < pack ? between - start : pack;
        for (size_t i = 0; i < blocks->n; i++)
            RN_CHECK(rn_block_codec_unpack(&codec, packed + i * bound, sizes[i], back) == RUNNEL_OK);
        unpack = seconds() - between < unpack ? seconds() - between : unpack;
    }
    for (size_t i = 0; i < blocks->n; i++) {
        RN_CHECK(rn_block_codec_unpack(&codec, packed + i * bound, sizes[i], back) == RUNNEL_OK);
        RN_CHECK(memcmp(back, blocks->bytes + i * blocks->block_bytes, blocks->block_bytes) == 0);
        total += sizes[i];
    }
    printf("%-5s level %2d  unit %u  ratio %.3f  pack %6.0f MB/s  unpack %6.0f MB/s\n", rn_codec_name(options->method),
           options->level, options->unit_bytes, all / (double)total, all / pack / 1e6, all / unpack / 1e6);
    rn_block_codec_fini(&codec);
    free(packed);
    free(back);
    free(sizes);
}

int main(int argc, char **argv)
{
    static const struct {
        enum rn_codec_method method;
        int level;
    } methods[] = {{RN_CODEC_NONE, 1}, {RN_CODEC_BITS, 1}, {RN_CODEC_LZ4, 1},
                   {RN_CODEC_ZSTD, 1}, {RN_CODEC_ZSTD, 3}, {RN_CODEC_ZSTD, 9}};
    struct blocks blocks;
    uint32_t unit;

    if (argc != 3 || (unit = (uint32_t)atoi(argv[1])) == 0 || unit == 3 || unit > 4) {
        fprintf(stderr, "usage: bench_block_codec 1|2|4 FILE.session\n");
        return 2;
    }
    read_blocks(argv[2], &blocks);
    printf("%s: %zu blocks of %zu bytes\n", argv[2], blocks.n, blocks.block_bytes);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        measure(&blocks, &(struct rn_codec_options){methods[i].method, methods[i].level, unit, blocks.block_bytes});
        if (unit > 1 && (methods[i].method == RN_CODEC_LZ4 || methods[i].method == RN_CODEC_ZSTD))
            measure(&blocks, &(struct rn_codec_options){methods[i].method, methods[i].level, 1, blocks.block_bytes});
    }
    free(blocks.bytes);
    return 0;
}
