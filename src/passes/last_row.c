/* Language models need the logits of the last position only, yet their head is the widest operator. From the
 * output back through operators that treat rows (axis 1) independently, the first point is found where the
 * rows can be cut to the last one. */
#include "mil/infer.h"
#include "passes/pass.h"

/* The operand that carries the rows through `op`, or NULL. All are rank 3 [batch, rows, features]. */
static pome_value *row_operand(const pome_op *op)
{
    pome_value *x = NULL;
    switch (op->def->id) {
    case POME_OP_linear: x = pome_op_arg(op, P_linear_x); break;
    case POME_OP_cast: x = pome_op_arg(op, P_cast_x); break;
    case POME_OP_identity: x = pome_op_arg(op, P_identity_x); break;
    case POME_OP_pome_rms_norm: {
        const pome_value *axis = pome_op_arg(op, P_pome_rms_norm_axis);
        x = pome_tensor_int_at(&axis->konst->t, 0) == 2 ? op->in[0] : NULL;
        break;
    }
    case POME_OP_tanh: x = pome_op_arg(op, P_tanh_x); break;
    case POME_OP_matmul: {
        const pome_value *y = pome_op_arg(op, P_matmul_y), *tx = pome_op_arg(op, P_matmul_transpose_x);
        bool transposed = tx && (!tx->konst || pome_tensor_int_at(&tx->konst->t, 0));
        x = y && y->konst && y->type.rank == 2 && !transposed ? pome_op_arg(op, P_matmul_x) : NULL;
        break;
    }
    case POME_OP_add:
    case POME_OP_sub:
    case POME_OP_mul:
    case POME_OP_real_div:
        for (uint32_t i = 0; i < 2; i++) {
            const pome_value *other = op->in[1 - i];
            if (other->konst && (other->type.rank <= 1 || (other->type.rank == 3 && other->type.dim[1] == 1)))
                x = op->in[i];
        }
        break;
    default: break;
    }
    return x && !x->konst && x->type.rank == 3 ? x : NULL;
}

static pome_op *make_slice(pome_function *fn, pome_pass_ctx *ctx, pome_value *x)
{
    static const int32_t begin[3] = {0, -1, 0}, end[3] = {0, 0, 0}, open_begin[3] = {1, 0, 1}, open_end[3] = {1, 1, 1};
    pome_value *v[] = {
        x,
        pome_value_create_ints(fn, ctx->arena, POME_DTYPE_I32, 1, begin, 3),
        pome_value_create_ints(fn, ctx->arena, POME_DTYPE_I32, 1, end, 3),
        pome_value_create_ints(fn, ctx->arena, POME_DTYPE_BOOL, 1, open_begin, 3),
        pome_value_create_ints(fn, ctx->arena, POME_DTYPE_BOOL, 1, open_end, 3),
    };
    const pome_opdef *def = pome_opdef_get(POME_OP_slice_by_index);
    pome_value *const *in[16] = {0};
    uint32_t counts[16] = {0};
    const int params[] = {P_slice_by_index_x, P_slice_by_index_begin, P_slice_by_index_end,
                          P_slice_by_index_begin_mask, P_slice_by_index_end_mask};
    for (int i = 0; i < 5; i++) {
        if (!v[i])
            return NULL;
        in[params[i]] = &v[i];
        counts[params[i]] = 1;
    }
    pome_op *op = pome_op_create(fn, def, "last_row", in, counts, 1);
    if (op) {
        op->out[0]->type = x->type;
        op->out[0]->type.dim[1] = 1;
    }
    return op;
}

static bool insert_before(pome_function *fn, pome_pass_ctx *ctx, const pome_op *at, pome_op *op)
{
    pome_block *b = fn->body;
    pome_op **ops = POME_NEW_ARRAY(ctx->arena, pome_op *, (size_t)b->n_ops + 1);
    if (!ops)
        return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        if (b->ops[i] == at)
            ops[n++] = op;
        ops[n++] = b->ops[i];
    }
    b->ops = ops;
    b->n_ops = n;
    return true;
}

pome_status pome_pass_last_row(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    if (ctx->last_row_output < 0 || (uint32_t)ctx->last_row_output >= fn->body->n_outputs)
        return POME_OK;
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena);
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    pome_op *cut = NULL;
    pome_value *cut_at = NULL, *v = fn->body->outputs[ctx->last_row_output];
    while (v->def && v->def->n_out == 1 && n_uses[v->id] == 1) {
        pome_value *x = row_operand(v->def);
        if (!x)
            break;
        cut = v->def;
        cut_at = x;
        v = x;
    }
    if (!cut)
        return POME_OK;
    pome_op *slice = make_slice(fn, ctx, cut_at);
    if (!slice || !insert_before(fn, ctx, cut, slice))
        return pome_fail_nomem(err, sizeof *slice, "last row");
    for (uint32_t i = 0; i < cut->n_in; i++)
        if (cut->in[i] == cut_at)
            cut->in[i] = slice->out[0];
    return POME_OK;
}
