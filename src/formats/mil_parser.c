#include "formats/mil_parser.h"

#include <stdlib.h>

#include "formats/mil_text.h"

pome_status pome_mil_no_memory(pome_error *err)
{
    return pome_fail(err, POME_ERR_NOMEM, "out of memory, or more than the limit, for the program text");
}

pome_status pome_mil_append(pome_mil_parser *p, pome_mil_list *list, void *item, pome_error *err)
{
    if (list->n == list->room) {
        size_t room = list->room ? list->room * 2 : 4;
        void **bigger = POME_NEW_ARRAY(p->arena, void *, room);
        if (!bigger)
            return pome_mil_no_memory(err);
        if (list->n)
            memcpy(bigger, list->items, list->n * sizeof *bigger);
        list->items = bigger;
        list->room = room;
    }
    list->items[list->n++] = item;
    return POME_OK;
}

pome_status pome_mil_enter(pome_mil_parser *p, pome_error *err)
{
    if (p->depth >= p->max_depth) {
        pome_mil_fail(&p->lexer, p->lexer.token.at, err, "nested more than %u deep", p->max_depth);
        if (err)
            err->code = POME_ERR_LIMIT;
        return POME_ERR_LIMIT;
    }
    p->depth++;
    return POME_OK;
}

/* ---- tokens ---- */

pome_status pome_mil_expect(pome_mil_parser *p, char mark, pome_error *err)
{
    const char wanted[2] = {mark, '\0'};
    if (!pome_mil_is_mark(&p->lexer, mark))
        return pome_mil_unexpected(&p->lexer, wanted, err);
    return pome_mil_lexer_next(&p->lexer, err);
}

pome_status pome_mil_accept(bool *found, pome_mil_parser *p, char mark, pome_error *err)
{
    *found = pome_mil_is_mark(&p->lexer, mark);
    return *found ? pome_mil_lexer_next(&p->lexer, err) : POME_OK;
}

pome_status pome_mil_unquote(char **out, pome_mil_parser *p, pome_error *err)
{
    pome_str s = p->lexer.token.text;
    char *text = pome_arena_alloc(p->arena, s.len + 1), *to = text;
    if (!text)
        return pome_mil_no_memory(err);
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '\\' && i + 1 < s.len) {
            c = s.ptr[++i];
            c = (char)(c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c);
        }
        *to++ = c;
    }
    *out = text;
    return pome_mil_lexer_next(&p->lexer, err);
}

static pome_status copy_text(char **out, pome_mil_parser *p, pome_str text, pome_error *err)
{
    *out = pome_arena_strndup(p->arena, text.ptr, text.len);
    return *out ? POME_OK : pome_mil_no_memory(err);
}

pome_status pome_mil_take_name(char **out, pome_mil_parser *p, const char *wanted, pome_error *err)
{
    if (p->lexer.token.kind == POME_MIL_STRING)
        return pome_mil_unquote(out, p, err);
    if (p->lexer.token.kind != POME_MIL_NAME)
        return pome_mil_unexpected(&p->lexer, wanted, err);
    POME_TRY(copy_text(out, p, p->lexer.token.text, err));
    return pome_mil_lexer_next(&p->lexer, err);
}

/* A word of the grammar. */
static pome_status expect_word(pome_mil_parser *p, const char *word, pome_error *err)
{
    if (p->lexer.token.kind != POME_MIL_NAME || !pome_str_is(p->lexer.token.text, word))
        return pome_mil_unexpected(&p->lexer, word, err);
    return pome_mil_lexer_next(&p->lexer, err);
}

static pome_status expect_arrow(pome_mil_parser *p, pome_error *err)
{
    if (p->lexer.token.kind != POME_MIL_ARROW)
        return pome_mil_unexpected(&p->lexer, "->", err);
    return pome_mil_lexer_next(&p->lexer, err);
}

/* Behind an element of a list: a comma, or the closing mark. */
static pome_status next_element(bool *more, pome_mil_parser *p, char closing, const char *wanted, pome_error *err)
{
    POME_TRY(pome_mil_accept(more, p, ',', err));
    if (*more)
        return POME_OK;
    if (!pome_mil_is_mark(&p->lexer, closing))
        return pome_mil_unexpected(&p->lexer, wanted, err);
    return pome_mil_lexer_next(&p->lexer, err);
}

/* ---- attributes ---- */

