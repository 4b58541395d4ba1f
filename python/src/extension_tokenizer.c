/* Tokenizer. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include "pome/generate.h"

PyTypeObject *py_tokenizer_type;

/* Tokenizer(path, model): path None: looked for around the model. */
static int tokenizer_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    py_tokenizer *self = (py_tokenizer *)object;
    PyObject *path = NULL, *model = NULL, *bytes = NULL;
    if (self->tokenizer) {
        PyErr_SetString(PyExc_RuntimeError, "the tokenizer is open already");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OO", &path, &model))
        return -1;
    if (model != Py_None && (!PyObject_TypeCheck(model, py_model_type) || !((py_model *)model)->model)) {
        PyErr_SetString(PyExc_TypeError, "the model is an open Model or None");
        return -1;
    }
    if (path != Py_None && !PyUnicode_FSConverter(path, &bytes))
        return -1;
    if (!bytes && model == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a path or a model is needed");
        return -1;
    }
    const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
    pome_error err;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    if (model == Py_None)
        status = pome_tokenizer_open(&self->tokenizer, text, &err);
    else
        status = pome_tokenizer_locate(&self->tokenizer, ((py_model *)model)->model, text, &err);
    Py_END_ALLOW_THREADS
    Py_XDECREF(bytes);
    if (status == POME_OK)
        return 0;
    py_raise(&err);
    return -1;
}

static void tokenizer_dealloc(PyObject *object)
{
    pome_tokenizer_close(&((py_tokenizer *)object)->tokenizer);
    py_instance_free(object);
}

static const pome_tokenizer *open_tokenizer(PyObject *object)
{
    const pome_tokenizer *tokenizer = ((py_tokenizer *)object)->tokenizer;
    if (!tokenizer)
        PyErr_SetString(PyExc_ValueError, "the tokenizer is not open");
    return tokenizer;
}

static PyObject *id_list(const int32_t *ids, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *id = PyLong_FromLong(ids[i]);
        if (!id || PyList_SetItem(list, (Py_ssize_t)i, id) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *text_of(const char *text, size_t len)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
}

static PyObject *tokenizer_encode(PyObject *object, PyObject *args)
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    const char *text = NULL;
    Py_ssize_t len = 0;
    int add_special = 0, parse_special = 0;
    if (!tokenizer || !PyArg_ParseTuple(args, "s#pp", &text, &len, &add_special, &parse_special))
        return NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    pome_error err;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pome_tokenizer_encode(tokenizer, text, (size_t)len, add_special, parse_special, &ids, &n, &err);
    Py_END_ALLOW_THREADS
    if (status != POME_OK)
        return py_raise(&err);
    PyObject *list = id_list(ids, n);
    free(ids);
    return list;
}

static PyObject *tokenizer_decode(PyObject *object, PyObject *args)
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    PyObject *given = NULL;
    int skip_special = 0;
    if (!tokenizer || !PyArg_ParseTuple(args, "Op", &given, &skip_special))
        return NULL;
    const int32_t *ids = NULL;
    Py_ssize_t n = 0;
    Py_buffer view;
    if (py_ids_lend(&ids, &n, &view, given) < 0)
        return NULL;
    char *text = NULL;
    size_t len = 0;
    pome_error err;
    pome_status status = pome_tokenizer_decode(tokenizer, ids, (size_t)n, skip_special, &text, &len, &err);
    PyBuffer_Release(&view);
    if (status != POME_OK)
        return py_raise(&err);
    PyObject *made = text_of(text, len);
    free(text);
    return made;
}

static PyObject *tokenizer_piece(PyObject *object, PyObject *args)
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    int id = 0;
    if (!tokenizer || !PyArg_ParseTuple(args, "i", &id))
        return NULL;
    const char *piece = pome_tokenizer_piece(tokenizer, id);
    return piece ? text_of(piece, strlen(piece)) : Py_NewRef(Py_None);
}

static PyObject *tokenizer_find(PyObject *object, PyObject *args)
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    const char *piece = NULL;
    if (!tokenizer || !PyArg_ParseTuple(args, "s", &piece))
        return NULL;
    int32_t id = pome_tokenizer_find(tokenizer, piece);
    return id < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(id);
}

