/* Logits of real and of tiny random models, on every backend, against other programs' logits.
 *
 * oracles/arch and oracles/NAME.logits were computed by llama.cpp in F32; stories260K.greedy.txt was
 * published with the model. A row of a table is a file, where its logits are, and how far off they may
 * be. With the argument "made" the models are those of tests/oracle/made, with a name behind it that
 * one. The law-5 tests ask for equal bits: of one pass, chunks, company and other blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/whole_file.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"
#include "tests/slow.h"
#include "tests/support/nmse.h"

struct model {
    const char *gguf, *logits;
    double limit;
    uint32_t context_tokens; /* with which the logits were computed, where it matters; else 0 */
    const char *rounded;     /* further logits, which are so far off at most; or NULL */
    double rounded_limit;
};

#define MODEL(gguf_, logits_, ...)                                     \
    {                                                                  \
        .gguf = gguf_, .logits = logits_, .limit = 1e-6, ##__VA_ARGS__ \
    }
#define ARCH(name, context) \
    MODEL("oracles/arch/" name ".gguf", "oracles/arch/" name ".logits", .context_tokens = context),
#define ROUNDED(name, limit)                                                  \
    MODEL("oracles/arch/" name ".gguf", "tests/oracle/exact/" name ".logits", \
          .rounded = "oracles/arch/" name ".logits", .rounded_limit = limit),
static const struct model shared_models[] = {
    MODEL("models/stories260K.gguf", "oracles/stories260K.logits"),
    MODEL("models/runnel-tiny-F16.gguf", "oracles/runnel-tiny-F16.logits"),
    MODEL("models/runnel-tiny-draft-F16.gguf", "oracles/runnel-tiny-draft-F16.logits"),
    ARCH_MODELS(ARCH) ROUNDED_MODELS(ROUNDED)};

#define MADE(name, context) MODEL(MADE_TEXT(name), MADE_LOGITS(name), .context_tokens = context),
static const struct model made_models[] = {MADE_MODELS(MADE) KEYED_MODELS(MADE)};

/* Those behind the N_REAL are tiny. Of the last N_KEYED only logits are looked at: how they are computed others
 * show. */
#define ONE(name, context) +1
enum {
    N_REAL = 3,
    N_SHARED = sizeof shared_models / sizeof shared_models[0],
    N_MADE = sizeof made_models / sizeof made_models[0],
    N_KEYED = 0 KEYED_MODELS(ONE)
};

/* The first model of a family, which has the same ops as the others, leads it. Logits are judged of each model; ways of
 * running are many for a leader and few for another one, whose shapes alone are new. */
struct facts {
    bool leads, both_ways, state;
};
static struct facts facts[N_MADE + N_SHARED]; /* of models */

static const struct model *models = shared_models;
static size_t n_models = N_SHARED, first_tiny = N_REAL;
static size_t n_keyed;                 /* behind the n_models */
static bool of_the_tree;               /* models are made_models, or one of them */
static struct writer made[N_MADE];     /* bytes of made_models' files, where they have been made */
static const char *backend_under_test; /* set by main, one group of tests for each */

static struct run_options options_of(const struct model *model, runnel_kv_type kv_type)
{
    struct run_options options = {
        .backend = backend_under_test, .kv_type = kv_type, .context_tokens = model->context_tokens};
    struct writer *w = of_the_tree ? &made[model - made_models] : NULL;

    if (w == NULL)
        return options;
    if (w->bytes == NULL)
        made_model_write(model->gguf, w);
    options.bytes = w->bytes;
    options.n_bytes = w->n;
    return options;
}

static const char *path_of(const char *name)
{
    return strncmp(name, "tests/", 6) == 0 ? name : shared_path(name);
}

static bool agrees(struct run *run, const char *logits, double limit)
{
    struct oracle oracle;
    double error;
    float *ours;

    oracle_open(&run->heap, path_of(logits), &oracle);
    assert_int_equal(oracle.n_vocab, run->width);
    ours = rn_alloc(&run->heap, (size_t)oracle.n_tokens * oracle.n_vocab, sizeof *ours);
    run_tokens(run, 0, oracle.tokens, oracle.n_tokens, oracle.n_tokens, ours);
    error = nmse(ours, oracle.logits, (size_t)oracle.n_tokens * oracle.n_vocab);
    print_message("%-9s %-40s nmse %.3g\n", backend_under_test, logits, error);
    rn_free(&run->heap, ours);
    oracle_close(&run->heap, &oracle);
    return error <= limit;
}

