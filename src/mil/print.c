#include "mil/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/f16.h"
#include "base/strmap.h"
#include "mil/print_writer.h"

#define INDENT 4
#define NESTING_MAX 16 /* of encodings: a few levels, unless a file is made to be bad */

struct pome_printer {
    pome_print_fn *fn;
    void *arg;
    const pome_print_opts *opts;
    int nesting; /* of compressed constants being written */
    bool *is_written;   /* [n_values] constants of the function that have their statement */
    const char **names; /* [n_values] what values are called in the text */
    pome_opset opset;   /* of the function */
    int depth;
    size_t used;
    char buffer[4096];
};
typedef pome_printer printer;

static void flush(printer *p)
{
    if (p->used)
        p->fn(p->arg, p->buffer, p->used);
    p->used = 0;
}

static void put_text(printer *p, const char *s, size_t len)
{
    if (len > sizeof p->buffer - p->used)
        flush(p);
    if (len > sizeof p->buffer) {
        p->fn(p->arg, s, len);
        return;
    }
    memcpy(p->buffer + p->used, s, len);
    p->used += len;
}

static void put(printer *p, const char *s)
{
    put_text(p, s, strlen(s));
}

void pome_printer_put(pome_printer *p, const char *s)
{
    put(p, s);
}

static void putf(printer *p, const char *fmt, ...) POME_PRINTF(2, 3);

