#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "mil/print.h"
#include "pome/inspect.h"
#include "runtime/model.h"

/* ---- operators ---- */

static void count_block(uint64_t *n_of, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        n_of[b->ops[i]->def->id]++;
        for (uint32_t k = 0; k < b->ops[i]->n_blocks; k++)
            count_block(n_of, b->ops[i]->blocks[k]);
    }
}

static int compare_ops(const void *a, const void *b)
{
    const pome_op_count *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->op, y->op);
}

pome_status pome_model_count_ops(const pome_model *model, uint32_t function, pome_op_count **counts, size_t *n,
                                 pome_error *err)
{
    uint64_t n_of[POME_OP_COUNT] = {0};
    if (function >= model->info.n_functions)
        return pome_fail(err, POME_ERR_ARG, "function %u of %u", function, model->info.n_functions);
    pome_op_count *list = calloc(POME_OP_COUNT, sizeof *list);
    if (!list)
        return pome_fail_nomem(err, POME_OP_COUNT * sizeof *list, "counts");
    count_block(n_of, model->functions[function].fn->body);
    size_t n_found = 0;
    for (int id = 0; id < POME_OP_COUNT; id++)
        if (n_of[id] > 0)
            list[n_found++] = (pome_op_count){pome_opdef_get((pome_op_id)id)->name, n_of[id]};
    qsort(list, n_found, sizeof *list, compare_ops);
    *counts = list;
    *n = n_found;
    return POME_OK;
}

/* ---- weights ---- */

enum { KINDS_MAX = 256 }; /* encodings times element types */

typedef struct survey {
    pome_arena *arena;
    pome_strmap seen; /* addresses of constants' bytes */
    pome_weight_count *kinds;
    size_t n_kinds;
} survey;

/* The parameter that holds the codes of an encoding, whose type says how many bits a weight has. */
static const pome_const *codes_of(const pome_op *op)
{
    static const char *const names[] = {"data", "quantized_data", "indices", "nonzero_data", "indices_nonzero_data",
                                        "source_val"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int p = pome_opdef_param(op->def, names[i]);
        const pome_value *v = p >= 0 ? pome_op_arg(op, (uint32_t)p) : NULL;
        if (v && v->konst)
            return v->konst;
    }
    return NULL;
}

/* Encodings nest a few levels (a sparse one of a palette with scaled entries); files may claim more. */
enum { NESTING_MAX = 8 };

/* Bytes of a constant as stored. */
static uint64_t stored_bytes_nested(const pome_const *k, int nesting)
{
    uint64_t sum = 0;
    if (!k->encoded_by)
        return k->size_bytes;
    for (uint32_t i = 0; i < k->encoded_by->n_in && nesting < NESTING_MAX; i++)
        if (k->encoded_by->in[i]->konst)
            sum += stored_bytes_nested(k->encoded_by->in[i]->konst, nesting + 1);
    return sum;
}

uint64_t pome_const_stored_bytes(const pome_const *k)
{
    return stored_bytes_nested(k, 0);
}

/* What identifies a constant: where its (innermost) bytes lie. */
static const void *address_of(const pome_const *k)
{
    while (k && k->encoded_by)
        k = codes_of(k->encoded_by);
    return k ? k->t.data : NULL;
}

static void name_kind(char *text, size_t size, const pome_const *k)
{
    if (!k->encoded_by) {
        snprintf(text, size, "%s", pome_dtype_name(k->t.dtype));
        return;
    }
    const pome_const *codes = codes_of(k->encoded_by);
    const char *name = k->encoded_by->def->name, *prefix = "constexpr_";
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        name += strlen(prefix);
    snprintf(text, size, "%s %s", codes ? pome_dtype_name(codes->t.dtype) : "?", name);
}

static bool add_constant(survey *s, const pome_const *k)
{
    if (!k->encoded_by && !k->file)
        return true;
    const void *address = address_of(k);
    pome_str key = {pome_arena_strndup(s->arena, (const char *)&address, sizeof address), sizeof address};
    if (!key.ptr)
        return false;
    if (address && pome_strmap_get(&s->seen, key))
        return true;
    if (address && !pome_strmap_set(&s->seen, key, s))
        return false;
    char kind[64];
    size_t i = 0;
    name_kind(kind, sizeof kind, k);
    while (i < s->n_kinds && strcmp(s->kinds[i].kind, kind) != 0)
        i++;
    if (i == KINDS_MAX)
        return true;
    if (i == s->n_kinds)
        memcpy(s->kinds[s->n_kinds++].kind, kind, sizeof kind);
    s->kinds[i].n++;
    s->kinds[i].n_elements += (uint64_t)pome_tensor_count(&k->t);
    s->kinds[i].size_bytes += pome_const_stored_bytes(k);
    return true;
}

/* Operators of encodings are looked at through their results only. */
static bool survey_block(survey *s, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        if (op->def->flags & POME_OP_CONSTEXPR)
            continue;
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k]->konst && !add_constant(s, op->in[k]->konst))
                return false;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            if (!survey_block(s, op->blocks[k]))
                return false;
    }
    return true;
}

static int compare_weights(const void *a, const void *b)
{
    const pome_weight_count *x = a, *y = b;
    return x->size_bytes != y->size_bytes ? (x->size_bytes < y->size_bytes ? 1 : -1) : strcmp(x->kind, y->kind);
}

pome_status pome_model_count_weights(const pome_model *model, pome_weight_count **counts, size_t *n, pome_error *err)
{
    survey s = {.arena = pome_arena_create(0), .kinds = calloc(KINDS_MAX, sizeof *s.kinds)};
    bool is_done = s.arena && s.kinds;
    pome_strmap_init(&s.seen, s.arena);
    for (uint32_t i = 0; i < model->info.n_functions && is_done; i++)
        is_done = survey_block(&s, model->functions[i].fn->body);
    pome_arena_destroy(&s.arena);
    if (!is_done) {
        free(s.kinds);
        return pome_fail_nomem(err, KINDS_MAX * sizeof *s.kinds, "counts");
    }
    qsort(s.kinds, s.n_kinds, sizeof *s.kinds, compare_weights);
    *counts = s.kinds;
    *n = s.n_kinds;
    return POME_OK;
}

/* ---- text ---- */

pome_status pome_model_print_mil(const pome_model *model, int function, pome_text_sink *sink, void *arg,
                                 pome_error *err)
{
    if (function >= (int)model->info.n_functions)
        return pome_fail(err, POME_ERR_ARG, "function %d of %u", function, model->info.n_functions);
    if (function < 0)
        return pome_program_print(model->program, sink, arg, err);
    return pome_function_print(model->functions[function].fn, sink, arg, err);
}
