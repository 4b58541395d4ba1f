/* Inference of control flow, lists, states and classify. */
#include <inttypes.h>

#include "mil/infer.h"

/* ---- control flow: at load only; pome_function_infer has inferred the blocks before ---- */

/* What holds for both types: equal sizes stay, others become fresh symbols. */
static pome_status join_types(pome_infer *c, const pome_type *a, const pome_type *b, uint32_t i, pome_type *out,
                              pome_error *err)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank) {
        char x[160], y[160];
        return pome_infer_fail(c, err, "output %" PRIu32 " may be %s or %s", i, pome_type_print(a, x, sizeof x),
                               pome_type_print(b, y, sizeof y));
    }
    *out = *a;
    for (int32_t d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d])
            out->dim[d] = pome_infer_symbol(c);
    if (a->list_length != b->list_length)
        out->list_length = -1;
    return POME_OK;
}

static pome_status need_blocks(pome_infer *c, pome_error *err)
{
    if (!pome_infer_at_load(c))
        return pome_infer_fail(c, err, "has no shape before it has run");
    if (c->op->n_blocks != 2)
        return pome_infer_fail(c, err, "has %" PRIu32 " blocks, not 2", c->op->n_blocks);
    return POME_OK;
}

pome_status pome_infer_cond(pome_infer *c, pome_error *err)
{
    POME_TRY(need_blocks(c, err));
    const pome_block *yes = c->op->blocks[0], *no = c->op->blocks[1];
    if (yes->n_inputs || no->n_inputs)
        return pome_infer_fail(c, err, "its blocks take inputs");
    if (yes->n_outputs != c->op->n_out || no->n_outputs != c->op->n_out)
        return pome_infer_fail(c, err, "has %" PRIu32 " outputs, its blocks %" PRIu32 " and %" PRIu32, c->op->n_out,
                               yes->n_outputs, no->n_outputs);
    for (uint32_t i = 0; i < c->op->n_out; i++)
        POME_TRY(join_types(c, &yes->outputs[i]->type, &no->outputs[i]->type, i, &c->out[i], err));
    return POME_OK;
}

/* The result is a variable as it came in or as the body left it. */
pome_status pome_infer_while_loop(pome_infer *c, pome_error *err)
{
    POME_TRY(need_blocks(c, err));
    const pome_arg vars = c->op->args[P_while_loop_loop_vars];
    const pome_block *cond = c->op->blocks[0], *body = c->op->blocks[1];
    if (cond->n_inputs != vars.count || body->n_inputs != vars.count || body->n_outputs != vars.count ||
        c->op->n_out != vars.count)
        return pome_infer_fail(c, err, "has %" PRIu32 " loop variables, but %" PRIu32 ", %" PRIu32
                               " block inputs, %" PRIu32 " results of the body and %" PRIu32 " outputs",
                               vars.count, cond->n_inputs, body->n_inputs, body->n_outputs, c->op->n_out);
    if (cond->n_outputs != 1 || cond->outputs[0]->type.kind != POME_TYPE_TENSOR ||
        cond->outputs[0]->type.dtype != POME_DTYPE_BOOL || pome_type_count(&cond->outputs[0]->type) > 1)
        return pome_infer_fail(c, err, "its condition is not one bool");
    for (uint32_t i = 0; i < vars.count; i++)
        POME_TRY(join_types(c, c->in[vars.first + i], &body->outputs[i]->type, i, &c->out[i], err));
    return POME_OK;
}

/* ---- lists: kind LIST with the element's dtype and sizes ---- */

/* elem_shape: one scalar per axis; a string or a negative number is a size not known yet. */
pome_status pome_infer_make_list(pome_infer *c, pome_error *err)
{
    const pome_arg shape = c->op->args[P_make_list_elem_shape];
    pome_type *out = &c->out[0];
    int64_t length = 1;
    if (!pome_infer_has(c, P_make_list_init_length) || pome_infer_value(c, P_make_list_init_length)) {
        POME_TRY(pome_infer_int(c, P_make_list_init_length, 1, &length, err));
        if (length < 0 || length > INT32_MAX)
            return pome_infer_fail(c, err, "init_length is %" PRId64, length);
    } else {
        length = -1;
    }
    if (shape.count > POME_MAX_RANK)
        return pome_infer_fail(c, err, "elements have rank %" PRIu32 ", more than %d", shape.count, POME_MAX_RANK);
    POME_TRY(pome_infer_dtype(c, P_make_list_dtype, POME_DTYPE_F32, POME_T_FIB, &out->dtype, err));
    out->kind = POME_TYPE_LIST;
    out->rank = (int32_t)shape.count;
    out->list_length = length;
    for (uint32_t i = 0; i < shape.count; i++) {
        const pome_tensor *t = c->value[shape.first + i];
        int64_t size = t && t->dtype != POME_DTYPE_STRING ? pome_tensor_int_at(t, 0) : -1;
        out->dim[i] = size >= 0 ? size : pome_infer_symbol(c);
    }
    return POME_OK;
}

