/* `pome predict`: one prediction with arrays from NumPy files, or images. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "dump.h"
#include "image_file.h"
#include "npy.h"
#include "outputs.h"
#include "pome/predictor.h"
#include "verbs.h"

typedef struct predict_args {
    common_args common;
    option_list inputs, dumps;
    bool check_finite;
    const char *output, *state_in, *state_out, *function;
} predict_args;

typedef struct prediction {
    const predict_args *args;
    pome_model *model;
    const pome_function_info *function;
    pome_predictor *predictor;
    pome_state *state;
    pome_tensor *inputs; /* [n_inputs]; rank 0 without data: not given */
    bool *is_given;      /* [n_inputs] */
    dump dump;
} prediction;

static void set_defaults(void *args)
{
    predict_args *a = args;
    a->common.numerics = POME_NUMERICS_EXACT;
}

#define AT(member) offsetof(predict_args, member)
static const option options[] = {
    {"input", 'i', NULL, OPTION_LIST, "NAME=FILE", AT(inputs), 0, 0, false,
     "Take input NAME from a .npy file or from the array of that name in a .npz file; a .npz file without NAME gives every "
     "input it has; an image from a .png or .jpg file too; may be repeated"},
    {"output", 'o', NULL, OPTION_TEXT, "DIR|FILE.npz", AT(output), 0, 0, false,
     "Write the outputs to DIR/NAME.npy (images: .png, labels and probabilities: .json) or into one .npz file"},
    {"state-in", 0, NULL, OPTION_TEXT, "FILE.npz", AT(state_in), 0, 0, false, "Begin with these states (zeros)"},
    {"state-out", 0, NULL, OPTION_TEXT, "FILE.npz", AT(state_out), 0, 0, false, "Write the states afterwards"},
    {"dump", 0, NULL, OPTION_LIST, "NAME|all", AT(dumps), 0, 0, false,
     "Keep an intermediate result of the program with the outputs (fp32 where the program declares fp16); may be repeated"},
    {"check-finite", 0, NULL, OPTION_FLAG, NULL, AT(check_finite), 0, 0, false,
     "Fail and name the first operator whose result holds NaN or infinity"},
    {"function", 0, NULL, OPTION_TEXT, "NAME", AT(function), 0, 0, false, "Function of the package (its default)"},
    OPTIONS_ENGINE(predict_args, "exact"),
    OPTIONS_OUTPUT(predict_args),
    {0},
};

static const char *const examples[] = {
    "pome predict model.mlpackage --input x=x.npy --output out.npz", "all outputs in one file",
    "pome predict model.mlpackage --input inputs.npz --json", "shape and range of each output",
    "pome predict classifier.mlpackage --input image=photo.jpg", "the label and the likeliest classes",
    "pome predict model.mlpackage --input x=x.npy --numerics fp16 --check-finite", "where a half-precision device would overflow",
    "pome predict model.mlpackage --input x=x.npy --state-in s.npz --state-out s.npz --output out", "one step of a model with states",
    NULL,
};

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

/* Appends to a list in text, cut at its size. */
static void list_name(char *text, size_t size, const char *name)
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

/* ---- inputs ---- */

static pome_status fail_no_input(const prediction *p, const char *name, pome_error *err)
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
static pome_status give_input(prediction *p, const char *name, const pome_tensor *t, pome_error *err)
{
    if (t->dtype == POME_DTYPE_NONE)
        return fail_arg(err, "the array for input '%s' holds no numbers", name);
    int i = find_feature(p->function->inputs, p->function->n_inputs, name);
    if (i < 0)
        return fail_no_input(p, name, err);
    pome_status status = check_values(&p->function->inputs[i], t, err);
    if (status != POME_OK)
        return status;
    pome_tensor_reset(&p->inputs[i]);
    p->inputs[i] = pome_tensor_share(t);
    p->is_given[i] = true;
    return pome_predictor_set_input(p->predictor, (uint32_t)i, &p->inputs[i], err);
}

static pome_status take_npy(prediction *p, const char *name, const char *path, pome_error *err)
{
    pome_tensor t = {0};
    pome_status status = npy_read(&t, path, err);
    if (status == POME_OK)
        status = give_input(p, name, &t, err);
    pome_tensor_reset(&t);
    return status;
}

/* Without a name, the arrays of the file that are called like inputs; others may be expected values. */
static pome_status take_npz(prediction *p, const char *name, const char *path, pome_error *err)
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

static pome_status take_image(prediction *p, const char *name, const char *path, pome_error *err)
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

static pome_status take_input(prediction *p, const char *text, pome_error *err)
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

static pome_status check_missing(const prediction *p, pome_error *err)
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

/* ---- states ---- */

static pome_status load_states(prediction *p, pome_error *err)
{
    npz z = {0};
    pome_status status = npz_read(&z, p->args->state_in, err);
    for (uint32_t i = 0; i < p->function->n_states && status == POME_OK; i++) {
        const char *name = p->function->states[i].name;
        const pome_tensor *from = npz_find(&z, name);
        pome_tensor *to = pome_state_tensor(p->state, i);
        if (!from)
            status = fail_arg(err, "%s has no array for state '%s'", p->args->state_in, name);
        else if (from->dtype == POME_DTYPE_NONE || from->rank != to->rank || memcmp(from->shape, to->shape, sizeof(int64_t) * (size_t)to->rank) != 0)
            status = fail_arg(err, "%s: the shape of '%s' is not that of the state", p->args->state_in, name);
        else
            status = pome_tensor_copy(to, from, err);
    }
    npz_reset(&z);
    return status;
}

