/* Inference of products: linear, matmul, einsum, attention. */
#include <inttypes.h>
#include <string.h>

#include "mil/infer.h"

static bool is_const(const pome_infer *c, uint32_t param)
{
    const pome_value *v = pome_op_arg(c->op, param);
    return v && (v->konst || (v->def && v->def->def->flags & POME_OP_CONSTEXPR));
}

/* From iOS 17 on a constant may be of another dtype than the other side, whose dtype the result has. */
static pome_status check_dtypes(pome_infer *c, uint32_t constant, const pome_type *x, const pome_type *k, pome_error *err)
{
    return c->opset >= POME_OPSET_IOS17 && is_const(c, constant) ? POME_OK : pome_infer_same_dtype(c, x, k, err);
}

/* x[..., in] * weight[out, in]^T + bias[out] */
pome_status pome_infer_linear(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_linear_x), *w = pome_infer_type(c, P_linear_weight);
    POME_TRY(pome_infer_rank(c, P_linear_x, 1, POME_MAX_RANK, err));
    POME_TRY(pome_infer_rank(c, P_linear_weight, 2, 2, err));
    if (!pome_dim_may_equal(x->dim[x->rank - 1], w->dim[1]))
        return pome_infer_fail(c, err, "x's last size is %" PRId64 ", the weight's %" PRId64, x->dim[x->rank - 1],
                               w->dim[1]);
    POME_TRY(pome_infer_vector(c, P_linear_bias, w->dim[0], err));
    POME_TRY(check_dtypes(c, P_linear_weight, x, w, err));
    if (pome_infer_has(c, P_linear_bias))
        POME_TRY(check_dtypes(c, P_linear_bias, x, pome_infer_type(c, P_linear_bias), err));
    c->out[0] = *x;
    c->out[0].dim[x->rank - 1] = w->dim[0];
    return POME_OK;
}

static pome_status matmul_dtype(pome_infer *c, const pome_type *x, const pome_type *y, pome_dtype *out, pome_error *err)
{
    *out = x->dtype;
    if (x->dtype == y->dtype)
        return POME_OK;
    bool x_const = is_const(c, P_matmul_x);
    POME_TRY(check_dtypes(c, x_const ? P_matmul_x : P_matmul_y, x, y, err));
    if (x_const == is_const(c, P_matmul_y))
        return pome_infer_fail(c, err, "x is %s, y is %s", pome_dtype_name(x->dtype), pome_dtype_name(y->dtype));
    *out = x_const ? y->dtype : x->dtype;
    return POME_OK;
}

/* As numpy.matmul: a vector x is a row, a vector y a column, and that axis is dropped from the result. */
pome_status pome_infer_matmul(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_matmul_x), *y = pome_infer_type(c, P_matmul_y);
    bool tx = false, ty = false;
    pome_dtype dtype = x->dtype;
    POME_TRY(pome_infer_rank(c, P_matmul_x, 1, POME_MAX_RANK, err));
    POME_TRY(pome_infer_rank(c, P_matmul_y, 1, POME_MAX_RANK, err));
    POME_TRY(pome_infer_bool(c, P_matmul_transpose_x, false, &tx, err));
    POME_TRY(pome_infer_bool(c, P_matmul_transpose_y, false, &ty, err));
    if ((tx && x->rank == 1) || (ty && y->rank == 1))
        return pome_infer_fail(c, err, "a vector cannot be transposed");
    POME_TRY(matmul_dtype(c, x, y, &dtype, err));
    int32_t rx = x->rank, ry = y->rank;
    int64_t m = rx == 1 ? 1 : x->dim[tx ? rx - 1 : rx - 2], kx = x->dim[tx ? rx - 2 : rx - 1];
    int64_t n = ry == 1 ? 1 : y->dim[ty ? ry - 2 : ry - 1], ky = y->dim[ry == 1 ? 0 : ty ? ry - 1 : ry - 2];
    if (!pome_dim_may_equal(kx, ky))
        return pome_infer_fail(c, err, "the inner sizes differ: %" PRId64 " and %" PRId64, kx, ky);
    pome_type bx = *x, by = *y, *out = &c->out[0];
    bx.rank = rx > 2 ? rx - 2 : 0;
    by.rank = ry > 2 ? ry - 2 : 0;
    POME_TRY(pome_infer_broadcast(c, &bx, &by, out, err));
    out->dtype = dtype;
    if (rx > 1)
        out->dim[out->rank++] = m;
    if (ry > 1)
        out->dim[out->rank++] = n;
    return POME_OK;
}