/* Short pieces only: numbers. */
static void putf(printer *p, const char *fmt, ...)
{
    char text[64];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        put_text(p, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void put_indent(printer *p)
{
    for (int i = 0; i < p->depth * INDENT; i++)
        put_text(p, " ", 1);
}

static void put_string(printer *p, const char *s)
{
    put(p, "\"");
    for (; *s; s++) {
        const char *escape = NULL;
        switch (*s) {
        case '"': escape = "\\\""; break;
        case '\\': escape = "\\\\"; break;
        case '\n': escape = "\\n"; break;
        case '\r': escape = "\\r"; break;
        case '\t': escape = "\\t"; break;
        default: break;
        }
        put_text(p, escape ? escape : s, escape ? 2 : 1);
    }
    put(p, "\"");
}

void pome_printer_string(pome_printer *p, const char *s)
{
    put_string(p, s);
}

/* Names in the text are identifiers; what is none stands in quotes. */
static void put_name(printer *p, const char *name)
{
    static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789@";
    bool is_identifier = name[0] && !(name[0] >= '0' && name[0] <= '9') && name[0] != '@' && !name[strspn(name, rest)];
    if (is_identifier)
        put(p, name);
    else
        put_string(p, name);
}

static const char *name_in_text(const printer *p, const pome_value *v)
{
    return p->names[v->id] ? p->names[v->id] : v->name;
}

/* ---- types ---- */

static void put_scalar_type(printer *p, const char *dtype)
{
    put(p, p->opts->is_long ? "tensor<" : "");
    put(p, dtype);
    put(p, p->opts->is_long ? ", []>" : "");
}

void pome_printer_scalar(pome_printer *p, const char *dtype)
{
    put_scalar_type(p, dtype);
}

static void put_text_literal(printer *p, const char *text)
{
    put_scalar_type(p, "string");
    put(p, "(");
    put_string(p, text);
    put(p, ")");
}

static void put_tensor_type(printer *p, pome_dtype dtype, int32_t rank, const int64_t *dim)
{
    if (rank == 0 && !p->opts->is_long) {
        put(p, pome_dtype_name(dtype));
        return;
    }
    putf(p, "tensor<%s, [", pome_dtype_name(dtype));
    if (rank < 0)
        put(p, "*?");
    for (int32_t i = 0; i < rank; i++) {
        put(p, i ? ", " : "");
        if (dim[i] < 0)
            put(p, "?");
        else
            putf(p, "%" PRId64, dim[i]);
    }
    put(p, "]>");
}

static void put_type(printer *p, const pome_type *t)
{
    switch (t->kind) {
    case POME_TYPE_TENSOR:
        put_tensor_type(p, t->dtype, t->rank, t->dim);
        break;
    case POME_TYPE_STATE:
        put(p, "state<");
        put_tensor_type(p, t->dtype, t->rank, t->dim);
        put(p, ">");
        break;
    case POME_TYPE_LIST:
        put(p, "list<");
        put_tensor_type(p, t->dtype, t->rank, t->dim);
        if (t->list_length < 0)
            put(p, ", ?>");
        else
            putf(p, ", %" PRId64 ">", t->list_length);
        break;
    case POME_TYPE_DICT:
        put(p, "dict<");
        put_scalar_type(p, pome_dtype_name(t->dtype));
        put(p, ", ");
        put_scalar_type(p, "fp64");
        put(p, ">");
        break;
    }
}

/* ---- constants ---- */

static uint64_t bits_at(const uint8_t *data, uint32_t width, size_t i)
{
    size_t first = i * width;
    uint64_t v = 0;
    for (uint32_t k = 0; k < width; k++)
        v |= (uint64_t)((data[(first + k) / 8] >> ((first + k) % 8)) & 1u) << k;
    return v;
}

/* C99 hexadecimal, subnormal numbers normalized like the rest: %a of the fraction, then the exponent. */
static void put_float(printer *p, double v)
{
    char text[40];
    int exponent;
    if (isnan(v)) {
        put(p, "nan");
        return;
    }
    if (isinf(v) || v == 0) {
        put(p, isinf(v) ? (v < 0 ? "-inf" : "inf") : signbit(v) ? "-0x0p+0" : "0x0p+0");
        return;
    }
    snprintf(text, sizeof text, "%a", frexp(v, &exponent) * 2);
    put_text(p, text, strcspn(text, "p"));
    putf(p, "p%+d", exponent - 1);
}

static void put_element(printer *p, const pome_const *k, size_t i)
{
    const uint8_t *data = k->t.data;
    if (k->strings) {
        put_string(p, k->strings[i]);
        return;
    }
    uint32_t width = pome_dtype_bits(k->t.dtype);
    uint64_t v = bits_at(data, width, i);
    uint64_t sign = UINT64_C(1) << (width - 1);
    double f64;
    switch (k->t.dtype) {
    case POME_DTYPE_BOOL: put(p, v ? "true" : "false"); break;
    case POME_DTYPE_F16: put_float(p, (double)pome_f16_to_f32((uint16_t)v)); break;
    case POME_DTYPE_BF16: put_float(p, (double)pome_bf16_to_f32((uint16_t)v)); break;
    case POME_DTYPE_F32: put_float(p, (double)pome_f32_from_bits((uint32_t)v)); break;
    case POME_DTYPE_F8E4M3FN: put_float(p, (double)pome_f8e4m3fn_to_f32((uint8_t)v)); break;
    case POME_DTYPE_F8E5M2: put_float(p, (double)pome_f8e5m2_to_f32((uint8_t)v)); break;
    case POME_DTYPE_F64:
        memcpy(&f64, &v, sizeof f64);
        put_float(p, f64);
        break;
    case POME_DTYPE_I4:
    case POME_DTYPE_I8:
    case POME_DTYPE_I16:
    case POME_DTYPE_I32:
    case POME_DTYPE_I64: putf(p, "%" PRId64, (int64_t)((v ^ sign) - sign)); break;
    default: putf(p, "%" PRIu64, v);
    }
}

/* Nested lists, as deep as the rank. */
static void put_elements(printer *p, const pome_const *k, int32_t axis, size_t *next)
{
    if (axis == k->t.rank) {
        put_element(p, k, (*next)++);
        return;
    }
    put(p, "[");
    for (int64_t i = 0; i < k->t.shape[axis]; i++) {
        put(p, i ? ", " : "");
        put_elements(p, k, axis + 1, next);
    }
    put(p, "]");
}

static void put_const(printer *p, const pome_type *type, const pome_const *k)
{
    size_t next = 0;
    if (type->kind == POME_TYPE_LIST)
        put_type(p, type);
    else
        put_tensor_type(p, k->t.dtype, k->t.rank, k->t.shape);
    put(p, "(");
    if (k->file) {
        put(p, "BLOBFILE(path = ");
        put_text_literal(p, k->file);
        put(p, ", offset = ");
        put_scalar_type(p, "uint64");
        putf(p, "(%" PRIu64 "))", k->file_offset);
    } else if (k->t.data) {
        bool is_empty = false;
        for (int32_t i = 0; i < k->t.rank; i++)
            is_empty |= k->t.shape[i] == 0;
        if (is_empty)
            put(p, "[]");
        else
            put_elements(p, k, 0, &next);
    } else {
        put(p, "compressed");
    }
    put(p, ")");
}

/* Whether a value is written as a `const` statement; literals and results are not. */
static bool is_const_statement(const pome_value *v)
{
    return v->konst && !v->def && v->name[0];
}

static void put_compressed(printer *p, const pome_op *op);

static void put_const_statement(printer *p, const pome_value *v)
{
    if (v->konst && v->konst->encoded_by && v->konst->encoded_by == v->def)
        put_compressed(p, v->def);
    if (!is_const_statement(v) || p->is_written[v->id])
        return;
    p->is_written[v->id] = true;
    put_indent(p);
    put_type(p, &v->type);
    put(p, " ");
    put_name(p, name_in_text(p, v));
    put(p, " = const()[name = ");
    put_text_literal(p, name_in_text(p, v));
    put(p, ", val = ");
    put_const(p, &v->type, v->konst);
    put(p, "];\n");
}

/* The constants that an operation and its blocks use: at the level of the function, where all can see them. */
static void put_consts_of_block(printer *p, const pome_block *b);

static void put_consts_of_op(printer *p, const pome_op *op)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        put_const_statement(p, op->in[i]);
    for (uint32_t i = 0; i < op->n_blocks; i++)
        put_consts_of_block(p, op->blocks[i]);
}

static void put_op(printer *p, const pome_op *op);

/* The operation of a compressed constant, which passes take out of its block. */
static void put_compressed(printer *p, const pome_op *op)
{
    if (p->is_written[op->out[0]->id] || p->nesting == NESTING_MAX)
        return;
    p->nesting++;
    put_consts_of_op(p, op);
    put_op(p, op);
    p->nesting--;
}

static void put_consts_of_block(printer *p, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++)
        put_consts_of_op(p, b->ops[i]);
    for (uint32_t i = 0; i < b->n_outputs; i++)
        put_const_statement(p, b->outputs[i]);
}

