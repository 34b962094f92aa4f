/* See changed_model.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/heads/head.h"
#include "model/plan.h"
#include "model/quant/quant.h"
#include "tests/oracle/changed_model.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"

enum { FRONT = 1 << 18, ROOM = 4 << 20 };

/* ---- The file ---- */

static size_t tensor_bytes(const struct edit_tensor *tensor)
{
    size_t n = 1;

    for (uint32_t i = 0; i < tensor->n_dims; i++)
        n *= (size_t)tensor->dims[i];
    return rn_type_bytes(rn_type(tensor->type), n);
}

static void place_weights(struct changed_model *m)
{
    size_t n = 0;

    for (uint32_t i = 0; i < m->edit.n_tensors; i++) {
        m->at[i] = n;
        n += (m->edit.tensors[i].bytes + 31) / 32 * 32;
    }
    m->weights = FRONT;
    m->end = FRONT + n;
    m->image = calloc(1, m->end + ROOM);
    assert_non_null(m->image);
    for (uint32_t i = 0; i < m->edit.n_tensors; i++)
        memcpy(m->image + FRONT + m->at[i], m->edit.tensors[i].data, m->edit.tensors[i].bytes);
}

void changed_open(struct changed_model *m, const char *name)
{
    const char *ending = strrchr(name, '.');

    memset(m, 0, sizeof *m);
    m->name = name;
    m->without_key = m->without_tensor = UINT32_MAX;
    rn_heap_init(&m->heap, NULL);
    if (ending != NULL && strcmp(ending, ".txt") == 0) {
        made_model_write(name, &m->file);
        assert_int_equal(rn_gguf_parse(&m->heap, m->file.bytes, m->file.n, name, &m->gguf, &m->error), RUNNEL_OK);
    } else {
        assert_int_equal(rn_gguf_open(&m->heap, shared_path(name), &m->gguf, &m->error), RUNNEL_OK);
    }
    edit_from(&m->edit, m->gguf);
    place_weights(m);
    if (changed_plan(m, false) != RUNNEL_OK)
        fail_msg("%s", m->error.message);
}

void changed_close(struct changed_model *m)
{
    rn_gguf_free(m->gguf);
    w_free(&m->file);
    w_free(&m->header);
    free(m->image);
    assert_int_equal(rn_heap_blocks(&m->heap), 0);
}

static void write_keys(struct changed_model *m)
{
    for (uint32_t i = 0; i < m->edit.n_keys; i++) {
        const struct edit_key *key = &m->edit.keys[i];

        if (i == m->without_key)
            continue;
        w_key(&m->header, key->name, key->type);
        if (key->type == RN_GGUF_ARRAY) {
            w_u32(&m->header, key->item);
            w_u64(&m->header, key->count);
        }
        w_raw(&m->header, key->data == NULL ? key->own : key->data, key->bytes);
    }
}

/* A tensor that has grown lies behind the others. The file's end. */
static size_t write_directory(struct changed_model *m)
{
    size_t end = m->end;

    for (uint32_t i = 0; i < m->edit.n_tensors; i++) {
        const struct edit_tensor *t = &m->edit.tensors[i];
        size_t bytes = tensor_bytes(t);
        uint64_t at = m->at[i];

        if (i == m->without_tensor)
            continue;
        if (bytes > t->bytes) {
            at = end - m->weights;
            end += (bytes + 31) / 32 * 32;
        }
        w_tensor(&m->header, t->name, t->n_dims, t->dims, t->type, at);
    }
    return end;
}

/* Writes the header for itself; the file's end in the image. */
static size_t write_header(struct changed_model *m)
{
    const bool less_keys = m->without_key != UINT32_MAX, less_tensors = m->without_tensor != UINT32_MAX;
    size_t end;

    m->header.n = 0;
    w_header(&m->header, 3, m->edit.n_tensors - less_tensors, m->edit.n_keys - less_keys);
    write_keys(m);
    end = write_directory(m);
    w_align(&m->header, 32);
    return end;
}

bool changed_fits(struct changed_model *m)
{
    size_t end = write_header(m);

    return m->header.n <= FRONT && end <= m->end + ROOM;
}

/* Where the file begins in the image; *n: its bytes. */
static const char *write_image(struct changed_model *m, size_t *n)
{
    size_t end = write_header(m);

    assert_true(m->header.n <= FRONT && end <= m->end + ROOM);
    *n = end - m->weights + m->header.n;
    return memcpy(m->image + m->weights - m->header.n, m->header.bytes, m->header.n);
}

runnel_status changed_plan(struct changed_model *m, bool nextn)
{
    struct rn_gguf *gguf = NULL;
    struct rn_plan *plan = NULL;
    size_t before = rn_heap_blocks(&m->heap), n;
    const char *bytes = write_image(m, &n);
    runnel_status status;

    memset(&m->error, 0, sizeof m->error);
    status = rn_gguf_parse(&m->heap, bytes, n, "changed.gguf", &gguf, &m->error);
    if (status == RUNNEL_OK)
        status = nextn ? rn_plan_new_nextn(&m->heap, gguf, 0, 0, &plan, &m->error)
                       : rn_plan_new(&m->heap, gguf, 0, &plan, &m->error);
    assert_true((status == RUNNEL_OK) == (plan != NULL));
    assert_int_equal(status, m->error.status);
    assert_true(plan == NULL || rn_plan_check(plan));
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    assert_int_equal(rn_heap_blocks(&m->heap), before);
    return status;
}