static void logits_agree(void **state)
{
    struct run run;
    size_t i, failed = 0;

    (void)state;
    for (i = 0; i < n_models + n_keyed; i++) {
        const struct run_options options = options_of(&models[i], RUNNEL_KV_F32);

        run_open(&run, path_of(models[i].gguf), &options);
        failed += !agrees(&run, models[i].logits, models[i].limit);
        if (models[i].rounded != NULL)
            failed += !agrees(&run, models[i].rounded, models[i].rounded_limit);
        run_close(&run);
    }
    assert_int_equal(failed, 0);
}

/* A 16-bit cache is another computation, but a close one: 2^-11 and 2^-8 relative rounding of each key and value. */
static void short_caches_are_close(void **state)
{
    static const struct {
        runnel_kv_type type;
        double limit;
    } caches[] = {{RUNNEL_KV_F16, 1e-5}, {RUNNEL_KV_BF16, 1e-3}};
    struct oracle oracle;
    struct run run;
    double error;
    float *ours;
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        const struct run_options options = options_of(&models[0], caches[i].type);

        run_open(&run, shared_path(models[0].gguf), &options);
        oracle_open(&run.heap, shared_path(models[0].logits), &oracle);
        ours = rn_alloc(&run.heap, (size_t)oracle.n_tokens * oracle.n_vocab, sizeof *ours);
        run_tokens(&run, 0, oracle.tokens, oracle.n_tokens, 7, ours);
        error = nmse(ours, oracle.logits, (size_t)oracle.n_tokens * oracle.n_vocab);
        if (!(error <= caches[i].limit && error > 1e-12)) /* 0 would mean that nothing was rounded */
            fail_msg("KV type %d: nmse %g", (int)caches[i].type, error);
        rn_free(&run.heap, ours);
        oracle_close(&run.heap, &oracle);
        run_close(&run);
    }
}

/* ---- Families ---- */

/* What ops a plan has, and what its attention looks at. */
struct family {
    uint64_t ops;
    uint32_t attention;
};

static struct family family_of(const struct rn_plan *plan)
{
    struct family family = {0, 0};

    static_assert(RN_OP_KINDS <= 64, "a family is a set of bits");
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];

        family.ops |= UINT64_C(1) << op->kind;
        if (op->kind == RN_OP_ATTENTION)
            family.attention |=
                (uint32_t)((op->window > 0) | op->chunked << 1 | (op->alibi > 0) << 2 | (op->softcap > 0) << 3 |
                           (op->weight >= 0) << 4 | (op->b >= 0) << 5 | (plan->kv_layers[op->layer].v_width == 0) << 6 |
                           (op->k_dim != op->v_dim) << 7);
    }
    return family;
}

/* What is asked of one model's plan. */
static void look_at(const struct model *model, struct family *family, struct facts *of)
{
    const struct run_options options = options_of(model, RUNNEL_KV_F16);
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct rn_plan *plan;

    rn_heap_init(&heap, NULL);
    if (options.bytes != NULL)
        assert_int_equal(rn_gguf_parse(&heap, options.bytes, options.n_bytes, model->gguf, &gguf, NULL), RUNNEL_OK);
    else
        assert_int_equal(rn_gguf_open(&heap, path_of(model->gguf), &gguf, NULL), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&heap, gguf, 0, &plan, NULL), RUNNEL_OK);
    *family = family_of(plan);
    of->both_ways = plan->bidirectional;
    of->state = plan->n_state_layers > 0;
    rn_plan_free(plan);
    rn_gguf_free(gguf);
}

static bool is_among(struct family family, const struct family *families, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (families[i].ops == family.ops && families[i].attention == family.attention)
            return true;
    return false;
}