/* ---- statements ---- */

static void put_value(printer *p, const pome_value *v)
{
    if (v->name[0])
        put_name(p, name_in_text(p, v));
    else if (v->konst)
        put_const(p, &v->type, v->konst);
}

static void put_typed(printer *p, pome_value *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put(p, i ? ", " : "");
        put_type(p, &list[i]->type);
        put(p, " ");
        put_name(p, name_in_text(p, list[i]));
    }
}

static void put_names(printer *p, pome_value *const *list, uint32_t n)
{
    put(p, "(");
    for (uint32_t i = 0; i < n; i++) {
        put(p, i ? ", " : "");
        put_value(p, list[i]);
    }
    put(p, ")");
}

/* The given parameter whose name comes next after `after` (NULL: the first); -1 at the end. */
static int next_parameter(const pome_op *op, const char *after)
{
    int best = -1;
    for (int i = 0; i < op->def->n_params; i++) {
        const char *name = op->def->params[i].name;
        if (op->args[i].count && (!after || strcmp(name, after) > 0) &&
            (best < 0 || strcmp(name, op->def->params[best].name) < 0))
            best = i;
    }
    return best;
}

/* The constants of compressed ones are attributes before iOS 18, as in the protobuf. */
static bool has_attributes(const printer *p, const pome_op *op)
{
    return (op->def->flags & POME_OP_CONSTEXPR) &&
           (p->opset < POME_OPSET_IOS18 || op->def->id == POME_OP_constexpr_affine_dequantize ||
            op->def->id == POME_OP_constexpr_cast);
}

