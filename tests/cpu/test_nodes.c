/* Memory nodes. What a made-up /sys tells becomes the table that was meant; workers, rows and who helps whom follow
 * their closed forms; workers stay on their nodes. A whole model on two nodes, which are this machine's processors in
 * two halves, gives the bits of one node, and the pages of its tiles are first touched by workers of the node whose
 * rows lie there. For that the memory can be neither read nor written at first: who is caught at a page has it. What is
 * damaged in a file of tiles is found, also where a node has no worker. */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/log.h"
#include "cpu/cores.h"
#include "cpu/fast.h"
#include "cpu/nodes.h"
#include "tests/cpu/runner.h"

enum { BLOCK = 16, N_BLOCKS = 4, N = 24, CONTEXT = 64 };

/* ---- A made-up /sys ---- */

static char root[] = "/tmp/rn-nodes-XXXXXX";

static void put_file(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", root, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static const char *const folders[] = {"", "/node", "/node/node0", "/node/node1", "/node/node2"};
    char path[256];

    (void)state;
    if (mkdtemp(root) == NULL)
        return -1;
    for (size_t i = 1; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        if (mkdir(path, 0700) != 0)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* The processors [first, end) of those that may be used, as a list. */
static const char *list_of(const int *processors, uint32_t first, uint32_t end)
{
    static char text[4][8192];
    static int next;
    char *to = text[next++ % 4];
    size_t n = 0;

    to[0] = '\0';
    for (uint32_t i = first; i < end; i++)
        n += (size_t)snprintf(to + n, sizeof text[0] - n, "%s%d", i > first ? "," : "", processors[i]);
    snprintf(to + n, sizeof text[0] - n, "\n");
    return to;
}

/* Two halves, with a node of memory alone between them. Returns how many processors there are. */
static uint32_t put_halves(int *processors)
{
    uint32_t cores, n = rn_cores_list(processors, RN_MOST_PROCESSORS, &cores);

    put_file("node/online", "0-2\n");
    put_file("node/node0/cpulist", list_of(processors, 0, n / 2));
    put_file("node/node1/cpulist", "\n");
    put_file("node/node2/cpulist", list_of(processors, n / 2, n));
    return n;
}

static void test_read(void **state)
{
    static const char *const nothing[] = {"", "\n", "x", "7-", "-", "99999999999999999999", "0-18446744073709551615"};
    static int processors[RN_MOST_PROCESSORS];
    uint32_t n = put_halves(processors), i;
    struct rn_nodes nodes;

    (void)state;
    rn_nodes_read(&nodes, root);
    assert_int_equal(nodes.n, n > 1 ? 2 : 1);
    if (n > 1) {
        assert_int_equal(nodes.processors[0], n / 2);
        assert_int_equal(nodes.processors[1], n - n / 2);
        for (i = 0; i < n; i++)
            assert_int_equal(nodes.of[processors[i]], i >= n / 2);
    }
    put_file("node/node2/cpulist", list_of(processors, n / 2, n - 1)); /* the last one is nowhere */
    rn_nodes_read(&nodes, root);
    assert_int_equal(nodes.n, 1);
    assert_int_equal(nodes.processors[0], n);
    put_halves(processors);
    for (i = 0; i < sizeof nothing / sizeof *nothing; i++) { /* whatever is in the list, it ends */
        put_file("node/online", nothing[i]);
        rn_nodes_read(&nodes, root);
        assert_int_equal(nodes.processors[0] + (nodes.n > 1 ? nodes.processors[1] : 0), n);
    }
    rn_nodes_read(&nodes, "/does/not/exist");
    assert_int_equal(nodes.n, 1);
    rn_nodes_read(&nodes, RN_NODES_ROOT);
    for (i = 0; i < n; i++)
        assert_true(nodes.of[processors[i]] < nodes.n);
}

/* ---- Closed forms ---- */

static void check_workers(const struct rn_nodes *nodes, uint32_t n_workers)
{
    uint32_t node, worker, turn, first, end, of, seen[64], processors = 0;

    for (node = 0; node < nodes->n; node++)
        processors += nodes->processors[node];
    assert_int_equal(rn_nodes_first(nodes, 0, n_workers), 0);
    assert_int_equal(rn_nodes_first(nodes, nodes->n, n_workers), n_workers);
    for (node = 0; node < nodes->n; node++) {
        first = rn_nodes_first(nodes, node, n_workers);
        end = rn_nodes_first(nodes, node + 1, n_workers);
        assert_true(first <= end);
        /* Within one of its fair part; exactly that where each processor has a worker. */
        assert_true(labs((long)(end - first) * processors - (long)nodes->processors[node] * n_workers) <= processors);
        for (worker = first; worker < end; worker++) {
            memset(seen, 0, sizeof seen);
            for (turn = 0; turn < n_workers; turn++) {
                of = rn_nodes_share(worker, first, end, n_workers, turn);
                assert_true(of < n_workers && seen[of]++ == 0);
                assert_int_equal(of >= first && of < end, turn < end - first);
            }
            assert_int_equal(rn_nodes_share(worker, first, end, n_workers, 0), worker);
        }
    }
}

static void test_workers(void **state)
{
    static const uint32_t sizes[][4] = {{1}, {8}, {4, 4}, {1, 1}, {2, 6}, {6, 2}, {3, 3, 3}, {16, 1, 1, 16}};
    struct rn_nodes nodes;
    uint32_t workers;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        nodes = (struct rn_nodes){0};
        for (; nodes.n < 4 && sizes[i][nodes.n] > 0; nodes.n++)
            nodes.processors[nodes.n] = sizes[i][nodes.n];
        for (workers = 1; workers <= 40; workers++)
            check_workers(&nodes, workers);
    }
}

/* Every row has one worker; the stretch of some workers is what they have one by one. */
static void test_rows(void **state)
{
    static const uint32_t tiles[] = {1, 16, 32};
    uint32_t rows, n, worker, at, end;
    struct rn_fast_rows one, some;

    (void)state;
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
        for (rows = 0; rows < 700; rows += 1 + rows / 9)
            for (n = 1; n < 20; n++) {
                for (at = worker = 0; worker < n; worker++, at += one.n) {
                    one = rn_fast_share(rows, tiles[t], worker, worker + 1, n);
                    assert_int_equal(one.first, at);
                    assert_true(one.first % tiles[t] == 0);
                    assert_true(one.n <= (rows / tiles[t] / n + 1) * tiles[t] + tiles[t] - 1);
                    for (end = worker; end <= n; end++) {
                        some = rn_fast_share(rows, tiles[t], worker, end, n);
                        assert_int_equal(some.first, at);
                        assert_int_equal(some.first + some.n,
                                         end == n ? rows : rn_fast_share(rows, tiles[t], end, n, n).first);
                    }
                }
                assert_int_equal(at, rows);
                assert_int_equal(rn_fast_share(rows, tiles[t], n, n, n).n, 0); /* a node without workers */
            }
}

/* ---- Workers ---- */

struct looking {
    struct rn_job job; /* first */
    cpu_set_t sets[8];
    sem_t done;
};

static void look(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    (void)n_workers;
    sched_getaffinity(0, sizeof(cpu_set_t), &((struct looking *)job)->sets[worker]);
}

static void looked(struct rn_job *job)
{
    sem_post(&((struct looking *)job)->done);
}

static void test_stay(void **state)
{
    static int processors[RN_MOST_PROCESSORS];
    uint32_t n = put_halves(processors), worker, i, node;
    struct looking looking = {.job = {look, looked, NULL}};
    struct rn_team *team;
    struct rn_heap heap;

    (void)state;
    if (n < 2)
        skip();
    rn_heap_init(&heap, NULL);
    sem_init(&looking.done, 0, 0);
    team = rn_team_new_at(&heap, 4, root);
    assert_non_null(team);
    assert_int_equal(rn_team_nodes(team), 2);
    rn_team_submit(team, &looking.job);
    sem_wait(&looking.done);
    for (worker = 0; worker < 4; worker++) {
        node = rn_team_node(team, worker);
        assert_true(worker >= rn_team_first(team, node) && worker < rn_team_first(team, node + 1));
        for (i = 0; i < n; i++)
            assert_int_equal(!!CPU_ISSET(processors[i], &looking.sets[worker]), (i >= n / 2) == node);
    }
    rn_team_free(team);
    sem_destroy(&looking.done);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- Whole models ---- */

static const struct rn_backend_limits limits = {.max_rows = N,
                                                .max_seqs = 1,
                                                .max_outs = N,
                                                .n_blocks = N_BLOCKS,
                                                .block_tokens = BLOCK,
                                                .context_tokens = CONTEXT,
                                                .kv_type = RUNNEL_KV_F32};

/* The logits of N tokens, `chunk` to a step. */
static void run_tokens(struct runner *r, uint32_t chunk, float *logits)
{
    uint32_t blocks[N_BLOCKS] = {0, 1, 2, 3}, at, i, n;
    struct rn_step_seq seq = {blocks, N_BLOCKS, NULL, 0, NULL, 0, 0};
    struct rn_step_row rows[N];
    struct rn_step step = {.rows = rows, .seqs = &seq, .n_seqs = 1};

    for (at = 0; at < N; at += n) {
        n = N - at < chunk ? N - at : chunk;
        for (i = 0; i < n; i++)
            rows[i] = (struct rn_step_row){(int32_t)((at + i) * 37 % r->plan->n_vocab), at + i, 0, (int32_t)i};
        step.n_rows = step.n_outs = n;
        step.logits = logits + (size_t)at * r->plan->n_vocab;
        run_step(r, &step);
    }
}

static void check_bits(const char *name)
{
    static const uint32_t chunks[] = {1, 3, 24};
    struct rn_backend_limits tiles = limits;
    struct model model;
    struct runner r;
    struct rn_heap heap;
    float *want, *got;
    size_t bytes;

    rn_heap_init(&heap, NULL);
    model = open_model(&heap, name, CONTEXT);
    bytes = (size_t)N * model.plan->n_vocab * sizeof *want;
    want = rn_alloc(&heap, bytes, 1);
    got = rn_alloc(&heap, bytes, 1);
    open_runner(&r, &heap, model.plan, rn_level_best(), 2, &limits);
    run_tokens(&r, 1, want);
    close_runner(&r);
    tiles.weight_order = RUNNEL_WEIGHTS_TILES;
    for (uint32_t threads = 1; threads <= 5; threads++)
        for (size_t i = 0; i < 2 * sizeof chunks / sizeof *chunks; i++) {
            open_runner_at(&r, &heap, model.plan, rn_level_best(), threads, i % 2 == 0 ? &limits : &tiles, root);
            assert_int_equal(rn_team_nodes(r.team), 2);
            run_tokens(&r, chunks[i / 2], got);
            close_runner(&r);
            assert_memory_equal(got, want, bytes);
        }
    rn_free(&heap, want);
    rn_free(&heap, got);
    close_model(&model);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_bits(void **state)
{
    static int processors[RN_MOST_PROCESSORS];

    (void)state;
    if (put_halves(processors) < 2 || !has_models())
        skip();
    check_bits("models/runnel-tiny-Q4_K_M.gguf");
    check_bits("models/runnel-tiny-Q8_0.gguf");
    check_bits("oracles/arch/llama-moe.gguf");
}

/* ---- Who touches which page first ---- */

enum { PAGE = 4096, PAGES = 1 << 16, NOBODY = 255 };

static uint8_t *arena; /* [PAGES][PAGE] */
static size_t arena_used;
/* Written in a handler, read when the threads are gone or asleep. Two of a node may touch a page at once: atomic, and
 * either may stand; relaxed, since nothing else depends on it. */
static _Atomic uint8_t touched_by[PAGES];

static void *arena_alloc(void *user, size_t bytes, size_t alignment)
{
    size_t at = (arena_used + alignment - 1) / alignment * alignment;

    (void)user;
    arena_used = (at + bytes + PAGE - 1) / PAGE * PAGE;
    return arena_used <= (size_t)PAGES * PAGE ? arena + at : NULL;
}

static void arena_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)ptr;
    (void)bytes;
}

/* The number in a worker's name, NOBODY in another thread's. */
static void on_touch(int number, siginfo_t *info, void *context)
{
    size_t page = ((uintptr_t)info->si_addr - (uintptr_t)arena) / PAGE;
    char name[16] = "";

    (void)number;
    (void)context;
    if ((uint8_t *)info->si_addr < arena || page >= PAGES)
        _exit(99);
    prctl(PR_GET_NAME, name);
    atomic_store_explicit(&touched_by[page], strncmp(name, "rn-cpu-", 7) == 0 ? (uint8_t)(name[7] - '0') : NOBODY,
                          memory_order_relaxed);
    if (mprotect(arena + page * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(98);
}

/* Pages that lie within one node's rows of the weight are of its workers. Returns how many pages those are. */
static uint32_t check_weight(const struct runner *r, uint32_t i)
{
    const struct rn_fast *fast = (const struct rn_fast *)r->backend;
    const struct rn_weight *w = &r->plan->weights[i];
    uint32_t n_rows = (uint32_t)(w->tensor->bytes / w->row_bytes), n = rn_team_threads(r->team), tiles = n_rows / 16;
    uint32_t border = tiles * rn_team_first(r->team, 1) / n * 16, checked = 0, by;
    const uint8_t *at = fast->tiles[i], *limit = at + border * w->row_bytes, *end = at + w->tensor->bytes;

    at = (const uint8_t *)(((uintptr_t)at + PAGE - 1) / PAGE * PAGE);
    for (; at + PAGE <= end; at += PAGE) {
        if (at < limit && at + PAGE > limit) /* of both */
            continue;
        by = touched_by[(size_t)(at - arena) / PAGE];
        assert_true(by < n);
        assert_int_equal(rn_team_node(r->team, by), at >= limit);
        checked++;
    }
    return checked;
}

static void test_first_touch(void **state)
{
    const runnel_allocator hook = {arena_alloc, arena_free, NULL};
    struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO}, before;
    struct rn_backend_limits tiles = limits;
    static int processors[RN_MOST_PROCESSORS];
    struct rn_heap heap, plain;
    uint32_t checked = 0, i;
    struct model model;
    struct runner r;

    (void)state;
    if (put_halves(processors) < 2 || !has_models() || rn_level_best()->tiled == NULL)
        skip();
    arena = mmap(NULL, (size_t)PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(arena != MAP_FAILED);
    for (i = 0; i < PAGES; i++)
        touched_by[i] = NOBODY;
    rn_heap_init(&plain, NULL);
    rn_heap_init(&heap, &hook);
    model = open_model(&plain, "models/runnel-tiny-Q8_0.gguf", CONTEXT);
    tiles.weight_order = RUNNEL_WEIGHTS_TILES;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    open_runner_at(&r, &heap, model.plan, rn_level_best(), 3, &tiles, root);
    for (i = 0; i < model.plan->n_weights; i++)
        if (((const struct rn_fast *)r.backend)->tiles[i] != NULL)
            checked += check_weight(&r, i);
    close_runner(&r);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_true(checked > 50);
    close_model(&model);
    munmap(arena, (size_t)PAGES * PAGE);
}

/* ---- A file of tiles ---- */

static int warnings;

static void on_line(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    (void)line;
    warnings += level == RUNNEL_LOG_WARNING;
}

/* Changes the last byte of each weight in the file: docs/WEIGHTS.md says where they are. */
static void damage(const char *path)
{
    uint8_t head[80 + 32 * 256], byte;
    FILE *file = fopen(path, "r+b");
    uint64_t n;

    assert_non_null(file);
    assert_true(fread(head, 80, 1, file) == 1);
    n = rn_bytes_get(head + 48, 8);
    assert_true(n > 0 && n <= 256 && fread(head + 80, 32, (size_t)n, file) == n);
    for (const uint8_t *entry = head + 80; entry < head + 80 + 32 * n; entry += 32) {
        long at = (long)(rn_bytes_get(entry + 24, 8) + rn_bytes_get(entry + 16, 8) - 1);

        assert_true(fseek(file, at, SEEK_SET) == 0 && fread(&byte, 1, 1, file) == 1);
        byte ^= 0x55;
        assert_true(fseek(file, at, SEEK_SET) == 0 && fwrite(&byte, 1, 1, file) == 1);
    }
    assert_int_equal(fclose(file), 0);
}

/* A load with the file, which gives so many warnings and the right logits; of a file with damage nothing is used. */
static void load_tiles(const struct model *model, struct rn_heap *heap, uint32_t threads,
                       const struct rn_weights_place *place, int expected, const float *want)
{
    size_t bytes = (size_t)N * model->plan->n_vocab * sizeof *want;
    struct rn_backend_limits tiles = limits;
    float *got = rn_alloc(heap, bytes, 1);
    struct runner r;

    tiles.weight_order = RUNNEL_WEIGHTS_TILES;
    tiles.weights_place = place;
    warnings = 0;
    open_runner_at(&r, heap, model->plan, rn_level_best(), threads, &tiles, root);
    assert_int_equal(rn_team_nodes(r.team), 2);
    assert_int_equal(warnings, expected);
    assert_int_equal(r.backend->ops->mapped_bytes(r.backend),
                     expected > 0 ? 0 : r.backend->ops->tiled_bytes(r.backend));
    run_tokens(&r, N, got);
    assert_memory_equal(got, want, bytes);
    close_runner(&r);
    rn_free(heap, got);
}

/* Each weight of the file is compared to its end, also where a node has no worker: with one thread the second has
 * none. */
static void test_damaged_tiles(void **state)
{
    const struct rn_log log = {.sink = on_line, .level = RUNNEL_LOG_WARNING};
    static int processors[RN_MOST_PROCESSORS];
    struct rn_weights_place place = {.log = &log};
    struct model model;
    struct rn_heap heap;
    struct runner r;
    char path[64];
    float *want;

    (void)state;
    if (put_halves(processors) < 2 || !has_models() || rn_level_best()->tiled == NULL)
        skip();
    snprintf(path, sizeof path, "%s/model.tiles", root);
    place.path = path;
    rn_heap_init(&heap, NULL);
    model = open_model(&heap, "models/runnel-tiny-Q8_0.gguf", CONTEXT);
    want = rn_alloc(&heap, (size_t)N * model.plan->n_vocab, sizeof *want);
    open_runner(&r, &heap, model.plan, rn_level_best(), 2, &limits);
    run_tokens(&r, N, want);
    close_runner(&r);
    load_tiles(&model, &heap, 2, &place, 0, want);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        damage(path);
        load_tiles(&model, &heap, threads, &place, 1, want);
        load_tiles(&model, &heap, threads, &place, 0, want);
    }
    rn_free(&heap, want);
    close_model(&model);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),          cmocka_unit_test(test_workers), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_stay),          cmocka_unit_test(test_bits),    cmocka_unit_test(test_first_touch),
        cmocka_unit_test(test_damaged_tiles),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