/* ---- einsum ---- */

/* The letters of one operand; NULL end: malformed. */
typedef struct letters {
    char l[POME_MAX_RANK];
    int32_t n;
} letters;

/* Reads letters up to `stop` (',' or '-' or NUL) and returns the place of the stop, or NULL. */
static const char *read_letters(const char *s, letters *out)
{
    out->n = 0;
    for (; *s && *s != ',' && *s != '-'; s++) {
        if (*s == ' ')
            continue;
        bool is_letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        if (!is_letter || out->n == POME_MAX_RANK)
            return NULL;
        out->l[out->n++] = *s;
    }
    return s;
}

static bool parse_einsum(const char *s, letters *x, letters *y, letters *out)
{
    return (s = read_letters(s, x)) && *s == ',' && (s = read_letters(s + 1, y)) && s[0] == '-' && s[1] == '>' &&
           (s = read_letters(s + 2, out)) && *s == 0;
}

/* Meets a size with what is known of its letter: 1 gives way, unknown gives way to known. */
static bool meet(int64_t *size, int64_t dim)
{
    if (*size == 1 || *size == dim)
        *size = dim;
    else if (*size < 0 && dim > 1)
        *size = dim;
    else if (*size >= 0 && dim >= 0 && dim != 1)
        return false;
    return true;
}

static const int64_t unset = INT64_MIN;

static pome_status note_sizes(pome_infer *c, const letters *l, const pome_type *t, int64_t *size, pome_error *err)
{
    if (l->n != t->rank)
        return pome_infer_fail(c, err, "the equation gives an input rank %" PRId32 ", it has %" PRId32, l->n, t->rank);
    for (int32_t i = 0; i < l->n; i++) {
        int64_t *s = &size[l->l[i] & 127];
        if (*s == unset)
            *s = t->dim[i];
        else if (!meet(s, t->dim[i]))
            return pome_infer_fail(c, err, "sizes of '%c' differ: %" PRId64 " and %" PRId64, l->l[i], *s, t->dim[i]);
    }
    return POME_OK;
}

pome_status pome_infer_einsum(pome_infer *c, pome_error *err)
{
    const pome_arg values = c->op->args[P_einsum_values];
    const char *equation = pome_op_str(c->op, P_einsum_equation, "");
    letters lx, ly, lo;
    int64_t size[128];
    if (values.count != 2)
        return pome_infer_fail(c, err, "has %" PRIu32 " values, not 2", values.count);
    if (!parse_einsum(equation, &lx, &ly, &lo))
        return pome_infer_fail(c, err, "cannot read the equation '%s'", equation);
    const pome_type *x = c->in[values.first], *y = c->in[values.first + 1];
    if (x->dtype != y->dtype)
        return pome_infer_fail(c, err, "the values are %s and %s", pome_dtype_name(x->dtype), pome_dtype_name(y->dtype));
    for (int i = 0; i < 128; i++)
        size[i] = unset;
    POME_TRY(note_sizes(c, &lx, x, size, err));
    POME_TRY(note_sizes(c, &ly, y, size, err));
    c->out[0] = pome_type_tensor(x->dtype, 0, NULL);
    c->out[0].rank = lo.n;
    for (int32_t i = 0; i < lo.n; i++) {
        int64_t *s = &size[lo.l[i] & 127];
        if (*s == unset)
            return pome_infer_fail(c, err, "the equation '%s' repeats or invents '%c'", equation, lo.l[i]);
        c->out[0].dim[i] = *s;
        *s = unset;
    }
    return POME_OK;
}

