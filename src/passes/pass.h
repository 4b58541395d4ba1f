/* Passes rewrite one function (a plan's own copy). Each has one entry and one file; passes/pipeline.c is the list. */
#ifndef POME_PASSES_PASS_H
#define POME_PASSES_PASS_H

#include "base/arena.h"
#include "base/error.h"
#include "mil/program.h"
#include "ops/op.h"
#include "passes/fusion.h"
#include "pome/model.h"

typedef struct pome_pass_ctx {
    pome_arena *arena; /* owns what passes make; lives as long as the plan */
    pome_numerics numerics;
    const pome_kernels *kernels;
    int last_row_output; /* index into the body's outputs, or -1 */
    uint32_t fusions;    /* bits of pome_fusion that are wanted */
    uint32_t n_fused[POME_FUSION_COUNT]; /* how often each was found */
} pome_pass_ctx;

typedef pome_status pome_pass_fn(pome_function *fn, pome_pass_ctx *ctx, pome_error *err);

/* The whole pipeline, with type inference after it. */
pome_status pome_passes_run(pome_function *fn, pome_pass_ctx *ctx, pome_error *err);

/* Turns the results of constexpr_* operators into encoded constants. Works on the program itself, once, before
 * any function is copied: plans share the result. */
pome_status pome_pass_encode(pome_program *program, pome_error *err);

/* Gives constants of linear and matmul the kind of number of what they are multiplied with. */
pome_pass_fn pome_pass_const_dtype;
/* Evaluates operators whose inputs are all constant, and `shape` of values of fixed shape. */
pome_pass_fn pome_pass_fold;
/* Feeds attention with the key/value heads themselves where the graph repeats each for a group of query heads. */
pome_pass_fn pome_pass_group_heads;
/* Computes one output for the last row of axis 1 only (ctx->last_row_output). */
pome_pass_fn pome_pass_last_row;
/* Fusions, in the order of passes/fusion.h. */
pome_pass_fn pome_pass_cse;
pome_pass_fn pome_pass_fuse_rms_norm;
pome_pass_fn pome_pass_fuse_rotary;
pome_pass_fn pome_pass_fuse_gated;
pome_pass_fn pome_pass_fuse_attention;
pome_pass_fn pome_pass_conv_linear;
pome_pass_fn pome_pass_attention_rows;
pome_pass_fn pome_pass_fuse_residual;
pome_pass_fn pome_pass_fuse_gated_linear;
pome_pass_fn pome_pass_fuse_linears;
pome_pass_fn pome_pass_fuse_conv;
pome_pass_fn pome_pass_fuse_winograd;
/* Removes operators without effect whose results nobody reads. */
pome_pass_fn pome_pass_dce;

/* ---- helpers ---- */
/* Replaces every use of `from` in the function, nested blocks and outputs included. */
void pome_replace_uses(pome_function *fn, pome_value *from, pome_value *to);
/* n_uses[value id], counting operands of all blocks and block outputs. NULL when memory is short. */
uint32_t *pome_count_uses(const pome_function *fn, pome_arena *arena);
/* An int32 or bool vector constant as a new literal value. */
pome_value *pome_value_create_ints(pome_function *fn, pome_arena *arena, pome_dtype dtype, int32_t rank,
                                   const int32_t *v, uint32_t n);
/* Runs one operator all of whose inputs are dense constants or encoded ones it accepts; results[n_out] get new
 * constants in the arena. UNSUPPORTED if the operator has no implementation. */
pome_status pome_eval_op(const pome_op *op, pome_opset opset, pome_pass_ctx *ctx, const pome_const **results,
                         pome_error *err);

#endif
