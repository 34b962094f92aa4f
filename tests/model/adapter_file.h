/* Files of LoRA adapters with random numbers, for tests. */
#ifndef RN_TESTS_MODEL_ADAPTER_FILE_H
#define RN_TESTS_MODEL_ADAPTER_FILE_H

#include <stdint.h>

/* Writes to `path` an adapter for the model at `model`, of all matrices of its blocks: of this rank, alpha twice that,
 * and other numbers for each seed. What it adds to a product is about a third of the product. Fails the test on any
 * error. */
void adapter_file_write(const char *path, const char *model, uint64_t seed, uint32_t rank);

#endif
