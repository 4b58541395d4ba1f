#include "ops/invoke.h"
#include "ops/strided.h"

#include <string.h>

#include "base/checked.h"
#include "ops/encoded.h"

enum { MAX_INPUTS = 512 }; /* of one operator; concat of many values is the widest */

uint32_t pome_op_param_of(const pome_op *op, uint32_t input)
{
    for (uint32_t p = 0; p < op->def->n_params; p++)
        if (input - op->args[p].first < op->args[p].count)
            return p;
    return 0;
}

bool pome_op_accepts(const pome_op_impl *impl, uint32_t param, const pome_tensor *t)
{
    if (t->dtype == POME_DTYPE_STRING)
        return true;
    if (!t->data && pome_tensor_count(t) > 0)
        return impl->encoded_ok >> param & 1;
    if (t->dtype == POME_DTYPE_F16 ? !(impl->f16_ok >> param & 1)
                                   : pome_dtype_is_float(t->dtype) && t->dtype != POME_DTYPE_F32)
        return false;
    return (impl->strided_ok >> param & 1) || pome_tensor_is_contiguous(t);
}

pome_dtype pome_storage_dtype(pome_dtype declared)
{
    if (declared == POME_DTYPE_STRING) /* a label: its place in the list of classes */
        return POME_DTYPE_I64;
    return pome_dtype_is_float(declared) ? POME_DTYPE_F32 : declared;
}

pome_status pome_tensor_of_type(pome_tensor *out, const pome_type *type, const pome_op *op, pome_error *err)
{
    int64_t shape[POME_MAX_RANK + 1], n = 0;
    if (type->kind == POME_TYPE_LIST)
        shape[n++] = type->list_length < 0 ? 0 : type->list_length;
    if (type->kind == POME_TYPE_DICT && type->rank == 1 && type->dim[0] >= 0) { /* a classifier's probabilities */
        *out = pome_tensor_borrow(NULL, POME_DTYPE_F32, 1, type->dim);
        return POME_OK;
    }
    if (type->rank < 0 || n + type->rank > POME_MAX_RANK)
        return pome_op_fail(op, err, POME_ERR_FORMAT, "an output's rank is not known");
    for (int32_t i = 0; i < type->rank; i++) {
        if (type->dim[i] < 0 && type->kind != POME_TYPE_LIST)
            return pome_op_fail(op, err, POME_ERR_FORMAT, "the size of an output's axis %d is not known", (int)i);
        shape[n++] = type->dim[i] < 0 ? 0 : type->dim[i];
    }
    int64_t count = 1;
    for (int64_t i = 0; i < n; i++) /* inference has not counted a list's length */
        if (!pome_mul_i64(count, shape[i] > 0 ? shape[i] : 1, &count) || count > POME_MAX_ELEMENTS)
            return pome_op_fail(op, err, POME_ERR_LIMIT, "an output is too large");
    *out = pome_tensor_borrow(NULL, pome_storage_dtype(type->dtype), (int32_t)n, shape);
    return POME_OK;
}

static pome_status infer_outputs(const pome_invoke *v, pome_type *types, pome_error *err)
{
    const pome_type *in_types[MAX_INPUTS];
    pome_type actual[MAX_INPUTS];
    const pome_tensor *values[MAX_INPUTS];
    for (uint32_t i = 0; i < v->op->n_in; i++) {
        const pome_tensor *t = v->in[i];
        int32_t lead = v->op->in[i]->type.kind == POME_TYPE_LIST ? 1 : 0;
        actual[i] = v->op->in[i]->type;
        actual[i].rank = t->rank - lead;
        if (lead)
            actual[i].list_length = t->shape[0];
        memcpy(actual[i].dim, t->shape + lead, (size_t)(t->rank - lead) * sizeof t->shape[0]);
        in_types[i] = &actual[i];
        values[i] = t->data && t->dtype != POME_DTYPE_STRING ? t : NULL;
    }
    pome_infer c = {.op = v->op, .opset = v->opset, .in = in_types, .value = values, .out = types};
    return pome_infer_op(&c, err);
}

