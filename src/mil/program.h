/* The in-memory program: functions of blocks of operators over values in SSA form. Everything is owned by
 * the program's arena; constants are views into mapped weight files or the arena. No file detail lives here. */
#ifndef POME_MIL_PROGRAM_H
#define POME_MIL_PROGRAM_H

#include "base/arena.h"
#include "base/file.h"
#include "mil/opdef.h"
#include "mil/type.h"

typedef struct pome_value pome_value;
typedef struct pome_op pome_op;
typedef struct pome_block pome_block;
typedef struct pome_function pome_function;
typedef struct pome_program pome_program;
struct pome_encoded; /* ops/encoded.h: how a compressed constant is decoded */

/* A constant. Dense: `t` is contiguous (sub-byte types are one bit stream). Strings: `strings`.
 * Compressed (the result of a constexpr_*): t.data is NULL, t's dtype and shape are the result's, and
 * `encoded_by` is the operator whose inputs are all constants. */
typedef struct pome_const {
    pome_tensor t;
    size_t size_bytes;          /* bytes at t.data */
    const char *const *strings; /* dtype STRING: NUL-terminated, t.shape gives how many */
    pome_op *encoded_by;
    uint32_t encoded_output;
    const struct pome_encoded *encoded; /* made by pome_pass_encode before plans are compiled */
    const char *file;           /* weight file the bytes are in, NULL if immediate */
    uint64_t file_offset;       /* of the blob's metadata record */
} pome_const;

struct pome_value {
    uint32_t id;            /* dense within its function, 0 .. n_values-1 */
    const char *name;       /* unique among the values visible to each other; "" for a literal */
    pome_type type;
    pome_op *def;           /* NULL: input of a function or block, or a literal */
    uint32_t def_output;
    const pome_const *konst; /* not NULL: known at load. Its dtype may be wider than type.dtype after folding */
};

/* The inputs of one parameter of an operator: op->in[first .. first+count). count 0: not given. */
typedef struct pome_arg {
    uint32_t first, count;
} pome_arg;

struct pome_op {
    const pome_opdef *def;
    const char *name;       /* the `name` attribute, else the first output's name */
    pome_arg *args;         /* [def->n_params] */
    pome_value **in;        /* [n_in] all inputs, in order of parameters */
    uint32_t n_in;
    pome_value **out;       /* [n_out] */
    uint32_t n_out;
    pome_block **blocks;    /* [n_blocks] cond: true, false; while_loop: cond, body */
    uint32_t n_blocks;
    uint32_t position;      /* of the operation in its block in the file, for messages */
};

struct pome_block {
    pome_value **inputs;    /* nested blocks only */
    uint32_t n_inputs;
    pome_op **ops;          /* without `const`: those are values with konst and no def */
    uint32_t n_ops;
    pome_value **outputs;
    uint32_t n_outputs;
    pome_op *owner;         /* NULL for a function's body */
    pome_op **room;         /* pome_block_append: the last array it made, and how many ops fit */
    uint32_t n_room;
};

struct pome_function {
    const char *name;
    pome_opset opset;
    pome_program *program;
    pome_arena *arena;      /* where its values and operators are made: the program's, or that of a copy */
    pome_value **inputs;    /* in the order of the description; states among them (kind STATE) */
    uint32_t n_inputs;
    pome_block *body;
    uint32_t n_values;      /* ids in use */
    int64_t next_symbol;    /* the next unused symbol is this one; counts down from -2 */
};

struct pome_program {
    pome_arena *arena;
    pome_function **functions;
    uint32_t n_functions;
    pome_mapping **mappings; /* weight files, released with the program */
    uint32_t n_mappings;
    uint64_t weights_bytes;
};

/* Building. All return NULL when memory is short. */
pome_program *pome_program_create(size_t limit_bytes);
void pome_program_destroy(pome_program **program);
pome_function *pome_function_create(pome_program *program, const char *name, pome_opset opset);
pome_value *pome_value_create(pome_function *fn, const char *name, const pome_type *type);
/* A literal: a value that is a constant. Copies nothing: k must live in the program's arena. */
pome_value *pome_value_create_const(pome_function *fn, const char *name, const pome_const *k);
/* in[p] lists the values of parameter p (counts[p] of them; NULL or 0: not given). Takes nothing, copies the lists.
 * The outputs are new values of unknown type: the first is named like the op, others name_1, name_2, ... */
pome_op *pome_op_create(pome_function *fn, const pome_opdef *def, const char *name, pome_value *const *const *in,
                        const uint32_t *counts, uint32_t n_out);
/* The same over existing values, which get the op as their definition. */
pome_op *pome_op_create_over(pome_function *fn, const pome_opdef *def, const char *name,
                             pome_value *const *const *in, const uint32_t *counts, pome_value *const *out,
                             uint32_t n_out);
bool pome_block_append(pome_program *program, pome_block *block, pome_op *op);
/* A deep copy of a function into another arena (names, constants and their data shared, so the program must outlive
 * it): passes rewrite the copy. Ids of values are kept. */
pome_function *pome_function_clone(const pome_function *fn, pome_arena *arena);

/* Looking. */
pome_function *pome_program_find(const pome_program *program, const char *name);
static inline pome_value *pome_op_arg(const pome_op *op, uint32_t param) /* first value or NULL */
{
    return op->args[param].count ? op->in[op->args[param].first] : NULL;
}

/* Checks the whole program: opset and version, parameters (required, constant, type, literal kinds), scoping,
 * single definition, types and shapes by inference against the declared ones (inference wins, with a logged
 * warning; for compressed constants a difference is an error), state use, block signatures. Fills in unknown types
 * from inference. A failure's message begins with the function's name. */
pome_status pome_program_verify(pome_program *program, pome_error *err);
/* Type inference over one function that has passed verification: writes value->type. Sizes of -1 of inputs become
 * fresh symbols. Part of verify; passes call it after rewriting. */
pome_status pome_function_infer(pome_function *fn, pome_error *err);

/* Calls `visit` for every operator of every function, nested blocks included, in order of execution (an operator
 * before the contents of its blocks). Stops at the first status that is not OK and returns it. */
typedef pome_status pome_op_visit_fn(void *arg, pome_function *fn, pome_op *op, pome_error *err);
pome_status pome_program_list_ops(pome_program *program, pome_op_visit_fn *visit, void *arg, pome_error *err);
pome_status pome_function_list_ops(pome_function *fn, pome_op_visit_fn *visit, void *arg, pome_error *err);

#endif
