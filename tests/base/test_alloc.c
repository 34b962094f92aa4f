/* The heap: what the hook sees, what it may refuse, alignment, overflow, and that the books close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"

/* A hook that counts, checks sizes on free, and refuses the n-th call. */
struct hook {
    int64_t bytes;
    int64_t blocks;
    int64_t refuse_in; /* the call that is refused, counted down; negative: none */
    size_t last_bytes;
    size_t last_alignment;
};

struct prefix { /* lies at the start of the hook's own block */
    size_t bytes;
    void *raw;
};

static void *hook_alloc(void *user, size_t bytes, size_t alignment)
{
    struct hook *hook = (struct hook *)user;
    char *raw, *ptr;

    hook->last_bytes = bytes;
    hook->last_alignment = alignment;
    if (hook->refuse_in == 0 || bytes > SIZE_MAX / 4)
        return NULL;
    hook->refuse_in -= hook->refuse_in > 0;
    raw = (char *)malloc(bytes + alignment + sizeof(struct prefix));
    assert_non_null(raw);
    ptr = (char *)(((uintptr_t)raw + sizeof(struct prefix) + alignment - 1) & ~(uintptr_t)(alignment - 1));
    memcpy(ptr - sizeof(struct prefix), &(struct prefix){bytes, raw}, sizeof(struct prefix));
    hook->bytes += (int64_t)bytes;
    hook->blocks++;
    return ptr;
}

static void hook_free(void *user, void *ptr, size_t bytes)
{
    struct hook *hook = (struct hook *)user;
    struct prefix prefix;

    memcpy(&prefix, (char *)ptr - sizeof prefix, sizeof prefix);
    assert_int_equal(prefix.bytes, bytes); /* the same size back */
    hook->bytes -= (int64_t)bytes;
    hook->blocks--;
    free(prefix.raw);
}

static void hooked(struct rn_heap *heap, struct hook *hook)
{
    runnel_allocator allocator = {hook_alloc, hook_free, hook};

    *hook = (struct hook){.refuse_in = -1};
    rn_heap_init(heap, &allocator);
}

static void assert_closed(const struct rn_heap *heap, const struct hook *hook)
{
    assert_int_equal(rn_heap_bytes(heap), 0);
    assert_int_equal(rn_heap_blocks(heap), 0);
    assert_int_equal(hook->bytes, 0);
    assert_int_equal(hook->blocks, 0);
}

static void test_counts(void **state)
{
    struct hook hook;
    struct rn_heap heap;
    char *a, *b, *c;

    (void)state;
    hooked(&heap, &hook);
    a = (char *)rn_alloc(&heap, 10, 10);
    b = (char *)rn_calloc(&heap, 7, 3);
    c = rn_strndup(&heap, "runnel", 3);
    assert_int_equal(rn_heap_bytes(&heap), 100 + 21 + 4);
    assert_int_equal(rn_heap_blocks(&heap), 3);
    for (int i = 0; i < 21; i++)
        assert_int_equal(b[i], 0);
    assert_string_equal(c, "run");
    memset(a, 0xff, 100);
    rn_free(&heap, a);
    rn_free(&heap, b);
    rn_free(&heap, c);
    rn_free(&heap, NULL);
    assert_closed(&heap, &hook);
}

