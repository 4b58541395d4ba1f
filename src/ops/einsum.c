/* Two-operand einsum. Every label is one of four kinds: in both operands and the output (batch), in the output and
 * one operand (rows of the first, columns of the second), or summed. That makes any equation a batch of matrix
 * products c[batch][row][column] = sum a[batch][row][k] * b[batch][column][k]. An operand whose labels already lie
 * like this in memory is used as it is, another is copied first; so is the result. Labels of size 1 drop out, which
 * is also how they broadcast. */
#include "ops/families.h"
#include "ops/strided.h"

#include <string.h>

enum { LABELS_MAX = 2 * POME_MAX_RANK };
/* Elements of both operands and the result laid out as matrices. A label summed in one operand alone is repeated in
 * the other, so this is more than what the shapes were checked for. */
#define PACKED_MAX 0x1p42

typedef enum operand { A, B, C } operand;

typedef struct label {
    char name;
    int64_t n;
    int64_t stride[3]; /* elements in a, b, c; 0 where absent */
    bool in[3];
} label;

typedef struct group {
    int32_t count;
    label label[LABELS_MAX];
    int64_t n; /* product of sizes */
} group;

/* One operand as the product sees it. */
typedef struct matrix {
    bool is_packed;
    int64_t row, column; /* strides of the two axes in elements; column is that of k or of the output's column */
} matrix;

typedef struct einsum_plan {
    group batch, rows, columns, sums;
    matrix a, b, c;
    bool b_is_by_k;      /* b is [k][column], not [column][k] */
    int64_t n_a, n_b, n_c; /* elements to pack, 0 if used in place */
} einsum_plan;

/* ---- the equation ---- */
static pome_status bad_equation(const pome_run *r, const char *equation, const char *why, pome_error *err)
{
    return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "equation '%s' %s", equation, why);
}

static label *find_label(label *labels, int32_t *n, char name)
{
    for (int32_t i = 0; i < *n; i++)
        if (labels[i].name == name)
            return &labels[i];
    if (*n == LABELS_MAX)
        return NULL;
    labels[*n] = (label){.name = name, .n = 1};
    return &labels[(*n)++];
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads the labels of one operand up to `end`; strides are those of a contiguous tensor. */
static pome_status read_operand(const pome_run *r, const char *equation, const char **at, char end, operand which,
                                const pome_tensor *t, label *labels, int32_t *n, pome_error *err)
{
    int64_t stride[POME_MAX_RANK], step = 1;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= t->shape[d] > 0 ? t->shape[d] : 1;
    }
    int32_t axis = 0;
    for (; **at && **at != end; (*at)++) {
        if (**at == ' ')
            continue;
        if (!is_letter(**at))
            return bad_equation(r, equation, "has something other than letters, ',' and '->'", err);
        if (axis == t->rank)
            return bad_equation(r, equation, "has more labels than a tensor has axes", err);
        label *l = find_label(labels, n, **at);
        if (!l || (which == C && (l->in[C] || (!l->in[A] && !l->in[B]))))
            return bad_equation(r, equation, "has an output label twice or from nowhere", err);
        int64_t size = t->shape[axis];
        if (size != l->n && (which == C || (size != 1 && l->n != 1)))
            return bad_equation(r, equation, "names axes of different sizes alike", err);
        l->n = size != 1 ? size : l->n;
        l->stride[which] += size != 1 ? stride[axis] : 0;
        l->in[which] = true;
        axis++;
    }
    if (axis != t->rank)
        return bad_equation(r, equation, "has fewer labels than a tensor has axes", err);
    return POME_OK;
}

static pome_status read_equation(const pome_run *r, label *labels, int32_t *n, pome_error *err)
{
    const char *equation = pome_op_str(r->op, P_einsum_equation, ""), *at = equation;
    if (pome_in_count(r, P_einsum_values) != 2)
        return bad_equation(r, equation, "is applied to other than two values", err);
    POME_TRY(read_operand(r, equation, &at, ',', A, pome_in_at(r, P_einsum_values, 0), labels, n, err));
    if (*at != ',')
        return bad_equation(r, equation, "has no second operand", err);
    at++;
    POME_TRY(read_operand(r, equation, &at, '-', B, pome_in_at(r, P_einsum_values, 1), labels, n, err));
    if (at[0] != '-' || at[1] != '>')
        return bad_equation(r, equation, "has no '->'", err);
    at += 2;
    return read_operand(r, equation, &at, '\0', C, &r->out[0], labels, n, err);
}

