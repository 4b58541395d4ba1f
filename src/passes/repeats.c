/* Graphs repeat heads by some of transpose, reshape, expand_dims, squeeze and tile. Every axis is followed as a list of
 * factors, the slowest first: reshape regroups the factors of all axes, splitting one where it must, tile puts a new one
 * before those of its axis, transpose moves lists. At the end the lists say which element is where. */
#include "passes/repeats.h"

enum { FACTORS_MAX = 24, CHAIN_MAX = 12, REPEAT = 4 };

typedef struct factor {
    int64_t size;
    int axis;     /* of the source, or REPEAT */
    int64_t unit; /* what a step of it is in units of its axis */
} factor;

typedef struct layout {
    int32_t rank;
    int n[POME_MAX_RANK];                         /* factors of an axis */
    factor f[POME_MAX_RANK][FACTORS_MAX];
} layout;

static bool add(layout *l, int32_t axis, factor f)
{
    if (f.size == 1)
        return true;
    if (l->n[axis] == FACTORS_MAX)
        return false;
    l->f[axis][l->n[axis]++] = f;
    return true;
}

static bool sizes_known(const pome_value *v)
{
    for (int32_t d = 0; d < v->type.rank; d++)
        if (v->type.dim[d] <= 0)
            return false;
    return v->type.rank > 0;
}

static bool regroup(layout *l, const pome_value *out)
{
    layout next = {.rank = out->type.rank};
    int32_t axis = 0, from = 0;
    int64_t left = out->type.dim[0];
    int i = 0;
    factor f = {.size = 1};
    for (;;) {
        while (f.size == 1 && from < l->rank) {
            if (i < l->n[from])
                f = l->f[from][i++];
            else
                from++, i = 0;
        }
        while (left == 1 && axis + 1 < next.rank)
            left = next.rank > ++axis ? out->type.dim[axis] : 1;
        if (f.size == 1 || left == 1)
            break;
        int64_t take = f.size <= left ? f.size : left;
        if ((f.size <= left ? left % f.size : f.size % left) != 0)
            return false;
        factor part = {take, f.axis, f.unit * (f.size / take)};
        if (!add(&next, axis, part))
            return false;
        f.size /= take;
        left /= take;
    }
    bool is_whole = f.size == 1 && left == 1;
    *l = next;
    return is_whole;
}

static bool turn(layout *l, const pome_op *op)
{
    const pome_value *perm = pome_op_arg(op, P_transpose_perm);
    layout next = {.rank = l->rank};
    if (!perm || !perm->konst || pome_tensor_count(&perm->konst->t) != l->rank)
        return false;
    for (int32_t d = 0; d < l->rank; d++) {
        int64_t from = pome_tensor_int_at(&perm->konst->t, d);
        from = from < 0 ? from + l->rank : from;
        if (from < 0 || from >= l->rank)
            return false;
        next.n[d] = l->n[from];
        for (int i = 0; i < l->n[from]; i++)
            next.f[d][i] = l->f[from][i];
    }
    *l = next;
    return true;
}

static bool repeat(layout *l, const pome_op *op)
{
    const pome_value *reps = pome_op_arg(op, P_tile_reps);
    if (!reps || !reps->konst || pome_tensor_count(&reps->konst->t) != l->rank)
        return false;
    for (int32_t d = 0; d < l->rank; d++) {
        int64_t n = pome_tensor_int_at(&reps->konst->t, d);
        if (n < 1 || l->n[d] == FACTORS_MAX)
            return false;
        if (n == 1)
            continue;
        for (int i = l->n[d]++; i > 0; i--)
            l->f[d][i] = l->f[d][i - 1];
        l->f[d][0] = (factor){n, REPEAT, 1};
    }
    return true;
}

static bool follow(layout *l, const pome_op *op)
{
    switch (op->def->id) {
    case POME_OP_transpose: return turn(l, op);
    case POME_OP_tile: return repeat(l, op);
    case POME_OP_reshape:
    case POME_OP_expand_dims:
    case POME_OP_squeeze: return sizes_known(op->out[0]) && regroup(l, op->out[0]);
    default: return true; /* identity, cast */
    }
}

static bool is_followed(const pome_value *v)
{
    if (!v->def)
        return false;
    switch (v->def->def->id) {
    case POME_OP_transpose:
    case POME_OP_tile:
    case POME_OP_reshape:
    case POME_OP_expand_dims:
    case POME_OP_squeeze: return true;
    default: return false;
    }
}

/* The axis holds all of one source axis in order, and nothing else. */
static bool is_axis(const layout *l, int32_t d, int axis, int64_t size)
{
    int64_t n = 1;
    for (int i = l->n[d]; i-- > 0; n *= l->f[d][i].size)
        if (l->f[d][i].axis != axis || l->f[d][i].unit != n)
            return false;
    return n == size;
}

/* Heads, then what repeats each of them. */
static bool is_repeated_heads(layout *l, int64_t heads, int64_t *times)
{
    int n = l->n[1];
    *times = 1;
    while (l->n[1] > 0 && l->f[1][l->n[1] - 1].axis == REPEAT)
        *times *= l->f[1][--l->n[1]].size;
    bool fits = is_axis(l, 1, 1, heads);
    l->n[1] = n;
    return fits;
}

static bool from_source(pome_value *const *chain, int n, int64_t *times, bool *swapped)
{
    const pome_value *x = chain[n];
    layout l = {.rank = 4};
    if (x->type.rank != 4 || !sizes_known(x))
        return false;
    for (int32_t d = 0; d < 4; d++)
        add(&l, d, (factor){x->type.dim[d], d, 1});
    for (int i = n; i-- > 0;)
        if (!follow(&l, chain[i]->def))
            return false;
    const int64_t *dim = x->type.dim;
    if (l.rank != 4 || !is_axis(&l, 0, 0, dim[0]) || !is_repeated_heads(&l, dim[1], times) || *times < 2)
        return false;
    *swapped = !(is_axis(&l, 2, 2, dim[2]) && is_axis(&l, 3, 3, dim[3]));
    return !*swapped || (is_axis(&l, 2, 3, dim[3]) && is_axis(&l, 3, 2, dim[2]));
}

pome_value *pome_unrepeat_heads(pome_value *v, int64_t *repeat_count, bool *swapped)
{
    pome_value *chain[CHAIN_MAX + 1];
    bool has_tile = false;
    *repeat_count = 1;
    *swapped = false;
    chain[0] = pome_match_source(v);
    for (int n = 0; n < CHAIN_MAX && is_followed(chain[n]); n++) {
        has_tile = has_tile || chain[n]->def->def->id == POME_OP_tile;
        chain[n + 1] = pome_match_source(chain[n]->def->in[0]);
        if (has_tile && from_source(chain, n + 1, repeat_count, swapped))
            return chain[n + 1];
    }
    *repeat_count = 1;
    *swapped = false;
    return NULL;
}
