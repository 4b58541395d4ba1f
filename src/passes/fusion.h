/* The rewritings that only make a plan faster, by name, so that each can be left out. */
#ifndef POME_PASSES_FUSION_H
#define POME_PASSES_FUSION_H

#include <stdint.h>

#include "base/error.h"

/* FUSION(identifier, name as people write it, what it does, holds in fp16 mode too). Those that do not round as the
 * operators they replace would are left out where every operator's rounding counts. */
#define POME_FUSIONS(FUSION)                                                                                           \
    FUSION(CSE, "cse", "equal computations are done once", true)                                                       \
    FUSION(RMS_NORM, "rms-norm", "normalization by the root mean square is one step", false)                           \
    FUSION(ROTARY, "rotary", "turning a head by its position is one step", false)                                      \
    FUSION(GATED, "gated", "an activation times a second value is one step", false)                                    \
    FUSION(ATTENTION, "attention", "products, softmax and mask of attention are one step", false)                      \
    FUSION(CONV_LINEAR, "conv-linear", "convolutions of one element and what is between them work on rows", true)      \
    FUSION(ROWS, "attention-rows", "attention writes its heads side by side", true)                                    \
    FUSION(RESIDUAL, "residual", "a sum and its normalization are one step", false)                                    \
    FUSION(GATED_LINEAR, "gated-linear", "two linear layers, activation and product are one step", false)              \
    FUSION(LINEARS, "linears", "linear layers of one input share their activations and threads", true)                \
    FUSION(CONV, "conv", "a convolution, a sum and limits of its results are one step", false)                          \
    FUSION(WINOGRAD, "winograd", "convolutions with kernels of 3 x 3 multiply transformed weights", false)

typedef enum pome_fusion {
#define FUSION(id, name, what, fp16) POME_FUSION_##id,
    POME_FUSIONS(FUSION)
#undef FUSION
    POME_FUSION_COUNT
} pome_fusion;

const char *pome_fusion_name(pome_fusion fusion);
/* Bit set of the names in a comma-separated list; "all" is every one, NULL or "" none. ARG for an unknown name. */
pome_status pome_fusions_parse(const char *names, uint32_t *set, pome_error *err);
/* Those that keep the rounding of every operator. */
uint32_t pome_fusions_exact_rounding(void);

#endif
