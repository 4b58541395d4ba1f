/* Random operators: inference must never crash, must give sane types, and what it claims at load with some sizes and
 * contents unknown must hold at run time when they are known. */
#include "program_builder.h"

#include <stdlib.h>

enum { N_TRIES = 60000, N_SYMBOLS = 10 };

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}
static bool one_in(uint32_t n)
{
    return random_below(n) == 0;
}

static const char *const words[] = {
    "EXACT", "valid", "same", "custom", "same_lower", "constant", "reflect", "update", "add", "fp16", "fp32", "int32", "uint8", "int8",
    "bool", "forward", "bidirectional", "tanh", "sigmoid", "DEFAULT", "LINEAR", "CORNERS_HEIGHT_FIRST", "bilinear",
    "normalized_minus_one_to_one", "logits", "ab,bc->ac", "abc,acd->abd", "nchw,nwhu->nchu", "nonsense",
};

static pome_dtype random_dtype(uint32_t types)
{
    if (types & POME_T_I && !(types & POME_T_F))
        return types & POME_T_I32 && !one_in(8) ? POME_DTYPE_I32 : types & POME_T_I16 ? POME_DTYPE_I16 : POME_DTYPE_U32;
    if (types & POME_T_F32 && !one_in(3))
        return POME_DTYPE_F32;
    for (;;) {
        pome_dtype d = (pome_dtype)(1 + random_below(POME_DTYPE_COUNT - 1));
        if (pome_opdef_type_bit(d) & types & ~(uint32_t)(POME_T_STR | POME_T_OTHER))
            return d;
    }
}

/* One input as it is at run time; what of it is hidden at load. */
typedef struct random_input {
    pome_dtype dtype;
    int32_t rank;
    int64_t dim[POME_MAX_RANK];
    double values[64];
    const char *word;
    bool is_const, is_hidden; /* known at load; known at run time only */
} random_input;

typedef struct random_op {
    const pome_opdef *def;
    pome_opset opset;
    uint32_t n_out;
    random_input in[TEST_PARAMS_MAX][3];
    uint32_t count[TEST_PARAMS_MAX];
} random_op;

static int64_t random_size(void)
{
    static const int64_t sizes[] = {1, 1, 2, 2, 3, 4, 4, 6, 8};
    return one_in(40) ? 0 : sizes[random_below(9)];
}

static void random_values(random_input *in, int64_t n)
{
    bool small = one_in(2);
    for (int64_t i = 0; i < n && i < 64; i++)
        in->values[i] = one_in(60) ? 2147483647.0 : small ? (double)random_below(3) : (double)random_below(9) - 3;
}

static void random_shape(random_input *in, const random_input *like, const pome_param *param)
{
    if (param->flags & POME_P_SCALAR) {
        in->rank = 0;
        return;
    }
    if (like && !one_in(3)) { /* another input's shape, or a part of it */
        in->rank = like->rank;
        memcpy(in->dim, like->dim, sizeof in->dim);
        if (one_in(4) && in->rank)
            in->dim[random_below((uint32_t)in->rank)] = random_size();
        if (one_in(4) && in->rank > 1)
            in->rank--;
        return;
    }
    in->rank = (int32_t)random_below(6);
    for (int32_t i = 0; i < in->rank; i++)
        in->dim[i] = random_size();
}

static void random_input_for(random_input *in, const pome_param *param, const random_input *x)
{
    *in = (random_input){0};
    if (param->types == POME_T_STR || (param->types & POME_T_STR && one_in(20))) {
        in->word = words[random_below(sizeof words / sizeof words[0])];
        in->is_const = true;
        return;
    }
    in->dtype = x && !one_in(6) && pome_opdef_type_bit(x->dtype) & param->types ? x->dtype : random_dtype(param->types);
    in->is_const = param->flags & POME_P_CONST || one_in(5);
    in->is_hidden = !in->is_const && param->flags & POME_P_VALUE;
    random_shape(in, x, param);
    if (x && (in->is_const || in->is_hidden) && !(param->flags & POME_P_SCALAR) && pome_dtype_is_int(in->dtype)) {
        in->rank = 1; /* axes, sizes, masks */
        in->dim[0] = one_in(4) ? (int64_t)random_below(5) : x->rank + (one_in(6) ? x->rank : 0);
    } else if (x && in->is_const && in->dtype == POME_DTYPE_BOOL && !(param->flags & POME_P_SCALAR)) {
        in->rank = 1;
        in->dim[0] = x->rank;
    }
    int64_t n = 1;
    for (int32_t i = 0; i < in->rank; i++)
        n *= in->dim[i];
    random_values(in, n);
    if (n > 64)
        in->is_const = in->is_hidden = false;
}