/* Elements of a list must fit what is written; what was not known of their sizes is then. */
static pome_status write_element(pome_infer *c, const pome_type *list, const pome_type *value, int32_t skip,
                                 pome_error *err)
{
    pome_type *out = &c->out[0];
    *out = *list;
    bool fits = value->kind == POME_TYPE_TENSOR && value->dtype == list->dtype && value->rank - skip == list->rank;
    for (int32_t i = 0; fits && i < list->rank; i++) {
        /* at run time a size of 0 stands for one that no write has set yet */
        bool is_open = list->dim[i] < 0 || (list->dim[i] == 0 && !pome_infer_at_load(c));
        fits = is_open || pome_dim_may_equal(list->dim[i], value->dim[i + skip]);
        if (is_open)
            out->dim[i] = value->dim[i + skip];
    }
    if (fits)
        return POME_OK;
    char a[160], b[160];
    return pome_infer_fail(c, err, "cannot write %s into a %s", pome_type_print(value, a, sizeof a),
                           pome_type_print(list, b, sizeof b));
}

static pome_status grow(pome_infer *c, const pome_tensor *index, pome_error *err)
{
    int64_t n = pome_tensor_count(index), *length = &c->out[0].list_length;
    for (int64_t i = 0; i < n && *length >= 0; i++) {
        int64_t at = pome_tensor_int_at(index, i);
        if (at < 0 || at >= INT32_MAX)
            return pome_infer_fail(c, err, "index %" PRId64 " is out of range", at);
        *length = at >= *length ? at + 1 : *length;
    }
    return POME_OK;
}

pome_status pome_infer_list_write(pome_infer *c, pome_error *err)
{
    const pome_tensor *index = pome_infer_value(c, P_list_write_index);
    POME_TRY(write_element(c, pome_infer_type(c, P_list_write_ls), pome_infer_type(c, P_list_write_value), 0, err));
    if (index)
        return grow(c, index, err);
    c->out[0].list_length = -1;
    return POME_OK;
}

/* indices [K], value [K, *element] */
pome_status pome_infer_list_scatter(pome_infer *c, pome_error *err)
{
    const pome_type *value = pome_infer_type(c, P_list_scatter_value);
    const pome_tensor *indices = pome_infer_value(c, P_list_scatter_indices);
    POME_TRY(write_element(c, pome_infer_type(c, P_list_scatter_ls), value, 1, err));
    POME_TRY(pome_infer_vector(c, P_list_scatter_indices, value->dim[0], err));
    if (indices)
        return grow(c, indices, err);
    c->out[0].list_length = -1;
    return POME_OK;
}

static pome_type element_of(const pome_type *list)
{
    pome_type t = *list;
    t.kind = POME_TYPE_TENSOR;
    t.list_length = 0;
    return t;
}

pome_status pome_infer_list_read(pome_infer *c, pome_error *err)
{
    (void)err;
    c->out[0] = element_of(pome_infer_type(c, P_list_read_ls));
    return POME_OK;
}

pome_status pome_infer_list_gather(pome_infer *c, pome_error *err)
{
    const pome_type *list = pome_infer_type(c, P_list_gather_ls), *indices = pome_infer_type(c, P_list_gather_indices);
    POME_TRY(pome_infer_rank(c, P_list_gather_indices, 1, 1, err));
    if (list->rank >= POME_MAX_RANK)
        return pome_infer_fail(c, err, "the result's rank is more than %d", POME_MAX_RANK);
    c->out[0] = element_of(list);
    c->out[0].rank = list->rank + 1;
    c->out[0].dim[0] = indices->dim[0];
    for (int32_t i = 0; i < list->rank; i++)
        c->out[0].dim[i + 1] = list->dim[i];
    return POME_OK;
}

pome_status pome_infer_list_length(pome_infer *c, pome_error *err)
{
    (void)err;
    c->out[0] = pome_type_tensor(POME_DTYPE_I32, 0, NULL);
    return POME_OK;
}

/* ---- states ---- */

pome_status pome_infer_read_state(pome_infer *c, pome_error *err)
{
    (void)err;
    c->out[0] = *pome_infer_type(c, P_read_state_input);
    c->out[0].kind = POME_TYPE_TENSOR;
    return POME_OK;
}

pome_status pome_infer_write_state(pome_infer *c, pome_error *err)
{
    const pome_type *data = pome_infer_type(c, P_write_state_data);
    pome_type wanted = *pome_infer_type(c, P_write_state_input);
    char a[160], b[160];
    wanted.kind = POME_TYPE_TENSOR;
    if (pome_type_compatible(data, &wanted))
        return POME_OK;
    return pome_infer_fail(c, err, "data is %s, the state holds %s", pome_type_print(data, a, sizeof a),
                           pome_type_print(&wanted, b, sizeof b));
}

/* ---- classify ---- */

/* label: a string or an int64 scalar; the dictionary maps each class to its probability (fp64). */
pome_status pome_infer_classify(pome_infer *c, pome_error *err)
{
    const pome_value *classes = pome_op_arg(c->op, P_classify_classes);
    const pome_const *k = classes->konst;
    int64_t n_probabilities = pome_type_count(pome_infer_type(c, P_classify_probabilities));
    if (!k)
        return pome_infer_fail(c, err, "classes must be a constant list");
    int64_t n = pome_tensor_count(&k->t);
    pome_dtype key = k->strings ? POME_DTYPE_STRING : POME_DTYPE_I64;
    if (!k->strings && !pome_dtype_is_int(k->t.dtype))
        return pome_infer_fail(c, err, "classes are %s, neither strings nor integers", pome_dtype_name(k->t.dtype));
    if (n_probabilities >= 0 && n_probabilities != n)
        return pome_infer_fail(c, err, "%" PRId64 " probabilities for %" PRId64 " classes", n_probabilities, n);
    c->out[0] = pome_type_tensor(key, 0, NULL);
    c->out[1] = (pome_type){.kind = POME_TYPE_DICT, .dtype = key, .rank = 1, .dim = {n}};
    return POME_OK;
}
