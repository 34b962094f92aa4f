/* Files of LoRA adapters with random numbers, for tests. */
#ifndef RN_TESTS_MODEL_ADAPTER_FILE_H
#define RN_TESTS_MODEL_ADAPTER_FILE_H

#include "gguf_writer.h"

/* The head of one, with the names that llama.cpp's converter gives its keys; n_tensors follow. alpha 0: there is no
 * such key. */
void adapter_file_head(struct writer *w, const char *architecture, uint64_t n_tensors, float alpha);

/* Writes to `path` an adapter for the model at `model`, of all matrices of its blocks: of this rank, alpha twice that,
 * and other numbers for each seed. What it adds to a product is about a third of the product. Fails the test on any
 * error. */
void adapter_file_write(const char *path, const char *model, uint64_t seed, uint32_t rank);

/* The same of n matrices alone, each of which the model has. */
void adapter_file_write_of(const char *path, const char *model, const char *const *names, uint32_t n, uint64_t seed,
                           uint32_t rank);

#endif
