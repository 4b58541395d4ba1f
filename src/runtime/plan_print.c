/* A plan as text, for people. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "ops/invoke.h"
#include "pome/inspect.h"
#include "runtime/model.h"

typedef struct printer {
    const pome_plan *plan;
    pome_text_sink *sink;
    void *arg;
} printer;

static void put(const printer *p, const char *fmt, ...) POME_PRINTF(2, 3);
static void put(const printer *p, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        p->sink(p->arg, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void put_type(const printer *p, const pome_type *t)
{
    put(p, "%s%s [", t->kind == POME_TYPE_LIST ? "list of " : "", pome_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            put(p, "%s?", i ? ", " : "");
        else
            put(p, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    }
    put(p, "%s]", t->rank < 0 ? "?" : "");
}

/* Constants that are read as they lie in the file, not expanded. */
static void put_weights(const printer *p, const pome_step *s)
{
    for (uint32_t k = 0; k < s->op->n_in; k++) {
        const pome_const *c = s->op->in[k]->konst;
        if (c && c->encoded_by && !p->plan->slots[s->in[k]].konst.data)
            put(p, "  reads %s", c->encoded_by->def->name);
        else if (c && c->t.dtype == POME_DTYPE_F16 && p->plan->slots[s->in[k]].konst.dtype == POME_DTYPE_F16)
            put(p, "  reads fp16 %s", s->op->def->params[pome_op_param_of(s->op, k)].name);
    }
}

static void put_block(const printer *p, const pome_plan_block *b, int depth)
{
    static const char *const kinds[] = {"shape", "tensor", "dynamic"};
    for (uint32_t i = 0; i < b->n_steps; i++) {
        const pome_step *s = &b->steps[i];
        put(p, "%*s%5u  %-7s  %s", 2 * depth, "", i, kinds[s->kind], s->op->def->name);
        for (uint32_t o = 0; o < s->op->n_out; o++) {
            put(p, "  %s ", s->op->out[o]->name);
            put_type(p, &s->op->out[o]->type);
        }
        put_weights(p, s);
        put(p, "%s%s\n", s->in_place ? "  in place" : "", s->copy_view ? "  copied, its state changes" : "");
        for (uint32_t k = 0; k < s->op->n_blocks; k++)
            put_block(p, s->blocks[k], depth + 1);
    }
}

static void put_fusions(const printer *p)
{
    put(p, "fused:");
    for (int i = 0; i < POME_FUSION_COUNT; i++) {
        if (p->plan->fusions >> i & 1)
            put(p, "%s %s %u", i ? "," : "", pome_fusion_name((pome_fusion)i), p->plan->n_fused[i]);
        else
            put(p, "%s %s off", i ? "," : "", pome_fusion_name((pome_fusion)i));
    }
    put(p, "\n");
}

pome_status pome_model_print_plan(pome_model *model, uint32_t function, pome_text_sink *sink, void *arg, pome_error *err)
{
    printer p = {.sink = sink, .arg = arg};
    if (function >= model->info.n_functions)
        return pome_fail(err, POME_ERR_ARG, "function %u of %u", function, model->info.n_functions);
    POME_TRY(pome_model_get_plan(&p.plan, model, function, -1, err));
    put(&p, "plan of function %s: %u shape steps, %u tensor steps, %u dynamic steps\n",
        model->info.functions[function].name, p.plan->n_steps[POME_STEP_SHAPE], p.plan->n_steps[POME_STEP_TENSOR],
        p.plan->n_steps[POME_STEP_DYNAMIC]);
    put_fusions(&p);
    put_block(&p, p.plan->body, 0);
    return POME_OK;
}