/* Every name is written in the long spelling, in the short one those that the first result does not have. */
static bool has_name(const printer *p, const pome_op *op)
{
    return op->name[0] && (p->opts->is_long || !op->n_out || strcmp(op->name, name_in_text(p, op->out[0])) != 0);
}

/* name = value, sorted by name; among attributes the name of the operation, too. */
static void put_parameters(printer *p, const pome_op *op, bool with_name)
{
    const char *after = NULL;
    bool is_first = true;
    for (int i; (i = next_parameter(op, after)) >= 0; after = op->def->params[i].name) {
        const pome_arg arg = op->args[i];
        if (with_name && strcmp(op->def->params[i].name, "name") > 0) {
            put(p, is_first ? "name = " : ", name = ");
            put_text_literal(p, op->name);
            with_name = is_first = false;
        }
        put(p, is_first ? "" : ", ");
        is_first = false;
        put(p, op->def->params[i].name);
        put(p, " = ");
        const pome_value *v = op->in[arg.first];
        if (op->def->params[i].flags & POME_P_LIST)
            put_names(p, op->in + arg.first, arg.count);
        else if (has_attributes(p, op) && v->konst && !v->konst->encoded_by) /* attributes are literals */
            put_const(p, &v->type, v->konst);
        else
            put_value(p, v);
    }
    if (with_name) {
        put(p, is_first ? "name = " : ", name = ");
        put_text_literal(p, op->name);
    }
}

static void put_arguments(printer *p, const pome_op *op)
{
    if (has_attributes(p, op)) {
        put(p, "()[");
        put_parameters(p, op, has_name(p, op));
        put(p, "]");
        return;
    }
    put(p, "(");
    put_parameters(p, op, false);
    put(p, ")");
    if (has_name(p, op)) {
        put(p, "[name = ");
        put_text_literal(p, op->name);
        put(p, "]");
    }
}

static void put_block(printer *p, const pome_block *b)
{
    put(p, "\n");
    put_indent(p);
    put(p, "(");
    put_typed(p, b->inputs, b->n_inputs);
    put(p, ") {\n");
    p->depth++;
    for (uint32_t i = 0; i < b->n_ops; i++)
        put_op(p, b->ops[i]);
    p->depth--;
    put_indent(p);
    put(p, "} -> ");
    put_names(p, b->outputs, b->n_outputs);
}

static void put_op(printer *p, const pome_op *op)
{
    if (op->def->flags & POME_OP_CONSTEXPR) {
        if (p->is_written[op->out[0]->id])
            return;
        for (uint32_t i = 0; i < op->n_out; i++)
            p->is_written[op->out[i]->id] = true;
    }
    put_indent(p);
    put_typed(p, op->out, op->n_out);
    put(p, op->n_out ? " = " : "");
    put(p, op->def->name);
    put_arguments(p, op);
    for (uint32_t i = 0; i < op->n_blocks; i++)
        put_block(p, op->blocks[i]);
    put(p, ";\n");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(pome_value *const *)a)->name, (*(pome_value *const *)b)->name);
}

