/* A library that has next to none of the symbols of libcuda.so.1. */
__attribute__((visibility("default"))) int cuInit(unsigned flags);

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}
