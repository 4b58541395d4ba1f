#include "convert/graph.h"

#include <assert.h>
#include <stdio.h>

#include "base/f16.h"
#include "formats/mlpackage_writer.h"

enum { GRAPH_PARAMS_MAX = 24, GRAPH_LIST_MAX = 64, GRAPH_SMALL_MAX = 64 };

bool pome_graph_init(pome_graph *g, pome_program *program, const char *function, pome_opset opset, pome_dtype real)
{
    *g = (pome_graph){.fn = pome_function_create(program, function, opset), .real = real};
    pome_strmap_init(&g->consts, program->arena);
    pome_strmap_init(&g->names, program->arena);
    g->failed = !g->fn;
    return g->fn != NULL;
}

static pome_value *fail(pome_graph *g)
{
    g->failed = true;
    return NULL;
}

static bool append(pome_arena *arena, pome_value ***list, uint32_t *n, pome_value *v)
{
    pome_value **longer = POME_NEW_ARRAY(arena, pome_value *, *n + 1u);
    if (!longer)
        return false;
    if (*n)
        memcpy(longer, *list, *n * sizeof *longer);
    longer[(*n)++] = v;
    *list = longer;
    return true;
}

pome_value *pome_graph_input(pome_graph *g, const char *name, pome_type_kind kind, pome_dtype dtype, int32_t rank,
                             const int64_t *dim)
{
    pome_type type = {.kind = kind, .dtype = dtype, .rank = rank};
    memcpy(type.dim, dim, (size_t)rank * sizeof *dim);
    pome_value *v = g->failed ? NULL : pome_value_create(g->fn, name, &type);
    if (!v || !append(g->fn->arena, &g->fn->inputs, &g->fn->n_inputs, v) ||
        !pome_strmap_set(&g->names, pome_str_of(v->name), v))
        return fail(g);
    return v;
}

void pome_graph_rename(pome_graph *g, pome_value *value, const char *name)
{
    const char *kept = value ? pome_arena_strndup(g->fn->arena, name, strlen(name)) : NULL;
    if (!kept || !pome_strmap_set(&g->names, pome_str_of(kept), value)) {
        g->failed = true;
        return;
    }
    value->name = kept;
    if (value->def)
        value->def->name = kept;
}

void pome_graph_output(pome_graph *g, pome_value *value)
{
    if (!value || !append(g->fn->arena, &g->fn->body->outputs, &g->fn->body->n_outputs, value))
        fail(g);
}

/* The prefix and the name, made unique by a number. */
static const char *full_name(pome_graph *g, const char *name)
{
    pome_arena *arena = g->fn->arena;
    const char *text = pome_arena_printf(arena, "%s%s", g->prefix, name);
    for (unsigned i = 2; text && pome_strmap_get(&g->names, pome_str_of(text)); i++)
        text = pome_arena_printf(arena, "%s%s_%u", g->prefix, name, i);
    if (!text || !pome_strmap_set(&g->names, pome_str_of(text), g))
        g->failed = true;
    return text;
}

pome_value *pome_graph_add(pome_graph *g, pome_op_id id, const char *name, size_t n_args, const pome_graph_arg *args)
{
    const pome_opdef *def = pome_opdef_get(id);
    pome_value *lists[GRAPH_LIST_MAX], *const *in[GRAPH_PARAMS_MAX] = {0};
    uint32_t counts[GRAPH_PARAMS_MAX] = {0};
    assert(n_args <= GRAPH_LIST_MAX && def->n_params <= GRAPH_PARAMS_MAX);
    for (size_t i = 0; i < n_args; i++) {
        if (!args[i].value)
            return fail(g);
        lists[i] = args[i].value;
        if (!counts[args[i].param]++)
            in[args[i].param] = &lists[i];
    }
    const char *full = g->failed ? NULL : full_name(g, name);
    if (g->failed || !full)
        return fail(g);
    pome_op *op = pome_op_create(g->fn, def, full, in, counts, def->n_out < 0 ? 1 : (uint32_t)def->n_out);
    if (!op || !pome_block_append(g->fn->program, g->fn->body, op))
        return fail(g);
    return op->n_out ? op->out[0] : NULL;
}

