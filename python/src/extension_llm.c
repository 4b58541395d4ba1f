/* Llm and Session: the engine of a language model, and one timeline of tokens. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include "pome/generate.h"
#include "pome/llm.h"

PyTypeObject *py_llm_type, *py_session_type;

typedef struct py_llm {
    PyObject_HEAD
    PyObject *source; /* the Model or ModelSet, kept open */
    pome_llm *llm;
} py_llm;

typedef struct py_session {
    PyObject_HEAD
    py_llm *llm;
    pome_llm_session *session;
    bool is_busy;
} py_session;

/* ---- Llm ---- */

/* Borrows the pairs of text of a list of (role, name). NULL with an exception set. */
static pome_llm_role *roles_of(PyObject *list, size_t *n)
{
    *n = (size_t)PyList_Size(list);
    pome_llm_role *roles = calloc(*n + 1, sizeof *roles);
    if (!roles)
        PyErr_NoMemory();
    for (size_t i = 0; roles && i < *n; i++) {
        PyObject *pair = PyList_GetItem(list, (Py_ssize_t)i);
        if (!PyTuple_Check(pair))
            PyErr_SetString(PyExc_TypeError, "a role is a pair of texts");
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "ss", &roles[i].role, &roles[i].name)) {
            free(roles);
            return NULL;
        }
    }
    return roles;
}

static bool is_open(PyObject *source)
{
    bool is_set = PyObject_TypeCheck(source, py_set_type);
    if (!is_set && !PyObject_TypeCheck(source, py_model_type))
        PyErr_SetString(PyExc_TypeError, "the source is a Model or a ModelSet");
    else if (is_set ? !((py_set *)source)->set : !((py_model *)source)->model)
        PyErr_SetString(PyExc_ValueError, "the model is not open");
    return !PyErr_Occurred();
}

static int llm_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    py_llm *self = (py_llm *)object;
    PyObject *source = NULL, *list = NULL;
    long long context = 0, block = 0;
    int whole_windows = 0;
    pome_llm_opts opts;
    pome_llm_opts_default(&opts);
    if (self->llm) {
        PyErr_SetString(PyExc_RuntimeError, "the engine is open already");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OzLLzO!p", &source, &opts.function, &context, &block, &opts.contract, &PyList_Type, &list,
                          &whole_windows) ||
        !is_open(source))
        return -1;
    pome_llm_role *roles = roles_of(list, &opts.n_roles);
    if (!roles)
        return -1;
    opts.context = context;
    opts.block = block;
    opts.roles = roles;
    opts.whole_windows = whole_windows;
    bool is_set = PyObject_TypeCheck(source, py_set_type);
    pome_error err;
    pome_status status;
    Py_BEGIN_ALLOW_THREADS
    status = is_set ? pome_llm_open_set(&self->llm, ((py_set *)source)->set, &opts, &err)
                    : pome_llm_open(&self->llm, ((py_model *)source)->model, &opts, &err);
    Py_END_ALLOW_THREADS
    free(roles);
    if (status != POME_OK) {
        py_raise(&err);
        return -1;
    }
    self->source = Py_NewRef(source);
    return 0;
}

static void llm_dealloc(PyObject *object)
{
    py_llm *self = (py_llm *)object;
    pome_llm_close(&self->llm);
    Py_CLEAR(self->source);
    py_instance_free(object);
}

static py_llm *open_llm(PyObject *object)
{
    py_llm *self = (py_llm *)object;
    if (!self->llm)
        PyErr_SetString(PyExc_ValueError, "the engine is not open");
    return self->llm ? self : NULL;
}

static PyObject *llm_describe(PyObject *object, PyObject *Py_UNUSED(unused))
{
    py_llm *self = open_llm(object);
    return self ? Py_BuildValue("{sL sL ss ss sO sO}", "n_context", (long long)pome_llm_n_context(self->llm), "n_vocab",
                                (long long)pome_llm_n_vocab(self->llm), "contract", pome_llm_describe(self->llm), "reason",
                                pome_llm_explain(self->llm), "has_logits", pome_llm_has_logits(self->llm) ? Py_True : Py_False,
                                "has_cache", pome_llm_has_cache(self->llm) ? Py_True : Py_False)
                : NULL;
}

