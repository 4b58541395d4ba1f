/* The extension module pome._pome: thin Python types over the public C interface, for the limited API of CPython 3.11.
 * The classes that programs use are written in Python around them (python/pome/).
 *
 * Calls that take long let other threads run. An object that is in such a call refuses a second one (POME_ERR_STATE). */
#ifndef POME_PYTHON_EXTENSION_H
#define POME_PYTHON_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pome/model_set.h"
#include "pome/predictor.h"
#include "pome/tokenizer.h"

typedef struct py_model {
    PyObject_HEAD
    pome_model *model;
    PyObject *set; /* the ModelSet that the model belongs to; NULL: it is this object's own */
} py_model;

typedef struct py_set {
    PyObject_HEAD
    pome_model_set *set;
} py_set;

typedef struct py_state {
    PyObject_HEAD
    py_model *model; /* keeps the model open */
    pome_state *state;
    bool is_busy;
} py_state;

typedef struct py_tokenizer {
    PyObject_HEAD
    pome_tokenizer *tokenizer;
} py_tokenizer;

extern PyTypeObject *py_model_type, *py_predictor_type, *py_state_type, *py_tensor_type, *py_llm_type, *py_session_type,
    *py_tokenizer_type, *py_set_type;

/* Make the types and add them to the module; -1 with an exception set. */
int py_tensor_register(PyObject *module);
int py_model_register(PyObject *module);
int py_set_register(PyObject *module);
int py_tokenizer_register(PyObject *module);
int py_llm_register(PyObject *module);

/* A Model over one of a set's models; keeps the set open. */
PyObject *py_model_borrow(pome_model *model, PyObject *set);
/* The function hub_find(repository) of the module. */
PyObject *py_hub_find(PyObject *module, PyObject *args);

/* Raises the class of pome._errors that stands for the error; always returns NULL. */
PyObject *py_raise(const pome_error *err);
/* A pome_poll: whether a signal's handler raised an exception (KeyboardInterrupt), which py_raise then leaves as it is. Only the
 * main thread handles signals. */
bool py_poll_signals(void *unused);
/* As py_raise, for a mistake that the extension itself finds. */
PyObject *py_raise_text(pome_status code, const char *text);

/* Lends the memory of an object with the buffer protocol to a tensor: any strides that are multiples of the element size.
 * `view` is released by the caller. Returns -1 with an exception set. */
int py_tensor_lend(pome_tensor *out, Py_buffer *view, PyObject *object);
/* A Tensor that takes over what `t` holds. `keep` (may be NULL) stays alive as long as the memory is in use. */
PyObject *py_tensor_wrap(pome_tensor *t, PyObject *keep);
/* The elements of a contiguous int32 buffer; `view` is released by the caller. -1 with an exception set. */
int py_ids_lend(const int32_t **ids, Py_ssize_t *n, Py_buffer *view, PyObject *object);

/* Borrows the texts of a list of str in an array that the caller frees; never empty. NULL with an exception set. */
const char **py_texts_borrow(PyObject *list, size_t *n);

/* Adds a type made of `spec` to the module under the name after its last dot and stores it in *type. */
int py_type_register(PyObject *module, PyType_Spec *spec, PyTypeObject **type);
/* Frees an instance of a type that PyType_FromSpec made. */
void py_instance_free(PyObject *self);
/* __reduce__ of every type: a TypeError. */
PyObject *py_refuse_pickle(PyObject *self, PyObject *unused);

#define PY_REFUSE_PICKLE {"__reduce__", py_refuse_pickle, METH_NOARGS, "Refuses: it is bound to this process."}

#endif
