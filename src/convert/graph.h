/* Writing MIL by calls. Failures stick: once something failed every call gives NULL, and what is given NULL gives NULL,
 * so that a graph is built without a check per line and asked at the end. */
#ifndef POME_CONVERT_GRAPH_H
#define POME_CONVERT_GRAPH_H

#include "base/error.h"
#include "base/strmap.h"
#include "mil/program.h"

typedef struct pome_graph {
    pome_function *fn;
    pome_strmap consts; /* small constants by type and contents */
    pome_strmap names;
    char prefix[64];    /* of the names of operators: "layers_3_" */
    pome_dtype real;    /* F16 or F32: of all floats in the graph */
    uint32_t n_consts;
    bool failed;        /* out of memory */
} pome_graph;

typedef struct pome_graph_arg {
    int param;         /* P_...; a parameter that is a list is given several times in a row */
    pome_value *value; /* NULL where `count` is not: the parameter is left out */
} pome_graph_arg;

bool pome_graph_init(pome_graph *g, pome_program *program, const char *function, pome_opset opset, pome_dtype real);
pome_value *pome_graph_input(pome_graph *g, const char *name, pome_type_kind kind, pome_dtype dtype, int32_t rank,
                             const int64_t *dim /* -1: any size */);
/* Gives a value, and the operator whose first output it is, another name, which nothing has yet. */
void pome_graph_rename(pome_graph *g, pome_value *value, const char *name);
void pome_graph_output(pome_graph *g, pome_value *value);

/* Adds an operator; gives its first output (its only one but for split), or NULL if it has none. */
pome_value *pome_graph_add(pome_graph *g, pome_op_id id, const char *name, size_t n_args, const pome_graph_arg *args);
#define POME_ARGS(...)                                                                                                 \
    sizeof((const pome_graph_arg[]){__VA_ARGS__}) / sizeof(pome_graph_arg), (const pome_graph_arg[]) { __VA_ARGS__ }

/* Small constants, shared by contents. */
pome_value *pome_graph_int(pome_graph *g, int32_t value);
pome_value *pome_graph_ints(pome_graph *g, size_t n, const int32_t *values); /* rank 1 */
pome_value *pome_graph_uints(pome_graph *g, size_t n, const uint32_t *values);
pome_value *pome_graph_int8(pome_graph *g, int8_t value);
pome_value *pome_graph_bool(pome_graph *g, bool value);
pome_value *pome_graph_bools(pome_graph *g, size_t n, const bool *values);
pome_value *pome_graph_real(pome_graph *g, double value); /* of the graph's float type */
pome_value *pome_graph_text(pome_graph *g, const char *text);
#define POME_INTS(g, ...)                                                                                              \
    pome_graph_ints((g), sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (const int32_t[]){__VA_ARGS__})
#define POME_BOOLS(g, ...)                                                                                             \
    pome_graph_bools((g), sizeof((const bool[]){__VA_ARGS__}) / sizeof(bool), (const bool[]){__VA_ARGS__})

/* A constant in the weight file. */
pome_value *pome_graph_blob(pome_graph *g, const char *name, pome_dtype dtype, int32_t rank, const int64_t *dim,
                            uint64_t record_offset);

/* Shorthands for what every graph is made of. */
pome_value *pome_graph_add2(pome_graph *g, const char *name, pome_value *x, pome_value *y);
pome_value *pome_graph_mul(pome_graph *g, const char *name, pome_value *x, pome_value *y);
pome_value *pome_graph_reshape(pome_graph *g, const char *name, pome_value *x, pome_value *shape);
pome_value *pome_graph_transpose(pome_graph *g, const char *name, pome_value *x, pome_value *perm);
/* x[..., begin:end] along the last of `rank` axes. */
pome_value *pome_graph_slice_last(pome_graph *g, const char *name, pome_value *x, int32_t rank, int32_t begin,
                                  int32_t end);
/* x[begin:end] along one axis. */
pome_value *pome_graph_slice(pome_graph *g, const char *name, pome_value *x, int32_t rank, int32_t axis, int32_t begin,
                             int32_t end);
pome_value *pome_graph_concat(pome_graph *g, const char *name, int32_t axis, size_t n, pome_value *const *values);
/* Size of an axis as an int32 vector [1]. */
pome_value *pome_graph_size(pome_graph *g, const char *name, pome_value *x, int32_t axis);

#endif