static bool exists(const pome_param *p, pome_opset opset)
{
    return p->since <= opset && (!p->until || (int)opset <= p->until);
}

static bool random_operator(random_op *r)
{
    static const pome_opset opsets[] = {POME_OPSET_IOS15, POME_OPSET_IOS16, POME_OPSET_IOS17, POME_OPSET_IOS18};
    const random_input *x = NULL;
    memset(r, 0, sizeof *r);
    r->def = pome_opdef_get((pome_op_id)random_below(POME_OP_COUNT));
    r->opset = opsets[random_below(4)];
    if (r->def->flags & (POME_OP_BLOCKS | POME_OP_EFFECT) || r->def->since > r->opset || r->def->id == POME_OP_const ||
        r->def->id == POME_OP_custom_layer || strncmp(r->def->name, "list", 4) == 0 || r->def->id == POME_OP_classify)
        return false;
    r->n_out = r->def->n_out >= 0 ? (uint32_t)r->def->n_out : 1 + random_below(4);
    for (int p = 0; p < r->def->n_params; p++) {
        const pome_param *param = &r->def->params[p];
        if (!exists(param, r->opset) || (param->flags & POME_P_OPTIONAL && one_in(2)))
            continue;
        r->count[p] = param->flags & POME_P_LIST ? 1 + random_below(3) : 1;
        for (uint32_t i = 0; i < r->count[p]; i++) {
            random_input_for(&r->in[p][i], param, x);
            x = x ? x : &r->in[p][0];
        }
    }
    return true;
}

/* Sizes up to 8 have a symbol each. */
static int64_t symbol_of(int64_t size)
{
    return -2 - size;
}

static pome_value *value_of(pome_function *fn, const random_input *in, bool hide)
{
    int64_t dim[POME_MAX_RANK];
    if (in->word)
        return make_string(fn, in->word);
    memcpy(dim, in->dim, sizeof dim);
    if (in->is_const || (in->is_hidden && !hide))
        return make_const(fn, in->dtype, in->rank, dim, in->values);
    for (int32_t i = 0; hide && i < in->rank; i++)
        if (dim[i] > 0 && dim[i] < N_SYMBOLS && one_in(3) && !in->is_hidden)
            dim[i] = symbol_of(dim[i]);
    return make_input(fn, "in", in->dtype, in->rank, dim);
}

static pome_op *build(pome_function *fn, const random_op *r, bool hide)
{
    op_args args = {0};
    for (int p = 0; p < r->def->n_params; p++)
        for (uint32_t i = 0; i < r->count[p]; i++)
            add_arg(&args, r->def, r->def->params[p].name, value_of(fn, &r->in[p][i], hide));
    fn->next_symbol = -100;
    return make_op_from(fn, fn->body, r->def, &args, r->n_out);
}

static void assert_sane(const pome_op *op, bool at_load)
{
    for (uint32_t i = 0; i < op->n_out; i++) {
        const pome_type *t = &op->out[i]->type;
        double n = 1;
        assert_true(t->rank >= (at_load ? -1 : 0) && t->rank <= POME_MAX_RANK && t->dtype != POME_DTYPE_NONE);
        for (int32_t d = 0; d < t->rank; d++) {
            assert_true(t->dim[d] >= 0 || (at_load && t->dim[d] < -1));
            n *= t->dim[d] > 0 ? (double)t->dim[d] : 1;
        }
        assert_true(n <= (double)POME_MAX_ELEMENTS);
    }
}

