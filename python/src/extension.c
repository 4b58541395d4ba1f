/* The module itself, errors, and what all types share. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pome/compile.h"

bool py_poll_signals(void *unused)
{
    enum { EVERY_MS = 50 };
    static _Thread_local int64_t next_ms;
    struct timespec t;
    (void)unused;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    int64_t now_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (now_ms < next_ms)
        return false;
    next_ms = now_ms + EVERY_MS;
    PyGILState_STATE held = PyGILState_Ensure();
    bool has_raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(held);
    return has_raised;
}

PyObject *py_raise(const pome_error *err)
{
    if (err->code == POME_ERR_CANCELLED && PyErr_Occurred())
        return NULL;
    PyObject *errors = PyImport_ImportModule("pome._errors");
    if (!errors)
        return NULL;
    /* Messages may quote bytes of a file. */
    PyObject *text = PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "backslashreplace");
    PyObject *error = text ? PyObject_CallMethod(errors, "make", "isKO", (int)err->code, pome_status_name(err->code),
                                                 (unsigned long long)err->offset, text)
                           : NULL;
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(text);
    Py_DECREF(errors);
    return NULL;
}

PyObject *py_raise_text(pome_status code, const char *text)
{
    pome_error err = {.code = code};
    PyOS_snprintf(err.message, sizeof err.message, "%s", text);
    return py_raise(&err);
}

const char **py_texts_borrow(PyObject *list, size_t *n)
{
    *n = (size_t)PyList_Size(list);
    const char **texts = calloc(*n + 1, sizeof *texts);
    if (!texts) {
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < *n; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, (Py_ssize_t)i), NULL);
        if (!texts[i]) {
            free(texts);
            return NULL;
        }
    }
    return texts;
}

int py_type_register(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    PyObject *made = PyType_FromSpec(spec);
    if (!made)
        return -1;
    *type = (PyTypeObject *)made;
    return PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, made);
}

void py_instance_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF(type);
}

PyObject *py_refuse_pickle(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *name = PyType_GetName(Py_TYPE(self));
    if (name)
        PyErr_Format(PyExc_TypeError, "a %U cannot be pickled: it is bound to this process; open the file again instead", name);
    Py_XDECREF(name);
    return NULL;
}

static PyObject *compile_package(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *source = NULL, *out = NULL;
    int weights = 0, force = 0;
    if (!PyArg_ParseTuple(args, "O&O&ip", PyUnicode_FSConverter, &source, PyUnicode_FSConverter, &out, &weights, &force)) {
        Py_XDECREF(source); /* the second may have failed */
        return NULL;
    }
    pome_compile_opts opts;
    pome_compile_opts_default(&opts);
    opts.weights = (pome_compile_weights)weights;
    opts.force = force;
    const char *source_text = PyBytes_AsString(source), *out_text = PyBytes_AsString(out);
    pome_error err;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pome_compile(source_text, out_text, &opts, NULL, &err);
    Py_END_ALLOW_THREADS
    Py_DECREF(source);
    Py_DECREF(out);
    return status == POME_OK ? Py_NewRef(Py_None) : py_raise(&err);
}

static PyMethodDef extension_functions[] = {
    {"compile", compile_package, METH_VARARGS, "compile(source, out, weights: int, force: bool)"},
    {"hub_find", py_hub_find, METH_VARARGS, "hub_find(repository: str): its folder in the local Hub cache."},
    {0},
};

static struct PyModuleDef extension = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pome._pome",
    .m_doc = "Thin types over the C interface; programs use the classes of the package.",
    .m_size = -1,
    .m_methods = extension_functions,
};

PyMODINIT_FUNC PyInit__pome(void);

PyMODINIT_FUNC PyInit__pome(void)
{
    PyObject *module = PyModule_Create(&extension);
    if (!module)
        return NULL;
    if (py_tensor_register(module) < 0 || py_model_register(module) < 0 || py_set_register(module) < 0 ||
        py_tokenizer_register(module) < 0 || py_llm_register(module) < 0 || PyModule_AddStringConstant(module, "version", pome_version()) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
