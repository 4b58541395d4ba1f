#include "mil/load.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "mil/load_value.h"

#define DEFAULT_ARENA_BYTES ((size_t)1 << 30)
#define DEFAULT_OPS (UINT32_C(4) << 20)
#define DEFAULT_BLOCK_DEPTH 32u

typedef Pome__Spec__Operation op_spec;
typedef Pome__Spec__Block block_spec;

static const struct {
    const char *name;
    pome_opset opset;
} opsets[] = {
    {"CoreML5", POME_OPSET_IOS15}, {"CoreML6", POME_OPSET_IOS16}, {"CoreML7", POME_OPSET_IOS17},
    {"CoreML8", POME_OPSET_IOS18}, {"CoreML9", POME_OPSET_IOS26},
};
#define N_OPSETS (sizeof opsets / sizeof opsets[0])

bool pome_opset_parse(const char *text, pome_opset *out)
{
    for (size_t i = 0; i < N_OPSETS; i++)
        if (strcmp(opsets[i].name, text) == 0) {
            *out = opsets[i].opset;
            return true;
        }
    return false;
}

const char *pome_opset_name(pome_opset opset)
{
    for (size_t i = 0; i < N_OPSETS; i++)
        if (opsets[i].opset == opset)
            return opsets[i].name;
    return NULL;
}

static pome_status no_memory(pome_error *err)
{
    return pome_fail(err, POME_ERR_NOMEM, "out of memory, or more than the limit, for the program");
}

/* ---- which blocks are loaded ---- */

/* A function's block for its opset. */
static pome_status body_of(const block_spec **out, const Pome__Spec__FunctionEntry *entry, pome_error *err)
{
    const Pome__Spec__Function *f = entry->value;
    if (!f)
        return pome_fail(err, POME_ERR_FORMAT, "function %s is empty", entry->key);
    for (size_t i = 0; i < f->n_block_specializations; i++) {
        const Pome__Spec__BlockEntry *b = f->block_specializations[i];
        if (b->value && strcmp(b->key, f->opset) == 0) {
            *out = b->value;
            return POME_OK;
        }
    }
    return pome_fail(err, POME_ERR_FORMAT, "function %s says opset \"%s\", but none of its %zu blocks is for it",
                     entry->key, f->opset, f->n_block_specializations);
}

/* ---- operators that the table lacks ---- */

typedef struct missing_op {
    const char *type, *function, *opset;
    uint32_t position; /* of the first */
    uint32_t count;
    struct missing_op *next;
} missing_op;

typedef struct survey {
    pome_loader *l;
    const pome_load_limits *limits;
    const char *function, *opset;
    pome_strmap defs; /* type -> pome_opdef or, where there is none, &unknown */
    pome_strmap missing; /* type -> missing_op */
    missing_op *first, **last;
    uint32_t n_missing, n_ops;
} survey;

static pome_status note_missing(survey *s, const char *type, uint32_t position, pome_error *err)
{
    missing_op *m = pome_strmap_get(&s->missing, pome_str_of(type));
    if (m) {
        m->count++;
        return POME_OK;
    }
    m = POME_NEW(s->l->scratch, missing_op);
    if (!m || !pome_strmap_set(&s->missing, pome_str_of(type), m))
        return no_memory(err);
    *m = (missing_op){.type = type, .function = s->function, .opset = s->opset, .position = position, .count = 1};
    *s->last = m;
    s->last = &m->next;
    s->n_missing++;
    return POME_OK;
}

static const pome_opdef unknown_op;

/* The table's row, looked up once per name; NULL if there is none. */
static pome_status find_def(const pome_opdef **out, survey *s, const char *type, pome_error *err)
{
    const pome_opdef *def = pome_strmap_get(&s->defs, pome_str_of(type));
    if (!def) {
        def = pome_opdef_find(type);
        def = def ? def : &unknown_op;
        if (!pome_strmap_set(&s->defs, pome_str_of(type), (void *)(uintptr_t)def))
            return no_memory(err);
    }
    *out = def == &unknown_op ? NULL : def;
    return POME_OK;
}

