#include "op_test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "ops/encoded.h"

enum { MAX_IN = 64, MAX_OUT = 16 };

typedef struct input {
    uint32_t param;
    pome_tensor t;
    bool is_const;
    pome_value value;
    pome_const konst;
    const char *string;
    const pome_encoded *encoded;
} input;

struct op_test {
    pome_arena *arena;
    const pome_opdef *def;
    const pome_op_impl *impl;
    pome_opset opset;
    pome_numerics numerics;
    bool keep_strides;
    input in[MAX_IN];
    uint32_t n_in, n_out;
    pome_op op;
    pome_value out_value[MAX_OUT];
    pome_type out_type[MAX_OUT];
    pome_tensor out[MAX_OUT];
    bool was_view;
    pome_error err;
};

op_test *op_test_begin(pome_op_id id, pome_opset opset)
{
    op_test *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->arena = pome_arena_create(0);
    assert_non_null(t->arena);
    t->def = pome_opdef_get(id);
    t->impl = pome_op_impl_find(id);
    t->opset = opset;
    t->n_out = t->def->n_out < 0 ? 1 : (uint32_t)t->def->n_out;
    return t;
}

static void drop_outputs(op_test *t)
{
    for (uint32_t i = 0; i < MAX_OUT; i++)
        pome_tensor_reset(&t->out[i]);
}

void op_test_end(op_test *t)
{
    drop_outputs(t);
    pome_arena_destroy(&t->arena);
    free(t);
}

static input *add_input(op_test *t, const char *param, const pome_tensor *x)
{
    int p = pome_opdef_param(t->def, param);
    if (p < 0)
        fail_msg("%s has no parameter %s", t->def->name, param);
    assert_true(t->n_in < MAX_IN);
    uint32_t at = t->n_in++;
    while (at > 0 && t->in[at - 1].param > (uint32_t)p) { /* keep the order of parameters */
        t->in[at] = t->in[at - 1];
        at--;
    }
    input *in = &t->in[at];
    *in = (input){.param = (uint32_t)p, .t = *x};
    in->t.owner = NULL;
    in->value.name = param;
    in->value.type = (pome_type){.dtype = x->dtype, .rank = x->rank};
    for (int32_t d = 0; d < x->rank; d++)
        in->value.type.dim[d] = x->shape[d];
    return in;
}

void op_test_in(op_test *t, const char *param, const pome_tensor *x)
{
    add_input(t, param, x);
}
void op_test_in_as(op_test *t, const char *param, const pome_tensor *x, pome_dtype declared)
{
    add_input(t, param, x)->value.type.dtype = declared;
}
void op_test_in_kind(op_test *t, const char *param, const pome_tensor *x, pome_type_kind kind, int64_t list_length)
{
    input *in = add_input(t, param, x);
    in->value.type.kind = kind;
    in->value.type.list_length = list_length;
    if (kind == POME_TYPE_LIST) { /* the leading axis is the list's length */
        in->value.type.rank = x->rank - 1;
        for (int32_t d = 1; d < x->rank; d++)
            in->value.type.dim[d - 1] = x->shape[d];
    }
}
void op_test_const(op_test *t, const char *param, const pome_tensor *x)
{
    add_input(t, param, x)->is_const = true;
}

void op_test_const_encoded(op_test *t, const char *param, const pome_encoded *e)
{
    pome_tensor x = pome_tensor_borrow(NULL, pome_encoded_dtype(e), pome_encoded_rank(e), pome_encoded_shape(e));
    input *in = add_input(t, param, &x);
    in->is_const = true;
    in->encoded = e;
}