static PyObject *tokenizer_is_special(PyObject *object, PyObject *args)
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    int id = 0;
    if (!tokenizer || !PyArg_ParseTuple(args, "i", &id))
        return NULL;
    return PyBool_FromLong(pome_tokenizer_is_special(tokenizer, id));
}

/* Borrows the texts from `list`, a sequence of (role, content). -1 with an exception set. */
static int read_messages(pome_message *messages, PyObject *list, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PyList_GetItem(list, i);
        if (!pair || !PyTuple_Check(pair)) {
            PyErr_SetString(PyExc_TypeError, "a message is a tuple of role and content");
            return -1;
        }
        if (!PyArg_ParseTuple(pair, "ss", &messages[i].role, &messages[i].content))
            return -1;
    }
    return 0;
}

static PyObject *tokenizer_apply_chat_template(PyObject *object, PyObject *args)
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    PyObject *list = NULL, *made = NULL;
    int add_generation_prompt = 1;
    if (!tokenizer || !PyArg_ParseTuple(args, "O!p", &PyList_Type, &list, &add_generation_prompt))
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    pome_message *messages = calloc((size_t)n + 1, sizeof *messages);
    if (!messages)
        return PyErr_NoMemory();
    char *text = NULL;
    size_t len = 0;
    pome_error err;
    if (read_messages(messages, list, n) == 0) {
        if (pome_tokenizer_apply_chat_template(tokenizer, messages, (size_t)n, add_generation_prompt, &text, &len, &err) !=
            POME_OK)
            py_raise(&err);
        else
            made = text_of(text, len);
    }
    free(text);
    free(messages);
    return made;
}

static PyObject *tokenizer_describe(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const pome_tokenizer *tokenizer = open_tokenizer(object);
    if (!tokenizer)
        return NULL;
    size_t n = 0;
    const int32_t *eos = pome_tokenizer_eos(tokenizer, &n);
    int32_t bos = pome_tokenizer_bos(tokenizer);
    return Py_BuildValue("{si sN sN sN sN}", "n_vocab", (int)pome_tokenizer_n_vocab(tokenizer), "source",
                         PyUnicode_DecodeFSDefault(pome_tokenizer_source(tokenizer)), "eos", id_list(eos, n), "bos",
                         bos < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(bos), "has_chat_template",
                         PyBool_FromLong(pome_tokenizer_has_chat_template(tokenizer)));
}

static PyMethodDef tokenizer_methods[] = {
    {"encode", tokenizer_encode, METH_VARARGS, "encode(text, add_special: bool, parse_special: bool): list of ids."},
    {"decode", tokenizer_decode, METH_VARARGS, "decode(ids: int32 buffer, skip_special: bool): str."},
    {"piece", tokenizer_piece, METH_VARARGS, "piece(id): the vocabulary's spelling, or None."},
    {"find", tokenizer_find, METH_VARARGS, "find(piece): id, or None."},
    {"is_special", tokenizer_is_special, METH_VARARGS, "is_special(id): bool."},
    {"apply_chat_template", tokenizer_apply_chat_template, METH_VARARGS,
     "apply_chat_template(messages: list of (role, content), add_generation_prompt: bool): str."},
    {"describe", tokenizer_describe, METH_NOARGS, "n_vocab, source, eos, bos, has_chat_template as a dictionary."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot tokenizer_slots[] = {{Py_tp_doc, "Tokenizer(path | None, model | None)."},
                                        {Py_tp_init, tokenizer_init},
                                        {Py_tp_new, PyType_GenericNew},
                                        {Py_tp_dealloc, tokenizer_dealloc},
                                        {Py_tp_methods, tokenizer_methods},
                                        {0}};
static PyType_Spec tokenizer_spec = {.name = "pome._pome.Tokenizer",
                                     .basicsize = sizeof(py_tokenizer),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = tokenizer_slots};

int py_tokenizer_register(PyObject *module)
{
    return py_type_register(module, &tokenizer_spec, &py_tokenizer_type);
}
