#include "feeds.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_file.h"
#include "npy.h"
#include "options.h"

static pome_status fail_arg(pome_error *err, const char *fmt, ...) POME_PRINTF(2, 3);
static pome_status fail_arg(pome_error *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    *err = (pome_error){.code = POME_ERR_ARG};
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return err->code;
}

void list_name(char *text, size_t size, const char *name)
{
    size_t at = strlen(text);
    snprintf(text + at, size - at, "%s%s", at ? ", " : "", name);
}

static int find_feature(const pome_feature *features, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return (int)i;
    return -1;
}


static pome_status fail_no_input(const feeds *p, const char *name, pome_error *err)
{
    const char *words[65];
    char names[600] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < p->function->n_inputs; i++) {
        list_name(names, sizeof names, p->function->inputs[i].name);
        if (n < 64)
            words[n++] = p->function->inputs[i].name;
    }
    words[n] = NULL;
    const char *meant = closest_word(name, words);
    return fail_arg(err, "function '%s' has no input '%s'%s%s%s; it has: %s", p->function->name, name,
                    meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "", names);
}

/* Numbers are converted to the type of the input; one that this would make another is an error, not a wrong id. */
static pome_status check_values(const pome_feature *f, const pome_tensor *t, pome_error *err)
{
    if (f->kind == POME_FEATURE_IMAGE || !pome_dtype_is_int(f->dtype) || t->dtype == f->dtype)
        return POME_OK;
    pome_tensor wide = {0};
    pome_status status = pome_tensor_cast(&wide, t, POME_DTYPE_F64, err);
    bool is_signed = pome_dtype_name(f->dtype)[0] == 'i';
    double end = ldexp(1.0, (int)pome_dtype_bits(f->dtype) - is_signed), begin = is_signed ? -end : 0.0;
    int64_t n = status == POME_OK ? pome_tensor_count(&wide) : 0;
    const double *x = wide.data;
    for (int64_t i = 0; i < n && status == POME_OK; i++)
        if (!(x[i] >= begin && x[i] < end) || x[i] != floor(x[i]))
            status = fail_arg(err, "input '%s': element %lld is %.17g, which no %s can hold", f->name, (long long)i, x[i],
                              pome_dtype_name(f->dtype));
    pome_tensor_reset(&wide);
    return status;
}

/* Gives input `name` a tensor of its own. */
static pome_status give_input(feeds *p, const char *name, const pome_tensor *t, pome_error *err)
{
    if (t->dtype == POME_DTYPE_NONE)
        return fail_arg(err, "the array for input '%s' holds no numbers", name);
    int i = find_feature(p->function->inputs, p->function->n_inputs, name);
    if (i < 0)
        return fail_no_input(p, name, err);
    pome_status status = check_values(&p->function->inputs[i], t, err);
    if (status != POME_OK)
        return status;
    pome_tensor_reset(&p->tensors[i]);
    p->tensors[i] = pome_tensor_share(t);
    p->is_given[i] = true;
    return pome_predictor_set_input(p->predictor, (uint32_t)i, &p->tensors[i], err);
}

static pome_status take_npy(feeds *p, const char *name, const char *path, pome_error *err)
{
    pome_tensor t = {0};
    pome_status status = npy_read(&t, path, err);
    if (status == POME_OK)
        status = give_input(p, name, &t, err);
    pome_tensor_reset(&t);
    return status;
}

/* Without a name, the arrays of the file that are called like inputs; others may be expected values. */
static pome_status take_npz(feeds *p, const char *name, const char *path, pome_error *err)
{
    npz z = {0};
    pome_status status = npz_read(&z, path, err);
    if (status == POME_OK && name) {
        const pome_tensor *t = z.n == 1 ? &z.arrays[0].tensor : npz_find(&z, name);
        status = t ? give_input(p, name, t, err) : fail_arg(err, "%s has no array '%s'", path, name);
    } else if (status == POME_OK) {
        size_t n_taken = 0;
        for (size_t i = 0; i < z.n && status == POME_OK; i++) {
            if (find_feature(p->function->inputs, p->function->n_inputs, z.arrays[i].name) < 0)
                continue;
            status = give_input(p, z.arrays[i].name, &z.arrays[i].tensor, err);
            n_taken++;
        }
        if (status == POME_OK && n_taken == 0)
            status = fail_arg(err, "%s has no array named like an input", path);
    }
    npz_reset(&z);
    return status;
}

static pome_status take_image(feeds *p, const char *name, const char *path, pome_error *err)
{
    int i = find_feature(p->function->inputs, p->function->n_inputs, name);
    if (i < 0)
        return fail_no_input(p, name, err);
    const pome_feature *f = &p->function->inputs[i];
    if (f->kind != POME_FEATURE_IMAGE)
        return fail_arg(err, "input '%s' is no image: give it a .npy file", name);
    pome_tensor t = {0};
    pome_status status = image_read(&t, path, f->shape[1] == 1, err);
    if (status == POME_OK)
        status = give_input(p, name, &t, err);
    pome_tensor_reset(&t);
    return status;
}

pome_status feeds_take(feeds *p, const char *text, pome_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals && !is_npz_path(text))
        return fail_arg(err, "--input %s: expected NAME=FILE.npy or a .npz file", text);
    char *name = equals ? strndup(text, (size_t)(equals - text)) : NULL;
    const char *path = equals ? equals + 1 : text;
    pome_status status = is_npz_path(path)             ? take_npz(p, name, path, err)
                         : name && is_image_path(path) ? take_image(p, name, path, err)
                                                       : take_npy(p, name, path, err);
    free(name);
    return status;
}

pome_status feeds_check(const feeds *p, pome_error *err)
{
    char names[700] = "";
    for (uint32_t i = 0; i < p->function->n_inputs; i++) {
        const pome_feature *f = &p->function->inputs[i];
        char text[300], shape[160];
        if (p->is_given[i] || f->is_optional)
            continue;
        snprintf(text, sizeof text, "%s %s", f->name, pome_feature_format(f, shape, sizeof shape));
        list_name(names, sizeof names, text);
    }
    return names[0] ? fail_arg(err, "inputs are missing: %s", names) : POME_OK;
}

pome_status feeds_init(feeds *f, const pome_function_info *function, pome_predictor *predictor, pome_error *err)
{
    *f = (feeds){.function = function, .predictor = predictor};
    f->tensors = calloc(function->n_inputs + 1, sizeof *f->tensors);
    f->is_given = calloc(function->n_inputs + 1, sizeof *f->is_given);
    return f->tensors && f->is_given ? POME_OK : fail_arg(err, "out of memory");
}

void feeds_reset(feeds *f)
{
    for (uint32_t i = 0; f->tensors && i < f->function->n_inputs; i++)
        pome_tensor_reset(&f->tensors[i]);
    free(f->tensors);
    free(f->is_given);
    *f = (feeds){0};
}

pome_status feeds_find_function(const pome_function_info **out, const pome_model *model, const char *name, pome_error *err)
{
    const pome_model_info *info = pome_model_describe(model);
    int index = pome_model_find_function(model, name);
    char names[600] = "";
    if (index >= 0) {
        *out = &info->functions[index];
        return POME_OK;
    }
    for (uint32_t i = 0; i < info->n_functions; i++)
        list_name(names, sizeof names, info->functions[i].name);
    return fail_arg(err, "no function '%s' in the model; it has: %s", name, names);
}
