/* Weights in tiles in a file of their own (cpu/tile_file.h): whatever stands in that file, the logits of a model have
 * the bits that they have without it; a good file is mapped, a bad one is replaced. Files are damaged byte by byte,
 * cut, forged with checks that are right, and written by several processes at once. Weights of a head that drafts are
 * none of the model's, and not in the file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/rng.h"
#include "cpu/fast.h"
#include "model/heads/head.h"
#include "model/quant/types.h"
#include "tests/base/refusing.h"
#include "tests/cpu/runner.h"
#include "tests/model/model_edit.h"
#include "tests/support/child.h"

enum { BLOCK = 16, N_BLOCKS = 4, N = 6, CONTEXT = 64, PATH = 256, HEADER = 80, ENTRY = 32 };

static struct rn_heap heap;
static struct model model;
static float *want; /* [N, n_vocab]: without a file */
static char folder[64] = "/tmp/runnel-tiles-XXXXXX", path[PATH], fresh[PATH + 8];
static struct rn_log log_lines;
static int warnings;
static char warning[512]; /* the last one */

static void on_line(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    if (level != RUNNEL_LOG_WARNING)
        return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static struct rn_weights_place place(void)
{
    struct rn_weights_place p = {.path = path, .model_bytes = 1234, .modified_ns = 77, .log = &log_lines};

    memset(p.print, 0x5a, sizeof p.print);
    return p;
}

static struct rn_backend_limits limits_with(const struct rn_weights_place *p, runnel_weight_order order)
{
    return (struct rn_backend_limits){.max_rows = N,
                                      .max_seqs = 1,
                                      .max_outs = N,
                                      .n_blocks = N_BLOCKS,
                                      .block_tokens = BLOCK,
                                      .context_tokens = CONTEXT,
                                      .kv_type = RUNNEL_KV_F32,
                                      .weight_order = order,
                                      .weights_place = p};
}

/* ---- Loads ---- */

struct loaded {
    uint64_t tiled, mapped;
    int warnings;
};

static void logits_of(struct runner *r, float *logits)
{
    uint32_t blocks[N_BLOCKS] = {0, 1, 2, 3}, i;
    struct rn_step_seq seq = {blocks, N_BLOCKS, NULL, 0, NULL, 0, 0};
    struct rn_step_row rows[N];
    struct rn_step step = {.rows = rows, .seqs = &seq, .n_seqs = 1, .n_rows = N, .n_outs = N, .logits = logits};

    for (i = 0; i < N; i++)
        rows[i] = (struct rn_step_row){(int32_t)(i * 37 % r->plan->n_vocab), i, 0, (int32_t)i};
    run_step(r, &step);
}

/* A load with a place; its logits must be those without. */
static struct loaded load_with(const struct rn_weights_place *p, runnel_weight_order order,
                               const struct rn_level *level)
{
    const struct rn_backend_limits limits = limits_with(p, order);
    float *got = rn_alloc(&heap, (size_t)N * model.plan->n_vocab, sizeof *got);
    struct loaded loaded;
    struct runner r;

    warnings = 0;
    open_runner(&r, &heap, model.plan, level, 2, &limits);
    loaded.tiled = r.backend->ops->tiled_bytes(r.backend);
    loaded.mapped = r.backend->ops->mapped_bytes(r.backend);
    loaded.warnings = warnings;
    logits_of(&r, got);
    if (level == rn_level_best())
        assert_memory_equal(got, want, (size_t)N * model.plan->n_vocab * sizeof *got);
    close_runner(&r);
    rn_free(&heap, got);
    return loaded;
}

static struct loaded load(void)
{
    const struct rn_weights_place p = place();

    return load_with(&p, RUNNEL_WEIGHTS_TILES, rn_level_best());
}

/* ---- Files ---- */

struct content {
    uint8_t *bytes;
    size_t n;
};

static struct content read_file(void)
{
    struct content c = {NULL, 0};
    struct stat info;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    c.n = (size_t)info.st_size;
    c.bytes = rn_alloc(&heap, c.n + 1, 1);
    assert_int_equal(read(fd, c.bytes, c.n), (ssize_t)c.n);
    close(fd);
    return c;
}

static void write_file(const uint8_t *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

/* A good file. */
static struct content make_file(void)
{
    struct loaded first;

    (void)unlink(path);
    first = load();
    assert_true(first.tiled > 0 && first.mapped == first.tiled && first.warnings == 0);
    assert_int_equal(access(fresh, F_OK), -1);
    return read_file();
}

/* With what is in the file now: the right logits, at most `most` warnings and at least one, and a good file in its
 * place. */
static void check_bad(const struct content *good, const char *what, size_t at)
{
    struct loaded now = load(), next;
    struct content after = read_file();

    if (now.warnings == 0 || after.n != good->n || memcmp(after.bytes, good->bytes, good->n) != 0)
        fail_msg("%s at %zu: %d warnings, and what is there then is not as it was", what, at, now.warnings);
    next = load();
    assert_true(next.mapped == next.tiled && next.mapped == now.tiled && next.warnings == 0);
    rn_free(&heap, after.bytes);
}

static uint64_t entries_of(const struct content *c)
{
    return rn_bytes_get(c->bytes + 48, 8);
}

/* The check of header, directory and checks as the format says, put where it belongs. */
static void put_check(struct content *c)
{
    uint64_t n = HEADER + rn_bytes_get(c->bytes + 48, 8) * ENTRY + rn_bytes_get(c->bytes + 56, 8) * 8;

    rn_bytes_put(c->bytes + 72, 0, 8);
    if (n <= c->n)
        rn_bytes_put(c->bytes + 72, XXH3_64bits(c->bytes, (size_t)n), 8);
}

/* ---- Tests ---- */

static void test_kept(void **state)
{
    struct content file = make_file();
    struct stat before, after;
    struct loaded second;

    (void)state;
    assert_memory_equal(file.bytes, "runnelwt", 8);
    assert_int_equal(rn_bytes_get(file.bytes + 64, 8), file.n);
    assert_int_equal(rn_bytes_get(file.bytes + HEADER + 6, 2), 0x2222); /* 2 KiB ahead, one tile, for each */
    assert_int_equal(stat(path, &before), 0);
    second = load();
    assert_true(second.mapped > 0 && second.mapped == second.tiled && second.warnings == 0);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    rn_free(&heap, file.bytes);
}

/* Where no tiles are wanted, or there are no kernels for them, the file is left alone. */
static void test_not_wanted(void **state)
{
    struct content file = make_file(), after;
    const struct rn_weights_place p = place();
    struct loaded none = load_with(&p, RUNNEL_WEIGHTS_FILE, rn_level_best());

    (void)state;
    assert_true(none.tiled == 0 && none.mapped == 0);
    none = load_with(&p, RUNNEL_WEIGHTS_TILES, rn_level_c());
    assert_true(none.tiled == 0 && none.mapped == 0);
    after = read_file();
    assert_true(after.n == file.n && memcmp(after.bytes, file.bytes, file.n) == 0);
    rn_free(&heap, after.bytes);
    rn_free(&heap, file.bytes);
}

/* Measured: a small model stays as it lies, but for what the file has. */
static void test_measured(void **state)
{
    struct content file = make_file();
    const struct rn_weights_place p = place();
    struct loaded now = load_with(&p, RUNNEL_WEIGHTS_MEASURED, rn_level_best());

    (void)state;
    assert_true(now.mapped > 0 && now.mapped == now.tiled);
    assert_int_equal(unlink(path), 0);
    now = load_with(&p, RUNNEL_WEIGHTS_MEASURED, rn_level_best());
    assert_true(now.tiled == 0 && access(path, F_OK) != 0);
    rn_free(&heap, file.bytes);
}

static void test_damaged(void **state)
{
    struct content file = make_file();
    const uint8_t *entry;
    uint64_t i, at, n;

    (void)state;
    n = HEADER + entries_of(&file) * ENTRY;
    for (at = 0; at < n; at += at < HEADER ? 3 : 29) {
        file.bytes[at] ^= 0x10;
        write_file(file.bytes, file.n);
        file.bytes[at] ^= 0x10;
        check_bad(&file, "header", (size_t)at);
    }
    for (i = 0, entry = file.bytes + HEADER; i < entries_of(&file); i++, entry += ENTRY) {
        at = rn_bytes_get(entry + 24, 8) + (i % 2 == 0 ? 0 : rn_bytes_get(entry + 16, 8) - 1);
        file.bytes[at] ^= 0x01;
        write_file(file.bytes, file.n);
        file.bytes[at] ^= 0x01;
        check_bad(&file, "weight", (size_t)at);
    }
    rn_free(&heap, file.bytes);
}

/* However many weights are damaged, there is one warning, which says how many. */
static void test_all_damaged(void **state)
{
    struct content file = make_file(), after;
    char says[64];
    struct loaded now;

    (void)state;
    for (uint64_t i = 0; i < entries_of(&file); i++)
        file.bytes[rn_bytes_get(file.bytes + HEADER + i * ENTRY + 24, 8)] ^= 0x80;
    write_file(file.bytes, file.n);
    for (uint64_t i = 0; i < entries_of(&file); i++)
        file.bytes[rn_bytes_get(file.bytes + HEADER + i * ENTRY + 24, 8)] ^= 0x80;
    now = load();
    assert_int_equal(now.warnings, 1);
    snprintf(says, sizeof says, " %u of its weights", (unsigned)entries_of(&file));
    assert_non_null(strstr(warning, says));
    after = read_file();
    assert_true(after.n == file.n && memcmp(after.bytes, file.bytes, file.n) == 0);
    rn_free(&heap, after.bytes);
    rn_free(&heap, file.bytes);
}

static void test_cut(void **state)
{
    struct content file = make_file();
    const size_t lengths[] = {0, 1, 8, 79, 80, 81, 500, 4096, file.n / 2, file.n - 1, file.n + 1};
    size_t i;

    (void)state;
    file.bytes[file.n] = 0;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_file(file.bytes, lengths[i]);
        check_bad(&file, "cut", lengths[i]);
    }
    rn_free(&heap, file.bytes);
}

/* What another program could write: numbers that do not add up under a check that does. */
static void test_forged(void **state)
{
    static const struct {
        size_t at;
        unsigned bytes;
        uint64_t value;
    } forged[] = {
        {8, 4, 3}, /* another version */
        {8, 4, 5},
        {12, 4, 8}, /* other tiles */
        {48, 8, 0}, /* no entries, but checks */
        {48, 8, 1}, /* one entry */
        {48, 8, UINT64_MAX},
        {48, 8, UINT64_MAX / ENTRY},
        {56, 8, 0}, /* no checks */
        {56, 8, 1},
        {56, 8, UINT64_MAX / 8},
        {64, 8, 0},          /* another length */
        {HEADER + 16, 8, 0}, /* no bytes */
        {HEADER + 16, 8, UINT64_MAX},
        {HEADER + 24, 8, 0},         /* in the header */
        {HEADER + 24, 8, 4096 + 64}, /* on no page */
        {HEADER + 24, 8, UINT64_MAX - 4095},
        {HEADER + 24, 8, (uint64_t)1 << 40},
    };
    struct content file = make_file(), copy = {rn_alloc(&heap, file.n, 1), file.n};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof forged / sizeof *forged; i++) {
        memcpy(copy.bytes, file.bytes, file.n);
        rn_bytes_put(copy.bytes + forged[i].at, forged[i].value, forged[i].bytes);
        put_check(&copy);
        write_file(copy.bytes, copy.n);
        check_bad(&file, "forged", i);
    }
    /* The check that this test works out is the format's: with it alone nothing is wrong. */
    memcpy(copy.bytes, file.bytes, file.n);
    put_check(&copy);
    assert_memory_equal(copy.bytes, file.bytes, file.n);
    /* Two weights' places, exchanged: their checks are theirs alone. */
    memcpy(copy.bytes + HEADER + 24, file.bytes + HEADER + ENTRY + 24, 8);
    memcpy(copy.bytes + HEADER + ENTRY + 24, file.bytes + HEADER + 24, 8);
    put_check(&copy);
    write_file(copy.bytes, copy.n);
    check_bad(&file, "exchanged", 0);
    rn_free(&heap, copy.bytes);
    rn_free(&heap, file.bytes);
}