static void put_function(printer *p, const pome_function *fn, pome_value **inputs)
{
    p->depth = 1;
    put_indent(p);
    put(p, "func ");
    put_name(p, fn->name);
    putf(p, "<ios%d>(", (int)fn->opset);
    put_typed(p, inputs, fn->n_inputs);
    put(p, ") ");
    if (p->opts->info)
        pome_print_flexible_shapes(p, p->opts->info, fn->name);
    put(p, "{\n");
    p->depth = 3;
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        put_consts_of_op(p, fn->body->ops[i]);
        put_op(p, fn->body->ops[i]);
    }
    for (uint32_t i = 0; i < fn->body->n_outputs; i++)
        put_const_statement(p, fn->body->outputs[i]);
    p->depth = 2;
    put_indent(p);
    put(p, "} -> ");
    put_names(p, fn->body->outputs, fn->body->n_outputs);
    put(p, ";\n");
}

/* ---- names ---- */

/* Constants of nested blocks are written in the function's own block, where other blocks' names are seen too: those
 * that others have get new ones. */
typedef struct namer {
    pome_arena *arena;
    pome_strmap owners; /* name -> the value that has it */
    const char **names;
    bool failed;
} namer;

static void keep_name(namer *n, pome_value *v)
{
    n->names[v->id] = v->name;
    if (v->name[0] && !pome_strmap_get(&n->owners, pome_str_of(v->name)) &&
        !pome_strmap_set(&n->owners, pome_str_of(v->name), v))
        n->failed = true;
}

static void keep_names(namer *n, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_inputs; i++)
        keep_name(n, b->inputs[i]);
    for (uint32_t i = 0; i < b->n_ops; i++) {
        for (uint32_t k = 0; k < b->ops[i]->n_out; k++)
            keep_name(n, b->ops[i]->out[k]);
        for (uint32_t k = 0; k < b->ops[i]->n_blocks; k++)
            keep_names(n, b->ops[i]->blocks[k]);
    }
}

static void name_const(namer *n, pome_value *v, int nesting);

static void name_consts_of_op(namer *n, const pome_op *op, int nesting)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        name_const(n, op->in[i], nesting);
}

static void name_const(namer *n, pome_value *v, int nesting)
{
    if (n->names[v->id])
        return;
    if (v->konst && v->konst->encoded_by && v->konst->encoded_by == v->def && nesting < NESTING_MAX) {
        for (uint32_t i = 0; i < v->def->n_out; i++)
            keep_name(n, v->def->out[i]);
        name_consts_of_op(n, v->def, nesting + 1);
        return;
    }
    const char *name = v->name;
    for (uint32_t i = 1; is_const_statement(v) && name && pome_strmap_get(&n->owners, pome_str_of(name)); i++)
        name = pome_arena_printf(n->arena, "%s_%u", v->name, (unsigned)i);
    n->names[v->id] = name ? name : v->name;
    n->failed |= !name || (name[0] && !pome_strmap_set(&n->owners, pome_str_of(name), v));
}

static void name_consts(namer *n, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        name_consts_of_op(n, b->ops[i], 0);
        for (uint32_t k = 0; k < b->ops[i]->n_blocks; k++)
            name_consts(n, b->ops[i]->blocks[k]);
    }
    for (uint32_t i = 0; i < b->n_outputs; i++)
        name_const(n, b->outputs[i], 0);
}

/* Names for all values of a function, in the arena; NULL when memory is short. */
static const char **name_values(const pome_function *fn, pome_arena *arena)
{
    namer n = {.arena = arena, .names = POME_NEW_ARRAY(arena, const char *, fn->n_values + 1u)};
    pome_strmap_init(&n.owners, arena);
    if (!n.names)
        return NULL;
    for (uint32_t i = 0; i < fn->n_inputs; i++)
        keep_name(&n, fn->inputs[i]);
    keep_names(&n, fn->body);
    name_consts(&n, fn->body);
    return n.failed ? NULL : n.names;
}

/* ---- functions and programs ---- */

