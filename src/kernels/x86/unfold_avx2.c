/* Unfolding of eight columns at a time. Which lanes a run fills is the same for all rows: loads are masked by it, so that padding and
 * the ends of the image's rows cost no branches, and loads of several runs are joined. */
#include "kernels/x86/avx2.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { LANES = 8 };

/* What one run gives to a vector of columns: the lanes of one load for stride 1, of two that follow each other for stride 2. */
typedef struct part {
    ptrdiff_t at;
    __m256i mask[2];
} part;

/* Lanes [begin, end) of those numbered from `first` on; with stride 2 only even ones. */
static __m256i lanes_of(int first, int begin, int end, size_t stride)
{
    const __m256i lane = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                     _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
    return stride == 1 ? in : _mm256_and_si256(in, _mm256_setr_epi32(-1, 0, -1, 0, -1, 0, -1, 0));
}

/* parts[LANES] of columns [column, column + 8). */
static size_t find_parts(const pome_panel_run *runs, size_t n_runs, size_t column, size_t stride, part *parts)
{
    size_t n = 0;
    for (size_t r = 0; r < n_runs; r++) {
        size_t begin = runs[r].to > column ? runs[r].to : column, end = runs[r].to + runs[r].n;
        end = end < column + LANES ? end : column + LANES;
        if (begin >= end)
            continue;
        int b = (int)((begin - column) * stride), e = (int)((end - 1 - column) * stride) + 1;
        parts[n++] = (part){runs[r].from + ((ptrdiff_t)column - (ptrdiff_t)runs[r].to) * (ptrdiff_t)stride,
                            {lanes_of(0, b, e, stride), lanes_of(LANES, b, e, stride)}};
    }
    return n;
}

/* n_parts and stride are constants where it is called, or n_parts is large. */
ALWAYS_INLINE void column_of(float *to, size_t ld, const float *x, size_t ldx, size_t m, const part *parts, size_t n_parts,
                             size_t stride)
{
    for (size_t i = 0; i < m; i++, to += ld, x += ldx) {
        __m256 low = _mm256_setzero_ps(), high = low;
        for (size_t p = 0; p < n_parts; p++) {
            low = _mm256_or_ps(low, _mm256_maskload_ps(x + parts[p].at, parts[p].mask[0]));
            if (stride == 2)
                high = _mm256_or_ps(high, _mm256_maskload_ps(x + parts[p].at + LANES, parts[p].mask[1]));
        }
        if (stride == 2)
            low = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)), 0xd8));
        _mm256_storeu_ps(to, low);
    }
}

ALWAYS_INLINE void columns_of(float *to, size_t ld, const float *x, size_t ldx, size_t m, const pome_panel_run *runs,
                              size_t n_runs, size_t stride)
{
    part parts[LANES];
    for (size_t column = 0; column < POME_PANEL; column += LANES) {
        size_t n = find_parts(runs, n_runs, column, stride, parts);
        switch (n) {
        case 0: column_of(to + column, ld, x, ldx, m, parts, 0, stride); break;
        case 1: column_of(to + column, ld, x, ldx, m, parts, 1, stride); break;
        case 2: column_of(to + column, ld, x, ldx, m, parts, 2, stride); break;
        default: column_of(to + column, ld, x, ldx, m, parts, n, stride); break;
        }
    }
}

void pome_unfold_panel_f32_avx2(float *panel, size_t ld, const float *x, size_t ldx, size_t m, const pome_panel_run *runs,
                                size_t n_runs, size_t stride)
{
    if (stride == 1)
        columns_of(panel, ld, x, ldx, m, runs, n_runs, 1);
    else if (stride == 2)
        columns_of(panel, ld, x, ldx, m, runs, n_runs, 2);
    else
        pome_unfold_panel_f32_generic(panel, ld, x, ldx, m, runs, n_runs, stride);
}
