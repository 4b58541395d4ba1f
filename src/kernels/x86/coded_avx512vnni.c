/* Products of coded weights with int8 activations for AVX-512 VNNI. */
#include "kernels/x86/coded_avx512.h"

ALWAYS_INLINE __m512i dot4(__m512i acc, __m512i u, __m512i s)
{
    return _mm512_dpbusd_epi32(acc, u, s);
}

CODED_TIMES(times_i4, POME_CODES_I4)
CODED_TIMES(times_u4, POME_CODES_U4)
CODED_TIMES(times_i8, POME_CODES_I8)
CODED_TIMES(times_u8, POME_CODES_U8)
CODED_TIMES(times_lut4, POME_CODES_LUT4)

void pome_kernels_fill_coded_avx512vnni(pome_kernels *k)
{
    k->coded[POME_CODES_I4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_i4};
    k->coded[POME_CODES_U4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_u4};
    k->coded[POME_CODES_I8] = (pome_coded_kernels){q8_size, q8_set_plain, scratch_size, times_i8};
    k->coded[POME_CODES_U8] = (pome_coded_kernels){q8_size, q8_set_plain, scratch_size, times_u8};
    k->coded[POME_CODES_LUT4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_lut4};
}
