#include "passes/pass.h"

static pome_pass_fn *const pipeline[] = {
    pome_pass_last_row,
    pome_pass_fold,
    pome_pass_group_heads,
    pome_pass_dce,
};

pome_status pome_passes_run(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    for (size_t i = 0; i < sizeof pipeline / sizeof pipeline[0]; i++)
        POME_TRY(pipeline[i](fn, ctx, err));
    return pome_function_infer(fn, err);
}
