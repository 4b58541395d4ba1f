/* Changes of a model's program that leave its protobuf well-formed: other operators, parameters, sizes, types, names and
 * numbers. Byte changes alone seldom come further than the wire format. Included once by a target whose input is a
 * model; without libFuzzer it does nothing. */
#ifndef POME_TESTS_SPEC_MUTATOR_H
#define POME_TESTS_SPEC_MUTATOR_H

#include <stdint.h>

#include "formats/coreml_proto.h"
#include "mil/opdef.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static uint32_t mutator_state;

static uint32_t any(uint32_t n)
{
    mutator_state = mutator_state * 1664525u + 1013904223u;
    return n ? (mutator_state >> 8) % n : 0;
}

static int64_t any_number(void)
{
    static const int64_t numbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 127, 128, 255, 1000, 65535, 65536,
                                      INT32_MAX, INT64_C(1) << 40, INT64_MAX, -1, -2, -3, -7, INT32_MIN};
    return numbers[any(sizeof numbers / sizeof numbers[0])];
}

static void mutate_type(Pome__Spec__ValueType *type)
{
    if (!type || type->type_case != POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE)
        return;
    Pome__Spec__TensorType *t = type->tensortype;
    static const int32_t codes[] = {1, 2, 10, 11, 21, 22, 23, 25, 31, 32, 33, 35, 37};
    switch (any(3)) {
    case 0: t->datatype = codes[any(sizeof codes / sizeof codes[0])]; break;
    case 1:
        if (t->n_dimensions)
            t->rank = (int64_t)--t->n_dimensions;
        break;
    default:
        if (t->n_dimensions) {
            Pome__Spec__Dimension *d = t->dimensions[any((uint32_t)t->n_dimensions)];
            if (d->dimension_case == POME__SPEC__DIMENSION__DIMENSION_CONSTANT)
                d->constant->size = (uint64_t)any_number() & INT64_MAX;
        }
    }
}

static void mutate_value(Pome__Spec__Value *v)
{
    if (!v || any(4) == 0) {
        mutate_type(v ? v->type : NULL);
        return;
    }
    if (v->value_case != POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE ||
        v->immediatevalue->value_case != POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR)
        return;
    Pome__Spec__TensorValue *t = v->immediatevalue->tensor;
    if (t->value_case == POME__SPEC__TENSOR_VALUE__VALUE_INTS && t->ints->n_values)
        t->ints->values[any((uint32_t)t->ints->n_values)] = (int32_t)any_number();
    else if (t->value_case == POME__SPEC__TENSOR_VALUE__VALUE_FLOATS && t->floats->n_values)
        t->floats->values[any((uint32_t)t->floats->n_values)] = (float)any_number() * (any(2) ? 1.0f : 1e-30f);
    else if (t->value_case == POME__SPEC__TENSOR_VALUE__VALUE_BOOLS && t->bools->n_values)
        t->bools->values[any((uint32_t)t->bools->n_values)] ^= 1;
    else if (t->value_case == POME__SPEC__TENSOR_VALUE__VALUE_BYTES && t->bytes->values.len)
        t->bytes->values.data[any((uint32_t)t->bytes->values.len)] = (uint8_t)any_number();
}

/* A name defined before operation `at`, or a function's input. */
static char *any_name(const Pome__Spec__Function *f, const Pome__Spec__Block *b, uint32_t at)
{
    if (f->n_inputs && (at == 0 || any(4) == 0))
        return f->inputs[any((uint32_t)f->n_inputs)]->name;
    const Pome__Spec__Operation *op = at ? b->operations[any(at)] : NULL;
    return op && op->n_outputs ? op->outputs[any((uint32_t)op->n_outputs)]->name : NULL;
}

static void mutate_operation(const Pome__Spec__Function *f, const Pome__Spec__Block *b, uint32_t at)
{
    Pome__Spec__Operation *op = b->operations[at];
    Pome__Spec__ArgumentEntry *in = op->n_inputs ? op->inputs[any((uint32_t)op->n_inputs)] : NULL;
    const pome_opdef *def = pome_opdef_find(op->type);
    switch (any(7)) {
    case 0:
        if (strcmp(op->type, "const") != 0)
            op->type = (char *)(uintptr_t)pome_opdef_get((pome_op_id)any(POME_OP_COUNT))->name;
        break;
    case 1:
        if (in)
            op->n_inputs--;
        break;
    case 2:
        if (in && def && def->n_params)
            in->key = (char *)(uintptr_t)def->params[any(def->n_params)].name;
        break;
    case 3:
        if (in && in->value && in->value->n_arguments) {
            Pome__Spec__Binding *binding = in->value->arguments[any((uint32_t)in->value->n_arguments)];
            char *name = any_name(f, b, at);
            if (binding->binding_case == POME__SPEC__BINDING__BINDING_NAME && name)
                binding->name = name;
            else if (binding->binding_case == POME__SPEC__BINDING__BINDING_VALUE)
                mutate_value(binding->value);
        }
        break;
    case 4:
        if (op->n_outputs)
            mutate_type(op->outputs[any((uint32_t)op->n_outputs)]->type);
        break;
    default:
        if (op->n_attributes)
            mutate_value(op->attributes[any((uint32_t)op->n_attributes)]->value);
    }
}

static void mutate_function(const Pome__Spec__Function *f)
{
    if (!f || !f->n_block_specializations || !f->block_specializations[0]->value)
        return;
    const Pome__Spec__Block *b = f->block_specializations[0]->value;
    if (any(8) == 0 && f->n_inputs)
        mutate_type(f->inputs[any((uint32_t)f->n_inputs)]->type);
    for (uint32_t depth = 0; b->n_operations; depth++) {
        uint32_t at = any((uint32_t)b->n_operations);
        const Pome__Spec__Operation *op = b->operations[at];
        if (!op->n_blocks || any(3) == 0) {
            mutate_operation(f, b, at);
            return;
        }
        b = op->blocks[any((uint32_t)op->n_blocks)];
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    const Pome__Spec__Model *model = NULL;
    pome_arena *arena = pome_arena_create(16 << 20);
    size_t new_size = 0;
    mutator_state = seed;
    if (any(8) && arena && pome_coreml_unpack(&model, (pome_bytes){data, size}, arena, 40, NULL) == POME_OK &&
        model->type_case == POME__SPEC__MODEL__TYPE_ML_PROGRAM && model->mlprogram->n_functions) {
        for (uint32_t n = 1 + any(3); n; n--)
            mutate_function(model->mlprogram->functions[any((uint32_t)model->mlprogram->n_functions)]->value);
        if (pome__spec__model__get_packed_size(model) <= max_size)
            new_size = pome__spec__model__pack(model, data);
    }
    pome_arena_destroy(&arena);
    return new_size || !LLVMFuzzerMutate ? new_size : LLVMFuzzerMutate(data, size, max_size);
}

#endif
