/* The operator table: one row per operator of the ML Program set, expanded from mil/ops.def. */
#ifndef POME_MIL_OPDEF_H
#define POME_MIL_OPDEF_H

#include <stdbool.h>
#include <stdint.h>

#include "mil/type.h"
#include "pome/status.h"

typedef struct pome_infer pome_infer;
typedef pome_status pome_infer_fn(pome_infer *c, pome_error *err);

/* Sets of dtypes a parameter may have. */
enum {
    POME_T_F16 = 1 << 0, POME_T_F32 = 1 << 1, POME_T_I8 = 1 << 2, POME_T_U8 = 1 << 3, POME_T_I16 = 1 << 4,
    POME_T_U16 = 1 << 5, POME_T_I32 = 1 << 6, POME_T_U32 = 1 << 7, POME_T_BOOL = 1 << 8, POME_T_STR = 1 << 9,
    POME_T_I4 = 1 << 10, POME_T_U4 = 1 << 11, POME_T_U1 = 1 << 12, POME_T_U2 = 1 << 13, POME_T_U3 = 1 << 14,
    POME_T_U6 = 1 << 15, POME_T_I64 = 1 << 16, POME_T_F64 = 1 << 17, POME_T_OTHER = 1 << 18,
    POME_T_F = POME_T_F16 | POME_T_F32,
    POME_T_I = POME_T_I8 | POME_T_U8 | POME_T_I16 | POME_T_U16 | POME_T_I32 | POME_T_U32,
    POME_T_FI = POME_T_F | POME_T_I,
    POME_T_FIB = POME_T_FI | POME_T_BOOL,
    POME_T_INDEX = POME_T_U1 | POME_T_U2 | POME_T_U3 | POME_T_U4 | POME_T_U6 | POME_T_U8, /* palette indices */
    POME_T_CODE = POME_T_I4 | POME_T_U4 | POME_T_I8 | POME_T_U8 | POME_T_F,               /* quantized weights */
    POME_T_ANY = (1 << 19) - 1
};

enum { /* parameter flags */
    POME_P_OPTIONAL = 1 << 0,
    POME_P_CONST = 1 << 1,  /* must be known at load */
    POME_P_LIST = 1 << 2,   /* several bindings */
    POME_P_STATE = 1 << 3,  /* a state value */
    POME_P_TLIST = 1 << 4,  /* a value of list type */
    POME_P_VALUE = 1 << 5,  /* its contents decide the output's shape (reshape.shape, slice begin, ...) */
    POME_P_SCALAR = 1 << 6  /* exactly one element: rank 0, or every size 1 */
};

enum { /* operator flags */
    POME_OP_FOLDABLE = 1 << 0,   /* pure: constant inputs may be folded, equal ones shared */
    POME_OP_EFFECT = 1 << 1,     /* read_state, write_state, random: order kept, never removed or folded */
    POME_OP_BLOCKS = 1 << 2,     /* nested blocks */
    POME_OP_CONSTEXPR = 1 << 3,  /* constexpr_*: all inputs constant, decoded lazily */
    POME_OP_DATA_SHAPE = 1 << 4  /* the output's shape depends on data (non_zero): known only after running */
};

typedef struct pome_param {
    const char *name;
    uint32_t types;
    uint8_t flags;
    uint8_t since, until; /* opsets that have it: since <= opset, and opset <= until unless 0 */
} pome_param;

/* POME_OP_<name> and P_<op>_<param> for every row. */
typedef enum pome_op_id {
#define OP(name, since, n_out, flags, infer) POME_OP_##name,
#define IN(op, name, since, until, types, flags)
#include "mil/ops.def"
#undef OP
#undef IN
    POME_OP_COUNT
} pome_op_id;

/* P_<op>_<param>: index of a parameter in its operator's row, the same at every opset. */
enum {
    P_NONE_ = -1
#define OP(name, since, n_out, flags, infer) , P_##name##_BASE_ = -1
#define IN(op, name, since, until, types, flags) , P_##op##_##name
#include "mil/ops.def"
#undef OP
#undef IN
};

/* Inference functions, in mil/infer_*.c. */
#define OP(name, since, n_out, flags, infer) pome_infer_fn infer;
#define IN(op, name, since, until, types, flags)
#include "mil/ops.def"
#undef OP
#undef IN

struct pome_opdef {
    const char *name;
    pome_op_id id;
    uint8_t since;    /* first opset */
    int8_t n_out;     /* -1: varies (split, cond, while_loop) */
    uint32_t flags;
    const pome_param *params;
    uint8_t n_params;
    pome_infer_fn *infer;
};
typedef struct pome_opdef pome_opdef;

const pome_opdef *pome_opdef_get(pome_op_id id);
/* NULL if the set has no such operator. Operators that only passes make (pome_*) are not found by name. */
const pome_opdef *pome_opdef_find(const char *name);
uint32_t pome_opdef_type_bit(pome_dtype dtype);        /* the POME_T_ bit of a dtype */
int pome_opdef_param(const pome_opdef *def, const char *name); /* -1: none */

/* ---- inference: one function serves load (symbolic shapes) and every change of input shapes (concrete) ----
 * At load, sizes may be symbols and contents unknown; what cannot be known is a fresh symbol, or rank -1 where not
 * even the rank follows (the declared type then decides). At run time next_symbol is NULL: all sizes are known, the
 * contents of VALUE parameters too, and no output is symbolic. For DATA_SHAPE operators the result is then an upper
 * bound (non_zero: [count(x), rank(x)]) and the operator's run sets the real size. Operators with BLOCKS are
 * inferred at load only. Nothing is allocated. Call it through pome_infer_op. */
struct pome_op;
struct pome_infer {
    const struct pome_op *op;
    pome_opset opset;
    const pome_type *const *in;      /* [op->n_in] types of the inputs */
    const pome_tensor *const *value; /* [op->n_in] contents where known (constants, the shape program), else NULL;
                                        NULL too for compressed constants and strings */
    pome_type *out;                  /* [op->n_out] zeroed; to be filled */
    int64_t *next_symbol;            /* fresh symbols: (*next_symbol)--; NULL at run time */
};

#endif