static void add_const(op_test *t, const char *param, pome_dtype dtype, int64_t n, int32_t rank, const void *bytes,
                      size_t size)
{
    void *copy = pome_arena_alloc(t->arena, size);
    assert_non_null(copy);
    if (size)
        memcpy(copy, bytes, size);
    pome_tensor x = pome_tensor_borrow(copy, dtype, rank, &n);
    op_test_const(t, param, &x);
}
void op_test_const_f32(op_test *t, const char *param, float value)
{
    add_const(t, param, POME_DTYPE_F32, 1, 0, &value, sizeof value);
}
void op_test_const_f16(op_test *t, const char *param, float value)
{
    uint16_t half = pome_f32_to_f16(value);
    add_const(t, param, POME_DTYPE_F16, 1, 0, &half, sizeof half);
}
void op_test_const_int(op_test *t, const char *param, int32_t value)
{
    add_const(t, param, POME_DTYPE_I32, 1, 0, &value, sizeof value);
}
void op_test_const_ints(op_test *t, const char *param, const int32_t *values, int64_t n)
{
    add_const(t, param, POME_DTYPE_I32, n, 1, values, (size_t)n * sizeof *values);
}
void op_test_const_bool(op_test *t, const char *param, bool value)
{
    uint8_t byte = value;
    add_const(t, param, POME_DTYPE_BOOL, 1, 0, &byte, 1);
}
void op_test_const_bools(op_test *t, const char *param, const bool *values, int64_t n)
{
    add_const(t, param, POME_DTYPE_BOOL, n, 1, values, (size_t)n);
}
void op_test_const_str(op_test *t, const char *param, const char *value)
{
    pome_tensor x = {.dtype = POME_DTYPE_STRING};
    input *in = add_input(t, param, &x);
    in->is_const = true;
    in->string = value;
}
void op_test_outputs(op_test *t, uint32_t n)
{
    assert_true(n <= MAX_OUT);
    t->n_out = n;
}
void op_test_numerics(op_test *t, pome_numerics numerics)
{
    t->numerics = numerics;
}
void op_test_keep_strides(op_test *t)
{
    t->keep_strides = true;
}

/* ---- building the operation ---- */

static void build(op_test *t)
{
    pome_op *op = &t->op;
    *op = (pome_op){.def = t->def, .name = "op", .n_in = t->n_in, .n_out = t->n_out, .position = 7};
    op->args = POME_NEW_ARRAY(t->arena, pome_arg, t->def->n_params ? t->def->n_params : 1u);
    op->in = POME_NEW_ARRAY(t->arena, pome_value *, t->n_in + 1);
    op->out = POME_NEW_ARRAY(t->arena, pome_value *, t->n_out + 1);
    assert_true(op->args && op->in && op->out);
    for (uint32_t i = 0; i < t->n_in; i++) {
        input *in = &t->in[i];
        pome_arg *arg = &op->args[in->param];
        arg->first = arg->count ? arg->first : i;
        arg->count++;
        if (in->is_const) {
            in->konst = (pome_const){.t = in->t, .size_bytes = pome_tensor_size_bytes(&in->t)};
            in->konst.encoded = in->encoded;
            if (in->string)
                in->konst.strings = &in->string;
            in->value.konst = &in->konst;
        }
        in->value.id = i;
        op->in[i] = &in->value;
    }
    for (uint32_t i = 0; i < t->n_out; i++) {
        t->out_value[i] =
            (pome_value){.id = t->n_in + i, .name = "out", .type = {.rank = -1}, .def = op, .def_output = i};
        op->out[i] = &t->out_value[i];
    }
}

pome_status op_test_infer(op_test *t)
{
    build(t);
    const pome_type *types[MAX_IN];
    const pome_tensor *values[MAX_IN];
    for (uint32_t i = 0; i < t->n_in; i++) {
        input *in = &t->in[i];
        bool is_known = in->is_const || (t->def->params[in->param].flags & POME_P_VALUE);
        types[i] = &in->value.type;
        values[i] = is_known && !in->string && !in->encoded ? &in->t : NULL;
    }
    memset(t->out_type, 0, sizeof t->out_type);
    memset(&t->err, 0, sizeof t->err);
    pome_infer c = {&t->op, t->opset, types, values, t->out_type, NULL};
    pome_status status = t->def->infer(&c, &t->err);
    for (uint32_t i = 0; status == POME_OK && i < t->n_out; i++)
        t->out_value[i].type = t->out_type[i];
    return status;
}

const pome_type *op_test_type(const op_test *t, uint32_t output)
{
    assert_true(output < t->n_out);
    return &t->out_type[output];
}

