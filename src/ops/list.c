/* Lists: tensors with a leading axis for the length. They are values: a write gives a new list. Elements never
 * written are zeros; the output's length is what inference found, at least the input's. */
#include "ops/families.h"
#include "ops/index.h"
#include "ops/view.h"

#include <string.h>

static pome_status run_make_list(const pome_run *r, pome_error *err)
{
    (void)err;
    static const uint64_t zero;
    pome_strided_fill(&r->out[0], &zero, r->pool);
    return POME_OK;
}

static pome_status run_list_length(const pome_run *r, pome_error *err)
{
    const pome_tensor *list = pome_in(r, P_list_length_ls);
    if (list->rank < 1 || list->shape[0] > INT32_MAX)
        return pome_op_fail(r->op, err, POME_ERR_LIMIT, "the list's length does not fit int32");
    *(int32_t *)r->out[0].data = (int32_t)list->shape[0];
    return POME_OK;
}

/* Element i of a list as a tensor. */
static pome_tensor element_at(const pome_tensor *list, int64_t i)
{
    pome_tensor element = {.dtype = list->dtype, .rank = list->rank - 1};
    for (int32_t d = 0; d < element.rank; d++) {
        element.shape[d] = list->shape[d + 1];
        element.stride[d] = list->stride[d + 1];
    }
    element.data = pome_elem_at(list, i * list->stride[0]);
    return element;
}

static bool same_shape(const pome_tensor *a, const pome_tensor *b)
{
    bool is_same = a->rank == b->rank;
    for (int32_t d = 0; is_same && d < a->rank; d++)
        is_same = a->shape[d] == b->shape[d];
    return is_same;
}

static pome_status check_index(const pome_run *r, int64_t position, int64_t index, int64_t length, pome_error *err)
{
    return index >= 0 && index < length ? POME_OK : pome_index_fail(r, position, index, length, err);
}

/* out = list, zeros where out is longer. A list whose elements have another shape was never written. */
static pome_status copy_list(const pome_run *r, const pome_tensor *list, pome_error *err)
{
    static const uint64_t zero;
    const pome_tensor *out = &r->out[0];
    if (out->rank < 1 || list->rank < 1)
        return pome_view_misfit(r, err);
    pome_tensor head = *out, tail = *out;
    pome_tensor of_out = element_at(out, 0), of_list = element_at(list, 0);
    if (!same_shape(&of_out, &of_list)) {
        if (pome_tensor_count(list) != 0)
            return pome_view_misfit(r, err);
        pome_strided_fill(out, &zero, r->pool);
        return POME_OK;
    }
    if (list->shape[0] > out->shape[0])
        return pome_view_misfit(r, err);
    head.shape[0] = list->shape[0];
    tail.shape[0] = out->shape[0] - list->shape[0];
    tail.data = pome_tensor_count(&tail) == 0 ? out->data : pome_elem_at(out, list->shape[0] * out->stride[0]);
    if (list->data != out->data)
        pome_strided_copy(&head, list, r->pool, r->kernels);
    pome_strided_fill(&tail, &zero, r->pool);
    return POME_OK;
}

static pome_status run_list_write(const pome_run *r, pome_error *err)
{
    const pome_tensor *value = pome_in(r, P_list_write_value), *out = &r->out[0];
    int64_t index = pome_tensor_int_at(pome_in(r, P_list_write_index), 0);
    POME_TRY(copy_list(r, pome_in(r, P_list_write_ls), err));
    POME_TRY(check_index(r, 0, index, out->shape[0], err));
    pome_tensor element = element_at(out, index);
    if (!same_shape(&element, value))
        return pome_view_misfit(r, err);
    pome_strided_copy(&element, value, r->pool, r->kernels);
    return POME_OK;
}

static pome_status run_list_read(const pome_run *r, pome_error *err)
{
    const pome_tensor *list = pome_in(r, P_list_read_ls);
    int64_t index = pome_tensor_int_at(pome_in(r, P_list_read_index), 0);
    if (list->rank < 1)
        return pome_view_misfit(r, err);
    POME_TRY(check_index(r, 0, index, list->shape[0], err));
    pome_tensor element = element_at(list, index);
    if (!same_shape(&element, &r->out[0]))
        return pome_view_misfit(r, err);
    pome_strided_copy(&r->out[0], &element, r->pool, r->kernels);
    return POME_OK;
}

static pome_status run_list_gather(const pome_run *r, pome_error *err)
{
    const pome_tensor *list = pome_in(r, P_list_gather_ls), *indices = pome_in(r, P_list_gather_indices);
    const pome_tensor *out = &r->out[0];
    int64_t n = pome_tensor_count(indices);
    if (list->rank < 1 || out->rank != list->rank || out->shape[0] != n)
        return pome_view_misfit(r, err);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = pome_index_read(indices, i);
        POME_TRY(check_index(r, i, index, list->shape[0], err));
        pome_tensor src = element_at(list, index), dst = element_at(out, i);
        if (!same_shape(&src, &dst))
            return pome_view_misfit(r, err);
        pome_strided_copy(&dst, &src, r->pool, r->kernels);
    }
    return POME_OK;
}

static pome_status run_list_scatter(const pome_run *r, pome_error *err)
{
    const pome_tensor *indices = pome_in(r, P_list_scatter_indices), *value = pome_in(r, P_list_scatter_value);
    const pome_tensor *out = &r->out[0];
    int64_t n = pome_tensor_count(indices);
    POME_TRY(copy_list(r, pome_in(r, P_list_scatter_ls), err));
    if (value->rank != out->rank || value->shape[0] != n)
        return pome_view_misfit(r, err);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = pome_index_read(indices, i);
        POME_TRY(check_index(r, i, index, out->shape[0], err));
        pome_tensor src = element_at(value, i), dst = element_at(out, index);
        if (!same_shape(&src, &dst))
            return pome_view_misfit(r, err);
        pome_strided_copy(&dst, &src, r->pool, r->kernels);
    }
    return POME_OK;
}

#define ANY2(op, a, b)                                                                             \
    {.id = POME_OP_##op,                                                                           \
     .f16_ok = POME_BIT(P_##op##_##a) | POME_BIT(P_##op##_##b),                                    \
     .strided_ok = POME_BIT(P_##op##_##a) | POME_BIT(P_##op##_##b),                                \
     .run = run_##op}
#define ANY1(op, a) ANY2(op, a, a)

const pome_op_impl pome_ops_list[] = {
    {.id = POME_OP_make_list, .run = run_make_list},
    ANY1(list_length, ls),
    ANY2(list_write, ls, value),
    ANY1(list_read, ls),
    ANY1(list_gather, ls),
    ANY2(list_scatter, ls, value),
};
POME_FAMILY_COUNT(list)
