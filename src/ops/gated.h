/* act(gate) * up, element by element. */
#ifndef POME_OPS_GATED_H
#define POME_OPS_GATED_H

#include "ops/elementwise.h"

/* "silu", "gelu", "gelu_tanh" or "gelu_sigmoid"; NULL for another. Operands are gate and up, `param` the kernel table.
 * The result may lie where either does. */
pome_row_fn *pome_gated_row(const char *activation);

#endif