/* ---- the plan ---- */
static void group_add(group *g, const label *l)
{
    g->label[g->count++] = *l;
    if (__builtin_mul_overflow(g->n, l->n, &g->n))
        g->n = INT64_MAX / LABELS_MAX; /* refused for its size */
}

/* The stride at which all labels of a group are walked as one axis; false if there is none. */
static bool group_stride(const group *g, operand which, int64_t *stride)
{
    for (int32_t i = 0; i + 1 < g->count; i++)
        if (g->label[i].stride[which] != g->label[i + 1].n * g->label[i + 1].stride[which])
            return false;
    *stride = g->count ? g->label[g->count - 1].stride[which] : 0;
    return true;
}

/* Labels in the order of the output's axes, which is that of falling strides; the summed ones in a's order. */
static void sort_group(group *g, operand by)
{
    for (int32_t i = 1; i < g->count; i++)
        for (int32_t j = i; j > 0 && g->label[j - 1].stride[by] < g->label[j].stride[by]; j--) {
            label l = g->label[j];
            g->label[j] = g->label[j - 1];
            g->label[j - 1] = l;
        }
}

static void choose_layouts(einsum_plan *p)
{
    int64_t row = 0, column = 0;
    int64_t n_rows = p->rows.n, n_columns = p->columns.n, n_sums = p->sums.n;
    bool is_direct = group_stride(&p->rows, A, &row) && group_stride(&p->sums, A, &column) &&
                     (n_sums == 1 || column == 1) && (n_rows == 1 || row >= n_sums);
    p->a = is_direct ? (matrix){false, n_rows == 1 ? n_sums : row, 1} : (matrix){true, n_sums, 1};
    p->n_a = is_direct ? 0 : p->batch.n * n_rows * n_sums;
    bool is_line = group_stride(&p->columns, B, &row) && group_stride(&p->sums, B, &column);
    p->n_b = 0;
    if (is_line && (n_sums == 1 || column == 1) && (n_columns == 1 || row >= n_sums)) {
        p->b = (matrix){false, n_columns == 1 ? n_sums : row, 1};
    } else if (is_line && (n_columns == 1 || row == 1) && column >= n_columns) {
        p->b = (matrix){false, column, 1};
        p->b_is_by_k = true;
    } else {
        p->b = (matrix){true, n_sums, 1};
        p->n_b = p->batch.n * n_columns * n_sums;
    }
    is_direct = group_stride(&p->rows, C, &row) && group_stride(&p->columns, C, &column) &&
                (n_columns == 1 || column == 1) && (n_rows == 1 || row >= n_columns);
    p->c = is_direct ? (matrix){false, n_rows == 1 ? n_columns : row, 1} : (matrix){true, n_columns, 1};
    p->n_c = is_direct ? 0 : p->batch.n * n_rows * n_columns;
}

static pome_status make_plan(const pome_run *r, einsum_plan *p, pome_error *err)
{
    label labels[LABELS_MAX];
    int32_t n = 0;
    memset(p, 0, sizeof *p);
    p->batch.n = p->rows.n = p->columns.n = p->sums.n = 1;
    POME_TRY(read_equation(r, labels, &n, err));
    for (int32_t i = 0; i < n; i++) {
        const label *l = &labels[i];
        if (l->n == 1)
            continue;
        bool in_a = l->stride[A] != 0, in_b = l->stride[B] != 0;
        if (l->in[C])
            group_add(in_a && in_b ? &p->batch : in_b ? &p->columns : &p->rows, l);
        else
            group_add(&p->sums, l);
    }
    sort_group(&p->batch, C);
    sort_group(&p->rows, C);
    sort_group(&p->columns, C);
    sort_group(&p->sums, A);
    double n_batch = (double)p->batch.n, n_rows = (double)p->rows.n, n_columns = (double)p->columns.n;
    if (n_batch * (n_rows + n_columns) * (double)p->sums.n + n_batch * n_rows * n_columns > PACKED_MAX)
        return pome_op_fail(r->op, err, POME_ERR_LIMIT, "the operands are too large");
    choose_layouts(p);
    return POME_OK;
}

