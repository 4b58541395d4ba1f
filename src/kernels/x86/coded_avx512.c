/* Products of 4-bit weights with int8 activations for AVX-512 without VNNI: pairs of products fit in 16 bits because
 * codes do not exceed 15. Weights in bytes would not, and stay with AVX2. */
#include "kernels/x86/coded_avx512.h"

ALWAYS_INLINE __m512i dot4(__m512i acc, __m512i u, __m512i s)
{
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(u, s), _mm512_set1_epi16(1)));
}

CODED_TIMES(times_i4, POME_CODES_I4)
CODED_TIMES(times_u4, POME_CODES_U4)

void pome_kernels_fill_coded_avx512(pome_kernels *k)
{
    k->coded[POME_CODES_I4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_i4};
    k->coded[POME_CODES_U4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_u4};
}
