/* Rows that a host describes: see runnel_architecture_row in runnel.h. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "model/arch/table.h"

enum { MOST_ROWS = 1024, MOST_UNUSED = 1024 };

void runnel_architecture_row_init(runnel_architecture_row *row, size_t struct_size)
{
    const runnel_architecture_row own = {0};

    rn_sized_write(row, struct_size, &own, sizeof own);
}

void(runnel_architecture_row_default)(runnel_architecture_row *row)
{
    runnel_architecture_row_init(row, RN_FIRST_SIZE(runnel_architecture_row, reserved));
}

/* ---- Names ---- */

static const char *const flag_names[RN_ARCH_BITS] = {
#define RN_ARCH_FLAG(NAME, words) #NAME,
#include "model/arch/flags.def"
};

void rn_arch_flag_name(enum rn_arch_bit bit, char name[RN_ARCH_NAME_BYTES])
{
    size_t i;

    snprintf(name, RN_ARCH_NAME_BYTES, "%s", flag_names[bit]);
    for (i = 0; name[i] != '\0'; i++)
        name[i] = (char)(name[i] == '_' ? '-' : tolower((unsigned char)name[i]));
}

const char *rn_arch_act_name(enum rn_activation act)
{
    static const char *const names[RN_ACTIVATIONS] = {[RN_ACT_SILU] = "silu",          [RN_ACT_GELU_TANH] = "gelu",
                                                      [RN_ACT_GELU_ERF] = "gelu-erf",  [RN_ACT_RELU] = "relu",
                                                      [RN_ACT_RELU2] = "relu-squared", [RN_ACT_SIGMOID] = "sigmoid",
                                                      [RN_ACT_TANH] = "tanh",          [RN_ACT_EXP] = "exp",
                                                      [RN_ACT_SOFTPLUS] = "softplus",  [RN_ACT_NONE] = "linear"};

    return (size_t)act < sizeof names / sizeof names[0] ? names[act] : NULL;
}

static bool same(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(text, name, n) == 0;
}

/* ---- One row ---- */

struct maker {
    struct rn_heap *heap;
    struct rn_arch_row *row;
    const char *said; /* the row's name, for a sentence */
    runnel_error *error;
};

static runnel_status bad(const struct maker *m, const char *what, const char *text, size_t n)
{
    return rn_error_set(m->error, RUNNEL_INVALID, "architecture '%.60s': %s '%.*s'", m->said, what,
                        (int)(n < 60 ? n : 60), text);
}

/* The flags of a text of names. */
static runnel_status read_flags(const struct maker *m, const char *text, uint64_t *flags)
{
    char name[RN_ARCH_NAME_BYTES];
    unsigned bit;
    size_t n;

    *flags = 0;
    text = text == NULL ? "" : text + strspn(text, " ");
    for (; *text != '\0'; text += strspn(text, " ")) {
        n = strcspn(text, " ");
        for (bit = 0; bit < RN_ARCH_BITS; bit++) {
            rn_arch_flag_name(bit, name);
            if (same(text, n, name))
                break;
        }
        if (bit == RN_ARCH_BITS)
            return bad(m, "there is no feature", text, n);
        *flags |= UINT64_C(1) << bit;
        text += n;
    }
    return RUNNEL_OK;
}

/* What is more than a flag: a row's own reader or builder computes with it. Such a feature comes with a row like one
 * that has it, and stays. */
static runnel_status check_read(const struct maker *m, uint64_t flags, const char *why)
{
    static const enum rn_arch_bit read_by_rows[] = {RN_ARCH_BIT_LATENT, RN_ARCH_BIT_INDEXER, RN_ARCH_BIT_SHARED_KV,
                                                    RN_ARCH_BIT_STREAMS};
    char name[RN_ARCH_NAME_BYTES];
    size_t i;

    for (i = 0; i < sizeof read_by_rows / sizeof read_by_rows[0]; i++) {
        if ((flags & UINT64_C(1) << read_by_rows[i]) == 0)
            continue;
        rn_arch_flag_name(read_by_rows[i], name);
        return bad(m, why, name, strlen(name));
    }
    return RUNNEL_OK;
}

