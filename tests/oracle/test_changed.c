/* Files of every architecture with one thing wrong: a key is missing, of another type, absurd, or an array; a tensor
 * is missing, of another shape or type, or of no architecture. Each gives a plan that its checker accepts, or a status
 * with one sentence that names a key or a tensor: that which was changed, where no other can be meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch/table.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/changed_model.h"
#include "tests/oracle/run_plan.h"

/* Files of ../shared, texts of the tree. */
static const char *const names[] = {
#define NAME(name, context) "oracles/arch/" name ".gguf",
#define MADE(name, context) MADE_TEXT(name),
    ARCH_MODELS(NAME) MADE_MODELS(MADE) FORMULA_MODELS(MADE) RANK_MODELS(MADE)
#undef MADE
#undef NAME
};

static struct changed_model m;

static bool says(const char *text)
{
    return strstr(m.error.message, text) != NULL;
}

/* Long names are cut in sentences. */
static bool names_it(const char *name)
{
    char front[48] = {0};

    memcpy(front, name, strnlen(name, sizeof front - 1));
    return says(front);
}

/* The builder says what is wrong, not the checker of plans behind it. */
static void expect_sense(const char *name, const char *what)
{
    runnel_status status = changed_plan(&m, false);

    if (status == RUNNEL_OK)
        return;
    if (status != RUNNEL_FORMAT && status != RUNNEL_UNSUPPORTED && status != RUNNEL_INVALID)
        fail_msg("%s, %s %s: %s", m.name, name, what, runnel_status_name(status));
    if (says("fit together") || says("\n") || strlen(m.error.message) + 1 == sizeof m.error.message)
        fail_msg("%s, %s %s: not a sentence of the builder's: %s", m.name, name, what, m.error.message);
    if (!says("key ") && !says("tensor ") && !says("architecture "))
        fail_msg("%s, %s %s: %s", m.name, name, what, m.error.message);
}

/* ---- Keys ---- */

static void set_key(uint32_t k, const struct changed_value *value)
{
    struct edit_key *key = &m.edit.keys[k], before = *key;

    *key = value->key;
    strcpy(key->name, before.name);
    expect_sense(before.name, value->what);
    if (value->is_wrong && m.error.status != RUNNEL_OK && !names_it(before.name))
        fail_msg("%s, %s %s: the key is not named: %s", m.name, before.name, value->what, m.error.message);
    *key = before;
}

/* Whether anything depends on it: no key is a text and an empty array, too. */
static bool is_read(uint32_t k)
{
    bool read;

    m.without_key = k;
    expect_sense(m.edit.keys[k].name, "missing");
    read = m.error.status != RUNNEL_OK;
    m.without_key = UINT32_MAX;
    for (uint32_t i = 0; i < CHANGED_TO_NO_NUMBER; i++) {
        set_key(k, changed_value(i));
        read = read || m.error.status != RUNNEL_OK;
    }
    return read;
}

static void change_key(uint32_t k)
{
    struct edit_key before = m.edit.keys[k];

    for (uint32_t i = CHANGED_TO_NO_NUMBER; changed_value(i) != NULL; i++)
        set_key(k, changed_value(i));
    if (before.type != RN_GGUF_ARRAY || before.item == RN_GGUF_STRING)
        return;
    m.edit.keys[k].bytes -= before.bytes / before.count;
    m.edit.keys[k].count--;
    expect_sense(before.name, "one shorter");
    m.edit.keys[k] = before;
}

/* ---- Tensors ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), e = strlen(end);

    return n >= e && strcmp(text + n - e, end) == 0;
}

/* Those without which no architecture is. */
static bool is_needed(const char *name)
{
    static const char *const ends[] = {"token_embd.weight", ".attn_output.weight", ".ffn_down.weight",
                                       "ffn_down_exps.weight"};
    size_t i;

    for (i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(name, ends[i]))
            return true;
    return strcmp(name, "output_norm.weight") == 0;
}

static void leave_out(uint32_t t)
{
    const char *name = m.edit.tensors[t].name;

    m.without_tensor = t;
    expect_sense(name, "missing");
    m.without_tensor = UINT32_MAX;
    if (is_needed(name) && (m.error.status != RUNNEL_FORMAT || !names_it(name)))
        fail_msg("%s without %s: %s", m.name, name, m.error.message);
}

static void change_tensor(uint32_t t)
{
    struct edit_tensor before = m.edit.tensors[t];

    for (uint32_t i = 0; i < CHANGED_TENSORS; i++) {
        if (changed_tensor(&m.edit.tensors[t], i)) {
            char what[24];

            snprintf(what, sizeof what, "change %u", i);
            expect_sense(before.name, what);
            if (i < 3 && is_needed(before.name))
                assert_int_equal(m.error.status, RUNNEL_FORMAT);
        }
        m.edit.tensors[t] = before;
    }
}

/* ---- Models ---- */

/* What has been changed of an architecture: further models of it add what is theirs. By a hash, FNV-1a. */
static struct {
    uint64_t names[1 << 15];
    size_t n;
} seen;

static uint64_t hash(uint64_t h, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h;
}

/* True the first time. */
static bool is_new(const char *name)
{
    const size_t all = sizeof seen.names / sizeof seen.names[0];
    struct rn_view arch = {"", 0};
    uint64_t h = 0xcbf29ce484222325u;
    size_t i;

    (void)rn_gguf_get_string(m.gguf, "general.architecture", false, &arch, NULL);
    h = hash(hash(h, arch.bytes, arch.n), name, strlen(name) + 1);
    for (i = h % all; seen.names[i] != 0 && seen.names[i] != h;)
        i = (i + 1) % all;
    if (seen.names[i] == h)
        return false;
    seen.names[i] = h;
    assert_true(++seen.n < all / 2);
    return true;
}

