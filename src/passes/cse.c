/* Common subexpressions: operators without effect, of the same kind over the same values, are done once. Traced graphs
 * repeat table slices, mask slices and shape arithmetic for every layer. */
#include <string.h>

#include "passes/pass.h"

enum { SMALL_BYTES = 64 }; /* constants that are compared by their contents */

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    bool is_op;
    const void *what; /* pome_op, or pome_value of a constant */
} entry;

typedef struct table {
    entry **buckets;
    uint32_t mask;
    pome_arena *arena;
    uint32_t *same; /* [n_values] id of the first value that is equal */
} table;

static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) ^ h >> 29;
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = mix(h, ((const unsigned char *)data)[i]);
    return h;
}

static bool equal_shapes(const pome_tensor *a, const pome_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

static bool equal_constants(const pome_value *a, const pome_value *b)
{
    const pome_const *x = a->konst, *y = b->konst;
    if (a->type.dtype != b->type.dtype || !equal_shapes(&x->t, &y->t) || x->size_bytes != y->size_bytes)
        return false;
    return x->t.data == y->t.data || memcmp(x->t.data, y->t.data, x->size_bytes) == 0;
}

/* Strings and compressed constants stand for themselves. */
static bool is_comparable(const pome_value *v)
{
    return v->konst && v->konst->t.data && v->konst->t.dtype != POME_DTYPE_STRING && v->konst->size_bytes <= SMALL_BYTES;
}

static bool equal_ops(const table *t, const pome_op *a, const pome_op *b)
{
    if (a->def != b->def || a->n_in != b->n_in || a->n_out != b->n_out)
        return false;
    for (uint32_t p = 0; p < a->def->n_params; p++)
        if (a->args[p].count != b->args[p].count)
            return false;
    for (uint32_t k = 0; k < a->n_in; k++)
        if (t->same[a->in[k]->id] != t->same[b->in[k]->id])
            return false;
    for (uint32_t o = 0; o < a->n_out; o++)
        if (a->out[o]->type.dtype != b->out[o]->type.dtype)
            return false;
    return true;
}

/* The first thing of this hash that is equal to `what`, which is entered if there is none; NULL: memory is short. */
static const void *look_up(table *t, uint64_t hash, const void *what, bool is_op)
{
    entry **at = &t->buckets[hash & t->mask];
    for (entry *e = *at; e; e = e->next)
        if (e->hash == hash && e->is_op == is_op && (is_op ? equal_ops(t, e->what, what) : equal_constants(e->what, what)))
            return e->what;
    entry *e = POME_NEW(t->arena, entry);
    if (!e)
        return NULL;
    *e = (entry){*at, hash, is_op, what};
    *at = e;
    return what;
}

static bool find_constants(table *t, const pome_op *op)
{
    for (uint32_t k = 0; k < op->n_in; k++) {
        const pome_value *v = op->in[k];
        if (!is_comparable(v))
            continue;
        uint64_t h = mix(mix(1, v->konst->t.dtype), (uint64_t)v->konst->t.rank);
        const pome_value *first = look_up(t, hash_bytes(h, v->konst->t.data, v->konst->size_bytes), v, false);
        if (!first)
            return false;
        t->same[v->id] = first->id;
    }
    return true;
}

static uint64_t hash_op(const table *t, const pome_op *op)
{
    uint64_t h = mix(2, op->def->id);
    for (uint32_t k = 0; k < op->n_in; k++)
        h = mix(h, t->same[op->in[k]->id]);
    return h;
}

static bool may_share(const pome_op *op)
{
    return (op->def->flags & POME_OP_FOLDABLE) && !(op->def->flags & (POME_OP_EFFECT | POME_OP_BLOCKS)) && op->n_out > 0;
}

static bool is_output(const pome_function *fn, const pome_value *v)
{
    for (uint32_t i = 0; i < fn->body->n_outputs; i++)
        if (fn->body->outputs[i] == v)
            return true;
    return false;
}

static bool prepare(table *t, const pome_function *fn, pome_arena *arena)
{
    uint32_t n = 64;
    while (n < 2 * fn->body->n_ops)
        n *= 2;
    *t = (table){.buckets = POME_NEW_ARRAY(arena, entry *, n), .mask = n - 1, .arena = arena,
                 .same = POME_NEW_ARRAY(arena, uint32_t, fn->n_values)};
    if (!t->buckets || !t->same)
        return false;
    for (uint32_t i = 0; i < fn->n_values; i++)
        t->same[i] = i;
    return true;
}

static pome_status share(pome_function *fn, pome_pass_ctx *ctx, table *t, pome_error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        pome_op *op = fn->body->ops[i];
        const pome_op *first = op;
        if (!find_constants(t, op) || (may_share(op) && !(first = look_up(t, hash_op(t, op), op, true))))
            return pome_fail_nomem(err, sizeof(entry), "common subexpressions");
        bool is_wanted = first == op;
        for (uint32_t o = 0; o < op->n_out && !is_wanted; o++)
            is_wanted = is_output(fn, op->out[o]); /* keeps its name */
        if (is_wanted) {
            fn->body->ops[n++] = op;
            continue;
        }
        ctx->n_fused[POME_FUSION_CSE]++;
        for (uint32_t o = 0; o < op->n_out; o++) {
            pome_replace_uses(fn, op->out[o], first->out[o]);
            t->same[op->out[o]->id] = first->out[o]->id;
        }
    }
    fn->body->n_ops = n;
    return POME_OK;
}

pome_status pome_pass_cse(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    table t;
    pome_arena *work = pome_arena_create(0);
    pome_status s = work && prepare(&t, fn, work) ? share(fn, ctx, &t, err)
                                                  : pome_fail_nomem(err, fn->n_values * sizeof *t.same, "common subexpressions");
    pome_arena_destroy(&work);
    return s;
}
