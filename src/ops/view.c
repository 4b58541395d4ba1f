#include "ops/view.h"

#include <stdio.h>

const char *pome_shape_text(char *buf, size_t size, const pome_tensor *t)
{
    size_t at = (size_t)snprintf(buf, size, "[");
    for (int32_t d = 0; d < t->rank && at < size; d++)
        at += (size_t)snprintf(buf + at, size - at, d ? ", %lld" : "%lld", (long long)t->shape[d]);
    if (at < size)
        snprintf(buf + at, size - at, "]");
    return buf;
}

pome_status pome_view_misfit(const pome_run *r, pome_error *err)
{
    char in[200], out[200];
    return pome_op_fail(r->op, err, POME_ERR_FORMAT, "input of shape %s does not give the output's shape %s",
                        pome_shape_text(in, sizeof in, r->in[0]), pome_shape_text(out, sizeof out, &r->out[0]));
}

pome_status pome_view_run(const pome_run *r, pome_view_fn *view, pome_error *err)
{
    pome_tensor shown = r->out[0];
    pome_run looking = *r;
    looking.out = &shown;
    if (!view(&looking))
        return pome_view_misfit(r, err);
    pome_strided_copy(&r->out[0], &shown, r->pool, r->kernels);
    return POME_OK;
}