/* ---- Changes ---- */

static const uint32_t small[8] = {1, 0, 3, 0, 2, 1, 64, 7}, huge[8] = {UINT32_MAX, 0x7fffffff, UINT32_MAX, UINT32_MAX};
static const uint32_t many[3000];
static const int32_t below[8] = {-1, -1, 0, -7, -1, -1, -1, -1};
static const float numbers[8] = {NAN, -1, 0, 1e30f, INFINITY, 1, -0.0f, 1e-30f};
static const double wide_numbers[] = {-DBL_MAX, NAN};
static const int64_t wide[] = {INT64_MIN, INT64_MAX, 1ll << 32};
static const char text[] = {4, 0, 0, 0, 0, 0, 0, 0, 't', 'e', 'x', 't', 0, 0, 0, 0, 0, 0, 0, 0};

#define ONE(tag, at)                                                                  \
    {                                                                                 \
        .type = (tag), .item = (tag), .count = 1, .data = (at), .bytes = sizeof *(at) \
    }
#define ARRAY(tag, n, at)                                                                             \
    {                                                                                                 \
        .type = RN_GGUF_ARRAY, .item = (tag), .count = (n), .data = (at), .bytes = (n) * sizeof *(at) \
    }

static const struct changed_value values[] = {
    {"a text", {.type = RN_GGUF_STRING, .item = RN_GGUF_STRING, .count = 1, .data = text, .bytes = 12}, false},
    {"an empty array", ARRAY(RN_GGUF_U32, 0, small), false},
    {"0", ONE(RN_GGUF_U32, &small[1]), false},
    {"1", ONE(RN_GGUF_U32, &small[0]), false},
    {"3", ONE(RN_GGUF_U32, &small[2]), false},
    {"64", ONE(RN_GGUF_U32, &small[6]), false},
    {"2^31 - 1", ONE(RN_GGUF_U32, &huge[1]), false},
    {"2^32 - 1", ONE(RN_GGUF_U32, &huge[0]), false},
    {"2^32", ONE(RN_GGUF_U64, &wide[2]), false},
    {"2^63 - 1", ONE(RN_GGUF_U64, &wide[1]), false},
    {"-1", ONE(RN_GGUF_I32, &below[0]), true},
    {"-2^63", ONE(RN_GGUF_I64, &wide[0]), true},
    {"not a number", ONE(RN_GGUF_F32, &numbers[0]), true},
    {"-1.0", ONE(RN_GGUF_F32, &numbers[1]), false},
    {"0.0", ONE(RN_GGUF_F32, &numbers[2]), false},
    {"1e30", ONE(RN_GGUF_F32, &numbers[3]), false},
    {"1e-30", ONE(RN_GGUF_F32, &numbers[7]), false},
    {"infinite", ONE(RN_GGUF_F32, &numbers[4]), true},
    {"-1.8e308", ONE(RN_GGUF_F64, &wide_numbers[0]), true},
    {"a truth value", ONE(RN_GGUF_BOOL, (const unsigned char *)small), false},
    {"an array of one", ARRAY(RN_GGUF_U32, 1, small), false},
    {"an array of small numbers", ARRAY(RN_GGUF_U32, 8, small), false},
    {"an array of huge numbers", ARRAY(RN_GGUF_U32, 8, huge), false},
    {"an array of negative numbers", ARRAY(RN_GGUF_I32, 8, below), false},
    {"a long array", ARRAY(RN_GGUF_U32, 3000, many), false},
    {"an array of floats", ARRAY(RN_GGUF_F32, 8, numbers), false},
    {"an array of truth values", ARRAY(RN_GGUF_BOOL, 32, (const unsigned char *)small), false},
    {"an array of texts",
     {.type = RN_GGUF_ARRAY, .item = RN_GGUF_STRING, .count = 2, .data = text, .bytes = sizeof text},
     false},
};

const struct changed_value *changed_value(uint32_t index)
{
    return index < sizeof values / sizeof values[0] ? &values[index] : NULL;
}

/* Rows of whole blocks, where the type has blocks. */
static bool retype(struct edit_tensor *tensor, uint32_t type)
{
    if (tensor->type == type || tensor->dims[0] % rn_type(type)->elements != 0)
        return false;
    tensor->type = type;
    return true;
}

bool changed_tensor(struct edit_tensor *tensor, uint32_t index)
{
    uint64_t cols = tensor->dims[0];

    switch (index) {
    case 0:
        tensor->dims[0] += 32;
        return true;
    case 1:
        tensor->dims[1] += 1;
        tensor->n_dims = tensor->n_dims < 2 ? 2 : tensor->n_dims;
        return true;
    case 2:
        tensor->dims[2] += 1;
        tensor->n_dims = tensor->n_dims < 3 ? 3 : tensor->n_dims;
        return true;
    case 3:
        tensor->dims[0] = tensor->dims[1];
        tensor->dims[1] = cols;
        tensor->n_dims = tensor->n_dims < 2 ? 2 : tensor->n_dims;
        return cols != tensor->dims[0];
    case 4:
        tensor->dims[0] = 1;
        return cols != 1 && tensor->type == RN_F32;
    case 5:
        return retype(tensor, RN_F16);
    case 6:
        return retype(tensor, RN_Q8_0);
    case 7:
        return retype(tensor, RN_I32);
    case 8:
        return retype(tensor, RN_F64);
    case 9:
        return retype(tensor, RN_Q8_K);
    }
    return false;
}