static void keys_are_looked_at(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        changed_open(&m, names[i]);
        for (uint32_t k = 0; k < m.edit.n_keys; k++)
            if (is_new(m.edit.keys[k].name) && is_read(k))
                change_key(k);
        changed_close(&m);
    }
}

/* Each is left out. Of those of all blocks that have one name, the first is changed. */
static void tensors_are_looked_at(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        changed_open(&m, names[i]);
        for (uint32_t t = 0; t < m.edit.n_tensors; t++) {
            const char *name = m.edit.tensors[t].name;

            if (is_new(name))
                leave_out(t);
            if (is_new(strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : name))
                change_tensor(t);
        }
        changed_close(&m);
    }
}

/* The number of blocks that the file's tensors speak of. */
static uint32_t blocks_of(const struct model_edit *edit)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < edit->n_tensors; t++) {
        uint32_t block = (uint32_t)atoi(edit->tensors[t].name + 4) + 1;

        if (strncmp(edit->tensors[t].name, "blk.", 4) == 0 && block > n)
            n = block;
    }
    return n;
}

/* A dimension of a block's tensor; 0: there is none. */
static uint32_t dim_of(uint32_t block, const char *rest, int dim)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%u.%s", block, rest);
    for (uint32_t t = 0; t < m.edit.n_tensors; t++)
        if (strcmp(m.edit.tensors[t].name, name) == 0)
            return (uint32_t)m.edit.tensors[t].dims[dim];
    return 0;
}

/* Of each block what its tensors say: the width of the experts that are used, or of the feed-forward. */
static void set_all_widths(const char *key, int prefix)
{
    uint32_t widths[8], n = blocks_of(&m.edit);
    uint64_t used = 0;
    char text[96];

    snprintf(text, sizeof text, "%.*s.expert_used_count", prefix, key);
    assert_int_equal(rn_gguf_get_u64(m.gguf, text, true, 1, 64, &used, NULL), RUNNEL_OK);
    assert_true(n <= sizeof widths / sizeof widths[0]);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t expert = dim_of(i, "ffn_down_exps.weight", 0), dense = dim_of(i, "ffn_down.weight", 0);

        widths[i] = expert > 0 ? expert * (uint32_t)used : dense;
    }
    edit_u32s(&m.edit, key, widths, n);
}

/* However many there are: of one block, of two, and so on. */
static void foreign_tensors_are_refused(void **state)
{
    static const float zeros[32];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        changed_open(&m, names[i]);
        for (uint32_t block = 0, n = blocks_of(&m.edit); block < n; block++) {
            char name[32];

            snprintf(name, sizeof name, "blk.%u.foreign.weight", block);
            edit_add_tensor(&m.edit, name, 32, 1, zeros);
            m.edit.tensors[m.edit.n_tensors - 1].bytes = 0; /* so that it lies behind the others */
            if (changed_plan(&m, false) != RUNNEL_UNSUPPORTED || !says("tensor blk.0.foreign.weight"))
                fail_msg("%s with %s: %s", m.name, name, m.error.message);
        }
        changed_close(&m);
    }
}

/* Of llama.cpp's architectures those that take n_ff / n_expert_used for the width of an expert, where the file has no
 * other: its src/models. */
static void experts_share_the_width(void **state)
{
    static const char *const models[] = {
        "oracles/arch/glm4moe-moe.gguf",   "oracles/arch/qwen2moe-moe.gguf", "oracles/arch/qwen3moe-moe.gguf",
        "oracles/arch/qwen3next-moe.gguf", MADE_TEXT("grovemoe-made"),       MADE_TEXT("llada-moe-made"),
        MADE_TEXT("mellum-made"),          MADE_TEXT("nemotron_h_moe-made"), MADE_TEXT("qwen35moe-made"),
        MADE_TEXT("qwen3vlmoe-made"),      MADE_TEXT("qwen4exp-made"),       MADE_TEXT("rnd1-made")};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct rn_view arch = {"", 0};
        char own[96], all[96];

        changed_open(&m, models[i]);
        assert_int_equal(rn_gguf_get_string(m.gguf, "general.architecture", true, &arch, NULL), RUNNEL_OK);
        snprintf(own, sizeof own, "%.*s.expert_feed_forward_length", (int)arch.n, arch.bytes);
        snprintf(all, sizeof all, "%.*s.feed_forward_length", (int)arch.n, arch.bytes);
        edit_drop_key(&m.edit, own);
        set_all_widths(all, (int)arch.n);
        if (changed_plan(&m, false) != RUNNEL_OK)
            fail_msg("%s: %s", models[i], m.error.message);
        changed_close(&m);
    }
}

/* No row is without a model here. */
static void all_rows_are_there(void **state)
{
    const struct rn_arch *arch;
    size_t row, i, n;

    (void)state;
    for (row = 0; (arch = rn_arch_at(row)) != NULL; row++) {
        for (i = n = 0; i < sizeof names / sizeof names[0]; i++) {
            const char *file = strrchr(names[i], '/') + 1;

            n += strncmp(file, arch->name, strlen(arch->name)) == 0 && file[strlen(arch->name)] == '-';
        }
        if (n == 0)
            fail_msg("no model of architecture %s", arch->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_rows_are_there), cmocka_unit_test(keys_are_looked_at),
                                       cmocka_unit_test(tensors_are_looked_at),
                                       cmocka_unit_test(foreign_tensors_are_refused),
                                       cmocka_unit_test(experts_share_the_width)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
