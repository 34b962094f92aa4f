/* A library with the symbols of libcuda.so.1, behind which is the driver that the test puts there. */
#include "tests/gpu/rigs/stub_driver.h"

struct rn_gpu_driver *stub_driver;

#define STUB_WITH(...) (stub_driver, __VA_ARGS__)
#define RN_GPU_CALL(name, symbol, parameters, arguments)          \
    __attribute__((visibility("default"))) int symbol parameters; \
    int symbol parameters                                         \
    {                                                             \
        return stub_driver->name STUB_WITH arguments;             \
    }
#include "gpu/driver.def"