/* Of the chosen models; a family that a made model leads has no leader among the shared ones. */
static int find_leaders(void **state)
{
    struct family families[N_MADE + N_SHARED];
    size_t i, n = 0, n_leaders = 0;
    struct facts ignored;

    (void)state;
    if (!of_the_tree) {
        of_the_tree = true;
        for (n = 0; n < N_MADE - N_KEYED; n++)
            look_at(&made_models[n], &families[n], &ignored);
        of_the_tree = false;
    }
    for (i = 0; i < n_models; i++) {
        look_at(&models[i], &families[n], &facts[i]);
        facts[i].leads = !is_among(families[n], families, n);
        n_leaders += facts[i].leads;
        n++;
    }
    print_message("%zu models lead families of ops\n", n_leaders);
    return 0;
}

/* ---- Law 5 ---- */

struct judged {
    struct run run;
    struct oracle oracle;
    float *once, *again; /* [n_tokens, n_vocab] */
    size_t bytes;
};

static void judged_open(struct judged *j, const struct model *model, const struct run_options *options)
{
    run_open(&j->run, path_of(model->gguf), options);
    oracle_open(&j->run.heap, path_of(model->logits), &j->oracle);
    j->bytes = (size_t)j->oracle.n_tokens * j->oracle.n_vocab * sizeof(float);
    j->once = rn_alloc(&j->run.heap, j->bytes, 1);
    j->again = rn_alloc(&j->run.heap, j->bytes, 1);
    run_tokens(&j->run, 0, j->oracle.tokens, j->oracle.n_tokens, j->oracle.n_tokens, j->once);
}

static void judged_close(struct judged *j)
{
    rn_free(&j->run.heap, j->once);
    rn_free(&j->run.heap, j->again);
    oracle_close(&j->run.heap, &j->oracle);
    run_close(&j->run);
}

static void assert_same(const struct judged *j, const char *what, uint32_t n)
{
    if (memcmp(j->once, j->again, j->bytes) != 0)
        fail_msg("%s %u: the logits differ (nmse %g)", what, n, nmse(j->again, j->once, j->bytes / sizeof(float)));
    memset(j->again, 0xff, j->bytes);
}

/* Ways of running model i are compared in strides; 0: not at all. The reference takes one way for all sizes and
 * shapes. */
static uint32_t stride_of(size_t i)
{
    if (strcmp(backend_under_test, "reference") == 0)
        return facts[i].leads ? 5 : 0;
    return facts[i].leads ? UNLESS_SANITIZED(1, 5) : UNLESS_SANITIZED(5, 0);
}

/* k positions and one, in turn. */
static void chunk_and_row(struct judged *j, uint32_t k)
{
    const uint32_t n = j->oracle.n_tokens, n_vocab = j->oracle.n_vocab;
    struct run_piece piece = {.seq = k % 4};
    bool row = false;

    for (piece.first = 0; piece.first < n; piece.first += piece.n, row = !row) {
        piece.n = row ? 1 : n - piece.first < k ? n - piece.first : k;
        piece.tokens = j->oracle.tokens + piece.first;
        run_step(&j->run, &piece, 1);
        memcpy(j->again + (size_t)piece.first * n_vocab, j->run.logits, (size_t)piece.n * n_vocab * sizeof(float));
    }
}

/* k positions at once, then one by one. */
static void prefill_then_decode(struct judged *j, uint32_t k)
{
    const int32_t *tokens = j->oracle.tokens;
    uint32_t n_vocab = j->oracle.n_vocab, i;
    struct run_piece piece = {.seq = 1, .first = 0, .n = k, .tokens = tokens};

    run_step(&j->run, &piece, 1);
    memcpy(j->again, j->run.logits, (size_t)k * n_vocab * sizeof(float));
    for (i = k; i < j->oracle.n_tokens; i++) {
        piece = (struct run_piece){.seq = 1, .first = i, .n = 1, .tokens = tokens + i, .last_only = true};
        run_step(&j->run, &piece, 1);
        memcpy(j->again + (size_t)i * n_vocab, j->run.logits, n_vocab * sizeof(float));
    }
}

static void chunks_do_not_matter(void **state)
{
    struct run_options options;
    struct judged j;
    uint32_t k;
    size_t i;

    (void)state;
    for (i = first_tiny; i < n_models; i++) {
        if (stride_of(i) == 0 || facts[i].both_ways) /* of which there are no chunks */
            continue;
        options = options_of(&models[i], RUNNEL_KV_F16);
        judged_open(&j, &models[i], &options);
        for (k = 1; k <= j.oracle.n_tokens; k += stride_of(i)) {
            chunk_and_row(&j, k);
            assert_same(&j, "chunks of one and", k);
        }
        judged_close(&j);
    }
}