static pome_status print_function(printer *p, const pome_function *fn, pome_error *err)
{
    pome_arena *arena = pome_arena_create(0);
    pome_value **inputs = arena ? POME_NEW_ARRAY(arena, pome_value *, fn->n_inputs) : NULL;
    p->is_written = arena ? POME_NEW_ARRAY(arena, bool, fn->n_values + 1u) : NULL;
    p->names = arena ? name_values(fn, arena) : NULL;
    p->opset = fn->opset;
    pome_status status = POME_OK;
    if (inputs && p->is_written && p->names) {
        if (fn->n_inputs)
            memcpy(inputs, fn->inputs, fn->n_inputs * sizeof *inputs);
        qsort(inputs, fn->n_inputs, sizeof *inputs, compare_names);
        put_function(p, fn, inputs);
    } else {
        status = pome_fail_nomem(err, fn->n_values, "printing a program");
    }
    pome_arena_destroy(&arena);
    p->is_written = NULL;
    p->names = NULL;
    return status;
}

static const pome_print_opts short_form;

pome_status pome_function_print(const pome_function *function, pome_print_fn *fn, void *arg, pome_error *err)
{
    printer p = {.fn = fn, .arg = arg, .opts = &short_form};
    POME_TRY(print_function(&p, function, err));
    flush(&p);
    return POME_OK;
}

/* [buildInfo = dict<string, string>({{"key", "value"}, ...})] */
static void put_build_info(printer *p)
{
    put(p, "[buildInfo = dict<");
    put_scalar_type(p, "string");
    put(p, ", ");
    put_scalar_type(p, "string");
    put(p, ">({");
    for (const char *const *s = p->opts->build_info; s[0]; s += 2) {
        put(p, s == p->opts->build_info ? "{" : ", {");
        put_string(p, s[0]);
        put(p, ", ");
        put_string(p, s[1]);
        put(p, "}");
    }
    put(p, "})]\n");
}

pome_status pome_program_print_as(const pome_program *program, const pome_print_opts *opts, pome_print_fn *fn, void *arg,
                                  pome_error *err)
{
    printer p = {.fn = fn, .arg = arg, .opts = opts ? opts : &short_form};
    put(&p, p.opts->is_long ? "program(1.0)\n" : "program(1.3)\n");
    if (p.opts->build_info)
        put_build_info(&p);
    put(&p, "{\n");
    for (uint32_t i = 0; i < program->n_functions; i++)
        POME_TRY(print_function(&p, program->functions[i], err));
    put(&p, "}\n");
    flush(&p);
    return POME_OK;
}

pome_status pome_program_print(const pome_program *program, pome_print_fn *fn, void *arg, pome_error *err)
{
    return pome_program_print_as(program, NULL, fn, arg, err);
}

/* ---- into memory ---- */

typedef struct growing_text {
    char *text;
    size_t len, size;
    bool is_full; /* memory ran out */
} growing_text;

static void append(void *arg, const char *text, size_t len)
{
    growing_text *g = arg;
    if (len >= g->size - g->len) {
        size_t size = (g->len + len) * 2 + 1;
        char *grown = g->is_full ? NULL : realloc(g->text, size);
        if (!grown) {
            g->is_full = true;
            return;
        }
        g->text = grown;
        g->size = size;
    }
    memcpy(g->text + g->len, text, len);
    g->len += len;
}

pome_status pome_program_text_as(char **out, size_t *len, const pome_program *program, const pome_print_opts *opts,
                                 pome_error *err)
{
    growing_text g = {0};
    pome_status status = pome_program_print_as(program, opts, append, &g, err);
    if (status == POME_OK && g.is_full)
        status = pome_fail_nomem(err, g.size, "printing a program");
    if (status != POME_OK) {
        free(g.text);
        return status;
    }
    g.text[g.len] = '\0';
    *out = g.text;
    if (len)
        *len = g.len;
    return POME_OK;
}

pome_status pome_program_text(char **out, size_t *len, const pome_program *program, pome_error *err)
{
    return pome_program_text_as(out, len, program, NULL, err);
}
