/* Model files that a test makes itself: a text says keys and shapes, a hash of integers gives the weights.
 *
 * A text is lines of words. A line that begins with '#' is a comment.
 *
 *     seed N                              other weights for the same shapes; 0
 *     vocabulary N                        tokens "tok_0", "tok_1", ... (tokenizer.ggml.*)
 *     key NAME TYPE VALUE...              TYPE: u32 i32 u64 f32 bool str, or an array of one: u32[] i32[]
 *                                         u64[] f32[] bool[] str[]
 *     blocks FROM TO                      of the tensors below with "%d" in their names, one each; TO is not one
 *     tensor NAME DIMS...                 fastest first, F32
 *     tensor NAME DIMS... = MIDDLE REACH  its values lie in [MIDDLE - REACH, MIDDLE + REACH)
 *     tensor NAME DIMS... ids N           I32: whole numbers below N
 *
 * Without that, weights of norms (one dimension) are 1 ± 0.25, biases 0 ± 0.2, all others 0 ± 2 / sqrt(columns), which
 * keeps the size of what they are multiplied with. Value i of a tensor is MIDDLE + REACH * u, where u in [-1, 1) is 24
 * bits of SplitMix64's finalizer (Steele et al. 2014) over seed, name and i; products and sums in float, each rounded
 * once: the same bits on every machine. */
#ifndef RN_TESTS_ORACLE_MADE_MODEL_H
#define RN_TESTS_ORACLE_MADE_MODEL_H

#include "../model/gguf_writer.h"

/* The GGUF file that the text at `path` describes. w is empty before; w_free after. Fails the test, with the number of
 * the line, where the text is wrong. */
void made_model_write(const char *path, struct writer *w);

#endif
