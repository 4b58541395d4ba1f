/* The module itself, errors, and what all types share. */
#include "extension.h"

#include <string.h>

PyObject *py_raise(const pome_error *err)
{
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

static struct PyModuleDef extension = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pome._pome",
    .m_doc = "Thin types over the C interface; programs use the classes of the package.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__pome(void);

PyMODINIT_FUNC PyInit__pome(void)
{
    PyObject *module = PyModule_Create(&extension);
    if (!module)
        return NULL;
    if (py_tensor_register(module) < 0 || py_model_register(module) < 0 || py_tokenizer_register(module) < 0 ||
        py_llm_register(module) < 0 || PyModule_AddStringConstant(module, "version", pome_version()) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
