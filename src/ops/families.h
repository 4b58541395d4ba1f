/* Declarations of the families that ops/families.def lists. */
#ifndef POME_OPS_FAMILIES_H
#define POME_OPS_FAMILIES_H

#include "ops/op.h"

#define FAMILY(name)                                                                               \
    extern const pome_op_impl pome_ops_##name[];                                                   \
    extern const size_t pome_ops_##name##_count;
#include "ops/families.def"
#undef FAMILY

/* The length of a family's table, to be written after it. */
#define POME_FAMILY_COUNT(name)                                                                    \
    const size_t pome_ops_##name##_count = sizeof pome_ops_##name / sizeof pome_ops_##name[0];

#endif