/* Their inputs and attributes are the application's, so that nothing else about them can be checked. */
static pome_status refuse_custom(const survey *s, const op_spec *op, pome_error *err)
{
    const char *name = op->n_outputs ? op->outputs[0]->name : "";
    const char *class_name = NULL;
    for (size_t i = 0; i < op->n_attributes && !class_name; i++)
        if (strcmp(op->attributes[i]->key, "class_name") == 0)
            class_name = pome_load_text(op->attributes[i]->value);
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "function %.100s: %.100s (custom_layer) is of the class %.200s: custom layers need code of the application",
                     s->function, name, class_name ? class_name : "(without a name)");
}

static pome_status survey_block(survey *s, const block_spec *b, uint32_t depth, pome_error *err)
{
    if (depth > s->limits->block_depth)
        return pome_fail(err, POME_ERR_LIMIT, "function %s: blocks are nested more than %u deep", s->function,
                         s->limits->block_depth);
    for (size_t i = 0; i < b->n_operations; i++) {
        const op_spec *op = b->operations[i];
        const pome_opdef *def = NULL;
        if (++s->n_ops > s->limits->n_ops)
            return pome_fail(err, POME_ERR_LIMIT, "the program has more than %u operations", s->limits->n_ops);
        POME_TRY(find_def(&def, s, op->type, err));
        if (def && def->id == POME_OP_custom_layer)
            return refuse_custom(s, op, err);
        if (!def)
            POME_TRY(note_missing(s, op->type, (uint32_t)i, err));
        for (size_t k = 0; k < op->n_blocks; k++)
            POME_TRY(survey_block(s, op->blocks[k], depth + 1, err));
    }
    return POME_OK;
}

/* As many as the message holds, then how many more. */
static pome_status report_missing(const survey *s, pome_error *err)
{
    char text[900];
    size_t used = 0;
    uint32_t n_told = 0;
    for (const missing_op *m = s->first; m && used < sizeof text - 200; m = m->next, n_told++) {
        int n = snprintf(text + used, sizeof text - used, "%s%.60s (%s, function %.60s, #%u", n_told ? ", " : "",
                         m->type, m->opset, m->function, m->position);
        used += n > 0 ? (size_t)n : 0;
        n = m->count > 1 ? snprintf(text + used, sizeof text - used, " and %u more)", m->count - 1)
                         : snprintf(text + used, sizeof text - used, ")");
        used += n > 0 ? (size_t)n : 0;
    }
    if (n_told < s->n_missing)
        snprintf(text + used, sizeof text - used, ", and %u more", s->n_missing - n_told);
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%u operator%s not known: %s", s->n_missing,
                     s->n_missing == 1 ? " is" : "s are", text);
}

static pome_status survey_program(survey *s, const Pome__Spec__Program *program, pome_error *err)
{
    s->last = &s->first;
    pome_strmap_init(&s->defs, s->l->scratch);
    pome_strmap_init(&s->missing, s->l->scratch);
    for (size_t i = 0; i < program->n_functions; i++) {
        const block_spec *body = NULL;
        POME_TRY(body_of(&body, program->functions[i], err));
        s->function = program->functions[i]->key;
        s->opset = program->functions[i]->value->opset;
        POME_TRY(survey_block(s, body, 0, err));
    }
    return s->n_missing ? report_missing(s, err) : POME_OK;
}

/* ---- names and their scopes ---- */

typedef struct binding {
    pome_value *value;
    bool is_visible;       /* false once its block is closed */
    struct binding *older; /* in the list of visible ones */
} binding;

typedef struct reader {
    pome_loader *l;
    survey *survey;
    pome_function *fn;
    pome_strmap names; /* -> binding */
    binding *newest;
} reader;

static pome_status define(reader *r, pome_value *v, pome_error *err)
{
    binding *b = pome_strmap_get(&r->names, pome_str_of(v->name));
    if (v->name[0] == '\0')
        return pome_fail(err, POME_ERR_FORMAT, "a result without a name");
    if (b && b->is_visible)
        return pome_fail(err, POME_ERR_FORMAT, "%s is defined a second time", v->name);
    if (!b) {
        b = POME_NEW(r->l->scratch, binding);
        if (!b || !pome_strmap_set(&r->names, pome_str_of(v->name), b))
            return no_memory(err);
    }
    *b = (binding){v, true, r->newest};
    r->newest = b;
    return POME_OK;
}