/* Bytes, each part rounded up to whole cache lines. */
static size_t part_bytes(int64_t n_elements, size_t elem_size)
{
    return ((size_t)n_elements * elem_size + 63) / 64 * 64;
}

static size_t scratch_einsum(const pome_run *r)
{
    einsum_plan p;
    if (make_plan(r, &p, NULL) != POME_OK)
        return 0;
    size_t size = (size_t)pome_elem_size(r->out[0].dtype);
    return part_bytes(p.n_a, size) + part_bytes(p.n_b, size) + part_bytes(p.n_c, size);
}

/* ---- running ---- */
/* Copies an operand's labels in the order of `groups` to or from contiguous memory. */
static void pack(const pome_run *r, const group *const *groups, int32_t n_groups, operand which, pome_dtype dtype,
                 void *dst, const void *src, bool is_unpacking)
{
    int64_t shape[LABELS_MAX], given[LABELS_MAX], packed[LABELS_MAX], step = 1;
    int32_t rank = 0;
    for (int32_t g = 0; g < n_groups; g++)
        for (int32_t i = 0; i < groups[g]->count; i++) {
            shape[rank] = groups[g]->label[i].n;
            given[rank++] = groups[g]->label[i].stride[which];
        }
    for (int32_t d = rank - 1; d >= 0; d--) {
        packed[d] = step;
        step *= shape[d];
    }
    pome_copy c;
    pome_copy_init(&c, dtype, dtype, rank, shape, is_unpacking ? given : packed, is_unpacking ? packed : given);
    pome_copy_run(&c, dst, src, r->pool, r->kernels);
}

typedef struct product {
    const einsum_plan *p;
    const pome_kernels *kernels;
    pome_dtype dtype;
    const char *a, *b;
    char *c;
    int64_t n_row_pieces, n_column_pieces;
} product;

enum { ROWS = 16, COLUMNS = 128 }; /* of the output that one piece of work makes */

/* Where batch `index` of an operand begins, in elements. */
static int64_t batch_offset(const group *batch, operand which, int64_t index)
{
    int64_t offset = 0;
    for (int32_t i = batch->count - 1; i >= 0; i--) {
        offset += index % batch->label[i].n * batch->label[i].stride[which];
        index /= batch->label[i].n;
    }
    return offset;
}

#define DEFINE_PRODUCT(name, T, W)                                                                 \
    static void product_##name(const product *x, const T *a, const T *b, T *c, int64_t m, int64_t n)\
    {                                                                                              \
        const einsum_plan *p = x->p;                                                               \
        int64_t b_column = p->b_is_by_k ? 1 : p->b.row, b_k = p->b_is_by_k ? p->b.row : 1;         \
        for (int64_t i = 0; i < m; i++)                                                            \
            for (int64_t j = 0; j < n; j++) {                                                      \
                W sum = 0;                                                                         \
                for (int64_t k = 0; k < p->sums.n; k++)                                            \
                    sum += (W)a[i * p->a.row + k] * (W)b[j * b_column + k * b_k];                  \
                c[i * p->c.row + j] = (T)sum;                                                      \
            }                                                                                      \
    }
DEFINE_PRODUCT(u8, uint8_t, uint32_t) /* the low bits are those of the signed types too */
DEFINE_PRODUCT(u16, uint16_t, uint32_t)
DEFINE_PRODUCT(u32, uint32_t, uint32_t)

static void product_f32(const product *x, const float *a, const float *b, float *c, int64_t m, int64_t n)
{
    const einsum_plan *p = x->p;
    (p->b_is_by_k ? x->kernels->gemm_nn_f32 : x->kernels->gemm_nt_f32)(
        c, (size_t)p->c.row, a, (size_t)p->a.row, b, (size_t)p->b.row, (size_t)m, (size_t)n, (size_t)p->sums.n, false);
}