static runnel_status read_act(const struct maker *m, const char *text)
{
    int act;

    for (act = 0; text != NULL && rn_arch_act_name((enum rn_activation)act) != NULL; act++)
        if (strcmp(text, rn_arch_act_name((enum rn_activation)act)) == 0) {
            m->row->arch.act = (enum rn_activation)act;
            return RUNNEL_OK;
        }
    return text == NULL ? RUNNEL_OK : bad(m, "there is no activation", text, strlen(text));
}

/* Of a tensor: printable, with at most one "%d" and no other '%'. */
static runnel_status check_tensor_name(const struct maker *m, const char *text)
{
    const char *percent = strchr(text, '%');
    size_t i;

    for (i = 0; text[i] > ' ' && text[i] <= '~';)
        i++;
    if (i == 0 || text[i] != '\0' || i >= RN_ARCH_NAME_BYTES ||
        (percent != NULL && (percent[1] != 'd' || strchr(percent + 1, '%') != NULL)))
        return bad(m, "this is no name of a tensor:", text, strlen(text));
    return RUNNEL_OK;
}

static runnel_status read_ffn_norm(const struct maker *m, const char *text)
{
    runnel_status status;

    if (text == NULL)
        return RUNNEL_OK;
    status = check_tensor_name(m, text);
    snprintf(m->row->ffn_norm, sizeof m->row->ffn_norm, "%s", text);
    m->row->arch.ffn_norm = m->row->ffn_norm;
    return status;
}

static size_t count(const char *const *names)
{
    size_t n = 0;

    while (names != NULL && names[n] != NULL)
        n++;
    return n;
}

/* Those of `like`, and the row's own: one array of pointers with the texts behind it. */
static runnel_status read_unused(const struct maker *m, const runnel_architecture_row *given)
{
    const char *const *inherited = m->row->arch.unused;
    size_t i, n = count(inherited), room;
    runnel_status status = RUNNEL_OK;
    char *text;

    if (given->n_unused == 0)
        return RUNNEL_OK;
    if (given->unused == NULL || given->n_unused > MOST_UNUSED)
        return bad(m, "too many or no names of", "unused", strlen("unused"));
    for (i = 0; i < given->n_unused && status == RUNNEL_OK; i++)
        status = given->unused[i] == NULL ? bad(m, "NULL among", "unused", strlen("unused"))
                                          : check_tensor_name(m, given->unused[i]);
    if (status != RUNNEL_OK)
        return status;
    room = (n + given->n_unused + 1) * sizeof(char *);
    m->row->unused = rn_alloc(m->heap, room + given->n_unused * RN_ARCH_NAME_BYTES, 1);
    if (m->row->unused == NULL)
        return rn_error_set(m->error, RUNNEL_NO_MEMORY, "no memory for the architectures of a host");
    if (n > 0)
        memcpy(m->row->unused, inherited, n * sizeof(char *));
    text = (char *)m->row->unused + room;
    for (i = 0; i < given->n_unused; i++, text += RN_ARCH_NAME_BYTES)
        m->row->unused[n + i] = strcpy(text, given->unused[i]);
    m->row->unused[n + given->n_unused] = NULL;
    m->row->arch.unused = (const char *const *)m->row->unused;
    return RUNNEL_OK;
}

