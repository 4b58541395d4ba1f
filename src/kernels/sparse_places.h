/* For each byte of a sparse weight's mask, least significant bit first: the byte shuffle that moves up to eight values of 16
 * bits to their places. 128 gives 0, for pshufb as for tbl. */
#ifndef POME_KERNELS_SPARSE_PLACES_H
#define POME_KERNELS_SPARSE_PLACES_H

#include <stdint.h>

#define BIT(m, i) ((m) >> (i)&1)
#define BELOW0(m) 0
#define BELOW1(m) BIT(m, 0)
#define BELOW2(m) (BELOW1(m) + BIT(m, 1))
#define BELOW3(m) (BELOW2(m) + BIT(m, 2))
#define BELOW4(m) (BELOW3(m) + BIT(m, 3))
#define BELOW5(m) (BELOW4(m) + BIT(m, 4))
#define BELOW6(m) (BELOW5(m) + BIT(m, 5))
#define BELOW7(m) (BELOW6(m) + BIT(m, 6))
#define PLACE(m, i, below) BIT(m, i) ? 2 * (below) : 128, BIT(m, i) ? 2 * (below) + 1 : 128
#define ROW1(m)                                                                                                        \
    {                                                                                                                  \
        PLACE(m, 0, BELOW0(m)), PLACE(m, 1, BELOW1(m)), PLACE(m, 2, BELOW2(m)), PLACE(m, 3, BELOW3(m)),                \
            PLACE(m, 4, BELOW4(m)), PLACE(m, 5, BELOW5(m)), PLACE(m, 6, BELOW6(m)), PLACE(m, 7, BELOW7(m))             \
    }
#define ROW4(m) ROW1(m), ROW1((m) + 1), ROW1((m) + 2), ROW1((m) + 3)
#define ROW16(m) ROW4(m), ROW4((m) + 4), ROW4((m) + 8), ROW4((m) + 12)
#define ROW64(m) ROW16(m), ROW16((m) + 16), ROW16((m) + 32), ROW16((m) + 48)

static const uint8_t sparse_places[256][16] = {ROW64(0), ROW64(64), ROW64(128), ROW64(192)};

#undef BIT
#undef BELOW0
#undef BELOW1
#undef BELOW2
#undef BELOW3
#undef BELOW4
#undef BELOW5
#undef BELOW6
#undef BELOW7
#undef PLACE
#undef ROW1
#undef ROW4
#undef ROW16
#undef ROW64

#endif