/* ---- running ---- */

/* A copy of x whose last axis has gaps and whose axes lie in reverse order. */
static pome_tensor stretch(const pome_tensor *x)
{
    pome_tensor big, out = *x;
    int64_t shape[POME_MAX_RANK], stride = 1;
    if (x->rank == 0) {
        assert_int_equal(pome_tensor_clone(&out, x, NULL), POME_OK);
        return out;
    }
    for (int32_t d = 0; d < x->rank; d++)
        shape[d] = x->shape[d] * 2;
    assert_int_equal(pome_tensor_init(&big, x->dtype, x->rank, shape, NULL), POME_OK);
    memset(big.data, 0x7f, pome_tensor_size_bytes(&big)); /* NaN as a float: reading a gap shows */
    out.data = big.data;
    out.owner = big.owner;
    for (int32_t d = 0; d < x->rank; d++) {
        out.stride[d] = stride * 2;
        stride *= shape[d];
    }
    assert_int_equal(pome_tensor_copy(&out, x, NULL), POME_OK);
    return out;
}

/* What the implementation is given for input i: as it lies if accepted, else fp32 and contiguous. Owned. */
static pome_tensor present(const op_test *t, const input *in, bool stretched)
{
    pome_tensor x = in->t, out;
    uint32_t bit = POME_BIT(in->param);
    if (in->string || (in->encoded && (t->impl->encoded_ok & bit)))
        return x;
    if (in->encoded) {
        assert_int_equal(pome_tensor_init(&out, x.dtype, x.rank, x.shape, NULL), POME_OK);
        pome_encoded_decode_raw(in->encoded, 0, (size_t)pome_tensor_count(&x), out.data);
        x = out;
    }
    if (x.dtype == POME_DTYPE_F16 && !(t->impl->f16_ok & bit)) {
        assert_int_equal(pome_tensor_cast(&out, &x, POME_DTYPE_F32, NULL), POME_OK);
        x = out;
    } else if (in->value.type.kind == POME_TYPE_STATE) {
        return x; /* live memory: must be the caller's own */
    } else {
        assert_int_equal(pome_tensor_clone(&out, &x, NULL), POME_OK);
        x = out;
    }
    if (stretched && !in->is_const && (t->impl->strided_ok & bit)) {
        out = stretch(&x);
        pome_tensor_reset(&x);
        x = out;
    }
    return x;
}

static pome_dtype storage(pome_dtype declared)
{
    return declared == POME_DTYPE_F16 ? POME_DTYPE_F32 : declared;
}

/* Memory exactly as large as needed, so that a sanitizer sees a step beyond, filled with rubbish. */
static pome_tensor rubbish(const pome_type *type)
{
    pome_tensor x;
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dim[d] < 0)
            fail_msg("axis %d of the inferred output is not known", (int)d);
    int64_t shape[POME_MAX_RANK];
    int32_t rank = type->rank;
    memcpy(shape, type->dim, sizeof shape);
    if (type->kind == POME_TYPE_LIST) {
        assert_true(type->list_length >= 0 && rank < POME_MAX_RANK);
        memmove(shape + 1, shape, (size_t)rank * sizeof *shape);
        shape[0] = type->list_length;
        rank++;
    }
    assert_int_equal(pome_tensor_init(&x, storage(type->dtype), rank, shape, NULL), POME_OK);
    if (pome_tensor_size_bytes(&x))
        memset(x.data, 0xcd, pome_tensor_size_bytes(&x));
    return x;
}

static void round_outputs(const op_test *t, pome_tensor *out)
{
    if (t->numerics != POME_NUMERICS_FP16)
        return;
    for (uint32_t i = 0; i < t->n_out; i++)
        for (int64_t k = 0; t->out_type[i].dtype == POME_DTYPE_F16 && k < pome_tensor_count(&out[i]); k++)
            ((float *)out[i].data)[k] = pome_f16_round(((float *)out[i].data)[k]);
}

