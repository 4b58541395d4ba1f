/* Where operators on images take their samples along one axis. */
#ifndef POME_OPS_GRID_H
#define POME_OPS_GRID_H

#include <math.h>
#include <string.h>

typedef enum pome_sampling {
    POME_SAMPLING_DEFAULT = 0,
    POME_SAMPLING_STRICT_ALIGN_CORNERS,
    POME_SAMPLING_ALIGN_CORNERS,
    POME_SAMPLING_OFFSET_CORNERS,
    POME_SAMPLING_UNALIGN_CORNERS
} pome_sampling;

static inline pome_sampling pome_sampling_named(const char *word)
{
    return strcmp(word, "STRICT_ALIGN_CORNERS") == 0 ? POME_SAMPLING_STRICT_ALIGN_CORNERS
           : strcmp(word, "ALIGN_CORNERS") == 0      ? POME_SAMPLING_ALIGN_CORNERS
           : strcmp(word, "OFFSET_CORNERS") == 0     ? POME_SAMPLING_OFFSET_CORNERS
           : strcmp(word, "UNALIGN_CORNERS") == 0    ? POME_SAMPLING_UNALIGN_CORNERS
                                                     : POME_SAMPLING_DEFAULT;
}

/* Position i of n over the interval [0, n_in - 1], not clamped to it. n_in may be a fraction (boxes). Source: the
 * definition of resize_bilinear in coremltools 9. */
static inline double pome_grid_at(pome_sampling mode, double n_in, double n, double i)
{
    switch (mode) {
    case POME_SAMPLING_STRICT_ALIGN_CORNERS:
        return n > 1 ? i * (n_in - 1) / (n - 1) : 0;
    case POME_SAMPLING_ALIGN_CORNERS:
        return n > 1 ? i * (n_in - 1) / (n - 1) : (n_in - 1) / 2;
    case POME_SAMPLING_OFFSET_CORNERS:
        return (i + 0.5) * (n_in > 2 ? n_in - 1 : 1) / n;
    case POME_SAMPLING_UNALIGN_CORNERS:
        return (i + 0.5) * n_in / n - 0.5;
    default:
        return i * n_in / n;
    }
}

/* Into [low, high]; NaN becomes low. */
static inline double pome_grid_clamp(double at, double low, double high)
{
    return at > high ? high : at > low ? at : low;
}

#endif