static pome_status save_states(prediction *p, pome_error *err)
{
    uint32_t n = p->function->n_states;
    const char **names = calloc(n + 1, sizeof *names);
    const pome_tensor **tensors = calloc(n + 1, sizeof *tensors);
    pome_status status = POME_ERR_NOMEM;
    for (uint32_t i = 0; i < n && names && tensors; i++) {
        names[i] = p->function->states[i].name;
        tensors[i] = pome_state_tensor(p->state, i);
    }
    if (names && tensors)
        status = npz_write(p->args->state_out, names, tensors, n, err);
    free(names);
    free(tensors);
    return status;
}

/* ---- outputs ---- */

static pome_status list_outputs(output_list *list, const prediction *p, pome_error *err)
{
    int function = pome_model_find_function(p->model, p->function->name);
    return outputs_list(list, p->model, (uint32_t)function, p->predictor, &p->dump, err);
}

static pome_status save_outputs(const prediction *p, pome_error *err)
{
    output_list list = {0};
    pome_status status = list_outputs(&list, p, err);
    if (status == POME_OK)
        status = outputs_save(p->args->output, &list, err);
    outputs_free(&list);
    return status;
}

static int show_outputs(const prediction *p)
{
    pome_error err = {0};
    output_list list = {0};
    int status = list_outputs(&list, p, &err) == POME_OK ? outputs_show(&list, p->args->common.json) : fail_with(&err);
    outputs_free(&list);
    return status;
}

/* ---- the whole ---- */

static pome_status prepare(prediction *p, const char *path, pome_error *err)
{
    pome_status status = open_model(&p->model, path, &p->args->common, err);
    if (status != POME_OK)
        return status;
    const pome_model_info *info = pome_model_describe(p->model);
    int index = pome_model_find_function(p->model, p->args->function);
    if (index < 0) {
        char names[600] = "";
        for (uint32_t i = 0; i < info->n_functions; i++)
            list_name(names, sizeof names, info->functions[i].name);
        return fail_arg(err, "no function '%s' in the model; it has: %s", p->args->function, names);
    }
    p->function = &info->functions[index];
    p->inputs = calloc(p->function->n_inputs + 1, sizeof *p->inputs);
    p->is_given = calloc(p->function->n_inputs + 1, sizeof *p->is_given);
    if (!p->inputs || !p->is_given)
        return fail_arg(err, "out of memory");
    status = pome_predictor_create(&p->predictor, p->model, p->function->name, NULL, err);
    if (status == POME_OK && p->function->n_states > 0)
        status = pome_state_create(&p->state, p->model, p->function->name, err);
    return status;
}

static pome_status run_watched(prediction *p, pome_error *err)
{
    dump_start(&p->dump, p->predictor);
    pome_status status = pome_predictor_run(p->predictor, p->state, err);
    if (status != POME_OK)
        return status;
    for (uint32_t i = 0; i < p->function->n_outputs; i++)
        dump_see_output(&p->dump, p->function->outputs[i].name, pome_predictor_output(p->predictor, i));
    return dump_finish(&p->dump, err);
}

static pome_status predict(prediction *p, const char *path, pome_error *err)
{
    const predict_args *args = p->args;
    pome_status status = prepare(p, path, err);
    for (size_t i = 0; i < args->inputs.n && status == POME_OK; i++)
        status = take_input(p, args->inputs.items[i], err);
    if (status == POME_OK)
        status = check_missing(p, err);
    if (status == POME_OK && (args->state_in || args->state_out) && p->function->n_states == 0)
        status = fail_arg(err, "function '%s' has no states", p->function->name);
    if (status == POME_OK && args->state_in)
        status = load_states(p, err);
    if (status == POME_OK)
        status = run_watched(p, err);
    if (status == POME_OK && args->output)
        status = save_outputs(p, err);
    if (status == POME_OK && args->state_out)
        status = save_states(p, err);
    return status;
}

static int run(void *opaque, const char **operands, int n_operands)
{
    (void)n_operands;
    pome_error err = {0};
    predict_args *args = opaque;
    if (args->dumps.n || args->check_finite)
        args->common.no_fuse = "all"; /* every operator's result is looked at, or can be asked for */
    prediction p = {.args = args};
    p.dump = (dump){.wanted = &p.args->dumps, .check_finite = p.args->check_finite};
    int status = predict(&p, operands[0], &err) == POME_OK ? 0 : fail_with(&err);
    if (status == 0 && (!p.args->output || p.args->common.json))
        status = show_outputs(&p);
    pome_predictor_destroy(&p.predictor);
    pome_state_destroy(&p.state);
    for (uint32_t i = 0; p.inputs && i < p.function->n_inputs; i++)
        pome_tensor_reset(&p.inputs[i]);
    free(p.inputs);
    free(p.is_given);
    dump_reset(&p.dump);
    pome_model_close(&p.model);
    return status;
}

const verb verb_predict = {
    .name = "predict",
    .summary = "one prediction, with arrays from NumPy files or images",
    .operands = "MODEL",
    .description = "Runs a function of a model once. Inputs are .npy or .npz files; types are converted to those of the "
                   "model. Optional inputs may be left out. Without --output, shape and range of every output are shown.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 1,
    .args_size = sizeof(predict_args),
    .set_defaults = set_defaults,
    .run = run,
};
