/* Constant folding. An operator that would blow constants up (tile, fill) beyond MAX_GROWTH elements is left to
 * run time, as are compressed weights unless the operator reads them as they are. */
#include "ops/op.h"
#include "passes/pass.h"

enum { MAX_GROWTH = 1 << 16 };

static int64_t type_count(const pome_type *t)
{
    int64_t n = 1;
    if (t->kind != POME_TYPE_TENSOR || t->rank < 0)
        return -1;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            return -1;
        if (__builtin_mul_overflow(n, t->dim[i], &n))
            return INT64_MAX;
    }
    return n;
}

static bool can_fold(const pome_op *op)
{
    int64_t n_in = 0, n_out = 0;
    if (!(op->def->flags & POME_OP_FOLDABLE) || !pome_op_impl_find(op->def->id))
        return false;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const pome_const *k = op->in[i]->konst;
        if (!k || (!k->t.data && k->t.dtype != POME_DTYPE_STRING && pome_tensor_count(&k->t) > MAX_GROWTH))
            return false;
        n_in += k->t.dtype == POME_DTYPE_STRING ? 0 : pome_tensor_count(&k->t);
    }
    for (uint32_t o = 0; o < op->n_out; o++) {
        int64_t n = type_count(&op->out[o]->type);
        if (n > 0 && __builtin_add_overflow(n_out, n, &n_out))
            return false;
    }
    return n_out <= MAX_GROWTH || n_out <= n_in;
}

/* shape(x) needs no contents where x's type is fixed. */
static pome_status fold_shape(pome_function *fn, pome_pass_ctx *ctx, const pome_op *op, pome_error *err)
{
    const pome_type *t = &op->in[0]->type;
    int32_t dim[POME_MAX_RANK];
    if (type_count(t) < 0)
        return POME_OK;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] > INT32_MAX)
            return POME_OK;
        dim[i] = (int32_t)t->dim[i];
    }
    pome_value *v = pome_value_create_ints(fn, ctx->arena, POME_DTYPE_I32, 1, dim, (uint32_t)t->rank);
    if (!v)
        return pome_fail_nomem(err, sizeof dim, "shape");
    op->out[0]->konst = v->konst;
    return POME_OK;
}

pome_status pome_pass_fold(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    pome_block *b = fn->body;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *op = b->ops[i];
        const pome_const *results[64] = {0};
        if (op->def->id == POME_OP_shape && op->in[0]->type.kind == POME_TYPE_TENSOR)
            POME_TRY(fold_shape(fn, ctx, op, err));
        else if (op->n_out <= 64 && can_fold(op))
            POME_TRY(pome_eval_op(op, fn->opset, ctx, results, err));
        for (uint32_t o = 0; o < op->n_out; o++)
            if (results[o])
                op->out[o]->konst = results[o];
        if (op->n_out == 0 || !op->out[0]->konst)
            b->ops[n++] = op;
    }
    b->n_ops = n;
    return POME_OK;
}
