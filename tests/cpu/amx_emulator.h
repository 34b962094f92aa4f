/* The matrix unit of AMX for processors with AVX-512 that have none: its instructions trap, and a handler of the signal
 * does what they say. So the products and the attention of cpu/levels/amx are tested on most machines.
 *
 * Logits that test_orders.c had from a Sapphire Rapids, of products and of attention, had the same bits emulated
 * (112bba65). */
#ifndef RN_TESTS_CPU_AMX_EMULATOR_H
#define RN_TESTS_CPU_AMX_EMULATOR_H

/* From here on rn_level_amx gives the level, and takes the signal, which cmocka takes for each test. Does nothing where
 * the processor has the unit; where it lacks AVX-512 there is no level all the same. */
void emulate_amx(void);

/* The same, for tests of products; not under sanitizers. Products are not instrumented, and what they touch beside
 * their operands guarded pages show in each build (products_rig.h): there a sanitizer sees what other levels show as
 * well. */
void emulate_amx_for_products(void);

#endif