static PyObject *llm_session(PyObject *object, PyObject *Py_UNUSED(unused))
{
    py_llm *self = open_llm(object);
    pome_llm_session *session = NULL;
    pome_error err;
    pome_status status;
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = pome_llm_session_create(&session, self->llm, &err);
    Py_END_ALLOW_THREADS
    if (status != POME_OK)
        return py_raise(&err);
    py_session *made = PyObject_New(py_session, py_session_type);
    if (!made) {
        pome_llm_session_destroy(&session);
        return NULL;
    }
    made->llm = (py_llm *)Py_NewRef(object);
    made->session = session;
    pome_llm_session_poll(session, py_poll_signals, NULL);
    made->is_busy = false;
    return (PyObject *)made;
}

static PyMethodDef llm_methods[] = {
    {"describe", llm_describe, METH_NOARGS, "n_context, n_vocab, contract and the like as a dictionary."},
    {"session", llm_session, METH_NOARGS, "A new Session with an empty timeline."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot llm_slots[] = {{Py_tp_doc, "Llm(source: Model | ModelSet, function: str | None, context: int, block: int, "
                                               "contract: str | None, roles: list[tuple[str, str]], whole_windows: bool)."},
                                  {Py_tp_init, llm_init},
                                  {Py_tp_new, PyType_GenericNew},
                                  {Py_tp_dealloc, llm_dealloc},
                                  {Py_tp_methods, llm_methods},
                                  {0}};
static PyType_Spec llm_spec = {
    .name = "pome._pome.Llm", .basicsize = sizeof(py_llm), .flags = Py_TPFLAGS_DEFAULT, .slots = llm_slots};

/* ---- Session ---- */

static void session_dealloc(PyObject *object)
{
    py_session *self = (py_session *)object;
    pome_llm_session_destroy(&self->session);
    Py_CLEAR(self->llm);
    py_instance_free(object);
}

static int begin(py_session *self)
{
    if (self->is_busy) {
        py_raise_text(POME_ERR_STATE, "the session is in use: by another thread, or by a generation that has not ended");
        return -1;
    }
    self->is_busy = true;
    return 0;
}

/* A Tensor with a copy of rows of logits, which the next call overwrites. */
static PyObject *copy_rows(const py_session *self, const float *logits, int64_t n_rows, bool is_row)
{
    const int64_t n_vocab = pome_llm_n_vocab(self->llm->llm), shape[] = {n_rows, n_vocab};
    pome_tensor copy;
    pome_error err;
    if (pome_tensor_init(&copy, POME_DTYPE_F32, is_row ? 1 : 2, is_row ? shape + 1 : shape, &err) != POME_OK)
        return py_raise(&err);
    if (n_rows > 0)
        memcpy(copy.data, logits, sizeof(float) * (size_t)n_rows * (size_t)n_vocab);
    return py_tensor_wrap(&copy, NULL);
}

typedef enum feed_kind { FEED_WHOLE, FEED_APPEND, FEED_ROWS, FEED_ALL } feed_kind;

static PyObject *feed(py_session *self, PyObject *given, feed_kind kind, int64_t n_rows)
{
    const int32_t *ids = NULL;
    const float *logits = NULL;
    Py_ssize_t n = 0;
    Py_buffer view;
    if (py_ids_lend(&ids, &n, &view, given) < 0)
        return NULL;
    if (begin(self) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    int64_t n_reused = 0;
    pome_error err;
    pome_status status;
    pome_llm_session *session = self->session;
    Py_BEGIN_ALLOW_THREADS
    switch (kind) {
    case FEED_WHOLE: status = pome_llm_session_feed(session, ids, n, &logits, &err); break;
    case FEED_APPEND: status = pome_llm_session_append(session, ids, n, &logits, &err); break;
    case FEED_ROWS: status = pome_llm_session_append_rows(session, ids, n, n_rows, &logits, &err); break;
    default: status = pome_llm_session_feed_all(session, ids, n, &logits, &n_reused, &err); break;
    }
    Py_END_ALLOW_THREADS
    self->is_busy = false;
    PyBuffer_Release(&view);
    if (status != POME_OK)
        return py_raise(&err);
    if (kind == FEED_ALL)
        n_rows = n - n_reused;
    bool is_row = kind == FEED_WHOLE || kind == FEED_APPEND;
    return copy_rows(self, logits, is_row ? 1 : n_rows, is_row);
}

static PyObject *session_feed(PyObject *self, PyObject *ids)
{
    return feed((py_session *)self, ids, FEED_WHOLE, 1);
}

static PyObject *session_append(PyObject *self, PyObject *ids)
{
    return feed((py_session *)self, ids, FEED_APPEND, 1);
}

static PyObject *session_append_rows(PyObject *self, PyObject *args)
{
    PyObject *ids = NULL;
    long long n_rows = 0;
    if (!PyArg_ParseTuple(args, "OL", &ids, &n_rows))
        return NULL;
    return feed((py_session *)self, ids, FEED_ROWS, n_rows);
}

static PyObject *session_feed_all(PyObject *self, PyObject *ids)
{
    return feed((py_session *)self, ids, FEED_ALL, 0);
}

static PyObject *session_rewind(PyObject *object, PyObject *args)
{
    py_session *self = (py_session *)object;
    long long n = 0;
    pome_error err;
    if (!PyArg_ParseTuple(args, "L", &n) || begin(self) < 0)
        return NULL;
    pome_status status = pome_llm_session_rewind(self->session, n, &err);
    self->is_busy = false;
    return status == POME_OK ? Py_NewRef(Py_None) : py_raise(&err);
}

static PyObject *session_clear(PyObject *object, PyObject *Py_UNUSED(unused))
{
    py_session *self = (py_session *)object;
    if (begin(self) < 0)
        return NULL;
    pome_llm_session_clear(self->session);
    self->is_busy = false;
    return Py_NewRef(Py_None);
}

static PyObject *session_cancel(PyObject *object, PyObject *Py_UNUSED(unused))
{
    pome_llm_session_cancel(((py_session *)object)->session);
    return Py_NewRef(Py_None);
}

static PyObject *session_n_tokens(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(pome_llm_session_n_tokens(((py_session *)object)->session));
}

static PyObject *session_n_reused(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(pome_llm_session_n_reused(((py_session *)object)->session));
}

/* ---- generating ---- */

typedef struct sink_call {
    PyObject *callable;
    bool has_failed; /* the exception is kept in these three until the generation has ended */
    PyObject *type, *value, *traceback;
} sink_call;

static bool call_sink(void *arg, int32_t id, const char *text, size_t len)
{
    sink_call *sink = arg;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool goes_on = false;
    PyObject *decoded = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
    PyObject *answer = decoded ? PyObject_CallFunction(sink->callable, "iO", (int)id, decoded) : NULL;
    if (answer)
        goes_on = PyObject_IsTrue(answer) == 1;
    if (PyErr_Occurred()) {
        PyErr_Fetch(&sink->type, &sink->value, &sink->traceback);
        sink->has_failed = true;
        goes_on = false;
    }
    Py_XDECREF(answer);
    Py_XDECREF(decoded);
    PyGILState_Release(gil);
    return goes_on;
}

static PyObject *result_dict(const pome_generate_result *r)
{
    return Py_BuildValue("{ss sL sL sL sd sd sL sL sL sz}", "finish", pome_finish_name(r->finish), "n_prompt",
                         (long long)r->n_prompt, "n_reused", (long long)r->n_reused, "n_new", (long long)r->n_new, "prompt_s",
                         r->prompt_s, "decode_s", r->decode_s, "n_passes", (long long)r->n_passes, "n_drafted",
                         (long long)r->n_drafted, "n_accepted", (long long)r->n_accepted, "not_speculated", r->not_speculated);
}

static PyObject *generate(py_session *self, const int32_t *prompt, int64_t n_prompt, const pome_sampler_opts *sampling,
                          pome_generate_opts *opts, PyObject *callable)
{
    sink_call sink = {.callable = callable};
    pome_generate_result result;
    pome_sampler *sampler = NULL;
    pome_error err;
    pome_status status;
    opts->sink = call_sink;
    opts->sink_arg = &sink;
    if (begin(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = pome_sampler_create(&sampler, sampling, pome_llm_n_vocab(self->llm->llm), &err);
    if (status == POME_OK)
        status = pome_generate(self->session, sampler, prompt, n_prompt, opts, &result, &err);
    pome_sampler_destroy(&sampler);
    Py_END_ALLOW_THREADS
    self->is_busy = false;
    if (sink.has_failed) {
        PyErr_Restore(sink.type, sink.value, sink.traceback);
        return NULL;
    }
    return status == POME_OK ? result_dict(&result) : py_raise(&err);
}

static PyObject *session_generate(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"ids", "sink", "tokenizer", "stop", "eos", "max_new_tokens", "ignore_eos", "keep_special",
                            "speculate", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n", "seed",
                            NULL};
    PyObject *ids_object = NULL, *callable = NULL, *tokenizer = NULL, *stop = NULL, *eos_object = NULL, *result = NULL;
    long long max_new_tokens = 0, speculate = 0;
    int ignore_eos = 0, keep_special = 0;
    unsigned long long seed = 0;
    pome_sampler_opts sampling;
    pome_generate_opts opts;
    pome_sampler_opts_default(&sampling);
    pome_generate_opts_default(&opts);
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOO!OLppLfifffiK", names, &ids_object, &callable, &tokenizer, &PyList_Type,
                                     &stop, &eos_object, &max_new_tokens, &ignore_eos, &keep_special, &speculate,
                                     &sampling.temperature, &sampling.top_k, &sampling.top_p, &sampling.min_p,
                                     &sampling.repeat_penalty, &sampling.repeat_last_n, &seed))
        return NULL;
    if (tokenizer != Py_None && !PyObject_TypeCheck(tokenizer, py_tokenizer_type)) {
        PyErr_SetString(PyExc_TypeError, "the tokenizer is a Tokenizer or None");
        return NULL;
    }
    const int32_t *ids = NULL, *eos = NULL;
    Py_ssize_t n = 0, n_eos = 0;
    Py_buffer ids_view, eos_view;
    const char **strings = py_texts_borrow(stop, &opts.n_stop);
    if (!strings)
        return NULL;
    if (py_ids_lend(&ids, &n, &ids_view, ids_object) == 0) {
        if (py_ids_lend(&eos, &n_eos, &eos_view, eos_object) == 0) {
            sampling.seed = seed;
            opts.max_new_tokens = max_new_tokens;
            opts.tokenizer = tokenizer == Py_None ? NULL : ((py_tokenizer *)tokenizer)->tokenizer;
            opts.eos = eos;
            opts.n_eos = (size_t)n_eos;
            opts.ignore_eos = ignore_eos;
            opts.keep_special = keep_special;
            opts.stop = strings;
            opts.speculate = speculate;
            result = generate((py_session *)object, ids, n, &sampling, &opts, callable);
            PyBuffer_Release(&eos_view);
        }
        PyBuffer_Release(&ids_view);
    }
    free(strings);
    return result;
}

static PyGetSetDef session_fields[] = {
    {"n_tokens", session_n_tokens, NULL, "Length of the timeline.", NULL},
    {"n_reused", session_n_reused, NULL, "Tokens that the last feed found cached.", NULL},
    {0},
};
static PyMethodDef session_methods[] = {
    {"feed", session_feed, METH_O, "feed(ids): makes the timeline equal to ids; logits after the last."},
    {"append", session_append, METH_O, "append(ids): logits after the last."},
    {"append_rows", session_append_rows, METH_VARARGS, "append_rows(ids, n_rows): logits after each of the last n_rows."},
    {"feed_all", session_feed_all, METH_O, "feed_all(ids): logits after each id that was not cached."},
    {"rewind", session_rewind, METH_VARARGS, "rewind(n): cuts the timeline to its first n tokens."},
    {"clear", session_clear, METH_NOARGS, "Empties the timeline."},
    {"cancel", session_cancel, METH_NOARGS, "Ends the running or next feed."},
    {"generate", (PyCFunction)(void (*)(void))session_generate, METH_VARARGS | METH_KEYWORDS,
     "generate(ids, sink, ...): calls sink(id, text) for each; a dictionary of figures."},
    PY_REFUSE_PICKLE,
    {0},
};
static PyType_Slot session_slots[] = {{Py_tp_doc, "One timeline of tokens."},
                                      {Py_tp_dealloc, session_dealloc},
                                      {Py_tp_methods, session_methods},
                                      {Py_tp_getset, session_fields},
                                      {0}};
static PyType_Spec session_spec = {
    .name = "pome._pome.Session",
    .basicsize = sizeof(py_session),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = session_slots,
};

int py_llm_register(PyObject *module)
{
    return py_type_register(module, &llm_spec, &py_llm_type) < 0 ||
                   py_type_register(module, &session_spec, &py_session_type) < 0
               ? -1
               : 0;
}
