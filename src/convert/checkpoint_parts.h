/* The tensors of a checkpoint by the parts they play: names, shapes, shares of a common matrix, completeness. */
#ifndef POME_CONVERT_CHECKPOINT_PARTS_H
#define POME_CONVERT_CHECKPOINT_PARTS_H

#include "convert/checkpoint.h"

bool pome_part_is_norm(pome_part part);
/* What a part that the family has is called in this source; NULL: out of memory. */
const char *pome_checkpoint_name(const pome_checkpoint *c, pome_part part, int64_t layer, bool is_bias);
/* A tensor by its name. found: false and POME_OK if there is none. */
pome_status pome_checkpoint_tensor(const pome_checkpoint *c, const char *name, pome_weight *out, bool *found,
                                   pome_error *err);
/* All that the configuration asks for is there with the right shape, and nothing else. */
pome_status pome_checkpoint_check_parts(pome_checkpoint *c, pome_error *err);

#endif