pome_status pome_mil_parse_attributes(Pome__Spec__ValueEntry ***out, size_t *n_out, pome_mil_parser *p,
                                      pome_error *err)
{
    pome_mil_list list = {0};
    bool more, is_empty;
    *n_out = 0;
    POME_TRY(pome_mil_accept(&more, p, '[', err));
    if (!more)
        return POME_OK;
    POME_TRY(pome_mil_accept(&is_empty, p, ']', err));
    while (more && !is_empty) {
        Pome__Spec__ValueType *type = NULL;
        POME_MIL_NEW(p, e, Pome__Spec__ValueEntry, pome__spec__value_entry__init);
        POME_TRY(pome_mil_take_name(&e->key, p, "the name of an attribute", err));
        POME_TRY(pome_mil_expect(p, '=', err));
        POME_TRY(pome_mil_parse_type(&type, p, err));
        POME_TRY(pome_mil_parse_literal(&e->value, p, type, err));
        POME_TRY(pome_mil_append(p, &list, e, err));
        POME_TRY(next_element(&more, p, ']', ", or ] after an attribute", err));
    }
    *out = (Pome__Spec__ValueEntry **)list.items;
    *n_out = list.n;
    return POME_OK;
}

/* ---- parameters, results, names ---- */

static pome_status add_param(pome_mil_list *list, pome_mil_parser *p, Pome__Spec__ValueType *type, pome_error *err)
{
    POME_MIL_NEW(p, v, Pome__Spec__NamedValueType, pome__spec__named_value_type__init);
    v->type = type;
    POME_TRY(pome_mil_take_name(&v->name, p, "a name after the type", err));
    return pome_mil_append(p, list, v, err);
}

/* "(" type name, ... ")" */
static pome_status parse_params(Pome__Spec__NamedValueType ***out, size_t *n_out, pome_mil_parser *p, pome_error *err)
{
    pome_mil_list list = {0};
    bool is_empty, more = true;
    POME_TRY(pome_mil_expect(p, '(', err));
    POME_TRY(pome_mil_accept(&is_empty, p, ')', err));
    while (!is_empty && more) {
        Pome__Spec__ValueType *type = NULL;
        POME_TRY(pome_mil_parse_type(&type, p, err));
        POME_TRY(add_param(&list, p, type, err));
        POME_TRY(next_element(&more, p, ')', ", or ) after an input", err));
    }
    *out = (Pome__Spec__NamedValueType **)list.items;
    *n_out = list.n;
    return POME_OK;
}

/* "->" "(" name, ... ")" */
static pome_status parse_outputs(char ***out, size_t *n_out, pome_mil_parser *p, pome_error *err)
{
    pome_mil_list list = {0};
    bool is_empty, more = true;
    POME_TRY(expect_arrow(p, err));
    POME_TRY(pome_mil_expect(p, '(', err));
    POME_TRY(pome_mil_accept(&is_empty, p, ')', err));
    while (!is_empty && more) {
        char *name = NULL;
        POME_TRY(pome_mil_take_name(&name, p, "the name of an output", err));
        POME_TRY(pome_mil_append(p, &list, name, err));
        POME_TRY(next_element(&more, p, ')', ", or ) after an output", err));
    }
    *out = (char **)list.items;
    *n_out = list.n;
    return POME_OK;
}

/* ---- statements ---- */

/* A name, or a typed literal: which of the two the token behind the first word tells. */
static pome_status parse_binding(Pome__Spec__Binding **out, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, b, Pome__Spec__Binding, pome__spec__binding__init);
    pome_mil_token word = p->lexer.token;
    if (word.kind == POME_MIL_STRING) {
        b->binding_case = POME__SPEC__BINDING__BINDING_NAME;
        POME_TRY(pome_mil_unquote(&b->name, p, err));
    } else if (word.kind != POME_MIL_NAME) {
        return pome_mil_unexpected(&p->lexer, "a name or a typed value", err);
    } else {
        POME_TRY(pome_mil_lexer_next(&p->lexer, err));
        if (pome_mil_is_mark(&p->lexer, '<') || pome_mil_is_mark(&p->lexer, '(')) {
            Pome__Spec__ValueType *type = NULL;
            b->binding_case = POME__SPEC__BINDING__BINDING_VALUE;
            POME_TRY(pome_mil_parse_type_after(&type, p, &word, err));
            POME_TRY(pome_mil_parse_literal(&b->value, p, type, err));
        } else {
            b->binding_case = POME__SPEC__BINDING__BINDING_NAME;
            POME_TRY(copy_text(&b->name, p, word.text, err));
        }
    }
    *out = b;
    return POME_OK;
}