static void test_zero_is_a_block(void **state)
{
    struct hook hook;
    struct rn_heap heap;
    void *a, *b;

    (void)state;
    hooked(&heap, &hook);
    a = rn_alloc(&heap, 0, 8);
    b = rn_alloc(&heap, 8, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    rn_free(&heap, a);
    rn_free(&heap, b);
    assert_closed(&heap, &hook);
}

static void test_alignment(void **state)
{
    struct hook hook;
    struct rn_heap heap;

    (void)state;
    hooked(&heap, &hook);
    for (size_t alignment = 1; alignment <= (1u << 21); alignment *= 2) {
        for (size_t bytes = 0; bytes < 200; bytes += 67) {
            void *ptr = rn_alloc_aligned(&heap, bytes, alignment);

            assert_non_null(ptr);
            assert_int_equal((uintptr_t)ptr % alignment, 0);
            assert_int_equal((uintptr_t)ptr % 16, 0);
            memset(ptr, 0xff, bytes);
            rn_free(&heap, ptr);
        }
    }
    assert_closed(&heap, &hook);
}

static void test_refusal(void **state)
{
    struct hook hook;
    struct rn_heap heap;
    void *kept;

    (void)state;
    hooked(&heap, &hook);
    kept = rn_alloc(&heap, 4, 4);
    memset(kept, 7, 16);
    hook.refuse_in = 0;
    assert_null(rn_alloc(&heap, 1, 1));
    assert_null(rn_calloc(&heap, 1, 1));
    assert_null(rn_alloc_aligned(&heap, 1, 4096));
    assert_null(rn_strndup(&heap, "x", 1));
    assert_null(rn_realloc(&heap, NULL, 1, 1));
    assert_null(rn_realloc(&heap, kept, 100, 1)); /* the old block stays */
    assert_int_equal(rn_heap_bytes(&heap), 16);
    for (int i = 0; i < 16; i++)
        assert_int_equal(((char *)kept)[i], 7);
    rn_free(&heap, kept);
    assert_closed(&heap, &hook);
}

static void test_overflow(void **state)
{
    struct hook hook;
    struct rn_heap heap;
    size_t out = 42;

    (void)state;
    hooked(&heap, &hook);
    assert_null(rn_alloc(&heap, SIZE_MAX / 2 + 1, 2));
    assert_null(rn_calloc(&heap, SIZE_MAX, SIZE_MAX));
    assert_null(rn_realloc(&heap, NULL, (size_t)1 << 33, (size_t)1 << 33));
    assert_null(rn_alloc_aligned(&heap, SIZE_MAX - 10, 64)); /* the header does not fit */
    assert_null(rn_strndup(&heap, "x", SIZE_MAX));
    assert_int_equal(hook.last_bytes, 0); /* none of them reached the hook */
    assert_false(rn_mul_size(SIZE_MAX, 2, &out));
    assert_false(rn_add_size(SIZE_MAX, 1, &out));
    assert_int_equal(out, 42);
    assert_true(rn_mul_size(6, 7, &out) && out == 42 && rn_add_size(40, 2, &out) && out == 42);
    assert_closed(&heap, &hook);
}

/* Random grow, shrink and free against the content that each block must keep. */
static void test_realloc_keeps_content(void **state)
{
    enum { SLOTS = 16, STEPS = 3000 };
    struct hook hook;
    struct rn_heap heap;
    unsigned char *ptr[SLOTS] = {0};
    size_t bytes[SLOTS] = {0}, sum = 0;
    uint64_t rng = 1;

    (void)state;
    hooked(&heap, &hook);
    for (int step = 0; step < STEPS; step++) {
        uint64_t draw = rn_splitmix64(&rng);
        size_t slot = draw % SLOTS, want = (draw >> 8) % 300, keep = want < bytes[slot] ? want : bytes[slot];

        ptr[slot] = (unsigned char *)rn_realloc(&heap, ptr[slot], want, 1);
        assert_non_null(ptr[slot]);
        for (size_t i = 0; i < keep; i++)
            assert_int_equal(ptr[slot][i], (unsigned char)(slot + i));
        for (size_t i = 0; i < want; i++)
            ptr[slot][i] = (unsigned char)(slot + i);
        sum += want - bytes[slot];
        bytes[slot] = want;
        assert_int_equal(rn_heap_bytes(&heap), sum);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        rn_free(&heap, ptr[slot]);
    assert_closed(&heap, &hook);
}

static void test_default_heap(void **state)
{
    struct rn_heap heap;
    char *ptr;

    (void)state;
    rn_heap_init(&heap, NULL);
    ptr = (char *)rn_alloc_aligned(&heap, 1000, 4096);
    assert_non_null(ptr);
    assert_int_equal((uintptr_t)ptr % 4096, 0);
    memset(ptr, 1, 1000);
    rn_free(&heap, ptr);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_zero_is_a_block),
        cmocka_unit_test(test_alignment),    cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_overflow),     cmocka_unit_test(test_realloc_keeps_content),
        cmocka_unit_test(test_default_heap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
