/* einsum against a loop over all labels in double, on sizes that cross the edges of the pieces of work. */
#include "op_test.h"

#include <stdlib.h>
#include <string.h>

typedef struct axes {
    char label[POME_MAX_RANK];
    int32_t n;
} axes;

static void read_axes(const char *text, size_t len, axes *out)
{
    out->n = 0;
    for (size_t i = 0; i < len; i++)
        if (text[i] != ' ')
            out->label[out->n++] = text[i];
}

/* want[out] = sum over every label that out lacks. */
static void einsum_slowly(const char *equation, const pome_tensor *a, const pome_tensor *b, int64_t *shape, axes *out,
                          double **want)
{
    axes in[2];
    const char *comma = strchr(equation, ','), *arrow = strstr(equation, "->");
    read_axes(equation, (size_t)(comma - equation), &in[0]);
    read_axes(comma + 1, (size_t)(arrow - comma - 1), &in[1]);
    read_axes(arrow + 2, strlen(arrow + 2), out);
    const pome_tensor *x[2] = {a, b};
    char all[2 * POME_MAX_RANK];
    int64_t size[128] = {0}, index[2 * POME_MAX_RANK] = {0}, sizes[2 * POME_MAX_RANK], at[128] = {0};
    int32_t n = 0;
    for (int k = 0; k < 2; k++)
        for (int32_t d = 0; d < in[k].n; d++) {
            int c = in[k].label[d];
            if (size[c] == 0)
                all[n++] = (char)c;
            if (x[k]->shape[d] > size[c])
                size[c] = x[k]->shape[d];
        }
    int64_t count = 1;
    for (int32_t d = 0; d < out->n; d++)
        count *= shape[d] = size[(int)out->label[d]];
    for (int32_t i = 0; i < n; i++)
        sizes[i] = size[(int)all[i]];
    *want = calloc((size_t)count, sizeof **want);
    assert_non_null(*want);
    do {
        double product = 1;
        int64_t to = 0;
        for (int32_t i = 0; i < n; i++)
            at[(int)all[i]] = index[i];
        for (int k = 0; k < 2; k++) {
            int64_t where[POME_MAX_RANK];
            for (int32_t d = 0; d < in[k].n; d++)
                where[d] = at[(int)in[k].label[d]];
            product *= op_test_at_index(x[k], where);
        }
        for (int32_t d = 0; d < out->n; d++)
            to = to * shape[d] + at[(int)out->label[d]];
        (*want)[to] += product;
    } while (op_test_next(index, n, sizes));
}

static void check(const char *equation, pome_dtype dtype, int32_t rank_a, const int64_t *shape_a, int32_t rank_b,
                  const int64_t *shape_b)
{
    pome_tensor a = op_test_tensor(dtype, rank_a, shape_a, -3, 3), b = op_test_tensor(dtype, rank_b, shape_b, -3, 3);
    int64_t shape[POME_MAX_RANK];
    axes out;
    double *want;
    einsum_slowly(equation, &a, &b, shape, &out, &want);
    op_test *t = op_test_begin(POME_OP_einsum, POME_OPSET_IOS15);
    op_test_in(t, "values", &a);
    op_test_in(t, "values", &b);
    op_test_const_str(t, "equation", equation);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s: %s", equation, op_test_error(t)->message);
    op_test_expect_shape(t, 0, out.n, shape);
    op_test_expect(t, 0, want, 1e-5, 1e-4);
    op_test_end(t);
    free(want);
    pome_tensor_reset(&a);
    pome_tensor_reset(&b);
}

