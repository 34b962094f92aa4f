/* Accesses to global memory by several blocks of a launch: which of them the emulation calls a race. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "gpu/kernels/emulate/races.h"

enum { AT = 1 << 20, PAGE = 4096, BYTES = 24 };

struct race_case {
    uint64_t first, second; /* addresses of what two blocks touch, BYTES each */
    enum rn_emulated_touch touches[2];
    enum rn_race race; /* that the second is */
};

static void cases(void **state)
{
    static const struct race_case list[] = {
        {AT, AT, {RN_EMULATED_READ, RN_EMULATED_READ}, RN_RACE_NONE},
        {AT, AT, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_WRITTEN},
        {AT, AT, {RN_EMULATED_READ, RN_EMULATED_WRITE}, RN_RACE_READ},
        {AT, AT + BYTES, {RN_EMULATED_WRITE, RN_EMULATED_WRITE}, RN_RACE_NONE},
        /* the first ends in the next page */
        {AT + PAGE - 8, AT + PAGE + 8, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_WRITTEN},
        {AT + PAGE - 8, AT + PAGE - 24, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_WRITTEN},
        {AT + PAGE - 8, AT + PAGE + 16, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_NONE},
        {AT + PAGE - 8, AT + PAGE - 32, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_NONE},
        /* a part of a word */
        {AT + PAGE - 7, AT + PAGE + 16, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_WRITTEN},
        {AT + PAGE - 7, AT + PAGE + 17, {RN_EMULATED_WRITE, RN_EMULATED_READ}, RN_RACE_NONE},
    };
    struct rn_heap heap;
    struct rn_races *races;

    (void)state;
    rn_heap_init(&heap, NULL);
    races = rn_races_new(&heap);
    assert_non_null(races);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        rn_races_launch(races, 2);
        rn_races_block(races);
        assert_int_equal(rn_races_touch(races, list[i].first, BYTES, list[i].touches[0]), RN_RACE_NONE);
        rn_races_block(races);
        assert_int_equal(rn_races_touch(races, list[i].second, BYTES, list[i].touches[1]), list[i].race);
    }
    rn_races_free(races);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
