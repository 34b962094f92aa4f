/* The blocks of a sequence's layers with windows, where these lie in blocks of their own (rn_backend_limits.window).
 *
 *     index    0 .... from ...... to ........................... n
 *              gone | held by a checkpoint | passed | window | rows to come
 *                                             └──── goes on ────▶ at the end
 *
 * A block that no row looks at any more becomes the next one at the table's end. What a checkpoint holds does not: it
 * stays as it is, and there are as many more from the beginning. Which block stands where follows from the table that
 * the sequence began with alone, not from when it went on: so the tier, which keeps a copy of that, knows it without
 * asking. */
#ifndef RN_ACTORS_WINDOWS_H
#define RN_ACTORS_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

enum { RN_WINDOWS_HELD = 3 }; /* where it began, and two that it leaves */

struct rn_windows {
    uint32_t *blocks; /* [n], with room for as many as the longest sequence has; NULL: there are none */
    uint32_t n;
    uint32_t n_passed; /* the first ones: no row looks at them any more */
    struct rn_windows_held {
        uint32_t from, to;
    } held[RN_WINDOWS_HELD]; /* [n_held] */
    uint32_t n_held;
};

/* No row looks at blocks before `first` any more; the sequence never has more than `all` of them. */
void rn_windows_go_on(struct rn_windows *windows, uint32_t first, uint32_t all);

/* Passed blocks have gone on, or are held; all others are there. */
bool rn_windows_check(const struct rn_windows *windows);

#endif
