/* The interface between the runtime and operator implementations. One file per family; each gives rows of
 * pome_op_impl that ops/registry.c collects.
 *
 * Storage: a value declared fp16 or fp32 is held in fp32 between operators; constants, states and model inputs
 * may be fp16 in memory. An implementation sees fp32, contiguous inputs unless it accepts more (bits below, by
 * parameter index); the runtime converts otherwise. Integers and bools are held as declared. Outputs are
 * contiguous, fp32 for floats, allocated by the runtime from the inferred type; in fp16 mode the runtime rounds
 * them after run. Lists are tensors with a leading axis for the length. */
#ifndef POME_OPS_OP_H
#define POME_OPS_OP_H

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "mil/infer.h"
#include "mil/program.h"
#include "pome/model.h"

typedef struct pome_run {
    const pome_op *op;
    pome_opset opset;
    pome_numerics numerics;
    pome_pool *pool;
    const pome_kernels *kernels;
    const pome_tensor *const *in; /* [op->n_in]; an encoded constant has data NULL */
    pome_tensor *out;             /* [op->n_out] shape and memory set; view() fills data and strides itself */
    void *scratch;                /* 64-byte aligned, as large as scratch() said */
    void *prepared;               /* what prepare() made, or NULL */
} pome_run;

typedef struct pome_prepare {
    const pome_op *op;
    pome_opset opset;
    pome_numerics numerics;
    const pome_kernels *kernels;
    pome_arena *arena;            /* lives as long as the plan */
    void *prepared;               /* set by prepare */
} pome_prepare;

typedef struct pome_op_impl {
    pome_op_id id;
    uint32_t f16_ok;     /* bit p: parameter p may be fp16 in memory */
    uint32_t strided_ok; /* bit p: may have any strides */
    uint32_t encoded_ok; /* bit p: may be an encoded constant (read it through ops/encoded.h) */
    pome_status (*prepare)(pome_prepare *p, pome_error *err);      /* NULL: nothing to prepare */
    size_t (*scratch)(const pome_run *r);                          /* NULL: none. Only shapes may be looked at */
    /* Tries to make the outputs views of an input (strided_ok and f16_ok inputs are passed as they are); false: run
     * is called instead. Must depend on shapes, strides and constants only, plus VALUE parameters. NULL: never */
    bool (*view)(const pome_run *r);
    pome_status (*run)(const pome_run *r, pome_error *err);        /* no allocation */
} pome_op_impl;

const pome_op_impl *pome_op_impl_find(pome_op_id id); /* NULL: no implementation */

/* ---- reading parameters in run() ---- */
static inline const pome_tensor *pome_in(const pome_run *r, uint32_t param) /* NULL if absent */
{
    return r->op->args[param].count ? r->in[r->op->args[param].first] : NULL;
}
static inline const pome_tensor *pome_in_at(const pome_run *r, uint32_t param, uint32_t i)
{
    return r->in[r->op->args[param].first + i];
}
static inline uint32_t pome_in_count(const pome_run *r, uint32_t param)
{
    return r->op->args[param].count;
}
static inline int64_t pome_in_int(const pome_run *r, uint32_t param, int64_t dflt) /* scalar or 1-element */
{
    const pome_tensor *t = pome_in(r, param);
    return t ? pome_tensor_int_at(t, 0) : dflt;
}
static inline double pome_in_float(const pome_run *r, uint32_t param, double dflt)
{
    const pome_tensor *t = pome_in(r, param);
    return t ? pome_tensor_float_at(t, 0) : dflt;
}
static inline bool pome_in_bool(const pome_run *r, uint32_t param, bool dflt)
{
    return pome_in_int(r, param, dflt) != 0;
}
static inline const struct pome_encoded *pome_in_encoded(const pome_run *r, uint32_t param) /* NULL if dense */
{
    const pome_value *v = pome_op_arg(r->op, param);
    return v && v->konst && !v->konst->t.data ? v->konst->encoded : NULL;
}
/* "name (op, #position): text" with the given code. */
pome_status pome_op_fail(const pome_op *op, pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(4, 5);

#define POME_BIT(param) (1u << (param))

#endif
