/* make_cache DIR CHAINS DEPTH [hold]: a cache folder of CHAINS x DEPTH records in closed form, chain c under the salt
 * c % 3. hold: it says so on standard output, and stays a writer until standard input ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cache/cold_fixture.h"

static void fill(struct rn_cold_store *store, uint32_t chains, uint32_t depth)
{
    for (uint32_t c = 0; c < chains; c++) {
        uint64_t handle = 0;

        for (uint32_t d = 0; d < depth; d++) {
            struct cold_key key = {c, d, c % 3};
            uint8_t payload[COLD_MOST_PAYLOAD];
            int32_t tokens[COLD_B];

            cold_tokens(key, tokens);
            if (rn_tier_store_put(rn_cold_store_tier(store),
                                  &(struct rn_tier_key){handle, (struct rn_prefix_salt){{c % 3, 0}}, tokens}, payload,
                                  cold_payload(key, payload), &handle) != RUNNEL_OK)
                exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    const struct rn_cold_limits limits = {.max_bytes = 64 << 20, .segment_bytes = 4 << 10};
    struct rn_tier_id id = cold_id();
    struct rn_cold_store *store;
    struct rn_heap heap;

    if (argc < 4)
        return 2;
    rn_heap_init(&heap, NULL);
    if (rn_cold_store_open(&heap, NULL, argv[1], &id, &limits, NULL, NULL, &store, NULL) != RUNNEL_OK)
        return 1;
    fill(store, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    if (argc > 4) {
        puts("held");
        fflush(stdout);
        while (getchar() != EOF)
            continue;
    }
    rn_cold_store_close(store);
    return 0;
}