/* A file of another model, or of the model's file as it was before, is replaced. */
static void test_foreign(void **state)
{
    struct content file = make_file();
    struct rn_weights_place other;
    struct loaded now;
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        other = place();
        other.print[5] ^= i == 0;
        other.model_bytes += i == 1;
        other.modified_ns += i == 2;
        write_file(file.bytes, file.n);
        now = load_with(&other, RUNNEL_WEIGHTS_TILES, rn_level_best());
        assert_true(now.warnings == 1 && now.mapped == now.tiled);
        now = load_with(&other, RUNNEL_WEIGHTS_TILES, rn_level_best());
        assert_true(now.warnings == 0 && now.mapped == now.tiled);
        now = load();
        assert_true(now.warnings == 1 && now.mapped == now.tiled);
    }
    rn_free(&heap, file.bytes);
}

/* Where it cannot be written, the tiles are in memory, and somebody is told. */
static void test_unwritable(void **state)
{
    struct rn_weights_place p = place();
    struct loaded now;
    struct stat is;

    (void)state;
    p.path = "/proc/none/such.tiles";
    now = load_with(&p, RUNNEL_WEIGHTS_TILES, rn_level_best());
    assert_true(now.tiled > 0 && now.mapped == 0 && now.warnings == 1);
    (void)unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);
    now = load();
    assert_true(now.tiled > 0 && now.mapped == 0 && now.warnings == 2);
    assert_int_equal(access(fresh, F_OK), -1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp/none/such", fresh), 0); /* what lies in its way is not followed */
    now = load();
    assert_true(now.tiled > 0 && now.mapped == 0 && now.warnings == 1);
    assert_int_equal(unlink(fresh), 0);
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0666), 0); /* nobody waits for a writer, and it stays what it is */
    now = load();
    assert_true(now.tiled > 0 && now.mapped == 0 && now.warnings == 2);
    assert_true(lstat(path, &is) == 0 && S_ISFIFO(is.st_mode) && access(fresh, F_OK) == -1);
    assert_int_equal(unlink(path), 0);
}

