/* The attribute of functions with inputs of flexible shape: their default shapes, and the sizes that each axis may have or
 * the shapes that are allowed. formats/mlmodelc_interface.c reads it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "mil/print_writer.h"

static void put_number(pome_printer *p, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, v > INT32_MAX ? -1 : v); /* -1: unbounded */
    pome_printer_put(p, text);
}

static void put_shape(pome_printer *p, const int64_t *shape, int32_t rank)
{
    pome_printer_put(p, "[");
    for (int32_t i = 0; i < rank; i++) {
        pome_printer_put(p, i ? ", " : "");
        put_number(p, shape[i]);
    }
    pome_printer_put(p, "]");
}

/* {"name", */
static void begin_entry(pome_printer *p, bool *is_first, const char *name)
{
    pome_printer_put(p, *is_first ? "{" : ", {");
    pome_printer_string(p, name);
    pome_printer_put(p, ", ");
    *is_first = false;
}

static bool is_enumerated(const pome_feature *f)
{
    return f->kind == POME_FEATURE_TENSOR && f->n_enumerated > 0;
}

static bool is_ranged(const pome_feature *f)
{
    return f->kind == POME_FEATURE_TENSOR && f->is_ranged && !f->n_enumerated;
}

/* ---- types ---- */

static void put_dict_of_text(pome_printer *p, const char *value)
{
    pome_printer_put(p, "dict<");
    pome_printer_scalar(p, "string");
    pome_printer_put(p, ", ");
    pome_printer_put(p, value);
    pome_printer_put(p, ">");
}

static void put_part_type(pome_printer *p, bool is_nested, const char *value)
{
    pome_printer_put(p, "tuple<");
    pome_printer_scalar(p, "string");
    pome_printer_put(p, ", ");
    if (is_nested) {
        pome_printer_put(p, "dict<");
        pome_printer_scalar(p, "string");
        pome_printer_put(p, ", ");
    }
    put_dict_of_text(p, value);
    pome_printer_put(p, is_nested ? ">>" : ">");
}

/* ---- values ---- */

static void put_defaults(pome_printer *p, const pome_function_info *f)
{
    bool is_first = true;
    pome_printer_put(p, "(\"DefaultShapes\", {");
    for (uint32_t i = 0; i < f->n_inputs; i++)
        if (is_enumerated(&f->inputs[i]) || is_ranged(&f->inputs[i])) {
            begin_entry(p, &is_first, f->inputs[i].name);
            put_shape(p, f->inputs[i].shape, f->inputs[i].rank);
            pome_printer_put(p, "}");
        }
    pome_printer_put(p, "})");
}

static void put_ranges(pome_printer *p, const pome_function_info *f)
{
    bool is_first = true;
    pome_printer_put(p, ", (\"RangeDims\", {");
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        const pome_feature *in = &f->inputs[i];
        if (!is_ranged(in))
            continue;
        begin_entry(p, &is_first, in->name);
        for (int32_t k = 0; k < in->rank; k++) {
            pome_printer_put(p, k ? ", " : "[");
            put_shape(p, (int64_t[]){in->range[k].min, in->range[k].max}, 2);
        }
        pome_printer_put(p, in->rank ? "]}" : "[]}");
    }
    pome_printer_put(p, "})");
}

/* A configuration has a key of eight hexadecimal digits, whose meaning is not known: its number. */
static void put_enumerated(pome_printer *p, const pome_function_info *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_inputs; i++)
        n = f->inputs[i].n_enumerated > n ? f->inputs[i].n_enumerated : n;
    pome_printer_put(p, ", (\"EnumeratedShapes\", {");
    for (uint32_t c = 0; c < n; c++) {
        char key[16];
        bool is_first_key = c == 0, is_first = true;
        snprintf(key, sizeof key, "%08" PRIx32, c);
        begin_entry(p, &is_first_key, key);
        pome_printer_put(p, "{");
        for (uint32_t i = 0; i < f->n_inputs; i++) {
            const pome_feature *in = &f->inputs[i];
            if (!is_enumerated(in) || c >= in->n_enumerated)
                continue;
            begin_entry(p, &is_first, in->name);
            put_shape(p, in->enumerated + (size_t)c * (size_t)in->rank, in->rank);
            pome_printer_put(p, "}");
        }
        pome_printer_put(p, "}}");
    }
    pome_printer_put(p, "})");
}

void pome_print_flexible_shapes(pome_printer *p, const pome_model_info *info, const char *function)
{
    const pome_function_info *f = NULL;
    bool any_range = false, any_enumerated = false;
    for (uint32_t i = 0; i < info->n_functions; i++)
        if (strcmp(info->functions[i].name, function) == 0)
            f = &info->functions[i];
    for (uint32_t i = 0; f && i < f->n_inputs; i++) {
        any_range |= is_ranged(&f->inputs[i]);
        any_enumerated |= is_enumerated(&f->inputs[i]);
    }
    if (!any_range && !any_enumerated)
        return;
    pome_printer_put(p, "[FlexibleShapeInformation = tuple<");
    put_part_type(p, false, "tensor<int32, [?]>");
    if (any_range) {
        pome_printer_put(p, ", ");
        put_part_type(p, false, "list<tensor<int32, [2]>, ?>");
    }
    if (any_enumerated) {
        pome_printer_put(p, ", ");
        put_part_type(p, true, "tensor<int32, [?]>");
    }
    pome_printer_put(p, ">((");
    put_defaults(p, f);
    if (any_range)
        put_ranges(p, f);
    if (any_enumerated)
        put_enumerated(p, f);
    pome_printer_put(p, "))] ");
}
