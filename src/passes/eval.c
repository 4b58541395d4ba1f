#include <string.h>

#include "base/f16.h"
#include "ops/invoke.h"
#include "passes/pass.h"

static void *alloc_in_arena(void *arg, uint32_t slot, size_t size)
{
    (void)slot;
    uintptr_t p = (uintptr_t)pome_arena_alloc(arg, size + 64);
    return p ? (void *)((p + 63) & ~(uintptr_t)63) : NULL;
}

/* Large results that are exact in half are kept in half: folding must not double a weight. */
static pome_status shrink(pome_const *k, pome_dtype declared, pome_arena *arena, pome_error *err)
{
    size_t n = (size_t)pome_tensor_count(&k->t);
    const float *x = k->t.data;
    if (declared != POME_DTYPE_F16 || n < 4096)
        return POME_OK;
    for (size_t i = 0; i < n; i++)
        if (pome_f32_bits(pome_f16_round(x[i])) != pome_f32_bits(x[i]))
            return POME_OK;
    uint16_t *h = pome_arena_alloc_array(arena, n, sizeof *h);
    if (!h)
        return pome_fail_nomem(err, n * sizeof *h, "constant");
    for (size_t i = 0; i < n; i++)
        h[i] = pome_f32_to_f16(x[i]);
    k->t.dtype = POME_DTYPE_F16;
    k->t.data = h;
    k->size_bytes = n * sizeof *h;
    return POME_OK;
}

static pome_status invoke(const pome_op *op, pome_opset opset, pome_pass_ctx *ctx, pome_tensor *out, pome_arena *work,
                          pome_error *err)
{
    const pome_op_impl *impl = pome_op_impl_find(op->def->id);
    if (!impl)
        return pome_op_fail(op, err, POME_ERR_UNSUPPORTED, "no implementation");
    const pome_tensor **in = POME_NEW_ARRAY(work, const pome_tensor *, op->n_in);
    if (!in)
        return pome_fail_nomem(err, op->n_in * sizeof *in, op->name);
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = &op->in[i]->konst->t;
    pome_prepare p = {.op = op, .opset = opset, .numerics = ctx->numerics, .kernels = ctx->kernels, .arena = work};
    if (impl->prepare)
        POME_TRY(impl->prepare(&p, err));
    pome_invoke v = {.op = op, .impl = impl, .opset = opset, .numerics = ctx->numerics, .kernels = ctx->kernels,
                     .prepared = p.prepared, .in = in, .out = out, .alloc = alloc_in_arena, .alloc_arg = work};
    return pome_op_invoke(&v, err);
}

static pome_status keep(const pome_op *op, const pome_tensor *out, pome_pass_ctx *ctx, const pome_const **results,
                        pome_error *err)
{
    for (uint32_t o = 0; o < op->n_out; o++) {
        pome_const *k = POME_NEW(ctx->arena, pome_const);
        size_t size = pome_tensor_size_bytes(&out[o]);
        void *data = k ? pome_arena_alloc(ctx->arena, size) : NULL;
        if (!data)
            return pome_fail_nomem(err, size, "constant");
        if (size)
            memcpy(data, out[o].data, size);
        k->t = pome_tensor_borrow(data, out[o].dtype, out[o].rank, out[o].shape);
        k->size_bytes = size;
        POME_TRY(shrink(k, op->out[o]->type.dtype, ctx->arena, err));
        results[o] = k;
    }
    return POME_OK;
}

pome_status pome_eval_op(const pome_op *op, pome_opset opset, pome_pass_ctx *ctx, const pome_const **results,
                         pome_error *err)
{
    pome_arena *work = pome_arena_create(0);
    pome_tensor *out = work ? POME_NEW_ARRAY(work, pome_tensor, op->n_out) : NULL;
    pome_status s = out ? invoke(op, opset, ctx, out, work, err) : pome_fail_nomem(err, sizeof *out, op->name);
    if (s == POME_OK)
        s = keep(op, out, ctx, results, err);
    pome_arena_destroy(&work);
    return s;
}