/* ---- constants ---- */

static pome_value *make_const(pome_graph *g, const char *name, const pome_const *k)
{
    pome_const *made = POME_NEW(g->fn->arena, pome_const);
    if (!made)
        return fail(g);
    *made = *k;
    pome_value *v = pome_value_create_const(g->fn, name, made);
    return v ? v : fail(g);
}

/* A shared constant of `rank` 0 or 1 from n elements of `size` bytes. */
static pome_value *small(pome_graph *g, const char *stem, pome_dtype dtype, int32_t rank, size_t n, const void *data,
                         size_t size)
{
    uint8_t key[8 + GRAPH_SMALL_MAX * 4];
    pome_arena *arena = g->fn->arena;
    assert(n <= GRAPH_SMALL_MAX && size <= 4);
    if (g->failed)
        return NULL;
    memset(key, 0, 8);
    key[0] = (uint8_t)dtype;
    key[1] = (uint8_t)rank;
    memcpy(key + 8, data, n * size);
    pome_str text = {(const char *)key, 8 + n * size};
    pome_value *known = pome_strmap_get(&g->consts, text);
    if (known)
        return known;
    char *kept = pome_arena_alloc(arena, text.len), *copy = pome_arena_alloc(arena, n * size);
    const char *name = pome_arena_printf(arena, "%s_%u", stem, (unsigned)g->n_consts++);
    if (!kept || !copy || !name)
        return fail(g);
    memcpy(kept, key, text.len);
    memcpy(copy, data, n * size);
    const int64_t shape[1] = {(int64_t)n};
    const pome_const k = {.t = pome_tensor_borrow(copy, dtype, rank, shape), .size_bytes = n * size};
    pome_value *v = make_const(g, name, &k);
    if (!v || !pome_strmap_set(&g->consts, (pome_str){kept, text.len}, v))
        return fail(g);
    return v;
}

pome_value *pome_graph_int(pome_graph *g, int32_t value)
{
    return small(g, "int", POME_DTYPE_I32, 0, 1, &value, sizeof value);
}

pome_value *pome_graph_ints(pome_graph *g, size_t n, const int32_t *values)
{
    return small(g, "ints", POME_DTYPE_I32, 1, n, values, sizeof *values);
}

pome_value *pome_graph_uints(pome_graph *g, size_t n, const uint32_t *values)
{
    return small(g, "uints", POME_DTYPE_U32, 1, n, values, sizeof *values);
}

pome_value *pome_graph_int8(pome_graph *g, int8_t value)
{
    return small(g, "int8", POME_DTYPE_I8, 0, 1, &value, sizeof value);
}

pome_value *pome_graph_bool(pome_graph *g, bool value)
{
    return small(g, "bool", POME_DTYPE_BOOL, 0, 1, &value, sizeof value);
}

pome_value *pome_graph_bools(pome_graph *g, size_t n, const bool *values)
{
    return small(g, "bools", POME_DTYPE_BOOL, 1, n, values, sizeof *values);
}

pome_value *pome_graph_real(pome_graph *g, double value)
{
    float wide = (float)value;
    uint16_t half = pome_f32_to_f16(wide);
    return g->real == POME_DTYPE_F16 ? small(g, "real", POME_DTYPE_F16, 0, 1, &half, sizeof half)
                                     : small(g, "real", POME_DTYPE_F32, 0, 1, &wide, sizeof wide);
}

pome_value *pome_graph_text(pome_graph *g, const char *text)
{
    pome_arena *arena = g->fn->arena;
    const char **strings = g->failed ? NULL : POME_NEW(arena, const char *);
    const char *name = strings ? pome_arena_printf(arena, "text_%u", (unsigned)g->n_consts++) : NULL;
    if (!name || !(strings[0] = pome_arena_strndup(arena, text, strlen(text))))
        return fail(g);
    const pome_const k = {.t = {.dtype = POME_DTYPE_STRING, .data = strings}, .strings = strings};
    return make_const(g, name, &k);
}

