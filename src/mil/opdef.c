#include "mil/opdef.h"

#include <string.h>

/* Where each operator's parameters begin in `params`: the parameters are numbered through, and the helper
 * BEFORE_ takes back the number that START_ used up. */
enum {
#define OP(name, since, n_out, flags, infer) START_##name, BEFORE_##name = START_##name - 1,
#define IN(op, name, since, until, types, flags) AT_##op##_##name,
#include "mil/ops.def"
#undef OP
#undef IN
};

static const pome_param params[] = {
#define OP(name, since, n_out, flags, infer)
#define IN(op, name, since, until, types, flags) {#name, types, flags, since, until},
#include "mil/ops.def"
#undef OP
#undef IN
};

/* OP closes the row before it and opens its own; each IN adds 1 to n_params, the row's last field. Row 0 is the
 * stub that the first OP closes. */
static const pome_opdef defs[] = {
    {.n_params = 0
#define OP(op, first, outputs, op_flags, fn)                                                       \
    }, {.name = #op, .id = POME_OP_##op, .since = first, .n_out = outputs, .flags = op_flags,      \
        .params = params + START_##op, .infer = fn, .n_params = 0
#define IN(op, name, since, until, types, flags) + 1
#include "mil/ops.def"
#undef OP
#undef IN
    }
};

const pome_opdef *pome_opdef_get(pome_op_id id)
{
    return (unsigned)id < POME_OP_COUNT ? &defs[(unsigned)id + 1] : NULL;
}

const pome_opdef *pome_opdef_find(const char *name)
{
    for (int i = 1; i <= POME_OP_COUNT; i++)
        if (defs[i].name[0] == name[0] && strcmp(defs[i].name, name) == 0)
            return strncmp(name, "pome_", 5) == 0 ? NULL : &defs[i];
    return NULL;
}

int pome_opdef_param(const pome_opdef *def, const char *name)
{
    for (int i = 0; i < def->n_params; i++)
        if (strcmp(def->params[i].name, name) == 0)
            return i;
    return -1;
}

uint32_t pome_opdef_type_bit(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_BOOL: return POME_T_BOOL;
    case POME_DTYPE_F16: return POME_T_F16;
    case POME_DTYPE_F32: return POME_T_F32;
    case POME_DTYPE_F64: return POME_T_F64;
    case POME_DTYPE_I4: return POME_T_I4;
    case POME_DTYPE_I8: return POME_T_I8;
    case POME_DTYPE_I16: return POME_T_I16;
    case POME_DTYPE_I32: return POME_T_I32;
    case POME_DTYPE_I64: return POME_T_I64;
    case POME_DTYPE_U1: return POME_T_U1;
    case POME_DTYPE_U2: return POME_T_U2;
    case POME_DTYPE_U3: return POME_T_U3;
    case POME_DTYPE_U4: return POME_T_U4;
    case POME_DTYPE_U6: return POME_T_U6;
    case POME_DTYPE_U8: return POME_T_U8;
    case POME_DTYPE_U16: return POME_T_U16;
    case POME_DTYPE_U32: return POME_T_U32;
    case POME_DTYPE_STRING: return POME_T_STR;
    default: return POME_T_OTHER;
    }
}