static void chunks_of_a_real_model_do_not_matter(void **state)
{
    const struct run_options options = options_of(&models[0], RUNNEL_KV_F16);
    struct judged j;
    uint32_t k;

    (void)state;
    judged_open(&j, &models[0], &options);
    for (k = 1; k <= j.oracle.n_tokens; k++) {
        prefill_then_decode(&j, k);
        assert_same(&j, "stories, prefill of", k);
    }
    judged_close(&j);
}

/* Blocks of other sizes and numbers, teams of other sizes. */
static void places_do_not_matter(void **state)
{
    static const struct {
        uint32_t block_tokens, threads;
        uint64_t seed;
    } places[] = {{16, 1, 1}, {32, 3, 2}, {8, 2, 3}, {128, 4, 4}, {1, 2, 5}};
    struct run_options options;
    struct judged first, other;
    size_t i, p;

    (void)state;
    for (i = 0; i < n_models; i++) {
        if (stride_of(i) == 0 || (i > 0 && i < first_tiny))
            continue;
        options = options_of(&models[i], RUNNEL_KV_BF16);
        judged_open(&first, &models[i], &options);
        for (p = 0; p < sizeof places / sizeof places[0]; p += stride_of(i) == 1 ? 1 : 4) {
            options.block_tokens = places[p].block_tokens;
            options.threads = places[p].threads;
            options.seed = places[p].seed;
            judged_open(&other, &models[i], &options);
            memcpy(first.again, other.once, first.bytes);
            assert_same(&first, "place", (uint32_t)p);
            judged_close(&other);
        }
        judged_close(&first);
    }
}

/* Four sequences of other tokens and lengths in the same steps; the judged one is in turn first, second, ... */
static void keep_company(const struct model *model, uint32_t stride)
{
    const struct run_options options = options_of(model, RUNNEL_KV_F16);
    struct run_piece pieces[4];
    struct judged j;
    uint32_t s, i, step, seat, n, n_vocab, before;

    judged_open(&j, model, &options);
    n = j.oracle.n_tokens;
    n_vocab = j.oracle.n_vocab;
    for (seat = 0; seat < 4; seat += stride) {
        for (step = 0, i = 0; i < n; i += pieces[seat].n, step++) {
            before = 0;
            for (s = 0; s < 4; s++) {
                /* The others take 1..3 positions a step from a place of their own in the tokens, and start over. */
                pieces[s] = (struct run_piece){.seq = s, .n = 1 + (step + s) % 3, .last_only = true};
                pieces[s].tokens = j.oracle.tokens + (7 * s + step) % (n - 3);
                pieces[s].first = s == seat ? i : 0;
            }
            pieces[seat].n = n - i < pieces[seat].n ? n - i : pieces[seat].n;
            pieces[seat].tokens = j.oracle.tokens + i;
            pieces[seat].last_only = false;
            run_step(&j.run, pieces, 4);
            for (s = 0; s < seat; s++)
                before += 1;
            memcpy(j.again + (size_t)i * n_vocab, j.run.logits + (size_t)before * n_vocab,
                   (size_t)pieces[seat].n * n_vocab * sizeof(float));
        }
        assert_same(&j, "seat", seat);
    }
    judged_close(&j);
}

/* The same where sequences come whole. */
static void keep_whole_company(const struct model *model, uint32_t stride)
{
    const struct run_options options = options_of(model, RUNNEL_KV_F16);
    struct run_piece pieces[4];
    struct judged j;
    uint32_t s, seat;

    judged_open(&j, model, &options);
    for (seat = 0; seat < 4; seat += stride) {
        for (s = 0; s < 4; s++) {
            pieces[s] = (struct run_piece){.seq = s, .n = 1 + 3 * s, .tokens = j.oracle.tokens + s, .last_only = true};
            if (s == seat)
                pieces[s] = (struct run_piece){.seq = s, .n = j.oracle.n_tokens, .tokens = j.oracle.tokens};
        }
        run_step(&j.run, pieces, 4);
        memcpy(j.again, j.run.logits + (size_t)seat * j.oracle.n_vocab, j.bytes);
        assert_same(&j, "seat", seat);
    }
    judged_close(&j);
}

