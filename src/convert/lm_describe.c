#include "convert/lm_cache.h"

pome_status pome_lm_graph_describe(const pome_lm_graph *b, const char *quantize, pome_model_info *out, pome_error *err)
{
    pome_arena *arena = b->program->arena;
    const pome_lm_config *c = b->config;
    const char *const *n = pome_lm_graph_names(b);
    const pome_axis_range one = {1, 1}, any = {1, b->context};
    pome_feature *f = POME_NEW_ARRAY(arena, pome_feature, 3);
    pome_function_info *fn = POME_NEW(arena, pome_function_info);
    pome_metadata_entry *metadata = POME_NEW_ARRAY(arena, pome_metadata_entry, 4);
    const char *text = pome_arena_printf(arena, "%s, %s, context of %lld", c->architecture, quantize,
                                         (long long)b->context);
    if (!f || !fn || !metadata || !text)
        return pome_fail_nomem(err, 0, "the description");
    bool has_cache = b->cache != POME_LM_CACHE_NONE;
    f[0] = (pome_feature){.name = n[0], .dtype = POME_DTYPE_I32, .rank = 2, .shape = {1, 1}, .is_ranged = true,
                          .range = {one, any}};
    f[1] = (pome_feature){.name = n[1], .dtype = POME_DTYPE_F16, .rank = 4, .shape = {1, 1, 1, 1}, .is_ranged = true,
                          .range = {one, one, any, any}};
    f[2] = (pome_feature){.name = "logits", .dtype = b->real, .rank = -1};
    *fn = (pome_function_info){.name = "main", .n_inputs = has_cache ? 2 : 1, .n_outputs = 1, .inputs = f,
                               .outputs = f + 2};
    if (has_cache)
        POME_TRY(pome_lm_cache_describe(b, fn, err));
    uint32_t n_metadata = 0;
    if (c->name)
        metadata[n_metadata++] = (pome_metadata_entry){"co.huggingface.exporters.name", c->name};
    metadata[n_metadata++] = (pome_metadata_entry){"co.huggingface.exporters.task", "text-generation"};
    metadata[n_metadata++] = (pome_metadata_entry){"co.huggingface.exporters.architecture", c->architecture};
    *out = (pome_model_info){.specification_version = b->opset < POME_OPSET_IOS18 ? 7 : 9, .short_description = text, .n_metadata = n_metadata,
                             .metadata = metadata, .n_functions = 1, .functions = fn};
    return POME_OK;
}