static pome_status run_once(op_test *t, pome_tensor *out, int n_threads, bool stretched, bool try_view)
{
    pome_tensor in[MAX_IN];
    const pome_tensor *in_ptr[MAX_IN];
    pome_pool *pool = NULL;
    pome_kernels kernels;
    pome_kernels_init(&kernels, pome_cpu_level_get()); /* POME_CPU= chooses */
    assert_int_equal(pome_pool_create(&pool, n_threads, NULL), POME_OK);
    for (uint32_t i = 0; i < t->n_in; i++) {
        in[i] = present(t, &t->in[i], stretched);
        in_ptr[i] = &in[i];
    }
    for (uint32_t i = 0; i < t->n_out; i++)
        out[i] = rubbish(&t->out_type[i]);

    pome_status status = POME_OK;
    pome_prepare prepare = {&t->op, t->opset, t->numerics, &kernels, t->arena, NULL};
    if (t->impl->prepare)
        status = t->impl->prepare(&prepare, &t->err);
    pome_run run = {&t->op, t->opset, t->numerics, pool, &kernels, in_ptr, out, NULL, prepare.prepared};
    pome_tensor shown[MAX_OUT];
    memcpy(shown, out, sizeof shown);
    run.out = shown;
    t->was_view = status == POME_OK && try_view && t->impl->view && t->impl->view(&run);
    run.out = out;
    if (t->was_view) {
        for (uint32_t i = 0; i < t->n_out; i++)
            assert_int_equal(pome_tensor_copy(&out[i], &shown[i], NULL), POME_OK);
    } else if (status == POME_OK) {
        size_t size = t->impl->scratch ? t->impl->scratch(&run) : 0;
        char *memory = malloc(size + 64);
        assert_non_null(memory);
        run.scratch = memory + 63 - ((uintptr_t)memory + 63) % 64;
        memset(run.scratch, 0xff, size); /* no numbers, which spread where they are used */
        status = t->impl->run ? t->impl->run(&run, &t->err) : POME_ERR_STATE;
        free(memory);
    }
    round_outputs(t, out);
    for (uint32_t i = 0; i < t->n_in; i++)
        if (in[i].owner != t->in[i].t.owner || in[i].data != t->in[i].t.data)
            pome_tensor_reset(&in[i]);
    pome_pool_destroy(&pool);
    return status;
}

/* Which NaN comes out of an operation on two of them is up to the compiler: any equals any. */
static bool are_both_nan(const pome_tensor *a, const pome_tensor *b, int64_t i)
{
    return a->dtype == POME_DTYPE_F32 && isnan(((const float *)a->data)[i]) && isnan(((const float *)b->data)[i]);
}

static void expect_equal_bits(const op_test *t, const pome_tensor *other, const char *what)
{
    for (uint32_t k = 0; k < t->n_out; k++) {
        const pome_tensor *a = &t->out[k], *b = &other[k];
        size_t width = pome_dtype_bits(a->dtype) / 8;
        for (int64_t i = 0; i < pome_tensor_count(a); i++)
            if (memcmp((char *)a->data + (size_t)i * width, (char *)b->data + (size_t)i * width, width) != 0 &&
                !are_both_nan(a, b, i))
                fail_msg("%s: output %u element %" PRId64 " differs %s", t->def->name, (unsigned)k, i, what);
    }
}

/* Every run starts from the states that the test set up. */
static void save_states(const op_test *t, pome_tensor *before)
{
    for (uint32_t i = 0; i < t->n_in; i++)
        if (t->in[i].value.type.kind == POME_TYPE_STATE)
            assert_int_equal(pome_tensor_clone(&before[i], &t->in[i].t, NULL), POME_OK);
}
static void restore_states(const op_test *t, const pome_tensor *before)
{
    for (uint32_t i = 0; i < t->n_in; i++)
        if (t->in[i].value.type.kind == POME_TYPE_STATE)
            assert_int_equal(pome_tensor_copy(&t->in[i].t, &before[i], NULL), POME_OK);
}

