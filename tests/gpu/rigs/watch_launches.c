/* See watch_launches.h. */
#include "tests/gpu/rigs/watch_launches.h"

#include "gpu/backend.h"

static struct rn_gpu_driver whole;
static unsigned longest, launches;

static int watch(struct rn_gpu_driver *driver, const struct rn_gpu_launch_config *config,
                 struct rn_gpu_function *function, void **arguments, void **extra)
{
    launches++;
    longest = config->grid[2] > longest ? config->grid[2] : longest;
    return whole.launch_config(driver, config, function, arguments, extra);
}

void watch_launches(struct rn_device *device)
{
    struct rn_gpu_driver *driver = ((struct rn_gpu_device *)device)->driver;

    if (driver->launch_config != watch)
        whole = *driver;
    longest = launches = 0;
    driver->launch_config = watch;
}

unsigned n_launches(void)
{
    return launches;
}

unsigned longest_grid(void)
{
    return longest;
}
