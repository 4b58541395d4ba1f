/* `pome predict`: one prediction with arrays from NumPy files, or images. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "dump.h"
#include "feeds.h"
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
    feeds inputs;
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
    status = feeds_find_function(&p->function, p->model, p->args->function, err);
    if (status != POME_OK)
        return status;
    status = pome_predictor_create(&p->predictor, p->model, p->function->name, NULL, err);
    if (status == POME_OK)
        status = feeds_init(&p->inputs, p->function, p->predictor, err);
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
        status = feeds_take(&p->inputs, args->inputs.items[i], err);
    if (status == POME_OK)
        status = feeds_check(&p->inputs, err);
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
    feeds_reset(&p.inputs);
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