pome_status op_test_run(op_test *t)
{
    if (!t->impl)
        fail_msg("%s has no implementation", t->def->name);
    drop_outputs(t);
    pome_status status = op_test_infer(t);
    if (status != POME_OK)
        return status;
    pome_tensor before[MAX_IN] = {{0}};
    save_states(t, before);
    status = run_once(t, t->out, 1, false, true);
    bool was_view = t->was_view;
    for (int variant = 1; variant < 6; variant++) {
        bool stretched = variant & 1, try_view = !(variant & 2);
        if ((stretched && t->keep_strides) || (!try_view && (!was_view || !t->impl->run)))
            continue;
        pome_tensor other[MAX_OUT] = {{0}};
        restore_states(t, before);
        pome_status again = run_once(t, other, variant >= 4 || !stretched ? 3 : 1, stretched, try_view);
        assert_int_equal(again, status);
        if (status == POME_OK)
            expect_equal_bits(t, other, stretched ? "for strided inputs"
                                        : try_view ? "with three threads" : "between view and run");
        for (uint32_t i = 0; i < MAX_OUT; i++)
            pome_tensor_reset(&other[i]);
    }
    for (uint32_t i = 0; i < MAX_IN; i++)
        pome_tensor_reset(&before[i]);
    t->was_view = was_view;
    return status;
}

pome_status op_test_run_once(op_test *t)
{
    drop_outputs(t);
    POME_TRY(op_test_infer(t));
    return run_once(t, t->out, 1, false, true);
}

const pome_error *op_test_error(const op_test *t)
{
    return &t->err;
}
const pome_tensor *op_test_out(const op_test *t, uint32_t output)
{
    assert_true(output < t->n_out);
    return &t->out[output];
}
bool op_test_was_view(const op_test *t)
{
    return t->was_view;
}

void op_test_expect_failure(op_test *t, pome_status code, const char *text)
{
    assert_int_equal(op_test_run(t), code);
    if (!strstr(t->err.message, text))
        fail_msg("message \"%s\" does not say \"%s\"", t->err.message, text);
}

void op_test_expect_shape(const op_test *t, uint32_t output, int32_t rank, const int64_t *shape)
{
    const pome_tensor *out = op_test_out(t, output);
    assert_int_equal(out->rank, rank);
    for (int32_t d = 0; d < rank; d++)
        assert_int_equal(out->shape[d], shape[d]);
}

static bool is_close(double got, double want, double rel, double abs)
{
    if (want != want)
        return got != got;
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= rel * fabs(want) + abs;
}

void op_test_expect(const op_test *t, uint32_t output, const double *want, double rel, double abs)
{
    const pome_tensor *out = op_test_out(t, output);
    bool is_float = out->dtype == POME_DTYPE_F32;
    for (int64_t i = 0; i < pome_tensor_count(out); i++)
        if (!is_close(op_test_at(out, i), want[i], is_float ? rel : 0, is_float ? abs : 0))
            fail_msg("%s: output %u element %" PRId64 " is %.9g, wanted %.9g", t->def->name, (unsigned)output, i,
                     op_test_at(out, i), want[i]);
}

/* ---- material ---- */

