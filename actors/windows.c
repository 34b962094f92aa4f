/* Blocks of layers with windows: see windows.h. */
#include "actors/windows.h"

#include "base/check.h"
#include "model/backend.h"

static bool is_held(const struct rn_windows *windows, uint32_t i)
{
    for (uint32_t k = 0; k < windows->n_held; k++)
        if (i >= windows->held[k].from && i < windows->held[k].to)
            return true;
    return false;
}

void rn_windows_go_on(struct rn_windows *windows, uint32_t first, uint32_t all)
{
    while (windows->n_passed < first && windows->n < all) {
        uint32_t i = windows->n_passed++;

        RN_ASSERT(i < windows->n && windows->blocks[i] != RN_NO_BLOCK);
        if (is_held(windows, i))
            continue;
        windows->blocks[windows->n++] = windows->blocks[i];
        windows->blocks[i] = RN_NO_BLOCK;
    }
}

bool rn_windows_check(const struct rn_windows *windows)
{
    if (windows->n_passed > windows->n || windows->n_held > RN_WINDOWS_HELD ||
        (windows->n > 0) > (windows->blocks != NULL))
        return false;
    for (uint32_t i = windows->n_passed; i < windows->n; i++)
        if (windows->blocks[i] == RN_NO_BLOCK)
            return false;
    return true;
}