static void listed_equations(void **state)
{
    (void)state;
    const pome_dtype f32 = POME_DTYPE_F32, f16 = POME_DTYPE_F16;
    check("nchw,nwhu->nchu", f32, 4, (int64_t[]){1, 17, 3, 40}, 4, (int64_t[]){1, 40, 3, 130});
    check("nchw,nwhu->nchu", f16, 4, (int64_t[]){2, 33, 2, 16}, 4, (int64_t[]){2, 16, 2, 129});
    check("nchw,nwhu->nchu", f32, 4, (int64_t[]){2, 3, 1, 4}, 4, (int64_t[]){1, 4, 5, 6});
    check("nchw,nwhu->nchu", f32, 4, (int64_t[]){1, 1, 4, 64}, 4, (int64_t[]){1, 64, 4, 1});
    check("chw,whr->chr", f32, 3, (int64_t[]){16, 2, 31}, 3, (int64_t[]){31, 2, 128});
    check("chw,whr->chr", POME_DTYPE_I32, 3, (int64_t[]){5, 2, 7}, 3, (int64_t[]){7, 2, 4});
}

static void any_layout(void **state)
{
    (void)state;
    static const char *const equations[] = {
        "ab,bc->ac",  "ab,bc->ca",   "ab,cb->ac",  "ba,bc->ac",   "ba,cb->ca",   "ab,ab->ab", "ab,ab->ba", "ab,ab->",
        "ab,c->abc",  "ab,c->cba",   "abc,cb->a",  "abc,bcd->da", "abc,dbc->ad", "aab,b->a",  "aab,cb->ca", "ab,cd->ac",
        "ab,cd->",    "a b, b c->a c"};
    for (size_t i = 0; i < sizeof equations / sizeof equations[0]; i++)
        for (int round = 0; round < 6; round++) {
            int64_t size[128], shape[2][POME_MAX_RANK];
            for (int c = 'a'; c < 'e'; c++)
                size[c] = op_test_random_int(1, round == 5 && c < 'c' ? 30 : 5);
            axes in[2];
            const char *comma = strchr(equations[i], ',');
            read_axes(equations[i], (size_t)(comma - equations[i]), &in[0]);
            read_axes(comma + 1, (size_t)(strchr(comma, '-') - comma - 1), &in[1]);
            for (int k = 0; k < 2; k++)
                for (int32_t d = 0; d < in[k].n; d++)
                    shape[k][d] = size[(int)in[k].label[d]];
            check(equations[i], round % 2 ? POME_DTYPE_F32 : POME_DTYPE_I32, in[0].n, shape[0], in[1].n, shape[1]);
        }
}

static void empty_operands(void **state)
{
    (void)state;
    pome_tensor a = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){3, 0}, 0, 1);
    pome_tensor b = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){0, 2}, 0, 1);
    op_test *t = op_test_begin(POME_OP_einsum, POME_OPSET_IOS15);
    op_test_in(t, "values", &a);
    op_test_in(t, "values", &b);
    op_test_const_str(t, "equation", "ab,bc->ac");
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, (double[6]){0}, 0, 0);
    op_test_end(t);
    t = op_test_begin(POME_OP_einsum, POME_OPSET_IOS15);
    op_test_in(t, "values", &b);
    op_test_in(t, "values", &a);
    op_test_const_str(t, "equation", "ab,bc->ca"); /* sizes of b differ: 2 and 3 */
    assert_int_not_equal(op_test_run(t), POME_OK);
    op_test_end(t);
    pome_tensor_reset(&a);
    pome_tensor_reset(&b);
}

static void bad_equations_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"ab,bc",      "ab->ab",    "ab,bc,cd->ad", "ab,bc->ad", "ab,bc->aa", "abc,bc->a",
                                      "a...,bc->a", "ab,b1->a1", "",             "ab,bcd->ad"};
    pome_tensor a = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){2, 2}, 0, 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        op_test *t = op_test_begin(POME_OP_einsum, POME_OPSET_IOS15);
        op_test_in(t, "values", &a);
        op_test_in(t, "values", &a);
        op_test_const_str(t, "equation", bad[i]);
        if (op_test_run(t) == POME_OK)
            fail_msg("'%s' was accepted", bad[i]);
        op_test_end(t);
    }
    pome_tensor_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_equations),
        cmocka_unit_test(any_layout),
        cmocka_unit_test(empty_operands),
        cmocka_unit_test(bad_equations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
