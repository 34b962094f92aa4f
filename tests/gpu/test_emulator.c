/* The emulator finds what it says it finds: each planted mistake by its sentence, and nothing in its neighbour. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/kernels/emulate/emulator.h"
#include "tests/gpu/rigs/planted.h"

struct room {
    struct rn_heap heap;
    struct rn_emulator *emulator;
    uint32_t *out; /* [64] */
    char fault[RN_EMULATED_FAULT_BYTES];
};

static int setup(void **state)
{
    static struct room room;

    rn_heap_init(&room.heap, NULL);
    room.emulator = rn_emulator_new(&room.heap);
    room.out = rn_alloc_aligned(&room.heap, 64 * sizeof *room.out, 256);
    *state = &room;
    return room.emulator == NULL || room.out == NULL;
}

static int teardown(void **state)
{
    struct room *room = *state;

    rn_emulator_free(room->emulator);
    rn_free(&room->heap, room->out);
    return rn_heap_bytes(&room->heap) != 0;
}

static bool launch(struct room *room, rn_emulated_kernel kernel, uint32_t blocks, uint32_t with_mistake)
{
    struct planted_args args = {(uint64_t)(uintptr_t)room->out, with_mistake};
    struct rn_emulated_range range = {args.out, 64 * sizeof *room->out};
    struct rn_launch form = {{blocks, 1, 1}, 64, 256};

    memset(room->out, 0, 64 * sizeof *room->out);
    return rn_emulator_launch(room->emulator, kernel, &form, &args, &range, 1, room->fault);
}

/* Twice, so that a launch behind a fault is a launch like any. */
static void planted(void **state)
{
    static const struct {
        const char *name, *says;
        rn_emulated_kernel kernel;
        uint32_t blocks;
    } cases[] = {
#define CASE(name, says) {#name, says, rn_kernel_##name, 1},
        PLANTED(CASE)
#undef CASE
#define CASE(name, says) {#name, says, rn_kernel_##name, 2},
            PLANTED_BETWEEN_BLOCKS(CASE)
#undef CASE
    };
    struct room *room = *state;
    uint32_t i;

    for (i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const char *name = cases[i / 2].name;

        if (!launch(room, cases[i / 2].kernel, cases[i / 2].blocks, 0))
            fail_msg("%s without its mistake: %s", name, room->fault);
        if (launch(room, cases[i / 2].kernel, cases[i / 2].blocks, 1))
            fail_msg("%s: the mistake is not found", name);
        if (strstr(room->fault, cases[i / 2].says) == NULL)
            fail_msg("%s: said is \"%s\"", name, room->fault);
    }
}

static void results(void **state)
{
    struct room *room = *state;
    uint32_t i;

    assert_true(launch(room, rn_kernel_shifts, 1, 0));
    for (i = 0; i < 64; i++)
        assert_int_equal(room->out[i], (i + 40) % 64);
    assert_true(launch(room, rn_kernel_half_a_shuffle, 1, 0));
    for (i = 0; i < 64; i++)
        assert_int_equal(room->out[i], i ^ 1);
    assert_true(launch(room, rn_kernel_counts, 1, 0)); /* 64 times 1, and the greatest of 5, 0, 3, .., 189 */
    for (i = 0; i < 64; i++)
        assert_int_equal(room->out[i], 64 + 189);
    assert_true(launch(room, rn_kernel_half_a_vote, 1, 0));
    for (i = 0; i < 64;
         i++) /* a bit for each third thread of the block; one of the first warp is 5, and all are below 32 */
        assert_int_equal(room->out[i], i < 32 ? UINT32_C(0x49249249) + 1 + 2 : UINT32_C(0x92492492));
    assert_true(launch(room, rn_kernel_blocks_count, 2, 0));
    assert_int_equal(room->out[0], 128);
    assert_int_equal(room->out[1], 63);
    assert_int_equal(room->out[2], 1);
    assert_true(launch(room, rn_kernel_copies, 1, 0));
}

/* What is launched a hundred times is looked at now and then. */
static void repeated(void **state)
{
    struct room *room = *state;
    uint32_t i, n_found = 0;

    for (i = 0; i < 100; i++)
        assert_true(launch(room, rn_kernel_blocks_write, 2, 0) && launch(room, rn_kernel_writes_again, 1, 0));
    for (i = 0; i < 32; i++)
        n_found += !launch(room, rn_kernel_blocks_write, 2, 1);
    assert_int_equal(n_found, 2);
    for (i = n_found = 0; i < 32; i++)
        n_found += !launch(room, rn_kernel_writes_again, 1, 1);
    assert_int_equal(n_found, 2);
}

/* Launches that no device has. */
static void bad_forms(void **state)
{
    static const struct rn_launch forms[] = {{{0, 1, 1}, 64, 0},  {{1, 70000, 1}, 64, 0}, {{1, 1, 1}, 0, 0},
                                             {{1, 1, 1}, 48, 0},  {{1, 1, 1}, 2048, 0},   {{1, 1, 1}, 64, 300 * 1024},
                                             {{1, 1, 0}, 64, 256}};
    struct planted_args args = {0, 0};
    struct room *room = *state;
    uint32_t i;

    for (i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        assert_false(rn_emulator_launch(room->emulator, rn_kernel_shifts, &forms[i], &args, NULL, 0, room->fault));
        assert_non_null(strstr(room->fault, "a launch of"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted),
        cmocka_unit_test(results),
        cmocka_unit_test(repeated),
        cmocka_unit_test(bad_forms),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
