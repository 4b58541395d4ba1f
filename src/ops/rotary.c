/* pome_rotary: rotary position embedding. With x split in halves a, b along an axis of D,
 *
 *     first half of the result = a * cos - b * sin, second half = b * cos + a * sin
 *
 * or, where `negate` is false, with a plus in the first (the table's sine carries the sign there). cos and sin are
 * broadcast to x; along the axis they have D elements or D / 2, used for both halves. Each element is two products and
 * a sum, rounded as the separate operators round them. Any strides. */
#include "ops/families.h"
#include "ops/op.h"

enum { GRAIN = 8192 };

typedef struct operand {
    const float *data;
    int64_t stride[POME_MAX_RANK]; /* elements; 0 where broadcast */
    int64_t half;                  /* from the first half to the second; 0: one half for both */
} operand;

typedef struct rotary {
    operand x, cos, sin;
    float *out;
    int32_t rank, axis;
    int64_t size[POME_MAX_RANK]; /* of the result, the axis halved */
    int64_t out_stride[POME_MAX_RANK], out_half;
    bool negate;
} rotary;

typedef struct row {
    const float *a, *b, *ca, *cb, *sa, *sb;
    int64_t x_step, cos_step, sin_step;
} row;

static void turn_plain(const row *r, float *lo, float *hi, int64_t n, float sign)
{
    for (int64_t i = 0; i < n; i++) {
        lo[i] = r->a[i] * r->ca[i] + sign * (r->b[i] * r->sa[i]);
        hi[i] = r->b[i] * r->cb[i] + r->a[i] * r->sb[i];
    }
}

static void turn(const row *r, float *lo, float *hi, int64_t step, int64_t n, float sign)
{
    if (r->x_step == 1 && r->cos_step == 1 && r->sin_step == 1 && step == 1) {
        turn_plain(r, lo, hi, n, sign);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float a = r->a[i * r->x_step], b = r->b[i * r->x_step];
        lo[i * step] = a * r->ca[i * r->cos_step] + sign * (b * r->sa[i * r->sin_step]);
        hi[i * step] = b * r->cb[i * r->cos_step] + a * r->sb[i * r->sin_step];
    }
}

/* Rows along the last axis (halved, if that is the one that turns). */
static void run_rows(void *arg, size_t begin, size_t end, int thread)
{
    const rotary *c = arg;
    int32_t last = c->rank - 1;
    (void)thread;
    for (size_t at = begin; at < end; at++) {
        int64_t x = 0, cos = 0, sin = 0, out = 0;
        size_t rest = at;
        for (int32_t d = last - 1; d >= 0; d--) {
            int64_t i = (int64_t)(rest % (size_t)c->size[d]);
            rest /= (size_t)c->size[d];
            x += i * c->x.stride[d];
            cos += i * c->cos.stride[d];
            sin += i * c->sin.stride[d];
            out += i * c->out_stride[d];
        }
        row r = {.a = c->x.data + x, .ca = c->cos.data + cos, .sa = c->sin.data + sin, .x_step = c->x.stride[last],
                 .cos_step = c->cos.stride[last], .sin_step = c->sin.stride[last]};
        r.b = r.a + c->x.half;
        r.cb = r.ca + c->cos.half;
        r.sb = r.sa + c->sin.half;
        turn(&r, c->out + out, c->out + out + c->out_half, c->out_stride[last], c->size[last], c->negate ? -1.0f : 1.0f);
    }
}

static bool make_operand(operand *o, const pome_tensor *t, const pome_tensor *out, int32_t axis)
{
    int32_t shift = out->rank - t->rank;
    int64_t half = out->shape[axis] / 2;
    *o = (operand){.data = t->data};
    if (shift < 0 || t->dtype != POME_DTYPE_F32)
        return false;
    for (int32_t d = shift; d < out->rank; d++) {
        int64_t n = t->shape[d - shift], stride = t->stride[d - shift];
        if (d == axis && n != 1 && (n == half || n == 2 * half)) {
            o->stride[d] = stride;
            o->half = n == half ? 0 : half * stride;
        } else if (d == axis && n != 1) {
            return false;
        } else if (n == out->shape[d]) {
            o->stride[d] = n == 1 ? 0 : stride;
        } else if (n != 1) {
            return false;
        }
    }
    return true;
}

static pome_status run_rotary(const pome_run *r, pome_error *err)
{
    pome_tensor *out = &r->out[0];
    rotary c = {.out = out->data, .rank = out->rank, .axis = (int32_t)pome_in_int(r, P_pome_rotary_axis, -1),
                .negate = pome_in_bool(r, P_pome_rotary_negate, true)};
    bool fits = c.axis >= 0 && c.axis < c.rank && out->shape[c.axis] % 2 == 0 &&
                make_operand(&c.x, pome_in(r, P_pome_rotary_x), out, c.axis) &&
                make_operand(&c.cos, pome_in(r, P_pome_rotary_cos), out, c.axis) &&
                make_operand(&c.sin, pome_in(r, P_pome_rotary_sin), out, c.axis);
    if (!fits)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "cos and sin do not fit x at axis %d", (int)c.axis);
    int64_t n_rows = 1, last = c.rank - 1;
    for (int32_t d = 0; d < c.rank; d++) {
        c.size[d] = out->shape[d] / (d == c.axis ? 2 : 1);
        c.out_stride[d] = out->stride[d];
        n_rows *= d < last ? c.size[d] : 1;
    }
    c.out_half = out->shape[c.axis] / 2 * out->stride[c.axis];
    if (pome_tensor_count(out) > 0)
        pome_pool_run(r->pool, (size_t)n_rows, (size_t)(GRAIN / (c.size[last] + 1)) + 1, run_rows, &c);
    return POME_OK;
}

#define ALL (POME_BIT(P_pome_rotary_x) | POME_BIT(P_pome_rotary_cos) | POME_BIT(P_pome_rotary_sin))
const pome_op_impl pome_ops_rotary[] = {
    {.id = POME_OP_pome_rotary, .strided_ok = ALL, .run = run_rotary},
};
POME_FAMILY_COUNT(rotary)