static void close_scope(reader *r, binding *before)
{
    for (; r->newest != before; r->newest = r->newest->older)
        r->newest->is_visible = false;
}

static pome_status look_up(pome_value **out, const reader *r, const char *name, pome_error *err)
{
    const binding *b = pome_strmap_get(&r->names, pome_str_of(name));
    if (!b)
        return pome_fail(err, POME_ERR_FORMAT, "\"%.200s\" is not defined before its use", name);
    if (!b->is_visible)
        return pome_fail(err, POME_ERR_FORMAT, "%s is used outside of the block that defines it", name);
    *out = b->value;
    return POME_OK;
}

/* A new value of the declared type under its name. */
static pome_status declare(pome_value **out, reader *r, const Pome__Spec__NamedValueType *spec, pome_error *err)
{
    pome_type type;
    pome_status status = pome_load_type(&type, spec->type, &r->fn->next_symbol, err);
    if (status != POME_OK)
        return pome_fail_prefix(err, status, "%.200s", spec->name);
    pome_value *v = pome_value_create(r->fn, spec->name, &type);
    if (!v)
        return no_memory(err);
    *out = v;
    return POME_OK;
}

static pome_status declare_all(pome_value ***out, uint32_t *n_out, reader *r, Pome__Spec__NamedValueType **specs,
                               size_t n, pome_error *err)
{
    pome_value **list = n <= UINT32_MAX ? POME_NEW_ARRAY(r->l->program->arena, pome_value *, n) : NULL;
    if (!list)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        POME_TRY(declare(&list[i], r, specs[i], err));
        POME_TRY(define(r, list[i], err));
    }
    *out = list;
    *n_out = (uint32_t)n;
    return POME_OK;
}

/* ---- operations ---- */

/* The inputs of one operation while they are gathered: a list of values per parameter. */
typedef struct inputs {
    pome_value ***in; /* [def->n_params] */
    uint32_t *counts;
    bool *is_given;
} inputs;

static pome_status literal(pome_value **out, reader *r, const char *name, const Pome__Spec__Value *spec,
                           pome_error *err)
{
    const pome_const *k = NULL;
    pome_type type;
    POME_TRY(pome_load_const(&k, &type, r->l, spec, err));
    pome_value *v = pome_value_create(r->fn, name, &type);
    if (!v)
        return no_memory(err);
    v->konst = k;
    *out = v;
    return POME_OK;
}

static const Pome__Spec__ValueList *tuple_of(const Pome__Spec__Value *v)
{
    if (!v || v->value_case != POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE ||
        v->immediatevalue->value_case != POME__SPEC__IMMEDIATE_VALUE__VALUE_TUPLE)
        return NULL;
    return v->immediatevalue->tuple;
}

static pome_status bind(pome_value **out, reader *r, const Pome__Spec__Binding *b, pome_error *err)
{
    switch (b->binding_case) {
    case POME__SPEC__BINDING__BINDING_NAME: return look_up(out, r, b->name, err);
    case POME__SPEC__BINDING__BINDING_VALUE: return literal(out, r, "", b->value, err);
    default: return pome_fail(err, POME_ERR_FORMAT, "a binding that is neither a name nor a value");
    }
}

/* The values of a list parameter: several bindings, or one literal tuple. */
static pome_status bind_list(reader *r, pome_value ***list, uint32_t *count, const Pome__Spec__Argument *arg,
                             pome_error *err)
{
    const Pome__Spec__ValueList *tuple = arg->n_arguments == 1 ? tuple_of(arg->arguments[0]->binding_case ==
                                                                                  POME__SPEC__BINDING__BINDING_VALUE
                                                                              ? arg->arguments[0]->value
                                                                              : NULL)
                                                               : NULL;
    size_t n = tuple ? tuple->n_values : arg->n_arguments;
    *list = n <= UINT32_MAX ? POME_NEW_ARRAY(r->l->scratch, pome_value *, n) : NULL;
    if (!*list)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (tuple)
            POME_TRY(literal(&(*list)[i], r, "", tuple->values[i], err));
        else
            POME_TRY(bind(&(*list)[i], r, arg->arguments[i], err));
    }
    *count = (uint32_t)n;
    return POME_OK;
}

