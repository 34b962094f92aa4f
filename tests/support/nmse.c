/* How far logits or features are from what is expected: see nmse.h. */
#include "tests/support/nmse.h"

#include <float.h>
#include <math.h>

double nmse(const float *got, const float *want, size_t n)
{
    double error = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        if (got[i] == -INFINITY && (want[i] == -INFINITY || want[i] == -FLT_MAX))
            continue;
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    return error / norm;
}