/* A symbolic link stays, and the file that it names is written, also where there is none yet. */
static void test_link(void **state)
{
    char other[PATH];
    struct loaded now;
    struct stat is;

    (void)state;
    (void)unlink(path);
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(symlink("other", path), 0);
    for (int i = 0; i < 2; i++) {
        now = load();
        assert_true(now.mapped == now.tiled && now.warnings == i);
        assert_true(lstat(path, &is) == 0 && S_ISLNK(is.st_mode) && lstat(other, &is) == 0 && S_ISREG(is.st_mode));
        assert_int_equal(truncate(other, 100), 0);
    }
    assert_true(unlink(path) == 0 && unlink(other) == 0);
}

/* What a writer that was killed has left is overwritten; one that is at work is not disturbed. */
static void test_other_writer(void **state)
{
    struct loaded now;
    int fd;

    (void)state;
    (void)unlink(path);
    fd = open(fresh, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0 && ftruncate(fd, 50 << 20) == 0 && flock(fd, LOCK_EX) == 0);
    now = load();
    assert_true(now.tiled > 0 && now.mapped == 0 && now.warnings == 0 && access(path, F_OK) != 0);
    close(fd);
    now = load();
    assert_true(now.mapped == now.tiled && now.warnings == 0 && access(fresh, F_OK) != 0);
}

