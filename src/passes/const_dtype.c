/* From iOS 17 on a constant of linear and matmul may be of another kind of number than what it is multiplied with, whose
 * dtype the result has. It is cast once, here, so that kernels see one kind. Between fp16 and fp32 there is nothing to do:
 * kernels read both. */
#include "passes/match.h"

static pome_status cast_const(pome_function *fn, pome_pass_ctx *ctx, const pome_op *like, pome_value **v, pome_dtype dtype,
                              pome_error *err)
{
    pome_type type = (*v)->type;
    const pome_const *result[1] = {NULL};
    type.dtype = dtype;
    pome_value *out = pome_value_create(fn, "", &type);
    const pome_rewrite_arg args[] = {{P_cast_x, *v},
                                     {P_cast_dtype, pome_rewrite_text(fn, ctx->arena, pome_dtype_name(dtype))}};
    pome_op *op = out && args[1].value ? pome_rewrite_op(fn, POME_OP_cast, like, args, 2, &out, 1) : NULL;
    if (!op)
        return pome_fail_nomem(err, sizeof *op, "cast of a constant");
    POME_TRY(pome_eval_op(op, fn->opset, ctx, result, err));
    out->def = NULL;
    out->konst = result[0];
    *v = out;
    return POME_OK;
}

static bool is_other_kind(const pome_value *v, pome_dtype dtype)
{
    return v->konst && pome_dtype_is_float(v->type.dtype) != pome_dtype_is_float(dtype);
}

static pome_status cast_args(void *arg, pome_function *fn, pome_op *op, pome_error *err)
{
    pome_pass_ctx *ctx = arg;
    if (op->def->id != POME_OP_linear && op->def->id != POME_OP_matmul)
        return POME_OK;
    pome_dtype dtype = op->out[0]->type.dtype;
    uint32_t last = op->def->id == POME_OP_linear ? P_linear_bias : P_matmul_y;
    for (uint32_t p = 0; p <= last; p++)
        if (op->args[p].count && is_other_kind(op->in[op->args[p].first], dtype))
            POME_TRY(cast_const(fn, ctx, op, &op->in[op->args[p].first], dtype, err));
    return POME_OK;
}

pome_status pome_pass_const_dtype(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    return pome_function_list_ops(fn, cast_args, ctx, err);
}
