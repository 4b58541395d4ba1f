/* Convolutions with constant, dense weights of 3 x 3 kernels, stride 1 and channels enough: by transformed weights, which
 * ops/conv_winograd.c makes when the plan is made. Images whose size is not known, or of which the tiles of 2 x 2 results would
 * cover much that is not there, stay as they are, and so do those of few tiles: reading the larger weights takes what the
 * multiplications save. */
#include <assert.h>

#include "passes/match.h"

enum { CHANNELS_MIN = 16, TILES_MIN = 32, N_CONV = P_conv_groups + 1, N_FUSED = P_pome_conv_high + 1 };

static bool are_ones(const pome_value *v)
{
    if (!v)
        return true;
    if (!v->konst || !v->konst->t.data)
        return false;
    for (int64_t i = 0; i < pome_tensor_count(&v->konst->t); i++)
        if (pome_tensor_int_at(&v->konst->t, i) != 1)
            return false;
    return true;
}

static bool is_dense(const pome_const *k)
{
    return k && k->t.data && (k->t.dtype == POME_DTYPE_F32 || k->t.dtype == POME_DTYPE_F16);
}

static bool is_worth(const pome_op *op)
{
    const pome_const *weight = pome_op_arg(op, P_conv_weight)->konst;
    const pome_type *out = &op->out[0]->type;
    if (!is_dense(weight) || weight->t.rank != 4 || out->rank != 4 || out->dim[2] < 4 || out->dim[3] < 4)
        return false;
    const int64_t *shape = weight->t.shape; /* [cout, cin, 3, 3] */
    int64_t tiles = ((out->dim[2] + 1) / 2) * ((out->dim[3] + 1) / 2);
    return shape[0] >= CHANNELS_MIN && shape[1] >= CHANNELS_MIN && shape[2] == 3 && shape[3] == 3 &&
           are_ones(pome_op_arg(op, P_conv_strides)) && are_ones(pome_op_arg(op, P_conv_dilations)) &&
           are_ones(pome_op_arg(op, P_conv_groups)) && tiles >= TILES_MIN && 16 * tiles * 5 / 4 <= 9 * out->dim[2] * out->dim[3];
}

pome_status pome_pass_fuse_winograd(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    static_assert((int)P_pome_conv_x == (int)P_conv_x && (int)P_pome_conv_groups == (int)P_conv_groups, "parameters of conv");
    pome_block *b = fn->body;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        bool is_fused = op->def->id == POME_OP_pome_conv;
        if ((!is_fused && op->def->id != POME_OP_conv) || !is_worth(op))
            continue;
        pome_rewrite_arg args[N_FUSED + 1];
        int n = is_fused ? N_FUSED : N_CONV;
        for (int p = 0; p < n; p++)
            args[p] = (pome_rewrite_arg){(uint32_t)p, pome_op_arg(op, (uint32_t)p)};
        args[n] = (pome_rewrite_arg){P_pome_conv_winograd, pome_rewrite_bool(fn, ctx->arena, true)};
        pome_value *out[1] = {op->out[0]};
        pome_op *made = args[n].value ? pome_rewrite_op(fn, POME_OP_pome_conv, op, args, n + 1, out, 1) : NULL;
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "convolution");
        b->ops[i] = made;
        ctx->n_fused[POME_FUSION_WINOGRAD]++;
    }
    return POME_OK;
}