static pome_status take_parameter(uint32_t *out, inputs *in, const pome_opdef *def, const char *name,
                                  pome_error *err)
{
    int p = pome_opdef_param(def, name);
    if (p < 0)
        return pome_fail(err, POME_ERR_FORMAT, "%s has no parameter \"%.100s\"", def->name, name);
    if (in->is_given[p])
        return pome_fail(err, POME_ERR_FORMAT, "parameter %s is given twice", name);
    in->is_given[p] = true;
    *out = (uint32_t)p;
    return POME_OK;
}

static pome_status load_input(reader *r, inputs *in, const pome_opdef *def, const Pome__Spec__ArgumentEntry *entry,
                              pome_error *err)
{
    uint32_t p = 0;
    POME_TRY(take_parameter(&p, in, def, entry->key, err));
    if (!entry->value)
        return POME_OK; /* an empty list */
    if (entry->value->n_arguments > 1 && !(def->params[p].flags & POME_P_LIST))
        return pome_fail(err, POME_ERR_FORMAT, "parameter %s is given %zu values, wanted one", entry->key,
                         entry->value->n_arguments);
    pome_status status = bind_list(r, &in->in[p], &in->counts[p], entry->value, err);
    return status == POME_OK ? POME_OK : pome_fail_prefix(err, status, "parameter %s", entry->key);
}

/* Operators of iOS 16 have their constants as attributes. */
static pome_status load_attribute(reader *r, inputs *in, const pome_opdef *def, const Pome__Spec__ValueEntry *entry,
                                  pome_error *err)
{
    uint32_t p = 0;
    if (strcmp(entry->key, "name") == 0)
        return POME_OK;
    if (pome_opdef_param(def, entry->key) < 0 && !(def->flags & POME_OP_CONSTEXPR)) {
        pome_log(POME_LOG_DEBUG, "attribute %s of %s is ignored", entry->key, def->name);
        return POME_OK;
    }
    POME_TRY(take_parameter(&p, in, def, entry->key, err));
    in->in[p] = POME_NEW(r->l->scratch, pome_value *);
    if (!in->in[p])
        return no_memory(err);
    pome_status status = literal(&in->in[p][0], r, "", entry->value, err);
    if (status != POME_OK)
        return pome_fail_prefix(err, status, "attribute %s", entry->key);
    in->counts[p] = 1;
    return POME_OK;
}

static pome_status load_inputs(inputs *out, reader *r, const pome_opdef *def, const op_spec *spec, pome_error *err)
{
    pome_arena *scratch = r->l->scratch;
    *out = (inputs){POME_NEW_ARRAY(scratch, pome_value **, def->n_params),
                    POME_NEW_ARRAY(scratch, uint32_t, def->n_params), POME_NEW_ARRAY(scratch, bool, def->n_params)};
    if (!out->in || !out->counts || !out->is_given)
        return no_memory(err);
    for (size_t i = 0; i < spec->n_inputs; i++)
        POME_TRY(load_input(r, out, def, spec->inputs[i], err));
    for (size_t i = 0; i < spec->n_attributes; i++)
        POME_TRY(load_attribute(r, out, def, spec->attributes[i], err));
    return POME_OK;
}

/* `const` has its value as an attribute; a literal input is taken too. */
static pome_status load_const_op(reader *r, const op_spec *spec, pome_error *err)
{
    const Pome__Spec__Value *val = NULL;
    pome_type declared;
    pome_value *v = NULL;
    if (spec->n_outputs != 1)
        return pome_fail(err, POME_ERR_FORMAT, "%zu results, wanted one", spec->n_outputs);
    for (size_t i = 0; i < spec->n_attributes; i++)
        if (strcmp(spec->attributes[i]->key, "val") == 0)
            val = spec->attributes[i]->value;
    for (size_t i = 0; i < spec->n_inputs && !val; i++) {
        const Pome__Spec__Argument *a = spec->inputs[i]->value;
        if (strcmp(spec->inputs[i]->key, "val") == 0 && a && a->n_arguments == 1 &&
            a->arguments[0]->binding_case == POME__SPEC__BINDING__BINDING_VALUE)
            val = a->arguments[0]->value;
    }
    if (!val)
        return pome_fail(err, POME_ERR_FORMAT, "no value (attribute val)");
    int64_t symbol = -2;
    POME_TRY(literal(&v, r, spec->outputs[0]->name, val, err));
    POME_TRY(pome_load_type(&declared, spec->outputs[0]->type, &symbol, err));
    if (declared.kind != v->type.kind || declared.dtype != v->type.dtype ||
        (declared.rank >= 0 && declared.rank != v->type.rank))
        return pome_fail(err, POME_ERR_FORMAT, "its value is %s of rank %d, its type says %s of rank %d",
                         pome_dtype_name(v->type.dtype), v->type.rank, pome_dtype_name(declared.dtype),
                         declared.rank);
    for (int32_t i = 0; i < declared.rank; i++)
        if (declared.dim[i] >= 0 && declared.dim[i] != v->type.dim[i])
            return pome_fail(err, POME_ERR_FORMAT,
                             "axis %d of its value has size %" PRId64 ", its type says %" PRId64, i, v->type.dim[i],
                             declared.dim[i]);
    return define(r, v, err);
}