/* name "=" value */
static pome_status parse_argument(Pome__Spec__ArgumentEntry **out, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, e, Pome__Spec__ArgumentEntry, pome__spec__argument_entry__init);
    POME_MIL_NEW(p, a, Pome__Spec__Argument, pome__spec__argument__init);
    pome_mil_list list = {0};
    Pome__Spec__Binding *b = NULL;
    bool is_tuple, is_empty = false, more = true;
    POME_TRY(pome_mil_take_name(&e->key, p, "the name of a parameter", err));
    POME_TRY(pome_mil_expect(p, '=', err));
    POME_TRY(pome_mil_accept(&is_tuple, p, '(', err));
    if (is_tuple)
        POME_TRY(pome_mil_accept(&is_empty, p, ')', err));
    while (more && !is_empty) {
        POME_TRY(parse_binding(&b, p, err));
        POME_TRY(pome_mil_append(p, &list, b, err));
        more = false;
        if (is_tuple)
            POME_TRY(next_element(&more, p, ')', ", or ) in a list of values", err));
    }
    a->arguments = (Pome__Spec__Binding **)list.items;
    a->n_arguments = list.n;
    e->value = a;
    *out = e;
    return POME_OK;
}

static pome_status parse_arguments(Pome__Spec__Operation *op, pome_mil_parser *p, pome_error *err)
{
    pome_mil_list list = {0};
    bool is_empty, more = true;
    POME_TRY(pome_mil_expect(p, '(', err));
    POME_TRY(pome_mil_accept(&is_empty, p, ')', err));
    while (!is_empty && more) {
        Pome__Spec__ArgumentEntry *e = NULL;
        POME_TRY(parse_argument(&e, p, err));
        POME_TRY(pome_mil_append(p, &list, e, err));
        POME_TRY(next_element(&more, p, ')', ", or ) after an argument", err));
    }
    op->inputs = (Pome__Spec__ArgumentEntry **)list.items;
    op->n_inputs = list.n;
    return POME_OK;
}

