#include "outputs.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "image_file.h"
#include "npy.h"

static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    *err = (pome_error){.code = code};
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return code;
}

static bool is_label(const output *o)
{
    return o->classes.n > 0 && o->feature->kind != POME_FEATURE_DICTIONARY;
}
static bool is_probabilities(const output *o)
{
    return o->classes.n > 0 && o->feature->kind == POME_FEATURE_DICTIONARY;
}
static bool is_pixels(const output *o)
{
    return o->feature && o->feature->kind == POME_FEATURE_IMAGE && o->tensor->dtype == POME_DTYPE_U8;
}

/* ---- list ---- */

static bool is_output(const pome_function_info *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_outputs; i++)
        if (strcmp(f->outputs[i].name, name) == 0)
            return true;
    return false;
}

pome_status outputs_list(output_list *out, const pome_model *model, uint32_t function, const pome_predictor *predictor,
                         const dump *dumped, pome_error *err)
{
    const pome_function_info *f = &pome_model_describe(model)->functions[function];
    *out = (output_list){calloc(f->n_outputs + (dumped ? dumped->n : 0) + 1, sizeof *out->items), 0};
    if (!out->items)
        return fail(err, POME_ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < f->n_outputs; i++)
        out->items[out->n++] = (output){f->outputs[i].name, pome_predictor_output(predictor, i), &f->outputs[i],
                                        pome_model_classes(model, function, i)};
    for (size_t i = 0; dumped && i < dumped->n; i++)
        if (!is_output(f, dumped->arrays[i].name))
            out->items[out->n++] = (output){.name = dumped->arrays[i].name, .tensor = &dumped->arrays[i].tensor};
    return POME_OK;
}

void outputs_free(output_list *list)
{
    free(list->items);
    *list = (output_list){0};
}

/* ---- classes ---- */

/* The place of a classifier's label in the list of classes. */
static int64_t place_of_label(const output *o)
{
    for (uint32_t i = 0; i < o->classes.n; i++)
        if (o->classes.names ? o->classes.names[i] == *(const char *const *)o->tensor->data
                             : o->classes.ids[i] == *(const int64_t *)o->tensor->data)
            return i;
    return 0;
}

static const char *class_text(const pome_classes *c, int64_t i, char *text, size_t size)
{
    if (c->names)
        return c->names[i];
    snprintf(text, size, "%lld", (long long)c->ids[i]);
    return text;
}

static json_t *label_json(const output *o)
{
    int64_t i = place_of_label(o);
    return o->classes.names ? json_text(o->classes.names[i]) : json_integer(o->classes.ids[i]);
}

static json_t *probabilities_json(const output *o)
{
    json_t *all = json_object();
    char text[32];
    for (uint32_t i = 0; i < o->classes.n; i++) {
        double p = ((const double *)o->tensor->data)[i];
        json_object_set_new_nocheck(all, class_text(&o->classes, i, text, sizeof text),
                                    isfinite(p) ? json_real(p) : json_null());
    }
    return all;
}

/* ---- files ---- */

static pome_status write_json(const char *path, json_t *value, pome_error *err)
{
    bool is_written = value && json_dump_file(value, path, JSON_ENCODE_ANY | JSON_INDENT(1)) == 0;
    json_decref(value);
    return is_written ? POME_OK : fail(err, POME_ERR_IO, "%s: cannot be written", path);
}

static pome_status save_folder(const char *folder, const output_list *list, pome_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail(err, POME_ERR_IO, "%s: %s", folder, strerror(errno));
    for (size_t i = 0; i < list->n; i++) {
        const output *o = &list->items[i];
        const char *ending = o->classes.n ? "json" : is_pixels(o) ? "png" : "npy";
        char path[4096];
        int len = snprintf(path, sizeof path, "%s/%s.%s", folder, o->name, ending);
        if (len < 0 || (size_t)len >= sizeof path)
            return fail(err, POME_ERR_ARG, "%s: the path is too long", folder);
        for (char *c = path + strlen(folder) + 1; *c; c++)
            *c = *c == '/' ? '_' : *c;
        pome_status status = is_label(o)           ? write_json(path, label_json(o), err)
                             : is_probabilities(o) ? write_json(path, probabilities_json(o), err)
                             : is_pixels(o)        ? image_write(path, o->tensor, err)
                                                   : npy_write(path, o->tensor, err);
        if (status != POME_OK)
            return status;
    }
    return POME_OK;
}

