/* Evaluation: what the evaluator, the filters, tests, methods and functions need of each other. */
#ifndef POME_TEXT_JINJA_EVAL_H
#define POME_TEXT_JINJA_EVAL_H

#include "text/jinja_ast.h"

/* Runs the whole template into run->out. */
pome_status pome_jinja_evaluate(const pome_jinja *jinja, const json_t *context, pome_jinja_run *run);

typedef struct pome_jinja_args {
    const pome_jv *items; /* positional */
    size_t n;
    const pome_str *names; /* [n_named] */
    const pome_jv *named;
    size_t n_named;
} pome_jinja_args;

struct scope; /* the evaluator's own */

struct pome_jinja_macro {
    const pome_jinja_node *definition; /* a MACRO or CALL_BLOCK: parameters in items, body */
    struct scope *closure;
};

struct pome_jinja_loop {
    const pome_jv_list *items;
    size_t index;
    const pome_jinja_node *definition;
    struct scope *outer; /* of a recursive loop */
    int64_t depth;
    bool has_changed;
    pome_jv changed;
};

#define POME_JINJA_PARAMETERS_MAX 6

/* Binds arguments to `parameters`, names separated by spaces: slots[i] is NULL for those not given. ARG for too many
 * arguments or an unknown name. `what` names the function in messages. */
pome_status pome_jinja_bind(pome_jinja_run *run, pome_str what, const pome_jinja_args *args, const char *parameters,
                            const pome_jv *slots[POME_JINJA_PARAMETERS_MAX]);

/* object.name and object[key]; a missing one is an undefined value. ARG if the object itself is undefined. */
pome_status pome_jinja_getattr(pome_jinja_run *run, const pome_jv *object, pome_str name, pome_jv *out);
pome_status pome_jinja_getitem(pome_jinja_run *run, const pome_jv *object, const pome_jv *key, pome_jv *out);
pome_status pome_jinja_slice(pome_jinja_run *run, const pome_jv *object, const pome_jv *start, const pome_jv *stop,
                             const pome_jv *step, pome_jv *out);
pome_status pome_jinja_binary(pome_jinja_run *run, pome_jinja_op op, const pome_jv *a, const pome_jv *b, pome_jv *out);
pome_status pome_jinja_negate(pome_jinja_run *run, const pome_jv *a, pome_jv *out);

pome_status pome_jinja_call(pome_jinja_run *run, const pome_jv *callee, const pome_jinja_args *args, pome_jv *out);
/* UNSUPPORTED for a name that is not known. */
pome_status pome_jinja_filter(pome_jinja_run *run, pome_str name, const pome_jv *input, const pome_jinja_args *args,
                              pome_jv *out);
pome_status pome_jinja_test(pome_jinja_run *run, pome_str name, const pome_jv *input, const pome_jinja_args *args,
                            bool *out);
bool pome_jinja_has_filter(pome_str name);
bool pome_jinja_has_test(pome_str name);

/* Methods of strings, lists and dicts. */
bool pome_jinja_has_method(const pome_jv *self, pome_str name);
pome_status pome_jinja_call_method(pome_jinja_run *run, const pome_jv *self, pome_str name,
                                   const pome_jinja_args *args, pome_jv *out);
/* range, namespace, dict, raise_exception, strftime_now. */
bool pome_jinja_has_function(pome_str name);
pome_status pome_jinja_call_function(pome_jinja_run *run, pome_str name, const pome_jinja_args *args, pome_jv *out);

/* "%" of Python's strings. */
pome_status pome_jinja_percent(pome_jinja_run *run, pome_str format, const pome_jv *values, size_t n, pome_jv *out);

/* Shared by filters and methods. */
typedef enum pome_jinja_case { POME_CASE_LOWER, POME_CASE_UPPER, POME_CASE_CAPITALIZE, POME_CASE_TITLE, POME_CASE_SWAP } pome_jinja_case;
pome_status pome_jinja_change_case(pome_jinja_run *run, pome_str s, pome_jinja_case kind, pome_jv *out);
pome_str pome_jinja_strip(pome_str s, const pome_str *chars /* NULL: white space */, bool left, bool right);
/* count < 0: all. */
pome_status pome_jinja_replace(pome_jinja_run *run, pome_str s, pome_str old, pome_str new, int64_t count, pome_jv *out);
pome_status pome_jinja_join(pome_jinja_run *run, const pome_jv *list, pome_str separator, bool strict, pome_jv *out);
pome_status pome_jinja_want_int(pome_jinja_run *run, const pome_jv *v, const char *what, int64_t *out);
pome_status pome_jinja_want_str(pome_jinja_run *run, const pome_jv *v, const char *what, pome_str *out);

#endif