static void company_does_not_matter(void **state)
{
    size_t i;

    (void)state;
    for (i = first_tiny; i < n_models; i++)
        if (stride_of(i) > 0) /* all seats, or the first and the last one */
            (facts[i].both_ways ? keep_whole_company : keep_company)(&models[i], stride_of(i) == 1 ? 1 : 3);
}

/* ---- Trees and shared blocks ---- */

/* Blocks that another sequence has filled. */
static void follow(struct judged *j)
{
    uint32_t shared = j->oracle.n_tokens / 2 / j->run.limits.block_tokens, n_vocab = j->oracle.n_vocab;
    struct run_piece piece = {.seq = 1, .first = shared * j->run.limits.block_tokens};

    memcpy(j->run.blocks + j->run.blocks_per_seq, j->run.blocks, shared * sizeof *j->run.blocks);
    piece.n = j->oracle.n_tokens - piece.first;
    piece.tokens = j->oracle.tokens + piece.first;
    assert_true(shared > 0);
    run_step(&j->run, &piece, 1);
    memcpy(j->again, j->once, (size_t)piece.first * n_vocab * sizeof(float));
    memcpy(j->again + (size_t)piece.first * n_vocab, j->run.logits, (size_t)piece.n * n_vocab * sizeof(float));
    assert_same(j, "behind shared blocks from", piece.first);
}

/* Behind FIRST positions the text and another end, in one tree: a chain that is wrong from its second row on, and the
 * text beside it. */
static void branch(struct judged *j)
{
    enum { FIRST = 11, WRONG = 4, ROWS = 7 };
    static const int32_t parents[ROWS] = {-1, 0, 1, 2, 0, 4, 5};
    const int32_t *tokens = j->oracle.tokens, n_vocab = (int32_t)j->oracle.n_vocab;
    int32_t texts[2][FIRST + WRONG], rows[ROWS];
    struct run_piece piece = {.seq = 1, .n = FIRST, .tokens = tokens};
    float *tree = j->again, *plain = j->again + (size_t)ROWS * n_vocab;
    size_t row = (size_t)n_vocab * sizeof(float);

    for (int32_t i = 0; i < FIRST + WRONG; i++) {
        texts[0][i] = i <= FIRST ? tokens[i] : (tokens[i] + 1 + i) % n_vocab;
        texts[1][i] = tokens[i];
    }
    memcpy(rows, texts[0] + FIRST, WRONG * sizeof *rows);
    memcpy(rows + WRONG, texts[1] + FIRST + 1, (WRONG - 1) * sizeof *rows);
    run_step(&j->run, &piece, 1);
    piece = (struct run_piece){.seq = 1, .first = FIRST, .n = ROWS, .tokens = rows, .parents = parents};
    run_step(&j->run, &piece, 1);
    memcpy(tree, j->run.logits, ROWS * row);
    for (uint32_t t = 0; t < 2; t++) {
        piece = (struct run_piece){.seq = 2 + t, .n = FIRST + WRONG, .tokens = texts[t]};
        run_step(&j->run, &piece, 1);
        memcpy(plain, j->run.logits + (size_t)FIRST * n_vocab, WRONG * row);
        if (memcmp(tree, plain, row) != 0 ||
            memcmp(tree + (1 + t * (WRONG - 1)) * (size_t)n_vocab, plain + n_vocab, (WRONG - 1) * row) != 0)
            fail_msg("branch %u of a tree: the logits differ", t);
    }
}

static void branches_and_prefixes_do_not_matter(void **state)
{
    struct run_options options;
    struct judged j;
    size_t i;

    (void)state;
    for (i = 0; i < n_models; i++) {
        if (!facts[i].leads || facts[i].both_ways || facts[i].state) /* the latter have neither */
            continue;
        options = options_of(&models[i], RUNNEL_KV_F16);
        options.tree_depth = 3;
        options.block_tokens = 8;
        judged_open(&j, &models[i], &options);
        follow(&j);
        branch(&j);
        judged_close(&j);
    }
}

/* ---- The published text ---- */