static void run_products(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    const product *x = arg;
    const einsum_plan *p = x->p;
    int64_t size = pome_elem_size(x->dtype);
    for (size_t item = begin; item < end; item++) {
        int64_t column = (int64_t)item % x->n_column_pieces * COLUMNS;
        int64_t row = (int64_t)item / x->n_column_pieces % x->n_row_pieces * ROWS;
        int64_t batch = (int64_t)item / x->n_column_pieces / x->n_row_pieces;
        int64_t a = p->a.is_packed ? batch * p->rows.n * p->sums.n : batch_offset(&p->batch, A, batch);
        int64_t b = p->b.is_packed ? batch * p->columns.n * p->sums.n : batch_offset(&p->batch, B, batch);
        int64_t c = p->c.is_packed ? batch * p->rows.n * p->columns.n : batch_offset(&p->batch, C, batch);
        const void *a_at = x->a + (a + row * p->a.row) * size;
        const void *b_at = x->b + (b + column * (p->b_is_by_k ? 1 : p->b.row)) * size;
        void *c_at = x->c + (c + row * p->c.row + column) * size;
        int64_t m = p->rows.n - row < ROWS ? p->rows.n - row : ROWS;
        int64_t n = p->columns.n - column < COLUMNS ? p->columns.n - column : COLUMNS;
        if (x->dtype == POME_DTYPE_F32)
            product_f32(x, a_at, b_at, c_at, m, n);
        else if (size == 1)
            product_u8(x, a_at, b_at, c_at, m, n);
        else if (size == 2)
            product_u16(x, a_at, b_at, c_at, m, n);
        else
            product_u32(x, a_at, b_at, c_at, m, n);
    }
}

static pome_status run_einsum(const pome_run *r, pome_error *err)
{
    einsum_plan p;
    POME_TRY(make_plan(r, &p, err));
    const pome_tensor *a = pome_in_at(r, P_einsum_values, 0), *b = pome_in_at(r, P_einsum_values, 1);
    const pome_tensor *out = &r->out[0];
    if (a->dtype != out->dtype || b->dtype != out->dtype || pome_elem_size(out->dtype) > 4 ||
        (pome_dtype_is_float(out->dtype) && out->dtype != POME_DTYPE_F32))
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "operands of %s and %s, result of %s",
                            pome_dtype_name(a->dtype), pome_dtype_name(b->dtype), pome_dtype_name(out->dtype));
    if (pome_tensor_count(out) == 0)
        return POME_OK;
    if (p.sums.n == 0) {
        static const uint64_t zero;
        pome_strided_fill(out, &zero, r->pool);
        return POME_OK;
    }
    size_t size = (size_t)pome_elem_size(out->dtype);
    char *scratch = r->scratch;
    product x = {.p = &p, .kernels = r->kernels, .dtype = out->dtype, .a = a->data, .b = b->data, .c = out->data};
    if (p.a.is_packed) {
        pack(r, (const group *const[]){&p.batch, &p.rows, &p.sums}, 3, A, out->dtype, scratch, a->data, false);
        x.a = scratch;
        scratch += part_bytes(p.n_a, size);
    }
    if (p.b.is_packed) {
        pack(r, (const group *const[]){&p.batch, &p.columns, &p.sums}, 3, B, out->dtype, scratch, b->data, false);
        x.b = scratch;
        scratch += part_bytes(p.n_b, size);
    }
    if (p.c.is_packed)
        x.c = scratch;
    x.n_row_pieces = (p.rows.n + ROWS - 1) / ROWS;
    x.n_column_pieces = (p.columns.n + COLUMNS - 1) / COLUMNS;
    pome_pool_run(r->pool, (size_t)(p.batch.n * x.n_row_pieces * x.n_column_pieces), 1, run_products, &x);
    if (p.c.is_packed)
        pack(r, (const group *const[]){&p.batch, &p.rows, &p.columns}, 3, C, out->dtype, out->data, x.c, true);
    return POME_OK;
}

const pome_op_impl pome_ops_einsum[] = {
    {.id = POME_OP_einsum, .scratch = scratch_einsum, .run = run_einsum},
};
POME_FAMILY_COUNT(einsum)