/* Results of constexpr_* are constants that stay compressed. Equal operators over the same constants, as functions
 * that share weights have them, give the same constant. */
static pome_status make_encoded(reader *r, pome_op *op, uint32_t output, pome_error *err)
{
    pome_value *v = op->out[output];
    size_t n_head = 3 + POME_MAX_RANK, n_words = n_head + op->n_in;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (!op->in[i]->konst)
            return pome_fail(err, POME_ERR_FORMAT, "its input %s is no constant", op->in[i]->name);
    for (int32_t i = 0; i < (v->type.rank < 0 ? 1 : v->type.rank); i++)
        if (v->type.kind != POME_TYPE_TENSOR || v->type.rank < 0 || v->type.dim[i] < 0)
            return pome_fail(err, POME_ERR_FORMAT, "the shape of its result %s is not given", v->name);
    uint64_t *key = POME_NEW_ARRAY(r->l->scratch, uint64_t, n_words + op->def->n_params);
    if (!key)
        return no_memory(err);
    key[0] = (uint64_t)op->def->id << 32 | output;
    key[1] = (uint64_t)v->type.dtype << 32 | r->fn->opset;
    key[2] = (uint64_t)v->type.rank;
    for (int32_t i = 0; i < v->type.rank; i++)
        key[3 + i] = (uint64_t)v->type.dim[i];
    for (uint32_t i = 0; i < op->n_in; i++)
        key[n_head + i] = (uint64_t)(uintptr_t)op->in[i]->konst;
    for (uint32_t p = 0; p < op->def->n_params; p++)
        key[n_words + p] = op->args[p].count;
    pome_str text = {(const char *)key, (n_words + op->def->n_params) * sizeof *key};
    pome_const k = {.t = {.dtype = v->type.dtype, .rank = v->type.rank}, .encoded_by = op, .encoded_output = output};
    memcpy(k.t.shape, v->type.dim, sizeof k.t.shape);
    return pome_load_pooled(&v->konst, r->l, text, &k, err);
}

static pome_status load_block(pome_block **out, reader *r, const block_spec *spec, pome_op *owner, pome_error *err);

static pome_status load_blocks(reader *r, pome_op *op, const op_spec *spec, pome_error *err)
{
    op->blocks = POME_NEW_ARRAY(r->l->program->arena, pome_block *, spec->n_blocks);
    if (!op->blocks)
        return no_memory(err);
    for (size_t i = 0; i < spec->n_blocks; i++)
        POME_TRY(load_block(&op->blocks[i], r, spec->blocks[i], op, err));
    op->n_blocks = (uint32_t)spec->n_blocks;
    return POME_OK;
}

static const char *name_of(const op_spec *spec)
{
    for (size_t i = 0; i < spec->n_attributes; i++) {
        const char *text = strcmp(spec->attributes[i]->key, "name") == 0 ? pome_load_text(spec->attributes[i]->value)
                                                                          : NULL;
        if (text)
            return text;
    }
    return spec->n_outputs ? spec->outputs[0]->name : "";
}