static pome_status save_npz(const char *path, const output_list *list, pome_error *err)
{
    const char **names = calloc(list->n + 1, sizeof *names);
    const pome_tensor **tensors = calloc(list->n + 1, sizeof *tensors);
    pome_tensor *places = calloc(list->n + 1, sizeof *places);
    int64_t *values = calloc(list->n + 1, sizeof *values);
    pome_status status = names && tensors && places && values ? POME_OK : fail(err, POME_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < list->n && status == POME_OK; i++) {
        names[i] = list->items[i].name;
        tensors[i] = list->items[i].tensor;
        if (!is_label(&list->items[i]))
            continue;
        values[i] = place_of_label(&list->items[i]);
        places[i] = pome_tensor_borrow(&values[i], POME_DTYPE_I64, 1, (int64_t[]){1});
        tensors[i] = &places[i];
    }
    if (status == POME_OK)
        status = npz_write(path, names, tensors, list->n, err);
    free(names);
    free(tensors);
    free(places);
    free(values);
    return status;
}

pome_status outputs_save(const char *path, const output_list *list, pome_error *err)
{
    return is_npz_path(path) ? save_npz(path, list, err) : save_folder(path, list, err);
}

/* ---- show ---- */

pome_status outputs_range(output_range *r, const pome_tensor *t, pome_error *err)
{
    pome_tensor wide = {0};
    pome_status status = pome_tensor_cast(&wide, t, POME_DTYPE_F64, err);
    if (status != POME_OK)
        return status;
    const double *x = wide.data;
    *r = (output_range){.min = INFINITY, .max = -INFINITY};
    for (int64_t i = 0, n = pome_tensor_count(&wide); i < n; i++) {
        r->n_nan += isnan(x[i]) != 0;
        r->n_infinite += isinf(x[i]) != 0;
        if (!isfinite(x[i]))
            continue;
        r->n_finite++;
        r->mean += (x[i] - r->mean) / (double)r->n_finite;
        r->min = x[i] < r->min ? x[i] : r->min;
        r->max = x[i] > r->max ? x[i] : r->max;
    }
    pome_tensor_reset(&wide);
    return POME_OK;
}

static json_t *range_json(const char *name, const pome_tensor *t, const output_range *r)
{
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    bool has_range = r->n_finite > 0;
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I}", "name", json_text(name), "dtype", pome_dtype_name(t->dtype), "shape",
                     shape, "min", has_range ? json_real(r->min) : json_null(), "max",
                     has_range ? json_real(r->max) : json_null(), "mean", has_range ? json_real(r->mean) : json_null(),
                     "n_nan", (json_int_t)r->n_nan, "n_infinite", (json_int_t)r->n_infinite);
}

static void print_range(const char *name, const pome_tensor *t, const output_range *r)
{
    printf("%s  %s [", name, pome_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->rank; i++)
        printf("%s%lld", i ? ", " : "", (long long)t->shape[i]);
    printf("]");
    if (r->n_finite > 0)
        printf("  min %.6g  max %.6g  mean %.6g", r->min, r->max, r->mean);
    if (r->n_nan > 0)
        printf("  NaN %lld", (long long)r->n_nan);
    if (r->n_infinite > 0)
        printf("  infinite %lld", (long long)r->n_infinite);
    putchar('\n');
}

/* The five likeliest, in order. */
static void print_likeliest(const output *o)
{
    const double *p = o->tensor->data;
    double last = INFINITY;
    int64_t last_place = -1;
    char text[32];
    printf("%s  %u classes\n", o->name, o->classes.n);
    for (int k = 0; k < 5; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < o->classes.n; i++)
            if ((p[i] < last || (p[i] == last && i > last_place)) && (best < 0 || p[i] > p[best]))
                best = i;
        if (best < 0)
            return;
        printf("  %.6f  %s\n", p[best], class_text(&o->classes, best, text, sizeof text));
        last = p[best];
        last_place = best;
    }
}

static pome_status show_one(const output *o, json_t *list, pome_error *err)
{
    output_range span;
    char text[32];
    if (is_label(o) && list)
        json_array_append_new(list, json_pack("{s:o, s:o}", "name", json_text(o->name), "label", label_json(o)));
    else if (is_label(o))
        printf("%s  %s\n", o->name, class_text(&o->classes, place_of_label(o), text, sizeof text));
    else if (is_probabilities(o) && list)
        json_array_append_new(list, json_pack("{s:o, s:o}", "name", json_text(o->name), "probabilities",
                                              probabilities_json(o)));
    else if (is_probabilities(o))
        print_likeliest(o);
    if (o->classes.n)
        return POME_OK;
    pome_status status = outputs_range(&span, o->tensor, err);
    if (status == POME_OK && list)
        json_array_append_new(list, range_json(o->name, o->tensor, &span));
    else if (status == POME_OK)
        print_range(o->name, o->tensor, &span);
    return status;
}

int outputs_show(const output_list *outputs, bool as_json)
{
    pome_error err = {0};
    json_t *list = as_json ? json_array() : NULL;
    for (size_t i = 0; i < outputs->n; i++)
        if (show_one(&outputs->items[i], list, &err) != POME_OK) {
            json_decref(list);
            return fail_with(&err);
        }
    return list ? print_json(json_pack("{s:o}", "outputs", list)) : finish_output(0);
}