/* ---- attention ---- */

/* mask broadcasts to [B*, L, S] with S spelled out. */
static pome_status check_mask(pome_infer *c, const pome_type *q, const pome_type *mask, int64_t s, pome_error *err)
{
    char a[160];
    bool fits = mask->rank >= 1 && mask->rank <= q->rank && pome_dim_may_equal(mask->dim[mask->rank - 1], s);
    for (int32_t i = 0; fits && i < mask->rank - 1; i++) {
        int64_t m = mask->dim[i];
        fits = m == 1 || pome_dim_may_equal(m, q->dim[q->rank - mask->rank + i]);
    }
    if (!fits)
        return pome_infer_fail(c, err, "attn_mask %s does not broadcast to the scores of %" PRId64 " keys",
                               pome_type_print(mask, a, sizeof a), s);
    return POME_OK;
}

/* Parameters of both attention operators have the same indices; `groups` query heads share a head of k and v. */
static pome_status infer_attention(pome_infer *c, int64_t groups, pome_error *err)
{
    const pome_type *q = pome_infer_type(c, P_scaled_dot_product_attention_query);
    const pome_type *k = pome_infer_type(c, P_scaled_dot_product_attention_key);
    const pome_type *v = pome_infer_type(c, P_scaled_dot_product_attention_value);
    const pome_type *mask = pome_infer_type(c, P_scaled_dot_product_attention_attn_mask);
    int32_t rank = q->rank;
    POME_TRY(pome_infer_rank(c, P_scaled_dot_product_attention_query, groups == 1 ? 3 : 4, POME_MAX_RANK, err));
    bool fits = k->rank == rank && v->rank == rank && pome_dim_may_equal(q->dim[rank - 1], k->dim[rank - 1]) &&
                pome_dim_may_equal(k->dim[rank - 2], v->dim[rank - 2]);
    for (int32_t i = 0; fits && i < rank - 2; i++) {
        int64_t dim = q->dim[i];
        if (i == rank - 3 && groups > 1 && dim >= 0) {
            fits = dim % groups == 0;
            dim /= groups;
        }
        fits = fits && (dim < 0 || (pome_dim_may_equal(dim, k->dim[i]) && pome_dim_may_equal(dim, v->dim[i])));
    }
    if (!fits) {
        char a[160], b[160], d[160];
        return pome_infer_fail(c, err, "query %s, key %s and value %s do not fit", pome_type_print(q, a, sizeof a),
                               pome_type_print(k, b, sizeof b), pome_type_print(v, d, sizeof d));
    }
    if (mask)
        POME_TRY(check_mask(c, q, mask, k->dim[rank - 2] >= 0 ? k->dim[rank - 2] : v->dim[rank - 2], err));
    c->out[0] = *q;
    c->out[0].dim[rank - 1] = v->dim[rank - 1];
    return POME_OK;
}

pome_status pome_infer_scaled_dot_product_attention(pome_infer *c, pome_error *err)
{
    return infer_attention(c, 1, err);
}

pome_status pome_infer_pome_grouped_attention(pome_infer *c, pome_error *err)
{
    int64_t groups = 1;
    bool rows_first = false;
    POME_TRY(pome_infer_int(c, P_pome_grouped_attention_groups, 1, &groups, err));
    if (groups < 1)
        return pome_infer_fail(c, err, "groups is %" PRId64, groups);
    POME_TRY(pome_infer_bool(c, P_pome_grouped_attention_rows_first, false, &rows_first, err));
    POME_TRY(infer_attention(c, groups, err));
    pome_type *out = &c->out[0];
    if (rows_first) {
        int64_t heads = out->dim[out->rank - 3];
        out->dim[out->rank - 3] = out->dim[out->rank - 2];
        out->dim[out->rank - 2] = heads;
    }
    return POME_OK;
}