/* Several processes load and write at once: each has the right logits, and the file is good in the end. */
static void test_processes(void **state)
{
    enum { PROCESSES = 4 };
    pid_t children[PROCESSES];
    struct loaded now;
    int i, status;

    (void)state;
    (void)unlink(path);
    for (i = 0; i < PROCESSES; i++) {
        children[i] = child_fork();
        if (children[i] == 0) {
            for (int k = 0; k < 3; k++) {
                now = load(); /* a wrong logit ends the child */
                if (now.tiled == 0 || now.warnings != 0)
                    _exit(3);
            }
            _exit(0);
        }
    }
    for (i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    now = load();
    assert_true(now.mapped == now.tiled && now.warnings == 0);
    assert_int_equal(access(fresh, F_OK), -1);
}

/* Every allocation refused, and all behind it: nothing is left behind, in memory or under another name. */
static void test_refused(void **state)
{
    struct rn_team *team = rn_team_new(&heap, 2);
    struct refusing refusing = {0};
    struct rn_heap small = refusing_heap(&refusing);
    const struct rn_weights_place p = place();
    const struct rn_backend_limits limits = limits_with(&p, RUNNEL_WEIGHTS_TILES);
    struct rn_backend *backend;
    runnel_error error;
    uint32_t allowed;

    (void)state;
    for (allowed = 0; allowed < 1000; allowed++) {
        (void)unlink(path);
        refusing.refused = 0;
        refusing_allow(&refusing, allowed);
        backend = rn_cpu_backend_new_level(&small, team, rn_level_best());
        if (backend == NULL)
            continue;
        error = (runnel_error){0};
        (void)backend->ops->prepare(backend, model.plan, &limits, NULL, NULL, &error);
        backend->ops->free(backend);
        assert_int_equal(rn_heap_blocks(&small), 0);
        assert_int_equal(access(fresh, F_OK), -1);
        if (refusing.refused == 0)
            break;
    }
    assert_true(allowed < 1000);
    rn_team_free(team);
}

/* ---- Heads that draft ---- */

struct head {
    struct writer bytes;
    struct rn_gguf *gguf;
    struct rn_plan *plan; /* the model's with the head's features */
    uint8_t *fc;
};

/* A head of which nothing but the matrix `fc` matters here, with numbers of its own. */
static void open_head(struct head *h, uint64_t seed)
{
    static struct model_edit edit;
    uint32_t width = model.plan->embedding, i;
    size_t n = (size_t)2 * width * width / 32 * 34;
    struct edit_tensor *t;
    runnel_error error = {0};

    h->bytes = (struct writer){0};
    h->fc = rn_alloc(&heap, n, 1);
    for (i = 0; i < n; i++)
        h->fc[i] = i % 34 == 0 ? 0 : i % 34 == 1 ? 0x20 : (uint8_t)rn_splitmix64(&seed);
    memset(&edit, 0, sizeof edit);
    edit_text(&edit, "general.architecture", "eagle3");
    edit_u32(&edit, "eagle3.block_count", 1);
    edit_u32(&edit, "eagle3.embedding_length", width);
    edit_u32(&edit, "eagle3.target_hidden_size", width);
    edit_u32s(&edit, "eagle3.target_layers", (const uint32_t[]){1, 3}, 2);
    edit_f32(&edit, "eagle3.attention.layer_norm_rms_epsilon", 1e-5f);
    edit_add_tensor(&edit, "fc.weight", (uint64_t)2 * width, width, NULL);
    t = edit_tensor(&edit, "fc.weight");
    t->type = RN_Q8_0;
    t->data = h->fc;
    t->bytes = n;
    edit_write(&edit, &h->bytes);
    if (rn_gguf_parse(&heap, h->bytes.bytes, h->bytes.n, "head.gguf", &h->gguf, &error) != RUNNEL_OK ||
        rn_plan_new_for_head(&heap, model.gguf, CONTEXT, h->gguf, &h->plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

static void close_head(struct head *h)
{
    rn_plan_free(h->plan);
    rn_gguf_free(h->gguf);
    w_free(&h->bytes);
    rn_free(&heap, h->fc);
}

/* What the model gives the head: features[N, features_width]. All tiles but those of fc are mapped, without a word. */
static float *features_of(const struct head *h, const struct rn_weights_place *p)
{
    const struct rn_backend_limits limits = limits_with(p, RUNNEL_WEIGHTS_TILES);
    float *features = rn_alloc(&heap, (size_t)N * h->plan->features_width, sizeof *features);
    float *logits = rn_alloc(&heap, (size_t)N * h->plan->n_vocab, sizeof *logits);
    uint32_t blocks[N_BLOCKS] = {0, 1, 2, 3};
    struct rn_step_seq seq = {blocks, N_BLOCKS, NULL, 0, NULL, 0, 0};
    struct rn_step_row rows[N];
    struct rn_step step = {
        .rows = rows, .seqs = &seq, .n_seqs = 1, .n_rows = N, .n_outs = N, .logits = logits, .features = features};
    uint64_t fc = 2 * (uint64_t)model.plan->embedding * model.plan->embedding / 32 * 34;
    struct runner r;

    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct rn_step_row){(int32_t)(i * 37 % h->plan->n_vocab), i, 0, (int32_t)i};
    warnings = 0;
    open_runner(&r, &heap, h->plan, rn_level_best(), 2, &limits);
    assert_int_equal(warnings, 0);
    assert_int_equal(r.backend->ops->mapped_bytes(r.backend),
                     p == NULL ? 0 : r.backend->ops->tiled_bytes(r.backend) - fc);
    run_step(&r, &step);
    assert_memory_equal(logits, want, (size_t)N * h->plan->n_vocab * sizeof *logits);
    close_runner(&r);
    rn_free(&heap, logits);
    return features;
}

/* A file that was made beside one head does for another, and for none; nobody writes it a second time. */
static void test_heads(void **state)
{
    const struct rn_weights_place p = place();
    struct stat before, after;
    struct head first, second;
    float *of_first, *alone, *mapped;
    struct loaded plain;
    size_t bytes;

    (void)state;
    (void)unlink(path);
    open_head(&first, 1);
    open_head(&second, 2);
    bytes = (size_t)N * first.plan->features_width * sizeof *alone;
    of_first = features_of(&first, &p);
    assert_int_equal(stat(path, &before), 0);
    alone = features_of(&second, NULL);
    mapped = features_of(&second, &p);
    plain = load();
    assert_true(plain.mapped > 0 && plain.mapped == plain.tiled && plain.warnings == 0);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    assert_memory_equal(mapped, alone, bytes);
    assert_memory_not_equal(mapped, of_first, bytes);
    close_head(&first);
    close_head(&second);
    rn_free(&heap, of_first);
    rn_free(&heap, alone);
    rn_free(&heap, mapped);
}

static int set_up(void **state)
{
    const struct rn_backend_limits limits = limits_with(NULL, RUNNEL_WEIGHTS_FILE);
    struct runner r;

    (void)state;
    log_lines = (struct rn_log){.sink = on_line, .level = RUNNEL_LOG_DEBUG};
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/model.tiles", folder);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    model = open_model(&heap, "models/runnel-tiny-Q4_K_M.gguf", CONTEXT);
    want = rn_alloc(&heap, (size_t)N * model.plan->n_vocab, sizeof *want);
    open_runner(&r, &heap, model.plan, rn_level_best(), 1, &limits);
    logits_of(&r, want);
    close_runner(&r);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rn_free(&heap, want);
    close_model(&model);
    (void)unlink(path);
    return rmdir(folder); /* nothing else is in it */
}

/* How tiles are read stands in the file: here it says 1,024 bytes ahead for all, one tile at a time for one input and
 * for five and more, two by turns for two and three, four for four. */
static void test_streams(void **state)
{
    const struct rn_weights_place p = place();
    const struct rn_backend_limits limits = limits_with(&p, RUNNEL_WEIGHTS_TILES);
    struct content file = make_file();
    const struct rn_fast *fast;
    uint64_t i;
    uint32_t k, read = 0;
    struct runner r;

    (void)state;
    for (i = 0; i < entries_of(&file); i++)
        rn_bytes_put(file.bytes + HEADER + i * ENTRY + 6, 1 | (1 | 1 << 2) << 4 | (1 | 2 << 2) << 8 | 1 << 12, 2);
    put_check(&file);
    write_file(file.bytes, file.n);
    warnings = 0;
    open_runner(&r, &heap, model.plan, rn_level_best(), 2, &limits);
    assert_int_equal(warnings, 0);
    fast = (const struct rn_fast *)r.backend;
    for (k = 0; k < model.plan->n_weights; k++)
        if (fast->tiles[k] != NULL) {
            const struct rn_reading *readings = fast->readings[model.plan->weights[k].type_id];

            for (i = 0; i < RN_READINGS; i++) {
                assert_int_equal(readings[i].ahead, 1024);
                assert_int_equal(readings[i].streams, 1 << i % RN_READING_MORE);
            }
            read++;
        }
    assert_int_equal(read, entries_of(&file));
    close_runner(&r);
    load(); /* compares logits */
    rn_free(&heap, file.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),         cmocka_unit_test(test_streams),     cmocka_unit_test(test_not_wanted),
        cmocka_unit_test(test_measured),     cmocka_unit_test(test_damaged),     cmocka_unit_test(test_cut),
        cmocka_unit_test(test_forged),       cmocka_unit_test(test_foreign),     cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_other_writer), cmocka_unit_test(test_processes),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_link),         cmocka_unit_test(test_all_damaged), cmocka_unit_test(test_heads),
    };
    int failed;

    if (!has_models() || rn_level_best()->tiled == NULL)
        return 77;
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, set_up, tear_down);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
