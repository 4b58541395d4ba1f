/* The values that templates compute with: Python's, as far as templates meet them. All live in the arena of one
 * rendering; strings may also be borrowed from the template or the context. */
#ifndef POME_TEXT_JINJA_VALUE_H
#define POME_TEXT_JINJA_VALUE_H

#include <jansson.h>

#include "base/arena.h"
#include "base/span.h"
#include "text/jinja.h"
#include "text/strbuf.h"

#define POME_JV_DEPTH_MAX 200 /* of lists in lists */

typedef enum pome_jv_type {
    POME_JV_UNDEFINED = 0,
    POME_JV_NONE,
    POME_JV_BOOL,
    POME_JV_INT,
    POME_JV_FLOAT,
    POME_JV_STR,
    POME_JV_LIST,
    POME_JV_TUPLE,
    POME_JV_GENERATOR, /* what map and select give: true even if empty, without a length */
    POME_JV_DICT,
    POME_JV_NAMESPACE,
    POME_JV_FUNCTION, /* a global function */
    POME_JV_METHOD,   /* bound to a value */
    POME_JV_MACRO,
    POME_JV_LOOP
} pome_jv_type;

typedef struct pome_jv pome_jv;
typedef struct pome_jv_list {
    pome_jv *items;
    size_t n, cap;
} pome_jv_list;
typedef struct pome_jv_dict { /* in order of insertion */
    pome_jv *keys, *values;
    size_t n, cap;
} pome_jv_dict;
typedef struct pome_jv_method pome_jv_method;
typedef struct pome_jinja_macro pome_jinja_macro;
typedef struct pome_jinja_loop pome_jinja_loop;

struct pome_jv {
    pome_jv_type type;
    union {
        bool b;
        int64_t i;
        double f;
        pome_str s; /* STR; FUNCTION: its name; UNDEFINED: what to say when it is used */
        pome_jv_list *list;
        pome_jv_dict *dict; /* DICT and NAMESPACE */
        pome_jv_method *method;
        pome_jinja_macro *macro;
        pome_jinja_loop *loop;
    } u;
};

struct pome_jv_method {
    pome_jv self;
    pome_str name;
};

/* One rendering. */
typedef struct pome_jinja_run {
    pome_arena *arena;
    pome_strbuf *out;
    uint64_t steps_left;
    size_t output_limit;
    int depth;
    int line; /* of what is being evaluated */
    pome_error *err;
    const pome_jv *globals; /* a DICT: the context */
} pome_jinja_run;

static inline pome_jv pome_jv_none(void)
{
    return (pome_jv){.type = POME_JV_NONE};
}
static inline pome_jv pome_jv_bool(bool b)
{
    return (pome_jv){.type = POME_JV_BOOL, .u.b = b};
}
static inline pome_jv pome_jv_int(int64_t i)
{
    return (pome_jv){.type = POME_JV_INT, .u.i = i};
}
static inline pome_jv pome_jv_float(double f)
{
    return (pome_jv){.type = POME_JV_FLOAT, .u.f = f};
}
static inline pome_jv pome_jv_str(pome_str s)
{
    return (pome_jv){.type = POME_JV_STR, .u.s = s};
}
static inline pome_jv pome_jv_z(const char *z)
{
    return pome_jv_str(pome_str_of(z));
}
static inline bool pome_jv_is_list(const pome_jv *v) /* its items can be walked through u.list */
{
    return v->type == POME_JV_LIST || v->type == POME_JV_TUPLE || v->type == POME_JV_GENERATOR;
}
static inline bool pome_jv_is_number(const pome_jv *v)
{
    return v->type == POME_JV_INT || v->type == POME_JV_FLOAT || v->type == POME_JV_BOOL;
}

/* Failures with "line N: " in front. */
pome_status pome_jinja_fail(pome_jinja_run *run, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
pome_status pome_jinja_nomem(pome_jinja_run *run); /* the memory limit of the rendering */
/* Counts work; LIMIT when there was too much. */
pome_status pome_jinja_spend(pome_jinja_run *run, uint64_t steps);

/* Constructors that take arena memory. */
pome_status pome_jv_undefined(pome_jinja_run *run, pome_jv *out, const char *fmt, ...) POME_PRINTF(3, 4);
pome_status pome_jv_copy_str(pome_jinja_run *run, const char *s, size_t len, pome_jv *out);
/* The bytes of b as a string; b is freed. */
pome_status pome_jv_take(pome_jinja_run *run, pome_strbuf *b, pome_jv *out);
pome_status pome_jv_new_list(pome_jinja_run *run, pome_jv_type type, size_t cap, pome_jv *out);
pome_status pome_jv_push(pome_jinja_run *run, pome_jv *list, const pome_jv *item);
pome_status pome_jv_new_dict(pome_jinja_run *run, pome_jv_type type, pome_jv *out);
pome_status pome_jv_dict_set(pome_jinja_run *run, pome_jv *dict, const pome_jv *key, const pome_jv *value);
pome_status pome_jv_pair(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, pome_jv *out); /* a tuple */
pome_status pome_jv_from_json(pome_jinja_run *run, const json_t *json, pome_jv *out);

/* NULL: not there. */
const pome_jv *pome_jv_dict_find(const pome_jv_dict *dict, const pome_jv *key);
const pome_jv *pome_jv_dict_find_str(const pome_jv_dict *dict, pome_str key);

bool pome_jv_truth(const pome_jv *v);
const char *pome_jv_type_name(const pome_jv *v); /* Python's */
/* ARG, saying what is undefined, if v is. */
pome_status pome_jv_check_defined(pome_jinja_run *run, const pome_jv *v);
pome_status pome_jv_equal(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, bool *out);
/* -1, 0, 1; ARG for values without an order between them. */
pome_status pome_jv_compare(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, int *out);
pome_status pome_jv_contains(pome_jinja_run *run, const pome_jv *container, const pome_jv *item, bool *out);
/* What a for loop sees: a list-like value. Strings give characters, dicts their keys, undefined nothing. */
pome_status pome_jv_iterate(pome_jinja_run *run, const pome_jv *v, pome_jv *list);
pome_status pome_jv_length(pome_jinja_run *run, const pome_jv *v, size_t *out);

/* str() and repr(). */
pome_status pome_jv_append_str(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v);
pome_status pome_jv_append_repr(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v);
pome_status pome_jv_to_str(pome_jinja_run *run, const pome_jv *v, pome_str *out);
void pome_jv_append_float(pome_strbuf *out, double f); /* the shortest that reads back, as Python writes it */

typedef struct pome_jv_json_style {
    bool ensure_ascii, sort_keys;
    bool has_indent;
    pome_str indent, item_separator, key_separator;
} pome_jv_json_style;
pome_status pome_jv_append_json(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v,
                                const pome_jv_json_style *style);

#endif
