#include "dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(const dump *d, const char *name)
{
    for (size_t i = 0; i < d->wanted->n; i++)
        if (strcmp(d->wanted->items[i], "all") == 0 || strcmp(d->wanted->items[i], name) == 0)
            return true;
    return false;
}

static bool make_room(dump *d)
{
    if (d->n < d->n_room)
        return true;
    size_t room = d->n_room ? 2 * d->n_room : 64;
    dump_array *bigger = realloc(d->arrays, room * sizeof *bigger);
    if (!bigger)
        return false;
    d->arrays = bigger;
    d->n_room = room;
    return true;
}

static void keep(dump *d, const pome_observed *r)
{
    pome_tensor copy = {0};
    char *name = strdup(r->name);
    if (!name || !make_room(d) || pome_tensor_clone(&copy, r->value, NULL) != POME_OK) {
        free(name);
        d->is_short = true;
        return;
    }
    d->arrays[d->n++] = (dump_array){name, copy};
}

static void check(dump *d, const pome_observed *r)
{
    pome_tensor wide = {0};
    if (!pome_dtype_is_float(r->value->dtype) || pome_tensor_cast(&wide, r->value, POME_DTYPE_F32, NULL) != POME_OK)
        return;
    const float *x = wide.data;
    int64_t n = pome_tensor_count(&wide), n_nan = 0, n_infinite = 0;
    for (int64_t i = 0; i < n; i++) {
        n_nan += isnan(x[i]) != 0;
        n_infinite += isinf(x[i]) != 0;
    }
    if (n_nan + n_infinite > 0) {
        d->has_fault = true;
        snprintf(d->fault, sizeof d->fault, "%s (%s) is the first result that is not finite: %lld NaN and %lld infinite "
                 "of %lld elements", r->name, r->op, (long long)n_nan, (long long)n_infinite, (long long)n);
    }
    pome_tensor_reset(&wide);
}

static void see(void *arg, const pome_observed *r)
{
    dump *d = arg;
    if (d->check_finite && !d->has_fault)
        check(d, r);
    if (is_wanted(d, r->name))
        keep(d, r);
}

void dump_start(dump *d, pome_predictor *predictor)
{
    if (d->wanted->n || d->check_finite)
        pome_predictor_observe(predictor, see, d);
}

void dump_see_output(dump *d, const char *name, const pome_tensor *t)
{
    pome_observed r = {.op = "output", .name = name, .value = t};
    if (d->check_finite && !d->has_fault)
        check(d, &r);
}

static bool has_come(const dump *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->arrays[i].name, name) == 0)
            return true;
    return strcmp(name, "all") == 0;
}

pome_status dump_finish(const dump *d, pome_error *err)
{
    *err = (pome_error){.code = POME_ERR_ARG};
    if (d->is_short) {
        err->code = POME_ERR_NOMEM;
        snprintf(err->message, sizeof err->message, "out of memory for intermediate results");
        return err->code;
    }
    for (size_t i = 0; i < d->wanted->n; i++)
        if (!has_come(d, d->wanted->items[i])) {
            snprintf(err->message, sizeof err->message, "--dump %s: the program computes no such result while it runs "
                     "(pome inspect --plan lists them)", d->wanted->items[i]);
            return err->code;
        }
    if (d->has_fault) {
        snprintf(err->message, sizeof err->message, "%s", d->fault);
        return err->code;
    }
    err->code = POME_OK;
    return POME_OK;
}

void dump_reset(dump *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->arrays[i].name);
        pome_tensor_reset(&d->arrays[i].tensor);
    }
    free(d->arrays);
    *d = (dump){0};
}