pome_value *pome_graph_blob(pome_graph *g, const char *name, pome_dtype dtype, int32_t rank, const int64_t *dim,
                            uint64_t record_offset)
{
    const pome_const k = {.t = pome_tensor_borrow(NULL, dtype, rank, dim), .file = pome_mlpackage_weights_name,
                          .file_offset = record_offset};
    const char *full = g->failed ? NULL : name[0] ? full_name(g, name) : "";
    return full && !g->failed ? make_const(g, full, &k) : fail(g);
}

/* ---- shorthands ---- */

pome_value *pome_graph_add2(pome_graph *g, const char *name, pome_value *x, pome_value *y)
{
    return pome_graph_add(g, POME_OP_add, name, POME_ARGS({P_add_x, x}, {P_add_y, y}));
}

pome_value *pome_graph_mul(pome_graph *g, const char *name, pome_value *x, pome_value *y)
{
    return pome_graph_add(g, POME_OP_mul, name, POME_ARGS({P_mul_x, x}, {P_mul_y, y}));
}

pome_value *pome_graph_reshape(pome_graph *g, const char *name, pome_value *x, pome_value *shape)
{
    return pome_graph_add(g, POME_OP_reshape, name, POME_ARGS({P_reshape_x, x}, {P_reshape_shape, shape}));
}

pome_value *pome_graph_transpose(pome_graph *g, const char *name, pome_value *x, pome_value *perm)
{
    return pome_graph_add(g, POME_OP_transpose, name, POME_ARGS({P_transpose_x, x}, {P_transpose_perm, perm}));
}

pome_value *pome_graph_slice(pome_graph *g, const char *name, pome_value *x, int32_t rank, int32_t axis, int32_t begin,
                             int32_t end)
{
    int32_t from[POME_MAX_RANK] = {0}, to[POME_MAX_RANK] = {0};
    bool open[POME_MAX_RANK] = {0};
    for (int32_t i = 0; i < rank; i++)
        open[i] = i != axis;
    from[axis] = begin;
    to[axis] = end;
    size_t n = (size_t)rank;
    pome_value *mask = pome_graph_bools(g, n, open);
    return pome_graph_add(g, POME_OP_slice_by_index, name,
                          POME_ARGS({P_slice_by_index_x, x}, {P_slice_by_index_begin, pome_graph_ints(g, n, from)},
                                    {P_slice_by_index_end, pome_graph_ints(g, n, to)},
                                    {P_slice_by_index_begin_mask, mask}, {P_slice_by_index_end_mask, mask}));
}

pome_value *pome_graph_slice_last(pome_graph *g, const char *name, pome_value *x, int32_t rank, int32_t begin,
                                  int32_t end)
{
    return pome_graph_slice(g, name, x, rank, rank - 1, begin, end);
}

pome_value *pome_graph_concat(pome_graph *g, const char *name, int32_t axis, size_t n, pome_value *const *values)
{
    pome_graph_arg args[GRAPH_LIST_MAX];
    assert(n + 2 <= GRAPH_LIST_MAX);
    for (size_t i = 0; i < n; i++)
        args[i] = (pome_graph_arg){P_concat_values, values[i]};
    args[n] = (pome_graph_arg){P_concat_axis, pome_graph_int(g, axis)};
    args[n + 1] = (pome_graph_arg){P_concat_interleave, pome_graph_bool(g, false)};
    return pome_graph_add(g, POME_OP_concat, name, n + 2, args);
}

pome_value *pome_graph_size(pome_graph *g, const char *name, pome_value *x, int32_t axis)
{
    char shape[64];
    snprintf(shape, sizeof shape, "%s_shape", name);
    pome_value *sizes = pome_graph_add(g, POME_OP_shape, shape, POME_ARGS({P_shape_x, x}));
    return pome_graph_add(g, POME_OP_slice_by_index, name,
                          POME_ARGS({P_slice_by_index_x, sizes}, {P_slice_by_index_begin, POME_INTS(g, axis)},
                                    {P_slice_by_index_end, POME_INTS(g, axis + 1)}));
}