static pome_status load_op(reader *r, pome_block *block, const op_spec *spec, uint32_t position, pome_error *err)
{
    const pome_opdef *def = NULL;
    inputs in;
    pome_value **out = NULL;
    uint32_t n_out = 0;
    POME_TRY(find_def(&def, r->survey, spec->type, err));
    if (def->id == POME_OP_const)
        return load_const_op(r, spec, err);
    if (spec->n_blocks && !(def->flags & POME_OP_BLOCKS))
        return pome_fail(err, POME_ERR_FORMAT, "%zu nested blocks, wanted none", spec->n_blocks);
    POME_TRY(load_inputs(&in, r, def, spec, err));
    pome_op *op = pome_op_create_over(r->fn, def, name_of(spec), (pome_value *const *const *)in.in, in.counts, NULL, 0);
    if (!op)
        return no_memory(err);
    op->position = position;
    POME_TRY(load_blocks(r, op, spec, err)); /* its results are not visible in its blocks */
    POME_TRY(declare_all(&out, &n_out, r, spec->outputs, spec->n_outputs, err));
    op->out = out;
    op->n_out = n_out;
    for (uint32_t i = 0; i < n_out; i++) {
        out[i]->def = op;
        out[i]->def_output = i;
        if (def->flags & POME_OP_CONSTEXPR)
            POME_TRY(make_encoded(r, op, i, err));
    }
    return pome_block_append(r->l->program, block, op) ? POME_OK : no_memory(err);
}

static pome_status load_block(pome_block **out, reader *r, const block_spec *spec, pome_op *owner, pome_error *err)
{
    pome_arena *arena = r->l->program->arena;
    pome_block *b = POME_NEW(arena, pome_block);
    binding *before = r->newest;
    if (!b)
        return no_memory(err);
    b->owner = owner;
    POME_TRY(declare_all(&b->inputs, &b->n_inputs, r, spec->inputs, spec->n_inputs, err));
    for (size_t i = 0; i < spec->n_operations; i++) {
        const op_spec *op = spec->operations[i];
        pome_status status = load_op(r, b, op, (uint32_t)i, err);
        if (status != POME_OK && owner)
            return pome_fail_prefix(err, status, "%.100s (%.60s, #%zu in a block)", name_of(op), op->type, i);
        if (status != POME_OK)
            return pome_fail_prefix(err, status, "%.100s (%.60s, #%zu)", name_of(op), op->type, i);
    }
    b->outputs = spec->n_outputs <= UINT32_MAX ? POME_NEW_ARRAY(arena, pome_value *, spec->n_outputs) : NULL;
    if (!b->outputs)
        return no_memory(err);
    for (size_t i = 0; i < spec->n_outputs; i++)
        POME_TRY(look_up(&b->outputs[i], r, spec->outputs[i], err));
    b->n_outputs = (uint32_t)spec->n_outputs;
    if (owner)
        close_scope(r, before);
    *out = b;
    return POME_OK;
}

/* ---- functions ---- */

/* The function's input that a feature describes. Inputs are the first values of a function. */
static pome_status find_described(pome_value **out, const reader *r, const pome_feature *f, pome_type_kind kind,
                                  pome_error *err)
{
    static const char *const kinds[] = {"a tensor", "a list", "a state", "a dictionary"};
    const binding *b = pome_strmap_get(&r->names, pome_str_of(f->name));
    if (!b || b->value->id >= r->fn->n_inputs)
        return pome_fail(err, POME_ERR_FORMAT,
                         "%s is described as %s, but the program has no input of this name", f->name,
                         kind == POME_TYPE_STATE ? "a state" : "an input");
    if (b->value->type.kind != kind)
        return pome_fail(err, POME_ERR_FORMAT, "input %s is %s to the program, %s in the description", f->name,
                         kinds[b->value->type.kind], kinds[kind]);
    *out = b->value;
    return POME_OK;
}

/* A state's memory is made from the description and used by the program: they must agree. */
static pome_status check_state(const pome_value *v, const pome_feature *f, pome_error *err)
{
    bool agrees = v->type.dtype == f->dtype && v->type.rank == f->rank;
    for (int32_t i = 0; agrees && i < f->rank; i++)
        agrees = v->type.dim[i] == f->shape[i];
    return agrees ? POME_OK
                  : pome_fail(err, POME_ERR_FORMAT, "state %s has another type or shape in the program than described",
                              f->name);
}

