/* Tensors and the buffer protocol: both ways without copying. */
#include "extension.h"

#include <string.h>

PyTypeObject *py_tensor_type;

typedef struct py_tensor {
    PyObject_HEAD
    pome_tensor tensor;
    PyObject *keep; /* owner of the memory, or NULL */
    Py_ssize_t shape[POME_MAX_RANK], strides[POME_MAX_RANK];
} py_tensor;

/* The struct module's letter of a type; NULL: the buffer protocol has none. */
static const char *format_of(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_BOOL: return "?";
    case POME_DTYPE_F16: return "e";
    case POME_DTYPE_F32: return "f";
    case POME_DTYPE_F64: return "d";
    case POME_DTYPE_I8: return "b";
    case POME_DTYPE_U8: return "B";
    case POME_DTYPE_I16: return "h";
    case POME_DTYPE_U16: return "H";
    case POME_DTYPE_I32: return "i";
    case POME_DTYPE_U32: return "I";
    case POME_DTYPE_I64: return "q";
    case POME_DTYPE_U64: return "Q";
    default: return NULL;
    }
}

static pome_dtype dtype_of(const char *format, Py_ssize_t itemsize)
{
    static const pome_dtype ints[] = {POME_DTYPE_I8, POME_DTYPE_I16, POME_DTYPE_I32, POME_DTYPE_I64};
    static const pome_dtype uints[] = {POME_DTYPE_U8, POME_DTYPE_U16, POME_DTYPE_U32, POME_DTYPE_U64};
    if (!format)
        return POME_DTYPE_U8;
    if (*format == '@' || *format == '=' || *format == '<') /* both hosts of the engine are little-endian */
        format++;
    if (!*format || format[1])
        return POME_DTYPE_NONE;
    int log2_size = itemsize == 1 ? 0 : itemsize == 2 ? 1 : itemsize == 4 ? 2 : itemsize == 8 ? 3 : -1;
    if (log2_size < 0)
        return POME_DTYPE_NONE;
    switch (*format) {
    case '?': return POME_DTYPE_BOOL;
    case 'e': return POME_DTYPE_F16;
    case 'f': return POME_DTYPE_F32;
    case 'd': return POME_DTYPE_F64;
    case 'b': case 'h': case 'i': case 'l': case 'q': case 'n': return ints[log2_size];
    case 'B': case 'H': case 'I': case 'L': case 'Q': case 'N': return uints[log2_size];
    default: return POME_DTYPE_NONE;
    }
}

static int lend(pome_tensor *out, const Py_buffer *view)
{
    pome_dtype dtype = dtype_of(view->format, view->itemsize);
    if (dtype == POME_DTYPE_NONE) {
        PyErr_Format(PyExc_TypeError, "arrays with elements of format '%s' cannot be used: wanted are bool, float16, "
                     "float32, float64 and integers in the byte order of this machine", view->format);
        return -1;
    }
    if (view->ndim > POME_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "an array of %d dimensions: there may be %d at most", view->ndim, POME_MAX_RANK);
        return -1;
    }
    *out = (pome_tensor){.dtype = dtype, .rank = view->ndim, .data = view->buf};
    for (int i = 0; i < view->ndim; i++) {
        if (view->strides[i] % view->itemsize) {
            PyErr_Format(PyExc_ValueError, "axis %d has a stride of %zd bytes, no multiple of the element's %zd", i,
                         view->strides[i], view->itemsize);
            return -1;
        }
        out->shape[i] = view->shape[i];
        out->stride[i] = view->strides[i] / view->itemsize;
    }
    return 0;
}

int py_tensor_lend(pome_tensor *out, Py_buffer *view, PyObject *object)
{
    if (PyObject_GetBuffer(object, view, PyBUF_FULL_RO) < 0)
        return -1;
    if (lend(out, view) == 0)
        return 0;
    PyBuffer_Release(view);
    return -1;
}

int py_ids_lend(const int32_t **ids, Py_ssize_t *n, Py_buffer *view, PyObject *object)
{
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if (view->ndim == 1 && dtype_of(view->format, view->itemsize) == POME_DTYPE_I32) {
        *ids = view->buf;
        *n = view->len / 4;
        return 0;
    }
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_TypeError, "token ids are a contiguous int32 array of one dimension");
    return -1;
}

PyObject *py_tensor_wrap(pome_tensor *t, PyObject *keep)
{
    py_tensor *self = PyObject_New(py_tensor, py_tensor_type);
    if (!self) {
        pome_tensor_reset(t);
        return NULL;
    }
    self->tensor = *t;
    *t = (pome_tensor){0};
    self->keep = Py_XNewRef(keep);
    Py_ssize_t size = (Py_ssize_t)(pome_dtype_bits(self->tensor.dtype) / 8);
    for (int32_t i = 0; i < self->tensor.rank; i++) {
        self->shape[i] = (Py_ssize_t)self->tensor.shape[i];
        self->strides[i] = (Py_ssize_t)self->tensor.stride[i] * size;
    }
    return (PyObject *)self;
}

static void tensor_dealloc(PyObject *object)
{
    py_tensor *self = (py_tensor *)object;
    pome_tensor_reset(&self->tensor);
    Py_CLEAR(self->keep);
    py_instance_free(object);
}

static int tensor_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    static char nothing[8];
    py_tensor *self = (py_tensor *)object;
    const char *format = format_of(self->tensor.dtype);
    view->obj = NULL;
    if (!format) {
        PyErr_Format(PyExc_BufferError, "elements of type %s have no form in the buffer protocol",
                     pome_dtype_name(self->tensor.dtype));
        return -1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !pome_tensor_is_contiguous(&self->tensor)) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    *view = (Py_buffer){
        .buf = self->tensor.data ? self->tensor.data : nothing,
        .obj = Py_NewRef(object),
        .len = (Py_ssize_t)pome_tensor_size_bytes(&self->tensor),
        .itemsize = (Py_ssize_t)(pome_dtype_bits(self->tensor.dtype) / 8),
        .ndim = self->tensor.rank,
        .format = (flags & PyBUF_FORMAT) ? (char *)(uintptr_t)format : NULL,
        .shape = (flags & PyBUF_ND) ? self->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL,
    };
    return 0;
}

static PyObject *tensor_dtype(PyObject *object, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(pome_dtype_name(((py_tensor *)object)->tensor.dtype));
}

static PyGetSetDef tensor_fields[] = {
    {"dtype", tensor_dtype, NULL, "Name of the element type: 'fp16', 'int32', ...", NULL},
    {0},
};
static PyMethodDef tensor_methods[] = {PY_REFUSE_PICKLE, {0}};
static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, "Memory of the engine with the buffer protocol: numpy.asarray makes an array of it without copying."},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_bf_getbuffer, tensor_get_buffer},
    {Py_tp_getset, tensor_fields},
    {Py_tp_methods, tensor_methods},
    {0},
};
static PyType_Spec tensor_spec = {
    .name = "pome._pome.Tensor",
    .basicsize = sizeof(py_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tensor_slots,
};

int py_tensor_register(PyObject *module)
{
    return py_type_register(module, &tensor_spec, &py_tensor_type);
}