static int32_t argmax(const float *logits, uint32_t n)
{
    uint32_t i, best = 0;

    for (i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* The bytes of a SentencePiece vocabulary's entry: "▁" is a space, "<0xNN>" a byte. */
static size_t piece_text(const struct rn_gguf *gguf, int32_t token, char *out)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(gguf, "tokenizer.ggml.tokens");
    const char *cursor = entry->data;
    struct rn_view piece = {NULL, 0};
    unsigned byte;
    size_t i, n = 0;
    char copy[8] = {0};

    for (i = 0; i <= (size_t)token; i++)
        piece = rn_gguf_item_string(&cursor);
    if (piece.n == 6 && memcmp(piece.bytes, "<0x", 3) == 0) {
        memcpy(copy, piece.bytes, 6);
        assert_int_equal(sscanf(copy, "<0x%02X>", &byte), 1);
        out[0] = (char)byte;
        return 1;
    }
    for (i = 0; i < piece.n; i++) {
        if (piece.n - i >= 3 && memcmp(piece.bytes + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 2;
        } else {
            out[n++] = piece.bytes[i];
        }
    }
    return n;
}

static void greedy_text_is_the_published_one(void **state)
{
    const struct run_options options = options_of(&models[0], RUNNEL_KV_F32);
    struct run_piece piece = {.n = 1, .last_only = true};
    char expected[4096], text[4096 + 64];
    int32_t token = 1; /* BOS */
    struct run run;
    size_t n = 0, wanted = read_whole(shared_path("oracles/stories260K.greedy.txt"), expected, sizeof expected);

    (void)state;
    while (wanted > 0 && expected[wanted - 1] == '\n')
        wanted--;
    assert_true(wanted > 400);
    run_open(&run, shared_path("models/stories260K.gguf"), &options);
    for (piece.first = 0; n < wanted + 1 && piece.first < 500; piece.first++) {
        piece.tokens = &token;
        run_step(&run, &piece, 1);
        token = argmax(run.logits, run.plan->n_vocab);
        if (token == 1 || token == 2)
            break;
        n += piece_text(run.gguf, token, text + n);
    }
    run_close(&run);
    assert_true(n >= wanted);
    assert_memory_equal(text + (text[0] == ' '), expected, wanted); /* a leading space stands for the start of a word */
}

/* All tests, or those of tiny models alone. */
static int run_groups(bool real)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree),
        cmocka_unit_test(chunks_do_not_matter),
        cmocka_unit_test(places_do_not_matter),
        cmocka_unit_test(company_does_not_matter),
    };
    const struct CMUnitTest real_tests[] = {
        cmocka_unit_test(short_caches_are_close),
        cmocka_unit_test(chunks_of_a_real_model_do_not_matter),
        cmocka_unit_test(greedy_text_is_the_published_one),
    };
    const struct CMUnitTest made_tests[] = {cmocka_unit_test(branches_and_prefixes_do_not_matter)};
    int failed = cmocka_run_group_tests_name(backend_under_test, tests, find_leaders, NULL);

    if (of_the_tree)
        failed += cmocka_run_group_tests_name(backend_under_test, made_tests, NULL, NULL);
    return real ? failed + cmocka_run_group_tests_name(backend_under_test, real_tests, NULL, NULL) : failed;
}

/* The models of the tree; of them only the one whose name is given, unless that is NULL. False: there is none. */
static bool choose_made(const char *name)
{
    char path[128];
    size_t i;

    of_the_tree = true;
    models = made_models;
    n_models = N_MADE - N_KEYED;
    n_keyed = name == NULL ? N_KEYED : 0;
    first_tiny = 0;
    snprintf(path, sizeof path, MADE_TEXT("%s"), name != NULL ? name : "");
    for (i = 0; name != NULL && i < N_MADE; i++)
        if (strcmp(made_models[i].gguf, path) == 0) {
            models = &made_models[i];
            n_models = 1;
        }
    return name == NULL || n_models == 1;
}

int main(int argc, char **argv)
{
    static const char *const backends[] = {"reference", "fast"};
    int failed = 0;
    size_t i;

    if (argc < 2 || strcmp(argv[1], "made") != 0) {
        shared_or_skip();
    } else if (!choose_made(argv[2])) {
        printf("no model of this name\n");
        return 2;
    }
    for (i = 0; i < 2; i++) {
        backend_under_test = backends[i];
        failed += run_groups(!of_the_tree);
    }
    for (i = 0; i < N_MADE; i++)
        w_free(&made[i]);
    return failed;
}
