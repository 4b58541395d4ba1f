/* The generic loop in vectors of eight: the same operations in the same order, and no fused multiply-adds, so every
 * level gives the same bits. */
#include "kernels/vecmath.h"
#include "kernels/x86/avx2.h"

void pome_silu_mul_f32_avx2(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] * pome_sigmoidf(gate[i]) * up[i];
}
