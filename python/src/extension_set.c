/* ModelSet: models that lie in one folder and are run together. */
#include "extension.h"

#include <stdlib.h>

#include "pome/generate.h"

PyTypeObject *py_set_type;

static int set_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    py_set *self = (py_set *)object;
    PyObject *path = NULL, *others = NULL;
    int numerics = 0, threads = 0;
    pome_model_set_opts opts;
    pome_model_set_opts_default(&opts);
    if (self->set) {
        PyErr_SetString(PyExc_RuntimeError, "the set is open already");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "O&iizzO!", PyUnicode_FSConverter, &path, &numerics, &threads, &opts.model.no_fuse, &opts.prefix,
                          &PyList_Type, &others)) {
        Py_XDECREF(path);
        return -1;
    }
    opts.model.numerics = (pome_numerics)numerics;
    opts.model.n_threads = threads;
    const char **texts = py_texts_borrow(others, &opts.n_others);
    if (!texts) {
        Py_DECREF(path);
        return -1;
    }
    opts.others = opts.n_others ? texts : NULL;
    const char *path_text = PyBytes_AsString(path);
    pome_model_set *set = NULL;
    pome_error err;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pome_model_set_open(&set, path_text, &opts, &err);
    Py_END_ALLOW_THREADS
    free(texts);
    Py_DECREF(path);
    if (status != POME_OK) {
        py_raise(&err);
        return -1;
    }
    self->set = set;
    return 0;
}

static void set_dealloc(PyObject *object)
{
    pome_model_set_close(&((py_set *)object)->set);
    py_instance_free(object);
}

static PyObject *set_models(PyObject *object, PyObject *Py_UNUSED(unused))
{
    py_set *self = (py_set *)object;
    if (!self->set) {
        PyErr_SetString(PyExc_ValueError, "the set is not open");
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < pome_model_set_count(self->set); i++) {
        /* N takes the references, also where one of them is NULL: then the whole is NULL. */
        PyObject *entry = Py_BuildValue("(NNd)", PyUnicode_DecodeFSDefault(pome_model_set_name(self->set, i)),
                                        py_model_borrow(pome_model_set_model(self->set, i), object),
                                        pome_model_set_open_s(self->set, i));
        if (!entry || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

static PyMethodDef set_methods[] = {
    {"models", set_models, METH_NOARGS, "A list of (name, Model, seconds that opening it took)."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot set_slots[] = {
    {Py_tp_doc, "ModelSet(path, numerics: int, threads: int, no_fuse: str | None, prefix: str | None, others: list[str])."},
    {Py_tp_init, set_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, set_dealloc},
    {Py_tp_methods, set_methods},
    {0},
};
static PyType_Spec set_spec = {
    .name = "pome._pome.ModelSet", .basicsize = sizeof(py_set), .flags = Py_TPFLAGS_DEFAULT, .slots = set_slots};

int py_set_register(PyObject *module)
{
    return py_type_register(module, &set_spec, &py_set_type);
}

PyObject *py_hub_find(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *repository = NULL;
    char *folder = NULL;
    pome_error err;
    if (!PyArg_ParseTuple(args, "s", &repository))
        return NULL;
    if (pome_hub_find(&folder, repository, &err) != POME_OK)
        return py_raise(&err);
    PyObject *text = PyUnicode_DecodeFSDefault(folder);
    free(folder);
    return text;
}