/* A name that the table has not, nor the rows made before. */
static runnel_status read_name(const struct maker *m, const struct rn_arch_rows *before)
{
    size_t i, n = strlen(m->said);

    for (i = 0; m->said[i] > ' ' && m->said[i] <= '~';)
        i++;
    if (n == 0 || i != n || n >= RN_ARCH_NAME_BYTES)
        return bad(m, "this is no name of 1 to 63 printable characters:", m->said, n);
    if (rn_arch_find((struct rn_view){m->said, n}) != NULL)
        return bad(m, "the library knows", m->said, n);
    for (i = 0; i < before->n; i++)
        if (strcmp(before->rows[i].name, m->said) == 0)
            return bad(m, "two rows are for", m->said, n);
    snprintf(m->row->name, sizeof m->row->name, "%s", m->said);
    return RUNNEL_OK;
}

static runnel_status read_row(const struct maker *m, const runnel_architecture_row *given,
                              const struct rn_arch_rows *before)
{
    const char *name = given->like == NULL ? "llama" : given->like;
    const struct rn_arch *like = rn_arch_find((struct rn_view){name, strlen(name)});
    uint64_t with = 0, without = 0;
    runnel_status status = read_name(m, before);

    if (status == RUNNEL_OK && like == NULL)
        status = bad(m, "there is no architecture", name, strlen(name));
    if (status == RUNNEL_OK && given->reserved != 0)
        status = bad(m, "not zero is", "reserved", strlen("reserved"));
    if (status == RUNNEL_OK)
        status = read_flags(m, given->with, &with);
    if (status == RUNNEL_OK)
        status = read_flags(m, given->without, &without);
    if (status == RUNNEL_OK)
        status = check_read(m, with & ~like->flags, "what it is like has no reader for feature");
    if (status == RUNNEL_OK)
        status = check_read(m, without & like->flags, "what it is like cannot be without feature");
    if (status != RUNNEL_OK)
        return status;
    m->row->arch = *like;
    m->row->arch.name = m->row->name;
    m->row->arch.flags = (like->flags | with) & ~without;
    if (given->window_period > 0)
        m->row->arch.window_period = given->window_period;
    status = read_act(m, given->activation);
    if (status == RUNNEL_OK)
        status = read_ffn_norm(m, given->ffn_norm);
    return status == RUNNEL_OK ? read_unused(m, given) : status;
}

/* ---- All of them ---- */

runnel_status rn_arch_rows_init(struct rn_arch_rows *rows, struct rn_heap *heap,
                                const runnel_architecture_row *const *descriptions, size_t n, runnel_error *error)
{
    runnel_status status = RUNNEL_OK;

    *rows = (struct rn_arch_rows){0};
    if (n == 0)
        return RUNNEL_OK;
    if (descriptions == NULL || n > MOST_ROWS)
        return rn_error_set(error, RUNNEL_INVALID, "%zu architectures%s", n,
                            descriptions == NULL ? " at NULL" : " are too many");
    rows->rows = rn_calloc(heap, n, sizeof *rows->rows);
    if (rows->rows == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the architectures of a host");
    for (size_t i = 0; i < n && status == RUNNEL_OK; i++) {
        runnel_architecture_row given = {0};
        struct maker m = {heap, &rows->rows[i], "", error};

        if (!rn_sized_read(&given, sizeof given, descriptions[i]) || given.name == NULL)
            status = rn_error_set(error, RUNNEL_INVALID, "architecture %zu: %s", i,
                                  descriptions[i] == NULL ? "NULL"
                                  : given.name == NULL    ? "it has no name, or its struct_size is not of this library"
                                                          : "its struct_size is not of this library");
        m.said = given.name;
        if (status == RUNNEL_OK)
            status = read_row(&m, &given, rows);
        rows->n++;
    }
    if (status != RUNNEL_OK)
        rn_arch_rows_fini(rows, heap);
    return status;
}

void rn_arch_rows_fini(struct rn_arch_rows *rows, struct rn_heap *heap)
{
    for (size_t i = 0; i < rows->n; i++)
        rn_free(heap, rows->rows[i].unused);
    rn_free(heap, rows->rows);
    *rows = (struct rn_arch_rows){0};
}
