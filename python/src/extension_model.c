/* Model, Predictor and State. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include "pome/inspect.h"

PyTypeObject *py_model_type, *py_predictor_type, *py_state_type;

typedef struct py_predictor {
    PyObject_HEAD
    py_model *model;
    pome_predictor *predictor;
    const pome_function_info *function;
    bool is_busy, binds; /* binds: see has_described_shapes */
} py_predictor;

/* ---- descriptions as dictionaries ---- */

static PyObject *ints_tuple(const int64_t *values, int32_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int32_t i = 0; tuple && i < n; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (!value || PyTuple_SetItem(tuple, i, value) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* None, or a tuple of (min, max) per axis. */
static PyObject *range_tuple(const pome_feature *f)
{
    if (!f->is_ranged)
        return Py_NewRef(Py_None);
    PyObject *tuple = PyTuple_New(f->rank);
    for (int32_t i = 0; tuple && i < f->rank; i++) {
        PyObject *pair = Py_BuildValue("(LL)", (long long)f->range[i].min, (long long)f->range[i].max);
        if (!pair || PyTuple_SetItem(tuple, i, pair) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *enumerated_tuple(const pome_feature *f)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)f->n_enumerated);
    for (uint32_t i = 0; tuple && i < f->n_enumerated; i++) {
        PyObject *shape = ints_tuple(f->enumerated + (size_t)i * (size_t)f->rank, f->rank);
        if (!shape || PyTuple_SetItem(tuple, (Py_ssize_t)i, shape) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *feature_dict(const pome_feature *f)
{
    static const char *const colors[] = {"", "gray", "gray_f16", "rgb", "bgr"};
    static const char *const kinds[] = {"tensor", "image", "dictionary", "string", "int64", "double", "sequence"};
    char text[256];
    PyObject *shape = f->rank < 0 ? Py_NewRef(Py_None) : ints_tuple(f->shape, f->rank);
    PyObject *range = range_tuple(f), *enumerated = enumerated_tuple(f);
    PyObject *made = NULL;
    if (shape && range && enumerated)
        made = Py_BuildValue("{ss ss ss ss sO sO sO sO sO ss ss}", "name", f->name, "description", f->description, "kind",
                             (size_t)f->kind < sizeof kinds / sizeof kinds[0] ? kinds[f->kind] : "unknown", "dtype",
                             pome_dtype_name(f->dtype), "shape", shape, "range", range, "enumerated", enumerated,
                             "is_optional", f->is_optional ? Py_True : Py_False, "has_default",
                             f->has_default ? Py_True : Py_False, "text", pome_feature_format(f, text, sizeof text), "color",
                             (size_t)f->color < sizeof colors / sizeof colors[0] ? colors[f->color] : "");
    if (made && f->has_default) {
        PyObject *value = PyFloat_FromDouble(f->default_value);
        if (!value || PyDict_SetItemString(made, "default", value) < 0)
            Py_CLEAR(made);
        Py_XDECREF(value);
    }
    Py_XDECREF(shape);
    Py_XDECREF(range);
    Py_XDECREF(enumerated);
    return made;
}

static PyObject *feature_list(const pome_feature *features, uint32_t n)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *feature = feature_dict(&features[i]);
        if (!feature || PyList_Append(list, feature) < 0)
            Py_CLEAR(list);
        Py_XDECREF(feature);
    }
    return list;
}

static PyObject *function_dict(const pome_function_info *f)
{
    /* N takes the references, also where one of them is NULL: then the whole is NULL. */
    return Py_BuildValue("{ss sN sN sN}", "name", f->name, "inputs", feature_list(f->inputs, f->n_inputs), "outputs",
                         feature_list(f->outputs, f->n_outputs), "states", feature_list(f->states, f->n_states));
}

/* Labels of a classifier: str or int. */
static PyObject *classes_tuple(const pome_classes *classes)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)classes->n);
    for (uint32_t i = 0; tuple && i < classes->n; i++) {
        const char *name = classes->names ? classes->names[i] : NULL;
        PyObject *label = name ? PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace")
                               : PyLong_FromLongLong((long long)classes->ids[i]);
        if (!label || PyTuple_SetItem(tuple, (Py_ssize_t)i, label) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Adds the field "classes" to the features of a list: what the outputs of a classifier speak of, empty for all others. */
static int add_classes(PyObject *features, const pome_model *model, uint32_t function)
{
    for (Py_ssize_t i = 0; i < PyList_Size(features); i++) {
        pome_classes classes = pome_model_classes(model, function, (uint32_t)i);
        PyObject *tuple = classes_tuple(&classes);
        int failed = !tuple || PyDict_SetItemString(PyList_GetItem(features, i), "classes", tuple) < 0;
        Py_XDECREF(tuple);
        if (failed)
            return -1;
    }
    return 0;
}

static PyObject *functions_list(const pome_model *model, const pome_model_info *info)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < info->n_functions; i++) {
        PyObject *function = function_dict(&info->functions[i]);
        if (!function || add_classes(PyDict_GetItemString(function, "outputs"), model, i) < 0 ||
            PyList_Append(list, function) < 0)
            Py_CLEAR(list);
        Py_XDECREF(function);
    }
    return list;
}

static PyObject *metadata_dict(const pome_model_info *info)
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict && i < info->n_metadata; i++) {
        PyObject *value = PyUnicode_FromString(info->metadata[i].value);
        if (!value || PyDict_SetItemString(dict, info->metadata[i].key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* ---- Model ---- */

static int model_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"path", "numerics", "threads", "no_fuse", NULL};
    py_model *self = (py_model *)object;
    PyObject *path = NULL;
    int numerics = 0, threads = 0;
    const char *no_fuse = NULL;
    if (self->model) {
        PyErr_SetString(PyExc_RuntimeError, "the model is open already");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&iiz", names, PyUnicode_FSConverter, &path, &numerics, &threads, &no_fuse))
        return -1;
    pome_model_opts opts;
    pome_model_opts_default(&opts);
    opts.numerics = (pome_numerics)numerics;
    opts.n_threads = threads;
    opts.no_fuse = no_fuse;
    const char *text = PyBytes_AsString(path);
    pome_model *model = NULL;
    pome_error err;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pome_model_open(&model, text, &opts, &err);
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    if (status != POME_OK) {
        py_raise(&err);
        return -1;
    }
    self->model = model;
    return 0;
}

static void model_dealloc(PyObject *object)
{
    py_model *self = (py_model *)object;
    if (!self->set)
        pome_model_close(&self->model);
    Py_CLEAR(self->set);
    py_instance_free(object);
}

PyObject *py_model_borrow(pome_model *model, PyObject *set)
{
    py_model *made = PyObject_New(py_model, py_model_type);
    if (made) {
        made->model = model;
        made->set = Py_NewRef(set);
    }
    return (PyObject *)made;
}

static py_model *open_model(PyObject *object)
{
    py_model *self = (py_model *)object;
    if (!self->model)
        PyErr_SetString(PyExc_ValueError, "the model is not open");
    return self->model ? self : NULL;
}

static PyObject *model_describe(PyObject *object, PyObject *Py_UNUSED(unused))
{
    py_model *self = open_model(object);
    if (!self)
        return NULL;
    const pome_model_info *info = pome_model_describe(self->model);
    return Py_BuildValue("{sN si ss ss ss ss sN sN sI sK}", "path", PyUnicode_DecodeFSDefault(info->path),
                         "specification_version", (int)info->specification_version, "short_description",
                         info->short_description, "version", info->version, "author", info->author, "license", info->license,
                         "metadata", metadata_dict(info), "functions", functions_list(self->model, info), "default_function",
                         (unsigned)info->default_function, "weights_bytes", (unsigned long long)info->weights_bytes);
}

static void append_text(void *arg, const char *text, size_t len)
{
    PyObject *piece = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "backslashreplace");
    if (piece && !PyErr_Occurred())
        PyList_Append(arg, piece);
    Py_XDECREF(piece);
}

static PyObject *model_mil(PyObject *object, PyObject *args)
{
    py_model *self = open_model(object);
    int function = -1;
    pome_error err;
    if (!self || !PyArg_ParseTuple(args, "i", &function))
        return NULL;
    PyObject *pieces = PyList_New(0), *empty = PyUnicode_FromString(""), *text = NULL;
    if (pieces && empty) {
        pome_status status = pome_model_print_mil(self->model, function, append_text, pieces, &err);
        if (status != POME_OK)
            py_raise(&err);
        else if (!PyErr_Occurred())
            text = PyUnicode_Join(empty, pieces);
    }
    Py_XDECREF(pieces);
    Py_XDECREF(empty);
    return text;
}

static PyObject *model_predictor(PyObject *object, PyObject *args)
{
    py_model *self = open_model(object);
    const char *function = NULL;
    pome_error err;
    if (!self || !PyArg_ParseTuple(args, "z", &function))
        return NULL;
    pome_predictor *predictor = NULL;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pome_predictor_create(&predictor, self->model, function, NULL, &err);
    Py_END_ALLOW_THREADS
    if (status != POME_OK)
        return py_raise(&err);
    py_predictor *made = PyObject_New(py_predictor, py_predictor_type);
    if (!made) {
        pome_predictor_destroy(&predictor);
        return NULL;
    }
    made->model = (py_model *)Py_NewRef(object);
    made->predictor = predictor;
    pome_predictor_poll(predictor, py_poll_signals, NULL);
    made->function = &pome_model_describe(self->model)->functions[pome_model_find_function(self->model, function)];
    made->is_busy = false;
    made->binds = false;
    return (PyObject *)made;
}

static PyObject *model_state(PyObject *object, PyObject *args)
{
    py_model *self = open_model(object);
    const char *function = NULL;
    pome_error err;
    pome_state *state = NULL;
    if (!self || !PyArg_ParseTuple(args, "z", &function))
        return NULL;
    if (pome_state_create(&state, self->model, function, &err) != POME_OK)
        return py_raise(&err);
    py_state *made = PyObject_New(py_state, py_state_type);
    if (!made) {
        pome_state_destroy(&state);
        return NULL;
    }
    made->model = (py_model *)Py_NewRef(object);
    made->state = state;
    made->is_busy = false;
    return (PyObject *)made;
}

static PyMethodDef model_methods[] = {
    {"describe", model_describe, METH_NOARGS, "The description as nested dictionaries."},
    {"mil", model_mil, METH_VARARGS, "mil(function: int): the program as text; -1: all functions."},
    {"predictor", model_predictor, METH_VARARGS, "predictor(function: str | None): a new Predictor."},
    {"state", model_state, METH_VARARGS, "state(function: str | None): a new State of zeros."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot model_slots[] = {
    {Py_tp_doc, "Model(path, numerics: int, threads: int, no_fuse: str | None): an opened package."},
    {Py_tp_init, model_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, model_dealloc},
    {Py_tp_methods, model_methods},
    {0},
};
static PyType_Spec model_spec = {
    .name = "pome._pome.Model", .basicsize = sizeof(py_model), .flags = Py_TPFLAGS_DEFAULT, .slots = model_slots};

/* ---- State ---- */

static void state_dealloc(PyObject *object)
{
    py_state *self = (py_state *)object;
    pome_state_destroy(&self->state);
    Py_CLEAR(self->model);
    py_instance_free(object);
}

static PyObject *state_tensor(PyObject *object, PyObject *args)
{
    py_state *self = (py_state *)object;
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    pome_tensor *found = pome_state_find(self->state, name);
    if (!found) {
        PyErr_SetString(PyExc_KeyError, name);
        return NULL;
    }
    pome_tensor view = *found;
    view.owner = NULL;
    return py_tensor_wrap(&view, object);
}

static PyObject *state_clear(PyObject *object, PyObject *Py_UNUSED(unused))
{
    py_state *self = (py_state *)object;
    if (self->is_busy)
        return py_raise_text(POME_ERR_STATE, "the state is in use by a prediction of another thread");
    pome_state_clear(self->state);
    return Py_NewRef(Py_None);
}

static PyMethodDef state_methods[] = {
    {"tensor", state_tensor, METH_VARARGS, "tensor(name: str): a Tensor over the live memory."},
    {"clear", state_clear, METH_NOARGS, "Back to zeros."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot state_slots[] = {
    {Py_tp_doc, "What persists between predictions."}, {Py_tp_dealloc, state_dealloc}, {Py_tp_methods, state_methods}, {0}};
static PyType_Spec state_spec = {
    .name = "pome._pome.State",
    .basicsize = sizeof(py_state),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = state_slots,
};

/* ---- Predictor ---- */

static void predictor_dealloc(PyObject *object)
{
    py_predictor *self = (py_predictor *)object;
    pome_predictor_destroy(&self->predictor);
    Py_CLEAR(self->model);
    py_instance_free(object);
}

/* Outputs are written straight to what the caller gets, once a run has shown that they have the shape they are described with. */
static bool has_described_shapes(const py_predictor *self)
{
    const pome_function_info *f = self->function;
    for (uint32_t i = 0; i < f->n_inputs; i++)
        if (f->inputs[i].is_ranged || f->inputs[i].n_enumerated)
            return false;
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        const pome_feature *output = &f->outputs[i];
        const pome_tensor *t = pome_predictor_output(self->predictor, i);
        if (output->kind != POME_FEATURE_TENSOR || t->dtype != output->dtype || t->rank != output->rank ||
            pome_tensor_count(t) == 0 || pome_dtype_bits(t->dtype) < 8)
            return false;
        for (int32_t axis = 0; axis < t->rank; axis++)
            if (t->shape[axis] != output->shape[axis])
                return false;
    }
    return true;
}

static pome_status bind_outputs(py_predictor *self, pome_tensor *outputs, pome_error *err)
{
    const pome_function_info *f = self->function;
    if (!self->binds)
        return POME_OK;
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        const pome_feature *output = &f->outputs[i];
        pome_status status = pome_tensor_init(&outputs[i], output->dtype, output->rank, output->shape, err);
        if (status == POME_OK)
            status = pome_predictor_bind_output(self->predictor, i, &outputs[i], err);
        if (status != POME_OK)
            return status;
    }
    return POME_OK;
}

/* Inputs stay borrowed until the next ones are set, which happens before anything reads them; outputs are let go. */
static pome_status run_bare(py_predictor *self, const pome_tensor *inputs, const bool *is_given, pome_state *state,
                            pome_tensor *outputs, pome_error *err)
{
    const pome_function_info *f = self->function;
    pome_status status = POME_OK;
    for (uint32_t i = 0; status == POME_OK && i < f->n_inputs; i++)
        status = pome_predictor_set_input(self->predictor, i, is_given[i] ? &inputs[i] : NULL, err);
    if (status == POME_OK)
        status = bind_outputs(self, outputs, err);
    if (status == POME_OK)
        status = pome_predictor_run(self->predictor, state, err);
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        if (outputs[i].data) {
            pome_error ignored;
            if (pome_predictor_bind_output(self->predictor, i, NULL, &ignored) != POME_OK && status == POME_OK)
                status = ignored.code, *err = ignored;
        } else if (status == POME_OK) {
            const pome_tensor *output = pome_predictor_output(self->predictor, i);
            if (output->dtype == POME_DTYPE_STRING) /* a label: outputs_tuple reads it before the next run */
                outputs[i] = pome_tensor_borrow(output->data, output->dtype, output->rank, output->shape);
            else
                status = pome_tensor_clone(&outputs[i], output, err);
        }
    }
    if (status == POME_OK && !self->binds)
        self->binds = has_described_shapes(self);
    return status;
}

static PyObject *outputs_tuple(pome_tensor *outputs, uint32_t n)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; tuple && i < n; i++) {
        const char *label = outputs[i].dtype == POME_DTYPE_STRING ? *(const char *const *)outputs[i].data : NULL;
        PyObject *output = label ? PyUnicode_DecodeUTF8(label, (Py_ssize_t)strlen(label), "replace")
                                 : py_tensor_wrap(&outputs[i], NULL);
        if (!output || PyTuple_SetItem(tuple, (Py_ssize_t)i, output) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *predictor_run(PyObject *object, PyObject *args)
{
    py_predictor *self = (py_predictor *)object;
    PyObject *given = NULL, *state_object = NULL;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &given, &state_object))
        return NULL;
    if (state_object != Py_None && !PyObject_TypeCheck(state_object, py_state_type)) {
        PyErr_SetString(PyExc_TypeError, "the state is a State or None");
        return NULL;
    }
    py_state *state = state_object == Py_None ? NULL : (py_state *)state_object;
    const pome_function_info *f = self->function;
    if (PyTuple_Size(given) != (Py_ssize_t)f->n_inputs) {
        PyErr_Format(PyExc_ValueError, "%zd inputs were given, the function has %u", PyTuple_Size(given), (unsigned)f->n_inputs);
        return NULL;
    }
    if (self->is_busy)
        return py_raise_text(POME_ERR_STATE, "the predictor is in use by another thread");
    if (state && state->is_busy)
        return py_raise_text(POME_ERR_STATE, "the state is in use by a prediction of another thread");

    PyObject *result = NULL;
    uint32_t n_lent = 0;
    pome_tensor *inputs = calloc((size_t)f->n_inputs + 1, sizeof *inputs);
    pome_tensor *outputs = calloc((size_t)f->n_outputs + 1, sizeof *outputs);
    Py_buffer *views = calloc((size_t)f->n_inputs + 1, sizeof *views);
    bool *is_given = calloc((size_t)f->n_inputs + 1, sizeof *is_given);
    if (!inputs || !outputs || !views || !is_given) {
        PyErr_NoMemory();
        goto done;
    }
    for (; n_lent < f->n_inputs; n_lent++) {
        PyObject *input = PyTuple_GetItem(given, (Py_ssize_t)n_lent);
        is_given[n_lent] = input != Py_None;
        if (is_given[n_lent] && py_tensor_lend(&inputs[n_lent], &views[n_lent], input) < 0)
            goto done;
    }
    pome_error err;
    pome_status status;
    self->is_busy = true;
    if (state)
        state->is_busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = run_bare(self, inputs, is_given, state ? state->state : NULL, outputs, &err);
    Py_END_ALLOW_THREADS
    self->is_busy = false;
    if (state)
        state->is_busy = false;
    result = status == POME_OK ? outputs_tuple(outputs, f->n_outputs) : py_raise(&err);
done:
    for (uint32_t i = 0; outputs && i < f->n_outputs; i++)
        pome_tensor_reset(&outputs[i]);
    for (uint32_t i = 0; i < n_lent; i++)
        if (is_given[i])
            PyBuffer_Release(&views[i]);
    free(inputs);
    free(outputs);
    free(views);
    free(is_given);
    return result;
}

static PyMethodDef predictor_methods[] = {
    {"run", predictor_run, METH_VARARGS,
     "run(inputs: tuple, state: State | None): one array or None per input, in order; gives a Tensor per output, a str for a label."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot predictor_slots[] = {{Py_tp_doc, "Runs one function, one thread at a time."},
                                        {Py_tp_dealloc, predictor_dealloc},
                                        {Py_tp_methods, predictor_methods},
                                        {0}};
static PyType_Spec predictor_spec = {
    .name = "pome._pome.Predictor",
    .basicsize = sizeof(py_predictor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = predictor_slots,
};

int py_model_register(PyObject *module)
{
    return py_type_register(module, &model_spec, &py_model_type) < 0 ||
                   py_type_register(module, &state_spec, &py_state_type) < 0 ||
                   py_type_register(module, &predictor_spec, &py_predictor_type) < 0
               ? -1
               : 0;
}
