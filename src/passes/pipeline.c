#include "passes/pass.h"

enum { ALWAYS = -1 };

static const struct {
    pome_pass_fn *pass;
    int fusion; /* the one that switches it off, or ALWAYS */
} pipeline[] = {
    {pome_pass_const_dtype, ALWAYS},
    {pome_pass_fold, ALWAYS},
    {pome_pass_group_heads, ALWAYS},
    {pome_pass_cse, POME_FUSION_CSE},
    {pome_pass_fuse_rms_norm, POME_FUSION_RMS_NORM},
    {pome_pass_last_row, ALWAYS},
    {pome_pass_fuse_rotary, POME_FUSION_ROTARY},
    {pome_pass_fuse_gated, POME_FUSION_GATED},
    {pome_pass_fuse_attention, POME_FUSION_ATTENTION},
    {pome_pass_dce, ALWAYS},
    {pome_pass_conv_linear, POME_FUSION_CONV_LINEAR},
    {pome_pass_attention_rows, POME_FUSION_ROWS},
    {pome_pass_dce, ALWAYS},
    {pome_pass_fuse_residual, POME_FUSION_RESIDUAL},
    {pome_pass_fuse_gated_linear, POME_FUSION_GATED_LINEAR},
    {pome_pass_dce, ALWAYS},
    {pome_pass_fuse_linears, POME_FUSION_LINEARS},
    {pome_pass_fuse_conv, POME_FUSION_CONV},
    {pome_pass_fuse_winograd, POME_FUSION_WINOGRAD},
};

pome_status pome_passes_run(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    for (size_t i = 0; i < sizeof pipeline / sizeof pipeline[0]; i++)
        if (pipeline[i].fusion == ALWAYS || (ctx->fusions >> pipeline[i].fusion & 1))
            POME_TRY(pipeline[i].pass(fn, ctx, err));
    return pome_function_infer(fn, err);
}