uint64_t op_test_random(void)
{
    static uint64_t state;
    if (!state) {
        const char *text = getenv("POME_TEST_SEED");
        state = text ? strtoull(text, NULL, 0) : 20250721;
        state = state ? state : 1;
        print_message("POME_TEST_SEED=%" PRIu64 "\n", state);
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}
int64_t op_test_random_int(int64_t low, int64_t high)
{
    return low + (int64_t)(op_test_random() >> 16) % (high - low + 1);
}
double op_test_random_double(double low, double high)
{
    return low + (high - low) * ((double)(op_test_random() >> 11) * 0x1p-53);
}

double op_test_at(const pome_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case POME_DTYPE_F32: return ((const float *)t->data)[i];
    case POME_DTYPE_F16: return pome_f16_to_f32(((const uint16_t *)t->data)[i]);
    case POME_DTYPE_I8: return ((const int8_t *)t->data)[i];
    case POME_DTYPE_BOOL:
    case POME_DTYPE_U8: return ((const uint8_t *)t->data)[i];
    case POME_DTYPE_I16: return ((const int16_t *)t->data)[i];
    case POME_DTYPE_U16: return ((const uint16_t *)t->data)[i];
    case POME_DTYPE_I32: return ((const int32_t *)t->data)[i];
    case POME_DTYPE_U32: return ((const uint32_t *)t->data)[i];
    default: fail_msg("no test of %s", pome_dtype_name(t->dtype)); return 0;
    }
}
void op_test_set(const pome_tensor *t, int64_t i, double value)
{
    switch (t->dtype) {
    case POME_DTYPE_F32: ((float *)t->data)[i] = (float)value; break;
    case POME_DTYPE_F16: ((uint16_t *)t->data)[i] = pome_f32_to_f16((float)value); break;
    case POME_DTYPE_I8: ((int8_t *)t->data)[i] = (int8_t)value; break;
    case POME_DTYPE_BOOL: ((uint8_t *)t->data)[i] = value != 0; break;
    case POME_DTYPE_U8: ((uint8_t *)t->data)[i] = (uint8_t)value; break;
    case POME_DTYPE_I16: ((int16_t *)t->data)[i] = (int16_t)value; break;
    case POME_DTYPE_U16: ((uint16_t *)t->data)[i] = (uint16_t)value; break;
    case POME_DTYPE_I32: ((int32_t *)t->data)[i] = (int32_t)value; break;
    case POME_DTYPE_U32: ((uint32_t *)t->data)[i] = (uint32_t)value; break;
    default: fail_msg("no test of %s", pome_dtype_name(t->dtype));
    }
}

static void limits(pome_dtype dtype, double *low, double *high)
{
    uint32_t bits = pome_dtype_bits(dtype);
    bool is_signed = dtype == POME_DTYPE_I8 || dtype == POME_DTYPE_I16 || dtype == POME_DTYPE_I32;
    double least = is_signed ? -ldexp(1, (int)bits - 1) : 0;
    double greatest = dtype == POME_DTYPE_BOOL ? 1 : ldexp(1, (int)bits - is_signed) - 1;
    *low = *low < least ? least : *low;
    *high = *high > greatest ? greatest : *high;
}

pome_tensor op_test_tensor(pome_dtype dtype, int32_t rank, const int64_t *shape, double low, double high)
{
    pome_tensor t;
    assert_int_equal(pome_tensor_init(&t, dtype, rank, shape, NULL), POME_OK);
    bool is_float = pome_dtype_is_float(dtype);
    if (!is_float)
        limits(dtype, &low, &high);
    for (int64_t i = 0; i < pome_tensor_count(&t); i++)
        op_test_set(&t, i, is_float ? op_test_random_double(low, high)
                                    : (double)op_test_random_int((int64_t)low, (int64_t)high));
    return t;
}
pome_tensor op_test_tensor_of(pome_dtype dtype, int32_t rank, const int64_t *shape, const double *values)
{
    pome_tensor t;
    assert_int_equal(pome_tensor_init(&t, dtype, rank, shape, NULL), POME_OK);
    for (int64_t i = 0; i < pome_tensor_count(&t); i++)
        op_test_set(&t, i, values[i]);
    return t;
}
void op_test_shape(int64_t *shape, int32_t rank, int64_t max, bool allow_empty)
{
    for (int32_t d = 0; d < rank; d++) {
        shape[d] = op_test_random_int(1, max);
        if (op_test_random_int(0, 4) == 0)
            shape[d] = 1;
        if (allow_empty && op_test_random_int(0, 15) == 0)
            shape[d] = 0;
    }
}
double op_test_at_index(const pome_tensor *t, const int64_t *index)
{
    int64_t at = 0;
    for (int32_t d = 0; d < t->rank; d++)
        at = at * t->shape[d] + (t->shape[d] == 1 ? 0 : index[d]);
    return op_test_at(t, at);
}
bool op_test_next(int64_t *index, int32_t rank, const int64_t *shape)
{
    for (int32_t d = rank - 1; d >= 0; d--) {
        if (++index[d] < shape[d])
            return true;
        index[d] = 0;
    }
    return false;
}