/* The results in front of "=", the first of them with its word taken; then the operator's name. */
static pome_status parse_results(Pome__Spec__Operation *op, pome_mil_parser *p, pome_mil_token word, pome_error *err)
{
    pome_mil_list list = {0};
    bool more = true;
    Pome__Spec__ValueType *type = NULL;
    POME_TRY(pome_mil_parse_type_after(&type, p, &word, err));
    while (more) {
        POME_TRY(add_param(&list, p, type, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
        if (more)
            POME_TRY(pome_mil_parse_type(&type, p, err));
    }
    op->outputs = (Pome__Spec__NamedValueType **)list.items;
    op->n_outputs = list.n;
    POME_TRY(pome_mil_expect(p, '=', err));
    return pome_mil_take_name(&op->type, p, "the name of an operator", err);
}

static pome_status parse_block(Pome__Spec__Block **out, pome_mil_parser *p, bool has_inputs, pome_error *err);

static pome_status parse_statement(Pome__Spec__Operation **out, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, op, Pome__Spec__Operation, pome__spec__operation__init);
    pome_mil_list blocks = {0};
    pome_mil_token word = p->lexer.token;
    if (word.kind != POME_MIL_NAME)
        return pome_mil_unexpected(&p->lexer, "a statement or }", err);
    POME_TRY(pome_mil_lexer_next(&p->lexer, err));
    if (pome_mil_is_mark(&p->lexer, '('))
        POME_TRY(copy_text(&op->type, p, word.text, err));
    else
        POME_TRY(parse_results(op, p, word, err));
    POME_TRY(parse_arguments(op, p, err));
    POME_TRY(pome_mil_parse_attributes(&op->attributes, &op->n_attributes, p, err));
    while (!pome_mil_is_mark(&p->lexer, ';')) {
        Pome__Spec__Block *b = NULL;
        if (p->lexer.token.kind == POME_MIL_NAME) /* a label: what it says is given by the order */
            POME_TRY(pome_mil_lexer_next(&p->lexer, err));
        else if (!pome_mil_is_mark(&p->lexer, '('))
            return pome_mil_unexpected(&p->lexer, "; or a block after the operation", err);
        POME_TRY(parse_block(&b, p, true, err));
        POME_TRY(pome_mil_append(p, &blocks, b, err));
    }
    op->blocks = (Pome__Spec__Block **)blocks.items;
    op->n_blocks = blocks.n;
    *out = op;
    return pome_mil_lexer_next(&p->lexer, err);
}

static pome_status parse_block(Pome__Spec__Block **out, pome_mil_parser *p, bool has_inputs, pome_error *err)
{
    POME_MIL_NEW(p, b, Pome__Spec__Block, pome__spec__block__init);
    pome_mil_list list = {0};
    bool is_end;
    POME_TRY(pome_mil_enter(p, err));
    if (has_inputs)
        POME_TRY(parse_params(&b->inputs, &b->n_inputs, p, err));
    POME_TRY(pome_mil_expect(p, '{', err));
    for (;;) {
        Pome__Spec__Operation *op = NULL;
        POME_TRY(pome_mil_accept(&is_end, p, '}', err));
        if (is_end)
            break;
        POME_TRY(parse_statement(&op, p, err));
        POME_TRY(pome_mil_append(p, &list, op, err));
    }
    b->operations = (Pome__Spec__Operation **)list.items;
    b->n_operations = list.n;
    POME_TRY(parse_outputs(&b->outputs, &b->n_outputs, p, err));
    pome_mil_leave(p);
    *out = b;
    return POME_OK;
}

/* ---- functions ---- */

/* The protobuf's name of an opset; what is not known stays as it is. */
static const char *opset_of(const char *tag)
{
    static const char *const names[][2] = {
        {"ios15", "CoreML5"}, {"ios16", "CoreML6"}, {"ios17", "CoreML7"}, {"ios18", "CoreML8"}, {"ios26", "CoreML9"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(tag, names[i][0]) == 0)
            return names[i][1];
    return tag;
}

static pome_status parse_function(Pome__Spec__FunctionEntry **out, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, e, Pome__Spec__FunctionEntry, pome__spec__function_entry__init);
    POME_MIL_NEW(p, f, Pome__Spec__Function, pome__spec__function__init);
    POME_MIL_NEW(p, b, Pome__Spec__BlockEntry, pome__spec__block_entry__init);
    char *tag = NULL;
    POME_TRY(expect_word(p, "func", err));
    POME_TRY(pome_mil_take_name(&e->key, p, "the name of a function", err));
    POME_TRY(pome_mil_expect(p, '<', err));
    POME_TRY(pome_mil_take_name(&tag, p, "an operator set such as ios16", err));
    POME_TRY(pome_mil_expect(p, '>', err));
    POME_TRY(parse_params(&f->inputs, &f->n_inputs, p, err));
    POME_TRY(pome_mil_parse_attributes(&f->attributes, &f->n_attributes, p, err));
    POME_TRY(parse_block(&b->value, p, false, err));
    POME_TRY(pome_mil_expect(p, ';', err));
    POME_TRY(copy_text(&f->opset, p, pome_str_of(opset_of(tag)), err));
    b->key = f->opset;
    f->block_specializations = POME_NEW_ARRAY(p->arena, Pome__Spec__BlockEntry *, 1);
    if (!f->block_specializations)
        return pome_mil_no_memory(err);
    f->block_specializations[0] = b;
    f->n_block_specializations = 1;
    e->value = f;
    *out = e;
    return POME_OK;
}

/* "program" "(" 1 or 1.N ")": the second number tells the spelling, of which each is read anyway. */
static pome_status parse_version(int64_t *version, pome_mil_parser *p, pome_error *err)
{
    POME_TRY(expect_word(p, "program", err));
    POME_TRY(pome_mil_expect(p, '(', err));
    const pome_mil_token *t = &p->lexer.token;
    bool is_first = t->kind == POME_MIL_NUMBER && t->text.ptr[0] == '1' && (t->text.len == 1 || t->text.ptr[1] == '.');
    if (!is_first)
        return pome_mil_unexpected(&p->lexer, "a version 1.N of the text format", err);
    *version = 1;
    POME_TRY(pome_mil_lexer_next(&p->lexer, err));
    return pome_mil_expect(p, ')', err);
}

static pome_status parse_program(Pome__Spec__Program *program, pome_mil_parser *p, pome_error *err)
{
    pome_mil_list list = {0};
    bool is_end;
    POME_TRY(parse_version(&program->version, p, err));
    POME_TRY(pome_mil_parse_attributes(&program->attributes, &program->n_attributes, p, err));
    POME_TRY(pome_mil_expect(p, '{', err));
    for (;;) {
        Pome__Spec__FunctionEntry *e = NULL;
        POME_TRY(pome_mil_accept(&is_end, p, '}', err));
        if (is_end)
            break;
        POME_TRY(parse_function(&e, p, err));
        POME_TRY(pome_mil_append(p, &list, e, err));
    }
    if (p->lexer.token.kind != POME_MIL_END)
        return pome_mil_unexpected(&p->lexer, "the end of the text", err);
    program->functions = (Pome__Spec__FunctionEntry **)list.items;
    program->n_functions = list.n;
    return POME_OK;
}

pome_status pome_mil_text_parse(const Pome__Spec__Program **out, pome_bytes text, pome_arena *arena,
                                uint32_t max_depth, pome_error *err)
{
    pome_mil_parser parser = {.arena = arena, .max_depth = max_depth}, *p = &parser;
    POME_MIL_NEW(p, program, Pome__Spec__Program, pome__spec__program__init);
    POME_TRY(pome_mil_lexer_start(&p->lexer, text, err));
    pome_status status = parse_program(program, p, err);
    free(p->elements);
    if (status == POME_OK)
        *out = program;
    return status;
}