/* The types at run time of an operator that was inferred with something hidden. */
static pome_status infer_at_run_time(pome_function *fn, pome_op *op, const random_op *r, pome_type *out, pome_error *err)
{
    pome_function *all = fn;
    pome_type types[64];
    const pome_type *type_list[64];
    const pome_tensor *values[64];
    uint32_t n = 0;
    memset(out, 0, op->n_out * sizeof *out);
    for (int p = 0; p < r->def->n_params; p++)
        for (uint32_t i = 0; i < r->count[p]; i++, n++) {
            const random_input *in = &r->in[p][i];
            types[n] = pome_type_tensor(in->word ? POME_DTYPE_STRING : in->dtype, in->rank, in->dim);
            type_list[n] = &types[n];
            values[n] = NULL;
            if (!in->word && (in->is_const || in->is_hidden))
                values[n] = &make_const(all, in->dtype, in->rank, in->dim, in->values)->konst->t;
        }
    pome_infer c = {.op = op, .opset = r->opset, .in = type_list, .value = values, .out = out};
    return pome_infer_op(&c, err);
}

/* What was claimed at load must be so. */
static bool claims_hold(const pome_op *op, const pome_type *out)
{
    for (uint32_t i = 0; i < op->n_out; i++) {
        const pome_type *claim = &op->out[i]->type, *is = &out[i];
        if ((claim->rank >= 0 && claim->rank != is->rank) || claim->dtype != is->dtype)
            return false;
        if (claim->rank < 0)
            continue;
        for (int32_t d = 0; d < is->rank; d++) {
            int64_t c = claim->dim[d];
            if (c < 0 && c > -100)
                c = -2 - c;
            if (c >= 0 && c != is->dim[d])
                return false;
        }
    }
    return true;
}

static void report(const char *what, const random_op *r, const pome_op *op, const pome_type *out, const pome_error *err)
{
    char buf[200];
    print_error("%s: %s at %d (%s)\n", what, r->def->name, (int)r->opset, err ? err->message : "");
    for (uint32_t i = 0; i < op->n_in; i++)
        print_error("  in %s\n", pome_type_print(&op->in[i]->type, buf, sizeof buf));
    for (uint32_t i = 0; i < op->n_out; i++) {
        print_error("  claimed %s\n", pome_type_print(&op->out[i]->type, buf, sizeof buf));
        if (out)
            print_error("  is %s\n", pome_type_print(&out[i], buf, sizeof buf));
    }
}

/* A pad that is not constant must be given for every axis: coremltools demands it. */
static bool may_be_refused(const random_op *r)
{
    return r->def->id == POME_OP_pad;
}

/* Returns whether the operator was accepted with everything known. */
static bool try_one(const random_op *r, int *n_wrong)
{
    pome_program *known, *hidden;
    pome_function *fn = make_function(&known, r->opset), *fn2 = make_function(&hidden, r->opset);
    pome_op *op = build(fn, r, false), *op2 = build(fn2, r, true);
    pome_type out[8];
    pome_error err = {0}, err2 = {0};
    bool accepted = pome_program_verify(known, &err) == POME_OK;
    bool accepted2 = pome_program_verify(hidden, &err2) == POME_OK;
    if (accepted)
        assert_sane(op, true);
    if (accepted2)
        assert_sane(op2, true);
    if (accepted && !accepted2 && !may_be_refused(r)) {
        report("refused with sizes hidden", r, op2, NULL, &err2);
        ++*n_wrong;
    }
    if (accepted2 && !(r->def->flags & POME_OP_DATA_SHAPE) &&
        infer_at_run_time(fn2, op2, r, out, &err2) == POME_OK && !claims_hold(op2, out)) {
        report("claimed wrongly", r, op2, out, NULL);
        ++*n_wrong;
    }
    pome_program_destroy(&known);
    pome_program_destroy(&hidden);
    return accepted;
}

static void test_random_operators(void **state)
{
    (void)state;
    static bool seen[POME_OP_COUNT];
    static random_op r;
    int n_wrong = 0, n_seen = 0;
    random_state = 20240601;
    for (int i = 0; i < N_TRIES && n_wrong < 10; i++)
        if (random_operator(&r) && try_one(&r, &n_wrong) && !seen[r.def->id]) {
            seen[r.def->id] = true;
            n_seen++;
        }
    assert_int_equal(n_wrong, 0);
    assert_true(n_seen >= 100); /* else the dice are loaded against acceptance */
    print_message("%d operators accepted at least once\n", n_seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operators)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