static pome_status order_inputs(const reader *r, const pome_function_info *info, pome_error *err)
{
    pome_function *fn = r->fn;
    uint32_t n = 0;
    if (fn->n_inputs != (uint64_t)info->n_inputs + info->n_states)
        return pome_fail(err, POME_ERR_FORMAT, "the program has %u inputs and states, the description %u and %u",
                         fn->n_inputs, info->n_inputs, info->n_states);
    pome_value **list = POME_NEW_ARRAY(fn->arena, pome_value *, fn->n_inputs);
    if (!list)
        return no_memory(err);
    for (uint32_t i = 0; i < info->n_inputs; i++)
        POME_TRY(find_described(&list[n++], r, &info->inputs[i], POME_TYPE_TENSOR, err));
    for (uint32_t i = 0; i < info->n_states; i++) {
        POME_TRY(find_described(&list[n], r, &info->states[i], POME_TYPE_STATE, err));
        POME_TRY(check_state(list[n++], &info->states[i], err));
    }
    fn->inputs = list;
    return POME_OK;
}

static const pome_function_info *described(const pome_mlpackage *package, const char *name)
{
    for (uint32_t i = 0; i < package->info.n_functions; i++)
        if (strcmp(package->info.functions[i].name, name) == 0)
            return &package->info.functions[i];
    return NULL;
}

static pome_status load_function_body(pome_loader *l, survey *s, const Pome__Spec__FunctionEntry *entry,
                                      pome_error *err)
{
    const block_spec *body = NULL;
    pome_opset opset;
    if (pome_program_find(l->program, entry->key))
        return pome_fail(err, POME_ERR_FORMAT, "defined twice");
    POME_TRY(body_of(&body, entry, err));
    if (!pome_opset_parse(entry->value->opset, &opset))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "opset \"%.40s\", known are CoreML5 to CoreML9",
                         entry->value->opset);
    if (body->n_inputs)
        return pome_fail(err, POME_ERR_FORMAT, "its block has inputs of its own");
    reader r = {.l = l, .survey = s, .fn = pome_function_create(l->program, entry->key, opset)};
    pome_strmap_init(&r.names, l->scratch);
    if (!r.fn)
        return no_memory(err);
    POME_TRY(declare_all(&r.fn->inputs, &r.fn->n_inputs, &r, entry->value->inputs, entry->value->n_inputs, err));
    POME_TRY(load_block(&r.fn->body, &r, body, NULL, err));
    const pome_function_info *info = described(l->package, entry->key);
    return info ? order_inputs(&r, info, err) : POME_OK;
}

static pome_status load_functions(pome_loader *l, const pome_load_limits *limits, pome_error *err)
{
    const Pome__Spec__Program *program = l->package->spec->mlprogram;
    survey s = {.l = l, .limits = limits};
    if (program->version != 1)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "program version %" PRId64 ", known is 1", program->version);
    POME_TRY(survey_program(&s, program, err));
    for (size_t i = 0; i < program->n_functions; i++) {
        pome_status status = load_function_body(l, &s, program->functions[i], err);
        if (status != POME_OK)
            return pome_fail_prefix(err, status, "function %.100s", program->functions[i]->key);
    }
    return POME_OK;
}

pome_status pome_program_load(pome_program **out, const struct pome_mlpackage *package,
                              const pome_load_limits *limits, pome_error *err)
{
    pome_load_limits use = {
        .arena_bytes = limits && limits->arena_bytes ? limits->arena_bytes : DEFAULT_ARENA_BYTES,
        .n_ops = limits && limits->n_ops ? limits->n_ops : DEFAULT_OPS,
        .block_depth = limits && limits->block_depth ? limits->block_depth : DEFAULT_BLOCK_DEPTH,
    };
    if (!package->spec)
        return pome_fail(err, POME_ERR_STATE, "the package's program is no longer in memory");
    pome_loader l = {.package = package, .program = pome_program_create(use.arena_bytes),
                     .scratch = pome_arena_create(use.arena_bytes)};
    pome_strmap_init(&l.files, l.scratch);
    pome_strmap_init(&l.pool, l.scratch);
    pome_status status = l.program && l.scratch ? load_functions(&l, &use, err) : no_memory(err);
    pome_arena_destroy(&l.scratch);
    if (status == POME_OK)
        *out = l.program;
    else
        pome_program_destroy(&l.program);
    return status;
}