static pome_status convert(const pome_invoke *v, uint32_t i, uint32_t slot, pome_tensor *out, pome_error *err)
{
    const pome_tensor *t = v->in[i];
    const pome_value *value = v->op->in[i];
    pome_tensor r = pome_tensor_borrow(NULL, pome_storage_dtype(t->dtype), t->rank, t->shape);
    r.data = v->alloc(v->alloc_arg, slot, pome_tensor_size_bytes(&r));
    if (!r.data)
        return pome_fail_nomem(err, pome_tensor_size_bytes(&r), value->name);
    if (!t->data && value->konst && value->konst->encoded) {
        size_t n = (size_t)pome_tensor_count(t);
        if (r.dtype == POME_DTYPE_F32)
            pome_encoded_decode(value->konst->encoded, 0, n, r.data);
        else
            pome_encoded_decode_raw(value->konst->encoded, 0, n, r.data);
    } else {
        pome_strided_copy(&r, t, v->pool, v->kernels);
    }
    *out = r;
    return POME_OK;
}

static pome_status run_op(const pome_invoke *v, pome_run *r, uint32_t scratch_slot, pome_error *err)
{
    pome_tensor viewed[64];
    if (v->impl->view && v->op->n_out <= 64) { /* a view, then copied: outputs here always own their memory */
        pome_run look = *r;
        memcpy(viewed, r->out, v->op->n_out * sizeof *viewed);
        look.out = viewed;
        if (v->impl->view(&look)) {
            for (uint32_t o = 0; o < v->op->n_out; o++)
                if (pome_tensor_count(&viewed[o]) > 0)
                    pome_strided_copy(&r->out[o], &viewed[o], v->pool, v->kernels);
            return POME_OK;
        }
    }
    size_t scratch = v->impl->scratch ? v->impl->scratch(r) : 0;
    r->scratch = scratch ? v->alloc(v->alloc_arg, scratch_slot, scratch) : NULL;
    if (scratch && !r->scratch)
        return pome_fail_nomem(err, scratch, v->op->name);
    return v->impl->run(r, err);
}

static void round_outputs(const pome_invoke *v)
{
    if (v->numerics != POME_NUMERICS_FP16)
        return;
    for (uint32_t o = 0; o < v->op->n_out; o++)
        if (v->op->out[o]->type.dtype == POME_DTYPE_F16 && v->out[o].dtype == POME_DTYPE_F32)
            v->kernels->f16_round(v->out[o].data, (size_t)pome_tensor_count(&v->out[o]));
}

pome_status pome_op_invoke(const pome_invoke *v, pome_error *err)
{
    const pome_op *op = v->op;
    pome_type types[64];
    pome_tensor converted[64];
    const pome_tensor *in[MAX_INPUTS];
    uint32_t n_converted = 0;
    if (op->n_in > MAX_INPUTS || op->n_out > 64)
        return pome_op_fail(op, err, POME_ERR_LIMIT, "%u inputs, %u outputs; at most %d and 64", op->n_in, op->n_out,
                            MAX_INPUTS);
    memset(types, 0, op->n_out * sizeof *types);
    POME_TRY(infer_outputs(v, types, err));
    for (uint32_t o = 0; o < op->n_out; o++) {
        POME_TRY(pome_tensor_of_type(&v->out[o], &types[o], op, err));
        v->out[o].data = v->alloc(v->alloc_arg, o, pome_tensor_size_bytes(&v->out[o]));
        if (!v->out[o].data)
            return pome_fail_nomem(err, pome_tensor_size_bytes(&v->out[o]), op->name);
    }
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = v->in[i];
        if (pome_op_accepts(v->impl, pome_op_param_of(op, i), in[i]))
            continue;
        if (n_converted == 64)
            return pome_op_fail(op, err, POME_ERR_LIMIT, "more than 64 inputs to convert");
        POME_TRY(convert(v, i, op->n_out + n_converted, &converted[n_converted], err));
        in[i] = &converted[n_converted++];
    }
    pome_run r = {.op = op, .opset = v->opset, .numerics = v->numerics, .pool = v->pool, .kernels = v->kernels, .in = in,
                  .out = v->out, .prepared = v->prepared};
    POME_TRY(run_op(v, &r, op->n_out + n_converted, err));
    round_outputs(v);
    return POME_OK;
}
