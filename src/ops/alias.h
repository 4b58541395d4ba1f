/* Writing into a state while reading from it: a value that is a view of the state must be taken aside first. */
#ifndef POME_OPS_ALIAS_H
#define POME_OPS_ALIAS_H

#include "ops/view.h"

/* Bytes of scratch for a contiguous copy of `value` (tensor t), which is to be written into `target` or, with is_part,
 * a part of it: 0 unless the program lets the value show the target's memory in another order or in part. */
size_t pome_alias_scratch(const pome_value *target, bool is_part, const pome_value *value, const pome_tensor *t);
/* dst = src where both may lie in the same memory; takes src aside in r->scratch if they overlap. */
pome_status pome_alias_copy(const pome_run *r, const pome_tensor *dst, const pome_tensor *src, pome_error *err);

#endif
